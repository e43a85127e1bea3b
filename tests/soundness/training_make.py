"""Make the text of a random training program, as a researcher would write it: a model, an optimizer, a step
that is traced, a loop of calls.

A program has at least three of the features of `training_parts` (counter, schedule, average, gradients,
statistics, state on modules), each in one spelling.  What the step keeps stands in the module, in a function
around the step, or on an object whose method the step is.  `trace` and `shown`, which looks at what a call
returned, are handed in by who runs it.

`python tests/soundness/training_make.py SEED` prints a program.
"""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass

from training_parts import BODIES, FEATURES, OPTIMIZERS, TASKS, Spelling

CALLS = 25
BATCHES = 4
HOMES = ("module", "module", "function", "object", "method")
HEAD = """\
import collections
import copy
import logging
import math
import types
from dataclasses import dataclass

import lamina as torch
import lamina.nn.functional as F
from lamina import nn, optim

torch.manual_seed({seed})
torch.set_default_dtype(torch.float64)
"""
_LOSS_OF = """\
def loss_of(result):
    return float(result[0] if isinstance(result, tuple) else result)
"""


@dataclass(frozen=True)
class Program:
    """A program's text, and its features with their spellings."""

    text: str
    spellings: tuple[Spelling, ...]

    @property
    def features(self) -> list[str]:
        return [f"{s.feature}: {s.name}" for s in self.spellings]


def make(seed: int, only: Collection[str] | None = None) -> Program:
    """The program of a seed; `only`: of its features (as `features` has them) those, all else the same."""
    draw = random.Random(seed)
    kinds = [kind for kind in FEATURES if kind != "logging"]
    chosen = draw.sample(kinds, draw.choice((3, 3, 4, 4, 5)))
    spellings = tuple(draw.choice(FEATURES[kind]) for kind in FEATURES if kind in chosen)
    if draw.random() < 0.5:
        spellings += (draw.choice(FEATURES["logging"]),)
    if only is not None:
        spellings = tuple(s for s in spellings if f"{s.feature}: {s.name}" in only)
    return Program(_text(seed, draw, spellings), spellings)


def _text(seed: int, draw: random.Random, spellings: tuple[Spelling, ...]) -> str:
    body, (outputs, target, criterion, hits) = draw.choice(BODIES), draw.choice(TASKS)
    optimizer, home = draw.choice(OPTIMIZERS), draw.choice(HOMES)
    numbers = {
        "seed": seed, "every": draw.choice((2, 3, 5)), "warm": draw.choice((4, 6, 10)),
        "total": draw.choice((15, 20, 30)), "lr": draw.choice(("0.1", "0.05", "0.01", "3e-3")),
        "decay": draw.choice(("0.9", "0.99", "0.999")), "n": draw.choice((4, 8)),
    }  # fmt: skip
    history, bare = draw.choice(("loss", "loss.detach()")), draw.random() < 0.2
    clock = next((s.step for s in spellings if s.step), None)
    parameters = [s.parameter for s in spellings if s.parameter[0]]
    if clock is None and any("{step}" in line for s in spellings for line in _lines_of(s)):
        clock, parameters = "(it + 1)", [("it", "it"), *parameters]
    values = {**numbers, "step": clock, "criterion": criterion, "hits": hits}

    def filled(text: str) -> str:
        for _ in range(2):  # a drawn text may have placeholders of its own
            text = _PLACE.sub(lambda m: str(values[m[1]]), text)
        return text

    def all_of(name: str, *, outside: bool | None = None) -> list[str]:
        found = [s for s in spellings if outside is None or s.outside is outside]
        return [filled(text) for s in found if (text := getattr(s, name))]

    returned = all_of("returned")
    if not returned or not bare or any("loss_of" in s.after for s in spellings):
        returned.insert(0, history)
    zero = next((s.zero for s in spellings if s.zero is not None), "optimizer.zero_grad()")
    update = next((s.update for s in spellings if s.update), "optimizer.step()")
    step = [
        *all_of("first"), *filter(None, [filled(zero)]), "out = model(x)",
        f"loss = {criterion}(out, y)", *all_of("loss"), "loss.backward()", *all_of("grads"),
        filled(update), *all_of("last"), f"return {', '.join(returned)}",
    ]  # fmt: skip
    parameters.sort(key=lambda p: "=" in p[0])  # those with defaults come last
    names = ", ".join(["x", "y", *(filled(name) for name, _ in parameters)])
    given = ", ".join(["x", "y", *(filled(value) for _, value in parameters if value)])
    shared = [name for s in spellings if not s.outside for name in s.shared]
    init = ["super().__init__()", body.init, *all_of("init"), f"self.head = nn.Linear(8, {outputs})"]
    forward = [*all_of("enter"), body.forward, *all_of("inside"), "return self.head(h)"]
    model = _block(
        "class Net(nn.Module):",
        _block("def __init__(self):", *init), "", _block("def forward(self, x):", *forward),
    )  # fmt: skip
    loop = _block(
        f"for it in range({CALLS}):", f"x, y = batches[it % {BATCHES}]", *all_of("given"),
        f"result = train_step({given})", *all_of("after"), "shown(result)",
    )  # fmt: skip
    batches = f"batches = [({body.example}, {target}) for _ in range({BATCHES})]"
    made = ["model = Net()", f"optimizer = {optimizer}", batches, *all_of("held", outside=True)]
    defs = list(dict.fromkeys(all_of("defs")))
    if any("loss_of" in s.after for s in spellings):
        defs.append(_LOSS_OF)
    step_at_home = _HOMES[home](names, step, all_of("held", outside=False), shared)
    parts = [filled(HEAD), *defs, model, filled("\n".join(made)), step_at_home, loop]
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"


_PLACE = re.compile(r"\{(seed|every|warm|total|lr|decay|n|step|criterion|hits)\}")


def _lines_of(spelling: Spelling) -> list[str]:
    return [spelling.first, spelling.loss, spelling.grads, spelling.update, spelling.last, spelling.returned]


def _block(head: str, *lines: str) -> str:
    """A head with lines indented under it."""
    body = "\n".join(lines)
    return head + "\n" + "\n".join(f"    {line}" if line else "" for line in body.splitlines())


# ---- where the state of a step stands ----------------------------------------------------------------------
def _in_module(names: str, step: list[str], held: list[str], shared: list[str]) -> str:
    """Variables of the module, which the step declares."""
    declared = [f"global {', '.join(shared)}"] if shared else []
    return "\n".join([*held, "\n", "@trace", _block(f"def train_step({names}):", *declared, *step), "\n"])


def _in_function(names: str, step: list[str], held: list[str], shared: list[str]) -> str:
    """Variables of a function that makes the step."""
    declared = [f"nonlocal {', '.join(shared)}"] if shared else []
    inner = _block(f"def train_step({names}):", *declared, *step)
    made = _block("def make_step(model, optimizer):", *held, "", "@trace", inner, "", "return train_step")
    return f"{made}\n\n\ntrain_step = make_step(model, optimizer)"


def _on_object(
    names: str, step: list[str], held: list[str], shared: list[str], decorated: bool = False
) -> str:
    """Attributes of an object whose method the step is."""
    mine = {"model", "optimizer"} | _assigned("\n".join(held))
    init = ["self.model, self.optimizer = model, optimizer", *held]
    head = f"def train_step(self, {names}):"
    method = _OfSelf(mine).text(_block(head, *step))
    start = _block("def __init__(self, model, optimizer):", *init[:1], *map(_OfSelf(mine).text, held))
    lines = [start, "", *(["@trace"] if decorated else []), method]
    made = "trainer = Trainer(model, optimizer)\ntrain_step = " + (
        "trainer.train_step" if decorated else "trace(trainer.train_step)"
    )
    return _block("class Trainer:", *lines) + "\n\n\n" + made


def _as_method(names: str, step: list[str], held: list[str], shared: list[str]) -> str:
    return _on_object(names, step, held, shared, decorated=True)


_HOMES = {"module": _in_module, "function": _in_function, "object": _on_object, "method": _as_method}


def _assigned(text: str) -> set[str]:
    """The names that a text's statements bind."""
    targets = [t for s in ast.parse(text).body if isinstance(s, ast.Assign) for t in s.targets]
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


class _OfSelf(ast.NodeTransformer):
    """Turns names into attributes of self."""

    def __init__(self, names: set[str]):
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in self.names:
            return node
        return ast.Attribute(ast.Name("self", ast.Load()), node.id, node.ctx)

    def text(self, source: str) -> str:
        return ast.unparse(ast.fix_missing_locations(self.visit(ast.parse(source))))


if __name__ == "__main__":
    print(make(int(sys.argv[1])).text)
