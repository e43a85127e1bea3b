"""Programs about learning itself: meta-learning, distillation, experts, graphs, odd losses and optimizers."""

import logging
from dataclasses import dataclass, field

from . import program

log = logging.getLogger("research")


@program
def maml(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    net = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
    names = [name for name, _ in net.named_parameters()]
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)

    def forward(x, params):
        x = F.relu(F.linear(x, params["0.weight"], params["0.bias"]))
        return F.linear(x, params["2.weight"], params["2.bias"])

    @trace
    def train(xs, ys, xq, yq):
        total = 0.0
        for x, y, x2, y2 in zip(xs, ys, xq, yq):
            params = dict(net.named_parameters())
            loss = F.mse_loss(forward(x, params), y)
            grads = torch.autograd.grad(loss, params.values(), create_graph=True)
            params = {name: params[name] - 0.01 * g for name, g in zip(names, grads)}
            total = total + F.mse_loss(forward(x2, params), y2)
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
        return total

    tasks = [torch.randn(4, 10, 1) for _ in range(4)]
    return lambda i: train(*tasks).item()


@program
def distillation_with_hooks(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    teacher = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10)).eval()
    student = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 10))
    kept = {}
    teacher[1].register_forward_hook(lambda m, i, o: kept.__setitem__("teacher", o))
    student[1].register_forward_hook(lambda m, i, o: kept.__setitem__("student", o))
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    x, y = torch.randn(32, 16), torch.randint(0, 10, (32,))

    @trace
    def train(x, y, T=4.0):
        with torch.no_grad():
            soft = F.softmax(teacher(x) / T, dim=-1)
        logits = student(x)
        loss = F.kl_div(F.log_softmax(logits / T, dim=-1), soft, reduction="batchmean") * T * T
        loss = loss + F.cross_entropy(logits, y) + F.mse_loss(kept["student"], kept["teacher"])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(x, y).item()


@program
def mixture_of_experts(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class MoE(nn.Module):
        def __init__(self, dim=16, experts=4, k=2):
            super().__init__()
            self.gate, self.k = nn.Linear(dim, experts), k
            self.experts = nn.ModuleList(
                [nn.Sequential(nn.Linear(dim, 32), nn.GELU(), nn.Linear(32, dim)) for _ in range(experts)]
            )

        def forward(self, x):
            weights, chosen = torch.topk(F.softmax(self.gate(x), -1), self.k, dim=-1)
            out = torch.zeros_like(x)
            for i, expert in enumerate(self.experts):
                share = (weights * (chosen == i)).sum(-1, keepdim=True)
                out = out + share * expert(x)
            return out

    model = MoE()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x = torch.randn(32, 16)

    @trace
    def train(x):
        loss = F.mse_loss(model(x), x.flip(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(x).item()


@program
def graph_network(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Convolution(nn.Module):
        def __init__(self, cin, cout):
            super().__init__()
            self.lin = nn.Linear(cin, cout)

        def forward(self, x, edges):
            src, dst = edges
            degree = torch.zeros(x.size(0)).scatter_add_(0, dst, torch.ones(dst.size(0))).clamp(min=1)
            messages = self.lin(x)[src]
            out = torch.zeros(x.size(0), messages.size(1)).index_add_(0, dst, messages)
            return out / degree.unsqueeze(1)

    class GNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.ModuleList([Convolution(8, 16), Convolution(16, 16)])
            self.head = nn.Linear(16, 3)

        def forward(self, x, edges):
            for i, conv in enumerate(self.convs):
                x = conv(x, edges)
                if i < len(self.convs) - 1:
                    x = F.dropout(F.relu(x), p=0.5, training=self.training)
            return self.head(x)

    model = GNN()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    x, edges, y = torch.randn(40, 8), torch.randint(0, 40, (2, 160)), torch.randint(0, 3, (40,))
    train_mask = torch.rand(40) > 0.3

    @trace
    def train(x, edges):
        model.train()
        optimizer.zero_grad()
        out = model(x, edges)
        loss = F.cross_entropy(out, torch.where(train_mask, y, torch.full_like(y, -100)))
        loss.backward()
        optimizer.step()
        return float(loss)

    return lambda i: train(x, edges)


@program
def quantile_regression(torch, trace):
    nn = torch.nn
    quantiles = [0.1, 0.5, 0.9]
    model = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, len(quantiles)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(64, 4), torch.randn(64)

    @trace
    def train(x, y):
        preds, losses = model(x), []
        for i, q in enumerate(quantiles):
            errors = y - preds[:, i]
            losses.append(torch.max((q - 1) * errors, q * errors).unsqueeze(1))
        loss = torch.mean(torch.sum(torch.cat(losses, dim=1), dim=1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return lambda i: train(x, y)


@program
def spiking_network(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Spike(torch.autograd.Function):
        @staticmethod
        def forward(ctx, u):
            ctx.save_for_backward(u)
            return (u > 0).float()

        @staticmethod
        def backward(ctx, g):
            (u,) = ctx.saved_tensors
            return g / (10 * u.abs() + 1.0) ** 2

    fc1, fc2 = nn.Linear(10, 32), nn.Linear(32, 2)
    optimizer = torch.optim.Adam([*fc1.parameters(), *fc2.parameters()], lr=1e-3)
    x, y = (torch.rand(16, 8, 10) > 0.7).float(), torch.randint(0, 2, (16,))

    @trace
    def train(x, y):
        membrane, spikes, out = torch.zeros(16, 32), torch.zeros(16, 32), 0
        for t in range(x.size(1)):
            membrane = 0.9 * membrane * (1 - spikes) + fc1(x[:, t])
            spikes = Spike.apply(membrane - 1.0)
            out = out + fc2(spikes)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(x, y).item()


@program
def gradient_accumulation(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(16, 16), torch.randn(16, 1)

    @trace
    def train(x, y, step):
        loss = F.mse_loss(model(x), y) / 4
        loss.backward()
        if (step + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return lambda i: train(x, y, i).item()


@program
def weight_average(torch, trace):
    import copy

    nn, F = torch.nn, torch.nn.functional

    class EMA:
        def __init__(self, model, decay):
            self.model, self.decay, self.updates = copy.deepcopy(model).eval(), decay, 0

        @torch.no_grad()
        def update(self, model):
            self.updates += 1
            d = min(self.decay, (1 + self.updates) / (10 + self.updates))
            for e, p in zip(self.model.parameters(), model.parameters()):
                e.mul_(d).add_(p, alpha=1 - d)

    model = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 4))
    ema = EMA(model, 0.999)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = torch.randn(32, 8), torch.randint(0, 4, (32,))

    @trace
    def train(x, y):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        ema.update(model)
        return loss

    return lambda i: train(x, y).item()


@program
def own_optimizer(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    velocity = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    x, y = torch.randn(32, 8), torch.randn(32, 1)

    @trace
    def train(x, y):
        model.zero_grad()
        loss = F.l1_loss(model(x), y)
        loss.backward()
        with torch.no_grad():
            for name, p in model.named_parameters():
                velocity[name].mul_(0.9).add_(p.grad)
                p -= 0.01 * velocity[name]
        return loss

    return lambda i: train(x, y).item()


@program
def logged_training(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    @dataclass
    class State:
        step: int = 0
        best: float = float("inf")
        history: list = field(default_factory=list)

    model, state = nn.Linear(8, 1), State()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = torch.randn(32, 8), torch.randn(32, 1)

    @trace
    def train(x, y):
        loss = F.huber_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        state.step += 1
        state.history.append(loss.item())
        log.debug("step %d: %.4f", state.step, loss.item())
        return loss

    def step(i):
        value = train(x, y).item()
        state.best = min(state.best, value)
        return value

    return step


@program
def dropout_schedule(torch, trace):
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc2, self.p, self.calls = nn.Linear(16, 64), nn.Linear(64, 4), 0.5, 0

        def forward(self, x):
            self.calls += 1
            return self.fc2(F.dropout(F.relu(self.fc1(x)), self.p, self.training))

    model = Net()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    x, y = torch.randn(32, 16), torch.randint(0, 4, (32,))

    @trace
    def train(x, y, temperature):
        loss = F.cross_entropy(model(x) / temperature, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def step(i):
        model.p = max(0.1, 0.5 - 0.01 * i)
        return train(x, y, 1.0 + 1.0 / (1 + i)).item()

    return step


@program
def hypernetwork(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    shapes = {"w1": (8, 4), "b1": (8,), "w2": (1, 8), "b2": (1,)}
    total = sum(torch.Size(s).numel() for s in shapes.values())
    hyper = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, total))
    optimizer = torch.optim.Adam(hyper.parameters(), lr=1e-3)
    task, x, y = torch.randn(3), torch.randn(16, 4), torch.randn(16, 1)

    @trace
    def train(task, x, y):
        flat, params, at = hyper(task), {}, 0
        for name, shape in shapes.items():
            n = torch.Size(shape).numel()
            params[name] = flat[at : at + n].view(shape)
            at += n
        h = torch.relu(F.linear(x, params["w1"], params["b1"]))
        loss = F.mse_loss(F.linear(h, params["w2"], params["b2"]), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return lambda i: train(task, x, y).item()


@program
def matrix_factorisation(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    users, items = nn.Embedding(100, 16), nn.Embedding(80, 16)
    bias = nn.ParameterList([nn.Parameter(torch.zeros(100)), nn.Parameter(torch.zeros(80))])
    optimizer = torch.optim.Adam([*users.parameters(), *items.parameters(), *bias.parameters()], lr=1e-2)
    u, v, r = torch.randint(0, 100, (64,)), torch.randint(0, 80, (64,)), torch.rand(64) * 5

    @trace
    def train(u, v, r):
        predicted = (users(u) * items(v)).sum(1) + bias[0][u] + bias[1][v]
        penalty = sum(p.pow(2).sum() for p in bias)
        loss = F.mse_loss(predicted, r) + 1e-3 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return lambda i: train(u, v, r)


@program
def contrastive_pairs(torch, trace):
    nn, F = torch.nn, torch.nn.functional
    image, text = nn.Linear(32, 16), nn.Linear(24, 16)
    scale = nn.Parameter(torch.tensor(2.6592))
    optimizer = torch.optim.AdamW([*image.parameters(), *text.parameters(), scale], lr=1e-3)
    a, b = torch.randn(16, 32), torch.randn(16, 24)

    @trace
    def train(a, b):
        x, y = F.normalize(image(a), dim=-1), F.normalize(text(b), dim=-1)
        logits = scale.exp() * x @ y.t()
        labels = torch.arange(len(logits))
        loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels)) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            scale.clamp_(0, 4.6052)
        return loss

    return lambda i: train(a, b).item()
