"""Which modules inside a model become groups of their own: policies, under PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...nn import ModuleDict, ModuleList, MultiheadAttention
from ...nn.module import Module


class ModuleWrapPolicy:
    """Every module of one of these classes."""

    def __init__(self, module_classes: Sequence[type[Module]] | set[type[Module]]):
        self._module_classes = tuple(module_classes)

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> bool:
        return recurse or isinstance(module, self._module_classes)


class CustomPolicy:
    """Every module of which a function says so: True, or a dict of arguments that it is wrapped with."""

    def __init__(self, lambda_fn: Callable[[Module], bool | dict[str, Any]]):
        self._lambda_fn = lambda_fn

    def __call__(self, module: Module, recurse: bool, *args: Any, **kwargs: Any) -> Any:
        return recurse or self._lambda_fn(module)


def always_wrap_policy(*args: Any, **kwargs: Any) -> bool:
    """Every module."""
    return True


def transformer_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, transformer_layer_cls: set[type[Module]]
) -> bool:
    """Every module of one of these classes."""
    return recurse or isinstance(module, tuple(transformer_layer_cls))


_module_wrap_policy = transformer_auto_wrap_policy


def lambda_auto_wrap_policy(
    module: Module, recurse: bool, nonwrapped_numel: int, lambda_fn: Callable[[Module], bool]
) -> bool:
    """Every module of which a function says so."""
    return recurse or lambda_fn(module)


def size_based_auto_wrap_policy(
    module: Module,
    recurse: bool,
    nonwrapped_numel: int,
    min_num_params: int = int(1e8),
    force_leaf_modules: set[type[Module]] | None = None,
    exclude_wrap_modules: set[type[Module]] | None = None,
) -> bool:
    """Every module with so many elements in parameters that no module inside of it has taken.

    force_leaf_modules: classes whose insides are left alone.  exclude_wrap_modules: classes that never are
    one.
    """
    leaves = (MultiheadAttention,) if force_leaf_modules is None else tuple(force_leaf_modules)
    excluded = (ModuleList, ModuleDict) if exclude_wrap_modules is None else tuple(exclude_wrap_modules)
    large = nonwrapped_numel >= min_num_params
    if recurse:
        return large and not isinstance(module, leaves)
    return large and not isinstance(module, excluded)


size_based_auto_wrap_policy.EXCLUDE_WRAP_MODULES = {ModuleList, ModuleDict}  # type: ignore[attr-defined]
size_based_auto_wrap_policy.FORCE_LEAF_MODULES = {MultiheadAttention}  # type: ignore[attr-defined]


def chosen(root: Module, policy: Any, ignored: set[int]) -> list[tuple[Module, dict[str, Any]]]:
    """The modules below a root that a policy names, inner ones first, each with arguments of its own."""
    found: list[tuple[Module, dict[str, Any]]] = []
    seen: set[int] = set()

    def visit(module: Module) -> int:
        """The elements of parameters below that were taken."""
        if id(module) in seen or id(module) in ignored:
            return 0
        seen.add(id(module))
        total = sum([p.numel() for p in module.parameters()])
        taken = 0
        if policy(module=module, recurse=True, nonwrapped_numel=total):
            taken = sum([visit(child) for child in module.children()])
        if module is root:
            return taken
        answer = policy(module=module, recurse=False, nonwrapped_numel=total - taken)
        if answer:
            found.append((module, answer if isinstance(answer, dict) else {}))
            return total
        return taken

    visit(root)
    return found


# ---- by hand
_within: ContextVar[dict[str, Any] | None] = ContextVar("wrap", default=None)


@contextmanager
def enable_wrap(*, wrapper_cls: Any, **wrapper_kwargs: Any) -> Iterator[None]:
    """Let `wrap(module)` wrap by this class, with these arguments, inside."""
    before = _within.set({"cls": wrapper_cls, **wrapper_kwargs})
    try:
        yield
    finally:
        _within.reset(before)


def wrap(module: Module, **wrap_overrides: Any) -> Module:
    """The module, wrapped where `enable_wrap` says how; itself elsewhere."""
    known = _within.get()
    if known is None:
        return module
    given = {**known, **wrap_overrides}
    cls = given.pop("cls")
    return cls(module, **given)
