"""How a module is made parallel: where its parameters lie, and what its calls take and return.

A style's `_apply` puts the parameters and hangs two hooks on the module: one makes DTensors of what comes in,
one gives on what goes out, as an ordinary tensor of this rank's unless asked otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir.errors import ArgumentError, ArgumentValueError
from ....nn import Embedding, Linear
from ....nn.module import Module
from ...device_mesh import DeviceMesh
from ..dtensor import DTensor
from ..making import distribute_tensor, replicate_rest
from ..placement_types import Placement, Replicate, Shard
from .borders import entered_as, left_as


class ParallelStyle:
    """What `parallelize_module` does to one module: a subclass says it in `_apply(module, mesh)`."""

    src_data_rank: int | None = 0

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        raise ArgumentError(f"{type(self).__name__} does not say what it does to a module")


def _layouts(layouts: Any) -> tuple[Any, ...] | None:
    """One layout for each argument or result, as a tuple; None where none were given."""
    if layouts is None:
        return None
    return (layouts,) if isinstance(layouts, Placement) else tuple(layouts)


def _one_dim(style: ParallelStyle, mesh: DeviceMesh) -> None:
    if mesh.ndim != 1:
        raise ArgumentValueError(
            f"{type(style).__name__}: a mesh of one dim, not {mesh.ndim}", 'mesh["tp"] is such a part of one'
        )


class _OfWeights(ParallelStyle):
    """What column- and row-wise have in common: one input, one output, a weight and a bias."""

    def __init__(
        self,
        name: str,
        input_layouts: Placement,
        wanted: Placement,
        output_layouts: Placement,
        use_local: bool,
    ):
        for what, layout in (("input_layouts", input_layouts), ("output_layouts", output_layouts)):
            if not isinstance(layout, Placement):
                raise ArgumentError(f"{name}({what}): a Placement, not {layout!r}")
        self.input_layouts, self.output_layouts = (input_layouts,), (output_layouts,)
        self.desired_input_layouts, self.use_local_output = (wanted,), use_local

    def _hang(self, module: Module, mesh: DeviceMesh) -> None:
        layout, wanted, out = self.input_layouts[0], self.desired_input_layouts[0], self.output_layouts[0]
        columns = module.in_features if isinstance(module, Linear) else None
        module.register_forward_pre_hook(
            lambda m, args: (entered_as(args[0], layout, wanted, mesh, columns), *args[1:]) if args else args
        )
        module.register_forward_hook(lambda m, args, y: left_as(y, out, self.use_local_output, mesh))

    def _place(self, module: Module, mesh: DeviceMesh, weight: Placement, bias: Placement) -> None:
        for name, p in list(module._parameters.items()):
            if p is not None and not isinstance(p, DTensor):
                place = bias if name == "bias" else weight
                placed = distribute_tensor(p, mesh, [place], src_data_rank=self.src_data_rank)
                module.register_parameter(name, placed)


class ColwiseParallel(_OfWeights):
    """A Linear whose outputs, or an Embedding whose features, are computed a part on each rank.

    input_layouts: how what comes in lies, on every rank whole unless given.  output_layouts: how what goes
    out is to lie, cut along its last dim unless given.  use_local_output: it goes out as this rank's tensor.
    """

    def __init__(
        self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ):  # fmt: skip
        super().__init__(
            "ColwiseParallel", input_layouts or Replicate(), Replicate(), output_layouts or Shard(-1),
            use_local_output,
        )  # fmt: skip

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        _one_dim(self, device_mesh)
        if isinstance(module, Linear):
            self._place(module, device_mesh, Shard(0), Shard(0))
        elif isinstance(module, Embedding):
            self._place(module, device_mesh, Shard(1), Shard(1))
        else:
            raise _unknown(self, module)
        self._hang(module, device_mesh)
        return module


class RowwiseParallel(_OfWeights):
    """A Linear whose inputs, or an Embedding whose rows, are a part on each rank; results are added up.

    input_layouts: how what comes in lies, cut along its last dim unless given.  output_layouts: how what goes
    out is to lie, whole on each rank unless given; `Shard(dim)` sends half as much.  use_local_output: it
    goes out as this rank's tensor.
    """

    def __init__(
        self, *, input_layouts: Placement | None = None, output_layouts: Placement | None = None,
        use_local_output: bool = True,
    ):  # fmt: skip
        super().__init__(
            "RowwiseParallel", input_layouts or Shard(-1), Shard(-1), output_layouts or Replicate(),
            use_local_output,
        )  # fmt: skip

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        _one_dim(self, device_mesh)
        if isinstance(module, Linear):
            self._place(module, device_mesh, Shard(1), Replicate())
        elif isinstance(module, Embedding):
            self._place(module, device_mesh, Shard(0), Replicate())
            self.desired_input_layouts = (Replicate(),)
        else:
            raise _unknown(self, module)
        self._hang(module, device_mesh)
        return module


class SequenceParallel(ParallelStyle):
    """A norm or dropout on a sequence of which each rank has a part; its parameters are whole on each rank.

    sequence_dim: which dim that is, 1 unless given.  use_local_output: it goes out as this rank's tensor.
    """

    def __init__(self, *, sequence_dim: int = 1, use_local_output: bool = False):
        self.sequence_sharding, self.use_local_output = Shard(sequence_dim), use_local_output

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        _one_dim(self, device_mesh)
        for below in module.modules():
            replicate_rest(below, device_mesh)
        cut = self.sequence_sharding
        module.register_forward_pre_hook(
            lambda m, args: (entered_as(args[0], cut, cut, device_mesh), *args[1:])
        )
        if self.use_local_output:
            module.register_forward_hook(lambda m, args, y: y.to_local() if isinstance(y, DTensor) else y)
        return module


class PrepareModuleInput(ParallelStyle):
    """Make DTensors of what a module's calls take, lying as wanted.

    input_layouts, desired_input_layouts: one for each argument, None for one that stays as it is.
    input_kwarg_layouts, desired_input_kwarg_layouts: by name.  use_local_output: the module gets this rank's
    tensors of them.
    """

    def __init__(
        self, *, input_layouts: Any = None, desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_output: bool = False,
    ):  # fmt: skip
        self.input_layouts, self.desired_input_layouts = (
            _layouts(input_layouts),
            _layouts(desired_input_layouts),
        )
        self.input_kwarg_layouts = input_kwarg_layouts or {}
        self.desired_input_kwarg_layouts = desired_input_kwarg_layouts or {}
        self.use_local_output = use_local_output
        for what, given, wanted in (
            ("input_layouts", self.input_layouts, self.desired_input_layouts),
            ("input_kwarg_layouts", self.input_kwarg_layouts, self.desired_input_kwarg_layouts),
        ):
            if given is not None and (wanted is None or len(given) != len(wanted)):
                raise ArgumentValueError(f"PrepareModuleInput({what}): one wanted for each that is given")

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        _one_dim(self, device_mesh)
        module.register_forward_pre_hook(
            lambda m, args, kwargs: self._prepared(m, args, kwargs, device_mesh), with_kwargs=True
        )
        return module

    def _prepared(self, module: Module, args: tuple, kwargs: dict[str, Any], mesh: DeviceMesh) -> Any:
        given, wanted = self.input_layouts, self.desired_input_layouts or ()
        if given is not None:
            if len(given) != len(args):
                raise ArgumentValueError(
                    f"PrepareModuleInput(input_layouts): {type(module).__name__} was called with {len(args)} "
                    f"arguments, and there are {len(given)} layouts"
                )
            args = tuple([self._one(x, a, b, mesh) for x, a, b in zip(args, given, wanted, strict=True)])
        for name, layout in self.input_kwarg_layouts.items():
            if name in kwargs:
                want = self.desired_input_kwarg_layouts.get(name)
                kwargs = {**kwargs, name: self._one(kwargs[name], layout, want, mesh)}
        return args, kwargs

    def _one(self, x: Any, layout: Any, wanted: Any, mesh: DeviceMesh) -> Any:
        found = entered_as(x, layout, wanted, mesh)
        return found.to_local() if self.use_local_output and isinstance(found, DTensor) else found


class PrepareModuleOutput(ParallelStyle):
    """Make what a module's calls return lie as wanted.

    output_layouts, desired_output_layouts: one for each result, None for one that stays as it is.
    use_local_output: they go out as this rank's tensors.
    """

    def __init__(self, *, output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True):
        self.output_layouts = _layouts(output_layouts) or ()
        self.desired_output_layouts = _layouts(desired_output_layouts) or ()
        self.use_local_output = use_local_output
        if len(self.output_layouts) != len(self.desired_output_layouts):
            raise ArgumentValueError("PrepareModuleOutput: one wanted layout for each that is given")

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        _one_dim(self, device_mesh)
        module.register_forward_hook(lambda m, args, y: self._prepared(y, device_mesh))
        return module

    def _prepared(self, outputs: Any, mesh: DeviceMesh) -> Any:
        several: Sequence[Any] = outputs if isinstance(outputs, tuple) else (outputs,)
        if len(several) != len(self.output_layouts):
            raise ArgumentValueError(
                f"PrepareModuleOutput: {len(several)} results, and {len(self.output_layouts)} layouts"
            )
        made = tuple(
            [
                left_as(entered_as(y, a, None, mesh), b, self.use_local_output, mesh)
                for y, a, b in zip(several, self.output_layouts, self.desired_output_layouts, strict=True)
            ]
        )
        return made if isinstance(outputs, tuple) else made[0]


class PrepareModuleInputOutput(ParallelStyle):
    """`PrepareModuleInput` and `PrepareModuleOutput` together."""

    def __init__(
        self, *, input_layouts: Any = None, desired_input_layouts: Any = None,
        input_kwarg_layouts: dict[str, Placement] | None = None,
        desired_input_kwarg_layouts: dict[str, Placement] | None = None, use_local_input: bool = False,
        output_layouts: Any, desired_output_layouts: Any, use_local_output: bool = True,
    ):  # fmt: skip
        self.prepare_module_input = PrepareModuleInput(
            input_layouts=input_layouts, desired_input_layouts=desired_input_layouts,
            input_kwarg_layouts=input_kwarg_layouts, desired_input_kwarg_layouts=desired_input_kwarg_layouts,
            use_local_output=use_local_input,
        )  # fmt: skip
        self.prepare_module_output = PrepareModuleOutput(
            output_layouts=output_layouts, desired_output_layouts=desired_output_layouts,
            use_local_output=use_local_output,
        )  # fmt: skip

    def _apply(self, module: Module, device_mesh: DeviceMesh) -> Module:
        self.prepare_module_input._apply(module, device_mesh)
        return self.prepare_module_output._apply(module, device_mesh)


def _unknown(style: ParallelStyle, module: Module) -> ArgumentValueError:
    return ArgumentValueError(
        f"{type(style).__name__} currently only supports nn.Linear and nn.Embedding",
        f"module: {type(module).__name__}",
        "distribute_module(module, mesh, partition_fn) puts parameters anyhow",
    )
