"""Every public function that the op records and composites give: `ops.relu(x)`, `ops.einsum(…)`.

Nothing is spelled here: names, aliases and docstrings are the records'.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..ir import ops as _records  # noqa: F401 - importing them enters them into the registry
from ..ir.errors import ArgumentError
from ..ir.op import COMPOSITES, REGISTRY, Op, on_entry
from .autocasting import autocasting
from .dispatch import eager
from .refusal import refusing

# What PyTorch's factories take besides the record's own arguments, and the only values Lamina has for them.
_IGNORED = {
    "layout": (None, "strided"),
    "pin_memory": (False,),
    "memory_format": (None, "contiguous_format", "preserve_format"),
    "out": (None,),
}


def _factory(op: Op) -> Callable:
    """A function that makes tensors, with `requires_grad`."""
    run = eager(op)

    @functools.wraps(run)
    def make(*args: Any, requires_grad: bool = False, **kwargs: Any) -> Any:
        for name, allowed in _IGNORED.items():
            if name in kwargs and kwargs.pop(name) not in allowed:
                raise ArgumentError(f"{op.name}({name}=…) is not supported")
        made = run(*args, **kwargs)
        return made.requires_grad_() if requires_grad else made

    return make


FUNCTIONS: dict[str, Callable] = {}


def _publish(function: Callable, *names: str) -> None:
    FUNCTIONS.update(dict.fromkeys(names, function))
    globals().update(dict.fromkeys(names, function))  # ops.relu without the detour over __getattr__


def _offer(op: Op) -> None:
    makes = op.traits.creation or "device" in op.attrs  # a place to make something at: zeros_like and its kin
    function = _factory(op) if makes else eager(op)
    _publish(function, op.name, *op.aliases)


for _op in REGISTRY.values():
    _offer(_op)
on_entry.append(_offer)
for _name, _composite in COMPOSITES.items():
    if _composite.public:
        _publish(refusing(autocasting(_composite.function, _name), _name), _name, *_composite.aliases)

_choose = FUNCTIONS["where"]


@functools.wraps(_choose)
def _where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Or, of a condition alone, the places where it is true: a tensor for each dimension."""
    if input is None and other is None:
        return FUNCTIONS["nonzero"](condition, as_tuple=True)
    return _choose(condition, input, other)


_publish(refusing(_where, "where"), "where")

# What scripts reach for that is not here, and what does instead.
_COMPLEX = "Lamina has no complex numbers; NumPy has them"
_ELSEWHERE = {
    **dict.fromkeys(("complex", "complex32", "complex64", "complex128", "cfloat", "cdouble"), _COMPLEX),
    **dict.fromkeys(("polar", "view_as_complex", "view_as_real", "stft", "istft", "fft"), _COMPLEX),
    **dict.fromkeys(("sparse", "sparse_coo_tensor", "sparse_csr_tensor"), "Lamina's tensors are dense"),
    **dict.fromkeys(("distributed", "multiprocessing"), "Lamina runs in one process"),
    "distributions": "write the log-probability out, and draw with lamina.normal, multinomial and their kin",
    "func": "lamina.autograd.functional has jacobian, hessian, vjp and jvp",
    "vmap": "add a batch dimension: most ops take one",
}


def __getattr__(name: str) -> Callable:
    """An op's function.  Raises AttributeError."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in _ELSEWHERE:
        raise AttributeError(f"Lamina has no {name}\n  {_ELSEWHERE[name]}", name=name)
    raise AttributeError(f"module 'lamina' has no {name!r}")
