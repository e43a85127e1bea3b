"""Know which files are the package `lamina`, from pyproject.toml's own list.

Run as a program it copies them: `python tests/house/package_tree.py build/types` makes build/types/lamina,
which mypy and import-linter can read (neither follows an editable install whose package is the root).
"""

import ast
import re
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def setup() -> dict:
    """Return what pyproject.toml says to setuptools."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["tool"]["setuptools"]


def packages() -> list[str]:
    """Return the names that pyproject.toml lists: ["lamina", "lamina.ir", ...]."""
    return setup()["packages"]


def folder(package: str) -> Path:
    """Return where a package lies: "lamina" -> the root, "lamina.ir.ops" -> ir/ops."""
    return ROOT.joinpath(*package.split(".")[1:])


def files() -> list[str]:
    """Return what a wheel must hold of the package, as sorted paths that begin with "lamina/"."""
    found = []
    for package, data in setup()["package-data"].items():
        found += [f"{'/'.join(package.split('.'))}/{name}" for name in data]
    for package in packages():
        inside = "/".join(package.split("."))
        found += [f"{inside}/{file.name}" for file in folder(package).glob("*.py")]
    return sorted(found)


def trees(names: Iterable[str] | None = None) -> Iterator[tuple[str, ast.Module]]:
    """Parse the package's modules; yield each one's path from the root, and its tree.

    names: only of those in whose text one of these stands as a word, which takes a fraction of the time.
    """
    word = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b" if names is not None else "")
    for file in files():
        path = ROOT / file.partition("/")[2]
        if path.suffix == ".py" and word.search(text := path.read_text()):
            yield str(path.relative_to(ROOT)), ast.parse(text)


def copy_package(parent: Path) -> Path:
    """Copy the package to parent/lamina, replacing what was there, and return that path."""
    target = parent / "lamina"
    shutil.rmtree(target, ignore_errors=True)
    for file in files():
        inside = Path(file).relative_to("lamina")
        (target / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / inside, target / inside)
    return target


if __name__ == "__main__":
    copy_package(Path(sys.argv[1]))
