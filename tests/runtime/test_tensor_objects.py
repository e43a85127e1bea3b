"""Tensors as objects: derived classes, duck arrays, the meta device, hooks on what is saved, traces of them.

tests/peers/test_torch_tensor_objects.py compares the same subjects with PyTorch.
"""

import copy
import io
import pickle

import pytest

import lamina
from lamina.autograd import graph
from lamina.runtime import overriding
from lamina.runtime.meta import NoValuesError


class Plain(lamina.Tensor):
    pass


class Logging(lamina.Tensor):
    heard: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.heard.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


def test_results_have_the_class_and_plain_tensors_stay_plain():
    x = lamina.ones(2).as_subclass(Plain)
    assert type(x + 1) is type(lamina.exp(x)) is type(x[0]) is type(lamina.nn.functional.gelu(x)) is Plain
    assert type(lamina.ones(2) + 1) is lamina.Tensor
    assert type(pickle.loads(pickle.dumps(x))) is Plain


def test_classes_with_a_dispatcher_are_refused():
    class Wrapper(lamina.Tensor):  # may stand: nobody asks it for anything yet
        @classmethod
        def __torch_dispatch__(cls, *args):
            pass

    for make in (Wrapper, lamina.ones(2).as_subclass, Wrapper._make_subclass):
        with pytest.raises(lamina.ArgumentError, match="__torch_dispatch__: only tensors without memory"):
            make(*{Wrapper: (2,), Wrapper._make_subclass: (Wrapper, lamina.ones(2))}.get(make, (Wrapper,)))


def test_a_duck_array_is_met_by_the_function_that_was_called():
    class Duck:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__

    before = [*overriding.OPEN]
    overriding.OPEN[:] = [each for each in before if each != "objects"]
    try:
        assert lamina.nn.functional.smooth_l1_loss(Duck(), lamina.ones(2)) == "smooth_l1_loss"
    finally:
        overriding.OPEN[:] = before
    assert lamina.add(lamina.ones(2), Duck()) == "add"


def test_traces_leave_derived_classes_to_eager_and_say_so():
    traced = lamina.jit.trace(lambda x: (x * 2).exp())
    for _ in range(3):
        traced(lamina.ones(2))
    Logging.heard.clear()
    x = lamina.ones(2).as_subclass(Logging)
    assert type(traced(x)) is Logging and type(traced(x)) is Logging
    assert Logging.heard == ["mul", "exp"] * 2
    assert "derives from Tensor" in str(traced.explain())
    assert type(traced(lamina.ones(2))) is lamina.Tensor


def test_traces_leave_function_modes_to_eager():
    heard = []

    class Mode(lamina.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            heard.append(func.__name__)
            return func(*args, **(kwargs or {}))

    traced = lamina.jit.trace(lambda x: x + 1)
    for _ in range(3):
        traced(lamina.ones(2))
    with Mode():
        traced(lamina.ones(2))
    assert heard.count("add") == 1


def test_traces_leave_the_meta_device_to_eager():
    traced = lamina.jit.trace(lambda x: x * 2)
    for _ in range(3):
        traced(lamina.ones(2))
    assert traced(lamina.ones(2, device="meta")).is_meta
    assert "meta device" in str(traced.explain())
    assert traced(lamina.ones(2)).tolist() == [2.0, 2.0]
    made = lamina.jit.trace(lambda: lamina.ones(2))
    for _ in range(3):
        made()
    with lamina.device("meta"):
        assert made().is_meta
    assert made().tolist() == [1.0, 1.0]


def test_no_way_leads_to_values_of_the_meta_device(tmp_path):
    x = lamina.ones(2, 2, device="meta")
    ways = (
        x.tolist,
        x.numpy,
        x.cpu,
        lambda: x[0, 0].item(),
        lambda: x.__dlpack__(),
        lambda: lamina.save({"x": x}, tmp_path / "x.safetensors"),
        lambda: lamina.ones(2, 2).copy_(x),
        lambda: lamina.equal(x, x),
        lambda: x[x > 0],
    )
    for way in ways:
        with pytest.raises(NoValuesError):
            way()
    with pytest.raises(lamina.DeviceError, match="on the CPU and on the meta device"):
        x + lamina.ones(2, 2)
    assert pickle.loads(pickle.dumps(x)).is_meta
    lamina.save({"x": x}, tmp_path / "x.pt")
    assert lamina.load(tmp_path / "x.pt")["x"].is_meta


def test_a_number_beside_a_tensor_is_nobodys_to_write():
    x = lamina.ones(2, requires_grad=True)
    with graph.saved_tensors_hooks(lambda t: t.detach().clone(), lambda t: t * 2):
        y = (x * 3).exp()
    y.sum().backward()
    assert (lamina.ones(2) * 3).tolist() == [3.0, 3.0]
    assert x.grad[0].item() == pytest.approx(2 * 3 * y[0].item())  # the hook doubles what exp saved


def test_traces_leave_hooks_on_saved_tensors_to_eager():
    @lamina.jit.trace
    def step(x):
        x.exp().sum().backward()
        return x.grad

    for _ in range(3):
        step(lamina.ones(2, requires_grad=True))
    packed = []
    with graph.saved_tensors_hooks(lambda t: packed.append(1) or t, lambda t: t):
        step(lamina.ones(2, requires_grad=True))
    assert packed


def test_saved_tensors_of_a_function_are_its_inputs():
    class Square(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            seen.append(ctx.saved_tensors[0])
            return g * 2 * ctx.saved_tensors[0]

    seen = []
    x = lamina.ones(2, requires_grad=True)
    Square.apply(x).sum().backward()
    assert seen[0] is x and x.grad.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x.requires_grad_("a"),
        lambda x: lamina.multinomial(x, 1, replacement="a"),
        lambda x: x.sum(0, keepdim="a"),
        lambda x: x.sort(descending=[]),
        lambda x: lamina.ones(2, requires_grad="a"),
        lambda x: lamina.nn.Parameter(x, requires_grad="a"),
    ],
)
def test_flags_are_bools(call):
    with pytest.raises(lamina.ArgumentError, match="must be a bool"):
        call(lamina.ones(2))


class Labelled(lamina.Tensor):
    __slots__ = ("label", "__rank", "unset")

    def rank(self, value=None):
        self.__rank = self.__rank if value is None else value
        return self.__rank


def _saved(x):
    file = io.BytesIO()
    lamina.save(x, file)
    file.seek(0)
    return lamina.load(file, weights_only=False)


def _pickled(x):
    return pickle.loads(pickle.dumps(x))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _pickled, _saved])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_copies_have_what_lies_in_slots(copied, device):
    x = lamina.ones(2, device=device).as_subclass(Labelled)
    x.label, x.note = lamina.tensor([3.0]), "n"
    x.rank(7)
    made = copied(x)
    assert type(made) is Labelled and made.note == "n" and made.label.tolist() == [3.0]
    assert made.rank() == 7 and not hasattr(made, "unset") and made.device == x.device
    assert (made.label is x.label) is (copied is copy.copy)
