"""Lazy modules, parametrizations, pruning, fusion and calls without state, against PyTorch's."""

import copy
import itertools
from importlib import import_module

import numpy as np
import pytest

import lamina
import lamina.nn as nn
from lamina.nn.utils import fusion, parametrizations, parametrize, prune, stateless  # noqa: F401

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")
for _name in ("parametrizations", "parametrize", "prune"):
    import_module(f"torch.nn.utils.{_name}")

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's, about lazy modules and its older functions

# Layers of up to 40 products of numbers about 1, a few of them in a row, in other orders: 1024 roundings.
TOLERANCE = 1024 * np.finfo(np.float64).eps
RNG = np.random.default_rng(0)


def pair(make):
    """A module of each library's, made by `make(nn, library)`, with Lamina's state."""
    mine, theirs = make(nn, lamina).double(), make(torch.nn, torch).double()
    assert repr(mine) == repr(theirs)
    give(mine, theirs)
    return mine, theirs


def give(mine, theirs):
    state = mine.state_dict()
    assert list(state) == list(theirs.state_dict())
    theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in state.items()})


def close(a, b, what=""):
    assert (a is None) == (b is None), what
    if a is not None:
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=TOLERANCE, atol=TOLERANCE, err_msg=what
        )


def agree(mine, theirs, *shape):
    """Outputs, gradients of the input and of the parameters, and the state afterwards."""
    x = RNG.normal(size=shape)
    a, b = lamina.tensor(x).requires_grad_(), torch.tensor(x).requires_grad_()
    mine.zero_grad()
    theirs.zero_grad()
    out, other = mine(a), theirs(b)
    close(out, other, "output")
    (out * out).sum().backward()
    (other * other).sum().backward()
    close(a.grad, b.grad, "input")
    for (k, p), (name, q) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
        assert k == name
        close(p.grad, q.grad, k)
    for (k, p), q in zip(mine.state_dict().items(), theirs.state_dict().values(), strict=True):
        close(p, q, k)


PARAMETRIZED = {
    "weight norm": (lambda u: u.weight_norm, {}),
    "weight norm of columns": (lambda u: u.weight_norm, {"dim": 1}),
    "weight norm whole": (lambda u: u.weight_norm, {"dim": None}),
    "spectral norm": (lambda u: u.spectral_norm, {"n_power_iterations": 2}),
    "spectral norm of columns": (lambda u: u.spectral_norm, {"dim": 1}),
    "cayley": (lambda u: u.orthogonal, {"orthogonal_map": "cayley"}),
    "householder": (lambda u: u.orthogonal, {"orthogonal_map": "householder"}),
    "householder plain": (
        lambda u: u.orthogonal,
        {"orthogonal_map": "householder", "use_trivialization": False},
    ),
}
if hasattr(lamina, "matrix_exp"):
    PARAMETRIZED["matrix_exp"] = (lambda u: u.orthogonal, {"orthogonal_map": "matrix_exp"})


@pytest.mark.parametrize("sizes", [(4, 3), (3, 4), (3, 3)])
@pytest.mark.parametrize("name", PARAMETRIZED)
def test_parametrizations(name, sizes):
    which, kwargs = PARAMETRIZED[name]
    weights = RNG.normal(size=sizes[::-1])

    def make(nn, library):
        layer = nn.Linear(*sizes).double()
        with library.no_grad():
            layer.weight.copy_(library.tensor(weights))
        return which(nn.utils.parametrizations)(layer, **kwargs)

    mine, theirs = make(nn, lamina), make(torch.nn, torch)
    assert repr(mine) == repr(theirs)
    if name in ("householder plain", "weight norm", "weight norm of columns", "weight norm whole"):
        close(mine.weight, theirs.weight)
    give(mine, theirs)
    for training in (True, True, False):
        mine.train(training)
        theirs.train(training)
        agree(mine, theirs, 5, sizes[0])
    value = np.linalg.qr(RNG.normal(size=sizes[::-1] if sizes[0] < sizes[1] else sizes))[0]
    value = value if value.shape == sizes[::-1] else np.ascontiguousarray(value.T)
    if value.shape == sizes[::-1] and name != "cayley":  # the base of a wide matrix is completed at random
        mine.weight, theirs.weight = lamina.tensor(value), torch.tensor(value)
        close(mine.weight, theirs.weight)
    parametrize.remove_parametrizations(mine, "weight")
    torch.nn.utils.parametrize.remove_parametrizations(theirs, "weight")
    assert repr(mine) == repr(theirs)
    close(mine.weight, theirs.weight)


PRUNED = {
    "identity": lambda p, m, library: p.identity(m, "weight"),
    "half by size": lambda p, m, library: p.l1_unstructured(m, "weight", 0.5),
    "seven by size": lambda p, m, library: p.l1_unstructured(m, "weight", amount=7),
    "rows": lambda p, m, library: p.ln_structured(m, "weight", 0.5, n=2, dim=0),
    "columns": lambda p, m, library: p.ln_structured(m, "weight", 2, n=1, dim=-1),
    "columns by the greatest": lambda p, m, library: p.ln_structured(m, "weight", 1, n=float("inf"), dim=1),
    "by a mask": lambda p, m, library: p.custom_from_mask(m, "weight", library.ones(4, 6).tril(2)),
    "by scores": lambda p, m, library: p.l1_unstructured(
        m, "weight", 5, importance_scores=library.arange(24.0).reshape(4, 6)
    ),
}


@pytest.mark.parametrize("names", [*zip(PRUNED), *itertools.permutations(PRUNED, 2)], ids=" then ".join)
def test_pruning(names):
    mine, theirs = pair(lambda nn, library: nn.Linear(6, 4))
    for name in names:
        PRUNED[name](prune, mine, lamina)
        PRUNED[name](torch.nn.utils.prune, theirs, torch)
    assert prune.is_pruned(mine) and torch.nn.utils.prune.is_pruned(theirs)
    agree(mine, theirs, 3, 6)
    prune.remove(mine, "weight")
    torch.nn.utils.prune.remove(theirs, "weight")
    agree(mine, theirs, 3, 6)
    assert not prune.is_pruned(mine)


def test_pruning_of_several_tensors():
    mine, theirs = pair(lambda nn, library: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)))
    for p, m in ((prune, mine), (torch.nn.utils.prune, theirs)):
        p.global_unstructured([(m[0], "weight"), (m[2], "weight")], p.L1Unstructured, amount=0.6)
        p.global_unstructured([(m[0], "weight"), (m[2], "weight")], p.L1Unstructured, amount=2)
    agree(mine, theirs, 5, 4)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
def test_fusion(transpose, bias, affine):
    def make(nn, library):
        conv = nn.ConvTranspose2d if transpose else nn.Conv2d
        return nn.Sequential(conv(3, 4, 2, bias=bias), nn.BatchNorm2d(4, affine=affine))

    mine, theirs = pair(make)
    agree(mine, theirs, 2, 3, 5, 5)  # makes statistics
    mine.eval(), theirs.eval()
    fused = nn.utils.fuse_conv_bn_eval(mine[0], mine[1], transpose)
    other = torch.nn.utils.fusion.fuse_conv_bn_eval(theirs[0], theirs[1], transpose)
    agree(fused, other, 2, 3, 5, 5)
    x = lamina.tensor(RNG.normal(size=(2, 3, 5, 5)))
    close(fused(x), mine(x))


def test_functional_call():
    mine, theirs = pair(lambda nn, library: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    given = {k: v.numpy().copy() + 1 for k, v in mine.state_dict().items()}
    x = RNG.normal(size=(4, 3))
    a = {k: lamina.tensor(v) for k, v in given.items()}
    b = {k: torch.tensor(v) for k, v in given.items()}
    close(
        stateless.functional_call(mine, a, (lamina.tensor(x),)),
        torch.func.functional_call(theirs, b, (torch.tensor(x),)),
    )
    for k in a:
        close(a[k], b[k], k)
    agree(mine, theirs, 4, 3)


LAZY = {
    "LazyLinear": ((5,), (2, 3)),
    "LazyConv1d": ((4, 2), (2, 3, 5)),
    "LazyConv2d": ((4, 2), (3, 5, 5)),
    "LazyConv3d": ((4, 2), (2, 3, 5, 5, 5)),
    "LazyConvTranspose1d": ((4, 2), (2, 3, 5)),
    "LazyConvTranspose2d": ((4, 2), (2, 3, 5, 5)),
    "LazyConvTranspose3d": ((4, 2), (2, 3, 2, 2, 2)),
    "LazyBatchNorm1d": ((), (4, 3)),
    "LazyBatchNorm2d": ((), (2, 3, 4, 4)),
    "LazyBatchNorm3d": ((1e-3, None), (2, 3, 2, 2, 2)),
    "LazyInstanceNorm1d": ((), (4, 3, 5)),
    "LazyInstanceNorm2d": ((1e-3, 0.2, False), (2, 3, 4, 4)),
    "LazyInstanceNorm3d": ((), (2, 3, 2, 2, 2)),
}


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("name", LAZY)
def test_lazy_modules(name, loaded):
    args, shape = LAZY[name]
    mine, theirs = getattr(nn, name)(*args).double(), getattr(torch.nn, name)(*args).double()
    assert repr(mine) == repr(theirs) and list(mine.state_dict()) == list(theirs.state_dict())
    x = np.zeros(shape) + RNG.normal(size=shape)
    with torch.no_grad(), lamina.no_grad():
        made = copy.deepcopy(mine)
        made(lamina.tensor(x))
        if loaded:
            mine.load_state_dict(made.state_dict())
        theirs(torch.tensor(x))
        mine(lamina.tensor(x))
    assert repr(mine) == repr(theirs)
    give(mine, theirs)
    agree(mine, theirs, *shape)


@pytest.mark.parametrize("sizes", [(7, 6), (5, 7, 6)])
def test_fractional_max_pool(sizes):
    n = len(sizes)
    x, drawn = RNG.normal(size=(2, 3, *sizes)), RNG.uniform(size=(2, 3, n))
    for extra in ({"output_size": (3,) * n}, {"output_ratio": 0.5}, {"output_size": (1,) * n}):
        results = []
        for nn_, library in ((nn, lamina), (torch.nn, torch)):
            pool = getattr(nn_, f"FractionalMaxPool{n}d")(
                2, **extra, return_indices=True, _random_samples=library.tensor(drawn)
            )
            image = library.tensor(x).requires_grad_()
            out, where = pool(image)
            (out * out).sum().backward()
            results.append((out, where, image.grad))
        for a, b in zip(*results, strict=True):
            close(a, b)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_cross_map_lrn(size):
    mine, theirs = pair(lambda nn, library: nn.CrossMapLRN2d(size, alpha=0.5, beta=0.7, k=1.5))
    x = RNG.normal(size=(2, 6, 3, 3))  # torch's gradient is not that of its forward: only that is compared
    close(mine(lamina.tensor(x)), theirs(torch.tensor(x)))


def test_functions_in_place_and_more():
    x = RNG.normal(size=(3, 4))
    for name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "selu_"):
        a, b = lamina.tensor(x), torch.tensor(x)
        assert getattr(nn.functional, name)(a) is a
        getattr(torch.nn.functional, name)(b)
        close(a, b, name)
    time, kernel, bias = RNG.normal(size=(6, 2, 3)), RNG.normal(size=(3, 3, 4)), RNG.normal(size=4)
    close(
        nn.functional.conv_tbc(*map(lamina.tensor, (time, kernel, bias)), 1),
        torch.nn.functional.conv_tbc(*map(torch.tensor, (time, kernel, bias)), 1),
    )
    image = RNG.normal(size=(1, 2, 6, 6))
    for name, args in {"max_pool2d": (2,), "adaptive_max_pool2d": (3,)}.items():
        for a, b in zip(
            getattr(nn.functional, name + "_with_indices")(lamina.tensor(image), *args),
            getattr(torch.nn.functional, name + "_with_indices")(torch.tensor(image), *args),
            strict=True,
        ):
            close(a, b, name)
