"""Functions and switches at the root of the package against PyTorch's."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

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
