"""Answer `torch.utils._pytree`: containers of containers, taken apart and made again, mapped leaf by leaf."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from ..ir.errors import ArgumentValueError
from ..runtime import trees
from ..runtime.tensor import Size

Context: TypeAlias = Any
PyTree: TypeAlias = Any


class NodeDef(NamedTuple):
    """How a class is taken apart, to its items and what else there is to it, and made again of both."""

    type: Any
    flatten_fn: Callable[[Any], tuple[Any, Context]]
    unflatten_fn: Callable[[Any, Context], Any]


def _values(x: Any) -> tuple[list[Any], Context]:
    return list(x.values()), list(x)


def _dict_unflatten(values: Any, context: Context) -> dict:
    return dict(zip(context, values, strict=True))


# By class, as libraries look it up; named tuples of all classes by the function that makes such classes.
SUPPORTED_NODES: dict[Any, NodeDef] = {
    node.type: node
    for node in (
        NodeDef(tuple, lambda x: (list(x), None), lambda items, _: tuple(items)),
        NodeDef(list, lambda x: (x, None), lambda items, _: list(items)),
        NodeDef(dict, _values, _dict_unflatten),
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

    flatten_fn: the object's items, and a context that `unflatten_fn` makes it again with.  The others are
    for writing and naming structures, which is not done here.  Raises ArgumentValueError for a class that
    is a container already.
    """
    if cls in SUPPORTED_NODES:
        raise ArgumentValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn)
    trees.REGISTERED[cls] = flatten_fn, unflatten_fn


_register_pytree_node = register_pytree_node


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


_dict_flatten = _values  # by the names that transformers asks for


def _dict_flatten_with_keys(d: dict) -> tuple[list[tuple[MappingKey, Any]], Context]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


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
    """The container with `func` of each leaf, and of those at its place in further containers."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
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


def tree_map_only(kind: Any, func: Callable, tree: PyTree) -> PyTree:
    """The container with `func` of the leaves that are of a class, or of which a function says so."""
    return tree_map(_only(kind, func), tree)


def tree_all(pred: Callable, tree: PyTree) -> bool:
    """Whether `pred` holds of all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable, tree: PyTree) -> bool:
    """Whether `pred` holds of a leaf."""
    return any(map(pred, tree_leaves(tree)))


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


def tree_flatten_with_path(tree: PyTree) -> tuple[list[tuple[tuple, Any]], TreeSpec]:
    """The leaves of a container, each with the keys that lead to it, and its structure."""
    found: list[tuple[tuple, Any]] = []

    def walk(x: Any, path: tuple) -> None:
        if _is_leaf(x):
            found.append((path, x))
            return
        node = SUPPORTED_NODES[_get_node_type(x)]
        items, context = node.flatten_fn(x)
        for key, item in zip(_keys(x, items), items, strict=True):
            walk(item, (*path, key))

    walk(tree, ())
    return found, tree_structure(tree)


def _keys(x: Any, items: Sequence[Any]) -> list[Any]:
    if isinstance(x, dict):
        return [MappingKey(key) for key in x]
    if _get_node_type(x) is namedtuple:
        return [GetAttrKey(name) for name in x._fields]
    return [SequenceKey(k) for k in range(len(items))]


def keystr(kp: tuple) -> str:
    """The keys that lead to a leaf, as one writes them: "['x'][0]"."""
    return "".join(map(str, kp))
