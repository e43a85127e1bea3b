"""Programs that ask a tensor for a number and use the answer, which changes at every call."""

from __future__ import annotations

import collections
import dataclasses
import math
import types

from battery import lib as t
from battery import program

total = 0.0


def asked(w, f, *factors):
    """Trace f and call it on multiples of a tensor."""
    f = w.trace(f)
    for by in w.rounds(*(factors or (1.0, 2.0, -3.0, 0.5))):
        w.call(f, w.x * by)


# ---- answers that leave ------------------------------------------------------------------------------------
@program("answers")
def an_item_is_returned_alone(w):
    asked(w, lambda x: x.sum().item())


@program("answers")
def an_item_is_returned_beside_a_tensor(w):
    asked(w, lambda x: (x * 2, x.max().item()))


@program("answers")
def items_are_returned_in_a_dict(w):
    asked(w, lambda x: {"sum": x.sum().item(), "max": x.max().item(), "x": x * 2, "n": len(x)})


@program("answers")
def items_are_returned_in_nested_lists(w):
    asked(w, lambda x: [x * 2, [x[0].item(), (x[1].item(), [x[2].item()])]])


@program("answers")
def an_item_is_returned_as_an_integer(w):
    asked(w, lambda x: (x * 2, int(x.argmax()), x.argmin().item(), int(x[0])))


@program("answers")
def an_item_is_returned_as_a_bool(w):
    asked(w, lambda x: (x * 2, bool(x.sum() > 1), (x > 0).any().item(), not x[0] > 0))


@program("answers")
def a_float_of_a_tensor_is_returned(w):
    asked(w, lambda x: (x * 2, float(x.mean()), float(x[1]) * 2 + 1))


@program("answers")
def a_list_of_values_is_returned(w):
    asked(w, lambda x: (x * 2, x.tolist(), x.reshape(2, 2).tolist()))


@program("answers")
def a_rounded_item_is_returned(w):
    asked(w, lambda x: (x * 2, round(x.sum().item(), 1), round(x[0].item())))


@program("answers")
def an_item_is_appended(w):
    losses = []

    @w.trace
    def f(x):
        losses.append((x * x).sum().item())
        del losses[:-4]
        return x * 2

    w.see(losses=losses)
    for by in w.rounds(1.0, 2.0, 3.0):
        w.call(f, w.x * by)


@program("answers")
def an_item_is_added_to_a_global(w):
    @w.trace
    def f(x):
        global total
        total += x.sum().item()
        return x * 2

    global total
    w.see(total=lambda: total)
    for total in w.rounds(0.0, 8.0, -4.0):
        w.call(f, w.x)


@program("answers")
def an_item_is_stored_in_an_attribute(w):
    held = types.SimpleNamespace(last=None, best=math.inf)

    @w.trace
    def f(x):
        held.last = x.sum().item()
        held.best = min(held.best, held.last)
        return x * 2

    w.see(held=held)
    for by in w.rounds(1.0, -1.0, 2.0):
        w.call(f, w.x * by)
        held.best = math.inf


@program("answers")
def an_item_is_stored_under_a_key(w):
    table = {}

    @w.trace
    def f(x, name):
        table[name] = x.sum().item()
        table.setdefault("first", table[name])
        return x * 2

    w.see(table=table)
    for by, name in w.rounds((1.0, "a"), (2.0, "b"), (3.0, "a")):
        w.call(f, w.x * by, name)


@program("answers")
def items_are_stored_in_a_dataclass(w):
    @dataclasses.dataclass
    class Result:
        loss: float
        hits: int = 0

    results = []

    @w.trace
    def f(x):
        results.append(Result(x.sum().item(), int((x > 0).sum())))
        del results[:-2]
        return Result(x.max().item())

    w.see(results=results)
    for by in w.rounds(1.0, -2.0, 3.0):
        w.call(f, w.x * by)


@program("answers")
def an_item_is_formatted_and_returned(w):
    asked(w, lambda x: (x * 2, f"{x.sum().item():.2f}", "%.1f" % x[0].item(), str(x[1].item())))  # noqa: UP031


@program("answers")
def a_tensor_is_formatted_by_itself(w):
    form = "{:6.1f}"
    asked(w, lambda x: (x * 2, f"{x.sum():.2f}", f"{x[0]}", form.format(x[1])))


@program("answers")
def an_item_is_printed(w):
    @w.trace
    def f(x):
        print("loss:", x.sum().item(), f"max {x.max().item():.3f}")
        return x * 2

    for by in w.rounds(1.0, 2.0, -3.0):
        w.call(f, w.x * by)


@program("answers")
def an_item_is_logged(w):
    @w.trace
    def f(x):
        w.logger.info("loss %.3f at %d", x.sum().item(), len(x))
        return x * 2

    for by in w.rounds(1.0, 2.0, -3.0):
        w.call(f, w.x * by)


@program("answers")
def an_item_is_printed_every_other_call(w):
    step = 0

    @w.trace
    def f(x):
        nonlocal step
        step += 1
        if step % 2 == 0:
            print(step, x.sum().item())
        return x * step

    for step, by in w.rounds((0, 1.0), (0, 2.0), (7, 3.0)):
        w.call(f, w.x * by)


# ---- answers that decide -----------------------------------------------------------------------------------
@program("answers")
def the_best_item_is_kept(w):
    best = [math.inf, 0]

    @w.trace
    def f(x, step):
        loss = x.sum().item()
        if loss < best[0]:
            best[:] = loss, step
        return x * 2

    w.see(best=best)
    for step, by in w.rounds((1, 3.0), (2, 1.0), (3, 2.0), (4, -1.0)):
        if step == 1:
            best[0] = math.inf
        w.call(f, w.x * by, step)


@program("answers")
def an_item_meets_a_limit_from_outside(w):
    limit = 2.0
    f = w.trace(lambda x: x * 2 if x.sum().item() > limit else x - 1)
    for limit, by in w.rounds((2.0, 1.0), (2.0, 0.5), (0.5, 0.5), (2.0, 4.0)):
        w.call(f, w.x * by)


@program("answers")
def two_items_are_compared(w):
    asked(w, lambda x: x * 2 if x[0].item() > x[1].item() else x * 3)


@program("answers")
def an_item_is_nan_or_not(w):
    f = w.trace(lambda x: x * 2 if not math.isnan(x.sum().item()) else t.zeros(4))
    for value in w.rounds(1.0, math.nan, 2.0, math.inf):
        w.call(f, w.x * value)


@program("answers")
def an_item_is_equal_to_another(w):
    asked(w, lambda x: x * 2 if x[0].item() == 2.0 else x * 3)


@program("answers")
def an_item_is_in_a_range(w):
    asked(w, lambda x: x * 2 if 0 <= x[0].item() < 2 else x * 3)


@program("answers")
def an_item_ends_a_loop(w):
    @w.trace
    def f(x):
        steps = 0
        while x.abs().max().item() > 1:
            x, steps = x * 0.5, steps + 1
        return x, steps

    for by in w.rounds(1.0, 2.0, 0.25):
        w.call(f, w.x * by)


@program("answers")
def an_item_picks_a_layer(w):
    layers = [lambda x: x * 2, lambda x: x + 1, lambda x: -x, lambda x: x * x]
    asked(w, lambda x: layers[x.argmax().item()](x))


@program("answers")
def an_item_is_a_count_of_repeats(w):
    f = w.trace(lambda x, k: x.repeat(int(k.item())) * 2)
    for k in w.rounds(1, 2, 3):
        w.call(f, w.x, t.tensor(k))


@program("answers")
def an_item_is_a_slice(w):
    f = w.trace(lambda x, k: x[: k.item()] * 2)
    for k in w.rounds(1, 2, 4):
        w.call(f, w.x, t.tensor(k))


# ---- answers that come back --------------------------------------------------------------------------------
@program("answers")
def an_item_scales_the_tensor(w):
    asked(w, lambda x: x / max(1.0, x.abs().max().item()))


@program("answers")
def an_item_goes_through_math(w):
    asked(w, lambda x: x * math.exp(-abs(x.mean().item())) + math.sqrt(x.abs().sum().item()))


@program("answers")
def an_item_of_an_item(w):
    @w.trace
    def f(x):
        scale = x.abs().max().item()
        y = x / scale
        return y, y.sum().item() * scale, (y * scale).sum().item()

    for by in w.rounds(1.0, 2.0, -4.0):
        w.call(f, w.x * by)


@program("answers")
def an_item_becomes_a_tensor_again(w):
    asked(w, lambda x: t.tensor([x.sum().item(), 1.0]) * 2 + t.full((2,), x[0].item()))


@program("answers")
def a_moving_average_of_items(w):
    stats = {"mean": 0.0, "n": 0}

    @w.trace
    def f(x):
        stats["n"] += 1
        stats["mean"] += (x.sum().item() - stats["mean"]) / stats["n"]
        return x - stats["mean"]

    w.see(stats=stats)
    for by in w.rounds(1.0, 2.0, 0.5):
        stats.update(mean=0.0, n=0)
        w.call(f, w.x * by)


@program("answers")
def an_adaptive_factor(w):
    state = types.SimpleNamespace(scale=1.0, good=0)

    @w.trace
    def f(x):
        y = x * state.scale
        if y.abs().max().item() > 20:
            state.scale, state.good = state.scale / 2, 0
        else:
            state.good += 1
            if state.good == 2:
                state.scale, state.good = state.scale * 2, 0
        return y

    w.see(state=state)
    for by in w.rounds(1.0, 3.0):
        w.call(f, w.x * by)


@program("answers")
def a_window_of_items(w):
    window = collections.deque(maxlen=2)

    @w.trace
    def f(x):
        window.append(x.sum().item())
        return x * (sum(window) / len(window))

    w.see(window=window)
    for by in w.rounds(1.0, 2.0, 3.0):
        w.call(f, w.x * by)


@program("answers")
def a_histogram_of_items(w):
    counts = collections.Counter()

    @w.trace
    def f(x):
        counts[int(x.sum().item()) // 2] += 1
        return x * len(counts)

    w.see(counts=counts)
    for by in w.rounds(1.0, 2.0, 4.0):
        if by == 1.0:
            counts.clear()
        w.call(f, w.x * by)


@program("answers")
def items_of_a_loop_over_rows(w):
    f = w.trace(lambda m: ([row.sum().item() for row in m], m * 2))
    for by in w.rounds(1.0, 2.0, -3.0):
        w.call(f, w.m * by)


@program("answers", peers=False)
def an_item_after_a_write(w):
    @w.trace
    def f(x):
        first = x.sum().item()
        x.add_(1)
        return first, x.sum().item(), x * 2

    for by in w.rounds(1.0, 2.0, 3.0):
        w.call(f, w.x * by)


@program("answers")
def an_item_raises_an_error(w):
    @w.trace
    def f(x):
        loss = x.sum().item()
        if loss > 4:
            raise ValueError(f"the loss is {loss:.1f}")
        return x * 2

    for by in w.rounds(1.0, 2.0, 1.5, 3.0):
        w.call(f, w.x * by)
