"""Small arrays in native code: ops change over when they come often, and nothing else changes."""

import gc
import weakref

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina.ir.errors import LaminaError
from lamina.ir.op import REGISTRY
from lamina.runtime import kernels
from lamina.runtime.native import Executable
from lamina.runtime.plan import Plan, _forget

TIMES = 6  # calls, of which the last are native


def forget():
    """Plans count their calls by what held when they were made."""
    kernels.forget()
    _forget()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Small ops are compiled at their fourth call."""
    if kernels.WHEN != kernels.EARNED:
        pytest.skip("LAMINA_NATIVE leaves small arrays to NumPy")
    for name, value in {"CALLS": 2, "LOOK": 1, "COMPILE": 1}.items():
        monkeypatch.setattr(kernels, name, value)
    forget()
    yield
    forget()


@pytest.fixture
def entered(monkeypatch):
    """How often native code was made directly callable."""
    made = []
    direct = Executable.direct

    def counting(self, *args):
        found = direct(self, *args)
        made.append(found)
        return found

    monkeypatch.setattr(Executable, "direct", counting)
    return made


def draw(*shape):
    return lamina.randn(*shape, generator=lamina.Generator().manual_seed(7))


CALLS = {
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:], x[0], None),
    "gelu": F.gelu,
    "var": lambda x: x.var(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "sigmoid": lambda x: x.sigmoid() * 2,
    "gather": lambda x: x.gather(1, lamina.tensor([[1], [0]])),
    "max": lambda x: x.max(1).values,
    "cross_entropy": lambda x: F.cross_entropy(x, lamina.tensor([0, 2, 1, 0, 2])),
    "sum": lambda x: x.sum(0),
    "amax": lambda x: x.amax(1),
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "cat": lambda x: lamina.cat((x, x * 2), 1),
    "stack": lambda x: lamina.stack([x, x.exp()], 1),
    "matmul": lambda x: (0.1 * x) @ (0.1 * x).t(),
    "linear": lambda x: F.linear(0.1 * x, 0.1 * x[:2], x[:2, 0]),
    "relu": lambda x: x.relu() * x,
    "cumsum": lambda x: x.cumsum(1),
    "where": lambda x: lamina.where(x > 0, x * x, x.exp()),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(5, 3), (5, 33)])
def test_results_and_gradients_stay_what_they_were(name, shape, entered):
    x = draw(*shape).requires_grad_()
    seen = []
    for _ in range(TIMES):
        y = CALLS[name](x)
        (g,) = lamina.autograd.grad(y.sin().sum(), x, create_graph=True)
        (h,) = lamina.autograd.grad((g * g).sum(), x)
        seen.append([y.detach().numpy(), g.detach().numpy(), h.numpy()])
    assert any(found is not None for found in entered)
    for first, last in zip(seen[0], seen[-1], strict=True):
        assert first.dtype == last.dtype
        # both round some 64 times on the way to numbers no larger than these
        np.testing.assert_allclose(last, first, 0, 64 * 1.2e-7 * max(1, np.abs(first).max()))


def test_gradients_of_a_chain_are_native_and_right(entered):
    """The middle of a chain takes the short way through backward, where cotangents are plain arrays."""
    x = draw(6, 9).requires_grad_()
    found = []
    for _ in range(2 * TIMES):
        x.grad = None
        F.gelu(F.layer_norm(F.softmax(x, -1), (9,))).var(1).sum().backward()
        found.append(x.grad.numpy())
    assert sum(f is not None for f in entered) == 10  # five ops, and their gradients
    np.testing.assert_allclose(found[-1], found[0], 0, 256 * 1.2e-7 * np.abs(found[0]).max())


def test_leaves_take_native_gradients_and_add_to_them():
    """Inputs that want none, parameters used twice, gradients that are there already, hooks."""
    x, w, b = draw(4, 3), draw(5, 3).requires_grad_(), draw(5).requires_grad_()
    heard = []
    for n in range(3 * TIMES):
        if n == 2 * TIMES:
            w.register_hook(lambda g: heard.append(g.tolist()))
        w.grad = None if n % 3 == 0 else lamina.ones(5, 3)
        b.grad = None
        y = F.linear(x, w, b).relu() + F.linear(x * 2, w)
        y.sum().backward()
        mask = ((x @ w.t() + b) > 0).float()
        wanted = mask.t() @ x + 2 * x.sum(0) + (0 if n % 3 == 0 else 1)
        np.testing.assert_allclose(w.grad.numpy(), wanted.detach().numpy(), 1e-5)
        np.testing.assert_allclose(b.grad.numpy(), mask.sum(0).numpy(), 1e-5)
        before = w.grad.clone()
        w.grad.mul_(2)  # its memory is its own
        assert lamina.equal(w.grad, before * 2) and not np.shares_memory(w.grad.numpy(), b.grad.numpy())
    assert len(heard) == TIMES


def test_what_was_saved_may_not_be_written_before_a_native_gradient():
    x, w = draw(4, 3), draw(5, 3).requires_grad_()
    for _ in range(2 * TIMES):
        y = F.linear(x, w)
        F.linear(x, w).sum().backward()
        x.add_(1)
        with pytest.raises(LaminaError, match="changed in place"):
            y.sum().backward()


def test_an_index_out_of_range_is_the_same_error():
    x, wrong = draw(3, 4), lamina.tensor([[7]])
    said = set()
    for _ in range(TIMES):
        assert x.gather(1, lamina.tensor([[2]])).shape == (1, 1)
        with pytest.raises(LaminaError) as error:
            x.gather(1, wrong)
        said.add(str(error.value))
    assert len(said) == 1


def test_other_layouts_are_looked_at():
    x = draw(8, 8)
    wanted = F.softmax(x.T.clone(), 1).numpy()
    for _ in range(TIMES):
        F.softmax(x, 1)
        for other in (x.T, x.T.clone()):
            np.testing.assert_allclose(F.softmax(other, 1).numpy(), wanted, 1e-6)
    broadcast = x[:1].expand(8, 8)
    np.testing.assert_allclose(F.softmax(broadcast, 1)[5].numpy(), F.softmax(x, 1)[0].numpy(), 1e-6)


def test_in_place_ops_go_on_writing():
    x, y = draw(4, 4), draw(4, 4)
    wanted = x.numpy() + 0.5 * y.numpy() * y.numpy()
    for _ in range(TIMES):
        z = x.clone()
        base = z.view(16)
        z.addcmul_(y, y, value=0.5)
        np.testing.assert_allclose(base.numpy(), wanted.ravel(), 1e-6)


def test_halves_and_integers():
    for dtype in (lamina.float16, lamina.bfloat16, lamina.float64):
        x = draw(4, 5).to(dtype)
        seen = [F.gelu(x) for _ in range(TIMES)]
        assert all(s.dtype is dtype for s in seen)
        assert lamina.allclose(seen[0].double(), seen[-1].double(), 0, float(lamina.finfo(dtype).eps) * 4)
    n = lamina.arange(12).view(3, 4)
    for _ in range(TIMES):
        assert n.remainder(5).tolist() == [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4, 0, 1]]


def test_what_is_not_called_often_makes_no_code(monkeypatch, entered):
    monkeypatch.setattr(kernels, "CALLS", 1000)
    for n in range(102, 112):  # no other test's shapes
        for _ in range(20):
            F.softmax(lamina.ones(n, 3), 1)
    assert not entered


def test_what_numpy_does_in_a_call_is_left_to_it():
    x = draw(4, 4)
    for f in (lambda: x + x, lambda: x.exp(), lambda: x.clone()):
        for _ in range(TIMES):
            f()
    assert not kernels._known


def test_plans_leave_no_cycles_behind():
    op, x = REGISTRY["softmax"], draw(7, 7)
    attrs = op.bind(x, 1)[1]
    for calls in (1, TIMES):  # counted, and native
        plan = Plan(op, (x._meta,), attrs)
        plan.plan_gradients()
        for _ in range(calls):
            y = plan.kernel(x._data)
            if plan.raw_vjp is not None:  # not from the first
                plan.raw_vjp((y,), (y,), attrs, (True,))
        assert (type(plan.raw_vjp) is kernels.SmallGradients) is (calls > 1)
        gone = weakref.ref(plan)
        gc.disable()
        try:
            del plan
            assert gone() is None
        finally:
            gc.enable()
