"""What tensors on a GPU are computed with: an op is a program of its own, queued on the device's stream.

An op is compiled at its first call on operands of given types, and is kept on disk with what else Triton
compiled.  Views are NumPy's.  Sorting and its kin have kernels of their own (ordering.py), matrices are
factored by NVIDIA's libraries where they are installed (factoring.py); what else no program can be made of
(complex numbers, special functions) is computed on the host, between two copies, and says so once.  Random
numbers are drawn on the host.

Nothing waits but what hands values to the host.  Where an index was out of range, the device's kernels went
on with one that is not; the error is raised where the host waits next, and names the line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np

from ...ir.dtypes import from_numpy_dtype
from ...ir.errors import DeviceError, GraphError, KernelError, frames_of_ours
from ...ir.graph import Builder, Value
from ...ir.lowering import NotLowered
from ...ir.op import REGISTRY, Op
from ...ir.types import CPU, Device, Type, type_of
from ...passes.graphs import fuse
from ...passes.pipeline import Options, optimise, to_program
from ...passes.programs.program import is_on_host
from ...passes.triton.generate import POINTERS
from ...passes.triton.launches import Launches
from ...passes.triton.opening import Open
from ...passes.triton.target import ANY
from .. import asked_for
from ..host_parts import out_of_range
from ..keys import spelled
from ..on_device import ALIGNMENT, OnDevice, all_of, as_view, plain, there
from ..operand_layouts import dense_order
from ..places import here, spell
from ..plan import memo, remember
from ..tensor import Tensor, wrap
from .arrays import DeviceArray
from .by_hand import advice
from .by_hand import kernel as kernel_by_hand
from .executable import Executable
from .machine import Machine, machine
from .strided import copy_between

STAGED = 1 << 20  # bytes up to which the host's array is copied before it is queued, rather than waited for
NUMBERS = 256  # that are kept on a device
# Ops whose code has the numbers in it that they are told: behind a few the host makes what is small, and that
# is queued as a copy.
TOLD, FEW = frozenset(("arange", "full", "linspace", "logspace")), 16
UNSEEN = 64  # flags of checked indices that are kept until somebody waits
Arrays = Sequence[np.ndarray | None]
Order = tuple[int, ...] | None


def machine_at(place: Device) -> Machine:
    """The machine of a device.  Raises DeviceError, MissingLibraryError where there is none."""
    found = machine(place.index or 0)
    found.check()
    return found


# ---- memory ------------------------------------------------------------------------------------------------
def allocated(at: Machine, shape: tuple[int, ...], dtype: np.dtype) -> OnDevice:
    """A new dense array on a device, not filled.  Raises OutOfMemoryError."""
    memory = DeviceArray(at, "u8", (prod(shape) * dtype.itemsize,))
    return all_of(memory, shape, dtype)


def uploaded(at: Machine, array: np.ndarray) -> OnDevice:
    """A new array on a device with an array's elements."""
    made = allocated(at, array.shape, array.dtype)
    if array.nbytes:
        at.use()
        if array.flags.c_contiguous and at.pinned.holds(array):
            at.stream.copy_in(made.address, array)
            at.pinned.used_by(array, at.stream)
            return made
        staged = array.nbytes <= STAGED
        at.stream.copy_in(made.address, np.array(array, order="C") if staged else np.ascontiguousarray(array))
        if not staged:
            synchronize(at)
    return made


def uploaded_for_all(at: Machine, array: np.ndarray) -> OnDevice:
    """The same of what is kept and read on whichever stream: numbers."""
    return at.for_all_streams(lambda: uploaded(at, array), lambda made: (made.memory,))


def fetched(array: OnDevice) -> np.ndarray:
    """The elements of an array on a device, once they are there."""
    whole, at = dense(array), array.memory.machine
    found = np.empty(array.shape, array.dtype)
    if found.nbytes:
        at.use()
        at.stream.copy_out(found, whole.address)
    synchronize(at)
    return found


def copied(array: OnDevice) -> OnDevice:
    """A dense copy of an array, on its device."""
    made = allocated(array.memory.machine, array.shape, array.dtype)
    copy_between(array, made)
    return made


def write(target: OnDevice, source: np.ndarray) -> None:
    """Write elements over others, which may lie anywhere and be of another dtype or on another device."""
    at = target.memory.machine
    if not isinstance(source, OnDevice):
        source = uploaded(at, np.asarray(source, target.dtype))
    elif source.memory.machine is not at:
        source = uploaded(at, fetched(source))
    if source.dtype != target.dtype:
        source = cast(source, target.dtype)
    if source.shape != target.shape:
        found = as_view(source, np.broadcast_to(plain(source), target.shape))
        assert found is not None
        source = found
    if source.memory is target.memory and not (source.address == target.address and source.ready):
        source = copied(source)  # one may lie over the other
    copy_between(source, target)


def overwritten(compute: Callable, target: OnDevice, others: Arrays) -> None:
    """Leave what an op makes of an array and others in that array."""
    found = compute(target, *others)
    write(target, found[0] if isinstance(found, tuple) else found)


def cast(array: OnDevice, dtype: np.dtype) -> OnDevice:
    """The elements in another dtype, as `x.to(dtype)` has them."""
    place, kind = Device("cuda", array.memory.machine.device.ordinal), from_numpy_dtype(dtype)
    own = from_numpy_dtype(array.dtype)
    assert kind is not None and own is not None
    x = wrap(array, type_of(own, array.shape, there(place)))
    return REGISTRY["cast"](x, dtype=kind)._data


def synchronize(at: Machine) -> None:
    """Wait for all that this thread's stream has; raise what checks of indices found on it since the last
    wait.
    """
    unseen, stream = at.unseen, at.stream
    if at.apart:  # of others' flags, who waits for their streams looks at them
        unseen = [each for each in unseen if each[2] is stream]
        at.unseen = [each for each in at.unseen if each[2] is not stream]
    else:
        at.unseen = []
    flags = [np.empty(1, np.bool_) for _ in unseen]
    for flag, (held, *_) in zip(flags, unseen, strict=True):
        held.copy_to(flag)
    stream.synchronize()
    at.see_off()
    for flag, (_, error, _) in zip(flags, unseen, strict=True):
        if flag[0]:
            raise error()


def dense(array: OnDevice) -> OnDevice:
    """The array as kernels take it: row by row, from a multiple of ALIGNMENT on."""
    return array if array.ready is not None or not array.size else copied(array)


def ready(at: Machine, arrays: Sequence[Any]) -> list[int] | None:
    """The addresses of arrays that kernels may all be handed as they are; None where one is not so."""
    addresses = []
    for x in arrays:
        if type(x) is not OnDevice or x.ready is not at:
            return None
        addresses.append(x.address)
    return addresses


def brought(at: Machine, array: np.ndarray) -> OnDevice:
    """An operand on the device, to be read: those of no dims, and indices, may have stayed on the host.

    What numbers became is kept: an optimizer's are the same at each step.
    """
    if not isinstance(array, OnDevice):
        if array.ndim:
            return uploaded(at, array)
        key = array.dtype, array.tobytes()
        found = at.numbers.get(key)
        if found is None:
            if len(at.numbers) >= NUMBERS:
                at.numbers.clear()
            found = at.numbers[key] = uploaded_for_all(at, array)
        return found
    if array.memory.machine is not at:
        return uploaded(at, fetched(array))
    return array


# ---- ops ---------------------------------------------------------------------------------------------------
def kernel(
    op: Op, types: tuple[Type | None, ...], attrs: Mapping[str, Any], outs: tuple[Type, ...],
    reference: Callable,
) -> Callable[..., Any]:  # fmt: skip
    """What runs an op on a device.  types: of its operands; outs: of its results, which tell which device.

    reference: what computes it on the host.
    """
    at = machine_at(outs[0].device)
    if op.traits.copies:
        return partial(_reshaped, outs[0].shape)
    if op.traits.view:
        return partial(_viewed, reference)
    if op.name in ("empty", "empty_like"):
        return lambda *_: allocated(at, outs[0].shape, outs[0].dtype.numpy)
    if (found := kernel_by_hand(op, types, attrs, at)) is not None:
        return found
    if is_of_host(op, types, outs):
        return partial(_by_host, at, reference, op.name)
    if op.name in TOLD and outs[0].size * outs[0].dtype.itemsize <= STAGED:
        at.told[op.name] += 1
        if at.told[op.name] > FEW:
            return lambda: uploaded(at, reference())
    return Compiled(op, types, attrs, outs, reference, at)


def host_kernel(reference: Callable) -> Callable[..., Any]:
    """What runs an op on the host some of whose operands are on a device."""
    return lambda *arrays: reference(*[fetched(x) if isinstance(x, OnDevice) else x for x in arrays])


def is_of_host(op: Op, types: Sequence[Type | None], outs: Sequence[Type]) -> bool:
    """Whether no program for a device can be made of an op on such operands."""
    everyone = [t.dtype for t in (*types, *outs) if t is not None]
    return (
        op.traits.host
        or isinstance(op.lower, NotLowered)
        or not all(d.traced and d.short in POINTERS for d in everyone)
    )


def _reshaped(shape: tuple[int, ...], x: OnDevice) -> OnDevice:
    """The view of an array in another shape; of a copy, where its strides allow none."""
    try:
        found = np.reshape(plain(x), shape, copy=False)
    except ValueError:
        x = copied(x)
        found = np.reshape(plain(x), shape)
    made = as_view(x, found)
    assert made is not None
    return made


def _viewed(reference: Callable, x: OnDevice, *rest: Any) -> Any:
    """The views that NumPy makes of an array."""
    found = reference(plain(x), *rest)
    if isinstance(found, tuple):
        return tuple([as_view(x, y) for y in found])
    made = as_view(x, found)
    if made is None:
        raise DeviceError(f"no view of an array {x.shape} came of {reference}")
    return made


READS = frozenset(("_assert_async",))  # what asks for a number, as `item` does, and computes nothing


def _by_host(at: Machine, reference: Callable, name: str, *arrays: Any) -> Any:
    if name not in READS:
        _warn_of_host(name, advice(name, at))
    found = host_kernel(reference)(*arrays)
    return tuple([uploaded(at, y) for y in found]) if isinstance(found, tuple) else uploaded(at, found)


@cache
def _warn_of_host(name: str, advice: str) -> None:
    text = f"{name} is computed on the host, which its operands on the GPU are copied to and from{advice}"
    warnings.warn(text, stacklevel=frames_of_ours() + 1)


class Compiled:
    """One op on operands of given types, as a program for a device; compiled when it is first called.

    It has a program for each precision of products that was asked for, and for each way in which operands lie
    that are dense with their dims in another order: a product reads a transposed factor where it is.
    """

    def __init__(
        self, op: Op, types: tuple[Type | None, ...], attrs: Mapping[str, Any], outs: tuple[Type, ...],
        reference: Callable, at: Machine,
    ):  # fmt: skip
        self._what, self._outs, self._reference, self._at = (op, types, attrs), outs, reference, at
        self._programs: dict[tuple[str, tuple], Executable | None] = {}
        self._launches: dict[str, Callable[[list[int]], DeviceArray]] = {}  # of those that are one alone
        self._shape, self._dtype = outs[0].shape, outs[0].dtype.numpy

    def __call__(self, *arrays: Any) -> Any:
        precision = asked_for.precision()
        at = self._at
        launch = self._launches.get(precision)
        if launch is not None and (addresses := ready(at, arrays)) is not None:
            made = launch(addresses)
            return all_of(made, self._shape, self._dtype)
        given = [None if x is None else brought(at, x) for x in arrays]
        orders = tuple([None if x is None or x.ready else _order(x) for x in given])
        key = precision, orders
        program = self._programs.get(key)
        if program is None:
            if key not in self._programs:
                program = self._programs[key] = self._compiled(precision, orders)
            if program is None:
                return _by_host(at, self._reference, self._what[0].name, *arrays)
        operands = [x if order else dense(x) for x, order in zip(given, orders, strict=True) if x is not None]
        made = program.queued([x.address for x in operands])
        if program.launches.checks:
            note(self._at, program.launches, made[len(self._outs) :])
        results = [all_of(y, t.shape, t.dtype.numpy) for y, t in zip(made, self._outs, strict=False)]
        return results[0] if len(results) == 1 else tuple(results)

    def _compiled(self, precision: str, orders: tuple[Order, ...]) -> Executable | None:
        """The program; None for what has no kernels."""
        try:
            made = compiled(*self._what, (None,) * len(self._outs), precision, self._at, orders)
            if made is not None and made.alone is not None and not any(orders):
                self._launches[precision] = made.alone
            return made
        except (GraphError, KernelError):
            return None


def note(at: Machine, launches: Launches, flags: Sequence[DeviceArray]) -> None:
    """Have whoever waits next look at the flags of a program's indices."""
    place = here()
    for flag, kernel in zip(flags, launches.checks, strict=True):

        def error(kernel: str = kernel) -> Exception:
            found = out_of_range(launches.name, kernel)
            return type(found)(found.rule, *found.details, f"asked for at {spell(place)}")

        noted(at, flag, error)


def noted(at: Machine, flag: DeviceArray, error: Callable[[], Exception]) -> None:
    """Have whoever waits next raise an error where a flag is set."""
    at.unseen.append((flag, error, at.stream))
    if len(at.unseen) > UNSEEN:
        synchronize(at)


def compiled(
    op: Op, types: tuple[Type | None, ...], attrs: Mapping[str, Any], into: tuple[int | None, ...],
    precision: str, at: Machine, orders: tuple[Order, ...] = (),
) -> Executable | None:  # fmt: skip
    """One op as a program for a device; None for what the host would have to do.

    into: for each result, the operand that it overwrites.  orders: of the operands' dims in memory.

    Raises GraphError, KernelError for what has no kernels.
    """
    options = Options(limits=fuse.GPU, images=0.0, precision=precision)
    with Builder(op.name) as b:
        operands = [
            t and _operand(b, t, order) for t, order in zip(types, orders or [None] * len(types), strict=True)
        ]
        graph = b.finish(list(b.emit(op, operands, attrs).outputs))
    program = to_program(optimise(graph, options), into, ANY, options)
    return None if any(map(is_on_host, program.steps)) else Executable.of_sizes(program, at, Open.BATCHES)


def _operand(b: Builder, kind: Type, order: Order) -> Value:
    """A param as the array lies in memory, and from it the operand."""
    if order is None:
        return b.param(type_of(kind.dtype, kind.shape, CPU))
    made = b.param(type_of(kind.dtype, tuple([kind.shape[d] for d in order]), CPU))
    back = tuple(sorted(range(len(order)), key=order.__getitem__))
    return b.emit(REGISTRY["permute"], (made,), {"dims": back}).outputs[0]


def _order(array: OnDevice) -> Order:
    """The order of an array's dims in memory, where it is dense in another than theirs; None elsewhere."""
    order = dense_order(plain(array))
    return None if order is None or array.address % ALIGNMENT or order == (*range(array.ndim),) else order


_overwriting: dict[tuple, Executable] = memo()


def overwrite(
    op: Op, operands: tuple[Tensor | None, ...], attrs: Mapping[str, Any], place: Device,
    written: Sequence[Tensor],
) -> None:  # fmt: skip
    """Run an op of many operands that are all on a device, but for numbers, and overwrites some of them.

    written: for each of its results the operand.
    """
    at, precision = machine_at(place), asked_for.precision()
    types = tuple([None if x is None else x._meta for x in operands])
    there_are = [x for x in operands if x is not None]
    numbers = {id(x): n for n, x in enumerate(there_are)}
    into = tuple([numbers[id(x)] for x in written])
    key = (op, types, into, precision, place, *map(spelled, attrs.values()))
    program = _overwriting.get(key)
    if program is None:
        found = compiled(op, types, attrs, into, precision, at)
        if found is None:
            raise KernelError(f"{op.name} can't be computed on {place}")
        program = remember(_overwriting, key, found)
    given = [brought(at, x._data) for x in there_are]
    whole = [*map(dense, given)]
    program.queued([x.address for x in whole])
    for n in into:
        if whole[n] is not given[n]:
            copy_between(whole[n], given[n])
