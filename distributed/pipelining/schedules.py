"""Training steps through a pipeline, under PyTorch's names: which order each schedule computes in.

All schedules take, after this rank's stage or stages:
    n_microbatches      the parts of each batch
    loss_fn             `loss_fn(output, target)` of a microbatch; every rank gives one, or none does
    args_chunk_spec, kwargs_chunk_spec
                        TensorChunkSpecs, or dims, along which arguments are cut: the first unless said
    output_merge_spec   along which outputs are put together
    scale_grads         gradients are those of the mean of the losses, not of their sum
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError, DistributedError
from ...runtime import Tensor
from . import timetable
from .microbatch import cut, cut_all, cut_named, merged
from .stage import PipelineStage
from .timetable import BACKWARD, Action, Maker, Timetable


class _Schedule:
    """What all schedules share: a step's parts go through this rank's stages in the order of a table.

    make: the orders of all ranks.  table: them, with backwards; coming: without.

    Raises DistributedError for a step after one that ended in an error.
    """

    make: Maker

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None,
        args_chunk_spec: Any,
        kwargs_chunk_spec: Any,
        output_merge_spec: Any,
        scale_grads: bool,
    ):
        name = type(self).__name__
        if not isinstance(n_microbatches, int) or n_microbatches < 1:
            raise ArgumentValueError(f"{name}(n_microbatches={n_microbatches!r}): an int above 0")
        first = stages[0]
        count, ranks = first.num_stages, first.group_size
        own = list(range(first.group_rank, count, ranks))
        if [stage.stage_index for stage in stages] != own:
            raise ArgumentValueError(
                f"{name}: this rank's stages are {own}, in order",
                f"given: {[stage.stage_index for stage in stages]}",
            )
        self._stages = {stage.stage_index: stage for stage in stages}
        if ranks == 1:
            for earlier, later in zip(stages, stages[1:], strict=False):
                earlier.link_locally(later)
        self._n_microbatches, self._loss_fn, self.scale_grads = n_microbatches, loss_fn, scale_grads
        self._args_chunk_spec, self._kwargs_chunk_spec = args_chunk_spec, kwargs_chunk_spec
        self._output_merge_spec = output_merge_spec
        self._is_under_way = False  # and stays so where a step ends in an error
        self._rank, self._is_last = first.group_rank, count - 1 in self._stages
        orders = type(self).make(ranks, count, n_microbatches)
        self.table = Timetable(name, ranks, count, n_microbatches, orders)
        self._coming = Timetable(name, ranks, count, n_microbatches, timetable.forwards(orders))

    # ---- what is called
    def step(
        self,
        *args: Any,
        target: Any = None,
        losses: list[Tensor] | None = None,
        return_outputs: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Train on one batch: all its microbatches forward and backward, whose gradients add up.

        args: of the first stage, on its rank alone.  kwargs: of this rank's stages.  target: on the last
        stage's rank; `loss_fn(output, target)` is the loss of a microbatch, and `losses` becomes all of them.
        With `scale_grads` gradients are those of the mean of the losses, else of their sum.  Without a
        `loss_fn` nothing goes backward.

        Returns the outputs of all microbatches together on the last stage's rank, None on others.
        """
        with_backward = self._loss_fn is not None
        if with_backward and self._is_last and target is None:
            raise ArgumentValueError(
                f"{type(self).__name__}.step: this rank has the last stage, and needs target=...",
                "its loss_fn compares with that",
            )
        return self._run(args, kwargs, target, losses, with_backward, return_outputs)

    def eval(self, *args: Any, target: Any = None, losses: list[Tensor] | None = None, **kwargs: Any) -> Any:
        """Go through the stages without gradients; the arguments and results are those of `step`."""
        return self._run(args, kwargs, target, losses, False, True)

    def show(self) -> str:
        """A drawing of what each rank computes when."""
        return self.table.show()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table.stages} stages, {self._n_microbatches} microbatches)"

    # ---- how it goes
    def _run(
        self,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        target: Any,
        losses: list[Tensor] | None,
        with_backward: bool,
        return_outputs: bool,
    ) -> Any:
        count = self._n_microbatches
        if 0 not in self._stages and args:
            raise ArgumentError(
                f"{type(self).__name__}.step: this rank has not the first stage, and takes no batch",
                "rank 0 of the pipeline does",
            )
        parts = cut_all(args, self._args_chunk_spec, count)
        named = cut_named(kwargs, self._kwargs_chunk_spec, count)
        wanted = [None] * count if target is None else cut("target", target, None, count)
        order = (self.table if with_backward else self._coming).orders[self._rank]
        outputs: list[Any] = [None] * count
        found: list[Tensor] = []
        waiting: dict[int, Tensor] = {}
        if self._is_under_way and len(self.table.orders) > 1:
            raise DistributedError(
                f"{type(self).__name__}.step: the step before ended in an error on this rank",
                "what the stages sent each other for it is still on its way",
                "start the job anew, or make stages on a group of their own, new_group(), on all ranks",
            )
        self._is_under_way = True
        for stage in self._stages.values():
            stage.begin(with_backward, count)
        for action, later in zip(order, [*order[1:], None], strict=True):
            stage, i = self._stages[action.stage], action.microbatch
            if later is not None:
                self._look_ahead(action, later)
            if action.kind == BACKWARD:
                stage.backward(i, waiting.pop(i, None) if stage.is_last else None)
                continue
            output = stage.forward(i, parts[i] if stage.is_first else (), named[i])
            if stage.is_last:
                loss = self._loss(output, wanted[i])
                if loss is not None:
                    found.append(loss.detach())
                    waiting[i] = loss / count if self.scale_grads else loss
                if return_outputs:
                    outputs[i] = _detached(output)
        for stage in self._stages.values():
            stage.end()
        self._is_under_way = False
        if self._is_last and losses is not None:
            losses[:] = found
        return merged(outputs, self._output_merge_spec) if self._is_last and return_outputs else None

    def _look_ahead(self, action: Action, later: Action) -> None:
        """Begin to receive what the next action needs, and this one, where both come by one link."""
        is_same = (action.kind, action.stage) == (later.kind, later.stage)
        self._stages[later.stage].look_ahead(later.kind, 1 + is_same)

    def _loss(self, output: Any, target: Any) -> Tensor | None:
        if self._loss_fn is None or target is None:
            return None
        loss = self._loss_fn(output, target)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise ArgumentError(
                f"{type(self).__name__}(loss_fn): gives one number for a microbatch, not "
                f"{loss._meta if isinstance(loss, Tensor) else type(loss).__name__}"
            )
        return loss


def _detached(output: Any) -> Any:
    if isinstance(output, (tuple, list)):
        return tuple([_detached(x) for x in output])
    return output.detach() if isinstance(output, Tensor) else output


class _OneStage(_Schedule):
    """A schedule of ranks with one stage each."""

    def __init__(
        self,
        stage: PipelineStage,
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ):
        if not isinstance(stage, PipelineStage):
            raise ArgumentError(f"{type(self).__name__}(stage): a PipelineStage, not {type(stage).__name__}")
        if stage.num_stages != stage.group_size:
            raise ArgumentValueError(
                f"{type(self).__name__}: {stage.num_stages} stages on {stage.group_size} ranks, one each",
                "ScheduleInterleaved1F1B and ScheduleLoopedBFS take several",
            )
        super().__init__(
            [stage],
            n_microbatches,
            loss_fn,
            args_chunk_spec,
            kwargs_chunk_spec,
            output_merge_spec,
            scale_grads,
        )


class _SeveralStages(_Schedule):
    """A schedule of ranks with several stages: of r ranks, rank i has the stages i, i + r, i + 2r …"""

    def __init__(
        self,
        stages: Sequence[PipelineStage],
        n_microbatches: int,
        loss_fn: Callable[..., Tensor] | None = None,
        args_chunk_spec: Any = None,
        kwargs_chunk_spec: Any = None,
        output_merge_spec: Any = None,
        scale_grads: bool = True,
    ):
        if not isinstance(stages, (list, tuple)) or not all(isinstance(s, PipelineStage) for s in stages):
            raise ArgumentError(f"{type(self).__name__}(stages): a list of PipelineStages")
        if not stages:
            raise ArgumentValueError(f"{type(self).__name__}(stages): at least one")
        super().__init__(
            stages,
            n_microbatches,
            loss_fn,
            args_chunk_spec,
            kwargs_chunk_spec,
            output_merge_spec,
            scale_grads,
        )


class ScheduleGPipe(_OneStage):
    __doc__ = (
        f"All microbatches forward, then all backward: every rank holds them all.\n\n{_OneStage.__doc__}"
    )
    make = staticmethod(timetable.gpipe)


class Schedule1F1B(_OneStage):
    __doc__ = (
        f"One forward, one backward in turn: a rank holds as many as ranks follow.\n\n{_OneStage.__doc__}"
    )
    make = staticmethod(timetable.one_forward_one_backward)


class ScheduleInterleaved1F1B(_SeveralStages):
    __doc__ = (
        f"1F1B over several stages a rank, which waits less for more messages.\n\n{_SeveralStages.__doc__}"
    )
    make = staticmethod(timetable.interleaved)


class ScheduleLoopedBFS(_SeveralStages):
    """All microbatches through one stage of a rank after the other."""

    make = staticmethod(timetable.looped)


_CLASSES = {
    "gpipe": ScheduleGPipe,
    "1f1b": Schedule1F1B,
    "interleaved1f1b": ScheduleInterleaved1F1B,
    "loopedbfs": ScheduleLoopedBFS,
}


def get_schedule_class(schedule_name: str) -> type:
    """The class of a schedule by its name, as "1F1B".  Raises ArgumentValueError for one that is not here."""
    found = _CLASSES.get(schedule_name.lower().removeprefix("schedule"))
    if found is None:
        names = ", ".join(cls.__name__.removeprefix("Schedule") for cls in _CLASSES.values())
        raise ArgumentValueError(f"get_schedule_class({schedule_name!r}): one of {names}")
    return found
