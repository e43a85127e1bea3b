"""Modules that are alike but for one thing, and what can be asked of them: more of `ways`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import lamina as t
from lamina import nn, optim


class Derived(nn.Linear):
    pass


class Doubling(nn.Linear):
    def forward(self, input: t.Tensor) -> t.Tensor:
        return input * 2


class Scaling(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.factor = linear(), 2.0
        self.register_buffer("shift", t.ones(3))

    def forward(self, x: t.Tensor) -> t.Tensor:
        return self.layer(x) * self.factor + self.shift


def linear(**settings: Any) -> nn.Linear:
    return nn.Linear(3, 3, **settings)


def _changed(make: Callable, change: Callable) -> Callable:
    """Makes a module, with something done to it."""

    def made() -> nn.Module:
        module = make()
        change(module)
        return module

    return made


def _having(make: Callable, name: str, value: Callable) -> Callable:
    return _changed(make, lambda module: setattr(module, name, value()))


def _chain(*parts: Callable, kind: Callable = nn.Sequential) -> Callable:
    def made() -> nn.Module:
        return kind(*[part() for part in parts])

    return made


def _tied() -> nn.Sequential:
    made = nn.Sequential(linear(), linear())
    made[1].weight = made[0].weight
    return made


def _zeroed(module: nn.Linear) -> None:
    with t.no_grad():
        module.weight.zero_()


WAYS: dict[str, list] = {
    "layer": [
        linear, lambda: linear(bias=False), lambda: Derived(3, 3), lambda: Doubling(3, 3),
        lambda: copy.deepcopy(linear()),
        *[_changed(linear, change) for change in (
            lambda m: m.eval(), lambda m: m.weight.requires_grad_(False), lambda m: m.requires_grad_(False),
            lambda m: m.bias.requires_grad_(False), lambda m: m.double(), _zeroed,
            lambda m: m.register_forward_hook(lambda m, args, out: out + 1),
            lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] * 2,)),
            lambda m: m.register_full_backward_hook(lambda *_: None),
            lambda m: m.register_buffer("more", t.ones(2)), nn.utils.parametrizations.weight_norm,
            lambda m: setattr(m.weight, "grad", t.ones(3, 3)),
        )],
        *[_having(linear, name, value) for name, value in (
            ("extra", lambda: 3), ("in_features", lambda: 7), ("part", nn.ReLU),
            ("weight", lambda: nn.Parameter(t.ones(3, 3))), ("bias", lambda: nn.Parameter(t.zeros(3))),
            ("weight", lambda: nn.Parameter(t.ones(3, 3).t())), ("forward", lambda: lambda x: x * 5),
        )],
    ],
    "module": [
        Scaling, _changed(Scaling, lambda m: m.layer.eval()),
        _changed(Scaling, lambda m: m.layer.register_forward_hook(lambda m, args, out: -out)),
        *[_having(Scaling, name, value) for name, value in (
            ("factor", lambda: 3.0), ("factor", lambda: 2), ("factor", lambda: True),
            ("factor", lambda: t.tensor(2.0)), ("factor", lambda: nn.Parameter(t.tensor(2.0))),
            ("layer", linear), ("layer", nn.Identity), ("shift", lambda: t.zeros(3)),
            ("shift", lambda: t.ones(3, requires_grad=True) * 1), ("more", linear),
        )],
    ],
    "chain": [
        _tied, _chain(), _chain(linear), _chain(linear, nn.ReLU), _chain(nn.ReLU, linear),
        _chain(linear, nn.Tanh), _chain(linear, linear), _chain(linear, nn.Dropout),
        _chain(linear, lambda: nn.BatchNorm1d(3)), _chain(linear, lambda: nn.BatchNorm1d(3).eval()),
        _chain(linear, lambda: nn.LayerNorm(3)), _chain(linear, lambda: nn.LeakyReLU(0.1)),
        _chain(linear, lambda: nn.LeakyReLU(0.2)), _chain(linear, lambda: nn.ReLU(inplace=True)),
        _chain(_chain(linear, nn.ReLU)), lambda: nn.ModuleList([linear(), nn.ReLU()]),
        lambda: nn.ModuleDict({"0": linear()}),
    ],
}  # fmt: skip


def _x() -> t.Tensor:
    return t.arange(6.0).reshape(2, 3)


def _stepped(kind: type) -> Callable:
    def step(m: nn.Module) -> list:
        optimizer = kind(m.parameters(), lr=0.01)
        m(_x()).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        return [p.sum() for p in m.parameters()]

    return step


def _done(change: Callable) -> Callable:
    """Does something to a module, and tells nothing of it."""

    def do(m: nn.Module) -> None:
        change(m)

    return do


_QUESTIONS = [
    lambda m: m(_x()), lambda m: m.forward(_x()), lambda m: len(list(m.parameters())), repr, len, bool,
    lambda m: [name for name, _ in m.named_parameters()], lambda m: list(m.state_dict()),
    lambda m: m.training, lambda m: m.zero_grad(), lambda m: getattr(m, "extra", None),
    _done(lambda m: m.eval()), _done(lambda m: m.train()), _done(lambda m: m.requires_grad_(False)),
    _done(lambda m: m.half()), _done(lambda m: m.append(nn.ReLU())), _done(lambda m: m.apply(lambda _: None)),
    _done(lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()})),
    lambda m: [type(part).__name__ for part in m], lambda m: [type(part).__name__ for part in m.modules()],
    lambda m: [name for name, _ in m.named_children()], lambda m: m.weight.sum(), lambda m: m.bias is None,
    lambda m: m.weight.requires_grad, lambda m: m.weight.grad is None, lambda m: m[0](_x()),
    lambda m: sum(p.numel() for p in m.parameters()), lambda m: m.double()(_x().double()),
    lambda m: copy.deepcopy(m)(_x()), lambda m: type(m).__name__, lambda m: hasattr(m, "bias"),
    lambda m: m(_x()).sum().backward(), lambda m: [p.requires_grad for p in m.parameters()],
    lambda m: t.autograd.grad(m(_x()).sum(), [p for p in m.parameters() if p.requires_grad]),
    lambda m: nn.utils.clip_grad_norm_(m.parameters(), 1.0), lambda m: [b.sum() for b in m.buffers()],
    lambda m: nn.utils.parameters_to_vector(m.parameters()).sum(), lambda m: setattr(m, "factor", 9.0),
    lambda m: t.func.functional_call(m, dict(m.named_parameters()), (_x(),)),
    lambda m: [a is b for a in m.parameters() for b in m.parameters()], lambda m: isinstance(m, nn.Linear),
    lambda m: m.in_features, lambda m: m.factor, lambda m: m.get_parameter("weight").shape,
    lambda m: m.get_submodule("0")(_x()), lambda m: m.extra_repr(), _stepped(optim.SGD), _stepped(optim.Adam),
    lambda m: nn.functional.linear(_x(), m.weight, m.bias), lambda m: [*vars(m)],
]  # fmt: skip
QUESTIONS = dict.fromkeys(WAYS, _QUESTIONS)


def shown(module: nn.Module, show: Callable) -> tuple:
    """A module as plain data."""
    return (
        [(name, show(p), show(p.grad)) for name, p in module.named_parameters()],
        [(name, show(b)) for name, b in module.named_buffers()],
        [(name, type(part).__name__, part.training) for name, part in module.named_modules()],
    )
