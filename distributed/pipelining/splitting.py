"""Cutting a module into stages by the names of its submodules.

The module runs once on example inputs, and it is noted which submodules it calls with what.  It can be cut
where it is a chain: each submodule gets just what the one before gave, and the last one's output is the
module's.  What a stage consists of keeps its names, so that its state_dict() is a part of the module's.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError
from ...nn.module import Module
from ...runtime import no_grad
from .stage import PipelineStage


class SplitPoint(enum.Enum):
    """Where a stage begins: at a submodule's beginning, or behind its end."""

    BEGINNING = 1
    END = 2


class _Call:
    """A submodule that was called.  calls: those that it called itself."""

    def __init__(self, name: str, module: Module, inputs: tuple[Any, ...], is_plain: bool):
        self.name, self.module, self.inputs, self.is_plain = name, module, inputs, is_plain
        self.output: Any = None
        self.calls: list[_Call] = []


def _watched(module: Module, args: tuple[Any, ...]) -> _Call:
    """The calls of a run."""
    root = _Call("", module, args, True)
    stack = [root]
    handles = []
    for name, below in module.named_modules():
        if not name:
            continue

        def before(m: Module, inputs: Any, kwargs: Any, name: str = name) -> None:
            call = _Call(name, m, inputs, not kwargs)
            stack[-1].calls.append(call)
            stack.append(call)

        def after(m: Module, inputs: Any, output: Any) -> None:
            stack.pop().output = output

        handles.append(below.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(below.register_forward_hook(after))
    try:
        with no_grad():
            root.output = module(*args)
    finally:
        for handle in handles:
            handle.remove()
    return root


def _is_same(given: tuple[Any, ...], output: Any) -> bool:
    gave = tuple(output) if isinstance(output, (tuple, list)) else (output,)
    return len(given) == len(gave) and all(a is b for a, b in zip(given, gave, strict=True))


def _of(call: _Call) -> str:
    return f"{call.name!r}" if call.name else "the module"


def _chain(call: _Call, cuts: Sequence[str]) -> list[_Call]:
    """The calls that a call consists of, one after the other, such that every cut is one of them.

    Raises ArgumentValueError where it is no chain.
    """
    if not any(cut.startswith(f"{call.name}." if call.name else "") for cut in cuts):
        return [call]
    steps, inside = call.calls, type(call.module).__name__
    if not steps:
        raise ArgumentValueError(f"pipeline: {_of(call)} ({inside}) calls no submodule: it can't be cut")
    where = "where it computes something itself: put that into a submodule, or cut elsewhere"
    own = [n for n, _ in (*call.module.named_parameters(recurse=False),
                          *call.module.named_buffers(recurse=False))]  # fmt: skip
    if own:
        raise ArgumentValueError(
            f"pipeline: {_of(call)} ({inside}) has {', '.join(own)} of its own, which no stage would have",
            "put them into a submodule",
        )
    for step in steps:
        if not step.is_plain:
            raise ArgumentValueError(
                f"pipeline: {_of(call)} ({inside}) calls {step.name!r} with named arguments",
                "a stage gets what the one before gave, in order",
            )
    pairs: list[tuple[str, tuple[Any, ...], Any, str]] = [
        ("its inputs", steps[0].inputs, call.inputs, repr(steps[0].name)),
        *[(repr(a.name), b.inputs, a.output, repr(b.name)) for a, b in zip(steps, steps[1:])],
    ]
    for before, given, gave, after in pairs:
        if not _is_same(given, gave):
            raise ArgumentValueError(
                f"pipeline: {_of(call)} ({inside}) is no chain between {before} and {after}", where
            )
    if steps[-1].output is not call.output:
        raise ArgumentValueError(
            f"pipeline: {_of(call)} ({inside}) is no chain between {steps[-1].name!r} and its output", where
        )
    return [one for step in steps for one in _chain(step, cuts)]


class _Stage(Module):
    """Some submodules of a module under their own names, called one after the other."""

    def __init__(self, calls: Sequence[_Call], training: bool):
        super().__init__()
        self.training = training
        self._order = [call.name for call in calls]
        for call in calls:
            *above, leaf = call.name.split(".")
            place: Module = self
            for name in above:
                if name not in place._modules:
                    place.add_module(name, Module())
                place = place._modules[name]
            place.add_module(leaf, call.module)

    def forward(self, *args: Any) -> Any:
        for name in self._order:
            output = self.get_submodule(name)(*args)
            args = output if isinstance(output, tuple) else (output,)
        return output


class Pipe:
    """A module cut into stages.

    module: what was cut, whose parameters the stages hold.  num_stages: how many.
    """

    def __init__(self, module: Module, stages: Sequence[Module]):
        self.module, self._stages = module, list(stages)
        self.num_stages = len(stages)

    def get_stage_module(self, stage_idx: int) -> Module:
        """What the stage with that number consists of."""
        if not 0 <= stage_idx < self.num_stages:
            raise ArgumentValueError(f"get_stage_module({stage_idx}): there are {self.num_stages} stages")
        return self._stages[stage_idx]

    def build_stage(self, stage_index: int, device: Any = None, group: Any = None) -> PipelineStage:
        """That stage on this rank."""
        return PipelineStage(
            self.get_stage_module(stage_index), stage_index, self.num_stages, device, group=group
        )

    def __repr__(self) -> str:
        lines = [f"Pipe({type(self.module).__name__}, {self.num_stages} stages)"]
        lines += [f"  {i}: {', '.join(s._order)}" for i, s in enumerate(self._stages)]
        return "\n".join(lines)


def pipeline(
    module: Module,
    mb_args: tuple[Any, ...],
    mb_kwargs: Mapping[str, Any] | None = None,
    split_spec: Mapping[str, SplitPoint] | None = None,
    split_policy: Any = None,
) -> Pipe:
    """Cut a module into stages at submodules, `{"layers.4": SplitPoint.BEGINNING}`.

    mb_args: inputs of one microbatch, on which it runs once, without gradients.  One stage more than places.
    Raises ArgumentValueError, with the submodule's name, where the module is no chain of submodules around a
    place, where one is called twice, or where two stages would share a parameter.
    """
    if mb_kwargs or split_policy is not None:
        raise ArgumentError(
            "pipeline(mb_kwargs, split_policy): neither is known",
            "a chain has no named arguments; split_spec says the places",
        )
    cuts = dict(split_spec or {})
    names = {name for name, _ in module.named_modules()}
    for cut, point in cuts.items():
        if cut not in names or not cut:
            raise ArgumentValueError(f"pipeline(split_spec): the module has no submodule {cut!r}")
        if not isinstance(point, SplitPoint):
            raise ArgumentError(f"pipeline(split_spec): {cut!r}: a SplitPoint, not {point!r}")
    calls = _chain(_watched(module, tuple(mb_args)), list(cuts)) if cuts else []
    if not cuts:
        return Pipe(module, [module])
    order = [call.name for call in calls]
    for name in order:
        if order.count(name) > 1:
            raise ArgumentValueError(f"pipeline: {name!r} is called twice, which stages can't share")
    begins = {0}
    for cut, point in cuts.items():
        if cut not in order:
            raise ArgumentValueError(f"pipeline(split_spec): {cut!r} is not called as a part of the chain")
        begins.add(order.index(cut) + (point is SplitPoint.END))
    marks = sorted(begin for begin in begins if begin < len(calls)) + [len(calls)]
    stages = [_Stage(calls[a:b], module.training) for a, b in zip(marks, marks[1:])]
    _need_apart(module, stages, set(order))
    return Pipe(module, stages)


def _need_apart(module: Module, stages: Sequence[_Stage], called: set[str]) -> None:
    """Raise ArgumentValueError where two stages hold one parameter, or none holds it."""
    seen: dict[int, tuple[str, int]] = {}
    for i, stage in enumerate(stages):
        for name, p in (*stage.named_parameters(), *stage.named_buffers()):
            other, at = seen.setdefault(id(p), (name, i))
            if at != i:
                raise ArgumentValueError(
                    f"pipeline: the stages {at} and {i} would share {other!r} and {name!r}",
                    "let each have its own, or put both into one stage",
                )
    for name, p in module.named_parameters():
        if id(p) not in seen:
            raise ArgumentValueError(
                f"pipeline: {name!r} is in no stage: its module is not called with the example",
                "stages hold what was called",
            )
