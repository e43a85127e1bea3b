"""What an instrumented copy calls where Python's own order of evaluation, unpacking or short circuits matter.

The copy leaves the order to Python: these objects stand where a value, a target, an iterator or a context
manager would, and ask the recorder when Python asks them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import CellType, CodeType, FunctionType, GeneratorType
from typing import Any, NamedTuple

from .building import _hashed, _iterable, _mapping, unpack, unpack_rest
from .clauses import _MAPPING, _SEQUENCE, _exception, _method, import_from, match_class, match_keys
from .kinds import MISSING, lookup
from .tracebacks import clean


class Evaluation:
    """The helps of one recorder's copies."""

    def __init__(self, observer: Any):
        self.observer = observer

    # ---- names, attributes, items

    def free_variable(self, cell: CellType, name: str) -> Any:
        if empty(cell):
            raise unbound(name)
        return self.observer.load_cell(cell)

    def cell_place(self, cell: CellType, name: str) -> Place:
        def read() -> Any:
            return self.free_variable(cell, name)

        def delete() -> None:
            if empty(cell):
                raise unbound(name)
            self.observer.delete_cell(cell)

        return Place(self.observer, read, lambda value: self.observer.store_cell(cell, value), delete)

    def global_place(self, scope: dict[str, Any], builtins: dict[str, Any], name: str) -> Place:
        observer = self.observer
        return Place(
            observer,
            lambda: observer.load_global(scope, builtins, name),
            lambda value: observer.store_global(scope, name, value),
            lambda: observer.delete_global(scope, name),
        )

    def attribute_place(self, value: Any, name: str) -> Place:
        observer = self.observer
        return Place(
            observer,
            lambda: observer.attribute(value, name),
            lambda to: observer.set_attribute(value, name, to),
            lambda: observer.delete_attribute(value, name),
        )

    def item_place(self, value: Any, key: Any) -> Place:
        observer = self.observer
        return Place(
            observer,
            lambda: observer.item(value, key),
            lambda to: observer.set_item(value, key, to),
            lambda: observer.delete_item(value, key),
        )

    def sliced(self, *parts: Any) -> slice:
        return self.observer.new(slice(*parts))

    # ---- truth and comparison

    def boxed(self, value: Any) -> Box:
        return Box(self.observer, value)

    def linked(self, value: Any, symbol: str = "") -> Link:
        return Link(self.observer, value, symbol)

    def within(self, element: Any, container: Any, wanted: bool) -> bool:
        return bool(self.observer.contains(container, element)) is wanted

    # ---- iteration and unpacking

    def each(self, value: Any) -> Each:
        return Each(self.observer, value)

    def delegate(self, value: Any) -> Any:
        """What `yield from` draws from: Python itself talks to a generator."""
        return value if type(value) is GeneratorType else Each(self.observer, value)

    def unpacked(self, value: Any, before: int, after: int | None) -> list[Any]:
        """The values for so many targets.  after: of those behind a starred one, whose list comes between."""
        stack = [value]
        if after is None:
            unpack(self, stack, before)
        else:
            unpack_rest(self, stack, before | after << 8)
        return stack[::-1]

    def elements(self, value: Any) -> list[Any]:
        """What `*value` gives in a display."""
        return self.observer.unpack(value) if _iterable(value) else [*value]

    def mapping(self, value: Any) -> dict[Any, Any]:
        """What `**value` gives in a display."""
        return _mapping(self, value)

    def keyed(self, container: Any) -> Any:
        """A new set or dictionary, whose elements C code hashed."""
        _hashed(self, *container)
        return self.observer.new(container)

    # ---- calls

    def callee(self, function: Any) -> Callee:
        return Callee(self.observer, function)

    def cells(self, closure: FunctionType, own: tuple[str, ...]) -> Variables:
        cells = dict(zip(closure.__code__.co_freevars, closure.__closure__ or ()))
        for name in own:
            self.observer.new(cells[name])
        return Variables(cells, closure.__globals__)

    def new_function(
        self,
        code: CodeType,
        variables: Variables,
        defaults: tuple,
        named: dict[str, Any],
        annotations: dict[str, Any] | None = None,
        annotating: CodeType | None = None,
        of_annotations: Variables | None = None,
    ) -> FunctionType:
        """A function of a definition's own code.  annotating: the code that gives its annotations."""
        made = variables.function(code)
        made.__defaults__, made.__kwdefaults__ = defaults or None, named or None
        if annotations:
            made.__annotations__ = annotations
        if annotating is not None and of_annotations is not None:
            made.__annotate__ = of_annotations.function(annotating)  # type: ignore[attr-defined]
        return self.observer.new(made)

    def new_generic(
        self, code: CodeType, variables: Variables, defaults: tuple, named: dict[str, Any]
    ) -> Any:
        """A function with type parameters: the code that makes these makes it."""
        self.observer.refuse(f"a function with type parameters was made in the run: {code.co_qualname}")
        given = [*([defaults] if defaults else []), *([named] if named else [])]
        return self.observer.new(variables.function(code)(*given))

    def class_statement(self, code: CodeType, variables: Variables, name: str) -> Callee:
        """A class whose bases and keywords follow.  Its body runs as it is: what that reads is not seen."""
        self.observer.refuse(f"a class was made in the run: {name}")
        body = variables.function(code)
        return Callee(self.observer, body.__builtins__["__build_class__"]).take(body).take(name)

    # ---- errors and context managers

    def raised(self, value: Any, *cause: Any) -> Any:
        """What `raise value from cause` raises."""
        error = _exception(self.observer, value, "exceptions must derive from BaseException")
        if cause:
            given = cause[0]
            if given is not None:
                given = _exception(self.observer, given, "exception causes must derive from BaseException")
            error.__cause__ = given
        return error

    def handled(self, kinds: Any = None) -> Any:
        """The classes that an `except` names.  The user's handler is to see his own frames."""
        error = sys.exception()
        if error is not None:
            error.__traceback__ = clean(error.__traceback__)
        if isinstance(kinds, tuple):
            self.observer.read_all(kinds)
        return kinds

    def managed(self, value: Any) -> Managed:
        return Managed(self, value)

    # ---- imports

    def imported(self, module: Any, name: str) -> Any:
        stack = [module]
        import_from(self, stack, name)
        return stack[-1]

    # ---- patterns

    def matched_sequence(self, value: Any, before: int, after: int | None, wanted: tuple[int, ...]) -> Any:
        """The parts of a sequence for so many patterns; None where it does not match.

        wanted: those of the patterns that look at their part.
        """
        observer = self.observer
        if not observer.class_of(value).__flags__ & _SEQUENCE:
            return None
        if before + (after or 0) or after is None:
            length = observer.call(len, (value,))
            if length != before if after is None else length < before + after:
                return None
        if not wanted:
            return ()
        if after is not None and before not in wanted:  # nobody looks at the starred part: it is not read
            return {
                i: observer.item(value, i if i < before else length - after + i - before - 1) for i in wanted
            }
        return self.unpacked(value, before, after)

    def is_mapping(self, value: Any, count: int) -> bool:
        if not self.observer.class_of(value).__flags__ & _MAPPING:
            return False
        return not count or self.observer.call(len, (value,)) >= count

    def matched_keys(self, value: Any, keys: tuple) -> Any:
        stack = [value, keys]
        match_keys(self, stack, None)
        return stack[-1]

    def rest_of(self, value: Any, keys: tuple) -> dict[Any, Any]:
        found = dict(self.mapping(value))
        for key in keys:
            del found[key]
        return self.observer.new(found)

    def matched_class(self, value: Any, kind: Any, count: int, names: tuple[str, ...]) -> Any:
        stack = [value, kind, names]
        match_class(self, stack, count)
        return stack[-1]


def empty(cell: CellType) -> bool:
    """Whether a cell holds nothing."""
    try:
        cell.cell_contents  # noqa: B018 - asked for its error
    except ValueError:
        return True
    return False


def unbound(name: str) -> NameError:
    text = f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope"
    return NameError(text, name=name)


class Variables(NamedTuple):
    """What a function made in the run sees of those around it."""

    cells: dict[str, CellType]
    scope: dict[str, Any]

    def function(self, code: CodeType) -> FunctionType:
        return FunctionType(
            code, self.scope, code.co_name, None, tuple(self.cells[name] for name in code.co_freevars)
        )


class Place:
    """Where a value may be stored: Python assigns to, or deletes, `target`."""

    __slots__ = ("_delete", "_observer", "_read", "_store")

    def __init__(self, observer: Any, read: Callable, store: Callable, delete: Callable):
        self._observer, self._read, self._store, self._delete = observer, read, store, delete

    target = property(
        fset=lambda self, value: self._store(value),
        fdel=lambda self: self._delete(),
    )

    def before(self) -> Update:
        """Read what stands there, for an assignment such as `+=`, whose value Python evaluates then."""
        return Update(self._observer, self._read(), self._store)

    def assigned(self, value: Any) -> Any:
        self._store(value)
        return value


class Update:
    __slots__ = ("_observer", "_old", "_store")

    def __init__(self, observer: Any, old: Any, store: Callable):
        self._observer, self._old, self._store = observer, old, store

    def by(self, symbol: str, value: Any) -> None:
        self._store(self._observer.binary(symbol, self._old, value, True))


class Box:
    """An operand of `and` and `or`: its truth is asked for at most once, and the last one's never."""

    __slots__ = ("_observer", "_truth", "value")

    def __init__(self, observer: Any, value: Any):
        self._observer, self.value = observer, value
        self._truth: bool | None = None

    def __bool__(self) -> bool:
        if self._truth is None:
            self._truth = bool(self._observer.truth(self.value))
        return self._truth


class Link:
    """An operand of a chain of comparisons.  symbol: how it is compared with the one before it."""

    __slots__ = ("_observer", "_symbol", "_value")

    def __init__(self, observer: Any, value: Any, symbol: str):
        self._observer, self._value, self._symbol = observer, value, symbol

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: Any) -> Any:
        observer, symbol, left, right = self._observer, other._symbol, self._value, other._value
        if symbol.startswith("is") or symbol.endswith("in"):
            left, right = observer.plain(left), observer.plain(right)
            if symbol.startswith("is"):
                return Box(observer, (left is right) is (symbol == "is"))
            return Box(observer, bool(observer.contains(right, left)) is (symbol == "in"))
        return Box(observer, observer.compare(symbol, left, right))


class Each:
    """An iterator for `for` and `yield from`.  What else it is asked for, the iterator behind it answers."""

    def __init__(self, observer: Any, value: Any):
        self._observer = observer
        self._iterator = observer.iterator(value)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._observer.next_of(self._iterator)

    def __getattr__(self, name: str) -> Any:
        found = self._observer.attribute(self._iterator, name)
        return lambda *args: self._observer.call(found, args)


class Managed:
    """A context manager that Python's `with` enters and leaves."""

    def __init__(self, evaluation: Evaluation, value: Any):
        self._evaluation, self._observer, self._value = evaluation, evaluation.observer, value

    def __enter__(self) -> Any:
        enter = _method(self._evaluation, self._value, "__enter__")
        self._exit = _method(self._evaluation, self._value, "__exit__")
        return self._observer.call(enter)

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        if error is None:
            self._observer.call(self._exit, (None, None, None))
            return False
        error.__traceback__ = clean(traceback)
        return self._observer.truth(self._observer.call(self._exit, (kind, error, error.__traceback__)))


class Callee:
    """A call whose arguments come one by one."""

    def __init__(self, observer: Any, function: Any):
        self.observer, self._function = observer, function
        self._args: list[Any] = []
        self._named: dict[str, Any] = {}

    def take(self, value: Any) -> Callee:
        self._args.append(value)
        return self

    def spread(self, value: Any, alone: bool) -> Callee:
        """`*value`.  alone: it is the only positional argument, which the text of an error tells."""
        if not _iterable(value):
            self._function(*value) if alone else [*value]  # raises
        if alone and type(value) is tuple:
            self.observer.read_all(value)
            self._args += value
        else:
            self._args += self.observer.unpack(value)
        return self

    def name(self, name: str, value: Any) -> Callee:
        return self._merged({name: value})

    def merge(self, value: Any) -> Callee:
        """`**value`."""
        if lookup(type(value), "keys") is MISSING:
            self._function(**value)  # raises
        return self._merged(_mapping(self, value))

    def _merged(self, values: Mapping[str, Any]) -> Callee:
        if not self._named.keys().isdisjoint(values):
            self._function(**self._named, **values)  # raises
        self._named.update(values)
        return self

    def call(self) -> Any:
        return self.observer.call(self._function, tuple(self._args), self._named)
