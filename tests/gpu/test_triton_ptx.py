"""Pairs of 16 bits, which old assemblers add wrongly, are no part of machine code."""

import os
import subprocess

import pytest

from lamina.ir.kernel import parse, verify
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.triton import ptx
from lamina.passes.triton.generate import generate
from lamina.passes.triton.target import Target

# A step of the sum goes from one tap of the window to the next: rows are then numbers of 16 bits, in pairs.
CONVOLUTION = """\
kernel conv(x: f16[64,56,56,64], w: f16[3,3,64,64]) -> (y: f16[64,56,56,64]) {
  parallel n:64 i:56 j:56 k:64
  s = sum(r:3 q:3 c:64) (f32(x[n, i+r-1, j+q-1, c else 0.0]) * f32(w[r, q, c, k]))
  y[n, i, j, k] = f16(s)
}"""
TILES = "lanes(m, 128, n, i, j) lanes(n, 64, k) along(k, 64, r, q, c) dot(s) group(8) warps(4) stages(4)"
WRITTEN = """\
.version 8.3
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a)
.reqntid 32
{
    .reg .b32 %r<9>;
    .reg .b16 %rs<9>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [a];
    ld.global.b32 %r1, [%rd1];
    shr.u32 %r4, %r1, 20;
    cvt.u16.u32 %rs1, %r4;
    mov.b32 %r5, {%rs1, %rs2};
    mov.b32 %r2, 65535;
    add.s16x2 %r3, %r5, %r2;
    mov.b32 {%rs3, _}, %r3;
    mov.b32 %r6, {%rs3, %rs3};
    st.global.b32 [%rd1], %r6;
    ret;
}
"""


def test_pairs_are_added_one_by_one():
    text = ptx.without_pairs(WRITTEN)
    assert "16x2" not in text and text.count("add.s16 ") == 2
    assert ptx.without_pairs(text) == text
    assert "{%pair0, %pair1}, %r5;" in text and "mov.b32 %r3, {%pair4, %pair5};" in text


def test_assemblers_are_known_by_their_release():
    assert not ptx.is_sound("Cuda compilation tools, release 12.9, V12.9.86")
    assert ptx.is_sound("Cuda compilation tools, release 13.4, V13.4.59")
    assert not ptx.is_sound("no ptxas")


def test_a_convolutions_machine_code_has_the_constant(tmp_path):
    """The kernel that read beyond its array: the row above an image is its number and -1, in 16 bits."""
    compiler = pytest.importorskip("triton.compiler", reason="Triton is not installed: the extra gpu has it")
    assert compiler
    from triton.backends.nvidia import compiler as nvidia

    from lamina.passes.triton.compiler import compile_code

    kernel = verify(parse(CONVOLUTION))
    code = generate(kernel, schedule(TILES))
    binary = compile_code(code, Target.named("sm_90"))
    is_sound = ptx.is_sound(nvidia.get_ptxas_version(90))
    assert ("add.s16x2" in binary.text) == is_sound
    (tmp_path / "k.cubin").write_bytes(binary.code)
    disassembler = os.path.join(os.path.dirname(nvidia.__file__), "bin", "nvdisasm")
    done = subprocess.run(
        [disassembler, "-c", tmp_path / "k.cubin"], capture_output=True, text=True, check=True
    )
    pairs = [line for line in done.stdout.splitlines() if "VIADD.16x2" in line]
    assert not any(", 0x0 ;" in line for line in pairs), pairs
    assert bool(pairs) == is_sound
