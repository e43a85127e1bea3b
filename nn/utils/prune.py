"""Pruning: masks over parameters, at random or by size, kept as buffers and multiplied before forward."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError
from ...runtime import Tensor, ops
from ..module import Module

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer",
    "RandomStructured", "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity",
    "is_pruned", "l1_unstructured", "ln_structured", "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(ABC):
    """A way to choose which elements become zero; a subclass has `compute_mask` and a PRUNING_TYPE.

    PRUNING_TYPE: "unstructured" (elements), "structured" (slices), "global" (elements of several tensors).
    `apply` puts an instance on a module as a forward pre-hook: the parameter becomes `<name>_orig`, the mask
    the buffer `<name>_mask`, and `<name>` their product.
    """

    PRUNING_TYPE = "unstructured"
    _tensor_name: str

    def __call__(self, module: Module, inputs: tuple) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for what `t` tells of importance: `default_mask` with more zeros."""

    def apply_mask(self, module: Any) -> Tensor:
        """The masked parameter, with its history."""
        name = getattr(self, "_tensor_name", None)
        if name is None:
            raise ArgumentValueError("apply_mask: this method was not applied to a module yet")
        mask, original = getattr(module, name + "_mask"), getattr(module, name + "_orig")
        return mask.to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> Any:
        """Prune a module's parameter, what is left of it where it was pruned before; return the method.

        importance_scores: of the parameter's shape, looked at in place of the parameter.
        """
        before = _method(module, name)
        if before is not None:
            _take(module, before)
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        if before is not None:
            container = before if isinstance(before, PruningContainer) else PruningContainer(before)
            container.add_pruning_method(method)
            method = container
        here = getattr(module, name)
        if importance_scores is None:
            importance_scores = here
        elif not isinstance(importance_scores, Tensor) or importance_scores.shape != here.shape:
            raise ArgumentValueError(
                f"prune(importance_scores): a tensor of shape {[*here.shape]} is wanted, as {name} has"
            )
        if before is None:
            original = module._parameters.get(name)
            if original is None:
                raise ArgumentValueError(f"prune: {type(module).__name__} has no parameter {name!r}")
            default = ops.ones_like(original).detach()
            mask = method.compute_mask(importance_scores.detach(), default)
            delattr(module, name)
            module.register_parameter(name + "_orig", original)
        else:
            default = getattr(module, name + "_mask").detach().clone()
            mask = method.compute_mask(importance_scores.detach(), default)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """A pruned copy of a tensor."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise ArgumentValueError("prune(importance_scores): they must have the tensor's shape")
        default = ops.ones_like(t).detach() if default_mask is None else default_mask
        return t * self.compute_mask(scores, default)

    def remove(self, module: Module) -> None:
        """Make the pruned tensor the parameter; the zeros stay."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        original = module._parameters[name + "_orig"]
        original.data = weight.detach()
        for part in (name, name + "_orig", name + "_mask"):
            delattr(module, part)
        module.register_parameter(name, original)


def _method(module: Module, name: str) -> BasePruningMethod | None:
    """The method by which a parameter is pruned."""
    for hook in module._hooks_of("forward_pre"):
        if isinstance(hook.function, BasePruningMethod) and hook.function._tensor_name == name:
            return hook.function
    return None


def _take(module: Module, method: BasePruningMethod) -> None:
    """Take a method's hook away."""
    for key, hook in list(module._call_hooks.items()):
        if hook.function is method:
            del module._call_hooks[key]


class PruningContainer(BasePruningMethod):
    """Several methods applied to one parameter, one after the other."""

    def __init__(self, *args: Any):
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        methods = args if len(args) != 1 or not isinstance(args[0], Iterable) else tuple(args[0])
        if len(methods) == 1:
            self._tensor_name = methods[0]._tensor_name
            self._pruning_methods = (methods[0],)
        else:
            for method in methods:
                self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add a method for the same parameter.  Raises ArgumentError, ArgumentValueError."""
        if not isinstance(method, BasePruningMethod):
            raise ArgumentError(f"PruningContainer: {type(method).__name__} is no BasePruningMethod")
        name = getattr(self, "_tensor_name", None)
        if name is not None and name != method._tensor_name:
            raise ArgumentValueError(
                f"PruningContainer: it prunes {name!r}, and the method {method._tensor_name!r}"
            )
        self._tensor_name = method._tensor_name
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask by the last method, which sees only what the mask before left.

        A structured method sees the slices that are not all zero, a global one the whole tensor.
        """
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            seen: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim  # type: ignore[attr-defined]
            at = dim % t.ndim
            others = tuple(d for d in range(t.ndim) if d != at)
            kept = (mask.sum(others) if others else mask) != 0
            seen = (slice(None),) * at + (kept,)
        elif method.PRUNING_TYPE == "global":
            seen = (slice(None),) * t.ndim
        else:
            raise ArgumentValueError(f"prune: there is no PRUNING_TYPE {method.PRUNING_TYPE!r}")
        made = mask.clone()
        made[seen] = method.compute_mask(t[seen], mask[seen]).to(made.dtype)
        return made


# ---- how much: under PyTorch's names, as methods of users call these ---------------------------------------
def _validate_pruning_amount_init(amount: Any) -> None:
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise ArgumentError(f"prune(amount): a number is wanted, not {type(amount).__name__}")
    if amount < 0 or (isinstance(amount, float) and not amount <= 1.0):
        raise ArgumentValueError(
            f"prune(amount): {amount} is neither a count, an int from 0, nor a share, a float from 0.0 to 1.0"
        )


def _validate_pruning_amount(amount: int | float, tensor_size: int) -> None:
    if isinstance(amount, int) and amount > tensor_size:
        raise ArgumentValueError(f"prune(amount): {amount} of {tensor_size} can't be pruned")


def _compute_nparams_toprune(amount: int | float, tensor_size: int) -> int:
    """How many of `tensor_size` units are pruned.  Raises ArgumentValueError where there are not so many."""
    _validate_pruning_amount(amount, tensor_size)
    return amount if isinstance(amount, int) else round(amount * tensor_size)


class Identity(BasePruningMethod):
    """Prune nothing."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask

    @classmethod
    def apply(cls, module: Module, name: str) -> Any:  # type: ignore[override]
        return super().apply(module, name)


class _Unstructured(BasePruningMethod):
    """Prunes `amount` elements, a count or a share, those whose `_scores` are the least."""

    def __init__(self, amount: int | float):
        _validate_pruning_amount_init(amount)
        self.amount = amount

    @staticmethod
    def _scores(t: Tensor) -> Tensor:
        raise ArgumentValueError("a subclass says what is important")

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        mask = default_mask.clone()
        if count := _compute_nparams_toprune(self.amount, t.numel()):
            mask.view(-1)[ops.topk(self._scores(t).reshape(-1), count, largest=False).indices] = 0
        return mask


class RandomUnstructured(_Unstructured):
    """Prune elements at random."""

    @staticmethod
    def _scores(t: Tensor) -> Tensor:
        return ops.empty(t.shape, device=t.device).uniform_()

    @classmethod
    def apply(cls, module: Module, name: str, amount: int | float) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount)


class L1Unstructured(_Unstructured):
    """Prune the elements of the least magnitude."""

    _scores = staticmethod(ops.abs)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: int | float, importance_scores: Tensor | None = None
    ) -> Any:
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(BasePruningMethod):
    """Prunes `amount` slices along `dim`, those whose `_scores` are the least."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: int | float, dim: int = -1):
        _validate_pruning_amount_init(amount)
        self.amount, self.dim = amount, dim

    def _scores(self, t: Tensor) -> Tensor:
        raise ArgumentValueError("a subclass says what is important")

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.ndim <= 1:
            raise ArgumentValueError(
                f"structured pruning needs at least 2 dimensions, not {t.ndim}",
                "prune elements: l1_unstructured, random_unstructured",
            )
        if not -t.ndim <= self.dim < t.ndim:
            raise ArgumentValueError(f"prune(dim): {self.dim} is out of range for {t.ndim} dimensions")
        at, size = self.dim % t.ndim, t.shape[self.dim]
        if not (count := _compute_nparams_toprune(self.amount, size)):
            return default_mask
        kept = ops.zeros(size, dtype=default_mask.dtype, device=t.device)
        if count < size:
            kept[ops.topk(self._scores(t), size - count).indices] = 1
        return default_mask * kept.reshape(*(size if d == at else 1 for d in range(t.ndim)))


class RandomStructured(_Structured):
    """Prune slices at random."""

    def _scores(self, t: Tensor) -> Tensor:
        return ops.empty(t.shape[self.dim], device=t.device).uniform_()

    @classmethod
    def apply(cls, module: Module, name: str, amount: int | float, dim: int = -1) -> Any:  # type: ignore[override]
        return super().apply(module, name, amount=amount, dim=dim)


class LnStructured(_Structured):
    """Prune the slices of the least norm of order `n`."""

    def __init__(self, amount: int | float, n: Any, dim: int = -1):
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t: Tensor) -> Tensor:
        others = tuple(d for d in range(t.ndim) if d != self.dim % t.ndim)
        return ops.norm(t, p=self.n, dim=others)

    @classmethod
    def apply(  # type: ignore[override]
        cls,
        module: Module,
        name: str,
        amount: int | float,
        n: Any,
        dim: int,
        importance_scores: Tensor | None = None,
    ) -> Any:
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prune where a mask says so."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(dtype=default_mask.dtype)

    @classmethod
    def apply(cls, module: Module, name: str, mask: Tensor) -> Any:  # type: ignore[override]
        return super().apply(module, name, mask=mask)


# ---- as functions ------------------------------------------------------------------------------------------
def identity(module: Module, name: str) -> Module:
    """Prune nothing of a parameter, but register mask and original; return the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: int | float) -> Module:
    """Prune `amount` elements of a parameter (a count, or a share as a float) at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(
    module: Module, name: str, amount: int | float, importance_scores: Tensor | None = None
) -> Module:
    """Prune the `amount` elements of a parameter (a count, or a share as a float) of least magnitude."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: int | float, dim: int) -> Module:
    """Prune `amount` slices along `dim` (a count, or a share as a float) at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module,
    name: str,
    amount: int | float,
    n: Any,
    dim: int,
    importance_scores: Tensor | None = None,
) -> Module:
    """Prune the `amount` slices along `dim` (a count, or a share as a float) of the least norm of order n."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune a parameter where `mask`, of its shape, is 0."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters, pairs of module and name, as if they were one tensor.

    kwargs: what the method takes, such as `amount`.  Raises ArgumentError, ArgumentValueError.
    """
    if not isinstance(parameters, Iterable):
        raise ArgumentError("global_unstructured(parameters): pairs of module and name are wanted")
    pairs = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise ArgumentError(
            "global_unstructured(importance_scores): a dictionary from (module, name) to tensors is wanted"
        )
    if not pairs:
        raise ArgumentValueError("global_unstructured(parameters): there are none")
    here = [getattr(module, name) for module, name in pairs]
    seen = ops.cat([scores.get(pair, x).detach().reshape(-1) for pair, x in zip(pairs, here)])
    masks = ops.cat([
        getattr(module, name + "_mask", ops.ones_like(x).detach()).reshape(-1)
        for (module, name), x in zip(pairs, here)
    ])  # fmt: skip
    container = PruningContainer()
    container._tensor_name = "temp"
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise ArgumentError(
            f"global_unstructured(pruning_method): {pruning_method.__name__} is not unstructured, "
            f"but {method.PRUNING_TYPE}"
        )
    final, at = container.compute_mask(seen, masks), 0
    for (module, name), x in zip(pairs, here):
        custom_from_mask(module, name, final[at : at + x.numel()].reshape(x.shape))
        at += x.numel()


def remove(module: Module, name: str) -> Module:
    """Make a pruned tensor the parameter again, zeros and all; return the module.

    Raises ArgumentValueError where it is not pruned.
    """
    method = _method(module, name)
    if method is None:
        raise ArgumentValueError(f"{type(module).__name__}.{name} is not pruned")
    _take(module, method)
    method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of a module, or of one below it, is pruned."""
    every = (hook.function for _, part in module.named_modules() for hook in part._hooks_of("forward_pre"))
    return any(isinstance(function, BasePruningMethod) for function in every)
