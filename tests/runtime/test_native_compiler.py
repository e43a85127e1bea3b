"""Compiling beside helper processes gives the same objects, whatever becomes of the helpers."""

import os
import subprocess
import sys
import time

import pytest

from lamina.ir.errors import KernelError
from lamina.passes.cache import Cache
from lamina.passes.llvm import helper
from lamina.passes.llvm.binding import emit_object, host_target
from lamina.runtime import compiler as module
from lamina.runtime.compiler import Compiler


def texts(count: int, lines: int = 400) -> list[str]:
    """Modules of one function each, long enough that helpers get some."""
    made = []
    for k in range(count):
        body = "\n".join(f"  %v{n + 1} = fmul float %v{n}, {k + 1}.5" for n in range(lines))
        made.append(f"define float @f{k}(float %v0) {{\n{body}\n  ret float %v{lines}\n}}\n")
    return made


@pytest.fixture
def eager(monkeypatch):
    """A helper from the first text on."""
    monkeypatch.setattr(module, "WORTH_A_HELPER", 0)


def compile_all(given: list[str], helpers: int | None = 2, cache: Cache | None = None, pause: float = 0.0):
    with Compiler(host_target(), cache or Cache(None), helpers) as compiler:
        for text in given:
            compiler.add(text)
        time.sleep(pause)
        return compiler, compiler.objects()


def test_helpers_make_the_same_objects(eager):
    given = texts(12)
    wanted = tuple(emit_object(text, host_target()) for text in given)
    for helpers in (0, 1, 2):
        compiler, objects = compile_all(given, helpers)
        assert objects == wanted and compiler.misses == 12 and len(compiler._helpers) == helpers


def test_helpers_do_some_of_the_work(eager, monkeypatch):
    here = []
    emit = module.emit_object
    monkeypatch.setattr(module, "emit_object", lambda text, target: here.append(text) or emit(text, target))
    for _ in range(20):  # on a busy machine a helper may begin too late
        here.clear()
        compile_all(texts(4), pause=0.5)
        if len(here) < 4:
            return
    pytest.fail("the helpers did nothing")


def test_a_helper_begins_only_where_a_core_is_idle(eager, monkeypatch):
    for idle in (False, True):
        monkeypatch.setattr(module, "a_core_is_idle", lambda idle=idle: idle)
        compiler, _ = compile_all(texts(4), None)
        assert bool(compiler._helpers) == idle


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_runs_now_counts_and_not_what_ran(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    told = tmp_path / "loadavg"
    for text, idle in (
        ("8.00 7.00 6.00 1/99 5", True),
        ("0.00 0.00 0.00 2/99 5", False),
        ("?", False),
    ):
        told.write_text(text)
        assert module.a_core_is_idle(str(told)) == idle
    assert not module.a_core_is_idle(str(tmp_path / "none"))


LOOP = """define void @loop(ptr %p, i64 %n, i64 %m) {
  br label %body
body:
  %i = phi i64 [0, %0], [%next, %body]
  %row = mul i64 %i, %m
  %at = getelementptr float, ptr %p, i64 %row
  %x = load float, ptr %at
  %y = fadd float %x, 1.0
  store float %y, ptr %at
  %next = add i64 %i, 1
  %again = icmp slt i64 %next, %n
  br i1 %again, label %body, label %exit
exit:
  ret void
}
"""


def test_a_text_alone_is_compiled_with_the_options_that_it_asks_for(eager):
    asking = f"; -disable-lsr\n{LOOP}"
    plain, asked = (emit_object(text, host_target()) for text in (LOOP, asking))
    assert plain != asked
    for given in ([LOOP, asking], [asking, LOOP]):
        for helpers in (0, 1):
            _, objects = compile_all(given, helpers, pause=0.5)
            assert objects == tuple({LOOP: plain, asking: asked}[text] for text in given)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_threads_of_this_process_that_spin_do_not_count(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    told, tasks = tmp_path / "loadavg", tmp_path / "task"
    told.write_text("0.00 0.00 0.00 2/99 5")
    for number, states in enumerate(("R", "RS", "RR")):
        for thread, state in enumerate(states):
            (tasks / str(thread)).mkdir(parents=True, exist_ok=True)
            (tasks / str(thread) / "stat").write_text(f"{thread} (a name) with ) {state} 1 2 3")
        assert module.a_core_is_idle(str(told), str(tasks)) == (number == 2)


def test_one_text_twice_is_compiled_once():
    (text,) = texts(1)
    compiler, objects = compile_all([text, text, text])
    assert len(set(objects)) == 1 and len(objects) == 3 and compiler.misses == 1


def test_what_the_cache_has_is_not_compiled(tmp_path):
    given = texts(3)
    _, objects = compile_all(given, cache=Cache(tmp_path))
    compiler, again = compile_all(given, cache=Cache(tmp_path))
    assert again == objects and (compiler.hits, compiler.misses) == (3, 0)


@pytest.mark.parametrize("script", ["", "raise SystemExit(1)", "import sys; sys.stdin.buffer.read(100)"])
def test_helpers_that_die_lose_nothing(eager, monkeypatch, tmp_path, script):
    broken = tmp_path / "broken.py"
    broken.write_text(script)
    monkeypatch.setattr(helper, "__file__", str(broken))
    given = texts(5)
    for pause in (0.0, 0.2):
        _, objects = compile_all(given, pause=pause)
        assert objects == tuple(emit_object(text, host_target()) for text in given)


def test_without_processes_it_works_alone(eager, monkeypatch):
    def refused(*args, **kwargs):
        raise OSError("no more processes")

    monkeypatch.setattr(module.subprocess, "Popen", refused)
    compiler, objects = compile_all(texts(3))
    assert len(objects) == 3 and compiler._helpers == []


def test_a_text_that_llvm_refuses_is_an_error_here(eager):
    given = [*texts(3), "define void @bad() { ret i32 }"]
    for order in (given, given[::-1]):
        for pause in (0.0, 0.2):
            with pytest.raises(KernelError, match="LLVM refuses the emitted text"):
                compile_all(order, pause=pause)


def test_an_error_leaves_no_helper_behind(eager):
    compiler = Compiler(host_target(), Cache(None), 2)
    with pytest.raises(KeyboardInterrupt), compiler:
        for text in texts(6):
            compiler.add(text)
        raise KeyboardInterrupt
    assert compiler._helpers and all(one.process.poll() is not None for one in compiler._helpers)


def test_the_helper_ends_with_its_input():
    for given in (b"", b"\x05", (5).to_bytes(8, "little") + b"ab"):
        done = subprocess.run([sys.executable, helper.__file__], input=given, capture_output=True, timeout=60)
        assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)
