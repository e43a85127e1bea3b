"""What the runtime must know of a program of symbols: its manifest as formulas, for all sizes of one code.

As text, which is kept on disk, a formula is what Python reads: `s1*(s2+15)//16*64`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from ...ir.dims import Dim, function_of
from ...ir.kernel.affine import Extent
from ...ir.locks import cached_property
from .native_manifest import NativeManifest

Least = tuple[str, int]  # a formula, and what it is at least
WORDS = {"min", "max"}  # that formulas have beside symbols
FORMULA = re.compile(r"[\w+*/(),-]+")


@dataclass(frozen=True)
class Variant:
    """A program's code for some sizes.

    names: of the symbols.  fixed: the manifest with zeros for what depends on sizes, and no numbers of the
    table.  formulas: of these, in the order of `dims_of`.  offsets: of symbols in them, as
    `MemoryPlan` has them.  takes: what must be so where its code runs.  lacks: what larger tiles of a kernel
    would take, in groups of which each has one that does not hold.
    """

    names: tuple[str, ...]
    fixed: NativeManifest
    formulas: tuple[str, ...]
    offsets: tuple[tuple[str, tuple[str, ...]], ...]
    takes: tuple[Least, ...]
    lacks: tuple[tuple[Least, ...], ...]

    @classmethod
    def of(
        cls,
        names: Sequence[str],
        manifest: NativeManifest,
        offsets: Mapping[str, Sequence[Any]],
        takes: Sequence[tuple[Extent, int]],
        lacks: Sequence[Sequence[tuple[Extent, int]]],
    ) -> Variant:
        dims = tuple(map(str, _dims_of(manifest)))
        return cls(
            tuple(names),
            _with_dims(manifest, (0,) * (len(dims) - len(manifest.numbers))),
            dims,
            tuple((name, tuple(map(str, ends))) for name, ends in offsets.items()),
            _spelled(takes),
            tuple(map(_spelled, lacks)),
        )

    def serves(self, sizes: Mapping[str, int]) -> bool:
        """Whether these sizes are its own: other code of the program serves the others."""
        values = iter(self._bounds(**sizes))
        takes = [next(values) >= least for _, least in self.takes]
        return all(takes) and all(
            not all([next(values) >= least for _, least in group]) for group in self.lacks
        )

    def manifest(self, sizes: Mapping[str, int]) -> NativeManifest:
        """The manifest at these sizes."""
        return _with_dims(self.fixed, self._numbers(**sizes))

    @cached_property
    def _numbers(self) -> Any:
        return function_of(self.names, self.formulas, dict(self.offsets))

    @cached_property
    def _bounds(self) -> Any:
        return function_of(self.names, [dim for group in (self.takes, *self.lacks) for dim, _ in group])

    def json(self) -> str:
        """As text, which `from_json` makes the same of."""
        return json.dumps(
            [self.names, self.fixed.json(), self.formulas, self.offsets, self.takes, self.lacks]
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> Variant:
        """Raises ValueError, TypeError for what is no such text."""
        names, fixed, formulas, offsets, takes, lacks = json.loads(text)
        if not all(re.fullmatch(r"[a-z]\w*", name) for name in (*names, *(name for name, _ in offsets))):
            raise ValueError("names that no symbol has")
        bounds = [dim for group in (takes, *lacks) for dim, _ in group]
        ends = [end for _, ends in offsets for end in ends]
        need_formulas([*formulas, *ends, *bounds], [*names, *(name for name, _ in offsets)])
        return cls(
            tuple(names),
            NativeManifest.from_json(fixed),
            tuple(formulas),
            tuple((name, tuple(ends)) for name, ends in offsets),
            tuple((dim, int(least)) for dim, least in takes),
            tuple(tuple((dim, int(least)) for dim, least in group) for group in lacks),
        )


def need_formulas(texts: Sequence[str], names: Sequence[str]) -> None:
    """Raises ValueError where a text is no formula of symbols of these names."""
    known = WORDS.union(names)
    for text in texts:
        if not FORMULA.fullmatch(text) or not known.issuperset(re.findall(r"[^\W\d]\w*", text)):
            raise ValueError(f"no formula: {text}")


def _spelled(pairs: Sequence[tuple[Extent, int]]) -> tuple[Least, ...]:
    return tuple((str(dim), least) for dim, least in pairs)


def _dims_of(manifest: NativeManifest) -> list[Extent]:
    """What depends on sizes in a manifest, in the order in which `_with_dims` takes it."""
    shapes = [n for _, shape in (*manifest.params, *manifest.results) for n in shape]
    time = manifest.nanoseconds
    return [*shapes, manifest.arena, time if isinstance(time, Dim) else round(time), *manifest.numbers]


def _with_dims(manifest: NativeManifest, values: Sequence[int]) -> NativeManifest:
    """The manifest with these numbers."""
    left = iter(values)
    kinds = [
        tuple([(dtype, tuple(islice(left, len(shape)))) for dtype, shape in group])
        for group in (manifest.params, manifest.results)
    ]
    arena, nanoseconds, *numbers = left
    return replace(
        manifest,
        params=kinds[0],
        results=kinds[1],
        arena=arena,
        nanoseconds=float(nanoseconds),
        numbers=tuple(numbers),
    )
