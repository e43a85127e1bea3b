"""The backward walk: what each fault of a naive engine would break."""

import gc
import sys
import weakref

import numpy as np
import pytest

import lamina
from lamina import Tensor
from lamina.ir.errors import ArgumentError, GradError, ShapeError
from lamina.runtime import grad, kernels, ops, plan


def leaf(*values: float, dtype=None) -> Tensor:
    return lamina.tensor(list(values), dtype=dtype, requires_grad=True)


# ---- the faults of a naive engine --------------------------------------------------------------------------
def test_leaf_gradients_never_alias_each_other():
    x, y = leaf(1.0, 2.0), leaf(3.0, 4.0)
    (x + y).sum().backward()
    assert x.grad is not y.grad
    x.grad.add_(1.0)
    assert y.grad.tolist() == [1.0, 1.0]


def test_leaf_gradients_never_alias_the_given_cotangent():
    x, g = leaf(1.0, 2.0), lamina.tensor([5.0, 6.0])
    (x + 0.0).backward(g)
    g.zero_()
    assert x.grad.tolist() == [5.0, 6.0]
    x.grad.zero_()
    assert g.tolist() == [0.0, 0.0]


def test_leaf_gradients_never_alias_a_saved_array():
    x, w = leaf(1.0, 1.0), leaf(3.0, 4.0)
    y = x * w
    y.backward(lamina.ones(2), retain_graph=True)
    x.grad.mul_(100.0)
    assert w.tolist() == [3.0, 4.0]


def test_leaf_gradient_of_a_view_is_memory_of_its_own():
    x = lamina.ones(2, 3, requires_grad=True)
    g = lamina.ones(3, 2)
    x.t().backward(g)
    x.grad.zero_()
    assert g.tolist() == [[1.0, 1.0]] * 3


def test_an_exception_in_a_backward_leaves_the_next_one_right():
    class Fails(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            if fail:
                raise ValueError("planned")
            return g * 2

    x = leaf(1.0, 2.0)
    z = (Fails.apply(x * 3) + x * 5).sum()
    fail = True
    with pytest.raises(ValueError, match="planned") as caught:
        z.backward(retain_graph=True)
    assert any("while differentiating Fails" in note for note in caught.value.__notes__)
    x.grad = None
    fail = False
    z.backward()
    assert x.grad.tolist() == [11.0, 11.0]


def test_gradients_are_on_again_after_an_exception_in_a_backward():
    class Fails(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        Fails.apply(leaf(1.0)).backward()
    assert lamina.is_grad_enabled()
    assert (leaf(1.0) * 2).requires_grad


def test_an_int_tensor_times_a_float_is_floating():
    assert (lamina.tensor([1, 2], dtype=lamina.int32) * 2.5).tolist() == [2.5, 5.0]


def test_a_negative_zero_scalar_keeps_its_sign():
    x = lamina.tensor([1.0, 2.0])
    assert (x * 0.0).tolist() == [0.0, 0.0]
    assert np.signbit((x * -0.0).numpy()).all()
    assert not np.signbit((x * 0.0).numpy()).any()


def test_scalar_memo_is_bounded():
    x = lamina.tensor([1.0])
    for i in range(2000):
        x * (i + 0.5)
    assert len(x._meta.scalars) <= 256


def test_a_write_after_saving_is_seen_though_nothing_was_written_before():
    x = leaf(1.0, 2.0)
    y = x + 0.0
    z = y * y
    y.add_(1.0)
    with pytest.raises(lamina.InplaceError):
        z.sum().backward()


def test_a_float64_cotangent_does_not_widen_float32():
    x = leaf(1.0, 2.0)
    y = (x * 2.0).sum()
    (y * lamina.tensor(3.0, dtype=lamina.float64)).backward()
    assert x.grad.dtype is lamina.float32
    assert x.grad.tolist() == [6.0, 6.0]


# ---- accumulation and reuse --------------------------------------------------------------------------------
def test_gradients_accumulate_over_backwards():
    x = leaf(1.0, 2.0)
    kept = None
    for n in (1, 2, 3):
        (x * 2.0).sum().backward()
        assert x.grad.tolist() == [2.0 * n, 2.0 * n]
        assert kept is None or x.grad is kept
        kept = x.grad


def test_a_value_used_twice_gets_both_cotangents():
    x = leaf(3.0)
    y = x * x
    (y * x + y).backward()
    assert x.grad.tolist() == [3 * 9.0 + 2 * 3.0]


def test_a_second_backward_says_what_freed_the_first():
    x = leaf(2.0)
    y = x * x
    y.backward()
    with pytest.raises(GradError, match="a second time") as caught:
        y.backward()
    assert "retain_graph=True" in str(caught.value)
    assert "test_autograd.py" in str(caught.value)


def test_retain_graph_allows_a_second_backward():
    x = leaf(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8.0]


def test_backward_needs_one_element_or_a_gradient():
    with pytest.raises(GradError, match="one element"):
        (leaf(1.0, 2.0) * 2).backward()
    with pytest.raises(ShapeError, match="shape of the output"):
        (leaf(1.0, 2.0) * 2).backward(lamina.ones(3))


def test_backward_from_a_tensor_without_history_is_refused():
    with pytest.raises(GradError, match="does not require gradients"):
        lamina.tensor(1.0).backward()


def test_only_floats_require_gradients():
    with pytest.raises(GradError, match="Only Tensors of floating point"):
        lamina.tensor([1, 2], requires_grad=True)


def test_broadcast_operands_get_gradients_of_their_own_shape():
    a, b = lamina.ones(3, 1, requires_grad=True), lamina.ones(4, requires_grad=True)
    (a * b).sum().backward()
    assert a.grad.shape == (3, 1) and a.grad.flatten().tolist() == [4.0] * 3
    assert b.grad.shape == (4,) and b.grad.tolist() == [3.0] * 4


def test_a_part_of_the_outputs_may_be_unused():
    x = lamina.tensor([3.0, 1.0, 2.0], requires_grad=True)
    values, indices = x.sort()
    assert not indices.requires_grad
    values[2].backward()
    assert x.grad.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ["max", "min", "median", "nanmedian"])
def test_extremes_of_all_elements_share_their_gradient(name):
    nan = float("nan")
    ties = [1.0, 0.0, 1.0] if name == "max" else [0.0, 1.0, 0.0]
    cases = [(ties, ties if name == "max" else [1.0, 0.0, 1.0]), ([nan] * 3, [1.0] * 3)]
    cases.append(([2.0, nan, nan], [1.0, 0.0, 0.0] if name == "nanmedian" else [0.0, 1.0, 1.0]))
    for values, wins in cases:
        x = leaf(*values)
        getattr(lamina, name)(x).backward()
        assert np.allclose(x.grad.numpy(), np.array(wins) / sum(wins)), values


def test_fmax_and_fmin_give_the_gradient_at_ties_to_the_first():
    for function in (lamina.fmax, lamina.fmin):
        x, y = leaf(1.0, float("nan")), leaf(1.0, 1.0)
        function(x, y).sum().backward()
        assert x.grad.tolist() == [1.0, 0.0] and y.grad.tolist() == [0.0, 1.0]


def test_a_leaf_that_is_set_to_other_memory_stays_a_leaf():
    x = lamina.nn.Parameter(lamina.ones(5))
    for size in (4, 3):
        with lamina.no_grad():
            x.set_(x[1:])
            x.grad = None
        lamina.cat((x, x)).sum().backward()
        assert x.is_leaf and x.grad.tolist() == [2.0] * size


# ---- grad() ------------------------------------------------------------------------------------------------
def test_grad_leaves_leaves_alone():
    x = leaf(2.0)
    (g,) = grad(x * x, x)
    assert g.tolist() == [4.0] and x.grad is None


def test_grad_of_an_intermediate_and_a_leaf_at_once():
    x = leaf(2.0)
    y = x * x
    gy, gx = grad(y * 3, (y, x))
    assert gy.tolist() == [3.0] and gx.tolist() == [12.0]


def test_grad_runs_only_what_lies_between():
    class Never(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise AssertionError("this branch leads to no input")

    x, w = leaf(2.0), leaf(3.0)
    (g,) = grad(x * 2 + Never.apply(w), x)
    assert g.tolist() == [2.0]


def test_grad_of_an_unused_input():
    x, y = leaf(2.0), leaf(3.0)
    with pytest.raises(GradError, match="do not depend on input 1"):
        grad(x * 2, (x, y))
    assert grad(x * 2, (x, y), allow_unused=True)[1] is None
    assert grad(x * 2, (x, y), allow_unused=True, materialize_grads=True)[1].tolist() == [0.0]


def test_create_graph_differentiates_to_third_order():
    x = leaf(2.0)
    (g1,) = grad(x**4, x, create_graph=True)
    (g2,) = grad(g1, x, create_graph=True)
    (g3,) = grad(g2, x)
    assert (g1.item(), g2.item(), g3.item()) == (32.0, 48.0, 48.0)


def test_backward_with_create_graph_gives_differentiable_gradients():
    x = leaf(2.0)
    (x**3).backward(create_graph=True)
    assert x.grad.requires_grad
    (g,) = grad(x.grad, x)
    assert g.item() == 12.0


def test_backward_into_chosen_inputs_only():
    x, w = leaf(2.0), leaf(3.0)
    (x * w).backward(inputs=[w])
    assert x.grad is None and w.grad.tolist() == [2.0]


# ---- hooks -------------------------------------------------------------------------------------------------
def test_a_hook_replaces_the_whole_gradient_of_its_tensor():
    x = leaf(1.0)
    y = x * 2
    z = y * 3 + y * 5  # made before the hook
    seen = []
    y.register_hook(lambda g: seen.append(g.item()) or g * 10)
    z.backward()
    assert seen == [8.0] and x.grad.tolist() == [160.0]


def test_a_hook_can_be_removed():
    x = leaf(1.0)
    handle = x.register_hook(lambda g: g * 10)
    handle.remove()
    (x * 2).backward()
    assert x.grad.tolist() == [2.0]


def test_a_hook_of_one_output_of_several():
    x = lamina.tensor([3.0, 1.0], requires_grad=True)
    values, _ = x.sort()
    values.register_hook(lambda g: g * 2)
    values.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_a_hook_must_keep_the_shape():
    x = leaf(1.0, 2.0)
    x.register_hook(lambda g: g.sum())
    with pytest.raises(ShapeError, match="must keep the gradient's shape"):
        (x * 2).sum().backward()


def test_a_hook_after_accumulation_gets_the_tensor():
    x = leaf(1.0)
    seen = []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.item()))
    (x * 2).backward()
    assert seen == [2.0]


def test_retain_grad_keeps_an_intermediate_gradient():
    x = leaf(1.0)
    y = x * 2
    with pytest.warns(UserWarning, match="no leaf"):
        assert y.grad is None
    y.retain_grad()
    (y * 3).backward()
    assert y.grad.tolist() == [3.0]


def test_a_backward_inside_a_hook_is_a_run_of_its_own():
    x, w = leaf(2.0), leaf(5.0)

    def hook(g):
        with lamina.enable_grad():
            (w * w).backward()

    y = x * 3
    y.register_hook(hook)
    (y * y).backward()
    assert w.grad.tolist() == [10.0]
    assert x.grad.tolist() == [36.0]


# ---- custom functions --------------------------------------------------------------------------------------
class Cube(lamina.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * x * factor

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * x * (3 * ctx.factor), None


def test_a_custom_function_differentiates_to_second_order():
    x = leaf(2.0, dtype=lamina.float64)
    assert lamina.autograd.gradcheck(lambda t: Cube.apply(t, 2.0), x)
    assert lamina.autograd.gradgradcheck(lambda t: Cube.apply(t, 2.0), x)


def test_a_custom_function_notices_a_changed_saved_tensor():
    x = leaf(2.0) + 0.0
    y = Cube.apply(x, 1.0)
    x.add_(1.0)
    with pytest.raises(lamina.InplaceError, match="changed in place") as caught:
        y.backward()
    assert "Cube" in str(caught.value)


def test_a_custom_function_with_the_wrong_number_of_gradients():
    class Wrong(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(
        GradError, match="incorrect number of gradients .expected 2, got 1.: one for each argument"
    ):
        Wrong.apply(leaf(1.0), leaf(2.0)).backward()


def test_save_for_backward_takes_tensors_only():
    class Wrong(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(3)
            return x

    with pytest.raises(ArgumentError, match="takes tensors"):
        Wrong.apply(leaf(1.0))


def test_custom_function_with_several_outputs():
    class Both(lamina.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return a * 2 + b * 3

    x = leaf(1.0)
    doubled, tripled = Both.apply(x)
    tripled.backward(retain_graph=True)
    assert x.grad.tolist() == [3.0]
    (doubled + tripled).backward()
    assert x.grad.tolist() == [8.0]


# ---- depth, memory -----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_million_node_chain_runs_backward_and_is_freed():
    x = leaf(1.0)
    y = x
    for _ in range(1_000_000):
        y = y + 0.0
    y.backward()
    assert x.grad.tolist() == [1.0]
    del y


def test_a_deep_chain_runs_backward_and_is_freed():
    x = leaf(1.0)
    y = x
    for _ in range(20 * sys.getrecursionlimit()):
        y = y + 0.0
    y.backward()
    assert x.grad.tolist() == [1.0]
    del y


def test_history_is_freed_by_reference_counting_alone():
    gc.collect()
    gc.disable()
    try:
        x = leaf(1.0, 2.0)
        y = (x * x).sort().values.exp()
        watch = weakref.ref(y)
        z = y.sum()
        z.backward()
        del y, z
        assert watch() is None
        assert gc.collect() == 0
    finally:
        gc.enable()


def small_step(x: Tensor, w: Tensor) -> None:
    y = ops.relu(x @ w) * 1.0
    y[0].mul_(2.0)
    values, _ = (y * y).max(1)
    (values.sum() + y.softmax(1).sum()).backward()
    w.grad = None


def test_nothing_leaks_over_many_steps_with_the_collector_off(monkeypatch):
    for name in ("CALLS", "LOOK", "COMPILE"):  # making code leaves cycles, of no more than a few kernels
        monkeypatch.setattr(kernels, name, 2)
    plan._forget(), kernels.forget()  # plans of other tests count their calls by what held then
    x, w = lamina.ones(3, 4), lamina.ones(4, 5, requires_grad=True)
    for _ in range(100):
        small_step(x, w)
    gc.collect()
    gc.disable()
    try:
        before = len(gc.get_objects())
        for _ in range(10_000):
            small_step(x, w)
        assert len(gc.get_objects()) - before < 100
    finally:
        gc.enable()


def test_nodes_are_of_classes_with_their_names():
    x = lamina.ones(3, requires_grad=True)
    y = (x * 2).exp() + x.amax(0)
    found, nodes = [], [y.grad_fn]
    while nodes:  # as programs that draw history go through it
        node = nodes.pop(0)
        found.append(type(node).__name__)
        nodes += [below for below, _ in node.next_functions if below is not None]
    assert found == [
        "AddBackward0", "ExpBackward0", "AmaxBackward0", "MulBackward0", "AccumulateGrad", "AccumulateGrad",
    ]  # fmt: skip
    seen = []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(inputs)))
    assert type(y.grad_fn).__name__ == "AddBackward0"
    y.sum().backward()
    assert seen == [2]


def test_what_a_hook_leaves_on_a_gradient_the_next_finds():
    x = lamina.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    found = []
    y.register_hook(lambda g: setattr(g, "tag", 5))
    y.register_hook(lambda g: found.append(g.tag))
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: found.append(hasattr(g, "tag")))
    y.sum().backward()
    assert found == [5, False] and x.grad.tolist() == [6.0, 6.0]
