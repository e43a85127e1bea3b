"""What tensors can do: every op as a method, Python's operators, in-place forms, hooks, and what indexing.py,
conversion.py, copying.py and shared_memory.py say.

Importing this module hangs them on `Tensor`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from itertools import count
from math import prod
from sys import getrefcount
from types import FunctionType
from typing import Any

import numpy as np

from ..ir.dtypes import category_at_least
from ..ir.errors import ArgumentError, DTypeError, GradError, ShapeError
from ..ir.op import COMPOSITES, REGISTRY, Op, on_entry
from ..ir.types import RANK
from ..ir.warned import warn
from . import autograd, changes, conversion, copying, indexing, modes, ops, shared_memory
from .calls import EAGER, eager, operator
from .changes import advance_objects, numbers
from .copying import _restored, _restored_nowhere  # noqa: F401 - earlier pickles name them here
from .dispatch import INSTEAD, lift
from .graph import hooks_of
from .history import storage_of
from .inplace import inplace, is_plain, reshaped_in_place
from .levels import Transformed
from .modes import CHANGED
from .overriding import OPEN, UNSERVED, answered
from .places import here
from .refusal import refusing
from .resolved import resolved
from .storage import ALONE
from .tensor import Retained, Tensor, retained, tensor_of

ndarray = np.ndarray


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
            setattr(Tensor, f"__i{spelled}__", inplace(op, spelled=True))
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
    if CHANGED or OPEN or type(self) is not Tensor or not self._edge is self._view is None:
        if OPEN or not is_plain(self):
            return False
    data = self._data
    if type(data) is not ndarray or not data.flags.carray or (value and data.dtype.kind != "f"):
        return False
    data.fill(value)
    store = self._storage or storage_of(self)
    store.version += 1
    if getrefcount(store) > ALONE:
        store.writer = "fill_", here()
    changes.contents = next(numbers)
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


def _write_part(part: Tensor, value: Any) -> None:
    """Write the real or the imaginary parts: x.real = value."""
    indexing.setitem(part, (), value)


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
        return _copy_from(self, found)

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


class RemovableHandle:
    """What registering a hook returns: `remove()` takes the hook away, as does leaving a `with` block.

    A program makes them of dicts of its own, where it enters a hook by `id`; extra_dict: another dict, or
    several, that have something by the same id.
    """

    def __init__(self, hooks_dict: MutableMapping[int, Any], *, extra_dict: Any = None):
        self.hooks, self.id = hooks_dict, next(_numbers)
        self._beside = [extra_dict] if isinstance(extra_dict, MutableMapping) else list(extra_dict or ())

    def within(self, hooks: MutableMapping[int, Any]) -> RemovableHandle:
        """The handle of the same hook in a copy of the hooks."""
        made = RemovableHandle(hooks)
        made.id = self.id
        return made

    def hooks_dict_ref(self) -> MutableMapping[int, Any]:
        """Where the hook is entered as long as it is not removed."""
        return self.hooks

    def remove(self) -> None:
        """Take the hook away; a second time does nothing."""
        for each in (self.hooks, *self._beside):
            each.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


_numbers = count()


class Handle(RemovableHandle):
    """The handle of a hook in a list: of a tensor, a node of history, an optimizer."""

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


# ---- written with ops --------------------------------------------------------------------------------------
def _turned(name: str, x: Tensor, most: int | None = None) -> Tensor:
    """The transpose of a matrix, or (without `most`) of several; a number is its own.  Raises ShapeError."""
    rank = x._meta.ndim
    if rank == 1 or (most is not None and rank > most):
        raise ShapeError(f"x.{name} is only supported on matrices, not on {rank} dimensions")
    return ops.transpose(x, -2, -1) if rank else x


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


def _where(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """The elements of this tensor where `condition` is true, those of `other` elsewhere."""
    return ops.where(condition, self, other)


def _is_same_size(self: Tensor, other: Tensor) -> bool:
    if self.is_nested is not other.is_nested:
        raise ArgumentError("is_same_size: Expected both self and other to be nested tensors.")
    return self.shape == other.shape


def install() -> None:
    """Hang everything on `Tensor`; done once, when the runtime is imported."""
    named = {
        "__lamina_op__": staticmethod(apply_op), "__pos__": lambda self: self,
        "zero_": _zero, "fill_": _fill, "copy_": _copy_from,
        "fill_diagonal_": _fill_diagonal,
        "polygamma": lambda self, n: ops.polygamma(n, self),
        "polygamma_": lambda self, n: _copy_from(self, ops.polygamma(n, self)),
        "where": _where, "backward": _backward,
        "register_hook": _register_hook, "retain_grad": _retain_grad,
        "register_post_accumulate_grad_hook": _register_after,
        "retains_grad": property(_retains_grad),
        "T": property(_reversed),
        "mT": property(lambda self: _turned("mT", self)),
        "mH": property(lambda self: ops.adjoint(self)),
        "H": property(lambda self: ops.conj(_turned("H", self, most=2))),
        "real": property(lambda self: ops.real(self), lambda self, value: _write_part(ops.real(self), value)),
        "imag": property(lambda self: ops.imag(self), lambda self, value: _write_part(ops.imag(self), value)),
        "is_same_size": _is_same_size,
        **indexing.METHODS, **conversion.METHODS, **copying.METHODS,
        **shared_memory.METHODS,
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
