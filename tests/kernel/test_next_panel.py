"""Which lines of a weight are asked for while others are read: all of the next panel, each about once."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from image_programs import Builder, conv_kernel
from native import Native, each_level
from test_winograd import convolution

from lamina.ir import dims
from lamina.passes.kernels.blocking import squeezed
from lamina.passes.kernels.product import product_of
from lamina.passes.llvm.binding import Library, emit_object
from lamina.passes.llvm.conv_winograd import WinogradCode
from lamina.passes.llvm.units import lower, symbol
from lamina.passes.llvm.writer import Writer
from lamina.passes.programs.pack_convolution import direct
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.schedules.default import unit_axes
from lamina.passes.schedules.steps import Winograd
from lamina.passes.schedules.target import AVX512, GOLDEN_COVE, LINE, Target

WEIGHT = Options(frozenset((1,)))
ASKED = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.fixture
def asked(monkeypatch):
    """The addresses that code asks for, of all that is written from here on: it tells of each by a call."""
    found: list[int] = []
    tell = ASKED(found.append)
    address = ctypes.cast(tell, ctypes.c_void_p).value

    def prefetch(self: Writer, at: str, level: int = 1) -> None:
        self.line(f"call void inttoptr (i64 {address} to ptr)(ptr {at})")

    monkeypatch.setattr(Writer, "prefetch", prefetch)
    yield found
    del tell


def with_cache(target: Target, cache: int) -> Target:
    """The target with a second cache of so many bytes, and tiles of up to 24 sums."""
    return replace(target, core=replace(GOLDEN_COVE, cache=cache))


def aligned(shape) -> np.ndarray:
    """Ones that begin at a line of the cache."""
    size = int(np.prod(shape))
    whole = np.ones(size + LINE, np.float32)
    start = -whole.ctypes.data % LINE // 4
    return whole[start : start + size].reshape(shape)


def run(kernel, how, target: Target, packed: str) -> np.ndarray:
    """All units of a kernel in turn; what it has read in panels."""
    kernel = how.applied(kernel)
    arrays = {b.name: aligned(b.shape) for b in kernel.buffers.values()}
    library = Library([emit_object(lower(kernel, target, how), target)], target)
    pointers = [ctypes.c_void_p] * len(arrays)
    entry = ctypes.CFUNCTYPE(None, *pointers, ctypes.c_int64, ctypes.c_int64)(library.address(symbol(kernel)))
    units = int(np.prod([count for _, count in unit_axes(kernel, how)]))
    entry(*(arrays[name].ctypes.data for name in kernel.buffers), 0, units)
    return arrays[packed]


def asks_for_the_next(found: list[int], array: np.ndarray, panels: int, share: float = 0.04) -> None:
    """The lines of all panels but the first are asked for, but for a share of them, and little beyond."""
    first, nbytes = array.ctypes.data // LINE, array.nbytes // LINE
    panel = nbytes // panels
    lines = [at // LINE - first for at in found]
    missed = {*range(panel, nbytes)} - {*lines}
    assert len(missed) <= share * nbytes, f"{len(missed)} of {nbytes - panel} lines: {sorted(missed)[:8]}"
    assert panel <= min(lines) and max(lines) <= nbytes + 1.5 * panel


@each_level
@pytest.mark.parametrize(
    ("channels", "outs", "sizes", "window"),
    [(8, 8, (7, 7), 1), (3, 16, (5, 9), 1), (8, 16, (7, 7), 3), (4, 16, (4, 9), 3)],
)
def test_a_tile_of_a_convolution_asks_for_its_share_of_the_next_panel(
    asked, target, channels, outs, sizes, window
):
    lanes, target = target.lanes, with_cache(target, 8 * channels * outs * target.lanes**2 * window**2)
    image, weight = (1, channels * lanes, *sizes), (outs * lanes, channels * lanes, window, window)
    plain = squeezed(conv_kernel(image, weight, padding=window // 2))
    made = direct(plain, product_of(plain).convolution, target)
    ((packed, axis),) = made.how.next_panels.items()
    array = run(made.kernel, made.how, target, packed)
    rows = 2 / sizes[0] / 3 if window > 1 else 0.0  # of taps that the first and last one leave out
    asks_for_the_next(asked, array, int(made.how.applied(made.kernel).extents[axis]), rows + 0.04)


@each_level
@pytest.mark.parametrize(("rows", "depth", "outs"), [(64, 48, 20), (49, 33, 24), (17, 128, 12)])
def test_a_tile_of_a_product_asks_for_its_share_of_the_next_panel(asked, target, rows, depth, outs):
    outs *= target.lanes
    b = Builder("net", (rows, depth))
    target = with_cache(target, 8 * depth * outs)
    program = pack_matmuls(b.program(b.op("linear", b.image, b.param("w", (outs, depth)))), target, WEIGHT)
    call = program.calls[-1]
    ((packed, axis),) = call.how.next_panels.items()
    assert axis == call.how.axis
    array = run(call.kernel, call.how, target, packed)
    asks_for_the_next(asked, array, array.shape[0])


def test_where_rows_may_be_any_number_lines_are_asked_for_a_little_before():
    rows = dims.symbol("rows")
    b = Builder("net", (rows, 1024))
    with dims.hints({"rows": 20}):
        program = b.program(b.op("linear", b.image, b.param("w", (1024, 1024))))
        call = pack_matmuls(program, with_cache(AVX512, 1 << 20), WEIGHT).calls[-1]
    assert call.how.ahead and not call.how.next_panels


@each_level
@pytest.mark.parametrize(
    ("how", "shares"),
    [(Winograd(4, 4, 2, 2, True), 2), (Winograd(2, 9, 3, 1, False), 3), (Winograd(4, 4, 4, 2, False), 1)],
)
def test_a_part_of_a_block_asks_for_its_share_of_the_next_position(asked, target, how, shares):
    kernel, arrays = convolution((1, 2, 4, 6, 6, 1), target.lanes, how)
    code = WinogradCode(how, kernel, target)
    assert code.shares == shares
    arrays = [aligned(a.shape) for a in arrays]
    Native(code.code(), target)(*arrays, aligned(kernel.outputs[0].shape), parts=1)
    u = arrays[2]
    if shares > 1:
        asks_for_the_next(asked, u, (how.tile + 2) ** 2 * code.chunks)
    else:  # what is read alone is asked for a little before
        assert {at - u.ctypes.data for at in asked} == {n + 8192 for n in range(0, u.nbytes, LINE)}
