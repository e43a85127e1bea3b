"""Parameters and buffers as values: `Parameter`, `Buffer`, and both before their shapes are known."""

from __future__ import annotations

from typing import Any, NoReturn

from ..ir.dtypes import DType
from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import Parameter, Tensor, modes, ops
from ..runtime.tensor import MARKS, Marked

__all__ = ["Buffer", "Parameter", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class Buffer(Tensor, metaclass=Marked):
    """A tensor that a module registers as a buffer when it is assigned to an attribute.

    It has the class of `data`, and is marked.  persistent: whether the state dict has it.
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Any:
        data = ops.empty(0) if data is None else data
        if not isinstance(data, Tensor):
            raise ArgumentError(f"Buffer(data): data must be a tensor, not {type(data).__name__}")
        return _as_buffer(data.detach().requires_grad_(data.requires_grad), persistent)


MARKS[Buffer] = "_is_buffer"


def _as_buffer(made: Any, persistent: bool) -> Any:
    made.persistent, made._is_buffer = persistent, True
    return made


_META: Any = Tensor.__dict__["_meta"]


class UninitializedTensorMixin:
    """A tensor that has a dtype and a device, but no shape until `materialize` says it.

    Invariant: its type and array are those of an empty tensor, out of everybody's reach: who asks for the
    type, as every op does, is told that there is none yet.
    """

    __slots__ = ()
    cls_to_become: type

    def _refuse(self) -> NoReturn:
        raise ArgumentValueError(
            f"an uninitialized parameter ({type(self).__name__}) has no shape yet, so nothing can be "
            "computed with it",
            "call its module once on an input of the right shape, or materialize(shape)",
        )

    _meta: Any = property(_refuse, lambda self, kind: _META.__set__(self, kind))
    ndim = property(_refuse)
    shape = property(_refuse)
    __deepcopy__: Any

    @property
    def dtype(self) -> DType:
        return _META.__get__(self).dtype

    @property
    def device(self) -> Any:
        return _META.__get__(self).device

    @property
    def data(self: Any) -> Tensor:
        """An empty tensor of its dtype and device; another one set in its place changes these."""
        return ops.empty(0, dtype=self.dtype, device=self.device)

    @data.setter
    def data(self: Any, value: Tensor) -> None:
        if is_lazy(value):
            value = value.data
        self._as_empty(lambda empty: Tensor.data.__set__(empty, value))  # type: ignore[attr-defined]

    def _as_empty(self: Any, change: Any) -> Any:
        """Do to it what can be done to an empty tensor of its kind."""
        kind = type(self)
        self.__class__ = kind.cls_to_become
        try:
            return change(self)
        finally:
            self.__class__ = kind

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def requires_grad_(self: Any, requires_grad: bool = True) -> Any:
        """Ask (or stop asking) for its gradient, in place."""
        return self._as_empty(lambda empty: empty.requires_grad_(requires_grad))

    def detach(self) -> Any:
        """Itself: there are no values to share."""
        return self

    def share_memory_(self) -> NoReturn:
        """Refuse: there is no memory yet."""
        self._refuse()

    def materialize(self: Any, shape: Any, device: Any = None, dtype: DType | None = None) -> None:
        """Become, in place, a tensor of this shape; its values are not initialised."""
        if modes.CHANGED:
            modes.tell("once", "a lazy module made its parameters")
        dtype = self.dtype if dtype is None else dtype
        made = ops.empty(shape, dtype=dtype, device=self.device if device is None else device)
        self.__class__ = self.cls_to_become
        self.data = made

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self: Any, protocol: Any) -> tuple:
        return _unmade, (type(self), self.requires_grad, self.dtype, getattr(self, "persistent", None))

    def _copied(self: Any, memo: dict) -> Any:
        memo[id(self)] = made = _unmade(*self.__reduce_ex__(2)[1])
        return made

    __deepcopy__ = _copied


def _unmade(kind: type, requires_grad: bool, dtype: DType, persistent: bool | None) -> Any:
    rest = {} if persistent is None else {"persistent": persistent}
    return kind(requires_grad=requires_grad, dtype=dtype, **rest)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A parameter whose shape the first call of its module decides; until then nothing computes with it."""

    __slots__ = ()
    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None):
        made = Parameter(ops.empty(0, device=device, dtype=dtype), requires_grad)
        made.__class__ = cls
        return made


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape the first call of its module decides; until then nothing computes with it."""

    __slots__ = ()
    cls_to_become = Tensor

    def __new__(
        cls, requires_grad: bool = False, device: Any = None, dtype: Any = None, persistent: bool = True
    ):
        made = ops.empty(0, device=device, dtype=dtype).requires_grad_(requires_grad)
        made.__class__ = cls
        return _as_buffer(made, persistent)


def is_lazy(param: Any) -> bool:
    """Whether a tensor has no shape yet."""
    return isinstance(param, UninitializedTensorMixin)
