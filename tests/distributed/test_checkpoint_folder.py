"""The checkpoints of a run: which stay, which is gone back to, and what is said of those that are damaged."""

import warnings

import checkpoint_ranks as ranks
import pytest

import lamina
import lamina.distributed.checkpoint as dcp
from lamina.distributed.checkpoint import disk
from lamina.ir.errors import ArgumentValueError, StateError


def state(step):
    return {"x": lamina.full((5,), step), "step": step}


def flip(folder, name="*.safetensors"):
    (file,) = folder.glob(name)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


def test_the_newest_stay(tmp_path):
    checkpoints = dcp.Checkpoints(tmp_path / "run", keep=2, every=10)
    assert (
        checkpoints.latest() is None and checkpoints.restore(state(0)) is None and checkpoints.steps() == []
    )
    for step in range(0, 51):
        if checkpoints.is_due(step):
            checkpoints.save(step, state(step))
    assert checkpoints.steps() == [40, 50] and checkpoints.latest() == 50
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["step-00000040", "step-00000050"]
    found = state(0)
    assert checkpoints.restore(found) == 50 and ranks.same(found, state(50))
    every = dcp.Checkpoints(tmp_path / "all", keep=None)
    for step in (1, 2, 3, 123_456_789):
        every.async_save(step, state(step)).result(60)
    assert every.steps() == [1, 2, 3, 123_456_789]
    every.keep = 1
    every.async_save(4, state(4)).result(60)  # the newest is the one of the largest step
    assert every.steps() == [123_456_789]


def test_a_damaged_one_is_left_out_with_a_warning(tmp_path):
    checkpoints = dcp.Checkpoints(tmp_path, keep=None)
    for step in (1, 2, 3):
        checkpoints.save(step, state(step))
    flip(tmp_path / "step-00000003")
    (tmp_path / "step-00000002" / disk.INDEX).write_text("{}")
    found = state(0)
    with pytest.warns(UserWarning) as told:
        assert checkpoints.restore(found) == 1
    assert ranks.same(found, state(1))
    texts = [str(each.message) for each in told]
    assert "step-00000003" in texts[0] and "was changed since it was saved" in texts[0]
    assert (
        "the checkpoint of step 2 is used instead" in texts[0] and "its index is none of Lamina's" in texts[1]
    )
    flip(tmp_path / "step-00000001")
    found = state(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(dcp.DamagedCheckpointError, match="step-00000001"):
            checkpoints.restore(found)
    assert ranks.same(found, state(0))


def test_a_state_that_does_not_fit_is_no_damage(tmp_path):
    checkpoints = dcp.Checkpoints(tmp_path)
    for step in (1, 2):
        checkpoints.save(step, state(step))
    with pytest.raises(StateError, match="the checkpoint has no y"):
        checkpoints.restore({"x": lamina.zeros(5), "y": lamina.zeros(5)})


def test_ranks_go_back_to_one(tmp_path):
    def work(meeting):
        checkpoints = dcp.Checkpoints(tmp_path, process_group=meeting)
        for step in (1, 2):
            checkpoints.save(step, {"x": lamina.full((4,), step), "y": lamina.full((4,), step), "step": step})
        if meeting.rank == 0:
            file = sorted((tmp_path / "step-00000002").glob("*.safetensors"))[1]  # of which x or y is
            file.write_bytes(file.read_bytes()[:-1] + b"\x55")
        meeting.barrier()
        # Each rank loads a part, and only that of one is damaged.
        found = {"xy"[meeting.rank]: lamina.zeros(4), "step": 0}
        return checkpoints.restore(found), found["step"], next(iter(found.values())).tolist()

    with pytest.warns(UserWarning, match="the checkpoint of step 1 is used instead"):
        found = ranks.on_ranks(2, work)
    assert found == [(1, 1, [1.0] * 4)] * 2


def test_removal_that_was_cut_short_is_finished(tmp_path):
    checkpoints = dcp.Checkpoints(tmp_path, keep=5)
    for step in (1, 2):
        checkpoints.save(step, state(step))
    (tmp_path / "step-00000001" / disk.INDEX).unlink()  # what is removed first
    (tmp_path / "step-00000001" / "mine").write_text("precious")
    (tmp_path / "step-1").mkdir()
    (tmp_path / "other").mkdir()
    assert checkpoints.steps() == [2]
    checkpoints.save(3, state(3))
    assert [p.name for p in (tmp_path / "step-00000001").iterdir()] == ["mine"]
    assert (tmp_path / "step-1").exists() and (tmp_path / "other").exists()
    (tmp_path / "step-00000001" / "mine").unlink()
    checkpoints.save(4, state(4))
    assert not (tmp_path / "step-00000001").exists() and checkpoints.steps() == [2, 3, 4]


def test_what_cannot_be(tmp_path):
    for arguments in ({"keep": 0}, {"keep": True}, {"every": -1}, {"every": 1.5}):
        with pytest.raises(ArgumentValueError, match="a positive int or None"):
            dcp.Checkpoints(tmp_path, **arguments)
    for step in (-1, 1.0, "1", True):
        with pytest.raises(ArgumentValueError, match="a step is a number from 0 on"):
            dcp.Checkpoints(tmp_path).path(step)
