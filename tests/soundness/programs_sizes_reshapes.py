"""Programs whose arguments change their sizes: dims merged and split, views of views, writes to them.

What is a view and what a copy is decided by sizes and strides, and shows where one of them is written.
"""

from __future__ import annotations

from battery import lib as t
from battery import program
from sized import data_of, sized

F = t.nn.functional
data = data_of(t)
MANY = (4, 6, 8, 5, 3, 7, 2, 1, 9, 12, 10)
EVEN = (4, 6, 8, 2, 10, 12, 14)


def rows(n):
    return n, 3


# ---- merged and split --------------------------------------------------------------------------------------
@program("sizes")
def heads_are_split_and_merged(w):
    def f(x):
        b, n, c = x.shape
        q, k, v = x.view(b, n, 3, 2, -1).permute(2, 0, 3, 1, 4).unbind(0)
        y = (q @ k.transpose(-2, -1)) * (c // 6) ** -0.5
        return (y.softmax(-1) @ v).transpose(1, 2).reshape(b, n, c // 3), q.sum(-1), k.shape

    sized(w, f, lambda n: (n // 2 + 1, n, 12), sizes=MANY)


@program("sizes")
def patches_of_an_image(w):
    """Sides that the patches don't fill are refused by the view."""

    def f(x):
        b, c, h, v = x.shape
        y = x.reshape(b, c, h // 2, 2, v // 2, 2).permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
        back = y.view(b, h // 2, v // 2, 2, 2, c).permute(0, 5, 1, 3, 2, 4).reshape(b, c, h, v)
        return y, back, (back == x).all(), y.shape[1] * y.shape[2]

    sized(w, f, lambda n: (2, 2, n, 4), sizes=(4, 6, 8, 2, 10, 5, 12, 3))


@program("sizes")
def an_unknown_size_of_many(w):
    @w.trace
    def f(x):
        a, b, c = x.shape
        y = x.reshape(-1), x.reshape(a, -1), x.reshape(-1, c), x.reshape(a * b, -1), x.view(b, -1, a)
        return *y, x.unflatten(2, (-1, 2)).sum(-1), x.flatten(1).unflatten(1, (b, -1)), x.ravel().view(c, -1)

    for shape in w.rounds(
        (2, 4, 4), (3, 6, 6), (4, 6, 8), (4, 8, 6), (6, 3, 4), (1, 5, 2), (5, 1, 6), (1, 1, 2), (3, 3, 3)
    ):
        w.once(f, data(*shape))


@program("sizes")
def a_reshape_that_is_the_same_shape(w):
    """Where the shape is the old one it is a view nonetheless, and it is written."""

    @w.trace
    def f(x, y):
        z = x.reshape(y.shape)
        z -= 1
        return z, z.shape == x.shape, x.view_as(x).add_(2), y * z

    for a, b in w.rounds(
        ((4, 3), (3, 4)),
        ((6, 3), (3, 6)),
        ((6, 4), (6, 4)),
        ((3, 3), (3, 3)),
        ((5, 2), (10,)),
        ((1, 6), (6,)),
        ((6, 1), (6,)),
        ((8,), (2, 4)),
        ((1, 1), (1,)),
    ):
        w.once(f, data(*a), data(*b))


@program("sizes")
def a_view_that_strides_forbid_for_some(w):
    """Columns that are cut can be merged where all of them are taken, or where there is one row."""

    @w.trace
    def f(x, k):
        part = x[:, :k]
        try:
            flat = part.view(-1)
        except RuntimeError:
            flat = part.reshape(-1)
        flat += 1
        return flat, part.is_contiguous()

    for (a, b), k in w.rounds(
        ((4, 6), 3),
        ((6, 8), 4),
        ((5, 4), 4),
        ((8, 3), 3),
        ((1, 6), 3),
        ((1, 5), 2),
        ((3, 5), 1),
        ((2, 2), 2),
        ((7, 1), 1),
    ):
        w.once(f, data(a, b), k)


@program("sizes")
def turned_and_flattened(w):
    """What lies in order after a turn depends on which dims are one."""

    @w.trace
    def f(x):
        y = x.permute(2, 0, 1)
        flat, whole = y.flatten(), y.contiguous()
        flat.mul_(2)
        whole[0] = 0.5
        return (
            flat,
            whole,
            y.is_contiguous(),
            y.flatten(0, 1).shape,
            y.squeeze().stride() == whole.squeeze().stride(),
        )

    for shape in w.rounds(
        (4, 2, 3),
        (6, 2, 3),
        (8, 5, 3),
        (5, 3, 1),
        (1, 1, 6),
        (1, 4, 1),
        (7, 1, 1),
        (1, 5, 3),
        (2, 3, 4),
        (3, 1, 2),
    ):
        w.once(f, data(*shape))


@program("sizes")
def shapes_that_are_changed_in_place(w):
    """The argument itself gets other dims."""

    def f(x):
        n = x.shape[0]
        x.unsqueeze_(1).transpose_(0, 1)
        if n % 2 == 0:
            x.squeeze_(0)
        x.t_() if x.dim() == 2 else x.swapaxes_(1, 2)
        return x.sum(-1), x.shape, x.stride()

    sized(w, f, rows, sizes=MANY)


# ---- views of views ----------------------------------------------------------------------------------------
@program("sizes")
def a_ladder_of_views(w):
    """Each is cut of the one before: places and strides are products of sizes."""

    def f(x):
        n = x.shape[0]
        a = x.view(n // 2, 2, n)
        b = a.transpose(0, 2)[1:, :, n // 4 :]
        c = b[::2, 1]
        d = c.t()[..., -1]
        d.add_(100)
        return a, b * 2, c, d

    sized(w, f, lambda n: (n, n), sizes=EVEN)


@program("sizes")
def diagonals_are_written(w):
    @w.trace
    def f(x):
        x.diagonal().add_(10)
        x.diagonal(1)[::2].zero_()
        x.t().diagonal(-1)[-1:] = 7.0
        lower = x[1:, :-1].diagonal()
        lower *= 2
        return lower, x.diagonal().stride(), x.fill_diagonal_(3.0) is x

    for a, b in w.rounds((4, 4), (6, 6), (8, 8), (5, 7), (7, 5), (3, 3), (2, 9), (9, 2), (2, 2)):
        w.once(f, data(a, b))


@program("sizes")
def windows_that_overlap(w):
    """Windows are views; those that don't overlap may be written."""

    def f(x):
        n = x.shape[0]
        far, near = x.unfold(0, 2, 2), x.unfold(0, 3, 1)
        far.mul_(2)
        return near.sum(-1), far.shape, near * 1, near.stride(), x.unfold(0, n // 2 + 1, n // 3 + 1)

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def strided_parts_of_arguments(w):
    """Arguments that lie in memory in many ways: the strides are symbols, or they are not."""

    @w.trace
    def f(x):
        y = x[1:].t()
        y *= 2
        return x + 1, y.reshape(-1)[:4], x.contiguous().view(-1), x.is_contiguous(), x.sum(1)

    def lying(n, how):
        if how == 0:
            return data(n, 4)
        if how == 1:
            return data(4, n).t()
        if how == 2:
            return data(2 * n, 4)[::2]
        return data(n, 9)[:, 2:6] if how == 3 else data(n, 2, 4)[:, 1]

    for n, how in w.rounds(
        (4, 3), (6, 3), (8, 3), (5, 4), (7, 4), (6, 1), (8, 1), (3, 2), (9, 2), (1, 3), (5, 0), (2, 4)
    ):
        w.once(f, lying(n, how))


@program("sizes")
def columns_of_one_buffer_that_touch_or_not(w):
    """Two parts of one memory: whether the one that is written is read by the other is a matter of sizes."""
    buffer = data(12, 3)
    w.see(buffer=buffer)

    @w.trace
    def f(x, y):
        x[:] = y.sum(0)
        y.add_(1)
        return x.mean(), y.mean()

    for a, b, c in w.rounds(
        (4, 4, 8), (5, 5, 10), (6, 6, 12), (6, 4, 10), (8, 2, 7), (3, 3, 3), (3, 1, 9), (1, 0, 12), (7, 8, 8)
    ):
        w.once(f, buffer[:a], buffer[b:c])


@program("sizes")
def sides_of_a_matrix_are_swapped_through_views(w):
    def f(x):
        n = x.shape[0]
        top, bottom = x[: n // 2], x[n - n // 2 :]
        kept = top.clone()
        top.copy_(bottom.flip(0))
        bottom.copy_(kept)
        left, right = x.tensor_split(2, 1)
        right -= left[:, : right.shape[1]]
        return top, bottom, left

    sized(w, f, lambda n: (n, n), sizes=MANY)


@program("sizes")
def chunks_are_views_that_are_written(w):
    """How many there are is decided by a size, and the last may be short."""

    def f(x):
        parts = x.chunk(4)
        for i, part in enumerate(parts):
            part.add_(i)
        last = x.split(3)[-1]
        last.mul_(10)
        return len(parts), last, [part.shape[0] for part in parts], parts[-1].unbind(1)[0]

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_view_is_kept_and_written_later(w):
    kept = []
    w.see(kept=kept)

    def f(x):
        for part in kept:
            part += 1
        n = x.shape[0]
        kept[:] = [x[n // 2 :], x.t()[0, : n // 2]]
        return x.sum() + sum(part.sum() for part in kept)

    def calls():
        traced, given = w.trace(f), [data(n, 3) for n in MANY]
        w.see(given=given)
        for i in w.rounds(*range(len(given))):
            w.once(traced, given[i])

    calls()


@program("sizes")
def gradients_through_written_views(w):
    @w.trace
    def f(x, y):
        x = x.detach().requires_grad_()
        z = x * 2
        n = z.shape[0]
        z[n // 2 :] *= y[n // 2 :]
        z.view(-1)[::2].add_(z.t()[0].sum())
        z[0] = y[-1]
        z.square().mean().backward()
        return x.grad, z

    for n in w.rounds(*MANY):
        w.once(f, data(n, 3), data(n, 3) + 1)


@program("sizes")
def images_that_lie_channels_last(w):
    conv = t.nn.Conv2d(2, 3, 3, padding=1)

    @w.trace
    @t.no_grad()
    def f(x):
        y = conv(x)
        z = x.permute(0, 2, 3, 1)
        z = z.reshape(z.shape[0], -1, 2)
        z -= 1
        last = y.is_contiguous(memory_format=t.channels_last), x.is_contiguous(memory_format=t.channels_last)
        return y, z, last, x.contiguous(memory_format=t.channels_last).stride()[1:]

    for (b, h, v), last in w.rounds(
        ((2, 4, 4), 0),
        ((3, 6, 5), 0),
        ((3, 6, 5), 1),
        ((4, 8, 6), 1),
        ((1, 5, 5), 1),
        ((2, 1, 1), 0),
        ((1, 1, 3), 1),
        ((5, 3, 4), 0),
    ):
        x = data(b, 2, h, v)
        w.once(f, x.to(memory_format=t.channels_last) if last else x)


@program("sizes")
def pointers_tell_what_is_a_view(w):
    def f(x):
        n = x.shape[0]
        y = x[: min(n, 4)].reshape(-1)
        z = x[1:].contiguous()
        return (
            y * 2,
            y.data_ptr() == x.data_ptr(),
            z.data_ptr() - x.data_ptr() == 12 * (n > 1),
            y.untyped_storage().nbytes(),
        )

    sized(w, f, rows, sizes=MANY)
