"""The data: 1797 digits, each written by hand by one of 13 people and scanned to 8x8 pixels.

Source: Alpaydin and Kaynak, Optical Recognition of Handwritten Digits, UCI repository, 1998; the part of it
that scikit-learn brings along, so that nothing is downloaded.
"""

from __future__ import annotations

from typing import NamedTuple

import lamina


class Part(NamedTuple):
    """Digits with their meanings.  Shapes: images f32[n, 1, 8, 8] from 0 to 1, labels i64[n]."""

    images: lamina.Tensor
    labels: lamina.Tensor


class Digits(NamedTuple):
    train: Part
    test: Part


def load() -> Digits:
    """Load all digits and split them 4 : 1, always in the same way, each digit in equal shares."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    found = load_digits()
    images = (found.images[:, None] / 16).astype("float32")
    labels = found.target.astype("int64")
    train_images, test_images, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, stratify=labels, random_state=0
    )
    return Digits(
        Part(lamina.tensor(train_images), lamina.tensor(train_labels)),
        Part(lamina.tensor(test_images), lamina.tensor(test_labels)),
    )
