"""Recognise a sum of products, and say what its axes are to it: the one place that does.

sum(k) left[batch, m, k] * right[batch, k, n]            a product of matrices
sum(c, r) x[n, c, i * stride + r - padding] * w[k, c, r]     a convolution; its gradients sum over others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import final

from ...ir.dims import Dim, hint
from ...ir.kernel.affine import Affine, Extent, vanishes
from ...ir.kernel.form import Kernel, Local, Reduce, Store, names
from ...ir.kernel.scalar import Cast, Const, Coordinate, Expr, Op, Read, coordinate, op, walk
from ...ir.locks import cached_property

Bounds = dict[str, list[tuple[Affine, Extent]]]
FEW = 8  # columns that fill no vector
WHOLE = 32  # points of a sum that are a step of it on any unit


@dataclass(frozen=True)
class Factor:
    """One side of a product.

    access: the one element that it is, or 0 where a condition fails; None for what is computed.  divided: the
    dimensions in which its index divides, of each the index and the divisor, where the factor is 0 wherever
    that leaves a remainder, and nowhere else; None where it is 0 for other reasons.
    """

    value: Expr
    access: Read | None
    divided: dict[int, tuple[Affine, int]] | None


@final
@dataclass(frozen=True)
class Product:
    """stage = sum(k) left * right, at every point of the kernel's parallel axes.

    The factors are any expressions (a fused prologue), and the later stages are the epilogue.  batch, m, n:
    the parallel axes that both factors vary over, or the left one, or the right one alone.  turned: whether
    the right factor is the one that the kernel writes first.
    """

    kernel: Kernel
    stage: Reduce
    turned: bool = False

    @cached_property
    def factors(self) -> tuple[Factor, Factor]:
        """In the kernel's order."""
        first, second = self.stage.value.args  # type: ignore[attr-defined]
        return _factor(first), _factor(second)

    @property
    def passed(self) -> int:
        """Of so many terms one is not 0, as an index divides."""
        return prod(by for factor in self.factors for _, by in (factor.divided or {}).values())

    @property
    def left(self) -> Expr:
        return self.factors[self.turned].value

    @property
    def right(self) -> Expr:
        return self.factors[not self.turned].value

    @property
    def k(self) -> tuple[str, ...]:
        return names(self.stage.axes)

    @cached_property
    def depth(self) -> str:
        """The summed axis to go along in steps: the longest, or where a guard is of that one, the longest of
        no guard that has whole steps.

        So a convolution's weight gradient goes from image to image, all of which have the same neighbours.
        """
        guarded = {
            name
            for access in walk(self.stage.value)
            if isinstance(access, Read)
            for d in self.kernel.unproved(access)
            if isinstance(part := access.index[d], Affine)
            for name in part.names
        }
        extent = {axis: hint(self.kernel.extents[axis]) for axis in self.k}
        longest = max(self.k, key=lambda axis: extent[axis])
        whole = [a for a in self.k if a not in guarded and extent[a] >= WHOLE and not extent[a] % WHOLE]
        return max(whole, key=lambda axis: extent[axis], default=longest) if longest in guarded else longest

    @property
    def batch(self) -> tuple[str, ...]:
        return self._within(self._free[0] & self._free[1])

    @property
    def m(self) -> tuple[str, ...]:
        return self._within(self._free[0] - self._free[1])

    @property
    def n(self) -> tuple[str, ...]:
        return self._within(self._free[1] - self._free[0])

    @cached_property
    def _free(self) -> tuple[frozenset[str], frozenset[str]]:
        return self.kernel.free_axes(self.left), self.kernel.free_axes(self.right)

    def _within(self, free: frozenset[str]) -> tuple[str, ...]:
        return tuple(axis for axis in names(self.kernel.parallel) if axis in free)

    @property
    def is_summed(self) -> bool:
        """Whether both factors vary over all that is summed."""
        return self._free[0] & self._free[1] >= set(self.k)

    @property
    def is_matmul(self) -> bool:
        """Whether every element of a factor meets several of the other, and every axis has a role."""
        each = self.kernel.parallel_names <= self._free[0] | self._free[1]
        return bool(self.m and self.n) and self.is_summed and each

    # ---- matrices
    @cached_property
    def _along(self) -> str | None:
        """The axis along which neighbours are neighbours in every result."""
        kernel = self.kernel
        offsets = [kernel.buffers[store.buffer].offset(store.index) for store in kernel.stores]
        along = (a for a in names(kernel.parallel) if all(o.coefficient(a) == 1 for o in offsets))
        return next(along, None)

    @property
    def turned_over(self) -> Product:
        """The same with its factors, and so its rows and columns, the other way round."""
        return Product(self.kernel, self.stage, not self.turned)

    @cached_property
    def by_columns(self) -> Product | None:
        """The product whose right factor alone has the columns; None where both have, or none."""
        found = Product(self.kernel, self.stage, self._along not in self.n)
        return found if self.is_summed and self._along in found.n else None

    @cached_property
    def column(self) -> str:
        """Of a product by columns: the axis along which neighbours are neighbours in every result, or where
        that is short (a window's) the longest of its factor.
        """
        assert self._along is not None
        extent = {axis: hint(self.kernel.extents[axis]) for axis in self.n}
        return self._along if extent[self._along] >= FEW else max(self.n, key=lambda axis: extent[axis])

    @cached_property
    def row(self) -> str | None:
        """The longest axis of the left factor alone."""
        return max(self.m, key=lambda axis: hint(self.kernel.extents[axis]), default=None)

    @property
    def outer(self) -> tuple[str, ...]:
        return tuple(a for a in names(self.kernel.parallel) if a not in (self.row, self.column))

    # ---- windows
    def bounds(self, across: str | None = None) -> Bounds | None:
        """For each summed axis that a guard limits alone: the index parts that stay inside, and their sizes.

        None where a guard is no bound of one loop, or where what lies outside is not zero.  across: an axis
        whose guards are somebody else's business.
        """
        found: Bounds = {}
        for access in (expr for expr in walk(self.stage.value) if isinstance(expr, Read)):
            for d in self.kernel.unproved(access):
                part, size = access.index[d], self.kernel.buffers[access.buffer].shape[d]
                used = part.names if isinstance(part, Affine) else frozenset()
                if across in used:
                    continue
                axes = used.intersection(self.k)
                is_factor = any(access is element(factor.value) for factor in self.factors)
                if is_factor and len(axes) > 1 and access.other is not None and access.other.value == 0:
                    continue  # of blocks of channels the last one ends early: Reductions.ends_of
                if not is_factor or len(axes) != 1 or access.other is None or access.other.value != 0:
                    return None
                (axis,) = axes
                found.setdefault(axis, []).append((part, size))
        return found

    @cached_property
    def convolution(self) -> Convolution | None:
        """The convolution that the product of a squeezed kernel is."""
        one, two = (factor.value for factor in self.factors)
        if not (isinstance(one, Read) and isinstance(two, Read)):
            return None
        return _convolution(self, one, two) or _convolution(self, two, one)

    @cached_property
    def widened_convolution(self) -> Convolution | None:
        """The same where elements are of a narrower type than the sum."""
        one, two = (element(factor.value) for factor in self.factors)
        if one is None or two is None:
            return None
        return _convolution(self, one, two) or _convolution(self, two, one)

    @cached_property
    def windowed(self) -> Windowed | None:
        """The convolution, or the gradient of one, that the product is."""
        return _windowed(self, [factor.access for factor in self.factors])

    @cached_property
    def widened(self) -> Windowed | None:
        """The same where elements are of a narrower type than the sum."""
        return _windowed(self, [element(conditions_of(factor.value)[1]) for factor in self.factors])


def products(kernel: Kernel) -> tuple[Product, ...]:
    """Every sum of products among the kernel's stages.

    Of arrays without elements there is none: nothing is multiplied, and no tile is as long as that.
    """
    known = kernel.derived.get(products)
    if known is None:
        is_empty = any(isinstance(n, int) and not n for b in kernel.buffers.values() for n in b.shape)
        stages = () if is_empty else kernel.stages
        sums = (s for s in stages if isinstance(s, Reduce) and s.combine == "sum")
        found = (Product(kernel, s) for s in sums if isinstance(s.value, Op) and s.value.name == "mul")
        known = kernel.derived[products] = tuple(found)
    return known


def product_of(kernel: Kernel) -> Product | None:
    """The sum of products that a kernel is, with what is computed from it at its points."""
    found = products(kernel)
    loops = sum(not isinstance(stage, (Local, Store)) for stage in kernel.stages)
    return found[0] if found and loops == 1 else None


def plain(part: Affine | Expr) -> str | None:
    """The axis that an index is, as it stands; None for any other index."""
    if not isinstance(part, Affine) or not vanishes(part.constant) or len(part.terms) != 1:
        return None
    (name, by), *_ = part.terms
    return name if by == 1 else None


def element(factor: Expr) -> Read | None:
    """The one element that a factor is, of its own type or of a narrower one; None for what is computed."""
    while isinstance(factor, Cast) and not factor.bits:
        factor = factor.arg
    return factor if isinstance(factor, Read) else None


def is_zero(expr: Expr | None) -> bool:
    """Whether an expression is the number 0, of any type."""
    return isinstance(expr, Const) and expr.value == 0


def conditions_of(value: Expr) -> tuple[list[Expr], Expr]:
    """The conditions without which a value is 0, and the value where all of them hold."""
    conditions: list[Expr] = []
    while isinstance(value, Op) and value.name == "select" and is_zero(value.args[2]):
        waiting = [value.args[0]]
        while waiting:
            condition = waiting.pop()
            if isinstance(condition, Op) and condition.name == "bit_and":
                waiting += reversed(condition.args)
            else:
                conditions.append(condition)
        value = value.args[1]
    return conditions, value


def _factor(value: Expr) -> Factor:
    conditions, inner = conditions_of(value)
    if not isinstance(inner, Read):
        return Factor(value, None, None)
    divided: dict[int, tuple[Affine, int]] = {}
    for d, part in enumerate(inner.index):
        if isinstance(part, Op) and part.name == "floor_div":
            of, by = part.args
            if isinstance(of, Coordinate) and isinstance(by, Const):
                divided[d] = of.index, int(by.value)
    exact = {op("eq", op("remainder", coordinate(of), by), 0) for of, by in divided.values()}
    affine = all(d in divided or isinstance(part, Affine) for d, part in enumerate(inner.index))
    whole = affine and exact == set(conditions) and (not divided or is_zero(inner.other))
    return Factor(value, inner, divided if whole else None)


# ---- convolutions


@dataclass(frozen=True)
class Convolution:
    """stage = sum(c, taps) input[n, c, place * stride + tap * dilation - padding] * weight[k, c, taps]

    Names are the kernel's; `group`, `channel` and a tap are None where they would have one point.  A
    depthwise convolution has a group for each channel: `out` is then the group.
    """

    stage: Reduce
    input: str
    weight: str
    batch: str | None
    group: str | None
    out: str
    channel: str | None
    places: tuple[str, ...]
    taps: tuple[str | None, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    window: tuple[Extent, ...]

    @property
    def is_pointwise(self) -> bool:
        """Whether it is one product of matrices for each image."""
        return self.group is None and {*self.window, *self.stride} == {1} and not any(self.padding)

    @property
    def depthwise(self) -> bool:
        return self.channel is None and self.group == self.out

    @property
    def of_one_channel(self) -> bool:
        """Whether each sum is over one window of one image."""
        return self.channel is None and self.group is None

    def __str__(self) -> str:
        """What a schedule is chosen by."""
        moved = [("stride", self.stride), ("padding", self.padding), ("dilation", self.dilation)]
        return " ".join(
            ["x".join(map(str, self.window)), *(f"{what}={list(by)}" for what, by in moved)]
            + (["depthwise"] if self.depthwise else ["grouped"] if self.group else [])
        )


def _convolution(found: Product, image: Read, kernels: Read) -> Convolution | None:
    """The roles of the axes if `image` is the input and `kernels` the weight, by their indices."""
    kernel = found.kernel
    summed, parallel = set(found.k), kernel.parallel_names
    if image.buffer == kernels.buffer or len(image.index) != len(kernels.index) or len(image.index) < 3:
        return None
    if kernels.other is not None or not (image.other is None or is_zero(image.other)):
        return None
    if not all(isinstance(part, Affine) for part in (*image.index, *kernels.index)):
        return None
    n, c, *at = image.index
    k, inner, *taps = kernels.index
    batch, channel, out = plain(n), plain(inner), plain(k)
    if n != Affine() and batch not in parallel or inner != Affine() and channel not in summed:
        return None
    group = plain(c) if channel is None else None
    fits = plain(c) == channel if channel else group == out or c == Affine()  # the last: it has one channel
    if out is None or out not in parallel or not fits:
        return None
    tap_names = [plain(tap) for tap in taps]
    if any(tap != Affine() and name not in summed for tap, name in zip(taps, tap_names, strict=True)):
        return None
    places, stride, dilation, padding = [], [], [], []
    for part, tap in zip(at, tap_names, strict=True):
        own = [(name, by) for name, by in part.terms if name != tap]
        step = part.coefficient(tap) if tap else 1
        if len(own) != 1 or any(isinstance(n, Dim) for n in (own[0][1], step, part.constant)):
            return None
        if own[0][0] not in parallel or own[0][1] < 1 or step < 1 or part.constant > 0:
            return None
        places.append(own[0][0])
        stride.append(own[0][1])
        dilation.append(step)
        padding.append(-part.constant)
    used = [name for name in (batch, out, channel, *places, *tap_names) if name]
    if len(set(used)) != len(used) or set(used) != parallel | summed:
        return None
    return Convolution(
        found.stage, image.buffer, kernels.buffer, batch, group, out, channel, tuple(places),
        tuple(tap_names), tuple(stride), tuple(dilation), tuple(padding),
        tuple(kernel.extents[tap] if tap else 1 for tap in tap_names),
    )  # fmt: skip


@dataclass(frozen=True)
class Windowed:
    """A convolution and its two gradients are one form in three arrays, each the sum over what the other two
    leave: x[n, c, i * stride + r * dilation - padding] * w[k, c, r] * y[n, k, i].  Further results lie as the
    first does.

    images: the two buffers that have the batch, inputs before the output.  weight: the third one; it is the
    output where `gradient`.  batch: the axis.  channels: those of the images, None for a single one.
    """

    stage: Reduce
    batch: str
    images: tuple[str, str]
    weight: str
    gradient: bool
    channels: tuple[str | None, str | None]


def _windowed(found: Product, accesses: Sequence[Read | None]) -> Windowed | None:
    """None for groups, and for products of matrices, whose weight has no dimensions for taps."""
    kernel, stores = found.kernel, found.kernel.stores
    alike = len({(store.index, kernel.buffers[store.buffer].shape) for store in stores}) == 1
    alike = alike and not any(store.axes for store in stores)
    if not alike or not kernel.is_order_free:
        return None
    three = [(access.buffer, access.index) for access in accesses if access is not None]
    three.append((stores[0].buffer, stores[0].index))
    rank = len(stores[0].index)
    if rank < 3 or len({name for name, _ in three}) != 3 or any(len(index) != rank for _, index in three):
        return None
    for at in (0, 1, 2):
        (weight, taps), (one, first), (two, second) = three[at], *three[:at], *three[at + 1 :]
        batch, channels = plain(first[0]), (first[1], second[1])
        free = {name for part in taps if isinstance(part, Affine) for name in part.names}
        shared = batch is not None and plain(second[0]) == batch and batch not in free
        affine = all(isinstance(part, Affine) for part in channels)
        if batch is not None and shared and affine and set(taps[:2]) == set(channels):
            of = plain(channels[0]), plain(channels[1])
            return Windowed(found.stage, batch, (one, two), weight, at == 2, of)
    return None
