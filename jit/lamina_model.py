"""Runs an exported model where NumPy is the only package there is.

Every exported file holds this module, so Python can import it out of the file:

    import sys
    sys.path.insert(0, "model.lam")
    import lamina_model
    y = lamina_model.run(x)

The file is a zip archive of uncompressed members: manifest.json, graph.txt, weights.safetensors, one shared
library for each level of CPU, and this module.  Everything is compared with its hash before it is used; what
does not fit raises ModelError, and nothing of it is run.  (Native code that is loaded can do anything: load
files from those you trust, or have `lamina.jit.load(path, native=False)` compile the graph anew.)
"""

import ctypes
import hashlib
import json
import os
import signal
import sys
import threading
import zipfile

import numpy as np

FORMAT = 1
DTYPES = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "bool": np.bool_,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8,
}  # fmt: skip
STORED = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "BOOL": np.bool_,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8,
}  # fmt: skip
# What Linux calls the instructions that a level needs, beyond the one below it.
LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
}


class ModelError(Exception):
    """The file is no model, is damaged, or can't run on this machine."""


def cpu_levels():
    """The levels that this machine has, best first."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return []
    with open("/proc/cpuinfo") as file:
        flags = next((set(line.split()[2:]) for line in file if line.startswith("flags")), set())
    found = []
    for level in reversed(LEVELS):
        if not LEVELS[level] <= flags:
            break
        found.insert(0, level)
    return found


def read(path):
    """The members of a model's file, each compared with its hash.  Raises ModelError."""
    try:
        with zipfile.ZipFile(path) as archive:
            text = archive.read("manifest.json")
            if hashlib.sha256(text).hexdigest().encode() != archive.comment:
                raise ModelError(f"{path}: manifest.json is damaged, or this is no model")
            manifest = json.loads(text)
            if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
                raise ModelError(f"{path}: a model of another format; this module reads format {FORMAT}")
            members = {}
            for name, digest in manifest["sha256"].items():
                members[name] = archive.read(name)
                if hashlib.sha256(members[name]).hexdigest() != digest:
                    raise ModelError(
                        f"{path}: {name} is damaged: it does not have the hash it was written with"
                    )
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, EOFError, NotImplementedError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise ModelError(f"{path} is no model that lamina exported, or it is damaged: {error}") from None
    return manifest, members


def tensors(data):
    """The arrays of a safetensors file, by name."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    found = {}
    for name, about in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + at for at in about["data_offsets"])
            dtype = np.dtype(STORED[about["dtype"]])
            found[name] = np.frombuffer(data[begin:end], dtype).reshape(about["shape"])
    return found


def address(array):
    return array.__array_interface__["data"][0]


def aligned(shape, dtype):
    """An array that begins at a multiple of 64 bytes."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(count + 64, np.uint8)
    start = -address(memory) % 64
    return memory[start : start + count].view(dtype).reshape(shape)


class _Pool:
    """The threads that a library's code runs on; a forked child begins with none and makes its own."""

    def __init__(self, library, layout, threads):
        self.layout, self.threads = layout, threads
        self.memory = aligned((layout["size"],), np.uint8)
        self.address = address(self.memory)
        self.worker = ctypes.cast(library.lamina_pool_worker, ctypes.c_void_p).value
        self.launch = ctypes.cast(library.lamina_pool_launch, ctypes.c_void_p).value
        self.asleep = True
        self.reset()
        os.register_at_fork(after_in_child=self.reset)

    def word(self, name, kind=ctypes.c_int64):
        return kind.from_address(self.address + self.layout[name])

    def reset(self):
        self.memory[:] = 0
        self.word("limit", ctypes.c_int32).value = 1
        for name in ("spin", "grain"):
            self.word(name).value = self.layout[f"{name}_value"]
        self.word("launch").value = self.launch
        self.asleep = True

    def wake(self):
        """Begin the workers: threads of the system that never hold Python's lock, and get no signals."""
        self.asleep = False
        libc, handle = ctypes.CDLL(None), ctypes.c_ulong()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            for _ in range(self.threads - 1):
                self.word("alive", ctypes.c_int32).value += 1
                arguments = (
                    ctypes.byref(handle),
                    None,
                    ctypes.c_void_p(self.worker),
                    ctypes.c_void_p(self.address),
                )
                if libc.pthread_create(*arguments):
                    self.word("alive", ctypes.c_int32).value -= 1
                    break
                libc.pthread_detach(handle)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.word("limit", ctypes.c_int32).value = self.word("alive", ctypes.c_int32).value + 1


class _Program:
    """One native program: its table, its arena and its entry.

    fixed: arrays of its last params, the same at every call.
    """

    def __init__(self, library, about, constants, pool, fixed):
        self.results = [(tuple(shape), np.dtype(DTYPES[dtype])) for dtype, shape in about["results"]]
        self.keep = [*constants, *fixed]
        self.arena = aligned((about["arena"],), np.uint8)
        self.enter = [getattr(library, symbol) for symbol in about["entries"]]
        for function in self.enter:
            function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_int64
        behind = 3 + len(about["params"])  # the table: pool, threads, arena, params, results, constants
        self.table = np.zeros(behind + len(self.results) + len(constants), np.int64)
        self.table[:3] = pool.address, 1 << 30, address(self.arena)
        self.table[behind - len(fixed) : behind] = [address(array) for array in fixed]
        self.table[behind + len(self.results) :] = [address(constant) for constant in constants]
        self.given = slice(3, behind - len(fixed))
        self.made = slice(behind, behind + len(self.results))
        self.at = address(self.table)

    def run(self, arrays):
        """The results for dense arrays of the first params' types, which the caller has looked at."""
        results = [aligned(shape, dtype) for shape, dtype in self.results]
        self.table[self.given] = [address(array) for array in arrays]
        self.table[self.made] = [address(array) for array in results]
        for enter in self.enter:
            if enter(self.at):
                raise IndexError("an index is out of range")
        return results


class Model:
    """An exported model.  `run(*inputs)` takes arrays and returns what the traced function returned.

    threads: how many to run on; LAMINA_NUM_THREADS, or as many as the process may use.  level: of the CPU
    ("x86-64-v3"), by default the best that this machine has.  Raises ModelError.
    """

    def __init__(self, path, threads=None, level=None):
        path = os.fspath(path)
        self.manifest, members = read(path)
        self.graph = members["graph.txt"].decode()
        have = cpu_levels()
        usable = [name for name in self.manifest["levels"] if name in have]
        if level is not None and level not in usable or not usable:
            raise ModelError(
                f"{path} holds code for {', '.join(self.manifest['levels'])}; this machine runs "
                f"{', '.join(have) or 'none of them'}" + (f", and {level} was asked for" if level else "")
            )
        self.level = level or usable[0]
        about = self.manifest["levels"][self.level]
        library = _loaded(members[about["library"]])
        threads = int(threads or os.environ.get("LAMINA_NUM_THREADS") or len(os.sched_getaffinity(0)))
        self.pool = _Pool(library, about["pool"], max(1, threads))
        stored = tensors(members["weights.safetensors"])
        self._weights = [np.ascontiguousarray(stored[name]) for name in self.manifest["weights"]]

        def program(part, fixed):
            constants = [np.ascontiguousarray(stored[name]) for name in about[part]["constants"]]
            return _Program(library, about[part], constants, self.pool, fixed)

        if self.pool.asleep and self.pool.threads > 1:
            self.pool.wake()
        # Packed and transformed weights: once, for this machine's vectors.
        packed = program("prologue", []).run([self._weights[at] for at in about["frozen"]])
        self._main = program("main", [self._weights[at] for at in about["kept"]] + packed)
        self._lock = threading.Lock()
        self.inputs = [(name, dtype, tuple(shape)) for name, dtype, shape in self.manifest["inputs"]]
        self._types = [(np.dtype(DTYPES[dtype]), shape) for _, dtype, shape in self.inputs]

    def run(self, *inputs):
        """The model's outputs for these arrays.  Raises TypeError, ValueError for arrays that don't fit."""
        quick = len(inputs) == len(self._types) and all(
            type(x) is np.ndarray and (x.dtype, x.shape) == kind and x.flags.carray
            for x, kind in zip(inputs, self._types, strict=True)
        )
        given = inputs if quick else fitting(inputs, self.inputs)
        with self._lock:
            if self.pool.asleep and self.pool.threads > 1:
                self.pool.wake()
            results = self._main.run(given)
        return built(self.manifest["outputs"], results)


def _loaded(data):
    """The shared library of these bytes, without a file that others could see or change."""
    handle = os.memfd_create("lamina_model")  # never closed: the loader knows a library by this number
    try:
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(data)
        return ctypes.CDLL(f"/proc/self/fd/{handle}")
    except OSError as error:
        raise ModelError(f"the native code can't be loaded: {error}") from None


def fitting(inputs, wanted):
    """The inputs as dense arrays of just the types wanted.  Raises TypeError, ValueError."""
    if len(inputs) != len(wanted):
        names = ", ".join(name for name, _, _ in wanted)
        raise TypeError(f"the model takes {len(wanted)} arrays ({names}), not {len(inputs)}")
    return [_fitting(x, *about) for x, about in zip(inputs, wanted, strict=True)]


def _fitting(x, name, dtype, shape):
    """`x` as a dense array of just that type."""
    array, wanted = np.asarray(x), np.dtype(DTYPES[dtype])
    if dtype == "bf16" and array.dtype.name == "bfloat16":
        array = array.view(np.uint16)
    if array.dtype != wanted:
        raise TypeError(f"{name} is {dtype}{list(shape)}, not {array.dtype}: convert it with x.astype(...)")
    if array.shape != shape:
        raise ValueError(f"{name} is {dtype}{list(shape)}, the array given is {list(array.shape)}")
    return np.require(array, wanted, ["C", "A"])


def built(tree, results):
    """The results in the structure that the function returned: an index, or ["tuple", ...] and the like."""
    if isinstance(tree, int):
        return results[tree]
    kind, *rest = tree
    if kind == "value":
        return rest[0]
    if kind == "dict":
        return {key: built(value, results) for key, value in rest}
    items = [built(item, results) for item in rest]
    return tuple(items) if kind == "tuple" else items


_model = None
_making = threading.Lock()


def model():
    """The model of the file that this module was imported from."""
    global _model
    with _making:
        if _model is None:
            archive = getattr(globals().get("__loader__"), "archive", None)
            if archive is None:
                raise ModelError(
                    "this module was not imported out of a model's file",
                    'sys.path.insert(0, "model.lam") comes before the import',
                )
            _model = Model(archive)
        return _model


def run(*inputs):
    """The model's outputs for these arrays."""
    return model().run(*inputs)
