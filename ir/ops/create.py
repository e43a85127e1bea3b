"""New tensors: of given sizes (zeros, arange, eye …), and of the sizes of another (zeros_like …)."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from typing import Any

import numpy as np

from .. import lowering
from ..dims import Dim, maximum
from ..dtypes import DType, as_dtype, bool_, converted, default_dtype, dense, int64, of_scalar
from ..errors import ArgumentError, ArgumentValueError, DTypeError, ShapeError
from ..kernel import scalar
from ..op import Op, Traits, define
from ..sample import Operand, Sample, sample, unary_samples
from ..shapes import as_whole, sizes_of
from ..types import CPU, Device, Type, placed, type_of

Number = bool | int | float | complex


def _dtype(op: str, dtype: Any) -> DType:
    found = as_dtype(dtype)
    if found is None:
        raise ArgumentError(
            f"{op}: dtype must be a lamina dtype, not {dtype!r}", "lamina.float32, for example"
        )
    return found


def _device(device: Any) -> Device:
    return CPU if device is None else placed(device)


def _sizes(op: str, sizes: tuple) -> tuple:
    found = sizes_of(op, sizes)
    for n in found:
        if isinstance(n, int) and n < 0:
            raise ShapeError(f"{op}: a size must be greater or equal to 0: {list(found)}")
    return found


def _number(op: str, name: str, value: Any, also_complex: bool = False) -> Any:
    """A Python number, or a dimension.  NumPy's are taken as Python's."""
    if isinstance(value, Dim):
        return value
    kinds, codes = ((bool, int, float, complex), "buifc") if also_complex else ((bool, int, float), "buif")
    if isinstance(value, kinds):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in codes:
        return value.item()
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):  # a tensor, whose value is read
        if getattr(value, "requires_grad", False):
            raise ArgumentError(
                f"{op}: {name} must be a number; this is a tensor that asks for gradients, which a number "
                "has not",
                "take value.item() for its value alone, or value.expand(…) for a tensor with history",
            )
        return value.item()
    raise ArgumentError(f"{op}: {name} must be a number, not {type(value).__name__}")


def fits(op: str, value: Number, dtype: DType) -> None:
    """Raise ArgumentValueError for a number too large for an integer type; one below 0 wraps if unsigned."""
    if isinstance(value, complex) and not dtype.is_complex and dtype is not bool_:
        raise ArgumentValueError(f"{op}: {value} does not fit into {dtype.name}")
    if dtype.category == "int" and not isinstance(value, complex):
        limits = np.iinfo(dtype.numpy)
        if not min(limits.min, -limits.max) <= value <= limits.max:
            raise ArgumentValueError(f"{op}: {value} does not fit into {dtype.name}")


def _made(*, size: tuple, dtype: DType, device: Device, **_: Any) -> Type:
    return type_of(dtype, size, device)


def _filled(value: Number) -> Callable:
    """A kernel that stores one number everywhere."""

    def build(k: Any, *, size: tuple, dtype: DType, **_: Any) -> None:
        k.store(k.cast(value, dtype), at=k.parallel(*size))

    return build


def _size_samples(**more: Any) -> list[Sample]:
    return [sample(size=size, **more) for size in ((), (0,), (1,), (17,), (33,), (3, 17), (2, 0, 3))]


NO_OPERAND = dict.fromkeys(("transposed", "strided", "broadcast"), "has no operand")
CREATION: dict[str, Any] = {"traits": Traits(creation=True), "method": False, "inapplicable": NO_OPERAND}
ONE_DIMENSION = CREATION | {"inapplicable": NO_OPERAND | {"0-d": "its result has one dimension"}}


def _constant(name: str, value: Number, make: Callable, doc: str) -> Op:
    """Enter zeros, ones or empty."""

    def bind(
        *args: Any, size: Any = None, dtype: DType | None = None, device: Any = None
    ) -> tuple[tuple, dict]:
        if args and size is not None:
            raise ArgumentError(f"{name}(*size): the sizes are given twice, {args} and size={size}")
        sizes = _sizes(name, args if size is None else (tuple(size),))
        made = default_dtype() if dtype is None else _dtype(name, dtype)
        return (), {"size": sizes, "dtype": made, "device": _device(device)}

    return define(
        name,
        bind=bind,
        operands=(),
        attrs=("size", "dtype", "device"),
        infer=_made,
        reference=lambda *, size, dtype, device: make(size, dtype.numpy),
        lower=lowering.kernel(_filled(value)),
        samples=_size_samples,
        doc=doc,
        **CREATION,
    )


zeros = _constant("zeros", 0, np.zeros, "Make a tensor of zeros.  The dtype is the default one unless given.")
ones = _constant("ones", 1, np.ones, "Make a tensor of ones.  The dtype is the default one unless given.")
empty = _constant(
    "empty",
    0,
    np.zeros,
    "Make a tensor whose values don't matter.  They are zeros, so that runs can be repeated.",
)


def bind_full(size, fill_value, *, dtype=None, device=None):
    """Make a tensor filled with one number, whose kind decides the dtype unless it is given."""
    value = _number("full", "fill_value", fill_value, also_complex=True)
    sizes = _sizes("full", tuple(size) if isinstance(size, (tuple, list)) else (size,))
    whole = isinstance(value, Dim)
    made = _dtype("full", dtype) if dtype is not None else int64 if whole else of_scalar(value)
    fits("full", value, made)
    return (), {"size": sizes, "fill_value": value, "dtype": made, "device": _device(device)}


def build_full(k, *, size, fill_value, dtype, device):
    k.store(k.cast(fill_value, dtype), at=k.parallel(*size))


full = define(
    "full",
    bind=bind_full,
    infer=_made,
    reference=lambda *, size, fill_value, dtype, device: _fill(np.empty(size, dtype.numpy), fill_value),
    lower=lowering.kernel(build_full),
    samples=lambda: [
        *_size_samples(fill_value=2.5),
        sample(size=(3,), fill_value=7),
        sample(size=(2,), fill_value=True),
    ],
    **CREATION,
)


def _fill(out: np.ndarray, value: Number) -> np.ndarray:
    # Through an array of the number's own type: an int too large for the dtype wraps, as a cast does
    out[...] = converted(np.asarray(value), out.dtype)
    return out


def bind_arange(start=None, end=None, step=1, *, dtype=None, device=None):
    """Make the numbers start, start + step, … below end; `arange(end)` starts at 0.

    Shapes: [ceil((end - start) / step)].  int64 if all three are ints, else the default float.  Values are
    start + i * step in float64, rounded once.

    Raises ArgumentValueError for a step of 0 or one that leads away from `end`.
    """
    if end is None:
        start, end = 0, start
    if end is None:
        raise ArgumentError("arange() missing 1 required positional argument: 'end'")
    start = 0 if start is None else start
    start, end, step = (_number("arange", n, v) for n, v in (("start", start), ("end", end), ("step", step)))
    if step == 0:
        raise ArgumentValueError("arange: step must not be 0")
    if not all(isinstance(v, Dim) or -inf < v < inf for v in (start, end)):  # NaN is in no range
        raise ArgumentValueError(f"arange: unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise ArgumentValueError(f"arange: a step of {step} does not lead from {start} to {end}")
    whole = all(isinstance(v, (int, Dim)) for v in (start, end, step))
    if dtype is None:
        dtype = of_scalar(0) if whole else default_dtype()
    else:
        dtype = _dtype("arange", dtype)
    if dtype.category in ("bool", "complex") or dtype.storage:
        raise DTypeError(f"arange: does not make {dtype.name}")
    if dtype.category == "int":
        start, end, step = (v if isinstance(v, Dim) else int(v) for v in (start, end, step))
        if step == 0:
            raise ArgumentValueError(f"arange: the step is 0 as {dtype.name}")
        size = maximum((end - start + step - 1) // step if step > 0 else (start - end - step - 1) // -step, 0)
    else:
        size = ceil((end - start) / step)
    attrs = {"start": start, "step": step, "size": (size,), "dtype": dtype, "device": _device(device)}
    return (), attrs


def reference_arange(*, start, step, size, dtype, device):
    count = np.arange(size[0])
    if dtype.category == "int":
        return (start + step * count).astype(dtype.numpy)
    return (start + step * count.astype(np.float64)).astype(dtype.numpy)


def build_arange(k, *, start, step, size, dtype, device):
    (i,) = axes = k.parallel(*size)
    count = k.coordinate(i)
    if dtype.category == "float":
        count = k.cast(count, "f64")
    k.store(k.cast(start + step * count, dtype), at=axes)


arange = define(
    "arange",
    bind=bind_arange,
    infer=_made,
    reference=reference_arange,
    lower=lowering.kernel(build_arange),
    samples=lambda: [
        sample(0), sample(1), sample(17), sample(33), sample(2, 20, 3), sample(5, -5, -2), sample(0, 1, 0.1),
        sample(0.5, 3.0, 0.25),
    ],
    **ONE_DIMENSION,
)  # fmt: skip


def bind_linspace(start, end, steps, *, dtype=None, device=None):
    """Make `steps` numbers spaced evenly from start to end, both included.  Shapes: [steps].

    Counted from the nearer end, in float64 or complex128, rounded once.  Raises DTypeError where an end is
    complex and the dtype is not.
    """
    return (), _spaced("linspace", start, end, steps, dtype, device)


def bind_logspace(start, end, steps, base=10.0, *, dtype=None, device=None):
    """Make base ** linspace(start, end, steps).  Shapes: [steps]."""
    base = _number("logspace", "base", base)
    return (), _spaced("logspace", start, end, steps, dtype, device) | {"base": float(base)}


def _spaced(op: str, start: Any, end: Any, steps: Any, dtype: DType | None, device: Any) -> dict[str, Any]:
    count = as_whole(steps)
    if count is None or count < 0:
        raise ArgumentValueError(f"{op}: steps must be an int and not negative, not {steps!r}")
    if dtype is not None and _dtype(op, dtype).category == "bool":
        raise DTypeError(f"{op}: does not make bool")
    start, end = (x.detach() if hasattr(x, "detach") else x for x in (start, end))
    ends = [_number(op, "start", start, also_complex=True), _number(op, "end", end, also_complex=True)]
    kind, inferred = float, default_dtype()
    if any(isinstance(x, complex) for x in ends):
        kind, inferred = complex, inferred.to_complex()
        if dtype is not None and not dtype.is_complex:
            raise DTypeError(
                f"torch.{op}(): inferred dtype {inferred.scalar_type} can't be safely cast to passed dtype "
                f"{dtype.scalar_type}: an end is complex",
                "pass its parts, x.real and x.imag, one by one",
            )
    elif dtype is not None and dtype.category == "int" and all(-(2**63) < x < 2**63 for x in ends):
        ends = [int(x) for x in ends]  # in the dtype first, as PyTorch has it
    return {
        "start": kind(ends[0]),
        "end": kind(ends[1]),
        "size": (count,),
        "dtype": inferred if dtype is None else dtype,
        "device": _device(device),
    }


def _points(start: complex, end: complex, count: int) -> np.ndarray:
    step = (end - start) / (count - 1) if count > 1 else 0.0
    i = np.arange(count)
    return np.where(i < max(count // 2, 1), start + step * i, end - step * (count - 1 - i))


def _point(k: Any, i: Any, start: float, end: float, count: int) -> Any:
    """`_points`, as an expression of the axis."""
    step = (end - start) / (count - 1) if count > 1 else 0.0
    place = k.coordinate(i)
    before, after = k.cast(place, "f64") * step + start, end - k.cast(count - 1 - place, "f64") * step
    return scalar.op("select", place < max(count // 2, 1), before, after)


def build_linspace(k, *, start, end, size, dtype, device):
    (i,) = axes = k.parallel(*size)
    k.store(k.cast(_point(k, i, start, end, *size), dtype), at=axes)


def build_logspace(k, *, start, end, size, base, dtype, device):
    (i,) = axes = k.parallel(*size)
    k.store(k.cast(scalar.op("pow", base, _point(k, i, start, end, *size)), dtype), at=axes)


linspace = define(
    "linspace",
    bind=bind_linspace,
    infer=_made,
    reference=lambda *, start, end, size, dtype, device: _points(start, end, *size).astype(dtype.numpy),
    lower=lowering.kernel(build_linspace),
    samples=lambda: [sample(-1.0, 1.0, n) for n in (0, 1, 2, 17, 33)] + [sample(5, -5, 11)],
    **ONE_DIMENSION,
)

logspace = define(
    "logspace",
    bind=bind_logspace,
    infer=_made,
    reference=lambda *, start, end, size, base, dtype, device: np.power(
        base, _points(start, end, *size)
    ).astype(dtype.numpy),
    lower=lowering.kernel(build_logspace),
    samples=lambda: [sample(-1.0, 1.0, n) for n in (0, 1, 17, 33)] + [sample(0, 4, 5, base=2.0)],
    **ONE_DIMENSION,
)


def bind_eye(n, m=None, *, dtype=None, device=None):
    """Make the identity matrix, or the first `m` columns of it, continued by zeros.  Shapes: [n, m or n]."""
    size = _sizes("eye", (n, n if m is None else m))
    made = default_dtype() if dtype is None else _dtype("eye", dtype)
    return (), {"size": size, "dtype": made, "device": _device(device)}


def build_eye(k, *, size, dtype, device):
    i, j = axes = k.parallel(*size)
    k.store(k.cast(scalar.op("eq", k.coordinate(i), k.coordinate(j)), dtype), at=axes)


eye = define(
    "eye",
    bind=bind_eye,
    infer=_made,
    reference=lambda *, size, dtype, device: np.eye(*size, dtype=dtype.numpy),
    lower=lowering.kernel(build_eye),
    samples=lambda: [sample(0), sample(1), sample(17), sample(33, 3), sample(3, 5)],
    **CREATION | {"inapplicable": NO_OPERAND | {"0-d": "its result has two dimensions"}},
)


# --- of the sizes of another --------------------------------------------------------------------------------

LIKE = Traits(elementwise=True, movement=True)


def _like_attrs(op: str, dtype: Any, device: Any) -> dict[str, Any]:
    return {
        "dtype": None if dtype is None else _dtype(op, dtype),
        "device": None if device is None else placed(device),
    }


def _like_type(
    input: Type, size: tuple, dtype: DType | None, device: Device | None, name: str = "", value: Number = 0
) -> Type:
    """The dtype and device of the input where none are given.  Raises ArgumentValueError."""
    made = dtype or input.dtype
    fits(name, value, made)
    return type_of(made, size, device or input.device)


def _plain(input: np.ndarray) -> np.ndarray:
    """What has the sizes of an array and the strides of its copy; it may be without values: none is read."""
    return dense(input.view(np.ndarray))


def _like(name: str, value: Number) -> Op:
    """Enter zeros_like, ones_like or empty_like."""
    make, make_like = (np.ones, np.ones_like) if value else (np.zeros, np.zeros_like)

    def quick(types: tuple, attrs: dict) -> Callable:
        dtype = (attrs["dtype"] or types[0].dtype).numpy
        return lambda x: make(x.shape, dtype) if x.flags.c_contiguous else make_like(_plain(x), dtype)

    def bind(input: Any, *, dtype: DType | None = None, device: Any = None) -> tuple[tuple, dict]:
        return (input,), _like_attrs(name, dtype, device)

    return define(
        name,
        complex="analytic",
        operands=("input",),
        attrs=("dtype", "device"),
        bind=bind,
        infer=lambda input, *, dtype, device: _like_type(input, input.shape, dtype, device),
        reference=lambda input, *, dtype, device: make_like(
            _plain(input), dtype.numpy if dtype else input.dtype
        ),
        quick=quick,
        lower=lowering.pointwise(lambda input, *, dtype, device: value),
        traits=LIKE,
        method=False,
        samples=lambda: [*unary_samples()(), sample((2, 3), dtype=int64)],
        doc=f"Make a tensor of the input's shape, filled with {value}, of its dtype and device by default.",
    )


zeros_like = _like("zeros_like", 0)
ones_like = _like("ones_like", 1)
empty_like = _like("empty_like", 0)


def bind_full_like(input, fill_value, *, dtype=None, device=None):
    """Make a tensor of the input's shape, filled with one number, of its dtype and device by default.

    Raises ArgumentValueError for a number that does not fit the dtype.
    """
    value = _number("full_like", "fill_value", fill_value, also_complex=True)
    return (input,), {"fill_value": value} | _like_attrs("full_like", dtype, device)


full_like = define(
    "full_like",
    complex="analytic",
    bind=bind_full_like,
    infer=lambda input, *, fill_value, dtype, device: _like_type(
        input, input.shape, dtype, device, "full_like", fill_value
    ),
    reference=lambda input, *, fill_value, dtype, device: _fill(
        np.empty_like(_plain(input), dtype.numpy if dtype else input.dtype), fill_value
    ),
    lower=lowering.pointwise(lambda input, *, fill_value, dtype, device: fill_value),
    traits=LIKE,
    method=False,
    samples=lambda: [
        *(sample(s.args[0], fill_value=2) for s in unary_samples()()),
        sample((3,), fill_value=True),
    ],
)


def _new_samples(*more: Any) -> list[Sample]:
    return [Sample((Operand(shape), [4, 2], *more)) for shape in ((), (0,), (1,), (17,), (33,), (2, 3))]


def _new(name: str, value: Number, make: Callable) -> Op:
    """Enter new_zeros, new_ones or new_empty."""

    def bind(
        input: Any, *sizes: Any, size: Any = None, dtype: DType | None = None, device: Any = None
    ) -> tuple[tuple, dict]:
        return (input,), {"size": _sizes(name, sizes if size is None else (size,))} | _like_attrs(
            name, dtype, device
        )

    return define(
        name,
        complex="analytic",
        operands=("input",),
        attrs=("size", "dtype", "device"),
        bind=bind,
        infer=lambda input, *, size, dtype, device: _like_type(input, size, dtype, device),
        reference=lambda input, *, size, dtype, device: make(size, dtype.numpy if dtype else input.dtype),
        lower=lowering.kernel(lambda k, input, *, size, **_: k.store(value, at=k.parallel(*size))),
        traits=Traits(movement=True),
        samples=_new_samples,
        doc=f"Make a tensor of the given size, of {value}, with the input's dtype and device by default.",
    )


new_zeros = _new("new_zeros", 0, np.zeros)
new_ones = _new("new_ones", 1, np.ones)
new_empty = _new("new_empty", 0, np.zeros)


def bind_new_full(input, size, fill_value, *, dtype=None, device=None):
    """Make a tensor of the given size, filled with one number, with the input's dtype and device by default.

    Raises ShapeError for negative sizes, ArgumentValueError for a number that does not fit the dtype.
    """
    sizes = _sizes("new_full", tuple(size) if isinstance(size, (tuple, list)) else (size,))
    value = _number("new_full", "fill_value", fill_value, also_complex=True)
    return (input,), {"size": sizes, "fill_value": value} | _like_attrs("new_full", dtype, device)


new_full = define(
    "new_full",
    complex="analytic",
    bind=bind_new_full,
    infer=lambda input, *, size, fill_value, dtype, device: _like_type(
        input, size, dtype, device, "new_full", fill_value
    ),
    reference=lambda input, *, size, fill_value, dtype, device: _fill(
        np.empty(size, dtype.numpy if dtype else input.dtype), fill_value
    ),
    lower=lowering.kernel(
        lambda k, input, *, size, fill_value, **_: k.store(fill_value, at=k.parallel(*size))
    ),
    traits=Traits(movement=True),
    samples=lambda: _new_samples(3),
)
