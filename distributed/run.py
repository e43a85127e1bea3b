"""What programs import to do what torchrun does: `run.main(["--nproc-per-node", "2", "train.py"])`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from .launching.launch import launch


def main(args: Sequence[str] | None = None) -> None:
    """Run a program as several processes, and exit with its status.  args: the command's, unless given."""
    sys.exit(launch(list(sys.argv[1:] if args is None else args)))


if __name__ == "__main__":
    main()
