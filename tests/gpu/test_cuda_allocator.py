"""The caching allocator: over a simulated device, beside a model; and bugs planted, which the model sees."""

from __future__ import annotations

import gc
import linecache
import os
import random
import sys
import threading

import numpy as np
import pytest
from allocator_world import MIB, SIZES, World, exercise, step
from fake_cuda import Fake, on_fake
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from simulated_device import SimulatedStream

from lamina.ir.errors import ArgumentValueError, DeviceError, OutOfMemoryError
from lamina.runtime.cuda import allocator as module
from lamina.runtime.cuda import pieces
from lamina.runtime.cuda.allocator import Allocator, Block
from lamina.runtime.cuda.pieces import Piece, Pool

# ---- the policy


@pytest.mark.parametrize(
    "nbytes, segment",
    [(1, 2 * MIB), (MIB, 2 * MIB), (MIB + 1, 20 * MIB), (10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB),
     (10 * MIB - 1, 10 * MIB), (10 * MIB + 1, 12 * MIB), (2049 * MIB, 2050 * MIB)],
)  # fmt: skip
def test_segments_have_pytorchs_sizes(nbytes, segment):
    world = World()
    world.allocate(nbytes, world.streams[0])
    assert list(world.device.segments.values()) == [segment]


def test_small_requests_share_a_segment_and_large_ones_their_own():
    world = World()
    for _ in range(4):
        world.allocate(512 << 10, world.streams[0])  # 4 fill a segment
    assert len(world.device.segments) == 1
    world.allocate(1, world.streams[0])
    assert len(world.device.segments) == 2
    world.allocate(2 * MIB, world.streams[0])
    world.allocate(8 * MIB, world.streams[0])
    assert len(world.device.segments) == 3


def test_a_rest_is_kept_from_512_bytes_in_small_and_beyond_1_mib_in_large_segments():
    world = World()
    block = world.allocate(10 * MIB + 1, world.streams[0])
    assert block.size == 10 * MIB + 512  # of 12 MiB
    block = world.allocate(11 * MIB, world.streams[0])
    assert block.size == 12 * MIB
    for _ in range(3):
        world.allocate(512 << 10, world.streams[0])
    assert world.allocate((512 << 10) - 512, world.streams[0]).size == (512 << 10) - 512
    assert world.allocate(512, world.streams[0]).size == 512
    assert len(world.device.segments) == 3


def test_the_best_fit_serves_and_of_equal_ones_the_last_freed():
    world = World()
    stream = world.streams[0]
    blocks = [world.allocate(size, stream) for size in (4096, 512, 2048, 512, 1024, 512, 2048, 512)]
    for k in (0, 2, 4, 6):
        world.free(blocks[k])
    assert world.allocate(1000, stream).address == blocks[4].address
    assert world.allocate(2000, stream).address == blocks[6].address
    assert world.allocate(1500, stream).address == blocks[2].address
    assert world.allocate(1500, stream).address == blocks[0].address


def test_what_runs_again_asks_the_device_for_nothing():
    world = World()
    for _ in range(5):
        calls = world.device.calls
        for block in [world.allocate(size, world.streams[0]) for size in SIZES]:
            world.free(block)
    assert world.device.calls == calls


def test_the_best_fit_is_not_looked_for_among_the_pieces():
    class Counted(int):
        looks = 0

        def __lt__(self, other):
            Counted.looks += 1
            return int(self) < other

        __hash__ = int.__hash__

    def looks(count: int) -> int:
        pool = Pool(None, 512)
        for k in range(count):
            pool.give_back(Piece(1024 * k, Counted(512 * (1 + k % 100)), pool))
        Counted.looks = 0
        piece = pool.take(512 * 50)
        assert piece.size == 512 * 50
        pool.give_back(piece)
        return Counted.looks

    assert looks(20_000) == looks(200) < 40


def test_streams_have_pools_of_their_own():
    world = World()
    one, two = world.streams[:2]
    block = world.allocate(4096, one)
    world.free(block)
    assert world.allocate(4096, two).address != block.address
    assert world.allocate(4096, one).address == block.address


# ---- other streams


def test_a_block_that_another_stream_used_waits_for_its_event():
    world = World()
    one, two = world.streams[:2]
    block = world.allocate(4096, one)
    world.touch(block, two)
    world.free(block)
    found = world.allocator.statistics()
    assert found["active_bytes.all.current"] == 4096 and found["allocated_bytes.all.current"] == 0
    assert world.allocate(4096, one).address != block.address
    two.advance(1)
    assert world.allocate(4096, one).address == block.address


def test_every_stream_that_used_a_block_is_waited_for():
    world = World()
    one, two, three = world.streams
    block = world.allocate(4096, one)
    world.touch(block, two)
    world.touch(block, three)
    world.free(block)
    three.advance(1)
    assert world.allocate(4096, one).address != block.address
    two.advance(1)
    assert world.allocate(4096, one).address == block.address


def test_an_event_is_recorded_when_the_block_is_freed():
    world = World()
    one, two = world.streams[:2]
    block = world.allocate(4096, one)
    world.touch(block, two)
    two.advance(1)
    world.touch(block, two)
    world.free(block)
    assert world.allocate(4096, one).address != block.address


def test_use_by_its_own_stream_needs_no_event():
    world = World()
    block = world.allocate(4096, world.streams[0])
    world.touch(block, world.streams[0])
    calls = world.device.calls
    world.free(block)
    assert world.device.calls == calls


def test_a_failed_record_keeps_the_block_out_of_use_until_one_succeeds():
    world = World()
    one, two = world.streams[:2]
    block = world.allocate(4096, one)
    world.touch(block, two)

    def broken(what):
        raise DeviceError("the device is lost")

    world.device.called_back = broken
    world.free(block)  # a finalizer might have called it: it doesn't raise
    with pytest.raises(DeviceError, match="the device is lost"):
        world.allocate(4096, one)
    world.device.called_back = None
    assert world.allocate(4096, one).address != block.address
    world.check()
    world.finish()


# ---- full devices


def test_a_full_device_gives_what_events_bring_back():
    world = World(2 * MIB)
    one, two = world.streams[:2]
    block = world.allocate(MIB, one)
    kept = world.allocate(1024, one)  # so that the segment can't be released
    world.allocate(MIB - 1024, one)
    world.touch(block, two)
    world.free(block)
    assert world.allocate(MIB, one).address == block.address
    assert world.allocator.statistics()["num_alloc_retries"] == 1
    assert kept in world.live
    world.check()


def test_a_full_device_gives_what_other_streams_cached():
    world = World(21 * MIB)
    one, two = world.streams[:2]
    world.free(world.allocate(20 * MIB, one))
    assert world.allocate(15 * MIB, two) is not None
    assert world.allocator.statistics()["num_device_free"] == 1
    world.check()


def test_garbage_in_circles_is_collected_before_a_request_fails():
    world = World(20 * MIB)
    block = world.allocate(20 * MIB, world.streams[0])

    class Holder:
        def __init__(self):
            self.itself = self

        def __del__(self):
            world.free(block)

    gc.disable()
    try:
        Holder()
        assert world.allocate(20 * MIB, world.streams[0]) is not None
    finally:
        gc.enable()


def test_a_request_beyond_the_device_keeps_the_cache():
    world = World(64 * MIB)
    world.free(world.allocate(20 * MIB, world.streams[0]))
    for nbytes in (65 * MIB, 1 << 63, 1 << 80):
        with pytest.raises(OutOfMemoryError, match="the device can't hold it"):
            world.allocator.allocate(nbytes, world.streams[0])
    assert world.device.used == 20 * MIB
    assert world.allocator.statistics()["num_ooms"] == 3


def refusal(world: World, nbytes: int) -> str:
    with pytest.raises(OutOfMemoryError) as caught:
        world.allocator.allocate(nbytes, world.streams[0])
    return str(caught.value)


def test_the_error_says_where_the_memory_is():
    world = World(64 * MIB)
    world.allocate(40 * MIB, world.streams[0])
    assert refusal(world, 30 * MIB) == (
        "the device has no 30.00 MiB left\n"
        "  a simulated device: 64.00 MiB in all, 24.00 MiB free\n"
        "  allocated: 40.00 MiB in 1 blocks\n"
        "  reserved:  40.00 MiB; the largest free block for this stream and size: 0 bytes\n"
        "  other processes and the driver hold 0 bytes\n"
        "  drop results that are no longer needed before this, or use a smaller batch"
    )


def test_the_error_tells_pieces_from_a_lack_of_memory():
    world = World(21 * MIB)
    stream = world.streams[0]
    blocks = [world.allocate(5 * MIB, stream) for _ in range(4)]
    world.free(blocks[0])
    world.free(blocks[2])
    text = refusal(world, 8 * MIB)
    assert "the largest free block for this stream and size: 5.00 MiB" in text
    assert text.endswith(
        "10.00 MiB are free, but between blocks in use: "
        "allocate what lives long first, and batches of one size"
    )


def test_the_error_names_other_processes_when_they_hold_the_memory():
    world = World(64 * MIB)
    world.device.elsewhere = 50 * MIB
    text = refusal(world, 30 * MIB)
    assert "other processes and the driver hold 50.00 MiB" in text
    assert text.endswith(
        "end the other processes on this device (nvidia-smi lists them), or use smaller parts"
    )


# ---- mistakes


def test_no_bytes_take_no_memory():
    world = World()
    block = world.allocate(0, world.streams[0])
    assert (block.address, block.nbytes, block.size) == (0, 0, 0)
    assert world.device.calls == 0
    world.allocator.used_by(block, world.streams[1])
    world.check()
    world.free(block)
    with pytest.raises(ArgumentValueError, match="the block is not in use"):
        world.allocator.free(block)
    with pytest.raises(ArgumentValueError, match="can't have -1 bytes"):
        world.allocator.allocate(-1, world.streams[0])


def test_a_block_is_freed_once_by_its_own_allocator():
    world, other = World(), World()
    block = world.allocate(4096, world.streams[0])
    with pytest.raises(ArgumentValueError, match="free.block.: the block is not in use"):
        other.allocator.free(block)
    with pytest.raises(ArgumentValueError, match="used_by.block.: the block is not in use"):
        other.allocator.used_by(block, world.streams[0])
    world.free(block)
    again = world.allocate(4096, world.streams[0])
    assert again.address == block.address
    with pytest.raises(ArgumentValueError, match=f"4096 bytes at {block.address:#x}\n.*it was freed before"):
        world.allocator.free(block)  # not even where another block has its memory
    with pytest.raises(ArgumentValueError, match="not in use"):
        world.allocator.used_by(block, world.streams[1])
    world.check()
    world.finish()


def test_two_threads_that_free_one_block_do_it_once():
    world = World()
    refused = []

    def free(block, start):
        start.wait()
        try:
            world.allocator.free(block)
        except ArgumentValueError:
            refused.append(block)

    for _ in range(50):
        block, start = world.allocator.allocate(4096, world.streams[0]), threading.Barrier(2)
        threads = [threading.Thread(target=free, args=(block, start)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(refused) == 50
    world.check_pieces()


def test_peaks_begin_anew():
    world = World()
    world.free(world.allocate(4096, world.streams[0]))
    assert world.allocator.statistics()["allocated_bytes.all.peak"] == 4096
    world.allocator.reset_peak_statistics()
    found = world.allocator.statistics()
    assert found["allocated_bytes.all.peak"] == 0 and found["reserved_bytes.all.peak"] == 2 * MIB


def test_streams_do_not_live_on_in_empty_pools():
    world = World()
    world.free(world.allocate(4096, world.streams[0]))
    assert world.allocator._pools
    world.allocator.empty_cache()
    assert not world.allocator._pools


# Python's warning is of what is tested here.
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_leaves_the_memory_alone():
    world = World()
    block = world.allocate(4096, world.streams[0])
    held = threading.Event()
    done = threading.Event()

    def hold():  # a lock that is never given back in the child
        with world.allocator._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        calls, answer = world.device.calls, 1
        try:
            world.allocator.free(block)
            actions = (
                lambda: world.allocator.allocate(512, world.streams[0]),
                lambda: world.allocator.used_by(block, world.streams[1]),
                world.allocator.empty_cache,
                world.allocator.statistics,
                world.allocator.reset_peak_statistics,
            )
            refusals = 0
            for action in actions:
                try:
                    action()
                except DeviceError as error:
                    refusals += "spawn" in str(error)
            answer = int(refusals != len(actions) or world.device.calls != calls)
        finally:
            os._exit(answer)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert status == 0
    world.check()
    world.finish()


# ---- everything at once


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(12))
def test_steps_at_random_keep_the_model(seed):
    exercise(seed)


@pytest.mark.slow
def test_many_more_steps_at_random_keep_the_model():
    gc.freeze()  # each time that memory is full garbage is collected: not all that other tests left, too
    try:
        for seed in range(1000, 1030):
            exercise(seed)
    finally:
        gc.unfreeze()


class Machine(RuleBasedStateMachine):
    """The same steps, chosen by hypothesis, which makes a failure short."""

    def __init__(self):
        super().__init__()
        self.world = World(64 * MIB)

    @rule(nbytes=st.sampled_from(SIZES) | st.integers(0, 30 * MIB), stream=st.integers(0, 2))
    def allocate(self, nbytes, stream):
        self.world.allocate(nbytes, self.world.streams[stream])

    @precondition(lambda self: self.world.live)
    @rule(data=st.data())
    def free(self, data):
        self.world.free(data.draw(st.sampled_from(self.world.live)))

    @precondition(lambda self: self.world.live)
    @rule(data=st.data(), stream=st.integers(0, 2))
    def touch(self, data, stream):
        self.world.touch(data.draw(st.sampled_from(self.world.live)), self.world.streams[stream])

    @rule(stream=st.integers(0, 2), count=st.integers(1, 5))
    def advance(self, stream, count):
        self.world.streams[stream].advance(count)

    @rule()
    def empty_cache(self):
        self.world.allocator.empty_cache()

    @rule(nbytes=st.sampled_from(SIZES), stream=st.integers(0, 2), count=st.integers(1, 3))
    def allocate_when_refused(self, nbytes, stream, count):
        self.world.device.refusals = count
        self.world.allocate(nbytes, self.world.streams[stream])
        self.world.device.refusals = 0

    @invariant()
    def as_the_model_says(self):
        self.world.check()

    def teardown(self):
        self.world.finish()


@pytest.mark.sampled(6)
class TestMachine(Machine.TestCase):
    settings = settings(stateful_step_count=40)


# ---- threads and finalizers


class Circle:
    """Garbage that only the collector finds, whose finalizer does something."""

    def __init__(self, action):
        self.itself, self.action = self, action

    def __del__(self):
        self.action()


def test_threads_and_finalizers_keep_apart_what_they_hold():
    """Four threads with a collector that runs at every chance, whose finalizers free and allocate."""
    world = World(streams=4)
    allocator, owners, mistakes = world.allocator, {}, []

    def take(block: Block, by: object) -> None:
        if owners.setdefault(block.address, by) is not by:
            mistakes.append("two threads have one block")

    def give(block: Block) -> None:
        owners.pop(block.address)
        allocator.free(block)

    def in_a_finalizer(blocks: list[Block], stream: SimulatedStream) -> None:
        for block in blocks:
            give(block)
        block = allocator.allocate(700, stream)
        take(block, block)
        give(block)

    def work(stream: SimulatedStream, other: SimulatedStream, seed: int) -> None:
        rng, mine = random.Random(seed), []
        try:
            for _ in range(400):
                block = allocator.allocate(rng.choice((300, 5000, MIB, 3 * MIB)), stream)
                take(block, block)
                mine.append(block)
                if rng.random() < 0.3:
                    allocator.used_by(block, other)
                while len(mine) > 20 or mine and rng.random() < 0.4:
                    block = mine.pop(rng.randrange(len(mine)))
                    if rng.random() < 0.5:
                        give(block)
                    else:
                        Circle(lambda block=block: in_a_finalizer([block], stream))
                stream.advance(3)
            for block in mine:
                give(block)
        except BaseException as error:
            mistakes.append(repr(error))

    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(5, 1, 1)
    sys.setswitchinterval(1e-5)
    try:
        threads = [
            threading.Thread(target=work, args=(world.streams[k], world.streams[k - 1], k)) for k in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)
        gc.collect()
    assert not mistakes
    assert not owners
    assert world.allocator.statistics()["allocation.all.current"] == 0
    world.check_pieces()
    world.finish()


class AtLines:
    """Does something before randomly chosen lines of the allocator's own code, as collector and signals do.

    at: text that the lines contain.
    """

    FILES = (module.__file__, pieces.__file__)

    def __init__(self, seed: float, chance: float, action, at: str = ""):
        self.rng, self.chance, self.action, self.at = random.Random(seed), chance, action, at

    def __enter__(self):
        self.before = sys.gettrace()
        sys.settrace(self.trace)

    def __exit__(self, *_):
        sys.settrace(self.before)

    def trace(self, frame, event, argument):
        if frame.f_code.co_filename not in self.FILES:
            return None
        if event == "line" and self.rng.random() < self.chance:
            if self.at in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
                self.action()  # itself untraced: one level deep
        return self.trace


def with_finalizers(seed: int, kind: type[Allocator] = Allocator) -> None:
    world, rng = World(64 * MIB, kind), random.Random(seed)
    world.finalizers = True

    def finalizer() -> None:
        stream, what = rng.choice(world.streams), rng.random()
        if world.live and what < 0.6:
            world.free(rng.choice(world.live))
        elif what < 0.8:
            world.allocate(rng.choice(SIZES), stream)
        elif what < 0.9 and world.live:
            world.touch(rng.choice(world.live), stream)
        elif what < 0.95:
            world.allocator.statistics()
        else:
            world.allocator.empty_cache()

    for _ in range(150):
        with AtLines(rng.random(), 0.01, finalizer):
            stream = rng.choice(world.streams)
            world.allocate(rng.choice(SIZES), stream)
            if world.live and rng.random() < 0.5:
                world.free(rng.choice(world.live))
            stream.advance(1)
        found = world.allocator.statistics()  # catches up
        assert found["allocated_bytes.all.current"] == sum(block.size for block in world.live)
        assert found["reserved_bytes.all.current"] == world.device.used
        world.check_pieces()
    world.finish()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(6))
def test_finalizers_in_the_middle_of_anything(seed):
    with_finalizers(seed)


def interrupted(seed: int) -> None:
    """Ctrl-C may lose memory, but never hands any out twice and never breaks what comes after."""
    world, rng = World(1 << 40), random.Random(seed)

    def stop() -> None:
        raise KeyboardInterrupt

    for _ in range(300):
        try:
            with AtLines(rng.random(), 0.02, stop, at="("):  # signals are looked for at calls
                step(world, rng)
        except KeyboardInterrupt:
            pass
        world.device.refusals = 0


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(6))
def test_an_interrupt_in_the_middle_of_anything(seed):
    interrupted(seed)


# ---- with the real streams and events, on the fake driver


def disorder(seed: int, forgetful: bool) -> bool:
    """Whether some block's bytes were not its own when its streams came to read them."""
    from lamina.runtime.cuda.driver import Driver
    from lamina.runtime.cuda.pinned import PinnedMemory

    device, rng = Driver.open().device(), random.Random(seed)
    allocator, pinned = Allocator(device), PinnedMemory(device)
    streams, found = [device.stream() for _ in range(3)], []
    for k in range(60):
        one, two = rng.sample(streams, 2)
        nbytes = rng.choice((100, 4096, 2 * MIB))
        block, array = allocator.allocate(nbytes, one), pinned.empty(nbytes, np.uint8)
        one.fill(block.address, k, nbytes)
        two.wait(one.record())
        two.copy_out(array, block.address)
        pinned.used_by(array, two)
        if not forgetful:
            allocator.used_by(block, two)
        allocator.free(block)
        found.append((k, array))
        if rng.random() < 0.2:
            rng.choice(streams).synchronize()
        if not forgetful and rng.random() < 0.1:  # or the device would be lost at once
            allocator.empty_cache()
    for stream in streams:
        stream.synchronize()
    wrong = any((array != k).any() for k, array in found)
    del found, array
    allocator.empty_cache()
    pinned.empty_cache()
    assert allocator.statistics()["reserved_bytes.all.current"] == 0
    assert pinned.statistics()["allocated_bytes.current"] == 0
    return wrong


@on_fake(seed=3)
def test_bytes_are_a_blocks_own_until_all_its_streams_are_done(fake: Fake):
    for seed in range(5):
        fake.seed(seed + 1)
        assert not disorder(seed, forgetful=False)
    assert fake.live()["device"] == fake.live()["host"] == 0, fake.live()


@on_fake(seed=3, capacity=256 * MIB)  # so much that nothing has to be given back
def test_a_use_that_is_not_told_is_seen_on_the_fake_driver(fake: Fake):
    fake.forgive()
    wrong = False
    for seed in range(5):
        fake.seed(seed + 1)
        wrong = wrong or disorder(seed, forgetful=True)
    assert wrong and fake.races()[0]


# ---- planted bugs: what the nets above are worth


class MergesAcrossSegments(Allocator):
    def _opened(self, size, pool):
        made = super()._opened(size, pool)
        for piece in self._free_pieces():
            if piece.after is None and piece.address + piece.size == made.address:
                piece.after, made.before = made, piece
        return made


class ReusesBeforeTheEvent(Allocator):
    def _look_at_events(self, wait=False):
        for queue in self._waiting.values():
            for event, _ in queue:
                event.position = 0
        super()._look_at_events(wait)


class WaitsForOneEventOnly(Allocator):
    def _catch_up(self):
        super()._catch_up()
        for queue in self._waiting.values():
            for _, piece in queue:
                piece.waits = min(piece.waits, 1)


class ForgetsOtherStreams(Allocator):
    def used_by(self, block, stream):
        pass


class RecordsAtTheUse(Allocator):
    """The event is that of the first use, and what the stream was given later is not waited for."""

    def used_by(self, block, stream):
        first = next((s for s in block.others if s.of is stream), None)
        if first is None and stream != block.stream:
            block.others.add(Recorded(stream))


class Recorded:
    def __init__(self, of):
        self.of, self.event = of, of.record()

    def record(self):
        return self.event


class SharesPoolsAmongStreams(Allocator):
    def _pool(self, stream, small):
        return super()._pool(self.device.streams[0], small)


class ReleasesWithoutWaiting(Allocator):
    def _empty(self):
        for pool in self._pools.values():
            pool.stream = Impatient()
        super()._empty()


class Impatient:
    def synchronize(self):
        pass


class ForgetsAStep(Allocator):
    """Its accounts don't see that a segment was released."""

    def _empty(self):
        super()._empty()
        self._reserved.current = max(self._reserved.current, 2 * MIB if self._device_frees else 0)


def cut_too_early(self, piece, size):
    whole = piece.size
    CUT(self, piece, size)
    if piece.after is not None and piece.size < whole:
        piece.after.address -= 512


def cut_without_a_link(self, piece, size):
    beyond = piece.after
    CUT(self, piece, size)
    if beyond is not None:
        beyond.before = piece


def give_back_unmerged(self, piece):
    self._add(piece)


def give_back_merging_what_waits(self, piece):
    if piece.after is not None and piece.after.waits:
        piece.after.waits = -1
        piece.absorb(piece.after)
    GIVE_BACK(self, piece)


def take_without_marking(self, size):
    piece = TAKE(self, size)
    if piece is not None:
        piece.free = True
    return piece


def take_what_is_too_small(self, size):
    return TAKE(self, size - 512)


CUT, GIVE_BACK, TAKE = Pool.cut, Pool.give_back, Pool.take

ALLOCATORS = [
    MergesAcrossSegments, ReusesBeforeTheEvent, WaitsForOneEventOnly, ForgetsOtherStreams, RecordsAtTheUse,
    SharesPoolsAmongStreams, ReleasesWithoutWaiting, ForgetsAStep,
]  # fmt: skip
POOLS = [
    ("cut", cut_too_early), ("cut", cut_without_a_link), ("give_back", give_back_unmerged),
    ("give_back", give_back_merging_what_waits), ("take", take_without_marking),
    ("take", take_what_is_too_small),
]  # fmt: skip


def seen(kind: type[Allocator]) -> str:
    """What the model said, or nothing."""
    for seed in range(30):
        try:
            exercise(seed, 200, kind)
        except (AssertionError, AttributeError, KeyError) as error:
            return repr(error)
    return ""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", ALLOCATORS)
def test_a_planted_bug_of_the_allocator_is_seen(kind):
    assert seen(kind)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name, planted", POOLS, ids=[planted.__name__ for _, planted in POOLS])
def test_a_planted_bug_of_the_pools_is_seen(name, planted, monkeypatch):
    monkeypatch.setattr(Pool, name, planted)
    assert seen(Allocator)


class AlwaysAmongThePools(Allocator):
    """Trusts the lock alone, which its own thread may take again."""

    _busy = property(lambda self: False, lambda self, value: None)


def test_a_lock_alone_does_not_keep_finalizers_out():
    def broken(seed: int) -> bool:
        try:
            with_finalizers(seed, AlwaysAmongThePools)
        except Exception:
            return True
        return False

    assert any(broken(seed) for seed in range(10))
