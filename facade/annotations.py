"""Answer `torch.jit.annotations`: what programs import from there to write types with."""

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035 - by these names

__all__ = ["Any", "Dict", "List", "Optional", "Tuple", "Union"]
