"""Two epochs of all tensors: numbers that change whenever any tensor that was there does.

Whoever has looked at tensors (a tracer, for its guards and for what it computed of weights) remembers them:
as long as they are the same, nothing has happened to any tensor, and one comparison says so.  They advance
after the change, and never take a value twice, also where threads race: `next` of a counter is atomic.

objects: a tensor was given other memory, another type, another history or other hooks, or the default dtype
changed.  contents: memory was written, or shown to those who may write it unseen.
"""

from itertools import count

from ..ir.dtypes import on_default_change

objects = contents = 0
numbers = count(1)


def advance_objects() -> None:
    """Say that some tensor is another than it was."""
    global objects
    objects = next(numbers)


def advance_contents() -> None:
    """Say that some memory holds something else, or may from now on."""
    global contents
    contents = next(numbers)


on_default_change.append(advance_objects)
