"""Puts Lamina in torch's place for PyTorch's own test files, and under its testing modules.

A test file gets `lamina.install_as_torch()` and nothing more, but that what it imports and Lamina has not is
`Absent`, so that the file loads.  The modules that it takes its tools from
(`torch.testing`: TestCase, dtypes, ops, make_tensor, the operator database) are the installed PyTorch's own
source, run once more over a `torch` that is Lamina wherever Lamina has the name.  What it has not, they get
from PyTorch only where that is machinery (switches, versions, `_C`'s flags) or a constant (a dtype, which a
test then asks for in vain): anything that could compute is `Absent`, and raises when called.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

# Loaded a second time, over Lamina.
AGAIN = (
    "torch._utils",
    "torch.testing",
    "torch._prims_common",
    "torch.utils._mode_utils",
    "torch.utils._python_dispatch",
)
# PyTorch's own is good for these: none makes tensors of what it is given.
MACHINERY = (
    "torch._C", "torch._dynamo", "torch._environment", "torch._higher_order_ops", "torch._inductor",
    "torch._library", "torch._logging", "torch._native", "torch._utils_internal",
    "torch._vendor", "torch.accelerator", "torch.backends", "torch.compiler", "torch.cpu", "torch.cuda",
    "torch.distributed", "torch.library", "torch.mps", "torch.mtia", "torch.onnx", "torch.ops.mkldnn",
    "torch.package", "torch.sparse.check_sparse_tensor_invariants", "torch.utils", "torch.version",
    "torch.xpu",
)  # fmt: skip
# Decorators that speak to PyTorch's compiler.
COMPILERS = (
    "torch._disable_dynamo",
    "torch._export.wrappers.mark_subclass_constructor_exportable_experimental",
)

_import = builtins.__import__


def within(name: str, roots: Sequence[str]) -> bool:
    return any(name == root or name.startswith(root + ".") for root in roots)


class Absent:
    """A function or class that Lamina has not: it can be named, as the operator database does, not called."""

    def __init__(self, name: str):
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self.name = name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        raise AttributeError(f"Lamina has no {self.name}")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "name":  # the latter: in a copy that is being made
            raise AttributeError(name)
        return Absent(f"{self.name}.{name}")

    def __repr__(self) -> str:
        return f"<absent {self.name}>"

    def __or__(self, other: object) -> Any:  # in annotations
        return self

    __ror__ = __or__

    def __getitem__(self, of: object) -> Any:
        return self

    def __instancecheck__(self, x: object) -> bool:
        return False

    def __subclasscheck__(self, kind: type) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()


class _TensorKind(type):
    """Lamina's Tensor for the testing modules, which name methods of it that may be absent."""

    tensor: type

    def __new__(mcs, name: str, bases: tuple, namespace: dict[str, Any]) -> Any:
        if any(isinstance(base, _TensorKind) for base in bases):  # a class of the testing modules
            bases = tuple(b.tensor if isinstance(b, _TensorKind) else b for b in bases)
            return type(bases[0])(name, bases, namespace)
        return super().__new__(mcs, name, bases, namespace)

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, cls.tensor)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, cls.tensor)

    def __eq__(cls, other: object) -> bool:
        return other is cls.tensor or other is vars(cls).get("self")

    def __hash__(cls) -> int:
        return hash(cls.tensor)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.tensor(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        found = getattr(cls.tensor, name, None)
        if isinstance(found, bool):  # what holds for every tensor here is a descriptor there
            return property(lambda x: getattr(x, name))
        return Absent(f"torch.Tensor.{name}") if found is None else found


class _DtypeKind(type):
    """The dtypes of both: tables of the testing modules hold some that Lamina has not."""

    kinds: tuple[type, ...]

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, cls.kinds)


class Mixed(ModuleType):
    """A module of Lamina's, with PyTorch's machinery where Lamina has nothing."""

    def __init__(self, name: str, own: ModuleType | None, world: World):
        super().__init__(name)
        self.__dict__.update(_own=own, _world=world, __path__=[])

    def __getattr__(self, name: str) -> Any:
        world, path = self._world, f"{self.__name__}.{name}"
        if path == "torch.Tensor":
            return world.tensor_kind
        if path == "torch.dtype":
            return world.dtype_kind
        if path == "torch.torch":
            return self
        if path == "torch.ops":  # Lamina's holds what users register
            return world.ops
        if path == "torch._disable_dynamo":  # there is none
            return lambda fn=None, recursive=True: fn
        if path in ("torch.finfo", "torch.iinfo"):  # of PyTorch's dtypes too: they stand in tables
            ours, its = getattr(world.root, name), getattr(world.theirs("torch"), name)
            return lambda dtype=None: (its if isinstance(dtype, world.dtype) else ours)(dtype)
        if within(path, AGAIN) and world.is_module(path):
            return world.module(path)
        if within(path, MACHINERY) and path != "torch.utils":
            theirs = getattr(world.theirs(self.__name__), name, None)
            return world.theirs(path) if theirs is None and world.is_module(path) else theirs
        own = getattr(self._own, name, None) if self._own is not None else None
        if own is None and self._own is not None and f"lamina.{path[6:]}" in sys.modules:
            own = sys.modules[f"lamina.{path[6:]}"]
        if own is not None and not isinstance(own, ModuleType):
            return own
        if own is not None or world.is_module(path):
            return world.module(path)
        if path in COMPILERS:
            return lambda function=None, **_: function or (lambda f: f)
        theirs = getattr(world.theirs(self.__name__), name)  # raises AttributeError for what PyTorch has not
        if isinstance(theirs, ModuleType) and world.is_module(path):
            return world.module(path)
        if within(path, MACHINERY) or isinstance(theirs, world.constants) or name == "__all__":
            return theirs
        return Absent(path)


class World:
    """The `torch` of the testing modules.  One for a process, that has not used PyTorch."""

    def __init__(self) -> None:
        import torch
        import torch._dynamo  # takes long, and the first test would ask for it

        self.dtype = torch.dtype
        self.named = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme)
        self.constants = (*self.named, int, float, str, bool, Mapping, tuple)
        self._swaps = False
        self._finders = list(sys.meta_path)
        self._theirs: dict[str, ModuleType] = {}
        self._put_aside()
        self._place = Path(torch.__file__).parent
        import lamina

        lamina.install_as_torch()
        self.root = importlib.import_module("torch")  # Lamina's names, in a module of its own
        self.ops = Absent("torch.ops")
        self.ops.mkldnn = torch.ops.mkldnn
        self.tensor_kind = _TensorKind("Tensor", (), {"tensor": lamina.Tensor})
        self.dtype_kind = _DtypeKind("dtype", (), {"kinds": (lamina.dtype, self.dtype)})
        self._modules: dict[str, ModuleType] = {}
        self._builtins = {**vars(builtins), "__import__": self._import}
        builtins.__import__ = self._theirs_or_any

    def _put_aside(self) -> None:
        """Take PyTorch's modules out of Python's table, and remember them."""
        for name in [name for name in sys.modules if name.partition(".")[0] == "torch"]:
            self._theirs[name] = sys.modules.pop(name)

    @contextlib.contextmanager
    def _swapped(self) -> Iterator[None]:
        """PyTorch's modules are in Python's table meanwhile."""
        if self._swaps:  # what PyTorch's modules import in turn
            yield
            return
        self._swaps = True
        ours = {n: sys.modules.pop(n) for n in list(sys.modules) if n.partition(".")[0] == "torch"}
        finders, sys.meta_path[:] = list(sys.meta_path), self._finders
        sys.modules.update(self._theirs)
        try:
            yield
        finally:
            self._swaps = False
            self._put_aside()
            sys.meta_path[:] = finders
            sys.modules.update(ours)

    def theirs(self, name: str) -> ModuleType:
        """PyTorch's module of this name, loaded now if it was not.  Raises ImportError."""
        if name not in self._theirs:
            with self._swapped():
                importlib.import_module(name)
        return self._theirs[name]

    def is_module(self, name: str) -> bool:
        """Whether PyTorch has a module of this name."""
        return name in self._theirs or self._file(name) is not None

    def _file(self, name: str) -> Path | None:
        base = self._place.joinpath(*name.split(".")[1:])
        return next((p for p in (base.with_suffix(".py"), base / "__init__.py") if p.is_file()), None)

    def _source(self, name: str) -> Path | None:
        """The file of a module that is loaded again."""
        return self._file(name) if within(name, AGAIN) else None

    def module(self, name: str) -> ModuleType:
        if name in self._modules:
            return self._modules[name]
        path = self._source(name)
        if path is not None:
            return self._loaded(name, path)
        if name == "torch":
            own: ModuleType | None = self.root
        else:
            own = sys.modules.get(f"lamina.{name[6:]}")
            if own is None:
                parent, _, leaf = name.rpartition(".")
                above = self.module(parent)
                held = getattr(vars(above).get("_own"), leaf, None)
                own = held if isinstance(held, ModuleType) else None
        if own is None and within(name, MACHINERY):
            return self.theirs(name)
        if own is None and not self.is_module(name):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        made = self._modules[name] = Mixed(name, own, self)
        return made

    def _loaded(self, name: str, path: Path) -> ModuleType:
        made = self._modules[name] = ModuleType(name)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        vars(made).update(__file__=str(path), __package__=package, __builtins__=self._builtins)
        if package == name:
            made.__path__ = []
        sys.modules[name] = made  # the test file finds it there, and so does pickle
        parent, _, leaf = name.rpartition(".")
        if within(parent, AGAIN):
            setattr(self.module(parent), leaf, made)
        code = compile(path.read_text(), str(path), "exec", dont_inherit=True)
        try:
            exec(code, vars(made))
        except BaseException:
            del self._modules[name], sys.modules[name]
            raise
        return made

    def _import(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        """As `import` in the testing modules has it."""
        if level:
            package = globals["__package__"].split(".")
            above = ".".join(package[: len(package) - level + 1])
            name = f"{above}.{name}" if name else above
        if name.partition(".")[0] != "torch":
            return _import(name, globals, locals, fromlist, 0)
        parts, found = name.split("."), self.module("torch")
        for i in range(2, len(parts) + 1):
            found = self.module(".".join(parts[:i]))
        for leaf in fromlist or ():
            if leaf != "*" and f"{name}.{leaf}" not in self._modules and self._source(f"{name}.{leaf}"):
                self.module(f"{name}.{leaf}")
        return found if fromlist else self.module("torch")

    def _theirs_or_any(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
    ) -> ModuleType:
        """As `import` has it everywhere else: in PyTorch's own functions it gives PyTorch's modules."""
        # by its file: some of PyTorch's modules put an object in their place into the table
        theirs = globals and str(globals.get("__file__", "")).startswith(f"{self._place}/")
        if not theirs or globals.get("__builtins__") is self._builtins:
            return _import(name, globals, locals, fromlist, level)
        if level == 0 and name.partition(".")[0] != "torch":
            return _import(name, globals, locals, fromlist, level)
        with self._swapped():
            return _import(name, globals, locals, fromlist, level)


class _Finder:
    """Lets a test file import more of the testing modules."""

    def __init__(self, world: World):
        self.world = world

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        testing = within(name, ("torch.testing",)) and self.world._source(name) is not None
        return importlib.util.spec_from_loader(name, self) if testing or self._private(name) else None

    def _private(self, name: str) -> bool:
        """Whether this is a module of PyTorch's own that Lamina need not have: names in it are absent."""
        hidden = any(part.startswith("_") for part in name.split(".")[1:])
        ours = f"lamina.{name[6:]}" in sys.modules or within(name, MACHINERY)
        return hidden and not ours and name.startswith("torch.") and self.world.is_module(name)

    def create_module(self, spec: Any) -> ModuleType:
        return self.world.module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def name_absent(file: Path) -> None:
    """Let a test file import what Lamina has not: what stands at its top, as functions raise when called."""
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [(node.module, alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [(alias.name, "") for alias in node.names]
        else:
            continue
        for module, name in names:
            if module.partition(".")[0] != "torch" or within(module, ("torch.testing",)):
                continue
            held = _imported(module)
            if name and name != "*" and not hasattr(held, name):
                setattr(held, name, Absent(f"{module}.{name}"))


def _imported(name: str) -> ModuleType:
    """A module, empty where there is none, and so those above it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        made = sys.modules[name] = ModuleType(name)
        parent, _, leaf = name.rpartition(".")
        setattr(_imported(parent), leaf, made)
        return made


def _no(module: ModuleType, name: str) -> Any:
    raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")


def _names_by_place(parametrize: Any) -> None:
    """Name tests of memory formats as PyTorch does, whose formats are no strings."""
    before = parametrize._formatted_str_repr

    def named(self: Any, place: int, name: str, value: Any) -> str:
        return (
            f"{name}{place}"
            if str(value).endswith(("_format", "channels_last", "channels_last_3d"))
            else before(self, place, name, value)
        )

    parametrize._formatted_str_repr = named


def substitute() -> World:
    """From here on `import torch` gives Lamina, and `torch.testing` PyTorch's own tools over Lamina."""
    world = World()
    sys.meta_path.insert(0, _Finder(world))
    unbuilt = type(world.root.complex32), type(None)
    for name, constant in vars(world.theirs("torch")).items():  # a file that names one loads, at least
        if isinstance(constant, world.named) and isinstance(getattr(world.root, name, None), unbuilt):
            setattr(world.root, name, constant)
    testing = world.module("torch.testing")
    world.module("torch.testing._internal")
    _names_by_place(world.module("torch.testing._internal.common_utils").parametrize)
    if not hasattr(world.root, "_utils"):  # in Python, and asked by test files
        world.root._utils = world.module("torch._utils")
    c = world.root._C
    known = vars(world.theirs("torch")._C)
    c.__getattr__ = lambda name: Absent(f"torch._C.{name}") if name in known else _no(c, name)
    if not hasattr(world.root, "_nnpack_available"):
        world.root._nnpack_available = lambda: False
    world.root.testing = testing  # Lamina's own has none of the tools that are inside of PyTorch's
    return world
