"""Programs of generators and iterators, made inside, captured and given."""

from __future__ import annotations

import functools
import itertools

from battery import program

scale = 2.0


# ---- generators --------------------------------------------------------------------------------------------
@program("generators", jax=True)
def a_generator_reads_a_global_between_yields(w):
    def steps(x):
        yield x * scale
        yield x + scale

    f = w.trace(lambda x: sum(steps(x)))
    global scale
    for scale in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("generators", jax=True)
def a_generator_whose_length_depends(w):
    def steps(n):
        for i in range(n):
            yield i + 0

    count = 2
    f = w.trace(lambda x: [x * i for i in steps(count)])
    for count in w.rounds(2, 0, 3, 2):
        w.call(f, w.x)


@program("generators")
def values_are_sent(w):
    def averages():
        total, count, sent = 0.0, 0, None
        while True:
            sent = yield sent
            total, count = total + sent * factor, count + 1
            print(count)

    factor = 1.0

    @w.trace
    def f(x):
        running = averages()
        next(running)
        return x * running.send(2.0), x * running.send(3.0)

    for factor in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x * factor)


@program("generators", jax=True)
def yield_from_two_levels(w):
    def inner():
        got = yield factor
        return (got or 1.0) * factor

    def outer():
        returned = yield from inner()
        yield returned

    factor = 2.0
    f = w.trace(lambda x: [x * v for v in outer()])
    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


@program("generators")
def thrown_through_yield_from(w):
    def inner():
        try:
            yield 1.0
        except kind as error:
            print("inner", error)
            yield 5.0
        finally:
            print("left")

    def outer():
        try:
            yield from inner()
        except ValueError:
            yield 7.0

    kind = ValueError

    @w.trace
    def f(x):
        g = outer()
        first = next(g)
        second = g.throw(ValueError("thrown"))
        g.close()
        return x * first + second

    for kind in w.rounds(ValueError, KeyError, ValueError):
        w.call(f, w.x)


@program("generators")
def closed_early(w):
    def steps(x):
        try:
            yield x * 1
            yield x * 2
        finally:
            events.append(tag)

    events, tag = [], "a"

    @w.trace
    def f(x):
        for step in steps(x):
            break
        return step

    w.see(events=events)
    for tag in w.rounds("a", "b"):
        events.clear()
        w.call(f, w.x * len(tag + tag))


@program("generators")
def a_captured_generator_runs_on(w):
    def numbers():
        value = start
        while True:
            yield value
            value += 1.0

    start = 1.0
    running = numbers()
    f = w.trace(lambda x: x * next(running))
    for start in w.rounds(1.0, 10.0):
        running = numbers()
        w.call(f, w.x)


@program("generators")
def a_given_generator_is_used_up(w):
    f = w.trace(lambda x, values: sum(x * v for v in values))
    for values in w.rounds((1.0, 2.0), (3.0,), ()):
        w.once(f, w.x, (v for v in values))
        w.once(f, w.x, (v for v in values))


@program("generators")
def a_generator_is_returned(w):
    @w.trace
    def f(x):
        return (x * scale for _ in range(2))

    global scale
    for scale in w.rounds(2.0, 3.0):
        w.once(lambda: list(f(w.x)))
        w.once(lambda: list(f(w.x)))


@program("generators")
def a_generator_expression_reads_late(w):
    factors = [1.0]

    @w.trace
    def f(x):
        made = (x * v for v in factors)
        factors.append(2.0)
        return list(made)

    w.see(factors=factors)
    for factors[:] in w.rounds([1.0], [], [1.0, 4.0]):
        w.call(f, w.x)


@program("generators", jax=True)
def the_return_value_of_a_generator(w):
    def steps():
        yield 1.0
        return factor

    factor = 2.0

    @w.trace
    def f(x):
        running = steps()
        next(running)
        try:
            next(running)
        except StopIteration as stop:
            return x * stop.value

    for factor in w.rounds(2.0, 3.0, 2.0):
        w.call(f, w.x)


# ---- iterators ---------------------------------------------------------------------------------------------
@program("iterators", jax=True)
def zip_and_enumerate(w):
    left, right = [1.0, 2.0], [3.0, 4.0]

    @w.trace
    def f(x):
        pairs = list(zip(left, right))
        for i, (a, b) in enumerate(pairs, 1):
            x = x * a + b * i
        return x, pairs

    for left[:], right[:] in w.rounds(([1.0, 2.0], [3.0, 4.0]), ([2.0], [3.0, 4.0]), ([2.0, 2.0], [3.0])):
        w.call(f, w.x)


@program("iterators")
def an_iterator_is_drawn_from_twice(w):
    values = iter(())

    @w.trace
    def f(x):
        return x * next(values, 5.0) + next(values, 7.0)

    for held in w.rounds((1.0, 2.0, 3.0), (4.0,), ()):
        values = iter(held)
        w.call(f, w.x)


@program("iterators")
def an_iterator_is_shared_with_the_outside(w):
    values = [iter(())]

    @w.trace
    def f(x):
        return x * next(values[0], 5.0)

    for held in w.rounds((1.0, 2.0, 3.0, 4.0), (4.0, 5.0)):
        values[0] = iter(held)
        w.once(f, w.x)
        next(values[0], None)
        w.once(f, w.x)


@program("iterators", jax=True)
def itertools_chain(w):
    first, second = [1.0], [2.0]
    f = w.trace(lambda x: [x * v for v in itertools.chain(first, second, itertools.repeat(3.0, len(first)))])
    for first[:], second[:] in w.rounds(([1.0], [2.0]), ([], [2.0]), ([1.0, 4.0], []), ([1.0], [2.0])):
        w.call(f, w.x)


@program("iterators", jax=True)
def map_and_filter_with_functions(w):
    factor, values = 2.0, [1.0, -1.0, 2.0]

    def scaled(v):
        return v * factor

    f = w.trace(lambda x: [x * v for v in map(scaled, filter(lambda v: v > low, values))])
    low = 0.0
    for factor, low in w.rounds((2.0, 0.0), (3.0, 0.0), (3.0, -2.0), (2.0, 0.0)):
        w.call(f, w.x)


@program("iterators", jax=True)
def reduce_with_a_function(w):
    factor, values = 2.0, [1.0, 2.0, 3.0]
    f = w.trace(lambda x: functools.reduce(lambda a, v: a * factor + v, values, x))
    for factor, values[0] in w.rounds((2.0, 1.0), (3.0, 1.0), (3.0, 5.0)):
        w.call(f, w.x)


@program("iterators", jax=True)
def iter_with_a_sentinel(w):
    state = {"n": 0}
    stop = 2

    def step():
        state["n"] += 1
        return state["n"]

    @w.trace
    def f(x):
        for n in iter(step, stop):
            x = x * (n + 1)
        return x * 1.0

    w.see(state=state)
    for stop in w.rounds(2, 4, 2):
        for _ in range(2):
            state["n"] = 0
            w.once(f, w.x)


@program("iterators", jax=True)
def reversed_and_slices(w):
    values = [1.0, 2.0, 3.0]
    f = w.trace(
        lambda x: [x * v for v in reversed(values)] + [x + v for v in itertools.islice(values, 1, None)]
    )
    for values[:] in w.rounds([1.0, 2.0, 3.0], [3.0, 2.0], [1.0, 5.0, 3.0]):
        w.call(f, w.x)


@program("iterators", jax=True)
def products_and_groups(w):
    values = [1, 1, 2]

    @w.trace
    def f(x):
        groups = [(k, len(list(g))) for k, g in itertools.groupby(values)]
        return [x * a * b for a, b in itertools.product(values[:1], values[1:])], groups

    for values[:] in w.rounds([1, 1, 2], [2, 1, 1], [1, 2, 2]):
        w.call(f, w.x)


@program("iterators", jax=True)
def a_class_with_next(w):
    class Countdown:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            return self

        def __next__(self):
            if self.n <= low:
                raise StopIteration
            self.n -= 1
            return self.n

    low = 0
    f = w.trace(lambda x: [x * n for n in Countdown(3)])
    for low in w.rounds(0, 1, 3, 0):
        w.call(f, w.x)
