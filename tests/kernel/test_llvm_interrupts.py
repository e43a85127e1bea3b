"""An interrupt in the middle of llvmlite's own Python frees nothing twice."""

import _thread
import subprocess
import sys

import pytest

from lamina.passes.llvm import binding

TEXT = "define void @f() {\n  ret void\n}\n"
# The handler runs as soon as the main thread goes on; where that is the one in llvmlite, between its freeing
# a text and noting so.
SCRIPT = f"""
import signal
from llvmlite.binding import ffi
from lamina.passes.llvm import binding

class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

def close(self):
    if self._ptr is not None:
        ffi.lib.LLVMPY_DisposeString(self._ptr)
        signal.raise_signal(signal.SIGUSR1)
        self._ptr = None

target = binding.host_target()
signal.signal(signal.SIGUSR1, interrupt)
ffi.OutputString.close = close
for _ in range(50):
    try:
        binding.emit_object({TEXT!r}, target)
        print("not interrupted")
    except Interrupt:
        pass
"""

# Interrupts at any moment: while a thread is started, waited for, or let go of.
AT_ANY_MOMENT = """
import random
import signal
import threading
from lamina.passes.llvm import binding

class Interrupt(BaseException):
    pass

def interrupt(*_):
    raise Interrupt

@binding.apart
def note():
    ran_in.add(threading.get_ident())

ran_in, interrupts = set(), 0
signal.signal(signal.SIGALRM, interrupt)
for _ in range(5000):
    try:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(20e-6, 220e-6))
        note()
        note()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        interrupts += 1
assert ran_in and interrupts, (ran_in, interrupts)
assert threading.get_ident() not in ran_in
"""


def test_an_interrupt_between_freeing_and_noting_so_frees_once():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


def test_no_interrupt_has_the_main_thread_enter_llvm():
    done = subprocess.run([sys.executable, "-c", AT_ANY_MOMENT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


FORKED = """
import os
import signal
import time
from lamina.ir.errors import KernelError
from lamina.passes.llvm import binding

child = -1

def fork(*_):
    global child
    child = os.fork()

@binding.apart
def long():
    time.sleep(0.5)

binding.WAIT = 0.05
signal.signal(signal.SIGALRM, fork)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    long()
    failed = False
except KernelError:
    failed = True
if child == 0:
    os._exit(10 + failed)
assert not failed and os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 11
"""


def test_a_child_does_not_wait_for_its_parents_thread():
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_llvm_refuses_is_raised_to_who_asked():
    with pytest.raises(binding.KernelError, match="LLVM refuses the emitted text"):
        binding.emit_object("define", binding.host_target())


def test_code_is_made_where_no_more_threads_can_be_had(monkeypatch):
    def start(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", start)
    binding._emitter.cache_clear()  # which is made on the way, where no other test has
    assert binding.emit_object(TEXT, binding.host_target()).startswith(binding.ELF)


REFUSED = """
import gc
from lamina.ir.errors import KernelError
from lamina.passes.llvm import binding

target = binding.host_target()
texts = {
    "defined twice": ["define void @f() {\\n  ret void\\n}\\n"] * 2,
    "not verified": ["define i32 @f() {\\n  %x = add i32 %y, 1\\n  %y = add i32 %x, 1\\n  ret i32 %y\\n}\\n"],
}
for given in texts.values():
    for make in (binding.emit_position_independent, lambda given, _: binding.emit_object(given[0], target)):
        for _ in range(3):
            try:
                make(given, target)
            except KernelError as error:  # whose frames hold the module and its context, in a circle
                kept = [error]
                kept.append(kept)
                del error
            kept = None
            gc.collect()
"""


def test_a_refused_module_is_freed_before_its_context():
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]
