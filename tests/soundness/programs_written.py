"""Programs that write lists, dicts, sets and other containers, and give them back."""

from __future__ import annotations

import collections

from battery import program


@program("containers")
def a_dict_of_tensors_is_given(w):
    f = w.trace(lambda batch: sum(v * 2 for v in batch.values()))
    for batch in w.rounds({"a": w.x}, {"a": w.x, "b": w.x}, {"b": w.x}):
        w.call(f, batch)


@program("containers")
def the_order_of_a_given_dict_shows(w):
    f = w.trace(lambda batch: [v * 2 for v in batch.values()])
    y = w.x + 1
    for batch in w.rounds({"a": w.x, "b": y}, {"b": y, "a": w.x}, {"a": y, "b": w.x}):
        w.call(f, batch)


@program("containers")
def a_given_list_is_appended_to(w):
    @w.trace
    def f(x, out):
        out.append(x * len(out))
        return len(out)

    for out in w.rounds([], [0], []):
        out = list(out)
        w.call(f, w.x, out)


@program("containers")
def a_captured_list_is_appended_to(w):
    out = []

    @w.trace
    def f(x):
        out.append(x * 2)
        return out[-1]

    w.see(out=out)
    for out[:] in w.rounds([], [1, 2]):
        w.call(f, w.x)


@program("containers")
def appended_then_measured(w):
    out = []

    @w.trace
    def f(x):
        before = len(out)
        out.append(1.0)
        out.append(2.0)
        return x * len(out) - before

    w.see(out=out)
    for out[:] in w.rounds([], [1.0], []):
        w.call(f, w.x)


@program("containers")
def a_key_is_written_then_the_length_read(w):
    seen = {}

    @w.trace
    def f(x):
        seen["here"] = 1.0
        return x * len(seen)

    w.see(seen=seen)
    for content in w.rounds({}, {"here": 0}, {"there": 0}, {}):
        seen.clear()
        seen.update(content)
        w.call(f, w.x)


@program("containers")
def a_key_is_written_and_the_order_shows(w):
    seen = {}

    @w.trace
    def f(x):
        seen["b"] = 2
        return x * 2, list(seen)

    w.see(seen=seen)
    for content in w.rounds({}, {"b": 0, "a": 1}, {"a": 0}, {}):
        seen.clear()
        seen.update(content)
        w.call(f, w.x)


@program("containers")
def setdefault_keeps_what_is_there(w):
    cache = {}
    f = w.trace(lambda x: x * cache.setdefault("scale", 2.0))
    w.see(cache=cache)
    for content in w.rounds({}, {"scale": 3.0}, {"scale": 2.0}):
        cache.clear()
        cache.update(content)
        w.call(f, w.x)


@program("containers")
def pops_until_empty(w):
    stack = []

    @w.trace
    def f(x):
        return x * stack.pop() if stack else x

    w.see(stack=stack)
    for stack[:] in w.rounds([1.0, 2.0], [3.0], []):
        w.call(f, w.x)


@program("containers")
def a_memo_dictionary(w):
    memo = {}

    @w.trace
    def f(x, key):
        if key not in memo:
            memo[key] = x * len(key)
        return memo[key] + 1

    w.see(memo=memo)
    for key in w.rounds("a", "bb", "a"):
        w.call(f, w.x, key)


@program("containers")
def a_list_is_sorted_and_reversed_in_place(w):
    values = [2.0, 1.0]

    @w.trace
    def f(x):
        values.sort()
        values.reverse()
        return x * values[0]

    w.see(values=values)
    for values[:] in w.rounds([2.0, 1.0], [1.0, 5.0, 3.0], [2.0, 1.0]):
        w.call(f, w.x)


@program("containers")
def slices_are_assigned_and_deleted(w):
    values = [1.0, 2.0, 3.0]

    @w.trace
    def f(x):
        values[1:] = [x, 4.0]
        del values[0]
        return len(values)

    w.see(values=values)
    for values[:] in w.rounds([1.0, 2.0, 3.0], [5.0], [1.0, 2.0, 3.0]):
        w.call(f, w.x)


@program("containers")
def a_set_is_changed_in_place(w):
    seen = set()

    @w.trace
    def f(x, key):
        seen.add(key)
        seen.discard("gone")
        return x * len(seen)

    w.see(seen=seen)
    for key, content in w.rounds(("a", set()), ("a", {"gone"}), ("b", {"a"}), ("a", set())):
        seen.clear()
        seen.update(content)
        w.call(f, w.x, key)


@program("containers")
def a_dict_is_updated_and_merged(w):
    totals = {"a": 1}

    @w.trace
    def f(x):
        totals.update(b=len(totals))
        return x * 2, totals | {"c": 3}

    w.see(totals=totals)
    for content in w.rounds({"a": 1}, {"a": 1, "z": 2}, {"b": 7}):
        totals.clear()
        totals.update(content)
        w.call(f, w.x)


@program("containers")
def augmented_assignment_changes_a_list(w):
    values = [1.0]

    @w.trace
    def f(x, held):
        held += [2.0]
        held *= 2
        return x * len(held), held

    w.see(values=values)
    for values[:] in w.rounds([1.0], [], [1.0]):
        w.call(f, w.x, values)


@program("containers")
def a_captured_list_is_returned(w):
    held = [1.0]
    f = w.trace(lambda x: (x * 2, held))
    w.see(held=held)
    for held[0] in w.rounds(1.0, 2.0):
        w.call(f, w.x)


@program("containers")
def a_given_list_is_returned(w):
    f = w.trace(lambda x, given: (x * given[0], given))
    given = [1.0]
    for given[0] in w.rounds(1.0, 2.0, 1.0):
        w.call(f, w.x, given)


@program("containers")
def a_new_list_holds_a_captured_one(w):
    inner = [1.0]
    f = w.trace(lambda x: [inner, inner, [x * 2]])
    w.see(inner=inner)
    for inner[:] in w.rounds([1.0], [2.0, 3.0]):
        w.call(f, w.x)


@program("containers")
def a_list_that_holds_itself(w):
    scale = 1.0

    @w.trace
    def f(x):
        made = [x * scale]
        made.append(made)
        return made

    for scale in w.rounds(1.0, 2.0):
        w.call(f, w.x)


@program("containers")
def a_queue_is_taken_from_and_filled(w):
    queue = collections.deque(maxlen=3)

    @w.trace
    def f(x):
        queue.append(len(queue))
        return x * sum(queue)

    w.see(queue=queue)
    for forget in w.rounds(True, False, True):
        if forget:
            queue.clear()
        w.call(f, w.x)


@program("containers")
def changed_while_it_is_iterated(w):
    values = [1.0, 2.0]

    @w.trace
    def f(x):
        for value in values:
            if len(values) < 4:
                values.append(value + 2)
            x = x + value
        return x

    w.see(values=values)
    for values[:] in w.rounds([1.0, 2.0], [1.0], []):
        w.call(f, w.x)


@program("containers")
def a_comparison_of_ones_own_inside_a_list(w):
    class Odd:
        def __eq__(self, other):
            return answer

        __hash__ = None

    answer = True
    things = [Odd()]
    f = w.trace(lambda x: x * 2 if 5 in things else x * 3)
    for answer in w.rounds(True, False, True):
        w.call(f, w.x)


@program("containers")
def a_hash_of_ones_own_in_a_dict(w):
    class Key:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 1

        def __eq__(self, other):
            return self.n == other.n

    key = Key(1)
    held = {Key(1): 2.0, Key(2): 3.0}
    f = w.trace(lambda x: x * held[key])
    for key.n in w.rounds(1, 2, 1):
        w.call(f, w.x)
