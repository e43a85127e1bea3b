"""The second front-end: it needs the source of what it runs, and no knowledge of bytecode; and the choice."""

from __future__ import annotations

import sys

from .copying import Copying
from .decode import TABLES
from .front import Front, Interpreter


class Copied(Copying, Front):  # type: ignore[misc]  # whose call() goes before
    """Runs instrumented copies of functions' syntax trees."""


def front_end() -> type[Front]:
    """The front-end for this Python: bytecode where its instructions are known, else source."""
    return Interpreter if sys.version_info[:2] in TABLES else Copied
