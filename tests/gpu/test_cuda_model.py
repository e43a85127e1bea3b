"""The model of what kernels take: its arithmetic, by NVIDIA's rules and by kernels whose work is plain."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lamina.ir.kernel import parse, verify
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.triton.code import Code
from lamina.passes.triton.target import Target
from lamina.profiler.work import Work

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: its modules have plain names
import gpu
import gpu_model as model
import gpu_predict

SM_90, H200 = Target.named("sm_90"), model.DEVICES["h200"]
KIB = 1 << 10


# ---- what a core holds: the rules of NVIDIA's occupancy calculator for compute capability 9.0
@pytest.mark.parametrize(
    ("registers", "warps", "shared", "blocks", "by"),
    [
        (32, 8, KIB, 8, "registers"),  # 256 threads of 32: all 2048 threads, and all 65536 registers
        (16, 8, KIB, 8, "threads"),
        (33, 8, KIB, 6, "registers"),  # given out by 256 to a warp, so these are 40
        (64, 8, KIB, 4, "registers"), (128, 4, KIB, 4, "registers"), (255, 4, KIB, 2, "registers"),
        (168, 12, KIB, 1, "registers"),  # a scheduler has room for three warps
        (168, 4, KIB, 3, "registers"),
        (80, 2, KIB, 12, "registers"), (32, 1, KIB, 32, "blocks"), (64, 32, KIB, 1, "registers"),
        (65, 32, KIB, 0, "registers"),  # it can't be launched
        (32, 4, 228 * KIB, 1, "shared memory"),  # 227, the most that a block may ask for, and the driver's
        (32, 4, 114 * KIB, 2, "shared memory"), (32, 4, 115 * KIB, 1, "shared memory"),
        (32, 4, 76 * KIB, 3, "shared memory"), (32, 4, 76 * KIB + 1, 2, "shared memory"),
    ],
)  # fmt: skip
def test_a_core_holds_what_nvidias_rules_say(registers, warps, shared, blocks, by):
    assert model.occupancy(registers, warps, shared) == model.Occupancy(blocks, warps, by)


# ---- what machine code consists of
SASS = """
k:
.text.k:
        /*0000*/                   S2R R0, SR_TID.X ;
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/              @!P1 BRA `(.L_x_1) ;
.L_x_0:
        /*0030*/                   LDGSTS.E.BYPASS.128 [R8], desc[UR4][R2.64] ;
        /*0040*/                   LDS.128 R4, [R8] ;
        /*0050*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8].tnspB, R24 ;
        /*0060*/               @P0 BRA `(.L_x_2) ;
        /*0070*/                   STG.E.U16 desc[UR4][R2.64], R4 ;
.L_x_2:
        /*0080*/                   FFMA R1, R2, R3, R4 ;
        /*0090*/              @!P0 BRA `(.L_x_0) ;
.L_x_1:
        /*00a0*/                   MUFU.EX2 R1, R2 ;
        /*00b0*/                   CALL.REL.NOINC `($__internal_0_$slow) ;
        /*00c0*/                   EXIT ;
.L_x_3:
        /*00d0*/                   BRA `(.L_x_3);
        .type           $__internal_0_$slow,@function
$__internal_0_$slow:
        /*00e0*/                   FFMA R1, R2, R3, R4 ;
        /*00f0*/                   EXIT ;
"""


def test_instructions_are_counted_by_how_often_they_run():
    once, loop = model.mix_of(SASS).depths
    assert once == {"issued": 7, "lsu": 4 + 1, "loaded": 16, "stored": 2, "xu": 1}  # a tile's end is no step
    assert loop["loaded"] == 16 and loop["lsu"] == 8 and loop["ahead"] == 1 and loop["fma"] == 1
    assert loop["wgmma"] == 2 * 64 * 256 * 16 == loop["halves"]
    counted = model.mix_of(SASS)
    assert counted.total("issued", 10) == 7 + 10 * loop["issued"] and counted.total("stored", 99) == 2
    nested = model.Mix(({"fma": 1.0}, {"fma": 1.0}, {"fma": 1.0}))
    assert nested.total("fma", 100) == 1 + 10 + 100


# ---- kernels whose work is plain
def program(text: str) -> Program:
    kernel = verify(parse(text))
    inputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.inputs)
    outputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.outputs)
    return Program("p", inputs, (Call(kernel, inputs, outputs),), outputs)


def predicted(text: str) -> model.Prediction:
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    _, (found,) = model.seconds_of(program(text), SM_90, H200)
    return found


POINT = """kernel k(x: f32[4096,4096], y: f32[4096,4096]) -> (z: f32[4096,4096]) {
  parallel i:4096 j:4096
  z[i, j] = (x[i, j] + y[i, j])
}"""
ROWS = """kernel k(x: f32[512,100000]) -> (z: f32[512]) {
  parallel i:512
  s = sum(j:100000) x[i, j]
  z[i] = s
}"""
PRODUCT = """kernel k(a: bf16[2048,2048], b: bf16[2048,2048]) -> (y: bf16[2048,2048]) {
  parallel i:2048 j:2048
  acc = sum(k:2048) (f32(a[i, k]) * f32(b[k, j]))
  y[i, j] = bf16(acc)
}"""


def test_points_move_what_their_arrays_hold():
    found = predicted(POINT)
    nbytes, code = 3 * 4 * 4096**2, found.task.code
    mixed = model.mix(found.task.binary)
    threads = code.grid * 32 * found.task.binary.num_warps
    assert found.task.work == Work(4096**2, nbytes)
    assert threads * (mixed.total("loaded", 1) + mixed.total("stored", 1)) == nbytes
    assert found.by == "memory" and found.limit == nbytes / 4.8e12
    assert found.terms["memory"] == nbytes / (model.STREAMED * 4.8e12)
    assert found.limit < found.seconds < 1.3 * found.limit + model.START


def test_rows_are_gone_along_in_as_many_steps_as_there_are():
    found = predicted(ROWS)
    mixed, threads = model.mix(found.task.binary), 32 * found.task.binary.num_warps
    steps = min(
        found.task.trips, found.task.reads / (found.task.code.grid * threads * mixed.depths[1]["loaded"])
    )
    moved = found.task.code.grid * threads * (mixed.total("loaded", steps) - mixed.depths[0].get("loaded", 0))
    assert moved == pytest.approx(4 * 512 * 100_000, rel=0.15)  # the last step of a row is not full


def test_products_multiply_what_they_have_to():
    found = predicted(PRODUCT)
    task, mixed = found.task, model.mix(found.task.binary)
    multiplied = task.code.grid * mixed.total("wgmma", task.trips) * task.binary.num_warps / 4
    assert multiplied == 2 * 2048**3 == task.work.flops and mixed.total("halves", 1) > 0
    assert found.occupancy.blocks == 1 and task.code.grid == 128 and found.tail == 128 / 132
    assert found.limit == 2 * 2048**3 / 989.5e12 and found.seconds > found.limit
    # tiles of 128 x 256 load their rows and columns, and halves are stored once; two steps of 32 more are
    # counted, which the loop has loaded ahead when it ends
    assert found.terms["L2"] == pytest.approx((128 * 384 * 2048 + 2048**2) * 2 / model.PORT, rel=0.07)


def test_one_program_more_than_cores_is_a_round_more():
    made = predicted(PRODUCT).task
    seconds = {}
    for grid in (132, 133, 264):
        own = Code(**vars(made.code) | {"grid": grid})
        found = model.predicted(model.Task(**vars(made) | {"code": own}), H200, from_l2=False)
        seconds[grid] = found.terms["tensor cores"]
        assert found.tail == grid / (132 * math.ceil(grid / 132))
    assert seconds[133] == seconds[264] == 2 * seconds[132]


def test_devices_are_known_by_their_drivers_names():
    assert model.device_of("NVIDIA H200") is H200
    assert model.device_of("NVIDIA H100 80GB HBM3") is model.DEVICES["h100"]
    assert model.device_of("NVIDIA GeForce RTX 4090") is None


# ---- what was measured
def test_rows_of_the_results_are_found():
    found = {name: [*source()] for name, source in gpu_predict.SOURCES.items()}
    assert len(found["cases"]) > 100 and len(found["tiles"]) > 200 and len(found["attention"]) > 200
    line = "  sum of rows          61.5        61.8        68.0        68.4    4368.2 GB/s   6.8e-08    1.11x"
    assert gpu_predict.numbers(line) == ("sum of rows", [61.5, 61.8, 68.0, 68.4, 4368.2])
    assert gpu_predict.numbers("reductions") is None


def test_a_prediction_needs_no_device():
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    done = subprocess.run(
        [sys.executable, gpu.__file__, "--predict", "h200", "--only", "reductions", "--case", "sum of rows"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    (name, time) = done.stdout.splitlines()
    assert name == "reductions" and 55 < float(time.split()[-2]) < 100  # 268 MB by 4.8 TB/s are 56
    row = gpu.Row(next(gpu.pooling()), {"lamina": gpu.Time(1e-3, 2e-3)}, 1e-7, predicted=3e-3)
    assert "3000.0" in str(row)
