"""Types are interned: one object for a dtype, a shape and a device, as long as anything holds it."""

import gc
import sys
import threading
import weakref

import pytest

from lamina.ir import types
from lamina.ir.dtypes import float32, int64
from lamina.ir.types import CPU, Device, type_of

forget_the_recent = types._drop


def test_equal_types_are_one_whatever_is_forgotten():
    held = [type_of(float32, (n, 7)) for n in range(50)]
    forget_the_recent()
    assert all(type_of(float32, (n, 7)) is kind for n, kind in enumerate(held))


def test_what_nobody_holds_goes():
    kind = weakref.ref(type_of(float32, (1234, 5678)))
    forget_the_recent()
    gc.collect()
    types._drop()
    assert kind() is None and (float32, (1234, 5678)) not in types._known
    assert type_of(float32, (1234, 5678)).shape == (1234, 5678)


def test_a_type_that_was_is_made_anew():
    """Its key is still there, with a reference to nothing."""
    for _ in range(3):
        kind = type_of(float32, (4321, 8))
        types._drop()
        assert types._known[float32, (4321, 8)]() is kind
        del kind
        assert types._known[float32, (4321, 8)]() is None
    assert type_of(float32, (4321, 8)) is type_of(float32, (4321, 8))


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_ask_at_once_get_one(seed):
    """While others forget, and what was is asked for again."""
    before, found = sys.getswitchinterval(), {}
    sys.setswitchinterval(1e-6)
    start = threading.Barrier(4)

    def ask(number):
        mine = found[number] = []
        for n in range(300):
            if n % 30 == 0:
                start.wait()
            mine.append(type_of(float32, (n + 1000 * seed + 9000, 3)))
            if n % 7 == number:
                forget_the_recent()
            if n % 5 == 0:
                mine[-1] = None

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(4)]
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    for kinds in zip(*found.values(), strict=True):
        assert len(set(map(id, kinds))) == 1


def test_forms():
    def form(*shape, dtype=float32, device=CPU):
        return type_of(dtype, shape, device).form

    assert form(3, 4) == form(5, 2) == (float32, 2, 2)
    assert form(1, 4) == (float32, 1, 2) and form(4, 0) == (float32, 2, 0) and form() == (float32,)
    assert form(3, dtype=int64) != form(3) != form(3, device=Device("meta"))


def test_numbers_beside_a_type_hang_on_no_size():
    one, other = type_of(float32, (3, 4)), type_of(float32, (9,))
    assert one.scalars is other.scalars is not type_of(float32, ()).scalars
    assert one.scalars is not type_of(int64, (3, 4)).scalars
