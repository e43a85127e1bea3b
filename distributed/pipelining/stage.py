"""One stage of a pipeline: its module, and what it holds of the microbatches that are on their way.

A stage sends what it computed without waiting, and waits for what it needs.  So no order of messages can stop
all ranks, if the order of computing can be done at all, which `timetable.py` tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError, DeviceError
from ...ir.types import Type, placed, type_of
from ...nn.module import Module
from ...runtime import Tensor, backward, enable_grad, no_grad, ops
from ..data_parallel import DistributedDataParallel
from ..groups import ProcessGroup, default_group, resolved
from .links import Coming, Local, Receiver, Sender
from .timetable import FORWARD


class PipelineStage:
    """The stage `stage_index` of `num_stages`: `submodule` computes it on this rank.

    group: the ranks that the pipeline goes over, all unless given; stage s is on the rank s % ranks of them.
    input_args, output_args: examples of one microbatch's, which what comes and goes is then held to; without
    them the stage before tells.  What passes between stages is a tensor or a tuple of tensors.

    A submodule that is a DistributedDataParallel averages its gradients once a step, in the last backward.

    Raises ArgumentValueError for a stage that is not this rank's.
    """

    def __init__(
        self,
        submodule: Module,
        stage_index: int,
        num_stages: int,
        device: Any = None,
        input_args: Any = None,
        output_args: Any = None,
        group: Any = None,
    ):
        if not isinstance(submodule, Module):
            raise ArgumentError(f"PipelineStage(submodule): a Module, not {type(submodule).__name__}")
        if device is not None and placed(device).type != "cpu":
            raise DeviceError(f"PipelineStage(device={device!r}): tensors are on the CPU", 'device="cpu"')
        found = default_group() if group is None else resolved(group)
        if found is None:
            raise ArgumentValueError("PipelineStage(group): this process is not in it")
        if not 0 <= stage_index < num_stages:
            raise ArgumentValueError(f"PipelineStage: stage {stage_index} of {num_stages} stages")
        self.submod, self.stage_index, self.num_stages, self.device = (
            submodule,
            stage_index,
            num_stages,
            device,
        )
        self.group: ProcessGroup = found
        self.group_rank, self.group_size = found.rank(), found.size()
        if num_stages % self.group_size or stage_index % self.group_size != self.group_rank:
            raise ArgumentValueError(
                f"PipelineStage: stage {stage_index} of {num_stages} is not that of rank {self.group_rank}",
                f"the rank r has the stages r, r + {self.group_size} …, and all ranks as many",
            )
        self.is_first, self.is_last = stage_index == 0, stage_index == num_stages - 1
        self.name = f"stage {stage_index}"
        self.expected_output = _types(output_args)
        self.has_backward = False
        self._held: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
        self._left = 0
        self._link()
        if self.input is not None:
            self.input.expected = _types(input_args)

    @property
    def submodule(self) -> Module:
        """What computes it."""
        return self.submod

    def _link(self) -> None:
        s, n = self.stage_index, self.num_stages
        before, after = (self.group_rank - 1) % self.group_size, (self.group_rank + 1) % self.group_size
        self.input: Receiver | Local | None = None
        self.to_input: Sender | Local | None = None
        self.output: Sender | Local | None = None
        self.from_output: Receiver | Local | None = None
        if self.group_size == 1:
            return  # `link_locally` does it
        if not self.is_first:
            self.input = Receiver(f"the input of {self.name}", self.group, before, s)
            self.to_input = Sender(f"the gradient of the input of {self.name}", self.group, before, n + s)
        if not self.is_last:
            self.output = Sender(f"the output of {self.name}", self.group, after, s + 1)
            self.from_output = Receiver(
                f"the gradient of the output of {self.name}", self.group, after, n + s + 1
            )

    def link_locally(self, later: PipelineStage) -> None:
        """Let the stage after this one, which is on this rank too, get its output."""
        self.output = later.input = Local()
        self.from_output = later.to_input = Local()

    # ---- a step
    def begin(self, has_backward: bool, backwards: int) -> None:
        """Begin a step with so many backwards."""
        self._held.clear()
        self.has_backward, self._left = has_backward, backwards
        for link in (self.input, self.output, self.to_input, self.from_output):
            if link is not None:
                link.begin()
            if isinstance(link, Local):
                link.held.clear()  # of a step that ended in an error
        if isinstance(self.submod, DistributedDataParallel) and self.submod.broadcast_buffers:
            self.submod.buffers_follow()

    def look_ahead(self, kind: str, count: int) -> None:
        """Begin to receive what the next `count` actions of a kind need."""
        link = self.input if kind == FORWARD else self.from_output
        if link is not None:
            link.look_ahead(count)

    def forward(self, i: int, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Compute microbatch i; return the output.  args: of the first stage; others get theirs.

        Raises ArgumentError for an output that can't be handed on.
        """
        inputs: list[Tensor] = []
        if self.input is not None:
            inputs = self.input.get()
            assert self.input.said is not None
            for x, coming in zip(inputs, self.input.said, strict=True):
                x.requires_grad_(coming.needs_grad and self.has_backward)
            args = tuple(inputs)
        with self._without_averaging(), enable_grad() if self.has_backward else no_grad():
            output = self.submod(*args, **kwargs)
        outputs = self._outputs(output)
        if self.output is not None:
            self.output.put(outputs)
            assert self.output.said is not None and self.from_output is not None
            self.from_output.begin([Coming(c.type, False) for c in self.output.said if c.needs_grad])
        if self.has_backward:
            self._held[i] = inputs, outputs
        return output

    def backward(self, i: int, loss: Tensor | None) -> None:
        """Add the gradients of microbatch i to those of the parameters.  loss: of the last stage."""
        inputs, outputs = self._held.pop(i)
        self._left -= 1
        if not self._left and isinstance(self.submod, DistributedDataParallel):
            self.submod.average_next_backward()
        if self.from_output is not None:
            gradients = self.from_output.get()
            needing = [x for x in outputs if x.requires_grad]
            if needing:
                backward(needing, gradients)
        else:
            assert loss is not None
            backward(loss)
        if self.to_input is not None:
            assert self.input is not None and self.input.said is not None
            back = [x for x, c in zip(inputs, self.input.said, strict=True) if c.needs_grad]
            if self.to_input.said is None:
                self.to_input.begin([Coming(c.type, False) for c in self.input.said if c.needs_grad])
            self.to_input.put([ops.zeros_like(x) if x.grad is None else x.grad for x in back])

    def end(self) -> None:
        """End a step: all that was sent has left."""
        for link in (self.output, self.to_input):
            if link is not None:
                link.settle()

    def _without_averaging(self) -> AbstractContextManager[None]:
        is_parallel = isinstance(self.submod, DistributedDataParallel)
        return self.submod.no_sync() if is_parallel else nullcontext()

    def _outputs(self, output: Any) -> list[Tensor]:
        outputs = list(output) if isinstance(output, (tuple, list)) else [output]
        if not self.is_last and not all(isinstance(x, Tensor) for x in outputs):
            raise ArgumentError(
                f"{self.name}: a stage hands on a tensor or a tuple of tensors",
                f"{type(self.submod).__name__} gave {type(output).__name__}",
            )
        if self.expected_output is not None and isinstance(outputs[0], Tensor):
            types = [type_of(x.dtype, tuple(x.shape)) for x in outputs]
            if types != self.expected_output:
                raise ArgumentValueError(
                    f"{self.name}: its output differs from what output_args said",
                    f"output: {', '.join(map(str, types))}",
                    f"said: {', '.join(map(str, self.expected_output))}",
                )
        return outputs

    def __repr__(self) -> str:
        return f"PipelineStage({self.stage_index} of {self.num_stages}, {type(self.submod).__name__})"


def _types(examples: Any) -> list[Type] | None:
    if examples is None:
        return None
    listed: Sequence[Any] = examples if isinstance(examples, (tuple, list)) else (examples,)
    if not all(isinstance(x, Tensor) for x in listed):
        raise ArgumentError("PipelineStage(input_args, output_args): a tensor or a tuple of tensors")
    return [type_of(x.dtype, tuple(x.shape)) for x in listed]
