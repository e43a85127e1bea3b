"""Calls of every operator in PyTorch's database that Lamina has too, for the battery of spoilt arguments.

python tests/peers/database_calls.py SHARE SHARES      as tests/hostile/spoil.py does
"""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "hostile"))

import spoil
import torch
from good_call import Good
from operator_comparison import reason_left_out, samples
from operator_differences import title
from operator_forms import Absent, Unsayable, argument, translated
from torch.testing._internal.common_methods_invocations import op_db


def richest(entry: Any, dtype: torch.dtype) -> Any:
    """The sample that says the most arguments.  Raises Unsayable where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own, of how it makes them
        drawn = list(samples(entry, dtype, 8, 0))
    most = max(drawn, key=lambda s: len(s.args) + len(s.kwargs), default=None)
    if most is None:
        raise Unsayable("PyTorch has no sample of it")
    return most.input, tuple(most.args), dict(most.kwargs)


def database() -> Iterator[Good]:
    """Functions, methods and in-place forms of the entries, each by one sample."""
    for entry in op_db:
        dtype = next((d for d in (torch.float32, torch.int64) if entry.supports_dtype(d, "cpu")), None)
        if dtype is None or reason_left_out(entry):
            continue
        forms = {"": entry.op, "x.": entry.method_variant, "in place ": entry.inplace_variant}
        for form, theirs in forms.items():
            try:
                ours = theirs and translated(theirs, getattr(theirs, "__name__", "") if form else entry.name)
            except (Absent, Unsayable):
                continue
            if ours is None or getattr(ours, "__globals__", {}).get("torch") is not None:
                continue  # it has no such form, or PyTorch's tests wrote the function
            sample = functools.cache(lambda e=entry, d=dtype: richest(e, d))

            def make(ours: Callable = ours, sample: Callable = sample) -> tuple:
                try:
                    x, args, kwargs = argument(sample())
                except Unsayable as why:
                    raise spoil.Skipped from why
                return ours, (x, *args), kwargs

            yield Good(f"{form}{title(entry)}", make)


if __name__ == "__main__":
    spoil.GROUPS["database"] = database
    spoil.main("database", int(sys.argv[1]), int(sys.argv[2]))
