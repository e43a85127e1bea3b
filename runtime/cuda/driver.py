"""The driver, its devices, and their streams, events and kernels.

All calls go through one table of functions under the names of CUDA's: cuda-bindings' module for NVIDIA's
GPUs, and for AMD's what `hip` makes of HIP's library.  What else differs is in `vendors`.

Nothing here waits unless its name says so, and nothing here caches memory: `allocator` does.  A device's
primary context is retained once, for as long as the process lives.  Another library may make its own current
on a thread: so whatever is made in the current context (memory, streams, events, kernels) asks which that is.
What is put into a stream is in the stream's context, and asks nothing.

The host's arrays of a copy are kept until the stream was waited for: the driver promises neither to have read
nor to have filled pageable memory when the call returns.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.errors import ArgumentValueError, DeviceError, OutOfMemoryError
from ...ir.lazy import MissingLibraryError
from ...ir.locks import fork_safe_lock
from ..memory import address as address_of
from .copies import Kept, check_dense
from .launch import SCRATCH, Packer, check_layout
from .vendors import VENDORS, Vendor

if TYPE_CHECKING:
    from ...passes.triton.binary import Binary

OUT_OF_MEMORY, NOT_READY = 2, 600  # the same numbers in both drivers
UNLOAD_AFTER = 64  # kernels that nobody holds any more; they go at the next wait, which is for the device
REMEMBERED = 16  # launches that a stream can name when the device fails


class _Thread(threading.local):
    device: Device | None = None  # whose context was made current on this thread last


_api: Any = None  # the table of functions, from when the driver is opened
_thread = _Thread()
_lock = fork_safe_lock()
_opened: Driver | None = None
_inherited = False  # whether a parent opened the driver before it forked this process


def _after_fork() -> None:
    global _inherited, _thread
    _inherited = _inherited or _opened is not None
    _thread = _Thread()


os.register_at_fork(after_in_child=_after_fork)


def _refuse_after_fork() -> None:
    if _inherited:
        raise DeviceError(
            "a process forked after CUDA was begun cannot use the GPU",
            f"process {os.getpid()} was forked by {os.getppid()}, which had begun it",
            "start processes by multiprocessing.get_context('spawn'), or begin CUDA in the children alone",
        )


def _text(error: Any) -> str:
    known, text = _api.cuGetErrorString(error)
    return f"{error.name}: {'unknown' if known else text.decode()}"


class Driver:
    """The driver of this process.

    vendor: whose GPUs it drives.  version: of the CUDA or HIP it is made for, as (13, 0).  count: of its
    devices.
    """

    version: tuple[int, int]
    count: int

    @staticmethod
    def open() -> Driver:
        """The process's driver, begun when this is called first.

        Raises MissingLibraryError without cuda-bindings, and DeviceError where there is no driver, an old
        one, or no device, or in a process forked after the driver was begun.
        """
        global _opened
        _refuse_after_fork()
        with _lock:
            if _opened is None:
                _opened = _first(VENDORS)
            return _opened

    def __init__(self, vendor: Vendor) -> None:
        global _api
        self.vendor, _api = vendor, vendor.table()
        name = vendor.interface
        try:
            error, number = _api.cuDriverGetVersion()
        except RuntimeError as missing:  # cuda-bindings looks for the library at its first call
            raise DeviceError(
                "the GPU needs NVIDIA's driver, whose library libcuda.so.1 is not found",
                str(missing),
                "nvidia-smi says whether the driver works; LD_LIBRARY_PATH adds folders to the search",
                "AMD's GPUs need ROCm, whose library libamdhip64.so is not found either",
            ) from None
        self.version = vendor.version(number)
        if error or self.version < vendor.oldest:
            raise DeviceError(
                "the {0} driver is for {0} {1}.{2} or newer".format(name, *vendor.oldest),
                "found: {} {}.{}".format(name, *self.version),
                f"update {vendor.driver}",
            )
        (error,) = _api.cuInit(0)
        error, self.count = (error, 0) if error else _api.cuDeviceGetCount()
        if error:
            visible = [each for each in vendor.visible if each in os.environ]
            raise DeviceError(
                f"the {name} driver finds a GPU",
                _text(error),
                *(f"{each} is {os.environ[each]!r}" for each in visible),
            )
        self._devices: dict[int, Device] = {}

    def device(self, ordinal: int = 0) -> Device:
        """That device, counted from 0: the same object each time.  Raises DeviceError if there is none."""
        _refuse_after_fork()
        if not 0 <= ordinal < self.count:
            raise DeviceError(f"cuda:{ordinal} is not there", f"devices: {self.count}, counted from 0")
        with _lock:
            if ordinal not in self._devices:
                self._devices[ordinal] = Device(self, ordinal)
            return self._devices[ordinal]


def _first(vendors: Sequence[Vendor]) -> Driver:
    """The first driver that is here and can be begun.  Raises the error of the first that can't."""
    errors: list[DeviceError | MissingLibraryError] = []
    for vendor in vendors:
        if not vendor.is_here():
            continue
        try:
            return Driver(vendor)
        except (DeviceError, MissingLibraryError) as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return Driver(vendors[0])  # which says what there has to be


class Device:
    """One GPU.

    capability: as (9, 0).  architecture: its name, where the vendor has one.  target: what kernels are
    compiled for, as "sm_90".  total_memory: in bytes.  warp: threads that run together.  shared_limit: bytes
    of shared memory that one block may have at most.
    """

    def __init__(self, driver: Driver, ordinal: int):
        self.driver, self.ordinal = driver, ordinal
        self._fault: list[str] = []  # what lost the device, and what could be to blame, once something has
        self._held: dict[int, int] = {}  # bytes at each address that was allocated
        self._pinned: dict[int, int] = {}
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._making_streams = threading.RLock()  # a finalizer that runs meanwhile may ask for the streams
        self._orphans: deque[Any] = deque()  # modules whose kernels nobody holds any more
        handle = self._done("find the device", _api.cuDeviceGet(ordinal))

        def read(name: str) -> int:
            attribute = getattr(_api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
            return self._done("read an attribute", _api.cuDeviceGetAttribute(attribute, handle))

        name = self._done("read the name", _api.cuDeviceGetName(80, handle))
        self.name = name.split(b"\0", 1)[0].decode()
        self.capability = (read("COMPUTE_CAPABILITY_MAJOR"), read("COMPUTE_CAPABILITY_MINOR"))
        told = driver.vendor.architecture(_api, handle, self.name)
        self.architecture: str = self._done("read the architecture", told)
        self.target = driver.vendor.target(self.architecture, self.capability)
        self.warp = read("WARP_SIZE")
        self.total_memory = self._done("read the size", _api.cuDeviceTotalMem(handle))
        self.multiprocessors = read("MULTIPROCESSOR_COUNT")
        self.shared_limit = read("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        self._context = self._done("retain the primary context", _api.cuDevicePrimaryCtxRetain(handle))

    def __repr__(self) -> str:
        return f"<cuda:{self.ordinal} {self.name}, {self.target}>"

    def use(self) -> None:
        """Make the device's primary context current on this thread, if it is not."""
        _refuse_after_fork()
        if self._done("ask for the context", _api.cuCtxGetCurrent()) != self._context:
            self._done("make the context current", _api.cuCtxSetCurrent(self._context))
        _thread.device = self

    def check(self) -> None:
        """Raises DeviceError where the device was lost."""
        if self._fault:
            raise DeviceError(
                f"cuda:{self.ordinal} was lost",
                f"by: {self._fault}",
                "the process has lost it: begin a new one",
            )

    def call(self, what: str, function: Callable[..., tuple], *arguments: object) -> Any:
        """What a function of the driver gives with this device current.  Raises DeviceError."""
        self.use()
        return self._done(what, function(*arguments))

    def queue(self, what: str, function: Callable[..., tuple], *arguments: object) -> None:
        """Call a function that puts something into a stream, on a thread that has a context at all."""
        if _thread.device is not self:
            self.use()
        self._done(what, function(*arguments))

    def _done(self, what: str, result: tuple) -> Any:
        if result[0]:
            raise self.failure(what, result[0])
        return result[-1]

    def failure(self, what: str, error: Any, *details: str) -> DeviceError:
        """The error to raise for what the driver refused.  It is remembered if the device is lost by it."""
        text = _text(error)
        if error.name not in self.driver.vendor.sticky:
            return DeviceError(f"cuda:{self.ordinal} could not {what}: {text}", *details)
        rule = f"cuda:{self.ordinal} cannot {what}: it was lost before"
        if not self._fault:
            rule = f"cuda:{self.ordinal} failed: {text}"
            launched = [f"  {line}" for stream in self._all_streams() for line in stream.unfinished()]
            self._fault = [f"{text}, seen by: {what}"]
            self._fault += ["launched and not known to be done:", *launched] if launched else []
        return DeviceError(rule, *self._fault, *details, "the process has lost the device: begin a new one")

    def _all_streams(self) -> list[Stream]:
        with self._making_streams:
            return [*self._streams]

    def allocate(self, nbytes: int) -> int:
        """The address of that much fresh memory, not filled.  Raises OutOfMemoryError."""
        self.use()
        error, address = _api.cuMemAlloc(nbytes)
        if error and error == OUT_OF_MEMORY:
            free, total = self.memory()
            raise OutOfMemoryError(
                f"cuda:{self.ordinal} has no {_size(nbytes)} left",
                f"free: {_size(free)} of {_size(total)}",
                f"held by this process: {_size(sum(self._held.values()))} in {len(self._held)} pieces",
                "free tensors that are no longer needed, or take smaller batches",
            )
        self._done(f"allocate {nbytes} bytes", (error,))
        self._held[int(address)] = nbytes
        return int(address)

    def release(self, address: int) -> None:
        """Give back what `allocate` gave.  It does not wait: nothing may still use that memory.

        Raises DeviceError for what is not allocated.
        """
        if address not in self._held:
            raise DeviceError(f"cuda:{self.ordinal}: {address:#x} is not allocated, or was released before")
        self.call("release memory", _api.cuMemFree, address)
        del self._held[address]

    def memory(self) -> tuple[int, int]:
        """Bytes that are free, and bytes in all."""
        self.use()
        error, free, total = _api.cuMemGetInfo()
        self._done("read what memory is free", (error,))
        return free, total

    def host_allocate(self, nbytes: int) -> int:
        """The address of that much pinned memory of the host, not filled.  Raises OutOfMemoryError."""
        self.use()
        error, address = _api.cuMemHostAlloc(nbytes, _api.CU_MEMHOSTALLOC_PORTABLE)
        if error and error == OUT_OF_MEMORY:
            raise OutOfMemoryError(
                f"the host has no {_size(nbytes)} left that can be pinned",
                f"pinned by this process: {_size(sum(self._pinned.values()))} in {len(self._pinned)} pieces",
            )
        self._done(f"pin {nbytes} bytes", (error,))
        self._pinned[int(address)] = nbytes
        return int(address)

    def host_release(self, address: int) -> None:
        """Give back what `host_allocate` gave.  It does not wait: no copy may still use that memory."""
        if address not in self._pinned:
            raise DeviceError(f"cuda:{self.ordinal}: {address:#x} is not pinned, or was released before")
        self.call("release pinned memory", _api.cuMemFreeHost, address)
        del self._pinned[address]

    def holds(self, address: int) -> bool:
        """Whether an address is of this device's memory, whoever allocated it.

        Raises DeviceError for one that is in none.
        """
        attribute = _api.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        found = self.call("ask where memory is", _api.cuPointerGetAttribute, attribute, address)
        return int(found) == self.ordinal

    def stream(self) -> Stream:
        """A new queue of work; it waits for no other, not for the default stream either."""
        return Stream(self)

    def load(self, binary: Binary, types: tuple[str, ...] | None = None) -> Function:
        """The kernel of that binary, ready to launch.

        types: Triton's, of its parameters; without them all are pointers.  Raises DeviceError for a binary of
        another kind of GPU, one whose parameters lie elsewhere, and one that wants too much shared memory.
        """
        return Function(self, binary, types)

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        orphans, streams = [], self._all_streams()
        with suppress(IndexError):  # another thread may take some
            while True:
                orphans.append(self._orphans.popleft())
        numbers = [stream.kept.numbers() for stream in streams]
        self.call("finish its work", _api.cuCtxSynchronize)
        for stream, done in zip(streams, numbers, strict=True):
            stream.forget()
            stream.kept.let_go(done)
        for module in orphans:  # nothing that was launched from them can still run
            self.call("unload a kernel", _api.cuModuleUnload, module)

    def adopt(self, module: Any) -> None:
        """Unload a module some time later, when no launch from it can still run.

        A load does not wait for that, since it may come while a stream is captured.
        """
        self._orphans.append(module)


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.1f} MiB" if nbytes >= 1 << 20 else f"{nbytes:,} bytes"


def _close(device: Device, destroy: Callable[..., tuple], handle: Any) -> None:
    """Destroy a handle for an object that died, on whichever thread that was, and leave that as it was.

    An object may die in the middle of what another library does there, with a context of its own.
    """
    with suppress(DeviceError):  # a device that is lost, or a forked child: there is nothing to close
        _refuse_after_fork()
        noted, before = _thread.device, device._done("ask for the context", _api.cuCtxGetCurrent())
        try:
            device.call("close what died", destroy, handle)
        finally:
            if before != device._context:
                device._done("put a context back", _api.cuCtxSetCurrent(before))
                _thread.device = noted


def _close_at_death(owner: object, device: Device, destroy: Callable[..., Any], handle: Any) -> None:
    weakref.finalize(owner, _close, device, destroy, handle).atexit = False  # the process's end frees all


def _ending(kept: Kept) -> Callable[..., tuple]:
    """What destroys a stream: its work goes on, so arrays that it copies from or to are waited for."""

    def end(handle: Any) -> tuple:
        if numbers := kept.numbers():
            _api.cuStreamSynchronize(handle)
            kept.let_go(numbers)
        return _api.cuStreamDestroy(handle)

    return end


class Stream:
    """A queue of work on a device, done in order.  kept: the host's arrays of its copies."""

    def __init__(self, device: Device):
        self.device = device
        flags = _api.CUstream_flags.CU_STREAM_NON_BLOCKING
        self._handle = device.call("make a stream", _api.cuStreamCreate, flags)
        self._recent: deque[tuple[str, object]] = deque(maxlen=REMEMBERED)
        self.kept = Kept()
        _close_at_death(self, device, _ending(self.kept), self._handle)
        with device._making_streams:
            device._streams.add(self)

    @property
    def handle(self) -> int:
        """The driver's own number for it, for other libraries."""
        return int(self._handle)

    def copy_in(self, address: int, array: np.ndarray) -> None:
        """Copy a dense array to the device.  It must stay as it is until the stream has come so far."""
        check_dense(array)
        if array.nbytes:
            source = address_of(array)
            self.device.queue(
                "copy to it", _api.cuMemcpyHtoDAsync, address, source, array.nbytes, self._handle
            )
            self.kept.add(array)

    def copy_out(self, array: np.ndarray, address: int) -> None:
        """Copy from the device to a dense array, which is filled when the stream has come so far."""
        check_dense(array)
        if not array.flags.writeable:
            raise ArgumentValueError("a copy from the device goes to an array that can be written to")
        if array.nbytes:
            target = address_of(array)
            self.device.queue(
                "copy from it", _api.cuMemcpyDtoHAsync, target, address, array.nbytes, self._handle
            )
            self.kept.add(array)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Copy within the device; the two do not overlap."""
        if nbytes:
            self.device.queue("copy", _api.cuMemcpyDtoDAsync, target, source, nbytes, self._handle)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        """Set each byte."""
        if nbytes:
            self.device.queue("fill memory", _api.cuMemsetD8Async, address, byte, nbytes, self._handle)

    def fill_words(self, address: int, word: bytes, count: int) -> None:
        """Set `count` words of 1, 2 or 4 bytes, from an address that is a multiple of their size."""
        fills = {1: _api.cuMemsetD8Async, 2: _api.cuMemsetD16Async, 4: _api.cuMemsetD32Async}
        if len(word) not in fills:
            raise ArgumentValueError(f"memory is filled with words of 1, 2 or 4 bytes, not {len(word)}")
        if count:
            number = int.from_bytes(word, "little")
            self.device.queue("fill memory", fills[len(word)], address, number, count, self._handle)

    def record(self, timing: bool = False) -> Event:
        """An event that is done when all that is in the stream now is.  timing: whether it notes when."""
        return Event(self, timing)

    def wait(self, event: Event) -> None:
        """Have what comes into the stream from now on wait for an event.  The host does not wait."""
        self.device.queue("wait for an event", _api.cuStreamWaitEvent, self._handle, event._handle, 0)

    def lead(self, handle: int) -> None:
        """Have a stream of another library's, by the driver's number, wait for all that is in this one."""
        event = self.record()
        self.device.queue(
            "have a stream wait", _api.cuStreamWaitEvent, _api.CUstream(handle), event._handle, 0
        )

    def follow(self, handle: int) -> None:
        """Have what comes into the stream from now on wait for what such a stream has now."""
        if handle != self.handle:
            self.wait(Event(self, False, _api.CUstream(handle)))

    def synchronize(self) -> None:
        """Wait, on the host, until the stream is empty; now and then for all, to unload kernels."""
        if len(self.device._orphans) > UNLOAD_AFTER:
            self.device.synchronize()
            return
        numbers = self.kept.numbers()
        self.device.queue("finish a stream", _api.cuStreamSynchronize, self._handle)
        self.forget()
        self.kept.let_go(numbers)

    def done(self) -> bool:
        """Whether the stream is empty."""
        return _is_done(self.device, "ask for a stream", _api.cuStreamQuery, self._handle)

    def launch(
        self,
        function: Function,
        grid: int | tuple[int, int, int],
        *values: float,
        about: object = "",
        scratch: int = 0,
        profile: int = 0,
    ) -> None:
        """Launch a kernel: `grid` programs, given its parameters in order, addresses for the pointers.

        about: what errors name besides the kernel: its op and the user's line.  scratch, profile: addresses
        of `Function.scratch(grid)` bytes, for a kernel that needs them.  Raises DeviceError.
        """
        device = self.device
        if _thread.device is not device:
            device.use()
        x, y, z = grid if isinstance(grid, tuple) else (grid, 1, 1)
        if not x * y * z:
            return
        function.check(device, scratch, profile)
        pointers = function.packer.pack(values, scratch, profile)
        self._recent.append((function.name, about))
        x *= function.num_ctas
        if function.num_ctas == 1:
            (error,) = _api.cuLaunchKernel(
                function.handle, x, y, z, function.threads, 1, 1, function.shared, self._handle, pointers, 0
            )
        else:
            (error,) = _api.cuLaunchKernelEx(self._config(function, x, y, z), function.handle, pointers, 0)
        if error:
            self._recent.pop()
            raise device.failure(
                f"launch {function.name}",
                error,
                *([f"for: {about}"] if about else []),
                f"grid {x} x {y} x {z}, {function.threads} threads, {function.shared} bytes of shared memory",
            )

    def _config(self, function: Function, x: int, y: int, z: int) -> Any:
        """A launch in clusters of num_ctas blocks, scheduled so that they spread over the device."""
        cluster, spread = _api.CUlaunchAttribute(), _api.CUlaunchAttribute()
        cluster.id = _api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = cluster.value.clusterDim
        size.x, size.y, size.z = function.num_ctas, 1, 1
        spread.id = _api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
        spread.value.clusterSchedulingPolicyPreference = (
            _api.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
        )
        config = _api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = x, y, z
        config.blockDimX, config.blockDimY, config.blockDimZ = function.threads, 1, 1
        config.sharedMemBytes, config.hStream = function.shared, self._handle
        config.attrs, config.numAttrs = [cluster, spread], 2
        return config

    def note(self, name: str) -> None:
        """Have errors name what another library was told to put into the stream now."""
        self._recent.append((name, ""))

    def unfinished(self) -> list[str]:
        """Its last launches that nobody has waited for, with what their callers said of them."""
        return [f"{name} {about}".rstrip() for name, about in [*self._recent]]

    def forget(self) -> None:
        """Note that all launches so far are done."""
        self._recent.clear()


def _is_done(device: Device, what: str, query: Callable[..., tuple], handle: Any) -> bool:
    if _thread.device is not device:
        device.use()
    (error,) = query(handle)
    if error and error != NOT_READY:
        raise device.failure(what, error)
    return not error


class Event:
    """A point in a stream, as `Stream.record` notes it.  other: a handle of another library's stream."""

    def __init__(self, stream: Stream, timing: bool, other: Any = None):
        self.device, self.timing = stream.device, timing
        flags = _api.CUevent_flags.CU_EVENT_DEFAULT if timing else _api.CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._handle = self.device.call("make an event", _api.cuEventCreate, flags)
        _close_at_death(self, self.device, _api.cuEventDestroy, self._handle)
        self.device.queue(
            "record an event", _api.cuEventRecord, self._handle, stream._handle if other is None else other
        )

    def done(self) -> bool:
        """Whether the stream has come so far."""
        return _is_done(self.device, "ask for an event", _api.cuEventQuery, self._handle)

    def synchronize(self) -> None:
        """Wait, on the host, until the stream has come so far."""
        self.device.queue("wait for an event", _api.cuEventSynchronize, self._handle)

    def since(self, earlier: Event) -> float:
        """Milliseconds from another event to this one.  Waits for both.

        Raises DeviceError unless both were recorded with timing.
        """
        if not (self.timing and earlier.timing):
            raise DeviceError("the time between two events needs both to note it", "record(timing=True) does")
        earlier.synchronize()
        self.synchronize()
        return self.device.call(
            "tell the time between events", _api.cuEventElapsedTime, earlier._handle, self._handle
        )


class Graph:
    """What `work` puts into a stream, to be put there again by one call.  Nothing runs while it is made.

    work: launches, copies within the device and fillings, on memory that is there as long as the graph is.
    Raises DeviceError for anything else.
    """

    def __init__(self, stream: Stream, work: Callable[[], object]):
        device, mode = stream.device, _api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        device.call("begin a capture", _api.cuStreamBeginCapture, stream._handle, mode)
        try:
            work()
        except BaseException:
            _api.cuStreamEndCapture(stream._handle)
            raise
        taken = device.call("end a capture", _api.cuStreamEndCapture, stream._handle)
        try:
            self._handle = device.call("make a graph", _api.cuGraphInstantiate, taken, 0)
        finally:
            device.call("drop a captured graph", _api.cuGraphDestroy, taken)
        self.device = device
        _close_at_death(self, device, _api.cuGraphExecDestroy, self._handle)

    def launch(self, stream: Stream) -> None:
        """Put all of it into a stream."""
        self.device.queue("launch a graph", _api.cuGraphLaunch, self._handle, stream._handle)


class Function:
    """A kernel that is loaded.  threads: of a block.  shared: bytes of shared memory that a block has."""

    def __init__(self, device: Device, binary: Binary, types: tuple[str, ...] | None):
        self.device, self.name = device, binary.name
        self.num_ctas, self.shared = binary.num_ctas, binary.shared
        self.threads = device.warp * binary.num_warps
        self._sizes = binary.global_scratch[0], binary.profile_scratch[0]
        found = device.driver.vendor.layout(binary, device)
        self.types = ("*i8",) * (len(found) - len(SCRATCH)) if types is None else types
        check_layout(self.name, self.types, found)
        self.packer = Packer(self.types)
        device.use()
        error, module = _api.cuModuleLoadData(binary.code)
        if error:
            version = "{} {}.{}".format(device.driver.vendor.interface, *device.driver.version)
            raise device.failure(
                f"load {self.name}",
                error,
                f"compiled for {binary.target}, {len(binary.code)} bytes; "
                f"the device is {device.target}, its driver for {version}",
            )
        weakref.finalize(self, device.adopt, module).atexit = False
        self.handle = device.call(f"find {self.name}", _api.cuModuleGetFunction, module, self.name.encode())
        self._opt_in()
        # else the driver may do it at the first launch, which then waits: it may be timed, or captured
        device.call(f"load {self.name}", _api.cuFuncLoad, self.handle)

    def _opt_in(self) -> None:
        """Ask for what a kernel doesn't have by itself: much shared memory, and clusters of 16 blocks."""
        unasked = self.device.driver.vendor.unasked
        if unasked is None:
            return
        call, attribute = self.device.call, _api.CUfunction_attribute
        what = f"prepare {self.name}"
        if self.shared > unasked:
            static = call(
                what, _api.cuFuncGetAttribute, attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, self.handle
            )
            call(what, _api.cuFuncSetCacheConfig, self.handle, _api.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED)
            most = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            call(what, _api.cuFuncSetAttribute, self.handle, most, self.device.shared_limit - static)
        if self.num_ctas == 16:
            large = attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            call(what, _api.cuFuncSetAttribute, self.handle, large, 1)

    def scratch(self, grid: int | tuple[int, int, int]) -> tuple[int, int]:
        """Bytes of scratch memory that a launch of that grid needs: of the global one, and the profiler's."""
        x, y, z = grid if isinstance(grid, tuple) else (grid, 1, 1)
        blocks = x * y * z * self.num_ctas
        return blocks * self._sizes[0], blocks * self._sizes[1]

    def check(self, device: Device, scratch: int, profile: int) -> None:
        """Raise DeviceError for a launch on another device, or without the scratch memory that is needed."""
        if device is not self.device:
            raise DeviceError(
                f"{self.name} was loaded on cuda:{self.device.ordinal}, the stream is cuda:{device.ordinal}'s"
            )
        if (self._sizes[0] and not scratch) or (self._sizes[1] and not profile):
            raise DeviceError(
                f"{self.name} needs scratch memory, and a launch gave none",
                f"bytes for each block: {self._sizes[0]} global, {self._sizes[1]} for the profiler",
                "launch(..., scratch=address, profile=address), of Function.scratch(grid) bytes",
            )
