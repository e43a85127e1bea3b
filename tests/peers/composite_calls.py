"""Calls of the functions that are written with ops, for the comparison with PyTorch: no record, so no
samples.

A shape stands for a float64 tensor, `i(...)` for integers below a bound, `b(...)` for bools, `p(...)` for
numbers between 0.1 and 0.9, `d(...)` for distinct ones, `c(...)` and `s(...)` for numbers between 0.1 and 0.9
and for signs that no gradient is wanted of; everything else is passed as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Made:
    """A tensor argument."""

    shape: tuple[int, ...]
    kind: str = "float"
    bound: int = 3


def call(*args: Any, **kwargs: Any) -> tuple[tuple, dict]:
    return tuple(map(_made, args)), {name: _made(x) for name, x in kwargs.items()}


def _made(x: Any) -> Any:
    """Bare tuples of ints are shapes of float tensors, within lists too."""
    if isinstance(x, tuple) and all(isinstance(n, int) and not isinstance(n, bool) for n in x):
        return Made(x)
    return [_made(y) for y in x] if isinstance(x, list) and any(isinstance(y, tuple) for y in x) else x


def i(*shape: int, bound: int = 3) -> Made:
    return Made(shape, "int", bound)


def b(*shape: int) -> Made:
    return Made(shape, "bool")


def p(*shape: int) -> Made:
    return Made(shape, "unit")


def d(*shape: int) -> Made:
    return Made(shape, "distinct")


def c(*shape: int) -> Made:
    return Made(shape, "constant")


def s(*shape: int) -> Made:
    return Made(shape, "sign")


CALLS: dict[str, list[tuple[tuple, dict]]] = {
    "adaptive_avg_pool1d": [call((2, 3, 7), 3)],
    "adaptive_avg_pool2d": [call((2, 3, 5, 7), [3, 2]), call((3, 4, 4), 1)],
    "adaptive_avg_pool3d": [call((1, 2, 4, 5, 3), 2)],
    "addbmm": [call((3, 4), (2, 3, 5), (2, 5, 4), beta=0.5, alpha=2.0)],
    "addmm": [call((4,), (3, 5), (5, 4)), call((3, 4), (3, 5), (5, 4), beta=0.5, alpha=2)],
    "addmv": [call((3,), (3, 5), (5,), beta=2, alpha=0.5)],
    "addr": [call((3, 4), (3,), (4,), beta=0.5)],
    "adjoint": [call((2, 3, 4))],
    "allclose": [call((3,), (3,)), call((3,), (3,), atol=10.0)],
    "aminmax": [call(d(3, 4)), call(d(3, 4), dim=1, keepdim=True)],
    "argsort": [call(d(3, 7)), call(d(7), dim=0, descending=True)],
    "atleast_1d": [call(()), call((3,))],
    "atleast_2d": [call((3,))],
    "atleast_3d": [call((3,)), call((2, 3))],
    "baddbmm": [call((2, 3, 4), (2, 3, 5), (2, 5, 4), beta=0.5)],
    "batch_norm": [
        call((4, 3, 2), None, None, (3,), (3,), True),
        call((4, 3), c(3), c(3), training=False, eps=1e-3),
    ],
    "bfloat16": [call((3,))],
    "bilinear": [call((5, 3), (5, 4), (2, 3, 4), (2,))],
    "binary_cross_entropy": [
        call(p(3, 4), p(3, 4)),
        call(p(5), p(5), reduction="sum"),
        call(p(5), p(5), c(5)),
    ],
    "binary_cross_entropy_with_logits": [
        call((3, 4), p(3, 4)),
        call((5,), p(5), pos_weight=c(5), reduction="none"),
    ],
    "block_diag": [call((2, 3), (1, 2))],
    "bmm": [call((2, 3, 4), (2, 4, 5))],
    "bool": [call(i(3))],
    "broadcast_tensors": [call((3, 1), (4,))],
    "broadcast_to": [call((3, 1), [2, 3, 4])],
    "byte": [call(i(3))],
    "cartesian_prod": [call((3,), (2,))],
    "cdist": [call((3, 2), (4, 2)), call((2, 3, 4), (3, 4), 1.0), call((1, 3), (2, 3), p=3.0)],
    "chain_matmul": [call((2, 3), (3, 4), (4, 2))],
    "channel_shuffle": [call((1, 6, 2, 2), 3)],
    "char": [call(i(3))],
    "chunk": [call((7, 2), 3), call((2, 6), 3, dim=1)],
    "clamp_max": [call(d(5), 0.3)],
    "clamp_min": [call(d(5), 0.3)],
    "column_stack": [call([(3,), (3, 2)])],
    "combinations": [call((4,)), call((3,), 2, True), call((2,), 3), call((3,), r=0)],
    "contiguous": [call((3, 4))],
    "conv_transpose1d": [call((2, 3, 5), (3, 2, 3), (2,), stride=2, padding=1, output_padding=1)],
    "conv_transpose2d": [
        call((2, 4, 3, 4), (4, 2, 2, 3), None, 2, 1, 0, 2),
        call((1, 2, 3, 3), (2, 2, 3, 3), dilation=2),
    ],
    "conv_transpose3d": [call((1, 2, 2, 3, 2), (2, 2, 2, 2, 2))],
    "corrcoef": [call((3, 5)), call((4,))],
    "cosine_similarity": [call((3, 4), (3, 4)), call((3, 4), (4,), dim=-1, eps=1e-4)],
    "count_nonzero": [call(i(3, 4)), call(i(3, 4), dim=1)],
    "cov": [
        call((3, 5)),
        call((4,), correction=0),
        call((1, 4)),
        call((2, 5), fweights=i(5), aweights=c(5)),
    ],
    "cross": [call((3, 4), (3, 4)), call((2, 3), (1, 3), dim=1)],
    "cross_entropy": [
        call((5, 3), i(5)),
        call((5, 3), i(5), c(3), label_smoothing=0.1),
        call((2, 3), p(2, 3)),
    ],
    "det": [call((3, 3)), call((2, 2, 2))],
    "diag": [call((4,)), call((3, 4)), call((3, 4), 1), call((2,), -1)],
    "diag_embed": [call((2, 3)), call((3,), offset=1)],
    "diagflat": [call((2, 2)), call((3,), 1)],
    "diff": [
        call((3, 5)),
        call((4,), 2),
        call((3, 4), dim=0, prepend=(1, 4), append=(2, 4)),
        call(b(5)),
        call(i(3), n=4),
        call((3,), 0),
    ],
    "dist": [call((3, 4), (3, 4)), call((3,), (3,), 1)],
    "div": [
        call((3,), p(3)),
        call((3,), p(3), rounding_mode="floor"),
        call((3,), p(3), rounding_mode="trunc"),
    ],
    "dot": [call((5,), (5,))],
    "vdot": [call((5,), (5,))],
    "isreal": [call((3,)), call(i(3))],
    "double": [call(i(3))],
    "dsplit": [call((2, 3, 4), 2)],
    "dstack": [call([(3,), (3,)])],
    "einsum": [
        call("ij,jk->ik", (2, 3), (3, 4)),
        call("bij,bjk->bik", (2, 3, 4), (2, 4, 2)),
        call("ii->i", (3, 3)),
        call("ii", (3, 3)),
        call("ij->ji", (2, 3)),
        call("i,j->ij", (2,), (3,)),
        call("...ij,...jk", (2, 3, 4), (4, 2)),
        call("ij,kj,lk->il", (2, 3), (4, 3), (5, 4)),
        call("ijk->", (2, 3, 4)),
    ],
    "equal": [call((3,), (3,)), call((3,), (4,))],
    "expand_as": [call((3, 1), (2, 3, 4))],
    "flatten": [call((2, 3, 4)), call((2, 3, 4), 1), call((2, 3, 4), 0, 1), call(())],
    "fliplr": [call((3, 4))],
    "flipud": [call((3, 4))],
    "float": [call(i(3))],
    "gaussian_nll_loss": [
        call((3, 4), (3, 4), p(3, 4)),
        call((3, 4), (3, 4), p(3, 1), full=True, reduction="sum"),
    ],
    "glu": [call((3, 4)), call((4, 3), dim=0)],
    "group_norm": [call((2, 4, 3), 2, (4,), (4,)), call((2, 4), 2)],
    "half": [call((3,))],
    "hinge_embedding_loss": [call(d(6), s(6))],
    "histc": [call(c(9), 4), call(c(9), bins=5, min=0.2, max=0.7), call(c(1)), call(c(0), 3)],
    "hsplit": [call((4, 6), 3), call((4, 6), [1, 3])],
    "hstack": [call([(3,), (2,)]), call([(3, 2), (3, 1)])],
    "huber_loss": [call(d(3, 4), (3, 4)), call(d(4), (4,), reduction="none", delta=0.5)],
    "inner": [call((3, 4), (2, 4)), call((4,), (4,))],
    "instance_norm": [call((2, 3, 4), None, None, (3,), (3,)), call((1, 2, 3, 3))],
    "int": [call((3,))],
    "interpolate": [
        call((1, 2, 4, 5), None, 2.0),
        call((1, 2, 4, 5), [3, 7], mode="bilinear"),
        call((1, 2, 4), 7, mode="linear"),
        call((1, 2, 4, 5), [6, 9], mode="bilinear", align_corners=True),
        call((1, 1, 4, 4), 3, mode="area"),
        call((1, 1, 4, 4), [7, 6], mode="bicubic"),
        call((1, 1, 2, 3, 4), [3, 4, 5], mode="trilinear"),
        call((1, 2, 5), 8, mode="nearest-exact"),
    ],
    "inverse": [call((3, 3)), call((2, 2, 2))],
    "isclose": [call((3,), (3,)), call((3,), (3,), atol=1.0)],
    "isin": [
        call(i(3, 4), i(2)),
        call(i(5), 1),
        call(2, i(3)),
        call(i(4), i(2), invert=True),
        call(i(3), i(0)),
    ],
    "kl_div": [call((3, 4), p(3, 4)), call((3, 4), (3, 4), reduction="batchmean", log_target=True)],
    "kron": [call((2, 3), (2, 2))],
    "l1_loss": [call(d(3, 4), (3, 4)), call(d(3), (3,), reduction="sum")],
    "linalg_cross": [call((4, 3), (4, 3)), call((3, 2), (3, 1), dim=0)],
    "linalg_matrix_norm": [
        call((3, 4)),
        call((2, 3, 4), "nuc"),
        call((3, 4), 2, keepdim=True),
        call((3, 4), -2),
        call((3, 4), 1),
        call((3, 4, 2), float("inf"), [0, 1], True),
        call((3, 4), -1),
    ],
    "linalg_matrix_rank": [call((3, 4)), call((2, 3, 3), atol=1.0)],
    "linalg_multi_dot": [call([(3,), (3, 4), (4, 2)]), call([(2, 3), (3, 4), (4,)]), call([(2, 3), (3, 2)])],
    "linalg_norm": [
        call((3, 4)),
        call((3, 4), dim=0),
        call((3, 4), 2),
        call((3, 4), 1, 1, True),
        call((2, 3, 4), "fro", [1, 2]),
        call((5,), float("inf")),
    ],
    "linalg_pinv": [call((3, 2)), call((2, 2, 3)), call((3, 3), rtol=0.1)],
    "linalg_solve": [call((3, 3), (3, 2)), call((2, 3, 3), (2, 3)), call((3, 3), (3,))],
    "linalg_solve_triangular": [
        call((3, 3), (3, 2), upper=True),
        call((3, 3), (2, 3), upper=False, left=False),
        call((2, 3, 3), (3, 1), upper=False, unitriangular=True),
    ],
    "linalg_svdvals": [call((3, 2)), call((2, 2, 3))],
    "linalg_vecdot": [call((3, 4), (3, 4)), call((3, 4), (3, 1), dim=0)],
    "local_response_norm": [call((2, 5, 3), 3), call((1, 4, 3, 3), 2, alpha=0.1, beta=0.5, k=2.0)],
    "logdet": [call((3, 3))],
    "long": [call((3,))],
    "lp_pool1d": [call(p(1, 2, 8), 2, 3, stride=2)],
    "lp_pool2d": [call(p(1, 2, 4, 4), 2, 2)],
    "lp_pool3d": [call(p(1, 1, 4, 4, 4), 2, 2)],
    "margin_ranking_loss": [call(d(5), (5,), s(5), margin=0.1)],
    "masked_scatter": [call((3, 4), b(3, 4), (12,))],
    "masked_select": [call((3, 4), b(3, 4)), call((3, 4), b(4))],
    "matrix_power": [call((3, 3), 3), call((2, 3, 3), 0), call((3, 3), -2)],
    "max": [call(d(3, 4)), call(d(3, 4), 1), call(d(3, 4), dim=0, keepdim=True), call(d(3), (3,))],
    "median": [call(d(3, 5)), call(d(3, 5), 1), call(d(3, 5), dim=0, keepdim=True)],
    "meshgrid": [call((2,), (3,), indexing="ij"), call((2,), (3,), indexing="xy")],
    "min": [call(d(3, 4)), call(d(3, 4), 1), call(d(3), (3,))],
    "mm": [call((2, 3), (3, 4))],
    "movedim": [call((2, 3, 4), 0, 2), call((2, 3, 4), [0, 1], [2, 0])],
    "mse_loss": [call((3, 4), (3, 4)), call((3,), (3,), reduction="none")],
    "msort": [call(d(5, 2))],
    "multilabel_soft_margin_loss": [call((3, 4), p(3, 4))],
    "mv": [call((2, 3), (3,))],
    "nan_to_num": [call((3,)), call((3,), nan=1.0, posinf=2.0, neginf=-2.0)],
    "nanmean": [call((3, 4)), call((3, 4), 1)],
    "nanquantile": [call(d(3, 5), 0.3, 1), call(d(5), c(2))],
    "nansum": [call((3, 4)), call((3, 4), 1)],
    "native_batch_norm": [call((4, 3, 2), (3,), (3,), None, None, True, 0.1, 1e-5)],
    "native_group_norm": [call((2, 4, 3), (4,), (4,), 2, 4, 3, 2, 1e-5)],
    "native_layer_norm": [call((3, 4), [4], (4,), (4,), 1e-5)],
    "nonzero_static": [call(i(3, 4), size=5), call(i(2), size=4, fill_value=-7)],
    "triangular_solve": [call((2, 3), (2, 2)), call((2, 3), (2, 2), False, True)],
    "narrow": [call((4, 5), 1, 1, 3)],
    "nll_loss": [
        call((5, 3), i(5)),
        call((5, 3), i(5), c(3)),
        call((2, 3, 4), i(2, 4), reduction="sum", ignore_index=1),
    ],
    "nonzero": [call(i(3, 4)), call(i(3, 4), as_tuple=True)],
    "norm": [
        call((3, 4)),
        call((3, 4), 1, 0),
        call((3, 4), float("inf"), 1),
        call((3, 4), "fro", dim=1, keepdim=True),
    ],
    "normalize": [call((3, 4)), call((3, 4), p=1.0, dim=0)],
    "outer": [call((3,), (4,))],
    "pad": [
        call((3, 4), [1, 2]),
        call((3, 4), [1, 2, 0, -1], value=2.0),
        call((1, 2, 4), [2, 1], "reflect"),
        call((1, 2, 4, 4), [1, 2, 0, 1], "replicate"),
        call((1, 2, 4), [2, 1], mode="circular"),
    ],
    "pairwise_distance": [call((3, 4), (3, 4)), call((3, 4), (3, 4), p=1.0, keepdim=True)],
    "pinverse": [call((3, 2))],
    "pixel_shuffle": [call((1, 8, 2, 3), 2)],
    "pixel_unshuffle": [call((1, 2, 4, 6), 2)],
    "poisson_nll_loss": [call((3, 4), p(3, 4)), call(p(3), p(3), log_input=False, full=True)],
    "polygamma": [call(1, p(3))],
    "positive": [call((3,))],
    "prelu": [call((2, 3, 4), (3,)), call((5,), (1,))],
    "quantile": [
        call(d(3, 5), 0.3),
        call(d(3, 5), 0.3, 1),
        call(d(3, 5), c(2), 0, True),
        call(d(3, 5), 0.5, keepdim=True),
        call(d(4), c(3), interpolation="nearest"),
        call(d(4), 0.4, interpolation="lower"),
        call(d(4), 0.4, interpolation="higher"),
        call(d(4), 0.4, interpolation="midpoint"),
    ],
    "ravel": [call((3, 4))],
    "repeat": [call((2, 3), 2, 1), call((3,), 2, 2), call((3,), 5, 1), call((), 4)],
    "repeat_interleave": [call((3, 2), 2), call((3, 2), 2, dim=1), call((3, 2), i(3), dim=0)],
    "reshape_as": [call((2, 6), (3, 4))],
    "roll": [call((3, 4), 1), call((3, 4), [1, -1], [0, 1]), call((3, 4), 2, 1)],
    "rot90": [call((3, 4)), call((3, 4), 2), call((2, 3, 4), -1, [1, 2])],
    "rsub": [call((3,), (3,)), call((3,), 2.0)],
    "scaled_dot_product_attention": [
        call((2, 3, 4), (2, 5, 4), (2, 5, 3)),
        call((1, 2, 4, 3), (1, 2, 4, 3), (1, 2, 4, 3), is_causal=True),
        call((2, 3, 4), (2, 5, 4), (2, 5, 3), attn_mask=b(3, 5)),
        call((2, 3, 4), (2, 5, 4), (2, 5, 3), (3, 5), scale=0.5),
    ],
    "select": [call((3, 4), 1, 2), call((3, 4), 0, -1)],
    "short": [call((3,))],
    "slogdet": [call((3, 3)), call((2, 2, 2))],
    "smooth_l1_loss": [call(d(3, 4), (3, 4)), call(d(4), (4,), beta=0.5, reduction="sum")],
    "soft_margin_loss": [call((5,), s(5))],
    "softmin": [call((3, 4), dim=1)],
    "split": [call((7, 2), 3), call((7, 2), [3, 4]), call((2, 5), 2, dim=1)],
    "split_with_sizes": [call((7, 2), [3, 4])],
    "std_mean": [call((3, 4)), call((3, 4), 1), call((3, 4), dim=0, keepdim=True)],
    "t": [call((3, 4)), call((3,))],
    "take": [call((3, 4), i(5, bound=12))],
    "take_along_dim": [call((3, 4), i(3, 2), 1), call((3, 4), i(5, bound=12))],
    "tensor_split": [call((7, 2), 3), call((7, 2), [1, 4]), call((2, 7), 3, dim=1)],
    "tensordot": [
        call((2, 3, 4), (3, 4, 5)),
        call((2, 3), (3, 4), dims=1),
        call((2, 3, 4), (4, 3, 2), dims=([1, 2], [1, 0])),
    ],
    "tile": [call((2, 3), [2]), call((3,), [2, 2]), call((3,), [5, 1])],
    "trace": [call((3, 4))],
    "trapezoid": [
        call((3, 5)),
        call((3, 5), (5,)),
        call((3, 5), (3, 5), dim=0),
        call((4,), dx=0.5),
        call((1,)),
    ],
    "triplet_margin_loss": [
        call((3, 4), (3, 4), (3, 4)),
        call((3, 4), (3, 4), (3, 4), margin=2.0, swap=True),
    ],
    "type_as": [call((3,), i(3))],
    "unbind": [call((3, 4)), call((3, 4), 1)],
    "unflatten": [call((2, 6), 1, [2, 3]), call((6, 2), 0, [-1, 2])],
    "unique": [call(i(7)), call(i(7), return_inverse=True, return_counts=True)],
    "unique_consecutive": [call(i(7)), call(i(7), return_counts=True)],
    "var_mean": [call((3, 4)), call((3, 4), 1, correction=0)],
    "view_as": [call((2, 6), (3, 4))],
    "vsplit": [call((4, 3), 2)],
    "vstack": [call([(3,), (3,)])],
}
_COMPLEX = "of complex numbers: test_torch_complex.py compares it"
WITHOUT = {
    **dict.fromkeys(
        ("fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"),
        "rounds, so differences tell nothing of it: test_torch_fake_quantize.py compares it, bit by bit",
    ),
    "_int_mm": "needs matrices of 8-bit integers: test_torch_bytes.py compares it",
    "pack_int4": "PyTorch has no such packing: tests/ops/test_int4.py holds it",
    **dict.fromkeys("cdouble cfloat conj imag linalg_eigvals polar real stft istft".split(), _COMPLEX),
    **dict.fromkeys(
        ("is_conj", "is_neg", "resolve_conj", "resolve_neg"), "says or does nothing: " + _COMPLEX
    ),
    **{
        f"fft_{kind}{d}": _COMPLEX
        for kind in "fft ifft rfft irfft hfft ihfft".split()
        for d in ("", "2", "n")
    },
    **dict.fromkeys(("fft_fftshift", "fft_ifftshift"), _COMPLEX),
    "bucketize": "its boundaries must be sorted: compared by hand",
    "cholesky": "needs a positive-definite matrix, and is linalg_cholesky, a record that is compared",
    "cholesky_solve": "needs a triangular matrix: compared by hand",
    "cosine_embedding_loss": "needs labels of 1 and -1 for rows: compared by hand",
    "getitem": "spelled x[index]: the tests of indexing compare it",
    "gru_cell": "PyTorch's takes its gates in another order of arguments: the tests of nn compare it",
    "linalg_eigvalsh": "needs symmetric matrices: compared by hand",
    "linalg_lstsq": "PyTorch's leaves the singular values out: compared by hand",
    "lstm_cell": "takes a pair of states: the tests of nn compare it",
    "max_unpool1d": "needs the indices of a pooling: compared by hand",
    "max_unpool2d": "needs the indices of a pooling: compared by hand",
    "max_unpool3d": "needs the indices of a pooling: compared by hand",
    "orgqr": "another name of linalg_householder_product, which is compared",
    "qr": "its vectors are fixed up to signs: compared by hand",
    "rnn_relu_cell": "the tests of nn compare it",
    "rnn_tanh_cell": "the tests of nn compare it",
    "select_copy": "a copy of select, as all _copy functions are made",
    "slice_copy": "a copy of slice, as all _copy functions are made",
    "split_copy": "a copy of split, as all _copy functions are made",
    "unsafe_split_with_sizes": "another name of split_with_sizes",
    "setitem_": "spelled x[index] = value: the tests of indexing compare it",
    "slice": "spelled x[a:b]: the tests of indexing compare it",
    "svd": "its vectors are fixed up to signs: compared by hand",
}
