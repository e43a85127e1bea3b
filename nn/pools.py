"""Max pooling with `return_indices`, which decides how many results there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..runtime import Tensor, ops

_AXES = {1: "L", 2: "H and W", 3: "D, H and W"}


def _named(pool: Callable, name: str, doc: str) -> Callable:
    pool.__name__ = pool.__qualname__ = name
    pool.__doc__ = doc
    return pool


def _max_pool(n: int) -> Callable:
    """`max_pool` over the last `n` dimensions."""
    name = f"max_pool{n}d"
    plain, indexed = ops.FUNCTIONS[name], ops.FUNCTIONS[f"{name}_with_indices"]

    def pool(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        run = indexed if return_indices else plain
        return run(input, kernel_size, stride, padding, dilation, ceil_mode)

    doc = f"The greatest of each window over {_AXES[n]}, and with `return_indices` its flattened place."
    return _named(pool, name, doc)


def _adaptive_max_pool(n: int) -> Callable:
    """`adaptive_max_pool` over the last `n` dimensions."""
    name = f"adaptive_max_pool{n}d"
    plain, indexed = ops.FUNCTIONS[name], ops.FUNCTIONS[f"{name}_with_indices"]

    def pool(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return (indexed if return_indices else plain)(input, output_size)

    doc = f"The greatest of each of `output_size` parts of {_AXES[n]}, and with `return_indices` its place."
    return _named(pool, name, doc)


max_pool1d, max_pool2d, max_pool3d = map(_max_pool, (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = map(_adaptive_max_pool, (1, 2, 3))
