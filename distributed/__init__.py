"""More than one process: groups of ranks, collectives on tensors and messages, under PyTorch's names.

    mpiexec -n 4 python train.py        or        python -m lamina launch -n 4 train.py

    import lamina.distributed as dist
    dist.init_process_group()
    x = lamina.ones(3) * dist.get_rank()
    dist.all_reduce(x)                  # every rank has the sum

Ranks talk through MPI: `pip install 'lamina[mpi]'`.

Each rank has its own generators.  After `lamina.manual_seed(0)` on all of them they draw the same numbers, as
parameters that begin alike want it; `lamina.manual_seed(1 + dist.get_rank())` once the model is made gives
each rank a stream of its own, as dropout wants it.  Orders of samples follow from a sampler's own seed.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.distributed")

from importlib import import_module
from types import ModuleType

from ..ir.errors import DistributedError
from ..ir.errors import DistributedError as DistBackendError
from ..ir.errors import DistributedError as DistError
from ..ir.errors import DistributedError as DistNetworkError
from ..ir.errors import DistributedError as DistStoreError
from . import functional, nn
from .collectives import (
    _all_gather_base,
    _reduce_scatter_base,
    all_gather,
    all_gather_into_tensor,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    gather,
    monitored_barrier,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
)
from .device_mesh import DeviceMesh, init_device_mesh
from .file_store import FileStore
from .groups import DEFAULT_TIMEOUT as default_pg_timeout
from .groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    destroy_process_group,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_node_local_rank,
    get_pg_count,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
)
from .groups import default_group as _get_default_group
from .messages import P2POp, batch_isend_irecv, irecv, isend, recv, send
from .objects import (
    all_gather_object,
    broadcast_object_list,
    gather_object,
    recv_object_list,
    scatter_object_list,
    send_object_list,
)
from .reduce_op import ReduceOp
from .store import HashStore, PrefixStore, QueueEmptyError, Store
from .tcp_store import TCPStore
from .work import Work

_ROOMS = frozenset(
    ("algorithms", "checkpoint", "fsdp", "optim", "pipelining", "tensor")
)  # imported at their first use


def __getattr__(name: str) -> ModuleType:
    """A room below this one.  Raises AttributeError."""
    if name in _ROOMS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
