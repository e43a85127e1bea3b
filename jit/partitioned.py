"""`trace(mesh=...)`: a program for one process, run by all ranks of a mesh, each with a part of the work.

What is cut becomes DTensors, whose rules say op by op how results lie and what is sent; ordinary tensors are
what every rank has.  So a partitioned function is the user's with its arguments cut and its results joined,
and is recorded as any other that meets DTensors.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..distributed.device_mesh import DeviceMesh
from ..distributed.tensor.placement_types import Partial, Placement
from ..distributed.tensor.whole import cut_parameters, partitioned
from ..ir.errors import ArgumentError, ArgumentValueError
from . import mesh_report
from .partitioned_call import All, around
from .reached import reached
from .trace import TracedFunction


class PartitionedFunction(TracedFunction):
    """A traced function of which each rank of a mesh computes a part.

    function: for one process.  in_shardings, out_shardings: as `trace` has them.  Every rank calls it.
    """

    def __init__(
        self, function: Callable, mesh: DeviceMesh, in_shardings: Any = None, out_shardings: Any = None,
        **options: Any,
    ):  # fmt: skip
        if not isinstance(mesh, DeviceMesh):
            raise ArgumentError(f"trace(mesh): a DeviceMesh, not {type(mesh).__name__}")
        if mesh.get_coordinate() is None:
            raise ArgumentValueError("trace(mesh): this rank is not in the mesh", f"mesh: {mesh!r}")
        self._function, self._mesh = function, mesh
        self._shardings = in_shardings, out_shardings
        self._signature = _signature(function)
        self._patterns: dict[str, tuple[Placement, ...]] = {}
        self._pending = False
        self._gathered: dict[str, None] = {}
        options.setdefault("name", getattr(function, "__name__", type(function).__name__))
        super().__init__(self._around_it(in_shardings, out_shardings), **options)

    def _around_it(self, given: Any, wanted: Any) -> Callable:
        """What is recorded in the function's place."""
        names = [] if self._signature is None else _positional(self._signature)
        inputs: dict[str, Any] = {}
        rest = None
        mesh = self._mesh
        if isinstance(given, Mapping):
            known = set() if self._signature is None else set(self._signature.parameters)
            for name, places in given.items():
                if name in known:
                    inputs[name] = _settled("in_shardings", places, mesh)
                else:
                    self._patterns[name] = _placements("in_shardings", places, mesh)
            self._pending = bool(self._patterns)
        elif _is_placements(given, mesh):
            rest = All(_placements("in_shardings", given, mesh))
        elif given is not None:
            each = list(given) if isinstance(given, (list, tuple)) else [given]
            if len(each) > len(names):
                raise ArgumentValueError(
                    f"trace(in_shardings): {len(each)} shardings for a function of {len(names)} arguments",
                    f"arguments: {', '.join(names) or 'none by position'}",
                    "a dictionary names arguments and parameters",
                )
            inputs = {n: _settled("in_shardings", p, mesh) for n, p in zip(names, each)}
        out = _settled("out_shardings", wanted, mesh)
        return around(self._function, mesh, names, inputs, rest, out)

    def _wrap(self, function: Callable) -> None:
        super()._wrap(function)
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            setattr(self, name, getattr(self._function, name, None))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._pending:
            self._cut_parameters(args, kwargs)
        with partitioned(self._gathered):
            return super().__call__(*args, **kwargs)

    def _cut_parameters(self, args: tuple, kwargs: dict[str, Any]) -> None:
        """Cut the parameters that are named, once: of modules that the function names or is given."""
        given = dict(kwargs)
        if self._signature is not None:
            given |= self._signature.bind_partial(*args, **kwargs).arguments
        modules, optimizers = reached(self._function, given)
        found = cut_parameters(modules, optimizers, self._mesh, self._patterns)
        lacking = [name for name in self._patterns if name not in found]
        if lacking:
            names = [n for at, m in modules.items() for n, _ in m.named_parameters(prefix=at)]
            raise ArgumentValueError(
                f"trace(in_shardings): {lacking[0]!r} names no argument and no parameter",
                f"arguments: {', '.join(given) or 'none'}",
                f"parameters: {', '.join(names[:12]) or 'none'}{', …' * (len(names) > 12)}",
                "modules are found by the variables that the function names",
            )
        self._pending = False

    def __getattr__(self, name: str) -> Any:
        """What the user's function or module has."""
        if name.startswith("__") or "_function" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._function, name)

    def _options(self) -> dict[str, Any]:
        given, wanted = self._shardings
        return super()._options() | {
            "mesh": self._mesh,
            "in_shardings": given,
            "out_shardings": wanted,
        }

    def explain(
        self, *, detail: bool = False, as_dict: bool = False, memory: bool = False, mesh: bool = True
    ) -> Any:
        """How the function fares, and what its ranks send: see `TracedFunction.explain`."""
        told = super().explain(detail=detail, as_dict=as_dict, memory=memory, mesh=mesh)
        if not mesh or not self._gathered:
            return told
        if as_dict:
            return told | {"gathered": list(self._gathered)}
        return f"{told}\n{mesh_report.without_rules(self._gathered)}"

    def _dims(self) -> dict[tuple[int, ...], str]:
        names = self._mesh.mesh_dim_names
        return {
            self._mesh.get_group(m).ranks: f"dim {m}" if names is None else repr(names[m])
            for m in range(self._mesh.ndim)
        }


def _signature(function: Callable) -> inspect.Signature | None:
    """What it takes, where that is known."""
    try:
        return inspect.signature(getattr(function, "forward", function))
    except (TypeError, ValueError):
        return None


def _positional(signature: inspect.Signature) -> list[str]:
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [name for name, p in signature.parameters.items() if p.kind in kinds]


def _is_placements(given: Any, mesh: DeviceMesh) -> bool:
    """Whether it is one tensor's placements: one, where the mesh has one dim, or a list of one for each."""
    if isinstance(given, Placement):
        return True
    listed = isinstance(given, (list, tuple)) and len(given) == mesh.ndim
    return listed and all(isinstance(p, Placement) for p in given)


def _placements(name: str, given: Any, mesh: DeviceMesh) -> tuple[Placement, ...]:
    """The same, for each dim of the mesh.  Raises ArgumentError, ArgumentValueError."""
    if not _is_placements(given, mesh):
        raise ArgumentError(
            f"trace({name}): placements, one for each of the mesh's {mesh.ndim} dims, not {given!r}"
        )
    found = (given,) if isinstance(given, Placement) else tuple(given)
    if len(found) != mesh.ndim:
        raise ArgumentValueError(f"trace({name}): one for each of the mesh's {mesh.ndim} dims, not {given!r}")
    if any(isinstance(p, Partial) for p in found):
        raise ArgumentValueError(f"trace({name}): Shard and Replicate, not {given!r}")
    return found


def _settled(name: str, given: Any, mesh: DeviceMesh) -> Any:
    """What is given for one argument or result: None, placements, or lists and dictionaries of these."""
    if given is None:
        return None
    if _is_placements(given, mesh):
        return _placements(name, given, mesh)
    if isinstance(given, Mapping):
        return {k: _settled(name, v, mesh) for k, v in given.items()}
    if isinstance(given, (list, tuple)):
        return [_settled(name, v, mesh) for v in given]
    raise ArgumentError(f"trace({name}): placements, a list or a dictionary of these, or None, not {given!r}")
