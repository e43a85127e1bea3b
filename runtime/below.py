"""`__torch_dispatch__`: classes of the user's that answer what ops do, below gradients.

An instance wraps what it likes and has no memory of its own: its array is `Asked`, which nobody can read, and
its device, `WRAPPED`, shows as the CPU.  So ops run the ordinary paths, with histories, by plans whose
kernels ask the class: `cls.__torch_dispatch__(func, types, args, kwargs)`, with gradients off.  `func` is a
`Below`: the op without gradients, to be called with what was unwrapped.  Composites are seen as the ops they
consist of.

Inside of the library such a tensor is a plain one over the same array; at the edges (overriding.py) instances
become plain tensors, and results the instances that the class returned, with the history that they were
given.
A wrapped tensor and its array hold each other, so they are freed by the garbage collector.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..ir.errors import ArgumentError
from ..ir.op import REGISTRY, Op
from ..ir.types import CPU, Device, Type, type_of
from . import modes
from .graph import Leaf, Owner
from .meta import NoValues
from .storage import Storage
from .tensor import Tensor, leaf, wrap
from .trees import like

new = object.__new__


class _Wrapped(Device):
    """Where tensors are that wrap others: nowhere, though they say that it is the CPU."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return "wrapped"


WRAPPED = _Wrapped("cpu")
_GROUND = np.zeros(64, np.uint8)
_GROUND.flags.writeable = False


class Asked(NoValues):
    """The array of a wrapped tensor.  owner: the instance; fresh: nobody gave it a history yet."""

    owner: Any
    fresh: bool

    def item(self, *_: Any) -> Any:
        return _answer(Method("_local_scalar_dense", "item"), (self.owner,))

    def reshape(self, *shape: Any, **_: Any) -> Any:
        return np.asarray(self.tolist(), self.dtype).reshape(*shape)

    def tolist(self) -> Any:
        return _answer(Method("tolist", "tolist"), (self.owner,))

    def __bool__(self) -> bool:  # type: ignore[override]
        return bool(self.item())

    def __int__(self) -> int:  # type: ignore[override]
        return int(self.item())

    def __float__(self) -> float:  # type: ignore[override]
        return float(self.item())


def asked(kind: Type, owner: Any, fresh: bool) -> Asked:
    """The array of a wrapped tensor of that type."""
    made = Asked(kind.shape, kind.dtype.numpy, _GROUND, 0, (0,) * kind.ndim)
    made.owner, made.fresh = owner, fresh
    return made


# ---- what a class is asked ---------------------------------------------------------------------------------
class Below:
    """An op without gradients.  Called with operands of it, and no arguments: those it has already.

    inplace: the form that writes the first operand, and returns it.
    """

    def __init__(self, op: Op, attrs: dict[str, Any], inplace: bool = False):
        self.op, self.attrs, self.inplace = op, attrs, inplace
        name = f"{op.name}_" if inplace else op.name
        self.overloadpacket = f"aten.{name}"
        self.__name__, self.__module__ = f"{name}.default", "torch._ops.aten"

    def __call__(self, *operands: Any, **_: Any) -> Any:
        if any(isinstance(x, Tensor) and type(x._data) is Asked for x in operands):
            return _answer(self, operands)
        if self.inplace:
            with modes.no_grad():
                return writes[0](self.op, operands, self.attrs)
        with modes.no_grad():
            arrays = runs[0](self.op, operands, self.attrs)
        made = [_tensor(a) for a in arrays]
        return made[0] if len(made) == 1 else tuple(made)

    def __repr__(self) -> str:
        return f"aten.{self.__name__}"


class Method:
    """The same for a method of tensors that is no op."""

    def __init__(self, name: str, method: str):
        self.method = method
        self.overloadpacket = f"aten.{name}"
        self.__name__, self.__module__ = f"{name}.default", "torch._ops.aten"

    def __call__(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        return getattr(x, self.method)(*args, **kwargs)


runs: list[Callable] = []  # dispatch.py's: (op, operands, attrs) -> arrays, hidden outputs too


writes: list[Callable] = []  # inplace.py's


def _tensor(array: np.ndarray) -> Tensor:
    return wrap(array, type_of(_dtypes[0](array.dtype), array.shape, CPU))


_dtypes: list[Callable] = []


def _answer(func: Any, args: tuple) -> Any:
    cls: Any = next(type(x) for x in args if isinstance(x, Tensor) and type(x)._dispatches)
    if modes.CHANGED:
        modes.tell("refuse", "__torch_dispatch__ answers the program's ops")
    with modes.no_grad():
        found = cls.__torch_dispatch__(func, (cls,), args, {})
    if found is NotImplemented:
        raise ArgumentError(f"{cls.__name__}.__torch_dispatch__ returned NotImplemented for {func!r}")
    return found


def kernel(op: Op, types: tuple[Type | None, ...], attrs: dict[str, Any]) -> Callable:
    """What runs an op where an operand is wrapped: its class does."""
    func = Below(op, attrs)

    def run(*arrays: Any) -> Any:
        args = _operands(arrays, types)
        if not any(type(a) is Asked for a in arrays):  # numbers of the program's, beside wrapped tensors
            found = runs[0](op, args, attrs)
            return found[0] if len(found) == 1 else found
        found = _answer(func, args)
        outs = found if isinstance(found, (tuple, list)) else (found,)
        made = []
        for x in outs:
            if not isinstance(x, Tensor):
                raise ArgumentError(
                    f"{op.name}: __torch_dispatch__ must return tensors, not {type(x).__name__}"
                )
            if type(x._data) is Asked and not x._data.fresh and any(x is a for a in args):
                x = _answer(Below(REGISTRY["view"], {"shape": tuple(x._meta.shape)}), (x,))
            if type(x._data) is Asked:
                x._data.fresh = True
            made.append(x._data)
        return made[0] if len(made) == 1 else tuple(made)

    return run


def _operands(arrays: tuple, types: tuple) -> tuple:
    return tuple(
        [
            None if a is None else a.owner if type(a) is Asked else wrap(a, type_of(t.dtype, a.shape, CPU))
            for a, t in zip(arrays, types)
        ]
    )


def overwrite(op: Op, types: tuple[Type | None, ...], attrs: dict[str, Any], arrays: tuple) -> None:
    """Have the class of a wrapped tensor write it, the first operand."""
    _answer(Below(op, attrs, inplace=True), _operands(arrays, types))


# ---- at the edges ------------------------------------------------------------------------------------------
def make(cls: type, size: Any, dtype: Any, requires_grad: bool) -> Any:
    """An instance of a class with `__torch_dispatch__`, of that shape and dtype."""
    made = new(cls)
    made._meta = kind = type_of(dtype, tuple(size), WRAPPED)
    made._data = asked(kind, made, False)
    made._edge = made._view = None
    made._storage = Storage()
    if requires_grad:
        made._edge = leaf(made)
    return made


def plain(x: Any, pairs: list[tuple[Any, Tensor]]) -> Any:
    """What an edge hands on: a plain tensor in the place of an instance, in lists and tuples too."""
    if isinstance(x, Tensor):
        if not type(x)._dispatches:
            return x
        for known, made in pairs:
            if known is x:
                return made
        made = wrap(x._data, x._meta)
        made._edge, made._storage, made._view = x._node, x._storage, x._view
        pairs.append((x, made))
        return made
    if type(x) in (list, tuple):
        return type(x)(plain(y, pairs) for y in x)
    return x


def outer(x: Any, pairs: list[tuple[Any, Tensor]] = ()) -> Any:  # type: ignore[assignment]
    """What an edge returns: the instance in the place of a plain tensor over its array."""
    if isinstance(x, Tensor):
        for known, made in pairs:
            if made is x:
                return known
        data = x._data if type(x) is Tensor else None
        if type(data) is not Asked:
            if data is not None and x._meta.device is WRAPPED:  # its class answered with a plain tensor
                x._meta = type_of(x._meta.dtype, data.shape, CPU)
            return x
        owner = data.owner
        if data.fresh:
            data.fresh = False
        elif owner._node is x._node and not any(known is owner for known, _ in pairs):
            return owner
        else:  # another history: of a gradient, or detached
            owner = _answer(Below(REGISTRY["view"], {"shape": tuple(x._meta.shape)}), (owner,))
        owner._edge, owner._storage, owner._view = x._edge, x._storage, x._view
        return owner
    if type(x) is list:
        return [outer(y, pairs) for y in x]
    if isinstance(x, tuple) and not hasattr(x, "numel"):
        return like(x, [outer(y, pairs) for y in x])
    return x


def called(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call with instances among its arguments."""
    pairs: list[tuple[Any, Tensor]] = []
    given = plain(args, pairs)
    named = {name: plain(x, pairs) for name, x in kwargs.items()}
    found = function(*given, **named)
    for x, made in pairs:  # what was written has another history
        if made._edge is not x._edge:
            if type(made._edge) is Leaf:  # it was asked to be one
                made._edge.owner = Owner(x)
            x._edge, x._storage, x._view = made._edge, made._storage, made._view
    return outer(found, pairs)
