"""Random tensors: each function takes a stretch of a generator's counters and runs a pure op on it."""

from __future__ import annotations

import builtins
import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from ml_dtypes import finfo

from ..ir import dtypes
from ..ir.dims import Dim
from ..ir.dtypes import DType
from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError
from ..ir.graph import Value
from ..ir.op import REGISTRY
from ..ir.ops.random import draws
from ..ir.shapes import sizes_of
from ..ir.types import CPU, INT, Device
from . import modes
from .batched import drawn
from .conversion import wanted_device
from .creation import as_tensor
from .dispatch import bound, known_plan, run, run_general
from .generator import (
    SOMEWHERE,
    Generator,
    default_generator,
    fork_rng,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
    source,
)
from .inplace import write
from .keys import is_constant, spelled
from .levels import has_values
from .meta import META
from .modes import CHANGED
from .plan import Plan, memo, remember
from .refusal import refusing
from .tensor import Tensor, wrap


def draw(
    name: str, *args: Any, generator: Generator | None = None, operand: Any = None, **kwargs: Any
) -> Any:
    """Run a random op with a fresh state operand; `operand`: the tensor, or tensors, before the state.

    Of complex numbers both parts are drawn; those of normal ones have a variance of 1/2 each.
    """
    if modes.CHANGED and modes.local.values is not None:
        return modes.local.values.draw(name, args, source(generator, name), operand, kwargs)
    key = None
    if not modes.CHANGED and (operand is None or type(operand) is Tensor):
        try:
            key = (
                name,
                None if operand is None else operand._meta,
                *map(spelled, args),
                *kwargs,
                *map(spelled, kwargs.values()),
            )
            known = _plans.get(key)
        except (TypeError, RecursionError):  # what has no hash, or is no argument at all
            key = known = None
        if known is not None:
            plan, count = known
            state = source(generator, name).reserve(count)
            return run(plan.op, plan, (state,) if operand is None else (operand, state))
    dtype = dtypes.as_dtype(kwargs.get("dtype"))
    if dtype is not None and dtype.is_complex and name in ("random_uniform", "random_normal"):
        (size,) = args
        pairs = draw(name, (*size, 2), dtype=dtype.to_real(), generator=generator)
        numbers = REGISTRY["view_as_complex"](pairs)
        return numbers * 0.5**0.5 if name == "random_normal" else numbers  # of variance 1
    op = REGISTRY[name]
    chosen = source(generator, name)
    before = () if operand is None else operand if isinstance(operand, tuple) else (operand,)
    somewhere = chosen.reserve(0) if modes.CHANGED else SOMEWHERE
    operands, attrs = bound(op, (*before, somewhere, *args), kwargs)
    if modes.CHANGED and modes.local.levels:
        found = drawn(name, operands[: len(before)], attrs, chosen.reserve)
        if found is not NotImplemented:
            return found
    count = draws(op, *(x._meta for x in operands), **attrs)
    if key is not None and is_constant((*args, *kwargs.values())):
        remember(_plans, key, (known_plan(op, operands, attrs), count))
    return run_general(op, (*before, chosen.reserve(count)), attrs)


_plans: dict[tuple, tuple[Plan, int]] = memo()


def _finish(made: Tensor, requires_grad: bool, place: Device = CPU) -> Tensor:
    if place is not CPU:
        made = made.to(place)
    return made.requires_grad_() if requires_grad else made


def _sizes(name: str, size: tuple, given: Any) -> tuple:
    found = sizes_of(name, size if given is None else (given,))
    if builtins.any(n < 0 for n in found):
        raise ArgumentValueError(f"{name}: a size can't be negative: {list(found)}")
    return found


def _place(device: Any, layout: Any) -> Device:
    """Where the numbers are to be."""
    place = wanted_device(device)
    if layout not in (None, "strided"):
        raise ArgumentError(f"layout {layout!r} is not supported")
    return place


def _nowhere(size: tuple, dtype: DType | None, requires_grad: bool) -> Tensor:
    attrs = _EMPTY(size, dtype=dtype, device=META)[1]
    return _finish(run_general(REGISTRY["empty"], (), attrs), requires_grad)


_EMPTY = REGISTRY["empty"].bind


def _drawn(
    name: str, shape: Any, generator: Any, dtype: Any, device: Any, requires_grad: Any, layout: Any
) -> Tensor:
    """Numbers of a distribution, or nothing on the meta device."""
    if (place := _place(device, layout)) is META:
        return _nowhere(shape, dtype, requires_grad)
    return _finish(draw(name, shape, dtype=dtype, generator=generator), requires_grad, place)


def _by_sizes(kind: str, name: str, sizes: tuple) -> Tensor:
    """Numbers of the default dtype and generator, asked for by sizes alone."""
    whole = INT.issuperset(map(type, sizes))
    if whole and (known := _plans.get((kind, sizes))) is not None:
        plan, count = known
        return wrap(plan.kernel(default_generator.taken(count)), plan.out)
    shape = _sizes(name, sizes, None)
    made = _drawn(kind, shape, None, None, None, False, None)
    if whole and (known := _plans.get((kind, None, spelled(shape), "dtype", None))) is not None:
        remember(_plans, (kind, sizes), known)
    return made


def rand(
    *sizes,
    size=None,
    generator=None,
    dtype=None,
    device=None,
    requires_grad=False,
    layout=None,
    pin_memory=False,
) -> Tensor:
    """Numbers drawn uniformly from [0, 1).  Shapes: rand(2, 3) and rand((2, 3)) are [2, 3]."""
    if size is generator is dtype is device is layout is None and requires_grad is False and not CHANGED:
        return _by_sizes("random_uniform", "rand", sizes)
    shape = _sizes("rand", sizes, size)
    return _drawn("random_uniform", shape, generator, dtype, device, requires_grad, layout)


def randn(
    *sizes,
    size=None,
    generator=None,
    dtype=None,
    device=None,
    requires_grad=False,
    layout=None,
    pin_memory=False,
) -> Tensor:
    """Numbers from the standard normal distribution.  Shapes: randn(2, 3) and randn((2, 3)) are [2, 3]."""
    if size is generator is dtype is device is layout is None and requires_grad is False and not CHANGED:
        return _by_sizes("random_normal", "randn", sizes)
    shape = _sizes("randn", sizes, size)
    return _drawn("random_normal", shape, generator, dtype, device, requires_grad, layout)


def _whole(name: str, value: Any) -> Any:
    """A bound or a size.  Raises ArgumentError for what is no integer."""
    if isinstance(value, Dim):
        return value
    if isinstance(value, float) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{name} must be an int, not {type(value).__name__}")
    return value.__index__()


def _check_bounds(name: str, low: int, high: int, dtype: DType) -> None:
    """Refuse bounds that the dtype can't hold: the numbers would not be uniform."""
    if dtype is dtypes.int64 and (isinstance(low, Dim) or isinstance(high, Dim)):
        return  # a size is one
    if not dtype.is_floating_point and low < high:
        limits = np.iinfo(dtype.numpy) if dtype is not dtypes.bool_ else None
        least, most = (limits.min, limits.max) if limits else (0, 1)
        if low < least or high - 1 > most:
            which = "from" if not least <= low <= most else "to - 1"
            raise ArgumentValueError(
                f"{name}: {which} is out of bounds for {dtype}, which can't hold all of {low} … {high - 1}"
            )


def randint(
    low=0,
    high=None,
    size=None,
    *,
    generator=None,
    dtype=None,
    device=None,
    requires_grad=False,
    layout=None,
    pin_memory=False,
) -> Tensor:
    """Integers drawn uniformly from low ... high - 1; randint(high, size) starts at 0."""
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    place = _place(device, layout)
    if size is None or isinstance(size, int):
        raise ArgumentError("randint(low=0, high, size): size must be a tuple of ints")
    dtype = dtype or dtypes.int64
    low, high = _whole("randint: low", low), _whole("randint: high", high)
    _check_bounds("randint", low, high, dtype)
    if place is META:
        return _nowhere(tuple(size), dtype, requires_grad)
    whole = dtypes.int64 if dtype.is_floating_point else dtype
    made = draw("random_integers", low, high, tuple(size), dtype=whole, generator=generator)
    return _finish(made.to(dtype), requires_grad, place)


def randperm(
    n, *, generator=None, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False
) -> Tensor:
    """A random permutation of 0 ... n - 1."""
    n, place = _whole("randperm: n", n), _place(device, layout)
    if place is META:
        return _nowhere((n,), dtype or dtypes.int64, requires_grad)
    made = draw("random_permutation", n, dtype=dtype, generator=generator)
    return _finish(made, requires_grad, place)


def _as(
    input: Tensor, dtype: Any, device: Any, generator: Any, requires_grad: bool, layout: Any
) -> dict[str, Any]:
    """The arguments of a factory for what is to be as `input`, but for those that are given."""
    return {
        "dtype": dtype or input.dtype, "device": device or input.device, "generator": generator,
        "requires_grad": requires_grad, "layout": layout,
    }  # fmt: skip


def rand_like(
    input: Tensor, *, dtype=None, device=None, generator=None, requires_grad=False, layout=None,
    pin_memory=False, memory_format=None,
) -> Tensor:  # fmt: skip
    """`rand` with the shape and dtype of `input`."""
    return rand(tuple(input.shape), **_as(input, dtype, device, generator, requires_grad, layout))


def randn_like(
    input: Tensor, *, dtype=None, device=None, generator=None, requires_grad=False, layout=None,
    pin_memory=False, memory_format=None,
) -> Tensor:  # fmt: skip
    """`randn` with the shape and dtype of `input`."""
    return randn(tuple(input.shape), **_as(input, dtype, device, generator, requires_grad, layout))


def randint_like(
    input: Tensor, low=0, high=None, *, dtype=None, device=None, generator=None, requires_grad=False,
    layout=None, pin_memory=False, memory_format=None,
) -> Tensor:  # fmt: skip
    """`randint` with the shape and dtype of `input`."""
    low, high = (0, low) if high is None else (low, high)
    given = _as(input, dtype, device, generator, requires_grad, layout)
    return randint(low, high, tuple(input.shape), **given)


def normal(
    mean: Any, std: Any = 1.0, size: Any = None, *, generator=None, dtype=None, device=None, layout=None,
    pin_memory=False, requires_grad=False,
) -> Tensor:  # fmt: skip
    """Normal numbers of given mean and standard deviation: tensors, broadcast, or numbers with `size`.

    What is drawn does not follow them: their gradients are zeros, as of all draws but those of `rsample`.
    """
    several = isinstance(std, (Tensor, Value))
    if (has_values(std) and bool((std < 0).any())) if several else std < 0:
        what = "all elements of std >= 0.0" if several else f"std >= 0.0, but found std {std}"
        raise ArgumentValueError(f"normal expects {what}: a standard deviation can't be negative")
    if size is None:
        given = [x for x in (mean, std) if isinstance(x, (Tensor, Value))]
        if not given:
            raise ArgumentError("normal(mean, std, size): size is needed where mean and std are numbers")
        size, dtype = tuple((mean + std).shape), dtype or given[0].dtype
    followed: list[Tensor] = []
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        moved = modes.CHANGED and modes.local.levels  # forward mode
        followed = [x for x in (mean, std) if isinstance(x, Tensor) and (moved or x.requires_grad)]
        mean, std = (x.detach() if isinstance(x, Tensor) else x for x in (mean, std))
    drawn = randn(tuple(size), dtype=dtype, device=device, generator=generator, layout=layout) * std + mean
    for x in followed:  # nowhere
        drawn = REGISTRY["where"](drawn != drawn, x, drawn)
    return drawn.requires_grad_() if requires_grad else drawn


def bernoulli(input: Tensor, p: float | None = None, *, generator=None) -> Tensor:
    """Ones with the probabilities in `input` (or all with probability p), and zeros."""
    if not isinstance(input, Tensor):
        raise ArgumentError(f"bernoulli(input): takes a tensor of probabilities, not {type(input).__name__}")
    if p is not None:
        return _by_chance("bernoulli", input, p, generator).to(input.dtype)
    if has_values(input) and not bool(((input >= 0) & (input <= 1)).all()):
        raise ArgumentValueError("bernoulli: probabilities must lie in [0, 1]")
    return draw("random_bernoulli", generator=generator, operand=input)


def _by_chance(name: str, like: Tensor, p: Any, generator: Any) -> Tensor:
    """What is true, or 1, with probability p, a number or a tensor of them, in the shape of `like`."""
    if isinstance(p, Tensor):
        return bernoulli(REGISTRY["expand"](p, tuple(like.shape)), generator=generator)
    if not 0.0 <= p <= 1.0:
        raise ArgumentValueError(f"{name}: p must lie in [0, 1], not {p}")
    return draw("random_uniform", tuple(like.shape), dtype=dtypes.float64, generator=generator) < p


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator=None) -> Tensor:
    """Places of the last dimension, drawn in proportion to its weights.  Shapes: [m, n] -> int64[m, k]."""
    weights = input if isinstance(input, Value) else as_tensor(input)
    return draw("random_multinomial", num_samples, replacement, generator=generator, operand=weights)


def _floats(name: str, **operands: Any) -> tuple[Tensor, ...]:
    """The operands, if they are floating tensors.  Raises ArgumentError, DTypeError."""
    for said, x in operands.items():
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{name}: {said} must be a tensor, not {type(x).__name__}")
        _floating(x, name)
    return tuple(operands.values())


def poisson(input: Tensor, generator=None) -> Tensor:
    """Counts from Poisson distributions whose rates are `input`; its gradient is zero."""
    return draw("random_poisson", generator=generator, operand=_floats("poisson", input=input))


def binomial(count: Tensor, prob: Tensor, generator=None) -> Tensor:
    """How many of `count` trials succeed, each with the probability `prob`.  Shapes: broadcast."""
    return draw("random_binomial", generator=generator, operand=_floats("binomial", count=count, prob=prob))


def _standard_gamma(input: Tensor, generator=None) -> Tensor:
    """Draws from the gamma distribution of rate 1, differentiable by their concentrations `input`."""
    return draw("random_gamma", generator=generator, operand=_floats("_standard_gamma", input=input))


def _sample_dirichlet(input: Tensor, generator=None) -> Tensor:
    """Draws from Dirichlet distributions, differentiable by their concentrations.  Shapes: [..., n]."""
    return draw("random_dirichlet", generator=generator, operand=_floats("_sample_dirichlet", input=input))


def dropout(input: Tensor, p: float = 0.5, train: bool = True, *, generator=None) -> Tensor:
    """Zero elements with probability p and scale the others by 1 / (1 - p); in evaluation, `input` itself."""
    if not 0.0 <= p <= 1.0:
        raise ArgumentValueError(f"dropout: p must lie in [0, 1], not {p}")
    return draw("random_dropout", p, generator=generator, operand=input) if train and p else input


def dropout_by_words(input: Tensor, p: float, *, generator=None) -> Tensor:
    """`dropout` in ops to which p is an operand: the same draws, the same bits."""
    words = draw("random_words", tuple(input.shape), generator=generator)
    scale = 1.0 / (1.0 - p) if p < 1.0 else 0.0
    return REGISTRY["where"](words >= float(round(p * 4294967296.0)), input * scale, 0.0)


# ---- in place ----------------------------------------------------------------------------------------------
def _floating(self: Tensor, name: str) -> DType:
    if not self.dtype.is_floating_point and not (self.dtype.is_complex and name in ("normal_", "uniform_")):
        raise DTypeError(f"{name}: a floating tensor is needed", f"tensor: {self._meta}")
    return self.dtype


def _fill(self: Tensor, value: Tensor) -> Tensor:
    return write(REGISTRY["copy"], (self, value), {})


def _largest(dtype: DType) -> float:
    return float(finfo(dtype.to_real().numpy).max)


def uniform_(self: Tensor, from_: float = 0.0, to: float = 1.0, *, generator=None, **given: float) -> Tensor:
    """Fill with numbers drawn uniformly from [from, to)."""
    low = given.pop("from", from_)
    if given or low > to:
        raise ArgumentValueError(
            f"uniform_ expects to return a [from, to) range: from must not be greater than to ({low} > {to})"
        )
    dtype = _floating(self, "uniform_")
    if to - low > _largest(dtype):
        raise ArgumentValueError(f"uniform_ expects to-from to be a number of {dtype}, not {to} - {low}")
    least = low * (1 + 1j) if dtype.is_complex else low  # both parts lie between the bounds
    return _fill(
        self, draw("random_uniform", tuple(self.shape), dtype=dtype, generator=generator) * (to - low) + least
    )


def normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator=None) -> Tensor:
    """Fill with normal numbers."""
    if std < 0:
        raise ArgumentValueError(f"normal_: the standard deviation can't be negative: {std}")
    dtype = _floating(self, "normal_")
    return _fill(
        self, draw("random_normal", tuple(self.shape), dtype=dtype, generator=generator) * std + mean
    )


def exponential_(self: Tensor, lambd: float = 1.0, *, generator=None) -> Tensor:
    """Fill with exponential numbers of rate `lambd`."""
    if lambd <= 0:
        raise ArgumentValueError(f"exponential_: the rate must be greater than 0, not {lambd}")
    dtype = _floating(self, "exponential_")
    return _fill(
        self, draw("random_exponential", tuple(self.shape), dtype=dtype, generator=generator) / lambd
    )


def log_normal_(self: Tensor, mean: float = 1.0, std: float = 2.0, *, generator=None) -> Tensor:
    """Fill with numbers whose logarithms are normal."""
    if std <= 0:
        raise ArgumentValueError(f"log_normal_: the standard deviation must be greater than 0, not {std}")
    dtype = _floating(self, "log_normal_")
    made = draw("random_normal", tuple(self.shape), dtype=dtype, generator=generator)
    return _fill(self, REGISTRY["exp"](made * std + mean))


def cauchy_(self: Tensor, median: float = 0.0, sigma: float = 1.0, *, generator=None) -> Tensor:
    """Fill with Cauchy numbers about `median`."""
    if sigma <= 0:
        raise ArgumentValueError(f"cauchy_: sigma must be greater than 0, not {sigma}")
    dtype = _floating(self, "cauchy_")
    made = draw("random_uniform", tuple(self.shape), dtype=dtypes.float64, generator=generator)
    return _fill(self, (REGISTRY["tan"]((made - 0.5) * math.pi) * sigma + median).to(dtype))


def geometric_(self: Tensor, p: float, *, generator=None) -> Tensor:
    """Fill with the number of trials up to the first success, each of probability p: 1, 2, ..."""
    if not 0.0 < p < 1.0:
        raise ArgumentValueError(f"geometric_: p must lie between 0 and 1, not {p}")
    made = draw("random_exponential", tuple(self.shape), dtype=dtypes.float64, generator=generator)
    return _fill(self, REGISTRY["ceil"](made * (-1.0 / math.log1p(-p))).clamp(1.0).to(self.dtype))


def bernoulli_(self: Tensor, p: Any = 0.5, *, generator=None) -> Tensor:
    """Fill with ones with probability p (a number or a tensor of them), and zeros."""
    return _fill(self, _by_chance("bernoulli_", self, p, generator))


def random_(self: Tensor, *bounds: int | None, generator=None, **given: Any) -> Tensor:
    """Fill with integers drawn from [from, to); without `to`, up to what the dtype holds exactly.

    random_(to) starts at 0, random_(from, None) at `from`.  Raises ArgumentError, ArgumentValueError.
    """
    if len(bounds) > 2:
        raise ArgumentError(f"random_(from, to): takes two bounds, not {len(bounds)}")
    from_, to = (*bounds, None, None)[:2]
    open_end = len(bounds) == 2
    if "to" in given:
        to = given.pop("to")
    low = given.pop("from", from_)
    if given:
        raise ArgumentError(f"random_(from, to): unknown: {', '.join(given)}")
    if to is None and low is not None and not open_end:
        low, to = 0, low
    exact = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8, "bool": 1}
    name = self.dtype.name
    bits = exact.get(name, 8 * self.dtype.itemsize - self.dtype.is_signed)
    if to is None:
        to = (1 << bits) + (name in exact and name != "bool")
        to = min(to, (1 << 63) - 1)
    low, to = _whole("random_: from", low or 0), _whole("random_: to", to)
    if low >= to:
        raise ArgumentValueError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={to}"
        )
    _check_bounds("random_", low, to, self.dtype)
    if self.dtype.is_floating_point:
        for which, bound in (("from", low), ("to - 1", to - 1)):
            if abs(bound) > 1 << bits:
                warnings.warn(
                    f"random_: {which} is out of bounds [-(2^{bits}), ..., 2^{bits}]: {self.dtype} does not "
                    "hold every integer between",
                    UserWarning,
                    stacklevel=3,
                )
    return _fill(self, draw("random_integers", low, to, tuple(self.shape), generator=generator))


METHODS = {
    f.__name__: f
    for f in (
        uniform_, normal_, exponential_, log_normal_, cauchy_, geometric_, bernoulli_, random_, bernoulli,
        multinomial,
    )
}  # fmt: skip


def _where_values_are(method: Callable) -> Callable:
    """The method, which draws nothing for a tensor on the meta device."""

    @functools.wraps(method)
    def fill(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self if self.device == META else method(self, *args, **kwargs)

    return fill


for _name, _method in METHODS.items():
    setattr(Tensor, _name, refusing(_where_values_are(_method) if _name[-1] == "_" else _method))

FUNCTIONS = {
    f.__name__: refusing(f, takes_out=True, home=__package__)
    for f in (
        rand, randn, randint, randperm, rand_like, randn_like, randint_like, normal, bernoulli, multinomial,
        poisson, binomial, _standard_gamma, _sample_dirichlet, dropout, manual_seed, seed, initial_seed,
        get_rng_state, set_rng_state,
    )
}  # fmt: skip

__all__ = ["Generator", "default_generator", "fork_rng"]
__all__ += list(FUNCTIONS)
