"""Write layers: products of matrices, convolutions, pools, norms, attention, recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ....ir.dtypes import float64, int64
from ....ir.graph import Node, Value
from ....ir.ops.attention import all_weights
from ....ir.ops.cells import parts as gates_of
from ....ir.ops.pool import pool_places
from ....ir.ops.pool_adaptive import parts_of
from ....ir.ops.pool_mean import divisors, windows_of
from ....ir.ops.sliding import Window
from .graph_writer import Name, Writer, Written, is_static, made, stand_in, the, writer

# ---- products


@writer("matmul")
def matmul(w: Writer, node: Node, a: Name, b: Name) -> Written:
    return w.emit("MatMul", a, b)


@writer("linear")
def linear(w: Writer, node: Node, input: Name, weight: Name, bias: Name | None) -> Written:
    x, rows, added = node.inputs
    if rows.ndim == 2 and x.ndim == 2 and w.dtypes[input].is_floating_point and (added is None or added.ndim):
        return w.emit("Gemm", input, weight, bias, transB=1)
    made = w.emit("MatMul", input, weight if rows.ndim == 1 else w.emit("Transpose", weight, perm=(1, 0)))
    return made if bias is None else w.emit("Add", made, bias)


@writer("linalg_det")
def determinant(w: Writer, node: Node, input: Name) -> Written:
    return w.emit("Det", input)


# ---- convolutions


def sides(padding: Sequence[tuple]) -> tuple[int, ...]:
    """Paddings in ONNX's order."""
    return (*(a for a, _ in padding), *(b for _, b in padding))


def _batched(w: Writer, name: Name, value: Value, ndim: int) -> Name:
    return name if value.ndim == ndim else w.unsqueezed(name, 0)


def _unbatched(w: Writer, name: Name, value: Value, ndim: int) -> Name:
    return name if value.ndim == ndim else w.squeezed(name, 0)


def _need_floats(w: Writer, node: Node, name: Name) -> None:
    if not w.dtypes[name].is_floating_point:
        raise w.refusal(node, "ONNX has it of floating-point numbers alone")


@writer("conv1d", "conv2d", "conv3d")
def conv(w: Writer, node: Node, input: Name, weight: Name, bias: Name | None) -> Written:
    _need_floats(w, node, input)
    ndim, attrs = node.inputs[1].ndim, node.attrs
    made = w.emit(
        "Conv",
        _batched(w, input, node.inputs[0], ndim),
        weight,
        bias,
        kernel_shape=tuple(node.inputs[1].shape[2:]),
        strides=attrs["stride"],
        pads=sides(attrs["padding"]),
        dilations=attrs["dilation"],
        group=attrs["groups"],
    )
    return _unbatched(w, made, node.inputs[0], ndim)


@writer("conv_input_grad")
def conv_transpose(w: Writer, node: Node, g: Name, weight: Name) -> Written:
    """A transposed convolution."""
    _need_floats(w, node, g)
    (value, kernel), attrs, n = node.inputs, node.attrs, len(node.attrs["size"])
    reach = [d * (r - 1) + 1 for r, d in zip(kernel.shape[2:], attrs["dilation"], strict=True)]
    every = zip(value.shape[-n:], reach, attrs["size"], attrs["stride"], attrs["padding"], strict=True)
    more = [size - ((i - 1) * s - a - b + r) for i, r, size, s, (a, b) in every]
    if not is_static(more):
        raise w.refusal(node, "its padding hangs on a size that changes")
    made = w.emit(
        "ConvTranspose",
        _batched(w, g, value, n + 2),
        weight,
        kernel_shape=tuple(kernel.shape[2:]),
        strides=attrs["stride"],
        pads=sides(attrs["padding"]),
        dilations=attrs["dilation"],
        group=attrs["groups"],
        output_padding=tuple(more),
    )
    return _unbatched(w, made, value, n + 2)


@stand_in("conv_weight_grad")
def conv_weight_grad(
    g: Any, input: Any, *, size: tuple, stride: tuple, padding: tuple, dilation: tuple, groups: int
) -> Any:
    """A convolution of the inputs with g, channels in place of the batch, strides in place of dilations."""
    reshape, permute, n = the("reshape"), the("permute"), len(size)
    if g.ndim == n + 1:
        g, input = the("unsqueeze")(g, 0), the("unsqueeze")(input, 0)
    batch, outs, channels = g.shape[0], g.shape[1] // groups, input.shape[1] // groups
    last = tuple(range(3, n + 3))
    x = permute(reshape(input, (batch, groups, channels, *input.shape[2:])), (2, 1, 0, *last))
    y = permute(reshape(g, (batch, groups, outs, *g.shape[2:])), (1, 2, 0, *last))
    x = reshape(x, (channels, groups * batch, *input.shape[2:]))
    y = reshape(y, (groups * outs, batch, *g.shape[2:]))
    taps = the(f"conv{n}d")(x, y, None, dilation, padding, stride, groups)
    index = (slice(None), slice(None), *(slice(0, r) for r in size))
    return the("transpose")(the("basic_index")(taps, index), 0, 1)


# ---- pools


def _reaching(sizes: Sequence[Any], places: Sequence[Any], window: Window) -> tuple[tuple[int, int], ...]:
    """Paddings with which a pool that rounds down has so many windows."""
    every = zip(sizes, places, window.kernel, window.stride, window.padding, window.dilation, strict=True)
    return tuple((p, max(q, (o - 1) * s + d * (r - 1) + 1 - n - p)) for n, o, r, s, (p, q), d in every)


def _pool_attrs(w: Writer, node: Node, window: Window, ceil_mode: bool) -> dict[str, Any]:
    n = len(window.kernel)
    sizes = node.inputs[0].shape[-n:]
    attrs: dict[str, Any] = {
        "kernel_shape": window.kernel,
        "strides": window.stride,
        "dilations": window.dilation,
    }
    if not ceil_mode:
        return attrs | {"pads": sides(window.padding)}
    if not is_static(sizes):
        raise w.refusal(node, "ceil_mode of sizes that change: runtimes disagree on the last window")
    return attrs | {"pads": sides(_reaching(sizes, pool_places(node.op.name, sizes, window, True), window))}


@writer(*(f"max_pool{n}d{end}" for n in (1, 2, 3) for end in ("", "_with_indices")))
def max_pool(w: Writer, node: Node, input: Name) -> Written:
    window = Window(*(node.attrs[name] for name in Window._fields))
    n, value = len(window.kernel), node.inputs[0]
    attrs = _pool_attrs(w, node, window, node.attrs["ceil_mode"])
    x = _batched(w, input, value, n + 2)
    if not w.wants(node.outputs[1]):
        return _unbatched(w, w.emit("MaxPool", x, **attrs), value, n + 2), None
    out, indices = w.emit("MaxPool", x, outputs=2, dtype=(None, int64), **attrs)
    count = w.vector((prod(value.shape[-n:]),))  # ONNX counts over batch and channels too
    places = w.emit("Mod", indices, w.squeezed(count, 0))
    return _unbatched(w, out, value, n + 2), _unbatched(w, places, value, n + 2)


@writer("avg_pool1d", "avg_pool2d", "avg_pool3d")
def avg_pool(w: Writer, node: Node, input: Name) -> Written:
    _need_floats(w, node, input)
    attrs, value = dict(node.attrs), node.inputs[0]
    ceil_mode, own = (
        attrs.pop("ceil_mode"),
        {k: attrs.pop(k) for k in ("count_include_pad", "divisor_override")},
    )
    n = len(attrs["kernel"])
    window, sizes = windows_of(n, **attrs), value.shape[-n:]
    given = _pool_attrs(w, node, window, ceil_mode)
    given.pop("dilations")
    x = _batched(w, input, value, n + 2)
    overhangs = given["pads"] != sides(window.padding)
    if own["divisor_override"] is None and not (overhangs and own["count_include_pad"]):
        made = w.emit("AveragePool", x, count_include_pad=int(own["count_include_pad"]), **given)
        return _unbatched(w, made, value, n + 2)
    made = w.emit("Mul", w.emit("AveragePool", x, count_include_pad=1, **given), prod(window.kernel))
    places = pool_places(node.op.name, sizes, window, ceil_mode)
    for factor in divisors(sizes, places, window, own["count_include_pad"], own["divisor_override"]):
        made = w.emit("Div", made, factor)
    return _unbatched(w, made, value, n + 2)


@stand_in("avg_pool_grad")
def avg_pool_grad(
    g: Any, *, size: tuple, ceil_mode: bool, count_include_pad: bool, divisor_override: Any, **attrs: Any
) -> Any:
    """Each part of the mean, spread over its window: a transposed convolution with ones."""
    n = len(size)
    window, places = windows_of(n, **attrs), g.shape[-n:]
    for factor in divisors(size, places, window, count_include_pad, divisor_override):
        g = g / (factor if isinstance(factor, int) else np.asarray(factor, g.dtype.numpy))
    flat = the("reshape")(g, (prod(g.shape[:-n]), 1, *places))
    spread = the("conv_input_grad")(
        flat,
        the("new_ones")(flat, (1, 1, *window.kernel)),
        size=size,
        stride=window.stride,
        padding=_reaching(size, places, window),
        dilation=window.dilation,
        groups=1,
    )
    return the("reshape")(spread, (*g.shape[:-n], *size))


def _adaptive_max(n: int, end: str) -> None:
    @stand_in(f"adaptive_max_pool{n}d{end}")
    def write(input: Any, *, size: tuple) -> Any:
        """One pool where the parts divide a dimension evenly, else the greatest of each part."""
        first = input.ndim - n
        sizes = input.shape[first:]
        if all(o and is_static((s,)) and s % o == 0 for s, o in zip(sizes, size, strict=True)):
            kernel = tuple(s // o for s, o in zip(sizes, size, strict=True))
            return the(f"max_pool{n}d_with_indices")(input, kernel)
        taps = _taps(sizes, size)
        lead = tuple(input.shape[:first])
        flat = the("reshape")(input, (*lead, prod(sizes)))
        parts = the("reshape")(the("index_select")(flat, first, taps.reshape(-1)), (*lead, *taps.shape))
        values, best = the("max_dim")(parts, parts.ndim - 1)
        table = the("expand")(made("cast", taps, dtype=int64), parts.shape)
        places = the("gather")(table, -1, the("unsqueeze")(best, -1))
        return values, the("squeeze")(places, -1)


def _taps(sizes: Sequence[int], size: Sequence[int]) -> np.ndarray:
    """The flat places of the elements of each part, the first again where a part has fewer than others."""
    places, bounds = np.arange(prod(sizes)).reshape(sizes), [*map(parts_of, sizes, size)]
    boxes = [
        places[tuple(slice(*bounds[d][i]) for d, i in enumerate(at))].reshape(-1) for at in np.ndindex(*size)
    ]
    longest = max((len(box) for box in boxes), default=1)
    rows = [np.concatenate([box, np.repeat(box[:1], longest - len(box))]) for box in boxes]
    return np.array(rows, np.int64).reshape(*size, longest)


for _n, _end in product((1, 2, 3), ("", "_with_indices")):
    _adaptive_max(_n, _end)


# ---- windows as columns


@stand_in("im2col")
def im2col(input: Any, *, kernel: tuple, stride: tuple, padding: tuple, dilation: tuple) -> Any:
    """Each element of the windows is a strided part of the padded image."""
    window = Window(kernel, stride, padding, dilation)
    places = window.places("im2col", input.shape[-2:])
    lead = input.ndim - 2
    x = the("constant_pad")(input, ((0, 0),) * lead + padding)
    parts = []
    for tap in product(*map(range, kernel)):
        every = zip(tap, places, stride, dilation, strict=True)
        index = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, o, s, d in every)
        parts.append(the("basic_index")(x, (slice(None),) * lead + index))
    columns = the("stack")(parts, lead)
    *batch, channels = input.shape[:lead]
    return the("reshape")(columns, (*batch, channels * prod(kernel), prod(places)))


@writer("col2im")
def col2im(w: Writer, node: Node, input: Name) -> Written:
    _need_floats(w, node, input)
    attrs, value = node.attrs, node.inputs[0]
    made = w.emit(
        "Col2Im",
        _batched(w, input, value, 3),
        w.vector(attrs["size"]),
        w.vector(attrs["kernel"]),
        strides=attrs["stride"],
        pads=sides(attrs["padding"]),
        dilations=attrs["dilation"],
    )
    return _unbatched(w, made, value, 3)


# ---- norms


@writer("batch_norm_eval")
def batch_norm(
    w: Writer, node: Node, input: Name, mean: Name, variance: Name, weight: Name | None, bias: Name | None
) -> Written:
    if not _holds(w, input, node.attrs["eps"]):
        return None
    kind = node.inputs[1].type.with_dtype(w.dtypes[input])
    scale = w.filled(kind, 1) if weight is None else weight
    shift = w.filled(kind, 0) if bias is None else bias
    return w.emit("BatchNormalization", input, scale, shift, mean, variance, epsilon=node.attrs["eps"])


def _holds(w: Writer, input: Name, eps: float) -> bool:
    """Whether an attribute of ONNX, which is a float32, says `eps` to all its digits."""
    return w.dtypes[input] is not float64 or float(np.float32(eps)) == eps


@stand_in("batch_norm_eval")
def batch_norm_by_ops(input: Any, mean: Any, variance: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    row = (1, input.shape[1], *(1 for _ in input.shape[2:]))
    scale = the("rsqrt")(variance + eps)
    scale = scale if weight is None else scale * weight
    out = (input - the("reshape")(mean, row)) * the("reshape")(scale, row)
    return out if bias is None else out + the("reshape")(bias, row)


@stand_in("layer_norm")
def layer_norm_by_ops(input: Any, weight: Any, bias: Any, *, dim: tuple, eps: float) -> Any:
    center = the("mean")(input, dim, True)
    distance = input - center
    root = the("rsqrt")(the("mean")(distance * distance, dim, True) + eps)
    out = distance * root
    out = out if weight is None else out * weight
    return (out if bias is None else out + bias), center, root


@stand_in("batch_norm_train")
def batch_norm_train(input: Any, weight: Any, bias: Any, *, eps: float) -> Any:
    row, dim = (1, input.shape[1], *(1 for _ in input.shape[2:])), (0, *range(2, input.ndim))
    center = the("mean")(input, dim, True)
    distance = input - center
    variance = the("mean")(distance * distance, dim, True)
    out = distance / the("sqrt")(variance + eps)
    out = out if weight is None else out * the("reshape")(weight, row)
    out = out if bias is None else out + the("reshape")(bias, row)
    flat = (input.shape[1],)
    return out, the("reshape")(center, flat), the("reshape")(variance, flat)


@writer("layer_norm")
def layer_norm(w: Writer, node: Node, input: Name, weight: Name | None, bias: Name | None) -> Written:
    if not _holds(w, input, node.attrs["eps"]):
        return None
    first = node.attrs["dim"][0]
    kind = node.inputs[0].type.with_shape(node.inputs[0].shape[first:]).with_dtype(w.dtypes[input])
    scale = w.filled(kind, 1) if weight is None else weight
    count = max(n + 1 for n, out in enumerate(node.outputs) if n == 0 or w.wants(out))
    made = w.emit(
        "LayerNormalization", input, scale, bias, outputs=count, dtype=(None,) * count,
        axis=first, epsilon=node.attrs["eps"],
    )  # fmt: skip
    return made if count > 1 else (made,)


@stand_in("rms_norm")
def rms_norm(input: Any, weight: Any, *, dim: tuple, eps: float | None) -> Any:
    eps = float(np.finfo(input.dtype.numpy).eps) if eps is None else eps
    root = the("rsqrt")(the("mean")(input * input, dim, True) + eps)
    out = input * root
    return (out if weight is None else out * weight), root


# ---- attention


@stand_in("attention")
def attention(query: Any, key: Any, value: Any, mask: Any, *, is_causal: bool, scale: float | None) -> Any:
    return the("matmul")(all_weights(query, key, mask, is_causal, scale), value)


# ---- recurrent layers


@stand_in("lstm_gates")
def lstm_gates(input_gates: Any, hidden_gates: Any, c: Any) -> Any:
    sigmoid, tanh = the("sigmoid"), the("tanh")
    i, f, g, o = gates_of(input_gates + hidden_gates, 4)
    i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
    new = f * c + i * g
    return o * tanh(new), new, the("cat")([i, f, g, o], -1)


@stand_in("gru_gates")
def gru_gates(input_gates: Any, hidden_gates: Any, h: Any) -> Any:
    sigmoid = the("sigmoid")
    (ri, zi, ni), (rh, zh, nh) = gates_of(input_gates, 3), gates_of(hidden_gates, 3)
    r, z = sigmoid(ri + rh), sigmoid(zi + zh)
    n = the("tanh")(ni + r * nh)
    return n + z * (h - n), the("cat")([r, z, n], -1)


# Of the gates side by side, in ONNX's order.
GATES = {"LSTM": (0, 3, 1, 2), "GRU": (1, 0, 2), "RNN": (0,)}


@writer("lstm_layer")
def lstm_layer(
    w: Writer, node: Node, projected: Name, h: Name, c: Name, weight: Name, bias: Name | None
) -> Written:
    found = _layer(w, node, "LSTM", h, weight, bias, c)
    if found is None:
        return None
    output, _, last = found
    w.aliases[node.outputs[1]] = last
    return output, last, None


@writer("gru_layer")
def gru_layer(w: Writer, node: Node, projected: Name, h: Name, weight: Name, bias: Name | None) -> Written:
    found = _layer(w, node, "GRU", h, weight, bias, None, linear_before_reset=1)
    return None if found is None else (found[0], None, None)


@writer("rnn_layer")
def rnn_layer(w: Writer, node: Node, projected: Name, h: Name, weight: Name, bias: Name | None) -> Written:
    function = node.attrs["nonlinearity"].capitalize()
    found = _layer(w, node, "RNN", h, weight, bias, None, activations=(function,))
    return None if found is None else (found[0],)


def _layer(
    w: Writer,
    node: Node,
    op: str,
    h: Name,
    weight: Name,
    bias: Name | None,
    c: Name | None,
    **attrs: Any,
) -> list[Name] | None:
    """ONNX's layer: its output, and its last states; None where it has none for the op.

    That begins with the inputs, of which the op has products: these must come from one linear layer.  It
    gives all states of one kind, of the others the last.  ONNX Runtime has it in float32 alone.
    """
    source = _source(w, node)
    kept = node.outputs[1:2] if op == "LSTM" else ()
    if (
        source is None
        or node.outputs[0].dtype is float64
        or any(map(w.wants, node.outputs[1 + len(kept) :]))
        or not all(_reads_last(w, node, v) for v in kept)
    ):
        return None
    x, rows, added = source
    size, dtype = node.outputs[0].shape[-1], node.outputs[0].dtype
    order = np.concatenate([np.arange(size) + g * size for g in GATES[op]])

    def gates(name: Name) -> Name:
        """Blocks of rows in ONNX's order, of one direction."""
        return w.unsqueezed(
            name if len(GATES[op]) == 1 else w.emit("Gather", name, w.constant(order), axis=0), 0
        )

    both = None
    if added is not None or bias is not None:
        zeros = w.filled(node.inputs[0].type.with_shape((size * len(GATES[op]),)), 0)
        halves = [gates(zeros if name is None else w.cast(name, dtype)) for name in (added, bias)]
        both = w.emit("Concat", *halves, axis=1)
    if node.attrs["back"]:
        attrs["direction"] = "reverse"
    states = [w.unsqueezed(h, 0)] + ([] if c is None else [w.unsqueezed(c, 0)])
    count = 3 if op == "LSTM" else 1
    made = w.emit(
        op, x, gates(rows), gates(weight), both, None, *states, outputs=count, dtype=(None,) * count,
        hidden_size=size, **attrs,
    )  # fmt: skip
    names = [made] if count == 1 else [*made]
    return [w.squeezed(names[0], 1), *(w.squeezed(name, 0) for name in names[1:])]


def _source(w: Writer, node: Node) -> tuple[Name, Name, Name | None] | None:
    """The inputs [t, b, k], weight and bias of which the layer's first operand are the products."""
    value = node.inputs[0]
    assert value is not None
    made = _maker(w, value, "reshape", "view")
    product = _maker(w, made.inputs[0] if made else value, "linear")
    if product is None:
        return None
    given, rows, added = product.inputs
    if given.dtype is not node.inputs[0].dtype or rows.ndim != 2 or added is not None and added.ndim != 1:
        return None
    wanted = (*value.shape[:2], given.shape[-1])
    name = w.name_of(given)
    if given.shape != wanted:
        before = _maker(w, given, "reshape", "view")
        if before is not None and before.inputs[0].shape == wanted:
            name = w.name_of(before.inputs[0])
        else:
            name = w.reshaped(name, given.shape, wanted)
    return name, w.name_of(rows), None if added is None else w.name_of(added)


def _maker(w: Writer, value: Any, *names: str) -> Node | None:
    made = w.makers.get(value)
    return made if made is not None and made.op.name in names else None


def _reads_last(w: Writer, node: Node, value: Value) -> bool:
    """Whether of all states the last alone is read."""
    last = ("int", 0 if node.attrs["back"] else value.shape[0] - 1)
    return value not in w.returned and all(
        each.op.name == "basic_index"
        and each.attrs["index"][0] == last
        and each.outputs[0].shape == value.shape[1:]
        for each in w.read.get(value, ())
    )
