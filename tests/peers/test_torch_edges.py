"""Edges that PyTorch's own test files look at: calls give what they give there, or raise the same kind."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="compares with PyTorch")

import lamina  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # both warn of uint8 masks


def none(T: Any, dtype: str = "int64", shape: tuple[int, ...] = (0,)) -> Any:
    return T.empty(shape, dtype=getattr(T, dtype))


def x(T: Any) -> Any:
    return T.arange(6.0).reshape(2, 3)


def c(T: Any) -> Any:
    return T.tensor([1 + 2j, 3 - 1j])


def u8(T: Any, *values: int) -> Any:
    return T.tensor(values, dtype=T.uint8)


def written(T: Any, index: Any, value: float) -> Any:
    y = x(T).clone()
    y[index] = T.full((1, 3), value)  # PyTorch takes no number here
    return y


def below(T: Any, write: Callable[[Any], Any]) -> Any:
    """The gradient of what is written through an expanded view."""
    leaf = T.ones(2, requires_grad=True)
    base = leaf * 1
    rows = base.expand(3, 2)
    write(rows)
    (base * 2 + rows.sum()).sum().backward()
    return leaf.grad


def with_gradient(T: Any) -> Any:
    y = x(T)
    y.grad = T.ones_like(y)
    return y


def singular(T: Any) -> Any:
    """A singular matrix and one that isn't."""
    return T.tensor([[[1.0, 2.0], [0.0, 0.0]], [[1.0, 2.0], [3.0, 4.0]]])


def copied(T: Any) -> list:
    base = x(T).clone()
    return deepcopy([base, base.view(3, 2)])


CASES: dict[str, Callable[[Any], Any]] = {
    "a tuple in a tuple": lambda T: x(T)[((1, 0, 1),)],
    "a tuple beside a slice": lambda T: x(T)[:, (2, 0)],
    "a uint8 mask": lambda T: x(T)[u8(T, 0, 1)],
    "a uint8 mask beside a slice": lambda T: x(T)[:, u8(T, 1, 0, 1)],
    "a 0-d uint8 mask": lambda T: T.tensor(1.0)[T.tensor(1, dtype=T.uint8)],
    "written by a uint8 mask": lambda T: written(T, u8(T, 0, 1), 7.0),
    "a uint8 mask of another shape": lambda T: x(T)[u8(T, 1, 0, 1)],
    "new of sizes": lambda T: x(T).double().new(0, 3),
    "new of numbers": lambda T: x(T).double().new([1, 2]),
    "new of a size by name": lambda T: x(T).double().new(size=(0, 3)),
    "a number before what is added": lambda T: x(T).add(2, x(T)),
    "a number before what is added in place": lambda T: x(T).add_(2, x(T)).sub_(0.5, x(T)),
    "a number before a product": lambda T: x(T).addcmul(2, x(T), x(T)),
    "a number before a quotient": lambda T: x(T).addcdiv_(-0.5, x(T), x(T) + 1),
    "numbers before products of matrices": lambda T: T.addmm(2, x(T) @ x(T).T, 3, x(T), x(T).T),
    "numbers before products of matrices, as a method": lambda T: (x(T) @ x(T).T).addmm_(2, 3, x(T), x(T).T),
    "one number before a product with a vector": lambda T: T.addmv(2, x(T)[:, 0], x(T), x(T)[0]),
    "numbers before products of batches": lambda T: T.baddbmm(2, x(T)[None], 3, x(T)[None], T.eye(3)[None]),
    "an outer product of ints, by a float": lambda T: T.addr(
        x(T).int(), *[x(T).int()[:, 0], x(T).int()[0]], beta=2.5
    ),
    "an outer product, by a bool": lambda T: T.addr(x(T), x(T)[:, 0], x(T)[0], alpha=True),
    "an outer product added to bools": lambda T: T.addr(x(T) > 2, x(T)[:, 0], x(T)[0]),
    "the condition of nothing": lambda T: T.linalg.cond(T.ones(2, 0, 0, dtype=T.complex64)),
    "… by another norm": lambda T: T.linalg.cond(T.ones(2, 0, 0, dtype=T.complex64), 1),
    "the condition of a singular matrix": lambda T: T.linalg.cond(T.zeros(2, 2), 1),
    "a norm of complex numbers as real ones": lambda T: T.linalg.vector_norm(c(T), dtype=T.float32),
    "numbers before an outer product": lambda T: T.addr(2, x(T), 3, x(T)[:, 0], x(T)[0]),
    "too many numbers before what is added": lambda T: x(T).add(2, 3, x(T)),
    "backwards": lambda T: reversed(x(T)),
    "backwards without dimensions": lambda T: reversed(T.tensor(3.0)),
    "a size behind a tuple": lambda T: T.ones((2,) + T.Size([3])),
    "pinned memory": lambda T: T.tensor(x(T).is_pinned()),
    "draws with replacement for no row": lambda T: T.multinomial(T.ones(0, 3), 2, replacement=True),
    "zeros and ones into bools": lambda T: T.bernoulli(T.ones(2), out=T.empty(2, dtype=T.bool)),
    "slopes beside NaN": lambda T: T.gradient(T.tensor([np.inf, 1.0, np.nan, -np.inf, 2.0, 3.0]))[0],
    "slopes at a distance": lambda T: T.gradient(x(T), spacing=0.5, dim=1, edge_order=2)[0],
    "points of Sobol": lambda T: T.quasirandom.SobolEngine(5).fast_forward(3).draw(6),
    "balanced points of Sobol": lambda T: T.quasirandom.SobolEngine(3).draw_base2(3, dtype=T.float64),
    "unbalanced points of Sobol": lambda T: T.quasirandom.SobolEngine(3).fast_forward(3).draw_base2(2),
    "points that a generator scrambles": lambda T: (
        T.quasirandom.SobolEngine(2, scramble=True).draw(64) < 0.5
    ).sum(0),
    "points of no dimension": lambda T: T.quasirandom.SobolEngine(0),
    "a storage of a dtype": lambda T: T.tensor(T.TypedStorage([1, 2], dtype=T.int16), dtype=T.int16),
    "a storage of bytes of a buffer": lambda T: T.tensor(T.ShortStorage.from_buffer(b"abcd", "big").tolist()),
    "a storage as another dtype": lambda T: T.tensor(T.IntStorage([-1, 2]).half().tolist()),
    "gradients clipped under an older name": lambda T: T.nn.utils.clip_grad_norm(
        [x(T).requires_grad_()], 1.0
    ),
    "flip of nothing": lambda T: x(T).flip(),
    "flip of no dims": lambda T: x(T).flip(dims=()),
    "an empty index of another rank gathers": lambda T: x(T).gather(0, none(T, shape=(0, 4, 2))),
    "an empty index of another rank scatters": lambda T: x(T).scatter(0, none(T), x(T)),
    "… a number": lambda T: x(T).scatter(1, none(T), 2.0),
    "… adds": lambda T: x(T).scatter_add(0, none(T), x(T)),
    "… reduces": lambda T: x(T).scatter_reduce(0, none(T), x(T), "amax"),
    "mT of a vector": lambda T: x(T)[0].mT,
    "mT of a number": lambda T: x(T)[0, 0].mT,
    "H of three dimensions": lambda T: x(T)[None].H,
    "adjoint of a vector": lambda T: x(T)[0].adjoint(),
    "adjoint of a number": lambda T: x(T)[0, 0].adjoint(),
    "ravel of a strided line": lambda T: T.tensor(x(T)[0, ::2].ravel().stride()),
    "memory behind a view": lambda T: T.tensor(x(T)[1, ::2].storage().tolist()),
    "its size": lambda T: T.tensor([x(T)[1].storage().nbytes(), len(x(T)[1].untyped_storage())]),
    "where a view's memory begins": lambda T: T.tensor(
        [view.untyped_storage().data_ptr() - base.data_ptr() for base in [x(T)] for view in [base[1], base.T]]
    ),
    "a part of its bytes, as numbers": lambda T: T.asarray(x(T).untyped_storage()[4:16], dtype=T.float32),
    "… of a part": lambda T: T.asarray(x(T).untyped_storage()[4:20][-8:], dtype=T.float32),
    "… copied": lambda T: T.tensor(x(T).untyped_storage()[8:16], dtype=T.float32),
    "… set": lambda T: none(T).set_(x(T).untyped_storage()[4:20], 1, (2,)),
    "… empty": lambda T: T.tensor([x(T).untyped_storage()[9:3].nbytes()]),
    "… with a step": lambda T: x(T).untyped_storage()[::2],
    "memory of halves": lambda T: T.tensor(T.HalfStorage([1, 2]).tolist()),
    "memory of bfloat16": lambda T: T.tensor(T.BFloat16Storage(3).element_size()),
    "memory of complex numbers": lambda T: T.tensor(
        [T.ComplexFloatStorage([1, 2j]).nbytes(), T.ComplexDoubleStorage(2).nbytes()]
    ),
    "memory by its dtype": lambda T: T.tensor(
        [isinstance(x(T).storage(), kind) for kind in (T.FloatStorage, T.HalfStorage, T.TypedStorage)]
        + [isinstance(u8(T, 1).untyped_storage(), T.ByteStorage)]
    ),
    "memory in Python's count": lambda T: T.tensor(
        x(T).storage().__sizeof__() - none(T, "float32").storage().__sizeof__()
    ),
    "memory of no values": lambda T: T.tensor(
        [T.empty(3, 4, device="meta")[1:].untyped_storage().nbytes(), len(T.UntypedStorage(4, device="meta"))]
    ),
    "new of memory": lambda T: x(T).new(x(T).storage()),
    "new of bytes": lambda T: x(T).new(x(T).untyped_storage()),
    "new of a tensor": lambda T: x(T).new(x(T)),
    "new of a tensor of another dtype": lambda T: x(T).new(x(T).double()),
    "a tensor of memory": lambda T: (lambda s: (T.FloatTensor(s)[0].fill_(5), T.tensor(s.tolist()))[1])(
        T.FloatStorage([1, 2])
    ),
    "a tensor of memory of another dtype": lambda T: T.LongTensor(T.FloatStorage([1, 2])),
    "strides of what out becomes": lambda T: T.tensor(T.exp(x(T).T, out=none(T, "float32")).stride()),
    "… of two": lambda T: T.tensor(T.eq(x(T).T, x(T).T[0], out=none(T, "bool")).stride()),
    "two without memory": lambda T: T.tensor(none(T).is_set_to(none(T))),
    "sizes, twice": lambda T: T.ones(T.Size([1, 2]) * 2 + 2 * T.Size([3])).sum((0, 1)),
    "type by the class of all": lambda T: x(T).double().type(T.Tensor),
    "type of complex numbers by name": lambda T: x(T).type("torch.ComplexDoubleTensor"),
    "copied views": lambda T: copied(T)[1].add_(1),
    "… and what they view": lambda T: (lambda a, b: (b.add_(1), a)[1])(*copied(T)),
    "a copied transpose's strides": lambda T: T.tensor(deepcopy(x(T).T).stride()),
    "logarithms beside 1, of complex numbers": lambda T: T.log1p(
        T.tensor([2.0**-70 + 2.0**-66 * 1j, -(2.0**-80) + 0j], dtype=T.complex128)
    ),
    "a Bessel function at infinity": lambda T: T.special.spherical_bessel_j0(
        T.tensor([T.inf, -T.inf, 0.0, T.nan])
    ),
    "sizes of complex numbers into complex numbers": lambda T: T.abs(c(T) * 0 + 3, out=c(T)),
    "a gradient copied beside its tensor": lambda T: (lambda a, g: T.tensor(a.grad is g))(
        *deepcopy([y := with_gradient(T), y.grad])
    ),
    "losses of no class": lambda T: T.nn.functional.nll_loss(T.ones(()), T.ones(())),
    "slopes at float64's distances": lambda T: T.gradient(
        T.tensor([-1.0, 0.0, 2.0**24]), spacing=[T.arange(3.0, dtype=T.float64)]
    )[0][1],
    "frequencies into a tensor": lambda T: T.fft.fftfreq(3, out=T.empty(3, dtype=T.float64)),
    "real frequencies into nothing": lambda T: T.fft.rfftfreq(4, out=none(T, "float32")),
    "expanded and filled by a mask": lambda T: T.zeros(2, 1).expand(2, 3).masked_fill_(x(T) == 2, 5.0),
    "expanded and filled by places": lambda T: T.zeros(1).expand(3).index_fill_(0, T.tensor([1]), 5.0),
    "expanded and put": lambda T: T.zeros(1).expand(3).index_put_((T.tensor([0, 1]),), T.tensor([3.0, 4.0])),
    "expanded and written by a mask": lambda T: (
        (y := T.zeros(2, 1).expand(2, 3)).__setitem__(x(T) > 3, 1) or y
    ),
    "type by a constructor": lambda T: x(T).type(T.DoubleTensor),
    "an array whose strides are no elements'": lambda T: T.from_numpy(
        np.lib.stride_tricks.as_strided(np.zeros(9), (3,), (3,))
    ),
    "nonzero into floats": lambda T: T.nonzero(x(T), out=none(T, "float32")),
    "nonzero into int64": lambda T: T.nonzero(x(T), out=none(T)),
    "max with floats for places": lambda T: T.max(x(T), 1, out=(none(T, "float32"), none(T, "float32"))),
    "max of two into doubles": lambda T: T.max(x(T), x(T), out=none(T, "float64")),
    "argmax into int32": lambda T: T.argmax(x(T), 1, out=none(T, "int32")),
    "gather into doubles": lambda T: T.gather(x(T), 0, T.zeros_like(x(T)).long(), out=none(T, "float64")),
    "matmul into doubles": lambda T: T.matmul(x(T), x(T).T, out=none(T, "float64")),
    "unique rows with NaN": lambda T: T.unique(T.tensor([[1.0, T.nan], [1.0, T.nan]]), dim=0),
    "randn of a size by name": lambda T: T.randn(size=(2, 3)) * 0,
    "a bool is no dim": lambda T: x(T).topk(1, True),
    "sum into doubles": lambda T: T.sum(x(T), 1, out=none(T, "float64")),
    "cat into doubles": lambda T: T.cat((x(T), x(T)), out=none(T, "float64")),
    "tensors of one element in a list": lambda T: T.tensor([T.tensor([1]), T.tensor([[2]]), T.tensor(3)]),
    "… beside numbers": lambda T: T.tensor([[1.0, T.tensor([2])], [T.tensor([[3.0]]), 4]]),
    "… of more": lambda T: T.tensor([x(T)[0], x(T)[0]]),
    "… of none": lambda T: T.tensor([none(T)]),
    "rows of an array": lambda T: T.tensor(list(np.ones((2, 1), np.float32))),
    "cat of nothing but empty lines": lambda T: T.cat([none(T), none(T)], dim=3),
    "diagonal blocks of nothing": lambda T: T.block_diag(),
    "hsplit into uneven parts": lambda T: T.hsplit(x(T), 2)[0],
    "arange to NaN": lambda T: T.arange(T.nan),
    "arange from infinity": lambda T: T.arange(-T.inf, 2),
    "expanded and filled": lambda T: T.ones(2).expand(3, 2).fill_(4),
    "windows set to 0": lambda T: x(T)[0].clone().unfold(0, 2, 1).zero_(),
    "expanded and added to": lambda T: T.ones(2).expand(3, 2).add_(1),
    "the gradient below expanded rows": lambda T: below(T, lambda rows: rows[0].mul_(2)),
    "… below one element of them": lambda T: below(T, lambda rows: rows[1, :1].zero_()),
    "all over no dimension": lambda T: T.all(x(T), dim=()),
    "any over no dimension, kept": lambda T: T.any(u8(T, 0, 2), [], keepdim=True),
    "all into floats": lambda T: T.all(x(T), 0, out=none(T, "float32")),
    "all into uint8": lambda T: T.all(x(T), 0, out=none(T, "uint8")),
    "add by NumPy's names": lambda T: T.add(x1=x(T), x2=x(T)),
    "the sum of real parts": lambda T: T.sum(c(T), 0, dtype=T.float64),
    "the product of real parts": lambda T: T.prod(c(T), dtype=T.int64),
    "the mean of real parts": lambda T: T.mean(c(T), dtype=T.float32),
    "the running sum of real parts": lambda T: T.cumsum(c(T), 0, dtype=T.float32),
    "cumsum in another dtype than out": lambda T: T.cumsum(x(T), 0, dtype=T.float64, out=none(T, "float32")),
    "zeros in another dtype than out": lambda T: T.zeros(2, dtype=T.float64, out=none(T, "float32")),
    "an upper triangle with a zero": lambda T: T.linalg.solve_triangular(
        singular(T).triu(), x(T).mT[:2], upper=True
    ),
    "a lower triangle of zeros": lambda T: T.linalg.solve_triangular(
        T.zeros(2, 2), T.ones(2, 1), upper=False
    ),
    "a singular triangle from the right": lambda T: T.linalg.solve_triangular(
        singular(T).tril(), x(T)[:, :2], upper=False, left=False
    ),
    "factors of singular matrices": lambda T: T.linalg.lu_solve(
        *T.linalg.lu_factor_ex(singular(T))[:2], T.ones(2, 1)
    ),
    "the inverse by a singular factor": lambda T: T.cholesky_inverse(singular(T)[0].mT),
    "tril into doubles": lambda T: T.tril(x(T), out=none(T, "float64")),
}


# What stands in the errors of both.
PHRASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "a dim twice": (lambda T: x(T).mean((0, 0)), "dim 0 appears multiple times in the list of dims"),
    "an empty dim": (lambda T: none(T, shape=(0, 2)).argmax(0), "Expected reduction dim 0 to have"),
    "nothing": (
        lambda T: none(T, "float32", (0, 2)).amax(), r"Expected reduction dim to be specified for input.numel"
    ),
    "no quantile": (lambda T: none(T, "float32").quantile(0.5), r"quantile\(\) input tensor must be"),
    "histc the wrong way": (lambda T: T.histc(x(T).long(), 4, 3, 1), "max must be larger than min"),
    "bincount of a matrix": (lambda T: x(T).long().bincount(), "supports 1-d non-negative integral"),
    "bincount below 0": (lambda T: T.tensor([-1]).bincount(), "supports 1-d non-negative integral"),
    "bincount of floats": (lambda T: x(T)[0].bincount(), "not implemented for 'Float'"),
    "amin of complex": (lambda T: c(T).amin(), "not implemented for 'ComplexFloat'"),
    "all into floats": (
        lambda T: T.all(x(T), out=none(T, "float64")), "all only supports bool tensor for result, got: Double"
    ),
    "no mask to select by": (lambda T: x(T).masked_select(u8(T, 1, 0, 1)), "expected BoolTensor for mask"),
    "no mask to fill by": (lambda T: x(T).masked_fill(u8(T, 1, 0, 1), 0.0), "only supports boolean masks"),
    "a text in a tensor": (lambda T: "a" in x(T), "only supports Tensor or scalar"),
    "hsplit": (lambda T: T.hsplit(x(T), 2), "torch.hsplit attempted to split along dimension 1"),
    "arange": (lambda T: T.arange(T.nan), "unsupported range"),
    "a list of tensors": (lambda T: T.tensor([x(T)]), "only one element tensors can be converted to Python"),
}  # fmt: skip


@pytest.mark.parametrize("name", PHRASES)
def test_phrases(name: str) -> None:
    call, phrase = PHRASES[name]
    for library in (torch, lamina):
        with pytest.raises((RuntimeError, TypeError, IndexError, ValueError), match=phrase):
            call(library)


def outcome(call: Callable[[Any], Any], T: Any) -> Any:
    try:
        return call(T)
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        return error


@pytest.mark.parametrize("name", CASES)
def test_edges(name: str) -> None:
    theirs, ours = outcome(CASES[name], torch), outcome(CASES[name], lamina)
    if isinstance(theirs, Exception):
        kinds = (RuntimeError, TypeError, IndexError, ValueError)
        assert isinstance(ours, next(k for k in kinds if isinstance(theirs, k))), (theirs, ours)
        return
    assert not isinstance(ours, Exception), ours
    assert str(ours.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
    assert ours.shape == tuple(theirs.shape)
    np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


@pytest.mark.parametrize(
    "empty, full", [("float64", "float32"), ("float32", "int64"), ("float32", "float32")]
)
def test_what_is_left_out_of_cat_has_its_element_type(empty, full):
    def joined(library):
        return library.cat(
            [library.ones(0, dtype=getattr(library, empty)), library.ones(2, 2, dtype=getattr(library, full))]
        )

    assert str(joined(lamina).dtype).split(".")[-1] == str(joined(torch).dtype).split(".")[-1]
    assert joined(lamina).tolist() == joined(torch).tolist()
