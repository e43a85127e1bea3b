"""Why calls were not served, for people: what it was, at which line, and what to write instead.

Whoever gives a call up says why in one sentence, `what; remedy (file:line)`, or of a place that changed,
`place: seen -> now (file:line)`.  Sentences are all that is kept, as values would be kept alive.  Where one
says no remedy, its kind does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = r"\((?P<where>[^()]*:\d+)\)"
_SENTENCE = re.compile(rf"(?P<what>.*?)(?: {_LINE})?", re.DOTALL)
_CHANGE = re.compile(r"(?P<place>.*?): (?P<change>.* -> .*)", re.DOTALL)
_ASKED = re.compile(
    r" \([^()]*:\d+\)(?=:)"
)  # where a question was asked, which the end of the sentence says too
_TYPE = r"\w+\[[\d,]*\]"

# By kind, the first that fits.  A sentence's own remedy goes before.
REMEDIES: tuple[tuple[str, str], ...] = (
    (r"the answer to bool", "choose between tensors with where(condition, a, b), or decide outside"),
    (r"^how much a mask selects", "write where(mask, x, 0), and mask.sum() for their number: its sizes stay"),
    (r"\(\) drew", "draw with lamina's generators, or pass the number in"),
    (r"the answer to", "return the tensor, and turn it into a number outside"),
    (rf": {_TYPE} -> {_TYPE}", "each type and shape is recorded once: let few come by, padded to few sizes"),
    (r"^the layout of", "call contiguous() on it before the call"),
    (r"^the history of", "hand in tensors that always have a history, or detach() them always"),
    (r"^the gradient of", "call zero_grad() at the same place in each step"),
    (r"^the (param|stat)", "make the optimizer, and what it updates, once, and keep it"),
    (r"^memory |memory of another", "clone() one of them"),
    (r" -> (another|nothing|function|class)\b|can't be reached", "make it once, outside, and keep it"),
    (r": -?[\d.]+(e[-+]?\d+)? -> ", "its value is needed: let few come by, or compute with it as a tensor"),
    (r" -> ", "let it be the same at each call, or one of a few"),
    (r"nothing known leads to", "hand it in as an argument, or keep it where one leads to it"),
    (r"from outside was (gone through|used)|used up", "make a list of it outside"),
    (r"was given to C code|is C code", "hand out a list of what is in it: [*it], or write a loop"),
    (r"shows its address|hangs on an address|asked if (they are one|it is another)",
     "let it not matter which object it is: compare values, or give the class a __repr__ and a __hash__"),
    (r"^a NumPy array|NumPy array ", "use a tensor in place of the array"),
    (r"was turned into text|handed out|were copied|tolist\(\)", "return the tensor, and do it outside"),
    (r"derives from", "use plain tensors, and functions of them"),
    (r"ha(ve|s) a history|history of a tensor from", "call backward() inside, or detach() its result"),
    (r"was replaced$", "write into it: x.copy_(y)"),
    (r"^it runs more than|turns of loops took", "trace what one round of its loop does"),
    (r"it could not be compiled", "please report it, with the text of explain(detail=True)"),
)  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """Why some calls were not served.  where: the user's line; instead: what to write; "" where not known."""

    what: str
    where: str = ""
    instead: str = ""
    calls: int = 0

    def told(self) -> dict[str, str | int]:
        """All of it as plain values."""
        return {"what": self.what, "where": self.where, "instead": self.instead, "calls": self.calls}


def cause(sentence: str, calls: int = 0) -> Cause:
    """What a sentence says."""
    found = _SENTENCE.fullmatch(sentence)
    assert found is not None
    what, instead = _ASKED.sub("", found["what"]), ""
    changed = _CHANGE.fullmatch(what)
    if changed is None:
        what, _, instead = what.partition("; ")
    if not instead:
        instead = next((remedy for kind, remedy in REMEDIES if re.search(kind, what)), "")
    if changed is not None:
        what = f"{changed['place']} changed: {changed['change']}"
    return Cause(what, found["where"] or "", instead, calls)


def place_of(sentence: str) -> str:
    """What is the same in all sentences about one place, whatever was found there."""
    found = _SENTENCE.fullmatch(sentence)
    assert found is not None
    changed = _CHANGE.fullmatch(found["what"])
    return f"{changed['place'] if changed else found['what']} {found['where']}"
