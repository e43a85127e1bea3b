"""Collectives of Python objects, which go by pickle: only among ranks that trust each other."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.errors import ArgumentError, ArgumentValueError
from ..runtime import modes
from ..runtime import tensor as make_tensor
from .collectives import _in_group, _place
from .groups import ProcessGroup
from .messages import recv, send


def exchanged(group: ProcessGroup, what: str, data: list[bytes]) -> list[bytes]:
    """Give each rank its bytes and get one of each."""
    if modes.CHANGED:
        modes.tell("refuse", "objects went from rank to rank")
    channel = group.side
    if channel.size == 1:
        return list(data)
    sizes = np.array([len(one) for one in data], np.int64)
    sent = [sizes[i : i + 1] for i in range(channel.size)]
    got = [np.empty(1, np.int64) for _ in data]
    channel.exchange(f"{what}: sizes", sent, got).wait()
    into = [np.empty(int(n[0]), np.uint8) for n in got]
    channel.exchange(what, [np.frombuffer(one, np.uint8) for one in data], into).wait()
    return [one.tobytes() for one in into]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Put the objects of all ranks into the list of every rank, which has as many places."""
    found = _place("all_gather_object", group)
    if found is None:
        return
    _need_list("all_gather_object(object_list)", object_list, found.size())
    data = pickle.dumps(obj)
    got = exchanged(found, "all_gather_object()", [data] * found.size())
    object_list[:] = map(pickle.loads, got)


def gather_object(
    obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Put the objects of all ranks into the list of rank `dst` (0 unless given); others give none."""
    found = _place("gather_object", group)
    if found is None:
        return
    to = _in_group("gather_object(dst)", found, 0 if dst is None and group_dst is None else dst, group_dst)
    is_target = found.ranks[found.rank()] == to
    if is_target:
        _need_list("gather_object(object_gather_list)", object_gather_list, found.size())
    data = pickle.dumps(obj)
    got = exchanged(found, "gather_object()", [data if rank == to else b"" for rank in found.ranks])
    if is_target:
        assert object_gather_list is not None
        object_gather_list[:] = map(pickle.loads, got)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """Replace the objects in the list of every rank by those of rank `src` (0 unless given)."""
    found = _place("broadcast_object_list", group)
    if found is None:
        return
    name = "broadcast_object_list"
    root = _in_group(f"{name}(src)", found, 0 if src is None and group_src is None else src, group_src)
    _need_list(f"{name}(object_list)", object_list, None)
    is_source = found.ranks[found.rank()] == root
    data = pickle.dumps(list(object_list)) if is_source else b""
    got = exchanged(found, f"{name}()", [data] * found.size())
    if not is_source:
        objects = pickle.loads(got[found.ranks.index(root)])
        if len(objects) != len(object_list):
            raise ArgumentValueError(
                f"{name}: rank {root} gave {len(objects)} objects, not {len(object_list)}"
            )
        object_list[:] = objects


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: list[Any] | None = None,
    src: int | None = None, group: Any = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Put the i-th object of the list of rank `src` (0 unless given) first in the list of the i-th rank."""
    found = _place("scatter_object_list", group)
    if found is None:
        return
    name = "scatter_object_list"
    root = _in_group(f"{name}(src)", found, 0 if src is None and group_src is None else src, group_src)
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ArgumentValueError(
            "Expected argument scatter_object_output_list to be a list of size at least 1."
        )
    data = [b""] * found.size()
    if found.ranks[found.rank()] == root:
        _need_list(f"{name}(scatter_object_input_list)", scatter_object_input_list, found.size())
        assert scatter_object_input_list is not None
        data = [pickle.dumps(one) for one in scatter_object_input_list]
    got = exchanged(found, f"{name}()", data)
    scatter_object_output_list[0] = pickle.loads(got[found.ranks.index(root)])


def send_object_list(object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
                     group_dst: int | None = None) -> None:  # fmt: skip
    """Send objects to rank `dst`, which calls `recv_object_list`."""
    data = np.frombuffer(pickle.dumps(list(object_list)), np.uint8)
    send(make_tensor([data.size]), dst, group, 0, group_dst)
    send(make_tensor(data), dst, group, 0, group_dst)


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                     group_src: int | None = None) -> int:  # fmt: skip
    """Replace the objects in a list by those that rank `src` sends.  Returns whom they came from."""
    size = make_tensor([0])
    source = recv(size, src, group, 0, group_src)
    data = make_tensor(np.empty(int(size.item()), np.uint8), dtype=dtypes.uint8)
    recv(data, source, group, 0)
    object_list[:] = pickle.loads(data.numpy().tobytes())
    return source


def _need_list(name: str, given: Any, count: int | None) -> None:
    if not isinstance(given, list) or not given:
        raise ArgumentError(f"{name}: a list, not {type(given).__name__}")
    if count is not None and len(given) != count:
        raise ArgumentValueError(f"{name}: {count} places, one for each rank, not {len(given)}")


def agreed(group: ProcessGroup, value: Any) -> list[Any]:
    """The values of all ranks of a group, in order."""
    found: list[Any] = [None] * group.size()
    all_gather_object(found, value, group)
    return found
