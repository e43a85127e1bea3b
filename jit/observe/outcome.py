"""What a run left behind, as text that becomes one Python function: its effects in order, and its result.

Objects that were there are named; those that the run made are made again, each once, however often they are
met.  Tensors come ready made, as `T[i]`.
"""

from __future__ import annotations

import re
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any

import numpy as np

from ...nn import Module
from ...runtime import Generator, Parameter, Tensor
from ...runtime.compound import Compound, of_values
from ...runtime.on_device import share_memory
from ...runtime.refusal import unwrapped
from ..answers import READERS
from ..facts import indefinite, literal
from .binding import unset
from .facts import Facts
from .heap import key_of
from .kinds import ATOMS, BOUND, PINNED, Method, heap_class, lookup
from .leaving import let_leave
from .numbers import LIFTED
from .parts import WORDS, Part
from .spelling import dictionary_of

SHOWN = unwrapped(vars(Tensor)["numpy"])
_BINDING = (types.MethodDescriptorType, types.WrapperDescriptorType)  # what makes them


class Outcome:
    """The effects and the result of a finished run.

    tensors: those that effects and result hold, in order.  run(S, T): what does it again and returns the
    result, given the slots and these tensors.  plain: the number of the tensor that is the result, where
    that is all.  constant: whether what it returns besides tensors is the same at each call.
    asks: whether answers leave.  lock(S): the one that a call is to be done under, if any is.
    """

    def __init__(self, facts: Facts, result: Any):
        self._facts, self._part = facts, Part()
        self.tensors: list[Tensor] = []
        self._places: dict[int, int] = {}
        self._lines: list[str] = []
        self._named: dict[int, str] = {}
        self._open: dict[int, int] = {}  # objects being spelled, and where their making belongs
        self._looped: set[int] = set()
        self._arrays: list[np.ndarray] = []
        self.effects = len(facts.written.effects)
        for function, args, kwargs in facts.written.effects:
            parts = [self.spelled(a) for a in args] + [f"{k}={self.spelled(v)}" for k, v in kwargs.items()]
            self._lines.append(f"{self._const(function)}({', '.join(parts)})")
        for variable, value in facts.contexts.left():
            words = f"{self.spelled(variable)}, {self.spelled(value)}"
            self._lines.append(f"{self._const(type(variable).set)}({words})")
        taken = self._taken()
        self.constant = True
        returned = self.spelled(result)
        self._leave_circles()
        self._lines.append(f"return {returned}")
        self._look_for_shared_memory()
        told = let_leave(facts.recorder, facts.guards)
        self._fill([*told, *facts.numbers.clocks.after])
        self.asks, self.constant = bool(told), self.constant and not told
        self.plain = 0 if self._lines == ["return T[0]"] else None
        self.text = "\n".join(self._lines)
        self.run = self._compiled("commit", "S, T", self._lines)
        self.lock = None if taken is None else self._compiled("lock", "S", [f"return {taken}"])
        del self._facts, self._named, self._places, self._arrays  # which know all objects of the run

    def _taken(self) -> str | None:
        """The expression of the lock that the run took, if any."""
        locks = self._facts.locks
        if locks.depth:
            self._facts.refuse("it leaves a lock taken")
        return None if locks.taken is None else self.spelled(locks.taken)

    def _fill(self, lines: list[str]) -> None:
        """Begin with what tensors and clocks tell after the work, and what is computed of it."""
        for name in {name for line in lines for name in re.findall(r"\bk\d+_", line)}:
            self._facts.guards.name_in(self._part, name)
        self._lines[:0] = lines

    def _const(self, o: Any) -> str:
        name = self._facts.const(o)
        self._facts.guards.name_in(self._part, name)
        return name

    def _compiled(self, name: str, parameters: str, lines: Sequence[str]) -> Callable[..., Any]:
        names, weak = self._part.names, self._part.weak
        given = {("r" + k if k in weak else k): v for k, v in names.items()}
        heads = [f"{k} = r{k}()" for k in names if k in weak]
        body = "\n    ".join([*heads, *lines])
        given_too = ", ".join([parameters, *(f"{k}={k}" for k in given)])
        scope = {**WORDS, **_MAKERS, **given}
        exec(compile(f"def {name}({given_too}):\n    {body}", f"<{name}>", "exec"), scope)
        return scope.pop(name)

    def _kept(self, o: Any) -> str:
        """The name of an object that nobody else keeps alive."""
        name = f"c{len(self._part.names)}_"
        self._part.names[name] = o
        return name

    # ---- spelling ----
    def spelled(self, v: Any) -> str:
        """The expression that gives a value again.  Refuses what can't be made again."""
        facts, kind = self._facts, type(v)
        if issubclass(type(v), Compound):
            return self._compound(v)
        if issubclass(type(v), Tensor):
            return f"T[{self._tensor(v)}]"
        if type(v) in LIFTED:
            self.constant = False
            return f"({v.expression})"
        if kind in (int, bool, str, type(None), bytes):
            return literal(v)
        if kind in ATOMS or kind is np.dtype or issubclass(type(v), np.generic):
            return self._const(v)
        if id(v) in self._named:
            return self._named[id(v)]
        if id(v) in facts.fresh.shown:
            return f"{self._const(SHOWN)}(T[{self._tensor(facts.fresh.shown[id(v)][1])}])"
        if id(v) in self._open:
            self._looped.add(id(v))
            name = self._named[id(v)] = f"o{len(self._named)}"
            return name
        if facts.is_known(v) or (issubclass(type(v), (*PINNED, Generator)) and not facts.is_fresh(v)):
            root = facts.known.roots.get(id(v))
            if root is not None and root.expression is not None:
                return root.expression
            return self._bound(v) if issubclass(kind, BOUND) else self._const(v)
        self._open[id(v)] = len(self._lines)
        made = self._made(v, kind)
        del self._open[id(v)]
        return made

    def _within(self, v: Any, kind: str, key: Any, value: Any) -> str:
        """The expression of what an object that the run made holds at a place."""
        standing = self._facts.standing(v, kind, key_of(key))
        return self.spelled(value if standing is None else standing)

    def _items(self, v: Any) -> list[str]:
        """The expressions of the items of a sequence that the run made, in order."""
        return [self._within(v, "item", at, value) for at, value in enumerate(v)]

    def _tensor(self, x: Tensor) -> int:
        at = self._places.get(id(x))
        if at is None:
            at = self._places[id(x)] = len(self.tensors)
            self.tensors.append(x)
        return at

    def _compound(self, v: Compound) -> str:
        """A tensor made of one: that itself where it was there, else made again of what is stored."""
        if id(v) in self._named:
            return self._named[id(v)]
        if self._facts.is_known(v):
            root = self._facts.known.roots[id(v)]
            return self._const(v) if root.expression is None else root.expression
        if not v.by_parts or isinstance(v, Parameter):
            self._facts.refuse(f"it leaves a new {v.what} {'parameter' if v.by_parts else 'tensor'}")
            return "None"
        return self._keep(v, f"{self._kept(v.maker())}(T[{self._tensor(v._stored)}])")

    def _made(self, v: Any, kind: type) -> str:
        there = id(v) in self._facts.fresh.constants or not self._facts.is_fresh(v)
        if kind in (tuple, frozenset) and there and _constant(v):
            return self._const(v)  # of the code: eager hands out the same each time
        if kind is tuple:  # a list's, or the compiler would make one constant of constants
            return self._keep(v, f"(*[{', '.join(self._items(v))}],)")
        if issubclass(kind, tuple) and heap_class(kind) and not dictionary_of(v):
            items = [self._within(v, "item", at, x) for at, x in enumerate(tuple.__iter__(v))]
            return self._keep(v, f"tuple.__new__({self._const(kind)}, [{', '.join(items)}])")
        fresh = self._facts.fresh
        if kind not in (slice, range) and not self._facts.is_fresh(v):
            self._facts.refuse(f"{indefinite(kind)} outlives the run, and nobody knows where it came from")
        if kind in (set, frozenset) and (id(v) in fresh.tables or id(v) in fresh.dented):
            self._facts.in_order(v)
            self._facts.refuse("a set that the run made, and took items out of, outlives it")
        if kind is set:
            items = _in_order(v)
            if items is None:
                return self._as_it_lies(v)
            return self._filled(v, kind, "update", map(self.spelled, items))
        if kind is deque:
            self._facts.shadow.bare(v)
        if kind in (list, deque):
            return self._filled(v, kind, "extend", self._items(v))
        if kind is frozenset:
            items = _in_order(v)
            if items is None:
                return self._as_it_lies(v)
            return self._keep(v, f"frozenset([{', '.join(map(self.spelled, items))}])")
        if kind is range:
            return self._keep(v, f"{self._const(range)}({v.start}, {v.stop}, {v.step})")
        if kind in (dict, OrderedDict, Counter, defaultdict):
            return self._dict(v, kind)
        if kind is slice:
            ends = [self._within(v, "attr", name, getattr(v, name)) for name in ("start", "stop", "step")]
            return f"slice({', '.join(ends)})"
        if kind is np.ndarray:
            return self._array(v)
        if kind is types.SimpleNamespace:
            return self._object(v, kind)
        if kind is Method:
            return self._keep(v, f"MT({self.spelled(v.__func__)}, {self.spelled(v.__self__)})")
        if issubclass(type(v), BaseException) and kind.__module__ == "builtins" and _is_its_arguments(v):
            return self._keep(v, f"{self._const(kind)}({', '.join(map(self.spelled, v.args))})")
        if heap_class(kind) and lookup(kind, "__new__") is object.__new__ and not issubclass(type(v), Module):
            return self._object(v, kind)
        if (base := _container(kind)) is not None:
            return self._derived(v, kind, base)
        self._facts.refuse(_why_not(v, kind))
        return "None"

    def _leave_circles(self) -> None:
        """Make again what outlives the run in circles, though nothing else leads there.

        A plain run leaves instances to the collector; their class may be given a `__del__` before it comes.
        """
        left = self._facts.fresh.left_in_circles(self._named)
        for v in left:
            self.constant = False
            self.spelled(v)

    def _bound(self, v: Any) -> str:
        """A method of C code, bound to what may be another object at each call."""
        held, facts = v.__self__, self._facts
        there = issubclass(type(held), Tensor) or facts.is_fresh(held) or facts.is_known(held)
        if not there or issubclass(type(held), (type, types.ModuleType)):
            return self._const(v)
        for kind in type(held).__mro__:
            method = vars(kind).get(v.__name__)
            if type(method) in _BINDING and method.__get__(held) == v:
                return self._keep(v, f"{self._const(method)}.__get__({self.spelled(held)})")
        self._facts.refuse(f"{v.__name__}() of {indefinite(type(held))} outlives the run")
        return "None"

    def _keep(self, v: Any, expression: str) -> str:
        """Make an object where it is met first, and name it."""
        if id(v) in self._looped:
            self._facts.refuse(f"{indefinite(type(v))} that can't be changed holds itself")
        name = self._named.setdefault(id(v), f"o{len(self._named)}")
        self._lines.append(f"{name} = {expression}")
        return name

    def _as_it_lies(self, v: Any) -> str:
        """A set of plain values, whose order no order of its items gives."""
        made = set(v) if type(v) is frozenset else v.copy()
        if not _lies_like(type(v)(made), v):
            self._facts.refuse("the order of a set that the run made comes of more than what it holds")
        return self._keep(v, f"{type(v).__name__}({self._kept(made)})")

    def _array(self, v: np.ndarray) -> str:
        made = v.copy("K")
        if _steps(made) != _steps(v) or not v.flags.writeable:
            self._facts.refuse("a NumPy array that the run made outlives it, and is read-only or has gaps")
        self._arrays.append(v)
        return self._keep(v, f"{self._kept(made)}.copy('K')")

    def _look_for_shared_memory(self) -> None:
        """Refuse a new array of NumPy's that shows the memory of something else that is left."""
        if not self._arrays:
            return
        there = [root.thing for root in self._facts.known.roots.values()]
        others = [x for x in there if issubclass(type(x), np.ndarray)]
        others += [of_values(x)._data for x in (*self.tensors, *there) if issubclass(type(x), Tensor)]
        for at, array in enumerate(self._arrays):
            if any(share_memory(array, other) for other in (*self._arrays[:at], *others)):
                self._facts.refuse("a NumPy array that the run made shares memory with another; copy() it")

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
        items = ", ".join([f"({self.spelled(k)}, {self._within(v, 'item', k, x)})" for k, x in v.items()])
        own = dictionary_of(v).items()  # an OrderedDict or a Counter may have attributes
        fields = ", ".join([f"({literal(k)}, {self._within(v, 'attr', k, x)})" for k, x in own])
        name = self._named.setdefault(id(v), f"o{len(self._named)}")
        self._lines.insert(at, f"{name} = {self._const(kind)}({factory})")
        if items:
            self._lines.append(f"set_items({name}, ({items},))")
        if fields:
            self._lines.append(f"set_fields({name}, ({fields},))")
        return name

    def _derived(self, v: Any, kind: type, base: Any) -> str:
        """An instance of a class derived from a list or a dictionary: its items, and its attributes."""
        at = self._open[id(v)]
        if base is list:
            items = [self._within(v, "item", n, x) for n, x in enumerate(list.__iter__(v))]
        else:
            pairs = base.items(v)
            items = [f"({self.spelled(k)}, {self._within(v, 'item', k, x)})" for k, x in pairs]
        fields = self._fields(v, kind)
        name = self._named.setdefault(id(v), f"o{len(self._named)}")
        self._lines.insert(at, f"{name} = {self._const(base)}.__new__({self._const(kind)})")
        if items:
            put = f"{self._const(list.extend)}" if base is list else "set_items"
            self._lines.append(f"{put}({name}, ({', '.join(items)},))")
        if fields:
            self._lines.append(f"set_fields({name}, ({fields},))")
        return name

    def _fields(self, v: Any, kind: type) -> str:
        """The expressions of an instance's attributes, by name, those in slots too."""
        held = [(n, d) for base in kind.__mro__ for n, d in base.__dict__.items() if n != "__dict__"]
        slots = [(n, d) for n, d in held if type(d) is types.MemberDescriptorType and not unset(d, v)]
        own = [*dictionary_of(v).items(), *((n, d.__get__(v)) for n, d in slots)]
        return ", ".join([f"({literal(k)}, {self._within(v, 'attr', k, x)})" for k, x in own])

    def _object(self, v: Any, kind: type) -> str:
        at = self._open[id(v)]
        fields = self._fields(v, kind)
        name = self._named.setdefault(id(v), f"o{len(self._named)}")
        self._lines.insert(at, f"{name} = {self._const(kind)}.__new__({self._const(kind)})")
        if fields:
            self._lines.append(f"set_fields({name}, ({fields},))")
        return name


def _in_order(v: Any) -> list[Any] | None:
    """The items of a set, such that a new one that takes them goes through them in its order.

    None where neither that order nor the reverse does it, and they are plain values.  Others lie where their
    addresses say, which no program can rely on.
    """
    there = [*v]
    for items in (there, there[::-1]):
        if _lies_like(type(v)(items), v):
            return items
    return None if all(type(each) in ATOMS for each in there) else there


def _lies_like(made: Any, v: Any) -> bool:
    """Whether two sets give their items in one order, and go on doing so when more come."""
    return all(map(is_, made, v)) and made.__sizeof__() == v.__sizeof__()


def _container(kind: type) -> type | None:
    """The class of C code whose instances those of a class are, with attributes besides; None for others."""
    if not heap_class(kind):
        return None
    plain = [base for base in kind.__mro__ if not heap_class(base) and base is not object]
    for base in (OrderedDict, dict, list):
        if (
            plain
            and plain[0] is base
            and set(plain) <= {base, dict}
            and lookup(kind, "__new__") is base.__new__
        ):
            return base
    return None


def _constant(v: Any) -> bool:
    """Whether a value may stand in code as a constant."""
    return all(map(_constant, v)) if type(v) in (tuple, frozenset) else type(v) in ATOMS


def _steps(array: np.ndarray) -> list[int]:
    """The strides that matter, in bytes."""
    return [step for step, size in zip(array.strides, array.shape) if size > 1]


def _is_its_arguments(error: BaseException) -> bool:
    """Whether an error made anew of its arguments is all that it is: neither raised, nor told more."""
    if error.__dict__:
        return False
    again = type(error)(*error.args)
    kinds = (types.MemberDescriptorType, types.GetSetDescriptorType)
    told = [name for base in type(error).__mro__ for name, held in base.__dict__.items()
            if type(held) in kinds and name != "__dict__"]  # fmt: skip
    return all(getattr(error, name, None) is getattr(again, name, None) for name in told)


def _why_not(v: Any, kind: type) -> str:
    if issubclass(type(v), Module):
        return "a module that the run made outlives it"
    if issubclass(kind, BaseException) and v.__traceback__ is not None:
        return f"{indefinite(kind)} that was raised outlives the run, and holds its frames"
    if type(v) is types.FunctionType:
        return f"the function {v.__qualname__}, made in the run, outlives it"
    return f"{indefinite(kind)} that the run made outlives it, and can't be made again"


def told(how: str, x: Tensor) -> Any:
    """What Python is told of a tensor."""
    return READERS[how](x._data)


def set_items(made: dict, items: tuple) -> None:
    """Fill a dictionary, whatever its class makes of missing keys."""
    put = OrderedDict.__setitem__ if issubclass(type(made), OrderedDict) else dict.__setitem__
    for key, value in items:
        put(made, key, value)


def set_fields(made: Any, items: tuple) -> None:
    """Give an object its attributes, frozen ones too."""
    for name, value in items:
        object.__setattr__(made, name, value)


_MAKERS = {"set_items": set_items, "set_fields": set_fields, "told": told}

__all__ = ["Outcome"]
