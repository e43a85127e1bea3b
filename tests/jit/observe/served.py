"""A tracer of plain Python: records a call, and serves later ones as long as the guards hold."""

from unheard import parts

from lamina.jit.observe.outcome import Outcome
from lamina.jit.observe.outermost import Interpreter


class Served:
    """Calls a function.  count: calls that were served; refused: why the last recording was given up."""

    def __init__(self, function):
        self.function, self.kept, self.count, self.refused = function, [], 0, None

    def __call__(self, *args):
        for guards, run, size in self.kept:
            slots = [*args, *[None] * size]
            if all(guard(slots) == 0 for guard in guards):
                self.count += 1
                return run(slots, ())
        watching = Interpreter(*parts())
        result = watching.run(self.function, args, {})
        self.refused = watching.refused
        if self.refused is None:
            outcome = Outcome(watching, result)
            watching.guards.close(watching.known.roots)
            guards = [guard for part in watching.guards.parts for guard in part.compiled()]
            self.refused = watching.refused
            if self.refused is None:
                self.kept.append((guards, outcome.run, watching.guards.size))
        return result


def recorded(function, *args):
    """The recorder of one call."""
    watching = Interpreter(*parts())
    watching.result_of_run = watching.run(function, args, {})
    watching.guards.close(watching.known.roots)
    watching.compiled = [guard for part in watching.guards.parts for guard in part.compiled()]
    return watching


def holds(watching, *args):
    """Whether what a call took for granted still holds."""
    slots = [*args, *[None] * watching.guards.size]
    return all(guard(slots) == 0 for guard in watching.compiled)


def compared(make, change=None, serves=2, given=(1, 1, 1, 1)):
    """Run a program natively and traced, each on a state of its own; it is changed after two calls.

    make: returns (function, state).  serves: how many of the calls a recording must serve.
    """
    native, expected = make()
    function, state = make()
    traced = Served(function)
    for number, x in enumerate(given):
        if number == 2 and change is not None:
            change(expected)
            change(state)
        right, found = _outcome(native, x), _outcome(traced, x)
        assert _shown(found) == _shown(right), (number, traced.refused)
        assert _shown(state) == _shown(expected), (number, traced.refused)
    assert traced.count >= serves, (traced.count, traced.refused)
    return traced


def _outcome(function, x):
    try:
        return function(x)
    except Exception as error:
        return type(error), str(error)


def _shown(value):
    """A value as text that tells types and bits apart."""
    if isinstance(value, dict):
        return type(value).__name__, [(_shown(k), _shown(v)) for k, v in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_shown(v) for v in value]
    if type(value).__repr__ is object.__repr__:
        return type(value).__name__, _shown(getattr(value, "__dict__", None))
    return type(value).__name__, repr(value)
