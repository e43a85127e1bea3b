"""`str.format` field by field: what C code looks up, converts and formats there is the user's."""

from __future__ import annotations

import _string
from collections.abc import Callable
from typing import Any

_DEEPEST = 2  # a field of a field's own spec is the innermost that there may be
_TWO_WAYS = "cannot switch from {} to {}"
_COUNTED, _NAMED = "automatic field numbering", "manual field specification"


class Fields:
    """The fields of a format, filled in by a recorder.

    look_up: the argument of a name.  args: those by place; None where none may be asked for so.
    """

    def __init__(self, recorder: Any, args: tuple[Any, ...] | None, look_up: Callable[[str], Any]):
        self._recorder, self._args, self._look_up = recorder, args, look_up
        self._counted: bool | None = None  # whether fields without a name, or numbered ones, have been met
        self._next = 0

    def text(self, form: str, depth: int = _DEEPEST) -> str:
        """The format with its fields filled in, lifted where a number in it is.

        Raises what `str.format` raises, with its words.
        """
        if not depth:
            raise ValueError("Max string recursion exceeded")
        parts = []
        for literal, field, spec, conversion in _string.formatter_parser(form):
            parts.append(literal)
            if field is None:
                continue
            value = self._value(field)
            if conversion not in (None, "s", "r", "a"):
                raise ValueError(f"Unknown conversion specifier {conversion}")
            if conversion is not None:
                value = self._recorder.converted(value, conversion)
            if "{" in spec or "}" in spec:
                spec = self.text(spec, depth - 1)
            parts.append(self._recorder.formatted(value, None, spec))
        return self._recorder.joined(parts)

    def _value(self, field: str) -> Any:
        first, rest = _string.formatter_field_name_split(field)
        value = self._first(first)
        for is_attribute, name in rest:
            way = self._recorder.attribute if is_attribute else self._recorder.item
            value = way(value, name)
        return value

    def _first(self, name: int | str) -> Any:
        if type(name) is str and name:
            return self._look_up(name)
        if self._args is None:
            raise ValueError("Format string contains positional fields")
        counted = name == ""
        if self._counted not in (None, counted):
            ways = (_NAMED, _COUNTED) if counted else (_COUNTED, _NAMED)
            raise ValueError(_TWO_WAYS.format(*ways))
        self._counted = counted
        at, self._next = (self._next, self._next + 1) if counted else (int(name), self._next)
        if at >= len(self._args):
            raise IndexError(f"Replacement index {at} out of range for positional args tuple")
        return self._args[at]
