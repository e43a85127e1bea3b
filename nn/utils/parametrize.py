"""Parametrizations: a tensor of a module that is computed from others, by modules, whenever it is read."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError, StateError
from ...runtime import Parameter, Tensor, no_grad
from .. import state
from ..containers import ModuleDict, ModuleList
from ..module import Module

__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip

# What was computed in the outermost open `cached` block, by module and name.
_values: dict[tuple[int, str], Tensor] | None = None


@contextmanager
def cached() -> Iterator[None]:
    """Within the block, compute each parametrized tensor once, at its first reading."""
    global _values
    before = _values
    try:  # an interrupt comes in a call or where it yields, so within this or before anything changed
        if before is None:
            _values = {}
        yield
    finally:
        _values = before


def _register(module: Module, name: str, tensor: Tensor) -> None:
    if isinstance(tensor, Parameter):
        module.register_parameter(name, tensor)
    else:
        module.register_buffer(name, tensor)


class ParametrizationList(ModuleList):
    """The modules that compute one tensor, one after the other, from `original`, or `original0`, ….

    unsafe: leave out the checks that dtype and shape stay what they were.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False):
        if not len(modules):
            raise ArgumentValueError("ParametrizationList(modules): at least one module is needed")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        with no_grad():
            new: Any = original
            for module in reversed(self):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass
        if not isinstance(new, (Tensor, Sequence)):
            raise ArgumentValueError(
                f"right_inverse must return a Tensor or a Sequence of tensors, not {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            if original.dtype is not new.dtype:
                raise ArgumentValueError(
                    "where right_inverse outputs one tensor, it may not change the dtype",
                    f"original: {original.dtype}, right_inverse: {new.dtype}",
                )
            with no_grad():
                state.put(original, new)
            _register(self, "original", original)
        else:
            for i, part in enumerate(new):
                if not isinstance(part, Tensor):
                    raise ArgumentValueError(
                        f"right_inverse must return tensors; element {i} of the sequence with type "
                        f"{type(part).__name__} is none"
                    )
                if isinstance(original, Parameter):
                    part = Parameter(part.detach(), original.requires_grad)
                part.requires_grad_(original.requires_grad)
                _register(self, f"original{i}", part)
        if not unsafe:
            _same("Registering a parametrization", self(), shape, dtype)

    def _originals(self) -> tuple[Tensor, ...]:
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        return tuple(getattr(self, name) for name in names)

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals to what the modules would compute `value` from.  Raises ArgumentError."""
        with no_grad():
            new: Any = value
            for module in reversed(self):
                if not hasattr(module, "right_inverse"):
                    raise ArgumentError(
                        f"{type(module).__name__} has no right_inverse(value): the tensor can't be assigned",
                        "define it on the parametrization",
                    )
                new = module.right_inverse(new)
            if self.is_tensor and not isinstance(new, Tensor):
                raise ArgumentValueError(f"right_inverse must return a tensor, not {type(new).__name__}")
            parts = (new,) if self.is_tensor else tuple(new)
            if len(parts) != self.ntensors:
                raise ArgumentValueError(
                    f"right_inverse must return {self.ntensors} tensors, as before; it returned {len(parts)}"
                )
            for i, (part, here) in enumerate(zip(parts, self._originals())):
                if not isinstance(part, Tensor) or part.dtype is not here.dtype:
                    raise ArgumentValueError(
                        f"tensor {i} that right_inverse returns must be {here.dtype}, as the original",
                        f"got: {part.dtype if isinstance(part, Tensor) else type(part).__name__}",
                    )
                state.put(here, part)

    def forward(self) -> Tensor:
        """The tensor, with its history."""
        first, *others = self._modules.values()
        x = first(*self._originals())
        for module in others:
            x = module(x)
        return x


def _same(what: str, got: Any, shape: Any, dtype: Any) -> None:
    """Raise where a tensor is none, or has another dtype or shape."""
    if not isinstance(got, Tensor):
        raise ArgumentValueError(f"{what} must return a tensor, not {type(got).__name__}")
    hint = "register_parametrization(..., unsafe=True) leaves this check out"
    if got.dtype is not dtype:
        raise ArgumentValueError(
            f"{what} may not change the dtype: the tensor must have the same dtype, {dtype}, not {got.dtype}",
            hint,
        )
    if got.shape != shape:
        raise ArgumentValueError(
            f"{what} may not change the shape of the tensor: it must have the same shape as before, "
            f"{[*shape]}, not {[*got.shape]}",
            hint,
        )


def _no_pickle(self: Module) -> Any:
    raise StateError(
        "parametrized modules can't be pickled, as their class is made at run time",
        "save their state_dict() and load it into a module that is parametrized alike",
    )


def _deep(self: Module, memo: dict) -> Module:
    """A copy whose class is a copy too, as each instance has one of its own."""
    kind = type(self)
    made = kind.__new__(kind)
    memo[id(self)] = made
    made.__setstate__(copy.deepcopy(Module.__getstate__(self), memo))
    own = {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__")}
    object.__setattr__(made, "__class__", type(kind.__name__, kind.__bases__, own))
    return made


def _inject_class(module: Module) -> None:
    """Make the class of one module its own, so that a property can stand on it."""
    kind = type(module)
    own: dict[str, Any] = {"__getstate__": _no_pickle, "__doc__": kind.__doc__, "__module__": kind.__module__}
    if not hasattr(kind, "__deepcopy__"):
        own["__deepcopy__"] = _deep
    module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), own)


def _computed(name: str) -> property:
    """The property that stands where the tensor stood."""

    def read(self: Any) -> Tensor:
        found = self.parametrizations[name]
        if _values is None:
            return found()
        key = id(self), name
        if key not in _values:
            _values[key] = found()
        return _values[key]

    def write(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(read, write)


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Have a parameter or buffer be `parametrization(original)` whenever it is read; return the module.

    A second one is applied to what the first computes.  What the module computed from is in
    `module.parametrizations.<name>.original`; a parametrization with `right_inverse(value)` says what that
    is, and lets the tensor be assigned.  unsafe: leave out the checks that dtype and shape stay.
    Raises ArgumentValueError.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            before = getattr(module, tensor_name)
            after = parametrization(before)
            _same(f"what {type(parametrization).__name__} computes", after, before.shape, before.dtype)
            if hasattr(parametrization, "right_inverse"):
                try:
                    back = parametrization.right_inverse(after)
                except NotImplementedError:
                    pass
                else:
                    _same("right_inverse", back, before.shape, before.dtype)
        found = module.parametrizations[tensor_name]
        found.append(parametrization)
        found.unsafe |= unsafe
        return module
    if tensor_name not in module._buffers and tensor_name not in module._parameters:
        raise ArgumentValueError(
            f"{type(module).__name__} does not have a parameter, buffer or parametrized tensor "
            f"{tensor_name!r}"
        )
    made = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _inject_class(module)
        module.parametrizations = ModuleDict()
    setattr(type(module), tensor_name, _computed(tensor_name))
    module.parametrizations[tensor_name] = made
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrized tensors, or that one."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a tensor an ordinary parameter or buffer again; return the module.

    leave_parametrized: with the value that was computed; else with the original's.  Raises
    ArgumentValueError.
    """
    if not is_parametrized(module, tensor_name):
        raise ArgumentValueError(f"{type(module).__name__} does not have a parametrization on {tensor_name}")
    found = module.parametrizations[tensor_name]
    if found.is_tensor:
        original = found.original
        if leave_parametrized:
            with no_grad():
                state.put(original, getattr(module, tensor_name))
    elif not leave_parametrized:
        raise ArgumentValueError(
            f"{tensor_name} is computed from {found.ntensors} tensors: leave_parametrized=False has "
            "no original to leave",
            "remove_parametrizations(..., leave_parametrized=True)",
        )
    else:
        value = getattr(module, tensor_name)
        original = Parameter(value.detach()) if value.requires_grad else value
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if _values is not None:
        _values.pop((id(module), tensor_name), None)
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module).__bases__[0]
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Give one module the parametrizations and the originals of another; return it."""
    if not is_parametrized(from_module):
        return to_module
    wanted = [*from_module.parametrizations] if tensor_name is None else [tensor_name]
    for name in wanted:
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
        source = from_module.parametrizations[name]
        for module in source:
            register_parametrization(to_module, name, module, unsafe=source.unsafe)
        for given, here in zip(source._originals(), to_module.parametrizations[name]._originals()):
            state.put(here, given.clone())
    return to_module
