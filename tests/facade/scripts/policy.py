"""An actor and a critic in a corridor, then Q-learning from a replay memory."""

import random
from collections import deque, namedtuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

torch.manual_seed(0)
random.seed(0)


class Categorical:
    def __init__(self, logits):
        self.logits = logits - logits.logsumexp(dim=-1, keepdim=True)

    def sample(self):
        return torch.multinomial(self.logits.exp(), 1).squeeze(-1)

    def log_prob(self, a):
        return self.logits.gather(-1, a.unsqueeze(-1)).squeeze(-1)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine, self.action, self.value = nn.Linear(6, 16), nn.Linear(16, 2), nn.Linear(16, 1)

    def forward(self, x):
        x = F.relu(self.affine(x))
        return self.action(x), self.value(x)


policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=2e-2)
eps = torch.finfo(torch.float32).eps
for _episode in range(10):
    s, logs, values, rewards = 0, [], [], []
    while s < 5 and len(rewards) < 15:
        logits, v = policy(F.one_hot(torch.tensor(s), 6).float().unsqueeze(0))
        m = Categorical(logits)
        a = m.sample()
        logs.append(m.log_prob(a))
        values.append(v)
        s = max(0, s + (1 if a.item() == 1 else -1))
        rewards.append(1.0 if s == 5 else -0.1)
    gain, returns = 0, deque()
    for r in rewards[::-1]:
        gain = r + 0.95 * gain
        returns.appendleft(gain)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std(unbiased=False) + eps)
    actor = [-log * (r - v.item()) for log, v, r in zip(logs, values, returns, strict=True)]
    critic = [F.smooth_l1_loss(v, torch.tensor([[r]])) for v, r in zip(values, returns, strict=True)]
    optimizer.zero_grad()
    loss = torch.stack(actor).sum() + torch.stack(critic).sum()
    loss.backward()
    optimizer.step()

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))
memory = deque([], maxlen=100)
q, target = nn.Linear(6, 2), nn.Linear(6, 2)
target.load_state_dict(q.state_dict())


def state(n):
    return F.one_hot(torch.tensor([n]), 6).float()


for _step in range(64):
    s, a = random.randrange(5), random.randrange(2)
    n = max(0, s + (1 if a else -1))
    reward = torch.tensor([1.0 if n == 5 else -0.1])
    memory.append(Transition(state(s), torch.tensor([[a]]), None if n == 5 else state(n), reward))
optimizer = optim.AdamW(q.parameters(), lr=0.05, amsgrad=True)
losses = []
for _step in range(30):
    batch = Transition(*zip(*random.sample(memory, 32), strict=True))
    mask = torch.tensor(tuple(s is not None for s in batch.next_state), dtype=torch.bool)
    chosen = q(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    value = torch.zeros(32)
    with torch.no_grad():
        value[mask] = target(torch.cat([s for s in batch.next_state if s is not None])).max(1).values
    loss = nn.SmoothL1Loss()(chosen, (value * 0.9 + torch.cat(batch.reward)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_value_(q.parameters(), 100)
    optimizer.step()
    slow, fast = target.state_dict(), q.state_dict()
    target.load_state_dict({k: fast[k] * 0.1 + slow[k] * 0.9 for k in fast})
    losses.append(loss.item())
print(f"loss {losses[0]:.6f} -> {losses[-1]:.6f}")
