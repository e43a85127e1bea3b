"""Whole derivatives of functions, by `grad` alone: Jacobians, Hessians, products of them with vectors.

What is returned follows the function: for a tuple of inputs, or of outputs, a tuple.

Under `strict` what does not depend on an input is an error rather than a zero: outputs without history, an
output that no way leads from to the input, and, under create_graph, a derivative that no way leads from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentError, GradError, ShapeError
from . import modes, ops
from .autograd import grad
from .func import require_callable
from .refusal import refusing_names
from .tensor import Tensor

LOOSE = "strict=False takes zeros for it"
INPUTS, OUTPUTS = "inputs given to {}", "outputs of the user-provided function given to {}"


def _listed(x: Any, what: str, name: str) -> tuple:
    """A tensor, or several, as a tuple.  Raises ArgumentError."""
    found = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    for i, item in enumerate(found):
        if not isinstance(item, Tensor):
            raise ArgumentError(
                f"{name}: The {what.format(name)} must be either a Tensor or a tuple of Tensors",
                f"number {i} is of class {type(item).__name__}",
            )
    return found


def _like(given: Any, found: tuple) -> Any:
    return found if isinstance(given, (tuple, list)) else found[0]


def _evaluate(func: Callable, inputs: Any, create_graph: bool, name: str) -> tuple[tuple, Any]:
    """Leaves with the values of `inputs` (under `create_graph`: with their history), and `func` of them."""
    require_callable(func, "autograd.functional")
    with modes.enable_grad():
        xs = tuple(
            x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
            for x in _listed(inputs, INPUTS, name)
        )
        return xs, modes.call_user(func, *(xs if isinstance(inputs, (tuple, list)) else xs[:1]))


def _outputs(out: Any, name: str, strict: bool) -> tuple:
    """The outputs as a tuple.  Raises ArgumentError, and GradError for one without history where `strict`."""
    found = _listed(out, OUTPUTS, name)
    for i, y in enumerate(found):
        if strict and not y.requires_grad:
            raise GradError(
                f"{name}: Output {i} of the user-provided function does not require gradients.",
                "strict=True wants outputs that are computed differentiably",
                LOOSE,
            )
    return found


def _gradients(outputs: Any, xs: tuple, cotangents: Any, create_graph: bool) -> tuple:
    """The gradients to `xs`, None where there is none."""
    kept = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if y.requires_grad]
    if not kept:
        return (None,) * len(xs)
    ys, vs = zip(*kept, strict=True)
    return grad(ys, xs, vs, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _filled(found: tuple, xs: tuple, create_graph: bool, strict: bool, where: str, derivative: str) -> tuple:
    """Gradients with zeros where there were none.  Raises GradError for those where `strict`.

    where: what the gradient of was taken; derivative: what must depend on the inputs under create_graph.
    """
    for i, g in enumerate(found):
        if strict and g is None:
            raise GradError(f"{where} is independent of input {i}.", LOOSE)
        if strict and create_graph and not g.requires_grad:
            raise GradError(f"{derivative.format(i=i)} independent of input {i}.", LOOSE)
    return tuple(
        ops.zeros_like(x) if g is None else g if create_graph else g.detach()
        for x, g in zip(xs, found, strict=True)
    )


OUTPUT = "The output of the user-provided function"
JACOBIAN = "The jacobian of the user-provided function is"
TO_INPUT = "The jacobian of the user-provided function with respect to input {i} is"


def _vectors(v: Any, like: tuple, name: str, of: str) -> tuple:
    """`v`, which must have the shapes of `like`; ones for a single number without it."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise GradError(
                f"{name}: The vector v can only be None if {of} a single number",
                f"there are {len(like)} tensors, of shapes {[list(x.shape) for x in like]}",
            )
        return (ops.ones_like(like[0]),)
    found = _listed(v, "v given to {}", name)
    if len(found) != len(like):
        single = "The given v should contain a single Tensor."
        raise ShapeError(
            f"{name}: {single if len(like) == 1 else 'The given v is a tuple of invalid length'}",
            f"there are {len(like)} tensors, and v has {len(found)}",
        )
    for i, (x, y) in enumerate(zip(found, like, strict=True)):
        if x.shape != y.shape:
            raise ShapeError(
                f"{name}: v has invalid size: should be torch.Size({list(y.shape)}), not {list(x.shape)}",
                f"entry {i} of v: {x._meta}",
            )
    return found


def jacobian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """Differentiate each element of `func`'s outputs with respect to each element of its inputs.

    One backward an output element, whatever `vectorize` and `strategy` say.  Shapes: output [...],
    input [---] -> [..., ---]; indexed first by output, then by input.  Raises GradError.
    """
    _require_strategy(strategy, strict, vectorize, "jacobian")
    xs, out = _evaluate(func, inputs, create_graph, "jacobian")
    results = []
    for number, y in enumerate(_outputs(out, "jacobian", strict)):
        rows = []
        with modes.enable_grad():
            elements = y.reshape(-1).unbind()
        where = f"Output {number} of the user-provided function"
        for element in elements:
            found = _gradients((element,), xs, (None,), create_graph)
            rows.append(_filled(found, xs, create_graph, strict, where, JACOBIAN))
        with modes.enable_grad() if create_graph else modes.no_grad():
            results.append(
                tuple(
                    ops.stack([row[i] for row in rows]).reshape(y.shape + x.shape)
                    if rows
                    else x.new_zeros(y.shape + x.shape)
                    for i, x in enumerate(xs)
                )
            )
    return _like(out, tuple(_like(inputs, row) for row in results))


def _require_strategy(strategy: str, strict: bool, vectorize: bool, name: str) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise ArgumentError(
            f"{name}(strategy): 'forward-mode' or 'reverse-mode', not {strategy!r:.60}",
        )
    if strict and vectorize:
        raise GradError(
            f"{name}: strict=True and vectorize=True are not supported together", "leave vectorize out"
        )


def hessian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """Differentiate a function that returns one number twice.

    Shapes: inputs [---], [...] -> [---, ...].  Raises GradError.
    """
    _require_strategy(outer_jacobian_strategy, strict, vectorize, "hessian")

    def first(*xs: Tensor) -> Any:
        def once(*xs: Tensor) -> Tensor:
            value = modes.call_user(func, *xs)
            (y,) = _single(_outputs(value, "hessian", strict), isinstance(value, (tuple, list)))
            return y

        found = tuple(g.reshape(x.shape) for g, x in zip(jacobian(once, xs, create_graph=True), xs))
        for i, g in enumerate(found):
            if strict and not g.requires_grad:
                raise GradError(f"hessian: {TO_INPUT.format(i=i)} independent of the input.", LOOSE)
        return found

    xs = _listed(inputs, INPUTS, "hessian")
    found = jacobian(first, xs, create_graph, strict)
    return _like(inputs, tuple(_like(inputs, row) for row in found))


def _single(outputs: tuple, several: bool, name: str = "hessian") -> tuple:
    if several or len(outputs) != 1:
        raise GradError(f"The function given to {name} should return a single Tensor, not a tuple")
    if outputs[0].numel() != 1:
        raise GradError(
            f"The Tensor returned by the function given to {name} should contain a single element",
            f"returned: {outputs[0]._meta}",
        )
    return outputs


def vjp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute func(inputs), and `v`, shaped as the outputs, times its Jacobian.

    Raises GradError, ShapeError.
    """
    xs, out = _evaluate(func, inputs, create_graph, "vjp")
    ys = _outputs(out, "vjp", strict)
    vs = _vectors(v, ys, "vjp", "the user-provided function returns")
    found = _gradients(ys, xs, vs, create_graph)
    found = _filled(found, xs, create_graph, strict, OUTPUT, JACOBIAN)
    return _released(out, create_graph), _like(inputs, found)


def jvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute func(inputs), and its Jacobian times `v`, shaped as the inputs.  Raises GradError, ShapeError.

    Differentiates the reverse mode once more: v J is linear in v, and its derivative is J.
    """
    xs, out = _evaluate(func, inputs, create_graph, "jvp")
    vs = _vectors(v, xs, "jvp", "the input to the user-provided function is")
    ys = _outputs(out, "jvp", strict)
    with modes.enable_grad():
        dummies = tuple(ops.zeros_like(y).requires_grad_() for y in ys)
        rows = _filled(_gradients(ys, xs, dummies, True), xs, True, False, OUTPUT, JACOBIAN)
    if strict and not all(row.requires_grad for row in rows):
        missing = next(i for i, row in enumerate(rows) if not row.requires_grad)
        raise GradError(f"{OUTPUT} is independent of input {missing}.", LOOSE)
    found = _gradients(rows, dummies, vs, create_graph)
    found = _filled(found, dummies, create_graph, strict, OUTPUT, JACOBIAN)
    return _released(out, create_graph), _like(out, found)


def vhp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute func(inputs), one number, and `v`, shaped as the inputs, times its Hessian.

    Raises GradError, ShapeError.
    """
    return _products("vhp", func, inputs, v, create_graph, strict)


def hvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute func(inputs), one number, and its Hessian times `v`, shaped as the inputs.

    A Hessian is symmetric, so this is `vhp`.  Raises GradError, ShapeError.
    """
    return _products("hvp", func, inputs, v, create_graph, strict)


def _products(
    name: str, func: Callable, inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, Any]:
    xs, out = _evaluate(func, inputs, create_graph, name)
    vs = _vectors(v, xs, name, "the input to the user-provided function is")
    ys = _single(_outputs(out, name, strict), isinstance(out, (tuple, list)), name)
    with modes.enable_grad():
        first = _filled(_gradients(ys, xs, (None,), True), xs, True, strict, OUTPUT, TO_INPUT)
    found = _gradients(first, xs, vs, create_graph)
    found = _filled(found, xs, create_graph, strict, "The derivative of the user-provided function", TO_INPUT)
    return _released(out, create_graph), _like(inputs, found)


def _released(out: Any, create_graph: bool) -> Any:
    return out if create_graph else _like(out, tuple(y.detach() for y in _listed(out, OUTPUTS, "autograd")))


refusing_names(globals(), __name__)

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
