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
TRIANGLE = "PyTorch's gradient fills the triangle that the function doesn't read; Lamina's is zero there"
NEW = "absent: not built yet"
HERMITIAN = "complex: PyTorch's gradient also follows what breaks the symmetry; Lamina's is Hermitian"
REAL = "complex: Lamina's is of real numbers alone"
REAL_PARTS = "complex with a real dtype=: PyTorch drops the imaginary parts, Lamina refuses"


def _same(reason: str, *forms: str) -> dict[str, str]:
    return dict.fromkeys(forms or ("function",), reason)


EXPECTED: dict[str, dict[str, str]] = {
    # ---- absent
    **{name: _same(NEW) for name in ("svd_lowrank", "pca_lowrank")},
    "new_empty_strided": _same(NEW, "function", "method"),
    "nonzero_static": _same(NEW, "function", "method"),
    "triangular_solve": _same("absent: PyTorch has it as deprecated", "function", "method", "out="),
    "hash_tensor": _same(NEW, "function", "method", "out="),
    **{name: _same(INTERNAL) for name in (
        "native_group_norm", "native_layer_norm", "grid_sampler_2d", "grid_sampler_3d",
        "max_pool2d_with_indices_backward",
    )},
    "native_batch_norm": _same(INTERNAL, "function", "out="),
    **{name: _same("absent: of float8, which Lamina lacks", "function", "out=") for name in (
        "torch._scaled_mm", "torch._scaled_mm_v2",
    )},
    # ---- dtypes and shapes
    **{name: _same(HERMITIAN) for name in ("cholesky", "linalg.cholesky", "linalg.cholesky_ex")},
    "geqrf": _same(REAL, "function", "method", "out="),
    **{f"nn.functional.{name}": _same(REAL) for name in ("rms_norm", "softsign")},
    **{f"linalg.{name}": _same(REAL, "function", "out=") for name in ("ldl_factor", "ldl_factor_ex", "ldl_solve")},
    **{name: _same(REAL_PARTS, "function", "method", "out=") for name in (
        "softmax:with_dtype", "log_softmax:with_dtype",
    )},
    "nn.functional.softmin:with_dtype": _same(REAL_PARTS),
    **{name: _same("complex: PyTorch's gradient ends in its 11th digit") for name in (
        "linalg.lstsq", "linalg.lstsq:grad_oriented",
    )},
    **{f"nn.functional.{name}": _same(INTEGERS) for name in (
        "avg_pool1d", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
        "conv_transpose3d", "hardtanh", "local_response_norm",
    )},
    **{f"nn.functional.{name}": _same(INTEGERS, "function", "out=") for name in ("avg_pool2d", "avg_pool3d")},
    "nn.functional.threshold": _same(INTEGERS, "function", "in place"),
    "heaviside": _same("bools: Lamina's steps are of numbers", *ALL),
    "sum_to_size": _same("a bool that is added up over one element stays a bool", "function", "method"),
    **{name: _same(ZERO_D, *ALL) for name in ("index_add", "index_copy")},
    "index_fill": _same(ZERO_D, "function", "method", "in place"),
    "index_select": _same(ZERO_D, "function", "method", "out="),
    "gather": _same("an empty index of another rank: Lamina refuses it", "function", "method"),
    "addbmm": _same("a sum that is broadcast: PyTorch resizes what is written in place", "in place"),
    "nn.functional.batch_norm": _same("an input of one dimension and no elements: Lamina refuses it"),
    "__rpow__": _same("integers to negative powers: PyTorch gives 0, Lamina refuses", "function", "method"),
    "linalg.norm": _same("the largest of nothing: PyTorch gives 0, Lamina refuses"),
    "linalg.norm:subgradients_at_zero": _same("the largest of nothing: PyTorch gives 0, Lamina refuses"),
    # ---- values
    "mode": _same("which of equal elements is named is left open", "function", "method"),
    **{f"linalg.{name}": _same(SYMMETRIC, "function", "out=") for name in (
        "eigh", "eigvalsh", "pinv:hermitian",
    )},
    **{f"special.{name}": _same(INEXACT, "function", "out=") for name in (
        "airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "ndtr",
    )},
    # ---- gradients
    **{name: _same(TRIANGLE) for name in ("cholesky_inverse", "cholesky_solve")},
    "as_strided_scatter": _same("PyTorch's gradient of elements that were replaced isn't zero"),
    **{name: _same("where a full factorisation has no elements: only S has a gradient")
       for name in ("linalg.svd", "svd")},
    "logcumsumexp": _same("PyTorch's gradient ends in its 12th digit: it goes through logarithms"),
    "nn.functional.hardsigmoid": _same("PyTorch's gradient has 1/6 in float32"),
    "nn.functional.ctc_loss": _same("PyTorch's gradient is that of logits, whatever log-probabilities are"),
}  # fmt: skip


def title(entry: Any) -> str:
    """An entry's name, with that of its variant."""
    return f"{entry.name}:{entry.variant_test_name}" if entry.variant_test_name else entry.name


def expected(name: str, form: str) -> str | None:
    """Why a form of an entry may differ."""
    return EXPECTED.get(name, {}).get(form)
