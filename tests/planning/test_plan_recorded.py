"""Models of one's own, recorded on the meta device, against the formulas for the same transformer."""

import tracemalloc

import pytest

import lamina
from lamina import nn
from lamina.nn import functional as F
from lamina.planning import Layout, PlanError, plan, recorded, transformer
from lamina.planning.meta_recorder import repeated

HEADS, HIDDEN, LAYERS, VOCAB, SEQ = 4, 64, 3, 500, 32


class Block(nn.Module):
    def __init__(self, hidden=HIDDEN, heads=HEADS):
        super().__init__()
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.heads = self.n_head = heads

    def forward(self, x):
        batch, seq, hidden = x.shape
        parts = self.qkv(self.first(x)).view(batch, seq, 3, self.heads, hidden // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        weights = F.dropout((q @ k.transpose(-1, -2) * 0.25).softmax(-1), 0.1)
        mixed = (weights @ v).transpose(1, 2).reshape(batch, seq, hidden)
        x = x + F.dropout(self.out(mixed), 0.1)
        return x + F.dropout(self.down(F.gelu(self.up(self.second(x)))), 0.1)


class GPT(nn.Module):
    def __init__(self, layers=LAYERS, hidden=HIDDEN, vocab=VOCAB, seq=SEQ):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, hidden), nn.Embedding(seq, hidden)
        self.blocks = nn.ModuleList([Block(hidden) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        places = lamina.arange(tokens.shape[1], device=tokens.device)
        x = F.dropout(self.tokens(tokens) + self.places(places), 0.1)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss(model, tokens):
    return F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())


@pytest.fixture(scope="module")
def pair():
    """The same model recorded, of a batch of two, and by formula."""
    with lamina.device("meta"):
        model, tokens = GPT(), lamina.zeros(2, SEQ, dtype=lamina.int64)
    text = f"layers={LAYERS},hidden={HIDDEN},heads={HEADS},vocab={VOCAB},seq={SEQ},attention=stored"
    return recorded(model, tokens, loss=loss), transformer(text)


def test_recorded_parameters_and_flops_are_those_of_the_formula(pair):
    mine, formula = pair
    assert mine.parameters == formula.parameters and mine.flops == formula.flops
    assert (mine.tokens, mine.heads, mine.tied) == (SEQ, HEADS, VOCAB * HIDDEN)
    assert [layer.parameters for layer in mine.layers] == [layer.parameters for layer in formula.layers]


def test_recorded_layers_are_repeated_and_split_as_the_formula_says(pair):
    mine, formula = pair
    assert mine.blocks == LAYERS and all(layer is mine.layers[1] for layer in mine.layers[1:-1])
    for name in ("split", "whole", "tensors", "exchanges", "exchanged", "input"):
        assert getattr(mine.layers[1], name) == getattr(formula.layers[1], name), name
    sides = [[(p.rows, p.inner, p.columns, p.times, p.split) for p in x.layers[1].products] for x in pair]
    assert sides[0] == sides[1]


def test_recorded_activations_are_those_of_the_formula(pair):
    """But for the mean and deviation that each norm keeps of a row: four numbers of two bytes."""
    mine, formula = (costs.layers[1] for costs in pair)
    assert mine.saved - formula.saved == 4 * 2 * SEQ
    assert mine.split_saved == formula.split_saved + formula.core_saved


def test_recording_takes_no_memory():
    """A model of 3.2e9 parameters: not a thousandth of its bytes."""
    tracemalloc.start()
    try:
        with lamina.device("meta"):
            costs = recorded(GPT(4, 8192, 1000, 16), lamina.zeros(1, 16, dtype=lamina.int64))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert costs.parameters > 3.2e9 and most < 4 * costs.parameters / 1000


def test_a_sample_costs_the_same_in_any_batch():
    with lamina.device("meta"):
        model = GPT()
        one, eight = (recorded(model, lamina.zeros(n, SEQ, dtype=lamina.int64)) for n in (1, 8))
    assert one.flops == eight.flops and one.parameters == eight.parameters
    assert [layer.split_saved for layer in one.layers] == [layer.split_saved for layer in eight.layers]


def test_convolutions_are_products():
    """3 x 3 from 4 channels to 8 on 10 x 10, then 1 x 1 to 2: 2 x 9 x 4 x 8 x 100 + 2 x 8 x 2 x 100."""
    with lamina.device("meta"):
        model = nn.Sequential(nn.Conv2d(4, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 1))
        costs = recorded(model, lamina.empty(5, 4, 10, 10))
    assert costs.flops == 3 * (57600 + 3200) and (costs.sample, costs.tokens) == ("sample", 1)
    assert [p.split for layer in costs.layers for p in layer.products] == ["columns", "inner"]
    assert costs.parameters == 4 * 8 * 9 + 8 + 8 * 2 + 2


def test_what_two_ops_save_is_counted_once():
    """A product by itself of the first two columns of four: these, and not the two others."""

    class Square(nn.Module):
        def forward(self, x):
            part = (x * 3.0)[:, :2]
            return part * part + part.exp()

    with lamina.device("meta"):
        costs = recorded(Square(), lamina.empty(8, 4, requires_grad=True), precision="fp32")
    assert sum(layer.saved for layer in costs.layers) == 4 * 2 + 4 * 2  # part, and its exponential


def test_repeated_layers_are_children_of_the_outermost_lists():
    model = nn.Sequential(
        nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 4)
    )
    assert list(repeated(model)) == ["0", "1.0", "1.1", "3"]
    assert list(repeated(GPT())) == ["blocks.0", "blocks.1", "blocks.2"]
    assert repeated(nn.Linear(4, 4)) == {}


def test_a_recorded_model_is_planned_with_all_axes(pair):
    made = plan(pair[0], mesh="2x4", device="h100", batch=16, layout="dp=2,tp=2,pp=2")
    assert made.prediction.memory.total > 0 and set(made.prediction.sent) == {"tp", "pp", "dp"}
    with pytest.raises(PlanError, match=r"tp must divide heads \(8, 4\)"):
        plan(pair[0], mesh="8x1", device="h100", batch=16, layout="tp=8")


def test_contexts_of_a_recorded_model_are_refused(pair):
    with pytest.raises(
        PlanError, match=r"cp needs a model whose keys .* \(2\)\n  describe it as a transformer"
    ):
        plan(pair[0], mesh="2x1", device="h100", batch=16, layout="cp=2")


def test_a_model_with_values_is_refused():
    with pytest.raises(PlanError, match="must be on the meta device .*tokens.weight is not"):
        recorded(GPT(), lamina.zeros(1, SEQ, dtype=lamina.int64))
    with lamina.device("meta"):
        model = GPT()
    with pytest.raises(PlanError, match="begins with a tensor whose first size is the batch"):
        recorded(model, ())
    assert Layout.parse("dp=1") == Layout()
