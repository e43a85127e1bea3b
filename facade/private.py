"""Private names of PyTorch's that libraries import all the same: helpers of modules, optimizers, loaders."""

from __future__ import annotations

import copy
import functools
import io
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from math import inf
from types import ModuleType
from typing import Any, TypeAlias, TypeVar
from warnings import warn

import numpy as np

from .. import data, distributions, nn, optim
from ..data import collate as collating
from ..data import fetching
from ..distributions import multivariate, parameters, transform
from ..ir.dtypes import ALL, COMPLEX, DType, bool_, default_dtype, float32, float64
from ..ir.errors import ArgumentError, ArgumentValueError, DTypeError
from ..ir.types import Device
from ..nn import functional, init, multihead
from ..runtime import (
    Tensor,
    get_num_threads,
    is_grad_enabled,
    memory_view,
    modes,
    ops,
    printing,
    set_grad_enabled,
)
from ..runtime import random as draws
from ..runtime.checkpoints.names import REBUILDERS, Makers
from ..runtime.checkpoints.saving import load
from ..runtime.methods import RemovableHandle
from . import cuda, overrides
from .absent import kind
from .torch_version import VERSION


def _module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(f"lamina.{name}", f"What PyTorch keeps in torch.{name}.")
    vars(made).update(names)
    return made


# ---- modules -----------------------------------------------------------------------------------------------
_sizes: dict[str, TypeAlias] = {  # what annotations of windows and strides say
    "_scalar_or_tuple_any_t": int | tuple[int, ...],
    "_size_any_t": int | tuple[int, ...],
    **{f"_scalar_or_tuple_{n}_t": int | tuple[(int,) * n] for n in range(1, 7)},  # type: ignore[misc]
    **{f"_size_{n}_t": int | tuple[(int,) * n] for n in range(1, 7)},  # type: ignore[misc]
    **{f"_size_{n}_opt_t": int | None | tuple[(int | None,) * n] for n in (2, 3)},  # type: ignore[misc]
    "_ratio_any_t": float | tuple[float, ...],
    "_ratio_2_t": float | tuple[float, float],
    "_ratio_3_t": float | tuple[float, float, float],
    "_tensor_list_t": Tensor | list[Tensor],
    "_maybe_indices_t": Tensor | tuple[Tensor, Tensor],
}
common_types = _module("nn.common_types", **_sizes)

_REDUCTIONS = {"none": 0, "mean": 1, "elementwise_mean": 1, "sum": 2}


def get_enum(reduction: str) -> int:
    """The number that stands for a reduction.  Raises ArgumentValueError."""
    if reduction not in _REDUCTIONS:
        raise ArgumentValueError(f"{reduction} is not a valid value for reduction")
    return _REDUCTIONS[reduction]


def legacy_get_string(size_average: bool | None, reduce: bool | None, emit_warning: bool = True) -> str:
    """The reduction that two old arguments mean."""
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


_reduction = _module(
    "nn._reduction", get_enum=get_enum, legacy_get_string=legacy_get_string,
    legacy_get_enum=lambda size_average, reduce, emit_warning=True: get_enum(
        legacy_get_string(size_average, reduce)
    ),
)  # fmt: skip


def _get_clones(module: nn.Module, N: int) -> nn.ModuleList:
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def _generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
    return nn.Transformer.generate_square_subsequent_mask(sz, device=device, dtype=dtype)


def apply_permutation(tensor: Tensor, permutation: Tensor, dim: int = 1) -> Tensor:
    """The tensor's parts along `dim` in another order."""
    return tensor.index_select(dim, permutation)


def _reverse_repeat_tuple(t: tuple, n: int) -> tuple:
    """(1, 2) and 2 -> (2, 2, 1, 1), as `pad` takes them."""
    return tuple(x for x in reversed(t) for _ in range(n))


def _addindent(s_: str, numSpaces: int) -> str:
    first, *rest = s_.split("\n")
    return "\n".join([first, *(numSpaces * " " + line for line in rest)])


# By the file of PyTorch's: what it holds beside the classes.
OF_MODULES: dict[str, dict[str, Any]] = {
    "conv": _sizes, "pooling": _sizes, "padding": _sizes, "upsampling": _sizes, "fold": _sizes,
    "utils": {"_reverse_repeat_tuple": _reverse_repeat_tuple},
    "module": {
        "_addindent": _addindent, "_IncompatibleKeys": nn.state.IncompatibleKeys,
        "T": TypeVar("T", bound=nn.Module), "_EXTRA_STATE_KEY_SUFFIX": nn.state.EXTRA,
    },
    "normalization": {"_shape_t": int | list[int] | tuple[int, ...]},
    "rnn": {"apply_permutation": apply_permutation},
    "transformer": {
        "_get_clones": _get_clones, "_get_activation_fn": nn.attention._activation,
        "_generate_square_subsequent_mask": _generate_square_subsequent_mask,
    },
}  # fmt: skip


# ---- the start of weights, heads of attention --------------------------------------------------------------
def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ArgumentValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    return _calculate_fan_in_and_fan_out(tensor)[mode.lower() == "fan_out"]


_calculate_fan_in_and_fan_out = functools.partial(init._fans, "_calculate_fan_in_and_fan_out")
OF_INIT = {
    "_calculate_fan_in_and_fan_out": _calculate_fan_in_and_fan_out,
    "_calculate_correct_fan": _calculate_correct_fan, "_no_grad_uniform_": init.uniform_,
    "_no_grad_normal_": init.normal_, "_no_grad_trunc_normal_": init.trunc_normal_,
    "_no_grad_fill_": init.constant_, "_no_grad_zero_": init.zeros_,
}  # fmt: skip


def _in_projection_packed(
    q: Tensor, k: Tensor, v: Tensor, w: Tensor, b: Tensor | None = None
) -> list[Tensor]:
    biases = [None] * 3 if b is None else b.chunk(3)
    return [functional.linear(x, *own) for x, own in zip((q, k, v), zip(w.chunk(3), biases), strict=True)]


def _in_projection(
    q: Tensor, k: Tensor, v: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, b_q: Tensor | None = None,
    b_k: Tensor | None = None, b_v: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    return functional.linear(q, w_q, b_q), functional.linear(k, w_k, b_k), functional.linear(v, w_v, b_v)


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    return 0 if ndim in (0, 1, 3) else 1


def _none_or_dtype(input: Tensor | None) -> DType | None:
    if input is not None and not isinstance(input, Tensor):
        raise ArgumentError("input to _none_or_dtype() must be None or torch.Tensor")
    return None if input is None else input.dtype


def _canonical_mask(
    mask: Tensor | None, mask_name: str, other_type: DType | None, other_name: str, target_type: DType,
    check_other: bool = True,
) -> Tensor | None:  # fmt: skip
    """A mask as numbers to be added: of bools, what is masked is -inf.  Raises DTypeError for integers."""
    if mask is None:
        return None
    if not mask.is_floating_point() and mask.dtype is not bool_:
        raise DTypeError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type not in (None, mask.dtype):
        warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. "
            "Use same type for both instead.",
            stacklevel=2,
        )
    return (
        mask if mask.is_floating_point() else ops.zeros_like(mask, dtype=target_type).masked_fill(mask, -inf)
    )


OF_FUNCTIONAL = {
    "_canonical_mask": _canonical_mask, "_mha_shape_check": multihead._check_ranks,
    "_none_or_dtype": _none_or_dtype,
    "_in_projection_packed": _in_projection_packed, "_in_projection": _in_projection,
    "_get_softmax_dim": _get_softmax_dim, "_Reduction": _reduction,
    "handle_torch_function": overrides.handle_torch_function,
    "has_torch_function": overrides.has_torch_function,
    "has_torch_function_unary": overrides.has_torch_function_unary,
    "has_torch_function_variadic": overrides.has_torch_function_variadic,
}  # fmt: skip


# ---- distributions -----------------------------------------------------------------------------------------
def _standard_normal(shape: Sequence[int], dtype: DType, device: Any) -> Tensor:
    return draws.randn(*shape, dtype=dtype, device=device)


def _batch_mv(bmat: Tensor, bvec: Tensor) -> Tensor:
    return (bmat @ bvec.unsqueeze(-1)).squeeze(-1)


OF_PARAMETERS = {"_standard_normal": _standard_normal, "_sum_rightmost": parameters.sum_rightmost}
OF_DISTRIBUTIONS = {
    "_standard_normal": _standard_normal, "_batch_mv": _batch_mv,
    "_batch_mahalanobis": multivariate.mahalanobis,
    "_precision_to_scale_tril": multivariate.factor_of_inverse,
}  # fmt: skip


# ---- optimizers --------------------------------------------------------------------------------------------
def _use_grad_for_differentiable(func: Callable) -> Callable:
    """A step without gradients, unless the optimizer's default `differentiable` asks for them."""

    @functools.wraps(func)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = is_grad_enabled()
        try:
            set_grad_enabled(bool(self.defaults.get("differentiable", False)))
            return func(self, *args, **kwargs)
        finally:
            set_grad_enabled(before)

    return step


def _get_value(x: Any) -> Any:
    return x.item() if isinstance(x, Tensor) else x


def _dispatch_sqrt(x: Any) -> Any:
    return x.sqrt() if isinstance(x, Tensor) else x**0.5


def _stack_if_compiling(x: Any) -> Any:
    return x


def _default_to_fused_or_foreach(
    params: list, differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """(fused, foreach): neither, as each is written with ops alike."""
    return False, False


def _view_as_real(params: list, *state_and_grads: list) -> None:
    """Put the parts of complex numbers in their place, in these lists."""
    for i, p in enumerate(params):
        if p.is_complex():
            for each in (params, *state_and_grads):
                each[i] = ops.view_as_real(each[i])


def _to_scalar(x: Any) -> Any:
    return x.squeeze() if isinstance(x, Tensor) and x.dim() != 0 else x


def _disable_dynamo_if_unsupported(single_tensor_fn: Callable | None = None) -> Callable:
    return lambda func: func


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    return []


def _get_scalar_dtype(is_fused: bool | None = None) -> DType:
    return float64 if default_dtype() is float64 and not is_fused else float32


_HELPERS = (
    _use_grad_for_differentiable, _get_value, _dispatch_sqrt, _stack_if_compiling,
    _default_to_fused_or_foreach, _view_as_real, _to_scalar, _disable_dynamo_if_unsupported,
    _get_capturable_supported_devices, _get_scalar_dtype,
)  # fmt: skip
_DOCS = ("capturable", "maximize", "foreach", "differentiable", "fused", "params")  # texts that it pastes
OF_OPTIMIZERS = {
    **{helper.__name__: helper for helper in _HELPERS}, **{f"_{name}_doc": "" for name in _DOCS},
    "ParamsT": Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]],
    "params_t": Iterable[Tensor] | Iterable[dict[str, Any]], "DeviceDict": dict[Device | None, Tensor],
    "required": type("_RequiredParameter", (), {"__repr__": lambda self: "<required parameter>"})(),
}  # fmt: skip


# PyTorch has a module for each optimizer; here they stand together.
OPTIMIZERS = {
    name.lower(): _module(f"optim.{name.lower()}", __all__=[name], **{name: getattr(optim, name)})
    for name in (
        "Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
    )
}  # fmt: skip
OPTIMIZERS |= {
    "_adafactor": _module("optim._adafactor", __all__=["Adafactor"], Adafactor=optim.Adafactor),
    "_muon": _module("optim._muon", __all__=["Muon"], Muon=optim.Muon),
    "sparse_adam": _module("optim.sparse_adam", __all__=["SparseAdam"], SparseAdam=optim.SparseAdam),
}


def _group_tensors_by_device_and_dtype(
    tensorlistlist: Sequence[Sequence[Tensor | None]], with_indices: bool = False
) -> dict[tuple[Device, DType], tuple[list[list[Tensor | None]], list[int]]]:
    """Lists of tensors by the device and the dtype of those of the first; an empty list stays one.

    with_indices: also where they stood.
    """
    groups: dict[tuple[Device, DType], tuple[list[list[Tensor | None]], list[int]]] = {}
    for i, first in enumerate(tensorlistlist[0]):
        assert first is not None
        lists, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in tensorlistlist], []))
        for grouped, tensors in zip(lists, tensorlistlist, strict=True):
            if tensors:
                grouped.append(tensors[i])
        if with_indices:
            indices.append(i)
    return groups


_foreach_utils = _module(
    "utils._foreach_utils",
    _group_tensors_by_device_and_dtype=_group_tensors_by_device_and_dtype,
    _get_foreach_kernels_supported_devices=lambda: ["cuda"],
    _get_fused_kernels_supported_devices=lambda: ["cpu", "cuda"],
    _device_has_foreach_support=lambda device: device.type in ("cpu", "cuda"),
    _has_foreach_support=lambda tensors, device: (
        device.type in ("cpu", "cuda") and all(type(t) in (Tensor, type(None)) for t in tensors)
    ),
)


# ---- data, memory, the build -------------------------------------------------------------------------------
_collate = _module(
    "utils.data._utils.collate", default_collate=collating.default_collate, collate=collating.collate,
    default_collate_fn_map=collating.default_collate_fn_map, collate_tensor_fn=collating._alike,
    np_str_obj_array_pattern=re.compile("[SaUO]"),  # kinds of NumPy's arrays of texts and objects
    default_convert=collating.default_convert,
)  # fmt: skip
_worker = _module(
    "utils.data._utils.worker", WorkerInfo=fetching.WorkerInfo, get_worker_info=fetching.get_worker_info,
    _generate_state=lambda base_seed, worker_id: (
        np.random.SeedSequence([worker_id, base_seed % 2**32, base_seed >> 32]).generate_state(4).tolist()
    ),
)  # fmt: skip
_data_utils = _module(
    "utils.data._utils", collate=_collate, worker=_worker, MP_STATUS_CHECK_INTERVAL=5.0, __path__=[]
)
_ITERATORS = {
    "_BaseDataLoaderIter": data.loader.Batches,
    **{
        name: kind(name, "utils.data.dataloader", "all loaders iterate by one class")
        for name in ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")
    },
}


def unserializable_hook(f: Callable) -> Callable:
    """Mark a hook that is of this process alone, so that a tensor with it is saved without a word."""
    f.__torch_unserializable__ = True  # type: ignore[attr-defined]
    return f


hooks = _module("utils.hooks", RemovableHandle=RemovableHandle, unserializable_hook=unserializable_hook)


def _load_from_bytes(b: bytes) -> Any:
    """The storage that a plain pickle of PyTorch's holds: a file of `save` in the earlier form."""
    return load(io.BytesIO(b), weights_only=False)


def _dtype_to_storage_type_map() -> dict[DType, str]:
    return {dtype: f"{dtype.scalar_type}Storage" for dtype in (*ALL, *COMPLEX)}


storage = _module(
    "storage", _load_from_bytes=_load_from_bytes,
    TypedStorage=memory_view.TypedStorage, UntypedStorage=memory_view.UntypedStorage,
    _StorageBase=memory_view.TypedStorage, _dtype_to_storage_type_map=_dtype_to_storage_type_map,
    _storage_type_to_dtype_map=lambda: {name: t for t, name in _dtype_to_storage_type_map().items()},
)  # fmt: skip
contextlib = _module("utils._contextlib", _DecoratorContextManager=modes._Mode)


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    return ops.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    found, start = [], 0
    for t in tensors:
        found.append(flat.narrow(0, start, t.numel()).view_as(t))
        start += t.numel()
    return tuple(found)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    index = device if isinstance(device, int) else Device(device).index
    return -1 if index is None else index


def _rebuilder(name: str, maker: str) -> Callable:
    """What a plain pickle of PyTorch's calls for a tensor, which lies in storages that it has read."""

    def rebuild(*args: Any) -> Any:
        return getattr(Makers(sys.maxsize), maker)(*args)

    rebuild.__module__, rebuild.__name__, rebuild.__qualname__ = "lamina._utils", name, name
    return rebuild


def _rebuild_from_type_v2(func: Callable, new_type: type, args: tuple, state: Any) -> Any:
    """A tensor of a class, or one that something hangs on, of a plain pickle."""
    made = func(*args)
    if type(made) is not new_type:
        made = made.as_subclass(new_type)
    if (restore := getattr(new_type, "__setstate__", None)) is not None:
        restore(made, state)
    else:
        plain, slots = state if isinstance(state, tuple) else (state, {})
        for name, value in {**(plain or {}), **(slots or {})}.items():
            setattr(made, name, value)
    return made


class KeyErrorMessage(str):
    """The text of a KeyError, which would show it quoted."""

    __slots__ = ()

    def __repr__(self) -> str:
        return self


class ExceptionWrapper:
    """An exception on its way from another thread or process, with its traceback as a text.

    exc_info: as sys.exc_info() gives it, which is asked unless given.  where: what it is told to be from.
    """

    def __init__(self, exc_info: Any = None, where: str = "in background"):
        kind, error, trace = sys.exc_info() if exc_info is None else exc_info
        self.exc_type: Any = kind
        self.where = where
        told = import_module("traceback").format_exception(kind, error, trace)  # which few want
        self.exc_msg = "".join(told)

    def reraise(self) -> None:
        """Raise it here.  Raises RuntimeError where its class takes no text alone."""
        message: Any = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:
            message = KeyErrorMessage(message)
        try:
            error = self.exc_type(message)
        except Exception:  # whatever it takes
            raise RuntimeError(message) from None
        raise error


class classproperty:
    """A property of a class."""

    def __init__(self, func: Callable):
        self.func = func

    def __get__(self, instance: Any, owner: Any) -> Any:
        return self.func(owner)


_tensor = _module("_tensor", Tensor=Tensor, _rebuild_from_type_v2=_rebuild_from_type_v2)
_utils = _module(
    "_utils", **{name: _rebuilder(name, maker) for name, maker in REBUILDERS.items()},
    _get_available_device_type=lambda: "cuda" if cuda.is_available() else None,
    _get_device_module=lambda device_type: import_module(f"lamina.{device_type}"),
    _element_size=lambda dtype: dtype.itemsize, _flatten_dense_tensors=_flatten_dense_tensors,
    _unflatten_dense_tensors=_unflatten_dense_tensors, _get_device_index=_get_device_index,
    ExceptionWrapper=ExceptionWrapper, KeyErrorMessage=KeyErrorMessage, classproperty=classproperty,
)  # fmt: skip


class _PrintOptions:
    """How tensors print, as attributes that may be set."""

    def __getattr__(self, name: str) -> Any:
        return getattr(printing.current(), name)

    def __setattr__(self, name: str, value: Any) -> None:
        kept = {"sci_mode": printing.current().sci_mode}
        printing.set_printoptions(**{**kept, name: value})

    def __repr__(self) -> str:
        return repr(printing.current())


def _add_suffixes(text: str, suffixes: list[str], indent: int, force_newline: bool) -> str:
    return printing.noted(text, suffixes, printing.current().linewidth, force_newline, indent) + ")"


_tensor_str = _module(
    "_tensor_str", PRINT_OPTS=_PrintOptions(), set_printoptions=printing.set_printoptions,
    _tensor_str=printing.elements, _add_suffixes=_add_suffixes,
)  # fmt: skip


def show() -> str:
    """What is installed, and on what machine."""
    return import_module(f"{__package__}.info").spelled()  # which loads much that is of no other use


def _of_version(name: str) -> Any:
    """What hangs on the machine: HIP's version where AMD's GPUs are, as in PyTorch's build for these."""
    if name != "hip":
        raise AttributeError(f"module 'lamina.version' has no attribute {name!r}")
    return import_module("..runtime.cuda.vendors", __package__).hip_version()


version = _module(
    "version", __version__=VERSION, cuda=None, xpu=None, git_version="", debug=False, __getattr__=_of_version
)
config = _module(
    "__config__", show=show,
    parallel_info=lambda: f"Lamina's own threads, and NumPy's products on them: {get_num_threads()}",
)  # fmt: skip


def add() -> None:
    """Put the names into the modules of Lamina's that answer for PyTorch's."""
    for module, names in (
        (init, OF_INIT), (functional, OF_FUNCTIONAL), (optim.optimizer, OF_OPTIMIZERS),
        (data, {"_utils": _data_utils, **_ITERATORS}),
        (nn, {"common_types": common_types, "_reduction": _reduction}),
        (parameters, OF_PARAMETERS), (distributions, OF_DISTRIBUTIONS),
        (distributions.transforms, {"_InverseTransform": transform._InverseTransform}),
        (modes, {"_DecoratorContextManager": modes._Mode}),
    ):  # fmt: skip
        for name, value in names.items():
            vars(module).setdefault(name, value)
