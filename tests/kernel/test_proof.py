"""Native code is never written unproven: kernels and generators that leave their buffers are refused.

A generator is broken by an edit of its own text, one for each way in which it reaches memory; as it stands,
it is not refused.  What is refused is never run.
"""

import importlib
from types import ModuleType

import pytest
from edited import edited
from image_programs import Builder
from test_conv_rows import kernels
from test_matmul import form, stated
from test_winograd import SHAPES, convolution
from test_winograd_lanes import always, steps  # noqa: F401 - a fixture
from training_programs import gradients

from lamina.ir.errors import GraphError, KernelError
from lamina.ir.kernel import parse
from lamina.passes.kernels import proof
from lamina.passes.llvm import generate
from lamina.passes.llvm.generate import code_of
from lamina.passes.llvm.link import link
from lamina.passes.programs.batch_innermost import batch_innermost
from lamina.passes.programs.memory_plan import Place, verify
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.plan_memory import plan_memory
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.schedules.steps import Winograd
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import AVX2

# All of them each day, in two seconds: an edit that no longer stands, or that nobody sees, is found at once.
pytestmark = pytest.mark.sampled(1)


def broken(name: str, right: str, wrong: str) -> ModuleType:
    return edited(f"lamina.passes.llvm.{name}", right, wrong)


# ---- kernels
UNSOUND = {
    "a read": ("x[i+1]", "", "may leave dimension 0 of x"),
    "a read before the first": ("x[i-1]", "", "may leave dimension 0 of x"),
    "an index from coordinates": (
        "x[floor_div(coord(2*i), 3)]",
        "",
        "index: floor_div(coord(2*i), 3) is 0 to 7",
    ),
    "one that may be negative": ("x[(coord(i) - 1)]", "", "is -1 to 10"),
    "a store": ("x[i]", "+1", "a store leaves y"),
}


@pytest.mark.parametrize("read, at, said", UNSOUND.values(), ids=UNSOUND)
def test_no_code_is_made_of_an_unsound_kernel(read, at, said):
    size = 7 if "coord(2" in read else 12 if "coord" not in read else 10
    text = f"kernel f(x: f32[{size}]) -> (y: f32[12]) {{\n  parallel i:12\n  y[i{at}] = {read}\n}}"
    kernel = parse(text)
    call = Call(kernel, (Array("x", "f32", (size,)),), (Array("y", "f32", (12,)),))
    with pytest.raises(KernelError) as refusal:
        code_of(call, AVX2)
    assert said in str(refusal.value) and "parallel i:12" in str(refusal.value)  # with the kernel's text


@pytest.mark.parametrize(
    "index, size",
    [
        ("floor_div(coord(2*i), 3)", 8),
        ("remainder(coord(i), 5)", 5),
        ("min(coord(3*i), 4)", 5),
        ("max((coord(i) - 4), 0)", 8),
        ("select((coord(i) < 6), coord(i), 3)", 12),
    ],
)
def test_indices_from_coordinates_are_bounded(index, size):
    text = f"kernel f(x: f32[{{}}]) -> (y: f32[12]) {{{{\n  parallel i:12\n  y[i] = x[{index}]\n}}}}"
    proof.prove(parse(text.format(size)))
    with pytest.raises(KernelError, match="may leave dimension 0"):
        proof.prove(parse(text.format(size - 1)))


# ---- schedules
SUM = """kernel sums(x: f32[5,100]) -> (y: f32[5]) {
  parallel i:5
  s = sum(j:100) x[i, j]
  y[i] = s
}"""
ROWS = """kernel rows(x: f32[7,30]) -> (y: f32[7,30]) {
  parallel i:7 j:30
  y[i, j] = (x[i, j] * 2.0)
}"""
SOFTMAX = """kernel softmax(x: f32[4,99]) -> (y: f32[4,99]) {
  parallel i:4
  hi = max(j:99) x[i, j]
  e[j] = exp((x[i, j] - hi)) for j:99
  z = sum(j:99) e[j]
  y[i, j] = (e[j] / z) for j:99
}"""
LONG = "kernel twice(x: f32[99]) -> (y: f32[99]) {\n  parallel i:99\n  y[i] = (x[i] * 2.0)\n}"
OPEN = "kernel twice[n](x: f32[n,3]) -> (y: f32[n,3]) {\n  parallel i:n j:3\n  y[i, j] = (x[i, j] * 2.0)\n}"
TURNED = "kernel t(x: f32[8,8]) -> (y: f32[8,8]) {\n  parallel i:8 j:8\n  y[i, j] = x[j, i]\n}"

SCHEDULED = {  # the edit, the kernel and its schedule
    "a chunk's end": (
        "units",
        "chunk), self.extent(extent))",
        "chunk), self.sum(self.extent(extent), 1))",
        LONG,
        schedule("vectorise(i) block(i, 32)"),
    ),
    "a chunk's whole blocks": (
        "units",
        "if isinstance(extent, Dim) else extent) - block",
        "if isinstance(extent, Dim) else extent)",
        LONG,
        schedule("vectorise(i) block(i, 32)"),
    ),
    "a row's rest unmasked": (
        "reductions",
        "extent // self.lanes * self.lanes\n",
        "-(-extent // self.lanes) * self.lanes\n",
        SUM,
        schedule("vectorise(j)"),
    ),
    "the last mask": (
        "reductions",
        "self.lanes_below(extent - whole), extent",
        "None, extent",
        SUM,
        schedule("vectorise(j)"),
    ),
    "the last tile": (
        "units",
        'self.integer("sub", self.extent(extent), size)',
        'self.integer("sub", self.extent(extent), size - 1)',
        ROWS,
        schedule("vectorise(j) tile(i, 2)"),
    ),
    "a step of a sum": (
        "reductions",
        "full = last // step * step",
        "full = -(-last // step) * step",
        SUM,
        schedule("scalar() unroll(j, 16)"),
    ),
    "an open axis": (
        "units",
        'self.integer("sub", self.extent(extent), size)',
        'self.integer("sub", self.extent(extent), 1)',
        OPEN,
        schedule("vectorise(j) tile(i, 4)"),
    ),
    "what is kept on the stack": (
        "results",
        "length = -(-extent // self.lanes) * self.lanes",
        "length = extent",
        SOFTMAX,
        schedule("vectorise(j) keep(e)"),
    ),
    "a square of registers": (
        "memory",
        "prod(across.values()) - start)\n",
        "self.lanes)\n",
        TURNED.replace("8,8", "8,4", 1).replace("8,8", "4,8").replace("i:8", "i:4"),
        schedule("vectorise(j) tile(i, 4)"),
    ),
}


def packed(form_of: str, *size: int) -> Call:
    program = pack_matmuls(stated(form(form_of, *size), "f32"), AVX2, Options(frozenset((1,))))
    return next(call for call in program.calls if call.how is not None and call.name == "form")


def long_sum(*size: int) -> Call:
    program = pack_matmuls(stated(form("tn", *size), "f32"), AVX2, Options())
    return next(call for call in program.calls if call.how is not None)


def dots() -> Call:
    program = pack_matmuls(stated(form("nt", 13, 40, 100), "f32"), AVX2, Options())
    return next(call for call in program.calls if call.how is not None)


def rows(case: str = "depthwise") -> Call:
    made = kernels(case, 8, AVX2)
    return Call(made.kernel, (), (), made.how)


def windows(name: str) -> Call:
    b = Builder("step", (16, 5, 9, 8))
    w = b.param("w", (6, 5, 3, 3))
    y = b.op("conv2d", b.image, w, padding=1)
    laid = batch_innermost(b.program(y, *gradients(b, y, b.image, w, padding=1)), AVX2)
    return next(call for call in laid.calls if call.name == name)


FAMILIES = {  # the edit, and a call whose schedule a pass has chosen
    "panels beyond the last": (
        "units",
        "self.panels[axis] = index",
        "self.panels[axis] = self.sum(index, 1)",
        lambda: packed("nn", 40, 100, 16),
    ),
    "the last tile of rows": (
        "units",
        'self.integer("sub", self.extent(extent), size)',
        'self.integer("sub", self.extent(extent), 0)',
        lambda: packed("nn", 43, 64, 16),
    ),
    "a panel's columns": (
        "units",
        "partial(self.columns, corner, rest, act)))",
        "partial(self.columns, corner, width, act)))",
        lambda: packed("nn", 40, 100, 16),
    ),
    "sums without a place": (
        "long_sums",
        "return _panels_of_unit(units) * rows",
        "return rows",
        lambda: long_sum(301, 100, 600),
    ),
    "tiles beyond a unit's rows": (
        "long_sums",
        'count = units.integer("udiv", units.sum(left, size - 1), size)',
        'count = units.integer("udiv", units.sum(left, size - 1), size - 1)',
        lambda: long_sum(301, 100, 600),
    ),
    "panels beyond a unit": (
        "long_sums",
        "end = units.minimum(units.sum(first, count), ",
        "end = units.sum(1, ",
        lambda: long_sum(301, 100, 600),
    ),
    "a copy beyond the factor": (
        "long_sums",
        "corner_point(corner)), extent - count)",
        "corner_point(corner)), extent)",
        lambda: long_sum(301, 100, 600),
    ),
    "a copied row beyond the strip": (
        "long_sums",
        "made = CopiedStrip(array, pitch, copy.axis, start, count,",
        "made = CopiedStrip(array, pitch, copy.axis, start, 8,",
        lambda: long_sum(301, 100, 600),
    ),
    "strips beyond the sum": (
        "long_sums",
        "(index, units.minimum(units.sum(index, strips.size), length))",
        "(index, units.sum(index, strips.size))",
        lambda: long_sum(301, 100, 600),
    ),
    "dots over too many": (
        "reductions",
        "return self.over(stage.axes, points, totals, body, copies, stage)",
        'return self.over((type(stage.axes[0])("k", 104),), points, totals, body, copies, stage)',
        dots,
    ),
    "taps above the image": (
        "reductions",
        "self.minus(factor - 1, rest)",
        "self.minus(factor - 2, rest)",
        rows,
    ),
    "taps below the image": (
        "reductions",
        "self.minus(size - 1 + factor, rest)",
        "self.minus(size + factor, rest)",
        rows,
    ),
    "taps beside the image": (
        "memory",
        "return (True if 0 <= low and high < size",
        "return (True if high < size",
        lambda: rows("padding beyond many tiles"),
    ),
    "windows below": (
        "reductions",
        "self.minus(factor - 1, rest)",
        "self.minus(factor - 2, rest)",
        lambda: windows("conv2d"),
    ),
    "windows above": (
        "reductions",
        "self.minus(size - 1 + factor, rest)",
        "self.minus(size + factor, rest)",
        lambda: windows("conv2d"),
    ),
    "planes' last tile": (
        "units",
        'self.integer("sub", self.extent(extent), size)',
        'self.integer("sub", self.extent(extent), 0)',
        lambda: windows("conv_weight_grad"),
    ),
}


def refused(edit: tuple[str, str, str], kernel, how, monkeypatch) -> None:
    """That an edit of the writer of units, or of what it uses, is refused where the kernel is written."""
    module, right, wrong = edit
    units = importlib.import_module("lamina.passes.llvm.units")
    units.Units(kernel, how, AVX2).function()
    made = broken(module, right, wrong)
    if module == "long_sums":
        monkeypatch.setattr(units, "long_sums", made.long_sums)
        made = units
    elif module != "units":
        base = next(cls for cls in units.Units.__mro__ if cls.__module__.endswith(f".{module}"))
        for key, value in vars(made.__dict__[base.__name__]).items():
            if callable(value) and key != "__init__":
                monkeypatch.setattr(base, key, value)
        made = units
    with pytest.raises(KernelError, match="may leave"):
        made.Units(kernel, how, AVX2).function()


@pytest.mark.parametrize("name", SCHEDULED)
def test_a_writer_that_leaves_its_buffers_is_refused(name, monkeypatch):
    *edit, text, how = SCHEDULED[name]
    refused(tuple(edit), parse(text), how, monkeypatch)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_that_leaves_its_buffers_is_refused(name, monkeypatch):
    *edit, call = FAMILIES[name]
    made = call()
    refused(tuple(edit), made.how.applied(made.kernel), made.how, monkeypatch)


# ---- codes of their own
def winograd(module: ModuleType, spread: bool = False) -> None:
    how = Winograd(4, 4, 4, 2, spread)
    kernel, _ = convolution(SHAPES["odd"], 8, how)
    module.WinogradCode(how, kernel, AVX2).code()


def images(module: ModuleType) -> None:
    laid = batch_innermost(steps((2, 1, 1, 9, 14, 1), 8), AVX2)
    for call in laid.calls:
        if call.how is not None and call.how.winograd:
            module.WinogradCode(call.how.winograd, call.kernel, AVX2).code()


OPAQUE = {
    "a window inside the image": ("conv_winograd", "[(y0, height - n)", "[(y0, height - n + 1)", winograd),
    "a window on its edge": (
        "conv_winograd",
        "f.span(y0, height, n, line)",
        "f.span(y0, height + 1, n, line)",
        winograd,
    ),
    "places beside the output": (
        "conv_winograd",
        "self.extent[s.places[1]], tile, place)",
        "self.extent[s.places[1]] + 1, tile, place)",
        winograd,
    ),
    "the positions of V": (
        "conv_winograd",
        "self.v_size, self.m_size = self.n**2 * self.v_position",
        "self.v_size, self.m_size = self.n * self.v_position",
        winograd,
    ),
    "chunks of channels": ("conv_winograd", "f.each(0, self.chunks,", "f.each(0, self.chunks + 1,", winograd),
    "tiles of a batch": (
        "conv_winograd",
        "self.tiles = self.groups *",
        "self.tiles = (self.groups + 1) *",
        winograd,
    ),
    "scratch of all blocks": (
        "conv_winograd",
        "self.blocks = -(-self.tiles // self.block)",
        "self.blocks = 1",
        lambda m: winograd(m, True),
    ),
    "a window of images": ("conv_winograd", "(x0, width - n)", "(x0, width - n + 1)", images),
    "U's positions": (
        "conv_winograd",
        "self.scratch = self.n**2 * self.u_position",
        "self.scratch = self.n * self.u_position",
        images,
    ),
    "places of images": (
        "conv_winograd",
        "self.extent[s.places[0]], tile, row)",
        "self.extent[s.places[0]] + 1, tile, row)",
        images,
    ),
    "images of a group": (
        "conv_winograd",
        "f.each(0, how.vectors, some)",
        "f.each(0, how.vectors + 1, some)",
        images,
    ),
}


@pytest.mark.parametrize("name", OPAQUE)
def test_a_code_that_leaves_its_buffers_is_refused(name, always):  # noqa: F811
    module, right, wrong, write = OPAQUE[name]
    write(broken(module, "from __future__", "from __future__"))
    with pytest.raises(KernelError):
        write(broken(module, right, wrong))


# ---- memory
def test_a_place_beyond_its_memory_is_refused():
    b = Builder("net", (1, 4, 5, 5))
    plan = verify(plan_memory(b.program(b.op("tanh", b.op("exp", b.image)))))
    (result,) = plan.program.results
    moved = plan.replace(places={**plan.places, result: Place("result", 0, 64)})
    with pytest.raises(GraphError, match="400 bytes at result 0.64 are not inside"):
        verify(moved)


def test_a_piece_that_does_not_fit_its_scratch_is_refused(monkeypatch):
    text = SUM.replace("100", "500000")
    kernel = parse(text)
    x, y = Array("x", "f32", (5, 500000)), Array("y", "f32", (5,))
    assert code_of(Call(kernel, (x,), (y,)), AVX2).scratch
    real = generate._places
    monkeypatch.setattr(generate, "_places", lambda *args: (real(*args)[0], 64))
    other = parse(text.replace("500000", "500032"))
    with pytest.raises(KernelError, match="does not fit its memory"):
        code_of(Call(other, (Array("x", "f32", (5, 500032)),), (y,)), AVX2)


def test_a_program_with_an_unsound_kernel_has_no_code():
    kernel = parse("kernel f(x: f32[3]) -> (y: f32[3]) {\n  parallel i:3\n  y[i] = x[i+1]\n}")
    x, y = Array("x", "f32", (3,)), Array("y", "f32", (3,))
    with pytest.raises(KernelError, match="may leave dimension 0"):
        link(Program("net", (x,), (Call(kernel, (x,), (y,)),), (y,)), AVX2)
