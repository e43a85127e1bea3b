"""The windows of `signal.windows` against PyTorch's: values, lengths, dtypes, what is refused."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

CALLS = {
    "bartlett": [{}],
    "blackman": [{}],
    "cosine": [{}],
    "exponential": [{}, {"tau": 2.5}, {"center": 1.5, "sym": False}],
    "gaussian": [{}, {"std": 0.3}],
    "general_cosine": [{"a": [0.4, 0.3, 0.2, 0.1]}],
    "general_hamming": [{}, {"alpha": 0.7}],
    "hamming": [{}],
    "hann": [{}],
    "kaiser": [{}, {"beta": 0.0}, {"beta": 3.0}],
    "nuttall": [{}],
}
BAD = [
    ("hann", (-1,), {}),
    ("hann", (2.5,), {}),
    ("hann", (4,), {"dtype": "int64"}),
    ("gaussian", (4,), {"std": 0.0}),
    ("exponential", (4,), {"tau": -1.0}),
    ("exponential", (4,), {"center": 1.0}),
    ("general_cosine", (4,), {"a": []}),
    ("kaiser", (4,), {"beta": -1.0}),
]


def test_all_are_there():
    assert {*CALLS} == {*torch.signal.windows.__all__} == {*lamina.signal.windows.__all__}


@pytest.mark.parametrize("name", CALLS)
def test_window(name):
    for options in CALLS[name]:
        for sym in (True, False) if "sym" not in options else (False,):
            for length in (0, 1, 2, 7, 32):
                for dtype in ("float32", "float64"):
                    given = options | {"sym": sym}
                    ours = getattr(lamina.signal.windows, name)(length, dtype=getattr(lamina, dtype), **given)
                    theirs = getattr(torch.signal.windows, name)(length, dtype=getattr(torch, dtype), **given)
                    # PyTorch computes in the dtype: a few roundings of numbers up to pi times the length.
                    eps = float(torch.finfo(theirs.dtype).eps)
                    assert ours.shape == tuple(theirs.shape) and ours.dtype.name == dtype
                    for a, b in zip(ours.tolist(), theirs.tolist(), strict=True):
                        assert abs(a - b) <= 8 * 3.2 * max(1, length) * eps


@pytest.mark.parametrize(("name", "args", "options"), BAD)
def test_what_is_refused(name, args, options):
    for T in (lamina, torch):
        given = options | ({"dtype": getattr(T, options["dtype"])} if "dtype" in options else {})
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            getattr(T.signal.windows, name)(*args, **given)
