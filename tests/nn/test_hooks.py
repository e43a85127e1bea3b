"""Functions called around forward and backward."""

import pytest

import lamina
import lamina.nn as nn


class Scale(nn.Module):
    def forward(self, x, by=2.0):
        return x * by


def test_forward_hooks_see_and_replace():
    m, seen = Scale(), []
    first = m.register_forward_pre_hook(lambda module, args: seen.append("pre") or args[0] + 1)
    m.register_forward_hook(lambda module, args, out: seen.append("post") or out * 10)
    assert m(lamina.tensor(1.0)).item() == 40.0
    first.remove()
    first.remove()
    assert m(lamina.tensor(1.0)).item() == 20.0
    assert seen == ["pre", "post", "post"]


def test_hooks_with_kwargs_prepend_and_context():
    m, order = Scale(), []
    m.register_forward_hook(lambda *a: order.append("second"))
    m.register_forward_hook(lambda *a: order.append("first"), prepend=True)
    with m.register_forward_pre_hook(lambda mod, args, kw: (args, {"by": 5.0}), with_kwargs=True):
        assert m(lamina.tensor(1.0), by=3.0).item() == 5.0
    m.register_forward_hook(lambda mod, args, kw, out: out + kw["by"], with_kwargs=True)
    assert m(lamina.tensor(1.0), by=3.0).item() == 6.0
    assert order == ["first", "second"] * 2


def test_forward_hook_always_called():
    class Broken(nn.Module):
        def forward(self, x):
            raise ValueError("broken")

    m, seen = Broken(), []
    m.register_forward_hook(lambda mod, args, out: seen.append("usual"))
    m.register_forward_hook(lambda mod, args, out: seen.append(out), always_call=True)
    with pytest.raises(ValueError, match="broken"):
        m(1)
    assert seen == [None]


def test_hooks_are_checked():
    with pytest.raises(lamina.ArgumentError, match="a hook must be callable, not int"):
        Scale().register_forward_hook(3)
    m = Scale()
    m.register_forward_pre_hook(lambda mod, args, kw: 3, with_kwargs=True)
    with pytest.raises(lamina.ArgumentError, match="must return None or a tuple \\(args, kwargs\\)"):
        m(1)


def test_backward_hook_sees_gradients_of_inputs_and_outputs():
    class Product(nn.Module):
        def forward(self, x, y, factor):
            return x * y * factor

    m, seen = Product(), []
    m.register_full_backward_hook(lambda mod, inputs, outputs: seen.append((inputs, outputs)))
    x, y = (lamina.tensor(v, requires_grad=True) for v in (2.0, 3.0))
    (m(x, y, 4.0) + x * 100).backward()
    (((gx, gy, none), (g,)),) = seen
    assert (gx.item(), gy.item(), none, g.item()) == (12.0, 8.0, None, 1.0)
    assert (x.grad.item(), y.grad.item()) == (112.0, 8.0)


def test_backward_hooks_replace_gradients():
    m = Scale()
    x = lamina.tensor(1.0, requires_grad=True)
    m.register_full_backward_hook(lambda mod, inputs, outputs: (inputs[0] + 1,))
    m.register_full_backward_pre_hook(lambda mod, outputs: outputs[0] * 10)
    m(x).backward()
    assert x.grad.item() == 21.0


def test_backward_hook_without_gradients_of_inputs():
    m, seen = nn.Linear(2, 1), []
    handle = m.register_full_backward_hook(
        lambda mod, inputs, outputs: seen.append((inputs, outputs[0].tolist()))
    )
    m(lamina.ones(1, 2)).sum().backward()
    assert seen == [((None,), [[1.0]])]
    with lamina.no_grad():
        m(lamina.ones(1, 2))
    handle.remove()
    m(lamina.ones(1, 2)).sum().backward()
    assert len(seen) == 1


def test_backward_hooks_are_not_called_by_what_does_not_pass_the_outputs():
    loss, seen = nn.MSELoss(), []
    loss.register_full_backward_hook(lambda *_: seen.append(1))
    x = lamina.tensor([3.0], requires_grad=True)
    found = loss(x, lamina.zeros(1))
    for times in (1, 2):
        (g,) = lamina.autograd.grad(found, x, create_graph=True)
        (h,) = lamina.autograd.grad(g, x)  # reaches x from the formula of the loss's gradient
        assert (len(seen), g.item(), h.item()) == (times, 6.0, 2.0)


def test_backward_hook_twice_differentiable():
    m = Scale()
    m.register_full_backward_hook(lambda mod, inputs, outputs: (inputs[0] * inputs[0],))
    x = lamina.tensor(3.0, requires_grad=True)
    y = m(x * x)
    (g,) = lamina.autograd.grad(y, x, create_graph=True)
    assert g.item() == 4.0 * 2 * 3.0  # (dy/d(x^2))^2 * 2 x
    (h,) = lamina.autograd.grad(g, x)
    assert h.item() == 8.0


def test_every_hook_has_a_handle_of_one_class_which_libraries_make_of_their_own_tables():
    x = lamina.ones(2, requires_grad=True)
    step = lamina.optim.SGD([x], 0.1)
    handles = [
        x.register_hook(lambda g: g),
        (x * 1).grad_fn.register_hook(lambda *_: None),
        step.register_step_post_hook(lambda *_: None),
        nn.Linear(1, 1).register_forward_hook(lambda *_: None),
    ]
    assert all(isinstance(handle, lamina.utils.hooks.RemovableHandle) for handle in handles)
    table = {}
    handle = lamina.utils.hooks.RemovableHandle(table)
    table[handle.id] = print
    with handle:
        assert table
    assert not table


class _Extracting(nn.Module):
    """Keeps what a layer returns, as extractors of features do: `hooks` is a list of its own."""

    def __init__(self, model):
        super().__init__()
        self.model, self.hooks, self.found, self.has_extra_state = model, [], [], False
        self.hooks.append(model[0].register_forward_hook(lambda module, args, out: self.found.append(out)))

    def forward(self, x):
        return self.model(x)


def test_a_module_may_have_attributes_of_any_public_name_that_pytorchs_lacks():
    module = _Extracting(nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    module.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    x = lamina.ones(1, 2)
    y = module(x)
    assert len(module.hooks) == len(module.found) == 1
    assert list(module.state_dict()) == ["model.0.weight", "model.0.bias"]
    module.load_state_dict(module.state_dict())
    assert lamina.jit.trace(module)(x).tolist() == y.tolist()
    for hook in module.hooks:
        hook.remove()
    module.found.clear()
    module(x)
    assert module.found == []
