"""Codes whose slowest extent is a parameter: equal for all batches, and only where nothing else differs."""

from __future__ import annotations

import pytest

from lamina.ir.kernel import parse, verify
from lamina.passes.triton.generate import apart_codes

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
    (found,) = apart_codes(verify(parse(text.format(n=n, v=value))), opens=True)
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
