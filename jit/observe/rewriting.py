"""Rewrites a function's syntax tree so that every read, write and call goes through a recorder.

The copy keeps the user's statements, lines and local names; only expressions change:

    y = self.scale * x[0]
    ->
    y = R.binary("*", R.attribute(self, "scale"), R.item(x, 0))

Where Python's own evaluation order, short circuits or unpacking matter, the copy leaves them to Python and
puts small objects in their way (evaluation.py): `a.n, b[k] = v` stays one assignment, to the targets
`R.attribute_place(a, "n").target` and `R.item_place(b, k).target`, and `a or b` becomes
`(R.boxed(a) or R.boxed(b)).value`.  What the copy needs besides the user's names stands in names with a dot,
which no source can spell.  A node that has no method here makes the function Unsupported: default deny.

Numbers that are lifted (numbers.py) may only reach what keeps their expression: `loose` gives an expression
that may carry one, `bare` the plain value.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from .expressions import Expressions
from .located import Located, Unsupported, code_of
from .nodes import BINARY, Bound, compound, constant, name, placed, tupled, unstarred

RECORDER, HELPS, GLOBALS, BUILTINS, CODES, CELL = (
    ".recorder",
    ".helps",
    ".globals",
    ".builtins",
    ".codes",
    ".cell ",
)
# What the recorder itself answers; the rest is for the helps (evaluation.py).
OPERATIONS = frozenset((
    "attribute", "binary", "call", "compare", "formatted", "import_name", "item", "load_global", "new",
    "plain", "truth", "unary",
))  # fmt: skip
LAZY_ANNOTATIONS = sys.version_info >= (3, 14)
FUTURE_ANNOTATIONS = 0x1000000  # the bit of `from __future__ import annotations`
# Expressions that never give a lifted number.
PLAIN = (
    ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp, ast.SetComp,
    ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.Slice,
)  # fmt: skip


def rewrite(located: Located, code: types.CodeType) -> tuple[ast.FunctionDef, tuple[types.CodeType, ...]]:
    """A function that does what a located one does, through a recorder; and the code of those it makes.

    Raises Unsupported for a function with a construct that has no rewriting.
    """
    rewriter = Rewriter(located, code)
    made = rewriter.function()
    return made, tuple(rewriter.codes)


class Rewriter(Expressions):
    def __init__(self, located: Located, code: types.CodeType):
        self.node, self.owner, self.code = located.node, located.owner, code
        self.free = frozenset(code.co_freevars)
        self.cells = frozenset(code.co_cellvars)
        names = Bound(self.mangled)
        names.function(self.node)
        self.globals = frozenset(names.globals)
        self.scopes: list[set[str]] = [names.bound - names.globals - names.nonlocals]
        self.codes: list[types.CodeType] = []
        self.temporaries = 0

    # ---- names

    def mangled(self, text: str) -> str:
        """A name as it is in the class around the function: `__x` is private there."""
        owner = (self.owner or "").lstrip("_")
        if not owner or not text.startswith("__") or text.endswith("__") or "." in text:
            return text
        return f"_{owner}{text}"

    def temporary(self) -> str:
        self.temporaries += 1
        return f".{self.temporaries}"

    def is_local(self, text: str) -> bool:
        if any(text in scope for scope in self.scopes[1:]):  # of comprehensions, which know no `global`
            return True
        return text in self.scopes[0]

    def load(self, text: str) -> ast.expr:
        if self.is_local(text):
            return name(text)
        if text in self.free and text not in self.globals:
            return self.ask("free_variable", name(CELL + text), constant(text))
        return self.ask("load_global", name(GLOBALS), name(BUILTINS), constant(text))

    def place(self, text: str) -> ast.expr:
        """The place of a name outside of the function: `global` or `nonlocal`."""
        if text in self.free and text not in self.globals:
            return self.ask("cell_place", name(CELL + text), constant(text))
        return self.ask("global_place", name(GLOBALS), name(BUILTINS), constant(text))

    # ---- pieces

    def ask(self, method: str, *args: ast.expr, at: ast.AST | None = None) -> ast.Call:
        """A call of a method of the recorder, or of its helps.  at: the node whose place it gets."""
        whom = name(RECORDER if method in OPERATIONS else HELPS)
        call = ast.Call(ast.Attribute(whom, method, ast.Load()), list(args), [])
        return placed(call, at) if at is not None else call

    def loose(self, node: ast.expr) -> ast.expr:
        """The rewritten expression; its value may be a lifted number."""
        made = self._method(node)(node)
        return made if made is node or hasattr(made, "lineno") else placed(made, node)

    def bare(self, node: ast.expr) -> ast.expr:
        """The rewritten expression; its value is no lifted number."""
        made = self.loose(node)
        return made if isinstance(node, PLAIN) else self.ask("plain", made, at=node)

    def test(self, node: ast.expr) -> ast.expr:
        """An expression whose truth Python may ask without a recorder, once."""
        if isinstance(node, ast.BoolOp):
            return ast.copy_location(ast.BoolOp(node.op, [self.test(value) for value in node.values]), node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ast.copy_location(ast.UnaryOp(node.op, self.test(node.operand)), node)
        if isinstance(node, ast.Compare) and len(node.ops) > 1:
            return self.chain(node)
        return self.ask("truth", self.loose(node), at=node)

    def _method(self, node: ast.AST) -> Callable:
        method = getattr(self, "_" + type(node).__name__, None)
        if method is None:
            raise Unsupported(f"it has a {type(node).__name__} in line {getattr(node, 'lineno', '?')}")
        return method

    # ---- the function

    def function(self) -> ast.FunctionDef:
        node = self.node
        assert isinstance(node, ast.FunctionDef | ast.Lambda)
        args = node.args
        first: list[ast.stmt] = [
            ast.Expr(self.ask("new", name(self.mangled(arg.arg)))) for arg in (args.vararg, args.kwarg) if arg
        ]
        parameters = [*args.posonlyargs, *args.args, *args.kwonlyargs]
        first += [
            ast.Assign([name(text, ast.Store())], self.ask("plain", name(text)))
            for text in map(self.mangled, (arg.arg for arg in parameters))
            if text in self.cells
        ]
        if "__class__" in self.free:  # `super()` looks for it here
            first.append(ast.Expr(name(CELL + "__class__")))
        if isinstance(node, ast.Lambda):
            body: list[ast.stmt] = [ast.copy_location(ast.Return(self.loose(node.body)), node.body)]
        else:
            body = self.body(node.body)
        made = ast.FunctionDef("copy", self.bare_arguments(args), [*first, *body], [], None)
        if sys.version_info >= (3, 12):
            made.type_params = []
        return ast.copy_location(made, node)

    def bare_arguments(self, args: ast.arguments) -> ast.arguments:
        """The parameters without defaults and annotations, which the function object holds."""

        def one(arg: ast.arg) -> ast.arg:
            return ast.copy_location(ast.arg(self.mangled(arg.arg)), arg)

        return ast.arguments(
            posonlyargs=[one(arg) for arg in args.posonlyargs],
            args=[one(arg) for arg in args.args],
            vararg=args.vararg and one(args.vararg),
            kwonlyargs=[one(arg) for arg in args.kwonlyargs],
            kw_defaults=[None] * len(args.kwonlyargs),
            kwarg=args.kwarg and one(args.kwarg),
            defaults=[],
        )

    def body(self, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for statement in statements:
            new = self._method(statement)(statement)
            for part in new if isinstance(new, list) else [new]:
                made.append(part if hasattr(part, "lineno") else ast.copy_location(part, statement))
        return made or [ast.Pass()] if statements else []

    # ---- statements

    def _Expr(self, node: ast.Expr) -> ast.stmt:
        return ast.Expr(self.loose(node.value))

    def _Pass(self, node: ast.stmt) -> ast.stmt:
        return node

    _Break = _Continue = _Pass

    def _Global(self, node: ast.stmt) -> ast.stmt:
        return ast.Pass()  # the names' places are asked for by name

    _Nonlocal = _Global

    def _Return(self, node: ast.Return) -> ast.stmt:
        value = node.value and (
            self.bare(node.value) if self.code.co_flags & 0x20 else self.loose(node.value)
        )
        return ast.Return(value)

    def _If(self, node: ast.If) -> ast.stmt:
        return ast.If(self.test(node.test), self.body(node.body), self.body(node.orelse))

    def _While(self, node: ast.While) -> ast.stmt:
        return ast.While(self.test(node.test), self.body(node.body), self.body(node.orelse))

    def _For(self, node: ast.For) -> ast.stmt:
        over = self.ask("each", self.bare(node.iter), at=node.iter)
        target, after = self.stored(node.target)
        return ast.For(target, over, [*after, *self.body(node.body)], self.body(node.orelse))

    def _Assert(self, node: ast.Assert) -> ast.stmt:
        return ast.Assert(self.test(node.test), node.msg and self.bare(node.msg))

    def _Raise(self, node: ast.Raise) -> ast.stmt:
        if node.exc is None:
            return node
        causes = [self.bare(node.cause)] if node.cause else []
        return ast.Raise(self.ask("raised", self.bare(node.exc), *causes, at=node), None)

    def _Try(self, node: ast.Try) -> ast.stmt:
        parts = [self.body(part) for part in (node.body, node.orelse, node.finalbody)]
        handlers = [self.handler(handler) for handler in node.handlers]
        return type(node)(parts[0], handlers, parts[1], parts[2])

    _TryStar = _Try

    def handler(self, node: ast.ExceptHandler) -> ast.ExceptHandler:
        kind = node.type and self.ask("handled", self.bare(node.type), at=node.type)
        first = [] if node.type else [placed(ast.Expr(self.ask("handled")), node)]
        text = node.name and self.mangled(node.name)
        if text and not self.is_local(text):
            raise Unsupported("an exception is caught in a name outside of it")
        return ast.copy_location(ast.ExceptHandler(kind, text, [*first, *self.body(node.body)]), node)

    def _With(self, node: ast.With) -> ast.stmt:
        items: list[ast.withitem] = []
        for i, item in enumerate(node.items):
            manager = self.ask("managed", self.bare(item.context_expr), at=item.context_expr)
            target, after = self.stored(item.optional_vars) if item.optional_vars else (None, [])
            items.append(ast.withitem(manager, target))
            if after and i + 1 < len(node.items):  # it unpacks before the next one is entered
                inner = placed(ast.With(node.items[i + 1 :], node.body), node)
                return ast.With(items, [*after, *self.body([inner])])
        return ast.With(items, [*after, *self.body(node.body)])

    def _Assign(self, node: ast.Assign) -> ast.stmt | list[ast.stmt]:
        cells = any(isinstance(t, ast.Name) and self.mangled(t.id) in self.cells for t in node.targets)
        value = self.bare(node.value) if cells else self.loose(node.value)
        targets, after = [], []
        if len(node.targets) == 1 and compound(node.targets[0]):
            target, after = self.target(node.targets[0])
            return [ast.Assign([target], self.unpacked(node.targets[0], value)), *after]
        if any(compound(target) for target in node.targets):
            held = self.temporary()  # each target unpacks it anew
            statements: list[ast.stmt] = [ast.Assign([name(held, ast.Store())], value)]
            for each in node.targets:
                target, after = self.target(each)
                again = self.unpacked(each, name(held))
                statements += [ast.copy_location(ast.Assign([target], again), each), *after]
            return [*statements, ast.Delete([name(held, ast.Del())])]
        for each in node.targets:
            targets.append(self.target(each)[0])
        return ast.Assign(targets, value)

    def _AnnAssign(self, node: ast.AnnAssign) -> ast.stmt | list[ast.stmt]:
        """Annotations of a function's locals are never evaluated."""
        if node.value is not None:
            return self._Assign(ast.copy_location(ast.Assign([node.target], node.value), node))
        if isinstance(node.target, ast.Name):
            return (
                ast.Pass()
                if node.simple == 0 or not self.is_local(self.mangled(node.target.id))
                else (ast.AnnAssign(name(self.mangled(node.target.id), ast.Store()), constant(None), None, 1))
            )
        if isinstance(node.target, ast.Attribute):
            return ast.Expr(self.bare(node.target.value))
        assert isinstance(node.target, ast.Subscript)
        return ast.Expr(tupled([self.bare(node.target.value), self.bare(node.target.slice)]))

    def _TypeAlias(self, node: Any) -> ast.stmt:
        """Python evaluates an alias where somebody asks for it; its names are the user's own here too."""
        if self.mangled(node.name.id) != node.name.id or not self.is_local(node.name.id):
            raise Unsupported("it makes a type alias in a name outside of it")
        return node

    def _AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        symbol, target = constant(BINARY[type(node.op)]), node.target
        if isinstance(target, ast.Name):
            text = self.mangled(target.id)
            old = placed(self.load(text), target)
            value = self.ask("binary", symbol, old, self.loose(node.value), constant(True), at=node)
            if text in self.cells:
                value = self.ask("plain", value, at=node)
            return ast.Assign([self.target(target)[0]], value)
        before = ast.Call(ast.Attribute(placed(self.place_of(target), target), "before", ast.Load()), [], [])
        by = ast.Attribute(placed(before, target), "by", ast.Load())
        return ast.Expr(placed(ast.Call(by, [symbol, self.loose(node.value)], []), node))

    def _Delete(self, node: ast.Delete) -> list[ast.stmt]:
        return [ast.Delete([self.deleted(target)]) for target in node.targets]

    def deleted(self, target: ast.expr) -> ast.expr:
        if isinstance(target, ast.Tuple | ast.List):
            return placed(type(target)([self.deleted(part) for part in target.elts], ast.Del()), target)
        if isinstance(target, ast.Name) and self.is_local(self.mangled(target.id)):
            return placed(name(self.mangled(target.id), ast.Del()), target)
        place = self.place(self.mangled(target.id)) if isinstance(target, ast.Name) else self.place_of(target)
        return placed(ast.Attribute(placed(place, target), "target", ast.Del()), target)

    def _Import(self, node: ast.Import) -> list[ast.stmt]:
        made: list[ast.stmt] = []
        for alias in node.names:
            value: ast.expr = self.ask(
                "import_name", constant(alias.name), name(GLOBALS), constant(None), constant(0)
            )
            if alias.asname:
                for part in alias.name.split(".")[1:]:
                    value = self.ask("imported", value, constant(part))
            bound = ast.Name(alias.asname or alias.name.split(".")[0], ast.Store())
            made.append(ast.Assign([self.target(ast.copy_location(bound, node))[0]], placed(value, node)))
        return made

    def _ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        held = self.temporary()
        names = tupled([constant(alias.name) for alias in node.names])
        module = self.ask(
            "import_name", constant(node.module or ""), name(GLOBALS), names, constant(node.level)
        )
        made: list[ast.stmt] = [ast.Assign([name(held, ast.Store())], placed(module, node))]
        for alias in node.names:
            bound = ast.copy_location(ast.Name(alias.asname or alias.name, ast.Store()), node)
            value = self.ask("imported", name(held), constant(alias.name), at=node)
            made.append(ast.Assign([self.target(bound)[0]], value))
        return [*made, ast.Delete([name(held, ast.Del())])]

    def _FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.stmt:
        made = self.decorated(node, lambda: self.new_function(node))
        return ast.Assign([self.target(ast.copy_location(ast.Name(node.name, ast.Store()), node))[0]], made)

    _AsyncFunctionDef = _FunctionDef

    def _ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        """The body runs as it was compiled; whether a class may be made at all is for the recorder to say."""
        made = self.decorated(node, lambda: self.new_class(node))
        return ast.Assign([self.target(ast.copy_location(ast.Name(node.name, ast.Store()), node))[0]], made)

    # ---- functions and classes made in the function

    def decorated(self, node: Any, make: Callable[[], ast.expr]) -> ast.expr:
        decorators = [(self.bare(decorator), decorator) for decorator in node.decorator_list]
        made = make()
        for decorator, at in reversed(decorators):
            made = self.ask("call", decorator, tupled([made]), at=at)
        return placed(made, node)

    def cells_of(self, code: types.CodeType) -> ast.expr:
        """The cells of the variables that a code object needs, and which of them are this run's own.

        They are the closure of a function that refers to these variables.
        """
        empty = ast.arguments([], [], None, [], [], None, [])
        own = tuple(text for text in code.co_freevars if self.is_local(text))
        closure = ast.Lambda(empty, tupled([name(text) for text in code.co_freevars]))
        return self.ask("cells", closure, constant(own))

    def held(self, code: types.CodeType) -> ast.expr:
        self.codes.append(code)
        return ast.Subscript(name(CODES), constant(len(self.codes) - 1), ast.Load())

    def new_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> ast.expr:
        """A function of its own code: `enter` will meet it, and make a copy then."""
        code, args = code_of(node, self.code), node.args
        defaults = tupled([self.bare(value) for value in args.defaults])
        keys, values = [], []
        for arg, value in zip(args.kwonlyargs, args.kw_defaults):
            if value is not None:
                keys.append(constant(self.mangled(arg.arg)))
                values.append(self.bare(value))
        parts = [self.held(code), self.cells_of(code), defaults, ast.Dict(keys, values)]
        if getattr(node, "type_params", ()):
            return self.ask("new_generic", *parts, at=node)
        return self.ask("new_function", *parts, *self.annotations(node, code), at=node)

    def annotations(self, node: Any, code: types.CodeType) -> list[ast.expr]:
        args = node.args
        every = [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg]
        pairs = [(self.mangled(arg.arg), arg.annotation) for arg in every if arg and arg.annotation]
        pairs += [("return", node.returns)] if getattr(node, "returns", None) else []
        if not pairs:
            return []
        if LAZY_ANNOTATIONS:
            return self.lazy_annotations(code)
        if self.code.co_flags & FUTURE_ANNOTATIONS:
            return [
                ast.Dict(
                    [constant(text) for text, _ in pairs], [constant(ast.unparse(at)) for _, at in pairs]
                )
            ]
        values = [self.annotation(at) for _, at in pairs]
        return [ast.Dict([constant(text) for text, _ in pairs], values)]

    def annotation(self, node: ast.expr) -> ast.expr:
        """`*args: *Ts` annotates with the one element of Ts."""
        if isinstance(node, ast.Starred):
            return ast.Subscript(self.each_of(node, node), constant(0), ast.Load())
        return self.bare(node)

    def lazy_annotations(self, code: types.CodeType) -> list[ast.expr]:
        for found in self.code.co_consts:
            if isinstance(found, types.CodeType) and found.co_qualname == f"{code.co_qualname}.__annotate__":
                return [ast.Dict([], []), self.held(found), self.cells_of(found)]
        return []

    def new_class(self, node: ast.ClassDef) -> ast.expr:
        code = code_of(node, self.code)
        parts = [self.held(code), self.cells_of(code), constant(node.name)]
        if getattr(node, "type_params", ()):
            raise Unsupported("it makes a class with type parameters")
        begun = self.ask("class_statement", *parts)
        return self.arguments(begun, node.bases, node.keywords, node)

    def _Lambda(self, node: ast.Lambda) -> ast.expr:
        return self.new_function(node)

    # ---- targets

    def place_of(self, target: ast.expr) -> ast.expr:
        if isinstance(target, ast.Attribute):
            return self.ask("attribute_place", self.bare(target.value), constant(self.mangled(target.attr)))
        if isinstance(target, ast.Subscript):
            return self.ask("item_place", self.bare(target.value), self.bare(target.slice))
        raise Unsupported(f"it stores to a {type(target).__name__}")

    def target(self, node: ast.expr) -> tuple[ast.expr, list[ast.stmt]]:
        """Where Python may store a value, and statements that then finish the store: a nested target unpacks.

        What is stored to several targets has been through `unpacked`, which makes a list for a starred one.
        """
        if isinstance(node, ast.Name):
            text = self.mangled(node.id)
            if self.is_local(text):
                return placed(name(text, ast.Store()), node), []
            return placed(ast.Attribute(placed(self.place(text), node), "target", ast.Store()), node), []
        if isinstance(node, ast.Attribute | ast.Subscript):
            return placed(ast.Attribute(placed(self.place_of(node), node), "target", ast.Store()), node), []
        assert isinstance(node, ast.Tuple | ast.List)
        if not any(compound(unstarred(part)) for part in node.elts):
            parts = [self.target(unstarred(part))[0] for part in node.elts]
            return placed(type(node)(parts, ast.Store()), node), []
        held = [self.temporary() for _ in node.elts]  # inner targets unpack in their turn
        stores: list[ast.stmt] = []
        for part, text in zip(map(unstarred, node.elts), held):
            inner, after = self.target(part)
            value = self.unpacked(part, name(text))
            stores += [placed(ast.Assign([inner], value), part), *after]
        stores.append(placed(ast.Delete([name(text, ast.Del()) for text in held]), node))
        outer: list[ast.expr] = [name(text, ast.Store()) for text in held]
        return placed(type(node)(outer, ast.Store()), node), stores

    def stored(self, node: ast.expr) -> tuple[ast.expr, list[ast.stmt]]:
        """As `target`, where Python itself gives the value: what is several targets waits in a temporary."""
        if not compound(node):
            return self.target(node)
        held = self.temporary()
        target, after = self.target(node)
        store = placed(ast.Assign([target], self.unpacked(node, name(held))), node)
        return name(held, ast.Store()), [store, placed(ast.Delete([name(held, ast.Del())]), node), *after]

    def unpacked(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """The value for a target: for a tuple or list of targets its elements, read through the recorder."""
        if not isinstance(target, ast.Tuple | ast.List):
            return value
        starred = [i for i, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
        before = starred[0] if starred else len(target.elts)
        after = constant(len(target.elts) - before - 1) if starred else constant(None)
        return self.ask("unpacked", self.ask("plain", value), constant(before), after, at=target)
