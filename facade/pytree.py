"""Answer `torch.utils._pytree`: containers of containers, taken apart and made again, mapped leaf by leaf."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, TypeAlias

from ..ir.errors import ArgumentValueError
from ..runtime import trees
from ..runtime.tensor import Size

Context: TypeAlias = Any
PyTree: TypeAlias = Any


class NodeDef(NamedTuple):
    """How a class is taken apart, to its items and what else there is to it, and made again of both.

    flatten_with_keys_fn: the items with the keys that lead to them, where a class says it.
    """

    type: Any
    flatten_fn: Callable[[Any], tuple[Any, Context]]
    unflatten_fn: Callable[[Any, Context], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Context]] | None = None


def _values(x: Any) -> tuple[list[Any], Context]:
    return list(x.values()), list(x)


_DICTS = (dict, OrderedDict, defaultdict)  # which stand for one another where keys are the same
# By class, as libraries look it up; named tuples of all classes by the function that makes such classes.
SUPPORTED_NODES: dict[Any, NodeDef] = {
    node.type: node
    for node in (
        NodeDef(tuple, lambda x: (list(x), None), lambda items, _: tuple(items)),
        NodeDef(list, lambda x: (x, None), lambda items, _: list(items)),
        NodeDef(dict, _values, lambda items, keys: dict(zip(keys, items, strict=True))),
        NodeDef(namedtuple, lambda x: (list(x), type(x)), lambda items, kind: kind(*items)),
        NodeDef(OrderedDict, _values, lambda items, keys: OrderedDict(zip(keys, items, strict=True))),
        NodeDef(
            defaultdict,
            lambda x: (list(x.values()), [x.default_factory, list(x)]),
            lambda items, of: defaultdict(of[0], zip(of[1], items, strict=True)),
        ),
        NodeDef(Size, lambda x: (list(x), None), lambda items, _: tuple(items)),
        NodeDef(deque, lambda x: (list(x), x.maxlen), deque),
    )
}


def register_pytree_node(
    cls: type, flatten_fn: Callable[[Any], tuple[Any, Context]], unflatten_fn: Callable[[Any, Context], Any],
    *, serialized_type_name: str | None = None, to_dumpable_context: Any = None,
    from_dumpable_context: Any = None, flatten_with_keys_fn: Any = None,
) -> None:  # fmt: skip
    """Have a class taken apart as containers are: here, and by the transforms of `func`.

    flatten_fn: the object's items, and a context that `unflatten_fn` makes it again with.
    flatten_with_keys_fn: the items with keys.  The others are for writing structures, which is not done here.
    Raises ArgumentValueError for a class that is a container already.
    """
    if cls in SUPPORTED_NODES:
        raise ArgumentValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)
    trees.REGISTERED[cls] = flatten_fn, unflatten_fn


_register_pytree_node = register_pytree_node


def register_dataclass(
    cls: type, *, field_names: list[str] | None = None, drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> None:  # fmt: skip
    """Have a dataclass taken apart to its fields, and made again of them by name.

    field_names: those that hold data; all that `__init__` takes, unless given.  drop_field_names: those of
    them that `field_names` leaves out.  Raises ArgumentValueError where the names are not all.
    """
    known = [f.name for f in fields(cls) if f.init] if is_dataclass(cls) else field_names
    names = known if field_names is None else field_names
    if known is None or names is None:
        raise ArgumentValueError(f"register_dataclass: {cls.__name__} is no dataclass: pass field_names=")
    if names is not known and {*names} != {*known} - {*(drop_field_names or ())}:
        raise ArgumentValueError(
            f"register_dataclass(field_names): {cls.__name__} has {', '.join(known)}: name each, or drop it"
        )

    def flatten(x: Any) -> tuple[list[Any], Context]:
        held = [name for name in names if getattr(x, name) is not None]  # of others there is nothing
        return [getattr(x, name) for name in held], [held, [name for name in names if name not in held]]

    def with_keys(x: Any) -> tuple[list[tuple[Any, Any]], Context]:
        values, context = flatten(x)
        return [(GetAttrKey(name), value) for name, value in zip(context[0], values, strict=True)], context

    def unflatten(values: Iterable[Any], context: Context) -> Any:
        return cls(**dict(zip(context[0], values, strict=True)), **dict.fromkeys(context[1]))

    register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=with_keys)


class MappingKey(NamedTuple):
    """A place in a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """What stands there."""
        return mapping[self.key]


class SequenceKey(NamedTuple):
    """A place in a list or a tuple."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """What stands there."""
        return sequence[self.idx]


class GetAttrKey(NamedTuple):
    """A place in a named tuple."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, object: Any) -> Any:
        """What stands there."""
        return getattr(object, self.name)


class TreeSpec:
    """The structure around leaves: a container's class, what else there is to it, and its items' structures.

    Of a leaf all three are None, None and ().
    """

    def __init__(self, type: Any, context: Context, children_specs: Iterable[TreeSpec]):
        self.type, self.context, self.children_specs = type, context, list(children_specs)
        self.num_children = len(self.children_specs)
        self.num_leaves = sum(child.num_leaves for child in self.children_specs) if type is not None else 1
        self.num_nodes = 1 + sum(child.num_nodes for child in self.children_specs)

    def is_leaf(self) -> bool:
        """Whether it is a leaf's."""
        return self.type is None

    def unflatten(self, leaves: Iterable[Any]) -> PyTree:
        """The container around these leaves."""
        return tree_unflatten(leaves, self)

    def flatten_up_to(self, tree: PyTree) -> list[Any]:
        """What a container holds at the places of the leaves.  Raises ArgumentValueError for another one."""
        if self.is_leaf():
            return [tree]
        kind = _get_node_type(tree)
        if kind not in SUPPORTED_NODES:
            raise ArgumentValueError(
                f"a {self.type.__name__} is wanted, not a {type(tree).__name__}: {tree!r}"
            )
        items, context = SUPPORTED_NODES[kind].flatten_fn(tree)
        both_dicts = all(each in _DICTS for each in (kind, self.type))
        if kind is not self.type and not both_dicts:
            raise ArgumentValueError(
                f"Node type mismatch: a {self.type.__name__} is wanted, not a {kind.__name__}"
            )
        if both_dicts:
            keys = self.context[1] if self.type is defaultdict else self.context
            if {*keys} != {*tree}:
                raise ArgumentValueError(f"Node keys mismatch: {list(keys)} and {list(tree)}")
            items = [tree[key] for key in keys]
        elif len(items) != self.num_children:
            raise ArgumentValueError(
                f"Node arity mismatch: {self.num_children} items are wanted, not {len(items)}"
            )
        elif context != self.context and kind is not deque:  # whose length at most may differ
            raise ArgumentValueError(
                f"Node context mismatch for {kind.__name__}: {self.context!r} and {context!r}"
            )
        return [x for spec, item in zip(self.children_specs, items) for x in spec.flatten_up_to(item)]

    def _key(self) -> tuple:
        return self.type, self.context, self.children_specs

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, TreeSpec) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_nodes))

    def __repr__(self) -> str:
        if self.is_leaf():
            return "*"
        name = getattr(self.type, "__name__", self.type)
        return f"TreeSpec({name}, {self.context!r}, {self.children_specs!r})"


class LeafSpec(TreeSpec):
    """A leaf's structure."""

    def __init__(self) -> None:
        super().__init__(None, None, ())


def _get_node_type(tree: Any) -> Any:
    kind = type(tree)
    if kind not in SUPPORTED_NODES and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return namedtuple
    return kind


def _is_leaf(tree: Any) -> bool:
    return _get_node_type(tree) not in SUPPORTED_NODES


def tree_flatten(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a container, and its structure.

    is_leaf: says of a container that it is to be a leaf, too.
    """
    leaves: list[Any] = []

    def walk(x: Any) -> TreeSpec:
        node = SUPPORTED_NODES.get(_get_node_type(x))
        if node is None or (is_leaf is not None and is_leaf(x)):
            leaves.append(x)
            return LeafSpec()
        items, context = node.flatten_fn(x)
        return TreeSpec(node.type, context, [walk(item) for item in items])

    return leaves, walk(tree)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> PyTree:
    """The container of that structure around as many leaves.  Raises ArgumentValueError for others."""
    given = list(leaves)
    if len(given) != treespec.num_leaves:
        raise ArgumentValueError(
            f"tree_unflatten(leaves, treespec): {len(given)} leaves, and a structure of {treespec.num_leaves}"
        )
    rest = iter(given)

    def build(spec: TreeSpec) -> Any:
        if spec.is_leaf():
            return next(rest)
        return SUPPORTED_NODES[spec.type].unflatten_fn([build(x) for x in spec.children_specs], spec.context)

    return build(treespec)


def tree_leaves(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> list[Any]:
    """The leaves of a container."""
    return tree_flatten(tree, is_leaf)[0]


tree_iter = tree_leaves


def tree_structure(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> TreeSpec:
    """The structure of a container."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(
    func: Callable, tree: PyTree, *rests: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """The container with `func` of each leaf, and of what stands at its place in further containers.

    Raises ArgumentValueError where these are built otherwise.
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(*of) for of in zip(leaves, *others, strict=True)], spec)


def tree_map_(
    func: Callable, tree: PyTree, *rests: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """Call `func` with each leaf, and return the container itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(kind: Any, func: Callable) -> Callable[[Any], Any]:
    wanted = kind if callable(kind) and not isinstance(kind, type) else lambda x: isinstance(x, kind)
    return lambda x: func(x) if wanted(x) else x


def map_only(kind: Any, /) -> Callable[[Callable], Callable[[Any], Any]]:
    """What makes of a function one that leaves alone what is not of a class, or of which `kind` says no."""
    return lambda func: _only(kind, func)


def tree_map_only(
    kind: Any, /, func: Callable, tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """The container with `func` of the leaves that are of a class, or of which a function says so."""
    return tree_map(_only(kind, func), tree, is_leaf=is_leaf)


def tree_map_only_(
    kind: Any, /, func: Callable, tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """Call `func` with those leaves, and return the container itself."""
    return tree_map_(_only(kind, func), tree, is_leaf=is_leaf)


def tree_all(pred: Callable, tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> bool:
    """Whether `pred` holds of all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable, tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> bool:
    """Whether `pred` holds of a leaf."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(
    kind: Any, /, pred: Callable, tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> bool:
    """Whether `pred` holds of all leaves of a class."""
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, kind))


def tree_any_only(
    kind: Any, /, pred: Callable, tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> bool:
    """Whether `pred` holds of a leaf of a class."""
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if isinstance(x, kind))


def tree_is_leaf(tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None) -> bool:
    """Whether this is no container, or `is_leaf` says so."""
    return is_leaf is not None and is_leaf(tree) or _is_leaf(tree)


def arg_tree_leaves(*args: PyTree, **kwargs: PyTree) -> list[Any]:
    """The leaves of a call's arguments."""
    return tree_leaves((args, kwargs))


def is_namedtuple_class(cls: Any) -> bool:
    """Whether a class is of named tuples."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_namedtuple_instance(obj: Any) -> bool:
    """Whether this is a named tuple."""
    return is_namedtuple_class(type(obj))


def is_namedtuple(obj: Any) -> bool:
    """Whether this is a named tuple, or a class of such."""
    return is_namedtuple_class(obj) or is_namedtuple_instance(obj)


def _broadcast_to_and_flatten(
    tree: PyTree, treespec: TreeSpec, is_leaf: Callable[[PyTree], bool] | None = None
) -> list[Any] | None:
    """A leaf for each of a structure, that of the container above it; None where both are built otherwise."""
    if tree_is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _get_node_type(tree)
    if treespec.is_leaf() or kind is not treespec.type:
        return None
    items, context = SUPPORTED_NODES[kind].flatten_fn(tree)
    if len(items) != treespec.num_children or context != treespec.context:
        return None
    found: list[Any] = []
    for item, spec in zip(items, treespec.children_specs):
        part = _broadcast_to_and_flatten(item, spec, is_leaf)
        if part is None:
            return None
        found += part
    return found


def treespec_leaf() -> TreeSpec:
    """A leaf's structure."""
    return LeafSpec()


def treespec_tuple(iterable: Iterable[TreeSpec] = ()) -> TreeSpec:
    """The structure of a tuple of these."""
    return TreeSpec(tuple, None, iterable)


def treespec_pprint(treespec: TreeSpec) -> str:
    """The structure, to be read."""
    return repr(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


class _Star:
    def __repr__(self) -> str:
        return "*"


def tree_flatten_with_path(
    tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> tuple[list[tuple[tuple, Any]], TreeSpec]:
    """The leaves of a container, each with the keys that lead to it, and its structure."""
    found: list[tuple[tuple, Any]] = []

    def walk(x: Any, path: tuple) -> None:
        if tree_is_leaf(x, is_leaf):
            found.append((path, x))
            return
        node = SUPPORTED_NODES[_get_node_type(x)]
        for key, item in (node.flatten_with_keys_fn or _flatten_with_keys)(x)[0]:
            walk(item, (*path, key))

    walk(tree, ())
    return found, tree_structure(tree, is_leaf)


def tree_leaves_with_path(
    tree: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> list[tuple[tuple, Any]]:
    """The leaves of a container, each with the keys that lead to it."""
    return tree_flatten_with_path(tree, is_leaf)[0]


def tree_map_with_path(
    func: Callable, tree: PyTree, *rests: PyTree, is_leaf: Callable[[PyTree], bool] | None = None
) -> PyTree:
    """The container with `func` of the keys and of each leaf, and of what stands at its place in others."""
    found, spec = tree_flatten_with_path(tree, is_leaf)
    others = [spec.flatten_up_to(rest) for rest in rests]
    return tree_unflatten([func(*leaf, *of) for leaf, *of in zip(found, *others, strict=True)], spec)


def key_get(obj: Any, kp: tuple) -> Any:
    """What the keys lead to."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _keys(x: Any, items: Sequence[Any]) -> list[Any]:
    if isinstance(x, dict):
        return [MappingKey(key) for key in x]
    if _get_node_type(x) is namedtuple:
        return [GetAttrKey(name) for name in x._fields]
    return [SequenceKey(k) for k in range(len(items))]


def _flatten_with_keys(x: Any) -> tuple[list[tuple[Any, Any]], Context]:
    items, context = SUPPORTED_NODES[_get_node_type(x)].flatten_fn(x)
    return list(zip(_keys(x, items), items, strict=True)), context


for _node in SUPPORTED_NODES.values():  # by the names that libraries register their own classes with
    _name = _node.type.__name__.lower()
    globals()[f"_{_name}_flatten"], globals()[f"_{_name}_unflatten"] = _node.flatten_fn, _node.unflatten_fn
    globals()[f"_{_name}_flatten_with_keys"] = _flatten_with_keys


def keystr(kp: tuple) -> str:
    """The keys that lead to a leaf, as one writes them: "['x'][0]"."""
    return "".join(map(str, kp))
