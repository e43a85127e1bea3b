"""NumPy arrays that were there before the run and become tensors: inputs, of which the values may change.

`from_numpy(a)`, `as_tensor(a)` and `tensor(a)` take such an array as a param of the recording, which is read
anew at each call; its type is guarded, not what it holds.  The tensor over its memory may be computed with:
a run that writes it, or lets it out, is refused (recording.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...ir.dtypes import DType, from_numpy_dtype
from ...runtime import Tensor, creation, modes, ops
from ...runtime.refusal import unwrapped
from ..sources import Memory
from .parts import Reason

_FROM, _AS, _NEW = map(unwrapped, (creation.from_numpy, creation.as_tensor, creation.tensor))
FUNCTIONS = (_FROM, _AS)  # and `tensor`, which library.py has a handler for


def of_array(observer: Any, function: Callable, args: tuple, kwargs: Any) -> Tensor | None:
    """The tensor that one of the functions makes of an array from outside; None where it is run as it is."""
    if len(args) not in (1, 2) or type(args[0]) is not np.ndarray or observer.refused:
        return None
    dtype = args[1] if len(args) == 2 else kwargs.get("dtype")
    known = observer.is_known(args[0]) and not observer.is_fresh(args[0])
    if not known or kwargs.keys() - {"dtype"} or not isinstance(dtype, DType | None):
        return None
    if (made := _over(observer, args[0])) is None:
        return None
    if dtype is not None and dtype is not made.dtype:
        return made.to(dtype)
    return ops.clone(made) if function is _NEW else made


def _over(observer: Any, array: np.ndarray) -> Tensor | None:
    """A tensor over the memory of an array, of which the type becomes a fact."""
    flags, dtype = array.flags, from_numpy_dtype(array.dtype)
    plain = (
        dtype is not None and dtype.traced and array.dtype.isnative and flags.c_contiguous and flags.aligned
    )
    if not plain or not flags.writeable or modes.local.levels or modes.local.inference:
        return None
    place = observer.source(array)
    if place is None:
        return None
    guards, path = observer.guards, observer.path(array)
    at = guards.slot()
    form = f"{array.dtype}{list(array.shape)}"
    read = f"'{{}}{{}}'.format(S[{at}].dtype, [*S[{at}].shape])"
    guards.part.lines.append(f"v = S[{at}] = {place}")
    guards.check(
        f"type(v) is not {observer.const(np.ndarray)} or v.dtype != {observer.const(array.dtype)} "
        f"or v.shape != {array.shape!r} or not v.flags.carray",
        Reason(path, guards.place(), read, form),
    )
    with modes.unheard():
        made = creation.from_numpy(array)
    observer.recorder.over(made, Memory(at))
    return observer.new(made)
