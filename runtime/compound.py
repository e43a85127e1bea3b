"""Tensors that are made of tensors: sparse ones of indices and values, nested ones of values and offsets.

Such a tensor has a type and a history like any other, but no array.  An op that reaches for the array fails
with `NoArray`; where ops are run (dispatch.py) that failure is the branch: the op is looked up in the rules
of the tensor's class, which do it by ordinary ops on the parts, or refuse by name.  So gradients of every
order come from those ops, and an op on ordinary tensors asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ..ir.errors import ArgumentError, GradError, MissingError, ShapeError
from ..ir.op import Op
from ..ir.types import Type
from . import modes
from .graph import Edge
from .tensor import Tensor

new = object.__new__
seen = False  # whether there ever was a compound tensor: optimizers look for sparse gradients only then


class NoArray(ArgumentError, MissingError):
    """What needs the one array of a tensor met a tensor that has none."""


class Arrayless(Tensor):
    """A tensor without an array: what it is follows from its type."""

    __slots__ = ()

    def numel(self) -> int:
        """The number of elements."""
        return self._meta.size

    nelement = numel

    @property
    def nbytes(self) -> int:
        return self._meta.size * self._meta.dtype.itemsize

    def size(self, dim: int | None = None) -> Any:
        """The shape, or its entry `dim`."""
        return self.shape if dim is None else self._meta.shape[self._dim("size", dim)]

    def __len__(self) -> Any:
        if not self._meta.ndim:
            return super().__len__()
        return self._meta.shape[0]


def entering(rules: dict[str, Callable]) -> Callable:
    """What makes `@rule(*names)`, which enters a function in `rules` as what the ops of these names do."""

    def rule(*names: str) -> Callable:
        def enter(function: Callable) -> Callable:
            rules.update(dict.fromkeys(names, function))
            return function

        return enter

    return rule


class Compound(Arrayless):
    """A tensor made of tensors.

    Invariant: `_stored` holds the elements that are stored, as an ordinary tensor, whose history is this
    tensor's.
    what: how errors call it.  rules: by the name of an op, what does it: (operands..., **attrs) -> result, or
    NotImplemented.  remedy: what makes an ordinary tensor of it.
    by_parts: whether ops on it are ops on what is stored, as the type and the form alone say: then an update,
    element by element, of tensors that lie alike is one of what is stored, and a recording takes them.
    """

    __slots__ = ("_stored",)
    _stored: Tensor
    what = "compound"
    remedy = "x.to_dense() is an ordinary tensor"
    _compound = True
    by_parts = False
    rules: dict[str, Callable]

    def _with(self, values: Tensor) -> Any:
        """The same places with other values."""
        raise NotImplementedError

    def _gradient(self, values: Tensor) -> Any:
        """A cotangent of the values, as one of this tensor."""
        return self._with(values)

    def _spread(self, gradient: Tensor) -> Tensor:
        """The inverse: a cotangent of this tensor, as one of its values."""
        raise NotImplementedError

    def _take(self, other: Any) -> None:
        """Become what another of the class is."""
        raise NotImplementedError

    def _become(self, other: Any) -> None:
        """The same; but a leaf that asks for its gradient goes on to, with the one it has, if it fits."""
        asks = self.requires_grad and self.is_leaf
        grad = self.grad if asks else None
        self._take(other)
        if asks:
            self._stored = self._stored.detach().requires_grad_()
            if grad is not None and grad._meta is self._meta:
                self.grad = grad

    def shown(self) -> str:
        """The type, and what else there is to say of it, as errors do."""
        return f"{self.what} {self._meta}"

    @property
    def form(self) -> Any:
        """What the tensor is besides its type and what is stored, to be compared; where that is by parts."""
        raise NotImplementedError

    def maker(self) -> Callable[[Tensor], Any]:
        """What makes the same of other stored values, holding none itself; where that is by parts."""
        raise NotImplementedError

    def whole_for(self, name: str) -> Tensor:
        """The ordinary tensor that an op writes into one.  Raises NoArray where there is none."""
        raise NoArray(f"{name}: a {self.what} result can't be written into a dense tensor", self.remedy)

    def lying_alike(self, value: Tensor) -> Tensor:
        """An ordinary tensor of this one's shape, as a tensor like this one; where that is by parts."""
        return value

    def _overwrite(self, found: Any) -> None:
        """Take the values of another of the class, by an op in place."""
        self._become(found)

    @property
    def _data(self) -> Any:  # type: ignore[override]
        raise NoArray(
            f"a {self.what} tensor has no one array of elements", f"tensor: {self._meta}", self.remedy
        )

    @property
    def _edge(self) -> Edge | None:  # type: ignore[override]
        return self._stored._node

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Ask (or stop asking) for the gradient of what is stored, in place."""
        self._stored.requires_grad_(requires_grad)
        return self

    @property
    def grad(self) -> Any:
        found = self._stored.grad
        return None if found is None else self._gradient(found)

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and (not isinstance(value, Tensor) or value._meta is not self._meta):
            shown = value._meta if isinstance(value, Tensor) else type(value).__name__
            raise ShapeError(
                "grad must have the tensor's shape and dtype", f"tensor: {self._meta}", f"grad: {shown}"
            )
        self._stored.grad = None if value is None else self._spread(value).detach()

    def retain_grad(self) -> None:
        """Keep the gradient of this tensor though it is no leaf."""
        self._stored.retain_grad()

    def detach(self) -> Any:
        """The same without history."""
        return self._with(self._stored.detach())

    def detach_(self) -> Tensor:
        """Forget this tensor's history."""
        self._stored = self._stored.detach()
        return self

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, value: Any) -> None:
        if type(value) is not type(self):
            raise ArgumentError(f"data must be a {self.what} tensor, not {type(value).__name__}")
        self._become(value)

    @property
    def _version(self) -> int:
        return self._stored._version

    def _no_memory(self, name: str) -> NoReturn:
        raise NoArray(
            f"{name}: a {self.what} tensor has no one array of elements", f"tensor: {self._meta}", self.remedy
        )

    def stride(self, dim: int | None = None) -> Any:
        """Refused: there are no steps between elements."""
        self._no_memory("stride")

    def storage_offset(self) -> int:
        """Refused: there is no one storage."""
        self._no_memory("storage_offset")

    def data_ptr(self) -> int:
        """Refused: there is no one address."""
        self._no_memory("data_ptr")

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the values are."""
        return self._stored.is_contiguous()


def made_of(cls: Any, kind: Type, values: Tensor) -> Any:
    """A new compound tensor of a type, its class's own slots not filled yet."""
    global seen
    seen = True
    if modes.CHANGED and not cls.by_parts:
        modes.tell("refuse", f"a {cls.what} tensor was made")
    made = new(cls)
    made._meta, made._stored = kind, values
    made._storage = made._view = None
    return made


def of_values(x: Any) -> Any:
    """The tensor whose history a tensor has: its values, where it is made of several."""
    return x._stored if isinstance(x, Compound) else x


def parts_of(columns: Sequence[tuple]) -> list[tuple]:
    """What is stored of the tensors of an update, element by element: gradients, parameters, states.

    Raises ShapeError for a row whose tensors don't lie alike.
    """
    rows = []
    for row in zip(*columns, strict=True):
        p = row[1]
        for x in row:
            if isinstance(x, Compound) and not x.by_parts and modes.CHANGED:
                modes.tell("refuse", f"an optimizer updated a {x.what} tensor")
            if isinstance(x, Compound) and not (x.by_parts and p.lies_like(x)):
                raise ShapeError(
                    "an optimizer updates a parameter by a gradient and states that lie as it does",
                    f"parameter: {p!r:.200}",
                    f"other: {x!r:.200}",
                )
        rows.append([of_values(x) for x in row])
    return list(zip(*rows, strict=True))


def first_compound(operands: Any) -> Compound | None:
    """The first compound tensor among operands."""
    return next((x for x in operands if isinstance(x, Compound)), None)


def served(op: Op, operands: tuple, attrs: dict[str, Any]) -> Any:
    """An op on operands of which some are compound.  Raises NoArray where it has no rule for them."""
    x = first_compound(operands)
    if x is None:  # what lacks an array was met further in
        raise NoArray(f"{op.name}: does not take such tensors")
    if modes.CHANGED and not x.by_parts:
        modes.tell("refuse", f"{op.name} ran on a {x.what} tensor")
    rule = x.rules.get(op.name)
    found = NotImplemented if rule is None else rule(*operands, **attrs)
    if found is NotImplemented:
        shown = [f"{n}: {_shown(o)}" for n, o in zip(_names(op, operands), operands) if o is not None]
        raise NoArray(f"{op.name}: is not built for {x.what} tensors like these", *shown, x.remedy)
    return found


def written(op: Op, operands: tuple, attrs: dict[str, Any]) -> Tensor:
    """The in-place form: the result takes the first operand's place."""
    x = operands[0]
    given = operands
    if isinstance(x, Compound) and x.by_parts and modes.is_grad_enabled():
        if any(isinstance(o, Tensor) and o.requires_grad for o in operands):  # what is saved is written below
            given = (x._with(x._stored.clone()), *operands[1:])
    found = served(op, given, attrs)
    if not isinstance(x, Compound):
        if isinstance(found, Compound):
            found = found.whole_for(f"{op.name}_")
        return x.copy_(found)
    if modes.is_grad_enabled() and x.requires_grad and x.is_leaf:
        raise GradError(
            f"{op.name}_: a leaf that requires gradients can't be written in place",
            "write under no_grad() to change its value",
        )
    if type(found) is not type(x) or found._meta.shape != x._meta.shape:
        raise ShapeError(f"{op.name}_: the result does not fit into the tensor", f"tensor: {x._meta}")
    if found._meta is not x._meta:
        found = found.to(x._meta.dtype)
    x._overwrite(found)
    return x


def _names(op: Op, operands: tuple) -> list[str]:
    names = list(op.operands)
    if op.variadic:
        names[-1:] = [f"{names[-1][1:]}[{i}]" for i in range(len(operands) - len(names) + 1)]
    return names


def _shown(x: Any) -> str:
    return x.shown() if isinstance(x, Compound) else f"{x._meta}"


def dense_gradient(g: Any) -> Any:
    """A cotangent as an ordinary tensor."""
    return g.to_dense() if isinstance(g, Compound) else g
