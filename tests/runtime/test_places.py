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


def test_a_script_that_is_named_by_a_way_through_the_package_is_the_users():
    assert not is_internal(os.path.join(PACKAGE, "..", "script.py"))
    assert is_internal(os.path.join(PACKAGE, "runtime", "..", "jit", "trace.py"))
