"""The tensor: an array, its interned type, and where it came from.

This file holds what a tensor *is*; what can be done with one stands in the op records and is hung on by
methods.py.
"""

from __future__ import annotations

import copyreg
import warnings
from collections.abc import Callable, Iterator
from operator import index
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..ir import dtypes
from ..ir.dtypes import DType, from_numpy_dtype, home_of
from ..ir.errors import ArgumentError, DeviceError, DimError, DTypeError, GradError, ShapeError
from ..ir.types import CPU, Device, Type, placed, type_of
from . import modes
from .changes import advance_objects
from .graph import Edge, Leaf, Node, Owner, Port, hooks_of, shown
from .layouts import Layout, strided
from .meta import NoValues, strides
from .modes import CHANGED
from .on_device import OnDevice
from .storage import Apart, Inferred, Storage

new = object.__new__
NUMBERS = (bool, int, float, complex, np.generic)  # what an op takes in the place of a tensor
line_of_storage: list[Callable[[Any, DType | None], Tensor | None]] = []  # memory_view.py's `_as_tensor`
derivation: list[
    Callable[[Any], None]
] = []  # inplace.py's: gives a view the history that follows from its base's


class Size(tuple):
    """A shape: a tuple of ints that prints as PyTorch's.  Raises ArgumentError."""

    __slots__ = ()

    def __new__(cls, sizes=()):
        if not hasattr(sizes, "__iter__"):
            raise ArgumentError(f"Size() takes an iterable of 'int', not {type(sizes).__name__}")
        found = tuple.__new__(cls, sizes)
        return found if all([type(n) is int for n in found]) else tuple.__new__(cls, _whole(found))

    def numel(self) -> int:
        """The number of elements."""
        total = 1
        for n in self:
            total *= n
        return total

    def __repr__(self) -> str:
        return f"{dtypes.namespace}.Size({list(self)})"

    def __getitem__(self, at):
        found = tuple.__getitem__(self, at)
        return tuple.__new__(Size, found) if type(at) is slice else found

    def __add__(self, other):
        if isinstance(other, tuple):
            return Size(tuple.__add__(self, other))
        if hasattr(type(other), "__radd__") and not isinstance(other, Tensor):
            return NotImplemented
        raise ArgumentError(f"can only concatenate tuple (not {type(other).__name__}) to lamina.Size")

    def __mul__(self, count):
        found = tuple.__mul__(self, count)
        return found if found is NotImplemented else tuple.__new__(Size, found)

    __rmul__ = __mul__

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self)) if isinstance(other, tuple) else NotImplemented


def _whole(sizes: tuple) -> list[int]:
    """Sizes as ints: those of integer tensors, and of what else stands for an int."""
    found = []
    for at, n in enumerate(sizes):
        try:
            found.append(n if isinstance(n, int) else index(n))
        except TypeError:
            name = type(n).__name__
            raise ArgumentError(f"Size() takes an iterable of 'int' (item {at} is '{name}')") from None
    return found


class Tensor:
    """A multi-dimensional array that knows its history.  Made by `lamina.tensor` and its kin.

    _data: the NumPy array.  _meta: its interned type.  _storage: what it shares with its views, once anything
    asked.  _view: where it is a view, (base, chain, how often the storage's history had changed).  _edge:
    where it came from; None where no gradient is wanted.  Read it as `_node`, which sees to it that a view's
    is not out of date.
    """

    # _resting: the leaf of a tensor that stopped requiring gradients (see requires_grad_), or whose gradient
    # was set by hand; mostly there is none.  __dict__: what users hang on a tensor, made when something is.
    __slots__ = ("_data", "_meta", "_edge", "_storage", "_view", "_resting", "__weakref__", "__dict__")

    _data: np.ndarray
    _meta: Type
    _edge: Edge | None
    _storage: Storage | None
    _view: tuple[Tensor, tuple, int] | None

    __array_priority__ = 1000  # so that array * tensor is the tensor's business
    __array_ufunc__: Any  # hung on by ufuncs.py

    def __new__(cls, *args: Any, dtype: DType | None = None, device: Any = None):
        """PyTorch's old constructor: Tensor(2, 3) and Tensor(size) are zeros, Tensor([2, 3]) holds these.

        Tensor(x) of a tensor is a view of it, of its own dtype; of a storage it is one over its memory.
        Raises ArgumentError, DTypeError.
        """
        if device is not None and placed(device).type != "cpu":
            raise ArgumentError(f"Tensor(device={device}): takes 'cpu' alone", "lamina.zeros(…, device=…)")
        kind = (dtype or dtypes.default_dtype()).numpy
        sizes = args[0] if len(args) == 1 and isinstance(args[0], Size) else args
        if sizes is not args or sizes and all(isinstance(n, int) for n in sizes):
            return retyped(tensor_of(np.zeros(tuple(sizes), kind)), cls)
        data = args[0] if args else ()
        if len(args) > 1 or not hasattr(data, "__len__"):
            raise ArgumentError(
                "Tensor(…): takes sizes, or one sequence of numbers", "lamina.tensor(2.0) is 0-d"
            )
        if not isinstance(data, Tensor):
            wanted = dtype or dtypes.default_dtype()
            if type(data) not in (list, tuple) and (line := line_of_storage[0](data, wanted)) is not None:
                if line.dtype is not wanted:
                    raise DTypeError(f"Tensor(x): Expected a Storage of type {wanted}, not of {line.dtype}")
                return retyped(line, cls)
            return retyped(tensor_of(np.array(data, dtype=kind)), cls)
        if dtype is not None and data.dtype is not dtype:
            raise DTypeError(f"Tensor(x): x must be of {dtype}, not {data.dtype}", "x.to(dtype) casts")
        return retyped(Tensor.detach(data), cls) if cls is not Tensor else data.view(data.shape)

    # ---- what it is ----
    @property
    def shape(self) -> Size:
        kind = self._meta
        if CHANGED:
            modes.tell("sized", self)
            return tuple.__new__(Size, kind.shape)
        if kind.sizes is None:
            kind.sizes = tuple.__new__(Size, kind.shape)
        return kind.sizes

    @property
    def dtype(self) -> DType:
        return self._meta.dtype

    @property
    def device(self) -> Device:
        return self._meta.device

    @property
    def ndim(self) -> int:
        return self._meta.ndim

    @property
    def itemsize(self) -> int:
        return self._meta.dtype.itemsize

    @property
    def nbytes(self) -> int:
        if CHANGED:
            modes.tell("sized", self)
        return self._data.nbytes

    @property
    def layout(self) -> Layout:
        return strided

    _dispatches = False  # whether a class of the user's has a `__torch_dispatch__` (subclassing.py)
    _compound = False  # whether it is made of tensors, without an array of its own (compound.py)
    _gathered: Any = None  # where it is a whole that ranks have gathered: the part that is kept of it
    is_sparse = is_sparse_csr = is_quantized = False
    is_nested = is_mkldnn = is_mps = is_xpu = is_xla = is_ipu = is_hpu = is_mtia = is_maia = is_vulkan = False

    @property
    def is_cpu(self) -> bool:
        return self._meta.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        return self._meta.device.type == "cuda"

    @property
    def is_meta(self) -> bool:
        return self._meta.device.type == "meta"

    def size(self, dim: int | None = None) -> Size | int:
        """The shape, or its entry `dim`."""
        if dim is None:
            return self.shape
        if CHANGED:
            modes.tell("sized", self)
        sizes = self._meta.shape
        known = type(dim) is int and -len(sizes) <= dim < len(sizes)
        return sizes[dim if known else self._dim("size", dim)]  # type: ignore[return-value] # numbers

    def _dim(self, name: str, dim: int) -> int:
        rank = self._meta.ndim
        if not -rank <= dim < rank:
            from_to = f"[{-rank}, {rank - 1}]" if rank else "[]"
            raise DimError(
                f"{name}(dim): Dimension out of range: dim {dim} is not in {from_to}", f"tensor: {self._meta}"
            )
        return dim

    def dim(self) -> int:
        """The number of dimensions."""
        return self._meta.ndim

    ndimension = dim

    def numel(self) -> int:
        """The number of elements."""
        if CHANGED:
            modes.tell("sized", self)
        return self._data.size

    nelement = numel

    def is_inference(self) -> bool:
        """Whether the tensor was made under `inference_mode`, and is no view of one that was not."""
        found = type(self._storage) is Inferred
        if CHANGED:
            modes.tell("asked", self, "is_inference()", found)
        return found

    def element_size(self) -> int:
        """Bytes of one element."""
        return self._meta.dtype.itemsize

    def stride(self, dim: int | None = None) -> tuple[int, ...] | int:
        """Steps between neighbours of each dimension (or of `dim`), in elements."""
        if CHANGED:
            modes.tell("sized", self)
        if isinstance(self._data, NoValues) or not self._data.size:  # NumPy gives 0 to what has no elements
            steps = strides(self._meta)
            return steps if dim is None else steps[self._dim("stride", dim)]
        found = tuple(s // self._data.itemsize for s in self._data.strides)
        return found if dim is None else found[self._dim("stride", dim)]

    def storage_offset(self) -> int:
        """Elements between the start of the storage and this tensor's first element."""
        root = self._view[0]._data if self._view else self._data
        if self._storage is not None and self._storage.memory is not None:
            root = self._storage.memory
        start, mine = (a.__array_interface__["data"][0] for a in (root, self._data))
        found = (mine - start) // self._meta.dtype.itemsize
        if CHANGED:
            modes.tell("asked", self, "storage_offset()", found)
        return found

    def get_device(self) -> int:
        """The number of the device; -1 for the CPU, which has none."""
        index = self._meta.device.index
        return -1 if index is None else index

    def data_ptr(self) -> int:
        """The address of the first element; 0 where there is none."""
        if CHANGED:
            modes.tell("refuse", "data_ptr() was asked for, which differs from call to call")
        if isinstance(self._data, NoValues) or not self._data.size:
            return 0
        if type(self._data) is OnDevice:
            return self._data.address
        return self._data.__array_interface__["data"][0]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self._data.nbytes

    def is_contiguous(self, memory_format: Any = None) -> bool:
        """Whether the elements lie row by row without gaps."""
        return self._data.flags.c_contiguous or isinstance(self._data, NoValues)

    def is_floating_point(self) -> bool:
        return self._meta.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self._meta.dtype.is_complex

    def is_signed(self) -> bool:
        return self._meta.dtype.is_signed

    # ---- history ----
    @property
    def _node(self) -> Edge | None:
        """Where this tensor came from.  A view's is derived anew once its base has been written."""
        view = self._view
        if view is not None and view[2] != self._storage.history:
            derivation[0](self)
        return self._edge

    @_node.setter
    def _node(self, edge: Edge | None) -> None:
        self._edge = edge
        advance_objects()

    @property
    def requires_grad(self) -> bool:
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        self.requires_grad_(wanted)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask (or stop asking) for this tensor's gradient, in place.  Raises GradError where it is no leaf.

        Its gradient and its hooks stay with it: asked again, it goes on with them.
        """
        node = self._node
        if requires_grad:
            if node is None:
                if not self._meta.dtype.inexact:
                    raise GradError(
                        "Only Tensors of floating point and complex dtype can require gradients, not "
                        f"{self._meta}"
                    )
                if type(self._storage) is Inferred and not modes.local.inference:
                    raise GradError(
                        "Setting requires_grad=True on inference tensor outside InferenceMode is not allowed",
                        f"tensor: {self._meta}, made under inference_mode()",
                        "x.clone() is an ordinary tensor",
                    )
                node = self._node = getattr(self, "_resting", None) or leaf(self)
                node.kind = self._meta
                if CHANGED:
                    modes.tell("switched", self)
        elif type(node) is Leaf:
            self._resting, self._node, node.kind = node, None, None
            if CHANGED:
                modes.tell("switched", self)
        elif node is not None:
            raise GradError(
                "requires_grad_(False): only a leaf can stop requiring gradients",
                "use x.detach() for a copy without",
            )
        return self

    @property
    def is_leaf(self) -> bool:
        return self._node is None or type(self._node) is Leaf

    @property
    def grad_fn(self) -> Node | None:
        node = self._node.node if type(self._node) is Port else self._node
        if not isinstance(node, Node):
            return None
        if CHANGED:
            modes.tell("asked", self, "grad_fn.name()", node.name())
        return shown(node)

    @property
    def output_nr(self) -> int:
        found = self._node.index if type(self._node) is Port else 0
        if CHANGED:
            modes.tell("asked", self, "output_nr", found)
        return found

    @property
    def grad(self) -> Tensor | None:
        node = self._node or getattr(self, "_resting", None)
        kept = None
        found = node.grad if type(node) is Leaf else kept.grad if (kept := retained(self)) else None
        if found is None and kept is None and node is not None and hasattr(self, "_resting"):
            found = self._resting.grad  # which a user set
            if CHANGED and found is not None:
                modes.tell("refuse", "the gradient of a tensor that is no leaf was set by hand")
        if found is None and type(node) is not Leaf and self._node is not None and kept is None:
            if CHANGED:
                modes.tell("refuse", "a warning was given")
            warnings.warn(
                "the .grad of a tensor that is no leaf was read: backward() fills it after retain_grad()",
                UserWarning,
                stacklevel=2,
            )
        if CHANGED:
            self._tell_of_gradient(found)
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        node = self._node or getattr(self, "_resting", None)
        if value is not None:
            if not isinstance(value, Tensor):
                raise ArgumentError(f"grad is expected to be a Tensor or None, not {type(value).__name__}")
            if value is self:
                raise GradError("can't assign a tensor as its own grad", f"tensor: {self._meta}")
            if value._meta.shape != self._meta.shape:
                raise ShapeError(
                    "grad must have the tensor's shape", f"tensor: {self._meta}", f"grad: {value._meta}"
                )
            if value._meta.dtype is not self._meta.dtype:
                raise DTypeError(
                    "grad must have the tensor's dtype", f"tensor: {self._meta}", f"grad: {value._meta}"
                )
            if value._meta.device != self._meta.device:
                raise DeviceError(
                    f"assigned grad has data located on a different device: {value.device}, the tensor is on "
                    f"{self.device}",
                    f"x.grad = g.to('{self.device}')",
                )
        if type(node) is Leaf:
            if CHANGED:
                self._tell_of_gradient(node.grad)
                if self._node is None and node.grad is not value:
                    modes.tell("once", "the gradient was changed of a tensor that asks for none any more")
            node.grad = value
        elif (kept := retained(self)) is not None:
            if CHANGED:
                self._tell_of_gradient(kept.grad)
            kept.grad = value
        elif value is not None or hasattr(self, "_resting"):  # which no backward adds to
            if CHANGED:
                modes.tell("refuse", "a gradient was set of a tensor that asks for none, or is no leaf")
            if not hasattr(self, "_resting"):
                self._resting = leaf(self)
                self._resting.kind = None
            self._resting.grad = value
        elif CHANGED:  # nothing is there to be changed, this time
            self._tell_of_gradient(None)

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    _grad = grad  # as some programs spell it

    def _tell_of_gradient(self, found: Tensor | None) -> None:
        """Tell a recorder that the gradient is read or written; found: what it is now."""
        if type(self._node) is Leaf:
            modes.tell("gradients")
        else:
            modes.tell("kept", self, found)

    @property
    def _cdata(self) -> int:
        """A number of this tensor alone, as long as it lives."""
        if CHANGED:
            modes.tell("refuse", "_cdata was read, which differs from tensor to tensor")
        return id(self)

    @property
    def _version(self) -> int:
        if CHANGED:
            modes.tell("refuse", "_version was read, which differs from call to call")
        if type(self._storage) is Inferred:
            raise GradError("Inference tensors do not track version counter", f"tensor: {self._meta}")
        return self._storage.version if self._storage is not None else 0

    @property
    def _base(self) -> Tensor | None:
        return self._view[0] if self._view is not None else None

    def _is_view(self) -> bool:
        return self._view is not None

    @property
    def data(self) -> Tensor:
        """The same memory without history; writes through it are not seen by what was saved for backward."""
        if CHANGED:
            modes.tell("foreign", "x.data, through which it may be written unseen")
        if self._storage is None:
            self._storage = Storage()
        made = wrap(free(self), self._meta)
        made._storage = Apart(self._storage)
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentError(f"data must be a tensor, not {type(value).__name__}")
        if type(self._node) is Leaf and not value._meta.dtype.inexact:
            raise GradError(
                "data set to a tensor that requires gradients must be floating point or complex dtype",
                f"data: {value._meta}",
            )
        self._data, self._meta, self._storage, self._view = value._data, value._meta, _shared(value), None
        if type(self._node) is Leaf:
            self._node.kind = value._meta
        advance_objects()

    def detach(self) -> Tensor:
        """The same memory without history.  Writing into it counts as writing into this tensor."""
        made = wrap(free(self), self._meta)
        made._storage = _shared(self)
        if CHANGED:
            modes.tell("detached", made)
        return made

    def detach_(self) -> Tensor:
        """Forget this tensor's history."""
        if self._view is not None and self._node is not None:
            raise GradError("detach_(): a view can't be detached in place", "use x = x.detach()")
        if self.is_leaf:
            return self.requires_grad_(False)
        self._node = None
        return self

    def __dir__(self) -> list[str]:
        return [name for name in object.__dir__(self) if name != "_resting"]  # which few tensors have

    __hash__ = object.__hash__

    if TYPE_CHECKING:  # what methods.py hangs on, from the op records

        def __getattr__(self, name: str) -> Any: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def __setitem__(self, index: Any, value: Any) -> None: ...
        def __iter__(self) -> Iterator[Tensor]: ...
        def __bool__(self) -> bool: ...
        def __int__(self) -> int: ...
        def __float__(self) -> float: ...
        def __index__(self) -> int: ...
        def __neg__(self) -> Tensor: ...
        def __pos__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __eq__(self, other: Any) -> Any: ...
        def __ne__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Tensor: ...

        __gt__ = __le__ = __ge__ = __lt__
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = __lt__
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __lt__
        __rmatmul__ = __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = __lt__
        __lshift__ = __rshift__ = __rlshift__ = __rrshift__ = __lt__

    def __len__(self) -> int:
        if not self._meta.ndim:
            raise ArgumentError("len() of a 0-d tensor", "x.numel() counts its elements: 1")
        if CHANGED:
            modes.tell("sized", self)
        return self._data.shape[0]


OPERANDS = (Tensor, np.ndarray, *NUMBERS)  # what an op takes


class Marked(type):
    """Makes isinstance(x, Parameter) true of tensors that were marked as one, whatever their class."""

    def __instancecheck__(cls, x: object) -> bool:
        if type.__instancecheck__(cls, x):
            return True
        mark = MARKS.get(cls)
        return mark is not None and isinstance(x, Tensor) and getattr(x, mark, False)


class Parameter(Tensor, metaclass=Marked):
    """A tensor that a module owns and an optimizer updates.

    Of an instance of a class of the user's, a sparse, nested or transformed tensor it is one of that class,
    by its `detach`, and marked.
    """

    __slots__ = ()

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True):
        made = new(cls)
        if data is None:
            data = tensor_of(np.zeros((0,), dtypes.default_dtype().numpy))
        elif not isinstance(data, Tensor):
            raise ArgumentError(f"Parameter(data): data must be a tensor, not {type(data).__name__}")
        elif issubclass(type(data), Parameter):
            pass
        elif not home_of(type(data)).startswith("lamina.") or type(data)._data is not Tensor._data:
            return _marked(data, requires_grad)
        made._data, made._meta, made._storage, made._view = data._data, data._meta, _shared(data), None
        made._node = None
        if not isinstance(requires_grad, (bool, int)):
            raise ArgumentError(
                f"Parameter(requires_grad): must be a bool, not {type(requires_grad).__name__}"
            )
        return made.requires_grad_(requires_grad)

    def __reduce__(self):
        kind: tuple = () if type(self) is Parameter else (type(self),)
        restored = _restore_parameter, (wrap(self._data, self._meta), self.requires_grad, *kind)
        return (*restored, fields(self)) if fields(self) else restored


MARKS: dict[type, str] = {Parameter: "_is_param"}  # PyTorch's names


def _marked(data: Tensor, requires_grad: bool) -> Any:
    """A parameter of the class of `data`.  Raises ArgumentError."""
    found = data.detach()
    if type(found) is not type(data):
        raise ArgumentError(
            f"Parameter(data): creating a Parameter from an instance of type {type(data).__name__} requires "
            f"that detach() returns an instance of the same type, not a {type(found).__name__}",
            "correct what its class answers to detach",
        )
    fields(found)[MARKS[Parameter]] = True
    return found.requires_grad_(requires_grad)


def _restore_parameter(data: Tensor, requires_grad: bool, cls: type = Parameter) -> Parameter:
    return cls(data, requires_grad)


def retyped(x: Tensor, cls: type) -> Any:
    """The same memory and history as a tensor of another class; `x` itself where it is of that already.

    Raises ArgumentError for a class with a `__torch_dispatch__`, which may stand, but would not be asked.
    """
    if type(x) is cls:
        return x
    if cls._dispatches:  # type: ignore[attr-defined]
        raise ArgumentError(
            f"{cls.__name__}.__torch_dispatch__: only tensors without memory of their own ask their class "
            "below gradients",
            f"make it by lamina.Tensor._make_wrapper_subclass({cls.__name__}, shape, dtype=…), and hold what "
            "it wraps; or write __torch_function__, which answers calls of functions",
        )
    made = new(cls)
    made._data, made._meta, made._edge = x._data, x._meta, x._edge
    made._storage, made._view = x._storage, x._view
    return made


_fields_of = vars(Tensor)["__dict__"].__get__


def fields(x: Tensor) -> dict[str, Any]:
    """What a user hung on a tensor, by name."""
    return _fields_of(x)


def slot_names(cls: type) -> set[str]:
    """The `__slots__` that a program's classes add to our tensors, spelled as Python keeps them."""
    package = __name__.partition(".")[0]
    ours = next(base for base in cls.__mro__ if home_of(base).partition(".")[0] == package)
    if ours is cls:
        return set()
    named: Any = copyreg._slotnames  # type: ignore[attr-defined]  # as pickle asks: it knows private names
    added = {*named(cls)} - {*named(ours)}
    return {name for name in added if type(getattr(cls, name, None)) is MemberDescriptorType}


def slots(x: Tensor) -> dict[str, Any]:
    """What lies in the `__slots__` of a program's class of tensors, by name."""
    return {name: getattr(x, name) for name in slot_names(type(x)) if hasattr(x, name)}


class Retained:
    """A hook that keeps the gradient of a tensor that is not a leaf."""

    __slots__ = ("grad",)

    def __init__(self):
        self.grad: Tensor | None = None

    def __call__(self, grad: Tensor) -> None:
        self.grad = apart(grad) if self.grad is None else self.grad + grad


def apart(grad: Tensor) -> Tensor:
    """A gradient whose elements have a place each, so that it may be written: a copy where they share one."""
    if type(grad) is not Tensor or type(grad._data) is not np.ndarray:
        return grad
    data = grad._data
    return grad.contiguous() if any([s == 0 and n > 1 for s, n in zip(data.strides, data.shape)]) else grad


def retained(x: Tensor) -> Retained | None:
    """The hook that `retain_grad` put on `x`, if it did."""
    node = x._node
    hooks = node.hooks if node is not None else None
    for hook in (hooks or {}).get(x.output_nr, ()):
        if type(hook) is Retained:
            return hook
    return None


def keep_retained(x: Tensor, old: Edge | None) -> None:
    """Move what `retain_grad` hung on a tensor's old history to its new one: `.grad` is about the new."""
    index = old.index if type(old) is Port else 0
    hooks = (old.hooks or {}).get(index, []) if old is not None else []
    for hook in tuple(hooks):
        if type(hook) is Retained:
            hooks.remove(hook)
            now = x._edge
            if now is not None:
                hooks_of(now).setdefault(now.index if type(now) is Port else 0, []).append(hook)


def leaf(owner: Tensor) -> Leaf:
    made = new(Leaf)
    made.kind, made.grad, made.hooks, made.after, made.owner = owner._meta, None, None, None, Owner(owner)
    return made


def _shared(x: Tensor) -> Storage:
    """What another tensor over the memory of `x` has for a storage: the same, one memory having one count.

    Outside of inference mode it is an ordinary one, too, where `x` is a tensor of that mode.
    """
    found = x._storage
    if found is None:
        found = x._storage = Storage()
    elif type(found) is Inferred and not modes.local.inference:
        found = Apart(found)
    return found


def free(x: Tensor) -> np.ndarray:
    """A tensor's array, for one that knows of no view: NumPy guards what `expand` made also where nothing is
    repeated."""
    data = x._data
    if x._view is not None and isinstance(data, np.ndarray) and not data.flags.writeable:
        repeats = any([step == 0 and n > 1 for step, n in zip(data.strides, data.shape, strict=True)])
        if not repeats and data.base is not None and data.base.flags.writeable:
            data.flags.writeable = True
    return data


def wrap(data: np.ndarray, kind: Type) -> Tensor:
    """A tensor around an array that has exactly that type."""
    made = new(Tensor)
    made._data = data
    made._meta = kind
    made._edge = made._storage = made._view = None
    return made


def tensor_of(data: Any) -> Tensor:
    """A tensor around an array (not copied) or a number.  Raises DTypeError for unknown element types."""
    array = np.asarray(data)
    if type(data) is float or type(data) is complex:
        array = array.astype(dtypes.of_scalar(data).numpy)
    dtype = from_numpy_dtype(array.dtype)
    if dtype is None:
        known = ", ".join(d.name for d in dtypes.EVERY)
        raise DTypeError(f"no tensor holds NumPy's {array.dtype}", f"convert it to one of: {known}")
    if array.dtype != dtype.numpy:
        array = array.astype(dtype.numpy)  # the other byte order
    if CHANGED:
        modes.tell("made", array)
    return wrap(array, type_of(dtype, array.shape, CPU))
