"""The ways through a sequence of modules or pairs: each is compiled, and each is guarded."""

from functools import partial
from itertools import chain, islice

import numpy as np
import pytest

import lamina
from lamina import jit, nn

ROUNDING = 6 * 8 * 2.0**-24  # two sums of three terms, all below 8


def modules() -> nn.ModuleList:
    return nn.ModuleList(nn.Linear(2, 2) for _ in range(3))


def applied(x, module):
    return module(x)


WAYS = {
    "enumerate": lambda ms, x: [m(x) * i for i, m in enumerate(ms)],
    "zip": lambda ms, x: [a(b(x)) for a, b in zip(ms, ms)],
    "zip strict": lambda ms, x: [a(b(x)) for a, b in zip(ms, ms, strict=True)],
    "zip with numbers": lambda ms, x: [m(x) * k for k, m in zip((1.0, 2.0, 3.0), ms)],
    "map": lambda ms, x: list(map(partial(applied, x), ms)),
    "list": lambda ms, x: [m(x) for m in list(ms)],
    "tuple": lambda ms, x: tuple(ms)[1](x),
    "reversed": lambda ms, x: [m(x) for m in reversed(ms)],
    "islice": lambda ms, x: [m(x) for m in islice(ms, 2)],
    "chain": lambda ms, x: [m(x) for m in chain(ms, ms)],
    "dictionary": lambda ms, x: {i: m(x) for i, m in enumerate(ms)},
    "item": lambda ms, x: ms[0](x),
    "item from the end": lambda ms, x: ms[-1](x),
    "slice": lambda ms, x: [m(x) for m in ms[:2]],
    "item of a slice": lambda ms, x: ms[1:][0](x),
    "in": lambda ms, x: x * 2 if ms[0] in ms else x,
    "list of pairs": lambda ms, x: list(enumerate(ms))[1][1](x),
    "tuple of pairs": lambda ms, x: tuple(zip(ms, ms))[1][1](x),
    "items": lambda ms, x: list(ms.named_children())[1][1](x),
    "pairs in pairs": lambda ms, x: [m(x) * i for i, (_, m) in list(enumerate(zip(ms, ms)))[:2]],
    "display": lambda ms, x: [m(x) for m, _ in [(ms[0], 1), (ms[1], 2)]],
}


def leaves(result) -> list[np.ndarray]:
    """The arrays in a result."""
    if isinstance(result, dict):
        result = list(result.values())
    return [y for each in result for y in leaves(each)] if isinstance(result, list) else [result.numpy()]


@pytest.mark.parametrize("kind", [nn.ModuleList, nn.Sequential])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_through_modules_is_compiled_and_sees_a_replaced_one(way, kind):
    held = kind(*modules()) if kind is nn.Sequential else kind(modules())
    x, traced = lamina.randn(3, 2), jit.trace(lambda x: WAYS[way](held, x))
    with lamina.no_grad():
        for _ in range(2):  # as they are, and with others in the places of the first two
            for _ in range(3):
                for a, b in zip(leaves(traced(x)), leaves(WAYS[way](held, x)), strict=True):
                    np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING)
            held[0], held[1] = nn.Linear(2, 2), nn.Linear(2, 2)
    assert traced.counts()["served"] >= 3 and not traced.counts()["eager"], traced.explain()


def test_pairs_of_a_dictionary_that_a_list_holds_are_read_anew():
    settings = {"first": 2.0, "second": 3.0}
    traced, x = (
        jit.trace(lambda x: x * list(settings.items())[1][1] + tuple(settings.items())[0][1]),
        lamina.ones(2),
    )
    for second in (3.0, 3.0, 3.0, 5.0, 5.0):
        settings["second"] = second
        assert traced(x).tolist() == [second + 2.0] * 2
    assert traced.counts()["served"] >= 2, traced.explain()


def test_a_list_of_tuples_from_outside_is_read_through_an_iterator():
    """Tuples that were there before are not taken for new ones because a new list holds them."""
    pairs = [([1.0], 2.0), ([3.0], 4.0)]
    traced, x = jit.trace(lambda x: x * list(islice(pairs, 1))[0][0][0]), lamina.ones(2)
    for number in (1.0, 1.0, 7.0, 7.0):
        pairs[0][0][0] = number
        assert traced(x).tolist() == [number] * 2


def test_list_and_tuple_raise_what_python_raises():
    for wrong in (lambda: list(3), lambda: tuple(None), lambda: list([1], [2])):
        with pytest.raises(TypeError) as eager:
            wrong()
        with pytest.raises(TypeError) as traced:
            jit.trace(wrong)()
        assert str(traced.value) == str(eager.value)
