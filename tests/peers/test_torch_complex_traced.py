"""Complex values in compiled programs: traced as eager as PyTorch, with gradients."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

SEEDS = range(4)


def spectral(m, x, w):
    """A layer of a Fourier neural operator."""
    f = m.fft.rfft2(x)
    out = m.zeros((2, 3, 8, 5), dtype=m.complex64)
    out[:, :, :3, :2] = m.einsum("bixy,ioxy->boxy", f[:, :, :3, :2], m.view_as_complex(w))
    return m.fft.irfft2(out, s=(8, 8))


def global_filter(m, x, w):
    """A block of a global filter network."""
    weight = m.view_as_complex(w)
    f = m.fft.rfft2(x, dim=(2, 3), norm="ortho") * weight
    return m.fft.irfft2(f, s=(8, 8), dim=(2, 3), norm="ortho").square()


def spectrogram(m, x, w):
    """A loss over several resolutions of short-time transforms."""
    loss = 0
    for n in (16, 32):
        one, other = (
            m.stft(s, n, hop_length=n // 4, window=m.hann_window(n), return_complex=True).abs()
            for s in (x, w)
        )
        loss = loss + (one - other).abs().mean() + ((one + 1e-3).log() - (other + 1e-3).log()).square().mean()
    return loss


def attention(m, x, w):
    """Phases as positions: rotary embedding by complex products, and a complex linear layer."""
    turns = m.polar(m.ones(8), m.arange(8, dtype=m.float32) / 3)
    z = m.view_as_complex(x.reshape(2, 3, 8, 4, 2)) * turns[:, None]
    out = z @ m.view_as_complex(w).conj()
    return m.view_as_real(out / (1 + out.abs())), out.angle().cos()


def normalised(m, x, w):
    """A complex layer with a norm, and a function that is bounded."""
    z = m.nn.functional.rms_norm(m.view_as_complex(x.reshape(2, 3, 8, 4, 2)), (4,))
    return m.view_as_real(m.nn.functional.softsign(z @ m.view_as_complex(w)))


PROGRAMS = {
    spectral: ((2, 3, 8, 8), (3, 3, 3, 2, 2)),
    global_filter: ((2, 3, 8, 8), (3, 8, 5, 2)),
    spectrogram: ((2, 200), (2, 200)),
    attention: ((2, 3, 64), (4, 4, 2)),
    normalised: ((2, 3, 64), (4, 4, 2)),
}


def scalar(y):
    return sum((part.cos() * part).sum() for part in (y if isinstance(y, tuple) else (y,)))


def gradients(m, function, x, w):
    """The outputs, and the gradients of a number that they make, by `m`'s own backward."""
    x.grad = w.grad = None
    found = function(m, x, w)
    scalar(found).backward()
    return [y.detach() for y in (found if isinstance(found, tuple) else (found,))], [x.grad, w.grad]


def near(x, y, terms):
    x, y = x.numpy(), y.resolve_conj().numpy()
    assert x.shape == y.shape and x.dtype == y.dtype
    # Rounding of sums of so many terms, in transforms that are sums of their own, in either order.
    bound = terms * np.finfo(x.dtype).eps * max(1.0, np.abs(y).max(initial=0))
    assert np.abs(x - y).max(initial=0) <= bound


def held_to_torch(function, shapes, rng, verify):
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    theirs = gradients(torch, function, *(torch.tensor(a, requires_grad=True) for a in arrays))
    for whole in (True, False):  # the backward inside of what is traced, or outside
        ours = [lamina.tensor(a, requires_grad=True) for a in arrays]
        if whole:

            @lamina.jit.trace(budget=None, verify=verify)
            def step(x, w):
                return gradients(lamina, function, x, w)

        else:
            forward = lamina.jit.trace(lambda x, w: function(lamina, x, w), budget=None, verify=verify)

            def step(x, w, forward=forward):
                return gradients(lamina, lambda _, x, w: forward(x, w), x, w)

        for _ in range(4):
            found = step(*ours)
            for x, y in zip((*found[0], *found[1]), (*theirs[0], *theirs[1]), strict=True):
                near(x, y, 256)
        traced = step if whole else forward
        assert "served" in traced.explain() and "not served" not in traced.explain(), traced.explain()


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_program(function):
    held_to_torch(function, PROGRAMS[function], np.random.default_rng(0), verify=False)


def test_program_verified():
    held_to_torch(spectral, PROGRAMS[spectral], np.random.default_rng(1), verify=True)


UNARY = (
    lambda m, z: z.conj(), lambda m, z: z * (0.5 - 1j), lambda m, z: m.exp(z * 0.1),
    lambda m, z: m.tanh(z * 0.3), lambda m, z: z / (2 + z.abs()), lambda m, z: m.fft.fft(z, norm="ortho"),
    lambda m, z: m.fft.ifft2(z, norm="ortho"), lambda m, z: z - z.mean(-1, keepdim=True),
    lambda m, z: m.complex(z.imag, z.real), lambda m, z: z.mT.contiguous(),
    lambda m, z: m.view_as_complex(m.view_as_real(z) * 0.7), lambda m, z: m.sqrt(z * z + 4),
    lambda m, z: z**2 / 4, lambda m, z: m.where(z.real > 0, z, -z), lambda m, z: m.cat([z[1:], z[:1] * 1j]),
    lambda m, z: m.sin(z * 0.2), lambda m, z: m.polar(z.abs(), z.angle() / 2), lambda m, z: m.roll(z, 1, -1),
    lambda m, z: m.flip(z, (0,)), lambda m, z: m.cumsum(z, 0) / 3, lambda m, z: m.log(z + 5),
    lambda m, z: z.real.to(m.complex64) + z.imag,
)  # fmt: skip
BINARY = (
    lambda m, a, b: a + b, lambda m, a, b: a * b / 3, lambda m, a, b: a / (b + 6),
    lambda m, a, b: a @ b.mH / 4, lambda m, a, b: m.einsum("ij,kj->ik", a, b) / 4,
    lambda m, a, b: m.where(a.abs() > b.abs(), a, b), lambda m, a, b: a - 0.5 * b.real,
    lambda m, a, b: m.stack([a, b]).sum(0),
)  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_random_program(seed):
    rng = np.random.default_rng(seed)
    steps = [(rng.integers(0, 99), rng.integers(0, 99), rng.integers(0, 99)) for _ in range(9)]

    def program(m, x, w):
        values = [m.view_as_complex(x), m.view_as_complex(w)]
        for kind, first, second in steps:
            a, b = values[first % len(values)], values[second % len(values)]
            if kind % 3 == 0:
                values.append(BINARY[kind // 3 % len(BINARY)](m, a, b))
            else:
                values.append(UNARY[kind % len(UNARY)](m, a))
        return m.view_as_real(values[-1] + values[-2] * values[-3])

    held_to_torch(program, ((4, 4, 2), (4, 4, 2)), rng, verify=seed == 0)
