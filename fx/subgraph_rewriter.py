"""Finding a pattern in a graph, and putting something else in its place."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .graph import Graph
from .graph_module import GraphModule, _assign_attr, _at
from .node import Node
from .tracer import symbolic_trace


class Match(NamedTuple):
    """anchor: the pattern's last step, as found.  nodes_map: from the pattern's nodes to those found."""

    anchor: Node
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """The same, with the nodes that came in its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


@dataclass
class InternalMatch:
    """Where a pattern was found: its nodes, those that it returns, what its inputs are."""

    anchors: list[Node]
    nodes_map: dict[Node, Node] = field(default_factory=dict)
    placeholder_nodes: list[Node] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


class SubgraphMatcher:
    """Finds where a graph does what a pattern does.

    match_output, match_placeholder: whether inputs and output must be that in both.
    remove_overlapping_matches: of those that share steps, keep the first.  ignore_literals: take any number
    or text where the pattern has one.
    """

    def __init__(
        self, pattern: Graph, match_output: bool = False, match_placeholder: bool = False,
        remove_overlapping_matches: bool = True, ignore_literals: bool = False,
    ) -> None:  # fmt: skip
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches, self.ignore_literals = remove_overlapping_matches, ignore_literals
        if not len(pattern.nodes):
            raise ValueError("SubgraphMatcher cannot be initialized with an empty pattern")
        for node in pattern.nodes:
            if node.op != "output" and not node.users:
                raise AssertionError("SubgraphMatcher cannot be initialized with an pattern with dead code")
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        output = pattern.output_node()
        self.pattern_returning_nodes = output.all_input_nodes
        self.pattern_anchors = [output] if match_output else [
            n for n in self.pattern_returning_nodes if set(n.users) == {output}
        ]  # fmt: skip

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """Where the pattern stands in a graph, in the graph's order."""
        first, *others = self.pattern_anchors or self.pattern_returning_nodes[:1]
        found = []
        for node in graph.nodes:
            match = InternalMatch(anchors=[first, *others])
            if not self._matches(first, node, match):
                continue
            found += self._with_others(graph, others, match)
        whole = [m for m in found if self._is_contained(m)]
        if self.remove_overlapping_matches:
            taken: set[Node] = set()
            kept = []
            for m in whole:
                held = {gn for pn, gn in m.nodes_map.items() if pn.op not in ("placeholder", "output")}
                if held & taken:
                    continue
                taken |= held
                kept.append(m)
            whole = kept
        for m in whole:
            m.placeholder_nodes = [m.nodes_map[pn] for pn in self.pattern_placeholder_nodes]
            m.returning_nodes = [m.nodes_map[pn] for pn in self.pattern_returning_nodes]
        return whole

    def _with_others(self, graph: Graph, others: list[Node], match: InternalMatch) -> list[InternalMatch]:
        if not others:
            return [match]
        found = []
        for node in graph.nodes:
            more = InternalMatch(anchors=match.anchors, nodes_map=dict(match.nodes_map))
            if self._matches(others[0], node, more):
                found += self._with_others(graph, others[1:], more)
        return found

    def _is_contained(self, match: InternalMatch) -> bool:
        """Whether only what the pattern returns is used outside of it."""
        inside = {gn for pn, gn in match.nodes_map.items() if pn.op != "placeholder"}
        for pn, gn in match.nodes_map.items():
            if pn.op in ("placeholder", "output") or pn in self.pattern_returning_nodes:
                continue
            if any(user not in inside for user in gn.users):
                return False
        return True

    def _matches(self, pn: Any, gn: Any, match: InternalMatch) -> bool:
        if not isinstance(pn, Node) or not isinstance(gn, Node):
            return False
        if pn in match.nodes_map:
            return match.nodes_map[pn] is gn
        if gn in match.nodes_map.values() and pn.op != "placeholder":
            return False
        if not self._same_kind(pn, gn):
            return False
        match.nodes_map[pn] = gn
        if pn.op == "placeholder":
            return True
        before = dict(match.nodes_map)
        if self._same_arguments(pn, gn, match):
            return True
        match.nodes_map = before
        match.nodes_map.pop(pn)
        return False

    def _same_kind(self, pn: Node, gn: Node) -> bool:
        if pn.op == "placeholder":
            return not self.match_placeholder or gn.op == "placeholder"
        if pn.op != gn.op:
            return False
        if pn.op == "output":
            return True
        if pn.op in ("get_attr", "call_module"):
            ours, theirs = (_at(n.graph.owning_module, n.target) for n in (pn, gn))
            if ours is None or theirs is None:
                return pn.target == gn.target
            return type(ours) is type(theirs)
        return pn.target == gn.target

    def _same_arguments(self, pn: Node, gn: Node, match: InternalMatch) -> bool:
        ours, theirs = _flat(pn), _flat(gn)
        if ours is None or theirs is None or len(ours) != len(theirs):
            return False
        return all(self._same(a, b, match) for a, b in zip(ours, theirs, strict=True))

    def _same(self, a: Any, b: Any, match: InternalMatch) -> bool:
        if isinstance(a, Node):
            if isinstance(b, Node):
                return self._matches(a, b, match)
            if a.op == "placeholder" and not self.match_placeholder:  # an input that is a constant there
                if a in match.nodes_map:
                    return match.nodes_map[a] == b
                match.nodes_map[a] = b
                return True
            return False
        if isinstance(b, Node):
            return False
        if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
            return len(a) == len(b) and all(self._same(x, y, match) for x, y in zip(a, b, strict=True))
        if isinstance(a, dict) and isinstance(b, dict):
            return a.keys() == b.keys() and all(self._same(a[k], b[k], match) for k in a)
        return self.ignore_literals or type(a) is type(b) and a == b


def _flat(node: Node) -> list[Any] | None:
    """Arguments by place, those by name as the target's signature has them, or in alphabetic order."""
    if not node.kwargs:
        return list(node.args)
    names = sorted(node.kwargs)
    return [*node.args, *(node.kwargs[name] for name in names), *names]


def replace_pattern(
    gm: GraphModule, pattern: Callable | GraphModule, replacement: Callable | GraphModule
) -> list[Match]:
    """Put `replacement` wherever `gm` does what `pattern` does, functions of the same inputs.

    Steps of the pattern whose result is used elsewhere are no match, unless the pattern returns it.  Matches
    don't overlap.  Returns where they were; `gm` is compiled anew.
    """
    found = _replaced(gm, pattern, replacement)
    return [Match(anchor=m.anchor, nodes_map=m.nodes_map) for m in found]


def replace_pattern_with_filters(
    gm: GraphModule, pattern: Any, replacement: Any = None, match_filters: list[Callable] | None = None,
    ignore_literals: bool = False, replacement_callback: Callable | None = None, node_name_match: str = "",
) -> list[ReplacedPatterns]:  # fmt: skip
    """The same where all `match_filters(match, graph, pattern)` say yes.

    replacement_callback: makes a replacement for each match, (match, graph, pattern).
    """
    return _replaced(gm, pattern, replacement, match_filters, ignore_literals, replacement_callback)


def _graph_of(what: Any) -> Graph:
    if isinstance(what, GraphModule):
        return what.graph
    return what if isinstance(what, Graph) else symbolic_trace(what).graph


def _replaced(
    gm: GraphModule, pattern: Any, replacement: Any, filters: list[Callable] | None = None,
    ignore_literals: bool = False, callback: Callable | None = None,
) -> list[ReplacedPatterns]:  # fmt: skip
    graph, wanted = gm.graph, _graph_of(pattern)
    matcher = SubgraphMatcher(wanted, ignore_literals=ignore_literals)
    matches = [m for m in matcher.match(graph) if all(f(m, graph, wanted) for f in filters or ())]
    common = _graph_of(replacement) if replacement is not None else None
    changed: dict[Node, Node] = {}
    results = []
    for match in matches:
        new = common
        if callback is not None:
            new = _graph_of(callback(match, graph, wanted))
        if new is None:
            raise ValueError("replace_pattern: a replacement is needed, or a replacement_callback")
        inputs = [n for n in new.nodes if n.op == "placeholder"]
        if len(inputs) != len(match.placeholder_nodes):
            raise AssertionError("pattern and replacement must take the same number of inputs")
        values: dict[Node, Any] = {}
        for place, found in zip(inputs, match.placeholder_nodes, strict=True):
            values[place] = changed.get(found, found) if isinstance(found, Node) else found
        held = {
            gn
            for pn, gn in match.nodes_map.items()
            if isinstance(gn, Node) and pn.op not in ("placeholder", "output")
        }
        first = next((n for n in graph.nodes if n in held), None)
        last = next(n for n in reversed(graph.nodes) if n in held or n in match.returning_nodes)
        before = set(graph.nodes)
        at = _insertion(graph, first, last, values)
        with at:
            result = graph.graph_copy(new, values)
        added = [n for n in graph.nodes if n not in before]
        returned = result if isinstance(result, (tuple, list)) else (result,)
        if len(returned) != len(match.returning_nodes):
            raise AssertionError("pattern and replacement must return the same number of values")
        for old, made in zip(match.returning_nodes, returned, strict=True):
            old.replace_all_uses_with(made)
            changed[old] = made
        for node in [n for n in reversed(graph.nodes) if n in held]:
            if not node.users:
                graph.erase_node(node)
        _take_members(gm, new)
        results.append(ReplacedPatterns(match.nodes_map[match.anchors[0]], dict(match.nodes_map), added))
    gm.recompile()
    return results


def _insertion(graph: Graph, first: Node | None, last: Node, values: dict[Node, Any]) -> Any:
    """Where a replacement can stand: before its match, if all that it takes stands before that."""
    order = {n: i for i, n in enumerate(graph.nodes)}
    needed = [order[v] for v in values.values() if isinstance(v, Node) and v in order]
    if first is not None and all(i < order[first] for i in needed):
        return graph.inserting_before(first)
    return graph.inserting_before(last) if last.op != "placeholder" else graph.inserting_after(last)


def _take_members(gm: GraphModule, new: Graph) -> None:
    """Give a module what the steps of a replacement name, and drop what no step names any more."""
    gm.delete_all_unused_submodules()
    owner = new.owning_module
    for node in gm.graph.nodes:
        if node.op in ("call_module", "get_attr"):
            if owner is not None and _at(gm, node.target) is None:
                _assign_attr(copy.deepcopy(_at(owner, node.target)), gm, node.target)
    gm.graph.lint()
