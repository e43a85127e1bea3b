"""What depends on weights alone: golden texts, what stays, refusal; random programs mean the same."""

import random

import numpy as np
import pytest
from sample_programs import add_row, arguments, call, pointwise, random_program, reshape, sort, transpose

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir.dtypes import int64
from lamina.ir.errors import GraphError
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.programs import prologue as module
from lamina.passes.programs.program import Array, Host, Program, interpret, verify
from lamina.passes.programs.prologue import prologue


def layer():
    """x @ pack(w), with a scale that is computed of another weight."""
    x, w, s = Array("x", "f32", (4, 8)), Array("w", "f32", (8, 4)), Array("s", "f32", (8,))
    packed = transpose(w)
    half = pointwise("half", "(%a * 0.5)", s)
    moved = add_row(x, half.outputs[0])
    product = pointwise("product", "(%a * %b)", moved.outputs[0], packed.outputs[0])
    return Program("layer", (x, w, s), (packed, half, moved, product), product.outputs)


EARLY = """\
program layer_prologue(%w: f32[8,4], %s: f32[8]) -> (%y, %y.1) {
  %y: f32[4,8] = transpose(%w)
  %y.1: f32[8] = half(%s)
}"""

REST = """\
program layer(%x: f32[4,8], %w: f32[8,4], %s: f32[8], %y: f32[4,8], %y.1: f32[8]) -> (%y.3) {
  %y.2: f32[4,8] = add_row(%x, %y.1)
  %y.3: f32[4,8] = product(%y.2, %y)
}"""


def test_what_depends_on_weights_alone_moves():
    early, rest = prologue(layer(), frozenset({1, 2}))
    assert str(verify(early)) == EARLY
    assert str(verify(rest)) == REST


def test_what_else_depends_on_anything_stays():
    program = layer()
    early, rest = prologue(program, frozenset())
    assert early.steps == early.results == () and str(rest) == str(program)
    early, _ = prologue(program, frozenset({2}))
    assert [step.name for step in early.steps] == ["half"]


def test_once_split_nothing_is_left():
    _, rest = prologue(layer(), frozenset({1, 2}))
    again, same = prologue(rest, frozenset({1, 2, 3, 4}))
    assert again.steps == () and str(same) == str(rest)


def spread(a, rows):
    (n,) = a.shape
    return call(
        f"kernel spread(a: f32[{n}]) -> (y: f32[{rows},{n}]) {{\n  parallel i:{rows} j:{n}\n"
        "  y[i, j] = a[j]\n}",
        a,
    )


def padded(a, columns):
    n, m = a.shape
    return call(
        f"kernel padded(a: f32[{n},{m}]) -> (y: f32[{n},{columns}]) {{\n  parallel i:{n} j:{columns}\n"
        "  y[i, j] = a[i, j else 0]\n}",
        a,
    )


def zeros(n):
    return call(f"kernel zeros() -> (y: f32[{n}]) {{\n  parallel i:{n}\n  y[i] = 0.0\n}}")


def test_copies_that_repeat_elements_and_views_stay_behind_what_they_are_made_of():
    w, x = Array("w", "f32", (8,)), Array("x", "f32", (4, 8))
    half = pointwise("half", "(%a * 0.5)", w)
    wide = spread(half.outputs[0], 4)
    flat = reshape(wide.outputs[0], (32,))
    total = pointwise("add", "(%a + %b)", x, wide.outputs[0])
    program = Program("wide", (w, x), (half, wide, flat, total), (total.outputs[0], flat.outputs[0]))
    early, rest = prologue(program, frozenset({0}))
    assert [step.name for step in early.steps] == ["half"] and early.results == half.outputs
    assert [step.name for step in rest.steps] == ["spread", "alias", "add"]


def test_copies_that_pad_move():
    w, x = Array("w", "f32", (4, 3)), Array("x", "f32", (4, 16))
    pad = padded(w, 16)
    total = pointwise("add", "(%a + %b)", x, pad.outputs[0])
    early, _ = prologue(Program("pad", (w, x), (pad, total), total.outputs), frozenset({0}))
    assert [step.name for step in early.steps] == ["padded"]


def test_what_both_need_stands_in_both():
    w, x = Array("w", "f32", (8,)), Array("x", "f32", (4, 8))
    wide = spread(w, 4)
    twice = pointwise("twice", "(%a + %a)", wide.outputs[0])
    one = pointwise("add", "(%a + %b)", x, wide.outputs[0])
    two = pointwise("mul", "(%a * %b)", one.outputs[0], twice.outputs[0])
    early, rest = prologue(Program("both", (w, x), (wide, twice, one, two), two.outputs), frozenset({0}))
    assert [step.name for step in early.steps] == ["spread", "twice"] and early.results == twice.outputs
    assert [step.name for step in rest.steps] == ["spread", "add", "mul"]


def test_fillings_stay():
    x, empty = Array("x", "f32", (8,)), zeros(8)
    total = pointwise("add", "(%a + %b)", x, empty.outputs[0])
    early, rest = prologue(Program("fill", (x,), (empty, total), total.outputs), frozenset())
    assert early.steps == () and len(rest.steps) == 2


def test_host_ops_move_but_not_those_that_draw():
    w, state = Array("w", "f32", (8,)), Array("state", "i64", (2,))
    order = sort(w)
    shuffle = Host(
        REGISTRY["random_permutation"], {"n": 8, "dtype": int64}, (type_of(int64, (2,)),), (state,),
        (Array("places", "i64", (8,)),),
    )  # fmt: skip
    program = Program("hosts", (w, state), (order, shuffle), (*order.outputs, *shuffle.outputs))
    early, rest = prologue(program, frozenset({0, 1}))
    assert early.steps == (order,) and rest.steps == (shuffle,)


def test_constants_count_as_frozen_and_go_where_they_are_read():
    x, c = Array("x", "f32", (8,)), Array("c", "f32", (8,))
    half = pointwise("half", "(%a * 0.5)", c)
    total = pointwise("add", "(%a + %b)", x, half.outputs[0])
    program = Program("constant", (x,), (half, total), (total.outputs[0], c), {c: np.ones(8, np.float32)})
    early, rest = prologue(program, frozenset())
    assert [*early.constants] == [*rest.constants] == [c]  # `rest` returns it


def test_an_overwritten_param_is_refused():
    w = Array("w", "f32", (8,))
    half = pointwise("half", "(%a * 0.5)", w)
    with pytest.raises(GraphError, match="a param that decay overwrites is not frozen\n  %w: f32"):
        prologue(Program("decay", (w,), (half,), half.outputs, {}, (0,)), frozenset({0}))


def halves(program, frozen, arrays):
    """The results, through both programs."""
    early, rest = map(verify, prologue(program, frozen))
    handed = interpret(early, *(arrays[i] for i in sorted(frozen)))
    return interpret(rest, *arrays, *handed)


def random_split(seed):
    program = random_program(seed)
    rng = random.Random(seed)
    free = [i for i in range(len(program.params)) if i not in program.into]
    return program, frozenset(i for i in free if rng.random() < 0.7)


@pytest.mark.parametrize("seed", range(120))
def test_random_programs_mean_the_same(seed):
    program, frozen = random_split(seed)
    arrays = arguments(program, seed)
    for one, two in zip(interpret(program, *arrays), halves(program, frozen, arrays), strict=True):
        np.testing.assert_array_equal(one, two)


def test_random_programs_do_move_something():
    moved = [len(prologue(*random_split(seed))[0].steps) for seed in range(120)]
    assert sum(moved) > 120


# ---- planted bugs: the nets catch them
def caught(net):
    try:
        net()
    except (AssertionError, GraphError):
        return True
    return False


def test_planted_bugs_are_caught(monkeypatch):
    fuzz = [lambda seed=seed: test_random_programs_mean_the_same(seed) for seed in range(40)]
    with monkeypatch.context() as m:  # reads what is not handed over
        m.setattr(module, "leading_to", lambda steps, arrays: tuple(steps[1:]))
        assert any(map(caught, fuzz))
    with monkeypatch.context() as m:
        m.setattr(module, "cheap_again", lambda step: True)
        assert caught(test_what_depends_on_weights_alone_moves) and not any(map(caught, fuzz))
    with monkeypatch.context() as m:
        m.setattr(module, "movable", lambda step, of_one_call: True)
        assert caught(test_host_ops_move_but_not_those_that_draw) and not any(map(caught, fuzz))
