"""Programs whose arguments change their sizes: what is cut, made and written by a size, and what is a view.

programs_sizes.py has those that compute with sizes.
"""

from __future__ import annotations

from battery import lib as t
from battery import program
from sized import data_of, sized

F = t.nn.functional
data = data_of(t)


def rows(n):
    return n, 3


def line(n):
    return (n,)


def square(n):
    return n, n


# ---- shapes are changed ------------------------------------------------------------------------------------
@program("sizes")
def views_by_computed_sizes(w):
    def f(x):
        n = x.shape[0]
        y = x.view(n // 2, 2, 3).transpose(1, 2)
        return y.reshape(n // 2, -1), y.flatten(0, 1), x.flatten().unflatten(0, (n, 3)), x.view(-1, 6)

    sized(w, f, rows, sizes=(4, 6, 8, 2, 10, 5, 12, 3))


@program("sizes")
def an_unknown_size_between_known(w):
    sized(
        w,
        lambda x: (x.view(x.shape[0], -1, 2), x.reshape(-1, x.shape[0] * 2), x.view(2, -1)),
        lambda n: (n, 6),
    )


@program("sizes")
def expansions_and_repetitions(w):
    def f(x):
        n = x.shape[0]
        y = x[:, None].expand(-1, n, 3), x[:1].expand(n + 1, -1), x.repeat(n, 1), x.tile(2, n // 2)
        return *y, t.broadcast_to(x[0], (n, 2, 3)).sum(1), x[0].expand_as(x) * 2

    sized(w, f, rows)


@program("sizes")
def chunks_whose_number_changes(w):
    def f(x):
        parts = x.chunk(3)
        return [part * i for i, part in enumerate(parts)], len(parts), x.split(2)[-1] + 1, len(x.split(4))

    sized(w, f, rows)


@program("sizes")
def splits_by_sizes(w):
    def f(x):
        n = x.shape[0]
        a, b = x.split([n // 2, n - n // 2])
        c, d, e = t.tensor_split(x, 3)
        return a.sum(0) - b.sum(0), c, d * 2, e.mean(0), t.tensor_split(x, (1, n - 1))[1]

    sized(w, f, rows)


@program("sizes")
def unbinding_and_stacking(w):
    def f(x):
        parts = x.unbind(0)
        return t.stack(parts[::-1], 1), t.cat(parts[1:] + parts[:1]), len(parts), sum(parts)

    sized(w, f, rows)


@program("sizes")
def concatenations_with_computed_parts(w):
    def f(x):
        n = x.shape[0]
        y = t.cat([x, x[: n // 2], t.zeros(n % 3, 3)])
        return y * 2, t.cat([y, y], 1).sum(0), t.stack([x] * 2).shape, t.cat([x[n:], x]) + 1

    sized(w, f, rows)


@program("sizes")
def rolls_flips_and_rotations(w):
    def f(x):
        n = x.shape[0]
        return (
            x.roll(n // 2, 0),
            x.roll(-1, 0),
            x.flip(0),
            x.rot90(),
            x.roll((1, n - 2), (1, 0)),
            x.roll(n - 1),
        )

    sized(w, f, rows)


@program("sizes")
def narrow_and_select_by_computed_numbers(w):
    def f(x):
        n = x.shape[0]
        return x.narrow(0, n // 3, n - n // 2 - n // 3), x.select(0, n // 2), x[n - 1], x[-n], x.select(0, -1)

    sized(w, f, rows)


@program("sizes")
def slices_that_are_clamped(w):
    def f(x):
        return x[:5], x[-3:] * 2, x[2:7], x[5:].sum(0), x[:-4], x[3:-1], x[1:100] + 1

    sized(w, f, rows)


@program("sizes")
def bounds_that_change_their_sign(w):
    """n - 5 counts from the end where it is negative."""

    def f(x):
        n = x.shape[0]
        return x[n - 5 :], x[: n - 6] * 2, x[n - 4 : n - 1], x[2 - n :], x[-n // 2 :]

    sized(w, f, rows)


@program("sizes")
def steps_that_are_computed(w):
    def f(x):
        n = x.shape[0]
        return x[:: n // 3 + 1], x[1::2] * 2, x[n // 2 :: 3], x[: n - 1 : 2].sum(0), x[::n]

    sized(w, f, rows)


@program("sizes")
def an_index_out_of_range_for_some(w):
    sized(w, lambda x: x[4] * 2 + x[-3], rows)


@program("sizes")
def an_index_of_lists_and_tensors(w):
    def f(x):
        n = x.shape[0]
        index = t.arange(n - 1, -1, -1)
        return (
            x[index],
            x[[0, n - 1, n // 2]],
            x[index[: n // 2], 1],
            x[t.tensor([n - 1, 0])],
            x[..., None, -1],
        )

    sized(w, f, rows)


@program("sizes")
def dimensions_that_move(w):
    def f(x):
        y = x.permute(2, 0, 1)
        return (
            y.reshape(y.shape[0], -1),
            x.movedim(0, -1).flatten(1),
            x.transpose(0, 2).contiguous().view(-1),
            y.mT,
        )

    sized(w, f, lambda n: (n, 2, n + 1))


@program("sizes")
def windows_and_diagonals(w):
    def f(x):
        n = x.shape[0]
        return x.diagonal(), x.diagonal(1) * 2, t.diag(x.sum(0)), x.unfold(0, 2, 1).sum(-1), x.trace() / n

    sized(w, f, square)


@program("sizes")
def strides_that_are_given(w):
    def f(x):
        n = x.shape[0]
        return x.as_strided((n - 1, 2), (3, 1), 1) * 2, x.as_strided((n,), (3,))

    sized(w, f, rows)


# ---- tensors made by size ----------------------------------------------------------------------------------
@program("sizes")
def tensors_of_a_size(w):
    def f(x):
        n = x.shape[0]
        made = t.zeros(n), t.ones(n, 2) * n, t.full((n,), 0.5), t.eye(n), t.eye(n, 2), t.linspace(0, 1, n)
        return *made, t.arange(n), t.arange(1, n, 2), t.arange(n, 0, -1), t.logspace(0, 1, n), x.new_ones(n)

    sized(w, f, rows)


@program("sizes")
def tensors_of_numbers_that_are_sizes(w):
    def f(x):
        n = x.shape[0]
        return (
            t.tensor(n),
            t.tensor([n, 1]),
            t.tensor(x.shape),
            t.full((2,), n),
            t.tensor(n / 2),
            t.tensor([[n, n]]),
        )

    sized(w, f, rows)


@program("sizes")
def dtypes_of_what_a_size_makes(w):
    def f(x):
        n = x.shape[0]
        whole = t.arange(3)
        return (
            whole * n,
            whole / n,
            whole + n / 2,
            whole.to(t.int8) * n,
            (whole > n - 3) * n,
            whole.clamp(max=n - 2),
        )

    sized(w, f, rows, sizes=(4, 6, 8, 5, 3, 2, 1, 127))


@program("sizes")
def triangular_masks(w):
    def f(x):
        n = x.shape[0]
        mask = t.tril(t.ones(n, n, dtype=t.bool))
        y = x.masked_fill(~mask, -1.0).softmax(-1)
        return y, t.triu(x, n // 2), t.tril(x, -1), t.tril_indices(n, n), t.ones(n, n).triu(1).bool().sum()

    sized(w, f, square)


@program("sizes")
def masks_of_comparisons_with_positions(w):
    def f(x):
        at = t.arange(x.shape[0])
        mask = at[:, None] >= at[None, :]
        return t.where(mask, x, x.shape[0]), x * (at < x.shape[0] // 2), (at == len(x) - 1).float() @ x

    sized(w, f, square)


@program("sizes")
def grids_and_products(w):
    def f(x):
        n = x.shape[0]
        a, b = t.meshgrid(t.arange(n), t.arange(2), indexing="ij")
        return a * b, t.cartesian_prod(t.arange(n), t.arange(2)).sum(0), t.outer(x, x), t.kron(x, x), a.shape

    sized(w, f, line)


@program("sizes")
def one_hot_and_counts_of_a_size(w):
    def f(x):
        n = x.shape[0]
        whole = x.argsort()
        return F.one_hot(whole, n), t.bincount(whole, minlength=n + 2), t.histc(x, bins=n), whole % n

    sized(w, f, line)


@program("sizes")
def contractions_over_sizes(w):
    def f(x, y):
        return (
            t.einsum("ij,kj->ik", x, y),
            x @ y.t(),
            t.bmm(x[None], y.t()[None]),
            t.tensordot(x, y, ([1], [1])),
        )

    sized(w, f, lambda n: (n, n + 1), lambda n: (3 if n > 3 else n, n + 1))


@program("sizes")
def a_product_whose_inner_size_changes(w):
    f = w.trace(lambda x, y: (x @ y, t.cdist(x, y.t())))
    for n, k in w.rounds((4, 4), (6, 6), (8, 8), (5, 5), (5, 4), (1, 1), (0, 0), (3, 3)):
        w.once(f, data(2, n), data(k, 2))


# ---- views of arguments, and writes ------------------------------------------------------------------------
@program("sizes")
def a_returned_view_of_an_argument(w):
    sized(w, lambda x: (x[1:], x.view(-1)[: x.shape[0]], x.t(), x[x.shape[0] // 2], x.reshape(3, -1)), rows)


@program("sizes")
def a_reshape_of_a_part_that_may_be_the_whole(w):
    def f(x, y):
        part = x[:, : y.shape[0]].reshape(-1)
        part.mul_(2)
        return x + 1, part

    f = w.trace(f)
    for k, n in w.rounds((2, 4), (3, 5), (3, 6), (4, 4), (5, 5), (1, 3), (6, 6), (2, 7), (7, 2)):
        w.once(f, data(2, n), data(k))


@program("sizes")
def a_reshape_of_rows_that_may_be_one(w):
    """Of one row, and of one column, a transposed tensor lies in order."""

    def f(x):
        flat = x.t().reshape(-1)
        flat += 1
        return flat, x.clone(), x.t().is_contiguous()

    f = w.trace(f)
    for a, b in w.rounds((4, 3), (6, 4), (8, 5), (1, 6), (5, 1), (3, 3), (1, 1), (2, 7), (7, 1)):
        w.once(f, data(a, b))


@program("sizes")
def views_of_views_are_written(w):
    def f(x):
        n = x.shape[0]
        x[1:].view(-1)[: n - 1].view(n - 1).add_(10)
        x.t()[0, ::2].mul_(3)
        return x.sum(0), x[n // 2 :][0]

    sized(w, f, rows)


@program("sizes")
def a_row_and_a_part_are_written(w):
    def f(x):
        n = x.shape[0]
        x[n // 2] += 1
        x[: n // 3] = 0.5
        x[-1, :] = n
        x[n - 1 :, 0] *= 2
        return x * 2

    sized(w, f, rows)


@program("sizes")
def copies_and_fills_of_parts(w):
    def f(x, y):
        k = min(x.shape[0], y.shape[0])
        x[:k].copy_(y[:k])
        x[k:].fill_(7.0)
        y.narrow(0, 0, k // 2).zero_()
        return x + 1

    f = w.trace(f)
    for a, b in w.rounds((4, 6), (6, 7), (8, 9), (7, 5), (3, 3), (9, 2), (1, 6), (5, 4)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def a_copy_that_broadcasts(w):
    def f(x, y):
        x.copy_(y)
        x[:, :2] = y[..., :2] * 2
        return x.sum()

    f = w.trace(f)
    for a, b in w.rounds((4, 4), (6, 6), (8, 8), (8, 1), (5, 1), (3, 2), (1, 1), (7, 7)):
        w.once(f, data(a, 3), data(b, 3))


@program("sizes")
def an_overlapping_copy(w):
    def f(x):
        x[1:] = x[:-1].clone() * 2
        x[: x.shape[0] // 2] += x[x.shape[0] - x.shape[0] // 2 :]
        return x.flip(0)

    sized(w, f, rows)


@program("sizes")
def a_fresh_tensor_is_written_by_parts(w):
    def f(x):
        n = x.shape[0]
        out = t.zeros(2 * n, 3)
        out[:n] = x
        out[n:] = x.flip(0)
        out[::n] += 1
        view = out.view(2, n, 3)
        view[1] -= 5
        return out, view, view[0].t()

    sized(w, f, rows)


@program("sizes")
def a_written_result_of_a_possible_view(w):
    """A copy may be written without the argument; a view may not."""

    def f(x):
        y = x.contiguous()
        z = x.flatten()
        y[0] = 9.0
        z[-1] = 8.0
        return y, z, x * 1

    f = w.trace(f)
    for n, how in w.rounds((4, 0), (6, 0), (6, 1), (8, 1), (1, 1), (5, 0), (3, 1), (1, 0), (7, 1)):
        w.once(f, data(n, 3) if how == 0 else data(3, n).t())


@program("sizes")
def masks_index_writes(w):
    def f(x):
        x[x > 0.5] = 0.0
        x[t.arange(x.shape[0]) % 2 == 0] += 1
        x.masked_fill_(x < -1, x.shape[0])
        x.index_fill_(0, t.tensor([x.shape[0] - 1]), 4.0)
        return x * 2

    sized(w, f, rows)


@program("sizes")
def scattered_by_a_size(w):
    def f(x):
        n = x.shape[0]
        index = (t.arange(n) * 2) % n
        out = t.zeros(n, 3).index_add(0, index, x)
        return (
            out,
            t.zeros(n + 1, 3).scatter_add_(0, index[:, None].expand(n, 3), x),
            x.gather(0, index[None, :3] % n),
        )

    sized(w, f, rows)
