"""What of PyTorch's operator database is known not to agree, and why; tests hold the list true.

An entry stands here by its name (and variant), with a reason for each form.  ALL stands for every form.
Reasons that begin with "absent" are of names that Lamina does not have.
"""

from __future__ import annotations

from typing import Any

ALL = ("function", "method", "in place", "out=")
INTEGERS = "integers: PyTorch's CPU kernels take them, Lamina's compute with floats"
ZERO_D = "a 0-d operand: Lamina refuses to index a tensor without dimensions"
SYMMETRIC = "the sample isn't symmetric: PyTorch reads one triangle, Lamina the mean of both"
INEXACT = "PyTorch's float64 is off in its 8th to 12th digit; Lamina's is SciPy's"
INTERNAL = "absent: PyTorch's own inner form of a function that is there"
COMPLEX = "absent: about complex numbers"
TRIANGLE = "PyTorch's gradient fills the triangle that the function doesn't read; Lamina's is zero there"
NEW = "absent: not built yet"


def _same(reason: str, *forms: str) -> dict[str, str]:
    return dict.fromkeys(forms or ("function",), reason)


EXPECTED: dict[str, dict[str, str]] = {
    # ---- absent
    **{name: _same(COMPLEX) for name in ("resolve_neg:", "imag:", "real:", "view_as_real:")},
}


def title(entry: Any) -> str:
    """An entry's name, with that of its variant."""
    return f"{entry.name}:{entry.variant_test_name}" if entry.variant_test_name else entry.name


def expected(name: str, form: str) -> str | None:
    """Why a form of an entry may differ."""
    return EXPECTED.get(name, {}).get(form)
