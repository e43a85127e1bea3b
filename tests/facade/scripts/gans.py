"""Two networks against each other: binary labels first, then a critic with a gradient penalty."""

import numpy as np
import torch
import torch.nn as nn
from torch import autograd

torch.manual_seed(3)


def weights_init(m):
    if m.__class__.__name__.find("Linear") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.2)
        nn.init.constant_(m.bias.data, 0)


G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)).apply(weights_init)
D = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1), nn.Sigmoid()).apply(weights_init)
criterion = nn.BCELoss()
opt_d = torch.optim.Adam(D.parameters(), lr=0.005, betas=(0.5, 0.999))
opt_g = torch.optim.Adam(G.parameters(), lr=0.005, betas=(0.5, 0.999))
real = torch.from_numpy(np.random.RandomState(0).randn(64, 2).astype(np.float32) + 2)
for _step in range(30):
    D.zero_grad()
    label = torch.full((64,), 1.0, dtype=torch.float)
    criterion(D(real).view(-1), label).backward()
    fake = G(torch.randn(64, 4))
    label.fill_(0.0)
    criterion(D(fake.detach()).view(-1), label).backward()
    opt_d.step()
    G.zero_grad()
    label.fill_(1.0)
    criterion(D(fake).view(-1), label).backward()
    opt_g.step()

critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
opt_c = torch.optim.RMSprop(critic.parameters(), lr=2e-3)


def gradient_penalty(real, fake):
    alpha = torch.rand(real.size(0), 1).expand_as(real)
    between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    out = critic(between)
    gradient = autograd.grad(
        outputs=out,
        inputs=between,
        grad_outputs=torch.ones_like(out),
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    return ((gradient.norm(2, dim=1) - 1) ** 2).mean()


losses = []
for _step in range(30):
    opt_c.zero_grad()
    fake = G(torch.randn(64, 4)).detach()
    loss = -critic(real).mean() + critic(fake).mean() + 10 * gradient_penalty(real.data, fake.data)
    loss.backward()
    opt_c.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
