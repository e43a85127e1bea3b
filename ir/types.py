"""The type of a value: element type, shape and device.

Types are interned: equal types are one object, so that "same kind" is an identity test and a type hashes as
fast as any object.  The table holds them until there are many; then it refers to them, and forgets those that
nothing else holds.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any
from weakref import ref

from .dims import Dim
from .dtypes import DType, dtype_named, float32, float64
from .errors import ArgumentError, DeviceError, ShapeError
from .locks import fork_safe_lock
from .pretended_gpus import is_index, is_pretended

Shape = tuple[int | Dim, ...]

# Up to this many elements a gradient rule is handed NumPy arrays: NumPy's own call is then the whole cost,
# and the tensor's (allocation of the object, mode checks) is saved.  Beyond it the rule runs on tensors,
# which know faster kernels than NumPy's.
SMALL = 16_384
TABLE_LIMIT = 65_536
LARGEST = 2**63 - 1  # what an int64 counts: the bytes of an array, and so its elements and sizes
PLENTY = 2**56  # elements: up to here the bytes are fewer, whatever the dtype
INT = frozenset((int,))
_SMALL_DTYPES = frozenset((float32, float64))
RANK = 64  # the dimensions that NumPy's arrays have at most
_TWOS = (2,) * RANK


class Device:
    """Where a value lives: a kind ("cpu", "cuda") and, for accelerators, an index.

    A number alone is the accelerator of that index, where there are GPUs, pretended ones too
    (pretended_gpus.py).
    """

    __slots__ = ("type", "index", "blocks")  # blocks: those that `with device:` opened (runtime/meta.py)

    blocks: tuple
    index: int | None

    def __init__(self, type: str | Device | int, index: int | None = None):
        if isinstance(type, Device):
            type, index = type.type, type.index
        elif is_index(type) and type >= 0:
            index = int(type)
            type = "cuda"
        spelled = re.fullmatch(r"(cpu|cuda|meta)(?::(\d+))?", type) if isinstance(type, str) else None
        if not spelled or (index is not None and spelled[2]):
            shown = repr(type) if isinstance(type, str) else f"a {type.__class__.__name__}"
            raise DeviceError(f"device(type): no such device: {shown}", "known: 'cpu', 'cuda', 'cuda:0'")
        self.type = spelled[1]
        self.index = int(spelled[2]) if spelled[2] else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __reduce__(self):
        return (Device, (self.type, self.index))


CPU = Device("cpu")


def placed(device: Any) -> Device:
    """The device that a name means: the CPU for one that is pretended.  Raises DeviceError."""
    place = Device(device)
    return CPU if is_pretended(place) else place


class Type:
    """dtype, shape and device of a value.  Make one with `type_of`.

    `small`: a gradient rule may be handed the plain array of such a value.  `form`: what it has in common
    with types that differ in sizes alone; sizes of 0 and of 1 are no others.  `scalars`: Python numbers as
    tensors beside it; what they are hangs on no size.  `compared`: the same where it is compared with them,
    which beside halves are halves.  `sizes`: the shape as a tensor tells it, once one did.
    """

    __slots__ = (
        "dtype", "shape", "device", "ndim", "small", "form", "scalars", "compared", "sizes", "__weakref__",
    )  # fmt: skip

    dtype: DType
    shape: Shape
    device: Device
    ndim: int
    small: bool
    form: tuple
    scalars: dict
    compared: dict
    sizes: Any

    @property
    def size(self) -> int:
        """The number of elements, where every dimension is known."""
        return prod(self.shape)

    def with_dtype(self, dtype: DType) -> Type:
        return type_of(dtype, self.shape, self.device)

    def with_shape(self, shape: Shape) -> Type:
        return type_of(self.dtype, shape, self.device)

    def at(self, device: Device) -> Type:
        """The type of the same on a device."""
        return type_of(self.dtype, self.shape, device)

    def __str__(self) -> str:
        place = "" if self.device is CPU or self.device == CPU else f"@{self.device}"
        return f"{self.dtype.short}[{','.join(map(str, self.shape))}]{place}"

    __repr__ = __str__

    def __reduce__(self):
        return (_restore, (self.dtype.name, self.shape, self.device))


def _restore(dtype: str, shape: Shape, device: Device) -> Type:
    return type_of(dtype_named(dtype), shape, device)


_known: dict[tuple, Type | ref[Type]] = {}  # every type there is, and some that were
_most = TABLE_LIMIT  # of these, until those that were are forgotten
# Of a dtype, dims above one, and a device: scalars, those compared with, the form.
_shared: dict[tuple, tuple[dict, dict, tuple]] = {}
_dropping = fork_safe_lock()


def type_of(dtype: DType, shape: Shape, device: Device = CPU) -> Type:
    """The interned type of that element type, shape and device."""
    key = (dtype, shape) if device is CPU else (dtype, shape, device)
    found = _known.get(key)
    return found if type(found) is Type else _intern(key, dtype, shape, device)


def sized(dtype: DType, shape: tuple[int, ...]) -> Type:
    """The same on the CPU, of sizes that are ints for sure, as formulas give them."""
    found = _known.get(key := (dtype, shape))
    return found if type(found) is Type else _made(key, dtype, shape, CPU, True)


def _check_sizes(dtype: DType, shape: Shape) -> None:
    """Refuse sizes that are negative, or whose elements no 64-bit offset reaches.  Raises ShapeError.

    A size of 0 counts as 1: what is empty has strides, too.
    """
    sizes = [n for n in shape if isinstance(n, int)]
    if any(n < 0 for n in sizes):
        raise ShapeError(f"a size can't be negative: {list(shape)}")
    if len(shape) > RANK:
        raise ShapeError(f"an array has at most {RANK} dimensions, not {len(shape)}")
    if prod(max(n, 1) for n in sizes) * dtype.itemsize > LARGEST:
        raise ShapeError(
            f"Storage size calculation overflowed: the sizes are too large, {list(shape)} of {dtype.name}",
            "64-bit offsets reach 2**63 - 1 bytes",
        )


def _intern(key: tuple, dtype: DType, shape: Shape, device: Device) -> Type:
    if device is not CPU and device == CPU:
        return type_of(dtype, shape, CPU)
    known = INT.issuperset(map(type, shape))
    if not known and not all(type(d) is int or isinstance(d, Dim) for d in shape):
        # 2.0 == 2: it would pass for it ever after
        return type_of(dtype, tuple(map(_size, shape)), device)
    if not isinstance(dtype, DType):
        raise ArgumentError(f"the element type of a type is a dtype, not {dtype!r}")
    return _made(key, dtype, shape, device, known)


def _made(key: tuple, dtype: DType, shape: Shape, device: Device, known: bool) -> Type:
    made = object.__new__(Type)
    made.dtype, made.shape, made.device = dtype, shape, device
    made.ndim = ndim = len(shape)
    kind = (dtype, ndim) if device is CPU else (dtype, ndim, device)
    made.sizes = None
    made.scalars, made.compared, made.form = _shared.get(kind) or _share(dtype, ndim, device)
    if not known or not ndim:
        size, least = (1, 2) if known else (LARGEST, 2)
    elif ndim == 1:
        size = least = shape[0]
    else:
        size, least = prod(shape), min(shape)
    if size > PLENTY or least < 1 or ndim > RANK:
        _check_sizes(dtype, shape)
    if least < 2:
        made.form = (*made.form[:-ndim], *map(min, shape, _TWOS))
    made.small = size <= SMALL and device is CPU and dtype in _SMALL_DTYPES
    if (held := _known.setdefault(key, made)) is not made:
        return _first(key, made, held)
    if len(_known) > _most:
        _drop()
    return made


def _share(dtype: DType, ndim: int, device: Device) -> tuple[dict, dict, tuple]:
    """What types have in common that differ in sizes alone."""
    place = () if device is CPU else (device,)
    if ndim < 2:
        scalars: dict = {}
        compared = scalars if dtype.compute is dtype else {}
    else:  # whether there are dims is all that counts
        scalars, compared, _ = _share(dtype, 1, device)
    return _shared.setdefault((dtype, ndim, *place), (scalars, compared, (dtype, *place, *(2,) * ndim)))


def _first(key: tuple, made: Type, held: Type | ref[Type]) -> Type:
    """The type of that key: the one there is, or this, of whatever threads ask at once.

    No lock is held where objects are made: what a collection of garbage runs then may ask for types, too.
    """
    while held is not made:
        if (found := held if isinstance(held, Type) else held()) is not None:
            _known[key] = found  # which lives: no other type has its key
            return found
        _forget(key, held)
        held = _known.setdefault(key, made)
    return made


def _forget(key: tuple, held: Type | ref[Type]) -> None:
    with _dropping:
        if _known.get(key) is held:
            del _known[key]


def _drop() -> None:
    """Hold no type any longer, and forget those that were."""
    global _most
    for key, held in _known.copy().items():
        if isinstance(held, Type):  # which lives as long as this copy: no other type has its key meanwhile
            _known[key] = ref(held)
    held = None
    for key, own in _known.copy().items():
        if not isinstance(own, Type) and own() is None:
            _forget(key, own)
    _most = 2 * len(_known) + TABLE_LIMIT


def _size(size: Any) -> int | Dim:
    """A size as Python's own int: True and NumPy's integers are taken, too."""
    if isinstance(size, Dim):
        return size
    if not hasattr(size, "__index__"):
        raise ArgumentError(f"a size is an int or a dimension, not {size!r}")
    return int(size)
