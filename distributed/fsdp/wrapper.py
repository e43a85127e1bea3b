"""`FullyShardedDataParallel`: the wrapper class of PyTorch's first design, on `fully_shard`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from ...ir.errors import ArgumentError, ArgumentValueError
from ...nn.module import Module
from ...nn.utils import clip_grad_norm_
from ...optim.optimizer import Optimizer
from ...runtime import Tensor, no_grad
from ..collectives import broadcast
from ..device_mesh import DeviceMesh
from ..groups import ProcessGroup, default_group, get_rank, resolved
from ..tensor.dtensor import DTensor
from .full_state import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    OptimStateKeyType,
    ShardedOptimStateDictConfig,
    ShardedStateDictConfig,
    StateDictType,
    cut_state,
    whole_state,
    whole_value,
)
from .policies import BackwardPrefetch, CPUOffload, MixedPrecision, MixedPrecisionPolicy, ShardingStrategy
from .sharding import FSDPModule, fully_shard, state_of
from .wrap import chosen

_HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
_GIVES_BACK = (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)


class FullyShardedDataParallel(Module):
    """Wrap a module so that each rank keeps a part of its parameters; the wrapped one is `module`.

    process_group: the ranks, all unless given; for a hybrid strategy a pair: of parts and of copies.
    sharding_strategy: FULL_SHARD unless given.  auto_wrap_policy: modules inside that become groups of their
    own (see wrap.py), or classes of such.  mixed_precision: dtypes of calls.  ignored_modules and _states:
    whose parameters are left as they are.  param_init_fn(module): fills modules on the meta device, and is
    called where there are some.  sync_module_states: parameters and buffers begin as the first rank's.

    Parameters are DTensors (`use_orig_params` is always so): each has its own name and shape.  `state_dict()`
    holds whole tensors unless `state_dict_type` says otherwise.

    Raises ArgumentError, ArgumentValueError.
    """

    def __init__(
        self,
        module: Module,
        process_group: Any = None,
        sharding_strategy: ShardingStrategy | None = None,
        cpu_offload: Any = None,
        auto_wrap_policy: Any = None,
        backward_prefetch: Any = None,
        mixed_precision: MixedPrecision | None = None,
        ignored_modules: Iterable[Module] | None = None,
        param_init_fn: Callable[[Module], None] | None = None,
        device_id: Any = None,
        sync_module_states: bool = False,
        forward_prefetch: bool = False,
        limit_all_gathers: bool = True,
        use_orig_params: bool = False,
        ignored_states: Iterable[Any] | None = None,
        device_mesh: DeviceMesh | None = None,
    ):
        super().__init__()
        if not isinstance(module, Module):
            raise ArgumentError(f"FullyShardedDataParallel(module): a Module, not {type(module).__name__}")
        strategy = sharding_strategy or ShardingStrategy.FULL_SHARD
        mesh = _mesh(strategy, process_group, device_mesh)
        left = list(ignored_modules or ())
        states = list(ignored_states or ())
        left += [m for m in states if isinstance(m, Module)]
        ignored = {p for m in left for p in m.parameters()} | {p for p in states if isinstance(p, Tensor)}
        if any(p.is_meta for p in module.parameters()):
            _fill(module, param_init_fn)
        if sync_module_states:
            _as_first(module, mesh)
        if mixed_precision is not None and mixed_precision.buffer_dtype is not None:
            for m in module.modules():
                for name, b in list(m._buffers.items()):
                    if b is not None and b.dtype.inexact:
                        m._buffers[name] = b.to(mixed_precision.buffer_dtype)
        given: dict[str, Any] = {"mesh": mesh, "ignored_params": ignored}
        gives_back = strategy in _GIVES_BACK
        inside = _chosen(module, auto_wrap_policy, {id(m) for m in left})
        for below, _ in inside:
            if not isinstance(below, FSDPModule):
                policy = _policy(mixed_precision, False)
                fully_shard(below, reshard_after_forward=gives_back, mp_policy=policy, **given)
        if not isinstance(module, FSDPModule):
            root = None if gives_back else False
            fully_shard(module, reshard_after_forward=root, mp_policy=_policy(mixed_precision, True), **given)
        self.module = module
        self.sharding_strategy, self.mesh = strategy, mesh
        self._kind: tuple[StateDictType, Any, Any] = (
            StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig(),
        )  # fmt: skip

    @property
    def _fsdp_wrapped_module(self) -> Module:
        return self.module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module."""
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in ("module", "_modules") or "module" not in (self._modules or {}):
            return super().__getattr__(name)
        return getattr(self.module, name)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]  # type: ignore[index]

    # ---- names: those of the module
    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """The module's parameters by its names."""
        return self.module.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        """The module's buffers by its names."""
        return self.module.named_buffers(*args, **kwargs)

    def parameters(self, recurse: bool = True) -> Any:
        """The module's parameters."""
        return self.module.parameters(recurse)

    # ---- states
    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's state, as `state_dict_type` says; all ranks call it."""
        kind, config, _ = self._kind
        state = self.module.state_dict(*args, **kwargs)
        if kind is StateDictType.FULL_STATE_DICT:
            return whole_state(state, config.rank0_only)
        return state

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        """Take over a state of whole tensors, which all ranks have, or of DTensors."""
        self._reshard()
        return self.module.load_state_dict(cut_state(state_dict, self.module), strict, assign)

    def _reshard(self) -> None:
        for state in self._states():
            state.group.reshard()

    def _states(self) -> list[Any]:
        return [s for m in self.module.modules() if (s := state_of(m)) is not None]

    @staticmethod
    def set_state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> list[tuple]:  # fmt: skip
        """Say what `state_dict()` holds from now on.  Returns what it was, for each wrapped module."""
        if state_dict_type is StateDictType.LOCAL_STATE_DICT:
            raise ArgumentValueError(
                "state_dict_type(LOCAL_STATE_DICT): is not built",
                "SHARDED_STATE_DICT holds this rank's parts",
            )
        whole = state_dict_type is StateDictType.FULL_STATE_DICT
        config = state_dict_config or (FullStateDictConfig() if whole else ShardedStateDictConfig())
        before = []
        for m in module.modules():
            if isinstance(m, FullyShardedDataParallel):
                before.append((m, m._kind))
                m._kind = (state_dict_type, config, optim_state_dict_config or FullOptimStateDictConfig())
        return before

    @staticmethod
    @contextmanager
    def state_dict_type(
        module: Module, state_dict_type: StateDictType, state_dict_config: Any = None,
        optim_state_dict_config: Any = None,
    ) -> Iterator[None]:  # fmt: skip
        """Let `state_dict()` hold this inside."""
        before = FullyShardedDataParallel.set_state_dict_type(
            module, state_dict_type, state_dict_config, optim_state_dict_config
        )
        try:
            yield
        finally:
            for m, kind in before:
                m._kind = kind

    @staticmethod
    def optim_state_dict(
        model: Module, optim: Optimizer, optim_state_dict: dict[str, Any] | None = None, group: Any = None
    ) -> dict[str, Any]:
        """An optimizer's state by the names of parameters, whole unless `state_dict_type` says otherwise.

        All ranks call it.
        """
        kind, _, config = _root(model)._kind
        state = optim.state_dict() if optim_state_dict is None else optim_state_dict
        whole = kind is StateDictType.FULL_STATE_DICT
        names = _numbered(model, optim)
        values = {
            names[i]: {k: whole_value(v) if whole else v for k, v in s.items()}
            for i, s in state["state"].items()
        }
        groups = [{**g, "params": [names[i] for i in g["params"]]} for g in state["param_groups"]]
        if whole and config.rank0_only and get_rank() != 0:
            return {}
        return {"state": values, "param_groups": groups}

    full_optim_state_dict = optim_state_dict

    @staticmethod
    def optim_state_dict_to_load(
        model: Module, optim: Optimizer, optim_state_dict: dict[str, Any], **_: Any
    ) -> dict[str, Any]:
        """What `optim.load_state_dict` takes, of what `optim_state_dict` returned, which all ranks have."""
        numbers = {name: i for i, name in _numbered(model, optim).items()}
        groups = [
            {**g, "params": [numbers[n] for n in g["params"]]} for g in optim_state_dict["param_groups"]
        ]
        return {
            "state": {numbers[n]: s for n, s in optim_state_dict["state"].items()},
            "param_groups": groups,
        }

    # ---- around steps
    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Keep gradients on each rank inside; the next backward outside averages them."""
        states = self._states()
        before = [s.syncs for s in states]
        for s in states:
            s.syncs = False
        try:
            yield
        finally:
            for s, syncs in zip(states, before, strict=True):
                s.syncs = syncs

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> Tensor:
        """Scale all gradients so that their norm taken as one vector is at most `max_norm`; return it."""
        return clip_grad_norm_(self.parameters(), max_norm, norm_type)

    @staticmethod
    @contextmanager
    def summon_full_params(
        module: Module, recurse: bool = True, writeback: bool = True, rank0_only: bool = False,
        offload_to_cpu: bool = False, with_grads: bool = False,
    ) -> Iterator[None]:  # fmt: skip
        """Put whole parameters into the modules inside, without gradients; with `writeback` writes stay.

        Raises ArgumentValueError for rank0_only and with_grads.
        """
        if rank0_only or with_grads:
            raise ArgumentValueError("summon_full_params(rank0_only, with_grads): are not built")
        states = [s for m in module.modules() if (s := state_of(m)) is not None]
        for s in states:
            s.group.unshard()
        try:
            yield
        finally:
            for s in states:
                if not writeback and s.group.gathered is not None:
                    s.group.gathered.settle()
                s.group.reshard()

    @staticmethod
    def fsdp_modules(module: Module, root_only: bool = False) -> list[Any]:
        """The fully sharded modules of a model."""
        found = [m for m in module.modules() if isinstance(m, FSDPModule)]
        return found[:1] if root_only else found


def _numbered(model: Module, optim: Optimizer) -> dict[int, str]:
    """By its number in an optimizer's state: the name of each parameter.  Raises ArgumentValueError."""
    names = {id(p): n for n, p in model.named_parameters()}
    params = [p for group in optim.param_groups for p in group["params"]]
    lacking = [p for p in params if id(p) not in names]
    if lacking:
        raise ArgumentValueError(
            "optim_state_dict: the optimizer has parameters that the model has not",
            f"parameter: {lacking[0]._meta}",
            "make the optimizer after the model is wrapped",
        )
    return {i: names[id(p)] for i, p in enumerate(params)}


def _root(model: Module) -> FullyShardedDataParallel:
    found = next((m for m in model.modules() if isinstance(m, FullyShardedDataParallel)), None)
    if found is None:
        raise ArgumentValueError("optim_state_dict(model): no FullyShardedDataParallel is in it")
    return found


def _policy(given: MixedPrecision | None, root: bool) -> MixedPrecisionPolicy:
    if given is None:
        return MixedPrecisionPolicy()
    casts = given.cast_root_forward_inputs if root else given.cast_forward_inputs
    return MixedPrecisionPolicy(given.param_dtype, given.reduce_dtype, None, casts)


def _mesh(strategy: ShardingStrategy, group: Any, mesh: DeviceMesh | None) -> DeviceMesh:
    """The ranks that parts, and copies, are on.  Raises ArgumentValueError."""
    if mesh is not None:
        if (mesh.ndim == 2) != (strategy in _HYBRID):
            raise ArgumentValueError(
                f"FullyShardedDataParallel({strategy.name}): a hybrid strategy takes a mesh of two dims, "
                "others of one",
                f"{mesh!r}",
            )
        return mesh if strategy is not ShardingStrategy.NO_SHARD else _copies(mesh.get_group())
    if strategy in _HYBRID:
        if not (isinstance(group, tuple) and len(group) == 2):
            raise ArgumentValueError(
                f"FullyShardedDataParallel({strategy.name}): device_mesh, of two dims, or a pair of groups"
            )
        raise ArgumentValueError(
            f"FullyShardedDataParallel({strategy.name}): a pair of groups is not built", "device_mesh=..."
        )
    found = default_group() if group is None else resolved(group)
    if found is None:
        raise ArgumentValueError("FullyShardedDataParallel(process_group): this process is not in it")
    if strategy is ShardingStrategy.NO_SHARD:
        return _copies(found)
    return DeviceMesh("cpu", list(found.ranks), _groups=[found])


def _copies(group: ProcessGroup) -> DeviceMesh:
    """A mesh on which nothing is parted: as many copies as ranks.

    Raises ArgumentValueError for some of all ranks alone.
    """
    if group.size() != default_group().size():
        raise ArgumentValueError(
            "FullyShardedDataParallel(NO_SHARD): of all ranks alone", f"{group!r}", "DistributedDataParallel"
        )
    return DeviceMesh("cpu", [[rank] for rank in group.ranks])


def _chosen(module: Module, policy: Any, ignored: set[int]) -> list[tuple[Module, dict[str, Any]]]:
    if policy is None:
        return []
    if isinstance(policy, (set, list, tuple, frozenset)):
        kinds = tuple(policy)
        return chosen(module, lambda module, recurse, **_: recurse or isinstance(module, kinds), ignored)
    if not callable(policy):
        raise ArgumentError(
            f"FullyShardedDataParallel(auto_wrap_policy): a function or classes, not {policy!r:.80}"
        )
    return chosen(module, policy, ignored)


def _fill(module: Module, fill: Callable[[Module], None] | None) -> None:
    """Give modules on the meta device memory and values.  Raises ArgumentValueError where nobody says how."""
    for m in module.modules():
        own = [*m._parameters.values(), *m._buffers.values()]
        if not any(x is not None and x.is_meta for x in own):
            continue
        if fill is not None:
            fill(m)
            continue
        m.to_empty(device="cpu", recurse=False)
        if not callable(getattr(m, "reset_parameters", None)):
            raise ArgumentValueError(
                f"FullyShardedDataParallel: {type(m).__name__} is on the meta device and has no "
                "reset_parameters()",
                "param_init_fn=... fills it",
            )
        with no_grad():
            m.reset_parameters()


def _as_first(module: Module, mesh: DeviceMesh) -> None:
    with no_grad():
        for x in (*module.parameters(), *module.buffers()):
            if isinstance(x, DTensor):
                continue
            for m in range(mesh.ndim):
                if mesh.shape[m] > 1:
                    group = mesh.get_group(m)
                    broadcast(x, group.ranks[0], group)


# PyTorch has them in the module of the class, too.
__all__ = [
    "BackwardPrefetch", "CPUOffload", "FullOptimStateDictConfig", "FullStateDictConfig",
    "FullyShardedDataParallel", "MixedPrecision", "OptimStateKeyType", "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig", "ShardingStrategy", "StateDictType",
]  # fmt: skip
