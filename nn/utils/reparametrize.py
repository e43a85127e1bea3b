"""Weights computed from other parameters before each forward: weight norm and spectral norm."""

from __future__ import annotations

from typing import Any

from ...ir.errors import ArgumentValueError
from ...runtime import Parameter, Tensor, no_grad, ops
from ..conv import _ConvTranspose
from ..module import Module
from ..parameter import is_lazy


class _Computed:
    """A forward pre-hook that sets the attribute `name` of a module."""

    def __init__(self, name: str):
        self.name = name

    def compute(self, module: Any) -> Tensor:
        """The weight, with its history."""
        return getattr(module, self.name)

    def __call__(self, module: Module, args: tuple) -> None:
        setattr(module, self.name, self.compute(module))


def _made(call: str, module: Module, name: str) -> Any:
    """The weight, which must have a shape.  Raises ArgumentValueError."""
    weight = getattr(module, name)
    if is_lazy(weight):
        raise ArgumentValueError(
            f"{call}: the module passed, a {type(module).__name__}, can't have uninitialized parameters.",
            "run a forward pass first, which makes them",
        )
    return weight


def _attach(module: Module, hook: _Computed, parts: dict[str, Parameter], buffers: dict[str, Tensor]) -> None:
    """Let `parts` take the place of the weight, and the hook compute it."""
    if any(isinstance(other.function, _Computed) and other.function.name == hook.name
           for other in module._hooks_of("forward_pre")):  # fmt: skip
        raise ArgumentValueError(f"{type(module).__name__}.{hook.name} is computed already")
    delattr(module, hook.name)
    for name, part in parts.items():
        module.register_parameter(name, part)
    for name, buffer in buffers.items():
        module.register_buffer(name, buffer)
    setattr(module, hook.name, hook.compute(module).detach())
    module.register_forward_pre_hook(hook)


def _detach(module: Module, name: str, kind: type[_Computed], rest: tuple[str, ...]) -> Module:
    """Make the weight a parameter again, with its last value.  Raises ArgumentValueError where it is none."""
    for key, hook in list(module._call_hooks.items()):
        if isinstance(hook.function, kind) and hook.function.name == name:
            with no_grad():
                weight = hook.function.compute(module)
            del module._call_hooks[key]
            for part in (name, *rest):
                delattr(module, part)
            module.register_parameter(name, Parameter(weight.detach()))
            return module
    raise ArgumentValueError(f"{type(module).__name__}.{name} is not computed")


def norm_but(v: Tensor, dim: int | None, order: float = 2) -> Tensor:
    """The norm of each slice along `dim`, the other dimensions kept as 1; of all of it for None or -1."""
    if dim is None or dim == -1:
        return ops.linalg_vector_norm(v, order)
    others = tuple(d for d in range(v.ndim) if d != dim % v.ndim)
    return ops.linalg_vector_norm(v, order, others, True) if others else v.abs()


class WeightNorm(_Computed):
    """weight = g v / |v|, with norms over all dimensions but `dim`; over all of them for None."""

    def __init__(self, name: str, dim: int | None):
        super().__init__(name)
        self.dim = dim

    def compute(self, module: Any) -> Tensor:
        v = getattr(module, self.name + "_v")
        return v * (getattr(module, self.name + "_g") / norm_but(v, self.dim))


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Learn a weight's length and direction apart, as `<name>_g` and `<name>_v`; return the module.

    Source: Salimans and Kingma 2016, eq. 2.
    """
    hook = WeightNorm(name, None if dim == -1 else dim)
    weight = _made("weight_norm", module, name).detach()
    parts = {name + "_g": Parameter(norm_but(weight, hook.dim)), name + "_v": Parameter(weight)}
    _attach(module, hook, parts, {})
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight a parameter again.  Raises ArgumentValueError for one without weight norm."""
    return _detach(module, name, WeightNorm, (name + "_g", name + "_v"))


class SpectralNorm(_Computed):
    """weight = original / its greatest singular value, which power iteration follows in training."""

    def __init__(self, name: str, n_power_iterations: int, eps: float, dim: int):
        super().__init__(name)
        self.n_power_iterations, self.eps, self.dim = n_power_iterations, eps, dim

    def matrix(self, weight: Tensor) -> Tensor:
        """The weight as a matrix whose rows are its slices along `dim`."""
        return weight.movedim(self.dim, 0).reshape(weight.shape[self.dim], -1)

    def __call__(self, module: Any, args: tuple) -> None:
        if module.training:
            matrix = self.matrix(getattr(module, self.name + "_orig").detach())
            u, v = getattr(module, self.name + "_u"), getattr(module, self.name + "_v")
            with no_grad():
                for _ in range(self.n_power_iterations):
                    v.copy_(ops.normalize(ops.mv(matrix.t(), u), dim=0, eps=self.eps))
                    u.copy_(ops.normalize(ops.mv(matrix, v), dim=0, eps=self.eps))
        super().__call__(module, args)

    def compute(self, module: Any) -> Tensor:
        weight = getattr(module, self.name + "_orig")
        # Copies: the next forward changes the vectors, and this one's backward may come after it.
        u, v = getattr(module, self.name + "_u").clone(), getattr(module, self.name + "_v").clone()
        return weight / ops.dot(u, ops.mv(self.matrix(weight), v))


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its greatest singular value; return the module.

    The parameter becomes `<name>_orig`; buffers `<name>_u` and `<name>_v` hold the singular vectors, which
    each forward in training improves.  dim: the outputs', by default 0, and 1 for transposed convolutions.
    Source: Miyato et al. 2018, algorithm 1.
    """
    if n_power_iterations <= 0:
        raise ArgumentValueError(
            f"spectral_norm: n_power_iterations must be positive, not {n_power_iterations}"
        )
    if dim is None:
        dim = 1 if isinstance(module, _ConvTranspose) else 0
    hook, weight = SpectralNorm(name, n_power_iterations, eps, dim), _made("spectral_norm", module, name)
    rows, columns = hook.matrix(weight.detach()).shape

    def drawn(n: int) -> Tensor:
        return ops.normalize(ops.empty(n, dtype=weight.dtype, device=weight.device).normal_(), dim=0, eps=eps)

    _attach(module, hook, {name + "_orig": weight}, {name + "_u": drawn(rows), name + "_v": drawn(columns)})
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """Make a weight a parameter again.  Raises ArgumentValueError for one without spectral norm."""
    return _detach(module, name, SpectralNorm, (name + "_orig", name + "_u", name + "_v"))
