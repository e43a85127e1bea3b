"""What programs tell PyTorch about the process, and ask again, that changes nothing here.

Results are the same in each run, one op runs at a time; products of float32 are rounded more on a GPU
alone.  Tracing interprets this file as a user's: what is told is an effect, what is asked is guarded.
"""

from __future__ import annotations

from ..ir.errors import ArgumentError, ArgumentValueError
from ..ir.op import warns_always
from ..runtime import asked_for

_deterministic = _warn_only = _warn_always = False
_autocast_cache, _interop, _precision = True, 1, "highest"


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for results that are the same in each run, which those of Lamina always are."""
    global _deterministic, _warn_only
    for name, flag in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(flag, bool):
            raise ArgumentError(
                f"use_deterministic_algorithms(): argument '{name}' must be bool, not {type(flag).__name__}"
            )
    _deterministic, _warn_only = mode, warn_only


def are_deterministic_algorithms_enabled() -> bool:
    """What `use_deterministic_algorithms` was told last."""
    return _deterministic


asked_for.DETERMINISM.append(are_deterministic_algorithms_enabled)  # what is tuned may round otherwise


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """The `warn_only` that `use_deterministic_algorithms` was told last."""
    return _warn_only


def set_float32_matmul_precision(precision: str) -> None:
    """Let factors of float32 products be rounded to TF32 ("high", "medium") in what is traced for a GPU.

    Elsewhere, and by "highest", they are not.  Raises ArgumentValueError for another word.
    """
    global _precision
    if precision not in asked_for.WORDS:
        words = ", ".join(asked_for.WORDS)
        raise ArgumentValueError(f"set_float32_matmul_precision(precision): {precision!r} is none of {words}")
    _precision = precision


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` was told last."""
    return _precision


asked_for.PRODUCTS.append(get_float32_matmul_precision)


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Have autocast keep weights that it cast, which it never does: it casts them at each use."""
    global _autocast_cache
    _autocast_cache = bool(enabled)


def is_autocast_cache_enabled() -> bool:
    """What `set_autocast_cache_enabled` was told last."""
    return _autocast_cache


def clear_autocast_cache() -> None:
    """Forget weights that autocast has cast: it keeps none."""


def set_warn_always(b: bool) -> None:
    """Have each warning shown each time, which here Python's own filters decide."""
    global _warn_always
    _warn_always = bool(b)


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` was told last."""
    return _warn_always


warns_always.append(is_warn_always_enabled)


def set_num_interop_threads(number: int) -> None:
    """Choose how many ops run at a time, which here is one.  Raises ArgumentValueError."""
    global _interop
    if not isinstance(number, int) or number < 1:
        raise ArgumentValueError(
            f"set_num_interop_threads(number): a positive number is needed, not {number!r}"
        )
    _interop = number


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was told last."""
    return _interop


def set_flush_denormal(mode: bool) -> bool:
    """Have denormal numbers computed as 0, which Lamina never does: returns False, as it has no effect."""
    return False


_DEBUG_MODES = ("default", "warn", "error")


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """As `use_deterministic_algorithms`: 0 or "default" is off, 1 or "warn" and 2 or "error" are on."""
    known = [*_DEBUG_MODES, *range(len(_DEBUG_MODES))]
    if debug_mode not in known:
        raise ArgumentValueError(
            f"set_deterministic_debug_mode(debug_mode): {debug_mode!r} is none of {known}"
        )
    use_deterministic_algorithms(debug_mode not in ("default", 0), warn_only=debug_mode in ("warn", 1))


def get_deterministic_debug_mode() -> int:
    """0 where deterministic algorithms are not asked for, 1 where with a warning, else 2."""
    if not are_deterministic_algorithms_enabled():
        return 0
    return 1 if is_deterministic_algorithms_warn_only_enabled() else 2


__all__ = [
    "are_deterministic_algorithms_enabled",
    "clear_autocast_cache",
    "get_deterministic_debug_mode",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "is_autocast_cache_enabled",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_warn_always_enabled",
    "set_autocast_cache_enabled",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_warn_always",
    "use_deterministic_algorithms",
]  # fmt: skip
