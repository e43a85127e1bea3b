"""Every kernel family as Triton source: right in Triton's interpreter, with names of its own, sane schedules.

The interpreter runs in processes of its own (triton_numerics.py), side by side with this one's text.
"""

import ast
import builtins
import keyword
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import pytest
from family_kernels import FAMILIES, HOSTILE
from hypothesis import given

from lamina.ir.errors import KernelError
from lamina.ir.kernel import parse, verify
from lamina.passes.triton.defaults import SHARED, default_schedule
from lamina.passes.triton.emit import lower
from lamina.passes.triton.generate import generate
from lamina.passes.triton.names import endings, entry
from lamina.passes.triton.schedule import Schedule, Tile, grid

HERE = Path(__file__).parent
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
def test_triton_families_agree():
    text = interpreted("families")
    assert all(f"\n{name}: " in f"\n{text}" for name in FAMILIES)
    assert text.count(" ok\n") >= len(FAMILIES) + 19  # the probes


def test_triton_composed_kernels_agree():
    assert interpreted("fuzz", "0", "60").count(" ok\n") > 400


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
    blocks = [] if schedule.dot else [max((block.size for block in schedule.blocks), default=1)]
    numbers = math.prod([*(tile.size for tile in schedule.tiles), *blocks])
    assert numbers <= 64 * 32 * schedule.num_warps  # of 255 registers a thread
    assert schedule == default_schedule(kernel)
    assert grid(kernel, schedule) < 1 << 31


def test_triton_long_rows_are_steps_along_them():
    kernel, _ = FAMILIES["long softmax f32"]()
    assert default_schedule(kernel).blocks[0].size == 4096
    source = lower(kernel)
    assert "range(0, 20001, 4096)" in source and source.count("for ") == 3


def test_triton_columns_are_read_side_by_side():
    """The consecutive axis is a tile, so that neighbouring threads read neighbouring elements."""
    kernel, _ = FAMILIES["columns f32"]()
    schedule = default_schedule(kernel)
    assert schedule.tiles == (Tile("column", ("i",), 64),) and schedule.blocks[0].size == 32


@pytest.mark.parametrize("word, serial", [("set", ("i",)), ("mul", ("i",)), ("add", ())])
def test_triton_only_points_that_meet_are_put_in_order(word, serial):
    """The rest of the axes stay parallel; what has an atomic stays so altogether."""
    schedule = default_schedule(FAMILIES[f"scatter {word} f32"]()[0])
    assert schedule.serial == serial and "j" in schedule.tiles[0].axes


def test_triton_products_fit_shared_memory():
    text = """kernel mm(a: f16[4096,4096], b: f16[4096,4096]) -> (y: f16[4096,4096]) {
  parallel i:4096 j:4096
  acc = sum(k:4096) (f32(a[i, k]) * f32(b[k, j]))
  y[i, j] = f16(acc)
}"""
    kernel = verify(parse(text))
    for shared in (SHARED, 64 * 1024, 48 * 1024):
        schedule = default_schedule(kernel, shared)
        (m, n), (k,) = schedule.tiles, schedule.blocks
        assert schedule.num_stages * (m.size + n.size) * k.size * 2 <= shared
    assert default_schedule(kernel).num_stages == 3 and default_schedule(kernel).group > 1
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
    from lamina.passes.triton.target import Target

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
    assert "int64" not in lower(verify(parse(text)), Schedule((Tile("flat", ("n", "c", "i", "j"), 1024),)))


@pytest.mark.parametrize("precision, uses", [("tf32", True), ("ieee", False)])
def test_triton_rounds_f32_products_only_where_asked(precision, uses):
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton.compiler import compile_code
    from lamina.passes.triton.target import Target

    kernel, _ = FAMILIES["matmul f32"]()
    code = generate(kernel, replace(default_schedule(kernel), precision=precision))
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
    assert default_schedule(kernel).serial == ("i",)
    with pytest.raises(KernelError, match="so points that meet come in order") as refused:
        lower(kernel, Schedule((Tile("flat", ("i",), 64),)))
    assert "these axes of the schedule have to be serial: i" in str(refused.value)
