"""Programs of numbers that change at every call: lifted to inputs of a graph, they stay Python's numbers."""

from __future__ import annotations

import math
import types

from battery import lib as t
from battery import program


@program("scalars", jax=True)
def a_step_counter_is_multiplied(w):
    step = 0
    f = w.trace(lambda x: x * step)
    for step in w.rounds(*range(6)):
        w.call(f, w.x)


@program("scalars", jax=True)
def a_learning_rate_decays(w):
    rate = 1.0
    f = w.trace(lambda x: x - rate * 0.5 * x)
    for rate in w.rounds(1.0, 0.5, 0.25, 0.125, 0.0625):
        w.call(f, w.x)


@program("scalars", jax=True)
def a_number_is_given_each_time(w):
    f = w.trace(lambda x, n: x * n + 1)
    for n in w.rounds(1.0, 2.5, -3.0, 4.0, 0.0):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def an_int_is_given_each_time(w):
    f = w.trace(lambda x, n: x * n + n // 2)
    for n in w.rounds(1, 2, 7, -3, 0):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def a_number_is_returned_with_its_type(w):
    f = w.trace(lambda x, n: (x * n, n, n + 1, n / 2, -n, [n]))
    for n in w.rounds(1, 2, 3, 4, 5):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def an_int_becomes_a_float_and_a_bool(w):
    f = w.trace(lambda x, n: (x * n, n))
    for n in w.rounds(1, 2, 3, 3.0, True, 4, False, 5.0):
        w.call(f, w.x, n)


@program("scalars")
def an_int_tensor_times_a_changing_number(w):
    i = t.tensor([1, 2, 3, 4])
    f = w.trace(lambda x, n: x * n)
    for n in w.rounds(1, 2, 3, 2.5, 4, True):
        w.call(f, i, n)


@program("scalars", jax=True)
def a_comparison_chooses_the_branch(w):
    f = w.trace(lambda x, n: x * n if n > 2 else x - n)
    for n in w.rounds(1.0, 1.5, 1.75, 3.0, 4.0, 2.0):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def equality_is_met_once(w):
    f = w.trace(lambda x, n: x * 100 if n == 4 else x * n)
    for n in w.rounds(1, 2, 3, 4, 5):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def every_third_call_does_more(w):
    step = 0
    f = w.trace(lambda x: x * step + 10 if step % 3 == 0 else x * step)
    for step in w.rounds(*range(1, 8)):
        w.call(f, w.x)


@program("scalars", jax=True)
def a_number_decides_how_often(w):
    @w.trace
    def f(x, n):
        for _ in range(n):
            x = x * 2
        return x

    for n in w.rounds(1, 2, 3, 1):
        w.call(f, w.x, n)


@program("scalars")
def a_number_decides_the_shape(w):
    f = w.trace(lambda x, n: (x[:n] * 2, t.ones(n)))
    for n in w.rounds(1, 2, 3, 4):
        w.call(f, w.x, n)


@program("scalars")
def a_number_is_an_index(w):
    f = w.trace(lambda x, n: x[n] * 2)
    for n in w.rounds(0, 1, 2, 3, -1):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def a_number_indexes_a_list(w):
    table = [1.0, 2.0, 4.0, 8.0]
    f = w.trace(lambda x, n: x * table[n])
    for n in w.rounds(0, 1, 2, 3):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def a_number_is_a_key(w):
    table = {1: 1.0, 2: 2.0, 3: 5.0}
    f = w.trace(lambda x, n: x * table.get(n, 0.5))
    for n in w.rounds(1, 2, 3, 4):
        w.call(f, w.x, n)


@program("scalars")
def a_number_is_stored(w):
    held = types.SimpleNamespace(last=0)

    @w.trace
    def f(x, n):
        held.last = n
        return x * n

    w.see(held=held)
    for n in w.rounds(1, 2, 3, 4, 5):
        w.call(f, w.x, n)


@program("scalars")
def a_number_is_a_stored_key(w):
    seen = {}

    @w.trace
    def f(x, n):
        seen[n] = n * 2
        return x * n

    w.see(seen=seen)
    for n in w.rounds(1, 2, 3, 4, 5):
        w.call(f, w.x, n)


@program("scalars")
def a_number_is_printed(w):
    @w.trace
    def f(x, n):
        print(n, f"{n:.2f}", str(n), repr(n))
        return x * n

    for n in w.rounds(1.0, 2.0, 3.5, 1.0):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def a_number_goes_through_math(w):
    f = w.trace(lambda x, n: x * math.sqrt(n) + math.floor(n) + int(n) + round(n) + abs(-n))
    for n in w.rounds(1.0, 2.25, 4.0, 6.25, 9.0):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def bias_corrections_of_adam(w):
    step = 0
    f = w.trace(lambda x: x / (1 - 0.9**step) + math.sqrt(1 - 0.999**step))
    for step in w.rounds(*range(1, 7)):
        w.call(f, w.x)


@program("scalars", jax=True)
def a_cosine_schedule(w):
    step, total = 0, 10
    f = w.trace(lambda x: x * (0.5 * (1 + math.cos(math.pi * step / total))))
    for step in w.rounds(*range(6)):
        w.call(f, w.x)


@program("scalars", jax=True)
def zero_of_both_signs(w):
    f = w.trace(lambda x, n: (x * 0 + 1) / (x * 0 + n))
    for n in w.rounds(1.0, 2.0, 3.0, 0.0, -0.0, 4.0):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def not_a_number_and_infinities(w):
    f = w.trace(lambda x, n: (x * n, n != n, n > 1))
    for n in w.rounds(1.0, 2.0, 3.0, float("nan"), float("inf"), -float("inf")):
        w.call(f, w.x, n)


@program("scalars")
def an_int_larger_than_64_bits(w):
    f = w.trace(lambda x, n: x * (n % 7))
    for n in w.rounds(1, 2, 3, 2**70, 2**70 + 1):
        w.call(f, w.x, n)


@program("scalars")
def python_arithmetic_in_double(w):
    f = w.trace(lambda x, n: x * ((n + 1e16) - 1e16))
    for n in w.rounds(1.0, 2.0, 3.0, 4.0, 5.0):
        w.call(f, w.x, n)


@program("scalars")
def integer_arithmetic_without_overflow(w):
    f = w.trace(lambda x, n: x * ((n * 10**18 * 1000) // 10**20))
    for n in w.rounds(1, 2, 3, 4, 5):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def floor_division_and_remainder_of_negatives(w):
    f = w.trace(lambda x, n: x * (n // 3) + (n % 3) + divmod(n, 4)[0])
    for n in w.rounds(-5, -4, 4, 5, -1):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def division_of_a_changing_number_by_zero(w):
    @w.trace
    def f(x, n):
        try:
            return x * (1.0 / n)
        except ZeroDivisionError:
            return x - 1

    for n in w.rounds(1.0, 2.0, 4.0, 0.0, 8.0):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def a_power_with_a_changing_exponent(w):
    f = w.trace(lambda x, n: x**n + 2**n)
    for n in w.rounds(1, 2, 3, 4):
        w.call(f, w.x, n)


@program("scalars")
def a_changing_number_fills_a_tensor(w):
    f = w.trace(lambda x, n: t.full((4,), n) + x)
    for n in w.rounds(1.0, 2.0, 3.0, 4, 5.0):
        w.call(f, w.x, n)


@program("scalars")
def a_changing_number_becomes_a_tensor(w):
    f = w.trace(lambda x, n: t.tensor([n, 2 * n, 0.0, 1.0]) * x)
    for n in w.rounds(1.0, 2.0, 3.0, 4.0):
        w.call(f, w.x, n)


@program("scalars")
def a_changing_number_is_an_argument_of_an_op(w):
    f = w.trace(lambda x, n: t.clamp(x, -n, n) + t.add(x, x, alpha=n))
    for n in w.rounds(1.0, 2.0, 0.5, 3.0):
        w.call(f, w.x, n)


@program("scalars")
def a_changing_dimension(w):
    f = w.trace(lambda x, n: x.sum(n) * 2)
    for n in w.rounds(0, 1, -1, 0):
        w.call(f, w.m, n)


@program("scalars", jax=True)
def two_numbers_that_are_sometimes_one(w):
    f = w.trace(lambda x, a, b: x * a + b if a is not b else x - a)
    big = 12345.0
    for a, b in w.rounds((1.5, big), (2.5, big), (big, big), (3.5, big)):
        w.call(f, w.x, a, b)


@program("scalars", jax=True)
def the_truth_of_a_changing_number(w):
    f = w.trace(lambda x, n: x * n if n else x - 1)
    for n in w.rounds(1, 2, 3, 0, 4):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def a_number_in_a_tuple_and_a_chain(w):
    f = w.trace(lambda x, n: x * 2 if n in (2, 4) else x * 3 if 0 < n <= 3 else x * n)
    for n in w.rounds(1, 2, 3, 4, 5):
        w.call(f, w.x, n)


@program("scalars", jax=True)
def the_maximum_of_a_number_and_a_bound(w):
    f = w.trace(lambda x, n: x * max(n, 2.0) + min(n, 3.0))
    for n in w.rounds(1.0, 1.5, 2.5, 3.5, 2.0):
        w.call(f, w.x, n)


@program("scalars")
def a_number_asked_for_methods(w):
    f = w.trace(lambda x, n: x * n.as_integer_ratio()[0] + n.is_integer() + len(n.hex()))
    for n in w.rounds(1.0, 2.5, 3.0, 4.25):
        w.call(f, w.x, n)


@program("scalars")
def counting_in_an_attribute(w):
    state = types.SimpleNamespace(step=0)

    @w.trace
    def f(x):
        state.step += 1
        return x * state.step

    w.see(state=state)
    for state.step in w.rounds(0, 100):
        w.call(f, w.x)


@program("scalars")
def counting_and_warming_up(w):
    state = types.SimpleNamespace(step=0)

    @w.trace
    def f(x):
        state.step += 1
        return x * min(1.0, state.step / 10) if state.step < 10 else x

    w.see(state=state)
    for state.step in w.rounds(0, 7, 50):
        w.call(f, w.x)


@program("scalars")
def a_counter_that_is_read_back_as_text(w):
    state = {"step": 0}

    @w.trace
    def f(x):
        state["step"] += 1
        return x * 2, f"step {state['step']}"

    w.see(state=state)
    for state["step"] in w.rounds(0, 100):
        w.call(f, w.x)


@program("scalars", jax=True)
def a_complex_number(w):
    f = w.trace(lambda x, z: x * z.real + z.imag)
    for z in w.rounds(1 + 2j, 2 + 2j, 3 - 1j, 1j):
        w.call(f, w.x, z)


@program("scalars", jax=True)
def bits_of_a_changing_number(w):
    f = w.trace(lambda x, n: x * (n & 3) + (n >> 1) - (n ^ 5) + n.bit_length())
    for n in w.rounds(1, 2, 3, 4, 5):
        w.call(f, w.x, n)
