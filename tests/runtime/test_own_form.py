"""Lamina's own form of files: round trips, sharing, interrupts, damage, and what is refused."""

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

import lamina
from lamina.ir import dtypes, lazy
from lamina.ir.errors import ArgumentError, DeviceError, DTypeError
from lamina.runtime.checkpoints import own_form
from lamina.runtime.checkpoints.own_form import SavedFileError


class Own(io.BytesIO):
    """A file in Lamina's own form, as its name says."""

    name = "own.safetensors"


def stored(obj: object) -> bytes:
    file = Own()
    lamina.save(obj, file)
    return file.getvalue()


def again(obj: object) -> object:
    return lamina.load(io.BytesIO(stored(obj)))


def assert_same(a: object, b: object) -> None:
    assert type(a) is type(b)
    if isinstance(a, lamina.Tensor):
        assert a.dtype is b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        assert a.detach()._data.tobytes() == b.detach()._data.tobytes()
    elif isinstance(a, np.ndarray):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert len(a) == len(b)
        for (j, x), (k, y) in zip(a.items(), b.items(), strict=True):
            assert_same(j, k)
            assert_same(x, y)
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b or (a != a and b != b)


CHECKPOINT = {
    "model": OrderedDict([("0.weight", lamina.arange(6.0).view(2, 3)), ("0.bias", lamina.ones(2))]),
    "optimizer": {
        "state": {0: {"step": lamina.tensor(3.0), "momentum": None}, 1: {}},
        "param_groups": [
            {"lr": 0.1, "betas": (0.9, 0.999), "params": [0, 1], "amsgrad": False, "name": 'ä\n"{\ud800'}
        ],
    },
    "epoch": 7,
    "best": float("inf"),
}


@pytest.mark.parametrize("dtype", dtypes.ALL, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (17,), (3, 5)], ids=str)
def test_every_dtype_round_trips(dtype, shape):
    x = lamina.from_numpy(np.random.randint(0, 2, shape)).to(dtype)
    assert_same(x, again(x))


def test_checkpoints_round_trip():
    assert_same(CHECKPOINT, again(CHECKPOINT))


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.floats(),
    st.text(st.characters(exclude_categories=())),
    st.builds(lambda n, d: lamina.ones(n).to(d), st.integers(0, 5), st.sampled_from(dtypes.ALL)),
    st.builds(np.arange, st.integers(0, 4)),
    st.sampled_from([lamina.float32, lamina.device("cpu"), lamina.Size((2, 3))]),
)  # fmt: skip
KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False), st.tuples(st.integers())
)
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


@given(OBJECTS)
def test_any_nesting_round_trips(obj):
    assert_same(obj, again(obj))


def test_loaded_tensors_can_be_written():
    x = again(lamina.zeros(3))
    x.add_(1)
    assert x.tolist() == [1.0, 1.0, 1.0]


def test_views_and_histories():
    x = lamina.arange(12.0).view(3, 4)
    assert_same(x.T.clone(), again(x.T))
    leaf = lamina.ones(2, requires_grad=True)
    assert again(leaf).requires_grad
    loss = again((leaf * 3).sum())
    assert loss.is_leaf and loss.requires_grad and loss.item() == 6.0
    found = again({"a": lamina.Parameter(lamina.ones(2)), "b": lamina.Parameter(lamina.ones(1), False)})
    assert type(found["a"]) is lamina.Parameter and found["a"].requires_grad and not found["b"].requires_grad


def test_shared_tensors_are_stored_once_and_shared_again():
    x = lamina.ones(1000)
    raw = stored({"a": x, "b": [x.detach()], "c": x[:10]})
    assert len(raw) < 4000 + 40 + 1000  # a once, c, and a header
    found = lamina.load(io.BytesIO(raw))
    found["a"][0] = 5.0
    assert found["b"][0][0].item() == 5.0 and found["c"][0].item() == 1.0
    y = found["a"].requires_grad_() * 1.0
    assert y.requires_grad and not found["b"][0].requires_grad


def test_others_read_our_files(tmp_path):
    lamina.save({"w": lamina.arange(3.0), "n": {"i": lamina.tensor([1, 2])}}, tmp_path / "x.safetensors")
    found = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert found["w"].tolist() == [0.0, 1.0, 2.0] and found["n.i"].tolist() == [1, 2]


def test_plain_safetensors_load_as_dict(tmp_path):
    path = str(tmp_path / "x.safetensors")
    arrays = {"w": np.arange(4.0), "b": np.array([True, False]), "__x": np.ones((2, 0), np.int8)}
    safetensors.numpy.save_file(arrays, path, metadata={"format": "np"})
    found = lamina.load(path)
    assert sorted(found) == sorted(arrays)
    assert all(
        found[k].tolist() == arrays[k].tolist() and found[k].dtype.numpy == arrays[k].dtype for k in arrays
    )


def test_names_that_meet_are_kept_apart():
    obj = {
        "a.b": lamina.ones(1),
        "a": {"b": lamina.zeros(1)},
        "__metadata__": lamina.ones(2),
        1: lamina.ones(3),
        "1": 0,
    }
    assert_same(obj, again(obj))


def test_load_from_where_a_file_stands(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"before" + stored([1, 2]))
    with open(path, "rb") as file:
        file.seek(6)
        assert lamina.load(file, "cpu", weights_only=False) == [1, 2]
    assert lamina.load(io.BytesIO(stored(3)), map_location=lamina.device("cpu")) == 3
    with pytest.raises(DeviceError):
        lamina.load(io.BytesIO(stored(3)), map_location="cuda")
    with open(path, encoding="latin-1") as file, pytest.raises(ArgumentError, match="open it with mode 'rb'"):
        lamina.load(file)


# ---- what is refused ---------------------------------------------------------------------------------------
def test_what_needs_code_is_refused_and_named():
    class Model:
        def state_dict(self):
            return {}

    with pytest.raises(ArgumentError) as caught:
        stored({"net": [1, Model()]})
    assert str(caught.value).splitlines() == [
        "save(obj): net.1 is a Model: to load it, code would have to run",
        "  takes: tensors, arrays, numbers, strings, None, and dicts, lists and tuples of these",
        "  save x.state_dict() of a module or an optimizer",
    ]
    loop: list = []
    loop.append(loop)
    with pytest.raises(ArgumentError, match="contains itself"):
        stored(loop)
    with pytest.raises(ArgumentError, match="a key of obj is a Tensor"):
        stored({lamina.ones(1): 1})
    with pytest.raises(ArgumentError, match="f must be a path"):
        lamina.save(1, 2)


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
def test_a_refused_object_leaves_the_old_file(tmp_path, name):
    path = tmp_path / name
    lamina.save("old", path)
    with pytest.raises(ArgumentError):
        lamina.save({"a": [lambda: 1]}, path)
    assert lamina.load(path) == "old" and os.listdir(tmp_path) == [name]


def test_foreign_files_are_refused_by_name(tmp_path):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", pickle.dumps({}))
    for raw, kind in {
        archive.getvalue() + b"\0": "a damaged zip archive", pickle.dumps({"a": 1}): "a pickle",
        b"": "is empty", b"hello, this is text": "no safetensors file",
    }.items():  # fmt: skip
        with pytest.raises(SavedFileError, match=kind):
            lamina.load(io.BytesIO(raw))


def test_nothing_in_a_file_is_executed():
    class Bomb:
        def __reduce__(self):
            return (os.abort, ())

    with pytest.raises(SavedFileError):
        lamina.load(io.BytesIO(pickle.dumps(Bomb())))


def test_unknown_element_types_are_refused():
    raw = (
        safetensors.numpy.save({"x": np.ones(2, np.uint16)})
        .replace(b'"U16"', b'"F4" ')
        .replace(b"[2]", b"[8]")
    )
    with pytest.raises(DTypeError, match="entry 'x' holds F4"):
        lamina.load(io.BytesIO(raw))


@pytest.mark.parametrize(
    "structure",
    [
        "{}", '{"tensor":"x"}', '{"tensor":[]}', '{"eval":"1"}', '{"dict":[[[],1]]}', '{"dict":3}', "[",
        "[" * 99999, '{"dict":[[1,2],[1,3]]}', '{"dict":[[1,2]],"dict2":[]}', '{"dict":["ab"]}',
        '{"tuple":"ab"}', '{"dict":[[{"dtype":"float32"},1]]}', '{"float":"1"}', "NaN",
        "9" * 5000, '{"dict":[[1,2,3]]}', '{"size":3}', '{"tensor":"x","parameter":1}',
    ],
)  # fmt: skip
def test_structures_that_mean_nothing_are_refused(structure):
    check = own_form._checksum(structure, {})
    header = json.dumps({"__metadata__": {"lamina": structure, "lamina.crc32": check}}).encode()
    with pytest.raises(SavedFileError):
        lamina.load(io.BytesIO(len(header).to_bytes(8, "little") + header))


# ---- damage ------------------------------------------------------------------------------------------------
def test_every_truncation_is_refused():
    raw = stored(CHECKPOINT)
    for length in range(len(raw)):
        with pytest.raises(SavedFileError):
            lamina.load(io.BytesIO(raw[:length]))
    with pytest.raises(SavedFileError):
        lamina.load(io.BytesIO(raw + b"\0"))


def test_every_changed_byte_is_noticed():
    raw = stored(CHECKPOINT)
    random = np.random.default_rng(0)
    noticed = 0
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= int(random.integers(1, 256))
        try:
            found = lamina.load(io.BytesIO(bytes(damaged)))
        except (SavedFileError, DTypeError):
            noticed += 1
        else:
            assert_same(CHECKPOINT, found)  # the padding after the header may be any white space
    assert noticed > len(raw) - 8


@pytest.mark.parametrize("text", [json.dumps(CHECKPOINT["epoch"]), '{"dict":[["a",{"tensor":"a"}]]}'])
def test_a_file_of_ours_without_its_structure_is_no_dict_of_tensors(text):
    """Both keys of its metadata are damaged: what it is shows all the same."""
    raw = stored({"a": lamina.ones(2)} if "tensor" in text else 7)
    assert text.encode().replace(b'"', b'\\"') in raw
    for a, b in ((b"lamina", b"lam\0na"), (b"lamina", b"l4mina"), (b'"__metadata__"', b'"__metadatb__"')):
        with pytest.raises(SavedFileError):
            lamina.load(io.BytesIO(raw.replace(a, b)))


@pytest.mark.parametrize("shape", [[1 << 63, 0], [0, 1 << 62, 4], [1] * 65, [0] * 100], ids=range(4))
def test_shapes_that_no_array_has_are_refused(shape):
    size = 0 if 0 in shape else 4
    header = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode()
    with pytest.raises(SavedFileError):
        lamina.load(io.BytesIO(len(header).to_bytes(8, "little") + header + bytes(size)))


def test_a_dict_of_tensors_has_the_order_of_its_file():
    names = [f"w{n * 7919 % 64}" for n in range(64)]
    header: dict = {
        name: {"dtype": "I8", "shape": [1], "data_offsets": [n, n + 1]} for n, name in enumerate(names)
    }
    text = json.dumps({"__metadata__": {"format": "pt"}} | header).encode()
    for _ in range(3):
        assert [*lamina.load(io.BytesIO(len(text).to_bytes(8, "little") + text + bytes(64)))] == names


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(SavedFileError, match="is a pipe or a device"):
            lamina.load(path)
    with pytest.raises(IsADirectoryError):
        lamina.load(tmp_path)


@given(st.data())
def test_fuzzed_files_load_or_are_refused(data):
    raw = bytearray(stored({"a": lamina.ones(2), "b": [1, None]}))
    for _ in range(data.draw(st.integers(1, 8))):
        start = data.draw(st.integers(0, len(raw)))
        stop = data.draw(st.integers(start, min(len(raw), start + 16)))
        raw[start:stop] = data.draw(st.binary(max_size=16))
    try:
        lamina.load(io.BytesIO(bytes(raw)))
    except (SavedFileError, DTypeError):
        pass


# ---- interrupts --------------------------------------------------------------------------------------------
HANGING = """
import os, sys, time
import lamina
def hang(*args):
    print("reached", flush=True)
    time.sleep(60)
if sys.argv[2] == "write":
    class Slow:
        def __init__(self, file): self.file = file
        def write(self, piece): self.file.write(bytes(piece[: len(piece) // 2])); self.file.flush(); hang()
    from contextlib import contextmanager
    from lamina.runtime.checkpoints import saving
    replacing = saving.replacing
    @contextmanager
    def slow(path):
        with replacing(path) as file:
            yield Slow(file)
    saving.replacing = slow
else:
    setattr(os, sys.argv[2], hang)
lamina.save({"x": lamina.ones(100_000)}, sys.argv[1])
"""


@pytest.mark.parametrize("name", ["x.safetensors", "x.pt"])
@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_kill_while_saving_leaves_the_old_file(tmp_path, moment, name):
    path = tmp_path / name
    lamina.save("old", path)
    child = subprocess.Popen(
        [sys.executable, "-c", HANGING, str(path), moment], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    try:
        assert child.stdout.readline() == "reached\n"
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    assert lamina.load(path) == "old"


def test_a_failing_write_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    path = tmp_path / "x"
    lamina.save("old", path)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        lamina.save("new", path)
    monkeypatch.undo()
    assert lamina.load(path) == "old" and os.listdir(tmp_path) == ["x"]


def test_what_killed_saves_left_is_removed_a_day_later(tmp_path):
    """By its exact name alone, whoever it was for: a name that is nearly ours is somebody else's."""
    hexes, hour = "0123456789ab", 3600
    ours = [f".x.{hexes}.part", f".another\n.file.{hexes[::-1]}.part"]
    theirs = [
        f"x.{hexes}.part", f".x.{hexes}.part2", f".x.{hexes[1:]}.part", f".x.{hexes.upper()}.part", ".x.part",
        f".x.{hexes}", f"..{hexes}.part", "notes.part", "model.safetensors",
    ]  # fmt: skip
    for name in (*ours, *theirs):
        (tmp_path / name).write_bytes(b"half")
        os.utime(tmp_path / name, (0, time.time() - 25 * hour))
    young = f".x.{hexes[2:]}cd.part"
    (tmp_path / young).write_bytes(b"half")
    os.utime(tmp_path / young, (0, time.time() - 23 * hour))
    (tmp_path / f".folder.{hexes}.part").mkdir()
    os.utime(tmp_path / f".folder.{hexes}.part", (0, 0))
    (tmp_path / f".link.{hexes}.part").symlink_to("notes.part")
    os.utime(tmp_path / f".link.{hexes}.part", (0, 0), follow_symlinks=False)
    lamina.save(1, tmp_path / "y")
    kept = {*theirs, young, f".folder.{hexes}.part", f".link.{hexes}.part", "y"}
    assert {*os.listdir(tmp_path)} == kept


def test_a_kill_leaves_one_file_that_the_next_save_knows(tmp_path):
    child = subprocess.Popen(
        [sys.executable, "-c", HANGING, str(tmp_path / "x"), "write"], stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout.readline() == "reached\n"
        child.kill()
    (left,) = tmp_path.iterdir()
    os.utime(left, (0, 0))
    lamina.save("new", tmp_path / "y")
    assert os.listdir(tmp_path) == ["y"]


def test_save_writes_through_links_and_into_devices(tmp_path):
    lamina.save(1, tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    lamina.save(2, tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and lamina.load(tmp_path / "real") == 2
    lamina.save(lamina.ones(3), os.devnull)
    assert not os.path.isfile(os.devnull)


# ---- loading libraries late --------------------------------------------------------------------------------
def test_import_loads_no_safetensors(tmp_path):
    program = "import sys, lamina; assert 'safetensors' not in sys.modules; f = 'x.safetensors'"
    program += "; lamina.save(1, f); assert lamina.load(f) == 1 and 'safetensors' in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path)


def test_a_missing_library_is_named_with_its_remedy(tmp_path, monkeypatch):
    with pytest.raises(ImportError) as caught:
        lazy.load("no_such_library.inside", "gpu")
    assert (
        str(caught.value)
        == "no_such_library is needed here and is not installed\n  pip install 'lamina[gpu]'"
    )
    with pytest.raises(ImportError, match="pip install no_such_library"):
        lazy.load("no_such_library")
    (tmp_path / "halfway.py").write_text("import what_halfway_lacks\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="what_halfway_lacks"):
        lazy.load("halfway")


@pytest.mark.parametrize("ending", [b"\t\r\n", b"\t\t\n", b" \r ", b"\n", b" "])
def test_header_that_lost_lamina_s_names_is_damaged_if_it_ends_as_ours_do(ending):
    """Of another origin is only what ends in nothing but spaces, as the format has it."""
    header = b'{"__metadata__":{"l`mina":"1","lamifa.crc32":"2"}}' + ending
    header += b" " * (-len(header) % 8)
    file = io.BytesIO(len(header).to_bytes(8, "little") + header)
    if ending == b" ":
        assert lamina.load(file) == {}
    else:
        with pytest.raises(SavedFileError, match="what it said of its structure is damaged"):
            lamina.load(file)
