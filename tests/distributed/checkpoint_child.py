"""A rank of a job that saves or loads checkpoints: `mpiexec -n N python checkpoint_child.py WHAT …`."""

import sys
import warnings

import checkpoint_ranks as ranks
import numpy as np

import lamina
import lamina.distributed as dist
import lamina.distributed.checkpoint as dcp
from lamina.distributed.checkpoint.meeting import meeting_of

dist.init_process_group()
MEETING = meeting_of(None)
RANK, SIZE = MEETING.rank, MEETING.size


def whole() -> np.ndarray:
    return np.arange(11 * 7 * 3, dtype=np.float32).reshape(11, 7, 3)


def state_of(step: int, rows: int = 60_000) -> dict:
    """A state that follows from its step, a part of which each rank has."""
    full = np.full((rows, 4), step, np.float32)
    return {
        "w": ranks.Shard(full, ranks.rows(full.shape, RANK, SIZE)),
        "all": lamina.full((50_000,), step), "step": step, f"own.{RANK}": lamina.full((3,), step + RANK),
    }  # fmt: skip


def save(folder: str) -> None:
    x = whole()
    state = {
        "w": ranks.Shard(x, ranks.rows(x.shape, RANK, SIZE)), "b": {"c": lamina.arange(9.0)},
        "step": 5, "half": ranks.Shard(x.astype(np.float64), ranks.rows(x.shape, RANK, SIZE, 1)),
    }  # fmt: skip
    made = dcp.save(state, checkpoint_id=folder, process_group=MEETING)
    assert isinstance(made, dcp.Metadata)


def load(folder: str, dim: str) -> None:
    x = whole()
    w = ranks.Shard(np.zeros_like(x), ranks.rows(x.shape, RANK, SIZE, int(dim)))
    half = ranks.Shard(np.zeros(x.shape), ranks.rows(x.shape, RANK, SIZE, 2))
    state = {"w": w, "half": half, "b": {"c": lamina.zeros(9)}, "step": 0}
    dcp.load(state, checkpoint_id=folder, process_group=MEETING)
    for shard in (w, half):
        got = np.zeros_like(x, np.float64)
        shard.into(got)
        everyone = MEETING.gather(got)
        assert RANK or (sum(everyone) == x).all()
    assert state["b"]["c"].tolist() == [*range(9)] and state["step"] == 5


def background(folder: str) -> None:
    checkpoints = dcp.Checkpoints(folder, keep=2, process_group=MEETING)
    for step in range(1, 5):
        state = state_of(step, 2000)
        saving = checkpoints.async_save(step, state)
        for value in state.values():  # training goes on, and writes what is being saved
            if isinstance(value, lamina.Tensor):
                value.fill_(-1)
            elif isinstance(value, ranks.Shard):
                for chunk in value.chunks:
                    chunk.tensor.fill_(-1)
        for i in range(20):  # and talks to the other ranks
            everyone = MEETING.broadcast(MEETING.gather(("train", i, RANK)))
            assert everyone == [("train", i, rank) for rank in range(SIZE)], everyone
    saving.result(60)
    MEETING.barrier()
    assert checkpoints.steps() == [3, 4]
    check(folder, 4, 2000)


def failing(folder: str) -> None:
    """A rank that has nothing to save but what can't be: all hear of it."""
    try:
        dcp.save({"x": object() if RANK == SIZE - 1 else 1}, checkpoint_id=folder, process_group=MEETING)
    except dcp.CheckpointException as error:
        assert f"ended on rank {SIZE - 1}, and so on all" in str(error) and "x is a object" in str(error)
    else:
        raise AssertionError("no error")


def check(folder: str, least: int, rows: int = 60_000) -> int:
    """The newest checkpoint loads and is what was saved, and is none before `least`."""
    state = state_of(-100, rows)
    assert dcp.Checkpoints(folder, process_group=MEETING).restore(state) is not None
    step = state["step"]
    assert step >= least, (step, least)
    wanted = state_of(step, rows)
    for chunk, other in zip(state["w"].chunks, wanted["w"].chunks, strict=True):
        assert lamina.equal(chunk.tensor, other.tensor)
    assert all(lamina.equal(state[k], wanted[k]) for k in ("all", f"own.{RANK}"))
    return step


def look(folder: str, least: str) -> None:
    print(check(folder, int(least)))


def run(folder: str, least: str, how: str) -> None:
    """Save step after step for ever, and say which are there; what is there already is looked at before.

    how: each into a folder of its own, all "over" one, or from the background ("apart").
    """
    checkpoints = dcp.Checkpoints(folder, keep=2, process_group=MEETING)
    step = check(folder, int(least)) if int(least) else 0
    while True:
        step += 1
        if how == "over":
            dcp.save(state_of(step), checkpoint_id=checkpoints.path(1), process_group=MEETING)
        elif how == "apart":
            checkpoints.async_save(step, state_of(step)).result()
        else:
            checkpoints.save(step, state_of(step))
        if RANK == 0:
            print(f"saved {step}", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("error")  # restore() warns where it leaves out what is damaged
    what, *arguments = sys.argv[1:]
    try:
        globals()[what](*arguments)
    except BaseException as error:
        # Others may wait for this rank: end the job, whose output says why.
        print(f"rank {RANK}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        dist.groups.need_world().abort(1)
