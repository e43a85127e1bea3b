"""Schedules one step from another: whatever a search may try computes what the kernel says, or is refused."""

from random import Random

import numpy as np
import pytest
from image_programs import Builder
from native import run_code
from probes import PROBES
from sampling import day
from test_kernel_llvm import close
from test_matmul import form, stated
from training_programs import gradients

from lamina.ir.errors import KernelError
from lamina.ir.kernel import interpret
from lamina.ir.kernel.types import NUMPY
from lamina.passes.kernels.collapse import collapsed
from lamina.passes.kernels.winograd import weight_products
from lamina.passes.llvm.binding import host_target
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.batch_innermost import batch_innermost
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.schedules.choose_winograd import pack_winograd
from lamina.passes.schedules.default import default_schedule
from lamina.passes.schedules.steps import Collapse, Schedule, parse
from lamina.passes.schedules.variants import variants

TARGET = host_target()


def chosen() -> dict[str, tuple]:
    """Kernels whose schedules passes choose, by the family."""
    b = Builder("step", (16, 5, 9, 8))
    w = b.param("w", (6, 5, 3, 3))
    y = b.op("conv2d", b.image, w, padding=1)
    images = batch_innermost(b.program(y, *gradients(b, y, b.image, w, padding=1)), TARGET)
    b = Builder("net", (1, 32, 9, 11))
    blocks = assign_layouts(b.program(b.conv(b.conv(b.image, 32, 3, padding=1), 32, 3, stride=2)), TARGET)
    panels = pack_matmuls(stated(form("nn", 21, 71, 64), "f32"), TARGET, Options(frozenset((1,))))
    as_they_lie = pack_matmuls(stated(form("nn", 21, 71, 64), "f32"), TARGET, Options(only="panels"))
    dots = pack_matmuls(stated(form("nt", 13, 40, 100), "f32"), TARGET)
    calls = [
        call for p in (images, blocks, panels, as_they_lie, dots) for call in p.calls if call.how is not None
    ]
    return {f"{call.name}.{n}": (call.kernel, call.how) for n, call in enumerate(calls)}


CHOSEN = chosen()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", [*PROBES, *CHOSEN])
def test_every_variant_agrees_or_is_refused(name):
    random = Random(f"{name} {day()}")
    if name in PROBES:
        kernel, arrays = PROBES[name].kernel, PROBES[name].arrays()
        how = Schedule(Collapse(), *default_schedule(collapsed(kernel), TARGET).steps)
    else:
        kernel, how = CHOSEN[name]
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal(b.shape).astype(NUMPY[b.dtype]) for b in kernel.inputs]
        if how.winograd is not None:  # its code reads the weight as another kernel packs it
            pack = pack_winograd(kernel.inputs[1].shape, how.winograd, TARGET.lanes)
            (arrays[2],) = interpret(
                pack, arrays[1], weight_products(how.winograd.tile, kernel.inputs[1].shape[2])
            )
    wanted = interpret(kernel, *arrays, exact=name in PROBES and name != "halves")
    tried = 0
    for _ in range(6):  # a walk, as a search takes it
        near = list(variants(how.applied(kernel), how, TARGET))
        if not near:
            break
        other = random.choice(near)
        assert parse(str(other)) == other
        try:
            found = run_code(kernel, arrays, TARGET, other)
        except KernelError:
            continue
        how = other
        tried += 1
        for got, want in zip(found, wanted, strict=True):
            if name in PROBES:
                close(got, want, (name, str(how)))
            else:
                np.testing.assert_allclose(
                    got, want, rtol=0, atol=1e-5 * np.abs(want).max(), err_msg=str(how)
                )
    assert tried or not near


def test_a_unit_has_all_columns_of_a_panel_and_no_more():
    program = pack_matmuls(stated(form("nn", 21, 71, 64), "f32"), TARGET, Options(only="panels"))
    (call,) = program.calls
    vectors = call.how.vectors
    assert vectors > 1 and f"vectorise(j, {vectors}) block(j, {vectors * TARGET.lanes}) peel(j)" in str(
        call.how
    )
    half = parse(str(call.how).replace(f"vectorise(j, {vectors})", "vectorise(j)"))
    arrays = [np.ones(b.shape, np.float32) for b in call.kernel.inputs]
    with pytest.raises(KernelError, match=f"has the {TARGET.lanes} columns of a panel"):
        run_code(call.kernel, arrays, TARGET, half)
    for other in variants(call.how.applied(call.kernel), call.how, TARGET):
        assert "peel(j)" not in str(other) or other.block("j") == other.vectors * TARGET.lanes


def test_a_variant_is_one_step_away():
    kernel = PROBES["matmul"].kernel
    how = parse("vectorise(j, 2) tile(i, 4) unroll(k, 4)")
    near = {str(one) for one in variants(kernel, how, TARGET)}
    assert "vectorise(j) tile(i, 4) unroll(k, 4)" in near
    assert "vectorise(j, 2) tile(i, 8) unroll(k, 4)" in near
    assert "vectorise(j, 2) tile(i, 4) unroll(k, 2)" in near
    assert str(how) not in near and len(near) == len(list(variants(kernel, how, TARGET)))
