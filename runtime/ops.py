"""Every public function that the op records and composites give: `ops.relu(x)`, `ops.einsum(…)`.

Nothing is spelled here: names, aliases and docstrings are the records'.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..ir import ops as _records  # noqa: F401 - importing them enters them into the registry
from ..ir.dtypes import uint8
from ..ir.errors import TransformError
from ..ir.op import COMPOSITES, REGISTRY, Op, on_entry
from ..ir.warned import warn
from . import modes
from .autocasting import autocasting
from .calls import eager
from .compound import NoArray
from .factories import factory
from .on_device import share_memory
from .refusal import refusing
from .resolved import resolved
from .tensor import Tensor

FUNCTIONS: dict[str, Callable] = {}


def publish(function: Callable, *names: str) -> None:
    """Offer a function under these names, by the first of which it is pickled."""
    function.__module__ = __name__
    function.__qualname__ = names[0]
    FUNCTIONS.update(dict.fromkeys(names, function))
    globals().update(dict.fromkeys(names, function))  # ops.relu without the detour over __getattr__


def _offer(op: Op) -> None:
    makes = op.traits.creation or "device" in op.attrs  # a place to make something at: zeros_like and its kin
    function = factory(op) if makes else eager(op)
    publish(function, op.name, *op.aliases)


def apart(found: Any, *operands: Any) -> Any:
    """A result, copied where it lies in the memory of an operand."""
    if modes.CHANGED and modes.local.values is not None and not isinstance(found, Tensor):
        return modes.local.values.apart(found, operands)
    if isinstance(found, Tensor):
        for x in operands:
            if x is found or isinstance(x, Tensor) and _meet(x, found):
                return FUNCTIONS["clone"](found)
    return found


def _meet(x: Tensor, y: Tensor) -> bool:
    try:
        return share_memory(x._data, y._data)
    except (NoArray, TransformError, TypeError):  # one has no array, several, or none of NumPy's
        return False


def _fresh(function: Callable) -> Callable:
    """The function, whose results are new memory."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return apart(function(*args, **kwargs), *args, *kwargs.values())

    return call


for _op in REGISTRY.values():
    _offer(_op)
on_entry.append(_offer)
for _name, _composite in COMPOSITES.items():
    if _composite.public:
        _function = _fresh(_composite.function) if _composite.fresh else _composite.function
        _function = autocasting(_function, _name)
        if _composite.by_type:
            _function = resolved(_function, _composite.by_type == "all")
        publish(refusing(_function, _name, True), _name, *_composite.aliases)

_choose = FUNCTIONS["where"]


@functools.wraps(_choose)
def _where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Or, of a condition alone, the places where it is true: a tensor for each dimension."""
    if input is None and other is None:
        return FUNCTIONS["nonzero"](condition, as_tuple=True)
    if isinstance(condition, Tensor) and condition.dtype is uint8:
        warn(
            "where received a uint8 condition tensor, which is deprecated; make it bool",
            UserWarning,
            stacklevel=3,
        )
        condition = condition != 0
    return _choose(condition, input, other)


publish(refusing(_where, "where", True), "where")
publish(FUNCTIONS["mm"], "mm", "spmm", "dsmm")  # as products of sparse matrices were once called

# Functions of operators that only the machinery uses, and of what is a method alone in PyTorch.
_WITHIN = frozenset((
    "all_gather", "all_reduce", "all_to_all", "all_to_all_parts", "attention", "attention_backward",
    "avg_pool_grad", "band_scan", "basic_index", "batch_norm_eval", "batch_norm_train",
    "binary_cross_entropy_elements",
    "broadcast", "cast", "cholesky_parts", "col2im", "constant_pad", "contiguous", "conv_input_grad",
    "conv_weight_grad",
    "copy", "ctc_paths", "dequantize_affine", "expand", "expand_as", "getitem", "gru_gates", "gru_layer",
    "gru_layer_backward", "im2col", "index", "int_conv1d", "int_conv2d", "int_matmul",
    "ldl_parts", "ldl_solved", "linear_recurrence", "lstm_gates", "lstm_layer", "lstm_layer_backward",
    "max_dim", "max_pool_grad", "median_all", "median_dim", "min_dim", "nanmedian_all", "new_empty",
    "new_full", "new_ones", "new_zeros", "pack_int4", "pairs_to_complex", "permute_ranks", "pick_at",
    "pivoted_order", "pseudo_inverse", "quantize_affine", "quantized_conv1d", "quantized_conv2d",
    "quantized_linear", "reduce", "reduce_scatter", "repeat", "reshape_as", "rnn_layer",
    "rnn_layer_backward", "setitem_", "slice", "softmax_cross_entropy", "softmax_cross_entropy_grad",
    "solve_matrix", "solve_triangle", "spread_at", "trigamma", "trunc_divide", "ungather", "unindex",
    "unique_parts", "unpack_int4", "unview", "view", "view_as", "view_scatter",
))  # fmt: skip


# Names that PyTorch begins with an underscore, and libraries of distributions use.
_AS_PYTORCH = frozenset((
    "_assert_async", "_dirichlet_grad", "_int_mm", "_sample_dirichlet", "_standard_gamma",
    "_standard_gamma_grad",
))  # fmt: skip


def is_offered(name: str) -> bool:
    """Whether a function is a name of the package itself: no operator of the machinery's, nor a room's."""
    if name in _AS_PYTORCH:
        return True
    if name.startswith(("_", "linalg_", "random_", "special_", "fft_")) or name in _WITHIN:
        return False
    return name not in REGISTRY or not REGISTRY[name].traits.mutates  # an optimizer's update


# What scripts reach for that is not here, and what does instead.
_ELSEWHERE = {
    **dict.fromkeys(("sparse_bsr_tensor", "sparse_bsc_tensor"), "blocks are not built: sparse_csr_tensor is"),
}


def __getattr__(name: str) -> Callable:
    """A function that the package offers.  Raises AttributeError."""
    if name in FUNCTIONS and is_offered(name):
        return FUNCTIONS[name]
    if name in _ELSEWHERE:
        raise AttributeError(f"Lamina has no {name}\n  {_ELSEWHERE[name]}", name=name)
    raise AttributeError(f"module 'lamina' has no {name!r}")
