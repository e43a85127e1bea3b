"""Takes modules and optimizers in whole: Lamina's own code, which runs natively, is about to read them."""

from __future__ import annotations

from ...nn import Module
from ...nn.members import Members, Tracked, fields
from ...optim.optimizer import Optimizer
from ...runtime import Tensor
from .deaths import Reach
from .facts import Facts
from .kinds import of_lamina
from .lifted_numbers import WEIGHTS
from .parts import Reason, Whole
from .whole import module_now, optimizer_now, state_names, texts

READ_OF_MODULES = frozenset(fields(Module()))  # attributes that Lamina's own code reads of any module


def numbers_that_change(facts: Facts, module: Module, path: str) -> set[str]:
    """Which numbers of a module's own, as a rate of dropout, are lifted or are to be."""
    return {
        name
        for name, value in fields(module).items()
        if type(value) in (int, float)
        and ((f"{path}.{name}", "attr") in facts.numbers.lift or facts.standing(module, "attr", (str, name)))
    }


def take_module(facts: Facts, module: Module) -> None:
    """Take for granted all that a module and those inside it are: Lamina's code is about to read it."""
    written = facts.written.names()
    for name, each in module.named_modules():
        if id(each) in facts.known.whole:
            continue
        facts.known.whole.add(id(each))
        path = facts.path(module) + (f".{name}" if name else "")
        if not facts.is_known(each):
            facts.pin(each, path)
        tensors = [
            (k, x) for own in (each._parameters, each._buffers) for k, x in own.items() if x is not None
        ]
        apart = {k for k, _ in tensors if facts.numbers.lift.get((f"{path}.{k}", "attr"), 0) >= WEIGHTS}
        assigned = written.get(id(each), set())  # what stands there is this run's own
        apart |= assigned
        if any(issubclass(base, Module) and base is not Module and of_lamina(base)
               for base in type(each).__mro__):  # fmt: skip
            apart |= numbers_that_change(facts, each, path)
        else:
            # Only code of the user's looks there, but for the modules: another may be put in a place.
            apart |= fields(each).keys() - READ_OF_MODULES - each._modules.keys()
        left_out = frozenset(apart)
        now = module_now(each, left_out, facts.before)
        facts.guards.part.modules.append(Whole(Reach(each), now, path, left_out, texts(now), facts.place()))
        for key, x in tensors:
            if key in assigned:
                continue
            if key in apart or (facts.is_known(x) and not facts.captured(x)):  # met in a slot
                read = f"fields({facts.const(each)})[{key!r}]"
                facts.note(read, x, True, Reason(f"{path}.{key}", None, read, "", (f"{path}.{key}", "attr")))
            elif not facts.is_known(x):
                facts.known.add(x, None, f"{path}.{key}")
                facts.guards.part.places.setdefault(facts.const(x), (f"{path}.{key}", "attr"))
                facts.hold(x)
        for key, value in tuple(fields(each).items()):
            if type(value) in (list, dict, set) and not issubclass(type(value), (Members, Tracked)):
                if key not in apart:
                    if not facts.is_known(value):
                        facts.pin(value, f"{path}.{key}")
                    elif not facts.captured(value):
                        facts.note(f"fields({facts.const(each)})[{key!r}]", value, True, f"{path}.{key}")
                    facts.read_deep(value)


def take_optimizer(facts: Facts, optimizer: Optimizer) -> None:
    """Take for granted an optimizer's groups and states: Lamina's own code is about to read them."""
    if id(optimizer) in facts.known.whole:
        return
    facts.known.whole.add(id(optimizer))
    path = facts.path(optimizer)
    if not facts.is_known(optimizer):
        facts.pin(optimizer, path)
    slot = f"the states of {path}", "optimizer"
    apart = facts.numbers.lift.get(slot, 0) >= WEIGHTS  # they keep being others: loaded, dropped, made anew
    facts.guards.part.optimizers.append((Reach(optimizer), optimizer_now(optimizer, apart), path, apart))
    name = facts.const(optimizer)
    for at, group in enumerate(optimizer.param_groups):
        for k, x in enumerate(group["params"]):
            there = f"param_groups[{at}]['params'][{k}]"
            _held_by(facts, x, f"{path}.{there}", f"{name}.{there}")
    if apart:
        names = facts.const(state_names(optimizer))
        facts.check(f"state_names({name}) != {names}", Reason(slot[0], facts.place()))
    for p, state in optimizer.state.items():
        kept = f"item({name}.state, {facts.const(p)})"  # reading a defaultdict would make what is not there
        for key, x in state.items():
            text, read = f"{path}.state[...][{key!r}]", f"{kept}[{key!r}]"
            if issubclass(type(x), Tensor) and not apart:
                _held_by(facts, x, text, read)
                facts.guards.part.places.setdefault(facts.const(x), slot)
            elif issubclass(type(x), Tensor):
                facts.note(read, x, True, Reason(text, facts.place(), slot=slot))


def _held_by(facts: Facts, x: Tensor, path: str, read: str) -> None:
    if not facts.is_known(x):
        facts.known.add(x, None, path)
        facts.const(x)
        facts.hold(x)
    elif not facts.captured(x):  # met in a slot, which must still hold what stands here
        facts.note(read, x, True, path)
