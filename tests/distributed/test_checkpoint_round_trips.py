"""What is saved is what is loaded: dtypes, layouts, shards over other ranks, values, modules, optimizers."""

import json
from collections import OrderedDict

import checkpoint_ranks as ranks
import numpy as np
import pytest

import lamina
import lamina.distributed.checkpoint as dcp
from lamina import nn, optim
from lamina.distributed.checkpoint import disk, index_text, planner, slabs
from lamina.distributed.checkpoint.format_utils import dcp_to_torch_save, read_whole, torch_save_to_dcp
from lamina.ir import dtypes
from lamina.ir.errors import ArgumentError, ArgumentValueError, StateError


def values(dtype, shape):
    bits = np.random.randint(0, 256, (*shape, dtype.itemsize), dtype=np.uint8)
    if dtype is dtypes.bool_:
        bits &= 1
    return (
        lamina.from_numpy(bits).view(dtype).reshape(shape) if bits.size else lamina.empty(shape, dtype=dtype)
    )


def exact(x):
    return x._data.tobytes()


@pytest.mark.parametrize("dtype", dtypes.EVERY, ids=lambda d: d.name)
def test_each_dtype(dtype, tmp_path):
    made = {"whole": values(dtype, (3, 5)), "scalar": values(dtype, (1,))[0], "empty": values(dtype, (0, 4))}
    dcp.save(made, checkpoint_id=tmp_path / "a")
    into = {k: lamina.empty(v.shape, dtype=dtype) for k, v in made.items()}
    dcp.load(into, checkpoint_id=tmp_path / "a")
    assert [exact(into[k]) for k in made] == [exact(made[k]) for k in made]
    assert [exact(read_whole(tmp_path / "a")[k]) for k in made] == [exact(made[k]) for k in made]


@pytest.mark.parametrize("layout", ["transposed", "strided", "line", "expanded"])
def test_layouts(layout, tmp_path):
    x = lamina.arange(24).reshape(4, 6)
    x = {
        "transposed": x.t(), "strided": x[::2, 1::2], "line": x[:, 2],
        "expanded": x[:, :1].expand(4, 3),
    }[layout]  # fmt: skip
    base = lamina.zeros(9, 9, dtype=x.dtype)
    into = base[1 : 1 + x.shape[0], 2 : 2 + x.shape[1]] if x.ndim == 2 else base[0, : x.shape[0]]
    dcp.save({"x": x}, checkpoint_id=tmp_path / "a")
    dcp.load({"x": into}, checkpoint_id=tmp_path / "a")
    assert lamina.equal(into, x)
    assert base.sum() == x.sum()  # and nothing beside it


def test_a_tensor_keeps_its_dtype_and_memory(tmp_path):
    x = lamina.tensor([1.0, 2.5, -3.0])
    dcp.save({"x": x}, checkpoint_id=tmp_path / "a")
    p = nn.Parameter(lamina.zeros(3, dtype=lamina.bfloat16))
    state = {"x": p}
    before = p._version
    dcp.load(state, checkpoint_id=tmp_path / "a")
    assert state["x"] is p and p.dtype is lamina.bfloat16 and p.tolist() == [1.0, 2.5, -3.0]
    assert p.requires_grad and p._version > before


STATE = {
    "step": 7, "lr": 1e-3, "inf": float("inf"), "name": "größe\ud800", "none": None, "flag": True,
    "z": 1 + 2j, "betas": (0.9, 0.999), "sizes": lamina.Size((2, 3)), "dtype": lamina.bfloat16, "empty": {},
    "nothing": [], "list": [1, [2, {"a": None}]], "deep": {"a": {3: {"b": [lamina.arange(3), 4]}}},
    "pair": (lamina.zeros(2), (1, 2)), "array": np.arange(4.0),
    "state": ("MT", np.arange(3, dtype=np.uint32), 1), "huge": 10**30,
}  # fmt: skip


def test_values_and_containers(tmp_path):
    dcp.save(STATE, checkpoint_id=tmp_path / "a")
    found = read_whole(tmp_path / "a")
    assert ranks.same(found, STATE)
    assert list(found) == list(STATE)


def test_values_replace_those_there(tmp_path):
    dcp.save(STATE, checkpoint_id=tmp_path / "a")
    array = np.zeros(4)
    into = {
        "step": 0, "betas": None, "deep": {"a": {3: {"b": [lamina.zeros(3, dtype=lamina.int64), 0]}}},
        "pair": (lamina.ones(2), ()), "array": array, "list": [0, [0, {"a": 1}]],
    }  # fmt: skip
    dcp.load(into, checkpoint_id=tmp_path / "a")
    assert ranks.same(into, {k: STATE[k] for k in into})
    assert not array.any()  # it was replaced, as PyTorch replaces what is no tensor


def test_index_is_json_and_files_are_safetensors(tmp_path):
    from safetensors.numpy import load_file

    made = dcp.save({"m": {"w": lamina.ones(2, 3), "z": lamina.ones(2, dtype=lamina.complex128)}, "n": 1},
                    checkpoint_id=tmp_path / "a")  # fmt: skip
    text = json.loads((tmp_path / "a" / disk.INDEX).read_text())["index"]
    assert text["format"] == "lamina.checkpoint" and list(text["entries"]) == ["m.w", "m.z", "n"]
    (file,) = text["files"]
    found = load_file(tmp_path / "a" / file)
    assert found["m.w"].tolist() == [[1.0] * 3] * 2 and found["m.z"].tolist() == [[1.0, 0.0]] * 2
    assert isinstance(made.state_dict_metadata["m.w"], dcp.TensorStorageMetadata)
    assert made.state_dict_metadata["m.w"].size == (2, 3)
    assert made == dcp.FileSystemReader(tmp_path / "a").read_metadata()


def test_modules_and_optimizers_go_on_alike(tmp_path):
    """A run that stops and goes on computes bit by bit what one that does not stop does."""
    for make in (
        lambda p: optim.Adam(p, lr=0.05),
        lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
        lambda p: optim.AdamW(p, lr=0.05, amsgrad=True),
        lambda p: optim.Rprop(p),
    ):

        def parts(make=make):
            model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
            return model, make(model.parameters())

        def steps(model, optimizer, count):
            for i in range(count):
                x = lamina.arange(15.0).reshape(5, 3).sin() + i
                optimizer.zero_grad()
                model(x).square().sum().backward()
                optimizer.step()

        model, optimizer = parts()
        steps(model, optimizer, 3)
        dcp.save({"model": model, "optim": optimizer}, checkpoint_id=tmp_path / "a")
        other, other_optimizer = parts()
        steps(other, other_optimizer, 1)  # so that there are tensors to load into
        dcp.load({"model": other, "optim": other_optimizer}, checkpoint_id=tmp_path / "a")
        steps(model, optimizer, 2)
        steps(other, other_optimizer, 2)
        assert ranks.same(OrderedDict(model.state_dict()), OrderedDict(other.state_dict()))
        assert ranks.same(optimizer.state_dict(), other_optimizer.state_dict())


def test_tensors_in_one_place_are_stored_once(tmp_path):
    w = lamina.rand(1000, 8)
    dcp.save({"a": w, "b": {"tied": w}, "part": w[:10], "t": w.t()}, checkpoint_id=tmp_path / "a")
    files = sum(f.stat().st_size for f in (tmp_path / "a").glob("*.safetensors"))
    assert 2 * w.nbytes < files < 2.5 * w.nbytes  # w, its transpose, ten rows
    found = read_whole(tmp_path / "a")
    assert found["a"].data_ptr() == found["b"]["tied"].data_ptr() and lamina.equal(found["t"], w.t())
    into = {"b": {"tied": lamina.zeros(1000, 8)}}
    dcp.load(into, checkpoint_id=tmp_path / "a")
    assert lamina.equal(into["b"]["tied"], w)


def test_saved_again_in_one_place(tmp_path):
    for i in range(3):
        dcp.save({"x": lamina.full((4,), i)}, checkpoint_id=tmp_path / "a")
        assert sorted(p.suffix for p in (tmp_path / "a").iterdir()) == [".json", ".safetensors"]
        assert read_whole(tmp_path / "a")["x"].tolist() == [i] * 4
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    writer = dcp.FileSystemWriter(tmp_path / "a", overwrite=False)
    with pytest.raises(ArgumentValueError, match="holds a checkpoint already"):
        dcp.save({"x": 1}, storage_writer=writer)
    (tmp_path / "b").mkdir()
    dcp.save({"x": 1}, checkpoint_id=tmp_path / "b")  # an empty folder that is there
    assert read_whole(tmp_path / "b") == {"x": 1}


# ---- shards ------------------------------------------------------------------------------------------------
def save_split(whole, size, folder, boxes):
    def work(meeting):
        state = {"w": ranks.Shard(whole, boxes(meeting.rank)), "all": lamina.arange(7), "n": {"x": 3}}
        return dcp.save(state, checkpoint_id=folder, process_group=meeting)

    found = ranks.on_ranks(size, work)
    assert all(isinstance(each, dcp.Metadata) for each in found), found
    return found


def load_split(whole, size, folder, boxes):
    got = np.zeros_like(whole)

    def work(meeting):
        state = {
            "w": ranks.Shard(np.zeros_like(whole), boxes(meeting.rank)),
            "all": lamina.zeros(7),
            "n": {"x": 0},
        }
        dcp.load(state, checkpoint_id=folder, process_group=meeting)
        state["w"].into(got)
        return state["all"].tolist(), state["n"]["x"]

    assert ranks.on_ranks(size, work) == [([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 3)] * size
    return got


@pytest.mark.parametrize("saving,loading", [(1, 1), (4, 2), (2, 3), (3, 5), (5, 1)])
@pytest.mark.parametrize("dims", [(0, 0), (0, 1), (1, 0), (2, 1)])
def test_other_ranks_and_other_dims(saving, loading, dims, tmp_path, monkeypatch):
    monkeypatch.setattr(index_text, "BLOCK", 64)  # so that small tensors have several
    for module in ("filesystem", "slabs"):
        monkeypatch.setattr(f"lamina.distributed.checkpoint.{module}.BLOCK", 64)
    monkeypatch.setattr("lamina.distributed.checkpoint.slabs.SLAB", 100)
    whole = np.random.rand(6, 5, 7).astype(np.float32)
    save_split(whole, saving, tmp_path / "a", lambda rank: ranks.rows(whole.shape, rank, saving, dims[0]))
    got = load_split(
        whole, loading, tmp_path / "a", lambda rank: ranks.rows(whole.shape, rank, loading, dims[1])
    )
    assert (got == whole).all()


def test_tiles_of_a_mesh(tmp_path):
    whole = np.arange(72.0).reshape(8, 9)

    def tile(rank):  # of a mesh of 2 by 3, whose third column all have
        i, j = divmod(rank, 3)
        return [((4 * i, 3 * j), (4, 3))] + [((4 * i, 6), (4, 3))] * (j != 2)

    found = save_split(whole, 6, tmp_path / "a", tile)
    assert len(found[0].state_dict_metadata["w"].chunks) == 6  # what three ranks have is written once
    assert (load_split(whole, 2, tmp_path / "a", lambda rank: ranks.rows((8, 9), rank, 2, 1)) == whole).all()


def test_replicated_tensors_are_spread_by_bytes(tmp_path):
    state = {str(i): lamina.zeros(1000 * (i + 1)) for i in range(20)}
    ranks.on_ranks(4, lambda m: dcp.save(state, checkpoint_id=tmp_path / "a", process_group=m))
    sizes = [f.stat().st_size for f in (tmp_path / "a").glob("*.safetensors")]
    assert len(sizes) == 4 and max(sizes) < 1.1 * min(sizes)
    lowest = dcp.DefaultSavePlanner(dedup_save_to_lowest_rank=True)
    ranks.on_ranks(
        4, lambda m: dcp.save(state, checkpoint_id=tmp_path / "b", process_group=m, planner=lowest)
    )
    assert len([*(tmp_path / "b").glob("*.safetensors")]) == 1


def test_reads_no_more_than_the_blocks_of_its_rows(tmp_path, monkeypatch):
    for module in ("index_text", "filesystem", "slabs"):
        monkeypatch.setattr(f"lamina.distributed.checkpoint.{module}.BLOCK", 1024)
    whole = np.random.rand(64, 256).astype(np.float32)  # a row is a block
    dcp.save({"w": lamina.tensor(whole)}, checkpoint_id=tmp_path / "a")
    read = []
    fill = disk.Opened.fill
    monkeypatch.setattr(
        disk.Opened, "fill", lambda self, at, into: (read.append(len(into)), fill(self, at, into))
    )
    shard = ranks.Shard(np.zeros_like(whole), [((10, 100), (3, 50))])
    dcp.load({"w": shard}, checkpoint_id=tmp_path / "a")
    assert (shard.chunks[0].tensor.numpy() == whole[10:13, 100:150]).all()
    index = (tmp_path / "a" / disk.INDEX).stat().st_size
    # Each of three rows to be hashed, which may lie across two blocks, and all three once more.
    assert sum(read) - index <= 4 * 1024 + 3 * 1024


def test_slabs_are_the_rows_of_a_box(monkeypatch):
    """Against an array, over random boxes: slabs hold the box, and of rows beside it none that are large."""
    monkeypatch.setattr("lamina.distributed.checkpoint.slabs.BLOCK", 24)
    monkeypatch.setattr("lamina.distributed.checkpoint.slabs.SLAB", 40)
    apart = 0
    for _ in range(500):
        sizes = tuple(np.random.randint(1, 5, np.random.randint(0, 5)).tolist())
        begin = tuple(int(np.random.randint(0, n)) for n in sizes)
        extents = tuple(int(np.random.randint(1, n - b + 1)) for b, n in zip(begin, sizes, strict=True))
        whole = np.arange(np.prod(sizes, dtype=int), dtype=np.int32)
        read = np.full(whole.shape, -1, np.int32)
        for slab in slabs.slabs(sizes, (begin, extents), 4):
            part = slice(slab.begin // 4, (slab.begin + slab.size) // 4)
            assert (read[part] == -1).all() and slab.size <= max(40, 4 * int(np.prod(sizes[1:], dtype=int)))
            read[part] = whole[part]
            apart += len(slab.prefix) > 1
        box = tuple(slice(b, b + n) for b, n in zip(begin, extents, strict=True))
        assert (read.reshape(sizes)[box] == whole.reshape(sizes)[box]).all()
    assert apart > 100
    few = [*slabs.slabs((4, 1000, 2), ((0, 10, 0), (4, 5, 2)), 4)]
    assert sum(slab.size for slab in few) == 4 * 5 * 2 * 4  # not the 995 rows beside them


def test_what_ranks_must_agree_on(tmp_path):
    def fails(state_of, match, size=2):
        found = ranks.on_ranks(size, lambda m: dcp.save(state_of(m.rank), checkpoint_id=tmp_path / "a",
                                                        process_group=m))  # fmt: skip
        assert all(isinstance(e, dcp.CheckpointException) and match in str(e) for e in found), found
        assert not (tmp_path / "a").exists() and not [*tmp_path.iterdir()]

    whole = np.zeros((4, 4))
    fails(lambda r: {"x": lamina.zeros(2 + r)}, "x is not the same on all ranks")
    fails(lambda r: {"x": lamina.zeros(2, dtype=(lamina.int8, lamina.int16)[r])}, "x is not the same")
    fails(lambda r: {"x": ranks.Shard(whole, [((0, 0), (2, 4))])}, "hold 8 of 16 elements")
    fails(lambda r: {"x": ranks.Shard(whole, [((0, 0), (3, 4)), ((1, 0), (3, 4))][r : r + 1])}, "overlap")
    fails(lambda r: {"x": ranks.Shard(whole, [])}, "no rank has a chunk of x")
    fails(lambda r: {"x": object() if r else 1}, "rank 1: save(obj): x is a object")


def test_a_value_that_differs_is_warned_of():
    with pytest.warns(UserWarning, match="loss is 0.5 on rank 0 and 0.25 on rank 1; that of rank 0 is saved"):
        plan = planner.planned(
            [planner.described({"loss": x})[0] for x in (0.5, 0.25)], dcp.DefaultSavePlanner()
        )
    assert plan.entries["loss"].text == "0.5"


def test_what_a_single_rank_has_is_saved(tmp_path):
    found = ranks.on_ranks(
        3,
        lambda m: dcp.save({f"rng.{m.rank}": lamina.full((2,), m.rank), "x": 1}, checkpoint_id=tmp_path / "a",
                           process_group=m),
    )  # fmt: skip
    assert all(isinstance(each, dcp.Metadata) for each in found), found
    assert [read_whole(tmp_path / "a")[f"rng.{r}"].tolist() for r in range(3)] == [[0, 0], [1, 1], [2, 2]]


# ---- refusals ----------------------------------------------------------------------------------------------
def test_what_cannot_be_saved_is_named(tmp_path):
    loop = {}
    loop["a"] = {"b": loop}
    for value, error, match in (
        ({"a": {"b": [1, object()]}}, ArgumentError, "a.b.1 is a object"),
        ({"a": {"f": len}}, ArgumentError, "a.f is a builtin_function_or_method"),
        ({"a": b"x"}, ArgumentError, "a is a bytes"),
        ({"a": {(1, 2): 3}}, ArgumentError, "a key of a is a tuple"),
        ({"a": {"b": 1}, "a.b": 2}, ArgumentValueError, "two values of the state dict have the name 'a.b'"),
        ({1: 0, "1": 1}, ArgumentValueError, "the name '1'"),
        (loop, ArgumentError, "contains itself"),
        ({"a": lamina.empty(2, device="meta")}, ArgumentError, "a is a tensor without memory"),
        ({"a": lamina.eye(2).to_sparse()}, ArgumentError, "a is a sparse"),
        ([1], ArgumentError, "a dict, not list"),
    ):
        with pytest.raises(error, match=match):
            dcp.save(value, checkpoint_id=tmp_path / "a")
        assert not [*tmp_path.iterdir()]
    with pytest.raises(ArgumentError, match="where to"):
        dcp.save({})
    (tmp_path / "file").write_text("x")
    with pytest.raises(ArgumentValueError, match="is no folder"):
        dcp.save({"a": 1}, checkpoint_id=tmp_path / "file")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / disk.INDEX).write_text("{}")
    with pytest.raises(ArgumentValueError, match="that no save of Lamina's wrote"):
        dcp.save({"a": 1}, checkpoint_id=tmp_path / "theirs")
    assert (tmp_path / "theirs" / disk.INDEX).read_text() == "{}"


def test_what_does_not_fit_is_named_and_nothing_changes(tmp_path):
    dcp.save({"a": lamina.ones(3), "b": lamina.ones(2), "n": 1}, checkpoint_id=tmp_path / "a")
    for state, match in (
        ({"a": lamina.zeros(3), "c": lamina.zeros(2)}, "the checkpoint has no c"),
        ({"a": lamina.zeros(3), "b": lamina.zeros(3)}, "b has another shape in the checkpoint"),
        ({"a": lamina.zeros(3), "b": 1}, "b is a tensor in the checkpoint, and a int"),
        ({"a": lamina.zeros(3), "n": lamina.zeros(1)}, "n is a value in the checkpoint, and a Tensor"),
    ):
        with pytest.raises(StateError, match=match):
            dcp.load(state, checkpoint_id=tmp_path / "a")
        assert state["a"].tolist() == [0.0] * 3
    partly = {"a": lamina.zeros(3), "c": lamina.zeros(2)}
    dcp.load(partly, checkpoint_id=tmp_path / "a", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert partly["a"].tolist() == [1.0] * 3 and partly["c"].tolist() == [0.0] * 2


def test_to_one_file_and_back(tmp_path):
    state = {"model": nn.Linear(2, 3).state_dict(), "list": [lamina.arange(3), {"a": 1.5}], "n": None}
    lamina.save(state, tmp_path / "one.pt")
    torch_save_to_dcp(tmp_path / "one.pt", tmp_path / "many")
    dcp_to_torch_save(tmp_path / "many", tmp_path / "again.pt")
    again = lamina.load(tmp_path / "again.pt")
    assert ranks.same(
        {**again, "model": OrderedDict(again["model"])}, {**state, "model": OrderedDict(state["model"])}
    )
    lamina.save([1], tmp_path / "list.pt")
    with pytest.raises(ArgumentValueError, match="holds a list"):
        torch_save_to_dcp(tmp_path / "list.pt", tmp_path / "b")
