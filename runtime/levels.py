"""Function transforms that wrap tensors: which are open, and what becomes of an op on a wrapped operand.

`vmap` and forward mode hand a function *transformed* tensors: of an ordinary type, but with something else
inside (a tensor with one more axis; a value and its tangent).  Each open transform is a `Level`; an op is the
business of the innermost level that wraps one of its operands, which does it by ordinary ops on what is
inside.  That may be transformed itself, by a level further out, or have a history: so transforms compose with
each other, with autograd and with recording.

    run(op, [x at level 2, y at level 1, z])  ->  level 2 on [inside of x, y, z]  ->  level 1 …

Histories are those of the innermost tensors.  A gradient of transformed tensors is one of what is inside:
`gradients` takes the levels apart, outermost last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from ..ir.errors import TransformError
from ..ir.graph import Value
from ..ir.op import REGISTRY, Op
from ..ir.types import Type
from ..ir.views import row_major
from . import modes
from .compound import Arrayless
from .graph import Edge
from .tensor import Tensor

new = object.__new__


class Level:
    """One open transform; `with opened(level)` opens it.

    depth: how many are open around it.  closed: its block has ended; what it wraps is of no use any more.
    axes: how many axes stand in front inside of what it wraps.  adopted: plain tensors that were written
    inside of it, by their ids, with what they are to it.
    """

    what = "a transform"
    axes = 0
    remedies: tuple[str, ...] = ()
    depth: int
    closed = False
    adopted: dict[int, tuple] = {}

    # ---- what each kind of level says ----
    def run(self, op: Op, plan: Any, operands: tuple) -> Any:
        """The op on operands of which some are wrapped by this level, none by one further in."""
        raise NotImplementedError

    def write(self, op: Op, operands: tuple, attrs: dict[str, Any]) -> Tensor:
        """The same for its in-place form."""
        raise NotImplementedError

    def apply(self, cls: Any, args: tuple) -> Any:
        """A custom function."""
        raise NotImplementedError

    def split(self, x: Any) -> tuple:
        """What is inside of a tensor that this level wraps."""
        raise NotImplementedError

    def constant(self, x: Tensor) -> tuple:
        """The same for one that it does not wrap."""
        raise NotImplementedError

    def adopt(self, x: Tensor) -> None:
        """Know a plain view of what was adopted."""
        raise NotImplementedError

    def become(self, x: Tensor, found: Tensor) -> None:
        """Have a tensor of this level be another of it: x.t_() its transpose.  Raises TransformError."""
        if type(x) is not type(found) or not isinstance(x, Transformed):
            raise TransformError(
                f"inside of {self.what} a tensor that was made there, and written, can't change its shape",
                f"tensor: {x._meta}",
                "write y = x.t() for x.t_()",
            )
        for name in (*Transformed.__slots__, *type(x).__slots__, "_meta"):
            setattr(x, name, getattr(found, name))

    def join(self, parts: Sequence[Tensor | None]) -> Tensor:
        """The inverse of `split`."""
        raise NotImplementedError

    def gradients(self, outputs: list, inputs: list, cotangents: list, grad: Callable) -> list:
        """The gradients of split outputs by split inputs, split; `grad` is that of the parts."""
        raise NotImplementedError


class opened(modes._Mode):
    """A level's time, a `with` block.  Apart from the level, which tensors hold: an interrupt ends it too."""

    def __init__(self, level: Level):
        self._level = level

    def __enter__(self) -> Any:
        outer = modes.local.levels
        self._level.depth = len(outer)
        self._changes = {"levels": (*outer, self._level)}
        super().__enter__()
        return self._level

    def __exit__(self, *error: object) -> None:
        self._level.closed = True
        super().__exit__(*error)


class Transformed(Arrayless):
    """A tensor that an open transform wraps.

    Invariant: `_meta` is what the function sees; `_level` knows what is inside.  There is no array, and the
    history is that of what is inside.
    """

    __slots__ = ("_level",)
    _level: Level

    def _inside(self) -> Tensor:
        raise NotImplementedError

    @property
    def _data(self) -> Any:  # type: ignore[override]
        raise self._refusal()

    def _refusal(self) -> TransformError:
        level = self._level
        if level.closed:
            return TransformError(
                f"a tensor was used after the {level.what} that it belongs to had ended",
                f"tensor: {self._meta}",
                "return it from the function",
            )
        return TransformError(
            f"the values of a tensor were asked for inside of {level.what}: by item() on a Tensor, numpy(), "
            "or data-dependent control flow (`if`)",
            f"tensor: {self._meta}",
            *level.remedies,
        )

    @property
    def _edge(self) -> Edge | None:  # type: ignore[override]
        return self._inside()._node

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask (or stop asking) for the gradient of what is inside."""
        self._inside().requires_grad_(requires_grad)
        return self

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements of one example lie row by row."""
        shape = self._meta.shape
        steps = zip(shape, self.stride(), row_major(shape), strict=True)
        return 0 in shape or all(n == 1 or step == dense for n, step, dense in steps)

    def stride(self, dim: int | None = None) -> Any:
        """Steps between neighbours of each dimension (or of `dim`), in elements, inside."""
        found: Any = self._inside().stride()
        found = found[self._level.axes :]
        return found if dim is None else found[self._dim("stride", dim)]

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        raise TransformError(f"x.data can't be set inside of {self._level.what}", f"tensor: {self._meta}")

    def detach(self) -> Tensor:
        """The same without history, and without a tangent."""
        level = self._level
        return level.join([level.split(self)[0].detach(), *[None] * (len(level.split(self)) - 1)])

    def backward(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: `.grad` belongs to no level."""
        raise TransformError(
            f"backward() can't be called inside of {self._level.what}",
            f"tensor: {self._meta}",
            "use lamina.func.grad or lamina.func.vjp",
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(level {self._level.depth + 1}, {self._meta}, inside {self._inside()!r})"
        )


def has_values(x: Tensor) -> bool:
    """Whether a tensor has values that Python may look at: not inside of vmap, where there are many.

    A graph's value has none.
    """
    if isinstance(x, Value):
        return False
    while isinstance(x, Transformed):
        if x._level.axes:
            return False
        x = x._inside()
    return True


def array_of(x: Tensor) -> np.ndarray:
    """The array at the very inside of a tensor, whatever wraps it."""
    while isinstance(x, Transformed):
        x = x._inside()
    return x._data


# ---- ops ---------------------------------------------------------------------------------------------------
def level_of(x: Any) -> Level | None:
    """The innermost level that wraps or has adopted a tensor; None where none has.  Raises TransformError."""
    if isinstance(x, Transformed):
        if x._level.closed:
            raise x._refusal()
        return x._level
    for level in reversed(modes.local.levels):
        if level.adopted and isinstance(x, Tensor):
            if id(x) in level.adopted:
                return level
            if x._view is not None and id(x._view[0]) in level.adopted:
                level.adopt(x)
                return level
    return None


def innermost(operands: Iterable[Any]) -> Level | None:
    """The innermost level that one of these belongs to; None where none does.  Raises TransformError."""
    found = None
    for x in operands:
        level = level_of(x)
        if level is not None and (found is None or level.depth > found.depth):
            found = level
    return found


def run_through(op: Op, plan: Any, operands: tuple) -> Any:
    """The result of an op with a transformed operand; NotImplemented where there is none."""
    level = innermost(operands)
    return NotImplemented if level is None else level.run(op, plan, operands)


def kept_from_writes(operands: Sequence[Any]) -> Tensor:
    """What an op reads that writes over its first operand: that, or a copy where a backward may want it.

    The op may save what it reads, on any level further out.
    """
    x = operands[0]
    followed = modes.is_grad_enabled() and any(_recorded(y) for y in operands if isinstance(y, Tensor))
    return REGISTRY["clone"](x) if followed else x


def _recorded(x: Tensor) -> bool:
    """Whether a tensor has a history, inside of whatever wraps it or has adopted it."""
    level = level_of(x)
    if level is None:
        return x._node is not None
    return any(_recorded(part) for part in level.split(x) if part is not None)


def write_through(op: Op, operands: tuple, attrs: dict[str, Any]) -> Any:
    """The same for the in-place form."""
    level = innermost(operands)
    return NotImplemented if level is None else level.write(op, operands, attrs)


# ---- taking apart ------------------------------------------------------------------------------------------
def parts_at(level: Level, x: Tensor) -> tuple:
    """What is inside of `x` at one level, with levels further in around each part."""
    deeper = x._level if isinstance(x, Transformed) else level_of(x)
    if deeper is None or deeper.depth < level.depth:
        return level.constant(x)
    if deeper is level:
        return level.split(x)
    inner = [None if part is None else parts_at(level, part) for part in deeper.split(x)]
    count = max(len(parts) for parts in inner if parts is not None)
    return tuple(
        None
        if all(parts is None or parts[i] is None for parts in inner)
        else deeper.join([None if p is None or p[i] is None else _turned(p[i], level, deeper) for p in inner])
        for i in range(count)
    )


def unite_at(level: Level, parts: Sequence[Tensor | None]) -> Tensor:
    """The inverse of `parts_at`."""
    deeper = innermost(parts)
    if deeper is None or deeper.depth <= level.depth:
        return level.join(parts)
    given = [None if p is None else parts_at(deeper, p) for p in parts]
    count = max(len(p) for p in given if p is not None)
    turned = [[None if p is None or p[i] is None else _turned(p[i], level, deeper) for p in given]
              for i in range(count)]  # fmt: skip
    return deeper.join([None if all(p is None for p in t) else unite_at(level, t) for t in turned])


def _turned(x: Tensor, level: Level, deeper: Level) -> Tensor:
    """What has the axes of two levels in front, with these exchanged."""
    return REGISTRY["transpose"](x, 0, 1) if level.axes and deeper.axes else x


def insides(x: Tensor) -> list[Tensor]:
    """The plain tensors inside of a tensor: itself, or those that all levels wrap."""
    if not isinstance(x, Transformed):
        return [x]
    return [y for part in x._level.split(x) if part is not None for y in insides(part)]


def gradients(outputs: Sequence, inputs: Sequence, cotangents: Sequence, grad: Callable) -> list:
    """The gradients of outputs by inputs of which some are transformed.

    grad(outputs, inputs, cotangents): those of plain ones; the cotangents may still be transformed.
    """
    level = innermost((*outputs, *inputs))
    if level is None:
        return grad(outputs, inputs, cotangents)
    ys, xs, cs = ([parts_at(level, x) for x in given] for given in (outputs, inputs, cotangents))
    found = level.gradients(ys, xs, cs, lambda ys, xs, cs: gradients(ys, xs, cs, grad))
    return [None if parts is None else unite_at(level, parts) for parts in found]


def kind_without(kind: Type, axes: int) -> Type:
    """The type without its first `axes` axes."""
    return kind.with_shape(kind.shape[axes:])
