"""Gradients of elementwise functions in float16 and bfloat16: no further from the truth than PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import lamina  # noqa: E402
from lamina.ir.op import REGISTRY  # noqa: E402

# Where the function is defined, as far as it is not everywhere: (scale, shift) of |x|.
DOMAINS = {
    **dict.fromkeys(("log", "log2", "log10", "sqrt", "rsqrt", "lgamma", "digamma", "pow"), (1.0, 0.01)),
    **dict.fromkeys(("acos", "asin", "atanh", "erfinv"), (0.12, 0.0)),
    "acosh": (1.0, 1.01),
    "logit": (0.12, 0.05),
}
ROUNDINGS = 2  # that are allowed where PyTorch has less


def _named(library, name):
    return getattr(library, name, None) or getattr(library.nn.functional, name, None)


def _operands_suffice(name, op):
    """Whether the function takes one operand or two, needs nothing else and gives one real tensor."""
    function = _named(lamina, name)
    if function is None or len(op.operands) > 2:
        return False
    try:
        found = function(*[lamina.ones(2) for _ in op.operands])
    except TypeError:
        return False
    return isinstance(found, lamina.Tensor) and found.dtype is lamina.float32


NAMES = sorted(
    name
    for name, op in REGISTRY.items()
    if op.traits.elementwise and op.differentiable and _named(torch, name) and _operands_suffice(name, op)
)


def _points(name):
    """Far and near, on both sides, and around where pieces of functions meet."""
    far = np.linspace(-6, 6, 201)
    near = np.geomspace(1e-4, 8, 60)
    seams = [np.linspace(at - 0.05, at + 0.05, 21) for at in (-3, 3)]
    points = np.concatenate([far, near, -near, *seams])
    if name in DOMAINS:
        scale, shift = DOMAINS[name]
        points = np.abs(points) * scale + shift
    return points, points[::-1] + 0.37


def _gradients(library, name, operands):
    operands = [x.requires_grad_() for x in operands]
    _named(library, name)(*operands).sum().backward()
    return [x.grad.double().numpy() for x in operands]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_halves(name, dtype):
    half = getattr(torch, dtype)
    theirs = [torch.tensor(x).to(half) for x in _points(name)[: len(REGISTRY[name].operands)]]
    exact = [x.double().numpy() for x in theirs]
    try:
        expected = _gradients(torch, name, theirs)
    except RuntimeError as error:
        pytest.skip(f"PyTorch has none: {str(error).splitlines()[0]}")
    truth = _gradients(lamina, name, [lamina.tensor(x) for x in exact])
    found = _gradients(lamina, name, [lamina.tensor(x).to(getattr(lamina, dtype)) for x in exact])
    limits = torch.finfo(half)
    for ours, other, true in zip(found, expected, truth, strict=True):
        known = np.isfinite(true) & np.isfinite(other) & (np.abs(true) < limits.max)
        rounding = np.maximum(np.abs(true), limits.tiny) * limits.eps
        error, allowed = (np.max(np.abs(x - true)[known] / rounding[known]) for x in (ours, other))
        assert error <= max(ROUNDINGS, 1.5 * allowed), f"{error:.1f} roundings, PyTorch has {allowed:.1f}"
