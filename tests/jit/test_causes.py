"""Sentences about calls that were not served, taken apart for people."""

from __future__ import annotations

import re

import pytest

from lamina.jit.causes import REMEDIES, cause, place_of

# One for each kind, in its order.
SENTENCES = (
    "the answer to bool (train.py:3): True -> False (train.py:3)",
    "how much a mask selects: 3 -> 4 (train.py:3)",
    "what random.random() drew: 0.5 -> 0.25 (train.py:3)",
    "the answer to item (train.py:3): 0.5 -> 0.25 (train.py:3)",
    "x: f32[2,3] -> f32[4,3] (train.py:3)",
    "the layout of x: row by row -> strides of (4, 8) bytes (train.py:3)",
    "the history of w: starts here -> was computed",
    "the gradient of w: is there -> is None",
    "the parameters or the states of Adam, number 0: f32[2] -> nothing",
    "memory is written that an argument shares with another tensor",
    "config: a Config -> another Config (train.py:3)",
    "scale: 0.5 -> 0.25 (train.py:3)",
    "name: 'a' -> 'b' (train.py:3)",
    "a list was changed that nothing known leads to (train.py:3)",
    "a list_iterator from outside was gone through, which that uses up (train.py:3)",
    "a dict_values was given to C code, which may look at anything in it (train.py:3)",
    "the text of a Config shows its address (train.py:3)",
    "an array of NumPy's, a NumPy array that nothing holds, was read (train.py:3)",
    "numpy() handed out the memory of a tensor",
    "Mine, a class of the user's own, derives from Tensor (train.py:3)",
    "its outputs have a history that a recording can't give them: x",
    "the data of a tensor f32[2] was replaced",
    "it runs more than 200000 ops",
    "it could not be compiled: KeyError: 'x'",
)


@pytest.mark.parametrize(
    ("row", "sentence"), list(zip(REMEDIES, SENTENCES, strict=True)), ids=range(len(REMEDIES))
)
def test_each_kind_has_its_remedy(row, sentence):
    assert cause(sentence).instead == row[1]
    assert cause(sentence).where == ("train.py:3" if "train.py" in sentence else "")


def test_a_remedy_of_its_own_goes_before():
    found = cause("time.time() gives another value at each call; pass the time as an argument (a b.py:12)", 4)
    assert (found.what, found.where, found.calls) == (
        "time.time() gives another value at each call", "a b.py:12", 4
    )  # fmt: skip
    assert found.instead == "pass the time as an argument"


def test_values_with_marks_of_sentences_are_values():
    found = cause("the global name: 'a; b (c.py:1)' -> 'd: e -> f' (train.py:3)")
    assert (
        found.what == "the global name changed: 'a; b (c.py:1)' -> 'd: e -> f'"
        and found.where == "train.py:3"
    )
    assert place_of("name: 'a\n' -> 'b' (train.py:3)") == place_of("name: 1 -> 'c' (train.py:3)")
    assert place_of("name: 1 -> 2 (train.py:3)") != place_of("name: 1 -> 2 (train.py:4)")


@pytest.mark.parametrize("sentence", ["", ";", "()", "it fails", "it fails; ", " (x:1)", "a -> b", ": -> "])
def test_any_text_is_a_cause(sentence):
    assert cause(sentence).what is not None and not re.search(r"\(x:1\)", cause(sentence).what)
