"""Random small programs run line by line on PyTorch and Lamina: values, gradients, flags, and refusals."""

from __future__ import annotations

import re
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

from fuzz_programs import Maker, fresh_scope, run_line  # noqa: E402

import lamina  # noqa: E402
from lamina.ir.errors import LaminaError  # noqa: E402
from lamina.runtime.storage import Storage  # noqa: E402

# What only one of the two refuses, and why that is meant so: (who raises, in what line, its words, why).
INTENDED: tuple[tuple[str, str, str, str], ...] = (
    ("torch", "", "through the graph a second time", "only what holds arrays is freed: less is refused"),
    ("torch", r"squeeze_|\bt_", "a view of a leaf", "a view may change its own shape: no value is written"),
    ("torch", "", "refer to a single memory location", "NumPy reads overlapping operands before it writes"),
    ("lamina", "", r"saved by\s+div ", "c / x saves x; PyTorch's c * reciprocal(x) saves its output"),
    ("lamina", "", r"saved by\s+matmul ", "PyTorch saves a reshaped copy where it folds dimensions"),
    ("lamina", "", r"saved by\s+lerp ", "the weight is an operand here, and saved"),
    ("torch", "", "modified by an inplace .*GatherBackward", "only the shape of the operand is asked for"),
    ("torch", "", "modified by an inplace .*ProdBackward", "the product is not saved, but the factors"),
    ("lamina", "", r"(?s)a second time.*saved by\s+mul ", "add(x, alpha=c) is a product, which saves c"),
    ("torch", "", "element 0 of tensors does not require grad", "zeros of a copy_ keep their history"),
    ("lamina", "", "several elements of the tensor share", "a part of x.expand(…) can't be written"),
)  # fmt: skip

# Programs are some 20 lines deep and keep magnitudes below 30, so that a value's error is a few thousand
# roundings of the largest thing that went into it, and a gradient's the same of the largest slope: 1e-9 is
# 4.5 million of them.
RELATIVE = 1e-9
SLOPE = 1e3  # gradients beyond are products of many slopes: compared by their own size


def close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    size = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    return np.allclose(a, b, rtol=RELATIVE, atol=RELATIVE * size, equal_nan=True)


def told(x: Any) -> np.ndarray:
    return np.array((x.detach() + 0.0).tolist(), dtype=np.float64).reshape(tuple(x.shape))


class Difference(NamedTuple):
    """about: what differs, in a word, so that shrinking does not wander off to something else."""

    about: str
    text: str


def difference(name: str, ours: Any, theirs: Any, gradients: bool) -> Difference | None:
    """What differs between one variable of the two runs."""
    if isinstance(theirs, torch.Tensor) != isinstance(ours, lamina.Tensor):
        return Difference("class", f"{name}: {type(ours).__name__} here, {type(theirs).__name__} there")
    if not isinstance(theirs, torch.Tensor):
        return None
    if tuple(ours.shape) != tuple(theirs.shape):
        return Difference("shape", f"{name}: shape {tuple(ours.shape)} here, {tuple(theirs.shape)} there")
    if not close(told(ours), told(theirs)):
        return Difference("value", f"{name}: value {told(ours)} here, {told(theirs)} there")
    for flag in ("requires_grad", "is_leaf"):
        if getattr(ours, flag) != getattr(theirs, flag):
            return Difference(flag, f"{name}: {flag} is {getattr(ours, flag)} here")
    if gradients and (theirs.is_leaf or theirs.retains_grad):
        g, h = ours.grad, theirs.grad
        if (g is None) != (h is None):
            return Difference("grad", f"{name}: grad is {g} here, {h} there")
        if g is not None:
            if not close(told(g), told(h)):
                return Difference("grad", f"{name}: grad {told(g)} here, {told(h)} there")
            if g.requires_grad != h.requires_grad:
                return Difference("grad", f"{name}: grad.requires_grad is {g.requires_grad} here")
    return None


def compare(lines: list[str]) -> Difference | None:
    """Run a program on both; say what differs first."""
    ours, theirs = fresh_scope(lamina), fresh_scope(torch)
    for line in lines:
        mine, other = run_line(line, ours), run_line(line, theirs)
        if (mine is None) != (other is None):
            side, error = ("lamina", mine) if mine is not None else ("torch", other)
            said = str(error) if side == "lamina" else f"{error} {blamed(lines)}"
            if any(
                side == who and re.search(at, line) and re.search(what, said) for who, at, what, _ in INTENDED
            ):
                return Difference("intended", str(error))
            text = f"only {side} refuses: {line}\n{type(error).__name__}: {error}"
            return Difference(side + " " + re.sub(r"[\d., \[\]]+", "", str(error))[:40], text)
        if mine is not None:
            if isinstance(other, NameError):
                continue
            if not isinstance(mine, LaminaError):
                return Difference("class", f"{line}: not an error of the house\n{mine!r}\n{other!r}")
            if "backward" in line or "autograd.grad" in line:
                return None  # how far they came is nobody's business
        written = re.match(r"(\w+) =", line)
        if written and written[1] in theirs:
            found = difference(written[1], ours[written[1]], theirs[written[1]], False)
            if found:
                return Difference(found.about, f"after {line}\n{found.text}")
    for name, value in theirs.items():
        if name not in ("L", "__builtins__", "seen"):
            found = difference(name, ours[name], value, True)
            if found:
                return Difference(found.about, f"at the end\n{found.text}")
    if not close(np.sort(ours["seen"]), np.sort(theirs["seen"])):
        return Difference("hooks", f"hooks saw {sorted(ours['seen'])} here, {sorted(theirs['seen'])} there")
    return None


def blamed(lines: list[str]) -> str:
    """PyTorch's name for the step of a program whose backward fails; it tells under its own anomaly mode."""
    scope = fresh_scope(torch)
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for line in lines:
            try:
                exec(line, scope)
            except Exception:
                continue
    return " ".join(re.findall(r"Error detected in (\w+)", " ".join(str(w.message) for w in heard)))


def shrunk(lines: list[str], found: Difference) -> tuple[list[str], Difference]:
    """The program without the lines that the difference does not need."""
    again = True
    while again:
        again = False
        for i in range(len(lines) - 1, -1, -1):
            shorter = lines[:i] + lines[i + 1 :]
            new = compare(shorter)
            if new and new.about == found.about:
                lines, found, again = shorter, new, True
    return lines, found


def check(seed: int) -> None:
    lines = Maker(torch, seed).program(22)
    found = compare(lines)
    if found and found.about != "intended":
        lines, found = shrunk(lines, found)
        pytest.fail(f"program {seed}:\n\n" + "\n".join(lines) + f"\n\n{found.text}")


@pytest.mark.parametrize("part", range(10))
def test_programs_mean_the_same(part):
    for seed in range(15 * part, 15 * part + 15):
        check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_programs_mean_the_same(part):
    for seed in range(1000 + 500 * part, 1500 + 500 * part):
        check(seed)


def test_a_planted_fault_is_found_and_shrunk(monkeypatch):
    """A write that is not counted: what was saved before is then differentiated with the new values."""
    monkeypatch.setattr(Storage, "written", lambda self, writer: None)
    lines = [
        "x0 = L.tensor([0.5, 1.5], dtype=L.float64, requires_grad=True)", "x1 = x0 + 1.0", "x2 = x1.sin()",
        "x3 = x1 * x1", "x1.mul_(2.0)", "x4 = x3 + 1.0", "x4.sum().backward()",
    ]  # fmt: skip
    found = compare(lines)
    assert (
        found is not None and found.about.startswith("torch") and "only torch refuses: x4.sum" in found.text
    )
    shorter, _ = shrunk(lines, found)
    assert shorter == [line for line in lines if "x2" not in line]
