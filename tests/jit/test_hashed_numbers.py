"""Numbers that change, within tuples that are hashed: keys, members of sets, and what is built of them."""

from collections import namedtuple

import pytest

import lamina
from lamina import jit

KEYS, PAIRS = {(8, 3): 5.0, (2, 3): 6.0}, {(8, 3), (2, 3)}
FIXED = frozenset(PAIRS)
Pair = namedtuple("Pair", "a b")


def adds(x, n):
    made = {(8, 3)}
    made.add((n, 3))
    return x * len(made)


HASHED = {
    "in a set": lambda x, n: x * 3 if (n, 3) in PAIRS else x,
    "in a frozenset": lambda x, n: x * 3 if (n, 3) in FIXED else x,
    "in a display": lambda x, n: x * 3 if (n, 3) in {(8, 3), (2, 3)} else x,
    "within another": lambda x, n: x * 3 if ((n, 3), 1) in {((8, 3), 1)} else x,
    "in a dictionary": lambda x, n: x * 3 if (n, 3) in KEYS else x,
    "get": lambda x, n: x * KEYS.get((n, 3), 1.0),
    "made by tuple": lambda x, n: x * 3 if tuple([n, 3]) in PAIRS else x,  # noqa: C409 - as people write it
    "joined": lambda x, n: x * 3 if (n,) + (3,) in PAIRS else x,
    "named": lambda x, n: x * 3 if Pair(n, 3) in {Pair(8, 3)} else x,
    "a key of a display": lambda x, n: x * {(n, 3): 2.0}.get((8, 3), 1.0),
    "a key of a comprehension": lambda x, n: x * {(m, 3): m for m in (n, 2)}.get((8, 3), 1),
    "of a display of a set": lambda x, n: x * len({(n, 3), (8, 3)}),
    "of a comprehension of a set": lambda x, n: x * len({(m, 3) for m in (n, 8)}),
    "of what sets have in common": lambda x, n: x * len(PAIRS & {(n, 3)}),
    "of a set that is part of another": lambda x, n: x * 3 if {(n, 3)} <= PAIRS else x,
    "added": adds,
    "unpacked": lambda x, n: x * len({*[(n, 3)], (8, 3)}),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", HASHED)
@pytest.mark.parametrize("of", ["numbers", "sizes"])
def test_what_is_hashed_is_guarded(name, of):
    function = HASHED[name]
    plain = function if of == "numbers" else lambda x, n: function(x, x.shape[0])
    traced = jit.trace(plain, budget=None)
    for n in (4, 7, 3, 8, 2, 5, 6, 9, 8, 2, 5, 8):
        x = lamina.ones(n, 2)
        assert traced(x, n).tolist() == plain(x, n).tolist(), n
    assert traced.counts()["served"], traced.explain()


def test_a_shape_is_looked_up():
    traced = jit.trace(lambda x: x * KEYS.get(tuple(x.shape), 1.0), budget=None)
    for n in (4, 7, 5, 8, 2, 6, 8):
        x = lamina.ones(n, 3)
        assert traced(x).tolist() == (x * KEYS.get((n, 3), 1.0)).tolist()
