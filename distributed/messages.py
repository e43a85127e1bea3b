"""Messages between two ranks, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor, modes
from .arrays import need_tensor, opened, read
from .collectives import _in_group, _place
from .groups import get_rank
from .work import Work, followed


def _refuse_recording(what: str) -> None:
    """Have a recorded function run undecorated: a message is no op, of which its other end would know."""
    if modes.CHANGED:
        remedy = "permute_ranks of lamina.distributed.functional is an op"
        modes.tell("refuse", f"a message {what} another rank ({remedy})")


def isend(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> Work | None:
    """Begin to send a tensor to rank `dst`, which calls `recv`; it is not written until the Work is done."""
    found = _place("isend", group)
    if found is None:
        return None
    _refuse_recording("went to")
    x = need_tensor("send(tensor)", tensor)
    to = _in_group("send(dst)", found, dst, group_dst)
    if to == get_rank():
        raise ArgumentValueError(
            "Invalid destination rank: destination rank should not be the same as the rank"
        )
    flight = found.channel.send(read(x), found.ranks.index(to), _tag(tag))
    return followed(Work(flight, [x]), x.numel() * x.element_size())


def irecv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> Work | None:
    """Begin to receive into a tensor from rank `src`, or from whoever sends first."""
    found = _place("irecv", group)
    if found is None:
        return None
    _refuse_recording("came from")
    x = need_tensor("recv(tensor)", tensor)
    source = None
    if src is not None or group_src is not None:
        source = found.ranks.index(_in_group("recv(src)", found, src, group_src))
        if found.ranks[source] == get_rank():
            raise ArgumentValueError("Invalid source rank: source rank should not be the same as the rank")
    target, close = opened("recv", x)
    seen: list[int] = []
    flight = found.channel.receive(target, source, _tag(tag), seen)
    return followed(Work(flight, [x], close, seen), target.nbytes)


def _tag(tag: int) -> int:
    if not isinstance(tag, int) or not 0 <= tag < 1 << 20:
        raise ArgumentValueError(f"tag: an int of 0 … {(1 << 20) - 1}, not {tag!r}")
    return tag


def send(
    tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None
) -> None:
    """Send a tensor to rank `dst`, which calls `recv` with a tensor of the same shape and dtype."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None
) -> int:
    """Receive into a tensor from rank `src`, or from whoever sends first.  Returns whom it came from."""
    found = _place("recv", group)
    if found is None:
        return -1
    work = irecv(tensor, src, found, tag, group_src)
    assert work is not None
    work.wait()
    return found.ranks[work.source_rank()]


@dataclass
class P2POp:
    """A message for `batch_isend_irecv`: `op` is `isend` or `irecv`, `peer` the other rank."""

    op: Callable[..., Any]
    tensor: Tensor
    peer: int | None = None
    group: Any = None
    tag: int = 0
    group_peer: int | None = None

    def __post_init__(self) -> None:
        if self.op not in (isend, irecv):
            raise ArgumentValueError("P2POp(op): isend or irecv of lamina.distributed")


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Begin several messages at once, in any order among ranks."""
    if not p2p_op_list or not all(isinstance(one, P2POp) for one in p2p_op_list):
        raise ArgumentValueError("batch_isend_irecv: a list of P2POp")
    # What is received is begun first, so that what is sent has a place to go to.
    order = sorted(range(len(p2p_op_list)), key=lambda i: p2p_op_list[i].op is isend)
    works: dict[int, Work] = {}
    for i in order:
        one = p2p_op_list[i]
        works[i] = one.op(one.tensor, one.peer, one.group, one.tag, one.group_peer)
    return [works[i] for i in range(len(p2p_op_list))]
