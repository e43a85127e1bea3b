"""Whose source files are whose: the package's own machinery, or a user's."""

import os

import pytest

from lamina.runtime.places import PACKAGE, is_internal

WHOSE = {
    ("jit", "trace.py"): True,
    ("nn", "functional.py"): True,
    ("tests", "runtime", "test_places.py"): False,
    ("examples", "lstm.py"): False,
    (".venv", "lib", "python3.11", "site-packages", "tqdm", "std.py"): False,  # as README's commands make it
}


@pytest.mark.parametrize("path", WHOSE, ids="/".join)
def test_is_internal(path):
    assert is_internal(PACKAGE + os.path.join(*path)) is WHOSE[path]
