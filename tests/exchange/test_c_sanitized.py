"""C libraries under sanitizers and valgrind: nothing beside an array is touched, and threads do not race.

A library's own code has no checks of a sanitizer's in it: pages beside its arrays tell what leaves them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from test_c_programs import MISUSE, RPATH, agrees, needs, said, wanted_of_misuse, write_digits

from lamina.jit.artifact import levels_here

FENCED = Path(__file__).with_name("fenced.c")
VALGRIND = "valgrind", "--error-exitcode=9", "-q"
LEVELS = [level for level in ("x86-64-v4", "x86-64-v3", "x86-64-v2", "armv8-a") if level in levels_here()]


@pytest.fixture(scope="module")
def model():
    return write_digits.network().eval()


@pytest.fixture(scope="module")
def folders(model, tmp_path_factory):
    """A folder with a library for each level that this machine runs."""
    found = {}
    for level in LEVELS:
        found[level] = tmp_path_factory.mktemp(level)
        write_digits.write(model, found[level], [level])
    return found


def built(folder: Path, source: Path, *flags: str) -> str:
    name = "_".join(["x", source.stem, *flags]).replace("=", "_").replace(",", "_").replace("-", "")
    said("gcc", "-g", *flags, "-I.", str(source), "digits.so", RPATH, "-lpthread", "-o", name, folder=folder)
    return f"./{name}"


@needs("gcc")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", ["1", "3"])
def test_nothing_beside_an_array_is_touched(folders, level, threads):
    program = built(folders[level], FENCED)
    assert said(program, threads, folder=folders[level]).strip() == level


@needs("gcc")
def test_a_write_beside_an_array_is_noticed(folders, tmp_path):
    """The fence itself: a caller that says one row too many."""
    folder = shutil.copytree(folders[LEVELS[0]], tmp_path / "x")
    text = FENCED.read_text()
    spoilt = text.replace("fenced(many * 10 * sizeof(float)", "fenced((many - 1) * 10 * sizeof(float)")
    assert spoilt != text
    (folder / "spoilt.c").write_text(spoilt)
    with pytest.raises(AssertionError):
        said(built(folder, folder / "spoilt.c"), "1", folder=folder)


@needs("gcc")
@pytest.mark.parametrize("flags", ["address,undefined", "thread"])
def test_callers_with_sanitizers(folders, model, flags):
    folder = folders[LEVELS[0]]
    if not _links(flags, folder):
        pytest.skip(f"gcc has no -fsanitize={flags}")
    program = built(folder, MISUSE, f"-fsanitize={flags}", "-fno-sanitize-recover=all")
    agrees(said(program, folder=folder, TSAN_OPTIONS="halt_on_error=1"), wanted_of_misuse(model))


def _links(flags: str, folder: Path) -> bool:
    (folder / "empty.c").write_text("int main(void) { return 0; }\n")
    try:
        said("gcc", f"-fsanitize={flags}", "empty.c", "-o", "empty", folder=folder)
        said("./empty", folder=folder)
    except AssertionError:
        return False
    return True


@pytest.mark.sampled(3)
@needs("gcc", "valgrind")
@pytest.mark.skipif("x86-64-v2" not in LEVELS, reason="the machine does not run x86-64-v2")
def test_the_least_level_under_valgrind(folders, model):
    folder = folders["x86-64-v2"]
    checked = *VALGRIND, "--leak-check=full", "--errors-for-leak-kinds=all"
    agrees(said(*checked, built(folder, MISUSE), folder=folder), wanted_of_misuse(model))


@pytest.mark.sampled(3)
@needs("gcc", "valgrind")
@pytest.mark.skipif("x86-64-v2" not in LEVELS, reason="the machine does not run x86-64-v2")
@pytest.mark.parametrize("tool", ["helgrind", "drd"])
def test_calls_of_several_threads_do_not_race(folders, tool):
    """Each on its own thread: those of a pool wait for each other in ways that these tools do not know."""
    folder = folders["x86-64-v2"]
    found = said(*VALGRIND, f"--tool={tool}", built(folder, FENCED), "0", folder=folder)
    assert found.strip() == "x86-64-v2"
