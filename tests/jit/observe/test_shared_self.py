"""The classes that make up the interpreter share one `self`: none takes a name of another's by accident."""

from __future__ import annotations

import ast
import inspect
from collections import defaultdict

from lamina.jit.observe.outermost import Interpreter

# Overridden on purpose: what the library makes is noted, then done as elsewhere.
OVERRIDDEN = {"mark_made", "instantiate"}
CLASSES = [kind for kind in Interpreter.__mro__ if kind is not object]


def _owners():
    found = defaultdict(list)
    for kind in CLASSES:
        for name in vars(kind):
            if not name.startswith("__"):
                found[name].append(kind.__name__)
    return found


def _set_on_self(kind):
    """The attributes that a class's methods assign to `self`."""
    tree = ast.parse(inspect.getsource(kind))
    places = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {
        node.attr
        for node in places
        if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name) and node.value.id == "self"
    }


def test_methods_are_defined_once():
    several = {name: kinds for name, kinds in _owners().items() if len(kinds) > 1}
    assert len(CLASSES) > 10 and several.keys() == OVERRIDDEN


def test_no_attribute_hides_a_method():
    methods = {name for kind in CLASSES for name, value in vars(kind).items() if inspect.isfunction(value)}
    hidden = {kind.__name__: names for kind in CLASSES if (names := _set_on_self(kind) & methods)}
    assert not hidden
