"""What of PyTorch's operator database is known not to agree, and why; tests hold the list true.

An entry stands here by its name (and variant), with a reason for each form.  ALL stands for every form.
Reasons that begin with "absent" are of names that Lamina does not have.
"""

from __future__ import annotations

from typing import Any

ALL = ("function", "method", "in place", "out=")
SYMMETRIC = "the sample isn't symmetric: PyTorch's pseudo-inverse reads one triangle, Lamina's both"
INEXACT = "PyTorch's float64 is off in its 8th to 12th digit; Lamina's is SciPy's"
ROUNDED = "PyTorch works it out in float32; Lamina's is the float64 result, rounded"


def _same(reason: str, *forms: str) -> dict[str, str]:
    return dict.fromkeys(forms or ("function",), reason)


EXPECTED: dict[str, dict[str, str]] = {
    # ---- shapes
    "addbmm": _same("a sum that is broadcast: PyTorch resizes what is written in place", "in place"),
    # ---- values
    "linalg.pinv:hermitian": _same(SYMMETRIC, "function", "out="),
    **{f"special.{name}": _same(INEXACT, "function", "out=") for name in (
        "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "ndtr",
    )},
    **{f"signal.windows.{name}": _same(ROUNDED) for name in ("blackman", "nuttall")},
    # ---- gradients
    "as_strided_scatter": _same("PyTorch's gradient fails its gradcheck: of elements replaced it isn't 0"),
    "logcumsumexp": _same("PyTorch's gradient ends in its 12th digit: it goes through logarithms"),
    "nn.functional.hardsigmoid": _same("PyTorch's gradient has 1/6 in float32"),
}  # fmt: skip


def title(entry: Any) -> str:
    """An entry's name, with that of its variant."""
    return f"{entry.name}:{entry.variant_test_name}" if entry.variant_test_name else entry.name


def expected(name: str, form: str) -> str | None:
    """Why a form of an entry may differ."""
    return EXPECTED.get(name, {}).get(form)
