"""Check how samples become a batch."""

from collections import OrderedDict, UserList, defaultdict, namedtuple

import numpy as np
import pytest

import lamina
from lamina.data import collate, default_collate, default_convert

Pair = namedtuple("Pair", "x y")


def same(made, dtype, values):
    assert isinstance(made, lamina.Tensor) and made.dtype is dtype
    assert made.tolist() == values


def test_leaves_become_tensors():
    same(
        default_collate([lamina.tensor([1.0, 2.0]), lamina.tensor([3.0, 4.0])]),
        lamina.float32,
        [[1, 2], [3, 4]],
    )
    same(default_collate([np.array([1, 2], np.int32)] * 2), lamina.int32, [[1, 2], [1, 2]])
    same(default_collate([np.float32(1.5), np.float32(2)]), lamina.float32, [1.5, 2])
    same(default_collate([1.5, 2.0]), lamina.float64, [1.5, 2])
    same(default_collate([1, 2]), lamina.int64, [1, 2])
    same(default_collate([True, False]), lamina.bool, [True, False])


def test_strings_stay():
    assert default_collate(["a", "b"]) == ["a", "b"]
    assert default_collate([b"a", b"b"]) == [b"a", b"b"]


def test_containers_keep_their_structure():
    batch = default_collate([{"x": (i, [float(i), "s"]), "y": Pair(i, lamina.ones(2))} for i in (1, 2)])
    assert list(batch) == ["x", "y"] and isinstance(batch["x"], list)
    same(batch["x"][0], lamina.int64, [1, 2])
    same(batch["x"][1][0], lamina.float64, [1, 2])
    assert batch["x"][1][1] == ("s", "s")
    assert type(batch["y"]) is Pair
    same(batch["y"].y, lamina.float32, [[1, 1], [1, 1]])


def test_containers_keep_their_class():
    assert type(default_collate([OrderedDict(a=1)])) is OrderedDict
    made = default_collate([defaultdict(list, a=1)])
    assert type(made) is defaultdict and made.default_factory is list
    assert type(default_collate([UserList([1, 2])])) is UserList


def test_collate_does_not_share_memory():
    x = lamina.zeros(2)
    default_collate([x]).add_(1)
    assert x.tolist() == [0, 0]


def test_differing_shapes_are_named_with_their_samples():
    samples = [{"image": [lamina.zeros(2, 4 if i in (2, 5) else 3)]} for i in range(14)]
    with pytest.raises(lamina.ShapeError) as error:
        default_collate(samples)
    assert str(error.value).split("\n") == [
        "default_collate: the samples' tensors must have one shape",
        "  at sample['image'][0]",
        "  samples 0, 1, 3, 4, 6, 7, 8, 9 and 4 more: f32[2,3]",
        "  samples 2, 5: f32[2,4]",
        "  pass a collate_fn that brings them to one shape, for example by nn.utils.rnn.pad_sequence",
    ]


def test_differing_lengths_are_named_with_their_samples():
    with pytest.raises(ValueError, match="one length") as error:
        default_collate([[1, 2], [1, 2], [1]])
    assert str(error.value).split("\n")[1:] == ["  samples 0, 1: 2 entries", "  sample 2: 1 entries"]


@pytest.mark.parametrize("sample", [object(), None, np.array(["text"]), np.array([object()])])
def test_what_no_tensor_holds_is_refused(sample):
    with pytest.raises(TypeError, match="default_collate"):
        default_collate([sample])


def test_convert_leaves_a_sample_single():
    made = default_convert({"a": np.ones(2), "b": Pair(np.int32(3), "text"), "c": (1, [2.5])})
    same(made["a"], lamina.float64, [1, 1])
    same(made["b"].x, lamina.int32, 3)
    assert made["b"].y == "text" and made["c"] == [1, [2.5]]


# ---- classes of a program's --------------------------------------------------------------------------------
class Ragged:
    def __init__(self, values):
        self.values = values


class MoreRagged(Ragged):
    pass


def test_a_table_says_how_classes_are_put_together():
    def padded(batch, *, collate_fn_map):
        assert Ragged in collate_fn_map
        return [x.values for x in batch]

    batch = [{"x": 1, "r": Ragged([1])}, {"x": 2, "r": MoreRagged([2, 3])}]
    found = collate.collate(batch, collate_fn_map={Ragged: padded})
    assert found["x"].tolist() == [1, 2] and found["r"] == [[1], [2, 3]]
    assert collate.collate([MoreRagged([4])], collate_fn_map={Ragged: padded}) == [[4]]
    with pytest.raises(TypeError, match="not Ragged"):
        default_collate(batch)
    known = collate.default_collate_fn_map
    before = dict(known)
    try:
        known[Ragged] = padded
        known[str] = lambda batch, collate_fn_map: "".join(batch)
        assert default_collate(batch)["r"] == [[1], [2, 3]] and default_collate(["a", "b"]) == "ab"
    finally:
        known.clear()
        known.update(before)
    assert known[lamina.Tensor]([lamina.ones(2)] * 2).shape == (2, 2)
