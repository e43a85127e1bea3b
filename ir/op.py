"""The operator record: everything Lamina knows of one operation, in one place.

An `Op` is data.  Whoever runs, differentiates, prints, lowers or tests an operation reads its record; nothing
about a single operation stands anywhere else.  docs/architecture.md walks through a worked example.

Calling a record applies it *by its operands' own kind*: NumPy arrays run the reference, anything else
(tensors, graph values, scalar expressions) says in `__lamina_op__` what applying an op to it means.  So a
gradient rule is written once, with ops and operators, and runs on every kind.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from .errors import ArgumentError
from .lowering import Lowering
from .sample import Sample
from .types import Type


@dataclass(frozen=True)
class Traits:
    """What passes and the runtime may ask of an op, instead of asking for its name.

    view: the output shares the first operand's storage; with copies, only where the strides allow it.
    commutative: two operands may be exchanged.  random: draws from the generator, by key and offset given as
    operands.  inplace: has a form `name_` that writes its first operand.  elementwise: output element i
    depends on element i of the (broadcast) operands alone.  movement: moves elements without computing, so
    halves stay halves.  creation: has no tensor operand.  host: runs on the host only (its output's shape
    depends on values).  mutates: the operands it writes, by name (optimizer updates).  refuses: there are
    values of its operands that it raises an error for, so it runs even where nobody needs what it returns.
    storage: takes float8, too, in which nothing is computed; views and what only moves elements do anyway.
    meets: other processes run it with this one, each as often and in the same order, so it is never left
    out, moved over another, or run ahead of time.
    compares: of a number that the operand's integers can't hold it asks alone on which side of them it lies.
    in_order: the result's elements lie in the order of its dims, however the operands' lie: PyTorch's do, and
    x.view(-1) of it is possible.
    """

    view: bool = False
    copies: bool = False
    commutative: bool = False
    random: bool = False
    inplace: bool = False
    elementwise: bool = False
    movement: bool = False
    creation: bool = False
    host: bool = False
    mutates: tuple[str, ...] = ()
    refuses: bool = False
    storage: bool = False
    meets: bool = False
    compares: bool = False
    in_order: bool = False


SEQUENCE: Any = object()  # stands in _kinds for tuples and lists, whose items say what kind they are
_kinds: dict[type, Any] = {tuple: SEQUENCE, list: SEQUENCE}


def _kind(kind: type) -> Any:
    """What applying an op to an operand of this class means, None for arrays and numbers; remembered."""
    if issubclass(kind, (tuple, list)):
        return SEQUENCE
    apply = getattr(kind, "__lamina_op__", None)
    if len(_kinds) < 1024:
        _kinds[kind] = apply
    return apply


class Op:
    """One operation.

    name        its PyTorch name where PyTorch has it.
    operands    the names of its tensor operands, in order; a last name "*name" takes any number.  An operand
                may be None where its name stands in `optional`.
    attrs       the names of its other arguments, in canonical form: hashable, normalised (dims not negative),
                the same whatever way the user spelled them.
    outputs     the names of what it returns.  hidden: further outputs that the gradient needs (pool indices,
                rstd): real values of the graph, after the visible ones, not handed to the user.
    bind        the user's call: PyTorch's signature -> (operands, attrs dict).  Its docstring is the op's.
    infer       (operand types..., **attrs) -> the type of each output.  Raises the errors a user sees.
    reference   (arrays..., **attrs) -> arrays: the op's meaning, in NumPy.
    casts       (operand types..., **attrs) -> the dtype each operand is cast to before the reference sees it
                (None: as it is).  Apart from this, halves are computed in float32 and rounded once, unless
                `movement`.
    grad        one function per operand (None: not differentiable), the shorthand for one visible output:
                its first parameter is the cotangent, the others are what it wants *by name*: an operand, an
                output, `<name>_type` of either, or an attr.  What is saved follows from the names.
    vjp, saves  the general form: vjp(saved, cotangents, attrs, needs) -> a cotangent or None per operand.
    lower       its lowering, as data (see lowering.py).
    traits      see Traits.
    samples     inputs for the generated tests (see sample.py).
    write       (arrays..., **attrs): the in-place form in NumPy, which changes the first array (or those that
                `mutates` names) instead of returning; without it, an in-place op writes the reference's
                result over the operand.
    rows        of an optimizer's update: (keyword arguments as items) -> f(rows), which writes; a row is the
                arrays of one parameter (see ir/ops/update.py).
    quick       (types, attrs) -> a quicker spelling of the reference for operands of just these types, or
                None; it must return an ndarray of the inferred dtype, 0-d results too.
    quick_grad  (types of operands then outputs, attrs) -> per operand f(cotangent, saved), a quicker spelling
                of the gradients where all of these are plain arrays, or None.  Must agree with `grad`, as a
                test checks, and return an ndarray of the operand's own shape and dtype: it is not fitted.
    inapplicable  which standard sizes and layouts its samples leave out, and why: {"0-d": "needs a dim"}.
    inner       (operand types) -> how many elements the reference goes over on its way from operands to
                results, where those are many more: eager waits that much less for native code.
    method      whether it is also a method of tensors.  aliases: further public names.
    number      (the first tensor's type, a Python number behind it): refuses numbers that it can't take.
    dtypes      the real dtypes it takes: "all", "float", "number" (not bool), "int" (and bool), "byte"
                (int8, uint8); "complex" where complex numbers go in or come out in any case.
    complex     whether complex operands are taken, too, and what the gradient is then; None: they are
                refused.  "analytic": the rules are those of an analytic function or of none, as for real
                numbers, and cotangents are conjugated on their way in and out.  "stated": the rules
                themselves give PyTorch's dL/da + i dL/db for an operand a + ib.
    """

    # __dict__ holds a record's own __doc__, which a class with a docstring has no slot for.
    __slots__ = (
        "name", "operands", "optional", "variadic", "attrs", "outputs", "hidden", "bind", "plain", "infer",
        "reference", "casts", "rules", "vjp", "saves", "lower", "traits", "write", "rows", "quick",
        "quick_grad", "inner", "samples", "inapplicable", "method", "aliases", "number", "dtypes", "complex",
        "__dict__",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        *,
        reference: Callable,
        infer: Callable[..., Type | tuple[Type, ...]],
        lower: Lowering,
        samples: Callable[[], Iterable[Sample]],
        operands: tuple[str, ...] | None = None,
        optional: tuple[str, ...] = (),
        attrs: tuple[str, ...] | None = None,
        outputs: tuple[str, ...] = ("out",),
        hidden: tuple[str, ...] = (),
        bind: Callable[..., tuple[tuple, dict]] | None = None,
        casts: Callable[..., tuple] | None = None,
        grad: Callable | None | Sequence[Callable | None] = None,
        vjp: Callable | None = None,
        saves: tuple[str, ...] = (),
        traits: Traits = Traits(),
        inapplicable: dict[str, str] | None = None,
        dtypes: str = "all",
        complex: str | None = None,
        write: Callable | None = None,
        rows: Callable[[tuple], Callable] | None = None,
        quick: Callable[[tuple, dict], Callable | None] | None = None,
        quick_grad: Callable[[tuple, dict], tuple | None] | None = None,
        inner: Callable[[tuple[Type | None, ...]], int] | None = None,
        method: bool = True,
        aliases: tuple[str, ...] = (),
        number: Callable[[Type, bool | int | float | complex], None] | None = None,
        doc: str | None = None,
    ):
        signature = _signature(reference) if operands is None or attrs is None else ((), ())
        self.name = name
        self.operands = signature[0] if operands is None else operands
        self.attrs = signature[1] if attrs is None else attrs
        self.optional = optional
        self.variadic = bool(self.operands) and self.operands[-1].startswith("*")
        self.outputs, self.hidden = outputs, hidden
        self.plain = bind is None  # the call's arguments are just the operands
        self.bind = _called(bind, name) if bind else _plain_bind(self)
        self.infer, self.reference, self.lower, self.casts = infer, reference, lower, casts
        self.traits, self.samples, self.method = traits, samples, method
        self.inapplicable = inapplicable or {}
        self.dtypes, self.write, self.rows, self.aliases = dtypes, write, rows, aliases
        self.complex, self.number = complex, number
        self.quick, self.quick_grad, self.inner = quick, quick_grad, inner
        self.__doc__ = doc or self.bind.__doc__
        if grad is not None and vjp is not None:
            raise TypeError(f"op {name}: give grad or vjp, not both")
        functions = (grad,) if callable(grad) else tuple(grad or ())
        if functions and len(functions) != len(self.operands):
            raise TypeError(f"op {name}: {len(functions)} gradients for {len(self.operands)} operands")
        self.rules = tuple(None if f is None else Rule.of(self, f) for f in functions)
        self.vjp: Any = vjp
        if self.rules:
            wanted = {source for rule in self.rules if rule for source in rule.arrays}
            saves = tuple(n for n in (*self.operands, *self.all_outputs) if n in wanted)
        self.saves = saves

    @property
    def all_outputs(self) -> tuple[str, ...]:
        return self.outputs + self.hidden

    @property
    def differentiable(self) -> bool:
        return self.vjp is not None or any(self.rules)

    def differentiates(self, position: int) -> bool:
        """Whether a cotangent can flow to the operand at `position`."""
        if self.vjp is not None:
            return True
        return bool(self.rules) and self.rules[position] is not None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply to operands of one kind; arrays are bound, cast as `infer` says, and run by the reference."""
        sequence = None
        for arg in args:
            kind = type(arg)
            apply = _kinds[kind] if kind in _kinds else _kind(kind)
            if apply is not None:
                if apply is not SEQUENCE:
                    return apply(self, args, kwargs)
                sequence = arg
        if sequence is not None:
            for arg in args:
                if isinstance(arg, (tuple, list)):
                    for item in arg:
                        apply = _kind(type(item))
                        if apply is not None and apply is not SEQUENCE:
                            return apply(self, args, kwargs)
        elif not self.attrs and not kwargs and len(args) == len(self.operands):
            return self.reference(*args)
        operands, attrs = self.bind(*args, **kwargs)
        return self.reference(*operands, **attrs)

    def cotangents(self, saved: tuple, cotangents: tuple, attrs: dict, needs: tuple, types: tuple) -> tuple:
        """One cotangent or None per operand: the gradient contract, however the record states its rules.

        saved: what `saves` names, in order.  needs: which operands want one.  types: of the operands, then of
        the outputs.  The results are not yet fitted back to the operands' shapes and dtypes; callers do that.
        """
        if self.vjp is not None:
            return self.vjp(saved, cotangents, attrs, needs)
        by_name = dict(zip(self.saves, saved, strict=True))
        return tuple(
            rule(cotangents[0], by_name, attrs, types) if need and rule else None
            for rule, need in zip(self.rules, needs, strict=True)
        )

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def __reduce__(self):
        return (_restore, (self.name,))


@dataclass(frozen=True)
class Rule:
    """The gradient to one operand, and where each of its parameters comes from.

    Parameters that are arrays come before types and attrs, so that a caller can fix the latter once.
    """

    function: Callable
    arrays: tuple[str, ...]  # names among the op's operands and outputs
    types: tuple[tuple[str, int], ...]  # (parameter, position among operand types then output types)
    attrs: tuple[str, ...]

    @staticmethod
    def of(op: Op, function: Callable) -> Rule:
        names = function.__code__.co_varnames[1 : function.__code__.co_argcount]
        values = (*op.operands, *op.all_outputs)
        arrays = tuple(n for n in names if n in values)
        types = tuple((n, values.index(n[:-5])) for n in names if n.endswith("_type") and n[:-5] in values)
        attrs = tuple(n for n in names if n in op.attrs)
        if len(arrays) + len(types) + len(attrs) != len(names) or names[: len(arrays)] != arrays:
            raise TypeError(
                f"op {op.name}: a gradient's parameters must be values of {values}, then types and attrs "
                f"of {op.attrs}, not {names}"
            )
        return Rule(function, arrays, types, attrs)

    def fixed(self, attrs: dict, types: tuple[Type, ...]) -> dict:
        """The keyword arguments that do not change between calls of one kind."""
        return {n: types[p] for n, p in self.types} | {n: attrs[n] for n in self.attrs}

    def __call__(self, cotangent: Any, by_name: dict, attrs: dict, types: tuple[Type, ...]) -> Any:
        return self.function(cotangent, *(by_name[n] for n in self.arrays), **self.fixed(attrs, types))


def _signature(reference: Callable) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Positional parameters are operands, keyword-only ones are attrs."""
    code = reference.__code__
    names, count, only = code.co_varnames, code.co_argcount, code.co_kwonlyargcount
    variadic = ("*" + names[count + only],) if code.co_flags & 0x04 else ()
    return names[:count] + variadic, names[count : count + only]


def _called(bind: Callable, name: str) -> Callable:
    """`bind` under the op's name, which Python's errors about arguments speak of."""
    if not isinstance(bind, FunctionType):
        return bind
    made = FunctionType(bind.__code__, bind.__globals__, name, bind.__defaults__, bind.__closure__)
    made.__kwdefaults__, made.__doc__, made.__qualname__ = bind.__kwdefaults__, bind.__doc__, name
    vars(made).update(vars(bind))
    return made


def _plain_bind(op: Op) -> Callable[..., tuple[tuple, dict]]:
    """The user's call of an op whose arguments are just its operands."""
    names, required = op.operands, len(op.operands) - len(op.optional)

    def bind(*args, **kwargs):
        if kwargs:
            args = args + tuple(kwargs.pop(n) for n in names[len(args) :] if n in kwargs)
        if kwargs or not required <= len(args) <= len(names):
            raise ArgumentError(
                f"{op.name}({', '.join(names)}): takes {len(names)} operands, got {len(args)}"
                + (f" and unknown {', '.join(kwargs)}" if kwargs else "")
            )
        return args + (None,) * (len(names) - len(args)), {}

    return bind


def conjugates(op: Op, types: Iterable[Type | None], attrs: Mapping[str, Any]) -> bool:
    """Whether cotangents are conjugated on their way into the rules of an op, and gradients on the way out.

    A rule of an analytic function gives g * f'; PyTorch's convention is g * conj(f').  One that looks at
    the cotangent alone, and at no complex number, is the same without.  types: of operands and outputs.
    """
    if op.complex != "analytic" or not any(t is not None and t.dtype.is_complex for t in types):
        return False
    return bool(op.saves) or any(isinstance(x, complex) for x in attrs.values())


REGISTRY: dict[str, Op] = {}
on_entry: list[Callable[[Op], None]] = []  # called with each record that is entered, by who offers ops


def register(op: Op) -> Op:
    """Enter a record into the operator set.  Raises TypeError for a second record of one name."""
    if op.name in REGISTRY:
        raise TypeError(f"op {op.name} is defined twice")
    REGISTRY[op.name] = op
    for offer in on_entry:
        offer(op)
    return op


def define(name: str, **record: Any) -> Op:
    """Make an operator's record and enter it into the operator set."""
    return register(Op(name, **record))


@dataclass(frozen=True)
class Composite:
    """A function written with ops, for every kind of operand: no record, no kernel of its own.

    public, method: whether it is a function of the package, a method of tensors (`x.float()` is no function).
    inplace: whether there is a method `name_` besides, which writes the result into the first operand.
    fresh: whether its result is new memory even where its arguments leave nothing to do, and it is a view.
    by_type: which ops it comes to follows from the type of its first operand ("all": of all its operands) and
    its other arguments.
    """

    function: Callable
    method: bool
    aliases: tuple[str, ...]
    public: bool = True
    inplace: bool = False
    fresh: bool = False
    by_type: bool | str = False


COMPOSITES: dict[str, Composite] = {}


def composite(
    *,
    method: bool = True,
    aliases: tuple[str, ...] = (),
    public: bool = True,
    inplace: bool = False,
    fresh: bool = False,
    by_type: bool | str = False,
    names: Mapping[str, str] = {},
) -> Callable[[Callable], Callable]:
    """Enter a function written with ops into the functions of the package and the methods of tensors.

    names: further ones of its arguments, where PyTorch has one for each kind of value.
    """

    def enter(function: Callable) -> Callable:
        if names:
            function = _under_names(function, names)
        COMPOSITES[function.__name__] = Composite(function, method, aliases, public, inplace, fresh, by_type)
        return function

    return enter


def _under_names(function: Callable, names: Mapping[str, str]) -> Callable:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not names.keys().isdisjoint(kwargs):
            kwargs = {names.get(name, name): value for name, value in kwargs.items()}
        return function(*args, **kwargs)

    return call


def older(*names: str) -> Callable[[Callable], Callable]:
    """Let numbers stand among a function's operands, as PyTorch had them once: `x.add_(0.1, y)`.

    names: of the keyword arguments that they are, in their order.  Who calls it asks `as_now` when it failed.
    """

    def enter(function: Callable) -> Callable:
        vars(function)["older"] = function.__code__.co_argcount, names
        return function

    return enter


_WARNED: set[Callable] = set()  # functions whose older form was seen
warns_always: list[Callable[[], bool]] = []  # who tells whether they warn each time


# Names of arguments that PyTorch's functions take besides their own.
OF_NUMPY = {
    "axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other",
    "axis0": "dim0", "axis1": "dim1",
}  # fmt: skip


def as_now(function: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]] | None:
    """The arguments of a call with NumPy's names, or of an older one, as the function has them; else None."""
    own = _in_own_names(function, kwargs)
    older_form: tuple[int, tuple[str, ...]] = getattr(function, "older", (0, ()))
    count, names = older_form
    numbers = [x for x in args if isinstance(x, (int, float, complex))] if len(args) > count else []
    if not 0 < len(numbers) <= len(names) or len(args) != count + len(numbers) or set(names) & set(kwargs):
        return None if own is kwargs else (args, own)
    if function not in _WARNED or any([told() for told in warns_always]):
        _WARNED.add(function)
        name = function.__name__.removeprefix("bind_")
        warnings.warn(
            f"This overload of {name} is deprecated: a number among its operands; "
            f"pass {names[0]}={numbers[0]!r} behind them",
            stacklevel=4,
        )
    operands = tuple([x for x in args if not isinstance(x, (int, float, complex))])
    return operands, {**own, **dict(zip(names, numbers))}


def _in_own_names(function: Callable, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments by the names of a function that is written with ops; themselves where they are it."""
    if kwargs.keys().isdisjoint(OF_NUMPY) or not function.__module__.startswith("lamina.ir."):
        return kwargs
    known = inspect.signature(function).parameters
    named = {name: OF_NUMPY[name] for name in kwargs if name in OF_NUMPY and name not in known}
    if not named or not known.keys() >= set(named.values()) or set(named.values()) & set(kwargs):
        return kwargs
    return {named.get(name, name): value for name, value in kwargs.items()}


def _restore(name: str) -> Op:
    return REGISTRY[name]
