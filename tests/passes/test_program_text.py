"""The text of programs: read back as it was, from every sample and after every pass over programs."""

from functools import partial

import numpy as np
import pytest
from image_programs import arguments, random_images, small_network
from sample_programs import random_program
from training_programs import random_step, small_step

from lamina.ir.dtypes import float32
from lamina.ir.errors import GraphError, KernelError
from lamina.ir.graph import Builder
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.graphs.dce import dce
from lamina.passes.graphs.whole_attention import keep_attention
from lamina.passes.programs import program_text as module
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.batch_innermost import batch_innermost
from lamina.passes.programs.build_program import build_program
from lamina.passes.programs.channels_last import channels_last
from lamina.passes.programs.factor_sums import factor_sums
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.program import Array, Program, Whole, interpret, verify
from lamina.passes.programs.program_text import constants_of, parse, program_text
from lamina.passes.programs.prologue import prologue
from lamina.passes.programs.split_calls import split_calls
from lamina.passes.run import verified
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import AVX2, AVX512, BASELINE
from lamina.passes.triton.generate import programs_of
from lamina.runtime.native import Executable

TABLE = np.arange(100, dtype=np.float32).reshape(2, 50)
SMALL = """\
kernel add(a: f32[2,3], b: f32[2,3]) -> (y: f32[2,3]) {
  parallel i:2 j:3
  y[i, j] = (a[i, j] + b[i, j])
}
kernel add.1(a: f32[2,3], b: f32[3]) -> (y: f32[2,3]) {
  parallel i:2 j:3
  y[i, j] = (a[i, j] + b[j])
}
program net(%x: f32[2,3], %x.1: f32[2,3]) -> (%y.1 into %x, %values, @c) {
  @c: f32[3] = (1.5,-0.0,inf)
  @flag: bool[] = (True,)
  @table: f32[2,50] = 817cddd35bc80c1c
  %y: f32[2,3] = add(%x, %x.1) by vectorise(j, 2) tile(i, 2) keep(e)
  %row: f32[3] = alias(%y) {offset=3}
  %y.1: f32[2,3] = add.1(%x, %row)
  %values: f32[3], %indices: i64[3] = host.sort(@c: f32[3]) {dim=0, descending=False}
  %values.1: f32[3], %indices.1: i64[3] = host.sort(%row: f32[3]) {dim=0, descending=True}
}"""


def read(text: str = SMALL) -> Program:
    return parse(text, {"table": TABLE})


def test_text_is_read_back():
    program = verified(read())
    assert program_text(program) == SMALL
    assert list(constants_of(program)) == ["table"]
    assert [call.kernel.name for call in program.calls] == ["add", "add"]
    assert program.into == (0, None, None)
    ones = np.ones((2, 3), np.float32)
    y, values, c = interpret(program, ones, ones)
    assert y.tolist() == [[3.0] * 3] * 2 and values.tolist() == [-0.0, 1.5, np.inf]
    assert np.signbit(values[0]) and c.dtype == np.float32


PASSES = (
    lambda program: program,
    partial(factor_sums, target=AVX512),
    partial(batch_innermost, target=AVX512),
    partial(assign_layouts, target=AVX2),
    partial(pack_matmuls, target=AVX512),
    channels_last,
    partial(split_calls, programs=programs_of),
    lambda program: prologue(program, frozenset(range(len(program.params))) - {*program.into})[0],
    lambda program: prologue(program, frozenset(range(len(program.params))) - {*program.into})[1],
)
SAMPLES = {"random": random_program, "images": random_images, "step": random_step}


@pytest.mark.parametrize("number", range(len(PASSES)))
@pytest.mark.parametrize("name", SAMPLES)
def test_every_program_after_every_pass_is_read_back(name, number):
    for seed in range(12):
        program = PASSES[number](SAMPLES[name](seed))
        text = program_text(program)
        again = verified(parse(text, constants_of(program)))
        assert program_text(again) == text
        assert [type(step) for step in again.steps] == [type(step) for step in program.steps]
        assert [call.how for call in again.calls] == [call.how for call in program.calls]


def test_an_op_that_a_target_has_code_of_its_own_for_is_read_back():
    with Builder("net") as b:
        q, k, v = (b.param(type_of(float32, (1, 2, 5, 8)), name) for name in "qkv")
        out = REGISTRY["attention"](q, k, v)
        graph = b.finish([out, *REGISTRY["attention_backward"](q, q, k, v)])
    for asked, count in ((graph.replace(results=[out]), 1), (graph, 3)):
        program = build_program(keep_attention(dce(asked), "ieee"))
        text = program_text(program)
        again = verified(parse(text))
        assert program_text(again) == text
        assert [type(step) for step in again.steps].count(Whole) == count
    for old, new in (("groups=1", "groups=0"), ("f32[1,2,5])", "f32[1,2,4])")):
        assert old in text
        with pytest.raises(GraphError):
            verify(parse(text.replace(old, new)))


@pytest.mark.parametrize("name", SAMPLES)
def test_a_program_read_back_computes_the_same(name):
    for seed in range(4):
        program = pack_matmuls(assign_layouts(SAMPLES[name](seed), AVX2), AVX2)
        again = parse(program_text(program), constants_of(program))
        arrays = arguments(program, seed)
        for one, two in zip(interpret(program, *arrays), interpret(again, *arrays), strict=True):
            np.testing.assert_array_equal(one, two)


def test_a_program_read_back_is_the_same_code():
    program = pack_matmuls(assign_layouts(small_network(), BASELINE), BASELINE)
    again = parse(program_text(program), constants_of(program))
    arrays, (one, two) = arguments(program), (Executable(p, BASELINE) for p in (program, again))
    assert [a.tobytes() for a in one(*arrays)] == [a.tobytes() for a in two(*arrays)]


# ---- golden: before -> after, in full
def full(*programs: Program) -> str:
    return "\n\n".join(map(program_text, programs))


def test_batch_innermost_golden(golden):
    before = small_step()
    golden("passes/batch_innermost", full(before, batch_innermost(before, AVX512)))


def test_assign_layouts_golden(golden):
    before = small_network()
    golden("passes/assign_layouts", full(before, assign_layouts(before, AVX512)))


def test_pack_matmuls_golden(golden):
    golden("passes/pack_matmuls", full(LINEAR, pack_matmuls(LINEAR, AVX512, Options(frozenset({1})))))


def test_channels_last_golden(golden):
    before = small_step()
    golden("passes/channels_last", full(before, channels_last(before)))


def test_prologue_golden(golden):
    laid_out = pack_matmuls(LINEAR, AVX512, Options(frozenset({1})))
    golden("passes/prologue", full(laid_out, *prologue(laid_out, frozenset({1}))))


def test_split_calls_golden(golden):
    golden("passes/split_calls", full(LONG, split_calls(LONG, programs_of)))


LINEAR = parse("""\
kernel linear(x: f32[32,64], w: f32[96,64], b: f32[96]) -> (y: f32[32,96]) {
  parallel i:32 j:96
  s = sum(k:64) (x[i, k] * w[j, k])
  y[i, j] = max((s + b[j]), 0.0)
}
program net(%x: f32[32,64], %w: f32[96,64], %b: f32[96]) -> (%y) {
  %y: f32[32,96] = linear(%x, %w, %b)
}""")
LONG = parse("""\
kernel rows(x: f32[3,40000]) -> (y: f32[3]) {
  parallel i:3
  s = sum(j:40000) x[i, j]
  y[i] = sqrt(s)
}
program net(%x: f32[3,40000]) -> (%y) {
  %y: f32[3] = rows(%x)
}""")


# ---- how a kernel runs
HOWS = (
    schedule("scalar()"),
    schedule("scalar(j) tile(i, 2) tile(a, 4) unroll(k, 8) block(j, 512) keep(b) keep(e) stream()"),
    schedule("collapse() reorder(j, i) pack(b, j) prefetch(b, 512) vectorise(j, 2) block(j, 16) peel(j)"),
    schedule("residues() vectorise(n, 2, 16) tile(i, 2) bound() join() strips(r, 4) split(i, 2) roll(i)"),
    schedule("winograd(4, 8, 6, 2, True)"),
    schedule("winograd(4, 1, 3, 2, False, 16)"),
    schedule("collapse() lanes(flat, 1024, i, j) along(row, 4096, k) warps(8)"),
    schedule("lanes(m, 64, i) lanes(n, 32, j) along(k, 32, k, r) dot(s) precision(tf32) group(8) stages(2)"),
    schedule("serial(i, j)"),
)


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_ways_to_run_are_read_back(how):
    text = SMALL.replace("vectorise(j, 2) tile(i, 2) keep(e)", str(how))
    (first, _) = read(text).calls
    assert first.how == how
    assert program_text(read(text)) == text


# ---- refusals
@pytest.mark.parametrize(
    "old, new, message",
    [
        ("817cddd3", "88bbbf8b", "line 12: the data of constant @table is not what the text was made of"),
        ("@table", "@chair", "line 12: constant @chair has no data"),
        ("(1.5,-0.0,inf)", "(1.5,-0.0)", "line 10: 2 numbers are not a constant of type f32[3]"),
        ("(1.5,-0.0,inf)", "(1.5,True,inf)", "line 10: the numbers of a constant are lamina.float32"),
        ("add.1(%x", "add.2(%x", "line 15: no kernel is called 'add.2'"),
        ("host.sort(@c", "host.sart(@c", "line 16: no op is called 'sart'"),
        ("add.1(%x,", "add.1(none,", "line 15: only a host step leaves operands out"),
        ("add.1(%x,", "add.1(%q,", "line 15: %q is not defined"),
        ("%y.1: f32", "%y: f32", "line 15: %y is defined twice"),
        ("into %x", "into @c", "line 9: expected the param that is overwritten"),
        ("into %x", "into %y", "line 9: %y is no param"),
        ("{offset=3}", "{offset=1.5}", "line 14: an alias is"),
        ("by vectorise(j, 2)", "by chance(j)", "line 13: no step is called 'chance'"),
        ("by vectorise(j, 2)", "by vectorise(j, k)", "line 13: vectorise(axis, vectors, lanes): vectors is"),
        ("by vectorise(j, 2)", "by tile(j)", "line 13: a step is tile(axis, size)"),
        ("by vectorise(j, 2)", "by lanes(j)", "line 13: a step is lanes(dim, size, axes)"),
        ("by vectorise(j, 2)", "by lanes(j, k)", "line 13: lanes(dim, size, axes): size is a whole number"),
        ("%row: f32[3]", "%row: f32[9223372036854775807]", "line 14: an array has fewer than 2**63 bytes"),
        ("%row: f32[3]", "%row: f33[3]", "line 14: there is no element type 'f33'"),
        ("kernel add.1", "kernel add", "line 5: a kernel add stands there already"),
        ("b[j])", "b[j]", "line 7: expected ')'"),
        ("\n}\nprogram", "\nprogram", "line 8: a fold ends with a line of its own"),
        (
            "descending=True}\n}",
            "descending=True}",
            "line 17: expected a step (%name: type = kernel(...)), or '}'",
        ),
    ],
)
def test_malformed_text_names_the_line(old, new, message):
    with pytest.raises((GraphError, KernelError)) as caught:
        read(SMALL.replace(old, new, 1))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("{offset=3}", "{offset=4}", "an alias has elements of its source"),
        ("%row: f32[3] = alias", "%row: f32[0,4294967296] = alias", "are those its kernel says"),
        ("add.1(%x, %row)", "add.1(%x)", "are those its kernel says"),
        ("(@c: f32[3])", "(@c: f32[4])", "the arrays of a step are of its op's types"),
        ("%indices: i64[3]", "%indices: f32[3]", "the arrays of a step are of its op's types"),
        ("{dim=0, descending=False}", "{dim=0}", "are not what its rule takes"),
        ("(a[i, j] + b[j])", "(a[i, j] + b[i+2])", "a kernel breaks a rule of its form"),
        ("%values, @c", "%values, %y into %x", "two results overwrite one param"),
    ],
)
def test_verifier_refuses_programs_that_are_wrong(old, new, message):
    with pytest.raises(GraphError) as caught:
        verified(read(SMALL.replace(old, new, 1)))
    assert message in str(caught.value)


def test_the_size_of_an_array_does_not_wrap():
    """2**32 * 2**32 elements were 0 in 64 bits, and an alias of as many fitted into any source."""
    assert Array("x", "f32", (2**32, 2**32)).size == 2**64


def test_spelled_constants_keep_their_bits():
    for dtype in ("f64", "f32", "f16", "bf16", "i64", "u8", "bool"):
        data = np.arange(-3 if dtype[0] not in "ub" else 0, 4).astype(module.NUMPY[dtype])
        array = Array("c", dtype, data.shape)
        program = verify(Program("p", (), (), (array,), {array: data}))
        again = parse(program_text(program), constants_of(program))
        (held,) = again.constants.values()
        assert held.dtype == data.dtype and held.tobytes() == data.tobytes()
