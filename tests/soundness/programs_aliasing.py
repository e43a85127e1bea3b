"""Programs that write in place, and programs that return aliases."""

from battery import lib as t
from battery import program


# ---- writes ------------------------------------------------------------------------------------------------
@program("writes in place")
def an_argument_is_written(w):
    @w.trace
    def f(x):
        x += 1
        x.mul_(2.0).clamp_(max=50.0)
        return None

    for x in w.rounds(w.x, w.x[1:], w.m[:, 1], w.m.t()):
        w.call(f, x)


@program("writes in place")
def a_part_of_an_argument_is_written(w):
    i = 0

    @w.trace
    def f(x):
        x[i] = x.sum() * 0.25
        x[i:].mul_(-1.0)

    for i in w.rounds(0, 2, -1):
        w.call(f, w.x)


@program("writes in place")
def a_counter_is_kept_in_a_tensor(w):
    count = t.zeros((), dtype=t.int64)
    w.see(count=count)

    @w.trace
    def f(x):
        count.add_(1)
        return x * count

    for start in w.rounds(None, 10):
        if start is not None:
            count.fill_(start)
        w.call(f, w.x)


@program("writes in place")
def a_write_shows_in_a_view_made_before(w):
    @w.trace
    def f(x):
        y = x[1:3]
        x.add_(1.0)
        z = x.view(2, 2)
        y.mul_(3.0)
        return y, z, x * 0.5

    for x in w.rounds(w.x, t.zeros(4)):
        x.copy_(t.arange(4.0))
        w.call(f, x)


@program("writes in place")
def a_write_is_undone_by_a_copy(w):
    other = t.zeros(4)
    w.see(other=other)

    @w.trace
    def f(x):
        before = x.clone()
        x.mul_(2.0)
        other.copy_(x)
        x.copy_(before)
        return other.sum()

    for x in w.rounds(w.x, w.x * 2, other):
        w.call(f, x)


@program("writes in place")
def a_buffer_is_swapped_with_another(w):
    a, b = t.zeros(4), t.ones(4)
    w.see(a=lambda: a, b=lambda: b)

    @w.trace
    def f(x):
        nonlocal a, b
        a, b = b, a
        a.add_(x)
        return b

    for x in w.rounds(w.x, w.x * -1):
        w.call(f, x)


@program("writes in place")
def a_write_of_another_dtype_raises(w):
    @w.trace
    def f(x, y):
        x.add_(y)
        return x

    ints = t.tensor([1, 2, 3, 4])
    for x, y in w.rounds((ints, ints.clone()), (ints, w.x), (w.x, ints)):
        w.call(f, x, y)


@program("writes in place")
def a_write_happens_before_an_exception(w):
    @w.trace
    def f(x, y):
        x.add_(1.0)
        return x @ y

    for y in w.rounds(w.x.clone(), w.m, w.x * 2):
        w.call(f, w.x, y)


@program("writes in place")
def an_expanded_argument_is_written(w):
    @w.trace
    def f(x):
        x.add_(1.0)
        return x.sum()

    for x in w.rounds(t.ones(3, 4), w.x.expand(3, 4), t.ones(3, 4)):
        w.call(f, x)


@program("writes in place")
def a_leaf_that_wants_gradients_is_written(w):
    @w.trace
    def f(x):
        x.add_(1.0)
        return x.sum()

    for wanted in w.rounds(False, True):
        w.call(f, w.x.clone().requires_grad_(wanted))


@program("writes in place")
def a_window_slides_over_a_buffer(w):
    buffer = t.zeros(4)
    w.see(buffer=buffer)

    @w.trace
    def f(x):
        buffer[:-1] = buffer[1:].clone()
        buffer[-1] = x.sum()
        return buffer.mean()

    for x in w.rounds(w.x, w.x * 2):
        w.call(f, x)


@program("writes in place")
def out_of_place_results_are_collected(w):
    kept = []
    w.see(kept=kept)

    @w.trace
    def f(x):
        y = x * 2
        kept.append(y)
        del kept[:-2]
        return y

    for x in w.rounds(w.x, w.x + 1):
        w.call(f, x)


@program("writes in place")
def a_tensors_data_is_set_inside(w):
    c = t.ones(4)
    w.see(c=c)

    @w.trace
    def f(x):
        c.data = x * 2
        return c + 1

    for x in w.rounds(w.x, w.x * 3):
        w.call(f, x)


# ---- returned aliases --------------------------------------------------------------------------------------
@program("returned aliases")
def the_input_is_returned(w):
    @w.trace
    def f(x, y):
        return x, (y * 2, x), {"x": x}

    for y in w.rounds(w.x, w.x * 2, w.x.clone()):
        w.call(f, w.x, y)


@program("returned aliases")
def a_view_of_the_input_is_returned(w):
    @w.trace
    def f(x):
        return x[1:], x.t(), x.reshape(-1)[::2], x.unsqueeze(0), x.detach()

    for x in w.rounds(w.m, w.m.t(), w.m * 2):
        w.call(f, x)


@program("returned aliases")
def the_same_result_is_returned_twice(w):
    @w.trace
    def f(x):
        y = x * 2
        return y, y, y[1:], [y]

    for x in w.rounds(w.x, w.x + 1):
        w.call(f, x)


@program("returned aliases")
def equal_results_stay_two(w):
    @w.trace
    def f(x):
        a, b = x * 2, x * 2
        a.add_(1.0)
        return a, b

    for x in w.rounds(w.x, w.x + 1):
        w.call(f, x)


@program("returned aliases")
def a_captured_tensor_is_returned(w):
    c = t.ones(4)

    @w.trace
    def f(x):
        return c, c[2:], x * c

    for c in w.rounds(w.x, t.zeros(4), t.ones(4)):
        w.call(f, w.x)


@program("returned aliases")
def a_constant_result_is_written_by_the_caller(w):
    @w.trace
    def f(n):
        return t.zeros(4) + n

    def caller(n):
        y = f(n)
        y.add_(7.0)
        return f(n), y

    for n in w.rounds(1, 2):
        w.call(caller, n)


@program("returned aliases")
def a_fresh_tensor_without_inputs_is_written_by_the_caller(w):
    size = 3

    @w.trace
    def f():
        return t.ones(size), t.tensor([1.0, 2.0]), t.arange(size)

    def caller():
        for y in f():
            y.mul_(5)
        return f()

    for size in w.rounds(3, 4):
        w.call(caller)


@program("returned aliases")
def what_depends_on_captured_tensors_alone_is_written_by_the_caller(w):
    c = t.ones(4)

    @w.trace
    def f(x):
        return c * 2, x + c

    def caller(x):
        f(x)[0].add_(1.0)
        return f(x)

    for c in w.rounds(w.x, w.x * 2):
        w.call(caller, w.x)


@program("returned aliases")
def the_caller_writes_a_result_that_is_an_alias(w):
    @w.trace
    def f(x):
        return x.view(2, 2), x * 3

    def caller(x):
        view, y = f(x)
        view.fill_(9.0)
        y.zero_()
        return f(x)

    for x in w.rounds(w.x, w.x * 2, w.m.reshape(-1)[:4]):
        w.call(caller, x)


@program("returned aliases")
def a_result_comes_back_as_an_argument(w):
    @w.trace
    def f(x, state):
        return x + state, state * 0.5 + x

    state = t.zeros(4)

    def step(x):
        nonlocal state
        y, state = f(x, state)
        return y, state

    for x in w.rounds(w.x, w.x * -1):
        w.call(step, x)


@program("returned aliases")
def an_earlier_result_is_written_in_place(w):
    @w.trace
    def f(x, out):
        return x * 2 if out is None else out.copy_(x * 2)

    out = None

    def step(x):
        nonlocal out
        out = f(x, out)
        return out

    for x in w.rounds(w.x, w.x + 1):
        w.call(step, x)


@program("returned aliases")
def a_result_is_an_input_only_sometimes(w):
    flag = False

    @w.trace
    def f(x):
        return x.contiguous() if flag else x.clone()

    for flag in w.rounds(False, True):
        w.call(f, w.x)


@program("returned aliases")
def an_unwritten_output_stays_the_input(w):
    @w.trace
    def f(x, y):
        x.add_(0.0)
        return x.detach(), y.to(y.dtype), y.expand(4), y.float()

    for y in w.rounds(w.x.clone(), w.x, w.x.double()):
        w.call(f, w.x, y)


@program("returned aliases")
def parts_of_one_result_share_memory(w):
    n = 2

    @w.trace
    def f(x):
        y = x * 1.5
        return y.split(n), y.unbind(0), t.stack([y, y]).chunk(2)

    for n in w.rounds(2, 3, 1):
        w.call(f, w.x)


@program("writes in place")
def numpy_writes_inside(w):
    place = 0

    @w.trace
    def f(x):
        y = x * 2
        x.numpy()[place] = 7.0
        return y, x + y

    for place in w.rounds(0, 3):
        w.call(f, w.x)


@program("writes in place")
def a_write_through_the_data(w):
    weight = t.ones(4, requires_grad=True)
    w.see(weight=weight)

    @w.trace
    def f(x):
        weight.data.mul_(0.5)
        weight.data[1:] += x[1:]
        return (weight * x).sum()

    for x in w.rounds(w.x, w.x * 2):
        w.call(f, x)


@program("returned aliases")
def a_pair_of_results_overlaps(w):
    start = 1

    @w.trace
    def f(x):
        y = x + 1
        return y[:3], y[start:]

    def caller(x):
        a, b = f(x)
        a.mul_(2.0)
        return a, b

    for start in w.rounds(1, 2, 3):
        w.call(caller, w.x)


@program("writes in place")
def the_base_of_a_captured_view_asks_for_gradients(w):
    base = t.ones(4)
    part = base[1:]
    w.see(base=base)

    @w.trace
    def f(x):
        part.mul_(0.5)
        return x * part

    for asks in w.rounds(False, True, False):
        base.requires_grad_(asks)
        w.call(f, w.x[1:])


@program("writes in place")
def the_base_of_a_view_that_is_given_asks_for_gradients(w):
    base = t.ones(2, 4)
    part = base.t()[1:]

    @w.trace
    def f(part):
        part.add_(1.0)
        return part * 2

    @w.trace
    def without(part):
        with t.no_grad():
            part.mul_(0.5)
        return part * 2

    for asks in w.rounds(False, True, False):
        base.requires_grad_(asks)
        w.call(without, part)
        w.call(f, part)


@program("writes in place")
def the_base_of_a_view_made_without_gradients_gets_a_history(w):
    base, factor = t.ones(4), t.full((4,), 2.0)
    with t.no_grad():
        part = base[1:]
    w.see(part=part)

    @w.trace
    def f(x):
        part.add_(x[1:])
        return part * 2

    for asks in w.rounds(False, True):
        base.mul_(factor.requires_grad_(asks))
        w.call(f, w.x)
