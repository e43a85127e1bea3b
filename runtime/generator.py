"""Generators of random numbers: they hand out counter ranges, which pure ops turn into numbers.

A generator's whole state is a seed and an offset into the Philox counter space.  A draw reserves as many
counters as its shape needs, under a lock, so that the numbers of a program do not depend on how many threads
compute them.
"""

from __future__ import annotations

import os
from struct import Struct
from typing import Any

import numpy as np

from ..ir.dtypes import int64, uint8
from ..ir.errors import ArgumentError, ArgumentValueError
from ..ir.locks import fork_safe_lock
from ..ir.types import CPU, placed, type_of
from . import modes
from .tensor import Tensor, wrap

_STATE = type_of(int64, (2,))
frombuffer, _packed, _WORD = np.frombuffer, Struct("=QQ").pack, np.dtype(np.int64)
_MASK = (1 << 64) - 1
_lock = fork_safe_lock()  # one for all generators, so that they can be pickled and copied


def state_array(seed: int, offset: int) -> np.ndarray:
    """The state operand of a random op: [seed, offset], their 64 bits each.  It is read-only."""
    return frombuffer(_packed(seed, offset), _WORD)


# A state for those who only ask what a draw would be.
SOMEWHERE = wrap(state_array(0, 0), _STATE)


class Generator:
    """A source of random numbers with a seed and a position of its own."""

    def __init__(self, device: Any = "cpu"):
        self.device = placed(device)
        if self.device != CPU:
            raise ArgumentError(f"Generator(device): there is no device {self.device} here", "use 'cpu'")
        self._seed, self._offset = 67280421310721, 0

    def manual_seed(self, seed: int) -> Generator:
        """Start over from `seed`, any integer of 64 bits."""
        if isinstance(seed, bool) or not hasattr(seed, "__index__"):
            raise ArgumentError(f"manual_seed(seed): seed must be an int, not {type(seed).__name__}")
        seed = seed.__index__()
        if not -(1 << 63) <= seed < 1 << 64:
            raise ArgumentValueError(
                f"manual_seed(seed): {seed} does not fit into 64 bits", "(Overflow when unpacking long long)"
            )
        if modes.CHANGED:
            modes.tell("refuse", "a generator was seeded")
        with _lock:
            self._seed, self._offset = seed & _MASK, 0
        return self

    def seed(self) -> int:
        """Start over from a seed that the operating system draws; return it."""
        seed = int.from_bytes(os.urandom(8), "little") >> 1
        self.manual_seed(seed)
        return seed

    def initial_seed(self) -> int:
        """The seed that the numbers are drawn from."""
        if modes.CHANGED:
            modes.tell("refuse", "a generator's seed was read")
        return self._seed

    def get_state(self) -> Tensor:
        """Seed and offset, as 16 bytes; `set_state` continues from there."""
        if modes.CHANGED:
            modes.tell("refuse", "a generator's state was read")
        with _lock:
            raw = np.array([self._seed, self._offset], np.uint64)
        return wrap(raw.view(np.uint8).copy(), type_of(uint8, (16,)))

    def set_state(self, state: Tensor) -> Generator:
        """Continue from where `get_state` was called.  Raises ArgumentValueError for anything else."""
        if not isinstance(state, Tensor) or state._meta is not type_of(uint8, (16,)):
            raise ArgumentValueError("set_state(state): takes what get_state() returned, 16 bytes")
        if modes.CHANGED:
            modes.tell("refuse", "a generator's state was set")
        seed, offset = np.ascontiguousarray(state._data).view(np.uint64).tolist()
        with _lock:
            self._seed, self._offset = seed, offset
        return self

    def clone_state(self) -> Generator:
        """Another generator that stands where this one stands."""
        made = Generator()
        made.set_state(self.get_state())
        return made

    def reserve(self, counters: int) -> Tensor:
        """Take the next `counters` Philox counters; return the state operand [seed, offset] of random ops."""
        state = wrap(self.taken(counters), _STATE)
        if modes.CHANGED:
            modes.tell("drawn", self, counters, state)
        return state

    def taken(self, counters: int) -> np.ndarray:
        """The same for who knows that nobody hears of it: the state operand's array."""
        with _lock:
            seed, offset = self._seed, self._offset
            self._offset = (offset + counters) & _MASK
        return state_array(seed, offset)

    def position(self) -> tuple[int, int]:
        """Seed and offset."""
        with _lock:
            return self._seed, self._offset

    def advance(self, position: tuple[int, int], counters: int) -> bool:
        """Move on by `counters` if nobody drew since `position` was read; say whether."""
        with _lock:
            if (self._seed, self._offset) != position:
                return False
            self._offset = (self._offset + counters) & _MASK
            return True


default_generator = Generator()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator; every random function that is given none draws from it."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system; return the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state."""
    return default_generator.get_state()


def set_rng_state(state: Tensor) -> None:
    """Put the default generator into a state that `get_rng_state` returned."""
    default_generator.set_state(state)


class fork_rng:
    """Give the default generator its state back at the end of a `with` block.

    devices, device_type: taken, and mean nothing, as there is one generator.
    """

    def __init__(self, devices: Any = None, enabled: bool = True, *, device_type: str = "cuda"):
        self._enabled = enabled

    def __enter__(self) -> None:
        self._state = default_generator.get_state()

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            try:
                default_generator.set_state(self._state)
            except BaseException:  # an interrupt
                default_generator.set_state(self._state)
                raise


def source(generator: Any, of: str) -> Generator:
    """The generator to draw from.  Raises ArgumentError for anything else."""
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise ArgumentError(f"{of}(generator=…): takes a lamina.Generator, not {type(generator).__name__}")
    return generator
