"""Mixed precision under PyTorch's names: `autocast`, custom functions in it, and GradScaler.

For "cuda", where there is none, they warn and do nothing, as PyTorch's do without it.  The CPU and GPUs have
states of their own; pretended GPUs have the CPU's.  "cuda" has float16 for a default.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ..ir.dtypes import DType, bfloat16, float16
from ..ir.errors import ArgumentError, ArgumentValueError, GradError
from ..ir.types import placed
from ..runtime import Tensor, modes, no_grad, on_device, tensor
from ..runtime.autocasting import cast_to, changed, slot
from ..runtime.refusal import refusing_methods

DEVICES = ("cpu", "cuda")
NOTHING = (None, None)
_FAST = {"cpu": bfloat16, "cuda": float16}  # unless a block says another


def _need_device(device_type: Any) -> None:
    if not isinstance(device_type, str):
        raise ArgumentValueError(f"device_type must be a str, not {type(device_type).__name__}")
    if device_type not in DEVICES:
        raise GradError(f"autocast: {device_type!r:.60} is no device type; those are {', '.join(DEVICES)}")


def _is_here(device_type: str) -> bool:
    """Whether tensors may lie on that type of device."""
    return placed(device_type).type == "cpu" or on_device.count() > 0


def _unless_default(dtype: DType, device_type: str) -> DType | None:
    return None if dtype is _FAST[device_type] else dtype


class autocast(modes._Mode):
    """Choose a dtype for each op: a `with` block, or a decorator.

    device_type: "cpu", or "cuda", for which it warns and does nothing where there is none.
    dtype: bfloat16 (by default) or float16 for
    what loses little in it, such as products; losses stay in float32 (runtime/autocasting.py lists both).
    cache_enabled is taken and means nothing: a weight is cast at each use.  Raises ArgumentValueError,
    GradError for what is no device type.
    """

    def __init__(
        self, device_type: str, dtype: DType | None = None, enabled: bool = True,
        cache_enabled: bool | None = None,
    ):  # fmt: skip
        _need_device(device_type)
        self.device, self.fast_dtype = device_type, dtype or get_autocast_dtype(device_type)
        if not isinstance(self.fast_dtype, DType):
            raise ArgumentError(f"autocast: dtype must be a lamina dtype, not {type(dtype).__name__}")
        self._cache_enabled = True if cache_enabled is None else cache_enabled
        self._enabled = bool(enabled)
        here = _is_here(device_type)
        if self._enabled and not here:
            warnings.warn(
                f"autocast({device_type!r}) does nothing: there is no such device here", stacklevel=2
            )
            self._enabled = False
        elif self._enabled and self.fast_dtype not in (bfloat16, float16):
            warnings.warn(
                f"autocast({device_type!r}) does nothing: it knows bfloat16 and float16, not "
                f"{self.fast_dtype.name}",
                stacklevel=2,
            )
            self._enabled = False
        self._changes, self._here = {}, here

    def __enter__(self) -> autocast:
        if self._here:
            low, other = self.fast_dtype, _unless_default(self.fast_dtype, self.device)
            self._changes = changed("autocast", self.device, low if self._enabled else None)
            self._changes |= changed("autocast_dtype", self.device, other)
        super().__enter__()
        return self

    def clone(self) -> autocast:
        """A fresh one that says the same, and does not warn again."""
        made = object.__new__(autocast)
        vars(made).update({k: v for k, v in vars(self).items() if k != "_mine"})
        return made


refusing_methods([autocast])


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast knows a device type."""
    if not isinstance(device_type, str):
        raise ArgumentError(f"device_type must be a str, not {type(device_type).__name__}")
    return device_type in DEVICES


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether this thread is inside of an enabled autocast block for a device type."""
    _need_device(device_type)
    return (modes.local.autocast or NOTHING)[slot(device_type)] is not None


def get_autocast_dtype(device_type: str) -> DType:
    """The low precision of the block that this thread is in, or else what a block would have."""
    _need_device(device_type)
    return (modes.local.autocast_dtype or NOTHING)[slot(device_type)] or _FAST[device_type]


def set_autocast_enabled(device_type: str, enabled: bool) -> None:
    """Turn autocast on or off in this thread for a device type, until the block ends that did so."""
    _need_device(device_type)
    if not isinstance(enabled, bool):
        raise ArgumentError(f"set_autocast_enabled(enabled): must be a bool, not {type(enabled).__name__}")
    _outlives("set_autocast_enabled")
    modes.update(**changed("autocast", device_type, get_autocast_dtype(device_type) if enabled else None))


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Choose the low precision that autocast has in this thread for a device type."""
    _need_device(device_type)
    if dtype not in (bfloat16, float16):
        raise ArgumentError(f"set_autocast_dtype(dtype): must be bfloat16 or float16, not {dtype!r:.60}")
    _outlives("set_autocast_dtype")
    modes.update(**changed("autocast_dtype", device_type, _unless_default(dtype, device_type)))
    if is_autocast_enabled(device_type):
        modes.update(**changed("autocast", device_type, dtype))


def _older(name: str, function: Callable, device: str) -> Callable:
    """An older spelling, which has the device's type in its name."""

    def older(*given: Any) -> Any:
        return function(device, *given)

    older.__name__ = older.__qualname__ = name
    older.__doc__ = f"`{function.__name__}({device!r}, …)`, as it was spelled once."
    return older


is_autocast_cpu_enabled = _older("is_autocast_cpu_enabled", is_autocast_enabled, "cpu")
get_autocast_cpu_dtype = _older("get_autocast_cpu_dtype", get_autocast_dtype, "cpu")
get_autocast_gpu_dtype = _older("get_autocast_gpu_dtype", get_autocast_dtype, "cuda")
set_autocast_cpu_enabled = _older("set_autocast_cpu_enabled", set_autocast_enabled, "cpu")
set_autocast_cpu_dtype = _older("set_autocast_cpu_dtype", set_autocast_dtype, "cpu")
set_autocast_gpu_dtype = _older("set_autocast_gpu_dtype", set_autocast_dtype, "cuda")


def _outlives(call: str) -> None:
    """Tell a recorder of a change that outlives the function that made it."""
    if modes.CHANGED:
        modes.tell("refuse", f"{call}() changes what its caller does next")


def custom_fwd(
    fwd: Callable | None = None, *, device_type: str = "cuda", cast_inputs: DType | None = None
) -> Callable:
    """Decorate the `forward` of a custom function that is used inside of autocast.

    cast_inputs: the dtype that its floating arguments get there, and then it runs without autocast.
    """
    _need_device(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype, inside = get_autocast_dtype(device_type), is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = inside and cast_inputs is None
        if cast_inputs is None or not inside:
            return fwd(ctx, *args, **kwargs)
        there = bool(slot(device_type))
        args = cast_to(args, cast_inputs, there)
        kwargs = {k: cast_to(v, cast_inputs, there) for k, v in kwargs.items()}
        with autocast(device_type, enabled=False):
            return fwd(ctx, *args, **kwargs)

    return forward


def custom_bwd(bwd: Callable | None = None, *, device_type: str = "cuda") -> Callable:
    """Decorate the `backward` of a custom function: it runs under autocast where its forward did."""
    _need_device(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, dtype=ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)

    return backward


class GradScaler:
    """Scales the loss so that gradients in float16 don't vanish, and skips steps in which they overflow.

    The scale grows by `growth_factor` after `growth_interval` steps without an infinite or NaN gradient, and
    shrinks by `backoff_factor` after one with.  For "cuda" it warns and disables itself.
    Raises ArgumentValueError for factors that don't grow or shrink.
    """

    def __init__(
        self, device: str = "cuda", init_scale: float = 2.0**16, growth_factor: float = 2.0,
        backoff_factor: float = 0.5, growth_interval: int = 2000, enabled: bool = True,
    ):  # fmt: skip
        self._device, self._enabled = device, enabled
        if enabled and not (device in DEVICES and _is_here(device)):
            warnings.warn("GradScaler does nothing: there is no CUDA device here", stacklevel=2)
            self._enabled = False
        if self._enabled and not (growth_factor > 1.0 and backoff_factor < 1.0):
            raise ArgumentValueError(
                "GradScaler: growth_factor must be above 1 and backoff_factor below it",
                f"they are {growth_factor} and {backoff_factor}",
            )
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval, self._growth_tracker = growth_interval, 0
        self._scale = tensor(float(init_scale))
        self._found: dict[
            int, bool
        ] = {}  # by optimizer, since the last update: whether a gradient overflowed
        self._stepped: set[int] = set()

    def is_enabled(self) -> bool:
        """Whether it scales at all."""
        return self._enabled

    def scale(self, outputs: Any) -> Any:
        """A tensor, or each of those in lists and tuples, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._scale
        if isinstance(outputs, (list, tuple)):
            return type(outputs)([self.scale(x) for x in outputs])
        raise ArgumentValueError(f"GradScaler.scale: outputs must be tensors, not {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of an optimizer's parameters by the scale, once between updates.

        Raises GradError the second time, ArgumentValueError for gradients in float16.
        """
        if not self._enabled:
            return
        if id(optimizer) in self._stepped:
            raise GradError("GradScaler: unscale_() is called after step()")
        if id(optimizer) in self._found:
            raise GradError("GradScaler: unscale_() was called on this optimizer since the last update()")
        overflowed: bool = False
        grads: list[Tensor] = []
        infinite: dict[Any, Any] = {}  # elements of the gradients on each GPU, which is waited for once
        for group in optimizer.param_groups:
            grads += [p.grad for p in group["params"] if p.grad is not None]
        if any(g.dtype is float16 for g in grads):
            raise ArgumentValueError(
                "GradScaler: gradients in float16 can't be unscaled", "keep the parameters in float32"
            )
        with no_grad():
            inverse = 1.0 / self._scale.double()
            for g in grads:
                if g.is_cuda:
                    infinite[g.device] = (~g.isfinite()).sum() + infinite.get(g.device, 0)
                else:
                    overflowed = overflowed or not bool(g.isfinite().all())
            for g in grads:
                g.mul_(inverse.to(g.dtype))
            overflowed = overflowed or any([bool(count) for count in infinite.values()])
        if grads:
            self._found[id(optimizer)] = overflowed

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Take the optimizer's step, with gradients unscaled, unless one is infinite or NaN.

        Raises GradError for a closure, for a second step before `update`, and where there are no gradients.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise GradError("GradScaler: a step with a closure is not supported")
        if id(optimizer) in self._stepped:
            raise GradError("GradScaler: step() was called since the last update()")
        if id(optimizer) not in self._found:
            self.unscale_(optimizer)
        if id(optimizer) not in self._found:
            raise GradError("GradScaler: no parameter of this optimizer has a gradient")
        self._stepped.add(id(optimizer))
        return None if self._found[id(optimizer)] else optimizer.step()

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Set the scale of the next step, by what this one's gradients were, or to `new_scale`."""
        if not self._enabled:
            return
        with no_grad():
            if new_scale is not None:
                self._scale.fill_(float(new_scale))
            elif not self._found:
                raise GradError("GradScaler: update() comes after step() or unscale_()")
            elif any(self._found.values()):
                self._scale.mul_(self._backoff_factor)
                self._growth_tracker = 0
            else:
                self._growth_tracker += 1
                if self._growth_tracker == self._growth_interval:
                    if np.isfinite(np.float32(self._scale.item()) * np.float32(self._growth_factor)):
                        self._scale.mul_(self._growth_factor)
                    self._growth_tracker = 0
        self._found.clear()
        self._stepped.clear()

    def get_scale(self) -> float:
        """The scale, 1 where it is disabled."""
        return self._scale.item() if self._enabled else 1.0

    def get_growth_factor(self) -> float:
        """What the scale grows by."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Say what the scale grows by."""
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """What the scale shrinks by."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Say what the scale shrinks by."""
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """After how many steps the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Say after how many steps the scale grows."""
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """The scale and what changes it; nothing where it is disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor, "growth_interval": self._growth_interval,
            "_growth_tracker": self._growth_tracker,
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` returned. Raises GradError for the state of a disabled one."""
        if not self._enabled:
            return
        if not state_dict:
            raise GradError("GradScaler: the state is empty, as that of a disabled one")
        self._scale = tensor(float(state_dict["scale"]))
        self._growth_factor, self._backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._growth_interval = state_dict["growth_interval"]
        self._growth_tracker = int(state_dict["_growth_tracker"])


def _of_device(device: str) -> ModuleType:
    """PyTorch's older spelling: `torch.cuda.amp.autocast(enabled=True)`."""

    def block(enabled: bool = True, dtype: DType | None = None, cache_enabled: bool = True) -> autocast:
        """`amp.autocast` of this device."""
        return autocast(device, dtype, enabled, cache_enabled)

    block.__name__ = "autocast"
    made = ModuleType(f"{__package__.rpartition('.')[0]}.{device}.amp", f"Mixed precision on {device}.")
    vars(made).update(autocast=block, GradScaler=functools.partial(GradScaler, device))
    return made


of_cpu, of_cuda = _of_device("cpu"), _of_device("cuda")
vars(of_cuda).update(custom_fwd=custom_fwd, custom_bwd=custom_bwd)
