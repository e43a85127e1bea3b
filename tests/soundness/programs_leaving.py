"""Programs whose texts, clocks and histories only leave the run, or seem to: something may hang on them."""

# ruff: noqa: UP031, UP032 - all ways to make a text

from __future__ import annotations

import io
import sys
import time
import types

from battery import lib as t
from battery import program


def on_multiples(w, f, *factors):
    """Trace f and call it on multiples of a tensor."""
    f = w.trace(f)
    for by in w.rounds(*(factors or (1.0, 2.0, -3.0, 0.5))):
        w.call(f, w.x * by)


# ---- texts -------------------------------------------------------------------------------------------------
@program("leaving")
def a_tensor_is_formatted(w):
    on_multiples(w, lambda x: (x * 2, f"{x.sum():.3f} of {x.max()}"))


@program("leaving")
def a_tensor_is_formatted_by_a_method(w):
    on_multiples(w, lambda x: (x * 2, "{:>9.2f}|{a:e}".format(x.sum(), a=x[0]), "{!r:.7}".format(x.sum())))


@program("leaving")
def a_tensor_is_formatted_by_percent(w):
    on_multiples(w, lambda x: (x * 2, "%.3f" % x.sum(), "%8.2f %% %e" % (x[0], x[1].item())))


@program("leaving")
def a_text_counts_its_characters(w):
    on_multiples(w, lambda x: (x * 2, len(f"{x.sum() * 1000:.0f}")), 1.0, 2.0, 30.0, 500.0)


@program("leaving")
def a_text_decides(w):
    on_multiples(w, lambda x: x * 2 if f"{x.sum():.0f}".startswith("-") else x + 1, 1.0, -1.0, 2.0, -2.0)


@program("leaving")
def a_text_is_a_key(w):
    seen = {}

    @w.trace
    def f(x):
        seen[f"{x.sum():.0f}"] = len(seen)
        return x * 2, list(seen)

    w.see(seen=seen)
    for by in w.rounds(1.0, 2.0, 1.0, -4.0):
        w.call(f, w.x * by)


@program("leaving")
def what_a_write_returns(w):
    def f(x):
        return x * 2, sys.stdout.write(f"{x.sum() * 100:.1f}\n"), sys.stderr.write("told\n")

    on_multiples(w, f, 1.0, 20.0, -300.0, 4000.0)


@program("leaving")
def a_text_is_written_to_memory(w):
    def f(x):
        out = io.StringIO()
        out.write(f"{x.sum():.2f};")
        print(x.max().item(), file=out)
        return x * 2, out.getvalue()

    on_multiples(w, f)


@program("leaving")
def texts_are_joined(w):
    def f(x):
        parts = [f"{x.sum():.2f}", "and", str(x.max().item())]
        return x * 2, ", ".join(parts), "-".join(f"{v.item():.1f}" for v in x), "".join(sorted(parts))

    on_multiples(w, f)


@program("leaving")
def a_text_is_joined_with_what_is_none(w):
    def f(x):
        try:
            return " ".join([f"{x.sum():.2f}", x.max().item()])
        except TypeError as error:
            return x * 2, str(error)

    on_multiples(w, f)


@program("leaving")
def the_method_that_formats_is_replaced(w):
    f = w.trace(lambda x: (x * 2, f"{x.sum():.2f}", "{:.1f}".format(x[0]), "%.1f" % x[1]))
    format_, float_ = t.Tensor.__format__, t.Tensor.__float__
    w.undo(setattr, t.Tensor, "__format__", format_)
    w.undo(setattr, t.Tensor, "__float__", float_)
    for own in w.rounds(False, True, False, True):
        t.Tensor.__format__ = (lambda self, spec: "mine " + spec) if own else format_
        t.Tensor.__float__ = (lambda self: 7.0) if own else float_
        w.call(f, w.x)


@program("leaving")
def a_value_is_formatted_before_it_is_written(w):
    def f(x):
        y = x.clone()
        total = y.sum()
        before = f"{total:.2f}"
        total.mul_(3)
        return y * 2, before, f"{total:.2f}"

    on_multiples(w, f)


# ---- clocks ------------------------------------------------------------------------------------------------
@program("leaving")
def times_go_on(w):
    state = types.SimpleNamespace(last=0.0)

    @w.trace
    def f(x):
        start = time.perf_counter()
        y = x @ x
        return y, start, time.perf_counter()

    def checked(x):
        y, start, end = f(x)
        rising, state.last = state.last <= start <= end, end
        return y, rising

    for by in w.rounds(1.0, 2.0, -1.0):
        w.call(checked, w.x * by)


@program("leaving")
def a_time_decides(w):
    began = time.monotonic()
    f = w.trace(lambda x: x * 2 if time.monotonic() - began < 1e6 else x)
    for by in w.rounds(1.0, 2.0):
        w.call(f, w.x * by)


@program("leaving")
def a_time_is_scaled_to_nothing(w):
    on_multiples(w, lambda x: x * 2 + 0 * time.time())


@program("leaving")
def a_time_in_a_text_that_is_cut(w):
    on_multiples(w, lambda x: (x * 2, f"{time.time():.3f}"[:3], str(time.time_ns())[0]))


@program("leaving")
def a_clock_becomes_another(w):
    clock = types.SimpleNamespace(ask=time.perf_counter)

    @w.trace
    def f(x):
        start = clock.ask()
        y = x * 2
        return y, clock.ask() - start >= 0

    for own in w.rounds(False, True, False, True):
        ticks = iter(range(100, 0, -1))
        clock.ask = (lambda ticks=ticks: next(ticks)) if own else time.perf_counter
        w.call(f, w.x)


# ---- histories ---------------------------------------------------------------------------------------------
@program("leaving")
def the_last_of_a_history(w):
    history = []

    @w.trace
    def f(x):
        history.append(x.sum().item())
        return x * 2, history[-3:], history[:2], history[::-1][:2]

    w.see(history=history)
    for by in w.rounds(1.0, 2.0, -1.0):
        w.call(f, w.x * by)
        if len(history) > 9:
            history.clear()


@program("leaving")
def a_history_that_is_cut(w):
    held = types.SimpleNamespace(history=[1.0, 2.0])

    @w.trace
    def f(x):
        held.history.append(x.sum().item())
        held.history = held.history[-4:]
        return x * held.history[0], sum(held.history)

    w.see(held=held)
    for by in w.rounds(1.0, 2.0, -1.0):
        w.call(f, w.x * by)


@program("leaving")
def a_slice_is_another_list(w):
    items = [1.0, 2.0, 3.0]

    @w.trace
    def f(x):
        cut = items[:2]
        cut.append(x.sum().item())
        cut[0] = 5.0
        return x * cut[0], cut, items[:] is items, items

    w.see(items=items)
    for first in w.rounds(1.0, 2.0, 3.0):
        items[0] = first
        w.call(f, w.x * first)


@program("leaving")
def a_slice_holds_the_same_objects(w):
    items = [[1.0], [2.0], [3.0]]

    @w.trace
    def f(x):
        cut = items[::2]
        cut[1].append(x.sum().item())
        return x * 2, cut[0] is items[0], len(items[2])

    w.see(items=items)
    for by in w.rounds(1.0, 2.0):
        w.call(f, w.x * by)
        if len(items[2]) > 5:
            items[2] = [by]


# ---- tensors that are replaced -----------------------------------------------------------------------------
@program("leaving")
def averages_that_are_new_tensors(w):
    kept = {name: t.zeros(4) for name in "abc"}

    @w.trace
    def f(x):
        for name in kept:
            kept[name] = (0.5 * kept[name] + x).clone()
        return sum(kept.values())

    w.see(kept=kept)
    for by in w.rounds(1.0, 2.0, -1.0):
        w.call(f, w.x * by)


@program("leaving")
def averages_that_become_one(w):
    kept = {name: t.zeros(4) for name in "ab"}

    @w.trace
    def f(x):
        for name in kept:
            kept[name] = kept[name] * 0.5 + x
        kept["a"].add_(1)
        return kept["a"] + kept["b"]

    w.see(kept=kept)
    for same in w.rounds(False, False, True, False):
        if same:
            kept["b"] = kept["a"]
        w.call(f, w.x)
