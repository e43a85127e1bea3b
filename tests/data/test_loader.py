"""Check the loader without workers: batches, order, arguments."""

import io
import sys

import pytest

import lamina
from lamina.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler, TensorDataset
from lamina.ir import lazy


class Stream(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))

    def __len__(self):
        return self.size


def batches(*args, **kwargs):
    return [x.tolist() if isinstance(x, lamina.Tensor) else x for x in DataLoader(*args, **kwargs)]


def test_batches_are_collated_and_the_last_is_short():
    assert batches(range(5), 2) == [[0, 1], [2, 3], [4]]
    assert batches(range(5), 2, drop_last=True) == [[0, 1], [2, 3]]
    assert batches(range(2)) == [[0], [1]]


def test_streams_are_batched_too():
    assert batches(Stream(5), 2) == [[0, 1], [2, 3], [4]]
    assert batches(Stream(5), 2, drop_last=True) == [[0, 1], [2, 3]]
    assert batches(Stream(4), 2) == [[0, 1], [2, 3]]
    assert batches(Stream(3), None) == [0, 1, 2]


def test_without_batches_samples_are_converted_only():
    data = TensorDataset(lamina.arange(3))
    assert [x[0].tolist() for x in DataLoader(data, None)] == [0, 1, 2]
    by_lists = BatchSampler(SequentialSampler(data), 2, False)
    assert [x[0].tolist() for x in DataLoader(data, None, sampler=by_lists)] == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("dataset", "kwargs", "length"),
    [
        (range(5), {"batch_size": 2}, 3),
        (range(5), {"batch_size": 2, "drop_last": True}, 2),
        (range(5), {"batch_size": None}, 5),
        (Stream(5), {"batch_size": 2}, 3),
        (Stream(5), {"batch_size": 2, "drop_last": True}, 2),
        (Stream(5), {"batch_size": None}, 5),
        (range(5), {"batch_sampler": [[0, 3], [1]]}, 2),
    ],
)
def test_length_is_the_number_of_batches(dataset, kwargs, length):
    loader = DataLoader(dataset, **kwargs)
    assert len(loader) == length == len(list(loader))


def test_shuffling_follows_the_generator():
    def epoch(seed):
        return batches(range(20), 4, shuffle=True, generator=lamina.Generator().manual_seed(seed))

    assert epoch(1) == epoch(1) != epoch(2)
    assert sorted(sum(epoch(1), [])) == list(range(20)) != sum(epoch(1), [])


def test_sampler_and_batch_sampler_set_the_order():
    assert batches(range(9), 2, sampler=[8, 1, 5]) == [[8, 1], [5]]
    assert batches(range(9), batch_sampler=[[8, 1], [5]]) == [[8, 1], [5]]


def test_samples_are_asked_for_together_where_the_dataset_can():
    class Together(Dataset):
        def __len__(self):
            return 3

        def __getitems__(self, keys):
            return [10 * k for k in keys]

    assert batches(Together(), 2) == [[0, 10], [20]]


def test_collate_fn_gets_the_list_of_samples():
    assert batches(range(3), 2, collate_fn=tuple) == [(0, 1), (2,)]
    assert batches(range(2), None, collate_fn=str) == ["0", "1"]


@pytest.mark.parametrize(
    ("kwargs", "says"),
    [
        ({"num_workers": -1}, "must be an int of at least 0, not -1"),
        ({"timeout": -1}, "must be at least 0, not -1"),
        ({"timeout": 1}, r"DataLoader\(timeout=…\): there are no workers"),
        ({"prefetch_factor": 2}, r"prefetch_factor=…\): there are no workers"),
        ({"persistent_workers": True}, "there are no workers"),
        ({"multiprocessing_context": "fork"}, "there are no workers"),
        ({"num_workers": 1, "multiprocessing_context": "thread"}, "must be one of .*spawn.*, not 'thread'"),
        ({"num_workers": 1, "multiprocessing_context": 3}, "takes a start method or a context, not int"),
        ({"num_workers": 1, "prefetch_factor": 0}, "must be positive, not 0"),
        ({"sampler": [0], "shuffle": True}, "sampler and shuffle exclude each other"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler excludes"),
        ({"batch_sampler": [[0]], "drop_last": True}, "batch_sampler excludes"),
        ({"batch_size": None, "drop_last": True}, "drop_last has nothing to leave out"),
        ({"batch_size": 0}, "must be a positive int, not 0"),
        ({"generator": 3}, "takes a lamina.Generator, not int"),
        ({"dataset": Stream(3), "shuffle": True}, r"shuffle=…\): an IterableDataset comes in its own order"),
        ({"dataset": Stream(3), "sampler": [1]}, r"sampler=…\): an IterableDataset"),
        ({"dataset": Stream(3), "batch_sampler": [[1]]}, r"batch_sampler=…\): an IterableDataset"),
        ({"dataset": Stream(3), "batch_size": 0}, "must be a positive int, not 0"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(kwargs, says):
    with pytest.raises((ValueError, TypeError), match=says):
        DataLoader(**{"dataset": range(3), **kwargs})


def test_what_the_loader_was_made_from_stays():
    loader = DataLoader(range(3))
    with pytest.raises(ValueError, match="batch_size can't be changed"):
        loader.batch_size = 4
    loader.collate_fn = len
    assert list(loader) == [1, 1, 1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bar_shows_how_far_an_epoch_is(monkeypatch, workers):
    told = Terminal()
    monkeypatch.setattr(sys, "stderr", told)
    loader = DataLoader(range(6), 2, num_workers=workers, progress="training")
    for _ in range(2):
        assert [x.tolist() for x in loader] == [[0, 1], [2, 3], [4, 5]]
    assert "training" in told.getvalue() and "0/3" in told.getvalue() and len(loader) == 3
    told.truncate(0)
    for _ in loader:  # left early, the bar goes
        break
    assert told.getvalue().endswith("\r")


def test_no_bar_where_nobody_sees_it(capsys):
    assert len(list(DataLoader(Stream(4), 2, progress=True))) == 2
    assert list(DataLoader(range(3), None, progress=True)) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")


def test_a_bar_needs_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(lazy.MissingLibraryError, match="tqdm"):
        DataLoader(range(3), progress=True)


class Telling(IterableDataset):
    def __len__(self):
        return 3

    def __iter__(self):
        return iter(range(5))


def test_a_stream_that_gives_more_than_it_told_is_warned_of():
    loader = DataLoader(Telling(), batch_size=1)
    assert sum(1 for _ in loader) == 5  # nobody has asked how many there are
    assert len(loader) == 3
    with pytest.warns(UserWarning, match="reported to be 3 .*but [45] samples have been fetched") as told:
        assert sum(1 for _ in loader) == 5
    assert len(told) == 2


def test_loaders_can_be_named_with_what_they_give():
    def epoch(loader: DataLoader[int], stacked: lamina.data.StackDataset[tuple]) -> int:
        return len(loader)

    assert epoch(DataLoader[int](range(4)), None) == 4
    assert lamina.data.DistributedSampler[int] is not None


def test_a_loader_is_made_before_its_dataset_is_there():
    for nothing in (None, DataLoader):  # as copyreg calls what a subclass of two classes is made again by
        with pytest.raises(TypeError, match="has no len"):
            list(DataLoader(nothing))
