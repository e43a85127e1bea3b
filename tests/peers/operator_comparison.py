"""Compares Lamina with PyTorch on the samples of PyTorch's operator database, entry by entry.

`examined(entry, count)` gives an outcome for each form (function, method, in place, out=) of an entry, over
float32, float64, int64, bool and complex ones: "agrees", "differs", "absent", "raises" or "not testable"; and
"agrees with its reference" where PyTorch does not (operator_references.py).
"""

from __future__ import annotations

import contextlib
import functools
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import operator_forms as forms
import operator_references as references
import torch
from operator_forms import Absent, Unsayable, argument, copied, flat
from torch.testing._internal.opinfo.core import OpInfo

import lamina
from lamina.runtime.tensor import Tensor

DTYPES = (
    torch.float32,
    torch.float64,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.complex128,
)
FORMS = ("function", "method", "in place", "out=")
REFERENCE = "agrees with its reference"
ORDER = (
    "absent",
    "raises",
    "differs",
    REFERENCE,
    "agrees",
    "not testable",
)  # the first that a sample shows is the form's
UNDEFINED = re.compile(r"^(new_)?empty(_|$)|resize_(as_)?$|^nn.functional.rrelu|permuted")
LEFT_OUT = {
    "sparse": "of test_torch_sparse.py", "to_sparse": "of test_torch_sparse.py",
    "masked.": "torch.masked is a prototype",
    "chalf": "makes complex numbers of halves",
    "max_pool2d_with_indices_backward": "an operator of PyTorch's dispatcher, behind its public functions",
    "ops.": "an operator of PyTorch's dispatcher, behind its public functions",
    "_": "private", "torch._": "private",
}  # fmt: skip
KEPT = ("__getitem__", "__radd__", "__rmul__", "__rsub__", "__rdiv__", "__rpow__", "__rmod__", "__rmatmul__",
        "__rand__", "__ror__", "__rxor__")  # fmt: skip


def reason_left_out(entry: Any) -> str | None:
    """Why an entry is none of this comparison's."""
    if entry.name in KEPT:
        return None
    for name, reason in LEFT_OUT.items():
        if (
            entry.name.startswith(name)
            if name.endswith((".", "_")) or name == "sparse"
            else entry.name == name
        ):
            return reason
    return None


@dataclass
class Outcome:
    """What became of the samples of one form of an entry; notes: of the first of each kind, what happened."""

    counts: dict[str, int] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, note: str = "") -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        self.notes.setdefault(kind, note)

    @property
    def kind(self) -> str:
        return next((kind for kind in ORDER if kind in self.counts), "not testable")

    @property
    def note(self) -> str:
        if not self.counts:
            return "PyTorch has no sample of it in these dtypes"
        return self.notes.get(self.kind, "")


class Differs(Exception):
    """A result is not PyTorch's; says how.

    where: at which of its numbers, complex ones being pairs; limit: and by more than how much.
    """

    def __init__(self, how: str, where: np.ndarray | None = None, limit: float = 0.0):
        super().__init__(how)
        self.where, self.limit = where, limit


# ---- how near a result must be
def near(x: Any, y: Any, allowed: Callable[[], Any], terms: int, what: str) -> None:
    """Raise Differs unless a result of Lamina's is PyTorch's.

    Floats differ by what rounding does to sums of `terms` products in another order: terms * eps of the
    largest.  Where that is not enough, `allowed` tells how much the result moves if every operand moves by
    its last bit: a result that an algorithm without fault may give lies within a few times of that.
    """
    if not isinstance(y, torch.Tensor):
        if isinstance(x, Tensor):
            raise Differs(f"{what}: a tensor, PyTorch's is {y!r}")
        y = str(y).removeprefix("torch.") if isinstance(y, torch.dtype) else y
        x = x.name if hasattr(x, "itemsize") and hasattr(x, "name") else x
        if isinstance(y, float):
            same = np.allclose(x, y, rtol=1e-6, equal_nan=True)
        else:
            same = tuple(x) == tuple(y) if isinstance(y, torch.Size) else x == y
        if not same:
            raise Differs(f"{what}: {x!r}, PyTorch's is {y!r}")
        return
    if not isinstance(x, Tensor):
        raise Differs(f"{what}: {type(x).__name__}, PyTorch's is a tensor")
    if y.layout is not torch.strided:
        raise Unsayable("the result is sparse")
    if x.dtype.name != str(y.dtype).removeprefix("torch."):
        raise Differs(f"{what}: of {x.dtype.name}, PyTorch's is of {y.dtype}")
    if tuple(x.shape) != tuple(y.shape):
        raise Differs(f"{what}: of shape {list(x.shape)}, PyTorch's is of {list(y.shape)}")
    a, b = x.detach()._data, y.detach()
    if y.dtype is torch.bfloat16:
        a, b = a.astype(np.float32), b.float()
    b = b.numpy(force=True)
    if y.is_complex():
        a, b = parts(a), parts(b)
    if b.dtype.kind not in "f":
        if not np.array_equal(a, b):
            raise Differs(f"{what}: other values")
        return
    eps = float(torch.finfo(y.dtype).eps)
    finite = np.abs(b[np.isfinite(b)].astype(np.float64))
    with np.errstate(all="ignore"):
        error = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a.astype(np.float64) - b))
    # Gradients are sums of products with cotangents near 1, windows of cosines, and these may cancel.
    least = 1.0 if what.startswith(("gradient", "window")) else 1e-30 if b.dtype == np.float64 else 1e-10
    limit = (64 + terms) * eps * np.max(finite, initial=least)
    if (error <= limit).all():
        return
    moved = allowed()
    if moved is not None and moved.shape == error.shape:
        limit += 64 * np.max(moved[np.isfinite(moved)], initial=0.0)
        if (error <= limit).all():
            return
    worst = np.unravel_index(np.argmax(np.where(np.isnan(error), np.inf, error)), error.shape)
    raise Differs(f"{what}: {a[worst]!r}, PyTorch's is {b[worst]!r}", ~(error <= limit), float(limit))


def parts(x: np.ndarray) -> np.ndarray:
    """Complex numbers as pairs, along a further dimension; others as they are."""
    return np.stack([x.real, x.imag], -1) if x.dtype.kind == "c" else x


def nudged(x: Any, sign: Any) -> Any:
    """The arguments with floats moved by a last bit."""
    if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()):
        wiggle = 1 + torch.finfo(x.dtype).eps * sign(x.shape).to(x.dtype)
        return (x.detach() * wiggle).requires_grad_(x.requires_grad)
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size):
        return type(x)([nudged(item, sign) for item in x]) if not hasattr(x, "_fields") else x
    if isinstance(x, dict):
        return {key: nudged(value, sign) for key, value in x.items()}
    return x


def wide(x: torch.Tensor) -> np.ndarray:
    """A result in float64, complex ones as pairs."""
    x = x.detach().resolve_conj().resolve_neg()
    return torch.view_as_real(x).double().numpy() if x.is_complex() else x.double().numpy(force=True)


def sensitivity(call: Callable[[Any], list], arguments: Any, place: int, result: Any) -> np.ndarray | None:
    """How far PyTorch's result moves where every operand moves by its last bit, at most of three ways."""
    generator = torch.Generator().manual_seed(0)
    base = wide(result)
    moved = np.zeros(base.shape)
    for _ in range(3):
        try:
            other = call(nudged(arguments, lambda s: torch.randint(-1, 2, s, generator=generator)))[place]
            other = wide(other)
            with np.errstate(all="ignore"):
                moved = np.maximum(moved, np.nan_to_num(np.abs(other - base), nan=0.0, posinf=0.0))
        except Exception:
            return None
    return moved


# ---- one sample
CHOOSING = ("kthvalue", "topk", "sort", "argsort", "msort", "mode")


@dataclass
class Case:
    """One sample of an entry, as PyTorch calls it."""

    entry: Any
    sample: Any
    random: bool

    @property
    def arguments(self) -> tuple:
        return (self.sample.input, self.sample.args, self.sample.kwargs)

    @property
    def ties(self) -> bool:
        """Whether which of equal elements is meant is left open, and there may be such."""
        input = self.sample.input
        return self.entry.name in CHOOSING and not input.is_floating_point()

    @property
    def process(self) -> tuple[Callable, Callable]:
        """What takes of the results those whose gradients are meant, PyTorch's and Lamina's."""
        process = self.sample.output_process_fn_grad
        written = getattr(process, "__module__", "").startswith(forms.WRITTEN_BY_TESTS)
        return process, forms.rewritten(process) if written else process

    @property
    def wrapper(self) -> Callable | None:
        """What makes, of a sample, the arguments for which the database defines the entry's gradient.

        Of a function that reads one triangle of a matrix, Hermitian ones.  None: the sample's are.
        """
        wrapper = self.entry.gradcheck_wrapper
        return None if wrapper is OpInfo.gradcheck_wrapper else wrapper

    def truths(self) -> Iterator[list]:
        """What references say that the results are."""
        return references.of_entry(self.entry, self.sample)

    def terms(self) -> int:
        return sum(x.numel() for x in flat(self.arguments) if isinstance(x, torch.Tensor))


def compared(
    case: Case, theirs: Callable, ours: Callable, gradients: bool, truths: Callable[[], Iterator[list]]
) -> str | None:
    """Call both with the sample and compare what they return, and their gradients.

    truths: what references say that the results are.  Returns how PyTorch differs from one that Lamina agrees
    with, or None.  Raises Differs, Unsayable.
    """

    def call(arguments: Any, process: bool = False) -> list:
        input, args, kwargs = arguments
        found = theirs(input, *args, **kwargs)
        return flat(case.sample.output_process_fn_grad(found) if process else found)

    theirs_given = copied(case.arguments)
    try:
        wanted = call(theirs_given)
    except Exception as error:
        raise Unsayable(f"PyTorch raises {type(error).__name__}") from None
    given = argument(case.arguments)
    input, args, kwargs = given
    got = ours(input, *args, **kwargs)
    found = flat(got)
    if len(found) != len(wanted):
        raise Differs(f"{len(found)} results, PyTorch gives {len(wanted)}")
    process, mine = case.process
    result = "window" if case.entry.name.startswith("signal.windows.") else "result"
    terms, otherwise = case.terms(), None
    try:
        for n, (x, y) in enumerate(zip(found, wanted)):
            if case.random or (n and case.ties) or (case.ties and case.entry.name == "argsort"):
                alike(x, y)
            else:
                near(x, y, lambda n=n, y=y: sensitivity(call, case.arguments, n, y), terms, f"{result} {n}")
    except Differs as why:
        # What is only determined up to a sign or a basis (eigenvectors) is compared by what is determined.
        settled = [call(copied(case.arguments), True), flat(mine(got))] if _chooses(process) else None
        if settled is None and not any(nearer(found, wanted, truth, terms) for truth in truths()):
            raise
        otherwise = None if settled else str(why)
        for n, (y, x) in enumerate(zip(*settled) if settled else ()):
            near(x, y, lambda n=n, y=y: sensitivity(lambda a: call(a, True), case.arguments, n, y), terms,
                 f"result {n}")  # fmt: skip
    if not case.entry.name.endswith("_"):  # which write into one
        memory(found, flat(given), wanted, flat(theirs_given))
    if gradients and not case.random:
        sides = call(theirs_given, True), theirs_given, flat(mine(got)), given
        otherwise = judged_gradients(case, theirs, ours, sides, call) or otherwise
    return otherwise


def nearer(found: list, wanted: list, truth: list, terms: int) -> bool:
    """Whether Lamina's results are the true ones and PyTorch's are not."""
    if len(truth) != len(wanted) or not all(isinstance(y, torch.Tensor) for y in wanted):
        return False
    true = [references.rounded(t, y) for t, y in zip(truth, wanted)]
    if any(t is None for t in true):
        return False

    def are_true(results: list) -> bool:
        try:
            for x, t in zip(results, true):
                near(x, t, lambda: None, terms, "result")
        except Differs:
            return False
        return True

    return are_true(found) and not are_true([argument(y) for y in wanted])


def memory(found: list, mine: list, wanted: list, theirs: list) -> None:
    """Raise Differs where a result lies in the memory of an operand, and PyTorch's does not."""
    for n, (x, y) in enumerate(zip(found, wanted)):
        if not isinstance(x, Tensor) or not isinstance(y, torch.Tensor) or not y.numel():
            continue
        if any(isinstance(a, Tensor) and np.may_share_memory(a._data, x._data) for a in mine):
            places = {b.untyped_storage().data_ptr() for b in theirs if isinstance(b, torch.Tensor)}
            if y.untyped_storage().data_ptr() not in places:
                raise Differs(f"result {n}: lies in an operand's memory, unlike PyTorch's")


def _chooses(process: Any) -> bool:
    return (
        getattr(process, "__module__", "").startswith("torch.testing")
        and process.__code__.co_code != (lambda x: x).__code__.co_code
    )


def alike(x: Any, y: Any) -> None:
    """Random results agree by dtype and shape."""
    if isinstance(y, torch.Tensor):
        if not isinstance(x, Tensor) or x.dtype.name != str(y.dtype).removeprefix("torch."):
            raise Differs(f"of {getattr(x, 'dtype', type(x))}, PyTorch's is of {y.dtype}")
        if tuple(x.shape) != tuple(y.shape):
            raise Differs(f"of shape {list(x.shape)}, PyTorch's is of {list(y.shape)}")


def torch_gradients(ends: list, starts: list) -> list:
    ends = [y for y in ends if isinstance(y, torch.Tensor) and y.requires_grad]
    weights = [_weight(y) for y in ends]
    return list(torch.autograd.grad(ends, starts, weights, allow_unused=True))


def _weight(y: Any) -> Any:
    generator = np.random.default_rng(y.numel())
    values = generator.uniform(0.5, 1.5, tuple(y.shape))
    if y.is_complex():
        values = values + 1j * generator.uniform(0.5, 1.5, tuple(y.shape))
    return torch.from_numpy(np.asarray(values)).to(y.dtype)


def wanting(x: Any, kind: type) -> list:
    return [t for t in flat(x) if isinstance(t, kind) and t.requires_grad]


def judged_gradients(
    case: Case, theirs: Callable, ours: Callable, sides: tuple, call: Callable
) -> str | None:
    """`compare_gradients`; where they differ, once more of the arguments that the entry's `wrapper` makes."""
    wrapper = case.wrapper
    try:
        return compare_gradients(case, *sides, call, decided=wrapper is None)
    except Differs:
        if wrapper is None:
            raise

    process, mine = case.process

    def wrapped(arguments: Any, _: bool = True) -> list:
        input, args, kwargs = arguments
        return flat(process(wrapper(theirs, input, *args, **kwargs)))

    given, theirs_given = argument(case.arguments), copied(case.arguments)
    input, args, kwargs = given
    found = flat(mine(forms.rewritten(wrapper)(ours, input, *args, **kwargs)))
    return compare_gradients(case, wrapped(theirs_given), theirs_given, found, given, wrapped, decided=True)


def compare_gradients(
    case: Case, wanted: list, their: Any, found: list, mine: Any, call: Callable, decided: bool
) -> str | None:
    """Raise Differs unless the gradients of the sample's tensors are PyTorch's.

    decided: or else slopes must speak for Lamina's and against PyTorch's; how these differ is returned.
    """
    starts = wanting(their, torch.Tensor)
    ends = [n for n, y in enumerate(wanted) if isinstance(y, torch.Tensor) and y.requires_grad]
    if not starts or not ends:
        return None
    try:
        expected = torch_gradients(wanted, starts)
    except RuntimeError:  # PyTorch has no gradient there, and says so; none must be lost in silence
        lost = [n for n in ends if wanted[n].numel() and not found[n].requires_grad]
        if lost and decided:
            raise Differs(f"result {lost[0]} has no history; PyTorch's refuses backward") from None
        return None
    own = wanting(mine, Tensor)
    outputs = [(found[n], _weight(wanted[n])) for n in ends]
    followed = [(x, argument(w)) for x, w in outputs if x.requires_grad]
    gradients: list = [None] * len(own)
    if followed:
        xs, seeds = zip(*followed)
        gradients = lamina.autograd.grad(xs, own, seeds, allow_unused=True)
    if len(own) != len(starts):
        raise Differs("other operands want gradients")

    def again(arguments: Any) -> list:
        return torch_gradients(call(arguments, True), wanting(arguments, torch.Tensor))

    otherwise = None
    for n, (g, h) in enumerate(zip(gradients, expected)):
        if g is None or h is None:
            filled = g if h is None else h
            if filled is not None and bool((filled != 0).any()):
                raise Differs(f"gradient {n}: {'none' if g is None else 'one'}, unlike PyTorch's")
            continue
        moved = functools.partial(sensitivity, again, case.arguments, n, h)
        try:
            near(g, h, moved, case.terms(), f"gradient {n}")
        except Differs as why:
            if not decided or why.where is None:
                raise
            both = parts(g.numpy()), wide(h)
            weights = {n: _weight(wanted[n]).numpy() for n in ends}
            if not references.slopes_decide(
                lambda a: call(a, True), case.arguments, n, weights, both, why.where, why.limit
            ):
                raise
            otherwise = str(why)
    return otherwise


# ---- forms
def in_place(case: Case, theirs: Callable, ours: Callable) -> str | None:
    """The tensor that is written is the one returned, and holds what PyTorch's does.

    One that would have to be broadcast is refused: what PyTorch's own tests want of operators
    (test_variant_consistency_eager), though not all of PyTorch's keep to it.
    """
    plain = Case(case.entry, _plain(case.sample), case.random)
    input, args, kwargs = plain.arguments
    if case.sample.broadcasts_input and case.entry.op(input, *args, **kwargs).shape != input.shape:
        input, args, kwargs = argument(plain.arguments)
        try:
            ours(input, *args, **kwargs)
        except RuntimeError:
            return None
        raise Differs("what would have to be broadcast is written")

    def write(function: Callable, written: list) -> Callable:
        def apply(input: Any, *args: Any, **kwargs: Any) -> Any:
            target = input.detach().clone()
            written[:] = [target, function(target, *args, **kwargs)]
            return target

        return apply

    mine: list = []
    otherwise = compared(plain, write(theirs, []), write(ours, mine), False, plain.truths)
    if mine[1] is not mine[0]:
        raise Differs("what is returned is not the tensor written")
    return otherwise


def into_out(case: Case, theirs: Callable, ours: Callable) -> str | None:
    """out=: right ones are written, empty ones resized; the result is what was given.

    What PyTorch's function returns without out= is a reference, too.
    """
    plain = Case(case.entry, _plain(case.sample), case.random)
    shapes: list = []
    returns: list = []

    def apply(function: Callable, empty: bool, mine: bool) -> Callable:
        def call(input: Any, *args: Any, **kwargs: Any) -> Any:
            if not mine:
                shapes[:] = [function(input, *args, **kwargs)]
            results = flat(shapes[0])
            if not all(isinstance(r, torch.Tensor) for r in results):
                raise Unsayable("not all results are tensors")
            outs = [torch.zeros((0,) if empty else r.shape, dtype=r.dtype) for r in results]
            outs = [argument(o) for o in outs] if mine else outs
            single = isinstance(shapes[0], torch.Tensor)
            given = outs[0] if single else tuple(outs)
            found = function(input, *args, **kwargs, out=given)
            same = len(flat(found)) == len(outs) and all(a is b for a, b in zip(flat(found), outs))
            if not mine:
                returns[:] = [same]  # unbind_copy and its kin return nothing
            elif returns[0] and not same:
                raise Differs("what is returned is not what out= gave")
            return given

        return call

    def truths() -> Iterator[list]:
        yield flat(shapes[0])
        yield from references.of_entry(case.entry, plain.sample)

    notes = [
        compared(plain, apply(theirs, empty, False), apply(ours, empty, True), False, truths)
        for empty in (False, True)
    ]
    return next((note for note in notes if note), None)


def _plain(sample: Any) -> Any:
    """The sample without gradients."""
    with torch.no_grad():
        made = type(sample)(
            _held(sample.input), args=_held(tuple(sample.args)), kwargs=_held(dict(sample.kwargs)),
            output_process_fn_grad=sample.output_process_fn_grad,
        )  # fmt: skip
    return made


def _held(x: Any) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach()
    if isinstance(x, (list, tuple)) and not isinstance(x, torch.Size) and not hasattr(x, "_fields"):
        return type(x)([_held(item) for item in x])
    return {k: _held(v) for k, v in x.items()} if isinstance(x, dict) else x


def samples(entry: Any, dtype: torch.dtype, count: int | None, seed: int) -> Iterator[Any]:
    """Some samples of an entry, other ones for another seed."""
    torch.manual_seed(0)
    np.random.seed(0)
    gradients = dtype in (torch.float64, torch.complex128)  # also where PyTorch has none: it says so
    made = list(entry.sample_inputs("cpu", dtype, requires_grad=gradients))
    if count is not None and len(made) > count:
        step = len(made) / count
        made = [made[int(n * step + seed % max(int(step), 1))] for n in range(count)]
    return iter(made)


def _ours(entry: Any, form: str) -> tuple[Callable, Callable] | None:
    """PyTorch's and Lamina's function for a form; None where PyTorch has none."""
    if form in ("function", "out="):
        if form == "out=" and not entry.supports_out:
            return None
        return entry.op, forms.translated(entry.op, entry.name)
    theirs = entry.method_variant if form == "method" else entry.inplace_variant
    if theirs is None:
        return None
    return theirs, forms.translated(theirs, getattr(theirs, "__name__", entry.name))


def examined(entry: Any, count: int | None = None, seed: int = 0) -> dict[str, Outcome]:
    """The outcome of each form that an entry has.  count: of samples for each dtype; None: all."""
    outcomes: dict[str, Outcome] = {}
    reason = reason_left_out(entry)
    if reason:
        outcomes["function"] = Outcome()
        outcomes["function"].add("not testable", reason)
        return outcomes
    pairs: dict[str, tuple[Callable, Callable]] = {}
    for form in FORMS:
        try:
            pair = _ours(entry, form)
        except Absent as absent:
            outcomes[form] = Outcome()
            outcomes[form].add("absent", str(absent))
        except Unsayable as why:
            outcomes[form] = Outcome()
            outcomes[form].add("not testable", str(why))
        else:
            if pair is not None:
                pairs[form] = pair
                outcomes[form] = Outcome()
    if not pairs:
        return outcomes
    random = "wrapper_set_seed" in getattr(getattr(entry.op, "__code__", None), "co_names", ())
    random = random or bool(UNDEFINED.search(entry.name))
    with quiet():
        for dtype in DTYPES:
            if not entry.supports_dtype(dtype, "cpu"):
                continue
            try:
                drawn = list(samples(entry, dtype, count, seed))
            except Exception as error:
                outcomes["function"].add("not testable", f"no samples: {type(error).__name__}")
                continue
            for number, sample in enumerate(drawn):
                case = Case(entry, sample, random)
                for form, (theirs, ours) in pairs.items():
                    if form == "out=" and number >= 3:
                        continue
                    if form == "in place" and not isinstance(sample.input, torch.Tensor):
                        continue
                    tried(outcomes[form], f"{dtype} #{number}", case, form, theirs, ours)
    return outcomes


def tried(outcome: Outcome, what: str, case: Case, form: str, theirs: Callable, ours: Callable) -> None:
    what = what.removeprefix("torch.")
    try:
        if form == "in place":
            otherwise = in_place(case, theirs, ours)
        elif form == "out=":
            otherwise = into_out(case, theirs, ours)
        else:
            otherwise = compared(case, theirs, ours, form == "function", case.truths)
    except Unsayable as why:
        outcome.add("not testable", f"{what}: {why}")
    except Absent as why:
        outcome.add("absent", str(why))
    except Differs as why:
        outcome.add("differs", f"{what}: {why}")
    except AttributeError as error:
        outcome.add("absent" if "lamina" in str(error) else "raises", f"{what}: {_first(error)}")
    except Exception as error:
        outcome.add("raises", f"{what}: {_first(error)}")
    else:
        outcome.add(REFERENCE if otherwise else "agrees", f"{what}: {otherwise}" if otherwise else "")


def _first(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:160]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield
