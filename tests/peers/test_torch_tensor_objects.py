"""Tensors as objects, against PyTorch: attributes, subclasses, history, the meta device, texts and warnings.

The programs stand in programs_*.py of this folder and run with either library.
"""

import importlib
import warnings
from pathlib import Path

import pytest
from tensor_programs import PROGRAMS, Raised, raised, shown

import lamina

torch = pytest.importorskip("torch", reason="compares with PyTorch")

for path in sorted(Path(__file__).parent.glob("programs_*.py")):
    importlib.import_module(path.stem)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_shows_what_pytorch_shows(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = shown(torch, raised(program, torch))
        ours = shown(lamina, raised(program, lamina))
    assert not isinstance(theirs, Raised), theirs.error
    assert ours == theirs, raised(program, lamina)


@pytest.mark.parametrize("kind", ["storage", "untyped_storage"])
@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_storages_tell_where_they_are_and_what_is_the_same(kind):
    def told(library):
        x, other = library.arange(4.0), library.arange(4.0)
        mine = getattr(x, kind)()
        first = [
            mine.is_shared(), mine.is_cuda, mine.is_sparse, mine.get_device(), mine.is_pinned(),
            x[1:].untyped_storage() == x.untyped_storage(), getattr(other, kind)() == mine, mine == 3,
        ]  # fmt: skip
        moved = mine.share_memory_()
        return [*first, moved is mine, mine.is_shared(), x.is_shared(), x.tolist(), mine.tolist()]

    ours, theirs = told(lamina), told(torch)
    assert ours == theirs
    x = lamina.arange(4.0)
    assert len({x.storage(), x.storage(), x[1:].storage(), lamina.arange(4.0).storage()}) == 2


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int16", "uint8", "bool"])
def test_bytes_of_storages_are_turned_around(dtype):
    told = []
    for place in (torch, lamina):
        x = place.arange(3).to(getattr(place, dtype))
        x.untyped_storage().byteswap(getattr(place, dtype))
        told.append(x.untyped_storage().tolist())
    assert told[0] == told[1]


def test_storages_of_the_same_memory_have_one_number():
    for place in (torch, lamina):
        x = place.ones(4)
        part, copy = x[1:].untyped_storage(), x.clone()
        assert x.untyped_storage()._cdata == part._cdata != copy.untyped_storage()._cdata


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
def test_classes_of_storages_by_dtype():
    for dtype in ("float32", "float16", "complex128", "bool", "uint8"):
        kinds = [place.ones(2, dtype=getattr(place, dtype)).storage_type() for place in (torch, lamina)]
        assert kinds[0].__name__ == kinds[1].__name__
