"""Arrays whose elements are in the memory of a GPU, as tensors hold them.

NumPy keeps their shapes, strides and where in its memory each begins, so that views, and what looks for
memory that is shared, are those of the CPU.  The addresses that NumPy is given are of a window behind which
nothing stands: an array is as far into it as its elements are into the device's memory.  Whoever should look
there ends the process, since numbers that are none would be worse.  Everything that computes is in
`cuda.eager`, loaded when the first device is asked for.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..ir import pretended_gpus
from ..ir.errors import ArgumentError, DeviceError
from ..ir.lazy import MissingLibraryError, load
from ..ir.types import CPU, Device, placed
from .memory import quick_address

if TYPE_CHECKING:
    from .cuda.arrays import DeviceArray

_array, _BYTE = np.ndarray, np.dtype(np.uint8)
_new: Any = np.ndarray.__new__
ALIGNMENT = 16  # as of passes/triton/code.py, which is not loaded here
SPAN = 1 << 40  # bytes that the window shows at once; addresses that far apart look alike
_NOTHING, _READ, _PRIVATE, _ANONYMOUS, _NO_RESERVE = 0, 1, 2, 0x20, 0x4000  # of mmap


@cache
def window(protection: int) -> ctypes.Array:
    """The addresses that arrays on devices are given: twice SPAN, as one may begin near the end of the first.

    protection: what may be done there.  Raises DeviceError where the process may not have so many.
    """
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype, library.mmap.argtypes = ctypes.c_void_p, (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
    )  # fmt: skip
    start = library.mmap(None, 2 * SPAN, protection, _PRIVATE | _ANONYMOUS | _NO_RESERVE, -1, 0)
    if start is None or start == ctypes.c_void_p(-1).value:
        raise DeviceError(
            f"tensors on a GPU need {2 * SPAN >> 40} TiB of addresses, which this process can't have",
            "ulimit -v unlimited allows it: nothing is stored there",
        )
    return (ctypes.c_char * (2 * SPAN)).from_address(start)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise DeviceError(
        "NumPy can't compute with an array in a GPU's memory", "x.cpu() copies a tensor to where it can"
    )


class OnDevice(np.ndarray):
    """An array in a device's memory, made by `part` alone.

    memory: what holds it, and goes when the last array over it does.  address: where the first element is, on
    the device.  ready: the device's machine where kernels may be handed that as it is, row by row and from a
    multiple of ALIGNMENT on; None elsewhere.
    """

    memory: DeviceArray
    address: int
    ready: Any

    __array_ufunc__ = __array_function__ = _refuse
    item = tolist = tobytes = astype = fill = _refuse
    __bool__ = __int__ = __float__ = __complex__ = __index__ = _refuse
    __getitem__ = __setitem__ = __array__ = __dlpack__ = _refuse
    # Methods in C that ask nobody.
    argmax = argmin = argpartition = argsort = partition = sort = searchsorted = nonzero = dot = _refuse
    take = put = choose = compress = repeat = byteswap = setfield = tofile = dump = dumps = _refuse
    # And those whose views would have none of what `part` gives: `plain` and `as_view` make such.
    reshape = transpose = ravel = flatten = squeeze = swapaxes = diagonal = getfield = _refuse

    def view(self, dtype: Any) -> OnDevice:  # type: ignore[override]
        """The same bytes as elements of another dtype.  Raises ValueError as NumPy does."""
        found = as_view(self, plain(self).view(dtype))
        assert found is not None
        return found

    def copy(self, order: Any = "C") -> OnDevice:
        """A dense copy, on the device; it is queued."""
        return eager().copied(self)


@cache
def _start(protection: int) -> int:
    return ctypes.addressof(window(protection))


def over(memory: DeviceArray) -> np.ndarray:
    """The bytes of a device's memory, for `part`."""
    return _array((memory.nbytes,), _BYTE, window(_NOTHING), memory.address % SPAN)


def part(
    memory: DeviceArray, line: np.ndarray, shape: tuple[int, ...], dtype: np.dtype, at: int = 0,
    strides: tuple[int, ...] | None = None,
) -> OnDevice:  # fmt: skip
    """An array over some of a memory's bytes, from byte `at` on.  line: what `over` made of it, which all
    arrays of it share as their base.
    """
    made = _new(OnDevice, shape, dtype, line, at, strides)
    made.memory, made.address = memory, memory.address + at
    whole = strides is None or made.flags.c_contiguous
    made.ready = memory.machine if whole and (not at or made.address % ALIGNMENT == 0) else None
    return made


def line_of(x: OnDevice, dtype: np.dtype | None = None) -> OnDevice:
    """All of the memory that an array lies in, as a line of elements of its dtype, or of another."""
    kind = x.dtype if dtype is None else dtype
    return part(x.memory, x.base, (x.memory.nbytes // kind.itemsize,), kind)


def lying(line: OnDevice, at: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> OnDevice:
    """An array over some of a line: from element `at` on, with those strides in bytes."""
    begin = line.address - line.memory.address + at * line.itemsize
    return part(line.memory, line.base, shape, line.dtype, begin, strides)


def all_of(memory: DeviceArray, shape: tuple[int, ...], dtype: np.dtype) -> OnDevice:
    """All of a memory as an array; the same as of `part`, which each op's result is made by."""
    line = _array((memory.nbytes,), _BYTE, window(_NOTHING), memory.address % SPAN)
    made = _new(OnDevice, shape, dtype, line)
    made.memory, made.address, made.ready = memory, memory.address, memory.machine
    return made


def as_view(x: OnDevice, of: np.ndarray) -> OnDevice | None:
    """What NumPy made of `plain(x)`, on the device again; None for what is no view of it, but a copy."""
    if not of.size:
        return part(x.memory, x.base, of.shape, of.dtype)
    at = quick_address(of) - _start(_READ) + _start(_NOTHING) - quick_address(x.base)
    if not 0 <= at < x.base.nbytes:
        return None
    return part(x.memory, x.base, of.shape, of.dtype, at, of.strides)


def plain(x: OnDevice) -> np.ndarray:
    """The same array for NumPy, to make views of it: its elements read as zeros."""
    at = quick_address(x) - _start(_NOTHING)
    return np.ndarray(x.shape, x.dtype, window(_READ), at, x.strides)


def transposed(x: OnDevice, dims: Sequence[int]) -> OnDevice:
    """The view of an array with its dimensions in that order."""
    found = as_view(x, plain(x).transpose(dims))
    assert found is not None
    return found


def write_over(target: np.ndarray, source: np.ndarray) -> None:
    """Write an array's elements over another's, wherever they are."""
    if type(target) is OnDevice:
        eager().write(target, source)
    else:
        np.copyto(target, on_host(source))


def share_memory(one: np.ndarray, two: np.ndarray) -> bool:
    """Whether two arrays may have elements in common, by where they begin and end."""
    if type(one) is not OnDevice and type(two) is not OnDevice:
        return np.may_share_memory(one, two)
    if type(one) is not OnDevice or type(two) is not OnDevice or one.memory is not two.memory:
        return False
    return np.may_share_memory(plain(one), plain(two))


def eager() -> Any:
    """What computes on devices."""
    return load(f"{__package__}.cuda.eager")


def streamed() -> Any:
    """What knows streams that users made."""
    return load(f"{__package__}.cuda.streamed")


apart: list[Any] = []  # the streams that were made beside the default ones (cuda/streamed.py)
current: list[Callable[[], int]] = [
    lambda: 0
]  # the index that "cuda" alone means: what facade/streams.py says


@cache
def count() -> int:
    """How many GPUs there are: none without a driver, a device, or, for NVIDIA's, cuda-bindings."""
    if not load(f"{__package__}.cuda.vendors").are_here():
        return 0  # or a program that only asks would wait for bindings to be loaded
    try:
        return load(f"{__package__}.cuda.driver").Driver.open().count
    except (DeviceError, MissingLibraryError):
        return 0


pretended_gpus.real[0] = count


@cache
def _found(ordinal: int) -> Device:
    place = Device("cuda", ordinal)
    eager().machine_at(place)
    return place


def begun() -> list[Any]:
    """The machines of the GPUs that this process has used."""
    found = sys.modules.get(f"{__package__}.cuda.machine")
    return [*found._machines.values()] if found is not None else []


def on_host(data: np.ndarray) -> np.ndarray:
    """The elements of an array where NumPy can read them: itself, or a copy of one on a device."""
    return eager().fetched(data) if type(data) is OnDevice else data


def there(device: Any) -> Device:
    """The CPU, or the GPU of that name: one object for each.  Raises DeviceError where it is not there."""
    place = placed(device)
    if place.type == "cpu":
        return CPU
    if place.type != "cuda":
        raise ArgumentError(f"a device of this machine is needed, not {place}")
    try:
        return _found(current[0]() if place.index is None else place.index)
    except (DeviceError, MissingLibraryError) as error:
        raise DeviceError(
            f"there is no device {place} here", error.rule, *error.details, "use device='cpu'"
        ) from None
