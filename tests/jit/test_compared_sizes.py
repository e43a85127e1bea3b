"""Comparisons that ask a size for no value: shapes that were put together, and whether a number is None."""

import lamina


def recordings(function, width=4):
    traced = lamina.jit.trace(function, budget=None)
    with lamina.no_grad():
        for rows in range(2, 9):
            x = lamina.ones(rows, width)
            assert lamina.equal(traced(x), function(x))
    return traced.counts()["recorded"]


def test_shapes_that_were_put_together_are_compared_by_their_sizes():
    def checked(x):
        rows, width = x.shape
        return x + 1 if tuple(x.shape) == (rows, width) and (rows, 2, width) != (rows, 3, width) else x - 1

    assert recordings(checked) == 2


def test_a_shape_that_differs_in_some_calls_is_another_way():
    def checked(x):
        return x + 1 if (x.shape[0], 4) == (5, 4) else x - 1

    assert recordings(checked) <= 4  # the first, that of five rows, and those around it


def test_a_size_is_not_none():
    def checked(x):
        sizes = [n * 2 for n in x.shape]
        return x.reshape(-1, 2) if any([n is None for n in sizes]) or None is sizes[0] else x * 2

    assert recordings(checked) == 2


def test_a_part_as_long_as_the_lesser_of_two_sizes_is_written():
    """Whether its places are within bounds is asked of remainders by a size."""

    @lamina.jit.trace(budget=None)
    def f(x, y, v):
        v.unsqueeze(0)[:, : x.shape[0]].reshape(-1).add_(1)
        return lamina.randperm(max(x.shape[0], 2)).float()

    for n, k, m in ((3, 8, 3), (9, 9, 9), (4, 5, 6), (7, 3, 5), (5, 6, 7)):
        v = lamina.arange(float(m))
        wanted = v.sum().item() + min(n, m)
        f(lamina.zeros(n), lamina.zeros(k), v)
        assert v.sum().item() == wanted
    assert "KernelError" not in f.explain(), f.explain()
