"""`quantize`, `prepare`: from a model and data to a quantised one, or to one that trains for it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

from ..ir.dtypes import DType, float16, float32, int8
from ..ir.errors import ArgumentError
from ..ir.lazy import load
from ..nn import Linear, Module
from .calling import Call, calls_of
from .capture import record
from .converting import Quantized, convert
from .layer_report import compare
from .schemes import STATIC, Layers, QuantizationError, Skip, need_scheme
from .static_bytes import Prepared
from .swapped_layers import Weights, swap_layers

GROUPED = ("int8-weights", "int4-weights")  # schemes whose weights may have a scale for each group of inputs
MOST_REPORTED = 8  # batches of calibration data that a report is made of


def quantize(
    model: Any,
    data: Any = None,
    scheme: str = STATIC,
    *,
    skip: Skip = (),
    keep_first: bool = False,
    keep_last: bool = False,
    observer: str = "mse",
    group: int | None = None,
    zero_points: bool = False,
    scale_dtype: DType = float32,
    activations: str | None = None,
    dynamic: Mapping[Any, Any] | None = None,
    report: bool = False,
    progress: bool = False,
    inplace: bool = False,
) -> Any:
    """A model of integers in place of one of floats.

    scheme: "int8" computes layers in bytes, for which `data` says where their inputs lie, and records the
    model as one graph.  "int8-dynamic" (linear layers of bytes, scaled as they run), "int8-weights",
    "int4-weights" and "bfloat16" put other layers in place of a model's, need no data and keep its code.
    data: inputs, as of calls: tensors, tuples, or dictionaries by name; of a tuple the first are taken, as
    many as the model must be given, so that labels may follow.
    skip, keep_first, keep_last: layers that stay in float: names, patterns, or a function of a name.
    observer: minmax, moving, percentile, mse or entropy.  group: how many inputs share a scale, by default
    all of an output's for 8 bits, 64 for 4.  zero_points, scale_dtype: of weights of groups.
    activations: "int8" rounds also what linear layers multiply their weights with, groups of each row apart
    (those of weights, or 64 inputs): as other runtimes do, and less exact.
    dynamic: sizes that change, as of jit.export, by default the batch.  report: whether `.report` of the
    result says how each layer compares with float.  progress: show on a terminal how far it is.
    inplace: change the layers of the model itself, not of a copy; of no effect on "int8".

    Raises QuantizationError for a model or layer that can't be, ArgumentError for what is no choice.
    """
    need_scheme(scheme)
    chosen = Layers(skip, keep_first, keep_last)
    how = Weights(
        4 if scheme == "int4-weights" else 8,
        64 if group is None and scheme == "int4-weights" else group,
        zero_points,
        scale_dtype,
        activations,
    )
    if scheme not in GROUPED and how != Weights():
        what = "group, zero_points, scale_dtype, activations"
        raise ArgumentError(f"quantize({what}): {scheme!r} has no groups of weights")
    if scheme == STATIC:
        kept: list[Call] = []
        calls = _noted(_calls_for(model, data), kept, MOST_REPORTED if report else 0)
        prepared = _prepared(model, calls, chosen, observer, dynamic, progress)
        made = convert(prepared)
        made.eval()
        if report:
            made.report = compare(made, prepared, kept)
        return made
    if not isinstance(model, Module):
        raise ArgumentError(f"quantize: {scheme!r} is for modules, not for a {type(model).__name__}")
    if dynamic is not None:
        raise ArgumentError(f"quantize(dynamic): {scheme!r} records nothing, its sizes change as the model's")
    made = swap_layers(model if inplace else copy.deepcopy(model), scheme, chosen, how)
    if report:
        if inplace or data is None:
            raise ArgumentError("quantize(report): it needs data, and the model as it was (inplace=False)")
        made.report = compare(made, model, islice(calls_of(model, data), MOST_REPORTED))
    return made


def quantize_dynamic(
    model: Module,
    qconfig_spec: Any = None,
    dtype: Any = None,
    mapping: Any = None,
    inplace: bool = False,
) -> Module:
    """PyTorch's name for `quantize(model, scheme="int8-dynamic")`.

    qconfig_spec: classes, or names, of the layers that are quantised; all linear ones unless given.  dtype:
    int8, or float16, for which weights become bfloat16.  mapping: None, there are no other layers to take.
    Raises ArgumentError for others.
    """
    if dtype not in (None, int8, float16) or mapping is not None:
        raise ArgumentError("quantize_dynamic: dtype is int8 or float16, and mapping is None")
    wanted = {*qconfig_spec} if qconfig_spec else {Linear}

    def is_left(name: str) -> bool:
        return name not in wanted and type(model.get_submodule(name)) not in wanted

    scheme = "bfloat16" if dtype is float16 else "int8-dynamic"
    return quantize(model, scheme=scheme, skip=is_left, inplace=inplace)


def prepare(
    model: Any,
    data: Any,
    *,
    skip: Skip = (),
    keep_first: bool = False,
    keep_last: bool = False,
    observer: str = "mse",
    dynamic: Mapping[Any, Any] | None = None,
    progress: bool = False,
) -> Prepared:
    """A model that rounds as its quantised self will, and trains; `convert` makes the quantised one of it.

    Arguments and errors are those of `quantize`.  With the observer "moving" ranges go on to follow what is
    seen in training.
    """
    chosen = Layers(skip, keep_first, keep_last)
    made = _prepared(model, _calls_for(model, data), chosen, observer, dynamic, progress)
    made.observe(observer == "moving").train()
    return made


def _prepared(
    model: Any,
    calls: Iterator[Call],
    chosen: Layers,
    observer: str,
    dynamic: Mapping[Any, Any] | None,
    progress: bool,
) -> Prepared:
    if not callable(model) or isinstance(model, type):
        raise ArgumentError(f"quantize: a module or a function, not {model!r}")
    if isinstance(model, Quantized):
        raise QuantizationError("quantize: the model is quantised already", "quantize the model of floats")
    first = next(calls, None)
    if first is None:
        raise QuantizationError("quantize(data): there is none", "give some inputs of the model")
    made = Prepared(record(model, *first, dynamic), chosen)
    made.eval()
    given: Iterable[Call] = chain([first], calls)
    if progress:
        given = load("tqdm").tqdm(given, desc="calibrating", unit="batch", leave=False, disable=None)
    made.calibrate(given, observer)
    return made


def _noted(calls: Iterator[Call], kept: list[Call], most: int) -> Iterator[Call]:
    """The calls, the first of which are kept: data may be gone over only once."""
    for call in calls:
        if len(kept) < most:
            kept.append(call)
        yield call


def _calls_for(model: Any, data: Any) -> Iterator[Call]:
    if data is None:
        raise QuantizationError(
            'quantize: "int8" needs data, which says where the inputs of layers lie',
            "quantize(model, [x1, x2, ...]); int8-dynamic, int8-weights and int4-weights need none",
        )
    return calls_of(model, data)
