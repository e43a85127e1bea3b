"""What tensors can do: every op as a method, Python's operators, indexing, conversion, in-place forms.

Importing this module hangs them on `Tensor`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from math import prod
from types import FunctionType
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.dtypes import DType, category_at_least
from ..ir.errors import (
    ArgumentError,
    ArgumentValueError,
    DeviceError,
    DimError,
    DTypeError,
    GradError,
    ShapeError,
)
from ..ir.op import COMPOSITES, REGISTRY, Op, on_entry
from ..ir.ops.create import fits
from ..ir.ops.getitem import as_tuple, split_index
from ..ir.types import CPU, RANK, Device, type_of
from ..ir.warned import warn
from . import autograd, modes, ops
from .calls import EAGER, eager, operator
from .changes import advance_objects
from .dispatch import INSTEAD, known_plan, lift, run
from .graph import hooks_of
from .history import record, storage_of
from .inplace import inplace, is_plain, reshaped_in_place
from .levels import Transformed
from .meta import META, NoValues, NoValuesError
from .meta import array as nothing
from .overriding import OPEN, UNSERVED, answered
from .places import here
from .plan import Plan, memo, remember
from .refusal import refusing
from .resolved import resolved
from .storage import Inferred
from .tensor import Parameter, Retained, Size, Tensor, fields, leaf, retained, retyped, tensor_of, wrap


# ---- ops and operators -------------------------------------------------------------------------------------
def apply_op(op: Op, args: tuple, kwargs: dict) -> Any:
    """What it means to apply an op to a tensor: run it now."""
    return (EAGER.get(op) or eager(op))(*args, **kwargs)


def _swapped(fast: Callable, name: str) -> Callable:
    def swapped(self, other):
        if isinstance(other, Tensor):
            return fast(other, self)
        if OPEN and (found := answered(swapped, (self, other), {})) is not UNSERVED:
            return found
        if not isinstance(other, (int, float, complex, np.generic, np.ndarray)):
            return NotImplemented
        return fast(lift(self._meta, other) if not isinstance(other, np.ndarray) else tensor_of(other), self)

    swapped.__name__ = swapped.__qualname__ = name
    return swapped


def _guarded(fast: Callable) -> Callable:
    """An operator that leaves foreign operands to their own class."""

    def guarded(self, other):
        if isinstance(other, (Tensor, int, float, complex, np.generic, np.ndarray)):
            return fast(self, other)
        if OPEN and (found := answered(guarded, (self, other), {})) is not UNSERVED:
            return found
        return NotImplemented

    return guarded


ARITHMETIC = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide",
    "mod": "remainder", "pow": "pow", "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
    "lshift": "bitwise_left_shift", "rshift": "bitwise_right_shift",
}  # fmt: skip
SIGNS = {"neg": "neg", "abs": "abs", "invert": "bitwise_not"}
COMPARISONS = {"lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "eq": "eq", "ne": "ne"}


def _install_operators() -> None:
    for spelled, name in ARITHMETIC.items():
        op = REGISTRY[name]
        fast = operator(op)
        setattr(Tensor, f"__{spelled}__", fast)
        setattr(Tensor, f"__r{spelled}__", _swapped(fast, f"__r{spelled}__"))
        if op.traits.inplace:
            setattr(Tensor, f"__i{spelled}__", inplace(op))
    for spelled, name in COMPARISONS.items():
        fast = operator(REGISTRY[name])
        setattr(Tensor, f"__{spelled}__", fast if spelled not in ("eq", "ne") else _guarded(fast))
    for spelled, name in SIGNS.items():
        setattr(Tensor, f"__{spelled}__", eager(REGISTRY[name]))
    Tensor.__matmul__ = operator(REGISTRY["matmul"])
    Tensor.__rmatmul__ = _swapped(operator(REGISTRY["matmul"]), "__rmatmul__")
    setattr(Tensor, "__rdiv__", Tensor.__rtruediv__)  # noqa: B010 - PyTorch's name beside it


def _offer(op: Op) -> None:
    """Make methods of an op: name, aliases, and where the record says so name_."""
    for spelled in (op.name, *op.aliases):
        if op.method and op.operands and not hasattr(Tensor, spelled):
            setattr(Tensor, spelled, ops.FUNCTIONS[spelled])
        if op.traits.inplace and not op.traits.view and not hasattr(Tensor, spelled + "_"):
            setattr(Tensor, spelled + "_", inplace(op))


def _install_methods() -> None:
    for op in REGISTRY.values():
        _offer(op)
    on_entry.append(_offer)
    for name, composite in COMPOSITES.items():
        function = ops.FUNCTIONS.get(name)
        if function is None:
            function = resolved(composite.function) if composite.by_type else composite.function
            function = refusing(function, name)
        for spelled in (name, *composite.aliases):
            if composite.method and not hasattr(Tensor, spelled):
                setattr(Tensor, spelled, function)
            if composite.inplace:
                setattr(Tensor, spelled + "_", refusing(_written(composite.function, spelled), spelled + "_"))


# In-place forms that PyTorch has as functions too.
AS_FUNCTIONS = (
    "abs_", "acos_", "acosh_", "addmv_", "arccos_", "arccosh_", "arcsin_", "arcsinh_", "arctan_", "arctanh_",
    "as_strided_", "asin_", "asinh_", "atan_", "atanh_", "ceil_", "celu_", "clamp_", "clamp_max_",
    "clamp_min_", "clip_", "cos_", "cosh_", "deg2rad_", "detach_", "erf_", "erfc_", "exp2_", "exp_", "expm1_",
    "fill_", "fix_", "floor_", "frac_", "gcd_", "i0_", "index_put_", "lcm_", "ldexp_", "log10_", "log1p_",
    "log2_", "log_", "logit_", "nan_to_num_", "neg_", "negative_", "rad2deg_", "reciprocal_", "relu_",
    "round_", "rsqrt_", "selu_", "sigmoid_", "sin_", "sinc_", "sinh_", "sqrt_", "square_", "tan_", "tanh_",
    "threshold_", "trunc_", "xlogy_", "zero_",
)  # fmt: skip


def _install_functions() -> None:
    for name in AS_FUNCTIONS:
        ops.publish(getattr(Tensor, name), name)


def _install_views() -> None:
    for name in ("as_strided", "squeeze", "unsqueeze", "t", "transpose", "swapaxes", "swapdims"):
        setattr(Tensor, name + "_", refusing(reshaped_in_place(ops.FUNCTIONS[name], name + "_"), name + "_"))


_fill_with, _copy_from = inplace(REGISTRY["fill"]), inplace(REGISTRY["copy"])


# ---- indexing ----------------------------------------------------------------------------------------------
class NotBasic(Exception):
    """An item that is no int, slice, None or Ellipsis."""


def _key(item: Any) -> Any:
    """An item of an index as something that can be hashed.  Raises NotBasic."""
    kind = type(item)
    if kind is slice:
        return ("slice", item.start, item.stop, item.step)
    if kind is int or item is None or item is Ellipsis:
        return item
    raise NotBasic


def _basic_key(index: Any) -> tuple:
    """An index of ints, slices, None and Ellipsis as something that can be hashed.  Raises NotBasic."""
    items = index if type(index) is tuple else (index,)
    return tuple([item if type(item) is int else _key(item) for item in items])


_basic_index = eager(REGISTRY["basic_index"])
_setitem_of_any = ops.FUNCTIONS["setitem_"]
_getitem_of_any = refusing(COMPOSITES["getitem"].function, "x[index]")


def _getitem(self: Tensor, index: Any) -> Tensor:
    """Part of the tensor: a view for ints, 0-d integer tensors, slices, None and Ellipsis, else a copy."""
    if OPEN and (found := answered(_getitem, (self, index), {})) is not UNSERVED:
        return found
    kind = type(index)
    if kind is slice:
        return _basic_index(self, (("slice", index.start, index.stop, index.step),))
    if kind is int:
        if not self._meta.ndim:
            raise DimError("invalid index of a 0-dim tensor", "x.item() gives its value as a number")
        return _basic_index(self, index)
    if kind is tuple:
        try:
            return _basic_index(self, _basic_key(index))
        except NotBasic:
            pass
    if kind is Tensor:
        found = (_at_mask if index._meta.dtype is dtypes.bool_ else _at_rows)(self, index)
        if found is not None:
            return found
    if kind is list:
        index = as_tuple(index)
    if (found := _at_points(self, index if type(index) is tuple else (index,))) is not None:
        return found
    return _getitem_of_any(self, index)


def _at_mask(self: Tensor, mask: Tensor) -> Tensor | None:
    """What a mask selects, without the ops that tell others how; None where somebody wants to know."""
    held, places = self._data, mask._data
    if modes.CHANGED and modes.local.watched or type(self) not in PLAIN or type(held) is not np.ndarray:
        return None
    if type(places) is not np.ndarray or not 0 < places.ndim <= held.ndim:
        return None
    if held.shape[: places.ndim] != places.shape:
        return None
    found = held[places]
    made = wrap(found, type_of(self._meta.dtype, found.shape, self._meta.device))
    if not modes.is_grad_enabled():
        if modes.local.inference:
            made._storage = Inferred()
    elif self._node is not None:  # the history is that of an index by places
        kept = places.nonzero()
        kind = type_of(dtypes.int64, kept[0].shape)
        operands = (self, *[wrap(each, kind) for each in kept])
        attrs = {"dims": tuple(range(len(kept))), "shape": self._meta.shape}
        record(known_plan(_INDEX, operands, attrs), operands, (made,), (found,))
    return made


def _at_rows(self: Tensor, rows: Tensor) -> Tensor | None:
    """What one tensor of integers picks of the first dimension; None where somebody wants to know how."""
    kind, picks = self._meta, rows._meta
    if type(self) not in PLAIN or (modes.CHANGED and modes.local.watched) or not kind.ndim or not picks.ndim:
        return None
    plan = _row_plans.get((kind, picks))
    if plan is None:
        if picks.dtype is not dtypes.int64 or kind.device is not CPU or picks.device is not CPU:
            return None
        plan = known_plan(_INDEX, (self, rows), {"dims": (0,), "shape": kind.shape})
        remember(_row_plans, (kind, picks), plan)
    return run(_INDEX, plan, (self, rows))


_INDEX = REGISTRY["index"]
_row_plans: dict[tuple, Plan] = memo()


PLAIN = (Tensor, Parameter)


def _at_points(self: Tensor, index: tuple) -> Tensor | None:
    """The view at places that 0-d integer tensors tell, beside basic items; None where other tensors stand.

    A graph can't take a view at a place that is known late: who hears of ops is told that it was picked, and
    that it is a view.
    """
    if modes.CHANGED and modes.local.levels:
        return None
    key, points = [], 0
    for item in index:
        if not isinstance(item, Tensor):
            try:
                key.append(_key(item))
            except NotBasic:
                return None
        elif item._meta.ndim or item._meta.dtype.category != "int" or item._meta.dtype is dtypes.uint8:
            return None
        elif type(item._data) is NoValues:
            return None
        else:
            points += 1
            key.append(int(item._data))
    if not points:
        return None
    if not modes.CHANGED or modes.local.hook is None:
        return _basic_index(self, tuple(key))
    part, picks = split_index(self, index)
    places = tuple([("slice", None, None, None) if pick is None else int(pick._data) for pick in picks])
    with modes.unheard():
        found = _basic_index(part, places)
    dims = tuple([d for d, pick in enumerate(picks) if pick is not None])
    op, attrs = REGISTRY["index"], {"dims": dims, "shape": part._meta.shape}
    operands = (part, *[picks[d] for d in dims])
    if found._edge is not None:  # its gradient must be told the places, too
        found._edge = None
        record(known_plan(op, operands, attrs), operands, (found,), (found._data,))
    modes.local.hook(op, attrs, operands, (found,))
    modes.tell("picked", part, found)
    return found


def _assigned(self: Tensor, index: Any, value: Tensor) -> bool:
    """Assign as NumPy does, which it does alike for what is tested here; say whether it was done."""
    data, given = self._data, value._data
    if value._meta.dtype is not self._meta.dtype or given.base is not None:
        return False
    flags = data.flags
    if not flags.c_contiguous or not flags.writeable:
        return False
    if type(index) is Tensor:
        kind = index._meta
        if data.base is not None or given is data or not is_plain(index):
            return False
        if kind.dtype is dtypes.bool_:
            if kind.shape != self._meta.shape or value._meta.ndim:
                return False
        elif kind.dtype is not dtypes.int64 or value._meta.ndim > kind.ndim + self._meta.ndim - 1:
            return False
        try:
            data[index._data] = given
        except (IndexError, ValueError):  # before anything is written
            return False
    else:
        for item in index if type(index) is tuple else (index,):
            if type(item) is slice:
                if item.step is not None or type(item.start) not in _BOUNDS or type(item.stop) not in _BOUNDS:
                    return False
            elif type(item) is not int:
                return False
        try:
            part = data[(*index, ...) if type(index) is tuple else (index, ...)]
        except IndexError:
            return False
        if part.shape != given.shape and given.ndim:
            return False
        part[...] = given
    storage_of(self).written(("copy_", here()))
    return True


_BOUNDS = frozenset((int, type(None)))


def _setitem(self: Tensor, index: Any, value: Any) -> None:
    """Write `value`, broadcast and cast, into part of the tensor."""
    if OPEN and (found := answered(_setitem, (self, index, value), {})) is not UNSERVED:
        return found
    if not isinstance(value, Tensor):
        if isinstance(value, (int, float, complex)):
            if isinstance(value, complex) or not self._meta.dtype.inexact:
                fits("x[index] = value", value, self._meta.dtype)
            value = lift(self._meta, value)
        else:
            value = tensor_of(np.asarray(value, self._meta.dtype.numpy))
    kind = type(index)
    if is_plain(self) and is_plain(value) and _assigned(self, index, value):
        return
    if (kind is int and self._meta.ndim) or kind is slice or kind is tuple:
        try:
            part = _basic_index(self, index if kind is int else _basic_key(index))
        except NotBasic:
            pass
        else:
            if value._meta.shape == part._meta.shape or not value._meta.ndim:  # others may not fit
                _copy_from(part, value)
                return
    _setitem_of_any(self, as_tuple(index) if kind is list else index, value)


def _delitem(self: Tensor, index: Any) -> None:
    raise ArgumentError("a tensor does not support deletion of items", "cat the parts that shall stay")


def _iterate(self: Tensor) -> Iterator[Tensor]:
    if not self._meta.ndim:
        raise ArgumentError("a 0-d tensor can't be iterated over", "x.item() gives its value as a number")
    plain = type(self) is Tensor and type(self._data) is np.ndarray and not modes.CHANGED
    if plain and self._meta.shape[0] >= MANY and self._node is None:
        return _rows(self)
    return iter(ops.unbind(self, 0))


MANY = 32  # rows from which on a call of an op for each, with a plan of its own, is what iterating takes


def _rows(self: Tensor) -> Iterator[Tensor]:
    """What `unbind` gives, a row at a time, of a tensor without history: views by the first one's step."""
    yield (first := ops.select(self, 0, 0))
    base, (*before, (name, attrs)), history = first._view
    (_, *rest), kind, data, storage = dict(attrs)["index"], first._meta, self._data, first._storage
    for i in range(1, self._meta.shape[0]):
        row = wrap(data[i, ...], kind)
        row._storage, row._view = (
            storage,
            (base, (*before, (name, (("index", (("int", i), *rest)),))), history),
        )
        yield row


def _backwards(self: Tensor) -> Tensor:
    return ops.flip(self, 0) if self._meta.shape else self


def _contains(self: Tensor, value: Any) -> bool:
    if isinstance(value, (Tensor, int, float)):
        return bool((self == value).any())
    raise ArgumentError(f"Tensor.__contains__ only supports Tensor or scalar, not {type(value).__name__}")


# ---- to Python and NumPy -----------------------------------------------------------------------------------
def _item(self: Tensor) -> bool | int | float | complex:
    """The value of a tensor of one element, as a number.  Raises GradError (a RuntimeError) otherwise."""
    if self._data.size != 1:
        raise GradError(
            f"item(): the tensor has {self._data.size} elements, not one", f"tensor: {self._meta}"
        )
    value = number_in(self._data)
    if modes.CHANGED:
        modes.tell("escape", self, "item", value)
    return value


def number_in(data: np.ndarray) -> Any:
    """The one element of an array, as a number."""
    value = data.item()
    return value if isinstance(value, (bool, int, float, complex)) else float(value)  # as bfloat16's


def _tolist(self: Tensor) -> Any:
    """Nested lists of Python numbers."""
    data = self._data
    # NumPy's own types are of Python's kinds; of others, those of ml_dtypes, lists would hold their scalars
    found = data.tolist() if data.dtype.isbuiltin == 1 else data.astype(np.float32).tolist()
    if modes.CHANGED:
        modes.tell("escape", self, "tolist", found)
    return found


def _turned(name: str, x: Tensor, most: int | None = None) -> Tensor:
    """The transpose of a matrix, or (without `most`) of several; a number is its own.  Raises ShapeError."""
    rank = x._meta.ndim
    if rank == 1 or (most is not None and rank > most):
        raise ShapeError(f"x.{name} is only supported on matrices, not on {rank} dimensions")
    return ops.transpose(x, -2, -1) if rank else x


def _truth(self: Tensor) -> bool:
    if self._data.size != 1:
        several = "more than one value" if self._data.size else "no values"
        raise ShapeError(
            f"Boolean value of Tensor with {several} is ambiguous: it has {self._data.size} elements",
            f"tensor: {self._meta}",
            "use x.any() or x.all()",
        )
    found = bool(self._data.reshape(())[()])
    if modes.CHANGED:
        modes.tell("escape", self, "bool", found)
    return found


def _number(kind: type) -> Callable:
    def convert(self):
        if self._data.size != 1:
            raise ArgumentValueError(
                f"{kind.__name__}(x): x has {self._data.size} elements, not one", f"x: {self._meta}"
            )
        number = number_in(self._data)
        if isinstance(number, complex) and kind is not complex:
            if number.imag:
                raise ArgumentValueError(
                    f"{kind.__name__}(x): {number} is no real number", f"x: {self._meta}"
                )
            number = number.real
        value = kind(number)
        if modes.CHANGED:
            modes.tell("escape", self, kind.__name__, value)
        return value

    return convert


def _index(self: Tensor) -> int:
    if self._meta.dtype.inexact or self._data.size != 1:
        raise ArgumentError(f"only an integer tensor of one element can be an index, not {self._meta}")
    value = int(number_in(self._data))
    if modes.CHANGED:
        modes.tell("escape", self, "int", value)
    return value


def _numpy(self: Tensor, *, force: bool = False) -> np.ndarray:
    """The values as an array that shares this tensor's memory.

    Raises GradError if it requires gradients, but under no_grad().

    force: a copy-free detached array even then.
    """
    if self._node is not None and not force and modes.is_grad_enabled():
        raise GradError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            "an array can't follow gradients: use x.detach().numpy()",
        )
    if type(self._data) is NoValues:
        raise NoValuesError("numpy(): a tensor on the meta device has no values", f"tensor: {self._meta}")
    if modes.CHANGED:
        modes.tell("refuse", "numpy() handed out a tensor's memory")
    storage_of(self).expose()
    return self._data


def _array(self: Tensor, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    data = _numpy(self)
    if copy is False and dtype is not None and data.dtype != dtype:
        raise ArgumentValueError(f"an array of {dtype} can't share the memory of {self._meta}")
    return np.array(data, dtype=dtype, copy=copy)


# ---- conversion --------------------------------------------------------------------------------------------
_cast = eager(REGISTRY["cast"])


def _to(
    self: Tensor, *args: Any, dtype=None, device=None, non_blocking=False, copy=False, memory_format=None
) -> Tensor:
    """The tensor in another dtype and on another device; itself where nothing changes.

    Spelled x.to(dtype), x.to(device), x.to(device, dtype), x.to(other); non_blocking and copy may follow by
    their places.  Raises DeviceError, ArgumentError.
    """
    if len(args) == 1 and type(args[0]) is DType and dtype is device is None and copy is False:
        return self if args[0] is self._meta.dtype else _cast(self, dtype=args[0])
    flags = [arg for arg in args if isinstance(arg, bool)]
    if len(flags) > 2:
        raise ArgumentError(f"to(…): takes non_blocking and copy by their places, not {len(flags)} flags")
    copy = flags[1] if len(flags) == 2 else copy
    for arg in args:
        if isinstance(arg, (DType, type)):
            dtype = arg
        elif isinstance(arg, str) and arg in dtypes.NAMES:
            raise ArgumentError(f"to({arg!r}): a dtype is no string", f"lamina.{arg} is that dtype")
        elif isinstance(arg, (str, Device)):
            device = arg
        elif isinstance(arg, Tensor):
            dtype, device = arg._meta.dtype, arg._meta.device
        elif arg is not None and not isinstance(arg, bool):
            raise ArgumentError(f"to(…): takes a dtype, a device or a tensor, not {type(arg).__name__}")
    place = device_of(device)
    if isinstance(dtype, type):
        dtype = dtypes.as_dtype(dtype) or dtype
    if place is not None and place != self._meta.device:
        return _moved(self, place, dtype or self._meta.dtype)
    if dtype is not None and dtype is not self._meta.dtype:
        return _cast(self, dtype=dtype)
    return ops.clone(self) if copy else self


def device_of(device: Any) -> Device | None:
    """The device that is asked for, one that is there: the CPU or META.  Raises DeviceError."""
    if device is None:
        return None
    place = Device(device)
    if place.type == "meta":
        return META
    require_cpu(place)
    return CPU


def wanted_device(device: Any) -> Device:
    """The device for a new tensor: the one that is asked for, else this thread's.  Raises DeviceError."""
    if device is None:
        return (modes.local.device if modes.CHANGED else None) or CPU
    return device_of(device) or CPU


def _moved(self: Tensor, place: Device, dtype: DType) -> Tensor:
    """The tensor on another device: from the CPU to the meta device, as there is no way back."""
    if place != META:
        raise NoValuesError("to(device): a tensor on the meta device has no values to copy", f"{self._meta}")
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was moved to the meta device")
    kind = type_of(dtype, self._meta.shape, META)
    return wrap(nothing(kind), kind)


def require_cpu(device: Any) -> None:
    """Refuse a device that is not there.  Raises DeviceError."""
    if device is not None and Device(device) != CPU and Device(device).type != "cpu":
        raise DeviceError(f"there is no device {Device(device)} here", "use device='cpu'")


def _where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """The elements of this tensor where `condition` is true, those of `other` elsewhere."""
    return ops.where(condition, self, other)


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """PyTorch's name of the type, "torch.FloatTensor", or the tensor cast to `dtype`.

    That may be spelled as such a name, too, or as its class.  Raises ArgumentValueError for no type's name.
    """
    if dtype is None:
        return _type_name(self._meta.dtype)
    if isinstance(dtype, str):
        dtype = next((d for d in dtypes.ALL if _type_name(d) == dtype), None)
        if dtype is None:
            raise ArgumentValueError('type(dtype): invalid type; names are like "torch.FloatTensor"')
    return _to(self, getattr(dtype, "dtype", dtype))


def _type_name(dtype: DType) -> str:
    return f"torch.{_OF_TYPE.get(dtype.name) or dtype.name.capitalize().replace('Uint', 'UInt')}Tensor"


_OF_TYPE = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16",
    "complex64": "ComplexFloat", "complex128": "ComplexDouble",
    "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte",
}  # fmt: skip


def _view_as_dtype(self: Tensor, args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
    """x.view(dtype): the same bytes as another dtype.  None for a view of another shape, which is an op."""
    dtype = kwargs.get("dtype", args[0] if args else None)
    return _view_of_bytes(self, dtype) if len(args) + len(kwargs) == 1 and isinstance(dtype, DType) else None


INSTEAD["view"] = _view_as_dtype


def _check_bytes(x: Tensor, dtype: DType) -> None:
    """Refuse to read bytes as elements of another size that they don't make.  Raises ShapeError."""
    if not x._meta.ndim:
        raise ShapeError(f"view({dtype}): self.dim() cannot be 0, as the elements are of another size")
    if x.stride(-1) != 1:
        raise ShapeError(
            f"view({dtype}): self.stride(-1) must be 1, so that the bytes of a row have no gaps",
            f"tensor: {x._meta}, strides {x.stride()}",
            "x.contiguous() has none",
        )
    ratio = dtype.itemsize // x._meta.dtype.itemsize
    if ratio < 2:
        return
    counts: dict[str, Any] = {"size(-1)": x._meta.shape[-1], "storage_offset()": x.storage_offset()}
    counts |= {f"stride({d})": x.stride(d) for d in range(x._meta.ndim - 1)}
    for name, count in counts.items():
        if count % ratio:
            raise ShapeError(
                f"view({dtype}): self.{name} must be divisible by {ratio}, and is {count}: an element of "
                f"{dtype.name} is {ratio} of {x._meta.dtype.name}"
            )


def _view_of_bytes(self: Tensor, dtype: DType) -> Tensor:
    """The bytes read as another dtype; one of another size makes the last dimension longer or shorter.

    It has no history, and sees writes and is seen by them.  Raises ShapeError where the bytes of a row don't
    make whole elements, or don't lie side by side.
    """
    if modes.CHANGED:
        modes.tell("refuse", f"view({dtype}) read a tensor's bytes as another type")
    if dtype.itemsize != self._meta.dtype.itemsize:
        _check_bytes(self, dtype)
    try:
        data = self._data.view(dtype.numpy)
    except ValueError as error:
        raise ShapeError(f"view({dtype}): {error}", f"tensor: {self._meta}") from None
    made = wrap(data, type_of(dtype, data.shape, self._meta.device))
    made._storage = storage_of(self)
    return made


# ---- in place, by hand -------------------------------------------------------------------------------------
def _zero(self: Tensor) -> Tensor:
    """Set every element to zero."""
    return self if _fill_plain(self, 0) else _fill_with(self, 0)


def _fill_diagonal(self: Tensor, fill_value: int | float | bool, wrap: bool = False) -> Tensor:
    """Write a number to the places whose indices are all equal; `wrap`: in a tall matrix again and again.

    Raises ShapeError for fewer than two dimensions, or more than two that are not of one size.
    """
    shape = self._meta.shape
    if len(shape) < 2 or (len(shape) > 2 and len(set(shape)) > 1):
        raise ShapeError(
            "fill_diagonal_: takes a matrix, or more dimensions of one size", f"tensor: {self._meta}"
        )
    step = sum(prod(shape[d + 1 :]) for d in range(len(shape)))
    length = len(range(0, prod(shape), step)) if wrap and len(shape) == 2 else min(shape)
    places = np.unravel_index(np.arange(length) * step, shape)
    ops.FUNCTIONS["setitem_"](self, tuple(map(tensor_of, places)), lift(self._meta, fill_value))
    return self


def _fill(self: Tensor, value: Any) -> Tensor:
    """Set every element to `value`, a number or a 0-d tensor, which gets the sum of the gradients."""
    if type(value) is float and _fill_plain(self, value):
        return self
    if _followed(value):
        return _copy_from(self, value)
    return _fill_with(self, value)


def _fill_plain(self: Tensor, value: float) -> bool:
    """Fill a tensor that is no more than its memory, with 0 or, of floats, any number; say whether."""
    if OPEN or not is_plain(self):
        return False
    data = self._data
    flags, kind = data.flags, data.dtype.kind
    if not flags.c_contiguous or not flags.writeable or (kind != "f" and (value or kind not in "iub")):
        return False
    data.fill(value)
    storage_of(self).written(("fill_", here()))
    return True


def _followed(value: Any) -> bool:
    """Whether a value to fill with has a gradient or varies.  Raises ShapeError for several elements."""
    if not isinstance(value, Tensor) or (value._node is None and not isinstance(value, Transformed)):
        return False
    if value._meta.ndim:
        raise ShapeError("fill(value): value must be 0-d", f"value: {value._meta}")
    return True


def _filled(input: Any, args: tuple, kwargs: dict[str, Any]) -> Tensor | None:
    value = args[0] if args else kwargs.get("value")
    return ops.FUNCTIONS["copy"](input, value) if _followed(value) else None


INSTEAD["fill"] = _filled


def _copy(self: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Write the values of `src`, broadcast and cast, into this tensor."""
    return _copy_from(self, src)


def _write_part(part: Tensor, value: Any) -> None:
    """Write the real or the imaginary parts: x.real = value."""
    _setitem(part, (), value)


def _written(function: Callable, name: str) -> Callable:
    """The method name_ of a function that is written with ops."""

    def apply(self, *args, **kwargs):
        # What the gradient saves must not be what is written now.
        followed = any(isinstance(x, Tensor) and x.requires_grad for x in (self, *args, *kwargs.values()))
        found = function(ops.clone(self) if followed else self, *args, **kwargs)
        if not category_at_least(self._meta.dtype, found._meta.dtype.category):
            raise DTypeError(
                f"{name}_: a result of {found._meta.dtype} can't be cast to {self._meta.dtype}, "
                "the dtype written",
                f"written: {self._meta}",
                f"write y = {name}(…) to get a new tensor",
            )
        return _copy(self, found)

    apply.__name__ = apply.__qualname__ = name + "_"
    apply.__doc__ = f"Write the result of `{name}` into this tensor.\n\n{function.__doc__ or ''}"
    vars(apply).update(vars(function))
    return apply


# ---- gradients ---------------------------------------------------------------------------------------------
def _backward(self: Tensor, gradient=None, retain_graph=None, create_graph=False, inputs=None) -> None:
    """Add this tensor's gradients into the `.grad` of the leaves it came from.

    gradient: the cotangent to start with; may be missing for one element.  Raises GradError, InplaceError.
    """
    autograd.backward(self, gradient, retain_graph, create_graph, inputs)


class Handle:
    """What registering a hook returns; `remove()` takes the hook away again."""

    def __init__(self, hooks: list[Callable], hook: Callable):
        self._hooks, self._hook = hooks, hook

    def remove(self) -> None:
        if self._hook in self._hooks:
            self._hooks.remove(self._hook)
            hooks_changed()

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


hooks_hung = 0  # how often a hook was, or was taken away: as long as it is the same, all leaves have theirs


def hooks_changed() -> None:
    """Note that a hook was hung on history, or taken away."""
    global hooks_hung
    hooks_hung += 1
    advance_objects()


def hooked(name: str) -> None:
    """Note that a hook was hung on history."""
    hooks_changed()
    if modes.CHANGED:
        modes.tell("foreign", f"a {name} hook on a tensor")


def _register_hook(self: Tensor, hook: Callable) -> Handle:
    """Call `hook(gradient)` when this tensor's gradient is known; what it returns replaces the gradient."""
    node = self._node
    if node is None:
        raise GradError("register_hook: the tensor does not require gradients", f"tensor: {self._meta}")
    hooks = hooks_of(node).setdefault(self.output_nr, [])
    hooks.append(hook)
    hooked(type(hook).__name__)
    return Handle(hooks, hook)


def _register_after(self: Tensor, hook: Callable) -> Handle:
    """Call `hook(tensor)` after a gradient was added into this leaf's `.grad`."""
    node = self._node
    if node is None or not self.is_leaf:
        raise GradError(
            "post accumulate grad hooks cannot be registered on non-leaf tensors, nor without requires_grad",
            f"tensor: {self._meta}",
        )
    if node.after is None:
        node.after = []
    node.after.append(hook)
    hooked(type(hook).__name__)
    return Handle(node.after, hook)


def _retains_grad(self: Tensor) -> bool:
    """Whether backward leaves its gradient with it, though it is no leaf."""
    found = retained(self) is not None
    if modes.CHANGED:
        modes.tell("asked", self, "retains_grad", found)
    return found


def _retain_grad(self: Tensor) -> None:
    """Keep this tensor's gradient in `.grad` though it is no leaf."""
    if self._node is None:
        raise GradError("retain_grad: the tensor does not require gradients", f"tensor: {self._meta}")
    if not self.is_leaf and retained(self) is None:
        _register_hook(self, Retained())


# ---- copies ------------------------------------------------------------------------------------------------
def _is_same_size(self: Tensor, other: Tensor) -> bool:
    if self.is_nested is not other.is_nested:
        raise ArgumentError("is_same_size: Expected both self and other to be nested tensors.")
    return self.shape == other.shape


def _deepcopy(self: Tensor, memo: dict) -> Tensor:
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was deep-copied")
    if not self.is_leaf:
        raise GradError("only leaves can be deep-copied", f"tensor: {self._meta}", "use x.detach().clone()")
    if id(self) in memo:
        return memo[id(self)]
    data = wrap(self._data.copy(), self._meta)
    if issubclass(type(self), Parameter):  # as PyTorch's: without its gradient, and without what hangs on it
        memo[id(self)] = made = type(self)(data, self.requires_grad)
        return made
    memo[id(self)] = made = retyped(data, type(self))
    if self._node is not None:
        made._node = leaf(made)
    if self.grad is not None:
        made.grad = deepcopy(self.grad.detach(), memo)
    if fields(self):
        vars(made).update(deepcopy(fields(self), memo))
    return made


def _reduce(self: Tensor, protocol: int) -> tuple:
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was pickled")
    if issubclass(type(self), Parameter):
        return self.__reduce__()  # type: ignore[return-value]
    data = self._data
    if type(data) is NoValues:
        return (_restored_nowhere, (self._meta, self.requires_grad))
    raw = (data.tobytes(), self._meta.dtype.name, data.shape)
    kind = () if type(self) is Tensor else (type(self),)
    made = _restored, (*raw, self.requires_grad, *kind)
    return (*made, fields(self)) if fields(self) else made


def _restored(raw: bytes, dtype: str, shape: tuple, requires_grad: bool, cls: type = Tensor) -> Tensor:
    array = np.frombuffer(bytearray(raw), dtypes.dtype_named(dtype).numpy).reshape(shape)
    made = retyped(tensor_of(array), cls)
    return made.requires_grad_() if requires_grad else made


def _restored_nowhere(kind: Any, requires_grad: bool) -> Tensor:
    made = wrap(nothing(kind), kind)
    return made.requires_grad_() if requires_grad else made


def _copy_object(self: Tensor) -> Tensor:
    """Another tensor over the same memory, with the same attributes."""
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was copied by copy.copy")
    made = retyped(self.detach(), type(self))
    if self._node is not None:
        made.requires_grad_()
    vars(made).update(fields(self))
    return made


def _module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What `load_state_dict` swaps with this parameter or buffer for `other`, which the state has.

    Neither of the two: here, with the state's values, or `other` itself.  Asked under
    `__future__.set_swap_module_params_on_conversion(True)`; classes may answer otherwise.
    """
    return other.detach() if assign else self.copy_(other).detach()


def _cpu(self: Tensor) -> Tensor:
    """The tensor on the CPU: itself.  Raises NoValuesError for one on the meta device."""
    return _to(self, CPU) if self._meta.device is not CPU else self


def _cuda(self: Tensor, device: Any = None) -> Tensor:
    """The tensor on a CUDA device.  Raises DeviceError where there is none."""
    require_cpu("cuda" if device is None else device)
    return self


_REVERSED = tuple(tuple(range(n))[::-1] for n in range(RANK + 1))
_permute = eager(REGISTRY["permute"])


def _reversed(self: Tensor) -> Tensor:
    """The tensor with its dimensions in reverse order."""
    if self._meta.ndim != 2:
        warn(
            "The use of `x.T` on tensors of dimension other than 2 is deprecated; x.mT transposes matrices, "
            "x.permute(*range(x.ndim)[::-1]) reverses all dimensions",
            UserWarning,
            stacklevel=2,
        )
    return _permute(self, _REVERSED[self._meta.ndim])


def install() -> None:
    """Hang everything on `Tensor`; done once, when the runtime is imported."""
    named = {
        "__lamina_op__": staticmethod(apply_op), "__pos__": lambda self: self,
        "__getitem__": _getitem, "__setitem__": _setitem, "__delitem__": _delitem,
        "__iter__": _iterate, "__reversed__": _backwards, "__contains__": _contains,
        "item": _item, "tolist": _tolist, "__bool__": _truth, "__int__": _number(int),
        "__float__": _number(float), "__complex__": _number(complex), "__index__": _index,
        "numpy": _numpy, "__array__": _array, "to": _to,
        "type": _type, "zero_": _zero, "fill_": _fill, "copy_": _copy,
        "fill_diagonal_": _fill_diagonal,
        "polygamma": lambda self, n: ops.polygamma(n, self),
        "polygamma_": lambda self, n: _copy(self, ops.polygamma(n, self)),
        "where": _where, "backward": _backward,
        "register_hook": _register_hook, "retain_grad": _retain_grad,
        "register_post_accumulate_grad_hook": _register_after, "__deepcopy__": _deepcopy,
        "__reduce_ex__": _reduce, "__copy__": _copy_object, "cpu": _cpu, "cuda": _cuda,
        "retains_grad": property(_retains_grad),
        "T": property(_reversed),
        "mT": property(lambda self: _turned("mT", self)),
        "mH": property(lambda self: ops.adjoint(self)),
        "H": property(lambda self: ops.conj(_turned("H", self, most=2))),
        "real": property(lambda self: ops.real(self), lambda self, value: _write_part(ops.real(self), value)),
        "imag": property(lambda self: ops.imag(self), lambda self, value: _write_part(ops.imag(self), value)),
        "type_as": lambda self, other: _to(self, other._meta.dtype),
        "is_nonzero": lambda self: _truth(self), "is_pinned": lambda self, device=None: False,
        "module_load": _module_load,
        "is_same_size": _is_same_size,
    }  # fmt: skip
    for name, method in named.items():
        takes_more = type(method) is FunctionType and method.__code__.co_argcount > 1
        plain = not takes_more or name in ("__getitem__", "__deepcopy__", "__reduce_ex__", "__array__")
        setattr(Tensor, name, method if plain else refusing(method, name))
    for name in ("size", "stride", "element_size", "requires_grad_", "detach_"):
        method = vars(Tensor).get(name)
        if type(method) is FunctionType and method.__code__.co_argcount > 1:
            setattr(Tensor, name, refusing(method, name))
    _install_operators()
    _install_views()
    _install_methods()
    _install_functions()


install()

__all__ = ["Handle", "Size", "install", "require_cpu"]
