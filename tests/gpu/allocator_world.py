"""An allocator over the simulated device, beside a model that knows what must be true after every step."""

from __future__ import annotations

import random
from typing import Any

from simulated_device import SimulatedDevice, SimulatedStream

from lamina.ir.errors import OutOfMemoryError
from lamina.runtime.cuda.allocator import LARGE_ROUNDING, ROUNDING, SMALL, Allocator, Block, segment_size

MIB = 1 << 20
SIZES = (1, 511, 512, 513, 3000, 100_000, MIB - 1, MIB, MIB + 1, 2 * MIB, 5 * MIB, 10 * MIB, 11 * MIB + 3)


class World:
    def __init__(self, capacity: int = 1 << 40, kind: type[Allocator] = Allocator, streams: int = 3):
        self.device = SimulatedDevice(capacity)
        self.allocator = kind(self.device)
        self.streams = [self.device.stream() for _ in range(streams)]
        self.live: list[Block] = []
        self.peak = 0
        self.finalizers = (
            False  # whether some allocate in the middle of others: such blocks are whole segments
        )

    # ---- steps
    def allocate(self, nbytes: int, stream: SimulatedStream) -> Block | None:
        """A block, used once by its stream; or None where the device is truly full."""
        refusals = self.device.refusals
        try:
            block = self.allocator.allocate(nbytes, stream)
        except OutOfMemoryError:
            full = self.device.used + segment_size(nbytes) > self.device.total_memory
            assert full or refusals >= 4, "there was room"  # two attempts, each with a retry
            return None
        assert block.nbytes == nbytes and block.stream is stream
        self.check_place(block)
        self.live.append(block)
        self.peak = max(self.peak, sum(b.size for b in self.live))
        if nbytes:
            stream.use(block.address, block.size, block)
        return block

    def check_place(self, block: Block) -> None:
        if block.nbytes == 0:
            assert block.address == block.size == 0
            return
        assert block.address % ROUNDING == 0
        assert block.nbytes <= block.size
        if not self.finalizers:
            assert block.size - block.nbytes < (ROUNDING if block.nbytes <= SMALL else LARGE_ROUNDING)
        for other in self.live:
            apart = other.address + other.size <= block.address or block.address + block.size <= other.address
            assert apart or not other.size, "two live blocks overlap"

    def touch(self, block: Block, stream: SimulatedStream) -> None:
        if block.nbytes:
            self.allocator.used_by(block, stream)
            stream.use(block.address, block.size, block)

    def free(self, block: Block) -> None:
        self.live.remove(block)
        self.allocator.free(block)

    # ---- what must be true
    def check(self) -> None:
        found, device = self.allocator.statistics(), self.device
        sized = [block for block in self.live if block.size]
        assert found["allocation.all.current"] == len(sized)
        assert found["allocated_bytes.all.current"] == sum(block.size for block in sized)
        assert found["allocated_bytes.all.peak"] == self.peak
        assert found["reserved_bytes.all.current"] == device.used
        assert found["reserved_bytes.all.peak"] == device.peak
        assert found["segment.all.current"] == len(device.segments)
        assert found["num_device_alloc"] - found["num_device_free"] == len(device.segments)
        assert found["active.all.current"] >= len(sized)
        assert found["active_bytes.all.current"] + found["inactive_split_bytes.all.current"] <= device.used
        self.check_pieces()

    def check_pieces(self) -> None:
        """The pieces of a segment cover it, in order, and free neighbours are one piece."""
        pools = self.allocator._pools.values()
        known = [piece for pool in pools for piece in pool.free()]
        known += [block.piece for block in self.live if block.piece is not None]
        known += [piece for queue in self.allocator._waiting.values() for _, piece in queue]
        heads = {}
        for piece in known:
            while piece.before is not None:
                assert piece.before.after is piece
                piece = piece.before
            heads[piece.address] = piece
        assert heads.keys() == self.device.segments.keys(), "a segment is lost"
        for address, head in heads.items():
            at, before, piece = address, None, head
            while piece is not None:
                assert piece.address == at and piece.before is before
                assert not (piece.free and before is not None and before.free), "free neighbours"
                at, before, piece = at + piece.size, piece, piece.after
            assert at == address + self.device.segments[address]

    def finish(self) -> None:
        """Free everything: it merges back into whole segments, and the device gets all of them."""
        for block in list(self.live):
            self.free(block)
        for stream in self.streams:
            stream.advance(1 << 30)
        self.allocator.empty_cache()
        assert self.device.used == 0 and not self.device.segments
        found = self.allocator.statistics()
        assert not any(n for name, n in found.items() if name.endswith("current")), found
        assert not self.allocator._pools and not self.allocator._waiting


def step(world: World, rng: random.Random) -> None:
    """Something that programs do."""
    stream, what = rng.choice(world.streams), rng.random()
    block: Any = rng.choice(world.live) if world.live else None
    if block is None or what < 0.4 and len(world.live) < 40:
        world.allocate(rng.choice(SIZES) + rng.choice((0, 0, rng.randrange(3000))), stream)
    elif what < 0.75:
        world.free(block)
    elif what < 0.85:
        world.touch(block, stream)
    elif what < 0.95:
        stream.advance(rng.randrange(1, 8))
    elif what < 0.96:
        world.allocator.empty_cache()
    elif what < 0.98:
        world.device.refusals = rng.randrange(1, 3)
    else:
        world.allocate(0, stream)


def exercise(seed: int, steps: int = 300, kind: type[Allocator] = Allocator) -> World:
    """Many steps at random, each followed by all checks."""
    rng = random.Random(seed)
    world = World(rng.choice((30 * MIB, 64 * MIB, 1 << 40)), kind)
    for _ in range(steps):
        step(world, rng)
        world.device.refusals = min(world.device.refusals, 2)
        world.check()
    world.finish()
    return world
