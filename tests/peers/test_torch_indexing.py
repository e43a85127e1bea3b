"""Indexing, views, shapes and dtypes at their edges: what PyTorch refuses, in which words, and warns of."""

import re
import warnings

import numpy as np
import pytest

import lamina

torch = pytest.importorskip("torch", reason="PyTorch is compared with")


def _floats(t):
    return t.tensor([1.0, 2.0, 3.0])


def _ints(t):
    return t.tensor([1, 2, 3])


def _grid(t):
    return t.arange(12.0).reshape(3, 4)


def _mask(t):
    return t.tensor([True, False, True])


def _assign(x, index, value):
    x[index] = value


def _delete(x):
    del x[0]


# Both refuse: PyTorch's class of error, and what of its words stands in Lamina's message too.
REFUSED = {
    "0-d": (lambda t: t.tensor(1)[0], "invalid index"),
    "float index": (lambda t: _floats(t)[t.tensor([])], "must be"),
    "float, then slice": (lambda t: _grid(t)[0.0, 0:2], "ind"),
    "indices that don't broadcast": (lambda t: _grid(t)[[0, 1], [0, 1, 2]], "shape mismatch"),
    "size 0": (lambda t: t.zeros(3, 0)[:, [0]], "for dimension with size 0"),
    "value of another shape": (
        lambda t: _assign(_floats(t), _mask(t), t.zeros(3)),
        "shape mismatch",
    ),
    "value of another dtype": (
        lambda t: _assign(_grid(t), ([0],), t.ones(4, dtype=t.int64)),
        "Index put requires the source and destination dtypes match",
    ),
    "index_put of another dtype": (
        lambda t: _floats(t).index_put_((t.tensor([0]),), t.tensor([1])),
        "Index put requires the source and destination dtypes match",
    ),
    "scatter of another dtype": (
        lambda t: _floats(t).scatter(0, t.tensor([0]), t.tensor([1])),
        "Expected self.dtype to be equal to src.dtype",
    ),
    "index_add of another dtype": (
        lambda t: _floats(t).index_add(0, t.tensor([0]), t.tensor([1])),
        "must have the same scalar type",
    ),
    "masked_scatter of another dtype": (
        lambda t: _floats(t).masked_scatter(_mask(t), _ints(t)),
        "expected self and source to have same dtypes",
    ),
    "deletion": (lambda t: _delete(_floats(t)), "delet"),
    "take_along_dim of other dims": (
        lambda t: t.take_along_dim(_grid(t), t.tensor([0]), 0),
        "input and indices should have the same number of dimensions",
    ),
    "take_along_dim by floats": (
        lambda t: t.take_along_dim(_floats(t), _floats(t), 0),
        "dtype of indices should be Long",
    ),
    "unravel_index of floats": (
        lambda t: t.unravel_index(_floats(t), (2, 2)),
        "expected 'indices' to be integer",
    ),
    "unravel_index to a tensor": (
        lambda t: t.unravel_index(_ints(t), _ints(t)),
        "expected 'shape' to be int or sequence",
    ),
    "unravel_index to floats": (
        lambda t: t.unravel_index(_ints(t), (2, 2.0)),
        "expected 'shape' sequence to only contain ints",
    ),
    "unravel_index to less than nothing": (
        lambda t: t.unravel_index(_ints(t), (2, -3)),
        r"'shape' cannot have negative values, but got \(2, -3\)",
    ),
    "narrow from a float": (lambda t: _floats(t).narrow(0, t.tensor(0.0), 1), "start must be an"),
    "fliplr": (lambda t: t.fliplr(_floats(t)), "Input must be >= 2-d"),
    "flipud": (lambda t: t.flipud(t.tensor(1)), "Input must be >= 1-d"),
    "movedim of unlike counts": (
        lambda t: t.movedim(_grid(t), (1, 0), (0,)),
        "movedim: Invalid source or destination dims",
    ),
    "movedim from one twice": (
        lambda t: t.movedim(_grid(t), (0, 0), (0, 1)),
        "movedim: repeated dim in `source`",
    ),
    "movedim to one twice": (
        lambda t: t.movedim(_grid(t), (0, 1), (1, 1)),
        "movedim: repeated dim in `destination`",
    ),
    "clamp by nothing": (lambda t: _floats(t).clamp(), "At least one of 'min' or 'max' must not be None"),
    "unfold of a negative size": (lambda t: _floats(t).unfold(0, -1, 1), "size is -1 but must be >= 0"),
    "unfold by a negative step": (lambda t: _floats(t).unfold(0, 1, -1), "step is -1 but must be > 0"),
    "unfold of too much": (
        lambda t: _floats(t).unfold(0, 4, 1),
        "maximum size for tensor at dimension 0 is 3",
    ),
    "expand": (
        lambda t: _grid(t).expand(3, 5),
        r"The expanded size of the tensor \(5\) must match the existing size \(4\)",
    ),
    "expand to fewer dims": (
        lambda t: _grid(t).expand(4),
        r"the number of sizes provided \(1\) must be greater or equal to the number of dimensions",
    ),
    "view": (lambda t: _floats(t).view(2, 2), r"shape '\[2, 2\]' is invalid for input of size 3"),
    "view of what can't be divided": (
        lambda t: _floats(t).view(2, -1),
        r"shape '\[2, -1\]' is invalid for input of size 3",
    ),
    "view of nothing": (
        lambda t: t.empty(0).view(-1, 0),
        "because the unspecified dimension size -1 can be any value",
    ),
    "view of a number's bytes": (lambda t: t.tensor(1.0).view(t.int16), r"self.dim\(\) cannot be 0"),
    "view of a column's bytes": (
        lambda t: _grid(t).t().view(t.int16),
        r"self.stride\(-1\) must be 1",
    ),
    "view of bytes that are too few": (
        lambda t: _floats(t).view(t.float64),
        r"self.size\(-1\) must be divisible by 2",
    ),
    "view of bytes that begin between": (
        lambda t: _floats(t)[1:].view(t.float64),
        r"self.storage_offset\(\) must be divisible by 2",
    ),
    "view of rows that begin between": (
        lambda t: t.zeros(3, 3)[:, :2].view(t.float64),
        r"self.stride\(0\) must be divisible by 2",
    ),
    "view_as_complex of triples": (
        lambda t: t.view_as_complex(_floats(t)),
        "Tensor must have a last dimension of size 2",
    ),
    "view_as_complex of a number": (
        lambda t: t.view_as_complex(t.tensor(1.0)),
        "Input tensor must have one or more dimensions",
    ),
    "view_as_complex of columns": (
        lambda t: t.view_as_complex(t.zeros(2, 4).t()),
        "Tensor must have a last dimension with stride 1",
    ),
    "flatten backwards": (lambda t: _grid(t).flatten(1, 0), "start_dim cannot come after end_dim"),
    "chunk": (lambda t: _floats(t).chunk(0), "chunk expects.*greater than 0"),
    "tensor_split of a number": (
        lambda t: t.tensor_split(t.tensor(1.0), 2),
        "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims",
    ),
    "tensor_split into nothing": (
        lambda t: t.tensor_split(_floats(t), 0),
        "number of sections must be larger than 0, got 0",
    ),
    "tensor_split at a float": (
        lambda t: t.tensor_split(_floats(t), t.tensor(1.5)),
        "to have dtype of long, but got Float",
    ),
    "tensor_split at a matrix": (
        lambda t: t.tensor_split(_floats(t), t.tensor([[1]])),
        "zero-dimensional or one-dimensional tensor, but got a tensor with 2 dims",
    ),
    "resize_ beyond all memory": (
        lambda t: t.empty(()).resize_([2, 4, 2**29, 2**29]),
        "Storage size calculation overflowed",
    ),
    "resize_ beyond all strides": (
        lambda t: t.empty(()).resize_([0, 4, 2**61]),
        "Stride calculation overflowed",
    ),
    "alpha that is a fraction": (
        lambda t: t.add(_ints(t), _ints(t), alpha=1.5),
        "For integral input tensors, argument alpha must not be a floating point number",
    ),
    "alpha that is complex": (
        lambda t: _floats(t).sub(_floats(t), alpha=2j),
        "For non-complex input tensors, argument alpha must not be a complex number",
    ),
    "alpha that is a bool": (
        lambda t: _ints(t).add_(_ints(t), alpha=True),
        "Boolean alpha only supported for Boolean results",
    ),
    "power of an integer": (
        lambda t: t.tensor(2) ** -1,
        "Integers to negative integer powers are not allowed",
    ),
    "power of integers": (lambda t: _ints(t).pow_(-1), "Integers to negative integer powers are not allowed"),
    "addcdiv of integers": (
        lambda t: t.addcdiv(_ints(t), _ints(t), _ints(t)),
        "^Integer division with addcdiv is no longer supported",
    ),
    "lerp of two dtypes": (
        lambda t: t.lerp(_floats(t).double(), _floats(t), 0.5),
        "expected dtype .* for `end` but got dtype float",
    ),
    "float8": (
        lambda t: t.promote_types(t.float8_e5m2, t.float32),
        "Promotion for Float8 Types is not supported",
    ),
    "a result that is no integer": (lambda t: _ints(t).add_(1.5), "can't be cast to"),
    "an out that is no float": (lambda t: t.add(_floats(t), 1, out=_ints(t)), "can't be cast to"),
    "an out of another width": (lambda t: t.neg(_floats(t), out=_floats(t).double()), ""),
    "an out of places": (lambda t: t.nonzero(_floats(t), out=_floats(t)), "scalar type Long"),
    "rows of two lengths": (
        lambda t: t.tensor([np.zeros((3, 3)), np.zeros((3, 0))]),
        r"expected sequence of length 3 at dim 2 \(got 0\)",
    ),
    "lists of two lengths": (
        lambda t: t.tensor([[1, 2], [3]]),
        r"expected sequence of length 2 at dim 1 \(got 1\)",
    ),
    "scatter_reduce of what has no order": (
        lambda t: t.zeros(2).to(t.complex64).scatter_reduce(0, t.tensor([0]), t.ones(1) * 1j, "amax"),
        "",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_pytorch_refuses_is_refused_in_words_that_scripts_look_for(name):
    call, words = REFUSED[name]
    with pytest.raises(Exception, match=words) as theirs:
        call(torch)
    with pytest.raises(lamina.LaminaError, match=words) as ours:
        call(lamina)
    kind = next(k for k in (IndexError, ValueError, TypeError, RuntimeError) if isinstance(theirs.value, k))
    assert isinstance(ours.value, kind)


def _read_only():
    array = np.zeros(3)
    array.flags.writeable = False
    return array


def _bytes(t):
    return t.tensor([1, 0, 1], dtype=t.uint8)


# Both give the same, and warn of the same: the words that both warnings hold, or none.
TAKEN = {
    "a mask of bytes": (lambda t: _floats(t)[_bytes(t)], ["uint8 is now deprecated"]),
    "masks of bytes": (
        lambda t: _grid(t)[_bytes(t), t.tensor([1, 1, 0, 0], dtype=t.uint8)],
        ["uint8 is now deprecated"],
    ),
    "index_put at a mask of bytes": (
        lambda t: _floats(t).index_put_((_bytes(t),), t.tensor([5.0, 6.0]), accumulate=True),
        ["uint8 is now deprecated"],
    ),
    "read-only memory": (lambda t: t.from_numpy(_read_only()), ["array is not writable"]),
    "a list of arrays": (
        lambda t: t.tensor([np.zeros(1), np.ones(1)]),
        ["Creating a tensor from a list of numpy.ndarrays is extremely slow"],
    ),
    "one array": (lambda t: t.tensor(np.zeros(1)), []),
    "one number of another dtype": (lambda t: _assigned(t, _mask(t), t.tensor([5])), []),
    "a number": (lambda t: _assigned(t, [0, 2], 5), []),
    "a part of another dtype": (lambda t: _assigned(t, slice(0, 2), t.tensor([5, 6])), []),
    "bools by twos": (lambda t: t.add(_mask(t), _mask(t), alpha=2), []),
    "bools by a bool": (lambda t: t.add(_mask(t), _mask(t), alpha=True), []),
    "integers beside a fraction": (lambda t: t.add(_ints(t), 2.5, alpha=1.5), []),
    "powers that are tensors": (lambda t: _ints(t) ** t.tensor(-1), []),
    "a power of two numbers": (lambda t: t.tensor(2) ** t.tensor(-1), []),
    "an element of an expanded view": (lambda t: _expanded(t), []),
    "lists in a list": (lambda t: _grid(t)[[[0, 1], [2, 3]]], ["Using a non-tuple sequence"]),
    "tensors in a list": (
        lambda t: _grid(t)[[t.tensor([0, 1]), t.tensor([2, 3])]],
        ["Using a non-tuple sequence"],
    ),
    "a mask in a list": (lambda t: _grid(t)[[_grid(t) > 5]], ["Using a non-tuple sequence"]),
    "a slice in a list": (lambda t: _grid(t)[[slice(1, 3), 0]], ["Using a non-tuple sequence"]),
    "a write at lists in a list": (
        lambda t: _assigned(t, [[0, 2]], 5),
        ["Using a non-tuple sequence"],
    ),
    "a list of numbers": (lambda t: _grid(t)[[0, 2]], []),
    "a list of bools": (lambda t: _grid(t)[[True, False, True]], []),
    "a condition of bytes": (
        lambda t: t.where(_bytes(t), _floats(t), -_floats(t)),
        ["where received a uint8 condition tensor"],
    ),
    "a grid of unsaid order": (lambda t: t.meshgrid(_ints(t), _ints(t))[0], ["pass the indexing argument"]),
    "a grid": (lambda t: t.meshgrid(_ints(t), _ints(t), indexing="xy")[0], []),
    "all dimensions turned": (
        lambda t: _grid(t)[None].T,
        ["The use of `x.T` on tensors of dimension other than 2"],
    ),
    "a row at a tensor is a view": (lambda t: _row(t), []),
    "a row at a tensor takes another dtype": (lambda t: _assigned(t, t.tensor(1), t.tensor(7)), []),
    "means of complex numbers": (lambda t: _reduced(t, "mean"), []),
    "products of complex numbers": (lambda t: _reduced(t, "prod"), []),
}


def _assigned(t, index, value):
    x = _floats(t)
    x[index] = value
    return x


def _expanded(t):
    x = t.ones(3, 1)
    x.expand(3, 4)[2, 2] = 0
    return x


def _row(t):
    x = _grid(t)
    x[t.tensor(1), None].mul_(5)
    x[t.tensor(0), t.tensor(2)] += 7
    x[t.tensor(2)] = _grid(t)[0].long()
    return x


def _reduced(t, reduce):
    x, index = t.tensor([1 + 2j, 3 - 1j, 2j]), t.tensor([0, 0, 2, 0])
    return x.scatter_reduce(0, index, t.tensor([1j, 2 + 1j, 5.0, 1 - 1j]), reduce)


@pytest.mark.parametrize("name", TAKEN)
def test_what_pytorch_takes_is_taken_with_its_warnings(name):
    call, words = TAKEN[name]
    found = []
    for t in (torch, lamina):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.set_warn_always(True)  # which it does not by itself
            found.append(call(t))
        assert {w.category for w in caught} == {UserWarning for _ in words}
        assert len({str(w.message) for w in caught}) == len(words)
        assert all(re.search(word, str(w.message)) for word, w in zip(words, caught, strict=False))
    theirs, ours = found
    assert str(ours.dtype)[7:] == str(theirs.dtype)[6:]
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def _set(t):
    """A tensor set to parts of another's memory, and what is written through either."""
    x, y = t.arange(10.0), t.empty(0)
    yield y.set_(x.storage(), 1, (3,), (3,))
    yield t.tensor([y.storage_offset(), *y.stride(), y.storage().size()])
    y[0] = 99
    yield x
    yield y.set_(x[2:5])
    yield y.set_(x.untyped_storage(), 2, (2, 2))
    yield y.set_()
    x.storage()[0] = 42
    yield t.tensor(x[3:].storage().tolist())
    yield t.tensor([t.is_storage(x.storage()), t.is_storage(x), x.storage().data_ptr() == x.data_ptr()])


def _resized(t):
    """A tensor made smaller and larger again over its memory, which views see."""
    x = t.arange(6.0).reshape(2, 3)
    line = x.view(-1)
    yield x.resize_(2, 2)
    x[0, 0] = 7
    yield line
    yield x.resize_(6)
    yield t.arange(12.0).reshape(3, 4).t().resize_(5)
    yield t.arange(12.0)[4:].resize_(5)
    array = x.numpy()
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(3, 3)
    x.resize_(1)[0] = 5
    yield t.tensor(array)


def _made(t):
    """Memory made by itself."""
    yield t.tensor([t.Storage(np.int64(3)).size(), t.UntypedStorage(4).nbytes(), t.LongStorage(2).nbytes()])
    yield t.tensor(t.FloatStorage([1, 2]).tolist())


def _gathered(t):
    """The gradient of a gather that stores what was picked, with a dense one added, and without any."""
    x, index = t.arange(6.0).reshape(2, 3).requires_grad_(), t.tensor([[0, 2, 2, 2], [1, 1, 0, 1]])
    with t.no_grad():
        yield t.gather(x, 1, index, sparse_grad=True)
    (t.gather(x, -1, index, sparse_grad=True) * t.arange(8.0).reshape(2, 4)).sum().backward()
    assert x.grad.is_sparse
    yield x.grad.to_dense()
    x.gather(1, index).sum().backward()
    yield x.grad.to_dense()
    for size, places in (((), ()), ((), (2,)), ((5,), ()), ((5,), (3,)), ((2, 3), (1, 2))):
        x = t.ones(size, requires_grad=True)
        t.gather(x, 0, t.zeros(places, dtype=t.int64), sparse_grad=True).sum().backward()
        assert x.grad.is_sparse
        yield x.grad.to_dense()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("steps", [_set, _resized, _made, _gathered])
def test_steps(steps):
    for ours, theirs in zip(steps(lamina), steps(torch), strict=True):
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("reduce", ["mean", "prod"])
@pytest.mark.parametrize("include_self", [True, False])
def test_gradients_of_reductions_of_complex_numbers(reduce, include_self):
    """PyTorch has none."""
    x = lamina.tensor([1 + 2j, 3 - 1j, 2j], dtype=lamina.complex128, requires_grad=True)
    src = lamina.tensor([1j, 2 + 1j, 5.0, 1 - 1j], dtype=lamina.complex128, requires_grad=True)
    index = lamina.tensor([0, 0, 2, 0])

    def reduced(x, src):
        return x.scatter_reduce(0, index, src, reduce, include_self=include_self)

    assert lamina.autograd.gradcheck(reduced, (x, src))
