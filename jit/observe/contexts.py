"""Context variables: what a run sets back is nothing to a replay; what it leaves set is set again."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

from .kinds import MISSING


def standing(variable: ContextVar) -> Any:
    """What a variable is set to here; MISSING where its default counts, if it has one."""
    return variable.get(MISSING)


class Contexts:
    """The variables that this run has set, and has not set back: the last value, and how to set it back."""

    def __init__(self) -> None:
        self.sets: dict[int, tuple[ContextVar, list[tuple[Token, Any]]]] = {}

    def left(self) -> list[tuple[ContextVar, Any]]:
        """What stands at the end of the run."""
        return [(variable, stack[-1][1]) for variable, stack in self.sets.values()]


def asked(rules: Any, variable: ContextVar, name: str, run: Callable, args: tuple) -> Any:
    """A method of a variable was called."""
    key = id(variable)
    there = rules.contexts.sets.get(key)
    if rules.refused or rules.source(variable) is None:
        return rules.natively(f"a context variable that nothing known leads to: {name}()", run, args, {})
    if name == "get" and len(args) < 2:
        if there is not None:
            return there[1][-1][1]
        now = standing(variable)
        if now is not MISSING:
            return rules.fact(variable, "context", 0, f"{rules.const(standing)}({{o}})", now)
        rules.fact(
            variable, "context unset", 0, f"({rules.const(standing)}({{o}}) is {rules.const(MISSING)})", True
        )
        if args:
            return args[0]
        found = run()  # which may raise LookupError: it has neither value nor default, and says so each time
        return rules.fact(variable, "context default", 0, "{o}.get()", found)
    if name == "set" and len(args) == 1:
        value = rules.plain(args[0])
        rules.drops(variable, "context", 0, f"{rules.const(standing)}({{o}})", standing(variable))
        token = rules.new(run(value))
        rules.contexts.sets.setdefault(key, (variable, []))[1].append((token, value))
        return token
    if name == "reset" and there is not None and there[1][-1][0] is args[0]:
        found = run(*args)
        there[1].pop()
        if not there[1]:
            del rules.contexts.sets[key]
        return found
    return rules.natively(f"ContextVar.{name}() of what this run has not set", run, args, {})
