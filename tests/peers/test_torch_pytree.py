"""Containers taken apart and made again, as PyTorch's `torch.utils._pytree` does."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

from lamina import Size
from lamina.facade import pytree as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("torch.utils._pytree")
Point = namedtuple("Point", "x y")
TREES = [
    1, None, (), [], {}, (1, [2, {"a": 3, "b": None}]), Point(1, (2, 3)), [Point([], {})], deque([1, 2], 5),
    OrderedDict(b=1, a=[2]), defaultdict(list, a=[1, 2]), {"x": "text", 3: (b"bytes", 4.5)},
    [[[[1]]], [2], 3], {"k": deque([Point(1, 2)])},
]  # fmt: skip


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_as_pytorch_takes_them_apart(tree):
    leaves, spec = ours.tree_flatten(tree)
    expected, wanted = theirs.tree_flatten(tree)
    assert leaves == expected
    assert (spec.num_leaves, spec.num_nodes, spec.num_children) == (
        wanted.num_leaves, wanted.num_nodes, wanted.num_children,
    )  # fmt: skip
    assert spec.type == wanted.type and spec.is_leaf() == wanted.is_leaf()
    again = ours.tree_unflatten(leaves, spec)
    assert again == tree and type(again) is type(theirs.tree_unflatten(expected, wanted))
    assert ours.tree_structure(again) == spec and hash(ours.tree_structure(again)) == hash(spec)
    assert ours.tree_map(str, tree) == theirs.tree_map(str, tree)
    assert ours.tree_map_only(int, float, tree) == theirs.tree_map_only(int, float, tree)
    paths = [(ours.keystr(path), leaf) for path, leaf in ours.tree_flatten_with_path(tree)[0]]
    assert paths == [(theirs.keystr(path), leaf) for path, leaf in theirs.tree_flatten_with_path(tree)[0]]
    assert ours.treespec_pprint(spec) == theirs.treespec_pprint(wanted)


KINDS = {
    "tuple": (1, 2), "list": [1, 2], "dict": {"a": 1}, "namedtuple": Point(1, 2), "deque": deque([1], 3),
    "ordereddict": OrderedDict(b=1), "defaultdict": defaultdict(list, a=[1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_functions_by_the_names_of_containers(kind):
    told = []
    for module in (theirs, ours):
        items, context = getattr(module, f"_{kind}_flatten")(KINDS[kind])
        again = getattr(module, f"_{kind}_unflatten")(items, context)
        keyed, same = getattr(module, f"_{kind}_flatten_with_keys")(KINDS[kind])
        told.append((items, again, type(again), [(str(key), x) for key, x in keyed], context == same))
    assert told[0] == told[1]


def test_sizes_are_containers_too():
    for module, size in ((ours, Size([2, 3])), (theirs, torch.Size([2, 3]))):
        leaves, spec = module.tree_flatten([size])
        assert leaves == [2, 3] and type(module.tree_unflatten(leaves, spec)[0]) is tuple


def test_what_is_to_be_a_leaf():
    def of_two(x):
        return isinstance(x, tuple) and len(x) == 2

    tree = [(1, 2), (3, 4, [(5, 6)])]
    assert ours.tree_leaves(tree, of_two) == theirs.tree_leaves(tree, of_two) == [(1, 2), 3, 4, (5, 6)]
    assert ours.tree_structure(tree) != ours.tree_structure(tree, of_two)


def test_leaves_must_be_as_many():
    for module in (ours, theirs):
        with pytest.raises(ValueError):
            module.tree_unflatten([1, 2], module.tree_structure([1]))


BESIDE = [
    ([1, 2], [3, (4, 5)]), ([1, 2], (3, 4)), ([1, 2], [3]), ({"a": 1, "b": 2}, {"b": 3, "a": [4]}),
    ({"a": 1}, {"c": 1}), (Point(1, 2), Point(3, 4)), (Point(1, 2), (3, 4)), (1, [1, 2]), ([], []),
    ([[1]], [2]), (deque([1, 2], 5), deque([3, 4])), (OrderedDict(a=1, b=2), {"b": 1, "a": 2}),
    ((1, None), (2, {"x": 1})), (defaultdict(list, a=1), {"a": 2}),
]  # fmt: skip


@pytest.mark.parametrize("tree, other", BESIDE, ids=repr)
def test_containers_beside_another(tree, other):
    found = []
    for module in (ours, theirs):
        try:
            mapped = module.tree_map(lambda *of: of, tree, other)
            found.append(mapped)
            found.append(module.tree_map_with_path(lambda kp, *of: (len(kp), of), tree, other))
        except ValueError:
            found += ["refused", "refused"]
    assert found[:2] == found[2:]


def test_more_of_leaves():
    tree = {"a": [1, 2.0], "b": (3, "x")}
    for module in (ours, theirs):
        assert module.tree_all_only(int, lambda x: x > 0, tree) and not module.tree_any_only(
            int, bool, [0, "x"]
        )
        assert module.tree_leaves_with_path([5])[0][1] == 5 and module.arg_tree_leaves(1, a=[2]) == [1, 2]
        path = module.tree_flatten_with_path(tree)[0][3][0]
        assert module.key_get(tree, path) == "x" and module.tree_is_leaf(3) and not module.tree_is_leaf([3])
        assert module.is_namedtuple(Point) and module.is_namedtuple_instance(Point(1, 2))
        spec = module.tree_structure([0, [0, 0], 0])
        assert module._broadcast_to_and_flatten(1, spec) == [1] * 4
        assert module._broadcast_to_and_flatten([1, 2, 3], spec) == [1, 2, 2, 3]
        assert module._broadcast_to_and_flatten([1, 2], spec) is None
        seen = []
        assert module.tree_map_only_(int, seen.append, tree) is tree and seen == [1, 3]
        assert module.map_only(int)(str)(3) == "3"


def test_dataclasses_are_containers_once_registered():
    found = []
    for module in (ours, theirs):

        @dataclasses.dataclass
        class Batch:
            x: object
            y: object = None
            note: str = "kept"

        module.register_dataclass(Batch, drop_field_names=["note"])
        leaves, spec = module.tree_flatten([Batch(1, 2), Batch([3])])
        again = module.tree_unflatten(leaves, spec)
        paths = [
            module.keystr(path) for path, _ in module.tree_flatten_with_path([Batch(1, 2), Batch([3])])[0]
        ]
        found.append((leaves, [dataclasses.astuple(b) for b in again], paths))
    assert found[0] == found[1]
