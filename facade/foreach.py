"""Answer `torch._foreach_add` and its kin: an op of each of many tensors, for libraries' optimizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor

_UNARY = (
    "abs",
    "acos",
    "asin",
    "atan",
    "ceil",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "expm1",
    "floor",
    "frac",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "neg",
    "reciprocal",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
)
_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "pow", "clamp_max", "clamp_min", "lerp")
_TERNARY = ("addcdiv", "addcmul")
# what PyTorch's forms of these call the arguments after the list, in the order in which they come
_NAMED = (
    *("tensors1", "tensor1", "tensor2", "other", "tensor", "src", "exponent", "scalar", "scalars"),
    *("weight", "weights", "value"),
)


def _each(name: str, method: Callable) -> Callable:
    """A function of lists of tensors that calls a method of each: what is no list holds for all of them."""

    def foreach(self: Sequence[Tensor], *others: Any, **named: Any) -> Any:
        n = len(self)
        others += tuple([named.pop(word) for word in _NAMED if word in named])
        for x in others:
            if isinstance(x, (list, tuple)) and len(x) != n:
                raise ArgumentValueError(
                    f"_foreach_{name}: Tensor lists must have the same number of tensors, got {n} and "
                    f"{len(x)}"
                )
        columns = [x if isinstance(x, (list, tuple)) else [x] * n for x in others]
        made = [method(x, *rest, **named) for x, *rest in zip(self, *columns, strict=True)]
        return None if name.endswith("_") else made

    foreach.__name__ = foreach.__qualname__ = f"_foreach_{name}"
    foreach.__doc__ = f"`{name}` of each tensor of a list, with numbers, a tensor, or lists beside it."
    return foreach


def _bound(name: str) -> Callable:
    """maximum and its kin take numbers here, as `clamp` does."""
    lower = name in ("maximum", "clamp_min")

    def bound(x: Tensor, other: Any) -> Tensor:
        return x.clamp(min=other) if lower else x.clamp(max=other)

    return bound


def _into(function: Callable) -> Callable:
    def write(x: Tensor, *others: Any, **named: Any) -> Tensor:
        return x.copy_(function(x, *others, **named))

    return write


def _ternary(method: Callable) -> Callable:
    def call(x: Tensor, first: Any, second: Any, value: Any = 1) -> Tensor:
        return method(x, first, second, value=value)

    return call


def _norm(x: Tensor, ord: Any = 2, dtype: Any = None) -> Tensor:
    return x.norm(ord, dtype=dtype)


_functions: dict[str, Callable] = {}
for _name in (*_UNARY, *_BINARY, *_TERNARY):
    _method = _bound(_name) if _name in ("maximum", "minimum", "clamp_max", "clamp_min") else None
    _functions[_name] = _method or getattr(Tensor, _name)
    _functions[f"{_name}_"] = _into(_method) if _method else getattr(Tensor, f"{_name}_")
    if _name in _TERNARY:
        for _form in (_name, f"{_name}_"):
            _functions[_form] = _ternary(getattr(Tensor, _form))
_functions |= {"norm": _norm, "max": vars(Tensor)["amax"]}
_functions |= {name: vars(Tensor)[name] for name in ("zero_", "copy_")}
_made = {f"_foreach_{name}": _each(name, function) for name, function in _functions.items()}
_each_pow = _made["_foreach_pow"]


def _foreach_pow(self: Any, *args: Any, **named: Any) -> list[Tensor]:
    """`pow` of each tensor of a list, with exponents beside it; or of a number, with a list of exponents."""
    if isinstance(self, (list, tuple)):
        return _each_pow(self, *args, **named)
    (exponents,) = (*args, *named.values())
    return [self**x for x in exponents]


_made["_foreach_pow"] = _foreach_pow
globals().update(_made)
__all__ = list(_made)
