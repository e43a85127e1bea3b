"""Products with weights of few bits in whole numbers: exact but for the digits that a float is cut to."""

import random

import numpy as np
import pytest
from byte_programs import (
    AVX2,
    AVX512,
    BASELINE,
    HERE,
    MATRICES,
    QUADS,
    TARGETS,
    bf16,
    compiled,
    f32,
    i8,
    op,
    same,
    u8,
)

import lamina
from lamina.ir.dtypes import float32, int8, uint8
from lamina.ir.errors import Unsayable
from lamina.passes.llvm import neighbours
from lamina.passes.programs import digit_panels
from lamina.passes.programs.prologue import prologue
from lamina.passes.schedules.steps import Digits, Shorts
from lamina.quantization.swapped_layers import WeightOnlyLinear, Weights
from lamina.runtime.native import Executable

BY_BYTES = [target for target in TARGETS if target.quads or target.shorts]
NATIVE = pytest.mark.skipif(not HERE.quads, reason="this CPU multiplies no bytes by fours")
KINDS = [pytest.param("int8", marks=NATIVE), "int4"]


def layer(rows: int, n: int, k: int, group: int, kind: str, dtype: str = "float32"):
    """A layer of few bits, its arrays, and how many of these are weights."""
    groups = k // group

    def linear(x, q, s, z=None):
        steps = op("unpack_int4", q, group) if "int4" in kind else q
        w = op("cast", op("reshape", steps, (n, groups, group)), float32)
        w = w if z is None else w - op("cast", z, float32)
        x = x if dtype == "float32" else op("cast", op("relu", x), float32)
        return op("relu", op("linear", x, op("reshape", w * s, (n, k))))

    q = u8(n, k // 2) if "int4" in kind else i8(n, k)
    x = f32(rows, k) if dtype == "float32" else bf16(rows, k)
    weights = [q, np.abs(f32(n, groups, 1)), *([i8(n, groups, 1, seed=1)] if "zeros" in kind else [])]
    return linear, [x, *weights], len(weights)


def drawn(seed: int):
    rng = random.Random(seed)
    group = rng.choice((32, 64, 96, 200))
    rows, n = rng.choice((1, 2, 3, 7, 17, 40)), rng.choice((5, 16, 33, 70, 128))
    kind = rng.choice(("int8", "int4", "zeros", "int4 zeros"))
    return layer(rows, n, group * rng.choice((1, 2, 3)), group, kind)


def takes(target, arrays) -> bool:
    """Whether a target multiplies these weights in whole numbers: in 16 bits, four bits alone."""
    return bool(target.quads) or arrays[1].dtype == np.uint8


def in_digits(program) -> bool:
    return any(call.how is not None and call.how.has(Digits) for call in program.calls)


@pytest.mark.parametrize("target", BY_BYTES, ids=[target.name for target in BY_BYTES])
@pytest.mark.parametrize("seed", range(16))
def test_products_are_what_they_were(seed, target):
    function, arrays, kept = drawn(seed)
    program = same(function, arrays, target, kept, terms=arrays[0].shape[-1])
    assert in_digits(program) == takes(target, arrays)


@pytest.mark.parametrize("target", [AVX2, BASELINE], ids=["avx2", "baseline"])
@pytest.mark.parametrize("group", [64, 128, 96, 200, 512, 1024])
def test_groups_whose_sums_16_bits_hold_in_parts(group, target):
    """Of numbers and weights as large as any, all of one sign."""
    function, arrays, kept = layer(3, 17, 2 * group, group, "int4")
    arrays[0][:] = np.float32(3)
    for byte in (0xFF, 0x00):
        arrays[1][:] = byte
        program = same(function, arrays, target, kept, terms=2 * group)
        assert any(call.how is not None and call.how.has(Shorts) for call in program.calls)


def test_the_program_says_it(golden):
    texts = []
    for kind, rows in (("int8", 1), ("int4", 40)):
        function, arrays, kept = layer(rows, 33, 128, 64, kind)
        _, program = compiled(function, arrays, QUADS, kept)
        kernels = "\n".join(f"{call.kernel} by {call.how}" for call in program.calls)
        texts.append(f"{program}\n\n{kernels}\n")
    function, arrays, kept = layer(1, 20, 256, 128, "int4")
    _, program = compiled(function, arrays, AVX2, kept)
    texts.append("\n".join(f"{call.kernel} by {call.how}" for call in program.calls[-1:]))
    golden("passes/digit_panels", "\n".join(texts))


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_one_row_and_many_read_the_same_panels(kind):
    packed = []
    for rows in (1, 2, 40):
        function, arrays, kept = layer(rows, 33, 128, 64, kind)
        before, _ = prologue(compiled(function, arrays, QUADS, kept)[1], frozenset(range(1, 1 + kept)))
        packed.append([(call.kernel, call.how) for call in before.calls])
    assert packed[0] == packed[1] == packed[2]


def test_layers_that_read_one_array_share_its_digits():
    _, (x, q, s), _ = layer(3, 33, 128, 64, "int8")
    one = layer(3, 33, 128, 64, "int8")[0]
    _, program = compiled(
        lambda x, q, s, q2, s2: (one(x, q, s), one(x, q2, s2)), [x, q, s, q[::-1].copy(), s], QUADS, 4
    )
    assert [call.name for call in program.calls].count("digits") == 1


@pytest.mark.parametrize(
    ("target", "k", "group", "kind", "dtype", "why"),
    [
        (AVX512, 128, 64, "int8", "float32", "no instruction for bytes"),
        (QUADS, 66, 66, "int8", "float32", "groups are not of fours"),
        (QUADS, 72, 36, "int4", "float32", "halves of groups are not of fours"),
        (QUADS, 64, 16, "int4", "float32", "groups are small"),
        (MATRICES, 128, 64, "int8", "bfloat16", "matrix registers multiply bfloat16"),
    ],
)
def test_what_is_multiplied_as_floats(target, k, group, kind, dtype, why):
    function, arrays, kept = layer(7, 33, k, group, kind, dtype)
    assert not in_digits(same(function, arrays, target, kept, terms=k)), why


def test_matrix_registers_leave_floats_to_bytes():
    function, arrays, kept = layer(40, 33, 128, 64, "int8")
    assert in_digits(compiled(function, arrays, MATRICES, kept)[1])


# ---- factors that were rounded before
def in_bytes(x, group: int, dtype=int8):
    """Rounded to bytes in steps of each group's largest, and floats again."""
    *around, k = x.type.shape
    groups = op("reshape", x, (*around, k // group, group))
    scale = op("clamp", op("amax", op("abs", groups), -1, True), min=1e-30) / 127.0
    steps = op("quantize_affine", groups, scale, low=0 if dtype is uint8 else -127, dtype=dtype)
    return op("reshape", op("cast", steps, float32) * scale, x.type.shape)


def made_in(program) -> set[str]:
    """The dtypes of what products read but for packed weights."""
    (call,) = [c for c in program.calls if c.name.startswith("linear")]
    return {a.dtype for a in call.inputs if len(a.shape) < 4 and not a.name.startswith("pack")}


@pytest.mark.parametrize("target", BY_BYTES, ids=[target.name for target in BY_BYTES])
@pytest.mark.parametrize("seed", range(6))
def test_what_was_rounded_to_bytes_is_multiplied_so(seed, target):
    rng = random.Random(seed)
    group, kind = rng.choice((32, 64, 96)), rng.choice(("int8", "int4"))
    rows, n, groups = rng.choice((1, 2, 9, 40)), rng.choice((5, 33, 64)), rng.choice((1, 2, 3))
    function, arrays, kept = layer(rows, n, group * groups, group, kind)
    rounded = lambda x, *weights: function(in_bytes(x, group), *weights)  # noqa: E731
    program = same(rounded, arrays, target, kept, terms=group * groups)
    assert not in_digits(program)
    assert ("i8" in made_in(program)) == takes(target, arrays)
    are_read = any(c.outputs[0].dtype == "f32" for c in program.calls if "amax" in c.name)
    assert are_read != takes(target, arrays)


@pytest.mark.parametrize(
    ("group", "dtype", "why"),
    [
        (16, int8, "steps change within a group of weights"),
        (128, int8, "a group of weights has some of those of a step"),
        (64, uint8, "bytes of another kind"),
    ],
)
def test_what_was_rounded_otherwise_is_taken_in_digits(group, dtype, why):
    function, arrays, kept = layer(7, 33, 128, 64, "int8")
    rounded = lambda x, *weights: function(in_bytes(op("abs", x), group, dtype), *weights)  # noqa: E731
    assert in_digits(same(rounded, arrays, QUADS, kept, terms=128)), why


def test_what_others_read_too_stays_a_float():
    function, arrays, kept = layer(7, 33, 128, 64, "int4")

    def both(x, *weights):
        rounded = in_bytes(x, 64)
        return function(rounded, *weights), op("sin", rounded)

    program = same(both, arrays, QUADS, kept, terms=128)
    assert "i8" in made_in(program)


# ---- how exact it is
def exact(arrays: list, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The sums, and how far they may be off, in float64: half a digit of each number, and what is rounded
    as groups are added up."""
    x, q, s = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in arrays)
    n, groups, _ = s.shape
    if kind == "int4":
        half = q.reshape(n, groups, 1, -1)
        q = np.concatenate([half & 15, half >> 4], 2).astype(np.int64) - 8
    q = q.reshape(n, groups, -1).astype(np.float64)
    x = x.reshape(len(x), groups, -1)
    sums = np.einsum("igr,jgr,jg->ij", x, q, s[..., 0])
    most = np.abs(x).max(-1)
    reach = np.einsum("ig,jgr,jg->ij", most, np.abs(q), s[..., 0])
    parts = np.einsum("igr,jgr,jg->ijg", x, q, s[..., 0])
    return np.maximum(sums, 0), reach * 2.0**-22.9 + np.abs(parts).sum(-1) * (groups + 5) * 2.0**-24


def run(arrays: list, kind: str, rows: int, n: int, k: int, group: int) -> np.ndarray:
    function, _, kept = layer(rows, n, k, group, kind)
    _, program = compiled(function, arrays, HERE, kept)
    assert in_digits(program)
    (found,) = Executable(program, HERE)(*arrays)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [1, 5, 40])
@pytest.mark.parametrize("scale", [1.0, 1e-20, 1e20, 3e-38])
def test_sums_are_off_by_half_a_digit(kind, rows, scale):
    _, (x, q, s), _ = layer(rows, 70, 384, 64, kind)
    x[:, ::37] *= 1000  # as language models have some
    x = (x * np.float32(scale)).astype(np.float32)
    wanted, reach = exact([x, q, s], kind)
    found = run([x, q, s], kind, rows, 70, 384, 64)
    off = np.abs(found - wanted)
    assert (off <= reach + 2.0**-126 * 64 * 384).all(), (off / reach).max()


@NATIVE
def test_the_largest_of_a_group_has_a_digit_more_in_no_group():
    """Numbers that become the largest of three digits, and its neighbours, whatever they are rounded to."""
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, (512, 64)).astype(np.float32)
    x[:, 1:] *= rng.choice([-1, 1, 0.5, -0.999999, 0.9999999], (512, 63)).astype(np.float32)
    q, s = i8(16, 64), np.ones((16, 1, 1), np.float32)
    wanted, reach = exact([x, q, s], "int8")
    assert (np.abs(run([x, q, s], "int8", 512, 16, 64, 64) - wanted) <= reach).all()


@NATIVE
def test_sums_of_many_numbers_of_one_sign():
    """Whose whole numbers add up to more than 32 bits hold."""
    _, (x, q, s), _ = layer(5, 33, 1024, 1024, "int8")
    x = np.abs(x) + 3
    wanted, reach = exact([x, q, s], "int8")
    beside = (
        128 * s[:, 0, 0].astype(np.float64) * x.sum(-1, keepdims=True) * 16 * 2.0**-24
    )  # of 128 more each
    assert (np.abs(run([x, q, s], "int8", 5, 33, 1024, 1024) - wanted) <= reach + beside).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_stays_in_its_row(kind):
    """A row with an infinity is NaN: its numbers have no steps."""
    _, (x, q, s), _ = layer(7, 33, 128, 64, kind)
    x[1, 3], x[2, 5], x[3, 70], x[4] = np.nan, np.inf, -np.inf, 0
    x[5, :64], x[6, 0] = 0, -0.0
    found = run([x, q, s], kind, 7, 33, 128, 64)
    assert np.isnan(found[1:4]).all() and (found[4] == 0).all()
    finite = [0, 4, 5, 6]
    wanted, _ = exact([x[finite], q, s], kind)
    np.testing.assert_allclose(found[finite], wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_layer_agrees_with_itself_op_by_op(bits):
    made = WeightOnlyLinear(lamina.tensor(f32(70, 256)), None, Weights(bits, 64))
    traced = lamina.jit.trace(made)
    with lamina.no_grad():
        for rows in (1, 1, 1, 9, 9):
            x = lamina.tensor(f32(rows, 256, seed=rows))
            np.testing.assert_allclose(traced(x).numpy(), made(x).numpy(), rtol=0, atol=3e-5)


# ---- planted faults
@NATIVE
def test_too_few_digits_are_seen(monkeypatch):
    monkeypatch.setattr(digit_panels, "OF_FLOATS", digit_panels.OF_HALVES)
    with pytest.raises(AssertionError):
        test_sums_are_off_by_half_a_digit("int8", 5, 1.0)


@NATIVE
def test_a_digit_too_large_is_seen(monkeypatch):
    monkeypatch.setattr(digit_panels, "SPARE", 0)
    with pytest.raises(AssertionError):
        test_the_largest_of_a_group_has_a_digit_more_in_no_group()


def test_halves_that_are_not_cut_out_are_seen(monkeypatch):
    monkeypatch.setattr(neighbours, "ALL_BITS", -1)
    function, arrays, kept = layer(3, 33, 128, 64, "int4")
    with pytest.raises(AssertionError):
        same(function, arrays, HERE, kept, terms=128)


def test_sums_too_long_for_16_bits_are_refused(monkeypatch):
    monkeypatch.setattr(digit_panels, "SHORT_QUADS", 16)
    function, arrays, kept = layer(3, 33, 128, 128, "int4")
    with pytest.raises(Unsayable, match="16 bits may not hold"):
        same(function, arrays, AVX2, kept, terms=128)


def test_a_sum_that_16_bits_do_not_hold_is_seen(monkeypatch):
    monkeypatch.setattr(digit_panels, "SHORT_QUADS", 16)
    monkeypatch.setattr(neighbours, "MOST_SHORT", 32)
    with pytest.raises(AssertionError):
        test_groups_whose_sums_16_bits_hold_in_parts(512, HERE if HERE.lanes == 8 else AVX2)
