"""A kernel to Triton source whose name is made from its content, so that equal kernels are compiled once."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence

from ...ir.kernel.form import Kernel
from ..kernels.collapse import canonical, collapsed
from ..kernels.proof import prove
from ..kernels.residues import apart
from ..schedules.gpu import Descriptors, Dot, Persistent
from ..schedules.steps import Schedule, is_default
from .code import Code, step_of
from .defaults import SQUARE, default_schedule
from .emit import lower
from .names import entry
from .opening import Numbers, Open, opened, width
from .programs import NARROW
from .schedule import check_bound, dotted, grid, num_stages, num_warps, points, precision
from .target import ANY, Target

POINTERS = {"f64": "*fp64", "f32": "*fp32", "f16": "*fp16", "bf16": "*bf16", "bool": "*i1"}
POINTERS |= {dtype: f"*{dtype}" for dtype in ("i64", "i32", "i16", "i8", "u64", "u32", "u8")}
_UNNAMED = "kernel"  # the function while its text is hashed
# Sizes of which it is told which are aligned, beside those of products: each pattern of them is a code, and
# of many (the lengths of what is joined, and where each goes) hardly two calls would have the same.
FEW = 6


def generate(
    kernel: Kernel,
    schedule: Schedule | None = None,
    aligned: Sequence[bool] | None = None,
    target: Target = ANY,
) -> Code:
    """The code of a bound kernel; equal kernels have equal code, whatever their names say.

    schedule: of this very kernel, rewritten as it says.  By default, or where it says a precision alone, one
    is chosen for `target`, after axes that are contiguous together became one, so that kernels that differ in
    how many dims they have are one text.  aligned: as `Code` has it; all buffers are by default.  Raises
    KernelError for a kernel that Triton source can't say, and a schedule that does not fit.
    """
    check_bound(kernel)
    return _generate(prove(kernel.replace(name=_UNNAMED)), schedule, aligned, target)


def apart_codes(
    kernel: Kernel,
    schedule: Schedule | None = None,
    aligned: Sequence[bool] | None = None,
    target: Target = ANY,
    opens: Open = Open.NOTHING,
) -> list[Code]:
    """The codes that are launched one after another in place of a kernel, as `generate` makes one.

    An input gradient with strides is one for each remainder of the places: of the taps of a 3 x 3 window with
    stride 2 each place has a quarter, and a kernel of all places multiplies the others by zeros.

    opens: which numbers are to be parameters, so that kernels that differ in these alone are one text.
    """
    check_bound(kernel)
    proven = prove(kernel.replace(name=_UNNAMED))
    kernels = apart(proven) if is_default(schedule) else [proven]
    return [_generate(part, schedule, aligned, target, opens) for part in kernels]


def _generate(
    kernel: Kernel,
    schedule: Schedule | None,
    aligned: Sequence[bool] | None,
    target: Target,
    opens: Open = Open.NOTHING,
) -> Code:
    if is_default(schedule):
        kernel = canonical(collapsed(kernel))
        schedule = default_schedule(kernel, target, precision(schedule))
        # descriptors are of arrays that begin where they may, and of numbers that are known
        if opens is Open.SIZES or aligned is not None and not all(aligned):
            schedule = without_descriptors(schedule)
    assert schedule is not None
    return written(schedule.applied(kernel), schedule, aligned, opens)


def without_descriptors(schedule: Schedule) -> Schedule:
    return Schedule(*(step for step in schedule.steps if not isinstance(step, (Descriptors, Persistent))))


def programs_of(kernel: Kernel, target: Target = ANY) -> int:
    """How many programs a launch has of what `generate` makes of a kernel: of a product by tiles of the usual
    size, which are made smaller where that leaves cores without one.
    """
    kernel = canonical(collapsed(kernel))
    schedule = default_schedule(kernel, target)
    roles = dotted(kernel, schedule)
    if roles is None:
        return grid(kernel, schedule)
    sides = (-(-points(kernel, axes) // size) for axes, size in zip((roles.m, roles.n), SQUARE, strict=True))
    return points(kernel, roles.batch) * math.prod(sides)


def written(
    kernel: Kernel, schedule: Schedule, aligned: Sequence[bool] | None = None,
    opens: Open = Open.NOTHING,
) -> Code:  # fmt: skip
    """The code of a kernel that is known to be sound, as it stands.  opens: as of `apart_codes`."""
    kernel = kernel.replace(name=_UNNAMED)
    dtypes = [buffer.dtype for buffer in kernel.buffers.values()]
    launched = num_warps(schedule), num_stages(schedule), grid(kernel, schedule)
    axes = opened(kernel, schedule) if opens is Open.BATCHES else {}
    spelled = Numbers(opens)
    text, kind = lower(kernel, schedule, axes, spelled), width(kernel, schedule)
    values = [*(int(kernel.extents[axis]) for axis in axes), *spelled.values.values()]
    numbers = [(value, kind if abs(value) < NARROW else "i64") for value in values]
    tells = schedule.has(Dot) or len(numbers) <= FEW
    return named(text, entry(kernel.name), dtypes, aligned, *launched, numbers=numbers, tells=tells)


def named(
    text: str, function: str, dtypes: Sequence[str], aligned: Sequence[bool] | None,
    warps: int, stages: int, programs: int, numbers: Sequence[tuple[int, str]] = (), tells: bool = True,
) -> Code:  # fmt: skip
    """The code of a module's text, whose last function of that name gets one made from all that decides the
    machine code.  dtypes: of its arguments; numbers: those behind them, with Triton's types; tells: whether
    it is told which of them are aligned.
    """
    before, _, after = text.rpartition(f"def {function}(")
    parameters = tuple(POINTERS[dtype] for dtype in dtypes)
    aligned = tuple(aligned) if aligned is not None else (True,) * len(parameters)
    parameters = (*parameters, *(kind for _, kind in numbers))
    step = step_of(parameters) if tells else math.inf
    aligned = (*aligned, *(n % step == 0 for n, _ in numbers))
    decisive = [before, after, *parameters, *aligned, warps, stages]
    name = "k" + hashlib.blake2b(json.dumps(decisive).encode(), digest_size=10).hexdigest()
    source = f"{before}def {name}({after}"
    return Code(name, source, parameters, aligned, warps, stages, programs, tuple([n for n, _ in numbers]))
