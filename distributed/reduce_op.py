"""How ranks combine their tensors, under PyTorch's names."""

from __future__ import annotations

import enum
from typing import Any

from ..ir.errors import ArgumentValueError


class ReduceOp(enum.Enum):
    """How the elements of all ranks become one: `dist.all_reduce(x, op=dist.ReduceOp.MAX)`."""

    SUM = "sum"
    AVG = "avg"
    PRODUCT = "product"
    MIN = "min"
    MAX = "max"
    BAND = "band"
    BOR = "bor"
    BXOR = "bxor"
    PREMUL_SUM = "premul_sum"

    @classmethod
    def of(cls, op: Any, name: str) -> ReduceOp:
        """The member that a caller means: itself, or its name.  Raises ArgumentValueError."""
        if isinstance(op, cls):
            found = op
        elif isinstance(op, str) and op.upper() in cls.__members__:
            found = cls[op.upper()]
        elif isinstance(op, str) and op.lower() in ("prod", "mean"):
            found = {"prod": cls.PRODUCT, "mean": cls.AVG}[op.lower()]
        else:
            raise ArgumentValueError(f"{name}(op): one of {', '.join(cls.__members__)}, not {op!r}")
        if found is cls.PREMUL_SUM:
            raise ArgumentValueError(
                f"{name}(op): PREMUL_SUM is NCCL's alone", "scale the tensor, and use SUM"
            )
        return found


ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined] # PyTorch's inner name of the same
