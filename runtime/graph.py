"""History: nodes that remember how a tensor came about.

There is no tape.  A tensor holds its own node, a node holds arrays and edges and never its output, so a dead
part of the history is freed by reference counting at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from . import modes
from .places import Place, spell

if TYPE_CHECKING:
    from .plan import Plan
    from .tensor import Tensor

new = object.__new__


class Node:
    """One step of history.

    plan: the op with its attrs and types.  edges: where each operand came from (None: no gradient wanted).
    saved: the arrays that the gradient needs, by `plan.op.saves`; None once they were freed.  guards:
    storage, version, storage, version …: of whatever is saved, as it was then.  place: the user's line.
    hooks: {output number: functions}, and the node's own by BEFORE and AFTER (step.py).
    """

    __slots__ = ("plan", "edges", "saved", "guards", "place", "hooks")

    plan: Plan
    edges: tuple
    saved: tuple | None
    guards: tuple
    place: Place | None
    hooks: dict[int | str, list[Callable]] | None

    @property
    def op_name(self) -> str:
        return self.plan.op.name

    def name(self) -> str:
        """The name as PyTorch spells it: MulBackward0 for op mul, FBackward for a custom function F."""
        name = self.plan.op.name
        if self.plan.foreign:
            return f"{name}Backward"
        return f"{''.join(part.capitalize() for part in name.split('_'))}Backward0"

    @property
    def next_functions(self) -> tuple:
        """PyTorch's spelling of `edges`: pairs of (node, which of its outputs)."""
        if modes.CHANGED:
            modes.tell("refuse", "the nodes that a history comes from were asked for")
        return tuple((shown(e.node), e.index) if type(e) is Port else (shown(e), 0) for e in self.edges)

    def saver(self, guard: int) -> tuple[str, str]:
        """Who saved what guard number `guard` is about: the op's name, and its line as errors show it."""
        return self.op_name, spell(self.place)

    def freed(self) -> tuple[str, str]:
        """Who had saved what was freed: the op's name, and its line as errors show it."""
        return self.op_name, spell(self.place)

    def __repr__(self) -> str:
        return f"<{self.name()} object at {hex(id(self))}>"


class Saving(Node):
    """A node as it is made: nobody has hung a hook on it yet."""

    __slots__ = ()
    hooks = None


class Light(Node):
    """A node that saves nothing, as most don't: then there is nothing to fill in but plan and edges."""

    __slots__ = ()
    saved = guards = ()
    place = hooks = None


class Owner(ref):
    """How what belongs to a tensor or a module reaches it: a reference of the library's own, not a user's.

    CPython hands out one plain reference to all who ask; of this kind each is another.
    """

    __slots__ = ()


class Leaf:
    """Where history ends: the owner of a parameter's `.grad`.

    kind: the type that a gradient must have; None while its tensor does not ask for one.  owner: a weak
    reference to the tensor, for hooks that want it.
    """

    __slots__ = ("kind", "grad", "hooks", "after", "owner", "__weakref__")
    edges = ()
    op_name = "leaf"
    next_functions = ()

    kind: Any
    grad: Tensor | None
    hooks: dict[int | str, list[Callable]] | None
    after: list[Callable] | None
    owner: Callable[[], Tensor | None]

    def name(self) -> str:
        return "torch::autograd::AccumulateGrad"

    @property
    def variable(self) -> Tensor | None:
        """The tensor whose gradient is accumulated here; None once it is gone."""
        return self.owner()

    def __repr__(self) -> str:
        return f"<AccumulateGrad object at {hex(id(self))}>"


Leaf.__name__ = Leaf.__qualname__ = "AccumulateGrad"  # as programs that draw history ask for it


class Port(tuple):
    """One output of a node that has several.  Two ports of one output are equal: a pair, hashed as such."""

    __slots__ = ()

    def __new__(cls, node: Node, index: int):
        return tuple.__new__(cls, (node, index))

    node: Any = property(itemgetter(0))
    index: Any = property(itemgetter(1))

    @property
    def op_name(self) -> str:
        return self.node.op_name

    def name(self) -> str:
        return self.node.name()

    @property
    def hooks(self) -> dict[int | str, list[Callable]] | None:
        return self.node.hooks

    @property
    def edges(self) -> tuple:
        return (self.node,)

    @property
    def next_functions(self) -> tuple:
        if modes.CHANGED:
            modes.tell("refuse", "the nodes that a history comes from were asked for")
        return ((shown(self.node), self.index),)

    def __repr__(self) -> str:
        return f"<output {self.index} of {self.node!r}>"


@cache
def _spelled(kind: type[Node], name: str) -> type[Node]:
    """The same class under the name that PyTorch gives to the nodes of an op."""
    return type(name, (kind,), {"__slots__": (), "__module__": kind.__module__})


def shown(edge: Any) -> Any:
    """A node or leaf as a user may look at it: of a class with the node's name, which costs too much to be
    asked for when nodes are made."""
    kind = type(edge)
    if kind is Light or kind is Saving or kind is Node:
        edge.__class__ = _spelled(kind, edge.name())
    return edge


def hooks_of(edge: Node | Leaf | Port) -> dict[int | str, list[Callable]]:
    """The hooks of an edge, to add to.  A node gets room for them, which it lacks until then."""
    node: Any = edge.node if type(edge) is Port else edge
    light = isinstance(node, Light)
    if light or isinstance(node, Saving):
        node.__class__ = Node
        node.hooks = None
    if light:
        node.saved, node.guards, node.place = (), (), None
    if node.hooks is None:
        node.hooks = {}
    return node.hooks


Edge = Node | Leaf | Port


class GradientEdge(NamedTuple):
    """A place in history that gradients flow through: an output of a node."""

    node: Any
    output_nr: int
    ownership_token: Any = None
