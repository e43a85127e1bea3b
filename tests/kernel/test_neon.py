"""Kernels for AArch64, under emulation, against the interpreter; the thread pool and shared objects too."""

import subprocess
from dataclasses import replace

import emulated
import native
import numpy as np
import pytest
import test_conv_gradients
import test_conv_programs
import test_conv_rows
import test_elf
import test_generate
import test_kernel_llvm
import test_matmul
import test_ulp
import test_winograd
import test_winograd_lanes
from byte_programs import SDOT, compiled, i8, op, u8
from image_programs import arguments
from native import call_of, guarded, run_code
from probes import INPLACE, PROBES, normal
from test_kernel_llvm import DTYPES, SCAN_READ_LATER, SCHEDULES, TOLERANCE, close
from test_winograd_lanes import always  # noqa: F401 - a fixture
from training_programs import random_step

from lamina.ir.kernel import NUMPY, VOCABULARY, interpret, parse, verify
from lamina.ir.kernel.types import kind
from lamina.passes.llvm import binding, blas_jobs, enter, pool
from lamina.passes.llvm.binding import emit_object, emit_position_independent, host_target, machine
from lamina.passes.llvm.code import Code, Phase
from lamina.passes.llvm.elf import shared_object
from lamina.passes.llvm.generate import code_of
from lamina.passes.llvm.link import link
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.pack_matmuls import Options
from lamina.passes.programs.program import interpret as interpret_program
from lamina.passes.schedules.steps import parse as schedule
from lamina.passes.schedules.target import BASELINE, DOTPROD, NEON

pytestmark = pytest.mark.skipif(
    bool(emulated.MISSING), reason=f"not installed: {', '.join(emulated.MISSING)}"
)


@pytest.fixture(scope="module", autouse=True)
def emulator():
    with emulated.Emulator() as native.emulator:
        yield native.emulator
    native.emulator = None


@pytest.mark.sampled(3)
# ---- kernels
@pytest.mark.parametrize("name", PROBES)
def test_probes(name):
    kernel, arrays = PROBES[name].kernel, PROBES[name].arrays()
    wanted = interpret(kernel, *arrays, exact=name not in ("dropout", "halves"))
    for how in [None, *SCHEDULES.get(name, [])]:
        for got, want in zip(run_code(kernel, arrays, NEON, how), wanted, strict=True):
            close(got, want, (name, how))


@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "i8", "u8", "u32", "bool"])
def test_every_word(dtype):
    """All words of a dtype in one kernel, the operands of each its own."""
    inputs, outputs, stores, arrays, words = [], [], [], [], []
    for name, word in VOCABULARY.items():
        if kind(dtype) not in word.kinds or name in ("mulhi", "random_bits") and dtype != "u32":
            continue
        operands = list(test_kernel_llvm._operands(word, dtype, np.random.default_rng(0)))
        names = [f"{name}_{k}" for k in range(len(operands))]
        inputs += [f"{x}: {t}[37]" for x, (t, _) in zip(names, operands, strict=True)]
        arrays += [a for _, a in operands]
        outputs.append(f"y_{name}: {'bool' if word.pattern.endswith(':b') else dtype}[37]")
        stores.append(f"  y_{name}[i] = {word(*(test_kernel_llvm.read(x, ('i',)) for x in names))}")
        words.append(name)
    text = f"kernel k({', '.join(inputs)}) -> ({', '.join(outputs)}) {{\n  parallel i:37\n"
    kernel = verify(parse(text + "\n".join(stores) + "\n}"))
    wanted = interpret(kernel, *arrays)
    for name, got, want in zip(words, run_code(kernel, arrays, NEON), wanted, strict=True):
        if want.dtype.kind != "f":
            np.testing.assert_array_equal(got, want, err_msg=name)
        else:
            eps = np.finfo(want.dtype).eps
            rtol, atol = TOLERANCE.get(name, (10, 1e-3))
            np.testing.assert_allclose(got, want, rtol=rtol * eps, atol=atol * eps, err_msg=name)


@pytest.mark.parametrize("target", [SDOT, NEON], ids=lambda target: target.name)
@pytest.mark.parametrize("first", [i8, u8], ids=["i8", "u8"])
def test_products_of_bytes(first, target):
    """By `sdot`, which takes both factors signed, and by a widening multiplication."""
    arrays = [first(9, 52), i8(52, 37)]
    _, program = compiled(lambda x, w: op("int_matmul", x, w), arrays, target, 1)
    (call,) = (call for call in program.calls if call.kernel.name == "int_matmul")
    given = [u8(*a.shape).view(NUMPY[a.dtype]) for a in call.inputs]
    (found,) = run_code(call.kernel, given, target, call.how)
    np.testing.assert_array_equal(found, interpret(call.kernel, *given)[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("source", DTYPES)
def test_every_cast(source):
    x = (np.random.default_rng(0).standard_normal(37) * 20).astype(np.float32).astype(NUMPY[source])
    if NUMPY[source].kind == "f":
        x[:4] = [0.0, -0.0, 0.49999997, 3.5]
    outputs = ", ".join(f"y_{dtype}: {dtype}[37]" for dtype in DTYPES)
    stores = [f"  y_{d}[i] = {f'{d}(x[i])' if d != source else 'x[i]'}" for d in DTYPES]
    text = f"kernel k(x: {source}[37]) -> ({outputs}) {{\n  parallel i:37\n"
    kernel = verify(parse(text + "\n".join(stores) + "\n}"))
    for got, want in zip(run_code(kernel, [x], NEON), interpret(kernel, x), strict=True):
        np.testing.assert_array_equal(got, want, err_msg=str(want.dtype))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "i64", "i16", "u8", "bool"])
def test_every_remainder_of_a_vector(dtype):
    test_generate.test_every_remainder_of_a_vector_stays_in_its_array(dtype, NEON)


@pytest.mark.parametrize("how", [None, schedule("vectorise(i)"), schedule("scalar(i)")], ids=str)
def test_scans(how):
    kernel = verify(parse(SCAN_READ_LATER))
    x = normal(np.random.default_rng(0), 19, 29)
    for got, want in zip(run_code(kernel, [x], NEON, how), interpret(kernel, x), strict=True):
        close(got, want, how)


def test_inplace():
    kernel = verify(parse(INPLACE.replace(" strides(66,2)", "")))
    x, b = normal(np.random.default_rng(0), 8, 33), normal(np.random.default_rng(1), 33)
    (got,) = run_code(kernel, [x, b], NEON)
    np.testing.assert_array_equal(got, x + b)


def test_stores_past_the_caches():
    """A release orders them here: no fence follows."""
    kernel = verify(
        parse("kernel k(x: f32[4096]) -> (y: f32[4096]) {\n  parallel i:4096\n  y[i] = (x[i] + 1.0)\n}")
    )
    how = schedule("vectorise(i, 4) block(i, 1024) stream()")
    x = np.arange(4096, dtype=np.float32)
    (got,) = run_code(kernel, [x], NEON, how)
    np.testing.assert_array_equal(got, x + 1)
    code = code_of(call_of(kernel, how), NEON)
    assert "!nontemporal" in code.text and "fence" not in code.text
    assert "sfence" in code_of(call_of(kernel, how), BASELINE).text
    assembly = machine(NEON).emit_assembly(binding.llvm.parse_assembly(code.text))
    assert "stnp" in assembly


@pytest.mark.parametrize(
    "word, dtype", [case for case in test_ulp.CASES if case[0] in ("exp", "log", "tanh")]
)
def test_errors_of_words(word, dtype, monkeypatch):
    monkeypatch.setattr(test_ulp, "LEVELS_HERE", (NEON,))
    monkeypatch.setattr(test_ulp, "POINTS", test_ulp.POINTS[::7])
    test_ulp.test_error_is_bounded(word, dtype)


@pytest.mark.sampled(3)
# ---- families
@pytest.mark.parametrize("weight", [False, True], ids=["", "weight"])
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
def test_products(form, weight):
    options = Options(frozenset((1,)) if weight else frozenset())
    for size in test_matmul.SIZES:
        test_matmul.check(test_matmul.stated(test_matmul.form(form, *size), "f32"), NEON, options)
    test_matmul.check(test_matmul.stated(test_matmul.form(form, 33, 50, 40), "f64"), NEON, options)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", test_conv_rows.CASES)
def test_convolutions_by_rows(case):
    test_conv_rows.test_code_agrees_with_its_kernel(case, NEON)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", test_winograd.SHAPES)
def test_winograd_over_channels(name):
    test_winograd.test_code_agrees_with_its_kernel(name, NEON)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", test_winograd_lanes.SHAPES)
def test_winograd_over_images(always, name):  # noqa: F811
    test_winograd_lanes.test_every_shape(always, test_winograd_lanes.SHAPES[name], NEON)


@pytest.mark.parametrize("seed", range(3))
def test_windows_and_their_gradients(seed):
    test_conv_gradients.check(random_step(seed), NEON, seed)


@pytest.mark.parametrize("name", ["network", "random 4"])
def test_networks(name):
    test_conv_programs.test_calls_agree_with_their_kernels(name, NEON)


# ---- what is about kernels
def test_kernels_linked_by_another_linker(tmp_path):
    """Objects as this process would load them, beside those that elf.py makes."""
    objects, codes = [], {}
    for name in ("softmax", "matmul", "argmax", "halves", "bincount"):
        codes[name] = code = code_of(call_of(PROBES[name].kernel), NEON)
        objects.append(tmp_path / f"{name}.o")
        objects[-1].write_bytes(emit_object(code.text, NEON))
    program = emulated.build(tmp_path / "linked", emulated.SOURCE, *objects)
    with emulated.Emulator(program) as run:
        for name, code in codes.items():
            kernel, arrays = PROBES[name].kernel, PROBES[name].arrays()
            outputs = [guarded(np.zeros(b.shape, NUMPY[b.dtype])) for b in kernel.outputs]
            assert run(code, [*arrays, *outputs])
            for got, want in zip(outputs, interpret(kernel, *arrays, exact=name != "halves"), strict=True):
                close(got, want, name)


def test_a_whole_program(emulator, tmp_path):
    """The main function, which calls kernels through the pool, as a shared object: what an export holds."""
    program = assign_layouts(test_conv_programs.PROGRAMS["network"], NEON)
    linked = link(program, NEON)
    manifest = linked.manifest
    assert manifest.symbols == ("lamina_main_0",)
    start = f"""
declare i64 @lamina_main_0(ptr)
declare void @lamina_pool_launch(ptr, ptr, ptr, i64, i64, i64)
define void @start(ptr %table, i64 %lo, i64 %hi) {{
entry:
  %some = icmp slt i64 %lo, %hi
  br i1 %some, label %go, label %end
go:
  %pool = load ptr, ptr %table, align 8
  %launch = getelementptr i8, ptr %pool, i64 {pool.LAUNCH}
  store ptr @lamina_pool_launch, ptr %launch, align 8
  %limit = getelementptr i8, ptr %pool, i64 {pool.LIMIT}
  store i32 1, ptr %limit, align 4
  %grain = getelementptr i8, ptr %pool, i64 {pool.GRAIN}
  store i64 1000, ptr %grain, align 8
  %done = call i64 @lamina_main_0(ptr %table)
  br label %end
end:
  ret void
}}
"""
    data = emit_position_independent([pool.text(NEON.platform), *linked.texts, start], NEON)
    path = tmp_path / "program.so"
    path.write_bytes(shared_object(data, ["start"], path.name))
    given = arguments(program)
    results = [np.full(shape, np.nan, NUMPY[dtype]) for dtype, shape in manifest.results]
    before = [np.zeros(pool.SIZE, np.uint8), np.zeros(8, np.uint8), np.full(manifest.arena, 255, np.uint8)]
    kernel = program.calls[0].kernel
    code = Code(kernel, "", (Phase("start", 1, 1.0),))
    assert emulator(code, [*before, *given, *results, *linked.constants], path)
    for got, want in zip(results, interpret_program(program, *given), strict=True):
        atol = 5e-6 * max(1, np.abs(want).max(initial=0))  # of Winograd's, as in test_conv_programs.py
        np.testing.assert_allclose(got, want, rtol=0, atol=atol)


def test_a_shared_object_with_data_of_its_own(emulator, tmp_path):
    """Pointers in data, data that is written, and another library's function through a pointer to it."""
    entry = """
declare double @powers(i64)
declare i64 @twice()
declare double @fabs(double)
define void @all(ptr %args, i64 %lo, i64 %hi) {
  %out = load ptr, ptr %args
  %p = call double @powers(i64 %lo)
  %t = call i64 @twice()
  %n = sitofp i64 %t to double
  %s = fadd double %p, %n
  %at = getelementptr double, ptr %out, i64 %lo
  %f = select i1 true, ptr @fabs, ptr null
  %m = fneg double %s
  %v = call double %f(double %m)
  store double %v, ptr %at
  ret void
}
"""
    data = emit_position_independent((*test_elf.TEXTS, entry), NEON)
    path = tmp_path / "data.so"
    path.write_bytes(shared_object(data, ["all"], path.name))
    out = np.zeros(3)
    kernel = parse("kernel k() -> (y: f64[3]) {\n  parallel i:3\n  y[i] = 0.0\n}")
    assert emulator(Code(kernel, "", (Phase("all", 3, 1.0, serial=True),)), [out], path)
    np.testing.assert_array_equal(out, [2 + 41 + 42, 3 + 43 + 44, 5 + 45 + 46])


def test_the_pool(tmp_path):
    places = ("SIZE", "LIMIT", "ALIVE", "SPIN", "GRAIN", "SLEEPERS")
    flags = [f"-D{place}={getattr(pool, place)}" for place in places]
    clock = f"define i64 @ticks() {{\n{NEON.platform.clock.format(name='%now')}\n  ret i64 %now\n}}\n"
    (tmp_path / "pool.o").write_bytes(emit_object(pool.text(NEON.platform) + clock, NEON))
    program = emulated.build(
        tmp_path / "run_pool", *flags, emulated.SOURCE.with_name("run_pool.c"), tmp_path / "pool.o"
    )
    subprocess.run(emulated.command(program), check=True, timeout=60)


def test_all_other_text_compiles():
    """What is entered from Python, and OpenBLAS's jobs: run on no such machine yet."""
    emit_object(pool.text(NEON.platform) + blas_jobs.text(NEON.platform), NEON)
    emit_position_independent([enter.text(16)], NEON)


def test_such_a_machine_has_it(monkeypatch):
    monkeypatch.setattr(binding.llvm, "get_default_triple", lambda: "aarch64-unknown-linux-gnu")
    monkeypatch.setattr(binding.llvm, "get_host_cpu_name", lambda: "neoverse-n1")
    monkeypatch.setattr(
        binding.llvm, "get_host_cpu_features", lambda: binding.llvm.FeatureMap(neon=True, dotprod=True)
    )
    own = host_target.__wrapped__()
    wanted = replace(NEON, cpu="neoverse-n1", features="+dotprod,+neon", quads=DOTPROD, quads_signed=True)
    assert own == wanted


# ---- planted bugs
def test_an_object_relocated_wrongly_is_seen(monkeypatch, emulator):
    from lamina.passes.llvm import elf_machines

    monkeypatch.setitem(elf_machines._AArch64._LOW, 299, 8)  # LDST128 in units of eight bytes
    code = code_of(call_of(PROBES["softmax"].kernel.replace(name="other"), schedule("vectorise(j, 3)")), NEON)
    (x,) = PROBES["softmax"].arrays()
    y = guarded(np.zeros_like(x))
    with pytest.raises(AssertionError):
        emulator(code, [x, y], emulator.library(code, NEON))
        close(y, interpret(code.kernel, x)[0], "softmax")
