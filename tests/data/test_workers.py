"""Check worker processes: order, memory, seeds, failures of every kind, and that nothing is left behind."""

import gc
import multiprocessing
import os
import random
import signal
import sys
import threading
import time
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import lamina
from lamina.data import DataLoader, Dataset, IterableDataset, WorkerError, get_worker_info
from lamina.distributed.launching import segments

METHODS = [
    "fork",
    pytest.param("spawn", marks=pytest.mark.slow),  # each worker imports the package: a second
    "forkserver",
]


def left_behind():
    """Processes, descriptors of shared memory, and named shared memory of this process."""
    fds = [
        f"{fd}: {os.readlink(fd)}"
        for fd in Path("/proc/self/fd").iterdir()
        if fd.is_symlink() and fd.exists()
    ]
    named = sorted(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else []
    return (
        [p.name for p in multiprocessing.active_children()],
        [fd for fd in fds if "lamina-batch" in fd],
        [name for name in named if not segments.NAMES.match(name)],  # MPI's are of tests that run beside
    )


@pytest.fixture(autouse=True)
def nothing_left_behind():
    before = left_behind()
    yield
    gc.collect()
    after = left_behind()
    assert after[:2] == ([], []) and set(after[2]) <= set(before[2])


class Numbers(Dataset):
    """Sample i is i, large enough for shared memory; `act` is called with i first."""

    def __init__(self, size=20, act=None, shape=(100, 100)):
        self.size, self.act, self.shape = size, act, shape

    def __len__(self):
        return self.size

    def __getitem__(self, i):
        if self.act is not None:
            self.act(i)
        return np.full(self.shape, i, np.float32), i


def uneven(i):
    time.sleep(0.02 if i % 4 == 0 else 0)


def where(i):
    return get_worker_info().id


def first_numbers(loader):
    return [labels.tolist() for _, labels in loader]


# ---- order and contents
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("prefetch", [1, 3])
def test_batches_come_in_order_whatever_the_workers_take(workers, prefetch):
    loader = DataLoader(Numbers(20, uneven), 3, num_workers=workers, prefetch_factor=prefetch)
    expected = list(DataLoader(Numbers(20), 3))
    for (x, labels), (y, wanted) in zip(loader, expected, strict=True):
        assert labels.tolist() == wanted.tolist() and bool((x == y).all())


def test_shuffling_does_not_depend_on_the_workers():
    def epochs(workers):
        loader = DataLoader(
            Numbers(), 3, shuffle=True, num_workers=workers, generator=lamina.Generator().manual_seed(8)
        )
        return first_numbers(loader), first_numbers(loader)

    assert epochs(0) == epochs(1) == epochs(2)


@pytest.mark.parametrize("method", METHODS)
def test_every_start_method_works(method):
    loader = DataLoader(Numbers(7), 2, num_workers=2, multiprocessing_context=method)
    assert first_numbers(loader) == [[0, 1], [2, 3], [4, 5], [6]]


def test_tensors_own_their_memory_and_can_be_written():
    seen = list(DataLoader(Numbers(12), 1, num_workers=1, prefetch_factor=1))
    assert [x[0, 0, 0].item() for x, _ in seen] == list(range(12))  # no later batch wrote over them
    for x, labels in seen:
        x.add_(labels.reshape(1, 1, 1))
        assert x._data.flags.writeable and x.requires_grad is False
    assert [x[0, -1, -1].item() for x, _ in seen] == list(range(0, 24, 2))


class Everything(Dataset):
    """One sample of all that crosses between processes, in sizes on both sides of what is shared."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        large = np.arange(20_000) + i
        fixed = large + 1
        fixed.flags.writeable = False
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            read_only, small = lamina.from_numpy(fixed), lamina.from_numpy(fixed[:3])
        return {
            "small": lamina.tensor([i, 2]),
            "large": lamina.from_numpy(large),
            "turned": lamina.from_numpy(large.reshape(200, 100)).T,
            "read only": read_only,
            "read only and small": small,
            "bfloat16": lamina.tensor(large % 7, dtype=lamina.bfloat16),
            "empty": lamina.zeros(0, 3),
            "scalar": lamina.tensor(2.5),
            "array": large.reshape(100, 200).T,
            "array of bfloat16": large.astype(ml_dtypes.bfloat16),
            "text": "x" * 40_000,
        }


def test_all_kinds_of_data_cross():
    loader = DataLoader(Everything(), None, num_workers=1, collate_fn=dict)
    for got, wanted in zip(loader, Everything(), strict=False):
        assert list(got) == list(wanted)
        for name, value in wanted.items():
            assert type(got[name]) is type(value), name
            if isinstance(value, lamina.Tensor):
                assert got[name].dtype is value.dtype and got[name].shape == value.shape
                assert bool((got[name] == value).all()) and got[name]._data.flags.writeable
            else:
                assert np.array_equal(got[name], value)


class Growing(Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, i):
        return np.full(2 ** (i + 8) + 5, i, np.float64)  # 2 KB to 4 MB


def test_batches_may_grow_and_shrink():
    for order in (list(range(12)), list(range(11, -1, -1)), [11, 0, 10, 3]):
        loader = DataLoader(Growing(), None, sampler=order, num_workers=1)
        for i, x in zip(order, loader, strict=True):
            assert x.shape == (2 ** (i + 8) + 5,) and bool((x == i).all())


def test_large_tasks_and_large_answers_do_not_wait_for_each_other():
    # Both directions together exceed what a pipe holds, many times over.
    keys = [list(range(100_000))] * 6
    loader = DataLoader(
        range(100_000), batch_sampler=keys, collate_fn=lambda xs: [str(x) for x in xs], num_workers=1
    )
    assert [len(b) for b in loader] == [100_000] * 6


# ---- streams
class Shard(IterableDataset):
    def __init__(self, size):
        self.size = size

    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, self.size, info.num_workers))


def test_streams_are_divided_by_worker_and_taken_in_turn():
    loader = DataLoader(Shard(11), 2, num_workers=2)
    assert [x.tolist() for x in loader] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9]]
    loader = DataLoader(Shard(11), 2, num_workers=2, drop_last=True)
    assert [x.tolist() for x in loader] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10]]


def test_streams_of_unlike_lengths_go_on_without_the_ended():
    class Unlike(IterableDataset):
        def __iter__(self):
            return iter([(get_worker_info().id, i) for i in range([1, 5, 3][get_worker_info().id])])

    loader = DataLoader(Unlike(), None, num_workers=3, collate_fn=tuple)
    assert list(loader) == [(0, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2), (1, 3), (1, 4)]


# ---- seeds and what a worker knows
class Draws(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        info = get_worker_info()
        assert info.num_workers == 2 and type(info.dataset) is Draws and get_worker_info() is info
        return info.id, info.seed, lamina.rand(()).item(), random.random(), np.random.random()


def test_workers_draw_from_seeds_of_their_own():
    def epochs(seed):
        loader = DataLoader(
            Draws(), None, num_workers=2, collate_fn=tuple, generator=lamina.Generator().manual_seed(seed)
        )
        return list(loader), list(loader)

    first, second = epochs(1)
    assert [x[0] for x in first] == [0, 1, 0, 1] and first[0][1] + 1 == first[1][1]
    for column in list(zip(*first, strict=True))[2:]:
        assert len(set(column)) == 4
    assert not {x[2] for x in first} & {x[2] for x in second}
    assert epochs(1) == (first, second) != epochs(2)
    assert get_worker_info() is None


def test_worker_init_fn_runs_before_the_first_sample():
    def init(worker):
        os.environ["LAMINA_TEST"] = str(worker)

    loader = DataLoader(
        range(4), None, num_workers=2, worker_init_fn=init, collate_fn=lambda i: os.environ["LAMINA_TEST"]
    )
    assert list(loader) == ["0", "1", "0", "1"]


def test_workers_use_one_thread_each():
    before = lamina.get_num_threads()
    loader = DataLoader(range(2), None, num_workers=2, collate_fn=lambda i: lamina.get_num_threads())
    assert list(loader) == [1, 1]
    assert lamina.get_num_threads() == before


def test_workers_begin_in_the_ordinary_mode():
    def record(i):
        return lamina.is_grad_enabled()

    with lamina.no_grad():
        assert list(DataLoader(range(2), None, num_workers=1, collate_fn=record)) == [True, True]


# ---- failures
class Odd(Exception):
    """Takes arguments that its pickled form does not have."""

    def __init__(self, a, b):
        super().__init__(f"{a} and {b}")


def fails(error):
    def act(i):
        if i == 3:
            raise error

    return act


@pytest.mark.parametrize("persistent", [False, True])
def test_an_exception_is_raised_again_with_worker_and_traceback(persistent):
    loader = DataLoader(Numbers(8, fails(KeyError("lost"))), 1, num_workers=2, persistent_workers=persistent)
    seen = []
    with pytest.raises(KeyError, match="lost") as error:
        for _, i in loader:
            seen.append(i.item())
    assert seen == [0, 1, 2] and error.value.args == ("lost",)
    (note,) = error.value.__notes__
    assert note.startswith("raised in worker 1 of the DataLoader:\nTraceback") and "in act" in note
    if not persistent:
        assert not multiprocessing.active_children()


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_come_after_one_that_could_not_be_made(workers, persistent):
    """As who leaves bad samples out expects."""
    if persistent and not workers:
        return
    loader = DataLoader(
        Numbers(10, fails(KeyError("lost"))), 2, num_workers=workers, persistent_workers=persistent
    )
    for _ in range(2):
        batches, seen = iter(loader), []
        assert len(batches) == 5
        while True:
            try:
                seen.append(next(batches)[1].tolist())
            except KeyError:
                seen.append("lost")
            except StopIteration:
                break
        assert seen == [[0, 1], "lost", [4, 5], [6, 7], [8, 9]]


def test_a_stream_that_cannot_begin_comes_to_an_end():
    class Bad(IterableDataset):
        def __iter__(self):
            raise ValueError("no")

    batches, seen = iter(DataLoader(Bad(), num_workers=2)), 0
    with pytest.raises(StopIteration):
        while True:
            try:
                next(batches)
            except ValueError:
                seen += 1
    assert seen == 2


@pytest.mark.parametrize("error", [Odd("this", "that"), StopIteration("this and that"), OSError(lambda: 0)])
def test_an_exception_that_cannot_be_raised_again_is_told(error):
    with pytest.raises(WorkerError, match="an exception was raised in worker 1 of the DataLoader") as caught:
        list(DataLoader(Numbers(4, fails(error)), 1, num_workers=2))
    assert type(error).__name__ in str(caught.value) and "in act" in str(caught.value)


def test_an_exception_in_init_or_collate_or_iter_is_raised_again():
    def refuse(_):
        raise ValueError("no")

    class Bad(IterableDataset):
        def __iter__(self):
            raise ValueError("no")

    for kwargs in ({"worker_init_fn": refuse}, {"collate_fn": refuse}, {"dataset": Bad()}):
        with pytest.raises(ValueError, match="no"):
            list(DataLoader(**{"dataset": range(4), "num_workers": 2, **kwargs}))


def test_a_batch_that_cannot_be_sent_is_told():
    with pytest.raises((TypeError, AttributeError), match="pickle") as error:
        list(DataLoader(range(4), num_workers=1, collate_fn=lambda x: threading.Lock()))
    assert "worker 0" in error.value.__notes__[0]


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda i: i == 3 and os._exit(7), "exited with code 7"),
        (lambda i: i == 3 and os.kill(os.getpid(), signal.SIGKILL), "was killed by SIGKILL\n.*out of memory"),
        (lambda i: i == 3 and os.kill(os.getpid(), signal.SIGTERM), "was killed by SIGTERM"),
    ],
)
@pytest.mark.parametrize("persistent", [False, True])
def test_a_death_is_noticed_at_once(act, says, persistent):
    loader = DataLoader(Numbers(8, act), 1, num_workers=2, persistent_workers=persistent)
    started = time.monotonic()
    with pytest.raises(WorkerError, match=rf"worker 1 of the DataLoader \(process \d+\) {says}"):
        list(loader)
    assert time.monotonic() - started < 5
    assert not multiprocessing.active_children()


def test_a_death_is_noticed_while_another_worker_is_waited_for():
    def act(i):
        if i == 1:
            os._exit(3)
        time.sleep(1.5)

    started = time.monotonic()
    with pytest.raises(WorkerError, match="worker 1 .* exited with code 3"):
        next(iter(DataLoader(Numbers(4, act), 1, num_workers=2)))
    assert time.monotonic() - started < 5


def test_a_loader_recovers_from_a_death():
    once = multiprocessing.Value("b", 1)

    def act(i):
        if i == 3 and once.value:
            once.value = 0
            os._exit(1)

    loader = DataLoader(Numbers(6, act), 2, num_workers=2, persistent_workers=True)
    with pytest.raises(WorkerError):
        list(loader)
    assert first_numbers(loader) == [[0, 1], [2, 3], [4, 5]]


def test_a_worker_that_takes_too_long_is_told():
    loader = DataLoader(
        Numbers(4, lambda i: time.sleep(0.6)), 1, num_workers=1, timeout=0.1, prefetch_factor=1
    )
    with pytest.raises(WorkerError, match="timed out after 0.1 seconds\n  waiting for worker 0"):
        list(loader)


def test_spawn_explains_what_cannot_be_pickled():
    with pytest.raises((AttributeError, TypeError)) as error:
        iter(DataLoader(range(3), num_workers=2, collate_fn=lambda x: x, multiprocessing_context="spawn"))
    assert "pass multiprocessing_context='fork'" in error.value.__notes__[0]


# ---- leaving early
def test_leaving_an_epoch_early_stops_the_workers():
    for _ in DataLoader(Numbers(100), 1, num_workers=2):
        break
    assert not multiprocessing.active_children()
    waiting = iter(DataLoader(Numbers(100), 1, num_workers=2))
    assert len(multiprocessing.active_children()) == 2  # at work before the first batch is asked for
    del waiting
    assert not multiprocessing.active_children()


def test_an_interrupt_stops_the_workers():
    def act(i):
        if i == 2:
            time.sleep(0.5)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in DataLoader(Numbers(8, act), 1, num_workers=1, prefetch_factor=1):
            pass
    timer.join()
    signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()


SCRIPT = """
import signal, sys, time, lamina, numpy as np
from lamina.data import DataLoader, Dataset
class Slow(Dataset):
    def __len__(self): return 100
    def __getitem__(self, i):
        time.sleep(0.05); return np.zeros(100_000)
signal.signal(signal.SIGINT, signal.default_int_handler)
for x in DataLoader(Slow(), 1, num_workers=2):
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -2), (signal.SIGKILL, -9)])
def test_the_end_of_the_program_is_the_end_of_its_workers(number, code, tmp_path):
    import subprocess

    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    program = subprocess.Popen(
        [sys.executable, script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with program:
        assert program.stdout.readline() == "ready\n"
        children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        program.send_signal(number)
        out, err = program.communicate(timeout=20)
    assert program.returncode == code and ("resource_tracker" not in err)
    end = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < end:
        time.sleep(0.02)
    assert len(children) == 2 and not any(Path(f"/proc/{child}").exists() for child in children)


# ---- workers that stay
def test_persistent_workers_serve_every_epoch():
    loader = DataLoader(Numbers(6, shape=()), 2, num_workers=2, persistent_workers=True, shuffle=True)
    workers = None
    for _ in range(3):
        assert sorted(sum(first_numbers(loader), [])) == list(range(6))
        now = {p.pid for p in multiprocessing.active_children()}
        assert len(now) == 2 and now == (workers or now)
        workers = now


def test_persistent_workers_begin_anew_after_an_epoch_was_left():
    loader = DataLoader(Numbers(30), 1, num_workers=2, persistent_workers=True, prefetch_factor=3)
    for stop in (1, 4, 0):
        for n, (x, i) in enumerate(loader):
            assert i.item() == n == x[0, 0, 0].item()
            if n == stop:
                break
    assert sum(first_numbers(loader), []) == list(range(30))


def test_what_an_epoch_that_was_left_had_asked_for_is_not_fetched():
    fetched = multiprocessing.Value("i", 0)

    def act(i):
        fetched.value += 1
        time.sleep(0.02)

    loader = DataLoader(Numbers(40, act, ()), 1, num_workers=1, persistent_workers=True, prefetch_factor=20)
    for _ in range(3):
        next(iter(loader))
    # One each, and the one at hand when the next epoch began; that is long before the 20 that were asked for.
    assert fetched.value <= 3 * 3


def test_persistent_streams_begin_anew():
    loader = DataLoader(Shard(7), None, num_workers=2, persistent_workers=True)
    assert [[*loader], [*loader]] == [[0, 1, 2, 3, 4, 5, 6]] * 2


def test_persistent_workers_go_on_after_an_exception():
    loader = DataLoader(Numbers(6, fails(ValueError("three"))), 1, num_workers=2, persistent_workers=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="three"):
            list(loader)


def test_an_older_iterator_over_persistent_workers_is_refused():
    loader = DataLoader(Numbers(8), 1, num_workers=1, persistent_workers=True)
    older = iter(loader)
    next(older)
    newer = iter(loader)
    with pytest.raises(WorkerError, match="replaced by a later one"):
        next(older)
    assert [i.item() for _, i in newer] == list(range(8))


def test_two_loaders_at_once_and_a_forked_copy_do_not_disturb_each_other():
    train = DataLoader(Numbers(6), 1, num_workers=2, persistent_workers=True)
    held = iter(train)
    next(held)
    pools = [train._pool]

    def forget(i):  # the workers of `other` hold copies of `train` and its pipes, and drop them
        if pools and os.getpid() != parent:
            pools[0]._finalizer()
            pools.clear()

    parent = os.getpid()
    other = DataLoader(Numbers(6, forget), 1, num_workers=2)
    assert sum(first_numbers(other), []) == list(range(6))
    assert [i.item() for _, i in held] == list(range(1, 6))
    del held, train, pools[:]
    gc.collect()
    assert not multiprocessing.active_children()
