"""Tensors in memory that processes share: what one writes the others see, however it came to them."""

import copy
import gc
import multiprocessing
import os
import pickle
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import lamina
import lamina.multiprocessing as mp
from lamina import nn, optim
from lamina.ir.errors import ArgumentValueError, DeviceError, StateError
from lamina.runtime import shared_memory

if not hasattr(os, "memfd_create"):
    pytest.skip("this system has no anonymous shared memory", allow_module_level=True)
spawned = mp.get_context("spawn")


def mappings():
    """How many pieces of shared memory this process has mapped, and how many descriptors of them open."""
    mapped = Path("/proc/self/maps").read_text().count("memfd:lamina-tensors")
    opened = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            opened += "memfd:lamina-tensors" in os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass
    return mapped, opened


def run(target, *args, context=spawned):
    process = context.Process(target=target, args=args, daemon=True)
    process.start()
    process.join(60)
    assert process.exitcode == 0


def add_one(*tensors):
    for x in tensors:
        assert x.is_shared()
        with lamina.no_grad():
            x += 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_what_a_process_writes_is_seen(method):
    x = lamina.arange(6.0).reshape(2, 3).clone().share_memory_()
    weight = nn.Parameter(lamina.ones(3)).share_memory_()
    run(add_one, x, weight, x[1:], context=mp.get_context(method))
    assert x.tolist() == [[1, 2, 3], [5, 6, 7]]
    assert weight.tolist() == [2, 2, 2]


def inspect(x, weight, view, plain):
    assert type(weight) is nn.Parameter and weight.requires_grad and weight.note == "kept"
    assert x.dtype is lamina.bfloat16 and x.stride() == (1, 2)
    assert plain.is_shared()  # as all that a process is started with
    view.zero_()
    assert (x[1] == 0).all() and (x[0] != 0).all()  # one memory here, too
    with lamina.no_grad():
        weight.copy_(lamina.full((2,), 5.0))


def test_kind_and_layout_arrive_and_views_stay_views():
    x = lamina.ones(3, 2, dtype=lamina.bfloat16).t().clone(memory_format=lamina.preserve_format)
    x.share_memory_()
    assert x.stride() == (1, 2)
    weight = nn.Parameter(lamina.zeros(2)).share_memory_()
    weight.note = "kept"
    run(inspect, x, weight, x[1], lamina.ones(2))
    assert x[1].tolist() == [0, 0, 0] and x[0].tolist() == [1, 1, 1]
    assert weight.tolist() == [5, 5]


def answer(inbox, outbox):
    while (x := inbox.get()) is not None:
        x.mul_(2)
        outbox.put(x)


def test_queues_hand_on_the_memory_itself():
    """There and back it is the same tensor's memory, mapped once; and none is left afterwards."""
    gc.collect()
    before = mappings()
    inbox, outbox = spawned.Queue(), spawned.Queue()
    process = spawned.Process(target=answer, args=(inbox, outbox), daemon=True)
    process.start()
    x = lamina.ones(1000).share_memory_()
    alone = mappings()
    assert alone[0] == before[0] + 1
    for n in range(3):
        inbox.put(x)
        back = outbox.get(timeout=60)
        assert back.is_shared() and back.data_ptr() == x.data_ptr()
        assert x[0] == 2 ** (n + 1)
    assert mappings() == alone
    inbox.put(lamina.ones(2))  # not shared: a copy
    assert not outbox.get(timeout=60).is_shared()
    inbox.put(None)
    process.join(60)
    del x, back
    gc.collect()
    assert mappings() == before


def total(x):
    x[0] = 100.0
    return x.sum()


def test_pools_take_shared_tensors():
    x = lamina.ones(4).share_memory_()
    with spawned.Pool(1) as pool:
        assert pool.apply(total, (x,)) == 103
    assert x[0] == 100


def test_copies_are_copies():
    x = lamina.ones(3).share_memory_()
    for other in (x.clone(), copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x + 0):
        assert not other.is_shared()
        assert (other == x).all()
    assert x.is_shared() and x[1:].is_shared() and x.detach().is_shared()
    assert not lamina.ones(3).is_shared()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3)])
@pytest.mark.parametrize(
    "dtype", [lamina.float64, lamina.bfloat16, lamina.bool, lamina.int8, lamina.complex64]
)
def test_every_size_and_dtype_is_shared(shape, dtype):
    x = lamina.ones(*shape, dtype=dtype) if shape else lamina.tensor(1, dtype=dtype)
    assert x.share_memory_() is x
    assert x.is_shared() and x.shape == shape and x.dtype is dtype and bool((x == 1).all())


def test_modules_are_shared_in_one_block():
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 8))
    model[2].weight = nn.Parameter(model[2].weight.detach().clone())
    model(lamina.ones(2, 4)).sum().backward()
    before = {name: x.clone() for name, x in model.state_dict().items()}
    assert model.share_memory() is model
    assert all(x.is_shared() for x in (*model.parameters(), *model.buffers()))
    assert all(p.grad.is_shared() for p in model.parameters())
    assert len({id(shared_memory.block_of(x._data)) for x in model.parameters()}) == 1
    assert all((before[name] == x).all() for name, x in model.state_dict().items())
    places = [p.data_ptr() for p in model.parameters()]
    model.share_memory()
    assert [p.data_ptr() for p in model.parameters()] == places
    with pytest.raises(ArgumentValueError, match="uninitialized"):
        nn.LazyLinear(2).share_memory()


def test_memory_that_others_see_is_refused():
    x = lamina.zeros(3)
    for see in (lambda: x[1:], x.detach, lambda: x.data, x.numpy):
        seen = see()
        with pytest.raises(StateError) as refused:
            x.share_memory_()
        del seen
    text = str(refused.value)
    del refused  # its frames have the memory, too
    assert text == (
        "share_memory_(): others see this tensor's memory, and would be left behind\n  tensor: f32[3]\n"
        "  share it before views, x.detach(), x.data or arrays of it are made; or x.clone()"
    )
    gc.collect()
    assert x.share_memory_().is_shared()
    with pytest.raises(StateError):
        lamina.zeros(3)[1:].share_memory_()
    with pytest.raises(DeviceError, match="no memory of the CPU"):
        lamina.zeros(3, device="meta").share_memory_()


@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.Adam(p)])
def test_optimizers_write_where_the_others_see_it(make):
    """Eagerly and compiled, and what is compiled sees what others write."""
    model = nn.Linear(3, 2)
    model.share_memory()
    optimizer = make(model.parameters())
    places = [p.data_ptr() for p in model.parameters()]

    @lamina.jit.trace
    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss

    x = lamina.ones(4, 3)
    for n in range(6):
        before = [p.clone() for p in model.parameters()]
        (step if n else step.__wrapped__)(x)
        assert [p.data_ptr() for p in model.parameters()] == places
        assert not any(bool((p == b).all()) for p, b in zip(model.parameters(), before, strict=True))
    predict = lamina.jit.trace(model)
    with lamina.no_grad():
        for n in range(6):
            run_in_fork(lambda n=n: model.weight.fill_(float(n)))
            wanted = 3 * n + model.bias
            np.testing.assert_allclose(predict(x)[0].numpy(), wanted.numpy(), rtol=1e-6)  # three roundings


def run_in_fork(function):
    pid = os.fork()
    if pid == 0:
        try:
            with lamina.no_grad():
                function()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def train(rank, model, rounds):
    """A worker of Hogwild: it reads and writes the common weights when it likes."""
    lamina.manual_seed(rank)
    optimizer = optim.SGD(model.parameters(), lr=0.02)
    for _ in range(rounds):
        x = lamina.randn(16, 4)
        y = x @ lamina.tensor([[1.0], [-2.0], [3.0], [0.5]]) + 1
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()


def test_four_processes_train_one_model_without_locks():
    """By processes of multiprocessing, and then by ranks of spawn."""
    lamina.manual_seed(0)
    model = nn.Linear(4, 1)
    model.share_memory()
    workers = [spawned.Process(target=train, args=(n, model, 40), daemon=True) for n in range(2)]
    for worker in workers:
        worker.start()
    mp.spawn(train, (model, 40), nprocs=2)
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    # 160 steps bring each weight's error below (1 - 0.04)^160 = 0.0015 of the 5 that it may have been; one
    # process alone would leave 0.2 of it, and none all.
    wanted = lamina.tensor([1.0, -2.0, 3.0, 0.5])
    assert (model.weight[0] - wanted).abs().max() < 0.25
    assert (model.bias - 1).abs().max() < 0.25


KILLED = """
import os, sys, time
import lamina
import lamina.multiprocessing as mp

def work(x):
    x.fill_(1.0)
    print("child", os.getpid(), flush=True)
    time.sleep(60)

if __name__ == "__main__":
    x = lamina.zeros(1000).share_memory_()
    process = mp.get_context("spawn").Process(target=work, args=(x,), daemon=True)
    process.start()
    time.sleep(60)
"""


def test_nothing_is_left_in_dev_shm_when_all_are_killed(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(KILLED))
    before = set(os.listdir("/dev/shm"))
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as begun:
        child = int(re.match(r"child (\d+)", begun.stdout.readline())[1])
        ours = [name for name in set(os.listdir("/dev/shm")) - before if has_open(name, (begun.pid, child))]
        for pid in (begun.pid, child):
            os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + 10
    while Path(f"/proc/{child}").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not [name for name in ours if Path("/dev/shm", name).exists()]


def has_open(name, pids):
    """Whether one of these processes has such a file of /dev/shm mapped."""
    return any(f"/dev/shm/{name}" in Path(f"/proc/{pid}/maps").read_text() for pid in pids)


def test_plain_multiprocessing_hands_them_on_too():
    x = lamina.zeros(2).share_memory_()
    run(add_one, x, context=multiprocessing.get_context("spawn"))
    assert x.tolist() == [1, 1]


def _write(*tensors):
    for number, x in enumerate(tensors):
        x += number


def test_what_a_process_is_started_with_is_shared_with_it():
    """As PyTorch has it where it pickles, for who reads results there; what others see stays where it is."""
    tensors = [lamina.zeros(3) for _ in range(1500)]  # more than a process may have descriptors
    seen = lamina.ones(3)
    view = seen[1:]
    process = spawned.Process(target=_write, args=(*tensors, seen), daemon=True)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert all(x.eq(number).all() for number, x in enumerate(tensors))
    assert seen.eq(1).all() and view.eq(1).all()
