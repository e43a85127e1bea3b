"""Chat templates: conversations as the text that a model was trained on.

A template is a program of the checkpoint's in Jinja2's language.  It runs in its sandbox, and within bounds
that the sandbox has not: rounds of loops, characters of what it makes, and filters and methods by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ..ir import lazy
from .untrusted import CheckpointError

MOST_ROUNDS = 50_000  # of loops, and calls, of a rendering
MOST_TEXT = 4 << 20  # characters of a value
LARGEST = 1 << 62  # numbers that are computed with
FILTERS = (
    "abs bool capitalize count d default dictsort e escape first float groupby int items join last length "
    "list lower map max min reject rejectattr reverse round select selectattr sort string sum title trim "
    "unique upper"
).split()
METHODS = (
    "append capitalize count endswith find get index isalpha isdigit items keys lower lstrip pop "
    "removeprefix removesuffix rfind rstrip split splitlines startswith strip title update upper values"
).split()


class ChatTemplate:
    """A template, compiled.  special: texts of special tokens, as templates name them."""

    def __init__(self, source: str, special: Mapping[str, str]):
        self.special = dict(special)
        self._jinja = lazy.load("jinja2", "language")
        for part in ("ext", "sandbox"):
            lazy.load(f"jinja2.{part}", "language")
        try:
            tree = _counted(self._jinja, _environment(self._jinja, lambda: None).parse(source))
            self._code = _environment(self._jinja, lambda: None).compile(tree)
        except (self._jinja.TemplateError, RecursionError, SyntaxError, ValueError) as error:
            raise CheckpointError(f"the chat template can't be read: {error}") from None

    def render(self, messages: Sequence[Mapping[str, Any]], **more: Any) -> str:
        """The prompt of a conversation, up to where the answer begins.  Raises CheckpointError."""
        rounds = 0

        def tick() -> None:
            nonlocal rounds
            rounds += 1
            if rounds > MOST_ROUNDS:
                raise _BeyondBoundsError(f"more than {MOST_ROUNDS} rounds of its loops and calls")

        environment = _environment(self._jinja, tick)
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
                    raise _BeyondBoundsError(f"more than {MOST_TEXT} characters")
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


class _BeyondBoundsError(Exception):
    """A template took more than it may."""


def _environment(jinja: Any, tick: Callable[[], None]) -> Any:
    """Jinja2's sandbox with our bounds.  tick: called at each round of a loop."""

    class Bounded(jinja.sandbox.ImmutableSandboxedEnvironment):
        intercepted_binops = frozenset(["*", "**", "%", "+"])

        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            numbers = isinstance(left, int | float) and isinstance(right, int | float)
            large = numbers and max(abs(left), abs(right)) > LARGEST
            long = _size(left) + _size(right) > MOST_TEXT
            if operator == "**" or not numbers and operator in "*%" or large or long:
                raise _BeyondBoundsError(f"{type(left).__name__} {operator} {type(right).__name__}")
            return super().call_binop(context, operator, left, right)

        def call(self, context: Any, function: Any, *args: Any, **kwargs: Any) -> Any:
            tick()  # macros call one another
            owner = getattr(function, "__self__", None)
            if isinstance(owner, str | bytes | list | tuple | dict):
                match function.__name__:
                    case "replace":
                        return _replace(owner, *args)
                    case "join":
                        return _join(owner, *args)
                    case name if name not in METHODS:
                        raise _BeyondBoundsError(f"the method {name}")
            return super().call(context, function, *args, **kwargs)

    def counted(values: Any) -> Iterator[Any]:
        for value in values:
            tick()
            yield value

    class Trained(jinja.ext.Extension):
        """`{% generation %}`, which marks what a model is trained on, and writes what is in it."""

        tags = frozenset(["generation"])

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return jinja.nodes.Scope(parser.parse_statements(["name:endgeneration"], True), lineno=line)

    known = ["jinja2.ext.loopcontrols", Trained]
    found = Bounded(trim_blocks=True, lstrip_blocks=True, extensions=known)
    found.filters = {name: found.filters[name] for name in FILTERS if name in found.filters}
    found.filters |= {
        "tojson": _tojson,
        "replace": _replace,
        "join": lambda values, between="", attribute=None: _join(
            between, values if attribute is None else [found.getitem(v, attribute) for v in values]
        ),
        "counted": counted,
        "within": _within,
    }
    found.globals = {
        "raise_exception": _raise,
        "strftime_now": lambda form: _within(datetime.now().strftime(form[:100])),
        "namespace": found.globals["namespace"],
        "range": found.globals["range"],
        "dict": found.globals["dict"],
    }
    return found


def _counted(jinja: Any, tree: Any) -> Any:
    """Put `counted` around what loops run over, and `within` around what puts texts together."""
    nodes = jinja.nodes
    for loop in tree.find_all(nodes.For):
        loop.iter = nodes.Filter(loop.iter, "counted", [], [], None, None, lineno=loop.lineno)
    for text in list(tree.find_all(nodes.Concat)):
        inner = nodes.Concat([*text.nodes], lineno=text.lineno)
        # A node can't be replaced from inside; one whose only part is the checked text says the same.
        text.nodes = [nodes.Filter(inner, "within", [], [], None, None, lineno=text.lineno)]
    return tree


def _size(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple | dict) else 0


def _within(value: Any) -> Any:
    if _size(value) > MOST_TEXT:
        raise _BeyondBoundsError(f"more than {MOST_TEXT} characters")
    return value


def _replace(text: Any, old: str, new: str, count: int | None = None) -> str:
    text, old, new = str(text), str(old), str(new)
    times = text.count(old) if count is None else min(text.count(old), count)
    if len(text) + times * len(new) > MOST_TEXT:
        raise _BeyondBoundsError(f"more than {MOST_TEXT} characters")
    return text.replace(old, new, -1 if count is None else count)


def _join(between: Any, values: Iterable[Any]) -> str:
    parts = [str(value) for value in values]
    if sum(map(len, parts)) + len(parts) * len(str(between)) > MOST_TEXT:
        raise _BeyondBoundsError(f"more than {MOST_TEXT} characters")
    return str(between).join(parts)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: Sequence[str] | None = None,
    sort_keys: bool = False,
) -> str:
    deep = None if indent is None else min(int(indent), 8)
    comma, colon = separators or (", " if deep is None else ",", ": ")
    between = comma[:8], colon[:8]
    return _within(
        json.dumps(value, ensure_ascii=ensure_ascii, indent=deep, separators=between, sort_keys=sort_keys)
    )


def _raise(message: Any) -> None:
    raise _RefusedError(message)
