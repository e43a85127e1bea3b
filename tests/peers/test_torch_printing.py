"""The text of tensors against PyTorch's own, over generated values, shapes, dtypes and options."""

from __future__ import annotations

import itertools
import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

SHAPES = [
    (), (0,), (1,), (2, 0), (0, 3, 2), (3,), (17,), (100,), (1000,), (1001,), (2, 3), (1, 1), (5, 31), (40,
    40), (7, 200), (2, 3, 4), (2, 1, 2, 3), (9, 9, 20), (2, 7, 8, 10), (1001, 1), (1, 1001), (1100, 0),
]  # fmt: skip
HALVES = ("float16", "bfloat16")
FLOATS = ("float32", "float64", *HALVES)
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
FEW = [shape for shape in SHAPES if np.prod(shape) <= 200]  # the peer takes 20 us an element
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0]


def _values(kind: str, shape: tuple, random: np.random.Generator) -> np.ndarray:
    """An array whose values exercise one mode of the printer."""
    normal = random.standard_normal(shape)
    made = {
        "normal": normal,
        "whole": np.round(normal * 50),
        "large_whole": np.round(normal * 1e6),
        "tiny": normal * 1e-6,
        "huge": normal * 1e7,
        "beyond": normal * 1e30,
        "wide": normal * 10.0 ** random.integers(-5, 6, shape),
        "zeros": np.zeros(shape),
        "special": random.choice(SPECIAL, shape),
        "mixed": np.where(random.random(shape) < 0.3, random.choice(SPECIAL, shape), normal),
        "mixed_whole": np.where(
            random.random(shape) < 0.3, random.choice(SPECIAL, shape), np.round(normal * 9)
        ),
    }
    return np.asarray(made[kind])


KINDS = (
    "normal", "whole", "large_whole", "tiny", "huge", "beyond", "wide", "zeros", "special", "mixed",
    "mixed_whole"
)  # fmt: skip


def assert_prints_alike(ours: object, theirs: object) -> None:
    for text, expected in ((repr(ours), repr(theirs)), (str(ours), str(theirs))):
        expected = expected.replace("torch.", "lamina.")
        if (
            "dtype=lamina." in expected
        ):  # a letter longer than `torch`: a note may move to the next line for it
            text, expected = (re.sub(r",\n {7}(?=[a-z])", ", ", t) for t in (text, expected))
        assert text == expected


def both(array: np.ndarray, dtype: str) -> tuple:
    """One array as a tensor of each, rounded to `dtype` by PyTorch."""
    theirs = torch.tensor(array).to(getattr(torch, dtype))
    wide = theirs.double().numpy() if dtype in HALVES else theirs.numpy()
    return lamina.tensor(wide).to(getattr(lamina, dtype)), theirs


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("kind", KINDS)
def test_floats_print_as_in_torch(kind, dtype):
    random = np.random.default_rng(KINDS.index(kind))
    for shape in SHAPES if kind in ("normal", "mixed_whole") else FEW:
        with np.errstate(over="ignore"):
            assert_prints_alike(*both(_values(kind, shape, random), dtype))


@pytest.mark.parametrize("dtype", (*INTEGERS, "bool"))
def test_integers_print_as_in_torch(dtype):
    random = np.random.default_rng(len(dtype))
    for shape, high in itertools.product(SHAPES, (2, 100, 10**9)):
        theirs = torch.tensor(random.integers(-high, high, shape)).to(getattr(torch, dtype))
        assert_prints_alike(lamina.from_numpy(theirs.numpy()), theirs)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2}, {"precision": 10}, {"threshold": 5}, {"edgeitems": 1, "threshold": 4},
        {"edgeitems": 0, "threshold": 4}, {"linewidth": 40}, {"linewidth": 5}, {"linewidth": 200},
        {"profile": "short"}, {"profile": "full"}, {"sci_mode": True}, {"sci_mode": False},
        {"profile": "full", "precision": 1},
    ],
)  # fmt: skip
def test_options_are_those_of_torch(options):
    random = np.random.default_rng(3)
    try:
        torch.set_printoptions(**options)
        lamina.set_printoptions(**options)
        for shape, kind in itertools.product([*FEW, (40, 30)], ("normal", "whole", "wide", "mixed", "zeros")):
            for dtype in ("float32", "float64"):
                assert_prints_alike(*both(_values(kind, shape, random), dtype))
        assert_prints_alike(lamina.arange(0, 9000, 7), torch.arange(0, 9000, 7))
    finally:
        torch.set_printoptions(profile="default")
        lamina.set_printoptions(profile="default")


@pytest.mark.parametrize("shape", SHAPES)
def test_notes_about_gradients_stand_where_torch_puts_them(shape):
    array = np.random.default_rng(5).standard_normal(shape)
    for dtype in FLOATS:
        ours, theirs = both(array, dtype)
        assert_prints_alike(ours.requires_grad_(), theirs.requires_grad_())
        assert_prints_alike(ours * ours, theirs * theirs)
        assert_prints_alike((ours * 2).relu(), (theirs * 2).relu())
        mask = array > 0
        assert_prints_alike(
            ours.masked_fill(lamina.tensor(mask), 2.0), theirs.masked_fill(torch.tensor(mask), 2.0)
        )
        assert_prints_alike(lamina.Parameter(ours), torch.nn.Parameter(theirs))
        assert_prints_alike(lamina.Parameter(ours, False), torch.nn.Parameter(theirs, False))


def test_default_dtype_decides_what_is_named():
    try:
        with warnings.catch_warnings():
            torch.set_default_dtype(torch.float64)
            lamina.set_default_dtype(lamina.float64)
        for dtype, shape in itertools.product(("float32", "float64", "int64"), ((), (0,), (2, 0), (3,))):
            assert_prints_alike(*both(np.ones(shape), dtype))
    finally:
        torch.set_default_dtype(torch.float32)
        lamina.set_default_dtype(lamina.float32)


def test_results_of_several_outputs_print_as_in_torch():
    ours, theirs = both(np.random.default_rng(7).standard_normal((4, 5)), "float32")
    for name, args in {
        "max": (0,), "min": (1,), "sort": (), "topk": (2,), "median": (1,), "kthvalue": (2,), "cummax": (0,),
        "cummin": (1,),
    }.items():  # fmt: skip
        assert_prints_alike(getattr(ours, name)(*args), getattr(theirs, name)(*args))


def test_views_and_formats():
    ours, theirs = both(np.random.default_rng(8).standard_normal((6, 5)), "float32")
    assert_prints_alike(ours.T, theirs.T)
    assert_prints_alike(ours[::2, 1:4], theirs[::2, 1:4])
    assert f"{ours}" == f"{theirs}"
    assert f"{ours[0, 0]:.3f} {ours[0, 0]}" == f"{theirs[0, 0]:.3f} {theirs[0, 0]}"
    assert f"{lamina.tensor(7):03d} {lamina.tensor(True)}" == f"{torch.tensor(7):03d} {torch.tensor(True)}"
    for x in (ours, theirs):
        with pytest.raises(TypeError):
            f"{x:.3f}"


def test_what_classes_of_tensors_print_by():
    """The pieces that libraries put the text of their own tensors together from."""

    def texts(T):
        pieces, rows = T._tensor_str, T.arange(40.0).reshape(2, 20)
        T._tensor_str.PRINT_OPTS.precision = 2
        try:
            return [
                pieces._tensor_str(rows, 7),
                pieces._tensor_str(T.empty(0, 2), 7),
                pieces._tensor_str(T.tensor(1.23456), 0),
                pieces._add_suffixes(
                    "Edges(" + pieces._tensor_str(rows[0], 6), ["a=1", "b=" + "2" * 70], 6, False
                ),
                pieces._add_suffixes("Edges([1]", ["a=1"], 6, True),
                str(pieces.PRINT_OPTS.linewidth),
            ]
        finally:
            T.set_printoptions(profile="default")

    assert texts(lamina) == texts(torch)
