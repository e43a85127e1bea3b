"""What a chat template may take: rounds of loops, the text of a value, and what all of its steps look at.

Jinja2's sandbox bounds none of these.  A template's tree is changed so that whatever walks over a value, or
makes a text of it, hands it over first; filters, tests and calls are told as well.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

MOST_ROUNDS = 50_000  # of loops, and calls, of a rendering
MOST_TEXT = 4 << 20  # characters of a value, written out
MOST_WORK = 1 << 26  # characters that steps make or look at; THING for each thing in a container
MOST_SOURCE = 1 << 18  # characters of a template
DEEP = 64  # containers inside of one another
LARGEST = 1 << 62  # numbers that are computed with
THING = 16
EXPONENT = 400  # digits that numbers are rounded to
FILTERS = (
    "abs bool capitalize count d default dictsort e escape first float groupby int items join last length "
    "list lower map max min reject rejectattr reverse round select selectattr sort string sum title trim "
    "unique upper"
).split()
METHODS = (
    "append capitalize count endswith find get index isalpha isdigit items keys lower lstrip pop "
    "removeprefix removesuffix rfind rstrip split splitlines startswith strip title update upper values"
).split()
# What looks at its argument alone, and not at what lies in it.
SHALLOW = frozenset(
    "abs bool count d default first items last length list map reject rejectattr reverse select selectattr "
    "counted sliced defined undefined none boolean callable mapping iterable sequence number integer "
    "float true false odd even filter test sameas".split()
)
PAIRED = frozenset("rfind strip lstrip rstrip trim".split())  # take as long as both texts multiplied


class BeyondBoundsError(Exception):
    """A template took more than it may."""


class Allowance:
    """What a rendering may take yet."""

    def __init__(self) -> None:
        self.rounds, self.work = MOST_ROUNDS, MOST_WORK

    def tick(self) -> None:
        self.rounds -= 1
        if self.rounds < 0:
            raise BeyondBoundsError(f"more than {MOST_ROUNDS} rounds of its loops and calls")

    def spend(self, work: int) -> None:
        self.work -= work
        if self.work < 0:
            raise BeyondBoundsError(f"its steps look at more than {MOST_WORK} characters")

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self.tick()
            yield value

    def weighed(self, value: Any) -> Any:
        """The value, which is not too long a text when it is written out, with all that lies in it.

        A value can stand in a container many times, and so can that one in another: what they come to grows
        beyond any bound in few lines.
        """
        length, things, todo = 0, 0, [(value, 0)]
        while todo:
            each, depth = todo.pop()
            things += 1
            length += 4  # a comma, a space, quotation marks
            if isinstance(each, str | bytes):
                length += len(each)
            elif isinstance(each, list | tuple | dict | set | frozenset):
                length += 4 * len(each)
                if depth == DEEP:
                    raise BeyondBoundsError(f"more than {DEEP} lists inside of one another")
                if length <= MOST_TEXT:
                    todo += [(inner, depth + 1) for inner in each]
                    if isinstance(each, dict):
                        todo += [(inner, depth + 1) for inner in each.values()]
            elif isinstance(each, int) and abs(each) > LARGEST:
                raise BeyondBoundsError("a number of more than 62 bits")
            if length > MOST_TEXT:
                raise BeyondBoundsError(f"more than {MOST_TEXT} characters")
        self.spend(THING * things)
        return value

    def written(self, value: Any) -> Any:
        """A value that is about to be put into what is written."""
        if not isinstance(value, str):
            return self.taken(str(self.weighed(value)))
        return self.taken(value)

    def taken(self, value: Any) -> Any:
        """What a step made; of what makes one thing after another, each as it comes."""
        if isinstance(value, int) and abs(value) > LARGEST:
            raise BeyondBoundsError("a number of more than 62 bits")
        if hasattr(type(value), "__next__"):
            return self._each(value)
        self.spend(size_of(value))
        return value

    def _each(self, values: Iterator[Any]) -> Iterator[Any]:
        for value in values:
            self.spend(THING)
            yield value

    def told(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter or a test that tells what it looks at, and what it makes."""
        first = hasattr(function, "jinja_pass_arg")

        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            given = [*args[first:], *kwargs.values()]
            if name not in SHALLOW and given and hasattr(type(given[0]), "__next__"):
                given[0] = [*given[0]]
                args = (*args[:first], given[0], *args[first + 1 :])
            self.looks(name, given)
            return self.taken(function(*args, **kwargs))

        return bounded

    def looks(self, name: str, given: Sequence[Any]) -> None:
        """Tell what a filter, a test or a method of this name is about to look at."""
        for value in given:
            if name not in SHALLOW:
                self.weighed(value)
            self.spend(size_of(value) // 8)
        if name in PAIRED and len(given) > 1 and all(isinstance(value, str) for value in given[:2]):
            self.spend(len(given[0]) * len(given[1]) // 8)

    # ---- steps that are bounded before they are taken
    def compared(self, value: Any) -> Any:
        self.spend(size_of(value) // 8)
        return self.weighed(value)

    def sliced(self, value: Any) -> Any:
        self.spend(size_of(value) // 8)
        return value

    def joined(self, parts: Sequence[Any]) -> str:
        """Texts after one another."""
        self.weighed(parts)
        return self.taken("".join(map(str, parts)))

    def replace(self, text: Any, old: Any, new: Any, count: int | None = None) -> str:
        text, old, new = (str(self.weighed(value)) for value in (text, old, new))
        times = text.count(old) if count is None or count < 0 else min(text.count(old), count)
        if len(text) + times * len(new) > MOST_TEXT:
            raise BeyondBoundsError(f"more than {MOST_TEXT} characters")
        return self.taken(text.replace(old, new, times))

    def join(self, between: Any, values: Iterable[Any]) -> str:
        values = [*values]
        self.weighed(values)
        between = str(self.weighed(between))
        if sum(len(v) for v in values if isinstance(v, str)) + len(values) * len(between) > MOST_TEXT:
            raise BeyondBoundsError(f"more than {MOST_TEXT} characters")
        return self.taken(between.join(map(str, values)))

    def round(self, value: Any, precision: int = 0, method: str = "common") -> Any:
        if not -EXPONENT <= precision <= EXPONENT or method not in ("common", "ceil", "floor"):
            raise BeyondBoundsError(f"numbers are rounded to at most {EXPONENT} digits")
        if method == "common":
            return round(value, precision)
        scaled, whole = value * 10.0**precision, int(value * 10.0**precision)
        step = (whole < scaled) if method == "ceil" else -(whole > scaled)
        return (whole + step) / 10.0**precision

    def json(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: Sequence[str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        self.weighed(value)
        deep = None if indent is None else min(int(indent), 8)
        comma, colon = separators or (", " if deep is None else ",", ": ")
        form: dict[str, Any] = {"ensure_ascii": ensure_ascii, "sort_keys": sort_keys}
        form["separators"] = comma[:8], colon[:8]
        if deep is None:
            return self.taken(json.dumps(value, **form))
        parts, length = [], 0
        for part in json.JSONEncoder(**form, indent=deep).iterencode(value):
            length += len(part)
            if length > MOST_TEXT:
                raise BeyondBoundsError(f"more than {MOST_TEXT} characters")
            parts.append(part)
        return self.taken("".join(parts))


def size_of(value: Any) -> int:
    """The characters of a text, and THING for each thing in a container."""
    if isinstance(value, str | bytes):
        return len(value)
    return THING * len(value) if isinstance(value, list | tuple | dict | range) else 0


def handed_over(nodes: Any, tree: Any) -> Any:
    """A template's tree whose loops, comparisons, slices and texts are handed to the filters above."""

    def through(name: str, node: Any) -> Any:
        return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)

    for loop in [*tree.find_all(nodes.For)]:
        loop.iter = through("counted", loop.iter)
    for text in [*tree.find_all(nodes.Concat)]:
        # A node can't be replaced from inside; one whose only part is the whole text says the same.
        text.nodes = [through("joined", nodes.List([*text.nodes], lineno=text.lineno))]
    for compared in [*tree.find_all((nodes.Compare, nodes.Operand))]:
        compared.expr = through("compared", compared.expr)
    for pair in [*tree.find_all(nodes.Pair)]:  # a key is hashed, with all that lies in it
        pair.key = through("weighed", pair.key)
    for item in [*tree.find_all(nodes.Getitem)]:
        if isinstance(item.arg, nodes.Slice):
            item.node = through("sliced", item.node)
    for output in [*tree.find_all(nodes.Output)]:
        # Text of the template itself is finalised, and so counted, where it is a constant as others are.
        output.nodes = [
            nodes.Const(node.data, lineno=node.lineno) if isinstance(node, nodes.TemplateData) else node
            for node in output.nodes
        ]
    return tree
