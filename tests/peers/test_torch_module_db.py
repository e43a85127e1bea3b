"""PyTorch's own database of modules: each class, each of its inputs, in training and evaluation.

Compared are repr, keys of the state, outputs, gradients of inputs and parameters, and the buffers after.
"""

from __future__ import annotations

import dataclasses
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

# About so many samples of a class are compared by `make peers`, every one by `make slow`.
MANY = 12

# Classes that fall short of PyTorch's, each with a reason; a test holds that each does fall short.
FALLS_SHORT: dict[str, str] = {}


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
    if isinstance(x, torch.nn.TransformerEncoderLayer):
        return nn.TransformerEncoderLayer(
            x.linear1.in_features, x.self_attn.num_heads, x.linear1.out_features, x.dropout.p,
            ours(x.activation), x.norm1.eps, x.self_attn.batch_first, x.norm_first,
            x.linear1.bias is not None,
        )  # fmt: skip
    if isinstance(x, torch.nn.LinearCrossEntropyOptions):
        return nn.LinearCrossEntropyOptions(**dataclasses.asdict(x))
    if callable(x) and hasattr(torch.nn.functional, getattr(x, "__name__", " ")):
        return getattr(nn.functional, x.__name__)
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


def close(mine: Any, theirs: Any, what: str) -> None:
    assert (mine is None) == (theirs is None), f"{what}: {mine is None} {theirs is None}"
    if mine is None:
        return
    a, b = mine.detach().numpy(), theirs.detach().numpy()
    assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{a.shape} {b.dtype}{b.shape}"
    if a.dtype.kind != "f":
        assert (a == b).all(), what
    else:
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


def compare(name: str, dtype: str, training: bool, every: bool) -> int:
    """Compare samples of a class, `every` one or about MANY; return how many.

    Raises AssertionError for what differs.
    """
    info = ENTRIES[name]
    mine_cls = getattr(nn, name)
    kind, count = getattr(torch, dtype), 0
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    samples = info.module_inputs_func(info, device="cpu", dtype=kind, requires_grad=True, training=training)
    for sample in samples if every else itertools.islice(samples, 0, None, max(1, len(samples) // MANY)):
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
        if name.startswith("Lazy"):
            with torch.no_grad(), lamina.no_grad():
                theirs(*given, **named)
                mine(*x, **named_x)
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
        for k, (a, b) in enumerate(zip(mine_out, theirs_out)):
            close(a, b, f"{what}: output {k}")
            assert a.requires_grad == b.requires_grad, f"{what}: output {k} requires_grad"
        goal = total(torch.from_numpy, theirs_out)
        if goal is not None:
            goal.backward()
            total(lamina.from_numpy, mine_out).backward()
        for k, (a, b) in enumerate(zip(my_leaves, leaves, strict=True)):
            if b.is_leaf:
                close(a.grad, b.grad, f"{what}: gradient of input {k}")
        for (key, a), (other, b) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
            assert key == other, what
            close(a.grad, b.grad, f"{what}: gradient of {key}")
        for (key, a), b in zip(mine.state_dict().items(), theirs.state_dict().values()):
            close(a, b, f"{what}: {key} after")
        count += 1
    return count


def compare_all(name: str, ways: Any, every: bool) -> None:
    assert sum(compare(name, dtype, training, every) for dtype, training in ways)


@pytest.mark.parametrize("name", ENTRIES)
def test_module_of_the_database(name):
    """Some samples of each class, in training in float32 and in evaluation in float64."""
    ways = [("float32", True), ("float64", False)]
    if name in FALLS_SHORT:
        with pytest.raises(Exception):  # noqa: B017  # in whatever way it falls short
            compare_all(name, ways, False)
    else:
        compare_all(name, ways, False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ENTRIES)
def test_module_of_the_database_with_every_sample(name):
    if name not in FALLS_SHORT:
        compare_all(name, itertools.product(DTYPES, (True, False)), True)
