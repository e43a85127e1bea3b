"""Programs that raise: at the same point, the same exception, with what happened before it."""

from __future__ import annotations

import contextlib
import sys
import warnings

import numpy as np
from battery import lib as t
from battery import program

limit = 2
flag = given = None


class Stop(Exception):
    def __init__(self, at):
        super().__init__(f"stopped at {at}")
        self.at = at


@program("exceptions")
def raised_when_a_global_says_so(w):
    @w.trace
    def f(x):
        if limit < 2:
            raise ValueError(f"limit is {limit}")
        return x * limit

    global limit
    for limit in w.rounds(2, 1, 0, 2):
        w.call(f, w.x)


@program("exceptions")
def raised_deep_inside(w):
    def inner(x, n):
        if n > limit:
            raise Stop(n)
        return inner(x * 2, n + 1)

    def outer(x):
        return inner(x, 0)

    f = w.trace(outer)
    global limit
    for limit in w.rounds(1, 3, 1):
        w.call(f, w.x)


@program("exceptions", peers=False)  # PyTorch takes them otherwise
def flags_that_are_none(w):
    weight = w.lib.ones(3, requires_grad=True)

    class Flag:
        pass

    @w.trace
    def asks(x):
        weight.requires_grad_(flag)
        return x * 2

    @w.trace
    def keeps(x):
        return w.lib.nanmean(x, 0, keepdim=flag)

    global flag
    for flag in w.rounds(True, Flag, 1, "a"):
        w.call(asks, w.x)
        w.call(keeps, w.x)


@program("exceptions", peers=False)
def functions_of_no_tensor(w):
    @w.trace
    def f(x):
        return x, w.lib.nansum(given), w.lib.count_nonzero(given), w.lib.block_diag()

    global given
    for given in w.rounds(2.0, np.ones(3), w.x, [1.0], 2.0):
        w.call(f, w.x)


@program("exceptions")
def caught_inside(w):
    def inner(x):
        if limit < 2:
            raise Stop(limit)
        return x * 2

    @w.trace
    def f(x):
        try:
            return inner(x)
        except Stop as stop:
            return x + stop.at
        finally:
            print("done")

    global limit
    for limit in w.rounds(2, 1, 0, 2):
        w.call(f, w.x)


@program("exceptions")
def raised_by_a_value(w):
    @w.trace
    def f(x):
        y = x * 2
        if y.max() > 5:
            raise Stop(y.max().item())
        return y

    for by in w.rounds(0.5, 1.0, 2.0, 0.5):
        w.call(f, w.x * by)


@program("exceptions")
def an_assertion_on_a_value(w):
    @w.trace
    def f(x):
        assert x.min() > -3, "too small"
        return x + 1

    for by in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x * by)


@program("exceptions")
def in_place_before_the_exception(w):
    state = t.zeros(4)

    @w.trace
    def f(x, bad):
        state.add_(x)
        if bad:
            raise Stop("middle")
        state.mul_(2)
        return state + 1

    w.see(state=state)
    for bad in w.rounds(False, True, False):
        state.zero_()
        w.call(f, w.x, bad)


@program("exceptions")
def chained_from_another(w):
    table = {}

    @w.trace
    def f(x):
        try:
            return x * table["scale"]
        except KeyError as error:
            raise Stop("lookup") from error

    for content in w.rounds({}, {"scale": 2.0}, {}):
        table.clear()
        table.update(content)
        w.call(f, w.x)


@program("exceptions")
def raised_while_handling(w):
    table = {}

    @w.trace
    def f(x):
        try:
            return x * table["scale"]
        except KeyError:
            return x * table["other"]

    for content in w.rounds({}, {"scale": 2.0}, {"other": 3.0}, {}):
        table.clear()
        table.update(content)
        w.call(f, w.x)


@program("exceptions")
def with_a_note(w):
    @w.trace
    def f(x):
        try:
            if limit:
                raise Stop("here")
        except Stop as stop:
            stop.add_note(f"limit {limit}")
            raise
        return x * 2

    global limit
    for limit in w.rounds(0, 1, 2):
        w.call(f, w.x)


@program("exceptions")
def reraised_by_a_bare_raise(w):
    def inner(x):
        raise Stop(limit) if limit else KeyError("none")

    @w.trace
    def f(x):
        try:
            inner(x)
        except (Stop, KeyError):
            print("seen", sys.exc_info()[0].__name__)
            raise

    global limit
    for limit in w.rounds(0, 1, 0):
        w.call(f, w.x)


@program("exceptions")
def an_exception_class_is_rebound(w):
    caught = KeyError

    @w.trace
    def f(x):
        try:
            raise Stop(1)
        except caught:
            return x * 2
        except Exception:
            return x * 3

    for caught in w.rounds(KeyError, Stop, Exception, KeyError):
        w.call(f, w.x)


@program("exceptions")
def a_context_suppresses(w):
    suppressed = [KeyError]

    @w.trace
    def f(x):
        with contextlib.suppress(*suppressed):
            raise Stop(1)
        return x * 2

    for suppressed[:] in w.rounds([KeyError], [Stop], [KeyError, Stop]):
        w.call(f, w.x)


@program("exceptions")
def finally_overrides_the_return(w):
    @w.trace
    def f(x):
        for _ in range(2):
            try:
                if limit == 1:
                    raise Stop(1)
                return x * 2
            finally:
                if limit == 2:
                    break  # noqa: B012
        return x * 3

    global limit
    for limit in w.rounds(0, 1, 2, 0):
        w.call(f, w.x)


@program("exceptions")
def an_exception_is_returned(w):
    @w.trace
    def f(x):
        try:
            raise Stop(limit)
        except Stop as stop:
            return x * 2, stop.at, str(stop)

    global limit
    for limit in w.rounds(0, 1, 0):
        w.call(f, w.x)


@program("exceptions")
def a_group_of_exceptions(w):
    @w.trace
    def f(x):
        try:
            raise ExceptionGroup("both", [Stop(limit), KeyError("k")])
        except* Stop as group:
            print(len(group.exceptions))
        return x

    global limit
    for limit in w.rounds(0, 1):
        w.call(f, w.x)


@program("exceptions")
def the_library_raises_for_a_shape(w):
    other = t.ones(4)

    @w.trace
    def f(x):
        return x + other

    for other in w.rounds(t.ones(4), t.ones(3), t.ones(4)):
        w.call(f, w.x)


@program("exceptions")
def the_library_raises_and_it_is_caught(w):
    other = t.ones(4)

    @w.trace
    def f(x):
        try:
            return x + other
        except (RuntimeError, ValueError):
            return x - 1

    for other in w.rounds(t.ones(4), t.ones(3), t.ones(4)):
        w.call(f, w.x)


@program("exceptions")
def division_by_a_number_that_turns_zero(w):
    @w.trace
    def f(x):
        return x * (1 / limit)

    global limit
    for limit in w.rounds(2, 0, 4, 0):
        w.call(f, w.x)


@program("exceptions")
def an_index_that_runs_out(w):
    values = [1.0, 2.0]

    @w.trace
    def f(x):
        return x * values[1]

    for values[:] in w.rounds([1.0, 2.0], [1.0], [], [1.0, 2.0]):
        w.call(f, w.x)


@program("exceptions")
def wrong_arguments(w):
    def inner(x, a, *, b=1.0):
        return x * a * b

    given, named = [2.0], {}
    f = w.trace(lambda x: inner(x, *given, **named))
    for given[:], extra in w.rounds(([2.0], {}), ([], {}), ([2.0], {"c": 1}), ([2.0], {"b": 3.0})):
        named.clear()
        named.update(extra)
        w.call(f, w.x)


@program("exceptions")
def stop_iteration_escapes(w):
    values = [1.0]

    @w.trace
    def f(x):
        found = iter(values)
        return x * next(found) + next(found, 5.0)

    for values[:] in w.rounds([1.0], [1.0, 2.0], []):
        w.call(f, w.x)


@program("exceptions")
def system_exit(w):
    @w.trace
    def f(x):
        if limit:
            sys.exit(limit)
        return x * 2

    global limit
    for limit in w.rounds(0, 3, 0):
        w.call(f, w.x)


@program("exceptions")
def recursion_that_goes_too_deep(w):
    def inner(x, n):
        return inner(x, n + 1) if n > limit else x * n

    @w.trace
    def f(x):
        try:
            return inner(x, 3)
        except RecursionError:
            return x * 2

    global limit
    for limit in w.rounds(3, 2, 4):
        w.call(f, w.x)


@program("exceptions")
def an_exit_that_raises(w):
    class Scope:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, places):
            if limit == 1:
                raise Stop("exit")
            return limit == 2

    @w.trace
    def f(x):
        with Scope():
            if limit:
                raise KeyError("inside")
        return x * 2

    global limit
    for limit in w.rounds(0, 1, 2, 3):
        w.call(f, w.x)


@program("exceptions")
def a_warning_turned_error_is_caught(w):
    @w.trace
    def f(x):
        try:
            warnings.warn("beware", RuntimeWarning, stacklevel=1)
        except RuntimeWarning:
            return x * 3
        return x * 2

    for action in w.rounds("ignore", "error", "ignore"):
        warnings.simplefilter(action)
        w.call(f, w.x)


@program("exceptions")
def raised_after_an_in_place_write_to_an_argument(w):
    @w.trace
    def f(x):
        x.mul_(2)
        if limit:
            raise Stop("written")
        return x + 1

    global limit
    for limit in w.rounds(0, 1, 0):
        w.call(f, w.x.clone())
