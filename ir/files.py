"""Opens files that others name, without waiting for what is none."""

from __future__ import annotations

import os
import stat
from typing import IO


class NotRegularError(OSError):
    """A pipe, a socket or a device where a file should be."""


def open_regular(path: str | os.PathLike) -> IO[bytes]:
    """The regular file at a path, open for reading.

    A pipe would keep whoever opens it waiting for its other end, and a device may never end.  Raises
    NotRegularError for these, IsADirectoryError and other OSErrors as `open` does.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        os.close(handle)
        raise NotRegularError(f"{os.fspath(path)!r} is no regular file")
    return os.fdopen(handle, "rb")
