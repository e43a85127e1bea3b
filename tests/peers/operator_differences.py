"""What of PyTorch's operator database is known not to agree, and why; tests hold the list true.

An entry stands here by its name (and variant), with a reason for each form.  ALL stands for every form.
Reasons that begin with "absent" are of names that Lamina does not have.
"""

from __future__ import annotations

from typing import Any

ALL = ("function", "method", "in place", "out=")
SYMMETRIC = "the sample isn't symmetric: PyTorch's pseudo-inverse reads one triangle, Lamina's both"
INEXACT = "PyTorch's float64 is off in its 8th to 12th digit; Lamina's is SciPy's"
HERMITIAN = "complex: PyTorch's gradient also follows what breaks the symmetry; Lamina's is Hermitian"
REAL = "complex: Lamina's is of real numbers alone"
REAL_PARTS = "complex with a real dtype=: PyTorch drops the imaginary parts, Lamina refuses"
ROUNDED = "PyTorch works it out in float32; Lamina's is the float64 result, rounded"


def _same(reason: str, *forms: str) -> dict[str, str]:
    return dict.fromkeys(forms or ("function",), reason)


EXPECTED: dict[str, dict[str, str]] = {
    # ---- complex
    **{name: _same(HERMITIAN) for name in ("cholesky", "linalg.cholesky", "linalg.cholesky_ex")},
    "geqrf": _same(REAL, "function", "method", "out="),
    **{f"nn.functional.{name}": _same(REAL) for name in ("rms_norm", "softsign")},
    **{f"linalg.{name}": _same(REAL, "function", "out=") for name in (
        "ldl_factor", "ldl_factor_ex", "ldl_solve",
    )},
    **{name: _same(REAL_PARTS, "function", "method", "out=") for name in (
        "softmax:with_dtype", "log_softmax:with_dtype",
    )},
    "nn.functional.softmin:with_dtype": _same(REAL_PARTS),
    **{name: _same("complex: PyTorch's gradient ends in its 11th digit") for name in (
        "linalg.lstsq", "linalg.lstsq:grad_oriented",
    )},
    # ---- shapes
    "addbmm": _same("a sum that is broadcast: PyTorch resizes what is written in place", "in place"),
    # ---- values
    "linalg.pinv:hermitian": _same(SYMMETRIC, "function", "out="),
    **{f"special.{name}": _same(INEXACT, "function", "out=") for name in (
        "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "ndtr",
    )},
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
