"""Whose source files are whose: the package's own machinery, or a user's."""

import os
import subprocess
import sys

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


def test_nobody_needs_to_have_called():
    """Functions that C calls, as at exit, have no frame of the user's behind them."""
    text = """
import atexit, lamina
x, y = lamina.ones(2, 2).requires_grad_(), lamina.ones(2, 2)
for function, *args in (
    (x.exp,), (x.mul, x), (x.softmax, 1), (y.add_, y), (y.zero_,), (lamina.where, y > 0, x, x),
    (x.clamp, 0.0, 1.0), (lamina.cat, (x, x)), (y.addcmul_, y, y), (x.matmul, x), (x.max, 1),
    (y.__setitem__, 0, 1.0), (x.__getitem__, y > 0), (lamina.nn.functional.linear, x, x),
):
    function(*args), function(*args)
    atexit.register(function, *args)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
