"""A model from a file of the user's, which is run on the meta device."""

from __future__ import annotations

import sys
import traceback
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from ..ir.types import Device
from ..nn import Module
from .layer_costs import ModelCosts
from .mesh_layout import PlanError
from .recorded_costs import recorded


def costs_of_file(path: Path, precision: str) -> ModelCosts:
    """The costs of what a file defines: `model()`, a module; `example()`, a tensor or a tuple of them; and,
    if it has one, `loss(model, *example)`.

    The file runs as a program does, in a block of the meta device.  Raises PlanError for a file that is not
    there, that lacks one of them, or that raises, with the line.
    """
    if not path.is_file():
        raise PlanError(f"plan: there is no file {str(path)!r}")
    place: Any = Device("meta")  # runtime/meta.py makes it a block
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with place:
            file = _call(path, "the file", lambda: _run(path))
            missing = [name for name in ("model", "example") if not callable(getattr(file, name, None))]
            if missing:
                raise PlanError(
                    f"plan: {path} does not define {' and '.join(f'{name}()' for name in missing)}",
                    "model() returns a Module, example() a tensor or a tuple of what it is called with",
                )
            model = _call(path, "model()", file.model)
            example = _call(path, "example()", file.example)
            if not isinstance(model, Module):
                raise PlanError(f"plan: model() of {path} must return a Module, not {type(model).__name__}")
            loss = getattr(file, "loss", None)
            about = "the model" if loss is None else "loss()"
            name = f"{type(model).__name__} of {path.name}"
            return _call(
                path, about,
                lambda: recorded(model, example, loss=loss, precision=precision, name=name),
            )  # fmt: skip
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def _run(path: Path) -> ModuleType:
    spec = spec_from_file_location("planned_model", path)
    if spec is None or spec.loader is None:
        raise PlanError(f"plan: {str(path)!r} is no file of Python")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _call(path: Path, what: str, call: Any) -> Any:
    """Call something of the user's; what it raises is told with its line."""
    try:
        return call()
    except PlanError:
        raise
    except (Exception, SystemExit) as error:
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path]
        if isinstance(error, SyntaxError) and error.filename == str(path):
            lines = [error.lineno]
        where = [f"at {path}:{lines[-1]}"] if lines else []
        first, *rest = str(error).splitlines() or [""]
        raise PlanError(
            f"plan: {what} raised {type(error).__name__}: {first}", *map(str.strip, rest), *where
        ) from error
