"""One op, or its gradients, on large arrays of given types as native code; loaded when the first want it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..ir.graph import Builder, Graph, Value
from ..ir.kernel.form import Store
from ..ir.kernel.scalar import Cast, Expr, Read, walk
from ..ir.kernel.scalar import Op as Word
from ..ir.kernel.words import VOCABULARY
from ..ir.locks import cached_property, fork_safe_lock
from ..ir.lowering import Decomposition
from ..ir.op import REGISTRY, Op
from ..ir.types import Type
from ..passes import cache as disk
from ..passes.graphs.differentiate import fit
from ..passes.graphs.lower import lower
from ..passes.llvm.binding import host_target, identity
from ..passes.llvm.link import link
from ..passes.pipeline import optimise, to_program
from ..passes.programs.program import Program
from ..passes.schedules.target import Target
from . import guard, memory
from .compiler import compiled
from .kernels import Backward, Forward, UnfitError
from .native import Executable
from .operand_layouts import Layout, Order

HALVES = ("f16", "bf16")
SEVERAL, MANY = 4, 12  # calls of NumPy: of a word that it does not have, and at most of one op, but ...
# ... for those over windows, and for a step of a recurrence: 22 to 118 us, and 10 (EPYC "Zen 4", 2026-11-30).
WINDOWS, OF_WINDOWS = 50, ("conv", "max_pool", "avg_pool", "im2col", "col2im")
STEP, RECURRENT = 10, ("_layer", "_layer_backward")


def numpy_calls(op: Op, types: Sequence[Type | None], attrs: Mapping[str, Any]) -> int:
    """About how many of NumPy's calls compute an op, guessed from its kernel; 0 for copying elements."""
    if op.name.startswith(OF_WINDOWS):
        return WINDOWS
    if op.name.endswith(RECURRENT) and types[0] is not None:
        return STEP * int(types[0].shape[0])
    if isinstance(op.lower, Decomposition):
        return MANY
    kernel, found = lower(op, types, attrs), 0
    found += type(op.reference) is not np.ufunc and not op.traits.movement  # a function around NumPy's
    if sum(isinstance(stage, Store) for stage in kernel.stages) > 1:  # joins: NumPy looks at each in turn
        found += 2
    for stage in kernel.stages:
        found += 0 if isinstance(stage, Store) else 2  # a reduction takes as long as two
    for e in {e for stage in kernel.stages for e in walk(*stage.exprs)}:
        if isinstance(e, Word):
            found += 1 if type(VOCABULARY[e.name].numpy) is np.ufunc else SEVERAL
        elif isinstance(e, Read):
            found += SEVERAL * any(isinstance(part, Expr) for part in e.index)
        else:
            found += 2 * isinstance(e, Cast)  # which takes as long as two
    return min(found, MANY)


class Draft:
    """The LLVM text of what is computed, not compiled.

    types: of the operands.  written: for each result the operand that it overwrites, or nothing.  Raises
    UnfitError for what is better left to NumPy.
    """

    def __init__(
        self,
        what: Forward | Backward,
        types: Sequence[Type | None],
        layout: Layout,
        written: Sequence[int] = (),
    ):
        self.target = host_target()
        with Builder(what.op.name) as b:
            graph = emitted(b, what, types, layout)
        given = [at for at, t in enumerate(types) if t is not None]  # the params' operands
        program = program_of(what, graph, self.target, [given.index(at) for at in written])
        self._linked = link(program, self.target, guard=guard.MODE)

    @cached_property
    def is_cached(self) -> bool:
        """Whether an earlier process compiled all of it."""
        return are_cached(self._linked.texts, self.target)

    def executable(self) -> Callable[..., tuple[np.ndarray, ...]]:
        """What computes all results from the operands that there are, each dense in its order."""
        manifest, constants = self._linked.manifest, self._linked.constants
        objects = compiled(self._linked.texts, self.target)
        if manifest.arena <= OWN:
            return Executable.of_parts(manifest, constants, objects, self.target)
        return _one_at_a_time(Executable.of_parts(manifest, constants, objects, self.target, arena=_scratch))


def emitted(b: Builder, what: Forward | Backward, types: Sequence[Type | None], layout: Layout) -> Graph:
    """The graph of what is computed.  Raises UnfitError where a gradient that is needed is none."""
    operands: list[Any] = [
        t and _operand(b, t, order, single, layout.kept)
        for t, order, single in zip(types, layout.orders, layout.single, strict=True)
    ]
    if isinstance(what, Forward):
        return b.finish(list(b.emit(what.op, operands, what.attrs).outputs))
    return b.finish(_gradients(b, what, [x for x in operands if x is not None]))


def program_of(what: Forward | Backward, graph: Graph, target: Target, into: Sequence[int] = ()) -> Program:
    """The program of that graph.  Raises UnfitError for what is better left to NumPy."""
    graph = optimise(graph)
    known = {id(x) for x in graph.params}
    if isinstance(what, Backward) and any(id(y) in known for y in graph.results):
        raise UnfitError(f"{what.op.name}'s gradient is its cotangent, which need not be copied")
    program = to_program(graph, into, target)
    _check(program)
    return program


def are_cached(texts: Iterable[str], target: Target) -> bool:
    """Whether an earlier process compiled all of these modules."""
    cache, machine = disk.default(), identity(target)
    return all(cache.get(disk.key("object", machine, text)) is not None for text in texts)


def _operand(
    b: Builder, kind: Type, order: Order | None, single: tuple[int, ...], kept: Order | None
) -> Value:
    """A param as the array lies in memory, and from it the operand: in its own dims, or those of `kept`."""
    shape = tuple(1 if d in single else n for d, n in enumerate(kind.shape))
    if order is None:
        made, dims = b.param(kind.with_shape(shape)), kind.shape
    else:
        made = b.param(kind.with_shape(tuple(shape[d] for d in order)))
        dims = tuple(kind.shape[d] for d in order)
        if order != kept:
            back = tuple(sorted(range(len(order)), key=order.__getitem__))
            (made,) = b.emit(REGISTRY["permute"], (made,), {"dims": back}).outputs
            dims = kind.shape
    return made if not single else b.emit(REGISTRY["expand"], (made,), {"size": dims}).outputs[0]


def _gradients(b: Builder, what: Backward, operands: Sequence[Value]) -> list[Value]:
    """The gradients that are needed, in their operands' types.  Raises UnfitError where there is none."""
    values = iter(operands)
    cotangents = tuple([next(values) if there else None for there in what.outputs])
    saved = tuple(
        tuple([next(values) if one else None for one in there])
        if isinstance(there, tuple)
        else next(values)
        if there
        else None
        for there in what.saved
    )
    found = what.op.cotangents(saved, cotangents, dict(what.attrs), what.needs, what.types)
    results: list[Any] = []
    for gradient, kind, need in zip(found, what.types, what.needs, strict=False):
        if need:
            if not isinstance(gradient, Value) or kind is None:
                raise UnfitError(f"{what.op.name} has no gradient to an operand that asks for one")
            results.append(fit(gradient, kind))
    return results


def _check(program: Program) -> None:
    if program.hosts:
        raise UnfitError(f"{program.name} is computed on the host", program.hosts[0].name)
    for call in program.calls:
        if any(
            s.combine == "add" and call.kernel.buffers[s.buffer].dtype in HALVES for s in call.kernel.stores
        ):
            raise UnfitError(f"{program.name} would round every sum to a half", call.name)


# ---- scratch memory
# One piece for all ops that want much: a network's convolutions would otherwise keep tens of megabytes each.
OWN = 1 << 13  # bytes that an op may have for itself
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
