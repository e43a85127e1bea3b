"""Lay the images of a program out anew: the mechanism, which the passes that choose an order share.

Images are what its convolutions read and write, and every array of their rank and batch that meets them in
a call.  Each call on them is rewritten for the chosen orders of dimensions; where an array is wanted in an
order that it is not in, a call that copies it is put before.  Params and results keep their layout.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...ir.kernel.affine import Affine
from ...ir.kernel.form import Axis, Buffer, Fold, Kernel, Reduce, Stage, Store
from ...ir.kernel.scalar import Expr, Read, cast, read
from ...ir.kernel.substitute import Substitution
from ..kernels.product import Windowed, plain
from .program import Array, Call, Program, Step

Order = tuple[int, ...]


class ImageLayout(ABC):
    """Which arrays are laid out anew, and the steps that use them.

    found: the convolutions to serve, with their roles.  A subclass says in which order an image is for a
    call, and how a convolution then runs.
    """

    def __init__(self, program: Program, found: Mapping[Call, Windowed]):
        self.source, self.found = program, found
        self.images = self.spread()
        self.steps: list[Step] = []
        # an array in the orders of its dimensions that there are
        self.made: dict[Array, dict[Order, Array]] = {}

    @abstractmethod
    def order(self, roles: Windowed | None, array: Array) -> Order:
        """The order of an image for a call of these roles, if any."""

    def weights(self, call: Call, roles: Windowed | None) -> dict[str, Order]:
        """The orders of a call's other arrays."""
        return {} if roles is None or roles.gradient else {roles.weight: taps_first(call.kernel, roles)}

    def way(self, call: Call, kernel: Kernel, roles: Windowed | None) -> Any:
        """How a call's kernel, on images in their orders, runs: what `Call.how` takes."""
        return None

    def calls(self, call: Call, roles: Windowed | None) -> Iterable[Step]:
        """What stands for a call that is laid out."""
        return (call,)

    def spread(self) -> frozenset[Array]:
        """The images of the convolutions, and all of their rank and batch that meet them in a call."""
        images: set[Array] = set()
        for call, roles in self.found.items():
            images |= {_array(call, name) for name in roles.images}
            if not roles.gradient:  # what its result meets: a residual, a ReLU's mask
                images.update(a for a, _ in _pairs(call) if a.shape == call.outputs[0].shape)
        kinds = {(len(image.shape), image.shape[0]) for image in images}
        waiting = [call for call in self.source.calls if call not in self.found and _is_free(call)]
        while True:
            met = [call for call in waiting if images.intersection((*call.inputs, *call.outputs))]
            if not met:
                return frozenset(images)
            waiting = [call for call in waiting if call not in met]
            for call in met:
                images |= {a for a in (*call.inputs, *call.outputs) if (len(a.shape), *a.shape[:1]) in kinds}

    def program(self) -> Program:
        for step in self.source.steps:
            if isinstance(step, Call) and (step in self.found or self.is_touched(step)):
                self.relaid(step)
            else:
                self.steps.append(replace(step, inputs=tuple(a and self.plain(a) for a in step.inputs)))
        results = tuple(map(self.plain, self.source.results))
        return self.source.replace(steps=tuple(self.steps), results=results)

    def is_touched(self, call: Call) -> bool:
        return _is_free(call) and bool(self.images.intersection((*call.inputs, *call.outputs)))

    def relaid(self, call: Call) -> None:
        """The call on arrays in their new orders."""
        roles = self.found.get(call)
        orders = {b.name: self.order(roles, a) for a, b in _pairs(call) if a in self.images}
        orders |= self.weights(call, roles)
        kernel = permuted(call.kernel, orders)
        inputs = tuple(
            self.reordered(a, orders[b.name]) if b.name in orders else self.plain(a)
            for a, b in zip(call.inputs, kernel.inputs, strict=True)
        )
        outputs = []
        for array, buffer in zip(call.outputs, kernel.outputs, strict=True):
            made = array
            if buffer.name in orders:
                made = Array(array.name, array.dtype, buffer.shape)
                self.made[array] = {orders[buffer.name]: made}
            outputs.append(made)
        how = self.way(call, kernel, roles)
        self.steps += self.calls(Call(kernel, inputs, tuple(outputs), how, call.where), roles)

    def reordered(self, array: Array, order: Order) -> Array:
        """The array in an order of its dimensions, by a call of its own where there is none yet."""
        known = self.made.setdefault(array, {_identity(array): array})
        if order not in known:
            have, source = next(iter(known.items()))
            call = relayout(source, tuple(have.index(d) for d in order), array.name)
            self.steps.append(call)
            (known[order],) = call.outputs
        return known[order]

    def plain(self, array: Array) -> Array:
        return self.reordered(array, _identity(array))


def _identity(array: Array) -> Order:
    return tuple(range(len(array.shape)))


def _pairs(call: Call) -> list[tuple[Array, Buffer]]:
    return [
        *zip(call.inputs, call.kernel.inputs, strict=True),
        *zip(call.outputs, call.kernel.outputs, strict=True),
    ]


def _array(call: Call, name: str) -> Array:
    return next(array for array, buffer in _pairs(call) if buffer.name == name)


def _is_free(call: Call) -> bool:
    """Whether the layout of a call's arrays may change: nothing has been decided, and no order matters."""
    kernel = call.kernel
    in_order = any(store.combine == "set" for store in kernel.stores)
    return call.how is None and not in_order and not any(b.inplace for b in kernel.outputs)


# ---- kernels in another layout


def relayout(array: Array, order: Order, name: str) -> Call:
    """The call that copies an array with its dimensions in another order."""
    axes = [Axis(f"i{d}", n) for d, n in enumerate(array.shape)]
    source = Buffer("x", array.dtype, array.shape)
    result = Buffer("y", array.dtype, tuple(array.shape[d] for d in order))
    value = read("x", [axis.name for axis in axes])
    at = tuple(Affine(((axes[d].name, 1),)) for d in order)
    kernel = Kernel("relayout", (source,), (result,), tuple(axes[d] for d in order), (Store("y", at, value),))
    return Call(kernel, (array,), (Array(name, array.dtype, result.shape),))


def copied_order(kernel: Kernel) -> Order | None:
    """The order of dimensions in which a kernel copies an array; None for one that does anything else."""
    match kernel.stages:
        case (Store(combine=None, axes=(), index=to, value=Read(index=index)),):
            source, target = [plain(part) for part in index], [plain(part) for part in to]
            given, made = kernel.inputs[0], kernel.outputs[0]
            whole = None not in source and sorted(map(str, source)) == sorted(map(str, target))
            if (
                not whole
                or len({*source}) != len(source)
                or len(kernel.inputs) != 1
                or made.dtype != given.dtype
            ):
                return None
            order = tuple(source.index(axis) for axis in target)
            return order if _taken(order, given.shape) == made.shape else None
    return None


def padded(
    array: Array,
    first: Sequence[int],
    shape: tuple[int, ...],
    dtype: str = "",
    fill: int = 0,
    steps: Sequence[int] = (),
) -> Call:
    """The call that copies a part of an array, with zeros around it: y[i] = x[first + i else 0].

    dtype: another one for the copy.  fill: another number than 0.  steps: of places that are apart.
    """
    dtype = dtype or array.dtype
    axes = tuple(Axis(f"i{d}", n) for d, n in enumerate(shape))
    at = tuple(Affine(((axis.name, 1),)) for axis in axes)
    places = [one * by for one, by in zip(at, steps, strict=True)] if steps else at
    value = read("x", tuple(one + Affine((), low) for one, low in zip(places, first, strict=True)), fill)
    buffers = (Buffer("x", array.dtype, array.shape),), (Buffer("y", dtype, shape),)
    stored = value if dtype == array.dtype else cast(value, dtype)
    kernel = Kernel("pad", *buffers, axes, (Store("y", at, stored),))
    return Call(kernel, (array,), (Array(array.name, dtype, shape),))


def permuted(kernel: Kernel, orders: Mapping[str, Order]) -> Kernel:
    """The kernel on buffers whose dimensions stand in another order, with its axes in that order too."""

    given = {name: kernel.buffers[name] for name in orders}
    buffers = {name: replace(b, shape=_taken(orders[name], b.shape)) for name, b in given.items()}
    at = {name: partial(_taken, order) for name, order in orders.items()}
    return ordered(Substitution(buffers=buffers, at=at).kernel(kernel), orders)


def _taken(order: Order, dims: tuple) -> tuple:
    return tuple(dims[d] for d in order)


def ordered(kernel: Kernel, chosen: Mapping[str, Order]) -> Kernel:
    """The kernel with its axes in the order in which they pass through memory, where that is free."""
    indices: list[tuple[Affine | Expr, ...]] = [s.index for s in kernel.stores if s.buffer in chosen]
    indices += [access.index for _, access in kernel.reads if access.buffer in chosen]
    place: dict[str, int] = {}
    for index in indices:
        for position, part in enumerate(index):
            for name in part.names if isinstance(part, Affine) else ():
                place.setdefault(name, position)

    def sort(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(sorted(axes, key=lambda axis: place.get(axis.name, -1)))

    def stage(s: Stage) -> Stage:
        free = isinstance(s, Reduce) or isinstance(s, Fold) and s.merge is not None
        return replace(s, axes=sort(s.axes)) if free else s

    return kernel.replace(parallel=sort(kernel.parallel), stages=tuple(map(stage, kernel.stages)))


def taps_first(kernel: Kernel, roles: Windowed) -> Order:
    """Taps first, then the summed channels, and those of the result last: a tile of them is contiguous."""
    index = next(a.index for _, a in kernel.reads if a.buffer == roles.weight)
    summed = {axis.name for axis in roles.stage.axes}
    first = 0 if isinstance(index[0], Affine) and index[0].names & summed else 1
    return (*range(2, len(index)), first, 1 - first)
