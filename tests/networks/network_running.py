"""Runs one network eagerly and traced, and says what became of it.

The yardstick is the eager network in float64.  A traced one in float32 must come as near to it as an eager
one in float32 does, within a factor; of a traced one in float64, eager's error in float32 tells how rounding
is magnified, and float64's roundings are 2^29 times smaller.  One whose factors are rounded to bfloat16 is
float32 otherwise, and its products go in pairs wherever they can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from network_blocks import Shape
from network_drawing import Description, Noise, argument, build, random_like

import lamina
from lamina import nn, optim
from lamina.jit import trace
from lamina.passes.programs import assign_layouts, batch_innermost, matrix_convolutions, pack_matmuls
from lamina.passes.programs.winograd_tiles import tiled
from lamina.passes.schedules import choose_winograd

STEPS = 5  # of training
CALLS = 3  # of inference, or with backward: the first is recorded

EPS = {"bfloat16": 2.0**-8, "float32": 2.0**-23, "float64": 2.0**-52}
# A traced error beside the largest eager one.  Another order of summation rounds as often, and the largest of
# several errors is seldom an eighth of another; Winograd's transforms multiply errors by less than 10 (see
# jit/rounding.py).
FACTOR = 80
# Roundings of the largest number, where eager happens to make none: of an op or eight, times 10 for norms,
# which here divide by no less than sqrt(1e-2).
FLOOR = 80
ZERO = 1e-9  # numbers that are all smaller are what is left of others near 1
NOISY = 12  # runs with noise, where a difference is to be explained
LARGEST = 1e5  # numbers beyond are no network's
ILL = 0.02  # of the largest number: where roundings reach so far, nothing is compared


@dataclass
class Run:
    """What a run showed: arrays by name, in order, and what the trace counted.

    left_of: the largest number that one which is seen was left of, as of all logits a loss near 0.
    """

    seen: dict[str, np.ndarray] = field(default_factory=dict)
    left_of: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, tuple] = field(default_factory=dict)
    served: int = 0
    wanted: int = 0
    explained: str = ""

    def see(self, name: str, x: Any) -> None:
        if x is None:
            self.kinds[name] = (None,)
            return
        strides: tuple = ()
        if x.numel() and not name.startswith("gradient"):  # whose order in memory is nobody's promise
            strides = tuple(s for s, n in zip(x.stride(), x.shape) if n > 1)
        self.kinds[name] = (str(x.dtype), tuple(x.shape), strides, x.requires_grad)
        self.seen[name] = np.array(x.detach().numpy(), copy=True)


def run(description: Description, dtype: str, traced: bool, noise: Noise = None) -> Run:
    """Run the network in its mode."""
    made, low = Run(), dtype == "bfloat16"
    decorate = partial(trace, precision="bfloat16" if low else "float32") if traced else lambda f: f
    winograd = by_winograd() if description.get("winograd") else nullcontext()
    with in_pairs() if low else nullcontext(), winograd:
        MODE[description["mode"]](description, "float32" if low else dtype, noise, decorate, made)
    return made


@contextmanager
def by_winograd() -> Iterator[None]:
    """Have convolutions go by Winograd's algorithm wherever they can, however small."""

    def never(*given: Any) -> float:
        return math.inf

    with (
        patch.object(choose_winograd, "directly", never),
        patch.object(assign_layouts, "directly", never),
        patch.object(choose_winograd, "_gains", lambda *given: True),
        patch.object(batch_innermost, "in_tiles", lambda kernel, *given: tiled(kernel)),
    ):
        yield


@contextmanager
def in_pairs() -> Iterator[None]:
    """Have products and convolutions go in pairs that are too small for that to pay."""
    usual = pack_matmuls.choose_product

    def choose_product(size: Any, ways: list[str], *given: Any) -> str:
        return "pairs" if "pairs" in ways else usual(size, ways, *given)

    with (
        patch.object(pack_matmuls, "choose_product", choose_product),
        patch.object(matrix_convolutions, "_copied", lambda program, served: 0),
    ):
        yield


def note(made: Run, function: Any, wanted: int) -> None:
    """What a traced function says of itself."""
    if isinstance(getattr(function, "counts", None), Callable):
        made.served, made.wanted, made.explained = function.counts()["served"], wanted, function.explain()


def calls_of(description: Description) -> int:
    """Calls of inference, or with backward."""
    return len(description["sizes"]) if description.get("sizes") else CALLS


def served_of(description: Description, usual: int) -> int:
    """How many of the calls compiled code must serve: any, where sizes change, as long as all are right."""
    return 0 if description.get("sizes") else usual


def touch(model: nn.Module) -> None:
    """Write to weights between two calls: what was prepared of them must be prepared again."""
    with lamina.no_grad():
        for p in model.parameters():
            p.mul_(0.75)


def inference(description: Description, dtype: str, noise: Noise, decorate: Callable, made: Run) -> None:
    model, _ = build(description, dtype, noise)
    function = decorate(model)
    calls = calls_of(description)
    with lamina.no_grad():
        for call in range(calls):
            if call == calls - 1 and description["touched"]:
                touch(model)
            made.see(f"output of call {call}", function(argument(description, call, dtype, noise)))
    for name, x in model.named_buffers():
        made.see(f"{name} at the end", x)
    note(made, function, served_of(description, CALLS - 1))


def backward(description: Description, dtype: str, noise: Noise, decorate: Callable, made: Run) -> None:
    model, shape = build(description, dtype, noise)
    function, loss_of = decorate(model), loss_for(description, dtype, shape)
    calls = calls_of(description)
    for call in range(calls):
        if call == calls - 1 and description["touched"]:
            touch(model)
        x = argument(description, call, dtype, noise)
        if x.is_floating_point() and not (description["frozen"] and description["touched"]):
            x.requires_grad_()
        for p in model.parameters():
            p.grad = None
        y = function(x)
        made.see(f"output of call {call}", y)
        if y.requires_grad:
            loss_of(y).backward()
        made.see(f"gradient of the input, call {call}", x.grad)
        for name, p in model.named_parameters():
            made.see(f"gradient of {name}, call {call}", p.grad)
    for name, x in model.named_buffers():
        made.see(f"{name} at the end", x)
    note(made, function, served_of(description, CALLS - 1))


def training(description: Description, dtype: str, noise: Noise, decorate: Callable, made: Run) -> None:
    model, shape = build(description, dtype, noise)
    kind, options = description["optimizer"]
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        trained = [nn.Parameter(lamina.zeros(1, dtype=getattr(lamina, dtype)))]
    optimizer, loss_of = getattr(optim, kind)(trained, **options), loss_for(description, dtype, shape)

    def step(x):
        optimizer.zero_grad()
        y = model(x)
        loss = loss_of(y)
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
        return loss.detach(), y.detach()

    if description["warm"]:
        step(argument(description, STEPS, dtype, noise))
    function = decorate(step)
    for call in range(max(STEPS, calls_of(description))):
        loss, y = function(argument(description, call, dtype, noise))
        made.see(f"loss of step {call}", loss)
        if of_classes(description, shape):  # log(sum(exp(y))) less one of them
            made.left_of[f"loss of step {call}"] = 1.0 + float(y.abs().max())
        made.see(f"output of step {call}", y)
        for name, p in model.named_parameters():
            made.see(f"{name} after step {call}", p)
    for name, p in model.named_parameters():
        made.see(f"gradient of {name} at the end", p.grad)
    for name, x in model.named_buffers():
        made.see(f"{name} at the end", x)
    note(made, function, served_of(description, 2))


def of_classes(description: Description, shape: Shape) -> bool:
    """Whether its outputs are taken as the logits of classes."""
    return description["loss"] == "classes" and shape[1] > 1


def loss_for(description: Description, dtype: str, shape: Shape) -> Callable:
    """What is made of outputs of a shape."""
    how = description["loss"]
    if how == "mean":
        return lambda y: y.square().mean()
    if of_classes(description, shape) and description.get("sizes"):
        return classes_of_sizes
    if of_classes(description, shape):
        labels = lamina.arange(math.prod(shape) // shape[1]).reshape(shape[0], *shape[2:]) % shape[1]
        return lambda y: nn.functional.cross_entropy(y, labels)
    if description.get("sizes"):
        return loss_of_sizes(random_like(description, (max(description["sizes"]), *shape[1:]), dtype), how)
    numbers = random_like(description, shape, dtype)
    return (
        (lambda y: nn.functional.mse_loss(y, numbers)) if how == "target" else lambda y: (y * numbers).mean()
    )


def loss_of_sizes(numbers: lamina.Tensor, how: str) -> Callable:
    """The same of a batch of any size."""
    if how == "target":
        return lambda y: nn.functional.mse_loss(y, numbers[: y.shape[0]])
    return lambda y: (y * numbers[: y.shape[0]]).mean()


def classes_of_sizes(y: lamina.Tensor) -> lamina.Tensor:
    """The same of logits of any number of classes and places."""
    labels = lamina.arange(y.numel() // y.shape[1]).reshape(y.shape[0], *y.shape[2:]) % y.shape[1]
    return nn.functional.cross_entropy(y, labels)


MODE = {"inference": inference, "backward": backward, "training": training}


# ---- comparison --------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Verdict:
    """outcome: agrees, differs, uncompiled, or set aside.  ratio: the largest error over what is allowed."""

    outcome: str
    detail: str = ""
    ratio: float = 0.0


def verdict(description: Description) -> Verdict:
    """Run the network traced and eagerly, and compare."""
    dtype = description["dtype"]
    exact = run(description, "float64", False)
    if not all(np.isfinite(x).all() and np.abs(x).max(initial=0) < LARGEST for x in exact.seen.values()):
        return Verdict("set aside", "numbers grow without bound")
    rounded = run(description, "float32", False)
    plain = exact if dtype == "float64" else rounded
    traced = run(description, dtype, True)
    if traced.kinds != plain.kinds:
        name = next(n for n in plain.kinds if traced.kinds.get(n) != plain.kinds[n])
        return Verdict("differs", f"{name}: {plain.kinds[name]} became {traced.kinds.get(name)}")
    worst, where = worst_of(exact, [rounded], traced, dtype)
    if not worst <= 1:
        runs = [rounded, *(run(description, "float64", False, (n, EPS["float32"])) for n in range(NOISY))]
        runs += [run(description, "float32", False, (n, EPS["float32"])) for n in range(NOISY // 3)]
        coarse = []  # what such roundings do where a slope changes is no multiple of what small ones do
        if dtype == "bfloat16":
            coarse = [run(description, "float64", False, (n, EPS[dtype])) for n in range(NOISY)]
        found, where = worst_of(exact, runs, traced, dtype, coarse)
        if not found <= 1:
            return Verdict("differs", where, found)
        return Verdict("set aside", f"roundings reach as far: {where}", worst)
    if traced.served < traced.wanted:
        return Verdict("uncompiled", traced.explained)
    return Verdict("agrees", "", worst)


def worst_of(
    exact: Run, rounded: list[Run], traced: Run, dtype: str, coarse: Sequence[Run] = ()
) -> tuple[float, str]:
    """The largest error of the traced run over what is allowed, and where it is.

    coarse: runs with noise of the traced one's own size, of whose errors twice as much is allowed.
    """
    worst, where = 0.0, ""
    for name, right in exact.seen.items():
        right = right.astype(np.float64)
        if not right.size:
            continue
        size = max(float(np.abs(right).max()), exact.left_of.get(name, 0.0))
        reach = max(float(np.abs(r.seen[name].astype(np.float64) - right).max()) for r in rounded)
        if not reach <= max(ILL * size, 1e-6):
            continue
        reach *= EPS[dtype] / EPS["float32"]
        allowed = FACTOR * reach + FLOOR * EPS[dtype] * (size if size > ZERO else 1.0)
        if dtype == "bfloat16":  # of which an eighth is more than there are other reasons for
            allowed /= 8
        steps = (float(np.abs(r.seen[name].astype(np.float64) - right).max()) for r in coarse)
        allowed = max(allowed, 2 * max(steps, default=0.0))
        errors = np.abs(traced.seen[name].astype(np.float64) - right)
        error = float(errors.max())
        ratio = error / allowed if np.isfinite(error) else np.inf
        if not ratio <= worst:
            worst = ratio
            at = np.unravel_index(int(np.argmax(np.where(np.isfinite(errors), errors, np.inf))), errors.shape)
            where = (
                f"{name}, element {[int(i) for i in at]}: {right[at]:.9g} became "
                f"{traced.seen[name][at]:.9g}, where {allowed:.2g} is allowed; "
                f"{int((errors > allowed).sum())} of {errors.size} elements differ"
            )
    return worst, where
