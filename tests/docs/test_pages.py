"""Every page of the site is in its menu, every link leads somewhere, and every block of Python runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
# Run block by block by tests of their own.
ELSEWHERE = ("architecture.md", "from_scratch.md")
MADE = {"examples.md", "reference/index.md", "growth.png", "models.png", "overhead.png"}  # by docs/hooks.py


def blocks(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and blocks(page)])
def test_a_page_is_a_program_that_runs(page, tmp_path):
    """In a process and a folder of its own: some install Lamina as torch, or write files."""
    program = tmp_path / "page.py"
    program.write_text("\n".join(blocks(page)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program.name], cwd=tmp_path, capture_output=True, text=True, timeout=100,
        env=os.environ | {"LAMINA_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    text = re.sub(
        r"^```.*?^```", "", (DOCS / page).read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("https://"):
            assert target in MADE or (DOCS / target).exists(), f"{page} links to {target}"


def test_every_page_is_in_the_menu():
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"^ +- (?:[^:\n]+: )?([\w/.]+\.md)$", menu, re.MULTILINE))
    assert named - {name for name in named if name.startswith("reference/")} == {*PAGES, "examples.md"}


def test_the_reference_has_every_room():
    """The menu and docs/hooks.py name the same rooms, each of which can be imported."""
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    rooms = re.findall(r"reference/(lamina[\w.]*)\.md", menu)
    source = (DOCS / "hooks.py").read_text(encoding="utf-8")
    assert rooms == re.findall(r'^    "(lamina[\w.]*)":', source, re.MULTILINE)
    look = "import operator, sys, lamina\nfor room in sys.argv[1:]: operator.attrgetter(room)(lamina)"
    below = [room.removeprefix("lamina.") for room in rooms if room != "lamina"]
    done = subprocess.run([sys.executable, "-c", look, *below], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
