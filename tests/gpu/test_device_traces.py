"""Traced functions of tensors whose memory is a device's: one program, nothing copied, nothing waited for."""

from __future__ import annotations

import os
import tempfile
import warnings

import numpy as np
import pytest
from fake_cuda import Fake, case, missing, on_fake, run_case

import lamina
from lamina import jit, nn, optim
from lamina.ir.errors import DimError
from lamina.runtime.cuda.machine import machine

COPIES = ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync")
WAITS = ("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize")
MEMORY = ("cuMemAlloc", "cuMemFree")


def interpreted(fake: Fake) -> list[str]:
    from cuda_interpreting import interpret_launches

    return interpret_launches(fake)


def same(found, wanted, rtol=1e-5) -> None:
    np.testing.assert_allclose(found.detach().cpu().numpy(), wanted.detach().numpy(), rtol=rtol, atol=1e-6)


def counted(fake: Fake, call, *names: str):
    """What a call returns, and how often it called each of the driver's functions."""
    before = {name: fake.calls(name) for name in names}
    found = call()
    return found, {name: n for name in names if (n := fake.calls(name) - before[name])}


@on_fake()
def test_inference_is_a_few_launches_and_nothing_else(fake: Fake):
    interpreted(fake)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 49, 5)
    ).eval()
    x = lamina.randn(2, 3, 9, 9)
    f = jit.trace(model)
    with lamina.no_grad():
        wanted = model(x)
        model.cuda()
        x = x.cuda()
        for _ in range(12):  # the long way, and then the short one
            same(f(x), wanted)
        (y, calls) = counted(fake, lambda: f(x), "cuLaunchKernel", *COPIES, *WAITS, *MEMORY)
        same(y, wanted)
    assert y.is_cuda and calls == {"cuLaunchKernel": len(f.kernels())}
    assert len(f.kernels()) == 2 and f.counts()["served"] >= 11


@pytest.mark.sampled(2)
@on_fake()
def test_a_training_step_is_one_program_on_the_device(fake: Fake):
    interpreted(fake)

    def trained(device: str, make, traced: bool):
        lamina.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Dropout(0.2), nn.Linear(64, 10),
        ).to(device)  # fmt: skip
        optimizer = make(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        step = jit.trace(step) if traced else step
        losses, calls = [], {}
        for _ in range(5):
            x, y = lamina.randn(6, 1, 8, 8).to(device), lamina.randint(0, 10, (6,)).to(device)
            loss, calls = counted(
                fake, lambda x=x, y=y: step(x, y), "cuLaunchKernel", "cuMemcpyDtoHAsync", *WAITS
            )
            losses.append(loss.item())
        return losses, step, calls, model

    for make in (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.AdamW(p, lr=1e-2)):
        wanted, *_ = trained("cpu", make, False)
        found, step, calls, model = trained("cuda", make, True)
        np.testing.assert_allclose(found, wanted, rtol=1e-4)
        assert step.counts()["served"] == 3, step.explain()
        assert calls.keys() == {"cuLaunchKernel"} and calls["cuLaunchKernel"] < 40
        assert all(p.is_cuda and p.grad.is_cuda for p in model.parameters())


@on_fake()
def test_traces_of_a_device_are_differentiable(fake: Fake):
    interpreted(fake)
    model = nn.Linear(4, 3).cuda()
    f = jit.trace(lambda x: model(x).tanh())
    for _ in range(3):
        x = lamina.randn(2, 4, device="cuda", requires_grad=True)
        gradients = []
        for g in (f, lambda x: model(x).tanh()):
            model.zero_grad()
            x.grad = None
            (g(x) ** 2).sum().backward()
            gradients.append((x.grad.clone(), model.weight.grad.clone(), model.bias.grad.clone()))
        for one, two in zip(*gradients, strict=True):
            same(one, two.cpu())
        (a,) = lamina.autograd.grad(f(x).sum(), x, create_graph=True)
        (b,) = lamina.autograd.grad((a * a).sum(), x)
        (c,) = lamina.autograd.grad(model(x).tanh().sum(), x, create_graph=True)
        (d,) = lamina.autograd.grad((c * c).sum(), x)
        same(b, d.cpu(), 1e-4)
    assert f.counts()["served"] >= 4


@on_fake(devices=2)
def test_recordings_are_of_a_device(fake: Fake):
    interpreted(fake)
    f = jit.trace(lambda x, w: (x @ w).relu().sum(-1))
    x, w = lamina.randn(5, 6), lamina.randn(6, 7)
    wanted = (x @ w).relu().sum(-1)
    for device in ("cuda", "cpu", "cuda:1"):
        for _ in range(4):
            y = f(x.to(device), w.to(device))
            same(y, wanted)
            assert y.device == lamina.zeros(0, device=device).device
    assert f.counts()["recorded"] == 3 and f.counts()["served"] >= 6
    moves = jit.trace(lambda x: x.cuda() * 2)
    same(moves(x), 2 * x)
    same(moves(x), 2 * x)
    assert "moved to cuda:0" in moves.explain()
    scaled = jit.trace(lambda x, s: x * s + 1)  # a number's tensor may stay on the CPU
    for k in range(3):
        same(scaled(x.cuda(), lamina.tensor(float(k))), x * k + 1)
    assert scaled.counts()["served"] == 2


@on_fake()
def test_answers_views_and_writes_of_a_traced_function(fake: Fake):
    interpreted(fake)

    def asks(x):
        return x * 2 if x.sum().item() > 0 else x - 1

    f = jit.trace(asks)
    for _ in range(6):
        x = lamina.randn(8)
        same(f(x.cuda()), asks(x))
    assert f.counts()["served"] >= 2
    views = jit.trace(lambda x: (x.t(), x.reshape(-1), x[0], x.permute(1, 0).contiguous(), x[:, ::2]))
    x = lamina.randn(4, 6)
    for _ in range(3):
        given = x.cuda()
        for y, z in zip(views(given), views(x), strict=True):
            same(y, z)
            assert y.stride() == z.stride()
        same(views(given.t()[::2].t())[3], views(x.t()[::2].t())[3])

    def writes(x, y):
        x.add_(1)
        y[:, 1:3] = x[:, :2]
        return x.sum()

    g = jit.trace(writes)
    for part in (slice(None), slice(None, None, 2)):
        for _ in range(4):
            x, y = lamina.randn(3, 6), lamina.zeros(3, 6)
            a, b = x.cuda(), y.cuda()
            same(g(a[:, part], b), writes(x[:, part], y))
            same(a, x)
            same(b, y)
    picks = jit.trace(lambda t, i: t[i] * 2)
    t = lamina.randn(5, 3, device="cuda")
    for _ in range(3):
        same(picks(t, lamina.tensor([1, 2], device="cuda")), 2 * t[1:3].cpu())
    found = picks(t, lamina.tensor([1, 9], device="cuda"))
    with pytest.raises(DimError, match="out of range"):
        found.cpu()


@case
def from_disk(fake: Fake) -> None:
    interpreted(fake)
    model = nn.Sequential(nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 2)).cuda()
    f = jit.trace(model)
    with lamina.no_grad():
        x = lamina.randn(3, 6, device="cuda")
        for _ in range(3):
            same(f(x), model(x).cpu())
    assert f.counts()["served"] == 2
    machine().stream.synchronize()


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.timeout(600)
def test_programs_of_a_device_come_from_the_disk():
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            run_case(from_disk, LAMINA_CACHE_DIR=folder)
        assert os.listdir(folder)


@on_fake()
def test_what_a_trace_does_not_take_runs_eagerly(fake: Fake):
    interpreted(fake)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        f = jit.trace(lambda x: lamina.fft.fft(x).abs())
        x = lamina.randn(8)
        for _ in range(3):
            same(f(x.cuda()), lamina.fft.fft(x).abs(), 1e-4)
    assert "complex numbers on a device" in f.explain()
