"""PyTorch's own database of optimizers: each of its inputs on both sides, and states that move over."""

import numpy as np
import pytest

import lamina
from lamina import optim

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")
database = pytest.importorskip(
    "torch.testing._internal.common_optimizers", reason="torch's test helpers need expecttest"
)

STEPS = 6
COMMON = [(3, 4), (7,), (), (2, 3, 2)]
# Muon takes matrices only, and PyTorch's Adafactor divides by the number of elements.
SHAPES = {"Muon": [(3, 4), (5, 2), (1, 1)], "Adafactor": COMMON}
# What the database holds and Lamina has no kind of tensor for.
LEFT_OUT = {"SparseAdam": "it takes sparse gradients alone"}

INPUTS = [
    pytest.param(info.optim_cls.__name__, given.kwargs, id=f"{info.optim_cls.__name__}-{given.desc}")
    for info in database.optim_db
    for given in info.optim_inputs_func(device="cpu")
    if info.optim_cls.__name__ not in LEFT_OUT
]
ERRORS = [
    pytest.param(info.optim_cls.__name__, given, id=f"{info.optim_cls.__name__}-{n}")
    for info in database.optim_db
    for n, given in enumerate(info.optim_error_inputs_func(device="cpu", dtype=torch.float32))
]


def crossed(value, to, known=None):
    """Tensors of one side as those of the other, wherever they stand; leaves stay leaves, one stays one."""
    known = {} if known is None else known
    if isinstance(value, (torch.Tensor, lamina.Tensor)):
        if id(value) not in known:
            new = to(np.array(value.detach().numpy()))
            known[id(value)] = new.requires_grad_() if value.requires_grad else new
        return known[id(value)]
    if isinstance(value, dict):
        return {k: crossed(v, to, known) for k, v in value.items()}
    return type(value)(crossed(x, to, known) for x in value) if isinstance(value, (list, tuple)) else value


def objective(params):
    """A smooth function with one minimum, and another curvature along each axis."""
    total = 0.0
    for i, p in enumerate(params):
        total = total + ((p * p + 1) ** 0.5 * (0.5 + i) + (p - 0.3 * i) ** 2).sum()
    return total


def near(mine, theirs, bound):
    mine, theirs = (np.asarray(x.detach().numpy(), np.float64) for x in (mine, theirs))
    return mine.shape == theirs.shape and bool(
        (np.abs(mine - theirs) <= bound * np.maximum(1, np.abs(theirs))).all()
    )


class Pair:
    """The same parameters and optimizer on both sides."""

    def __init__(self, name, kwargs, dtype):
        self.name, self.dtype = name, dtype
        self.draw = np.random.default_rng(3)
        start = [np.asarray(self.draw.normal(size=s), dtype) for s in SHAPES.get(name, [*COMMON, (0, 2)])]
        self.mine = [lamina.tensor(x).requires_grad_() for x in start]
        self.theirs = [torch.tensor(x).requires_grad_() for x in start]
        if name == "LBFGS":  # near the minimum the differences that it divides by are rounding
            kwargs = {"max_iter": 4, **kwargs}
        self.optimizer = getattr(optim, name)(self.mine, **crossed(kwargs, lamina.tensor))
        self.peer = getattr(torch.optim, name)(self.theirs, **crossed(kwargs, torch.tensor))
        self.rate = self.peer.param_groups[0]["lr"]
        self.steps = 0

    def bounds(self):
        """How far parameters, and states, may be apart.

        An update is at most 40 roundings, in another order than PyTorch's, of terms no greater than the
        larger of 1 and what is compared; over the steps they add up. With a rate that is a float32 tensor
        PyTorch's Muon decays in float32. Muon's matrices are rounded to bfloat16: a sum that rounds to the
        other side
        moves an element of the direction, at most 1.6 in these shapes, by units of 2 ** -8, of which we allow
        four. LBFGS divides by differences of gradients, which for a step of `rate` agree in all but a share
        of `rate`; some ten of these are multiplied together before it ends. In float32 that leaves no
        digit of the states, and roundings decide where an iteration ends.
        """
        eps, rate = np.finfo(self.dtype).eps, float(self.rate)
        state = 40 * self.steps * eps
        if self.name == "Muon":
            scalar = np.finfo(np.float32).eps if isinstance(self.rate, torch.Tensor) else eps
            return 40 * self.steps * max(eps, scalar) + self.steps * rate * 4 * 2**-8 * 1.6, state
        if self.name == "LBFGS":
            return 1e4 * eps, 1e4 * eps / min(rate, 1) if self.dtype is np.float64 else None
        return state, state

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
        of_params, of_states = self.bounds()
        for p, q in zip(self.mine, self.theirs, strict=True):
            assert near(p, q, of_params)
            mine, theirs = self.optimizer.state.get(p, {}), self.peer.state.get(q, {})
            assert mine.keys() == theirs.keys()
            for key in theirs:
                if of_states is not None:
                    same(mine[key], theirs[key], key, of_states)


def same(mine, theirs, key, bound):
    if isinstance(theirs, list):
        for a, b in zip(mine, theirs, strict=True):
            same(a, b, key, bound)
    elif isinstance(theirs, torch.Tensor) and theirs.ndim:
        assert str(mine.dtype).split(".")[1] == str(theirs.dtype).split(".")[1], key
        assert near(mine, theirs, bound), key
    elif theirs is None or isinstance(theirs, int):
        assert mine == theirs, key
    else:
        assert np.isclose(float(mine), float(theirs), rtol=bound, atol=bound), key


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


@pytest.mark.parametrize(("name", "given"), ERRORS)
def test_refusals_are_pytorchs(name, given):
    case, kind = given.optimizer_error_input, given.error_type
    if any(p.is_sparse or p.is_complex() for p in flattened(case.params) if isinstance(p, torch.Tensor)):
        pytest.skip("a kind of tensor that Lamina has not")
    params, kwargs = crossed(case.params, lamina.tensor), crossed(case.kwargs, lamina.tensor)
    with pytest.warns(kind) if issubclass(kind, Warning) else pytest.raises(kind):
        optimizer = getattr(optim, name)(params, **kwargs)
        if given.error_on is not database.OptimizerErrorEnum.CONSTRUCTION_ERROR:
            optimizer.step()


def flattened(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in flattened(v)]
    return [value]
