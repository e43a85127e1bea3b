"""Break a good record in one place, and see that the generated tests notice: each net must catch its bug."""

from __future__ import annotations

import checks
import numpy as np
import pytest
import tensor_checks

from lamina.ir import dtypes, lowering
from lamina.ir.errors import DTypeError, ShapeError
from lamina.ir.kernel import scalar
from lamina.ir.op import REGISTRY, Op, Traits
from lamina.ir.sample import Operand, Sample, sample
from lamina.ir.types import type_of
from lamina.runtime.plan import _forget

mul, neg, reduce_sum = REGISTRY["mul"], REGISTRY["neg"], REGISTRY["sum"]
SHAPES = ((), (0,), (1,), (17,), (33,), (3, 4))


@pytest.fixture(autouse=True)
def no_plan_outlives_its_bug():
    yield
    _forget()


def record(**changes) -> Op:
    """A small record with everything a check looks at: x * (2 + sum of the last dimension), and that sum."""
    fields = {
        "infer": infer,
        "reference": reference,
        "outputs": ("out", "total"),
        "vjp": vjp,
        "saves": ("input", "total"),
        "lower": lowering.kernel(build_both),
        "samples": lambda: [sample(shape) for shape in SHAPES],
        "dtypes": "float",
        "doc": "Scale each row by two more than its sum.",
    }
    return Op("planted", **fields | changes)


def infer(input):
    if not input.dtype.is_floating_point:
        raise DTypeError("planted: takes floats")
    return input, input.with_shape((*input.shape[:-1], 1) if input.ndim else ())


def reference(input):
    total = np.add.reduce(input, axis=-1, keepdims=True) if np.ndim(input) else np.array(input)
    return input * (total + 2), total


def vjp(saved, cotangents, attrs, needs):
    input, total = saved
    g, h = cotangents
    terms = []
    if g is not None:
        inner = g * input
        terms += [g * (total + 2.0), reduce_sum(inner, dim=-1, keepdim=True) if input.ndim else inner]
    if h is not None:
        terms.append(h + REGISTRY["zeros_like"](input))
    out = terms[0]
    for term in terms[1:]:
        out = out + term
    return (out,)


def build_both(k, input):
    *rows, last = input.shape or (1,)
    outer = k.parallel(*rows)
    (j,), (r,) = k.axes(last), k.axes(last)
    at, inner = ((*outer, j), (*outer, r)) if input.shape else ((), ())
    total = k.sum(input[inner], over=(r,)) if input.shape else input[()]
    if input.shape:
        k.store(input[at] * (total + 2.0), at=at, over=(j,))
        k.store(total, at=(*outer, 0), output=1)
    else:
        k.store(total * (total + 2.0), at=())
        k.store(total, at=(), output=1)


ALL = {
    name: check
    for module in (checks, tensor_checks)
    for name, check in vars(module).items()
    if name.startswith("check_") and name not in ("check_text", "check_public", "check_inplace")
}


@pytest.mark.parametrize("name", ALL)
def test_planted_record_without_a_bug_passes(name):
    ALL[name](record())


def caught(check, op, message):
    with pytest.raises(AssertionError, match=message):
        check(op)


# ---- the record
def test_planted_missing_size_is_caught():
    op = record(samples=lambda: [sample(shape) for shape in SHAPES if shape != (17,)])
    caught(checks.check_record, op, "no sample of size 17")


def test_planted_unknown_inapplicable_key_is_caught():
    caught(checks.check_record, record(inapplicable={"18": "no such size"}), "unknown keys")


def test_planted_inapplicable_without_a_reason_is_caught():
    op = record(samples=lambda: [sample(shape) for shape in SHAPES[1:]], inapplicable={"0-d": "no"})
    caught(checks.check_record, op, "no reason why")


def test_planted_missing_docstring_is_caught():
    caught(checks.check_record, record(doc=" "), "no docstring")


# ---- inference and the reference
def test_planted_wrong_inferred_shape_is_caught():
    caught(checks.check_infer, record(infer=lambda input: (input, input)), "total has shape")


def test_planted_rule_that_only_numbers_are_held_to_is_caught():
    def up_to_thirty(input):
        if input.ndim and isinstance(input.shape[-1], int) and input.shape[-1] > 33:
            raise ShapeError("planted: takes rows of up to 33")
        return infer(input)

    caught(checks.check_size_rules, record(infer=up_to_thirty), "takes rows of up to 33")


def test_planted_wrong_inferred_category_is_caught():
    def whole(input):
        out, total = infer(input)
        return out.with_dtype(dtypes.int64), total

    caught(checks.check_infer, record(infer=whole), "infer says i64")


def test_planted_silent_widening_is_caught():
    def widening(input):
        out, total = reference(input)
        return out.astype(np.float64), total

    caught(checks.check_infer, record(reference=widening), "computed as lamina.float64")


def test_planted_precision_lost_is_caught():
    def rounding(input):
        out, total = reference(input)
        return out.astype(np.float16).astype(np.float32) if input.dtype == np.float32 else out, total

    caught(checks.check_precision, record(reference=rounding), "against float64")


def test_planted_mutation_is_caught():
    def mutating(input):
        out = reference(input)
        if input.size:
            input[...] = 0
        return out

    caught(checks.check_pure, record(reference=mutating), "changed an operand")


def test_planted_aliasing_output_is_caught():
    caught(checks.check_pure, record(reference=lambda input: (input, reference(input)[1])), "shares memory")


def test_planted_false_view_is_caught():
    caught(checks.check_pure, record(traits=Traits(view=True)), "no view")


def test_planted_reference_that_keeps_state_is_caught():
    calls = []

    def counting(input):
        calls.append(1)
        out, total = reference(input)
        return out + len(calls), total

    caught(checks.check_pure, record(reference=counting), "run twice")


def test_planted_layout_dependence_is_caught():
    def particular(input):
        out, total = reference(input)
        return out * (1.0 if input.flags.c_contiguous else 2.0), total

    caught(checks.check_layouts, record(reference=particular), "against contiguous")


def test_planted_dtypes_too_many_are_caught():
    def careless(input):
        return input, input.with_shape((*input.shape[:-1], 1) if input.ndim else ())

    caught(checks.check_dtypes, record(infer=careless), "infer accepts")


# ---- gradients
def scaled(factor):
    return lambda *args: (vjp(*args)[0] * factor,)


def test_planted_gradient_sign_is_caught():
    caught(checks.check_gradient, record(vjp=scaled(-1.0)), "against finite differences")


def test_planted_gradient_off_by_a_millionth_is_caught():
    caught(checks.check_gradient, record(vjp=scaled(1.000001)), "against finite differences")


def test_planted_gradient_without_one_term_is_caught():
    def partial(saved, cotangents, attrs, needs):
        return (
            (cotangents[0] * (saved[1] + 2.0),)
            if cotangents[0] is not None
            else vjp(saved, cotangents, attrs, needs)
        )

    caught(checks.check_gradient, record(vjp=partial), "against finite differences")


def test_planted_wrong_saved_value_is_caught():
    def build_saved(saved, cotangents, attrs, needs):
        out, total = saved
        return vjp((out, total), cotangents, attrs, needs)

    caught(
        checks.check_gradient, record(vjp=build_saved, saves=("out", "total")), "against finite differences"
    )


def test_planted_gradient_that_ignores_an_output_is_caught():
    def deaf(saved, cotangents, attrs, needs):
        g, h = cotangents
        return (None,) if h is None else vjp(saved, cotangents, attrs, needs)

    caught(checks.check_gradient_parts, record(vjp=deaf), "with only output 0 used")


def test_planted_gradient_that_loses_precision_is_caught():
    def vague(saved, cotangents, attrs, needs):
        (out,) = vjp(saved, cotangents, attrs, needs)
        return (out.astype(np.float16) if out.dtype == np.float32 else out,)

    caught(checks.check_gradient_precision, record(vjp=vague), "against float64")


def test_planted_second_order_bug_is_caught():
    def frozen(saved, cotangents, attrs, needs):
        """Right on arrays; on tensors the saved operand's history is cut."""
        input, total = saved
        return vjp((input.detach() if hasattr(input, "detach") else input, total), cotangents, attrs, needs)

    caught(tensor_checks.check_second_order, record(vjp=frozen), "second derivative")


def test_planted_rule_that_differs_between_kinds_is_caught():
    def biased(saved, cotangents, attrs, needs):
        (out,) = vjp(saved, cotangents, attrs, needs)
        return (out if isinstance(out, (np.ndarray, np.generic)) else out * 2.0,)

    caught(tensor_checks.check_gradient_kinds, record(vjp=biased), "on tensors against arrays")


# ---- lowering
def matrix(lower):
    """The product of two matrices, with another lowering."""
    return Op(
        "planted_product",
        infer=lambda a, b: type_of(a.dtype, (a.shape[0], b.shape[1])),
        reference=lambda a, b: a @ b,
        lower=lower,
        samples=lambda: [Sample((Operand((3, 3)), Operand((3, 3))))],
        dtypes="float",
        doc="Multiply.",
    )


def product(swapped=False, short=False):
    def build(k, a, b):
        i, j = k.parallel(a.shape[0], b.shape[1])
        (c,) = k.axes(a.shape[1] - short)
        k.store(k.sum((a[c, i] if swapped else a[i, c]) * b[c, j], over=(c,)), at=(i, j))

    return lowering.kernel(build)


def test_planted_product_without_a_bug_passes():
    checks.check_lowering(matrix(product()))


def test_planted_swapped_index_is_caught():
    caught(checks.check_lowering, matrix(product(swapped=True)), "lowered against the reference")


def test_planted_sum_that_stops_early_is_caught():
    caught(checks.check_lowering, matrix(product(short=True)), "lowered against the reference")


def test_planted_lowering_without_a_reason_is_caught():
    caught(checks.check_lowering, matrix(lowering.extern("")), "no reason")


def test_planted_host_only_without_its_trait_is_caught():
    caught(
        checks.check_lowering, matrix(lowering.host_only("its shape depends on values")), "without the trait"
    )


def test_planted_wrong_merge_is_caught():
    def build(k, input):
        outer, (r,) = k.parallel(), k.axes(input.shape[0])
        (total,) = k.fold((0.0,), lambda s: (s[0] + input[r],), (r,), merge=lambda a, b: (a[0] - b[0],))
        k.store(total, at=outer)

    op = Op(
        "planted_fold",
        infer=lambda input: input.with_shape(()),
        reference=lambda input: np.add.reduce(input, axis=0),
        lower=lowering.kernel(build),
        samples=lambda: [sample((17,))],
        dtypes="float",
        doc="Add up.",
    )
    caught(checks.check_lowering, op, "lowered against the reference")


# ---- the in-place form
def test_planted_inplace_form_that_differs_is_caught(monkeypatch):
    def wrong(array, other):
        array += other

    monkeypatch.setattr(mul, "write", wrong)
    caught(tensor_checks.check_inplace, mul, "mul_")


def test_planted_inplace_form_into_new_memory_is_caught(monkeypatch):
    from lamina.runtime.tensor import Tensor

    def moved(self, other):
        self._data = self._data * other._data
        return self

    monkeypatch.setattr(Tensor, "mul_", moved)
    caught(tensor_checks.check_inplace, mul, "does not count as a write")


def test_planted_body_that_drops_nan_is_caught(monkeypatch):
    def greater(input, other):
        return scalar.op("select", input > other, input, other)

    monkeypatch.setattr(REGISTRY["maximum"], "lower", lowering.pointwise(greater))
    checks.check_lowering(REGISTRY["maximum"])  # not seen at the samples
    caught(checks.check_special_values, REGISTRY["maximum"], "at special values")


def test_planted_step_that_writes_nothing_is_caught(monkeypatch):
    monkeypatch.setattr(REGISTRY["sgd_update"], "write", lambda *operands, **attrs: None)
    caught(checks.check_write, REGISTRY["sgd_update"], "written against the reference")


def test_planted_missing_alias_is_caught(monkeypatch):
    monkeypatch.setattr(mul, "aliases", ("times",))
    caught(tensor_checks.check_public, mul, "no function times")


def test_planted_wrong_elementwise_body_is_caught(monkeypatch):
    monkeypatch.setattr(neg, "lower", lowering.pointwise(lambda input: input * 1))
    caught(checks.check_lowering, neg, "lowered against the reference")
