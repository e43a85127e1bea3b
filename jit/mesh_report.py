"""What `explain(mesh=True)` says: the collectives of a traced function's recordings, and the bytes they send.

collectives: recording 1: 3 in each call, in which a rank sends 2.2 KiB
     2.0 KiB  2 x all_reduce sum f64[8,16]  over dim 0 [0, 1]  train.py:31
       256 B  all_gather f64[8,4]  over dim 0 [0, 1]  train.py:33
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..ir.dims import substitute
from ..ir.ops.collectives import bytes_sent
from .blame import where_text

SHOWN = 64  # collectives of a recording that a reader is shown


def collectives_of(
    graph: Any, sizes: Mapping[str, int], dims: Mapping[tuple[int, ...], str]
) -> list[dict[str, Any]]:  # fmt: skip
    """The collectives of a graph, in order: op, how, type, group, dim, bytes, line.

    sizes: of symbols.  dims: what a mesh calls a group, by its ranks; None where it has no name.
    """
    found = []
    for node in graph.nodes:
        if not node.op.traits.meets:
            continue
        (kind,) = [x.type for x in node.inputs[:1]]
        shape = tuple([substitute(n, sizes) for n in kind.shape])
        kind, group = kind.with_shape(shape), node.attrs["group"]
        found.append({
            "op": node.op.name, "how": node.attrs.get("reduce", ""), "type": str(kind), "group": group,
            "dim": dims.get(group), "bytes": bytes_sent(node.op.name, kind, len(group)),
            "line": where_text(node.where) if node.where else "",
        })  # fmt: skip
    return found


def text(number: int, about: Sequence[Mapping[str, Any]], live: bool = False) -> list[str]:
    """The same for a reader, as lines; what differs in nothing is one line.

    number: of the recording.  live: its results have a history, which is walked outside of it.
    """
    more = ", and more in a backward outside" if live else ""
    if not about:
        return [f"  collectives: recording {number}: none{more}"]
    total = size_text(sum(each["bytes"] for each in about))
    lines = [
        f"  collectives: recording {number}: {len(about)} in each call, in which a rank sends {total}{more}"
    ]
    alike: dict[tuple, list[int]] = {}
    for each in about:
        dim = f"{each['dim']} " if each["dim"] else ""
        words = " ".join(filter(None, (each["op"], each["how"], each["type"])))
        key = words, f"{dim}{list(each['group'])}", each["line"]
        alike.setdefault(key, []).append(each["bytes"])
    for (words, group, line), sent in list(alike.items())[:SHOWN]:
        times = f"{len(sent)} x " if len(sent) > 1 else ""
        lines.append(f"    {size_text(sum(sent)):>10}  {times}{words}  over {group}  {line}".rstrip())
    if len(alike) > SHOWN:
        lines.append(f"    and {len(alike) - SHOWN} more kinds")
    return lines


def without_rules(notes: Iterable[str]) -> str:
    """Which ops gathered their operands, as there is no rule for them."""
    return "\n".join(f"  gathered, as there is no rule for it: {each}" for each in notes)


def size_text(count: float) -> str:
    """A number of bytes as a reader has it."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
