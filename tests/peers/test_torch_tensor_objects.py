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
