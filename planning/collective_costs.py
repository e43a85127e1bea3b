"""What collectives take: alpha of each step and beta of each byte, as rings and trees do them.

`nbytes` is what each rank ends up with or gives in: of an all-gather the whole result, of an all-reduce or
reduce-scatter the whole operand.  Source of the counts: Thakur, Rabenseifner and Gropp 2005, "Optimization of
Collective Communication Operations in MPICH"; a ring over several nodes crosses the network once for each,
and every member that a group has in a node brings its own link to it.
"""

from __future__ import annotations

from math import ceil, log2

from .accelerators import Accelerator
from .mesh_layout import Group


def bandwidth(device: Accelerator, group: Group) -> float:
    """Bytes a second that a ring through the group moves past each rank."""
    if group.nodes == 1:
        return device.node.rate
    return min(device.node.rate if group.per_node > 1 else float("inf"), group.per_node * device.network.rate)


def _ring_latency(device: Accelerator, group: Group) -> float:
    """Seconds that a token takes once around, short of the last step."""
    across = group.nodes if group.nodes > 1 else 0
    return max(group.size - 1 - across, 0) * device.node.latency + across * device.network.latency


def sent_by_all_reduce(group: Group, nbytes: float) -> float:
    """Bytes that each rank of a ring sends: 2 (n - 1) / n of the operand."""
    return 2 * (group.size - 1) / group.size * nbytes


def sent_by_gather(group: Group, nbytes: float) -> float:
    """Bytes that each rank sends in a ring of all-gather or reduce-scatter, or where all send to all."""
    return (group.size - 1) / group.size * nbytes


def ring_all_reduce(device: Accelerator, group: Group, nbytes: float) -> float:
    """Seconds of an all-reduce as a reduce-scatter and an all-gather around a ring."""
    if group.size == 1:
        return 0.0
    sent = sent_by_all_reduce(group, nbytes)
    return 2 * _ring_latency(device, group) + sent / bandwidth(device, group)


def tree_all_reduce(device: Accelerator, group: Group, nbytes: float) -> float:
    """Seconds of an all-reduce up and down two trees of nodes, each of half of the bytes."""
    if group.size == 1:
        return 0.0
    near = min(group.per_node, group.size) - 1
    deep = ceil(log2(group.nodes)) if group.nodes > 1 else 0
    latency = 2 * (near * device.node.tree + deep * device.network.tree)
    return latency + 2 * nbytes / bandwidth(device, group)


def all_reduce(device: Accelerator, group: Group, nbytes: float) -> float:
    """Seconds of the quicker of the two."""
    return min(ring_all_reduce(device, group, nbytes), tree_all_reduce(device, group, nbytes))


def all_gather(device: Accelerator, group: Group, nbytes: float, messages: float = 1) -> float:
    """Seconds of an all-gather or a reduce-scatter around a ring, in so many messages."""
    if group.size == 1:
        return 0.0
    latency = messages * _ring_latency(device, group)
    return latency + sent_by_gather(group, nbytes) / bandwidth(device, group)


def all_to_all(device: Accelerator, group: Group, nbytes: float) -> float:
    """Seconds in which each rank sends every other its part of `nbytes`, each by its own link."""
    if group.size == 1:
        return 0.0
    beyond = (group.size - min(group.per_node, group.size)) / group.size * nbytes
    within = sent_by_gather(group, nbytes) - beyond
    latency = device.network.latency if group.nodes > 1 else device.node.latency
    return latency + max(within / device.node.rate, beyond / device.network.rate)


def send(device: Accelerator, within: bool, nbytes: float) -> float:
    """Seconds of a message from one rank to another, in the same node or not."""
    link = device.node if within else device.network
    return link.latency + nbytes / link.rate
