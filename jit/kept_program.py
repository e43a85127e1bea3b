"""What a traced function does on tensors, kept for later processes, which then need not record it.

    kept = kept_program(traced, arguments, {id(weight): "lin.weight", ...})    # after a call
    kept = KeptProgram.unpack(kept.pack())                                     # in another process
    y = kept.on({"lin.weight": weight, ...})(tensors)

A recording holds for as long as its guards say; what is kept here has none but those on sizes.  So whoever
keeps it must know that everything else that the function reads is as it was.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..ir.dims import LEAST, Condition, Dim, function_of
from ..ir.dtypes import int64
from ..ir.errors import LaminaError
from ..ir.graph import Graph, Value
from ..ir.kernel.types import NUMPY
from ..ir.locks import fork_safe_lock
from ..ir.text import parse
from ..ir.types import type_of
from ..passes import cache as disk
from ..runtime import Tensor, changes
from ..runtime.history import storage_of
from . import backend
from .prologues import Prologue
from .pytree import flatten
from .sources import Arg, Fresh, Held, Made
from .trace import TracedFunction
from .tree import symbols_in

WORDS = {"not", "and", "or", "min", "max"}  # that a condition has beside symbols
CONDITION = re.compile(r"[\w+*/%(),<>=! -]+")
RELATIONS = {"==": "e", "!=": "d", ">=": "g"}
MOST = 256  # sets of sizes that are kept ready
SIZE = re.compile(r"S\[(\d+)\]")  # as guards spell it: of a slot


@dataclass(frozen=True)
class KeptProgram:
    """A graph, and what stands behind its params.

    origins: of each param the name of a weight, or the place of a tensor among the arguments'.  into: as
    `compile_graph` takes it.  frozen: the params that are weights.  result: which of the outputs is returned.
    least: of a size that is a symbol.  conditions: what must hold of the symbols besides.  needs: what the
    types take for granted of them.
    """

    graph: Graph
    origins: tuple[int | str, ...]
    into: tuple[int | None, ...]
    frozen: frozenset[int]
    result: int
    least: int
    conditions: tuple[str, ...]
    needs: tuple[Condition, ...]

    @property
    def symbols(self) -> dict[str, tuple[int, int]]:
        """Where each symbol's size is found: the param and its dimension."""
        found: dict[str, tuple[int, int]] = {}
        for at, param in enumerate(self.graph.params):
            for dim, n in enumerate(param.type.shape):
                if isinstance(n, Dim) and n.text.isidentifier():
                    found.setdefault(n.text, (at, dim))
        return found

    def pack(self) -> bytes:
        """As bytes."""
        constants = self.graph.constants
        told = [
            self.origins, self.into, sorted(self.frozen), self.result, self.least, self.conditions,
            self.needs_text, [(name, c.dtype.short, c.shape) for name, c in constants.items()],
        ]  # fmt: skip
        arrays = [c.data.tobytes() for c in constants.values()]
        return disk.pack(json.dumps(told).encode(), str(self.graph).encode(), *arrays)

    @classmethod
    def unpack(cls, data: bytes) -> KeptProgram:
        """What was packed.  Raises ValueError, TypeError, KeyError or LaminaError for anything else."""
        head, text, *arrays = disk.unpack(data)
        origins, into, frozen, result, least, conditions, needs, constants = json.loads(head)
        made = {
            name: np.frombuffer(array, NUMPY[dtype]).reshape(shape)
            for array, (name, dtype, shape) in zip(arrays, constants, strict=True)
        }
        graph = parse(text.decode(), made)
        kept = cls(
            graph,
            tuple(origins),
            tuple(into),
            frozenset(frozen),
            result,
            int(least),
            tuple(conditions),
            _needs(needs),
        )
        kept._need_sense()
        return kept

    @property
    def needs_text(self) -> str:
        """The conditions on types, as the text of a graph: their relations are its name."""
        relations = "".join(RELATIONS[c.relation] for c in self.needs)
        sides = [side for c in self.needs for side in (c.left, c.right)]
        params = [Value(type_of(int64, (side,)), "side") for side in sides]
        return str(Graph(f"needs{relations}", tuple(params), (), ()))

    def _need_sense(self) -> None:
        """Raises ValueError where its parts don't fit."""
        count, symbols = len(self.graph.params), self.symbols
        inside = [at for at in (*self.into, *self.frozen) if at is not None]
        words = re.findall(r"[^\W\d]\w*", " ".join(self.conditions))
        if (
            len(self.origins) != count
            or len(self.into) != len(self.graph.results)
            or not all(0 <= at < count for at in inside)
            or not 0 <= self.result < len(self.graph.results)
            or not all(map(CONDITION.fullmatch, self.conditions))
            or not WORDS.union(symbols).issuperset(words)
            or not symbols_in(self.graph) <= symbols.keys()
        ):
            raise ValueError("no program that was kept")

    def on(self, weights: Mapping[str, Tensor]) -> Running:
        """The program on these weights.  Raises KeyError where one is missing."""
        return Running(self, weights)


class Running:
    """A kept program on weights: called with the tensors among the arguments, it returns an array.

    It writes those that the function writes.  What it computes of weights alone it keeps until they change.
    Any number of threads may call it.
    """

    def __init__(self, kept: KeptProgram, weights: Mapping[str, Tensor]):
        self.kept, self._symbols = kept, kept.symbols
        self._weights: list[Any] = [weights[o] if isinstance(o, str) else None for o in kept.origins]
        self._places = [(at, o) for at, o in enumerate(kept.origins) if isinstance(o, int)]
        self._written = [o for at in kept.into if at is not None and isinstance(o := kept.origins[at], int)]
        self._codes = OrderedDict[tuple[int, ...], Any]()
        self._prologues: dict[Any, Prologue] = {}
        self._holds = function_of(tuple(self._symbols), kept.conditions)
        self._lock = fork_safe_lock()
        # While nothing happens to any tensor but these calls' own writes, each draws the next of the numbers
        # that all changes draw (runtime/changes.py): then the weights' arrays are what they were, and so is
        # what these prologues made of them.
        self._next, self._arrays, self._steady = 0, list[Any](), set[Prologue]()

    def is_on(self, weights: Mapping[str, Tensor]) -> bool:
        """Whether it is on these tensors."""
        named = zip(self.kept.origins, self._weights, strict=True)
        return all(weights.get(o) is x for o, x in named if isinstance(o, str))

    def __call__(self, tensors: Sequence[Tensor]) -> np.ndarray | None:
        """What is returned; None where the program is not for these sizes."""
        with self._lock:
            number = next(changes.numbers)
            if number != self._next:
                self._arrays = [None if x is None else x._data for x in self._weights]
                self._steady.clear()
            self._next, arrays = number + 1, [*self._arrays]
        for at, place in self._places:
            arrays[at] = tensors[place]._data
        code = self._code(tuple([arrays[at].shape[dim] for at, dim in self._symbols.values()]))
        if code is None:
            return None
        for place in self._written:  # before it is done, as where a recorded path is taken
            storage_of(tensors[place]).version += 1
        changes.contents = number
        are_same = code.prologue in self._steady
        found = code.run(arrays, self._weights, are_same)[self.kept.result]
        if not are_same and code.prologue is not None and code.prologue.is_steady:
            with self._lock:
                if self._next == number + 1:
                    self._steady.add(code.prologue)
        return found

    def _code(self, sizes: tuple[int, ...]) -> Any:
        with self._lock:
            found = self._codes.get(sizes)
            if found is not None:
                self._codes.move_to_end(sizes)
                return found
            kept = self.kept
            if min(sizes, default=kept.least) < kept.least or not all(self._holds(*sizes)):
                return None
            found = self._codes[sizes] = backend.compile_sized(
                kept.graph, dict(zip(self._symbols, sizes)), into=kept.into, frozen=kept.frozen,
                options=backend.options_of(0.0, None), prologues=self._prologues, needs=kept.needs,
            )  # fmt: skip
            while len(self._codes) > MOST:
                self._codes.popitem(last=False)
            return found


def kept_program(
    traced: TracedFunction, args: tuple, names: Mapping[int, str], least: int = LEAST
) -> KeptProgram | None:
    """What a call with these arguments, which was recorded, does; None where it does more than to compute.

    names: of the tensors that it may find elsewhere than in the arguments, by their `id`.  least: of the
    sizes that change, as they were marked.
    """
    found = traced.path_for(args)
    if found is None:
        return None
    segment, call = found
    end = segment.end
    if end is None or end.recording.questions or end.leftover:
        return None
    recording = end.recording
    if (
        recording.gradients or recording.draws or recording.groups or recording.switched or recording.live
        or len(recording.makers) != 1 or recording.outcome.plain != 0
    ):  # fmt: skip
        return None
    (maker,) = recording.makers
    plain = Made(Fresh(0, None), (), False, False, "none")
    if not isinstance(maker, Made) or replace(maker, inferred=False) != plain:
        return None
    given = {id(x): at for at, x in enumerate(tensors_of(args))}
    origins: list[int | str] = []
    sources = dict(zip(recording.graph.params, recording.sources, strict=True))
    for param in segment.graph.params:
        source = sources.get(param)
        x = call.tensor(source) if isinstance(source, Arg | Held) else None
        origin = given.get(id(x), names.get(id(x)))
        if origin is None:
            return None
        origins.append(origin)
    slots = {str(slot): name for name, slot in segment.symbols.items()}
    fails = dict.fromkeys(SIZE.sub(lambda s: slots.get(s[1], "?"), text) for text, _ in recording.guards)
    conditions = tuple(f"not ({text})" for text in fails)
    result = end.results[0][0]
    if result is None:
        return None
    made = KeptProgram(
        segment.graph, tuple(origins), segment.into, segment.frozen, result, least, conditions,
        recording.needs,
    )  # fmt: skip
    try:
        return KeptProgram.unpack(made.pack())
    except (LaminaError, ValueError, TypeError, KeyError):  # a guard on more than sizes, say
        return None


def tensors_of(args: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, in order."""
    found: list[Tensor] = []
    for x in args:
        kind = type(x)
        if kind is Tensor:  # at each token, of each layer two
            found.append(x)
        elif kind is tuple or kind is list:
            found += tensors_of(x)
        else:
            found += [leaf for leaf in flatten(x)[1] if isinstance(leaf, Tensor)]
    return found


def _needs(text: str) -> tuple[Condition, ...]:
    """What `needs_text` spelled."""
    graph = parse(text, {})
    sides = [param.type.shape[0] for param in graph.params]
    relations = {letter: relation for relation, letter in RELATIONS.items()}
    kinds = [relations[letter] for letter in graph.name.removeprefix("needs")]
    return tuple(Condition(*it) for it in zip(sides[::2], kinds, sides[1::2], strict=True))
