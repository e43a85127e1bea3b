"""Convolutions in matrix registers: golden text, refusals, random networks before and after, exact where
bfloat16 holds the numbers, and planted bugs."""

import random
from dataclasses import replace

import numpy as np
import pytest
from image_programs import Builder, arguments, small_network
from test_matrix import MATRICES, NATIVE
from test_pairs import whole
from training_programs import small_step

import lamina
from lamina import nn
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs import matrix_convolutions as subject
from lamina.passes.programs.assign_layouts import Options as Layouts
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.matrix_convolutions import matrix_convolutions
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.program import Program, interpret, verify
from lamina.passes.programs.round_where_made import round_where_made
from lamina.passes.programs.side_by_side import filling
from lamina.passes.schedules.steps import FEWEST_PAIRS, Matrix, pairs_at_once
from lamina.passes.schedules.target import AMX_PAIRS, GOLDEN_COVE

EAGER = replace(MATRICES, core=replace(GOLDEN_COVE, packs=1e9))  # to which copies cost nothing
SEEDS = range(30)


def arranged(program: Program) -> Program:
    laid = assign_layouts(
        matrix_convolutions(program, EAGER, rounds=True), EAGER, Layouts(winograd=False, rounds=True)
    )
    return verify(round_where_made(pack_matmuls(laid, EAGER, Options(rounds=True, only="pairs"))))


def random_network(seed: int) -> Program:
    """Convolutions of many sorts, some of them depthwise or in groups, with pools, sums and joins between."""
    rng = random.Random(seed)
    b = Builder("net", (rng.randint(1, 2), rng.choice((3, 16, 30)), rng.randint(9, 14), rng.randint(9, 14)))
    values = [b.conv(b.image, rng.choice((16, 24, 32)), 3, padding=1)]
    for _ in range(rng.randint(3, 6)):
        x = rng.choice(values[-2:])
        channels, room = x.shape[1], min(x.shape[2:])
        kind = rng.choice(("conv", "conv", "conv", "depthwise", "groups", "pool", "add", "cat", "norm"))
        groups = {"depthwise": channels, "groups": 2}.get(kind, 1)
        if kind in ("conv", "depthwise", "groups") and room > 4:
            size, outs = rng.choice((1, 2, 3, 5)), channels if groups > 1 else rng.choice((12, 16, 30, 40))
            how = {"padding": rng.randint(0, size - 1), "stride": rng.choice((1, 1, 2)), "groups": groups}
            values.append(b.conv(x, outs, size, relu=rng.random() < 0.5, **how))
        elif kind == "pool" and room > 2:
            values.append(b.op("max_pool2d", x, kernel_size=3, stride=rng.choice((1, 2)), padding=1))
        elif kind == "add":
            values.append(b.op("add", x, next((v for v in values if v is not x and v.shape == x.shape), x)))
        elif kind == "cat":
            values.append(b.cat(x, rng.choice([v for v in values if v.shape[2:] == x.shape[2:]])))
        elif kind == "norm":
            scales = [b.param(f"s{len(b.params)}", x.shape[1:2]) for _ in range(2)]
            values.append(b.op("batch_norm_eval", x, *scales))
    return b.program(values[-1], rng.choice(values), b.op("mean", values[-1], dim=(2, 3)))


def in_matrices(program: Program) -> int:
    return sum(call.how is not None and call.how.has(Matrix) for call in program.calls)


def proved(program: Program) -> None:
    for call in program.calls:
        assert (AMX_PAIRS in code_of(call, EAGER).text) == (call.how is not None and call.how.has(Matrix))


def test_a_network_is_laid_out_anew(golden):
    before = small_network(32)
    golden("passes/matrix_convolutions_network", f"{before}\n\n{arranged(before)}\n")


@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_are_off_by_the_rounding_of_factors(seed):
    before = random_network(seed)
    after, given = arranged(before), arguments(before, seed)
    proved(after)
    for want, got in zip(interpret(before, *given), interpret(after, *given), strict=True):
        assert np.linalg.norm(got - want) <= 2**-6 * np.linalg.norm(want)


def test_some_of_them_are_in_matrices():
    assert sum(in_matrices(arranged(random_network(seed))) for seed in SEEDS) > 40


@pytest.mark.parametrize("seed", range(40))
def test_one_convolution_is_exact(seed):
    rng = random.Random(seed)
    b = Builder(
        "net",
        (rng.choice((1, 2, 3)), rng.choice((3, 16, 24, 34, 64)), rng.randint(3, 20), rng.randint(3, 20)),
    )
    size, dilation = rng.choice(((3, 1), (1, 1), (2, 1), (3, 2)))
    how = {"padding": rng.randint(0, 3), "dilation": dilation, "stride": rng.choice((1, 1, 2, 3))}
    before = b.program(
        b.conv(
            b.image, rng.choice((16, 20, 33, 64)), size, **(how | {"padding": max(how["padding"], dilation)})
        )
    )
    after = arranged(before)
    assert in_matrices(after) == 1
    proved(after)
    given = [whole(p.shape, n) for n, p in enumerate(before.params)]
    np.testing.assert_array_equal(interpret(after, *given)[0], interpret(before, *given)[0])


@pytest.mark.parametrize("taps", [1, 3, 7])
def test_channels_that_no_register_holds_get_zeros_beside_them(taps):
    for channels in range(2, 200):
        count = filling(channels, 2, taps)
        assert channels <= count < channels + 12 and pairs_at_once(count * taps // 2) >= FEWEST_PAIRS
    assert filling(64, 2, taps) == 64 and filling(3, 2, 7) == 4


# ---- what is left as it is
def test_gradients_of_weights_are():
    before = small_step()
    assert matrix_convolutions(before, EAGER, rounds=True) is before


def test_a_convolution_that_saves_less_than_its_copies_is():
    b = Builder("net", (1, 16, 56, 56))
    before = b.program(b.conv(b.image, 16, 1))
    assert matrix_convolutions(before, MATRICES, rounds=True) is before
    assert matrix_convolutions(before, EAGER, rounds=True) is not before


def test_factors_of_float32_are_unless_they_may_be_rounded():
    before = small_network(32)
    assert matrix_convolutions(before, EAGER) is before


@pytest.mark.parametrize("how", [{"groups": 2}, {"groups": 32}])
def test_groups_are(how):
    b = Builder("net", (1, 32, 9, 9))
    before = b.program(b.conv(b.image, 32, 3, **how))
    assert matrix_convolutions(before, EAGER, rounds=True) is before


def test_gradients_of_images_with_a_stride_are():
    b = Builder("net", (1, 32, 9, 9))
    how = {"size": (18, 18), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    before = b.program(b.op("conv_input_grad", b.image, b.param("w", (32, 32, 3, 3)), **how))
    assert matrix_convolutions(before, EAGER, rounds=True) is before


def test_groups_between_others_keep_their_images():
    b = Builder("net", (1, 32, 9, 9))
    x = b.conv(b.conv(b.conv(b.image, 32, 3, padding=1), 32, 3, padding=1, groups=2), 32, 3, padding=1)
    before = b.program(x)
    after = matrix_convolutions(before, EAGER, rounds=True)
    (grouped,) = (call for call in after.calls if call.name == "conv" and call.inputs[1].shape[1] == 16)
    assert grouped.inputs[0].shape == (1, 32, 9, 9) and in_matrices(arranged(before)) == 2


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("_with_extent", lambda stage, axis, extent: stage), ("_beside", lambda kernel, roles: 16)],
    ids=["sums as short as they were", "taps side by side that are not"],
)
def test_a_planted_bug_is_seen(monkeypatch, name, wrong):
    b = Builder("net", (1, 34, 9, 9))
    before = b.program(b.conv(b.image, 32, 3, padding=1))
    assert in_matrices(arranged(before)) == 1
    monkeypatch.setattr(subject, name, wrong)
    assert in_matrices(arranged(before)) == 0


# ---- as it runs
class Block(nn.Module):
    """A stem, an inverted residual and a strided convolution."""

    def __init__(self, channels: int):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.wide = nn.Conv2d(channels, 4 * channels, 1)
        self.deep = nn.Conv2d(4 * channels, 4 * channels, 3, padding=1, groups=4 * channels)
        self.narrow = nn.Conv2d(4 * channels, channels, 1)
        self.last = nn.Conv2d(channels, 40, 3, stride=2, padding=1, dilation=2)

    def forward(self, x):
        x = nn.functional.relu(self.stem(x))
        x = x + self.narrow(nn.functional.relu6(self.deep(nn.functional.relu6(self.wide(x)))))
        return self.last(nn.functional.max_pool2d(x, 3, 2, 1))


@NATIVE
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("channels", [16, 24, 30])
def test_networks_run_as_they_do_in_float32(monkeypatch, channels, batch):
    monkeypatch.setattr(subject, "_copied", lambda program, served: 0)
    lamina.manual_seed(0)
    model, x = Block(channels).eval(), lamina.randn(batch, 3, 61, 47)
    f = lamina.jit.trace(model, precision="bfloat16")
    with lamina.no_grad():
        for _ in range(3):
            found = f(x)
        wanted = model(x)
    assert f.counts()["served"] and AMX_PAIRS in f.source()
    assert np.linalg.norm(found.numpy() - wanted.numpy()) < 2**-7 * np.linalg.norm(wanted.numpy())


@NATIVE
def test_autocast_needs_no_leave_to_round(monkeypatch):
    monkeypatch.setattr(subject, "_copied", lambda program, served: 0)
    lamina.manual_seed(0)
    model, x = Block(32).eval(), lamina.randn(2, 3, 61, 47)

    def run(x):
        with lamina.autocast("cpu", dtype=lamina.bfloat16):
            return model(x)

    f = lamina.jit.trace(run)
    with lamina.no_grad():
        for _ in range(3):
            found = f(x)
        wanted = model(x)
    assert f.counts()["served"] and AMX_PAIRS in f.source() and found.dtype == lamina.bfloat16
    off = np.linalg.norm(found.float().numpy() - wanted.numpy())
    assert off < 2**-6 * np.linalg.norm(wanted.numpy())


@NATIVE
def test_batches_of_any_size_share_a_recording(monkeypatch):
    monkeypatch.setattr(subject, "_copied", lambda program, served: 0)
    lamina.manual_seed(0)
    model = Block(32).eval()
    f = lamina.jit.trace(model, precision="bfloat16")
    with lamina.no_grad():
        for batch in (2, 3, 3, 7, 1, 40, 4):
            x = lamina.randn(batch, 3, 29, 23)
            found, wanted = f(x).numpy(), model(x).numpy()
            assert np.linalg.norm(found - wanted) < 2**-7 * np.linalg.norm(wanted), batch
    assert f.counts()["recorded"] == 3  # the first, one of symbols, and that of size 1
    assert AMX_PAIRS in f.source()


@NATIVE
@pytest.mark.parametrize("seed", range(60))
def test_sums_of_whole_numbers_are_exact(monkeypatch, seed):
    monkeypatch.setattr(subject, "_copied", lambda program, served: 0)
    rng = random.Random(seed)
    ins, outs, size = (
        rng.choice((2, 3, 16, 30, 64, 130)),
        rng.choice((16, 17, 48, 100)),
        rng.choice((1, 2, 3, 5)),
    )
    stride, dilation, padding = rng.choice((1, 1, 2, 3)), rng.choice((1, 1, 2)), rng.randint(0, 4)
    high, wide = (rng.randint(dilation * (size - 1) + 1, 40) for _ in range(2))
    x, w = whole((rng.choice((1, 2, 5)), ins, high, wide), seed), whole((outs, ins, size, size), seed + 1)
    conv = nn.Conv2d(ins, outs, size, stride, padding, dilation)
    conv.load_state_dict({"weight": lamina.tensor(w), "bias": lamina.tensor(whole((outs,), seed + 2))})
    f, x = lamina.jit.trace(conv, precision="bfloat16"), lamina.tensor(x)
    with lamina.no_grad():
        for _ in range(3):
            found = f(x)
        np.testing.assert_array_equal(found.numpy(), conv(x).numpy())
    assert f.counts()["served"]
    if found.numel() * ins * size**2 > 300_000:  # the least work is quicker without
        assert AMX_PAIRS in f.source()


@NATIVE
def test_infinities_stay_at_their_places(monkeypatch):
    monkeypatch.setattr(subject, "_copied", lambda program, served: 0)
    x, w = np.ones((1, 3, 20, 20), np.float32), np.ones((32, 3, 3, 3), np.float32)
    x[0, 1, 10, 10], x[0, 2, 0, 0] = np.inf, np.nan
    conv = nn.functional.conv2d
    f = lamina.jit.trace(lambda x, w: conv(x, w, padding=1), precision="bfloat16")
    with lamina.no_grad():
        for _ in range(3):
            found = f(lamina.tensor(x), lamina.tensor(w))
    np.testing.assert_array_equal(found.numpy(), conv(lamina.tensor(x), lamina.tensor(w), padding=1).numpy())
    assert AMX_PAIRS in f.source()
