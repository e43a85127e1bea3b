"""Make floats of the halves that convolutions multiply, before they do, where no instruction takes pairs.

    %y: bf16[1,64,28,28] = conv2d(%x: bf16[1,64,28,28], %w: bf16[64,64,3,3])
    ->
    %a: f32[1,64,28,28] = widen(%x)
    %b: f32[64,64,3,3] = widen(%w)
    %y: bf16[1,64,28,28] = conv2d(%a, %b)

Each element is read for every tap and block of channels, and widened as often; and layouts, Winograd's sums
among them, are chosen for floats.  64 channels of 28 x 28, 3 x 3: 0.25 ms in place of 1.5 (EPYC "Zen 4" by
AVX2, one thread, 2026-11-30).
"""

from __future__ import annotations

from ...ir.kernel.form import Buffer, Kernel
from ...ir.kernel.scalar import Cast, Expr, Read, read, walk
from ..kernels.blocking import fresh, squeezed
from ..kernels.product import product_of
from ..schedules.target import Target
from .product_calls import cast_call, rewritten
from .program import Array, Call, Program, Step
from .side_by_side import HALVES


def widen_windows(program: Program, target: Target) -> Program:
    """The program whose sums over windows are of floats, but for pairs that a target multiplies."""
    steps: list[Step] = []
    made: dict[Array, Array] = {}
    left = ("f16",) if target.pairs or target.matrix else HALVES
    for step in program.steps:
        if isinstance(step, Call) and step.how is None:
            step = _widened(step, left, made, steps)
        steps.append(step)
    return program.replace(steps=tuple(steps)) if made else program


def _widened(call: Call, dtypes: tuple[str, ...], made: dict[Array, Array], steps: list[Step]) -> Call:
    found = product_of(call.kernel)
    if found is None or not _has_windows(call.kernel):
        return call
    arrays = dict(zip((b.name for b in call.kernel.inputs), call.inputs, strict=True))
    exprs, given = dict[Expr, Expr](), dict[Buffer, Array]()
    for factor in walk(found.stage.value):
        match factor:
            case Cast(dtype, Read() as access, False) if dtype == "f32" and access.buffer in arrays:
                old = arrays[access.buffer]
            case _:
                continue
        if old.dtype not in dtypes:
            continue
        if old not in made:
            steps.append(cast_call("widen", old, "f32"))
            (made[old],) = steps[-1].outputs
        taken = next((b for b, a in given.items() if a is made[old]), None)
        if taken is None:
            taken = Buffer(fresh(call.kernel, f"{access.buffer}_wide"), "f32", made[old].shape)
            given[taken] = made[old]
        exprs[factor] = read(taken.name, access.index, None if access.other is None else access.other.value)
    return rewritten(call, exprs, given) if given else call


def _has_windows(kernel: Kernel) -> bool:
    """Whether a product is a convolution or the gradient of one, of more than one tap: others are products of
    matrices."""
    found = product_of(squeezed(kernel))
    if found is None:
        return False
    convolution = found.widened_convolution
    return found.widened is not None or (convolution is not None and not convolution.is_pointwise)
