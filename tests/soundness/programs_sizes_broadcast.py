"""Programs whose arguments change their sizes: dims of one and of none, and equal ones that later differ.

Broadcasting begins or ends between two calls, or a part that was a copy becomes the whole.
"""

from __future__ import annotations

from battery import lib as t
from battery import program
from sized import data_of, sized

F = t.nn.functional
data = data_of(t)
MANY = (4, 6, 8, 5, 3, 7, 2, 1, 9, 12, 10)


def rows(n):
    return n, 3


def line(n):
    return (n,)


# ---- one ---------------------------------------------------------------------------------------------------
@program("sizes")
def a_batch_of_one_meets_a_batch(w):
    """Each of three operands is one row at some time."""
    f = w.trace(lambda x, y, z: (t.where(x > 0, y, z), t.addcmul(x, y, z), t.lerp(x, y, 0.25), x * y - z))
    for a, b, c in w.rounds(
        (4, 4, 4),
        (6, 6, 6),
        (8, 8, 8),
        (1, 5, 5),
        (5, 1, 5),
        (5, 5, 1),
        (1, 1, 7),
        (7, 1, 1),
        (1, 1, 1),
        (2, 2, 2),
    ):
        w.once(f, data(a, 3), data(b, 3), data(c, 3))


@program("sizes")
def gradients_of_operands_that_become_one(w):
    """What was broadcast is summed; what was not is handed on."""

    @w.trace
    def f(x, y):
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        z = (x - y) / (x.square() + 1) + t.maximum(x, y) * t.where(x > y, x, y)
        z.mean().backward()
        return x.grad, y.grad, z.shape

    for a, b in w.rounds(
        ((4, 3), (4, 3)),
        ((6, 3), (6, 3)),
        ((8, 3), (8, 3)),
        ((8, 3), (1, 3)),
        ((5, 3), (5, 1)),
        ((1, 3), (7, 3)),
        ((6, 1), (1, 6)),
        ((7, 1), (1, 7)),
        ((5, 1), (1, 8)),
        ((1, 1), (1, 1)),
        ((2, 3), (3,)),
        ((9, 3), (3,)),
    ):
        w.once(f, data(*a), data(*b) * 0.5)


@program("sizes")
def a_write_that_broadcasts_from_some_sizes_on(w):
    """In place, an operand of one row may be spread; a place of one row may not."""

    @w.trace
    def f(x, y):
        x += y
        x[: y.shape[0]] *= 2
        return x.sum(), x.addcmul_(y, y, value=0.5) is x

    for a, b in w.rounds(
        (4, 4), (6, 6), (8, 8), (5, 1), (7, 1), (1, 4), (1, 1), (3, 3), (2, 1), (9, 9), (8, 5)
    ):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def equal_sizes_of_three_tensors_part(w):
    """First all agree, then any two, then none."""

    def f(x, y, z):
        a, b, c = len(x), len(y), len(z)
        k = min(a, b, c)
        told = (a == b) + 2 * (b == c) + 4 * (a == c)
        return x[:k] + y[:k] * z[:k], t.cat([x, y, z]).cumsum(0), told, (a, b, c)

    f = w.trace(f)
    for sizes in w.rounds(
        (4, 4, 4), (6, 6, 6), (8, 8, 8), (5, 5, 7), (7, 5, 5), (5, 7, 5), (3, 6, 9), (9, 2, 4), (2, 2, 2)
    ):
        w.once(f, *(data(n, 3) for n in sizes))


@program("sizes")
def a_size_that_is_a_number_of_the_program_at_first(w):
    """Three rows of three columns, and a weight of three by three: later the rows are other ones."""
    weight = data(3, 3)

    def f(x):
        y = x @ weight
        return y.t().reshape(3, -1), y + weight if len(x) == 3 else y + weight[0], y.sum(-1), x.reshape(-1, 3)

    sized(w, f, rows, sizes=(3, 3, 6, 9, 4, 3, 2, 1, 5))


@program("sizes")
def multiples_that_are_none_later(w):
    """The second is twice, or three times the first, and then neither."""

    @w.trace
    def f(x, y):
        k = y.shape[0] // x.shape[0]
        z = x.repeat_interleave(k, 0)
        rest = y[z.shape[0] :]
        return y[: z.shape[0]] * z, rest.sum(0), y.shape[0] == 2 * x.shape[0], y.shape[0] % x.shape[0]

    for a, b in w.rounds((2, 4), (3, 6), (4, 8), (4, 12), (3, 9), (4, 9), (5, 8), (6, 5), (1, 7), (2, 2)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def sums_and_differences_of_sizes_agree_by_chance(w):
    @w.trace
    def f(x, y, z):
        joined = t.cat([x, y])
        if joined.shape == z.shape:
            return joined * z
        k = abs(joined.shape[0] - z.shape[0])
        return joined[:k].sum(0) - z[-1], z[k:], k

    for a, b, c in w.rounds(
        (2, 2, 4), (3, 3, 6), (4, 4, 8), (3, 5, 8), (2, 7, 9), (4, 4, 7), (3, 3, 9), (1, 1, 2), (5, 1, 4)
    ):
        w.once(f, data(a, 3), data(b, 3), data(c, 3))


@program("sizes")
def a_mean_over_dims_kept_and_not(w):
    def f(x):
        y = x - x.mean(-1, keepdim=True)
        z = x.sum(0, keepdim=x.shape[0] > 5) * x
        return y.std(0), z, x.amax(1, keepdim=True).expand_as(x), x / x.norm(dim=0, keepdim=True)

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def reductions_over_one_and_none(w):
    """Of none, a sum is 0, a product 1, a mean NaN; of one, a variance is NaN."""

    def f(x):
        y = x.sum(0), x.prod(0), x.mean(0), x.var(0), x.logsumexp(0), x.all(), x.any(0), x.cumsum(0)
        return *y, t.count_nonzero(x), x.norm(), (x > 9).sum(0) / x.shape[0] if len(x) else x.shape

    sized(w, f, rows, sizes=(4, 6, 8, 0, 1, 5, 0, 2, 1, 9))


@program("sizes")
def none_is_joined_with_some(w):
    """Joined with nothing, a tensor is still another."""

    @w.trace
    def f(x, y):
        z = t.cat([x, y])
        z += 1
        return z, t.cat([y, x], 0)[:1] * 2, t.vstack([x, y]).shape, x.sum() + y.sum()

    for a, b in w.rounds((4, 2), (6, 3), (8, 5), (5, 0), (0, 7), (0, 0), (3, 1), (1, 0), (9, 4)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def products_with_none_inside(w):
    @w.trace
    def f(x, y):
        z = x @ y
        return z, t.baddbmm(z[None], x[None], y[None], beta=0.5), F.linear(x, y.t()), z.softmax(-1)

    for a, k, b in w.rounds(
        (4, 4, 4), (6, 6, 6), (5, 8, 7), (5, 0, 3), (0, 4, 2), (3, 1, 3), (1, 1, 1), (2, 5, 0), (1, 9, 4)
    ):
        w.once(f, data(a, k), data(k, b))


@program("sizes")
def vectors_and_matrices_by_rank(w):
    """A product means another thing for each number of dims."""
    f = w.trace(lambda x, y: (x @ y, t.matmul(x, y).shape, x.dim() * y.numel()))
    for a, b in w.rounds(
        ((4,), (4,)),
        ((6,), (6,)),
        ((8,), (8,)),
        ((5, 6), (6,)),
        ((6,), (6, 3)),
        ((2, 4, 6), (6, 5)),
        ((7, 1), (1, 7)),
        ((1, 3, 4), (5, 4, 2)),
        ((3, 3, 4), (3, 4, 2)),
        ((5, 3, 4), (1, 4, 2)),
        ((1,), (1,)),
    ):
        w.once(f, data(*a), data(*b))


@program("sizes")
def contractions_of_letters(w):
    @w.trace
    def f(x, y):
        own = t.einsum("ij->j", x), t.einsum("ij->ji", x), t.einsum("ij,ij->", x, x)
        mixed = t.einsum("ij,kj->ik", x, y), t.einsum("i...,k...->ik...", x, y)
        return *own, *mixed, t.einsum("bij,bjk->bik", x[None], y.t()[None])

    for a, b, c in w.rounds(
        (4, 4, 4), (6, 6, 6), (8, 8, 8), (5, 7, 3), (7, 5, 2), (3, 4, 1), (1, 6, 5), (1, 1, 1), (2, 9, 4)
    ):
        w.once(f, data(a, c), data(b, c))


@program("sizes")
def a_diagonal_of_a_contraction(w):
    """`ii` wants a square."""

    @w.trace
    def f(x):
        return t.einsum("ii->i", x) * 2, t.einsum("ii", x), x.diagonal() + x.shape[1]

    for a, b in w.rounds((4, 4), (6, 6), (8, 8), (5, 4), (3, 3), (1, 1), (1, 5), (7, 7), (2, 2)):
        w.once(f, data(a, b))


@program("sizes")
def a_loss_that_warns_of_other_sizes(w):
    """A target of another size is spread, with a warning."""

    @w.trace
    def f(x, y):
        return F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum") / x.shape[0]

    for a, b in w.rounds((4, 4), (6, 6), (8, 8), (5, 1), (1, 1), (1, 6), (7, 1), (3, 3), (9, 2)):
        w.once(f, data(a, 2), data(b, 2))


@program("sizes")
def a_part_that_is_the_whole_for_some(w):
    """A slice of all of it, a narrow of all of it, an expansion to its own size: views of it nonetheless."""

    def f(x):
        n = x.shape[0]
        k = min(n, 5)
        parts = (
            x[:k],
            x.narrow(0, n - k, k),
            x.expand(max(n, 1), 3),
            x.to(x.dtype),
            x.view(n, -1),
            x.contiguous(),
        )
        parts[0].add_(1)
        parts[1][0].mul_(2)
        return *parts, [part is x for part in parts]

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def a_copy_that_is_none_for_some(w):
    """Repeated once, rolled by nothing, padded by nothing: copies nonetheless."""

    def f(x):
        n = x.shape[0]
        k = max(0, n - 5)
        made = x.repeat(1 + k // 4, 1), x.roll(k, 0), F.pad(x, (0, 0, 0, k)), t.cat([x]), x.flip(0)
        made[1].add_(1)
        made[2][:1] = 9.0
        return *made, F.dropout(x, 0.0, training=n > 4), x.clamp(max=n), x.index_select(0, t.arange(n))

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def squeezed_and_written(w):
    """What a squeeze leaves is a view; which dims it takes is decided by sizes."""

    @w.trace
    def f(x):
        y = x.squeeze()
        y += 1
        z = x.squeeze(0).unsqueeze(-1)
        z.mul_(2)
        return y.sum(-1), z, x.squeeze((0, 1)).dim(), y.shape

    for a, b in w.rounds((4, 3), (6, 3), (8, 5), (1, 4), (1, 6), (5, 1), (7, 1), (1, 1), (2, 2)):
        w.once(f, data(a, b))


@program("sizes")
def outer_products_by_unsqueezing(w):
    @w.trace
    def f(x, y):
        grid = x[:, None] - y[None]
        near = grid.abs().argmin(1)
        return grid, near, y[near], grid.shape[0] * grid.shape[1], (x[:, None] == y).any(1)

    for a, b in w.rounds((4, 4), (6, 6), (8, 8), (5, 3), (3, 5), (1, 7), (7, 1), (1, 1), (9, 2)):
        w.once(f, data(a), data(b))


@program("sizes")
def a_mask_of_rows_or_of_all(w):
    """A mask of one row masks all rows; one of one column all columns."""

    @w.trace
    def f(x, mask):
        y = x.masked_fill(mask, 0.0)
        return y, t.where(mask, x, -x), (mask * 1).sum(), x * ~mask, y.shape == mask.shape

    for a, m in w.rounds(
        ((4, 4), (4, 4)),
        ((6, 6), (6, 6)),
        ((8, 5), (8, 5)),
        ((5, 4), (1, 4)),
        ((7, 3), (7, 1)),
        ((3, 3), (1, 1)),
        ((1, 4), (1, 4)),
        ((2, 6), (6,)),
        ((9, 2), (2,)),
        ((1, 1), (1,)),
    ):
        w.once(f, data(*a), data(*m) > 0)
