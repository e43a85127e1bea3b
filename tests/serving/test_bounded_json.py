"""JSON is counted before it is parsed, and costs no more than was counted."""

import tracemalloc

import numpy as np
import pytest

from lamina.serving.bounded_json import BYTES_PER_VALUE, count, nesting, parsed, written
from lamina.serving.refusals import Refusal

DEAR = {
    "lists": b"[" + b"[]," * 20_000 + b"[]]",
    "nested": b"[" + b"[[]]," * 20_000 + b"[]]",
    "deep": b"[" + (b"[" * 20 + b"]" * 20 + b",") * 2000 + b"0]",
    "objects": b"[" + b"{}," * 20_000 + b"0]",
    "keys": b"[" + b'{"":0},' * 20_000 + b"0]",
    "two_keys": b"[" + b'{"a":{},"b":0},' * 20_000 + b"0]",
    "floats": b"[" + b"1e9," * 20_000 + b"0]",
    "ints": b"[" + b"9999999999," * 20_000 + b"0]",
    "strings": b"[" + b'"\\u00e9",' * 20_000 + b"0]",
    "names": b"{" + b",".join(b'"%d":0' % i for i in range(20_000)) + b"}",
}


@pytest.mark.parametrize("kind", DEAR)
def test_values_cost_no_more_than_is_held_for_them(kind):
    text = DEAR[kind]
    tracemalloc.start()
    try:
        value = parsed(text, 1 << 40, 64)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert value
    # Beyond the text: the string that it is decoded to, and what stands in strings of its own.
    assert most < BYTES_PER_VALUE * count(text) + 2 * len(text), most / count(text)


def test_refused_texts_cost_nothing():
    text = b"[" * 3_000_000
    tracemalloc.start()
    try:
        with pytest.raises(Refusal, match="more than 1,000,000"):
            parsed(text, 1_000_000, 64)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_nesting_is_that_outside_of_strings():
    assert nesting(b"[[1], [2, {}]]") == 3
    assert nesting(b'["[[[[", "\\"[[", "\\\\", [1]]') == 2
    assert nesting(b'"\\\\\\"[[[[" ') == 0
    assert parsed(b'["' + b"[" * 500 + b'"]', 1000, 3) == ["[" * 500]
    with pytest.raises(Refusal, match="deeper than 3"):
        parsed(b"[[[[]]]]", 1000, 3)


def test_what_is_written_is_read_again():
    value = {"a": [1.5, -0.0, 1e300, 2**60, True, None, "ä\ud800", {"b": []}]}
    assert parsed(written(value), 1000, 10) == value
    assert (
        written([float("nan"), [float("-inf")], {"x": float("inf")}])
        == b'["NaN",["-Infinity"],{"x":"Infinity"}]'
    )
    assert np.float32(0.1).item() == parsed(written([np.float32(0.1).item()]), 10, 10)[0]


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"1" * 5000, b"nul", b"[NaN]", b'{"a":1', b"\xef\xbb\xbf[]", b"[1]]"]
)
def test_what_is_no_json_is_refused(text):
    with pytest.raises(Refusal) as refused:
        parsed(text, 1000, 10)
    assert refused.value.status == 400
