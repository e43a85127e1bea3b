"""What every optimizer shares: groups of parameters, their states, saving and loading, the step."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, GradError, ShapeError
from ..ir.op import Op
from ..runtime import Tensor, enable_grad, modes, no_grad, ops, tensor
from ..runtime.graph import Leaf
from ..runtime.methods import Handle
from ..runtime.update import apply_update
from .flat import Flat, flat_for

# Switches of PyTorch's that choose among its implementations; Lamina has one, which is always multi-tensor.
HINTS = {"foreach": None, "fused": None, "capturable": False, "differentiable": False}


def require(holds: bool, argument: str, value: Any) -> None:
    """Refuse a hyper-parameter out of its range. Raises ArgumentValueError."""
    if not holds:
        raise ArgumentValueError(f"invalid {argument}: {value}")


class Optimizer:
    """Updates parameters from their `.grad`.

    params: an iterable of parameters, or of dicts with "params" and hyper-parameters of that group.
    A rule subclasses it, and states its update record (`update`), the hyper-parameters that record takes
    (`numbers`), the names of its states (`states`), and whether it counts its steps (`counts`).
    """

    update: Op
    counts = True
    takes_step = True  # whether the count is an operand of the record

    def __init__(self, params: Iterable, defaults: dict[str, Any]):
        if isinstance(params, Tensor):
            raise ArgumentError(
                "params must be an iterable of tensors or of dicts, not one tensor", "pass [tensor]"
            )
        if not isinstance(params, Iterable):
            remedy = ["pass module.parameters()"] if hasattr(params, "parameters") else []
            raise ArgumentError(
                f"params must be an iterable of tensors or of dicts, not {type(params).__name__}", *remedy
            )
        for name, value in HINTS.items():
            defaults.setdefault(name, value)
        if defaults["differentiable"]:
            raise ArgumentError("differentiable=True is not supported", "write the update with ops instead")
        self.defaults = defaults
        self.state: defaultdict[Tensor, dict[str, Any]] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._flats: list[Flat] = []
        self._before: list[Callable] = []
        self._after: list[Callable] = []
        groups = list(params)
        if not groups:
            raise ArgumentValueError(
                "an optimizer got an empty list of parameters",
                "a module's parameters() can be gone through once: call it anew for each use",
            )
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    # ---- what a rule states ----
    def numbers(self, group: dict[str, Any]) -> dict[str, Any]:
        """The scalar and boolean arguments of the update record."""
        raise GradError(f"{type(self).__name__} does not say how to step")

    def states(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the states, in the record's order."""
        return ()

    def initial(self, name: str, group: dict[str, Any], p: Tensor) -> Tensor:
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
        for p in params:
            if not isinstance(p, Tensor):
                raise ArgumentError(f"an optimizer updates tensors, not {type(p).__name__}")
            if not p.is_leaf:
                raise ArgumentValueError(
                    "an optimizer updates leaves only", f"tensor: {p._meta} of {p.grad_fn}"
                )
        known = {id(p) for group in self.param_groups for p in group["params"]}
        if len({id(p) for p in params}) < len(params) or known & {id(p) for p in params}:
            raise ArgumentValueError("a parameter appears more than once in an optimizer")
        named = {"param_names": names} if names else {}
        settings = {k: v for k, v in param_group.items() if k != "params"}
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
        for hook in self._before:
            hook(self, (closure,), {})
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        for group in self.param_groups:
            self._step_group(group)
        for hook in self._after:
            hook(self, (closure,), {})
        return loss

    def _step_group(self, group: dict[str, Any]) -> None:
        names = self.states(group)
        for flat in self._flats:
            columns = flat.columns(group["params"], self.state, names)
            if columns is not None and self._step_flat(flat, columns, group):
                return
        # Parameters that have taken the same number of steps share one step tensor, and are updated together.
        buckets: dict[int, tuple[Tensor | None, list[tuple]]] = {}
        fresh: list[Tensor] = []
        states, counts = self.state, self.counts
        rows: list[tuple] = []
        if not counts:
            buckets[0] = (None, rows)
        pick: Any = itemgetter(*names) if names else None
        several = len(names) > 1
        for p in group["params"]:
            edge = p._edge
            grad = edge.grad if type(edge) is Leaf else p.grad
            if grad is None:
                continue
            if pick is None and not counts:
                rows.append((grad, p))
                continue
            state: Any = states.get(p)
            if not state:
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
        first: list[tuple] = []
        if fresh:
            if modes.CHANGED:
                modes.tell("once", f"{type(self).__name__} made the states of its parameters")
            step = tensor(0.0) if counts else None
            flat = flat_for(fresh, names)
            if flat is not None:
                self._flats = [f for f in self._flats if f.params[0] in states][-31:] + [flat]
            for number, p in enumerate(fresh):
                state = states[p]
                state.update({"step": step} if counts else {})
                for place, name in enumerate(names):
                    value = self.initial(name, group, p)
                    state[name] = value if flat is None else flat.initial(place, number, value)
                first.append((p.grad, p, *[state[name] for name in names]))
            buckets[-1] = (step, first)
        numbers = self.numbers(group)
        for step, rows in buckets.values():
            if not rows:
                continue
            params = [row[1] for row in rows]
            if self.takes_step:
                # Where nothing is counted, all that a rule asks is whether this is the first step.
                later = pick is not None and rows is not first
                numbers["step"] = self._counted(step, params) if counts else 2 if later else 1
            elif counts:
                self._counted(step, params)
            flat = next((f for f in self._flats if f.params[0] is rows[0][1] and f.covers(rows)), None)
            apply_update(self.update, tuple(zip(*rows, strict=True)), numbers, flat, (self, group))

    def _step_flat(self, flat: Flat, columns: tuple, group: dict[str, Any]) -> bool:
        """Update a whole group that is gathered already; False where its parameters differ in their steps."""
        numbers = self.numbers(group)
        if self.counts:
            steps = [self.state[p]["step"] for p in columns[1]]
            if any(step is not steps[0] for step in steps):
                return False
            step = self._counted(steps[0], columns[1])
            if self.takes_step:
                numbers["step"] = step
        elif self.takes_step:
            numbers["step"] = 2  # not the first, which found no states
        apply_update(self.update, columns, numbers, flat, (self, group))
        return True

    def _counted(self, step: Tensor, params: Sequence[Tensor]) -> Tensor:
        """The step tensor of these, one further; their own, where others without a gradient stay behind."""
        count, states = len(params), self.state.values()
        if count < len(states) and count < sum(s.get("step") is step for s in states):
            if modes.CHANGED:
                modes.tell("once", f"{type(self).__name__} gave some parameters a step count of their own")
            step = step.clone()
            for p in params:
                self.state[p]["step"] = step
        with no_grad():
            return step.add_(1.0)

    # ---- saving and loading ----
    def state_dict(self) -> dict[str, Any]:
        """States and hyper-parameters, in PyTorch's form: parameters are numbered in the groups' order."""
        numbers: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for p in group["params"]:
                numbers.setdefault(id(p), len(numbers))
            rest = {k: v for k, v in group.items() if k != "params"}
            groups.append({**rest, "params": [numbers[id(p)] for p in group["params"]]})
        return {"state": {numbers[id(p)]: dict(s) for p, s in self.state.items()}, "param_groups": groups}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned.

        Raises ArgumentValueError, ShapeError; then nothing is changed.
        """
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
        steps: dict[float, Tensor] = {}
        for number, values in state_dict["state"].items():
            p = numbered.get(number)
            if p is None:
                raise ArgumentValueError(f"load_state_dict: there is no parameter {number}")
            for name, value in values.items():
                if isinstance(value, Tensor) and name != "step":
                    if value.shape != p.shape:
                        raise ShapeError(
                            f"load_state_dict: {name} of parameter {number} must have the parameter's shape",
                            f"parameter: {p._meta}",
                            f"{name}: {value._meta}",
                        )
                    value = value.detach().to(p.dtype).clone()
                elif name == "step":
                    value = steps.setdefault(float(value), tensor(float(value)))
                state[p][name] = value
        self.state = state
        for group, saved in zip(self.param_groups, groups, strict=True):
            group.update({k: copy.deepcopy(v) for k, v in saved.items() if k != "params"})

    def register_step_pre_hook(self, hook: Callable) -> Handle:
        """Call `hook(optimizer, args, kwargs)` before each step."""
        self._before.append(hook)
        return Handle(self._before, hook)

    def register_step_post_hook(self, hook: Callable) -> Handle:
        """Call `hook(optimizer, args, kwargs)` after each step."""
        self._after.append(hook)
        return Handle(self._after, hook)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {k}: {v}" for k, v in sorted(group.items()) if k != "params"]
        return "\n".join([*lines, ")"])
