"""The epoch of all modules: one number that changes whenever an attribute of any module does.

Whoever has looked at modules (a tracer, for its guards) remembers `epoch.value`; as long as it is the same,
every attribute of every module is what it was, and one comparison says so.  It advances after the write, and
never takes a value twice, also where threads race: `next` of a counter is atomic, and a late store of an
older number still differs from what was remembered.

It sees `module.x = y`, `del module.x`, writes to `module._parameters` and its kin, hooks coming and going,
and (by being careful) each use of `vars(module)`.  It does not see `object.__setattr__(module, ...)`, nor
what changes inside an attribute, such as an item of a plain list.
"""

from itertools import count

value = 0
_numbers = count(1)


def advance() -> None:
    """Say that an attribute of some module has changed."""
    global value
    value = next(_numbers)
