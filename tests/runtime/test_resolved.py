"""Composites that are remembered as their ops: the first call, the second and the third give the same."""

import numpy as np
import pytest

import lamina
from lamina.ir.errors import LaminaError
from lamina.ir.op import COMPOSITES
from lamina.runtime import modes, ops
from lamina.runtime.resolved import RESOLVING

CALLS = {
    "flatten": [(), (1,), (0, 1), (-1,)],
    "unflatten": [(1, (2, 2)), (0, (3, -1))],
    "adjoint": [()],
    "t": [()],
    "movedim": [(0, 1), ((0, 1), (1, 0))],
    "select": [(0, 1), (1, -1), (0, True)],
    "narrow": [(0, 1, 2), (1, -2, 1), (0, 0, 0)],
    "unbind": [(), (1,)],
    "split": [(2,), (3, 1), ([1, 2], 0), ((1, 3), 1)],
    "split_with_sizes": [((1, 2),)],
    "chunk": [(2,), (3, 1), (7,)],
    "tensor_split": [(2,), ((1, 2), 1), (3, -1)],
    "hsplit": [(2,)],
    "vsplit": [(3,)],
    "dsplit": [],
    "max": [(), (1,), (0, True), (-1,)],
    "min": [(), (1,), (0, True)],
    "norm": [(), (1,), (2.0, 1), ("fro", 0, True), ("nuc",), (float("inf"),)],
}
CONVERSIONS = (
    "double",
    "float",
    "half",
    "bfloat16",
    "long",
    "int",
    "short",
    "char",
    "byte",
    "bool",
    "cfloat",
    "cdouble",
)
CALLS |= {name: [()] for name in CONVERSIONS}
TRANSFORMS = [n for n in COMPOSITES if n.startswith("fft_") and COMPOSITES[n].by_type]
CALLS |= {name: [(), (3,)] for name in TRANSFORMS if name[-1] not in "2n"}
CALLS |= {name: [(), ((2, 3),)] for name in TRANSFORMS if name[-1] in "2n"}
CALLS |= {"real": [()], "imag": [()]}
WRONG = {
    "flatten": (1, 0), "unflatten": (0, (5,)), "select": (0, 9), "narrow": (0, 2, 5), "unbind": (4,),
    "split": (-1,), "chunk": (0,), "max": (3,), "movedim": (0, 5),
}  # fmt: skip


def shown(found):
    """All that a user sees of a result."""
    if isinstance(found, tuple):
        return type(found), [shown(x) for x in found]
    base = found._base
    return (
        type(found),
        found.shape,
        found.dtype,
        found.tolist(),
        found.requires_grad,
        None if found.grad_fn is None else found.grad_fn.name(),
        found.stride(),
        base is not None,
    )


def gradient(found, x):
    parts = [y for y in (found if isinstance(found, tuple) else (found,)) if y.requires_grad]
    parts = [y.real if y.is_complex() else y for y in parts]
    if not parts:
        return None
    total = sum([(y * y).sum() for y in parts])
    return lamina.autograd.grad(total, x)[0].tolist()


def test_all_that_are_by_type_are_called_here():
    assert {name for name, c in COMPOSITES.items() if c.by_type is True} == CALLS.keys()


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize("name, args", [(name, args) for name in CALLS for args in CALLS[name]])
def test_every_call_gives_the_same(name, args, asks):
    method = ops.FUNCTIONS.get(name) or getattr(lamina.Tensor, name)
    for layout in ("plain", "turned", "part"):
        array = np.arange(12.0).reshape(3, 4)[::-1].copy() if layout == "plain" else np.arange(24.0)
        x = lamina.tensor(array, requires_grad=asks)
        if layout == "turned":
            x = x.view(8, 3).t()[:, ::2]
        elif layout == "part":
            x = x.view(6, 4)[1:4]
        if (name in TRANSFORMS and not name.startswith(("fft_rfft", "fft_ihfft"))) or name == "imag":
            x = lamina.complex(x, x * 2)
        wanted = COMPOSITES[name].function(x, *args)
        slopes = gradient(wanted, x) if asks else None
        for _ in range(4):
            found = method(x, *args)
            assert shown(found) == shown(wanted)
            if asks:
                assert gradient(found, x) == slopes
            with lamina.no_grad():
                y = method(x, *args)
                assert not any(z.requires_grad and z is not x for z in (y if isinstance(y, tuple) else (y,)))


@pytest.mark.parametrize("name", WRONG)
def test_errors_stay(name):
    x, said = lamina.arange(12.0).view(3, 4), set()
    for _ in range(4):
        with pytest.raises(LaminaError) as error:
            getattr(x, name)(*WRONG[name])
        said.add((type(error.value), str(error.value)))
    assert len(said) == 1


def test_writes_through_what_was_remembered():
    for _ in range(4):
        x = lamina.zeros(4, 2)
        first, second = x.chunk(2)
        first += 1
        second.select(0, 1).fill_(5)
        assert x.tolist() == [[1, 1], [1, 1], [0, 0], [5, 5]]


def test_it_is_remembered(monkeypatch):
    """From the third call on the composite itself is not called."""
    x = lamina.ones(5, 7)  # no other test's shape
    called = []
    for name in ("chunk", "flatten"):
        outer = vars(ops.FUNCTIONS[name])["__wrapped__"]
        assert outer.__code__ in RESOLVING
        inner = vars(outer)["__wrapped__"]
        cell = next(c for c in outer.__closure__ if c.cell_contents is inner)
        monkeypatch.setattr(cell, "cell_contents", lambda *a, f=inner: called.append(f.__name__) or f(*a))
    for _ in range(5):
        x.chunk(2), x.flatten()
    before = len(called)
    x.chunk(2), x.flatten()
    assert called and len(called) == before


def test_recorders_and_transforms_hear_of_the_ops():
    x = lamina.arange(6.0).view(2, 3)
    for _ in range(4):
        assert lamina.func.vmap(lambda row: row.max())(x).tolist() == [2, 5]
        assert lamina.func.grad(lambda x: x.flatten().chunk(2)[1].sum())(x).tolist() == [[0, 0, 0], [1, 1, 1]]
    heard = []
    modes.update(hook=lambda op, *_: heard.append(op.name))
    try:
        x.chunk(2)
    finally:
        modes.update(hook=None)
    assert heard == ["basic_index", "basic_index"]
