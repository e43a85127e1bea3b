"""Functions that are given a number which changes from call to call: compiled once where it stays an input.

Each is called traced and undecorated, with numbers for some of which ops have their own way: 0, 1, 2, halves.
What is not served makes a recording for each number, and stands in NOT_SERVED.
"""

import math

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit

FROM, STEP, CALLS = -2.0, 0.25, 26  # all are told apart in binary: 0, 0.5, 1, 2 come by
WARM = 13  # calls after which each must be served


def _written(x, place, value):
    x = x.clone()
    x[place] = value
    return x


# Of x, y and z, three tensors of one dtype, z above 0, and t, the number.
OF_THREE = {
    "add": lambda x, y, z, t: lamina.add(x, y, alpha=t),
    "sub_": lambda x, y, z, t: x.clone().sub_(y, alpha=t),
    "addcmul": lambda x, y, z, t: lamina.addcmul(x, y, z, value=t),
    "addcmul_": lambda x, y, z, t: x.clone().addcmul_(y, z, value=-t),
    "addcdiv": lambda x, y, z, t: lamina.addcdiv(x, y, z, value=t),
    "addcdiv_": lambda x, y, z, t: x.clone().addcdiv_(y, z, value=-t / 3),
    "older": lambda x, y, z, t: x.clone().add_(t, y).addcmul_(t, y, z),
    "addmm": lambda x, y, z, t: lamina.addmm(x, y, z, beta=t, alpha=1 - t),
    "lerp": lambda x, y, z, t: lamina.lerp(x, y, t),
    "mul": lambda x, y, z, t: x * t + t / z - t,
    "powers": lambda x, y, z, t: z**t,
    "pow": lambda x, y, z, t: z.pow(t) + lamina.pow(z, t),
    "pow_": lambda x, y, z, t: z.detach().clone().pow_(t),
    "base": lambda x, y, z, t: (t * t + 0.25) ** x,
    "remainder": lambda x, y, z, t: x % (t + 0.1) + lamina.fmod(y, t + 0.1),
    "floor": lambda x, y, z, t: x // (t + 0.1) + lamina.div(y, t + 0.1, rounding_mode="floor"),
    "where": lambda x, y, z, t: lamina.where(x > 0, x, t) + lamina.where(x > t, t, y),
    "masked_fill": lambda x, y, z, t: x.masked_fill(y > 0, t),
    "fill_": lambda x, y, z, t: x.clone().fill_(t),
    "full_like": lambda x, y, z, t: lamina.full_like(x, t) * x,
    "new_full": lambda x, y, z, t: x.new_full((3,), t) + x.new_full([3], -t),
    "tensor": lambda x, y, z, t: lamina.tensor(t) * x,
    "tensor_of_several": lambda x, y, z, t: lamina.tensor([t, 1.0, -t]) * x + lamina.tensor([t, t, t]),
    "tensor_of_rows": lambda x, y, z, t: lamina.tensor([[t], [t + 1], [2.0]]) * x,
    "clamp": lambda x, y, z, t: x.clamp(-abs(t), abs(t)) + x.clamp_min(t),
    "item": lambda x, y, z, t: _written(x, 0, t) + _written(x, (slice(None), slice(1, 2)), t),
    "items_at_a_mask": lambda x, y, z, t: _written(x, x > 0, t),
    "smooth_l1": lambda x, y, z, t: F.smooth_l1_loss(x, y, beta=abs(t) + 0.1),
    "huber": lambda x, y, z, t: F.huber_loss(x, y, delta=abs(t) + 0.1),
    "triplet": lambda x, y, z, t: F.triplet_margin_loss(x, y, z, margin=abs(t) + 0.1),
    "ranking": lambda x, y, z, t: F.margin_ranking_loss(x, y, lamina.ones_like(x), margin=t),
    "cosine": lambda x, y, z, t: F.cosine_embedding_loss(x, y, lamina.ones_like(x[0]), margin=t / 4),
    "softmax": lambda x, y, z, t: F.softmax(x / (t + 2.5), dim=-1),
    "dropout": lambda x, y, z, t: F.dropout(x, 0.0 * t),
    "logs": lambda x, y, z, t: math.log(t * t + 1) * x + math.ceil(t) * y,
    "leaky_relu": lambda x, y, z, t: F.leaky_relu(x, t),
    "hardtanh": lambda x, y, z, t: F.hardtanh(x, -abs(t) - 0.1, abs(t) + 0.1),
    "pad": lambda x, y, z, t: F.pad(x, (1, 1), value=t),
}
OF_NONE = {
    "full": lambda t: lamina.full((3,), t),
    "normal": lambda t: lamina.normal(0.0, t * t, (5,)),
    "normal_": lambda t: lamina.empty(5).normal_(t, t * t),
    "uniform_": lambda t: lamina.empty(5).uniform_(-abs(t), t * t),
    "bernoulli": lambda t: lamina.bernoulli(lamina.zeros(5), abs(t) / 5),
    "bernoulli_": lambda t: lamina.empty(5).bernoulli_(abs(t) / 5),
    "exponential_": lambda t: lamina.empty(5).exponential_(t * t + 0.25),
    "log_normal_": lambda t: lamina.empty(5).log_normal_(t / 8, t * t / 8 + 0.25),
}
NOT_SERVED = {
    **dict.fromkeys(("leaky_relu", "hardtanh", "pad"), "the number is an attribute of the op"),
}
pytestmark = pytest.mark.filterwarnings("ignore:This overload of")
IN_HALF = {"addcmul", "addcmul_", "addcdiv", "addcdiv_", "older"}  # which widen what they scale


def same(found, wanted, when):
    """Results to the rounding of a few operations: kernels sum, and take powers, in their own order."""
    assert found.dtype is wanted.dtype
    limit = 16 * lamina.finfo(wanted.dtype).eps if wanted.dtype.is_floating_point else 0
    found, wanted = (x.detach().numpy().astype(np.float64) for x in (found, wanted))
    np.testing.assert_allclose(found, wanted, limit, limit, err_msg=when)


def compared(function, leaves):
    """The results and gradients of calls with each number, traced and not, and the traced function."""
    traced = jit.trace(lambda t: function(*leaves, t))
    for call in range(CALLS):
        t = FROM + STEP * call
        lamina.manual_seed(call)
        wanted = function(*leaves, t)
        lamina.manual_seed(call)
        found = traced(t)
        same(found, wanted, f"at {t}")
        if wanted.requires_grad:
            slopes = [lamina.autograd.grad(y.sum(), leaves, allow_unused=True) for y in (wanted, found)]
            for one, other in zip(*slopes):
                assert (one is None) == (other is None)
                if one is not None:
                    same(other, one, f"gradients at {t}")
    return traced


def is_served(traced):
    counts = traced.counts()
    return counts["served"] >= CALLS - WARM


@pytest.mark.sampled(7)
@pytest.mark.parametrize("followed", [False, True], ids=["plain", "followed"])
@pytest.mark.parametrize("dtype", [lamina.float32, lamina.float64, lamina.float16], ids=str)
@pytest.mark.parametrize("name", OF_THREE)
def test_a_number_that_changes_stays_an_input(name, dtype, followed):
    lamina.manual_seed(3)
    leaves = [lamina.randn(3, 3).to(dtype), lamina.randn(3, 3).to(dtype), (lamina.rand(3, 3) + 0.5).to(dtype)]
    leaves = [x.requires_grad_(followed) for x in leaves]
    traced = compared(OF_THREE[name], leaves)
    if name in NOT_SERVED or dtype is lamina.float16 and name in IN_HALF:
        return
    assert is_served(traced), traced.explain()


@pytest.mark.parametrize("name", OF_NONE)
def test_a_number_that_changes_makes_a_tensor(name):
    traced = compared(OF_NONE[name], [])
    assert is_served(traced), traced.explain()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", NOT_SERVED)
def test_what_is_not_served_is_known(name):
    lamina.manual_seed(3)
    leaves = [lamina.randn(3, 3), lamina.randn(3, 3), lamina.rand(3, 3) + 0.5]
    assert not is_served(compared(OF_THREE[name], leaves)), "it is served now: take it off the list"
