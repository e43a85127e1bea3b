"""Random programs about sizes: what is computed, cut and written by sizes, traced against undecorated.

A program is the text of a function of two matrices and a vector, grown line by line so that it mostly runs.
It is called on sizes in a random order, in two worlds; after each call its result or exception, the
arguments, what it keeps and which tensors share memory are compared (`observations`).

`python tests/soundness/fuzz_sizes.py FIRST COUNT [native]` runs seeds, and prints what differs, cut down.
`native` compiles graphs to machine code, which takes longer; else they are interpreted.
"""

from __future__ import annotations

import contextlib
import linecache
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from battery import TRACED
from fuzz import FAULT, interpreted
from observations import Look, differing, within

import lamina

LINES = 7
SIZES_ALONE = "the reference of "  # interpreted graphs take no sizes for numbers, and say so
SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
PRELUDE = """\
import math
import lamina as t
F = t.nn.functional
cache, held, held_index = {}, {"m": t.zeros(2, 3), "n": 2}, [0, 1]
"""
HOLE = re.compile(r"<([MVSNTP])>")

# What a hole may be: M a matrix, V a vector, S a tensor of one number, N a number, T a tensor, P a condition.
PARTS: dict[str, tuple[str, ...]] = {
    "N": (
        "x.shape[0]", "x.shape[0]", "y.shape[0]", "v.shape[0]", "len(<T>)", "<M>.shape[1]", "<M>.size(-1)",
        "<N> // 2", "<N> - 1", "<N> % 3", "<N> + 1", "min(<N>, 5)", "max(<N>, 2)", "-<N>", "<T>.numel()",
        "<N> * <N>", "2", "3", "1", "abs(<N> - 5)", "<T>.ndim", "<M>.stride(0)", "round(<N> / 3)",
        "<N> - <N>", "divmod(<N>, 3)[1]", "(<N> & 3)", "math.isqrt(abs(<N>))", "sum(<M>.shape)",
        "math.prod(<M>.shape)", "min(<N>, <N>)", "-<N> % 4", "5 - <N>", "<N> // 3", "(<N> + 1) // 2",
        "held['n']", "int(<N> > 4)", "int(<N> * 0.6)", "int(<N> / 2)", "math.ceil(<N> / 2)", "<N> >> 1",
        "<N> << 1", "divmod(<N>, 2)[0]", "<M>.shape.numel()", "max(<M>.shape)", "(-<N>) % 4", "<N> ** 2",
        "round(<N> ** 0.5)", "max(<N>, <N>)", "-(-<N> // 2)", "list(<M>.shape)[0]", "min(<N>, <N>, 6)",
    ),
    "M": (
        "<M> * 2", "<M>[:<N>]", "<M>[<N>:]", "<M>[1:]", "<M>[:-1]", "<M>[-3:]", "<M>[:5]", "<M>[2:<N>]",
        "<M>.t()", "<M>.reshape(-1, <N>)", "<M>.reshape(<N>, -1)", "<M>.view(-1, 3)", "<M>.view(<N>, <N>)",
        "<M> + <M>", "<M> @ <M>.t()", "<M> @ <M>", "<M> * <V>[:, None]", "<M> + <V>", "t.cat([<M>, <M>])",
        "t.cat([<M>, <M>], 1)", "<M>[::<N>]", "<M>[::2]", "<M>.roll(<N>, 0)", "<M>.flip(0)",
        "<M>.repeat(2, 1)", "<M>.repeat(<N>, 1)", "<M>[:1].expand(<N>, -1)", "t.zeros(<N>, 3)",
        "t.ones(<N>, <N>)", "t.eye(<N>)", "<M>.narrow(0, <N>, <N>)", "<V>.view(-1, 1)",
        "<V>[:, None] * <V>[None]", "<M>.softmax(0)", "<M>.cumsum(0)", "t.stack([<V>, <V>])", "<M>.tril()",
        "t.triu(<M>, <N>)", "F.pad(<M>, (0, <N>))", "F.pad(<M>, (0, 0, <N>, 1))", "<M>.contiguous()",
        "<M>.clone()", "<M>.chunk(2)[0]", "<M>.chunk(3)[-1]", "<M>.split(2)[-1]", "<M>.split(<N>)[0]",
        "t.tensor_split(<M>, 2)[1]", "<M>.index_select(0, t.arange(<N>))",
        "<M>.masked_fill(<M> > 0.3, <N>)", "t.where(<M> > 0, <M>, <N>)", "<M>[t.arange(<N>)]",
        "<M>.expand(<N>, <N>)", "<M> / <N>", "<M> - <N>", "<M>[:, :<N>]", "<M>[:, <N>:]",
        "<M>[:, None].expand(-1, 2, -1).flatten(1)", "<M>.unflatten(0, (2, -1)).sum(1)",
        "<M>.new_full((<N>, 3), 0.5)", "<M>[None].squeeze()", "<M>.squeeze(0)", "<V>.unsqueeze(0)",
        "<M>.mT", "<M>.sum(0, keepdim=True)", "<M>.mean(1, True)", "F.dropout(<M>, 0.5)", "t.rand(<N>, 3)",
        "t.randn_like(<M>)", "held['m']", "<M>.reshape(<M>.shape)", "<M>.view_as(<M>)",
        "<M>.expand_as(<M>)", "<M>[<V> > 0]", "t.outer(<V>, <V>)", "F.layer_norm(<M>, <M>.shape[1:])",
        "<M>.sort(0).values", "<M>.unfold(0, 2, 1).sum(-1)", "<M>.broadcast_to(<N>, 3)",
        "t.full(<M>.shape, <N>)", "<M>.gather(0, t.zeros(<N>, 3, dtype=t.int64))",
        "<M>.reshape(*<M>.shape[::-1])", "<M>.chunk(2)[-1]", "t.cat(<M>.tensor_split(3))",
        "t.cat([c * 2 for c in <M>.split(<N>)])", "<M>.split([<N>, <M>.shape[0] - <N>])[1]",
        "<M>.chunk(2, 1)[0]", "<M>[t.arange(<N>) % <M>.shape[0]]", "<M>.squeeze()",
        "<M> * (t.arange(<M>.shape[0]) / <N>)[:, None]", "F.batch_norm(<M>, None, None, training=True)",
        "<M>.masked_fill(t.ones(<N>, <N>).tril() == 0, -1.0)", "<M>.to(t.float64).float()",
        "F.scaled_dot_product_attention(<M>[None], <M>[None], <M>[None], is_causal=True)[0]",
        "<M>.reshape(list(<M>.shape))", "<M>.view(math.prod(<M>.shape)).view(<M>.shape)", "F.glu(<M>, 0)",
        "<M>.new_empty(<M>.shape).bernoulli_(0.5)", "t.full((<N>, 3), <N>).float()", "<M>.type_as(<M>)",
        "t.where(t.arange(<N>)[:, None] < <N>, <M>, 0.0)", "F.dropout1d(<M>[None], 0.5)[0]",
    ),
    "V": (
        "<M>.diagonal()", "<M>.flatten()", "<M>[<N>]", "<M>[-1]", "<M>[:, 0]", "<M>[:, <N>]", "<M>.sum(0)",
        "<M>.sum(1)", "<M>.mean(1)", "<M>.mean(0)", "<M>.amax(0)", "<M>.var(0)", "t.arange(<N>).float()",
        "t.arange(<N>, <N>).float()", "t.linspace(0, 1, <N>)", "<V>[:<N>]", "<V>[<N>:]", "<V>[-<N>:]",
        "<V>.repeat_interleave(2)", "<V>.sort().values", "<V>.topk(<N>).values", "t.cat([<V>, <V>])",
        "<V>[<V> > 0]", "<V>.reshape(-1)", "<M>.reshape(-1)", "<M>.view(-1)", "<M>.t().reshape(-1)",
        "<M>[:, :<N>].reshape(-1)", "<M>[:<N>].view(-1)", "<V>.expand(<N>)", "<V> + <V>", "<V> * <N>",
        "<V>.flip(0)", "<V>.cumsum(0)", "t.zeros(<N>)", "t.full((<N>,), 2.0)",
        "t.tensor([float(<N>), 1.0])", "<V>.roll(1)", "<M> @ <V>", "<V>.narrow(0, 1, <N>)",
        "<V>.view(<N>, -1)[0]", "<M>.unbind(0)[-1]", "<M>.select(1, <N>)", "t.rand(<N>)",
        "t.randperm(<N>).float()", "<V>[::<N>]", "<V>.clone()", "<V>.diff()", "<V>.squeeze()",
        "<S>.expand(<N>)", "(t.arange(<N>) + <N>).float()", "(t.arange(<N>) // <N>).float()",
        "(t.arange(<N>) < <N>).float()", "t.tensor([<N>, 1]).float()", "t.cat(<V>.chunk(3))",
    ),
    "S": (
        "<T>.sum()", "<T>.mean()", "<V>[<N>]", "<V>[-1]", "<T>.norm()", "<T>.std()", "<T>.sum() / <N>",
        "<T>.max()", "t.tensor(float(<N>))", "<V> @ <V>", "F.mse_loss(<M>, <M>)", "<S> * <N>",
        "<M>.trace()", "<M>[0, <N>]", "<T>.median()",
    ),
    "T": ("<M>", "<M>", "<V>"),
    "P": (
        "<N> > <N>", "<N> == <N>", "<N> % 2", "<M>.shape == <M>.shape", "<N> in (2, 4, 6)",
        "<T>.is_contiguous()", "<T>.numel() > 10", "3 in <M>.shape", "<N> != <N>",
        "<M>.shape[0] == <V>.shape[0]", "not <N>", "2 < <N> <= 6",
    ),
}  # fmt: skip
SHALLOW = {"M": ("x", "y"), "V": ("v",), "S": ("x.sum()",), "N": ("n", "2", "3")}  # where no more is nested
WRITES = (
    "<M>[:<N>] = 0.5", "<M>[<N>] += 1", "<V>.mul_(2)", "<M>.add_(<N>)", "<M>.copy_(<M>)",
    "<M>[:, :<N>].reshape(-1).add_(1)", "<M>.t()[0].fill_(3.0)", "<V>[-1] = <N>",
    "<M>.flatten().mul_(0.5)", "<M>.add_(<V>)", "<V>[:<N>].zero_()", "<M>.contiguous().add_(1)",
    "<M>[<N>:].reshape(-1)[0] = 4.0", "<M>[::2] *= 3", "<M>.t().reshape(-1).add_(1)", "<M>[:, <N>] = <N>",
    "<M>[<M> > 0.5] = 0.0", "<T>.clamp_(max=<N>)", "<M>[:<N>] = <M>[:<N>].flip(0)",
    "<M>.expand(-1, -1).mul_(2)", "<M>.index_fill_(0, t.tensor([0]), 1.0)", "<V>.copy_(<V>)",
    "<M>.narrow(0, 0, <N>).fill_(<N>)", "<M>.view(-1)[<N>:].sub_(1)", "<M>.zero_()",
    "<M>[t.arange(<N>), 0] = 5.0", "<M>[<N>] = <V>", "<M>[:<N>, 0] = <V>[:<N>]", "<M>[:<N>].copy_(<M>)",
    "<M>[-<N>:] = <M>[:<N>]", "<M>[1:, :<N>] *= 2", "<V>.fill_(<N>)", "<M>[:] = <V>[:1]",
    "<M>.uniform_()", "<M>[<V> > 0] = 1.0", "<M>[held_index] = <N>",
)  # fmt: skip
KEEPS = (
    "held['m'] = <M>.detach()", "held['n'] = <N>", "cache[<N>] = <N>",
    "held['m'] = t.cat([held['m'], <M>])[-4:].detach()", "cache.setdefault(<N>, t.arange(<N>))",
    "held['s'] = <M>.shape", "held_index[1] = (held_index[1] + 1) % 2",
)  # fmt: skip
TOLD = (  # fmt: skip
    "<M>.shape == (<N>, 3)",
    "list(<M>.shape)",
    "f'''{tuple(<M>.shape)} {<N>:>3}'''",
    "divmod(<N>, 3)",
    "(<N>, 3) in {(4, 3), (6, 3), (7, 3)}",
    "{(<N>, 1): <N>, (5, 1): 0}.get((5, 1))",
    "len({tuple(<M>.shape), (4, 3), (<N>, 3)})",
    "<M>.shape != <M>.shape",
    "<N>",
    "<M>.shape",
    "<P>",
    "<T>.stride()",
    "f'''{<N>} of {<M>.shape}'''",
    "[<N>, <N>]",
    "<T>.nbytes",
)


class Maker:
    """Grows one program; `made` are the names of its variables by kind."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.made = {"M": ["x", "y"], "V": ["v"], "S": [], "N": ["n"]}
        self.lines: list[str] = ["n = x.shape[0]"]
        self.count = 0

    def filled(self, kind: str, deep: int = 0) -> str:
        """A name of a kind, or, less deep, a part whose holes are filled."""
        names = self.made.get(kind, [])
        if names and self.random.random() < (0.6 if deep == 1 else 0.9 if deep > 1 else 0.0):
            return self.random.choice(names)
        parts = (
            PARTS[kind]
            if deep < 3 or kind not in "MVSN"
            else {"M": "xy", "V": "v", "S": ("x.sum()",), "N": "n23"}[kind]
        )
        return self.fill(self.random.choice(parts), deep + 1)

    def fill(self, text: str, deep: int = 1) -> str:
        return HOLE.sub(lambda hole: self._within(self.filled(hole[1], deep), hole), text)

    def _within(self, found: str, hole: re.Match) -> str:
        """In brackets where what stands around would part it."""
        alone = hole.group() == hole.string or re.fullmatch(r"-?[\w.]+(\[\w+\])?|\w+\(.*\)", found)
        return found if alone else f"({found})"

    def line(self) -> list[str]:
        """One more statement."""
        pick = self.random.random()
        if pick < 0.16:
            return [self.fill(self.random.choice(WRITES))]
        if pick < 0.22:
            return [self.fill(self.random.choice(KEEPS))]
        if pick < 0.30:
            kind = self.random.choice("MV")
            name = self.random.choice(self.made[kind])
            return [f"if {self.filled('P')}:", f"    {name} = {self.filled(kind)}"]
        if pick < 0.34:
            name = self.random.choice(self.made["M"])
            handled = "except (RuntimeError, IndexError, ValueError) as error:"
            return ["try:", f"    {name} = {self.filled('M')}", handled, "    told.append(str(error))"]
        if pick < 0.38:
            name = self.random.choice(self.made["M"])
            return [f"for i in range(min({self.filled('N')}, 3)):", f"    {name} = {name} * 0.5 + i"]
        if pick < 0.46:
            return [f"told.append({self.fill(self.random.choice(TOLD))})"]
        kind = self.random.choices("MVSN", (5, 4, 1, 3))[0]
        self.count += 1
        return [f"{kind.lower()}{self.count} = {self.filled(kind)}"]

    def text(self, lines: list[str], grad: bool) -> str:
        names = dict.fromkeys(line.split(" = ")[0] for line in lines if re.match(r"[mvs]\d+ = ", line))
        body = ["told = []", *(["x = x.clone().requires_grad_()", "z = x * 1.5"] if grad else []), *lines]
        if grad:
            summed = " + ".join(["z.sum()", *(f"{name}.float().sum() * 0.5" for name in names)])
            body += [f"({summed}).backward()", "told.append(x.grad)"]
        body.append(f"return [x, {', '.join([*names, 'told'])}]")
        return PRELUDE + "def f(x, y, v):\n" + "".join(f"    {line}\n" for line in body)


def made(seed: int) -> tuple[Maker, list[list[str]], list[tuple[int, int, int]], bool]:
    """The maker of a seed, its statements, the sizes of its calls, and whether it walks backwards."""
    maker = Maker(seed)
    grad = maker.random.random() < 0.25
    calls = _sizes(maker.random)
    statements = [maker.lines]
    for _ in range(40):
        if len(statements) > maker.random.randint(2, LINES):
            break
        more = maker.line()
        text = maker.text([line for each in [*statements, more] for line in each], grad)
        seen = outcomes(text, calls[:6], lambda f: f)
        if sum("raised" in outcome for outcome in seen) <= (2 if maker.random.random() < 0.15 else 0):
            statements.append(more)
            if found := re.match(r"([mvsn])\d+ = ", more[0]):
                maker.made[found[1].upper()].append(more[0].split(" = ")[0])
    return maker, statements, calls, grad


def _sizes(r: random.Random) -> list[tuple[int, int, int]]:
    """Rows of x and of y, and the length of v, call by call."""
    same, vector = r.choice((0.0, 0.5, 1.0)), r.choice((0.0, 0.5, 1.0))
    calls = []
    for at in range(14):
        n = r.choice(SIZES[2:] if at < 4 or r.random() < 0.8 else SIZES)
        m = n if r.random() < same else r.choice(SIZES[1:])
        calls.append((n, m, n if r.random() < vector else r.choice(SIZES[1:])))
    return calls + r.sample(calls, 5)


def data(*shape: int) -> Any:
    count = lamina.arange(int(lamina.Size(shape).numel()), dtype=lamina.float32)
    return (count * 0.7548776 % 1.0 * 4 - 1.9).reshape(shape)


def outcomes(
    text: str, calls: list[tuple[int, int, int]], trace: Callable, report: list | None = None
) -> list[dict[str, Any]]:
    """What shows after each call of a program's function."""
    file = f"<sizes {hash(text)}>"
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
    space: dict[str, Any] = {"__name__": "sizes"}
    found = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        exec(compile(text, file, "exec", dont_inherit=True), space)
        f = trace(space["f"])
        for at, (n, m, k) in enumerate(calls):
            lamina.manual_seed(at)
            given = data(n, 3), data(m, 3), data(k)
            outcome: dict[str, Any] = {}
            try:
                result = f(*given)
            except Exception as error:
                result, outcome["raised"] = None, (type(error).__name__, str(error))
            look = Look(TRACED)
            shown = {"result": result, "given": given, "held": space["held"], "cache": space["cache"]}
            outcome |= {name: look.at(o) for name, o in shown.items()}
            outcome["next"] = look.at(lamina.rand(1))
            found.append(outcome)
        if report is not None:
            report.append((f, [str(w.message) for w in warned]))
    linecache.cache.pop(file, None)
    return found


def roughly(a: Any, b: Any) -> bool:
    """`within`, or with numbers of size 1 that cancel but for rounding: 0 and -1e-7, though not 0 and -0."""
    if within(a, b) or not isinstance(a, (float, np.ndarray)) or not within(a, b, 1):
        return within(a, b)
    a, b = np.asarray(a), np.asarray(b)
    zero = (a == 0) & (b == 0)
    return np.array_equal(np.signbit(a[zero]), np.signbit(b[zero]))


def wrong(text: str, calls: list[tuple[int, int, int]], report: list | None = None) -> str | None:
    """How a program's traced run differs from its undecorated one."""
    plain = outcomes(text, calls, lambda f: f)
    report = [] if report is None else report
    traced = outcomes(text, calls, lambda f: lamina.jit.trace(f, budget=None), report)
    for at, (a, b) in enumerate(zip(plain, traced, strict=True)):
        found = differing(a, b, f"call {at}, of sizes {calls[at]}", roughly)
        if found is not None:
            return found[:600]
    return next(
        (text[:600] for text in report[-1][1] if FAULT.search(text) and "of size can" not in text), None
    )


def smaller(maker: Maker, statements: list[list[str]], calls: list, grad: bool) -> tuple[str, list]:
    """The text and the calls of a program that differs, without what it differs without."""

    def differs(kept: list[list[str]], sizes: list) -> bool:
        return wrong(maker.text([line for each in kept for line in each], grad), sizes) is not None

    for at in reversed(range(len(statements))):
        less = statements[:at] + statements[at + 1 :]
        if differs(less, calls):
            statements = less
    for at in reversed(range(len(calls))):
        less = calls[:at] + calls[at + 1 :]
        if differs(statements, less):
            calls = less
    return maker.text([line for each in statements for line in each], grad), calls


def run(first: int, count: int, native: bool = False) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Run the programs of seeds: how many calls were served and recorded, and what differs."""
    counts: Counter[str] = Counter()
    found: list[tuple[int, str]] = []
    with contextlib.nullcontext() if native else interpreted():
        for seed in range(first, first + count):
            maker, statements, calls, grad = made(seed)
            text, report = maker.text([line for each in statements for line in each], grad), []
            what = wrong(text, calls, report)
            for traced, _ in report:
                counts.update(traced.counts())
                counts["programs"] += 1
                counts["calls"] += len(calls)
                counts["with symbols"] += any(
                    "is any size" in told
                    for path in traced.explain(as_dict=True)["paths"]
                    for told in path["sizes"]
                )
            if what is not None:
                found.append((seed, what))
    return counts, found


def main() -> None:
    first, count = map(int, sys.argv[1:3])
    native = "native" in sys.argv
    for seed in range(first, first + count):
        counts, found = run(seed, 1, native)
        TOTAL.update(counts)
        for _, what in found:
            with contextlib.nullcontext() if native else interpreted():
                text, calls = smaller(*made(seed))
                print(f"---- seed {seed}: {what}\n{text}calls: {calls}\n{wrong(text, calls)}", flush=True)
    print(dict(TOTAL))


TOTAL: Counter[str] = Counter()

if __name__ == "__main__":
    main()
