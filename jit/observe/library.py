"""Lamina's own functions, modules and optimizers: they run natively, where no code of the user's is in them.

Ops are heard by the recorder of ops.  What else library code reads is taken in whole (a module, an optimizer)
before it runs.  Where it would call the user's code, the library's Python is interpreted instead.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.dtypes import DType, default_dtype, float32, float64, home_of, int64
from ...ir.op import REGISTRY, Op, as_now
from ...nn import Module, ModuleList, stateless
from ...nn.epoch import advance
from ...nn.members import fields
from ...nn.module import EVERYWHERE, observed_call
from ...optim.optimizer import Optimizer, closure_of
from ...optim.schedule import warn_of_order
from ...runtime import Size, Tensor, autograd, creation, enable_grad, modes, ops, random
from ...runtime.autocasting import CASTING
from ...runtime.dispatch import run_general, torch_names
from ...runtime.inplace import write
from ...runtime.modes import _Mode
from ...runtime.refusal import unwrapped
from ...runtime.resolved import RESOLVING
from . import arrays
from .called_back import HANDED, CalledBack, calls_back
from .contents import DEEPEST
from .copies import is_bare
from .indices import is_point
from .kinds import ATOMS, MISSING, UNSUPPORTED, VIEWS, Function, lookup
from .lifted_numbers import MOST
from .names import is_librarys, library_class, library_names, room_of, runs_user_code, wraps_user
from .numbers import LIFTED, LiftedFloat, LiftedInt, LiftedSize, raw
from .on_values import on_values, records
from .policy import DENIED_LIBRARY, DENIED_ROOMS, FUNCTION_ROOMS, INTERPRETED_ROOMS
from .signatures import misfits
from .taking import numbers_that_change, take_module, take_optimizer

# Methods of modules that only read, and give iterators, dictionaries or text.
_READERS = frozenset((
    "named_modules", "named_parameters", "named_buffers", "named_children", "parameters", "buffers",
    "children", "modules", "state_dict", "zero_grad", "get_submodule", "get_parameter",
    "get_buffer", "_get_name", "_has_extra_state", "__dir__",
))  # fmt: skip
_ASKED_BY_READERS = ("named_modules", "named_children", "named_parameters", "_named_members", "state_dict",
                     "_save_to_state_dict", "get_extra_state", "__getattr__", "__getattribute__")  # fmt: skip
_OWN: Any = vars(Module)


def native_step(optimizer: Optimizer) -> None:
    """Update the parameters: the middle of `Optimizer.step`."""
    if modes.CHANGED:
        modes.tell("gradients")
    optimizer._opt_called = True
    optimizer._step_groups()


def observed_step(optimizer: Optimizer, closure: Callable | None = None) -> Any:
    """`Optimizer.step` in a form whose hooks and closure are interpreted."""
    for hook in [*optimizer._before_any, *optimizer._before]:
        given = (optimizer,) if closure is None else (optimizer, closure)
        returned = hook(optimizer, given, {})
        if returned is not None:
            closure = closure_of(returned, closure)
    loss = None
    if closure is not None:
        with enable_grad():
            loss = closure()
    native_step(optimizer)
    for hook in [*optimizer._after, *optimizer._after_any]:
        hook(optimizer, (optimizer,) if closure is None else (optimizer, closure), {})
    return loss


def observed_zero_grad(optimizer: Optimizer, set_to_none: bool = True) -> None:
    """`Optimizer.zero_grad` in a form that reads the groups, not the states that a user's class keeps."""
    for group in optimizer.param_groups:
        for p in group["params"]:
            if set_to_none:
                p.grad = None
            elif p.grad is not None:
                p.grad.detach_().zero_()


class Library(CalledBack):
    """Calls what is Lamina's own."""

    def library(self, function: types.FunctionType, args: tuple, kwargs: Any) -> Any:
        """Call a Python function of Lamina's."""
        if misfits(function, args, kwargs):
            return self.natively(f"{function.__name__}() takes other arguments", function, args, kwargs)
        handler = _HANDLERS.get(function)
        if handler is not None:
            return handler(self, function, args, kwargs)
        if wraps_user(function):
            if not calls_back(function):
                return self.user(function, args, kwargs)
            self.read_function(function)  # what a transform of a function gave: it calls that one back
        if self.numbers.about and function in _OF_SIZES and not self.refused:
            self.sizes.open_all(args, kwargs)
        if self.numbers.about and any(
            type(x) in LIFTED and not self.sizes.is_size(x) for x in (*args, *kwargs.values())
        ):
            found = self._with_lifted(function, args, kwargs)
            if found is not UNSUPPORTED:
                return found
        room, name = room_of(function.__code__.co_filename), function.__qualname__
        denied = DENIED_LIBRARY.get(name)
        if denied is not None and not (args and issubclass(type(args[0]), Module) and self.is_fresh(args[0])):
            return self.natively(f"{name}() {denied}", function, args, kwargs)
        if denied is not None:
            return self.result(function(*args, **kwargs))
        if args and issubclass(type(args[0]), Module) and is_method(function, args[0]):
            return self._of_module(args[0], function, args, kwargs)
        if args and issubclass(type(args[0]), Optimizer) and is_method(function, args[0]):
            return self._of_optimizer(args[0], function, args, kwargs)
        if room.startswith(INTERPRETED_ROOMS) and room not in FUNCTION_ROOMS:
            return self.user(function, args, kwargs)
        for start, why in DENIED_ROOMS.items():
            if room.startswith(start):
                return self.natively(f"{name}() {why}", function, args, kwargs)
        handed = room.startswith("nn/") and any(map(runs_user_code, (*args, *kwargs.values())))
        if handed or self._replaced(function):
            return self.user(function, args, kwargs)
        return self.op(function, args, kwargs)

    def op(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """Run a function of Lamina's natively: its ops are heard, its arguments are read now."""
        walks = self.sizes.about and (function in _WALKS or _derives(function))
        if not walks and self.sizes.concern(args, kwargs) and self.sizes.are_sizes(args, kwargs):
            return self._sized(function, args, kwargs)
        args, kwargs = self.bare(args, kwargs)
        decorates = bool(args) and issubclass(type(args[0]), _Mode)
        for value in (*args, *kwargs.values()):
            if decorates and value is not args[0]:  # no_grad()(function) only wraps it
                continue
            self._given(function, value)
        of_one = (getattr(function, "__module__", None) or "").startswith(_DISTRIBUTIONS)
        asked = _distributions(args, kwargs) if of_one else []
        kept = [(o, o.__dict__.keys() | ()) for o in asked if self.is_known(o)]
        if walks:  # whose steps are told one by one
            with self.sizes.symbolic.walk():
                return self.result(function(*args, **kwargs))
        found = function(*args, **kwargs)
        if any(o.__dict__.keys() != names for o, names in kept):
            self.refuse("a distribution keeps what it computes at its first use; later calls find it there")
        return self.result(found)

    # ---- sizes that are symbols ----
    def _sized(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """Run a function natively on tensors whose sizes are symbols, and on the symbols."""
        for value in (*args, *kwargs.values()):
            if type(value) in (tuple, list) and any(library_class(type(each)) for each in value):
                self.read_all(value)
            for each in value if type(value) in (tuple, list, Size) else (value,):
                self._given(function, raw(each))
        if function.__name__ in _CASTS:
            return self.result(self.sizes.cast(function, args, kwargs))
        return self.result(self.sizes.call(function, args, kwargs, on_values(function)))

    def _size(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.size()` or `x.size(dim)`."""
        sizes = self.sizes.shape(args[0]) if issubclass(type(args[0]), Tensor) else None
        if sizes is None:
            return self.op(function, args, kwargs)
        made = self.shape_of(sizes)
        dim = args[1] if len(args) > 1 else kwargs.get("dim")
        return made if dim is None else self.item(made, dim)

    def _numel_of_size(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.shape.numel()`."""
        if type(args[0]) is not LiftedSize:
            return self.op(function, args, kwargs)
        return self.call(math.prod, (args[0],))

    def _numel(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.numel()`."""
        total = self.sizes.total(args[0]) if issubclass(type(args[0]), Tensor) else None
        return self.op(function, args, kwargs) if total is None else total

    # ---- ops and lifted numbers ----
    def _with_lifted(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """A function of tensors that is given lifted numbers: its Python is interpreted, down to the ops."""
        if "out" in kwargs:
            return UNSUPPORTED
        if function is _APPLY:
            return self._record(args[0], False, args[1:], kwargs)
        if function is _DROPOUT and len(args) == 2 and not kwargs:
            return self._own_code(random.dropout_by_words, args, kwargs)
        if (found := records(len(REGISTRY)).get(function)) is not None:
            return self._record(*found, args, kwargs)
        function = self._itself(function)
        if function in _DRAWS and args[0].device.type == "cpu":  # on the meta device nothing is drawn
            function = _DRAWS[function]
        if function in _OF_OPS or room_of(function.__code__.co_filename).startswith(_ROOMS_OF_OPS):
            return self._own_code(function, args, kwargs)
        return UNSUPPORTED

    def _itself(self, function: Callable) -> Callable:
        """What a function is where nothing is cast or remembered, which a run that is recorded holds."""
        code = function.__code__
        aside = code in RESOLVING or (code is CASTING and modes.local.autocast is None)
        return self._itself(vars(function)["__wrapped__"]) if aside else function

    def _own_code(self, function: Any, args: tuple, kwargs: Any) -> Any:
        """Interpret a function of Lamina's."""
        for cell in function.__closure__ or ():
            if not self.is_known(cell):
                self.pin(cell)
        if (now := as_now(function, args, kwargs)) is not None:
            args, kwargs = now
        return self.enter(function, args, kwargs)

    def _record(self, op: Op, written: bool, args: tuple, kwargs: Any) -> Any:
        """An op, or its in-place form: lifted numbers that are operands stay lifted."""
        for value in (*args, *kwargs.values()):
            self._given(op.bind, raw(value))
        bound = self._own_code(op.bind, args, torch_names(op, kwargs))
        if bound is UNSUPPORTED or self.refused:
            return UNSUPPORTED
        operands = self.unpack(bound[0], lift=True)
        attrs = {name: self.item(bound[1], name) for name in bound[1]}
        if op is REGISTRY["pow"]:
            self.exponent(operands[1])
        operands, attrs = self._scaled(op, operands, attrs)
        attrs = {name: self.plain(value) for name, value in attrs.items()}
        if not any(issubclass(type(x), Tensor) and x.is_floating_point() for x in operands):
            operands = [*map(self.plain, operands)]
        return self.result((write if written else run_general)(op, tuple(operands), attrs))

    def _scaled(self, op: Op, operands: Sequence[Any], attrs: dict[str, Any]) -> tuple[Sequence, dict]:
        """An op with a lifted factor is given what that makes of its operand: the same bits."""
        at = _SCALED.get(op.name)
        if at is None or type(value := attrs["value"]) not in LIFTED:
            return operands, attrs
        kinds = {x.dtype if issubclass(type(x), Tensor) else None for x in operands}
        if kinds not in ({float32}, {float64}):  # others are widened first, or rounded in between
            return operands, attrs
        scaled = self.result(operands[at] * value)
        return [scaled if i == at else x for i, x in enumerate(operands)], {**attrs, "value": 1}

    def _given(self, function: Callable, value: Any, depth: int = DEEPEST) -> None:
        if not depth:
            self.refuse(f"{function.__qualname__}() was given {DEEPEST} containers within one another")
        elif issubclass(type(value), Tensor) or type(value) in ATOMS:
            if issubclass(type(value), Tensor) and not library_class(type(value)):
                self.refuse(f"{type(value).__name__}, a class of the user's own, derives from Tensor")
        elif issubclass(type(value), Module):
            if self._is_whole(value):
                self._take(value)
            elif not calls_back(function):
                self.refuse(f"{function.__name__}() was given a module with code of the user's own")
        elif issubclass(type(value), Optimizer):
            self._take_optimizer(value)
        elif runs_user_code(value):
            if calls_back(function):
                return
            self.refuse(f"{function.__qualname__}() calls {getattr(value, '__name__', 'code')} of the user's "
                        "own from inside the framework")  # fmt: skip
        elif library_class(type(value)):
            self.same(value)
            if type(value).__module__.startswith(_DISTRIBUTIONS):
                self._look_through(function, value, depth)
        elif issubclass(type(value), (list, tuple, dict)):
            self.read_all(value)
            for item in value.values() if issubclass(type(value), dict) else value:
                self._given(function, item, depth - 1)
        elif type(value) in VIEWS and self.is_fresh(value):
            self.open_view(value)
            for item in self.unpack(value):
                self._given(function, item, depth - 1)
        else:
            self.read_deep(value)

    def _look_through(self, function: Callable, value: Any, depth: int) -> None:
        """What a distribution that was there before holds becomes a fact, its tensors inputs."""
        if self.refused or self.is_fresh(value):
            return
        names = str(tuple(value.__dict__))  # more, once it keeps what it computes
        self.fact(value, "names", "held", "str(tuple({o}.__dict__))", names)
        for name, held in value.__dict__.items():
            self.fact(value, "attr", name, self._own_text(value, name), held)
            self._given(function, held, depth - 1)

    def _replaced(self, function: types.FunctionType) -> bool:
        """Note which functions of `nn` library code looks up; whether one of them is the user's."""
        replaced = False
        for module, name in library_names(function.__code__, function.__module__):
            value = self.load_global(vars(module), {}, name) if name in vars(module) else None
            replaced = replaced or not is_librarys(value)
        return replaced

    # ---- modules ----
    def _of_module(self, module: Module, function: types.FunctionType, args: tuple, kwargs: Any) -> Any:
        """A method of a module's that is the library's."""
        name = function.__name__
        if name == "__init__" or (self.is_fresh(module) and name in ("__getattr__", "reset_parameters")):
            if name == "__init__" and not self.is_fresh(module):
                self.refuse("a module that was there was made anew")
            return self._construct(function, args, kwargs)
        if name == "__getattr__":
            return self.user(function, args, kwargs)
        if name == "_hooks_of" and not self.is_written(module._call_hooks):
            return self.hooks_of_module(module, function, args, kwargs)
        if name in _READERS:
            return self._reader(module, function, args, kwargs)
        if name == "load_state_dict":
            if not self.is_fresh(module) and (len(args) != 2 or kwargs or self._loads_by_user(module)):
                why = "load_state_dict() with arguments, or through code of the user's, changes a module"
                return self.natively(f"{why}; do it outside of the traced function", function, args, kwargs)
            self._take(module)
            self._given(function, args[1])
            return self.result(function(*args, **kwargs))
        if name == "__call__" and EVERYWHERE:
            self.refuse("hooks of all modules are registered; register them with the modules")
        if name == "__call__" or name == "forward":
            return self._run_module(module, function, args, kwargs)
        if name == "__repr__" and self._is_whole(module):
            self._take(module)
            return function(*args, **kwargs)
        if self._is_whole(module) and name.startswith("_") and not name.startswith("__"):
            return self._run_module(module, function, args, kwargs)
        return self.user(function, args, kwargs)

    def _construct(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`__init__` of a class of the library's: its ops are heard."""
        modules = [x for x in (*args[1:], *kwargs.values()) if issubclass(type(x), Module)]
        if not modules and not library_class(type(args[0])) and function is not _INIT:
            return self.user(function, args, kwargs)  # it may call methods of the user's class
        for value in (*args[1:], *kwargs.values()):
            held = function is _LIST_INIT and type(value) in (list, tuple) and self.is_fresh(value)
            for each in value if held else (value,):
                if not issubclass(type(each), Module):  # which is held, and not called
                    self._given(function, each)
        function(*map(self.plain, args), **{k: self.plain(v) for k, v in kwargs.items()})
        held = [x for x in (*args[1:], *kwargs.values()) if type(x) in (list, tuple)]
        self._made_modules(args[0], [*modules, *(x for some in held for x in some)])

    def _made_modules(self, made: Module, given: Sequence[Any] = ()) -> None:
        """Mark a module of the library's making, and what it made in it, not what it was given."""
        there = {id(x) for some in given if issubclass(type(some), Module) for x in some.modules()}
        for module in made.modules():
            if id(module) not in there and not self.is_known(module):
                self.new(module)
                for value in fields(module).values():
                    if not issubclass(type(value), Module):
                        self.made_inside(value)

    def mark_made(self, value: Any) -> None:
        """Mark an object that a call made as new, of a module all that is in it."""
        if issubclass(type(value), Module):
            self._made_modules(value)
        else:
            super().mark_made(value)

    def made_inside(self, value: Any) -> None:
        """Mark what a constructor of the library's put into its object; what it was given is known."""
        left, met = [value], set()
        while left:
            value = left.pop()
            if issubclass(type(value), (list, tuple, dict, set)) and id(value) not in met:
                met.add(id(value))
                if not self.is_known(value):
                    self.new(value)
                    left += value.values() if issubclass(type(value), dict) else value

    def _reader(self, module: Module, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`parameters()` and its kin: everything below is taken in whole, and it runs natively."""
        for each in module.modules():
            for name in _ASKED_BY_READERS:
                if not _of_library(type(each), name):
                    return self.user(function, args, kwargs)
            for hook in each._state_hooks.values():
                if runs_user_code(hook.function):
                    return self.user(function, args, kwargs)
        self._take(module)
        return self.result(function(*args, **kwargs))

    def _loads_by_user(self, module: Module) -> bool:
        """Whether loading a state runs code of the user's."""
        names = ("load_state_dict", "_has_extra_state", "set_extra_state", "named_modules", "_hooks_of")
        names += ("_load_from_state_dict",)
        return any(
            any(not _of_library(type(each), name) for name in names)
            or any(runs_user_code(hook.function) for hook in each._state_hooks.values())
            for each in module.modules()
        )

    def _run_module(self, module: Module, function: types.FunctionType, args: tuple, kwargs: Any) -> Any:
        """`module(...)` or `module.forward(...)`: natively where no code of the user's is in it."""
        followed = observed_call if function is _CALL else function
        if not self._is_whole(module):
            return self.user(followed, args, kwargs)
        for each in {type(each): None for each in module.modules()}:
            self._class_of_whole(each)
            for name in ("__call__", "forward"):
                if self._replaced(lookup(each, name)):
                    return self.user(followed, args, kwargs)
        for value in (*args[1:], *kwargs.values()):
            if type(value) in (tuple, list, dict):  # whose tensors have symbols when they are read
                self._given(function, value)
        if self.sizes.concern(args[1:], kwargs):
            return self.user(followed, args, kwargs)
        self._take(module)
        return self.op(function, (module, *args[1:]), kwargs)

    def _class_of_whole(self, kind: type) -> None:
        for name in ("__call__", "forward", "__getattr__", "__getattribute__"):
            self.class_attribute(kind, name)

    def _take(self, module: Module) -> None:
        if not self.is_fresh(module):
            take_module(self, module)

    def _is_whole(self, module: Module) -> bool:
        """Whether a module and all below it are the library's through and through."""
        if not library_class(type(module)):
            return False
        if not _of_library(type(module), "named_modules"):
            return False
        for each in module.modules():
            kind = type(each)
            if not library_class(kind) or each._call_hooks or "forward" in fields(each):
                return False
            if not (_of_library(kind, "forward") and _of_library(kind, "__call__") and
                    _of_library(kind, "__getattr__")):  # fmt: skip
                return False
            if numbers_that_change(self, each, self.path(each)):
                return False
            for value in tuple(fields(each).values()):
                if type(value) not in ATOMS and not issubclass(type(value), (Tensor, Module)):
                    if runs_user_code(value):
                        return False
        return True

    def _swap(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """A member is exchanged, or put back: when the run is over all stand where they stood."""
        (part, members, key), value = args
        written = not self.refused and not self.is_fresh(members)
        if written:
            self.writes_to(members, key)
        function((part, members, key), value)
        if written:
            self.wrote(members, "item", key)
            self.wrote(part, "attr", key)

    # ---- optimizers ----
    def _of_optimizer(self, optimizer: Optimizer, function: Callable, args: tuple, kwargs: Any) -> Any:
        """A method of an optimizer's that is the library's."""
        name = function.__name__
        if name == "__init__":
            if not self.is_fresh(optimizer):
                self.refuse("an optimizer that was there was made anew")
            args = tuple([self.new(list(self.unpack(x))) if i == 1 and _is_listed(x) else x
                          for i, x in enumerate(args)])  # fmt: skip
            for value in (*args[1:], *kwargs.values()):
                self._given(function, value)
            function(*args, **{k: self.plain(v) for k, v in kwargs.items()})
            for value in vars(optimizer).values():
                self.made_inside(value)
            return None
        own = [n for n in ("_step_groups", "_step_group", "_step_part", "_step_flat", "_update", "_apply",
                           "numbers", "states", "initial", "with_counters", "_counted", "_first_counters")
               if not _of_library(type(optimizer), n)]  # fmt: skip
        if own:
            return self.natively(f"{type(optimizer).__name__}.{own[0]}() is called from inside the framework",
                                 function, args, kwargs)  # fmt: skip
        if name == "zero_grad" and not library_class(type(optimizer)):
            return self.enter(observed_zero_grad, args, kwargs)
        if name == "step":
            closure = args[1] if len(args) > 1 else kwargs.get("closure")
            if function is not _STEP:
                if closure is not None:
                    return self.natively("an optimizer calls its closure as often as its results ask; "
                                         "trace the closure, or what it calls",
                                         function, args, kwargs)  # fmt: skip
                return self._natively_with(optimizer, function, args, kwargs)
            hooks = [self.attribute(optimizer, name) for name in _HOOKS]
            if closure is not None or any(hooks):
                return self.enter(observed_step, (optimizer, closure), {})
            return self._natively_with(optimizer, function, args, kwargs)
        if name in ("zero_grad", "native_step"):
            return self._natively_with(optimizer, function, args, kwargs)
        return self.natively(f"{type(optimizer).__name__}.{name}() belongs outside of the traced function",
                             function, args, kwargs)  # fmt: skip

    def _natively_with(self, optimizer: Optimizer, function: Callable, args: tuple, kwargs: Any) -> Any:
        self._take_optimizer(optimizer)
        for name in _HOOKS:  # no hooks, or they are called by `observed_step`
            self.read_all(self.attribute(optimizer, name))
        self.class_attribute(type(optimizer), function.__name__)
        return self.result(function(*args, **{k: self.plain(v) for k, v in kwargs.items()}))

    def _take_optimizer(self, optimizer: Optimizer) -> None:
        if not self.is_fresh(optimizer):
            take_optimizer(self, optimizer)

    # ---- classes ----
    def instantiate(self, kind: type, args: tuple, kwargs: Any) -> Any:
        """Call a class; one of Lamina's runs natively where that can call no code of the user's."""
        if not library_class(kind) or issubclass(kind, (BaseException, tuple)):
            return super().instantiate(kind, args, kwargs)
        if issubclass(kind, (Module, Optimizer)):
            return super().instantiate(kind, args, kwargs)
        room = home_of(kind).partition(".")[2].replace(".", "/")
        for start, why in DENIED_ROOMS.items():
            if (room + ".py").startswith(start) and not (room + ".py").startswith(INTERPRETED_ROOMS):
                return self.natively(f"{kind.__name__} {why}", kind, args, kwargs)
        followed = ("nn/", "optim/", "data/", "facade/amp", "exchange/", "quantization/")
        if issubclass(kind, (Tensor, _Mode)) or not room.startswith(followed):
            return self.op(kind, args, kwargs)
        return super().instantiate(kind, args, kwargs)

    # ---- single functions ----
    def _item(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.item()`."""
        known = self.numbers.known(self.recorder, args[0]) if len(args) == 1 and not kwargs else None
        if known is not None:
            number, more = known
            return self.binary("+", number, more) if more else number
        asked = self.recorder.asked
        found = self.numbers.answer(self.op(function, args, kwargs), asked)
        self.numbers.keep(self.recorder, args[0], found)
        return found

    def answer(self, x: Tensor) -> Any:
        """The number that a 0-d tensor holds."""
        return self._item(unwrapped(vars(Tensor)["item"]), (x,), {})

    def _narrow(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.narrow(dim, start, length)` from a place that changes: the slice of such an index."""
        given = dict(zip(("input", "dim", "start", "length"), args)) | kwargs
        x, dim, start, length = (raw(given.get(name)) for name in ("input", "dim", "start", "length"))
        if len(given) != 4 or not issubclass(type(x), Tensor) or not type(dim) is type(length) is int:
            return self.op(function, args, kwargs)
        if type(given["dim"]) in LIFTED or type(given["length"]) in LIFTED or not -x.ndim <= dim < x.ndim:
            return self.op(function, args, kwargs)
        begin = self.answer(start) if is_point(start) else given["start"]
        if type(begin) is not LiftedInt or length < 1 or not 0 <= raw(begin) <= x.shape[dim] - length:
            return self.op(function, args, kwargs)
        return self.item(x, self.filled(tuple, [*[slice(None)] * (dim % x.ndim), self._slice(begin, length)]))

    def _slice(self, begin: Any, length: int) -> slice:
        """`slice(begin, begin + length)`."""
        return self.sliced([begin, self.binary("+", begin, length), None])

    def _select(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.select(dim, index)` at a place that changes: that of such an index."""
        given = dict(zip(("input", "dim", "index"), args)) | kwargs
        x, dim, at = given.get("input"), given.get("dim"), given.get("index")
        if type(at) is not LiftedInt or type(dim) is not int or not issubclass(type(x), Tensor):
            return self.op(function, args, kwargs)
        if not -x.ndim <= dim < x.ndim or not -x.shape[dim] <= raw(at) < x.shape[dim]:
            return self.op(function, args, kwargs)
        return self.item(x, self.filled(tuple, [*[slice(None)] * (dim % x.ndim), at]))

    def _tolist(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.tolist()`: each of its numbers is told as item() tells one."""

        def made(value: Any) -> Any:
            return self.filled(list, [*map(made, value)]) if type(value) is list else value

        return made(self._item(function, args, kwargs))

    def _numpy(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.numpy()`: the array may leave the run; whoever reads it here is refused."""
        if len(args) > 1 or kwargs or self.is_known(args[0]._data) or self.is_fresh(args[0]._data):
            return self.op(function, args, kwargs)
        self._given(function, args[0])
        self.sizes.symbolic.looked_at(args[0])  # an array tells its shape to whoever gets hold of it
        with modes.unheard():
            shown = function(*args)
        self.fresh.shown[id(shown)] = shown, args[0]
        return shown

    def _tensor_of_number(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`tensor(n)` of a lifted number, or of a list with some, or of an array."""
        if (made := arrays.of_array(self, function, args, kwargs)) is not None:
            return made
        if len(args) == 1 and kwargs.keys() <= {"dtype"} and not self.refused:
            if type(args[0]) in LIFTED:
                made = self._filled((), args[0], kwargs.get("dtype"))
            else:
                made = self._of_several(function, args[0], kwargs.get("dtype"))
            if made is not None:
                return made
        return self.op(function, args, kwargs)

    def _tensor_of_array(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        made = arrays.of_array(self, function, args, kwargs)
        return self.op(function, args, kwargs) if made is None else made

    def _of_several(self, function: Callable, given: Any, dtype: Any) -> Tensor | None:
        """A tensor of numbers, some of which are lifted or 0-d tensors, in rows of one length; else None."""
        about = self.numbers.about or self.numbers.lift
        if not about and type(given) in (list, tuple):
            about = any([issubclass(type(x), Tensor) for x in given])
        shape, numbers = self._in_rows(given) if about else ((), [])
        single = [n for n in numbers if issubclass(type(n), Tensor)]
        kinds = {float if issubclass(type(n), Tensor) else type(raw(n)) for n in numbers}
        if not single and not any(type(n) in LIFTED for n in numbers) or not kinds <= {int, float}:
            return None
        if any(n.ndim or n.dtype is not default_dtype() for n in single):
            return None
        if dtype is None:
            dtype = default_dtype() if float in kinds else int64
        if all(n is numbers[0] for n in numbers):
            return self._filled(shape, numbers[0], dtype)
        made: list[Any] = []
        for n in numbers:
            if issubclass(type(n), Tensor):
                made.append(n.detach().to(dtype))
            else:
                made.append(self._filled((), n, dtype) if type(n) in LIFTED else function(n, dtype=dtype))
        return None if any(x is None for x in made) else self.result(ops.stack(made).reshape(shape))

    def _in_rows(self, given: Any) -> tuple[tuple[int, ...], list[Any]]:
        """The shape of lists within lists, and their numbers; none where those are too many, or uneven."""
        if type(given) not in (list, tuple, LiftedSize):
            return (), [given]
        if not 0 < len(given) <= _SEVERAL:
            return (), []
        rows = [self._in_rows(row) for row in self.unpack(given, lift=True)]
        numbers = [n for _, row in rows for n in row]
        even = len({shape for shape, _ in rows}) == 1 and all(row for _, row in rows)
        return ((len(given), *rows[0][0]), numbers) if even and len(numbers) <= _SEVERAL else ((), [])

    def _full_of_number(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`full(size, n)` of a lifted number."""
        given = dict(zip(("size", "fill_value"), args)) | kwargs
        if given.keys() <= {"size", "fill_value", "dtype"} and type(given.get("fill_value")) in LIFTED:
            size = given.get("size")
            size = size if issubclass(type(size), (tuple, list)) else (size,)
            self._given(function, size)
            if all(type(self.plain(n)) is int for n in size) and not self.refused:
                if (made := self._filled(size, given["fill_value"], given.get("dtype"))) is not None:
                    return made
        return self.op(function, args, kwargs)

    def _full_like(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`full_like(x, n)`, `x.new_full(size, n)` and `x.fill_(n)` of a lifted number."""
        x, *rest = args
        if self.sizes.concern(*args) and self.sizes.are_sizes(*args):
            return self.op(function, args, kwargs)
        if kwargs or not rest or type(rest[-1]) not in LIFTED or not issubclass(type(x), Tensor):
            return self.op(function, args, kwargs)
        # A copy refuses more than `fill_` does: leaves, and elements that share a place.
        if function is _FILL and (x.requires_grad and x.is_leaf or not x.is_contiguous()):
            return self.op(function, args, kwargs)
        for value in args:
            self._given(function, raw(value))
        size = () if function is _FILL else x.shape if len(rest) == 1 else rest[0]
        size = size if issubclass(type(size), (tuple, list)) else (size,)
        if self.refused or not all(type(self.plain(n)) is int for n in size):
            return self.op(function, args, kwargs)
        made = self._filled(size, rest[-1], x.dtype) if x.is_floating_point() else None
        if made is None:
            return self.op(function, args, kwargs)
        return self.result(write(REGISTRY["copy"], (x, made), {})) if function is _FILL else made

    def _filled(self, size: Any, number: Any, dtype: Any) -> Tensor | None:
        """Ones times a lifted number, which are that number to the bit; None for other dtypes."""
        if dtype is None:
            dtype = default_dtype() if type(number) is LiftedFloat else int64
        whole = type(number) is LiftedInt
        if not isinstance(dtype, DType) or dtype.category != "float" and not (whole and dtype is int64):
            return None
        if whole and not -MOST < number.bare < MOST:
            return None
        if whole:
            text = number.expression
            self.check(f"not -{MOST} < {text} < {MOST}", f"the size of {self.numbers.in_words(text)}")
        return self.result(ops.ones(tuple(map(self.plain, size)), dtype=dtype) * number)

    def _advance(self, function: Callable, args: tuple, kwargs: Any) -> None:
        advance()
        self.effect(advance)

    def _native_step(self, function: Callable, args: tuple, kwargs: Any) -> None:
        self._take_optimizer(args[0])
        function(*args)


def _derives(function: Callable) -> bool:
    """Whether a function is a transform that runs the user's, then walks back through its history."""
    code = getattr(function, "__code__", None)
    return code is not None and code.co_qualname in _DERIVING and room_of(code.co_filename) == _TRANSFORMS


def is_method(function: types.FunctionType, o: Any) -> bool:
    """Whether a class of the object's holds the function."""
    return any(unwrapped(base.__dict__.get(function.__name__)) is function for base in type(o).__mro__)


def _of_library(kind: type, name: str) -> bool:
    """Whether what a class holds under a name is no code of the user's."""
    found = lookup(kind, name)
    return type(found) is not Function or is_librarys(found)


_APPLY = Op.__call__
# Which ops these are hangs on dtypes and on how elements lie, and on no size.
_CASTS = frozenset((
    "contiguous", "to", "type", "type_as", "float", "double", "half", "bfloat16", "long", "int", "bool",
    "clone", "detach", "requires_grad_", "retain_grad",
))  # fmt: skip
_WALKS = frozenset(map(unwrapped, (vars(Tensor)["backward"], autograd.backward, autograd.grad)))
_TRANSFORMS = "runtime/func.py"
_DERIVING = frozenset(("grad.<locals>.gradient", "grad_and_value.<locals>.gradient_and_value"))
# What takes whole numbers for sizes, and for nothing else.
_OF_SIZES = frozenset(
    unwrapped(function)
    for name in ("arange", "zeros", "ones", "empty", "expand", "view", "reshape", "repeat", "tril", "triu")
    for function in (getattr(ops, name, None), vars(Tensor).get(name))
    if function is not None
)
_LIST_INIT = unwrapped(ModuleList.__init__)
_DROPOUT = unwrapped(random.dropout)
_DRAWS = {  # methods that draw, and what they do to tensors that have values
    unwrapped(vars(Tensor)[draw.__name__]): draw
    for draw in (
        random.normal_,
        random.uniform_,
        random.exponential_,
        random.log_normal_,
        random.bernoulli_,
    )  # fmt: skip
}
_OF_OPS = frozenset((
    unwrapped(ops.FUNCTIONS["where"]), unwrapped(random.normal), unwrapped(random.bernoulli),
    random._by_chance, *_DRAWS.values(),
))  # fmt: skip
_ROOMS_OF_OPS = ("ir/ops/", "nn/functional.py")  # whose functions are written with ops
_DISTRIBUTIONS = __name__.partition(".")[0] + ".distributions."
_SEVERAL = 64  # as many numbers as `tensor` takes one by one
_SCALED = {"addcmul": 1, "addcdiv": 1}  # ops with a factor, `value`, and the operand that it scales
_FILL = unwrapped(vars(Tensor)["fill_"])
_INIT, _CALL = unwrapped(_OWN["__init__"]), _OWN["__call__"]
_STEP = unwrapped(Optimizer.__dict__["step"])
_HOOKS = ("_before_any", "_before", "_after", "_after_any")
_HANDLERS: dict[Any, Callable] = {
    _OWN["__setattr__"]: lambda self, function, args, kwargs: self.set_on_module(*args),
    _OWN["__delattr__"]: lambda self, function, args, kwargs: self._delete_of_module(*args),
    is_bare: lambda self, function, args, kwargs: not self.is_known(args[0]) and function(*args),
    advance: Library._advance,
    **dict.fromkeys(arrays.FUNCTIONS, Library._tensor_of_array),
    unwrapped(stateless.swap): Library._swap,
    unwrapped(stateless.tied): lambda self, function, args, kwargs: self.new(function(*args)),
    native_step: Library._native_step,
    # What it finds of an optimizer stays so, and a run in which it warns is not kept.
    warn_of_order: lambda self, function, args, kwargs: function(*args),
    unwrapped(vars(Tensor)["item"]): Library._item,
    unwrapped(vars(Tensor)["size"]): Library._size,
    unwrapped(vars(Tensor)["numel"]): Library._numel,
    unwrapped(vars(Size)["numel"]): Library._numel_of_size,
    unwrapped(vars(Tensor)["tolist"]): Library._tolist,
    unwrapped(vars(Tensor)["numpy"]): Library._numpy,
    unwrapped(creation.tensor): Library._tensor_of_number,
    unwrapped(ops.full): Library._full_of_number,
    **dict.fromkeys((_FILL, *map(unwrapped, (ops.full_like, vars(Tensor)["new_full"]))), Library._full_like),
    **dict.fromkeys(map(unwrapped, (ops.narrow, vars(Tensor)["narrow"])), Library._narrow),
    **dict.fromkeys(map(unwrapped, (ops.select, vars(Tensor)["select"])), Library._select),
    **{unwrapped(function): handler for function, handler in HANDED.items()},
}


def _distributions(args: tuple, kwargs: dict[str, Any]) -> list[Any]:
    """The distributions, and their transforms, that a call is given or that those hold."""
    found: list[Any] = []
    left, seen = [*args, *kwargs.values()], set()
    while left:
        o = left.pop()
        if id(o) in seen:  # a list may hold itself
            continue
        seen.add(id(o))
        if type(o) in (list, tuple):
            left += o
        elif type(o).__module__.startswith(_DISTRIBUTIONS):
            found.append(o)
            left += o.__dict__.values()
    return found


def _is_listed(params: Any) -> bool:
    """Whether an optimizer goes through what it is given; anything else it refuses."""
    return not issubclass(type(params), Tensor) and lookup(type(params), "__iter__") is not MISSING
