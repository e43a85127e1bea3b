"""Every option of every optimizer, its states and its parameters may be changed between steps."""

import warnings

import pytest

import lamina
from lamina import jit, nn, optim

KINDS = sorted(
    name
    for name, kind in vars(optim).items()
    if isinstance(kind, type) and issubclass(kind, optim.Optimizer) and name not in ("Optimizer", "LBFGS")
)
# What a step finds changed; `o` is the optimizer, `net` the module.
CHANGES = [
    "o.state.clear()",
    "[s.update({k: v * 0 for k, v in s.items() if isinstance(v, lamina.Tensor)}) for s in o.state.values()]",
    "o.load_state_dict(o.state_dict())",
    "[setattr(p, 'grad', None) for p in net.parameters()]",
    "net[0].weight.requires_grad_(False)",
    "o.param_groups[0]['params'].pop()",
    "o.add_param_group({'params': [nn.Parameter(lamina.ones(1, 1))]})",
    "net[0].weight.data.zero_()",
    "[p.data.fill_(0.5) for p in net.parameters()]",
]


def others(value):
    """Plausible values that an option may have as well."""
    if isinstance(value, bool) or value is None:
        return [not value]
    if isinstance(value, int):
        return [value + 1]
    if isinstance(value, float):
        return [value * 2 + 0.01, value / 4]
    if isinstance(value, tuple) and None not in value:
        return [tuple(each * 0.9 for each in value)]
    return []


def made(kind):
    lamina.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    params = [net[0].weight, net[2].weight] if kind == "Muon" else net.parameters()
    return net, getattr(optim, kind)(params, lr=0.05)


def steps(kind, decorate, before):
    """The losses of nine steps, and the parameters after each; before(o, net, i) comes ahead of step i."""
    net, o = made(kind)

    def step(x):
        o.zero_grad()
        loss = net(x).square().sum()
        loss.backward()
        o.step()
        return loss.detach()

    f, found = decorate(step), []
    for i in range(9):
        try:
            before(o, net, i)
            found.append(f(lamina.full((2, 3), (i + 1) / 5, dtype=lamina.float64)))
        except Exception as error:
            found.append(f"{type(error).__name__} {str(error)[:60]}")
        found += [p.detach().clone() for p in net.parameters()]
    return found


def assert_alike(kind, before):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager, traced = steps(kind, lambda f: f, before), steps(kind, jit.trace, before)
    for at, (a, b) in enumerate(zip(eager, traced, strict=True)):
        same = a == b if isinstance(a, str) or isinstance(b, str) else lamina.allclose(a, b, equal_nan=True)
        assert same, f"step {at // 5}: {a} became {b}"


@pytest.mark.sampled(5)
@pytest.mark.parametrize("kind", KINDS)
def test_options(kind):
    for key, value in made(kind)[1].param_groups[0].items():
        for other in () if key == "params" else others(value):

            def before(o, net, i, key=key, values=(value, other)):
                o.param_groups[0][key] = values[i in (4, 5, 7)]

            assert_alike(kind, before)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_states_and_parameters(kind):
    for change in CHANGES:

        def before(o, net, i, change=change):
            if i in (4, 6):
                eval(change, {"o": o, "net": net, "nn": nn, "lamina": lamina})

        assert_alike(kind, before)
