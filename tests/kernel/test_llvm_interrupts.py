"""An interrupt in the middle of llvmlite's own Python frees nothing twice."""

import subprocess
import sys
import threading

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


def test_an_interrupt_between_freeing_and_noting_so_frees_once():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_llvm_refuses_is_raised_to_who_asked():
    with pytest.raises(binding.KernelError, match="LLVM refuses the emitted text"):
        binding.emit_object("define", binding.host_target())


def test_code_is_made_where_no_more_threads_can_be_had(monkeypatch):
    def start(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert binding.emit_object(TEXT, binding.host_target()).startswith(binding.ELF)
