"""Changes texts of graphs, kernels and programs: by tokens, so that most of them still nearly parse, and by
characters.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

TOKEN = re.compile(r"\s+|[%@]?[A-Za-z_][\w.]*|\d[\w.]*|->|//|<<|>>|[<>=!]=|.", re.DOTALL)
NUMBERS = (
    "0", "1", "2", "3", "-1", "4", "7", "64", "0.5", "1e999", "-0.0", "nan", "inf", "-inf", "True", "None",
    "2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "18446744073709551616",
    "-9223372036854775809", "99999999999999999999999999999999999999", "1" + "0" * 290, "9" * 4400, "1e-400",
    "0x10", "1_000", "00", "٣", "²", "n", "m", "n*m", "n-1", "(n+m)*(n-m)", "n//2", "min(n,3)",
)  # fmt: skip
TERMS = (
    "()", "(1,)", "(0,0)", "(1,2,3)", "(-1,)", "None", "True", "0", "-1", "5", "1.5", '"a"', '""', "f32",
    "bool", "i64", "f32[2,3]", "@cpu", "@cuda:0", "@meta", "n", "nan", "(None,None)", "((0,1),(2,3))",
    "9223372036854775808", "(4294967296,4294967296)", "((),)", "(True,)", '("int",0)', '(("int",0),)',
    "graph g() -> () {\n  return \n}",
)  # fmt: skip
ATTR = re.compile(r"(?<=[{ ])([a-z_]+)=((?:[^(){},]|\((?:[^()]|\([^()]*\))*\))*)(?=[,}])")
DTYPES = ("f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8", "bool")
NESTS = (("(", ")"), ("exp(", ")"), ("-", ""), ("(1+", ")"), ("min(n,", ")"), ("~", ""))
ODD = '\x00\x0b\x85\u2028\u00aa\u0661\ud800%@#"\\{}[](),:;=-+*/\n\t '


class Mutator:
    """Mutations of the texts of one kind, with what occurs in all of them as the supply of replacements."""

    def __init__(self, corpus: Sequence[str]):
        self.corpus = corpus
        self.supply: dict[str, list[str]] = {}
        seen: set[str] = set()
        for text in corpus:
            for token in TOKEN.findall(text):
                if token not in seen:
                    seen.add(token)
                    self.supply.setdefault(_kind(token), []).append(token)
        once = (
            self.repeat, self.swap, self.any_token, self.drop_line, self.repeat_line, self.swap_lines,
            self.foreign_line, self.character, self.cut, self.nest, self.many, self.delete,
        )  # fmt: skip
        often = (self.same_kind, self.number, self.attr, self.own_token, self.everywhere, self.dtype)
        self.ways: tuple[Callable[[random.Random, str], str], ...] = once + 4 * often

    def __call__(self, rng: random.Random) -> str:
        """A text of the corpus after some changes: mostly one or two."""
        text = rng.choice(self.corpus)
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
            text = rng.choice(self.ways)(rng, text)
        return text

    # ---- by tokens
    def _at(self, rng: random.Random, text: str, change: Callable[[str], str], kind: str = "") -> str:
        """The text with one token, of this kind if there is any, replaced."""
        if not text:
            return change("")
        for _ in range(12):
            start = rng.randrange(len(text))
            while start and text[start].isalnum() and text[start - 1].isalnum():
                start -= 1
            found = TOKEN.match(text, start)
            assert found
            if not found[0].isspace() and (not kind or _kind(found[0]) == kind):
                return text[:start] + change(found[0]) + text[found.end() :]
        return text

    def same_kind(self, rng: random.Random, text: str) -> str:
        return self._at(rng, text, lambda token: rng.choice(self.supply.get(_kind(token)) or [token]))

    def own_token(self, rng: random.Random, text: str) -> str:
        """A token by another of its kind from the same text: names stay in scope."""
        by_kind: dict[str, list[str]] = {}
        for token in TOKEN.findall(text[:4000]):
            by_kind.setdefault(_kind(token), []).append(token)
        return self._at(rng, text, lambda token: rng.choice(by_kind.get(_kind(token), [token])))

    def everywhere(self, rng: random.Random, text: str) -> str:
        """A name or a number wherever it stands: what it means stays consistent."""
        tokens = [t for t in TOKEN.findall(text[:4000]) if _kind(t) in ("name", "number")]
        if not tokens:
            return text
        old = rng.choice(tokens)
        pool = ("0", "1", "2", "3", "5", "8", "17") if old.isdigit() else self.supply[_kind(old)]
        new = rng.choice((rng.choice(pool), rng.choice(tokens)))
        return re.sub(rf"\b{re.escape(old)}\b", lambda _: new, text)

    def dtype(self, rng: random.Random, text: str) -> str:
        """A dtype wherever it stands, by another."""
        old = [dtype for dtype in DTYPES if f"{dtype}[" in text]
        return text.replace(rng.choice(old), rng.choice(DTYPES)) if old else text

    def any_token(self, rng: random.Random, text: str) -> str:
        return self._at(rng, text, lambda _: rng.choice(self.supply[rng.choice(list(self.supply))]))

    def number(self, rng: random.Random, text: str) -> str:
        return self._at(rng, text, lambda _: rng.choice(NUMBERS), "number")

    def attr(self, rng: random.Random, text: str) -> str:
        """The value of an attr by another value."""
        places = list(ATTR.finditer(text))
        if not places:
            return self.number(rng, text)
        at = rng.choice(places)
        return text[: at.start(2)] + rng.choice(TERMS) + text[at.end(2) :]

    def delete(self, rng: random.Random, text: str) -> str:
        return self._at(rng, text, lambda _: "")

    def repeat(self, rng: random.Random, text: str) -> str:
        return self._at(rng, text, lambda token: f"{token} {token}")

    def many(self, rng: random.Random, text: str) -> str:
        """A token or two very often: `((((`, `+i+i+i`, `[1,1,1,1`."""
        between = rng.choice(("", " ", ",", "+", "*", "-", "("))
        count = rng.choice((3, 3, 40, 40, 40, 300, 300, 300, 300, 3000))
        return self._at(rng, text, lambda token: between.join([token] * count))

    def nest(self, rng: random.Random, text: str) -> str:
        opening, closing = rng.choice(NESTS)
        count = rng.choice((1, 2, 20, 70, 70, 500, 500, 5000))
        return self._at(rng, text, lambda token: opening * count + token + closing * count)

    def swap(self, rng: random.Random, text: str) -> str:
        held: list[str] = []
        text = self._at(rng, text, lambda token: held.append(token) or rng.choice(("x", token)))
        return self._at(rng, text, lambda token: held[0] if held else token)

    # ---- by lines
    def drop_line(self, rng: random.Random, text: str) -> str:
        lines = text.split("\n")
        del lines[rng.randrange(len(lines))]
        return "\n".join(lines)

    def repeat_line(self, rng: random.Random, text: str) -> str:
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        lines[at:at] = [lines[at]] * rng.choice((1, 1, 2, 30))
        return "\n".join(lines)

    def swap_lines(self, rng: random.Random, text: str) -> str:
        lines = text.split("\n")
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[i], lines[j] = lines[j], lines[i]
        return "\n".join(lines)

    def foreign_line(self, rng: random.Random, text: str) -> str:
        lines, others = text.split("\n"), rng.choice(self.corpus).split("\n")
        at = rng.randrange(len(lines))
        lines[at : at + rng.randrange(2)] = [rng.choice(others)]
        return "\n".join(lines)

    # ---- by characters
    def character(self, rng: random.Random, text: str) -> str:
        at = rng.randrange(len(text) + 1)
        return (
            text[:at]
            + rng.choice((rng.choice(ODD), chr(rng.randrange(128)), ""))
            + text[at + rng.randrange(2) :]
        )

    def cut(self, rng: random.Random, text: str) -> str:
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        return text[:at] + text[min(end, at + rng.choice((1, 8, 10**6))) :]


def _kind(token: str) -> str:
    first = token[:1]
    if first.isspace():
        return "space"
    if first.isalpha() or first == "_":
        return "name"
    return "number" if first.isdigit() else first if first in "%@" else "sign"
