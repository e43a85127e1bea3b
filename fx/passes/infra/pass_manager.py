"""Several passes in an order, until nothing changes any more."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ....ir.errors import ArgumentError, LaminaError
from ....nn import Module
from ...graph_module import GraphModule
from .pass_base import PassResult


class PassOrderError(LaminaError, RuntimeError):
    """Passes stand in an order that their constraints rule out, or there is none that suits these."""


class PassFailedError(LaminaError):
    """A pass raised: the error is the cause of this one, which tells what ran before."""


def pass_result_wrapper(fn: Callable | None) -> Callable | None:
    """A pass that returns a PassResult, of one that returns a module, or nothing; both count as a change."""
    if fn is None:
        return None

    @functools.wraps(fn, assigned=(), updated=())
    def wrapped(graph_module: Module) -> PassResult | None:
        result = fn(graph_module)
        if isinstance(result, PassResult):
            return result
        if result is None or isinstance(result, Module):
            return PassResult(graph_module if result is None else result, True)
        return None

    wrapped.__name__ = _name(fn)
    return wrapped


def this_before_that_pass_constraint(this: Callable, that: Callable) -> Callable[[Callable, Callable], bool]:
    """A constraint: `that` never stands before `this`."""
    return lambda a, b: not (a == that and b == this)


def _name(fn: Callable) -> str:
    return fn.__name__ if inspect.isfunction(fn) else type(fn).__name__


class PassManager:
    """Runs passes one after the other.

    passes: functions of a module that return a PassResult.  constraints: functions of two passes, whether the
    first may stand before the second; without `validate_constraints` an order is looked for that suits all.
    steps: how often all are run at most; they are no more once none changes anything.
    run_checks_after_each_pass: whether what `add_checks` was told is asked after each pass, too.
    """

    def __init__(
        self, passes: list[Callable] | None = None, constraints: list[Callable] | None = None,
        steps: int | None = None, run_checks_after_each_pass: bool = False,
        suppress_check_failures: bool = False,
    ):  # fmt: skip
        self.passes, self.constraints, self.steps = passes or [], constraints or [], steps or 1
        self.run_checks_after_each_pass = run_checks_after_each_pass
        self.suppress_check_failures = suppress_check_failures
        self._validated = False

    def add_pass(self, _pass: Callable) -> None:
        """Run this one, too, after the others."""
        self.passes.append(_pass)
        self._validated = False

    def add_constraint(self, constraint: Callable) -> None:
        """Keep to this one, too."""
        self.constraints.append(constraint)
        self._validated = False

    def add_checks(self, check: Callable) -> None:
        """Have this look at the module before the passes.  Raises ArgumentError where it takes more."""
        if len(inspect.signature(check).parameters) != 1:
            raise ArgumentError(
                "PassManager.add_checks(check): the function should only take in one variable, a module"
            )
        self.check = check  # type: ignore[method-assign]

    def check(self, module: Module) -> None:
        """Look at the module, and raise where something is wrong."""

    def validate_constraints(self) -> None:
        """Raise PassOrderError unless the passes stand in an order that suits the constraints."""
        if self._validated:
            return
        for constraint in self.constraints:
            for i, a in enumerate(self.passes):
                for j, b in enumerate(self.passes[i + 1 :], i + 1):
                    if not constraint(a, b):
                        raise PassOrderError(
                            f"pass schedule constraint violated: expected {_name(b)} before {_name(a)}, "
                            f"which are at {j} and {i}"
                        )
        self._validated = True

    def solve_constraints(self) -> None:
        """Put the passes into an order that suits the constraints.  Raises PassOrderError."""
        left, ordered = list(self.passes), []
        while left:
            first = next((p for p in left if not any(self._precedes(q, p) for q in left if q != p)), None)
            if first is None:
                raise PassOrderError(
                    f"Circular dependency detected within the following passes: {[_name(p) for p in left]}"
                )
            ordered.append(first)
            left.remove(first)
        self.passes, self._validated = ordered, True

    def _precedes(self, a: Callable, b: Callable) -> bool:
        """Whether `a` has to stand before `b`."""
        return any(not constraint(b, a) for constraint in self.constraints)

    def __call__(self, module: Module) -> PassResult:
        """Run the passes on a module.  Raises PassFailedError."""
        if not self._validated:
            self.solve_constraints()
        self.check(module)
        changed = False
        for _ in range(self.steps):
            modified = False
            for i, fn in enumerate(self.passes):
                try:
                    result: Any = fn(module)
                    if not hasattr(result, "graph_module"):
                        raise ArgumentError(
                            f"The result of the pass {_name(fn)} should be type PassResult, not "
                            f"{type(result).__name__}",
                            "pass_result_wrapper() makes a pass that returns one",
                        )
                    module, modified = result.graph_module, modified or result.modified
                    if isinstance(module, GraphModule):
                        module.recompile()
                    if self.run_checks_after_each_pass:
                        self.check(module)
                except Exception as error:
                    before = [_name(p) for p in self.passes[:i]]
                    raise PassFailedError(
                        f"An error occurred when running the {_name(fn)!r} pass after the following passes: "
                        f"{before}"
                    ) from error
            changed = changed or modified
            if not modified:
                break
        return PassResult(module, changed)


__all__ = ["PassManager", "pass_result_wrapper", "this_before_that_pass_constraint"]
