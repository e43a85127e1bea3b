"""Attention in blocks of queries: the same as all at once, for any number of them, in memory of one block."""

from contextlib import ExitStack

import numpy as np
import pytest

from lamina.ir import dtypes
from lamina.ir.dims import hints, limits, symbol
from lamina.ir.graph import Builder
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY as OPS
from lamina.ir.ops import attention_blocks
from lamina.ir.types import type_of
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.sized import Sized
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.runtime.native import Executable, Scratch

MASKS = {
    "none": None,
    "causal": None,
    "bools": (dtypes.bool_, (2, 1, "l", "s")),
    "padding": (dtypes.bool_, (2, 1, 1, "s")),
    "floats": (dtypes.float32, ("l", "s")),
    "one row": (dtypes.float32, ("s",)),
}
SIZES = (40, 24), (33, 50), (16, 7), (49, 1), (65, 65)


@pytest.fixture
def small(monkeypatch):
    """Blocks of 16 queries wherever there are more."""
    monkeypatch.setattr(attention_blocks, "LARGE", 1)
    monkeypatch.setattr(attention_blocks, "ENOUGH", 1)
    monkeypatch.setattr(attention_blocks, "SHORT", 16)
    monkeypatch.setattr(attention_blocks, "PIECE", 1)


def graph_of(name, mask, queries, keys):
    """[2, 3, l, 8] looks at [2, 3, s, 8]; forward, or what comes back."""
    sizes = {"l": queries, "s": keys}

    def t(*shape, dtype=dtypes.float32):
        return type_of(dtype, tuple(sizes.get(n, n) for n in shape))

    with Builder("net") as b:
        operands = [b.param(t(2, 3, "l", 6), "g")] if name == "attention_backward" else []
        operands += [b.param(t(2, 3, n, e), x) for n, e, x in (("l", 8, "q"), ("s", 8, "k"), ("s", 6, "v"))]
        made = MASKS[mask]
        operands.append(made and b.param(t(*made[1], dtype=made[0]), "mask"))
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
            array = rng.standard_normal(p.shape).astype(np.float32)
        found.append(array)
    return found


def by_hand(graph, arrays):
    """In float64, all at once."""
    (node,) = graph.nodes
    wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
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
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("name", ["attention", "attention_backward"])
def test_blocks_are_the_same_as_all_at_once(name, mask, small):
    for queries, keys in SIZES:
        graph = graph_of(name, mask, queries, keys)
        arrays = arrays_of(graph)
        wanted = by_hand(graph, arrays)
        close(interpret(graph, *arrays), wanted)
        options = Options(verify=queries == 33)
        program = to_program(optimise(graph, options), (None,) * len(wanted), host_target(), options)
        assert len(program.repeats) == (queries > 16)
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
        assert len(program.repeats) == 1
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
