"""What a tensor is: made from what, told as what, copied, iterated, converted; what is refused, how."""

import copy
import math
import pickle
import sys

import numpy as np
import pytest

import lamina
from lamina.ir import dtypes, op
from lamina.ir.errors import (
    ArgumentError,
    ArgumentValueError,
    DeviceError,
    DimError,
    DTypeError,
    GradError,
    LaminaError,
    ShapeError,
)  # fmt: skip

# Every refusal below: the call, its class in the house, the built-in that PyTorch raises there too (where it
# does), and what the first line says.
REFUSALS = [
    (lambda: lamina.ones(2).item(), GradError, RuntimeError, r"item\(\): the tensor has 2 elements, not one"),
    (lambda: lamina.zeros(0).item(),
     GradError, RuntimeError, r"item\(\): the tensor has 0 elements, not one"),
    (lambda: bool(lamina.ones(2)),
     ShapeError, RuntimeError, "Boolean value of Tensor with more than one value is ambiguous"),
    (lambda: bool(lamina.zeros(0)),
     ShapeError, RuntimeError, "Boolean value of Tensor with no values is ambiguous"),
    (lambda: int(lamina.ones(2)), ArgumentValueError, ValueError, r"int\(x\): x has 2 elements, not one"),
    (lambda: float(lamina.ones(3)), ArgumentValueError, ValueError, r"float\(x\): x has 3 elements, not one"),
    (lambda: [1, 2][lamina.tensor(1.0)],
     ArgumentError, TypeError, "only an integer tensor of one element can be an"),
    (lambda: [1, 2][lamina.tensor([0, 1])],
     ArgumentError, TypeError, "only an integer tensor of one element"),
    (lambda: len(lamina.tensor(1.0)), ArgumentError, TypeError, r"len\(\) of a 0-d tensor"),
    (lambda: list(lamina.tensor(1.0)), ArgumentError, TypeError, "a 0-d tensor can't be iterated over"),
    (lambda: lamina.tensor(1.0)[0], DimError, IndexError, "invalid index of a 0-dim tensor"),
    (lambda: "a" in lamina.ones(2), ArgumentError, TypeError, "only supports Tensor or scalar, not str"),
    (lambda: lamina.tensor([[1], [1, 2]]),
     ArgumentValueError, ValueError, "the rows of the nested sequence differ"),
    (lambda: lamina.tensor("a"), ArgumentError, TypeError, r"invalid data type 'str': numbers"),
    (lambda: lamina.tensor([1, None]),
     ArgumentError, TypeError, r"invalid data type 'NoneType': numbers"),
    (lambda: lamina.tensor(2**63),
     ArgumentValueError, ValueError, "9223372036854775808 does not fit into lamina.int64"),
    (lambda: lamina.tensor([1, 2**70]),
     ArgumentValueError, ValueError, "1180591620717411303424 does not fit into lamina"),
    (lambda: lamina.tensor(300, dtype=lamina.uint8),
     ArgumentValueError, ValueError, "300 does not fit into lamina.uint8"),
    (lambda: lamina.tensor([1, 2**40], dtype=lamina.int32),
     ArgumentValueError, ValueError, "1099511627776 does not fit"),
    (lambda: lamina.tensor(math.nan, dtype=lamina.int32),
     ArgumentValueError, ValueError, "nan does not fit into lamina"),
    (lambda: lamina.tensor(1.0, dtype="float32"),
     ArgumentError, TypeError, "takes a lamina dtype such as lamina.float32"),
    (lambda: lamina.tensor(np.array(["a"])), ArgumentError, TypeError, "numbers are needed"),
    (lambda: lamina.tensor([1], requires_grad=True),
     GradError, RuntimeError, "Only Tensors of floating point and complex dtype can require grad"),
    (lambda: lamina.tensor(1.0, device="cuda"), DeviceError, RuntimeError, "there is no device cuda here"),
    (lambda: lamina.ones(2).to("xyz"), DeviceError, RuntimeError, "no such device"),
    (lambda: lamina.ones(2).to(1.5),
     ArgumentError, TypeError, "takes a dtype, a device or a tensor, not float"),
    (lambda: lamina.ones(2) + np.str_("a"), ArgumentError, TypeError, r"a number is needed beside f32\[2\]"),
    (lambda: lamina.ones(2) * np.clongdouble(1), ArgumentError, TypeError, "not NumPy's"),
    (lambda: lamina.add(lamina.ones(2), [1, 2]),
     ArgumentError, TypeError, "other must be a tensor or a number, not list"),
    (lambda: lamina.ones(2, dtype=lamina.int8) + 300,
     ArgumentError, TypeError, "300 does not fit into lamina.int8"),
    (lambda: lamina.ones(2, requires_grad=True).numpy(),
     GradError, RuntimeError, r"use x.detach\(\).numpy\(\)"),
    (lambda: setattr(lamina.ones(2), "data", 3), ArgumentError, TypeError, "data must be a tensor, not int"),
    (lambda: copy.deepcopy(lamina.ones(2, requires_grad=True) * 2),
     GradError, RuntimeError, "only leaves can be deep-co"),
    (lambda: lamina.Tensor(1.5), ArgumentError, TypeError, r"lamina.tensor\(2.0\) is 0-d"),
    (lambda: lamina.nn.Parameter([1.0]), ArgumentError, TypeError, "data must be a tensor, not list"),
    (lambda: lamina.from_numpy([1.0]), ArgumentError, TypeError, "takes a NumPy array, not list"),
    (lambda: lamina.ones(2, 3, 4).H, LaminaError, RuntimeError, "t"),
]  # fmt: skip


@pytest.mark.parametrize("call, kind, builtin, says", REFUSALS)
def test_a_refusal_has_its_class_and_words(call, kind, builtin, says):
    with pytest.raises(kind, match=says) as caught:
        call()
    assert isinstance(caught.value, builtin)


def test_an_error_about_arguments_names_the_op():
    for call, name in (
        (lambda: lamina.ones(2).sum(no=1), "sum"), (lambda: lamina.matmul(lamina.ones(2)), "matmul"),
        (lambda: lamina.ones(2).cumsum(), "cumsum"), (lambda: lamina.relu(), "relu"),
        (lambda: lamina.ones(2).add_(1, 2, 3), "add"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"^{name}\(\)"):
            call()


# ---- properties --------------------------------------------------------------------------------------------
def test_properties_of_a_part_of_a_transposed_tensor():
    x = lamina.arange(24, dtype=lamina.int16).view(2, 3, 4).transpose(0, 2)[1:, :, 1]
    assert (x.shape, x.ndim, x.dim(), x.numel(), x.nelement(), len(x)) == ((3, 3), 2, 2, 9, 9, 3)
    assert (x.stride(), x.storage_offset(), x.is_contiguous()) == ((1, 4), 13, False)
    assert (x.dtype, x.itemsize, x.element_size(), x.nbytes) == (lamina.int16, 2, 2, 18)
    assert (x.is_floating_point(), x.is_complex(), x.is_signed()) == (False, False, True)
    assert (x.device.type, x.is_cuda, x.layout, x.is_leaf, x.requires_grad) == (
        "cpu",
        False,
        "strided",
        True,
        False,
    )
    assert x.data_ptr() == x._base.data_ptr() + 13 * 2
    assert x.tolist() == [[13, 17, 21], [14, 18, 22], [15, 19, 23]]


def test_a_shape_is_a_tuple_with_a_name():
    shape = lamina.ones(2, 3, 4).shape
    assert shape == (2, 3, 4) and shape.numel() == 24 and repr(shape) == "lamina.Size([2, 3, 4])"
    assert repr(shape[1:]) == "lamina.Size([3, 4])" and shape[-1] == 4
    assert repr(shape + (5,)) == "lamina.Size([2, 3, 4, 5])"


def test_transposes():
    x = lamina.arange(6).view(1, 2, 3)
    with pytest.warns(UserWarning, match="other than 2"):
        assert x.T.shape == (3, 2, 1)
    assert x.mT.shape == (1, 3, 2) and x.mH.shape == (1, 3, 2)
    assert x[0].H.tolist() == [[0, 3], [1, 4], [2, 5]]


# ---- from what ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("data, dtype, told", [
    (2, lamina.int64, 2), (2.5, lamina.float32, 2.5), (True, lamina.bool, True), ([], lamina.float32, []),
    ([1, 2.5], lamina.float32, [1.0, 2.5]), ([True, 2], lamina.int64, [1, 2]),
    ((1, (2)), lamina.int64, [1, 2]),
    (range(3), lamina.int64, [0, 1, 2]), ([[1.0], [2.0]], lamina.float32, [[1.0], [2.0]]),
    (np.float64(1.5), lamina.float64, 1.5), ([np.float64(1.5)], lamina.float64, [1.5]),
    (np.int8(3), lamina.int8, 3),
    ([np.arange(2.0)], lamina.float64, [[0.0, 1.0]]), (np.zeros(0, np.int16), lamina.int16, []),
    (-(2**63), lamina.int64, -(2**63)),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:Creating a tensor from a list of numpy.ndarrays")
def test_what_a_tensor_is_made_of_decides_its_dtype(data, dtype, told):
    made = lamina.tensor(data)
    assert made.dtype is dtype and made.tolist() == told


@pytest.mark.filterwarnings("ignore:tensor.x. of a tensor copies")
def test_a_tensor_made_of_tensors_keeps_their_dtype():
    for dtype in (lamina.float64, lamina.float16, lamina.int32, lamina.bool):
        x = lamina.ones(2, dtype=dtype)
        assert lamina.tensor(x).dtype is dtype and lamina.tensor([x[0], x[:1]]).dtype is dtype
        assert lamina.tensor(lamina.zeros(0, dtype=dtype)).dtype is dtype


def test_the_default_dtype_is_that_of_floats_only():
    dtypes.set_default_dtype(lamina.float64)
    try:
        assert lamina.tensor(1.5).dtype is lamina.float64 and lamina.tensor([1, 2]).dtype is lamina.int64
        assert (lamina.tensor([1]) / 2).dtype is lamina.float64 and lamina.Tensor([1]).dtype is lamina.float64
    finally:
        dtypes.set_default_dtype(lamina.float32)
    assert lamina.tensor(1.5).dtype is lamina.float32 and (lamina.tensor([1]) / 2).dtype is lamina.float32


@pytest.mark.filterwarnings("ignore:tensor.x. of a tensor copies")
def test_tensor_copies_and_from_numpy_shares():
    array = np.zeros(2, np.float32)
    copied, shared, also = lamina.tensor(array), lamina.from_numpy(array), lamina.as_tensor(array)
    array[0] = 5.0
    assert copied.tolist() == [0.0, 0.0] and shared.tolist() == also.tolist() == [5.0, 0.0]
    x = lamina.ones(2)
    assert lamina.as_tensor(x) is x and lamina.tensor(x)._data is not x._data
    assert lamina.as_tensor(array, dtype=lamina.float64).dtype is lamina.float64


def test_negative_numbers_wrap_where_there_is_no_sign():
    assert lamina.tensor([-1, -255], dtype=lamina.uint8).tolist() == [255, 1]


def test_new_tensor_takes_the_dtype():
    x = lamina.ones(2, dtype=lamina.float64)
    assert x.new_tensor([1, 2]).dtype is lamina.float64
    assert x.new_tensor([1], dtype=lamina.int8, requires_grad=False).dtype is lamina.int8


def test_the_old_constructor():
    assert lamina.Tensor(2, 3).shape == (2, 3) and lamina.Tensor([2, 3]).tolist() == [2.0, 3.0]
    assert lamina.Tensor(lamina.ones(2).shape).shape == (2,) and lamina.Tensor().shape == (0,)
    assert lamina.Tensor(lamina.Size()).shape == () and lamina.ones(2).new(lamina.Size()).shape == ()
    assert lamina.Tensor([1], device="cpu").tolist() == [1.0]
    with pytest.raises(ArgumentError, match="takes 'cpu' alone"):
        lamina.Tensor(2, device="meta")


# ---- numbers beside tensors --------------------------------------------------------------------------------
@pytest.mark.parametrize("make, dtype, told", [
    (lambda i, f: i + 1, lamina.int32, [2, 3]), (lambda i, f: i + True, lamina.int32, [2, 3]),
    (lambda i, f: i + 1.5,
     lamina.float32, [2.5, 3.5]), (lambda i, f: np.float64(1.5) + i, lamina.float32, [2.5, 3.5]),
    (lambda i, f: f * np.int64(3), lamina.float16, [3.0, 6.0]), (lambda i, f: 2 ** i, lamina.int32, [2, 4]),
    (lambda i, f: 1 - f,
     lamina.float16, [0.0, -1.0]), (lambda i, f: f * math.inf, lamina.float16, [math.inf] * 2),
    (lambda i, f: i // 2, lamina.int32, [0, 1]), (lambda i, f: i / 2, lamina.float32, [0.5, 1.0]),
    (lambda i, f: f + 70000,
     lamina.float16, [math.inf] * 2), (lambda i, f: (i > 1) + 1, lamina.int64, [1, 2]),
    (lambda i, f: (f > 1) * 0.5,
     lamina.float32, [0.0, 0.5]), (lambda i, f: f + np.float16(0.5), lamina.float16, [1.5, 2.5]),
    (lambda i, f: f * lamina.bfloat16.numpy.type(2), lamina.float16, [2.0, 4.0]),
])  # fmt: skip
def test_a_number_takes_its_dtype_beside_a_tensor(make, dtype, told):
    made = make(lamina.tensor([1, 2], dtype=lamina.int32), lamina.tensor([1.0, 2.0], dtype=lamina.float16))
    assert made.dtype is dtype and made.tolist() == told


def test_nan_and_signed_zero_numbers():
    x = lamina.ones(2)
    for _ in range(2):  # the second time from what was remembered
        assert all(math.isnan(v) for v in (x * math.nan).tolist())
        assert (
            math.copysign(1.0, (x * -0.0)[0].item()) == -1.0
            and math.copysign(1.0, (x * 0.0)[0].item()) == 1.0
        )


def test_comparison_with_what_is_no_number():
    x = lamina.ones(2)
    assert (x == None) is False and (x != "a") is True  # noqa: E711 - the operator is what is tested
    with pytest.raises(TypeError):
        x < None  # noqa: B015


# ---- to what -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_values_become_python_numbers(dtype):
    x = lamina.tensor([[1, 0]], dtype=dtype)
    kind = {"float": float, "int": int, "bool": bool}[dtype.category]
    assert type(x.tolist()[0][0]) is kind and x.tolist() == [[1, 0]]
    assert type(x[0, 0].item()) is kind and x[:, :1].item() == 1
    assert bool(x[0, 0]) is True and bool(x[0, 1]) is False
    assert int(x[0, 0]) == 1 and type(float(x[0, 0])) is float
    assert lamina.zeros(0, 2, dtype=dtype).tolist() == [] and lamina.ones((), dtype=dtype).tolist() == 1


def test_an_integer_tensor_is_an_index():
    assert ["a", "b"][lamina.tensor(1)] == "b" and ["a", "b"][lamina.tensor([-1])] == "b"
    assert list(range(lamina.tensor(3))) == [0, 1, 2]


def test_iteration_gives_views_of_the_rows():
    x = lamina.arange(4.0).view(2, 2).requires_grad_()
    rows = list(x)
    assert [row.tolist() for row in rows] == [[0.0, 1.0], [2.0, 3.0]]
    (rows[0] * 2).sum().backward()
    assert x.grad.tolist() == [[2.0, 2.0], [0.0, 0.0]]
    first, second = lamina.tensor([3, 4])
    assert (first.item(), second.item()) == (3, 4) and list(lamina.zeros(0, 2)) == []


@pytest.mark.parametrize("size", [3, 100])  # a plan for each row, and one for all
def test_rows_know_what_they_are_views_of(size):
    base = lamina.arange(2.0 * size).reshape(2, size)
    for x in (base.T, base[1], base[0, ::2]):
        for i, row in enumerate(x):
            assert row._view == x[i]._view and row.stride() == x[i].stride() and row.equal(x[i])
            row.mul_(2)
        assert x._version == x._base._version == base._version
    assert base.tolist() == [
        [2.0 * 2 ** (i % 2 == 0) * i for i in range(size)],
        [4.0 * (size + i) for i in range(size)],
    ]


@pytest.mark.parametrize("size", [3, 100])
def test_a_row_that_is_written_gives_what_it_came_from_a_history(size):
    w, x = lamina.ones(2, requires_grad=True), lamina.zeros(size, 2)
    for i, row in enumerate(x):
        if i == 1:
            row.mul_(3).add_(w)
    (x * 2).sum().backward()
    assert w.grad.tolist() == [2.0, 2.0]


def test_in_looks_for_a_value():
    x = lamina.tensor([1.0, 2.0, math.nan])
    assert 2 in x and 3 not in x and lamina.tensor(1.0) in x and math.nan not in x


def test_to_and_type():
    x = lamina.ones(2)
    assert x.to(lamina.float32) is x and x.to("cpu") is x and x.to() is x and x.to(x) is x and x.cpu() is x
    assert x.to(lamina.float32, copy=True) is not x
    assert x.to("cpu", lamina.int8).dtype is lamina.int8 and x.to(dtype=lamina.bool).tolist() == [True, True]
    assert x.to(lamina.ones(1, dtype=lamina.float16)).dtype is lamina.float16
    assert x.type() == "torch.FloatTensor" and x.type(lamina.float64).dtype is lamina.float64
    assert x.type("torch.ByteTensor").type() == "torch.ByteTensor"
    with pytest.raises(ArgumentValueError, match="invalid type"):
        x.type("bytes")
    assert x.type_as(lamina.tensor(1)).dtype is lamina.int64
    y = x.requires_grad_().double()
    y.sum().backward()
    assert x.grad.dtype is lamina.float32


# ---- data, detach, copies ----------------------------------------------------------------------------------
def test_data_shares_memory_and_has_no_history():
    x = lamina.ones(2, requires_grad=True)
    y = x * 2.0
    y.data.mul_(5.0)
    assert y.tolist() == [10.0, 10.0] and y._version == 0 and not y.data.requires_grad


def test_data_can_be_replaced():
    x = lamina.ones(2, requires_grad=True)
    x.data = lamina.zeros(3, dtype=lamina.float64)
    assert x.is_leaf and x.requires_grad and x.shape == (3,) and x.dtype is lamina.float64
    (x * 2.0).sum().backward()
    assert x.grad.dtype is lamina.float64 and x.grad.tolist() == [2.0, 2.0, 2.0]


def test_what_was_saved_keeps_its_value_when_data_is_replaced():
    x = lamina.ones(2, requires_grad=True)
    y = x * x
    x.data = lamina.full((2,), 7.0)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_detach_shares_memory_and_versions():
    x = lamina.ones(2, requires_grad=True)
    y = x * 2.0
    z = y.detach()
    assert not z.requires_grad and z.is_leaf and z.data_ptr() == y.data_ptr()
    z.add_(1.0)
    assert y.tolist() == [3.0, 3.0] and y._version == z._version == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("dtype", dtypes.ALL, ids=lambda d: d.name)
def test_copies_have_values_and_dtype_and_memory_of_their_own(copied, dtype):
    for x in (
        lamina.tensor([[1, 0], [0, 1]], dtype=dtype).t()[:1],
        lamina.zeros(0, 2, dtype=dtype),
        lamina.ones((), dtype=dtype),
    ):
        y = copied(x)
        assert y.dtype is dtype and y.shape == x.shape and y.tolist() == x.tolist()
        y.zero_()
        assert y.numel() == 0 or x.to(lamina.float32).sum().item() == 1.0


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_of_leaves_and_parameters_are_leaves_and_parameters(copied):
    for x in (
        lamina.ones(2, requires_grad=True),
        lamina.nn.Parameter(lamina.ones(2)),
        lamina.nn.Parameter(lamina.ones(2), False),
    ):
        y = copied(x)
        assert type(y) is type(x) and y.is_leaf and y.requires_grad is x.requires_grad and y is not x


def test_deepcopy_keeps_gradients_and_identities():
    x = lamina.ones(2, requires_grad=True)
    (x * 3.0).sum().backward()
    a, b = copy.deepcopy([x, x])
    assert a is b and a.grad.tolist() == [3.0, 3.0] and a.grad is not x.grad
    a.grad.zero_()
    assert x.grad.tolist() == [3.0, 3.0]


def test_arithmetic_with_a_parameter_gives_plain_tensors():
    w = lamina.nn.Parameter(lamina.ones(2))
    for made in (w * 2.0, w + w, w[0], w.view(2, 1), w.detach(), w.clone(), w.data, w.exp(), -w, w.sum()):
        assert type(made) is lamina.Tensor


def test_tensors_take_attributes_that_copies_have():
    x = lamina.ones(2)
    x.note = [1]
    y, z, again = copy.deepcopy(x), copy.copy(x), pickle.loads(pickle.dumps(x))
    assert y.note == z.note == again.note == [1] and z.note is x.note and y.note is not x.note
    assert not hasattr(x + 1, "note") and not hasattr(x.detach(), "note")
    del x.note
    assert vars(x) == {}


def test_arrays_and_read_only_memory():
    array = np.arange(3.0)
    array.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        x = lamina.from_numpy(array)
    assert (x * 2).tolist() == [0.0, 2.0, 4.0]
    with pytest.raises(LaminaError, match="the memory of the tensor is read-only"):
        x.add_(1.0)
    assert isinstance(np.arange(3.0) * x, lamina.Tensor) and isinstance(x * np.arange(3.0), lamina.Tensor)
    with pytest.raises(DTypeError, match="other byte order"):
        lamina.from_numpy(np.arange(3.0).astype(">f8"))
    assert lamina.tensor(np.arange(3.0).astype(">f8")).tolist() == [0.0, 1.0, 2.0]


def test_a_tensor_whose_value_is_read_is_read_at_each_call():
    ends = [lamina.linspace(0, lamina.tensor(float(k)), 2)[1].item() for k in (1, 2, 3)]
    assert ends == [1.0, 2.0, 3.0]


def test_sizes_are_ints():
    assert lamina.Size([lamina.tensor(3), np.int64(2), True]) == (3, 2, 1)
    assert type(lamina.Size([lamina.tensor(3)])[0]) is int
    for given in ([1.5], ["a"], lamina.ones(3), [None]):
        with pytest.raises(TypeError, match="takes an iterable of 'int'"):
            lamina.Size(given)
    assert lamina.Size([1]) + (2,) == (1, 2)
    for other in ([2], lamina.ones(2), 3):
        with pytest.raises(TypeError):
            lamina.Size([1]) + other


def test_what_a_class_of_the_users_makes_of_a_size_counts():
    class Wildcard:
        def __add__(self, other):
            return 42

        __radd__ = __add__

    assert lamina.Size([1]) + Wildcard() == Wildcard() + lamina.Size([1]) == 42


@pytest.mark.parametrize("size", [3.0, np.array(3.0), lamina.tensor(3.0), lamina.ones(2), "3"])
def test_sizes_that_are_no_ints_are_refused(size):
    for make in (lamina.ones, lamina.empty, lamina.rand):
        with pytest.raises(TypeError, match="sizes must be ints"):
            make((size, 2))
    with pytest.raises(TypeError):
        lamina.ones(2, 3).reshape(size, 2)


def test_a_tensor_of_no_elements_has_no_address():
    assert lamina.ones(2)[:0].data_ptr() == 0 != lamina.ones(2).data_ptr()


def test_a_copy_holds_the_gradient_that_was_set():
    x = lamina.zeros(2)
    x.grad = lamina.ones(2)
    assert copy.deepcopy(x).grad.tolist() == [1.0, 1.0]


def test_python_counts_the_memory_of_a_tensor():
    sizes = [sys.getsizeof(lamina.empty(n)) for n in (0, 10, 100)]
    assert (sizes[2] - sizes[0]) == 10 * (sizes[1] - sizes[0]) == 400


def test_a_number_among_the_operands_warns_once():
    x, y = lamina.ones(2), lamina.ones(2)
    op._WARNED.clear()
    with pytest.warns(UserWarning, match="This overload of addcmul is deprecated"):
        assert lamina.addcmul(x, 2.0, y, y).tolist() == [3.0, 3.0]
    assert lamina.addcmul(x, 2.0, y, y).tolist() == [3.0, 3.0]


def test_a_tensor_of_a_tensor_is_a_view_with_its_history():
    x = lamina.ones(3, requires_grad=True)
    for make in (lamina.Tensor, lamina.FloatTensor, x.new):
        made = make(x)
        assert made._is_view() and made.data_ptr() == x.data_ptr()
        assert lamina.autograd.grad((made * 2).sum(), x)[0].tolist() == [2.0, 2.0, 2.0]
    assert lamina.Tensor(lamina.tensor([1, 2])).dtype is lamina.int64
    assert lamina.Tensor(lamina.ones(2, 3).T).shape == (3, 2)
    with pytest.raises(TypeError, match="must be of lamina.float32, not lamina.int64"):
        lamina.FloatTensor(lamina.tensor([1, 2]))
