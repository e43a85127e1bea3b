"""Tensors over the contents of a file."""

import io

import numpy as np
import pytest

import lamina
from lamina.ir.errors import ArgumentError, ArgumentValueError


def test_a_shared_file_sees_writes_and_another_does_not(tmp_path):
    path = tmp_path / "numbers"
    np.arange(6, dtype=np.float64).tofile(path)
    shared = lamina.from_file(str(path), True, 6, dtype=lamina.float64)
    own = lamina.from_file(path, size=3, dtype=lamina.float64)
    shared[1], own[2] = 10.0, 20.0
    assert np.fromfile(path).tolist() == [0, 10, 2, 3, 4, 5]
    assert own.tolist() == [0, 10, 20]
    assert shared.untyped_storage().filename == str(path) and own.untyped_storage().filename is None
    assert shared[2:].untyped_storage().filename == str(path)
    assert lamina.ones(2).untyped_storage().filename is None


def test_a_part_of_memory_is_that_memory():
    """As safetensors slices a file: without a look at each byte, and writes go through."""
    x = lamina.arange(6.0)
    part = x.untyped_storage()[4:12]
    made = lamina.asarray(part, dtype=lamina.float32)
    assert made.data_ptr() == part.data_ptr() == x.data_ptr() + 4 and len(part) == part.nbytes() == 8
    made[0] = 9
    assert x.tolist() == [0, 9, 2, 3, 4, 5] and made.untyped_storage().nbytes() == 8
    assert part.untyped() is part and part[0:4].tolist() == list(np.float32(9).tobytes())
    held = lamina.empty(0).set_(part, 1, (1,))
    held += 1
    assert x.tolist() == [0, 9, 3, 3, 4, 5] and x.untyped_storage().nbytes() == 24
    file = io.BytesIO()
    lamina.save(part, file)
    file.seek(0)
    assert lamina.load(file).tolist() == part.tolist()
    unaligned = lamina.asarray(x.untyped_storage()[1:21], dtype=lamina.float32)
    unaligned.copy_(lamina.arange(5.0))
    assert not unaligned._data.flags.aligned and (unaligned @ unaligned).item() == 30.0
    with pytest.raises(lamina.ShapeError, match="divisible by 4"):
        lamina.asarray(part[1:], dtype=lamina.float32)


def test_a_shared_file_is_made_as_long_as_is_asked_for(tmp_path):
    path = tmp_path / "new"
    made = lamina.from_file(path, shared=True, size=4)
    assert made.tolist() == [0, 0, 0, 0] and path.stat().st_size == 16
    longer = lamina.UntypedStorage.from_file(str(path), True, 20)
    assert len(longer) == 20 and path.stat().st_size == 20
    assert lamina.from_file(path, shared=True, size=1).tolist() == [0] and path.stat().st_size == 20


@pytest.mark.parametrize("shared", [False, True])
def test_nothing_is_mapped_of_a_size_of_0(tmp_path, shared):
    assert lamina.from_file(tmp_path / "none", shared=shared).shape == (0,)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("none", False, 1), ArgumentValueError, "can't be mapped: No such file"),
        (("short", False, 3), ArgumentValueError, "are 12 bytes, and .* has 8"),
        ((".", True, 3), ArgumentValueError, "no regular file"),
        ((3, True, 3), ArgumentError, "must be a path"),
        (("short", True, -1), ArgumentValueError, "size"),
        (("short", True, 1 << 62), ArgumentValueError, "can't be mapped|too large"),
    ],
    ids=str,
)
def test_what_is_no_such_file_is_refused(tmp_path, monkeypatch, arguments, error, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").write_bytes(bytes(8))
    with pytest.raises(error, match=words):
        lamina.from_file(*arguments)
    assert (tmp_path / "short").stat().st_size == 8


def test_a_saved_file_that_is_open_can_be_read_by_its_name(tmp_path):
    path = tmp_path / "state.pt"
    with open(path, "wb") as file:
        lamina.save({"x": lamina.arange(3)}, file)
        assert lamina.load(path)["x"].tolist() == [0, 1, 2]
