"""`testing.assert_close` against PyTorch's: what it lets pass, and what it says."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

CASES = {
    "equal": lambda L: (L.tensor([1.0, 2.0]), L.tensor([1.0, 2.0])),
    "close": lambda L: (L.tensor([1.0, 2.0]), L.tensor([1.0, 2.000001])),
    "far": lambda L: (L.tensor([1.0, 2.0]), L.tensor([1.0, 2.1])),
    "two": lambda L: (L.tensor([[1.0, 2.0], [3.0, 4.0]]), L.tensor([[1.0, 2.5], [3.0, 8.0]])),
    "doubles": lambda L: (L.tensor([1.0]).double(), L.tensor([1.000001]).double()),
    "halves": lambda L: (L.tensor([1.0]).half(), L.tensor([1.0009765625]).half()),
    "ints": lambda L: (L.tensor([1, 2, 3]), L.tensor([1, 2, 4])),
    "bools": lambda L: (L.tensor([True, False]), L.tensor([True, True])),
    "bytes": lambda L: (L.tensor([1], dtype=L.uint8), L.tensor([255], dtype=L.uint8)),
    "long ones": lambda L: (L.tensor([-(2**63)]), L.tensor([2**63 - 1])),
    "complex": lambda L: (L.tensor([1 + 1j]), L.tensor([1 + 1.1j])),
    "nan": lambda L: (L.tensor([math.nan]), L.tensor([math.nan])),
    "equal nan": lambda L: (L.tensor([math.nan, 1]), L.tensor([math.nan, 1]), {"equal_nan": True}),
    "inf": lambda L: (L.tensor([math.inf]), L.tensor([math.inf])),
    "other inf": lambda L: (L.tensor([math.inf]), L.tensor([-math.inf])),
    "inf beside": lambda L: (L.tensor([math.inf]), L.tensor([1.0])),
    "zero": lambda L: (L.tensor([1.0]), L.tensor([0.0])),
    "shapes": lambda L: (L.ones(2), L.ones(3)),
    "dtypes": lambda L: (L.ones(2), L.ones(2).double()),
    "dtypes unchecked": lambda L: (L.ones(2), L.ones(2).double(), {"check_dtype": False}),
    "strides": lambda L: (L.ones(2, 3), L.ones(3, 2).t(), {"check_stride": True}),
    "strides unchecked": lambda L: (L.ones(2, 3), L.ones(3, 2).t()),
    "tolerances": lambda L: (L.tensor([1.0]), L.tensor([1.1]), {"rtol": 0.2, "atol": 0}),
    "one tolerance": lambda L: (L.tensor([1.0]), L.tensor([1.1]), {"rtol": 0.2}),
    "scalars": lambda L: (1.0, 1.5),
    "scalars close": lambda L: (1.0, 1.0 + 1e-9),
    "scalar and tensor": lambda L: (L.tensor(1.0), L.tensor(1.5)),
    "an int and a float": lambda L: (1, 1.0),
    "lists": lambda L: ([L.ones(2), 3], [L.ones(2), 4]),
    "lists of other lengths": lambda L: ([1, 2], [1, 2, 3]),
    "mappings": lambda L: ({"a": L.ones(2)}, {"a": L.zeros(2)}),
    "keys": lambda L: ({"a": 1, "b": 2}, {"a": 1, "c": 2}),
    "none": lambda L: (None, None),
    "arrays": lambda L: (np.ones(2), np.array([1.0, 2.0])),
    "words": lambda L: ("a", "a"),
    "empty": lambda L: (L.ones(0, 2), L.ones(0, 2)),
    "0-d": lambda L: (L.tensor(3), L.tensor(3)),
}


def said(library, case):
    actual, expected, *settings = CASES[case](library)
    try:
        library.testing.assert_close(actual, expected, **(settings[0] if settings else {}))
    except (AssertionError, TypeError, ValueError) as error:
        return type(error).__mro__[0].__name__ if isinstance(error, AssertionError) else "other", str(error)
    return "passes", ""


@pytest.mark.parametrize("case", CASES)
def test_what_passes_and_what_is_said(case):
    (ours, text), (theirs, wanted) = said(lamina, case), said(torch, case)
    assert ours == theirs, (text, wanted)
    if ours == "AssertionError" and case != "long ones":  # PyTorch's difference of them wraps around, to 1
        assert text.splitlines()[0] == wanted.splitlines()[0].replace("torch.", "lamina.")
        numbers = [line.split(" (up to")[0] for line in wanted.splitlines() if "difference" in line.lower()]
        for mine, line in zip(
            [t for t in text.splitlines() if "difference" in t.lower()], numbers, strict=True
        ):
            assert mine.split(":")[0] == line.split(":")[0]
            got, want = (each.split(": ")[1].split(" ")[0] for each in (mine, line))
            assert float(got) == pytest.approx(float(want), rel=1e-6, nan_ok=True)
            assert mine.split(" at index ")[1:] == line.split(" at index ")[1:] or " (up to" in mine


def test_messages_of_ones_own():
    for library in (lamina, torch):
        for msg, words in (
            ("mine", "^mine$"),
            (lambda text: f"mine: {text}", "^mine: Tensor-likes are not equal!"),
        ):
            with pytest.raises(AssertionError, match=words):
                library.testing.assert_close(library.tensor([1]), library.tensor([2]), msg=msg)


def test_what_assert_allclose_lets_pass():
    for actual, expected, settings in (
        ([1.0], [1.00005], {}),
        ([1.0], [1.001], {}),
        ([math.nan], [math.nan], {}),
        ([math.nan], [math.nan], {"equal_nan": False}),
        ([1.0, 2.0], [1, 2], {}),
        ([1.0], [1.1], {"rtol": 0.2, "atol": 0.0}),
        ([1.0], [1.1], {"rtol": 0.2}),
        ([3], [4], {"msg": "mine"}),
    ):
        for make in ("float32", "float64", None):
            outcomes = []
            for library in (lamina, torch):
                given = library.tensor(actual, dtype=make and getattr(library, make))
                with pytest.warns(FutureWarning, match="assert_allclose"):
                    try:
                        library.testing.assert_allclose(given, expected, **settings)
                    except (AssertionError, ValueError) as error:
                        outcomes.append(isinstance(error, AssertionError))
                    else:
                        outcomes.append(None)
            assert outcomes[0] == outcomes[1], (actual, expected, settings, make)


# ---- tensors to try things with ----------------------------------------------------------------------------
DRAWN = ["bool", "uint8", "int8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
ASKED = [
    ((2, 3), {}), (((4, 5),), {"noncontiguous": True}), ((3,), {"low": 1, "high": 2}), ((0, 2), {}), ((), {}),
    ((7,), {"exclude_zero": True}), ((1,), {"noncontiguous": True}), ((2,), {"low": 3, "high": 1}),
    ((2,), {"low": math.nan}), ((2,), {"low": 1e6, "high": 1e7}), ((2,), {"requires_grad": True}),
    ((2, 2), {"noncontiguous": True, "memory_format": "contiguous_format"}),
]  # fmt: skip


@pytest.mark.parametrize("dtype", DRAWN)
def test_drawn_tensors_are_as_pytorchs(dtype):
    for shape, kwargs in ASKED:
        drawn = []
        for space in (torch, lamina):
            try:
                made = space.testing.make_tensor(*shape, dtype=getattr(space, dtype), device="cpu", **kwargs)
            except ValueError:
                drawn.append("ValueError")
                continue
            low, high = kwargs.get("low"), kwargs.get("high")
            whole = space.view_as_real(made.detach()) if made.is_complex() else made.detach().double()
            for bound, default, within in ((low, -9, whole.__ge__), (high, 10, whole.__le__)):
                assert bool(within(default if bound is None else bound).all())
            if kwargs.get("exclude_zero"):
                assert bool((made != 0).all())
            drawn.append((tuple(made.shape), made.stride(), made.requires_grad, made.storage_offset()))
        assert drawn[0] == drawn[1], (shape, kwargs)
