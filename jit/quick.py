"""The short way for calls that only compute: guards, native code and results in one generated function.

A path takes it that has one segment, whose inputs are tensors among the arguments and captured ones, and that
writes nothing: inference, mostly.  Captured tensors' arrays, and what was computed of weights alone, are kept
for as long as no module and no tensor has changed anywhere (two epochs say so); then they are looked at anew.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import dtypes, meeting
from ..ir.dims import substitute
from ..ir.errors import DistributedError
from ..ir.types import type_of
from ..nn import epoch
from ..runtime import Tensor, changes
from ..runtime.storage import Inferred
from .guards import Guard
from .observe.parts import WORDS
from .sized import MOST
from .sources import Arg, Held
from .tree import Branch, Tree, wrap_inferred

MISS: Any = type("Miss", (), {"__slots__": (), "__repr__": lambda self: "a miss"})()
AFTER = 8  # calls on the long way, which measures them, before a path takes the short one

Quick = Callable[[Sequence[Any]], Any]


def quick(branch: Branch, tree: Tree, arguments: int) -> Quick | None:
    """The function of so many arguments that serves a branch, or returns MISS; None where it can't be had."""
    segment = branch.segment
    if segment is None or segment.end is None or segment.code is None or not segment.end.conditions.none:
        return None
    end = segment.end
    if end.recording.outcome.lock is not None:
        return None
    code = segment.code
    if code.main is None or code.complexes is not None:  # interpreted, or arrays are seen as pairs
        return None
    sources = [tree.sources[key] for key in segment.inputs]
    if end.plain is None or end.live is not None or not all(isinstance(s, (Arg, Held)) for s in sources):
        return None
    return _Quick(branch, tree, sources, arguments).function()


@functools.lru_cache(256)
def _runner(given: str) -> Callable:
    """What makes a function of the slots of native code and of what is kept.  given: the arrays' texts."""
    return eval(f"lambda main, K: lambda S: main({given})")


class _Quick:
    def __init__(self, branch: Branch, tree: Tree, sources: list[Arg | Held], arguments: int):
        segment = branch.segment
        assert segment is not None and segment.end is not None and segment.end.plain is not None
        self.guard: Guard = branch.guard
        self.path, self.slots, self.sources = branch.path, tree.slots, sources
        self.code, self.plain, self.outcome = segment.code, segment.end.plain, segment.end.recording.outcome
        self.symbols = segment.symbols
        self.kept: list[np.ndarray] = []
        self.entries: dict[tuple[int, ...], tuple] = {}  # by sizes: what runs, and the types of its results
        self.arguments, self.default = arguments, dtypes.default_dtype()
        self.carrier = meeting.CARRIER
        self.renewing = threading.RLock()  # or an older look could replace what a newer one kept

    def function(self) -> Quick:
        """Generate it."""
        part = self.guard.part
        names: dict[str, Any] = {
            "Tensor": Tensor, "new": object.__new__, "MISS": MISS, "main": self.code.main, "K": self.kept,
            "epoch": epoch, "changes": changes, "renew": self.renew, "path": self.path,
            "E": [None, None, None], "leave": self.outcome.run,
        }  # fmt: skip
        self.epochs = names["E"]
        more = self.slots - self.arguments
        guards = [*part.heads(part.lines), *part.lines]
        lines = ["S = [*A" + ", None" * more + "]" if more else "S = A"]
        lines += [re.sub(r": return -?\d+$", ": return MISS", line) for line in guards]
        lines.append(
            "if epoch.value is not E[0] or changes.objects is not E[1] or changes.contents is not E[2]:"
        )
        lines.append("    if not renew(S): return MISS")
        if self.symbols:
            sizes = "".join(f"S[{at}], " for at in self.symbols.values())
            names |= {"entries": self.entries, "entry": self.entry}
            lines.append(f"run, metas = entries.get(({sizes})) or entry(({sizes}), S)")
            lines += ["if run is None: return MISS", "outputs = run(S)"]
        else:
            lines.append(f"outputs = main({', '.join(self.operands(self.code))})")
        tail = []
        names["Inferred"] = Inferred
        for number, (place, meta, make) in enumerate(self.plain):
            names[f"m{number}_"] = meta
            tail += [
                f"t{number} = new(Tensor)",
                f"t{number}._data = outputs[{place}]",
                f"t{number}._meta = {f'metas[{number}]' if self.symbols else f'm{number}_'}",
                f"t{number}._edge = t{number}._storage = t{number}._view = None",
                *([f"t{number}._storage = Inferred()"] if make is wrap_inferred else ()),
            ]  # fmt: skip
        made = ", ".join(f"t{number}" for number in range(len(self.plain)))
        tail += ["path.hits += 1", "return t0" if self.outcome.plain == 0 else f"return leave(S, [{made}])"]
        names |= {("r" + k if k in part.weak else k): v for k, v in part.names.items()}
        body = "\n".join([
            f"def quick({', '.join(['A', *(f'{name}={name}' for name in names)])}):",
            "    try:", *(f"        {line}" for line in lines),
            "    except DistributedError:", "        raise",  # or other ranks are told again
            "    except Exception as error:", "        let_through(error)", "        return MISS",
            *(f"    {line}" for line in tail),
        ])  # fmt: skip
        scope = {**WORDS, **names, "DistributedError": DistributedError}
        exec(compile(body, "<quick>", "exec"), scope)
        return scope.pop("quick")

    def operands(self, code: Any) -> list[str]:
        """The expression of each array that native code takes: of a slot, or of what is kept, `K`."""
        found: list[str] = []
        self.fixed: list[int] = []  # places of inputs, from 0, or of the prologue's results, from -1 down
        for at in code.main_params:
            source = self.sources[at] if at >= 0 else None
            if isinstance(source, Arg):
                found.append(f"S[{source.index}]._data")
            else:
                found.append(f"K[{len(self.fixed)}]")
                self.fixed.append(at)
        return found

    def entry(self, sizes: tuple[int, ...], S: list) -> tuple:
        """What runs for these sizes, and the types of its results; twice None where there is no code yet."""
        code = self.code.known(sizes)
        if code is None or code.main is None:
            return None, None
        with self.renewing:
            held = self._held()
            if held is None:
                return None, None
            if len(self.entries) >= MOST:
                self.entries.clear()
            given = ", ".join(self.operands(code))
            run = _runner(given)(code.main, self._arrays(code, held))
            named = dict(zip(self.symbols, sizes))
            metas = [
                type_of(meta.dtype, tuple([substitute(n, named) for n in meta.shape]), meta.device)
                for _, meta, _ in self.plain
            ]
            made = self.entries[sizes] = run, metas
        return made

    def _held(self) -> dict[int, Any] | None:
        """The captured tensors, by their places among the inputs; None where one is gone."""
        held = {
            at: self.guard.registry.refs[s.index]()
            for at, s in enumerate(self.sources)
            if isinstance(s, Held)
        }
        return None if None in held.values() else held

    def _arrays(self, code: Any, held: dict[int, Any]) -> list[np.ndarray]:
        """What is kept for a code, in the order of `fixed`."""
        made = code.prologue.results([held[at] for at in code.first_params]) if code.prologue else ()
        return [held[at]._data if at >= 0 else made[-1 - at] for at in self.fixed]

    def renew(self, S: list) -> bool:
        """Look at all that is captured anew; whether it is still as it was recorded."""
        with self.renewing:
            return self._renewed(S)

    def _renewed(self, S: list) -> bool:
        epoch.settle()
        now = epoch.value, changes.objects, changes.contents  # of which a new default dtype moves one
        if dtypes.default_dtype() is not self.default or meeting.CARRIER is not self.carrier:
            return False
        if self.guard.failing(S) is not None:
            return False
        held = self._held()
        if held is None:
            return False
        if self.symbols:
            self.entries.clear()  # what they keep is looked at anew
        else:
            self.kept[:] = self._arrays(self.code, held)
        exposed = any(x._storage is not None and x._storage.exposed for x in held.values())
        unsettled = now[0] != now[0]  # somebody keeps a module's dictionary
        self.epochs[:] = [None] * 3 if exposed or unsettled else now
        return True
