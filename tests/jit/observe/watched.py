"""A recorder of heap facts without the interpreter: Python that it calls runs natively, and is noted."""

from __future__ import annotations

import types
from types import SimpleNamespace

from unheard import parts

from lamina.jit.observe.operators import Operators


class Watched(Operators):
    """called: the functions that the interpreter would have run, by name."""

    def __init__(self, lift=frozenset()):
        super().__init__(*parts(lift))
        self.called = []

    def call(self, function, args=(), kwargs=types.MappingProxyType({})):
        if isinstance(function, (types.FunctionType, types.MethodType)):
            self.called.append(function.__name__)
        return function(*args, **kwargs)

    def holds(self, *arguments):
        """Whether the facts still hold."""
        slots = [*arguments, *[None] * (self.guards.size - len(arguments))]
        return all(guard(slots) == 0 for part in self.guards.parts for guard in part.compiled())


class Thing:
    """An object of the user's."""

    def __init__(self, **values):
        self.__dict__.update(values)


def watching(**values):
    """A recorder, and an object with these attributes that the traced function captures."""
    watched = Watched()
    thing = Thing(**values)
    watched.pin(thing, "thing")
    return watched, thing


def check(make, run, changes=(), keeps=(), result=..., refused=None, effects=None):
    """Run on what `make()` returns; each of `changes` alone must be seen, each of `keeps` must not be."""
    for alter, seen in [*((c, True) for c in changes), *((k, False) for k in keeps), (None, False)]:
        watched, thing = Watched(), make()
        watched.pin(thing, "thing")
        found = run(watched, thing)
        if result is not ...:
            assert (type(found), found) == (type(result), result)
        if refused is not None:
            assert watched.refused is not None, "not refused"
            assert refused in watched.refused
            continue
        assert watched.refused is None, watched.refused
        if effects is not None:
            assert len(watched.written.effects) == effects
        if effects is None or alter is not None:
            if effects is None:
                assert watched.holds(), watched.guards.parts[0].lines
        if alter is not None:
            alter(thing)
            assert watched.holds() is not seen, (alter.__code__.co_consts, watched.guards.parts[0].lines)


__all__ = ["SimpleNamespace", "Thing", "Watched", "check", "watching"]
