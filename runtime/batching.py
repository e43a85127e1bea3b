"""What becomes of an op where operands carry a batch axis in front: rules, by trait where that says enough.

A rule takes a `Call` and returns the op's visible outputs with the batch axis in front.  It calls ordinary
ops on what is inside, so it needs no gradient of its own, and works on operands that are transformed further
out.  The first of these that fits is taken:

    RULES                    families that need one of their own: products, convolutions, indexing, norms
    views                    attrs are shapes, dims or slices; `prefixed` puts the batch before them
    elementwise              ranks are aligned, then it broadcasts
    dims in attrs            `dim` and its kin move by one
    the last dims count      linalg, tril: what stands in front is a batch already
    a decomposition          is run on the operands as they are
    by one loop              with a warning, and named by tests/func/test_vmap_rules.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from math import nan, prod
from typing import Any

from ..ir.lowering import Decomposition
from ..ir.op import REGISTRY, Op
from ..ir.types import Shape, Type
from ..ir.views import MAPS, Chain, shapes_along
from . import ops
from .dispatch import run_general
from .tensor import Tensor


@dataclass(frozen=True)
class Call:
    """One call of an op, of which some operands have a batch axis of `size` in front.

    values: what is inside of the operands.  batched: which have the axis.  kinds: their types without it.
    outs: the types of all outputs without it.
    """

    op: Op
    attrs: dict[str, Any]
    values: tuple[Any, ...]
    batched: tuple[bool, ...]
    kinds: tuple[Type | None, ...]
    outs: tuple[Type, ...]
    size: int

    def ndim(self, i: int) -> int:
        """The rank of an operand without the batch axis."""
        return self.kinds[i].ndim

    def full(self, i: int) -> Any:
        """An operand with the axis, by expanding where it has none."""
        x = self.values[i]
        if x is None or self.batched[i]:
            return x
        return REGISTRY["expand"](x, (self.size, *x.shape))

    def all_full(self) -> tuple:
        return tuple(map(self.full, range(len(self.values))))

    def aligned(self, i: int, rank: int) -> Any:
        """An operand whose other axes are `rank`, or which broadcasts to that."""
        x = self.values[i]
        return x if x is None or not self.batched[i] else inserted(x, rank - self.ndim(i))

    def run(self, operands: Sequence[Any], **attrs: Any) -> tuple:
        """The op itself, with some attrs changed."""
        return listed(run_general(self.op, tuple(operands), self.attrs | attrs))


Rule = Callable[[Call], Sequence[Tensor]]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter the rule of some records."""

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def listed(x: Any) -> tuple:
    return tuple(x) if isinstance(x, tuple) else (x,)


def inserted(x: Tensor, count: int) -> Tensor:
    """Axes of size 1 right behind the first."""
    if count <= 0:
        return x
    return REGISTRY["reshape"](x, (x.shape[0], *(1,) * count, *x.shape[1:]))


def on_operands(function: Callable) -> Rule:
    """A rule said without batch axes: function(*operands, **attrs), of operands as the user sees them."""

    @wraps(function)
    def apply(call: Call) -> Any:
        raise NotImplementedError  # batched.py hands the operands over

    apply.logical = function  # type: ignore[attr-defined]
    return apply


def rule_for(op: Op, kinds: Sequence[Type | None]) -> Rule | None:
    """The rule of a record; None where only a loop is left."""
    found = RULES.get(op.name)
    if found is not None:
        return found
    if op.name in MAPS:
        return _view if op.name in _PREFIXES else None
    if op.traits.elementwise:
        return _elementwise
    if op.traits.host or op.traits.mutates or op.traits.random:
        return None
    if not op.variadic and not _DIMS.isdisjoint(op.attrs) and set(op.attrs) <= _DIMS | _PLAIN:
        return _along_dims
    if isinstance(op.lower, Decomposition):
        return _decomposed(op.lower)
    return None


def otherwise(op: Op) -> Callable | None:
    """What stands for a rule that says NotImplemented: a function of the operands as they are."""
    return OTHERWISE.get(op.name) or (op.lower.function if isinstance(op.lower, Decomposition) else None)


def _decomposed(lowering: Decomposition) -> Rule:
    return on_operands(lowering.function)


# ---- elementwise -------------------------------------------------------------------------------------------
def _elementwise(call: Call) -> tuple:
    kinds = [k for k in call.kinds if k is not None]
    rank = max(k.ndim for k in kinds)
    given = [call.aligned(i, rank) for i in range(len(call.values))]
    # A 0-d operand takes part in promotion as a number does, and with the batch axis it is 0-d no longer.
    shifty = any(b and k is not None and not k.ndim for b, k in zip(call.batched, call.kinds))
    if shifty and call.op.casts is not None and len({k.dtype for k in kinds}) > 1:
        to = call.op.casts(*call.kinds, **call.attrs)
        given = [x if x is None or d is None or x.dtype is d else REGISTRY["cast"](x, dtype=d)
                 for x, d in zip(given, to, strict=True)]  # fmt: skip
    return call.run(given)


@rule("masked_fill")
def _masked_fill(call: Call) -> tuple:
    if not call.batched[2]:
        rank = max(call.ndim(0), call.ndim(1))
        return call.run([call.aligned(0, rank), call.aligned(1, rank), call.values[2]])
    rank = max(call.ndim(0), call.ndim(1))
    value = REGISTRY["cast"](call.values[2], dtype=call.kinds[0].dtype)
    return listed(REGISTRY["where"](call.aligned(1, rank), inserted(value, rank), call.aligned(0, rank)))


@rule("copy")
def _copied(call: Call) -> tuple:
    return call.run([call.full(0), call.aligned(1, call.ndim(0))])


@rule("new_empty", "new_full", "new_ones", "new_zeros")
def _made_like(call: Call) -> tuple:
    return call.run(call.values, size=(call.size, *call.attrs["size"]))


# ---- views -------------------------------------------------------------------------------------------------
def _shifted(dims: Any) -> Any:
    return tuple(d + 1 for d in dims) if isinstance(dims, tuple) else dims + 1


# attrs of a view of an operand of `shape` -> those of the same view behind an axis of `size`
_PREFIXES: dict[str, Callable[[dict, int, Shape], dict]] = {
    "as_strided": lambda a, size, shape: (
        a | {"size": (size, *a["size"]), "stride": (prod(shape), *a["stride"])}
    ),
    "basic_index": lambda a, size, _: {"index": (("slice", 0, size, 1), *a["index"])},
    "expand": lambda a, size, _: {"size": (size, *a["size"])},
    "permute": lambda a, size, _: {"dims": (0, *_shifted(a["dims"]))},
    "reshape": lambda a, size, _: {"shape": (size, *a["shape"])},
    "view": lambda a, size, _: {"shape": (size, *a["shape"])},
    **dict.fromkeys(("squeeze", "unsqueeze"), lambda a, size, _: {"dim": _shifted(a["dim"])}),
    "transpose": lambda a, size, _: {"dim0": a["dim0"] + 1, "dim1": a["dim1"] + 1},
    "diagonal": lambda a, size, _: a | {"dim1": a["dim1"] + 1, "dim2": a["dim2"] + 1},
    "unfold": lambda a, size, _: a | {"dimension": a["dimension"] + 1},
}


def _view(call: Call) -> tuple:
    (x,), name = call.values, call.op.name
    if name == "as_strided":  # of what one example is
        x = x.contiguous()
    if name == "expand":
        x = inserted(x, len(call.attrs["size"]) - call.ndim(0))
    elif not call.ndim(0) and name in ("transpose", "unfold"):  # whose dim is one that a 0-d tensor lacks
        return (x,) if name == "transpose" else (REGISTRY["unsqueeze"](x, 1),)
    return listed(
        run_general(call.op, (x,), call.attrs | _PREFIXES[name](call.attrs, call.size, call.kinds[0].shape))
    )


def _prefixed_chain(chain: Chain, shape: tuple, size: int) -> Chain | None:
    """The same views behind an axis of `size`; None where one can't be said so."""
    if any(name not in _PREFIXES for name, _ in chain):
        return None
    found = []
    for (name, given), before in zip(chain, shapes_along(shape, chain)):
        attrs = dict(given)
        if not before and name in ("transpose", "unfold"):
            return None
        if name == "expand" and len(attrs["size"]) > len(before):
            middle = (size, *(1,) * (len(attrs["size"]) - len(before)), *before)
            found.append(("reshape", (("shape", middle),)))
        found.append((name, tuple((attrs | _PREFIXES[name](attrs, size, before)).items())))
    return tuple(found)


@rule("unview")
def _unview(call: Call) -> tuple | None:
    shape = call.attrs["shape"]
    chain = _prefixed_chain(call.attrs["chain"], shape, call.size)
    return None if chain is None else call.run(call.values, shape=(call.size, *shape), chain=chain)


@rule("view_scatter")
def _view_scatter(call: Call) -> tuple | None:
    chain = _prefixed_chain(call.attrs["chain"], call.kinds[0].shape, call.size)
    return None if chain is None else call.run(call.all_full(), chain=chain)


# ---- dims in attrs -----------------------------------------------------------------------------------------
_DIMS = frozenset(("dim", "dims"))  # attrs that are dims, wherever they stand
_PLAIN = frozenset((  # attrs that say nothing of a shape
    "keepdim", "dtype", "correction", "ord", "k", "largest", "sorted", "descending", "reduce", "include_self",
    "combine", "alpha", "value",
))  # fmt: skip


def _source(call: Call, i: int) -> Any:
    """An operand with the axis; one that is 0-d where others are not is scatter's number for all places."""
    x = call.values[i]
    if x is None or not call.ndim(0) or call.ndim(i):
        return call.full(i)
    if not call.batched[i]:
        return x
    index = call.kinds[1]
    return REGISTRY["expand"](inserted(x, index.ndim), (call.size, *index.shape))


def _of_one_dimension(call: Call, given: Sequence[Any]) -> tuple:
    """Operands that are 0-d without the batch axis with a dimension behind it; an index may have one."""
    return tuple(
        REGISTRY["unsqueeze"](x, 1) if x is not None and not call.ndim(i) else x for i, x in enumerate(given)
    )


def _along_dims(call: Call) -> tuple:
    if call.attrs.get("dim", 0) is None:  # over all that there is
        count = call.kinds[0].size
        (x,) = call.values
        found = call.run([REGISTRY["reshape"](x, (call.size, count))], dim=1, keepdim=False)
        return tuple(REGISTRY["reshape"](y, (call.size, *t.shape)) for y, t in zip(found, call.outs))
    name = "dim" if "dim" in call.attrs else "dims"
    dims, given = call.attrs[name], [_source(call, i) for i in range(len(call.values))]
    flat = not call.ndim(0)  # of which PyTorch allows dim 0 all the same
    if flat:
        given = _of_one_dimension(call, given)
    found = call.run(given, **{name: _shifted(dims)})
    if flat:
        found = tuple(REGISTRY["reshape"](y, (call.size, *t.shape)) for y, t in zip(found, call.outs))
    return found


RULES.update(dict.fromkeys(("fft_c2c", "fft_c2r", "fft_r2c"), _along_dims))


@rule("ungather")
def _ungather(call: Call) -> tuple:
    given, shape = call.all_full(), call.attrs["shape"]
    flat = not shape
    if flat:
        given, shape = _of_one_dimension(call, given), (1,)
    found = call.run(given, dim=call.attrs["dim"] + 1, shape=(call.size, *shape))
    return tuple(REGISTRY["reshape"](y, (call.size,)) for y in found) if flat else found


@rule("cat", "stack")
def _joined(call: Call) -> tuple:
    return call.run(call.all_full(), dim=call.attrs["dim"] + 1)


@rule("constant_pad")
def _constant_pad(call: Call) -> tuple:
    return call.run(call.values, pads=((0, 0), *call.attrs["pads"]))


@rule("median_all", "nanmedian_all")
def _median_all(call: Call) -> tuple:
    count = call.kinds[0].size
    if not count:
        return (REGISTRY["new_full"](call.values[0], (call.size,), nan),)
    x = REGISTRY["reshape"](call.values[0], (call.size, count))
    if call.op.name == "nanmedian_all":
        return (ops.nanmedian(x, 1)[0],)
    return (run_general(REGISTRY["median_dim"], (x,), {"dim": 1, "keepdim": False})[0],)


@rule("layer_norm", "rms_norm")
def _norm(call: Call) -> Any:
    if any(call.batched[1:]):
        return NotImplemented  # batched.py scales afterwards
    return call.run(call.values, dim=_shifted(call.attrs["dim"]))


# ---- what stands in front is a batch already ---------------------------------------------------------------
@rule(
    "tril", "triu", "linalg_cholesky", "linalg_det", "linalg_inv", "linalg_slogdet", "linalg_eigh",
    "linalg_qr", "linalg_svd", "cholesky_inverse", "cholesky_parts", "linalg_eig", "linalg_lu_factor",
    "linalg_matrix_exp", "pseudo_inverse",
    "geqrf", "ldl_parts", "pivoted_order", "real", "imag", "view_as_real",
    "view_as_complex", "pairs_to_complex", "gru_gates", "lstm_gates", "max_pool_grad", "pick_at", "spread_at",
    "all_reduce", "reduce", "broadcast", "permute_ranks",
)  # fmt: skip
def _leading(call: Call) -> tuple:
    found = call.run(call.all_full())
    if call.attrs.get("mode") == "r":  # of QR, which then has an empty Q
        found = (REGISTRY["new_zeros"](found[0], (call.size, 0)), *found[1:])
    return found


@rule("all_gather", "reduce_scatter", "all_to_all", "all_to_all_parts")
def _between_ranks(call: Call) -> tuple:
    dims = {name: dim + 1 for name, dim in call.attrs.items() if name.endswith("dim")}
    return call.run(call.values, **dims)


@rule("solve_matrix", "solve_triangle", "cholesky_solve")
def _solve(call: Call) -> tuple:
    rank = max(call.ndim(0), call.ndim(1))
    return call.run([call.aligned(0, rank), call.aligned(1, rank)])


@rule("ldl_solved")
def _ldl_solved(call: Call) -> tuple:
    rank = max(call.ndim(0), call.ndim(2))
    ranks = (rank, rank - 1, rank)
    return call.run([inserted(call.full(i), r - call.ndim(i)) for i, r in enumerate(ranks)])


@rule("searchsorted")
def _searchsorted(call: Call) -> Any:
    if not call.batched[0] and call.ndim(0) == 1:
        return call.run(call.values)
    if call.ndim(0) == 1:  # one sequence for all values: they stand in one row behind it
        count = call.kinds[1].size
        values = REGISTRY["reshape"](call.full(1), (call.size, count))
        (found,) = call.run([call.values[0], values])
        return (REGISTRY["reshape"](found, (call.size, *call.kinds[1].shape)),)
    return call.run(call.all_full())


# ---- products ----------------------------------------------------------------------------------------------
@rule("matmul", "int_matmul")
def _matmul(call: Call) -> tuple:
    (a, b), ranks = call.values, (call.ndim(0), call.ndim(1))
    if not call.batched[1] and ranks[0] == 1 and ranks[1] <= 2:
        return call.run([a, b])  # vectors are the rows of one matrix
    if not call.batched[0] and ranks[1] == 1 and ranks[0] <= 2:
        return call.run([b, REGISTRY["transpose"](a, 0, 1) if ranks[0] == 2 else a])
    if ranks[0] == 1:
        a = REGISTRY["unsqueeze"](a, -2)
    if ranks[1] == 1:
        b = REGISTRY["unsqueeze"](b, -1)
    widths = [max(r, 2) for r in ranks]
    a, b = (inserted(x, max(widths) - w) if flag else x for x, w, flag in zip((a, b), widths, call.batched))
    out = call.op(a, b)
    if ranks[1] == 1:
        out = REGISTRY["squeeze"](out, -1)
    if ranks[0] == 1:
        out = REGISTRY["squeeze"](out, -1 if ranks[1] == 1 else -2)
    return (out,)


def _linear(input: Any, weight: Any, bias: Any) -> Any:
    out = REGISTRY["matmul"](input, weight.mT if weight.ndim == 2 else weight)
    return out if bias is None else out + bias


RULES["linear"] = on_operands(_linear)


# ---- folding into another axis -----------------------------------------------------------------------------
def folded(x: Tensor, at: int) -> Tensor:
    """The first axis merged into the one that stands at `at` behind it: [b, n, c] at 1 -> [n, b * c]."""
    if at:
        order = (*range(1, at + 1), 0, *range(at + 1, x.ndim))
        x = REGISTRY["permute"](x, order)
    return REGISTRY["reshape"](x, (*x.shape[:at], x.shape[at] * x.shape[at + 1], *x.shape[at + 2 :]))


def unfolded(x: Tensor, at: int, size: int) -> Tensor:
    """The inverse of `folded`."""
    x = REGISTRY["reshape"](x, (*x.shape[:at], size, x.shape[at] // size, *x.shape[at + 1 :]))
    return REGISTRY["permute"](x, (at, *range(at), *range(at + 1, x.ndim))) if at else x


@rule(
    "im2col", "col2im", "avg_pool_grad",
    *(f"{kind}{n}d" for n in (1, 2, 3) for kind in ("max_pool", "avg_pool", "adaptive_max_pool")),
    *(f"{kind}{n}d_with_indices" for n in (1, 2, 3) for kind in ("max_pool", "adaptive_max_pool")),
)  # fmt: skip
def _pooled(call: Call) -> tuple:
    """Every image, or channel, for itself: the batch makes more of them."""
    if not call.size * call.kinds[0].shape[0]:  # a size that nothing can be divided by
        return NotImplemented
    return tuple(unfolded(y, 0, call.size) for y in call.run([folded(call.values[0], 0)]))


@rule("conv1d", "conv2d", "conv3d", "conv_input_grad", "int_conv1d", "int_conv2d")
def _conv(call: Call) -> Any:
    """A batch of images is more images, a batch of weights more groups."""
    bias = call.values[2] if len(call.values) > 2 else None
    rest = () if len(call.values) < 3 else (None,)
    rank = call.ndim(1)  # of the weight, and of images with an axis of them
    if not call.size or not call.kinds[0].size or not call.kinds[1].size:
        return NotImplemented
    if not call.batched[1]:
        plain = call.op.name == "conv_input_grad" or bias is None or not call.batched[2]
        given = bias if plain else None
        if call.batched[0]:
            single = call.ndim(0) == rank - 1
            x = call.values[0] if single else folded(call.values[0], 0)
            (out,) = call.run([x, call.values[1], *((given,) if rest else ())])
            out = out if single else unfolded(out, 0, call.size)
        else:
            (out,) = call.run([call.values[0], call.values[1], None])
            out = REGISTRY["expand"](out, (call.size, *out.shape))
    else:
        given, x = None, call.full(0)
        single = call.ndim(0) == rank - 1
        if single:
            x = REGISTRY["unsqueeze"](x, 1)
        (out,) = call.run(
            [folded(x, 1), folded(call.values[1], 0), *rest], groups=call.attrs["groups"] * call.size
        )
        out = unfolded(out, 1, call.size)
        if single:
            out = REGISTRY["squeeze"](out, 1)
    if bias is not None and given is None:
        bias = call.full(2)
        ones = (1,) * (rank - 2)
        one_image = () if call.ndim(0) == rank - 1 else (1,)
        out = out + REGISTRY["reshape"](bias, (call.size, *one_image, bias.shape[1], *ones))
    return (out,)


@rule("unpack_int4")
def _unpacked(call: Call) -> tuple:
    return call.run(call.all_full())


@rule("conv_weight_grad")
def _conv_weight_grad(call: Call) -> Any:
    g, x = call.all_full()
    if not g.numel() or not x.numel():
        return NotImplemented
    if call.ndim(0) == len(call.attrs["size"]) + 1:
        g, x = REGISTRY["unsqueeze"](g, 1), REGISTRY["unsqueeze"](x, 1)
    (out,) = call.run([folded(g, 1), folded(x, 1)], groups=call.attrs["groups"] * call.size)
    return (unfolded(out, 0, call.size),)


@rule("batch_norm_train", "batch_norm_eval")
def _batch_norm(call: Call) -> Any:
    if not call.size or not call.kinds[0].shape[1]:
        return NotImplemented
    x, *vectors = call.all_full()
    given = [v if v is None else folded(v, 0) for v in vectors]
    out, *statistics = call.run([folded(x, 1), *given])
    return (unfolded(out, 1, call.size), *(unfolded(s, 0, call.size) for s in statistics))


@rule("softmax_cross_entropy_grad")
def _cross_entropy_grad(call: Call) -> Any:
    """More samples, each with the scale that its example's loss has."""
    if call.batched[3] or not call.size:
        return NotImplemented
    g, input, target, weight, high, rest, total = (
        call.full(i) if i != 3 else call.values[3] for i in range(7)
    )
    attrs, kind = call.attrs, call.kinds[2]
    if attrs["reduction"] != "none":
        scale = g / total if attrs["reduction"] == "mean" else g
        g = REGISTRY["expand"](
            REGISTRY["reshape"](scale, (call.size, *(1,) * kind.ndim)), tuple(target.shape)
        )
    if call.ndim(1) > 1:
        g, input, target, high, rest = (folded(x, 0) for x in (g, input, target, high, rest))
    (out,) = call.run([g, input, target, weight, high, rest, total[0]], reduction="none")
    return (REGISTRY["reshape"](out, (call.size, *call.kinds[1].shape)),)


# ---- indexing ----------------------------------------------------------------------------------------------
def _spread(index: Any, like: Any, dim: int) -> Any:
    """An index of one dimension as one for each element of `like`, along `dim`."""
    ones = (1,) * (like.ndim - dim - 1)
    return REGISTRY["expand"](REGISTRY["reshape"](index, (-1, *ones)), tuple(like.shape))


def _picked_along(x: Any, index: Any, dim: int) -> Any:
    """index_select by `gather`, of operands as the user sees them."""
    if not x.ndim:
        return REGISTRY["index_select"](REGISTRY["unsqueeze"](x, 0), 0, index).reshape(())
    index = REGISTRY["reshape"](index, (-1,))
    shape = (*x.shape[:dim], index.shape[0], *x.shape[dim + 1 :])
    spread = REGISTRY["reshape"](index, (-1, *(1,) * (x.ndim - dim - 1)))
    return REGISTRY["gather"](x, dim, REGISTRY["expand"](spread, shape))


@rule("index_select", "index_add", "index_copy", "index_fill")
def _by_one_index(call: Call) -> Any:
    one_value = call.op.name == "index_fill"
    if call.batched[1] or not call.ndim(0) or one_value and call.batched[2]:
        return NotImplemented
    rest = call.values[2:] if one_value else [call.full(i) for i in range(2, len(call.values))]
    given = [call.full(0), call.values[1], *rest]
    return call.run(given, dim=call.attrs["dim"] + 1)


@rule("embedding")
def _embedding(call: Call) -> Any:
    return NotImplemented if call.batched[1] else call.run(call.values)


def _embedding_by_index(input: Any, weight: Any, *, padding_idx: int | None) -> Any:
    flat = REGISTRY["index_select"](weight, 0, REGISTRY["reshape"](input, (-1,)))
    out = REGISTRY["reshape"](flat, (*input.shape, *weight.shape[1:]))
    if padding_idx is not None:  # a row without gradient
        out = REGISTRY["where"](REGISTRY["unsqueeze"](input == padding_idx, -1), out.detach(), out)
    return out


# Where a rule says NotImplemented: the op by others, on the operands as the user sees them.
OTHERWISE: dict[str, Callable] = {
    "embedding": _embedding_by_index,
    "index_select": lambda input, index, *, dim: _picked_along(input, index, dim),
    "layer_norm": lambda input, weight, bias, *, dim, eps: _affine(
        run_general(REGISTRY["layer_norm"], (input, None, None), {"dim": dim, "eps": eps}), weight, bias
    ),
    "rms_norm": lambda input, weight, *, dim, eps: _affine(
        run_general(REGISTRY["rms_norm"], (input, None), {"dim": dim, "eps": eps}), weight, None
    ),
}


def _affine(out: Any, weight: Any, bias: Any) -> Any:
    if weight is not None:
        out = out * weight
    return out if bias is None else out + bias


def _places(call: Call, first: int) -> tuple[list, tuple[int, ...], int, int]:
    """Index operands and dims behind the batch axis; where the picked axes stand, and where they should."""
    dims, kinds = call.attrs["dims"], call.kinds[first:]
    rank = max(k.ndim for k in kinds)
    together = dims[-1] - dims[0] == len(dims) - 1
    wanted = 1 + (dims[0] if together else 0)
    if not any(call.batched[first:]):
        return list(call.values[first:]), _shifted(dims), (wanted if together else 0), wanted
    rows = ops.arange(call.size).reshape((call.size, *(1,) * rank))
    given = [call.aligned(i, rank) for i in range(first, len(call.values))]
    return [rows, *given], (0, *_shifted(dims)), 1, wanted


def _moved(x: Tensor, count: int, start: int, to: int) -> Tensor:
    """`count` axes that stand at `start`, moved so that they begin at `to`."""
    if start == to:
        return x
    block = list(range(start, start + count))
    rest = [d for d in range(x.ndim) if d not in block]
    return REGISTRY["permute"](x, (*rest[:to], *block, *rest[to:]))


def _index_rank(call: Call, first: int) -> int:
    return max(k.ndim for k in call.kinds[first:])


@rule("index")
def _index(call: Call) -> tuple:
    indices, dims, at, wanted = _places(call, 1)
    shape = (call.size, *call.attrs["shape"])
    (out,) = call.run([call.full(0), *indices], dims=dims, shape=shape)
    return (_moved(out, _index_rank(call, 1), at, wanted),)


@rule("unindex")
def _unindex(call: Call) -> tuple:
    indices, dims, at, wanted = _places(call, 1)
    rank = len(call.attrs["shape"]) - len(call.attrs["dims"]) + _index_rank(call, 1)
    x = REGISTRY["expand"](inserted(call.full(0), rank - call.ndim(0)), (call.size, *_result_shape(call)))
    return call.run(
        [_moved(x, _index_rank(call, 1), wanted, at), *indices],
        dims=dims, shape=(call.size, *call.attrs["shape"]),
    )  # fmt: skip


def _result_shape(call: Call) -> tuple:
    """The shape that indexing with these indices gives."""
    like = call.kinds[0].with_shape(call.attrs["shape"])
    return (
        REGISTRY["index"]
        .infer(like, *call.kinds[1:], dims=call.attrs["dims"], shape=call.attrs["shape"])
        .shape
    )


__all__ = ["RULES", "Call", "listed", "otherwise", "rule_for"]
