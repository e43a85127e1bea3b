"""The arguments of a call as a key: calls of one key may share a recording."""

from __future__ import annotations

import struct
import types
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from ..ir.dtypes import default_dtype
from ..nn import Module
from ..optim.optimizer import Optimizer
from ..runtime import Generator, Tensor, modes
from ..runtime.graph import Leaf
from . import pytree
from .facts import IMMUTABLE, PLAIN
from .reads import Refusal

OBJECTS = (Module, Optimizer, Generator, types.FunctionType, types.MethodType, type, types.ModuleType)


def key_of(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, list[Any]]:
    """The key of a call, and the leaves of its arguments.  Raises Refusal for what can't be held to a key.

    The key has the structure, the type, layout and history of each tensor, which tensors are the same, the
    other values by type and bits, and the modes of this thread.
    """
    if not kwargs and all([type(x) is Tensor for x in args]):  # noqa: C419 - a list is quicker
        shape: Any = len(args)
        leaves = list(args)
    else:
        shape, leaves = pytree.flatten((args, kwargs))
    local = modes.local
    return (shape, _leaves(leaves), local.grad, local.inference, default_dtype()), leaves


def _leaves(leaves: Sequence[Any]) -> tuple:
    keys: list[Any] = []
    arrays: dict[int, int] = {}
    for x in leaves:
        if isinstance(x, Tensor):
            data, node = x._data, x._edge if x._view is None else x._node
            first = arrays.setdefault(id(data), len(keys)) if len(leaves) > 1 else len(keys)
            twin = (
                None
                if first == len(keys)
                else (first, leaves[first] is x, leaves[first]._storage is x._storage)
            )
            history = 0 if node is None else 1 if type(node) is Leaf else 2
            keys.append((x._meta, type(x), data.flags.c_contiguous or data.strides, history, twin))
        elif type(x) is float:
            keys.append(struct.pack("d", x))
        elif isinstance(x, (slice, range)):
            keys.append(repr(x))
        elif isinstance(x, (*PLAIN, *IMMUTABLE, Enum)):
            keys.append((type(x), x))
        elif isinstance(x, np.ndarray):
            raise Refusal("an argument is a NumPy array; pass a tensor: lamina.from_numpy(array)")
        elif isinstance(x, OBJECTS) or (hasattr(x, "__dict__") and hasattr(type(x), "__weakref__")):
            keys.append((type(x), id(x)))
        else:
            raise Refusal(f"an argument is a {type(x).__name__}, whose contents a call can't be held to")
    return tuple(keys)


def names_of(function: Callable, shape: Any, count: int) -> list[str]:
    """How each leaf of the arguments is called, for messages."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    first = code.co_varnames[: code.co_argcount] if code is not None else ()
    if isinstance(shape, int):
        given = [f"args[{i}]" for i in range(shape)]
    else:
        _, _, (positional, named) = shape
        given = [*pytree.paths(positional, "args"), *pytree.paths(named, "kwargs")]
    found = []
    for path in given:
        place, _, rest = path.removeprefix("args[").partition("]")
        known = path.startswith("args[") and place.isdigit() and int(place) < len(first)
        found.append(first[int(place)] + rest if known else path)
    return found[:count]
