"""Substitution: what stands in place of each part of a kernel, as text before and after."""

import pytest

from lamina.ir.kernel import parse, read, ref, verify
from lamina.ir.kernel.affine import ZERO, Affine
from lamina.ir.kernel.form import Axis, Buffer
from lamina.ir.kernel.scalar import op
from lamina.ir.kernel.substitute import Substitution

BEFORE = verify(
    parse("""kernel f(x: f32[8,12], r: i64[8]) -> (y: f32[8]) {
  parallel i:8
  e[j] = (x[i, 2*j] * 2.0) for j:6
  s = sum(j:6) e[j]
  y[i] = (s + x[r[i], 5 else 0.0])
}""")
)
CASES = {
    "an axis split": (
        Substitution(
            indices={"i": Affine.of({"io": 4, "ii": 1})}, axes={"i": (Axis("io", 2), Axis("ii", 4))}
        ),
        """kernel f(x: f32[8,12], r: i64[8]) -> (y: f32[8]) {
  parallel io:2 ii:4
  e[j] = (x[ii+4*io, 2*j] * 2.0) for j:6
  s = sum(j:6) e[j]
  y[ii+4*io] = (s + x[r[ii+4*io], 5 else 0.0])
}""",
    ),
    "an axis of a Local under another name": (
        Substitution(indices={"j": Affine.of({"k": 1})}, axes={"j": (Axis("k", 6),)}, stages={"e": "t"}),
        """kernel f(x: f32[8,12], r: i64[8]) -> (y: f32[8]) {
  parallel i:8
  t[k] = (x[i, 2*k] * 2.0) for k:6
  s = sum(k:6) t[k]
  y[i] = (s + x[r[i], 5 else 0.0])
}""",
    ),
    "an axis gone, and a computed index": (
        Substitution(indices={"i": ZERO, "j": read("r", [0])}, axes={"i": ()}),
        """kernel f(x: f32[8,12], r: i64[8]) -> (y: f32[8]) {
  parallel
  e[j] = (x[0, (i64(r[0]) * 2)] * 2.0) for j:6
  s = sum(j:6) e[j]
  y[0] = (s + x[r[0], 5 else 0.0])
}""",
    ),
    "other arrays, other dimensions": (
        Substitution(
            buffers={"x": Buffer("xt", "f32", (12, 8)), "y": Buffer("z", "f32", (8, 1))},
            at={"x": lambda index: index[::-1], "y": lambda index: (*index, ZERO)},
        ),
        """kernel f(xt: f32[12,8], r: i64[8]) -> (z: f32[8,1]) {
  parallel i:8
  e[j] = (xt[2*j, i] * 2.0) for j:6
  s = sum(j:6) e[j]
  z[i, 0] = (s + xt[5, r[i] else 0.0])
}""",
    ),
    "results of stages": (
        Substitution(refs=BEFORE.locals | {"s": ref("s0")}, reads=lambda a: op("neg", a)),
        """kernel f(x: f32[8,12], r: i64[8]) -> (y: f32[8]) {
  parallel i:8
  e[j] = (neg(x[i, 2*j]) * 2.0) for j:6
  s = sum(j:6) (neg(x[i, 2*j]) * 2.0)
  y[i] = (s0 + neg(x[neg(r[i]), 5 else 0.0]))
}""",
    ),
    "a whole expression, not looked into": (
        Substitution(
            exprs={read("x", ["i", Affine.of({"j": 2})]): read("x", ["j", "i"])},
            indices={"j": Affine.of({"j": 1}, 1)},
        ),
        """kernel f(x: f32[8,12], r: i64[8]) -> (y: f32[8]) {
  parallel i:8
  e[j] = (x[j, i] * 2.0) for j:6
  s = sum(j:6) e[j]
  y[i] = (s + x[r[i], 5 else 0.0])
}""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_substitution(name):
    substitution, after = CASES[name]
    assert str(substitution.kernel(BEFORE)) == after


def test_expressions_taller_than_the_stack_are_substituted():
    tall = read("x", ["i"])
    for _ in range(5000):
        tall = op("neg", tall)
    made = Substitution(indices={"i": ZERO}).expr(tall)
    for _ in range(5000):
        (made,) = made.args
    assert made is read("x", [0])
