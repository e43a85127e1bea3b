"""Transformers from a line of text: what their layers cost, by the formulas of the literature.

Parameters and operations: Narayanan et al. 2021, "Efficient Large-Scale Language Model Training on GPU
Clusters Using Megatron-LM", section 3 and appendix.  Bytes saved for backward: Korthikanti et al. 2022,
"Reducing Activation Recomputation in Large Transformer Models", section 4.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from .layer_costs import LayerCosts, ModelCosts, Precision, Product, precision_of
from .mesh_layout import PlanError, assignments, flag, whole

MOST = 100_000  # layers: each is looked at


@dataclass(frozen=True)
class Transformer:
    """A decoder of equal layers.

    kv_heads: of grouped queries.  head: the size of one.  ffn: the width between.  gated: whether that is a
    product of two (SwiGLU).  tied: whether logits use the embedding.  learned: whether places have one.
    bias, dropout: whether there is any.  attention: "fused" (scores stay in registers, masked halves are
    skipped) or "stored".  experts, top: feed-forward layers to choose from, and how many a token takes.
    """

    layers: int
    hidden: int
    heads: int
    vocab: int
    seq: int
    kv_heads: int = 0
    head: int = 0
    ffn: int = 0
    gated: bool = False
    tied: bool = True
    learned: bool = True
    bias: bool = True
    dropout: bool = True
    attention: str = "fused"
    experts: int = 0
    top: int = 2

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and value < (0 if field.default == 0 else 1):
                raise PlanError(f"transformer({field.name}): at least 1, not {value}")
        if self.layers > MOST:
            raise PlanError(f"transformer(layers): at most {MOST}, not {self.layers}")
        if self.attention not in ("fused", "stored"):
            raise PlanError(f"transformer(attention): fused or stored, not {self.attention!r}")
        if not self.head and self.hidden % self.heads:
            raise PlanError(f"transformer(heads): must divide hidden ({self.heads}, {self.hidden})")
        if self.kv_heads and self.heads % self.kv_heads:
            raise PlanError(f"transformer(kv_heads): must divide heads ({self.kv_heads}, {self.heads})")
        if self.experts and self.top > self.experts:
            raise PlanError(f"transformer(top): at most experts ({self.top} > {self.experts})")


LLAMA = {
    "kv_heads": 8, "gated": True, "tied": False, "learned": False, "bias": False, "dropout": False,
    "vocab": 128256,
}  # fmt: skip
# Brown et al. 2020, "Language Models are Few-Shot Learners", table 2.1; Llama team 2024, "The Llama 3 Herd of
# Models", table 3; Jiang et al. 2024, "Mixtral of Experts", table 1.
KNOWN: dict[str, dict[str, Any]] = {
    "gpt3-175b": {"layers": 96, "hidden": 12288, "heads": 96, "vocab": 51200, "seq": 2048},
    "llama3-8b": {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336, "seq": 8192, **LLAMA},
    "llama3-70b": {"layers": 80, "hidden": 8192, "heads": 64, "ffn": 28672, "seq": 8192, **LLAMA},
    "llama3-405b": {
        "layers": 126, "hidden": 16384, "heads": 128, "ffn": 53248, "seq": 8192, **LLAMA
    },
    "mixtral-8x7b": {
        "layers": 32, "hidden": 4096, "heads": 32, "ffn": 14336, "seq": 8192, **LLAMA,
        "vocab": 32000, "experts": 8, "top": 2,
    },
}  # fmt: skip


def transformer(text: str | Transformer, *, precision: str = "bf16", seq: int | None = None) -> ModelCosts:
    """The costs of a transformer: "layers=96,hidden=12288,heads=96,vocab=51200,seq=2048".

    Beside the fields of `Transformer`, a name of KNOWN may come first.  seq: in place of the text's own.
    Raises PlanError for what is missing, unknown or does not divide.
    """
    shape = text if isinstance(text, Transformer) else _read(text, seq)
    if seq is not None:
        shape = replace(shape, seq=seq)
    return _costs(shape, precision_of(precision))


def _read(text: str, seq: int | None) -> Transformer:
    first, _, rest = text.partition(",")
    values: dict[str, Any] = {}
    if "=" not in first:
        if first.strip() not in KNOWN:
            raise PlanError(f"transformer: {first.strip()!r} is not known", f"one of: {', '.join(KNOWN)}")
        values, text = dict(KNOWN[first.strip()]), rest
    kinds = {field.name: field.type for field in fields(Transformer)}
    for name, word in assignments(text, "gpt"):
        if name not in kinds:
            raise PlanError(f"transformer: there is no {name!r}", f"one of: {', '.join(kinds)}")
        read: Any = {"int": whole, "bool": flag}.get(str(kinds[name]), lambda word, name: word)
        values[name] = read(word, name)
    if seq is not None:
        values["seq"] = seq
    missing = [name for name in ("layers", "hidden", "heads", "vocab", "seq") if name not in values]
    if missing:
        raise PlanError(
            f"transformer: {', '.join(missing)} must be given", "layers=24,hidden=2048,heads=16,…"
        )
    return Transformer(**values)


def _costs(t: Transformer, p: Precision) -> ModelCosts:
    embedding, head = _embedding(t, p), _head(t, p)
    block = replace(_attention(t, p), block=True)
    block = _joined("block", block, _experts(t, p) if t.experts else _feed_forward(t, p))
    fixed = t.ffn or t.gated or t.experts or t.kv_heads
    name = f"{'llama-like' if t.gated else 'gpt'} of {t.layers} layers, {t.hidden} wide" if fixed else (
        f"gpt of {t.layers} layers, {t.hidden} wide"
    )  # fmt: skip
    notes = ["half of the scores are masked and skipped"] if t.attention == "fused" else []
    if t.experts:
        notes.append("tokens go to experts evenly")
    return ModelCosts(
        name, (embedding, *[block] * t.layers, head), p, "sequence", t.seq, t.heads, t.kv_heads or t.heads,
        t.experts, t.vocab * t.hidden if t.tied else 0, notes=tuple(notes),
    )  # fmt: skip


def _embedding(t: Transformer, p: Precision) -> LayerCosts:
    tokens = t.seq * t.hidden
    return LayerCosts(
        "embedding",
        split=t.vocab * t.hidden,
        whole=t.seq * t.hidden if t.learned else 0,
        tensors=1 + t.learned,
        whole_traffic=2 * p.element * tokens + t.dropout * (2 * p.element + 1) * tokens,
        kernels=2 + t.dropout,
        whole_saved=t.dropout * tokens + 8 * t.seq,  # a mask; the tokens
        input=8 * t.seq,
        exchanges=0.5,  # of the vocabulary's parts, in the forward alone
        exchanged=p.element * tokens,
    )


def _head(t: Transformer, p: Precision) -> LayerCosts:
    tokens, logits, norm = t.seq * t.hidden, t.seq * t.vocab, 1 + t.bias
    return LayerCosts(
        "logits and loss",
        split=0 if t.tied else t.vocab * t.hidden,
        whole=norm * t.hidden,
        tensors=norm + (not t.tied),
        products=(Product(t.seq, t.hidden, t.vocab, split="columns"),),
        split_traffic=(p.element + 12) * logits,  # read in halves; written, read and normalised in float32
        whole_traffic=2 * p.element * tokens,
        kernels=6,
        split_saved=4 * logits,
        whole_saved=2 * p.element * tokens,
        input=p.element * tokens,
        exchanges=0.5,  # in the backward alone
        exchanged=p.element * tokens,
    )


def _attention(t: Transformer, p: Precision) -> LayerCosts:
    e, s, h = p.element, t.seq, t.hidden
    size = t.head or h // t.heads
    groups = t.kv_heads or t.heads
    query, keys = t.heads * size, groups * size
    scores, fused = t.heads * s * s, t.attention == "fused"
    share = 0.5 if fused else 1.0
    norm = 1 + t.bias
    return LayerCosts(
        "attention",
        split=h * (query + 2 * keys) + query * h + t.bias * (query + 2 * keys),
        whole=t.bias * h + norm * h,
        tensors=2 + 2 * t.bias + norm,
        products=(
            Product(s, h, query + 2 * keys, split="columns"),
            Product(s, size, s, t.heads, "times", False, share, "result" if fused else "", True),
            Product(s, s, size, t.heads, "times", False, share, "left" if fused else "", True),
            Product(s, query, h, split="inner"),
        ),
        # moved between layouts of heads, or rotated
        split_traffic=2 * e * s * (query + 2 * keys),
        # norm; bias, dropout and the sum with what came in
        whole_traffic=2 * e * s * h + (3 * e + t.dropout) * s * h,
        # softmax with its mask; dropout
        core_traffic=0 if fused else (2 * e + t.dropout * (2 * e + 1)) * scores,
        kernels=8 if fused else 11,
        # queries, keys and values; what the last product takes; of fused scores a float32 for each row
        split_saved=e * s * (2 * query + 2 * keys) + fused * 4 * t.heads * s,
        # what the norm takes and makes; the mask of dropout
        whole_saved=(2 * e + t.dropout) * s * h,
        # softmax, and where there is dropout its mask and result
        core_saved=0 if fused else (e + t.dropout * (1 + e)) * scores,
        input=e * s * h,
        exchanges=1,
        exchanged=e * s * h,
        context=2 * e * s * keys,
    )


def _feed_forward(t: Transformer, p: Precision) -> LayerCosts:
    e, s, h = p.element, t.seq, t.hidden
    f, parts, norm = _ffn(t), 1 + t.gated, 1 + t.bias
    return LayerCosts(
        "feed-forward",
        split=(parts + 1) * h * f + t.bias * parts * f,
        whole=t.bias * h + norm * h,
        tensors=(parts + 1) * (1 + t.bias) + norm,
        products=(Product(s, h, parts * f, split="columns"), Product(s, f, h, split="inner")),
        split_traffic=(parts + 1) * e * s * f,
        whole_traffic=2 * e * s * h + (3 * e + t.dropout) * s * h,
        kernels=6,
        split_saved=(parts + 1) * e * s * f,
        whole_saved=(2 * e + t.dropout) * s * h,
        exchanges=1,
        exchanged=e * s * h,
    )


def _experts(t: Transformer, p: Precision) -> LayerCosts:
    """A token's `top` of some feed-forward layers, chosen by a small product."""
    e, s, h, norm = p.element, t.seq, t.hidden, 1 + t.bias
    f, parts, rows = _ffn(t), 1 + t.gated, t.seq * t.top / t.experts
    return LayerCosts(
        "experts",
        expert=t.experts * ((parts + 1) * h * f + t.bias * (parts * f + h)),
        whole=h * t.experts + norm * h,
        tensors=(parts + 1) * (1 + t.bias) + norm + 1,
        products=(
            Product(s, h, t.experts),
            Product(rows, h, parts * f, t.experts, "columns", experts=True),
            Product(rows, f, h, t.experts, "inner", experts=True),
        ),
        split_traffic=(parts + 1) * e * s * t.top * f,
        # as where there are none; sorted by expert, and put back weighted
        whole_traffic=2 * e * s * h + (3 * e + t.dropout) * s * h + 5 * e * t.top * s * h,
        kernels=12,
        split_saved=(parts + 1) * e * s * t.top * f,
        whole_saved=(2 * e + t.dropout) * s * h + 2 * e * t.top * s * h + 4 * s * t.experts,
        exchanges=1,
        exchanged=e * s * h,
        routed=e * t.top * s * h,
    )


def _ffn(t: Transformer) -> int:
    """The width between: 4 x hidden unless it is given."""
    return t.ffn or 4 * t.hidden


def _joined(name: str, a: LayerCosts, b: LayerCosts) -> LayerCosts:
    """Two parts as one layer, whose input is the first's."""
    apart = ("name", "input", "exchanged", "block")
    sums = {f.name: getattr(a, f.name) + getattr(b, f.name) for f in fields(a) if f.name not in apart}
    return replace(a, name=name, **sums)
