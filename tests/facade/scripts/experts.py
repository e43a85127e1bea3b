"""A mixture of experts, an optimizer of one's own, gradients reversed and passed through; workers."""

from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, TensorDataset


class MoE(nn.Module):
    def __init__(self, d=8, n=4, k=2):
        super().__init__()
        self.gate, self.k, self.scale = nn.Linear(d, n), k, Parameter(torch.ones(d))
        self.experts = nn.ModuleList(
            nn.Sequential(
                OrderedDict([("up", nn.Linear(d, 16)), ("act", nn.SiLU()), ("down", nn.Linear(16, d))])
            )
            for _ in range(n)
        )
        self.register_parameter("unused", None)

    def forward(self, x):
        w, idx = torch.topk(self.gate(x), self.k, dim=-1)
        w, out = w.softmax(-1), torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slot = torch.where(idx == e)
            if rows.numel():
                out.index_add_(0, rows, expert(x[rows]) * w[rows, slot, None])
        return out * self.scale


class Heavy(Optimizer):
    def __init__(self, params, lr=1e-2, momentum=0.9):
        super().__init__(params, dict(lr=lr, momentum=momentum))  # noqa: C408 - as many write it

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if len(state) == 0:
                    state["buf"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                state["buf"].mul_(group["momentum"]).add_(p.grad)
                p.add_(state["buf"], alpha=-group["lr"])


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.by = by
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.neg() * ctx.by, None


if __name__ == "__main__":
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    loader = DataLoader(
        TensorDataset(x, torch.roll(x, 1, 1)),
        batch_size=32,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(0),
    )
    model = MoE()
    optimizer = Heavy(model.parameters(), lr=0.05)
    losses = []
    for _epoch in range(12):
        total = 0.0
        for a, b in loader:
            loss = F.mse_loss(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        losses.append(total / len(loader))
    z = torch.ones(3, requires_grad=True)
    Reverse.apply(z, 2.0).sum().backward()
    assert z.grad.tolist() == [-2, -2, -2]
    soft = torch.tensor([0.2, 0.7], requires_grad=True)
    hard = (soft > 0.5).float() + soft - soft.detach()
    hard.sum().backward()
    assert hard.tolist() == [0, 1] and soft.grad.tolist() == [1, 1]
    print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
