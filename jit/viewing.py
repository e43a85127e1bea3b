"""`show` writes what a model became as a page; the room that draws it stands above this one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from .autograd import Differentiable
from .backend import Bound, Compiled
from .observe.outermost import argument_names
from .recording import Recording
from .sized import Sized
from .sources import Arg, Draw, Grad, Held, Number
from .trace import TracedFunction

ROOT = __name__.partition(".")[0]


def show(
    model: Any,
    path: str | os.PathLike,
    *example: Any,
    sizes: Mapping[str, int] | None = None,
    time: bool = True,
    title: str | None = None,
) -> None:
    """Write a page about what was compiled: one HTML file that a browser opens without a server.

    It draws the ops by modules and the kernels that they became, each with its time, its bytes and how near
    it comes to the limit of this machine, its schedule and its code, and the memory over the steps.

    model: a traced function or module; one that is not traced yet, with an example to record; what `load`
    gave; the path of a file that `export` wrote, or of an ONNX model.  example: arguments of a call, which
    is made, twice, and without gradients for a module in eval(); without it the recordings that there are.
    sizes: of a file that takes several, by name, the least unless given.  time: whether kernels are timed, on
    numbers of the viewer's own: nobody's tensors are read or written.  title: of the page; the function's
    name unless given.

    Of a file nothing runs but its graph, compiled anew; of what `load(path)` gave its own code is timed as
    well.  An ONNX model is run to be compiled: with time=False its graph alone is shown.

    Raises ArgumentError for a function without code, ModelError and OnnxError for files that are damaged.
    """
    import_module(f"{ROOT}.viewer").show(model, path, *example, sizes=sizes, time=time, title=title)


@dataclass(frozen=True)
class Code:
    """A compiled graph of a traced function, and what a reader calls it.

    arguments, held: names of what its params stand for, by their hints: arguments of the function, and
    tensors that it reaches otherwise.
    """

    name: str
    compiled: Compiled
    arguments: Mapping[str, str] = field(default_factory=dict)
    held: Mapping[str, str] = field(default_factory=dict)


def codes_of(traced: TracedFunction) -> Iterator[Code]:
    """The compiled graphs of a traced function and of what it calls; of sizes that change, the latest."""
    log, known = traced._up_to_date(), set[int]()
    logs = [(log, ""), *((inner, f"{inner.name}, ") for _, inner in log.inner())]
    for path, own in [(path, own) for each, own in logs for path in each.paths]:
        segments = path.kept()
        for number, segment in enumerate(segments):
            if id(segment) in known:  # which another path begins with as well
                continue
            known.add(id(segment))
            name = f"{own}recording {path.number}"
            if len(segments) > 1:
                name += f", part {number + 1} of {len(segments)}"
            end = segments[-1].end
            names = ({}, {}) if own or end is None else _names(traced, end.recording)
            yield from _codes(name, segment.code, *names)
            if segment.end is not None and segment.end.live is not None:
                yield from _halves(name, _latest(segment.end.live), *names)


def _names(traced: TracedFunction, recording: Recording) -> tuple[dict[str, str], dict[str, str]]:
    """What the params of a recording are called in the program, by their hints: arguments, and others."""
    given = argument_names(traced.__wrapped__, 0)
    arguments: dict[str, str] = {}
    held: dict[str, str] = {}
    for param, source in zip(recording.graph.params, recording.sources, strict=True):
        if isinstance(source, Arg):
            given = argument_names(traced.__wrapped__, max(source.index + 1, len(given)))
            arguments[param.hint or ""] = given[source.index]
        elif isinstance(source, Held):
            held[param.hint or ""] = traced._registry.paths[source.index]
        else:
            held[param.hint or ""] = _WORDS.get(type(source), "state")
    return arguments, held


_WORDS = {Number: "a hyper-parameter", Grad: "a gradient", Draw: "the place of a random draw"}


def _halves(name: str, live: Differentiable, *names: Mapping[str, str]) -> Iterator[Code]:
    """The two halves of what has a history, the second where somebody went back."""
    yield from _codes(f"{name}, forward", live.forward.compiled, *names)
    for stage in live.stages:
        for half in stage.gradients.halves.values():
            yield from _codes(f"{name}, backward", half.program.compiled)


def _codes(name: str, code: Any, *names: Mapping[str, str]) -> Iterator[Code]:
    code = _latest(code)
    if isinstance(code, Bound):  # else it is interpreted, or there is none
        yield Code(name, code.code, *names)


def _latest(made: Any) -> Any:
    return made.last if isinstance(made, Sized) else made
