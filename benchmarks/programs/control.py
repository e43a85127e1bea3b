"""Programs that learn to act, and others over states of the world: policies, values, filters, ODEs."""

import math
import random
from collections import deque

from . import program


def _policy(torch, inputs=4, actions=2):
    nn = torch.nn
    return nn.Sequential(nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, actions))


@program
def reinforce(torch, trace):
    policy = _policy(torch)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    states = torch.randn(20, 4)

    @trace
    def act(state):
        with torch.no_grad():
            return torch.multinomial(torch.softmax(policy(state), -1), 1).item()

    @trace
    def update(states, actions, returns):
        log_probs = torch.log_softmax(policy(states), -1).gather(1, actions[:, None]).squeeze(1)
        loss = -(log_probs * (returns - returns.mean()) / (returns.std() + 1e-8)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def step(i):
        actions = [act(states[t]) for t in range(5)]
        returns, total = [], 0.0
        for action in reversed(actions):
            total = action + 0.99 * total
            returns.insert(0, total)
        return update(states[:5], torch.tensor(actions), torch.tensor(returns)).item()

    return step


@program
def ppo(torch, trace):
    nn = torch.nn
    policy, value = _policy(torch), _policy(torch, actions=1)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=3e-4)
    states, actions = torch.randn(64, 4), torch.randint(0, 2, (64,))
    advantages, returns = torch.randn(64), torch.randn(64)
    with torch.no_grad():
        old = torch.log_softmax(policy(states), -1).gather(1, actions[:, None])[:, 0]

    @trace
    def update(idx, clip=0.2):
        s, a, adv, ret = states[idx], actions[idx], advantages[idx], returns[idx]
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        logp = torch.log_softmax(policy(s), -1)
        ratio = torch.exp(logp.gather(1, a.unsqueeze(1)).squeeze(1) - old[idx])
        surrogate = torch.min(ratio * adv, torch.clamp(ratio, 1 - clip, 1 + clip) * adv)
        entropy = -(logp.exp() * logp).sum(-1).mean()
        loss = -surrogate.mean() + 0.5 * (value(s).squeeze(-1) - ret).pow(2).mean() - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
        optimizer.step()
        return loss.item()

    def step(i):
        order = torch.randperm(64)
        return sum(update(order[k : k + 16]) for k in range(0, 64, 16))

    return step


@program
def dqn(torch, trace):
    import copy

    F = torch.nn.functional
    net = _policy(torch)
    target = copy.deepcopy(net)
    optimizer = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    memory = deque(maxlen=200)
    generator = random.Random(0)
    for _ in range(100):
        memory.append((torch.randn(4), generator.randrange(2), generator.random(), torch.randn(4)))

    @trace
    def learn(s, a, r, s2):
        q = net(s).gather(1, a.unsqueeze(1)).squeeze(1)
        with torch.no_grad():
            best = target(s2).max(1)[0]
        loss = F.smooth_l1_loss(q, r + 0.99 * best)
        optimizer.zero_grad()
        loss.backward()
        for p in net.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        return loss.item()

    def step(i):
        s, a, r, s2 = zip(*generator.sample(list(memory), 32))
        loss = learn(torch.stack(s), torch.tensor(a), torch.tensor(r), torch.stack(s2))
        if i % 5 == 0:
            target.load_state_dict(net.state_dict())
        return loss

    return step


@program
def actor_critic(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.affine, self.actor, self.critic = nn.Linear(4, 32), nn.Linear(32, 2), nn.Linear(32, 1)
            self.saved = []

        def forward(self, x):
            x = F.relu(self.affine(x))
            return F.softmax(self.actor(x), dim=-1), self.critic(x)

    model = ActorCritic()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    states = torch.randn(6, 4)

    @trace
    def episode(states):
        model.saved.clear()
        for t in range(states.shape[0]):
            probs, value = model(states[t])
            action = torch.argmax(probs)
            model.saved.append((torch.log(probs[action]), value))
        R, losses = 0.0, []
        for t, (log_prob, value) in enumerate(model.saved[::-1]):
            R = 1.0 + 0.99 * R
            advantage = R - value.detach()
            losses.append(-log_prob * advantage + F.smooth_l1_loss(value, torch.tensor([R])))
        optimizer.zero_grad()
        loss = torch.stack(losses).sum()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: episode(states).item()


@program
def soft_actor(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    actor = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 4))
    q1, q2 = _policy(torch, 6, 1), _policy(torch, 6, 1)
    log_alpha = torch.zeros(1, requires_grad=True)
    opt_actor = torch.optim.Adam(actor.parameters(), lr=3e-4)
    opt_alpha = torch.optim.Adam([log_alpha], lr=3e-4)
    states = torch.randn(32, 4)

    def sample(s):
        mean, log_std = actor(s).chunk(2, dim=-1)
        std = log_std.clamp(-5, 2).exp()
        u = mean + std * torch.randn_like(mean)
        logp = (-0.5 * ((u - mean) / std) ** 2 - std.log() - 0.5 * math.log(2 * math.pi)).sum(-1)
        return torch.tanh(u), logp - (2 * (math.log(2) - u - F.softplus(-2 * u))).sum(-1)

    @trace
    def update(s):
        action, logp = sample(s)
        sa = torch.cat([s, action], dim=-1)
        loss = (log_alpha.exp().detach() * logp - torch.min(q1(sa), q2(sa)).squeeze(-1)).mean()
        opt_actor.zero_grad()
        loss.backward()
        opt_actor.step()
        alpha_loss = -(log_alpha * (logp.detach() - 2.0)).mean()
        opt_alpha.zero_grad()
        alpha_loss.backward()
        opt_alpha.step()
        return loss, log_alpha.exp().item()

    return lambda i: update(states)[0].item()


@program
def neural_ode(torch, trace):
    nn = torch.nn

    class Field(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
            self.nfe = 0

        def forward(self, t, y):
            self.nfe += 1
            return self.net(y**3)

    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
    y0, target = torch.randn(16, 2), torch.randn(16, 2)

    def rk4(f, y, t0, t1, n):
        h = (t1 - t0) / n
        for k in range(n):
            t = t0 + k * h
            k1 = f(t, y)
            k2 = f(t + h / 2, y + h / 2 * k1)
            k3 = f(t + h / 2, y + h / 2 * k2)
            k4 = f(t + h, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y

    @trace
    def train(y0):
        optimizer.zero_grad()
        loss = (rk4(field, y0, 0.0, 1.0, 4) - target).abs().mean()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(y0).item() + 0.0 * field.nfe


@program
def adjoint_ode(torch, trace):
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    parameters = tuple(net.parameters())
    optimizer = torch.optim.Adam(parameters, lr=1e-3)

    class Adjoint(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y, *parameters):
            ys = [y]
            with torch.no_grad():
                for _ in range(4):
                    ys.append(ys[-1] + 0.25 * net(ys[-1]))
            ctx.save_for_backward(*ys)
            return ys[-1]

        @staticmethod
        def backward(ctx, g):
            ys, totals = ctx.saved_tensors, [torch.zeros_like(p) for p in parameters]
            for y in reversed(ys[:-1]):
                with torch.enable_grad():
                    y = y.detach().requires_grad_()
                    out = net(y)
                gy, *gp = torch.autograd.grad(out, (y, *parameters), 0.25 * g)
                g = g + gy
                totals = [a + b for a, b in zip(totals, gp)]
            return (g, *totals)

    y0, target = torch.randn(16, 2), torch.randn(16, 2)

    @trace
    def train(y0):
        optimizer.zero_grad()
        loss = ((Adjoint.apply(y0, *parameters) - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(y0).item()


@program
def kalman(torch, trace):
    F, H = torch.tensor([[1.0, 1.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    q = torch.tensor(-2.0, requires_grad=True)
    r = torch.tensor(0.0, requires_grad=True)
    optimizer = torch.optim.Adam([q, r], lr=0.05)
    observations = torch.cumsum(torch.randn(12, 1), 0)

    @trace
    def train(zs):
        x, P, nll = torch.zeros(2), torch.eye(2), 0.0
        for z in zs:
            x, P = F @ x, F @ P @ F.T + torch.exp(q) * torch.eye(2)
            S = H @ P @ H.T + torch.exp(r) * torch.eye(1)
            residual = z - H @ x
            K = P @ H.T @ torch.linalg.inv(S)
            x, P = x + K @ residual, (torch.eye(2) - K @ H) @ P
            nll = nll + 0.5 * (torch.logdet(S) + residual @ torch.linalg.solve(S, residual))
        optimizer.zero_grad()
        nll.backward()
        optimizer.step()
        return nll

    return lambda i: train(observations).item()


@program
def gaussian_process(torch, trace):
    x = torch.linspace(0, 1, 24)[:, None]
    y = torch.sin(6 * x[:, 0]) + 0.1 * torch.randn(24)
    raw = {name: torch.zeros((), requires_grad=True) for name in ("length", "scale", "noise")}
    optimizer = torch.optim.Adam(list(raw.values()), lr=0.05)

    @trace
    def train():
        length, scale, noise = (torch.nn.functional.softplus(v) for v in raw.values())
        K = scale * torch.exp(-0.5 * torch.cdist(x, x).pow(2) / length**2)
        L = torch.linalg.cholesky(K + (noise + 1e-4) * torch.eye(24))
        alpha = torch.cholesky_solve(y[:, None], L)[:, 0]
        nll = 0.5 * y @ alpha + L.diagonal().log().sum() + 12 * math.log(2 * math.pi)
        optimizer.zero_grad()
        nll.backward()
        optimizer.step()
        return nll

    return lambda i: train().item()


@program
def physics_informed(torch, trace):
    nn = torch.nn
    net = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    grad = torch.autograd.grad

    @trace
    def train(points):
        xt = points.clone().requires_grad_(True)
        u = net(xt)
        du = grad(u.sum(), xt, create_graph=True)[0]
        uxx = grad(du[:, 0].sum(), xt, create_graph=True)[0][:, 0]
        loss = ((du[:, 1] - 0.1 * uxx) ** 2).mean() + (u[:4] ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lambda i: train(torch.rand(64, 2)).item()
