"""The GPU benchmark's pure parts: its checks, its turns, its table; and its launches on the fake driver."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import Fake, on_fake

from lamina.ir.ops.attention import attention_backward_reference, attention_reference
from lamina.passes.programs.program import Program, interpret
from lamina.passes.triton.target import Target

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: its modules have plain names
import gpu
import gpu_attention
from contest import Time

BENCHMARKS = Path(gpu.__file__).parent

CASES = [case for section in gpu.SECTIONS.values() for case in section()]
ONE_OF_EACH = [next(section()) for section in gpu.SECTIONS.values()]


def simulated(program: Program, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    """Launches by the interpreter of kernels."""
    return interpret(program, *arrays)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_means_what_its_ops_mean(case):
    gpu.check(case, simulated)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_element_is_seen(case):
    graph = gpu.graph_of(case, case.small)
    dtype = graph.results[0].type.dtype.short
    off = 2 * case.tolerance(dtype, gpu.SMALL_TERMS)

    def wrong(program: Program, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        results = [np.array(a) for a in simulated(program, arrays)]
        if len(program.params) and results[0].dtype.kind != "i":
            largest = np.abs(results[0].astype(np.float64)).max()
            at = results[0].reshape(-1)
            at[-1] = float(at[-1]) + (off or 1e-6) * float(largest)
        else:
            results[0].reshape(-1)[-1] += 1
        return results

    with pytest.raises(AssertionError, match="differs from the reference"):
        gpu.check(replace(case, weights=()), wrong)


def test_factors_rounded_to_tf32_are_seen_where_f32_is_asked_for():
    def rounded(program: Program, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        cut = [(a.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for a in arrays]
        return simulated(program, cut)

    case = next(case for case in CASES if case.name == "matmul 512 f32")
    with pytest.raises(AssertionError):
        gpu.check(case, rounded)
    gpu.check(next(case for case in CASES if case.name == "matmul 512 tf32"), rounded)


def test_results_of_other_shapes_and_nans_are_infinitely_wrong():
    assert gpu.error_of(np.zeros(3), np.zeros(4)) == np.inf
    assert gpu.error_of(np.array([0.0, np.nan]), np.zeros(2)) == np.inf
    assert gpu.error_of(np.array([1.0, 2.5]), np.array([1.0, 2.0])) == 0.25
    assert gpu.error_of(np.zeros(0), np.zeros(0)) == 0.0


def test_work_is_that_of_the_operation():
    named = {case.name: case for case in CASES}
    assert named["matmul 1024 f16"].work == 2 * 1024**3
    assert named["conv 64 x 256 x 14^2 -> 256, 3 x 3 f32"].work == 2 * 64 * 14 * 14 * 256 * 256 * 9
    assert named["softmax 16384 x 1024 bf16"].work == 2 * 16384 * 1024 * 2
    assert len(named) == len(CASES)


class SimulatedContender:
    """Its calls take as long as the list says, one after the other."""

    def __init__(self, name: str, seconds: Sequence[float], log: list[str]):
        self.name, self.seconds, self.log = name, seconds, log
        self.now, self.calls = 0.0, 0

    def queue(self) -> None:
        self.now += self.seconds[self.calls % len(self.seconds)]
        self.calls += 1
        self.log.append(self.name)

    def mark(self) -> float:
        return self.now

    def milliseconds(self, start: float, end: float) -> float:
        return (end - start) * 1e3


def test_contenders_take_turns_each_after_an_untimed_call():
    log: list[str] = []
    two = {"a": SimulatedContender("a", [1.0], log), "b": SimulatedContender("b", [9.0, 3.0, 9.0, 1.0], log)}
    found = gpu.turns(two, seconds=0.0)
    assert found["a"] == Time(1.0, 1.0)
    assert found["b"] == Time(1.0, 3.0)  # the 9 are never timed: 5 rounds of 3 and 1 in turn
    assert "".join(log[8:]) == "aabb" * 5


def test_short_calls_are_repeated_within_a_turn_and_long_ones_are_not():
    log: list[str] = []
    two = {"a": SimulatedContender("a", [1e-4], log), "b": SimulatedContender("b", [0.5], log)}
    found = gpu.turns(two, seconds=4.0)
    assert found["a"].least == pytest.approx(1e-4)
    assert "".join(log[8:]) == ("a" * 6 + "bb") * 5


def test_the_table_leaves_out_what_begins_too_late_and_says_what_is_wrong(monkeypatch):
    said: list[str] = []
    times = {"lamina": Time(1e-3, 2e-3), "torch": Time(2e-3, 2e-3)}
    for case in CASES:
        assert gpu.table([], lambda case: gpu.Row(case, times, 1e-7), 1e18, said.append)
    assert gpu.table(["pooling"], lambda case: gpu.Row(case, times, 1e-7), 1e18, said.append)
    assert said[0] == "pooling" and len(said) == 3
    assert len(said[1]) == len(gpu.HEADER) and said[1].endswith("2.00x")
    assert not gpu.table(["pooling"], lambda case: gpu.Row(case, wrong="WRONG: why"), 1e18, said.append)
    assert said[-1].endswith("WRONG: why")
    assert gpu.table(["pooling", "random"], lambda case: 1 / 0, 0.0, said.append)
    assert said[-1] == "left out, as the time was over: max_pool2d 3 x 3 / 2, avg_pool2d 2 x 2, rand"


def test_a_row_without_torch_has_no_ratio():
    row = gpu.Row(CASES[0], {"lamina": Time(1e-3, 2e-3)}, 1e-7)
    assert str(row).split()[-1] == "1.0e-07" and "      -" in str(row)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there is an NVIDIA GPU here")
def test_without_a_device_it_says_so_and_writes_nothing():
    results = BENCHMARKS / "results" / "gpu.txt"
    before = results.exists()
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "gpu.py"), "--write"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("nothing is measured, for there is no NVIDIA GPU to use here:\n")
    assert results.exists() == before


@pytest.mark.sampled(3)
@on_fake()
def test_every_family_is_launched_on_arrays_that_stay_on_the_device(fake: Fake):
    from cuda_interpreting import interpret_launches

    from lamina.runtime.cuda.executable import Executable
    from lamina.runtime.cuda.machine import machine

    ran, device = interpret_launches(fake), machine()

    def launched(program: Program, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        return Executable(program, device)(*arrays)

    def resident(program: Program, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        made = gpu.Resident(device, program, arrays)
        before = fake.calls("cuMemcpyHtoDAsync"), fake.calls("cuMemAlloc")
        made()
        assert (fake.calls("cuMemcpyHtoDAsync"), fake.calls("cuMemAlloc")) == before
        return [array.numpy() for array in made.results[: len(program.results)]]

    for case in ONE_OF_EACH:
        gpu.check(case, launched)
        gpu.check(case, resident)
    ours = gpu.Ours(lambda: None, device)
    assert gpu.turns({"lamina": ours}, 0.0)["lamina"].least >= 0
    assert len(ran) > 2 * len(ONE_OF_EACH)


@on_fake()
def test_a_case_that_fails_is_a_row_of_its_own(fake: Fake):
    from lamina.runtime.cuda.machine import machine

    fake.on_launch(lambda launch: None)  # nothing is computed
    case = ONE_OF_EACH[0]
    row = gpu.measured(replace(case, operands=case.small), machine(), 0.0)
    assert row.wrong.startswith("WRONG: gelu(x * x + x) f32: differs from the reference by")


@pytest.mark.sampled(2)
@on_fake()
def test_a_case_that_is_right_is_a_row_of_times(fake: Fake):
    from cuda_interpreting import interpret_launches

    from lamina.runtime.cuda.machine import machine

    interpret_launches(fake)
    rounds = []

    def once(contenders, seconds):
        for contender in contenders.values():
            rounds.append(gpu.span(contender, 2))
        return {name: Time(1e-3, 1e-3) for name in contenders}

    gpu.turns = once
    case = next(case for case in CASES if case.name == "small network, batch 128")
    row = gpu.measured(replace(case, operands=case.small), machine(), 0.0)
    assert not row.wrong and 0 < row.error < 1e-5 and len(rounds) == len(row.times)
    assert "1000.0" in str(row)


class SimulatedPeer:
    """What torch would say of an attention, by the records."""

    def __init__(self, task: gpu_attention.Task, arrays: list[np.ndarray]):
        q, k, v, g = (a.astype(np.float32) for a in arrays)
        attrs = {"is_causal": task.is_causal, "scale": None}
        out = attention_reference(q, k, v, None, **attrs)
        found = [out, *attention_backward_reference(g, q, k, v, None, **attrs)]
        self.products = (g * out).sum(-1)
        self.results = [gpu_attention.some_heads(x) for x in found]

    def times(self) -> dict[str, float]:
        return {"there": 1e-3, "back": 2e-3}


@pytest.mark.sampled(3)
@on_fake()
def test_attentions_tiles_are_compared_and_told(fake: Fake):
    from cuda_interpreting import interpret_launches

    from lamina.runtime.cuda.machine import machine

    interpret_launches(fake)
    device, task = machine(), gpu_attention.Task((1, 2, 64, 64), "bf16", True)
    gpu.turns = lambda contenders, seconds: dict.fromkeys(contenders, Time(1e-3, 1e-3))
    gpu_attention.Theirs = SimulatedPeer
    chosen = [
        (kernel, text, tile)
        for kernel in gpu_attention.KERNELS
        for text, tile in gpu_attention.tiles(kernel, 64)
        if tile is None or tile.copied and tile.rows + tile.columns < 192
    ]
    target, said = Target.named(device.target), []
    rows = [(kernel, text, task.code(kernel, tile, target)) for kernel, text, tile in chosen]
    begun: list[str] = []
    assert gpu_attention.measured(device, task, rows, said.append, begun.append)
    assert said[0].startswith(
        "1 x 2 x 64 x 64 bf16, causal: there torch 1000.0 us, here 1000.0, back torch 2000.0"
    )
    assert len(said) == 1 + len(rows) > 4 and len(begun) == len(rows)
    kernel, text, code = rows[0]
    wrong = replace(code, source=code.source.replace("0.18033688011112042", "0.19"))
    assert wrong != code
    assert not gpu_attention.measured(device, task, [(kernel, text, wrong)], said.append, begun.append)
    assert "WRONG" in said[-1]
