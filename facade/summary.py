"""`utils.summary`: what a module consists of, what it gives for inputs of a size, and what that takes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ..ir.dtypes import DType, default_dtype
from ..ir.errors import ArgumentError
from ..nn import Module
from ..profiler.recorder import FunctionEvent, Recorder
from ..profiler.sessions import Timed
from ..runtime import Tensor, no_grad, ops

UNITS = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))


@dataclass
class Row:
    """A module that was called.

    path: "" for the whole.  depth: how deep it stands.  kind: its class.  shapes: of what it gave.
    parameters: its own and those of what is in it.  flops: the operations that the call took.
    """

    path: str
    depth: int
    kind: str
    shapes: list[list[int]]
    parameters: int
    flops: int = 0


@dataclass
class Summary:
    """The rows of a table, in the order of the calls.

    parameters: elements of all of them, each once.  trainable: of those that ask for gradients.  flops: of
    one call, a multiplication and an addition being two.  nbytes: of the parameters and buffers.
    """

    rows: list[Row] = field(default_factory=list)
    parameters: int = 0
    trainable: int = 0
    flops: int = 0
    nbytes: int = 0

    def __str__(self) -> str:
        lines = [("module", "output", "parameters", "operations")]
        for row in self.rows:
            name = row.path.rpartition(".")[2] or "(whole)"
            label = f"{'  ' * row.depth}{name}: {row.kind}"
            shapes = ", ".join(map(str, row.shapes)) or "-"
            lines.append(
                (label, shapes, f"{row.parameters:,}" if row.parameters else "-", spelled(row.flops))
            )
        widths = [max(map(len, column)) for column in zip(*lines)]
        rule = "-" * (sum(widths) + 2 * len(widths) - 2)
        table = [
            "  ".join(
                cell.ljust(width) if at < 2 else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(line, widths))
            )
            for line in lines
        ]
        return "\n".join([
            table[0], rule, *table[1:], rule,
            f"parameters: {self.parameters:,}, {self.trainable:,} of them trainable, "
            f"{self.nbytes / 2**20:.2f} MiB with buffers",
            f"operations of a call: {spelled(self.flops)}",
        ])  # fmt: skip

    __repr__ = __str__


def spelled(count: int) -> str:
    """12_345_678 -> 12.35 M."""
    for unit, letter in UNITS:
        if count >= unit:
            return f"{count / unit:.2f} {letter}"
    return str(count) if count else "-"


def summary(
    model: Module,
    input_size: Sequence[Any],
    *,
    dtypes: Sequence[DType] | None = None,
    depth: int = 3,
    **kwargs: Any,
) -> Summary:
    """Describe a module by a call on inputs of these sizes, in which nothing is computed.

    input_size: a shape such as (1, 3, 224, 224), a sequence of shapes for several inputs, or tensors.
    dtypes: of those inputs, the default one otherwise.  depth: how deep the modules stand that get a row.
    kwargs: go to the call.  A copy of the module on the meta device is called, under no_grad and in the same
    mode as the module; where its forward asks for values, there are none.  Raises ArgumentError.
    """
    if not isinstance(model, Module):
        raise ArgumentError(f"summary(model): must be a Module, not {type(model).__name__}")
    found = Summary()
    parameters = {id(p): p for p in model.parameters()}.values()
    found.parameters = sum(p.numel() for p in parameters)
    found.trainable = sum(p.numel() for p in parameters if p.requires_grad)
    kept = {id(x): x for x in (*parameters, *model.buffers())}.values()
    found.nbytes = sum(x.numel() * x.element_size() for x in kept)
    twin = copy.deepcopy(model).to("meta")
    recorder = Recorder(work=True)
    handles = []
    for path, module in twin.named_modules():
        level = path.count(".") + bool(path)
        if level <= depth:
            handles += _watch(module, path, level, recorder, found)
    try:
        with no_grad(), Timed(recorder):
            twin(*_inputs(input_size, dtypes), **kwargs)
    finally:
        for handle in handles:
            handle.remove()
    found.flops = _flops(recorder.events)
    return found


def _watch(module: Module, path: str, level: int, recorder: Recorder, found: Summary) -> list[Any]:
    """Have each call of a module make a row."""
    open_calls: list[tuple[FunctionEvent, Row]] = []

    def before(called: Module, args: tuple) -> None:
        own = {id(p): p for p in called.parameters()}.values()
        row = Row(path, level, type(called).__name__, [], sum(p.numel() for p in own))
        found.rows.append(row)
        open_calls.append((recorder.begin(path), row))

    def after(called: Module, args: tuple, result: Any) -> None:
        event, row = open_calls.pop()
        recorder.end(event)
        row.shapes = [[*x.shape] for x in _tensors(result)]
        row.flops = _flops(_within(event))

    return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]


def _within(event: FunctionEvent) -> list[FunctionEvent]:
    return [each for child in event.cpu_children for each in (child, *_within(child))]


def _flops(events: Sequence[FunctionEvent]) -> int:
    return sum(event.flops for event in events)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [x for each in value for x in _tensors(each)] if isinstance(value, (tuple, list)) else []


def _inputs(sizes: Sequence[Any], dtypes: Sequence[DType] | None) -> list[Tensor]:
    """The inputs, on the meta device."""
    if isinstance(sizes, Tensor) or all(isinstance(n, int) for n in sizes):
        sizes = [sizes]
    dtypes = dtypes or [default_dtype()] * len(sizes)
    if len(dtypes) != len(sizes):
        raise ArgumentError(f"summary(dtypes): {len(dtypes)} for {len(sizes)} inputs")
    made = []
    for size, dtype in zip(sizes, dtypes):
        if isinstance(size, Tensor):
            made.append(size.to("meta"))
            continue
        if not all(isinstance(n, int) and n >= 0 for n in size):
            raise ArgumentError(f"summary(input_size): sizes are ints of at least 0, not {size!r}")
        made.append(ops.empty(*size, dtype=dtype, device="meta"))
    return made


__all__ = ["Row", "Summary", "summary"]
