"""What the face hands on only when it is asked for: the compiler, which loads LLVM, rooms that few programs
enter, functions that few call, and ops entered later.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ..ir.errors import ArgumentValueError
from ..runtime import Tensor, ops
from .absent import LATE

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # whose module loads five more, for nothing that is used here
    Loader = MetaPathFinder = object

ROOT = __name__.partition(".")[0]
# By the name that is asked for: the module, or a module in it.
ROOMS = {
    "_VF": "facade._C:_VF",
    "_dynamo.exc": "facade.switches:dynamo_errors",
    "_dynamo.utils": "facade.switches:dynamo_utils",
    "_C._functorch": "facade.switches:functorch_C",
    "_functorch": "facade.switches:functorch",
    "_guards": "facade.switches:guards",
    "_ops": "facade.library:operators",
    "_subclasses": "facade.switches:subclasses",
    "_subclasses.fake_tensor": "facade.switches:subclasses",
    "_functorch.vmap": "facade.switches:functorch_vmap",
    "_inductor": "facade.switches:inductor",
    "_jit_internal": "facade.jit_internal",
    "_logging": "facade.switches:logging",
    "_tensor": "facade.private:_tensor",
    "accelerator": "facade.accelerator",
    "ao": "facade.ao",
    "ao.quantization": "quantization",
    "array_api": "array_api",
    "autograd.profiler": "profiler",
    "autograd.profiler_util": "profiler",
    "cuda.amp.autocast_mode": "facade.amp:of_cuda",
    "cuda.amp.grad_scaler": "facade.amp:of_cuda",
    "cuda.memory": "facade.cuda",
    "cuda.nvtx": "facade.switches:nvtx",
    "cuda.profiler": "facade.switches:cuda_profiler",
    "cuda.random": "facade.cuda",
    "distributed": "distributed",
    "distributed._functional_collectives": "distributed.functional_collectives",
    "distributed._composable": "distributed.fsdp",
    "distributed._composable.fsdp": "distributed.fsdp",
    "distributed._tensor": "distributed.tensor",
    "distributed._tensor.device_mesh": "distributed.device_mesh",
    "distributed.constants": "distributed",
    "distributed.distributed_c10d": "distributed",
    "distributed.launch": "distributed.run",
    "distributed.launcher.api": "distributed.launcher",
    "distributed.elastic.multiprocessing": "distributed.launcher",
    "distributed.elastic.multiprocessing.errors": "distributed.launcher",
    "distributed.fsdp.api": "distributed.fsdp.full_state",
    "distributed.fsdp.fully_sharded_data_parallel": "distributed.fsdp.wrapper",
    "distributed.tensor._utils": "distributed.tensor.parts",
    "distributed.tensor.parallel.api": "distributed.tensor.parallel.plans",
    "distributed.tensor.parallel.loss": "distributed.tensor.parallel.vocabulary_loss",
    "distributed.tensor.parallel.style": "distributed.tensor.parallel.styles",
    "functional": "facade.root_functions",
    "futures": "facade.futures",
    "fx": "fx",
    "fx._symbolic_trace": "fx.tracer",
    "fx._pytree": "fx.specs",
    "hub": "facade.hub",
    "jit": "jit",
    "jit.annotations": "facade.switches:written_types",
    "language": "language",
    "library": "facade.library",
    "multiprocessing": "facade.multiprocessing",
    "onnx": "exchange.onnx",
    "nn.utils._named_member_accessor": "nn.stateless",
    "nn.attention.flex_attention": "facade.attention",
    "nn.parallel.scatter_gather": "nn.parallel",
    "planning": "planning",
    "profiler": "profiler",
    "profiler.profiler": "profiler",
    "quantization": "quantization",
    "quasirandom": "facade.quasirandom",
    "return_types": "facade.return_types",
    "torch_version": "facade.torch_version",
    "types": "facade.type_names",
    "utils.benchmark": "facade.benchmark",
    "utils.collect_env": "facade.info",
    "utils.data.datapipes": "facade.datapipes",
    "utils.data.datapipes.datapipe": "facade.datapipes",
    "utils.data.datapipes.iter": "facade.datapipes",
    "utils.data.datapipes.iter.combinatorics": "facade.datapipes",
    "utils.flop_counter": "facade.flop_counter",
    "utils.model_zoo": "facade.hub",
    "utils.tensorboard": "facade.tensorboard",
    "utils.tensorboard.writer": "facade.tensorboard",
    "utils.weak": "facade.weak",
}
# Functions by their whole names.
WHOLE = {"quantize": "quantization"}
# And functions and classes: what their names begin with, and the module.
FUNCTIONS = {
    "autograd.kineto_available": "profiler",
    "nn.parallel.DistributedDataParallel": "distributed.data_parallel",
    "utils.summary": "facade.summary",
    "Future": "facade.futures",
    "PyTorchFileReader": "facade.absent",
    "ScriptModule": "jit",
    "_foreach_": "facade.foreach",
    "_convert_indices_from_": "facade.segments",
    "_segment_reduce": "facade.segments",
    "segment_reduce": "facade.segments",
    "install_as_torch": "facade.playing",
}


def __getattr__(name: str) -> Any:
    """A room of the package that is imported at its first use, or an op.  Raises AttributeError."""
    if name in ROOMS:
        path, _, part = ROOMS[name].partition(":")
        room = import_module(f"{ROOT}.{path}")
        room = getattr(room, part) if part else room
        for below, absent in LATE.items():
            if below.rpartition(".")[0] == name:
                vars(room).setdefault(below.rpartition(".")[2], absent)
        return room
    if name in WHOLE:
        return getattr(import_module(f"{ROOT}.{WHOLE[name]}"), name)
    if name == "ops":
        return import_module(f"{ROOT}.facade.library").registry
    for start, module in FUNCTIONS.items():
        if name.startswith(start):
            return getattr(import_module(f"{ROOT}.{module}"), name)
    return ops.__getattr__(name)


def of_room(above: str) -> Callable[[str], Any]:
    """The `__getattr__` of a room that has others below it which are imported at their first use."""

    def find(name: str) -> Any:
        if (full := f"{above}.{name}") in ROOMS:
            return __getattr__(full)
        if full in FUNCTIONS:
            return getattr(import_module(f"{ROOT}.{FUNCTIONS[full]}"), name)
        raise AttributeError(f"module '{ROOT}.{above}' has no attribute '{name}'")

    return find


class Alias(Loader):
    """Gives a module under another name; the module itself does not change."""

    def __init__(self, module: ModuleType):
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        self._own = self.module.__spec__  # the import system is about to overwrite it
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own


class Finder(MetaPathFinder):
    """Answers `import lamina.fx`: of a late room, and of a module that is an attribute of the one above."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        root, _, name = fullname.partition(".")
        if root != ROOT or not name:
            return None
        if name in ROOMS:
            return ModuleSpec(fullname, Alias(__getattr__(name)), is_package=True)
        if name in LATE:
            return ModuleSpec(fullname, Alias(LATE[name]), is_package=True)
        above, _, leaf = fullname.rpartition(".")
        module = vars(sys.modules[above]).get(leaf) if above in sys.modules else None
        if not isinstance(module, ModuleType) or not module.__name__.startswith(f"{ROOT}."):
            return None
        return ModuleSpec(fullname, Alias(module), is_package=True)


def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
    """The functions of the array API standard for tensors.  Raises ArgumentValueError for another version."""
    found = __getattr__("array_api")
    if api_version not in (None, found.__array_api_version__):
        raise ArgumentValueError(
            f"__array_namespace__(api_version): there is {found.__array_api_version__!r}, not {api_version!r}"
        )
    return found


def to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
    """The tensor on a device, as the array API standard spells it.  Raises DeviceError."""
    if stream is not None:
        raise ArgumentValueError(f"to_device(stream): memory of the CPU has no stream, not {stream!r}")
    return self.to(device=device)


for _method in (__array_namespace__, to_device):  # the standard's own, which PyTorch lacks
    setattr(Tensor, _method.__name__, _method)

sys.meta_path.append(Finder())  # the last: it is asked only for what is no file
