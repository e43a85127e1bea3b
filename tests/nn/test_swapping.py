"""Tensors swapped into modules, and parameters and buffers of classes of the user's."""

import copy
import pickle

import pytest

import lamina
from lamina import nn
from lamina.facade import future
from lamina.facade.utils import swap_tensors


class Named(lamina.Tensor):
    """A class whose instances hold what they are about under a name that the library has, too."""

    @staticmethod
    def __new__(cls, data, about=None):
        made = lamina.Tensor._make_subclass(cls, data)
        made._meta = about
        return made


class Wrapped(lamina.Tensor):
    @staticmethod
    def __new__(cls, data):
        return lamina.Tensor._make_wrapper_subclass(cls, data.size(), dtype=data.dtype)

    def __init__(self, data):
        self._data = data

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with lamina._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        out = func(*[x._data if isinstance(x, Wrapped) else x for x in args], **(kwargs or {}))
        return Wrapped(out) if isinstance(out, lamina.Tensor) else out


class Loaded(lamina.Tensor):
    """Says by `module_load` what takes its place: twice what the state has."""

    returns = staticmethod(lambda here, value: Loaded(2 * value.as_subclass(lamina.Tensor)))

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is lamina.Tensor.module_load:
            return cls.returns(*args)
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.fixture
def swapping():
    future.set_swap_module_params_on_conversion(True)
    yield
    future.set_swap_module_params_on_conversion(False)


def test_swapped_tensors_are_each_other_but_for_who_they_are():
    a, b = lamina.ones(2, requires_grad=True), nn.Parameter(lamina.zeros(3), requires_grad=False)
    a.name, a.grad = "a", lamina.full((2,), 7.0)
    seen = []
    a.register_hook(lambda g: seen.append("hook"))
    places = id(a), id(b)
    swap_tensors(a, b)
    assert (id(a), id(b)) == places
    assert type(a) is nn.Parameter and type(b) is lamina.Tensor
    assert a.tolist() == [0, 0, 0] and not a.requires_grad and not hasattr(a, "name") and a.grad is None
    assert b.tolist() == [1, 1] and b.requires_grad and b.name == "a" and b.grad.tolist() == [7, 7]
    b.sum().backward()
    assert b.grad.tolist() == [8, 8] and seen == ["hook"]


def test_a_backward_to_what_was_swapped_is_refused():
    a, b = (lamina.ones(2, requires_grad=True) for _ in "ab")
    y = (2 * a).sum()
    swap_tensors(a, b)
    with pytest.raises(RuntimeError, match="AccumulateGrad node that was poisoned by swap_tensors"):
        y.backward()
    assert a.grad is None and b.grad is None


def test_what_can_not_be_swapped():
    class Slotted(lamina.Tensor):
        __slots__ = ("more",)

    a, b = lamina.ones(2), lamina.zeros(3).as_subclass(Slotted)
    with pytest.raises(RuntimeError, match="Cannot swap t1 and t2 if they have different slots"):
        swap_tensors(a, b)
    assert type(a) is lamina.Tensor and type(b) is Slotted and a.tolist() == [1, 1]
    with pytest.raises(TypeError, match="takes two tensors, not a int"):
        swap_tensors(a, 3)


def test_a_parameter_of_a_class_of_the_users_stays_of_that_class():
    p = nn.Parameter(Named(lamina.ones(2), "weights"))
    assert type(p) is Named and isinstance(p, nn.Parameter) and p.requires_grad
    assert not isinstance(Named(lamina.ones(2)), nn.Parameter) and not isinstance(p * 2, nn.Parameter)
    m = nn.Module()
    m.p = p
    assert dict(m.named_parameters()) == {"p": p}
    assert repr(p).startswith("Parameter(Named([1., 1.]")
    for other in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(other) is Named and isinstance(other, nn.Parameter) and other.tolist() == [1, 1]


def test_names_of_the_librarys_are_free_for_attributes_of_derived_classes():
    x = Named(lamina.ones(2), "weights")
    assert x._meta == "weights" and x.shape == (2,) and (x + 1).tolist() == [2, 2]
    del x._meta
    with pytest.raises(AttributeError, match="'Named' object has no attribute '_meta'"):
        x._meta  # noqa: B018
    w = nn.Parameter(Wrapped(lamina.ones(2)))
    assert w._data.tolist() == [1, 1] and type(w.detach()) is Wrapped
    (w * 3).sum().backward()
    assert w.grad._data.tolist() == [3, 3]


def test_a_class_whose_detach_forgets_it_has_no_parameters():
    class Forgetful(lamina.Tensor):
        def detach(self):
            return lamina.ones(2)

    with pytest.raises(TypeError, match="requires that detach.. returns an instance of the same type"):
        nn.Parameter(lamina.ones(2).as_subclass(Forgetful))


def test_a_buffer_has_the_class_of_its_tensor():
    m = nn.Module()
    m.a, m.b = nn.Buffer(lamina.ones(2)), nn.Buffer(Named(lamina.ones(2)), persistent=False)
    assert type(m.a) is lamina.Tensor and type(m.b) is Named and isinstance(m.a, nn.Buffer)
    assert list(dict(m.named_buffers())) == ["a", "b"] and list(m.state_dict()) == ["a"]
    assert not isinstance(lamina.ones(2), nn.Buffer)


def test_conversions_swap_parameters_and_their_gradients(swapping):
    m = nn.Linear(2, 2)
    weight = m.weight
    optimizer = lamina.optim.SGD(m.parameters(), lr=0.5)
    m(lamina.ones(1, 2)).sum().backward()
    m.double()
    assert m.weight is weight and weight.dtype is lamina.float64 and weight.grad.dtype is lamina.float64
    before = weight.tolist()
    optimizer.step()
    assert weight.tolist() == [[x - 0.5 for x in row] for row in before]
    m._apply(Named)
    assert m.weight is weight and type(weight) is Named and isinstance(weight, nn.Parameter)


def test_a_state_is_swapped_in_by_module_load(swapping):
    m, state = nn.Linear(2, 2), nn.Linear(2, 2).state_dict()
    weight = m.weight
    m.load_state_dict(state)
    assert m.weight is weight and weight.tolist() == state["weight"].tolist() and weight.requires_grad
    m.bias.requires_grad_(False)
    m.load_state_dict(state, assign=True)
    assert m.weight is weight and not m.bias.requires_grad
    assert weight.data_ptr() == state["weight"].data_ptr()
    m.weight = nn.Parameter(Loaded(lamina.zeros(2, 2)))
    m.load_state_dict(state)
    assert type(m.weight) is Loaded and isinstance(m.weight, nn.Parameter)
    assert m.weight.tolist() == (2 * state["weight"]).tolist()


def test_module_load_must_make_another_tensor(swapping, monkeypatch):
    monkeypatch.setattr(Loaded, "returns", lambda here, value: value)
    m = nn.Linear(2, 2, bias=False)
    m.weight = nn.Parameter(Loaded(lamina.zeros(2, 2)))
    with pytest.raises(RuntimeError, match=r"Error\(s\) in loading state_dict for Linear(.|\n)*one of self"):
        m.load_state_dict({"weight": lamina.ones(2, 2)})


def test_an_assigned_parameter_wants_a_gradient_where_the_one_before_did():
    m = nn.Linear(2, 2, bias=False)
    given = nn.Parameter(lamina.ones(2, 2), requires_grad=False)
    m.load_state_dict({"weight": given}, assign=True)
    assert m.weight is given and given.requires_grad


def test_what_a_tensor_can_not_be_copied_for_is_told_with_its_name():
    m = nn.Linear(2, 2, bias=False)
    m.weight = nn.Parameter(lamina.zeros(1, 2).expand(2, 2))  # one memory for both rows
    with pytest.raises(RuntimeError, match='While copying the parameter named "weight"'):
        m.load_state_dict({"weight": lamina.ones(2, 2)})


def test_a_number_may_be_a_tensor_of_one_element_in_the_state():
    m = nn.Module()
    m.register_buffer("count", lamina.tensor(0))
    m.load_state_dict({"count": lamina.tensor([5])})
    assert m.count.item() == 5 and m.count.shape == ()


@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr"])
def test_a_sparse_parameter_is_one_in_modules_copies_and_states(layout):
    def made():
        m = nn.Linear(4, 3)
        m.weight = nn.Parameter(getattr(m.weight.detach(), layout)())
        return m

    m, other = made(), made()
    weight = m.weight
    assert [name for name, _ in m.named_parameters()] == ["weight", "bias"]
    assert repr(weight).startswith("Parameter containing:\ntensor(")
    m(lamina.ones(2, 4)).sum().backward()
    m.double()
    assert m.weight is weight and weight.dtype is lamina.float64 and weight.requires_grad
    assert weight.grad.dtype is lamina.float64 and weight.grad.to_dense().tolist() == [[2.0] * 4] * 3
    m.float().load_state_dict(other.state_dict())
    assert weight.to_dense().tolist() == other.weight.to_dense().tolist() and weight.requires_grad
    for copied in (copy.deepcopy(weight), pickle.loads(pickle.dumps(weight))):
        assert isinstance(copied, nn.Parameter) and copied.to_dense().tolist() == weight.to_dense().tolist()


def test_conversions_swap_sparse_parameters(swapping):
    m = nn.Linear(4, 3)
    m.weight = weight = nn.Parameter(m.weight.detach().to_sparse_csr())
    values = weight.to_dense().tolist()
    m.double()
    assert m.weight is weight and weight.dtype is lamina.float64 and isinstance(weight, nn.Parameter)
    assert weight.layout is lamina.sparse_csr and weight.to_dense().tolist() == values
    with pytest.raises(RuntimeError, match="Cannot swap t1 and t2 if they have different slots"):
        m._apply(lambda x: x.to_dense() if x.ndim == 2 else x)
