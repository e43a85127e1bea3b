"""Reading attributes by Python's own rules, each step of which is a fact.

Reading `o.name` asks the class of `o` and its bases, then the object's own dictionary, then `__getattr__`:
what one of them does not hold is as much a fact as what the next one does.  Everything is really done, and
gives the true result, also where the recording is given up.
"""

from __future__ import annotations

import keyword
import operator
import types
from typing import Any

import numpy as np

from ...nn import Module
from ...runtime import Size, Tensor
from ...runtime.tensor import fields as fields_of_tensor
from .binding import Binding, dictionary_getter, is_plain
from .kinds import ATOMS, MISSING, TRANSPARENT, VIEWS, Function, Method, heap_class, lookup, of_lamina
from .numbers import LiftedInt, LiftedSize, raw, spelled
from .on_values import OF_VALUES
from .spelling import MODULE

# Objects of these show what runs or is kept elsewhere.
_OPAQUE = {
    types.FrameType: "a frame shows what runs",
    types.TracebackType: "a traceback shows what ran",
    types.GeneratorType: "the inside of a generator",
    types.CoroutineType: "the inside of a coroutine",
}


# What is the same of each array of a tensor's type, and methods that ask the tensor.
_OF_TYPES = (types.UnionType, types.GenericAlias)  # `int | None` and `list[int]`, which nothing changes
_KNOWN_OF_SHOWN = ("shape", "ndim", "dtype", "size", "nbytes", "itemsize", "item", "tolist")


# What these attributes of tensors are hangs on no size.
_SIZELESS = frozenset(("dtype", "device", "ndim", "requires_grad", "is_leaf", "grad", "grad_fn"))


class Lookups(Binding):
    """Reads attributes of any object."""

    def shape_of(self, sizes: list[int]) -> Size:
        """A shape of sizes, some of which may be lifted."""
        bare = Size([*map(raw, sizes)])
        if not any(type(n) is LiftedInt for n in sizes):
            return bare
        made = self.numbers.computed(bare, f"{self.const(Size)}(({', '.join(map(spelled, sizes))},))")
        made.items = sizes
        return made

    # ---- reading attributes ----
    def attribute(self, o: Any, name: str, default: Any = MISSING) -> Any:
        """`o.name`, or `getattr(o, name, default)`.  Raises AttributeError."""
        if self.written.touched and name not in self.written.touched.get(id(o), (name,)):
            self.refuse(f"{type(o).__name__}.{name} was read after it had been changed by unknown code")
        if name == "numel" and type(o) is LiftedSize:
            return types.MethodType(vars(Size)[name], o)
        if default is MISSING:
            return self._attribute(self.plain(o), name)
        try:
            return self._attribute(self.plain(o), name)
        except AttributeError:
            return default

    def _attribute(self, o: Any, name: str) -> Any:
        kind = type(o)
        if self.refused or kind in ATOMS or issubclass(kind, (np.dtype, np.generic)):
            return getattr(o, name)
        if issubclass(kind, Tensor):
            return self._of_tensor(o, name)
        if kind is types.ModuleType:
            return self._of_python_module(o, name)
        if issubclass(kind, type):
            return self._of_class(o, name)
        if kind is super:
            return self.super_attribute(o, name)
        if kind is Method:
            return self._of_method(o, name)
        if kind is types.CellType and name == "cell_contents":
            return self.load_cell(o)
        if kind in _OPAQUE and name not in ("send", "throw", "close"):
            self.abandon(f"{_OPAQUE[kind]}: {name} was read")
            return getattr(o, name)
        if issubclass(kind, np.ndarray) and not heap_class(kind):
            if id(o) not in self.fresh.shown or name not in _KNOWN_OF_SHOWN:
                self.read_all(o)
            if name == "base":
                self.refuse("the base of a NumPy array was read")
            return self.made(getattr(o, name))
        if kind in _OF_TYPES and name in ("__args__", "__origin__", "__parameters__"):
            return self.fact(o, "attr", name, f"{{o}}.{name}", getattr(o, name))
        if kind in VIEWS and name == "mapping":
            self.refuse("the mapping of a dictionary's view was read")
            return getattr(o, name)
        return self._of_object(o, name)

    def _of_object(self, o: Any, name: str) -> Any:
        kind = self.class_of(o)
        hook = self.class_attribute(kind, "__getattribute__")
        of_python = type(hook) is Function
        if not of_python and not is_plain(hook) and hook is not types.ModuleType.__getattribute__:
            self.refuse(f"{kind.__name__} has C code look up its attributes: {name} was read")
            return getattr(o, name)
        try:
            return self.call(hook, (o, name)) if of_python else self.generic_attribute(o, name)
        except AttributeError as error:
            raised = error
        try:
            if kind in TRANSPARENT and not name.startswith("__"):
                return self.attribute(self.attribute(o, "__wrapped__"), name)
            fallback = self.class_attribute(kind, "__getattr__")
            if fallback is MISSING and issubclass(type(o), types.ModuleType) and name != "__getattr__":
                return self.call(self._of_object(o, "__getattr__"), (name,))
            if fallback is MISSING:
                raise raised
            members = (o._parameters, o._buffers, o._modules) if fallback is Module.__getattr__ else ()
            if members and not any(name in held for held in members if held):
                return fallback(o, name)  # which raises
            if type(fallback) is not Function:
                self.refuse(f"{kind.__name__}.__getattr__ is no plain function")
                return getattr(o, name)
            return self.call(fallback, (o, name))
        finally:
            del raised  # its traceback leads here, and the circle would keep all frames

    def generic_attribute(self, o: Any, name: str) -> Any:
        """`object.__getattribute__(o, name)`.  Raises AttributeError."""
        kind = self.class_of(o)
        if self.refused:
            return object.__getattribute__(o, name)
        held = self.class_attribute(kind, name)
        if name == "__class__" and held is object.__dict__["__class__"]:
            return kind
        if (
            name == "__dict__"
            and dictionary_getter(kind) is not None
            and not issubclass(type(held), property)
        ):
            return self._dictionary(o)
        if held is not MISSING and self.is_data(held):
            if issubclass(type(o), Module) and name == "__dict__":
                self.refuse("vars() of a module, into which anything may be written")
                return object.__getattribute__(o, name)
            return self.bound(held, o, kind, name)
        own = self.own_of(o)
        if own is not None:
            if name in own:
                return self._own_value(o, own, name)
            self._own_absent(o, own, name)
        if held is not MISSING:
            return self.bound(held, o, kind, name)
        return object.__getattribute__(o, name)  # which raises

    def _own_value(self, o: Any, own: dict[str, Any], name: str) -> Any:
        """What stands in an object's own dictionary."""
        value = own[name]
        if self.written.has(own, "item", name):  # by way of the dictionary
            return self.fact(own, "item", name, "", value, lift=True)
        if self.is_written(own) and self.before(own).get(name, MISSING) is not value:
            return value
        return self.fact(o, "attr", name, self._own_text(o, name), value, lift=True)

    def _own_text(self, o: Any, name: str) -> str:
        kind = type(o)
        simple = name.isidentifier() and not keyword.iskeyword(name)
        held = lookup(kind, name)  # and __getattr__: Python that would run were the value gone
        silent = type(held) is Function or lookup(type(held), "__get__") is MISSING
        silent = (
            silent and is_plain(lookup(kind, "__getattribute__")) and lookup(kind, "__getattr__") is MISSING
        )
        if simple and silent and not issubclass(kind, Module):
            return f"{{o}}.{name}"
        return f"{self.own_text(kind)}[{self.word(name)}]"

    def _own_absent(self, o: Any, own: dict[str, Any], name: str) -> None:
        written = self.written.has(o, "attr", name) or self.written.has(own, "item", name)
        if not written and not (self.is_written(own) and name in self.before(own)):
            self.fact(o, "absent", name, f"({self.word(name)} in {self.own_text(type(o))})", False)

    def _dictionary(self, o: Any) -> dict[str, Any]:
        """`o.__dict__`: from here on its items and the object's attributes are watched together."""
        own = self.own_of(o)
        assert own is not None
        if self.is_fresh(o):
            self.shadow.bare(o)
            self.shadow.opened |= {id(o), id(own)}  # what is written to one stands in the other
            return self.new(own)
        if issubclass(type(o), Module):
            self.refuse("vars() of a module, into which anything may be written")
            return own
        if not self.is_known(own) and any(at[0] == id(o) and at[1] == "attr" for at in self.written.places):
            self.refuse(
                f"the dictionary of a {type(o).__name__} was asked for after a write to its attributes"
            )
            return own
        self.shadow.bare(o)
        return self.fact(o, "attr", "__dict__", self.own_text(type(o)), own)

    def _of_tensor(self, o: Tensor, name: str) -> Any:
        """Attributes of tensors follow from their guarded type, or are ops, which are heard."""
        kind = type(o)
        if not of_lamina(kind):
            self.refuse(f"{kind.__name__}, a class of the user's own, derives from Tensor")
            return getattr(o, name)
        if name in ("__dict__", "__array_interface__") or name.startswith("_") and not name.endswith("__"):
            self.refuse(f"the inside of a tensor was read: {name}")
            return getattr(o, name)
        if name == "shape" and (sizes := self.sizes.shape(o)) is not None:
            return self.shape_of(sizes)
        held = self.class_attribute(kind, name)
        if self.is_known(o) and not (held is not MISSING and self.is_data(held)):
            own = fields_of_tensor(o)
            if name in own:
                return self._own_value(o, own, name)
            self._own_absent(o, own, name)
        if issubclass(type(held), property) and self.of_user(held.fget):
            return self.call(held.fget, (o,))
        if self.sizes.concern(o) and issubclass(type(held), property) and name not in _SIZELESS:
            again = OF_VALUES.get(name, operator.attrgetter(name))
            return self.made(self.sizes.call(operator.attrgetter(name), (o,), {}, again))
        found = getattr(o, name)
        for each in found if o._compound and type(found) is tuple else ():  # placements
            self.made(each)
        return self.made(found)

    def _of_python_module(self, o: types.ModuleType, name: str) -> Any:
        """An attribute of an imported module: a global of its, else what its `__getattr__` gives."""
        scope = o.__dict__
        if not o.__name__.startswith("lamina"):
            self.fact(o, "class", 0, "type({o})", type(o))
        self.name_globals(scope, MODULE + o.__name__)
        if name == "__dict__":
            return scope
        if name == "__class__":
            return type(o)
        if name in scope:
            return self.fact(scope, "item", name, f"{{o}}[{self.word(name)}]", scope[name], lift=True)
        self._absent_in_scope(scope, name)
        if lookup(types.ModuleType, name) is not MISSING:
            return getattr(o, name)
        if "__getattr__" not in scope:
            self._absent_in_scope(scope, "__getattr__")
            return getattr(o, name)  # which raises
        hook = self.fact(scope, "item", "__getattr__", "{o}['__getattr__']", scope["__getattr__"])
        return self.call(hook, (name,))

    def _of_class(self, o: type, name: str) -> Any:
        meta = type(o)
        if heap_class(meta):
            self.fact(o, "class", 0, "type({o})", meta)
        hook = self.class_attribute(meta, "__getattribute__")
        if hook is not type.__getattribute__ and type(hook) is not Function:
            self.refuse(f"{meta.__name__} has C code look up the attributes of classes: {name} was read")
            return getattr(o, name)
        try:
            return self.call(hook, (o, name)) if type(hook) is Function else self._plainly_of_class(o, name)
        except AttributeError as error:
            raised = error
        try:
            fallback = self.class_attribute(meta, "__getattr__")
            if fallback is MISSING:
                raise raised
            return self.call(fallback, (o, name))
        finally:
            del raised  # as above

    def _plainly_of_class(self, o: type, name: str) -> Any:
        """`type.__getattribute__(o, name)`."""
        meta = type(o)
        above = self.class_attribute(meta, name)
        if above is not MISSING and self.is_data(above):
            if name == "__class__" and above is object.__dict__["__class__"]:
                return meta
            if name == "__dict__":
                return self.new(o.__dict__) if self.is_fresh(o) else self.pin(o.__dict__, self.path(o))
            if not heap_class(o) and issubclass(
                type(above), (types.GetSetDescriptorType, types.MemberDescriptorType)
            ):
                value = getattr(o, name)  # which never changes
                return value if self.source(value) or type(value) in ATOMS else self.pin(value)
            return self.bound(above, o, meta, name)
        held = self.class_attribute(o, name)
        if held is not MISSING:
            return self.bound(held, None, o, name)
        if above is not MISSING:
            return self.bound(above, o, meta, name)
        return type.__getattribute__(o, name)  # which raises

    def _of_method(self, o: types.MethodType, name: str) -> Any:
        """A bound method has its function's attributes."""
        if name == "__self__":
            return o.__self__
        if name == "__func__":
            return o.__func__
        if lookup(Method, name) is not MISSING and name != "__doc__":
            return self.made(getattr(o, name))
        return self._attribute(o.__func__, name)

    def super_attribute(self, o: Any, name: str) -> Any:
        """`super().name`.  Raises AttributeError."""
        if self.refused or name == "__class__" or o.__self_class__ is None:
            if o.__self_class__ is None:
                self.refuse("a super() that is bound to nothing")
            return getattr(o, name)
        if not self.is_fresh(o) and not (self.is_known(o) and self.captured(o)):
            self.refuse("a super() from outside")
            return getattr(o, name)
        start, me = o.__self_class__, o.__self__
        if not issubclass(type(me), type):
            self.class_of(me)
        self.bases(start)
        order = start.__mro__
        for base in order[order.index(o.__thisclass__) + 1 :]:
            held = self.of_base(base, name)
            if held is not MISSING:
                return self.bound(held, None if me is start else me, start, name)
        return getattr(o, name)

    def _absent_in_scope(self, scope: dict[str, Any], name: str) -> None:
        self.name_globals(scope)
        if not self.written.has(scope, "item", name):
            self.fact(scope, "in", name, f"({self.word(name)} in {{o}})", False)
