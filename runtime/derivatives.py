"""Whole derivatives of functions, by `grad` alone: Jacobians, Hessians, products of them with vectors.

What is returned follows the function: for a tuple of inputs, or of outputs, a tuple.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import GradError, ShapeError
from . import modes, ops
from .autograd import grad
from .func import require_callable
from .refusal import refusing_names
from .tensor import Tensor


def _listed(x: Any, what: str) -> tuple:
    found = tuple(x) if isinstance(x, (tuple, list)) else (x,)
    for i, item in enumerate(found):
        if not isinstance(item, Tensor):
            raise GradError(f"{what} must be tensors, and number {i} is of class {type(item).__name__}")
    return found


def _like(given: Any, found: tuple) -> Any:
    return found if isinstance(given, (tuple, list)) else found[0]


def _evaluate(func: Callable, inputs: Any, create_graph: bool) -> tuple[tuple, Any]:
    """Leaves with the values of `inputs` (under `create_graph`: with their history), and `func` of them."""
    require_callable(func, "autograd.functional")
    with modes.enable_grad():
        xs = tuple(
            x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
            for x in _listed(inputs, "inputs")
        )
        return xs, modes.call_user(func, *(xs if isinstance(inputs, (tuple, list)) else xs[:1]))


def _gradients(outputs: Any, xs: tuple, cotangents: Any, create_graph: bool, strict: bool) -> tuple:
    """The gradients to `xs`, zeros where there is none.  Raises GradError for those where `strict`."""
    if not any(y.requires_grad for y in outputs):
        found: tuple = (None,) * len(xs)
    else:
        kept = [(y, v) for y, v in zip(outputs, cotangents, strict=True) if y.requires_grad]
        ys, vs = zip(*kept, strict=True)
        found = grad(ys, xs, vs, retain_graph=True, create_graph=create_graph, allow_unused=True)
    for i, g in enumerate(found):
        if g is None and strict:
            raise GradError(f"the outputs do not depend on input {i}", "strict=False takes zeros for it")
    return tuple(
        ops.zeros_like(x) if g is None else g if create_graph else g.detach()
        for x, g in zip(xs, found, strict=True)
    )


def _vectors(v: Any, like: tuple, name: str) -> tuple:
    """`v`, which must have the shapes of `like`; ones for a single number without it."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise GradError(
                f"{name}: v may be left out for one number only", f"there are {len(like)} tensors"
            )
        return (ops.ones_like(like[0]),)
    found = _listed(v, "v")
    if [x.shape for x in found] != [x.shape for x in like]:
        raise ShapeError(
            f"{name}: v must have the shapes {[list(x.shape) for x in like]}, "
            f"not {[list(x.shape) for x in found]}"
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
    xs, out = _evaluate(func, inputs, create_graph)
    results = []
    for y in _listed(out, "outputs"):
        rows = []
        with modes.enable_grad():
            elements = y.reshape(-1).unbind()
        for element in elements:
            rows.append(_gradients((element,), xs, (None,), create_graph, strict))
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

    def first(*xs: Tensor) -> Any:
        value = modes.call_user(func, *xs)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise GradError("hessian(func, inputs): func must return one number", f"returned: {value!r}")
        found = jacobian(func, xs, create_graph=True, strict=strict)
        return tuple(g.reshape(x.shape) for g, x in zip(found, xs, strict=True))

    xs = _listed(inputs, "inputs")
    found = jacobian(first, xs, create_graph, strict)
    return _like(inputs, tuple(_like(inputs, row) for row in found))


def vjp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute func(inputs), and `v`, shaped as the outputs, times its Jacobian.

    Raises GradError, ShapeError.
    """
    xs, out = _evaluate(func, inputs, create_graph)
    ys = _listed(out, "outputs")
    found = _gradients(ys, xs, _vectors(v, ys, "vjp"), create_graph, strict)
    return _released(out, create_graph), _like(inputs, found)


def jvp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute func(inputs), and its Jacobian times `v`, shaped as the inputs.  Raises GradError, ShapeError.

    Differentiates the reverse mode once more: v J is linear in v, and its derivative is J.
    """
    xs, out = _evaluate(func, inputs, create_graph)
    ys, vs = _listed(out, "outputs"), _vectors(v, xs, "jvp")
    with modes.enable_grad():
        dummies = tuple(ops.zeros_like(y).requires_grad_() for y in ys)
        rows = _gradients(ys, xs, dummies, True, strict)
    found = _gradients(rows, dummies, vs, create_graph, False)
    return _released(out, create_graph), _like(out, found)


def vhp(
    func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """Compute func(inputs), one number, and `v`, shaped as the inputs, times its Hessian.

    Raises GradError, ShapeError.
    """
    xs, out = _evaluate(func, inputs, create_graph)
    with modes.enable_grad():
        first = _gradients(_listed(out, "outputs"), xs, (None,), True, strict)
    found = _gradients(first, xs, _vectors(v, xs, "vhp"), create_graph, strict)
    return _released(out, create_graph), _like(inputs, found)


# A Hessian is symmetric: what stands before it may stand behind it.
hvp = vhp


def _released(out: Any, create_graph: bool) -> Any:
    return out if create_graph else _like(out, tuple(y.detach() for y in _listed(out, "outputs")))


refusing_names(globals(), __name__)

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
