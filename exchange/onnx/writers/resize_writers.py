"""Write the arrays that resizing makes of sizes that change (nn/resizing.py makes them of numbers)."""

from __future__ import annotations

from typing import Any

from ....ir.dims import Dim
from ....ir.dtypes import float32, float64, int64
from ....ir.graph import Node, Value, active
from ....ir.size import size as size_of
from ....nn.resizing import cubic_weights
from .graph_writer import Writer, Written, made, stand_in, the, writer


@writer("table")
def table(w: Writer, node: Node) -> Written:
    if node.attrs["name"] not in TABLES:
        words = {"smoothing": "antialias=True", "grid": "affine_grid"}.get(node.attrs["name"], "this")
        raise w.refusal(node, f"{words} is not written of sizes that change")
    return None


@stand_in("table")
def table_by_ops(*, name: str, args: tuple, shape: tuple, dtype: Any) -> Any:
    return TABLES[name](*args)


def _value(n: int | Dim) -> Any:
    """A size as a float64."""
    return the("cast")(active().emit(size_of, (), {"value": n}).outputs[0], dtype=float64)


def _places(out: int | Dim) -> Value:
    return the("cast")(made("arange", out, dtype=int64), dtype=float64)


def _step(size: Any, out: Any, scale: float, align_corners: bool) -> Any:
    """How far apart in the input two neighbours of the output lie."""
    if align_corners:
        gaps = _value(out) - 1.0
        return the("where")(gaps > 0, (_value(size) - 1.0) / the("maximum")(gaps, 1.0), 0.0)
    return 1.0 / scale if scale else _value(size) / _value(out)


def nearest(size: Any, out: Any, scale: float, exact: bool) -> Any:
    """In float32, as nn's."""
    step = _step(size, out, scale, False)
    step = the("cast")(step, dtype=float32) if isinstance(step, Value) else step
    places = the("cast")(_places(out), dtype=float32) + (0.5 if exact else 0.0)
    return the("minimum")(the("cast")(the("floor")(places * step), dtype=int64), size - 1)


def _taps(size: Any, out: Any, scale: float, align_corners: bool, cubic: bool) -> list[tuple[Any, Any]]:
    """Indices into the input and their weights."""
    step, places, minimum = _step(size, out, scale, align_corners), _places(out), the("minimum")
    at = places * step if align_corners else (places + 0.5) * step - 0.5
    at = at if align_corners or cubic else the("maximum")(at, 0.0)
    below = the("cast")(the("floor")(at), dtype=int64)
    if cubic:
        weights = cubic_weights(at - the("cast")(below, dtype=float64))
        return [(the("maximum")(minimum(below + (k - 1), size - 1), 0), x) for k, x in enumerate(weights)]
    below = minimum(below, size - 1)
    share = minimum(at - the("cast")(below, dtype=float64), 1.0)
    return [(below, 1.0 - share), (minimum(below + 1, size - 1), share)]


TABLES = {
    "nearest": nearest,
    "tap": lambda which, *how: _taps(*how)[which][0],
    "weight": lambda which, *how: _taps(*how)[which][1],
}
