"""The order of steps that holds fewer bytes: golden texts, what stays where it is, random programs."""

import numpy as np
import pytest
from sample_programs import arguments, pointwise, random_program, sort

from lamina.ir.kernel.text import parse as parse_kernel
from lamina.passes.programs import shorten_lifetimes as module
from lamina.passes.programs.memory_plan import failing, verify
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Array, Call, Program, interpret
from lamina.passes.programs.shorten_lifetimes import shorten_lifetimes
from lamina.passes.programs.with_checks import with_checks

SUM = parse_kernel(
    "kernel sum(x: f32[8,4]) -> (y: f32[4]) {\n  parallel j:4\n  t = sum(i:8) x[i, j]\n  y[j] = t\n}"
)


def summed(x):
    return Call(SUM, (x,), (Array("sum", "f32", (4,)),))


def names(program):
    return [step.name for step in program.steps]


def training(between=(), old_values_later=False):
    """Cotangents one after another, each of which an update reads last of all."""
    x, w, v, u = Array("x", "f32", (8, 4)), *[Array(name, "f32", (4,)) for name in "wvu"]
    chain = [pointwise("g0", "(%a * 2.0)", x)]
    for n in range(1, 5):
        chain.append(pointwise(f"g{n}", "(%a * 3.0)", chain[-1].outputs[0]))
    late = [pointwise("old", "(%a * 0.5)", w)] if old_values_later else []
    sums = [summed(chain[n].outputs[0]) for n in range(3)]
    updates = [
        pointwise(f"update{n}", "(%a - %b)", param, sums[n].outputs[0]) for n, param in enumerate((w, v, u))
    ]
    results = [step.outputs[0] for step in (*updates, chain[-1], *late)]
    steps = (*chain, *between, *late, *sums, *updates)
    return Program("training", (x, w, v, u), steps, tuple(results), {}, (1, 2, 3, *[None] * (1 + len(late))))


def test_updates_follow_what_they_are_the_last_to_read():
    program = training()
    short = shorten_lifetimes(program)
    assert " ".join(names(short)) == "g0 g1 sum update0 g2 sum update1 g3 sum g4 update2"
    assert shorten_lifetimes(short) is short
    before, after = verify(plan_memory(program)), verify(plan_memory(short))
    assert (before.arena, after.arena) == (448, 320)


def test_an_update_waits_for_what_reads_the_old_values_and_what_may_fail():
    order = names(shorten_lifetimes(training(old_values_later=True)))
    assert order.index("old") < order.index("update0")
    sorting = sort(Array("x", "f32", (3,)))
    program = training(between=[sorting])
    program = program.replace(params=(*program.params, sorting.inputs[0]))
    short = shorten_lifetimes(program)
    assert names(short).index("host.sort") < names(short).index("update0")
    assert not verify(plan_memory(short)).moves


def test_what_lets_go_of_nothing_stays():
    x = Array("x", "f32", (8, 4))
    first = pointwise("first", "(%a * 2.0)", x)
    second = pointwise("second", "(%a * 3.0)", x)
    third = pointwise("third", "(%a + %b)", first.outputs[0], second.outputs[0])
    wide = pointwise("wide", "(%a * 3.0)", first.outputs[0])
    program = Program("stay", (x,), (first, second, third, wide), (third.outputs[0], wide.outputs[0]))
    assert shorten_lifetimes(program) is program


@pytest.mark.parametrize("seed", range(100))
def test_random_programs_compute_the_same(seed):
    program = random_program(seed)
    short = shorten_lifetimes(program)
    assert sorted(map(id, short.steps)) == sorted(map(id, program.steps))
    verify(plan_memory(short))
    given = arguments(program, seed)
    for one, two in zip(interpret(program, *given), interpret(short, *given), strict=True):
        np.testing.assert_array_equal(one, two)


def gather(size, whole=True):
    index = "i" if whole else "i+1"
    return parse_kernel(
        f"kernel gather(t: f32[{size},4], r: i64[3]) -> (y: f32[{3 if whole else 2},4]) {{\n"
        f"  parallel i:{3 if whole else 2} j:4\n  y[i, j] = t[r[{index}], j]\n}}"
    )


def looked_up(*kernels):
    r = Array("r", "i64", (3,))
    tables = [Array("t", "f32", kernel.inputs[0].shape) for kernel in kernels]
    steps = [
        Call(kernel, (table, r), (Array("y", "f32", kernel.outputs[0].shape),))
        for kernel, table in zip(kernels, tables, strict=True)
    ]
    return Program("look", (r, *tables), tuple(steps), tuple(step.outputs[0] for step in steps))


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        ((gather(6), gather(6)), {0}),
        ((gather(6), gather(6, whole=False)), {0}),
        ((gather(6, whole=False), gather(6)), {0, 1}),  # which saw a part alone
        ((gather(6), gather(5)), {0, 1}),
    ],
)
def test_indices_that_were_checked_fail_no_more(kernels, expected):
    program = looked_up(*kernels)
    assert failing(program) == expected
    assert len(with_checks(program)[1]) == len(expected)


def test_a_planted_order_is_found(monkeypatch):
    monkeypatch.setattr(module._Order, "may", lambda self, number, among: True)
    order = names(shorten_lifetimes(training(old_values_later=True)))
    assert order.index("update0") < order.index("old")  # what the test above would see
