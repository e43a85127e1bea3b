"""Check the datasets: what they hold, and what they refuse."""

import pytest

import lamina
from lamina.data import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)


class Squares(Dataset):
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        return i * i


class Count(IterableDataset):
    def __init__(self, *numbers):
        self.numbers = numbers

    def __iter__(self):
        return iter(self.numbers)

    def __len__(self):
        return len(self.numbers)


def test_tensor_dataset_gives_rows():
    data = TensorDataset(lamina.arange(6).reshape(3, 2), lamina.tensor([7, 8, 9]))
    assert len(data) == 3
    assert [x.tolist() for x in data[1]] == [[2, 3], 8]


def test_tensor_dataset_names_the_lengths():
    with pytest.raises(lamina.ShapeError) as error:
        TensorDataset(lamina.zeros(3, 2), lamina.zeros(4))
    assert str(error.value) == (
        "TensorDataset(*tensors): the tensors must have one length\n  tensor 0: f32[3,2]\n  tensor 1: f32[4]"
    )


def test_concat_finds_its_parts():
    data = Squares(3) + Squares(2) + Squares(1)
    assert list(data) == [0, 1, 4, 0, 1, 0]
    assert data[-1] == 0 and data[-4] == 4
    assert data.cumulative_sizes == [5, 6]
    for outside in (6, -7):
        with pytest.raises(IndexError, match="outside a ConcatDataset of 6"):
            data[outside]


def test_concat_refuses_streams_and_nothing():
    with pytest.raises(ValueError, match="at least one"):
        ConcatDataset([])
    with pytest.raises(TypeError, match="use ChainDataset"):
        ConcatDataset([Count(1)])


def test_chain_goes_through_its_parts():
    data = Count(1, 2) + Count(3)
    assert list(data) == [1, 2, 3] and len(data) == 3
    with pytest.raises(TypeError, match="not Squares"):
        list(ChainDataset([Count(1), Squares(2)]))


def test_stack_is_a_tuple_or_a_dict():
    assert StackDataset(Squares(3), Count(5, 6, 7).numbers)[2] == (4, 7)
    assert StackDataset(x=Squares(3), y=Squares(3))[1] == {"x": 1, "y": 1}
    with pytest.raises(ValueError, match=r"one length, not \[3, 2\]"):
        StackDataset(Squares(3), Squares(2))


def test_subset_takes_indices_and_batches_of_them():
    class Together(Squares):
        def __getitems__(self, keys):
            return [("together", k) for k in keys]

    assert [*Subset(Squares(9), [5, 3])] == [25, 9]
    assert Subset(Squares(9), [5, 3]).__getitems__([1, 0]) == [9, 25]
    assert Subset(Together(9), [5, 3]).__getitems__([1]) == [("together", 3)]


@pytest.mark.parametrize(
    ("lengths", "sizes"), [([3, 7], [3, 7]), ([0.5, 0.3, 0.2], [5, 3, 2]), ([1 / 3] * 3, [4, 3, 3])]
)
def test_random_split_is_a_partition(lengths, sizes):
    parts = random_split(range(10), lengths, lamina.Generator().manual_seed(1))
    assert [len(p) for p in parts] == sizes
    assert sorted(i for p in parts for i in p.indices) == list(range(10))
    again = random_split(range(10), lengths, lamina.Generator().manual_seed(1))
    assert [p.indices for p in parts] == [p.indices for p in again]
    assert [i for p in parts for i in p.indices] != list(range(10))


def test_random_split_refuses_what_does_not_add_up():
    with pytest.raises(ValueError, match="must sum to the dataset's 10 samples") as error:
        random_split(range(10), [3, 6])
    assert "[3, 6], which sum to 9" in str(error.value)
    with pytest.raises(ValueError, match=r"fraction 0 must lie in \[0, 1\], not 1.5"):
        random_split(range(10), [1.5, -0.5])


@pytest.mark.parametrize("use", [lambda: Dataset()[0], lambda: iter(IterableDataset())])
def test_abstract_datasets_say_what_is_missing(use):
    with pytest.raises(TypeError, match=r"does not define __(getitem|iter)__"):
        use()


def test_stacked_datasets_are_asked_at_once_where_they_can_be():
    class Together(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            raise AssertionError("one by one")

        def __getitems__(self, indices):
            return [-i for i in indices]

    numbers = TensorDataset(lamina.arange(4))
    assert StackDataset(Together(), Together()).__getitems__([1, 3]) == [(-1, -1), (-3, -3)]
    rows = StackDataset(a=Together(), b=numbers).__getitems__([2])
    assert rows[0]["a"] == -2 and rows[0]["b"][0] == 2
