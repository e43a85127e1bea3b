"""Make the text of a random program: templates of `fuzz_parts` and `fuzz_state`, filled in at random."""

from __future__ import annotations

import ast
import contextlib
import random
import re
from collections import Counter
from dataclasses import dataclass, field

from fuzz_lives import LIVES
from fuzz_parts import CHANGES, DOES, LITERALS, PRELUDE, READS, RETURNS
from fuzz_state import PARTS

CALLS = 12
DEEPEST = 3  # expressions inside of expressions

HOLE = re.compile(r"<(new)?([A-Zm]?[a-zA-Z]*)(?::(\d))?>|<(\d)>")


@dataclass
class Scope:
    """Local variables by type, and those that may be assigned."""

    names: dict[str, list[str]]
    count: int = 0

    def size(self) -> dict[str, int]:
        return {kind: len(names) for kind, names in self.names.items()}

    def shrink(self, to: dict[str, int]) -> None:
        for kind, names in self.names.items():
            del names[to.get(kind, 0) :]


@dataclass
class Maker:
    """Fills in templates at random, and counts those it used."""

    draw: random.Random
    without: tuple[str, ...] = ()
    kind: str = "state"  # or "lives": with at least one part of `fuzz_lives`
    used: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        count = self.draw.choice((1, 2, 2, 3))
        if self.kind == "lives":
            self.parts = self.draw.sample(LIVES, self.draw.choice((1, 1, 2)))
            self.parts += self.draw.sample(PARTS, count - 1)
        else:
            self.parts = self.draw.sample(PARTS, count)
        self.reads = {kind: list(READS[kind]) for kind in READS}
        for part in self.parts:
            for kind, templates in part.reads.items():
                self.reads[kind] += templates * 3  # state is what this is about
        self.does = list(DOES) + [t for part in self.parts for t in part.does * 4]
        self.changes = list(CHANGES) + [t for part in self.parts for t in part.changes * 4]
        for kind, templates in self.reads.items():
            self.reads[kind] = [t for t in templates if self._wanted(t)]
        self.does, self.changes = [[t for t in ts if self._wanted(t)] for ts in (self.does, self.changes)]
        self.returns = [t for t in RETURNS if self._wanted(t)]

    def _wanted(self, template: str) -> bool:
        return not any(word in template for word in self.without)

    def text(self) -> str:
        """A whole program."""
        self.scope = Scope({"T": ["x", "y"], "N": ["n"], "S": [], "L": [], "D": [], "F": [], "X": []})
        parts = "".join(part.text for part in self.parts)
        body = self.block(self.draw.randint(3, 8), 0)
        body += self.fill(self.pick(self.returns), 2)
        names = _assigned(PRELUDE + parts)
        self.near = [t for t in self.changes if t not in CHANGES and _subject(t) in body.lower()]
        function = _function("@trace\ndef f(x, y, n=1, *rest, obj=None, held=(), **options):", body, names)
        return f"{parts}{function}{_function('def calls():', self.calling(), names)}"

    def pick(self, templates: list[str]) -> str:
        template = self.draw.choice(templates)
        self.used[template] += 1
        return template

    def block(self, length: int, level: int) -> str:
        """Statements, whose new variables are not met after them."""
        before = self.scope.size()
        lines = "".join(self.statement(level) for _ in range(length))
        if level:
            self.scope.shrink(before)
        return lines

    def statement(self, level: int) -> str:
        deep = [t for t in self.does if "<BODY>" not in t] if level >= 2 else self.does
        template, lines, known = self.pick(deep), [], {}
        before = self.scope.size()
        for line in template.split("\n"):
            indent = line[: len(line) - len(line.lstrip())]
            if line.strip() == "<BODY>":
                body = self.block(self.draw.choice((1, 1, 2)), level + 1)
                lines += [indent + inner for inner in body.splitlines()]
            else:
                lines.append(self.fill(line, self.draw.randint(0, DEEPEST - 1), known))
        if "<BODY>" in template:
            self.scope.shrink(before)
        return "\n".join(lines) + "\n"

    def fill(self, template: str, depth: int, known: dict[str, str] | None = None) -> str:
        """A template's text; the new variables that it makes are known only after it."""
        known, fresh = {} if known is None else known, []

        def one(hole: re.Match) -> str:
            new, kind, number, again = hole.groups()
            if again:
                return known[again]
            if new:
                self.scope.count += 1
                name = f"{kind.lower()}{self.scope.count}"
                fresh.append((kind, name))
            else:
                name = self.expression(kind, depth)
            if number:
                known[number] = name
            return name

        text = HOLE.sub(one, template)
        for kind, name in fresh:
            self.scope.names[kind].append(name)
        return text

    def expression(self, kind: str, depth: int) -> str:
        if kind in LITERALS:
            return self.draw.choice(LITERALS[kind])
        if kind[0] == "m" or kind.islower():
            names = self.scope.names[kind[-1].upper()]
            return self.draw.choice(names) if names else "x"
        templates = self.reads[kind]
        if depth <= 0:
            templates = [t for t in templates if not re.search(r"<[TNBSLDEF]>", t)] or templates
        elif self.scope.names.get(kind) and self.draw.random() < 0.2:
            return self.draw.choice(self.scope.names[kind])
        text = self.fill(self.pick(templates), depth - 1)
        return f"({text})" if re.search(r"[^\w.\[\]'()]", text) and not _closed(text) else text

    def alike(self, template: str) -> str:
        """A change to a number, now and then to its like: equal but of another type, or of another sign."""
        place, equals, value = template.partition(" = ")
        if value != "<V>" or self.draw.random() < 0.6:
            return template
        made = self.draw.choice(("-", "float", "int", "bool", "np.float64", "lamina.tensor"))
        return f"{place} = {made}({place})"

    def calling(self) -> str:
        """The calls: arguments, and one or two changes before most of the later ones."""
        given = {"x": "<X>", "y": "<X>", "n": "<V>", "obj": "types.SimpleNamespace(x=<V>)", "held": "[x, y]"}
        first = [self.fill(f"{name} = {text}", 0) for name, text in given.items()]
        lines = [*first, "rest, options = (), {}"]
        if self.draw.random() < 0.6:  # mostly the first of its kind, so that most programs run
            lines[:2] = ["x = lamina.tensor([1.0, -2.0, 3.0])", "y = lamina.tensor([0.5, 0.0, -1.0])"]
        given = self.draw.choice(("(x, y, n, *rest)", "(x, y)", "(x, y, n)", "(x, x, n)"))
        named = self.draw.choice(
            ("dict(obj=obj, held=held, **options)", "{'obj': obj}", "{'obj': obj, 'held': held}")
        )
        lines.append(f"r = yield {given}, {named}")
        for _ in range(CALLS - 1):
            for _ in range(self.draw.choice((0, 0, 0, 1, 1, 2))):
                near = self.near and self.draw.random() < 0.7
                text = self.fill(self.alike(self.pick(self.near if near else self.changes)), 0)
                lines.append(text if text.startswith("with ") else f"with maybe: {text}")
            lines.append(f"r = yield {given}, {named}")
        return "\n".join(lines)


def _subject(change: str) -> str:
    """The name that a change is about; of classes and their objects the same."""
    found = re.search(r"[A-Za-z_]+", change.removeprefix("drop(").removeprefix("[h.remove() for h in "))
    return found[0].lower() if found else ""


def _closed(text: str) -> bool:
    """Whether an expression needs no brackets around it."""
    with contextlib.suppress(SyntaxError):
        return isinstance(ast.parse(text, mode="eval").body,
                          (ast.Name, ast.Call, ast.Attribute, ast.Subscript, ast.List, ast.Dict, ast.ListComp,
                           ast.DictComp, ast.JoinedStr))  # fmt: skip
    return False


def _assigned(text: str) -> set[str]:
    """The names that a module's text binds at its top."""
    tree = ast.parse(text)
    held = {n.id for s in tree.body if isinstance(s, ast.Assign) for t in s.targets for n in ast.walk(t)
            if isinstance(n, ast.Name)}  # fmt: skip
    return held | {s.name for s in tree.body if isinstance(s, (ast.FunctionDef, ast.ClassDef))}


def _function(head: str, body: str, names: set[str]) -> str:
    """A function's text, with a declaration of the module's names that it binds."""
    body = "\n".join(f"    {line}" for line in body.splitlines())
    tree = ast.parse(f"{head}\n{body}\n").body[0]
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    bound |= {
        n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n is not tree
    }
    shared = sorted(bound & names)
    declared = f"    global {', '.join(shared)}\n" if shared else ""
    return f"{head}\n{declared}{body}\n"
