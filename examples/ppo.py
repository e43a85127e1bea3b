"""A policy learns by trial and error to balance a pole on a cart.

Shows: environments of gymnasium, advantages, a clipped objective, two networks in one, categorical draws.
Source: Schulman et al., Proximal Policy Optimization Algorithms, 2017.
"""

import gymnasium
import numpy as np
from curves import Curve
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from options import options

import lamina as torch
from lamina import nn, optim
from lamina.distributions import Categorical
from lamina.nn import functional as F

CARTS, LENGTH = 8, 128  # environments, and steps in each between two updates
EPOCHS, BATCH = 6, 256  # how often an update uses what was seen, and how much of it at once
DISCOUNT, TRACE, CLIP = 0.98, 0.9, 0.2


class Policy(nn.Module):
    """Shapes: what is seen f32[..., 4] -> logits of both pushes f32[..., 2], the return expected f32[...]."""

    def __init__(self, hidden: int = 64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 2))
        self.critic = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(seen), self.critic(seen)[..., 0]


class Carts:
    """Carts side by side, each of which starts again when its pole has fallen, or stood for 500 steps."""

    def __init__(self):
        carts = [lambda: gymnasium.make("CartPole-v1")] * CARTS
        self.carts = SyncVectorEnv(carts, autoreset_mode=AutoresetMode.SAME_STEP)
        self.seen, _ = self.carts.reset(seed=0)
        self.upright, self.ended = np.zeros(CARTS), []  # steps so far, and of each trial that is over

    def step(self, pushes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Push, and say which trials are over, and which of those for a pole that fell."""
        self.seen, _, fell, timed_out, _ = self.carts.step(pushes)
        over = fell | timed_out
        self.upright += 1
        self.ended += self.upright[over].tolist()
        self.upright[over] = 0
        return over, fell


@torch.no_grad()
def played(carts: Carts, policy: Policy) -> list[torch.Tensor]:
    """Play LENGTH steps.  Returns what was seen, pushes, their log-probabilities, advantages, returns."""
    rows = []
    for _ in range(LENGTH):
        seen = torch.tensor(carts.seen)
        logits, value = policy(seen)
        chance = Categorical(logits=logits)
        push = chance.sample()
        over, fell = carts.step(push.cpu().numpy())
        rows.append((seen, push, chance.log_prob(push), value, torch.tensor(over), torch.tensor(fell)))
    seen, push, likely, value, over, fell = map(torch.stack, zip(*rows))
    _, last = policy(torch.tensor(carts.seen))
    following = torch.cat([value[1:], last[None]])
    # After the end there is nothing to come; where only time ran out, what was expected before stands for it.
    following = torch.where(over, torch.where(fell, 0.0, value), following)
    surprise = 1 + DISCOUNT * following - value
    advantage, later = torch.zeros_like(value), torch.zeros(CARTS)
    for t in reversed(range(LENGTH)):
        later = surprise[t] + DISCOUNT * TRACE * torch.where(over[t], 0.0, later)
        advantage[t] = later
    return [x.flatten(0, 1) for x in (seen, push, likely, advantage, advantage + value)]


@torch.no_grad()
def tested(policy: Policy | None, trials: int = 100) -> float:
    """Steps that the pole stands, on average; without a policy by random pushes."""
    carts = Carts()
    while len(carts.ended) < trials:
        if policy is None:
            carts.step(torch.randint(2, (CARTS,)).cpu().numpy())
        else:
            carts.step(policy(torch.tensor(carts.seen))[0].argmax(-1).cpu().numpy())
    return float(np.mean(carts.ended))


def main() -> None:
    run = options(__doc__, usual=80, quick=12)
    torch.manual_seed(0)
    policy = Policy()
    optimizer = optim.Adam(policy.parameters(), lr=2e-3)
    schedule = optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=run.steps)

    @run.trace
    def step(seen, push, likely, advantage, returns) -> torch.Tensor:
        logits, value = policy(seen)
        chance = Categorical(logits=logits)
        ratio = (chance.log_prob(push) - likely).exp()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()
        loss = -gain + 0.5 * F.smooth_l1_loss(value, returns) - 0.01 * chance.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        return loss

    curve = Curve("ppo", tested(None), "random pushes", measure="steps upright", rises=True)
    carts = Carts()
    for _ in range(run.steps):
        batch = played(carts, policy)
        for _ in range(EPOCHS):
            for chosen in torch.randperm(CARTS * LENGTH).split(BATCH):
                step(*(x[chosen] for x in batch))
        schedule.step()
        recent = carts.ended[-20:] or carts.upright.tolist()
        curve.add(float(np.mean(recent)), run.steps)
    curve.finish(tested(policy), step)


if __name__ == "__main__":
    main()
