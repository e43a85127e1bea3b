"""Check the samplers: what they draw, how often, and that a generator decides it."""

from collections import Counter

import pytest

import lamina
from lamina.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from lamina.ir.errors import ArgumentValueError


def seeded(seed=3):
    return lamina.Generator().manual_seed(seed)


def test_sequential_goes_through_all():
    assert list(SequentialSampler("abc")) == [0, 1, 2] and len(SequentialSampler("abc")) == 3


def test_random_is_a_permutation_that_the_generator_decides():
    drawn = list(RandomSampler(range(50), generator=seeded()))
    assert sorted(drawn) == list(range(50)) != drawn
    assert drawn == list(RandomSampler(range(50), generator=seeded()))
    assert drawn != list(RandomSampler(range(50), generator=seeded(4)))


def test_random_epochs_differ_and_the_default_generator_decides_them():
    sampler = RandomSampler(range(50))
    lamina.manual_seed(5)
    first, second = list(sampler), list(sampler)
    lamina.manual_seed(5)
    assert first != second and first == list(sampler)


def test_random_epoch_ignores_what_else_is_drawn_meanwhile():
    lamina.manual_seed(5)
    plain = list(RandomSampler(range(100), replacement=True))  # drawn in several parts
    lamina.manual_seed(5)
    assert plain == [(i, lamina.rand(3))[0] for i in RandomSampler(range(100), replacement=True)]


def test_random_takes_more_and_fewer_than_there_are():
    assert len(set(RandomSampler(range(10), num_samples=4, generator=seeded()))) == 4
    drawn = list(RandomSampler(range(10), num_samples=25, generator=seeded()))
    assert sorted(drawn[:10]) == sorted(drawn[10:20]) == list(range(10)) and len(set(drawn[20:])) == 5


def test_random_with_replacement_draws_independently():
    sampler = RandomSampler(range(5), replacement=True, num_samples=1000, generator=seeded())
    counts = Counter(sampler)
    # 5 standard deviations of a binomial with n = 1000, p = 1/5: sqrt(160) = 12.6
    assert sum(counts.values()) == len(sampler) == 1000 and all(abs(counts[i] - 200) < 63 for i in range(5))


def test_random_of_nothing_is_empty():
    assert list(RandomSampler([])) == []


def test_subset_random_permutes_its_indices():
    drawn = list(SubsetRandomSampler(range(20, 60), generator=seeded()))
    assert sorted(drawn) == list(range(20, 60)) != drawn


def test_weighted_follows_its_weights():
    counts = Counter(WeightedRandomSampler([0.0, 1.0, 3.0], 1000, generator=seeded()))
    # 5 standard deviations of a binomial with n = 1000, p = 3/4: sqrt(187.5) = 13.7
    assert counts[0] == 0 and abs(counts[2] - 750) < 69
    assert sorted(WeightedRandomSampler([1.0, 2.0, 3.0], 3, replacement=False)) == [0, 1, 2]


def test_batches_keep_or_drop_the_rest():
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    assert len(BatchSampler(range(5), 2, False)) == 3 and len(BatchSampler(range(5), 2, True)) == 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: RandomSampler([1], num_samples=0), r"num_samples=…\) must be a positive int, not 0"),
        (lambda: RandomSampler([1], replacement=1), "must be a bool, not 1"),
        (lambda: WeightedRandomSampler([1.0], True), "must be a positive int, not True"),
        (lambda: WeightedRandomSampler([[1.0]], 1), "takes a sequence of numbers"),
        (lambda: BatchSampler([1], 2.0, False), r"batch_size=…\) must be a positive int, not 2.0"),
        (lambda: BatchSampler([1], 2, None), "must be a bool, not None"),
        (lambda: iter(Sampler()), "does not define __iter__"),
    ],
)
def test_samplers_refuse(make, says):
    with pytest.raises((ValueError, TypeError), match=says):
        make()


# ---- shares of processes
def test_distributed_shares_cover_the_dataset():
    for size in (10, 12, 3):
        for drop_last in (False, True):
            shares = [
                list(DistributedSampler(range(size), 4, rank, shuffle=False, drop_last=drop_last))
                for rank in range(4)
            ]
            length = size // 4 if drop_last else -(-size // 4)
            assert [len(s) for s in shares] == [length] * 4
            taken = [i for row in zip(*shares, strict=True) for i in row]
            assert taken == [i % size for i in range(4 * length)]


def test_distributed_order_follows_from_seed_and_epoch():
    samplers = [DistributedSampler(range(8), 2, rank, seed=5) for rank in range(2)]
    first = [list(s) for s in samplers]
    assert sorted(first[0] + first[1]) == list(range(8)) and [list(s) for s in samplers] == first
    for s in samplers:
        s.set_epoch(1)
    later = [list(s) for s in samplers]
    assert sorted(later[0] + later[1]) == list(range(8)) and later != first
    assert len(samplers[0]) == samplers[0].num_samples == 4 and samplers[0].total_size == 8


@pytest.mark.parametrize(
    "given", [{}, {"num_replicas": 2}, {"num_replicas": 2, "rank": 2}, {"num_replicas": 0, "rank": 0}]
)
def test_distributed_refusals(given):
    with pytest.raises(ArgumentValueError, match="DistributedSampler"):
        DistributedSampler(range(4), **given)


@pytest.mark.parametrize(
    "sampler",
    [
        RandomSampler(range(10)), RandomSampler(range(10), replacement=True),
        WeightedRandomSampler([1.0] * 9, 7), SubsetRandomSampler(range(8)),
    ],
)  # fmt: skip
def test_random_orders_are_drawn_when_they_are_first_asked_for(sampler):
    begun = [iter(sampler), iter(sampler)]
    first = []
    for each in begun:
        lamina.manual_seed(3)
        first.append(next(each))
    assert first[0] == first[1] and list(begun[0]) == list(begun[1])
