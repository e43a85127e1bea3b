"""Writes in place of tensors without history take a short way: what it leaves is what the general one does.

Under a hook every write goes the general way, as a recorder must hear of it.
"""

import itertools

import numpy as np
import pytest

import lamina
from lamina.ir.errors import ArgumentError
from lamina.runtime import modes, ops

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


NEAR = (0, 0.0, -0.0, False, 1, 1.0, True, None, float("nan"), 2.5, "floor")  # many are equal, none the same


def called(name, *args, **kwargs):
    return lambda x: getattr(x, name)(*[x if a is called else a for a in args], **kwargs)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_operands_that_are_numbers(kind):
    y, row = of(kind, 3, 4), of(kind, 4)
    for a, b in itertools.product(NEAR, NEAR):
        for write in (
            called("clamp_", a, b),
            called("clamp_", min=a, max=b),
            called("lerp_", y, a),
            called("masked_fill_", y == 1, a),
            called("addcmul_", y, row, value=a),
            called("addcdiv_", row, y, value=a),
            called("round_", decimals=a),
            called("div_", y, rounding_mode=a),
        ):
            agree(write, layouts(kind, 3, 4)[0], (kind, a, b))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_three_operands(kind):
    for other, make in itertools.product(KINDS, layouts(kind, 3, 4)):
        for y in (of(other, 3, 4), of(other, 4), of(other), of(other, 2, 3, 4)):
            for write in (
                called("addcmul_", y, y),
                called("addcmul_", called, y),
                called("lerp_", y, y),
                called("clamp_", y),
                called("clamp_", None, y),
                called("masked_fill_", y, 2.0),
            ):
                agree(write, make, (kind, other))


def test_a_tensor_that_tells_a_number_is_read_each_time():
    x, value = lamina.zeros(3), lamina.tensor(1.0)
    for n in range(4):
        value.fill_(n)
        assert x.fill_(value).tolist() == [n] * 3
        assert lamina.zeros(3).add_(value, alpha=2.0).tolist() == [2 * n] * 3
        assert lamina.zeros(3).clamp_(min=value).tolist() == [n] * 3


def test_what_asks_for_gradients_gets_those_of_the_plain_form():
    for name, given, named in (
        ("addcmul", 2, {"value": 0.5}), ("lerp", 1, {}), ("clamp", 0, {}), ("add", 1, {"alpha": 0.5}),
        ("copy", 1, {}), ("mul", 1, {}),
    ):  # fmt: skip
        numbers = {"lerp": (0.25,), "clamp": (-0.5, 0.5)}.get(name, ())
        for asks in itertools.product((False, True), repeat=1 + given):
            slopes = []
            for way in (name, name + "_"):
                leaves = [lamina.tensor([0.1, -0.7, 2.0 + i], requires_grad=a) for i, a in enumerate(asks)]
                x = leaves[0] * 1.0
                for _ in range(3):
                    function = ops.FUNCTIONS[way] if way in ops.FUNCTIONS else getattr(lamina.Tensor, way)
                    x = function(x, *leaves[1:], *numbers, **named)
                assert x.requires_grad == any(asks)
                if any(asks):
                    (x * x).sum().backward()
                slopes.append([None if y.grad is None else y.grad.tolist() for y in leaves])
            assert slopes[0] == slopes[1], (name, asks)


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


def test_copies_need_not_block():
    y = lamina.ones(2)
    assert lamina.zeros(2).copy_(y, True).tolist() == lamina.zeros(2).copy_(src=y, non_blocking=True).tolist()
    with pytest.raises(ArgumentError, match="non_blocking"):
        lamina.zeros(2).copy_(y, non_blocking="yes")
    with pytest.raises(ArgumentError):
        lamina.zeros(2).copy_(y, True, 3)
