"""A plan: by the names of modules, how each is made parallel."""

from __future__ import annotations

from fnmatch import fnmatch

from ....ir.errors import ArgumentError
from ....ir.warned import warn
from ....nn.module import Module
from ...device_mesh import DeviceMesh
from ..dtensor import need_mesh
from .styles import ParallelStyle


def parallelize_module(
    module: Module,
    device_mesh: DeviceMesh | None = None,
    parallelize_plan: ParallelStyle | dict[str, ParallelStyle] | None = None,
    *,
    src_data_rank: int | None = 0,
) -> Module:
    """Make a module, or modules below it, parallel over a mesh of one dim, in place.

    parallelize_plan: a style for the module itself; or styles by names of modules below, in which `*` and `?`
    stand for any name and any letter between two dots.  src_data_rank: whose values parameters begin with.

    Raises ArgumentError for what is no plan.  A name that no module has is warned of.
    """
    mesh = need_mesh("parallelize_module", device_mesh)
    if parallelize_plan is None:
        warn("No parallelize_plan is provided and auto-parallel is not supported", UserWarning, stacklevel=2)
        return module
    if isinstance(parallelize_plan, ParallelStyle):
        parallelize_plan.src_data_rank = src_data_rank
        return parallelize_plan._apply(module, mesh)
    if not isinstance(parallelize_plan, dict):
        raise ArgumentError(
            "parallelize_module(parallelize_plan): a ParallelStyle, or a dict of them by names, not "
            f"{type(parallelize_plan).__name__}"
        )
    for name, style in parallelize_plan.items():
        if name == "":
            parallelize_module(module, mesh, style, src_data_rank=src_data_rank)
            continue
        found = _below(module, name.split("."))
        if not found:
            warn(
                f"parallelize_module: no module below is named {name!r}, which the plan speaks of",
                UserWarning,
                stacklevel=2,
            )
        for below in found:
            parallelize_module(below, mesh, style, src_data_rank=src_data_rank)
    return module


def _below(module: Module, names: list[str]) -> list[Module]:
    """The modules that a dotted name with wildcards means."""
    if not names:
        return [module]
    return [
        found
        for child_name, child in module.named_children()
        if fnmatch(child_name, names[0])
        for found in _below(child, names[1:])
    ]
