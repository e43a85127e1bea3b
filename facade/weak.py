"""Tables of weakly held keys, told apart by what they are, as tensors are compared element by element."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from copy import deepcopy
from typing import Any

from ..runtime import Tensor

__all__ = ["TensorWeakRef", "WeakIdKeyDictionary", "WeakIdRef", "WeakTensorKeyDictionary"]


class WeakIdRef(weakref.ref):
    """A weak reference that equals those to the same object, and has a hash though the object has none."""

    __slots__ = ("_id",)

    def __init__(self, key: Any, callback: Any = None):
        super().__init__(key, callback)  # type: ignore[call-arg]
        self._id = id(key)

    def __hash__(self) -> int:
        return self._id

    def __eq__(self, other: object) -> bool:
        mine, theirs = self(), other() if isinstance(other, weakref.ref) else None
        return mine is theirs if mine is not None and theirs is not None else self is other


class WeakIdKeyDictionary(MutableMapping):
    """A table whose entries go with their keys, which are told apart by identity.

    dict: a mapping, or pairs, to begin with.  ref_type: the class of its references.
    """

    def __init__(self, dict: Any = None, ref_type: Any = WeakIdRef):
        self.data: Any = {}
        self.ref_type = ref_type
        own = weakref.ref(self)

        def remove(key: Any) -> None:
            if (table := own()) is not None:
                table.data.pop(key, None)

        self._remove = remove
        if dict is not None:
            self.update(dict)

    def __getitem__(self, key: Any) -> Any:
        return self.data[self.ref_type(key)]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[self.ref_type(key, self._remove)] = value

    def __delitem__(self, key: Any) -> None:
        del self.data[self.ref_type(key)]

    def __iter__(self) -> Iterator[Any]:
        for reference in [*self.data]:
            if (key := reference()) is not None:
                yield key

    def __len__(self) -> int:
        return len(self.data)

    def __contains__(self, key: object) -> bool:
        try:
            return self.ref_type(key) in self.data
        except TypeError:  # of which there are no weak references
            return False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}>"

    def keyrefs(self) -> list[Any]:
        """The weak references to the keys, of which some may be dead by the time that they are asked."""
        return [*self.data]

    def copy(self) -> WeakIdKeyDictionary:
        """Another table of the same entries."""
        made = type(self)(None, self.ref_type)
        for key, value in self.items():
            made[key] = value
        return made

    __copy__ = copy

    def __deepcopy__(self, memo: dict) -> WeakIdKeyDictionary:
        made = self.copy()
        for key, value in self.items():
            made[key] = deepcopy(value, memo)
        return made

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> Any:
        if not isinstance(other, Mapping):
            return NotImplemented
        made = type(self)()
        made.update(other)
        made.update(self)
        return made

    def __ior__(self, other: Mapping | Iterable) -> WeakIdKeyDictionary:  # type: ignore[misc]
        self.update(other)
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {id(k): v for k, v in self.items()} == {id(k): v for k, v in other.items()}

    __hash__ = None  # type: ignore[assignment]


WeakTensorKeyDictionary = WeakIdKeyDictionary


class TensorWeakRef:
    """A weak reference to a tensor."""

    __slots__ = ("ref",)

    def __init__(self, tensor: Tensor):
        self.ref = weakref.ref(tensor)

    def __call__(self) -> Tensor | None:
        return self.ref()
