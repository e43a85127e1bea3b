"""Ops beside one another: what fuses siblings must leave each its own loops, states and stores.

Each op runs twice in one traced function, on two parts of the same tensors, beside a running sum and a sum of
what it was given; on its record's samples, and on matrices long enough that loops are not unrolled.
"""

import dataclasses

import numpy as np
import pytest

import lamina
from lamina import jit
from lamina.ir.op import REGISTRY
from lamina.runtime.calls import eager

LONG = 64, 24
OPS = sorted(name for name, op in REGISTRY.items() if not (op.traits.random or op.traits.inplace))


def samples(op):
    """The largest two samples of arrays, and one of long matrices where its operands may have any size."""
    found = [s for s in op.samples() if s.args and all(hasattr(a, "array") for a in s.args)]
    found.sort(key=lambda s: -sum(int(np.prod(a.shape)) for a in s.args))
    yield from found[:2]
    for s in found:
        if all(len(a.shape) == 2 for a in s.args) and len({a.shape for a in s.args}) == 1:
            longer = [dataclasses.replace(a, shape=LONG) for a in s.args]
            yield dataclasses.replace(s, args=tuple(longer))
            break


def listed(made):
    return [*made] if isinstance(made, (tuple, list)) else [made]


def twice(op, kwargs):
    """A function of tensors that hold the operands of two calls, one after another."""
    function = eager(op)

    def beside(*pairs):
        made = [x for n in (0, 1) for x in listed(function(*[pair[n] for pair in pairs], **kwargs))]
        first = pairs[0][0]
        if first.ndim and first.dtype is lamina.float32:
            made += [first.cumsum(-1), first.sum(-1)]
        return made

    return beside


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore")
def test_an_op_beside_itself_and_a_running_sum(name):
    op, rng = REGISTRY[name], np.random.default_rng(0)
    for sample in samples(op):
        made = [[a.array(rng, np.dtype(np.float32)) for a in sample.args] for _ in range(2)]
        pairs = [lamina.from_numpy(np.stack(both)) for both in zip(*made, strict=True)]
        beside = twice(op, sample.kwargs)
        try:
            expected = beside(*pairs)
        except (lamina.LaminaError, TypeError):
            continue  # a size, or a dtype, that the op does not take
        traced = jit.trace(beside)
        for _ in range(3):
            found = traced(*pairs)
        for x, y in zip(found, expected, strict=True):
            if isinstance(x, lamina.Tensor):
                np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-3, atol=1e-4)
