"""Complex numbers: every record that takes them, and what has no record of its own."""

import io
import pickle

import numpy as np
import pytest

import lamina
from lamina.autograd import gradcheck, gradgradcheck
from lamina.ir import dtypes
from lamina.ir.errors import ArgumentValueError, DTypeError, GradError, ShapeError
from lamina.ir.op import REGISTRY
from lamina.ir.sample import Operand
from lamina.runtime.calls import eager

# Their vectors are known up to factors of length 1, which differ between points: INDEPENDENT has them.
FREE_FACTORS = {"linalg_eig", "linalg_eigh", "linalg_svd"}
NAMES = sorted(
    name
    for name, op in REGISTRY.items()
    if (op.complex or op.dtypes == "complex") and op.operands and name not in FREE_FACTORS
)


def numbers(generator, shape=(), low=-2.0, high=2.0):
    real = generator.uniform(low, high, shape)
    return np.asarray(real + 1j * generator.uniform(-0.5, 0.5, shape))


def arguments(op, sample, generator, dtype):
    """A sample's arguments, its own category's operands complex (or real, for what makes complex of real)."""

    def made(a):
        if isinstance(a, tuple) and any(isinstance(x, Operand) for x in a):
            return tuple(map(made, a))
        if not isinstance(a, Operand):
            return a
        values = a.array(generator, np.dtype(np.float64))
        if a.category in ("int", "bool"):
            return lamina.from_numpy(values)
        if op.complex is None:  # it makes complex numbers of real ones
            return lamina.from_numpy(values).to(dtype.to_real())
        shifted = values + 1j * generator.uniform(-0.5, 0.5, values.shape)
        return lamina.from_numpy(np.asarray(shifted)).to(dtype)

    return [made(a) for a in sample.args], {name: made(a) for name, a in sample.kwargs.items()}


def flat(found):
    return [y for y in (found if isinstance(found, tuple) else (found,)) if isinstance(y, lamina.Tensor)]


def tensors(args):
    return [x for a in args for x in (a if isinstance(a, tuple) else (a,)) if isinstance(x, lamina.Tensor)]


def product(x, y):
    """Of two tensors as vectors of real numbers."""
    return float(np.vdot(x.detach().numpy(), y.detach().numpy()).real)


@pytest.mark.parametrize("name", NAMES)
def test_record(name):
    """It runs in both dtypes to the same numbers, and its gradient is the slope along a random direction."""
    op = REGISTRY[name]
    run = eager(op)
    for number, sample in enumerate(op.samples()):
        if sample.kwargs.get("reduce") in ("amax", "amin"):
            continue  # complex numbers have no order
        generator = np.random.default_rng(number)
        wide, more = arguments(op, sample, generator, dtypes.complex128)
        found = flat(run(*wide, **more))
        narrow, less = arguments(op, sample, np.random.default_rng(number), dtypes.complex64)
        for y, z in zip(found, flat(run(*narrow, **less)), strict=True):
            if "dtype" not in sample.kwargs:
                assert z.dtype.itemsize <= y.dtype.itemsize and z.dtype.category == y.dtype.category
            # A few roundings, of sums and quotients whose terms are up to 30 times as large as they are.
            assert np.allclose(y.detach().numpy(), z.numpy(), 1e-4, 1e-4, equal_nan=True), (name, number)
        last = len(op.operands) - 1
        moved = [x for i, x in enumerate(wide) if op.differentiable and op.differentiates(min(i, last))]
        varying = [x for x in tensors([*moved, *more.values()]) if x.dtype.inexact]
        if not sample.differentiable or not op.differentiable or not varying:
            continue
        found = [y for y in found if y.dtype.inexact]
        if not found or not all(np.isfinite(y.numpy()).all() for y in found):
            continue
        before = [x.numpy().copy() for x in varying]
        for x in varying:
            x.requires_grad_()
        outs = [y for y in flat(run(*wide, **more)) if y.requires_grad]
        if not outs:
            continue
        weights = [numbers(generator, y.shape, -1, 1) for y in outs]
        weights = [lamina.from_numpy(w if y.dtype.is_complex else w.real) for w, y in zip(weights, outs)]
        grads = lamina.autograd.grad(outs, varying, weights, allow_unused=True)
        steps = [numbers(generator, x.shape, -1, 1) for x in varying]
        steps = [v if x.dtype.is_complex else v.real for v, x in zip(steps, varying, strict=True)]
        slope = sum(
            product(g, lamina.from_numpy(np.asarray(v))) for g, v in zip(grads, steps) if g is not None
        )
        ends = []
        for sign in (1e-6, -1e-6):
            for x, start, v in zip(varying, before, steps, strict=True):
                x.detach().numpy()[...] = start + sign * v
            with lamina.no_grad():
                ends.append(sum(product(w, y) for w, y in zip(weights, flat(run(*wide, **more)))))
        # The error of central differences: 1e-12 of the third derivative, and roundings of 1e-16 over 1e-6.
        assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5, abs=1e-6), (name, number)


def drawn(*shape):
    return lamina.from_numpy(numbers(np.random.default_rng(len(shape)), shape)).requires_grad_()


def hermitian(a):
    return a @ a.mH + 3 * lamina.eye(a.shape[-1], dtype=a.dtype)


linalg = lamina.linalg
FACTORED = drawn(3, 2, 2).detach()[0]
INDEPENDENT = {
    "eigh": lambda a: (linalg.eigh(hermitian(a))[0], linalg.eigh(hermitian(a))[1].abs()),
    "eig": lambda a: (linalg.eig(a)[0], linalg.eig(a)[1].abs()),
    "svd": lambda a: (linalg.svd(a)[1], linalg.svd(a)[0].abs(), linalg.svd(a)[0] @ linalg.svd(a)[2]),
    "vdot": lambda a: lamina.vdot(a[0], a[1]),
    "polar": lambda a: lamina.polar(a.real, a.imag),
    "cov": lamina.cov,
    "nan_to_num": lamina.nan_to_num,
    "pinv": linalg.pinv,
    "pinv of rank 1": lambda a: linalg.pinv(a[:, :1] @ a[:1], rtol=1e-6),
    "pinv hermitian": lambda a: linalg.pinv(a + a.mH, hermitian=True),
    "ldl_solve": lambda a: linalg.ldl_solve(*linalg.ldl_factor(FACTORED), a),
    "ldl_solve hermitian": lambda a: linalg.ldl_solve(
        *linalg.ldl_factor(FACTORED, hermitian=True), a, hermitian=True
    ),
    "softsign": lamina.nn.functional.softsign,
    "rms_norm": lambda a: lamina.nn.functional.rms_norm(a, (2,), a[0]),
    **{
        f"{name} in reals": lambda a, name=name: getattr(lamina, name)(a, 0, dtype=lamina.float64)
        for name in ("sum", "mean", "prod", "cumsum", "cumprod", "softmax", "log_softmax")
    },
    "inplace": lambda a: (lambda y: (y[1:].mul_(2j), y * y)[1])(a.clone()),
    "real part": lambda a: (lambda y: (y[0].real.mul_(a[1].imag), y * y)[1])(a.clone()),
    "imaginary part": lambda a: (lambda y: (y.imag.copy_(a.real), y * y)[1])(a.clone()),
    "pairs": lambda a: (lambda y: (lamina.view_as_real(y)[..., 1].mul_(2.0), y * y)[1])(a.clone()),
    "rfft": lambda a: lamina.fft.rfft(a.real, norm="ortho"),
    "irfft": lambda a: lamina.fft.irfft(a, 4),
    "hfft": lambda a: lamina.fft.hfft2(a),
    "fftn": lambda a: lamina.fft.fftn(a, (2, 4)),
    "stft": lambda a: lamina.stft(a[0], 2, 1, onesided=False),
    "istft": lambda a: lamina.istft(a, 2, 1, window=lamina.ones(2, dtype=lamina.float64)),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_gradients_to_second_order(name):
    a = drawn(2, 2)
    assert gradcheck(INDEPENDENT[name], a) and gradgradcheck(INDEPENDENT[name], a)


def test_a_real_operand_gets_a_real_gradient():
    x, z = lamina.tensor([1.0, 2.0], requires_grad=True), lamina.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (x * z).abs().square().sum().backward()
    assert x.grad.dtype is lamina.float32 and x.grad.tolist() == pytest.approx([10, 40])
    assert z.grad.dtype is lamina.complex64 and z.grad.tolist() == pytest.approx([2 + 4j, 24 - 8j])


@pytest.mark.parametrize("calls", (1, 5))
def test_reals_asked_for_of_complex_numbers_are_their_real_parts(calls):
    """By every way that a call goes: the first, one that is remembered, one that is compiled."""
    z, real = lamina.tensor([[1 + 2j, 3 - 1j]]), lamina.tensor([[1.0, 3.0]], dtype=lamina.float64)
    for name in ("sum", "mean", "prod", "cumsum", "cumprod", "softmax", "log_softmax"):
        function = getattr(lamina, name)
        traced = lamina.jit.trace(lambda z, function=function: function(z, 1, dtype=lamina.float64))
        for call in (lambda z, function=function: function(z, 1, dtype=lamina.float64), traced):
            for _ in range(calls):
                found = call(z)
            assert found.dtype is lamina.float64, name
            # A compiled softmax's exponentials may be a rounding or two off.
            np.testing.assert_allclose(found.numpy(), function(real, 1).numpy(), rtol=1e-15, err_msg=name)
    halves = lamina.cumsum(z, 1, dtype=lamina.float16)
    assert halves.dtype is lamina.float16 and halves.tolist() == [[1, 4]]
    assert z.sum(dtype=lamina.int32).item() == 4 and z.sum(dtype=lamina.complex128).item() == 4 + 1j


def test_backward_starts_from_a_real_number():
    z = lamina.tensor([1j], requires_grad=True)
    with pytest.raises(GradError, match="real number"):
        z.sum().backward()
    with pytest.raises(DTypeError, match="complex output is complex"):
        z.sum().backward(lamina.tensor(1.0))
    z.sum().backward(lamina.tensor(1j))
    assert z.grad.tolist() == [1j]


REFUSED = {
    "lt": lambda z: z < z,
    "max": lambda z: z.max(),
    "sort": lambda z: z.sort(),
    "clamp": lambda z: z.clamp(0, 1),
    "floor_divide": lambda z: z // 2,
    "sign": lambda z: z.sign(),
    "relu": lambda z: z.relu(),
    "softmax": lambda z: z.softmax(0),
    "log_softmax": lambda z: z.real.log_softmax(0, dtype=lamina.complex64),
    "cumsum_": lambda z: z.cumsum_(0, dtype=lamina.float64),
    "rms_norm": lambda z: lamina.nn.functional.rms_norm(z.real, (1,), z),
    "add_": lambda z: lamina.zeros(1).add_(z),
    "imag": lambda z: z.real.imag,
    "view_as_real": lambda z: lamina.view_as_real(z.real),
    "complex": lambda z: lamina.complex(z.real, z.real.double()),
    "polar": lambda z: lamina.polar(z, z),
    "rfft": lambda z: lamina.fft.rfft(z),
    "fft": lambda z: lamina.fft.fft(z.real.half()),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name):
    with pytest.raises(DTypeError, match=name):
        REFUSED[name](lamina.tensor([1 + 2j]))


HOSTILE = (None, "x", 1 << 70, -1, 0, [None], {}, 2.5, lamina.ones(2), [0, 0], [9])


@pytest.mark.parametrize("given", HOSTILE, ids=repr)
def test_arguments_of_transforms_are_refused_as_errors_of_ours(given):
    x = lamina.ones(3, 4)
    for call in (
        lambda: lamina.fft.fft(given),
        lambda: lamina.fft.fft(x, given),
        lambda: lamina.fft.irfft(x, dim=given),
        lambda: lamina.fft.fftn(x, given),
        lambda: lamina.fft.rfftn(x, dim=given),
        lambda: lamina.fft.fft(x, norm=given),
        lambda: lamina.fft.fftfreq(given),
        lambda: lamina.fft.fftfreq(4, given),
        lambda: lamina.fft.fftshift(x, given),
        lambda: lamina.stft(x, given, return_complex=True),
        lambda: lamina.stft(x, 4, given, return_complex=True),
        lambda: lamina.stft(x, 4, window=given, return_complex=True),
        lambda: lamina.istft(x.cfloat(), given),
        lambda: lamina.hann_window(given),
        lambda: lamina.complex(x, given),
        lambda: lamina.polar(given, x),
        lambda: lamina.view_as_complex(given),
        lambda: lamina.view_as_real(given),
    ):
        try:
            call()
        except Exception as error:
            assert isinstance(error, lamina.LaminaError), (type(error), error)


def test_promotion():
    f32, f64, c64 = lamina.ones(2), lamina.ones(2).double(), lamina.ones(2).cfloat()
    assert (f64 * c64).dtype is lamina.complex128 and (f32 * c64).dtype is lamina.complex64
    assert (f32 * c64[0].cdouble()).dtype is lamina.complex64  # 0-d: only its category counts
    assert (f32 * 1j).dtype is lamina.complex64 and (f64 * 1j).dtype is lamina.complex128
    assert (lamina.ones(2).long() * 1j).dtype is lamina.complex64
    assert lamina.tensor(1j).dtype is lamina.complex64
    assert lamina.tensor(np.array(1j)).dtype is lamina.complex128


def test_printed():
    assert repr(lamina.tensor([1 + 2j, -0.5j])) == "tensor([1.+2.0000j, -0.-0.5000j])"
    assert repr(lamina.tensor(1j, dtype=lamina.complex128)) == "tensor(0.+1.j, dtype=lamina.complex128)"


@pytest.mark.parametrize("dtype", dtypes.COMPLEX, ids=str)
def test_kept(dtype):
    z = lamina.tensor([1 + 2j, 3], dtype=dtype).requires_grad_()
    assert pickle.loads(pickle.dumps(z)).tolist() == z.tolist()
    file = io.BytesIO()
    lamina.save({"z": z, "part": z.detach()[1:], "array": z.detach().numpy(), "number": 1 - 2j}, file)
    file.seek(0)
    found = lamina.load(file)
    assert found["z"].dtype is dtype and found["z"].tolist() == z.tolist() and found["z"].requires_grad
    assert found["part"].tolist() == [3 + 0j] and found["number"] == 1 - 2j
    assert found["array"].dtype == dtype.numpy and found["array"].tolist() == z.tolist()


def test_numbers_come_out():
    z = lamina.tensor([3 + 4j])
    assert z.item() == 3 + 4j and complex(z) == 3 + 4j and bool(z) and z.tolist() == [3 + 4j]
    assert float(z.real) == 3 and abs(z).item() == 5 and float(lamina.tensor(2 + 0j)) == 2
    with pytest.raises(ArgumentValueError, match="no real number"):
        float(z)
    with pytest.raises(ArgumentValueError, match="does not fit"):
        lamina.zeros(2)[0] = 1j


def test_parts_share_memory():
    z = lamina.tensor([1 + 2j, 3 - 1j])
    z.real = 5
    z.imag[0] = 7
    lamina.view_as_real(z)[1, 1] = 9
    assert z.tolist() == [5 + 7j, 5 + 9j]
    x = lamina.zeros(2, 2)
    lamina.view_as_complex(x)[1] = 1 + 2j
    assert x.tolist() == [[0, 0], [1, 2]]
    with pytest.raises(ShapeError, match="contiguous"):
        lamina.view_as_complex(lamina.zeros(2, 3).T.contiguous().T[:, :2].T.contiguous().T)


def test_traces_compile():
    @lamina.jit.trace
    def size(x, factor):
        return (lamina.complex(x, x) * factor).abs().sum()

    for _ in range(4):
        assert size(lamina.ones(2), 2j).item() == pytest.approx(32**0.5)
    assert "served 3 of 4 calls" in str(size.explain())


def test_random_numbers_have_variance_1():
    lamina.manual_seed(0)
    z = lamina.randn(100, 1000, dtype=lamina.complex64)
    # The standard deviation of a mean of 1e5 squares is 1 / sqrt(1e5) = 0.003.
    assert z.abs().square().mean().item() == pytest.approx(1, abs=0.015)
    assert z.real.square().mean().item() == pytest.approx(0.5, abs=0.01)


def test_optimizers_update_parts():
    z = lamina.tensor([3 + 4j], requires_grad=True)
    optimizer = lamina.optim.Adam([z], lr=0.1)
    for _ in range(100):
        optimizer.zero_grad()
        (z - 1j).abs().square().sum().backward()
        optimizer.step()
    assert abs(z.item() - 1j) < 0.5


@pytest.mark.parametrize("dtype", (lamina.float32, lamina.float64), ids=str)
def test_transforms_keep_precision(dtype):
    x = lamina.ones(4, dtype=dtype)
    for name in ("fft", "ifft", "rfft", "ihfft", "fft2", "rfftn"):
        found = getattr(lamina.fft, name)(x if "2" not in name else x.reshape(2, 2))
        assert found.dtype is dtype.to_complex(), name
    assert lamina.fft.irfft(x).dtype is dtype and lamina.fft.hfft(x.to(dtype.to_complex())).dtype is dtype
    assert lamina.fft.fft(lamina.arange(3)).dtype is lamina.complex64


@pytest.mark.parametrize("function", [
    lambda b: lamina.view_as_complex(b).reshape(4).mul_(2).sum().abs(),
    lambda b: lamina.view_as_complex(b).t().mul_(1 + 2j).real[1].sum(),
    lambda b: (lamina.view_as_complex(b)[1].mul_(2).sum() * b[0, 0, 1]).abs() + b.sum() ** 2,
])  # fmt: skip
def test_pairs_written_through_views_have_gradients_that_lie_anywhere(function):
    x = lamina.arange(8.0, dtype=lamina.float64).reshape(2, 2, 2).requires_grad_()
    assert lamina.autograd.gradcheck(lambda x: function(x.clone()), (x + 1,))
    assert lamina.autograd.gradcheck(lambda x: function(x.permute(2, 1, 0).contiguous() * 1.0), (x + 1,))
