"""What must hold of every op record, as plain functions on an Op: the tests call them, and planted bugs must
fail them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import size_rules
from harness import (
    EPS,
    FURTHER,
    LAYOUTS,
    SIZES,
    TAKES,
    Case,
    assert_near,
    assert_same,
    bound,
    cases,
    cotangents_for,
    gradients,
    is_float,
    needs_of,
    samples,
    special_cases,
    tensors_of,
)

from lamina.ir import dtypes
from lamina.ir.dtypes import DType
from lamina.ir.errors import DTypeError
from lamina.ir.execute import operand_dtypes
from lamina.ir.graph import Builder
from lamina.ir.kernel.form import Fold
from lamina.ir.kernel.text import parse as parse_kernel
from lamina.ir.kernel.verify import verify as verify_kernel
from lamina.ir.lowering import Decomposition, NotLowered
from lamina.ir.op import Op
from lamina.ir.text import parse
from lamina.ir.verify import verify
from lamina.passes.graphs.lower import decompose, interpret_lowered, lower

WIDE = (dtypes.float64, dtypes.float32)


def taken(op: Op, among: Sequence[DType] = FURTHER) -> tuple[DType, ...]:
    return tuple(d for d in among if d in TAKES[op.dtypes])


def first_dtype(op: Op) -> DType:
    """float64 where the record takes it, else int64 or int8; complex64 where it takes only that."""
    if op.dtypes == "complex":
        return dtypes.complex64 if op.complex else dtypes.float64
    wide = [d for d in (dtypes.float64, dtypes.int64) if d in TAKES[op.dtypes]]
    return wide[0] if wide else TAKES[op.dtypes][0]


def everything(op: Op) -> Iterator[tuple[Case, DType]]:
    """A covering set of calls: all samples in the wide dtypes, each further dtype and layout on a few."""
    for dtype in taken(op, WIDE) or (first_dtype(op),):
        for case in cases(op, dtype):
            yield case, dtype
    for dtype in taken(op):
        for case in cases(op, dtype, count=2):
            yield case, dtype
    for layout in layouts(op):
        for case in cases(op, first_dtype(op), layout, count=2):
            yield case, first_dtype(op)


def layouts(op: Op) -> tuple[str, ...]:
    return tuple(name for name in LAYOUTS[1:] if name not in op.inapplicable)


# ---- the record itself
def check_record(op: Op) -> None:
    """The samples cover the standard sizes, or the record says why not; and it has a docstring."""
    known = {*SIZES, *LAYOUTS[1:]}
    unknown = set(op.inapplicable) - known
    assert not unknown, f"{op.name}: inapplicable has unknown keys {sorted(unknown)}; known: {sorted(known)}"
    assert op.dtypes in TAKES, f"{op.name}: dtypes is {op.dtypes!r}, not one of {sorted(TAKES)}"
    assert (op.__doc__ or "").strip(), f"{op.name}: no docstring"
    found = samples(op)
    assert found, f"{op.name}: no samples"
    if not op.operands:
        return
    shapes = [x.shape for sample in found for x in tensors_of(sample)]
    for size, covers in SIZES.items():
        assert size in op.inapplicable or any(map(covers, shapes)), (
            f"{op.name}: no sample of size {size}, no reason"
        )
    for size, reason in op.inapplicable.items():
        assert len(reason.split()) >= 2, f"{op.name}: no reason why {size} is inapplicable"


# ---- the reference
def check_infer(op: Op) -> None:
    """The reference, given what the executor gives it, returns what `infer` says: shapes, categories, float
    widths.
    """
    for case, _ in everything(op):
        operands = list(case.operands)
        for i, dtype in operand_dtypes(op, case.types, case.attrs):
            operands[i] = operands[i].astype(dtype)
        with np.errstate(all="ignore"):
            found = op.reference(*operands, **case.attrs)
        found = found if isinstance(found, tuple) else (found,)
        outs = case.outs
        assert len(outs) == len(found) == len(case.names), f"{case}: {len(found)} outputs, infer says {outs}"
        for name, array, t in zip(case.names, found, outs, strict=True):
            array = np.asarray(array)
            known = t.shape if not op.traits.host else tuple(
                n if isinstance(n, int) else m for n, m in zip(t.shape, array.shape, strict=True)
            )  # fmt: skip
            assert array.shape == known, f"{case}: {name} has shape {array.shape}, infer says {t}"
            made = dtypes.from_numpy_dtype(array.dtype)
            assert made is not None, f"{case}: {name} has NumPy's {array.dtype}"
            converted = op.traits.movement and made is t.dtype
            if t.dtype is dtypes.bool_ and made is dtypes.int8:
                continue  # NumPy has no loop for bools and takes int8's; the executor makes bools of them
            narrower = dtypes.category_at_least(t.dtype, made.category)
            assert converted or narrower, f"{case}: {name} is {made}, infer says {t}"
            if made.category == "float" and not converted:
                assert made is t.dtype.compute, f"{case}: {name} is computed as {made}, for {t}"


def check_size_rules(op: Op) -> None:
    """What its rules say of sizes that are symbols is so for all sizes that satisfy the conditions."""
    for case in cases(op, first_dtype(op)):
        size_rules.check(op, case)


def check_pure(op: Op) -> None:
    """The reference leaves its inputs as they are, warns of nothing, and returns new memory unless it is a
    view.
    """
    for case, _ in everything(op):
        before = [x.copy() if x is not None else None for x in case.operands]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outputs = case.run()
        for x, y in zip(case.operands, before, strict=True):
            if x is not None:
                assert x.tobytes() == y.tobytes(), f"{case}: the reference changed an operand"
        inputs = [x for x in case.operands if x is not None]
        for n, out in enumerate(outputs):
            shared = [x for x in inputs if np.shares_memory(out, x)]
            if op.traits.view:
                strided = not inputs[0].flags.c_contiguous  # of which reshape must copy
                assert strided or not out.size or (shared and shared[0] is inputs[0]), (
                    f"{case}: no view of its operand"
                )
                continue
            assert not shared, f"{case}: output {n} shares memory with an operand, and the op is no view"
            for other in outputs[:n]:
                assert not np.shares_memory(out, other), f"{case}: two outputs share memory"
        for out, again in zip(outputs, case.run(), strict=True):
            assert_same(again, out, f"{case}: run twice")


def check_dtypes(op: Op) -> None:
    """It runs on every dtype that it says it takes, and refuses the others with a DTypeError."""
    for dtype in taken(op, dtypes.ALL):
        for case in cases(op, dtype, count=1):
            case.run()
    if not op.operands:
        return
    for dtype in set(dtypes.ALL) - set(TAKES[op.dtypes]):
        refused = ran = 0
        for sample, case in zip(samples(op), cases(op, dtype), strict=True):
            if all(x.category != "any" for x in tensors_of(sample)):
                continue
            try:
                case.outs  # noqa: B018 - inference is what must refuse
                ran += 1
            except DTypeError:
                refused += 1
        assert refused or not ran, f"{op.name}: takes {op.dtypes!r}, but infer accepts {dtype.name}"


def check_precision(op: Op) -> None:
    """Each floating dtype gives what float64 gives of the same numbers, within the derived bound."""
    for dtype in taken(op, (dtypes.float32, dtypes.float16, dtypes.bfloat16)):
        for case in cases(op, dtype, count=None if dtype is dtypes.float32 else 3):
            found, exact = case.run(), case.widened().run()
            for name, y, z, limit in zip(case.names, found, exact, bound(case, exact, dtype), strict=True):
                with np.errstate(over="ignore"):
                    z = z.astype(y.dtype) if is_float(y) else z  # what overflows the dtype is inf there
                assert_near(y, z, limit, f"{case}: {name} against float64")


def check_layouts(op: Op) -> None:
    """Transposed, strided and broadcast operands give what contiguous copies of them give."""
    first = first_dtype(op)
    # Every sample in the first, and the largest in float32, where NumPy has other loops.
    calls = [(first, None), *[(dtype, 1) for dtype in taken(op, WIDE) if dtype is not first]]
    for layout, (dtype, count) in product(layouts(op), calls):
        for case in cases(op, dtype, layout, count):
            plain = case.run([x if x is None else x.copy() for x in case.operands])
            limits = bound(case, plain, dtype) if dtype in EPS else [0.0] * len(plain)
            for name, y, z, limit in zip(case.names, case.run(), plain, limits, strict=True):
                assert y.dtype == z.dtype, f"{case}: {name} is {y.dtype}, contiguous {z.dtype}"
                assert_near(y, z, limit, f"{case}: {name} against contiguous operands")


def check_write(op: Op) -> None:
    """An op that writes operands (an optimizer's step) leaves in the last of them what its reference
    returns.
    """
    if not op.traits.mutates:
        return
    assert op.write is not None, f"{op.name}: mutates {op.traits.mutates}, and has no write"
    for dtype in taken(op, (*WIDE, dtypes.bfloat16)):
        for case in cases(op, dtype):
            wanted = case.run()
            copies = [x if x is None else x.copy() for x in case.operands]
            with np.errstate(all="ignore"):
                op.write(*copies, **case.attrs)
            written = len(copies) - len(wanted)
            for x, y in zip(copies[:written], case.operands, strict=False):
                assert x is None or x.tobytes() == y.tobytes(), (
                    f"{case}: write changed an operand that it only reads"
                )
            limits = bound(case, case.widened().run(), dtype)
            for name, x, y, limit in zip(case.names, copies[written:], wanted, limits, strict=True):
                assert_near(x, y, limit, f"{case}: {name} written against the reference")


# ---- gradients
def differentiable(op: Op, dtype: DType = dtypes.float64) -> Iterator[Case]:
    """The calls at which gradients are checked."""
    if not op.differentiable or dtype not in TAKES[op.dtypes]:
        return
    for sample, case in zip(samples(op), cases(op, dtype), strict=True):
        outs = [t.dtype for t in case.outs[: case.visible] if t.dtype.is_floating_point]
        # an output of lower precision, as a cast has it, is a staircase to finite differences
        if sample.differentiable and any(needs_of(case)) and outs and all(d is dtype for d in outs):
            if all(np.isfinite(y).all() for y in case.run() if is_float(y)):  # the mean of nothing is NaN
                yield case


def contracted(case: Case, cotangents: Sequence, operands: Sequence) -> float:
    """The sum of the visible outputs weighted by the cotangents."""
    outputs = case.run(operands)
    return sum(float(np.sum(c * y)) for c, y in zip(cotangents, outputs, strict=False) if c is not None)


def slope(function, x: Sequence[np.ndarray], direction: Sequence[np.ndarray | None]) -> tuple[float, float]:
    """The derivative of a float64 function along a direction, and a bound of its error.

    Central differences with the steps h and 2h; what they differ by is three times the truncation error of
    the first, and rounding contributes eps |f| / h.  Tenfold both, as each is an estimate.
    """
    h = np.cbrt(EPS[dtypes.float64])

    def difference(step: float) -> tuple[float, float]:
        ends = [
            function([a if d is None else a + sign * step * d for a, d in zip(x, direction, strict=True)])
            for sign in (1, -1)
        ]
        return (ends[0] - ends[1]) / (2 * step), max(map(abs, ends))

    (near, size), (far, _) = difference(h), difference(2 * h)
    return near, 10 * abs(far - near) / 3 + 100 * EPS[dtypes.float64] * (1 + size) / h


def check_gradient(op: Op) -> None:
    """The rules give what finite differences in float64 give, for each operand along random directions."""
    for case in differentiable(op):
        cotangents = cotangents_for(case, case.run())
        found = gradients(case, cotangents)
        generator = np.random.default_rng(11)
        for i, (x, g) in enumerate(zip(case.operands, found, strict=True)):
            if not needs_of(case)[i]:
                continue
            for _ in range(2):
                way = [None] * len(case.operands)
                way[i] = np.asarray(generator.uniform(-1, 1, x.shape))
                wanted, limit = slope(
                    lambda at, c=cotangents, k=case: contracted(k, c, at), case.operands, way
                )
                along = 0.0 if g is None else float(np.sum(g * way[i]))
                assert_near(
                    np.asarray(along), np.asarray(wanted), limit,
                    f"{case}: gradient of operand {i} along a direction against finite differences",
                )  # fmt: skip


def check_gradient_parts(op: Op) -> None:
    """Only what is needed may be asked for, and a None cotangent of an unused output counts as zeros."""
    for case in differentiable(op):
        outputs = case.run()
        full = cotangents_for(case, outputs)
        if len([c for c in full if c is not None]) < 2:
            return
        for k, c in enumerate(full):
            if c is not None:
                alone = tuple(c if i == k else None for i in range(len(full)))
                zeros = tuple(y if i == k or y is None else np.zeros_like(y) for i, y in enumerate(full))
                pairs = zip(gradients(case, alone, outputs), gradients(case, zeros, outputs), strict=True)
                for i, (g, h) in enumerate(pairs):
                    shape = case.types[i].shape if case.types[i] else ()
                    g, h = (np.zeros(shape) if v is None else v for v in (g, h))
                    limit = (
                        64 * EPS[dtypes.float64] * (1 + np.max(np.abs(h), initial=0.0))
                    )  # the same sum, other terms 0
                    assert_near(g, h, limit, f"{case}: operand {i} with only output {k} used")


def check_gradient_precision(op: Op) -> None:
    """Gradients in float32 are those in float64 of the same numbers, to the bound that holds of the op
    itself.
    """
    for case in differentiable(op, dtypes.float32):
        outputs = case.run()
        cotangents = cotangents_for(case, outputs)
        wide = case.widened()
        exact = gradients(wide, tuple(c if c is None else c.astype(np.float64) for c in cotangents))
        for i, (g, h) in enumerate(zip(gradients(case, cotangents, outputs), exact, strict=True)):
            assert (g is None) == (h is None), (
                f"{case}: operand {i} has a cotangent in one of float32 and float64"
            )
            if g is None:
                continue
            assert g.dtype == np.float32, f"{case}: the cotangent of operand {i} is {g.dtype}"
            # Each term of a vector-Jacobian product carries the roundings of the op and of its rule;
            # normwise.
            terms = 32 + sum(x.size for x in case.operands if x is not None)
            limit = terms * EPS[dtypes.float32] * np.max(np.abs(h), initial=1.0)
            assert_near(g, h, limit, f"{case}: gradient of operand {i} against float64")


# ---- lowering
def check_lowering(op: Op) -> None:
    """The kernel verifies, keeps the text law, and interpreted gives what the reference gives."""
    if isinstance(op.lower, NotLowered):
        assert op.lower.kind in ("extern", "host-only") and op.lower.reason, (
            f"{op.name}: lowered in no way, no reason"
        )
        assert op.lower.kind == "extern" or op.traits.host, f"{op.name}: host-only without the trait `host`"
        return
    assert not op.traits.host, f"{op.name}: has the trait `host`, and a lowering"
    for case, dtype in everything(op):
        if isinstance(op.lower, Decomposition):
            graph = decompose(op, case.types, case.attrs)
            assert op not in [node.op for node in graph.nodes], f"{case}: decomposed into itself"
            ways = [{}]
        else:
            kernel = verify_kernel(lower(op, case.types, case.attrs))
            text = str(kernel)
            assert str(parse_kernel(text)) == text, f"{case}: the kernel's text does not read back\n{text}"
            merges = [s for s in kernel.stages if isinstance(s, Fold) and s.merge is not None]
            ways = [{}, {"merged": True}] if merges else [{}]
        wanted = case.run()
        limits = bound(case, case.widened().run(), dtype) if dtype in EPS else [0.0] * len(wanted)
        if dtype not in EPS and any(map(is_float, wanted)):  # integers that became the default float
            limits = bound(case, [y.astype(np.float64) for y in wanted], dtypes.float32)
        for how in ways:
            found = interpret_lowered(op, case.operands, case.attrs, **how)
            for name, y, z, limit in zip(case.names, found, wanted, limits, strict=True):
                assert y.dtype == z.dtype, f"{case}: {name} lowered is {y.dtype}, the reference {z.dtype}"
                limit = 0.0 if op.traits.movement or not is_float(z) else 2 * limit  # both may be off
                assert_near(y, z, limit, f"{case}: {name} lowered against the reference")


def check_special_values(op: Op) -> None:
    """Elementwise lowerings treat NaN, infinities, zeros, the tiny and the huge as the reference does."""
    if (
        not op.traits.elementwise
        or isinstance(op.lower, NotLowered)
        or dtypes.float32 not in TAKES[op.dtypes]
    ):
        return
    for case in special_cases(op, dtypes.float32):
        wanted, exact = case.run(), case.widened().run()
        limits = bound(case, exact, dtypes.float32)
        for name, y, z, limit in zip(
            case.names, interpret_lowered(op, case.operands, case.attrs), wanted, limits, strict=True
        ):
            assert_near(
                y, z, 2 * limit if is_float(z) else 0.0, f"{case}: {name} lowered against the reference"
            )


def check_text(op: Op) -> None:
    """A graph of one node prints, reads back as itself, and verifies."""
    for case in list(cases(op, first_dtype(op)))[:6]:
        with Builder("one") as b:
            params = [t and b.param(t, f"x{i}") for i, t in enumerate(case.types)]
            node = b.emit(op, params, case.attrs)
            graph = b.finish(node.outputs)
        verify(graph)
        text = str(graph)
        again = parse(text, graph.constants)
        verify(again)
        assert str(again) == text, f"{case}: the graph's text does not read back\n{text}"
