"""Programs whose arguments change their sizes: what gathers, scatters, sorts, pools, scales and transforms.

programs_sizes_views.py has those that cut; here ops have rules of their own about sizes, and errors of them.
"""

from __future__ import annotations

from battery import lib as t
from battery import program
from sized import data_of, sized

nn, F = t.nn, t.nn.functional
data = data_of(t)
MANY = (4, 6, 8, 5, 3, 7, 2, 1, 9, 12, 10)
SOME = (4, 6, 8, 5, 3, 7, 9, 10)


def rows(n):
    return n, 3


def line(n):
    return (n,)


# ---- gathered and scattered --------------------------------------------------------------------------------
@program("sizes")
def indices_that_run_out_for_some_sizes(w):
    """A table of six rows is looked up by positions, and by those of a tensor."""
    table = data(6, 3)

    @w.trace
    def f(x, at):
        return x + F.embedding(t.arange(x.shape[0]), table), table[at], table.index_select(0, at)

    for n, at in w.rounds((4, 3), (5, 4), (6, 5), (7, 2), (3, 6), (2, -1), (6, 0), (8, 8), (1, 1)):
        w.once(f, data(n, 3), t.tensor([0, at]))


@program("sizes")
def index_put_by_sizes(w):
    def f(x):
        n = x.shape[0]
        at = t.arange(n) % (n // 2 + 1)
        x.index_put_((at, at % 3), t.ones(n), accumulate=True)
        x[at[: n // 2], 0] = x[-1, 0].clone()
        y = t.zeros(n, 3).index_put((t.tensor([n - 1]),), x.sum(0))
        y[[0, n - 1], [0, 2]] += 1
        return y, x.index_copy(0, t.tensor([0, n - 1])[: min(n, 2)], y[: min(n, 2)]), x.index_add_(0, at, y)

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def scatters_with_reductions(w):
    def f(x):
        n = x.shape[0]
        at = (t.arange(n) * 3) % (n - n // 3)
        place = at[:, None].expand(-1, 3)
        means = t.zeros(n - n // 3, 3).scatter_reduce(0, place, x, "mean", include_self=False)
        counts = t.zeros(n).scatter_add(0, at, t.ones(n))
        return means, counts, x.scatter(0, place[:1], float(n)), means.gather(0, place), t.bincount(at)

    sized(w, f, rows, sizes=MANY)


@program("sizes")
def segments_by_their_lengths(w):
    @w.trace
    def f(x, lengths):
        segment = t.repeat_interleave(t.arange(lengths.shape[0]), lengths)
        sums = x.new_zeros(lengths.shape[0], 3).index_add_(0, segment, x)
        return (
            sums / lengths.clamp(min=1)[:, None],
            segment,
            x - sums[segment],
            lengths.cumsum(0)[-1] == len(x),
        )

    for lengths in w.rounds((2, 2), (3, 3), (4, 2, 1), (1, 1, 1, 1), (5,), (0, 3, 2), (2, 0), (1,)):
        w.once(f, data(sum(lengths), 3), t.tensor(lengths))


@program("sizes")
def neighbours_by_edges(w):
    """As a network of a graph: nodes, edges, and degrees by which messages are divided."""
    weight = data(3, 2)

    @w.trace
    def f(x, edges):
        source, target = edges
        n = x.shape[0]
        degree = t.zeros(n).index_add(0, target, t.ones(edges.shape[1])).clamp(min=1)
        scale = (degree[source] * degree[target]).rsqrt()
        y = (x @ weight).index_select(0, source) * scale[:, None]
        return t.zeros(n, 2).index_add_(0, target, y), y.mean(0), n / edges.size(1)

    for n, m in w.rounds((4, 4), (6, 6), (8, 10), (5, 8), (3, 3), (7, 2), (2, 9), (1, 1)):
        w.once(f, data(n, 3), t.stack([t.arange(m) % n, t.arange(m) * 5 % n]))


@program("sizes")
def take_along_and_put_back(w):
    @w.trace
    def f(x):
        order = x.argsort(1, descending=True)
        kept = order[:, : x.shape[1] // 2 + 1]
        y = x.take_along_dim(kept, 1)
        back = t.full_like(x, -1.0).scatter_(1, kept, y)
        return back, order.argsort(1), x.take(kept[:, 0]), t.zeros_like(x).masked_scatter(x > 0, x.flatten())

    for n, m in w.rounds((4, 4), (6, 6), (8, 5), (5, 8), (3, 3), (7, 2), (1, 9), (2, 1), (1, 1)):
        w.once(f, data(n, m))


@program("sizes")
def experts_take_their_tokens(w):
    """How many tokens an expert gets is a value; how many it may take at most is made of a size."""
    experts = [data(3, 3) * 0.5, data(3, 3) - 1]

    @w.trace
    def f(x):
        n = x.shape[0]
        most = -(-n // len(experts))
        chosen = (x.sum(1) > 0).long()
        y = t.zeros_like(x)
        for i, expert in enumerate(experts):
            at = (chosen == i).nonzero().flatten()[:most]
            y.index_add_(0, at, x[at] @ expert)
        return y, most, F.one_hot(chosen, 2).sum(0)

    for n in w.rounds(*SOME):
        w.once(f, data(n, 3))


# ---- sorted, counted, accumulated --------------------------------------------------------------------------
@program("sizes")
def orders_and_places(w):
    def f(x):
        n = x.shape[0]
        values, at = x.sort(descending=n % 2 == 0)
        bounds = t.linspace(-1, 1, n // 2 + 1)
        return (
            values.cumsum(0) / t.arange(1, n + 1),
            t.searchsorted(bounds, x),
            t.bucketize(x, bounds),
            x.msort(),
            at,
        )

    sized(w, f, line, sizes=MANY)


@program("sizes")
def running_extremes_and_differences(w):
    def f(x):
        n = x.shape[0]
        y = x.cummax(0).values, x.cumprod(0), x.diff(), x.diff(n=min(n, 2), dim=0), x.logcumsumexp(0)
        return *y, t.trapezoid(x), x.unique().shape, t.cumulative_trapezoid(x), x.flip(0).cumsum(0).flip(0)

    sized(w, f, line, sizes=MANY)


@program("sizes")
def quantiles_and_modes(w):
    def f(x):
        n = x.shape[0]
        q = t.arange(n) / max(n - 1, 1)
        return (
            x.quantile(q),
            x.nanmedian(),
            x.mode().values,
            t.histc(x, n // 2 + 1, -2, 2),
            x.kthvalue(n // 2 + 1),
        )

    sized(w, f, line, sizes=MANY)


@program("sizes")
def powers_and_pairs_of_a_size(w):
    def f(x):
        n = x.shape[0]
        pairs = t.combinations(x)
        return (
            t.vander(x, n // 2 + 1),
            pairs.sum(0),
            pairs.shape[0] / n,
            t.cartesian_prod(x, x[:2]),
            F.pdist(x[:, None]),
        )

    sized(w, f, line, sizes=(4, 6, 5, 3, 7, 2, 1, 8))


@program("sizes")
def matrices_that_are_squares_for_some(w):
    """Solved, inverted, factored: what is no square is refused."""

    @w.trace
    def f(x):
        n = x.shape[0]
        y = x @ x.t() + t.eye(n) * n
        return (
            t.linalg.cholesky(y),
            t.linalg.solve(y, x),
            t.linalg.inv(x + 3 * t.eye(n)),
            t.linalg.slogdet(y)[1],
        )

    for a, b in w.rounds((4, 4), (6, 6), (5, 5), (5, 4), (3, 3), (1, 1), (1, 3), (2, 2)):
        w.once(f, data(a, b))


@program("sizes")
def spectra_of_odd_and_even_lengths(w):
    """Of an odd length, the spectrum does not tell it: it comes back one shorter."""

    def f(x):
        n = x.shape[-1]
        y = t.fft.rfft(x)
        return (
            t.fft.irfft(y),
            t.fft.irfft(y, n=n),
            y.abs(),
            t.fft.fftfreq(n),
            t.fft.fftshift(x),
            y.shape[-1] * 2 - n,
        )

    sized(w, f, lambda n: (2, n), sizes=(4, 6, 8, 5, 3, 7, 2, 9))


# ---- images and signals ------------------------------------------------------------------------------------
@program("sizes")
def scaled_by_factors_that_round_down(w):
    def f(x):
        y = F.interpolate(x, scale_factor=1.5), F.interpolate(x, scale_factor=0.4 + 0.2, mode="bilinear")
        z = F.interpolate(x, scale_factor=(2.3, 0.75), mode="bilinear", align_corners=True)
        return *y, z, z.shape, F.interpolate(x, size=(x.shape[2] // 2 + 1, 3), mode="nearest-exact")

    sized(w, f, lambda n: (1, 2, n, n + 1), sizes=(4, 6, 8, 5, 3, 2, 7, 10))


@program("sizes")
def pools_that_round_up(w):
    """A pool may hang over an edge, and what it counts there is another number."""

    def f(x):
        y = F.avg_pool2d(x, 2, 2, 1), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False)
        z, at = F.max_pool2d(x, 2, return_indices=True)
        back = F.max_unpool2d(z, at, 2, output_size=x.shape[-2:])
        return *y, z, at, back, F.max_pool2d(x, 3, 2, ceil_mode=True), F.lp_pool1d(x[0], 2.0, 2)

    sized(w, f, lambda n: (1, 2, n, n + 1), sizes=(4, 6, 8, 5, 3, 2, 7, 10, 1))


@program("sizes")
def an_encoder_and_a_decoder_with_skips(w):
    """As a U-Net: halved, doubled, padded to what was skipped, and joined."""
    down, up, last = nn.Conv2d(1, 2, 3, padding=1), nn.ConvTranspose2d(2, 2, 2, 2), nn.Conv2d(4, 1, 1)

    @w.trace
    @t.no_grad()
    def f(x):
        skip = down(x).relu()
        y = up(F.max_pool2d(skip, 2))
        high, wide = skip.shape[-2] - y.shape[-2], skip.shape[-1] - y.shape[-1]
        y = F.pad(y, (wide // 2, wide - wide // 2, high // 2, high - high // 2))
        return last(t.cat([skip, y], 1)), (high, wide)

    for b, h, v in w.rounds(
        (1, 4, 4), (2, 6, 6), (2, 8, 5), (3, 5, 7), (1, 7, 4), (1, 2, 3), (2, 9, 9), (1, 1, 2)
    ):
        w.once(f, data(b, 1, h, v))


@program("sizes")
def strided_and_dilated_convolutions(w):
    """Their sizes are quotients: several of the image give one of the result."""
    a, b = nn.Conv1d(2, 2, 3, stride=2), nn.Conv1d(2, 4, 2, stride=3, dilation=2, groups=2, padding=1)

    @w.trace
    @t.no_grad()
    def f(x):
        y, z = a(x), b(x)
        return (
            y,
            z,
            y.shape[-1] == z.shape[-1],
            y[..., : z.shape[-1]].sum(-1),
            F.conv1d(x, a.weight, padding="same"),
        )

    for n in w.rounds(*MANY):
        w.once(f, data(2, 2, n))


@program("sizes")
def patches_unfolded_and_folded(w):
    def f(x):
        h, v = x.shape[-2:]
        patches = F.unfold(x, 2, padding=1, stride=2)
        ones = F.fold(F.unfold(t.ones_like(x), 2, padding=1, stride=2), (h, v), 2, padding=1, stride=2)
        return patches.mean(-1), F.fold(patches * 2, (h, v), 2, padding=1, stride=2) / ones, patches.shape[-1]

    sized(w, f, lambda n: (1, 2, n, n + 1), sizes=(4, 6, 8, 5, 3, 2, 7, 1))


@program("sizes")
def channels_shuffled_to_places(w):
    """Channels that the square of the factor does not divide are refused."""

    def f(x):
        y = F.pixel_shuffle(x, 2)
        return y, F.pixel_unshuffle(y, 2) - x, F.channel_shuffle(x, x.shape[1] // 4), y.shape[1:]

    sized(w, f, lambda n: (1, n, n // 2, 3), sizes=(4, 8, 12, 16, 6, 4, 20))


@program("sizes")
def grids_that_are_sampled(w):
    def f(x):
        theta = t.tensor([[[0.9, 0.1, 0.0], [-0.1, 0.8, 0.2]]])
        grid = F.affine_grid(theta, x.shape, align_corners=False)
        return (
            F.grid_sample(x, grid, align_corners=False),
            grid.shape,
            F.grid_sample(x, grid[:, ::2], mode="nearest", align_corners=True),
        )

    sized(w, f, lambda n: (1, 2, n, n + 1), sizes=(4, 6, 8, 5, 3, 2, 7))


@program("sizes")
def pads_of_every_kind(w):
    """Reflection and wrapping need more elements than they add; a negative pad cuts."""

    def f(x):
        n = x.shape[-1]
        y = (
            F.pad(x, (1, n // 2), mode="replicate"),
            F.pad(x, (-1, n // 3)),
            F.pad(x, (n // 3 - 1, -(n // 3)), value=2.0),
        )
        return *y, F.pad(x, (n - 1, 1), mode="reflect"), F.pad(x, (2, n // 2), mode="circular")

    sized(w, f, lambda n: (1, 2, n), sizes=MANY)


@program("sizes")
def groups_that_normalize(w):
    """Of one element there is no variance: refused in training."""

    def f(x):
        y = F.group_norm(x, 2), F.instance_norm(x), F.local_response_norm(x, 2)
        return (
            *y,
            F.normalize(x, dim=1),
            F.rms_norm(x, x.shape[-1:]),
            F.batch_norm(x, None, None, training=True),
        )

    sized(w, f, lambda n: (n // 2 + 1, 4, n), sizes=(4, 6, 8, 5, 3, 2, 7, 1))


@program("sizes")
def gates_that_halve_a_size(w):
    """Half of an odd size is refused."""
    sized(
        w,
        lambda x: (
            F.glu(x, 0),
            x.chunk(2)[0] * x.chunk(2)[-1].sigmoid() if len(x) % 2 == 0 else x,
            F.glu(x.t()),
        ),
        rows,
        sizes=(4, 6, 8, 5, 2, 3, 10, 1, 12),
    )


@program("sizes")
def bags_of_words_by_offsets(w):
    table = data(9, 3)

    @w.trace
    def f(words, offsets):
        y = F.embedding_bag(words, table, offsets, mode="mean")
        return y, y.shape[0] / words.shape[0], F.embedding_bag(words.view(1, -1), table, mode="max")

    for n, offsets in w.rounds(
        (4, (0, 2)), (6, (0, 3)), (8, (0, 1, 4)), (5, (0, 0, 5)), (3, (0,)), (7, (0, 2, 4, 6)), (1, (0,))
    ):
        w.once(f, t.arange(n) * 4 % 9, t.tensor(offsets))


@program("sizes")
def a_mapping_over_a_batch(w):
    """Each example by itself: the batch is a size that the function does not see."""

    @w.trace
    def f(x, y):
        each = t.func.vmap(lambda a, b: a.sum() / a.shape[0] + (a * b).cumsum(0))(x, y)
        grads = t.func.vmap(t.func.grad(lambda a, b: (a * b).sin().mean()), in_dims=(0, None))(x, y[0])
        return each, grads, t.func.vmap(lambda a: a[: a.shape[0] // 2], in_dims=1, out_dims=1)(x)

    for n, m in w.rounds((4, 4), (6, 6), (8, 5), (5, 8), (3, 3), (2, 7), (1, 4), (4, 1)):
        w.once(f, data(n, m), data(n, m) + 1)


@program("sizes")
def derivatives_whose_shape_is_made_of_sizes(w):
    @w.trace
    def f(x):
        g = lambda a: (a[1:] * a[:-1]).sum() / a.shape[0]  # noqa: E731
        return (
            t.func.jacrev(lambda a: a.cumsum(0) * a.shape[0])(x),
            t.func.hessian(g)(x),
            t.func.jvp(g, (x,), (x,))[1],
        )

    for n in w.rounds(4, 6, 5, 3, 7, 2, 8):
        w.once(f, data(n))
