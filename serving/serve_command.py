"""The command `serve`."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec

from ..ir.errors import LaminaError

NEEDED = ("uvicorn", "starlette", "prometheus_client")


def serve(argv: list[str]) -> int:
    """Serve models over HTTP until SIGTERM or Ctrl-C.  Returns the exit status."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        print(f"lamina serve needs {', '.join(missing)}: pip install 'lamina[serve]'", file=sys.stderr)
        return 1
    from .serve_options import read  # noqa: PLC0415 - both import what may be missing
    from .supervisor import supervise  # noqa: PLC0415

    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    for loud in ("uvicorn", "asyncio"):
        logging.getLogger(loud).setLevel(logging.ERROR)
    try:
        return supervise(read(argv))
    except LaminaError as error:
        print(f"lamina serve: {error}", file=sys.stderr)
        return 1
