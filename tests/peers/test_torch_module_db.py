"""PyTorch's own database of modules: each class, each of its inputs, in training and evaluation.

Compared are repr, keys of the state, outputs, gradients of inputs and parameters, and the buffers after.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import lamina
import lamina.nn as nn

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")
pytest.importorskip("expecttest", reason="PyTorch's database imports it: pip install 'lamina[peers]'")

from torch.testing._internal.common_modules import module_db  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # what torch has to say about its own samples
]

ENTRIES = {info.name.removeprefix("nn."): info for info in module_db}
DTYPES = ("float32", "float64")

# Sums of up to a few hundred terms of size about 1, in other orders, through a dozen layers: 4096 roundings.
ROUNDINGS = 4096

# Classes that fall short of PyTorch's, each with a reason; a test holds that each does fall short.
FALLS_SHORT: dict[str, str] = {}
# Entries that draw at random in forward: only shapes, dtypes and which gradients there are can be compared.
RANDOM = {"FractionalMaxPool2d", "FractionalMaxPool3d"}


def ours(x: Any) -> Any:
    """A value of PyTorch's sample, as Lamina's."""
    if isinstance(x, torch.Tensor):
        made = lamina.from_numpy(x.detach().numpy().copy())
        return made.requires_grad_() if x.requires_grad else made
    if isinstance(x, torch.dtype):
        return getattr(lamina, str(x).removeprefix("torch."))
    if isinstance(x, dict):
        return {key: ours(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)) and type(x) in (list, tuple):
        return type(x)(map(ours, x))
    if callable(x) and getattr(x, "__module__", "").startswith("torch.nn"):
        return getattr(nn, x.__name__, None) or getattr(nn.functional, x.__name__)
    if callable(x) and getattr(torch, getattr(x, "__name__", ""), None) is x:
        return getattr(lamina, x.__name__)
    return x


def tensors(x: Any) -> list[Any]:
    """The tensors in a nest of tuples, lists and dictionaries, in order."""
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (tuple, list)):
        return [found for part in x for found in tensors(part)]
    return [x] if isinstance(x, (lamina.Tensor, torch.Tensor)) else []


def close(mine: Any, theirs: Any, what: str, values: bool) -> None:
    assert (mine is None) == (theirs is None), f"{what}: {mine is None} {theirs is None}"
    if mine is None:
        return
    a, b = mine.detach().numpy(), theirs.detach().numpy()
    assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{a.shape} {b.dtype}{b.shape}"
    if a.dtype.kind != "f":
        assert not values or (a == b).all(), what
    elif values:
        scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0.0)))
        tolerance = ROUNDINGS * np.finfo(a.dtype).eps * scale
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=what)


def total(tensor: Any, outputs: list[Any]) -> Any:
    """One number that hangs on every element of the outputs in its own way."""
    found = None
    for k, out in enumerate(outputs):
        if out.requires_grad:
            factors = np.cos(np.arange(out.numel()) + k).reshape(tuple(out.shape))
            part = (out * tensor(factors).to(out.dtype)).sum()
            found = part if found is None else found + part
    return found


def build(library: Any, cls: Any, args: Any, kwargs: Any, dtype: Any, training: bool) -> Any:
    made = cls(*args, **kwargs).to(dtype)
    made.train(training)
    return made


def compare(name: str, dtype: str, training: bool) -> int:
    """Compare all samples of a class; return how many.  Raises AssertionError for what differs."""
    info = ENTRIES[name]
    mine_cls = getattr(nn, name)
    kind, count = getattr(torch, dtype), 0
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    for sample in info.module_inputs_func(
        info, device="cpu", dtype=kind, requires_grad=True, training=training
    ):
        if sample.forward_input is None:
            continue
        args, kwargs = sample.constructor_input.args, sample.constructor_input.kwargs
        given, named = sample.forward_input.args, sample.forward_input.kwargs
        what = f"{name}({args}, {kwargs}) {sample.desc}"
        theirs = info.module_cls(*args, **kwargs).to(kind).train(training)
        mine = mine_cls(*ours(args), **ours(kwargs)).to(getattr(lamina, dtype)).train(training)
        assert repr(mine) == repr(theirs), what
        assert list(mine.state_dict()) == list(theirs.state_dict()), what
        x, named_x = ours(tuple(given)), ours(dict(named))
        if any(hasattr(p, "cls_to_become") or type(p).__name__.startswith("Uninit") for p in theirs.parameters()):
            with torch.no_grad():
                theirs(*given, **named)
            with lamina.no_grad():
                mine(*x, **x_named) if (x_named := named_x) else mine(*x)
            assert type(mine).__name__ == type(theirs).__name__ and repr(mine) == repr(theirs), what
            assert list(mine.state_dict()) == list(theirs.state_dict()), what
        for (key, a), b in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
            assert tuple(a.shape) == tuple(b.shape), f"{what} {key}"
            if b.is_floating_point():
                low = 0.5 if "var" in key or ("weight" in key and b.ndim == 1) else -1.0
                drawn = rng.uniform(low, 1.0, tuple(b.shape)).astype(dtype)
                b.copy_(torch.from_numpy(drawn))
                a.copy_(lamina.from_numpy(drawn))
        leaves, my_leaves = tensors([given, named]), tensors([x, named_x])
        inplace = getattr(theirs, "inplace", False)
        wrapped, my_wrapped = given, x
        if inplace:
            wrapped, my_wrapped = [t * 1 for t in given], [t * 1 for t in x]
        theirs_out, mine_out = tensors(theirs(*wrapped, **named)), tensors(mine(*my_wrapped, **named_x))
        assert len(theirs_out) == len(mine_out), what
        values = name not in RANDOM
        for k, (a, b) in enumerate(zip(mine_out, theirs_out)):
            close(a, b, f"{what}: output {k}", values)
            assert a.requires_grad == b.requires_grad, f"{what}: output {k} requires_grad"
        goal = total(torch.from_numpy, theirs_out)
        if goal is not None:
            goal.backward()
            total(lamina.from_numpy, mine_out).backward()
        for k, (a, b) in enumerate(zip(my_leaves, leaves, strict=True)):
            if b.is_leaf:
                close(a.grad, b.grad, f"{what}: gradient of input {k}", values)
        for (key, a), (other, b) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
            assert key == other, what
            close(a.grad, b.grad, f"{what}: gradient of {key}", values)
        for (key, a), b in zip(mine.state_dict().items(), theirs.state_dict().values()):
            close(a, b, f"{what}: {key} after", True)
        count += 1
    return count


@pytest.mark.parametrize("name", ENTRIES)
def test_module_of_the_database(name):
    if name in FALLS_SHORT:
        with pytest.raises(Exception):  # noqa: B017  # whatever way it falls short
            for dtype, training in itertools.product(DTYPES, (True, False)):
                compare(name, dtype, training)
        return
    assert any([compare(name, dtype, training) for dtype, training in itertools.product(DTYPES, (True, False))])
