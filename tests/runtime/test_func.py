"""Function transforms: levels, what is refused, what Python sees inside, and recordings."""

import threading
import warnings

import pytest

import lamina
from lamina import func, jit
from lamina.autograd import forward_ad
from lamina.ir.errors import ArgumentValueError, GradError, TransformError
from lamina.runtime import modes


def cube(x):
    return (x**3).sum()


def test_func_levels_keep_apart():
    x = lamina.tensor(3.0)
    assert func.grad(lambda a: a * func.grad(lambda b: a + b)(lamina.tensor(1.0)))(x).item() == 1.0
    assert func.grad(func.grad(func.grad(lambda a: a**3)))(x).item() == 6.0
    assert func.grad(lambda a: func.grad(lambda b: b * a * a)(a))(x).item() == 6.0
    assert not x.requires_grad and x.grad is None


def test_func_results_forget_their_own_leaves():
    x = lamina.tensor([1.0, 2.0])
    out, back = func.vjp(lambda a: a.exp(), x)
    assert not out.requires_grad and not back(out)[0].requires_grad
    w = lamina.tensor([1.0, 1.0], requires_grad=True)
    gradient = func.grad(lambda a: (a * a * w).sum())(x)
    gradient.sum().backward()
    assert gradient.requires_grad and w.grad.tolist() == [2.0, 4.0]
    with lamina.no_grad():
        assert not func.grad(lambda a: (a * w).sum())(x).requires_grad


def test_func_leaves_no_level_open():
    with pytest.raises(ZeroDivisionError):
        func.vmap(lambda a: 1 / 0)(lamina.ones(2))
    with pytest.raises(ZeroDivisionError):
        func.jvp(lambda a: 1 / 0, (lamina.ones(2),), (lamina.ones(2),))
    assert modes.local.levels == () and not modes.CHANGED


def test_func_is_per_thread():
    found = []

    def run(number):
        with_number = func.vmap(lambda a: a * number + lamina.ones(2))
        found.append(
            [with_number(lamina.ones(3, 2)).sum().item() for _ in range(20)] == [6.0 * (number + 1)] * 20
        )

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [True] * 4


def test_vmap_says_what_it_refuses():
    x = lamina.ones(3, 2)
    with pytest.raises(TransformError, match="asked for inside of vmap"):
        func.vmap(lambda a: a if a.sum() > 0 else -a)(x)
    with pytest.raises(TransformError, match="can't hold a value for each example"):
        func.vmap(lambda a: lamina.zeros(2).add_(a))(x)
    with pytest.raises(TransformError, match='randomness="different"'):
        func.vmap(lambda a: a + lamina.rand(2))(x)
    with pytest.raises(TransformError, match="nonzero|argwhere"):
        func.vmap(lambda a: a.nonzero())(x)
    with pytest.raises(TransformError, match="lamina.func.grad"):
        func.vmap(lambda a: a.sum().backward())(x.requires_grad_())
    with pytest.raises(ArgumentValueError, match="must be one, not"):
        func.vmap(lambda a, b: a)(x, lamina.ones(4))
    with pytest.raises(GradError, match="0-d tensor"):
        func.grad(lambda a: a)(x)
    kept = []
    func.vmap(lambda a: kept.append(a) or a)(x)
    with pytest.raises(TransformError, match="had ended"):
        kept[0] + 1


def test_vmap_shows_types_and_writes_through_views():
    seen = []

    def one(a, b):
        seen.append((tuple(a.shape), a.ndim, len(a), a.numel(), a.size(0), a.dtype))
        c = a.clone()
        c[0] += b
        c.view(-1)[-1] = 7.0
        return c

    out = func.vmap(one, in_dims=(1, 0), out_dims=1)(lamina.zeros(2, 3), lamina.tensor([1.0, 2.0, 3.0]))
    assert seen == [((2,), 1, 2, 2, 2, lamina.float32)]
    assert out.tolist() == [[1.0, 2.0, 3.0], [7.0, 7.0, 7.0]]


def test_vmap_loops_with_a_warning():
    def scores(w):
        g, total = lamina.ones(1, 3), lamina.ones(())
        op = lamina.ir.op.REGISTRY["softmax_cross_entropy_grad"]
        return op(g[0, 0], g, lamina.tensor([1]), w, g[0, :1], total, -100, "mean", 0.0)

    with pytest.warns(UserWarning, match="one example after the other"):
        func.vmap(scores)(lamina.ones(2, 3))


def test_random_modes_draw_as_told():
    x = lamina.zeros(3, 8)
    for draw in (lambda a: lamina.rand(8), lambda a: lamina.nn.functional.dropout(lamina.ones(32))):
        own = func.vmap(draw, randomness="different")(x)
        same = func.vmap(draw, randomness="same")(x)
        assert (own[0] != own[1]).any() and (same[0] == same[1]).all()


def test_forward_mode_has_values_and_writes():
    def f(x):
        y = x * 2 if x[0].item() > 0 else x
        z = lamina.zeros_like(y)
        z[1:] = y[:-1]
        return z

    x, t = lamina.tensor([1.0, 2.0]), lamina.tensor([3.0, 4.0])
    out, moved = func.jvp(f, (x,), (t,))
    assert out.tolist() == [0.0, 2.0] and moved.tolist() == [0.0, 6.0] and t.tolist() == [3.0, 4.0]
    with pytest.raises(TransformError):
        forward_ad.make_dual(x, t)
    with forward_ad.dual_level():
        pair = forward_ad.unpack_dual(forward_ad.make_dual(x, t).exp())
        with pytest.raises(TransformError):
            forward_ad.enter_dual_level()
    assert lamina.equal(pair.tangent, x.exp() * t) and modes.local.levels == ()


def test_functional_call_leaves_the_module_as_it_was():
    layer = lamina.nn.Linear(2, 1)
    weight = layer.weight
    found = func.functional_call(
        layer, {"weight": lamina.ones(1, 2), "bias": lamina.zeros(1)}, lamina.ones(2)
    )
    assert found.tolist() == [2.0] and layer.weight is weight and layer._parameters["weight"] is weight
    with pytest.raises(ArgumentValueError, match="one tensor, and got two"):
        tied = lamina.nn.Sequential(layer, layer)
        func.functional_call(
            tied, {"0.weight": lamina.ones(1, 2), "1.weight": lamina.zeros(1, 2)}, lamina.ones(2)
        )


def test_vmap_of_a_recurrent_layer():
    """Whose blocks of rows are cut by a custom function; PyTorch's own has no rule."""
    model = lamina.nn.LSTM(3, 2)
    x = lamina.randn(4, 5, 3)
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def loss(weights, x):
        return func.functional_call(model, weights, (x,))[0].sum()

    found = func.vmap(func.grad(loss), (None, 0))(weights, x)
    for name, rows in found.items():
        wanted = lamina.stack([func.grad(loss)(weights, row)[name] for row in x])
        assert lamina.allclose(rows, wanted, atol=1e-5)  # float32, sums of some tens of terms
    both = [j(lambda a: model(a)[0])(x[0]) for j in (func.jacrev, func.jacfwd)]
    assert lamina.allclose(*both, atol=1e-5)


def test_func_wrapped_tensors_are_detached_in_place():
    x, t = lamina.tensor([1.0, 2.0]), lamina.tensor([3.0, 4.0])
    with forward_ad.dual_level():
        y = forward_ad.make_dual(x, t).clone()
        assert y.detach_() is y
        primal, tangent = forward_ad.unpack_dual(y * 2)
    assert primal.tolist() == [2.0, 4.0] and not tangent.any()
    gradient = func.grad(lambda a: func.vmap(lambda b: (b * b).detach_() * b)(a).sum())(x)
    assert gradient.tolist() == [1.0, 4.0]


def test_func_forward_mode_writes_into_what_is_made_inside():
    def f(x):
        o = lamina.zeros(3)
        o[0] = x[0] * 2
        o[1] += x[1] ** 2
        return o

    x = lamina.tensor([1.0, 2.0, 3.0])
    wanted = [[2.0, 0.0, 0.0], [0.0, 4.0, 0.0], [0.0, 0.0, 0.0]]
    assert func.jacfwd(f)(x).tolist() == func.jacrev(f)(x).tolist() == wanted
    assert lamina.allclose(func.hessian(lambda x: f(x).square().sum())(x),
                           func.jacrev(func.jacrev(lambda x: f(x).square().sum()))(x))  # fmt: skip
    traced = jit.trace(lambda x: func.jvp(f, (x,), (x,))[1])
    assert [traced(x).tolist() for _ in range(3)] == [[2.0, 8.0, 0.0]] * 3
    with pytest.raises(TransformError, match="can't change its shape"):
        func.jvp(lambda x: f(x).unsqueeze_(0), (x,), (x,))
    kept = lamina.zeros(3, requires_grad=True) * 1
    with pytest.raises(TransformError, match="can't be written into a tensor that does not"):
        func.jvp(lambda x: kept.add_(x), (x,), (x,))


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda x: func.grad(cube)(x),
        lambda x: func.vmap(lambda a: a.sum() * 2)(x),
        lambda x: func.vmap(func.grad(cube))(x),
        lambda x: func.hessian(cube)(x[0]),
        lambda x: func.jvp(lambda a: a.sin(), (x,), (x,))[1],
        lambda x: func.jacrev(lambda a: a.cumsum(0))(x[0]),
        func.vmap(lambda a: a * 3),
    ],
)
def test_func_is_recorded(function):
    x = lamina.randn(4, 3)
    traced = jit.trace(function)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [traced(x) for _ in range(3)]
    # compiled code may add in another order: at most 12 terms of size 30
    assert all(lamina.allclose(y, function(x), atol=1e-4) for y in found)
    assert "served 2 of 3" in str(traced.explain())
