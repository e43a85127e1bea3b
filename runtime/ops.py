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
from .dispatch import eager

# What PyTorch's factories take besides the record's own arguments, and the only values Lamina has for them.
_IGNORED = {
    "layout": (None, "strided"),
    "pin_memory": (False,),
    "memory_format": (None, "contiguous_format", "preserve_format"),
    "out": (None,),
}


def _factory(op: Op) -> Callable:
    """A creation op with `requires_grad`."""
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
    function = _factory(op) if op.traits.creation else eager(op)
    _publish(function, op.name, *op.aliases)


for _op in REGISTRY.values():
    _offer(_op)
on_entry.append(_offer)
for _name, _composite in COMPOSITES.items():
    if _composite.public:
        _publish(_composite.function, _name, *_composite.aliases)


def __getattr__(name: str) -> Callable:
    """An op's function.  Raises AttributeError."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"module 'lamina' has no op {name!r}")
