"""Modules that hold modules or parameters: in sequence, in a list, in a dictionary."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, DimError
from ..runtime import Parameter, Tensor
from .module import Module, no_child
from .text import framed, indented


def _at(container: Any, index: Any, size: int) -> int:
    """A position from the front.  Raises DimError where there is none."""
    found = index.__index__()
    if not -size <= found < size:
        raise DimError(f"{type(container).__name__} has {size} items: there is no index {found}")
    return found % size


class _Numbered(Module):
    """Children under the names "0", "1", ..."""

    def _refill(self, children: Iterable[Module | None]) -> None:
        found = list(children)
        self._modules.clear()
        for i, child in enumerate(found):
            self.add_module(str(i), child)

    def _get_abs_string_index(self, idx: int) -> str:
        """The name of the child at a position, which may count from the end.  Raises DimError."""
        return str(_at(self, idx, len(self._modules)))

    def _get_item_by_idx(self, iterator: Iterable[Any], idx: int) -> Any:
        """The item of an iterator at a child's position, which may count from the end.  Raises DimError."""
        return next(islice(iterator, _at(self, idx, len(self._modules)), None))

    def __getitem__(self, idx: Any) -> Any:
        found = list(self._modules.items())
        if isinstance(idx, slice):
            return self._part(found[idx])
        return found[_at(self, idx, len(found))][1]

    def _part(self, items: list[tuple[str, Any]]) -> Any:
        return type(self)([child for _, child in items])

    def __setitem__(self, idx: Any, module: Module) -> None:
        names = list(self._modules)
        setattr(self, names[_at(self, idx, len(names))], module)

    def __delitem__(self, idx: Any) -> None:
        children = list(self._modules.values())
        del children[idx if isinstance(idx, slice) else _at(self, idx, len(children))]
        self._refill(children)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._modules.values())

    def __contains__(self, module: object) -> bool:
        return any(module is child for child in self._modules.values())

    def __dir__(self) -> list[str]:
        return [name for name in Module.__dir__(self) if not name.isdigit()]

    def append(self, module: Module) -> Any:
        """Add a module at the end; return the container."""
        self.add_module(str(len(self)), module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before position `index`; return the container."""
        children = list(self._modules.values())
        if not -len(children) <= index <= len(children):
            raise DimError(
                f"{type(self).__name__} has {len(children)} items: nothing can be inserted at {index}"
            )
        children.insert(index, module)
        self._refill(children)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end; return the container."""
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, index: int | slice = -1) -> Any:
        """Take the module at `index` out and return it."""
        found = self[index]
        del self[index]
        return found


def _times(count: Any) -> int:
    """How many times modules are to stand after each other.  Raises ArgumentError, ArgumentValueError."""
    if not isinstance(count, int):
        raise ArgumentError(f"Sequential * n: n must be an int, not {type(count).__name__}")
    if count < 1:
        raise ArgumentValueError(f"Sequential * n: n must be positive, not {count}")
    return count


class Sequential(_Numbered):
    """Modules applied one after the other: `Sequential(a, b)(x)` is `b(a(x))`.

    Takes modules, or one dictionary of names and modules.
    """

    def __init__(self, *args: Any):
        super().__init__()
        named = len(args) == 1 and isinstance(args[0], Mapping)
        for name, module in args[0].items() if named else enumerate(args):
            self.add_module(str(name), module)

    def _part(self, items: list[tuple[str, Any]]) -> Sequential:
        return type(self)(dict(items))

    def __delitem__(self, idx: Any) -> None:
        names = list(self._modules)
        kept = isinstance(idx, slice)
        for name in names[idx] if kept else [names[_at(self, idx, len(names))]]:
            del self._modules[name]
        if all(name.isdigit() for name in names):
            self._refill(list(self._modules.values()))

    def insert(self, index: int, module: Module) -> Sequential:
        """Add a module before position `index`; return the container."""
        if not isinstance(module, Module):
            raise no_child(module, str(index))
        return super().insert(index, module)

    def __add__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ArgumentError(f"Sequential + other: other must be a Sequential, not {type(other).__name__}")
        return Sequential(*self, *other)

    def __mul__(self, other: int) -> Sequential:
        """The same modules over again: `Sequential(a, b) * 2` is `Sequential(a, b, a, b)`."""
        return Sequential(*[module for _ in range(_times(other)) for module in self])

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Sequential:
        modules = list(self)
        for _ in range(_times(other) - 1):
            self.extend(modules)
        return self

    def __iadd__(self, other: Any) -> Sequential:
        if not isinstance(other, Sequential):
            raise ArgumentError(
                f"Sequential += other: other must be a Sequential, not {type(other).__name__}"
            )
        return self.extend(other)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Numbered):
    """A list whose items are registered as child modules."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __iadd__(self, other: Iterable[Module]) -> ModuleList:
        return self.extend(other)

    def __repr__(self) -> str:
        groups: list[tuple[int, int, str]] = []
        for i, child in enumerate(self):
            text = repr(child)
            if groups and groups[-1][2] == text:
                groups[-1] = (groups[-1][0], i, text)
            else:
                groups.append((i, i, text))
        lines = [
            f"({first}): {indented(text)}"
            if first == last
            else f"({first}-{last}): {last - first + 1} x {indented(text)}"
            for first, last, text in groups
        ]
        return framed(self._get_name(), self.extra_repr(), lines)


class ModuleDict(Module):
    """A dictionary, in order of insertion, whose values are registered as child modules."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module | None:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take all modules out."""
        self._modules.clear()

    def pop(self, key: str) -> Module | None:
        """Take the module at `key` out and return it."""
        return self._modules.pop(key)

    def keys(self) -> Any:
        """The keys."""
        return self._modules.keys()

    def items(self) -> Any:
        """Pairs of key and module."""
        return self._modules.items()

    def values(self) -> Any:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules, or replace those whose keys are there."""
        for key, module in dict(modules).items():
            self[key] = module


def _entry(value: Any) -> Any:
    """A tensor as a parameter; anything else as it is."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(name: Any, value: Any, kind_of: Callable[[Tensor], Any] = lambda x: x.dtype) -> str:
    if not isinstance(value, Tensor):
        return f"  ({name}): Object of type: {type(value).__name__}"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    sizes = "x".join(str(n) for n in value.shape)
    return f"  ({name}): {kind} containing: [{kind_of(value)} of size {sizes}]"


class ParameterList(Module):
    """A list whose tensors are registered as parameters; it may hold other things too."""

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __getitem__(self, idx: Any) -> Any:
        if isinstance(idx, slice):
            return type(self)([getattr(self, str(i)) for i in range(self._size)[idx]])
        return getattr(self, str(_at(self, idx, self._size)))

    def __setitem__(self, idx: Any, value: Any) -> None:
        setattr(self, str(_at(self, idx, self._size)), _entry(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([getattr(self, str(i)) for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def append(self, value: Any) -> ParameterList:
        """Add a value at the end; return the list."""
        setattr(self, str(self._size), _entry(value))
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add values at the end; return the list."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise ArgumentError(
                f"ParameterList.extend: an iterable of values is wanted, not {type(values).__name__}"
            )
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_line(i, value) for i, value in enumerate(self))


class ParameterDict(Module):
    """A dictionary, in order of insertion, whose tensors are registered as parameters."""

    def __init__(self, parameters: Any = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if key not in self._keys:
            self._check_name("parameter", self._parameters, key)
        self._keys = {**self._keys, key: None}
        setattr(self, key, _entry(value))

    def __delitem__(self, key: str) -> None:
        if key not in self._keys:
            raise KeyError(key)
        self._keys = {other: None for other in self._keys if other != key}
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __or__(self, other: Any) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> ParameterDict:
        made = ParameterDict([*other.items()])
        made.update(self)
        return made

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Another dictionary, of these keys, with `default` under each."""
        return ParameterDict([(key, default) for key in keys])

    def copy(self) -> ParameterDict:
        """Another dictionary of the same values."""
        return ParameterDict([*self.items()])

    def get(self, key: str, default: Any = None) -> Any:
        """The value at `key`, or `default`."""
        return self[key] if key in self else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value at `key`, after storing `default` there if there was none."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Take the value at `key` out and return it."""
        found = self[key]
        del self[key]
        return found

    def popitem(self) -> tuple[str, Any]:
        """Take the newest pair out and return it."""
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Take all values out."""
        for key in list(self):
            del self[key]

    def keys(self) -> Any:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Pairs of key and value."""
        return [(key, self[key]) for key in self]

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self[key] for key in self]

    def update(self, parameters: Any) -> None:
        """Add values, or replace those whose keys are there: those of a mapping without an order by key."""
        items = parameters.items() if hasattr(parameters, "items") else parameters
        if not isinstance(items, Iterable):
            raise ArgumentError(
                "ParameterDict.update should be called with an iterable of key/value pairs, but got "
                f"{type(parameters).__name__}"
            )
        if isinstance(parameters, Mapping) and not isinstance(parameters, OrderedDict):
            items = sorted(items)
        for i, pair in enumerate(list(items)):
            if not isinstance(pair, Iterable):
                raise ArgumentError(
                    f"ParameterDict update sequence element #{i} should be Iterable; is {type(pair).__name__}"
                )
            found = list(pair)
            if len(found) != 2:
                raise ArgumentValueError(
                    f"ParameterDict update sequence element #{i} has length {len(found)}; 2 is required"
                )
            self[found[0]] = found[1]

    def extra_repr(self) -> str:
        return "\n".join(_line(key, value, lambda x: x.type()) for key, value in self.items())
