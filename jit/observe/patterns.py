"""Rewrites `match` statements to `if` statements that ask a recorder.

    match point:
        case (0, y) if y > limit: ...
    ->
    t1 = point
    if (t2 := R.matched_sequence(t1, 2, None)) and R.truth(R.compare("==", t2[0], 0)) and … : ...

A pattern becomes a test of a temporary name; captures are kept in temporaries of their own and bound once the
whole pattern holds, before the guard is asked, as Python does it.
"""

from __future__ import annotations

import ast
from typing import Any

from .nodes import constant, name, placed, tupled


class Patterns:
    """The part of the rewriter that knows patterns."""

    ask: Any
    bare: Any
    test: Any
    body: Any
    mangled: Any
    temporary: Any
    bind: Any

    def _Match(self, node: ast.Match) -> list[ast.stmt]:
        subject = self.temporary()
        chain: list[ast.stmt] = []
        for case in reversed(node.cases):
            captures: dict[str, str] = {}
            tests = [self.pattern(case.pattern, subject, captures)]
            if captures:  # a tuple that is never empty, hence true
                tests.append(tupled([self.bind(text, name(held)) for text, held in captures.items()]))
            if case.guard is not None:
                tests.append(self.test(case.guard))
            test = ast.BoolOp(ast.And(), tests) if len(tests) > 1 else tests[0]
            chain = [placed(ast.If(placed(test, case.pattern), self.body(case.body), chain), case.pattern)]
        return [ast.Assign([name(subject, ast.Store())], self.bare(node.subject)), *chain]

    def pattern(self, node: ast.pattern, subject: str, captures: dict[str, str]) -> ast.expr:
        """An expression that is true where the pattern holds."""
        test = getattr(self, "_pattern_" + type(node).__name__)(node, subject, captures)
        return placed(test, node)

    def all_of(self, tests: list[ast.expr]) -> ast.expr:
        return ast.BoolOp(ast.And(), tests) if len(tests) > 1 else tests[0] if tests else constant(True)

    def kept(self, text: str, value: ast.expr) -> ast.expr:
        """`value`, which is not looked at, kept in a temporary."""
        return tupled([ast.NamedExpr(name(text, ast.Store()), value)])

    def capture(self, text: str | None, value: ast.expr, captures: dict[str, str]) -> ast.expr:
        if text is None:
            return constant(True)
        held = captures.setdefault(self.mangled(text), "") or self.temporary()
        captures[self.mangled(text)] = held
        return self.kept(held, value)

    def _pattern_MatchValue(self, node: ast.MatchValue, subject: str, captures: dict) -> ast.expr:
        return self.ask("truth", self.ask("compare", constant("=="), name(subject), self.bare(node.value)))

    def _pattern_MatchSingleton(self, node: ast.MatchSingleton, subject: str, captures: dict) -> ast.expr:
        return ast.Compare(name(subject), [ast.Is()], [constant(node.value)])

    def _pattern_MatchAs(self, node: ast.MatchAs, subject: str, captures: dict) -> ast.expr:
        inner = [self.pattern(node.pattern, subject, captures)] if node.pattern else []
        return self.all_of([*inner, self.capture(node.name, name(subject), captures)])

    def _pattern_MatchOr(self, node: ast.MatchOr, subject: str, captures: dict) -> ast.expr:
        return ast.BoolOp(ast.Or(), [self.pattern(part, subject, captures) for part in node.patterns])

    def _pattern_MatchSequence(self, node: ast.MatchSequence, subject: str, captures: dict) -> ast.expr:
        stars = [i for i, part in enumerate(node.patterns) if isinstance(part, ast.MatchStar)]
        before = stars[0] if stars else len(node.patterns)
        after = len(node.patterns) - before - 1 if stars else None
        wanted = constant(tuple(i for i, part in enumerate(node.patterns) if not wild(part)))
        found = self.ask("matched_sequence", name(subject), constant(before), constant(after), wanted)
        return self.parts(found, node.patterns, captures)

    def parts(self, found: ast.expr, patterns: list[ast.pattern], captures: dict) -> ast.expr:
        """Whether the recorder found the parts of a subject, and each is matched by its pattern."""
        held = self.temporary()
        tests: list[ast.expr] = [
            ast.Compare(ast.NamedExpr(name(held, ast.Store()), found), [ast.IsNot()], [constant(None)])
        ]
        for i, pattern in enumerate(patterns):
            if wild(pattern):
                continue
            part = ast.Subscript(name(held), constant(i), ast.Load())
            if isinstance(pattern, ast.MatchStar):
                tests.append(self.capture(pattern.name, part, captures))
                continue
            inner = self.temporary()
            tests += [self.kept(inner, part), self.pattern(pattern, inner, captures)]
        return self.all_of(tests)

    def _pattern_MatchMapping(self, node: ast.MatchMapping, subject: str, captures: dict) -> ast.expr:
        tests = [self.ask("is_mapping", name(subject), constant(len(node.keys)))]
        keys = self.temporary()
        if node.keys:
            tests.append(self.kept(keys, tupled([self.bare(key) for key in node.keys])))
            found = self.ask("matched_keys", name(subject), name(keys))
            tests.append(self.parts(found, node.patterns, captures))
        if node.rest is not None:
            rest = self.ask("rest_of", name(subject), name(keys) if node.keys else tupled([]))
            tests.append(self.capture(node.rest, rest, captures))
        return self.all_of(tests)

    def _pattern_MatchClass(self, node: ast.MatchClass, subject: str, captures: dict) -> ast.expr:
        names = constant(tuple(map(self.mangled, node.kwd_attrs)))
        found = self.ask(
            "matched_class", name(subject), self.bare(node.cls), constant(len(node.patterns)), names
        )
        return self.parts(found, [*node.patterns, *node.kwd_patterns], captures)


def wild(node: ast.pattern) -> bool:
    """Whether a pattern looks at nothing and keeps nothing."""
    return (
        isinstance(node, ast.MatchAs | ast.MatchStar)
        and node.name is None
        and getattr(node, "pattern", None) is None
    )
