"""Answer `torch.__future__`: how `Module.to` puts new tensors into a module's parameters.

Parameters stay the same objects; `overwrite` alone makes new ones.  Swapping puts what another tensor is into
them, class and all, and has `load_state_dict` ask `Tensor.module_load`.
"""

from __future__ import annotations

from ..nn.state import conversion


def set_swap_module_params_on_conversion(value: bool) -> None:
    """Ask for swapped tensors."""
    conversion.swap = bool(value)


def get_swap_module_params_on_conversion() -> bool:
    """Whether that is asked for."""
    return conversion.swap


def set_overwrite_module_params_on_conversion(value: bool) -> None:
    """Ask for new parameters rather than new contents."""
    conversion.overwrite = bool(value)


def get_overwrite_module_params_on_conversion() -> bool:
    """Whether that is asked for."""
    return conversion.overwrite
