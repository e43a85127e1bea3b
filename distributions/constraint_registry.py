"""Which transform leads from all numbers to what a constraint allows: one to one (`biject_to`), or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ir.errors import ArgumentError, MissingError
from . import constraints, transforms


class ConstraintRegistry:
    """Factories of transforms by the class of a constraint; called with one, it makes its transform."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable] = {}

    def register(self, constraint: Any, factory: Callable | None = None) -> Callable:
        """Enter a factory for a class of constraints, or for that of an instance; without it, a decorator."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise ArgumentError(
                f"register(constraint): takes a constraint or a class of them, not {constraint!r}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: constraints.Constraint) -> transforms.Transform:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise MissingError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _interval(constraint: Any) -> transforms.Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform(
        [transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)]
    )


def _from(bound: str, sign: int) -> Callable:
    def factory(constraint: Any) -> transforms.Transform:
        return transforms.ComposeTransform(
            [transforms.ExpTransform(), transforms.AffineTransform(getattr(constraint, bound), sign)]
        )

    return factory


def _independent(registry: ConstraintRegistry) -> Callable:
    def factory(constraint: Any) -> transforms.Transform:
        base = registry(constraint.base_constraint)
        return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)

    return factory


def _cat(registry: ConstraintRegistry) -> Callable:
    return lambda c: transforms.CatTransform([registry(each) for each in c.cseq], c.dim, c.lengths)


def _stack(registry: ConstraintRegistry) -> Callable:
    return lambda c: transforms.StackTransform([registry(each) for each in c.cseq], c.dim)


for _registry in (biject_to, transform_to):
    for _kind, _factory in {
        constraints._Real: lambda constraint: transforms.identity_transform,
        constraints._IndependentConstraint: _independent(_registry),
        constraints._GreaterThan: _from("lower_bound", 1),
        constraints._GreaterThanEq: _from("lower_bound", 1),
        constraints._LessThan: _from("upper_bound", -1),
        constraints._Interval: _interval,
        constraints._HalfOpenInterval: _interval,
        constraints._CorrCholesky: lambda constraint: transforms.CorrCholeskyTransform(),
        constraints._Cat: _cat(_registry),
        constraints._Stack: _stack(_registry),
    }.items():
        _registry.register(_kind, _factory)
biject_to.register(constraints.simplex, lambda constraint: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: transforms.LowerCholeskyTransform())
for _constraint in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_constraint, lambda constraint: transforms.PositiveDefiniteTransform())
