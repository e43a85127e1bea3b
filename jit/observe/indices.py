"""Parts of tensors at places that change from call to call: x[i], x[:, i], x[i : i + n].

Such a part is a view of the tensor, which a graph can't take at a place that is known late; what it can take
is a copy, picked by an index that is an operand.  As long as nobody tells them apart they are the same.  So
both are recorded, and when the run is over one of them is left: the copy, if neither the tensor nor the part
was written, and no view of the part left the run; else the view, and the place is guarded.

What is written at such a place, `x[i] = y` or `x[:, i : i + n].copy_(y)`, is written by an index that is an
operand as well (`put`, `settle`).  A slice whose length changes, x[:i], has symbols for its ends (`opened`).

A part at a place that a tensor tells, x[t], is a view too.  Its place is an operand, so the copy alone is
recorded, and a run that tells them apart is refused (`refuse_views`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...ir.dtypes import int64
from ...ir.op import REGISTRY
from ...runtime import Tensor, is_grad_enabled, ops
from ...runtime.interrupts import let_through
from ..facts import Refusal
from ..recorder import Event, Recorder
from .heap import key_of
from .numbers import LiftedInt, raw


@dataclass(frozen=True)
class Picked:
    """A part that was recorded both ways.  numbers: the lifted ones that tell its place."""

    copy: tuple[Event, ...]
    view: Event
    numbers: tuple[LiftedInt, ...]


def part(observer: Any, x: Tensor, k: Any) -> Tensor | None:
    """`x[k]`, where numbers in `k` can stay lifted; None where there are none, or they must be guarded."""
    items = [_ends(observer, item) for item in (_items(observer, k) if type(k) is tuple else [k])]
    numbers = _numbers(items)
    if not numbers or not all(type(item) in _PLAIN for item in items):
        return None
    if is_grad_enabled() and x.requires_grad:  # its gradient would be told the place as well
        return None
    if list in map(type, items) and any(type(item) not in (list, slice, int) for item in items):
        return None
    recorder: Recorder = observer.recorder
    begin = len(recorder.steps)
    try:
        view = x[tuple([slice(*map(raw, item)) if type(item) is list else raw(item) for item in items])]
    except Exception:  # which hangs on the numbers: others may lie within
        for number in numbers:
            observer.plain(number)
        raise
    heard = recorder.steps[begin:]
    checks: list[tuple[str, str]] = []
    picks = [_operand(observer, x, items, at, checks) for at in range(len(items))]
    if len(heard) == 1 and type(heard[0]) is Event and heard[0].op.traits.view and view._view is not None:
        lacking = any(pick is None and item is not None for pick, item in zip(picks, items))
        copy = view if lacking else ops.FUNCTIONS["getitem"](x, tuple(picks))
        made = tuple(recorder.steps[begin + 1 :])
        same = copy.shape == view.shape and copy._data.tobytes() == view._data.tobytes()
        if same and made and all(type(step) is Event for step in made):
            for condition, why in checks:
                observer.check(condition, why)
            observer.numbers.picked.append(Picked(made, heard[0], tuple(numbers)))
            return view
    del recorder.steps[begin + len(heard) :]
    for number in numbers:
        observer.plain(number)
    return view


_PLAIN = (int, slice, list, LiftedInt, type(None), type(Ellipsis))


def told(observer: Any, k: Any) -> Any:
    """An index in whose slices tensors are numbers, as Python asks them to be; which change."""
    if type(k) is tuple:
        items = _items(observer, k)
        asked = [told(observer, item) if type(item) is slice else item for item in items]
        return k if all(a is b for a, b in zip(asked, items)) else observer.filled(tuple, asked)
    if type(k) is not slice:
        return k
    ends = _all_ends(observer, k)
    if not any(is_point(end) and observer.patched(end, "__index__") is None for end in ends):
        return k
    ends = [observer.answer(end) if is_point(end) else end for end in ends]
    return observer.sliced(ends)


def is_point(x: Any) -> bool:
    """Whether a value is a 0-d tensor of an integer."""
    return type(x) is Tensor and x.ndim == 0 and x.dtype.category == "int"


def opened(observer: Any, x: Tensor, k: Any) -> Any:
    """The index with symbols for what changes in it, where nothing else will do."""
    sizes = observer.sizes
    items = [_ends(observer, item) for item in (_items(observer, k) if type(k) is tuple else [k])]
    lists = [at for at, item in enumerate(items) if type(item) is list]
    if not lists and not sizes.concern(x) or not _numbers(items):
        return k
    if not sizes.concern(x) and all(_operand_fits(observer, x, items, at) for at in lists):
        return k
    if all([sizes.open(n) for n in _numbers(items)]):
        return k
    bare = [observer.sliced([*map(sizes.opened, i)]) if type(i) is list else sizes.opened(i) for i in items]
    return observer.filled(tuple, bare) if type(k) is tuple else bare[0]


def put(observer: Any, x: Tensor, k: Any, value: Any) -> bool:
    """`x[k] = value` at places that change, by an index that is an operand; whether it was written so."""
    items = [_ends(observer, item) for item in (_items(observer, k) if type(k) is tuple else [k])]
    numbers, lists = _numbers(items), [at for at, item in enumerate(items) if type(item) is list]
    if (
        not numbers
        or not all(type(item) in _PLAIN for item in items)
        or type(raw(value)) not in (Tensor, int, float, bool)
    ):
        return False
    if is_grad_enabled() and (x.requires_grad or type(value) is Tensor and value.requires_grad):
        return False
    if type(value) is not Tensor and not x.is_floating_point():
        return False  # a number is cast otherwise
    if lists and (len(numbers) > 2 or not all(type(item) in (list, slice, int) for item in items)):
        return False  # dimensions of several indices are placed otherwise
    if not all(_operand_fits(observer, x, items, at) for at in lists):
        return False
    observer.read_deep(raw(value))
    recorder: Recorder = observer.recorder
    begin = len(recorder.steps)
    checks: list[tuple[str, str]] = []
    picks = [_operand(observer, x, items, at, checks) for at in range(len(items))]
    try:
        x[tuple(picks)] = value.type_as(x) if type(value) is Tensor else value
    except Exception as error:  # before anything was written: the slice itself may take it, or raise its own
        let_through(error)
        del recorder.steps[begin:]
        return False
    if not all(type(step) is Event for step in recorder.steps[begin:]):
        for number in numbers:
            observer.plain(number)
    for condition, why in checks:
        observer.check(condition, why)
    return True


def _numbers(items: list[Any]) -> list[LiftedInt]:
    return [n for item in items for n in (item if type(item) is list else [item]) if type(n) is LiftedInt]


def _items(observer: Any, k: tuple) -> list[Any]:
    return [observer.item(k, at) for at in range(len(k))]


def _ends(observer: Any, item: Any) -> Any:
    """An item of an index; of a slice in which a number is lifted the list of start, stop and step."""
    if type(item) is not slice:
        return item
    ends = _all_ends(observer, item)
    return ends if any(type(end) is LiftedInt for end in ends) else item


_ENDS = ("start", "stop", "step")


def _all_ends(observer: Any, item: slice) -> list[Any]:
    ends = [observer.standing(item, "attr", key_of(name)) for name in _ENDS]
    return [own if end is None else end for own, end in zip((item.start, item.stop, item.step), ends)]


def _operand(observer: Any, x: Tensor, items: list[Any], at: int, checks: list[tuple[str, str]]) -> Any:
    """What picks in place of an item; None where nothing can.  checks: takes what must stay of a slice."""
    item = items[at]
    if type(item) is LiftedInt:
        return ops.ones((), dtype=int64) * item
    if type(item) is not list:
        return item
    if not _operand_fits(observer, x, items, at):
        return None
    start, stop, _ = item
    size, count = x.shape[at], raw(stop) - raw(start)
    words = f"where a slice begins and ends: {observer.numbers.in_words(start.expression)}"
    checks.append((f"not 0 <= {start.expression} <= {stop.expression} <= {size}", words))
    checks.append((f"{stop.expression} - {start.expression} != {count}", words))
    return ops.arange(count) + start


def _operand_fits(observer: Any, x: Tensor, items: list[Any], at: int) -> bool:
    """Whether places that are an operand can stand for a slice whose ends change: their number stays."""
    start, stop, step = items[at]
    if step is not None or type(start) is not LiftedInt or type(stop) is not LiftedInt or at >= x.ndim:
        return False
    if any(type(item) is list for item in items[:at]) or not observer.sizes.is_apart(start, stop):
        return False
    return 0 <= raw(start) < raw(stop) <= x.shape[at]


_TOLD = "x[t] is a view where t is a 0-d tensor, and {}; write x[int(t)], or x[t].clone()"


def refuse_views(recorder: Recorder, left: Iterable[Tensor]) -> None:
    """Raise Refusal where a part that a tensor picked is seen to be a view.  left: what the run leaves."""
    if not recorder.parts:
        return
    known = [(x, recorder.known(x._data)) for x in left]
    leaving = {recorder.root(number)[0] for _, number in known if number is not None}
    for part, (root, at) in recorder.parts.items():
        outdated = _is_outdated(recorder, part, root, at)
        if part not in leaving:
            continue
        whole = [x for x, number in known if number == part]
        others = [number for _, number in known if number is not None and number != part]
        views = any(recorder.root(number)[0] == part for number in others)
        if outdated or views or root in recorder.params or root in leaving:
            raise Refusal(_TOLD.format("it leaves the call"))
        for x in whole:  # of what nobody else has: it may as well be a copy
            x._view = x._storage = None


def _is_outdated(recorder: Recorder, part: int, root: int, at: int) -> bool:
    """Whether a part's tensor is written after the part was picked.  Raises Refusal where it is read then.

    `x[t] += 1` writes the part, and then its tensor with the part, at the same place: both hold the same.
    """
    pick, outdated, written = recorder.steps[at], False, False
    for step in recorder.steps[at + 1 :]:
        roots = [None if v is None else recorder.root(v)[0] for v in step.inputs]
        again = type(step) is Event and step.op.name == "index_put" and _puts_back(step, pick, part)
        if part in roots and (outdated or written) and not (again and written):
            raise Refusal(_TOLD.format("it is read after a write"))
        if root in roots and written and not again and not (type(step) is Event and step.op.traits.view):
            raise Refusal(_TOLD.format("it was written"))
        for target, _ in step.writes if type(step) is Event else ():
            if recorder.root(target)[0] == part:
                written = True
            elif recorder.root(target)[0] == root and again:
                written = False
            elif recorder.root(target)[0] == root:
                outdated = True
    if written:
        raise Refusal(_TOLD.format("it was written"))
    return outdated


def _puts_back(step: Event, pick: Any, part: int) -> bool:
    """Whether a step writes a part to where it was picked."""
    same = step.inputs[0] == pick.inputs[0] and step.inputs[1] == part and step.inputs[2:] == pick.inputs[1:]
    return same and step.attrs["dims"] == pick.attrs["dims"] and not step.attrs["accumulate"]


def settle(observer: Any, left: Iterable[Tensor]) -> None:
    """Leave of each part the copy or the view.  left: the tensors that the run leaves."""
    recorder: Recorder = observer.recorder
    if not observer.numbers.picked or recorder.reason is not None:
        return
    recorder.symbolic.finish()  # which counts the steps
    leaving = {recorder.known(x._data) for x in left}
    for step in reversed(recorder.steps):  # what a view of leaves, leaves too
        if type(step) is Event and step.op.traits.view and step.outputs[0] in leaving:
            leaving.add(step.inputs[0])
    gone: set[int] = set()
    became: dict[int, int] = {}
    for picked in observer.numbers.picked:
        (number,) = picked.view.outputs
        if number not in leaving and _is_put_back(recorder, picked):
            gone.add(id(picked.view))
            continue
        if number in leaving or not _is_over_before_a_write(recorder, picked):
            gone.update(map(id, picked.copy))
            for lifted in picked.numbers:
                observer.plain(lifted)
        else:
            gone.add(id(picked.view))
            became[number] = picked.copy[-1].outputs[0]
    recorder.steps = [
        replace(step, inputs=tuple([became.get(v, v) for v in step.inputs]))
        for step in recorder.steps
        if id(step) not in gone
    ]


def _is_over_before_a_write(recorder: Recorder, picked: Picked) -> bool:
    """Whether nobody looks at a part after its tensor was written, so that it may as well be a copy."""
    (number,), steps = picked.view.outputs, recorder.steps
    root = recorder.root(number)[0]
    if root not in recorder.written:
        return True
    same, written = {number}, False
    for step in steps[next(at for at, step in enumerate(steps) if step is picked.view) :]:
        if written and not same.isdisjoint(step.inputs):
            return False
        if type(step) is Event and step.op.traits.view and step.inputs[0] in same:
            same.add(step.outputs[0])
        targets = [target for target, _ in step.writes] if type(step) is Event else []
        if not same.isdisjoint(targets):
            return False
        written = written or any(recorder.root(target)[0] == root for target in targets)
    return True


def _is_put_back(recorder: Recorder, picked: Picked) -> bool:
    """Have a part that is written once, and not looked at afterwards, be a copy that is put back."""
    (number,), pick, steps = picked.view.outputs, picked.copy[-1], recorder.steps
    source = picked.view.inputs[0]
    if pick.op.name != "index" or pick.inputs[0] != source or len(pick.outputs) != 1:
        return False
    begin = next(at for at, step in enumerate(steps) if step is pick)
    writes = [
        at
        for at, step in enumerate(steps)
        if type(step) is Event and any(t == number for t, _ in step.writes)
    ]
    if len(writes) != 1 or any(number in step.inputs for step in steps[writes[0] + 1 :]):
        return False
    (at,) = writes
    root, event = recorder.root(number)[0], steps[at]
    between = [step for step in steps[begin:at] if type(step) is Event]
    if any(recorder.root(t)[0] == root for step in between for t, _ in step.writes) or len(event.writes) != 1:
        return False
    if any(step.op.traits.view and number in step.inputs for step in between):
        return False
    if number in event.inputs[1:] or any(event.ended) or not between or event.op.traits.mutates:
        return False
    copy, made = pick.outputs[0], event.writes[0][1]
    put = recorder.number_like(source)
    for where, step in enumerate(steps):
        if number in step.inputs:
            steps[where] = replace(step, inputs=tuple([copy if v == number else v for v in step.inputs]))
    attrs = {"dims": pick.attrs["dims"], "accumulate": False}
    inputs = (source, made, *pick.inputs[1:])
    writes_it = ((source, put),)
    steps[at] = replace(steps[at], writes=())
    steps.insert(at + 1, replace(event, op=REGISTRY["index_put"], attrs=attrs, inputs=inputs, outputs=(put,),
                                 writes=writes_it, ended=(False,) * len(inputs)))  # fmt: skip
    return True
