"""Streams that users make: what is queued where, who waits for whom, memory that several use, backward.

On the fake driver, which knows what comes before what: what nothing orders fails, whatever order it took.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest
from fake_cuda import Fake, on_fake

import lamina
from lamina import cuda, nn
from lamina.ir.errors import ArgumentValueError, DeviceError, DimError
from lamina.runtime.cuda.machine import machine


def interpreted(fake: Fake) -> list[str]:
    from cuda_interpreting import interpret_launches

    return interpret_launches(fake)


def same(found, wanted) -> None:
    np.testing.assert_allclose(found.detach().cpu().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


def ready(*tensors):
    """The tensors on the device, where every stream may read them."""
    made = tuple([x.cuda() for x in tensors])
    cuda.synchronize()
    return made if len(made) > 1 else made[0]


@on_fake(devices=2)
def test_a_stream_is_current_for_a_block_and_a_thread(fake: Fake):
    interpreted(fake)
    first, second, other = cuda.Stream(), cuda.Stream(), cuda.Stream("cuda:1")
    default = cuda.current_stream()
    assert default == cuda.default_stream() and default.stream_id == 0 and first != second
    assert len({s.cuda_stream for s in (default, first, second, other)}) == 4
    assert first.cuda_stream == first.queue.handle and first.__cuda_stream__() == (0, first.cuda_stream)
    with cuda.stream(first):
        assert cuda.current_stream() == first and machine().stream is first.queue
        with cuda.stream(other):
            assert cuda.current_device() == 1 and cuda.current_stream() == other
            assert cuda.current_stream("cuda:0") == first
            assert lamina.ones(2, device="cuda").device == lamina.device("cuda:1")
        with second:
            assert cuda.current_stream() == second
        with cuda.stream(None):
            assert cuda.current_stream() == first
        seen = []
        thread = threading.Thread(target=lambda: seen.append(cuda.current_stream()))
        thread.start()
        thread.join()
        assert seen == [default]
        with pytest.raises(KeyError), cuda.stream(second):
            raise KeyError
        assert cuda.current_stream() == first and cuda.current_device() == 0
    assert cuda.current_stream() == default and machine().stream is default.queue
    cuda.set_stream(second)
    assert machine().stream is second.queue
    cuda.set_stream(default)
    assert machine().stream is default.queue
    numbers = [cuda.Stream().stream_id for _ in range(32)]  # a pool, from which they are handed out in turn
    assert numbers[:30] == [*range(3, 33)] and numbers[30:] != [33, 34] and max(numbers) == 32


@on_fake()
def test_what_nothing_orders_is_an_error_of_the_fake(fake: Fake):
    """The net of this file: each of these misses a wait."""
    interpreted(fake)
    s, t = cuda.Stream(), cuda.Stream()

    def read_too_early():
        with cuda.stream(s):
            y = x * 2
        return y + 1

    def written_while_read():
        with cuda.stream(s):
            y = x * 2
        x.add_(1)
        return y

    def fetched_too_early():
        with cuda.stream(s):
            y = x * 2
        return y.cpu()

    def freed_too_early():
        with cuda.stream(s):
            s.wait_stream(cuda.default_stream())
            y = (big := lamina.ones(300_000, device="cuda")) * 1
            t.wait_stream(s)
            with cuda.stream(t):
                z = big * 2  # and no big.record_stream(t)
            place = big.data_ptr()
            del big
            assert lamina.zeros(300_000, device="cuda").data_ptr() == place
        return y, z

    for act in (read_too_early, written_while_read, fetched_too_early, freed_too_early):
        x = ready(lamina.arange(4.0))
        fake.forgive()
        before, _ = fake.races()
        kept = act()
        cuda.synchronize()
        after, text = fake.races()
        assert after > before and "without a wait between" in text, (act.__name__, text)
        del kept
        fake.forgive(False)
    x = ready(lamina.arange(4.0))
    read_too_early()
    with pytest.raises(DeviceError, match="(?i)launch_?fail"):
        cuda.synchronize()
    fake.forgive()


@on_fake()
def test_waits_order_streams(fake: Fake):
    interpreted(fake)
    s, t = cuda.Stream(), cuda.Stream()
    x = lamina.arange(6.0)
    for seed in range(6):
        fake.seed(seed)
        y = x.cuda()  # on the default stream
        s.wait_stream(cuda.current_stream())
        with cuda.stream(s):
            z = y * 2 + 1.5
            event = s.record_event()
            total = z.sum()
        with cuda.stream(t):
            t.wait_event(event)
            w = z[:3].exp()
        done = cuda.Event()
        done.record(t)
        done.wait()  # the current stream
        cuda.current_stream().wait_stream(s)
        same(w + 1, (x * 2 + 1.5)[:3].exp() + 1)
        assert total.item() == (x * 2 + 1.5).sum().item()
        cuda.synchronize()


@on_fake()
def test_events_tell_and_are_waited_for(fake: Fake):
    interpreted(fake)
    x = ready(lamina.ones(8))
    s = cuda.Stream()
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    assert begin.query()  # of nothing
    with cuda.stream(s):
        begin.record()
        y = x * 2
        end.record()
    assert not end.query() and not s.query()
    end.synchronize()
    assert end.query() and begin.elapsed_time(end) > 0
    assert y.tolist() == [2.0] * 8  # the host waited, so what comes now comes after
    s.synchronize()
    assert s.query()
    with pytest.raises(ArgumentValueError, match="enable_timing"):
        cuda.Event().elapsed_time(end)


@on_fake(devices=2)
def test_an_event_belongs_to_a_device(fake: Fake):
    event = cuda.Event()
    event.record(cuda.Stream("cuda:1"))
    assert event.device == lamina.device("cuda:1")
    with pytest.raises(ArgumentValueError, match="does not match recording stream's device"):
        event.record(cuda.Stream("cuda:0"))
    cuda.Stream("cuda:0").wait_event(event)  # of another device: that is allowed


@on_fake()
def test_memory_that_was_recorded_waits_for_the_other_stream(fake: Fake):
    interpreted(fake)
    s = cuda.Stream()
    for seed in range(4):
        fake.seed(seed)
        x = lamina.ones(300_000, device="cuda")
        s.wait_stream(cuda.current_stream())
        with cuda.stream(s):
            y = x * 2
        x.record_stream(s)
        place = x.data_ptr()
        del x
        other = lamina.zeros(300_000, device="cuda")
        if not seed:
            assert other.data_ptr() != place  # s has not come so far
        cuda.synchronize()
        assert y.sum().item() == 600_000 and other.sum().item() == 0
        del y, other
    # what is freed on a stream serves that one alone, small blocks too
    with cuda.stream(s):
        small = lamina.ones(16, device="cuda")
        place = small.data_ptr()
        del small
    assert all(lamina.ones(16, device="cuda").data_ptr() != place for _ in range(3))
    with cuda.stream(s):
        assert lamina.ones(16, device="cuda").data_ptr() == place
    cuda.synchronize()


@on_fake()
def test_numbers_and_constants_are_there_for_every_stream(fake: Fake):
    """They are kept, and were copied to the device on whichever stream met them first."""
    interpreted(fake)
    x, i = ready(lamina.arange(6.0), lamina.tensor([1, 2]))
    before = x * 1.25  # a number that is there before the first stream is
    s, t = cuda.Stream(), cuda.Stream()
    for seed in range(3):
        fake.seed(seed)
        with cuda.stream(s):
            y = x * 1.25 + (2.5 + seed)
        with cuda.stream(t):
            z = x * 1.25 + (2.5 + seed)
            w = (i + 3).float().mean()
        cuda.current_stream().wait_stream(s)
        cuda.current_stream().wait_stream(t)
        same(y - z + before, lamina.arange(6.0) * 1.25)
        assert w.item() == 4.5
        later = cuda.Stream()
        with cuda.stream(later):
            v = x * 1.25
        later.synchronize()
        same(v, before.cpu())
        cuda.synchronize()


@on_fake()
def test_an_index_out_of_range_is_told_by_its_own_stream(fake: Fake):
    interpreted(fake)
    x, i = ready(lamina.ones(5, 3), lamina.tensor([0, 7]))
    s = cuda.Stream()
    with cuda.stream(s):
        x[i]
    assert x.sum().item() == 15  # of the default stream
    with pytest.raises(DimError, match="out of range"):
        s.synchronize()
    with cuda.stream(s):
        x[i]
    with pytest.raises(DimError, match="out of range"):
        cuda.synchronize()
    cuda.synchronize()


@on_fake()
def test_backward_runs_on_the_streams_of_forward(fake: Fake):
    interpreted(fake)
    s, t = cuda.Stream(), cuda.Stream()
    lamina.manual_seed(0)
    layer, x = nn.Linear(4, 3), lamina.randn(5, 4)
    wanted = ((layer(x).relu() ** 2).sum() + layer.weight.sum()) * 2
    gradient = lamina.autograd.grad(wanted, layer.weight)[0]
    for seed in range(4):
        fake.seed(seed)
        beside = nn.Linear(4, 3)
        beside.load_state_dict(layer.state_dict())
        beside.cuda()
        y = ready(x)
        seen = []
        with cuda.stream(s):
            h = Noting.apply(beside(y), seen).relu()
        t.wait_stream(s)
        h.record_stream(t)
        with cuda.stream(t):
            g = (h * h).sum()
        cuda.current_stream().wait_stream(s)
        cuda.current_stream().wait_stream(t)
        ((g + beside.weight.sum()) * 2).backward()
        assert seen == [s] and cuda.current_stream().stream_id == 0
        same(beside.weight.grad, gradient)
        with cuda.stream(s):  # and called from another stream
            s.wait_stream(cuda.default_stream())
            s.wait_stream(t)
            beside.zero_grad()
            (beside(y).relu() ** 2).sum().mul(2).backward()
            found = beside.weight.grad.cpu()
        same(found, gradient - 2)
        cuda.synchronize()


class Noting(lamina.autograd.Function):
    """Notes which stream its backward runs on."""

    @staticmethod
    def forward(ctx, x, seen):
        ctx.seen = seen
        return x * 1

    @staticmethod
    def backward(ctx, g):
        ctx.seen.append(cuda.current_stream())
        return g * 1, None


@on_fake()
def test_traced_functions_and_optimizers_run_on_the_current_stream(fake: Fake):
    interpreted(fake)
    s = cuda.Stream()
    model = nn.Linear(4, 2).cuda()
    optimizer = lamina.optim.AdamW(model.parameters(), lr=1e-3)
    x = ready(lamina.ones(3, 4))

    @lamina.jit.trace
    def step(x):
        optimizer.zero_grad()
        loss = (model(x) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x).item() for _ in range(2)]
    s.wait_stream(cuda.current_stream())
    with cuda.stream(s):
        losses += [step(x).item() for _ in range(2)]
    cuda.current_stream().wait_stream(s)
    losses += [step(x).item() for _ in range(2)]
    assert losses == sorted(losses, reverse=True)
    cuda.synchronize()


@on_fake()
def test_what_is_ordered_by_kernels_is_so_on_the_current_stream(fake: Fake):
    interpreted(fake)
    x = ready(lamina.tensor([3.0, 1.0, 2.0]))
    x.sort()  # on the default stream first
    s = cuda.Stream()
    for seed in range(3):
        fake.seed(seed)
        with cuda.stream(s):
            values, places = (x * 2).sort()
            kept = x[x > 1.5]
        cuda.current_stream().wait_stream(s)
        assert values.tolist() == [2, 4, 6] and places.tolist() == [1, 2, 0] and kept.tolist() == [3, 2]
        cuda.synchronize()


class Prefetched:
    """Batches that are copied and scaled on a stream of their own, ahead of who asks for them."""

    def __init__(self, batches):
        self._batches, self._stream = iter(batches), cuda.Stream()
        self._load()

    def _load(self):
        self._next = next(self._batches, None)
        if self._next is not None:
            x, y = self._next
            with cuda.stream(self._stream):
                x, y = x.pin_memory().cuda(non_blocking=True), y.pin_memory().cuda(non_blocking=True)
                self._next = x.float() / 255, y

    def __iter__(self):
        while self._next is not None:
            cuda.current_stream().wait_stream(self._stream)
            found = self._next
            for x in found:
                x.record_stream(cuda.current_stream())
            self._load()
            yield found


def trained(device: str, batches) -> list[float]:
    lamina.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
    optimizer, losses = lamina.optim.Adam(model.parameters(), lr=1e-2), []
    for x, y in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


@on_fake()
def test_batches_are_copied_on_another_stream_while_a_network_trains(fake: Fake):
    interpreted(fake)
    lamina.manual_seed(0)
    batches = [(lamina.randint(0, 255, (6, 8)).byte(), lamina.randint(0, 3, (6,))) for _ in range(4)]
    wanted = trained("cpu", [(x.float() / 255, y) for x, y in batches])
    for seed in range(3):
        fake.seed(seed)
        np.testing.assert_allclose(trained("cuda", Prefetched(batches)), wanted, rtol=1e-4)
        cuda.synchronize()


@on_fake(devices=2)
def test_a_network_on_two_devices_has_a_stream_on_each(fake: Fake):
    interpreted(fake)
    first, second = nn.Linear(4, 8), nn.Linear(8, 2)
    x = lamina.randn(6, 4)
    second(first(x)).sum().backward()
    wanted = first.weight.grad, second.weight.grad
    first.zero_grad()
    second.zero_grad()
    first.to(0)
    second.to(1)
    streams = cuda.Stream(0), cuda.Stream(1)
    found = []
    for i in (0, 1):
        cuda.synchronize(i)
    for part in x.chunk(3):
        with cuda.stream(streams[0]):
            h = first(part.to(0))
            with cuda.stream(streams[1]):
                found.append(second(h.to(1)))
    cuda.current_stream(1).wait_stream(streams[1])
    lamina.cat(found).sum().backward()
    same(first.weight.grad, wanted[0])
    same(second.weight.grad, wanted[1])
