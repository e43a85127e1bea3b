"""Hold the root-as-package layout: every package listed, guarded, and importable under one name only."""

import ast
import functools
import importlib.metadata
import subprocess
import sys
from collections import Counter
from pathlib import Path

import package_tree
import pytest

import lamina.ir.version

NOT_SHIPPED = {"tests", "benchmarks", "examples", "docs", "build", "dist"}
INNER = [name for name in package_tree.packages() if name != "lamina"]


def packages_on_disk() -> list[str]:
    """Find every folder with an `__init__.py`, as a dotted name, but for what is no part of the package."""
    root = package_tree.ROOT
    found = ["lamina"] if (root / "__init__.py").exists() else []
    for top in root.iterdir():
        if top.is_dir() and top.name not in NOT_SHIPPED and not top.name.startswith("."):
            files = top.rglob("__init__.py")
            found += [".".join(("lamina", *file.parent.relative_to(root).parts)) for file in files]
    return sorted(found)


def test_packages_list_matches_disk():
    assert sorted(package_tree.packages()) == packages_on_disk()


def test_what_is_tracked_is_of_a_known_kind():
    """What a program left behind, or was written by mistake, is not committed with the rest."""
    listed = subprocess.run(["git", "ls-files"], cwd=package_tree.ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("this tree is no clone: there is nothing that is tracked")
    kinds = (".py", ".md", ".txt", ".json", ".toml", ".png", ".yaml")
    kinds += (".c", ".go", ".rs", ".html", ".css", ".js")
    names = {".gitignore", "LICENSE", "Makefile", "mkdocs.yml", "py.typed", "run"}
    unknown = [f for f in listed.stdout.splitlines() if not f.endswith(kinds) and Path(f).name not in names]
    assert not unknown, unknown


def test_packages_leave_no_module_outside():
    """A folder with modules but no `__init__.py` would be missed by the list and by the wheel alike."""
    packed = {package_tree.folder(name) for name in package_tree.packages()}
    tops = {package_tree.ROOT / name.split(".")[1] for name in INNER}
    assert {file.parent for top in tops for file in top.rglob("*.py")} <= packed


def test_tests_are_no_package():
    """With an `__init__.py` in tests/, pytest would import the root again, under its folder's name."""
    assert not list((package_tree.ROOT / "tests").rglob("__init__.py"))


@pytest.mark.parametrize("package", INNER)
def test_guard_refuses_bare_import(package):
    """From the root `import ir` must fail; so must `import ops` from within ir/."""
    place = package_tree.folder(package)
    command = [sys.executable, "-c", f"import {place.name}"]
    done = subprocess.run(command, cwd=place.parent, capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.rstrip().splitlines()[-1]
    assert last == f"ImportError: {place.name} is a folder of Lamina's repository: write import {package}"


@pytest.mark.parametrize("package", INNER)
def test_guard_is_first_statement(package):
    """Nothing may run before the guard but the docstring, or the second copy is half made already."""
    text = (package_tree.folder(package) / "__init__.py").read_text()
    assert text.startswith('"""')
    after = text.split('"""', 2)[2].lstrip()
    assert after.startswith('if not __name__.startswith("lamina."):')


def test_version_is_installed_version():
    assert importlib.metadata.version("lamina") == lamina.ir.version.__version__
    assert lamina.__version__ == lamina.ir.version.__version__


def test_import_loads_nothing_heavy():
    probe = package_tree.ROOT / "tests" / "house" / "import_probe.py"
    done = subprocess.run([sys.executable, probe], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert '"heavy": []' in done.stdout


def test_no_two_test_files_have_one_name():
    """pytest imports them by name alone: the second of a name is not collected."""
    counts = Counter(
        path.name for path in (package_tree.ROOT / "tests").rglob("*.py") if path.name != "conftest.py"
    )
    assert [name for name, count in counts.items() if count > 1] == []


THERE = {
    "PIL",
    "hypothesis",
    "lamina",
    "llvmlite",
    "ml_dtypes",
    "networkx",
    "numpy",
    "pytest",
    "safetensors",
    "scipy",
    "sklearn",
    "xdist",
}


@functools.cache
def asking(path: Path) -> list[ast.stmt]:
    """A file's imports and calls, parsed once: a helper is asked about again for each test that loads it."""
    return [s for s in ast.parse(path.read_text()).body if not isinstance(s, (ast.FunctionDef, ast.ClassDef))]


@functools.cache
def helpers() -> dict[str, Path]:
    """By the name that a test imports: each file beside the tests and the benchmarks."""
    return {f.stem: f for top in ("tests", "benchmarks") for f in (package_tree.ROOT / top).rglob("*.py")}


def left_to_chance(path: Path, asked: set[str]) -> list[str]:
    """Say which imports of a test, or of its helpers, fail where the extra `dev` alone is installed."""
    found = []
    for step in asking(path):
        match step:
            case ast.Expr(ast.Call() as call) | ast.Assign(value=ast.Call() as call):
                if ast.unparse(call.func) == "pytest.importorskip":
                    asked.add(ast.literal_eval(call.args[0]).split(".")[0])
                continue
            case ast.Import(names):
                roots = [alias.name.split(".")[0] for alias in names]
            case ast.ImportFrom(module):
                roots = [module.split(".")[0]]
            case _:
                continue
        for root in roots:
            if root in helpers() and root not in asked:
                asked.add(root)
                found += left_to_chance(helpers()[root], asked)
            elif root not in asked | THERE | sys.stdlib_module_names:
                found.append(f"{path.name}:{step.lineno}: {root}")
    return found


def test_what_need_not_be_installed_is_asked_for():
    """A test that imports PyTorch as it is collected ends the whole run where PyTorch is not."""
    tests = sorted((package_tree.ROOT / "tests").rglob("test_*.py"))
    assert [line for path in tests for line in left_to_chance(path, set())] == []
