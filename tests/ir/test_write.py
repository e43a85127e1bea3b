"""The write node: what it may write, and that the interpreter writes memory which views share."""

import numpy as np
import pytest

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir import Builder, interpret, parse, type_of, verify
from lamina.ir.dtypes import float32, int64
from lamina.ir.errors import DTypeError, GraphError, ShapeError
from lamina.ir.write import write

TEXT = """\
graph f(%x: f32[2,3]) -> (f32[3], f32[3,2]) {
  %0 = basic_index(%x) {index=(("int",1),("slice",0,3,1))} : f32[3]
  %1 = transpose(%x) {dim0=0, dim1=1} : f32[3,2]
  %2 = detach(%0) : f32[3]
  %3 = mul(%0, 2.0:f64) : f32[3]
  %4 = write(%2, %3) : f32[3]
  return %4, %1
}"""


def test_write_is_seen_through_every_view():
    graph = parse(TEXT)
    verify(graph)
    assert str(graph) == TEXT
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    row, turned = interpret(graph, x)
    assert row.tolist() == [6.0, 8.0, 10.0]
    assert turned.tolist() == x.T.tolist() == [[0.0, 6.0], [1.0, 8.0], [2.0, 10.0]]


def written(value):
    with Builder("f") as b:
        x = b.param(type_of(int64, (2, 3)), "x")
        b.apply(write, (x, b.param(value, "value")), {})


def test_write_refuses_other_shapes_and_higher_categories():
    with pytest.raises(ShapeError) as error:
        written(type_of(int64, (3,)))
    assert str(error.value) == (
        "write(target, value): a value of shape [3] can't be written into [2, 3]\n"
        "  target: i64[2,3]\n"
        "  value: i64[3]\n"
        "  copy(target, value) broadcasts it"
    )
    with pytest.raises(DTypeError, match="lamina.float32 can't be written into lamina.int64"):
        written(type_of(float32, (2, 3)))


def test_verifier_sees_a_scatter_into_a_region_of_another_shape():
    text = """\
graph f(%x: f32[2,3], %v: f32[2]) -> (f32[2,3]) {
  %0 = view_scatter(%x, %v) {chain=(("basic_index",(("index",(("int",1),("slice",0,3,1))),)),)} : f32[2,3]
  return %0
}"""
    with pytest.raises(GraphError, match="the chain of views selects shape"):
        verify(parse(text))
