"""What MkDocs is to add to the pages: pictures of results, the examples, a reference of all public names.

The reference is written from the running package, as most of its functions are made from records.
"""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from mkdocs.structure.files import File, Files

from lamina.ir.op import REGISTRY as OPS

ROOT = Path(__file__).resolve().parents[1]
CODE = re.compile("`([^`]+)`")
PICTURES = {
    "": sorted((ROOT / "benchmarks" / "results").glob("*.png")),
    "out/": sorted((ROOT / "examples" / "out").glob("*.png")),
}
# What the reference tells of, in the order of its menu.
ROOMS = {
    "lamina": "Functions of tensors, dtypes and switches; see Tensor for methods.",
    "lamina.Tensor": "Methods and attributes of tensors.",
    "lamina.nn": "Modules, losses and containers.",
    "lamina.nn.functional": "The same as functions.",
    "lamina.nn.init": "How parameters begin.",
    "lamina.nn.utils": "Clipping, vectors of parameters, packed sequences, norms of weights, pruning.",
    "lamina.optim": "Optimizers.",
    "lamina.optim.lr_scheduler": "Learning rates over time.",
    "lamina.data": "Data sets, samplers and loaders: torch.utils.data.",
    "lamina.distributions": "Densities, transforms and divergences.",
    "lamina.autograd": "Gradients, hooks, functions of one's own.",
    "lamina.func": "Transforms of functions.",
    "lamina.jit": "Tracing, export and loading.",
    "lamina.distributed": "More than one process: groups, collectives, messages.",
    "lamina.distributed.functional": "Collectives with gradients.",
    "lamina.distributed.checkpoint": "Checkpoints that ranks share.",
    "lamina.planning": "What many devices would take.",
    "lamina.language": "Language models of checkpoints.",
    "lamina.linalg": "Linear algebra.",
    "lamina.fft": "Fourier transforms.",
    "lamina.special": "Special functions.",
    "lamina.profiler": "Where the time goes.",
    "lamina.utils.benchmark": "Timers.",
    "lamina.utils.flop_counter": "Operations of products, by module.",
}


def on_files(files: Files, config: Any) -> Files:
    """Add what is no file under docs/."""
    for folder, pictures in PICTURES.items():
        for path in pictures:
            files.append(File.generated(config, f"{folder}{path.name}", abs_src_path=str(path)))
    files.append(File.generated(config, "examples.md", content=examples()))
    for name, about in ROOMS.items():
        files.append(File.generated(config, f"reference/{name}.md", content=page(name, about)))
    files.append(File.generated(config, "reference/index.md", content=index()))
    return files


def examples() -> str:
    """The page of the examples, with their curves."""
    text = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"\[([^\]]+)\]\(text/README\.md\)", r"`examples/\1`", text)
    pictures = "\n".join(f"![{path.stem}](out/{path.name})" for path in PICTURES["out/"])
    return f"{text}\n## Their curves\n\n{pictures}\n"


def index() -> str:
    lines = ["# Reference", "", "Every public name, with what its docstring says.", ""]
    return "\n".join([*lines, *(f"- [{name}]({name}.md): {about}" for name, about in ROOMS.items()), ""])


def room(name: str) -> Any:
    """The module, or the class, of a name."""
    if name == "lamina.Tensor":
        return import_module("lamina").Tensor
    return import_module(name)


def page(name: str, about: str) -> str:
    """The reference of a room, in Markdown."""
    lines = [f"# {name}", "", about, ""]
    known: dict[int, str] = {}
    for leaf, value in members(room(name)):
        lines += [f"## {leaf}", ""]
        if id(value) in known and known[id(value)] != leaf:
            lines += [f"The same as `{known[id(value)]}`.", ""]
            continue
        known[id(value)] = leaf
        lines += [*described(leaf, value), ""]
    return "\n".join(lines)


def members(of: Any) -> list[tuple[str, Any]]:
    """The public names of a module or class, with what they are; modules apart."""
    names = set(dir(of)) if isinstance(of, type) else {*getattr(of, "__all__", ()), *dir(of)}
    found = []
    for leaf in sorted(names, key=lambda leaf: (leaf.lower(), leaf)):
        value = None if leaf.startswith("_") else inspect.getattr_static(of, leaf, None)
        value = getattr(of, leaf, value) if value is None or isinstance(value, staticmethod) else value
        if leaf.startswith("_") or isinstance(value, ModuleType) or value is None:
            continue
        if callable(value) or isinstance(value, property):
            found.append((leaf, value))
    return found


def described(name: str, value: Any) -> Iterator[str]:
    """A signature, and the docstring as it is written."""
    yield from ("```text", f"{name}{signature(value)}", "```", "")
    yield paragraphs(inspect.getdoc(value) or "")
    if isinstance(value, type):
        for leaf, method in vars(value).items():
            if leaf.startswith("_") or not inspect.isfunction(method) or not method.__doc__:
                continue
            first = inspect.getdoc(method).partition("\n\n")[0].replace("\n", " ")
            yield f"\n- `{leaf}{signature(method)}` {html.escape(first)}"


def signature(value: Any) -> str:
    """(input, dim=None): of an op that of its record's call, which takes what PyTorch's takes."""
    if isinstance(value, property):
        return ""
    try:
        spelled = str(inspect.signature(value))
        op = OPS.get(getattr(value, "__name__", "").removesuffix("_"))
        if spelled == "(*args, **kwargs)" and op is not None:
            spelled = str(inspect.signature(op.bind)) if op.bind else f"({', '.join(op.operands)})"
    except (ValueError, TypeError):
        return "(…)"
    return re.sub(r"'([^']*)'", r"\1", spelled)


def paragraphs(text: str) -> str:
    """A docstring as HTML that Markdown leaves alone: its asterisks are products."""
    found = [html.escape(part).replace("\n", " ") for part in re.split(r"\n\s*\n", text.strip()) if part]
    return "".join(f"<p>{part}</p>" for part in (CODE.sub(r"<code>\1</code>", part) for part in found))
