"""What a run left behind, as text that becomes one Python function: its effects in order, and its result.

Objects that were there are named; those that the run made are made again, each once, however often they are
met.  Tensors come ready made, as `T[i]`.
"""

from __future__ import annotations

import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...nn import Module
from ...runtime import Generator, Tensor
from ..facts import indefinite
from .facts import Facts
from .kinds import ATOMS, PINNED, Method, heap_class, lookup
from .numbers import LIFTED
from .parts import WORDS, Part


class Outcome:
    """The effects and the result of a finished run.

    tensors: those that effects and result hold, in order.  run(S, T): what does it again and returns the
    result, given the slots and these tensors.  plain: the number of the tensor that is the result, where
    that is all.
    """

    def __init__(self, facts: Facts, result: Any):
        self._facts, self._part = facts, Part()
        self.tensors: list[Tensor] = []
        self._places: dict[int, int] = {}
        self._lines: list[str] = []
        self._named: dict[int, str] = {}
        self._open: dict[int, int] = {}  # objects being spelled, and where their making belongs
        self._looped: set[int] = set()
        self.effects = len(facts.effects)
        for function, args, kwargs in facts.effects:
            parts = [self.spelled(a) for a in args] + [f"{k}={self.spelled(v)}" for k, v in kwargs.items()]
            self._lines.append(f"{self._const(function)}({', '.join(parts)})")
        self._lines.append(f"return {self.spelled(result)}")
        self.plain = 0 if self._lines == ["return T[0]"] else None
        self.text = "\n".join(self._lines)
        self.run = self._compiled()
        del self._facts, self._named, self._places  # which know all objects of the run

    def _const(self, o: Any) -> str:
        facts = self._facts
        name = facts.const(o)
        self._part.names[name] = facts._named[name]
        if name in facts._weak:
            self._part.weak.add(name)
        return name

    def _compiled(self) -> Callable[[list, Sequence[Tensor]], Any]:
        names, weak = self._part.names, self._part.weak
        given = {("r" + k if k in weak else k): v for k, v in names.items()}
        heads = [f"{k} = r{k}()" for k in names if k in weak]
        body = "\n    ".join([*heads, *self._lines])
        parameters = ", ".join(["S", "T", *(f"{k}={k}" for k in given)])
        scope = {**WORDS, **_MAKERS, **given}
        exec(compile(f"def commit({parameters}):\n    {body}", "<commit>", "exec"), scope)
        return scope.pop("commit")

    def _kept(self, o: Any) -> str:
        """The name of an object that nobody else keeps alive."""
        name = f"c{len(self._part.names)}_"
        self._part.names[name] = o
        return name

    # ---- spelling ----
    def spelled(self, v: Any) -> str:
        """The expression that gives a value again.  Refuses what can't be made again."""
        facts, kind = self._facts, type(v)
        if issubclass(type(v), Tensor):
            return f"T[{self._tensor(v)}]"
        if type(v) in LIFTED:
            return f"({v.expression})"
        if kind in (int, bool, str, type(None), bytes):
            return repr(v)
        if kind in ATOMS or kind in (range, np.dtype) or issubclass(type(v), (np.generic, Generator)):
            return self._const(v)
        if id(v) in self._named:
            return self._named[id(v)]
        if id(v) in self._open:
            self._looped.add(id(v))
            name = self._named[id(v)] = f"o{len(self._named)}"
            return name
        if facts.is_known(v) or (issubclass(type(v), PINNED) and not facts.is_fresh(v)):
            root = facts.known.get(id(v))
            return self._const(v) if root is None or root.expression is None else root.expression
        self._open[id(v)] = len(self._lines)
        made = self._made(v, kind)
        del self._open[id(v)]
        return made

    def _tensor(self, x: Tensor) -> int:
        at = self._places.get(id(x))
        if at is None:
            at = self._places[id(x)] = len(self.tensors)
            self.tensors.append(x)
        return at

    def _made(self, v: Any, kind: type) -> str:
        if kind is tuple:
            items = [self.spelled(x) for x in v]
            return self._keep(v, f"({', '.join(items)}{',' if len(items) == 1 else ''})")
        if issubclass(type(v), tuple) and heap_class(kind) and not getattr(v, "__dict__", None):
            return self._keep(v, f"tuple.__new__({self._const(kind)}, [{', '.join(map(self.spelled, v))}])")
        if kind in (list, set, deque):
            return self._filled(v, kind, "extend" if kind is not set else "update", map(self.spelled, v))
        if kind is frozenset:
            return self._keep(v, f"frozenset([{', '.join(map(self.spelled, v))}])")
        if kind in (dict, OrderedDict, Counter, defaultdict):
            return self._dict(v, kind)
        if kind is slice:
            return f"slice({self.spelled(v.start)}, {self.spelled(v.stop)}, {self.spelled(v.step)})"
        if kind is np.ndarray:
            return self._keep(v, f"{self._kept(v.copy())}.copy()")
        if kind is types.SimpleNamespace:
            return self._object(v, kind)
        if kind is Method:
            return self._keep(v, f"MT({self.spelled(v.__func__)}, {self.spelled(v.__self__)})")
        if issubclass(type(v), BaseException) and kind.__module__ == "builtins" and not v.__dict__:
            return self._keep(v, f"{self._const(kind)}({', '.join(map(self.spelled, v.args))})")
        if heap_class(kind) and lookup(kind, "__new__") is object.__new__ and not issubclass(type(v), Module):
            return self._object(v, kind)
        self._facts.refuse(_why_not(v, kind))
        return "None"

    def _keep(self, v: Any, expression: str) -> str:
        """Make an object where it is met first, and name it."""
        if id(v) in self._looped:
            self._facts.refuse(f"{indefinite(type(v))} that can't be changed holds itself")
        name = self._named.setdefault(id(v), f"o{len(self._named)}")
        self._lines.append(f"{name} = {expression}")
        return name

    def _filled(self, v: Any, kind: type, method: str, items: Any) -> str:
        at = self._open[id(v)]
        spelled = ", ".join(items)
        if id(v) not in self._looped and kind is list:
            return self._keep(v, f"[{spelled}]")
        name = self._named.setdefault(id(v), f"o{len(self._named)}")
        extra = f"(), {v.maxlen!r}" if kind is deque and v.maxlen is not None else ""
        self._lines.insert(at, f"{name} = {self._const(kind)}({extra})")
        if spelled:
            self._lines.append(f"{name}.{method}(({spelled},))")
        return name

    def _dict(self, v: Any, kind: type) -> str:
        factory = self.spelled(v.default_factory) if kind is defaultdict else ""
        if id(v) in self._looped:
            self._facts.refuse("a defaultdict is held by what makes its items")
        at = self._open[id(v)] = len(self._lines)  # after what makes the factory
        items = ", ".join([f"({self.spelled(k)}, {self.spelled(x)})" for k, x in v.items()])
        name = self._named.setdefault(id(v), f"o{len(self._named)}")
        self._lines.insert(at, f"{name} = {self._const(kind)}({factory})")
        if items:
            self._lines.append(f"set_items({name}, ({items},))")
        return name

    def _object(self, v: Any, kind: type) -> str:
        at = self._open[id(v)]
        slots = [n for base in kind.__mro__ for n, d in base.__dict__.items()
                 if type(d) is types.MemberDescriptorType and n != "__dict__" and hasattr(v, n)]  # fmt: skip
        own = [(k, x) for k, x in getattr(v, "__dict__", {}).items()] + [(n, getattr(v, n)) for n in slots]
        items = ", ".join([f"({k!r}, {self.spelled(x)})" for k, x in own])
        name = self._named.setdefault(id(v), f"o{len(self._named)}")
        self._lines.insert(at, f"{name} = {self._const(kind)}.__new__({self._const(kind)})")
        if items:
            self._lines.append(f"set_fields({name}, ({items},))")
        return name


def _why_not(v: Any, kind: type) -> str:
    if issubclass(type(v), Module):
        return "a module that the run made outlives it"
    if type(v) is types.FunctionType:
        return f"the function {v.__qualname__}, made in the run, outlives it"
    return f"{indefinite(kind)} that the run made outlives it, and can't be made again"


def set_items(made: dict, items: tuple) -> None:
    """Fill a dictionary, whatever its class makes of missing keys."""
    put = OrderedDict.__setitem__ if issubclass(type(made), OrderedDict) else dict.__setitem__
    for key, value in items:
        put(made, key, value)


def set_fields(made: Any, items: tuple) -> None:
    """Give an object its attributes, frozen ones too."""
    for name, value in items:
        object.__setattr__(made, name, value)


def set_cell(cell: Any, value: Any) -> None:
    """Assign a variable of an enclosing function."""
    cell.cell_contents = value


_MAKERS = {"set_items": set_items, "set_fields": set_fields}

__all__ = ["Outcome", "set_cell"]
