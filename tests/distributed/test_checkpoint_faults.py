"""Each call to the system that a save makes fails in turn: an error says so, and the old one is whole."""

import errno
import fcntl
import json
import os
import threading
from pathlib import Path
from typing import Any

import checkpoint_ranks as ranks
import pytest

import lamina
import lamina.distributed.checkpoint as dcp
from lamina.distributed.checkpoint import disk, filesystem, leftovers, scratch
from lamina.distributed.checkpoint.format_utils import read_whole

OLD = {"x": lamina.arange(5), "n": {"step": 1}}
NEW = {"x": lamina.arange(5) * 2, "n": {"step": 2}}
CALLS = (
    "open", "write", "fsync", "close", "mkdir", "makedirs", "rename", "replace", "unlink", "rmdir", "listdir",
    "fstat", "stat", "lstat", "pread", "preadv", "flock",
)  # fmt: skip


class Failing:
    """A module of the system whose calls are counted, one of which fails: before it did anything, or after.

    thread: whose calls count; None for all.
    """

    def __init__(self, module: Any, counter: "Counter"):
        self._module, self._counter = module, counter

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return self._counter.wrapped(name, found) if name in CALLS else found


class Counter:
    def __init__(self, at: int, error: BaseException, after: bool, thread: str | None = None):
        self.left, self.error, self.after, self.thread = at, error, after, thread
        self.hit: str | None = None

    def wrapped(self, name: str, call: Any) -> Any:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if self.thread not in (None, threading.current_thread().name):
                return call(*args, **kwargs)
            self.left -= 1
            if self.left == -1:
                self.hit = name
                if self.after:
                    call(*args, **kwargs)
                raise self.error
            return call(*args, **kwargs)

        return counted


def inject(monkeypatch: pytest.MonkeyPatch, counter: Counter) -> None:
    for module in (disk, scratch, leftovers, filesystem):
        monkeypatch.setattr(module, "os", Failing(os, counter))
    for module in (scratch, leftovers):
        monkeypatch.setattr(module, "fcntl", Failing(fcntl, counter))


def leftover(folder: Path) -> list[str]:
    return [p.name for p in folder.rglob("*") if ".tmp-" in p.name]


ERRORS = {
    "full": lambda: OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
    "forbidden": lambda: PermissionError(errno.EACCES, os.strerror(errno.EACCES)),
    "interrupt": KeyboardInterrupt,
}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("over", [False, True], ids=["beside", "over"])
def test_each_call_of_a_save_fails(over, kind, after, tmp_path, monkeypatch):
    seen, refused = set(), 0
    for at in range(200):
        folder = tmp_path / str(at)
        old, new = folder / "old", folder / ("old" if over else "new")
        dcp.save(OLD, checkpoint_id=old)
        counter = Counter(at, ERRORS[kind](), after)
        with monkeypatch.context() as patch:
            inject(patch, counter)
            try:
                dcp.save(NEW, checkpoint_id=new)
                failed = None
            except BaseException as error:
                failed = error
        if counter.hit is None:
            assert failed is None
            break
        seen.add(counter.hit)
        refused += failed is not None
        if failed is not None:
            if kind == "interrupt":
                assert type(failed) is KeyboardInterrupt
            else:
                assert type(failed) is dcp.CheckpointException, (counter.hit, failed)
                assert os.strerror(counter.error.errno) in str(failed) and str(new) in str(failed)
        if not over:
            assert ranks.same(read_whole(old), OLD)
        if over or new.exists():  # what is there is the one or the other, whole
            found = read_whole(new)
            assert ranks.same(found, NEW) or over and failed is not None and ranks.same(found, OLD), (
                counter.hit
            )
        else:
            assert failed is not None
        dcp.save(OLD, checkpoint_id=new)  # and the next save works, and removes what this one left
        assert ranks.same(read_whole(new), OLD)
        assert leftover(folder) == [], (counter.hit, at)
        assert len([*new.iterdir()]) == 2, (counter.hit, at, [*new.iterdir()])
    else:
        raise AssertionError("the calls do not end")
    assert seen >= {"open", "write", "fsync", "close", "mkdir", "flock", "unlink", "listdir"} | (
        {"rename", "replace"} if over else {"rename"}
    )
    assert refused >= 15  # of open, flock, mkdir, three files, folders, renames


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_call_that_fails_on_one_rank_ends_all(failing, tmp_path, monkeypatch):
    big = {str(i): lamina.full((5,), i) for i in range(6)}
    for at in range(200):
        new = tmp_path / f"{at}" / "new"
        counter = Counter(at, ERRORS["full"](), False, f"rank {failing}")

        def work(meeting, new=new):
            threading.current_thread().name = f"rank {meeting.rank}"
            return dcp.save(big, checkpoint_id=new, process_group=meeting)

        with monkeypatch.context() as patch:
            inject(patch, counter)
            found = ranks.on_ranks(3, work)
        kinds = {type(each) for each in found}
        assert len(kinds) == 1, found
        if counter.hit is None:
            assert kinds == {dcp.Metadata}
            break
        if kinds == {dcp.CheckpointException}:
            assert all(f"ended on rank {failing}" in str(each) for each in found)
            assert all("No space left on device" in each.failures[failing] for each in found)
        if new.exists():
            assert len(read_whole(new)) == 6
        if failing:
            assert kinds == {dcp.CheckpointException} and not new.exists() and leftover(new.parent) == []
    assert at > (10 if failing == 0 else 4)


def test_an_interrupt_on_one_rank_is_raised_there_and_told_to_all(tmp_path, monkeypatch):
    write = dcp.FileSystemWriter.write

    def interrupted(self, folder, identity, rank, chunks):
        if rank == 1:
            raise KeyboardInterrupt
        return write(self, folder, identity, rank, chunks)

    monkeypatch.setattr(dcp.FileSystemWriter, "write", interrupted)
    found = ranks.on_ranks(3, lambda m: dcp.save(OLD, checkpoint_id=tmp_path / "a", process_group=m))
    assert type(found[1]) is KeyboardInterrupt
    assert [type(found[r]) for r in (0, 2)] == [dcp.CheckpointException] * 2
    assert [found[r].failures for r in (0, 2)] == [{1: "it was interrupted"}] * 2
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("kind", ["full", "interrupt"])
def test_each_call_of_a_load_fails(kind, tmp_path, monkeypatch):
    """Nothing is changed but by the last reading, which is of files that were read before."""
    dcp.save(OLD, checkpoint_id=tmp_path / "a")
    fill, filling = dcp.FileSystemReader.fill, []
    monkeypatch.setattr(dcp.FileSystemReader, "fill", lambda *args: (filling.append(1), fill(*args)))
    for at in range(100):
        state = {"x": lamina.zeros(5, dtype=lamina.int64), "n": {"step": 0}}
        counter = Counter(at, ERRORS[kind](), False)
        with monkeypatch.context() as patch:
            inject(patch, counter)
            try:
                dcp.load(state, checkpoint_id=tmp_path / "a")
                failed = None
            except BaseException as error:
                failed = error
        if counter.hit is None:
            assert ranks.same(state, OLD)
            break
        assert failed is not None or counter.hit == "close"
        assert filling or not state["x"].any() and state["n"]["step"] == 0
        filling.clear()
    assert at > 8


def test_a_lock_that_is_held_is_not_swept(tmp_path):
    """What a save that is alive has is left alone by another; once it is dead, the next one removes it."""
    alive = scratch.Scratch(str(tmp_path / "a"), True, False)
    assert {p.suffix for p in tmp_path.iterdir()} == {f".tmp-{alive.identity}", ".lock"}
    dcp.save(OLD, checkpoint_id=tmp_path / "b")
    assert os.path.isdir(alive.folder) and os.path.exists(alive.folder + ".lock")
    os.close(alive._handle)  # as the system does when its process ends
    alive._handle = None
    dcp.save(OLD, checkpoint_id=tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "c"]


def test_what_is_not_of_a_save_is_not_swept(tmp_path):
    theirs = [".a.tmp-0123456789ab", ".b.tmp-0123456789ab.lock", ".c.tmp-xyz.lock", ".tmp-0123456789ab"]
    for name in theirs:
        (tmp_path / name).mkdir() if not name.endswith("lock") else (tmp_path / name).write_text("{}")
    (tmp_path / theirs[0] / "mine").write_text("precious")
    folder = tmp_path / ".d.tmp-aaaaaaaaaaaa"  # one that is ours, with a file that is not
    folder.mkdir()
    (folder / "mine").write_text("precious")
    lock = json.dumps({"about": leftovers.OURS, "host": leftovers.host(), "pid": 999999999})
    (tmp_path / (folder.name + ".lock")).write_text(lock)
    other = tmp_path / ".f.tmp-cccccccccccc.lock"  # of another program, which says as much of itself
    other.write_text(lock.replace(leftovers.OURS, "mine"))
    elsewhere = tmp_path / ".e.tmp-bbbbbbbbbbbb.lock"
    elsewhere.write_text(lock.replace(leftovers.host(), "elsewhere"))
    dcp.save(OLD, checkpoint_id=tmp_path / "a")
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {*theirs, folder.name, folder.name + ".lock", elsewhere.name, other.name, "a"}
    assert (folder / "mine").read_text() == "precious"
    day = leftovers.DAY + 60
    os.utime(elsewhere, (os.stat(elsewhere).st_atime - day, os.stat(elsewhere).st_mtime - day))
    dcp.save(OLD, checkpoint_id=tmp_path / "a2")
    assert not elsewhere.exists()


def test_without_locks_the_process_number_tells(tmp_path, monkeypatch):
    class NoLocks:
        LOCK_EX, LOCK_NB = fcntl.LOCK_EX, fcntl.LOCK_NB

        @staticmethod
        def flock(*_: Any) -> None:
            raise OSError(errno.ENOLCK, "no locks")

    for module in (scratch, leftovers):
        monkeypatch.setattr(module, "fcntl", NoLocks)
    alive = scratch.Scratch(str(tmp_path / "a"), True, False)
    dcp.save(OLD, checkpoint_id=tmp_path / "b")
    assert os.path.isdir(alive.folder)
    text = Path(alive.folder + ".lock").read_text()
    Path(alive.folder + ".lock").write_text(text.replace(str(os.getpid()), "999999999"))
    dcp.save(OLD, checkpoint_id=tmp_path / "c")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "c"]
    alive.abandon()


def test_a_folder_where_one_may_not_write(tmp_path):
    if os.getuid() == 0:
        target = "/proc/nowhere/a"  # root may write everywhere but there
    else:
        (tmp_path / "shut").mkdir(mode=0o500)
        target = str(tmp_path / "shut" / "a")
    with pytest.raises(dcp.CheckpointException, match=f"save\\(\\): {target} could not be written"):
        dcp.save(OLD, checkpoint_id=target)


def test_what_is_renamed_is_on_the_disk_before(tmp_path, monkeypatch):
    """The order that outlives the machine: files, their folder, the rename, the folder of the name."""
    calls = []

    def path_of(handle):
        return os.readlink(f"/proc/self/fd/{handle}")

    class Noting:
        def __getattr__(self, name):
            found = getattr(os, name)
            if name == "fsync":
                return lambda handle: (
                    calls.append(("fsync", os.readlink(f"/proc/self/fd/{handle}"))),
                    found(handle),
                )
            if name in ("rename", "replace"):
                return lambda a, b: (calls.append(("rename", a, b)), found(a, b))
            return found

    for module in (disk, scratch):
        monkeypatch.setattr(module, "os", Noting())
    target = str(tmp_path / "runs" / "a")
    dcp.save(OLD, checkpoint_id=target)
    at = next(i for i, call in enumerate(calls) if call[0] == "rename")
    folder = calls[at][1]
    names = os.listdir(target)
    before = [call[1] for call in calls[:at]]
    assert {os.path.join(folder, name) for name in names} | {folder, str(tmp_path)} == set(before)
    assert before[-1] == folder and calls[at + 1 :] == [("fsync", os.path.dirname(target))]
    calls.clear()
    dcp.save(NEW, checkpoint_id=target)  # over it: the files move first, and are there before the index is
    kinds = [(call[0], os.path.basename(call[-1])[-5:]) for call in calls]
    assert kinds[-4:] == [("rename", "nsors"), ("fsync", "a"), ("rename", ".json"), ("fsync", "a")]
    calls.clear()
    dcp.save(NEW, storage_writer=dcp.FileSystemWriter(target, sync_files=False))
    assert not [call for call in calls if call[0] == "fsync"]
