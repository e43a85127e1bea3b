"""Optimizers as papers publish them: classes derived from `optim.Optimizer` that keep states of their own."""

import math

import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim

CALLS, WARM = 30, 10


class Lion(optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @lamina.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = lamina.zeros_like(p)
                update = state["exp_avg"] * b1 + p.grad * (1 - b1)
                p.add_(update.sign_(), alpha=-group["lr"])
                state["exp_avg"].mul_(b2).add_(p.grad, alpha=1 - b2)


class ByMoments(optim.Optimizer):
    """The first and second moments of gradients; `update` makes a step of them."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps})

    @lamina.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with lamina.enable_grad():
                loss = closure()
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    raise RuntimeError("does not support sparse gradients")
                state = self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["m"] = lamina.zeros_like(p, memory_format=lamina.preserve_format)
                    state["v"] = lamina.zeros_like(p, memory_format=lamina.preserve_format)
                state["step"] += 1
                state["m"].mul_(beta1).add_(p.grad, alpha=1 - beta1)
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad.conj(), value=1 - beta2)
                self.update(p, state["m"], state["v"], state["step"], group)
        return loss


class AdamW(ByMoments):
    def update(self, p, m, v, step, group):
        beta1, beta2 = group["betas"]
        p.mul_(1 - group["lr"] * 0.01)
        denominator = (v.sqrt() / math.sqrt(1 - beta2**step)).add_(group["eps"])
        p.addcdiv_(m, denominator, value=-group["lr"] / (1 - beta1**step))


class RAdam(ByMoments):
    def update(self, p, m, v, step, group):
        beta1, beta2 = group["betas"]
        most = 2 / (1 - beta2) - 1
        now = most - 2 * step * beta2**step / (1 - beta2**step)
        if now >= 5:
            rate = math.sqrt((now - 4) / (most - 4) * (now - 2) / now * most / (most - 2))
            rate *= math.sqrt(1 - beta2**step) / (1 - beta1**step)
            p.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-group["lr"] * rate)
        else:
            p.add_(m, alpha=-group["lr"] / (1 - beta1**step))


class Lamb(ByMoments):
    def update(self, p, m, v, step, group):
        norm = p.data.pow(2).sum().sqrt().clamp(0, 10)
        found = m / v.sqrt().add(group["eps"])
        length = found.pow(2).sum().sqrt()
        trust = lamina.where(norm > 0, lamina.where(length > 0, norm / length, 1.0), 1.0)
        p.add_(found * trust, alpha=-group["lr"])


class Muon(optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @lamina.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                g = p.grad
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = lamina.zeros_like(g)
                buffer = state["momentum_buffer"]
                buffer.mul_(group["momentum"]).add_(g)
                g = g.add(buffer, alpha=group["momentum"])
                if g.ndim == 2:
                    x = g / (g.norm() + 1e-7)
                    if g.size(0) > g.size(1):
                        x = x.T
                    for _ in range(5):
                        square = x @ x.T
                        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
                    if g.size(0) > g.size(1):
                        x = x.T
                    g = x * max(1, g.size(0) / g.size(1)) ** 0.5
                p.data.add_(g, alpha=-group["lr"])


class Adafactor(optim.Optimizer):
    def __init__(self, params, lr=1e-2):
        super().__init__(params, {"lr": lr, "decay": -0.8})

    @lamina.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state, g = self.state[p], p.grad
                if len(state) == 0:
                    state["step"] = 0
                    if g.dim() > 1:
                        state["rows"] = g.new_zeros(g.shape[:-1])
                        state["columns"] = g.new_zeros(g.shape[:-2] + g.shape[-1:])
                    else:
                        state["v"] = lamina.zeros_like(g)
                state["step"] += 1
                beta = 1.0 - math.pow(state["step"], group["decay"])
                square = g**2 + 1e-30
                if g.dim() > 1:
                    rows, columns = state["rows"], state["columns"]
                    rows.mul_(beta).add_(square.mean(dim=-1), alpha=1 - beta)
                    columns.mul_(beta).add_(square.mean(dim=-2), alpha=1 - beta)
                    scale = (rows / rows.mean(dim=-1, keepdim=True)).rsqrt_().unsqueeze(-1)
                    update = scale * columns.unsqueeze(-2).rsqrt() * g
                else:
                    state["v"].mul_(beta).add_(square, alpha=1 - beta)
                    update = state["v"].rsqrt().mul_(g)
                update.div_((update.norm(2) / update.numel() ** 0.5).clamp_(min=1.0))
                p.add_(update, alpha=-min(group["lr"], 1 / math.sqrt(state["step"])))


class Lookahead:
    """Around another optimizer: every fifth step goes half of the way from where the last one began."""

    def __init__(self, inner, every=5, alpha=0.5):
        self.inner, self.every, self.alpha, self.count = inner, every, alpha, 0
        self.slow = [[p.clone().detach() for p in group["params"]] for group in inner.param_groups]

    def zero_grad(self):
        self.inner.zero_grad()

    def step(self):
        self.inner.step()
        self.count += 1
        if self.count % self.every == 0:
            for group, slow in zip(self.inner.param_groups, self.slow):
                for p, q in zip(group["params"], slow):
                    q.data.add_(p.data - q.data, alpha=self.alpha)
                    p.data.copy_(q.data)


class Sam(optim.Optimizer):
    """Sharpness-aware minimisation: two passes for each step of another optimizer."""

    def __init__(self, params, base, rho=0.05, **settings):
        super().__init__(params, {"rho": rho, **settings})
        self.base = base(self.param_groups, **settings)
        self.param_groups = self.base.param_groups

    @lamina.no_grad()
    def first_step(self):
        grads = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
        norm = lamina.norm(lamina.stack([g.norm(p=2) for g in grads]), p=2)
        for group in self.param_groups:
            scale = group["rho"] / (norm + 1e-12)
            for p in group["params"]:
                self.state[p]["old"] = p.data.clone()
                p.add_(p.grad * scale.to(p))
        self.zero_grad()

    @lamina.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old"]
        self.base.step()
        self.zero_grad()


def made():
    lamina.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return model, lamina.randn(32, 8), lamina.randn(32, 4)


def plain(make):
    model, x, y = made()
    optimizer = make(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def in_two(make):
    model, x, y = made()
    optimizer = make(model.parameters())

    def step():
        F.mse_loss(model(x), y).backward()
        optimizer.first_step()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.second_step()
        return loss

    return step


STEPS = {
    **{kind.__name__: lambda kind=kind: plain(kind) for kind in (Lion, AdamW, RAdam, Lamb, Muon, Adafactor)},
    "Lookahead": lambda: plain(lambda params: Lookahead(optim.Adam(params, 1e-3))),
    "Sam": lambda: in_two(lambda params: Sam(params, optim.SGD, lr=0.1, momentum=0.9)),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_ones_own_is_compiled(name):
    eager, traced = STEPS[name](), jit.trace(STEPS[name]())
    for _ in range(CALLS):
        wanted, found = eager(), traced()
        assert abs(wanted.item() - found.item()) <= 1e-4 * abs(wanted.item())
    assert traced.counts()["served"] >= CALLS - WARM, traced.explain()


def test_a_state_that_is_somebody_elses():
    model, x, y = made()
    for optimizer in (optim.SGD(model.parameters(), 0.1, momentum=0.9), optim.Adam(model.parameters())):
        for p in model.parameters():
            optimizer.state[p]["mine"] = 1
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        assert all(
            optimizer.state[p]["mine"] == 1 and len(optimizer.state[p]) > 1 for p in model.parameters()
        )


def test_averages_that_are_new_tensors_at_each_step():
    def program():
        model, x, y = made()
        optimizer = optim.Adam(model.parameters())
        shadow = {name: p.data.clone() for name, p in model.named_parameters()}

        def step():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            for name, p in model.named_parameters():
                shadow[name] = (0.1 * p.data + 0.9 * shadow[name]).clone()
            return loss + sum(x.sum() for x in shadow.values())

        return step

    eager, traced = program(), jit.trace(program())
    for _ in range(CALLS):
        assert abs(eager().item() - traced().item()) <= 1e-4
    assert traced.counts()["served"] >= CALLS - WARM, traced.explain()  # all four become inputs at once
