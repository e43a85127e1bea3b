"""How an entry of PyTorch's operator database is called on Lamina's tensors: functions, methods, arguments.

Entries hold PyTorch's functions.  Those that PyTorch's test module writes itself (`lambda x: x.T`) are run
again with Lamina standing where they say `torch`; all others are looked up by their name.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch

import lamina
from lamina.ir.dtypes import DType
from lamina.runtime.tensor import tensor_of

WRITTEN_BY_TESTS = "torch.testing"


class Absent(Exception):
    """Lamina has nothing of that name."""


class Unsayable(Exception):
    """A call that can't be put to Lamina; says why."""


def named(name: str) -> Callable:
    """Lamina's function where PyTorch has `torch.<name>`.  Raises Absent."""
    place: Any = lamina
    for part in name.split("."):
        try:
            place = getattr(place, part)
        except AttributeError:
            raise Absent(f"lamina.{name}") from None
    return place


def of_tensor(name: str) -> Callable:
    """The method of Lamina's tensors.  Raises Absent."""
    found = getattr(lamina.Tensor, name, None)
    if found is None:
        raise Absent(f"Tensor.{name}")
    return found


def translated(function: Any, name: str) -> Callable:
    """Lamina's counterpart of a function of PyTorch's.  Raises Absent, Unsayable."""
    if isinstance(function, functools.partial):
        return functools.partial(translated(function.func, name), *function.args, **function.keywords)
    if isinstance(function, types.FunctionType) and function.__module__.startswith(WRITTEN_BY_TESTS):
        return rewritten(function)
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return of_tensor(function.__name__)
    if isinstance(function, types.FunctionType) and function.__qualname__.startswith(
        ("Tensor.", "TensorBase")
    ):
        return of_tensor(function.__name__)
    if type(function).__name__ in ("OpOverload", "OpOverloadPacket", "_JittedFunction"):
        raise Unsayable("an operator of PyTorch's dispatcher, behind its public functions")
    return named(name)


def seeded(op: Callable, *args: Any, **kwargs: Any) -> Any:
    """What `wrapper_set_seed` is for PyTorch."""
    lamina.manual_seed(42)
    return op(*args, **kwargs)


def rewritten(function: types.FunctionType) -> Callable:
    """A function of PyTorch's test modules with Lamina where it says `torch`."""
    if function.__name__ == "wrapper_set_seed":
        return seeded
    names = {name: of_torch(value) for name, value in _mentioned(function.__code__, function.__globals__)}
    cells = tuple(types.CellType(of_torch(cell.cell_contents)) for cell in function.__closure__ or ())
    made = types.FunctionType(
        function.__code__, function.__globals__ | names, function.__name__, function.__defaults__, cells
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _mentioned(code: types.CodeType, own: dict[str, Any]) -> list[tuple[str, Any]]:
    """The globals that a function's code names, and that of functions within it."""
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return [(name, own[name]) for name in code.co_names if name in own] + [
        pair for each in inner for pair in _mentioned(each, own)
    ]


def of_torch(value: Any) -> Any:
    """What a name in a function of PyTorch's tests stands for, on Lamina's side."""
    if value is torch:
        return lamina
    if isinstance(value, types.ModuleType) and value.__name__.startswith("torch."):
        return named(value.__name__.removeprefix("torch."))
    if isinstance(value, types.FunctionType) and value.__module__.startswith(WRITTEN_BY_TESTS):
        return rewritten(value)
    if isinstance(value, types.BuiltinFunctionType) and getattr(torch, value.__name__, None) is value:
        return named(value.__name__)
    if isinstance(value, (torch.Tensor, torch.dtype, torch.device)):
        return argument(value)
    return value


# ---- arguments
@cache
def dtype_of(dtype: torch.dtype) -> DType:
    """Raises Unsayable."""
    found = getattr(lamina, str(dtype).removeprefix("torch."), None)
    if not isinstance(found, DType):
        raise Unsayable(f"an argument is of {dtype}")
    return found


def argument(x: Any) -> Any:
    """An argument for Lamina; tensors hold the same numbers.  Raises Unsayable."""
    if isinstance(x, torch.Tensor):
        if x.layout is not torch.strided or x.is_nested:
            raise Unsayable(f"an argument is of layout {x.layout}")
        dtype_of(x.dtype)
        if x.dtype is torch.bfloat16:
            made = tensor_of(x.detach().float().numpy()).to(lamina.bfloat16)
        else:
            made = tensor_of(np.array(x.detach().resolve_conj().resolve_neg().numpy(), order="K"))
        return made.requires_grad_() if x.requires_grad else made
    if isinstance(x, torch.dtype):
        return dtype_of(x)
    if isinstance(x, torch.device):
        return "cpu"
    if isinstance(x, (torch.memory_format, torch.layout)):
        return getattr(lamina, str(x).removeprefix("torch."), str(x).removeprefix("torch."))
    if isinstance(x, torch.Generator):
        raise Unsayable("an argument is a generator of PyTorch's")
    if isinstance(x, torch.Size):
        return tuple(x)
    if isinstance(x, (list, tuple)):
        items = [argument(item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {key: argument(value) for key, value in x.items()}
    if isinstance(x, slice):
        return slice(*map(argument, (x.start, x.stop, x.step)))
    if isinstance(x, types.FunctionType) and x.__module__.startswith(WRITTEN_BY_TESTS):
        return rewritten(x)
    if isinstance(x, types.FunctionType) and x.__module__ == "torch.nn.functional":
        return named(f"nn.functional.{x.__name__}")
    if type(x) is torch.nn.PairwiseDistance:
        return lamina.nn.PairwiseDistance(x.norm, x.eps, x.keepdim)
    if isinstance(x, torch.nn.Module):
        raise Unsayable("an argument is a module of PyTorch's")
    return x


def copied(x: Any) -> Any:
    """An argument for PyTorch, with tensors of its own that have no history but want gradients as before."""
    if isinstance(x, torch.Tensor):
        return x.detach().clone().requires_grad_(x.requires_grad)
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        items = [copied(item) for item in x]
        return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
    if isinstance(x, dict):
        return {key: copied(value) for key, value in x.items()}
    return x


def flat(x: Any) -> list:
    """All that sequences and dictionaries hold, in order."""
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)) and not isinstance(x, (torch.Size, lamina.Size)):
        return [z for y in x for z in flat(y)]
    return [x]
