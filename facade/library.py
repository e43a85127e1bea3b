"""Answer `torch.library` and `torch.ops`: operators that a program defines, and calls by their names.

An operator here is its function, with a rule for gradients and one for tensors without values where the
program gave them.  There is no dispatcher: a kernel for another device is never called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor, is_grad_enabled, no_grad, ops, sparse_functions
from ..runtime.function import Function
from ..runtime.trees import flatten
from ._C import DelayedError
from .absent import _room

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "get_ctx",
    "impl",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]


class CustomOpDef:
    """An operator of a program's: call it, or find it as `torch.ops.space.name`."""

    def __init__(self, name: str, fn: Callable, mutates_args: Any = ()):
        self._qualname, self._mutates = name, mutates_args
        self._fake: Callable | None = None
        self._applied: type[Function] | None = None
        self._computed_by(fn)
        functools.update_wrapper(self, fn)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self._bound(args, kwargs)
        tensors = [x for x in flatten((args, kwargs))[1] if isinstance(x, Tensor)]
        if self._fake is not None and any([x.device.type == "meta" for x in tensors]):
            return self._fake(*args, **kwargs)
        if not is_grad_enabled() or not any([x.requires_grad for x in tensors]):
            return self._fn(*args, **kwargs)
        if self._applied is not None:
            return self._applied.apply(*args, *kwargs.values())
        with no_grad():
            made = self._fn(*args, **kwargs)
        if self._mutates or not isinstance(made, Tensor):
            return made
        return DelayedError(f"{self._qualname} has no rule for gradients: see register_autograd", 1)(
            made.requires_grad_() if made.is_floating_point() else made
        )

    def _computed_by(self, fn: Callable) -> None:
        self._fn, self._signature = fn, inspect.signature(fn)
        given = self._signature.parameters.values()
        self._names = tuple([p.name for p in given if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)])
        self._defaults = {p.name: p.default for p in given if p.default is not p.empty}
        self._plain = len(self._names) == len(given)

    def _bound(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """The arguments as the function takes them, by position.  Raises TypeError as a call does."""
        names = self._names[len(args) :]
        known = self._plain and len(args) <= len(self._names) and all([name in names for name in kwargs])
        if not known or not all([name in kwargs or name in self._defaults for name in names]):
            bound = self._signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return bound.args, bound.kwargs
        rest = [kwargs[name] if name in kwargs else self._defaults[name] for name in names]
        return (*args, *rest), {}

    def register_fake(self, fn: Callable) -> Callable:
        """Have `fn` say what comes out, for tensors of the meta device."""
        self._fake = fn
        return fn

    def register_autograd(
        self, backward: Callable, /, *, setup_context: Callable | None = None, lib: Any = None
    ) -> None:
        """Have `backward(ctx, *gradients)` give the gradients; setup_context(ctx, inputs, output) saves for
        it."""
        fn, names = self._fn, list(self._signature.parameters.values())
        alone = [p.name for p in names if p.kind is p.KEYWORD_ONLY]

        def forward(*args: Any) -> Any:
            cut = len(args) - len(alone)
            return fn(*args[:cut], **dict(zip(alone, args[cut:], strict=True)))

        def setup(ctx: Any, inputs: tuple, output: Any) -> None:
            if setup_context is not None:
                cut = len(inputs) - len(alone)
                more = {"keyword_only_inputs": dict(zip(alone, inputs[cut:], strict=True))} if alone else {}
                setup_context(ctx, inputs[:cut], output, **more)

        def rule(ctx: Any, *gradients: Any) -> Any:
            found = backward(ctx, *gradients)
            return (*(found if isinstance(found, tuple) else (found,)), *[None] * len(alone))

        members = {"forward": forward, "setup_context": setup, "backward": rule}
        self._applied = type(
            self._qualname.rpartition("::")[2], (Function,), {k: staticmethod(v) for k, v in members.items()}
        )

    def register_kernel(self, device_types: Any, func: Callable | None = None, /) -> Any:
        """Have `func` compute it on a device; for any but the CPU it is never called."""
        if func is None:
            return functools.partial(self.register_kernel, device_types)
        if device_types is None or "cpu" in (
            [device_types] if isinstance(device_types, str) else device_types
        ):
            self._computed_by(func)
        return func

    def register_vmap(self, func: Callable | None = None) -> Any:
        """Accepted: vmap goes through the function itself."""
        return func if func is not None else self.register_vmap

    register_torch_dispatch = register_vmap


class _Packet:
    """An operator by its name, whose overloads (`.default`, `.Tensor`) are all the operator."""

    def __init__(self, name: str, op: Callable):
        self.__name__, self._op = name, op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._op(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self

    def overloads(self) -> list[str]:
        """The names of its forms."""
        return ["default"]


_defined: dict[str, dict[str, Any]] = {}


def _to_copy(x: Any, **kwargs: Any) -> Any:
    """A copy of a tensor, of another dtype, on another device or in another order where one is named."""
    return x.to(**{key: value for key, value in kwargs.items() if value is not None}, copy=True)


# By the names that operators have below gradients.
_BELOW: dict[str, Callable] = {
    "alias": lambda x: x.view_as(x),
    "_to_copy": _to_copy,
    "_pin_memory": lambda x, device=None: x.pin_memory(),
    "_sparse_addmm": sparse_functions.addmm,
    "_sparse_mm_reduce_impl": lambda a, b, reduce: (sparse_functions.mm(a, b, reduce), None),
}


def _of_aten(name: str) -> Callable | None:
    """Lamina's operator of a name in `aten`: a function, or a method (`add_`, `detach`)."""
    if name.startswith("_"):
        return _BELOW.get(name)
    found = getattr(ops, name, None) or _BELOW.get(name) or vars(Tensor).get(name)
    return found if callable(found) else None


class _Space(ModuleType):
    """What `torch.ops.space` holds: a program's operators; in `aten`, Lamina's by their names."""

    def __getattr__(self, name: str) -> Any:
        space = self.__name__.rpartition(".")[2]
        if name in _defined.get(space, {}):
            made = _Packet(name, _defined[space][name])
        elif space == "aten" and (op := _of_aten(name)) is not None:
            made = _Packet(name, op)
        else:
            raise AttributeError(f"'_OpNamespace' '{space}' object has no attribute '{name}'")
        setattr(self, name, made)
        return made


class _Ops(ModuleType):
    """`torch.ops`: operators by their space and name."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Space(f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made

    def load_library(self, path: Any) -> None:
        """Refused: what is compiled for PyTorch can't be entered from here."""
        raise ArgumentValueError(f"ops.load_library({str(path)!r}): a library for PyTorch's own dispatcher")


registry = _Ops("lamina.ops", "Operators by their space and name: a program's own, and `aten`'s.")


operators = _room("_ops", "torch.ops holds Python's functions", "HigherOrderOperator", OpOverload=_Packet)


def _split(name: str) -> tuple[str, str]:
    space, colons, leaf = name.partition("::")
    if not (space and colons and leaf):
        raise ArgumentValueError(f"an operator's name is space::name, not {name!r}")
    return space, leaf.partition(".")[0]


def _put(name: str, op: Any) -> None:
    space, leaf = _split(name)
    _defined.setdefault(space, {})[leaf] = op
    vars(getattr(registry, space)).pop(leaf, None)


def _found(name: Any) -> CustomOpDef:
    if isinstance(name, (CustomOpDef, _Packet)):
        return name if isinstance(name, CustomOpDef) else name._op  # type: ignore[return-value]
    space, leaf = _split(name)
    if leaf not in _defined.get(space, {}):
        raise ArgumentValueError(f"there is no operator {name}", "define it first: torch.library.custom_op")
    return _defined[space][leaf]


def custom_op(
    name: str,
    fn: Callable | None = None,
    /,
    *,
    mutates_args: str | Iterable[str] = (),
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make an operator of a function, called by itself or as `torch.ops.space.name`; as a decorator, too."""
    if fn is None:
        return functools.partial(
            custom_op, name, mutates_args=mutates_args, device_types=device_types, schema=schema
        )
    made = CustomOpDef(name, fn, mutates_args)
    _put(name, made)
    return made


triton_op = custom_op


def wrap_triton(kernel: Any, /) -> Any:
    """Return the kernel."""
    return kernel


def _registering(method: str) -> Callable:
    def register(op: Any, *args: Any, lib: Any = None, _stacklevel: int = 1, **kwargs: Any) -> Any:
        if not args and not kwargs and method == "register_fake":
            return functools.partial(register, op)
        return getattr(_found(op), method)(*args, **kwargs)

    register.__name__ = method
    register.__doc__ = f"`{method}` of the operator of this name."
    return register


register_fake, register_autograd = _registering("register_fake"), _registering("register_autograd")
register_kernel, register_vmap = _registering("register_kernel"), _registering("register_vmap")
impl_abstract = register_fake


def _unfinished(name: str) -> CustomOpDef:
    def missing(*args: Any, **kwargs: Any) -> Any:
        raise ArgumentValueError(f"{name} has no kernel for the CPU", "give it one: torch.library.impl")

    return CustomOpDef(name, missing)


def define(qualname: str, schema: str = "", *, lib: Any = None, tags: Any = ()) -> None:
    """Name an operator; `impl` gives its function."""
    _put(qualname, _unfinished(qualname))


def impl(qualname: str, types: Any = "default", func: Callable | None = None, *, lib: Any = None) -> Any:
    """Give an operator's function for the CPU, or for all devices; others are never called."""
    if func is None:
        return functools.partial(impl, qualname, types, lib=lib)
    asked = [types] if isinstance(types, str) else types
    if any(
        [
            t.lower() in ("default", "cpu", "compositeexplicitautograd", "compositeimplicitautograd")
            for t in asked
        ]
    ):
        made = _found(qualname)
        made._computed_by(func)
    return func


class Library:
    """The operators of one space: `Library("mine", "DEF")`, then `define` and `impl`."""

    def __init__(self, ns: str, kind: str, dispatch_key: str = ""):
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Name an operator by its schema, `f(Tensor x) -> Tensor`."""
        name = schema.partition("(")[0].strip()
        define(f"{self.ns}::{name}")
        return name

    def impl(self, op_name: Any, fn: Callable, dispatch_key: str = "", **_: Any) -> None:
        """Give an operator's function."""
        name = op_name if isinstance(op_name, str) else op_name.__name__
        key = dispatch_key or self.dispatch_key or "default"
        impl(name if "::" in name else f"{self.ns}::{name}", key, fn)


def get_ctx() -> Any:
    """Refused: sizes that hang on values are not asked for here."""
    raise ArgumentValueError("library.get_ctx(): there are no symbolic sizes to make")
