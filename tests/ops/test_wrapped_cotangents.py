"""Gradients of every record whose cotangent is a tensor that wraps another: those of what it wraps.

The history is that of plain tensors; what comes back has no array that NumPy or native code could read.
"""

import numpy as np
import pytest
from checks import differentiable
from tensor_checks import applied, compare, tensors

import lamina
from lamina.ir import dtypes
from lamina.ir.op import REGISTRY


class Held(lamina.Tensor):
    """Holds a tensor, and hands ops on to it."""

    __slots__ = ("elem",)

    @staticmethod
    def __new__(cls, elem):
        made = lamina.Tensor._make_wrapper_subclass(cls, elem.size(), dtype=elem.dtype)
        made.elem = elem
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        found = func(*[x.elem if isinstance(x, cls) else x for x in args])
        made = [cls(x) for x in (found if isinstance(found, tuple) else (found,))]
        return tuple(made) if isinstance(found, tuple) else made[0]


def gradients(case, wrap):
    operands = tensors(case.operands, [x is not None and x.dtype.kind == "f" for x in case.operands])
    leaves = [x for x in operands if x is not None and x.requires_grad]
    outputs = [y for y in applied(case, operands) if y.requires_grad]
    cotangents = [wrap(lamina.full_like(y, 0.5)) for y in outputs]
    return lamina.autograd.grad(outputs, leaves, cotangents, allow_unused=True)


@pytest.mark.parametrize(
    "name", sorted(n for n, op in REGISTRY.items() if op.differentiable and op.dtypes != "complex")
)
def test_gradients_of_what_is_wrapped(name):
    for case in list(differentiable(REGISTRY[name], dtypes.float64))[:3]:
        for found, wanted in zip(gradients(case, Held), gradients(case, lambda g: g), strict=True):
            assert (found is None) == (wanted is None), case
            if wanted is not None:
                array = found.elem.numpy() if isinstance(found, Held) else found.numpy()
                compare(array, wanted.numpy(), f"{case}: gradient")


def test_a_plain_leaf_takes_a_wrapped_gradient():
    x = lamina.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(2):
        ((x * 3 + 1) * Held(lamina.ones(2))).sum().backward()
    assert type(x.grad) is Held and np.array_equal(x.grad.elem.numpy(), [6.0, 6.0])
