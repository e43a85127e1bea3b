"""fold_conv_bn: golden texts, what stays, and results within the roundings that folding adds."""

import numpy as np
import pytest
from golden_cases import shown

import lamina
from lamina import nn
from lamina.ir import Builder, interpret, parse, type_of, verify
from lamina.ir.dtypes import float32, float64
from lamina.ir.op import REGISTRY
from lamina.passes.graphs.fold_conv_bn import fold_conv_bn
from lamina.runtime import modes

CONV = "{stride=(1,1), padding=((1,1),(0,0)), dilation=(1,1), groups=1}"
CASES = {
    "all there is to fold": f"""
graph f(%x: f32[1,2,5,5], %w: f32[4,2,3,3], %b: f32[4],
        %mean: f32[4], %var: f32[4], %gain: f32[4], %shift: f32[4]) -> (f32[1,4,5,3]) {{
  %0 = conv2d(%x, %w, %b) {CONV} : f32[1,4,5,3]
  %1 = batch_norm_eval(%0, %mean, %var, %gain, %shift) {{eps=1e-05}} : f32[1,4,5,3]
  return %1
}}""",
    "neither bias nor weights of the norm": """
graph f(%x: f32[8,3], %w: f32[4,3], %mean: f32[4], %var: f32[4]) -> (f32[8,4]) {
  %0 = linear(%x, %w, none) : f32[8,4]
  %1 = batch_norm_eval(%0, %mean, %var, none, none) {eps=0.001} : f32[8,4]
  return %1
}""",
    "not in training": f"""
graph f(%x: f32[1,2,5,5], %w: f32[4,2,3,3]) -> (f32[1,4,5,3]) {{
  %0 = conv2d(%x, %w, none) {CONV} : f32[1,4,5,3]
  %1, %2, %3 = batch_norm_train(%0, none, none) {{eps=1e-05}} : f32[1,4,5,3], f32[4], f32[4]
  return %1
}}""",
    "not where the layer's output is used twice": f"""
graph f(%x: f32[1,2,5,5], %w: f32[4,2,3,3], %mean: f32[4], %var: f32[4]) -> (f32[1,4,5,3], f32[1,4,5,3]) {{
  %0 = conv2d(%x, %w, none) {CONV} : f32[1,4,5,3]
  %1 = batch_norm_eval(%0, %mean, %var, none, none) {{eps=1e-05}} : f32[1,4,5,3]
  return %1, %0
}}""",
    "not where a statistic is computed": f"""
graph f(%x: f32[1,2,5,5], %w: f32[4,2,3,3], %mean: f32[4], %var: f32[4]) -> (f32[1,4,5,3]) {{
  %0 = conv2d(%x, %w, none) {CONV} : f32[1,4,5,3]
  %1 = neg(%mean) : f32[4]
  %2 = batch_norm_eval(%0, %1, %var, none, none) {{eps=1e-05}} : f32[1,4,5,3]
  return %2
}}""",
    "not where dim 1 is not the layer's channels": """
graph f(%x: f32[8,5,3], %w: f32[4,3], %mean: f32[5], %var: f32[5]) -> (f32[8,5,4]) {
  %0 = linear(%x, %w, none) : f32[8,5,4]
  %1 = batch_norm_eval(%0, %mean, %var, none, none) {eps=1e-05} : f32[8,5,4]
  return %1
}""",
    "not halves, whose folded weights would be rounded": """
graph f(%x: f16[8,3], %w: f16[4,3], %mean: f32[4], %var: f32[4]) -> (f16[8,4]) {
  %0 = linear(%x, %w, none) : f16[8,4]
  %1 = batch_norm_eval(%0, %mean, %var, none, none) {eps=1e-05} : f16[8,4]
  return %1
}""",
    "writes are refused": """
graph f(%x: f32[3]) -> () {
  %0 = neg(%x) : f32[3]
  %1 = write(%x, %0) : f32[3]
  return
}""",
}  # fmt: skip


def test_fold_conv_bn_golden(golden):
    golden("passes/fold_conv_bn", shown(fold_conv_bn, {name: parse(text) for name, text in CASES.items()}))


def folds(dims=2, *, groups=1, bias=True, affine=True, rng):
    """A graph of a convolution and a norm, and float64 arrays for it."""
    channels, outs, size, kernel = 2 * groups, 3 * groups, (5,) * dims, (3,) * dims
    shapes = [(2, channels, *size), (outs, channels // groups, *kernel), (outs,), (outs,)]
    shapes += [(outs,)] * (bias + 2 * affine)
    with Builder("f") as b:
        x, w, mean, variance, *rest = (b.param(type_of(float64, s)) for s in shapes)
        offset = rest.pop() if bias else None
        gain, shift = rest or (None, None)
        y = REGISTRY[f"conv{dims}d"](x, w, offset, 2, 1, 1, groups)
        graph = b.finish(REGISTRY["batch_norm_eval"](y, mean, variance, gain, shift, 1e-3))
    arrays = [rng.normal(size=s) for s in shapes]
    arrays[3] = rng.uniform(0.1, 2.0, shapes[3])
    return graph, arrays


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "groups, bias, affine", [(1, True, True), (2, False, True), (1, True, False), (2, False, False)]
)
def test_fold_conv_bn_computes_the_same(dims, groups, bias, affine):
    graph, arrays = folds(dims, groups=groups, bias=bias, affine=affine, rng=np.random.default_rng(dims))
    made = fold_conv_bn(graph)
    verify(made)
    assert not any(node.op.name == "batch_norm_eval" for node in made.nodes)
    (want,), (got,) = interpret(graph, *arrays), interpret(made, *arrays)
    # At most 2 * 27 products of size about 4 (normal numbers, divided by sqrt(0.1)), each with 4 roundings
    # more, and as many again in the sums: 54 * 4 * 8 * eps.
    np.testing.assert_allclose(got, want, rtol=0, atol=54 * 4 * 8 * np.finfo(np.float64).eps)


def recorded(function, x):
    """The graph of an eager run of plain ops; what it reads are params."""
    values, b = {}, Builder("recorded")

    def value(t):
        if id(t) not in values:
            values[id(t)] = t, b.param(t._meta)
        return values[id(t)][1]

    def listen(op, attrs, operands, outputs):
        node = b.emit(op, [None if t is None else value(t) for t in operands], attrs)
        values.update((id(t), (t, v)) for t, v in zip(outputs, node.outputs, strict=False))

    with lamina.no_grad(), modes.hooked(listen):
        out = function(x)
    graph = b.finish(value(out))
    arrays = {v: t.numpy(force=True) for t, v in values.values()}
    return graph, [arrays[p] for p in graph.params], out.numpy()


def test_fold_conv_bn_meets_what_a_module_runs():
    lamina.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.BatchNorm2d(4)
    )
    net(lamina.randn(8, 3, 9, 9))  # so that the statistics are some
    graph, arrays, want = recorded(net.eval(), lamina.randn(2, 3, 9, 9))
    made = fold_conv_bn(graph)
    kept = [node.op.name for node in made.nodes if node.op.name.startswith(("conv", "batch", "relu"))]
    assert kept == ["conv2d", "relu", "conv2d"]
    (got,) = interpret(made, *arrays)
    # Sums of 8 * 9 products of size 1 and less, a few roundings each, in two layers
    np.testing.assert_allclose(got, want, rtol=0, atol=2 * 72 * 4 * np.finfo(np.float32).eps)
    assert type_of(float32, want.shape) is made.results[0].type
