"""Every kernel family as Triton source: right in Triton's interpreter, with names of its own, sane schedules.

The interpreter runs in processes of its own (triton_numerics.py), side by side with this one's text.
"""

import ast
import builtins
import keyword
import math
import subprocess
import sys
from pathlib import Path

import hypothesis.strategies as st
import pytest
from family_kernels import FAMILIES, HOSTILE, SCHEDULES
from hypothesis import given

from lamina.ir.errors import KernelError
from lamina.ir.kernel import parse, verify
from lamina.ir.kernel.form import names as names_of
from lamina.passes.kernels.proof import prove
from lamina.passes.kernels.residues import apart
from lamina.passes.programs.program_text import parse as read_program
from lamina.passes.schedules.gpu import Along, Dot, Group, Lanes, Precision
from lamina.passes.schedules.steps import Schedule
from lamina.passes.schedules.steps import parse as schedule_of
from lamina.passes.triton.defaults import SHARED, default_schedule
from lamina.passes.triton.emit import lower
from lamina.passes.triton.generate import apart_codes, generate
from lamina.passes.triton.launches import launch_list
from lamina.passes.triton.names import endings, entry
from lamina.passes.triton.schedule import grid, num_stages, num_warps, points, serial
from lamina.passes.triton.target import Target

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "kernel"))
from probes import PROBES  # noqa: E402

NO_TRITON = "Triton is not installed: the extra gpu has it"
pytestmark = pytest.mark.timeout(600)  # some compile or interpret for a minute, undisturbed


def interpreted(*words: str) -> str:
    """What triton_numerics.py prints; each line ends with ok, or the run has failed."""
    pytest.importorskip("triton", reason=NO_TRITON)
    run = subprocess.run(
        [sys.executable, "triton_numerics.py", *words], cwd=HERE, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-3000:]
    return run.stdout


# ---- numerics
def test_triton_families_agree(of_the_day):
    families, probes = of_the_day(FAMILIES, 5), of_the_day(PROBES, 5)
    text = interpreted("families", *families, *probes)
    assert all(f"\n{name}: " in f"\n{text}" for name in (*families, *(f"probe {name}" for name in probes)))
    assert text.count(" ok\n") >= len(families) + len(probes)
    assert SCHEDULES.keys() <= FAMILIES.keys() and len(PROBES) >= 19


GRAPHS = {0: 30, 10: 90, 20: 85, 30: 85, 40: 80, 50: 50}  # ten random graphs each, and their kernels at least


@pytest.mark.sampled(4)
@pytest.mark.parametrize("first", GRAPHS)
def test_triton_composed_kernels_agree(first):
    assert interpreted("fuzz", str(first), "10").count(" ok\n") > GRAPHS[first]


@pytest.mark.slow
def test_triton_composed_kernels_agree_on_many_graphs():
    assert interpreted("fuzz", "1000", "600").count(" ok\n") > 4000


def test_triton_indices_stay_inside_and_offsets_are_wide():
    assert interpreted("outside").count(" ok\n") == 2


# ---- names
def test_triton_source_names_kernel_and_buffers():
    text = "kernel twice(x: f32[9]) -> (y: f32[9]) {\n  parallel i:9\n  y[i] = (x[i] + x[i])\n}"
    source = lower(verify(parse(text)))
    assert "def twice(x_ptr, y_ptr):" in source and "tl.store(y_ptr" in source


names = st.one_of(
    st.sampled_from(HOSTILE),
    st.sampled_from([*keyword.kwlist, *dir(builtins)]),
    st.from_regex(r"[a-z_][a-z0-9_]{0,6}(_ptr|_at|_tile|_start|_helper)?", fullmatch=True),
    st.text(min_size=1, max_size=4),
)


@given(st.lists(names, unique=True, max_size=8), st.lists(names, unique=True, max_size=8), names)
def test_triton_names_never_clash(buffers, axes, kernel):
    pointers, at, tiles = endings(buffers, "ptr"), endings(axes, "at"), endings(axes, "tile")
    made = [*pointers.values(), *at.values(), *tiles.values(), entry(kernel)]
    made += [f"{name}_start" for name in (*at.values(), *tiles.values())]
    made += ["v1", "v22", "tl", "triton", "libdevice", "pid", "add_f32_helper", "float", "range"]
    assert len(set(made)) == len(made)
    assert all(name.isascii() and name.isidentifier() and not keyword.iskeyword(name) for name in made)
    assert entry(kernel) not in dir(builtins)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name.startswith("hostile")])
def test_triton_source_with_hostile_names_means_what_it_says(name):
    """Every name that is read is a parameter, an assignment, or one that the module imports."""
    tree = ast.parse(lower(FAMILIES[name]()[0]))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    made = {function.name for function in functions}
    assert len(made) == len(functions)
    for function in functions:
        arguments = [argument.arg for argument in function.args.args]
        loads = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        stores = {
            n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        assert len(set(arguments)) == len(arguments) and not stores & {*arguments, *made}
        assert loads <= stores | {*arguments, *made, "tl", "triton", "libdevice", "range", "float"}


# ---- schedules
@pytest.mark.parametrize("name", FAMILIES)
def test_triton_schedules_hold_few_numbers_in_registers(name):
    kernel, _ = FAMILIES[name]()
    schedule = default_schedule(kernel)
    block = 1 if schedule.has(Dot) else max((step.size for step in schedule.of(Along)), default=1)
    numbers = math.prod([*(step.size for step in schedule.of(Lanes)), block])
    assert numbers <= 64 * 32 * num_warps(schedule)  # of 255 registers a thread
    assert schedule == default_schedule(kernel) == schedule_of(str(schedule))
    assert grid(kernel, schedule) < 1 << 31


def test_triton_long_rows_are_steps_along_them():
    kernel, _ = FAMILIES["long softmax f32"]()
    assert default_schedule(kernel) == schedule_of("along(row, 4096, r) warps(16)")
    source = lower(kernel)
    assert "range(0, 20001, 4096)" in source and source.count("for ") == 3


def test_triton_columns_are_read_side_by_side():
    """The consecutive axis is a tile, so that neighbouring threads read neighbouring elements."""
    kernel, _ = FAMILIES["columns f32"]()
    assert str(default_schedule(kernel)) == "lanes(column, 64, i) along(row, 32, r)"


def test_triton_points_lie_in_a_tile_as_in_memory():
    """A norm's kernel has its channels first, and they come last in images that lie channels last."""
    text = """kernel norm(x: f32[512,64], m: f32[64]) -> (y: f32[512,64]) {
  parallel c:64 p:512
  y[p, c] = (x[p, c] - m[c])
}"""
    kernel = verify(parse(text))
    assert str(default_schedule(kernel)) == "lanes(flat, 1024, p, c)"
    assert "tl.load(b0_ptr + flat_tile)" in generate(kernel).source


@pytest.mark.parametrize(
    "name, taps", [("conv input grad f32", (1, 2, 2, 4)), ("conv input grad 1 x 1", (0, 0, 0, 1))]
)
def test_triton_strided_input_gradients_have_the_taps_alone_that_reach_a_place(name, taps):
    kernel = FAMILIES[name]()[0]
    parts = apart(prove(kernel))
    assert sorted(points(part, names_of(part.stages[0].axes)) // 24 for part in parts) == sorted(taps)
    codes = apart_codes(kernel)
    assert len({code.name for code in codes}) == 4 and not any("tl.where" in code.source for code in codes)


@pytest.mark.parametrize("word, axes", [("set", ("i",)), ("mul", ("i",)), ("add", ())])
def test_triton_only_points_that_meet_are_put_in_order(word, axes):
    """The rest of the axes stay parallel; what has an atomic stays so altogether."""
    schedule = default_schedule(FAMILIES[f"scatter {word} f32"]()[0])
    (flat,) = schedule.of(Lanes)
    assert serial(schedule) == axes and "j" in flat.axes


def test_triton_products_fit_shared_memory():
    text = """kernel mm(a: f16[4096,4096], b: f16[4096,4096]) -> (y: f16[4096,4096]) {
  parallel i:4096 j:4096
  acc = sum(k:4096) (f32(a[i, k]) * f32(b[k, j]))
  y[i, j] = f16(acc)
}"""
    kernel = verify(parse(text))
    for name, columns in (("sm_90", 256), ("sm_80", 256), ("sm_89", 128), ("gfx942", 256), ("gfx1100", 128)):
        target = Target.named(name)
        schedule = default_schedule(kernel, target)
        (m, n), (k,) = schedule.of(Lanes), schedule.of(Along)
        held = target.buffers(num_stages(schedule))
        assert held * (m.size + n.size) * k.size * 2 <= target.shared - SHARED
        assert (m.size, n.size) == (128, columns)
    schedule = default_schedule(kernel)
    assert num_stages(schedule) == 3 and schedule.has(Group)
    assert "tl.minimum(32 - " in lower(kernel)


def test_triton_dots_say_type_and_precision():
    for name in FAMILIES:
        source = lower(FAMILIES[name]()[0])
        for line in source.splitlines():
            if "tl.dot(" in line:
                assert "out_dtype=tl.float32" in line and "input_precision='ieee'" in line
    assert "tl.dot(" in lower(FAMILIES["conv2d bf16"]()[0])


@pytest.mark.parametrize("half, uses", [("f16", True), ("bf16", True), ("f32", False)])
def test_triton_halves_reach_tensor_cores(half, uses):
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.compiler import compile_code

    for name in (f"matmul {half}", f"conv2d {half}", f"conv weight grad {half}", f"conv input grad {half}"):
        text = compile_code(generate(FAMILIES[name]()[0]), Target.named("sm_90")).text
        assert ("mma" in text) == uses, name


def test_triton_indices_are_wide_only_where_they_must_be():
    def source(n: int) -> str:
        text = f"kernel k(x: u8[{n}]) -> (y: u8[{n}]) {{\n  parallel i:{n}\n  y[i] = x[i]\n}}"
        return lower(verify(parse(text)))

    assert "pid = tl.program_id(0).to(tl.int64)\n" in source((1 << 31) + 5)
    assert "int64" not in source((1 << 31) - 4096)
    text = """kernel k(x: f32[64,128,56,56], y: f32[64,128]) -> (z: f32[64,128,56,56]) {
  parallel n:64 c:128 i:56 j:56
  z[n, c, i, j] = (x[n, c, j, i] * y[n, c])
}"""
    assert "int64" not in lower(verify(parse(text)), schedule_of("lanes(flat, 1024, n, c, i, j)"))


@pytest.mark.parametrize("precision, uses", [("tf32", True), ("tf32x3", True), ("ieee", False)])
def test_triton_rounds_f32_products_only_where_asked(precision, uses):
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.compiler import compile_code

    kernel, _ = FAMILIES["matmul f32"]()
    code = generate(kernel, Schedule(*default_schedule(kernel).steps, Precision(precision)))
    assert ("mma" in compile_code(code, Target.named("sm_90")).text) == uses


# ---- refusals
@pytest.mark.parametrize("write", [lower, generate])
def test_triton_refuses_symbols(write):
    text = "kernel k[n](x: f32[n]) -> (y: f32[n]) {\n  parallel i:n\n  y[i] = x[i]\n}"
    with pytest.raises(KernelError, match="is made for bound kernels"):
        write(verify(parse(text)))


ORDERED = """kernel last(ids: i64[100], v: f32[100]) -> (y: f32[9]) {
  parallel i:100
  y[ids[i]] set= v[i]
}"""


def test_triton_refuses_points_that_meet_in_no_order():
    kernel = verify(parse(ORDERED))
    assert str(default_schedule(kernel)) == "serial(i)"
    with pytest.raises(KernelError, match="so points that meet come in order") as refused:
        lower(kernel, schedule_of("lanes(flat, 64, i)"))
    assert "these axes of the schedule have to be serial: i" in str(refused.value)


PRODUCT = "lanes(m, 32, i1) lanes(n, 32, i2) along(k, 32, r) dot(t)"


@pytest.mark.parametrize(
    "name, how, message",
    [
        ("softmax f32", "vectorise(i)", "vectorise(i) is a step of LLVM text, and this is Triton source"),
        ("softmax f32", "lanes(flat, 64, i) tile(i, 4)", "tile(i, 4) is a step of LLVM text"),
        ("softmax f32", "lanes(flat, 64, q)", "lanes(flat, 64, q) names no axes of the kernel"),
        ("softmax f32", "lanes(flat, 64)", "lanes(flat, 64) names no axes of the kernel"),
        ("softmax f32", "lanes(flat, 64, r)", "lanes(flat, 64, r) is of parallel axes"),
        ("softmax f32", "along(row, 64, i)", "along(row, 64, i) is of local axes"),
        ("softmax f32", "serial(r)", "serial(r) is of parallel axes"),
        ("softmax f32", "lanes(flat, 48, i)", "lanes(flat, 48, i) is of a power of two"),
        ("softmax f32", "warps(3)", "warps(3) is of a power of two"),
        ("softmax f32", "stages(0)", "stages(0) is at least of size 1"),
        ("softmax f32", "warps(4) warps(8)", "a schedule speaks of each step once"),
        ("softmax f32", "lanes(flat, 4, i) serial(i)", "a schedule speaks of each axis once"),
        ("softmax f32", "lanes(flat, 4, i) along(flat, 64, r)", "a schedule speaks of each dimension once"),
        ("softmax f32", "lanes(flat, 4, i) group(8)", "a group is of the tiles of two lanes"),
        ("avg_pool2d", "along(row, 8, r)", "along(row, 8, r) is of the last axes of stages"),
        ("cummax of rows", "along(row, 8, r)", "of stages that take many points at once"),
        ("scatter of all points to few", "serial(i) along(row, 8, j)", "have to be serial: j"),
        ("softmax f32", "dot(t)", "a dot is an f32 sum of products"),
        ("softmax f32", "dot(q)", "dot(q) names no stage of the kernel"),
        ("matmul f32", PRODUCT.replace("i1", "i, i1"), "over lanes of its M and N"),
        ("matmul f32", "lanes(m, 32, i1) along(k, 32, r) dot(t)", "over lanes of its M and N"),
        ("matmul f32", "lanes(m, 32, i1) lanes(n, 32, i2) dot(t)", "along its K"),
        ("matmul f64", PRODUCT, "an f32 sum of products"),
        ("matmul f32", f"{PRODUCT} precision(tf33)", "precision(tf33) is one of ieee, tf32, tf32x3"),
    ],
)
def test_triton_refuses_schedules_that_do_not_fit(name, how, message):
    with pytest.raises(KernelError) as refused:
        lower(FAMILIES[name]()[0], schedule_of(how))
    assert message in str(refused.value)


def test_triton_schedules_rewrite_kernels_first():
    """Axes that are one after `collapse` are named by the first of them."""
    kernel = verify(
        parse("""kernel k(x: f32[6,50]) -> (y: f32[6,50]) {
  parallel i:6 j:50
  y[i, j] = (x[i, j] + 1.0)
}""")
    )
    (axis,) = schedule_of("collapse()").applied(kernel).parallel
    code = generate(kernel, schedule_of(f"collapse() lanes(flat, 256, {axis.name})"))
    assert code.grid == 2 and "< 300)" in code.source


def test_a_programs_text_says_how_a_gpu_runs_it():
    """What stands behind `by` is what its launches are written from; another generator's is refused there."""
    text = """kernel twice(x: f32[6,50]) -> (y: f32[6,50]) {
  parallel i:6 j:50
  y[i, j] = (x[i, j] + x[i, j])
}
program net(%x: f32[6,50]) -> (%y) {
  %y: f32[6,50] = twice(%x) by lanes(row, 64, j) warps(2)
}"""
    program = read_program(text)
    launches, _ = launch_list(program)
    (call,) = program.calls
    assert launches.codes == (generate(call.kernel, schedule_of("lanes(row, 64, j) warps(2)")),)
    assert (launches.codes[0].num_warps, launches.codes[0].grid) == (2, 6)
    with pytest.raises(KernelError, match="is a step of LLVM text"):
        launch_list(read_program(text.replace("lanes(row, 64, j) warps(2)", "vectorise(j)")))
