"""Fill parameters: constants, draws scaled to the layer's size, orthogonal and sparse matrices.

Every function writes into its tensor without history and returns it.  `generator`: where random numbers come
from; None is the default generator.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from math import erf, prod, sqrt
from typing import Any

import numpy as np

from ..ir.errors import ArgumentValueError, ShapeError
from ..runtime import Tensor, as_tensor, no_grad, ops
from ..runtime import random as draws
from ..runtime.random import Generator

_LINEAR = (
    "linear",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "sigmoid",
)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which weights must grow so that a signal keeps its variance through `nonlinearity`.

    param: the negative slope, for "leaky_relu" (0.01 unless given).  Raises ArgumentValueError for other
    names.
    """
    if nonlinearity in _LINEAR:
        return 1.0
    if nonlinearity == "tanh":
        return 5.0 / 3
    if nonlinearity == "relu":
        return sqrt(2.0)
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise ArgumentValueError(
                f"calculate_gain('leaky_relu', param): a number is wanted, not {slope!r}"
            )
        return sqrt(2.0 / (1 + slope**2))
    if nonlinearity == "selu":
        return 3.0 / 4
    known = ", ".join((*_LINEAR, "tanh", "relu", "leaky_relu", "selu"))
    raise ArgumentValueError(f"calculate_gain: there is no nonlinearity {nonlinearity!r}", f"known: {known}")


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw from the uniform distribution over [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Draw from the normal distribution of that mean and standard deviation."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Draw from the normal distribution cut off outside [a, b], by inverting its distribution function."""

    def below(x: float) -> float:  # the distribution function, stretched to [-1, 1]
        return erf(x / sqrt(2.0))

    with no_grad():
        tensor.uniform_(below((a - mean) / std), below((b - mean) / std), generator=generator)
        tensor.copy_((ops.erfinv(tensor) * (std * sqrt(2.0)) + mean).clamp(min=a, max=b))
    return tensor


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Fill with `val`."""
    with no_grad():
        return tensor.fill_(val)


def ones_(tensor: Tensor) -> Tensor:
    """Fill with 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Fill with 0."""
    return constant_(tensor, 0.0)


def eye_(tensor: Tensor) -> Tensor:
    """Make a matrix the identity.  Raises ShapeError unless it has two dimensions."""
    if tensor.ndim != 2:
        raise ShapeError("eye_(tensor): the tensor must have two dimensions", f"tensor: {tensor._meta}")
    return _write(tensor, np.eye(*tensor.shape))


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Make a convolution's weight hand on as many channels of each group as it can.  Raises ShapeError."""
    if tensor.ndim not in (3, 4, 5):
        raise ShapeError(
            "dirac_(tensor): the tensor must have three to five dimensions", f"tensor: {tensor._meta}"
        )
    if tensor.shape[0] % groups:
        raise ArgumentValueError(
            f"dirac_(tensor, groups): groups must divide the first size ({tensor.shape[0]} % {groups} != 0)"
        )
    values = np.zeros(tensor.shape)
    each = tensor.shape[0] // groups
    middle = tuple(n // 2 for n in tensor.shape[2:])
    for group in range(groups):
        for channel in range(min(each, tensor.shape[1])):
            values[(group * each + channel, channel, *middle)] = 1
    return _write(tensor, values)


def _write(tensor: Tensor, values: np.ndarray) -> Tensor:
    with no_grad():
        return tensor.copy_(as_tensor(values, device="cpu"))


def _fans(call: str, tensor: Tensor) -> tuple[int, int]:
    """How many inputs each output sees and how many outputs each input reaches.

    Raises ShapeError below 2 dims.
    """
    if tensor.ndim < 2:
        raise ShapeError(
            f"{call}(tensor): the tensor must have at least two dimensions", f"tensor: {tensor._meta}"
        )
    window = prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw uniformly so that signals and gradients keep their variance.

    Source: Glorot & Bengio 2010, eq. 16.
    """
    bound = gain * sqrt(6.0 / sum(_fans("xavier_uniform_", tensor)))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Draw normally so that signals and gradients keep their variance.

    Source: Glorot & Bengio 2010, eq. 12.
    """
    return normal_(tensor, 0.0, gain * sqrt(2.0 / sum(_fans("xavier_normal_", tensor))), generator)


def _kaiming_std(call: str, tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentValueError(f"{call}: mode must be 'fan_in' or 'fan_out', not {mode!r}")
    return calculate_gain(nonlinearity, a) / sqrt(_fans(call, tensor)[mode == "fan_out"])


def _holds_nothing(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return 0 in tensor.shape


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Draw uniformly so that signals (fan_in) or gradients (fan_out) keep their variance through rectifiers.

    Source: He et al. 2015, eq. 14; a is the negative slope.
    """
    if _holds_nothing(tensor):
        return tensor
    bound = sqrt(3.0) * _kaiming_std("kaiming_uniform_", tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Draw normally so that signals (fan_in) or gradients (fan_out) keep their variance through rectifiers.

    Source: He et al. 2015, eq. 14; a is the negative slope.
    """
    if _holds_nothing(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std("kaiming_normal_", tensor, a, mode, nonlinearity), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """Fill with an orthogonal matrix (dims after the first flattened), times `gain`.

    The Q of a normal matrix's QR decomposition, with signs that make R's diagonal positive, so that it is
    uniform over all of them.  Source: Saxe et al. 2013.
    """
    _fans("orthogonal_", tensor)
    if _holds_nothing(tensor):
        return tensor
    rows, columns = tensor.shape[0], prod(tensor.shape[1:])
    room = ops.empty(max(rows, columns), min(rows, columns), device="cpu")
    drawn = normal_(room, generator=generator)
    q, r = np.linalg.qr(drawn.numpy().astype(np.float64))
    q = q * np.sign(np.diagonal(r))
    q = q if rows >= columns else q.T
    return _write(tensor, gain * q.reshape(tensor.shape))


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Draw normally and set the share `sparsity` of each column to zero.  Raises ShapeError unless 2-d."""
    if tensor.ndim != 2:
        raise ShapeError("sparse_(tensor): the tensor must have two dimensions", f"tensor: {tensor._meta}")
    rows, columns = tensor.shape
    zeros = -int(-sparsity * rows // 1)  # rounded up
    values = normal_(ops.empty(rows, columns, device="cpu"), 0.0, std, generator).numpy().copy()
    for column in range(columns):
        order = draws.randperm(rows, generator=generator, device="cpu").numpy()
        values[order[:zeros], column] = 0
    return _write(tensor, values)


# ---- older names -------------------------------------------------------------------------------------------
def _deprecated(function: Callable) -> Callable:
    """The function under its older name, without the underscore, which warns."""
    name = function.__name__.removesuffix("_")

    @wraps(function)
    def old(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(
            f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`.", FutureWarning, stacklevel=2
        )
        return function(*args, **kwargs)

    old.__name__ = old.__qualname__ = name
    return old


uniform, normal, constant, eye, dirac = map(_deprecated, (uniform_, normal_, constant_, eye_, dirac_))
xavier_uniform, xavier_normal = map(_deprecated, (xavier_uniform_, xavier_normal_))
kaiming_uniform, kaiming_normal = map(_deprecated, (kaiming_uniform_, kaiming_normal_))
orthogonal, sparse = map(_deprecated, (orthogonal_, sparse_))
