"""Writes in place of tensors without history take a short way: what it leaves is what the general one does.

Under a hook every write goes the general way, as a recorder must hear of it.
"""

import itertools

import numpy as np
import pytest

import lamina
from lamina.runtime import modes

KINDS = (
    lamina.float32,
    lamina.float64,
    lamina.float16,
    lamina.bfloat16,
    lamina.int64,
    lamina.int32,
    lamina.uint8,
    lamina.bool,
    lamina.complex64,
)
BINARY = (
    "add_",
    "sub_",
    "mul_",
    "div_",
    "copy_",
    "pow_",
    "remainder_",
    "bitwise_and_",
    "eq_",
    "lt_",
    "fmod_",
    "atan2_",
)
NUMBERS = (2, 0, -3, 2.5, 0.0, -0.0, float("nan"), True, 300, 1e300)
INDICES = (
    0,
    -1,
    3,
    7,
    True,
    slice(1, 3),
    slice(None),
    slice(0, 4, 2),
    slice(3, 1),
    None,
    Ellipsis,
    (1, 2),
    (slice(None), 1),
    (slice(1, 3), slice(0, 2)),
    (Ellipsis, 0),
    (0, None),
    (2**70,),
    [0, 2],
    [True, False, True, False],
)


def of(kind, *shape):
    values = (np.arange(int(np.prod(shape))) % 5).reshape(shape)
    return lamina.tensor(values).to(kind)


def layouts(kind, rows, columns):
    """Tensors of that shape: dense, a part, turned, and one row that stands for all."""
    return (
        lambda: of(kind, rows, columns),
        lambda: of(kind, rows + 3, columns)[1 : rows + 1],
        lambda: of(kind, columns, rows).t(),
        lambda: of(kind, 1, columns).expand(rows, columns),
    )


def outcome(write, x, general):
    """All that a write leaves: the values, how often they were written, or the error."""
    if general:
        modes.update(hook=lambda *_: None)
    try:
        found = write(x)
        said = found is None or found is x
    except Exception as error:
        said = type(error), str(error)
    finally:
        if general:
            modes.update(hook=None)
    held = x if x.dtype is not lamina.bfloat16 else x.float()
    return said, x.dtype, x.shape, held.detach().numpy().tobytes(), x._version


def agree(write, make, label):
    for blocks in (modes.enable_grad, modes.no_grad):
        with blocks():
            short, general = (outcome(write, make(), way) for way in (False, True))
        assert short == general, (label, blocks.__name__)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", BINARY)
def test_in_place_ops(name):
    for kind, other in itertools.product(KINDS, (*KINDS, *NUMBERS)):
        operands = (
            [other]
            if other in NUMBERS and not isinstance(other, lamina.dtype)
            else [of(other, 3, 4), of(other, 4), of(other, 1, 1), of(other), of(other, 2, 3, 4)]
        )
        for y in operands:
            for make in layouts(kind, 3, 4):
                agree(lambda x, y=y: getattr(x, name)(y), make, (name, kind, y))


@pytest.mark.parametrize("name", ["add_", "sub_"])
def test_factors(name):
    for kind, alpha in itertools.product(KINDS, (0.5, 2, True, -0.0, 1.0, float("nan"))):
        for y in (of(kind, 3, 4), of(kind, 4), 2.0):
            agree(
                lambda x, y=y, a=alpha: getattr(x, name)(y, alpha=a),
                layouts(kind, 3, 4)[0],
                (name, kind, alpha),
            )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_filled(kind):
    for value in (*NUMBERS, 65504.0, -1e5, 70000.0):
        for make in (*layouts(kind, 3, 4), lambda: of(kind)):
            agree(lambda x, value=value: x.fill_(value), make, (kind, value))
            agree(lambda x: x.zero_(), make, kind)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_assigned(kind):
    rows = (
        lamina.tensor([0, 2]),
        lamina.tensor([[0], [-1]]),
        lamina.tensor(1),
        lamina.tensor([0, 9]),
        lamina.tensor([True, False, True, False]),
        of(lamina.int64, 4, 3) > 1,
        lamina.tensor([], dtype=lamina.int64),
    )
    values = (
        *NUMBERS,
        of(kind),
        of(kind, 3),
        of(kind, 4, 3),
        of(kind, 2, 3),
        of(kind, 1, 3),
        of(kind, 2, 1),
        of(lamina.float64, 3),
        of(kind, 1, 1, 3),
        [1, 2, 3],
    )

    def assign(index, value):
        def write(x):
            x[index] = value

        return write

    for index, value in itertools.product((*INDICES, *rows), values):
        for make in layouts(kind, 4, 3):
            agree(assign(index, value), make, (kind, index, value))


def test_what_overlaps_is_read_before_it_is_written():
    for way in (False, True):
        x = lamina.arange(6.0)
        outcome(lambda x: x[1:].copy_(x[:-1]) and None, x, way)
        assert x.tolist() == [0, 0, 1, 2, 3, 4]
        x = lamina.arange(6.0)
        x[lamina.tensor([1, 2, 3, 4, 5])] = x[:-1]
        assert x.tolist() == [0, 0, 1, 2, 3, 4]
