"""Functions and switches at the root of the package against PyTorch's."""

import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402


def refused(function, *args):
    try:
        function(*args)
    except RuntimeError as error:
        return str(error)


SEGMENTS = ("sum", "mean", "max", "min", "prod", "amax", "amin")


def segments(T, reduce, initial):
    """Values and gradients, by lengths and by offsets, of rows and of matrices."""
    found = []
    for shape, lengths in (((6,), [1, 0, 3, 2]), ((6, 2), [2, 4]), ((2, 4, 3), [[1, 3], [4, 0]])):
        size = T.tensor(lengths)
        ends = T.cat((T.zeros_like(size[..., :1]), size), -1).cumsum(-1)
        for given in ({"lengths": size}, {"offsets": ends}):
            x = (T.arange(float(T.empty(shape).numel()), dtype=T.float64) * 5 % 7 + 0.5).reshape(shape)
            x.requires_grad_()
            y = T.segment_reduce(x, reduce, axis=size.ndim - 1, initial=initial, **given)
            y[y.isfinite()].square().sum().backward()
            found += [y.nan_to_num(nan=99.0).tolist(), (x.grad * 4096).round().tolist()]
    return found


CALLS = {
    "empty_strided": lambda T: T.empty_strided((2, 3), (1, 2)).stride(),
    "empty_strided of nothing": lambda T: T.empty_strided((2, 0), (7, 1)).shape,
    "empty_permuted": lambda T: T.empty_permuted((2, 3, 5), (0, 2, 1), dtype=T.float64).stride(),
    "grid_sampler": lambda T: [
        f(T.arange(4.0**n).view(1, 1, *(4,) * n), T.full((*(1,) * (n + 1), n), 0.5), mode, 1, True).tolist()
        for n, names in ((2, ("grid_sampler", "grid_sampler_2d")), (3, ("grid_sampler", "grid_sampler_3d")))
        for f in [getattr(T, name) for name in names] for mode in (0, 1)
    ],
    "svd_lowrank": lambda T: [tuple(x.shape) for q in (2, 6) for x in T.svd_lowrank(T.ones(2, 5, 3), q)],
    "pca_lowrank": lambda T: [tuple(x.shape) for x in T.pca_lowrank(T.arange(12.0).reshape(3, 4), q=2)],
    "hash_tensor": lambda T: [T.hash_tensor(x, *dim).tolist() for dim in ((), (1,))
                              for x in (T.arange(6).reshape(2, 3), T.ones(2, 2))],
    "vander": lambda T: T.vander(T.tensor([1.0, 2.0, 3.0])).tolist(),
    "vander of 2, rising": lambda T: T.vander(T.tensor([1, 2, 3]), N=2, increasing=True).tolist(),
    "lobpcg": lambda T: eigen(T, T.eye(12), k=2) + eigen(T, T.eye(12), k=2, largest=False),
    "lobpcg of two": lambda T: eigen(T, T.eye(12) * 2 + 0.5, X=T.ones(12, 2) + T.eye(12)[:, :2]),
    "cond": lambda T: [T.cond(p, lambda x, y: x - y, lambda x, y: y - x, (T.tensor(5), T.tensor(3))).item()
                       for p in (True, T.tensor([False]))],
    "norm_except_dim": lambda T: [
        T.norm_except_dim(T.arange(12.0).reshape(2, 3, 2), 2, d).square().round().flatten().tolist()
        for d in (-1, 0, 1, 2)
    ] + T.norm_except_dim(T.tensor([3.0, -4.0])).tolist(),
    "histogram of 100 bins": lambda T: [x.shape for x in T.histogram(T.arange(5.0))],
    "isclose of integers": lambda T: [
        T.isclose(T.tensor([0, 1, 1, 127, 3], dtype=d), T.tensor([1, 0, 3, 0, 3], dtype=d), *near).tolist()
        for d in (T.uint8, T.int8, T.int64, T.bool) for near in ((), (0.5, 0.5), (0.0, 2.0))
    ] + [T.isclose(T.tensor([127], dtype=T.int8), T.tensor([-128], dtype=T.int8), 0, 2).tolist()],
    "isclose below 0": lambda T: [refused(f, T.ones(1), T.ones(1), *near) for near in ((-1, 1), (1, -1))
                                  for f in (T.isclose, T.allclose)],
    "segment_reduce": lambda T: [segments(T, r, i) for r in SEGMENTS for i in (None, 2.0)],
    "conj_physical_": lambda T: T.conj_physical_(T.tensor([1 + 2j])).tolist(),
    "conv_tbc": lambda T: T.conv_tbc(T.ones(4, 2, 3), T.ones(2, 3, 5), T.ones(5), 1).tolist(),
    "autocast": lambda T: (T.is_autocast_enabled("cpu"), autocast_set(T), T.is_autocast_enabled("cpu")),
    "typename": lambda T: [T.typename(x) for x in (T.ones(2), 3, "x", int, CALLS)],
    "is_same_size": lambda T: [T.is_same_size(T.ones(2, 3), T.ones(n, 3)) for n in (1, 2)],
    "is_signed": lambda T: [T.is_signed(T.ones(2, dtype=d)) for d in (T.uint8, T.int8, T.float32, T.bool)],
    "anomaly": lambda T: (T.is_anomaly_enabled(), within(T, T.is_anomaly_enabled),
                          T.is_anomaly_check_nan_enabled(), within(T, T.is_anomaly_check_nan_enabled),
                          nan_of(T, False), nan_of(T, True)),
    "debug mode": lambda T: (T.set_deterministic_debug_mode("error"), T.get_deterministic_debug_mode(),
                             T.are_deterministic_algorithms_enabled(), T.set_deterministic_debug_mode(0),
                             T.get_deterministic_debug_mode()),
    "warn always": lambda T: (T.set_warn_always(True), T.is_warn_always_enabled(), T.set_warn_always(False)),
    "rrelu": lambda T: T.rrelu(T.tensor([-8.0, 2.0]), 0.25, 0.25).tolist(),
    "alpha_dropout": lambda T: T.alpha_dropout(T.tensor([1.0, 2.0]), 0.5, False).tolist(),
}  # fmt: skip


def eigen(T, B, **settings):
    """What is to hold of eigenvalues and vectors, and which ones they are."""
    x = T.arange(144.0).reshape(12, 12).remainder(7)
    A = x + x.T + T.eye(12) * 9
    values, v = T.lobpcg(A, B=B, niter=300, tol=1e-6, **settings)
    close = [T.allclose(*pair, atol=1e-3) for pair in ((A @ v, B @ v * values), (v.T @ B @ v, T.eye(2)))]
    return [close, [round(x, 3) for x in values.tolist()], v.shape]


def autocast_set(T):
    """What the switches of autocast do, within a block and outside of one."""
    found, product = [], lambda: str((T.ones(2, 2) @ T.ones(2, 2)).dtype).split(".")[1]
    T.clear_autocast_cache()
    T.set_autocast_cache_enabled(True)
    T.set_autocast_enabled("cpu", True)
    found.append((T.is_autocast_enabled("cpu"), product()))
    T.set_autocast_dtype("cpu", T.float16)
    found.append(product() if T is lamina else "float16")  # PyTorch's takes the dtype up in the next block
    with T.autocast("cpu", T.bfloat16, enabled=False):
        found.append(product())
        T.set_autocast_enabled("cpu", True)
        found.append(T.is_autocast_enabled("cpu"))
    T.set_autocast_dtype("cpu", T.bfloat16)
    T.set_autocast_enabled("cpu", False)
    return found, product()


def within(T, function):
    with T.autograd.detect_anomaly(check_nan=False):
        return function()


def nan_of(T, check_nan):
    """Whether a gradient of NaN is refused."""
    x = T.zeros(1, requires_grad=True)
    try:
        with T.autograd.detect_anomaly(check_nan):
            (x / x).sum().backward()
    except RuntimeError:
        return True
    return False


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("name", CALLS)
def test_root(name):
    assert CALLS[name](lamina) == CALLS[name](torch)


@pytest.mark.parametrize("call", [
    lambda T: T.empty_strided((2, 3), (1,)),
    lambda T: T.empty_permuted((2, 3), (0, 0)),
    lambda T: T.vander(T.ones(2, 2)),
    lambda T: T.pca_lowrank(T.ones(3, 3), 4),
    lambda T: T.hash_tensor(T.ones(3), mode=1),
    lambda T: T.grid_sampler_2d(T.ones(1, 1, 2, 2, 2), T.ones(1, 1, 1, 1, 3), 0, 0, True),
    lambda T: T.set_deterministic_debug_mode("loud"),
])  # fmt: skip
def test_what_is_refused(call):
    for T in (lamina, torch):
        with pytest.raises((RuntimeError, ValueError)):
            call(T)


@pytest.mark.parametrize("call", [
    lambda T: T.linalg.inv(T.zeros(2, 2)),
    lambda T: T.linalg.solve(T.zeros(3, 2, 2), T.ones(3, 2)),
    lambda T: T.linalg.cholesky(-T.eye(2)),
    lambda T: T.linalg.cholesky_ex(-T.eye(2), check_errors=True),
    lambda T: T.linalg.svd(T.full((3, 3), float("nan"))),
])  # fmt: skip
def test_what_linear_algebra_cannot_do(call):
    for T in (torch, lamina):
        with pytest.raises(T.linalg.LinAlgError, match="singular|positive-definite|converge") as found:
            call(T)
        assert found.type is T._C._LinAlgError and isinstance(found.value, RuntimeError)


def futures_used(futures) -> list:
    """What is said and called of futures that are set, fail, and are waited for together."""
    said: list = []

    def told(call) -> None:
        try:
            said.append(call())
        except Exception as error:
            said.append((RuntimeError if isinstance(error, RuntimeError) else type(error), str(error)[:60]))

    first, failed, late = futures.Future(), futures.Future(), futures.Future[int]()
    doubled = first.then(lambda f: said.append("then") or f.wait() * 2)
    first.add_done_callback(lambda f: said.append(f.value()))
    told(first.done)
    first.set_result(3)
    told(doubled.wait)
    told(lambda: first.set_result(4))
    failed.set_exception(ValueError("x"))
    told(failed.wait)
    told(failed.then(lambda f: f.value()).wait)
    every, together = futures.collect_all([late, failed]), futures.collect_all([first, late])
    told(every.done)
    late.set_result(5)
    told(every.wait)
    told(lambda: [f.value() for f in together.wait()])
    told(lambda: futures.wait_all([first, late]))
    told(lambda: futures.wait_all([late, failed]))
    told(futures.collect_all([]).wait)
    return said


def test_futures_are_set_and_followed_as_pytorchs():
    import torch.futures

    import lamina.futures

    assert futures_used(lamina.futures) == futures_used(torch.futures)
    later = lamina.futures.Future()
    threading.Timer(0.05, lambda: later.set_result("there")).start()
    assert later.wait() == "there"


def test_numbers_of_lines_are_made_where_they_begin_and_back():
    def found(T):
        rows, columns = T.tensor([0, 0, 2, 4]), T.tensor([3, 1, 0, 2])
        begins = T._convert_indices_from_coo_to_csr(rows, 6)
        back = T._convert_indices_from_csr_to_coo(begins, columns)
        small = T._convert_indices_from_coo_to_csr(rows.int(), 5, out_int32=True)
        turned = T._convert_indices_from_csr_to_coo(small, columns.int(), out_int32=True, transpose=True)
        none = T._convert_indices_from_coo_to_csr(rows[:0], 2)
        return [(x.tolist(), str(x.dtype).rpartition(".")[2]) for x in (begins, back, small, turned, none)]

    assert found(lamina) == found(torch)
