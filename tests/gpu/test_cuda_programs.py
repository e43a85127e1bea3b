"""Whole programs and traced functions on the fake driver, against NumPy and the CPU."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest
from fake_cuda import ILLEGAL_ADDRESS, Fake, case, missing, on_fake, run, run_case

import lamina
from lamina import jit, nn
from lamina.demo.network import network
from lamina.ir.errors import DeviceError, OutOfMemoryError
from lamina.ir.text import parse
from lamina.jit import backend
from lamina.jit.verify import TraceError
from lamina.passes.programs import split_calls
from lamina.passes.programs.build_program import build_program
from lamina.passes.triton import launches
from lamina.passes.triton.emit import Emitter
from lamina.runtime.cuda.executable import Executable
from lamina.runtime.cuda.machine import machine as machine_of

needs_fake = pytest.mark.skipif(bool(missing()), reason=missing())


@on_fake()
def test_a_traced_function_runs_on_the_device(fake: Fake):
    from cuda_interpreting import interpret_launches

    ran = interpret_launches(fake)
    f = jit.trace(lambda x, y: (x * y + 1).relu().sum(-1), target="cuda")
    for _ in range(3):
        x, y = lamina.randn(5, 37), lamina.randn(37)
        found = f(x, y)
        expected = np.maximum(x.numpy().astype(np.float64) * y.numpy() + 1, 0).sum(-1)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    assert f.counts() == {"served": 2, "recorded": 1, "eager": 0, "raised": 0, "within": 0}
    assert len(ran) == 2 and "tl.sum" in f.source() or "tl.reduce" in f.source()


def trained(target: str, steps: int) -> tuple[list[float], list[np.ndarray]]:
    """Losses and parameters of the demo's network after some steps of training."""
    lamina.manual_seed(1)
    model = network(lamina, width=4)
    optimizer = lamina.optim.AdamW(model.parameters(), lr=1e-2)

    @jit.trace(target=target)
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(lamina.randn(5, 1, 8, 8), lamina.randint(0, 10, (5,))).item() for _ in range(steps)]
    assert step.counts()["served"] == steps - 2, step.explain()
    return losses, [p.detach().numpy() for p in (*model.parameters(), *model.buffers())]


@pytest.mark.sampled(2)
@on_fake()
def test_the_demos_network_infers_as_on_the_cpu(fake: Fake):
    from cuda_interpreting import interpret_launches

    ran = interpret_launches(fake)
    lamina.manual_seed(0)
    model = network(lamina, width=4).eval()
    f = jit.trace(model, target="cuda")
    x = lamina.randn(3, 1, 8, 8)
    with lamina.no_grad():
        expected = f(x).numpy()  # the recording run is eager
        for _ in range(2):
            np.testing.assert_allclose(f(x).numpy(), expected, atol=1e-6)
        copies = fake.calls("cuMemcpyHtoDAsync")
        f(x)
        assert fake.calls("cuMemcpyHtoDAsync") == copies + 1  # the images alone: weights stay where they are
        with lamina.no_grad():
            model[-1].bias += 1.0
        np.testing.assert_allclose(f(x).numpy(), expected + 1.0, atol=1e-6)
    assert len(ran) > 20 and f.counts()["eager"] == 0


@pytest.mark.sampled(3)
@on_fake()
def test_the_demos_network_learns_as_on_the_cpu(fake: Fake):
    from cuda_interpreting import interpret_launches

    ran = interpret_launches(fake)
    losses, values = trained("cuda", 5)
    expected_losses, expected = trained("cpu", 5)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    for got, want in zip(values, expected, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)
    assert len(ran) > 100


def leaves(results) -> list:
    return [results] if isinstance(results, lamina.Tensor) else [x for r in results for x in leaves(r)]


@on_fake(seed=7)
def test_what_a_program_may_hold(fake: Fake):
    """Ops of the host, random numbers, writes, views, scalars, nothing: each as on the CPU."""
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)

    def sorts(x):
        return (x * 2).sort(dim=1).values + 1

    def draws(x):
        return nn.functional.dropout(x + lamina.rand(4, 33), 0.3), lamina.randint(0, 9, (7,))

    def writes(x):
        x[1:3] += 2
        x.mul_(3)
        return x.sum()

    def looks(x):
        return x.t()[::2], x[:, 3:5].reshape(-1), x[0, 0], x[:0].sum(), x[:, :0]

    def looks_up(x):
        y = lamina.zeros(5, 33)
        return x[lamina.tensor([2, 0, 2])], y.index_add(0, lamina.tensor([1, 1, 4, 0]), x), x.argmax(1)

    def scans(x):
        return x.cumsum(1), x.cummax(0).values, x.softmax(-1).max(1)

    for function in (sorts, draws, writes, looks, looks_up, scans):
        traced = {target: jit.trace(function, target=target) for target in ("cuda", "cpu")}
        for seed in range(3):
            found = {}
            for target, f in traced.items():
                lamina.manual_seed(seed)
                x = lamina.randn(4, 33)
                results = f(x)
                found[target] = [r.numpy() for r in (*leaves(results), x)]
            for got, want in zip(found["cuda"], found["cpu"], strict=True):
                assert got.dtype == want.dtype and got.shape == want.shape
                np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6, err_msg=function.__name__)
        assert traced["cuda"].counts() == {
            "served": 2,
            "recorded": 1,
            "eager": 0,
            "raised": 0,
            "within": 0,
        }, function


# ---- networks in every floating type
def attends(q, k, v):
    plain = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    masked = nn.functional.scaled_dot_product_attention(q, k[:, :1], v[:, :1], q @ k.mT, enable_gqa=True)
    return plain, masked


def convolves(x, w, b):
    y = nn.functional.conv2d(x, w, b, stride=2, padding=1)
    y = nn.functional.conv2d(y.relu(), w[:, :1], groups=4, dilation=2, padding=2)
    return nn.functional.max_pool2d(y, 2), nn.functional.avg_pool2d(y, 3, 1), y.mean((2, 3))


def normalises(x, w, b):
    y = nn.functional.layer_norm(x, (12,), w, b)
    return y, nn.functional.group_norm(x.mT, 4, w, b), nn.functional.gelu(y).std(1)


NETWORKS = {
    "attends": (attends, [(2, 2, 17, 8)] * 3),
    "convolves": (convolves, [(2, 4, 9, 11), (4, 4, 3, 3), (4,)]),
    "normalises": (normalises, [(3, 7, 12), (12,), (12,)]),
}
BOUNDS = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


@case
def is_near_the_cpus(fake: Fake) -> None:
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    function, sizes = NETWORKS[os.environ["NETWORK"]]
    dtype, bound = getattr(lamina, os.environ["DTYPE"]), BOUNDS[os.environ["DTYPE"]]
    traced = {target: jit.trace(function, target=target) for target in ("cuda", "cpu")}
    for seed in range(2):
        found = {}
        for target, f in traced.items():
            lamina.manual_seed(seed)
            given = [lamina.randn(*size, dtype=dtype, requires_grad=seed == 1) for size in sizes]
            f(*given)  # recorded
            results = leaves(f(*given))
            if seed == 1:
                sum(r.float().sum() for r in results).backward()
            found[target] = [r.detach() for r in results] + [g.grad for g in given if seed == 1]
        for got, want in zip(found["cuda"], found["cpu"], strict=True):
            scale = max(1.0, want.abs().max().item())
            assert got.dtype is dtype
            wrong = (got.double() - want.double()).abs().max().item() / scale
            assert wrong <= bound, (seed, wrong)
    counts = {"served": 2, "recorded": 2, "eager": 0, "raised": 0, "within": 0}
    assert traced["cuda"].counts() == counts, traced["cuda"].explain()


@needs_fake
@pytest.mark.sampled(4)
@pytest.mark.timeout(600)  # ten seconds of compiling, undisturbed
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("network", NETWORKS)
def test_networks_in_every_floating_type(network, dtype):
    """Attention, convolutions of all kinds, normalisation: forward and backward, near the CPU's."""
    run_case(is_near_the_cpus, seed=5, NETWORK=network, DTYPE=dtype)


@on_fake()
def test_an_index_out_of_range_changes_nothing(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)

    @jit.trace(target="cuda")
    def f(table, rows, total):
        total += table[rows].sum()
        return table[rows.flip(0)]

    table, total = lamina.randn(6, 5), lamina.zeros(())
    for _ in range(2):
        f(table, lamina.tensor([0, 5, 3]), total)
    before = total.item()
    with pytest.raises(IndexError, match="index 6 is out of bounds"):
        f(table, lamina.tensor([0, 6, 3]), total)
    assert total.item() == before
    f(table, lamina.tensor([-1, 2, 3]), total)
    assert total.item() != before


@on_fake(capacity=64 << 20)
def test_memory_runs_out_and_comes_back(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    f = jit.trace(lambda x: (x + 1).sum(), target="cuda")
    small, large = lamina.ones(100), lamina.ones(32 << 20)
    for x in (small, small, large):
        f(x)  # recorded: eager
    with pytest.raises(OutOfMemoryError, match="has no .* left") as told:
        f(large)
    assert "in: traced" in str(told.value)
    assert f(small).item() == 200  # and the device goes on
    machine = machine_of()
    machine.allocator.empty_cache()
    gc.collect()
    assert machine.allocator.statistics()["allocated_bytes.all.current"] == 0
    assert fake.live()["device"] == 0


@on_fake()
def test_a_call_of_the_driver_that_fails_changes_no_parameter(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)

    @jit.trace(target="cuda")
    def f(x, a, b, rows):
        y = (x * 2).sort(dim=1).values
        a += y.sum(0)
        b.mul_(2)
        return x[rows], y.sum(1)

    def given():
        lamina.manual_seed(0)
        return lamina.randn(4, 5), lamina.randn(5), lamina.randn(7), lamina.tensor([0, 3, 1])

    for _ in range(3):
        f(*given())
    names = ("cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyDtoDAsync", "cuMemsetD8Async")
    for name in (*names, "cuLaunchKernel", "cuStreamSynchronize"):
        before = fake.calls(name)
        f(*given())
        for nth in range(1, fake.calls(name) - before + 1):
            x = given()
            fake.fail(name, 999, nth)
            with pytest.raises(DeviceError):
                f(*x)
            for got, want in zip(x, given(), strict=True):
                np.testing.assert_array_equal(got.numpy(), want.numpy(), err_msg=f"{name} {nth}")
    machine = machine_of()
    machine.stream.synchronize()
    f(*given())
    assert machine.allocator.statistics()["allocated_bytes.all.current"] == 0
    assert f.counts()["eager"] == 0


@on_fake()
def test_a_device_that_fails_in_the_background_is_told_of(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    f = jit.trace(lambda x: (x * 2).exp(), target="cuda", compile="background")
    x = lamina.ones(3)
    fake.fail("cuModuleLoadData", 2)
    f(x)
    while f._being_built:
        time.sleep(0.01)
    with pytest.raises(DeviceError, match="could not load"):
        f(x)
    f(x)
    while f._being_built:
        time.sleep(0.01)
    np.testing.assert_allclose(f(x).numpy(), np.exp(2.0), rtol=1e-6)
    assert f.counts() == {"served": 1, "recorded": 2, "eager": 0, "raised": 0, "within": 0}, f.explain()


@on_fake(PYTHONWARNINGS="ignore")
def test_a_forked_child_is_refused_before_anything_runs(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    f = jit.trace(lambda x: x * 2, target="cuda")
    f(lamina.ones(2)), f(lamina.ones(2))
    child = os.fork()
    if not child:
        said = []
        g = jit.trace(lambda x: said.append(1) or x * 2, target="cuda")
        for call in (f, g, g):
            try:
                call(lamina.ones(2))
                os._exit(3)
            except DeviceError:
                pass
        os._exit(4 if said else 0)
    assert os.waitpid(child, 0)[1] == 0
    assert f(lamina.ones(2)).tolist() == [2.0, 2.0]


@on_fake()
def test_kernels_that_nobody_runs_are_unloaded(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    machine = machine_of()
    for k in range(3):
        f = jit.trace(lambda x, k=k: x * (k + 0.5), target="cuda")
        f(lamina.ones(4)), f(lamina.ones(4))
    assert fake.live()["modules"] == 3
    del f
    backend.forget()
    gc.collect()
    machine.device.synchronize()
    assert fake.live()["modules"] == 0


@on_fake()
def test_a_failed_launch_names_kernel_and_program(fake: Fake):
    fake.on_launch(lambda launch: ILLEGAL_ADDRESS)
    f = jit.trace(lambda x: x.exp() + 1, target="cuda")
    x = lamina.ones(3)
    f(x)
    with pytest.raises(DeviceError) as told:
        f(x)
    assert "exp_add" in str(told.value) and "in: traced" in str(told.value)
    assert "of: exp at test_cuda_programs.py:" in str(told.value)
    with pytest.raises(DeviceError, match="lost"):
        f(x)


@on_fake(LAMINA_CACHE_DIR=tempfile.mkdtemp(prefix="lamina-test-cache-"))
def test_a_second_process_compiles_nothing(fake: Fake):
    program = (
        "import sys; from fake_cuda import Fake; from cuda_interpreting import interpret_launches\n"
        "fake = Fake(); ran = interpret_launches(fake)\n"
        "import lamina; from lamina import jit\n"
        "f = jit.trace(lambda x: (x * lamina.tensor([1.0, 2.0, 3.0])).sum(), target='cuda')\n"
        "print(f(lamina.ones(3)).item(), f(lamina.ones(3)).item(), len(ran) > 0,\n"
        "      f.explain(as_dict=True)['paths'][0]['from_disk'])\n"
    )
    told = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert told == ["6.0 6.0 True False\n", "6.0 6.0 True True\n"]


@on_fake(seed=3)
def test_threads_share_a_device(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    f = jit.trace(lambda x, n: (x * n).cumsum(0), target="cuda")
    f(lamina.ones(50), lamina.tensor(1.0))
    wrong = []

    def work(n):
        for _ in range(3):
            found = f(lamina.ones(50), lamina.tensor(float(n)))
            if found.tolist() != [float(n * k) for k in range(1, 51)]:
                wrong.append((n, found))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_without_a_device_nothing_runs():
    program = (
        "import lamina; from lamina import jit\n"
        "said = []\n"
        "f = jit.trace(lambda x: said.append(1) or x + 1, target='cuda')\n"
        "try:\n    f(lamina.ones(2))\n"
        "except lamina.DeviceError as error:\n    print(error.rule, said)\n"
    )
    done = run(["-c", program], devices=0)
    assert done.stdout == "the CUDA driver finds a GPU []\n", done.stderr


@on_fake()
def test_verify_names_the_stage_that_is_wrong_on_the_device(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    rows = lamina.tensor([0, 2, 2])

    def f(x, y, z):
        before = z.clone()
        z.copy_(y)
        y.copy_(before)
        return lamina.zeros(4, 3).index_add(0, rows, x.tanh() * 2 + x), (x - 1).sum(0)

    def fault(wrong=None, owner=None, name=None):
        traced = jit.trace(f, verify=True, target="cuda")
        right = owner and getattr(owner, name)
        if owner:
            setattr(owner, name, wrong)
        backend.forget()
        try:
            for _ in range(3):
                traced(lamina.randn(3, 3), lamina.randn(5), lamina.randn(5))
        except TraceError as error:
            return error.finding.stage
        finally:
            if owner:
                setattr(owner, name, right)
        return None

    plain = Emitter.spelled

    def minus(self, word, *rest):
        return plain(self, {"add": "sub"}.get(word, word), *rest)

    found = {
        "nothing": fault(),
        "a word": fault(minus, Emitter, "spelled"),
        "a fill": fault(lambda call: iter((call,)), split_calls, "_filled"),
        "a copy": fault(lambda plan, number: iter(()), launches, "_moves"),
    }
    assert found == {
        "nothing": None, "a word": "native code", "a fill": "native code", "a copy": "the linked program"
    }, found  # fmt: skip


# ---- what others do meanwhile
@on_fake()
def test_weights_may_be_changed_as_soon_as_a_call_returns(fake: Fake):
    """They are copied to the device once, in a call whose results stay there."""
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    program = build_program(parse(DOUBLES))
    run = Executable(program)
    for _ in range(2):
        x = np.arange(8, dtype=np.float32)
        (doubled,) = run.on_device(x)
        x[:] = -1
        assert doubled.numpy().tolist() == [2.0 * k for k in range(8)]
    waits = fake.calls("cuStreamSynchronize")
    (again,) = run.on_device(doubled)
    assert fake.calls("cuStreamSynchronize") == waits  # nothing of the host's is read
    assert again.numpy().tolist() == [4.0 * k for k in range(8)]


DOUBLES = """\
graph doubles(%x: f32[8]) -> (f32[8]) {
  %0 = add(%x, %x) : f32[8]
  return %0
}"""


@on_fake(devices=2)
def test_another_library_may_turn_to_another_device(fake: Fake):
    """As torch.cuda.set_device does: between calls, and before what is loaded and allocated anew."""
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    traced = [jit.trace(lambda x, k=k: (x * k).sort().values + k, target="cuda") for k in (2, 3)]
    for turn in range(6):
        x, k = lamina.randn(100), 2 + turn % 2
        np.testing.assert_array_equal(traced[turn % 2](x).numpy(), np.sort(x.numpy() * k) + k)
        machine_of().allocator.empty_cache()
        api = sys.modules["cuda.bindings.driver"]
        _, theirs = api.cuDevicePrimaryCtxRetain(1)
        api.cuCtxSetCurrent(theirs if turn % 3 else api.CUcontext(0))
    for f in traced:
        assert f.counts() == {"served": 2, "recorded": 1, "eager": 0, "raised": 0, "within": 0}
