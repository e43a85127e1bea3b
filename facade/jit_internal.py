"""Answer `torch._jit_internal`: what older libraries tell the compiler of scripts, which changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Optional, Union

Dict, List, Tuple = dict, list, tuple
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = list
BroadcastingList4 = BroadcastingList5 = BroadcastingList6 = list


def _copy_to_script_wrapper(fn: Callable) -> Callable:
    """The function: a decorator that changes no program that runs."""
    return fn


_overload = _overload_method = _copy_to_script_wrapper

__all__ = [
    "BroadcastingList1", "BroadcastingList2", "BroadcastingList3", "BroadcastingList4", "BroadcastingList5",
    "BroadcastingList6", "Dict", "List", "Optional", "Tuple", "Union",
]  # fmt: skip
