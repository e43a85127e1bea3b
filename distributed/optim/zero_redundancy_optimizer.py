"""An optimizer whose states lie on ranks: each keeps those of its share of the parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError, DistributedError
from ...optim import LBFGS, Optimizer
from ...runtime import Tensor, enable_grad, modes, no_grad, ops
from ..algorithms.join import Join, Joinable, JoinHook
from ..collectives import broadcast
from ..groups import ProcessGroup, default_group, resolved
from ..objects import agreed


class ZeroRedundancyOptimizer(Optimizer, Joinable):
    """An optimizer of class `optimizer_class`, with the states of a parameter on one rank alone.

        optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=optim.AdamW, lr=1e-3)

    Gradients are the same on all ranks, as DistributedDataParallel leaves them.  Each rank updates its share
    of the parameters, about as many elements on each, and all get the updated ones.  defaults: settings of
    the optimizer.  parameters_as_bucket_view: taken and not used.

    The states' memory on a rank is its share of what one process would need.
    Raises ArgumentValueError for LBFGS, whose step is of all parameters together, and overlap_with_ddp.
    Source: Rajbhandari et al., ZeRO, 2020, section 5.1 (P_os).
    """

    def __init__(
        self,
        params: Iterable[Any],
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ):
        if not isinstance(optimizer_class, type) or not issubclass(optimizer_class, Optimizer):
            raise ArgumentError(
                f"ZeroRedundancyOptimizer(optimizer_class): an Optimizer, not {optimizer_class!r}"
            )
        if issubclass(optimizer_class, LBFGS):
            raise ArgumentValueError(
                "ZeroRedundancyOptimizer(optimizer_class=LBFGS): its step is of all parameters together"
            )
        if overlap_with_ddp:
            raise ArgumentValueError(
                "ZeroRedundancyOptimizer(overlap_with_ddp=True): steps begin when backward has ended",
                "leave it out",
            )
        group = default_group() if process_group is None else resolved(process_group)
        if group is None:
            raise ArgumentValueError("ZeroRedundancyOptimizer(process_group): this process is not in it")
        self.process_group: ProcessGroup = group
        # It has all parameters and steps only those whose gradients it sees, so that groups, settings and
        # schedules are its own, and are read where a traced step reads them.
        self.optim = optimizer_class(params, **defaults)
        self.defaults, self.param_groups, self.state = (
            self.optim.defaults, self.optim.param_groups, self.optim.state,
        )  # fmt: skip
        self._before: list[Callable] = []
        self._after: list[Callable] = []
        self._of_states: dict[str, list[Callable]] = {}
        self._repeated = self._opt_called = False
        self._owners: dict[int, int] = {}
        self._whole: dict[str, Any] | None = None
        self._share()

    # ---- who has what
    def _share(self) -> None:
        """Give each parameter that has none an owner: the largest first, to the rank with the least."""
        elements = [0] * self.process_group.size()
        every = self._parameters()
        for p in every:
            if id(p) in self._owners:
                elements[self._owners[id(p)]] += p.numel()
        for p in sorted((p for p in every if id(p) not in self._owners), key=lambda p: -p.numel()):
            owner = elements.index(min(elements))
            self._owners[id(p)] = owner
            elements[owner] += p.numel()

    def _parameters(self) -> list[Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _of(self, rank: int) -> list[Tensor]:
        return [p for p in self._parameters() if self._owners[id(p)] == rank]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Update further parameters from now on; every rank adds the same."""
        self.optim.add_param_group(param_group)
        self._share()

    # ---- the step
    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this rank's parameters, and get those of the others'.  `closure` recomputes the loss."""
        Join.notify_join_context(self)
        self._opt_called = True
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for hook in self._hooks_before():
            hook(self, (self,), kwargs)
        if modes.CHANGED:
            modes.tell("gradients")
        own = self.process_group.rank()
        others = [(p, p.grad) for p in self._parameters() if self._owners[id(p)] != own]
        try:
            for p, _ in others:
                p.grad = None
            self.optim.step(**kwargs)
        finally:
            for p, grad in others:
                p.grad = grad
        self._whole = None
        self._spread()
        for hook in self._hooks_after():
            hook(self, (self,), kwargs)
        return loss

    def _spread(self) -> None:
        """Give all ranks the parameters that each has updated, those of one dtype together."""
        group, begun = self.process_group, []
        if group.size() == 1:
            return
        with no_grad():
            for rank in range(group.size()):
                by_dtype: dict[Any, list[Tensor]] = {}
                for p in self._of(rank):
                    by_dtype.setdefault(p.dtype, []).append(p)
                for held in by_dtype.values():
                    flat = ops.cat([p.detach().reshape(-1) for p in held])
                    begun.append((rank, held, flat, broadcast(flat, group.ranks[rank], group, async_op=True)))
            for rank, held, flat, work in begun:
                work.wait()
                if rank != group.rank():
                    for p, part in zip(held, flat.split([p.numel() for p in held]), strict=True):
                        p.copy_(part.reshape(p.shape))

    # ---- states
    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring all states to rank `to` (within the group), whose `state_dict()` is then whole."""
        parts = agreed(self.process_group, self._own_states())
        if self.process_group.rank() == to:
            self._whole = {}
            for part in parts:
                self._whole.update(part)

    def _own_states(self) -> dict[int, Any]:
        """States by the number of their parameter, of this rank's."""
        numbers = {id(p): i for i, p in enumerate(self._parameters())}
        mine = {numbers[id(p)] for p in self._of(self.process_group.rank())}
        return {i: state for i, state in self.optim.state_dict()["state"].items() if i in mine}

    def state_dict(self) -> dict[str, Any]:
        """The states as one process's optimizer has them, after `consolidate_state_dict`, on its rank.

        Raises DistributedError elsewhere, or where a step came in between.
        """
        if self._whole is None:
            raise DistributedError(
                "Optimizer state has not been consolidated on this rank.",
                "call consolidate_state_dict(to=...) on all ranks first, and state_dict() on that one",
            )
        return {**self.optim.state_dict(), "state": dict(sorted(self._whole.items()))}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this rank's part of what one process's optimizer, or `state_dict`, has saved."""
        numbers = {i for i, p in enumerate(self._parameters())
                   if self._owners[id(p)] == self.process_group.rank()}  # fmt: skip
        own = {i: state for i, state in state_dict["state"].items() if i in numbers}
        self.optim.load_state_dict({**state_dict, "state": own})
        self.state, self._whole = self.optim.state, None

    # ---- joining with unequal inputs
    def join_hook(self, **kwargs: Any) -> JoinHook:
        """What a rank without batches does: it goes on updating its parameters."""
        return _Stepping(self)

    @property
    def join_device(self) -> Any:
        """Where parameters are."""
        return self._parameters()[0].device

    @property
    def join_process_group(self) -> ProcessGroup:
        """The ranks that share the states."""
        return self.process_group

    def __repr__(self) -> str:
        return f"ZeroRedundancyOptimizer over {self.process_group.size()} ranks of {self.optim!r}"


class _Stepping(JoinHook):
    """A rank without batches, whose gradients are those that its DistributedDataParallel got from the others.

    That comes before it among the joinables.
    """

    def __init__(self, optimizer: ZeroRedundancyOptimizer):
        self.optimizer = optimizer

    def main_hook(self) -> None:
        """Take a step with the others."""
        block, self.optimizer._join = self.optimizer._join, None
        try:
            self.optimizer.step()
        finally:
            self.optimizer._join = block
