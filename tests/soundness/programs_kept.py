"""Programs of functions that keep what they returned (functools.cache, lru_cache), of data that tensors are
given, of states that are carried along, and of parts of tensors at places that change."""

from __future__ import annotations

import functools

from battery import lib as t
from battery import program
from networks import linear


# ---- what functools keeps ----------------------------------------------------------------------------------
def kept(w, size, change, *, typed=False, given=((3,), (4.0,), (3,))):
    """A function of this library's with a limit, whose inside and whose table the rounds change."""
    calls = []

    @functools.lru_cache(size, typed)
    def scale(n, more=0):
        calls.append(n)
        return [n * inside.factor + more]

    class inside:
        factor = 2.0

    f = w.trace(lambda x, *args, **named: x * scale(*args, **named)[0])
    w.see(calls=calls)
    for at, args in enumerate(w.rounds(*given)):
        change(at, scale, inside)
        w.call(f, w.x, *args)
        w.see(info=str(scale.cache_info()))


@program("kept")
def a_cache_is_cleared(w):
    kept(w, None, lambda at, scale, inside: at % 4 or scale.cache_clear())


@program("kept")
def a_cache_is_cleared_and_its_inside_changes(w):
    def change(at, scale, inside):
        inside.factor += 1.0
        if at % 3 == 2:
            scale.cache_clear()

    kept(w, 8, change)


@program("kept")
def a_cache_is_filled_again_before_a_call(w):
    def change(at, scale, inside):
        if at % 4 == 3:
            inside.factor += 1.0
            scale.cache_clear()
            scale(3), scale(4.0)

    kept(w, None, change)


@program("kept")
def a_cache_of_one_is_filled_by_others(w):
    def change(at, scale, inside):
        if at % 3 == 2:
            scale(17)
            inside.factor += 1.0

    kept(w, 1, change, given=((3,), (3,)))


@program("kept")
def a_cache_of_two_drops_the_oldest(w):
    def change(at, scale, inside):
        inside.factor += 1.0
        if at % 5 == 4:
            scale(17)

    kept(w, 2, change, given=((3,), (4,), (3,), (5,)))


@program("kept")
def what_a_cache_keeps_is_written(w):
    def change(at, scale, inside):
        if at % 3 == 2:
            scale(3)[0] += 1.0

    kept(w, 4, change, given=((3,), (3,)))


@program("kept")
def a_cache_tells_types_apart(w):
    kept(w, 4, lambda at, scale, inside: None, typed=True, given=((3,), (3.0,), (True,), (1,)))


@program("kept")
def a_cache_finds_equal_numbers(w):
    kept(w, 4, lambda at, scale, inside: None, given=((1,), (1.0,), (True,), (1,)))


@program("kept")
def a_cache_is_given_names(w):
    @functools.cache
    def scale(n, more=0):
        return n * inside["factor"] + more

    inside = {"factor": 2.0}
    f = w.trace(lambda x, **named: x * scale(3, **named))
    for at, named in enumerate(w.rounds({}, {"more": 1}, {"more": 1.0}, {})):
        inside["factor"] += 1.0
        if at % 5 == 4:
            scale.cache_clear()
        w.call(f, w.x, **named)
        w.see(info=str(scale.cache_info()))


@program("kept")
def a_cache_keeps_a_tensor(w):
    @functools.cache
    def mask(n):
        return t.arange(float(n)) * inside["factor"]

    inside = {"factor": 2.0}
    f = w.trace(lambda x: x * mask(4))
    for at, n in enumerate(w.rounds(1.0, 2.0)):
        if at % 4 == 3:
            mask(4).mul_(n)
        if at % 5 == 4:
            inside["factor"] += 1
            mask.cache_clear()
        w.call(f, w.x)


@program("kept")
def a_cache_of_an_object(w):
    class Table:
        def __init__(self, factor):
            self.factor = factor

        @functools.lru_cache(4)  # noqa: B019 - as people write it
        def scale(self, n):
            return self.factor * n

    tables = [Table(2.0), Table(3.0)]
    held = {"table": tables[0]}
    f = w.trace(lambda x: x * held["table"].scale(2))
    for which in w.rounds(0, 1, 0):
        held["table"] = tables[which]
        w.call(f, w.x)
        tables[which].factor += 1.0


@program("kept")
def a_cached_function_is_replaced(w):
    def made(factor):
        return functools.cache(lambda n: n * factor)

    scale = made(2.0)
    f = w.trace(lambda x: x * scale(3))
    for factor in w.rounds(2.0, 3.0):
        if factor == 3.0:
            scale = made(factor)
        w.call(f, w.x)


# ---- data that tensors are given ---------------------------------------------------------------------------
@program("kept")
def a_parameter_is_given_other_data(w):
    net = linear()
    old = net.weight.detach()

    @w.trace
    def f(x, tau):
        net.weight.data = tau * net.weight.data + 1
        return net(x)

    w.see(old=old)
    for tau in w.rounds(0.5, 0.25, 1.0):
        w.call(f, w.x, tau)
        w.see(weight=net.weight, requires=net.weight.requires_grad)


@program("kept")
def data_that_are_given_and_returned_are_one(w):
    p = t.zeros(4)

    @w.trace
    def f(x):
        y = x * 2
        p.data = y
        return y

    for factor in w.rounds(1.0, 2.0):
        w.call(lambda x: f(x).add_(1), w.x * factor)
        w.see(p=p)


@program("kept")
def data_of_two_become_one(w):
    p, q = t.zeros(4), t.ones(4)

    @w.trace
    def f(x):
        y = x * 2
        p.data = y
        q.data = y
        return x + p

    for factor in w.rounds(1.0, 2.0):
        w.call(f, w.x * factor)
        p.add_(1)
        w.see(p=p, q=q)


# ---- states that are carried along -------------------------------------------------------------------------
@program("kept")
def a_state_is_detached_before_it_is_used(w):
    p, state = t.ones(4).requires_grad_(), {"h": t.zeros(4)}

    @w.trace
    def f(x, detached):
        h = state["h"].detach() if detached else t.zeros(4)
        state["h"] = t.tanh(h * p + x)
        p.grad = None
        state["h"].sum().backward()
        return p.grad

    for detached in w.rounds(True, False, True):
        w.call(f, w.x, detached)
        w.see(h=state["h"], requires=state["h"].requires_grad)


@program("kept")
def a_state_with_a_history_is_gone_back_from(w):
    p, state = t.ones(4).requires_grad_(), {}

    @w.trace
    def f(x):
        y = (state["h"] * x).sum()
        y.backward()
        return y

    for factor in w.rounds(2.0, 3.0):
        p.grad = None
        state["h"] = p * factor
        w.call(f, w.x)
        w.see(grad=p.grad)


# ---- parts at places that change ---------------------------------------------------------------------------
@program("kept")
def a_part_is_returned(w):
    whole = t.arange(12.0).reshape(3, 4)
    f = w.trace(lambda i: whole[i])
    w.see(whole=whole)
    for i in w.rounds(0, 1, 2, 1):
        w.call(lambda i: f(i).mul_(2), i)


@program("kept")
def a_part_is_written(w):
    whole = t.arange(12.0).reshape(3, 4)

    @w.trace
    def f(x, i):
        whole[i] += x
        y = whole[i]
        whole.mul_(0.5)
        return y + x

    w.see(whole=whole)
    for i in w.rounds(0, 1, 2, 1):
        w.call(f, w.x, i)


@program("kept")
def a_part_is_read(w):
    whole, counter = t.arange(24.0).reshape(6, 4), {"at": 0}

    @w.trace
    def f(x, i):
        counter["at"] += 1
        batch = whole[i : i + 2]
        return batch[1] * x + whole[counter["at"] % 6], whole[i, -1]

    for i in w.rounds(0, 1, 2, 3, 4):
        w.call(f, w.x, i)


@program("kept")
def a_part_is_kept_in_a_list(w):
    whole, rows = t.arange(12.0).reshape(3, 4), []

    @w.trace
    def f(x, i):
        rows.append(whole[i])
        return whole[i] * x

    for i in w.rounds(0, 1, 2, 1):
        w.call(f, w.x, i)
        rows[-1].add_(1)
        w.see(whole=whole)


@program("kept")
def a_place_out_of_range(w):
    whole = t.arange(12.0).reshape(3, 4)

    @w.trace
    def f(x, i):
        try:
            return whole[i] * x
        except IndexError:
            return x

    for i in w.rounds(0, 1, 5, -3, 2):
        w.call(f, w.x, i)


@program("kept")
def a_slice_with_a_place_is_kept(w):
    whole, held = t.arange(12.0), []

    @w.trace
    def f(x, i):
        where = slice(i, i + 4)
        held.append(where)
        return whole[where] * x, where.start + where.stop

    for i in w.rounds(0, 1, 2, 3):
        w.call(f, w.x, i)
        w.see(held=str(held))
