"""What parallel styles do where a module's call begins and ends: DTensors of what comes in, parts of results.

Apart from styles.py, whose hooks a recorder goes through step by step: these run natively, heard op by op.
"""

from __future__ import annotations

from typing import Any

from ....runtime import Tensor
from ...device_mesh import DeviceMesh
from ..crossings import summed_and_left
from ..dtensor import DTensor
from ..placement_types import Partial, Placement, Replicate, Shard, settled


def entered_as(
    x: Any, layout: Placement | None, wanted: Placement | None, mesh: DeviceMesh, columns: int | None = None
) -> Any:
    """An argument as a DTensor that lies as wanted; what has no layout stays as it is.

    columns: how many it has in all, where that is known: ranks may have parts of several sizes then.
    """
    if layout is None or not isinstance(x, Tensor):
        return x
    if not isinstance(x, DTensor):
        by_columns = isinstance(layout, Shard) and layout.dim in (-1, x.ndim - 1)
        shape = (*x.shape[:-1], columns) if by_columns and columns is not None else None
        x = DTensor.from_local(x, mesh, [layout], shape=shape)
    if wanted is None:
        return x
    return x.placed(settled("parallel style", [wanted], mesh.ndim, x.ndim))


def left_as(x: Any, wanted: Placement | None, use_local: bool, mesh: DeviceMesh) -> Any:
    """A result that lies as wanted, as this rank's tensor if asked for."""
    if wanted is None or not isinstance(x, DTensor):
        return x
    places = settled("parallel style", [wanted], mesh.ndim, x.ndim)
    if use_local and x._placements == (Partial(),) and places == (Replicate(),):
        return summed_and_left(x._stored, mesh.get_group(0).ranks)
    x = x.placed(places)
    return x.to_local() if use_local else x
