"""Data parallel training: each rank computes on its part of a batch, and gradients are averaged over all.

Gradients go to the others in buckets while the rest of the backward is computed.  In a traced step the same
collectives are ops of its program, which begins each as soon as its gradients are there and waits for it
where it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError
from ..ir.pretended_gpus import count, is_pretended
from ..ir.types import Device
from ..nn.module import Module
from ..runtime import Tensor
from ..runtime.compound import Compound
from ..runtime.modes import is_grad_enabled
from .algorithms.join import Join, Joinable, JoinHook, count_of
from .buckets import GradBucket
from .groups import ProcessGroup, default_group, resolved
from .reducer import Reducer


class DistributedDataParallel(Module, Joinable):
    """Wrap a module that every rank has, so that backward averages its gradients over the ranks.

        model = DistributedDataParallel(Net())
        loss = criterion(model(batch), target)      # this rank's part of the batch
        loss.backward()                             # gradients are now those of all parts, on every rank
        optimizer.step()

    Parameters and buffers begin as rank 0's; buffers follow it at each forward (`broadcast_buffers`).
    bucket_cap_mb: of gradients that go together.  find_unused_parameters: parameters may be without gradients
    on some ranks, which count as zeros; one that no rank has a gradient of keeps its own.
    gradient_as_bucket_view: gradients are views of buckets, which saves a copy.  The module is the child
    `module`, so that keys in `state_dict()` begin with that.

    Raises ArgumentValueError before init_process_group, for a module without parameters that require
    gradients, with such that ranks have parts of, and for device_ids, but for one pretended GPU;
    DistributedError where the ranks have different modules.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[Any] | None = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        delay_all_reduce_named_params: Any = None,
        param_to_hook_all_reduce: Any = None,
        mixed_precision: Any = None,
        device_mesh: Any = None,
        skip_all_reduce_unused_params: bool = False,
    ):
        super().__init__()
        if not isinstance(module, Module):
            raise ArgumentError(f"DistributedDataParallel(module): a Module, not {type(module).__name__}")
        if (device_ids or output_device is not None) and not count():
            raise ArgumentValueError(
                f"DistributedDataParallel(device_ids={device_ids}, output_device={output_device}): must be "
                "None for a module on the CPU"
            )
        ids = [_index(device) for device in device_ids or ()]
        if len(ids) > 1:
            raise ArgumentValueError(
                f"DistributedDataParallel(device_ids={device_ids}): a rank has one device",
                "device_ids=[rank]",
            )
        if mixed_precision is not None:
            raise ArgumentValueError("DistributedDataParallel(mixed_precision): use autocast in the module")
        group = device_mesh.get_group() if device_mesh is not None else process_group
        found = default_group() if group is None else resolved(group)
        if found is None:
            raise ArgumentValueError("DistributedDataParallel(process_group): this process is not in it")
        self.module = module
        self.process_group: ProcessGroup = found
        self.dim, self.device_ids = dim, ids or None
        self.output_device = (ids or [None])[0] if output_device is None else _index(output_device)
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.gradient_as_bucket_view, self.static_graph = gradient_as_bucket_view, static_graph
        self.require_backward_grad_sync = self._divides_by_all = True
        self._bucket_bytes = int((25 if bucket_cap_mb is None else bucket_cap_mb) * (1 << 20))
        self._reducer = self._made_reducer()
        self._reducer.check_alike()
        if init_sync:
            parameters = [p for _, p in self._averaged(module.named_parameters())]
            self._reducer.same_as_first([*parameters, *self._reducer.buffers])

    def _averaged(self, named: Iterable[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
        ignored = set(getattr(self.module, "_ddp_params_and_buffers_to_ignore", ()))
        return [(name, x) for name, x in named if name not in ignored]

    def _made_reducer(self) -> Reducer:
        """What averages this module's gradients, which hangs on its parameters."""
        parameters = self._averaged(self.module.named_parameters())
        buffers = [b for _, b in self._averaged(self.module.named_buffers())]
        named = [(n, p) for n, p in parameters if p.requires_grad]
        if not named:
            raise ArgumentValueError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that "
                "requires a gradient."
            )
        for name, p in parameters:
            if isinstance(p, Compound):
                raise ArgumentValueError(
                    f"DistributedDataParallel: {name} is a {p.what} tensor, of which ranks have parts",
                    'fully_shard(module, mesh=mesh["dp"]) averages the gradients of such',
                )
        may_be_unused = self.find_unused_parameters or self.static_graph
        return Reducer(
            named,
            buffers,
            self.process_group,
            self._bucket_bytes,
            may_be_unused,
            self.gradient_as_bucket_view,
        )

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        """Call the module; the backward of what it returns averages gradients, unless in `no_sync`."""
        syncs = self.require_backward_grad_sync
        if self._join is not None and syncs and is_grad_enabled():
            self._tell_those_who_are_done()
        reducer = self._reducer
        # Gone through here, where a recorder sees which tensors they are.
        following = list(reducer.buffers) if syncs and self.broadcast_buffers else []
        reducer.call_begins(syncs and is_grad_enabled(), following)
        return self.module(*inputs, **kwargs)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Let gradients of forwards inside accumulate on each rank alone; the next one outside averages."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    def buffers_follow(self) -> None:
        """Give the buffers the first rank's values, as a forward would; for schedules of several forwards."""
        self._reducer.same_as_first(self._reducer.buffers)

    def average_next_backward(self) -> None:
        """Let the next backward average gradients, whatever its forward was called in."""
        self._tell_those_who_are_done()
        self._reducer.call_begins(True, [])

    def _tell_those_who_are_done(self) -> None:
        """Say to ranks without batches, in a `Join`, that this one has one; know how many have."""
        active = count_of(Join.notify_join_context(self))
        if active is not None and not self._divides_by_all:
            self._reducer.averaging.divisor = active

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Let ranks have different numbers of batches in a block: who is done goes on meeting the others.

        divide_by_initial_world_size: sums are divided by all ranks; otherwise by those that are not done.
        throw_on_early_termination: raise DistributedError on all ranks once one is done.
        """
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without batches does for the others' steps."""
        self._divides_by_all = kwargs.get("divide_by_initial_world_size", True)
        return _Shadow(self)

    @property
    def join_device(self) -> Any:
        """Where gradients are averaged."""
        return self._reducer.named[0][1].device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The ranks that gradients are averaged over."""
        return self.process_group

    def register_comm_hook(self, state: Any, hook: Callable[[Any, GradBucket], Any]) -> None:
        """Call `hook(state, bucket)` in place of averaging a bucket; it returns a future of its averages."""
        if not callable(hook):
            raise ArgumentError("Communication hook must be callable.")
        self._reducer.averaging.hook = lambda bucket: hook(state, bucket)

    def _set_static_graph(self) -> None:
        self.static_graph = self._reducer.may_be_unused = True

    def __getstate__(self) -> dict[str, Any]:
        """All but what is this process's: a copy averages over all ranks, and has no hook of the user's."""
        state = super().__getstate__()
        for name in ("process_group", "_reducer", "_join"):
            state.pop(name, None)
        return state

    def __setstate__(self, state: dict[str, Any], group: ProcessGroup | None = None) -> None:
        super().__setstate__(state)
        self.process_group = default_group() if group is None else group
        self._reducer = self._made_reducer()

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        """Copy the module; the copy's gradients are averaged over the same ranks.  Nobody is met."""
        memo[id(self)] = made = type(self).__new__(type(self))
        made.__setstate__(deepcopy(self.__getstate__(), memo), self.process_group)
        return made


def _index(device: Any) -> int | None:
    """The index of a pretended GPU; None for the CPU.  Raises DeviceError."""
    return place.index if is_pretended(place := Device(device)) else None


class _Shadow(JoinHook):
    """A rank without batches: its model in the others' steps.  held: the gradients that it had before."""

    def __init__(self, model: DistributedDataParallel):
        self.model, self.reducer = model, model._reducer
        self.held: list[Any] | None = None

    def main_hook(self) -> None:
        """Average zeros with the others' gradients."""
        if self.held is None:
            self.held = [p.grad for _, p in self.reducer.named]
        if not self.model._divides_by_all:
            self.reducer.averaging.divisor = self.active
        self.reducer.shadow(self.model.broadcast_buffers)

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take the values of a rank that went to the end."""
        if self.held is not None:
            for (_, p), grad in zip(self.reducer.named, self.held, strict=True):
                p.grad = grad
        self.reducer.settle(is_last_joiner)
        self.reducer.averaging.divisor = self.reducer.group.size()
