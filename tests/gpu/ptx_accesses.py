"""Which alignment machine code needs of each pointer: the widest access that its PTX makes from it.

    ld.param.b64 %rd1, [k_param_0];
    add.s64 %rd2, %rd1, 32;
    ld.global.v4.b32 { %r1, %r2, %r3, %r4 }, [ %rd2 + 0 ];      // parameter 0: 16 bytes

An address is followed from the parameter through every instruction that reads a 64-bit register.  Parameters
behind those that are asked for are scratch memory, where descriptors of tiles are.
"""

from __future__ import annotations

import re

_PREDICATE = re.compile(r"^@!?%p\d+\s+")
_PARAMETER = re.compile(r"ld\.param\.\w+\s+(%rd\d+),\s*\[\w+_param_(\d+)\]")
_ADDRESS = re.compile(r"\[\s*(%rd\d+)")
_REGISTER = re.compile(r"%rd\d+")
_ELEMENT = re.compile(r"\.[bsuf](\d+)(?:x(\d))?\b|\.bf16(?:x(\d))?\b")
_TOUCHES = re.compile(r"(ld|st|atom|red|cp\.async)\b.*\.global\b")


def widest(text: str, count: int) -> list[int]:
    """The bytes of the widest access from each of `count` parameters; 0 where none is made."""
    statements = _statements(text)
    sources: dict[str, set[int]] = {}  # by register, the parameters that it may point into
    while _spread(statements, sources):
        pass
    found = [0] * count
    for statement in statements:
        if _TOUCHES.match(statement):
            for parameter in _origins(sources, _ADDRESS.findall(statement)) & {*range(count)}:
                found[parameter] = max(found[parameter], _width(statement))
    return found


def _statements(text: str) -> list[str]:
    """The instructions, without comments, directives, labels and predicates."""
    lines = (line.split("//")[0].strip() for line in text.splitlines())
    parts = [
        part.strip() for line in lines if line[:1].isalpha() or line[:1] == "@" for part in line.split(";")
    ]
    return [_PREDICATE.sub("", part) for part in parts if part]


def _spread(statements: list[str], sources: dict[str, set[int]]) -> bool:
    """Hand what registers point into on to those that are computed of them; whether that was news.

    Shared memory counts as one register: pointers change places between threads there.
    """
    news = False
    for statement in statements:
        registers = _REGISTER.findall(statement)
        if parameter := _PARAMETER.match(statement):
            targets, origins = registers, {int(parameter[2])}
        elif statement.startswith("st.shared"):
            targets, origins = ["shared"], _origins(sources, registers)
        elif statement.startswith("ld.shared"):
            targets, origins = registers, _origins(sources, ["shared"])
        elif _TOUCHES.match(statement):
            continue
        else:
            targets, origins = registers[:1], _origins(sources, registers[1:])
        for target in targets:
            known = sources.setdefault(target, set())
            news = news or not origins <= known
            known |= origins
    return news


def _origins(sources: dict[str, set[int]], registers: list[str]) -> set[int]:
    return set().union(*(sources.get(register, set()) for register in registers))


def _width(statement: str) -> int:
    operation = statement.split(" ", 1)[0]
    if operation.startswith("cp.async.bulk.tensor"):
        return 16  # of the array that a descriptor is of
    if operation.startswith("cp.async"):
        return int(re.findall(r"0x([0-9a-fA-F]+)", statement)[0], 16)
    vector = re.search(r"\.v(\d)\b", operation)
    elements = _ELEMENT.findall(operation)
    assert elements, f"an access of no known type: {statement}"
    bits, pair, halves = elements[-1]
    return int(vector[1] if vector else 1) * int(bits or 16) * int(pair or halves or 1) // 8
