"""Every probe becomes machine code for NVIDIA and AMD, without GPU and torch; refusals say where and why."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from functools import reduce
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from ptx_accesses import widest

from lamina.ir.errors import KernelError
from lamina.ir.kernel import NUMPY, parse, verify
from lamina.ir.kernel.words import VOCABULARY
from lamina.passes.schedules.gpu import Stages, Warps
from lamina.passes.schedules.steps import Schedule
from lamina.passes.triton.binary import Binary
from lamina.passes.triton.code import ALIGNMENT, Code
from lamina.passes.triton.defaults import default_schedule
from lamina.passes.triton.generate import generate
from lamina.passes.triton.schedule import grid
from lamina.passes.triton.target import NAMES, Target

PROBES_AT = Path(__file__).parent.parent / "kernel"
sys.path.insert(0, str(PROBES_AT))
from probes import INPLACE, PROBES  # noqa: E402

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")
MACHINES = {"cuda": 190, "hip": 224}  # EM_CUDA and EM_AMDGPU, of an ELF file's head
NO_TRITON = "Triton is not installed: the extra gpu has it"


@pytest.fixture(scope="module")
def compiler():
    pytest.importorskip("triton", reason=NO_TRITON)
    from lamina.passes.triton import compiler

    return compiler


# ---- targets
def test_targets_are_known_by_name():
    for name in NAMES:
        target = Target.named(name)
        assert target.name == name and target.shared >= 64 * 1024
        assert (target.backend, target.warp) == ("cuda", 32) if name[0] == "s" else target.backend == "hip"
    assert [Target.named(name).architecture for name in TARGETS] == [80, 90, 100, "gfx942"]
    assert [Target.named(name).has_tma for name in TARGETS] == [False, True, True, False]
    assert [Target.named(name).warp for name in ("gfx942", "gfx1100")] == [64, 32]


@pytest.mark.parametrize("name", ["sm_61", "sm90", "90", "", "gfx000", "cpu"])
def test_unknown_targets_are_refused(name):
    with pytest.raises(KernelError, match="is no GPU that kernels are compiled for") as refused:
        Target.named(name)
    assert "sm_90" in str(refused.value)


# ---- codes and binaries as bytes
words = st.text(max_size=20)
numbers = st.integers(0, 1 << 40)
some_words, some_truths = (st.lists(one, max_size=4).map(tuple) for one in (words, st.booleans()))
codes = st.builds(Code, words, words, some_words, some_truths, numbers, numbers, numbers)
pairs = st.tuples(numbers, numbers)
binaries = st.builds(
    Binary, words, st.binary(), words, numbers, numbers, numbers, pairs, pairs, st.sampled_from(NAMES)
)


@given(codes)
def test_codes_come_back_from_json(code):
    assert Code.from_json(code.json()) == code


@pytest.mark.parametrize("text", ["", "3", "[]", "{}", '{"name": "k"}', '{"parameters": []}', b"\xff"])
def test_other_json_is_no_code(text):
    with pytest.raises((ValueError, TypeError)):
        Code.from_json(text)


@given(binaries)
def test_binaries_come_back_from_bytes(binary):
    assert Binary.unpacked(binary.packed()) == binary


@given(binaries, st.data())
def test_cut_binaries_are_refused(binary, data):
    whole = binary.packed()
    with pytest.raises((ValueError, TypeError)):
        Binary.unpacked(whole[: data.draw(st.integers(0, len(whole) - 1))])


# ---- names
def test_names_are_equal_where_texts_are():
    found = [generate(probe.kernel) for probe in PROBES.values()]
    found += [replace_warps(PROBES[name].kernel) for name in ("add", "softmax")]
    for one in found:
        assert f"def {one.name}(" in one.source and one.name.isidentifier()
        for other in found:
            assert (one.name == other.name) == (one.source == other.source)
    assert len({code.name for code in found}) == len(found)


def replace_warps(kernel) -> Code:
    """The same text under another number of warps."""
    steps = default_schedule(kernel).steps
    return generate(kernel, Schedule(*(step for step in steps if not isinstance(step, Warps)), Warps(8)))


@pytest.mark.parametrize("num_warps, num_stages", [(8, 3), (4, 2)])
def test_names_tell_options_apart(num_warps, num_stages):
    kernel = PROBES["add"].kernel
    steps = default_schedule(kernel).steps
    one = generate(kernel, Schedule(*steps, Warps(4), Stages(3)))
    other = generate(kernel, Schedule(*steps, Warps(num_warps), Stages(num_stages)))
    assert one.name != other.name and one.source != other.source
    assert one.source.replace(one.name, "") == other.source.replace(other.name, "")


def test_names_tell_alignments_apart():
    kernel = PROBES["add"].kernel
    count = len(kernel.buffers)
    found = {generate(kernel, aligned=[k != n for k in range(count)]).name for n in range(count)}
    assert len(found | {generate(kernel).name}) == count + 1


def pointwise(name: str, x: str, axes: str) -> str:
    sizes = ",".join(part.split(":")[1] for part in axes.split())
    at = ", ".join(part.split(":")[0] for part in axes.split())
    return (
        f"kernel {name}({x}: f32[{sizes}]) -> (out: f32[{sizes}]) {{\n"
        f"  parallel {axes}\n  out[{at}] = ({x}[{at}] * 2.0)\n}}"
    )


@pytest.mark.parametrize(
    "text",
    [
        pointwise("other", "x", "i:6 j:1000"),
        pointwise("k", "input", "i:6 j:1000"),
        pointwise("k", "x", "row:6 column:1000"),
        pointwise("k", "x", "n:6000"),
        pointwise("k", "x", "n:2 c:3 i:10 j:100"),
    ],
)
def test_kernels_that_do_the_same_are_one_code(text):
    assert generate(verify(parse(text))) == generate(verify(parse(pointwise("k", "x", "i:6 j:1000"))))


def test_kernels_that_do_another_thing_are_not():
    base = pointwise("k", "x", "i:6 j:1000")
    changed = [base.replace("2.0", "3.0"), base.replace("f32", "f64"), base.replace("* ", "+ ")]
    found = {generate(verify(parse(text))).name for text in (base, *changed)}
    assert len(found) == 4


# ---- machine code
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROBES)
def test_probe_compiles(compiler, name, target):
    target = Target.named(target)
    code = generate(PROBES[name].kernel)
    binary = compiler.compile_code(code, target)
    assert binary.code[:4] == b"\x7fELF"
    assert int.from_bytes(binary.code[18:20], "little") == MACHINES[target.backend]
    assert binary.name == code.name and code.name.encode() in binary.code
    entry = f".entry {code.name}(" if target.backend == "cuda" else f".amdhsa_kernel {code.name}"
    assert entry in binary.text
    assert (binary.num_warps, binary.num_ctas, binary.target) == (code.num_warps, 1, target.name)
    assert 0 <= binary.shared <= target.shared
    assert binary.global_scratch == binary.profile_scratch == (0, 1)
    assert code.parameters and all(parameter.startswith("*") for parameter in code.parameters)
    assert code.grid >= 1
    assert Binary.unpacked(binary.packed()) == binary


@pytest.mark.parametrize("name", NAMES)
def test_every_target_is_one_of_tritons(compiler, name):
    binary = compiler.compile_code(generate(PROBES["softmax"].kernel), Target.named(name))
    (line,) = [
        line for line in binary.text.splitlines() if line.strip().startswith((".target", ".amdgcn_target"))
    ]
    assert line.rstrip('"').endswith((name, f"{name}a"))  # sm_90a: with what later cards need not have


@pytest.mark.parametrize("name", PROBES)
def test_no_access_is_wider_than_its_pointer_is_aligned(compiler, name):
    """Of pointers that may lie anywhere only elements are read and written, whatever the others are."""
    sizes = {buffer: NUMPY[b.dtype].itemsize for buffer, b in PROBES[name].kernel.buffers.items()}
    count = len(sizes)
    for aligned in ((False,) * count, tuple(k % 2 == 0 for k in range(count))):
        code = generate(PROBES[name].kernel, aligned=aligned)
        found = widest(compiler.compile_code(code, Target.named("sm_90")).text, count)
        for width, size, is_aligned in zip(found, sizes.values(), aligned, strict=True):
            assert width <= (ALIGNMENT if is_aligned else size), (found, sizes, aligned)


def test_aligned_pointers_are_accessed_widely(compiler):
    kernel = verify(parse(pointwise("k", "x", "i:1024")))
    for aligned, widths in (((True, True), [16, 16]), ((False, True), [4, 16]), ((True, False), [16, 4])):
        binary = compiler.compile_code(generate(kernel, aligned=aligned), Target.named("sm_90"))
        assert widest(binary.text, 2) == widths


def test_inplace_view_compiles(compiler):
    kernel = verify(parse(INPLACE))
    code = generate(kernel)
    assert len(code.parameters) == 3 and compiler.compile_code(code, Target.named("sm_90")).code
    assert code.grid == grid(kernel, default_schedule(kernel))


def test_a_code_compiles_alike_whenever_and_wherever(compiler):
    code = generate(PROBES["matmul"].kernel)
    one, two = (compiler.compile_code(code, Target.named("sm_90")) for _ in range(2))
    assert one == two


def test_products_and_sums_are_fused(compiler):
    text = pointwise("k", "x", "i:1000").replace("* 2.0", "* 2.5) + x[i]").replace("= (x", "= ((x")
    binary = compiler.compile_code(generate(verify(parse(text))), Target.named("sm_90"))
    assert "fma.rn.f32" in binary.text


def test_no_function_flushes_subnormal_numbers(compiler):
    """But for approximations, which libdevice's functions use within ranges of their own in either mode."""
    words = [word for word in VOCABULARY.values() if word.pattern in ("t:t", "tt:t") and "f" in word.kinds]
    calls = [
        f"{word.name}({', '.join(['x[i]'] * word.arity)})"
        for word in words
        if (word.spelling("triton", "f") or "").startswith(("tl.", "libdevice."))
    ]
    assert len(calls) > 25
    for part in (calls[::2], calls[1::2]):
        total = reduce(lambda one, two: f"max({one}, {two})", part)
        kernel = verify(parse(pointwise("k", "x", "i:1000").replace("(x[i] * 2.0)", total)))
        text = compiler.compile_code(generate(kernel), Target.named("sm_90")).text
        flushing = {op for op in re.findall(r"\S+\.ftz\S*", text) if ".approx." not in op}
        assert "fma.rn.f32" in text and not flushing


# ---- refusals
HEAD = """\
import triton
import triton.language as tl


@triton.jit
def helper(a, b):
    return a + tl.nothing(b)


@triton.jit
def k(x_ptr, y_ptr):
    i = tl.arange(0, 64)
"""
ASSEMBLY = (
    "    x = tl.inline_asm_elementwise('bogus $0, $1;', '=r,r', [i], dtype=tl.int32, is_pure=False, pack=1)\n"
    "    tl.store(y_ptr + i, x)\n"
)


@pytest.mark.parametrize(
    "body, line, message",
    [
        ("    tl.store(y_ptr + i, tl.nothing(i))\n", 13, "has no attribute 'nothing'"),
        ("    tl.store(y_ptr + i, helper(i, i))\n", 7, "has no attribute 'nothing'"),
        ("    tl.store(y_ptr + i, tl.arange(0, 32))\n", 13, "64 and 32"),
        ("    tl.store(y_ptr + tl.arange(0, 33), 0.0)\n", 13, "must be a power of 2"),
        ("    tl.store(y_ptr + i, q)\n", 13, "q is not defined"),
        ("    tl.store(y_ptr +\n", 13, "was never closed"),
        (ASSEMBLY, None, "Not a name of any known instruction: 'bogus'"),
    ],
)
def test_what_triton_refuses_is_told_with_its_line(compiler, body, line, message):
    code = Code("k", HEAD + body, ("*fp32", "*fp32"), (True, True), 4, 3, 1)
    with pytest.raises(KernelError, match="^k: Triton .* refuses it for sm_90") as refused:
        compiler.compile_code(code, Target.named("sm_90"))
    error = refused.value
    assert any(message in detail for detail in error.details)
    if line is not None:
        assert error.details[0] == f"line {line}: {code.source.splitlines()[line - 1].strip()}"


def test_parameters_must_fit_the_function(compiler):
    code = Code("k", HEAD + "    tl.store(y_ptr + i, 0.0)\n", ("*fp32",), (True,), 4, 3, 1)
    with pytest.raises(KernelError, match="refuses it"):
        compiler.compile_code(code, Target.named("sm_90"))


def test_too_much_shared_memory_is_refused(compiler):
    code = generate(PROBES["softmax"].kernel)
    target = Target.named("sm_90")
    needed = compiler.compile_code(code, target).shared
    assert needed and compiler.compile_code(code, replace(target, shared=needed)).shared == needed
    with pytest.raises(KernelError, match=f"needs {needed} bytes of shared memory: a block of sm_90 has"):
        compiler.compile_code(code, replace(target, shared=needed - 1))


# ---- what a process that compiles must not do
def run(program: str, *, path: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program in a process of its own."""
    start = f"import sys; sys.path.insert(0, {str(PROBES_AT)!r})\n"
    start += f"sys.path.insert(0, {str(path)!r})\n" if path else ""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.run(
        [sys.executable, "-c", start + program], capture_output=True, text=True, env=environment
    )


COMPILE = """
from probes import PROBES
from lamina.passes.triton.generate import generate
from lamina.passes.triton.target import Target
code = generate(PROBES["softmax"].kernel)
assert "triton" not in sys.modules
from lamina.ir.errors import KernelError
from lamina.passes.triton.compiler import compile_code
for name in ("sm_90", "gfx942"):
    try:
        compile_code(code, Target.named(name))
    except KernelError as error:
        print(error)
"""


@pytest.fixture
def decoy(tmp_path):
    """A folder with a torch that leaves a mark when it is imported, since the error alone may be caught."""
    package = tmp_path / "path" / "torch"
    package.mkdir(parents=True)
    mark = tmp_path / "torch_was_imported"
    package.joinpath("__init__.py").write_text(
        f"open({str(mark)!r}, 'w').close()\nraise ImportError('the decoy was imported')\n"
    )
    return package.parent, mark


def test_torch_is_never_imported(compiler, decoy):
    path, mark = decoy
    done = run(COMPILE, path=path)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert not mark.exists()
    run("import torch", path=path)
    assert mark.exists()  # the decoy is one


def test_nothing_is_left_on_the_disk(compiler, tmp_path):
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    home.mkdir()
    temporary.mkdir()
    done = run(COMPILE, HOME=str(home), TMPDIR=str(temporary), TRITON_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert sorted(tmp_path.rglob("*")) == [home, temporary]


@pytest.mark.parametrize("at_import", [True, False], ids=["at the import", "not at the import"])
@pytest.mark.parametrize("after", [True, False], ids=["after it", "not after it"])
def test_a_process_that_interprets_is_told_so(compiler, at_import, after):
    change = f"import os; os.environ['TRITON_INTERPRET'] = '{int(after)}'\n"
    done = run(COMPILE.replace("for name", change + "for name"), TRITON_INTERPRET=str(int(at_import)))
    assert done.returncode == 0, done.stderr
    told = done.stdout.count("can't be compiled in a process whose Triton interprets")
    assert told == 2 * (at_import or after)


def test_tritons_settings_are_as_before(compiler, monkeypatch):
    import triton

    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    before = triton.knobs.cache.dir, dict(os.environ)
    compiler.compile_code(generate(PROBES["add"].kernel), Target.named("sm_80"))
    assert (triton.knobs.cache.dir, dict(os.environ)) == before


def test_a_helper_spares_tritons_hash_of_itself(compiler):
    program = (
        "import triton\n"
        "from types import SimpleNamespace\n"
        "from lamina.passes.triton.compiler import begin_sooner\n"
        "begin_sooner()\n"
        "part = SimpleNamespace(hash=lambda: 'part')\n"
        "key = triton.runtime.cache.get_cache_key(part, part, part, {})\n"
        "assert key == f'{triton.__version__}-part-part-part-[]', key\n"
    )
    done = run(program)
    assert done.returncode == 0, done.stderr
