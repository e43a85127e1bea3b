"""What a model is quantised to, and which of its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from ..ir.errors import ArgumentError, LaminaError

STATIC = "int8"
SWAPPED = ("int8-dynamic", "int8-weights", "int4-weights", "bfloat16")
SCHEMES = (STATIC, *SWAPPED)

Skip = str | Sequence[str] | Callable[[str], bool]


class QuantizationError(LaminaError):
    """A model, a layer or data that can't be quantised as is asked."""


def no_layers(kept: Mapping[str, str]) -> QuantizationError:
    """The error for a model of which nothing is quantised.  kept: its layers, and why not."""
    return QuantizationError(
        "quantize: there is no layer that can be quantised", *(f"{name}: {why}" for name, why in kept.items())
    )


def not_finite(what: str, name: str) -> QuantizationError:
    """The error for a layer whose numbers are not finite.  what: which of them."""
    return QuantizationError(f"quantize: {what} of {name} is not finite", f"skip={name!r} leaves it in float")


@dataclass(frozen=True)
class Layers:
    """Which layers are quantised.

    skip: names or patterns (`"head"`, `"blocks.*.attn"`), each with all that is inside of it; or a function
    of a name.  keep_first, keep_last: leave the first or the last layer in float, in the order of the run.
    """

    skip: Skip = ()
    keep_first: bool = False
    keep_last: bool = False

    def kept(self, names: Sequence[str]) -> dict[str, str]:
        """Of these layers those that stay in float, with the reason.

        Raises ArgumentError for a pattern that none of them has.
        """
        found: dict[str, str] = {}
        if callable(self.skip):
            found.update((name, "skip") for name in names if self.skip(name))
        else:
            if not isinstance(self.skip, Iterable):
                raise ArgumentError(f"quantize(skip): names, patterns or a function, not {self.skip!r}")
            patterns = (self.skip,) if isinstance(self.skip, str) else tuple(self.skip)
            for pattern in patterns:
                matching = [name for name in names if _is_within(name, pattern)]
                if not matching:
                    raise ArgumentError(
                        f"quantize(skip): no layer has the name {pattern!r}", f"layers: {', '.join(names)}"
                    )
                found.update(dict.fromkeys(matching, "skip"))
        if names and self.keep_first:
            found[names[0]] = "keep_first"
        if names and self.keep_last:
            found[names[-1]] = "keep_last"
        return found


def _is_within(name: str, pattern: str) -> bool:
    """Whether a layer's name matches a pattern, or stands in a module that does."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:n]), pattern) for n in range(1, len(parts) + 1))


def need_scheme(scheme: Any) -> None:
    if scheme not in SCHEMES:
        raise ArgumentError(f"quantize(scheme): one of {', '.join(SCHEMES)}, not {scheme!r}")
