"""Which kernels are sums of products, and the roles of their axes."""

import pytest
from image_programs import conv_kernel, kernel_of

from lamina.ir.kernel import parse, verify
from lamina.passes.kernels.blocking import squeezed
from lamina.passes.kernels.product import product_of

IMAGE = (2, 8, 9, 10)
PLAIN = "3x3 stride=[1, 1] padding=[0, 0] dilation=[1, 1]"

FOUND = {
    "3x3": (conv_kernel(IMAGE, (4, 8, 3, 3), padding=1), "3x3 stride=[1, 1] padding=[1, 1] dilation=[1, 1]"),
    "strided": (
        conv_kernel(IMAGE, (4, 8, 3, 2), stride=(2, 3), padding=(1, 0), residual=True),
        "3x2 stride=[2, 3] padding=[1, 0] dilation=[1, 1]",
    ),
    "dilated": (
        conv_kernel(IMAGE, (4, 8, 3, 3), dilation=(1, 2)), "3x3 stride=[1, 1] padding=[0, 0] dilation=[1, 2]"
    ),
    "1x1": (conv_kernel(IMAGE, (4, 8, 1, 1)), "1x1 stride=[1, 1] padding=[0, 0] dilation=[1, 1]"),
    "one row of taps": (conv_kernel(IMAGE, (4, 8, 1, 3)), "1x3 stride=[1, 1] padding=[0, 0] dilation=[1, 1]"),
    "depthwise": (
        conv_kernel(IMAGE, (8, 1, 3, 3), groups=8), PLAIN + " depthwise"
    ),
    "one image": (
        conv_kernel((1, 8, 9, 10), (4, 8, 3, 3)), "3x3 stride=[1, 1] padding=[0, 0] dilation=[1, 1]"
    ),
    "one dimension": (conv_kernel((2, 8, 9), (4, 8, 3)), "3 stride=[1] padding=[0] dilation=[1]"),
}  # fmt: skip


def convolution(kernel):
    found = product_of(kernel)
    return found and found.convolution


@pytest.mark.parametrize("name", FOUND)
def test_convolutions_are_recognised(name):
    kernel, roles = FOUND[name]
    assert str(convolution(squeezed(kernel))) == roles


def test_axes_have_roles():
    roles = convolution(squeezed(FOUND["3x3"][0]))
    assert roles is not None
    assert (roles.input, roles.weight) == ("input", "weight")
    assert (roles.batch, roles.out, roles.places) == ("i", "i1", ("i2", "i3"))
    assert (roles.channel, roles.taps, roles.group) == ("r", ("r1", "r2"), None)


SAME = {"padding": 1, "stride": 1, "dilation": 1, "groups": 1}
OTHERS = {
    "groups of channels": conv_kernel(IMAGE, (4, 2, 3, 3), groups=4),
    "its input's gradient": kernel_of("conv_input_grad", [(2, 4, 9, 10), (4, 8, 3, 3)], size=(9, 10), **SAME),
    "its weight's gradient": kernel_of("conv_weight_grad", [(2, 4, 9, 10), IMAGE], size=(3, 3), **SAME),
    "a matrix product": kernel_of("matmul", [(8, 9), (9, 10)]),
    "a mean": kernel_of("avg_pool2d", [IMAGE], kernel_size=3),
    "a greatest": kernel_of("max_pool2d", [IMAGE], kernel_size=3),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_kernels_are_not(name):
    assert convolution(squeezed(verify(OTHERS[name]))) is None


def test_padding_with_another_number_is_not():
    text = (
        "kernel k(x: f32[2,4,8], w: f32[4,4,3]) -> (y: f32[2,4,8]) {\n  parallel n:2 k:4 i:8\n"
        "  t = sum(c:4 r:3) (x[n, c, i+r-1 else 0.0] * w[k, c, r])\n  y[n, k, i] = t\n}"
    )
    assert convolution(verify(parse(text))) is not None
    assert convolution(verify(parse(text.replace("else 0.0", "else 1.0")))) is None
    assert convolution(verify(parse(text.replace("i+r-1", "i-r+1")))) is None


STRIDED = kernel_of("conv_input_grad", [(2, 4, 5, 9), (4, 8, 3, 3)], size=(9, 9), **SAME | {"stride": (2, 1)})


@pytest.mark.parametrize("zero", ["0", "0.0", "f32(0.0)"])
def test_a_gradient_divides_where_a_condition_says_so(zero):
    """Of a strided convolution, in the rows; a zero is one whatever its type."""
    text = str(STRIDED)
    assert ", 0)" in text
    found = product_of(verify(parse(text.replace(", 0)", f", {zero})"))))
    assert found is not None and found.windowed is not None and not found.windowed.gradient
    divisors = [{d: by for d, (_, by) in factor.divided.items()} for factor in found.factors]
    assert divisors in ([{2: 2}, {}], [{}, {2: 2}])


def test_what_is_zero_for_other_reasons_divides_nowhere():
    found = product_of(verify(parse(str(STRIDED).replace(", 0)", ", 1.0)"))))
    assert found is not None and None in [factor.access for factor in found.factors]
    text = str(STRIDED).replace("== 0)", "== 1)")
    assert [factor.divided for factor in product_of(verify(parse(text))).factors].count(None) == 1


def test_a_product_by_columns_may_be_written_either_way():
    text = (
        "kernel k(x: f32[4,8], w: f32[8,6]) -> (y: f32[4,6]) {\n  parallel i:4 j:6\n"
        "  t = sum(k:8) (x[i, k] * w[k, j])\n  y[i, j] = t\n}"
    )
    turned = text.replace("(x[i, k] * w[k, j])", "(w[k, j] * x[i, k])")
    for form in (text, turned):
        found = product_of(parse(form)).by_columns
        assert (found.left.buffer, found.right.buffer) == ("x", "w")
        assert (found.row, found.column, found.outer, found.turned) == ("i", "j", (), form is turned)


WEIGHT_GRADIENT = """kernel k(g: f32[8,4,5,5], x: f32[8,6,5,5], m: f32[4,6,3,3]) -> (y: f32[4,6,3,3], z: f32[4,6,3,3]) {
  parallel o:4 c:6 a:3 b:3
  t = sum(n:8 i:5 j:5) (g[n, o, i, j] * x[n, c, i+a-1, j+b-1 else 0.0])
  y[o, c, a, b] = t
  z[o, c, a, b] = (t * m[o, c, a, b])
}"""  # noqa: E501


def test_a_weight_gradient_may_have_several_results():
    """They are read as one: it would be no gradient of a convolution else, and none of its step laid out."""
    found = product_of(verify(parse(WEIGHT_GRADIENT)))
    assert found is not None and found.windowed is not None and found.windowed.gradient
    apart = parse(WEIGHT_GRADIENT.replace("z[o, c, a, b]", "z[o, c, b, a]"))
    assert product_of(apart).windowed is None


def test_columns_are_no_taps():
    """Three taps fill no vector: the channels of the same factor are the columns."""
    found = product_of(parse(WEIGHT_GRADIENT.replace("m[o, c, a, b]", "1.0"))).by_columns
    assert (found.column, found.row, found.outer) == ("c", "o", ("a", "b"))
