"""The ops that can't be written as ONNX, and why."""

from __future__ import annotations

from ....ir.lowering import NotLowered
from ....ir.op import REGISTRY
from .graph_writer import is_known, refused

refused("ONNX has no operator that reads or builds bits of numbers", "nextafter", "frexp", "hash_tensor")
refused("ONNX has no operator for it", "gcd", "lcm", "lgamma", "mode", "pivoted_order")
refused("ONNX has no operator that raises an error for values", "_assert_async")
refused("a model is run by one process", *(name for name, op in REGISTRY.items() if op.traits.meets))
refused("ONNX has no integrals", "_dirichlet_grad", "_standard_gamma_grad")
refused("how many there are hangs on the values", "argwhere", "bincount", "unique_parts")
refused("Lamina's generators are none of ONNX's", *(name for name in REGISTRY if name.startswith("random_")))
refused(
    "ONNX has no polynomials whose degrees are values",
    *(name for name in REGISTRY if "_polynomial_" in name),
)
refused(
    "ONNX has no factorisations of matrices",
    "cholesky_inverse", "cholesky_parts", "cholesky_solve", "geqrf", "ldl_parts", "ldl_solved",
    "linalg_cholesky", "linalg_eig", "linalg_eigh", "linalg_inv", "linalg_lu_factor", "linalg_qr",
    "linalg_slogdet", "linalg_svd", "pseudo_inverse", "solve_matrix", "solve_triangle",
)  # fmt: skip
refused(
    "ONNX has no such special function",
    *(
        name
        for name, op in REGISTRY.items()
        if isinstance(op.lower, NotLowered) and op.lower.reason.startswith("SciPy") and not is_known(op)
    ),
)
refused("ONNX has no factorisations of matrices", "linalg_matrix_exp")
