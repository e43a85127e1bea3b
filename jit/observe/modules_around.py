"""Which modules are running as an op is heard: a recording keeps their names beside the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from sys import _getframe
from types import CellType, CodeType
from typing import Any

from ...nn import Module
from ...nn.members import fields
from ...runtime.places import locals_of
from .frames import contents
from .interpret import Interpreting

DEEPEST = 256  # frames that are looked at
# Functions that run a part of a model which is no module, by their code: what the part is called, said of the
# argument behind `self`.
PARTS: dict[CodeType, Callable[[Any], str]] = {}
_RUN = Interpreting._run.__code__


class ModulesAround:
    """Names modules while a run is recorded.  Keeps none of them alive, nor looks at what is recorded."""

    def __init__(self) -> None:
        self._names: dict[int, dict[int, str]] = {}  # by the id of the outermost: dotted names, by id

    def path(self) -> str:
        """Where in the outermost running module the caller is: `Net.layers.0.conv`, "" outside of all."""
        parts: list[str] = []
        names: dict[int, str] = {}
        above = 0  # parts ahead of the name that `names` has
        for one in reversed([*_running()]):
            if isinstance(one, str):
                parts.append(one)
            elif (name := names.get(id(one))) is not None:
                parts[above:] = [name] if name else []
            else:  # a model of its own
                names = self._names.setdefault(id(one), {}) or _named(one)
                self._names[id(one)] = names
                parts.append(type(one).__name__)
                above = len(parts)
        return ".".join(parts)


def _running() -> Iterator[Module | str]:
    """Modules whose `forward` runs, and parts of models, the innermost first."""
    native: Any = _getframe(3)
    for _ in range(DEEPEST):
        if native is None:
            return
        code = native.f_code
        if code is _RUN:
            frame = locals_of(native)["frame"]
            break
        if code.co_name == "forward" or code in PARTS:
            variables = locals_of(native)
            yield from _said(code, [variables.get(name) for name in code.co_varnames[:2]])
        native = native.f_back
    else:
        return
    for _ in range(DEEPEST):
        if frame is None:
            return
        code = frame.program.code
        if code.co_name == "forward" or code in PARTS:
            yield from _said(code, [contents(x) if type(x) is CellType else x for x in frame.locals[:2]])
        frame = frame.back


def _said(code: CodeType, variables: list[Any]) -> Iterator[Module | str]:
    if code in PARTS:
        yield PARTS[code](variables[1])
    elif variables and issubclass(type(variables[0]), Module):
        yield variables[0]


def _named(module: Module) -> dict[int, str]:
    """Dotted names of a module and those below it, by id."""
    found: dict[int, str] = {}
    waiting = [("", module)]
    while waiting:
        name, each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = name
            for key, child in reversed([*fields(each).get("_modules", {}).items()]):  # none before __init__
                if issubclass(type(child), Module):
                    waiting.append((f"{name}.{key}" if name else key, child))
    return found
