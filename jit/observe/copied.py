"""The second front-end: it needs the source of what it runs, and no knowledge of bytecode."""

from __future__ import annotations

from .copying import Copying
from .front import Front


class Copied(Copying, Front):
    """Runs instrumented copies of functions' syntax trees."""
