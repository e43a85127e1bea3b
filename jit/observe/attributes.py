"""Globals, the cells of closures and attributes, read and written by Python's own rules."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from ...nn import Buffer, Module
from ...nn.epoch import advance
from ...nn.members import fields
from ...runtime import Parameter, Tensor
from ...runtime.tensor import fields as fields_of_tensor
from .binding import is_plain
from .deaths import in_cell, in_slot
from .frames import UNBOUND, contents
from .kinds import MISSING, TRANSPARENT, Function, lookup, of_lamina
from .lookups import Lookups
from .numbers import raw
from .spelling import MODULE
from .whole import MEMBERS


class Attributes(Lookups):
    """Reads and writes attributes, globals and the cells of closures."""

    # ---- globals and cells ----
    def load_global(self, scope: dict[str, Any], builtins: dict[str, Any], name: str) -> Any:
        """The global `name`, else the builtin.  Raises NameError."""
        if type(scope) is not dict:
            self.refuse("globals that are no plain dictionary")
        if name not in scope and name not in builtins:
            if not self.refused:
                self._absent_in_scope(scope, name)
                self._absent_in_scope(builtins, name)
            raise NameError(f"name '{name}' is not defined", name=name)
        if self.refused:
            return scope[name] if name in scope else builtins[name]
        self.name_globals(scope)
        if name in scope:
            return self.fact(scope, "item", name, f"{{o}}[{name!r}]", scope[name], lift=True)
        self._absent_in_scope(scope, name)
        if self.source(builtins) is None:
            self.pin(builtins, MODULE + "builtins")
        return self.fact(builtins, "item", name, f"{{o}}[{name!r}]", builtins[name])

    def store_global(self, scope: dict[str, Any], name: str, value: Any) -> None:
        """`global name; name = value`."""
        if self.refused:
            scope[name] = raw(value)
            return
        self.name_globals(scope)
        self._drops_global(scope, name)
        scope[name] = raw(value)
        self.wrote(scope, "item", name, value)
        self.effect(dict.__setitem__, scope, name, value)

    def delete_global(self, scope: dict[str, Any], name: str) -> None:
        """`global name; del name`.  Raises NameError."""
        if name not in scope:
            if not self.refused:
                self._absent_in_scope(scope, name)
            raise NameError(f"name '{name}' is not defined", name=name)
        if not self.refused:
            self.name_globals(scope)
            if not self.written.has(scope, "item", name):
                self.fact(scope, "in", name, f"({self.word(name)} in {{o}})", True)
            self._drops_global(scope, name)
            self.wrote(scope, "item", name)
            self.effect(dict.__delitem__, scope, name)
        del scope[name]

    def _drops_global(self, scope: dict[str, Any], name: str) -> None:
        self.drops(scope, "item", name, f"{{o}}.get({self.word(name)})", scope.get(name))

    def load_cell(self, cell: types.CellType) -> Any:
        """What a variable of an enclosing function holds.  Raises ValueError where it holds nothing."""
        try:
            value = cell.cell_contents
        except ValueError:
            if not self.refused and not self.written.has(cell, "cell", 0):
                self.fact(cell, "empty", 0, f"{self.const(is_empty)}({{o}})", True)
            raise
        return value if self.refused else self.fact(cell, "cell", 0, "{o}.cell_contents", value, lift=True)

    def store_cell(self, cell: types.CellType, value: Any) -> None:
        """Assign to a variable of an enclosing function."""
        if self.refused:
            cell.cell_contents = raw(value)
            return
        if self.is_fresh(cell):
            cell.cell_contents = self.put(cell, "cell", 0, value)
            return
        self.drops(cell, "cell", 0, "in_cell({o})", in_cell(cell))
        cell.cell_contents = raw(value)
        self.wrote(cell, "cell", 0, value)
        self.effect(set_cell, cell, value)

    def delete_cell(self, cell: types.CellType) -> None:
        """Delete a variable of an enclosing function.  Raises ValueError where it holds nothing."""
        self.drops_all(cell, [self.load_cell(cell)])
        del cell.cell_contents
        if not (self.refused or self.is_fresh(cell)):
            self.wrote(cell, "cell", 0)
            self.effect(empty_cell, cell)

    # ---- writing attributes ----
    def set_attribute(self, o: Any, name: str, value: Any) -> None:
        """`o.name = value`, or `setattr`.  Raises AttributeError."""
        o = self.plain(o)
        kind = type(o)
        if self.refused:
            setattr(o, name, raw(value))
        elif issubclass(kind, Tensor):
            self._set_on_tensor(o, name, self.plain(value))
        elif kind is types.ModuleType:
            self.name_globals(o.__dict__, MODULE + o.__name__)
            self._drops_global(o.__dict__, name)
            setattr(o, name, raw(value))
            self.wrote(o.__dict__, "item", name, value)
            self.effect(setattr, o, name, value)
        elif issubclass(kind, type):
            self._set_on_class(o, name, value)
        else:
            if kind in TRANSPARENT:
                wrapped = self.attribute(o, "__wrapped__")
                if issubclass(type(wrapped), Module) and name != "__wrapped__":  # it hands it on
                    self.set_attribute(wrapped, name, value)
                else:
                    self.refuse(f"{name} of a traced function was written")
                    setattr(o, name, raw(value))
                return
            hook = self.special(o, "__setattr__")
            if hook is Module.__setattr__:
                self.set_on_module(o, name, value)
            elif type(hook) is Function:
                self.call(hook, (o, name, value))
            elif is_plain(hook):
                self.generic_set(o, name, value)
            else:
                self.refuse(f"{kind.__name__} has C code write its attributes: {name} was written")
                setattr(o, name, raw(value))

    def generic_set(self, o: Any, name: str, value: Any) -> None:
        """`object.__setattr__(o, name, value)`.  Raises AttributeError."""
        if not self.refused:
            held = self.class_attribute(self.class_of(o), name)
            if issubclass(type(held), property):
                if held.fset is not None:
                    self.call(held.fset, (o, value))
                    return
            elif held is not MISSING:
                setter = self.of_descriptor(held, "__set__")
                if type(setter) is Function:
                    self.call(setter, (held, o, value))
                    return
                plain = (types.MemberDescriptorType, types.GetSetDescriptorType)
                if setter is not MISSING and not issubclass(type(held), plain):
                    self.refuse(f"{name} was written by way of a {type(held).__name__}, which is C code")
        if name == "__dict__" and not self.is_fresh(value):
            self.refuse("the dictionary of an object was replaced")
        if issubclass(type(o), np.ndarray):
            self.refuse(f"the {name} of a NumPy array was written")
        self._write(o, name, value, object.__setattr__)

    def _write(self, o: Any, name: str, value: Any, write: Callable) -> None:
        """Write into the object's own dictionary or slot."""
        if self.refused:
            write(o, name, raw(value))
            return
        own = None if self.is_fresh(o) else self.own_of(o)
        handed = own is not None and self.is_known(own)
        if handed:
            self.membership(own, name)
            self.writes_to(own, name)
        if handed:
            value = self.plain(value)
        self._drops_attribute(o, name)
        write(o, name, raw(value))
        self.wrote(o, "class" if name == "__class__" else "attr", 0 if name == "__class__" else name, value)
        if self.is_fresh(o):
            return
        if handed:
            self.wrote(own, "item", name)
        self.effect_on(o, f"{name} was written on a {{}}", write, name, value)

    def _drops_attribute(self, o: Any, name: str) -> None:
        """An attribute that stands in the object's own dictionary or slot is about to go."""
        if self.refused or self.is_fresh(o):
            return
        held, own = lookup(type(o), name), self.own_of(o)
        if type(held) is types.MemberDescriptorType:
            read = f"{self.const(in_slot)}({self.const(held)}, {{o}})"
            self.drops(o, "attr", name, read, in_slot(held, o))
        elif own is not None:
            read = f"{self.own_text(type(o))}.get({self.word(name)})"
            self.drops(o, "attr", name, read, own.get(name))

    def _set_on_tensor(self, o: Tensor, name: str, value: Any) -> None:
        kind = type(o)
        if not of_lamina(kind):
            self.refuse(f"{kind.__name__}, a class of the user's own, derives from Tensor")
        if name.startswith("_"):
            self.refuse(f"the inside of a tensor was written: {name}")
        if name in fields_of_tensor(o):
            self.drops_all(o, [fields_of_tensor(o)[name]])
        if name == "data" and (o._compound or getattr(value, "_compound", False)):
            self.refuse("the data of a tensor made of tensors was replaced")
            setattr(o, name, value)
            return
        given = name == "data" and issubclass(type(value), Tensor) and value._data is not o._data
        setattr(o, name, value)
        if given and self.recorder.source_of(o) is not None and not self.refused:
            self.recorder.notice("replaced", o)
            self.effect(setattr, o, name, value if value._node is None else value.detach())
        if not hasattr(kind, name) and not self.refused:  # an attribute of the user's on a parameter
            self.wrote(o, "attr", name)
            self.effect(setattr, o, name, value)

    def _set_on_class(self, o: type, name: str, value: Any) -> None:
        meta = type(o)
        hook = self.class_attribute(meta, "__setattr__")
        if type(hook) is Function:
            self.call(hook, (o, name, self.plain(value)))
            return
        above = self.class_attribute(meta, name)
        if above is not MISSING and self.is_data(above):
            if issubclass(type(above), property) and above.fset is not None:
                self.call(above.fset, (o, value))
                return
            self.refuse(f"{name} of the class {o.__name__} was written")
        self.drops(o, "own", name, f"{{o}}.__dict__.get({self.word(name)})", o.__dict__.get(name))
        setattr(o, name, raw(value))
        for kind in ("own", "none"):
            self.wrote(o, kind, name, value)
        if not self.is_fresh(o):
            self.effect(setattr, o, name, value)

    def set_on_module(self, o: Module, name: str, value: Any) -> None:
        """`Module.__setattr__`, which registers parameters, buffers and modules."""
        if self.is_fresh(o) or self.refused:
            setattr(o, name, self.plain(value))
            return
        registers = isinstance(value, (Parameter, Module, Buffer))
        members = self._members(o, name)
        held = self.class_attribute(type(o), name)
        if (
            held is not MISSING
            and self.is_data(held)
            and not registers
            and not any(name in m for m in members)
        ):
            self.generic_set(o, name, value)
            advance()
            return
        for each in members:
            if registers or name in each:
                self.writes_to(each, name)
        if registers or any(name in m for m in members):
            value = self.plain(value)
        self._drops_attribute(o, name)
        Module.__setattr__(o, name, raw(value))
        self._wrote_member(o, members, name, value)
        self.effect(Module.__setattr__, o, name, value)

    def _members(self, o: Module, name: str) -> list[Any]:
        """The dictionaries of a module; whether they hold the name becomes a fact."""
        own = fields(o)
        for which in MEMBERS:
            if which in own:
                text = f"({self.word(name)} in fields({{o}})[{which!r}])"
                self.fact(o, "member", (which, name), text, name in own[which])
        return [own[which] for which in MEMBERS if which in own]

    def _wrote_member(self, o: Module, members: list[Any], name: str, value: Any = MISSING) -> None:
        for which, each in zip(MEMBERS, members):
            self.wrote(o, "member", (which, name))
            if self.is_written(each):
                self.wrote(each, "item", name)
        self.wrote(o, "attr", name, value)

    # ---- deleting attributes ----
    def delete_attribute(self, o: Any, name: str) -> None:
        """`del o.name`, or `delattr`.  Raises AttributeError."""
        o = self.plain(o)
        if self.refused:
            delattr(o, name)
        elif type(o) is types.ModuleType:
            if name not in o.__dict__:
                delattr(o, name)  # which raises
            self.delete_global(o.__dict__, name)
        elif issubclass(type(o), (Tensor, type)):
            if not self.is_fresh(o):
                self.refuse(f"{name} of a {'class' if issubclass(type(o), type) else 'tensor'} was deleted")
            delattr(o, name)
        else:
            if type(o) in TRANSPARENT and type(lookup(type(o), "__delattr__")) is Function:
                self.delete_attribute(self.attribute(o, "__wrapped__"), name)
                return
            hook = self.special(o, "__delattr__")
            if hook is Module.__delattr__:
                self._delete_of_module(o, name)
            elif type(hook) is Function:
                self.call(hook, (o, name))
            elif is_plain(hook):
                self.generic_delete(o, name)
            else:
                self.refuse(f"{type(o).__name__} has C code delete its attributes: {name} was deleted")
                delattr(o, name)

    def generic_delete(self, o: Any, name: str) -> None:
        """`object.__delattr__(o, name)`.  Raises AttributeError."""
        if self.refused:
            object.__delattr__(o, name)
            return
        held = self.class_attribute(self.class_of(o), name)
        if issubclass(type(held), property) and held.fdel is not None:
            self.call(held.fdel, (o,))
            return
        if held is not MISSING and type(deleter := self.of_descriptor(held, "__delete__")) is Function:
            self.call(deleter, (held, o))
            return
        if type(held) is types.MemberDescriptorType:
            with contextlib.suppress(AttributeError):  # deleting says so in words of its own
                self.bound(held, o, type(o), name)
        own = self.own_of(o)
        if own is not None and name not in own:
            self._own_absent(o, own, name)
        elif own is not None and not self.written.has(o, "attr", name):
            self.fact(o, "has", name, f"({self.word(name)} in {self.own_text(type(o))})", True)
        if not self.is_fresh(o) and own is not None and self.is_known(own):
            self.refuse(f"{name} was deleted from an object whose dictionary had been asked for")
        self._drops_attribute(o, name)
        object.__delattr__(o, name)
        self.wrote(o, "attr", name)
        self.effect_on(o, f"{name} was deleted from a {{}}", object.__delattr__, name)

    def _delete_of_module(self, o: Module, name: str) -> None:
        if self.is_fresh(o):
            delattr(o, name)
            return
        members = self._members(o, name)
        if not any(name in each for each in members):
            self.generic_delete(o, name)
            advance()
            self.effect(advance)
            return
        for each in members:
            if name in each:
                self.writes_to(each)
        self._drops_attribute(o, name)
        delattr(o, name)
        self._wrote_member(o, members, name)
        self.effect(delattr, o, name)


def is_empty(cell: types.CellType) -> bool:
    """Whether a variable of an enclosing function holds nothing."""
    return contents(cell) is UNBOUND


def set_cell(cell: types.CellType, value: Any) -> None:
    """Assign to a variable of an enclosing function."""
    cell.cell_contents = value


def empty_cell(cell: types.CellType) -> None:
    """Delete a variable of an enclosing function."""
    del cell.cell_contents
