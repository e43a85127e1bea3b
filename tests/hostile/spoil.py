"""Spoils right calls one argument at a time, and says how each ended.  Run as a process of its own.

    python spoil.py GROUP SHARE SHARES

prints JSON: how many calls there were, which ended in anything but a result or one of Lamina's errors, or
otherwise in a recording run, and which errors no rule foresaw: those were told at the edge of the package
(runtime/refusal.py).
"""

from __future__ import annotations

import json
import random
import re
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from good_call import Good, ints, t
from good_calls import GROUPS

import lamina
from lamina import jit
from lamina.jit.facts import Refusal
from lamina.runtime.tensor import Tensor

MEMORY = 4 << 30  # bytes of address space, beside which sizes that nothing can hold must be refused
SECONDS = 5
# What is there to give arrays, or hands on what it is given.
OF_NUMPY = ("x.numpy", "Size", "DataLoader", "SubsetRandomSampler", "BatchSampler", "default_", "autocast")
# What hands on, or compares and scales, the very array that it was given.
OF_ITS_ARRAY = ("nn.Identity", "constraints.", "D.AffineTransform")
ARRAYS = ("(0=objects)", "(0=strings)", "(0=complex)")
HERE = Path(__file__).parent
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Skipped(Exception):
    """A call that can't be made here."""


class Hung(BaseException):
    """A call took too long."""


def cyclic() -> list:
    loop: list = [1]
    loop.append(loop)
    return loop


def nested() -> list:
    deep: list = []
    for _ in range(2000):
        deep = [deep]
    return deep


BAD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "'a'": lambda: "a",
    "b'a'": lambda: b"a",
    "nan": lambda: float("nan"),
    "inf": lambda: float("inf"),
    "1.5": lambda: 1.5,
    "True": lambda: True,
    "-1": lambda: -1,
    "0": lambda: 0,
    "7": lambda: 7,
    **{f"{s}2**{n}": lambda n=n, s=s: int(f"{s}1") * 2**n for n in (31, 62, 63, 64) for s in ("", "-")},
    "10**30": lambda: 10**30,
    "1j": lambda: 1j,
    "[]": list,
    "()": tuple,
    "{}": dict,
    "[1, 'a']": lambda: [1, "a"],
    "[None]": lambda: [None],
    "(2**63,)": lambda: (2**63,),
    "cyclic": cyclic,
    "nested": nested,
    "a class": lambda: int,
    "a lambda": lambda: lambda *args: None,
    "object()": object,
    "objects": lambda: np.array([None, "a"], dtype=object),
    "strings": lambda: np.array(["a"]),
    "complex": lambda: np.array([1j]),
    "empty": lambda: lamina.zeros(0),
    "0-d": lambda: lamina.tensor(2.0),
    "ints": ints(2).make,
    "bools": lambda: lamina.ones(2, dtype=lamina.bool),
    "halves": lambda: lamina.ones(2, dtype=lamina.float16),
    "5-d": t(1, 2, 1, 2, 1).make,
    "float64": lambda: lamina.float64,
    "cuda": lambda: lamina.device("cuda"),
    "a dtype of NumPy": lambda: np.dtype("U3"),
}


Call = tuple[Callable, tuple, dict[str, Any]]


def spoilt(good: Good) -> Iterator[tuple[str, Callable[[], Call]]]:
    """What makes the call's function and arguments: fewer of them, each a bad one, an unknown keyword."""
    _, given, named = good.make()
    first = 1 if good.label.startswith("x") else 0  # what a method is called on is a tensor

    def fewer(count: int) -> Call:
        function, args, kwargs = good.make()
        return function, args[:count], kwargs

    def wrong(place: Any, bad: Callable[[], Any]) -> Call:
        function, args, kwargs = good.make()
        value = bad()
        args = tuple(value if n == place else x for n, x in enumerate(args))
        return function, args, kwargs | ({place: value} if isinstance(place, str) else {})

    for count in range(first, len(given)):
        yield f"{good.label}(the first {count})", partial(fewer, count)
    for place in (*range(first, len(given)), *named, "unknown"):
        for name, bad in BAD.items():
            yield f"{good.label}({place}={name})", partial(wrong, place, bad)
            if place == "unknown":
                break


def leaves(result: Any, deep: int = 5) -> Iterator[Any]:
    """What a result holds."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)) and deep:
        for x in result:
            yield from leaves(x, deep - 1)
    else:
        yield result


def fault(label: str, error: BaseException | None, result: Any) -> str | None:
    """What is wrong with how a call ended."""
    if error is None:
        for x in leaves(result):
            if type(x) is Tensor and tuple(x.shape) != x._data.shape:
                return f"a shape that lies: {tuple(x.shape)} for {x._data.shape}"
            own = label.startswith(OF_NUMPY) or (label.startswith(OF_ITS_ARRAY) and label.endswith(ARRAYS))
            if isinstance(x, (np.ndarray, np.generic)) and not own:
                return f"a result of NumPy's, {type(x).__name__}, not Lamina's"
        return None
    if isinstance(error, lamina.LaminaError):
        before = None if error.__suppress_context__ else error.__context__
        return None if before is None else f"tells of what went before it: {before!r:.80}"
    if isinstance(error, (UserWarning, FutureWarning, DeprecationWarning)):
        return None  # what PyTorch says too
    if isinstance(error, AttributeError) and hasattr(type(error.obj), "__getattr__"):
        return None  # a failed look-up
    if isinstance(error, LookupError) and label.startswith("DataLoader"):
        return None  # an item that the dataset itself does not have
    if isinstance(error, (TypeError, AttributeError, LookupError)) and not entered(error):
        return None  # Python's own, which names the function: it was not entered
    if isinstance(error, TypeError) and "required positional argument" in str(error):
        return None  # the same, of what stands behind the function
    return f"{type(error).__name__}: {str(error)[:100]}"


def entered(error: BaseException) -> bool:
    """Whether code of Lamina's ran before the error."""
    frames = error.__traceback__
    while frames is not None:
        if Path(frames.tb_frame.f_code.co_filename).parent != HERE:
            return True
        frames = frames.tb_next
    return False


DEFAULT, THREADS = lamina.get_default_dtype(), lamina.get_num_threads()


def restore() -> None:
    """What functions of the group `creation` set is as it was."""
    lamina.set_default_dtype(DEFAULT)
    lamina.set_num_threads(THREADS)
    lamina.set_grad_enabled(True)
    lamina.set_printoptions(profile="default")


def uncompiled(*_: object) -> None:
    raise Refusal("nothing is compiled here")


def ended(call: Callable[[], Call], run: Callable) -> tuple[Any, BaseException | None]:
    """What a call gives, or the error it ends in."""
    random.seed(1)
    np.random.seed(1)
    lamina.manual_seed(1)
    function, args, kwargs = call()
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        result = run(function, args, kwargs)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except BaseException as raised:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return None, raised
    finally:
        restore()
    return result, None


def eagerly(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def recorded(function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The call in a recording run, of which nothing is compiled."""

    def traced() -> Any:
        return function(*args, **kwargs)

    return jit.trace(traced)()


Outcome = tuple[Any, BaseException | None]


def differs(told: Outcome, found: Outcome) -> str | None:
    """What a recording run does otherwise: another kind of result, or an error that other clauses catch.

    The words of Lamina's own errors may be others: what fails first may be.
    """
    if "nested too deeply" in f"{told[1]} {found[1]}":  # the interpreter has a larger stack
        return None
    first, second = map(outcome, (told, found))
    if first == second or isinstance(first, set) and isinstance(second, set) and (
        first <= second or second <= first
    ):  # fmt: skip
        return None
    return f"recorded it ends otherwise: {first}, {second}, {str(told[1]):.80}, {str(found[1]):.80}"


def outcome(ended: Outcome) -> str | set[str]:
    """The kinds of a result, or what catches an error; of one that is not Lamina's, its words too."""
    result, error = ended
    if error is None:
        return ", ".join(map(kind_of, leaves(result)))
    if isinstance(error, lamina.LaminaError):
        return {base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"}
    return f"{type(error).__name__}: {ADDRESS.sub('', str(error))}"


def kind_of(x: Any) -> str:
    """The class of a result, and of a tensor its type."""
    if isinstance(x, Tensor):
        return f"{type(x).__name__} {x.dtype} {tuple(x.shape)} {x.requires_grad}"
    return type(x).__name__


def hang(*_: object) -> None:
    raise Hung


def main(group: str, share: int, shares: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, hang)
    warnings.simplefilter("error")
    count, faults, unforeseen = 0, [], []
    jit.TracedFunction._enter = uncompiled
    for number, good in enumerate(GROUPS[group]()):
        if number % shares != share:
            continue
        try:
            good.make()
        except Skipped:
            continue
        for label, call in spoilt(good):
            count += 1
            print(label, file=sys.stderr, flush=True)  # the last line is the call that a crash came from
            result, error = ended(call, eagerly)
            wrong = fault(label, error, result) or differs((result, error), ended(call, recorded))
            if wrong is not None:
                faults.append(f"{label}: {wrong}")
            elif isinstance(error, lamina.LaminaError) and type(error.__cause__) is not type(None):
                if not isinstance(error.__cause__, lamina.LaminaError):
                    unforeseen.append(label)
    print(json.dumps({"calls": count, "faults": faults, "unforeseen": unforeseen}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
