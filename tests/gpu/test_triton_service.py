"""Codes are compiled in processes beside this one, once, whatever becomes of the processes and the cache."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from lamina.ir.errors import KernelError
from lamina.ir.lazy import MissingLibraryError
from lamina.passes.cache import Cache
from lamina.passes.triton import helper, toolchain
from lamina.passes.triton.binary import Binary
from lamina.passes.triton.code import Code
from lamina.passes.triton.target import Target
from lamina.runtime import compile_helpers, triton_compiler
from lamina.runtime.triton_compiler import Compiler, compiled

pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")

TARGET = Target.named("sm_90")
SOURCE = """\
import triton
import triton.language as tl


@triton.jit
def k{0}(x_ptr, y_ptr):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    tl.store(y_ptr + i, tl.load(x_ptr + i) * {0}.5)
"""


def code_of(number: int) -> Code:
    return Code(f"k{number}", SOURCE.format(number), ("*fp32", "*fp32"), (True, True), 4, 3, 10)


BAD = replace(code_of(0), source=SOURCE.format(0).replace("tl.load", "tl.lod"))


def compile_all(codes: list[Code], helpers: int = 1, cache: Cache | None = None, **options):
    with Compiler(TARGET, cache or Cache(None), helpers, **options) as compiler:
        for code in codes:
            compiler.add(code)
        return compiler, compiler.binaries()


@pytest.fixture(autouse=True)
def no_helpers_before():
    """Each test begins helpers of its own, and leaves none."""
    compile_helpers.end_all()
    yield
    compile_helpers.end_all()
    assert compile_helpers._alive == set()


# ---- what is made
def test_helpers_make_what_the_compiler_makes():
    from lamina.passes.triton.compiler import compile_code

    codes = [code_of(k) for k in range(8)]
    wanted = tuple(compile_code(code, TARGET) for code in codes)
    for helpers in (1, 2):
        compiler, binaries = compile_all(codes, helpers)
        assert binaries == wanted and (compiler.hits, compiler.misses) == (0, 8)
        assert len(compiler._workers) == helpers


def test_one_code_twice_is_compiled_once():
    code = code_of(1)
    compiler, binaries = compile_all([code, code, replace(code, grid=77)])
    assert compiler.misses == 1 and len(binaries) == 3 and len(set(binaries)) == 1


def test_options_and_targets_are_compiled_apart(tmp_path):
    cache, code = Cache(tmp_path), code_of(1)
    others = [
        replace(code, num_warps=8),
        replace(code, num_stages=1),
        replace(code, parameters=("*fp32", "*fp16")),
    ]
    compiler, (one, two, *_) = compile_all([code, *others], 1, cache)
    assert compiler.misses == 4 and (one.num_warps, two.num_warps) == (4, 8)
    with Compiler(Target.named("sm_80"), cache) as compiler:
        compiler.add(code)
        (other,) = compiler.binaries()
    assert compiler.misses == 1 and other.target == "sm_80" and other.code != one.code


def test_nothing_is_a_result_too():
    assert compiled([], TARGET) == ()


def test_progress_is_told_on_the_callers_thread():
    told = []

    def progress(done, total):
        told.append((done, total, threading.current_thread()))

    compile_all([code_of(k % 3) for k in range(6)], progress=progress)
    assert [done for done, _, _ in told] == sorted({done for done, _, _ in told})
    assert told[0][1:] == told[-1][1:] == (3, threading.current_thread()) and told[-1][0] == 3


def test_an_error_of_progress_ends_the_wait():
    def progress(done, total):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compile_all([code_of(1)], progress=progress)


# ---- the cache
def test_what_the_cache_has_is_not_compiled(tmp_path, monkeypatch):
    codes = [code_of(k) for k in range(3)]
    _, binaries = compile_all(codes, 1, Cache(tmp_path))
    monkeypatch.setattr(compile_helpers, "take", lambda: pytest.fail("a helper was asked for"))
    told = []
    compiler, again = compile_all(codes, 1, Cache(tmp_path), progress=lambda *counts: told.append(counts))
    assert again == binaries and (compiler.hits, compiler.misses) == (3, 0)
    assert told == [(3, 3)]


@pytest.mark.parametrize("how", ["damaged", "no binary", "half a binary", "other fields"])
def test_an_entry_that_is_no_binary_is_made_anew(tmp_path, how):
    code = code_of(1)
    compiler, binaries = compile_all([code], 1, Cache(tmp_path))
    (path,) = tmp_path.rglob("*.code")
    key = path.parent.name + path.stem
    if how == "damaged":
        path.write_bytes(path.read_bytes()[:-7] + b"garbage")
    else:
        packed = binaries[0].packed()
        content = {
            "no binary": b"something else",
            "half a binary": packed[: len(packed) // 2],
            "other fields": packed.replace(b"num_warps", b"num_wraps"),
        }[how]
        Cache(tmp_path).put(key, content)
    compiler, again = compile_all([code], 1, Cache(tmp_path))
    assert again == binaries and compiler.misses == 1
    assert Binary.unpacked(Cache(tmp_path).get(key)) == binaries[0]  # the next process finds it whole


def test_a_cache_that_can_not_be_written_costs_nothing_but_time(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    cache = Cache(blocked / "below")
    compiler, binaries = compile_all([code_of(1)], 1, cache)
    assert len(binaries) == 1 and compile_all([code_of(1)], 1, cache)[0].hits == 1
    assert compile_all([code_of(1)], 1, Cache(blocked / "below"))[0].misses == 1


PROGRAM = """
import sys
sys.path.insert(0, {here!r})
from test_triton_service import TARGET, Compiler, code_of
from lamina.passes.cache import default
with Compiler(TARGET) as compiler:
    for k in range({count}):
        compiler.add(code_of(k))
    made = compiler.binaries()
import hashlib
print(compiler.hits, compiler.misses, hashlib.sha256(repr(made).encode()).hexdigest())
assert "triton" not in sys.modules or {allowed}
"""


def process(cache: Path, count: int = 3, allowed: bool = False, more: str = "", **variables: str):
    program = PROGRAM.format(here=str(Path(__file__).parent), count=count, allowed=allowed) + more
    # importing this file asks for Triton itself; a user's process would not
    program = "import pytest; pytest.importorskip = lambda *a, **k: None\n" + program
    environment = {**os.environ, "LAMINA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1", **variables}
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def output(running: subprocess.Popen) -> list[str]:
    out, err = running.communicate()
    assert running.returncode == 0, err
    return out.split()


def test_a_second_process_compiles_nothing(tmp_path):
    first, second = output(process(tmp_path)), output(process(tmp_path))
    assert first[:2] == ["0", "3"] and second[:2] == ["3", "0"]
    assert first[2] == second[2]


def test_two_processes_at_once_agree(tmp_path):
    one, two = process(tmp_path, 5), process(tmp_path, 5)
    first, second = output(one), output(two)
    assert first[2] == second[2]
    assert output(process(tmp_path, 5)) == ["5", "0", first[2]]
    assert len([*tmp_path.rglob("*.code")]) == 5


def test_a_process_that_interprets_compiles_beside_itself(tmp_path):
    assert output(process(tmp_path, 1, TRITON_INTERPRET="1"))[:2] == ["0", "1"]


def test_keys_follow_what_triton_is_and_reads(monkeypatch, tmp_path):
    one = toolchain.identity(TARGET)
    assert "triton 3." in one and one.count("release") == 2  # two versions of ptxas
    amds = toolchain.identity(Target.named("gfx942"))
    assert "release" not in amds and "ocml.bc " in amds and "ocml.bc " not in one
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", "/nowhere")
    assert toolchain.identity(TARGET) == one
    monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    two = toolchain.identity(TARGET)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "none"))
    assert len({one, two, toolchain.identity(TARGET)}) == 3


def test_without_triton_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(toolchain, "find_spec", lambda name: None)
    with pytest.raises(MissingLibraryError, match="triton, which is not installed") as missing:
        compiled([code_of(1)], TARGET)
    assert "pip install 'lamina[gpu]'" in str(missing.value)


# ---- errors
def test_a_refusal_is_told_here_after_all_others_are_made():
    cache = Cache(None)
    for order in ([BAD, code_of(1), code_of(2)], [code_of(1), code_of(2), BAD]):
        with pytest.raises(KernelError, match="^k0: Triton .* refuses it for sm_90") as refused:
            compile_all(order, 1, cache)
        assert any("tl.lod" in line for line in refused.value.details)
    assert compile_all([code_of(1), code_of(2)], 1, cache)[0].hits == 2


def test_a_refusal_is_not_kept():
    cache = Cache(None)
    for _ in range(2):
        with pytest.raises(KernelError):
            compile_all([BAD], 1, cache)


def test_a_helper_goes_on_after_a_refusal():
    with pytest.raises(KernelError):
        compile_all([BAD])
    (one,) = compile_helpers._idle
    compile_all([code_of(1)])
    assert compile_helpers._idle == [one]


# ---- helpers that die
def broken(monkeypatch, tmp_path, before: str, times: int) -> None:
    """Helpers of which the first `times` run some lines in place of what they are for."""
    script = tmp_path / "broken.py"
    script.write_text(
        "import os, pathlib, runpy, signal, sys, time\n"
        f"begun = pathlib.Path({str(tmp_path)!r}, 'begun')\n"
        "count = len(begun.read_text()) if begun.exists() else 0\n"
        "begun.write_text('x' * (count + 1))\n"
        f"if count < {times}:\n    {before}\n"
        f"runpy.run_path({helper.__file__!r}, run_name='__main__')\n"
    )
    monkeypatch.setattr(helper, "__file__", str(script))


WAYS = {
    "at once": ("sys.exit(3)", "exit status 3"),
    "killed": ("sys.stdin.buffer.read(200); os.kill(os.getpid(), signal.SIGKILL)", "signal 9"),
    "talking": ("print('x' * 100, flush=True); sys.exit(4)", "exit status 4|signal 9"),
    "aborting": ("sys.stderr.write('LLVM ERROR: of some kind\\n'); os.abort()", "signal 6"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_helper_that_dies_is_replaced(monkeypatch, tmp_path, way):
    broken(monkeypatch, tmp_path, WAYS[way][0], times=1)
    codes = [code_of(k) for k in range(3)]
    _, binaries = compile_all(codes)
    assert [binary.name for binary in binaries] == ["k0", "k1", "k2"]
    assert (tmp_path / "begun").read_text() == "xx"


@pytest.mark.parametrize("way", WAYS)
def test_a_code_that_ends_its_helper_twice_is_reported(monkeypatch, tmp_path, way):
    broken(monkeypatch, tmp_path, WAYS[way][0], times=2)
    with pytest.raises(KernelError, match="k0: Triton failed to compile it for sm_90, 2 times") as failed:
        compile_all([code_of(0), code_of(1)])
    assert re.search(WAYS[way][1], str(failed.value))
    assert ("LLVM ERROR: of some kind" in str(failed.value)) == (way == "aborting")
    assert (tmp_path / "begun").read_text() == "xxx"  # the next code has a helper of its own


def test_an_idle_helper_that_was_killed_is_replaced(monkeypatch):
    monkeypatch.setattr(triton_compiler, "ATTEMPTS", 1)  # it is seen before it is given a job
    compile_all([code_of(1)])
    (one,) = compile_helpers._idle
    one.process.kill()
    one.process.wait()
    compile_all([code_of(2)])
    (two,) = compile_helpers._idle
    assert two is not one and two.is_alive


def test_a_helper_that_waited_long_is_not_used(monkeypatch):
    compile_all([code_of(1)])
    (one,) = compile_helpers._idle
    one.given -= helper.IDLE
    compile_all([code_of(2)])
    assert compile_helpers._idle != [one] and not one.is_alive


def test_a_helper_of_another_environment_is_not_used(monkeypatch):
    compile_all([code_of(1)])
    (one,) = compile_helpers._idle
    monkeypatch.setenv("SOMETHING_ELSE", "1")
    compile_all([code_of(2)])
    assert compile_helpers._idle == [one]
    monkeypatch.setenv("TRITON_DISABLE_LINE_INFO", "1")  # of the cubin: .loc in the text
    _, (plain,) = compile_all([code_of(3)])
    assert compile_helpers._idle != [one] and ".loc" not in plain.text
    monkeypatch.delenv("TRITON_DISABLE_LINE_INFO")
    assert ".loc" in compile_all([code_of(3)])[1][0].text


def test_a_helper_is_used_again():
    compile_all([code_of(1)])
    (one,) = compile_helpers._idle
    compile_all([code_of(2)])
    assert compile_helpers._idle == [one]


@pytest.mark.parametrize("lack", ["processes", "executable"])
def test_without_processes_it_compiles_here(monkeypatch, lack):
    def refused(*args, **kwargs):
        raise OSError("no more processes")

    if lack == "processes":
        monkeypatch.setattr(compile_helpers, "subprocess", SimpleNamespace(Popen=refused, PIPE=-1))
    else:
        monkeypatch.setattr(sys, "frozen", True, raising=False)
    _, binaries = compile_all([code_of(1)])
    assert binaries[0].name == "k1" and compile_helpers._idle == []


def test_an_error_leaves_no_helper_at_work(monkeypatch, tmp_path):
    broken(monkeypatch, tmp_path, "time.sleep(1000)", times=100)
    with pytest.raises(KeyboardInterrupt), Compiler(TARGET, Cache(None), 2) as compiler:
        for k in range(8):
            compiler.add(code_of(k))
        while len(compile_helpers._alive) < 2:
            time.sleep(0.01)
        ours = [*compile_helpers._alive]
        raise KeyboardInterrupt
    assert all(not one.is_alive for one in ours) and compile_helpers._alive == set()
    assert not any(worker.thread.is_alive() for worker in compiler._workers)


# ---- threads, forks, ends
def test_threads_compile_at_once():
    results: dict[int, tuple[Binary, ...]] = {}

    def work(n: int) -> None:
        results[n] = compile_all([code_of(k) for k in range(n, n + 3)])[1]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {n: [made.name for made in results[n]] for n in results} == {
        n: [f"k{k}" for k in range(n, n + 3)] for n in range(3)
    }


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_helpers_of_its_own():
    compile_all([code_of(1)])
    (ours,) = compile_helpers._idle
    child = os.fork()
    if not child:
        status = 1
        try:
            assert compile_helpers._idle == [] and compile_helpers._alive == set()
            compile_all([code_of(2)])
            (theirs,) = compile_helpers._idle
            status = 0 if theirs.process.pid != ours.process.pid else 2
            compile_helpers.end_all()
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert ours.is_alive
    compile_all([code_of(3)])
    assert compile_helpers._idle == [ours]


def gone(pid: int) -> bool:
    """Whether a process has ended, waiting for it for a while."""
    for _ in range(1000):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


SAY = """
from lamina.runtime import compile_helpers
print(*[one.process.pid for one in compile_helpers._idle])
"""


@pytest.mark.parametrize("how", ["exit", "killed"])
def test_helpers_end_with_the_process_and_leave_nothing(tmp_path, how):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    more = SAY + ("import os; sys.stdout.flush(); os.kill(os.getpid(), 9)\n" if how == "killed" else "")
    loud = {"TMPDIR": str(temporary), "PYTHONWARNINGS": "always::ResourceWarning"}
    running = process(tmp_path / "cache", 1, more=more, **loud)
    out, err = running.communicate()
    assert (running.returncode, err) == (-signal.SIGKILL if how == "killed" else 0, "")
    (pid,) = out.split()[3:]
    assert gone(int(pid))
    assert list(temporary.iterdir()) == []


def test_a_helper_at_work_ends_with_the_process(tmp_path):
    script = tmp_path / "sleeping.py"
    script.write_text("import time\ntime.sleep(1000)\n")
    program = (
        "import sys, threading, time\n"
        "from lamina.passes.triton import helper\n"
        f"helper.__file__ = {str(script)!r}\n"
        "from lamina.passes.triton.code import Code\n"
        "from lamina.passes.triton.target import Target\n"
        "from lamina.runtime import compile_helpers, triton_compiler\n"
        "codes = [Code('k', '', (), (), 4, 3, 1)]\n"
        "work = threading.Thread(target=triton_compiler.compiled, args=(codes, Target.named('sm_90')))\n"
        "work.daemon = True\n"
        "work.start()\n"
        "while not compile_helpers._alive:\n    time.sleep(0.01)\n"
        "print(*[one.process.pid for one in compile_helpers._alive])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert gone(int(done.stdout))


# ---- the helper as a program
def test_the_helper_ends_with_its_input():
    for given in (b"", b"\x05", (5).to_bytes(8, "little") + b"ab"):
        done = subprocess.run([sys.executable, helper.__file__], input=given, capture_output=True, timeout=60)
        assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)


def test_the_helper_imports_little():
    program = (
        "import importlib, runpy, sys\n"
        f"runpy.run_path({helper.__file__!r})['_only_what_is_needed']()\n"
        "importlib.import_module('lamina.passes.triton.compiler')\n"
        "print(*sorted(name for name in sys.modules if name.startswith(('lamina.', 'numpy.', 'torch.'))))\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = set(done.stdout.split())
    assert found == {
        *helper.PACKAGES[1:],
        "lamina.ir.errors",
        "lamina.ir.files",
        "lamina.ir.locks",
        "lamina.ir.own_files",
        "lamina.ir.version",
        "lamina.passes.cache",
        *(f"lamina.passes.triton.{name}" for name in ("binary", "code", "compiler", "ptx", "target")),
    }


def test_a_helper_loads_no_numpy():
    compile_all([code_of(1)])
    (one,) = compile_helpers._idle
    loaded = Path(f"/proc/{one.process.pid}/maps").read_text()
    assert "libtriton" in loaded and "numpy" not in loaded


def assembly(text: str) -> Code:
    """A code with a line of assembly."""
    line = f"    tl.inline_asm_elementwise('{text}', '=r,r', [i], dtype=tl.int32, is_pure=False, pack=1)\n"
    return replace(code_of(0), source=SOURCE.format(0) + line)


def test_what_ptxas_refuses_is_told_once_and_printed_nowhere(capfd):
    with pytest.raises(KernelError, match="refuses it") as refused:
        compile_all([assembly("bogus $0, $1; // " + "x" * 10_000)])  # too long to wait in a buffer
    assert str(refused.value).count("Not a name of any known instruction: 'bogus'") == 1
    assert len(refused.value.details) < 10
    assert capfd.readouterr() == ("", "")
    assert compile_all([code_of(1)])[1][0].name == "k1"


def test_a_code_at_which_llvm_aborts_is_reported(capfd):
    with pytest.raises(KernelError, match="failed to compile it for sm_90, 2 times") as failed:
        compile_all([assembly("mov.b32 $0, $5;"), code_of(1)])
    assert failed.value.details[0] == "its process ended with signal 6"
    assert "Invalid $ operand number in inline asm string" in str(failed.value)
    assert capfd.readouterr() == ("", "")


def test_few_codes_get_one_helper(monkeypatch):
    assert triton_compiler.WORTH_A_HELPER >= 1
    compiler, _ = compile_all([code_of(k) for k in range(triton_compiler.WORTH_A_HELPER)], helpers=4)
    assert len(compiler._workers) == 1
