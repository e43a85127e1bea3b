"""What a data-parallel model does around its module's calls: buffers before, averages of gradients after."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from ..ir.errors import DistributedError
from ..ir.ops.join import cat
from ..runtime import Tensor, modes, no_grad
from ..runtime import tensor as make_tensor
from ..runtime.autograd import is_walking, when_done
from .arrays import own_numbers
from .buckets import FIRST_BYTES, Averaging, in_buckets
from .collectives import all_reduce, broadcast
from .groups import ProcessGroup
from .objects import agreed
from .reduce_op import ReduceOp


def same_as(source: int, tensors: Sequence[Tensor], group: ProcessGroup) -> None:
    """Give all ranks of a group the values that rank `source` has; small tensors travel together."""
    with no_grad(), own_numbers():
        works = []
        for bucket in in_buckets(tensors, FIRST_BYTES):
            if len(bucket.parameters) == 1:
                works.append(broadcast(bucket.parameters[0], source, group, async_op=True))
                continue
            whole = cat([x.reshape(-1) for x in bucket.parameters], 0)
            broadcast(whole, source, group)
            for x, at in bucket.parts():
                x.copy_(whole[at].reshape(x.shape))
        for work in works:
            work.wait()


class Reducer:
    """Averages the gradients of named parameters over a group, whenever backward makes them.

    named: the parameters, by the names that errors say.  buffers: what follows the first rank at each call.
    syncing: the call before asked for averages.  begun: the backward that runs has sent something.  walk:
    what stands for that backward.
    unfinished: names of parameters that the last backward left without a gradient, and may not.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, Tensor]],
        buffers: Sequence[Tensor],
        group: ProcessGroup,
        bucket_bytes: int,
        may_be_unused: bool,
        as_views: bool,
    ):
        self.named, self.buffers, self.group = list(named), list(buffers), group
        self.may_be_unused = may_be_unused
        self.averaging = Averaging(in_buckets([p for _, p in named], bucket_bytes), group)
        self.averaging.as_views = as_views
        self.syncing = self.begun = False
        self.walk: list[Callable[[], None]] | None = None
        self.unfinished: list[str] = []
        for _, p in named:
            p.register_post_accumulate_grad_hook(self.accumulated)

    # ---- before the first call
    def check_alike(self) -> None:
        """Raise DistributedError unless all ranks have parameters of the same names, shapes and dtypes."""
        said = [f"{n}: {p._meta}" for n, p in self.named]
        digests = agreed(self.group, hashlib.sha256("\n".join(said).encode()).hexdigest())
        if len(set(digests)) == 1:
            return
        lists = agreed(self.group, said)
        first = self.group.ranks[0]
        for rank, other in zip(self.group.ranks, lists, strict=True):
            if other != lists[0]:
                pairs = [(a, b) for a, b in zip(lists[0], other) if a != b]
                a, b = pairs[0] if pairs else (f"{len(lists[0])} parameters", f"{len(other)} parameters")
                raise DistributedError(
                    "DistributedDataParallel: the ranks have different modules",
                    f"rank {first}: {a}",
                    f"rank {rank}: {b}",
                    "build the same module everywhere",
                )

    def same_as_first(self, tensors: Sequence[Tensor]) -> None:
        """Give all ranks the values that the first has."""
        same_as(self.group.ranks[0], tensors, self.group)

    # ---- a step
    def call_begins(self, syncs: bool, following: Sequence[Tensor]) -> None:
        """Make ready for a call of the module.

        syncs: gradients are to be averaged.  following: the buffers that become the first rank's.

        Raises DistributedError where the backward before left gradients out.
        """
        if self.unfinished:
            names, self.unfinished = self.unfinished, []
            raise DistributedError(
                "Expected to have finished reduction in the prior iteration before starting a new one: "
                "parameters that were not used in producing loss got no gradient",
                f"parameters: {', '.join(names[:20])}",
                "DistributedDataParallel(..., find_unused_parameters=True) allows it",
            )
        if following:
            self.same_as_first(following)
        self.syncing = syncs
        if syncs:
            self.averaging.begin()
            self.begun, self.walk = False, None

    def accumulated(self, p: Tensor) -> None:
        """Take a gradient that backward has made."""
        if not self.syncing:
            return
        if self.walk is not None and not self.walk:  # it ended in an error, and is gone through again
            self.averaging.begin()
            self.begun = False
        if not self.begun:
            self.begun, self.walk = True, None
            if is_walking():
                self.walk = when_done(lambda: modes.call_user(self.finish))
        self.averaging.ready(p)

    def finish(self) -> None:
        """Let a backward end with averages in all gradients."""
        self.walk = None
        missing = self.averaging.missing()
        gone = {id(p) for p in missing}
        self.averaging.finish(self.unused(gone))
        self.syncing = False
        if missing and not self.may_be_unused:
            self.unfinished = [n for n, p in self.named if id(p) in gone]

    def unused(self, gone: set[int]) -> set[int]:
        """The ids of the parameters that no rank has a gradient of, of those that this one has none of."""
        if not self.may_be_unused:
            return gone
        used = make_tensor([int(id(p) not in gone) for _, p in self.named])
        all_reduce(used, ReduceOp.MAX, self.group)
        return {id(p) for (_, p), any_used in zip(self.named, used.tolist(), strict=True) if not any_used}

    # ---- without a batch
    def shadow(self, buffers: bool) -> None:
        """Do what one step of the others needs, with zeros; gradients become the averages, as theirs do."""
        if buffers and self.buffers:
            self.same_as_first(self.buffers)
        for _, p in self.named:
            p.grad = None
        nobody = {id(p) for _, p in self.named}
        self.averaging.begin()
        self.averaging.finish(self.unused(nobody) if self.may_be_unused else set())

    def settle(self, was_last: bool) -> None:
        """Give all ranks the values of one that went to the end."""
        number = make_tensor([self.group.rank() if was_last else -1])
        all_reduce(number, ReduceOp.MAX, self.group)
        source = self.group.ranks[int(number.item())]
        same_as(source, [*(p for _, p in self.named), *self.buffers], self.group)
