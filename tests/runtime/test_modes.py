"""Gradients on and off, inference, anomalies, recorders: per thread, nested, on functions, generators."""

import contextlib
import threading

import numpy as np
import pytest

import lamina
from lamina.ir.errors import ArgumentError, GradError, InplaceError
from lamina.runtime import modes

KINDS = [
    (lamina.no_grad, False), (lamina.enable_grad, True), (lamina.inference_mode, False),
    (lambda: lamina.set_grad_enabled(False), False), (lambda: lamina.set_grad_enabled(True), True),
]  # fmt: skip


@pytest.fixture(autouse=True)
def ordinary_before_and_after():
    assert not modes.CHANGED and lamina.is_grad_enabled()
    yield
    left = len(modes.CHANGED), lamina.is_grad_enabled(), lamina.is_inference_mode_enabled(), modes.local.hook
    modes.local.entered.clear()  # so that one failure is not that of all tests after it
    modes.update(**modes.ORDINARY)
    assert left == (0, True, False, None)


def records() -> bool:
    """Whether an op on a tensor that requires gradients has a history now."""
    return (lamina.ones(2, requires_grad=True) * 2.0).requires_grad


@pytest.mark.parametrize("mode, on", KINDS)
@pytest.mark.parametrize("outside", [False, True])
def test_a_block_has_its_mode_and_gives_the_old_one_back(mode, on, outside):
    with lamina.set_grad_enabled(outside):
        with mode():
            assert records() is on and lamina.is_grad_enabled() is on
        assert records() is outside and lamina.is_grad_enabled() is outside


@pytest.mark.parametrize("mode, on", KINDS)
def test_an_exception_gives_the_old_mode_back(mode, on):
    with pytest.raises(ValueError), mode():
        raise ValueError
    assert records() and not modes.CHANGED


@pytest.mark.parametrize("mode, on", KINDS)
def test_a_decorated_function_has_the_mode(mode, on):
    @mode()
    def inside(depth):
        """What it says."""
        return [records()] + (inside(depth - 1) if depth else [])

    assert records()
    assert inside(3) == [on] * 4 and inside.__name__ == "inside" and inside.__doc__ == "What it says."
    with lamina.no_grad():
        assert inside(0) == [on]


def test_no_grad_and_inference_mode_decorate_without_a_call():
    @lamina.no_grad
    def first():
        return records()

    @lamina.inference_mode
    def second():
        return records(), lamina.is_inference_mode_enabled()

    assert first() is False and second() == (False, True)


# ---- tensors of inference mode -----------------------------------------------------------------------------
def made_in_inference() -> lamina.Tensor:
    with lamina.inference_mode():
        return lamina.ones(2, 3)


def test_what_is_made_in_inference_mode_is_of_it_but_views_of_others():
    x, array = lamina.ones(2, 3), np.ones(3, np.float32)
    with lamina.inference_mode():
        made = (
            lamina.tensor([1.0]), lamina.as_tensor([1.0]), lamina.from_numpy(array), x + 1, x.max(1).indices,
            lamina.nn.Linear(3, 2)(x), lamina.rand(2), x.clone(), lamina.cat([x, x]),
        )  # fmt: skip
        assert all(y.is_inference() for y in made)
        assert not any(y.is_inference() for y in (x[0], x.t(), x.detach(), lamina.nn.Parameter(x)))
        before = x._version
        x.add_(1)
        assert x._version == before + 1 and not x.is_inference()
    inside = made_in_inference()
    assert inside[0].is_inference() and not (inside + 1).is_inference()
    with pytest.raises(GradError, match="Inference tensors do not track version counter"):
        _ = inside._version


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1), lambda x: x.__setitem__(0, 1.0), lambda x: x[0].zero_(), lambda x: x.normal_(),
        lambda x: x.t_(), lambda x: x.resize_(3, 2), lambda x: lamina.mul(x, x, out=x),
        lambda x: lamina.nn.init.zeros_(x), lambda x: x.copy_(lamina.ones(2, 3)),
        lambda x: x.add_(lamina.ones(2, 3, requires_grad=True)),
    ],
)  # fmt: skip
def test_tensors_of_inference_mode_are_not_written_outside_of_it(write):
    with pytest.raises(InplaceError, match="Inplace update to inference tensor outside InferenceMode"):
        write(made_in_inference())
    with pytest.raises(InplaceError, match="Inplace update to inference"), lamina.inference_mode():
        x = lamina.ones(2, 3)
        with lamina.inference_mode(False):
            write(x)
    x = made_in_inference()
    with lamina.inference_mode():
        write(x)
        assert x.is_inference()
    write(made_in_inference().clone())


def test_what_changes_nothing_is_no_write():
    x, y = made_in_inference(), lamina.ones(2, 3)
    before = y._version
    assert x.squeeze_() is x and x.is_inference() and y.squeeze_()._version == before


def test_parameters_of_inference_mode_are_neither_stepped_nor_asked_for_gradients():
    with lamina.inference_mode():
        model = lamina.nn.Linear(3, 2)
        assert model.weight.requires_grad and model.weight.is_inference()
    for p in model.parameters():
        p.grad = lamina.ones_like(p)
    with pytest.raises(InplaceError, match="Inplace update to inference"):
        lamina.optim.SGD(model.parameters(), lr=0.1).step()
    with pytest.raises(GradError, match="Setting requires_grad=True on inference tensor outside"):
        made_in_inference().requires_grad_()
    x = lamina.ones(2, 3, requires_grad=True)
    x.grad = made_in_inference()
    with pytest.raises(InplaceError, match="Inplace update to inference"):
        x.sum().backward()


def test_what_takes_the_memory_of_a_tensor_of_inference_mode_is_ordinary():
    x, whole = made_in_inference(), lamina.zeros(2, 3)
    whole.data = x
    for y in (x.detach(), x.data, lamina.nn.Parameter(x, False), whole):
        before = x[0, 0].item()
        y.add_(1)
        assert not y.is_inference() and x[0, 0].item() == before + 1
    parameter = lamina.nn.Parameter(x)
    (parameter * 2).sum().backward()
    assert parameter.grad.tolist() == [[2.0] * 3] * 2


def test_a_tensor_of_inference_mode_saved_for_backward_is_guarded():
    w, x = lamina.ones(2, 3, requires_grad=True), made_in_inference()
    (w * x).sum().backward()
    assert w.grad.tolist() == x.tolist()
    y = w * x
    with lamina.inference_mode():
        x.add_(1)
    with pytest.raises(InplaceError, match="changed in place"):
        y.sum().backward()


def test_a_view_made_in_inference_mode_is_not_written_past_the_history_of_its_base():
    base = lamina.ones(2, 3, requires_grad=True) * 1
    with lamina.inference_mode():
        view = base.view(-1)
    with pytest.raises(InplaceError, match="A view was created in inference mode and is being modified"):
        view.add_(1)


def test_inference_is_not_undone_by_enable_grad():
    with lamina.inference_mode(), lamina.enable_grad():
        assert not records() and not lamina.is_grad_enabled()
    with lamina.inference_mode(False):
        assert records()


def test_set_grad_enabled_works_from_where_it_stands():
    before = lamina.set_grad_enabled(False)
    try:
        assert not records()
    finally:
        lamina.set_grad_enabled(True)
    assert records()
    with before:
        assert not records()


def test_what_is_set_inside_a_block_is_of_that_block_alone():
    for block in (lamina.no_grad(), lamina.no_grad()):
        for _ in range(2):
            with block:
                assert not lamina.is_grad_enabled()
                lamina.set_grad_enabled(True)
                assert lamina.is_grad_enabled()
            assert lamina.is_grad_enabled() and not modes.CHANGED
    with lamina.no_grad():
        lamina.autograd.set_detect_anomaly(True)  # of no block: it stays
    assert lamina.is_grad_enabled() and modes.local.anomaly
    lamina.autograd.set_detect_anomaly(False)
    assert not modes.CHANGED


def test_one_object_may_be_entered_again_inside_itself():
    mode = lamina.no_grad()
    with mode:
        with lamina.enable_grad(), mode:
            assert not records()
        assert not records()


def test_a_generator_has_the_mode_only_while_it_runs():
    @lamina.no_grad()
    def numbers():
        got = yield records()
        assert got == "sent"
        yield records()
        return "done"

    generator = numbers()
    assert next(generator) is False and records()
    assert generator.send("sent") is False and records()
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "done"


def test_a_generator_handles_what_is_thrown_into_it():
    heard = []

    @contextlib.contextmanager
    @lamina.no_grad()
    def guarded():
        try:
            yield records()
        except KeyError as error:
            heard.append((error.args, records()))

    with guarded() as inside:
        assert inside is False and records()
        raise KeyError("k")
    assert heard == [(("k",), False)]


def test_a_generator_that_is_closed_ends_in_its_mode():
    ended = []

    @lamina.no_grad()
    def numbers():
        try:
            yield 1
        finally:
            ended.append(records())

    generator = numbers()
    next(generator)
    generator.close()
    assert ended == [False] and records()


def test_threads_have_modes_of_their_own():
    inside, outside, found = threading.Event(), threading.Event(), []

    def other():
        inside.wait(10)
        found.append(records())
        with lamina.no_grad():
            found.append(records())
            found.append(len(modes.CHANGED))
        outside.set()

    thread = threading.Thread(target=other)
    thread.start()
    with lamina.no_grad():
        assert len(modes.CHANGED) == 1
        inside.set()
        assert outside.wait(10)
        assert not records()
    thread.join(10)
    assert found == [True, False, 2]


def test_one_decorated_function_on_many_threads():
    @lamina.no_grad()
    def inside(wait):
        wait.wait(10)
        return records()

    barrier, found = threading.Barrier(8), []
    threads = [threading.Thread(target=lambda: found.append((inside(barrier), records()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert found == [(False, True)] * 8


# ---- anomalies ---------------------------------------------------------------------------------------------
def test_detect_anomaly_names_the_op_and_the_line_of_a_nan():
    x = lamina.tensor([0.0, 1.0], requires_grad=True)
    with lamina.autograd.detect_anomaly():
        y = (x * 0.0).sqrt() * 0.0  # 0 * inf is the gradient of this line
        with pytest.raises(GradError, match="gradient of sqrt to operand 0 is NaN") as caught:
            y.sum().backward()
    assert "0 * inf is the gradient of this line" in "".join(caught.value.__notes__)
    (x * 0.0).sqrt().mul(0.0).sum().backward()  # not looked for outside


def test_detect_anomaly_notes_lines_that_are_not_noted_otherwise():
    x = lamina.ones(2, requires_grad=True)
    assert (x + 1.0).grad_fn.place is None
    with lamina.autograd.detect_anomaly():
        assert (x + 1.0).grad_fn.place is not None
        assert x.sum().grad_fn.place is not None


# ---- recorders ---------------------------------------------------------------------------------------------
def test_a_hook_hears_every_op_with_operands_and_outputs():
    heard = []
    x, w = lamina.ones(2), lamina.ones(2, requires_grad=True)

    def hook(op, attrs, operands, outputs):
        heard.append((op.name, attrs, [o is x or o is w for o in operands], [type(o) for o in outputs]))

    with modes.hooked(hook):
        y = x * w
        y.sum(0)
        x.add_(1.0)
    x * w
    assert [(name, attrs) for name, attrs, _, _ in heard] == [
        ("mul", {}), ("sum", {"dim": (0,), "keepdim": False, "dtype": None}), ("add", {"inplace": True}),
    ]  # fmt: skip
    assert heard[0][2] == [True, True] and all(kinds == [lamina.Tensor] for *_, kinds in heard)
    assert y.requires_grad


def test_a_hook_is_not_told_of_its_own_ops():
    heard = []

    def hook(op, attrs, operands, outputs):
        heard.append((op.name, outputs[0].sum().item()))

    with modes.hooked(hook):
        lamina.ones(2) * 3.0
        lamina.ones(2) * 4.0
    assert [h for h in heard if h[0] == "mul"] == [("mul", 6.0), ("mul", 8.0)]
    assert {name for name, _ in heard} <= {"mul", "ones", "full"}


def test_a_hook_that_raises_leaves_the_mode_right():
    def hook(*_):
        raise KeyError("hook")

    with pytest.raises(KeyError), modes.hooked(hook):
        lamina.ones(2) * 2.0
    assert modes.local.hook is None


def test_a_hook_must_be_callable():
    with pytest.raises(ArgumentError, match="hook must be callable, not int"):
        modes.hooked(3)


def test_a_hook_hears_this_thread_only():
    heard = []
    with modes.hooked(lambda op, *_: heard.append(op.name)):
        thread = threading.Thread(target=lambda: lamina.ones(2) * 2.0)
        thread.start()
        thread.join(10)
    assert heard == []


def test_a_recorder_hears_what_is_no_op():
    heard = []
    x = lamina.ones(2, requires_grad=True)
    with modes.hooked(lambda *_: None, lambda kind, *what: heard.append((kind, *what))):
        y = x.sum()
        if y > 1:
            y.item()
        state = lamina.rand(2)
        y.backward()
        lamina.tensor([1.0])
    kinds = [kind for kind, *_ in heard]
    assert kinds.count("escape") == 2 and {"drawn", "backward", "gradients", "made"} <= set(kinds)
    assert [(how, value) for kind, *what in heard if kind == "escape" for _, how, value in [what]] == [
        ("bool", True), ("item", 2.0),
    ]  # fmt: skip
    assert modes.local.notice is None and state.shape == (2,)


def test_everything_in_backward_is_an_op_while_somebody_listens():
    heard = []
    x, w = lamina.ones(2, requires_grad=True), lamina.ones(2, requires_grad=True)
    for _ in range(2):
        loss = (x * w).exp().sum() + (x * 2.0).sum()
        with modes.hooked(lambda op, *_: heard.append(op.name)):
            loss.backward()
    assert heard.count("mul") >= 8 and "expand" in heard and "add" in heard
    # twice e + 2: an exponential, and three sums and products
    np.testing.assert_allclose(x.grad._data, [2 * (np.e + 2)] * 2, rtol=5 * 2.0**-24)


def test_hidden_outputs_are_told_as_well():
    heard = []
    with modes.hooked(lambda op, attrs, operands, outputs: heard.append((op, len(outputs)))):
        lamina.nn.functional.max_pool2d(lamina.ones(1, 1, 4, 4), 2)
    assert all(count == len(op.all_outputs) for op, count in heard if op.hidden) and any(
        op.hidden for op, _ in heard
    )
