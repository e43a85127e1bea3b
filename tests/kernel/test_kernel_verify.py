"""Every rule of the verifier, by a kernel that breaks it; and kernels that look alike and are right."""

import pytest
from probes import INPLACE, PROBES

from lamina.ir.errors import KernelError
from lamina.ir.kernel import Affine, Axis, Reduce, Store, cast, const, coordinate, parse, read, ref, verify
from lamina.ir.kernel.bounds import bounds
from lamina.ir.kernel.scalar import op


def kernel(
    body: str, parallel: str = "i:4", inputs: str = "x: f32[4], q: i64[4]", outputs: str = "y: f32[4]"
) -> str:
    lines = "".join(f"  {line}\n" for line in body.split("\n"))
    return f"kernel k({inputs}) -> ({outputs}) {{\n  parallel {parallel}\n{lines}}}"


def refused(text: str, message: str) -> None:
    with pytest.raises(KernelError) as caught:
        verify(parse(text))
    assert message in str(caught.value)


SCAN = "s[j] = scan(j:4) {\n  init f32(0)\n  step s\n  merge s\n}\ny[i] = 1"
FOLD = "s = fold(j:4) {{\n  init {}\n  step {}\n{}}}\ny[i] = s"


@pytest.mark.parametrize(
    "message, text",
    [
        # names
        ("x is defined twice", kernel("x = f32(1)\ny[i] = x")),
        ("s is defined twice", kernel("s = f32(1)\ns = f32(2)\ny[i] = s")),
        ("the axis i runs twice in one stage", kernel("s = sum(i:4) x[i]\ny[i] = s")),
        ("an axis has one extent", kernel("s = sum(j:4) x[j]\nt = sum(j:3) x[j]\ny[i] = s")),
        # scope
        ("z is not in scope: no earlier stage defines it", kernel("y[i] = z")),
        ("a stage is read at its own axes: e", kernel("e[j] = x[j] for j:4\ny[i] = e[j]")),
        ("e is not in scope: not its axes", kernel("e[j] = x[j] for j:4\ny[i] = e")),
        ("j is not in scope", kernel("s = sum(j:4) x[j]\ny[i] = x[j]")),
        ("coord takes an affine index of axes", kernel("s = sum(j:4) x[j]\ny[i] = f32(coord(j))")),
        ("reads an output; define a stage", kernel("y[i] = y[i]")),
        ("x[i, i] has 2 indices for x: f32[4]", kernel("y[i] = x[i, i]")),
        ("an index is an integer", kernel("y[i] = x[x[i]]")),
        # bounds
        ("x[i+1] may leave dimension 0", kernel("y[i] = x[i+1]")),
        ("x[i-1] may leave dimension 0", kernel("y[i] = x[i-1]")),
        ("add 'else value'", kernel("y[i] = x[i+1]")),
        ("a store leaves y: f32[4]", kernel("y[i+1] = x[i]")),
        # types
        ("the operands of add have one element type, not f32 and i64", kernel("y[i] = (x[i] + q[i])")),
        ("a condition is bool", kernel("y[i] = select(x[i], x[i], 1)")),
        ("exp does not take i64", kernel("y[i] = f32(exp(q[i]))")),
        ("add does not take f16", kernel("y[i] = f32((f16(x[i]) + f16(x[i])))")),
        ("mulhi does not take u64", kernel("y[i] = f32(mulhi(u64(q[i]), u64(q[i])))")),
        ("random_bits does not take u64", kernel("y[i] = f32(random_bits(1, 1, 1, 1, 1, 1, u64(q[i])))")),
        ("i64 does not hold the constant 0.5", kernel("y[i] = f32((q[i] + 0.5))")),
        ("u8 does not hold the constant 300", kernel("y[i] = f32((u8(q[i]) + 300))")),
        ("bool does not hold the constant 2", kernel("y[i] = select((eq(x[i], 1) & 2), x[i], 1)")),
        ("a comparison of untyped constants has no type", kernel("y[i] = select((1 < 2), x[i], 1)")),
        ("a stage's value needs an element type", kernel("s = 1\ny[i] = s")),
        ("bits are read as another type of the same width", kernel("y[i] = f32(as_i64(x[i]))")),
        ("the buffer y is f32, its value is i64", kernel("y[i] = q[i]")),
        ("cast it: f32(value)", kernel("y[i] = q[i]")),
        ("i64 does not hold the constant 0.5", kernel("y[i] = f32(q[i+1 else 0.5])")),
        # reductions and folds
        ("sum does not take bool", kernel("s = sum(j:4) (x[j] < 1)\ny[i] = f32(s)")),
        ("any does not take f32", kernel("s = any(j:4) x[j]\ny[i] = s")),
        ("max does not take f16", kernel("s = max(j:4) f16(x[j])\ny[i] = f32(s)")),
        ("the step of s is f32, its value is i64", kernel(FOLD.format("f32(0)", "q[j]", ""))),
        ("the merge of s is f32, its value is i64", kernel(FOLD.format("f32(0)", "x[j]", "  merge q[i]\n"))),
        ("one init, step and merge for each of its names", kernel(FOLD.format("f32(0), f32(1)", "x[j]", ""))),
        ("a scan has one axis and no merge", kernel(SCAN)),
        ("j is not in scope", kernel(FOLD.format("x[j]", "s", ""))),
        ("right.s is not in scope", kernel(FOLD.format("f32(0)", "right.s", ""))),
        # written once
        ("written: 2 of 4 elements", kernel("y[i] = x[i]", "i:2")),
        ("written: 0 of 4 elements", kernel("s = f32(1)")),
        ("an element of y: f32[4] is written twice", kernel("y[i] = x[i]", "i:4 j:2")),
        ("y: f32[16] is written twice", kernel("y[i+j] = x[i]", "i:4 j:4", outputs="y: f32[16]")),
        ("two stores may write one element", kernel("y[i] = x[i]\ny[i+1] = x[i]", "i:2")),
        ("x is no output", kernel("x[i] = 1\ny[i] = 1")),
        ("several points may meet in one element", kernel("y[q[i]] = x[i]")),
        ("a store combines with one of set, add, mul, max, min", kernel("y[i] div= x[i]")),
        ("the stores to y do not agree", kernel("y[i] add= x[i]\ny[i] max= x[i]")),
        # in place
        ("z is no input", kernel("y[i] = 1", outputs="y: f32[4] inplace z")),
        ("has the type, shape and strides of its input", kernel("y[i] = 1", outputs="y: f32[4] inplace q")),
        ("y is written at another index", kernel("y[i] = x[-i+3]", outputs="y: f32[4] inplace x")),
        ("is read after it was overwritten",
         kernel("y[i] = 1\nz[i] = x[i]", outputs="y: f32[4] inplace x, z: f32[4]")),
        ("is read after it was overwritten",  # through a Local, which may be computed again
         kernel("e[j] = x[i] for j:1\ny[i] = 1\nz[i] = e[j] for j:1",
                outputs="y: f32[4] inplace x, z: f32[4]")),
        ("x is read while y accumulates over it", kernel("y[q[i]] add= x[i]", outputs="y: f32[4] inplace x")),
    ],
)  # fmt: skip
def test_verifier_refuses(message, text):
    refused(text, message)


# What no text can say, since the parser refuses it or reads it as something else.
def test_a_negative_extent_is_refused():
    with pytest.raises(KernelError, match="an extent is negative: -4"):
        verify(parse(kernel("y[i] = 1")).replace(parallel=(Axis("i", -4),)))


@pytest.mark.parametrize("value", [read("x", ("j",)), cast(coordinate("j"), "f32"), ref("e", ("j",))])
def test_an_axis_that_does_not_run_is_refused(value):
    right = parse(kernel("e[j] = x[j] for j:4\ny[i] = x[i]"))
    store = Store("y", (Affine((("i", 1),)),), value)
    with pytest.raises(KernelError, match="uses an axis that does not run here|not in scope: not its axes"):
        verify(right.replace(stages=(right.stages[0], store)))


def test_an_else_of_another_type_is_refused():
    value = read("x", (Affine((("i", 1),), 1),), const(1.0, "f64"))
    broken = parse(kernel("y[i] = x[i]")).replace(stages=(Store("y", (Affine((("i", 1),)),), value),))
    with pytest.raises(KernelError, match="is not f32"):
        verify(broken)


def test_reads_of_no_buffer_are_refused():
    broken = parse(kernel("y[i] = x[i]")).replace(
        stages=(Store("y", (Affine((("i", 1),)),), read("nothing", ("i",))),)
    )
    with pytest.raises(KernelError, match="nothing, which is no buffer"):
        verify(broken)


def test_a_reduction_needs_an_axis():
    broken = parse(kernel("s = sum(j:4) x[j]\ny[i] = s"))
    for stage in (
        Reduce("s", "sum", (), read("x", ("i",))),
        Reduce("s", "mean", broken.stages[0].axes, read("x", ("i",))),
    ):
        with pytest.raises(KernelError, match="a reduction is sum, prod"):
            verify(broken.replace(stages=(stage, *broken.stages[1:])))


RIGHT = {
    "interleaved stores": kernel("y[2*i] = x[i]\ny[2*i+1] = 0", "i:2"),
    "stores side by side": kernel("y[i] = x[i]\ny[i+2] = x[i+2]", "i:2"),
    "every element by mixed radix": kernel("y[4*i+j] = x[i]", "i:4 j:4", outputs="y: f32[16]"),
    "a part of a buffer in place": kernel("y[2*i] = (x[2*i] + 1.0)", "i:2", outputs="y: f32[4] inplace x"),
    "scatter over a buffer in place": kernel("y[q[i]] add= 1.0", outputs="y: f32[4] inplace x"),
    "an axis without points leaves nothing": kernel("y[i] = x[i+100]", "i:0", outputs="y: f32[0]"),
    "constants typed by the buffer": kernel("y[i] = select((x[i] < 0), -1, 1)"),
    "bools as conditions": kernel("y[i] = select(true, x[i], 1)"),
    "symbols": """\
kernel k[n, m](x: f32[n,m]) -> (y: f32[m,n], z: f32[n,m]) {
  parallel i:n j:m
  y[j, i] = x[i, j]
  z[i, j] = x[-i+n-1, j]
}""",
}


@pytest.mark.parametrize("what", RIGHT)
def test_verifier_accepts(what):
    verify(parse(RIGHT[what]))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("y[j, i]", "y[i, j]", "a store leaves y"),
        ("x[-i+n-1, j]", "x[-i+n, j]", "may leave dimension 0"),
        ("z[i, j] = x[-i+n-1, j]", "z[i, i] = x[i, j]", "a store leaves z"),
        ("j:m", "j:n", "may leave dimension 1"),
        ("z: f32[n,m]", "z: f32[n,m,m]", "has 2 indices"),
    ],
)
def test_symbolic_bounds_are_proved_or_refused(old, new, message):
    refused(RIGHT["symbols"].replace(old, new), message)


def test_symbolic_coverage_is_counted():
    text = "kernel k[n](x: f32[n]) -> (y: f32[n,2]) {\n  parallel i:n\n  y[i, 0] = x[i]\n}"
    refused(text, "written: n of 2*n elements")
    verify(parse(text.replace("\n}", "\n  y[i, 1] = x[i]\n}")))


@pytest.mark.parametrize("name", PROBES)
def test_probes_are_right(name):
    verify(parse(PROBES[name].text))
    verify(parse(INPLACE))


def test_bounds_of_an_expression_taller_than_pythons_stack():
    kernel = parse("kernel k(x: f32[8]) -> (y: f32[8]) {\n  parallel i:8\n  y[i] = x[i]\n}")
    expr = coordinate(Affine((("i", 1),), 0))
    for _ in range(1500):
        expr = op("min", expr, const(6, "i64"))
    assert bounds(kernel, expr) == (0, 6)
