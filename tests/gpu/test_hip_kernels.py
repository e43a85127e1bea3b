"""Kernels for AMD's GPUs: schedules, and what machine code says of registers, memory and products.

Counted in what Triton compiles here; no GPU of AMD's has run any of it.
"""

from __future__ import annotations

import re

import pytest
from attention_cases import OPS, Attention
from family_kernels import FAMILIES

from lamina.ir.kernel import parse, verify
from lamina.passes.schedules.gpu import Along, Descriptors, Dot, Lanes, Persistent, Precision, Registers
from lamina.passes.schedules.steps import parse as schedule_of
from lamina.passes.triton.binary import Binary
from lamina.passes.triton.code import Code
from lamina.passes.triton.defaults import default_schedule
from lamina.passes.triton.generate import generate
from lamina.passes.triton.schedule import num_stages, num_warps
from lamina.passes.triton.target import ANY, Target
from lamina.runtime.cuda import hsaco

NO_TRITON = "Triton is not installed: the extra gpu has it"
LDS = 64 << 10
pytestmark = pytest.mark.timeout(600)  # compiling takes as long as other processes let it


def product(dtype: str, n: int = 4096):
    """A product of square matrices."""
    wide = "" if dtype == "f32" else "f32"
    text = f"""kernel mm(a: {dtype}[{n},{n}], b: {dtype}[{n},{n}]) -> (y: {dtype}[{n},{n}]) {{
  parallel i:{n} j:{n}
  acc = sum(k:{n}) ({wide}(a[i, k]) * {wide}(b[k, j]))
  y[i, j] = {dtype}(acc)
}}"""
    return verify(parse(text))


def compiled(code: Code, target: str) -> tuple[Binary, hsaco.Kernel]:
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.compiler import compile_code

    binary = compile_code(code, Target.named(target))
    return binary, hsaco.kernel(binary.code, binary.name)


def widths(text: str) -> set[str]:
    """The loads from memory, by how wide they are: RDNA's assembly counts bits, CDNA's words."""
    return set(re.findall(r"(?:global|buffer)_load_\w+", text))


# ---- schedules
@pytest.mark.parametrize("name", FAMILIES)
def test_blocks_have_as_many_threads_as_nvidias(name):
    kernel, _ = FAMILIES[name]()
    ours, theirs = default_schedule(kernel, Target.named("gfx942")), default_schedule(kernel)
    assert ours == schedule_of(str(ours)) == default_schedule(kernel, Target.named("gfx942"), "tf32x3")
    if not ours.has(Dot):  # what a thread has at once is the same, so are tiles
        assert 64 * num_warps(ours) == max(64, 32 * num_warps(theirs))
        assert [*ours.of(Lanes)] == [*theirs.of(Lanes)] and [*ours.of(Along)] == [*theirs.of(Along)]
    assert default_schedule(kernel, Target.named("gfx1100")).has(Dot) == theirs.has(Dot)


def test_products_obey_what_amds_gpus_have():
    for name in ("gfx90a", "gfx942", "gfx950", "gfx1100"):
        target = Target.named(name)
        for dtype in ("f16", "bf16", "f32"):
            for precision in ("ieee", "tf32", "tf32x3"):
                schedule = default_schedule(product(dtype), target, precision)
                others = (Descriptors, Persistent, Precision, Registers)  # NVIDIA's alone have the units
                assert not any(map(schedule.has, others))
                (m, n), (k,) = schedule.of(Lanes), schedule.of(Along)
                step = (m.size + n.size) * k.size * (4 if dtype == "f32" else 2)
                assert num_stages(schedule) == 2 and target.buffers(2) * step <= target.shared
                assert min(m.size, n.size, k.size) >= 16 and num_warps(schedule) * target.warp <= 512


def test_targets_say_how_threads_run_together():
    for name, warp, has_f32 in (("gfx90a", 64, True), ("gfx942", 64, True), ("gfx1100", 32, False)):
        target = Target.named(name)
        assert (target.warp, target.has_f32, target.has_tf32, target.has_tma) == (warp, has_f32, False, False)
        assert [target.warps(n) for n in (1, 2, 8)] == ([1, 1, 4] if warp == 64 else [1, 2, 8])
    assert (ANY.warps(4), ANY.ahead, ANY.buffers(3)) == (4, 3, 3)


# ---- machine code
def test_families_hold_what_they_compute_in_registers(of_the_day):
    for name in of_the_day(FAMILIES, 10):
        kernel, _ = FAMILIES[name]()
        code = generate(kernel, target=Target.named("gfx942"))
        binary, found = compiled(code, "gfx942")
        assert not found.spills and not found.private and found.vgprs <= 256, name
        assert binary.shared + found.group <= LDS and found.threads == 64 * binary.num_warps <= 1024, name
        assert ("v_mfma_" in binary.text) == ("tl.dot(" in code.source), name
        assert len(found.arguments) == len(code.parameters) + 2, name  # two are scratch memory


@pytest.mark.parametrize(
    ("target", "dtype", "multiplies"),
    [
        ("gfx942", "bf16", "v_mfma_f32_32x32x8_bf16"), ("gfx942", "f16", "v_mfma_f32_32x32x8_f16"),
        ("gfx942", "f32", "v_mfma_f32_32x32x2_f32"), ("gfx90a", "bf16", "v_mfma_f32_32x32x8bf16_1k"),
        ("gfx90a", "f32", "v_mfma_f32_32x32x2f32"), ("gfx1100", "f16", "v_wmma_f32_16x16x16_f16"),
        ("gfx950", "bf16", "v_mfma_f32_32x32x16_bf16"),
    ],
)  # fmt: skip
def test_large_products_are_matrix_instructions_on_tiles_loaded_by_16_bytes(target, dtype, multiplies):
    known = Target.named(target)
    schedule = default_schedule(product(dtype), known)
    binary, found = compiled(generate(product(dtype), target=known), target)
    assert binary.text.count(multiplies) >= 32 and not found.spills and not found.private
    copies = {"gfx1100": "global_load_b128", "gfx950": "global_load_lds_dwordx4"}
    assert widths(binary.text) == {copies.get(target, "global_load_dwordx4")}
    assert found.vgprs <= 256  # half of CDNA's registers, so that a SIMD has two wavefronts
    (m, n), (k,) = schedule.of(Lanes), schedule.of(Along)
    held = known.buffers(num_stages(schedule)) * (m.size + n.size) * k.size * (4 if dtype == "f32" else 2)
    assert held <= binary.shared <= 1.1 * held  # gfx950's has gaps


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_points_and_rows_are_loaded_by_16_bytes(dtype):
    x, y = ("x[i, j]", "y[i, j]") if dtype == "f32" else ("f32(x[i, j])", "f32(y[i, j])")
    point = f"""kernel k(x: {dtype}[4096,1000], y: {dtype}[4096,1000]) -> (z: {dtype}[4096,1000]) {{
  parallel i:4096 j:1000
  z[i, j] = {dtype}(({x} + {y}))
}}"""
    row = f"""kernel k(x: {dtype}[4096,1024]) -> (z: f32[4096]) {{
  parallel i:4096
  s = sum(j:1024) {x}
  z[i] = s
}}"""
    for text in (point, row):
        binary, found = compiled(generate(verify(parse(text)), target=Target.named("gfx942")), "gfx942")
        assert {word.rpartition("_")[2] for word in widths(binary.text)} == {"dwordx4"}, text
        assert not found.spills and found.vgprs <= 128


@pytest.mark.sampled(6)
@pytest.mark.parametrize("dtype, width", [("f16", 64), ("bf16", 128), ("f32", 64)])
@pytest.mark.parametrize("op", OPS[1:], ids=lambda op: op.name)
def test_attention_is_matrix_instructions_and_spills_nothing(op, dtype, width):
    code = Attention(dtype, (2,), (512, 512, width, width), target="gfx942").code(op)
    binary, found = compiled(code, "gfx942")
    assert binary.text.count("v_mfma_f32_32x32") + binary.text.count("v_mfma_f32_16x16") >= 16
    assert not found.spills and not found.private and binary.shared <= LDS and not binary.global_scratch[0]
    assert widths(binary.text) <= {"global_load_dwordx4", "buffer_load_dwordx4", "buffer_load_dword"}


@pytest.mark.parametrize("name", ["matmul f32", "linear f32", "conv2d f16"])
def test_rdna_has_registers_for_its_products_too(name):
    """Without matrix instructions for f32 a thread has its part of a whole step in registers."""
    code = generate(FAMILIES[name]()[0], target=Target.named("gfx1100"))
    binary, found = compiled(code, "gfx1100")
    assert not found.spills and not found.private and found.vgprs <= 256
    assert found.threads == 32 * binary.num_warps and ("v_wmma_" in binary.text) == name.endswith("f16")
