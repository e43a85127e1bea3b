"""Programs that repeat: what they compute is what the node means, however it is run."""

from dataclasses import replace

import numpy as np
import pytest

import lamina
from lamina.ir import dtypes
from lamina.ir.dims import hints, limits, symbol
from lamina.ir.errors import GraphError
from lamina.ir.graph import Builder
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY as OPS
from lamina.ir.recur import recur
from lamina.ir.text import parse
from lamina.ir.types import type_of
from lamina.ir.verify import verify
from lamina.jit.garbage import GARBAGE, Garbage, planned
from lamina.passes.graphs.expand import expand
from lamina.passes.graphs.unroll import unroll
from lamina.passes.llvm import main_function
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.sized import Sized
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.programs.memory_plan import verify as verify_plan
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Repeat, run_repeat
from lamina.passes.programs.program import interpret as interpret_program
from lamina.passes.programs.program import verify as verify_program
from lamina.passes.programs.program_text import parse as read
from lamina.passes.programs.program_text import program_text
from lamina.runtime.native import Executable, Scratch

VERIFIED = Options(verify=True)


def t(*shape, dtype=dtypes.float32):
    return type_of(dtype, shape)


def step(elements, states, fixed):
    """Two states and two sequences; what all runs do alike is `w * 2`, and one element goes on as it came."""
    (x, y), (h, c), (w, b) = elements, states, fixed
    h = OPS["tanh"](x + OPS["linear"](h, w * 2.0, b))
    c = c * 0.5 + h * y
    return (h, c), (y, OPS["sigmoid"](c) * x)


def recurrence(count, rows, size, kept=(True, False), back=False, dtype=dtypes.float32, block=0):
    with Builder("net") as b:
        x, y = (b.param(t(count, rows, size, dtype=dtype), name) for name in "xy")
        h, c = (b.param(t(rows, size, dtype=dtype), name) for name in "hc")
        w, bias = b.param(t(size, size, dtype=dtype), "w"), b.param(t(size, dtype=dtype), "b")
        return b.finish(recur(step, (x, y), (h, c), (w, bias), kept, back, block))


def arrays_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    bounds = [0.5 / p.shape[1] if p.hint == "w" else 1.0 for p in graph.params]  # no chaos
    return [
        rng.uniform(-n, n, p.shape).astype(p.dtype.numpy) for p, n in zip(graph.params, bounds, strict=True)
    ]


def close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def by_hand(arrays, kept, back):
    """In NumPy's float64."""
    x, y, h, c, w, b = (np.asarray(a, np.float64) for a in arrays)
    every = {name: [None] * len(x) for name in "hcys"}
    for time in range(len(x))[:: -1 if back else 1]:
        h = np.tanh(x[time] + h @ (w * 2).T + b)
        c = c * 0.5 + h * y[time]
        for name, value in zip("hcys", (h, c, y[time], x[time] / (1 + np.exp(-c)))):
            every[name][time] = value
    states = [np.stack(every[name]) if all_ else s for name, s, all_ in zip("hc", (h, c), kept)]
    return [*states, np.stack(every["y"]), np.stack(every["s"])]


CASES = [
    (5, 3, 16, (True, False), False),
    (5, 3, 16, (False, True), True),
    (4, 2, 5, (True, True), False),  # elements of 40 bytes, which begin anywhere
    (7, 3, 3, (False, False), True),
    (1, 4, 8, (False, True), False),
    (2, 1, 1, (True, False), True),
    (6, 40, 33, (True, True), False),  # enough for two threads
]


BLOCKS = [  # of rows, of which the last overlaps the one before, or is the only one
    (5, 40, 16, (True, False), False, 16),
    (5, 33, 16, (False, True), True, 11),
    (4, 7, 5, (False, False), False, 3),  # rows of 20 bytes
    (1, 4, 8, (True, True), False, 4),
    (3, 5, 3, (False, True), True, 1),
    (6, 90, 33, (True, False), True, 17),
]


@pytest.mark.parametrize(
    ("count", "rows", "size", "kept", "back", "block"), [*((*case, 0) for case in CASES), *BLOCKS]
)
def test_however_it_is_run_it_means_the_same(count, rows, size, kept, back, block, monkeypatch):
    monkeypatch.setattr(main_function, "FEW", (0, 1000)[rows % 2])  # its calls are numbers, or text
    graph = recurrence(count, rows, size, kept, back, block=block)
    verify(graph)
    arrays = arrays_of(graph)
    wanted = by_hand(arrays, kept, back)
    close(interpret(graph, *arrays), wanted)
    flat = unroll(graph)
    assert "recur" not in {node.op.name for node in flat.nodes}
    verify(flat)
    close(interpret(flat, *arrays), wanted)
    program = to_program(optimise(graph, VERIFIED), (None,) * 4, host_target(), VERIFIED)
    assert len(program.repeats) == 1
    close(interpret_program(program, *arrays), wanted)
    close(planned(verify_plan(plan_memory(program)), arrays), wanted)
    close(Executable(program)(*arrays), wanted)
    close(Garbage(program)(*arrays), wanted)


@pytest.mark.parametrize("block", [0, 2])
def test_texts_are_read_back(block):
    graph = recurrence(5, 3, 16, block=block)
    assert str(parse(str(graph))) == str(graph)
    program = to_program(optimise(graph), (None,) * 4, host_target())
    text = program_text(program)
    again = verify_program(read(text))
    assert program_text(again) == text
    arrays = arrays_of(graph)
    close(interpret_program(again, *arrays), interpret(graph, *arrays))


def test_what_all_runs_do_alike_is_done_once():
    program = to_program(optimise(recurrence(5, 3, 16)), (None,) * 4, host_target())
    (repeat,) = program.repeats
    weight = program.params[4]
    assert weight not in repeat.inputs, "the weight is doubled, or packed, in each run"
    assert any(weight in one.inputs for one in program.steps)
    assert "pack" not in {call.name for call in repeat.body.calls}


def test_sequences_that_nobody_reads_are_not_made():
    graph = recurrence(5, 3, 16)
    made = optimise(graph.replace(results=graph.results[:2]))
    (node,) = (node for node in made.nodes if node.op.name == "recur")
    assert len(node.outputs) == len(node.attrs["body"].results) == 2


@pytest.mark.parametrize("size", [16, 5])
@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("kept", [(True, False), (False, True)])
def test_one_program_serves_all_numbers_of_rows_in_blocks(kept, back, size):
    sizes = {"s1": 6, "s2": 40}
    with limits(dict.fromkeys(sizes, (1, 1 << 40))), hints(sizes):
        rows = symbol("s2")
        blocks = (rows + 15) // 16
        graph = recurrence(symbol("s1"), rows, size, kept, back, block=(rows + blocks - 1) // blocks)
        sized = Sized(to_program(optimise(graph), (None,) * 4, host_target()), host_target())
        assert sized.is_whole
        for count, rows in (6, 40), (1, 9), (13, 5), (3, 1), (2, 200), (40, 17), (6, 33):
            now = {"s1": count, "s2": rows}
            arrays = arrays_of(recurrence(count, rows, size), count)
            verify_plan(sized.plan.at(now))
            run = Executable.of_linked(sized.at(now), {}, Scratch())
            close(run(*arrays), by_hand(arrays, kept, back))


def test_blocks_of_rows_go_to_threads():
    """The same to the bit on any number of threads, as often as a race would need to show."""
    graph = recurrence(20, 200, 16, (True, False), block=17)
    arrays = arrays_of(graph)
    program = to_program(optimise(graph), (None,) * 4, host_target())
    assert [*plan_memory(program).lanes.values()] == [12]
    before, wanted = lamina.get_num_threads(), Executable(program, threads=1)(*arrays)
    lamina.set_num_threads(5)
    try:
        run = Executable(program)
        for _ in range(50):
            for a, b in zip(run(*arrays), wanted, strict=True):
                np.testing.assert_array_equal(a, b)
    finally:
        lamina.set_num_threads(before)


def test_rows_that_are_none_are_refused():
    graph = recurrence(5, 7, 16, block=4)
    (node,) = graph.nodes
    for rows in (8, 3, -1):
        with pytest.raises(GraphError, match="recur"):
            verify(graph.replace(nodes=(node.replace(attrs={**node.attrs, "rows": rows}),)))
    program = to_program(optimise(graph), (None,) * 4, host_target())
    (repeat,) = program.repeats
    for rows in (0, 3, 8):
        steps = tuple(replace(one, rows=rows) if one is repeat else one for one in program.steps)
        with pytest.raises(GraphError, match="what repeats"):
            verify_program(program.replace(steps=steps))


def symbolic(kept, back):
    return recurrence(symbol("s1"), symbol("s2"), 16, kept, back)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("kept", [(True, False), (False, True), (True, True)])
def test_one_program_serves_all_sizes(kept, back):
    graph, sizes = symbolic(kept, back), {"s1": 6, "s2": 9}
    with limits(dict.fromkeys(sizes, (1, 1 << 40))), hints(sizes):
        program = to_program(optimise(graph), (None,) * 4, host_target())
        sized = Sized(program, host_target())
        assert sized.is_whole
        for count, rows in (6, 9), (1, 9), (13, 5), (3, 1), (2, 200), (40, 17), (6, 8):
            now = {"s1": count, "s2": rows}
            arrays = arrays_of(recurrence(count, rows, 16), count)
            verify_plan(sized.plan.at(now))
            run = Executable.of_linked(sized.at(now), {}, Scratch())
            close(run(*arrays), by_hand(arrays, kept, back))


def test_elements_that_begin_anywhere_of_any_size():
    sizes = {"s1": 4, "s2": 3}
    with limits(dict.fromkeys(sizes, (1, 1 << 40))), hints(sizes):
        graph = recurrence(symbol("s1"), symbol("s2"), 5, (True, False))
        sized = Sized(to_program(optimise(graph), (None,) * 4, host_target()), host_target())
        for count, rows in (4, 3), (7, 1), (2, 33):
            arrays = arrays_of(recurrence(count, rows, 5))
            run = Executable.of_linked(sized.at({"s1": count, "s2": rows}), {}, Scratch())
            close(run(*arrays), by_hand(arrays, (True, False), False))


def test_bodies_of_another_shape_are_refused():
    graph = recurrence(5, 3, 16)
    (node,) = graph.nodes
    for change in {"count": 4}, {"kept": (True,)}, {"sequences": 1}, {"sequences": 0}, {"count": 0}:
        wrong = node.replace(attrs={**node.attrs, **change})
        with pytest.raises(GraphError, match="recur"):
            verify(graph.replace(nodes=(wrong,)))
    program = to_program(optimise(graph), (None,) * 4, host_target())
    (repeat,) = program.repeats
    values = {name: getattr(repeat, name) for name in Repeat.__dataclass_fields__}
    for change in {"count": 4}, {"kept": (True,)}, {"sequences": 99}, {"inputs": repeat.inputs[:-1]}:
        wrong = Repeat(**values | change)
        steps = tuple(wrong if one is repeat else one for one in program.steps)
        with pytest.raises(GraphError, match="what repeats"):
            verify_program(program.replace(steps=steps))


def test_a_plan_whose_body_is_overwritten_is_refused():
    """Planted: a state's buffer over what the same run still reads shows in the plan of the body."""
    program = to_program(optimise(recurrence(5, 3, 16)), (None,) * 4, host_target())
    plan = plan_memory(program)
    (repeat,) = program.repeats
    body = plan.bodies[repeat]
    inner = [a for a, place in body.places.items() if place.kind == "arena"]
    outer = [a for a, place in body.places.items() if place.kind == "result"]
    assert inner or outer
    spoiled = dict(body.places) | {outer[0]: body.places[outer[-1]]}
    with pytest.raises(GraphError, match="plan of"):
        verify_plan(plan.replace(bodies={repeat: body.replace(places=spoiled)}))


def test_garbage_is_seen_by_the_interpreter_of_plans():
    """Planted: a run that does not get the state of the one before."""
    program = to_program(optimise(recurrence(5, 3, 16)), (None,) * 4, host_target())
    (repeat,) = program.repeats
    arrays = arrays_of(recurrence(5, 3, 16))
    given = [np.full(a.shape, GARBAGE, np.float32) for a in repeat.inputs]
    right = run_repeat(repeat, given, interpret_program)
    forgetful = run_repeat(
        repeat, given, lambda body, *now: interpret_program(body, *now[:2], *given[2:4], *now[4:])
    )
    assert len(right) == len(forgetful) and arrays
    assert not all(np.array_equal(a, b) for a, b in zip(right, forgetful))


@pytest.mark.parametrize("name", ["lstm_layer", "gru_layer", "rnn_layer"])
def test_layers_repeat(name):
    """Each layer and its way back is one loop, whatever their length."""
    gates = {"lstm_layer": 4, "gru_layer": 3, "rnn_layer": 1}[name]
    states = 2 if name == "lstm_layer" else 1
    with Builder("net") as b:
        operands = [b.param(t(9, 4, 16 * gates)), *(b.param(t(4, 16)) for _ in range(states))]
        operands += [b.param(t(16 * gates, 16), "w"), b.param(t(16 * gates))]
        graph = b.finish(b.emit(OPS[name], operands, {"back": True} | _plain(name)).outputs)
    program = to_program(optimise(graph), (None,) * len(graph.results), host_target())
    assert len(program.repeats) == 1
    arrays = arrays_of(graph)
    close(Executable(program)(*arrays), interpret(graph, *arrays))
    close(interpret(unroll(expand(graph)), *arrays), interpret(graph, *arrays))


def _plain(name):
    return {"nonlinearity": "relu"} if name == "rnn_layer" else {}
