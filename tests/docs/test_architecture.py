"""The pages that show the way through the code name only what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("ir", "passes", "runtime", "nn", "optim", "data", "jit", "demo", "facade")


def paths(text: str) -> list[str]:
    """What a page names as a path: in backticks, with a slash or the ending of a file."""
    spans = re.findall(r"`([\w./-]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return [span for span in spans if "/" in span or span.endswith((".py", ".md", ".toml"))]


def missing(text: str) -> list[str]:
    """The paths in a page that lead nowhere.  A file's bare name may be that of a file in any room."""

    def exists(path: str) -> bool:
        if "/" in path or (ROOT / path).exists():
            return (ROOT / path).exists()
        return any(next((ROOT / room).rglob(path), None) for room in ROOMS)

    return [path for path in paths(text) if not exists(path)]


@pytest.mark.parametrize("page", ["architecture.md", "from_scratch.md"])
def test_a_page_names_only_paths_that_exist(page):
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    assert len(paths(text)) > 10, f"{page} names almost no paths: are they still found?"
    assert missing(text) == []


def test_a_path_that_leads_nowhere_is_found():
    text = (
        "`ir/op.py`, `tensor.py` and `ir/` are here, `ir/no_such.py`, `no_such.py` and `no_room/` are not.\n"
    )
    assert missing(text) == ["ir/no_such.py", "no_such.py", "no_room/"]


BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "architecture.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("about", ["drop_repeated_relu", "how.kernels(conv)", "by_lanes", "made_up = Target"])
def test_the_worked_examples_of_the_compiler_run(about):
    (block,) = (b for b in BLOCKS if about in b)
    exec(compile(block, "docs/architecture.md", "exec"), {"__name__": "example"})
