"""Plans that are made by formulas are those that the rules make, or there are none."""

import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina.ir.dtypes import float32, int64
from lamina.ir.errors import LaminaError
from lamina.ir.op import REGISTRY
from lamina.runtime import forms, kernels
from lamina.runtime.of_symbols import OfSymbols
from lamina.runtime.overriding import OPEN
from lamina.runtime.plan import Plan, _forget

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples
from checks import taken
from harness import cases

OPS = sorted(
    name
    for name, op in REGISTRY.items()
    if op.operands and not op.traits.host and taken(op, (float32, int64))
)
QUICK = OPS[:: len(OPS) // 40]


def others(types, generator):
    """Types of other sizes: of dims that were equal, or of one dim alone."""
    sizes = sorted({n for t in types if t is not None for n in t.shape if n > 1})
    for _ in range(4):
        chosen = dict(zip(sizes, (int(n) for n in generator.integers(2, 40, len(sizes))), strict=True))
        yield tuple(t and t.with_shape(tuple(chosen.get(n, n) for n in t.shape)) for t in types)
    for at, t in enumerate(types):
        for d, n in enumerate(t.shape if t is not None else ()):
            shape = (*t.shape[:d], int(generator.integers(2, 9)), *t.shape[d + 1 :])
            yield (*types[:at], t.with_shape(shape if n > 1 else t.shape), *types[at + 1 :])


def compared(name: str) -> int:
    """How many plans were made by formulas; each is the rules'."""
    op, generator, found = REGISTRY[name], np.random.default_rng(0), 0
    for case in cases(op, taken(op, (float32, int64))[0], "dense", count=6):
        first = Plan(op, case.types, case.attrs)
        form = forms._form_of(first, ())
        if not isinstance(form, forms.Form):
            continue
        for types in (case.types, *others(case.types, generator)):
            if [t and t.form for t in types] != [t and t.form for t in case.types]:
                continue
            made = form.plan(types)
            try:
                wanted = Plan(op, types, case.attrs)
            except LaminaError:
                assert made is None, f"{name} of {types} is refused"
                continue
            if made is not None:
                assert made.outs == wanted.outs, f"{name} of {types}"
                assert made.plan_gradients() == wanted.plan_gradients() and made.floats == wanted.floats
                assert made.simple == wanted.simple and getattr(made, "link", 0) == getattr(wanted, "link", 0)
                assert type(made.kernel) is type(wanted.kernel)
                found += 1
    return found


@pytest.mark.parametrize("name", QUICK)
def test_plans_are_those_of_the_rules(name):
    compared(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_plans_of_every_record_are_those_of_the_rules(name):
    compared(name)


def test_most_records_have_forms():
    ops = OPS[:: len(OPS) // 100]
    assert sum(compared(name) > 0 for name in ops) > 0.8 * len(ops)


def test_sizes_that_must_be_equal_are_compared(monkeypatch):
    assert compared("add")
    monkeypatch.setattr(
        OfSymbols,
        "function",
        lambda self, results, beside=(): lambda types: (types[0].shape, types[0].size),
    )
    with pytest.raises(AssertionError, match="add of"):
        compared("add")


CALLS = {
    "add": lambda x: x + x,
    "row": lambda x: x * x[0],
    "sum": lambda x: x.sum(1),
    "sum_named": lambda x: x.sum(dim=-1, keepdim=True),
    "softmax": lambda x: x.softmax(0),
    "view": lambda x: x.view(-1),
    "flat": lambda x: x.reshape(x.shape[0] * x.shape[1]),
    "one_row": lambda x: x.view(1, -1),
    "pairs": lambda x: x.view(-1, 2) if x.numel() % 2 == 0 else x,
    "slice": lambda x: x[:, 1:],
    "clamped": lambda x: x[4:6],
    "from_behind": lambda x: x[-5:-1, -2],
    "steps": lambda x: x[::3, None, 1:-1:2],
    "expand": lambda x: x[None].expand(2, -1, -1),
    "select": lambda x: x.select(1, -1),
    "unflatten": lambda x: x.flatten().unflatten(0, (1, -1)),
    "split": lambda x: x.split(2)[-1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "narrow": lambda x: x.narrow(1, 0, 2),
    "transpose": lambda x: x.transpose(0, 1),
    "cat": lambda x: lamina.cat((x, x)),
    "cat_parts": lambda x: lamina.cat([x, x[:1], x * 2], 0),
    "cat_none": lambda x: lamina.cat([x[:0].flatten(), x.flatten()]),
    "cat_columns": lambda x: lamina.cat((x, x[:, :2]), -1),
    "stack": lambda x: lamina.stack((x, x), 1),
    "matmul": lambda x: x @ x.t(),
    "pad": lambda x: lamina.nn.functional.pad(x, (1, 2)),
    "exp": lambda x: x.exp(),
    "cast": lambda x: x.to(lamina.float64),
    "where": lambda x: lamina.where(x > 1, x, -x),
    "linear": lambda x: lamina.nn.functional.linear(x, x, x[:, 0]),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_on_many_shapes_give_what_they_give_alone(name):
    """More shapes than make a form, with gradients."""
    _forget()

    def run(n, m):
        x = lamina.tensor(np.arange(n * m, dtype=np.float32).reshape(n, m) / 64, requires_grad=True)
        y = CALLS[name](x)
        (g,) = lamina.autograd.grad((y * y).sum(), x)
        return y.detach().numpy(), g.numpy()

    shapes = [(3 + k % 5, 4 + k) for k in range(3 * forms.MET)]
    found = [run(*shape) for shape in shapes]
    for shape, got in zip(shapes, found, strict=True):
        _forget()
        for one, other in zip(got, run(*shape), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("mode", [nullcontext, lamina.no_grad, lamina.inference_mode])
@pytest.mark.parametrize("name", CALLS)
def test_a_shape_is_met_the_first_time_as_ever_after(name, mode):
    """What has no history needs no plan then."""
    _forget()

    def told(y, x):
        base = y._base
        tied = None if base is None else base is x
        version = None if y.is_inference() else y._version
        return y.numpy(), y.stride(), y.dtype, tied, y.is_inference(), y.requires_grad, version

    with mode():
        for n in range(3, 3 + 4 * forms.MET):
            x = lamina.tensor(np.arange(n * (n + 1), dtype=np.float32).reshape(n, n + 1) / 64)
            first, *others = [told(CALLS[name](x), x) for _ in range(3)]
            for other in others:
                np.testing.assert_array_equal(other[0], first[0])
                assert other[1:] == first[1:]


@pytest.mark.parametrize("made", ["to_sparse_coo", "to_sparse_csr", "nested"])
@pytest.mark.parametrize("name", CALLS)
def test_what_has_no_one_array_is_served_or_refused_as_where_no_shape_was_met(name, made):
    def told(x):
        try:
            with lamina.no_grad():
                return repr(CALLS[name](x))
        except LaminaError as error:
            return f"{type(error).__name__}: {error}"

    dense = lamina.arange(40.0).view(5, 8)
    x = lamina.nested.nested_tensor([dense, dense[:2]]) if made == "nested" else getattr(dense, made)()
    _forget()
    for n in range(3, 3 + 4 * forms.MET):
        CALLS[name](lamina.ones(n, n + 1))
    found = told(x)
    _forget()
    assert found == told(x)


def test_calls_on_ever_new_shapes_earn_native_code_as_others_do(monkeypatch):
    """They are counted without a plan, and once the kind's calls are spent, or it has code, there is one."""
    _forget()
    for n in range(3, 3 + 4 * forms.MET):
        lamina.ones(n, 4).softmax(0)
    form = next(f for key, f in forms.FORMS.items() if key[0].name == "softmax")
    kind = form.kernel.kind
    monkeypatch.setattr(kind, "calls", None)
    monkeypatch.setattr(kind, "left", 2)
    served = [form.once((lamina.ones(n, 4)._meta,)) is not None for n in (101, 102, 103, 104)]
    assert served == [True, True, False, False]
    for calls, is_left in ((kernels.WORTH_CODE, False), (kernels.WORTH_CODE - 1, True)):
        monkeypatch.setattr(kind, "calls", calls)
        assert (form.once((lamina.ones(200 + calls, 4)._meta,)) is not None) is is_left


def test_who_wants_a_gradient_has_one_the_first_time():
    _forget()
    for n in range(3, 3 + 4 * forms.MET):
        for take in CALLS.values():
            take(lamina.ones(n, n + 1))
    for take in CALLS.values():
        x = lamina.ones(61, 62, requires_grad=True)
        take(x).sum().backward()
        assert x.grad is not None


@pytest.fixture
def nobody_overrides():
    """No class of another test's, of which there would be more to ask at each call."""
    before = OPEN[:]
    OPEN.clear()
    yield
    OPEN[:] = before


def test_calls_have_forms_of_their_attributes(monkeypatch, nobody_overrides):
    """Few plans are made by the rules once a call has come on many shapes."""
    _forget()
    by_rules, made = Plan.__init__, []

    def counted(self, *args):
        made.append(args)
        by_rules(self, *args)

    for n in range(3, 3 + 4 * forms.MET):
        if n == 3 + 3 * forms.MET:
            monkeypatch.setattr(Plan, "__init__", counted)
        for name in 2 * ("one_row", "slice", "from_behind", "cat", "cat_columns", "sum", "add"):
            CALLS[name](lamina.ones(n, n + 1))
    assert not [op for op, types, _ in made if types]


@pytest.mark.parametrize("name", ["clamped", "sum", "cat"])
def test_what_a_form_does_not_serve_is_left_to_the_rules(name, monkeypatch):
    _forget()
    for n in range(3, 3 + 4 * forms.MET):
        CALLS[name](lamina.ones(n, 4))
    for form in (forms.Form, forms.CallForm):
        for name_of in ("plan", "once"):
            monkeypatch.setattr(form, name_of, lambda self, types: None)
    x = lamina.tensor(np.arange(400, dtype=np.float32).reshape(100, 4))
    wanted = {"clamped": x.numpy()[4:6], "sum": x.numpy().sum(1), "cat": np.concatenate([x.numpy()] * 2)}
    for _ in range(2):
        np.testing.assert_array_equal(CALLS[name](x).numpy(), wanted[name])


def test_shapes_that_do_not_fit_are_refused_as_ever():
    for n in range(3, 3 + 4 * forms.MET):
        lamina.ones(n, 4) + lamina.ones(n, 4)
        lamina.ones(n, 4).view(2, -1)
        lamina.cat((lamina.ones(n, 4), lamina.ones(n + 1, 4)))
    with pytest.raises(LaminaError, match="invalid for input of size"):
        lamina.ones(51, 5).view(2, -1)
    with pytest.raises(LaminaError, match="Sizes of tensors must match"):
        lamina.cat((lamina.ones(50, 4), lamina.ones(50, 5)))
    with pytest.raises(LaminaError, match="don't broadcast"):
        lamina.ones(50, 4) + lamina.ones(51, 4)
