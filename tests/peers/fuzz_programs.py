"""Random small programs that mean the same in PyTorch and in Lamina: lines of text, with the library as `L`.

A program is made while PyTorch runs it, so that its lines mostly fit the shapes that are there, and so that
no value comes near a kink (of abs, clamp, a comparison): there the last bit, in which two libraries may
differ, would decide a gradient.  Lines that misuse writes in place are wanted: both libraries must refuse
them.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import lamina

FAR = 1e-6  # how far values stay from a kink; rounding errors stay far below
LARGE = 30.0  # results beyond are squashed, so that errors are not blown up


def run_line(line: str, scope: dict[str, Any]) -> Exception | None:
    """Run one line of a program; return what it raised."""
    with warnings.catch_warnings():
        if scope["L"] is not lamina:  # what the peer deprecates is its own business
            warnings.simplefilter("ignore")
        try:
            exec(compile(line, "<program>", "exec"), scope)
        except Exception as error:
            return error.with_traceback(None)
        if scope["L"] is not lamina:  # PyTorch asks views about their bases only when it is asked itself
            for x in scope.values():
                getattr(x, "grad_fn", None)
    return None


def fresh_scope(library: Any) -> dict[str, Any]:
    """The names that a program starts with: the library, and a list that its hooks write to."""
    return {"L": library, "seen": []}


class Maker:
    """Makes one program, running it on `library` line by line."""

    def __init__(self, library: Any, seed: int):
        self.library, self.pick = library, random.Random(seed)
        self.scope = fresh_scope(library)
        self.lines: list[str] = []
        self.made = 0
        self.over = False

    # ---- what there is ----
    def tensors(self) -> list[str]:
        return [n for n, x in self.scope.items() if isinstance(x, self.library.Tensor)]

    def any(self) -> str:
        names = self.tensors()
        # recent ones more often, so that programs become deep
        return self.pick.choice(names[-4:] if self.pick.random() < 0.6 else names)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.scope[name].shape)

    def values(self, name: str) -> Any:
        return self.scope[name].detach()

    def far_from(self, name: str, *kinks: float) -> bool:
        x = self.values(name)
        return all(bool(((x - k).abs() > FAR).all()) for k in kinks)

    def number(self) -> float:
        return self.pick.choice((0.5, 1.5, -0.75, 2.0, 0.3, -1.25))

    def literal(self, shape: tuple[int, ...]) -> str:
        """Nested lists of numbers, all different, away from zero."""
        if not shape:
            return str(round(self.pick.choice((-1, 1)) * self.pick.uniform(0.2, 1.8), 4))
        return "[" + ", ".join(self.literal(shape[1:]) for _ in range(shape[0])) + "]"

    def dim(self, name: str) -> int:
        rank = len(self.shape(name))
        return self.pick.randrange(-rank, rank)

    def fits(self, shape: tuple, into: tuple) -> bool:
        """Whether a shape broadcasts to another."""
        pairs = zip(reversed(shape), reversed(into))
        return len(shape) <= len(into) and all(n in (1, m) for n, m in pairs)

    def partner(self, name: str, written: bool = False) -> str:
        """A tensor that broadcasts with `name`; or a number."""
        shape = self.shape(name)
        names = [
            n for n in self.tensors()
            if self.fits(self.shape(n), shape) or not written and self.fits(shape, self.shape(n))
        ]  # fmt: skip
        if not names or self.pick.random() < 0.2:
            return str(self.number())
        chosen = self.pick.choice(names)
        return self.apart(chosen, name) if written else chosen

    def apart(self, read: str, written: str) -> str:
        """A tensor to read while another is written; a copy if they share memory."""
        store, other = (self.scope[n].untyped_storage().data_ptr() for n in (read, written))
        return f"{read}.clone()" if read != written and store == other else read

    # ---- lines ----
    def emit(self, line: str) -> Exception | None:
        self.lines.append(line)
        error = run_line(line, self.scope)
        if error is not None and "backward" in line or "autograd.grad" in line and error is not None:
            self.over = True  # how far a backward came before it failed is nobody's business
        return error

    def assign(self, expression: str) -> None:
        name = f"v{self.made}"
        self.made += 1
        if self.emit(f"{name} = {expression}") is None:
            x = self.values(name)
            if x.numel() and not bool(x.abs().max() <= LARGE):
                self.emit(f"{name} = L.tanh({name} / {LARGE})")

    def leaf(self) -> None:
        shape = self.pick.choice(((), (3,), (2, 3), (3, 3), (3, 2), (2, 1, 3), (1,), (4,), (2, 3, 2)))
        wants = "" if self.pick.random() < 0.2 else ", requires_grad=True"
        self.emit(f"x{self.made} = L.tensor({self.literal(shape)}, dtype=L.float64{wants})")
        self.made += 1

    # ---- expressions ----
    def smooth(self) -> str | None:
        x = self.any()
        f = self.pick.choice((
            "sin", "cos", "tanh", "sigmoid", "neg", "exp", "log", "sqrt", "reciprocal", "square", "erf",
        ))  # fmt: skip
        v = self.values(x)
        if f == "exp" and not bool((v < 3).all()) or f in ("log", "sqrt") and not bool((v > 0.1).all()):
            return None
        if f == "reciprocal" and not bool((v.abs() > 0.3).all()):
            return None
        return f"L.{f}({x})"

    def kinked(self) -> str | None:
        x = self.any()
        text, *kinks = self.pick.choice((
            (f"{x}.abs()", 0.0), (f"L.relu({x})", 0.0), (f"{x}.clamp(-0.5, 0.6)", -0.5, 0.6),
            (f"{x}.clamp(min=0.25)", 0.25), (f"L.where({x} > 0.1, {x}, {self.partner(x)})", 0.1),
            (f"{x}.masked_fill({x} > 0.2, 1.5)", 0.2), (f"{x}[{x} > 0.15]", 0.15), (f"{x}.sign() * {x}", 0.0),
        ))  # fmt: skip
        return text if self.far_from(x, *kinks) else None

    def with_number(self) -> str | None:
        x, c = self.any(), self.number()
        text = self.pick.choice((
            f"{x} + {c}", f"{c} - {x}", f"{x} * {c}", f"{x} / {c}", f"{x} ** 2", f"{x} ** 3", f"{c} / {x}",
        ))  # fmt: skip
        if text.endswith(f"/ {x}") and not bool((self.values(x).abs() > 0.3).all()):
            return None
        return text

    def two(self) -> str | None:
        x = self.any()
        y = self.partner(x)
        f = self.pick.choice(("+", "-", "*", "*", "/", "maximum", "minimum", "lerp", "addcmul", "hypot"))
        if y not in self.scope and f in ("maximum", "minimum", "lerp", "addcmul", "hypot"):
            return None
        if f == "/":
            return f"{x} / {y}" if y not in self.scope or bool((self.values(y).abs() > 0.3).all()) else None
        if f in ("maximum", "minimum"):
            apart = bool(((self.values(x) - self.values(y)).abs() > FAR).all())
            return f"L.{f}({x}, {y})" if apart else None
        if f == "hypot":
            both = self.values(x) ** 2 + self.values(y) ** 2
            return f"L.hypot({x}, {y})" if bool((both > 0.1).all()) else None
        if f == "lerp":
            return f"L.lerp({x}, {y}, 0.3)"
        if f == "addcmul":
            return f"L.addcmul({x}, {y}, {x}, value=0.5)"
        return f"{x} {f} {y}"

    def reduced(self) -> str | None:
        x = self.any()
        if not self.scope[x].numel():
            return None
        if not self.shape(x):
            return f"{x}.sum()"
        d = self.dim(x)
        text = self.pick.choice((
            "{x}.sum()", "{x}.mean()", "{x}.sum({d})", "{x}.mean({d}, keepdim=True)",
            "{x}.sum({d}, keepdim=True)", "{x}.logsumexp({d})", "{x}.softmax({d})", "{x}.log_softmax({d})",
            "{x}.cumsum({d})", "{x}.var({d}, correction=0)", "{x}.amax({d})", "{x}.max({d}).values",
            "{x}.min({d}, keepdim=True)[0]", "{x}.sort({d}).values", "{x}.prod({d})", "{x}.flip({d})",
            "L.roll({x}, 1, {d})", "{x}.cumprod({d})",
        ))  # fmt: skip
        if "max(" in text or "min(" in text or "sort" in text:
            apart = self.values(x).sort(d)[0].diff(dim=d).abs()
            if apart.numel() and not bool((apart > FAR).all()):
                return None
        if "prod" in text and not bool((self.values(x).abs() > 0.05).all()):
            return None
        return text.format(x=x, d=d)

    def joined(self) -> str | None:
        x = self.any()
        shape = self.shape(x)
        same = [n for n in self.tensors() if self.shape(n) == shape]
        y = self.pick.choice(same)
        if self.pick.random() < 0.5 or not shape:
            return f"L.stack([{x}, {y}], 0)"
        return f"L.cat([{x}, {y}], {self.dim(x)})"

    def product(self) -> str | None:
        x = self.any()
        shape = self.shape(x)
        if not shape:
            return None
        pairs = []
        for y in self.tensors():
            other = self.shape(y)
            if other and shape[-1] == (other[0] if len(other) == 1 else other[-2]):
                if len(shape) <= 2 or len(other) <= 2:
                    pairs.append(f"{x} @ {y}")
            if len(shape) == len(other) == 2 and shape[1] == other[1]:
                pairs.append(f"{x} @ {y}.t()")
                pairs.append(f"L.einsum('ij,kj->ik', {x}, {y}).clone()")  # a view in PyTorch
        return self.pick.choice(pairs) if pairs else None

    def view(self) -> str | None:
        x = self.any()
        shape = self.shape(x)
        rank, total = len(shape), self.scope[x].numel()
        texts = ["{x}.unsqueeze(0)", "{x}[None]", "{x}[...]", "{x}.squeeze()", "{x}.view_as({x})"]
        if rank:
            d = self.dim(x)
            n = shape[d]
            texts += [
                f"{{x}}.unsqueeze({d})", f"{{x}}.squeeze({d})", "{x}[..., None]",
                "{x}.T" if rank == 2 else "{x}",
            ]  # fmt: skip
            if n:
                i, size = self.pick.randrange(n), self.pick.randint(1, n)
                start = self.pick.randrange(n - size + 1)
                texts += [
                    f"{{x}}.select({d}, {i})", f"{{x}}.narrow({d}, {start}, {size})",
                    f"{{x}}[{self.pick.randrange(-shape[0], shape[0])}]" if shape[0] else "{x}", "{x}[1:]",
                    "{x}[::2]", "{x}[:-1]",
                    f"{{x}}[..., {self.pick.randrange(shape[-1])}]" if shape[-1] else "{x}",
                    f"{{x}}.unbind({d})[0].clone()", f"{{x}}.split(1, {d})[-1].clone()",
                    f"{{x}}.unfold({d}, 1, 1)",
                ]  # fmt: skip
            texts += ["{x}.expand(2, " + ", ".join(map(str, shape)) + ")"]
        if rank >= 2:
            a, b = self.dim(x), self.dim(x)
            texts += [
                f"{{x}}.transpose({a}, {b})", "{x}.diagonal()", "{x}[:, 1:]", "{x}[:, 0]", "{x}[1:, ::2]",
                "{x}[0, ...]", f"{{x}}.permute({', '.join(map(str, self.pick.sample(range(rank), rank)))})",
                "{x}.diagonal(1, -1, 0)", "{x}.mT",
            ]  # fmt: skip
        if total and self.scope[x].is_contiguous():
            texts += [
                "{x}.view(-1)", "{x}.reshape(-1)", "{x}.view(1, -1)", "{x}.reshape(-1, 1)", "{x}.flatten()",
            ]  # fmt: skip
        return self.pick.choice(texts).format(x=x)

    def picked(self) -> str | None:
        x = self.any()
        shape = self.shape(x)
        if not shape or 0 in shape:
            return None
        d = self.dim(x)
        some = [self.pick.randrange(-shape[0], shape[0]) for _ in range(self.pick.randint(1, 3))]
        plain = [self.pick.randrange(shape[d]) for _ in range(self.pick.randint(1, 3))]
        texts = [
            f"{x}[{some}]", f"{x}[L.tensor({some})]", f"{x}.index_select({d}, L.tensor({plain}))",
            f"L.take_along_dim({x}, {x}.argsort({d}), {d})" if self.far_apart(x, d) else f"{x}[{some}]",
        ]  # fmt: skip
        if len(shape) >= 2:
            others = [self.pick.randrange(shape[1]) for _ in some]
            texts += [
                f"{x}[{some}, {others}]", f"{x}[:, {others}]", f"{x}[{some}, None]", f"{x}[0, {others}]",
                f"{x}[..., {[-1, 0]}]",
            ]  # fmt: skip
        return self.pick.choice(texts)

    def far_apart(self, x: str, d: int) -> bool:
        apart = self.values(x).sort(d)[0].diff(dim=d).abs()
        return bool((apart > FAR).all())

    def copied(self) -> str | None:
        x = self.any()
        return self.pick.choice((
            f"{x}.clone()", f"{x}.detach()", f"{x}.detach().clone()", f"L.zeros_like({x})",
            f"{x}.contiguous()", f"{x}.data.clone()", f"{x}.detach().clone().requires_grad_()",
        ))  # fmt: skip

    def expression(self) -> str | None:
        kinds = (
            self.smooth, self.with_number, self.two, self.two, self.reduced, self.joined, self.product,
            self.view, self.view, self.view, self.picked, self.kinked, self.copied,
        )  # fmt: skip
        return self.pick.choice(kinds)()

    # ---- statements ----
    def written(self) -> str | None:
        """A write in place; often one that must be refused, now or by the backward."""
        x = self.any()
        shape, c = self.shape(x), self.number()
        y = self.partner(x, written=True)
        v = self.values(x)
        texts = [
            f"{x}.add_({y})", f"{x}.add_({y})", f"{x}.mul_({y})", f"{x}.mul_({y})", f"{x}.sub_({y})",
            f"{x} += {y}", f"{x} *= {y}", f"{x}.add_({y}, alpha=0.5)", f"{x}.mul_({c})", f"{x}.zero_()",
            f"{x}.fill_({c})", f"{x}.tanh_()", f"{x}.sigmoid_()", f"{x}.sin_()", f"{x}.neg_()",
            f"{x}.pow_(2)", f"{x}.div_({c})", f"{x}[...] = {y}",
        ]  # fmt: skip
        if y.split(".")[0] in self.scope:
            texts += [f"{x}.copy_({y})", f"{x}.addcmul_({y}, {y}, value=0.5)", f"{x}.lerp_({y}, 0.25)"]
        if self.far_from(x, -0.5, 0.6):
            texts.append(f"{x}.clamp_(-0.5, 0.6)")
        if self.far_from(x, 0.0):
            texts += [f"{x}.relu_()", f"{x}.abs_()"]
        if bool((v < 3).all()):
            texts.append(f"{x}.exp_()")
        if self.far_from(x, 0.2):
            texts += [f"{x}[{x} > 0.2] = {c}", f"{x}.masked_fill_({x} > 0.2, {c})"]
        if shape and 0 not in shape:
            i = self.pick.randrange(shape[0])
            row = [n for n in self.tensors() if self.fits(self.shape(n), shape[1:])]
            z = self.apart(self.pick.choice(row), x) if row and self.pick.random() < 0.8 else str(c)
            distinct = self.pick.sample(range(shape[0]), self.pick.randint(1, shape[0]))
            texts += [
                f"{x}[{i}] = {z}", f"{x}[1:] = {z}", f"{x}[{distinct}] = {z}",
                f"{x}[L.tensor({distinct})] = {z}", f"{x}[::2] = {z}", f"{x}[{i}].mul_({c})",
                f"{x}[{i}].add_({z})", f"{x}[-1] += {z}", f"{x}[..., 0] = {c}", f"{x}[{i}].zero_()",
            ]  # fmt: skip
            if z.split(".")[0] in self.scope:
                texts.append(f"{x}.index_put_((L.tensor({[i, i]}),), {z}, accumulate=True)")
        if len(shape) == 2 and 0 not in shape:
            texts += [
                f"{x}.t().mul_({c})", f"{x}[:, 0] = {c}", f"{x}.diagonal().add_({c})", f"{x}.t_()",
                f"{x}.T[0].copy_({c} * {x}.T[0])",
            ]  # fmt: skip
        if self.pick.random() < 0.1 and "retain_grad" not in str(self.lines):
            texts = [f"{x}.unsqueeze_(0)", f"{x}.squeeze_()"]
        return self.pick.choice(texts)

    def unrecorded(self) -> str | None:
        parts = []
        # A part of an expanded one can't be written here.
        for _ in range(1 if "expand" in str(self.lines) else 2):
            text = self.written() if self.pick.random() < 0.7 else self.expression()
            if text and ("_(" in text or "= " in text):
                if "squeeze_" not in text and ".t_" not in text:  # shapes then differ from what history says
                    parts.append(text)
            elif text:  # cloned, as PyTorch is of two minds about views made here
                parts.append(f"n{self.made} = ({text}).clone()")
        self.made += 1
        return "with L.no_grad(): " + "; ".join(parts) if parts else None

    def backward(self) -> str | None:
        x = self.any()
        keep = self.pick.choice(("", "retain_graph=True", "retain_graph=True"))
        text = self.pick.choice((
            f"{x}.sum().backward({keep})", f"({x} * {x}).sum().backward({keep})",
            f"{x}.backward(L.ones_like({x}){', ' + keep if keep else ''})",
            f"{x}.cos().mean().backward({keep})",
        ))  # fmt: skip
        return text

    def differentiated(self) -> str | None:
        x, y = self.any(), self.any()
        # A view whose base is written without history is another node in PyTorch from then on.
        if self.scope[y]._is_view() or "squeeze_(" in str(self.lines):
            return None
        if not self.scope[y].requires_grad and self.pick.random() < 0.9:
            return None
        g = f"g{self.made}"
        self.made += 1
        how = self.pick.choice(("create_graph=True", "create_graph=True", "retain_graph=True", ""))
        f = self.pick.choice(("{x}.sum()", "({x} * {x}).sum()", "{x}.sin().sum()")).format(x=x)
        how += ", " if how else ""
        asked = f"L.autograd.grad({f}, [{y}], {how}allow_unused=True, materialize_grads=True)"
        return f"{g}, = {asked}; {g} = {g}.clone()"

    def observed(self) -> str | None:
        x = self.any()
        leaf = [n for n in self.tensors() if self.scope[n].is_leaf and self.scope[n].grad is not None]
        texts = [
            f"{x}.retain_grad()", f"del {x}", f"{x}.register_hook(lambda g: g * 0.5)",
            f"{x}.register_hook(lambda g: seen.append(g.sum().item()))",
        ]  # fmt: skip
        # A hook of a view that is written later sees other things.
        if self.scope[x]._is_view() or "squeeze_(" in str(self.lines):
            texts = texts[1:2]
        if leaf:
            z = self.pick.choice(leaf)
            texts += [
                f"{z}.grad = None", f"{z}.grad.zero_()", f"{z}.grad.mul_(2.0)",
                f"v{self.made} = {z}.grad * 2.0", f"v{self.made} = {z}.grad.detach()",
            ]  # fmt: skip
            self.made += 1
        text = self.pick.choice(texts)
        return None if text.startswith("del") and len(self.tensors()) < 3 else text

    def program(self, length: int) -> list[str]:
        """A program of about that many lines."""
        for _ in range(self.pick.randint(1, 3)):
            self.leaf()
        for _ in range(length):
            if self.over:
                break
            chance = self.pick.random()
            if chance < 0.55:
                text = self.expression()
                if text:
                    self.assign(text)
            else:
                kinds = (
                    self.written, self.written, self.written, self.backward, self.differentiated,
                    self.observed, self.unrecorded,
                )  # fmt: skip
                text = self.pick.choice(kinds)()
                if text:
                    self.emit(text)
        if not self.over:
            for name in [
                n for n in self.tensors() if self.scope[n].requires_grad and not self.scope[n].is_leaf
            ][-2:]:
                if not self.over:
                    self.emit(f"{name}.sum().backward(retain_graph=True)")
        return self.lines
