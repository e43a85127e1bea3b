"""Eager ops on large arrays as native code: as NumPy does them, for every record; when they change over."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina.ir.dtypes import bfloat16, float16, float32, int64
from lamina.ir.lowering import NotLowered
from lamina.ir.op import REGISTRY
from lamina.ir.sample import Operand
from lamina.runtime import compile_op, kernels, memory
from lamina.runtime.calls import eager
from lamina.runtime.plan import Plan

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples as arrays
from checks import taken
from harness import (
    EPS,
    LAYOUTS,
    assert_near,
    bound,
    cases,
    cotangents_for,
    gradients,
    held,
    needs_of,
    saved_of,
)

LOWERED = sorted(
    name
    for name, op in REGISTRY.items()
    if not isinstance(op.lower, NotLowered) and not op.traits.view and not op.traits.host and op.operands
)
QUICK = LOWERED[:: len(LOWERED) // 24]


@pytest.fixture
def at_once(monkeypatch):
    """Every op with an array of any elements is native from its first call on."""
    monkeypatch.setattr(kernels, "WHEN", kernels.AT_ONCE)
    for name in ("LEAST", "PLAIN_LEAST"):
        monkeypatch.setattr(kernels, name, 0)
    monkeypatch.setattr(kernels, "SLOWER", frozenset())
    kernels.forget()
    yield
    kernels.forget()


def agrees(case) -> bool:
    """Whether the case is one for native code, whose outputs are then checked."""
    plan = Plan(case.op, case.types, case.attrs)
    if not isinstance(plan.kernel, kernels.Large):
        return False
    with np.errstate(all="ignore"):
        plan.kernel(*case.operands)  # the first may look at what the reference makes of a layout
        found = plan.kernel(*case.operands)
    found = found if isinstance(found, tuple) else (found,)
    wanted, exact = case.run(), case.widened().run()
    floats = [t.dtype for t in (*case.types, *plan.outs) if t and t.dtype.is_floating_point]
    dtype = max(floats, key=EPS.__getitem__, default=float32)
    names = zip(case.names, found, wanted, exact, bound(case, exact, dtype), strict=True)
    for name, got, want, y, limit in names:
        assert type(got) is np.ndarray and got.dtype == want.dtype, f"{case}: {name} is {got.dtype}"
        if want.dtype.kind in "iub":
            limit, y = 0.0, want
        else:
            y = held(y, want.dtype)
        assert_near(got, y, limit, f"{case}: {name}")
        if (
            case.op.traits.elementwise and case.op.name != "copy"
        ):  # which the runtime writes into a tensor there is
            assert got.flags.c_contiguous == want.flags.c_contiguous, (
                f"{case}: {name}'s strides {got.strides}"
            )
    return True


def tried(name: str, dtypes, layouts, count: int) -> int:
    op = REGISTRY[name]
    return sum(
        agrees(case)
        for dtype in taken(op, dtypes)
        for layout in layouts
        for case in cases(op, dtype, layout, count=count)
    )


@pytest.mark.parametrize("name", QUICK)
def test_record_is_native_in_eager(name, at_once):
    tried(name, (float32, float16, int64), LAYOUTS[:2], 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", LOWERED)
def test_every_record_is_native_in_eager(name, at_once):
    assert tried(name, (float32, float16, bfloat16, int64), LAYOUTS, 3)


# ---- gradients
def gradients_agree(case) -> bool:
    plan = Plan(case.op, case.types, case.attrs)
    plan_gradients = kernels.choose_backward(case.op, case.types, case.attrs, plan.outs)
    if plan_gradients is None or not any(needs_of(case)):
        return False
    outputs = case.run()
    visible = cotangents_for(case, outputs)
    cotangents = (*visible, *[None] * (len(outputs) - len(visible)))
    saved = saved_of(case.op, case.operands, outputs)
    with np.errstate(all="ignore"):
        found = plan_gradients(saved, cotangents, needs_of(case))
    if found is None:
        return False
    terms = max(x.size for x in (*case.operands, *outputs) if x is not None)
    wanted = [g for g in gradients(case, cotangents, outputs) if g is not None]
    for got, want in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape) == (want.dtype, want.shape), str(case)
        # both sum at most `terms` terms, in another order, and round some 16 times around that
        scale = np.abs(want[np.isfinite(want)]).max(initial=1.0)
        assert_near(got, want, (terms + 16) * EPS[float32] * scale, f"the gradient of {case}")
    return True


DIFFERENTIABLE = [name for name in LOWERED if REGISTRY[name].differentiable]


def gradients_tried(name: str, layouts, count: int) -> int:
    op = REGISTRY[name]
    return sum(
        gradients_agree(case)
        for layout in layouts
        for case in cases(op, float32, layout, count=count)
        if case.sample.differentiable
    )


@pytest.mark.parametrize("name", ["gelu", "softmax", "layer_norm", "linear", "max_pool2d", "where"])
def test_gradients_are_computed_at_once(name, at_once):
    assert gradients_tried(name, LAYOUTS[:2], 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_all_gradients_agree_with_the_rules(name, at_once):
    gradients_tried(name, LAYOUTS, 3)


SEVERAL = [
    name for name in DIFFERENTIABLE if REGISTRY[name].traits.elementwise and REGISTRY[name].operands[1:]
]


@pytest.mark.parametrize("name", SEVERAL)
def test_one_operand_of_a_large_call_may_want_its_gradient(name):
    """What is saved depends on which do: for some nothing is, of an op that else saves operands."""
    op, generator = REGISTRY[name], np.random.default_rng(0)
    example = next(s for s in op.samples() if s.args[0].shape)
    made = [Operand((20_000,) if x.shape else (), 0.5, 0.9, x.category) for x in example.args]
    arrays = [x.array(generator, np.dtype(np.float32)) for x in made]
    for position, operand in enumerate(made):
        if not op.differentiates(position) or operand.category in ("int", "bool") or not operand.shape:
            continue
        gradients = []
        for size in (20_000, 10):
            operands = [lamina.tensor(x[:size] if x.ndim else x) for x in arrays]
            wanted = operands[position].requires_grad_()
            out = eager(op)(*operands, **example.kwargs)
            gradients += lamina.autograd.grad(out.sum(), wanted)
        # The same rule on the same numbers, by NumPy or compiled: a few roundings of values near 1.
        assert_near(gradients[0].numpy()[:10], gradients[1].numpy(), 16 * EPS[float32], f"{name} {position}")


def test_gradient_that_is_its_cotangent_is_left_to_the_rule(at_once):
    t = lamina.ones(4, 4)._meta
    found = kernels.choose_backward(REGISTRY["add"], (t, t), {}, (t,))
    assert found((), (np.ones((4, 4), np.float32),), (True, True)) is None


def test_training_step_is_the_same(monkeypatch):
    def trained(when: int) -> list[np.ndarray]:
        monkeypatch.setattr(kernels, "WHEN", when)
        monkeypatch.setattr(kernels, "LEAST", 64)
        kernels.forget()
        lamina.manual_seed(0)
        model = lamina.nn.Sequential(
            lamina.nn.Conv2d(3, 16, 3), lamina.nn.BatchNorm2d(16), lamina.nn.ReLU(), lamina.nn.MaxPool2d(2),
            lamina.nn.Flatten(), lamina.nn.Linear(16 * 9, 37),
        )  # fmt: skip
        optimizer = lamina.optim.Adam(model.parameters(), lr=1e-2)
        x, label = lamina.randn(5, 3, 8, 9), lamina.tensor([1, 36, 0, 5, 5])
        for _ in range(3):
            optimizer.zero_grad()
            F.cross_entropy(model(x[..., :8]), label).backward()
            optimizer.step()
        return [p.detach().numpy() for p in model.parameters()]

    for got, want in zip(trained(kernels.AT_ONCE), trained(kernels.NEVER), strict=True):
        # three steps of at most lr each; the direction of one is off by the relative error of the gradients
        np.testing.assert_allclose(got, want, atol=3e-2 * 1e-3)
    kernels.forget()


# ---- updates
@pytest.mark.parametrize("dtype", [lamina.float32, lamina.float64, lamina.float16])
@pytest.mark.parametrize(
    "make",
    [
        lambda p: lamina.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
        lambda p: lamina.optim.AdamW(p, lr=0.1, amsgrad=True),
        lambda p: lamina.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.5),
    ],
)
def test_update_writes_the_same_in_place(make, dtype, monkeypatch):
    draw = np.random.default_rng(0)
    start, slope = draw.standard_normal((2, 9, 7))

    def updated(when: int) -> tuple[np.ndarray, int]:
        monkeypatch.setattr(kernels, "WHEN", when)
        monkeypatch.setattr(kernels, "LEAST", 8)
        kernels.forget()
        p = lamina.nn.Parameter(lamina.tensor(start, dtype=dtype))
        optimizer, data = make([p]), p._data
        for n in range(3):
            p.grad = lamina.tensor(slope * (n + 1), dtype=dtype)
            optimizer.step()
        assert p._data is data
        return data, sum(large.dense.run != large.dense.count for large in kernels._known.values())

    (got, native), (want, none) = updated(kernels.AT_ONCE), updated(kernels.NEVER)
    assert native and not none
    # some ten roundings a step, in values of up to 4
    np.testing.assert_allclose(got, want, rtol=0, atol=3 * 10 * EPS[dtype] * 4)


# ---- layouts
def test_result_keeps_the_order_that_the_reference_keeps(at_once):
    x = lamina.randn(6, 40).t()
    for _ in range(2):
        assert x.exp().stride() == (1, 40)
        assert x.clone().stride() == (1, 40)
        assert x.contiguous().stride() == (6, 1)
        assert (x + lamina.tensor(1.0)).stride() == (1, 40)
        assert (x + lamina.ones(40, 6)).stride() == (6, 1)
        np.testing.assert_array_equal((x + lamina.ones(40, 6)).numpy(), x.numpy() + 1)
        np.testing.assert_array_equal(x.contiguous().numpy(), x.numpy())
        np.testing.assert_array_equal((-x).numpy(), -x.numpy())


def test_repeated_and_sliced_operands(at_once):
    x, row = lamina.randn(40, 6), lamina.randn(6)
    expanded, sliced = row.expand(40, 6), x[:, 1:4]
    for _ in range(2):
        np.testing.assert_array_equal((expanded * x).numpy(), row.numpy() * x.numpy())
        np.testing.assert_array_equal(expanded.neg().numpy(), -expanded.numpy())
        np.testing.assert_array_equal(sliced.square().numpy(), sliced.numpy() ** 2)
        np.testing.assert_allclose(expanded.sum(1).numpy(), np.full(40, row.numpy().sum()), rtol=1e-5)


# ---- changing over
def states(op: str) -> list[str]:
    return [large.dense.run.__name__ for key, large in kernels._known.items() if key[0].name == op]


@pytest.fixture
def counted(monkeypatch):
    """Native code is compiled when 2500 elements have been read; there is none on disk."""
    monkeypatch.setattr(kernels, "WHEN", kernels.EARNED)
    monkeypatch.setattr(kernels, "LEAST", 10)
    monkeypatch.setattr(kernels, "LOOK", 1500)
    monkeypatch.setattr(kernels, "COMPILE", 2500)
    monkeypatch.setattr(kernels, "_seen", 2500)
    monkeypatch.setattr(compile_op.Draft, "is_cached", False)
    kernels.forget()
    yield
    kernels.forget()


def test_op_changes_over_when_it_has_earned_it(counted):
    x = lamina.rand(1000)
    seen = []
    for _ in range(3):
        x.exp()
        seen += states("exp")
    assert seen == ["count", "count", "first"]


def test_what_is_dear_to_numpy_earns_code_by_what_it_takes(counted):
    """An element of lgamma counts as 108: 12 of them are beyond LEAST, and two calls beyond COMPILE."""
    x = lamina.rand(12)
    seen = []
    for _ in range(3):
        x.lgamma()
        seen += states("lgamma")
    assert seen == ["count", "first", "first"]


def test_attention_earns_code_by_its_scores(counted):
    """Operands of 135 elements give 225 scores, which are gone over some eight times."""
    q, k, v = (lamina.rand(15, 3) for _ in range(3))
    seen = []
    for _ in range(3):
        lamina.nn.functional.scaled_dot_product_attention(q, k, v)
        seen += states("attention")
    assert seen == ["count", "general", "general"]


def test_convolutions_earn_code_by_their_windows(counted):
    """An image of 100 elements has 900 of windows."""
    x, weight = lamina.rand(1, 1, 10, 10), lamina.rand(1, 1, 3, 3)
    seen = []
    for _ in range(4):
        lamina.conv2d(x, weight)
        seen += states("conv2d")
    assert seen == ["count", "count", "general", "general"]


def test_op_changes_over_sooner_to_what_is_compiled_already(counted, monkeypatch):
    monkeypatch.setattr(compile_op.Draft, "is_cached", True)
    x = lamina.rand(1001)  # not that of the test above, whose plan is remembered
    seen = []
    for _ in range(2):
        x.exp()
        seen += states("exp")
    assert seen == ["count", "first"]


def test_small_arrays_are_left_alone(counted):
    x = lamina.rand(10)
    for _ in range(1000):
        x.exp()
    assert not states("exp")
    assert Plan(REGISTRY["exp"], (x._meta,), {}).kernel is np.exp


def test_small_gradients_by_tuples_of_indices_are_the_same_once_they_have_earned_code(monkeypatch):
    kernels.forget()
    monkeypatch.setattr(kernels, "CALLS", 20)
    monkeypatch.setattr(kernels, "_seen", kernels.COMPILE)
    x = lamina.rand(3, 19, dtype=lamina.float64, requires_grad=True)
    rows, columns, kept = lamina.tensor([2, -1, 2]), lamina.tensor([0, 1, 0]), lamina.rand(3, 19) > 0.3
    picks = [(rows, columns), (rows,), (slice(None), columns), (kept,), (..., kept[0])]
    for pick in picks:
        factor = lamina.rand_like(x[pick])
        want = np.zeros(x.shape)
        np.add.at(want, tuple(i.numpy() if isinstance(i, lamina.Tensor) else i for i in pick), factor.numpy())
        for _ in range(60):
            (got,) = lamina.autograd.grad((x[pick] * factor).sum(), x)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-15)


def test_failure_is_told_once_and_numpy_goes_on(at_once, monkeypatch):
    def broken(self, *what):
        raise ValueError("no such register")

    x, longer = lamina.rand(3, 11, 13), lamina.rand(4, 11, 13)  # shapes that no other test has planned for
    monkeypatch.setattr(compile_op.Draft, "__init__", broken)
    monkeypatch.setattr(kernels, "_warned", set())
    with pytest.warns(RuntimeWarning, match="no such register(.|\n)*lamina info(.|\n)*LAMINA_NATIVE=0"):
        y = x.exp()
    np.testing.assert_array_equal(y.numpy(), np.exp(x.numpy()))
    x.exp(), longer.exp()  # warnings are errors here


def test_index_out_of_range_is_told_as_by_numpy(at_once, monkeypatch):
    x = lamina.rand(5, 7)
    call = lambda: x.index_select(0, lamina.tensor([0, 5]))  # noqa: E731
    with pytest.raises(Exception) as native:
        call()
    monkeypatch.setattr(kernels, "WHEN", kernels.NEVER)
    x = lamina.rand(5, 8)
    with pytest.raises(type(native.value)) as plain:
        call()
    assert str(native.value).splitlines()[0] == str(plain.value).splitlines()[0]


def test_switch_and_import():
    """NumPy alone until something is called often; LAMINA_NATIVE=0: for good; 1: compiled at once."""
    code = (
        "import sys, lamina; x = lamina.ones(300, 300); assert 'llvmlite' not in sys.modules; x.exp(); "
        "print('llvmlite' in sys.modules)"
    )
    for value, loaded in (("0", "False"), ("", "False"), ("1", "True")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "LAMINA_NATIVE": value},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == loaded


def test_new_large_array_is_known_to_be_alone():
    array = memory.empty((300, 300), np.dtype(np.float32))
    assert memory.is_alone(array)
    view = array[1:]
    assert not memory.is_alone(array) and not memory.is_alone(view)
    del view
    assert memory.is_alone(array)
    assert not memory.is_alone(np.empty((300, 300))[:2])  # it would hold on to the rest


def test_attention_over_slices_of_one_product_is_native(at_once):
    """A copy costs little beside it: 128 tokens of 8 heads take half of NumPy's time."""
    whole = np.random.default_rng(0).standard_normal((1, 40, 3 * 24)).astype(np.float32)
    parts = [whole[..., i : i + 24].reshape(1, 40, 3, 8).swapaxes(1, 2) for i in (0, 24, 48)]
    with lamina.no_grad():
        found = F.scaled_dot_product_attention(*map(lamina.from_numpy, parts), is_causal=True)
        wanted = F.scaled_dot_product_attention(*(lamina.tensor(x.copy()) for x in parts), is_causal=True)
    assert not any(x.flags.c_contiguous for x in parts)
    (large,) = {large for large in kernels._known.values() if large.what.op.name == "attention"}
    assert large.reference not in large.strides.values() and large.strides
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=1e-5, atol=1e-6)
