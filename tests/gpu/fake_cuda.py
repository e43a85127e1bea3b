"""Build the fake driver libraries, run tests on one in processes of their own, and control it there.

cuda-bindings looks for libcuda.so.1 once in a process, so whatever runs on the fake runs in a child, whose
LD_LIBRARY_PATH begins with the folder of the fake, CUDA's or HIP's:

    @on_fake(capacity=1 << 20)
    def test_something(fake):          # runs in the child; the parent reports what it printed if it fails
        device = Driver.open().device()

The child is forked by a process that has loaded the package and has not looked for a driver (`Nest`): to load
it takes a second, which is most of what a case takes.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from lamina.runtime.cuda.driver import Stream

HERE = Path(__file__).parent
CASES: dict[tuple[str, str], Callable[[Fake], None]] = {}
SETTINGS: dict[tuple[str, str], dict] = {}  # of those that are tests
CUDA, HIP = "libcuda.so.1", "libamdhip64.so"
SOLVER, BLAS = "libcusolver.so.12", "libcublas.so.13"  # of CUDA 13, both from one source
SOURCES = {CUDA: "fake_cuda.c", HIP: "fake_hip.c", SOLVER: "fake_solver.c", BLAS: "fake_solver.c"}
LIVE = ("device", "host", "streams", "events", "modules", "contexts")

INVALID_VALUE, OUT_OF_MEMORY, ILLEGAL_ADDRESS, LAUNCH_FAILED = 1, 2, 700, 719


class Launch(ctypes.Structure):
    """What a kernel is launched with, as fake_cuda.c tells the callback."""

    _fields_ = [
        ("_name", ctypes.c_char_p),
        ("_grid", ctypes.c_uint * 3),
        ("_block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("cluster", ctypes.c_uint),
        ("stream", ctypes.c_ulonglong),
        ("_bytes", ctypes.POINTER(ctypes.c_ubyte)),
        ("_nbytes", ctypes.c_int),
    ]
    name = property(lambda self: self._name.decode())
    grid = property(lambda self: tuple(self._grid))
    block = property(lambda self: tuple(self._block))
    parameters = property(lambda self: bytes(self._bytes[: self._nbytes]))

    @property
    def addresses(self) -> list[int]:
        """The parameters of a kernel that takes pointers alone, without the two of scratch memory."""
        return [value for (value,) in struct.iter_unpack("<Q", self.parameters)][:-2]


_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch))


class Fake:
    """The fake library of this process, from the tests' side."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ.get("FAKE_CUDA_LIBRARY", CUDA))
        self._library.fake_calls.restype = self._library.fake_pending.restype = ctypes.c_long
        self._library.fake_blocks.restype = ctypes.c_long
        self._serials = ctypes.c_long.in_dll(self._library, "fake_serials")
        self._kept: object = None
        self._forgiving = False
        self.raised: list[BaseException] = []  # by what `on_launch` was given; a case may not end with any
        self._watch_copies()

    def seed(self, number: int) -> None:
        """Choose another order among the streams; under 0 only what somebody waits for runs."""
        self._library.fake_seed(ctypes.c_ulonglong(number))

    def fail(self, function: str, result: int, nth: int = 1) -> None:
        """Have the nth call of a function from now on return that code and do nothing."""
        self._library.fake_fail(function.encode(), ctypes.c_long(nth), result)

    def calls(self, function: str) -> int:
        return self._library.fake_calls(function.encode())

    def live(self) -> dict[str, int]:
        """How many objects of each kind there are."""
        counts = (ctypes.c_long * len(LIVE))()
        self._library.fake_live(counts)
        return dict(zip(LIVE, counts, strict=True))

    def pending(self) -> int:
        """How many pieces of work are queued and did not run."""
        return self._library.fake_pending()

    def stream(self, handle: int) -> int:
        """The number of a stream, as launches tell it."""
        self._library.fake_stream.restype = ctypes.c_ulonglong
        return self._library.fake_stream(ctypes.c_void_p(handle))

    def is_device(self, address: int, nbytes: int = 1) -> bool:
        """Whether that is within one allocation of device memory."""
        return bool(self._library.fake_is_device(ctypes.c_ulonglong(address), ctypes.c_size_t(nbytes)))

    def blocks(self) -> list[tuple[int, int]]:
        """Address and size of each allocation of device memory."""
        count = self._library.fake_blocks(None, ctypes.c_long(0))
        found = (ctypes.c_ulonglong * (2 * count))()
        self._library.fake_blocks(found, ctypes.c_long(count))
        return sorted(zip(found[::2], found[1::2], strict=True))

    def touched(self, addresses: np.ndarray, size: int, writes: bool) -> None:
        """Say what the kernel that runs now accesses: elements of `size` bytes, u64 addresses."""
        place = addresses.ctypes.data_as(ctypes.c_void_p)
        self._library.fake_touched(place, ctypes.c_long(len(addresses)), size, int(writes))

    def forgive(self, yes: bool = True) -> None:
        """Have accesses that nothing orders be counted (`races`), where they would fail the launch."""
        self._forgiving = yes
        self._library.fake_forgive(int(yes))

    def races(self) -> tuple[int, str]:
        """How many accesses of two streams nothing ordered, and the first of them."""
        first = ctypes.create_string_buffer(256)
        self._library.fake_races.restype = ctypes.c_long
        return self._library.fake_races(first), first.value.decode()

    def finish(self) -> str:
        """Run what is left where there are several streams, as nobody may have waited for a race; the first
        one, if it was not forgiven.
        """
        self._library.fake_finish()
        return "" if self._forgiving else self.races()[1]

    def align(self, kernel: str, alignments: Sequence[int]) -> None:
        """Have launches of a kernel fail whose parameters are no multiples of those numbers of bytes."""
        count = len(alignments)
        self._library.fake_align(kernel.encode(), (ctypes.c_int * count)(*alignments), count)

    def _watch_copies(self) -> None:
        """Tell the library when the memory of a copy's array is freed: C can't see that."""
        into, out_of = Stream.copy_in, Stream.copy_out

        def copy_in(stream: Stream, address: int, array: np.ndarray) -> None:
            into(stream, address, array)
            self._tell_when_gone(array)

        def copy_out(stream: Stream, array: np.ndarray, address: int) -> None:
            out_of(stream, array, address)
            self._tell_when_gone(array)

        Stream.copy_in, Stream.copy_out = copy_in, copy_out  # type: ignore[method-assign]

    def _tell_when_gone(self, array: np.ndarray) -> None:
        owner = array
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        place = ctypes.c_ulonglong(owner.ctypes.data), ctypes.c_size_t(owner.nbytes)
        last = ctypes.c_long(self._serials.value)  # NumPy 2.5 frees before it tells of it
        weakref.finalize(owner, self._library.fake_gone, *place, last).atexit = False

    def on_launch(self, run: Callable[[Launch], int | None]) -> None:
        """Call `run` when a launch's turn has come.

        What it returns is the launch's result, LAUNCH_FAILED if it raises.
        """

        @_CALLBACK
        def callback(launch: object) -> int:
            try:
                return run(launch.contents) or 0  # type: ignore[attr-defined]
            except BaseException as error:
                self.raised.append(error)
                return LAUNCH_FAILED

        self._library.fake_callback(callback)
        self._kept = callback


@cache
def library(name: str = CUDA) -> Path:
    """The folder of a fake library, built anew in this process; it goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="lamina-fake-cuda-"))
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
        + ["-fvisibility=hidden", f"-Wl,-soname,{name}", "-o", folder / name, HERE / SOURCES[name]],
        check=True,
    )
    return folder


def missing() -> str:
    """Why nothing can run on the fake here; empty where it can."""
    if shutil.which("gcc") is None:
        return "gcc builds the fake driver, and is not installed"
    if find_spec("cuda") is None or find_spec("cuda.bindings") is None:
        return "cuda-bindings is not installed: the extra gpu has it"
    return ""


def environment(**settings: object) -> dict[str, str]:
    """The variables of a process on the fake.

    settings: devices, version (as 13000), capability (as 90), capacity (bytes of each device), seed,
    at_exit (1: what is alive is told at the end), library (HIP: AMD's in place of CUDA's), architecture
    (of AMD's devices, as "gfx942"), solver (1: fakes of cuSOLVER and cuBLAS are installed).
    """
    names = [settings.get("library", CUDA), *((SOLVER, BLAS) if settings.get("solver") else ())]
    paths = [*(str(library(name)) for name in names), os.environ.get("LD_LIBRARY_PATH", "")]
    found = {**os.environ, "LD_LIBRARY_PATH": ":".join(filter(None, paths))}
    if settings.get("library") == HIP:  # or the machine's own devices would be taken
        found["CUDA_VISIBLE_DEVICES"] = "-1"
    found["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, sys.path)])
    return found | {f"FAKE_CUDA_{name.upper()}": str(value) for name, value in settings.items()}


def run(arguments: list[str], **settings: object) -> subprocess.CompletedProcess[str]:
    """Run Python with those arguments on the fake.

    settings: as `environment` takes them; those in capitals are themselves variables of the environment.
    """
    plain = {name: str(value) for name, value in settings.items() if name.isupper()}
    fake = {name: value for name, value in settings.items() if not name.isupper()}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env=environment(**fake) | plain,
        capture_output=True,
        text=True,
    )


def inherited(variables: dict[str, str]) -> dict[str, str]:
    """What a process may have read of its environment as it loaded the package."""
    later = ("FAKE_CUDA_", "PYTEST_CURRENT_TEST")  # which the fake reads when it is loaded, and nobody reads
    return {name: value for name, value in variables.items() if not name.startswith(later)}


class Nest:
    """A process on the fake that forks one for each case, from this process's side; one case at a time."""

    def __init__(self, variables: dict[str, str]):
        self.variables = inherited(variables)
        self._folder = tempfile.TemporaryDirectory(prefix="lamina-fake-cases-")
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", __file__], env=self.variables, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        atexit.register(self.end, os.getpid())

    def run(self, arguments: list[str], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a case as `run` does.  An exception, as of a case that takes too long, ends the nest."""
        global _nest
        texts = [Path(self._folder.name) / name for name in ("stdout", "stderr")]
        try:
            print(
                json.dumps([arguments, variables, [*map(str, texts)]]), file=self._process.stdin, flush=True
            )
            status = int(self._process.stdout.readline())
        except BaseException:
            _nest = None
            self.end(os.getpid())
            raise
        return subprocess.CompletedProcess(arguments, status, *(text.read_text() for text in texts))

    def end(self, owner: int) -> None:
        """End the process, and the case that it is at; `owner` alone does."""
        if os.getpid() == owner and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            self._folder.cleanup()


_nest: Nest | None = None


def hatch() -> None:
    """Be a nest: fork a process for each case that is asked for, until nobody is there to ask."""
    import lamina.jit  # what children find loaded; nothing of it looks for a driver
    import lamina.runtime.cuda.executable  # noqa: F401

    gc.freeze()  # or each child looks through all of it
    while asked := sys.stdin.readline():
        arguments, variables, texts = json.loads(asked)
        if (child := os.fork()) == 0:
            os.environ.update(variables)
            for number, path in enumerate((os.devnull, *texts)):
                opened = os.open(
                    path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY, 0o600
                )
                os.dup2(opened, number)
                os.close(opened)
            return tell(*arguments)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    return None


def case(function: Callable[[Fake], None]) -> Callable[[Fake], None]:
    """Have `run_case` find it."""
    CASES[function.__module__, function.__name__] = function
    return function


def run_case(function: Callable[[Fake], None], **settings: object) -> None:
    """Call it in a process of its own, on the fake.  settings: as `run` takes them."""
    global _nest
    named = [function.__module__, function.__name__]
    if any(map(str.isupper, settings)):
        done = run([__file__, *named], **settings)
    else:
        variables = environment(**settings)
        if _nest is not None and _nest.variables != inherited(variables):
            _nest.end(os.getpid())
            _nest = None
        _nest = _nest or Nest(variables)
        done = _nest.run(named, variables)
    if done.returncode:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}{done.stderr}", pytrace=False)
    assert done.stdout.endswith("done\n"), done.stdout  # it came to its end
    assert not done.stderr, done.stderr  # nothing raised where nobody looks, as in a finalizer


def on_hip(module: str, name: str) -> None:
    """Run a case of a test file, as its test does, on the fake of AMD's driver."""
    run_case(CASES[module, name], **(SETTINGS[module, name] | {"library": HIP}))


def on_fake(**settings: object) -> Callable[[Callable[[Fake], None]], Callable[[], None]]:
    """Make a test of a function that takes a Fake: it runs in a process of its own, on the fake.

    settings: as `run` takes them.
    """

    def made(function: Callable[[Fake], None]) -> Callable[[], None]:
        case(function)
        SETTINGS[function.__module__, function.__name__] = settings
        reason = missing()

        @pytest.mark.skipif(bool(reason), reason=reason)
        @pytest.mark.timeout(600)  # compiling takes as long as other processes let it
        def test() -> None:
            run_case(function, **settings)

        test.__name__, test.__doc__, test.__module__ = (
            function.__name__, function.__doc__, function.__module__,
        )  # fmt: skip
        return test

    return made


def tell(module: str, name: str) -> None:
    """Run a case, and print "done" at its end."""
    importlib.import_module(module)
    fake = Fake()
    try:
        CASES[module, name](fake)
    finally:
        race = fake.finish()
        for error in fake.raised:
            print("raised by a launch:", *traceback.format_exception(error))
        if race:
            print("what nothing orders:", race)
    if fake.raised or race:
        sys.exit(1)
    print("done")


if __name__ == "__main__":
    sys.modules["fake_cuda"] = sys.modules["__main__"]
    if sys.argv[1:]:
        tell(*sys.argv[1:])
    else:
        hatch()
