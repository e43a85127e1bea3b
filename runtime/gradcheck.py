"""Compares gradients with finite differences, PyTorch's `gradcheck` and `gradgradcheck`.

A Jacobian here is a matrix of reals, [reals of the input, reals of the output]: a complex element is two of
them, its parts in turn.  Of a sparse input those elements count that it stores.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..ir import dtypes
from ..ir.errors import ArgumentError, ArgumentValueError, GradError
from ..ir.types import type_of
from . import forward, kernels, modes
from .autograd import grad, vmap
from .below import Asked
from .compound import Compound, of_values
from .creation import tensor
from .tensor import Tensor, free, wrap


class GradcheckError(GradError):
    """An analytical gradient that differs from the numerical one."""


class NothingToCheckError(ArgumentError, AssertionError):
    """A check that was asked to check nothing, or whose function is no function of its inputs."""


class Settings(NamedTuple):
    """How close is close: see `gradcheck`."""

    eps: float
    atol: float
    rtol: float
    nondet_tol: float

    def close(self, a: np.ndarray, b: np.ndarray) -> bool:
        return np.allclose(a, b, self.rtol, self.atol, equal_nan=True)


# ---- functions and their outputs ---------------------------------------------------------------------------
def _outputs(function: Callable, inputs: Sequence[Any]) -> list[Tensor]:
    result = function(*inputs)
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return [y for y in outputs if isinstance(y, Tensor) and y.dtype.inexact]


def _reals(array: np.ndarray) -> np.ndarray:
    """The real numbers that an array consists of, in one dimension: of complex ones both parts, in turn."""
    return np.ascontiguousarray(array).reshape(-1).view(array.real.dtype).astype(np.float64)


def _values(x: Tensor) -> np.ndarray:
    """The elements of a tensor; of one that wraps others by asking it."""
    data = of_values(x)._data
    if type(data) is Asked:
        return np.asarray(x.tolist(), x._meta.dtype.numpy).reshape(x._meta.shape)
    return data


class _Elements:
    """The elements of a tensor that wraps others, to look at and to write."""

    def __init__(self, x: Tensor):
        self._x, self.shape = x.detach(), x._meta.shape

    def __getitem__(self, at: tuple[int, ...]) -> Any:
        return self._x[at].item()

    def __setitem__(self, at: tuple[int, ...], value: Any) -> None:
        with modes.no_grad():
            self._x[at].fill_(value)


def _places(x: Tensor) -> Iterator[tuple[Any, tuple[int, ...]]]:
    """Each real number that a tensor consists of: an array of parts, and where it stands there."""
    array: Any = free(of_values(x))
    if type(array) is Asked:
        array = _Elements(x)
    parts = [array.real, array.imag] if x._meta.dtype.is_complex else [array]
    for at in np.ndindex(array.shape):
        for part in parts:
            yield part, at


def _numerical(function: Callable, inputs: Sequence[Any], x: Tensor, eps: float) -> list[np.ndarray]:
    """d output / d x by central differences: a matrix [reals of x, reals of the output] per output."""
    columns: list[list[np.ndarray]] = []
    kinds = [y._meta for y in _outputs(function, inputs)]

    def moved() -> list[np.ndarray]:
        ys = _outputs(function, inputs)
        for what in ("shape", "dtype"):
            if any(getattr(y._meta, what) != getattr(k, what) for y, k in zip(ys, kinds)):
                raise NothingToCheckError(
                    f"gradcheck: func must return outputs with the same {what} when inputs are perturbed"
                )
        return [_reals(_values(y)) for y in ys]

    for part, at in _places(x):
        kept = part[at]
        part[at] = kept + eps
        above = moved()
        part[at] = kept - eps
        below = moved()
        part[at] = kept
        columns.append([(a - b) / (2 * eps) for a, b in zip(above, below, strict=True)])
    return [np.array([c[k] for c in columns]) for k in range(len(kinds))]


def _units(y: Tensor) -> Iterator[Tensor]:
    """A tensor like this for each real number that it consists of, 1 there and 0 elsewhere."""
    across, kind = _reals(_values(y)).size, type_of(y._meta.dtype, y._meta.shape)
    for j in range(across):
        seed = np.zeros(across, y._data.real.dtype)
        seed[j] = 1.0
        yield wrap(seed.view(kind.dtype.numpy).reshape(kind.shape), kind)


def _gradient_reals(x: Tensor, g: Tensor | None, count: int) -> np.ndarray:
    """The reals of a gradient, zeros for none.  Raises GradcheckError where it lies unlike its input."""
    if g is None:
        return np.zeros(count)
    if isinstance(x, Compound):
        same = isinstance(g, Compound) and of_values(g)._meta.shape == of_values(x)._meta.shape
        if not same and isinstance(g, Compound):
            raise GradcheckError(
                "gradcheck: grad is sparse tensor, but has incorrect sparse_dim",
                f"input: {x._meta}",
                f"gradient: {g._meta}",
            )
        return _reals(of_values(g if same else g.sparse_mask(x))._data)
    if isinstance(g, Compound):
        raise GradcheckError(
            "gradcheck: grad is incorrect layout: sparse, where the input is strided", f"input: {x._meta}"
        )
    return _reals(_values(g))


# ---- the checks --------------------------------------------------------------------------------------------
def gradcheck(
    func: Callable, inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False, check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False, check_forward_ad: bool = False,
    check_backward_ad: bool = True, fast_mode: bool = False, masked: bool | None = None,
) -> bool:  # fmt: skip
    """Whether the gradients of `func` at float64 or complex128 `inputs` agree with central differences.

    nondet_tol: by how much a second backward may differ from the first.  check_backward_ad, check_forward_ad:
    which modes are compared; check_batched_grad, check_batched_forward_grad: whether they give the same
    inside of vmap; check_undefined_grad: whether forward mode takes zeros for no tangent.  check_grad_dtypes,
    masked and fast_mode are taken: gradients always have their inputs' dtypes, what a sparse input does not
    store is always left out, and every element is always looked at.

    Raises GradcheckError (or returns False) naming the input, the output and both matrices where they don't;
    ArgumentValueError and others for inputs and outputs that can't be checked.
    """
    if not (check_forward_ad or check_backward_ad):
        raise NothingToCheckError(
            "gradcheck: Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_forward_grad and not check_forward_ad:
        raise NothingToCheckError("gradcheck: check_batched_forward_grad=True needs check_forward_ad=True")
    if check_batched_grad and not check_backward_ad:
        raise NothingToCheckError("gradcheck: check_batched_grad=True needs check_backward_ad=True")
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    settings = Settings(eps, atol, rtol, nondet_tol)
    wanted = _checked_inputs(inputs)
    _check_outputs(func(*inputs))
    try:
        numerical = [_numerical(func, inputs, x, eps) for _, x in wanted]
        if check_backward_ad:
            _check_backward(func, inputs, wanted, numerical, settings)
            if check_batched_grad:
                _check_batched(func, inputs, wanted, settings)
        if check_forward_ad:
            _check_forward(func, inputs, wanted, numerical, settings)
            if check_undefined_grad:
                _check_zero_tangents(func, inputs, wanted, settings)
            if check_batched_forward_grad:
                _check_batched_forward(func, inputs, wanted, settings)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _checked_inputs(inputs: tuple) -> list[tuple[int, Tensor]]:
    """The inputs to differentiate by, with their numbers.  Raises ArgumentValueError, GradError."""
    wanted = [(i, x) for i, x in enumerate(inputs) if isinstance(x, Tensor) and x.requires_grad]
    if not wanted:
        raise ArgumentValueError(
            "gradcheck expects at least one input tensor to require gradient",
            "pass tensors made with requires_grad=True",
        )
    for i, x in wanted:
        if x.dtype not in (dtypes.float64, dtypes.complex128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex: "
                "differences of fewer digits are noise, and the check is likely to fail",
                stacklevel=4,
            )
        data = of_values(x)._data
        if type(data) is not Asked and any(
            step == 0 and size > 1 for step, size in zip(data.strides, data.shape)
        ):
            raise GradError(
                f"The {i}th input has a dimension with stride 0. gradcheck changes one element after another,"
                " and several of this one stand at one place",
                "use x.contiguous()",
            )
    return wanted


def _check_outputs(result: Any) -> None:
    for y in result if isinstance(result, (tuple, list)) else (result,):
        if isinstance(y, Compound):
            raise ArgumentValueError(
                "Sparse output is not supported at gradcheck yet", "let the function end in .to_dense()"
            )


def _mismatch(what: str, k: int, number: int, analytical: np.ndarray, want: np.ndarray) -> GradcheckError:
    return GradcheckError(
        f"gradcheck: {what} for output {k} with respect to input {number}",
        f"analytical: {np.array2string(analytical, precision=6, prefix='  analytical: ')}",
        f"numerical:  {np.array2string(want, precision=6, prefix='  numerical:  ')}",
    )


def _compare(
    what: str, y: Tensor, k: int, number: int, a: np.ndarray, want: np.ndarray, how: Settings
) -> None:
    if y._meta.dtype.is_complex and not how.close(a[:, 1::2], want[:, 1::2]):
        part = f"While considering the imaginary part of complex outputs only, {what}"
        raise _mismatch(part, k, number, a[:, 1::2], want[:, 1::2])
    if not how.close(a, want):
        raise _mismatch(what, k, number, a, want)


def _check_backward(
    func: Callable, inputs: tuple, wanted: list, numerical: list[list[np.ndarray]], how: Settings
) -> None:
    outputs = _outputs(func, inputs)
    if outputs and not any(y.requires_grad for y in outputs):
        for number, matrices in enumerate(numerical):
            if any(not how.close(m, np.zeros_like(m)) for m in matrices):
                raise GradcheckError(
                    "gradcheck: Numerical gradient for function expected to be zero, as no output depends on "
                    f"input {number} differentiably"
                )
        return
    for number, (_, x) in enumerate(wanted):
        count = sum(1 for _ in _places(x))
        for k, y in enumerate(outputs):
            if not y.requires_grad:  # as a mask or a threshold beside what is differentiated
                continue
            want = numerical[number][k].reshape(count, _reals(_values(y)).size)
            rows, largest = [], 0.0
            for unit in _units(y):
                row, differs = _row(x, y, unit, count, how)
                rows.append(row)
                largest = max(largest, differs)
            analytical = np.array(rows).T.reshape(want.shape)
            _compare("Jacobian mismatch", y, k, number, analytical, want, how)
            if largest > how.nondet_tol:
                raise GradcheckError(
                    "gradcheck: Backward is not reentrant: with the same input and cotangent a second gives "
                    f"another gradient of output {k} to input {number}",
                    f"largest difference: {largest:g}; nondet_tol: {how.nondet_tol:g}",
                )
            if y._node is not None:
                (g,) = grad(y, x, _zeros(y), retain_graph=True, allow_unused=True)
                if np.any(_gradient_reals(x, g, count) != 0):
                    raise GradcheckError(
                        f"gradcheck: backward not multiplied by grad_output: of zeros for output {k} it "
                        f"makes a gradient to input {number} that is not zero"
                    )


def _row(x: Tensor, y: Tensor, unit: Tensor, count: int, how: Settings) -> tuple[np.ndarray, float]:
    """The reals of the gradient of `y` for a cotangent, and by how much a second backward differs.

    Two between which an op changed over to native code (kernels.py), which may round otherwise, are asked for
    again.
    """
    while True:
        before, pair = kernels.changes, []
        for _ in range(2):
            g = None
            if y._node is not None:
                (g,) = grad(y, x, unit, retain_graph=True, allow_unused=True)
            pair.append(_gradient_reals(x, g, count))
        if kernels.changes == before:
            return pair[0], float(np.abs(pair[0] - pair[1]).max(initial=0.0))


def _zeros(y: Tensor) -> Tensor:
    return wrap(np.zeros(y._meta.shape, y._meta.dtype.numpy), type_of(y._meta.dtype, y._meta.shape))


_BATCH = 2  # how many examples the batched checks take


def _check_batched(func: Callable, inputs: tuple, wanted: list, how: Settings) -> None:
    generator = np.random.default_rng(0)
    xs = [x for _, x in wanted]
    for k, y in enumerate(_outputs(func, inputs)):
        if y._node is None:
            continue
        rows = [_drawn(generator, y) for _ in range(_BATCH)]
        stacked = tensor(np.stack([r._data for r in rows]))
        single = [grad(y, xs, r, retain_graph=True, allow_unused=True) for r in rows]
        try:
            batched = grad(y, xs, stacked, retain_graph=True, allow_unused=True, is_grads_batched=True)
        except RuntimeError as error:
            raise GradcheckError(
                "gradcheck or gradgradcheck failed while testing batched gradient computation, "
                f"of output {k}: {error}"
            ) from error
        for i, g in enumerate(batched):
            for j in range(_BATCH):
                one = single[j][i]
                if g is not None and not how.close(_values(g)[j], 0 if one is None else _values(one)):
                    raise GradcheckError(
                        "gradcheck or gradgradcheck failed while testing batched gradient computation: "
                        f"the gradient of output {k} to input {i} is another one inside of vmap"
                    )


def _tangents(func: Callable, inputs: tuple, duals: dict[int, Tensor]) -> list[tuple[Tensor, Tensor | None]]:
    """The outputs of `func` and their tangents, where the inputs of these numbers have these."""
    with forward.dual_level():
        plain = [x.detach() if isinstance(x, Tensor) else x for x in inputs]
        given = [forward.make_dual(x, duals[i]) if i in duals else x for i, x in enumerate(plain)]
        found = [forward.unpack_dual(y) for y in _outputs(func, given)]
    return [(y, t) for y, t in found]


def _check_forward(
    func: Callable, inputs: tuple, wanted: list, numerical: list[list[np.ndarray]], how: Settings
) -> None:
    for number, (i, x) in enumerate(wanted):
        still = {j: _zeros(y) for j, y in wanted if j != i}
        rows = [_tangents(func, inputs, still | {i: unit}) for unit in _units(x)]
        for k in range(len(numerical[number])):
            y = rows[0][k][0] if rows else None
            if y is None:
                continue
            a = np.array(
                [np.zeros(_reals(y._data).size) if r[k][1] is None else _reals(r[k][1]._data) for r in rows]
            )
            want = numerical[number][k].reshape(a.shape)
            _compare("Jacobian computed with forward mode mismatch", y, k, number, a, want, how)


def _same(a: Tensor | None, b: Tensor | None, how: Settings) -> bool:
    x, y = (0 if t is None else t._data for t in (a, b))
    return how.close(np.asarray(x), np.asarray(y))


def _check_zero_tangents(func: Callable, inputs: tuple, wanted: list, how: Settings) -> None:
    """Zeros as tangents of other inputs, in two layouts, give the same; of the only input they give zeros."""
    if len(wanted) == 1:
        ((i, x),) = wanted
        if any(t is not None and np.any(t._data != 0) for _, t in _tangents(func, inputs, {i: _zeros(x)})):
            raise GradcheckError("gradcheck: a tangent of zeros gives tangents that are not zero")
        return
    generator = np.random.default_rng(0)
    for i, x in wanted:
        drawn = _drawn(generator, x)
        made = []
        for zero in (
            lambda y: _zeros(y),
            lambda y: tensor(np.zeros((), y._data.dtype)).expand(tuple(y.shape)),
        ):
            made.append(_tangents(func, inputs, {i: drawn} | {j: zero(y) for j, y in wanted if j != i}))
        for k, ((_, a), (_, b)) in enumerate(zip(*made, strict=True)):
            if not _same(a, b, how):
                raise GradcheckError(f"gradcheck: the tangent of output {k} depends on how zero tangents lie")


def _check_batched_forward(func: Callable, inputs: tuple, wanted: list, how: Settings) -> None:
    generator = np.random.default_rng(0)
    for number, (i, x) in enumerate(wanted):
        rows = [_drawn(generator, x) for _ in range(_BATCH)]
        single = [[t for _, t in _tangents(func, inputs, {i: r})] for r in rows]
        got: list[bool] = []

        def one(tangent: Tensor, i: int = i, got: list[bool] = got) -> list[Tensor]:
            found = [t for _, t in _tangents(func, inputs, {i: tangent})]
            got[:] = [t is not None for t in found]
            return [t for t in found if t is not None]

        try:
            found = iter(vmap[0](one)(tensor(np.stack([r._data for r in rows]))))
        except RuntimeError as error:
            raise GradcheckError(
                f"gradcheck failed while testing batched forward gradients, to input {number}: {error}"
            ) from error
        for k, there in enumerate(got):
            batch = next(found) if there else None
            for j in range(_BATCH):
                t = single[j][k]
                if not how.close(
                    np.asarray(0 if t is None else t._data), 0 if batch is None else batch._data[j]
                ):
                    raise GradcheckError(
                        "gradcheck failed while testing batched forward gradients: the tangent of output "
                        f"{k} to input {number} is another one inside of vmap"
                    )


def _drawn(generator: np.random.Generator, y: Tensor) -> Tensor:
    """Normal numbers of the shape and dtype of `y`."""
    found = generator.standard_normal(y._meta.shape)
    if y._meta.dtype.is_complex:
        found = found + 1j * generator.standard_normal(y._meta.shape)
    return tensor(np.asarray(found, y._meta.dtype.numpy))


def get_numerical_jacobian(
    fn: Callable, inputs: Any, target: Any = None, eps: float = 1e-3, grad_out: float = 1.0
) -> list[Tensor]:
    """Jacobians of fn(inputs)'s first output by differences, one [elements, elements] for each input.

    fn takes the inputs as one tuple; target: of these inputs alone.
    """
    _warn_private("get_numerical_jacobian", grad_out)
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    targets = inputs if target is None else (target,) if isinstance(target, Tensor) else tuple(target)
    return [tensor(_numerical(lambda *xs: fn(xs), inputs, x, eps)[0]) for x in targets]


def get_analytical_jacobian(
    inputs: Any, output: Tensor, nondet_tol: float = 0.0, grad_out: float = 1.0
) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """Jacobians of an output by backward; whether a second backward gives them again; True, True."""
    _warn_private("get_analytical_jacobian", grad_out)
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    found: list[list[np.ndarray]] = []
    for _ in range(2):
        found.append([
            np.array([
                _gradient_reals(x, grad(output, x, unit, retain_graph=True, allow_unused=True)[0], x.numel())
                for unit in _units(output)
            ]).T for x in inputs
        ])  # fmt: skip
    again = all(np.abs(a - b).max(initial=0) <= nondet_tol for a, b in zip(*found, strict=True))
    return tuple(map(tensor, found[0])), again, True, True


def _warn_private(name: str, grad_out: float) -> None:
    warnings.warn(
        f"`{name}` was part of PyTorch's private API and not meant to be exposed; use gradcheck",
        FutureWarning,
        stacklevel=3,
    )
    if grad_out != 1.0:
        raise ArgumentValueError(f"Expected grad_out to be 1.0, not {grad_out!r}")


def gradgradcheck(
    func: Callable, inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5,
    rtol: float = 1e-3, gen_non_contig_grad_outputs: bool = False, raise_exception: bool = True,
    nondet_tol: float = 0.0, check_undefined_grad: bool = True, check_grad_dtypes: bool = False,
    check_batched_grad: bool = False, check_fwd_over_rev: bool = False, check_rev_over_rev: bool = True,
    fast_mode: bool = False, masked: bool = False,
) -> bool:  # fmt: skip
    """`gradcheck` of the gradients of `func`, as functions of its inputs and of the cotangents.

    check_fwd_over_rev, check_rev_over_rev: by which mode they are differentiated.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise NothingToCheckError(
            "gradgradcheck: Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = [y for y in _outputs(func, inputs) if y.requires_grad]
    if grad_outputs is None:
        generator = np.random.default_rng(0)
        grad_outputs = [_drawn(generator, y).requires_grad_() for y in outputs]
    cotangents = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    count = len(inputs)
    asked = [isinstance(x, Tensor) and x.requires_grad for x in inputs]

    def gradients(*operands: Any) -> tuple:
        xs, gs = operands[:count], operands[count:]
        with modes.enable_grad():
            xs = tuple(x.requires_grad_() if a and not x.requires_grad else x for x, a in zip(xs, asked))
            ys = [y for y in _outputs(func, xs) if y.requires_grad]
            wanted = [x for x, a in zip(xs, asked) if a]
            found = grad(ys, wanted, gs, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients, (*inputs, *cotangents), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception,
        nondet_tol=nondet_tol, check_undefined_grad=check_undefined_grad, check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad, check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev, fast_mode=fast_mode, masked=masked,
    )  # fmt: skip
