"""Codes whose numbers are parameters: equal for all batches, or for all sizes, and only where nothing else
differs.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from lamina.ir.dtypes import float32
from lamina.ir.kernel import parse, verify
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.graphs.lower import lower
from lamina.passes.triton.generate import apart_codes
from lamina.passes.triton.opening import Open
from lamina.runtime.cuda import sizes_met

ROWS = """
kernel rows(x: f32[{n},12], b: f32[12]) -> (y: f32[{n},12]) {{
  parallel i:{n} j:12
  y[i, j] = {v}
}}
"""
SUM = """
kernel sums(x: f32[{n},40]) -> (y: f32[{n}]) {{
  parallel i:{n}
  s = sum(k:40) x[i, k]
  y[i] = s
}}
"""


def code(text: str, n: int, value: str = "(x[i, j] + b[j])"):
    (found,) = apart_codes(verify(parse(text.format(n=n, v=value))), opens=Open.BATCHES)
    return found


@pytest.mark.parametrize("text", [ROWS, SUM])
def test_batches_share_a_text(text):
    few, many = code(text, 33), code(text, 63)
    assert few.name == many.name and few.source == many.source
    assert (few.numbers, many.numbers) == ((33,), (63,)) and few.parameters[-1] == "i32"
    assert not few.aligned[-1] and code(text, 48).aligned[-1]
    assert "extent" in few.source and "33" not in few.source
    assert few.from_json(few.json()) == few


def test_what_else_hangs_on_the_extent_tells_texts_apart():
    values = [f"(x[i, j] * f32({1 / n!r}))" for n in (33, 63)]
    one, two = (code(ROWS, n, value) for n, value in zip((33, 63), values, strict=True))
    assert one.numbers and two.numbers and one.name != two.name


def test_one_row_and_huge_ones_are_no_such_batch():
    assert code(ROWS, 1).numbers == (12,)  # the columns are the slowest axis there
    huge = code(ROWS, 1 << 28)
    assert huge.numbers == (1 << 28,) and huge.parameters[-1] == "i64"
    assert huge.name != code(ROWS, 1 << 20).name


def test_codes_are_bound_unless_asked():
    (found,) = apart_codes(verify(parse(ROWS.format(n=33, v="x[i, j]"))))
    assert found.numbers == () and "extent" not in found.source


# ---- all sizes
PRODUCT = """
kernel product(x: f32[{n},{n}], w: f32[{n},{m}]) -> (y: f32[{n},{m}]) {{
  parallel i:{n} j:{m}
  s = sum(k:{n}) (x[i, k] * w[k, j])
  y[i, j] = s
}}
"""
SOFTMAX = """
kernel softmax(x: f32[{m},{n}]) -> (y: f32[{m},{n}]) {{
  parallel i:{m}
  top = max(k:{n}) x[i, k]
  total = sum(k:{n}) exp((x[i, k] - top))
  y[i, k] = (exp((x[i, k] - top)) / total) for k:{n}
}}
"""
TURNED = """
kernel turned(x: f32[{m},{n},5]) -> (y: f32[5,{n},{m}]) {{
  parallel i:5 j:{n} k:{m}
  y[i, j, k] = x[k, j, i]
}}
"""
TAKEN = """
kernel taken(x: f32[{n},{m}], ids: i64[{m}]) -> (y: f32[{m},{n}]) {{
  parallel i:{m} j:{n}
  y[i, j] = x[j, ids[i]]
}}
"""


def open_code(text: str, n: int, m: int):
    (found,) = apart_codes(verify(parse(text.format(n=n, m=m))), opens=Open.SIZES)
    return found


@pytest.mark.parametrize("text", [PRODUCT, SOFTMAX, TURNED, TAKEN])
def test_all_sizes_share_a_text(text):
    found = [open_code(text, n, 24) for n in (35, 43, 57)]
    assert len({code.name for code in found}) == len({code.source for code in found}) == 1
    assert len({code.numbers for code in found}) == 3 and "35" not in found[0].source
    for code in found:
        assert len(code.parameters) == code.source.split("def ")[-1].split(")")[0].count(",") + 1
        assert code.from_json(code.json()) == code


def test_sizes_that_happen_to_be_equal_are_another_text():
    """What is one parameter here is two there: numbers never stand for what they are not."""
    assert open_code(SOFTMAX, 40, 40).name != open_code(SOFTMAX, 41, 40).name


def test_numbers_of_no_size_stay():
    assert "exp" in open_code(SOFTMAX, 35, 24).source
    one, two = (verify(parse(ROWS.format(n=33, v=f"(x[i, j] * {by})"))) for by in ("3.0", "4.0"))
    assert apart_codes(one, opens=Open.SIZES)[0].name != apart_codes(two, opens=Open.SIZES)[0].name


def many(*shapes: tuple[int, ...], source: str = "tl.dot(a, b)") -> bool:
    made = "f32", (*shapes[0][:-1], shapes[1][-1])
    params = tuple(("f32", shape) for shape in shapes)
    code = SimpleNamespace(source=source)
    launches = SimpleNamespace(name="product", params=params, results=(made,), codes=[code])
    return sizes_met.has_met_many(launches)


def test_what_meets_many_sizes_gets_code_for_all(monkeypatch):
    monkeypatch.setattr(sizes_met, "_met", {})
    assert [many((n, 96), (96, 32)) for n in range(10, 15)] == [False] * 3 + [True] * 2
    assert not many((3, 8), (8, 5))  # a product of other sizes has its own
    found = [many((n, n + 7, 3), (3, 5)) for n in range(20, 30)]  # two sizes of one array change at once
    assert found == [False] * 7 + [True] * 3
    found = [many((n, n + 1), (n + 1, n + 2)) for n in range(20, 300)]  # all change at once
    assert not any(found[:200]) and found[-1]
    sizes_met._met.clear()
    found = [many((n, n + 1), (n + 1, n + 2), source="no product") for n in range(300, 320)]
    assert not any(found[:4]) and all(found[16:])


def test_layers_of_a_network_keep_code_of_their_own(monkeypatch):
    """Those of ResNet-50: 23 convolutions of one op, each between other channels or of another image."""
    monkeypatch.setattr(sizes_met, "_met", {})
    found = []
    for width, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        for channels, outs, k in ((width, width, 3), (4 * width, width, 1), (width, 4 * width, 1)):
            found.append(many((8, channels, size, size), (channels, outs), (k, k, 1)))
    assert not any(found)


def test_what_is_met_is_forgotten_before_it_is_much(monkeypatch):
    monkeypatch.setattr(sizes_met, "_met", {})
    monkeypatch.setattr(sizes_met, "KEPT", 30)
    for n in range(2, 60):
        many((n, n + 1), (n + 1, n + 2))
    assert len(sizes_met._met) < 60


def test_patterns_of_many_sizes_are_one():
    """Ten arrays that are joined have ten lengths and places: whether 16 bytes divide each is not told."""
    names = set()
    for step in (1, 2, 3, 4):
        arrays = [type_of(float32, (130 + step * k,)) for k in range(10)]
        kernel = verify(lower(REGISTRY["cat"], *REGISTRY["cat"].bind(arrays, 0)))
        (code,) = apart_codes(kernel, opens=Open.SIZES)
        assert len(code.numbers) > 10 and not any(code.aligned[-len(code.numbers) :])
        names.add(code.name)
    assert len(names) == 1
