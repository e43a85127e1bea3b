"""Schedules of pipelines: each is simulated, and held to the closed form and to what must hold of any."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.planning import Layout, PlanError, transformer
from lamina.planning.pipeline_schedule import closed_form, in_flight, order_of, simulate
from lamina.planning.stage_cuts import cut

SHAPES = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4))


def whole(shape):
    """(ranks, chunks, micro-batches) that a schedule takes: interleaved ones come in rounds."""
    pp, chunks, rounds = shape
    chunks = chunks if pp > 1 else 1
    return pp, chunks, rounds * pp if chunks > 1 else rounds


def length(tasks):
    return max(task.end for task in tasks)


@given(SHAPES, st.integers(1, 5), st.integers(1, 5))
def test_equal_ranks_take_the_closed_form(shape, forward, backward):
    pp, chunks, micro_batches = whole(shape)
    tasks = simulate([[forward] * chunks] * pp, [[backward] * chunks] * pp, micro_batches)
    each = chunks * (forward + backward)
    assert length(tasks) == closed_form([each] * pp, chunks, micro_batches)


@pytest.mark.parametrize(("pp", "chunks", "micro_batches"), [(4, 1, 8), (8, 1, 64), (4, 2, 8), (8, 4, 16)])
def test_the_bubble_is_ranks_less_one_over_micro_batches(pp, chunks, micro_batches):
    """(p - 1) / m of the work, 1 / v of that where interleaved: Narayanan et al. 2021, section 2.2."""
    tasks = simulate([[1.0] * chunks] * pp, [[2.0] * chunks] * pp, micro_batches)
    work = 3.0 * chunks * micro_batches
    assert length(tasks) / work - 1 == pytest.approx(
        (pp - 1) / (micro_batches * chunks), rel=1e-9
    )  # sums of thirds


@given(SHAPES, st.data())
def test_no_schedule_is_shorter_than_the_slowest_rank(shape, data):
    """And each rank does one thing at a time, nothing before what it needs, everything once."""
    pp, chunks, micro_batches = whole(shape)
    draw = st.lists(st.integers(1, 9), min_size=chunks, max_size=chunks)
    forward, backward = ([data.draw(draw) for _ in range(pp)] for _ in range(2))
    tasks = simulate(forward, backward, micro_batches)
    assert len({task[:4] for task in tasks}) == len(tasks) == 2 * pp * chunks * micro_batches
    ends = {(t.rank, t.chunk, t.micro_batch, t.backward): t.end for t in tasks}
    for rank in range(pp):
        own = sorted((t.start, t.end) for t in tasks if t.rank == rank)
        assert all(before[1] <= after[0] for before, after in zip(own, own[1:], strict=False))
        assert length(tasks) >= micro_batches * (sum(forward[rank]) + sum(backward[rank]))
    for t in tasks:
        if t.backward:
            assert t.start >= ends[t.rank, t.chunk, t.micro_batch, False]
        elif t.rank:
            assert t.start >= ends[t.rank - 1, t.chunk, t.micro_batch, False]


@given(SHAPES)
def test_activations_in_flight_are_counted(shape):
    pp, chunks, micro_batches = whole(shape)
    for rank in range(pp):
        held = most = 0
        for backward, _, _ in order_of(rank, pp, chunks, micro_batches):
            held += -1 if backward else 1
            most = max(most, held)
        assert held == 0 and most == in_flight(rank, pp, chunks, micro_batches)


def test_interleaving_holds_more_activations():
    """1 + (p - 1) / (p v) of a whole model's: Korthikanti et al. 2022, section 4.2.3."""
    pp, chunks = 8, 4
    assert in_flight(0, pp, 1, 64) == pp
    assert in_flight(0, pp, chunks, 64) / (pp * chunks) == 1 + (pp - 1) / (pp * chunks)


def model(layers):
    return transformer(f"layers={layers},hidden=64,heads=4,vocab=100,seq=16")


def counts(layers, pp, chunks=1):
    """How many repeated layers each (rank, chunk) has."""
    ranks = cut(model(layers), Layout(pp=pp, chunks=chunks))
    return [[sum(run.copies for run in chunk if run.layer.block) for chunk in rank] for rank in ranks]


def test_layers_are_cut_evenly_and_ends_get_the_fewest():
    assert counts(8, 4) == [[2], [2], [2], [2]]
    assert counts(8, 2, 2) == [[2, 2], [2, 2]]
    assert counts(126, 16)[0] == counts(126, 16)[-1] == [7] and sum(sum(counts(126, 16), [])) == 126
    assert counts(6, 4, 2) == [[0, 1], [1, 1], [1, 1], [1, 0]]  # the embedding, the logits stand alone


def test_the_first_rank_has_the_embedding_and_the_last_the_logits():
    ranks = cut(model(8), Layout(pp=4))
    assert ranks[0][0][0].layer.name == "embedding" and ranks[-1][-1][-1].layer.name == "logits and loss"
    assert sum(run.copies for rank in ranks for chunk in rank for run in chunk) == 10


def test_too_few_layers_are_refused():
    with pytest.raises(PlanError, match=r"a repeated layer for each of its parts \(4 < 6\)"):
        cut(model(4), Layout(pp=8))
