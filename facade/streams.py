"""Streams, events and the current device of GPUs, those too that are pretended (ir/pretended_gpus.py).

Work of a GPU is done stream by stream: each thread's is queued on the stream that is its current one, the
default one unless it chose another, and nothing orders two streams but events.  On a pretended GPU it is done
when a call returns, and events note the time.  Without any nothing here can be made.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any, NoReturn

from ..ir.errors import ArgumentValueError, DeviceError
from ..ir.pretended_gpus import REMEDY
from ..ir.pretended_gpus import count as pretended
from ..ir.types import Device, placed
from ..runtime import modes, on_device

NONE = "there is no CUDA device here"


class _Chosen(threading.local):
    """What this thread chose: the current device, and by device a stream."""

    def __init__(self) -> None:
        self.index = 0
        self.streams: dict[int, Stream] = {}


chosen = _Chosen()
on_device.current[0] = lambda: chosen.index
_numbers = itertools.count(1)  # of streams; 0 is the default one


def count() -> int:
    """How many GPUs there are, or are pretended."""
    return pretended() or on_device.count()


def machine_of(index: int) -> Any:
    """What runs the work of a GPU; None for one that is pretended."""
    return None if pretended() else on_device.eager().machine_at(Device("cuda", index))


def _current() -> int:
    _tell()
    return chosen.index


def _tell() -> None:
    """Tell a recorder of a run: when what it recorded runs again, nobody asks for a device or chooses one."""
    if modes.CHANGED:
        modes.tell("refuse", "the current device was asked for or chosen")


def refuse(call: str) -> NoReturn:
    """Raise DeviceError for what asks for a device."""
    raise DeviceError(
        f"cuda.{call}(): {NONE}",
        "choose the device by asking: 'cuda' if lamina.cuda.is_available() else 'cpu'",
        REMEDY,
    )


def index_of(device: Any, call: str) -> int:
    """The index of a GPU, the current one's for None and negative numbers.  Raises DeviceError."""
    if not count():
        refuse(call)
    if device is None or (isinstance(device, int) and device < 0):
        return _current()
    place = Device(device)
    if place.type != "cuda":
        raise ArgumentValueError(f"cuda.{call}(device): a device of cuda, not {place}")
    placed(place)  # or there are not so many
    if (place.index or 0) >= count():
        raise DeviceError(f"cuda.{call}(device): there is no device {place} here, of {count()}")
    return _current() if place.index is None else place.index


class _OfDevice:
    def __new__(cls, *_: Any, **__: Any) -> Any:
        if not count():
            raise ArgumentValueError(f"Lamina has no torch.cuda.{cls.__name__}: {NONE}", REMEDY)
        return super().__new__(cls)


class Stream(_OfDevice):
    """A queue of a device's work: one of a pool of 32, which are handed out in turn.

    Priorities are taken, and change nothing.  queue: the driver's; None on a pretended device.  cuda_stream:
    its number, for other libraries.  Raises ArgumentValueError.
    """

    def __init__(self, device: Any = None, priority: int = 0, stream_id: int | None = None):
        self.device_index = index_of(device, "Stream")
        self.device = Device("cuda", self.device_index)
        self.queue: Any = None
        if (machine := machine_of(self.device_index)) is not None:
            if stream_id is None:
                self.queue = on_device.streamed().another(machine)
                stream_id = 1 + machine.apart.index(self.queue)
            else:
                self.queue = machine.apart[stream_id - 1] if stream_id else machine.default
        self.stream_id = next(_numbers) if stream_id is None else stream_id
        self.priority = priority
        self.cuda_stream = self.stream_id if self.queue is None else self.queue.handle
        self._blocks: list[StreamContext] = []

    def __cuda_stream__(self) -> tuple[int, int]:
        """The version of this protocol, and the driver's number."""
        return 0, self.cuda_stream

    def query(self) -> bool:
        """Whether its work is done."""
        return self.queue is None or self.queue.done()

    def synchronize(self) -> None:
        """Wait until its work is done."""
        if (machine := machine_of(self.device_index)) is not None:
            with on_device.streamed().chosen(machine, self.queue):
                on_device.eager().synchronize(machine)

    def wait_event(self, event: Event) -> None:
        """Have what comes from now on be done behind what came before the event."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Have what comes from now on be done behind what that stream was given."""
        if self.queue is not None and stream.queue is not self.queue:
            self.queue.wait(stream.queue.record())

    def record_event(self, event: Event | None = None) -> Event:
        """An event, a new one unless given, that notes now."""
        event = Event(enable_timing=True) if event is None else event
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        self._blocks.append(StreamContext(self))
        self._blocks[-1].__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._blocks.pop().__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device_index, self.stream_id) == (
            other.device_index,
            other.stream_id,
        )

    def __hash__(self) -> int:
        return hash((self.device_index, self.stream_id))

    def __repr__(self) -> str:
        return f"<lamina.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class Event(_OfDevice):
    """A point in time, between two of which `elapsed_time` tells the milliseconds."""

    def __init__(
        self, device: Any = None, *, enable_timing: bool = False, blocking: bool = False,
        interprocess: bool = False,
    ):  # fmt: skip
        self.device = Device("cuda", index_of(device, "Event"))
        self._timed, self._at = enable_timing, None

    _at: Any  # the time on a pretended device, the driver's event on others

    def record(self, stream: Stream | None = None) -> None:
        """Note the time, when what was asked for before is done."""
        if modes.CHANGED:
            modes.tell("refuse", "an event noted the time")
        stream = current_stream(self.device) if stream is None else stream
        if self._at is not None and stream.device != self.device:
            raise ArgumentValueError(
                f"Event.record(stream): Event device {self.device.index} does not match recording stream's "
                f"device {stream.device_index}"
            )
        self.device = stream.device
        self._at = time.perf_counter() if stream.queue is None else stream.queue.record(self._timed)

    def query(self) -> bool:
        """Whether what came before it is done."""
        return self._at is None or isinstance(self._at, float) or self._at.done()

    def synchronize(self) -> None:
        """Wait until what came before it is done."""
        if self._at is not None and not isinstance(self._at, float):
            self._at.synchronize()

    def wait(self, stream: Stream | None = None) -> None:
        """Have what comes into a stream from now on, the current one unless given, be done behind it."""
        stream = current_stream() if stream is None else stream
        if self._at is not None and stream.queue is not None:
            stream.queue.wait(self._at)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to another.

        Raises ArgumentValueError unless both have enable_timing=True and were recorded.
        """
        if not (self._timed and end_event._timed):
            raise ArgumentValueError("elapsed_time: both events need enable_timing=True")
        if self._at is None or end_event._at is None:
            raise ArgumentValueError("elapsed_time: both events must be recorded before")
        if not isinstance(self._at, float):
            return end_event._at.since(self._at)
        return (end_event._at - self._at) * 1e3


class StreamContext(_OfDevice):
    """Make a stream the current one, and its device, for a block; None changes nothing."""

    def __init__(self, stream: Stream | None):
        self.stream = stream
        self._before: list[tuple[int, dict[int, Stream], Any]] = []

    def __enter__(self) -> None:
        stream = self.stream
        if stream is None:
            return
        _tell()
        block = None
        if (machine := machine_of(stream.device_index)) is not None:
            block = on_device.streamed().chosen(machine, stream.queue)
            block.__enter__()
        self._before.append((chosen.index, {**chosen.streams}, block))
        _choose(stream)

    def __exit__(self, *error: object) -> None:
        if self._before:
            chosen.index, chosen.streams, block = self._before.pop()
            if block is not None:
                block.__exit__(*error)


class device(_OfDevice):
    """Make a device the current one for a block; None and negative numbers change nothing."""

    def __init__(self, device: Any):
        self.idx = index_of(device, "device")

    def __enter__(self) -> None:
        self.prev_idx, chosen.index = _current(), self.idx

    def __exit__(self, *error: object) -> None:
        chosen.index = self.prev_idx


def set_stream(stream: Stream | None) -> None:
    """Make a stream the current one of its device, and that the current device."""
    if stream is not None:
        _tell()
        if (machine := machine_of(stream.device_index)) is not None:
            modes.update(streams=on_device.streamed().choice(machine, stream.queue))
        _choose(stream)


def _choose(stream: Stream) -> None:
    chosen.index = stream.device_index
    chosen.streams[stream.device_index] = stream


def default_stream(device: Any = None) -> Stream:
    """The stream that is used without another.  Raises DeviceError without a device."""
    return Stream(index_of(device, "default_stream"), stream_id=0)


def current_stream(device: Any = None) -> Stream:
    """The stream in use.  Raises DeviceError without a device."""
    _tell()
    index = index_of(device, "current_stream")
    found = chosen.streams.get(index)
    if (machine := machine_of(index)) is None:
        return found or default_stream(index)
    queue = machine.stream  # in a backward it is the forward's, whatever was chosen
    if found is not None and found.queue is queue:
        return found
    return Stream(index, stream_id=0 if queue is machine.default else 1 + machine.apart.index(queue))


def set_device(device: Any) -> None:
    """Choose this thread's current device; a negative number changes nothing.  Raises DeviceError."""
    _tell()
    chosen.index = index_of(device, "set_device")


def current_device() -> int:
    """The index of this thread's current device.  Raises DeviceError without one."""
    return index_of(None, "current_device")
