"""Programs that train on batches of changing sizes, which enter losses, gradients, steps and statistics.

programs_sizes_modules.py has the plain ones.
"""

from __future__ import annotations

import copy
import math

from battery import lib as t
from battery import program
from sized import ROWS, data_of, sized

nn, F = t.nn, t.nn.functional
data = data_of(t)
TWO = (4, 6, 8, 5, 3, 2, 9, 7)  # at least two rows


def rows(n):
    return n, 3


def trained(w, module, loss, sizes=ROWS, optimizer=None, after=None):
    """Steps of training, each on a batch of another size."""
    optimizer = optimizer or t.optim.SGD(module.parameters(), lr=0.05)
    w.see(module=module)

    @w.trace
    def step(x):
        optimizer.zero_grad()
        found = loss(module, x)
        found.backward()
        if after is not None:
            after(module, x)
        optimizer.step()
        return found

    for n in w.rounds(*sizes):
        w.once(step, data(n, 3))


# ---- losses ------------------------------------------------------------------------------------------------
@program("sizes", chained=True)
def a_loss_over_pairs_of_a_batch(w):
    """As contrastive learning: each of a batch is its own class, and all others are wrong."""

    def loss(m, x):
        a, b = F.normalize(m(x), dim=1), F.normalize(m(x * 0.5 + 0.25), dim=1)
        scores = a @ b.t() / 0.5
        target = t.arange(x.shape[0])
        return (F.cross_entropy(scores, target) + F.cross_entropy(scores.t(), target)) / 2

    trained(w, nn.Linear(3, 4), loss)


@program("sizes", chained=True)
def a_loss_over_pairs_but_of_themselves(w):
    def loss(m, x):
        z = t.cat([m(x), m(x + 0.5)])
        n = x.shape[0]
        scores = (z @ z.t() * 0.3).masked_fill(t.eye(2 * n, dtype=t.bool), -1e4)
        return F.cross_entropy(scores, (t.arange(2 * n) + n) % (2 * n)) + z.var(0).mean()

    trained(w, nn.Linear(3, 2), loss)


@program("sizes", chained=True)
def a_mean_over_what_is_not_masked(w):
    """By how many the sum is divided is a value; it may be none."""

    def loss(m, x):
        target = t.arange(x.shape[0]) % 3
        target = target.masked_fill(x[:, 0] > 0.5, -100)
        weight = (x > -0.5).float()
        y = m(x)
        return F.cross_entropy(y, target, ignore_index=-100) + (
            y.square() * weight
        ).sum() / weight.sum().clamp(min=1)

    trained(w, nn.Linear(3, 3), loss, TWO)


@program("sizes", chained=True)
def the_hardest_of_a_batch(w):
    """The loss is of the worst half: how many those are is made of a size."""

    def loss(m, x):
        losses = F.smooth_l1_loss(m(x).squeeze(1), x.sum(1), reduction="none")
        return (
            losses.topk(max(1, losses.numel() // 2)).values.mean()
            + losses.sort().values[: len(x) // 3].sum() * 0.1
        )

    trained(w, nn.Linear(3, 1), loss)


@program("sizes", chained=True)
def statistics_over_a_batch_in_a_loss(w):
    """As decorrelation: a covariance over the batch, divided by one less than its rows."""

    def loss(m, x):
        z = m(x)
        z = (z - z.mean(0)) / (z.std(0) + 0.1)
        c = z.t() @ z / (z.shape[0] - 1)
        return (c - t.eye(c.shape[0])).square().sum() / c.numel() + z.square().mean()

    trained(w, nn.Linear(3, 3), loss, TWO)


@program("sizes", chained=True)
def a_ratio_that_weighs_classes(w):
    def loss(m, x):
        y = (x[:, :1] > 0).float()
        many = y.sum()
        weight = (y.numel() - many) / many.clamp(min=1)
        return F.binary_cross_entropy_with_logits(m(x), y, pos_weight=weight) + F.kl_div(
            m(x).sigmoid().log(), y * 0.9 + 0.05, reduction="batchmean"
        )

    trained(w, nn.Linear(3, 1), loss)


@program("sizes", chained=True)
def triplets_of_neighbours(w):
    def loss(m, x):
        z = m(x)
        n = z.shape[0]
        return F.triplet_margin_loss(z, z.roll(1, 0), z.roll(n // 2, 0)) + t.cdist(z, z.detach()).sum() / (
            n * n
        )

    trained(w, nn.Linear(3, 2), loss, (4, 6, 8, 5, 3, 9, 7))


# ---- gradients ---------------------------------------------------------------------------------------------
@program("sizes", chained=True)
def gradients_are_clipped_by_the_number_of_rows(w):
    def after(m, x):
        nn.utils.clip_grad_norm_(m.parameters(), math.sqrt(x.shape[0]) / 8)
        nn.utils.clip_grad_value_(m.parameters(), 1.0 / len(x))
        for p in m.parameters():
            p.grad.div_(x.numel() / p.numel())

    trained(w, nn.Linear(3, 2), lambda m, x: m(x).square().sum(), after=after)


@program("sizes", chained=True)
def noise_that_is_added_to_gradients(w):
    """As private training: each example's gradient is clipped, and noise goes by the batch."""

    def loss(m, x):
        return m(x).square().mean()

    def after(m, x):
        for p in m.parameters():
            p.grad += t.randn_like(p) * 0.1 / x.shape[0]

    trained(w, nn.Linear(3, 2), loss, after=after)


@program("sizes", chained=True)
def gradients_of_each_example(w):
    module = nn.Linear(3, 2)
    w.see(module=module)

    @w.trace
    def step(x):
        n = x.shape[0]

        def loss(weight, bias, one):
            return (F.linear(one, weight, bias).square() / n).sum()

        grads = t.func.vmap(t.func.grad(loss, argnums=(0, 1)), in_dims=(None, None, 0))(
            module.weight.detach(), module.bias.detach(), x
        )
        norms = (grads[0].flatten(1).square().sum(1) + grads[1].square().sum(1)).sqrt()
        scale = (0.1 / norms).clamp(max=1)
        with t.no_grad():
            module.weight -= (grads[0] * scale[:, None, None]).sum(0) / n
            module.bias.sub_((grads[1] * scale[:, None]).mean(0))
        return norms

    for n in w.rounds(*ROWS):
        w.once(step, data(n, 3))


@program("sizes", chained=True)
def steps_after_so_many_rows(w):
    """Gradients are gathered until enough rows were seen, whichever way they came."""
    module = nn.Linear(3, 1)
    optimizer = t.optim.SGD(module.parameters(), lr=0.05)
    state = {"rows": 0}
    w.see(module=module, state=state)

    @w.trace
    def step(x):
        (module(x) - x[:, :1]).square().sum().backward()
        state["rows"] += x.shape[0]
        if state["rows"] >= 12:
            for p in module.parameters():
                p.grad /= state["rows"]
            optimizer.step()
            optimizer.zero_grad()
            state["rows"] = 0
        return module.weight * 1

    for n in w.rounds(*ROWS):
        w.once(step, data(n, 3))


@program("sizes", chained=True)
def microbatches_of_a_size_that_is_given(w):
    module = nn.Linear(3, 1)
    optimizer = t.optim.SGD(module.parameters(), lr=0.05, momentum=0.5)
    w.see(module=module)

    @w.trace
    def step(x, size):
        optimizer.zero_grad()
        total = 0.0
        for part in x.split(size):
            loss = (module(part) - 1).square().mean() * (part.shape[0] / x.shape[0])
            loss.backward()
            total += loss.item()
        optimizer.step()
        return total

    for n, size in w.rounds((4, 2), (6, 2), (8, 3), (5, 3), (3, 2), (7, 7), (1, 2), (6, 4)):
        w.once(step, data(n, 3), size)


@program("sizes")
def gradients_of_inputs_of_every_size(w):
    """An argument that wants a gradient: its leaf is the caller's."""
    weight = data(3, 3).requires_grad_()
    w.see(weight=weight)

    @w.trace
    def f(x):
        y = (x @ weight).softmax(0)
        (y.sum(1) * t.arange(x.shape[0])).mean().backward()
        return y.detach()

    for n in w.rounds(*ROWS):
        weight.grad = None
        x = data(n, 3).requires_grad_()
        w.once(f, x)
        w.note(x.grad)


@program("sizes")
def gradients_that_were_there_before(w):
    """What is added to was made by another call, of another size, and has another layout."""
    weight = data(3, 2).requires_grad_()
    w.see(weight=weight)

    @w.trace
    def f(x):
        if weight.grad is not None and x.shape[0] % 2:
            weight.grad = weight.grad.t().contiguous().t() * 0.5
        (x @ weight).pow(2).sum().div(x.shape[0]).backward()
        return weight.grad.stride(), weight.grad.sum()

    for n in w.rounds(*ROWS):
        if n == 4:
            weight.grad = None
        w.once(f, data(n, 3))


@program("sizes")
def products_of_vectors_and_derivatives(w):
    def f(x):
        n = x.shape[0]
        x = x.detach().requires_grad_()
        y = (x.cumsum(0) * x.flip(0)).sum(1) / n
        (g,) = t.autograd.grad(y, x, t.arange(n) + 1.0, create_graph=True)
        (h,) = t.autograd.grad((g * g.detach()).mean(), x, allow_unused=True)
        return (
            y.detach(),
            g.detach(),
            h,
            t.autograd.functional.vjp(lambda z: z.mean(0) * n, x.detach(), x.detach()[0])[1],
        )

    sized(w, f, rows)


@program("sizes")
def gradients_through_choices_by_size(w):
    """Of three weights some are not used, and have no gradient."""
    weights = [data(3).requires_grad_() for _ in range(3)]
    w.see(weights=weights)

    def f(x):
        n = x.shape[0]
        for weight in weights:
            weight.grad = None
        y = x * weights[n % 3]
        if n > 5:
            y = y + weights[(n + 1) % 3].detach() * weights[0].sum()
        loss = y.amax(0).sum() + y.median() / n
        loss.backward()
        return [weight.grad is None for weight in weights]

    sized(w, f, rows)


@program("sizes", chained=True)
def activations_are_computed_again(w):
    def loss(m, x):
        part = x[: x.shape[0] // 2 + 1]
        y = t.utils.checkpoint.checkpoint(m, part, use_reentrant=False).sin() * part.shape[0]
        return y.square().mean() + m(x).sum() / x.shape[0] * 0.1

    trained(w, nn.Linear(3, 3), loss)


@program("sizes", chained=True)
def straight_through_and_reversed(w):
    class Reversed(t.autograd.Function):
        @staticmethod
        def forward(ctx, x, strength):
            ctx.strength = strength
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return -ctx.strength * g / g.shape[0], None

    def loss(m, x):
        z = m(x)
        hard = (z > z.mean(0)).float()
        z = hard + z - z.detach()
        return z.square().mean() + Reversed.apply(m(x), 1 / (1 + x.shape[0])).mean()

    trained(w, nn.Linear(3, 2), loss)


# ---- steps and statistics ----------------------------------------------------------------------------------
@program("sizes", chained=True)
def an_optimizer_of_its_own_divides_by_the_batch(w):
    class Scaled(t.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @t.no_grad()
        def step(self, rows):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    state["rows"] = state.get("rows", 0) + rows
                    state.setdefault("mean", t.zeros_like(p)).lerp_(p.grad, rows / state["rows"])
                    p.add_(state["mean"], alpha=-group["lr"] / rows)

    module = nn.Linear(3, 2)
    optimizer = Scaled(module.parameters(), 0.1)
    w.see(module=module)

    @w.trace
    def step(x):
        optimizer.zero_grad()
        loss = module(x).square().sum()
        loss.backward()
        optimizer.step(x.shape[0])
        return loss

    for n in w.rounds(*ROWS):
        w.once(step, data(n, 3))


@program("sizes", chained=True)
def a_rate_that_goes_by_the_batch(w):
    module = nn.Linear(3, 1)
    optimizer = t.optim.AdamW(module.parameters(), lr=0.01)
    w.see(module=module, rate=lambda: optimizer.param_groups[0]["lr"])

    @w.trace
    def step(x):
        for group in optimizer.param_groups:
            group["lr"] = 0.01 * math.sqrt(x.shape[0] / 4)
        optimizer.zero_grad()
        loss = F.huber_loss(module(x), x[:, 1:2])
        loss.backward()
        optimizer.step()
        return loss

    for n in w.rounds(*ROWS):
        w.once(step, data(n, 3))


@program("sizes", chained=True)
def statistics_of_ghost_batches(w):
    """Each part of a batch is normalized by itself; the last part may be short."""

    class Ghost(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.out = nn.BatchNorm1d(3), nn.Linear(3, 1)

        def forward(self, x):
            parts = x.chunk(max(1, x.shape[0] // 4))
            return self.out(t.cat([self.norm(part) for part in parts]))

    trained(w, Ghost(), lambda m, x: m(x).square().mean(), (4, 6, 8, 5, 3, 2, 9, 12, 13))


@program("sizes", chained=True)
def a_module_is_evaluated_between_steps(w):
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.25), nn.Linear(3, 1))
    optimizer = t.optim.SGD(module.parameters(), lr=0.05)
    w.see(module=module)

    @w.trace
    def step(x, y):
        module.train()
        optimizer.zero_grad()
        loss = module(x).square().mean()
        loss.backward()
        optimizer.step()
        module.eval()
        with t.no_grad():
            return loss, module(y).sum(0) / y.shape[0]

    for n, k in w.rounds((4, 4), (6, 6), (8, 3), (5, 1), (3, 5), (7, 2), (2, 2), (6, 9)):
        w.once(step, data(n, 3), data(k, 3))


@program("sizes", chained=True)
def two_networks_against_each_other(w):
    makes, judges = nn.Linear(2, 3), nn.Linear(3, 1)
    first, second = t.optim.SGD(makes.parameters(), 0.05), t.optim.SGD(judges.parameters(), 0.05)
    w.see(makes=makes, judges=judges)

    @w.trace
    def step(x):
        n = x.shape[0]
        made = makes(t.randn(n, 2))
        second.zero_grad()
        loss = F.softplus(-judges(x)).mean() + F.softplus(judges(made.detach())).mean()
        share = t.rand(n, 1)
        mixed = (x * share + made.detach() * (1 - share)).requires_grad_()
        (g,) = t.autograd.grad(judges(mixed).sum(), mixed, create_graph=True)
        (loss + (g.norm(2, dim=1) - 1).square().mean() / n).backward()
        second.step()
        first.zero_grad()
        F.softplus(-judges(made)).mean().backward()
        first.step()
        return loss

    for n in w.rounds(*ROWS):
        w.once(step, data(n, 3))


@program("sizes", chained=True)
def a_queue_of_what_was_seen(w):
    """As momentum contrast: keys are written into a ring at a place that batches move on."""
    module = nn.Linear(3, 2)
    slow = copy.deepcopy(module)
    optimizer = t.optim.SGD(module.parameters(), lr=0.05)
    state = {"queue": data(12, 2), "at": 0}
    w.see(module=module, slow=slow, state=state)

    @w.trace
    def step(x):
        n = x.shape[0]
        with t.no_grad():
            for p, q in zip(slow.parameters(), module.parameters()):
                p.lerp_(q, 0.1)
            keys = slow(x)
        y = module(x)
        scores = t.cat([(y * keys).sum(1, keepdim=True), y @ state["queue"].clone().t()], 1)
        loss = F.cross_entropy(scores, t.zeros(n, dtype=t.long))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        at = state["at"]
        first = min(n, 12 - at)
        state["queue"][at : at + first] = keys[:first]
        state["queue"][: n - first] = keys[first:]
        state["at"] = (at + n) % 12
        return loss

    for n in w.rounds(4, 6, 8, 5, 3, 2, 1, 7):
        w.once(step, data(n, 3))


@program("sizes", chained=True)
def returns_of_episodes_of_many_lengths(w):
    """As policy gradients: discounted sums from behind, normalized over the episode."""
    policy = nn.Linear(3, 2)
    optimizer = t.optim.Adam(policy.parameters(), lr=0.02)
    w.see(policy=policy)

    @w.trace
    def step(x, rewards):
        n = len(rewards)
        total, returns = t.zeros(()), []
        for reward in rewards.flip(0):
            total = reward + 0.9 * total
            returns.insert(0, total)
        returns = t.stack(returns)
        if n > 1:
            returns = (returns - returns.mean()) / (returns.std() + 1e-3)
        chosen = policy(x).log_softmax(1).gather(1, (t.arange(n) % 2)[:, None]).squeeze(1)
        loss = -(chosen * returns).sum() / n
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, returns

    for n in w.rounds(4, 6, 5, 3, 1, 2, 7):
        w.once(step, data(n, 3), data(n))


@program("sizes", chained=True)
def a_vocabulary_that_grows(w):
    """Rows are added to a table that is trained: its parameter is another one then."""
    state = nn.Module()
    state.table = nn.Parameter(data(4, 2))
    w.see(state=state)

    @w.trace
    def step(words):
        most = words.shape[0]
        if most > state.table.shape[0]:
            more = t.zeros(most - state.table.shape[0], 2) + state.table.detach().mean(0)
            state.table = nn.Parameter(t.cat([state.table.detach(), more]))
        loss = state.table[words].square().mean()
        state.table.grad = None
        loss.backward()
        with t.no_grad():
            state.table -= state.table.grad * 0.5
        return loss, state.table.shape[0]

    for n in w.rounds(4, 3, 6, 5, 8, 7, 2, 9):
        if n == 4:
            state.table = nn.Parameter(data(4, 2))
        w.once(step, t.arange(n))
