"""`show`: from whatever holds a model to its page (jit/viewing.py says what is shown)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..ir.errors import ArgumentError
from ..jit import trace
from ..jit.loaded import Loaded
from ..jit.trace import TracedFunction
from ..jit.viewing import codes_of
from ..nn import Module
from ..runtime.modes import no_grad
from .exported import shown_of_file
from .onnx_graphs import shown_of_onnx
from .page import write
from .subjects import Shown, subject_of

CALLS = 2  # of the example: the second shows which values change from call to call


def show(
    model: Any,
    path: str | os.PathLike,
    *example: Any,
    sizes: Mapping[str, int] | None = None,
    time: bool = True,
    title: str | None = None,
) -> None:
    """Write a page about a model.  See `lamina.jit.show`."""
    source = model.path if isinstance(model, Loaded) else model
    if isinstance(source, (str, os.PathLike)) and os.path.realpath(source) == os.path.realpath(path):
        raise ArgumentError(f"show: the page would take the place of the model: {os.fspath(path)}")
    write(_shown(model, example, sizes or {}, time, title), path, time)


def _shown(model: Any, example: tuple, sizes: Mapping[str, int], timed: bool, title: str | None) -> Shown:
    if isinstance(model, Loaded):
        return shown_of_file(model.path, sizes, model.native, timed, title)
    if isinstance(model, (str, os.PathLike)):
        file = Path(model)
        if file.suffix == ".onnx":
            return shown_of_onnx(file, sizes, timed, title)
        return shown_of_file(file, sizes, False, timed, title)
    if not callable(model):
        raise ArgumentError(
            f"show(model): a function, a module, what load() gave, or a path, not {type(model).__name__}"
        )
    if sizes:
        raise ArgumentError("show(sizes): the sizes of a function are its example's")
    return _shown_of_function(model, example, title)


def _shown_of_function(function: Callable, example: tuple, title: str | None) -> Shown:
    traced = function if isinstance(function, TracedFunction) else trace(function)
    serves = isinstance(function, Module) and not function.training
    if example:
        with no_grad() if serves else nullcontext():
            for _ in range(CALLS):
                traced.call_for_code(*example)
    subjects = tuple(subject_of(code) for code in codes_of(traced))
    if not subjects:
        told = traced.explain().splitlines() if example or traced is function else ()
        raise ArgumentError(
            f"show: {traced._name} has no compiled code", *told,
            "show(function, path, *example) makes a call of it",
        )  # fmt: skip
    return Shown(title or traced._name, (), subjects)
