"""Lamina's own code: runs natively with all it reads taken in whole, and is interpreted around the user's."""

import io

import pytest
from served import holds, recorded

import lamina
import lamina.nn.functional as F
from lamina import nn
from lamina.facade.amp import GradScaler
from lamina.jit.observe.names import is_librarys, library_class, library_names
from lamina.optim.lr_scheduler import StepLR

X = lamina.tensor([[1.0, -2.0], [0.5, 3.0]])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.blocks = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
        self.scale = 2.0

    def forward(self, x):
        x = self.fc(x)
        for block in self.blocks:
            x = F.gelu(block(x))
        return x * self.scale


def taken(watching):
    """The modules that were taken in whole."""
    return [module() for part in watching.guards.parts for module, *_ in part.modules]


def step(x, net, optimizer):
    optimizer.zero_grad()
    loss = net(x).sum()
    loss.backward()
    optimizer.step()
    return loss.detach()


# ---- functions ----
FUNCTIONS = {
    "ops": lambda x: lamina.relu(x) + x.exp().sum(dim=0) - lamina.cat([x, x])[0],
    "functional": lambda x: F.cross_entropy(F.relu(x), lamina.tensor([0, 1])),
    "creation": lambda x: (
        lamina.zeros(2, 2) + lamina.arange(2) + lamina.ones_like(x) + lamina.tensor([1.0, 2.0])
    ),
    "attributes": lambda x: (x.shape, x.dtype, x.T, x.size(0), len(x), x.max(0).values, x.device, x.ndim),
    "added_up": lambda x: sum([x, x]) + sum(v.sum() for v in [x, x]),
    "conversions": lambda x: (
        x.to(lamina.float64),
        x.double(),
        lamina.finfo(x.dtype).eps,
        lamina.device("cpu"),
    ),
    "questions": lambda x: (lamina.is_tensor(x), isinstance(x, lamina.Tensor), lamina.is_grad_enabled()),
    "random": lambda x: F.dropout(x, 0.5) + lamina.randn(2),
    "gradient": lambda x: lamina.autograd.grad((x * (w := lamina.ones(2, requires_grad=True))).sum(), [w]),
    "hook": lambda x: (x * lamina.ones(2, requires_grad=True)).register_hook(abs).remove(),
    "function of one's own": lambda x: Double.apply(x),
    "given a function": lambda x: F.triplet_margin_with_distance_loss(x, x, x, distance_function=manhattan),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_run_natively(name):
    watching = recorded(FUNCTIONS[name], X)
    assert watching.refused is None
    assert holds(watching, X)


REFUSED = {
    "save() reads or writes a file": lambda x: lamina.save(x, io.BytesIO()),
    "gradcheck() runs a function many times": lambda x: lamina.autograd.gradcheck(
        lambda v: v * 2, (x.double().requires_grad_(),)
    ),
    "DataLoader hands out other data at each call": lambda x: [*lamina.data.DataLoader(DATA)],
    "Module.to() changes a module": lambda x: NET.to(lamina.float32),
    "load_state_dict() with arguments, or through code of the user's, changes a module": (
        lambda x: NET.load_state_dict(NET.state_dict(), assign=True)
    ),
}
NET = Net()
DATA = lamina.data.TensorDataset(X)


def manhattan(a, b):
    return (a - b).abs().sum(-1)


class Double(lamina.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused(why):
    assert why in recorded(REFUSED[why], X).refused


# ---- modules ----
def test_a_library_module_is_taken_in_whole():
    net = nn.Sequential(nn.Linear(2, 3), nn.Sequential(nn.BatchNorm1d(3), nn.GELU()))
    watching = recorded(lambda x: net(x), X)
    assert watching.refused is None
    assert taken(watching) == [*net.modules()]


def test_a_module_of_the_users_is_interpreted():
    net = Net()
    watching = recorded(lambda x: net(x), X)
    assert watching.refused is None
    assert taken(watching) == [net.fc, *net.blocks]
    assert holds(watching, X)
    net.scale = 3.0
    assert not holds(watching, X)


def test_a_sequence_of_the_users_modules_is_interpreted():
    net = nn.Sequential(nn.Linear(2, 2), Net())
    watching = recorded(lambda x: net(x), X)
    assert watching.refused is None
    assert net not in taken(watching)
    assert net[0] in taken(watching)
    net[1].scale = 3.0
    assert not holds(watching, X)


def test_hooks_are_interpreted():
    net, seen = nn.Linear(2, 2), []

    def hook(module, args, output):
        seen.append(1)
        return output * 2

    net.register_forward_hook(hook)
    watching = recorded(lambda x: net(x), X)
    assert watching.refused is None
    assert len(watching.written.effects) == len(seen) == 1
    assert holds(watching, X) is True
    net.register_forward_hook(hook)
    assert not holds(watching, X)


def test_a_forward_of_its_own_is_called():
    net, seen = nn.Linear(2, 2), [2.0]
    net.forward = lambda x: x * seen[0]
    watching = recorded(lambda x: net(x), X)
    assert watching.result_of_run.tolist() == (X * 2).tolist()
    assert holds(watching, X)
    seen[0] = 3.0
    assert not holds(watching, X)


def test_parameters_are_taken_in_whole():
    net = Net()
    watching = recorded(
        lambda x: (sum(p.numel() for p in net.parameters()), [n for n, _ in net.named_parameters()]), X
    )
    assert watching.refused is None
    assert watching.result_of_run == (
        sum(p.numel() for p in net.parameters()),
        [n for n, _ in net.named_parameters()],
    )
    assert taken(watching) == [*net.modules()]


def test_training_mode_is_an_effect():
    net = Net()
    watching = recorded(lambda x: (net.eval(), net.fc.training)[1], X)
    assert watching.refused is None
    assert watching.result_of_run is False
    assert len(watching.written.effects) == len([*net.modules()])


def test_attributes_written_in_forward_are_effects():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0
            self.register_buffer("last", lamina.zeros(2, 2))

        def forward(self, x):
            self.calls += 1
            self.last = x * 2
            return self.last

    net = Counting()
    watching = recorded(lambda x: net(x), X)
    assert watching.refused is None
    assert [args[1] for _, args, _ in watching.written.effects] == ["calls", "last"]


def test_modules_made_in_the_run():
    watching = recorded(lambda x: (nn.Linear(2, 2)(x), Net()(x), nn.MSELoss()(x, x))[0], X)
    assert watching.refused is None
    assert watching.written.effects == []
    assert taken(watching) == []


# ---- a library that is patched ----
def test_names_that_library_code_looks_up():
    names = {
        (module.__name__, name)
        for module, name in library_names(nn.Linear.forward.__code__, "lamina.nn.linear")
    }
    assert names == {("lamina.nn.linear", "ops"), ("lamina.runtime.ops", "linear")}
    assert is_librarys(F.gelu) and library_class(nn.Linear)
    assert not is_librarys(manhattan) and not library_class(Net)


def test_a_patched_op_is_seen(monkeypatch):
    net = nn.Sequential(nn.Linear(2, 3))
    watching = recorded(lambda x: net(x), X)
    assert holds(watching, X)
    from lamina.runtime import ops

    factor = [2.0]
    monkeypatch.setattr(ops, "linear", lambda x, w, b: (x @ w.T + b) * factor[0])
    assert not holds(watching, X)
    watching = recorded(lambda x: net(x), X)
    assert watching.refused is None
    assert holds(watching, X)
    factor[0] = 3.0
    assert not holds(watching, X)


def test_a_patched_forward_is_seen(monkeypatch):
    net = nn.Sequential(nn.Linear(2, 3))
    watching = recorded(lambda x: net(x), X)
    factor = [2.0]
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x * factor[0])
    assert not holds(watching, X)
    watching = recorded(lambda x: net(x), X)
    assert watching.refused is None
    factor[0] = 3.0
    assert not holds(watching, X)


# ---- modes ----
def test_functions_under_no_grad_are_interpreted():
    factor = [2.0]

    @lamina.no_grad()
    def scaled(x):
        return x * factor[0]

    @lamina.no_grad()
    def parts(x):
        yield x * factor[0]

    for function in (scaled, lambda x: [*parts(x)]):
        watching = recorded(function, X)
        assert watching.refused is None
        assert holds(watching, X)
        factor[0] += 1
        assert not holds(watching, X)


def test_mode_blocks():
    def run(x):
        with lamina.no_grad():
            off = lamina.is_grad_enabled()
            with lamina.enable_grad():
                on = lamina.is_grad_enabled()
        return off, on, lamina.is_grad_enabled()

    watching = recorded(run, X)
    assert (watching.refused, watching.result_of_run) == (None, (False, True, True))


# ---- optimizers ----
def test_an_optimizer_is_taken_in_whole():
    net = Net()
    optimizer = lamina.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    watching = recorded(lambda x: step(x, net, optimizer), X)
    assert watching.refused is None
    assert [o() for part in watching.guards.parts for o, *_ in part.optimizers] == [optimizer]
    assert holds(watching, X)
    optimizer.register_step_post_hook(lambda *_: None)
    assert not holds(watching, X)


def test_closures_and_hooks_of_optimizers_are_interpreted():
    net, seen = Net(), []
    optimizer = lamina.optim.SGD(net.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: seen.append("before"))

    def closure():
        seen.append("closure")
        return net(X).sum()

    watching = recorded(lambda x: optimizer.step(closure), X)
    assert watching.refused is None
    assert seen == ["before", "closure"]
    assert len(watching.written.effects) == 2


def test_an_optimizer_of_the_users_is_interpreted():
    class Plain(lamina.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @lamina.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        p.add_(p.grad, alpha=-group["lr"])

    net = Net()
    optimizer = Plain(net.parameters(), 0.1)
    net(X).sum().backward()
    watching = recorded(lambda x: optimizer.step(), X)
    assert watching.refused is None
    assert holds(watching, X)
    optimizer.param_groups[0]["lr"] = 0.2
    assert not holds(watching, X)


def test_a_scheduler_is_interpreted():
    optimizer = lamina.optim.SGD(Net().parameters(), lr=0.5)
    optimizer.step()
    scheduler = StepLR(optimizer, 1, gamma=0.5)
    watching = recorded(lambda x: (scheduler.step(), scheduler.get_last_lr())[1], X)
    assert (watching.refused, watching.result_of_run) == (None, [0.25])
    assert len(watching.written.effects) == 3  # the epoch, the rate, the last rates


def test_a_scaler_hands_on():
    net = Net()
    optimizer = lamina.optim.SGD(net.parameters(), lr=0.1)
    scaler = GradScaler(enabled=False)
    watching = recorded(lambda x: (scaler.scale(net(x).sum()).backward(), scaler.step(optimizer))[1], X)
    assert watching.refused is None


def test_state_dicts_of_optimizers_are_refused():
    optimizer = lamina.optim.SGD(Net().parameters(), lr=0.1)
    assert "belongs outside" in recorded(lambda x: optimizer.state_dict(), X).refused


# ---- traced functions inside ----
def test_a_traced_function_inside_is_looked_through():
    jit = pytest.importorskip("lamina.jit", reason="the compiler is not installed")
    factor = [2.0]
    inner = jit.trace(lambda x: x * factor[0])
    watching = recorded(lambda x: inner(x), X)
    assert watching.refused is None
    assert holds(watching, X)
    factor[0] = 3.0
    assert not holds(watching, X)


# ---- text of tensors ----
def test_a_printed_tensor_is_shown_with_its_history(capsys):
    w = lamina.ones(2, requires_grad=True)
    watching = recorded(lambda x: print("loss", (x * w).sum(), w), X)
    assert watching.refused is None
    line = "loss tensor(2.5000, grad_fn=<SumBackward0>) tensor([1., 1.], requires_grad=True)\n"
    assert capsys.readouterr().out == line
    function, args, kwargs = watching.written.effects[0]
    assert not args[2].requires_grad
    function(*args, **kwargs)
    assert capsys.readouterr().out == line
