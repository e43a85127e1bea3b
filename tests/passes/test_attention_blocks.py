"""Attention in blocks of queries: the same as all at once, for any number of them, in memory of one block."""

from contextlib import ExitStack
from math import prod

import numpy as np
import pytest

import lamina
from lamina.ir import dtypes
from lamina.ir.dims import hints, limits, symbol
from lamina.ir.errors import GraphError
from lamina.ir.graph import Builder
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY as OPS
from lamina.ir.ops import attention_blocks
from lamina.ir.types import type_of
from lamina.passes.graphs.expand import expand
from lamina.passes.graphs.unroll import unroll
from lamina.passes.kernels.product import product_of
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.sized import Sized
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.programs import memory_plan
from lamina.passes.programs import program as programs
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Call, Repeat, verify
from lamina.passes.programs.program import interpret as interpret_program
from lamina.passes.programs.program_text import constants_of, parse, program_text
from lamina.runtime.native import Executable, Scratch

MASKS = {
    "none": None,
    "causal": None,
    "bools": (dtypes.bool_, (2, 1, "l", "s")),
    "padding": (dtypes.bool_, (2, 1, 1, "s")),
    "floats": (dtypes.float32, ("l", "s")),
    "one row": (dtypes.float32, ("s",)),
}
OF_BATCHES = "bools", "padding"  # heads share them, so that these stand in a loop of their own
SIZES = (40, 24), (33, 50), (16, 7), (49, 1), (65, 65), (131, 90), (66, 260)


@pytest.fixture
def small(monkeypatch):
    """Blocks of 16 queries wherever there are more, one head after the other."""
    for name in "LARGE", "PIECE", "LARGE_TOGETHER", "PIECE_TOGETHER", "ENOUGH":
        monkeypatch.setattr(attention_blocks, name, 1)
    for name in "SHORT", "LEAST":
        monkeypatch.setattr(attention_blocks, name, 16)


def graph_of(name, mask, queries, keys, dtype=dtypes.float32, lead=(2, 3)):
    """[2, 3, l, 8] looks at [2, 3, s, 8]; forward, or what comes back."""
    sizes = {"l": queries, "s": keys}

    def t(*shape, dtype=dtype):
        return type_of(dtype, tuple(sizes.get(n, n) for n in shape))

    with Builder("net") as b:
        operands = [b.param(t(*lead, "l", 6), "g")] if name == "attention_backward" else []
        operands += [b.param(t(*lead, n, e), x) for n, e, x in (("l", 8, "q"), ("s", 8, "k"), ("s", 6, "v"))]
        made = MASKS[mask]
        operands.append(
            made and b.param(t(*made[1], dtype=dtypes.bool_ if made[0] is dtypes.bool_ else dtype), "mask")
        )
        attrs = {"is_causal": mask == "causal", "scale": None}
        return b.finish(b.emit(OPS[name], operands, attrs).outputs)


def arrays_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    found = []
    for p in graph.params:
        if p.dtype is dtypes.bool_:
            array = rng.random(p.shape) < 0.7
            array[..., 0] = rng.random(array.shape[:-1]) < 0.5  # some queries see little, or nothing
            if p.shape[-1] > 1 and p.shape[-2] > 1:
                array[0, 0, 1] = False
        else:
            array = rng.standard_normal(p.shape).astype(p.dtype.numpy)
            if p.hint == "mask":
                array[..., 1 : array.shape[-1] // 2] = -np.inf
                if array.ndim > 1:
                    array[-1] = -np.inf  # this one sees nothing
        found.append(array)
    return found


def by_hand(graph, arrays):
    """In float64, all at once."""
    (node,) = graph.nodes
    wide = [a if a.dtype == bool else a.astype(np.float64) for a in arrays]
    by_name = dict(zip((p.hint for p in graph.params), wide, strict=True))
    q, k, v, mask = (by_name.get(n) for n in ("q", "k", "v", "mask"))
    scores = q @ np.swapaxes(k, -1, -2) / 8**0.5
    if node.attrs["is_causal"]:
        mask = np.tril(np.ones(scores.shape[-2:], bool))
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    weights /= np.maximum(weights.sum(-1, keepdims=True), 1e-300)
    if "g" not in by_name:
        return (weights @ v,)
    g = by_name["g"]
    to_weights = g @ np.swapaxes(v, -1, -2)
    to_scores = weights * (to_weights - (weights * to_weights).sum(-1, keepdims=True))
    turned = np.swapaxes(to_scores, -1, -2)
    return to_scores @ k / 8**0.5, turned @ q / 8**0.5, np.swapaxes(weights, -1, -2) @ g


def close(found, wanted):
    for a, b in zip(found, wanted, strict=True):
        tolerance = 2e-5 if a.dtype == np.float32 else 2e-13
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def program_of(graph, options=None):
    options = options or Options()
    return to_program(optimise(graph, options), (None,) * len(graph.results), host_target(), options)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_blocks_are_the_same_as_all_at_once(name, mask, small):
    for queries, keys in SIZES:
        graph = graph_of(name, mask, queries, keys)
        arrays = arrays_of(graph)
        wanted = by_hand(graph, arrays)
        close(interpret(graph, *arrays), wanted)
        options = Options(verify=queries == 33)
        program = program_of(graph, options)
        assert program.depth == (queries > 16) * (3 if mask in OF_BATCHES else 2)
        close(Executable(program)(*arrays), wanted)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_one_program_serves_all_lengths(name, mask, small):
    sizes = {"s1": 40, "s2": 24}
    graph = graph_of(name, mask, symbol("s1"), symbol("s2"))
    with ExitStack() as stack:
        stack.enter_context(limits(dict.fromkeys(sizes, (1, 1 << 40))))
        stack.enter_context(hints(sizes))
        program = to_program(optimise(graph), (None,) * len(graph.results), host_target())
        assert program.depth == (3 if mask in OF_BATCHES else 2)
        sized = Sized(program, host_target())
        assert sized.is_whole
        for queries, keys in (*SIZES, (1, 3), (7, 2), (200, 90)):
            static = graph_of(name, mask, queries, keys)
            arrays = arrays_of(static, queries)
            run = Executable.of_linked(sized.at({"s1": queries, "s2": keys}), {}, Scratch())
            close(run(*arrays), by_hand(static, arrays))


@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_memory_is_of_the_order_of_a_block(name):
    """16 times as many scores, and four times the memory."""
    arenas = []
    for length in 2048, 8192:
        graph = graph_of(name, "causal", length, length)
        program = to_program(optimise(graph), (None,) * len(graph.results), host_target())
        arenas.append(Executable(program).manifest.arena)
    assert arenas[1] < 5 * arenas[0] and arenas[1] < 2 * 3 * 8192 * 8192


@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_one_program_serves_all_lengths_that_are_queries_and_keys(name, small):
    """Of a length that both have parts of queries see keys up to their own."""
    graph = graph_of(name, "causal", symbol("s1"), symbol("s1"))
    with limits({"s1": (1, 1 << 40)}), hints({"s1": 70}):
        program = program_of(graph)
        assert len(program.repeats[0].body.repeats) == 4
        sized = Sized(program, host_target())
        assert sized.is_whole
        for length in 70, 1, 2, 17, 64, 129, 300:
            static = graph_of(name, "causal", length, length)
            arrays = arrays_of(static, length)
            run = Executable.of_linked(sized.at({"s1": length}), {}, Scratch())
            close(run(*arrays), by_hand(static, arrays))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_doubles(name, mask, small):
    for queries, keys in (33, 50), (65, 30):
        graph = graph_of(name, mask, queries, keys, dtypes.float64)
        arrays = arrays_of(graph)
        close(Executable(program_of(graph))(*arrays), by_hand(graph, arrays))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_small_heads_are_gone_over_together(name, mask, monkeypatch):
    """Three of the six batches at a time, each of three heads of 40 x 24 scores."""
    monkeypatch.setattr(attention_blocks, "LARGE", 1)
    monkeypatch.setattr(attention_blocks, "PIECE", 10000)
    lead = (2, 3) if mask in ("bools", "padding") else (6, 3)
    graph = graph_of(name, mask, 40, 24, lead=lead)
    arrays = arrays_of(graph)
    program = program_of(graph)
    if lead == (6, 3):
        assert program.repeats[0].count == 2
    close(Executable(program)(*arrays), by_hand(graph, arrays))


@pytest.mark.parametrize("mask", ["none", "causal", "bools", "floats"])
@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_targets_without_loops_have_heads_together(name, mask, small):
    """Blocks are written out, and heads are not: launches would be as many."""
    graph = graph_of(name, mask, 40, 24)
    arrays = arrays_of(graph)
    flat = unroll(expand(graph, loops=False))
    assert all(node.op.name != "recur" for node in flat.nodes)
    assert sum(node.op.name == "matmul" for node in flat.nodes) == 3 * (2 if name == "attention" else 5)
    close(interpret(flat, *arrays), by_hand(graph, arrays))
    close(interpret(unroll(expand(graph)), *arrays), by_hand(graph, arrays))


def multiplications(program):
    """Of all products, in all runs."""
    found = 0
    for step in program.steps:
        if isinstance(step, Repeat):
            found += step.count * multiplications(step.body)
        elif isinstance(step, Call) and (roles := product_of(step.kernel)):
            found += prod(step.kernel.extents[a.name] for a in (*step.kernel.parallel, *roles.stage.axes))
    return found


@pytest.mark.parametrize(("name", "products"), [("attention", 2), ("attention_backward", 5)])
def test_causal_parts_leave_out_keys_that_nobody_sees(name, products):
    """Of eight parts the first is held against an eighth of the keys: (1 + ... + 8) / 64."""
    whole = products * 6 * 1024 * 1024 * 8
    counts = {
        mask: multiplications(program_of(graph_of(name, mask, 1024, 1024))) for mask in ("none", "causal")
    }
    assert 0.8 * whole < counts["none"] <= whole
    assert counts["causal"] == counts["none"] * 36 // 64


@pytest.fixture
def six_threads():
    before = lamina.get_num_threads()
    lamina.set_num_threads(6)
    yield
    lamina.set_num_threads(before)


@pytest.mark.parametrize("mask", ["causal", "padding"])
@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_heads_go_to_threads_each_with_memory_of_its_own(name, mask, small, six_threads):
    """The same to the bit on any number of threads; as often as a race would need to show."""
    graph = graph_of(name, mask, 40, 24, lead=(2, 40))
    arrays = arrays_of(graph)
    program = program_of(graph)
    plan = plan_memory(program)
    assert [*plan.lanes.values()] == [2 if mask == "padding" else 32]
    assert {n for body in plan.bodies.values() for n in body.lanes.values()} <= {1}
    wanted = Executable(program, threads=1)(*arrays)
    for threads in 2, 6:
        run = Executable(program, threads=threads)
        for _ in range(40):
            for a, b in zip(run(*arrays), wanted, strict=True):
                np.testing.assert_array_equal(a, b)


def test_more_threads_than_lanes_share_them(small, monkeypatch, six_threads):
    monkeypatch.setattr(memory_plan, "LANES", 2)
    graph = graph_of("attention", "none", 40, 24, lead=(2, 40))
    arrays = arrays_of(graph)
    program = program_of(graph)
    assert [*plan_memory(program).lanes.values()] == [2]
    run = Executable(program)
    for _ in range(20):
        close(run(*arrays), by_hand(graph, arrays))


def test_loops_inside_of_loops_as_text(small):
    graph = graph_of("attention", "padding", 40, 24)
    program = program_of(graph)
    text = program_text(program)
    again = parse(text, constants_of(program))
    assert program_text(again) == text and verify(again).depth == 3
    arrays = arrays_of(graph)
    close(interpret_program(again, *arrays), by_hand(graph, arrays))


def test_loops_that_are_too_deep_are_refused(monkeypatch, small):
    program = program_of(graph_of("attention", "padding", 40, 24))
    monkeypatch.setattr(programs, "DEEPEST", 3)
    verify(program)
    monkeypatch.setattr(programs, "DEEPEST", 2)
    with pytest.raises(GraphError, match="2 loops deep at most"):
        verify(program)


@pytest.mark.parametrize("mask", ["none", "causal", "floats"])
def test_gradients_to_second_order(mask, small):
    """Traced in blocks, against the same in float64 and eager."""

    def second(q, k, v, mask_array, cotangent):
        out = lamina.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask_array, is_causal=mask == "causal"
        )
        first = lamina.autograd.grad(out, (q, k, v), cotangent, create_graph=True)
        return (out, *first, *lamina.autograd.grad(sum((x * x).sum() for x in first), (q, k, v)))

    rng = np.random.default_rng(0)
    shapes = (2, 33, 4), (2, 20, 4), (2, 20, 3), (33, 20), (2, 33, 3)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    arrays[3][:, 7:] = -np.inf
    arrays[3][5] = -np.inf

    def run(function, dtype):
        given = [lamina.tensor(a.astype(dtype), requires_grad=n < 3) for n, a in enumerate(arrays)]
        if mask != "floats":
            given[3] = None
        return [x.detach().numpy() for x in function(*given)]

    traced = lamina.jit.trace(second)
    for _ in range(3):
        found = run(traced, np.float32)
    assert traced.counts()["served"] == 2
    for a, b in zip(found, run(second, np.float64), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)
