"""What a recorder holds on to: nothing that would die in a plain run, and after a refusal nothing at all."""

import types
import weakref

import pytest
from served import recorded
from unheard import parts

from lamina.jit.observe.fresh import MOST_PRUNED
from lamina.jit.observe.outermost import Interpreter


class Thing:
    pass


def test_what_a_run_makes_is_held_weakly():
    watching, seen = Interpreter(*parts()), []

    def f(x):
        o, group = Thing(), {1, 2}
        seen.append(len(watching.fresh.strong))
        made = [o, (x, x), group, lambda: o]
        seen.append(len(watching.fresh.strong))
        return len(made)

    assert watching.run(f, (1,), {}) == 4
    assert watching.refused is None
    assert seen == [1, 4]  # the cell; the list and the tuples of values, of cells


@pytest.mark.parametrize("late", [False, True])
def test_after_a_refusal_nothing_is_held(late):
    held = types.SimpleNamespace(o=Thing(), items=[Thing()])
    died = []
    for o in (held.o, held.items[0]):
        o.on = weakref.finalize(o, died.append, 1)
        del o.on

    def f(x):
        made = [held.o, held.items[0], Thing()]
        if late:
            held.n = len(made)
        id(made)  # is refused
        held.o, held.items, made = None, [], None
        return len(died)

    watching = recorded(f, 1)
    assert watching.refused is not None
    assert watching.result_of_run == len(died)
    known, fresh, written = watching.known, watching.fresh, watching.written
    for held_by in (known.roots, known.facts, fresh.objects, fresh.strong, written.effects, written._before):
        assert not held_by
    assert not (written._keep or watching.guards._keep or watching.guards.named)


@pytest.mark.parametrize("count", [10, MOST_PRUNED + 1])
def test_many_objects_beside_a_suspended_generator_are_refused(count):
    log = []

    def steps():
        try:
            yield [[n] for n in range(count)]
        finally:
            log.append("closed")

    def f(x):
        held = [steps()]
        made = next(held[0])
        held = None
        log.append(len(made))
        return x

    watching = recorded(f, 1)
    assert log == ["closed", count]
    assert (watching.refused is None) is (count == 10)
