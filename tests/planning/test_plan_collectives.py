"""Collectives by alpha and beta, worked out by hand on a device of round numbers."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.planning import DEVICES, Layout, Link, Mesh
from lamina.planning.collective_costs import (
    all_gather,
    all_reduce,
    all_to_all,
    bandwidth,
    ring_all_reduce,
    send,
    sent_by_all_reduce,
    sent_by_gather,
    tree_all_reduce,
)
from lamina.planning.mesh_layout import Group

PLAIN = replace(
    DEVICES["h100"],
    node=Link(100.0, 1.0, 2.0, share=1.0),
    network=Link(10.0, 5.0, 7.0, share=1.0),
)


def test_a_ring_sends_all_but_a_part_twice():
    """2 (n - 1) / n of the operand, in 2 (n - 1) steps."""
    group = Group(4, 4)
    assert sent_by_all_reduce(group, 1000) == 1500 and sent_by_gather(group, 1000) == 750
    assert ring_all_reduce(PLAIN, group, 1000) == 2 * 3 * 1.0 + 1500 / 100


def test_a_ring_over_nodes_crosses_the_network_once_for_each():
    """Two nodes of four: 7 steps of which 2 are between them; four links at once carry the bytes."""
    group = Group(8, 4)
    assert group.nodes == 2 and bandwidth(PLAIN, group) == 40
    assert all_gather(PLAIN, group, 800) == (5 * 1.0 + 2 * 5.0) + 700 / 40
    assert bandwidth(PLAIN, Group(8, 1)) == 10
    assert (
        bandwidth(replace(PLAIN, network=Link(50.0, 5, 5, share=1.0)), group) == 100
    )  # the node's own is less


def test_a_tree_is_quicker_for_what_is_short():
    group = Group(64, 1)
    tree = 2 * 6 * 7.0 + 2 * 10 / 10
    assert tree_all_reduce(PLAIN, group, 10) == tree == all_reduce(PLAIN, group, 10)
    assert all_reduce(PLAIN, group, 1e6) == ring_all_reduce(PLAIN, group, 1e6)


def test_messages_of_a_gather_each_go_around():
    one, three = (all_gather(PLAIN, Group(4, 4), 400, messages) for messages in (1, 3))
    assert three - one == 2 * 3 * 1.0


def test_all_to_all_and_a_message():
    """Of eight ranks in two nodes four are beyond: half of the bytes, by the network."""
    assert all_to_all(PLAIN, Group(8, 4), 800) == 5.0 + 400 / 10
    assert all_to_all(PLAIN, Group(4, 4), 800) == 1.0 + 600 / 100
    assert send(PLAIN, True, 100) == 2.0 and send(PLAIN, False, 100) == 15.0


@pytest.mark.parametrize("collective", [all_reduce, all_gather, all_to_all, ring_all_reduce, tree_all_reduce])
def test_one_rank_waits_for_nobody(collective):
    assert collective(PLAIN, Group(1, 1), 1e9) == 0


def test_axes_stand_where_their_order_puts_them():
    """2 x 4 x 8: tensor in the node, data beside it, the pipeline between nodes."""
    layout, mesh = Layout(dp=4, tp=2, pp=8), Mesh(8, 8)
    assert layout.group(("tp",), mesh) == Group(2, 2)
    assert layout.group(("dp",), mesh) == Group(4, 4)
    assert layout.group(("pp",), mesh) == Group(8, 1)
    turned = Layout(dp=4, tp=2, pp=8, order=("tp", "pp", "cp", "dp"))
    assert turned.group(("pp",), mesh) == Group(8, 4)
    assert turned.group(("dp",), mesh) == Group(4, 1)
    assert Layout(dp=8, cp=2, tp=4).group(("cp", "dp"), mesh) == Group(16, 2)


@given(st.integers(1, 64), st.integers(0, 6), st.floats(1, 1e12), st.floats(1, 4))
def test_more_bytes_take_longer_and_all_reduce_is_the_best_of_two(size, near, nbytes, more):
    group = Group(size, min(size, 2**near))
    for collective in (all_reduce, all_gather, all_to_all):
        assert 0 <= collective(PLAIN, group, nbytes) <= collective(PLAIN, group, nbytes * more)
    assert all_reduce(PLAIN, group, nbytes) <= ring_all_reduce(PLAIN, group, nbytes)
