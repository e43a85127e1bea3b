"""Compares gradients with finite differences, PyTorch's `gradcheck` and `gradgradcheck`."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.errors import GradError
from .autograd import grad
from .creation import tensor
from .tensor import Tensor, wrap


class GradcheckError(GradError):
    """An analytical gradient that differs from the numerical one."""


def _outputs(function: Callable, inputs: Sequence[Any]) -> list[Tensor]:
    result = function(*inputs)
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    return [y for y in outputs if isinstance(y, Tensor) and y.dtype.inexact]


def _reals(array: np.ndarray) -> np.ndarray:
    """The real numbers that an array consists of, in one dimension: of complex ones both parts, in turn."""
    return np.ascontiguousarray(array).reshape(-1).view(array.real.dtype).astype(np.float64)


def _numerical(function: Callable, inputs: Sequence[Any], x: Tensor, eps: float) -> list[np.ndarray]:
    """d output / d x by central differences: a matrix [reals of x, reals of the output] per output."""
    columns: list[list[np.ndarray]] = []
    data = x._data
    if data.size > 1 and 0 in [step for step, n in zip(data.strides, data.shape, strict=True) if n > 1]:
        raise GradError("gradcheck: elements of an input share one place in memory", "use x.contiguous()")
    directions = (1, 1j) if x._meta.dtype.is_complex else (1,)
    for at, step in itertools.product(np.ndindex(data.shape), directions):
        kept = data[at]
        data[at] = kept + eps * step
        above = [_reals(y._data) for y in _outputs(function, inputs)]
        data[at] = kept - eps * step
        below = [_reals(y._data) for y in _outputs(function, inputs)]
        data[at] = kept
        columns.append([(a - b) / (2 * eps) for a, b in zip(above, below, strict=True)])
    count = len(columns[0]) if columns else len(_outputs(function, inputs))
    return [np.array([c[k] for c in columns]) for k in range(count)]


def gradcheck(
    func: Callable, inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
    raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True, **ignored: Any,
) -> bool:  # fmt: skip
    """Whether the gradients of `func` at float64 or complex128 `inputs` agree with central differences.

    Warns of inputs in other dtypes.  Raises GradcheckError (or returns False) naming the input, the output
    and both matrices where they don't.
    """
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    wanted = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
    if not wanted:
        raise GradError("gradcheck: no input requires gradients", "pass tensors made with requires_grad=True")
    for x in wanted:
        if x.dtype not in (dtypes.float64, dtypes.complex128):
            warnings.warn(
                f"gradcheck: an input is not of double precision but {x.dtype}, whose differences are "
                "noise: it "
                "may fail where the gradient is right",
                UserWarning,
                stacklevel=2,
            )
    outputs = _outputs(func, inputs)
    for number, x in enumerate(wanted):
        numerical = _numerical(func, inputs, x, eps)
        for k, y in enumerate(outputs):
            rows = []
            count, across = _reals(x._data).size, _reals(y._data).size
            for j in range(across):
                if y._node is None:
                    rows.append(np.zeros(count))
                    continue
                seed = np.zeros(across, y._data.real.dtype)
                seed[j] = 1.0
                cotangent = wrap(seed.view(y._data.dtype).reshape(y._meta.shape), y._meta)
                (g,) = grad(y, x, cotangent, retain_graph=True, allow_unused=True)
                rows.append(np.zeros(count) if g is None else _reals(g._data))
            analytical = np.array(rows).T.reshape(count, across)
            want = numerical[k].reshape(count, across)
            if not np.allclose(analytical, want, rtol, atol, equal_nan=True):
                if not raise_exception:
                    return False
                raise GradcheckError(
                    f"gradcheck: output {k}'s gradient to input {number} differs from central differences",
                    f"analytical: {np.array2string(analytical, precision=6, prefix='  analytical: ')}",
                    f"numerical:  {np.array2string(want, precision=6, prefix='  numerical:  ')}",
                )
    return True


def _drawn(generator: np.random.Generator, y: Tensor) -> Tensor:
    """Normal numbers of the shape of `y`, in float64 or complex128."""
    found = generator.standard_normal(y._meta.shape)
    return tensor(
        found + 1j * generator.standard_normal(y._meta.shape) if y._meta.dtype.is_complex else found
    )


def gradgradcheck(
    func: Callable, inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6, atol: float = 1e-5,
    rtol: float = 1e-3, raise_exception: bool = True, **ignored: Any,
) -> bool:  # fmt: skip
    """`gradcheck` of the gradients of `func`, as functions of its inputs and of the cotangents."""
    inputs = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = [y for y in _outputs(func, inputs) if y.requires_grad]
    if grad_outputs is None:
        generator = np.random.default_rng(0)
        grad_outputs = [_drawn(generator, y).requires_grad_() for y in outputs]
    cotangents = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    count = len(inputs)

    def gradients(*operands: Any) -> tuple:
        xs, gs = operands[:count], operands[count:]
        ys = [y for y in _outputs(func, xs) if y.requires_grad]
        wanted = [x for x in xs if isinstance(x, Tensor) and x.requires_grad]
        return tuple(g for g in grad(ys, wanted, gs, create_graph=True, allow_unused=True) if g is not None)

    return gradcheck(
        gradients, (*inputs, *cotangents), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception
    )
