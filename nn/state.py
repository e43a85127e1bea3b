"""Take a module's state out and put it back: `state_dict` and `load_state_dict`."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ir.errors import ArgumentError, StateError
from ..runtime import Parameter, Tensor, no_grad
from ..runtime.swapping import swap_tensors
from .members import HOOKS
from .parameter import is_lazy

if TYPE_CHECKING:
    from .module import Module

EXTRA = "_extra_state"
ASSIGNS = "assign_to_params_buffers"  # in the metadata that hooks see


class Conversion:
    """How a state and conversions put tensors into a module: PyTorch's switches of `torch.__future__`."""

    overwrite = swap = False


conversion = Conversion()


class IncompatibleKeys(NamedTuple):
    """What did not meet a partner: keys that the module has and the state lacks, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not any(self):
            return "<All keys matched successfully>"
        return f"IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


# What PyTorch's modules keep in their instances, and Lamina's do not.
_HOOKS = frozenset((
    "_backward_pre_hooks", "_backward_hooks", "_is_full_backward_hook", "_forward_hooks",
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs", "_state_dict_hooks", "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
))  # fmt: skip
_MEMBERS: dict[str, Callable[[Any], bool]] = {
    "_parameters": lambda value: isinstance(value, Tensor),
    "_buffers": lambda value: isinstance(value, Tensor),
    "_modules": lambda value: hasattr(type(value), "named_children"),
}


def attributes(cls: type, state: Any) -> dict[str, Any]:
    """The attributes that the pickle of a module gives it, be it Lamina's or PyTorch's.

    What PyTorch's instances have and Lamina's classes work out themselves (properties) is left out, and so
    are its dictionaries of hooks.  Raises StateError for hooks in them, and for what is no module's state.
    """
    name = cls.__name__
    if not isinstance(state, dict) or not all(isinstance(key, str) for key in state):
        raise StateError(
            f"{name}.__setstate__(state): a dict of attributes is needed, not {type(state).__name__}"
        )
    hooked = [key for key in _HOOKS & state.keys() if not _is_empty(state[key])]
    if hooked:
        raise StateError(
            f"{name}: its state has hooks ({hooked[0]}), which are not taken from files",
            "remove them before it is saved, and register them once it is loaded",
        )
    own = {key: value for key, value in state.items() if key not in _HOOKS and not _is_worked_out(cls, key)}
    own.setdefault("_non_persistent_buffers_set", set())
    own.setdefault("training", True)
    for key in HOOKS:
        if not isinstance(own.setdefault(key, {}), dict):
            raise StateError(f"{name}: its state has a {type(own[key]).__name__} for {key}")
    for key in _MEMBERS:
        own.setdefault(key, {})
    for key, fits in _MEMBERS.items():
        members = own[key]
        if not isinstance(members, dict):
            raise StateError(f"{name}: its state has a {type(members).__name__} for {key}")
        for each, x in members.items():  # a user's __getstate__ finds members in __dict__, too
            if own.get(each, own) is x:
                del own[each]
        wrong = [
            each for each, x in members.items()
            if type(each) is not str or each in own or callable(getattr(cls, each, None))
            or (x is not None and not fits(x))
        ]  # fmt: skip
        if wrong:
            raise StateError(f"{name}: its state has a wrong entry {str(wrong[0])[:60]!r} in {key}")
    return own


def _is_empty(hooks: Any) -> bool:
    return hooks is None or hooks is False or isinstance(hooks, dict) and not hooks


def _is_worked_out(cls: type, name: str) -> bool:
    home = next((base for base in cls.__mro__ if name in vars(base)), None)
    ours = home is not None and home.__module__.startswith(__name__.partition(".")[0] + ".")
    return ours and isinstance(vars(home)[name], property)


def empty() -> OrderedDict[str, Any]:
    """A state with nothing in it yet; its `_metadata` has the version of each module that writes into it."""
    made: Any = OrderedDict()
    made._metadata = OrderedDict()
    return made


def save(module: Module, destination: dict[str, Any], prefix: str, keep_vars: bool) -> dict[str, Any]:
    """Write the state of `module` and all below it into `destination`, with PyTorch's keys in its order."""
    metadata = {"version": module._version}
    if (versions := getattr(destination, "_metadata", None)) is not None:
        versions[prefix[:-1]] = metadata
    for hook in module._hooks_of("save_pre"):
        hook.function(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for hook in [*module._state_hooks.values()]:
        if hook.kind not in ("save", "save_replacing"):
            continue
        replaced = hook.function(module, destination, prefix, metadata)
        if replaced is not None and hook.kind == "save":
            raise ArgumentError(
                "a hook of register_state_dict_post_hook must return None: it changes the state"
            )
        destination = destination if replaced is None else replaced
    return destination


class Slot(NamedTuple):
    """One place for a tensor of the state: `members[name]` of a module, known outside by `key`."""

    key: str
    members: dict[str, Any]
    name: str
    optional: bool

    def fill(self, value: Tensor, assign: bool) -> None:
        """Copy the value into the tensor that stands here; or let it take that tensor's place."""
        here = self.members[self.name]
        if is_lazy(here):  # and so is the value, and there is nothing to copy
            return
        if conversion.swap:
            new = here.module_load(value, assign=assign)
            if new is here or new is value:
                raise ArgumentError(
                    "module_load returned one of self or other: it must return another tensor",
                    "return the result's .detach()",
                )
            swap_tensors(here, in_place_of(here, new))
        elif assign:
            self.members[self.name] = in_place_of(here, value)
        else:
            here.copy_(value)


def put(here: Tensor, value: Tensor) -> None:
    """Give a parameter or buffer another's values, memory and class; it stays the object that it was."""
    if conversion.swap or type(here)._dispatches or type(value)._dispatches:
        swap_tensors(here, in_place_of(here, value.detach()))
    else:
        here.data = value.detach()


def in_place_of(here: Tensor, value: Tensor) -> Tensor:
    """The tensor, as a parameter that wants a gradient where `here` does; for a buffer, as it is."""
    if not isinstance(here, Parameter):
        return value
    if isinstance(value, Parameter):
        return value.requires_grad_(here.requires_grad)
    return Parameter(value, here.requires_grad)


def slots(module: Module, prefix: str) -> Iterator[Slot]:
    """The places of a module's own parameters and persistent buffers."""
    for members in (module._parameters, module._buffers):
        for name, value in members.items():
            if value is not None and name not in module._non_persistent_buffers_set:
                yield Slot(prefix + name, members, name, name in module._optional_state)


class Loading(OrderedDict):
    """A state that is being loaded, and what of it goes where: nothing is copied before all is checked."""

    def __init__(self, state: Mapping[str, Any]):
        super().__init__(state)
        self.found: list[tuple[Slot, Any]] = []
        self.extras: list[tuple[Module, Any]] = []
        self.expected: set[str] = set()
        self.reached = True  # `load_own` was called for the module at hand
        self.metadata: Mapping[str, Any] = getattr(state, "_metadata", None) or {}

    def below(self, prefix: str) -> OrderedDict[str, Any]:
        """The part of the state that belongs to one module and those below it: all that its hooks see."""
        if not prefix:
            return self
        own: Any = OrderedDict((key, value) for key, value in self.items() if key.startswith(prefix))
        own._metadata = self.metadata
        return own

    def take(self, prefix: str, own: OrderedDict[str, Any]) -> None:
        """Take back such a part, as a hook left it."""
        if own is not self:
            for key in [key for key in self if key.startswith(prefix) and key not in own]:
                del self[key]
            self.update(own)

    def copy_all(self, assign: bool) -> list[str]:
        """Put everything in its place; return what went wrong with each tensor that could not be."""
        wrong = []
        with no_grad():
            for place, value in self.found:
                here = place.members[place.name]
                try:
                    place.fill(value, assign)
                except Exception as error:
                    wrong.append(
                        f'While copying the parameter named "{place.key}", of {here._meta} in the module and '
                        f"{value._meta} in the state, an exception occurred: {error}"
                    )
        for part, value in self.extras:
            part.set_extra_state(value)
        return wrong


def load_own(
    module: Module,
    state_dict: Mapping[str, Any],
    prefix: str,
    metadata: Mapping[str, Any],
    strict: bool,
    missing: list[str],
    unexpected: list[str],
    wrong: list[str],
) -> None:
    """Check a module's own part of a state, and copy it, at once unless the state is a Loading.

    strict: False leaves out what keys lack, or are without a partner.
    """
    state = state_dict if isinstance(state_dict, Loading) else Loading(state_dict)
    state.reached = True
    for hook in module._hooks_of("load_pre"):
        own = state.below(prefix)
        arguments = (own, prefix, metadata, strict, missing, unexpected, wrong)
        hook.function(*((module, *arguments) if hook.with_module else arguments))
        state.take(prefix, own)
    for place in slots(module, prefix):
        state.expected.add(place.key)
        if place.key not in state:
            missing += [place.key] if strict and not place.optional else []
            continue
        here, value = place.members[place.name], state[place.key]
        if not is_lazy(here) and not here.ndim and isinstance(value, Tensor) and value.shape == (1,):
            value = value[0]  # as very old states have numbers
        if not isinstance(value, Tensor):
            wrong.append(
                f"{place.key}: expected torch.Tensor or Tensor-like object from checkpoint but received "
                f"{type(value)}"
            )
        elif is_lazy(here) != is_lazy(value):
            wrong.append(
                f"{place.key}: the shape of an uninitialized parameter is not known: the state's has no "
                "shape yet; call its module before saving"
            )
        elif not is_lazy(here) and here.shape != value.shape:
            wrong.append(
                f"size mismatch for {place.key}: copying a param with shape {value._meta} from the "
                "state into "
                f"{here._meta}"
            )
        else:
            if here.device.type == "meta" != value.device.type and not metadata.get(ASSIGNS):
                warnings.warn(
                    f"for {place.key}: copying from a non-meta parameter in the checkpoint to a meta "
                    "parameter "
                    "changes nothing: load_state_dict(state, assign=True) puts it in its place",
                    UserWarning,
                    stacklevel=2,
                )
            state.found.append((place, value))
    if module._has_extra_state():
        key = prefix + EXTRA
        state.expected.add(key)
        if key in state:
            state.extras.append((module, state[key]))
        elif strict:
            missing.append(key)
    if not strict:
        state.expected |= _own_keys(state, module, prefix)
    if state is not state_dict and not wrong:
        wrong += state.copy_all(False)


def _own_keys(state: Loading, module: Module, prefix: str) -> set[str]:
    """The keys of a state that are a module's, or of nothing, and not its children's."""
    below = (key for key in state if key.startswith(prefix))
    return {key for key in below if key[len(prefix) :].partition(".")[0] not in module._modules}


def load(module: Module, state_dict: Mapping[str, Any], strict: bool, assign: bool) -> IncompatibleKeys:
    """Check the whole state against the whole module, then copy.

    Raises StateError, and then copies nothing.
    """
    if not isinstance(state_dict, Mapping):
        raise ArgumentError(
            f"load_state_dict: Expected state_dict to be dict-like, got {type(state_dict).__name__}"
        )
    state = Loading(state_dict)
    missing: list[str] = []
    unexpected: list[str] = []
    wrong: list[str] = []
    named = list(module.named_modules(remove_duplicate=False))
    for path, part in named:
        prefix = path + "." if path else ""
        metadata = dict(state.metadata.get(path, {}), **({ASSIGNS: True} if assign else {}))
        state.reached = False
        part._load_from_state_dict(state, prefix, metadata, True, missing, unexpected, wrong)
        if not state.reached:  # a class of the user's that loads by itself, and whose keys only it knows
            state.expected |= _own_keys(state, part, prefix)
    unexpected += [key for key in state if key not in state.expected]
    result = IncompatibleKeys(missing, unexpected)

    def call_hooks() -> None:
        for _, part in reversed(named):
            for hook in part._hooks_of("load"):
                hook.function(part, result)

    early = strict and bool(missing or unexpected)  # unless a hook takes them away, nothing is to be copied
    if early and not wrong:
        call_hooks()
    if wrong or (strict and (missing or unexpected)):
        raise misfit(module, missing if strict else [], unexpected if strict else [], wrong)
    if wrong := state.copy_all(assign):
        raise misfit(module, [], [], wrong, "not every tensor could be put in its place; the others were")
    if not early:
        call_hooks()
        if strict and (missing or unexpected):
            raise misfit(
                module, missing, unexpected, [], "a hook says that the state does not fit the module"
            )
    return result


def _quoted(keys: list[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def misfit(
    module: Module,
    missing: list[str],
    unexpected: list[str],
    wrong: list[str],
    what: str = "the state does not fit the module; nothing was loaded",
) -> StateError:
    """The error that names everything at which a state and a module differ."""
    lines = [f"Missing key(s) in state_dict: {_quoted(missing)}"] if missing else []
    if unexpected:
        lines.append(f"Unexpected key(s) in state_dict: {_quoted(unexpected)}")
    lines += wrong
    if not wrong:
        lines.append("load_state_dict(state, strict=False) loads what both have")
    name = type(module).__name__
    return StateError(f"Error(s) in loading state_dict for {name}: {what}", *lines)
