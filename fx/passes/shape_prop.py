"""Running a graph on example inputs, for the shapes and dtypes of what its steps return."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...facade.names import channels_last, channels_last_3d, contiguous_format
from ...runtime.layouts import strided
from ...runtime.tensor import Tensor
from ..interpreter import Interpreter
from ..node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its values."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool = False
    qparams: Any = {}


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    kept = None
    if include_contiguity and result.layout is strided:
        for held, dims in ((contiguous_format, None), (channels_last, 4), (channels_last_3d, 5)):
            if dims in (None, result.dim()) and result.is_contiguous(memory_format=held):
                kept = held
                break
    stride = result.stride() if result.layout is strided else ()
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, stride, kept)


class ShapeProp(Interpreter):
    """Notes in `node.meta` what each step returns: "tensor_meta" (TensorMetadata) and "type"."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        found = False

        def noted(x: Any) -> Any:
            nonlocal found
            if isinstance(x, Tensor):
                found = True
                return _extract_tensor_metadata(x)
            return x

        about = map_aggregate(result, noted)
        if found:
            n.meta["tensor_meta"] = about
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on these inputs; returns what it returns."""
        return super().run(*args)
