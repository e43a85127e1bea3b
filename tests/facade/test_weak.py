"""torch.utils.weak: tables whose keys are tensors, and go with them."""

import copy
import gc

import pytest

import lamina
from lamina.utils.weak import TensorWeakRef, WeakIdKeyDictionary, WeakIdRef, WeakTensorKeyDictionary


def test_keys_are_told_apart_by_what_they_are():
    a, b = lamina.ones(3), lamina.ones(3)
    table = WeakTensorKeyDictionary()
    table[a], table[b] = 1, 2
    assert (len(table), table[a], table[b]) == (2, 1, 2)
    assert a in table and lamina.ones(3) not in table and 3 not in table
    with pytest.raises(KeyError):
        table[lamina.ones(3)]
    assert table.pop(b) == 2 and [x is a for x in table] == [True]


def test_entries_go_with_their_keys():
    a, b = lamina.ones(3), lamina.zeros(3)
    table = WeakIdKeyDictionary([], WeakIdRef)
    table.update(WeakTensorKeyDictionary())
    table[a], table[b] = [1], [2]
    held, whole = copy.copy(table), copy.deepcopy(table)
    assert held == table and held[b] is table[b] and whole[b] == [2] and whole[b] is not table[b]
    assert len(table | held) == 2
    reference = TensorWeakRef(b)
    assert reference() is b
    del b
    gc.collect()
    assert reference() is None
    assert [len(x) for x in (table, held, whole)] == [1, 1, 1] and len(table.keyrefs()) == 1
