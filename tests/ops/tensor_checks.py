"""What must hold of every op record on tensors and in graphs: the same values, gradients and errors on every
kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from checks import differentiable, everything, slope, taken
from harness import (
    EPS,
    Case,
    assert_near,
    assert_same,
    cases,
    cotangents_for,
    gradients,
    held,
    needs_of,
    saved_of,
)

from lamina.ir import dtypes
from lamina.ir.graph import Builder
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY, Op
from lamina.passes.graphs.differentiate import differentiate
from lamina.runtime import enable_grad, grad, no_grad
from lamina.runtime.dispatch import run_general
from lamina.runtime.inplace import inplace, write
from lamina.runtime.ops import FUNCTIONS
from lamina.runtime.step import fit_tensor
from lamina.runtime.tensor import Tensor, tensor_of

PUBLIC = frozenset(REGISTRY)  # functions and methods are made at import, of the records there are then
KINDS = ("tensors", "tensors with a history", "graph")


def tensors(values: Sequence[Any], requires_grad: Sequence[bool] | None = None) -> tuple:
    """Tensors over copies of arrays, None as it is."""
    made = tuple(v if v is None else tensor_of(v.copy()) for v in values)
    for x, wanted in zip(made, requires_grad or (), strict=False):
        if wanted:
            x.requires_grad_()
    return made


def applied(case: Case, operands: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """The visible outputs of the op on tensors, its call being bound already."""
    out = run_general(case.op, operands, case.attrs)
    return tuple(out) if isinstance(out, tuple) else (out,)


def arrayed(x: Any) -> Any:
    return x if x is None else x._data


# ---- values
def check_eager(op: Op) -> None:
    """The user's call on tensors gives what the executor gives on arrays, to the bit, outputs named."""
    for case, _ in everything(op):

        def tensor(x: Any) -> Any:
            if isinstance(x, (tuple, list)):
                return type(x)(map(tensor, x))
            return tensor_of(x) if isinstance(x, np.ndarray) else x

        args, kwargs = tuple(map(tensor, case.args)), {n: tensor(x) for n, x in case.kwargs.items()}
        if not any(x is not None for x in case.operands):
            continue  # made from sizes and numbers: there is no operand whose kind could decide
        out = op(*args, **kwargs)
        found = tuple(out) if isinstance(out, tuple) else (out,)
        names = case.names[: case.visible]
        assert len(found) == len(names), f"{case}: {len(found)} outputs, not {names}"
        if len(op.outputs) > 1:
            assert out._fields == names, f"{case}: outputs named {out._fields}, not {names}"
        for name, x, y in zip(names, found, case.run(), strict=False):
            assert_same(x._data, y, f"{case}: {name} on tensors")
            assert x.dtype.numpy == y.dtype and tuple(x.shape) == y.shape, f"{case}: {name} is {x._meta}"


def check_inplace(op: Op) -> None:
    """name_ gives what name gives, in the same storage, with a new version and the same gradients."""
    if not op.traits.inplace:
        return
    tried = 0
    for dtype in taken(op, (dtypes.float64, dtypes.float16, dtypes.int64)):
        for case in cases(op, dtype):
            x, *rest = case.operands
            (kind, *_), out = case.types, case.outs[0]
            if (
                kind is None
                or x is not case.args[0]
                or not dtypes.category_at_least(kind.dtype, out.dtype.category)
            ):
                continue
            if out.shape != kind.shape and not op.traits.view:
                continue
            tried += 1
            target = tensor_of(x.copy())
            before, place = target._version, target.data_ptr()
            others = tuple(tensor_of(a) if isinstance(a, np.ndarray) else a for a in case.args[1:])
            kwargs = {n: tensor_of(a) if isinstance(a, np.ndarray) else a for n, a in case.kwargs.items()}
            method = getattr(Tensor, f"{op.name}_") if op.name in PUBLIC else inplace(op)
            result = method(target, *others, **kwargs)
            assert result is target, f"{case}: {op.name}_ returns another tensor"
            assert target._version > before, f"{case}: {op.name}_ does not count as a write"
            assert target.data_ptr() == place, f"{case}: {op.name}_ moved the tensor"
            assert_same(target._data, case.run()[0].astype(x.dtype), f"{case}: {op.name}_")
    assert tried, f"{op.name}: no sample fits its in-place form"
    for case in differentiable(op):
        if case.outs[0] != case.types[0]:
            continue
        needs = needs_of(case)
        xs = tensors(case.operands, needs)
        (c,) = cotangents_for(case, case.run())
        out = write(op, (xs[0] * 1.0, *xs[1:]), case.attrs)
        wanted = [x for x, need in zip(xs, needs, strict=True) if need and isinstance(x, Tensor)]
        found = grad(out, wanted, tensor_of(c), allow_unused=True)
        expected = [g for g, need in zip(gradients(case, (c,)), needs, strict=True) if need]
        for i, (g, h) in enumerate(zip(found, expected, strict=True)):
            compare(arrayed(g), h, f"{case}: gradient {i} of {op.name}_")


# ---- gradients
def compare(found: np.ndarray | None, wanted: np.ndarray | None, what: str) -> None:
    """Equal in dtype and shape, and but for the order of additions in value; None stands for zeros."""
    if found is None or wanted is None:
        assert not np.any(found) and not np.any(wanted) or found is wanted, f"{what}: one of them is None"
        return
    assert found.dtype == wanted.dtype, f"{what}: dtype {found.dtype}, not {wanted.dtype}"
    dtype = dtypes.from_numpy_dtype(wanted.dtype)
    # The kinds run the same rules; sums over broadcast dimensions may be taken in another order.
    limit = 64 * EPS[dtype] * np.max(np.abs(np.asarray(wanted, np.float64)), initial=0.0)
    assert_near(found, wanted, limit, what)


def check_gradient_kinds(op: Op) -> None:
    """A rule gives the same cotangents, of the operands' own types, whatever kind of operand it runs on."""
    for dtype in (dtypes.float64, dtypes.float32):
        for case in differentiable(op, dtype):
            outputs = case.run()
            cotangents = cotangents_for(case, outputs)
            wanted = gradients(case, cotangents, outputs)
            for g, t in zip(wanted, case.types, strict=True):
                assert g is None or (g.dtype == t.dtype.numpy and g.shape == t.shape), (
                    f"{case}: cotangent {g.dtype}"
                )
            for kind in KINDS:
                for i, (g, h) in enumerate(
                    zip(by_kind(kind, case, outputs, cotangents), wanted, strict=True)
                ):
                    compare(g, h, f"{case}: cotangent of operand {i} on {kind} against arrays")


def by_kind(
    kind: str, case: Case, outputs: Sequence[np.ndarray], cotangents: tuple
) -> list[np.ndarray | None]:
    """The fitted cotangents, the rules being run on one kind of operand."""
    op, needs = case.op, needs_of(case)
    if kind == "graph":
        with Builder("one") as b:
            params = [t and b.param(t, f"x{i}") for i, t in enumerate(case.types)]
            graph = b.finish(b.emit(op, params, case.attrs).visible)
        arrays = [x for x in case.operands if x is not None] + [c for c in cotangents if c is not None]
        results = interpret(differentiate(graph), *arrays)[case.visible :]
        by_param = dict(zip([p for p in graph.params if p.dtype.is_floating_point], results, strict=True))
        return [by_param[p] if need else None for p, need in zip(params, needs, strict=True)]
    if kind == "tensors with a history":
        xs = tensors(case.operands, needs)
        with enable_grad():
            outs = [y for y in applied(case, xs) if y.requires_grad]
            cs = [c for c in tensors(cotangents) if c is not None]
            wanted = [x for x, need in zip(xs, needs, strict=True) if need]
            found = iter(grad(outs, wanted, cs, create_graph=True, allow_unused=True))
        return [arrayed(next(found)) if need else None for need in needs]
    with no_grad():
        saved = tuple(
            tuple(tensors(v)) if isinstance(v, tuple) else tensors((v,))[0]
            for v in saved_of(op, case.operands, outputs)
        )
        found = op.cotangents(saved, tensors(cotangents), case.attrs, needs, (*case.types, *case.outs))
        return [
            fit_tensor(g, t)._data if need and g is not None else None
            for g, t, need in zip(found, case.types, needs, strict=True)
        ]


def check_half_gradients(op: Op) -> None:
    """Gradients of halves are halves, and those of float64 to the precision that each step rounds to."""
    for dtype in taken(op, (dtypes.float16, dtypes.bfloat16)):
        for case in list(differentiable(op, dtype))[:4]:
            outputs = case.run()
            cotangents = cotangents_for(case, outputs)
            exact = gradients(
                case.widened(), tuple(c if c is None else c.astype(np.float64) for c in cotangents)
            )
            found = by_kind("tensors with a history", case, outputs, cotangents)
            for i, (g, h) in enumerate(zip(found, exact, strict=True)):
                if g is None or h is None:
                    compare(g, h, f"{case}: gradient of operand {i}")
                    continue
                wanted = case.operands[i].dtype  # the half, but for a number, which is a float32
                assert g.dtype == wanted, f"{case}: the gradient of operand {i} is {g.dtype}"
                # every step of a rule rounds to the half type: 32 of them, and those of what was saved
                limit = 32 * EPS[dtype] * np.max(np.abs(h), initial=1.0)
                assert_near(g, held(h, wanted), limit, f"{case}: gradient of operand {i} against float64")


def check_second_order(op: Op) -> None:
    """Gradients of gradients, taken through create_graph, are finite differences of the first ones."""
    for case in differentiable(op):
        needs = needs_of(case)
        cotangents = cotangents_for(case, case.run())
        generator = np.random.default_rng(13)
        weights = [
            np.asarray(generator.uniform(-1, 1, np.shape(x))) if n else None
            for x, n in zip(case.operands, needs)
        ]

        def first(at: Sequence, case=case, weights=weights) -> float:
            count = len(weights)
            moved = replace(case, operands=tuple(at[:count]))
            pairs = zip(gradients(moved, tuple(at[count:])), weights, strict=True)
            return sum(float(np.sum(g * w)) for g, w in pairs if g is not None)

        xs = tensors(case.operands, needs)
        cs = tensors(cotangents, [c is not None for c in cotangents])
        outs = [y for y in applied(case, xs) if y.requires_grad]
        wanted = [x for x, need in zip(xs, needs, strict=True) if need]
        given = [c for c in cs if c is not None]
        gs = grad(outs, wanted, given, create_graph=True, allow_unused=True)
        pairs = zip(gs, [w for w in weights if w is not None], strict=True)
        total = [(g * tensor_of(w)).sum() for g, w in pairs if g is not None and g.requires_grad]
        everyone = [*wanted, *given]
        if total:
            whole = total[0]
            for part in total[1:]:
                whole = whole + part
            found = iter(grad(whole, everyone, allow_unused=True))
        else:
            found = iter([None] * len(everyone))
        start = [*case.operands, *cotangents]
        for i, x in enumerate(start):
            needed = needs[i] if i < len(needs) else x is not None
            if not needed:
                continue
            g = next(found)
            way = [None] * len(start)
            way[i] = np.asarray(generator.uniform(-1, 1, x.shape))
            expected, limit = slope(first, start, way)
            along = 0.0 if g is None else float(np.sum(g._data * way[i]))
            which = f"operand {i}" if i < len(needs) else f"cotangent {i - len(needs)}"
            assert_near(
                np.asarray(along),
                np.asarray(expected),
                limit,
                f"{case}: second derivative by {which} against differences",
            )


def check_public(op: Op) -> None:
    """The names that the record promises exist: function, method, in-place method, aliases."""
    if op.name not in PUBLIC:
        return
    for name in (op.name, *op.aliases):
        assert name in FUNCTIONS, f"{op.name}: no function {name}"
        if op.method and op.operands and not op.variadic:
            assert hasattr(Tensor, name), f"{op.name}: no method {name}"
    if op.traits.inplace:
        assert hasattr(Tensor, f"{op.name}_"), f"{op.name}: no method {op.name}_"
