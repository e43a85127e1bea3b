"""What a program has asked for, in settings that its face keeps: nothing below the face may import that."""

from __future__ import annotations

from collections.abc import Callable

DETERMINISM: list[Callable[[], bool]] = []
PRODUCTS: list[Callable[[], str]] = []
# PyTorch's words, and what they let factors of float32 products be rounded to: by "medium" TF32 as well.
WORDS = {"highest": "float32", "high": "tf32", "medium": "tf32"}


def is_deterministic() -> bool:
    """Whether results are to be the same whatever is found quickest."""
    return any(asked() for asked in DETERMINISM)


def precision() -> str:
    """What factors of products of float32 may be rounded to."""
    return WORDS[PRODUCTS[0]()] if PRODUCTS else "float32"  # eager ops on a GPU ask at each call
