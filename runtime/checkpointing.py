"""Checkpoints: a part of a forward keeps its arguments alone, and is run again when backward needs the rest.

Without reentrance that is recomputing.py's.  With it, the part runs once with gradients on, to see which
leaves it leads to (parameters that it looks up itself); what it saved is dropped.  Its outputs hang on one
node, whose inputs are the arguments and those leaves; so `backward` and `grad` are served alike.
Source: Chen et al., Training deep nets with sublinear memory cost, 2016.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import ArgumentValueError, GradError
from . import modes
from .autograd import grad, reachable
from .function import Function
from .generator import fork_rng, get_rng_state, set_rng_state
from .graph import Leaf
from .recomputing import Casting, Kept, recomputed
from .refusal import refusing
from .tensor import Tensor
from .trees import like


def noop_context_fn() -> tuple[Any, Any]:
    """The contexts of a forward and of its second run that change nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Checkpoint(Function):
    """Outputs that are there, of a part that backward runs again."""

    @staticmethod
    def forward(ctx: Any, again: Callable, outputs: tuple, *tensors: Tensor) -> tuple:
        ctx.again, ctx.kinds = again, [x._meta for x in outputs]
        ctx.save_for_backward(*tensors)
        return tuple([x.detach() for x in outputs])

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple:
        if modes.is_grad_enabled():
            raise GradError(
                "checkpoint: a gradient of its gradient is not supported", "call the function without it"
            )
        outputs, targets = ctx.again(ctx.saved_tensors)
        if [x._meta for x in outputs] != ctx.kinds:
            raise GradError(
                "checkpoint: the function gave other outputs when it was run again",
                f"first: {', '.join(map(str, ctx.kinds))}",
                f"again: {', '.join(str(x._meta) for x in outputs)}",
            )
        wanted = [t for t, needed in zip(targets, ctx.needs_input_grad[2:], strict=True) if needed]
        pairs = [(x, g) for x, g in zip(outputs, cotangents, strict=True) if g is not None]
        if not pairs or not wanted:
            return (None,) * (2 + len(targets))
        found = iter(
            grad([x for x, _ in pairs], wanted, [g for _, g in pairs], retain_graph=True, allow_unused=True)
        )
        return None, None, *[next(found) if needed else None for needed in ctx.needs_input_grad[2:]]


def checkpoint(
    function: Callable, *args: Any, use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn, determinism_check: str = "default",
    debug: bool = False, early_stop: bool = True, preserve_rng_state: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """What `function(*args, **kwargs)` returns, keeping nothing of how: backward runs it again.

    use_reentrant: False is what PyTorch recommends: gradients of every order, and `early_stop`, which ends
    the second run as soon as all is there.  True, or None, which warns: one node stands for the whole
    function, and gradients of gradients are refused.
    preserve_rng_state: the second run draws the random numbers of the first.  context_fn: gives a context for
    each of the two.  determinism_check: "default", or "none" for no look at what was made anew; debug: say
    more where it differs.  What is in mixed precision is so both times.  Inside a traced function it is a
    plain call, as what a compiled step keeps is the compiler's to choose.
    Raises GradError (CheckpointError) from backward, where the second run does something else.
    """
    if not callable(function):
        raise ArgumentValueError(f"checkpoint: a function is needed, not {type(function).__name__}")
    if determinism_check not in ("default", "none"):
        raise ArgumentValueError(
            f"checkpoint(determinism_check): 'default' or 'none', not {determinism_check!r:.60}"
        )
    if use_reentrant is None:
        _warn_of_none("checkpoint")
    if use_reentrant and kwargs:
        raise ArgumentValueError(f"checkpoint: unexpected keyword arguments {', '.join(sorted(kwargs))}")
    forward, second = context_fn()
    if not modes.is_grad_enabled() or modes.is_recording():
        with forward:
            first = modes.call_user(lambda: function(*args, **kwargs))
        if use_reentrant and modes.is_grad_enabled() and all(x._node is None for x in tensors_in(first)):
            _warn_without_gradient()
        return first
    if use_reentrant is False:
        kept = {id(x): Kept(x) for x in tensors_in((args, kwargs))}
        return recomputed(
            function, (args, kwargs), replaced((args, kwargs), kept), (forward, second),
            early_stop=early_stop, check=determinism_check == "default", debug=debug,
            preserve=preserve_rng_state,
        )  # fmt: skip
    state = get_rng_state() if preserve_rng_state else None
    casting = Casting()
    with forward:
        first = function(*args, **kwargs)
    outputs = [x for x in tensors_in(first) if x._node is not None]
    given = [x for x in tensors_in((args, kwargs)) if x._node is not None and x.is_floating_point()]
    edges = {id(x._node) for x in given}
    if not outputs:
        if use_reentrant:
            _warn_without_gradient()
        return first
    leaves = [
        owner for edge in reachable([x._node for x in outputs])  # type: ignore[misc]
        if type(edge) is Leaf and id(edge) not in edges and (owner := edge.owner()) is not None
    ]  # fmt: skip

    def again(saved: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """The outputs anew, and what they are to be differentiated by."""
        cut = [x.detach().requires_grad_() for x in saved[: len(given)]]
        places = {id(x): y for x, y in zip(given, cut, strict=True)}
        own_args, own_kwargs = replaced((args, kwargs), places)
        with fork_rng() if state is not None else contextlib.nullcontext():
            if state is not None:
                set_rng_state(state)
            with modes.enable_grad(), casting, second:
                made = function(*own_args, **own_kwargs)
        return [x for x in tensors_in(made) if x._node is not None], [*cut, *leaves]

    made = _Checkpoint.apply(again, tuple(outputs), *given, *leaves)
    return replaced(first, {id(x): y for x, y in zip(outputs, made, strict=True)})


def _warn_without_gradient() -> None:
    warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=3)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Call functions one after another, in `segments` checkpoints; the last part is called plainly.

    functions: a list of them, or a Sequential.  Raises ArgumentValueError for no segments, or too many.
    """
    functions = list(functions.children() if hasattr(functions, "children") else functions)
    if not isinstance(segments, int) or not 0 < segments <= max(1, len(functions)):
        raise ArgumentValueError(
            f"checkpoint_sequential: {len(functions)} functions can't be cut into {segments!r:.60} segments"
        )

    def part(start: int, end: int) -> Callable:
        def run(x: Any) -> Any:
            for function in functions[start:end]:
                x = function(x)
            return x

        return run

    if use_reentrant is None:
        _warn_of_none("checkpoint_sequential")
        use_reentrant = True
    size, start = len(functions) // segments, 0
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(part(start, start + size), input, use_reentrant=use_reentrant, **kwargs)
    return part(size * (segments - 1), len(functions))(input)


def _warn_of_none(name: str) -> None:
    warnings.warn(
        f"{name}: the use_reentrant parameter should be passed explicitly: False is recommended, True is "
        "what none means",
        UserWarning,
        stacklevel=4,
    )


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in nested lists, tuples and dictionaries, each once, in order."""
    found: dict[int, Tensor] = {}
    left, met = [value], set()  # a container may hold itself
    while left:
        x = left.pop()
        if isinstance(x, Tensor):
            found.setdefault(id(x), x)
        elif isinstance(x, (list, tuple, dict)) and id(x) not in met:
            met.add(id(x))
            left.extend(reversed([*x.values()] if isinstance(x, dict) else x))
    return list(found.values())


def replaced(value: Any, places: dict[int, Any], within: tuple[int, ...] = ()) -> Any:
    """Nested lists, tuples and dictionaries with other tensors in the places of some.

    within: the containers around, which stay what they are where they come again.
    """
    if isinstance(value, Tensor):
        return places.get(id(value), value)
    if id(value) in within:
        return value
    within = (*within, id(value))
    if isinstance(value, dict):
        return {k: replaced(v, places, within) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return like(value, [replaced(x, places, within) for x in value])
    return value


checkpoint, checkpoint_sequential = refusing(checkpoint), refusing(checkpoint_sequential)
