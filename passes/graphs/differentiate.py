"""Reverse-mode differentiation of a graph, by the op records' own gradient rules.

    graph f(%x: f32[3], %y: f32[3]) -> (f32[3]) {
      %0 = mul(%x, %y) : f32[3]
      return %0
    }
    ->
    graph f_grad(%x: f32[3], %y: f32[3], %g: f32[3]) -> (f32[3], f32[3], f32[3]) {
      %0 = mul(%x, %y) : f32[3]
      %1 = mul(%g, %y) : f32[3]
      %2 = mul(%g, %x) : f32[3]
      return %0, %1, %2
    }

Running it twice gives second derivatives.  It comes before passes that fuse: nodes that hold a graph are
opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...ir.errors import GradError
from ...ir.fused import fused
from ...ir.graph import Builder, Constant, Graph, Node, Value
from ...ir.op import REGISTRY, conjugates
from ...ir.ops.arithmetic import add
from ...ir.ops.cast import cast
from ...ir.ops.create import ones_like, zeros_like
from ...ir.ops.reduce import sum
from ...ir.ops.view import expand, reshape
from ...ir.shapes import fitting
from ...ir.types import Type


@dataclass(frozen=True)
class Options:
    """What the derived graph takes and returns.

    wrt: positions of the params to differentiate by; None for all floating ones.  of: positions of the
    results that have a cotangent, the others' is zero; None for all floating ones but constants.  seeds:
    "params" makes each cotangent a further param (named g); "ones" starts from ones, for a loss.  results:
    whether it returns the original results before the gradients.
    """

    wrt: tuple[int, ...] | None = None
    of: tuple[int, ...] | None = None
    seeds: str = "params"
    results: bool = True


def differentiate(graph: Graph, options: Options = Options()) -> Graph:
    """The graph that also returns one gradient per wanted param; zeros where a result does not depend on it.

    Raises GradError for a param or a result whose dtype is not floating.
    """
    return _derived(graph, options, lambda param: zeros_like(param))[0]


def joint(graph: Graph, options: Options = Options()) -> tuple[Graph, tuple[int, ...]]:
    """The same without the gradients that would be zeros, and the positions of the params that have one.

    These are the params that get a gradient in an eager run: the others' stays None.
    """
    return _derived(graph, options, lambda param: None)


def _derived(graph: Graph, options: Options, absent: Callable) -> tuple[Graph, tuple[int, ...]]:
    graph = opened(graph)
    wrt = _positions(graph.params, options.wrt, "param", graph)
    wanted = [graph.params[i] for i in wrt]
    with Builder.extending(graph, f"{graph.name}_grad") as b:
        cotangents: dict[Value, Any] = {}
        for i in _positions(graph.results, options.of, "result", graph):
            result = graph.results[i]
            seed = b.param(result.type, "g") if options.seeds == "params" else ones_like(result)
            _accumulate(cotangents, result, seed)
        varying = varying_with(graph, wanted)
        for node in reversed(graph.nodes):
            if not varying.isdisjoint(node.outputs):
                b.where = node.where
                _pull_back(node, cotangents, varying)
        gradients = [cotangents[p] if p in cotangents else absent(p) for p in wanted]
        made = b.finish(
            [*(graph.results if options.results else ()), *(g for g in gradients if g is not None)]
        )
        return made, tuple(i for i, g in zip(wrt, gradients, strict=True) if g is not None)


def opened(graph: Graph) -> Graph:
    """The graph with every fused node replaced by the nodes it holds."""
    if all(node.op is not fused for node in graph.nodes):
        return graph
    b = Builder.extending(graph.replace(nodes=()))
    became: dict[Value, Value] = {}
    for node in graph.nodes:
        node = node.replace(inputs=tuple(v if v is None else became.get(v, v) for v in node.inputs))
        if node.op is fused:
            results = b.inline(opened(node.attrs["body"]), *node.inputs)
            became.update(zip(node.outputs, results, strict=True))
        else:
            b.append(node)
    return b.finish([became.get(v, v) for v in graph.results])


def _positions(
    values: Sequence[Value], given: Sequence[int] | None, role: str, graph: Graph
) -> Sequence[int]:
    """Which of the params or results are meant.  Raises GradError for one that is not floating."""
    if given is None:
        return [i for i, v in enumerate(values) if v.dtype.inexact and not isinstance(v, Constant)]
    for i in given:
        if not values[i].dtype.inexact:
            raise GradError(
                f"differentiate: {role} {i} of {graph.name} is not floating, so it has no gradient",
                f"{role}: {values[i]!r}",
            )
    return given


def varying_with(graph: Graph, wanted: Iterable[Value]) -> set[Value]:
    """The values that depend on these in a differentiable way, themselves included."""
    found = set(wanted)
    for node in graph.nodes:
        if any(_flows(node, i, found) for i in range(len(node.inputs))):
            found.update(v for v in node.outputs if v.dtype.inexact)
    return found


def _flows(node: Node, i: int, varying: set[Value]) -> bool:
    """Whether a cotangent flows from the node to its operand `i`."""
    return node.inputs[i] in varying and node.op.differentiates(min(i, len(node.op.operands) - 1))


def _pull_back(node: Node, cotangents: dict[Value, Any], varying: set[Value]) -> None:
    """Add what the node's rule gives for its operands."""
    given = tuple(cotangents.get(v) for v in node.outputs)  # hidden ones count in second order
    needs = tuple(_flows(node, i, varying) for i in range(len(node.inputs)))
    if not any(needs) or all(g is None for g in given):
        return
    types = tuple(None if v is None else v.type for v in (*node.inputs, *node.outputs))
    flips = conjugates(node.op, types, node.attrs)
    given = tuple(map(_conjugate, given)) if flips else given
    found = node.op.cotangents(saved_by(node), given, dict(node.attrs), needs, types)
    found = tuple(map(_conjugate, found)) if flips else found
    for value, need, gradient in zip(node.inputs, needs, found, strict=True):
        if need and gradient is not None:
            _accumulate(cotangents, value, fit(gradient, value.type))


def _conjugate(x: Any) -> Any:
    return REGISTRY["conj_physical"](x) if x is not None and x.dtype.is_complex else x


def saved_by(node: Node) -> tuple:
    """The values that the op's rule wants, as `saves` names them; an operand of any number is a tuple."""
    op = node.op
    fixed = len(op.operands) - op.variadic
    by_name: dict[str, Any] = dict(zip(op.operands[:fixed], node.inputs, strict=False)) | dict(
        zip(op.all_outputs, node.outputs, strict=False)
    )
    if op.variadic:
        by_name[op.operands[-1]] = node.inputs[fixed:]
    return tuple(by_name[name] for name in op.saves)


def fit(gradient: Any, to: Type) -> Any:
    """A cotangent in its operand's shape and dtype, by ops."""
    how = fitting(gradient.shape, to.shape)
    if how is not None:
        dims, shape = how
        gradient = sum(gradient, dim=dims) if dims else expand(gradient, shape)
        if gradient.shape != shape:
            gradient = reshape(gradient, shape)
    return gradient if gradient.dtype is to.dtype else cast(gradient, dtype=to.dtype)


def _accumulate(cotangents: dict[Value, Any], value: Value, gradient: Any) -> None:
    known = cotangents.get(value)
    cotangents[value] = gradient if known is None else add(known, gradient)
