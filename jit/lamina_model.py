"""Runs an exported model where NumPy is the only package there is.

This module is a file of its own, which `python -m lamina export --loader lamina_model.py` writes:

    import lamina_model
    model = lamina_model.load("model.lam")
    y = model.run(x)

Every exported file holds it as well, so Python can import it out of the file:

    import sys
    sys.path.insert(0, "model.lam")
    import lamina_model
    y = lamina_model.run(x)

The second way is for files that you trust as you trust a program: whatever else such an archive holds (a
`json.py`, say) is imported from it as well, before anything in it is looked at.

Where the file holds code for the machine's GPU, and cuda-bindings is installed, `run(x, device="cuda")` and
`load("model.lam", device="cuda")` run it there.

A file is a zip archive of uncompressed members: manifest.json, graph.txt, weights.safetensors, one shared
library for each level of CPU, the cubins for each architecture of GPU, and this module.  Sizes are compared
with the file's before anything is read, and everything with its hash before it is used; what does not fit
raises ModelError, and nothing of it is run.  That finds damage.  It does not find malice: native code that is
loaded can do anything, so load files from those you trust, or have `lamina.jit.load(path, native=False)`
compile the graph anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import operator
import os
import re
import signal
import stat
import struct
import sys
import threading
import weakref
import zipfile

import numpy as np

# Of files whose sizes are numbers, of those with sizes that change, and of those with code for GPUs as well,
# whose sizes are numbers.
STATIC, FORMAT, WITH_GPUS = 1, 2, 3
KEPT = 64  # sets of sizes whose programs are kept
ODD = EOFError, RuntimeError, OverflowError, MemoryError  # what zipfile and json raise besides
DTYPES = {
    "f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "bool": np.bool_,
    "i64": np.int64, "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8,
}  # fmt: skip
MANIFEST, GRAPH, WEIGHTS = "manifest.json", "graph.txt", "weights.safetensors"
POOL_WORDS = {"limit", "alive", "spin", "grain", "launch"}
POOL = {"size", "spin_value", "grain_value", *POOL_WORDS}
WAKE = 128  # where a pool's futex is, which older files don't say
FUTEX, FUTEX_WAKE = {"x86_64": 202, "aarch64": 98}, 129  # the system call, and waking within the process
# What Linux calls the instructions that a level needs, beyond the one below it.
LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
    "x86-64-v2": {"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"},
}
ARM = "armv8-a"  # of which there is one, that every AArch64 has
# What makes arrays of sizes: (function, its result's shape, dtype).  It stands behind this text in a file of
# its own.
TABLES: dict = {}
# What runs a model elsewhere than on the CPU, by the kind of device: (path, device, max_bytes) to a model.
# It stands behind this text as well.
DEVICES: dict = {}


class ModelError(Exception):
    """The file is no model, is damaged, or can't run on this machine."""


class DeviceError(ModelError):
    """Machine code that is not what it should be: what parts behind this text raise."""

    def __init__(self, rule, *details):
        super().__init__("; ".join((rule, *details)))


def cpu_levels():
    """The levels that this machine has, best first."""
    machine = os.uname().machine
    if sys.platform != "linux" or machine not in FUTEX:
        return []
    if machine == "aarch64":
        return [ARM]
    with open("/proc/cpuinfo") as file:
        flags = next((set(line.split()[2:]) for line in file if line.startswith("flags")), set())
    found = []
    for level in reversed(LEVELS):
        if not LEVELS[level] <= flags:
            break
        found.insert(0, level)
    return found


def read(path):
    """The manifest and the members of a model's file, each compared with its hash.  Raises ModelError."""
    try:
        with _opened(path) as file, zipfile.ZipFile(file) as archive:
            return _members(archive, os.fstat(file.fileno()).st_size)
    except FileNotFoundError:
        raise
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from None
    except (OSError, zipfile.BadZipFile, struct.error, ValueError, *ODD) as error:
        raise ModelError(f"{path} is no model that lamina exported, or it is damaged: {error}") from None


def _opened(path):
    """The file at a path, which must be a regular one: a pipe would have us wait for its other end."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ModelError("a model is a regular file, not a folder, a pipe or a device")
    return os.fdopen(handle, "rb")


def _members(archive, size):
    """The manifest and the members of an archive in a file of this size."""
    names = [info.filename for info in archive.infolist()]
    known = {MANIFEST, GRAPH, WEIGHTS, "lamina_model.py", *(f"{level}.so" for level in (*LEVELS, ARM))}
    if MANIFEST not in names:
        raise ModelError("this is no model, or it is damaged: it has no manifest.json")
    known.update(name for name in names if re.fullmatch(r"sm_\d{2,3}\.cubins", name))
    if len(set(names)) < len(names) or not known.issuperset(names):
        raise ModelError("this is no model, or it is damaged: it holds what no model does")
    for info in archive.infolist():
        # Bit 11 says that the name is UTF-8; others, that the member is encrypted or its size unknown.
        if info.compress_type or info.flag_bits & ~0x800 or info.compress_size != info.file_size:
            raise ModelError(f"{info.filename} is damaged: a model's members are stored plainly")
    if sum(info.file_size for info in archive.infolist()) > size:
        raise ModelError("it is damaged: its members are larger than the file")
    text = archive.read(MANIFEST)
    if hashlib.sha256(text).hexdigest().encode() != archive.comment:
        raise ModelError("manifest.json is damaged, or this is no model")
    manifest = json.loads(text)
    if not isinstance(manifest, dict) or manifest.get("format") not in (STATIC, FORMAT, WITH_GPUS):
        raise ModelError(f"a model of another format; this module reads formats {STATIC} to {WITH_GPUS}")
    hashes = manifest.get("sha256")
    if not isinstance(hashes, dict) or {MANIFEST, *hashes} != {*names}:
        raise ModelError("its manifest does not list its members")
    members = {name: archive.read(name) for name in hashes}
    for name, data in members.items():
        if hashlib.sha256(data).hexdigest() != hashes[name]:
            raise ModelError(f"{name} is damaged: it does not have the hash it was written with")
    _checked(manifest, members)
    return manifest, members


# ---- what a manifest must say ------------------------------------------------------------------------------
def _need(fits, what):
    if not fits:
        raise ModelError(f"its manifest is damaged: {what}")


def _whole(x, most=1 << 47):
    return type(x) is int and 0 <= x < most


def _listed(x, test):
    return isinstance(x, list) and all(map(test, x))


def _is_kind(x, names=None):
    """Whether this is [dtype, shape].  names: that formulas of sizes in shapes are made of."""
    if not isinstance(x, list) or len(x) != 2 or not isinstance(x[0], str) or x[0] not in DTYPES:
        return False
    if not _listed(x[1], lambda n: _is_size(n, names)) or len(x[1]) > 64:
        return False
    return nbytes(x[0], [n for n in x[1] if type(n) is int]) < 1 << 47


def _is_size(x, names=None):
    """Whether this is a size, or a formula of these names."""
    return _whole(x) or names is not None and _is_formula(x, names)


def _is_formula(x, names):
    # Each product makes the number longer, and what comes of many can't be interrupted.
    short = isinstance(x, str) and len(x) < 1 << 16 and x.count("*") <= 1 << 10
    return short and all(map(names.__contains__, _names_in(x)))


TOKEN = re.compile(r"\d{1,19}(?!\w)|[a-z]\w*|//|[-+*%(),]| ", re.ASCII)
GREATEST = {"min", "max"}


def _names_in(text):
    """The names in a formula of whole numbers; one that is no name where it is something else."""
    tokens = TOKEN.findall(text)
    plain = [token for token in tokens if token != " "]
    if "".join(tokens) != text or any(a == b == "*" for a, b in zip(plain, plain[1:])):
        return ["?"]
    calls = all(b == "(" for a, b in zip(plain, [*plain[1:], ""]) if a in GREATEST)
    return [token for token in plain if token[0].isalpha() and token not in GREATEST] if calls else ["?"]


def _is_name(x):
    return isinstance(x, str)


def _checked(manifest, members):
    """Raises ModelError for a manifest in which something is missing, or does not fit the rest."""
    _need({GRAPH, WEIGHTS} <= members.keys(), "the graph or the weights are missing")
    inputs, weights, levels = (manifest.get(name) for name in ("inputs", "weights", "levels"))
    _need(_listed(inputs, lambda x: isinstance(x, list) and len(x) == 3), "inputs")
    names = _size_names(manifest)
    _need(all(_is_name(name) and _is_kind(rest, names) for name, *rest in inputs), "inputs")
    _need(_listed(weights, _is_name), "weights")
    _need(isinstance(levels, dict) and levels.keys() <= {*LEVELS, ARM}, "levels")
    count = result_count(manifest.get("outputs"))
    for level, about in levels.items():
        _need(isinstance(about, dict) and f"{level}.so" in members, f"the code of {level} is missing")
        _need(about.get("library") == f"{level}.so", f"the library of {level}")
        _need(_is_program(about.get("prologue")), f"prologue of {level}")
        _need(_is_program(about.get("main"), names), f"main of {level}")
        _need(all(_listed(about.get(name), _whole) for name in ("frozen", "kept")), f"weights of {level}")
        _need(
            all(at < len(weights) for name in ("frozen", "kept") for at in about[name]), f"weights of {level}"
        )
        first, main = about["prologue"], about["main"]
        _need(count <= len(main["results"]), f"{level} has fewer results than the model")
        _need(len(first["params"]) == len(about["frozen"]), f"prologue of {level}")
        taken = [
            *([dtype, shape] for _, dtype, shape in inputs),
            *([dtype, shape] for _, _, dtype, shape in manifest.get("tables", ())),
            *(None for _ in about["kept"]),
            *first["results"],
        ]
        fits = len(taken) == len(main["params"])
        _need(fits and all(a in (None, b) for a, b in zip(taken, main["params"])), f"main of {level}")
        pool = about.get("pool")
        _need(isinstance(pool, dict) and all(_is_name(k) and _whole(v) for k, v in pool.items()), "pool")
        _need(POOL <= pool.keys() and pool["size"] <= 1 << 16 and pool["grain_value"] > 0, "pool")
        words = [at for name, at in pool.items() if name != "size" and not name.endswith("_value")]
        _need(all(at <= pool["size"] - 8 and not at % 4 for at in words), "pool")


def _size_names(manifest):
    """The names of the sizes that change, in a file that has such."""
    if manifest["format"] != FORMAT:
        return None
    sizes, needs = manifest.get("sizes"), manifest.get("needs")
    _need(_listed(sizes, lambda x: isinstance(x, list) and len(x) == 4), "sizes")
    _need(all(_is_name(x) and re.fullmatch(r"d\d{1,3}", x) and _is_name(y) for x, y, _, _ in sizes), "sizes")
    _need(all(_whole(low) and _whole(high) for _, _, low, high in sizes), "sizes")
    names = {name for name, *_ in sizes}
    tables = manifest.get("tables")
    _need(_listed(tables, lambda x: isinstance(x, list) and len(x) == 4), "tables")
    for name, args, dtype, shape in tables:
        _need(_is_name(name) and name in TABLES and dtype == TABLES[name][2], "tables")
        _need(_listed(args, lambda x: _is_plain(x) or _is_formula(x, names)), "tables")
        _need(_is_kind([dtype, shape], names), "tables")
    _need(_listed(needs, lambda x: isinstance(x, list) and len(x) == 4 and all(map(_is_name, x))), "needs")
    _need(all(x[1] in RELATIONS and all(_is_formula(x[at], names) for at in (0, 2)) for x in needs), "needs")
    return names


def _is_plain(x):
    return x is None or isinstance(x, (bool, int, float)) and abs(x) < 1 << 47


RELATIONS = {"==": operator.eq, "!=": operator.ne, ">=": operator.ge}


def _is_program(about, names=None):
    if not isinstance(about, dict):
        return False
    kinds = all(_listed(about.get(name), lambda x: _is_kind(x, names)) for name in ("params", "results"))
    if not kinds or not _listed(about.get("constants"), _is_name):
        return False
    if names is None:
        return _whole(about.get("arena")) and _listed(about.get("entries"), _is_name)
    offsets, known = about.get("offsets"), set(names)
    if not _listed(offsets, lambda x: isinstance(x, list) and len(x) == 2 and _is_name(x[0])):
        return False
    for name, ends in offsets:  # each of those before it
        if not re.fullmatch(r"[a-z]\w{0,20}", name, re.ASCII) or name in known | GREATEST:
            return False
        if not ends or not _listed(ends, lambda end: _is_size(end, known)):
            return False
        known.add(name)
    variants = about.get("variants")
    return (
        _is_size(about.get("arena"), known)
        and bool(variants)
        and _listed(variants, lambda x: isinstance(x, dict) and _is_variant(x, known))
    )


def _is_variant(about, names):
    numbers, least = about.get("numbers"), about.get("least")
    return (
        _listed(about.get("entries"), _is_name)
        and _listed(numbers, lambda x: _is_size(x, names))
        and _listed(least, lambda x: isinstance(x, list) and len(x) == 2 and _whole(x[1]))
        and all(_is_size(extent, names) for extent, _ in least)
    )


def result_count(tree, depth=0):
    """How many results a structure is made of, as `built` reads it."""
    _need(depth < 100, "outputs")
    if not isinstance(tree, list):
        _need(_whole(tree), "outputs")
        return tree + 1
    _need(tree and tree[0] in ("tuple", "list", "dict", "value"), "outputs")
    kind, *rest = tree
    if kind == "value":
        _need(len(rest) == 1 and (rest[0] is None or isinstance(rest[0], (bool, int, float, str))), "outputs")
        return 0
    if kind == "dict":
        _need(all(isinstance(x, list) and len(x) == 2 and _is_name(x[0]) for x in rest), "outputs")
        _need(len({key for key, _ in rest}) == len(rest), "outputs")
        rest = [value for _, value in rest]
    return max((result_count(x, depth + 1) for x in rest), default=0)


def nbytes(dtype, shape):
    """The bytes of an array: of Python's numbers, which don't overflow."""
    return math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize


def tensors(data):
    """The arrays of a safetensors file, by name, over its bytes.  Raises ModelError."""
    try:
        return _tensors(memoryview(data))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ModelError(f"{WEIGHTS} is damaged: {type(error).__name__}: {error}") from None


def _tensors(data):
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise ValueError("its header is larger than itself")
    header, body = json.loads(bytes(data[8 : 8 + length])), data[8 + length :]
    header.pop("__metadata__", None)
    arrays, end = {}, 0
    for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        dtype, shape = about["dtype"].lower(), about["shape"]
        if not _is_kind([dtype, shape]):
            raise ValueError(f"{name} is of no type")
        begin, end_before = about["data_offsets"][0], end
        end = begin + nbytes(dtype, shape)
        if begin != end_before or about["data_offsets"] != [begin, end] or end > len(body):
            raise ValueError(f"{name} does not lie where it says")
        array = np.frombuffer(body[begin:end], np.dtype(DTYPES[dtype])).reshape(shape)
        if dtype == "bool" and array.view(np.uint8).max(initial=0) > 1:
            raise ValueError(f"{name} holds what is no bool")
        arrays[name] = array
    if end != len(body):
        raise ValueError("some of it belongs to no array")
    return arrays


# ---- native code -------------------------------------------------------------------------------------------
def address(array):
    return array.__array_interface__["data"][0]


def aligned(shape, dtype):
    """An array that begins at a multiple of 64 bytes."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(count + 64, np.uint8)
    start = -address(memory) % 64
    return memory[start : start + count].view(dtype).reshape(shape)


class _Library:
    """A shared library of these bytes, without a file that others could see or change.  Raises ModelError.

    The system knows a library by its path, and would give an older one of the same path again: each has its
    own, of dots and slashes, so that the descriptor can be closed and its number be used anew.
    """

    def __init__(self, data):
        try:
            handle = os.memfd_create("lamina_model", os.MFD_CLOEXEC)
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                unique = int.from_bytes(os.urandom(8), "little")
                spelled = "".join(".//" if unique >> bit & 1 else "./" for bit in range(64))
                self._library = ctypes.CDLL(f"/proc/self/fd/{spelled}{handle}")
        except OSError as error:
            raise ModelError(f"the native code can't be loaded: {error}") from None

    def address(self, symbol):
        try:
            return ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value
        except (AttributeError, ValueError):
            raise ModelError(f"the native code is damaged: it has no {symbol}") from None

    def close(self):
        """Give its memory back.  No thread may be inside, and nothing of it may be used afterwards."""
        close = ctypes.CDLL(None).dlclose
        close.argtypes = [ctypes.c_void_p]
        close(self._library._handle)


class _Pool:
    """The threads that a library's code runs on; a forked child begins with none and makes its own."""

    def __init__(self, library, layout, threads):
        self.layout, self.threads = layout, threads
        self.memory = aligned((1 << 16,), np.uint8)  # more than any layout needs
        self.address = address(self.memory)
        self.worker = library.address("lamina_pool_worker")
        self.launch = library.address("lamina_pool_launch")
        self.reset()

    def word(self, name, kind=ctypes.c_int64):
        return kind.from_address(self.address + self.layout[name])

    def reset(self):
        self.memory[: self.layout["size"]] = 0
        self.word("limit", ctypes.c_int32).value = 1
        for name in ("spin", "grain"):
            self.word(name).value = self.layout[f"{name}_value"]
        self.word("launch").value = self.launch
        self.workers = []
        self.asleep = self.threads > 1

    def wake(self):
        """Begin the workers: threads of the system that never hold Python's lock, and get no signals."""
        self.asleep = False
        self.word("limit", ctypes.c_int32).value = self.threads  # or those that come early would leave again
        libc = ctypes.CDLL(None)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            for _ in range(self.threads - 1):
                self.word("alive", ctypes.c_int32).value += 1
                handle = ctypes.c_ulong()
                worker, memory = ctypes.c_void_p(self.worker), ctypes.c_void_p(self.address)
                if libc.pthread_create(ctypes.byref(handle), None, worker, memory):
                    self.word("alive", ctypes.c_int32).value -= 1
                    break  # the system has no more: with those there are
                self.workers.append(handle)
        finally:
            self.word("limit", ctypes.c_int32).value = len(self.workers) + 1
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self):
        """Have the workers leave, and wait until none of them runs the library's code."""
        libc, workers, self.workers = ctypes.CDLL(None), self.workers, []
        self.word("limit", ctypes.c_int32).value = 1
        futex = self.address + self.layout.get("wake", WAKE)
        ctypes.c_int32.from_address(futex).value += 1 << 30  # in the order in which a worker looks at them
        if workers:
            libc.syscall(
                FUTEX[os.uname().machine], ctypes.c_void_p(futex), FUTEX_WAKE, 1 << 30, None, None, 0
            )
        for handle in workers:
            libc.pthread_join(handle, None)


class _Arena:
    """Scratch memory of programs of which one runs at a time; it grows."""

    def __init__(self):
        self.memory = aligned((0,), np.uint8)

    def hold(self, nbytes):
        if nbytes > len(self.memory):
            self.memory = aligned((nbytes,), np.uint8)


class _Program:
    """One native program at known sizes: its table and its entries.

    fixed: arrays of its last params, the same at every call.  numbers: what it reads of the table, as it
    depends on sizes.
    """

    def __init__(self, entries, about, constants, pool, fixed, arena, numbers=()):
        self.results = [(tuple(shape), np.dtype(DTYPES[dtype])) for dtype, shape in about["results"]]
        self.keep, self.arena, self.tables = [*constants, *fixed], arena, []
        arena.hold(about["arena"])
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
        self.enter = [function(entry) for entry in entries]
        # The table: pool, threads, arena, params, results, constants, numbers.
        behind = 3 + len(about["params"])
        self.table = np.zeros(behind + len(self.results) + len(constants) + len(numbers), np.int64)
        self.table[:2] = pool.address, 1 << 30
        self.table[behind - len(fixed) : behind] = [address(array) for array in fixed]
        self.table[behind + len(self.results) :] = [*map(address, constants), *numbers]
        self.given = slice(3, behind - len(fixed))
        self.made = slice(behind, behind + len(self.results))
        self.at = address(self.table)

    def run(self, arrays):
        """The results for dense arrays of the first params' types, which the caller has looked at."""
        results = [aligned(shape, dtype) for shape, dtype in self.results]
        self.table[2] = address(self.arena.memory)
        self.table[self.given] = [address(array) for array in (*arrays, *self.tables)]
        self.table[self.made] = [address(array) for array in results]
        for enter in self.enter:
            if enter(self.at):
                raise IndexError("an index is out of range")
        return results


def _small(n):
    """A number that a further formula may be made of: they would double its length, again and again."""
    if abs(n) >= 1 << 63:
        raise OverflowError
    return n


def _function(names, texts, offsets=()):
    """Formulas as a function of the sizes: their names are known, and stand for nothing but numbers.

    offsets: further names, and what each is the greatest of.
    """
    lines = [f"def function({', '.join(names)}):"]
    lines += [f"  {name} = _small(max([{', '.join(map(str, ends))}]))" for name, ends in offsets]
    lines.append(f"  return [{', '.join(map(str, texts))}]")
    scope: dict = {"__builtins__": {}, "min": min, "max": max, "_small": _small}
    try:
        exec("\n".join(lines), scope)
    except (SyntaxError, *ODD):
        raise ModelError("its manifest is damaged: formulas") from None
    function = scope["function"]

    def evaluated(sizes):
        try:
            return function(**sizes)
        except (ArithmeticError, TypeError, ValueError, *ODD):
            raise ModelError("its manifest is damaged: formulas") from None

    return evaluated


class Sizes:
    """The sizes that change from call to call."""

    def __init__(self, manifest):
        self.inputs = manifest["inputs"]
        self.ranges = {name: (label, low, high) for name, label, low, high in manifest["sizes"]}
        self.needs = [(RELATIONS[relation], words) for _, relation, _, words in manifest["needs"]]
        sides = [x for left, _, right, _ in manifest["needs"] for x in (left, right)]
        self._asked = _function(self.ranges, sides)
        self._shaped = _function(self.ranges, [n for _, _, shape in self.inputs for n in shape])
        self._tables = [
            (name, _function(self.ranges, args), dtype, _function(self.ranges, shape))
            for name, args, dtype, shape in manifest["tables"]
        ]

    @property
    def shapes(self):
        """Of the inputs, for a reader."""
        return [
            tuple(self.words(n) if isinstance(n, str) else n for n in shape) for _, _, shape in self.inputs
        ]

    def words(self, text):
        """A formula as the user named its sizes."""
        return re.sub(r"\bd\d+\b", lambda found: self.ranges[found[0]][0], text)

    def of(self, arrays):
        """The sizes, by name, of arrays whose types and ranks are known to fit.  Raises ValueError."""
        found = {}
        for (label, _, shape), array in zip(self.inputs, arrays):
            for dim, (n, size) in enumerate(zip(shape, array.shape)):
                if n not in self.ranges or n in found:
                    continue
                name, low, high = self.ranges[n]
                if not low <= size <= high:
                    end = "on" if high >= 1 << 40 else f"to {high}"
                    raise ValueError(
                        f"{label} has {name} = {size} (dimension {dim}), "
                        f"and the model takes {name} from {low} {end}"
                    )
                found[n] = size
        if len(found) < len(self.ranges):
            raise ModelError("it is damaged: no input has one of its sizes")
        wanted = iter(self._shaped(found))
        for (label, _, shape), array in zip(self.inputs, arrays):
            for dim, (n, size, own) in enumerate(zip(shape, array.shape, wanted)):
                if own != size:
                    what = f"{self.words(n)} = {own}" if isinstance(n, str) else own
                    raise ValueError(f"dimension {dim} of {label} is {what}, the array given has {size}")
        sides = iter(self._asked(found))
        for relation, words in self.needs:
            if not relation(next(sides), next(sides)):
                told = ", ".join(f"{self.ranges[name][0]} = {n}" for name, n in found.items())
                raise ValueError(f"the model takes sizes for which {words}, and here {told}")
        return found

    def tables(self, sizes, max_bytes):
        """The arrays that are made of sizes, which a program takes behind its inputs."""
        found = []
        for name, asked, dtype, shaped in self._tables:
            found.append(_table(name, asked(sizes), dtype, tuple(shaped(sizes)), max_bytes))
            max_bytes -= found[-1].nbytes
        return found


def _table(name, args, dtype, shape, max_bytes):
    """An array of sizes, which is of this shape.  Raises ModelError for one that isn't, or is too large."""
    function, shape_of, _ = TABLES[name]
    try:
        if (
            tuple(shape_of(*args)) == shape
            and _is_kind([dtype, [*shape]])
            and nbytes(dtype, shape) <= max_bytes
        ):
            array = np.ascontiguousarray(function(*args), DTYPES[dtype])
            if array.shape == shape:
                return array
    except (ArithmeticError, TypeError, ValueError, IndexError, *ODD):
        pass
    raise ModelError(f"the array {name} of sizes can't be made within {max_bytes:,} bytes")


class _Formulas:
    """A program of formulas.

    about, entries: of it; entries are by variant.  max_bytes: that it may ask for at any sizes.
    """

    def __init__(self, names, about, entries, max_bytes):
        self.about, self.entries, self.max_bytes = about, entries, max_bytes
        kinds = [n for name in ("params", "results") for _, shape in about[name] for n in shape]
        variants = [[*v["numbers"], *(extent for extent, _ in v["least"])] for v in about["variants"]]
        self._kinds = _function(names, [*kinds, about["arena"]], about["offsets"])
        self._numbers = [_function(names, each, about["offsets"]) for each in variants]

    def at(self, sizes, *others):
        """The program at these sizes, with its table.  Raises ModelError for one that needs too much."""
        left = iter(self._kinds(sizes))
        kinds = [
            [[dtype, [next(left) for _ in shape]] for dtype, shape in self.about[name]]
            for name in ("params", "results")
        ]
        arena = next(left)
        if not all(_is_kind(kind) for group in kinds for kind in group) or not _whole(arena):
            raise ModelError("it is damaged: a formula gives what is no size")
        needs = arena + sum(nbytes(*kind) for kind in kinds[1])
        if needs > self.max_bytes:
            limit = f"max_bytes={self.max_bytes:,}"
            raise ModelError(f"at these sizes it asks for {needs:,} bytes of memory, more than {limit}")
        about = {"params": kinds[0], "results": kinds[1], "arena": arena}
        for variant, entries, numbers in zip(self.about["variants"], self.entries, self._numbers):
            count, found = len(variant["numbers"]), numbers(sizes)
            if all(n >= least for n, (_, least) in zip(found[count:], variant["least"])):
                constants, pool, fixed, arena = others
                return _Program(entries, about, constants, pool, fixed, arena, found[:count])
        raise ModelError("it is damaged: it has no code for these sizes")


class Model:
    """An exported model.  `run(*inputs)` takes arrays and returns what the traced function returned.

    threads: how many to run on; LAMINA_NUM_THREADS, or as many as the process may use.  level: of the CPU
    ("x86-64-v3"), by default the best that this machine has.  max_bytes: of memory that the file may ask for,
    by default as many as the machine has.  Raises ModelError.

    A model may be used by any number of threads, which take turns, and after a fork by the child as well.
    When the last reference to it goes, so do its threads and its code.
    """

    def __init__(self, path, threads=None, level=None, max_bytes=None):
        path = os.fspath(path)
        self.manifest, members = read(path)
        self.graph = members[GRAPH].decode(errors="replace")
        said = os.environ.get("LAMINA_NUM_THREADS", "")
        if not threads and said and not said.strip().isdecimal():
            raise ModelError(f"LAMINA_NUM_THREADS is a number of threads, not {said!r}")
        threads = int(threads or said or len(os.sched_getaffinity(0)))
        try:
            self._make(members, max(1, threads), level, max_bytes)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None

    def _make(self, members, threads, level, max_bytes):
        have = cpu_levels()
        usable = [name for name in self.manifest["levels"] if name in have]
        if level is not None and level not in usable or not usable:
            raise ModelError(
                f"it holds code for {', '.join(self.manifest['levels'])}; this machine runs "
                f"{', '.join(have) or 'none of them'}" + (f", and {level} was asked for" if level else "")
            )
        self.level = level or usable[0]
        about = self.manifest["levels"][self.level]
        programs = about["prologue"], about["main"]
        is_open = "variants" in about["main"]  # whose memory is looked at when sizes are known
        fixed = programs[: 1 if is_open else 2]
        needs = sum(p["arena"] + sum(nbytes(*kind) for kind in p["results"]) for p in fixed)
        limit = physical_memory() if max_bytes is None else max_bytes
        if needs > limit:
            raise ModelError(f"it asks for {needs:,} bytes of memory, more than max_bytes={limit:,}")
        stored = tensors(members[WEIGHTS])
        try:
            weights = [stored[name] for name in self.manifest["weights"]]
            constants = [[stored[name] for name in program["constants"]] for program in programs]
        except KeyError as error:
            raise ModelError(f"it is damaged: it lacks the weight {error}") from None
        behind = len(self.manifest["inputs"]) + len(self.manifest.get("tables", ()))
        given = [
            *zip(about["frozen"], programs[0]["params"]),
            *zip(about["kept"], programs[1]["params"][behind:]),
        ]
        for at, (dtype, shape) in given:
            if (weights[at].dtype, weights[at].shape) != (np.dtype(DTYPES[dtype]), tuple(shape)):
                raise ModelError(f"it is damaged: weight {at} is not what its code takes")
        library = _Library(members.pop(about["library"]))
        try:
            parts = [*fixed, *(programs[1]["variants"] if is_open else ())]
            entries = [[library.address(symbol) for symbol in part["entries"]] for part in parts]
            self.pool = _Pool(library, about["pool"], threads)
        except ModelError:
            library.close()
            raise
        self._lock = threading.Lock()
        _models.add(self)
        weakref.finalize(self, _closed, self.pool, library).atexit = False  # others may still be inside then

        # Packed and transformed weights: once, for this machine's vectors.
        first = _Program(entries[0], programs[0], constants[0], self.pool, [], _Arena())
        self._woken()
        packed = first.run([weights[at] for at in about["frozen"]])
        kept = [_copied(weights[at]) for at in about["kept"]] + packed
        inputs = self.manifest["inputs"]
        others = [*map(_copied, constants[1])], self.pool, kept, _Arena()
        self._dtypes = [np.dtype(DTYPES[dtype]) for _, dtype, _ in inputs]
        self._programs = {}  # by the inputs' shapes
        self.sizes = Sizes(self.manifest) if is_open else None
        if is_open:
            self._main = _Formulas(self.sizes.ranges, programs[1], entries[1:], limit)
            self._others, shapes = others, self.sizes.shapes
        else:
            shapes = [tuple(shape) for _, _, shape in inputs]
            self._programs[tuple(shapes)] = _Program(entries[1], programs[1], *others)
        self.inputs = [(name, dtype, shape) for (name, dtype, _), shape in zip(inputs, shapes)]

    def _woken(self):
        if self.pool.asleep:
            self.pool.wake()

    def run(self, *inputs):
        """The model's outputs for these arrays.  Raises TypeError, ValueError for arrays that don't fit."""
        quick = len(inputs) == len(self._dtypes) and all(
            type(x) is np.ndarray and x.dtype == dtype and x.flags.carray
            for x, dtype in zip(inputs, self._dtypes, strict=True)
        )
        given = inputs if quick else fitting(inputs, self.inputs)
        with self._lock:
            self._woken()
            program = self._programs.get(tuple([x.shape for x in given]))
            results = (program or self._program(given)).run(given)
        return built(self.manifest["outputs"], results)

    def _program(self, given):
        """The program for the shapes of these arrays.  Raises ValueError, ModelError."""
        given = fitting(given, self.inputs)
        sizes = self.sizes.of(given)
        made = self._main.at(sizes, *self._others)
        made.tables = self.sizes.tables(sizes, self._main.max_bytes)
        while len(self._programs) >= KEPT:
            self._programs.pop(next(iter(self._programs)))
        self._programs[tuple([x.shape for x in given])] = made
        return made

    def __reduce__(self):
        raise TypeError("a model is native code and threads: send its path, and load it where it is needed")

    def _forked(self):
        """Begin anew in a forked child: a thread that held the lock, and the workers, did not come along."""
        self._lock = threading.Lock()
        self.pool.reset()


def _copied(array):
    """A copy at an address that vectors like, so that the file's own bytes can go."""
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


def _closed(pool, library):
    pool.end()
    library.close()


def physical_memory():
    """The bytes of memory that this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
        raise TypeError(f"{name} is {_kind(dtype, shape)}, not {array.dtype}: convert it with x.astype(...)")
    fixed = all(n == own for n, own in zip(shape, array.shape) if not isinstance(n, str))
    if len(array.shape) != len(shape) or not fixed:
        raise ValueError(f"{name} is {_kind(dtype, shape)}, the array given is {list(array.shape)}")
    return np.require(array, wanted, ["C", "A"])


def _kind(dtype, shape):
    return f"{dtype}[{', '.join(map(str, shape))}]"


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


_made: dict = {}  # the model of the file that this module was imported from, by device
_making = threading.Lock()
_models: weakref.WeakSet = weakref.WeakSet()


def _forked():
    global _making
    _making = threading.Lock()
    for each in list(_models):
        each._forked()


os.register_at_fork(after_in_child=_forked)


def load(path, threads=None, level=None, max_bytes=None, device="cpu"):
    """The model in a file that `lamina.jit.export` wrote: see `Model`, and `CudaModel` for device="cuda"."""
    if device == "cpu":
        return Model(path, threads, level, max_bytes)
    made = DEVICES.get(str(device).partition(":")[0])
    if made is None:
        raise ModelError(f"a device is 'cpu', {', '.join(map(repr, DEVICES))}, not {device!r}")
    if threads is not None or level is not None:
        raise ModelError(f"threads and levels are of CPUs, and {device} was asked for")
    return made(path, device, max_bytes)


def model(device="cpu"):
    """The model of the file that this module was imported from."""
    with _making:
        if device not in _made:
            archive = getattr(globals().get("__loader__"), "archive", None)
            if archive is None:
                raise ModelError(
                    "this module was not imported out of a model's file: use load(path), "
                    'or sys.path.insert(0, "model.lam") before the import'
                )
            _made[device] = load(archive, device=device)
        return _made[device]


def run(*inputs, device="cpu"):
    """The model's outputs for these arrays, computed on the CPU or on a GPU ("cuda", "cuda:1")."""
    return model(device).run(*inputs)
