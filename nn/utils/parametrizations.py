"""Parametrizations to be had: orthogonal matrices, weight norm, spectral norm."""

from __future__ import annotations

from typing import Any

from ...ir.errors import ArgumentValueError, ShapeError
from ...runtime import Tensor, no_grad, ops
from ..conv import _ConvTranspose
from ..module import Module
from .parametrize import register_parametrization
from .reparametrize import norm_but

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]

MAPS = ("matrix_exp", "cayley", "householder")


def _is_orthogonal(q: Tensor) -> bool:
    """Whether the columns of [..., n, k], n >= k, are orthonormal, up to the rounding of n products."""
    n, k = q.shape[-2:]
    unit = ops.eye(k, dtype=q.dtype, device=q.device)
    eps = _EPS[q.dtype.itemsize // (2 if q.is_complex() else 1)]
    return bool(ops.all(ops.abs(ops.matmul(q.mH, q) - unit) <= 10 * n * eps))


_EPS = {2: 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}  # by bytes of a real; of halves the coarser one, bfloat16's


def _sign(x: Tensor) -> Tensor:
    """-1 where negative, 1 elsewhere, of complex numbers the direction; without history."""
    if x.is_complex():
        return ops.where(x == 0, ops.ones_like(x), ops.sgn(x)).detach()
    return ops.where(x < 0, -ops.ones_like(x), ops.ones_like(x)).detach()


def _reflected(q: Tensor) -> Tensor:
    """The product of the reflections I - t v v' whose v are the columns below the diagonal, with v[i] = 1.

    t = 2 / |v|², so that the product is orthogonal whatever the columns hold.
    """
    n, k = q.shape[-2:]
    unit = ops.eye(n, k, dtype=q.dtype, device=q.device)
    below = ops.tril(q, -1) + unit
    scales = 2.0 / (1.0 + ops.sum(ops.tril(q, -1) ** 2, -2))
    out = unit.expand(q.shape)
    for i in reversed(range(k)):
        v = below[..., i : i + 1]
        out = out - scales[..., i : i + 1].unsqueeze(-1) * ops.matmul(v, ops.matmul(v.mT, out))
    return out


def _reflections(q: Tensor) -> Tensor:
    """What `_reflected` makes `q`, of orthonormal columns, from, but for the sign of each column.

    Householder's QR, column by column: Golub and Van Loan, Matrix Computations, algorithm 5.2.1.
    """
    n, k = q.shape[-2:]
    rest, out = q.clone(), ops.zeros(q.shape, dtype=q.dtype, device=q.device)
    for i in range(k):
        x = rest[..., i:, i]
        sign = _sign(x[..., :1])
        head = x[..., :1] + sign * ops.linalg_vector_norm(x, 2, -1, True)
        v = ops.cat([ops.ones_like(head), ops.where(head == 0, 0.0, x[..., 1:] / head)], -1).unsqueeze(-1)
        scale = 2.0 / ops.sum(v * v, -2, True)
        part = rest[..., i:, :]
        part.copy_(part - scale * ops.matmul(v, ops.matmul(v.mT, part)))
        out[..., i + 1 :, i] = v[..., 1:, 0]
        out[..., i, i] = ops.sign(rest[..., i, i])
    return out


class _Orthogonal(Module):
    """Q of a matrix [..., n, k]: its columns are orthonormal (its rows, where n < k)."""

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True):
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ArgumentValueError("the householder parametrization does not support complex tensors")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.shape[-2] < x.shape[-1]
        x = x.mT if wide else x
        n, k = x.shape[-2:]
        if self.orthogonal_map == "householder":
            q = _reflected(x)
            q = q * _sign(ops.diagonal(x, 0, -2, -1)).unsqueeze(-2)
        else:
            a = ops.tril(x)
            if n != k:  # the matrix of the Lie algebra has zeros in the other columns
                a = ops.cat([a, ops.zeros((*a.shape[:-1], n - k), dtype=a.dtype, device=a.device)], -1)
            a = a - a.mH
            if self.orthogonal_map == "matrix_exp":
                q = ops.matrix_exp(a)
            else:
                unit = ops.eye(n, dtype=a.dtype, device=a.device)
                q = ops.linalg_solve(unit - a * 0.5, unit + a * 0.5)
            q = q[..., :k]
        if hasattr(self, "base") and self.base is not None:
            q = ops.matmul(self.base, q)
        return q.mT if wide else q

    def right_inverse(self, q: Tensor) -> Tensor:
        """What forward makes `q`, the nearest there is, from."""
        if tuple(q.shape) != tuple(self.shape):
            raise ShapeError(f"orthogonal: takes matrices of shape {[*self.shape]}, not {[*q.shape]}")
        wide = q.shape[-2] < q.shape[-1]
        q = q.mT if wide else q
        n, k = q.shape[-2:]
        if not hasattr(self, "base"):
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "can't assign to the matrix exponential or the Cayley parametrization without "
                    "use_trivialization: "
                    "only the map 'householder' can be inverted"
                )
            x = _reflections(q)
            return x.mT if wide else x
        if n == k:
            base = q.clone() if _is_orthogonal(q) else _nearest(q)
        else:
            drawn = ops.empty(*q.shape[:-1], n - k, dtype=q.dtype, device=q.device).normal_()
            base = _nearest(ops.cat([q, drawn], -1))
            if _is_orthogonal(q):
                base[..., :k] = q
        self.base = base
        # The skew part of a diagonal is 0; k reflections along the axes, with a negative sign each, are 1.
        start = -ops.eye(n, k, dtype=q.dtype, device=q.device).expand(q.shape)
        return (start.mT if wide else start).contiguous()


def _nearest(x: Tensor) -> Tensor:
    """The Q of x = QR whose R has a positive diagonal."""
    q, r = ops.linalg_qr(x)
    return q * _sign(ops.diagonal(r, 0, -2, -1)).unsqueeze(-2)


def orthogonal(
    module: Module,
    name: str = "weight",
    orthogonal_map: str | None = None,
    *,
    use_trivialization: bool = True,
) -> Module:
    """Keep a matrix orthogonal (its columns or, where there are more of these, its rows orthonormal).

    orthogonal_map: "matrix_exp", of a skew matrix; "cayley", (I - A/2)⁻¹ (I + A/2); "householder", a product
    of reflections; the default is matrix_exp for square matrices, householder for others.
    use_trivialization: compute base @ map(x), where the buffer `base` starts as the matrix there was and x
    as 0.  Sources: Lezcano Casado 2019, section 3; Golub and Van Loan, section 5.1.
    Raises ArgumentValueError.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentValueError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    if weight.ndim < 2:
        raise ArgumentValueError(
            f"orthogonal: Expected a matrix, or a batch of them, not {weight.ndim} dimensions"
        )
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder"
    if orthogonal_map not in MAPS:
        raise ArgumentValueError(
            f"orthogonal(orthogonal_map): has to be one of {', '.join(MAPS)}, not {orthogonal_map!r}"
        )
    made = _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization)
    register_parametrization(module, name, made, unsafe=True)
    return module


class _WeightNorm(Module):
    """weight = g v / |v|."""

    def __init__(self, dim: int | None = 0):
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return weight_v * (weight_g / norm_but(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The norms, and the weight itself."""
        return norm_but(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight's length and direction apart, as `original0` and `original1`; return the module.

    dim: the dimension that keeps a norm for each of its slices; None for one norm of all.  A state saved with
    `<name>_g` and `<name>_v`, as nn.utils.weight_norm has them, can be loaded.
    Source: Salimans and Kingma 2016, eq. 2.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def renamed(state: dict[str, Any], prefix: str, *_: Any) -> None:
        old = [f"{prefix}{name}_g", f"{prefix}{name}_v"]
        if all(key in state for key in old):
            for i, key in enumerate(old):
                state[f"{prefix}parametrizations.{name}.original{i}"] = state.pop(key)

    module._register_load_state_dict_pre_hook(renamed)
    return module


class _SpectralNorm(Module):
    """weight / its greatest singular value, which power iteration follows in training."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12):
        super().__init__()
        if not -weight.ndim <= dim < weight.ndim:
            raise ArgumentValueError(
                f"spectral_norm(dim): {dim} is out of range for {weight.ndim} dimensions"
            )
        if n_power_iterations <= 0:
            raise ArgumentValueError(
                f"spectral_norm: n_power_iterations must be positive, not {n_power_iterations}"
            )
        self.dim, self.eps, self.n_power_iterations = dim % weight.ndim, eps, n_power_iterations
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            for which, size in zip(("_u", "_v"), matrix.shape):
                drawn = ops.empty(size, dtype=matrix.dtype, device=matrix.device).normal_()
                self.register_buffer(which, ops.normalize(drawn, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        with no_grad():
            for _ in range(count):
                self._u.copy_(ops.normalize(ops.mv(matrix, self._v), dim=0, eps=self.eps))
                self._v.copy_(ops.normalize(ops.mv(matrix.mH, self._u), dim=0, eps=self.eps))

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:  # its only singular value is its length
            return ops.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        # Copies: the next reading changes the vectors, and this one's backward may come after it.
        u, v = self._u.clone(), self._v.clone()
        inner = ops.vdot if weight.is_complex() else ops.dot
        return weight / inner(u, ops.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value itself, which may then be scaled."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its greatest singular value; return the module.

    dim: the outputs', by default 0, and 1 for transposed convolutions.  Each reading in training improves the
    singular vectors, the buffers `_u` and `_v` of the parametrization.
    Source: Miyato et al. 2018, algorithm 1.  Raises ArgumentValueError.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentValueError(f"{type(module).__name__} has no parameter or buffer {name!r}")
    if dim is None:
        dim = 1 if isinstance(module, _ConvTranspose) else 0
    register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
    return module
