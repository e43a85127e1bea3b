"""Lists and dictionaries that a node holds: nobody changes them behind the back of the nodes they name."""

from __future__ import annotations

from typing import Any, NoReturn

from ..facade.pytree import register_pytree_node


def _refuse(self: Any, *_: Any, **__: Any) -> NoReturn:
    raise NotImplementedError(
        f"'{type(self).__name__}' object does not support mutation: it belongs to a node, whose users are "
        "counted; assign a changed copy, node.args = (…)"
    )


class immutable_list(list):
    """A list that can't be changed, and hashes as a tuple does."""

    __delitem__ = __iadd__ = __imul__ = __setitem__ = append = clear = extend = insert = pop = remove = (
        _refuse
    )
    reverse = sort = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> tuple:
        return immutable_list, (tuple(self),)


class immutable_dict(dict):
    """A dictionary that can't be changed, and hashes as its items do."""

    __delitem__ = __ior__ = __setitem__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple:
        return immutable_dict, (tuple(self.items()),)


register_pytree_node(immutable_list, lambda x: (list(x), None), lambda items, _: immutable_list(items))
register_pytree_node(
    immutable_dict,
    lambda x: (list(x.values()), list(x)),
    lambda items, keys: immutable_dict(zip(keys, items, strict=True)),
)
