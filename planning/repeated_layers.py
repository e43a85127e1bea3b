"""The layers of a module that a pipeline may cut between."""

from __future__ import annotations

from collections.abc import Iterator

from ..nn import Module, ModuleList, Sequential

SMALLEST = 2  # layers of one kind that count as repeated


def repeated(model: Module) -> dict[str, Module]:
    """The layers that a pipeline may cut between, by name: children of the outermost lists of modules that
    have `SMALLEST` or more with parameters.
    """
    return dict(_repeated(model, ""))


def _repeated(module: Module, path: str) -> Iterator[tuple[str, Module]]:
    children = [(f"{path}.{name}".lstrip("."), child) for name, child in module.named_children()]
    heavy = [pair for pair in children if any(True for _ in pair[1].parameters())]
    if isinstance(module, (ModuleList, Sequential)) and len(heavy) >= SMALLEST:
        for name, child in heavy:
            inner = list(_repeated(child, name)) if isinstance(child, (ModuleList, Sequential)) else []
            yield from inner or [(name, child)]
        return
    for name, child in children:
        yield from _repeated(child, name)
