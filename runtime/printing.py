"""How tensors print: PyTorch's layout to the letter, with `lamina.` where it writes `torch.`.

Importing this module hangs `__repr__`, `__str__` and `__format__` on `Tensor`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..ir import dtypes
from ..ir.errors import ArgumentValueError
from ..ir.types import CPU
from . import modes
from .on_device import on_host
from .tensor import Parameter, Tensor


@dataclass(frozen=True)
class Options:
    """What `set_printoptions` sets.

    precision: digits after the point.  threshold: elements beyond which the middle is left out.  edgeitems:
    how many then stay at either end of each dimension.  linewidth: characters.  sci_mode: None lets the
    values decide.
    """

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PROFILES = {
    "default": Options(),
    "short": Options(precision=2, edgeitems=2),
    "full": Options(threshold=float("inf")),
}
_options = Options()


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors print; what is None stays as it is, but for `sci_mode`, which None leaves to the
    values.

    profile: "default", "short" or "full", taken before the others.  Raises ArgumentValueError.
    """
    global _options
    made = _options
    if profile is not None:
        if profile not in PROFILES:
            known = ", ".join(map(repr, PROFILES))
            raise ArgumentValueError(
                f"set_printoptions(profile): there is no profile {profile!r}", f"known: {known}"
            )
        made = PROFILES[profile]
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    _options = replace(
        made, sci_mode=sci_mode, **{name: value for name, value in given.items() if value is not None}
    )


# ---- numbers -----------------------------------------------------------------------------------------------
def _formatter(shown: np.ndarray, options: Options) -> tuple[Callable[[Any], str], int]:
    """How to write one element so that all of `shown` line up, and in how many characters.

    The width is that of finite numbers but zero: inf, nan and zero may stick out, as they do in PyTorch.
    """
    if shown.dtype.kind != "f":
        width = max((len(str(value)) for value in shown.ravel().tolist()), default=1)
        return (lambda value: str(value).rjust(width)), width
    numbers = shown[np.isfinite(shown) & (shown != 0)].astype(np.float64)
    whole = not (numbers != np.ceil(numbers)).any()
    scientific = options.sci_mode
    if not numbers.size:  # zeros, infinities and nans say nothing about a width
        scientific = False
    elif scientific is None:
        sizes = np.abs(numbers)
        low, high = sizes.min(), sizes.max()
        scientific = bool(high / low > 1000 or high > 1e8 or low < 1e-4)
    spec = f".{options.precision}{'e' if scientific else 'f'}"

    def written(value: float) -> str:
        if whole and not scientific:  # a point shows that it is a float; there is none on inf and nan
            return f"{value:.0f}." if np.isfinite(value) else f"{value:.0f}"
        return format(value, spec)

    width = max((len(written(value)) for value in numbers.tolist()), default=1)
    return (lambda value: written(value).rjust(width)), width


# ---- layout ------------------------------------------------------------------------------------------------
def _edges(data: np.ndarray, keep: int) -> np.ndarray:
    """`data` with at most `keep` elements at either end of each dimension."""
    for dim, size in enumerate(data.shape):
        if size > 2 * keep:
            data = np.take(data, [*range(keep), *range(size - keep, size)], axis=dim)
    return data


def _rows(
    data: np.ndarray, indent: int, write: Callable[[Any], str], one: int, keep: int | None, line: int
) -> str:
    """The bracketed text of an array of one dimension or more.

    one: characters of an element.  keep: edge items, None where all are shown.  line: characters of a line.
    """
    cut = keep is not None and data.shape[0] > 2 * keep
    if data.ndim > 1:
        at = [*range(keep), *range(data.shape[0] - keep, data.shape[0])] if cut else range(data.shape[0])
        parts = [_rows(data[i], indent + 1, write, one, keep, line) for i in at]
        if cut:
            parts.insert(keep, "...")
        between = "," + "\n" * (data.ndim - 1) + " " * (indent + 1)
        return f"[{between.join(parts)}]"
    if not cut:
        items = [write(value) for value in data.tolist()]
    elif keep == 0:
        items = ["..."]
    else:
        first, last = data[:keep], data[data.size - (keep or 0) :]
        items = [*map(write, first.tolist()), " ...", *map(write, last.tolist())]
    fit = max(1, (line - indent) // (one + 2))  # a comma and a space belong to each
    lines = [", ".join(items[i : i + fit]) for i in range(0, len(items), fit)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _widened(data: np.ndarray) -> np.ndarray:
    """Floats of few bits in float32: Python knows none but float16, and PyTorch prints all like this."""
    return data.astype(np.float32) if data.dtype.itemsize < 4 and data.dtype.kind not in "iub" else data


def _of_both(shown: np.ndarray, options: Options) -> tuple[Callable[[Any], str], int]:
    """`_formatter` of complex numbers: real parts line up among themselves, and so do imaginary ones."""
    (first, wide), (second, wider) = _formatter(shown.real, options), _formatter(shown.imag, options)

    def written(value: complex) -> str:
        imaginary = second(value.imag).lstrip() + "j"
        return first(value.real) + ("" if imaginary[0] in "+-" else "+") + imaginary

    return written, wide + wider + 1


def _values(data: np.ndarray, indent: int, options: Options) -> str:
    data = _widened(data)
    cut = data.size > options.threshold
    formatter = _of_both if data.dtype.kind == "c" else _formatter
    write, width = formatter(_edges(data, options.edgeitems) if cut else data, options)
    if not data.ndim:
        return write(data.item())
    return _rows(data, indent, write, width, options.edgeitems if cut else None, options.linewidth)


def history(x: Tensor) -> str | None:
    """`grad_fn=<MulBackward0>` for op mul, or `requires_grad=True` for a leaf, or None."""
    node = x.grad_fn
    if node is None:
        return "requires_grad=True" if x.requires_grad else None
    return f"grad_fn=<{node.name()}>"


def spelled(x: Tensor, past: str | None = "") -> str:
    """The tensor as text; past: what is said of its history, where that isn't to be its own."""
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was turned into text")
    options, kind = _options, x._meta
    plain = dtypes.home_of(type(x)).startswith("lamina.")
    prefix = "tensor(" if plain else f"{type(x).__name__}("
    default = dtypes.default_dtype()
    notes = []
    if kind.device != CPU:
        notes.append(f"device='{kind.device}'")
    if kind.device.type == "meta":
        values, plain = "...", (default,)
        notes.append(f"size={tuple(kind.shape)}")
    elif not x._data.size:
        values, plain = "[]", (default,)
        if kind.ndim != 1:
            notes.append(f"size={kind.shape}")
    else:
        plain = (default, default.to_complex(), dtypes.int64, dtypes.bool_)
        values = _values(on_host(x._data), len(prefix), options)
        if not options.edgeitems:
            notes.append(f"size={kind.shape}")
    if kind.dtype not in plain:
        notes.append(f"dtype={kind.dtype}")
    past = history(x) if past == "" else past
    return noted(prefix + values, [*notes, *([past] if past else [])], options.linewidth) + ")"


def current() -> Options:
    """The options that tensors print by."""
    return _options


def elements(x: Tensor, indent: int) -> str:
    """A tensor's elements as text, whose lines stand behind so many spaces."""
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was turned into text")
    return _values(on_host(x._data), indent, _options) if x._data.size else "[]"


def noted(
    text: str, notes: list[str], linewidth: int, break_first: bool = False, indent: int = len("tensor(")
) -> str:
    """The text with notes behind it, wrapped; break_first: the first stands on a line of its own."""
    used = len(text) - text.rfind("\n") + 1
    for note in notes:
        if break_first or used + len(note) + 2 > linewidth:
            text += ",\n" + " " * indent + note
            used, break_first = indent + len(note), False
        else:
            text += ", " + note
            used += len(note) + 2
    return text


def spelled_parts(
    x: Tensor, parts: dict[str, Tensor], notes: list[str], layout: str, break_first: bool
) -> str:
    """A tensor made of tensors as text: the parts by name, then notes."""
    if modes.CHANGED:
        modes.tell("refuse", "a tensor was turned into text")
    options, lines = _options, []
    for name, part in parts.items():
        opening = f"{name}=tensor("
        data = on_host(part._data)
        shown = (
            _values(data, len("tensor(") + len(opening), options)
            if data.size
            else f"[], size={part._meta.shape}"
        )
        lines.append(f"{opening}{shown})")
    if x.dtype not in (
        dtypes.default_dtype(),
        dtypes.default_dtype().to_complex(),
        dtypes.int64,
        dtypes.bool_,
    ):
        notes = [*notes, f"dtype={x.dtype}"]
    past = history(x)
    notes = [*notes, f"layout={layout}", *([past] if past else [])]
    text = "tensor(" + (",\n" + " " * len("tensor(")).join(lines)
    return noted(text, notes, options.linewidth, break_first) + ")"


def _repr(self: Tensor, *, tensor_contents: str | None = None) -> str:
    """As Python prints a tensor; tensor_contents: what a class of the user's shows for elements."""
    if tensor_contents is not None or type(self)._dispatches:
        text = f"{type(self).__name__}({tensor_contents or self._meta})"
    elif issubclass(type(self), Parameter):
        return f"Parameter containing:\n{spelled(self)}"
    else:
        text = spelled(self)
    return f"Parameter({text})" if isinstance(self, Parameter) else text


def _format(self: Tensor, spec: str) -> str:
    """A 0-d tensor formats as its number: f"{loss:.3f}"; others only without a format."""
    if not self._meta.ndim and type(self) is Tensor and self._meta.device.type != "meta":
        if modes.CHANGED:
            modes.tell("refuse", "a tensor was turned into text")
        return format(_widened(on_host(self._data)).item(), spec)
    return object.__format__(self, spec)


def install() -> None:
    """Hang the methods on `Tensor`; done once, when the runtime is imported."""
    for name, method in {"__repr__": _repr, "__format__": _format}.items():
        setattr(Tensor, name, method)


install()
