"""Attention as one kernel: its numbers in Triton's interpreter, its machine code, its place in a program."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from attention_cases import ATTENTIONS, DTYPES, OPS, Attention

from lamina.ir.errors import GraphError, KernelError
from lamina.ir.graph import Builder, Graph
from lamina.ir.op import REGISTRY
from lamina.ir.ops.attention import scaled_dot_product_attention
from lamina.ir.types import type_of
from lamina.passes.graphs.fuse import GPU
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.programs.memory_plan import verify
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Program, Whole
from lamina.passes.triton.attention_tiles import LONG, THERE, TO_KEY_VALUE, TO_QUERY, fitted, tile_of
from lamina.passes.triton.launches import launch_list
from lamina.passes.triton.target import ANY, Target

NO_TRITON = "Triton is not installed: the extra gpu has it"
LARGE = Attention("f16", (2, 3), (512, 512, 64, 64))


def graph_of(case: Attention) -> Graph:
    """Attention in a function, behind another op."""
    queries, keys, width, out = case.sizes
    kind = DTYPES[case.dtype]
    with Builder("net") as b:
        q, k, v = (
            b.param(type_of(kind, (*case.lead, *shape)), name)
            for name, shape in (("q", (queries, width)), ("k", (keys, width)), ("v", (keys, out)))
        )
        made = scaled_dot_product_attention(REGISTRY["exp"](q), k, v, is_causal=case.is_causal)
        return b.finish([made])


def program_of(case: Attention, precision: str = "float32") -> Program:
    options = Options(limits=GPU, precision=precision)
    graph = optimise(graph_of(case), options)
    return to_program(graph, (None,), ANY, options)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
def test_they_are_what_the_records_say(part):
    pytest.importorskip("triton", reason=NO_TRITON)
    run = subprocess.run(
        [sys.executable, "triton_numerics.py", "attention", f"{part}/4"],
        cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-3000:]
    assert run.stdout.count(" ok\n") == len(ATTENTIONS[part::4])


def test_scores_are_never_in_memory():
    program = program_of(LARGE)
    wholes = [step for step in program.steps if isinstance(step, Whole)]
    launches, _ = launch_list(program, Target.named("sm_90"))
    scores = 2 * 3 * 512 * 512 * 2
    assert len(wholes) == 1 and len(launches.parts) == 2  # exp, and attention
    assert launches.arena < scores // 4
    assert "whole_attention" in str(program) and "host" not in str(launches)


@pytest.mark.parametrize(
    "case",
    [
        Attention("f64", (2,), (64, 64, 16, 16)),
        Attention("f16", (2,), (64, 64, 300, 16)),
        Attention("f16", (2,), (64, 64, 16, 300)),
    ],
)
def test_others_stay_the_ops_that_they_stand_for(case):
    assert not any(isinstance(step, Whole) for step in program_of(case).steps)


def test_f32_is_multiplied_as_far_as_the_options_say():
    case = replace(LARGE, dtype="f32")
    for precision, said in (("float32", "tf32x3"), ("bfloat16", "tf32"), ("tf32x3", "tf32x3")):
        for target in ("sm_75", "sm_80", "sm_90", "gfx942"):
            launches, _ = launch_list(program_of(case, precision), Target.named(target))
            own = said if target in ("sm_80", "sm_90") else "ieee"  # others have no such tensor cores
            assert launches.codes[-1].source.count(f"input_precision='{own}'") == 2


def test_a_precision_that_is_none_is_refused():
    """It stands in the source, and a program's text may say anything."""
    with pytest.raises(KernelError, match="precision is one of ieee, tf32, tf32x3"):
        replace(LARGE, precision="ieee'); import os  #").code()


def test_a_plan_that_lays_the_result_over_the_queries_is_refused():
    """They are read while it is written; those of a step of the host are copied before."""
    plan = plan_memory(program_of(LARGE))
    (step,) = (step for step in plan.program.steps if isinstance(step, Whole))
    query = step.inputs[0]
    assert query is not None
    verify(plan)
    over = replace(plan, places={**plan.places, step.outputs[0]: plan.places[query]})
    with pytest.raises(GraphError, match="writes over its operand"):
        verify(over)


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("op", [OPS[1], OPS[2], OPS[3]], ids=lambda op: op.name)
def test_its_machine_code_multiplies_by_groups_of_warps_and_copies_16_bytes(op, width):
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.compiler import compile_code

    dtype = "f16" if width == 64 else "bf16"
    code = Attention(dtype, (2,), (512, 512, width, width)).code(op)
    text = compile_code(code, Target.named("sm_90")).text
    copies = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], (0x\w+|\d+)", text)
    sizes = {int(size, 0) for size in copies}
    assert text.count("wgmma.mma_async") >= 4 and "mma.sync" not in text
    # but for a number of each query, 4 bytes
    assert 16 in sizes and sizes <= ({16} if op is OPS[1] else {16, 4})
    assert "ld.local" not in text and "st.local" not in text


@pytest.mark.parametrize(("op", "width"), [(OPS[1], 64), (OPS[3], 128)], ids=lambda x: getattr(x, "name", x))
def test_what_long_ones_meet_is_copied_by_the_unit_for_tiles(op, width):
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.compiler import compile_code

    case = Attention("f16", (2,), (LONG, LONG, width, width))
    binary = compile_code(case.code(op), Target.named("sm_90"))
    assert "cp.async.bulk.tensor" in binary.text and binary.text.count("wgmma.mma_async") >= 4
    assert "ld.local" not in binary.text and binary.global_scratch[0] > 0
    others = (
        replace(case, target="sm_80"),  # has none
        replace(case, sizes=(LONG, LONG, width - 1, width)),  # rows that begin anywhere
        replace(case, dtype="f32"),
    )
    assert not any("tensor_descriptor" in other.code(op).source for other in others)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["sm_80", "sm_90", "sm_120"])
def test_its_tiles_fit_the_memory_that_a_block_has(target):
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.compiler import compile_code

    known = Target.named(target)
    halves = (("f16", 128, "ieee"), ("bf16", 256, "ieee"))
    singles = (("f32", width, precision) for width in (64, 128, 256) for precision in ("ieee", "tf32x3"))
    for dtype, width, precision in (*halves, *singles):
        case = Attention(dtype, (2,), (512, 512, width, width), target=target, precision=precision)
        for op in OPS[1:]:
            assert compile_code(case.code(op), known).shared <= known.shared


@pytest.mark.parametrize("dtype, precision", [("f32", "ieee"), ("f32", "tf32x3"), ("bf16", "ieee")])
@pytest.mark.parametrize("widest", [64, 128, 256])
@pytest.mark.parametrize("kernel", [THERE, TO_QUERY, TO_KEY_VALUE])
def test_small_tiles_have_few_warps(kernel, widest, dtype, precision):
    """By tf32x3 and 8 warps a tile of 64 x 16 lost an H200."""
    tile = tile_of(kernel, dtype, widest, precision, 16)
    for queries, keys in ((64, 16), (16, 64), (40, 10), (10, 40), (1, 1), (2048, 16), (2048, 2048)):
        small = fitted(tile, queries, keys, 4 * widest, 4 * widest, 4, False, Target.named("sm_90"))
        whole = small.rows * small.columns == tile.rows * tile.columns
        assert (
            small.warps == tile.warps if whole else small.warps <= max(4, small.rows * small.columns // 256)
        )
