"""The kernel verifier: scope, types, bounds, and that each output element is written exactly once."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from operator import itemgetter

from ..dims import Dim, is_at_least
from ..errors import KernelError
from ..types import LARGEST, RANK
from .affine import Affine, Extent
from .bounds import bounds
from .form import ACCUMULATE, COMBINE, Axis, Buffer, Fold, Kernel, Local, Reduce, Stage, Store, names
from .infer import check_constants, is_integer
from .scalar import NESTED, Coordinate, Expr, Read, Ref, in_order, walk
from .types import NUMPY, kind


def verify(kernel: Kernel) -> Kernel:
    """Check every rule of the form and give the kernel back.  One that was checked never changes.

    Raises KernelError with the stage that breaks one.
    """
    if "verified" in kernel.__dict__:
        return kernel
    _check_names(kernel)
    scope = _Scope(kernel)
    for stage in kernel.stages:
        scope.check(stage)
    for output in kernel.outputs:
        stores = [stage for stage in kernel.stores if stage.buffer == output.name]
        _check_written(kernel, output, stores)
        if output.inplace is not None:
            _check_inplace(kernel, output, stores)
    kernel.__dict__["verified"] = True
    return kernel


# ---- names ----------------------------------------------------------------------------------------
def _check_names(kernel: Kernel) -> None:
    """One meaning for each name; one extent for each axis; symbols declared."""
    meanings = [buffer.name for buffer in kernel.inputs + kernel.outputs]
    meanings += [*kernel.symbols, *dict.fromkeys(axis.name for axis in kernel.axes)]
    meanings += [name for stage in kernel.stages for name in stage.defines]
    for name, count in Counter(meanings).items():
        if count > 1:
            raise KernelError(f"{kernel.name}: {name} is defined twice")
    for axes in (kernel.parallel, *(kernel.parallel + stage.axes for stage in kernel.stages)):
        for name, count in Counter(names(axes)).items():
            if count > 1:
                raise KernelError(f"{kernel.name}: the axis {name} runs twice in one stage")
    for axis in kernel.axes:
        if axis.extent != kernel.extents[axis.name]:
            raise KernelError(
                f"{kernel.name}: an axis has one extent",
                f"axis {axis.name}: {kernel.extents[axis.name]}, {axis.extent}",
            )
    for extent in (
        *(axis.extent for axis in kernel.axes),
        *(e for b in kernel.buffers.values() for e in b.shape),
    ):
        if isinstance(extent, int) and extent < 0:
            raise KernelError(f"{kernel.name}: an extent is negative: {extent}")
    _check_sizes(kernel)


def _check_sizes(kernel: Kernel) -> None:
    """What native code counts in an int64, and NumPy in dimensions, is as small as that."""
    for buffer in kernel.buffers.values():
        strides = [abs(s) for s in buffer.layout or () if isinstance(s, int)]
        reach = sum(s * (e - 1) for s, e in zip(strides, buffer.shape) if isinstance(e, int) and e)
        if max(_points(buffer.shape), reach, *strides, 0) * NUMPY[buffer.dtype].itemsize > LARGEST:
            raise KernelError(f"{kernel.name}: a buffer has fewer than 2**63 bytes", f"buffer: {buffer}")
        if len(buffer.shape) > RANK:
            raise KernelError(f"{kernel.name}: a buffer has at most {RANK} dimensions", f"buffer: {buffer}")
    for axes in (kernel.parallel, *(kernel.parallel + stage.axes for stage in kernel.stages)):
        if _points(tuple(axis.extent for axis in axes)) > LARGEST:
            raise KernelError(f"{kernel.name}: a stage has fewer than 2**63 points", _spelled(axes))
        if len(axes) > RANK:
            raise KernelError(f"{kernel.name}: a stage has at most {RANK} axes", _spelled(axes))


def _points(extents: tuple[Extent, ...]) -> int:
    """Their product, without symbols and without zeros: NumPy refuses huge sizes beside a 0, too."""
    return math.prod(e for e in extents if isinstance(e, int) and e)


def _spelled(axes: tuple[Axis, ...]) -> str:
    return f"axes: {' '.join(map(str, axes))}"


# ---- scope and types ------------------------------------------------------------------------------
class _Scope:
    """What has been defined so far: references as they may be written."""

    def __init__(self, kernel: Kernel):
        self.kernel = kernel
        self.defined: dict[str, tuple[str, ...]] = {}

    def check(self, stage: Stage) -> None:
        axes = self.kernel.parallel_names | set(names(stage.axes))
        match stage:
            case Reduce(name, combine, own):
                if combine not in COMBINE or not own:
                    raise KernelError(
                        f"{self.kernel.name}: a reduction is {', '.join(COMBINE)}, over at least one axis",
                        f"at: {stage}",
                    )
                self.check_expr(stage, stage.value, axes)
                dtype = self.kernel.dtypes[name]
                if (combine in ("any", "all")) != (dtype == "bool") or kind(dtype) == "h":
                    raise KernelError(f"{self.kernel.name}: {combine} does not take {dtype}", f"at: {stage}")
                self.defined[name] = ()
            case Local(name, own):
                self.check_expr(stage, stage.value, axes)
                self.defined[name] = names(own)
            case Fold():
                self.check_fold(stage, axes)
            case Store():
                self.check_store(stage, axes)

    def check_expr(self, stage: Stage, root: Expr, axes: frozenset[str]) -> None:
        """Names, axes, ranks and bounds in `root`; then its type, and that of everything below it."""
        kernel = self.kernel
        inside = axes | set(kernel.symbols)
        order = in_order(root)
        for expr in order:
            if isinstance(expr, Ref):
                if expr.name not in self.defined:
                    raise KernelError(
                        f"{kernel.name}: {expr} is not in scope: no earlier stage defines it", f"at: {stage}"
                    )
                own = self.defined[expr.name]
                if expr.axes != own or not set(own) <= axes:
                    raise KernelError(f"{kernel.name}: {expr} is not in scope: not its axes", f"at: {stage}")
            elif isinstance(expr, Coordinate):
                self.check_part(stage, expr, expr.index, inside)
            elif isinstance(expr, Read):
                self.check_read(stage, expr, inside)
        kernel.dtype_of(root)
        heights: dict[Expr, int] = {}  # of what has no type of its own
        for expr in order:
            if kernel.dtype_of(expr) is None:
                heights[expr] = 1 + max((heights.get(child, 0) for child in expr.below), default=0)
                if heights[expr] > NESTED:
                    raise KernelError(
                        f"{kernel.name}: more than {NESTED} operations on constants without a type",
                        f"at: {stage}",
                        "give one a type: f32(1.0)",
                    )

    def check_part(self, stage: Stage, expr: Expr, part: Affine, inside: frozenset[str]) -> None:
        if not part.names <= inside:
            raise KernelError(
                f"{self.kernel.name}: {expr} uses an axis that does not run here",
                f"axes: {', '.join(sorted(inside)) or 'none'}",
                f"at: {stage}",
            )
        terms = [(self.kernel.extents[name], c) for name, c in part.terms]
        reach = sum(abs(c) * (e if isinstance(e, int) else 1) for e, c in terms if isinstance(c, int))
        if (abs(part.constant) if isinstance(part.constant, int) else 0) + reach > LARGEST:
            raise KernelError(
                f"{self.kernel.name}: an index leaves an int64", f"index: {part}", f"at: {stage}"
            )

    def check_read(self, stage: Stage, access: Read, inside: frozenset[str]) -> None:
        kernel = self.kernel
        buffer = kernel.buffers.get(access.buffer)
        if buffer is None:
            raise KernelError(
                f"{kernel.name}: {access} reads {access.buffer}, which is no buffer", f"at: {stage}"
            )
        if buffer in kernel.outputs:
            raise KernelError(
                f"{kernel.name}: {access} reads an output; define a stage and use its name", f"at: {stage}"
            )
        self.check_index(stage, access, access.index, buffer, inside)
        if access.other is None:
            self.check_computed(stage, access, access.index, buffer)
            nowhere = any(kernel.extents.get(name) == 0 for name in inside)  # of the axes that run here
            for d in () if nowhere else kernel.unproved(access):
                raise KernelError(
                    f"{kernel.name}: {access} may leave dimension {d} of {buffer}",
                    f"at: {stage}",
                    "add 'else value'",
                )
        elif access.other.dtype not in (None, buffer.dtype):
            raise KernelError(f"{kernel.name}: the else of {access} is not {buffer.dtype}", f"at: {stage}")
        else:
            check_constants(access.other, buffer.dtype)

    def check_index(
        self, stage: Stage, place: object, index: tuple, buffer: Buffer, inside: frozenset[str]
    ) -> None:
        if len(index) != len(buffer.shape):
            raise KernelError(
                f"{self.kernel.name}: {place} has {len(index)} indices for {buffer}", f"at: {stage}"
            )
        for part in index:
            if isinstance(part, Affine):
                self.check_part(stage, place, part, inside)
            elif not is_integer(self.kernel.dtype_of(part)):
                raise KernelError(
                    f"{self.kernel.name}: an index is an integer",
                    f"index: {part} is {self.kernel.dtype_of(part)}",
                    f"at: {stage}",
                )

    def check_computed(self, stage: Stage, place: object, index: tuple, buffer: Buffer) -> None:
        """An index that is computed from coordinates stays inside of its buffer.

        One from data is checked before the kernel runs (`passes/kernels/index_check.py`), one of a kernel
        with symbols when that is bound.
        """
        kernel = self.kernel
        if kernel.symbols or _is_empty(kernel, stage):
            return
        for d, (part, size) in enumerate(zip(index, buffer.shape, strict=True)):
            if isinstance(part, Affine) or any(isinstance(expr, (Read, Ref)) for expr in walk(part)):
                continue
            low, high = bounds(kernel, part)
            if low < 0 or not is_at_least(size - 1, high):
                raise KernelError(
                    f"{kernel.name}: {place} may leave dimension {d} of {buffer}",
                    f"at: {stage}",
                    f"index: {part} is {low} to {high}",
                )

    def check_fold(self, stage: Fold, axes: frozenset[str]) -> None:
        kernel, width = self.kernel, len(stage.names)
        if (
            not width
            or not stage.axes
            or len(stage.init) != width
            or len(stage.step) != width
            or (stage.merge is not None and len(stage.merge) != width)
        ):
            raise KernelError(
                f"{kernel.name}: a fold has axes, and one init, step and merge for each of its names",
                f"at: {stage}",
            )
        if stage.scan and (len(stage.axes) != 1 or stage.merge is not None):
            raise KernelError(f"{kernel.name}: a scan has one axis and no merge", f"at: {stage}")
        for value in stage.init:
            self.check_expr(stage, value, kernel.parallel_names)
        outside = dict(self.defined)
        self.defined |= dict.fromkeys(stage.names, ())
        for value in stage.step:
            self.check_expr(stage, value, axes)
        self.defined |= {f"right.{name}": () for name in stage.names}
        for value in stage.merge or ():
            self.check_expr(stage, value, kernel.parallel_names)
        for label, values in (("step", stage.step), ("merge", stage.merge or ())):
            for name, value in zip(stage.names, values, strict=False):
                self.check_typed(stage, value, kernel.dtypes[name], f"the {label} of {name}")
        self.defined = outside | dict.fromkeys(stage.names, names(stage.axes) if stage.scan else ())

    def check_typed(self, stage: Stage, value: Expr, dtype: str, what: str) -> None:
        found = self.kernel.dtype_of(value)
        if found is None:
            check_constants(value, dtype)
        elif found != dtype:
            raise KernelError(
                f"{self.kernel.name}: {what} is {dtype}, its value is {found}",
                f"at: {stage}",
                f"cast it: {dtype}(value)",
            )

    def check_store(self, stage: Store, axes: frozenset[str]) -> None:
        kernel = self.kernel
        buffer = kernel.buffers.get(stage.buffer)
        if buffer is None or buffer not in kernel.outputs:
            raise KernelError(f"{kernel.name}: {stage.buffer} is no output", f"at: {stage}")
        self.check_expr(stage, stage.value, axes)
        for part in stage.index:
            if isinstance(part, Expr):
                self.check_expr(stage, part, axes)
        self.check_index(stage, buffer.name, stage.index, buffer, axes | set(kernel.symbols))
        self.check_computed(stage, f"a store to {buffer.name}", stage.index, buffer)
        self.check_typed(stage, stage.value, buffer.dtype, f"the buffer {buffer.name}")
        if stage.combine is not None and stage.combine not in ACCUMULATE:
            raise KernelError(
                f"{kernel.name}: a store combines with one of {', '.join(ACCUMULATE)}", f"at: {stage}"
            )
        if stage.combine is None and any(isinstance(part, Expr) for part in stage.index):
            raise KernelError(
                f"{kernel.name}: several points may meet in one element of an indirect store",
                f"at: {stage}",
                f"declare what happens: one of {', '.join(f'{word}=' for word in ACCUMULATE)}",
            )
        for part, size in zip(stage.index, buffer.shape, strict=True):
            if isinstance(part, Affine) and not kernel.inside(part, size) and not _is_empty(kernel, stage):
                raise KernelError(f"{kernel.name}: a store leaves {buffer}", f"at: {stage}")


def _is_empty(kernel: Kernel, stage: Stage) -> bool:
    return any(axis.extent == 0 for axis in kernel.parallel + stage.axes)


# ---- written once ---------------------------------------------------------------------------------
def _check_written(kernel: Kernel, output: Buffer, stores: list[Store]) -> None:
    """Each element once; at most once in place; any number of times where a store says how to combine."""
    combines = {store.combine for store in stores}
    if len(combines) > 1:
        raise KernelError(f"{kernel.name}: the stores to {output.name} do not agree on how they combine")
    if combines - {None}:
        return
    total: Extent = 0
    for store in stores:
        if not _hits_once(kernel, output, store):
            raise KernelError(f"{kernel.name}: an element of {output} is written twice", f"at: {store}")
        total = total + math.prod(axis.extent for axis in kernel.parallel + store.axes)
    for one, two in combinations(stores, 2):
        if not (_is_empty(kernel, one) or _is_empty(kernel, two) or _disjoint(kernel, one, two)):
            raise KernelError(
                f"{kernel.name}: two stores may write one element of {output}", f"at: {one}", f"at: {two}"
            )
    if output.inplace is None and total != math.prod(output.shape):
        raise KernelError(
            f"{kernel.name}: every element of an output is written",
            f"output: {output}",
            f"written: {total} of {math.prod(output.shape)} elements",
        )


def _hits_once(kernel: Kernel, output: Buffer, store: Store) -> bool:
    """Whether no two points write one element.

    Bound buffers: offsets form a mixed-radix system.  With symbols: each dimension has its own axes, and in
    each dimension they do.
    """
    axes = kernel.parallel + store.axes
    shape = (*output.shape, *(output.layout or ()), *(axis.extent for axis in axes))
    if not any(isinstance(extent, Dim) for extent in shape):
        return _is_mixed_radix(output.offset(store.index), axes)
    used: Counter[str] = Counter(name for part in store.index for name in part.names)
    return all(used[axis.name] == 1 or axis.extent == 1 for axis in axes) and all(
        _is_mixed_radix(part, tuple(axis for axis in axes if axis.name in part.names)) for part in store.index
    )


def _is_mixed_radix(index: Affine, axes: tuple[Axis, ...]) -> bool:
    if any(axis.extent == 0 for axis in axes):
        return True
    steps = [(index.coefficient(a.name), a) for a in axes if a.extent != 1]
    if any(isinstance(step, Dim) for step, _ in steps):
        return False
    reach: Extent = 0
    for step, axis in sorted([(abs(step), axis) for step, axis in steps], key=itemgetter(0)):
        if not is_at_least(step - 1, reach):
            return False
        reach = reach + (axis.extent - 1) * step
    return True


def _disjoint(kernel: Kernel, one: Store, two: Store) -> bool:
    """Whether a dimension keeps two stores apart: by bounds, or by remainders of a step."""
    for left, right in zip(one.index, two.index, strict=True):
        (low, high), (other_low, other_high) = left.bounds(kernel.extents), right.bounds(kernel.extents)
        if is_at_least(low - 1, other_high) or is_at_least(other_low - 1, high):
            return True
        numbers = [left.constant, right.constant, *(c for _, c in left.terms + right.terms)]
        if not any(isinstance(number, Dim) for number in numbers):
            if any(_never_meet(kernel, left, right, step) for step in {math.gcd(*numbers[2:]), *numbers[2:]}):
                return True
    return False


def _never_meet(kernel: Kernel, left: Affine, right: Affine, step: int) -> bool:
    """Whether no multiple of the step is within the bounds of what two indices have beside such multiples."""
    if step < 2:
        return False
    (low, high), (other_low, other_high) = (
        Affine(tuple(term for term in index.terms if term[1] % step), index.constant).bounds(kernel.extents)
        for index in (left, right)
    )
    least, most = low - other_high, high - other_low
    return not any(isinstance(n, Dim) for n in (least, most)) and -(-least // step) * step > most


# ---- in place -------------------------------------------------------------------------------------
def _check_inplace(kernel: Kernel, output: Buffer, stores: list[Store]) -> None:
    """The input is the same memory: it is read only at the index that is stored, and not after that."""
    source = next((buffer for buffer in kernel.inputs if buffer.name == output.inplace), None)
    if source is None:
        raise KernelError(f"{kernel.name}: {output.inplace} is no input", f"output: {output}")
    if (source.dtype, source.shape, source.layout) != (output.dtype, output.shape, output.layout):
        raise KernelError(
            f"{kernel.name}: an output in place has the type, shape and strides of its input",
            f"input: {source}",
            f"output: {output}",
        )
    reads = [(stage, access) for stage, access in kernel.reads if access.buffer == source.name]
    if reads and any(store.combine for store in stores):
        raise KernelError(f"{kernel.name}: {source.name} is read while {output.name} accumulates over it")
    written: set[tuple] = set()
    stored = {kernel.moving(store.index) for store in stores}
    for stage in kernel.stages:
        for access in (a for a in _all_reads(kernel, stage) if a.buffer == source.name):
            at = kernel.moving(access.index)
            if stored - {at}:
                raise KernelError(
                    f"{kernel.name}: {access} is read while {output.name} is written at another index",
                    f"at: {stage}",
                )
            if at in written:
                raise KernelError(f"{kernel.name}: {access} is read after it was overwritten", f"at: {stage}")
        if isinstance(stage, Store) and stage.buffer == output.name:
            written.add(kernel.moving(stage.index))


def _all_reads(kernel: Kernel, stage: Stage) -> list[Read]:
    """The reads a stage may make when it runs, with those of its Locals, which may be recomputed."""
    found, waiting, seen = [], list(stage.exprs), set()
    while waiting:
        for expr in walk(waiting.pop()):
            if isinstance(expr, Read):
                found.append(expr)
            elif isinstance(expr, Ref) and expr.name in kernel.locals and expr.name not in seen:
                seen.add(expr.name)
                local = kernel.locals[expr.name]
                waiting += [local.value] if local.axes else []  # without axes it is computed once, in order
    return found
