"""docs/from_scratch.md is one program, and runs from its first block to its last."""

import ast
import re
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "from_scratch.md"


def blocks(page: Path) -> list[str]:
    """The page's blocks of Python, each behind as many empty lines as the page has before it.

    So its lines have the page's numbers, in tracebacks and in the places that the program itself notes.
    """
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, block.start(1)) + block[1] for block in found]


def run(page: Path) -> dict:
    """Run the blocks of a page in order, in one namespace, which is returned."""
    found = blocks(page)
    assert found, f"{page.name} has no blocks of Python"
    scope: dict = {"__name__": page.stem}
    for block in found:
        exec(compile(block, str(page), "exec"), scope)
    return scope


def test_the_page_runs():
    scope = run(PAGE)
    assert scope["right"] >= 0.98  # its last section was reached: the network has learned


def test_the_page_needs_numpy_alone():
    tree = ast.parse("\n".join(blocks(PAGE)))
    imports = {a.name for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    imports |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imports - set(sys.stdlib_module_names) == {"numpy"}


def test_a_page_without_blocks_fails(tmp_path):
    page = tmp_path / "empty.md"
    page.write_text("# Nothing\n\n```\nno Python\n```\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="empty.md has no blocks of Python"):
        run(page)


def test_a_failing_block_is_named_by_its_line_of_the_page(tmp_path):
    page = tmp_path / "wrong.md"
    page.write_text(
        "# Wrong\n\n```python\nx = 1\n```\n\nand\n\n```python\nassert x == 2\n```\n", encoding="utf-8"
    )
    with pytest.raises(AssertionError) as failure:
        run(page)
    last = failure.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(page), 10)
