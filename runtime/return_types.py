"""The tuples that ops of several outputs return: fields by name, printed as PyTorch prints them."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from ..ir import dtypes

_made: dict[tuple[str, tuple[str, ...]], type] = {}


def return_type(name: str, fields: tuple[str, ...]) -> Any:
    """The tuple type of op `name` with those fields; made once, so that equal results have equal types.

    A record that serves one form of a public function, as max_dim does max, prints under the public name.
    """
    public = name.removesuffix("_dim")
    made = _made.get((public, fields))
    if made is None:
        base: type = namedtuple(public, fields)  # type: ignore[misc]
        members = {"__slots__": (), "__module__": "lamina.return_types"}
        methods = {"__new__": _from_any(base), "__repr__": _spelled, "__reduce__": _taken_apart}
        made = type(public, (base,), members | methods)
        _made[public, fields] = made
    return made


def _from_any(base: Any) -> Any:
    """`__new__` of such a type: of its values, or of all of them in a sequence, as PyTorch's are made."""
    count, make = len(base._fields), base.__new__

    def new(cls: type, *values: Any, **named: Any) -> Any:
        if len(values) == 1 < count and not named:
            (values,) = values
        elif values and type(values[-1]) is dict:  # as pickles have it: a sequence, and more by name
            values = values[0]
        return make(cls, *values, **named)

    return new


def _spelled(self: Any) -> str:
    lines = ",\n".join(f"{field}={value!r}" for field, value in zip(self._fields, self, strict=True))
    return f"{dtypes.namespace}.return_types.{type(self).__name__}(\n{lines})"


def _taken_apart(self: Any) -> tuple:
    return (_put_together, (type(self).__name__, self._fields, tuple(self)))


def _put_together(name: str, fields: tuple[str, ...], values: tuple) -> Any:
    return return_type(name, fields)(*values)
