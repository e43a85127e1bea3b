"""Attentions of many sizes, types and masks, as the step that a GPU has code for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir.dtypes import ALL
from lamina.ir.kernel import NUMPY
from lamina.ir.ops.attention import attention_reference
from lamina.ir.types import Type, type_of
from lamina.passes.graphs.whole_attention import whole_attention
from lamina.passes.programs.program import Array, Whole
from lamina.passes.triton.attention import attention_code
from lamina.passes.triton.code import Code
from lamina.passes.triton.target import Target

DTYPES = {dtype.short: dtype for dtype in ALL}


@dataclass(frozen=True)
class Attention:
    """sizes: queries, keys, width, width of values.  mask: its shape; bools, or numbers if `adds`.

    extreme: rows with infinities, NaN, large numbers, and queries that see nothing.
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

    def types(self) -> list[Type]:
        queries, keys, width, out = self.sizes
        shapes = [(queries, width), (keys, width), (keys, out)]
        found = [type_of(DTYPES[self.dtype], (*self.lead, *shape)) for shape in shapes]
        if self.mask is not None:
            found.append(type_of(DTYPES[self.dtype if self.adds else "bool"], self.mask))
        return found

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

    def wanted(self, arrays: list[np.ndarray]) -> np.ndarray:
        given = [a if a.dtype == np.bool_ else a.astype(np.float64) for a in arrays]
        query, key, value, mask = (*given, None)[:4]
        with np.errstate(all="ignore"):
            return attention_reference(query, key, value, mask, is_causal=self.is_causal, scale=self.scale)

    def code(self) -> Code:
        types = self.types()
        arrays = tuple(Array("x", t.dtype.short, t.shape) for t in types)
        operands = (*types, None)[:4], (*arrays, None)[:4]
        out = Array("y", self.dtype, (*self.lead, self.sizes[0], self.sizes[3]))
        attrs = {"is_causal": self.is_causal, "scale": self.scale, "precision": self.precision}
        step = Whole(whole_attention, attrs, *operands, (out,))
        return attention_code(step, (True,) * (len(types) + 1), Target.named(self.target))


ATTENTIONS = [
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
]
