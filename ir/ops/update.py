"""The optimizers' updates: one record for each rule, over all the tensors of a group at once.

Every record has one layout. Its operands are the rule's numbers, 0-d and in float64 (so that 1 - beta2
** step keeps its digits; beside f32 tensors the rule still computes in f32), then `*tensors`, in groups
of `count`: the gradients, the parameters, and one group for each state. All but the gradients are
written; the outputs of the functional form stand in the same order. What a rule can do without (weight
decay, momentum) is None where it is 0, and takes no part. `step` counts the updates of these parameters
from 1: an operand, so that the next step's trace is the same trace.

A rule is written once, with ops and operators: it is the reference, it is the decomposition that is
compiled, and eager runs it block by block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from .. import lowering
from ..dtypes import float64
from ..errors import ArgumentError, DTypeError, ShapeError
from ..op import Op, Traits, define
from ..sample import Operand, Sample
from ..types import Type
from .arithmetic import abs
from .cast import cast
from .extremes import maximum
from .powers import sqrt

# Elements of a block: the ten or so arrays that a rule touches then stay in the second-level cache.
BLOCK = 32_768
PLAIN = frozenset((int, float, bool, type(None)))  # of numbers that stay what they are


def update(
    name: str,
    rule: Callable,
    *,
    numbers: dict[str, float | None],
    flags: dict[str, Any] | None = None,
    states: tuple[str, ...],
    whole: bool = False,
    spread: Callable | None = None,
    wide: tuple[str, ...] = (),
    held: Callable[..., tuple[str, ...]] | None = None,
    quick: Callable[..., Callable | None] | None = None,
    samples: Callable[[], Iterable[Sample]] | None = None,
    inapplicable: dict[str, str] | None = None,
    doc: str,
) -> Op:
    """Enter an update rule.

    rule: (**numbers, **flags) -> step, where step(g, p, *states) -> (p, *states), for one tensor.
    numbers: the scalar operands with their defaults (None: required); a default of 0 makes one optional.
    flags: its booleans, counts and names with their defaults.  whole: the rule sees whole tensors, as it sums
    over them.  spread: (shape, **flags) -> the shapes of its states; without it, that of the parameter.
    wide: numbers that are float32 tensors of the optimizer's own, and are computed with in float64 in graphs
    too.  states: the names of the state lists; held: which of them there are, from the numbers that are None
    and the flags (all of them without it).
    quick: like `rule`, but its step writes the arrays itself, in fewer NumPy calls; its numbers are 0-d
    arrays of the tensors' dtype.  None where it does not know the numbers and flags.
    samples, inapplicable: its own, where those for all won't do.
    """
    flags = flags or {}
    optional = tuple(n for n, default in numbers.items() if default == 0)

    def bind(params, grads, *lists, **given):
        hashed = all([type(value).__hash__ is not None for value in given.values()])
        scalars, attrs, wanted = (bound if hashed else bound.__wrapped__)(tuple(given.items()))
        if len(lists) != len(wanted):
            raise ArgumentError(
                f"{name}: the states are {', '.join(wanted) or 'none'}, and {len(lists)} are given"
            )
        for what, tensors in zip(("grads", *wanted), (grads, *lists), strict=True):
            if len(tensors) != len(params):
                raise ArgumentError(f"{name}: there are {len(params)} params and {len(tensors)} {what}")
        tensors = chain(grads, params, *lists)
        return (*scalars, *tensors), {"count": len(params), **attrs}

    @lru_cache(64)  # an optimizer asks with the same numbers at each step
    def bound(items: tuple) -> tuple[tuple, dict[str, Any], tuple[str, ...]]:
        """The scalar operands, the flags and the names of the states, of the keyword arguments."""
        given = dict(items)
        if unknown := given.keys() - numbers.keys() - flags.keys():
            raise ArgumentError(f"{name}: unknown arguments {', '.join(sorted(unknown))}")
        scalars = []
        for number, default in numbers.items():
            value = given.get(number, default)
            if value is None and number not in optional:
                raise ArgumentError(f"{name}: {number} must be given")
            left_out = number in optional and isinstance(value, (int, float)) and value == 0
            scalars.append(None if left_out else value)
        attrs = {flag: type(default)(given.get(flag, default)) for flag, default in flags.items()}
        return tuple(scalars), attrs, held_states(scalars, attrs)

    def held_states(scalars, attrs) -> tuple[str, ...]:
        return held(**dict(zip(numbers, scalars, strict=True)), **attrs) if held else states

    def infer(*types: Type, count: int, **attrs: Any) -> tuple[Type, ...]:
        grads, rest = types[len(numbers) : len(numbers) + count], types[len(numbers) + count :]
        of_states = [spread(g.shape, **attrs) for g in grads] if spread else []
        for i, t in enumerate(rest):
            shape = grads[i % count].shape
            if of_states and i >= count:
                shape = of_states[i % count][i // count - 1]
            if t.shape != shape:
                raise ShapeError(
                    f"{name}: a gradient, what it updates and its states must fit "
                    f"(here {list(shape)}, not {list(t.shape)})"
                )
            if not t.dtype.is_floating_point:
                raise DTypeError(f"{name}: floating tensors are updated, not {t.dtype.name}")
        return rest

    def split(operands: tuple, count: int) -> tuple[list, list[tuple]]:
        """The numbers; and for each parameter its gradient, itself and its states."""
        scalars, tensors = operands[: len(numbers)], operands[len(numbers) :]
        groups = (tensors[i : i + count] for i in range(0, len(tensors), count or 1))
        return list(scalars), list(zip(*groups, strict=True))

    def decomposition(*operands, count, **attrs):
        scalars, each = split(operands, count)
        for i, number in enumerate(numbers):
            if number in wide and not isinstance(scalars[i], float):
                scalars[i] = cast(scalars[i], dtype=float64)
        step = rule(*scalars, **attrs)
        return tuple(new for group in zip(*(step(*one) for one in each), strict=True) for new in group)

    def reference(*operands, count, **attrs):
        scalars, tensors = map(plain, operands[: len(numbers)]), operands[len(numbers) :]
        return decomposition(*scalars, *tensors, count=count, **attrs)

    def writing(scalars: Sequence, attrs: dict[str, Any]) -> Callable:
        """What writes rows of arrays (gradient, parameter, states...) with these numbers and flags."""
        values = [plain(x) for x in scalars]
        step = rule(*values, **attrs)
        steps: dict[np.dtype, Callable | None] = {}  # the quick step, in each dtype that occurs

        def write_rows(rows: Iterable[tuple]) -> None:
            for row in rows:
                p = row[1]
                dtype = p.dtype
                fast: Any = steps.get(dtype, steps)
                if fast is steps:
                    fast = None
                    if quick is not None and dtype.kind == "f" and dtype.itemsize > 2:
                        fast = quick(dtype, *values, **attrs)
                    steps[dtype] = fast
                if whole:
                    one_block(step, row)
                elif fast is None:
                    in_blocks(step, *row)
                elif not p.ndim:  # 0-d results are no arrays
                    fast(*[x.reshape(1) for x in row])
                elif p.size <= BLOCK or not all(x.flags.c_contiguous for x in row):
                    fast(*row)
                else:
                    flat = [x.reshape(-1) for x in row]
                    for start in range(0, p.size, BLOCK):
                        fast(*[x[start : start + BLOCK] for x in flat])

        return write_rows

    @lru_cache(64)  # of numbers only: a tensor's value may change
    def known(items: tuple) -> Callable:
        scalars, attrs, _ = bound(items)
        return writing(scalars, attrs)

    def rows(items: tuple) -> Callable:
        if PLAIN.issuperset([type(value) for _, value in items]):
            return known(items)
        scalars, attrs, _ = bound(items)
        return writing(scalars, attrs)

    def write(*operands, count, **attrs):
        scalars, tensors = operands[: len(numbers)], operands[len(numbers) :]
        groups = (tensors[i : i + count] for i in range(0, len(tensors), count or 1))
        writing(scalars, attrs)(zip(*groups, strict=True))

    def own_samples():
        yield from samples() if samples else update_samples(numbers, flags, held_states)

    bind.__doc__ = doc
    return define(
        name,
        operands=(*numbers, "*tensors"),
        optional=optional,
        attrs=("count", *flags),
        outputs=("*updated",),
        bind=bind,
        infer=infer,
        reference=reference,
        write=write,
        rows=rows,
        lower=lowering.decomposition(decomposition),
        traits=Traits(mutates=("params", *states)),
        samples=own_samples,
        inapplicable={"broadcast": "a gradient has the shape of its parameter"} | (inapplicable or {}),
        dtypes="float",
        method=False,
    )


def plain(number: Any) -> float | None:
    """A 0-d array as a Python float, which computes in the precision of the tensors beside it."""
    return None if number is None else float(number)


def in_blocks(step: Callable, g: np.ndarray, p: np.ndarray, *states: np.ndarray) -> None:
    """Write step(g, p, *states) over p and the states, a block of elements at a time."""
    arrays = (g, p, *states)
    if p.size > BLOCK and all(x.flags.c_contiguous for x in arrays):
        flat = [x.reshape(-1) for x in arrays]
        for start in range(0, p.size, BLOCK):
            one_block(step, [x[start : start + BLOCK] for x in flat])
    else:
        one_block(step, arrays)


def one_block(step: Callable, arrays: Any) -> None:
    wide = arrays if arrays[1].dtype.itemsize > 2 else [x.astype(np.float32) for x in arrays]
    for x, new in zip(arrays[1:], step(*wide), strict=True):
        x[...] = new


def update_samples(numbers: dict, flags: dict, held_states: Callable) -> Any:
    """Samples with all that is optional left out, and with all of it, at each standard size."""
    for full in (False, True):
        given = {n: 0.25 if v is None else (0.5 if full and v == 0 else v) for n, v in numbers.items()}
        given |= dict.fromkeys(flags, full) | ({"step": 2} if "step" in numbers else {})
        present = [None if numbers[n] == 0 and v == 0 else v for n, v in given.items() if n in numbers]
        lists = len(held_states(present, dict.fromkeys(flags, full)))
        for shapes in ([(17,), (3, 4)], [(33,)]) if full else ([(), (1,)], [(0,), (2, 3)]):
            # a centred second moment is one: values above their own squares
            moments = [Operand(s, 0.6, 0.75) for s in shapes]
            yield Sample(tuple(tuple(moments) for _ in range(2 + lists)), given, differentiable=False)


def gradient(g: Any, p: Any, weight_decay: Any, maximize: bool) -> Any:
    """The direction of ascent: -g to maximise, with the gradient of weight_decay / 2 * p ** 2 added."""
    g = -g if maximize else g
    return g if weight_decay is None else g + weight_decay * p


def moved(mean: Any, new: Any, keep: Any) -> Any:
    """An exponential mean, moved towards `new`: keep * mean + (1 - keep) * new."""
    return mean + (new - mean) * (1 - keep)


# ---- the rules


def sgd(step, lr, weight_decay, momentum, dampening, *, nesterov, maximize):
    if momentum is None:
        return lambda g, p: (p - gradient(g, p, weight_decay, maximize) * lr,)
    # The first update takes the gradient as it is: the buffer starts as zeros, and dampening not at all.
    share = 1 if dampening is None else 1 - dampening * (step > 1)

    def one(g, p, buffer):
        g = gradient(g, p, weight_decay, maximize)
        buffer = buffer * momentum + g * share
        return p - (g + buffer * momentum if nesterov else buffer) * lr, buffer

    return one


def quick_sgd(dtype, step, lr, weight_decay, momentum, dampening, *, nesterov, maximize):
    if weight_decay is not None or nesterov or maximize or (dampening is not None and step > 1):
        return None
    rate = np.asarray(lr, dtype)  # a bare number costs NumPy more than the op
    if momentum is None:
        return lambda g, p: np.subtract(p, g * rate, p)
    keep = np.asarray(momentum, dtype)

    def one(g, p, buffer):
        np.multiply(buffer, keep, buffer)
        np.add(buffer, g, buffer)
        np.subtract(p, buffer * rate, p)

    return one


sgd_update = update(
    "sgd_update",
    sgd,
    numbers={"step": None, "lr": None, "weight_decay": 0, "momentum": 0, "dampening": 0},
    flags={"nesterov": False, "maximize": False},
    states=("momentum_buffers",),
    held=lambda momentum, **_: () if momentum is None else ("momentum_buffers",),
    quick=quick_sgd,
    doc="""Take a step of stochastic gradient descent.

    sgd_update(params, grads, [momentum_buffers], *, step, lr, weight_decay=0, momentum=0, dampening=0,
    nesterov=False, maximize=False); buffers start as zeros and are there where momentum is not 0.

        b <- momentum * b + (1 - dampening) * g      (at step 1: b <- g)
        p <- p - lr * (g + momentum * b if nesterov else b)
    Source: Sutskever et al., On the importance of initialization and momentum in deep learning, 2013.
    """,
)


def adam(step, lr, beta1, beta2, eps, weight_decay, *, amsgrad, decoupled, maximize):
    rate = lr / (1 - beta1**step)
    root = (1 - beta2**step) ** 0.5
    coupled = None if decoupled else weight_decay
    decay = 1 - lr * weight_decay if decoupled and weight_decay is not None else None

    def one(g, p, mean, square, *highest):
        g = gradient(g, p, coupled, maximize)
        if decay is not None:
            p = p * decay
        mean = moved(mean, g, beta1)
        square = square * beta2 + g * g * (1 - beta2)
        highest = tuple(maximum(h, square) for h in highest)
        denominator = sqrt(highest[0] if amsgrad else square) / root + eps
        return p - mean / denominator * rate, mean, square, *highest

    return one


def quick_adam(dtype, step, lr, beta1, beta2, eps, weight_decay, *, amsgrad, decoupled, maximize):
    if amsgrad or maximize or (weight_decay is not None and not decoupled):
        return None
    rate, root = lr / (1 - beta1**step), (1 - beta2**step) ** 0.5
    rate, root, least, keep, new1, new2 = (
        np.asarray(x, dtype) for x in (rate, root, eps, beta2, 1 - beta1, 1 - beta2)
    )
    decay = None if weight_decay is None else np.asarray(1 - lr * weight_decay, dtype)

    def one(g, p, mean, square):
        if decay is not None:
            np.multiply(p, decay, p)
        scratch = g - mean
        np.multiply(scratch, new1, scratch)
        np.add(mean, scratch, mean)
        np.multiply(g, g, scratch)
        np.multiply(scratch, new2, scratch)
        np.multiply(square, keep, square)
        np.add(square, scratch, square)
        np.sqrt(square, scratch)
        np.divide(scratch, root, scratch)
        np.add(scratch, least, scratch)
        np.divide(mean, scratch, scratch)
        np.multiply(scratch, rate, scratch)
        np.subtract(p, scratch, p)

    return one


adam_update = update(
    "adam_update",
    adam,
    numbers={"step": None, "lr": None, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0},
    flags={"amsgrad": False, "decoupled": False, "maximize": False},
    states=("exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    held=lambda amsgrad, **_: ("exp_avgs", "exp_avg_sqs") + ("max_exp_avg_sqs",) * amsgrad,
    quick=quick_adam,
    doc="""Take a step of Adam; with `decoupled`, of AdamW.

    adam_update(params, grads, exp_avgs, exp_avg_sqs, [max_exp_avg_sqs], *, step, lr, beta1=0.9, beta2=0.999,
    eps=1e-8, weight_decay=0, amsgrad=False, decoupled=False, maximize=False); states start as zeros.

        m <- beta1 * m + (1 - beta1) * g,  v <- beta2 * v + (1 - beta2) * g ** 2
        p <- p - lr * (m / (1 - beta1 ** step)) / (sqrt(v / (1 - beta2 ** step)) + eps)
    amsgrad: the greatest v so far in place of v.  decoupled: p <- p * (1 - lr * weight_decay) before it, and
    no decay in g.  Source: Kingma and Ba, 2015; Reddi et al., 2018; Loshchilov and Hutter, 2019.
    """,
)


def rmsprop(lr, alpha, eps, weight_decay, momentum, *, centered, maximize):
    def one(g, p, square, *rest):
        g = gradient(g, p, weight_decay, maximize)
        square = square * alpha + g * g * (1 - alpha)
        new = ()
        spread = square
        if centered:
            mean = moved(rest[0], g, alpha)
            spread, new = square - mean * mean, (mean,)
        change = g / (sqrt(spread) + eps)
        if momentum is not None:
            change = rest[-1] * momentum + change
            new = (*new, change)
        return p - change * lr, square, *new

    return one


rmsprop_update = update(
    "rmsprop_update",
    rmsprop,
    numbers={"lr": None, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0},
    flags={"centered": False, "maximize": False},
    states=("square_avgs", "grad_avgs", "momentum_buffers"),
    held=lambda momentum, centered, **_: (
        ("square_avgs",) + ("grad_avgs",) * centered + ("momentum_buffers",) * (momentum is not None)
    ),
    doc="""Take a step of RMSprop.

    rmsprop_update(params, grads, square_avgs, [grad_avgs], [momentum_buffers], *, lr, alpha=0.99, eps=1e-8,
    weight_decay=0, momentum=0, centered=False, maximize=False); states start as zeros.

        v <- alpha * v + (1 - alpha) * g ** 2,  p <- p - lr * g / (sqrt(v) + eps)
    centered: v less the square of the mean gradient in place of v.
    Source: Tieleman and Hinton, 2012; Graves, 2013.
    """,
)


def adagrad(step, lr, eps, weight_decay, lr_decay, *, maximize):
    rate = lr if lr_decay is None else lr / (1 + (step - 1) * lr_decay)

    def one(g, p, total):
        g = gradient(g, p, weight_decay, maximize)
        total = total + g * g
        return p - g / (sqrt(total) + eps) * rate, total

    return one


adagrad_update = update(
    "adagrad_update",
    adagrad,
    numbers={"step": None, "lr": None, "eps": 1e-10, "weight_decay": 0, "lr_decay": 0},
    flags={"maximize": False},
    states=("sums",),
    doc="""Take a step of Adagrad.

    adagrad_update(params, grads, sums, *, step, lr, eps=1e-10, weight_decay=0, lr_decay=0, maximize=False).

        s <- s + g ** 2,  p <- p - lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)
    Source: Duchi, Hazan and Singer, 2011.
    """,
)


def adadelta(lr, rho, eps, weight_decay, *, maximize):
    def one(g, p, square, change):
        g = gradient(g, p, weight_decay, maximize)
        square = square * rho + g * g * (1 - rho)
        delta = sqrt(change + eps) / sqrt(square + eps) * g
        return p - delta * lr, square, change * rho + delta * delta * (1 - rho)

    return one


adadelta_update = update(
    "adadelta_update",
    adadelta,
    numbers={"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0},
    flags={"maximize": False},
    states=("square_avgs", "acc_deltas"),
    doc="""Take a step of Adadelta.

    adadelta_update(params, grads, square_avgs, acc_deltas, *, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0,
    maximize=False); states start as zeros.

        v <- rho * v + (1 - rho) * g ** 2,  d = sqrt(u + eps) / sqrt(v + eps) * g
        u <- rho * u + (1 - rho) * d ** 2,  p <- p - lr * d
    Source: Zeiler, 2012.
    """,
)


def adamax(step, lr, beta1, beta2, eps, weight_decay, *, maximize):
    rate = lr / (1 - beta1**step)

    def one(g, p, mean, greatest):
        g = gradient(g, p, weight_decay, maximize)
        mean = moved(mean, g, beta1)
        greatest = maximum(greatest * beta2, abs(g) + eps)
        return p - mean / greatest * rate, mean, greatest

    return one


adamax_update = update(
    "adamax_update",
    adamax,
    numbers={"step": None, "lr": None, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0},
    flags={"maximize": False},
    states=("exp_avgs", "exp_infs"),
    doc="""Take a step of Adamax.

    adamax_update(params, grads, exp_avgs, exp_infs, *, step, lr, beta1=0.9, beta2=0.999, eps=1e-8,
    weight_decay=0, maximize=False); states start as zeros.

        m <- beta1 * m + (1 - beta1) * g,  u <- max(beta2 * u, abs(g) + eps)
        p <- p - lr / (1 - beta1 ** step) * m / u
    Source: Kingma and Ba, 2015, section 7.
    """,
)
