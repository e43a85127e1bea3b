"""Code of the user's that the framework calls: hooks, and the forward and backward of his own functions.

The framework runs natively, and calls such code by `modes.call_user`, which leads back into the recorder:
what the code reads becomes facts, and what it does is noted in order.  Which hooks hang on the leaves that a
backward may reach are facts as well.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

from ...nn import Module
from ...runtime import Tensor, methods
from ...runtime.function import Context, Function
from ...runtime.graph import Leaf
from ...runtime.places import is_internal
from ...runtime.refusal import unwrapped
from .heap import key_of
from .instances import Instances
from .names import room_of, wraps_user
from .numbers import LIFTED
from .parts import Reason, hung
from .policy import CALLING_ROOMS, INTERPRETED_ROOMS


def calls_back(function: Any) -> bool:
    """Whether a function of the library's calls what it is given by `modes.call_user`."""
    function = unwrapped(function)
    return type(function) is FunctionType and room_of(function.__code__.co_filename) in CALLING_ROOMS


def runs_natively(function: Any) -> bool:
    """Whether what is called from inside is the library's own, and leads to no code of the user's unseen."""
    inner = unwrapped(getattr(function, "__func__", function))
    if type(inner) is not FunctionType or not is_internal(inner.__code__.co_filename):
        return False
    room = room_of(inner.__code__.co_filename)
    return room in CALLING_ROOMS or not (room.startswith(INTERPRETED_ROOMS) or wraps_user(inner))


class CalledBack(Instances):
    """Calls the user's functions for the framework."""

    def called(self, function: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a function of the user's; what the framework made to hand it over is new."""
        if runs_natively(function):
            return function(*args, **kwargs)
        if not self.refused:
            for value in args:
                if issubclass(type(value), (tuple, list, dict, Context)) and not self.is_known(value):
                    self.new(value)
                    for inner in vars(value).values() if issubclass(type(value), Context) else ():
                        if issubclass(type(inner), tuple) and not self.is_known(inner):
                            self.new(inner)
        with self.recorder.symbolic.beside_walk():
            return self.plain(self.call(function, args, kwargs))

    def notice(self, kind: str, *what: Any) -> None:
        """Hear what is no op: before history is walked, the hooks of the leaves become facts."""
        if kind == "asked":
            self._answered(*what)
            return
        if kind == "kept" and self.recorder.source_of(what[0]) is not None and not self.refused:
            self.fact(what[0], "attr", "grad", "{o}.grad", what[1])
        if kind == "numbers" and what[2] is not None and not self.refused:
            what = (*what, self._written_numbers(what[0], what[2]))
        if kind == "backward" and not self.refused:
            leaves = self.recorder.leaves
            for x, *_ in leaves[self.known.leaves :]:
                self._hooks_of(x)
            self.known.leaves = len(leaves)
        self.recorder.notice(kind, *what)

    def _answered(self, x: Tensor, question: str, answer: Any) -> None:
        """Note what was asked of a tensor, unless the run itself made it so."""
        if self.recorder.source_of(x) is not None:
            self.fact(x, "attr", question, f"{{o}}.{question}", answer)
        elif question == "storage_offset()" and x._view is not None:
            self.refuse("storage_offset() was asked of a view that the run made")

    def _written_numbers(self, scalars: dict[str, Tensor | None], group: dict[str, Any]) -> dict[str, Any]:
        """The numbers of a group that this run has put there: lifted ones, or what they always are."""
        before = self.before(group)
        changed = [key for key in group if key not in before or before[key] is not group[key]]
        written = [k for k in group if self.written.has(group, "item", k)]
        if before.keys() != group.keys() or not {*changed} <= {*written}:
            self.refuse("an optimizer's group is changed before its step by more than items that are set")
        found: dict[str, Any] = {}
        for key in written:
            standing = self.standing(group, "item", key_of(key))
            number = group[key] if standing is None else standing
            if key in scalars and type(number) in LIFTED:
                # An optional number that is 0 takes no part at all in the update.
                zero = f"({number.expression} == 0) is not {number == 0}"
                self.check(zero, f"whether {key} of an optimizer's group is 0")
            elif key not in scalars and key != "initial_lr":
                self.refuse(f"{key} of an optimizer's group is changed before its step")
            found[key] = number if key in scalars else self.plain(number)
        return found

    def _hooks_of(self, leaf: Tensor) -> None:
        """Guard which functions hang on a leaf, and their order."""
        path, text = self.path(leaf), f"hung({self.source(leaf)})"
        found = hung(leaf)
        count = f"len(sum({text}, ()))"
        reason = Reason(f"the hooks of {path}", self.place(), count, str(len(sum(found, ()))))
        if not found:
            # Whoever hangs one on a tensor moves `hooks_hung`, for which `late` lines are asked.
            self.check(text, reason, late=self.captured(leaf))
            return
        self.check(f"[*map(len, {text})] != {[*map(len, found)]}", reason)
        for which, functions in enumerate(found):
            for at, function in enumerate(functions):
                self.note(f"{text}[{which}][{at}]", function, True, f"a hook of {path}")

    def hooks_of_module(self, module: Module, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`module._hooks_of(kind)`: which functions, in which order; not by which handles they are known."""
        found = function(*map(self.plain, args), **kwargs)
        place = id(module), "hooks", args[-1]
        seen = place in self.known.facts or place in self.written.places
        if not (self.refused or self.is_fresh(module) or seen):
            self.known.facts[place] = found
            path, text = self.path(module), f"{self.source(module)}._hooks_of({args[-1]!r})"
            late = self.captured(module)
            reason = Reason(f"the {args[-1]} hooks of {path}", self.place(), f"len({text})", str(len(found)))
            self.check(f"len({text}) != {len(found)}", reason, late)
            for at, hook in enumerate(found):
                told = f"a {hook.kind} hook of {path}"
                self.check(f"{text}[{at}][2:] != {hook[2:]!r}", f"how {told} is called", late)
                self.note(f"{text}[{at}].function", hook.function, True, told, late)
        return self.result(found)

    # ---- what the user hands to the framework ----
    def custom(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`Function.apply` of a class of the user's."""
        kind = args[0]
        for name in ("forward", "setup_context", "backward"):
            self.class_attribute(kind, name)
        return self.result(function(kind, *map(self.plain, args[1:]), **kwargs))

    def hang(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.register_hook(hook)` and `x.register_post_accumulate_grad_hook(hook)`."""
        x = args[0]
        node = x._node
        owner = node.owner() if type(node) is Leaf else x
        if owner is None or self.recorder.source_of(owner) is not None:
            why = "a hook was hung on a tensor that was there before; do it outside of the traced function"
            return self.natively(why, function, args, kwargs)
        return self.result(function(*args, **kwargs))

    def retain(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`x.retain_grad()`."""
        x = args[0]
        if not x.is_leaf and self.recorder.source_of(x) is not None:
            why = "retain_grad() of a tensor that was there before; do it outside of the traced function"
            return self.natively(why, function, args, kwargs)
        return function(*args, **kwargs)

    def take_away(self, function: Callable, args: tuple, kwargs: Any) -> Any:
        """`handle.remove()` of a tensor's hook."""
        if not self.is_fresh(args[0]):
            why = "a hook was taken from a tensor that was there before; do it outside of the traced function"
            return self.natively(why, function, args, kwargs)
        return function(*args, **kwargs)


HANDED: dict[Any, Callable] = {
    Function.__dict__["apply"].__func__: CalledBack.custom,
    Tensor.__dict__["register_hook"]: CalledBack.hang,
    Tensor.__dict__["register_post_accumulate_grad_hook"]: CalledBack.hang,
    Tensor.__dict__["retain_grad"]: CalledBack.retain,
    methods.Handle.__dict__["remove"]: CalledBack.take_away,
    methods.Handle.__dict__["__exit__"]: CalledBack.take_away,
}
