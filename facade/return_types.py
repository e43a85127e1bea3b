"""`lamina.return_types`: the tuples that functions of several results return, under PyTorch's names."""

from __future__ import annotations

from ..ir.op import REGISTRY
from ..ir.ops import equations, factors, histograms, sort, vectors
from ..runtime.return_types import return_type

_RECORDS = {
    "cummax": "cummax", "cummin": "cummin", "frexp": "frexp", "geqrf": "geqrf", "kthvalue": "kthvalue",
    "linalg_eig": "linalg_eig", "linalg_eigh": "linalg_eigh", "linalg_lu_factor": "linalg_lu_factor",
    "linalg_qr": "linalg_qr", "linalg_slogdet": "linalg_slogdet", "linalg_svd": "linalg_svd",
    "max": "max_dim", "median": "median_dim", "min": "min_dim", "mode": "mode", "qr": "linalg_qr",
    "slogdet": "linalg_slogdet", "sort": "sort", "topk": "topk",
}  # fmt: skip
_CLASSES = {
    "aminmax": vectors.Aminmax, "histogram": histograms.Histogram, "histogramdd": histograms.HistogramDD,
    "linalg_cholesky_ex": factors.Cholesky, "linalg_inv_ex": factors.Inverse,
    "linalg_ldl_factor": factors.LDL, "linalg_ldl_factor_ex": factors.LDLInfo,
    "linalg_lstsq": equations.LeastSquares, "linalg_lu": factors.LU, "linalg_lu_factor_ex": factors.LUFactor,
    "linalg_solve_ex": factors.Solution, "lu_unpack": factors.LU, "nanmedian": sort.Median,
    "svd": equations.Svd, "triangular_solve": equations.TriangularSolution,
}  # fmt: skip

globals().update(
    {name: return_type(record, REGISTRY[record].outputs) for name, record in _RECORDS.items()}, **_CLASSES
)
all_return_types = [globals()[name] for name in sorted({*_RECORDS, *_CLASSES})]

__all__ = ["all_return_types", *_RECORDS, *_CLASSES]  # noqa: PLE0604
