"""Factors by descriptors and in registers: which products have them, what is refused, their machine code."""

import re

import pytest

from lamina.ir.errors import KernelError
from lamina.ir.kernel import Kernel, parse
from lamina.ir.kernel.verify import verify
from lamina.passes.schedules.gpu import Precision
from lamina.passes.schedules.steps import Schedule
from lamina.passes.schedules.steps import parse as schedule_of
from lamina.passes.triton.emit import lower
from lamina.passes.triton.generate import generate
from lamina.passes.triton.target import ANY, Target

NO_TRITON = "Triton is not installed: the extra gpu has it"
SM_90 = Target.named("sm_90")
TF32 = Schedule(Precision("tf32"))
PRODUCT = """\
kernel mm(a: {t}[{m},{k}], b: {t}[{k},{n}]) -> (y: {y}[{m},{n}]) {{
  parallel i:{m} j:{n}
  acc = sum(k:{k}) ({f}(a[i, k]) * {f}(b[k, j]))
  y[i, j] = {y}(acc)
}}"""
TILES = "lanes(m, 16, i) lanes(n, 32, j) along(k, 16, k) dot(acc)"


def product(t: str = "f16", y: str = "", m: int = 4096, k: int = 4096, n: int = 4096) -> Kernel:
    wide = "" if t == "f32" else "f32"
    return verify(parse(PRODUCT.format(t=t, y=y or t, f=wide, m=m, k=k, n=n)))


def test_large_products_of_halves_are_by_descriptors_where_there_are_some():
    source = generate(product(), None, None, SM_90).source
    assert source.count("tl.make_tensor_descriptor(") == 2 and ", 512, 132, flatten=True)" in source
    assert source.index("make_tensor_descriptor") < source.index("for pid_start")  # once for all tiles
    assert generate(product(), None, None, SM_90).grid == 132


@pytest.mark.parametrize(
    "kernel, aligned, target",
    [
        (product(), None, ANY),
        (product(), None, Target.named("sm_80")),
        (product(), (True, False, True), SM_90),
        (product(m=1024, n=1024), None, SM_90),
        (product(y="f32"), None, SM_90),
        (product(n=4099), None, SM_90),
        (product("f32"), None, SM_90),
    ],
    ids=["any", "sm_80", "unaligned", "few tiles", "wide results", "odd rows", "f32"],
)
def test_others_are_not(kernel, aligned, target):
    code = generate(kernel, None, aligned, target)
    assert "descriptor" not in code.source and "pid_start" not in code.source


@pytest.mark.parametrize(
    "kernel, how, message",
    [
        (product(m=32, k=33, n=32), f"{TILES} descriptors()", "descriptors are of matrices in memory"),
        (product(m=32, k=32, n=33), f"{TILES} descriptors()", "descriptors are of matrices in memory"),
        (product("f32", m=32, k=32, n=32), f"{TILES} registers()", "registers are for factors of tf32"),
    ],
)
def test_what_they_are_not_for_is_refused(kernel, how, message):
    with pytest.raises(KernelError, match=message):
        lower(kernel, schedule_of(how))
    if "k=33" not in str(kernel):
        lower(kernel, schedule_of(f"{TILES} persistent(3)"))


def machine_code(kernel: Kernel, how: Schedule | None = None):
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.compiler import compile_code

    binary = compile_code(generate(kernel, how, None, SM_90), SM_90)
    assert not re.search(r"\.local\b", binary.text), "it spills"
    return binary


@pytest.mark.sampled(2)
def test_descriptors_are_copies_of_whole_tiles():
    binary = machine_code(product())
    assert "cp.async.bulk.tensor.2d" in binary.text and "wgmma.mma_async" in binary.text
    assert binary.global_scratch[0] >= 2 * 128 and binary.shared <= SM_90.shared


@pytest.mark.sampled(2)
def test_a_factor_in_registers_is_multiplied_by_tensor_cores():
    binary = machine_code(product("f32"), TF32)
    products = re.findall(r"wgmma\.mma_async\S*\.tf32\.tf32 \{[^}]*\}, (\{|%rd)", binary.text)
    assert products and {*products} == {"{"}  # the rows' factor is no address of shared memory
    assert "cp.async.cg.shared.global" in binary.text  # and still 16 bytes at a time come ahead
