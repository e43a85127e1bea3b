"""One op on dense arrays of given types as native code; loaded when the first large arrays want it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ..ir.graph import Builder
from ..ir.locks import fork_safe_lock
from ..ir.op import REGISTRY, Op
from ..ir.types import Type
from ..passes.llvm import cache as disk
from ..passes.llvm.binding import host_target, identity
from ..passes.llvm.link import link
from ..passes.pipeline import optimise, to_program
from . import memory
from .compiler import compiled
from .kernels import Order, UnfitError
from .native import Executable

HALVES = ("f16", "bf16")


class Draft:
    """The LLVM text for an op, not compiled.

    orders: for each operand, in which order its dims lie in memory, None where that is theirs.  into: for
    each output the operand that it overwrites, or None.  Raises UnfitError for an op that is better left to its
    reference.
    """

    def __init__(
        self,
        op: Op,
        types: Sequence[Type | None],
        attrs: Mapping[str, Any],
        orders: Sequence[Order | None] = (),
        into: Sequence[int | None] = (),
    ):
        self.target = host_target()
        with Builder(op.name) as b:
            operands = [
                t and _param(b, t, order)
                for t, order in zip(types, orders or (None,) * len(types), strict=True)
            ]
            graph = b.finish(b.emit(op, operands, attrs).outputs)
        given = [at for at, t in enumerate(types) if t is not None]  # the params' operands
        program = to_program(
            optimise(graph), [None if at is None else given.index(at) for at in into], self.target
        )
        if program.hosts:
            raise UnfitError(f"{op.name} is computed on the host", program.hosts[0].name)
        for call in program.calls:
            if any(s.combine == "add" and call.kernel.buffers[s.buffer].dtype in HALVES for s in call.kernel.stores):
                raise UnfitError(f"{op.name} would round every sum to a half", call.name)
        self._linked = link(program, self.target)

    @cached_property
    def is_cached(self) -> bool:
        """Whether an earlier process compiled all of it."""
        cache, machine = disk.default(), identity(self.target)
        return all(cache.get(disk.key("object", machine, text)) is not None for text in self._linked.texts)

    def executable(self) -> Callable[..., tuple[np.ndarray, ...]]:
        """What computes all outputs from the operands that there are, in their order in memory."""
        objects = compiled(self._linked.texts, self.target)
        manifest, constants = self._linked.manifest, self._linked.constants
        run = Executable.of_parts(manifest, constants, objects, self.target, arena=_scratch)
        return run if not manifest.arena else _one_at_a_time(run)


def _param(b: Builder, kind: Type, order: Order | None) -> Any:
    if order is None:
        return b.param(kind)
    dense = b.param(kind.with_shape(tuple(kind.shape[at] for at in order)))
    return b.emit(REGISTRY["permute"], (dense,), {"dims": inverse(order)}).outputs[0]


def inverse(order: Order) -> Order:
    """The order that leads back."""
    return tuple(int(at) for at in np.argsort(order))


# ---- scratch memory
# One piece for all ops: a network's convolutions would otherwise keep tens of megabytes each.
_turn = fork_safe_lock()  # held while an op uses it
_largest = np.empty(0, np.uint8)


def _scratch(nbytes: int) -> np.ndarray:
    """The piece that all share; a larger one for ops made from here on where it is too small."""
    global _largest
    if nbytes > _largest.size:
        _largest = memory.arena(max(nbytes, 2 * _largest.size))
    return _largest


def _one_at_a_time(run: Executable) -> Callable[..., tuple[np.ndarray, ...]]:
    def alone(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        with _turn:
            return run(*arrays)

    return alone
