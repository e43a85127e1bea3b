"""Writes imported_names.txt anew: what libraries ask of `torch`, and which of it Lamina has.

    python tests/facade/imported_names.py transformers timm accelerate …

reads the text of these packages, where they are installed beside PyTorch: modules that they import, names
from those, and attributes of both.  What PyTorch itself has of it joins what the list holds already.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

LIST = Path(__file__).with_name("imported_names.txt")
LOOK = """
import importlib, json, sys, types
if sys.argv[1] == "lamina":
    import lamina
    lamina.install_as_torch()

def there(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:cut]))
        except Exception:
            continue
        for part in parts[cut:]:
            if not isinstance(found, (types.ModuleType, type)):
                return True  # an object's attribute, which it may get later
            try:
                found = getattr(found, part)
            except AttributeError:
                return False
            except Exception:  # it is there, and refused
                return True
        return True
    return False

print(json.dumps([name for name in json.load(sys.stdin) if there(name)]))
"""


def look(library: str, names: list[str]) -> list[str]:
    """Which of these names of `torch` there are, with `library` in its place: "torch" or "lamina"."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOOK, library], input=json.dumps(names), text=True,
        stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def asked(source: str) -> Iterator[str]:
    """The names of `torch` that a file's text asks for, from the root on."""
    tree, called = ast.parse(source), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "torch":
                    called[alias.asname or "torch"] = alias.name if alias.asname else "torch"
                    yield alias.name
        elif (
            isinstance(node, ast.ImportFrom)
            and not node.level
            and (node.module or "").split(".")[0] == "torch"
        ):
            for alias in node.names:
                called[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if parts and isinstance(node, ast.Name) and node.id in called:
            yield ".".join([called[node.id], *parts])


def main(libraries: list[str]) -> None:
    """Read the libraries, and write the list."""
    text = LIST.read_text()
    about = [line for line in text.splitlines() if line.startswith("#")]
    names = {line for line in text.splitlines() if line and line[0] not in "#-"}
    found: set[str] = set()
    for library in libraries:
        spec = find_spec(library)
        if spec is None or spec.origin is None:
            sys.exit(f"{library} is not installed")
        for file in Path(spec.origin).parent.rglob("*.py"):
            try:
                found |= {name for name in asked(file.read_text()) if name.count(".")}
            except SyntaxError:
                print(f"not read: {file}")
    every = sorted(names | set(look("torch", sorted(found))))
    offered = set(look("lamina", every))
    lacking = [name for name in every if name not in offered]
    LIST.write_text("\n".join([*about, *sorted(offered), "----", *lacking, ""]))
    print(f"{len(offered)} names are offered, {len(lacking)} are not")


if __name__ == "__main__":
    main(sys.argv[1:])
