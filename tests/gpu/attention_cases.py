"""Attentions of many sizes, types and masks, as the steps that a GPU has code for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir.dtypes import ALL, float32
from lamina.ir.kernel import NUMPY
from lamina.ir.op import Op
from lamina.ir.ops.attention import attention_backward_reference, attention_reference, masked_scores
from lamina.ir.types import Type, type_of
from lamina.passes.graphs.attention_kernels import (
    attention_to_key_value,
    attention_to_query,
    attention_with_lse,
    whole_attention,
)
from lamina.passes.programs.program import Array, Whole
from lamina.passes.triton.attention import attention_code
from lamina.passes.triton.attention_tiles import Tile
from lamina.passes.triton.code import Code
from lamina.passes.triton.opening import Open
from lamina.passes.triton.target import Target

DTYPES = {dtype.short: dtype for dtype in ALL}
OPS = whole_attention, attention_with_lse, attention_to_query, attention_to_key_value


@dataclass(frozen=True)
class Attention:
    """sizes: queries, keys, width, width of values.  mask: its shape; bools, or numbers if `adds`.

    extreme: rows with infinities, NaN, large numbers, and queries that see nothing.  groups: heads of queries
    that share one of keys and values.  tile: in place of the default.  opens: which numbers are parameters.
    """

    dtype: str
    lead: tuple[int, ...]
    sizes: tuple[int, int, int, int]
    is_causal: bool = False
    mask: tuple[int, ...] | None = None
    adds: bool = False
    scale: float | None = None
    extreme: bool = False
    target: str = "sm_90"
    precision: str = "ieee"
    groups: int = 1
    tile: Tile | None = None
    opens: Open = Open.NOTHING

    def types(self) -> list[Type]:
        queries, keys, width, out = self.sizes
        shared = self.lead if self.groups == 1 else (*self.lead[:-1], self.lead[-1] // self.groups)
        shapes = (*self.lead, queries, width), (*shared, keys, width), (*shared, keys, out)
        found = [type_of(DTYPES[self.dtype], shape) for shape in shapes]
        if self.mask is not None:
            found.append(type_of(DTYPES[self.dtype if self.adds else "bool"], self.mask))
        return found

    def of_back(self) -> list[Type]:
        """Types of the cotangent, of log-sum-exps and of products."""
        queries, _, _, out = self.sizes
        each = type_of(float32, (*self.lead, queries))
        return [type_of(DTYPES[self.dtype], (*self.lead, queries, out)), each, each]

    def arrays(self) -> list[np.ndarray]:
        rng, found = np.random.default_rng(len(str(self))), []
        for t in self.types():
            values = rng.standard_normal(t.shape)
            found.append(values > -0.3 if t.dtype.short == "bool" else values.astype(NUMPY[t.dtype.short]))
        if self.extreme:
            query, key, *_ = found
            query[..., 0, :] *= 100
            query[..., 1, 0] = np.nan
            key[..., 2, 0] = np.inf
            if self.mask is not None:
                found[3][..., 3, :] = -np.inf if self.adds else False
        return found

    def runs(self) -> Iterator[tuple[Op, Code, list[np.ndarray], list[np.ndarray]]]:
        """For each of the kernels its record, its code, its inputs, and its results in float64."""
        arrays = self.arrays()
        query, key, value, mask = (*map(_wide, arrays), None)[:4]
        key, value = (np.repeat(x, self.groups, -3) if self.groups > 1 else x for x in (key, value))
        attrs = {"is_causal": self.is_causal, "scale": self.scale}
        g = np.random.default_rng(1).standard_normal(self.of_back()[0].shape).astype(arrays[0].dtype)
        with np.errstate(all="ignore"):
            out = attention_reference(query, key, value, mask, **attrs)
            scores = masked_scores(query, key, mask, **attrs)
            lse = np.logaddexp.reduce(scores, -1, initial=-np.inf)
            lse[lse == np.inf] = np.nan  # infinity is taken from infinity
            back = attention_backward_reference(_wide(g), query, key, value, mask, **attrs)
            products = (_wide(g) * out).sum(-1)
        to_query, *to_keys = back
        shapes = [t.shape for t in self.types()[1:3]]
        if self.groups > 1:
            heads = self.lead[-1] // self.groups
            to_keys = [
                x.reshape(*self.lead[:-1], heads, self.groups, *shape[-2:]).sum(-3)
                for x, shape in zip(to_keys, shapes)
            ]
        more = [g, lse.astype(np.float32), products.astype(np.float32)]
        for op, given, wanted in zip(
            OPS, (arrays, arrays, arrays + more, arrays + more), ([out], [out, lse], [to_query], to_keys)
        ):
            yield op, self.code(op), given, wanted

    def operands(self, op: Op) -> list[Type | None]:
        return [*(*self.types(), None)[:4], *(self.of_back() if op in OPS[2:] else ())]

    def attrs(self) -> dict[str, object]:
        found = {"is_causal": self.is_causal, "scale": self.scale}
        return found | {"precision": self.precision, "groups": self.groups}

    def results(self, op: Op) -> tuple[Type, ...]:
        made = op.infer(*self.operands(op), **self.attrs())
        return made if isinstance(made, tuple) else (made,)

    @property
    def terms(self) -> int:
        """Roundings of a result: of weights as many as their scores are large, hundreds."""
        return 4096 if self.extreme else 16

    def code(self, op: Op = whole_attention) -> Code:
        types, attrs = self.operands(op), self.attrs()
        outputs = tuple(Array("y", t.dtype.short, t.shape) for t in self.results(op))
        arrays = tuple(None if t is None else Array("x", t.dtype.short, t.shape) for t in types)
        step = Whole(op, attrs, tuple(types), arrays, outputs)
        count = sum(a is not None for a in arrays) + len(outputs)
        return attention_code(step, (True,) * count, Target.named(self.target), self.tile, self.opens)


def _wide(array: np.ndarray) -> np.ndarray:
    return array if array.dtype == np.bool_ else array.astype(np.float64)


COPIED = Tile(64, 32, 4, 2, copied=True)

ATTENTIONS = [
    *(
        Attention("f32", (2, 4), (40, 50, 16, 20), groups=2, mask=mask, is_causal=causal, opens=Open.SIZES)
        for mask, causal in ((None, True), ((4, 40, 1), False), ((2, 1, 40, 50), False))
    ),
    Attention("f32", (2, 3), (37, 45, 24, 24)),
    Attention("f32", (2,), (64, 64, 16, 40), is_causal=True),
    Attention("f32", (), (5, 200, 33, 7), scale=0.3),
    Attention("f32", (2, 3), (70, 33, 8, 8), is_causal=True),  # more queries than keys
    Attention("f32", (2,), (33, 130, 8, 8), is_causal=True),
    Attention("f32", (1, 2), (1, 1, 1, 1)),
    Attention("f32", (2, 2), (40, 40, 16, 16), mask=(40, 40), adds=True),
    Attention("f32", (2, 3), (40, 50, 16, 16), mask=(2, 1, 40, 50)),
    Attention("f32", (2, 3), (40, 64, 16, 16), mask=(3, 1, 64)),
    Attention("f32", (2, 3), (40, 64, 16, 16), mask=(2, 3, 40, 1)),
    Attention("f32", (2,), (40, 50, 16, 16), extreme=True),
    Attention("f32", (2,), (40, 50, 16, 16), is_causal=True, extreme=True),
    Attention("f32", (2,), (40, 50, 16, 16), mask=(40, 50), extreme=True),
    Attention("f32", (2,), (40, 50, 16, 16), mask=(2, 40, 50), adds=True, extreme=True),
    Attention("f32", (2,), (140, 150, 64, 64), precision="tf32x3"),
    Attention("f32", (2,), (40, 50, 16, 16), is_causal=True, extreme=True, precision="tf32x3"),
    Attention("f32", (2,), (40, 50, 64, 128), mask=(2, 40, 50), adds=True, extreme=True, precision="tf32x3"),
    Attention("f32", (3, 2), (33, 140, 128, 200), groups=2, precision="tf32x3"),
    Attention("f32", (0,), (4, 5, 6, 7)),
    Attention("f32", (2,), (9, 12, 200, 256)),
    *(
        Attention(dtype, (2, 2), sizes, is_causal=causal, mask=mask)
        for dtype in ("f16", "bf16")
        for sizes, causal, mask in (
            ((130, 150, 64, 64), False, None),
            ((256, 256, 64, 64), True, None),
            ((100, 300, 80, 128), True, None),
            ((64, 90, 20, 256), False, (64, 90)),
        )
    ),
    Attention("f32", (2, 4), (40, 50, 16, 16), groups=2),
    Attention("f16", (2, 6), (70, 90, 32, 16), is_causal=True, groups=3),
    Attention("f32", (4,), (33, 20, 8, 8), mask=(4, 33, 20), adds=True, groups=4),
    Attention("f32", (2,), (40, 50, 16, 16), scale=-0.4),
    Attention("f32", (2,), (0, 5, 6, 7)),
    Attention("f32", (2,), (5, 0, 6, 7)),
    Attention("f32", (2,), (5, 6, 6, 7), mask=(1,)),
    Attention("bf16", (2, 4), (90, 90, 16, 32), is_causal=True, groups=2, tile=COPIED),
    *(
        Attention("f16", (2, 2), sizes, is_causal=causal, mask=mask, tile=COPIED)
        for sizes, causal, mask in (
            ((130, 150, 64, 40), False, None),
            ((130, 130, 24, 64), True, None),
            ((100, 60, 32, 32), True, None),
            ((64, 128, 32, 32), False, (64, 128)),
        )
    ),
]
