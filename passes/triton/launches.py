"""A program as a list of launches: what a GPU's stream is given, one after the other.

    launches of net: arena of 512 bytes
      k3f9a...(param 0, param 1, arena+0)  # matmul_relu
      arena+0 -> result 0: 512 bytes

The memory plan is that of the CPU: a stream runs in order, so arrays that are never needed at once share
bytes there too.  Flags of checked indices are further results, looked at before any other result is handed
over.  The list is plain data but for its constants: it is kept in the cache with the codes' text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ...ir.errors import GraphError
from ..kernels.index_check import index_check, trusted
from ..programs.host_parts import Check, OnHost, check, fields_from, on_host
from ..programs.memory_plan import MemoryPlan, Move, Place, verify
from ..programs.plan_memory import plan_memory
from ..programs.program import Alias, Array, Call, Host, Program
from ..programs.split_calls import split_calls
from ..programs.with_checks import with_checks
from .code import ALIGNMENT, Code
from .generate import generate

FORMAT = 2  # of the list as text: part of every key in the cache

Kind = tuple[str, tuple[int, ...]]  # an array's element type and shape


@dataclass(frozen=True)
class Launch:
    """One kernel.  code: its number among the list's codes.  about: the kernel's name, for people."""

    code: int
    arguments: tuple[Place, ...]
    about: str


Part = Launch | Move | OnHost | Check
_PARTS: dict[str, Any] = {"launch": Launch, "move": Move, "host": OnHost, "check": Check}


@dataclass(frozen=True)
class Launches:
    """What the runtime must know of a program to run it on a GPU.

    names: of the params.  into: for each result the param whose memory it goes to.  arena: bytes.  checks:
    the kernels whose indices are checked; their flags are the last results.  codes: the distinct ones.
    """

    name: str
    names: tuple[str, ...]
    params: tuple[Kind, ...]
    results: tuple[Kind, ...]
    into: tuple[int | None, ...]
    constants: tuple[Kind, ...]
    arena: int
    parts: tuple[Part, ...]
    checks: tuple[str, ...]
    codes: tuple[Code, ...]

    def json(self) -> str:
        """As text, which `from_json` makes the same list of."""
        names = {kind: name for name, kind in _PARTS.items()}
        fields = asdict(self)
        fields["parts"] = [{"is": names[type(part)]} | asdict(part) for part in self.parts]
        return json.dumps({"format": FORMAT} | fields)

    @classmethod
    def from_json(cls, text: str | bytes) -> Launches:
        """Raises ValueError, KeyError or TypeError for anything but a list of this format."""
        fields = json.loads(text)
        if not isinstance(fields, dict) or fields.pop("format") != FORMAT:
            raise ValueError("a list of launches of another format")
        for name in ("params", "results", "constants"):
            fields[name] = tuple((dtype, tuple(shape)) for dtype, shape in fields[name])
        for name in ("names", "into", "checks"):
            fields[name] = tuple(fields[name])
        fields["codes"] = tuple(map(Code.of, fields["codes"]))
        fields["parts"] = tuple(_part(dict(part)) for part in fields["parts"])
        return cls(**fields)

    def __str__(self) -> str:
        lines = [f"launches of {self.name}: arena of {self.arena} bytes"]
        for part in self.parts:
            if isinstance(part, Launch):
                arguments = ", ".join(map(str, part.arguments))
                lines.append(f"  {self.codes[part.code].name}({arguments})  # {part.about}")
            elif isinstance(part, Move):
                lines.append(f"  {part}: {part.nbytes} bytes")
            else:
                lines.append(
                    f"  {'host' if isinstance(part, OnHost) else 'check'}: {part.text.splitlines()[0]}"
                )
        return "\n".join(lines)


def _part(fields: dict[str, Any]) -> Part:
    kind = _PARTS[fields.pop("is")]
    fields = fields_from(fields)
    for name in fields.keys() & {"source", "target"}:
        fields[name] = Place(**fields[name])
    if "arguments" in fields:
        fields["arguments"] = tuple(Place(**place) for place in fields["arguments"])
    return kind(**fields)


def launch_plan(program: Program) -> tuple[MemoryPlan, tuple[str, ...]]:
    """Where everything is, its checks and divided calls included; and the kernels that flags stand for."""
    program, flags = with_checks(program)
    program = program.replace(
        results=(*program.results, *flags), into=(*program.into, *(None for _ in flags))
    )
    return verify(plan_memory(split_calls(program))), tuple(flags.values())


def launch_list(program: Program) -> tuple[Launches, tuple[np.ndarray, ...]]:
    """The launches of a program, and its constants.

    Raises GraphError, KernelError for a program that can't be planned, or whose kernels have no Triton code.
    """
    plan, checks = launch_plan(program)
    codes: dict[Code, int] = {}
    parts = tuple(_parts(plan, codes))
    planned = plan.program
    return Launches(
        planned.name,
        tuple(param.name for param in planned.params),
        tuple(map(_kind, planned.params)),
        tuple(map(_kind, planned.results)),
        planned.into,
        tuple(map(_kind, planned.constants)),
        plan.arena,
        parts,
        checks,
        tuple(codes),
    ), tuple(planned.constants.values())


def _kind(array: Array) -> Kind:
    return array.dtype, array.shape


def _parts(plan: MemoryPlan, codes: dict[Code, int]) -> Iterator[Part]:
    steps = plan.program.steps
    for number, step in enumerate(steps):
        yield from _moves(plan, number)
        if isinstance(step, Host):
            yield on_host(step, plan.places)
        elif isinstance(step, Call):
            if any(trusted(step.kernel)) and index_check(step.kernel) is None:
                yield check(step.kernel, step.inputs, plan.places)
            inputs, outputs = plan.arguments(step)
            places = tuple(place for place in (*inputs, *outputs) if place is not None)
            # an alias begins at any element of the array that it is a part of
            code = generate(step.kernel, step.how, [place.start % ALIGNMENT == 0 for place in places])
            if len(places) != len(code.parameters):
                raise GraphError(
                    f"{step.name}: a code takes the kernel's buffers", f"parameters: {code.parameters}"
                )
            if code.grid:
                yield Launch(codes.setdefault(code, len(codes)), places, step.name)
        else:
            assert isinstance(step, Alias)
    yield from _moves(plan, len(steps))


def _moves(plan: MemoryPlan, number: int) -> Iterator[Move]:
    return (move for move in plan.moves.get(number, ()) if move.nbytes)
