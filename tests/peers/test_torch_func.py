"""torch.func, torch.vmap and forward mode against PyTorch: one program, run with both libraries."""

# ruff: noqa: E731 B023 - small functions under names, as users write them

import importlib
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import lamina

torch = pytest.importorskip("torch", reason="compares with PyTorch")

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


def data(T, *shape, seed=0):
    """The same numbers for both libraries."""
    values = np.random.default_rng([seed, *shape]).uniform(-1, 1, shape)
    return T.tensor(values.tolist(), dtype=T.float64)


def arrays(x):
    if isinstance(x, dict):
        return [y for key in sorted(x) for y in arrays(x[key])]
    if isinstance(x, (tuple, list)):
        return [y for item in x for y in arrays(item)]
    return [np.asarray(x.detach().numpy() if hasattr(x, "detach") else x)]


def mlp(T, seed=0):
    sizes = [(3, 8), (8,), (8, 2), (2,)]
    return [data(T, *s, seed=seed + i) for i, s in enumerate(sizes)]


def run_mlp(T, p, x):
    return T.tanh(x @ p[0] + p[1]) @ p[2] + p[3]


# ---- gradients
@case
def gradient(T, F):
    return F.grad(lambda x: (x.sin() * x**2).sum())(data(T, 5))


@case
def gradient_of_gradient(T, F):
    return F.grad(F.grad(F.grad(lambda x: x**4)))(data(T))


@case
def perturbation_confusion(T, F):
    return F.grad(lambda x: x * F.grad(lambda y: x + y)(T.tensor(1.0, dtype=T.float64)))(data(T))


@case
def captured_by_inner_gradient(T, F):
    return F.grad(lambda x: F.grad(lambda y: (x * y) ** 2)(x * x))(data(T))


@case
def several_arguments(T, F):
    f = F.grad(lambda a, b, c: (a * b.exp() + c["k"] * a).sum(), argnums=(0, 2))
    return f(data(T, 3), data(T, 3, seed=1), {"k": data(T, 3, seed=2)})


@case
def gradient_with_aux(T, F):
    return F.grad(lambda x: ((x**2).sum(), {"twice": 2 * x}), has_aux=True)(data(T, 3))


@case
def gradient_and_value(T, F):
    return F.grad_and_value(lambda x: ((x**2).sum(), x.cos()), has_aux=True)(data(T, 3))


@case
def gradient_with_keyword(T, F):
    return F.grad(lambda x, *, scale: (x * scale).sum())(data(T, 3), scale=data(T, 3, seed=3))


@case
def gradient_of_what_is_unused(T, F):
    return F.grad(lambda a, b: a.sum(), argnums=(0, 1))(data(T, 3), data(T, 2))


@case
def gradient_without_grad(T, F):
    with T.no_grad():
        return F.grad(lambda x: (x**3).sum())(data(T, 3))


@case
def gradient_stays_differentiable(T, F):
    x = data(T, 3).requires_grad_()
    g = F.grad(lambda y: (y**3).sum())(x)
    g.sum().backward()
    return g, x.grad


@case
def captured_tensor_stays_differentiable(T, F):
    w = data(T, 3).requires_grad_()
    g = F.grad(lambda y: (y**2 * w.exp()).sum())(data(T, 3, seed=1))
    return g, T.autograd.grad(g.sum(), w)[0]


@case
def does_not_ask_for_gradients(T, F):
    g = F.grad(lambda y: (y**2).sum())(data(T, 3))
    y, _ = F.vjp(lambda y: y**2, data(T, 3))
    return float(g.requires_grad), float(y.requires_grad)


@case
def pullback(T, F):
    out, back = F.vjp(lambda a, b: {"p": a * b, "s": (a + b).sum()}, data(T, 3), data(T, 3, seed=1))
    return out, back({"p": data(T, 3, seed=2), "s": data(T, seed=3)})


@case
def pullback_of_one(T, F):
    out, back, aux = F.vjp(lambda a: (a.exp(), a + 1), data(T, 3), has_aux=True)
    return out, back(T.ones_like(out)), back(out), aux


@case
def custom_function(T, F):
    class Cube(T.autograd.Function):
        @staticmethod
        def forward(x):
            return x * x * x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * x * x

    return F.grad(lambda x: Cube.apply(x).sum())(data(T, 3))


def cubes(T):
    class Cube(T.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x, w):
            return x * x * x * w

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g * 3 * x * x * w, g * x**3

        @staticmethod
        def jvp(ctx, t, u):
            x, w = ctx.saved_tensors
            return t * 3 * x * x * w + u * x**3

    return Cube.apply


@case
def custom_function_mapped(T, F):
    cube = cubes(T)
    x, w = data(T, 4, 3), data(T, 3, seed=1)
    return (
        F.vmap(cube, (0, None))(x, w),
        F.vmap(F.grad(lambda a, b: cube(a, b).sum(), (0, 1)), (0, None))(x, w),
        F.grad(lambda b: F.vmap(cube, (0, None))(x, b).sum())(w),
    )


@case
def custom_function_with_its_own_vmap(T, F):
    class Sum(T.autograd.Function):
        @staticmethod
        def forward(x):
            return x.sum()

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return x.movedim(in_dims[0], 0).reshape(info.batch_size, -1).sum(1) * 10, 0

    return F.vmap(Sum.apply, 1)(data(T, 4, 3))


@case
def custom_function_forward(T, F):
    cube = cubes(T)
    return F.jvp(cube, (data(T, 3), data(T, 3, seed=1)), (data(T, 3, seed=2), data(T, 3, seed=3)))


# ---- Jacobians
@case
def jacobian_reverse(T, F):
    return F.jacrev(lambda x: T.stack([x.sum(), (x**2).sum(), x.prod()]))(data(T, 4))


@case
def jacobian_forward(T, F):
    return F.jacfwd(lambda x: T.stack([x.sum(), (x**2).sum(), x.prod()]))(data(T, 4))


@case
def jacobians_of_mlp(T, F):
    p, x = mlp(T), data(T, 5, 3, seed=9)
    return F.jacrev(lambda *p: run_mlp(T, p, x), (0, 1, 2, 3))(*p), F.jacfwd(
        lambda *p: run_mlp(T, p, x), (0, 3)
    )(*p)


@case
def jacobian_nested(T, F):
    f = F.jacrev(lambda d: {"u": d["a"] * d["b"], "v": d["a"].sum()})
    return f({"a": data(T, 3), "b": data(T, 3, seed=1)})


@case
def jacobian_with_aux_and_chunks(T, F):
    return F.jacrev(lambda x: (x.sin(), x + 1), has_aux=True, chunk_size=2)(data(T, 5))


@case
def jacobian_forward_with_aux(T, F):
    return F.jacfwd(lambda x: (x.sin(), x + 1), has_aux=True)(data(T, 5))


@case
def hessian(T, F):
    return F.hessian(lambda x: (x.sin() * x.roll(1)).sum())(data(T, 4))


@case
def hessian_of_two(T, F):
    return F.hessian(lambda a, b: (a.exp() * b).sum(), argnums=(0, 1))(data(T, 2), data(T, 2, seed=1))


@case
def hessians_by_every_pair(T, F):
    f = lambda x: (x**3 * x.flip(0)).sum()
    pairs = [(a, b) for a in (F.jacrev, F.jacfwd) for b in (F.jacrev, F.jacfwd)]
    return [outer(inner(f))(data(T, 3)) for outer, inner in pairs]


@case
def third_derivative(T, F):
    return F.jacfwd(F.jacrev(F.jacfwd(lambda x: (x**4).sum())))(data(T, 2))


@case
def hessian_vector_products(T, F):
    f = lambda x: (x.sin() * x.exp()).sum()
    x, v = data(T, 4), data(T, 4, seed=1)
    return (
        F.jvp(F.grad(f), (x,), (v,))[1],
        F.vjp(F.grad(f), x)[1](v),
        F.grad(lambda y: (F.grad(f)(y) * v).sum())(x),
        F.grad(lambda y: F.jvp(f, (y,), (v,))[1])(x),
    )


@case
def forward_product(T, F):
    f = lambda a, b: (a.sin() * b, {"s": (a @ b).exp()})
    return F.jvp(f, (data(T, 3), data(T, 3, seed=1)), (data(T, 3, seed=2), data(T, 3, seed=3)))


@case
def forward_of_forward(T, F):
    one = T.tensor(1.0, dtype=T.float64)
    return F.jvp(lambda x: F.jvp(lambda y: x * y**3, (x,), (one,))[1], (data(T),), (one,))


@case
def forward_through_writes(T, F):
    def f(x):
        y = x.clone()
        y[0] = y[1] * 2
        y.mul_(x)
        z = T.zeros_like(x)
        z[1:] = y[:-1]
        return z + y

    return F.jvp(f, (data(T, 4),), (data(T, 4, seed=1),))


@case
def linearized(T, F):
    out, linear = F.linearize(lambda x: (x.sin() * x).cumsum(0), data(T, 4))
    return out, linear(data(T, 4, seed=1)), linear(data(T, 4, seed=2))


# ---- vmap
@case
def mapped(T, F):
    return T.vmap(T.dot)(data(T, 4, 3), data(T, 4, 3, seed=1))


@case
def mapped_dims(T, F):
    f = lambda a, b: (a.sum() * b, a)
    x, y = data(T, 3, 4, 2), data(T, 5, 4, seed=1)
    return (
        F.vmap(f, in_dims=(1, 1), out_dims=(1, -1))(x, y),
        F.vmap(f, in_dims=(-2, None), out_dims=2)(x, y),
        F.vmap(lambda d: d["a"] + d["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": y[0, :2]}),
    )


@case
def mapped_nested(T, F):
    outer = F.vmap(F.vmap(lambda a, b: (a * b).sum(), (None, 0)), (0, None))
    return outer(data(T, 4, 3), data(T, 5, 3, seed=1))


@case
def mapped_in_chunks(T, F):
    return [F.vmap(lambda a: a.cumsum(0), chunk_size=n, out_dims=1)(data(T, 7, 3)) for n in (1, 2, 7, 10)]


@case
def mapped_constant_result(T, F):
    return F.vmap(lambda a: (T.ones(2, dtype=T.float64), a), out_dims=(0, 1))(data(T, 3, 2))


@case
def mapped_promotion(T, F):
    i = T.arange(3)
    f = F.vmap(lambda a, b: a * b)
    return [
        f(data(T, 3), i),
        f(data(T, 3).float(), data(T, 3, 2)),
        F.vmap(lambda a: i * a)(data(T, 2).float()),
        F.vmap(lambda a: a + 1.5)(i),
    ]


@case
def mapped_views_and_writes(T, F):
    def f(x, y):
        z = x.clone()
        z[0] = y
        z.view(-1)[3:5].add_(1.0)
        z.t()[0] *= y
        z.clamp_(min=0.0)
        return z, z[1:, None].expand(2, 4, 3), z.diagonal()

    return F.vmap(f)(data(T, 4, 3, 3), data(T, 4, seed=1))


@case
def mapped_indexing(T, F):
    x, i = data(T, 5, 6, 3), T.tensor([[1, 0], [5, 2], [3, 3], [0, 4], [2, 1]])
    return [
        F.vmap(lambda a, k: a[k])(x, i),
        F.vmap(lambda a, k: a[:, k], (0, None))(x, T.tensor([2, 0])),
        F.vmap(lambda a, k: a[k], (None, 0))(x[0], i),
        F.vmap(lambda a, k: a.index_select(0, k))(x, i),
        F.vmap(lambda a, k: a.gather(0, k.unsqueeze(1)))(x, i),
        F.vmap(lambda a, k: a.scatter(0, k.unsqueeze(1), 7.0))(x, i),
        F.vmap(lambda a, k: a.index_add(0, k, T.ones(2, 3, dtype=T.float64)))(x, i),
        F.vmap(lambda a, k: T.index_put(a, (k,), a[:2]))(x, i),
        F.vmap(lambda k: T.nn.functional.one_hot(k, 6))(i),
        F.vmap(lambda a, k: T.nn.functional.embedding(k, a))(x, i),
        F.vmap(lambda a, k: T.where(a > 0, a, k.sum()))(x, i),
        F.vmap(lambda a: T.topk(a, 2, dim=0))(x),
        F.vmap(lambda a: a.sort(0, descending=True))(x),
        F.vmap(lambda a: T.cat([a, a[:1]], 0).flip(0))(x),
        F.vmap(lambda a: (a.argmax(), a.max(0).indices, a.std(), a.norm()))(x),
    ]


@case
def mapped_layers(T, F):
    N = T.nn.functional
    image, weight = data(T, 4, 2, 3, 6, 6), data(T, 4, 5, 3, 3, 3, seed=1)
    bias = data(T, 4, 5, seed=2)
    rows = data(T, 4, 6, 8, seed=3)
    return [
        F.vmap(lambda x, w, b: N.conv2d(x, w, b, padding=1))(image, weight, bias),
        F.vmap(lambda x, w: N.conv2d(x, w, stride=2), (0, None))(image, weight[0]),
        F.vmap(lambda x, w: N.conv2d(x, w), (None, 0))(image[0], weight),
        F.vmap(lambda x: N.max_pool2d(x, 2))(image),
        F.vmap(lambda x: N.avg_pool2d(x, 2))(image),
        F.vmap(lambda x: N.layer_norm(x, (8,)))(rows),
        F.vmap(lambda x, w: N.layer_norm(x, (8,), w))(rows, rows[:, 0]),
        F.vmap(lambda x: N.softmax(x, -1))(rows),
        F.vmap(lambda x: N.group_norm(x, 1))(image),
        F.vmap(lambda x: N.batch_norm(x, None, None, training=True))(image),
        F.vmap(lambda x: N.scaled_dot_product_attention(x, x, x))(rows),
        F.vmap(lambda x: N.pad(x, (1, 2)))(rows),
        F.vmap(lambda x, y: T.einsum("ij,kj->ik", x, y))(rows, rows),
        F.vmap(lambda x, y: N.linear(x, y))(rows, rows),
        F.vmap(lambda x: N.interpolate(x, scale_factor=2))(image),
    ]


@case
def mapped_algebra(T, F):
    a = data(T, 4, 3, 3)
    a = a @ a.mT + 2 * T.eye(3, dtype=T.float64)
    return [
        F.vmap(T.linalg.inv)(a), F.vmap(T.linalg.det)(a), F.vmap(T.linalg.cholesky)(a),
        F.vmap(T.linalg.solve)(a, data(T, 4, 3)), F.vmap(T.trace)(a), F.vmap(T.linalg.slogdet)(a),
        F.vmap(lambda x, v: x @ v, (None, 0))(a[0], data(T, 5, 3)),
        F.vmap(lambda x, v: v @ x, (0, None))(a, data(T, 3)),
    ]  # fmt: skip


@case
def complex_numbers(T, F):
    z, w = T.complex(data(T, 4, 3), data(T, 4, 3, seed=1)), T.complex(data(T, 3, seed=2), data(T, 3, seed=3))
    parts = [
        F.vmap(lambda a: (a * w).sum())(z),
        F.vmap(lambda a: (a.real, a.imag, T.view_as_real(a), a.abs(), a.conj()))(z),
        F.vmap(T.complex, (0, None))(z.real, w.imag),
        F.vmap(lambda a: T.fft.fft(a))(z),
        F.vmap(lambda a: T.fft.irfft(T.fft.rfft(a)))(data(T, 4, 6)),
        F.vmap(lambda a: T.fft.fft2(a), 1)(T.complex(data(T, 3, 4, 5), data(T, 3, 4, 5, seed=1))),
    ]
    f = lambda a: (a * a.conj() * w).abs().sum() + a.exp().real.sum()
    t = T.complex(data(T, 3, seed=5), data(T, 3, seed=6))
    return [
        [
            T.view_as_real(p.resolve_conj()) if p.is_complex() else p
            for p in (x if isinstance(x, tuple) else (x,))
        ]
        for x in parts
    ], [
        T.view_as_real(F.grad(f)(w).resolve_conj()),
        T.view_as_real(F.vmap(F.grad(f))(z).resolve_conj()),
        F.jvp(f, (w,), (t,)),
        [T.view_as_real(y.resolve_conj()) for y in F.jvp(lambda a: T.fft.fft(a) * a.conj(), (w,), (t,))],
    ]


# ---- together
@case
def gradients_of_each_example(T, F):
    p, x, y = mlp(T), data(T, 6, 3, seed=9), data(T, 6, 2, seed=8)

    def loss(p, x, y):
        return ((run_mlp(T, p, x) - y) ** 2).mean()

    return F.vmap(F.grad(loss), (None, 0, 0))(p, x, y)


@case
def gradients_of_each_example_of_a_network(T, F):
    model = T.nn.Sequential(
        T.nn.Conv2d(1, 2, 3), T.nn.ReLU(), T.nn.MaxPool2d(2), T.nn.Flatten(), T.nn.Linear(8, 3)
    ).double()
    params = {
        k: data(T, *v.shape, seed=i)
        for i, (k, v) in enumerate(sorted(dict(model.named_parameters()).items()))
    }

    def loss(params, x, y):
        out = F.functional_call(model, params, (x.unsqueeze(0),))
        return T.nn.functional.cross_entropy(out, y.unsqueeze(0))

    x, y = data(T, 4, 1, 6, 6), T.tensor([0, 2, 1, 1])
    return F.vmap(F.grad(loss), in_dims=(None, 0, 0))(params, x, y)


@case
def ensemble(T, F):
    models = [T.nn.Sequential(T.nn.Linear(3, 4), T.nn.Tanh(), T.nn.Linear(4, 2)).double() for _ in range(3)]
    for i, m in enumerate(models):
        with T.no_grad():
            for j, p in enumerate(m.parameters()):
                p.copy_(data(T, *p.shape, seed=10 * i + j))
    params, buffers = F.stack_module_state(models)
    x = data(T, 5, 3)

    def run(p, b, x):
        return F.functional_call(models[0], (p, b), (x,))

    out = F.vmap(run, in_dims=(0, 0, None))(params, buffers, x)
    out.pow(2).sum().backward()
    return out, {k: v.grad for k, v in params.items()}


@case
def maml(T, F):
    p = mlp(T)

    def loss(p, x, y):
        return ((run_mlp(T, p, x) - y) ** 2).mean()

    def after(p, x, y, x2, y2):
        g = F.grad(loss)(p, x, y)
        return loss([a - 0.1 * b for a, b in zip(p, g)], x2, y2)

    tasks = [data(T, 4, 5, n, seed=s) for s, n in ((1, 3), (2, 2), (3, 3), (4, 2))]

    def meta(p):
        return F.vmap(lambda *t: after(p, *t))(*tasks).mean()

    return F.grad_and_value(meta)(p)


@case
def gaussian_process(T, F):
    x, y = data(T, 6, 2), data(T, 6, seed=1)

    def kernel(a, b, scale):
        return T.exp(-((a - b) ** 2).sum() / scale**2)

    def negative_log_likelihood(scale):
        k = F.vmap(lambda a: F.vmap(lambda b: kernel(a, b, scale))(x))(x) + 0.1 * T.eye(6, dtype=T.float64)
        c = T.linalg.cholesky(k)
        return (y @ T.linalg.solve(k, y)) / 2 + c.diagonal().log().sum()

    at = T.tensor(0.7, dtype=T.float64)
    return F.grad_and_value(negative_log_likelihood)(at), F.hessian(negative_log_likelihood)(at)


@case
def laplacian(T, F):
    p = mlp(T)
    f = lambda x: run_mlp(T, p, x).sum()
    return F.vmap(lambda x: F.hessian(f)(x).trace())(data(T, 5, 3)), F.vmap(F.jacrev(f))(data(T, 5, 3))


@case
def jacobians_of_each_example(T, F):
    p = mlp(T)
    f = lambda x: run_mlp(T, p, x)
    x = data(T, 5, 3)
    return [F.vmap(j(f))(x) for j in (F.jacrev, F.jacfwd)]


@case
def mapped_pullback(T, F):
    out, back = F.vjp(lambda x: (x.exp() @ x, x.sin()), data(T, 3))
    return F.vmap(back)((data(T, 4), data(T, 4, 3)))


@case
def mapped_pullback_with_history(T, F):
    w = data(T, 3).requires_grad_()
    _, back = F.vjp(lambda x: (x * w).exp(), data(T, 3, seed=1))
    (g,) = F.vmap(back)(data(T, 4, 3, seed=2))
    return g, T.autograd.grad(g.sum(), w)[0]


@case
def influence(T, F):
    p, x = mlp(T), data(T, 5, 3)
    f = lambda p, x: run_mlp(T, p, x).sum()
    kernel = lambda a, b: sum((u * v).sum() for u, v in zip(F.grad(f)(p, a), F.grad(f)(p, b)))
    return F.vmap(F.vmap(kernel, (None, 0)), (0, None))(x, x)


@case
def neural_tangent_kernel(T, F):
    p = mlp(T)
    one = lambda x: F.jacrev(lambda q: run_mlp(T, q, x))(p)
    j = F.vmap(one)(data(T, 4, 3))
    return sum(T.einsum("naf,mbf->nmab", a.flatten(2), a.flatten(2)) for a in j)


@case
def gradient_of_mapped_gradient(T, F):
    x = data(T, 4)
    inner = lambda w: F.vmap(F.grad(lambda v: (v * w) ** 3))(x).sum()
    return F.grad(inner)(data(T, seed=1)), F.hessian(inner)(data(T, seed=1))


@case
def captured_parameter_gets_a_gradient_for_each_example(T, F):
    w = data(T, 3)
    return F.vmap(lambda x: F.grad(lambda v: (v * x).sin().sum())(w))(data(T, 4, 3, seed=1))


# ---- autograd
@case
def batched_cotangents(T, F):
    x, y = data(T, 3).requires_grad_(), data(T, 2).requires_grad_()
    out = T.outer(x.exp(), y)
    rows = data(T, 5, 3, 2, seed=1)
    return T.autograd.grad(out, (x, y), rows, is_grads_batched=True)


@case
def batched_cotangents_with_history(T, F):
    x = data(T, 3).requires_grad_()
    (g,) = T.autograd.grad(x**3, x, T.eye(3, dtype=T.float64), is_grads_batched=True, create_graph=True)
    return g, T.autograd.grad(g.sum(), x)[0]


@case
def duals_by_hand(T, F):
    A = T.autograd.forward_ad
    with A.dual_level():
        x = A.make_dual(data(T, 3), data(T, 3, seed=1))
        y = A.unpack_dual(x.sin() * x.sum())
        none = A.unpack_dual(data(T, 3))
    after = A.unpack_dual(x)
    return y.primal, y.tangent, float(none.tangent is None), float(after.tangent is None)


@case
def duals_with_backward(T, F):
    A = T.autograd.forward_ad
    w = data(T, 3).requires_grad_()
    with A.dual_level():
        y = A.unpack_dual((A.make_dual(w, data(T, 3, seed=1)) ** 3).sum())
        return y.tangent, T.autograd.grad(y.tangent, w)[0]


@case
def functional_derivatives(T, F):
    A = T.autograd.functional
    f = lambda x: (x**3).sum()
    g = lambda x: x.sin() * x.sum()
    x, v = data(T, 3), data(T, 3, seed=1)
    return [
        A.jacobian(g, x), A.jacobian(g, x, vectorize=True), A.hessian(f, x), A.vjp(g, x, v), A.jvp(g, x, v),
        A.hvp(f, x, v), A.vhp(f, x, v),
        A.jacobian(g, x, vectorize=True, strategy="forward-mode"),
    ]  # fmt: skip


def into_a_part(T, x):
    o = T.zeros(3, dtype=x.dtype)
    part = o[:2]
    o[0] = x[0] * 2
    part[1] += x[1]
    return o, part * 3, o.sum()


def into_a_row(T, x):
    o = T.zeros(2, 3, dtype=x.dtype)
    row = o[1]
    row += x
    o.mul_(x)
    o[0].copy_(x * x)
    return o, row


def over_again(T, x):
    o = T.ones(3, dtype=x.dtype)
    o.add_(x).mul_(2)
    before = o.clone()
    o.fill_(1.0)
    return before, o, before * o


def one_by_one(T, x):
    o = T.empty(3, dtype=x.dtype)
    for i in range(3):
        o[i] = x[i] ** 2 if i else x.sum()
    return o, o.detach()


def by_indices(T, x):
    o = T.zeros(3, dtype=x.dtype)
    o.index_add_(0, T.tensor([0, 2]), x[:2])
    o.masked_fill_(T.tensor([True, False, False]), x[1])
    return (o,)


@case
def writes_into_plain_tensors(T, F):
    A = T.autograd.forward_ad
    x, t = data(T, 3), data(T, 3, seed=1)
    found = []
    for write in (into_a_part, into_a_row, over_again, one_by_one, by_indices):
        found += [part for parts in F.jvp(lambda x, write=write: write(T, x), (x,), (t,)) for part in parts]
        with A.dual_level():
            for y in write(T, A.make_dual(x, t)):
                primal, tangent = A.unpack_dual(y)
                found += [primal, x * 0 if tangent is None else tangent]
    with A.dual_level():
        plain = T.zeros(3, dtype=x.dtype)
        plain.copy_(A.make_dual(x, t))
    return [*found, plain, plain * 2]


@case
def fills_and_shapes_in_place(T, F):
    x, t = data(T, 3), data(T, 3, seed=1)
    functions = (
        lambda x: x.clone().fill_(x[0]), lambda x: T.fill(x, x[1]), lambda x: x.clone().reshape(1, 3).t_(),
        lambda x: x.clone().unsqueeze_(0) * 2, lambda x: x.clone().masked_fill_(x > 0, x[0]),
        lambda x: T.zeros(3, dtype=x.dtype).fill_(x[2]),
    )  # fmt: skip
    found = [part for f in functions for part in F.jvp(f, (x,), (t,))]
    leaf = x.clone().requires_grad_()
    filled = T.fill(T.zeros(3, dtype=x.dtype), leaf[1])
    return [*found, F.vmap(lambda x: x.clone().reshape(1, 3).t_())(x.expand(2, 3)), filled.detach(),
            *T.autograd.grad(filled.sum(), leaf)]  # fmt: skip


def one_after_the_other(T, x, y):
    z = x.clone()
    z[1:].mul_(y[1:])
    z[:2].mul_(x[:2])
    z.div_(y + 2).pow_(2.0)
    return z


def from_ones(T, x, y):
    z = T.ones(3, dtype=x.dtype)
    z[1:].mul_(y[1:])
    z.mul_(x).sin_().mul_(y)
    return z


@case
def writes_over_what_backward_wants(T, F):
    x, y = data(T, 2, 3), data(T, 2, 3, seed=1)
    f, g = (lambda x, y, of=of: of(T, x, y).sum() for of in (one_after_the_other, from_ones))
    return [
        F.grad(lambda x, y: F.vmap(f)(x, y).sum(), (0, 1))(x, y), F.vmap(F.grad(f, (0, 1)))(x, y),
        F.vmap(F.jacrev(F.grad(f)))(x, y), F.vmap(F.hessian(f, (0, 1)))(x, y),
        F.hessian(f)(x[0], y[0]), F.hessian(g, (0, 1))(x[0], y[0]), F.jacrev(F.jacfwd(g))(x[0], y[0]),
    ]  # fmt: skip


@case
def indices_of_examples_that_are_numbers(T, F):
    x, s = data(T, 3), data(T, 3, 1, seed=1)
    one, each = T.tensor([0]), T.zeros(3, 1, dtype=T.int64)
    return [
        F.vmap(lambda x, i: x.gather(0, i))(x, T.zeros(3, 4, dtype=T.int64)),
        F.vmap(lambda x, i: x.gather(0, i), (0, None))(x, one),
        F.vmap(lambda x, i, s: x.index_add(0, i, s), (0, None, 0))(x, one, s),
        F.vmap(lambda x, i, s: x.index_copy(0, i, s), (0, None, 0))(x, one, s),
        F.vmap(lambda x, i: x.index_select(0, i), (0, None))(x, one),
        F.vmap(lambda x, i: x.index_select(0, i))(x, each),
        F.grad(lambda x: (F.vmap(lambda x, i: x.gather(0, i), (0, None))(x, one) ** 2).sum())(x),
    ]


@case
def arguments_by_name_are_whole_for_each(T, F):
    x, w = data(T, 3, 3), data(T, 3, 3, seed=1)
    f = lambda a, w=None, scale=1.0: (a * w).sum(-1) * scale
    return F.vmap(f)(x, w=w), F.vmap(f)(x, w=w[0], scale=2.0), F.vmap(f, chunk_size=2)(x, w=w)


@case
def jacobians_row_by_row(T, F):
    x = data(T, 3)
    parts = F.jacrev(lambda x: {"a": x.sin(), "b": (x[:2] ** 2, x.sum())}, chunk_size=1)(x)

    class Looks(T.autograd.Function):  # at values, which no vmap has
        @staticmethod
        def forward(x):
            return x * 2

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, g):
            return g * 2 * float(g.nonzero().shape[0])

    return parts, F.jacrev(Looks.apply, chunk_size=1)(x)


class Bag:
    """A container of a program's own, which enters and leaves vmap by functions put into PyTorch's."""

    def __init__(self, x):
        self.x = x


@case
def containers_by_functions_put_into_vmap(T, F):
    of = importlib.import_module(f"{T.__name__}._functorch.vmap")

    def process(in_dims, args, func):
        leaves, spec = of.tree_flatten(args)
        dims = of._broadcast_to_and_flatten(in_dims, spec)
        return leaves[0].x.size(dims[0]), dims, leaves, spec

    def enter(dims, leaves, level, spec):
        assert of._get_name(f) == "f"
        parts = [Bag(of._add_batch_dim(bag.x, dim, level)) for dim, bag in zip(dims, leaves, strict=True)]
        return of.tree_unflatten(parts, spec)

    def leave(out, out_dims, level, size, func):
        return Bag(of._maybe_remove_batch_dim("f", out.x, level, size, out_dims))

    def f(bag):
        assert bag.x.shape == (3,) and importlib.import_module(
            f"{T.__name__}._C"
        )._functorch.is_batchedtensor(bag.x)
        return Bag(bag.x * bag.x.sum())

    names = {"_process_batched_inputs": process, "_create_batched_inputs": enter, "_unwrap_batched": leave}
    kept = {name: getattr(of, name, None) for name in names}
    vars(of).update(names)
    try:
        return T.vmap(f, 1, out_dims=1)(Bag(data(T, 3, 2))).x
    finally:
        for name, value in kept.items():
            setattr(of, name, value) if value else delattr(of, name)


@case
def parameters_of_one_example(T, F):
    def f(x, w):
        weight = T.nn.Parameter(w)
        assert isinstance(weight, T.nn.Parameter) and weight.is_leaf
        return (weight @ x).detach()

    return T.vmap(f, (None, 0))(data(T, 3), data(T, 2, 3))


@pytest.mark.parametrize("name", CASES)
def test_func_agrees(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = CASES[name](torch, torch.func)
    found = CASES[name](lamina, lamina.func)
    found, wanted = arrays(found), arrays(wanted)
    assert len(found) == len(wanted)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype, f"{x.dtype}{x.shape}, not {y.dtype}{y.shape}"
        # sums of some hundred terms of the size of the largest, in float64; the float32 ones are products
        eps = np.finfo(y.dtype).eps if y.dtype.kind == "f" else 0
        np.testing.assert_allclose(x, y, rtol=500 * eps, atol=500 * eps * np.max(np.abs(y), initial=0))


# ---- what is refused
def refused(T, F):
    x = data(T, 3, 2)
    return {
        "item": lambda: F.vmap(lambda a: a.sum().item())(x),
        "if": lambda: F.vmap(lambda a: a if a.sum() > 0 else -a)(x),
        "no dims": lambda: F.vmap(lambda a: a, in_dims=None)(x),
        "all None": lambda: F.vmap(lambda a: a, in_dims=(None,))(x),
        "too many dims": lambda: F.vmap(lambda a: a, in_dims=(0, 0))(x),
        "dim out of range": lambda: F.vmap(lambda a: a, in_dims=2)(x),
        "sizes differ": lambda: F.vmap(lambda a, b: a)(x, data(T, 4)),
        "dim of a number": lambda: F.vmap(lambda a, b: a)(x, 2),
        "returns a number": lambda: F.vmap(lambda a: 3)(x),
        "out dim out of range": lambda: F.vmap(lambda a: a, out_dims=2)(x),
        "out dims do not fit": lambda: F.vmap(lambda a: (a, a), out_dims=(0, 0, 0))(x),
        "mapped result at None": lambda: F.vmap(lambda a: a, out_dims=None)(x),
        "random": lambda: F.vmap(lambda a: a + T.rand(2))(x),
        "randomness": lambda: F.vmap(lambda a: a, randomness="some")(x),
        "chunk": lambda: F.vmap(lambda a: a, chunk_size=0)(x),
        "write into unbatched": lambda: F.vmap(lambda a: T.zeros(2, dtype=T.float64).add_(a))(x),
        "nonzero": lambda: F.vmap(lambda a: a.nonzero())(x),
        "mask": lambda: F.vmap(lambda a: a[a > 0])(x),
        "grad of a vector": lambda: F.grad(lambda a: a)(x),
        "grad of a number": lambda: F.grad(lambda a: 3.0)(x),
        "grad by ints": lambda: F.grad(lambda a: a.sum().float())(T.arange(3)),
        "argnums": lambda: F.grad(lambda a: a.sum(), argnums=1)(x),
        "aux": lambda: F.grad(lambda a: a.sum(), has_aux=True)(x),
        "cotangent shape": lambda: F.vjp(lambda a: a, x)[1](data(T, 2)),
        "jvp tangents": lambda: F.jvp(lambda a: a, (x,), (data(T, 2),)),
        "jvp no tuple": lambda: F.jvp(lambda a: a, x, x),
        "jacrev of a number": lambda: F.jacrev(lambda a: 3)(x),
        "make_dual outside": lambda: T.autograd.forward_ad.make_dual(x, x),
        "functional_call twice": lambda: F.functional_call(
            T.nn.Linear(2, 2), ({"weight": x}, {"weight": x}), (x,)
        ),
        "functional_call strict": lambda: F.functional_call(T.nn.Linear(2, 2), {"w": x}, (x,), strict=True),
        "stack nothing": lambda: F.stack_module_state([]),
        "stack others": lambda: F.stack_module_state([T.nn.Linear(2, 2), T.nn.Tanh()]),
        "vmap of no function": lambda: F.vmap(3)(x),
    }


REFUSED = list(refused(SimpleNamespace(tensor=lambda *a, **k: None, float64=None), None))


@pytest.mark.parametrize("name", REFUSED)
def test_func_refuses_as_torch_does(name):
    with pytest.raises(Exception):  # noqa: B017 - of whatever class
        refused(torch, torch.func)[name]()
    with pytest.raises(lamina.LaminaError):
        refused(lamina, lamina.func)[name]()


def test_func_random_modes():
    for T in (torch, lamina):
        x = data(T, 3, 4)
        for draw in (
            lambda a: T.rand(4),
            lambda a: T.nn.functional.dropout(T.ones(64)),
            lambda a: T.randn_like(a),
            lambda a: T.bernoulli(T.full((64,), 0.5)),
            lambda a: T.randint(0, 1000, (8,)),
            lambda a: T.randperm(64),
        ):
            own = T.vmap(draw, randomness="different")(x)
            same = T.vmap(draw, randomness="same")(x)
            assert not bool((own[0] == own[1]).all()) and bool((same[0] == same[2]).all())
            assert own.shape == same.shape and own.shape[0] == 3
