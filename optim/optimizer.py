"""What every optimizer shares: groups of parameters, their states, saving and loading, the step."""

from __future__ import annotations

import copy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, GradError, ShapeError
from ..ir.op import Op
from ..runtime import Tensor, compound, enable_grad, modes, no_grad, ops, tensor
from ..runtime.graph import Leaf
from ..runtime.methods import Handle
from ..runtime.update import apply_update, update_with_history
from .flat import Flat, flat_for

REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "<required parameter>"})()


def require(holds: bool, argument: str, value: Any) -> None:
    """Refuse a hyper-parameter out of its range. Raises ArgumentValueError."""
    if not holds:
        raise ArgumentValueError(f"invalid {argument}: {value}")


class Optimizer:
    """Updates parameters from their `.grad`.

    params: an iterable of parameters, or of dicts with "params" and hyper-parameters of that group.
    A rule subclasses it, and states its update record (`update`), the hyper-parameters that record takes
    (`numbers`), the names of its states (`states`), and whether it counts its steps (`counts`).

    PyTorch's switches among its implementations (foreach, fused, capturable) are kept in the groups and mean
    nothing: Lamina has one, which is always multi-tensor.  With differentiable=True a step is ops with a
    history; parameters must then be no leaves that ask for gradients.
    """

    _rule: Op
    _counts = True
    _takes_step = True  # whether the count is an operand of the record
    _alike = True  # whether each element is updated by itself, so that small parameters may be joined
    _before_any: list[Callable] = []  # hooks of every optimizer's steps, called around each one's own
    _after_any: list[Callable] = []
    _counters: dict[
        str, float | str
    ] = {}  # 0-d states beside the count: what they begin with, or whose number

    # What schedules ask, of optimizers too that wrap another and never come to this class's __init__.
    _own_step: Any = None  # the step that stood on the instance, not its class, when its schedule was made
    _opt_called = False

    def __init__(self, params: Iterable, defaults: dict[str, Any]):
        check_settings(defaults)
        if isinstance(params, Tensor):
            raise ArgumentError(
                "params must be an iterable of tensors or of dicts, not one tensor", "pass [tensor]"
            )
        if not isinstance(params, Iterable):
            remedy = ["pass module.parameters()"] if hasattr(params, "parameters") else []
            raise ArgumentError(
                f"params must be an iterable of tensors or of dicts, not {type(params).__name__}", *remedy
            )
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._flats: list[Flat] = []
        self._before: list[Callable] = []
        self._after: list[Callable] = []
        self._of_states: dict[str, list[Callable]] = {}
        self._repeated = self._opt_called = False
        groups = list(params)
        if not groups:
            raise ArgumentValueError(
                "an optimizer got an empty list of parameters",
                "a module's parameters() can be gone through once: call it anew for each use",
            )
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take over attributes, of a pickle or copy; derived classes give old ones what they lack here."""
        self.__dict__.update(state)

    # ---- what a rule states ----
    def _numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        """The scalar and boolean arguments of the update record."""
        raise GradError(f"{type(self).__name__} does not say how to step")

    def _asked(self, group: dict[str, Any]) -> dict[str, Any]:
        """All that a step reads of a group: its arguments, and whether it is to be differentiated."""
        return {**self._numbers(group), "differentiable": bool(group.get("differentiable"))}

    def _states(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the states, in the record's order."""
        return ()

    def _initial(self, name: str, group: dict[str, Any], p: Tensor) -> Tensor:
        """A state before the first step."""
        return ops.zeros_like(p.detach())

    # ---- groups ----
    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Update further parameters from now on, with hyper-parameters of their own.

        Raises ArgumentError, ArgumentValueError; then nothing is added.
        """
        if not isinstance(param_group, dict):
            raise ArgumentError(f"a parameter group must be a dict, not {type(param_group).__name__}")
        if "params" not in param_group:
            raise ArgumentValueError("a parameter group must have the key 'params'")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise ArgumentError("parameters must come in an order that stays; a set has none", "pass a list")
        given = list(params)
        names = [p[0] for p in given if isinstance(p, tuple)]
        if names and len(names) != len(given):
            raise ArgumentValueError("either all parameters of a group come with names, or none")
        params = [p[1] for p in given] if names else given
        for i, p in enumerate(params):
            if not isinstance(p, Tensor):
                raise ArgumentError(f"an optimizer updates tensors, not {type(p).__name__}")
            if p._gathered is not None:
                params[i] = p = p._gathered
            if not (p.is_leaf or p.retains_grad or self.defaults.get("differentiable")):
                raise ArgumentValueError(
                    "an optimizer updates leaves only", f"tensor: {p._meta} of {p.grad_fn}"
                )
        if len({id(p) for p in params}) < len(params):
            self._repeated = True
            warnings.warn("a parameter group holds a parameter twice, and updates it twice", stacklevel=3)
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if known & {id(p) for p in params}:
            raise ArgumentValueError("some parameters appear in more than one parameter group")
        if self.param_groups and bool(names) is not ("param_names" in self.param_groups[0]):
            raise ArgumentValueError("either all parameter groups come with names, or none")
        named = {"param_names": names} if names else {}
        settings = {k: v for k, v in param_group.items() if k != "params"}
        missing = [k for k, v in self.defaults.items() if v is REQUIRED and k not in settings]
        if missing:
            raise ArgumentValueError(f"a parameter group has no {missing[0]}, which has no default")
        self.param_groups.append({"params": params, **named, **self.defaults, **settings})

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the parameters' gradients, or set them to zero."""
        if modes.CHANGED:
            modes.tell("gradients")
        for group in self.param_groups:
            for p in group["params"]:
                edge = p._edge
                if not set_to_none:
                    if p.grad is not None:
                        p.grad.detach_().zero_()
                elif type(edge) is Leaf:
                    edge.grad = None
                else:  # frozen since: what it has left is dropped as well, lest a step uses it
                    p.grad = None

    # ---- the step ----
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient. `closure` recomputes the loss, which is returned."""
        if modes.CHANGED:
            modes.tell("gradients")
        self._opt_called = True
        for hook in self._hooks_before():
            closure = closure_of(hook(self, (self,) if closure is None else (self, closure), {}), closure)
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._step_groups()
        for hook in self._hooks_after():
            hook(self, (self,) if closure is None else (self, closure), {})
        return loss

    def _hooks_before(self) -> list[Callable]:
        return [*self._before_any, *self._before]

    def _hooks_after(self) -> list[Callable]:
        return [*self._after, *self._after_any]

    def _cuda_graph_capture_health_check(self) -> None:
        """Nothing: no step is captured.  Optimizers derived from PyTorch's begin their steps by it."""

    _accelerator_graph_capture_health_check = _cuda_graph_capture_health_check

    @staticmethod
    def _group_tensors_by_device_and_dtype(
        tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
    ) -> dict[tuple, tuple[list[list], list[int]]]:
        """Lists of tensors that belong together, cut into those of one device and dtype, that of the first.

        with_indices: with their places.  For optimizers that update many tensors at a time.
        """
        found: dict[tuple, tuple[list[list], list[int]]] = {}
        for i, row in enumerate(zip(*tensorlistlist, strict=True)):
            lists, places = found.setdefault((row[0].device, row[0].dtype), ([[] for _ in row], []))
            for each, x in zip(lists, row, strict=True):
                each.append(x)
            places += [i] * with_indices
        return found

    def _step_groups(self) -> None:
        for group in self.param_groups:
            if compound.seen:
                group = self._checked(group)
            if not self._repeated:
                self._step_group(group)
                continue
            for p in group["params"]:
                self._step_group({**group, "params": [p]})

    def _checked(self, group: dict[str, Any]) -> dict[str, Any]:
        """The group without the parameters whose gradients are sparse, which are updated.

        Raises GradError for distributed ones where an update looks at more than an element at a time.
        """
        if any([_is_sparse(p.grad) for p in group["params"]]):
            group = self._step_sparse(group)
        if not self._alike:
            p = next((p for p in group["params"] if isinstance(p, compound.Compound) and p.by_parts), None)
            if p is not None:
                raise GradError(
                    f"{type(self).__name__}: it looks at whole parameters, of which a rank has a part",
                    f"parameter: {p._meta}",
                    "SGD and Adam's kin update each element by itself",
                )
        return group

    def _step_sparse(self, group: dict[str, Any]) -> dict[str, Any]:
        """Update the parameters whose gradients are sparse; return the group of the others."""
        others = []
        with no_grad():
            for p in group["params"]:
                if _is_sparse(p.grad):
                    grad = p.grad.coalesce()
                    self._step_rows(group, p, -grad if group.get("maximize") else grad)
                else:
                    others.append(p)
        return {**group, "params": others}

    def _step_rows(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> None:
        """Update a parameter by a sparse gradient.  Raises GradError where the rule does not know how."""
        raise GradError(
            f"{type(self).__name__} does not support sparse gradients",
            "SparseAdam, SGD and Adagrad do; nn.Embedding(sparse=False) has dense ones",
        )

    def _step_group(self, group: dict[str, Any]) -> None:
        self._step_part(group, group["params"], self._states(group), self._numbers(group))

    def _step_part(
        self, group: dict[str, Any], members: list[Tensor], names: tuple[str, ...], numbers: dict[str, Any]
    ) -> None:
        """Update some parameters of a group, which have these states, with these numbers and flags."""
        for flat in self._flats:
            columns = flat.columns(members, self.state, names)
            if columns is not None and self._step_flat(flat, columns, group, numbers):
                return
        # Parameters that have taken the same number of steps share one step tensor, and are updated together.
        buckets: dict[int, tuple[Tensor | None, list[tuple]]] = {}
        fresh: list[Tensor] = []
        states, counts = self.state, self._counts
        rows: list[tuple] = []
        if not counts:
            buckets[0] = (None, rows)
        pick: Any = itemgetter(*names) if names else None
        several, last = len(names) > 1, names[-1] if names else "step"
        for p in members:
            edge = p._edge
            grad = edge.grad if type(edge) is Leaf else p.grad
            if grad is None:
                continue
            if pick is None and not counts:
                rows.append((grad, p))
                continue
            state: Any = states.get(p)
            if not state or last not in state:  # where somebody else keeps things as well
                fresh.append(p)
                continue
            if counts:
                step = state["step"]
                bucket = buckets.get(id(step))
                if bucket is None:
                    bucket = buckets[id(step)] = (step, [])
                rows = bucket[1]
            if several:
                rows.append((grad, p, *pick(state)))
            else:
                rows.append((grad, p) if pick is None else (grad, p, pick(state)))
        if fresh and modes.CHANGED:
            modes.tell("once", f"{type(self).__name__} made the states of its parameters")
        made = [self._first_rows(group, alike, names) for alike in _by_place(fresh)]
        for step, rows in (*buckets.values(), *made):
            if not rows:
                continue
            later = pick is not None and not any([rows is first for _, first in made])
            flat = next((f for f in self._flats if f.params[0] is rows[0][1] and f.covers(rows)), None)
            self._update(group, tuple(zip(*rows, strict=True)), numbers, step, later, flat)

    def _first_rows(
        self, group: dict[str, Any], fresh: list[Tensor], names: tuple[str, ...]
    ) -> tuple[Tensor | None, list[tuple]]:
        """The step count and the rows of parameters of one place that have no states yet: these are made."""
        counted = self._first_counters(group, fresh[0]) if self._counts else {}
        joined = self._alike and not group.get("differentiable")
        flat = flat_for(fresh, names) if joined and not any([p._compound for p in fresh]) else None
        if flat is not None:
            self._flats = [f for f in self._flats if f.params[0] in self.state][-31:] + [flat]
        rows: list[tuple] = []
        for number, p in enumerate(fresh):
            state = self.state[p]
            state.update(counted)
            for place, name in enumerate(names):
                value = self._initial(name, group, p)
                state[name] = value if flat is None else flat.initial(place, number, value)
            rows.append((p.grad, p, *[state[name] for name in names]))
        return counted.get("step"), rows

    def _update(
        self, group: dict[str, Any], columns: tuple, numbers: dict[str, Any], step: Tensor | None,
        later: bool, flat: Flat | None,
    ) -> None:  # fmt: skip
        """Update parameters that have taken as many steps; later: they have states from an earlier one."""
        if step is not None:
            step = self._counted(step, columns[1])
        if (
            self._takes_step
        ):  # where nothing is counted, all that a rule asks is whether this is the first step
            numbers["step"] = (2 if later else 1) if step is None else step
        if not self._counters:
            self._apply(self._rule, columns, numbers, group, flat)
            return
        state = self.state[columns[1][0]]
        for op, over in self._with_counters(state):
            named = {*op.operands, *op.attrs}
            given = {k: v for k, v in {**numbers, **state, "step": step}.items() if k in named}
            self._apply(op, over or columns, given, group, flat if over is None else None)

    def _with_counters(self, state: dict[str, Any]) -> Iterable[tuple[Op, tuple | None]]:
        """The records of a step in order, and the columns of those that write the counters among `state`."""
        return [(self._rule, None)]

    def _apply(self, op: Op, columns: tuple, numbers: dict, group: dict, flat: Flat | None) -> None:
        if group.get("differentiable"):
            update_with_history(op, columns, numbers)
        else:
            apply_update(op, columns, numbers, flat, (self, group))

    def _first_counters(self, group: dict[str, Any], p: Tensor) -> dict[str, Tensor]:
        """What counts the steps of a parameter, where it is: a step on a GPU waits for no number."""
        begin = {k: group[v] if isinstance(v, str) else v for k, v in self._counters.items()}
        return {name: tensor(float(n), device=_at(p)) for name, n in {"step": 0.0, **begin}.items()}

    def _step_flat(self, flat: Flat, columns: tuple, group: dict[str, Any], numbers: dict[str, Any]) -> bool:
        """Update parameters that are gathered already; False where they differ in their steps."""
        step = None
        if self._counts:
            steps = [self.state[p]["step"] for p in columns[1]]
            step = steps[0]
            if any(other is not step for other in steps):
                return False
        self._update(group, columns, numbers, step, True, flat)
        return True

    def _counted(self, step: Tensor, params: Sequence[Tensor]) -> Tensor:
        """The step tensor of these, one further; their own, where others without a gradient stay behind."""
        count, states = len(params), self.state.values()
        if count < len(states) and count < sum(s.get("step") is step for s in states):
            if modes.CHANGED:
                modes.tell("once", f"{type(self).__name__} gave some parameters a step count of their own")
            own = {name: self.state[params[0]][name].clone() for name in ("step", *self._counters)}
            step = own["step"]
            for p in params:
                self.state[p].update(own)
        with no_grad():
            return step.add_(1.0)

    # ---- saving and loading ----
    def state_dict(self) -> dict[str, Any]:
        """States and hyper-parameters, in PyTorch's form: parameters are numbered in the groups' order."""
        for hook in self._hooks("state_dict_pre"):
            hook(self)
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            rest = {k: v for k, v in group.items() if k != "params"}
            groups.append({**rest, "params": [numbers[id(p)] for p in group["params"]]})
        states: dict[Any, dict[str, Any]] = {}
        given: set[int] = set()
        for p, s in self.state.items():  # counters that several share are each one's own in PyTorch
            shared = [k for k in ("step", *self._counters) if isinstance(s.get(k), Tensor)]
            own = {k: s[k].clone() for k in shared if id(s[k]) in given}
            given.update(id(s[k]) for k in shared)
            states[numbers.get(id(p), p)] = {**s, **own}
        saved: Any = {"state": states, "param_groups": groups}
        for hook in self._hooks("state_dict_post"):
            found = hook(self, saved)
            saved = saved if found is None else found
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises ArgumentValueError, ShapeError; then nothing is changed.
        """
        for hook in self._hooks("load_pre"):
            found = hook(self, dict(state_dict))
            state_dict = state_dict if found is None else found
        lacking = {"state", "param_groups"} - set(state_dict)
        if lacking:
            names = " and no ".join(sorted(lacking))
            raise ArgumentValueError(f"load_state_dict: the state_dict has no {names}")
        groups = state_dict["param_groups"]
        mine, theirs = ([len(g["params"]) for g in x] for x in (self.param_groups, groups))
        if mine != theirs:
            raise ArgumentValueError(
                "load_state_dict: the groups differ in their numbers of parameters",
                f"this optimizer: {mine}",
                f"state_dict: {theirs}",
            )
        order = [p for group in self.param_groups for p in group["params"]]
        numbered = dict(zip((n for g in groups for n in g["params"]), order, strict=True))
        state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        shared: dict[tuple, dict[str, Tensor]] = {}
        # what somebody's own optimizer keeps, and of which shapes, is its own affair
        ours = type(self).__module__.partition(".")[0] == __name__.partition(".")[0]
        alone = type(self).step is Optimizer.step
        counted = self._counts and any(isinstance(vars(c).get("_rule"), Op) for c in type(self).__mro__)
        for number, values in state_dict["state"].items():
            p = numbered.get(number)
            if p is None:
                if ours:
                    raise ArgumentValueError(f"load_state_dict: there is no parameter {number}")
                state[number] = values
                continue
            for name, value in values.items():
                shaped = ours and self._alike and isinstance(value, Tensor) and value.ndim > 0
                if shaped and value.shape != p.shape:
                    raise ShapeError(
                        f"load_state_dict: {name} of parameter {number} must have the parameter's shape",
                        f"parameter: {p._meta}",
                        f"{name}: {value._meta}",
                    )
                # PyTorch leaves counts as they were saved: one of 1,000 steps is none that bfloat16 holds
                state[p][name] = loaded(value, value if name == "step" and isinstance(value, Tensor) else p)
            if counted and "step" in values:
                at = tuple(float(values[name]) for name in ("step", *self._counters) if name in values)
                found = {
                    "step": tensor(at[0], device=_at(p)),
                    **{k: state[p][k] for k in self._counters if k in values},
                }
                # those that stand at one point share their counters again, if only the step here adds to them
                state[p].update(shared.setdefault((*at, p.dtype, _at(p)), found) if alone else found)
        settings = [{k: copy.deepcopy(v) for k, v in saved.items() if k != "params"} for saved in groups]
        self.state = state  # now that all could be copied
        for group, saved in zip(self.param_groups, settings, strict=True):
            group.update(saved)
        self.__setstate__({"state": self.state, "param_groups": self.param_groups})
        for hook in self._hooks("load_post"):
            hook(self)

    # ---- hooks ----
    def _hooks(self, when: str) -> list[Callable]:
        return list(self._of_states.get(when, ()))

    def register_step_pre_hook(self, hook: Callable) -> Handle:
        """Call `hook(optimizer, args, kwargs)` before each step; what it returns replaces the arguments."""
        return hung(self._before, hook)

    def register_step_post_hook(self, hook: Callable) -> Handle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return hung(self._after, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` before each `state_dict()`."""
        return hung(self._of_states.setdefault("state_dict_pre", []), hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` after each `state_dict()`; what it returns takes its place."""
        return hung(self._of_states.setdefault("state_dict_post", []), hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` before loading; what it returns is loaded in its place."""
        return hung(self._of_states.setdefault("load_pre", []), hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` after each `load_state_dict()`."""
        return hung(self._of_states.setdefault("load_post", []), hook, prepend)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {v}" for k, v in sorted(group.items()) if k != "params"]
        return "\n".join([*lines, ")"])


def _at(p: Tensor) -> Any:
    """Where the counters of a parameter are."""
    return p.device if p.is_cuda else "cpu"


def _by_place(params: list[Tensor]) -> Iterable[list[Tensor]]:
    """Those of each place apart: what counts their steps is there."""
    if not any([p.is_cuda for p in params]):
        return [params] if params else []
    found: dict[Any, list[Tensor]] = {}
    for p in params:
        found.setdefault(_at(p), []).append(p)
    return found.values()


# ---- what rules and steps share
def check_settings(defaults: dict[str, Any]) -> None:
    """Refuse settings that exclude each other, and tensors of more than one element for numbers."""
    if defaults.get("fused") and (defaults.get("foreach") or defaults.get("differentiable")):
        raise GradError("fused=True excludes foreach=True and differentiable=True")
    betas: Any = defaults.get("betas")
    told = isinstance(betas, (tuple, list)) and len(betas) == 2
    named = {"lr": defaults.get("lr"), **({"betas[0]": betas[0], "betas[1]": betas[1]} if told else {})}
    tensors = {name: value for name, value in named.items() if isinstance(value, Tensor)}
    for name, value in tensors.items():
        if value.numel() != 1:
            raise ArgumentValueError(f"{name} must have one element, not the shape {list(value.shape)}")
        if defaults.get("foreach") and not defaults.get("capturable"):
            raise ArgumentValueError(f"{name} as a tensor with foreach=True needs capturable=True")
    if told and len(tensors.keys() - {"lr"}) == 1:
        raise ArgumentValueError("betas must be either both numbers or both tensors")


def filled_like(p: Tensor, value: float) -> Tensor:
    """A state like a parameter, of one number; of complex numbers it is both parts."""
    return ops.full_like(p.detach(), complex(value, value) if p.dtype.is_complex else value)


def register_optimizer_step_pre_hook(hook: Callable) -> Handle:
    """Call `hook(optimizer, args, kwargs)` before each step of any optimizer, and before its own hooks."""
    return hung(Optimizer._before_any, hook)


def register_optimizer_step_post_hook(hook: Callable) -> Handle:
    """Call `hook(optimizer, args, kwargs)` after each step of any optimizer, and after its own hooks."""
    return hung(Optimizer._after_any, hook)


def closure_of(returned: Any, closure: Any) -> Any:
    """The closure of a step, where a hook before it has returned other arguments. Raises GradError."""
    if returned is None:
        return closure
    if not isinstance(returned, tuple) or len(returned) != 2:
        raise GradError("a hook before a step must return None or (args, kwargs)")
    args, kwargs = returned
    return kwargs.get("closure", args[1] if len(args) > 1 else None)


def loaded(value: Any, p: Tensor) -> Any:
    """A copy of a saved state's value where its parameter is, floating tensors in the dtype of that."""
    if isinstance(value, Tensor):
        copied = value.detach().clone()
        if p._compound and not copied._compound and copied.shape == p.shape:
            copied = p.lying_alike(copied)
        if p.is_cuda or copied.is_cuda:
            copied = copied.to(p.device)
        return copied.to(p.dtype) if value.is_floating_point() and p.is_floating_point() else copied
    if isinstance(value, dict):
        return {k: loaded(v, p) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([loaded(v, p) for v in value])
    return copy.deepcopy(value)


def _is_sparse(grad: Any) -> bool:
    return isinstance(grad, compound.Compound) and not grad.by_parts


def hung(hooks: list[Callable], hook: Callable, prepend: bool = False) -> Handle:
    """Add a hook, at the front if asked for."""
    hooks.insert(0 if prepend else len(hooks), hook)
    return Handle(hooks, hook)
