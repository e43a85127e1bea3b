"""Answer `torch.amp` and `torch.cuda.amp` as PyTorch does without CUDA: mixed precision turns itself off."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ..ir.errors import DeviceError
from ..runtime import Tensor


class autocast:
    """Would choose a dtype for each op.  For "cuda" it warns and does nothing.

    Raises DeviceError where it is enabled for the CPU.
    """

    def __init__(
        self,
        device_type: str = "cuda",
        dtype: Any = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        if enabled and device_type == "cpu":
            raise DeviceError(
                "autocast('cpu'): Lamina does not choose dtypes by itself",
                "cast the model: model.to(lamina.bfloat16), or pass enabled=False",
            )
        if enabled:
            warnings.warn(
                f"autocast({device_type!r}) does nothing: there is no such device here", stacklevel=2
            )

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the block; there is nothing to undo."""

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return call


class GradScaler:
    """Would scale the loss so that float16 gradients don't vanish.  Without CUDA it hands everything through.

    Enabled, it warns and disables itself.
    """

    def __init__(self, device: str = "cuda", init_scale: float = 2.0**16, enabled: bool = True, **_: Any):
        if enabled:
            warnings.warn("GradScaler does nothing: there is no CUDA device here", stacklevel=2)

    def is_enabled(self) -> bool:
        return False

    def get_scale(self) -> float:
        return 1.0

    def scale(self, outputs: Tensor) -> Tensor:
        """The loss, as it is."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Leave the gradients as they are."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Take the optimizer's step."""
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: float | None = None) -> None:
        """Leave the scale as it is."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing, as a disabled scaler has no state."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take nothing."""
