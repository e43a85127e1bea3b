"""Programs that collect: histories, meters, callbacks, and text that they make."""

from __future__ import annotations

import itertools
import types

from battery import lib as t
from battery import program

total = 0


@program("effects")
def effects_of_all_kinds_in_order(w):
    events, thing = [], types.SimpleNamespace(n=0)

    @w.trace
    def f(x):
        global total
        print("one", len(events))
        events.append("two")
        total += 1
        thing.n = total
        w.logger.info("three %d", thing.n)
        events.append((thing.n, x * thing.n))
        print("four", events[-2])
        return x * 2

    global total
    w.see(events=events, thing=thing, total=lambda: total)
    for total in w.rounds(0, 7):
        events.clear()
        w.call(f, w.x)


@program("effects")
def an_effect_before_the_exception(w):
    events = []

    @w.trace
    def f(x, bad):
        events.append("began")
        print("began")
        if bad:
            raise ValueError("bad")
        events.append("ended")
        return x * 2

    w.see(events=events)
    for bad in w.rounds(False, True, False):
        w.call(f, w.x, bad)


@program("effects")
def an_effect_happens_once_when_a_question_misses(w):
    events = []

    @w.trace
    def f(x):
        y = x * 2
        events.append(len(events))
        y.add_(1)
        if y.max() > 5:
            events.append("large")
        if y.min() < -5:
            events.append("small")
        return y

    w.see(events=events)
    for by in w.rounds(1.0, 2.0, 0.5, -3.0):
        w.call(f, w.x * by)


@program("effects")
def a_history_of_results(w):
    history = []

    @w.trace
    def f(x):
        y = x * 2
        history.append(y)
        return y

    w.see(history=history)
    for forget in w.rounds(True, False):
        if forget:
            history.clear()
        w.call(f, w.x)


@program("effects")
def a_history_is_read_back(w):
    history = []

    @w.trace
    def f(x):
        y = x + history[-1] if history else x
        history.append(y)
        del history[:-2]
        return y

    w.see(history=history)
    for forget in w.rounds(True, False):
        if forget:
            history.clear()
        w.call(f, w.x)


@program("effects")
def numbers_are_summed_outside(w):
    running = types.SimpleNamespace(loss=0.0, seen=0)

    @w.trace
    def f(x):
        loss = (x * x).sum()
        running.loss += loss.item()
        running.seen += x.shape[0]
        return loss

    w.see(running=running)
    for by in w.rounds(1.0, 2.0):
        w.call(f, w.x * by)


@program("effects")
def tensors_are_summed_outside(w):
    running = types.SimpleNamespace(loss=None)

    @w.trace
    def f(x):
        running.loss = x if running.loss is None else running.loss + x
        return running.loss * 2

    w.see(running=running)
    for start in w.rounds(None, w.x):
        running.loss = start
        w.call(f, w.x)


@program("effects")
def an_average_meter(w):
    class Meter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.sum = self.count = 0

        def update(self, value, n=1):
            self.sum += value * n
            self.count += n
            self.average = self.sum / self.count

    meter = Meter()

    @w.trace
    def f(x):
        meter.update(2.5, len(x))
        return x * meter.average

    w.see(meter=meter)
    for x in w.rounds(w.x, w.m):
        meter.reset()
        w.call(f, x)


@program("effects")
def a_callback_is_registered_later(w):
    callbacks, events = [], []

    @w.trace
    def f(x):
        for callback in callbacks:
            callback("called")
        return x * 2

    w.see(events=events)
    for callbacks[:] in w.rounds([], [events.append], [events.append, print], []):
        w.call(f, w.x)


@program("effects")
def a_hook_changes_what_flows(w):
    hooks = []

    @w.trace
    def f(x):
        for hook in hooks:
            x = hook(x)
        return x + 1

    for hooks[:] in w.rounds([], [t.relu], [t.relu, lambda x: x * 3], []):
        w.call(f, w.x)


@program("effects")
def a_counter_of_itertools(w):
    numbers = itertools.count()
    f = w.trace(lambda x: x * next(numbers))
    for start in w.rounds(0, 10):
        numbers = itertools.count(start)
        w.call(f, w.x)


@program("effects")
def text_is_collected(w):
    lines = []

    @w.trace
    def f(x, name):
        lines.append("{:>6}|{}".format(name, "%s-%d" % (name, len(lines))))  # noqa: UP031
        return x * 2, "\n".join(lines)

    w.see(lines=lines)
    for name in w.rounds("a", "bb", "a"):
        lines.clear()
        w.call(f, w.x, name)


@program("effects")
def str_format_reads_attributes(w):
    thing = types.SimpleNamespace(scale=1, items=[1])
    template = "{0.scale} {0.items[0]} {1!r}"
    f = w.trace(lambda x: (x * 2, template.format(thing, thing.items)))
    for thing.scale, thing.items[0] in w.rounds((1, 1), (2, 1), (2, 3)):
        w.call(f, w.x)


@program("effects")
def percent_with_a_tuple_of_objects(w):
    class Thing:
        def __str__(self):
            return text

    thing, text = Thing(), "a"
    f = w.trace(lambda x: (x * 2, "%s and %s" % (thing, 1)))  # noqa: UP031
    for text in w.rounds("a", "b", "a"):
        w.call(f, w.x)


@program("effects")
def a_format_of_ones_own(w):
    class Thing:
        def __format__(self, spec):
            return f"{value}{spec}"

    thing, value = Thing(), 1
    f = w.trace(lambda x: (x * 2, f"{thing:abc} {thing!s:.0}"))
    for value in w.rounds(1, 2, 1):
        w.call(f, w.x)
