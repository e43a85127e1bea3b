"""Functions that make tensors: the first call, the second and the third give the same, and new memory."""

import numpy as np
import pytest

import lamina

CALLS = {
    "zeros": lambda: lamina.zeros(2, 3),
    "zeros of a type": lambda: lamina.zeros((2,), dtype=lamina.int64),
    "ones": lambda: lamina.ones((4, 4)),
    "empty": lambda: lamina.empty(0, 3),
    "full of a float": lambda: lamina.full((2,), 2.0),
    "full of an int": lambda: lamina.full((2,), 2),
    "full of a bool": lambda: lamina.full((2,), True),
    "full of zero": lambda: lamina.full((2,), 0.0),
    "full of minus zero": lambda: lamina.full((2,), -0.0),
    "full of nan": lambda: lamina.full((2,), float("nan")),
    "arange": lambda: lamina.arange(4),
    "arange of a float": lambda: lamina.arange(4.0),
    "arange from": lambda: lamina.arange(1, 4),
    "arange from True": lambda: lamina.arange(True, 4),
    "arange by": lambda: lamina.arange(0, 1, 0.25, dtype=lamina.float64),
    "linspace": lambda: lamina.linspace(0, 1, 5),
    "eye": lambda: lamina.eye(3),
    "sizes in a list": lambda: lamina.ones([2, 2]),
    "asks": lambda: lamina.zeros(3, requires_grad=True),
    "elsewhere": lambda: lamina.zeros(3, device="meta"),
    "sparse": lambda: lamina.zeros(3, 3, layout="sparse_coo"),
    "many": lambda: lamina.ones(2000),
}


def shown(x):
    held = x.to_dense() if x.is_sparse else x
    values = None if x.device.type == "meta" else held.detach().numpy().tobytes()
    return type(x), x.shape, x.dtype, x.device, x.requires_grad, x.is_sparse, values


@pytest.mark.parametrize("name", CALLS)
def test_every_call_gives_the_same(name):
    wanted = shown(CALLS[name]())
    for _ in range(4):
        for others in CALLS.values():  # equal arguments of another kind are none
            others()
        assert shown(CALLS[name]()) == wanted


@pytest.mark.parametrize("name", [n for n in CALLS if n not in ("elsewhere", "sparse", "asks")])
def test_every_call_makes_new_memory(name):
    before = CALLS[name]()
    for _ in range(4):
        x = CALLS[name]()
        assert not np.shares_memory(x.numpy(), before.numpy())
        x.fill_(1)
        before = x
    assert shown(CALLS[name]()) == shown(CALLS[name]())


def test_a_type_that_is_the_default_is_asked_for_again():
    for dtype in (lamina.float64, lamina.float32, lamina.float64):
        lamina.set_default_dtype(dtype)
        try:
            assert all(lamina.zeros(2, 2).dtype is dtype for _ in range(4))
        finally:
            lamina.set_default_dtype(lamina.float32)


def test_blocks_are_heard():
    for _ in range(4):
        lamina.ones(2, 5)
        with lamina.device("meta"):
            assert lamina.ones(2, 5).device.type == "meta"
        with lamina.inference_mode():
            assert lamina.ones(2, 5).is_inference()
        assert not lamina.ones(2, 5).is_inference()


def test_what_is_wrong_stays_wrong():
    for wrong in (lambda: lamina.zeros(2.0, 3), lambda: lamina.arange(4, 0), lambda: lamina.ones(-1)):
        for _ in range(4):
            lamina.zeros(2, 3)
            with pytest.raises((TypeError, ValueError, RuntimeError)):
                wrong()


def test_a_traced_function_makes_them_anew():
    @lamina.jit.trace
    def f(x):
        y = lamina.zeros(3)
        y += x
        return y

    for n in range(5):
        assert f(lamina.full((3,), float(n))).tolist() == [n] * 3
        assert lamina.zeros(3).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "make",
    [
        lamina.hann_window, lamina.hamming_window, lamina.blackman_window, lamina.bartlett_window,
        lamina.kaiser_window, lamina.signal.windows.hann, lamina.fft.fftfreq, lamina.fft.rfftfreq,
        lambda n, **given: lamina.as_tensor([1.0] * n, **given),
    ],
)  # fmt: skip
def test_windows_and_lists_are_where_they_are_asked_to_be(make):
    assert make(8).device.type == make(8, device="cpu").device.type == "cpu"
    assert make(8, device="meta").device.type == "meta"
    with lamina.device("meta"):
        assert make(8).device.type == "meta" and make(8, device="cpu").device.type == "cpu"
