"""Functions of several tensors that are in two places: refused with both named, or with results where
PyTorch has them; never moved in silence.

On the fake driver, with two devices.  PyTorch's rules: tensors of no dims of the CPU go with any others in
what is computed element by element, indices of the CPU with `x[i]`; lists are done tensor by tensor.
"""

from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
from fake_cuda import Fake, on_fake

import lamina
import lamina.nn.functional as F
from lamina import nn, optim
from lamina.facade.foreach import _made as foreach
from lamina.nn import utils

PAIRS = (("cuda:0", "cuda:1"), ("cuda:0", "cpu"), ("cpu", "cuda:0"))


def t(*shape: int, p: str):
    return ((lamina.arange(1.0, 1 + float(np.prod(shape))).reshape(shape)) / 7).to(p)


def ints(*values: int, p: str):
    return lamina.tensor(values, device=p)


def one(value: float, p: str):
    return lamina.tensor(value, device=p)


def param(p: str):
    made = nn.Parameter(t(2, 3, p=p))
    made.grad = t(2, 3, p=p)
    return made


def joined(name, a, b, dtype=lamina.float32):
    return getattr(lamina, name)([t(3, p=a).to(dtype), t(3, p=b).to(dtype)])


JOINS = ("cat", "stack", "hstack", "vstack", "dstack", "column_stack")
REFUSED = {
    **{name: partial(joined, name) for name in JOINS},
    **{f"{name} of ints": partial(joined, name, dtype=lamina.int64) for name in JOINS},
    "stack of numbers": lambda a, b: lamina.stack([one(1, a), one(2, b)]),
    "block_diag": lambda a, b: lamina.block_diag(ints(1, p=a), ints(2, p=b)),
    "meshgrid": lambda a, b: lamina.meshgrid(t(2, p=a), t(3, p=b), indexing="ij"),
    "cartesian_prod": lambda a, b: lamina.cartesian_prod(t(2, p=a), t(3, p=b)),
    "add": lambda a, b: t(3, p=a) + t(3, p=b),
    "add_": lambda a, b: t(3, p=a).add_(t(3, p=b)),
    "equal": lambda a, b: lamina.equal(t(3, p=a), t(3, p=b)),
    "where": lambda a, b: lamina.where(t(3, p=a) > 0.2, t(3, p=b), t(3, p=b)),
    "masked_select": lambda a, b: t(3, p=a).masked_select(t(3, p=b) > 0.2),
    "matmul": lambda a, b: t(2, 3, p=a) @ t(3, 2, p=b),
    "matmul of ints": lambda a, b: ints(1, 2, p=a) @ ints(1, 2, p=b),
    "isin": lambda a, b: lamina.isin(ints(1, 2, p=a), ints(1, p=b)),
    "bucketize": lambda a, b: lamina.bucketize(ints(1, 2, p=a), ints(1, 3, p=b)),
    "bincount": lambda a, b: lamina.bincount(ints(1, 2, p=a), t(2, p=b)),
    "repeat_interleave": lambda a, b: lamina.repeat_interleave(t(2, p=a), ints(1, 2, p=b)),
    "index_select": lambda a, b: t(5, p=a).index_select(0, ints(0, 1, p=b)),
    "gather": lambda a, b: t(5, p=a).gather(0, ints(0, 1, p=b)),
    "gather of ints": lambda a, b: ints(4, 5, p=a).gather(0, ints(0, 1, p=b)),
    "take": lambda a, b: t(5, p=a).take(ints(0, 1, p=b)),
    "put_": lambda a, b: t(5, p=a).put_(ints(0, 1, p=b), t(2, p=a)),
    "scatter_add": lambda a, b: t(5, p=a).scatter_add(0, ints(0, 1, p=b), t(2, p=a)),
    "index_add": lambda a, b: t(5, p=a).index_add(0, ints(0, 1, p=b), t(2, p=a)),
    "index_copy": lambda a, b: t(5, p=a).index_copy(0, ints(0, 1, p=b), t(2, p=a)),
    "embedding": lambda a, b: F.embedding(ints(0, 1, p=b), t(5, 2, p=a)),
    "cross_entropy": lambda a, b: F.cross_entropy(t(2, 3, p=a), ints(0, 1, p=b)),
    "nll_loss": lambda a, b: F.nll_loss(t(2, 3, p=a), ints(0, 1, p=b)),
    "linear": lambda a, b: nn.Linear(3, 2).to(a)(t(1, 3, p=b)),
    "batch_norm": lambda a, b: nn.BatchNorm1d(3).to(a)(t(2, 3, p=b)),
    "lstm": lambda a, b: nn.LSTM(3, 2).to(a)(t(4, 1, 3, p=a), (t(1, 1, 2, p=b), t(1, 1, 2, p=b))),
    "out": lambda a, b: lamina.add(t(3, p=a), 1, out=t(3, p=b)),
    "set_": lambda a, b: t(3, p=a).set_(t(3, p=b)),
    "_foreach_add crossed": lambda a, b: foreach["_foreach_add"](
        [t(3, p=a), t(3, p=b)], [t(3, p=b), t(3, p=a)]
    ),
    "_foreach_lerp_ crossed": lambda a, b: foreach["_foreach_lerp_"]([t(3, p=a)], [t(3, p=b)], 0.5),
    "parameters_to_vector": lambda a, b: utils.parameters_to_vector([param(a), param(b)]),
    "vector_to_parameters": lambda a, b: utils.vector_to_parameters(t(12, p=a), [param(a), param(b)]),
    "pad_sequence": lambda a, b: utils.rnn.pad_sequence([t(2, p=a), t(3, p=b)]),
    "pack_sequence": lambda a, b: utils.rnn.pack_sequence([t(3, 1, p=a), t(2, 1, p=b)]),
    "default_collate": lambda a, b: lamina.utils.data.default_collate([t(3, p=a), t(3, p=b)]),
    "collated ints": lambda a, b: lamina.utils.data.default_collate([ints(3, p=a), ints(3, p=b)]),
    "stack_module_state": lambda a, b: lamina.func.stack_module_state(
        [nn.Linear(2, 2).to(a), nn.Linear(2, 2).to(b)]
    ),
    "vmap": lambda a, b: lamina.vmap(lamina.add)(t(2, 3, p=a), t(2, 3, p=b)),
    "jvp": lambda a, b: lamina.func.jvp(lambda x: x * 2, (t(2, p=a),), (t(2, p=b),)),
    "vjp": lambda a, b: lamina.func.vjp(lambda x: x * 2, t(2, p=a))[1](t(2, p=b)),
    "x.grad": lambda a, b: setattr(param(a), "grad", t(2, 3, p=b)),
    "backward": lambda a, b: (param(a) * 2).backward(t(2, 3, p=b)),
    "grad": lambda a, b: lamina.autograd.grad(param(a) * 2, param(a), t(2, 3, p=b)),
    "a hook": lambda a, b: hooked(param(a), b),
    "a Function": lambda a, b: Astray.apply(param(a), b).sum().backward(),
}


class Astray(lamina.autograd.Function):
    """Its gradient is somewhere else."""

    @staticmethod
    def forward(ctx, x, place):
        ctx.place = place
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g.to(ctx.place), None


def hooked(x, place):
    x.register_hook(lambda g: g.to(place))
    (x * 2).sum().backward()


@on_fake(devices=2)
def test_tensors_in_two_places_are_refused_and_both_are_named(fake: Fake):
    for name, call in REFUSED.items():
        for a, b in PAIRS:
            with pytest.raises((RuntimeError, TypeError)) as caught:
                call(a, b)
            assert a in str(caught.value) and b in str(caught.value), (name, a, b, caught.value)


@on_fake(devices=2)
def test_what_must_be_of_the_cpu_is_refused_on_a_device(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    for call in (
        lambda: lamina.tensor_split(t(4, p="cuda"), ints(1, 2, p="cuda")),
        lambda: utils.rnn.pack_padded_sequence(t(3, 2, 1, p="cuda"), ints(3, 2, p="cuda")),
        lambda: t(3, p="cuda").pin_memory(),
        lambda: lamina.sparse_coo_tensor(ints(0, 1, p="cuda").reshape(1, 2), t(2, p="cuda"), (3,)),
    ):
        with pytest.raises(lamina.ir.errors.DeviceError, match="cuda:0"):
            call()
    # a number of another GPU is none of the CPU's, and indices of a GPU find nothing on the CPU
    for call in (
        lambda: t(3, p="cuda:0") * one(2.0, "cuda:1"),
        lambda: t(3, p="cpu") * one(2.0, "cuda:1"),
        lambda: t(3, p="cuda:0").clamp(one(0.2, "cuda:1")),
        lambda: t(3, p="cuda:0").masked_fill(t(3, p="cuda:0") > 0.2, one(0.0, "cuda:1")),
        lambda: t(3, p="cpu")[ints(0, p="cuda:1")],
        lambda: ints(1, 2, p="cpu")[ints(0, p="cuda:1")],
    ):
        with pytest.raises(lamina.ir.errors.DeviceError, match=r"Expected all tensors .* cuda:1"):
            call()


def clipped(a, b, **how):
    params = [param(a), param(b)]
    norm = utils.clip_grad_norm_(params, 0.5, **how)
    return norm, *[p.grad for p in params]


def valued(a, b):
    params = [param(a), param(b)]
    utils.clip_grad_value_(params, 0.3)
    return [p.grad for p in params]


def scaled(a, b):
    params = [param(a), param(b)]
    utils.clip_grads_with_norm_(params, 1.0, one(9.0, b))
    return [p.grad for p in params]


def written(name, *operands):
    foreach[name](*operands)
    return operands[0]


def both(a, b):
    return [t(3, p=a), t(3, p=b)]


def stepped(name, a, b, **how):
    params = [param(a), param(b)]
    optimizer = getattr(optim, name)(params, lr=0.1, **how)
    optimizer.step()
    again = getattr(optim, name)(params, lr=0.1, **how)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    again.step()
    states = [[x for x in again.state[p].values() if isinstance(x, lamina.Tensor) and x.ndim] for p in params]
    assert all(x.device == p.device for p, kept in zip(params, states, strict=True) for x in kept)
    return params


def backwards(a, b):
    x, y = nn.Parameter(t(2, p=a)), nn.Parameter(t(2, p=b))
    lamina.autograd.backward([(x * 2).sum(), (y * 3).sum()])
    (x * y.to(a)).sum().backward()
    (x * 2).sum().backward(one(2.0, b))  # a number's gradient goes where it is wanted
    return x.grad, y.grad


def loaded(a, b):
    first = nn.Sequential(nn.Linear(2, 2).to(a), nn.BatchNorm1d(2).to(b))
    second = nn.Sequential(nn.Linear(2, 2).to(b), nn.BatchNorm1d(2).to(a))
    for x in first.state_dict().values():
        x.fill_(3)
    second.load_state_dict(first.state_dict())
    return second[1].weight, second[0].weight


def batch(a, b):
    data = lamina.utils.data.TensorDataset(t(4, 2, p=a), ints(1, 2, 3, 4, p=b))
    return next(iter(lamina.utils.data.DataLoader(data, batch_size=2)))


def numbered(a, b):
    """A number of another place, written to some places."""
    x = t(5, p=a)
    x[ints(0, 1, p=a)] = one(9.0, b)
    return x


def indexed(a, b):
    """Indices and numbers of the CPU, beside what is on `a`; `b` is not asked."""
    x = t(5, p=a)
    x[lamina.tensor([0, 1])] = lamina.tensor(9.0)
    x[2:4] = t(2, p=b)  # a copy, which goes anywhere
    return x[lamina.tensor([0, 2])], x[lamina.tensor([True, False] * 2 + [True])] * lamina.tensor(2.0)


PLACED = {
    "broadcast_tensors": (lambda a, b: lamina.broadcast_tensors(t(3, p=a), t(1, p=b)), "ab"),
    "copy_": (lambda a, b: t(3, p=a).copy_(t(3, p=b)), "a"),
    "numbers": (lambda a, b: one(1.0, a) + lamina.tensor(2.0), "a"),
    "indices": (indexed, "aa"),
    "a number written": (numbered, "a"),
    "type_as": (lambda a, b: t(3, p=a).type_as(ints(1, p=b)), "b"),
    "to": (lambda a, b: t(3, p=a).to(t(3, p=b)), "b"),
    "clip_grad_norm_": (clipped, "aab"),
    "clip_grad_norm_ of inf": (lambda a, b: clipped(a, b, norm_type=float("inf"), foreach=True), "aab"),
    "clip_grad_value_": (valued, "ab"),
    "clip_grads_with_norm_": (scaled, "ab"),
    "get_total_norm": (lambda a, b: utils.get_total_norm([t(2, p=a), t(3, p=b)]), "a"),
    "_foreach_mul": (lambda a, b: foreach["_foreach_mul"](both(a, b), both(a, b)), "ab"),
    "_foreach_add_": (lambda a, b: written("_foreach_add_", both(a, b), 2.0), "ab"),
    "_foreach_div of a number": (lambda a, b: foreach["_foreach_div"](both(a, b), lamina.tensor(2.0)), "ab"),
    "_foreach_norm": (lambda a, b: foreach["_foreach_norm"](both(a, b)), "ab"),
    "_foreach_addcdiv_": (
        lambda a, b: written("_foreach_addcdiv_", both(a, b), both(a, b), both(a, b), 2.0),
        "ab",
    ),
    "_foreach_copy_": (lambda a, b: written("_foreach_copy_", both(a, b), both(b, a)), "ab"),
    "fused Adam": (lambda a, b: stepped("Adam", a, b, fused=True), "ab"),
    "capturable AdamW": (lambda a, b: stepped("AdamW", a, b, capturable=True), "ab"),
    "foreach SGD": (lambda a, b: stepped("SGD", a, b, foreach=True, momentum=0.9), "ab"),
    "gradients": (backwards, "ab"),
    "load_state_dict": (loaded, "ab"),
    "DataLoader": (batch, "ab"),
    "GradScaler.scale": (lambda a, b: lamina.amp.GradScaler("cuda").scale([t(2, p=a), t(2, p=b)]), "ab"),
    "func.grad": (
        lambda a, b: lamina.func.grad(lambda x, y: (x * y.to(a)).sum(), (0, 1))(t(2, p=a), t(2, p=b)),
        "ab",
    ),
    "jacrev": (
        lambda a, b: lamina.func.jacrev(lambda x, y: x * y.to(a), (0, 1))(t(2, p=a), t(2, p=b)),
        "ab",
    ),
    "jvp across": (lambda a, b: lamina.func.jvp(lambda x: x.to(b) * 2, (t(2, p=a),), (t(2, p=a),)), "bb"),
    "vmap across": (lambda a, b: lamina.vmap(lambda x: x.to(b) * 2)(t(2, 3, p=a)), "b"),
}


@on_fake(devices=2)
def test_results_of_tensors_in_two_places_are_where_they_belong(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    for name, (call, places) in PLACED.items():
        lamina.manual_seed(0)
        wanted = call("cpu", "cpu")
        wanted = wanted if isinstance(wanted, (tuple, list)) else [wanted]
        for a, b in PAIRS:
            lamina.manual_seed(0)
            found = call(a, b)
            found = found if isinstance(found, (tuple, list)) else [found]
            told = [str(x.device) for x in found]
            assert told == [{"a": a, "b": b}[place] for place in places], (name, told)
            for x, y in zip(found, wanted, strict=True):
                np.testing.assert_allclose(
                    x.detach().cpu().numpy(), y.detach().numpy(), rtol=1e-5, err_msg=f"{name} {a} {b}"
                )
