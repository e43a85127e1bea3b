"""What a stretch of a run took for granted, as text that becomes one Python function.

A run is divided where Python asked for a tensor's value; each stretch has a `Part`.  Its lines read places of
the heap, in the order in which the run came to them, and compare; places whose objects differ from call to
call are kept in slots, `S[i]`, the first of which are the arguments.
"""

from __future__ import annotations

import operator
import os
import re
import struct
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...nn.members import fields
from ...runtime import Tensor
from ...runtime.compound import Compound
from ...runtime.graph import Leaf
from ...runtime.inplace import root
from ...runtime.interrupts import let_through
from ...runtime.places import Place, line_of
from ..facts import Words, absent, changed, exact, shown
from .deaths import SILENT, Reach, in_cell, noticed
from .kinds import ATOMS, MISSING, Method, lookup
from .spelling import peek
from .whole import difference, state_names


@dataclass(frozen=True)
class Reason:
    """One thing that must still hold.

    text: how a reader knows the place.  place: the line that read it.  read: the expression that gives what
    stands there now, if that can be shown; or `now`, that as text.  seen: what stood there, as text.  slot:
    the place as a key, equal in all runs, by which it is told that the same place keeps changing.
    """

    text: str
    place: Place | None = None
    read: str | None = None
    seen: str = ""
    slot: tuple | None = None
    now: str = ""


def place_text(place: Place) -> str:
    """A place as `model.py:41`."""
    filename, line = line_of(place)
    return f"{os.path.basename(filename)}:{line}"


class Whole(NamedTuple):
    """A module taken in whole: what it was, what a reader calls it; texts: what stood in it."""

    reach: Callable[[], Any]
    before: dict[str, Any]
    path: str
    apart: frozenset[str]
    texts: dict[str, str]
    place: Place


@dataclass
class Part:
    """The guards of one stretch.

    lines, reasons: of the function that runs at each call.  names: what its text calls by name; weak: those
    of them that are held weakly.  later, late: lines and reasons for what only changes with the epoch of all
    modules, or when a hook is hung on a tensor.  modules, optimizers: taken in whole.  held: captured tensors
    found here, by their number.  slots: of objects and tensors found here.  pins: identities of objects
    pinned here.  places: the slots, as `Reason` has them, where named objects were found.  tensors: of those
    in slots the expression, the type, and the slot as `Reason` has it.
    """

    lines: list[str] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)
    weak: set[str] = field(default_factory=set)
    later: list[str] = field(default_factory=list)
    late: list[Reason] = field(default_factory=list)
    modules: list[Whole] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    pins: list[int] = field(default_factory=list)
    places: dict[str, tuple | None] = field(default_factory=dict)
    tensors: list[tuple[str, Any, tuple | None]] = field(default_factory=list)

    def same(self, other: Part) -> bool:
        """Whether two runs took the same for granted."""
        return (
            self.lines == other.lines
            and self.later == other.later
            and self.held == other.held
            and self.names.keys() == other.names.keys()
            and all(_alike(a, other.names[name]) for name, a in self.names.items())
            and _all(_same_module, self.modules, other.modules)
            and _all(_same_optimizer, self.optimizers, other.optimizers)
        )

    def go_on(self, other: Part) -> None:
        """Take the guards of the stretch that follows."""
        self.lines += [_counted_on(line, len(self.reasons)) for line in other.lines]
        self.later += [_counted_on(line, len(self.late)) for line in other.later]
        self.reasons += other.reasons
        self.late += other.late
        self.names.update(other.names)
        self.weak |= other.weak
        self.places.update(other.places)
        for name in ("modules", "optimizers", "held", "slots", "pins", "tensors"):
            getattr(self, name).extend(getattr(other, name))

    def compiled(self) -> tuple[Callable[[list], int], Callable[[list], int]]:
        """Two functions of the slots: the lines, and those that depend on the epoch.

        They return 0 where all holds, else the number of the reason that doesn't, from 1; -1 where reading
        failed.
        """
        return self._function("guard", self.lines), self._function("later", self.later)

    def _function(self, name: str, lines: list[str]) -> Callable[[list], int]:
        if not lines:
            return _holds
        heads = self.heads(lines)
        said = _said([*heads, *lines])
        given = {("r" + k if k in self.weak else k): v for k, v in self.names.items() if k in said}
        body = "\n        ".join([*heads, *lines])
        parameters = ", ".join(["S", *(f"{k}={k}" for k in (*WORDS, *given) if k in said)])
        tail = "    except Exception as error:\n        let_through(error)\n        return -1\n    return 0"
        source = f"def {name}({parameters}):\n    try:\n        {body}\n{tail}"
        scope = {**WORDS, **given}
        exec(compile(source, f"<{name}>", "exec"), scope)
        return scope.pop(name)  # or the two would keep one another

    def heads(self, lines: list[str]) -> list[str]:
        """The lines that reach what is held weakly, ahead of lines that use it."""
        said = _said(lines)
        weak = [k for k in self.names if k in self.weak and k in said]
        if not weak:
            return []
        # What died is not None that stands in its place.
        gone = f"if {' or '.join([f'{k} is None' for k in weak])}: return -1"
        return [*[f"{k} = r{k}()" for k in weak], gone]

    def first(self, lines: list[str], reasons: list[Reason], S: list) -> Reason | None:
        """The reason of the first line that can't be run, or finds something else; each is run by itself."""
        scope = {**WORDS, "S": S}
        scope.update((k, (v(), _GONE)[v() is None] if k in self.weak else v) for k, v in self.names.items())
        for at, line in enumerate(lines):
            check = _CHECK.fullmatch(line)
            try:
                if check is None:
                    exec(line, scope)
                elif eval(check[1], scope):
                    return reasons[int(check[2]) - 1]
            except Exception as error:
                let_through(error)
                follows = next((found for rest in lines[at:] if (found := _CHECK.fullmatch(rest))), None)
                what = line.partition(" = ")[2].partition(" = ")[2]
                return reasons[int(follows[2]) - 1] if follows else Reason(f"what {what} computes")
        return None

    def failing(self, S: list) -> list[Reason]:
        """The reasons of the lines that find something else at places that have a key.

        What is read through an object is asked only where the object is what it was: of another class reading
        may change it, as it does a defaultdict, or a generator.
        """
        found: list[Reason] = []
        scope = {**WORDS, "S": S}
        scope.update((k, (v(), _GONE)[v() is None] if k in self.weak else v) for k, v in self.names.items())
        for lines, reasons in ((self.lines, self.reasons), (self.later, self.late)):
            others: list[str] = []  # expressions that give something else
            lost, slot = False, None  # whether `v` is something else, and the slot that it is in
            for line in lines:
                check = _CHECK.fullmatch(line)
                if check is None:
                    kept = _KEPT.match(line)
                    slot = None if kept is None else kept[1]
                    lost = any(text in line for text in others)
                    try:
                        if not lost:
                            exec(line, scope)
                    except Exception as error:
                        let_through(error)
                        lost = True
                    others += [slot] if lost and slot is not None else []
                    continue
                if lost and _V.search(check[1]) or any(text in check[1] for text in others):
                    continue
                try:
                    if not eval(check[1], scope):
                        continue
                except Exception as error:
                    let_through(error)
                    continue
                reason = reasons[int(check[2]) - 1]
                found += [reason] if reason.slot is not None else []
                asked = {reason.read, *_TYPE_OF.findall(check[1])} - {None}
                if "v" in asked:
                    lost = True
                    asked = (asked - {"v"}) | ({slot} - {None})
                others += asked
        return found

    def resized(self, S: list) -> list[tuple]:
        """The sizes of tensors in slots that are not as they were, as slots of `Reason`."""
        found: list[tuple] = []
        for expression, kind, slot in self.tensors:
            x = S[int(expression[2:-1])]
            if slot is None or not isinstance(x, Tensor) or x._meta is kind:
                continue
            now = x._meta
            if now.dtype is kind.dtype and now.device is kind.device and len(now.shape) == len(kind.shape):
                found += [(*slot, d) for d, (a, b) in enumerate(zip(kind.shape, now.shape)) if a != b]
        return found

    def naming(self, names: list[str]) -> Reason | None:
        """The reason of the first line that says one of these names."""
        said = re.compile("|".join(map(r"\b{}\b".format, names)) or "(?!)")
        for lines, reasons in ((self.lines, self.reasons), (self.later, self.late)):
            for line in lines:
                if (check := _CHECK.fullmatch(line)) and said.search(line):
                    return reasons[int(check[2]) - 1]
        return None

    def light(self, reason: Reason) -> tuple[Part, Reason]:
        """A part that tells of one reason and keeps nothing alive; what stands there now may be left open."""
        words = _said([reason.read or ""]) & self.names.keys()
        names = {k: self.names[k] for k in words}
        slots = re.findall(r"S\[\d+\]", reason.read or "")
        found = any(f"{slot} = " in line for slot in slots for line in self.lines)  # in a slot, by a guard
        if found or not all(k in self.weak or type(v) in ATOMS or _is_globals(v) for k, v in names.items()):
            return Part(), replace(reason, read=None, now="another")
        return Part(names=names, weak=self.weak & words), reason

    def told(self, reason: Reason, S: list) -> str:
        """A reason with what stood there, what stands there now, and the line that reads it."""
        now = self.now(reason, S)
        change = f": {changed(reason.seen, now)}" if reason.seen or now else ""
        return reason.text + change + (f" ({place_text(reason.place)})" if reason.place else "")

    def now(self, reason: Reason, S: list) -> str:
        """What stands at a reason's place now, as text."""
        if reason.read is None:
            return reason.now
        scope = {**WORDS, "S": S}
        scope.update((k, v() if k in self.weak else v) for k, v in self.names.items())
        try:
            return shown(eval(reason.read, scope))
        except Exception as error:
            let_through(error)
            return shown(absent)


def _counted_on(line: str, before: int) -> str:
    """A line whose reason stands behind so many others."""
    return _RETURN.sub(lambda found: f": return {int(found[1]) + before}", line)


def _all(same: Callable[[Any, Any], bool], some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(map(same, some, others))


def _same_module(a: Whole, b: Whole) -> bool:
    return a.reach() is b.reach() and a.apart == b.apart and difference(a.before, b.before) is None


def _same_optimizer(a: tuple, b: tuple) -> bool:
    (one, (objects, _), _, apart), (other, (others, _), _, also) = a, b
    return one() is other() and apart == also and _all(operator.is_, objects, others)


def _alike(a: Any, b: Any) -> bool:
    if type(a) is Reach:
        return type(b) is Reach and a() is b()
    return exact(a, b)


_CHECK = re.compile(r"if (.*): return (\d+)", re.DOTALL)
_RETURN = re.compile(r": return (\d+)$")
_KEPT = re.compile(r"v = (S\[\d+\]) = ")  # a line that puts what it reads into a slot
_TYPE_OF = re.compile(r"\btype\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_V = re.compile(r"\bv\b")
_GONE = object()  # stands for what died


def _said(lines: list[str]) -> set[str]:
    """The words of a text."""
    return {*re.findall(r"\w+", "\n".join(lines))}


def _is_globals(o: Any) -> bool:
    return type(o) is dict and "__name__" in o and "__builtins__" in o


def _holds(S: list) -> int:
    return 0


# ---- the words of guards -----------------------------------------------------------------------------------
def bits(value: float) -> bytes:
    """A float as its bits, so that -0.0 is not 0.0, and NaN is NaN."""
    return struct.pack("d", value)


def contents(array: Any) -> tuple:
    """What a NumPy array holds."""
    if isinstance(array, np.ndarray):
        return array.dtype.str, array.shape, array.strides, array.flags.num, array.tobytes()
    return array.dtype.str, array.tobytes()


def history(x: Tensor) -> int:
    """0: it has no history; 1: it starts one; 2: it was computed from what has one; 3: it has none, and is a
    view of what has, which refuses most writes.
    """
    if x._view is None:
        node = x._edge
    elif (node := x._node) is None and root(x)._node is not None:
        return 3
    return 0 if node is None else 1 if type(node) is Leaf else 2


# By what `history` says of a tensor.
HISTORIES = ("none", "starts here", "was computed", "none, but for what it is a view of")


def layout(x: Tensor) -> Any:
    """How the elements lie: True row by row, else the strides."""
    data = x._data
    return data.flags.c_contiguous or data.strides


def lying(x: Any) -> Words:
    """How a reader is told of a tensor that is made of one."""
    return Words(x.shown() if isinstance(x, Compound) else shown(x))


def hung(x: Tensor) -> tuple:
    """The hooks of a leaf: those that get its gradient, and those called afterwards; () where it has none."""
    node = x._node
    if type(node) is not Leaf or not (node.hooks or node.after):
        return ()
    hooks, after = (node.hooks or {}).get(0, ()), node.after or ()
    return (tuple(hooks), tuple(after)) if hooks or after else ()


def alias(o: Any, other: Any, path: str) -> Any:
    """What is told of an object that was known as another."""
    return Words(f"is {path}") if o is other else o


def meeting(S: list, slots: dict[int, str], pins: dict[int, str]) -> Words:
    """Which of the objects in slots are one, or are pinned; slots, pins: what a reader calls them."""
    seen = dict(pins)
    for at, path in slots.items():
        other = seen.setdefault(id(S[at]), path)
        if other is not path:
            return Words(f"{path} is {other}")
    return Words("no")


def distinct(S: list, slots: tuple[int, ...], pins: frozenset[int]) -> bool:
    """Whether the objects in slots are different objects, and none of those that are pinned."""
    ids = {id(S[i]) for i in slots}
    return len(ids) == len(slots) and pins.isdisjoint(ids)


def item(o: dict, k: Any) -> Any:
    """What a dictionary of any class holds, without `__missing__` and default factories."""
    found = dict.get(o, k, MISSING)
    if found is MISSING:
        raise KeyError(k)
    return found


WORDS: dict[str, Any] = {
    "bits": bits, "contents": contents, "history": history, "layout": layout, "distinct": distinct,
    "hung": hung, "lying": lying,
    "lookup": lookup, "fields": fields, "exact": exact, "MISSING": MISSING, "ATOMS": ATOMS, "MT": Method,
    "id": id, "isinstance": isinstance, "getattr": getattr, "len": len, "list": list, "tuple": tuple,
    "int": int, "float": float, "str": str, "bytes": bytes, "bool": bool, "type": type, "object": object,
    "dict": dict, "set": set, "sorted": sorted, "iter": iter, "map": map, "all": all, "any": any,
    "geterr": np.geterr, "printoptions": np.get_printoptions, "state_names": state_names, "hash": hash,
    "repr": repr, "peek": peek, "alias": alias,
    "meeting": meeting, "item": item, "SILENT": SILENT, "noticed": noticed, "in_cell": in_cell,
    "HISTORIES": HISTORIES, "set_": set, "frozenset": frozenset, "weakref": weakref,
    "let_through": let_through,
}  # fmt: skip
