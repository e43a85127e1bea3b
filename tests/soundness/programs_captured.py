"""Programs whose captured tensors change: replaced, written, sharing memory with others."""

import numpy as np
from battery import lib as t
from battery import program


@program("captured tensors", jax=True)
def a_captured_tensor_is_replaced(w):
    c = w.x

    @w.trace
    def f(x):
        return x * c

    for factor in w.rounds(1.0, 2.0, -3.0):
        c = w.x * factor
        w.call(f, w.x)


@program("captured tensors")
def a_captured_tensor_is_written(w):
    c = t.ones(4)

    @w.trace
    def f(x):
        return x * c + c.sum()

    for value in w.rounds(1.0, 5.0):
        c.fill_(value)
        w.call(f, w.x)


@program("captured tensors")
def a_captured_tensor_is_written_through_a_view(w):
    c = t.ones(6)
    part = c.view(2, 3)[1]

    @w.trace
    def f(x):
        return c[3:] * x[:3]

    for value in w.rounds(1.0, 5.0):
        part.fill_(value)
        w.call(f, w.x)


@program("captured tensors")
def the_array_of_a_captured_tensor_is_written(w):
    array = np.ones(4, np.float32)
    c = t.from_numpy(array)

    @w.trace
    def f(x):
        return x + c.exp()

    for value in w.rounds(0.0, 1.0):
        array[2] = value
        w.call(f, w.x)


@program("captured tensors")
def a_captured_tensors_numpy_view_is_written(w):
    c = t.ones(4)
    array = c.numpy()

    @w.trace
    def f(x):
        return x * (c * 2 + 1)

    for value in w.rounds(0.0, 1.0):
        array[:] = value
        w.call(f, w.x)


@program("captured tensors")
def a_captured_tensors_data_is_replaced(w):
    c = t.ones(4)

    @w.trace
    def f(x):
        return x * c

    for value in w.rounds([1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0], [5.0]):
        c.data = t.tensor(value)
        w.call(f, w.x)


@program("captured tensors")
def a_captured_parameter_is_of_another_dtype(w):
    c = t.ones(4)

    @w.trace
    def f(x):
        return x * c

    for dtype in w.rounds(t.float32, t.float64):
        c = t.nn.Parameter(t.ones(4, dtype=dtype) * 3)
        w.call(f, w.x)


@program("captured tensors")
def a_captured_tensor_wants_gradients(w):
    c = t.ones(4)

    @w.trace
    def f(x):
        return (x * c).sum()

    for wanted in w.rounds(False, True):
        c.requires_grad_(wanted)
        w.call(f, w.x)


@program("captured tensors")
def a_captured_tensors_data_shares_with_another(w):
    a, b = t.ones(4), t.ones(4) * 2
    w.see(a=a, b=b)

    @w.trace
    def f(x):
        a.mul_(0.5)
        return b * x

    for shared in w.rounds(False, True):
        a.data = b.data if shared else t.ones(4)
        b.fill_(2.0)
        w.call(f, w.x)


@program("captured tensors")
def an_argument_is_a_captured_tensor(w):
    c = t.ones(4)
    w.see(c=c)

    @w.trace
    def f(x):
        x.add_(1.0)
        return c * 2, x is c

    for x in w.rounds(w.x, c, c[:], w.x * 2):
        w.call(f, x)


@program("captured tensors")
def a_captured_view_of_an_argument(w):
    x = w.x
    c = t.zeros(2)

    @w.trace
    def f(x):
        x.mul_(2.0)
        return c + 1

    for view in w.rounds(lambda: t.zeros(2), lambda: x[1:3], lambda: x[::2]):
        c = view()
        x.fill_(1.0)
        w.call(f, x)


@program("captured tensors")
def two_captured_tensors_become_one(w):
    a, b = t.ones(4), t.ones(4)

    @w.trace
    def f(x):
        a.add_(x)
        return a * b, a is b

    one, other = t.ones(4), t.ones(4)
    for a, b in w.rounds((one, other), (one, one), (other, one)):
        one.fill_(1.0)
        w.call(f, w.x)


@program("captured tensors")
def a_list_of_tensors_grows(w):
    cs = [w.x]

    @w.trace
    def f(x):
        return sum((c * x for c in cs), x)

    for change in w.rounds(lambda: cs.append(w.x * 2), lambda: cs.reverse(), lambda: cs.pop()):
        change()
        w.call(f, w.x)


@program("captured tensors")
def a_dict_of_tensors_is_edited(w):
    cs = {"a": w.x, "b": w.x * 2}

    @w.trace
    def f(x):
        return x * cs["a"] if "b" not in cs else x - cs["b"]

    for change in w.rounds(
        lambda: cs.pop("b"), lambda: cs.update(a=w.x * 3), lambda: cs.update(b=w.x, a=w.x)
    ):
        change()
        w.call(f, w.x)


@program("captured tensors")
def a_captured_generator_of_tensors_runs_dry(w):
    left = iter([])

    @w.trace
    def f(x):
        return x * next(left, 0.0)

    for number in w.rounds(1.0, 2.0):
        left = iter([w.x * number])
        w.once(f, w.x)
        w.call(f, w.x)


@program("captured tensors")
def a_captured_tensor_comes_to_overlap_another(w):
    base = t.arange(8.0)
    a, b = base[:4], base[4:]
    w.see(base=base)

    @w.trace
    def f(x):
        a.add_(x)
        return b * 2

    for i in w.rounds(4, 2, 0):
        base.copy_(t.arange(8.0))
        b = base[i : i + 4]
        w.call(f, w.x)


@program("captured tensors")
def a_captured_tensor_changes_its_layout(w):
    c = w.m

    @w.trace
    def f(x):
        return (c * 2).sum(0), c.t(), x.sum()

    for c in w.rounds(w.m, w.m.t().contiguous().t(), w.m[:, ::2], w.m[:1].expand(2, 3)):
        w.call(f, w.x)


@program("captured tensors")
def a_tensor_is_reached_by_two_names(w):
    a = b = w.x.clone()
    holder = {"c": a}
    w.see(a=lambda: a, holder=holder)

    @w.trace
    def f(x):
        a.add_(x)
        return b * 2, holder["c"] * 3

    for split in w.rounds(False, True):
        a = w.x.clone()
        b = a.clone() if split else a
        holder["c"] = b
        w.call(f, w.x)
