"""A share of the hostile inputs of every kind; `run.py` reads as many as one likes."""

from unittest import mock

import driver
import numpy as np
import pytest
from driver import Totals

from lamina.jit import lamina_model
from lamina.runtime.allowance import Allowance
from lamina.runtime.checkpoints import archive, classes, names, own_form
from lamina.runtime.memory_view import memory_of
from lamina.runtime.storage import Storage
from lamina.runtime.tensor import tensor_of

KINDS = driver.kinds()


def maker(name: str) -> driver.Kind:
    if absent := driver.missing(name):
        pytest.skip(f"{name}: {', '.join(absent)} can't be imported")
    return KINDS[name]()


def read(name: str, count: int, seed: int) -> Totals:
    totals = driver.run(name, maker(name), count, seed)
    faults = [f"{word} {name} --seed {seed} --only {index}: {text}" for index, word, text in totals.faults]
    assert not totals.failed and totals.next == count, "\n".join([str(totals), *faults])
    return totals


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_hostile_input_crashes_hangs_or_is_believed(name):
    made = maker(name)
    totals = read(name, made.share, seed=0)
    assert len(totals.verdicts) > 1, f"all inputs of {name} come to the same: {totals}"


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(KINDS))
def test_no_hostile_input_of_many_does(name):
    read(name, 20 * maker(name).share, seed=1)


def test_a_reader_that_believes_damage_is_noticed(monkeypatch):
    made = KINDS["safetensors"]()
    monkeypatch.setattr(own_form, "_checksum", lambda structure, entries: mock.ANY)
    assert driver.run("safetensors", made, 6000).verdicts["wrong"]


def test_a_checkpoint_that_is_not_compared_with_its_checksums_is_noticed(monkeypatch):
    made = KINDS["pt"]()
    monkeypatch.setattr(archive.Archive, "_compare", lambda self, member, crc, data: None)
    assert driver.run("pt", made, 1000).verdicts["wrong"]


def test_tensors_in_a_checkpoint_that_leave_their_storages_are_noticed(monkeypatch):
    def believed(storage, offset, size, stride, dtype):
        line = memory_of(storage._tensor)
        strides = tuple(step * line.itemsize for step in stride)
        made = tensor_of(np.lib.stride_tricks.as_strided(line[:1], size, strides))
        made._storage = Storage()
        made._storage.memory = line
        return made

    made = KINDS["pt-authored"]()
    monkeypatch.setattr(names, "placed", believed)
    assert driver.run("pt-authored", made, 1000).failed


@pytest.mark.sampled(4)
@pytest.mark.sampled(3)
def test_names_in_a_checkpoint_that_are_believed_are_noticed(monkeypatch):
    made = KINDS["pt-authored"]()
    monkeypatch.setattr(classes, "_is_users", lambda module: True)
    assert driver.run("pt-authored", made, 4000).verdicts["wrong"]


@pytest.mark.sampled(3)
def test_a_model_whose_memory_nobody_bounds_is_noticed(monkeypatch):
    made = maker("onnx")
    monkeypatch.setattr(Allowance, "take", lambda self, nbytes, what: None)
    assert driver.run("onnx", made, 3000, seed=3).failed


def test_a_model_that_is_not_compared_with_its_hashes_is_noticed(monkeypatch):
    made, blind = KINDS["lam"](), mock.Mock()
    blind.sha256.return_value.hexdigest.return_value = AnyText()
    monkeypatch.setattr(lamina_model, "hashlib", blind)
    assert driver.run("lam", made, 200).verdicts["wrong"]


class AnyText(str):
    """A hash that is any hash."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False

    def encode(self):
        return mock.ANY
