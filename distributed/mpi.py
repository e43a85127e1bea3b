"""The MPI of this process.  The one module that imports mpi4py, which joins the job."""

import mpi4py

mpi4py.rc.finalize = False  # `World.leave` does, when all others are through
from mpi4py import MPI  # noqa: E402

from .without_python import native  # noqa: E402

NATIVE = native(MPI.__file__)


def library() -> str:
    """Which MPI this is: its first line."""
    return MPI.Get_library_version().splitlines()[0].strip("\0 ")
