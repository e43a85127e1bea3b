"""Classes with `__torch_dispatch__` that wrap tensors: what they are asked, gradients, writes, refusals."""

import numpy as np
import pytest

import lamina
from lamina.runtime.meta import NoValues, NoValuesError


class Wrapped(lamina.Tensor):
    """Holds a tensor, and notes what it is asked."""

    __slots__ = ("elem",)
    asked: list = []

    @staticmethod
    def __new__(cls, elem, requires_grad=False):
        made = lamina.Tensor._make_wrapper_subclass(
            cls, elem.size(), dtype=elem.dtype, requires_grad=requires_grad
        )
        made.elem = elem.detach()
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.asked.append(func.overloadpacket)
        found = func(*[x.elem if isinstance(x, cls) else x for x in args])
        several = isinstance(found, tuple)
        made = [cls(x) if isinstance(x, lamina.Tensor) else x for x in (found if several else (found,))]
        return tuple(made) if several else made[0]


def wrapped(*values, requires_grad=False):
    return Wrapped(lamina.tensor(values), requires_grad)


def test_ops_ask_the_class_and_have_gradients_of_every_order():
    x, plain = wrapped(1.0, 2.0, 3.0, requires_grad=True), lamina.tensor([1.0, 2.0, 3.0], requires_grad=True)
    Wrapped.asked.clear()
    y = (x * 2).sin().sum()
    assert Wrapped.asked == ["aten.mul", "aten.sin", "aten.sum"]
    assert type(y) is Wrapped and y.grad_fn.name() == "SumBackward0" and x.device == lamina.device("cpu")
    (plain * 2).sin().sum().backward()
    y.backward()
    assert type(x.grad) is Wrapped and x.grad.elem.tolist() == plain.grad.tolist()
    (g,) = lamina.autograd.grad((x * x * x).sum(), x, create_graph=True)
    (h,) = lamina.autograd.grad(g.sum(), x)
    assert type(g) is type(h) is Wrapped and h.elem.tolist() == [6.0, 12.0, 18.0]
    assert lamina.autograd.functional.jacobian(lambda t: t * t, x).elem.tolist() == [
        [2, 0, 0],
        [0, 4, 0],
        [0, 0, 6],
    ]


def test_views_writes_and_values_are_those_of_what_is_held():
    x = wrapped(1.0, 2.0, 3.0)
    assert x[0].elem.item() == 1.0 and float(x.sum()) == 6.0 and (x > 1).tolist() == [False, True, True]
    same = x.detach()
    assert type(same) is Wrapped and same is not x
    x.add_(1)
    x[0].fill_(7.0)
    assert x.elem.tolist() == same.elem.tolist() == [7.0, 3.0, 4.0]
    assert lamina.max(x, 0).indices.elem.item() == 0 and x.split(2)[1].elem.tolist() == [4.0]
    y = wrapped(1.0, 2.0, requires_grad=True) * 1
    y.mul_(y)
    assert y.elem.tolist() == [1.0, 4.0] and y.grad_fn.name() == "MulBackward0"
    assert repr(x) == "Wrapped(f32[3]@wrapped)"


def test_traces_leave_such_tensors_to_eager():
    @lamina.jit.trace
    def step(x):
        return x.sin() * 2

    for _ in range(3):
        found = step(wrapped(1.0))
        assert type(found) is Wrapped and found.elem.tolist() == pytest.approx([1.682942])  # 2 sin 1


def test_what_the_class_must_be_and_return():
    class Plain(lamina.Tensor):
        pass

    class Wrong(Wrapped):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return NotImplemented if "sin" in func.overloadpacket else "nothing"

    with pytest.raises(lamina.ArgumentError, match="Plain has no __torch_dispatch__"):
        lamina.Tensor._make_wrapper_subclass(Plain, (2,))
    with pytest.raises(lamina.ArgumentError, match="returned NotImplemented"):
        Wrong(lamina.ones(2)).sin()
    with pytest.raises(lamina.ArgumentError, match="must return tensors, not str"):
        Wrong(lamina.ones(2)).exp()


def test_a_view_may_be_answered_with_a_plain_tensor():
    class Held(Wrapped):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            return func(*[x.elem if isinstance(x, cls) else x for x in args])

    x = Held(lamina.arange(6.0).reshape(2, 3))
    for found, values in ((x[0], [0, 1, 2]), (x.T[1], [1, 4]), (x[:, 1:].reshape(-1), [1, 2, 4, 5])):
        assert type(found) is lamina.Tensor and found.tolist() == values
        assert found.device == lamina.device("cpu") and "wrapped" not in repr(found)


def test_arrays_without_values_answer_no_method_of_numpys_with_one():
    array = lamina.empty(3, 3, device="meta")._data
    operands = {
        "dot": (array,), "take": ([0],), "repeat": (2,), "choose": ([array],), "compress": ([True],),
        "put": ([0], [1]), "searchsorted": (1,), "argpartition": (0,), "partition": (0,), "reshape": (9,),
        "astype": (float,), "clip": (0, 1), "resize": (9,), "setfield": (1, np.int8), "getfield": (np.int8,),
        "swapaxes": (0, 1), "fill": (1,), "to_device": ("cpu",), "tofile": ("none",), "dump": ("none",),
    }  # fmt: skip
    for name in sorted(n for n in dir(np.ndarray) if not n.startswith("_") and n != "setflags"):
        method = getattr(array, name)
        if callable(method):
            try:
                found = method(*operands.get(name, ()))
            except (NoValuesError, ValueError):  # resize refuses any array like it
                continue
            assert isinstance(found, NoValues), name
