"""GGUF files that are whole, and say what none should: one name for two, places of others, endless lists."""

import copy

import pytest

pytest.importorskip("gguf", reason="the extra language is not installed")

import hostile_gguf
from gguf_pieces import taken_apart, written

import lamina
from lamina.language import CheckpointError, gguf_files


@pytest.fixture
def pieces():
    return copy.deepcopy(taken_apart(hostile_gguf._seeds()[0]))


def refused(tmp_path, pieces, match):
    (tmp_path / "x.gguf").write_bytes(written(pieces))
    with pytest.raises(CheckpointError, match=match):
        lamina.language.load(tmp_path / "x.gguf")


def test_a_file_put_together_again_is_read(tmp_path, pieces):
    assert written(pieces) == hostile_gguf._seeds()[0]
    (tmp_path / "x.gguf").write_bytes(written(pieces))
    lamina.language.load(tmp_path / "x.gguf")


def test_a_key_that_stands_twice(tmp_path, pieces):
    pieces.entries.append(pieces.entries[0])
    refused(tmp_path, pieces, "'general.architecture' twice")


def test_a_tensor_that_stands_twice(tmp_path, pieces):
    pieces.tensors.append([*pieces.tensors[0]])
    pieces.tensors[-1][3] = 1 << 20
    refused(tmp_path, pieces, f"{pieces.tensors[0][0].decode()!r} twice")


def test_tensors_that_lie_over_one_another(tmp_path, pieces):
    """Each would be copied as it becomes numbers: a small file could ask for any memory."""
    pieces.tensors[1][3] = pieces.tensors[0][3]
    refused(tmp_path, pieces, "lies over another tensor")


def test_lists_have_an_end(tmp_path, pieces, monkeypatch):
    monkeypatch.setattr(gguf_files, "MOST_LISTED", 500)
    refused(tmp_path, pieces, "more than 500 entries")


def test_a_list_of_lists(tmp_path, pieces):
    pieces.entries[1][1:] = [9, (9, [(4, [1])])]
    refused(tmp_path, pieces, "a list of 1 of type 9")
