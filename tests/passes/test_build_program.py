"""build_program: golden programs, what is no kernel, and that programs compute what their graphs do."""

import numpy as np
import pytest
from fusing import OPS, Maker, check_program, t

from lamina.ir import Builder, parse, symbol, type_of
from lamina.ir.dtypes import float16, float32, int64
from lamina.ir.errors import GraphError
from lamina.ir.graph import Constant
from lamina.passes.graphs.expand import expand
from lamina.passes.graphs.fuse import fuse
from lamina.passes.programs import build_program as module
from lamina.passes.programs.build_program import build_program
from lamina.passes.programs.program import Call, interpret, verify

CASES = {
    "kernels, another shape of the same array, a step of the host": """
graph f(%x: f32[2,3], %w: f32[3,4]) -> (f32[8], i64[8]) {
  %0 = matmul(%x, %w) : f32[2,4]
  %1 = reshape(%0) {shape=(8,)} : f32[8]
  %2, %3 = sort(%1) {dim=0, descending=False} : f32[8], i64[8]
  return %2, %3
}""",
    "views of dense arrays that move nothing are aliases, others are copies": """
graph f(%x: f32[2,1,3]) -> (f32[1,2,3], f32[3,1,2], f32[2,3], f32[2,1]) {
  %0 = permute(%x) {dims=(1,0,2)} : f32[1,2,3]
  %1 = permute(%x) {dims=(2,1,0)} : f32[3,1,2]
  %2 = squeeze(%x) {dim=(1,)} : f32[2,3]
  %3 = basic_index(%2) {index=(("slice",0,2,1),("slice",1,2,1))} : f32[2,1]
  return %0, %1, %2, %3
}""",
    "numbers are in the kernel's text, known arrays are constants, what is not read is no operand": """
graph f(%x: f32[3]) -> (f32[3], f32[3]) {
  @table : f32[3]
  %0 = mul(%x, 0.5:f32) : f32[3]
  %1 = add(%0, @table) : f32[3]
  %2 = fill(%1) {value=7} : f32[3]
  return %1, %2
}""",
    "what nobody reads": """
graph f(%x: f32[1,1,4]) -> (f32[1,1,2]) {
  %0, %1 = max_pool1d(%x) {kernel=(2,), stride=(2,), padding=((0,0),), dilation=(1,), ceil_mode=False} : f32[1,1,2], i64[1,1,2]
  %2 = exp(%0) : f32[1,1,2]
  return %0
}""",  # noqa: E501
    "a param and a constant as results, and one value twice": """
graph f(%x: f32[3]) -> (f32[3], f32[3], f32[3], f32[3]) {
  @table : f32[3]
  %0 = neg(%x) : f32[3]
  return %x, @table, %0, %0
}""",
}  # fmt: skip
TABLE = Constant(np.arange(3, dtype=np.float32), "table")


def test_build_program_golden(golden):
    texts = []
    for name, text in CASES.items():
        graph = parse(text, {"table": TABLE} if "@table" in text else {})
        program = check_program(graph, rtol=1e-6)  # sums of 3 terms
        kernels = "\n".join(str(call.kernel) for call in program.calls)
        texts.append(f"# {name}\n{program}\n{kernels}")
    golden("passes/build_program", "\n\n".join(texts))


def test_build_program_writes_results_over_params():
    with Builder("f") as b:
        p, g = b.param(t(4), "p"), b.param(t(4), "g")
        graph = b.finish([p - g, g * 2.0])
    program = build_program(graph, (0, None))
    assert program.into == (0, None)
    assert str(program).splitlines()[0] == "program f(%p: f32[4], %g: f32[4]) -> (%sub into %p, %mul) {"


def test_build_program_refuses_a_result_that_does_not_fit():
    with Builder("f") as b:
        p, g = b.param(t(4)), b.param(t(2, 4))
        graph = b.finish([p - g])
    with pytest.raises(GraphError, match="a result fits the param it overwrites"):
        build_program(graph, (0,))


def test_build_program_refuses_unknown_sizes():
    with Builder("f") as b:
        graph = b.finish(OPS["exp"](b.param(type_of(float32, (symbol("n"),)), "x")))
    with pytest.raises(GraphError, match="a program is built for known sizes"):
        build_program(graph)


def test_build_program_makes_a_size_a_constant():
    graph = parse("""
graph f(%x: f32[4]) -> (f32[4]) {
  %0 = size() {value=4} : i64[]
  %1 = mul(%x, %0) : f32[4]
  return %1
}""")
    assert [a.shape for a in check_program(graph).constants] == [()]


def test_build_program_shares_kernels_of_equal_nodes():
    with Builder("f") as b:
        x, w = b.param(t(4, 4)), b.param(t(4, 4))
        graph = fuse(b.finish(OPS["relu"](OPS["relu"](x @ w) @ w)))
    first, second = build_program(graph).calls
    assert first.kernel is second.kernel


def test_build_program_leaves_a_single_kernel_as_it_was_lowered():
    """Later passes know convolutions and products by the form that their records give."""
    from lamina.passes.graphs.lower import lower

    with Builder("f") as b:
        x, w = b.param(t(1, 4, 6, 6)), b.param(t(8, 4, 3, 3))
        graph = b.finish(OPS["conv2d"](x, w))
    (node,), (call,) = graph.nodes, build_program(graph).calls
    assert str(call.kernel) == str(lower(node.op, (x.type, w.type, None), node.attrs))


@pytest.mark.parametrize("seed", range(40))
def test_build_program_fuzz(seed):
    graph = Maker(seed).graph(20)
    check_program(graph, rtol=1e-9)  # float64: sums of at most 256 terms
    assert all(isinstance(step, Call) or step.name != "host.sort" for step in build_program(graph).steps)


@pytest.mark.parametrize("seed", range(40))
def test_build_program_fuzz_halves_bit_for_bit(seed):
    check_program(Maker(seed, float16, elementwise=True).graph(20))


# ---- real programs


def recorded(name, call, *inputs):
    """The graph of what an eager call ran, its params' arrays, and what it returned."""
    import lamina
    from lamina.ir.graph import Graph, Node, Value, scalar_constant
    from lamina.runtime import modes

    values, params, arrays, nodes, alive = {}, [], [], [], []

    def value_of(x):
        if id(x) not in values:
            values[id(x)] = value = Value(type_of(x.dtype, tuple(x.shape)))
            params.append(value)
            arrays.append(np.array(x.detach().numpy()))
            alive.append(x)
        return values[id(x)]

    def hook(op, attrs, operands, outputs):
        given = [value_of(x) if hasattr(x, "detach") else x for x in operands]
        types = [x.type for x in given if isinstance(x, Value)]
        number = (bool, int, float)
        inputs = tuple(scalar_constant(x, types) if isinstance(x, number) else x for x in given)
        made = op.infer(*(None if v is None else v.type for v in inputs), **attrs)
        made = made if isinstance(made, tuple) else (made,)
        outs = outputs if isinstance(outputs, tuple) else (outputs,)
        results = tuple(Value(x) for x in made)
        for value, x in zip(results, outs, strict=False):
            values[id(x)] = value
            alive.append(x)
        nodes.append(Node(op, inputs, results, {n: attrs[n] for n in op.attrs}))

    with modes.hooked(hook), lamina.no_grad():
        out = call(*inputs)
    return Graph(name, tuple(params), tuple(nodes), (values[id(out)],)), arrays, out.numpy()


def networks():
    import lamina
    from lamina import nn

    lamina.manual_seed(0)
    convnet = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(8, 10),
    )  # fmt: skip
    mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 10), nn.Softmax(-1))
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return {
        "convnet": (convnet.eval(), (2, 1, 8, 8), 5),
        "mlp": (mlp.eval(), (4, 16), 4),
        "transformer": (layer.eval(), (2, 5, 16), 12),
    }


@pytest.mark.parametrize("name", ["convnet", "mlp", "transformer"])
def test_build_program_of_networks(name):
    """A program of a recorded network gives what the network gave; how many kernels it has is known."""
    import lamina

    network, shape, most = networks()[name]
    graph, arrays, wanted = recorded(name, network, lamina.randn(*shape))
    program = verify(build_program(fuse(expand(graph))))
    assert len(program.calls) <= most, [call.name for call in program.calls]
    # products of up to 72 terms added in another order, then a few layers on top of them
    np.testing.assert_allclose(interpret(program, *arrays)[0], wanted, rtol=1e-4, atol=1e-5)


# ---- planted bugs

right_reading = module.reading


def first_alone(kernel):
    """As if a kernel read its first input in place of all."""
    return right_reading(kernel)[0], (0,) * len(kernel.inputs)


def of_one_array(kernel):
    """As if no kernel of one array, which keeps its element type, moved anything."""
    if len(kernel.inputs) != 1 or not kernel.inputs[0].shape:
        return False
    return kernel.inputs[0].dtype == kernel.outputs[0].dtype


BUGS = {
    "operands are mistaken": ("reading", first_alone),
    "every view is an alias": ("is_identity", of_one_array),
}


@pytest.mark.parametrize("name", BUGS)
def test_build_program_planted_bugs_are_caught(name, monkeypatch):
    monkeypatch.setattr(module, *BUGS[name])
    assert any(_is_wrong(seed) for seed in range(20))


def _is_wrong(seed):
    try:
        check_program(Maker(seed).graph(20), rtol=1e-9)
    except Exception:
        return True
    return False


def test_build_program_runs_integers_exactly():
    with Builder("f") as b:
        x = b.param(t(3, 4, dtype=int64))
        graph = b.finish([OPS["sum"](x * 3 + 1, 1), x.__floordiv__(2)])
    check_program(graph)
    check_program(graph, build_program(fuse(graph)))
