"""Function transforms: gradients, products with Jacobians, whole Jacobians, of functions of nested arguments.

A derivative is a history like any other: `grad` hands the function tensors that ask for gradients, walks back
from what it returns, and keeps the history of the walk where a tensor from outside asks for gradients too.
So levels need no bookkeeping: each call's arguments are tensors of its own, and what the function takes from
outside is constant to this call and differentiable to those further out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from ..ir.errors import ArgumentError, ArgumentValueError, GradError, ShapeError
from ..ir.op import REGISTRY
from ..ir.shapes import check_together
from . import modes, ops
from .autograd import grad as walk_back
from .autograd import reachable
from .batched import Batch, vmap
from .forward import jvp_of
from .graph import Leaf
from .levels import Transformed, insides, parts_at, unite_at
from .refusal import refusing, refusing_names
from .tensor import Tensor
from .trees import Shape, flatten, unflatten


# ---- arguments ---------------------------------------------------------------------------------------------
def require_callable(func: Any, name: str) -> None:
    if not callable(func):
        raise ArgumentError(f"{name}(func): func must be callable, not {type(func).__name__}")


def chosen(args: tuple, argnums: Any, name: str) -> tuple[int, ...]:
    """The places of the arguments to differentiate by.  Raises ArgumentValueError."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    if not numbers:
        raise ArgumentValueError(f"{name}: argnums must be non-empty: name at least one argument")
    for n in numbers:
        if isinstance(n, bool) or not isinstance(n, int):
            raise ArgumentError(f"{name}: argnums must be int or Tuple of ints, not {argnums!r}")
        if not -len(args) <= n < len(args):
            raise ArgumentValueError(f"{name}: Got argnum={n}, but only {len(args)} positional inputs")
    places = tuple(n % len(args) for n in numbers)
    if len(set(places)) < len(places):
        raise ArgumentValueError(f"{name}: argnums elements must be unique, not {argnums!r}")
    return places


def require_tensors(leaves: Sequence, what: str, floating: bool = True) -> None:
    for x in leaves:
        if not isinstance(x, Tensor):
            raise ArgumentError(f"{what} must be tensors, nested at will, not {type(x).__name__}")
        if floating and not x._meta.dtype.inexact:
            raise GradError(f"{what} must be floating or complex, not {x._meta}", "convert them: x.float()")


def require_some(leaves: Sequence, what: str) -> None:
    if not leaves:
        raise ArgumentValueError(f"{what}: Expected at least one tensor, and there is none")


def with_aux(out: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    """What is differentiated of a result, and what comes along."""
    if not has_aux:
        return out, None
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentValueError(
            f"{name}(has_aux=True): output of function f should be a tuple: (output, aux), not {out!r}"
        )
    return out


# ---- a level of reverse mode -------------------------------------------------------------------------------
class Reverse:
    """Tensors of our own for a function's arguments, and the way back to them.

    outer: gradients were recorded where the transform was called, so that results may have a history.
    """

    def __init__(self, leaves: Sequence[Tensor]):
        self.outer = modes.is_grad_enabled()
        self.leaves: list[Leaf] = []
        with modes.enable_grad():
            self.inputs = [self._own(x) for x in leaves]

    def _own(self, x: Tensor) -> Tensor:
        for level in modes.local.levels:
            if isinstance(level, Batch):  # each example has a gradient of its own
                x = unite_at(level, parts_at(level, x))
        return self._tied(x)

    def _tied(self, x: Tensor) -> Tensor:
        if isinstance(x, Transformed):
            first, *rest = x._level.split(x)
            return x._level.join([self._tied(first), *rest])
        if x._node is not None:
            return REGISTRY["view"](x, tuple(x.shape))
        own = x.detach().requires_grad_()
        self.leaves.append(own._node)
        return own

    def followed(self, ys: Sequence[Any]) -> bool:
        """Whether a history leads from here to tensors that are not ours."""
        starts = [e for y in ys if isinstance(y, Tensor) for z in insides(y) if (e := z._node) is not None]
        own = set(map(id, self.leaves))
        return any(type(e) is Leaf and id(e) not in own and e.kind is not None for e in reachable(starts))

    def released(self, tree: Any) -> Any:
        """Results without the history that only leads to our own tensors."""
        shape, leaves = flatten(tree)
        return unflatten(
            shape,
            [
                y if not isinstance(y, Tensor) or self.outer and self.followed([y]) else _forgetting(y)
                for y in leaves
            ],
        )

    def back(
        self, ys: Sequence[Tensor], cotangents: Sequence[Any], retain: bool, create: bool = True
    ) -> list[Tensor]:
        """The gradients to our inputs, zeros where there is none.

        create: whether they may have a history, if there is one to tensors that are not ours.
        """
        pairs = [(y, c) for y, c in zip(ys, cotangents, strict=True) if y._node is not None]
        create = create and self.followed([*ys, *cotangents, *self.inputs])
        found: Sequence = [None] * len(self.inputs)
        if pairs:
            ys, cotangents = zip(*pairs, strict=True)
            found = walk_back(ys, self.inputs, cotangents, retain or create, create, allow_unused=True)
        found = [REGISTRY["zeros_like"](x.detach()) if g is None else g for x, g in zip(self.inputs, found)]
        return found if create else [_forgetting(g) for g in found]

    def close(self) -> None:
        """Let nobody accumulate gradients into our tensors."""
        for leaf in self.leaves:
            leaf.kind = None


def _forgetting(y: Tensor) -> Tensor:
    """The tensor without history; a tangent, unlike under detach(), stays."""
    if isinstance(y, Transformed):
        return y._level.join([p if p is None else _forgetting(p) for p in y._level.split(y)])
    return y if y._node is None else y.detach()


def _replaced(args: tuple, places: tuple[int, ...], values: Sequence) -> tuple:
    found = list(args)
    for place, value in zip(places, values, strict=True):
        found[place] = value
    return tuple(found)


def _split(args: tuple, places: tuple[int, ...], what: str) -> tuple[Shape, list[Tensor]]:
    shape, leaves = flatten(tuple(args[p] for p in places))
    require_tensors(leaves, what)
    require_some(leaves, what)
    return shape, leaves


def grad_and_value(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """Make a function that returns the gradient of `func`, which gives one number, and that number.

    argnums: by which arguments; a tuple gives a tuple.  has_aux: func returns (number, aux), and the function
    (gradient, (number, aux)).  Raises GradError where what func returns is no single floating number.
    """
    require_callable(func, "grad_and_value")

    def gradient_and_value(*args: Any, **kwargs: Any) -> Any:
        places = chosen(args, argnums, "grad")
        shape, leaves = _split(args, places, "grad: what is differentiated by")
        level = Reverse(leaves)
        try:
            with modes.enable_grad():
                given = _replaced(args, places, unflatten(shape, level.inputs))
                out, aux = with_aux(modes.call_user_with(func, given, kwargs), has_aux, "grad")
                if not isinstance(out, Tensor):
                    raise GradError(f"grad(func): func must return a tensor, not {type(out).__name__}")
                if out.ndim:
                    raise GradError(
                        "grad(func): func must return one number, as a 0-d tensor",
                        f"returned: {out._meta}",
                        "reduce it, or use vjp or jacrev",
                    )
                if not out._meta.dtype.is_floating_point:
                    raise GradError(
                        "grad(func): func must return a floating number", f"returned: {out._meta}"
                    )
                found = level.back([out], [REGISTRY["ones_like"](out.detach())], False, level.outer)
                out, aux = level.released(out), level.released(aux)
        finally:
            level.close()
        gradients = unflatten(shape, found)
        if not isinstance(argnums, tuple):
            (gradients,) = gradients
        return gradients, ((out, aux) if has_aux else out)

    return _named(gradient_and_value, func)


def grad(func: Callable, argnums: int | tuple[int, ...] = 0, has_aux: bool = False) -> Callable:
    """Make a function that returns the gradient of `func`, which gives one number.

    argnums: by which arguments; a tuple gives a tuple.  has_aux: func returns (number, aux), and the function
    (gradient, aux).  Composes with itself, vmap, jvp and autograd.  Raises GradError.
    """
    require_callable(func, "grad")
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return _named(gradient, func)


def _named(made: Callable, func: Callable) -> Callable:
    made.__name__ = made.__qualname__ = f"{made.__name__}_of_{getattr(func, '__name__', 'function')}"
    return refusing(made)


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> tuple:
    """Compute func(*primals), and a function from cotangents, nested as the output, to those of primals.

    has_aux: func returns (output, aux), and a third is aux.  The function gives a tuple with one for each
    primal.  Raises GradError, ShapeError.
    """
    require_callable(func, "vjp")
    shape, leaves = flatten(primals)
    require_tensors(leaves, "vjp: primals")
    level = Reverse(leaves)
    try:
        with modes.enable_grad():
            out, aux = with_aux(
                modes.call_user_with(func, unflatten(shape, level.inputs), {}), has_aux, "vjp"
            )
            out_shape, ys = flatten(out)
            require_tensors(ys, "vjp: what func returns", floating=False)
            results = level.released(out), level.released(aux)
    finally:
        level.close()

    def pullback(*cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given = cotangents[0] if len(cotangents) == 1 and not _same(out_shape, cotangents) else cotangents
        given_shape, vs = flatten(given)
        require_tensors(vs, "vjp: cotangents", floating=False)
        if given_shape != out_shape:
            raise ArgumentValueError(
                "vjp: Expected pytree structure of cotangents to be the same as pytree structure of outputs",
                f"there are {len(vs)} for {len(ys)}",
            )
        for y, v in zip(ys, vs, strict=True):
            if y.shape != v.shape:
                raise ShapeError(
                    "vjp: a cotangent must have the shape of its output",
                    f"output: {y._meta}",
                    f"cotangent: {v._meta}",
                )
            check_together("vjp", y, v)
        create = modes.is_grad_enabled() if create_graph is None else create_graph
        with modes.enable_grad():
            return unflatten(shape, level.back(ys, vs, retain_graph, create))

    back = refusing(pullback, "vjp")
    return (results[0], back, results[1]) if has_aux else (results[0], back)


def _same(shape: Shape, x: Any) -> bool:
    return flatten(x)[0] == shape


# ---- whole Jacobians ---------------------------------------------------------------------------------------
def _basis(xs: Sequence[Tensor]) -> list[Tensor]:
    """For all elements of several tensors together, the tensors of which one element is 1.

    Shapes: [...], [---] of n elements in all -> [n, ...], [n, ---].
    """
    sizes = [x.numel() for x in xs]
    total, start, found = sum(sizes), 0, []
    for x, size in zip(xs, sizes, strict=True):
        place = x.device if x.is_cuda else None
        rows = ops.arange(total, device=place).reshape((total, 1))
        columns = ops.arange(start, start + size, device=place).reshape((1, size))
        found.append(REGISTRY["cast"](rows == columns, dtype=x.dtype).reshape((total, *x.shape)))
        start += size
    return found


def _rows(function: Callable, vectors: Sequence[Tensor], chunk: int | None, randomness: str) -> list[Tensor]:
    """`function` of every row of the basis: tensors with these rows in front."""
    total = vectors[0].shape[0]
    if not total:
        like = function(*(REGISTRY["new_zeros"](v, tuple(v.shape[1:])) for v in vectors))
        return [REGISTRY["new_zeros"](y, (0, *y.shape)) for y in like]
    if chunk == 1:  # row by row: for functions that vmap can't take
        rows = [function(*(REGISTRY["basic_index"](v, i) for v in vectors)) for i in range(total)]
        return [REGISTRY["stack"](column) for column in zip(*rows, strict=True)]
    return vmap(function, 0, 0, randomness, chunk_size=chunk)(*vectors)


def _cut(x: Tensor, others: Sequence[Tensor]) -> list[Tensor]:
    """The rows of each of several tensors: [n, ...] -> [---, ...] for each."""
    start, found = 0, []
    for other in others:
        rows = x[start : start + other.numel()]
        found.append(REGISTRY["reshape"](rows, (*other.shape, *x.shape[1:])))
        start += other.numel()
    return found


def jacrev(
    func: Callable,
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable:
    """Make a function that returns the Jacobian of `func` by reverse mode: all its rows at once, by vmap.

    chunk_size: at most so many rows at once.  Shapes: output [...], argument [---] -> [..., ---], nested as
    the output and in it as the argument.  Raises GradError.
    """
    require_callable(func, "jacrev")
    if chunk_size is not None and chunk_size < 1:
        raise ArgumentValueError(f"jacrev: `chunk_size` should be greater than 0. (got {chunk_size!r})")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        places = chosen(args, argnums, "jacrev")
        shape, leaves = _split(args, places, "jacrev: what is differentiated by")
        structure: list[Shape] = []

        def flat(*xs: Tensor) -> Any:
            given = _replaced(args, places, unflatten(shape, xs))
            out, aux = with_aux(modes.call_user_with(func, given, kwargs), has_aux, "jacrev")
            structure[:], ys = [flatten(out)[0]], flatten(out)[1]
            require_tensors(ys, "jacrev: what func returns")
            require_some(ys, "jacrev: what func returns")
            return tuple(ys), aux

        ys, pullback, aux = vjp(flat, *leaves, has_aux=True)

        def row(*vs: Tensor) -> tuple:
            return pullback(vs)

        columns = _rows(row, _basis(ys), chunk_size, "same")
        cut = [_cut(column, ys) for column in columns]  # [leaf][output]
        found = _nested(structure[0], shape, [[column[j] for column in cut] for j in range(len(ys))], argnums)
        return (found, aux) if has_aux else found

    return _named(jacobian, func)


def _nested(out: Shape, shape: Shape, blocks: list[list[Tensor]], argnums: Any) -> Any:
    """Blocks by output and argument, nested as these are."""
    inner = [unflatten(shape, row) for row in blocks]
    return unflatten(out, [row if isinstance(argnums, tuple) else row[0] for row in inner])


def jacfwd(
    func: Callable,
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable:
    """Make a function that returns the Jacobian of `func` by forward mode: all columns at once, by vmap.

    randomness: as in vmap.  Shapes: output [...], argument [---] -> [..., ---], nested as the output
    and in it as the argument.  Raises GradError.
    """
    require_callable(func, "jacfwd")

    def jacobian(*args: Any, **kwargs: Any) -> Any:
        places = chosen(args, argnums, "jacfwd")
        shape, leaves = _split(args, places, "jacfwd: what is differentiated by")
        structure: list[Any] = []

        def flat(*xs: Tensor) -> Any:
            given = _replaced(args, places, unflatten(shape, xs))
            out, aux = with_aux(modes.call_user_with(func, given, kwargs), has_aux, "jacfwd")
            out_shape, ys = flatten(out)
            require_tensors(ys, "jacfwd: what func returns")
            structure[:] = [out_shape]
            return tuple(ys), aux

        def column(*vs: Tensor) -> Any:
            _, tangents, aux = jvp_of(flat, tuple(leaves), tuple(vs), has_aux=True)
            aux_shape, extra = flatten(aux)
            structure[1:] = [aux_shape, [None if isinstance(a, Tensor) else (a,) for a in extra]]
            return (*tangents, *(a for a in extra if isinstance(a, Tensor)))

        rows = _rows(column, _basis(leaves), None, randomness)
        count = len(rows) - sum(a is None for a in structure[2])
        blocks = []
        for y in rows[:count]:  # [n, output] -> [output, argument] for each
            last = [
                REGISTRY["permute"](part, (*range(x.ndim, part.ndim), *range(x.ndim)))
                for part, x in zip(_cut(y, leaves), leaves, strict=True)
            ]
            blocks.append(last)
        found = _nested(structure[0], shape, blocks, argnums)
        if not has_aux:
            return found
        given = iter(rows[count:])
        return found, unflatten(structure[1], [next(given)[0] if a is None else a[0] for a in structure[2]])

    return _named(jacobian, func)


def hessian(func: Callable, argnums: int | tuple[int, ...] = 0) -> Callable:
    """Make a function that returns the Hessian of `func`: forward over reverse.

    Shapes: argument [---], output [...] -> [..., ---, ---].  Raises GradError.
    """
    return jacfwd(jacrev(func, argnums), argnums)


def jvp(func: Callable, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> tuple:
    """Compute func(*primals), and how it changes where the primals move by `tangents`.

    has_aux: func returns (output, aux), and a third is aux.  strict: raise where an output does not depend on
    them, in place of zeros.  Raises GradError, ShapeError.
    """
    require_callable(func, "jvp")
    return jvp_of(func, primals, tangents, has_aux=has_aux, strict=strict)


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """Compute func(*primals), and the linear function that takes tangents to those of the output.

    The function runs once; the linear one goes back through its history twice.  Raises GradError.
    """
    require_callable(func, "linearize")
    shape, leaves = flatten(primals)
    require_tensors(leaves, "linearize: primals")
    structure: list[Shape] = []

    def flat(*xs: Tensor) -> tuple:
        out_shape, ys = flatten(modes.call_user_with(func, unflatten(shape, xs), {}))
        require_tensors(ys, "linearize: what func returns")
        structure[:] = [out_shape]
        return tuple(ys)

    ys, pullback = vjp(flat, *leaves)
    zeros = [REGISTRY["zeros_like"](y.detach()) for y in ys]

    def linear(*tangents: Any) -> Any:
        given_shape, vs = flatten(tangents)
        if given_shape != shape:
            raise ArgumentValueError("linearize: the tangents must be nested as the primals are")
        require_tensors(vs, "linearize: tangents", floating=False)

        def pulled(*cs: Tensor) -> tuple:
            return pullback(cs)

        _, transposed = vjp(pulled, *zeros)
        return unflatten(structure[0], transposed(tuple(vs)))

    return unflatten(structure[0], ys), refusing(linear, "linearize")


def functionalize(func: Callable, *, remove: str = "mutations") -> Callable:
    """Make a function that gives what `func` gives, whose in-place ops are no matter to anyone: it is `func`.

    Recording a function writes its in-place ops as plain ones (`jit.trace`), and transforms follow writes, so
    there is nothing to remove beforehand.  Raises ArgumentValueError.
    """
    require_callable(func, "functionalize")
    if remove not in ("mutations", "mutations_and_views"):
        raise ArgumentValueError(
            f"functionalize(remove): must be 'mutations' or 'mutations_and_views', not {remove!r}"
        )

    @wraps(func)
    def plain(*args: Any, **kwargs: Any) -> Any:
        return modes.call_user_with(func, args, kwargs)

    return plain


refusing_names(globals(), __name__)

__all__ = [
    "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp",
    "vmap",
]  # fmt: skip
