"""Tensors in memory that several processes see: `share_memory_`, and how such tensors go to other processes.

The memory is anonymous (`memfd_create`), mapped shared: a forked process sees it at once, others are handed
its descriptor by multiprocessing.  It has no name, so nothing is left of it when a process is killed, and the
size of /dev/shm is no limit.  Whoever writes a tensor writes it for all, without any lock: single elements
are read and written whole, of a larger write others may see a part.
"""

from __future__ import annotations

import mmap
import os
import sys
import weakref
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from itertools import accumulate
from typing import Any

import numpy as np

from ..ir.errors import DeviceError, StateError
from ..ir.locks import fork_safe_lock
from . import modes
from .changes import advance_contents, advance_objects
from .history import storage_of
from .tensor import Parameter, Tensor, fields, retyped, slots, wrap

ALIGN = 64  # as kernels like their arrays
ROOM = 1 << 26  # bytes of a block that tensors get into one by one
# References to an array while it is counted: of its tensor or the array that shows it, a name, an argument.
ALONE = 3


class Block(mmap.mmap):
    """Shared memory of this process and others, alive as long as an array in it is.

    descriptor: by which it is handed on.  One block is mapped once in a process, however often it arrives.
    """

    descriptor: int

    def __new__(cls, descriptor: int, size: int) -> Block:
        made = super().__new__(cls, descriptor, size)
        made.descriptor = descriptor
        weakref.finalize(made, os.close, descriptor)
        return made


_blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()  # by the memory's inode
_lock = fork_safe_lock()


def _mapped(descriptor: int, size: int) -> Block:
    """The block of a descriptor, which belongs to it from now on."""
    inode = os.fstat(descriptor).st_ino
    with _lock:
        if (there := _blocks.get(inode)) is not None:
            os.close(descriptor)
            return there
        made = _blocks[inode] = Block(descriptor, size)
        return made


def block_of(array: np.ndarray) -> Block | None:
    """The shared memory that an array lies in, if it does."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    return owner if isinstance(owner, Block) else None


def share(tensors: Iterable[Tensor], roomy: bool = False) -> None:
    """Move tensors into one block of shared memory, in place; those that are in one already stay there.

    roomy: where others may follow one by one, a block has room for them, as each takes a descriptor.

    Raises DeviceError where there are no elements to move or no such memory, StateError for memory that
    others see, who would not see what other processes write.
    """
    unshared = {id(x): x for x in tensors if not is_shared(x)}
    if not unshared:
        return
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was moved into shared memory")
    for x in unshared.values():
        _check_alone(x)
    sizes = [-(-x._data.nbytes // ALIGN) * ALIGN for x in unshared.values()]
    starts = list(accumulate(sizes, initial=0))
    block, first = _room(starts[-1]) if roomy else (_new_block(max(starts[-1], 1)), 0)
    register()
    for x, start in zip(unshared.values(), starts):
        like = np.empty_like(x._data)  # its strides, without gaps
        data = np.ndarray(like.shape, like.dtype, block, first + start, like.strides)
        data[...] = x._data
        x._data = data
        storage_of(x).expose()  # what was computed of its values holds no longer than to the next call
    advance_objects()
    advance_contents()


def _new_block(size: int) -> Block:
    if not hasattr(os, "memfd_create"):
        raise DeviceError(
            "share_memory_(): this system has no anonymous shared memory",
            "hand state_dict() to the other process, and back what it changed",
        )
    descriptor = os.memfd_create("lamina-tensors")
    os.ftruncate(descriptor, size)
    return _mapped(descriptor, size)


_roomy: list[Any] = [lambda: None, 0]  # a reference to the block that still has room, and how much is taken


def _room(size: int) -> tuple[Block, int]:
    """A block with so much room, and from where on; pages that nobody writes take no memory."""
    with _lock:
        block, start = _roomy[0](), _roomy[1]
        if block is not None and start + size <= len(block):
            _roomy[1] += size
            return block, start
    made = _new_block(max(size, ROOM))
    with _lock:
        _roomy[:] = weakref.ref(made), size
    return made, 0


def _check_alone(x: Tensor) -> None:
    if type(x)._meta is not Tensor._meta or not x.is_cpu or not isinstance(x._data, np.ndarray):
        raise DeviceError(f"share_memory_(): there is no memory of the CPU to share, of {x._meta}")
    array: Any = x._data
    while isinstance(array, np.ndarray):
        if sys.getrefcount(array) - _noted(array) > ALONE or x._view is not None:
            raise StateError(
                "share_memory_(): others see this tensor's memory, and would be left behind",
                f"tensor: {x._meta}",
                "share it before views, x.detach(), x.data or arrays of it are made; or x.clone()",
            )
        array = array.base


def _noted(array: np.ndarray) -> int:
    """How often a recording holds an array, in what it notes of its tensors: it looks at them no more."""
    if not modes.is_recording():
        return 0
    return sum(type(holder) is tuple for holder in import_module("gc").get_referrers(array))


def share_memory_(self: Tensor) -> Tensor:
    """Move into memory that other processes see, in place.  Nothing where it is there already.

    What multiprocessing hands to other processes is then the same memory.
    Raises DeviceError, StateError: see `share`.
    """
    share([self])
    return self


def is_shared(self: Tensor) -> bool:
    """Whether the elements lie in memory that other processes see, or may."""
    data = getattr(self, "_data", None)
    return isinstance(data, np.ndarray) and block_of(data) is not None


# ---- on the way to other processes -------------------------------------------------------------------------
def register() -> None:
    """Have multiprocessing hand shared tensors over as such: to its processes, by its queues, pipes, pools.

    pickle by itself, copy and save go on making copies, and so do queues and pipes of tensors that are not
    shared.  What a process is started with is moved into shared memory, as PyTorch has it, where nobody else
    sees the memory: who starts it reads there what it writes.
    """
    pickler = import_module("multiprocessing.reduction").ForkingPickler
    for kind in (Tensor, Parameter):
        pickler.register(kind, _handed_over)
    pickler.register(Block, _reduced)


def _handed_over(x: Tensor) -> Any:
    if import_module("multiprocessing.context").get_spawning_popen() is not None and not is_shared(x):
        with suppress(DeviceError, StateError, OSError):
            share([x], roomy=True)
    block = block_of(x._data) if isinstance(x._data, np.ndarray) else None
    if block is None:
        return x.__reduce_ex__(5)
    start = x._data.__array_interface__["data"][0] - np.frombuffer(block, np.uint8).ctypes.data
    place = (block, start, x._data.shape, x._data.strides)
    return _arrived, (place, x._meta, x.requires_grad, type(x), {**fields(x)}, slots(x))


def _arrived(place: tuple, kind: Any, requires_grad: bool, cls: type, attributes: dict, held: dict) -> Tensor:
    block, start, shape, strides = place
    data = np.ndarray(shape, kind.dtype.numpy, block, start, strides)
    made = wrap(data, kind)
    storage_of(made).expose()
    made = Parameter(made, requires_grad) if cls is Parameter else retyped(made, cls)
    storage_of(made).expose()
    fields(made).update(attributes)
    for name, value in held.items():
        setattr(made, name, value)
    return made.requires_grad_() if requires_grad else made


def _reduced(block: Block) -> tuple:
    """By its descriptor.  Pickle asks once for all tensors that are in the block."""
    handle = import_module("multiprocessing.reduction").DupFd(block.descriptor)
    return _opened, (handle, len(block))


def _opened(handle: Any, size: int) -> Block:
    register()  # for who hands them on
    return _mapped(handle.detach(), size)


METHODS: dict[str, Any] = {"share_memory_": share_memory_, "is_shared": is_shared}
