"""The base of all modules: named parameters, buffers and children, and a forward."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from types import FunctionType
from typing import Any

from ..ir.dtypes import DType, as_dtype, bfloat16, float16, float32, float64
from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError
from ..ir.pretended_gpus import is_index
from ..ir.types import Device
from ..runtime import Parameter, Tensor, modes, ops
from ..runtime.compound import Compound
from ..runtime.refusal import refuse
from ..runtime.shared_memory import share
from ..runtime.swapping import swap_tensors
from . import hooks as hooking
from . import state
from .epoch import advance, hand_out
from .hooks import Hook, RemovableHandle
from .members import (
    HOOKS,
    MEMBERS,
    PLAIN,
    Members,
    Names,
    Owner,
    Plain,
    Tracked,
    fields,
    is_kept,
    set_fields,
)
from .parameter import Buffer, is_lazy
from .state import attributes, conversion
from .text import framed, indented

EVERYWHERE = hooking.EVERYWHERE
# Offered here too, where PyTorch has them.
register_module_buffer_registration_hook = hooking.register_module_buffer_registration_hook
register_module_forward_hook = hooking.register_module_forward_hook
register_module_forward_pre_hook = hooking.register_module_forward_pre_hook
register_module_backward_hook = hooking.register_module_full_backward_hook
register_module_full_backward_hook = hooking.register_module_full_backward_hook
register_module_full_backward_pre_hook = hooking.register_module_full_backward_pre_hook
register_module_module_registration_hook = hooking.register_module_module_registration_hook
register_module_parameter_registration_hook = hooking.register_module_parameter_registration_hook


class _NoForward(ArgumentError, NotImplementedError):
    """A module without a forward was called."""


class Module(Plain):
    """A piece of a model: parameters, buffers and child modules under names, and `forward`, which computes.

    Assigning a `Parameter` or a `Module` to an attribute registers it under that name.  Calling the module
    runs `forward` between its hooks.

    Every write to an attribute of any module advances one counter, `lamina.nn.epoch.value`: as long as that
    number is the same, no module has changed, and a tracer need compare nothing else (see epoch.py for what
    it sees).
    """

    training: bool
    # On the class while `__init__` of a subclass has not called ours.
    _parameters: Members = None  # type: ignore[assignment]
    _buffers: Members = None  # type: ignore[assignment]
    _modules: Members = None  # type: ignore[assignment]
    _non_persistent_buffers_set: set[str]
    _call_hooks: dict[int, Hook]
    _state_hooks: dict[int, Hook]
    # Keys that a state may lack without an error.
    _optional_state: tuple[str, ...] = ()
    _version: int = 1
    # Whether `__init__` hands its arguments on to the next class: for classes with other bases beside Module.
    call_super_init: bool = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if (args or kwargs) and not self.call_super_init:
            raise ArgumentError(
                f"{type(self).__name__}: Module.__init__() takes no arguments; "
                f"{len(args) + len(kwargs)} were given"
            )
        own = fields(self)
        own["training"] = True
        for name in MEMBERS:
            own[name] = Members().belong(self)
        own["_non_persistent_buffers_set"] = Names()
        own.update({name: Tracked() for name in HOOKS})
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, value in list(
            vars(cls).items()
        ):  # `conv = F.conv2d`: in PyTorch built-ins, which bind nothing
            if (
                type(value) is FunctionType
                and value.__module__ == ops.__name__
                and "." not in value.__qualname__
            ):
                setattr(cls, name, staticmethod(value))

    # ---- running ----
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the module's outputs; each subclass has its own."""
        raise _NoForward(f"{type(self).__name__} can't be called: its class defines no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if modes.WITHIN and (answer := modes.local.within) is not None and not modes.local.levels:
            answered = answer(self, args, kwargs)
            if answered is not modes.UNSERVED:
                return answered
        try:  # as in `observed_call`; one more function would cost every call 70 ns
            if self._call_hooks:
                return hooking.call(self, args, kwargs)
            return self.forward(*args, **kwargs)
        except Exception as error:
            refuse(error, type(self).__name__, self.forward, args, kwargs)

    # By PyTorch's names, for wrappers that call a module past their own `__call__`.
    _call_impl = _wrapped_call_impl = __call__

    # ---- attributes ----
    @property
    def __dict__(self) -> dict[str, Any]:
        hand_out(id(self), partial(is_kept, Owner(self)))  # who asks for it may write into it
        return fields(self)

    @__dict__.setter
    def __dict__(self, attributes: dict[str, Any]) -> None:
        set_fields(self, attributes)
        self._own()

    def _own(self) -> None:
        """Make the dictionaries of members this module's, after attributes were copied from another."""
        own = fields(self)
        for name in MEMBERS:
            if name in own:
                own[name] = Members(own[name]).belong(self)
        if "_non_persistent_buffers_set" in own:
            own["_non_persistent_buffers_set"] = Names(own["_non_persistent_buffers_set"])
        for name in HOOKS:
            if name in own:
                copied, own[name] = own[name], Tracked(own[name])
                for attribute, value in list(own.items()):
                    if isinstance(value, RemovableHandle) and value.hooks is copied:
                        own[attribute] = value.within(own[name])
        advance()

    def __getattr__(self, name: str) -> Any:
        for members in (self._parameters, self._buffers, self._modules):
            if members and name in members:  # a class calls it, or a property of this name has failed
                return members[name]
        hint = "" if "_call_hooks" in fields(self) else "; call super().__init__() first"
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'{hint}")

    def __setattr__(self, name: str, value: Any) -> None:
        if self._parameters is not None and self._parameters.owner() is not self:
            self._own()
        if isinstance(value, Parameter):
            self._make_room("parameters", self._parameters, name)
            self.register_parameter(name, value)
            return
        if isinstance(value, Module):
            self._make_room("modules", self._modules, name)
            self._modules[name] = hooking.registered("module", self, name, value)
            return
        if getattr(type(value), "wraps_module", False):  # a traced one, which is called in its place
            self._make_room("modules", self._modules, name)
            self._modules[name] = hooking.registered("module", self, name, value.__wrapped__)
            object.__setattr__(self, name, value)
            advance()
            return
        if isinstance(value, Tensor) and isinstance(value, Buffer):
            persistent = value.persistent
            self._make_room("buffers", self._buffers, name)
            self.register_buffer(name, value, persistent)
            return
        if self._parameters:
            if name in self._parameters:
                if value is not None:
                    raise ArgumentError(
                        f"{type(self).__name__}.{name} is a parameter: only a Parameter or None can take its "
                        f"place, not a {type(value).__name__}",
                        f"to change its values, with no_grad(): module.{name}.copy_(values)",
                    )
                self._parameters[name] = None
                return
        if self._buffers and name in self._buffers:
            if value is not None and not isinstance(value, Tensor):
                raise ArgumentError(
                    f"{type(self).__name__}.{name} is a buffer: only a tensor or None can take its place, "
                    f"not a {type(value).__name__}"
                )
            self._buffers[name] = value
            return
        if self._modules and name in self._modules:
            if value is not None:
                raise ArgumentError(
                    f"{type(self).__name__}.{name} is a module: only a Module or None can take its place, "
                    f"not a {type(value).__name__}"
                )
            self._modules[name] = None
            return
        object.__setattr__(self, name, value)
        if name == "__class__":
            self._own()
        advance()

    def _early(self, kind: str) -> str:
        return (
            f"cannot assign {kind} before Module.__init__() call\n"
            f"  {type(self).__name__}.__init__ must begin with super().__init__()"
        )

    def _make_room(self, kind: str, members: dict[str, Any], name: str) -> None:
        """Take `name` away from whatever else it names, before it becomes one of `members`."""
        if members is None:
            raise AttributeError(self._early(kind))
        for other in (self._parameters, self._buffers, self._modules):
            if other is not members and name in other:
                del other[name]
        self._non_persistent_buffers_set.discard(name)
        if name not in members:
            fields(self).pop(name, None)

    def __delattr__(self, name: str) -> None:
        for members in (self._parameters, self._buffers, self._modules):
            if members and name in members:
                del members[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)
        advance()

    def __dir__(self) -> list[str]:
        members = (self._parameters or {}, self._buffers or {}, self._modules or {})
        return sorted({*dir(type(self)), *fields(self), *chain.from_iterable(members)})

    def _check_name(self, kind: str, members: dict[str, Any], name: Any) -> None:
        if members is None:
            raise AttributeError(self._early(kind))
        if not isinstance(name, str):
            raise ArgumentError(f"a {kind} name should be a string. Got {type(name).__name__}")
        if "." in name or name == "":
            raise KeyError(f"the name of a {kind} can't be empty or contain a dot: {name!r}")
        if name not in members and hasattr(self, name):
            raise KeyError(f"attribute {name!r} already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter under `name`.

        None keeps the name for one that is left out.  Raises KeyError, ArgumentError.
        """
        self._check_name("parameter", self._parameters, name)
        if param is not None:
            if not isinstance(param, Parameter):
                raise ArgumentError(
                    f"a parameter must be a Parameter or None, not {type(param).__name__}: {name!r}"
                )
            if not param.is_leaf:
                raise ArgumentError(
                    f"a parameter can't be the result of a computation: {name!r}",
                    "make a new Parameter(x.detach()), or compute x in forward()",
                )
        self._parameters[name] = hooking.registered("parameter", self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that is state but no parameter; the state dict has those that are persistent."""
        self._check_name("buffer", self._buffers, name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise ArgumentError(f"a buffer must be a tensor or None, not {type(tensor).__name__}: {name!r}")
        self._buffers[name] = hooking.registered("buffer", self, name, tensor)
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(
            name
        )

    def register_module(self, name: str, module: Module | None) -> None:
        """Add a child module under `name`."""
        self.add_module(name, module)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module under `name`.

        Raises KeyError for a name that is taken, ArgumentError for no module.
        """
        self._check_name("module", self._modules, name)
        if getattr(type(module), "wraps_module", False):
            module = module.__wrapped__
        if module is not None and not isinstance(module, Module):
            raise no_child(module, name)
        self._modules[name] = hooking.registered("module", self, name, module)

    # ---- what is inside ----
    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it with dotted names, each once unless `remove_duplicate` is False."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                below = f"{prefix}.{name}" if prefix else name
                yield from child.named_modules(memo, below, remove_duplicate)

    def _named_members(
        self, get_members_fn: Callable[[Module], Iterable], prefix: str = "", recurse: bool = True,
        remove_duplicate: bool = True,
    ) -> Iterator[tuple[str, Any]]:  # fmt: skip
        """What `get_members_fn` gives of this module and those below, with dotted names; None is left out."""
        seen: set[int] = set()
        inside = self.named_modules(None, prefix, remove_duplicate) if recurse else [(prefix, self)]
        for path, module in inside:
            for name, value in get_members_fn(module):
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield (f"{path}.{name}" if path else name), value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Parameters with their dotted names; a shared one once unless `remove_duplicate` is False."""
        return self._named_members(
            lambda module: module._parameters.items(), prefix, recurse, remove_duplicate
        )

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers with their dotted names; a shared one once unless `remove_duplicate` is False."""
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, with their names, each once."""
        seen: set[int] = set()
        for name, child in self._modules.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """Parameters, each once."""
        return (value for _, value in self.named_parameters(recurse=recurse))

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Buffers, each once."""
        return (value for _, value in self.named_buffers(recurse=recurse))

    def children(self) -> Iterator[Module]:
        """The modules directly inside, each once."""
        return (child for _, child in self.named_children())

    def modules(self) -> Iterator[Module]:
        """This module and all below it, each once."""
        return (module for _, module in self.named_modules())

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path; "" is this one.  Raises AttributeError."""
        found: Any = self
        for name in target.split(".") if target else ():
            inside = getattr(found, name, None)
            if not isinstance(inside, Module):
                raise AttributeError(
                    f"{type(found).__name__} has no module {name!r}, asked for by {target!r}"
                )
            found = inside
        return found

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a module at a dotted path.  strict: one must be there already.

        Raises AttributeError where the path leads nowhere, ArgumentValueError, ArgumentError.
        """
        path, _, name = target.rpartition(".") if isinstance(target, str) else ("", "", "")
        if not name:
            raise ArgumentValueError(f"set_submodule(target): the path of a child is wanted, not {target!r}")
        if not isinstance(module, Module):
            raise no_child(module, target)
        parent = self.get_submodule(path)
        here = getattr(parent, name, None)
        if here is None if strict else False:
            raise AttributeError(f"{type(parent).__name__} has no module {name!r}, asked for by {target!r}")
        if here is not None and not isinstance(here, Module):
            raise AttributeError(f"{type(parent).__name__}.{name} is no module, but a {type(here).__name__}")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path.  Raises AttributeError."""
        return self._get_member("parameter", target)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path.  Raises AttributeError."""
        return self._get_member("buffer", target)

    def _get_member(self, kind: str, target: str) -> Any:
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        members = owner._parameters if kind == "parameter" else owner._buffers
        if name not in members:
            raise AttributeError(f"{type(owner).__name__} has no {kind} {name!r}, asked for by {target!r}")
        return members[name]

    # ---- changing all of it ----
    def apply(self, fn: Callable[[Module], Any]) -> Module:
        """Call `fn` on every module below, then on this one; return it."""
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Module:
        """Replace the data of parameters, gradients and buffers by `fn` of it, in place."""
        for module in self.modules() if recurse else (self,):
            for name, param in list(module._parameters.items()):
                if param is None:
                    continue
                grad = param.grad
                changed = fn(param.data)
                if (conversion.swap or type(changed)._dispatches) and not is_lazy(param):
                    param.grad = None
                    swap_tensors(param, Parameter(changed, param.requires_grad))
                    param.grad = None if grad is None else fn(grad)
                elif conversion.overwrite and not conversion.swap:
                    module._parameters[name] = made = Parameter(changed, param.requires_grad)
                    made.grad = None if grad is None else fn(grad)
                elif isinstance(changed, Compound) or changed._data is not param._data:
                    param.data = changed
                    if grad is not None:
                        param.grad = fn(grad)
            for name, buffer in list(module._buffers.items()):
                if is_lazy(buffer):
                    buffer.data = fn(buffer.data)
                elif buffer is not None:
                    module._buffers[name] = fn(buffer)
        advance()
        return self

    def to(self, *args: Any, **kwargs: Any) -> Module:
        """Move to a device, or floating and complex parameters and buffers to a dtype, in place.

        `to(float64)`, `to("cpu")`, `to(device, dtype)`, `to(tensor)`.  Raises DTypeError for a dtype
        that is neither floating nor complex.
        """
        device, dtype = destination(args, kwargs)
        if dtype is not None and not dtype.inexact:
            raise DTypeError(
                f"{type(self).__name__}.to(dtype): parameters are floating or complex, which {dtype} is not"
            )

        def moved(x: Tensor) -> Tensor:
            wanted = dtype if dtype is not None and x.dtype.inexact else x.dtype
            return x.to(wanted) if device is None else x.to(device, wanted)

        return self._apply(moved)

    def type(self, dst_type: DType) -> Module:
        """Convert every parameter and buffer, whatever its dtype, in place."""
        return self._apply(lambda x: x.to(dst_type))

    def float(self) -> Module:
        """Convert floating parameters and buffers to float32, in place."""
        return Module.to(self, float32)

    def double(self) -> Module:
        """Convert floating parameters and buffers to float64, in place."""
        return Module.to(self, float64)

    def half(self) -> Module:
        """Convert floating parameters and buffers to float16, in place."""
        return Module.to(self, float16)

    def bfloat16(self) -> Module:
        """Convert floating parameters and buffers to bfloat16, in place."""
        return Module.to(self, bfloat16)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """Give parameters and buffers, in place, new memory on a device; what it holds is left open."""

        def emptied(x: Tensor) -> Tensor:
            if isinstance(x, Compound) and x.by_parts:
                return ops.empty_like(x, device=device or x.device)
            return ops.empty(x.shape, dtype=x.dtype, device=device or x.device)

        return self._apply(emptied, recurse)

    def share_memory(self) -> Module:
        """Move parameters, their gradients and buffers, in place, into memory that other processes see.

        Multiprocessing then hands the same memory to processes, and what one writes all see.
        Raises DeviceError, StateError: see `Tensor.share_memory_`.
        """
        tensors = [*self.parameters(), *self.buffers()]
        if any(is_lazy(x) for x in tensors):
            raise ArgumentValueError(
                "share_memory: can't share memory on an uninitialized parameter or buffer, nor on others"
            )
        share([*tensors, *(x.grad for x in tensors if x.grad is not None)])
        advance()
        return self

    def cpu(self) -> Module:
        """Move to the CPU, in place."""
        return Module.to(self, "cpu")

    def cuda(self, device: Any = None) -> Module:
        """Move to a GPU, in place."""
        return Module.to(
            self, Device("cuda", device) if isinstance(device, int) else Device(device or "cuda")
        )

    def train(self, mode: bool = True) -> Module:
        """Put this module and all below it into training mode, or into evaluation mode."""
        if not isinstance(mode, bool):
            raise ArgumentError(
                "train(mode): training mode is expected to be boolean; a bool is wanted, not "
                f"{type(mode).__name__}"
            )
        self.training = mode
        for child in self.children():
            child.train(mode)
        return self

    def eval(self) -> Module:
        """Put this module and all below it into evaluation mode."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Ask (or stop asking) for the gradients of all parameters."""
        for param in self.parameters():
            param.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros."""
        for param in self.parameters():
            param = param if param._gathered is None else param._gathered
            grad = param.grad
            if grad is not None:
                if set_to_none:
                    param.grad = None
                else:
                    param.grad = grad.detach().zero_()

    # ---- hooks ----
    def _hooks_of(self, kind: str) -> list[Hook]:
        """The hooks of one kind, in the order in which they are called."""
        if not kind.startswith(("forward", "backward")):
            return [hook for hook in self._state_hooks.values() if hook.kind == kind]
        found = [hook for hook in self._call_hooks.values() if hook.kind == kind]
        return [hook for hook in EVERYWHERE.values() if hook.kind == kind] + found if EVERYWHERE else found

    def register_forward_pre_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args)` before forward; what it returns, unless None, takes the arguments' place.

        with_kwargs: `hook(module, args, kwargs)`, which returns None or (args, kwargs).
        """
        return hooking.add(self._call_hooks, Hook("forward_pre", hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """Call `hook(module, args, output)` after forward; what it returns, unless None, replaces the output.

        with_kwargs: `hook(module, args, kwargs, output)`.  always_call: also, with None, when forward raised.
        """
        return hooking.add(self._call_hooks, Hook("forward", hook, with_kwargs, always_call), prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_input, grad_output)` when the gradients of the inputs are known.

        Both are tuples; a returned tuple takes the place of grad_input.
        """
        return hooking.add(self._call_hooks, Hook("backward", hook), prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(module, grad_output)` before its backward; a returned tuple replaces grad_output."""
        return hooking.add(self._call_hooks, Hook("backward_pre", hook), prepend)

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(module, prefix, keep_vars)` before the state is taken."""
        return hooking.add(self._state_hooks, Hook("save_pre", hook))

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(module, state_dict, prefix, metadata)` with the state taken, which it may change."""
        return hooking.add(self._state_hooks, Hook("save", hook))

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        """As `register_state_dict_post_hook`; what the hook returns, unless None, takes the state's place."""
        return hooking.add(self._state_hooks, Hook("save_replacing", hook))

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call a hook before loading; it may change the state_dict, which is a copy, and the lists.

        `hook(module, state_dict, prefix, metadata, strict, missing_keys, unexpected_keys, errors)`.
        """
        return hooking.add(self._state_hooks, Hook("load_pre", hook))

    def _register_load_state_dict_pre_hook(
        self, hook: Callable, with_module: bool = False
    ) -> RemovableHandle:
        return hooking.add(self._state_hooks, Hook("load_pre", hook, with_module=with_module))

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(module, incompatible_keys)` after loading."""
        return hooking.add(self._state_hooks, Hook("load", hook))

    # ---- state ----
    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Parameters and persistent buffers by dotted name; they share the module's memory.

        keep_vars: the parameters themselves, with their history, rather than detached tensors.
        """
        return state.save(self, state.empty() if destination is None else destination, prefix, keep_vars)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        """Write this module's own state, without its children's, into `destination`."""
        for slot in state.slots(self, prefix):
            value = slot.members[slot.name]
            destination[slot.key] = value if keep_vars else value.detach()
        if self._has_extra_state():
            destination[prefix + state.EXTRA] = self.get_extra_state()

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own state, without its children's; a subclass may change the state before."""
        state.load_own(
            self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> state.IncompatibleKeys:
        """Copy a state into the module's parameters and buffers; return the keys that had no partner.

        strict: every key must have one.  assign: take the state's tensors in place of the module's rather
        than copying.  Raises StateError with all that does not fit,
        before anything was changed; a tensor that
        fits and still can't be copied (it has no values) is told when the others are in their places.
        """
        return state.load(self, state_dict, strict, assign)

    def _has_extra_state(self) -> bool:
        """Whether the class defines `get_extra_state`, whose result goes into the state dict."""
        return type(self).get_extra_state is not Module.get_extra_state

    def get_extra_state(self) -> Any:
        """What else belongs to the state; a subclass that has any defines this and `set_extra_state`."""
        return None

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` gave.  Raises ArgumentError where a class defines only that."""
        raise ArgumentError(f"{type(self).__name__} defines get_extra_state() but not set_extra_state(state)")

    def __getstate__(self) -> dict[str, Any]:
        own = dict(fields(self))
        for name in MEMBERS:
            if name in own:
                for member in own[name]:
                    own.pop(member, None)
                own[name] = dict(own[name])  # a saved module names no class but those of modules
        if "_non_persistent_buffers_set" in own:
            own["_non_persistent_buffers_set"] = set(own["_non_persistent_buffers_set"])
        for name in HOOKS:
            if not own.get(name, True):
                own[name] = {}
        return own

    def __setstate__(self, state: dict[str, Any]) -> None:
        fields(self).update(attributes(type(self), state))
        self._own()

    # ---- text ----
    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What stands between the parentheses of this module's line."""
        return ""

    def __repr__(self) -> str:
        lines = [f"({name}): {indented(repr(child))}" for name, child in self._modules.items()]
        return framed(self._get_name(), self.extra_repr(), lines)


for _kind in ("forward", "forward_pre", "backward", "backward_pre"):
    setattr(Module, f"_{_kind}_hooks", hooking.shown(_kind))
    globals()[f"_global_{_kind}_hooks"] = hooking.Shown(
        EVERYWHERE, _kind
    )  # of all modules, as PyTorch shows them
for _name, _kind in {
    "state_dict": "save", "state_dict_pre": "save_pre",
    "load_state_dict_pre": "load_pre", "load_state_dict_post": "load",
}.items():  # fmt: skip
    setattr(Module, f"_{_name}_hooks", hooking.shown(_kind, hooks="_state_hooks"))
for _kind in ("parameter", "buffer", "module"):
    globals()[f"_global_{_kind}_registration_hooks"] = hooking.Shown(hooking.REGISTERED, _kind)
Module._forward_hooks_always_called = hooking.shown("forward", "always_call")  # type: ignore[attr-defined]
Module._forward_hooks_with_kwargs = hooking.shown("forward", "with_kwargs")  # type: ignore[attr-defined]
Module._forward_pre_hooks_with_kwargs = hooking.shown("forward_pre", "with_kwargs")  # type: ignore[attr-defined]
_global_forward_hooks_always_called = hooking.Shown(EVERYWHERE, "forward", "always_call")


def observed_call(self: Module, *args: Any, **kwargs: Any) -> Any:
    """What `Module.__call__` does by itself: the form of it that a recorder follows."""
    try:
        if self._call_hooks:
            return hooking.call(self, args, kwargs)
        return self.forward(*args, **kwargs)
    except Exception as error:
        refuse(error, type(self).__name__, self.forward, args, kwargs)


def _called_with_every_hook(self: Module, *args: Any, **kwargs: Any) -> Any:
    """What a module's call is while there are hooks of all modules."""
    try:
        return hooking.call(self, args, kwargs)
    except Exception as error:
        refuse(error, type(self).__name__, self.forward, args, kwargs)


_called_with_every_hook.__name__ = "__call__"
_PLAIN_CALL = Module.__call__


def _follow_hooks(some: bool) -> None:
    Module.__call__ = _called_with_every_hook if some else _PLAIN_CALL  # type: ignore[method-assign]
    advance()


EVERYWHERE.changed = _follow_hooks


def no_child(given: Any, name: str) -> ArgumentError:
    """Something that is no module where a child belongs, and what was meant if that can be told."""
    remedies = []
    if isinstance(given, type) and issubclass(given, Module):
        remedies = [f"{given.__name__} is the class: {given.__name__}() makes a module"]
    elif isinstance(given, (list, tuple)) and given and isinstance(given[0], Module):
        remedies = ["unpack it: Sequential(*modules), or keep it as ModuleList(modules)"]
    elif callable(given):
        remedies = ["only modules have parameters: nn.ReLU() is the module of the function relu, and so on"]
    return ArgumentError(f"a child must be a Module or None, not {type(given).__name__}: {name!r}", *remedies)


def destination(args: tuple, kwargs: dict[str, Any]) -> tuple[Any, DType | None]:
    """The device and the dtype that the arguments of `to` name."""
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    for ignored in ("non_blocking", "copy", "memory_format"):
        kwargs.pop(ignored, None)
    tensor = kwargs.pop("tensor", None)
    for arg in (*args, tensor):
        if isinstance(arg, (DType, type)):
            dtype = as_dtype(arg)
        elif isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (str, Device)) or is_index(arg):
            device = arg
        elif arg is not None and not isinstance(arg, bool):  # a bool is non_blocking
            raise ArgumentError(f"Module.to: takes a device, a dtype or a tensor, not {type(arg).__name__}")
    if kwargs:
        raise ArgumentError(f"Module.to: takes device, dtype or tensor, got {', '.join(kwargs)}")
    return device, dtype


PLAIN.append(Module.__getattr__.__code__)
