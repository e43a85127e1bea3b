"""Every op record against the PyTorch function of the same name: values, dtypes, gradients, and what is
refused.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")
sys.path.insert(0, str(Path(__file__).parent.parent / "ops"))  # the harness of the generated tests

from checks import differentiable, first_dtype, taken  # noqa: E402
from harness import (  # noqa: E402
    EPS,
    TAKES,
    Case,
    assert_near,
    bound,
    cases,
    cotangents_for,
    interest,
    is_float,
    needs_of,
    special_cases,
    tensors_of,
)
from tensor_checks import applied, tensors  # noqa: E402

import lamina  # noqa: E402
from lamina.ir import dtypes  # noqa: E402
from lamina.ir.dtypes import DType  # noqa: E402
from lamina.ir.errors import LaminaError  # noqa: E402
from lamina.ir.op import REGISTRY, Op  # noqa: E402
from lamina.ir.ops.polynomials import FAMILIES  # noqa: E402
from lamina.runtime.ops import FUNCTIONS  # noqa: E402
from lamina.runtime.tensor import tensor_of  # noqa: E402

functional = torch.nn.functional
TORCH_DTYPES = {d: getattr(torch, d.name) for d in (*dtypes.ALL, *dtypes.UNSIGNED)}


def _pad(x, pads, value=0):
    return functional.pad(x, [n for pair in reversed(pads) for n in pair], value=value)


def _ungather(x, index, dim, shape, combine="add"):
    zeros = torch.zeros(shape, dtype=x.dtype)
    return zeros.scatter_add(dim, index, x) if combine == "add" else zeros.scatter(dim, index, x)


def _conv_input_grad(g, weight, *, size, **how):
    function = getattr(functional, f"conv_transpose{len(size)}d")
    reached = function(g, weight, **how).shape[-len(size) :]
    return function(g, weight, output_padding=tuple(n - m for n, m in zip(size, reached, strict=True)), **how)


def _conv_weight_grad(g, input, *, size, **how):
    if g.ndim == len(size) + 1:
        g, input = g[None], input[None]
    function = getattr(torch.nn.grad, f"conv{len(size)}d_weight")
    return function(input, (g.shape[1], input.shape[1] // how["groups"], *size), g, **how)


def _cross_entropy(input, target, weight=None, **how):
    return functional.cross_entropy(
        input, target, weight if weight is None else weight.to(input.dtype), **how
    )


def _batch_norm_eval(x, mean, var, weight=None, bias=None, eps=1e-5):
    if not mean.requires_grad and not var.requires_grad:
        return functional.batch_norm(x, mean, var, weight, bias, False, 0.1, eps)
    mean, var, weight, bias = (  # PyTorch's has no gradients of statistics: by its arithmetic
        None if each is None else each.reshape(-1, *[1] * (x.ndim - 2)) for each in (mean, var, weight, bias)
    )
    found = (x - mean) * torch.rsqrt(var + eps)
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


# Records that PyTorch spells otherwise.
SPELLED: dict[str, Callable] = {
    "_prelu": lambda x, weight: torch.where(x > 0, x, weight * x),
    "basic_index": lambda x, index: x[index],
    "batch_norm_eval": _batch_norm_eval,
    "binary_cross_entropy_elements": lambda *both: functional.binary_cross_entropy(
        *torch.broadcast_tensors(*both), reduction="none"
    ),
    "cast": lambda x, dtype: x.to(dtype),
    "constant_pad": _pad,
    "col2im": functional.fold,
    "conv_input_grad": _conv_input_grad,
    "conv_weight_grad": _conv_weight_grad,
    "copy": lambda x, src: x.clone().copy_(src),
    "fill": lambda x, value: torch.full_like(x, value),
    "im2col": functional.unfold,
    "index": lambda x, indices: x[tuple(slice(None) if i is None else i for i in indices)],
    "index_put": lambda x, indices, *values, **how: x.index_put(tuple(indices), *values, **how),
    "max_dim": torch.max,
    "median_all": torch.median,
    "median_dim": lambda x, dim=-1, keepdim=False: torch.median(x, dim, keepdim),
    "min_dim": torch.min,
    "nanmedian_all": torch.nanmedian,
    "softmax_cross_entropy": _cross_entropy,
    "solve_matrix": torch.linalg.solve,
    "solve_triangle": torch.linalg.solve_triangular,
    "trigamma": lambda x: torch.polygamma(1, x),
    "trunc_divide": lambda x, y: torch.div(x, y, rounding_mode="trunc"),
    "unfold": torch.Tensor.unfold,
    "ungather": _ungather,
    "view": lambda x, *sizes, shape=None: x.view(shape or sizes),
}
# Records that have no counterpart in PyTorch.  tests/ops holds them to their references and to finite
# differences.
_INNER = "PyTorch has it as an inner kernel only"
_ELSEWHERE = "PyTorch's returns nothing, or is off by up to 2e-2: the tests of distributions hold them"
_STEP = "PyTorch's optimizers are classes: the tests of optim compare those"
_SIGNS = "fixed up to signs of vectors: test_torch_decompositions.py compares what does not depend on those"
_BETWEEN = "PyTorch has it between processes; tests/distributed compares it with NumPy"
WITHOUT: dict[str, str] = {
    **dict.fromkeys(("avg_pool_grad", "max_pool_grad", "ctc_paths", "gru_gates", "lstm_gates"), _INNER),
    **dict.fromkeys(("attention", "attention_backward"), _INNER),
    **{f"{kind}_layer{way}": _INNER for kind in ("lstm", "gru", "rnn") for way in ("", "_backward")},
    "batch_norm_train": "PyTorch's also updates the running statistics; the composite batch_norm is compared",
    **dict.fromkeys(("band_scan", "linear_recurrence"), "PyTorch has no such scan"),
    **dict.fromkeys(("linalg_eigh", "linalg_qr", "linalg_svd"), _SIGNS),
    **dict.fromkeys(
        ("ldl_parts", "ldl_solved", "pivoted_order", "cholesky_parts", "pseudo_inverse"),
        "part of functions that test_torch_operators.py compares",
    ),
    "pick_at": _INNER,
    "softmax_cross_entropy_grad": _INNER,
    "spread_at": _INNER,
    "unindex": _INNER,
    "unview": _INNER,
    "unique_parts": "PyTorch's unique and unique_consecutive: composites of it are compared by name",
    "view_scatter": "PyTorch has slice_scatter and the like, not for chains of views",
    **dict.fromkeys((name for name, op in REGISTRY.items() if op.traits.mutates), _STEP),
    **dict.fromkeys((name for name, op in REGISTRY.items() if op.traits.meets), _BETWEEN),
    **dict.fromkeys(
        (
            "_fake_quantize",
            "dequantize_affine",
            "int_conv1d",
            "int_conv2d",
            "int_matmul",
            "quantize_affine",
            "quantized_conv1d",
            "quantized_conv2d",
            "quantized_linear",
            "unpack_int4",
        ),
        "an operator of quantised models, which tests/quantization compares with float arithmetic and ONNX",
    ),
    **dict.fromkeys(("_assert_async", "_dirichlet_grad", "_standard_gamma_grad"), _ELSEWHERE),
}
# What PyTorch itself can't do or gets wrong: part of its message, and why that is no fault of the record.
FAILS_IN_TORCH = {
    "hardtanh": ("unsigned type with negative limits", "no unsigned number is below them"),
    "constant_pad": ("length must be non-negative", "it cuts no more than there is"),
    "adaptive_max_pool1d": ("must be tuple of ints", "it takes no None for the one size there is"),
    "adaptive_max_pool1d_with_indices": (
        "must be tuple of ints",
        "it takes no None for the one size there is",
    ),
    "avg_pool1d": ("unexpected keyword argument 'divisor_override'", "the other dimensions have it"),
    "floor_divide": ("derivative for aten::floor_divide is not", "its steps are flat: the gradient is zero"),
    "heaviside": ("derivative for aten::heaviside is not", "test_torch_operators.py has its gradients"),
    "index_put": ("expected Tensor as element", "its function takes no None for a dimension taken whole"),
    "linear": ("mat2 must be a matrix", "it takes a 1-D weight for some inputs only"),
    "scatter": ("derivative for aten::scatter is not implemented", "its scatter with reduce has no gradient"),
    "scatter_reduce": (
        "returned an invalid gradient",
        "its gradient to the source needs an index of the same shape",
    ),
    "scatter_add": (
        "returned an invalid gradient",
        "its gradient to the source needs an index of the same shape",
    ),
}
INEXACT_IN_TORCH = {
    **{
        f"special_{name}": (1e-4, "its coefficients have 8 digits, fewer near the zeros")
        for name in ("airy_ai", "bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")
    },
    "linalg_matrix_exp": (
        1e-12,
        "the gradient here, an exponential of twice the size, loses two digits",
    ),
    "digamma": (1e-9, "its trigamma, the gradient, ends its series early"),
    "hardsigmoid": (1e-7, "its gradient has the constant 1/6 in float32"),
    "trigamma": (1e-9, "its series ends early"),
}
_ENDS = "at infinities and the ends of the range SciPy's are other limits"
SPECIAL_IN_TORCH = {
    **dict.fromkeys(("igamma", "igammac", "special_zeta", "special_airy_ai"), _ENDS),
    **{f"special_{name}": _ENDS for name in ("bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1")},
    **{f"special_{name}": "degrees beyond 65,536 are refused" for name in FAMILIES},
    "frexp": "two results",
    "binary_cross_entropy_elements": "it refuses inputs outside of [0, 1]",
    "trigamma": "its poles come out finite",
}
HALVES_IN_TORCH = {
    "linalg_matrix_exp": "it multiplies in the half type",
    "special_i0e": "it adds up in the half type",
    "col2im": "it adds up in the half type",
    "conv_input_grad": "its transposed convolution adds up in the half type",
    "logit": "it rounds x / (1 - x) to the half type before the logarithm",
}
TIES = dict.fromkeys(
    ("sort", "topk", "kthvalue", "mode", "median_dim"), "which of equal elements is named is left open"
)
NARROWER = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_input_grad"), "PyTorch also convolves integers"),
    "clamp": "PyTorch also clamps bools",
    "col2im": "PyTorch also folds bools",
    "im2col": "PyTorch also unfolds bools",
    "hardtanh": "PyTorch also takes integers, and drops the fractions of its bounds",
    "heaviside": "PyTorch also takes bools",
    "threshold": "PyTorch also takes integers, and drops the fractions of its numbers",
    "_prelu": "PyTorch's prelu takes floats only too; it is spelled with where here",
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), "PyTorch also averages int64, rounding down"),
}


def counterpart(op: Op) -> Callable | None:
    """PyTorch's function of that name, else its method."""
    if op.name in SPELLED:
        return SPELLED[op.name]
    if WITHOUT.get(op.name) in (_SIGNS, _ELSEWHERE):
        return None
    if op.name.startswith("linalg_"):
        return getattr(torch.linalg, op.name.removeprefix("linalg_"))
    if op.name.startswith("special_"):
        return getattr(torch.special, op.name.removeprefix("special_"))
    for place in (functional, torch, torch.special, torch.linalg, torch.Tensor):
        if hasattr(place, op.name):
            return getattr(place, op.name)
    return None


def to_torch(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        if x.dtype == dtypes.bfloat16.numpy:
            return torch.from_numpy(x.copy().view(np.int16)).view(torch.bfloat16)
        return torch.from_numpy(np.array(x))
    if isinstance(x, DType):
        return TORCH_DTYPES[x]
    return type(x)(map(to_torch, x)) if type(x) in (tuple, list) else x


def to_lamina(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return tensor_of(x.copy())
    return type(x)(map(to_lamina, x)) if type(x) in (tuple, list) else x


def to_numpy(x: Any) -> np.ndarray:
    x = x.detach()
    if x.dtype is torch.bfloat16:
        return x.contiguous().view(torch.int16).numpy().view(dtypes.bfloat16.numpy)
    return x.numpy(force=True)  # a gradient of nothing but zeros has no memory


def listed(x: Any) -> list:
    return list(x) if isinstance(x, (tuple, list)) else [x]


class Missing(Exception):
    """PyTorch has no kernel of this op for a dtype on the CPU, or no gradient."""


def guarded(name: str, call: Callable) -> Any:
    """PyTorch's call without its warnings.  Raises Missing for what it can't do."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return call()
    except (RuntimeError, TypeError) as error:
        known = ("not implemented for", "not supported", *FAILS_IN_TORCH.get(name, ())[:1])
        if any(text in str(error) for text in known):
            raise Missing(str(error)) from None
        raise


def by_torch(case: Case, function: Callable) -> list:
    args, kwargs = list(map(to_torch, case.args)), {n: to_torch(x) for n, x in case.kwargs.items()}
    return listed(guarded(case.op.name, lambda: function(*args, **kwargs)))


def by_lamina(case: Case) -> list:
    function = FUNCTIONS.get(case.op.name) if case.op.traits.creation else case.op
    return listed(function(*map(to_lamina, case.args), **{n: to_lamina(x) for n, x in case.kwargs.items()}))


NAMES = sorted(n for n, op in REGISTRY.items() if op.dtypes != "complex")  # those: test_torch_complex.py
COMPARED = [
    n
    for n in NAMES
    if counterpart(REGISTRY[n]) is not None and n not in WITHOUT and not REGISTRY[n].traits.random
]


@pytest.mark.sampled(1)  # all of them: it takes seconds, and says what was forgotten
@pytest.mark.parametrize("name", NAMES)
def test_record_has_a_counterpart_or_a_reason(name):
    op = REGISTRY[name]
    found = counterpart(op) is not None
    if op.traits.random:
        return  # other generator, other numbers: tests/ops holds them to the distribution
    assert found != (name in WITHOUT), (
        f"{name}: PyTorch has it too, take it out of WITHOUT"
        if found
        else f"{name}: no PyTorch function, no reason in WITHOUT"
    )


def compared_cases(op: Op):
    """All samples in the wide dtypes, further dtypes on two."""
    for dtype in taken(op, (dtypes.float64, dtypes.float32)) or (first_dtype(op),):
        for case in cases(op, dtype):
            yield prepared(case), dtype
    for dtype in taken(op):
        for case in cases(op, dtype, count=2):
            yield prepared(case), dtype


def prepared(case: Case) -> Case:
    """The case with operands that the op promises something for: searchsorted's first one is sorted."""
    if case.op.name == "searchsorted":
        case.args[0].sort(axis=-1)
    return case


@pytest.mark.parametrize("name", COMPARED)
def test_record_values_and_dtypes_are_torchs(name):
    op = REGISTRY[name]
    function, compared = counterpart(op), 0
    for case, dtype in compared_cases(op):
        if name in HALVES_IN_TORCH and dtype is not dtype.compute:
            continue
        try:
            wanted = by_torch(case, function)
        except Missing:
            continue
        compared += 1
        found = by_lamina(case)
        assert len(found) == len(wanted), f"{case}: {len(found)} outputs, PyTorch gives {len(wanted)}"
        exact = case.widened().run()
        for n, (x, y, z) in enumerate(zip(found, wanted, exact, strict=False)):
            assert TORCH_DTYPES[x.dtype] is y.dtype, f"{case}: output {n} is {x.dtype}, PyTorch's {y.dtype}"
            if op.name.startswith("empty") or op.name == "new_empty":
                assert tuple(x.shape) == tuple(y.shape), (
                    f"{case}: shape {tuple(x.shape)}, PyTorch's {tuple(y.shape)}"
                )
                continue
            limit: Any = 0.0
            if is_float(z) and not op.traits.movement:
                own = x.dtype if dtype not in EPS else dtype
                limit = (
                    2 * bound(case, [e.astype(np.float64) for e in exact], own)[n]
                )  # either may be off by it
                if name in INEXACT_IN_TORCH:
                    limit = np.maximum(limit, INEXACT_IN_TORCH[name][0] * np.abs(z))
            elif n and name in TIES and not dtype.is_floating_point:
                continue
            assert_near(x._data, to_numpy(y), limit, f"{case}: output {n} against PyTorch")
    assert compared, f"{name}: PyTorch took none of the samples"


@pytest.mark.parametrize("name", [n for n in COMPARED if REGISTRY[n].traits.elementwise])
def test_record_special_values_are_torchs(name):
    """NaN, infinities, zeros, the tiny and the huge, in float64: few functions differ by more than ulps."""
    op, function = REGISTRY[name], counterpart(REGISTRY[name])
    if dtypes.float64 not in TAKES[op.dtypes] or name.startswith("empty") or name in SPECIAL_IN_TORCH:
        return
    for case in special_cases(op, dtypes.float64):
        (wanted,), (found,) = by_torch(case, function), by_lamina(case)
        limit = 4 * bound(case, case.run(), dtypes.float64)[0] if is_float(to_numpy(wanted)) else 0.0
        if name in INEXACT_IN_TORCH:
            limit = np.maximum(limit, INEXACT_IN_TORCH[name][0] * np.abs(np.nan_to_num(found._data)))
        assert_near(found._data, to_numpy(wanted), limit, f"{case}: against PyTorch")


@pytest.mark.parametrize("name", [n for n in COMPARED if REGISTRY[n].differentiable])
def test_record_gradients_are_torchs(name):
    op, function = REGISTRY[name], counterpart(REGISTRY[name])
    for case in differentiable(op):
        if op.traits.creation or any(isinstance(x, (tuple, list)) and needs_list(x) for x in case.args):
            continue
        given = {id(x): to_torch(x) for x in case.operands if x is not None}
        needs = needs_of(case)
        for x, need in zip(case.operands, needs, strict=True):
            if need:
                given[id(x)].requires_grad_()
        args = [given.get(id(x), to_torch(x)) for x in case.args]
        kwargs = {n: given.get(id(x), to_torch(x)) for n, x in case.kwargs.items()}
        used = {id(x) for x in (*case.args, *case.kwargs.values())}
        chosen = [
            i for i, (x, need) in enumerate(zip(case.operands, needs, strict=True)) if need and id(x) in used
        ]
        cotangents = [c for c in cotangents_for(case, case.run()) if c is not None]
        try:
            outs = [
                y
                for y in listed(guarded(name, lambda f=function, a=args, k=kwargs: f(*a, **k)))
                if y.requires_grad
            ]
            if not chosen or not outs:
                continue
            starts, weights = [given[id(case.operands[i])] for i in chosen], list(map(to_torch, cotangents))
            wanted = guarded(
                name, lambda o=outs, s=starts, w=weights: torch.autograd.grad(o, s, w, allow_unused=True)
            )
        except Missing:
            continue
        xs = tensors(case.operands, [i in chosen for i in range(len(needs))])
        mine = [y for y in applied(case, xs) if y.requires_grad]
        found = lamina.runtime.grad(
            mine, [xs[i] for i in chosen], list(map(tensor_of, cotangents)), allow_unused=True
        )
        for i, g, h in zip(chosen, found, wanted, strict=True):
            g = np.zeros(case.operands[i].shape) if g is None else g._data
            h = np.zeros(case.operands[i].shape) if h is None else to_numpy(h)
            # two float64 evaluations of the same sums of products, each term with up to 32 roundings
            terms = 64 + sum(x.size for x in case.operands if x is not None)
            limit = max(terms * EPS[dtypes.float64], INEXACT_IN_TORCH.get(name, (0.0,))[0]) * np.max(
                np.abs(h), initial=1.0
            )
            assert_near(g, h, limit, f"{case}: gradient of operand {i} against PyTorch")


def needs_list(x: Any) -> bool:
    return any(isinstance(y, np.ndarray) for y in x)


@pytest.mark.parametrize("name", [n for n in COMPARED if REGISTRY[n].dtypes != "all"])
def test_record_refuses_only_dtypes_that_torch_refuses(name):
    op, function = REGISTRY[name], counterpart(REGISTRY[name])
    for dtype in set(dtypes.ALL) - set(TAKES[op.dtypes]):
        if name in NARROWER:
            continue
        for case in cases(op, dtype, count=2):
            if not interest(case.sample) or all(x.category != "any" for x in tensors_of(case.sample)):
                continue
            try:
                by_torch(case, function)
            except (Missing, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                continue
            raise AssertionError(
                f"{case}: the record takes {op.dtypes!r} only, PyTorch takes {dtype.name} too"
            )


# Calls that must fail in both: (name, arguments).  Arrays are made from shapes; "i" stands for integers.
BAD_CALLS: list[tuple[str, tuple, dict]] = [
    ("add", ((2, 3), (4,)), {}),
    ("matmul", ((2, 3), (4, 5)), {}),
    ("matmul", ((), (3,)), {}),
    ("sum", ((2, 3),), {"dim": 2}),
    ("sum", ((2, 3),), {"dim": (0, 0)}),
    ("mean", ("i",), {}),
    ("softmax", ((2, 3),), {"dim": 5}),
    ("cat", (((2, 3), (2, 4)),), {"dim": 0}),
    ("reshape", ((2, 3), (4, 2)), {}),
    ("transpose", ((2, 3), 0, 3), {}),
    ("squeeze", ((2, 3),), {"dim": 4}),
    ("unsqueeze", ((2, 3),), {"dim": 4}),
    ("argmax", ((0,),), {}),
    ("amax", ((0, 3),), {"dim": 0}),
    ("max", ((0,),), {}),
    ("gather", ((2, 3), 0, "i"), {}),
    ("index_select", ((2, 3), 2, "i"), {}),
    ("conv2d", ((1, 3, 8, 8), (4, 2, 3, 3)), {}),
    ("conv2d", ((1, 3, 2, 2), (4, 3, 3, 3)), {}),
    ("layer_norm", ((2, 3), (4,)), {}),
    ("bitwise_and", ((2,), (2,)), {}),
    ("sub", ("b", "b"), {}),
    ("stack", (((2,), (3,)),), {}),
    ("cumsum", ((2, 3),), {"dim": 2}),
    ("permute", ((2, 3), (0, 0)), {}),
]


@pytest.mark.parametrize("name, args, kwargs", BAD_CALLS, ids=lambda value: str(value))
def test_bad_call_fails_as_in_torch(name, args, kwargs):
    op = FUNCTIONS.get(name)
    if op is None:
        pytest.fail(f"there is no op {name}")
    shapes_as_sizes = {"reshape": 1, "layer_norm": 1, "permute": 1}

    def array(x: Any, position: int) -> Any:
        if x == "i":
            return np.array([0, 5])
        if x == "b":
            return np.array([True, False])
        if isinstance(x, tuple) and x and isinstance(x[0], tuple):
            return [np.ones(s) for s in x]
        if isinstance(x, tuple) and shapes_as_sizes.get(name) != position:
            return np.ones(x)
        return x

    made = [array(x, i) for i, x in enumerate(args)]
    place = torch if hasattr(torch, name) else functional
    with pytest.raises((RuntimeError, IndexError, TypeError, ValueError, NotImplementedError)) as theirs:
        getattr(place, name)(*map(to_torch, made), **kwargs)
    with pytest.raises(LaminaError) as ours:
        op(*map(to_lamina, made), **kwargs)
    family = next(
        kind for kind in (IndexError, TypeError, ValueError, RuntimeError) if isinstance(theirs.value, kind)
    )
    assert isinstance(ours.value, family), (
        f"PyTorch raises {type(theirs.value).__name__}, Lamina {type(ours.value).__name__}"
    )
