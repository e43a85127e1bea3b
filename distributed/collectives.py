"""Collectives on tensors, under PyTorch's names: they write into the tensors that they are given.

Eagerly they go straight to MPI on the tensors' own memory, without gradients, as PyTorch's do.  In a recorded
function they are the ops of `ir/ops/collectives.py` and writes, so that compiled programs hold them; those
with gradients stand in `functional.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..ir.ops import collectives as ops
from ..runtime import Tensor, no_grad
from ..runtime.history import storage_of
from ..runtime.places import here
from .arrays import is_recorded, need_alike, need_tensor, need_tensors, opened, plain_memory, read
from .groups import ProcessGroup, channel_among_all, get_group_rank, outside, resolved
from .reduce_op import ReduceOp
from .work import Done, Work, followed


def _finished(work: Work, async_op: bool, nbytes: int = 0) -> Work | None:
    """Wait for a collective, or hand it back."""
    if not async_op:
        work.wait()
        return None
    return followed(work, nbytes)


def _place(name: str, group: Any) -> ProcessGroup | None:
    found = resolved(group)
    if found is None:
        outside(name)
    return found


def _in_group(name: str, group: ProcessGroup, rank: int | None, group_rank: int | None) -> int:
    """The number among all of a rank that is said either way.  Raises ArgumentValueError."""
    if (rank is None) == (group_rank is None):
        raise ArgumentValueError(f"{name}: the rank is said either among all or within the group")
    if group_rank is not None:
        if not 0 <= group_rank < group.size():
            raise ArgumentValueError(f"{name}: the group has no rank {group_rank}, but {group.size()}")
        return group.ranks[group_rank]
    assert rank is not None
    get_group_rank(group, rank)
    return rank


def _one(
    kind: str, name: str, group: ProcessGroup, x: Tensor, out: Tensor, attrs: dict[str, Any], async_op: bool
) -> Work | None:
    """Run one collective from a tensor into a tensor, which may be the same."""
    group.need_host_memory()
    attrs = {**attrs, "group": group.ranks}
    if is_recorded():
        with no_grad():
            out.copy_(getattr(ops, kind)(x, **attrs))
        return Done([out]) if async_op else None
    if group.size() == 1 and kind != "permute_ranks":
        if out is not x:
            target, close = opened(name, out)
            target[...] = read(x).reshape(target.shape)
            close()
        return Done([out]) if async_op else None
    target, close = opened(name, out)
    source = target if out is x else read(x)
    flight = group.channel.start(kind, attrs, (source,), (target,))
    return _finished(Work(flight, [out], close), async_op, target.nbytes + source.nbytes)


def _check_reduced(name: str, x: Tensor, op: ReduceOp) -> str:
    """The reduction's name, if tensors of this dtype have it.  Raises DTypeError."""
    ops._check_reduced(name, x._meta, op.value)
    return op.value


# ---- to all
def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Any:
    """Combine the tensors of all ranks, element by element, into each.

    Shapes: `tensor` [...], the same on every rank, is written.  op: how.  async_op: return a Work at once,
    and write until it is waited for.  Raises DistributedError where the ranks don't agree.
    """
    if group is None and op is ReduceOp.SUM and not async_op and (channel := channel_among_all()) is not None:
        if (array := plain_memory(tensor)) is not None:
            channel.all_reduce_now(array, "sum")
            storage_of(tensor).written(("all_reduce", here()))
            return None
    found = _place("all_reduce", group)
    if found is None:
        return None
    need_tensor("all_reduce(tensor)", tensor)
    attrs = {"reduce": _check_reduced("all_reduce", tensor, ReduceOp.of(op, "all_reduce"))}
    return _one("all_reduce", "all_reduce", found, tensor, tensor, attrs, async_op)


def all_reduce_coalesced(
    tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    """`all_reduce` of each."""
    works = [all_reduce(x, op, group, True) for x in need_tensors("all_reduce_coalesced(tensors)", tensors)]
    return _together(works, async_op)


def broadcast(
    tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
    group_src: int | None = None,
) -> Any:  # fmt: skip
    """Write the tensor of rank `src` into that of every rank.  Shapes: `tensor` [...] on every rank."""
    found = _place("broadcast", group)
    if found is None:
        return None
    need_tensor("broadcast(tensor)", tensor)
    attrs = {"src": _in_group("broadcast(src)", found, src, group_src)}
    return _one("broadcast", "broadcast", found, tensor, tensor, attrs, async_op)


def reduce(
    tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
    group_dst: int | None = None,
) -> Any:  # fmt: skip
    """Combine the tensors of all ranks into that of rank `dst`; those of others stay as they are."""
    found = _place("reduce", group)
    if found is None:
        return None
    need_tensor("reduce(tensor)", tensor)
    to = _in_group("reduce(dst)", found, dst, group_dst)
    attrs = {"dst": to, "reduce": _check_reduced("reduce", tensor, ReduceOp.of(op, "reduce"))}
    is_target = found.ranks[found.rank()] == to
    if is_recorded():
        with no_grad():
            made = ops.reduce(tensor, **attrs, group=found.ranks)
            if is_target:
                tensor.copy_(made)
        return Done([tensor]) if async_op else None
    out = tensor if is_target else tensor.detach().clone()
    return _one("reduce", "reduce", found, tensor, out, attrs, async_op)


# ---- gathering
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Any:
    """Write the tensors of all ranks, one behind the other, into that of every rank.

    Shapes: `input_tensor` [n, ...], `output_tensor` [ranks * n, ...] or [ranks, n, ...].
    """
    found = _place("all_gather_into_tensor", group)
    if found is None:
        return None
    name = "all_gather_into_tensor"
    x, out = need_tensor(f"{name}(input_tensor)", input_tensor), need_tensor(f"{name}(output)", output_tensor)
    _need_sizes(name, out, x, found.size())
    return _flat("all_gather", name, found, x, out, {"dim": 0}, async_op)


_all_gather_base = all_gather_into_tensor


def all_gather(tensor_list: list[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Any:
    """Write the tensors of all ranks into the list of every rank.

    Shapes: `tensor` [...], and as many of those as ranks; other ranks' may be of other shapes, where the list
    says so.
    """
    found = _place("all_gather", group)
    if found is None:
        return None
    into = need_tensors("all_gather(tensor_list)", tensor_list)
    x = need_tensor("all_gather(tensor)", tensor)
    if len(into) != found.size():
        raise ShapeError(f"all_gather: {found.size()} tensors, one for each rank, not {len(into)}")
    own = into[found.rank()]
    if own.shape != x.shape or any(y.dtype is not x.dtype for y in into):
        raise ShapeError("all_gather: the list holds tensors as those given", f"{own._meta} and {x._meta}")
    if any(y.shape != x.shape for y in into):
        return _all_to_all_uneven("all_gather", found, [x] * len(into), into, async_op)
    if is_recorded():
        with no_grad():
            gathered = ops.all_gather(x.reshape(-1), 0, found.ranks).reshape(found.size(), *x.shape)
            for i, y in enumerate(into):
                y.copy_(gathered[i])
        return Done(into) if async_op else None
    gathered = x.detach().new_empty((found.size(), *x.shape))
    work = _flat("all_gather", "all_gather", found, x, gathered, {"dim": 0}, True)
    return _spread(work, [(y, gathered[i]) for i, y in enumerate(into)], "all_gather", async_op)


def gather(
    tensor: Tensor, gather_list: list[Tensor] | None = None, dst: int | None = None, group: Any = None,
    async_op: bool = False, group_dst: int | None = None,
) -> Any:  # fmt: skip
    """Write the tensors of all ranks into the list of rank `dst` (0 unless given); others give none."""
    found = _place("gather", group)
    if found is None:
        return None
    x = need_tensor("gather(tensor)", tensor)
    to = _in_group("gather(dst)", found, 0 if dst is None and group_dst is None else dst, group_dst)
    if found.ranks[found.rank()] != to:
        if gather_list:
            raise ArgumentValueError("gather(gather_list): must not be said on ranks that are not dst")
        into: list[Tensor] = []
    else:
        if gather_list is None:
            raise ArgumentValueError("gather(gather_list): rank dst needs a list to gather into")
        into = need_tensors("gather(gather_list)", gather_list)
        need_alike("gather", [x, *into])
        need_alike("gather(gather_list)", into, found.size())
    nothing = x.detach().new_empty((0,))
    sent = [x if rank == to else nothing for rank in found.ranks]
    return _all_to_all_uneven("gather", found, sent, into or [nothing.clone() for _ in sent], async_op)


# ---- scattering
def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Any:
    """Combine the tensors of all ranks, and write its own part of that into each.

    Shapes: `input` [ranks * n, ...] or [ranks, n, ...], `output` [n, ...].
    """
    found = _place("reduce_scatter_tensor", group)
    if found is None:
        return None
    name = "reduce_scatter_tensor"
    x, out = need_tensor(f"{name}(input)", input), need_tensor(f"{name}(output)", output)
    _need_sizes(name, x, out, found.size())
    attrs = {"dim": 0, "reduce": _check_reduced(name, x, ReduceOp.of(op, name))}
    return _flat("reduce_scatter", name, found, x, out, attrs, async_op)


_reduce_scatter_base = reduce_scatter_tensor


def reduce_scatter(
    output: Tensor, input_list: list[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
    async_op: bool = False,
) -> Any:  # fmt: skip
    """Combine the i-th tensors of all ranks' lists, and write that into the tensor of the i-th rank."""
    found = _place("reduce_scatter", group)
    if found is None:
        return None
    given = need_tensors("reduce_scatter(input_list)", input_list)
    need_alike("reduce_scatter(input_list)", [*given, need_tensor("reduce_scatter(output)", output)])
    need_alike("reduce_scatter(input_list)", given, found.size())
    with no_grad():
        stacked = _stacked(given)
    return reduce_scatter_tensor(output, stacked, op, found, async_op)


def scatter(
    tensor: Tensor, scatter_list: list[Tensor] | None = None, src: int | None = None, group: Any = None,
    async_op: bool = False, group_src: int | None = None,
) -> Any:  # fmt: skip
    """Write the i-th tensor of the list of rank `src` (0 unless given) into the tensor of the i-th rank."""
    found = _place("scatter", group)
    if found is None:
        return None
    x = need_tensor("scatter(tensor)", tensor)
    root = _in_group("scatter(src)", found, 0 if src is None and group_src is None else src, group_src)
    nothing = x.detach().new_empty((0,))
    if found.ranks[found.rank()] == root:
        if scatter_list is None:
            raise ArgumentValueError("scatter(scatter_list): rank src needs a list to scatter")
        sent = need_tensors("scatter(scatter_list)", scatter_list)
        need_alike("scatter", [x, *sent])
        need_alike("scatter(scatter_list)", sent, found.size())
    else:
        if scatter_list:
            raise ArgumentValueError("scatter(scatter_list): must not be said on ranks that are not src")
        sent = [nothing] * found.size()
    into = [x if rank == root else nothing.clone() for rank in found.ranks]
    return _all_to_all_uneven("scatter", found, sent, into, async_op)


# ---- each to each
def all_to_all_single(
    output: Tensor, input: Tensor, output_split_sizes: list[int] | None = None,
    input_split_sizes: list[int] | None = None, group: Any = None, async_op: bool = False,
) -> Any:  # fmt: skip
    """Cut the tensor along dim 0, give each rank its part, and write what all gave, one behind the other.

    Sizes say how long the parts are, which are equal unless given.  Raises ShapeError where they don't fit.
    """
    found = _place("all_to_all_single", group)
    if found is None:
        return None
    x, out = need_tensor("all_to_all_single(input)", input), need_tensor("all_to_all_single(output)", output)
    if not x.ndim or not out.ndim or x.shape[1:] != out.shape[1:] or x.dtype is not out.dtype:
        raise ShapeError("all_to_all_single: tensors alike but in their first dim", f"{x._meta}, {out._meta}")
    if not input_split_sizes and not output_split_sizes:
        if x.shape != out.shape or x.shape[0] % found.size():
            raise ShapeError(
                f"all_to_all_single: the first dim parts into {found.size()} ranks, the same of both",
                f"{x._meta}, {out._meta}",
            )
        attrs = {"split_dim": 0, "cat_dim": 0}
        return _one("all_to_all", "all_to_all_single", found, x, out, attrs, async_op)
    parts = []
    for tensor, sizes in ((x, input_split_sizes), (out, output_split_sizes)):
        even = tensor.shape[0] // found.size()
        sizes = list(sizes) if sizes else [even] * found.size()
        if len(sizes) != found.size() or sum(sizes) != tensor.shape[0] or min(sizes) < 0:
            raise ShapeError(
                f"all_to_all_single: a size for each of {found.size()} ranks, which add up to the first dim",
                f"{sizes} of {tensor._meta}",
            )
        parts.append(list(tensor.detach().split(sizes)))
    return _all_to_all_uneven("all_to_all_single", found, parts[0], parts[1], async_op, [out])


def all_to_all(
    output_tensor_list: list[Tensor], input_tensor_list: list[Tensor], group: Any = None,
    async_op: bool = False,
) -> Any:  # fmt: skip
    """Give the i-th tensor of the list to the i-th rank, and write what all gave into the other list."""
    found = _place("all_to_all", group)
    if found is None:
        return None
    sent = need_tensors("all_to_all(input_tensor_list)", input_tensor_list)
    into = need_tensors("all_to_all(output_tensor_list)", output_tensor_list)
    for name, tensors in (("input", sent), ("output", into)):
        if len(tensors) != found.size():
            raise ShapeError(f"all_to_all({name}_tensor_list): one for each of {found.size()} ranks")
    return _all_to_all_uneven("all_to_all", found, sent, into, async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Any:
    """Wait until every rank of the group is here."""
    found = _place("barrier", group)
    if found is None:
        return None
    return _finished(Work(found.side.barrier()), async_op)


def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
    """The same, and say who has not come after `timeout`.  Raises DistributedError."""
    found = _place("monitored_barrier", group)
    if found is not None:
        Work(found.side.barrier("monitored_barrier()")).wait(timeout)


# ---- what they share
def _need_sizes(name: str, whole: Tensor, part: Tensor, ranks: int) -> None:
    if whole.dtype is not part.dtype:
        raise DTypeError(f"{name}: tensors of one dtype", f"{whole._meta} and {part._meta}")
    behind = part.ndim > 0 and whole.shape == (part.shape[0] * ranks, *part.shape[1:])
    if not behind and whole.shape != (ranks, *part.shape) and (part.ndim or whole.shape != (ranks,)):
        raise ShapeError(
            f"{name}: the whole is {ranks} times a part, along the first dim or a new one before it",
            f"{whole._meta} and {part._meta}",
        )


def _flat(
    kind: str, name: str, group: ProcessGroup, x: Tensor, out: Tensor, attrs: dict[str, Any], async_op: bool
) -> Work | None:
    """A collective along the first dim, between tensors of which one may have a dim more."""
    if is_recorded():
        with no_grad():
            made = getattr(ops, kind)(x.reshape(-1), **attrs, group=group.ranks)
            out.copy_(made.reshape(out.shape))
        return Done([out]) if async_op else None
    target, close = opened(name, out)
    source = read(x)
    if group.size() == 1:
        target.reshape(-1)[:] = source.reshape(-1)
        close()
        return Done([out]) if async_op else None
    flight = group.channel.start(
        kind, {**attrs, "group": group.ranks}, (source.reshape(-1),), (target.reshape(-1),)
    )
    return _finished(Work(flight, [out], close), async_op, target.nbytes + source.nbytes)


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    stacked = tensors[0].detach().new_empty((len(tensors), *tensors[0].shape))
    for i, x in enumerate(tensors):
        stacked[i].copy_(x.detach())
    return stacked


def _spread(work: Work | None, pairs: list[tuple[Tensor, Tensor]], name: str, async_op: bool) -> Work | None:
    """Write what a collective made into the tensors of a list."""
    assert work is not None

    def copy() -> None:
        for y, made in pairs:
            target, close = opened(name, y)
            target[...] = made._data
            close()

    if isinstance(work, Done):
        copy()
        return work if async_op else None
    before = work._then

    def then() -> None:
        if before is not None:
            before()
        copy()

    work._then, work._result = then, [y for y, _ in pairs]
    if not async_op:
        work.wait()
        return None
    return work


def _all_to_all_uneven(
    name: str, group: ProcessGroup, sent: list[Tensor], into: list[Tensor], async_op: bool,
    result: list[Tensor] | None = None,
) -> Work | None:  # fmt: skip
    """Give each rank a tensor and write what each gave, of any sizes."""
    if is_recorded():
        raise ArgumentError(f"{name}: sizes that differ between ranks are eager's alone")
    targets = [opened(name, y) for y in into]

    def close() -> None:
        for _, closing in targets:
            closing()

    result = into if result is None else result
    flight = group.channel.exchange(f"{name}()", [read(x) for x in sent], [array for array, _ in targets])
    return _finished(Work(flight, result, close), async_op, sum(array.nbytes for array, _ in targets))


class _Together(Work):
    """Several, which are waited for together."""

    def __init__(self, works: list[Work]):
        self.works = works
        self._result = [x for work in works for x in work._result]

    def wait(self, timeout: Any = None) -> bool:
        return all([work.wait(timeout) for work in self.works])

    def is_completed(self) -> bool:
        return all([work.is_completed() for work in self.works])

    def exception(self) -> BaseException | None:
        return next((e for work in self.works if (e := work.exception()) is not None), None)


def _together(works: list[Any], async_op: bool) -> Any:
    both = _Together([work for work in works if work is not None])
    if async_op:
        return both
    both.wait()
    return None
