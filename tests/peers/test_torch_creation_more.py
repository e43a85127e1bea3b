"""Tensors from other objects, and what fills them, against PyTorch: cases that its own suites demand."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402


def both(function):
    """What a function of a library gives on Lamina and on PyTorch: values, or that it is refused."""
    found = []
    for library in (lamina, torch):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                value = function(library)
            found.append(value)
        except Exception:
            found.append("refused")
    return found


def of_array(L, cut=lambda a: a, **settings):
    array = np.arange(6.0)
    made = L.asarray(cut(array), **settings)
    array[0] = 7.0  # seen where memory is shared
    return made.tolist(), str(made.dtype).partition(".")[2], made.requires_grad


@pytest.mark.parametrize("copy", [None, True, False])
@pytest.mark.parametrize("dtype", [None, "float64", "float32"])
def test_asarray(copy, dtype):
    for cut in (lambda a: a, lambda a: a[::2], memoryview, lambda a: a.tolist()):
        for requires_grad in (False, True):
            ours, theirs = both(
                lambda L, cut=cut, grad=requires_grad: of_array(
                    L, cut, copy=copy, dtype=dtype and getattr(L, dtype), requires_grad=grad
                )
            )
            if cut is memoryview and dtype == "float32":  # the halves of doubles: a NaN among them differs
                continue
            assert ours == theirs, (copy, dtype, requires_grad)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("copy", [None, True])
def test_asarray_of_a_tensor_with_history(requires_grad, copy):
    def run(L):
        x = L.ones(3, requires_grad=True)
        y = L.asarray(x * 2, copy=copy, requires_grad=requires_grad)
        return y.requires_grad, y.grad_fn is None

    ours, theirs = both(run)
    assert ours == theirs


BUFFERS = [
    {"count": 2}, {"offset": 4}, {"count": 0}, {"offset": 24}, {"offset": -4}, {"offset": 3}, {"count": 7},
    {"count": 3, "offset": 16},
]  # fmt: skip


@pytest.mark.parametrize("settings", BUFFERS, ids=str)
def test_frombuffer(settings):
    array = np.arange(6, dtype=np.int32)
    ours, theirs = both(lambda L: L.frombuffer(array, dtype=L.int32, **settings).tolist())
    assert ours == theirs


def test_frombuffer_tells_of_memory_that_cannot_be_written():
    for library in (lamina, torch):
        with pytest.warns(UserWarning, match="The given buffer is not writable"):
            library.frombuffer(b"abcd", dtype=library.uint8)


RANGES = [(0, 4), (0, 1, 0.3), (5, 1, -2), (2, 2), (1, 0, -1)]


@pytest.mark.parametrize("bounds", RANGES, ids=str)
def test_range(bounds):
    ours, theirs = both(lambda L: [round(x, 6) for x in L.range(*bounds).tolist()])
    assert ours == theirs


def test_bounds_of_random():
    for dtype in ("int8", "uint8", "bool", "float16"):
        for bounds in ((3, 300), (-1, 1), (1, None), (0,), (5, 5), (0, 2)):

            def run(L, dtype=dtype, bounds=bounds):
                x = L.empty(4000, dtype=getattr(L, dtype)).random_(*bounds).double()
                return round(x.min().item(), -1), round(x.max().item() / 8)

            ours, theirs = both(run)
            assert ours == theirs, (dtype, bounds, ours, theirs)


@pytest.mark.parametrize("name", ["linspace", "arange", "logspace"])
def test_out_keeps_its_shape_where_its_elements_are_as_many(name):
    def run(L):
        out = L.zeros(2, 3)
        args = (0, 3) if name == "arange" else (0, 2, 3)
        getattr(L, name)(*args, out=out.t()[:, :1])
        return out.tolist()

    ours, theirs = both(run)
    assert np.allclose(ours, theirs)


def test_strides_of_nothing_and_random_out():
    for shape in ((0,), (0, 3), (5, 0), (5, 0, 3, 0, 2)):
        ours, theirs = both(lambda L, shape=shape: tuple(L.empty(shape).stride()))
        assert ours == theirs
    lamina.manual_seed(3)
    out = lamina.tensor([], dtype=lamina.float64)
    lamina.rand(3, out=out)
    lamina.manual_seed(3)
    assert lamina.equal(out, lamina.rand(3, dtype=lamina.float64))


def test_batch_norm_counts_no_batches_where_it_tracks_none():
    def run(L):
        norm = L.nn.BatchNorm1d(2)
        norm.track_running_stats = False
        norm(L.ones(3, 2))
        return norm.num_batches_tracked.item(), norm.running_mean.tolist()

    ours, theirs = both(run)
    assert ours == theirs


def test_a_chain_in_a_sequence_of_schedules():
    def run(L):
        S = L.optim.lr_scheduler
        optimizer = L.optim.SGD([L.nn.Parameter(L.ones(1))], lr=0.05)
        parts = [S.LinearLR(optimizer, 0.1, total_iters=5), S.ConstantLR(optimizer, 0.1, total_iters=5)]
        chain = S.ChainedScheduler(parts)
        last = S.ConstantLR(optimizer, 0.5, total_iters=5)
        schedule = S.SequentialLR(optimizer, schedulers=[chain, last], milestones=[5])
        rates = []
        for _ in range(8):
            rates.append(round(optimizer.param_groups[0]["lr"], 9))
            optimizer.step()
            schedule.step()
        return rates

    ours, theirs = both(run)
    assert ours == theirs


def test_sequential_times_n():
    m = lamina.nn.Sequential(lamina.nn.ReLU(), lamina.nn.Tanh())
    assert [type(x).__name__ for x in m * 2] == [type(x).__name__ for x in 2 * m] == ["ReLU", "Tanh"] * 2
    m *= 3
    assert len(m) == 6 and m[0] is m[4]
    for count in (0, -1):
        with pytest.raises(ValueError):
            m * count
    with pytest.raises(TypeError):
        m * 1.5


@pytest.mark.parametrize("name", ["linspace", "logspace"])
@pytest.mark.parametrize("ends", [(1j, 2j), (0.0, 2j), (1j, 2), (1 - 2j, -3 + 0.5j)], ids=str)
@pytest.mark.parametrize("settings", [{}, {"dtype": "complex128"}], ids=str)
def test_ends_may_be_complex(name, ends, settings):
    found = []
    for library in (lamina, torch):
        given = {key: getattr(library, value) for key, value in settings.items()}
        for steps in (0, 1, 2, 5):
            found.append(getattr(library, name)(*ends, steps, **given))
    for ours, theirs in zip(found[:4], found[4:], strict=True):
        assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(lamina.ir.errors.DTypeError, match=rf"torch\.{name}\(\): inferred dtype ComplexFloat"):
        getattr(lamina, name)(*ends, 3, dtype=lamina.float32)


LISTS = {
    "a float64 among ints": lambda library: ((7, 5), (9, np.array(5.0))),
    "ints among floats": lambda library: ((7, np.array(5)), (np.array(9), 5.0)),
    "ints": lambda library: ((5, np.array(3)), (np.array(3), 5)),
    "a float32 and a float": lambda library: [np.float32(1), 2.5],
    "an int32 and an int": lambda library: [1, np.int32(3)],
    "int32": lambda library: [np.int32(1), np.int32(3)],
    "a bool and a float64": lambda library: [True, np.array(2.0)],
    "tensors": lambda library: [library.tensor(1.5), 2],
    "a half": lambda library: [library.tensor(1.5).half(), 2],
    "a half and a float": lambda library: [library.tensor(1.5).half(), 2.0],
    "a float and a complex": lambda library: [np.float64(1.0), 2j],
    "too large for int64 among floats": lambda library: [2**64 + 5, 1.5],
}


@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy")
@pytest.mark.parametrize("case", LISTS)
def test_lists_have_the_dtype_that_their_items_promote_to(case):
    ours, theirs = (library.tensor(LISTS[case](library)) for library in (lamina, torch))
    assert str(ours.dtype).split(".")[1] == str(theirs.dtype).split(".")[1]
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bool"])
@pytest.mark.parametrize("value", [2**24 + 1, 2**64, -(2**70), 1e500, [2**64, 0]], ids=str)
def test_numbers_beyond_64_bits_fit_into_floats(value, dtype):
    ours, theirs = (library.tensor(value, dtype=getattr(library, dtype)) for library in (lamina, torch))
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda library: library.as_strided(library.ones(3, 3), (1, 1), (2, -1)),
        lambda library: library.hsplit(library.tensor(1), 2),
        lambda library: library.dsplit(library.ones(2, 3), 2),
        lambda library: library.randperm(257 + 1, dtype=library.uint8),
        lambda library: library.ones(4).roll((), ()),
        lambda library: library.normal(library.ones(2), -library.ones(2)),
        lambda library: library.polar(library.ones(2), library.ones(2).double()),
        lambda library: library.complex(library.ones(2).int(), library.ones(2).int()),
        lambda library: library.tensor(["a"]),
        lambda library: library.FloatTensor((2.0, 3.0), device="cuda"),
        lambda library: library.empty(2**40, 2**40),
    ],
)
def test_what_both_refuse(call):
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        call(torch)
    with pytest.raises(lamina.ir.errors.LaminaError):
        call(lamina)
