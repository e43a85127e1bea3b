"""fuse: how many kernels, which nodes in each, what stays apart, and that results stay what they were."""

import math
from dataclasses import replace

import numpy as np
import pytest
from fusing import OPS, Maker, arrays_for, check_program, t

import lamina
from lamina.ir import Builder, interpret, parse, verify
from lamina.ir.dtypes import bool_, float16, float64, int64
from lamina.ir.errors import KernelError, Unsayable
from lamina.ir.fused import fused
from lamina.ir.graph import Constant
from lamina.ir.kernel.affine import Affine
from lamina.ir.kernel.scalar import cast
from lamina.passes.graphs import compose as composing
from lamina.passes.graphs import fuse as module
from lamina.passes.graphs.cse import cse
from lamina.passes.graphs.dce import dce
from lamina.passes.graphs.differentiate import Options, differentiate
from lamina.passes.graphs.expand import expand
from lamina.passes.graphs.fuse import fuse
from lamina.passes.programs.build_program import build_program

CASES = {
    "bias and activation join a product, a softmax does not": """
graph f(%x: f32[8,3], %w: f32[3,4], %b: f32[4]) -> (f32[8,4]) {
  %0 = matmul(%x, %w) : f32[8,4]
  %1 = add(%0, %b) : f32[8,4]
  %2 = relu(%1) : f32[8,4]
  %3 = softmax(%2) {dim=1, dtype=None} : f32[8,4]
  return %3
}""",
    "a value that others read is stored on the way": """
graph f(%x: f32[8,3], %y: f32[8,3]) -> (f32[8,3], f32[8,1]) {
  %0 = add(%x, %y) : f32[8,3]
  %1 = sum(%0) {dim=(1,), keepdim=True, dtype=None} : f32[8,1]
  return %0, %1
}""",
    "a node between two that would join": """
graph f(%x: f32[4]) -> (f32[4]) {
  %0 = exp(%x) : f32[4]
  %1, %2 = sort(%0) {dim=0, descending=False} : f32[4], i64[4]
  %3 = add(%0, %1) : f32[4]
  return %3
}""",
    "each product takes a view of its own": """
graph f(%x: f32[4,4], %y: f32[4,4]) -> (f32[4,4], f32[4,4]) {
  %0 = transpose(%x) {dim0=0, dim1=1} : f32[4,4]
  %1 = matmul(%0, %y) : f32[4,4]
  %2 = matmul(%y, %0) : f32[4,4]
  return %1, %2
}""",
    "named numbers and arrays that are known": """
graph f(%x: f32[3]) -> (f32[3]) {
  @half : f32[]
  @table : f32[3]
  %0 = mul(%x, @half) : f32[3]
  %1 = add(%0, @table) : f32[3]
  return %1
}""",
    "nothing to join": """
graph f(%x: f32[4,4]) -> (f32[4,4]) {
  %0 = matmul(%x, %x) : f32[4,4]
  %1 = matmul(%0, %x) : f32[4,4]
  return %1
}""",
}  # fmt: skip
KNOWN = {
    "half": Constant(np.asarray(0.5, np.float32), "half"),
    "table": Constant(np.arange(3, dtype=np.float32), "table"),
}


def test_fuse_golden(golden):
    texts = []
    for name, text in CASES.items():
        before = parse(text, {k: v for k, v in KNOWN.items() if f"@{k}" in text})
        verify(before)
        after = fuse(before)
        verify(after)
        assert str(fuse(after)) == str(after)
        made = " the same" if str(after) == str(before) else f"\n{after}"
        texts.append(f"# {name}\n{before}\n->{made}")
    golden("passes/fuse", "\n\n".join(texts))


# ---- how many kernels


def calls(build, *types):
    """The kernels of a graph, fused, whose program is compared with the graph."""
    with Builder("f") as b:
        graph = b.finish(build(*(b.param(x) for x in types)))
    return kernels(graph)


def kernels(graph, rtol=1e-4):
    made = fuse(cse(expand(graph)))
    verify(made)
    program = build_program(made)
    # sums of at most a few hundred terms, added in another order, and what is computed from them
    check_program(graph, program, rtol=rtol)
    return [call.name for call in program.calls]


def conv_bn(x, w, mean, variance, weight, bias):
    y = OPS["batch_norm_eval"](OPS["conv2d"](x, w, None, 1, 1), mean, variance * variance, weight, bias)
    return OPS["relu"](y)


IMAGE, C = t(2, 4, 6, 6), t(4)
CONV = (IMAGE, t(4, 4, 3, 3), C, C, C, C)


def test_fuse_conv_bn_relu_is_one_kernel():
    assert calls(conv_bn, *CONV) == ["conv2d_mul_batch_norm_eval_relu"]


def test_fuse_conv_bn_add_relu_is_one_kernel():
    def block(x, *rest):
        return OPS["relu"](conv_bn(x, *rest) + x)

    assert calls(block, *CONV) == ["conv2d_mul_batch_norm_eval_relu_add_relu"]


def test_fuse_two_convolutions_stay_apart():
    found = calls(lambda x, w, *rest: conv_bn(conv_bn(x, w, *rest), w, *rest), *CONV)
    assert found == ["mul", *["conv2d_batch_norm_eval_relu"] * 2]  # and the variance that both use


def test_fuse_conv_bn_train_is_a_convolution_and_a_norm():
    def block(x, w, weight, bias, running):
        y, mean, _ = OPS["batch_norm_train"](OPS["conv2d"](x, w, None, 1, 1), weight, bias)
        return OPS["relu"](y + x), running * 0.9 + mean * 0.1

    assert calls(block, IMAGE, t(4, 4, 3, 3), C, C, C) == ["conv2d", "batch_norm_train_add_relu_mul_add"]


def test_fuse_mlp_layer_is_one_kernel():
    assert calls(lambda x, w, b: OPS["relu"](x @ w + b), t(8, 5), t(5, 7), t(7)) == ["matmul_add_relu"]
    assert calls(lambda x, w, b: OPS["gelu"](OPS["linear"](x, w, b)), t(8, 5), t(7, 5), t(7)) == [
        "linear_gelu"
    ]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_fuse_softmax_takes_its_neighbours(name):
    found = calls(lambda x, m: OPS[name](x * 0.5 + m, 1) * 2.0, t(16, 33), t(33))
    assert found == [f"mul_add_{name}_mul"]


def test_fuse_layer_norm_takes_the_residual():
    found = calls(lambda x, y, w: OPS["layer_norm"](x + y, (32,), w, w), t(16, 32), t(16, 32), t(32))
    assert found == ["add_layer_norm"]

    def both(x, y, w):  # the sum goes on to the next layer
        h = x + y
        return h, OPS["layer_norm"](h, (32,), w, w)

    assert calls(both, t(16, 32), t(16, 32), t(32)) == ["add_layer_norm"]


def test_fuse_cross_entropy_is_its_rows_and_their_sum():
    found = calls(lambda x, y: OPS["softmax_cross_entropy"](x, y), t(64, 10), t(64, dtype=int64))
    assert len(found) <= 3 and "amax" in found[0]


@pytest.mark.parametrize("count", [1, 5])
def test_fuse_adam_is_a_kernel_for_each_parameter_and_one_of_numbers(count):
    """1 - beta ** step and its like are single numbers: computed once for all elements and parameters."""
    shapes = [(8, 3), (7,), (2, 3, 4), (11,), (5, 5)][:count]
    with Builder("f") as b:
        step, rate = b.param(t(dtype=float64), "step"), b.param(t(dtype=float64), "lr")
        lists = [[b.param(t(*s)) for s in shapes] for _ in range(4)]
        lists[3] = [x * x for x in lists[3]]
        new = OPS["adam_update"](*lists, step=step * step + 1.0, lr=rate)
        graph = b.finish(new)
    assert len(kernels(graph)) == count + 1


def test_fuse_sgd_is_one_kernel():
    def update(p, g, m, rate):
        return OPS["sgd_update"]([p], [g], [m], step=2.0, lr=rate, momentum=0.9, weight_decay=0.01)

    assert len(calls(update, t(33, 5), t(33, 5), t(33, 5), t(dtype=float64))) == 1


def test_fuse_parts_of_one_size_are_joined_where_they_are_made():
    """Each is stored at its place of the whole: what they share is computed once at a point."""

    def gates(x, c):
        squashed = OPS["tanh"](x)
        return OPS["cat"]((squashed * c, squashed + c, squashed - c), -1)

    assert len(calls(gates, t(5, 17), t(5, 17))) == 1


def test_fuse_parts_are_joined_where_they_are_made_though_others_want_them():
    def f(x, c):
        squashed = OPS["tanh"](x)
        joined = OPS["cat"]((squashed * c, squashed + c), -1)
        return OPS["matmul"](joined, joined.mT), squashed * x

    assert len(calls(f, t(18, 64), t(18, 64))) == 2  # the product is the other


def test_fuse_copies_of_a_view_are_one_array():
    """Those that were made for several readers, and meet in the group that makes what is viewed."""

    with Builder("f") as b:
        table, index, w = b.param(t(9, 16)), b.param(t(6, 10, dtype=int64)), b.param(t(16, 32))
        looked_up = OPS["transpose"](OPS["embedding"](index, table), 0, 1)
        first, second = (OPS["reshape"](looked_up, (60, 16)) for _ in range(2))
        graph = b.finish([first @ w, second.mT @ first])
    (looked_up,) = [node for node in fuse(graph).nodes if "embedding" in str(node)]
    assert len(looked_up.outputs) == 1


@pytest.mark.parametrize("first", [True, False])
def test_fuse_a_view_that_is_read_where_it_is_made_and_elsewhere(first):
    """One copy is another's value: whichever of them the rest wants."""

    def f(p):
        seen = OPS["reshape"](OPS["sum"](p, (1, 2, 3)), (1, 1, 1, 1))
        again = OPS["reshape"](seen, (1,))
        found = [again * 2.0, OPS["clone"](again), seen]
        return found if first else found[::-1]

    calls(f, t(1, 2, 2, 2))


def test_fuse_backward_of_relu_and_norm_is_one_kernel():
    """The sums over a gradient and what uses them share their points, so that it is read in one kernel."""

    def forward(x, weight, bias):
        return OPS["relu"](OPS["batch_norm_train"](x, weight, bias)[0])

    with Builder("f") as b:
        graph = b.finish(forward(b.param(t(4, 16, 6, 6)), b.param(t(16)), b.param(t(16))))
    joint = differentiate(graph, Options())
    found = kernels(joint, rtol=1e-3)
    assert len(found) == 1


def test_fuse_masks_and_normalised_inputs_are_computed_where_they_are_used():
    """What the backward pass alone uses is not stored by the forward kernel that could compute it."""

    def network(x, w, weight, bias):
        y = OPS["batch_norm_train"](OPS["conv2d"](x, w, None, 1, 1), weight, bias)[0]
        return OPS["sum"](OPS["conv2d"](OPS["relu"](y), w))

    with Builder("f") as b:
        image, weight, c = t(8, 16, 8, 8), t(16, 16, 3, 3), t(16)
        graph = b.finish(network(b.param(image), b.param(weight), b.param(c), b.param(c)))
    joint = fuse(cse(expand(differentiate(graph, Options(wrt=(1, 2, 3), seeds="ones")))))
    (norm,) = [n for n in joint.nodes if any(m.op.name == "batch_norm_train" for m in _inside(n))]
    # the result, and the mask of relu, at a fourth of the bytes of what it is a mask of
    assert [v.type for v in norm.outputs if v.ndim == 4 and v.shape[0] == 8] == [
        image,
        image.with_dtype(bool_),
    ]


def test_fuse_reads_a_large_array_once_for_two_sums():
    found = calls(lambda x: (OPS["sum"](x, 1), OPS["amax"](x, 1)), t(64, 64))
    assert found == ["sum_amax"]


# ---- what stays apart


def nodes_of(build, *types):
    with Builder("f") as b:
        graph = b.finish(build(*(b.param(x) for x in types)))
    return [n.op.name for n in fuse(graph).nodes]


def test_fuse_no_expensive_prologue_of_a_product():
    assert nodes_of(lambda x, w: OPS["exp"](x) @ w, t(8, 8), t(8, 8)) == ["exp", "matmul"]


@pytest.mark.parametrize(
    ("build", "apart", "alike"),
    [
        (lambda x, v, w: x + v @ w, ["matmul", "add"], ["fused"]),
        (lambda x, v, w: x * v.sum(0) + w, ["sum", "fused"], None),
        (lambda x, v, w: x + OPS["sin"](v), ["sin", "add"], ["fused"]),
        (lambda x, v, w: x + v * 2.0, ["fused"], ["fused"]),
        (lambda x, v, w: x @ w + OPS["exp"](v), ["exp", "fused"], ["fused"]),
    ],
    ids=["product", "sum", "costly", "cheap", "beside a product"],
)
def test_fuse_what_weights_alone_decide_is_apart(build, apart, alike):
    """A call finds it computed; without weights that stay, it is part of what reads it."""
    with Builder("f") as b:
        graph = b.finish(build(*(b.param(t(8, 8)) for _ in range(3))))
    for frozen, names in ((frozenset((1, 2)), apart), (frozenset(), alike)):
        made = fuse(graph, frozen=frozen)
        assert names is None or [n.op.name for n in made.nodes] == names
        check_program(graph, build_program(made), rtol=1e-5)


def test_fuse_nothing_across_the_host():
    found = nodes_of(lambda x: OPS["sort"](x * 2.0)[0] * 2.0, t(8))
    assert found == ["mul", "sort", "mul"]


def test_fuse_random_numbers_are_drawn_once():
    def drop(state, x):
        kept = OPS["random_uniform"](state, (8, 8)) > 0.5
        return OPS["transpose"](x, 0, 1) * kept, x + OPS["transpose"](kept, 0, 1)

    with Builder("f") as b:
        graph = b.finish(drop(b.param(t(2, dtype=int64)), b.param(t(8, 8))))
    made = fuse(graph)
    drawn = [n for node in made.nodes for n in _inside(node) if n.op.traits.random]
    assert len(drawn) == 1
    check_program(graph, build_program(made))


def test_fuse_large_sums_of_everything_do_not_run_what_others_need():
    """Such a kernel has one parallel point: the array would be made by one core."""

    def loss(x, y):
        d = x - y
        return OPS["sum"](d * d), d

    assert "fused" in nodes_of(loss, t(128, 128), t(128, 128))
    with Builder("f") as b:
        graph = fuse(b.finish(loss(b.param(t(128, 128)), b.param(t(128, 128)))))
    (made,) = [n for n in graph.nodes if any(m.op.name == "sum" for m in _inside(n))]
    assert all(v.ndim == 0 for v in made.outputs)


def _inside(node):
    return node.attrs["body"].nodes if node.op is fused else [node]


def test_fuse_leaves_nodes_alone_that_make_no_kernel_after_all(monkeypatch):
    """Elementwise ops join unasked; composing has the last word when the graph is made."""

    def refusing(body):
        raise Unsayable("nothing can be said")

    with Builder("f") as b:
        x = b.param(t(8, 8))
        graph = b.finish(OPS["relu"](OPS["softmax"](x, 1)) * 2.0)
    monkeypatch.setattr(module, "draft", refusing)
    assert [n.op.name for n in fuse(graph).nodes] == ["softmax", "relu", "mul"]


def beside(store):
    return replace(store, index=(store.index[0] + Affine((), 1), *store.index[1:]))


COMPOSED_WRONGLY = {
    "a store leaves": lambda stores: map(beside, stores),
    "is f32, its value is f64": lambda stores: [replace(s, value=cast(s.value, "f64")) for s in stores],
    "every element of an output is written": lambda stores: [],
}


@pytest.mark.parametrize("rule", COMPOSED_WRONGLY)
def test_fuse_hides_no_wrong_kernel(rule, monkeypatch):
    """A bug in composing breaks a rule of kernels, and escapes: it is no refusal, and no lost fusion."""
    wrong, right = COMPOSED_WRONGLY[rule], composing._Composer.stores

    def stores(self, *result):
        made = right(self, *result)
        return wrong(made) if len(self.body.nodes) > 1 else made  # each node alone is composed rightly

    monkeypatch.setattr(composing._Composer, "stores", stores)
    for memo in ("_kernels", "_drafts"):
        monkeypatch.setattr(composing, memo, {})
    with Builder("f") as b:
        graph = b.finish(OPS["relu"](OPS["softmax"](b.param(t(8, 8)), 1)) * 2.0)
    with pytest.raises(KernelError, match=rule) as error:
        build_program(fuse(graph))
    assert not isinstance(error.value, Unsayable) and error.value.__context__ is None


def test_fuse_asks_compose_of_all_chains_that_it_makes():
    """No group of random graphs is undone at the end: what joins unasked can be said, and all is a kernel."""
    undone = []
    for seed in range(40):
        fusion = module._Fusion(dce(expand(Maker(seed).graph(24))), module.CPU)
        fusion.fused()
        for group in fusion.groups:
            if len(group.nodes) > 1 and not group.host:
                undone += [] if fusion.sayable(group, unasked=False) else [group]
                composing.compose(fusion.body(group)[0])  # which would raise where a draft is no kernel
    assert not undone


def test_fuse_keeps_to_the_limits_of_a_machine():
    with Builder("f") as b:
        x = b.param(t(64, 512))
        rows = OPS["sum"](OPS["exp"](x), 1)  # of 64 points: enough for the cores of a CPU
        graph = b.finish([rows, OPS["exp"](x) + OPS["tanh"](x) * 2.0])
    found = {limits: len(fuse(graph, limits).nodes) for limits in (module.CPU, module.Limits(nodes=1))}
    assert found[module.Limits(nodes=1)] == len(graph.nodes) > found[module.CPU]
    for count in (2, 3):
        made = fuse(graph, module.Limits(arrays=count))
        assert all(len(n.inputs) + len(n.outputs) <= count for n in made.nodes if n.op is fused)


def test_fuse_of_unknown_sizes_is_left_alone():
    text = """
graph f(%x: f32[n,3]) -> (f32[n,3]) {
  %0 = exp(%x) : f32[n,3]
  %1 = neg(%0) : f32[n,3]
  return %1
}"""
    graph = parse(text)
    assert str(fuse(graph)) == str(graph)


# ---- fuzz


@pytest.mark.parametrize("seed", range(60))
def test_fuse_fuzz(seed):
    graph = Maker(seed).graph(24)
    made = fuse(expand(graph), frozen={n for n in range(len(graph.params)) if seed >> n & 1})
    verify(made)
    assert str(fuse(made)) == str(made)
    check_program(graph, build_program(made), rtol=1e-9)  # float64: sums of at most 256 terms


@pytest.mark.parametrize("seed", range(60))
def test_fuse_fuzz_halves_bit_for_bit(seed):
    graph = Maker(seed, float16, elementwise=True).graph(24)
    check_program(graph, build_program(fuse(graph)))


def test_fuse_fuzz_joins_most_nodes():
    """The fuzz above would test nothing if most nodes stayed alone."""
    graphs = [expand(Maker(seed).graph(24)) for seed in range(60)]
    before = sum(len(build_program(graph).calls) for graph in graphs)
    after = sum(len(build_program(fuse(graph)).calls) for graph in graphs)
    assert after < 0.7 * before


# ---- planted bugs

BUGS = {
    "what stands between two groups is not looked at": ("makers", lambda self, group: set()),
    "what others need is not stored": ("outputs", lambda self, group: right_outputs(self, group)[-1:]),
}
right_outputs = module._Fusion.outputs


@pytest.mark.parametrize("name", BUGS)
def test_fuse_planted_bugs_are_caught(name, monkeypatch):
    method, wrong = BUGS[name]
    monkeypatch.setattr(module._Fusion, method, wrong)
    assert any(_is_wrong(seed) for seed in range(40))


def _is_wrong(seed):
    graph = Maker(seed).graph(24)
    try:
        made = fuse(expand(graph))
        verify(made)
        check_program(graph, build_program(made), rtol=1e-9)
    except Exception:
        return True
    return False


def test_fuse_keeps_results_of_random_graphs_in_order():
    graph = Maker(3).graph(20)
    arrays = arrays_for(graph)
    for found, wanted in zip(interpret(fuse(graph), *arrays), interpret(graph, *arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_norm_in_training_stores_its_result_alone():
    """What its gradient needs is computed again of its input, though an optimizer is in that kernel."""
    lamina.manual_seed(0)
    model = lamina.nn.Sequential(
        lamina.nn.Conv2d(3, 8, 3, padding=1),
        lamina.nn.BatchNorm2d(8),
        lamina.nn.ReLU(),
        lamina.nn.Conv2d(8, 8, 3),
    )
    optimizer, x = lamina.optim.Adam(model.parameters()), lamina.randn(16, 3, 12, 12)

    @lamina.jit.trace
    def step(x):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step(x)
    with lamina.profiler.profile() as profile:
        step(x)
    (kernel,) = (e.what.kernel for e in profile.events() if e.name.startswith("batch_norm_train"))
    size = 16 * 8 * 12 * 12
    stored = [b for b in kernel.outputs if b.dtype == "f32" and math.prod(b.shape) == size]
    assert len(stored) == 1 and kernel.inputs[0].shape == stored[0].shape
