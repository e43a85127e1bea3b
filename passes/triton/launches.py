"""A program as a list of launches: what a GPU's stream is given, one after the other.

    launches of net: arena of 512 bytes
      k3f9a...(param 0, param 1, arena+0)  # matmul_relu
      arena+0 -> result 0: 512 bytes

The memory plan is that of the CPU: a stream runs in order, so arrays that are never needed at once share
bytes there too.  Flags of checked indices are further results, looked at before any other result is handed
over.  The list is plain data but for its constants: it is kept in the cache with the codes' text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...ir.errors import GraphError
from ..programs.host_parts import Check, OnHost, check, on_host
from ..programs.manifest import Manifest
from ..programs.memory_plan import MemoryPlan, Move, Place, verify
from ..programs.plan_memory import plan_memory
from ..programs.program import Alias, Call, Program, Whole, is_on_host
from ..programs.split_calls import split_calls
from ..programs.with_checks import with_checks
from .attention import attention_code
from .code import ALIGNMENT, Code
from .generate import apart_codes, programs_of
from .opening import Open
from .target import ANY, Target


@dataclass(frozen=True)
class Launch:
    """One kernel.  code: its number among the list's codes.  about: the kernel's name, for people."""

    code: int
    arguments: tuple[Place, ...]
    about: str


Part = Launch | Move | OnHost | Check


@dataclass(frozen=True)
class Launches(Manifest):
    """What the runtime must know of a program to run it on a GPU.

    The flags of what is checked are the last results.  codes: the distinct ones.
    """

    FORMAT = 4

    parts: tuple[Part, ...]
    codes: tuple[Code, ...]

    def is_sound(self) -> bool:
        launched = (part.code for part in self.parts if isinstance(part, Launch))
        return super().is_sound() and all(0 <= code < len(self.codes) for code in launched)

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


def launch_plan(program: Program, target: Target = ANY) -> tuple[MemoryPlan, tuple[str, ...]]:
    """Where everything is, its checks and divided calls included; and the kernels that flags stand for."""
    program, flags = with_checks(program)
    program = program.replace(
        results=(*program.results, *flags), into=(*program.into, *(None for _ in flags))
    )
    divided = split_calls(program, partial(programs_of, target=target))
    return verify(plan_memory(divided)), tuple(flags.values())


def launch_list(
    program: Program, target: Target = ANY, opens: Open = Open.NOTHING
) -> tuple[Launches, tuple[np.ndarray, ...]]:
    """The launches of a program on a target, and its constants.  opens: as of `apart_codes`.

    Raises GraphError, KernelError for a program that can't be planned, or whose kernels have no Triton code.
    """
    plan, checks = launch_plan(program, target)
    codes: dict[Code, int] = {}
    parts = tuple(_parts(plan, codes, target, opens))
    return Launches.of(plan, parts, checks, codes=tuple(codes)), tuple(plan.program.constants.values())


def _parts(plan: MemoryPlan, codes: dict[Code, int], target: Target, opens: Open) -> Iterator[Part]:
    steps = plan.program.steps
    for number, step in enumerate(steps):
        yield from _moves(plan, number)
        if is_on_host(step):
            yield on_host(step, plan.places)
        elif isinstance(step, (Call, Whole)):
            if isinstance(step, Call) and (part := check(step, plan.places, {})) is not None:
                yield part
            inputs, outputs = plan.arguments(step)
            places = tuple(place for place in (*inputs, *outputs) if place is not None)
            # an alias begins at any element of the array that it is a part of
            aligned = [place.start % ALIGNMENT == 0 for place in places]
            if isinstance(step, Call):
                made = apart_codes(step.kernel, step.how, aligned, target, opens)
            else:
                made = [attention_code(step, aligned, target, opens=opens)]
            for code in made:
                if len(places) + len(code.numbers) != len(code.parameters):
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
