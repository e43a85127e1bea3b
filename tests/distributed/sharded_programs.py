"""Random programs of ops on DTensors, held to the same on whole tensors; run on several ranks by mpiexec.

    mpiexec -n 4 python sharded_programs.py 2,2 FIRST COUNT [traced]

A program draws leaves with random placements and ops on what there is; each result is compared, and the
gradients of all leaves at the end, in float64.  traced: each step is a traced function, called twice, whose
second call must be served.
"""

import random
import sys
import warnings

warnings.simplefilter("error")

import numpy as np  # noqa: E402

import lamina  # noqa: E402
import lamina.distributed as dist  # noqa: E402
import lamina.nn.functional as F  # noqa: E402
from lamina import jit  # noqa: E402
from lamina.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor  # noqa: E402

f64 = lamina.float64
TRACED = len(sys.argv) > 4
UNSERVED = ("a generator was seeded",)  # what a step may be refused for


class Program:
    """Values, each as a whole tensor and as a DTensor, and the ops that made them."""

    def __init__(self, seed, mesh):
        self.rng, self.mesh, self.seed = random.Random(seed), mesh, seed
        self.arrays = np.random.default_rng(seed)
        self.leaves, self.values, self.said = [], [], []

    def placements(self, ndim, partial=False):
        kinds = [Replicate(), *[Shard(d) for d in range(ndim)]] + [Partial()] * partial
        return [self.rng.choice(kinds) for _ in range(self.mesh.ndim)]

    def leaf(self, *shape):
        whole = lamina.tensor(self.arrays.standard_normal(shape), requires_grad=True)
        places = self.placements(len(shape))
        own = distribute_tensor(whole.detach().clone().requires_grad_(), self.mesh, places)
        self.said.append(f"leaf {shape} {places}")
        self.leaves.append((whole, own))
        return whole, own

    def partial_leaf(self, *shape):
        """What all ranks' tensors add up to."""
        every = self.arrays.standard_normal((self.mesh.size(), *shape))
        mine = lamina.tensor(every[dist.get_rank()])
        whole = lamina.tensor(every.sum(0))
        own = DTensor.from_local(mine, self.mesh, [Partial()] * self.mesh.ndim)
        self.said.append(f"partial {shape}")
        return whole, own

    def whole_numbers(self, high, *shape):
        whole = lamina.tensor(self.arrays.integers(0, high, shape))
        return whole, distribute_tensor(whole.clone(), self.mesh, self.placements(len(shape)))

    def pick(self, least=0):
        fits = [v for v in self.values if v[0].ndim >= least]
        return self.rng.choice(fits) if fits else self.leaf(*self.shape(least))

    def shape(self, least=0):
        return [self.rng.choice([1, 2, 3, 4, 4, 5, 8]) for _ in range(self.rng.randint(least, 3))]

    def check(self, name, whole, own):
        with lamina.no_grad():
            found = own.detach().full_tensor()
        said = f"seed {self.seed}, mesh {self.mesh.shape}: {name}\n" + "\n".join(self.said)
        assert tuple(own.shape) == tuple(whole.shape), said
        assert np.allclose(found.numpy(), whole.detach().numpy(), rtol=1e-9, atol=1e-9, equal_nan=True), said

    def step(self):
        name = self.rng.choice(NAMES)
        made = STEPS[name](self)
        if made is None:
            return
        (whole, own), note = made[:2], made[2:]
        self.said.append(f"{name} {note} -> {tuple(whole.shape)} {own.placements}")
        self.check(name, whole, own)
        usable = whole.dtype is f64 and bool(whole.isfinite().all())  # a mean over no examples is nan
        if whole.numel() <= 600 and usable:
            self.values.append((whole, own))

    def finish(self):
        total = whole_total = 0
        for whole, own in self.values:
            weight = self.arrays.standard_normal(whole.shape)
            placed = distribute_tensor(lamina.tensor(weight), self.mesh, self.placements(whole.ndim))
            whole_total = whole_total + (whole * lamina.tensor(weight)).sum()
            total = total + (own * placed).sum()
        if not self.leaves or not isinstance(total, lamina.Tensor) or not whole_total.requires_grad:
            return
        twice = self.rng.random() < 0.2
        if twice:  # second order: the gradient of the gradients' sum of squares
            whole_total = squares(whole_total, [w for w, _ in self.leaves])
            total = squares(total, [o for _, o in self.leaves])
            if not whole_total.requires_grad:
                return
        whole_total.backward()
        total.backward()
        for i, (whole, own) in enumerate(self.leaves):
            said = f"seed {self.seed}, mesh {self.mesh.shape}: gradient of leaf {i}\n" + "\n".join(self.said)
            if whole.grad is None:
                assert own.grad is None or float(own.grad.abs().max()) == 0, said
                continue
            assert own.grad is not None, said
            assert own.grad.placements == own.placements, said
            scale = max(1.0, float(whole.grad.abs().max()))
            assert np.allclose(
                own.grad.full_tensor().numpy(), whole.grad.numpy(), rtol=1e-8, atol=1e-9 * scale
            ), said


def squares(total, leaves):
    grads = lamina.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    return sum((g * g).sum() for g in grads if g is not None)


def both(function, *given):
    """The same of the wholes, and of the DTensors."""
    run = traced(function) if TRACED else function
    return function(*[w for w, _ in given]), run(*[o for _, o in given])


def traced(function):
    def run(*own):
        plain, f = function(*own), jit.trace(function, budget=None)
        f(*own)
        found = f(*own)
        why = str(f.explain())
        assert f.counts()["served"] == 1 or any(reason in why for reason in UNSERVED), why
        assert type(found) is type(plain)
        if isinstance(plain, DTensor):
            assert found.form == plain.form and found.requires_grad == plain.requires_grad
        return found

    return run


def unary(function, least=0):
    return lambda p: both(function, p.pick(least))


def along(function, least=1):
    def step(p):
        x = p.pick(least)
        d = p.rng.randrange(-x[0].ndim, x[0].ndim)
        return (*both(lambda y: function(y, d), x), d)

    return step


def binary(function):
    def step(p):
        x, y = p.pick(), p.pick()
        try:
            np.broadcast_shapes(tuple(x[0].shape), tuple(y[0].shape))
        except ValueError:
            y = p.leaf(*x[0].shape[p.rng.randint(0, x[0].ndim) :])
        return both(function, x, y)

    return step


def matmul(p):
    x = p.pick(1)
    n = p.rng.choice([1, 3, 4, 6])
    lead = x[0].shape[:-2] if x[0].ndim > 2 and p.rng.random() < 0.3 else ()
    w = p.leaf(*lead, x[0].shape[-1], n) if x[0].ndim > 1 or p.rng.random() < 0.7 else p.leaf(x[0].shape[-1])
    return both(lambda a, b: a @ b, x, w)


def linear(p):
    x = p.pick(1)
    n = p.rng.choice([1, 3, 4, 6])
    w, b = p.leaf(n, x[0].shape[-1]), p.leaf(n)
    return both(F.linear, x, w, b) if p.rng.random() < 0.7 else both(F.linear, x, w)


def embedding(p):
    rows = p.rng.choice([3, 5, 8])
    shape = [p.rng.choice([1, 2, 4, 5]) for _ in range(p.rng.randint(1, 2))]
    index, w = p.whole_numbers(rows, *shape), p.leaf(rows, p.rng.choice([2, 4, 5]))
    pad = p.rng.choice([None, 0, rows - 1])
    return (*both(lambda i, t: F.embedding(i, t, padding_idx=pad), index, w), pad)


def cross_entropy(p):
    x = p.leaf(p.rng.choice([2, 4, 5]), p.rng.choice([3, 4]), *p.rng.choice([[], [2], [3]]))
    t = p.whole_numbers(x[0].shape[1], x[0].shape[0], *x[0].shape[2:])
    how = p.rng.choice(["mean", "sum", "none"])
    smooth, ignore = p.rng.choice([0.0, 0.1]), p.rng.choice([-100, 1])
    return (*both(
        lambda a, b: F.cross_entropy(a, b, reduction=how, label_smoothing=smooth, ignore_index=ignore), x, t
    ), how, smooth, ignore)  # fmt: skip


def layer_norm(p):
    x = p.pick(1)
    n = x[0].shape[-1]
    return both(lambda y, w, b: F.layer_norm(y, (n,), w, b), x, p.leaf(n), p.leaf(n))


def rms_norm(p):
    x = p.pick(1)
    n = x[0].shape[-1]
    return both(lambda y, w: F.rms_norm(y, (n,), w), x, p.leaf(n))


def reshape(p):
    x = p.pick()
    sizes, rest = [], x[0].numel()
    while rest > 1 and len(sizes) < 3:
        n = p.rng.choice([k for k in range(1, rest + 1) if rest % k == 0])
        sizes.append(n)
        rest //= n
    sizes.append(rest)
    return (*both(lambda y: y.reshape(sizes), x), sizes)


def permute(p):
    x = p.pick(1)
    dims = p.rng.sample(range(x[0].ndim), x[0].ndim)
    return (*both(lambda y: y.permute(dims), x), dims)


def narrow(p):
    x = p.pick(1)
    d = p.rng.randrange(x[0].ndim)
    n = x[0].shape[d]
    begin = p.rng.randint(0, n - 1)
    length = p.rng.randint(1, n - begin)
    return (*both(lambda y: y.narrow(d, begin, length), x), d, begin, length)


def indexed(p):
    x = p.pick(1)
    d = p.rng.randrange(x[0].ndim)
    index = p.whole_numbers(x[0].shape[d], p.rng.choice([1, 3, 4]))
    if p.rng.random() < 0.5:
        return (*both(lambda y, i: y.index_select(d, i), x, index), d)
    return (*both(lambda y, i: y[(slice(None),) * d + (i,)], x, index), d)


def gathered(p):
    x = p.pick(1)
    d = p.rng.randrange(x[0].ndim)
    index = p.whole_numbers(x[0].shape[d], *x[0].shape)
    return (*both(lambda y, i: y.gather(d, i), x, index), d)


def joined(p):
    x = p.pick(1)
    y = p.leaf(*x[0].shape)
    d = p.rng.randrange(x[0].ndim)
    f = p.rng.choice([lamina.cat, lamina.stack])
    return (*both(lambda a, b: f([a, b, a], d), x, y), f.__name__, d)


def expanded(p):
    x = p.pick()
    sizes = [2, *[3 if n == 1 else n for n in x[0].shape]]
    return both(lambda y: y.expand(sizes), x)


def redistributed(p):
    x = p.pick()
    places = p.placements(x[0].ndim)
    return x[0], x[1].redistribute(placements=places), str(places)


def partial(p):
    return p.partial_leaf(*p.shape())


def attention(p):
    b, h, n, e = p.rng.choice([1, 2, 4]), p.rng.choice([2, 4]), p.rng.choice([3, 4]), 4
    q, k, v = (p.leaf(b, h, n, e) for _ in range(3))
    causal = p.rng.random() < 0.5
    return both(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal), q, k, v)


def in_place(p):
    x = p.pick()
    y = p.leaf(*x[0].shape)
    name = p.rng.choice(["add_", "mul_", "sub_", "copy_"])

    def apply(a, b):
        a = a.clone()
        getattr(a, name)(b)
        return a.relu_() if name == "mul_" else a

    return (*both(apply, x, y), name)


def written_view(p):
    x = p.pick(1)

    def apply(a):
        a = a.clone()
        a.transpose(0, -1).mul_(2.0)
        return a

    return both(apply, x)


def dropped(p):
    x = p.pick()

    def apply(y):
        lamina.manual_seed(p.seed)
        return F.dropout(y, 0.4)

    return both(apply, x)


def convolved(p):
    x, w, b = p.leaf(p.rng.choice([2, 4]), 3, 6), p.leaf(4, 3, 3), p.leaf(4)
    return both(lambda x, w, b: F.conv1d(x, w, b, padding=1), x, w, b)


def turned(p):
    """Pairs as complex numbers, times others, as rotary embeddings are."""
    n, k = p.rng.choice([2, 3, 4]), p.rng.choice([2, 4])
    x, angle = p.leaf(n, k, 4), p.leaf(n, 1, 2)

    def apply(y, a):
        z = lamina.view_as_complex(y.reshape(*y.shape[:-1], -1, 2)) * lamina.polar(lamina.ones_like(a), a)
        return lamina.view_as_real(z).flatten(2)

    return both(apply, x, angle)


def mixed_scalar(p):
    x = p.pick()
    c = lamina.tensor(1.5, dtype=f64)
    return both(lambda y: (y * c + 2) / 3 - c, x)


STEPS = {
    "relu": unary(lambda x: x.relu()), "tanh": unary(lambda x: x.tanh()), "sin": unary(lambda x: x.sin()),
    "neg": unary(lambda x: -x), "clone": unary(lambda x: x.clone()), "gelu": unary(lambda x: F.gelu(x)),
    "like": unary(lambda x: lamina.ones_like(x) * x), "rounded": unary(lambda x: x.detach().float().double()),
    "sum_all": unary(lambda x: x.sum()), "mean_all": unary(lambda x: x.mean()),
    "norm": unary(lambda x: (x * x + 1).norm()), "max": unary(lambda x: x.max()),
    "sum": along(lambda x, d: x.sum(d)), "sum_keep": along(lambda x, d: x.sum(d, keepdim=True)),
    "mean": along(lambda x, d: x.mean(d)), "amax": along(lambda x, d: x.amax(d, keepdim=True)),
    "max_dim": along(lambda x, d: x.max(d).values), "sort": along(lambda x, d: x.sort(d).values),
    "softmax": along(lambda x, d: x.softmax(d)), "log_softmax": along(lambda x, d: x.log_softmax(d)),
    "cumsum": along(lambda x, d: x.cumsum(d)), "logsumexp": along(lambda x, d: x.logsumexp(d)),
    "var": along(lambda x, d: x.var(d, correction=0)), "flip": along(lambda x, d: x.flip(d)),
    "select": along(lambda x, d: x.select(d, -1)), "unsqueeze": along(lambda x, d: x.unsqueeze(d)),
    "transpose": along(lambda x, d: x.transpose(0, d)), "squeeze": along(lambda x, d: x.squeeze(d)),
    "chunk": along(lambda x, d: x.chunk(2, d)[0]), "pad": along(lambda x, d: F.pad(x, (1, 0))),
    "flatten": unary(lambda x: x.flatten()), "tril": unary(lambda x: x.tril(), 2),
    "add": binary(lambda x, y: x + y), "sub": binary(lambda x, y: x - y), "mul": binary(lambda x, y: x * y),
    "div": binary(lambda x, y: x / (1 + y * y)), "maximum": binary(lamina.maximum),
    "where": binary(lambda x, y: lamina.where(x > y, x, y)), "lerp": binary(lambda x, y: x.lerp(y, 0.3)),
    "masked": binary(lambda x, y: (x + y).masked_fill(x + y > 1, 0.5)),
    "matmul": matmul, "linear": linear, "embedding": embedding, "cross_entropy": cross_entropy,
    "layer_norm": layer_norm, "rms_norm": rms_norm, "reshape": reshape, "permute": permute, "narrow": narrow,
    "index": indexed, "gather": gathered, "join": joined, "expand": expanded, "redistribute": redistributed,
    "partial": partial, "attention": attention, "in_place": in_place, "written_view": written_view,
    "dropout": dropped, "conv1d": convolved, "turned": turned, "scalar": mixed_scalar,
    "einsum": lambda p: both(lambda a, b: lamina.einsum("ij,kj->ki", a, b), p.leaf(4, 3), p.leaf(5, 3)),
}  # fmt: skip
NAMES = list(STEPS)


def main(shape, first, count, steps=8):
    mesh = dist.init_device_mesh("cpu", shape)
    for seed in range(first, first + count):
        program = Program(seed, mesh)
        program.values = [program.leaf(*program.shape(1)) for _ in range(2)]
        for _ in range(steps):
            program.step()
        program.finish()
    print(f"{count} programs agree")


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1].split(","))), *map(int, sys.argv[2:4]))
