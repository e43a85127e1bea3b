"""`lamina._C`: what programs reach for in PyTorch's extension module."""

from ..runtime.overriding import DisableTorchFunction, DisableTorchFunctionSubclass
from ..runtime.subclassing import disabled_torch_function as _disabled_torch_function_impl

__all__ = ["DisableTorchFunction", "DisableTorchFunctionSubclass", "_disabled_torch_function_impl"]
