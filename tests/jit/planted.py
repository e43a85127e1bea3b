"""Planted bugs in passes, lowerings, code generation and the runtime, and the programs that meet them.

A bug is an edit of one function's own text, made in the running process: the function keeps its identity, so
whoever holds it runs the edited code.  `where` names the function: "passes.graphs.cse:key_of" in a module,
"passes.graphs.compose:_Composer.stage" in a class, "lower:sum" what an op's record is lowered by.
"""

from __future__ import annotations

import gc
import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import _lru_cache_wrapper
from types import CodeType, FunctionType

import numpy as np

import lamina
from lamina import jit, nn, optim
from lamina.ir.lowering import Decomposition, KernelForm
from lamina.ir.op import REGISTRY
from lamina.jit import backend
from lamina.nn import functional as F
from lamina.passes import cache as disk
from lamina.passes.graphs import compose, pieces
from lamina.passes.programs import build_program


@dataclass(frozen=True)
class Bug:
    """An edit, the program that meets it, and where it should be placed.

    stage: what the finding's stage begins with.  op: an op that it names, "" for any.  also: further edits
    (where, right, wrong), of checks that would refuse the bug before it does harm.
    """

    name: str
    where: str
    right: str
    wrong: str
    program: str
    stage: str
    op: str = ""
    also: tuple[tuple[str, str, str], ...] = ()


# ---- planting ----------------------------------------------------------------------------------------------
def function_at(where: str) -> FunctionType:
    place, _, name = where.partition(":")
    if place == "lower":
        lower = REGISTRY[name].lower
        found = lower.build if isinstance(lower, KernelForm) else (
            lower.function if isinstance(lower, Decomposition) else lower.body
        )  # fmt: skip
    else:
        found = importlib.import_module(f"lamina.{place}")
        for part in name.split("."):
            found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
    found = found.fget if isinstance(found, property) else found
    found = getattr(found, "func", found) if not isinstance(found, FunctionType) else found
    return inspect.unwrap(found)


def edited(function: FunctionType, right: str, wrong: str) -> CodeType:
    """The function's code with one piece of its text replaced; with no `right`, `wrong` is a lambda."""
    free = function.__code__.co_freevars
    if not right:
        return eval(wrong, function.__globals__).__code__
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(right) == 1, f"{right!r} stands {source.count(right)} times in {function.__name__}"
    body = textwrap.indent(source.replace(right, wrong), "    ")
    flags = function.__code__.co_flags & 0x1000000  # from __future__ import annotations
    text = f"def outer({', '.join(free)}):\n{body}\n"
    module = compile(text, inspect.getsourcefile(function) or "", "exec", flags, dont_inherit=True)
    (outer,) = (c for c in module.co_consts if isinstance(c, CodeType))
    return next(c for c in outer.co_consts if isinstance(c, CodeType) and c.co_name == function.__name__)


@contextmanager
def edit(where: str, right: str, wrong: str) -> Iterator[None]:
    function = function_at(where)
    before = function.__code__
    function.__code__ = edited(function, right, wrong)
    try:
        yield
    finally:
        function.__code__ = before


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The bug in this process, with no compiled code from before it, and none left after it."""
    kept = disk._default
    with ExitStack() as stack:
        for one in ((bug.where, bug.right, bug.wrong), *bug.also):
            stack.enter_context(edit(*one))
        disk._default = disk.Cache(None)
        forget()
        try:
            yield
        finally:
            disk._default = kept
            forget()


def forget() -> None:
    """Drop everything that was compiled, and whatever passes remember from one graph to the next."""
    backend.forget()
    for table in (compose._kernels, compose._drafts, pieces._pieces, build_program._reading):
        table.clear()
    for name, module in list(sys.modules.items()):
        if name.startswith("lamina.passes.") and not name.endswith("binding"):
            for value in list(vars(module).values()):
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()


# ---- the programs ------------------------------------------------------------------------------------------
def numbers(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0):
    data = np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)
    return lamina.tensor(data)


def whole(*shape: int, high: int = 5, seed: int = 0):
    return lamina.tensor(np.random.default_rng(seed).integers(0, high, shape))


def trained(optimizer: Callable, loss: Callable, **options) -> Callable:
    net = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
    made = optimizer(net.parameters(), lr=0.05, **options)

    def step(x, y):
        made.zero_grad()
        value = loss(net(x), y)
        value.backward()
        made.step()
        return value

    return step


def folded() -> Callable:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, eps=1e-2)).eval()
    with lamina.no_grad():
        net[1].running_mean.copy_(numbers(4, seed=1))
        net[1].running_var.copy_(numbers(4, seed=2, low=0.5, high=2.0))
        net[1].weight.copy_(numbers(4, seed=3))
        net[1].bias.copy_(numbers(4, seed=4))
    return calling(net)


def calling(net: nn.Module) -> Callable:
    def call(x):
        with lamina.no_grad():
            return net(x)

    return call


def layer(kind: Callable, *args, **options) -> Callable:
    lamina.manual_seed(3)
    return calling(kind(*args, **options).eval())


def two_writes(x):
    x[0].add_(1.0)
    x[1].mul_(3.0)
    return x * 2.0


def through_a_view(x):
    row = x[0]
    row.add_(1.0)
    x.mul_(2.0)
    return row + 3.0


def written_after(x):
    y = x.clone()
    y.add_(1.0)
    return y, x.relu_()


def swapped(x, y):
    x.mul_(2.0)
    y.add_(1.0)


def slices(x):
    leaf = x.detach().requires_grad_()
    total = leaf[0].square() + leaf[1].exp() + leaf[2].sin()
    total.sum().backward()
    return leaf.grad


def given_twice(x):
    y = x * 2.0
    x.copy_(y)
    return y


def pieces_of_a_copy(x, y):
    z = x.clone()
    z[0] = y[0]
    z[1] = y[2]
    return z


def many(x, y):
    """Products and what is computed from them, one needed long after it was made."""
    a = x @ y
    b = (a.relu() @ y).tanh()
    c = (b @ y).sigmoid()
    d = (c @ y) + a
    return d @ y, b.sum(0), a.sum(1)


def counting() -> Callable:
    weight = numbers(48, 40, seed=5)

    def call(x):
        with lamina.no_grad():
            return x @ weight

    def prepared(x):
        with lamina.no_grad():
            if prepared.calls:
                weight.add_(1.0)
            prepared.calls += 1

    prepared.calls = 0
    call.before = prepared
    return call


def two_weights() -> Callable:
    one, two = numbers(48, 48, seed=5), numbers(48, 48, seed=6)

    def call(x):
        with lamina.no_grad():
            return (x @ one).relu() @ two

    return call


def with_nan(*shape: int):
    x = numbers(*shape)
    x.reshape(-1)[3] = float("nan")
    x.reshape(-1)[-2] = float("nan")
    return x


# name: () -> (function, arguments).  Every call makes new tensors, as some programs write theirs.
PROGRAMS: dict[str, Callable[[], tuple[Callable, tuple]]] = {
    "two sums": lambda: (lambda x: x.sum(0) * x.sum(1), (numbers(6, 6),)),
    "differences": lambda: (lambda x, y: (x - y) * (y - x).exp(), (numbers(6, 6), numbers(6, 6, seed=1))),
    "two constants": lambda: (lambda x: x * 2.0 + 3.0, (numbers(6, 6),)),
    "a quarter": lambda: (lambda x: x / 4.0, (numbers(6, 6),)),
    "a root": lambda: (lambda x: x**0.5, (numbers(6, 6, low=0.5),)),
    "minus zero": lambda: (lambda x: x + 0.0, (lamina.tensor([-0.0, 1.0, -0.0]),)),
    "there and back": lambda: (lambda x: x.to(lamina.int32).to(lamina.float32), (numbers(6, 6),)),
    "a choice": lambda: (
        lambda x, y: lamina.where(lamina.ones(6, dtype=lamina.bool), x, y),
        (numbers(6, 6), numbers(6, 6, seed=1)),
    ),
    "turned twice": lambda: (lambda x: x.permute(1, 2, 0).permute(0, 2, 1) * 1.5, (numbers(3, 3, 3),)),
    "a slice of a slice": lambda: (lambda x: x[::2][1:3] * 1.5, (numbers(9, 4),)),
    "a row of a slice": lambda: (lambda x: x[2:][1] * 1.5, (numbers(9, 4),)),
    "flipped": lambda: (lambda x: x.flip(0).flip(1) * 1.5, (numbers(4, 4),)),
    "flipped once": lambda: (lambda x: x.flip(0) * 1.5, (numbers(4, 5),)),
    "ones": lambda: (lambda x: x - lamina.ones_like(x), (numbers(4, 5),)),
    "pieces of a copy": lambda: (pieces_of_a_copy, (numbers(3, 4), numbers(3, 4, seed=1))),
    "a known root": lambda: (lambda x: x * lamina.full((6,), 2.0).sqrt(), (numbers(6, 6),)),
    "a known difference": lambda: (
        lambda x: x * (lamina.full((6,), 5.0) - lamina.full((6,), 2.0)), (numbers(6, 6),)
    ),
    "conv and norm": lambda: (folded(), (numbers(2, 3, 6, 6),)),
    "slices": lambda: (slices, (numbers(3, 8),)),
    "spread": lambda: (lambda x: x.std(1), (numbers(6, 19),)),
    "loss": lambda: (
        lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1), (numbers(6, 5), whole(6)),
    ),
    "adam": lambda: (trained(optim.Adam, F.cross_entropy), (numbers(4, 6), whole(4, high=3))),
    "sgd": lambda: (
        trained(optim.SGD, F.mse_loss, momentum=0.9, nesterov=True), (numbers(4, 6), numbers(4, 3)),
    ),
    "two writes": lambda: (two_writes, (numbers(2, 5),)),
    "through a view": lambda: (through_a_view, (numbers(2, 5),)),
    "written after": lambda: (written_after, (numbers(2, 5),)),
    "given twice": lambda: (given_twice, (numbers(5),)),
    "swapped": lambda: (swapped, (numbers(5), numbers(5, seed=1))),
    "a sum": lambda: (lambda x: x.sum(0), (numbers(6, 6),)),
    "a mean": lambda: (lambda x: x.mean(1), (numbers(7, 19),)),
    "a long sum": lambda: (lambda x: x.sum(), (numbers(300_001, low=0.0),)),
    "a sum of powers": lambda: (lambda x: x.exp().sum(1), (numbers(7, 19),)),
    "a product of elements": lambda: (lambda x: x.prod(1), (numbers(5, 7),)),
    "rectified": lambda: (lambda x: x.relu(), (numbers(7, 19),)),
    "leaky": lambda: (lambda x: F.leaky_relu(x, 0.1), (numbers(7, 19),)),
    "gelu": lambda: (lambda x: F.gelu(x), (numbers(7, 19),)),
    "softmax": lambda: (lambda x: x.softmax(1), (numbers(7, 19, high=99.0),)),
    "log_softmax": lambda: (lambda x: x.log_softmax(1), (numbers(7, 19),)),
    "logsumexp": lambda: (lambda x: x.logsumexp(1), (numbers(7, 19, high=200.0),)),
    "a product": lambda: (lambda x, y: x @ y, (numbers(6, 6), numbers(6, 6, seed=1))),
    "an affine map": lambda: (layer(nn.Linear, 19, 7), (numbers(5, 19),)),
    "a wide map": lambda: (layer(nn.Linear, 19, 150), (numbers(5, 19),)),
    "a large product": lambda: (lambda x, y: (x @ y).relu(), (numbers(37, 65), numbers(65, 41, seed=1))),
    "a tall product": lambda: (lambda x, y: x @ y.T, (numbers(3, 64), numbers(5, 64, seed=1))),
    "a convolution": lambda: (layer(nn.Conv2d, 3, 5, 3, padding=1), (numbers(2, 3, 7, 7),)),
    "a strided convolution": lambda: (layer(nn.Conv2d, 3, 5, 3, stride=2, padding=1), (numbers(2, 3, 9, 9),)),
    "a wide convolution": lambda: (layer(nn.Conv2d, 16, 32, 3, padding=1), (numbers(1, 16, 8, 8),)),
    "a narrow convolution": lambda: (layer(nn.Conv2d, 5, 20, 1), (numbers(1, 5, 6, 6),)),
    "a batch of images": lambda: (layer(nn.Conv2d, 4, 8, 3, padding=1), (numbers(16, 4, 6, 6),)),
    "pooled": lambda: (lambda x: F.max_pool2d(x, 3, 2, 1), (numbers(1, 2, 7, 7, low=-9.0, high=-1.0),)),
    "averaged": lambda: (lambda x: F.avg_pool2d(x, 2), (numbers(1, 2, 8, 8),)),
    "layer norm": lambda: (layer(nn.LayerNorm, 19, eps=1e-2), (numbers(7, 19),)),
    "rms norm": lambda: (layer(nn.RMSNorm, 19, eps=1e-2), (numbers(7, 19),)),
    "batch norm": lambda: (layer(nn.BatchNorm1d, 19, eps=1e-2), (numbers(7, 19),)),
    "variance": lambda: (lambda x: x.var(1), (numbers(7, 19),)),
    "chosen rows": lambda: (lambda x, i: x.index_select(0, i), (numbers(7, 19), whole(5))),
    "embedded": lambda: (layer(nn.Embedding, 7, 19), (whole(5),)),
    "gathered": lambda: (lambda x, i: x.gather(1, i), (numbers(5, 7), whole(5, 3))),
    "running": lambda: (lambda x: x.cumsum(1), (numbers(7, 19),)),
    "running mean": lambda: (lambda x: x.logcumsumexp(1), (numbers(7, 19),)),
    "largest": lambda: (lambda x: x.max(1), (numbers(7, 19),)),
    "largest of all": lambda: (lambda x: x.amax(1), (with_nan(7, 19),)),
    "the larger": lambda: (lambda x, y: lamina.maximum(x, y), (numbers(7, 19, seed=1), with_nan(7, 19))),
    "joined": lambda: (lambda x, y: lamina.cat([x, y], 1), (numbers(3, 5), numbers(3, 4, seed=1))),
    "stacked": lambda: (lambda x, y: lamina.stack([x, y], 1), (numbers(3, 5), numbers(3, 5, seed=1))),
    "padded": lambda: (lambda x: F.pad(x, (2, 1)), (numbers(3, 5),)),
    "a triangle": lambda: (lambda x: x.tril(), (numbers(5, 5),)),
    "added at places": lambda: (
        lambda x, i, y: x.index_add(0, i, y), (numbers(5, 6), whole(9), numbers(9, 6, seed=1)),
    ),
    "dropped": lambda: (lambda x: F.dropout(x, 0.5), (numbers(7, 19),)),
    "divided": lambda: (
        lambda x, y: x // y, (whole(40, high=50) - 25, (whole(40, high=9, seed=1) - 4).abs() + 1),
    ),
    "a whole power": lambda: (lambda x, y: x**y, (whole(40, high=6) - 3, whole(40, high=5, seed=1))),
    "halves": lambda: (lambda x: (x * 1.5).exp(), (numbers(7, 19).to(lamina.bfloat16),)),
    "signs": lambda: (lambda x: lamina.tanh(x) * x.sin(), (numbers(7, 19),)),
    "transposed": lambda: (lambda x: x.T + 1.0, (numbers(33, 35),)),
    "many": lambda: (many, (numbers(20, 20), numbers(20, 20, seed=1))),
    "prepared": lambda: (counting(), (numbers(40, 48),)),
    "two weights": lambda: (two_weights(), (numbers(40, 48),)),
    "normed and scaled": lambda: (
        lambda x: (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-2), (numbers(7, 19),)
    ),
    "attention": lambda: (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v),
        (numbers(2, 9, 8), numbers(2, 9, 8, seed=1), numbers(2, 9, 8, seed=2)),
    ),
    "a long reduction": lambda: (lambda x: (x * 2.0).sum(1), (numbers(2, 200_003, low=0.0),)),
    "a large map": lambda: (lambda x: x.exp() + 1.0, (numbers(700, 1001),)),
    "halved": lambda: (lambda x: x.reshape(2, 12)[1].exp(), (numbers(24),)),
}  # fmt: skip


def run_twice(name: str) -> None:
    """Run a program as recorded, and then twice verified."""
    function, arguments = PROGRAMS[name]()
    traced = jit.trace(function, verify=True)
    before = getattr(function, "before", lambda *_: None)
    for _ in range(4 if "adam" in name or "sgd" in name or before.__name__ == "prepared" else 2):
        before(*arguments)
        traced(*arguments)
    gc.collect()
