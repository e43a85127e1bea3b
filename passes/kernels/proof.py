"""No code is made of a kernel that may leave its buffers.

What a pass made is proven here, as it stands after the last of them: every index that is affine or computed
from coordinates stays inside by interval arithmetic, or is guarded; one from data is guarded too, or checked
before the kernel runs (`index_check.py`).  What the generators make of a kernel they prove themselves, access
by access, as they write it (`llvm/ranges.py`).
"""

from __future__ import annotations

from functools import lru_cache

from ...ir.errors import KernelError
from ...ir.kernel.form import Kernel
from ...ir.kernel.verify import verify
from ...ir.memo import MEMO


@lru_cache(MEMO)
def prove(kernel: Kernel) -> Kernel:
    """The kernel, if it is sound.  Raises KernelError with its text where that can't be shown."""
    try:
        return verify(kernel)
    except KernelError as error:
        raise KernelError(
            f"no code is made of an unsound kernel: {error.rule}", *error.details, str(kernel)
        ) from error
