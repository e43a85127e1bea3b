"""Runs an exported model on an NVIDIA GPU, with NumPy and cuda-bindings alone.

    y = lamina_model.run(x, device="cuda")

Exported models carry this text behind lamina_model.py's (`jit/artifact.py`), whose names it finds there.
What a file says of its kernels is held against the cubins in it before the driver is given any: the
architecture, the names, the parameters and the block of each; and every place in memory against the array
that it is in.  What a kernel then does there can't be seen, as with native code.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import threading
import weakref

import numpy as np

from ..ir.errors import DeviceError
from ..runtime.cuda.cubin import architecture, block, parameters, toolkit
from .lamina_model import (
    DEVICES,
    DTYPES,
    GRAPH,
    WEIGHTS,
    ModelError,
    _is_kind,
    _is_name,
    _listed,
    _models,
    _need,
    _whole,
    aligned,
    built,
    fitting,
    nbytes,
    read,
    result_count,
    tensors,
)  # fmt: skip

ALIGNMENT = 16  # bytes that an aligned pointer of a kernel is a multiple of
UNIT = 256  # where arrays begin in the device's memory
BLOCK, GRID, SHARED = 1 << 10, (1 << 31) - 1, 1 << 18  # that no kernel is launched with more of
USUAL_SHARED = 48 << 10  # bytes of shared memory that a kernel may have without asking
ONE_ALONE = 9  # from this major version on code is for one architecture, not for later ones of it as well


# ---- what a file says of its kernels -----------------------------------------------------------------------
def _checked_gpu(manifest, members, name):
    """What the manifest says of an architecture, once it fits the rest.  Raises ModelError."""
    about, of = manifest["gpus"][name], f"of {name}"
    _need(isinstance(about, dict) and about.get("cubins") == f"{name}.cubins", f"the cubins {of}")
    _need(about["cubins"] in members, f"the cubins {of} are missing")
    kernels, weights = about.get("kernels"), manifest["weights"]
    _need(_listed(kernels, _is_kernel), f"kernels {of}")
    _need(len({kernel["name"] for kernel in kernels}) == len(kernels), f"kernels {of}")
    for kernel in kernels:
        _fits_cubin(kernel, members[about["cubins"]], name)
    first, main = about.get("prologue"), about.get("main")
    _need(all(_is_launched(program) for program in (first, main)), f"programs {of}")
    for part in ("frozen", "kept"):
        _need(_listed(about.get(part), _whole), f"weights {of}")
        _need(all(at < len(weights) for at in about[part]), f"weights {of}")
    taken = [
        *([dtype, shape] for _, dtype, shape in manifest["inputs"]),
        *(None for _ in about["kept"]),
        *first["results"],
    ]
    fits = len(taken) == len(main["params"]) and len(about["frozen"]) == len(first["params"])
    _need(fits and all(a in (None, b) for a, b in zip(taken, main["params"])), f"main {of}")
    flags = main["results"][len(main["results"]) - main["checks"] :]
    _need(not first["checks"] and all(flag == ["bool", [1]] for flag in flags), f"checks {of}")
    count = result_count(manifest["outputs"])
    _need(count + main["checks"] <= len(main["results"]), f"it has fewer results {of} than the model")
    return about


def _is_kernel(about):
    return (
        isinstance(about, dict)
        and isinstance(about.get("name"), str)
        and re.fullmatch(r"[A-Za-z_]\w{0,400}", about["name"], re.ASCII) is not None
        and all(_whole(about.get(part)) for part in ("at", "size", "shared", "scratch"))
        and _whole(about.get("threads"), BLOCK + 1)
        and about["threads"] > 0
        and about["shared"] <= SHARED
        and _listed(about.get("aligned"), lambda x: type(x) is bool)
    )


def _fits_cubin(kernel, cubins, target):
    """Raise ModelError unless the cubin of a kernel is what the manifest says."""
    name, at, size = kernel["name"], kernel["at"], kernel["size"]
    _need(at + size <= len(cubins), f"{name} lies beyond the cubins of {target}")
    cubin = cubins[at : at + size]
    try:
        found = parameters(cubin, name)
        threads, made_for = block(cubin, name), architecture(cubin)
    except DeviceError as error:
        raise ModelError(f"the cubin of {name} for {target} is damaged: {error}") from None
    _need(f"sm_{made_for}" == target, f"{name} is compiled for sm_{made_for}, not for {target}")
    # its pointers, and two to scratch memory, which Triton's kernels take always
    wanted = tuple((8 * k, 8) for k in range(len(kernel["aligned"]) + 2))
    _need(found == wanted, f"{name} takes {len(found)} parameters, not {len(wanted)} pointers")
    _need(threads in (None, (kernel["threads"], 1, 1)), f"{name} runs in blocks of {threads}")


def _is_launched(about):
    """Whether this is a program of launches; what its steps say of kernels is looked at in `_steps`."""
    if not isinstance(about, dict):
        return False
    kinds = all(_listed(about.get(name), _is_kind) for name in ("params", "results"))
    return (
        kinds
        and _listed(about.get("constants"), _is_name)
        and _whole(about.get("arena"))
        and _whole(about.get("checks"))
        and about["checks"] <= len(about["results"])
        and _listed(about.get("steps"), lambda step: isinstance(step, list) and bool(step))
    )


class _Room:
    """Memory that is asked for at once: where each array is to be, from the beginning on."""

    def __init__(self):
        self.top = 0

    def take(self, size):
        at = self.top
        self.top += -(-max(size, 1) // UNIT) * UNIT
        return at


class _Arrays:
    """Where the arrays of a program are: of each kind, for each its number of bytes and its address."""

    def __init__(self, about, constants):
        self.sizes = {
            "param": [nbytes(*kind) for kind in about["params"]],
            "result": [nbytes(*kind) for kind in about["results"]],
            "constant": [array.nbytes for array in constants],
            "arena": [about["arena"]],
        }
        self.places = {}

    def start(self, place, size, is_written=False):
        """Where a place begins: the kind, the array, bytes.  Raises ModelError unless `size` bytes fit."""
        _need(isinstance(place, list) and len(place) == 3, "a place")
        kind, at, beyond = place
        _need(_is_name(kind) and kind in self.sizes and _whole(at) and _whole(beyond), "a place")
        number, beyond = (0, at + beyond) if kind == "arena" else (at, beyond)
        _need(number < len(self.sizes[kind]), f"there is no {kind} {number}")
        _need(
            beyond + size <= self.sizes[kind][number], f"{size} bytes at {beyond} are not inside {kind} {at}"
        )
        _need(not is_written or kind in ("result", "arena"), f"{kind} {at} is written to")
        return kind, number, beyond

    def address(self, place):
        kind, number, beyond = place
        return self.places[kind][number] + beyond


def _steps(about, kernels, arrays):
    """The steps of a program, every place and number in them proven.  Raises ModelError."""
    found = []
    for kind, *rest in about["steps"]:
        if kind == "copy":
            _need(len(rest) == 3 and _whole(rest[2]), "a copy")
            source, target, size = rest
            found.append((None, arrays.start(target, size, True), arrays.start(source, size), size, ""))
            continue
        _need(kind == "launch" and len(rest) == 4, "a step")
        number, grid, places, words = rest
        _need(_whole(number) and number < len(kernels) and _is_name(words), "a launch")
        kernel = kernels[number]
        _need(_whole(grid, GRID + 1) and grid > 0, f"the grid of {kernel['name']}")
        takes = len(kernel["aligned"])
        _need(isinstance(places, list) and len(places) == takes, f"{kernel['name']} takes {takes} pointers")
        starts = [arrays.start(place, 0) for place in places]
        for (_, _, beyond), is_aligned in zip(starts, kernel["aligned"]):
            _need(not (is_aligned and beyond % ALIGNMENT), f"{kernel['name']} takes an aligned pointer")
        found.append((kernel, starts, None, grid, words))
    return found


def _scratch(steps):
    """Bytes of scratch memory that a program needs: one launch runs after another."""
    return max((kernel["scratch"] * grid for kernel, _, _, grid, _ in steps if kernel), default=0)


# ---- the device --------------------------------------------------------------------------------------------
class _Gpu:
    """A device's primary context and one stream, with all that a model holds there until `close`."""

    def __init__(self, ordinal):
        self.owner, self.ordinal = os.getpid(), ordinal
        self.modules, self.blocks, self.stream, self.context = [], [], None, None
        try:
            self.api = importlib.import_module("cuda.bindings.driver")
        except ImportError:
            raise ModelError("running on a GPU takes cuda-bindings: pip install cuda-bindings") from None
        api = self.api
        try:
            error, number = api.cuDriverGetVersion()
        except RuntimeError as missing:  # cuda-bindings looks for the library at its first call
            raise ModelError(f"running on a GPU takes NVIDIA's driver, libcuda.so.1: {missing}") from None
        self._done("find the driver's version", (error,))
        self.cuda = number // 1000, number % 1000 // 10
        self._done("begin", api.cuInit(0))
        count = self._done("count devices", api.cuDeviceGetCount())
        if not 0 <= ordinal < count:
            raise ModelError(
                f"cuda:{ordinal} is not there: devices are counted from 0, and there are {count}"
            )
        self.handle = self._done("find the device", api.cuDeviceGet(ordinal))
        name = self._done("read its name", api.cuDeviceGetName(80, self.handle))
        self.name = name.split(b"\0", 1)[0].decode(errors="replace")
        self.capability = self._read("COMPUTE_CAPABILITY_MAJOR"), self._read("COMPUTE_CAPABILITY_MINOR")
        self.shared = self._read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self.context = self._done("retain its context", api.cuDevicePrimaryCtxRetain(self.handle))

    def begin(self):
        """Make the stream."""
        flags = self.api.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.stream = self._done("make a stream", self.api.cuStreamCreate(flags))

    def __str__(self):
        return "cuda:{} ({}, sm_{}{})".format(self.ordinal, self.name, *self.capability)

    def _read(self, name):
        attribute = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return self._done("read an attribute", self.api.cuDeviceGetAttribute(attribute, self.handle))

    def _done(self, what, result):
        error, *found = result
        if error:
            known, text = self.api.cuGetErrorString(error)
            told = "unknown" if known else text.decode()
            raise ModelError(f"cuda:{self.ordinal} could not {what}: {error.name}: {told}")
        return found[0] if found else None

    @contextlib.contextmanager
    def current(self):
        """Have the device's context current on this thread, and put back what another library had."""
        if os.getpid() != self.owner:
            raise ModelError(
                "a process that was forked can't use its parent's GPU: load the model in it, spawned"
            )
        before = self._done("ask for the context", self.api.cuCtxGetCurrent())
        self._done("make its context current", self.api.cuCtxSetCurrent(self.context))
        try:
            yield
        finally:
            self.api.cuCtxSetCurrent(before)

    def target(self, held):
        """Which of some architectures' code runs here.  Raises ModelError where none does."""
        major, minor = self.capability
        for name in sorted(held, key=lambda name: -int(name[3:])):
            of, least = divmod(int(name[3:]), 10)
            if of == major and (least == minor or least < minor and of < ONE_ALONE):
                return name
        holds = f"for {', '.join(sorted(held))} and for CPUs" if held else "for CPUs alone"
        raise ModelError(f"it holds code {holds}, and {self} needs sm_{major}{minor}")

    def check_room(self, size, max_bytes):
        """Raise ModelError for more memory than is free, or than `max_bytes`."""
        error, free, _ = self.api.cuMemGetInfo()
        self._done("tell its free memory", (error,))
        limit = free if max_bytes is None else max_bytes
        if size > limit:
            what = f"{self} has {free:,} free" if max_bytes is None else f"max_bytes={max_bytes:,}"
            raise ModelError(f"it asks for {size:,} bytes of a GPU's memory: {what}")

    def allocate(self, size):
        """The address of so much memory."""
        address = int(self._done(f"allocate {size:,} bytes", self.api.cuMemAlloc(size)))
        self.blocks.append(address)
        return address

    def release(self, address):
        self.blocks.remove(address)
        self._done("free memory", self.api.cuMemFree(address))

    def loaded(self, kernel, cubin):
        """A kernel, ready to launch.  Raises ModelError where this device or its driver can't run it."""
        name, made_by = kernel["name"], toolkit(cubin)
        if kernel["shared"] > self.shared:
            raise ModelError(
                f"{name} needs {kernel['shared']:,} bytes of shared memory, and {self} has {self.shared:,}"
            )
        if made_by is not None and made_by[0] > self.cuda[0]:
            theirs, ours = ("{}.{}".format(*version) for version in (made_by, self.cuda))
            raise ModelError(
                f"{name} was assembled by CUDA {theirs}, and the driver is for CUDA {ours}: "
                "update NVIDIA's driver"
            )
        module = self._done(f"load {name}", self.api.cuModuleLoadData(cubin))
        self.modules.append(module)
        function = self._done(f"find {name}", self.api.cuModuleGetFunction(module, name.encode()))
        if kernel["shared"] > USUAL_SHARED:
            most = self.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._done(f"prepare {name}", self.api.cuFuncSetAttribute(function, most, kernel["shared"]))
        return function

    def copy_in(self, address, array):
        if array.nbytes:
            source = array.__array_interface__["data"][0]
            self._done("copy to it", self.api.cuMemcpyHtoDAsync(address, source, array.nbytes, self.stream))

    def copy_out(self, array, address):
        if array.nbytes:
            target = array.__array_interface__["data"][0]
            self._done("copy from it", self.api.cuMemcpyDtoHAsync(target, address, array.nbytes, self.stream))

    def step(self, step, arrays, functions, scratch):
        """What queues a step."""
        kernel, target, source, number, words = step
        if kernel is None:
            target, source, api = arrays.address(target), arrays.address(source), self.api
            return lambda: (
                number and self._done("copy", api.cuMemcpyDtoDAsync(target, source, number, self.stream))
            )
        values = [*map(arrays.address, target), scratch, 0]
        memory = (ctypes.c_uint64 * len(values))(*values)
        start = ctypes.addressof(memory)
        pointers = (ctypes.c_void_p * len(values))(*(start + 8 * k for k in range(len(values))))
        name, threads, shared = kernel["name"], kernel["threads"], kernel["shared"]
        function, launch, at = functions[name], self.api.cuLaunchKernel, ctypes.addressof(pointers)

        def queue(_kept=(memory, pointers)):
            done = launch(function, number, 1, 1, threads, 1, 1, shared, self.stream, at, 0)
            self._done(f"launch {name} ({words})", done)

        return queue

    def finish(self):
        """Wait until all that was queued is done."""
        self._done("finish its work", self.api.cuStreamSynchronize(self.stream))

    @contextlib.contextmanager
    def queued(self):
        """Wait at the end of this block, after an error as well: the driver still reads the host's arrays."""
        try:
            yield
        except BaseException:
            self.api.cuStreamSynchronize(self.stream)
            raise
        self.finish()

    def close(self):
        """Give all back, when nothing runs any more."""
        if self.context is None or os.getpid() != self.owner:
            return
        api, context, self.context = self.api, self.context, None
        error, before = api.cuCtxGetCurrent()
        api.cuCtxSetCurrent(context)
        if self.stream is not None:
            api.cuStreamSynchronize(self.stream)
        for address in self.blocks:
            api.cuMemFree(address)
        for module in self.modules:
            api.cuModuleUnload(module)
        if self.stream is not None:
            api.cuStreamDestroy(self.stream)
        if not error:
            api.cuCtxSetCurrent(before)
        api.cuDevicePrimaryCtxRelease(self.handle)


class CudaModel:
    """An exported model on a GPU.  `run(*inputs)` takes arrays of the host, and returns such.

    device: "cuda", or "cuda:1".  max_bytes: of the GPU's memory that the file may ask for, by default what is
    free there.  level: the architecture whose code it runs.  Raises ModelError.

    Memory is allocated once, weights are copied there once.  Any number of threads may use a model, which
    take turns; a process that is forked can't use its parent's.  When the last reference goes, so does what
    it held on the device.
    """

    def __init__(self, path, device="cuda", max_bytes=None):
        path = os.fspath(path)
        found = re.fullmatch(r"cuda(?::(\d{1,4}))?", device)
        if found is None:
            raise ModelError(f"a device is 'cpu', 'cuda' or 'cuda:N', not {device!r}")
        self.manifest, members = read(path)
        self.graph, self.device = members[GRAPH].decode(errors="replace"), device
        try:
            gpu = _Gpu(int(found[1] or 0))
            try:
                with gpu.current():
                    gpu.begin()
                    self._make(gpu, members, max_bytes)
            except BaseException:
                gpu.close()
                raise
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from None
        weakref.finalize(self, gpu.close).atexit = False  # the process's end gives all back

    def _make(self, gpu, members, max_bytes):
        held = self.manifest.get("gpus", {})
        _need(isinstance(held, dict) and all(re.fullmatch(r"sm_\d{2,3}", name) for name in held), "GPUs")
        self.level = gpu.target(held)
        about = _checked_gpu(self.manifest, members, self.level)
        stored = tensors(members[WEIGHTS])
        try:
            weights = [stored[name] for name in self.manifest["weights"]]
            constants = [[stored[name] for name in about[p]["constants"]] for p in ("prologue", "main")]
        except KeyError as error:
            raise ModelError(f"it is damaged: it lacks the weight {error}") from None
        first, main = about["prologue"], about["main"]
        inputs, frozen, kept = len(self.manifest["inputs"]), about["frozen"], about["kept"]
        for at, (dtype, shape) in (*zip(frozen, first["params"]), *zip(kept, main["params"][inputs:])):
            if (weights[at].dtype, weights[at].shape) != (np.dtype(DTYPES[dtype]), tuple(shape)):
                raise ModelError(f"it is damaged: weight {at} is not what its code takes")
        arrays = [_Arrays(program, each) for program, each in zip((first, main), constants)]
        steps = [_steps(program, about["kernels"], each) for program, each in zip((first, main), arrays)]

        # All of it is proven.  What stays lies in one block, what the prologue alone needs in another.
        stays, passing = _Room(), _Room()
        own = arrays[1].places = {
            kind: [stays.take(size) for size in sizes] for kind, sizes in arrays[1].sizes.items()
        }
        scratch = stays.take(max(map(_scratch, steps)))
        shared = dict(zip(kept, own["param"][inputs:]))  # weights that both programs read
        alone = {at: passing.take(weights[at].nbytes) for at in frozen if at not in shared}
        constant = [passing.take(array.nbytes) for array in constants[0]]
        arena = passing.take(first["arena"])
        gpu.check_room(stays.top + (passing.top if first["results"] else 0), max_bytes)
        base = gpu.allocate(stays.top)
        for kind, places in own.items():
            own[kind] = [base + at for at in places]
        cubins = memoryview(members[about["cubins"]])
        used = {id(step[0]): step[0] for each in steps for step in each if step[0]}
        functions = {
            kernel["name"]: gpu.loaded(kernel, bytes(cubins[kernel["at"] : kernel["at"] + kernel["size"]]))
            for kernel in used.values()
        }
        with gpu.queued():
            for at, place in shared.items():
                gpu.copy_in(base + place, weights[at])
            for place, array in zip(own["constant"], constants[1]):
                gpu.copy_in(place, array)
        if first["results"]:
            other = gpu.allocate(passing.top)
            arrays[0].places = {
                "param": [base + shared[at] if at in shared else other + alone[at] for at in frozen],
                "result": own["param"][inputs + len(kept) :],
                "constant": [other + at for at in constant],
                "arena": [other + arena],
            }
            with gpu.queued():
                for at, place in alone.items():
                    gpu.copy_in(other + place, weights[at])
                for place, array in zip(arrays[0].places["constant"], constants[0]):
                    gpu.copy_in(place, array)
                for step in steps[0]:
                    gpu.step(step, arrays[0], functions, base + scratch)()
            gpu.release(other)
        self._gpu, self._lock = gpu, threading.Lock()
        self._given, self._made = own["param"][:inputs], own["result"]
        self._results = [(tuple(shape), DTYPES[dtype]) for dtype, shape in main["results"]]
        self._checks = main["checks"]
        self._queue = [gpu.step(step, arrays[1], functions, base + scratch) for step in steps[1]]
        self.inputs = [(name, dtype, tuple(shape)) for name, dtype, shape in self.manifest["inputs"]]
        _models.add(self)

    def run(self, *inputs):
        """The model's outputs for these arrays.  Raises TypeError, ValueError for arrays that don't fit.

        Raises IndexError for an index out of range, ModelError for what the device could not do.
        """
        given, gpu = fitting(inputs, self.inputs), self._gpu
        results = [aligned(shape, dtype) for shape, dtype in self._results]
        with self._lock, gpu.current(), gpu.queued():
            for array, place in zip(given, self._given):
                gpu.copy_in(place, array)
            for queue in self._queue:
                queue()
            for array, place in zip(results, self._made):
                gpu.copy_out(array, place)
        count = len(results) - self._checks
        if any(flag[0] for flag in results[count:]):
            raise IndexError("an index is out of range")
        return built(self.manifest["outputs"], results[:count])

    def __reduce__(self):
        raise TypeError("a model is memory of a GPU: send its path, and load it where it is needed")

    def _forked(self):
        """A thread that held the lock did not come along; whoever runs the model is told that it can't be."""
        self._lock = threading.Lock()


DEVICES["cuda"] = CudaModel
