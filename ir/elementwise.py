"""Makes the record of an elementwise op out of its scalar body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import dtypes, lowering
from .dtypes import DType
from .dual import derived
from .kernel import scalar
from .op import Op, Traits, define
from .sample import binary_samples, unary_samples
from .shapes import broadcast_shapes, common_device, float_dtype, result_dtype
from .types import Type, type_of

# What a result's dtype is, from the operands' types: (dtype computed in, dtype returned).
RESULTS: dict[str, Callable[..., tuple]] = {
    "promote": lambda *t, **_: (result_dtype(*t),) * 2,  # add, maximum: integers stay integers
    "float": lambda *t, **_: (float_dtype(*t),) * 2,  # exp, div: integers become the default float
    "bool": lambda *t, **_: (result_dtype(*t), dtypes.bool_),  # comparisons
    "logic": lambda *t, **_: (dtypes.bool_, dtypes.bool_),  # logical_and: any operand, as truth
}

# The categories that `dtypes` of a record lets through, and how to come by one of them.
TAKEN = {
    "complex": ((), "convert an operand: x.cfloat()"),
    "all": (("bool", "int", "float"), ""),
    "float": (("float",), "convert an operand: x.float()"),
    "number": (("int", "float"), "convert an operand: x.int()"),
    "int": (("bool", "int"), "convert the operands: x.long()"),
}


def elementwise(
    name: str,
    body: Callable | str,
    *,
    reference: Callable | None = None,
    operands: tuple[str, ...] = ("input",),
    attrs: tuple[str, ...] = (),
    result: str | Callable[..., tuple[DType | tuple[DType, ...], DType]] = "promote",
    grad: Any = "derived",
    dtypes: str = "all",
    commutative: bool = False,
    inplace: bool = True,
    movement: bool = False,
    refuses: bool = False,
    lower: lowering.Lowering | None = None,
    complex: str | None = None,
    storage: bool = False,
    **record: Any,
) -> Op:
    """Enter an elementwise op.

    body       (*scalars, **attrs): its meaning, written with ops and operators.  Lowering, and unless given
               here the NumPy reference and the gradient, all follow from it.  A string names a word of the
               kernel form's vocabulary; then reference and grad are needed.
    reference  the same in one NumPy call, where that is quicker or the only spelling.
    result     how the dtype follows from the operands' (see RESULTS), or a function of their types and the
               attrs: (dtype computed in, or one for each operand; dtype returned).
    grad       as in Op, or "derived" from the body, or None for an op that has none.
    dtypes     what the dtype computed in may be; others raise DTypeError.
    complex    as in Op: whether it may be complex, too.
    storage    whether it takes float8 (see Traits).
    movement   halves stay halves: the op is about how numbers are written.
    refuses    there are values of its operands that it raises an error for.
    lower      where one scalar body can't say it for every dtype.

    Operands that are None are left out of broadcasting and promotion.
    """
    rule = RESULTS[result] if isinstance(result, str) else result
    categories, remedy = TAKEN[dtypes]
    if complex is not None:
        categories = (*categories, "complex")

    def infer(*types: Type | None, **attrs: Any) -> Type:
        given = types if None not in types else tuple(t for t in types if t is not None)
        computed, returned = rule(*given, **attrs)
        if isinstance(computed, DType) and computed.category not in categories:
            raise computed.refused(name, remedy)
        shape = given[0].shape if len(given) == 1 else broadcast_shapes(name, *[t.shape for t in given])
        device = given[0].device if len(given) == 1 else common_device(name, *given)
        return type_of(returned, shape, device)

    def casts(*types: Type | None, **attrs: Any) -> tuple:
        computed = rule(*[t for t in types if t is not None], **attrs)[0]
        return computed if isinstance(computed, tuple) else (computed,) * len(types)

    if isinstance(body, str):
        word, body = body, lambda *scalars: scalar.op(word, *scalars)
    more: dict[str, Any] = {"grad": grad}
    if grad == "derived":
        parts = [derived(body, i) for i in range(len(operands))]

        def vjp(saved: tuple, cotangents: tuple, attrs: dict, needs: tuple) -> tuple:
            pairs = zip(parts, needs, strict=True)
            return tuple(part(cotangents[0], saved, attrs) if need else None for part, need in pairs)

        more = {"vjp": vjp, "saves": operands}
    samples = unary_samples() if len(operands) == 1 else binary_samples()
    return define(
        name,
        operands=operands,
        attrs=attrs,
        reference=reference or body,
        infer=infer,
        casts=casts,
        dtypes=dtypes,
        complex=complex,
        lower=lower or lowering.pointwise(body),
        traits=Traits(
            elementwise=True,
            commutative=commutative,
            inplace=inplace,
            movement=movement,
            refuses=refuses,
            storage=storage,
            compares=result == "bool" and len(operands) == 2,
        ),  # fmt: skip
        **({"samples": samples} | more | record),
    )
