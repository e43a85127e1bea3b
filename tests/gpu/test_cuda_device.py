"""The driver's objects and compiled kernels on a real GPU; skipped where there is none."""

import ctypes
import multiprocessing
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina import jit, nn
from lamina.demo.network import network
from lamina.ir.errors import DeviceError, OutOfMemoryError
from lamina.ir.kernel import NUMPY
from lamina.ir.kernel.form import identity
from lamina.passes.triton.generate import generate
from lamina.passes.triton.target import Target
from lamina.runtime.cuda.driver import Device, Driver
from lamina.runtime.cuda.machine import machine

sys.path.insert(0, str(Path(__file__).parent.parent / "kernel"))
from device_records import check_part
from probes import PROBES

pytestmark = pytest.mark.cuda
PARTS = 24


@pytest.fixture(scope="module")
def device() -> Device:
    pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed: the extra gpu has it")
    try:
        return Driver.open().device()
    except DeviceError as error:
        pytest.skip(str(error).replace("\n", ";"))


def test_copies_and_fills(device):
    stream, values = device.stream(), np.arange(100_000, dtype=np.float32)
    a, b = device.allocate(values.nbytes), device.allocate(values.nbytes)
    stream.copy_in(a, values)
    stream.copy(b, a, values.nbytes)
    stream.fill(b, 0, 400)
    stream.fill_words(b, np.float32(-np.inf).tobytes(), 10)
    values[:100], values[:10] = 0, -np.inf
    found = np.empty_like(values)
    stream.copy_out(found, b)
    stream.synchronize()
    assert found.tobytes() == values.tobytes()
    device.release(a)
    device.release(b)


def test_streams_wait_for_each_other(device):
    one, two, size = device.stream(), device.stream(), 64 << 20
    a, b = device.allocate(size), device.allocate(size)
    pinned = device.host_allocate(size)
    found = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(pinned))
    for byte in range(1, 20):
        one.fill(a, byte, size)
        two.wait(one.record())
        two.copy(b, a, size)
        one.wait(two.record())
    two.copy_out(found, b)
    two.synchronize()
    assert (found == 19).all() and two.done()
    begin = one.record(timing=True)
    one.fill(a, 0, size)
    assert one.record(timing=True).since(begin) > 0
    one.synchronize()
    for address in (a, b):
        device.release(address)
    device.host_release(pinned)


def test_too_much_memory_is_refused_and_the_device_goes_on(device):
    with pytest.raises(OutOfMemoryError, match="free: .* of "):
        device.allocate(2 * device.total_memory)
    device.release(device.allocate(1 << 20))


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "bool"]
)
def test_parts_of_arrays_are_read_where_they_begin(device, dtype):
    """A wide access at an address that is no multiple of it would lose the device."""
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    x = lamina.randint(0, 2 if dtype == "bool" else 9, (1025, 3)).to(getattr(lamina, dtype))
    for first in (1, 2, 16):
        f = jit.trace(lambda x, first=first: x[first:] * x[0], target="cuda")
        wanted = f(x).tolist()  # recorded: eager
        assert f(x).tolist() == wanted and f.counts()["served"] == 1


@pytest.mark.parametrize("name", PROBES)
def test_probe(device, name):
    """Compiled, loaded and run: the results are the interpreter's, as test_kernel_llvm.py bounds them."""
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    from lamina.runtime.triton_compiler import compiled

    kernel, arrays = PROBES[name].kernel, PROBES[name].arrays()
    code = generate(kernel)
    (binary,) = compiled([code], Target.named(device.target))
    outputs = []
    for buffer in kernel.outputs:
        combine = next((s.combine for s in kernel.stores if s.buffer == buffer.name and s.combine), None)
        begin = identity(combine, buffer.dtype) if combine else 0
        outputs.append(np.full(buffer.shape, begin, NUMPY[buffer.dtype]))
    stream, places = device.stream(), []
    for array in (*arrays, *outputs):
        places.append(device.allocate(max(array.nbytes, 1)))
        stream.copy_in(places[-1], np.ascontiguousarray(array))
    stream.launch(device.load(binary, code.parameters), code.grid, *places, about=name)
    bound = 2.0**-8 if name == "halves" else 2e-6
    for output, place, wanted in zip(outputs, places[len(arrays) :], PROBES[name].wanted(), strict=True):
        stream.copy_out(output, place)
        stream.synchronize()
        wanted = np.asarray(wanted, np.float64)
        scale = max(1.0, np.abs(wanted[np.isfinite(wanted)]).max(initial=0))
        np.testing.assert_allclose(output.astype(np.float64), wanted, rtol=0, atol=bound * scale)
    for place in places:
        device.release(place)


# ---- traced programs
class Words(nn.Module):
    """A small GPT: embeddings, two layers of causal attention, logits."""

    def __init__(self, words: int = 50, length: int = 24, width: int = 32):
        super().__init__()
        self.token, self.place = nn.Embedding(words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

    def forward(self, x):
        found = self.token(x) + self.place(lamina.arange(x.shape[1]))
        return self.head(self.layers(found, mask=self.mask, is_causal=True))


def trained(what: str, target: str, steps: int) -> tuple[list[float], list[np.ndarray]]:
    """Losses and parameters of a network after some steps of training.

    Adam divides gradients by their size: where the true one is 0, as that of a key's bias, it makes steps of
    what rounding left.  So words are learnt by plain steps.
    """
    lamina.manual_seed(1)
    model = Words() if what == "words" else network(lamina, width=16)
    parameters = model.parameters()
    optim = lamina.optim
    optimizer = optim.SGD(parameters, 0.1, 0.9) if what == "words" else optim.AdamW(parameters, 1e-3)

    @jit.trace(target=target)
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x).reshape(y.numel(), -1), y.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for _ in range(steps):
        if what == "words":
            text = lamina.randint(0, 50, (8, 25))
            losses.append(step(text[:, :-1], text[:, 1:]).item())
        else:
            losses.append(step(lamina.randn(32, 1, 8, 8), lamina.randint(0, 10, (32,))).item())
    assert step.counts()["served"] >= steps - 3, step.explain()
    return losses, [p.detach().numpy() for p in (*model.parameters(), *model.buffers())]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", ["images", "words"])
def test_a_network_learns_as_on_the_cpu_and_twice_the_same(device, what):
    """Atomics add an embedding's gradient in any order: words are learnt the same but for that."""
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    losses, values = trained(what, "cuda", 20)
    expected_losses, expected = trained(what, "cpu", 20)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-3)
    for got, want in zip(values, expected, strict=True):
        finite = np.isfinite(want)  # a mask is not
        assert (finite == np.isfinite(got)).all()
        got, want = got[finite], want[finite]
        assert np.abs(got - want).mean() <= 1e-3 * max(np.abs(want).max(), 1e-2)
    again, same = trained(what, "cuda", 20)
    if what == "words":
        np.testing.assert_allclose(again, losses, rtol=1e-4)
    else:
        assert again == losses and all(map(np.array_equal, same, values))


def test_threads_share_the_device(device):
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    f = jit.trace(lambda x: (x * 2 + 1).relu().sum(1), target="cuda")
    for _ in range(3):
        f(lamina.randn(500, 300))
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = lamina.randn(500, 300, generator=lamina.Generator().manual_seed(seed))
        want = np.maximum(x.numpy() * 2 + 1, 0).sum(1)
        for _ in range(50):
            if not np.allclose(f(x).numpy(), want, rtol=1e-4):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_that_torch_holds_and_ours_live_in_one_process(device):
    torch = pytest.importorskip("torch", reason="no torch here")
    if not torch.cuda.is_available():
        pytest.skip("this torch sees no GPU")
    f = jit.trace(lambda x, y: (x @ y).relu() + 1, target="cuda")
    for _ in range(5):
        x, y = lamina.randn(65, 33), lamina.randn(33, 70)
        theirs = torch.relu(torch.from_numpy(x.numpy()).cuda() @ torch.from_numpy(y.numpy()).cuda()) + 1
        np.testing.assert_allclose(f(x, y).numpy(), theirs.cpu().numpy(), atol=1e-4)


@pytest.mark.parametrize(
    "precision, least, most", [("tf32", 1e-5, 2e-3), ("tf32x3", 0, 3e-6), ("float32", 0, 2e-6)]
)
def test_products_of_float32_are_rounded_as_far_as_was_asked_for(device, precision, least, most):
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    rng = np.random.default_rng(0)
    x, y = (lamina.tensor(rng.standard_normal((1030, 1030)).astype(np.float32)) for _ in range(2))
    wanted = x.numpy().astype(np.float64) @ y.numpy().astype(np.float64)
    f = jit.trace(lambda x, y: x @ y, target="cuda", precision=precision)
    f(x, y)
    error = np.abs(f(x, y).numpy() - wanted).max() / np.abs(wanted).max()
    assert f.counts()["served"] == 1 and least <= error <= most


# ---- what loses a device, in processes of their own
def _in_child(connection, work) -> None:
    try:
        work()
        connection.send("went well")
    except DeviceError as error:
        connection.send(str(error))


def said_by(work, how: str = "spawn") -> str:
    """What a process says that does some work with the device."""
    context = multiprocessing.get_context(how)
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_child, args=(theirs, work))
    process.start()
    theirs.close()
    said = ours.recv() if ours.poll(60) else "nothing, for a minute"
    process.join(60)
    return said


def use_device() -> None:
    machine().allocate(1 << 20)


def read_where_nothing_is() -> None:
    from lamina.runtime.triton_compiler import compiled

    here, kernel = machine(), PROBES["add"].kernel
    code = generate(kernel)
    (function,) = here.functions([code], compiled([code], Target.named(here.target)))
    here.stream.launch(function, code.grid, 1 << 45, 1 << 46, 1 << 47, about="an op of the user's")
    here.stream.synchronize()


def test_a_forked_child_is_refused(device):
    assert "a forked process" in said_by(use_device, "fork")
    assert said_by(use_device) == "went well"


def test_a_kernel_that_reads_where_nothing_is_loses_its_process_and_is_named(device):
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    said = said_by(read_where_nothing_is)
    assert "ILLEGAL_ADDRESS" in said and "an op of the user's" in said, said
    assert said_by(use_device) == "went well"


@pytest.mark.parametrize("part", range(PARTS))
def test_records_on_tensors_of_the_device(device, part):
    assert check_part(part, PARTS) > 20
