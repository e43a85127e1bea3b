"""Programs whose arguments change their sizes: modules, and steps of training on batches of many sizes.

programs_sizes.py has those that compute with sizes.
"""

from __future__ import annotations

import copy

from battery import lib as t
from battery import program
from sized import ROWS, data_of, sized

nn, F = t.nn, t.nn.functional
data = data_of(t)
TWO = (4, 6, 8, 5, 3, 2, 9, 7)  # at least two rows


def rows(n):
    return n, 3


def trained(w, module, loss, *shapes, sizes=TWO, **options):
    """A training step with batches of each size."""
    optimizer = t.optim.SGD(module.parameters(), lr=0.05, **options)
    w.see(module=module)

    @w.trace
    def step(*given):
        optimizer.zero_grad()
        found = loss(module, *given)
        found.backward()
        optimizer.step()
        return found

    for n in w.rounds(*sizes):
        w.once(step, *(data(*shape(n)) for shape in shapes))


# ---- modules -----------------------------------------------------------------------------------------------
def served(w, module, *shapes, sizes=ROWS):
    """A module is called on each size."""
    w.see(module=module)
    sized(w, module, *shapes, sizes=sizes)


@program("sizes")
def a_perceptron_of_batches(w):
    served(w, nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Linear(4, 2)), rows)


@program("sizes")
def a_normalization_in_training(w):
    """One row alone can't be normalized: eager refuses it."""
    served(w, nn.BatchNorm1d(3), rows)


@program("sizes")
def a_normalization_that_averages_all_batches(w):
    served(w, nn.BatchNorm1d(3, momentum=None, affine=False), rows, sizes=TWO)


@program("sizes")
def a_normalization_of_images(w):
    module = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2))
    served(w, module, lambda n: (n, 2, 4, 4), sizes=TWO)


@program("sizes")
def images_whose_sides_change(w):
    module = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    served(w, module, lambda n: (2, 1, n, n + 1))


@program("sizes")
def a_pooling_that_runs_out(w):
    served(w, nn.Sequential(nn.Conv1d(1, 2, 3), nn.MaxPool1d(2)), lambda n: (2, 1, n))


@program("sizes")
def a_recurrent_network_of_batches(w):
    module = nn.LSTM(3, 4, batch_first=True)
    w.see(module=module)
    sized(w, t.no_grad()(lambda x: module(x)), lambda n: (n, 2, 3), sizes=(4, 6, 8, 5, 1, 3))


@program("sizes")
def a_recurrent_network_of_lengths(w):
    module = nn.GRU(3, 4)
    w.see(module=module)
    sized(w, t.no_grad()(lambda x: module(x)), lambda n: (n, 2, 3), sizes=(4, 6, 3, 5, 1, 2))


@program("sizes", chained=True)
def a_recurrent_network_is_trained(w):
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.out = nn.LSTM(3, 4), nn.Linear(4, 1)

        def forward(self, x):
            return self.out(self.lstm(x)[0][-1])

    trained(w, Last(), lambda m, x: m(x).square().mean(), lambda n: (2, n, 3), sizes=(4, 6, 8, 5, 3))


@program("sizes")
def a_state_that_is_handed_on(w):
    cell = nn.GRUCell(3, 4)
    state = {}
    w.see(state=state)

    @w.trace
    def f(x):
        if "h" not in state or state["h"].shape[0] != x.shape[0]:
            state["h"] = x.new_zeros(x.shape[0], 4)
        state["h"] = cell(x, state["h"]).detach()
        return state["h"] * 2

    for n in w.rounds(4, 4, 6, 6, 8, 5, 5, 1, 3, 3):
        w.once(f, data(n, 3))


@program("sizes")
def attention_over_lengths(w):
    module = nn.MultiheadAttention(4, 2, batch_first=True)

    def f(x):
        n = x.shape[1]
        mask = t.triu(t.ones(n, n, dtype=t.bool), 1)
        return module(x, x, x, attn_mask=mask, need_weights=n > 4)

    sized(w, f, lambda n: (2, n, 4))


@program("sizes")
def a_transformer_of_batches_and_lengths(w):
    module = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
    served(w, module, lambda n: (n // 2 + 1, n, 4))


@program("sizes")
def a_normalization_over_the_size(w):
    @w.trace
    def f(x):
        return nn.LayerNorm(x.shape[-1], elementwise_affine=False)(x) + F.layer_norm(x, x.shape)

    for n in w.rounds(*ROWS):
        w.once(f, data(3, n))


@program("sizes")
def embeddings_with_lengths(w):
    module = nn.Embedding(10, 3, padding_idx=0)

    @w.trace
    def f(tokens, lengths):
        mask = t.arange(tokens.shape[1])[None] < lengths[:, None]
        return (module(tokens) * mask[..., None]).sum(1) / lengths[:, None]

    for n, k in w.rounds((4, 5), (6, 7), (8, 3), (5, 5), (3, 2), (1, 4), (2, 1)):
        w.once(f, (t.arange(n * k) * 7 % 10).view(n, k), t.arange(n) % k + 1)


@program("sizes")
def positions_are_embedded(w):
    table = nn.Embedding(9, 3)
    w.see(table=table)

    def f(x):
        table.weight.grad = None
        y = x + table(t.arange(x.shape[1]))[None]
        y.square().mean().backward()
        return y

    sized(w, f, lambda n: (2, n, 3))


@program("sizes")
def dropout_under_many_sizes(w):
    served(w, nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 2), nn.Dropout(0.25)), rows)


@program("sizes")
def a_module_made_for_the_first_size(w):
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = None

        def forward(self, x):
            if self.scale is None:
                self.scale = nn.Parameter(t.ones(x.shape[-1]) * x.shape[0])
            return x * self.scale

    module = Lazy()
    served(w, module, rows)


@program("sizes")
def hooks_of_modules_look_at_sizes(w):
    module = nn.Linear(3, 2)
    seen = []
    w.see(seen=seen)
    module.register_forward_hook(lambda m, given, y: y * given[0].shape[0])
    module.register_forward_pre_hook(
        lambda m, given: seen.append(len(given[0])) or seen.__delitem__(slice(-3))
    )
    sized(w, module, rows)


@program("sizes")
def a_module_counts_its_rows(w):
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 2)
            self.register_buffer("rows", t.tensor(0))
            self.longest = 0

        def forward(self, x):
            self.rows += x.shape[0]
            self.longest = max(self.longest, x.shape[0])
            return self.inner(x) / self.rows + self.longest

    served(w, Counted(), rows)


# ---- training ----------------------------------------------------------------------------------------------
@program("sizes", chained=True)
def a_regression_over_batches(w):
    trained(w, nn.Linear(3, 1), lambda m, x: F.mse_loss(m(x), x.sum(1, keepdim=True)), rows, momentum=0.9)


@program("sizes", chained=True)
def a_classification_over_batches(w):
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
    trained(w, module, lambda m, x: F.cross_entropy(m(x), t.arange(x.shape[0]) % 3), rows)


@program("sizes", chained=True)
def a_loss_that_is_scaled_by_its_rows(w):
    module = nn.Linear(3, 2)
    trained(
        w,
        module,
        lambda m, x: m(x).square().sum() / x.shape[0] + len(x) * 1e-3 * m.bias.sum(),
        rows,
        sizes=ROWS,
    )


@program("sizes", chained=True)
def a_normalized_network_is_trained(w):
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    trained(w, module, lambda m, x: (m(x) - x[:, :1]).abs().mean(), rows)


@program("sizes", chained=True)
def adam_over_batches(w):
    module = nn.Linear(3, 2)
    optimizer = t.optim.Adam(module.parameters(), lr=0.01)
    w.see(module=module)

    @w.trace
    def step(x):
        optimizer.zero_grad(set_to_none=x.shape[0] > 4)
        loss = module(x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        return loss

    for n in w.rounds(*ROWS):
        w.once(step, data(n, 3))


@program("sizes", chained=True)
def gradients_are_accumulated_in_parts(w):
    module = nn.Linear(3, 1)

    def loss(m, x):
        total = x.new_zeros(())
        for part in x.split(3):
            total = total + m(part).square().sum() / x.shape[0]
        return total

    trained(w, module, loss, rows)


@program("sizes", chained=True)
def a_language_model_is_trained(w):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.layer = nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
            self.out = nn.Linear(4, 7)

        def forward(self, tokens):
            n = tokens.shape[1]
            mask = t.triu(t.ones(n, n, dtype=t.bool), 1)
            return self.out(self.layer(self.embed(tokens), src_mask=mask))

    module = Model()
    optimizer = t.optim.SGD(module.parameters(), lr=0.05)

    @w.trace
    def step(tokens):
        optimizer.zero_grad()
        logits = module(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 7), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    for n, k in w.rounds((2, 4), (3, 5), (4, 6), (3, 3), (2, 7), (5, 4)):
        w.once(step, (t.arange(n * k) * 5 % 7).view(n, k))


@program("sizes", chained=True)
def an_average_of_weights_by_rows(w):
    module = nn.Linear(3, 2)
    average = copy.deepcopy(module)
    w.see(average=average)

    @w.trace
    @t.no_grad()
    def f(x):
        decay = 1 - 1 / (x.shape[0] + 1)
        for p, q in zip(average.parameters(), module.parameters()):
            p.mul_(decay).add_(q, alpha=1 - decay)
        return average(x)

    for n in w.rounds(*ROWS):
        w.once(f, data(n, 3))


@program("sizes", chained=True)
def a_penalty_on_gradients(w):
    module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))

    def loss(m, x):
        x = x.clone().requires_grad_()
        y = m(x)
        (grad,) = t.autograd.grad(y.sum(), x, create_graph=True)
        return y.mean() + (grad.norm(dim=1) - 1).square().mean()

    trained(w, module, loss, rows)
