"""Locks that a fork cannot leave taken."""

import os
import threading


def fork_safe_lock() -> threading.Lock:
    """Make a lock for a module, which is taken for the length of each fork.

    Only the forking thread goes on in the child: a lock that another one held would stay taken there for
    ever, and what it guards could be half changed. Worker processes of a loader are forked, so this matters.
    """
    made = threading.Lock()
    os.register_at_fork(before=made.acquire, after_in_parent=made.release, after_in_child=made.release)
    return made
