"""Sparse tensors beside PyTorch's: results to the places and layouts, gradients, printing, refusals."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="compares with PyTorch")

import lamina  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # of betas and dense backwards
DENSE = np.random.default_rng(0).normal(size=(3, 4, 2))
COO = {  # indices, values, size
    "s": ([[0, 0, 1, 2], [1, 3, 0, 2]], [1.5, -2.0, 0.5, 3.0], (3, 4)),
    "p": ([[0, 1, 1, 2], [1, 0, 2, 3]], [0.25, 0.5, 2.0, 1.5], (3, 4)),
    "u": ([[2, 0, 2, 1], [3, 1, 3, 0]], [1.0, 2.0, -0.5, 4.0], (3, 4)),
    "q": ([[0, 1, 3, 3], [1, 0, 2, 0]], [1.0, 2.0, -0.5, 4.0], (4, 3)),
    "h": ([[2, 0, 2], [3, 1, 3]], DENSE[:, 0, :].tolist(), (3, 4, 2)),
    "v": ([[3, 1]], [2.0, -1.0], (4,)),
    "b": ([[0, 1, 1], [2, 0, 1], [1, 3, 3]], [2.0, -1.0, 3.0], (2, 3, 4)),
    "e": (np.zeros((2, 0), int).tolist(), [], (3, 4)),
}


class Given:
    """The operands of a program in one framework, leaves that require gradients."""

    def __init__(self, t):
        self.t = t
        made = {k: t.sparse_coo_tensor(t.tensor(i, dtype=t.int64), t.tensor(v, dtype=t.float64), n)
                for k, (i, v, n) in COO.items()}  # fmt: skip
        made |= {k: made[k].coalesce() for k in "spqb"}
        made |= {
            "r": made["s"].to_sparse_csr(),
            "r2": made["q"].to_sparse_csr(),
            "c": made["p"].to_sparse_csc(),
        }
        for name, shape in (
            ("d", (3, 4)),
            ("m", (4, 5)),
            ("n", (5, 3)),
            ("w", (4,)),
            ("d3", (3, 4, 2)),
            ("b3", (2, 4, 5)),
        ):
            flat = np.random.default_rng(len(name)).normal(size=int(np.prod(shape)))
            made[name] = t.tensor(flat.reshape(shape))
        self.leaves = {k: x.detach().requires_grad_() for k, x in made.items()}

    def __getattr__(self, name):
        return self.leaves[name]


UNARY = (
    "abs asin asinh atan atanh ceil erf erfinv expm1 floor frac isinf isnan isneginf isposinf log1p neg relu "
    "round sgn sign signbit sin sinh sqrt square tan tanh trunc deg2rad rad2deg negative absolute"
).split()
UNDIFFERENTIATED = {"erfinv", "asin", "atanh"}  # outside of their domain
SPARSE = (*COO, "r", "r2", "c")
NOT_FOLLOWED = frozenset()
CASES = {
    **{f"{f} {k}": (lambda t, g, f=f, k=k: getattr(t, f)(getattr(g, k))) for f in UNARY for k in "suh"},
    **{
        f"{f} csr": (lambda t, g, f=f: getattr(t, f)(g.r))
        for f in ("abs", "sin", "sqrt", "neg", "relu", "tanh")
    },
    "to_dense": lambda t, g: g.u.to_dense(),
    "to_dense hybrid": lambda t, g: g.h.to_dense(),
    "to_dense csr": lambda t, g: g.r.to_dense(),
    "to_dense csc": lambda t, g: g.c.to_dense(),
    "to_sparse": lambda t, g: g.d.relu().to_sparse(),
    "to_sparse 1": lambda t, g: g.d.to_sparse(1),
    "to_sparse 2 of 3": lambda t, g: g.d3.to_sparse(2),
    "to_sparse csr": lambda t, g: g.d.relu().to_sparse_csr(),
    "to_sparse csc": lambda t, g: g.d.relu().to_sparse_csc(),
    "to_sparse layout": lambda t, g: g.d.to_sparse(layout=t.sparse_csr),
    "coo to csr": lambda t, g: g.s.to_sparse_csr(),
    "csr to coo": lambda t, g: g.r.to_sparse_coo(),
    "csr to csc": lambda t, g: g.r.to_sparse_csc(),
    "csc to csr": lambda t, g: g.c.to_sparse_csr(),
    "coalesce": lambda t, g: g.u.coalesce(),
    "coalesce hybrid": lambda t, g: g.h.coalesce(),
    "values": lambda t, g: g.s.values() * 2,
    "values uncoalesced": lambda t, g: g.u.coalesce().values() ** 2,
    "values csr": lambda t, g: g.r.values() * 2,
    "indices": lambda t, g: g.s.indices(),
    "crow": lambda t, g: g.r.crow_indices(),
    "col": lambda t, g: g.r.col_indices(),
    "add": lambda t, g: g.s + g.p,
    "add uncoalesced": lambda t, g: (g.u + g.s).coalesce(),
    "add alpha": lambda t, g: t.add(g.s, g.p, alpha=3),
    "add empty": lambda t, g: (g.s + g.e).coalesce(),
    "sub": lambda t, g: g.s - g.p,
    "add dense": lambda t, g: g.d + g.s,
    "add dense uncoalesced": lambda t, g: g.d + g.u,
    "add csr": lambda t, g: g.r + g.r,
    "mul number": lambda t, g: g.u * 3,
    "rmul number": lambda t, g: 3 * g.s,
    "mul": lambda t, g: (g.s * g.p).coalesce(),
    "mul dense": lambda t, g: g.s * g.d,
    "mul row": lambda t, g: g.s * g.w,
    "mul column": lambda t, g: g.d[:, :1] * g.s,
    "index_select from the end": lambda t, g: g.s.index_select(1, t.tensor([-1, 0, -3])),
    "div number": lambda t, g: g.s / 4,
    "mul csr number": lambda t, g: g.r * 2.5,
    "pow": lambda t, g: g.s**2,
    "transpose": lambda t, g: g.s.transpose(0, 1).coalesce(),
    "t": lambda t, g: g.u.t().coalesce(),
    "transpose dense dims": lambda t, g: g.b.transpose(1, 2).coalesce(),
    "permute": lambda t, g: g.b.permute(2, 0, 1).coalesce(),
    "unsqueeze": lambda t, g: g.s.unsqueeze(1),
    "unsqueeze last": lambda t, g: g.h.unsqueeze(3),
    "select": lambda t, g: g.s.select(0, 1),
    "select 1": lambda t, g: g.u.select(1, 3).coalesce(),
    "select dense": lambda t, g: g.h.select(2, 1),
    "select vector": lambda t, g: g.v[3],
    "index 0": lambda t, g: g.b[1],
    "narrow": lambda t, g: g.s.narrow_copy(1, 1, 2).coalesce(),
    "index_select": lambda t, g: g.s.index_select(0, t.tensor([2, 0, 0])).coalesce(),
    "index_select 1": lambda t, g: g.u.index_select(1, t.tensor([3, 1])).coalesce(),
    "index_select dense": lambda t, g: g.h.index_select(2, t.tensor([1, 0, 1])),
    "cat": lambda t, g: t.cat([g.s, g.p]).coalesce(),
    "cat 1": lambda t, g: t.cat([g.s, g.u], 1).coalesce(),
    "stack": lambda t, g: t.stack([g.s, g.p], 0).coalesce(),
    "stack 2": lambda t, g: t.stack([g.s, g.p], 2).coalesce(),
    "sum": lambda t, g: g.u.sum(),
    "sum csr": lambda t, g: g.r.sum(),
    "sum hybrid": lambda t, g: t.sum(g.h),
    "sparse.sum": lambda t, g: t.sparse.sum(g.u),
    "sparse.sum 0": lambda t, g: t.sparse.sum(g.u, 0),
    "sparse.sum 1": lambda t, g: t.sparse.sum(g.s, 1),
    "sparse.sum both": lambda t, g: t.sparse.sum(g.s, (0, 1)),
    "sparse.sum hybrid": lambda t, g: t.sparse.sum(g.h, [0, 2]),
    "sparse.sum sparse dims": lambda t, g: t.sparse.sum(g.h, [0, 1]),
    "mm": lambda t, g: t.sparse.mm(g.u, g.m),
    "mm operator": lambda t, g: g.s @ g.m,
    "mm csr": lambda t, g: g.r @ g.m,
    "mm csc": lambda t, g: g.c @ g.m,
    "mm dense csr": lambda t, g: g.n @ g.r,
    "torch.mm": lambda t, g: t.mm(g.s, g.m),
    "matmul": lambda t, g: t.matmul(g.s, g.m),
    "mm sparse": lambda t, g: t.sparse.mm(g.s, g.q).coalesce(),
    "mm csr csr": lambda t, g: g.r.detach() @ g.r2.detach(),
    "mv": lambda t, g: g.s.mv(g.w),
    "mv csr": lambda t, g: g.r @ g.w,
    "bmm": lambda t, g: t.bmm(g.b, g.b3),
    "addmm": lambda t, g: t.sparse.addmm(t.ones(3, 5, dtype=t.float64), g.s, g.m, beta=2, alpha=3),
    "torch.addmm": lambda t, g: t.addmm(g.n.t(), g.s, g.m, beta=0.5),
    "torch.addmm csr": lambda t, g: t.addmm(g.n.t(), g.r, g.m),
    "linear": lambda t, g: t.nn.functional.linear(g.d, g.s),
    "sampled_addmm": lambda t, g: t.sparse.sampled_addmm(g.r, g.n.t(), g.m.t(), beta=0.5, alpha=2),
    **{
        f"mm reduce {how}": (lambda t, g, how=how: t.sparse.mm(g.r, g.m, how))
        for how in ("sum", "mean", "amax", "amin", "max", "min")
    },
    **{
        f"softmax {k} {d}": (lambda t, g, k=k, d=d: t.sparse.softmax(getattr(g, k), d))
        for k in "suh"
        for d in (0, 1)
    },
    **{
        f"log_softmax {k} {d}": (lambda t, g, k=k, d=d: t.sparse.log_softmax(getattr(g, k), d))
        for k in "suhb"
        for d in (0, 1)
    },
    "sparse_mask": lambda t, g: g.d.sparse_mask(g.s.detach()),
    "sparse_mask sparse": lambda t, g: g.p.sparse_mask(g.s.detach()),
    "sparse_mask hybrid": lambda t, g: g.d3.sparse_mask(g.h.detach().coalesce()),
    "from values": lambda t, g: t.sparse_coo_tensor([[0, 2, 3, 1]], g.w, (5,)),
    "csr from values": lambda t, g: t.sparse_csr_tensor([0, 2, 4], [0, 2, 1, 3], g.w, (2, 4)),
    "csc from values": lambda t, g: t.sparse_csc_tensor([0, 2, 4], [0, 2, 1, 3], g.w, (4, 2)),
    "compressed": lambda t, g: t.sparse_compressed_tensor(
        [0, 2, 4], [0, 2, 1, 3], g.w, (2, 4), layout=t.sparse_csr
    ),
    "clone": lambda t, g: g.u.clone(),
    "detach": lambda t, g: g.u.detach(),
    "float": lambda t, g: g.s.float(),
    "to": lambda t, g: g.r.to(t.float32),
    "zeros_like": lambda t, g: t.zeros_like(g.s),
    "zeros": lambda t, g: t.zeros(2, 3, layout=t.sparse_coo),
    "zeros csr": lambda t, g: t.zeros(2, 3, layout=t.sparse_csr),
    "empty size": lambda t, g: t.sparse_coo_tensor((2, 3), dtype=t.float64),
    "empty size by name": lambda t, g: t.sparse_coo_tensor(size=(2, 3), dtype=t.float64),
    "size inferred": lambda t, g: t.sparse_coo_tensor([[0, 2], [1, 4]], [1.0, 2.0]),
    "norm": lambda t, g: g.s.norm(),
    "spdiags": lambda t, g: t.sparse.spdiags(g.d.detach(), t.tensor([0, -1, 2]), (4, 4)),
    "spdiags csr": lambda t, g: t.sparse.spdiags(
        g.d.detach(), t.tensor([0, -1, 2]), (5, 4), layout=t.sparse_csr
    ),
    "hspmm": lambda t, g: t.hspmm(g.s.detach(), g.m.detach()),
    "smm": lambda t, g: t.smm(g.s.detach(), g.m.detach()).coalesce(),
    "second use": lambda t, g: (g.s.sin() * 2 + g.p).coalesce(),
    "chain": lambda t, g: (g.s.to_dense().sin() @ g.m).tanh(),
}


def parts(x):
    """What there is to compare of a result: names -> arrays and plain values."""
    layout = str(x.layout).rpartition(".")[2]
    found = {"layout": layout, "shape": tuple(x.shape), "dtype": str(x.dtype).rpartition(".")[2]}
    x = x.detach()
    if layout == "strided":
        return found | {"values": x.numpy()}
    if layout == "sparse_coo":
        found["coalesced"] = x.is_coalesced()
        if not x.is_coalesced():
            x = x.coalesce()
        return found | {"indices": x.indices().numpy(), "values": x.values().numpy()}
    names = ("crow_indices", "col_indices") if layout == "sparse_csr" else ("ccol_indices", "row_indices")
    return found | {name: getattr(x, name)().numpy() for name in names} | {"values": x.values().numpy()}


def assert_same(mine, theirs):
    mine, theirs = parts(mine), parts(theirs)
    assert mine.keys() == theirs.keys()
    for name, value in theirs.items():
        if name == "coalesced":
            assert mine[name] or not value  # some of PyTorch's don't notice that they are
            continue
        if isinstance(value, np.ndarray):
            # sums of fewer than eight products, and functions, of numbers below 10: a few roundings
            np.testing.assert_allclose(
                mine[name], value, rtol=1e-12 if value.dtype == np.float64 else 1e-6, atol=1e-12
            )
        else:
            assert mine[name] == value, name


def backward(t, y):
    """Go back from a result; False where PyTorch can't."""
    weights = np.random.default_rng(7).normal(size=tuple(y.shape))
    try:
        dense = y.to_dense() if str(y.layout).rpartition(".")[2] != "strided" else y
        (dense * t.tensor(weights)).sum().backward()
    except RuntimeError:
        if t is lamina:
            raise
        return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_sparse_result_and_gradients_are_pytorchs(name):
    mine, theirs = Given(lamina), Given(torch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a, b = CASES[name](lamina, mine), CASES[name](torch, theirs)
    assert_same(a, b)
    assert a.requires_grad or not b.requires_grad or name in NOT_FOLLOWED
    if not a.requires_grad or name.split()[0] in UNDIFFERENTIATED:
        return
    backward(lamina, a)
    if not b.requires_grad or not backward(torch, b):
        return
    for key, leaf in theirs.leaves.items():
        got = mine.leaves[key].grad
        if leaf.grad is None or got is None:
            assert got is None and (leaf.grad is None or not leaf.grad.to_dense().numel() or key == "e"), key
            continue
        want = leaf.grad.to_dense().numpy() * (held(mine.leaves[key]) if key in SPARSE else 1)
        np.testing.assert_allclose(got.to_dense().numpy(), want, rtol=1e-11, atol=1e-12, err_msg=key)
        assert (got.layout is not lamina.strided) == (key in SPARSE)


def held(x):
    """1 where a sparse tensor stores something.  Its gradient is that of what is stored, and has its places;
    PyTorch's is so for torch.sparse.mm, but dense for most other ops (mm, sum, add).
    """
    ones = lamina.ones_like(x._values())
    return (x.detach()._with(ones).to_dense() != 0).numpy()


# ---- printing, refusals, PyTorch's own samples -------------------------------------------------------------
@pytest.mark.parametrize("key", [*COO, "r", "c"])
def test_sparse_tensors_print_as_pytorchs(key):
    def text(t):
        x = getattr(Given(t), key)
        return "\n".join(map(repr, (x.detach(), x, x.detach().float())))

    assert text(lamina).replace("lamina.", "torch.") == text(torch)


REFUSED = {
    "values of dense": lambda t, s: t.eye(2).values(),
    "values of uncoalesced": lambda t, s: t.sparse_coo_tensor([[1, 1]], [1.0, 2.0]).values(),
    "crow of coo": lambda t, s: s.crow_indices(),
    "exp": lambda t, s: s.exp(),
    "eq": lambda t, s: s == s,
    "add number": lambda t, s: s + 1,
    "reshape": lambda t, s: s.reshape(-1),
    "numpy": lambda t, s: s.numpy(),
    "ones": lambda t, s: t.ones(2, 2, layout=t.sparse_coo),
    "dtypes": lambda t, s: s @ t.ones(4, dtype=t.float32),
    "sizes": lambda t, s: s @ t.ones(3, dtype=t.float64),
    "add sizes": lambda t, s: s + s.t(),
    "mixed transpose": lambda t, s: t.eye(3).to_sparse(1).transpose(0, 1),
    "in place on a leaf": lambda t, s: s.detach().requires_grad_().mul_(2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_refuses_of_sparse_tensors_is_refused(name):
    for t, kind in ((torch, (RuntimeError, TypeError)), (lamina, lamina.LaminaError)):
        with pytest.raises(kind):
            REFUSED[name](t, Given(t).s.detach())


def test_old_constructors_by_type_are_pytorchs():
    def program(t):
        places, values = t.tensor([[0, 1], [1, 0]]), t.ones(2, requires_grad=True)
        kind, size = t.sparse.FloatTensor, t.Size([3, 3])
        x = kind(places, values, size)
        y, dense = x.detach(), t.FloatTensor
        made = (
            x.requires_grad, y, kind(places, values).detach(), kind(size), kind(2, 3), kind(),
            kind(places, values.detach().double()),
            t.sparse.LongTensor(places, places[0]), y.new(places, values.detach()), y.new(2, 3),
            y.new(), y.new(size),
            y.type(t.sparse.DoubleTensor), values.detach().type("torch.sparse.DoubleTensor"),
        )  # fmt: skip
        names = y.type(), t.typename(y), y.double().type(), values.type()
        kinds = [isinstance(a, b) for a in (y, values) for b in (kind, dense, t.sparse.DoubleTensor)]
        told = [(k.is_sparse, k.is_cuda, str(k.layout)[-7:]) for k in (kind, dense)]
        refused = []
        for wrong in ((3.5,), ([1, 2],), ([[0], [1]], [1.0]), (y,)):
            try:
                kind(*wrong)
            except TypeError:
                refused.append(wrong)
        return repr((made, names, kinds, told, refused)).replace("lamina.", "torch.")

    assert program(lamina) == program(torch)


def converted(x):
    """A sample's argument as Lamina has it."""
    if isinstance(x, torch.layout):
        return getattr(lamina, str(x).rpartition(".")[2])
    if not isinstance(x, torch.Tensor):
        return x
    if x.layout == torch.sparse_csr:
        parts = x.crow_indices(), x.col_indices(), x.values()
        return lamina.sparse_csr_tensor(*map(converted, parts), tuple(x.shape))
    return lamina.tensor(x.detach().resolve_conj().numpy())


@pytest.mark.parametrize(
    ("name", "variant"), [("to_sparse", ""), ("sparse.sampled_addmm", ""), ("sparse.mm", "reduce")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_pytorchs_own_sparse_samples(name, variant, dtype):
    pytest.importorskip("expecttest", reason="the operator database asks for it: pip install lamina[peers]")
    from torch.testing._internal.common_methods_invocations import op_db

    (entry,) = (e for e in op_db if e.name == name and e.variant_test_name == variant)
    if dtype not in entry.dtypes:
        pytest.skip(f"{name} has no samples of {dtype}")
    function = lamina.sparse
    for part in name.removeprefix("sparse.").split(".") if name != "to_sparse" else ():
        function = getattr(function, part)
    seen = 0
    for sample in entry.sample_inputs("cpu", dtype):
        args = (sample.input, *sample.args)
        if any(
            isinstance(x, torch.Tensor) and x.layout not in (torch.strided, torch.sparse_csr) for x in args
        ):
            continue
        blocks = [x for x in (*sample.args, *sample.kwargs.values()) if str(x).startswith("torch.sparse_bs")]
        batches = any(isinstance(x, torch.Tensor) and x.ndim > 2 for x in args) and name != "to_sparse"
        if blocks or batches or name == "to_sparse" and is_batched(sample):
            continue  # tensors of blocks, and batches of matrices, are not built
        want = entry(*args, **sample.kwargs)
        mine = [converted(x) for x in args]
        kwargs = {k: converted(v) for k, v in sample.kwargs.items()}
        got = mine[0].to_sparse(*mine[1:], **kwargs) if name == "to_sparse" else function(*mine, **kwargs)
        if want.layout == torch.sparse_coo:
            want = want.coalesce()
        theirs = parts(want)
        for key, value in parts(got).items():
            if isinstance(value, np.ndarray):
                # sums of up to 50 products of numbers below 10
                eps = 50 * np.finfo(value.dtype).eps * 100 if value.dtype.kind in "fc" else 0
                np.testing.assert_allclose(value, theirs[key], rtol=eps, atol=eps)
            elif key != "coalesced":
                assert value == theirs[key]
        seen += 1
    assert seen


def is_batched(sample):
    """Whether a compressed layout is asked for of more than a matrix."""
    layout = sample.kwargs.get("layout")
    dense = sample.kwargs.get("dense_dim") or 0
    return layout not in (None, torch.sparse_coo) and sample.input.ndim - dense != 2


# ---- sparse gradients -------------------------------------------------------------------------------------
def trained(t, name, settings, padding, bag):
    """The table and its last gradient after four steps."""
    start = np.random.default_rng(0).normal(size=(7, 3))
    kind = t.nn.EmbeddingBag if bag else t.nn.Embedding
    module = kind(7, 3, sparse=True, padding_idx=padding).double()
    with t.no_grad():
        module.weight.copy_(t.tensor(start))
    optimizer = getattr(t.optim, name)(module.parameters(), **settings)
    for step in range(4):
        optimizer.zero_grad()
        x = t.tensor([[1, 2, 2, step], [0, 4, step, 5]])
        ((module(x) ** 2 * 0.5).sum() + (module(x).sum() if step > 1 else 0)).backward()
        assert module.weight.grad.is_sparse
        optimizer.step()
    return module.weight.detach().numpy(), module.weight.grad.to_dense().numpy()


RULES = {
    "SGD": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "maximize": ("SGD", {"lr": 0.1, "maximize": True}),
    "Adagrad": ("Adagrad", {"lr": 0.1, "lr_decay": 0.1}),
    "SparseAdam": ("SparseAdam", {"lr": 0.1, "betas": (0.8, 0.99), "eps": 1e-6}),
    "SparseAdam maximize": ("SparseAdam", {"lr": 0.1, "maximize": True}),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("padding", "bag"), [(None, False), (2, False), (None, True)])
def test_optimizers_take_sparse_gradients_as_pytorchs(rule, padding, bag):
    mine, theirs = (trained(t, *RULES[rule], padding, bag) for t in (lamina, torch))
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)  # four steps of a few roundings each


@pytest.mark.parametrize("named", [{"size": (2, 3)}, {"size": (2, 3), "dtype": "float64"}])
def test_a_sparse_tensor_of_a_size_alone_is_empty(named):
    made = []
    for t in (torch, lamina):
        said = {k: getattr(t, v) if k == "dtype" else v for k, v in named.items()}
        x = t.sparse_coo_tensor(**said)
        dtype = str(x.dtype).split(".")[1]
        made.append((tuple(x.shape), dtype, x._nnz(), x.is_coalesced(), x.to_dense().tolist()))
    assert made[0] == made[1]


def test_a_sparse_tensor_needs_places_or_a_size():
    for t in (torch, lamina):
        with pytest.raises((TypeError, ValueError)):
            t.sparse_coo_tensor()
