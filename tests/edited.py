"""Copies of the project's modules with one edit: the planted bugs that a net has to see."""

import importlib
from pathlib import Path
from types import ModuleType


def edited(name: str, right: str, wrong: str) -> ModuleType:
    """A copy of a module, in which `wrong` stands where `right` stood, once; nobody else sees it."""
    module = importlib.import_module(name)
    source = Path(module.__file__).read_text(encoding="utf-8")
    assert source.count(right) == 1, f"{right!r} stands {source.count(right)} times in {name}"
    made = ModuleType(module.__name__)
    made.__package__ = module.__package__
    exec(compile(source.replace(right, wrong), module.__file__, "exec"), made.__dict__)
    return made
