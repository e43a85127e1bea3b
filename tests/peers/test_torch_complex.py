"""Complex numbers and Fourier transforms against PyTorch: values, gradients, promotion, text, refusals.

One call serves both: it is written with `t`, which is either module.
"""

import itertools
import operator
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402
from lamina.ir import dtypes  # noqa: E402

UNARY = (
    "abs acos acosh angle asin asinh atan atanh conj_physical cos cosh exp expm1 isfinite isinf isnan isreal "
    "log log10 log1p log2 logical_not neg positive real imag reciprocal rsqrt sgn sigmoid sin sinc sinh sqrt "
    "square tan tanh view_as_real zeros_like ones_like"
).split()
BINARY = (
    "add sub rsub mul div eq ne logical_and logical_or logical_xor isclose dist logaddexp outer dot vdot "
    "inner kron cross vecdot"
).split()
CALLS = {
    **{name: lambda t, x, y, m, name=name: getattr(t, name)(x) for name in UNARY},
    **{name: lambda t, x, y, m, name=name: getattr(t, name, None or getattr(t.linalg, name, None))(x, y)
       for name in BINARY},
    "pow": lambda t, x, y, m: x**y,
    "pow 2": lambda t, x, y, m: x**2,
    "pow complex": lambda t, x, y, m: x ** (0.5 - 1j),
    "rpow": lambda t, x, y, m: 2**x,
    "alpha": lambda t, x, y, m: t.add(x, y, alpha=2j),
    "addcmul": lambda t, x, y, m: t.addcmul(x, y, x, value=1j),
    "addcdiv": lambda t, x, y, m: t.addcdiv(x, y, x, value=1j),
    "lerp": lambda t, x, y, m: t.lerp(x, y, 0.25j),
    "sum": lambda t, x, y, m: m.sum(0),
    "mean": lambda t, x, y, m: m.mean(-1, keepdim=True),
    "prod": lambda t, x, y, m: m.prod(1),
    "cumsum": lambda t, x, y, m: m.cumsum(1),
    "cumprod": lambda t, x, y, m: m.cumprod(0),
    "logcumsumexp": lambda t, x, y, m: m.logcumsumexp(0),
    "logsumexp": lambda t, x, y, m: m.logsumexp(0),
    "var": lambda t, x, y, m: m.var(0),
    "std": lambda t, x, y, m: m.std(unbiased=False),
    "var_mean": lambda t, x, y, m: t.var_mean(m, 1),
    "norm": lambda t, x, y, m: m.norm(),
    **{f"norm {p}": lambda t, x, y, m, p=p: m.norm(p, 1) for p in (0, 1, 3, float("inf"), -float("inf"))},
    "all": lambda t, x, y, m: m.all(0),
    "any": lambda t, x, y, m: m.any(),
    "count_nonzero": lambda t, x, y, m: t.count_nonzero(m),
    "matmul": lambda t, x, y, m: m @ m.mH,
    "mv": lambda t, x, y, m: m @ x,
    "addmm": lambda t, x, y, m: t.addmm(m, m, m, beta=1j, alpha=2),
    "bmm": lambda t, x, y, m: t.bmm(m[None], m[None].transpose(1, 2)),
    "einsum": lambda t, x, y, m: t.einsum("ij,j->i", m, x),
    "tensordot": lambda t, x, y, m: t.tensordot(m, m, dims=1),
    "linear": lambda t, x, y, m: t.nn.functional.linear(x, m, y),
    "conv1d": lambda t, x, y, m: t.nn.functional.conv1d(m[None], m[:, :, None], x, padding=1),
    "where": lambda t, x, y, m: t.where(x.real > 0, x, y),
    "cat": lambda t, x, y, m: t.cat([x, y.real]),
    "stack": lambda t, x, y, m: t.stack([x, y], 1),
    "index": lambda t, x, y, m: m[[0, 2, 0], 1:],
    "mask": lambda t, x, y, m: m[m.real > 0],
    "masked_fill": lambda t, x, y, m: m.masked_fill(m.imag > 0, 1j),
    "flip": lambda t, x, y, m: m.flip(0).roll(1, 1).T,
    "tril": lambda t, x, y, m: m.tril(),
    "diagonal": lambda t, x, y, m: m.diagonal(),
    "pad": lambda t, x, y, m: t.nn.functional.pad(m, (1, 2), value=2),
    "adjoint": lambda t, x, y, m: (m.H * 1j, m.adjoint() @ m),
    "view_as_complex": lambda t, x, y, m: t.view_as_complex(t.stack([x.real, y.real], -1)),
    "complex": lambda t, x, y, m: t.complex(x.real, y.imag),
    "polar": lambda t, x, y, m: t.polar(x.real.abs(), y.real),
    "to real": lambda t, x, y, m: x.to(t.float64),
    "to double": lambda t, x, y, m: x.to(t.complex128) * x,
    "trapezoid": lambda t, x, y, m: t.trapezoid(x),
    "diff": lambda t, x, y, m: t.diff(m),
    "cov": lambda t, x, y, m: t.cov(m),
    "corrcoef": lambda t, x, y, m: t.corrcoef(m),
    "silu": lambda t, x, y, m: t.nn.functional.silu(x.detach()),  # PyTorch differentiates neither
    "nan_to_num": lambda t, x, y, m: t.nan_to_num((x / 0).detach()),
    "mse": lambda t, x, y, m: t.nn.functional.l1_loss(x, y),
    "inv": lambda t, x, y, m: t.linalg.inv(m),
    "det": lambda t, x, y, m: t.linalg.det(m),
    "slogdet": lambda t, x, y, m: tuple(t.linalg.slogdet(m)),
    "solve": lambda t, x, y, m: t.linalg.solve(m, x),
    "eigvalsh": lambda t, x, y, m: t.linalg.eigvalsh(m @ m.mH),
    "eigh": lambda t, x, y, m: t.linalg.eigh(m @ m.mH)[1].abs(),
    "eig": lambda t, x, y, m: t.linalg.eig(m)[0].abs().sort()[0],
    "svdvals": lambda t, x, y, m: t.linalg.svdvals(m),
    "svd": lambda t, x, y, m: (lambda u, s, vh: (u.abs(), u @ vh))(*t.linalg.svd(m)),
    "qr": lambda t, x, y, m: (lambda q, r: (q @ q.mH, r.abs()))(*t.linalg.qr(m[:, :2])),
    "matrix_power": lambda t, x, y, m: t.matrix_power(m, 3),
    "pinv": lambda t, x, y, m: t.linalg.pinv(m[:, :2]),
    "pinv of rank 1": lambda t, x, y, m: t.linalg.pinv(x[:, None] * y, rtol=1e-3),
    "pinv of rank 2": lambda t, x, y, m: t.linalg.pinv(m[:, :2] @ m[:2], rtol=1e-3),
    "pinv hermitian": lambda t, x, y, m: t.linalg.pinv(m + m.mH, hermitian=True),
    "pinv of one triangle": lambda t, x, y, m: t.linalg.pinv(m.detach(), hermitian=True),
    "lstsq": lambda t, x, y, m: t.linalg.lstsq(m[:, :2], m).solution,
    "rank of one triangle": lambda t, x, y, m: t.linalg.matrix_rank(m.tril(-2), hermitian=True),
    "geqrf": lambda t, x, y, m: tuple(t.geqrf(m.detach()[:, :2])),
    "ormqr": lambda t, x, y, m: t.ormqr(*t.geqrf(m.detach()), m, True, True),
    **{f"ldl {hermitian}": lambda t, x, y, m, hermitian=hermitian: tuple(
        t.linalg.ldl_factor_ex(m.detach(), hermitian=hermitian)) for hermitian in (False, True)},
    **{f"ldl_solve {hermitian}": lambda t, x, y, m, hermitian=hermitian: t.linalg.ldl_solve(
        *t.linalg.ldl_factor(m.detach(), hermitian=hermitian), m.detach(), hermitian=hermitian)
       for hermitian in (False, True)},
    "softsign": lambda t, x, y, m: t.nn.functional.softsign(t.cat([x, y * 0])),
    "rms_norm": lambda t, x, y, m: t.nn.functional.rms_norm(m, (3,), x),
    "rms_norm of real weights": lambda t, x, y, m: t.nn.functional.rms_norm(m, (3,), y.real, 0.5),
    **{f"{name} in reals": lambda t, x, y, m, name=name: getattr(t, name)(m, 0, dtype=t.float64)
       for name in ("sum", "mean", "prod", "cumsum", "softmax", "log_softmax")},
    "softmin in reals": lambda t, x, y, m: t.nn.functional.softmin(m, -1, dtype=t.float64),
    "nuclear": lambda t, x, y, m: t.linalg.matrix_norm(m, "nuc"),
    "triangular": lambda t, x, y, m: t.linalg.solve_triangular(m.triu(), m, upper=True),
    "inplace": lambda t, x, y, m: m.clone().mul_(2j).add_(1),
    "inplace view": lambda t, x, y, m: (lambda c: (c[1:].copy_(c[:2].clone()), c)[1])(m * 1),
    "inplace part": lambda t, x, y, m: (lambda c: (c.real.mul_(3), c.imag.add_(c.real), c * c)[2])(m * 1),
    "index_add": lambda t, x, y, m: m.index_add(0, t.tensor([0, 0]), m[:2]),
    **{f"fft.{name}": lambda t, x, y, m, name=name: getattr(t.fft, name)(m)
       for name in ("fft", "ifft", "irfft", "hfft", "fft2", "ifft2", "irfft2", "hfft2", "fftn", "ifftn",
                    "irfftn", "hfftn", "fftshift", "ifftshift")},
    **{f"fft.{name} of reals": lambda t, x, y, m, name=name: getattr(t.fft, name)(m.real)
       for name in ("fft", "ifft", "rfft", "ihfft", "rfft2", "ihfft2", "rfftn", "ihfftn", "hfft", "irfft")},
    **{f"fft.{name} n": lambda t, x, y, m, name=name, n=n, norm=norm: getattr(t.fft, name)(m, n, 0, norm)
       for name, n, norm in itertools.product(("fft", "ifft", "irfft", "hfft"), (2, 5), (None, "ortho"))},
    "fft.fftn s": lambda t, x, y, m: t.fft.fftn(m, (4, -1), (1, 0), "ortho"),
    "fft.rfftn s": lambda t, x, y, m: t.fft.rfftn(m.real, (2, 5), norm="forward"),
    "fft.irfft 1": lambda t, x, y, m: t.fft.irfft(m, 1),
    "stft": lambda t, x, y, m: t.stft(t.cat([x, y, x]).real, 4, return_complex=True),
    "stft window": lambda t, x, y, m: t.stft(t.cat([x, y, x]).real, 4, 2, 3, x.real.abs(), False,
                                             normalized=True, return_complex=True),
    "stft complex": lambda t, x, y, m: t.stft(t.cat([x, y]), 4, 1, onesided=False),
    "istft": lambda t, x, y, m: t.istft(m, 4, 1, window=t.ones(4, dtype=m.real.dtype)),
    "istft length": lambda t, x, y, m: t.istft(m[None], 4, 1, length=3, normalized=True,
                                               window=t.ones(4, dtype=m.real.dtype)),
}  # fmt: skip


def given(dtype):
    generator = np.random.default_rng(0)
    arrays = [generator.normal(size=s) + 1j * generator.normal(size=s) for s in ((3,), (3,), (3, 3))]
    return [a.astype(dtype) for a in arrays]


def several(found):
    return found if isinstance(found, tuple) else (found,)


def plain(x):
    return x.detach().resolve_conj().numpy()


@pytest.mark.parametrize("dtype", ("complex64", "complex128"))
@pytest.mark.parametrize("name", CALLS)
def test_call(name, dtype):
    call = CALLS[name]
    # Up to a hundred roundings, of numbers up to 30 times as large as the results, and as much in gradients.
    close = {"rtol": 2e-4, "atol": 2e-4} if dtype == "complex64" else {"rtol": 1e-11, "atol": 1e-11}
    ours = [lamina.tensor(a, requires_grad=True) for a in given(dtype)]
    theirs = [torch.tensor(a, requires_grad=True) for a in given(dtype)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts that are dropped, and windows that are left out
        wanted = several(call(torch, *theirs))
    found = several(call(lamina, *ours))
    assert len(found) == len(wanted)
    seeds = []
    for y, z in zip(found, wanted, strict=True):
        if not isinstance(z, torch.Tensor):
            assert y == z
            continue
        assert y.dtype.name == str(z.dtype).removeprefix("torch.") and tuple(y.shape) == tuple(z.shape)
        np.testing.assert_allclose(plain(y), plain(z), **close)
        assert y.requires_grad == z.requires_grad
        seeds.append(np.random.default_rng(1).normal(size=z.shape))
        if z.is_complex():
            seeds[-1] = seeds[-1] + 1j * np.random.default_rng(2).normal(size=z.shape)
        seeds[-1] = np.asarray(seeds[-1], plain(z).dtype)
    pairs = [(y, z, s) for y, z, s in zip(found, wanted, seeds) if z.requires_grad]
    if not pairs:
        return
    outs, peers, cotangents = zip(*pairs, strict=True)
    mine = lamina.autograd.grad(outs, ours, [lamina.tensor(s) for s in cotangents], allow_unused=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yours = torch.autograd.grad(peers, theirs, [torch.tensor(s) for s in cotangents], allow_unused=True)
    for g, h in zip(mine, yours, strict=True):
        if g is None or h is None:
            rest = plain(h if g is None else g) if (g is None) != (h is None) else np.zeros(1)
            assert not rest.any()
        else:
            assert str(g.dtype).endswith(dtype)
            np.testing.assert_allclose(plain(g), plain(h), **close)


def test_promotion():
    for a, b in itertools.product(dtypes.ALL + dtypes.COMPLEX, repeat=2):
        x, y = getattr(torch, a.name), getattr(torch, b.name)
        assert lamina.can_cast(a, b) == torch.can_cast(x, y), (a, b)
        if dtypes.float16 in (a, b):
            continue  # beside complex numbers it is complex32 in PyTorch
        for left, right in itertools.product(((), (2,)), repeat=2):
            ours = lamina.result_type(lamina.ones(left, dtype=a), lamina.ones(right, dtype=b))
            theirs = torch.result_type(torch.ones(left, dtype=x), torch.ones(right, dtype=y))
            assert ours.name == str(theirs).removeprefix("torch."), (a, left, b, right)
        ours, theirs = (
            lamina.result_type(lamina.ones(2, dtype=a), 1j),
            torch.result_type(torch.ones(2, dtype=x), 1j),
        )
        assert ours.name == str(theirs).removeprefix("torch."), (a, 1j)


@pytest.mark.parametrize("dtype", ("complex64", "complex128"))
def test_text(dtype):
    generator = np.random.default_rng(0)
    for numbers in (
        [1 + 2j, 3 - 1j], 1.5 - 2j, [1e5 + 1j, 1e-6 + 2j], np.zeros((2, 0)), [np.nan + 1j, complex(2, -0.0)],
        [complex(np.inf, -np.inf)], generator.normal(size=(3, 40)) + 100j, np.arange(2000) * (1 + 1j),
    ):  # fmt: skip
        array = np.asarray(numbers, dtype)
        assert repr(lamina.tensor(array)).replace("lamina", "torch") == repr(torch.tensor(array))


REFUSED = {
    **{name: lambda t, z, name=name: getattr(operator, name)(z, z)
       for name in ("lt", "ge", "floordiv", "mod")},
    **{name: lambda t, z, name=name: getattr(t, name)(z)
       for name in "max argmax amin sign floor erf relu median isneginf signbit".split()},
    "clamp": lambda t, z: t.clamp(z, 0, 1),
    "cummax": lambda t, z: t.cummax(z, 0),
    "topk": lambda t, z: z.topk(1),
    "maximum": lambda t, z: t.maximum(z, z),
    "atan2": lambda t, z: t.atan2(z, z),
    "add_": lambda t, z: t.zeros(2).add_(z),
    "imag": lambda t, z: t.imag(z.real),
    "backward": lambda t, z: z.clone().requires_grad_().sum().backward(),
    "view_as_complex": lambda t, z: t.view_as_complex(t.zeros(3)),
    "view_as_real": lambda t, z: t.view_as_real(t.zeros(3)),
    "fft norm": lambda t, z: t.fft.fft(z, norm="none"),
    "fft n": lambda t, z: t.fft.fft(z, 0),
    "fft dims": lambda t, z: t.fft.fftn(z, dim=(0, 0)),
    "rfft": lambda t, z: t.fft.rfft(z),
    "stft": lambda t, z: t.stft(t.ones(9), 4),
    "float": lambda t, z: float(z[0]),
    "softmax": lambda t, z: z.softmax(0),
    "softmax in complex numbers": lambda t, z: z.real.softmax(0, dtype=t.complex64),
    "cumsum_ in reals": lambda t, z: z.clone().cumsum_(0, dtype=t.float64),
    "layer_norm": lambda t, z: t.nn.functional.layer_norm(z, (2,)),
    "pinv": lambda t, z: t.linalg.pinv(z[None], hermitian=True),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_refuses_the_other_does(name):
    array = np.array([1 + 2j, 3 - 1j])
    with pytest.raises(Exception):  # noqa: B017 - whatever PyTorch says
        REFUSED[name](torch, torch.tensor(array))
    with pytest.raises(lamina.LaminaError):
        REFUSED[name](lamina, lamina.tensor(array))


@pytest.mark.parametrize("name", ("hann", "hamming", "blackman", "bartlett", "kaiser"))
def test_windows(name):
    for n, periodic, dtype in itertools.product((0, 1, 2, 5, 33), (True, False), ("float32", "float64")):
        ours = getattr(lamina, f"{name}_window")(n, periodic, dtype=getattr(lamina, dtype))
        theirs = getattr(torch, f"{name}_window")(n, periodic, dtype=getattr(torch, dtype))
        # PyTorch computes in the dtype itself: cosines of up to 13, whose arguments are rounded.
        limit = 2e-6 if dtype == "float32" else 1e-14
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=0, atol=limit)


def test_frequencies():
    for name, n, d in itertools.product(("fftfreq", "rfftfreq"), (1, 2, 5, 8), (1.0, 0.3)):
        ours, theirs = getattr(lamina.fft, name)(n, d), getattr(torch.fft, name)(n, d)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=2.4e-7)  # two roundings


@pytest.mark.parametrize("name", ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"))
def test_optimizers(name):
    start = np.array([1 + 2j, 3 - 1j])
    ours, theirs = lamina.tensor(start, requires_grad=True), torch.tensor(start, requires_grad=True)
    for t, z in ((lamina, ours), (torch, theirs)):
        optimizer = getattr(t.optim, name)([z], lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            ((z - 1j).abs() ** 2).sum().backward()
            optimizer.step()
    np.testing.assert_allclose(plain(ours), plain(theirs), rtol=1e-12)
