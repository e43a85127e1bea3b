"""Which schedules fit a kernel: others would be written wrongly, or not at all."""

from __future__ import annotations

from ...ir.errors import KernelError
from ...ir.kernel.form import Fold, Kernel, names
from ..schedules.gpu import Along, Descriptors, Dot, Group, Lanes, Registers, Serial
from ..schedules.language import Language
from ..schedules.steps import Schedule
from .code import ALIGNMENT
from .defaults import blockable
from .descriptors import describable
from .scatter import meeting, ordered
from .schedule import dotted, precision, serial, tiles

MANY = (Lanes, Along, Serial)  # steps that a schedule may have several of, as those that rewrite


def check(kernel: Kernel, schedule: Schedule) -> None:
    """Raise KernelError unless the emitter can write a kernel so, and points that meet come in order."""
    schedule.check(kernel, Language.TRITON)
    _once(kernel, schedule)
    if schedule.has(Dot):
        _product(kernel, schedule)
    else:
        _blocks(kernel, schedule)
    _order(kernel, schedule)


def _once(kernel: Kernel, schedule: Schedule) -> None:
    every = tiles(schedule)
    spoken = {
        "axis": [*serial(schedule), *(axis for tile in every for axis in tile.axes)],
        "dimension": [tile.dim for tile in every],
        "step": [step.name for step in schedule.steps if not (step.rewrites or isinstance(step, MANY))],
    }
    for kind, found in spoken.items():
        twice = sorted({one for one in found if found.count(one) > 1})
        if twice:
            raise KernelError(
                f"{kernel.name}: a schedule speaks of each {kind} once",
                f"twice: {', '.join(twice)}",
                f"schedule: {schedule}",
            )
    if schedule.has(Group) and len(list(schedule.of(Lanes))) < 2:
        raise KernelError(f"{kernel.name}: a group is of the tiles of two lanes", f"schedule: {schedule}")


def _product(kernel: Kernel, schedule: Schedule) -> None:
    roles, every = dotted(kernel, schedule), tiles(schedule)
    kinds = [type(tile) for tile in every]
    if (
        roles is None
        or kernel.dtypes[roles.stage.name] != "f32"
        or kinds != [Lanes, Lanes, Along]
        or not all({*t.axes} <= {*own} for t, own in zip(every, (roles.m, roles.n, roles.k), strict=True))
    ):
        raise KernelError(
            f"{kernel.name}: a dot is an f32 sum of products, over lanes of its M and N, along its K",
            f"M: {roles.m}, N: {roles.n}, K: {roles.k}" if roles else f"kernel: {kernel}",
            f"schedule: {schedule}",
        )
    if schedule.has(Registers) and precision(schedule) != "tf32":
        raise KernelError(f"{kernel.name}: registers are for factors of tf32", f"schedule: {schedule}")
    if schedule.has(Descriptors) and not describable(kernel, schedule, roles):
        raise KernelError(
            f"{kernel.name}: descriptors are of matrices in memory, gone along over all of the sum",
            f"their rows begin at multiples of {ALIGNMENT} bytes",
            f"schedule: {schedule}",
        )


def _blocks(kernel: Kernel, schedule: Schedule) -> None:
    stages = [stage for stage in kernel.stages if not (isinstance(stage, Fold) and stage.scan)]
    for block in schedule.of(Along):
        over = [stage for stage in stages if names(stage.axes)[-len(block.axes) :] == block.axes]
        if not over or not all(blockable(kernel, stage) for stage in over):
            raise KernelError(
                f"{kernel.name}: {block} is of the last axes of stages that take many points at once",
                *(f"at: {stage}" for stage in over if not blockable(kernel, stage)),
                f"schedule: {schedule}",
            )


def _order(kernel: Kernel, schedule: Schedule) -> None:
    """The axes along which points of a store without an atomic may meet are loops."""
    beside = kernel.parallel_names - {*serial(schedule)}
    beside |= {axis for block in schedule.of(Along) for axis in block.axes}
    for stage in ordered(kernel):
        loose = beside.intersection(meeting(kernel, stage))
        if loose:
            raise KernelError(
                f"{kernel.name}: {stage.combine}= has no atomic here, so points that meet come in order",
                f"at: {stage}",
                f"these axes of the schedule have to be serial: {', '.join(sorted(loose))}",
            )
    last = [stage.buffer for stage in kernel.stores if stage.combine == "set"]
    if len(set(last)) < len(last):
        raise KernelError(
            f"{kernel.name}: one stage puts points in order, not several",
            f"stores that set: {', '.join(last)}",
            "run them as kernels one after the other",
        )
