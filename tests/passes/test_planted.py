"""Planted bugs: an edit of a pass's own text, and the net that must be the first to see it.

The nets, in their order: errors, raised by the pass, the verifier or the run; bits, which compares what
random graphs and the examples give before and after; golden, the texts and the graphs that must stay.
"""

from functools import partial
from pathlib import Path

import pytest
import test_cse
import test_dce
import test_fold_constants
import test_fold_conv_bn
import test_functionalise
import test_simplify
from edited import edited
from generate import agree, arrays_for, pure_graph, random_graph
from golden_cases import shown

from lamina.ir import parse, verify
from lamina.passes.graphs.dce import dce

GOLDEN = Path(__file__).parent.parent / "golden" / "passes"
TEXTS = {
    "cse": test_cse.CASES,
    "dce": test_dce.CASES,
    "fold_constants": test_fold_constants.CASES,
    "fold_conv_bn": test_fold_conv_bn.CASES,
    "functionalise": test_functionalise.CASES,
}

BUGS = {
    # cse
    "attrs are not looked at": ("cse", "exact(tuple(node.attrs.values()))", "0", "bits"),
    "every op commutes": ("cse", "node.op.traits.commutative and", "len(inputs) == 2 and", "bits"),
    "0.0 is taken for -0.0": ("cse", "(float, attr.hex())", "attr", "golden"),
    "constants are merged by value alone": (
        "cse",
        "(constant.type, constant.data.tobytes())",
        "constant.type",
        "bits",
    ),
    "results keep what is gone": (
        "cse",
        "(became.get(v, v) for v in graph.results)",
        "graph.results",
        "error",
    ),
    # dce
    "operands are not kept": (
        "dce",
        "wanted.update(v for v in step.inputs if v is not None and v not in known)",
        "pass",
        "error",
    ),
    "the first output stands for all": (
        "dce",
        "not wanted.isdisjoint(step.outputs)",
        "step.outputs[0] in wanted",
        "error",
    ),
    "what refuses values goes": ("dce", "(*graph.results, *refusing)", "graph.results", "golden"),
    # fold_constants
    "draws are folded": (
        "fold_constants",
        "not (node.op.traits.random or node.op.traits.meets)",
        "not node.op.traits.meets",
        "golden",
    ),
    "the limit is not kept": ("fold_constants", "t.size <= self.limit", "True", "golden"),
    "creation ops are folded": ("fold_constants", "and node.outputs[0].ndim:", "and False:", "golden"),
    "all outputs are the first": (
        "fold_constants",
        "pairs = zip(node.outputs, found, strict=True)",
        "pairs = ((v, found[0]) for v in node.outputs)",
        "bits",
    ),
    # functionalise
    "views are not derived anew": (
        "functionalise",
        "self.known[root] = {chain: new, (): whole}",
        "self.known[root] = self.known.get(root, {}) | {chain: new, (): whole}",
        "bits",
    ),
    "what is written is not cast": ("functionalise", "if new.dtype is not root.dtype:", "if False:", "error"),
    "the last write of a chain only": ("functionalise", '{"chain": views}', '{"chain": views[-1:]}', "error"),
    "a view is written from the original base": (
        "functionalise",
        "(self.read(root), new)",
        "(root, new)",
        "bits",
    ),
    "results are not the final values": (
        "functionalise",
        "[memory.read(v) for v in (*graph.results, *changed)]",
        "[*graph.results, *map(memory.read, changed)]",
        "error",
    ),
    "params in another order": (
        "functionalise",
        "*graph.results, *changed)",
        "*graph.results, *list(changed)[::-1])",
        "bits",
    ),
    "overlaps pass": ("functionalise", "np.unique(places).size < places.size", "False", "golden"),
    "reshape counts as a copy": ("functionalise", "if root in self.stale:", "if False:", "golden"),
    # simplify
    "x + 0.0 -> x": ("simplify", "and s.never_minus_zero(x):", "and True:", "bits"),
    "the integer 0 counts as -0.0": ("simplify", "number = float(number)", "pass", "golden"),
    "x - -0.0 -> x": (
        "simplify",
        "is_zero(s.number(n.inputs[1]), 1.0)",
        "s.number(n.inputs[1]) == 0",
        "golden",
    ),
    "x * 2 -> x": (
        "simplify",
        '("mul",), neutral(1, lambda n: n == 1)',
        '("mul",), neutral(1, lambda n: n)',
        "bits",
    ),
    "x / 3 -> x * (1 / 3)": ("simplify", "abs(digits) != 0.5 or", "number == 0 or", "golden"),
    "types are not compared": (
        "simplify",
        "found is not None and found.type is out.type",
        "found is not None",
        "error",
    ),
    "pow(x, 0.5) -> square(x)": ("simplify", '0.5: "sqrt"', '0.5: "square"', "bits"),
    "every cast loses nothing": ("simplify", "if not holds(middle, x.dtype):", "if False:", "bits"),
    "the other branch": ("simplify", "a if truth or a is b else b", "b if truth or a is b else a", "bits"),
    "zeros for ones": ("simplify", '"ones_like": 1', '"ones_like": 0', "bits"),
    "turned the other way": (
        "simplify",
        "tuple(inner[d] for d in dims)",
        "tuple(dims[d] for d in inner)",
        "golden",
    ),
    "the stride of the first index is lost": (
        "simplify",
        "first = start + item[1] * stride",
        "first = start + item[1]",
        "bits",
    ),
    "a sum of one may be -0.0": ("simplify", '(node.op.name == "sum" and not', "(False and not", "golden"),
    "a scatter replaces another region": (
        "simplify",
        'made.attrs["chain"] != node.attrs["chain"]',
        "False",
        "golden",
    ),
    "a part counts as all": (
        "simplify",
        "if not all(map(takes_all, chain, shapes, shapes[1:])):",
        "if False:",
        "error",
    ),
    "a permutation is not undone": (
        "simplify",
        's.emit("permute", value, dims=back)',
        's.emit("permute", value, **attrs)',
        "error",
    ),
    # fold_conv_bn
    "the layer's output is used otherwise": ("fold_conv_bn", "uses[layer.outputs[0]] == 1", "True", "golden"),
    "eps is forgotten": ("fold_conv_bn", 'variance + norm.attrs["eps"]', "variance", "golden"),
    "the mean is not scaled": ("fold_conv_bn", "else (bias - mean) * scale", "else bias - mean", "golden"),
    "any channels": ("fold_conv_bn", "and _channels_agree(layer)", "", "golden"),
}


def step_of(name, right, wrong):
    """The pass of an edited copy of its module."""
    return getattr(edited(f"lamina.passes.graphs.{name}", right, wrong), name)


def net_that_sees(name, step):
    """The first net that sees something wrong in what the pass makes, of three."""
    for net in (random_net, example_net, golden_net):
        if seen := net(name, step):
            return seen
    return None


def random_net(name, step):
    if name == "fold_conv_bn":  # no random graph holds one
        return None
    graphs = (random_graph(s, writes=True) if name == "functionalise" else pure_graph(s) for s in range(100))
    return first_seen(step, ((graph, arrays_for(graph, 0)) for graph in graphs))


def example_net(name, step):
    graphs = test_simplify.EXAMPLES.values() if name == "simplify" else ()
    return first_seen(step, ((graph, arrays_for(graph, seed)) for graph in graphs for seed in range(5)))


def first_seen(step, runs):
    for graph, arrays in runs:
        try:
            made = step(graph)
            verify(made)
            agree(graph, made, arrays)
        except AssertionError:
            return "bits"
        except Exception:  # while it was made, verified or run
            return "error"
    return None


def golden_net(name, step):
    texts = {name: {title: parse(text) for title, text in TEXTS[name].items()}} if name in TEXTS else {}
    if name == "functionalise":
        texts["functionalise_refused"] = {t: parse(text) for t, text in test_functionalise.REFUSED.items()}
    if name == "simplify":
        texts["simplify"] = test_simplify.EXAMPLES
        if any(step(graph) is not graph for graph in test_simplify.KEPT.values()):
            return "golden"
        step = partial(then_dce, step)
    for file, graphs in texts.items():
        try:
            text = shown(step, graphs)
        except Exception:
            return "golden"
        if text + "\n" != (GOLDEN / f"{file}.txt").read_text(encoding="utf-8"):
            return "golden"
    return None


def then_dce(step, graph):
    return dce(step(graph))


def test_each_bug_has_its_place():
    """Every day, as a day tries a few of them alone, and passes change."""
    for name, right, wrong, _ in BUGS.values():
        step_of(name, right, wrong)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("bug", BUGS)
def test_planted(bug):
    name, right, wrong, net = BUGS[bug]
    assert net_that_sees(name, step_of(name, right, wrong)) == net


@pytest.mark.parametrize("name", sorted({name for name, *_ in BUGS.values()}))
def test_no_net_sees_a_pass_as_it_is(name):
    assert net_that_sees(name, step_of(name, "from __future__", "from __future__")) is None
