"""Kernels for NVIDIA's GPUs: what their machine code says of registers, memory, products and copies.

Counted in what Triton compiles here, with each of two: no device is needed, and nothing is predicted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
from attention_cases import OPS, Attention
from family_kernels import FAMILIES

from lamina.ir.dtypes import ALL
from lamina.ir.graph import Builder
from lamina.ir.kernel import parse, verify
from lamina.ir.op import REGISTRY as ops
from lamina.ir.types import type_of
from lamina.passes.graphs.fuse import GPU
from lamina.passes.kernels.product import products
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.triton.attention_tiles import LONG
from lamina.passes.triton.binary import Binary
from lamina.passes.triton.code import Code
from lamina.passes.triton.defaults import CORES
from lamina.passes.triton.generate import apart_codes
from lamina.passes.triton.halves import half_factors
from lamina.passes.triton.launches import Launch, launch_list
from lamina.passes.triton.opening import Open
from lamina.passes.triton.target import ANY, Target
from lamina.runtime.cuda import cubin

pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
pytestmark = pytest.mark.timeout(600)  # compiling takes as long as other processes let it

SM_90 = Target.named("sm_90")
DTYPES = {dtype.short: dtype for dtype in ALL}
REGISTERS, SHARED = 65536, 228 << 10  # of a core
DRIVERS = 1 << 10  # bytes of each block that are the driver's
# Bytes of a thread's stack.  Of products by f32 the assembler of Triton 3.9 keeps two numbers there over a
# loop that does not need them; that of 3.6 the array by which libdevice's cosine reduces large numbers.
KEPT = {"conv weight grad f32": 8, "conv input grad f32": 8, "random normal f32": 32, "random normal f64": 32}
WIDE = {"v4.b32", "v2.b64"}  # 16 bytes


class Compiled:
    """A kernel's machine code.  blocks: that a core has at once, as far as registers and shared memory go."""

    def __init__(self, code: Code):
        from lamina.passes.triton.compiler import compile_code

        self.code = code
        self.binary: Binary = compile_code(code, SM_90)
        self.text = self.binary.text
        self.needs = cubin.needs(self.binary.code, self.binary.name)
        self.warps = self.binary.num_warps
        of_warp = -(-self.needs.registers * 32 // 256) * 256  # they are given out by 256
        of_block = self.binary.shared + max(self.needs.shared, DRIVERS)
        self.blocks = min(REGISTERS // (of_warp * self.warps), SHARED // of_block, 64 // self.warps)
        assert cubin.block(self.binary.code, self.binary.name) == (32 * self.warps, 1, 1)
        assert self.needs.registers <= 255 and of_block <= SM_90.shared + DRIVERS

    def loads(self) -> set[str]:
        """How wide each access is that reads memory into registers."""
        return set(re.findall(r"ld\.global(?:\.nc)?(?:\.L\w+::\w+)*\.((?:v\d\.)?b\d+)", self.text))

    def stores(self) -> set[str]:
        return set(re.findall(r"st\.global\.((?:v\d\.)?b\d+)", self.text))

    def copies(self) -> set[int]:
        """The bytes of each copy from memory to shared memory that a thread begins and does not wait for."""
        found = re.findall(r"cp\.async\.c[ag]\.shared\.global \[[^\]]*\], \[[^\]]*\], (0x\w+|\d+)", self.text)
        return {int(size, 0) for size in found}

    def is_by_tiles(self) -> bool:
        """Whether the unit that copies tiles brings what is multiplied."""
        return "cp.async.bulk.tensor.2d.shared" in self.text

    def multiplies_by_groups(self) -> int:
        return self.text.count("wgmma.mma_async")


def launched(function: Callable, *types: tuple, precision: str = "float32") -> list[tuple[str, Compiled]]:
    """The kernels of a function of tensors of these types and shapes, in the order of their launches."""
    with Builder("net") as b:
        given = [
            b.param(type_of(DTYPES[kind], tuple(shape)), f"x{k}") for k, (kind, *shape) in enumerate(types)
        ]
        graph = b.finish([function(*given)])
    options = Options(limits=GPU, precision=precision)
    launches, _ = launch_list(to_program(optimise(graph, options), (None,), ANY, options), SM_90)
    return [(p.about, Compiled(launches.codes[p.code])) for p in launches.parts if isinstance(p, Launch)]


def matmul(a, b):
    return ops["matmul"](a, b)


def to_weight(x, g):
    """A linear layer's weight gradient, which sums over rows."""
    return ops["matmul"](ops["transpose"](x, dim0=0, dim1=1), g)


# ---- every family
def test_families_hold_what_they_compute_in_registers(of_the_day):
    for name in of_the_day(FAMILIES, 10):
        kernel, _ = FAMILIES[name]()
        for code in apart_codes(kernel, target=SM_90):
            found = Compiled(code)
            entry = found.binary.code, found.binary.name
            assert found.needs.stack <= KEPT.get(name, 0), name
            assert len(cubin.parameters(*entry)) == len(code.parameters) + 2, name  # two are scratch memory
            is_product = "tl.dot(" in code.source
            assert found.blocks * found.warps >= (8 if is_product or found.warps == 16 else 16), name
            assert found.binary.shared <= 48 << 10, name  # what a block may have that did not ask for more
            of_halves = any(half_factors(kernel, p) for p in products(kernel) if p.is_matmul)
            is_by_cores = "mma.sync" in found.text or found.multiplies_by_groups() > 0
            assert is_by_cores == (is_product and of_halves), name


# ---- products
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("dtype", "n", "precision", "groups"),
    [
        ("bf16", 4096, "float32", True), ("f16", 2048, "float32", True), ("f16", 1024, "float32", True),
        ("bf16", 512, "float32", False), ("f32", 4096, "tf32", True), ("f32", 1024, "tf32", True),
        ("f32", 2048, "tf32x3", True), ("f32", 2048, "float32", False),
    ],
)  # fmt: skip
def test_products_are_matrix_instructions_on_tiles_that_come_ahead(dtype, n, precision, groups):
    *others, (_, found) = launched(matmul, (dtype, n, n), (dtype, n, n), precision=precision)
    described = "tl.make_tensor_descriptor(" in found.code.source
    assert described == (dtype == "bf16" and n == 4096)
    assert found.is_by_tiles() == described and found.copies() == (set() if described else {16})
    assert not found.loads() and found.stores() == {"v4.b32"} and found.needs.stack == 0
    assert (found.multiplies_by_groups() >= 4) == groups
    assert groups or (found.text.count("mma.sync") >= 16) == (dtype != "f32")
    # tiles of 128 x 256 have a core for themselves; programs are enough for all cores, or nearly
    assert found.blocks * found.warps >= 8 and found.code.grid >= 128
    for _, other in others:  # a factor is laid out anew
        assert other.loads() | other.stores() == {"v4.b32"}


@pytest.mark.parametrize("rows, columns", [(64, 64), (768, 3072)])
def test_weight_gradients_are_programs_for_all_cores(rows, columns):
    (_, found), *rest = launched(to_weight, ("bf16", 65536, rows), ("bf16", 65536, columns))
    assert found.multiplies_by_groups() >= 4 and found.copies() == {16} and not found.loads()
    assert found.code.grid >= 64 and found.needs.stack == 0
    for _, other in rest:  # the sum of what each part of the rows makes
        assert other.loads() == {"v4.b32"}


# ---- convolutions
WINDOW = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
IMAGE, WEIGHT = ("f16", 64, 64, 56, 56), ("f16", 64, 64, 3, 3)
CONVOLUTIONS = {
    "conv2d": (lambda x, w: ops["conv2d"](x, w, padding=1), IMAGE, WEIGHT),
    "conv_input_grad": (lambda g, w: ops["conv_input_grad"](g, w, size=(56, 56), **WINDOW), IMAGE, WEIGHT),
    "conv_weight_grad": (lambda g, x: ops["conv_weight_grad"](g, x, size=(3, 3), **WINDOW), IMAGE, IMAGE),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_halves_are_products_of_channels_that_lie_last(name):
    function, *operands = CONVOLUTIONS[name]
    kernels = launched(function, *operands)
    (found, *others) = [kernel for about, kernel in kernels if about.startswith(name)]
    assert found.multiplies_by_groups() >= 4 and found.copies() == {16} and not found.loads()
    assert found.stores() == {"v4.b32"} and found.blocks >= 3 and found.code.grid >= 2 * CORES
    images = [kernel for about, kernel in kernels if about == "relayout" and kernel.code.grid > 1000]
    assert len(images) == 2  # there and back, or both
    for kernel in (*images, *others):  # others: sums of a weight's parts
        assert kernel.loads() == {"v4.b32"} and kernel.needs.stack == 0


# ---- attention
@pytest.mark.sampled(4)
@pytest.mark.parametrize("dtype, width", [("f16", 64), ("bf16", 128)])
@pytest.mark.parametrize("length", [512, LONG])
@pytest.mark.parametrize("op", OPS[1:], ids=lambda op: op.name)
def test_attention_has_two_programs_on_a_core_there_and_back(op, dtype, width, length):
    found = Compiled(Attention(dtype, (2,), (length, length, width, width)).code(op))
    assert found.needs.stack == 0 and found.blocks >= 2 and found.multiplies_by_groups() >= 4
    assert "mma.sync" not in found.text and (found.is_by_tiles() or 16 in found.copies())
    assert found.is_by_tiles() == ("tensor_descriptor" in found.code.source)


# ---- sizes that are parameters
PRODUCT = """kernel k(a: f16[2048,512], b: f16[512,2048]) -> (y: f16[2048,2048]) {
  parallel i:2048 j:2048
  acc = sum(k:512) (f32(a[i, k]) * f32(b[k, j]))
  y[i, j] = f16(acc)
}"""
SOFTMAX = """kernel k(x: f16[16384,1024]) -> (y: f16[16384,1024]) {
  parallel i:16384
  t = max(r:1024) f32(x[i, r])
  s = sum(r:1024) exp((f32(x[i, r]) - t))
  y[i, r] = f16((exp((f32(x[i, r]) - t)) / s)) for r:1024
}"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ["product", "by 8", "softmax", *(op.name for op in OPS[1:])])
def test_code_for_all_sizes_goes_by_16_bytes_where_rows_do(what):
    texts = {"product": PRODUCT, "by 8": PRODUCT.replace("2048", "1000"), "softmax": SOFTMAX}
    if what in texts:
        kernel = verify(parse(texts[what]))
        (code,) = apart_codes(kernel, target=SM_90, opens=Open.SIZES)
    else:
        op = next(op for op in OPS if op.name == what)
        code = Attention("f16", (2,), (512, 512, 64, 64), opens=Open.SIZES).code(op)
    found = Compiled(code)
    assert code.numbers and found.needs.stack == 0
    if what == "softmax":
        assert found.loads() == found.stores() == {"v4.b32"}
    else:
        assert found.multiplies_by_groups() >= 4 and 16 in found.copies() and "v4.b32" in found.stores()


# ---- what memory limits
@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_points_and_rows_are_loaded_and_stored_by_16_bytes(dtype):
    large, row = (dtype, 16384, 1024), (dtype, 1024)
    for function, *operands in (
        (lambda x, y: ops["gelu"](x + y), large, large),
        (lambda x, y: x * y, large, row),
        (lambda x: ops["softmax"](x, dim=1), large),
        (lambda x, w, b: ops["layer_norm"](x, (1024,), w, b), large, row, row),
        (lambda x: ops["sum"](x, dim=1), large),
    ):
        *_, (about, found) = launched(function, *operands)
        assert found.loads() <= WIDE, about
        assert found.stores() <= WIDE or about == "sum", about  # which has a number for each row
        assert found.needs.stack == 0 and found.blocks * found.warps >= 32, about


@pytest.mark.parametrize(
    ("dtype", "shape", "dim"),
    [
        ("f16", (65536, 64), 0), ("f32", (16384, 4096), 0), ("bf16", (16384, 1024), 0),
        ("f16", (64, 64, 56, 56), (0, 2, 3)), ("f32", (1 << 24,), 0), ("bf16", (64, 56, 56, 64), (0, 1, 2)),
    ],
)  # fmt: skip
def test_gradients_that_sum_are_programs_for_all_cores(dtype, shape, dim):
    """Of a bias, a norm's weight, its statistics; then what the programs made is summed."""
    (_, first), (_, last) = launched(lambda g: ops["sum"](g, dim=dim), (dtype, *shape))
    assert first.loads() == {"v4.b32"} and first.code.grid >= 128
    assert first.needs.stack == 0 and first.blocks * first.warps >= 32
    assert first.code.grid * 32 * first.warps * 4 * 64 >= math.prod(shape) // 64
    assert last.loads() <= {"v4.b32", "v2.b32"}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_gradients_of_embeddings_are_added_where_they_belong(dtype):
    """By words of f32, whose old values nobody waits for; the table itself goes by 16 bytes."""
    kernels = launched(
        lambda x, i, y: ops["index_add"](x, 0, i, y), (dtype, 50000, 512), ("i64", 8192), (dtype, 8192, 512)
    )
    scattered = [kernel for _, kernel in kernels if re.search(r"\b(?:red|atom)\.\S*add", kernel.text)]
    assert len(scattered) == 1
    (found,) = scattered
    assert re.search(r"\b(?:red|atom)\.global\S*\.add\S*\.f32", found.text)
    assert found.code.grid >= CORES and found.needs.stack == 0 and found.blocks * found.warps >= 32
    assert {"v4.b32"} == kernels[-1][1].loads() == kernels[-1][1].stores()
