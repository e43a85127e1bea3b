"""Programs whose tensor arguments change: in shape, dtype, layout, history, and in what they share."""

import numpy as np
from battery import lib as t
from battery import program


@program("tensors", jax=True)
def an_arguments_values_change(w):
    @w.trace
    def f(x):
        return x * x - 1.0

    for step in w.rounds(1.0, -1.0, 0.0):
        w.call(f, w.x * step)


@program("tensors", jax=True)
def an_arguments_shape_changes(w):
    @w.trace
    def f(x):
        return x.sum() / x.shape[0]

    for x in w.rounds(w.x, w.m, w.x[:3], w.x * 3):
        w.call(f, x)


@program("tensors")
def a_size_of_one_starts_to_broadcast(w):
    @w.trace
    def f(a, b):
        return (a + b) * a.numel() - b.numel()

    for b in w.rounds(w.m, w.m[:1], w.m[:, :1], w.m * 2, w.m[1, 1]):
        w.call(f, w.m, b)


@program("tensors")
def an_arguments_dtype_changes(w):
    @w.trace
    def f(x):
        return x * 2 + 1, x / 2, x.dtype

    for dtype in w.rounds(t.float32, t.int64, t.float64, t.int32, t.bool):
        w.call(f, w.x.to(dtype))
        w.call(f, (w.x * 2).to(dtype))


@program("tensors")
def two_dtypes_meet(w):
    @w.trace
    def f(a, b):
        return a + b, a * b.sum()

    ints = t.tensor([1, 2, 3, 4])
    for a, b in w.rounds((w.x, ints), (ints, w.x), (ints, ints + 1), (w.x.double(), w.x), (w.x * 2, ints)):
        w.call(f, a, b)


@program("tensors")
def a_scalar_tensor_replaces_a_vector(w):
    @w.trace
    def f(a, b):  # a tensor without dimensions has less say in the dtype of a result
        return a + b

    for b in w.rounds(
        t.tensor(2.0, dtype=t.float64), t.tensor([2.0], dtype=t.float64), t.tensor(3.0, dtype=t.float64)
    ):
        w.call(f, w.x, b)


@program("tensors")
def an_arguments_strides_change(w):
    @w.trace
    def f(x):
        return x * 2 - x.sum(0), x.is_contiguous(), x.stride()

    wide = t.arange(12.0).reshape(3, 4)
    for x in w.rounds(w.m, w.m.t().contiguous().t(), wide[:2, :3], wide[::2, ::2], w.m + 1):
        w.call(f, x)


@program("tensors")
def a_clone_keeps_the_layout(w):
    @w.trace
    def f(x):
        return x.clone(), t.zeros_like(x), x.reshape(-1), x.t().contiguous()

    for x in w.rounds(w.m, w.m.t().contiguous().t(), w.m * 2):
        w.call(f, x)


@program("tensors")
def a_reshape_is_a_view_only_sometimes(w):
    @w.trace
    def f(x):
        y = x.reshape(6)
        y.add_(1.0)
        return y

    other = t.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for x in w.rounds(w.m, other.t(), w.m):
        w.call(f, x)


@program("tensors")
def contiguous_is_the_tensor_itself_only_sometimes(w):
    @w.trace
    def f(x):
        y = x.contiguous()
        y.mul_(0.5)
        return y, y is x

    other = t.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    for x in w.rounds(w.m, other.t()):
        w.call(f, x)


@program("tensors")
def a_cast_is_the_tensor_itself_only_sometimes(w):
    @w.trace
    def f(x):
        y = x.to(t.float64)
        y.add_(1.0)
        return y, y is x

    double = w.x.double()
    for x in w.rounds(w.x, double):
        w.call(f, x)


@program("tensors")
def a_view_fails_on_some_layouts(w):
    @w.trace
    def f(x):
        return x.view(-1) + 1

    for x in w.rounds(w.m, w.m.t(), w.m * 2):
        w.call(f, x)


@program("tensors")
def shapes_stop_fitting(w):
    @w.trace
    def f(a, b):
        return a @ b

    for b in w.rounds(w.m.t(), w.m, w.m.t() * 2):
        w.call(f, w.m, b)


@program("tensors")
def requires_grad_changes(w):
    @w.trace
    def f(x):
        y = x * 2
        return y.detach(), y.requires_grad

    for requires in w.rounds(False, True):
        w.call(f, w.x.clone().requires_grad_(requires))
        w.call(f, w.x.clone().mul_(3).requires_grad_(requires))


@program("tensors")
def an_argument_comes_to_have_a_history(w):
    @w.trace
    def f(x):
        return x * x, x.is_leaf

    leaf = t.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    w.see(leaf=leaf)
    for x in w.rounds(leaf, lambda: leaf * 2, lambda: (leaf * 2).detach()):
        w.call(f, x() if callable(x) else x)


@program("tensors")
def a_parameter_replaces_a_tensor(w):
    @w.trace
    def f(x):
        return isinstance(x, t.nn.Parameter), type(x).__name__, x.detach() + 1

    for x in w.rounds(w.x, t.nn.Parameter(w.x * 2), w.x.clone().requires_grad_(True)):
        w.call(f, x)


@program("tensors")
def the_same_tensor_comes_twice(w):
    @w.trace
    def f(a, b):
        a.add_(1.0)
        return a * b, a is b

    for a, b in w.rounds((w.x, w.x.clone()), (w.x, w.x), (w.x.clone(), w.x)):
        w.call(f, a, b)


@program("tensors")
def two_arguments_stop_being_one(w):
    @w.trace
    def f(a, b):
        b.mul_(0.5)
        return a + b

    for a, b in w.rounds((w.x, w.x), (w.x, w.x.clone()), (w.x, w.x.clone())):
        w.call(f, a, b)


@program("tensors")
def an_argument_is_a_view_of_another(w):
    @w.trace
    def f(a, b):
        a.add_(1.0)
        return b * 2

    for a, b in w.rounds((w.x.clone(), w.x), (w.x[:], w.x), (w.x, w.x[:]), (w.x.view(4), w.x.detach())):
        w.call(f, a, b)


@program("tensors")
def overlapping_windows_come_later(w):
    @w.trace
    def f(a, b):
        a.mul_(2.0)
        b.add_(1.0)
        return a + b

    base = t.arange(8.0)
    w.see(base=base)
    for i, j in w.rounds((0, 4), (0, 2), (2, 0), (4, 0), (3, 3)):
        base.copy_(t.arange(8.0))
        w.call(f, base[i : i + 4], base[j : j + 4])


@program("tensors")
def interleaved_views_share_no_element(w):
    @w.trace
    def f(a, b):
        a.add_(b)
        b.mul_(-1.0)
        return a * b

    base = t.arange(8.0)
    w.see(base=base)
    for a, b in w.rounds((base[::2], base[1::2]), (base[:4], base[4:]), (base[::2], base[2:6])):
        base.copy_(t.arange(8.0))
        w.call(f, a, b)


@program("tensors")
def a_transposed_view_of_the_other(w):
    @w.trace
    def f(a, b):
        a.add_(b.sum(0))
        return a - b

    square, other = t.ones(3, 3), t.ones(3, 3)
    w.see(square=square)
    for b in w.rounds(other, square.t(), square):
        square.copy_(t.arange(9.0).reshape(3, 3))
        w.call(f, square, b)


@program("tensors")
def an_empty_tensor_comes(w):
    @w.trace
    def f(x):
        return x.sum(), x * 2, x.numel()

    for x in w.rounds(w.x, w.x[:0], w.x[:1], w.x * 2):
        w.call(f, x)


@program("tensors")
def the_largest_of_an_empty_tensor(w):
    @w.trace
    def f(x):
        return x.max() + 1

    for x in w.rounds(w.x, w.x[:0], w.x * -1):
        w.call(f, x)


@program("tensors", peers=False)
def an_array_runs_backwards(w):
    @w.trace
    def f(x):
        return x * 2 - x.flip(0)

    array = np.arange(4, dtype=np.float32)
    for x in w.rounds(t.from_numpy(array), t.from_numpy(array[::-1]), w.x):
        w.call(f, x)


@program("tensors", peers=False)
def a_backwards_array_is_written(w):
    @w.trace
    def f(x):
        x += 1
        return x

    array = np.arange(8, dtype=np.float32)
    w.see(array=array)
    for x in w.rounds(t.from_numpy(array[3::-1]), t.from_numpy(array[:4]), t.from_numpy(array[::-2])):
        w.call(f, x)


@program("tensors")
def numpy_writes_into_an_argument(w):
    @w.trace
    def f(x):
        return x * 2

    array = np.arange(4, dtype=np.float32)
    x = t.from_numpy(array)
    for value in w.rounds(1.0, -5.0):
        array[1] = value
        w.call(f, x)


@program("tensors")
def the_array_behind_an_argument_is_written(w):
    @w.trace
    def f(x, y):
        x.copy_(y + x)
        return x[0]

    array = np.ones(4, dtype=np.float32)
    w.see(array=array)
    for step in w.rounds(1, 2):
        array[:] = step
        w.call(f, t.from_numpy(array), w.x)


@program("tensors")
def an_expanded_argument(w):
    @w.trace
    def f(x):
        return x.sum(0), x * x.stride(0)

    for x in w.rounds(t.ones(3, 4), w.x.expand(3, 4), w.x[:1].expand(3, 4), w.x.repeat(3, 1)):
        w.call(f, x)


@program("tensors")
def a_column_is_expanded(w):
    @w.trace
    def f(x, y):
        y.add_(x)
        return y.clone()

    column = t.tensor([[1.0], [2.0]])
    for x in w.rounds(w.m, column.expand(2, 3), w.m.clone()):
        w.call(f, x, t.ones(2, 3))


@program("tensors")
def indices_run_out_of_range(w):
    @w.trace
    def f(x, i):
        return x[i] * 2

    for i in w.rounds([0, 3], [1, 2], [0, 9], [-1, -4]):
        w.call(f, w.x, t.tensor(i))


@program("tensors")
def a_mask_changes(w):
    @w.trace
    def f(x, mask):
        return x[mask], x[mask].shape[0], t.where(mask, x, -x)

    for mask in w.rounds([True, False, True, False], [False] * 4, [True] * 4):
        w.call(f, w.x, t.tensor(mask))


@program("tensors")
def a_mask_becomes_indices(w):
    @w.trace
    def f(x, where):
        return x[where]

    for where in w.rounds(
        t.tensor([True, False, False, True]), t.tensor([1, 0, 0, 1]), t.tensor([0, 0, 0, 0])
    ):
        w.call(f, w.x, where)


@program("tensors")
def nan_infinity_and_minus_zero(w):
    @w.trace
    def f(x):
        return x * 0.0, x + x, x == x, t.where(x > 0, x, -x)

    for value in w.rounds(0.0, -0.0, float("nan"), float("inf"), -float("inf")):
        x = w.x.clone()
        x[2] = value
        w.call(f, x)


@program("tensors")
def an_integer_is_divided_by_zero(w):
    @w.trace
    def f(x, y):
        return x + 1.0 / y, x // (y + 10)

    for y in w.rounds([1, 2, 3, 4], [0, 1, 0, 2], [5, 6, 7, 8]):
        w.call(f, w.x, t.tensor(y))


@program("tensors")
def an_argument_has_a_grad(w):
    @w.trace
    def f(x):
        return x.detach() if x.grad is None else x.detach() + x.grad

    x = t.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    for grad in w.rounds(None, w.x, None, w.x * 2):
        x.grad = grad
        w.call(f, x)


@program("tensors")
def arguments_swap_places(w):
    @w.trace
    def f(a, b):
        a.sub_(b)
        return a * 2

    other = t.tensor([0.5, 0.5, 0.5, 0.5])
    w.see(x=w.x, other=other)
    for a, b in w.rounds((w.x, other), (other, w.x)):
        w.call(f, a, b)
        other.fill_(0.5)


@program("tensors")
def names_swap_places(w):
    @w.trace
    def f(a, b=None, *, scale=1.0):
        return a * scale if b is None else a * scale - b

    for args, kwargs in w.rounds(
        ((w.x, w.x * 2), {}),
        ((w.x,), {"b": w.x * 3}),
        ((), {"b": w.x, "a": w.x * 3}),
        ((), {"a": w.x, "b": w.x * 3, "scale": 2.0}),
        ((w.x,), {"scale": 3.0}),
    ):
        w.call(f, *args, **kwargs)
