"""Cuts a network that shows a fault to the fewest blocks and the smallest numbers that still show it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from network_drawing import Description

FAULTS = ("differs", "raises", "dies", "hangs")
PLAIN = {
    "dtype": "float32", "threads": 1, "optimisation": 0, "train": False, "frozen": False, "touched": False,
    "order": "dense", "loss": "mean", "optimizer": ["SGD", {"lr": 0.05}], "warm": True,
}  # fmt: skip


def kind_of(answer: dict) -> str:
    """What two findings of one fault have in common: the outcome, and of an error its beginning."""
    if answer["outcome"] == "raises":
        return answer["detail"].partition("\n")[0][:60]
    return "wrong" if answer["outcome"] in ("differs", "dies", "hangs") else answer["outcome"]


def shrunk(
    description: Description, kind: str, outcome: Callable[[Description], dict], seconds: float = 60.0
) -> Description:
    """The smallest network with a finding of the same kind that is come upon in that time."""
    end = time.monotonic() + seconds
    changed = True
    while changed:
        changed = False
        for smaller in candidates(description):
            if time.monotonic() > end:
                return description
            if kind_of(outcome(smaller)) == kind:
                description, changed = smaller, True
                break
    return description


def candidates(description: Description) -> Iterator[Description]:
    """Networks a little smaller, those that lose most first."""
    for blocks in fewer(description["blocks"]):
        yield description | {"blocks": blocks}
    if description["mode"] != "inference":
        yield description | {"mode": "inference"}
        if description["mode"] == "training":
            yield description | {"mode": "backward"}
    for name, value in PLAIN.items():
        if description[name] != value and not (
            name in ("optimizer", "warm") and description["mode"] != "training"
        ):
            yield description | {name: value}
    for n, size in enumerate(description["input"]):
        for less in sorted({1, 2, 4, 8, 16, size // 2, size - 1}):
            if 0 < less < size:
                yield description | {
                    "input": [*description["input"][:n], less, *description["input"][n + 1 :]]
                }
    for n, (name, params) in enumerate(description["blocks"]):
        for simpler in plainer(params):
            yield description | {
                "blocks": [*description["blocks"][:n], [name, simpler], *description["blocks"][n + 1 :]]
            }


def fewer(blocks: list) -> Iterator[list]:
    """The blocks without some of them; of those that hold others, what they hold."""
    half = len(blocks) // 2
    if half > 1:
        yield blocks[half:]
        yield blocks[:half]
    for n in range(len(blocks)):
        if len(blocks) > 1:
            yield [*blocks[:n], *blocks[n + 1 :]]
    for n, (name, params) in enumerate(blocks):
        for at, body in enumerate(params.get("bodies", ())):
            if body:
                yield [*blocks[:n], *body, *blocks[n + 1 :]]
            for less in (*fewer(body), *([[]] if body else [])):
                bodies = [*params["bodies"][:at], less, *params["bodies"][at + 1 :]]
                yield [*blocks[:n], [name, params | {"bodies": bodies}], *blocks[n + 1 :]]


def plainer(params: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The params with one of them as plain as it can be."""
    plain = {
        "bias": False,
        "stride": 1,
        "dilation": 1,
        "padding": 0,
        "groups": 1,
        "kernel": 1,
        "mode": "zeros",
    }
    for name, value in plain.items():
        if name in params and params[name] not in (value, None) and name != "mode":
            yield params | {name: value}
        if name == "mode" and params.get("mode") in ("reflect", "replicate", "circular") and "out" in params:
            yield params | {"mode": "zeros"}
    if isinstance(params.get("out"), int):
        for less in sorted({1, 2, 8, 16, params["out"] // 2}):
            if 0 < less < params["out"]:
                yield params | {"out": less}
    if len(params.get("links", ())) > 1:
        for n in range(len(params["links"])):
            yield params | {"links": [*params["links"][:n], *params["links"][n + 1 :]]}
    if any(params.get("bodies", ())):
        for at, body in enumerate(params["bodies"]):
            for n, (name, inner) in enumerate(body):
                for simpler in plainer(inner):
                    changed = [*body[:n], [name, simpler], *body[n + 1 :]]
                    yield params | {"bodies": [*params["bodies"][:at], changed, *params["bodies"][at + 1 :]]}
