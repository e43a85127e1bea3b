"""Containers taken apart and made again, as PyTorch's `torch.utils._pytree` does."""

from __future__ import annotations

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
