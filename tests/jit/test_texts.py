"""Texts of numbers and tensors that only leave: printed, written, kept; they are made anew at each call."""

import io
import sys

import pytest

import lamina
from lamina import jit

# ruff: noqa: UP031, UP032 - all ways to make a text
# Of a 0-d tensor, and of the number of the step; what is returned is compared, and what is printed.
TEXTS = {
    "an f-string": lambda loss, step: f"step {step}: {loss:.4f}",
    "without a format": lambda loss, step: f"{loss} {loss.item()} {step!r}",
    "of a half": lambda loss, step: f"{loss.half():.3f} {loss.bfloat16():.3e}",
    "by format": lambda loss, step: "{:>8.3f} at {n}".format(loss, n=step),
    "by format, of one": lambda loss, step: "{}".format(loss),
    "by %": lambda loss, step: "%d of %s" % (step, "many"),
    "by % of one": lambda loss, step: "loss %.3e" % loss,
    "by % of several": lambda loss, step: "%.3f, %8.2f %%" % (loss, loss.item()),
    "by % of text": lambda loss, step: "%s" % loss.item(),
    "joined": lambda loss, step: ", ".join([f"{loss:.2f}", str(step), "end"]),
    "joined of a comprehension": lambda loss, step: " ".join([f"{n}={loss * n:.2f}" for n in range(3)]),
    "joined by a generator": lambda loss, step: " ".join(f"{n}={loss.item() * n:.2f}" for n in range(3)),
    "written": lambda loss, step: sys.stdout.write(f"{loss:.3f}\n"),
    "written to a file of one's own": lambda loss, step: print(loss.item(), file=sys.stderr, flush=True),
    "printed": lambda loss, step: print("loss", loss, loss.item(), step, sep=" | "),
}
NOT_SERVED = {"of the whole tensor": lambda loss, step: f"{loss.reshape(1)}"}
CALLS = 16


def run(text, wrap, monkeypatch):
    out, errors = io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", errors)

    def function(x, step):
        loss = (x * step).mean()
        return loss, text(loss, step)

    wrapped = wrap(function)
    found = []
    for step in range(CALLS):
        loss, told = wrapped(lamina.arange(8.0) + step, step)
        found.append((loss.item(), told))
    monkeypatch.undo()
    return [*found, out.getvalue(), errors.getvalue()], wrapped


@pytest.mark.parametrize("name", TEXTS)
def test_what_only_leaves_is_served(name, monkeypatch):
    wanted, _ = run(TEXTS[name], lambda f: f, monkeypatch)
    found, traced = run(TEXTS[name], jit.trace, monkeypatch)
    assert found == wanted
    assert traced.counts()["served"] >= CALLS - 6, traced.explain()


@pytest.mark.parametrize("name", NOT_SERVED)
def test_what_is_not_served_is_right(name, monkeypatch):
    wanted, _ = run(NOT_SERVED[name], lambda f: f, monkeypatch)
    found, traced = run(NOT_SERVED[name], jit.trace, monkeypatch)
    assert found == wanted and not traced.counts()["served"]


def test_a_text_that_is_looked_at_is_guarded():
    def function(x):
        return x * 2 if f"{x.sum():.0f}" == "3" else x

    traced = jit.trace(function)
    for number in (1.0, 2.0, 1.0, 2.0, 1.2, 1.0, 5.0, 1.0):
        x = lamina.full((3,), number)
        assert traced(x).tolist() == function(x).tolist()


def test_a_method_that_is_replaced_is_asked(monkeypatch):
    traced = jit.trace(lambda x: f"{x.sum():.1f}")
    x = lamina.ones(3)
    assert [traced(x) for _ in range(3)] == ["3.0"] * 3
    monkeypatch.setattr(lamina.Tensor, "__format__", lambda self, spec: "mine")
    assert [traced(x) for _ in range(3)] == ["mine"] * 3
