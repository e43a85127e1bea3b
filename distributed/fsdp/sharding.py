"""`fully_shard`, and what it makes of a module: hooks that gather parameters as they are used."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import wraps
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError
from ...nn.module import Module
from ...runtime import Tensor, modes
from ...runtime.autograd import is_walking, when_done
from ...runtime.modes import is_grad_enabled
from ...runtime.tensor import fields as tensor_fields
from ..device_mesh import DeviceMesh
from ..tensor.dtensor import need_mesh
from ..tensor.placement_types import Placement
from .gathered_memory import Gathered
from .parameter_group import Cut, ParameterGroup, chosen_dim, managed
from .policies import MixedPrecisionPolicy, OffloadPolicy


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors inside, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for x in value:
            yield from tensors_in(x)
    elif isinstance(value, dict):
        for x in value.values():
            yield from tensors_in(x)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from tensors_in(getattr(value, field.name))


def mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same with each tensor replaced."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, tuple):
        made = [mapped(function, x) for x in value]
        return tuple(made) if type(value) is tuple else type(value)(*made)
    if isinstance(value, list):
        return [mapped(function, x) for x in value]
    if type(value) is dict:
        return {k: mapped(function, x) for k, x in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        changed = {f.name: mapped(function, getattr(value, f.name)) for f in fields(value) if f.init}
        return replace(value, **changed)
    return value


class Schedule:
    """What the fully sharded modules of one model share.

    order: groups in the order in which forwards came to them, this time.  last: the time before, by which
    they are gathered ahead.  depth: forwards that are open.  finishing: averages on their way.  walk: the
    backward that will call back.
    """

    def __init__(self) -> None:
        self.order: list[ParameterGroup] = []
        self.last: list[ParameterGroup] = []
        self.states: list[State] = []
        self.finishing: list[list[Callable[[], None]]] = []
        self.depth = 0
        self.walk: list[Callable[[], None]] | None = None

    def ahead(self, group: ParameterGroup) -> ParameterGroup | None:
        """The group that came after this one the time before."""
        at = len(self.order) - 1
        if at < len(self.last) - 1 and self.last[at] is group:
            return self.last[at + 1]
        return None

    def before(self, group: ParameterGroup) -> ParameterGroup | None:
        """The group that forward came to before this one, to which backward comes next."""
        order = self.order or self.last
        at = next((i for i in reversed(range(len(order))) if order[i] is group), 0)
        return order[at - 1] if at else None

    def finish(self, most: int = 0) -> None:
        """Finish averages, but for the latest `most`."""
        while len(self.finishing) > most:
            for step in self.finishing.pop(0):
                step()

    def forget_errors(self) -> None:
        """Let go of what a backward left that ended in an error: it counts for nothing."""
        if self.walk is None or self.walk:
            return
        self.walk = None
        self.finishing.clear()
        for state in self.states:
            state.group.forget()
            state.group.reshard()
            state.group.discard()
            state.outstanding, state.unheard = 0, False


class State:
    """What a fully sharded module is: its group, and how it goes about it.

    reshards: parameters are given back after forward; None: unless it is the outermost module.  syncs:
    gradients are averaged.
    """

    def __init__(
        self, module: Module, group: ParameterGroup, reshards: bool | None, policy: MixedPrecisionPolicy
    ):
        self.module = weakref.ref(module)
        self.group, self.reshards, self.policy = group, reshards, policy
        self.reshards_after_backward = self.syncs = True
        self.schedule: Schedule | None = None
        self.is_root = self.unheard = False
        self.outstanding = 0
        self.ahead: list[State] | None = None
        self.ahead_in_backward: list[State] | None = None
        group.after_arrival = self.grad_came

    # ---- forward
    def begin(self) -> Schedule:
        """The schedule; of a module that nobody is outside of, made now for all below it."""
        if self.schedule is None:
            module = self.module()
            assert module is not None
            self.schedule, self.is_root = Schedule(), True
            for below in module.modules():
                state = state_of(below)
                if state is not None:
                    if state.schedule is not None and state is not self:
                        state.is_root = False
                    state.schedule = self.schedule
                    self.schedule.states.append(state)
            if self.reshards is None:
                self.reshards = False
            for state in self.schedule.states:
                state.reshards = True if state.reshards is None else state.reshards
        return self.schedule

    def forward_begins(self, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Gather the parameters, and begin with those of the next module."""
        schedule = self.begin()
        if modes.CHANGED:
            modes.tell("refuse", "a fully sharded module gathered its parameters")
        recomputing = is_walking()
        if self.is_root and not recomputing:
            schedule.forget_errors()
            schedule.depth = 0  # also where a forward before had failed
            schedule.last, schedule.order = schedule.order or schedule.last, []
        schedule.depth += 1
        self.group.unshard()
        if not recomputing and is_grad_enabled():
            asked = next((x for x in tensors_in((args, kwargs)) if x.requires_grad), None)
            if asked is None:
                self.unheard = True
            else:
                self.outstanding += 1
                asked.register_hook(self.input_done)
        if not recomputing:
            schedule.order.append(self.group)
            if self.ahead is not None:
                for state in self.ahead:
                    state.group.begin()
            elif (following := schedule.ahead(self.group)) is not None:
                following.begin()
        wanted = self.policy.param_dtype
        if wanted is not None and self.policy.cast_forward_inputs:
            args, kwargs = mapped(_caster(wanted), args), mapped(_caster(wanted), kwargs)
        return args, kwargs

    def forward_ended(self, output: Any) -> Any:
        """Give the parameters back, and ask backward to gather them again."""
        schedule = self.begin()
        schedule.depth = max(schedule.depth - 1, 0)
        records = is_grad_enabled()
        held = self.group.gathered
        if (self.reshards or not records) and not is_walking():
            self.group.reshard()
        if not schedule.depth and not is_walking():
            for state in schedule.states:
                state.group.discard()  # gathered ahead, and not used this time
        if self.policy.output_dtype is not None:
            output = mapped(_caster(self.policy.output_dtype), output)
        if records:
            for x in tensors_in(output):
                if x.requires_grad:
                    x.register_hook(_before_backward(self, held))
        return output

    # ---- backward
    def backward_begins(self) -> None:
        """Gather the parameters again, and begin with those that backward comes to next."""
        self.await_end()
        self.group.unshard()
        assert self.schedule is not None
        if self.ahead_in_backward is not None:
            for state in self.ahead_in_backward:
                state.group.begin()
        elif (following := self.schedule.before(self.group)) is not None:
            following.begin()

    def await_end(self) -> None:
        """See to it that backward tells when it is done."""
        schedule = self.begin()
        schedule.forget_errors()
        if schedule.walk is None and is_walking():
            schedule.walk = when_done(lambda: _backward_ended(schedule))

    def grad_came(self) -> None:
        """Average the group's gradients once all are there, and give its parameters back.

        Backward may still come to frozen ones: then that is done when it has left the module.
        """
        self.await_end()
        if self.group.is_complete:
            self.average()
            if self.closes and not self.group.has_frozen:
                self.group.reshard()

    def input_done(self, _: Any) -> None:
        """Give the parameters back when backward has left all calls of the module."""
        self.outstanding -= 1
        if self.outstanding == 0 and not self.unheard and not self.group.arrived and self.closes:
            if self.group.has_frozen:
                self.group.reshard()

    def average(self) -> None:
        """Send the group's gradients, or keep them where they are not to be averaged yet."""
        schedule = self.begin()
        if not self.syncs:
            self.group.keep()
        else:
            schedule.finish(most=1)
            begun = self.group.reduce()
            if begun:
                schedule.finishing.append(begun)

    @property
    def closes(self) -> bool:
        """Whether parameters are given back after backward: averages stand with the parts."""
        return self.reshards_after_backward or self.syncs


def _backward_ended(schedule: Schedule) -> None:
    schedule.walk = None
    for state in schedule.states:
        if state.group.arrived:
            state.average()
        if state.closes:
            state.group.reshard()
        state.group.discard()
        state.outstanding, state.unheard = 0, False
    schedule.finish()


def _before_backward(state: State, held: Gathered | None) -> Callable[..., None]:
    """A hook on a result, which keeps what history needs as long as history does."""

    def begin(_: Any, kept: Gathered | None = held) -> None:
        state.backward_begins()

    return begin


def _caster(dtype: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: x.to(dtype) if x.is_floating_point() and x.dtype is not dtype else x


_STATE = "_fully_sharded"


def state_of(module: Module) -> State | None:
    """What a module is, if it is fully sharded."""
    return getattr(module, _STATE, None) if isinstance(module, FSDPModule) else None


class UnshardHandle:
    """What `unshard(async_op=True)` hands back."""

    def __init__(self, group: ParameterGroup | None):
        self._group = group

    def wait(self) -> None:
        """Return when the whole parameters stand in the module."""
        group, self._group = self._group, None
        if group is not None:
            group.unshard()


class FSDPModule:
    """What a module that `fully_shard` was called on is as well, beside its own class."""

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Refused: making another one makes the module's own class."""
        own = next((c for c in cls.__mro__[1:] if c is not FSDPModule and issubclass(c, Module)), None)
        if own is None or issubclass(own, FSDPModule):
            raise ArgumentValueError("FSDPModule: is no class to make modules of", "fully_shard(module)")
        made = own.__new__(own, *args, **kwargs)
        made.__init__(*args, **kwargs)  # type: ignore[misc]
        return made

    def __deepcopy__(self, memo: dict) -> Any:
        raise ArgumentError(
            f"{type(self).__name__}: a fully sharded module can't be deep-copied",
            "copy it before fully_shard, and load its state_dict()",
        )

    def _state(self) -> State:
        state = getattr(self, _STATE, None)
        if state is None:
            raise ArgumentValueError("FSDPModule: fully_shard was not called on this module")
        return state

    def _states(self, recurse: bool) -> list[State]:
        if not recurse:
            return [self._state()]
        return [s for m in self.modules() if (s := state_of(m)) is not None]  # type: ignore[attr-defined]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Put the whole parameters into the module, not those of fully sharded ones below.

        All ranks call it.  async_op: begin, and hand back a handle to wait by.
        """
        group = self._state().group
        if not async_op:
            group.unshard()
            return None
        group.begin()
        return UnshardHandle(group)

    def reshard(self) -> None:
        """Give the whole parameters back."""
        self._state().group.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Average gradients in backward, or keep them on each rank until they are to be."""
        for state in self._states(recurse):
            state.syncs = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """On a mesh of two dims: average over its first dim, too, as it does unless told otherwise."""
        for state in self._states(recurse):
            if not requires_all_reduce:
                raise ArgumentValueError(
                    "set_requires_all_reduce(False): keeping averages of a part of the ranks is not built",
                    "set_requires_gradient_sync(False) keeps gradients on each rank",
                )
            state.group.averages_copies = True

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Give parameters back after forward, or keep them for backward."""
        for state in self._states(recurse):
            state.reshards = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Give parameters back after backward, or keep them for the next forward.

        Where gradients were averaged they are given back in any case: the averages stand with the parts.
        """
        for state in self._states(recurse):
            state.reshards_after_backward = reshard_after_backward

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Say whether another backward follows before the step: each ends by itself here."""

    def set_modules_to_forward_prefetch(self, modules: Sequence[Any]) -> None:
        """Begin to gather these modules' parameters as this one's forward begins, not the next's."""
        self._state().ahead = [_need_state("set_modules_to_forward_prefetch", m) for m in modules]

    def set_modules_to_backward_prefetch(self, modules: Sequence[Any]) -> None:
        """The same for backward, in place of the one before."""
        self._state().ahead_in_backward = [
            _need_state("set_modules_to_backward_prefetch", m) for m in modules
        ]

    def set_gradient_divide_factor(self, factor: float) -> None:
        """Divide sums of gradients by this, in place of the number of ranks."""
        self._state().group.divisor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def set_post_optim_event(self, event: Any) -> None:
        """Nothing: there are no streams to wait for."""

    def set_unshard_in_backward(self, unshard_in_backward: bool) -> None:
        """Gather parameters in backward, as is needed."""
        if not unshard_in_backward:
            raise ArgumentValueError("set_unshard_in_backward(False): backward needs the parameters")


def _need_state(name: str, module: Any) -> State:
    state = state_of(module) if isinstance(module, Module) else None
    if state is None:
        raise ArgumentValueError(f"{name}: fully sharded modules, not a {type(module).__name__}")
    return state


_classes: dict[type, type] = {}
_sharded: dict[int, weakref.ref] = {}  # parameters that a group has made parts of, by id


def fully_shard(
    module: Any,
    *,
    mesh: DeviceMesh | None = None,
    reshard_after_forward: bool | int | None = None,
    shard_placement_fn: Callable[[Tensor], Placement | None] | None = None,
    mp_policy: MixedPrecisionPolicy | None = None,
    offload_policy: OffloadPolicy | None = None,
    ignored_params: set[Tensor] | None = None,
) -> Any:
    """Let each rank keep a part of a module's parameters, in place; return the module.

    Called on modules from the inside out: each call makes a group of the parameters that no module inside
    has, which are gathered together before its forward, and in backward; gradients are averaged.  Outside of
    these the module's parameters are DTensors, a part on each rank, which optimizers and checkpoints see.
    The module's class becomes `FSDP` and its name, derived from it and `FSDPModule`.

    mesh: of one dim, all ranks unless given; of two: copies along the first, parts along the second.
    reshard_after_forward: give parameters back between forward and backward; so it is unless said, but of the
    outermost module.  shard_placement_fn(parameter): the dim to cut along, the first where it gives None.
    mp_policy: dtypes of calls.  ignored_params: are left as they are.

    All ranks have equal parameters before.  Raises ArgumentError, ArgumentValueError.
    """
    if isinstance(module, (list, tuple)):
        raise ArgumentError("fully_shard(module): one module; a list of modules as one group is not built")
    if not isinstance(module, Module):
        raise ArgumentError(f"fully_shard(module): a Module, not {type(module).__name__}")
    if isinstance(module, FSDPModule):
        raise ArgumentValueError(
            f"fully_shard has already been applied to this module: {type(module).__name__}"
        )
    if not callable(module.forward) or type(module).forward is Module.forward:
        raise ArgumentValueError(
            f"fully_shard does not support containers that do not implement forward: {type(module).__name__}",
            "call it on the modules inside",
        )
    found = need_mesh("fully_shard", mesh)
    if found.ndim > 2:
        raise ArgumentValueError("fully_shard(mesh): of one dim or two", f"{found!r}")
    if reshard_after_forward is not None and not isinstance(reshard_after_forward, bool):
        raise ArgumentValueError(
            "fully_shard(reshard_after_forward): True or False; to a smaller mesh is not built"
        )
    policy = mp_policy or MixedPrecisionPolicy()
    ignored = {id(p) for p in ignored_params or ()}
    inner = {id(m) for m in module.modules() if isinstance(m, FSDPModule)}
    cuts = []
    for places, p in managed(module, ignored, inner):
        known = _sharded.get(id(p))
        if known is not None and known() is p:
            raise ArgumentValueError(
                "fully_shard: a parameter stands in two groups",
                f"parameter: {places[0][1]} of {type(places[0][0]).__name__}, {p._meta}",
                "call fully_shard on a module that both of its modules are inside of, and not on these",
            )
        cut = Cut(places, p, chosen_dim(p, shard_placement_fn), found)
        _sharded[id(p)] = weakref.ref(p)
        tensor_fields(cut.part).update(
            {k: v for k, v in tensor_fields(p).items() if k not in tensor_fields(cut.part)}
        )
        cut.stand(cut.part)
        cuts.append(cut)
    for key in [k for k, ref in _sharded.items() if ref() is None]:
        del _sharded[key]
    state = State(module, ParameterGroup(cuts, found, policy), reshard_after_forward, policy)
    cls = type(module)
    if cls not in _classes:
        # The module's class comes first: a class that has another first is of another layout to Python.
        own = {name: vars(FSDPModule)[name] for name in ("__new__", "__deepcopy__")}
        named = {"__module__": cls.__module__, "__slots__": (), **own}
        _classes[cls] = type(f"FSDP{cls.__name__}", (cls, FSDPModule), named)
    module.__class__ = _classes[cls]
    object.__setattr__(module, _STATE, state)
    module.register_forward_pre_hook(
        lambda m, args, kwargs: state.forward_begins(args, kwargs), prepend=True, with_kwargs=True
    )
    module.register_forward_hook(lambda m, args, output: state.forward_ended(output))
    module.register_state_dict_pre_hook(lambda m, prefix, keep: state.group.reshard())
    module.register_load_state_dict_pre_hook(lambda m, *_: state.group.reshard())
    return module


def register_fsdp_forward_method(module: Module, method_name: str) -> None:
    """Let a method gather parameters as forward does.  Raises ArgumentValueError where there is none."""
    if not isinstance(module, FSDPModule):
        return
    method = getattr(module, method_name, None)
    if not callable(method):
        raise ArgumentValueError(
            f"register_fsdp_forward_method: {type(module).__name__} has no {method_name!r}"
        )
    state = module._state()

    @wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = state.forward_begins(args, kwargs)
        return state.forward_ended(method(*args, **kwargs))

    object.__setattr__(module, method_name, wrapped)
