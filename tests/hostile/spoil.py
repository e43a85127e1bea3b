"""Spoils right calls one argument at a time, and says how each ended.  Run as a process of its own.

    python spoil.py GROUP SHARE SHARES

prints JSON: how many calls there were, which ended in anything but a result or one of Lamina's errors, and
which errors no rule foresaw: those were told at the edge of the package (runtime/refusal.py).
"""

from __future__ import annotations

import json
import resource
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from good_call import Good, ints, t
from good_calls import GROUPS

import lamina
from lamina.runtime.tensor import Tensor

MEMORY = 4 << 30  # bytes of address space, beside which sizes that nothing can hold must be refused
SECONDS = 5
# What is there to give arrays, or hands on what it is given.
OF_NUMPY = ("x.numpy", "Size", "DataLoader", "SubsetRandomSampler", "BatchSampler", "default_", "autocast")
HERE = Path(__file__).parent


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


def spoilt(good: Good) -> Any:
    """The call's function and arguments, fewer of them, each replaced by each bad one, an unknown keyword."""
    _, args, kwargs = good.make()
    first = 1 if good.label.startswith("x") else 0  # what a method is called on is a tensor
    for count in range(first, len(args)):
        function, args, kwargs = good.make()
        yield f"{good.label}(the first {count})", function, args[:count], kwargs
    _, args, kwargs = good.make()
    for place in (*range(first, len(args)), *kwargs, "unknown"):
        for name, bad in BAD.items():
            function, args, kwargs = good.make()
            wrong = bad()
            args = tuple(wrong if n == place else x for n, x in enumerate(args))
            if isinstance(place, str):
                kwargs = kwargs | {place: wrong}
            yield f"{good.label}({place}={name})", function, args, kwargs
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
            if isinstance(x, (np.ndarray, np.generic)) and not label.startswith(OF_NUMPY):
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


def hang(*_: object) -> None:
    raise Hung


def main(group: str, share: int, shares: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGALRM, hang)
    warnings.simplefilter("error")
    count, faults, unforeseen = 0, [], []
    default, threads = lamina.get_default_dtype(), lamina.get_num_threads()
    for number, good in enumerate(GROUPS[group]()):
        if number % shares != share:
            continue
        try:
            good.make()
        except Skipped:
            continue
        for label, function, args, kwargs in spoilt(good):
            count += 1
            error, result = None, None
            print(label, file=sys.stderr, flush=True)  # the last line is the call that a crash came from
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                result = function(*args, **kwargs)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except BaseException as raised:
                signal.setitimer(signal.ITIMER_REAL, 0)
                error = raised
            wrong = fault(label, error, result)
            if wrong is not None:
                faults.append(f"{label}: {wrong}")
            elif isinstance(error, lamina.LaminaError) and type(error.__cause__) is not type(None):
                if not isinstance(error.__cause__, lamina.LaminaError):
                    unforeseen.append(label)
            if group == "creation":
                lamina.set_default_dtype(default)
                lamina.set_num_threads(threads)
                lamina.set_grad_enabled(True)
                lamina.set_printoptions(profile="default")
    print(json.dumps({"calls": count, "faults": faults, "unforeseen": unforeseen}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
