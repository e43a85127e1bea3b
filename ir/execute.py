"""Runs an op's NumPy reference under the contract that every record is written against.

The reference sees operands cast as `casts` says, halves widened to float32 (unless the op only moves
elements); what it returns is cast to the inferred dtypes and is always an ndarray, 0-d results too.  The
eager runtime and the graph's interpreter both run references through here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from .dtypes import converted
from .errors import DTypeError, GraphError, LaminaError
from .op import Op
from .types import Type

Array = np.ndarray


def executor(
    op: Op, types: tuple[Type | None, ...], attrs: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Type, ...]]:
    """What computes `op` on arrays of exactly these types, and the types of all its outputs, hidden ones too.

    The callable takes one array (or None) per operand and returns an array, or a tuple for several outputs.
    It is the record's reference itself wherever that is known to need nothing done to its operands and
    result.
    """
    refuse_untaken(op, types)
    inferred = op.infer(*types, **attrs)
    outs = inferred if isinstance(inferred, tuple) else (inferred,)
    conversions = operand_dtypes(op, types, attrs)
    if op.quick is not None and not conversions:
        quick = op.quick(types, attrs)
        if quick is not None:
            return quick, outs
    return plain(op, types, attrs, outs, isinstance(inferred, tuple), conversions), outs


def plain(
    op: Op,
    types: tuple[Type | None, ...],
    attrs: Mapping[str, Any],
    outs: tuple[Type, ...],
    several: bool,
    conversions: tuple[tuple[int, np.dtype], ...],
) -> Callable[..., Any]:
    """What computes `op` where there is no quicker spelling: the same for all sizes.

    several: whether it returns a tuple.  conversions: of operands, as `operand_dtypes` says.
    """
    run = with_attrs(op.reference, attrs)
    if conversions:
        run = _converting(run, conversions)
    if several:
        run = _several(run, tuple(t.dtype.numpy for t in outs))
    elif not _returns(op, types, conversions, outs[0]):
        run = _checked(run, outs[0].dtype.numpy, len(types))
    return _in_order(run) if op.traits.in_order and max([t.ndim for t in outs]) > 1 else run


def unbound(op: Op, types: tuple[Type | None, ...], out: Type) -> Callable[..., Any]:
    """What computes `op`, of one result and no conversions, from arrays and attributes: to be called once."""
    reference, dtype = op.reference, out.dtype.numpy
    if op.traits.in_order and out.ndim > 1:
        reference = _in_order(reference)
    if _returns(op, types, (), out):
        return reference
    return lambda *arrays, **attrs: _array(reference(*arrays, **attrs), dtype)


def refuse_untaken(op: Op, types: tuple[Type | None, ...]) -> None:
    """Raise DTypeError for a complex operand of an op that takes none, and for float8 where it computes."""
    for t in types:
        if t is None or t.dtype.traced:
            continue
        if t.dtype.is_complex and op.complex is None:
            raise t.dtype.refused(op.name, "take its parts: x.real, x.imag")
        if t.dtype.storage and not (op.traits.movement or op.traits.view or op.traits.storage):
            raise DTypeError(
                f"{op.name}: does not take {t.dtype.name}, which is for storage alone",
                "compute in another type and convert back: x.float()",
            )


def run_reference(
    op: Op, types: tuple[Type | None, ...], attrs: Mapping[str, Any], operands: Sequence[Array | None]
) -> tuple[Array, ...]:
    """All that an op's reference makes of the operands.

    Raises GraphError where it can't run: it is short of memory, or an attr is none that `bind` makes.
    """
    try:
        run, _ = executor(op, types, attrs)
        outputs = run(*operands)
    except LaminaError:
        raise
    except Exception as error:
        raise GraphError(f"the reference of {op.name} can't run: {type(error).__name__}: {error}") from error
    return outputs if isinstance(outputs, tuple) else (outputs,)


def operand_dtypes(
    op: Op, types: tuple[Type | None, ...], attrs: Mapping[str, Any]
) -> tuple[tuple[int, np.dtype], ...]:
    """The operands that must be converted before the reference sees them: (position, to which dtype)."""
    wanted = op.casts(*types, **attrs) if op.casts else (None,) * len(types)
    found = []
    for i, (t, dtype) in enumerate(zip(types, wanted, strict=True)):
        if t is None:
            continue
        dtype = dtype or t.dtype
        if not op.traits.movement:
            dtype = dtype.compute
        if dtype is not t.dtype:
            found.append((i, dtype.numpy))
    return tuple(found)


def with_attrs(reference: Callable, attrs: Mapping[str, Any]) -> Callable:
    """`reference` with its keyword-only arguments fixed."""
    if not attrs:
        return reference
    if not isinstance(reference, FunctionType) or not attrs.keys() <= set(_keyword_only(reference)):
        return partial(reference, **attrs)
    # A copy whose defaults are the attrs is called without keywords: 20 ns more than constants would take in
    # their place, where a partial takes 150.
    made = FunctionType(
        reference.__code__,
        reference.__globals__,
        reference.__name__,
        reference.__defaults__,
        reference.__closure__,
    )
    made.__kwdefaults__ = {**(reference.__kwdefaults__ or {}), **attrs}
    return made


def _keyword_only(function: FunctionType) -> tuple[str, ...]:
    code = function.__code__
    return code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]


def _returns(op: Op, types: tuple, conversions: tuple, out: Type) -> bool:
    """Whether the reference is known to return an ndarray of the inferred dtype."""
    if not out.ndim:
        return False  # NumPy makes scalars of 0-d results
    if op.traits.view:
        return not conversions and types[0] is not None and types[0].dtype is out.dtype
    if not isinstance(op.reference, np.ufunc):
        return False
    given = dict(conversions)
    dtypes = tuple(given.get(i, t.dtype.numpy) for i, t in enumerate(types))
    try:
        return op.reference.resolve_dtypes((*dtypes, None))[-1] == out.dtype.numpy
    except (
        TypeError,
        ValueError,
    ):  # no loop for them, or for an extension's dtype: the check at run time decides
        return False


def _converting(run: Callable, conversions: tuple[tuple[int, np.dtype], ...]) -> Callable:
    if len(conversions) == 1 and conversions[0][0] == 0:
        dtype = conversions[0][1]
        return lambda array, *rest: run(converted(array, dtype), *rest)

    def each(*arrays):
        given = list(arrays)
        for i, dtype in conversions:
            given[i] = converted(given[i], dtype)
        return run(*given)

    return each


def _checked(run: Callable, dtype: np.dtype, count: int) -> Callable:
    """`run` with its result made an ndarray of `dtype`; written out per arity, as the call is hot."""
    if count == 1:

        def unary(a):
            out = run(a)
            return out if out.__class__ is Array and out.dtype is dtype else _array(out, dtype)

        return unary
    if count == 2:

        def binary(a, b):
            out = run(a, b)
            return out if out.__class__ is Array and out.dtype is dtype else _array(out, dtype)

        return binary

    def general(*arrays):
        out = run(*arrays)
        return out if out.__class__ is Array and out.dtype is dtype else _array(out, dtype)

    return general


def _in_order(run: Callable) -> Callable:
    """`run` with results whose elements lie in the order of their dims."""

    def ordered(*arrays, **attrs):
        out = run(*arrays, **attrs)
        if out.__class__ is tuple:
            return tuple([np.asarray(each, order="C") for each in out])
        return out if out.flags.c_contiguous else np.asarray(out, order="C")

    return ordered


def _several(run: Callable, dtypes: tuple[np.dtype, ...]) -> Callable:
    def several(*arrays):
        found = run(*arrays)
        for out, dtype in zip(found, dtypes, strict=True):
            if out.__class__ is not Array or out.dtype is not dtype:
                return tuple([_array(out, dtype) for out, dtype in zip(found, dtypes, strict=True)])
        return found if type(found) is tuple else tuple(found)

    return several


def _array(out: Any, dtype: np.dtype) -> Array:
    return out if out.__class__ is Array and out.dtype is dtype else np.asarray(out, dtype)
