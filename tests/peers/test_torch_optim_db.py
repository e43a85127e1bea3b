"""PyTorch's own database of optimizers: each of its inputs, stepped on both sides, and states that move over."""

import numpy as np
import pytest

import lamina
from lamina import optim

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")
database = pytest.importorskip(
    "torch.testing._internal.common_optimizers", reason="torch's test helpers need expecttest"
)

STEPS = 6
SHAPES = {"Muon": [(3, 4), (5, 2), (1, 1)]}  # matrices only
COMMON = [(3, 4), (7,), (), (2, 3, 2), (0, 2)]
# What the database holds and Lamina has no kind of tensor for.
LEFT_OUT = {"SparseAdam": "it takes sparse gradients alone"}

INPUTS = [
    pytest.param(info.optim_cls.__name__, given.kwargs, id=f"{info.optim_cls.__name__}-{given.desc}")
    for info in database.optim_db
    for given in info.optim_inputs_func(device="cpu")
    if info.optim_cls.__name__ not in LEFT_OUT
]
ERRORS = [
    pytest.param(given, id=f"{info.optim_cls.__name__}-{n}")
    for info in database.optim_db
    for n, given in enumerate(info.optim_error_inputs_func(device="cpu", dtype=torch.float32))
]


def crossed(value, to):
    """Tensors of one side as those of the other, in whatever they stand in; leaves stay leaves."""
    if isinstance(value, (torch.Tensor, lamina.Tensor)):
        new = to(np.array(value.detach().numpy()))
        return new.requires_grad_() if value.requires_grad else new
    if isinstance(value, dict):
        return {k: crossed(v, to) for k, v in value.items()}
    return type(value)(crossed(x, to) for x in value) if isinstance(value, (list, tuple)) else value


def objective(params):
    """A smooth function with one minimum, and another curvature along each axis."""
    total = 0.0
    for i, p in enumerate(params):
        total = total + ((p * p + 1) ** 0.5 * (0.5 + i) + (p - 0.3 * i) ** 2).sum()
    return total


def near(mine, theirs, name, steps):
    """Whether they agree to what rounding explains.

    An update is at most 40 roundings, in another order than PyTorch's, of terms no greater than the larger of
    1 and what is compared; over the steps they add up.  Muon rounds to bfloat16 in between (8 bits, steps of
    the rate's size, 5 iterations whose slope at 0 is at most 3.5); LBFGS divides by differences of gradients,
    whose relative error is up to 1e3 times that of the gradients here.
    """
    mine, theirs = (np.asarray(x.detach().numpy(), np.float64) for x in (mine, theirs))
    scale = np.maximum(1, np.abs(theirs))
    return mine.shape == theirs.shape and bool((np.abs(mine - theirs) <= bound(name, steps) * scale).all())


def bound(name, steps):
    return {"LBFGS": 1e3}.get(name, 1) * 40 * steps * near.eps


class Pair:
    """The same parameters and optimizer on both sides."""

    def __init__(self, name, kwargs, dtype):
        self.name, self.dtype = name, dtype
        self.draw = np.random.default_rng(3)
        start = [np.asarray(self.draw.normal(size=s), dtype) for s in SHAPES.get(name, COMMON)]
        self.mine = [lamina.tensor(x).requires_grad_() for x in start]
        self.theirs = [torch.tensor(x).requires_grad_() for x in start]
        self.optimizer = getattr(optim, name)(self.mine, **crossed(kwargs, lamina.tensor))
        self.peer = getattr(torch.optim, name)(self.theirs, **crossed(kwargs, torch.tensor))
        self.steps = 0

    def run(self, steps):
        for _ in range(steps):
            self.steps += 1
            if self.name == "LBFGS":
                for optimizer, params in ((self.optimizer, self.mine), (self.peer, self.theirs)):
                    optimizer.step(lambda o=optimizer, p=params: closure(o, p))
                self.check()
                continue
            for p, q in zip(self.mine, self.theirs, strict=True):
                grad = np.asarray(self.draw.normal(size=p.shape), self.dtype)
                p.grad, q.grad = lamina.tensor(grad), torch.tensor(grad)
            self.optimizer.step()
            self.peer.step()
            self.check()

    def check(self):
        near.eps = np.finfo(self.dtype).eps
        for p, q in zip(self.mine, self.theirs, strict=True):
            assert near(p, q, self.name, self.steps)
            mine, theirs = self.optimizer.state.get(p, {}), self.peer.state.get(q, {})
            assert list(mine) == list(theirs)
            for key in theirs:
                self.same(mine[key], theirs[key], key)

    def same(self, mine, theirs, key):
        if isinstance(theirs, list):
            for a, b in zip(mine, theirs, strict=True):
                self.same(a, b, key)
        elif isinstance(theirs, torch.Tensor) and theirs.ndim:
            assert str(mine.dtype)[7:] == str(theirs.dtype)[6:], key
            assert near(mine, theirs, self.name, self.steps), key
        elif theirs is None or isinstance(theirs, int):
            assert mine == theirs, key
        else:
            assert np.isclose(float(mine), float(theirs), rtol=bound(self.name, self.steps), atol=1e-12), key


def closure(optimizer, params):
    optimizer.zero_grad()
    loss = objective(params)
    loss.backward()
    return loss


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "kwargs"), INPUTS)
def test_steps_and_states_are_pytorchs(name, kwargs, dtype):
    pair = Pair(name, kwargs, dtype)
    pair.run(STEPS)
    # Each goes on from what the other has saved.
    mine, theirs = pair.optimizer.state_dict(), pair.peer.state_dict()
    assert [g.keys() for g in mine["param_groups"]] == [g.keys() for g in theirs["param_groups"]]
    pair.optimizer = getattr(optim, name)(pair.mine)
    pair.peer = getattr(torch.optim, name)(pair.theirs)
    pair.optimizer.load_state_dict(crossed(theirs, lamina.tensor))
    pair.peer.load_state_dict(crossed(mine, torch.tensor))
    pair.run(2)


@pytest.mark.parametrize("given", ERRORS)
def test_refusals_are_pytorchs(given):
    case, make = given.optimizer_error_input, None
    found = [p for p in flattened(case.params) if isinstance(p, torch.Tensor)]
    if any(p.is_sparse or p.is_complex() for p in found):
        pytest.skip("a kind of tensor that Lamina has not")
    kind = given.error_type
    params, kwargs = crossed(case.params, lamina.tensor), crossed(case.kwargs, lamina.tensor)
    cls = next(i.optim_cls for i in database.optim_db if f"{i.optim_cls.__name__}-" in str(given) or True)
    del cls, make
    with pytest.warns(kind) if issubclass(kind, Warning) else pytest.raises(kind):
        getattr(optim, given.name)(params, **kwargs)


def flattened(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in flattened(v)]
    return [value]
