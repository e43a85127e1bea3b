"""What of PyTorch's operator database is known not to agree, and why; tests hold the list true.

An entry stands here by its name (and variant), with a reason for each form.
Reasons that begin with "absent" are of names that Lamina does not have.
"""

from __future__ import annotations

from typing import Any

LAYOUT = "channels_last asks for another order of the memory; there is one here: the tensor itself is given"

EXPECTED: dict[str, dict[str, str]] = {
    name: {"function": LAYOUT, "method": LAYOUT}
    for name in ("to", "bool", "long", "float", "double", "cfloat", "cdouble")
}
COUNTS = "counts are steps of gradient 0 and have no history; PyTorch's have one that refuses backward"
EXPECTED |= {
    "geqrf": {"function": "its gradient is not offered, as linalg_qr has one"},
    "histogram": {"function": COUNTS},
    "histogramdd": {"function": COUNTS},
}


def title(entry: Any) -> str:
    """An entry's name, with that of its variant."""
    return f"{entry.name}:{entry.variant_test_name}" if entry.variant_test_name else entry.name


def expected(name: str, form: str) -> str | None:
    """Why a form of an entry may differ."""
    return EXPECTED.get(name, {}).get(form)
