"""Function transforms: levels, what is refused, what Python sees inside, and recordings."""

import functools
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
    with pytest.raises(ArgumentValueError, match="same size in the mapped dimension"):
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
        return op(g[0, 0], g, lamina.tensor([1]), w, g[0, :1], g[0, :1], total, -100, "mean", 0.0)

    with pytest.warns(UserWarning, match="one example after the other"):
        func.vmap(scores)(lamina.ones(2, 3))


def test_random_modes_draw_as_told():
    x = lamina.zeros(3, 8)
    for draw in (lambda a: lamina.rand(8), lambda a: lamina.nn.functional.dropout(lamina.ones(32))):
        own = func.vmap(draw, randomness="different")(x)
        same = func.vmap(draw, randomness="same")(x)
        assert (own[0] != own[1]).any() and (same[0] == same[1]).all()


DRAWS = {
    "poisson": lambda a: lamina.poisson(a * 5),
    "binomial": lambda a: lamina.binomial(lamina.tensor([9.0, 5.0, 4.0, 3.0]), a),
    "gamma": lambda a: lamina._standard_gamma(a + 1),
    "dirichlet": lambda a: lamina._sample_dirichlet(a + 1),
    "bernoulli": lamina.bernoulli,
    "bernoulli, one chance": lambda a: lamina.bernoulli(a, 0.5),
    "dropout": lambda a: lamina.nn.functional.dropout(a),
}


@pytest.mark.parametrize("name", DRAWS)
def test_draws_for_operands_are_those_of_all_examples_or_of_each(name):
    x, seeded = lamina.rand(3, 2, 4) * 0.5 + 0.25, lamina.manual_seed

    def drawn(function, *args):
        seeded(5)
        return function(*args)

    draw, one = DRAWS[name], lamina.rand(4) * 0.5 + 0.25
    different = drawn(func.vmap(draw, 1, 1, "different"), x)
    assert lamina.equal(different.movedim(1, 0), drawn(draw, x.movedim(1, 0)))
    nested = drawn(func.vmap(func.vmap(draw, randomness="different"), randomness="different"), x)
    assert lamina.equal(nested, drawn(draw, x))
    alone = drawn(func.vmap(lambda _: draw(one), randomness="different"), x)
    assert lamina.equal(alone, drawn(draw, one.expand(3, 4)))
    same = drawn(func.vmap(draw, randomness="same"), x)
    assert all(lamina.equal(row, drawn(draw, a)) for row, a in zip(same, x, strict=True))
    assert lamina.equal(drawn(func.vmap(lambda _: draw(one), 0, None, "same"), x), drawn(draw, one))


def test_draws_for_operands_have_gradients():
    x = lamina.rand(3, 4) + 1

    def total(a):
        lamina.manual_seed(3)
        return func.vmap(lamina._standard_gamma, randomness="different")(a).sum()

    def whole(a):
        lamina.manual_seed(3)
        return lamina._standard_gamma(a).sum()

    assert lamina.equal(func.grad(total)(x), func.grad(whole)(x))


def test_random_orders_are_those_of_calls_one_after_the_other():
    lamina.manual_seed(2)
    one, two = lamina.randperm(9), lamina.randperm(9)
    lamina.manual_seed(2)
    different = func.vmap(lambda a: lamina.randperm(9), randomness="different")(lamina.zeros(2))
    assert lamina.equal(different, lamina.stack([one, two]))
    lamina.manual_seed(2)
    same = func.vmap(lambda a: lamina.randperm(9), randomness="same")(lamina.zeros(2))
    assert lamina.equal(same, lamina.stack([one, one]))
    none = func.vmap(lambda a: lamina.randperm(9, dtype=lamina.int32), randomness="different")
    assert none(lamina.zeros(0)).shape == (0, 9) and none(lamina.zeros(0)).dtype is lamina.int32


@pytest.mark.parametrize(
    "name",
    ["alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d", "rrelu"],
)
def test_dropout_of_every_kind_draws_for_each_example(name):
    drop = functools.partial(getattr(lamina.nn.functional, name), training=True)
    x, plain = -lamina.ones(2, 4, 16, 2, 2, 2), -lamina.ones(4, 16, 2, 2, 2)
    if name in ("dropout1d", "dropout2d"):
        x, plain = x[..., 0, 0] if name == "dropout1d" else x[..., 0], plain[..., 0]
        plain = plain[..., 0] if name == "dropout1d" else plain
    for function, given in ((drop, x), (lambda a: drop(plain), x)):
        own = func.vmap(function, randomness="different")(given)
        same = func.vmap(function, randomness="same")(given)
        assert (own[0] != own[1]).any() and (same[0] == same[1]).all() and own.shape == x.shape


def test_chunks_draw_the_same_where_examples_do():
    x = lamina.zeros(5, 3)
    for mode in ("same", "different"):
        found = []
        for chunk in (None, 1, 2, 5):
            lamina.manual_seed(4)
            draw = func.vmap(lambda a: a + lamina.rand(3) * lamina.rand(()), 0, 0, mode, chunk_size=chunk)
            found.append((draw(x), lamina.rand(())))
        assert all(lamina.equal(out, found[0][0]) for out, _ in found) == (mode == "same")
        assert mode == "different" or len({after.item() for _, after in found}) == 1


def test_an_example_is_contiguous_by_its_own_strides():
    seen = []

    def look(a):
        seen.append(a.is_contiguous())
        return a

    x = lamina.zeros(2, 3, 4)
    func.vmap(look, in_dims=1)(x[:1])
    func.vmap(func.vmap(look), in_dims=1)(x)
    func.vmap(look)(x.transpose(0, 1))
    func.vmap(look, in_dims=2)(x)
    func.vmap(look)(x.transpose(1, 2))
    func.vmap(look)(lamina.zeros(2, 0, 3).transpose(1, 2))
    assert seen == [True, True, False, False, False, True]


def test_random_windows_are_drawn_for_each_example():
    pool = functools.partial(lamina.nn.functional.fractional_max_pool2d, kernel_size=2, output_size=5)
    x = lamina.rand(1, 3, 9, 9).expand(2, 3, 9, 9)
    own, same = (func.vmap(pool, randomness=mode)(x) for mode in ("different", "same"))
    assert (own[0] != own[1]).any() and (same[0] == same[1]).all()


def test_vmap_hands_on_what_is_no_tensor_where_out_dims_is_none():
    x = lamina.ones(3, 2)
    out, text = func.vmap(lambda a: (a * 2, "all"), out_dims=(0, None))(x)
    assert text == "all" and lamina.equal(out, x * 2)
    out, nothing = func.vmap(lambda a: (a, None), out_dims=(0, None), chunk_size=2)(x)
    assert nothing is None and lamina.equal(out, x)
    with pytest.raises(ArgumentValueError, match="got type <class 'str'>"):
        func.vmap(lambda a: (a, "all"))(x)
    with pytest.raises(IndexError, match="out of range"):
        func.vmap(lambda a: a, out_dims=3)(x)


def test_pullback_without_gradients_keeps_no_history():
    w = lamina.tensor([1.0, 2.0], requires_grad=True)
    out, pullback = func.vjp(lambda a: a**2, w)
    with lamina.no_grad():
        (found,) = pullback(lamina.ones(2))
    assert found.tolist() == [2.0, 4.0] and not found.requires_grad and out.requires_grad
    assert pullback(lamina.ones(2))[0].requires_grad
    assert not pullback(lamina.ones(2), create_graph=False)[0].requires_grad


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


def test_functional_call_takes_attributes_and_none():
    class Scaled(lamina.nn.Linear):
        def __init__(self):
            super().__init__(2, 2)
            self.scale = lamina.ones(2)

        def forward(self, x):
            return super().forward(x) * self.scale + getattr(self, "shift", 0.0)

    module, x, scale = Scaled(), lamina.ones(1, 2), lamina.tensor([2.0, 3.0])
    before, plain = module.scale, module(x)
    found = func.functional_call(module, {"scale": scale, "shift": lamina.ones(2)}, x)
    assert lamina.equal(found, plain * scale + 1) and module.scale is before and not hasattr(module, "shift")
    found = func.functional_call(module, {"bias": None}, x)
    assert lamina.equal(found, x @ module.weight.T) and module.bias is not None
    with pytest.raises(lamina.LaminaError, match="in_features.*int"):
        func.functional_call(module, {"in_features": scale}, x)
    with pytest.raises(lamina.LaminaError, match="unexpected: scale"):
        func.functional_call(module, {**dict(module.named_parameters()), "scale": scale}, x, strict=True)

    class Failing(Scaled):
        def forward(self, x):
            raise ValueError("no")

    failing = Failing()
    with pytest.raises(ValueError, match="no"):
        func.functional_call(failing, {"scale": scale, "shift": scale}, x)
    assert lamina.equal(failing.scale, lamina.ones(2)) and not hasattr(failing, "shift")


def test_functional_call_takes_tied_names_as_told():
    module = lamina.nn.ModuleList([lamina.nn.Linear(1, 1), lamina.nn.Linear(1, 1)])
    module[1].weight = module[0].weight

    class Both(lamina.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = module

        def forward(self, x):
            return self.parts[1](self.parts[0](x))

    one = {name: lamina.ones_like(x) for name, x in Both().named_parameters()}
    assert func.functional_call(Both(), one, lamina.ones(1), strict=True).item() == 3.0
    with pytest.raises(lamina.LaminaError, match="missing: parts.1.weight"):
        func.functional_call(Both(), one, lamina.ones(1), strict=True, tie_weights=False)


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


def test_functional_call_of_a_module_that_holds_itself():
    module = lamina.nn.Linear(1, 1)
    module.inner = lamina.nn.Linear(1, 1)
    module.inner.outer = module
    x, held = lamina.ones(2, 1), module.weight.clone()
    given = {"inner.outer.weight": lamina.tensor([[3.0]]), "bias": lamina.zeros(1)}
    found = lamina.func.functional_call(module, given, x, tie_weights=False)
    assert found.tolist() == [[3.0], [3.0]]
    assert module.weight.equal(held)


def test_vjp_made_without_gradients_can_be_differentiated_where_it_is_called():
    x = lamina.tensor(3.0, requires_grad=True)
    with lamina.no_grad():
        out, pullback = func.vjp(lambda x: x**2, x)
        assert not func.grad(lambda x: x**2)(x).requires_grad
    (y,) = pullback(lamina.tensor(1.0))
    assert not out.requires_grad and y.requires_grad and y.item() == 6.0
    assert lamina.autograd.grad(y, x)[0].item() == 2.0


def test_custom_functions_say_one_thing_about_vmap():
    class Both(lamina.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x):
            return x.clone()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return x

    with pytest.raises(TransformError, match="both generate_vmap_rule=True and"):
        func.vmap(Both.apply)(lamina.ones(3))
    Both.generate_vmap_rule = False
    with pytest.raises(TypeError, match="to have two returns"):
        func.vmap(Both.apply)(lamina.ones(3))


def test_vmap_says_which_dims_do_not_fit():
    x = lamina.ones(2, 3)
    for what, call in (
        ("in_dims is not compatible with the structure of `inputs`", lambda: func.vmap(len, ((0, 0),))(x)),
        ("out_dims is not compatible with the structure of `outputs`", lambda: func.vmap(cube, 0, (0, 0))(x)),
    ):
        with pytest.raises(ArgumentValueError, match=what):
            call()
