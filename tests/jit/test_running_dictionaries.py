"""Dictionaries of running numbers are gone through: their keys are guarded, their numbers are inputs."""

import math

import pytest

import lamina
from lamina import jit

BEGIN = """
def f(x, run, other, step):
    loss = (x * 2).sum()
    run['loss'] += loss.item()
    run['n'] += 1
    {}
"""
SERVED = [
    "return {k: v / run['n'] for k, v in run.items()}",
    "return {k: run[k] / 2 for k in run}",
    "return [v / 2 for v in run.values()]",
    "return [k for k in run.keys()], loss",
    "return ', '.join(f'{k}: {v:.3f}' for k, v in run.items())",
    "return dict(run)",
    "return {**run, 'step': step}",
    "return run.copy()",
    "return [*run.items()]",
    "return list(run.items())",
    "return tuple(run.values())",
    "return [(i, k, v) for i, (k, v) in enumerate(run.items())]",
    "for k, v in run.items():\n        other[k] = v\n    return loss",
    "other.update(run)\n    return loss",
    "for k in run:\n        run[k] = run[k] * 0.5\n    return loss",
    "for k, v in run.items():\n        run[k] = v * 0.5\n    return loss",
    "first, second = run.values()\n    return first - second",
    "seen = run.items()\n    run['loss'] += 1\n    return [v for _, v in seen]",
    "out = {}\n    for k, v in run.items():\n        if k == 'n': break\n        out[k] = v\n    return out",
    "return {a + b: run[a] - run[b] for a in run for b in run}",
    "return {k: v for k, v in run.items() if k != 'n'}",
    "run = {k: v for k, v in run.items()}\n    run['new'] = loss.item()\n    return run",
]
# What C code reads, or what changes the keys: right, compiled or not.
OTHERS = [
    "return list(zip(run, run.values()))",
    "return sum(run.values())",
    "return max(run.values()), min(run.values())",
    "return sorted(run.items())",
    "return str(run), repr(run.values())",
    "return run == other, run.items() == other.items()",
    "return 2 in run.values(), 'n' in run.keys(), ('n', 2) in run.items()",
    "return len(run), len(run.values()), bool(run)",
    "return [*reversed(run)], [*reversed(run.values())]",
    "return sorted(run.keys() & other.keys()), sorted(run.items() - other.items())",
    "return list(map(float, run.values()))",
    "return math.fsum(run.values())",
    "seen = run.values()\n    run['loss'] += 1\n    return list(seen), sorted(seen)",
    "it = iter(run.items())\n    next(it)\n    run['loss'] += 1\n    return list(it)",
    "for k in run:\n        run[k + 'x'] = 1\n    return loss",
    "for k in [*run]:\n        run[k + '!'] = run.pop(k)\n    return loss",
    "for k, v in run.items():\n        run.pop('n')\n    return loss",
    "for k in run:\n        run['z'] = run.pop('n')\n    return loss",
    "run['late'] = 3\n    return {k: v for k, v in run.items()}",
    "del run['n']\n    return {k: v for k, v in run.items()}",
    "return lamina.tensor(list(run.values()))",
    "return lamina.tensor([v for v in run.values()])",
    "return any(run.values()), all(v > 0 for v in run.values())",
    "return {v: k for k, v in run.items()}",
    "return '{loss:.2f} {n}'.format(**run)",
    "return '%(loss).2f %(n)s' % run",
]


def calls(body, decorate, between):
    scope = {"lamina": lamina, "math": math}
    exec(BEGIN.format(body), scope)
    f, told = decorate(scope["f"]), []
    run, other = {"loss": 0.5, "n": 0}, {"n": 2}
    for step in range(14):
        between(run, step)
        try:
            found = f(lamina.arange(3.0) * (step % 5), run, other, step)
        except Exception as error:
            found = f"{type(error).__name__}: {error}"
        told += [repr(found), repr(run), repr(other)]
    return told, f


def nothing(run, step):
    pass


def keys_change(run, step):
    if step in (5, 9):
        run[f"k{step}"] = 1.5
    if step == 7:
        run["loss"] = run.pop("loss", 2.0)
    if step == 11:
        run.pop("k5", None)


def values_change(run, step):
    if step in (4, 8):
        run["loss"], run["n"] = -0.0, step
    if step == 6:
        run["n"] = True
    if step == 10:
        run["loss"] = float("nan")
    if step == 12:
        run["loss"] = 3


@pytest.mark.parametrize("between", [nothing, keys_change, values_change])
@pytest.mark.parametrize("body", SERVED + OTHERS)
def test_calls_do_what_eager_ones_do(body, between):
    assert calls(body, jit.trace, between)[0] == calls(body, lambda f: f, between)[0]


@pytest.mark.parametrize("body", SERVED)
def test_running_numbers_are_compiled(body):
    told, traced = calls(body, jit.trace, nothing)
    assert traced.explain(as_dict=True)["served"] >= 9, traced.explain()
