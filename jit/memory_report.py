"""What `explain(memory=True)` says: what a traced function's code holds of memory, and at which step most.

memory: recording 2: arena 356.1 MiB, inputs 51.3 MiB, packed weights 0.0 MiB, results 12.8 MiB
  ▁▂▂▃▃▄▅▅▆▇▇███▇▇▆▆▅▅▄▄▃▃▂▂▁
  fullest at step 108 of 331, pack (model.py:41), with
      16.0 MiB  %softmax: f32[32,8,128,128]  model.py:31, of steps 9 to 266
      …
  the allocator keeps 20.1 MiB of freed memory
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..passes.programs.memory_use import MemoryUse, memory_use
from ..passes.programs.program import Array
from ..runtime import memory

MIB = 1 << 20
SHOWN = 12  # arrays of those that live where most do
WIDTH = 72  # columns of the drawing
BARS = " ▁▂▃▄▅▆▇█"


def memory_of(code: Any) -> dict[str, Any]:
    """What a compiled graph holds, as plain values; sizes in bytes.

    arena; use: of it at each step; peak: the step where most is used, by number and name, and its line; held:
    what is in use there (name, type, bytes, line, first and last step), the largest first; inputs; packed:
    what is made of weights, and kept; results: those that are new arrays; constants.
    """
    weights, main = code.programs()
    use = memory_use(code.target.plan(main))
    step = use.steps[use.peak] if use.steps else None
    packed = _nbytes(weights.results)
    return {
        "arena": code.main.statistics.arena,
        "use": list(use.bytes),
        "peak": (use.peak, "" if step is None else step.name, _line(getattr(step, "where", None))),
        "held": _held(use),
        "inputs": _nbytes(main.params) - packed,
        "packed": packed,
        "results": _nbytes(r for r, into in zip(main.results, main.into, strict=True) if into is None),
        "constants": _nbytes(main.constants),
    }


def text(number: int, about: dict[str, Any]) -> list[str]:
    """The same for a reader, as lines.  number: of the recording."""
    parts = [f"arena {mib(about['arena'])}", f"inputs {mib(about['inputs'])}"]
    for key, name in (("packed", "packed weights"), ("results", "results"), ("constants", "constants")):
        if about[key]:
            parts.append(f"{name} {mib(about[key])}")
    lines = [f"  memory: recording {number}: {', '.join(parts)}"]
    if not about["use"] or not max(about["use"]):
        return lines
    at, name, line = about["peak"]
    where = f" ({line})" if line else ""
    lines.append(f"    {drawn(about['use'])}")
    lines.append(f"    fullest at step {at + 1} of {len(about['use'])}, {name}{where}, with")
    for one in about["held"][:SHOWN]:
        lines.append(
            f"    {mib(one['bytes']):>12}  %{one['name']}: {one['type']}"
            + (f"  {one['line']}," if one["line"] else " ")
            + f" of steps {one['first'] + 1} to {one['last'] + 1}"
        )
    if others := about["held"][SHOWN:]:
        lines.append(f"    {mib(sum(one['bytes'] for one in others)):>12}  {len(others)} more")
    return lines


def kept() -> list[str]:
    """What the C library keeps of freed memory, as lines."""
    found = memory.kept()
    return [] if found is None else [f"  memory: the allocator keeps {mib(found)} of freed memory"]


def drawn(use: Sequence[int]) -> str:
    """Bars, each for some steps: as high as the most that is used in them."""
    columns = min(WIDTH, len(use))
    cuts = [n * len(use) // columns for n in range(columns + 1)]
    most = [max(use[low:high]) for low, high in zip(cuts, cuts[1:])]
    return "".join(BARS[-(-value * (len(BARS) - 1) // max(use))] for value in most)


def mib(nbytes: int) -> str:
    return f"{nbytes / MIB:.1f} MiB"


def _held(use: MemoryUse) -> list[dict[str, Any]]:
    found = [
        {"name": one.array.name, "type": one.array.type, "bytes": one.nbytes, "line": _line(one.where),
         "first": one.first, "last": one.last}
        for one in use.held
    ]  # fmt: skip
    if use.scratch:
        found.append({"name": "scratch", "type": "of the step itself", "bytes": use.scratch, "line": "",
                      "first": use.peak, "last": use.peak})  # fmt: skip
    return sorted(found, key=lambda one: -one["bytes"])


def _line(where: tuple[str, int] | None) -> str:
    return "" if where is None else f"{where[0].rpartition('/')[2]}:{where[1]}"


def _nbytes(arrays: Iterable[Array]) -> int:
    return sum(array.nbytes for array in arrays)
