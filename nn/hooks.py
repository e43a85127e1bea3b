"""Functions that a module calls before and after its forward, its backward, and its loading and saving."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir.errors import ArgumentError
from ..runtime import Tensor
from ..runtime.function import Function
from ..runtime.methods import RemovableHandle
from .members import Tracked

if TYPE_CHECKING:
    from .module import Module


class Hook(NamedTuple):
    """A function, when it is called, and with what."""

    kind: str
    function: Callable
    with_kwargs: bool = False
    always_call: bool = False
    with_module: bool = True


def add(hooks: dict[int, Hook], hook: Hook, prepend: bool = False) -> RemovableHandle:
    """Enter a hook behind (or before) the others."""
    if not callable(hook.function):
        raise ArgumentError(f"a hook must be callable, not {type(hook.function).__name__}")
    handle = RemovableHandle(hooks)
    others = dict(hooks) if prepend else {}
    for key in others:
        del hooks[key]
    hooks[handle.id] = hook
    hooks.update(others)
    return handle


class Everywhere(Tracked):
    """The hooks of all modules' calls, ahead of their own.

    changed: told whether there are any, so that calls need not ask as long as there are none.
    """

    __slots__ = ("changed",)
    changed: Callable[[bool], None]

    def _put(self, key: Any, value: Any) -> None:
        super()._put(key, value)
        self.changed(True)

    def _dropped(self, key: Any) -> None:
        super()._dropped(key)
        self.changed(bool(self))


EVERYWHERE = Everywhere()
# Those called when a parameter, a buffer or a child is registered with any module.
REGISTERED: dict[int, Hook] = Tracked()


def registered(kind: str, module: Module, name: str, value: Any) -> Any:
    """What is registered in the end, after the hooks for that kind have seen it."""
    for hook in [*REGISTERED.values()] if REGISTERED else ():
        if hook.kind == kind and (replaced := hook.function(module, name, value)) is not None:
            value = replaced
    return value


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, args)` before every module's forward, ahead of the module's own hooks."""
    return add(EVERYWHERE, Hook("forward_pre", hook))


def register_module_forward_hook(
    hook: Callable, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, args, output)` after every module's forward, ahead of the module's own hooks."""
    return add(EVERYWHERE, Hook("forward", hook, with_kwargs, always_call))


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` for every module, ahead of the module's own hooks."""
    return add(EVERYWHERE, Hook("backward", hook))


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, grad_output)` for every module, ahead of the module's own hooks."""
    return add(EVERYWHERE, Hook("backward_pre", hook))


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, name, param)` when a parameter is registered; what it returns takes its place."""
    return add(REGISTERED, Hook("parameter", hook))


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, name, buffer)` when a buffer is registered; what it returns takes its place."""
    return add(REGISTERED, Hook("buffer", hook))


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, name, child)` when a child is registered; what it returns takes its place."""
    return add(REGISTERED, Hook("module", hook))


BOUND = "load_pre", True  # those that PyTorch shows with their module as an argument


class Shown(MutableMapping):
    """One kind of a module's hooks, as PyTorch shows it: functions by the ids of their handles."""

    def __init__(self, hooks: dict[int, Hook], kind: str, only: str = "", module: Module | None = None):
        self.hooks, self.kind, self.only, self.module = hooks, kind, only, module

    def __getitem__(self, key: int) -> Callable:
        if key not in [*self]:
            raise KeyError(key)
        hook = self.hooks[key]
        return (
            partial(hook.function, self.module) if (hook.kind, hook.with_module) == BOUND else hook.function
        )

    def __setitem__(self, key: int, function: Callable) -> None:
        self.hooks[key] = Hook(self.kind, function)._replace(**({self.only: True} if self.only else {}))

    def __delitem__(self, key: int) -> None:
        if key not in [*self]:
            raise KeyError(key)
        del self.hooks[key]

    def __iter__(self) -> Iterator[int]:
        shown = [key for key, hook in self.hooks.items() if hook.kind.removesuffix("_replacing") == self.kind]
        return iter([key for key in shown if getattr(self.hooks[key], self.only)] if self.only else shown)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def shown(kind: str, only: str = "", hooks: str = "_call_hooks") -> property:
    """The attribute that shows one kind of a module's hooks, or of these those whose field `only` is true."""
    return property(lambda module: Shown(getattr(module, hooks), kind, only, module))


def call(module: Module, args: tuple, kwargs: dict[str, Any]) -> Any:
    """Run a module's forward between its hooks."""
    waiting = module._hooks_of("forward")
    try:
        for hook in module._hooks_of("forward_pre"):
            args, kwargs = before(module, hook, args, kwargs)
        backward = module._hooks_of("backward"), module._hooks_of("backward_pre")
        gate = Gate(module, *backward) if any(backward) else None
        if gate is not None:
            args = gate.enter(args)
        output = module.forward(*args, **kwargs)
        while waiting:
            hook = waiting.pop(0)
            given = (module, args, kwargs, output) if hook.with_kwargs else (module, args, output)
            replaced = hook.function(*given)
            output = output if replaced is None else replaced
    except Exception:
        for hook in waiting:
            if hook.always_call:
                _call_after_failure(module, hook, args, kwargs)
        raise
    return output if gate is None else gate.leave(output)


def _call_after_failure(module: Module, hook: Hook, args: tuple, kwargs: dict[str, Any]) -> None:
    """Call a hook that is always called; that it fails too is a warning: the first error is raised."""
    try:
        hook.function(*((module, args, kwargs, None) if hook.with_kwargs else (module, args, None)))
    except Exception as error:
        warnings.warn(
            f"{type(module).__name__}: a forward hook that is always called failed, too: {error}",
            stacklevel=2,
        )


def before(module: Module, hook: Hook, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """The arguments of forward after one pre-hook has seen them."""
    if not hook.with_kwargs:
        replaced = hook.function(module, args)
        if replaced is None:
            return args, kwargs
        return replaced if isinstance(replaced, tuple) else (replaced,), kwargs
    replaced = hook.function(module, args, kwargs)
    if replaced is None:
        return args, kwargs
    if not isinstance(replaced, tuple) or len(replaced) != 2:
        raise ArgumentError(
            "a forward pre-hook with_kwargs must return None or a tuple (args, kwargs)", f"got: {replaced!r}"
        )
    return replaced


class Pass(Function):
    """Hand tensors on unchanged, and their cotangents, once all are there, to a function."""

    @staticmethod
    def forward(ctx: Any, seen: Callable, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.seen = seen
        return tuple(x.view_as(x) for x in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple:
        return (None, *ctx.seen(grads))


class Gate:
    """One call of a module that has backward hooks: its inputs and its outputs pass through a `Pass` each.

    The cotangents of the outputs arrive first and are kept; when those of the inputs arrive, the hooks are
    called with both.  Where no input wants a gradient, they are called as soon as those of the outputs are
    there.
    """

    def __init__(self, module: Module, after: list[Hook], ahead: list[Hook]):
        self.module, self.after, self.ahead = module, after, ahead
        self.grad_output: tuple | None = None  # of the backward that is under way
        self.positions: list[int] = []  # of the inputs that want gradients
        self.count = 0

    def enter(self, args: tuple) -> tuple:
        """The inputs, so that their cotangents come by."""
        self.count = len(args)
        self.positions = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]
        if not self.positions or not self.after:
            return args
        passed = list(args)
        for i, x in zip(self.positions, Pass.apply(self.inputs, *(args[i] for i in self.positions))):
            passed[i] = x
        return tuple(passed)

    def leave(self, output: Any) -> Any:
        """The outputs, so that their cotangents come by."""
        several = isinstance(output, tuple)
        if not several and not isinstance(output, Tensor):
            warnings.warn(
                f"{type(self.module).__name__} has backward hooks, which are not called: its output should "
                f"be a Tensor or a tuple of Tensors, and is a {type(output).__name__}",
                stacklevel=2,
            )
            return output
        found = list(output) if several else [output]
        at = [i for i, x in enumerate(found) if isinstance(x, Tensor) and x.requires_grad]
        if not at:
            return output
        passed = Pass.apply(lambda grads: self.outputs(grads, at, len(found)), *(found[i] for i in at))
        for i, x in zip(at, passed):
            found[i] = x
        if not several:
            return found[0]
        return type(output)(*found) if hasattr(output, "_fields") else tuple(found)

    def outputs(self, grads: tuple, at: list[int], count: int) -> tuple:
        """Keep the cotangents of the outputs, after the backward pre-hooks."""
        every: list = [None] * count
        for i, g in zip(at, grads):
            every[i] = g
        grad_output = tuple(every)
        for hook in self.ahead:
            replaced = hook.function(self.module, grad_output)
            if replaced is not None:
                grad_output = self.replaced(replaced, grad_output)
        self.grad_output = grad_output
        if not self.positions:
            for hook in self.after:
                returned = hook.function(self.module, (None,) * self.count, grad_output)
                if any(x is not None for x in (returned if isinstance(returned, tuple) else (returned,))):
                    raise ArgumentError(
                        f"{type(self.module).__name__}: a backward hook can't return gradients where no "
                        "input requires gradient",
                        "return None",
                    )
        return tuple(grad_output[i] for i in at)

    def inputs(self, grads: tuple) -> tuple:
        """Hand the cotangents of inputs and outputs to the backward hooks.

        A second derivative may flow to the inputs without passing through the outputs: it is none of theirs.
        """
        grad_output, self.grad_output = self.grad_output, None
        if grad_output is None:
            return grads
        every: list = [None] * self.count
        for i, g in zip(self.positions, grads):
            every[i] = g
        grad_input = tuple(every)
        for hook in self.after:
            replaced = hook.function(self.module, grad_input, grad_output)
            if replaced is not None:
                grad_input = self.replaced(replaced, grad_input)
        return tuple(grad_input[i] for i in self.positions)

    def replaced(self, by: Any, grads: tuple) -> tuple:
        """What a hook returned in place of as many gradients.  Raises ArgumentError for another number."""
        found = by if isinstance(by, tuple) else (by,)
        if len(found) != len(grads):
            raise ArgumentError(
                f"{type(self.module).__name__}: a backward hook returned the wrong number of gradients: "
                f"got {len(found)}, but expected {len(grads)}"
            )
        return found
