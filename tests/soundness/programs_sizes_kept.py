"""Programs whose arguments change their sizes: what is kept between the calls, gradients, handled errors.

programs_sizes.py has those that compute with sizes, programs_sizes_modules.py those that train.
"""

from __future__ import annotations

import dataclasses

from battery import lib as t
from battery import program
from sized import ROWS, data_of, sized

nn, F = t.nn, t.nn.functional
data = data_of(t)


def rows(n):
    return n, 3


def line(n):
    return (n,)


# ---- state -------------------------------------------------------------------------------------------------
class Holder:
    def __init__(self, **given):
        vars(self).update(given)


@program("sizes")
def the_last_size_is_remembered(w):
    state = Holder(last=0)
    w.see(state=state)

    def f(x):
        y = x * (x.shape[0] - state.last)
        state.last = x.shape[0]
        return y

    sized(w, f, rows)


@program("sizes")
def the_greatest_size_so_far(w):
    state = {"most": 2}
    w.see(state=state)

    def f(x):
        state["most"] = max(state["most"], len(x))
        return F.pad(x, (0, 0, 0, state["most"] - len(x)))

    def calls(sizes):
        traced = w.trace(f)
        for n in w.rounds(*sizes):
            if n == 4:
                state["most"] = 2
            w.once(traced, data(n, 3))

    calls((4, 3, 6, 5, 8, 2, 9))


@program("sizes")
def the_sum_of_all_sizes(w):
    state = Holder(seen=0, total=t.zeros(3))
    w.see(state=state)

    def f(x):
        state.seen += x.shape[0]
        state.total += x.sum(0)
        return state.total / state.seen

    sized(w, f, rows)


@program("sizes")
def a_running_mean_by_sizes(w):
    state = Holder(count=0, mean=t.zeros(3))
    w.see(state=state)

    def f(x):
        state.count += len(x)
        state.mean = state.mean + (x.mean(0) - state.mean) * (len(x) / state.count)
        return x - state.mean

    sized(w, f, rows)


@program("sizes")
def a_cache_grows_along_its_length(w):
    state = Holder(cache=None)
    w.see(state=state)

    @w.trace
    def f(x):
        state.cache = x if state.cache is None else t.cat([state.cache, x])
        return state.cache.mean(0), state.cache.shape[0]

    for n in w.rounds(3, 2, 4, 1, 1, 2, 5):
        if n == 3:
            state.cache = None
        w.once(f, data(n, 3))


@program("sizes")
def keys_and_values_are_appended(w):
    cache = {}
    w.see(cache=cache)

    @w.trace
    def step(q):
        k = t.cat([cache["k"], q], 1) if "k" in cache else q
        cache["k"] = k
        length = k.shape[1]
        mask = t.arange(length)[None] <= t.arange(length - q.shape[1], length)[:, None]
        return (q @ k.transpose(1, 2)).masked_fill(~mask, float("-inf")).softmax(-1) @ k

    for n in w.rounds(4, 1, 1, 1, 2, 1, 3):
        if n == 4:
            cache.clear()
        w.once(step, data(2, n, 4))


@program("sizes")
def a_list_that_grows(w):
    kept = []
    w.see(kept=kept)

    def f(x):
        kept.append(x.shape[0])
        if len(kept) > 3:
            del kept[0]
        return x * sum(kept)

    sized(w, f, rows)


@program("sizes")
def a_list_of_tensors_of_earlier_sizes(w):
    kept = []
    w.see(kept=kept)

    def f(x):
        kept.append(x.mean(0))
        del kept[:-2]
        return x - t.stack(kept).sum(0)

    sized(w, f, rows)


@program("sizes")
def the_argument_of_the_call_before(w):
    state = Holder(before=t.ones(2, 3))
    w.see(state=state)

    def f(x):
        k = min(x.shape[0], state.before.shape[0])
        y = x[:k] - state.before[:k]
        state.before = x
        return y

    sized(w, f, rows)


@program("sizes")
def a_mask_is_cut_to_the_size(w):
    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mask", t.tril(t.ones(9, 9)).bool())
            self.positions = t.arange(9.0)

        def forward(self, x):
            n = x.shape[0]
            scores = (x @ x.t()).masked_fill(~self.mask[:n, :n], float("-inf"))
            return scores.softmax(-1) @ x + self.positions[:n, None]

    sized(w, Causal(), rows)


@program("sizes")
def a_mask_is_made_anew_when_the_size_changes(w):
    state = Holder(mask=None)
    w.see(state=state)

    def f(x):
        n = x.shape[0]
        if state.mask is None or state.mask.shape[0] != n:
            state.mask = t.ones(n, n).triu(1) * -5.0
        return x @ x.t() + state.mask

    sized(w, f, rows)


@program("sizes")
def a_buffer_is_made_longer(w):
    state = Holder(table=t.arange(4.0))
    w.see(state=state)

    @w.trace
    def f(x):
        n = x.shape[0]
        if n > state.table.shape[0]:
            state.table = t.arange(float(2 * n))
        return x * state.table[:n, None], state.table.numel()

    for n in w.rounds(3, 2, 4, 6, 5, 8, 9, 7):
        if n == 3:
            state.table = t.arange(4.0)
        w.once(f, data(n, 3))


@program("sizes")
def a_buffer_is_written_up_to_the_size(w):
    buffer = t.zeros(9, 3)
    w.see(buffer=buffer)

    def f(x):
        n = x.shape[0]
        buffer[:n] = x
        buffer[n:] -= 1
        return buffer[: n // 2], buffer.sum()

    sized(w, f, rows)


@program("sizes")
def a_ring_that_is_written_at_a_place(w):
    state = Holder(at=0, ring=t.zeros(12, 3))
    w.see(state=state)

    @w.trace
    def f(x):
        n = x.shape[0]
        end = state.at + n
        if end > state.ring.shape[0]:
            state.at, end = 0, n
        state.ring[state.at : end] = x
        state.at = end
        return state.ring.sum(0), state.ring[:end].mean()

    for n in w.rounds(4, 3, 2, 5, 6, 1, 3):
        w.once(f, data(n, 3))


@program("sizes")
def a_closure_holds_a_size_of_another_call(w):
    made = []

    @w.trace
    def f(x):
        n = x.shape[0]
        y = made[-1](x) if made else x
        made[:] = [lambda z: z * n + z.shape[0]]
        return y, made[-1](x)

    for n in w.rounds(4, 6, 8, 5, 3, 2, 1, 9):
        w.once(f, data(n, 3))
        w.note(made[-1](t.ones(2)))


length = 4


@program("sizes")
def a_global_is_compared_with_a_size(w):
    global length

    @w.trace
    def f(x):
        return x[:length] * 2 if x.shape[0] >= length else x + length

    for n, length in w.rounds((4, 4), (6, 4), (8, 5), (5, 5), (3, 5), (7, 2), (2, 2), (9, 4)):
        w.once(f, data(n, 3))


@program("sizes")
def a_global_is_set_to_a_size(w):
    def f(x):
        global length
        y = x * length
        length = x.shape[0]
        return y, length

    w.see(length=lambda: length)
    sized(w, f, rows)


@program("sizes")
def a_tensor_remembers_a_size(w):
    held = t.ones(3)
    w.see(held=held)

    def f(x):
        x.rows = x.shape[0]
        held.rows = getattr(held, "rows", 0) + x.rows
        return x * held.rows

    sized(w, f, rows)


@program("sizes")
def a_record_that_is_replaced(w):
    @dataclasses.dataclass
    class State:
        hidden: object
        steps: int = 0

    state = Holder(now=State(t.zeros(3)))
    w.see(state=state)

    def f(x):
        state.now = dataclasses.replace(state.now, hidden=x[-1] + state.now.hidden * 0.5, steps=len(x))
        return state.now.hidden * state.now.steps

    sized(w, f, rows)


@program("sizes")
def a_generator_of_batches_inside(w):
    def batches(x, size):
        for at in range(0, x.shape[0], size):
            yield x[at : at + size]

    sized(w, lambda x: [part.mean(0) * len(part) for part in batches(x, 3)], rows)


# ---- gradients ---------------------------------------------------------------------------------------------
@program("sizes")
def a_backward_inside(w):
    weight = t.tensor([1.0, -2.0, 0.5], requires_grad=True)
    w.see(weight=weight)

    def f(x):
        weight.grad = None
        (x * weight).relu().sum(1).mean().backward()
        return weight.grad * x.shape[0]

    sized(w, f, rows)


@program("sizes")
def gradients_are_added_up_over_sizes(w):
    weight = t.tensor([1.0, -2.0, 0.5], requires_grad=True)
    w.see(weight=weight)

    @w.trace
    def f(x):
        (x @ weight).square().mean().backward()
        return weight.grad.clone()

    for n in w.rounds(4, 6, 8, 5, 3, 2, 1, 9):
        if n == 4:
            weight.grad = None
        w.once(f, data(n, 3))


@program("sizes")
def a_backward_outside(w):
    weight = t.tensor([1.0, -2.0, 0.5], requires_grad=True)
    w.see(weight=weight)
    f = w.trace(lambda x: (x * weight / x.shape[0], x[: x.shape[0] // 2] @ weight))
    for n in w.rounds(*ROWS):
        weight.grad = None
        x = data(n, 3).requires_grad_()
        w.once(f, x)
        y, z = f(x)
        (y.sum() * 2 + z.sum()).backward()
        w.note((y, z, x.grad, weight.grad))


@program("sizes")
def gradients_of_an_argument(w):
    def f(x):
        x = x.clone().requires_grad_()
        y = x[1:] * x[:-1]
        (grad,) = t.autograd.grad(y.sum() / max(1, y.shape[0]), x)
        return grad, y

    sized(w, f, rows)


@program("sizes")
def gradients_of_broadcasting(w):
    @w.trace
    def f(x, y):
        x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
        (x * y).sin().sum().backward()
        return x.grad, y.grad

    for a, b in w.rounds((4, 1), (6, 1), (8, 1), (8, 8), (5, 5), (1, 7), (1, 9), (1, 1), (6, 6)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def gradients_of_expansions_and_parts(w):
    @w.trace
    def f(x):
        n = x.shape[0]
        x = x.clone().requires_grad_()
        y = x[:1].expand(n, 3) + x.flip(0) + F.pad(x[: n // 2], (0, 0, 0, n - n // 2))
        z = t.cat([y, x[n // 3 :]]).cumsum(0)
        z[-1].sum().backward()
        return x.grad

    for n in w.rounds(*ROWS):
        w.once(f, data(n, 3))


@program("sizes")
def gradients_of_gradients(w):
    def f(x):
        x = x.clone().requires_grad_()
        (first,) = t.autograd.grad((x**3).mean(), x, create_graph=True)
        (second,) = t.autograd.grad(first.square().sum() * x.shape[0], x)
        return first, second

    sized(w, f, rows)


@program("sizes")
def a_gradient_that_is_given(w):
    def f(x):
        x = x.clone().requires_grad_()
        y = x.t() * 2
        y.backward(t.arange(float(x.numel())).view(3, -1))
        return x.grad

    sized(w, f, rows)


@program("sizes")
def hooks_that_look_at_shapes(w):
    seen = []
    w.see(seen=seen)

    def f(x):
        x = x.clone().requires_grad_()
        y = x * 2
        y.register_hook(lambda g: g * g.shape[0])
        x.register_hook(lambda g: seen.append(tuple(g.shape)))
        y.sum().backward()
        del seen[:-3]
        return x.grad

    sized(w, f, rows)


@program("sizes")
def a_function_of_its_own_keeps_sizes(w):
    class Mean(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.rows, ctx.shape = x.shape[0], x.shape
            return x.sum(0) / x.shape[0]

        @staticmethod
        def backward(ctx, g):
            return (g / ctx.rows).expand(ctx.shape)

    def f(x):
        x = x.clone().requires_grad_()
        y = Mean.apply(x)
        y.square().sum().backward()
        return y, x.grad

    sized(w, f, rows)


@program("sizes")
def a_function_of_its_own_that_saves_parts(w):
    class Halves(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x[: x.shape[0] // 2])
            return x * x.shape[0]

        @staticmethod
        def backward(ctx, g):
            (half,) = ctx.saved_tensors
            return g * g.shape[0] + F.pad(half, (0, 0, 0, g.shape[0] - half.shape[0]))

    def f(x):
        x = x.clone().requires_grad_()
        Halves.apply(x).sin().sum().backward()
        return x.grad

    sized(w, f, rows)


@program("sizes")
def parts_without_gradients(w):
    weight = t.tensor([1.0, -2.0, 0.5], requires_grad=True)
    w.see(weight=weight)

    def f(x):
        weight.grad = None
        with t.no_grad():
            scale = (x @ weight).abs().max() + x.shape[0]
        y = x * weight / scale
        y[: x.shape[0] // 2].sum().backward()
        with t.no_grad():
            weight[: min(x.shape[0], 3)] += 0.125
            weight[: min(x.shape[0], 3)] -= 0.125
        return y

    sized(w, f, rows)


@program("sizes")
def a_backward_for_some_sizes_alone(w):
    weight = t.tensor([1.0, -2.0, 0.5], requires_grad=True)
    w.see(weight=weight)

    def f(x):
        weight.grad = None
        loss = (x * weight).mean()
        if x.shape[0] % 2 == 0:
            loss.backward()
        return loss, weight.grad

    sized(w, f, rows)


@program("sizes")
def a_gradient_of_a_scalar_for_some_sizes(w):
    """Of one element alone can a gradient be made without being given one."""

    def f(x):
        x = x.clone().requires_grad_()
        x.sum(1).backward()
        return x.grad

    sized(w, f, rows, sizes=(4, 1, 6, 1, 8, 5, 1, 3))


# ---- errors that are handled -------------------------------------------------------------------------------
@program("sizes")
def an_error_of_some_sizes_is_handled(w):
    def f(x):
        try:
            y = x.view(-1, 4)
        except RuntimeError as error:
            return x * 2, str(error)
        return y.sum(1)

    sized(w, f, line, sizes=(5, 6, 7, 8, 9, 12, 4, 10))


@program("sizes")
def a_truth_that_many_elements_have_not(w):
    def f(x):
        try:
            return x * 2 if x > 0 else float(x)
        except (RuntimeError, ValueError) as error:
            return x + 1, str(error)

    sized(w, f, line, sizes=(4, 6, 8, 5, 1, 7))


@program("sizes")
def an_index_that_a_shape_has_not(w):
    def f(x):
        try:
            return x * x.shape[x.shape[0] - 5]
        except IndexError as error:
            return x * 3, str(error)

    sized(w, f, rows, sizes=(4, 7, 8, 9, 5, 6, 3))


@program("sizes")
def an_error_in_a_helper(w):
    def halves(x):
        a, b = x.split(x.shape[0] // 2)
        return a - b

    def f(x):
        try:
            return halves(x)
        except (ValueError, RuntimeError) as error:
            return x[:1], type(error).__name__, str(error)
        finally:
            x += 1

    sized(w, f, rows)


@program("sizes")
def operands_that_may_not_fit(w):
    weight = data(6, 2)

    def f(x):
        tried = []
        for g in (
            lambda: x @ weight,
            lambda: x + t.ones(6),
            lambda: t.cat([x, t.ones(5, 2)]),
            lambda: x.view(2, -1),
        ):
            try:
                tried.append(g())
            except (RuntimeError, IndexError) as error:
                tried.append(str(error))
        return tried

    sized(w, f, lambda n: (2, n), sizes=(4, 6, 8, 5, 3, 2, 1, 6))
