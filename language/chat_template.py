"""Chat templates: conversations as the text that a model was trained on.

A template is a program of the checkpoint's in Jinja2's language.  It runs in its sandbox, and within bounds
that the sandbox has not: rounds of loops, characters of what it makes, and filters and methods by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import reduce
from typing import Any

from ..ir import lazy
from .template_bounds import (
    FILTERS,
    LARGEST,
    METHODS,
    MOST_SOURCE,
    MOST_TEXT,
    Allowance,
    BeyondBoundsError,
    handed_over,
    size_of,
)
from .untrusted import CheckpointError


class ChatTemplate:
    """A template, compiled.  special: texts of special tokens, as templates name them."""

    def __init__(self, source: str, special: Mapping[str, str]):
        self.special = dict(special)
        self._jinja = lazy.load("jinja2", "language")
        for part in ("ext", "sandbox"):
            lazy.load(f"jinja2.{part}", "language")
        if len(source) > MOST_SOURCE:
            raise CheckpointError(f"the chat template has more than {MOST_SOURCE} characters")
        environment = _environment(self._jinja, Allowance())
        try:
            tree = handed_over(self._jinja.nodes, environment.parse(source))
            self._code = environment.compile(tree)
        except (KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:  # what Python's own compiler says of it among them
            told = f"{type(error).__name__}: {error}"
            raise CheckpointError(f"the chat template can't be read: {told}") from None

    def render(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str:
        """The prompt of a conversation, up to where the answer begins.  Raises CheckpointError."""
        environment = _environment(self._jinja, Allowance())
        names = {
            "messages": [dict(m) for m in messages],
            "add_generation_prompt": True,
            **self.special,
            **more,
        }
        template = environment.template_class.from_code(environment, self._code, environment.make_globals({}))
        parts, length = [], 0
        try:
            for part in template.generate(names):
                length += len(part)
                if length > MOST_TEXT:
                    raise BeyondBoundsError(f"more than {MOST_TEXT} characters")
                parts.append(part)
        except _RefusedError as error:
            raise CheckpointError(f"the chat template refuses the conversation: {error}") from None
        except (KeyboardInterrupt, SystemExit):
            raise
        except Exception as error:  # a program of the checkpoint's may raise anything
            raise CheckpointError(f"the chat template failed: {type(error).__name__}: {error}") from None
        return "".join(parts)


class _RefusedError(Exception):
    """What a template raises itself."""


def _environment(jinja: Any, allowance: Allowance) -> Any:
    """Jinja2's sandbox within an allowance."""
    runtime = jinja.runtime

    class Bounded(jinja.sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["+", "-", "*", "/", "//", "%", "**"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            numbers = isinstance(left, int | float) and isinstance(right, int | float)
            large = numbers and max(abs(left), abs(right)) > LARGEST
            long = size_of(left) + size_of(right) > MOST_TEXT
            if operator == "**" or not numbers and operator in "*%" or large or long:
                raise BeyondBoundsError(f"{type(left).__name__} {operator} {type(right).__name__}")
            return allowance.taken(super().call_binop(context, operator, left, right))

        def getitem(self, obj: Any, argument: Any) -> Any:
            return super().getitem(obj, allowance.weighed(argument))

        def call(self, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            allowance.tick()  # macros call one another
            for value in (*args, *kwargs.values()):
                allowance.weighed(value)
            owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
            if isinstance(function, runtime.LoopContext):  # a recursive loop, over other things
                args = tuple(map(allowance.counted, args))
            elif isinstance(owner, str | bytes | list | tuple | dict):
                match name:
                    case "replace":
                        return allowance.replace(owner, *args)
                    case "join":
                        return allowance.join(owner, *args)
                    case _ if name not in METHODS:
                        raise BeyondBoundsError(f"the method {name}")
                if isinstance(owner, list | tuple) and name in ("count", "index"):
                    allowance.weighed(owner)
                allowance.looks(name, [owner, *args] if isinstance(owner, str) else args)
            elif not isinstance(function, given) and function not in known and owner.__class__ not in given:
                raise BeyondBoundsError(f"the call of {name or type(function).__name__}")
            return allowance.taken(super().call(context, function, *args, **kwargs))

    class Trained(jinja.ext.Extension):
        """`{% generation %}`, which marks what a model is trained on, and writes what is in it."""

        tags = frozenset(["generation"])

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return jinja.nodes.Scope(parser.parse_statements(["name:endgeneration"], True), lineno=line)

    class Names(jinja.utils.Namespace):
        def __repr__(self) -> str:  # one can hold itself, and others many times
            return "<Namespace>"

    @jinja.pass_context
    def written(context: Any, value: Any) -> Any:  # of a context: or it would be called as a template is read
        return allowance.written(value)

    def of(values: Any, attribute: str | None) -> Any:
        return values if attribute is None else [found.getitem(value, attribute) for value in values]

    def add(left: Any, right: Any) -> Any:
        return found.call_binop(None, "+", left, right)

    found = Bounded(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", Trained],
        finalize=written,
        optimized=False,  # what is constant is computed as the rest is, when a text is written
    )
    given = (runtime.Macro, runtime.LoopContext, runtime.BlockReference, jinja.Undefined)
    found.tests = {name: allowance.told(name, test) for name, test in found.tests.items()}
    kept = {name: found.filters[name] for name in FILTERS if name in found.filters}
    found.filters = {name: allowance.told(name, function) for name, function in kept.items()}
    found.filters |= {
        "tojson": allowance.json,
        "replace": allowance.replace,
        "join": lambda values, between="", attribute=None: allowance.join(between, of(values, attribute)),
        "sum": lambda values, attribute=None, start=0: reduce(add, of(values, attribute), start),
        "round": allowance.round,
        "compared": allowance.compared,
        "counted": allowance.counted,
        "joined": allowance.joined,
        "sliced": allowance.sliced,
        "weighed": allowance.weighed,
    }
    found.globals = {
        "raise_exception": _raise,
        "strftime_now": lambda form: datetime.now().strftime(form[:100]),
        "namespace": Names,
        "range": found.globals["range"],
        "dict": found.globals["dict"],
    }
    known = [*found.globals.values()]
    return found


def _raise(message: Any) -> None:
    raise _RefusedError(message)
