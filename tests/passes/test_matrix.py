"""Products of bfloat16 in matrix registers: exact where those hold the numbers, else proved at least."""

import os
import re
import threading
from dataclasses import replace

import numpy as np
import pytest
from test_pairs import call_of, products, whole

import lamina
from lamina import nn
from lamina.ir.errors import Unsayable
from lamina.passes.llvm.binding import emit_object, host_target, machine
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.program import interpret, verify
from lamina.passes.programs.round_where_made import round_where_made
from lamina.passes.schedules.steps import Matrix
from lamina.passes.schedules.target import AMX_PAIRS, AVX512, GOLDEN_COVE

MATRICES = replace(AVX512, features="+amx-tile,+amx-bf16", matrix=AMX_PAIRS, core=GOLDEN_COVE)
NATIVE = pytest.mark.skipif(not host_target().matrix, reason="this process has no matrix registers (AMX)")


@pytest.mark.parametrize("seed", range(30))
def test_products_are_what_they_were_and_proved(seed):
    before = products(seed)
    after = verify(round_where_made(pack_matmuls(before, MATRICES, Options(rounds=True, only="pairs"))))
    given = [whole(p.shape, n) for n, p in enumerate(before.params)]
    for one, other in zip(interpret(before, *given), interpret(after, *given), strict=True):
        np.testing.assert_array_equal(one, other)
    for call in after.calls:
        text = code_of(call, MATRICES).text
        has = call.how is not None and call.how.has(Matrix)
        assert (AMX_PAIRS in text) == has and text.count("@llvm.x86.tilerelease()\n") == 2 * has


def test_most_of_them_fit():
    each = [pack_matmuls(products(s), MATRICES, Options(rounds=True, only="pairs")) for s in range(30)]
    assert sum(c.how is not None and c.how.has(Matrix) for p in each for c in p.calls) > 8


# ---- the code
KERNEL = """\
kernel product(x: bf16[70,64], w: bf16[2,32,32,2]) -> (y: f32[70,50]) {
  parallel i:70 j:50
  t = sum(k:32 d:2) (f32(x[i, 2*k+d]) * f32(w[floor_div(coord(j), 32), k, remainder(coord(j), 32), d]))
  y[i, j] = (t + 1.0)
}"""
HOW = "pack(w, j) pairs(d) vectorise(j, 2) block(j, 32) peel(j) tile(i, 24) block(i, 72) matrix(i)"


def test_a_tile_is_two_by_two_registers():
    text = code_of(call_of(KERNEL, HOW), MATRICES).text
    sums = re.findall(rf"@llvm.x86.{AMX_PAIRS}\(i8 (\d), i8 (\d), i8 (\d)\)\n", text)
    wide, narrow = [(0, 4, 6), (1, 4, 7), (2, 5, 6), (3, 5, 7)], [(0, 4, 6), (2, 5, 6)]
    found = [tuple(map(int, one)) for one in sums]
    assert sorted(found) == sorted([*wide, *narrow, *narrow])  # 50 columns: 32, 16 and 2
    rows = int.from_bytes([16, 16, 8, 8, 16, 8, 16, 16], "little")  # of each register, of a tile of 24
    assert f"store i64 {rows}, ptr" in text and text.count("@llvm.x86.ldtilecfg(ptr %") == 1
    if host_target().platform.machine == "x86_64":
        from llvmlite import binding as llvm

        assembly = machine(MATRICES).emit_assembly(llvm.parse_assembly(text))
        assert assembly.count("tdpbf16ps") == len(found) and "tilerelease" in assembly
        assert emit_object(text, MATRICES)


def test_a_register_holds_as_many_pairs_as_divide_the_sum():
    text = code_of(call_of(KERNEL.replace("k:32", "k:24"), HOW), MATRICES).text
    rows = int.from_bytes([16, 16, 8, 8, 16, 8, 12, 12], "little")
    assert f"store i64 {rows}, ptr" in text
    assert f"store i64 {48 | 48 << 16 | 64 << 32 | 64 << 48}, ptr" in text  # bytes of a row of the last four


BATCH = """\
kernel product(x: bf16[4,70,64], w: bf16[4,2,32,32,2]) -> (y: f32[4,70,50]) {
  parallel b:4 i:70 j:50
  t = sum(k:32 d:2) (f32(x[b, i, 2*k+d]) * f32(w[b, floor_div(coord(j), 32), k, remainder(coord(j), 32), d]))
  y[b, i, j] = (t + 1.0)
}"""
WINDOWS = """\
kernel product(x: bf16[9,9,64], w: bf16[2,3,3,32,32,2]) -> (y: f32[7,7,50]) {
  parallel a:7 i:7 j:50
  t = sum(r:3 s:3 k:32 d:2) (f32(x[a+r, i+s, 2*k+d]) \
* f32(w[floor_div(coord(j), 32), r, s, k, remainder(coord(j), 32), d]))
  y[a, i, j] = (t + 1.0)
}"""


def test_two_registers_hold_rows_of_two_places_and_taps_are_loops_around():
    how = HOW.replace("tile(i, 24) block(i, 72)", "tile(a, 2) tile(i, 7)")
    text = code_of(call_of(WINDOWS, how), MATRICES).text
    rows = int.from_bytes([7, 7, 7, 7, 7, 7, 16, 16], "little")
    assert f"store i64 {rows}, ptr" in text and text.count("tileloadd64(") - text.count("declare") >= 4
    loops = [line for line in text.splitlines() if line.endswith(", 3") and "icmp slt" in line]
    assert len(loops) >= 2  # r and s
    if host_target().platform.machine == "x86_64":
        assert emit_object(text, MATRICES)


@pytest.mark.parametrize(
    ("kernel", "how", "target"),
    [
        (KERNEL, HOW.replace("tile(i, 24)", "tile(i, 33)"), MATRICES),
        (KERNEL, HOW, AVX512),
        (BATCH, HOW.replace("tile(i, 24)", "tile(b, 2) tile(i, 16)"), MATRICES),
        (KERNEL.replace("x[i, 2*k+d]", "x[i, 2*k]"), HOW, MATRICES),
        (KERNEL.replace("x[i, 2*k+d]", "x[i, k+32*d]"), HOW, MATRICES),
        (KERNEL.replace("bf16", "f16"), HOW, MATRICES),
        (KERNEL, HOW.replace("pack(w, j) ", ""), MATRICES),
        (KERNEL.replace("sum(", "max("), HOW, MATRICES),
    ],
    ids=["rows", "target", "a factor for each place", "no pair", "apart", "halves", "not packed", "no sum"],
)
def test_what_no_register_holds_is_refused(kernel, how, target):
    with pytest.raises(Unsayable):
        code_of(call_of(kernel, how), target)


# ---- as it runs
def linear(m: int, k: int, n: int, seed: int = 0):
    x, w, b = whole((m, k), seed), whole((n, k), seed + 1), whole((n,), seed + 2)
    return [lamina.tensor(a) for a in (x, w, b)], np.maximum(x @ w.T + b, 0)


def relu_linear(x, w, b):
    return nn.functional.relu(nn.functional.linear(x, w, b))


@NATIVE
@pytest.mark.parametrize("m", [8, 15, 16, 17, 31, 32, 33, 64, 100, 259, 1100])
@pytest.mark.parametrize(
    ("k", "n"), [(64, 64), (96, 50), (256, 130), (1024, 16), (32, 20), (72, 40), (28, 33), (340, 17)]
)
def test_products_of_whole_numbers_are_exact(m, k, n):
    given, wanted = linear(m, k, n)
    f = lamina.jit.trace(relu_linear, precision="bfloat16")
    with lamina.no_grad():
        for _ in range(3):
            found = f(*given)
    assert f.counts()["served"]
    np.testing.assert_array_equal(found.numpy(), wanted)
    if m * k * n > 1_000_000:
        assert AMX_PAIRS in f.source()


@NATIVE
@pytest.mark.parametrize(("k", "n"), [(64, 64), (72, 50), (256, 16)])
def test_rows_of_any_number_share_a_recording(k, n):
    f = lamina.jit.trace(relu_linear, precision="bfloat16")
    with lamina.no_grad():
        for m in (600, 601, 1, 2, 7, 31, 32, 33, 64, 1000, 5000):
            given, wanted = linear(m, k, n)
            np.testing.assert_array_equal(f(*given).numpy(), wanted, str(m))
    assert f.counts()["recorded"] == 3  # the first, one of symbols, and that of size 1
    assert AMX_PAIRS in f.source()


@NATIVE
def test_threads_and_children_have_registers_of_their_own():
    given, wanted = linear(200, 256, 300)
    f = lamina.jit.trace(relu_linear, precision="bfloat16")
    wrong = []

    def run():
        with lamina.no_grad():
            for _ in range(30):
                if not np.array_equal(f(*given).numpy(), wanted):
                    wrong.append(threading.get_ident())

    run()
    assert AMX_PAIRS in f.source()
    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    child = os.fork()
    if child == 0:
        run()
        os._exit(len(wrong) > 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@NATIVE
def test_a_step_of_training_is_off_by_the_rounding_of_factors():
    lamina.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    x, wanted = lamina.randn(96, 64), None
    for precision in ("float32", "bfloat16"):
        step = lamina.jit.trace(lambda x: model(x).square().mean(), precision=precision)
        for _ in range(3):
            model.zero_grad()
            step(x).backward()
        grads = [p.grad.numpy().copy() for p in model.parameters()]
        wanted = wanted or grads
    for one, other in zip(grads, wanted, strict=True):
        assert np.linalg.norm(one - other) < 2**-6 * np.linalg.norm(other)
