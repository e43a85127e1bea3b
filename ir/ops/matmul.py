"""Products of matrices: matmul in all its batched forms, linear, and what is written with them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .. import lowering
from ..dims import same
from ..errors import DTypeError, ShapeError
from ..op import composite, define, older
from ..sample import sample
from ..shapes import broadcast_shapes, common_device, is_one
from ..types import Shape, Type, type_of
from .arithmetic import check_alpha
from .cast import dtype_of
from .compare import logical_and, logical_or
from .complex import conj
from .kept_arrays import MOST, column_numbers
from .reduce import sum
from .view import permute, reshape
from .windows import diagonal

# Rules are written with operators and `.mT`, which every kind of operand has, because on arrays both go to
# NumPy at once: of a 4x4 matmul's gradient the product is the smaller part.


def matrix_dtype(call: str, **types: Type | None) -> Any:
    """The one dtype of all the operands.  Raises DTypeError where they differ, or for bools."""
    given = {name: t for name, t in types.items() if t is not None}
    first, *rest = given
    dtype = given[first].dtype
    for name in rest:
        other = given[name].dtype
        if other is not dtype:
            # A weight stays what it is, and floats don't become integers.
            keeps = dtype.inexact and not other.inexact
            raise DTypeError(
                f"{call}: the dtypes of {first} and {name} must be equal ({dtype.name} and {other.name})",
                f"cast one: {name}.to({dtype!r})" if keeps else f"cast one: {first}.to({other!r})",
            )
    if dtype.category == "bool":
        raise DTypeError(f"{call}: bools have no product", f"count with {first}.int() or {first}.float()")
    return dtype


# ---- matmul


def bind_matmul(input, other):
    """Multiply matrices, or batches of them.

    Shapes: [..., m, k] @ [..., k, n] -> [..., m, n], leading dimensions broadcast.  A 1-D `input` is a row,
    a 1-D `other` a column, and the dimension added is taken away again: [k] @ [k] -> [].  Integers wrap.
    Raises ShapeError, DTypeError where the dtypes differ.
    """
    return (input, other), {}


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """The shape of a @ b, whose inner sizes agree.  Raises ShapeError where the batches don't broadcast."""
    batch = broadcast_shapes("matmul(a, b), before the last two dimensions", a[:-2], b[:-2])
    return (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def remedies(a: Type, b: Type) -> list[str]:
    """The transposition that makes a @ b possible, as a sentence; nothing where none does."""
    if min(a.ndim, b.ndim) < 2:
        return []
    turn = {t: (*t.shape[:-2], t.shape[-1], t.shape[-2]) for t in (a, b)}
    for name, t, x, y in (("b", b, a.shape, turn[b]), ("a", a, turn[a], b.shape)):
        turned = f"{name}.T" if t.ndim == 2 else f"{name}.mT"
        try:
            if same(x[-1], y[-2]):
                call = f"matmul(a, {turned})" if t is b else f"matmul({turned}, b)"
                return [f"{call} would give {type_of(a.dtype, matmul_shape(x, y))}"]
        except ShapeError:  # the batches don't broadcast either
            break
    return []


def infer_matmul(a: Type, b: Type) -> Type:
    dtype = matrix_dtype("matmul(a, b)", a=a, b=b)
    for name, t in (("a", a), ("b", b)):
        if not t.ndim:
            raise ShapeError(
                f"matmul(a, b): {name} is 0-d, and a product of matrices needs 1 dimension or more",
                "a * b scales by a number",
            )
    rows = b.shape[-2] if b.ndim > 1 else b.shape[0]
    if not same(a.shape[-1], rows):
        inner = "the columns of a" if a.ndim > 1 else "the elements of a"
        outer = "the rows of b" if b.ndim > 1 else "the elements of b"
        raise ShapeError(
            f"matmul(a, b): {inner} must equal {outer} ({a.shape[-1]} != {rows})", *remedies(a, b)
        )
    return type_of(dtype, matmul_shape(a.shape, b.shape), common_device("matmul", a, b))


def product_of(a, b):
    """`a.dot(b)`, whose sums start from 0.0: of one product alone NumPy makes no sum, and leaves -0.0."""
    out = a.dot(b)
    return out + 0 if out.size == 1 and a.shape[-1] == 1 else out


def matmul_reference(a, b):
    if b.ndim > 2 or a.ndim > 2 and not a.flags.c_contiguous:
        return np.matmul(a, b)  # by BLAS, transposed or not; `dot` takes forty times as long for such
    if a.ndim > 2:  # many rows against one matrix: one BLAS call in place of one for each batch
        return product_of(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b).reshape(a.shape[:-1] + b.shape[1:])
    return product_of(a, b)  # half the overhead of the matmul ufunc


def quick_matmul(types, attrs):
    a, b = types
    plain = a.ndim == b.ndim == 2 and a.dtype is b.dtype and a.dtype.numpy.kind == "f"
    return np.dot if plain and a.size * b.size > 1 else None


def quick_grad_matmul(types, attrs):
    if types[0].ndim != 2 or types[1].ndim != 2:
        return None
    return (lambda g, saved: g.dot(saved[1].T), lambda g, saved: saved[0].T.dot(g))


def grad_matmul_a(g, b, a_type, b_type):
    if b_type.ndim == 1:
        return g * b if a_type.ndim == 1 else g[..., None] * b
    if a_type.ndim > 1:
        return g @ b.mT
    return b @ g if b_type.ndim == 2 else (b @ g[..., None])[..., 0]


def grad_matmul_b(g, a, a_type, b_type):
    if a_type.ndim == 1:
        return g * a if b_type.ndim == 1 else a[:, None] * g[..., None, :]
    if b_type.ndim == 1:
        return rows_of(a, a_type.shape).mT @ flat(g, a_type.shape[:-1])
    if b_type.ndim == 2 and a_type.ndim > 2:
        # one product of tall matrices, in place of a batch of products and their sum
        return rows_of(a, a_type.shape).mT @ rows_of(g, (*a_type.shape[:-1], b_type.shape[-1]))
    return a.mT @ g


def rows_of(x: Any, shape: Shape) -> Any:
    """`x`, of `shape` [..., k], as a matrix [rows, k]."""
    return x if len(shape) == 2 else reshape(x, (prod(shape[:-1]), shape[-1]))


def flat(x: Any, shape: Shape) -> Any:
    """`x`, of `shape`, in one dimension."""
    return x if len(shape) == 1 else reshape(x, (prod(shape),))


def build_matmul(k, a, b):
    axes = k.parallel(*matmul_shape(a.shape, b.shape))
    (c,) = k.axes(a.shape[-1])
    column = axes[-1:] if b.ndim > 1 else ()
    row = axes[: len(axes) - len(column)]  # and the batch before it
    batch = row[:-1] if a.ndim > 1 else row
    k.store(k.sum(a.broadcast(*row, c) * b.broadcast(*batch, c, *column), over=(c,)), at=axes)


matmul = define(
    "matmul",
    complex="analytic",
    operands=("a", "b"),
    attrs=(),
    bind=bind_matmul,
    infer=infer_matmul,
    reference=matmul_reference,
    grad=(grad_matmul_a, grad_matmul_b),
    quick=quick_matmul,
    quick_grad=quick_grad_matmul,
    lower=lowering.kernel(build_matmul),
    dtypes="number",
    samples=lambda: [
        sample((0,), (0,)),
        sample((1,), (1,)),
        sample((17,), (17,)),
        sample((33,), (33, 2)),
        sample((3, 4), (4,)),
        sample((3, 4), (4, 5)),
        sample((0, 4), (4, 5)),
        sample((3, 0), (0, 2)),
        sample((2, 3, 4), (4, 2)),
        sample((2, 3, 4), (4,)),
        sample((4,), (2, 4, 3)),
        sample((3, 4), (2, 4, 2)),
        sample((2, 3, 4), (2, 4, 2)),
        sample((3, 1, 2, 4), (2, 4, 2)),
    ],
    inapplicable={"0-d": "a product of matrices needs a dimension"},
)


# ---- linear


def bind_linear(input, weight, bias=None):
    """Apply an affine map: input @ weight.T + bias.

    Shapes: [..., k], [n, k], [n] -> [..., n].  A 1-D weight [k] gives [...].  Raises ShapeError, DTypeError.
    """
    return (input, weight, bias), {}


def infer_linear(input: Type, weight: Type, bias: Type | None) -> Type:
    dtype = matrix_dtype("linear(input, weight, bias)", input=input, weight=weight, bias=bias)
    if not input.ndim or weight.ndim not in (1, 2):
        raise ShapeError(
            "linear(input, weight): input needs 1 dimension or more, and weight is [n, k] or [k] "
            f"(they have {input.ndim} and {weight.ndim} dimensions)"
        )
    if not same(input.shape[-1], weight.shape[-1]):
        turned = weight.ndim == 2 and same(input.shape[-1], weight.shape[0])
        remedy = [f"a Linear for this input has in_features={input.shape[-1]}"]
        if turned:
            remedy = ["linear(input, weight.T) fits: weight is stored as [out_features, in_features]"]
        raise ShapeError(
            "linear(input, weight): the columns of input must equal the columns of weight "
            f"({input.shape[-1]} != {weight.shape[-1]})",
            *remedy,
        )
    shape = (*input.shape[:-1], *weight.shape[:-1])
    if bias is not None and bias.shape != weight.shape[:-1] and bias.shape != (1,) and bias.shape != ():
        raise ShapeError(
            f"linear(input, weight, bias): bias is {list(bias.shape)}, and weight asks for "
            f"{list(weight.shape[:-1])}"
        )
    return type_of(dtype, shape, common_device("linear", input, weight, bias))


def linear_reference(input, weight, bias):
    out = matmul_reference(input, weight.T)
    if bias is not None:
        out += bias
    return out


def vjp_linear(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
    (g,), (input, weight) = cotangents, saved
    to_input = to_weight = None
    if needs[0]:
        to_input = g @ weight if weight.ndim == 2 else g[..., None] * weight
    if needs[1]:
        if weight.ndim == 1:
            to_weight = flat(g, g.shape) @ rows_of(input, input.shape) if input.ndim > 1 else g * input
        elif input.ndim == 1:
            to_weight = g[:, None] * input
        else:
            to_weight = rows_of(g, g.shape).mT @ rows_of(input, input.shape)
    return to_input, to_weight, g if needs[2] else None


def build_linear(k, input, weight, bias):
    axes = k.parallel(*input.shape[:-1], *weight.shape[:-1])
    (c,) = k.axes(input.shape[-1])
    rows, column = axes[: input.ndim - 1], axes[input.ndim - 1 :]
    value = k.sum(input[*rows, c] * weight[*column, c], over=(c,))
    if bias is not None:
        value = value + bias.broadcast(*column)
    k.store(value, at=axes)


def _quick_linear(types, attrs):
    input, weight, bias = types
    if input.ndim != 2 or weight.ndim != 2 or (bias is not None and bias.ndim != 1) or not input.small:
        return None
    if input.size * weight.size == 1:
        return None
    if bias is None:
        return lambda input, weight, bias: input.dot(weight.T)

    rows, columns = input.shape[0], weight.shape[0]
    if rows * columns > MOST or not columns or bias.shape != (columns,):

        def quick(input, weight, bias):
            out = input.dot(weight.T)
            out += bias
            return out

        return quick
    column = column_numbers(rows, columns)

    def quick_small(input, weight, bias):
        out = input.dot(weight.T)
        return np.add(out, bias.take(column), out)  # a gathered row costs two thirds of a broadcast one

    return quick_small


def _quick_grad_linear(types, attrs):
    input, weight, bias, out = types
    if input.ndim != 2 or weight.ndim != 2 or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    # A product with ones costs a third of a sum along an axis.
    ones = np.ones(input.shape[0], input.dtype.numpy)
    return lambda g, saved: g.dot(saved[1]), lambda g, saved: g.T.dot(saved[0]), lambda g, saved: ones.dot(g)


linear = define(
    "linear",
    complex="analytic",
    bind=bind_linear,
    infer=infer_linear,
    reference=linear_reference,
    optional=("bias",),
    vjp=vjp_linear,
    saves=("input", "weight"),
    quick=_quick_linear,
    quick_grad=_quick_grad_linear,
    lower=lowering.kernel(build_linear),
    dtypes="number",
    method=False,
    samples=lambda: [
        sample((0,), (3, 0), (3,)),
        sample((1,), (2, 1)),
        sample((17,), (3, 17), (3,)),
        sample((33,), (33,)),
        sample((3, 4), (5, 4)),
        sample((3, 4), (5, 4), (5,)),
        sample((3, 4), (4,), ()),
        sample((0, 4), (5, 4), (5,)),
        sample((2, 3, 4), (5, 4), (5,)),
        sample((2, 1, 3, 4), (2, 4)),
    ],
    inapplicable={"0-d": "a row needs a dimension", "broadcast": "bias alone is broadcast"},
)


# ---- written with them


def need_dims(call: str, **dims: tuple[Any, int]) -> None:
    """Check the number of dimensions of each operand.  Raises ShapeError."""
    for name, (x, ndim) in dims.items():
        if x.ndim != ndim:
            raise ShapeError(f"{call}: {name} must have {ndim} dimension{'s' * (ndim > 1)}, not {x.ndim}")


@composite()
def mm(input, mat2):
    """Multiply two matrices.  Shapes: [m, k], [k, n] -> [m, n].  Raises ShapeError."""
    need_dims("mm(input, mat2)", input=(input, 2), mat2=(mat2, 2))
    return matmul(input, mat2)


@composite()
def bmm(input, mat2):
    """Multiply two batches of matrices.  Shapes: [b, m, k], [b, k, n] -> [b, m, n].  Raises ShapeError."""
    need_dims("bmm(input, mat2)", input=(input, 3), mat2=(mat2, 3))
    if not same(input.shape[0], mat2.shape[0]):
        raise ShapeError(
            f"bmm(input, mat2): the batches must be equal ({input.shape[0]} != {mat2.shape[0]})",
            "matmul broadcasts them",
        )
    return matmul(input, mat2)


@composite()
def mv(input, vec):
    """Multiply a matrix by a vector.  Shapes: [m, k], [k] -> [m].  Raises ShapeError."""
    need_dims("mv(input, vec)", input=(input, 2), vec=(vec, 1))
    return matmul(input, vec)


@composite()
def dot(input, tensor):
    """Add up the products of two vectors' elements.  Shapes: [k], [k] -> [].  Raises ShapeError."""
    need_dims("dot(input, tensor)", input=(input, 1), tensor=(tensor, 1))
    return matmul(input, tensor)


@composite()
def vdot(input, other):
    """Add up the products of two vectors' elements, the first ones conjugated.  Shapes: [k], [k] -> []."""
    need_dims("vdot(input, other)", input=(input, 1), other=(other, 1))
    return matmul(conj(input), other)


@composite()
def inner(input, other):
    """Add up products over the last dimensions; a 0-d operand scales.  Shapes: [m, k], [n, k] -> [m, n]."""
    if not input.ndim or not other.ndim:
        return input * other
    return tensordot(input, other, dims=([-1], [-1]))


@composite(aliases=("ger",))
def outer(input, vec2):
    """Multiply each element of one vector by each of another.  Shapes: [m], [n] -> [m, n]."""
    need_dims("outer(input, vec2)", input=(input, 1), vec2=(vec2, 1))
    return input[:, None] * vec2


def scaled_sum(input: Any, beta: float, product: Any, alpha: float) -> Any:
    """beta * input + alpha * product.  `beta` 0 leaves `input` out, so that its NaNs don't count."""
    category = dtype_of(input).category
    if category == "bool" and dtype_of(product).category == "bool":
        scaled = logical_and(product, bool(alpha))
        return logical_or(logical_and(input, bool(beta)), scaled) if beta else scaled
    if (
        category == "int" and dtype_of(product).category == "int"
    ):  # as PyTorch: numbers in the operands' dtype
        beta, alpha = int(beta), int(alpha)
    scaled = product if alpha == 1 else product * alpha
    if beta == 0:
        return scaled
    return (input if beta == 1 else input * beta) + scaled


@composite(inplace=True)
@older("beta", "alpha")
def addmm(input, mat1, mat2, *, beta=1, alpha=1):
    """Add a product: beta * input + alpha * mat1 @ mat2.  Shapes: [m, n], [m, k], [k, n] -> [m, n]."""
    return scaled_sum(input, beta, mm(mat1, mat2), alpha)


@composite(inplace=True)
@older("beta", "alpha")
def addmv(input, mat, vec, *, beta=1, alpha=1):
    """Add a product with a vector: beta * input + alpha * mat @ vec.  Shapes: [m], [m, k], [k] -> [m]."""
    return scaled_sum(input, beta, mv(mat, vec), alpha)


@composite(inplace=True)
@older("beta", "alpha")
def addr(input, vec1, vec2, *, beta=1, alpha=1):
    """Add an outer product: beta * input + alpha * outer(vec1, vec2).  Shapes: [m, n], [m], [n] -> [m, n]."""
    product = outer(vec1, vec2)
    for name, by in (("beta", beta), ("alpha", alpha)):
        is_bool, is_float, is_complex = (isinstance(by, kind) for kind in (bool, float, complex))
        check_alpha("addr", input, product, is_bool, is_float, is_complex, name)
    return scaled_sum(input, beta, product, alpha)


@composite(inplace=True)
@older("beta", "alpha")
def baddbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """Add products: beta * input + alpha * batch1 @ batch2.  Shapes: [b, m, n], [b, m, k], [b, k, n]."""
    return scaled_sum(input, beta, bmm(batch1, batch2), alpha)


@composite(inplace=True)
@older("beta", "alpha")
def addbmm(input, batch1, batch2, *, beta=1, alpha=1):
    """Add a sum of products: beta * input + alpha * (batch1 @ batch2).sum(0).  Shapes: [m, n], 3-D, 3-D."""
    return scaled_sum(input, beta, sum(bmm(batch1, batch2), dim=0), alpha)


@composite(method=False)
def chain_matmul(*matrices):
    """Multiply several matrices in the order that needs the fewest products of numbers.

    Shapes: [a, b], [b, c], ... -> [a, z]; the first and the last may be vectors.  Raises ShapeError.
    Source: Cormen et al., Introduction to Algorithms, matrix-chain multiplication.
    """
    if len(matrices) == 1 and isinstance(matrices[0], (tuple, list)):
        matrices = tuple(matrices[0])
    if not matrices:
        raise ShapeError("chain_matmul(*matrices): there is nothing to multiply")
    if len(matrices) < 3:
        return matmul(*matrices) if len(matrices) == 2 else matrices[0]
    first, last = matrices[0], matrices[-1]
    sizes = [first.shape[0] if first.ndim > 1 else 1, *(m.shape[0] for m in matrices[1:])]
    sizes.append(last.shape[1] if last.ndim > 1 else 1)
    count = len(matrices)
    cost: dict[tuple[int, int], tuple] = {(i, i): (0, i) for i in range(count)}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            last = sizes[i] * sizes[j + 1]
            cost[i, j] = min(
                (cost[i, s][0] + cost[s + 1, j][0] + last * sizes[s + 1], s) for s in range(i, j)
            )

    def product(i: int, j: int) -> Any:
        return matrices[i] if i == j else matmul(product(i, cost[i, j][1]), product(cost[i, j][1] + 1, j))

    return product(0, count - 1)


@composite(method=False)
def bilinear(input1, input2, weight, bias=None):
    """Apply a form that is linear in each of two inputs: out[o] = input1 @ weight[o] @ input2 + bias[o].

    Shapes: [..., i], [..., j], [o, i, j], [o] -> [..., o].  Raises ShapeError.
    """
    out, i, j = weight.shape
    batch = tuple(input1.shape[:-1])
    if tuple(input2.shape[:-1]) != batch:
        raise ShapeError(
            "bilinear(input1, input2, weight): all dimensions of the inputs but the last must be equal "
            f"({list(batch)} and {list(input2.shape[:-1])})"
        )
    by_row = matmul(reshape(input1, (prod(batch), i)), reshape(permute(weight, (1, 0, 2)), (i, out * j)))
    result = matmul(reshape(by_row, (prod(batch), out, j)), reshape(input2, (prod(batch), j, 1)))
    result = reshape(result, (*batch, out))
    return result if bias is None else result + bias


@composite(method=False)
def tensordot(a, b, dims=2):
    """Add up products over several dimensions of each operand.

    dims: how many of a's last dimensions meet b's first ones, or two lists of dimensions that meet in order.
    Shapes: the dimensions left of a, then those left of b.  Raises ShapeError.
    """
    if isinstance(dims, int):
        if not 0 <= dims <= min(a.ndim, b.ndim):
            raise ShapeError(f"tensordot: {dims} dims of operands that have {a.ndim} and {b.ndim}")
        over_a, over_b = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    else:
        over_a, over_b = ([d % x.ndim for d in ds] for x, ds in zip((a, b), map(as_list, dims), strict=True))
    for d, e in zip(over_a, over_b, strict=True):
        if is_one(a.shape[d]) or is_one(b.shape[e]):  # what broadcasts is added up first
            a = sum(a, dim=d, keepdim=True, dtype=dtype_of(a)) if is_one(b.shape[e]) else a
            b = sum(b, dim=e, keepdim=True, dtype=dtype_of(b)) if is_one(a.shape[d]) else b
        if not same(a.shape[d], b.shape[e]):
            raise ShapeError(
                f"tensordot(a, b): dimension {d} of a must equal {e} of b ({a.shape[d]} != {b.shape[e]})"
            )
    left = [d for d in range(a.ndim) if d not in over_a]
    right = [d for d in range(b.ndim) if d not in over_b]
    rows, columns = tuple(a.shape[d] for d in left), tuple(b.shape[d] for d in right)
    met = prod(a.shape[d] for d in over_a)
    x = reshape(permute(a, (*left, *over_a)), (prod(rows), met))
    y = reshape(permute(b, (*over_b, *right)), (met, prod(columns)))
    return reshape(matmul(x, y), rows + columns)


def as_list(dims: Any) -> list[int]:
    return [dims] if isinstance(dims, int) else list(dims)


@composite()
def kron(input, other):
    """Multiply `other` by each element of `input`, blockwise (the Kronecker product).

    Shapes: [m, n], [p, q] -> [m * p, n * q], and likewise in any number of dimensions.
    """
    ndim = max(input.ndim, other.ndim)
    first = (1,) * (ndim - input.ndim) + tuple(input.shape)
    second = (1,) * (ndim - other.ndim) + tuple(other.shape)
    spread = reshape(input, tuple(n for size in first for n in (size, 1)))
    blocks = spread * reshape(other, tuple(n for size in second for n in (1, size)))
    return reshape(blocks, tuple(m * n for m, n in zip(first, second, strict=True)))


@composite()
def trace(input):
    """Add up the diagonal of a matrix.  Shapes: [m, n] -> [].  Raises ShapeError."""
    need_dims("trace(input)", input=(input, 2))
    return sum(diagonal(input))
