"""What dtype comes of two operands, 0-d or not, and of numbers; numbers that don't fit."""

import itertools
import warnings

import pytest

import lamina

torch = pytest.importorskip("torch")

DTYPES = ("bool", "uint8", "int64", "float16", "bfloat16", "float32", "float64", "complex64")
NAMES = (
    "add", "sub", "mul", "div", "floor_divide", "fmod", "remainder", "pow", "maximum", "minimum", "fmax",
    "fmin", "atan2", "hypot", "copysign", "xlogy", "logaddexp", "bitwise_and", "bitwise_xor",
    "bitwise_left_shift", "eq", "lt", "heaviside", "ldexp", "nextafter", "float_power", "gcd", "logical_or",
    "rsub", "where", "clamp", "lerp", "addcmul", "addcdiv", "masked_fill", "outer", "special.zeta",
    "special.xlog1py",
)  # fmt: skip


def dtype_of(place, name, operands):
    """The dtype of a result, None where the call is refused."""
    function = place
    for part in name.split("."):
        function = getattr(function, part)
    made = [place.ones(x[1], dtype=getattr(place, x[0])) if isinstance(x, tuple) else x for x in operands]
    if name == "where":
        made.insert(0, place.tensor([True, False]))
    elif name == "masked_fill":
        made.insert(1, place.tensor([True, False]))
    elif name in ("addcmul", "addcdiv"):
        made.insert(1, made[1])
    elif name == "lerp":
        made.insert(0, made[0])
    try:
        return str(function(*made).dtype).rpartition(".")[2]
    except (RuntimeError, TypeError, ValueError):
        return None


@pytest.mark.parametrize("name", NAMES)
def test_dtypes_follow_from_the_operands(name):
    kinds = [*itertools.product(DTYPES, ((), (2,)))]
    numbers = [(x, n) for x in kinds for n in (True, 2, 2.5, 1j)]
    if name in ("addcmul", "addcdiv"):
        numbers = []
    pairs = [*itertools.product(kinds, kinds), *numbers]
    if name == "where":
        pairs += [(n, x) for x, n in numbers]
    compared = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for operands in pairs:
            wanted = dtype_of(torch, name, operands)
            if wanted is None or wanted == "complex32":  # Lamina may take more; it has no complex32
                continue
            if name == "ldexp" and "complex" in wanted or name in ("pow", "clamp") and wanted == "bool":
                continue  # an unpromoted 0-d complex64; powers of bools and bounds that are bools are refused
            assert dtype_of(lamina, name, operands) == wanted, operands
            compared += 1
    assert compared > 20


def small(place):
    return place.ones(2, dtype=place.int8)


CALLS = {
    "fill_": lambda t, n: small(t).fill_(n),
    "full": lambda t, n: t.full((2,), n, dtype=t.int8),
    "full_like": lambda t, n: t.full_like(small(t), n),
    "masked_fill": lambda t, n: small(t).masked_fill(t.tensor([True, False]), n),
    "index_fill": lambda t, n: small(t).index_fill(0, t.tensor([0]), n),
    "scatter": lambda t, n: small(t).scatter(0, t.tensor([1]), n),
    "x[0] = n": lambda t, n: small(t).__setitem__(0, n),
    "pad": lambda t, n: t.nn.functional.pad(small(t), (1, 1), value=n),
    "clamp": lambda t, n: small(t).clamp(max=n),
}  # fmt: skip
ODD = [300, -129, float("nan"), float("inf"), 1e10, 1j]


PAIRS = [
    (call, n) for call in CALLS for n in ODD if call != "clamp" or type(n) is not float
]  # which it takes


@pytest.mark.parametrize(("call", "number"), PAIRS, ids=map(str, PAIRS))
def test_numbers_that_do_not_fit_are_refused(call, number):
    for place in (torch, lamina):
        with pytest.raises((RuntimeError, TypeError)):
            CALLS[call](place, number)


@pytest.mark.parametrize("number", [-1, 0, 255, 256, 300, -300, 2**40, -(2**40)])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_comparisons_tell_on_which_side_a_number_lies(name, number):
    values = {"uint8": [0, 1, 255], "int32": [-(2**31), 0, 2**31 - 1]}
    for dtype, held in values.items():
        x = lamina.tensor(held, dtype=getattr(lamina, dtype))
        wanted = [getattr(number, f"__{name}__")(n) for n in held]
        swapped = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(name, name)
        assert getattr(x, swapped)(number).tolist() == wanted
        traced = lamina.jit.trace(lambda x: getattr(x, swapped)(number))  # noqa: B023 - called at once
        assert [traced(x).tolist() for _ in range(3)] == [wanted] * 3
        assert (number in x) is (number in held)


LISTS = [
    [10**20],
    [10**20, 2.0], [2**63, 1], [True, 10**19], [10**400, 1.0], [1e400, 2], [2**63 - 1, 0], [-(2**63)],
]  # fmt: skip


@pytest.mark.parametrize("numbers", LISTS, ids=range(len(LISTS)))
@pytest.mark.parametrize("held", [None, 2, 1.5])
def test_lists_of_large_numbers_beside_tensors(numbers, held):
    """NumPy makes floats, or objects, of some of them."""
    made = []
    for library in (torch, lamina):
        given = [*numbers, *([] if held is None else [library.tensor(held)])]
        try:
            made.append(library.tensor(given).tolist())
        except (ValueError, OverflowError):
            made.append("raised")
    assert made[0] == made[1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_halves_are_compared_with_what_a_number_is_in_halves(name, dtype):
    def told(place, compared):
        found = []
        for number in (0.1, -0.3, 0.7, 2049, -10000.0, 1e6, -1e39, float("nan")):
            x = place.tensor([0.1, -0.3, 0.7, 2049.0, -10000.0, float("inf"), -float("inf")])
            x = x.to(getattr(place, dtype))
            found.append(compared(place, x, number))
        return found

    def plainly(place, x, number):
        own = getattr(x.clone(), name + "_")(number)
        return getattr(place, name)(x, number).tolist(), own.tolist(), getattr(x[0], name)(number).item()

    traced = lamina.compile(lambda x, number: getattr(x, name)(number) * 2)
    assert told(lamina, plainly) == told(torch, plainly)
    theirs = told(torch, lambda place, x, number: (getattr(x, name)(number) * 2).tolist())
    assert told(lamina, lambda place, x, number: traced(x, number).tolist()) == theirs
    assert not lamina.eq(lamina.ones(2, dtype=getattr(lamina, dtype)), 2**70).any()
