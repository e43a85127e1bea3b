"""Saves in the background: what training writes meanwhile is not in them, errors come with the result."""

import os
import threading
from pathlib import Path

import checkpoint_ranks as ranks
import numpy as np
import pytest

import lamina
import lamina.distributed.checkpoint as dcp
from lamina.distributed.checkpoint import state_dict_saver
from lamina.distributed.checkpoint.format_utils import read_whole


@pytest.fixture
def gate(monkeypatch):
    """A write that waits until it is let through; `entered` tells that it waits."""
    entered, through = threading.Event(), threading.Event()
    write = dcp.FileSystemWriter.write

    def waiting(self, *args):
        entered.set()
        assert through.wait(60)
        return write(self, *args)

    monkeypatch.setattr(dcp.FileSystemWriter, "write", waiting)
    yield entered, through
    through.set()


def test_what_is_written_meanwhile_is_not_saved(tmp_path, gate):
    entered, through = gate
    w, array = lamina.arange(1000.0), np.arange(10)
    state = {"w": w, "t": w.reshape(10, 100).t(), "array": array, "n": [1]}
    saving = dcp.async_save(state, checkpoint_id=tmp_path / "a")
    assert entered.wait(60) and not saving.done()
    w.fill_(-1)
    array.fill(-1)
    state["n"].append(2)
    through.set()
    saving.result(60)
    found = read_whole(tmp_path / "a")
    assert lamina.equal(found["w"], lamina.arange(1000.0)) and found["array"].tolist() == [*range(10)]
    assert lamina.equal(found["t"], lamina.arange(1000.0).reshape(10, 100).t()) and found["n"] == [1]


def test_the_second_waits_for_the_first(tmp_path, gate):
    entered, through = gate
    x = lamina.zeros(4)
    first = dcp.async_save({"x": x}, checkpoint_id=tmp_path / "a")
    assert entered.wait(60)
    begun = []

    def again():
        begun.append(dcp.async_save({"x": x}, checkpoint_id=tmp_path / "b"))

    other = threading.Thread(target=again)
    other.start()
    other.join(0.2)
    assert other.is_alive() and not begun  # it would copy into memory that is being written from
    x.fill_(1)
    through.set()
    other.join(60)
    assert first.done()
    begun[0].result(60)
    assert read_whole(tmp_path / "a")["x"].tolist() == [0] * 4
    assert read_whole(tmp_path / "b")["x"].tolist() == [1] * 4


def test_copies_take_the_memory_of_those_before(tmp_path):
    x = lamina.zeros(1000)
    seen = []
    for i in range(3):
        x.fill_(i)
        state = {"x": x, "y": lamina.ones(i + 1)}  # of another size each time
        dcp.async_save(state, checkpoint_id=tmp_path / str(i)).result(60)
        room = state_dict_saver.BACKGROUND._room
        seen.append({name: each.__array_interface__["data"][0] for (name, _), each in room.items()})
    assert len({each["x"] for each in seen}) == 1 and seen[0]["x"] != x.data_ptr()
    assert [read_whole(tmp_path / str(i))["x"][0].item() for i in range(3)] == [0, 1, 2]
    assert len(state_dict_saver.BACKGROUND._room) == 2


def test_errors_come_with_the_result_and_leave_the_next(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    saving = dcp.async_save({"x": lamina.zeros(2)}, checkpoint_id=tmp_path / "file" / "a")
    with pytest.raises(dcp.CheckpointException, match="could not be written"):
        saving.result(60)
    with pytest.raises(lamina.ir.errors.ArgumentError, match="x is a object"):
        dcp.async_save({"x": object()}, checkpoint_id=tmp_path / "a")
    dcp.async_save({"x": 1}, checkpoint_id=tmp_path / "a").result(60)
    assert read_whole(tmp_path / "a") == {"x": 1}


def test_a_forked_child_saves_in_a_thread_of_its_own(tmp_path):
    dcp.async_save({"x": 1}, checkpoint_id=tmp_path / "a").result(60)
    child = os.fork()
    if not child:
        try:
            dcp.async_save({"x": 2}, checkpoint_id=tmp_path / "b").result(30)
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert read_whole(tmp_path / "b") == {"x": 2}


def test_what_another_rank_writes_is_not_copied(tmp_path, monkeypatch):
    """Of what all have, each rank copies what it is to write: together no more than one copy."""
    copied = []
    keep = state_dict_saver.Background.copied

    def noting(self, chunks):
        copied.append(sum(each.nbytes for each in chunks.values()))
        return keep(self, chunks)

    monkeypatch.setattr(state_dict_saver.Background, "copied", noting)
    # Ranks are threads here, and a process has one background: each gets its own.
    own = {f"rank {r}": state_dict_saver.Background() for r in range(3)}

    class OfThread:
        def __getattr__(self, name):
            return getattr(own[threading.current_thread().name], name)

    monkeypatch.setattr("lamina.distributed.checkpoint.state_dict_saver.BACKGROUND", OfThread())
    state = {str(i): lamina.full((100,), i) for i in range(9)}

    def work(meeting):
        threading.current_thread().name = f"rank {meeting.rank}"
        return dcp.async_save(state, checkpoint_id=tmp_path / "a", process_group=meeting).result(60)

    found = ranks.on_ranks(3, work)
    assert all(isinstance(each, dcp.Metadata) for each in found), found
    assert copied == [sum(x.nbytes for x in state.values()) // 3] * 3
    assert all((x == i).all() for i, x in enumerate(read_whole(Path(tmp_path / "a")).values()))
