"""Classes and functions that a checkpoint may name beside PyTorch's own: those that a program vouches for,
and with `weights_only=False` those that it has defined itself.

What a file can reach, and what it can't:

- Nothing is imported for a file, and nothing that a file names is called: neither functions nor classes.  So
  `os.system`, `builtins.eval`, `operator.attrgetter` or `functools.partial` are refused by their names.
  `getattr` gives one thing: an op by its name, as `torch.relu` is pickled.
- An instance is made by `object.__new__` (or that of list, dict, tuple), without `__init__` and the class's
  own `__new__`, and takes the state of the file by the `__setstate__` of its class where it has one,
  else as its
  attributes.  An attribute that would replace a method is refused, and so is a class with a `__del__`, which
  would run by itself.
- So `weights_only=False` runs of your program the `__setstate__` of your classes, with what the file says.
  What you later do with the object is your program on the file's values: a file decides which of your classes
  stand where, and which of your functions are their attributes.  Take it for files whose authors you would
  let choose these; weights alone need none of it.
- What `add_safe_globals` names is called as the file says: a class to make instances, a function too.
"""

from __future__ import annotations

import enum
import os
import site
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from types import FunctionType, MemberDescriptorType, ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakSet

from ...ir.errors import ArgumentError
from ..tensor import Tensor
from .names import ATTRIBUTE, ROOT_FUNCTIONS, Unsuited, runs_when_freed, shown, values

HERE = __name__.partition(".")[0]  # lamina
BLOCKED = ("sys", "os", "posix", "nt", "subprocess")  # of these nothing is taken, whoever vouches for it
# The standard library's classes of plain data that people keep in checkpoints.
PLAIN = {
    "argparse.Namespace": ("argparse", "Namespace"),
    "types.SimpleNamespace": ("types", "SimpleNamespace"),
}
PLAIN_VALUES = (
    int,
    str,
    float,
    bytes,
    bool,
    complex,
    type(None),
)  # whose comparison is no code of a program's
_MISSING = object()


# ---- what a program vouches for ----------------------------------------------------------------------------
class _Vouched:
    """What is safe for all loads of the process, and the blocks that are open."""

    always: tuple[Any, ...] = ()
    blocks: WeakSet = WeakSet()


def _checked(safe_globals: Any) -> tuple[Any, ...]:
    if isinstance(safe_globals, (str, bytes)) or not isinstance(safe_globals, Iterable):
        raise ArgumentError(
            f"add_safe_globals(safe_globals): takes a list of classes and functions, not "
            f"{type(safe_globals).__name__}"
        )
    found = tuple(safe_globals)
    for each in found:
        pair = isinstance(each, tuple) and len(each) == 2 and callable(each[0]) and isinstance(each[1], str)
        if not pair and not (
            callable(each) and hasattr(each, "__qualname__") and hasattr(each, "__module__")
        ):
            raise ArgumentError(
                f"add_safe_globals(safe_globals): a {type(each).__name__} is no class or function",
                "takes classes, functions, and (class, 'module.name') for those that files name otherwise",
            )
    return found


def add_safe_globals(safe_globals: list[Callable | tuple[Callable, str]]) -> None:
    """Vouch for classes and functions: `load` takes them from files, and calls them as the files say.

    Each is one by itself, or with the name that files have for it: (cls, "package.module.Name").
    Raises ArgumentError.
    """
    _Vouched.always = (*_Vouched.always, *(x for x in _checked(safe_globals) if x not in _Vouched.always))


def get_safe_globals() -> list[Callable | tuple[Callable, str]]:
    """What `add_safe_globals` and the open blocks of `safe_globals` name."""
    found = [*_Vouched.always]
    for block in list(_Vouched.blocks):
        found += (x for x in block.named if x not in found)
    return found


def clear_safe_globals() -> None:
    """Vouch for nothing any more."""
    _Vouched.always = ()
    _Vouched.blocks.clear()


class safe_globals:
    """Vouch for classes and functions within a block: `with safe_globals([Config]): load(path)`."""

    def __init__(self, safe_globals: list[Callable | tuple[Callable, str]]):
        self.named = _checked(safe_globals)

    def __enter__(self) -> None:
        _Vouched.blocks.add(self)  # weakly: an interrupt leaves nothing open

    def __exit__(self, *_: Any) -> None:
        _Vouched.blocks.discard(self)


def vouched() -> dict[str, Any]:
    """By the names that files have for them."""
    named = (
        x if isinstance(x, tuple) else (x, f"{x.__module__}.{x.__qualname__}") for x in get_safe_globals()
    )
    return {name: value for value, name in named}


def is_safe(name: str) -> bool:
    """Whether `load` takes this name from any file."""
    return name in values() or (name in vouched() and name.partition(".")[0] not in BLOCKED)


# ---- what a program has defined ----------------------------------------------------------------------------
def named(module: str, name: str) -> tuple[Any, str]:
    """What a name is that `weights_only=False` takes, or None; and why it is not taken.

    Looked up among what is loaded, by dictionaries alone: no attribute is asked for, as that might run code.
    """
    spelled = f"{module}.{name}"
    for each in (ATTRIBUTE, ROOT_FUNCTIONS):
        if spelled == each.name:
            return each, ""
    if module.partition(".")[0] in ("torch", HERE):
        return _of_lamina(module, name)
    if spelled in PLAIN:
        found = _looked_up(*PLAIN[spelled])
        return (None, "its module was not imported") if found is _MISSING else (found, "")
    if spelled in ("pathlib.PosixPath", "pathlib._local.PosixPath") and os.name == "posix":
        return _looked_up("pathlib", "PosixPath"), ""
    home = sys.modules.get(module)
    if home is None:
        return None, f"no module {module} was imported: import it before"
    if not _is_users(home):
        return None, f"{module} is no module of your own program"
    found = _looked_up(module, name)
    if found is _MISSING:
        return None, f"{module} has no {name}"
    if not isinstance(found, type) and (not isinstance(found, FunctionType) or "." in name):
        return None, f"it is a {type(found).__name__}, and no class or function"
    if found.__module__ != module or found.__qualname__ != name:
        return None, f"it was defined elsewhere, as {found.__module__}.{found.__qualname__}"
    return found, ""


_IN_MODULES: Any = vars(ModuleType)["__dict__"]  # past what a module answers itself
_names_of: Callable[[ModuleType], dict[str, Any]] = _IN_MODULES.__get__


def _looked_up(module: str, name: str) -> Any:
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        if not isinstance(found, (ModuleType, type)):
            return _MISSING
        names = _names_of(found) if isinstance(found, ModuleType) else vars(found)
        found = names.get(part, _MISSING)
    return found


def root_function(name: str) -> Any:
    """An op, by its public name; None where there is none.  What hands files or memory on is none."""
    return sys.modules[f"{HERE}.runtime.ops"].FUNCTIONS.get(name)


def _of_lamina(module: str, name: str) -> tuple[Any, str]:
    """A class of `nn` or `distributions`, by Lamina's name or by PyTorch's, a function of nn's, or an op."""
    home = HERE + module.removeprefix("torch").removeprefix(HERE)
    if home == f"{HERE}.runtime.ops" and (op := root_function(name)) is not None:
        return op, ""
    if home == f"{HERE}._C._nn":  # where PyTorch keeps gelu and its kin
        home = f"{HERE}.nn.functional"
    found = _looked_up(home, name)
    random = f"{HERE}.distributions."  # whose classes have no __setstate__
    if f"{home}.".startswith(random) and isinstance(found, type) and found.__module__.startswith(random):
        return found, ""
    if not f"{home}.".startswith(f"{HERE}.nn."):
        return None, "only nn and distributions are taken: save the state_dict() of optimizers and others"
    if home == f"{HERE}.nn.functional" and not name.startswith("_") and isinstance(found, FunctionType):
        return found, ""
    members = sys.modules[f"{HERE}.nn.members"]
    base = sys.modules[f"{HERE}.nn.module"].Module
    if isinstance(found, type) and (issubclass(found, base) or found in (members.Members, members.Tracked)):
        return found, ""
    return None, "it is no module of nn's"


@cache
def _libraries() -> tuple[str, ...]:
    """Where the standard library and what was installed lie."""
    sysconfig = import_module("sysconfig")  # which few checkpoints want
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(os.path.join(os.path.realpath(path), "") for path in paths if path)


def _is_users(module: ModuleType) -> bool:
    """Whether a module is a file of the program's own, or what is being run."""
    names = _names_of(module)
    file = names.get("__file__")
    if not isinstance(file, str):
        return names.get("__name__") == "__main__"
    path = os.path.realpath(file)
    parts = path.split(os.sep)
    return not path.startswith(_libraries()) and not {"site-packages", "dist-packages"} & {*parts}


# ---- instances ---------------------------------------------------------------------------------------------
def instance(cls: type, args: tuple) -> Any:
    """An instance of a class of the program's that is not initialised.  Raises Unsuited."""
    if runs_when_freed(cls):
        raise Unsuited(f"a {cls.__qualname__}, whose __del__ would run by itself")
    if issubclass(cls, Tensor):
        raise Unsuited(f"a tensor of class {cls.__qualname__} without memory")
    if issubclass(cls, tuple) and cls.__bases__ == (tuple,) and hasattr(cls, "_fields"):
        if len(args) != len(cls._fields):
            raise Unsuited(f"a {cls.__qualname__} of other fields")
        return tuple.__new__(cls, args)
    for kind in (OrderedDict, dict, list):
        if issubclass(cls, kind) and cls.__new__ is kind.__new__:
            return kind.__new__(cls)
    if cls.__new__ is not object.__new__:
        raise Unsuited(f"a {cls.__qualname__}, whose __new__ is code of its own")
    if args:
        raise Unsuited(f"a {cls.__qualname__} of arguments")
    made = object.__new__(cls)
    module = sys.modules[f"{HERE}.nn.module"].Module
    if issubclass(cls, module):  # one whose state never comes is whole, too
        module.__setstate__(made, {})
    return made


def called(cls: type, args: tuple) -> Any:
    """What a call of a class means that runs no code: the member of an enumeration.  Raises Unsuited."""
    members = sys.modules[f"{HERE}.nn.members"]
    if isinstance(cls, enum.EnumMeta) and len(args) == 1 and type(args[0]) in PLAIN_VALUES:
        for member in vars(cls)["_member_map_"].values():
            if type(member._value_) is type(args[0]) and member._value_ == args[0]:
                return member
        raise Unsuited(f"a member that {cls.__qualname__} has not")
    if cls in (SimpleNamespace, members.Members, members.Tracked) and not args:
        return cls()
    pathlib = sys.modules.get("pathlib")
    if pathlib is not None and cls is pathlib.PosixPath and all(type(part) is str for part in args):
        return cls(*args)
    raise Unsuited(f"a call of {shown(cls)}")


def build(obj: Any, state: Any) -> None:
    """Give an instance its state, by its class's `__setstate__` or as attributes.  Raises Unsuited."""
    cls = type(obj)
    own, slots = state if type(state) is tuple and len(state) == 2 else (state, None)
    restored = _of_class(cls, "__setstate__")
    for part in (own, slots):
        for name in part if type(part) is dict else ():
            if _is_method(cls, name):
                raise Unsuited(f"a state of {cls.__qualname__} that replaces its method {name[:60]!r}")
    for name in slots if type(slots) is dict else ():
        if not isinstance(_of_class(cls, name), MemberDescriptorType):
            raise Unsuited(f"a state of {cls.__qualname__} with a slot that it has not")
    if restored is not None:
        cls.__setstate__(obj, state)
        return
    for part in (own, slots):
        if part is not None and (type(part) is not dict or not all(type(name) is str for name in part)):
            raise Unsuited(f"a state of {cls.__qualname__} that is no dict")
    if own:
        object.__getattribute__(obj, "__dict__").update(own)
    for name, value in (slots or {}).items():
        object.__setattr__(obj, name, value)


def _of_class(cls: type, name: Any) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def _is_method(cls: type, name: Any) -> bool:
    """Whether a name is a method, or a property; nn's modules leave out what they work out themselves."""
    home = next((base for base in cls.__mro__ if name in vars(base)), object)
    kinds = (FunctionType, classmethod, staticmethod)
    ours = home.__module__.startswith(f"{HERE}.nn.")
    return isinstance(vars(home).get(name), kinds if ours else (*kinds, property))
