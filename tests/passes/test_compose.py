"""compose: kernels as text, what one kernel can't say, rounding, and planted bugs."""

import numpy as np
import pytest
from fusing import OPS, Maker, arrays_for, t

from lamina.ir import Builder
from lamina.ir.dtypes import float16, int64
from lamina.ir.errors import KernelError, Unsayable
from lamina.ir.interpret import interpret
from lamina.ir.kernel.interpret import interpret as run
from lamina.ir.kernel.substitute import Substitution
from lamina.ir.kernel.text import parse as parse_kernel
from lamina.ir.kernel.verify import verify
from lamina.passes.graphs import compose as module
from lamina.passes.graphs import pieces
from lamina.passes.graphs.compose import compose


def graph_of(build, *types):
    with Builder("f") as b:
        made = build(*(b.param(x) for x in types))
        return b.finish(made)


def permuted_slice(x, y):
    return (OPS["transpose"](x, 0, 1) + y)[1:3, ::2] * 2.0


def norm_backward(g, out, x, mean, variance):
    """relu, then batch norm: four outputs of two sums and of what uses them."""

    def row(v):
        return OPS["reshape"](v, (1, 3, 1, 1))

    g = OPS["where"](out > 0.0, g, 0.0)
    scaled = (x - row(mean)) * row(OPS["rsqrt"](variance + 1e-5))
    shift, scale = OPS["sum"](g, (0, 2, 3)), OPS["sum"](g * scaled, (0, 2, 3))
    return [(g - row(shift) * 0.01 - scaled * row(scale)), shift, scale]


def cross_entropy_rows(x, target):
    index = OPS["unsqueeze"](target, 1)
    return OPS["logsumexp"](x, 1) - OPS["reshape"](OPS["gather"](x, 1, index), (5,))


def attention_scores(q, k):
    q, k = (OPS["permute"](OPS["reshape"](x, (2, 5, 3, 4)), (0, 2, 1, 3)) for x in (q, k))
    return q @ OPS["transpose"](k, 2, 3) * 0.5


IMAGE = t(2, 3, 5, 5)
SAID = {
    "bias and activation behind a product": (lambda x, w, b: OPS["relu"](x @ w + b), t(8, 3), t(3, 4), t(4)),
    "a norm of given statistics, a residual and an activation behind a convolution": (
        lambda x, w, m, v, r: OPS["relu"](OPS["batch_norm_eval"](OPS["conv2d"](x, w), m, v) + r),
        t(1, 3, 6, 6), t(4, 3, 3, 3), t(4), t(4), t(1, 4, 4, 4),
    ),
    "what several loops read and is expensive is kept": (
        lambda x: OPS["softmax"](OPS["gelu"](x), 1) * 3.0, t(6, 10),
    ),
    "views in front and behind become indices": (permuted_slice, t(4, 6), t(6, 4)),
    "halves round where each op rounds": (
        lambda x, y: OPS["layer_norm"](x + y, (10,)), t(6, 10, dtype=float16), t(6, 10, dtype=float16),
    ),
    "sums and what uses them, several outputs": (norm_backward, IMAGE, IMAGE, IMAGE, t(3), t(3)),
    "padding of what no array holds": (
        lambda x: OPS["constant_pad"](OPS["exp"](x), ((0, 0), (1, 2)), 3.0) * 2.0, t(4, 6),
    ),
    "padding of what stages compute": (
        lambda x: OPS["constant_pad"](OPS["layer_norm"](x, (6,)), ((0, 0), (1, 2)), 3.0), t(4, 6),
    ),
    "a place that nobody asks for": (lambda x: OPS["relu"](OPS["max_pool2d"](x, 2)), t(1, 3, 8, 8)),
    "an indirect read": (cross_entropy_rows, t(5, 7), t(5, dtype=int64)),
    "dimensions of one element, which run in some kernels and not in others": (
        lambda x, y: OPS["relu"](OPS["batch_norm_train"](x)[0] + y), t(8, 3, 1, 1), t(8, 3, 1, 1),
    ),
    "split heads": (attention_scores, t(2, 5, 12), t(2, 5, 12)),
    "scalars": (lambda step, rate: rate / (1.0 - 0.9 ** step), t(), t()),
    "joined parts": (lambda x, y: OPS["cat"]((x * 2.0, OPS["exp"](y)), 1), t(3, 2), t(3, 4)),
}  # fmt: skip


def test_compose_golden(golden):
    texts = []
    for name, (build, *types) in SAID.items():
        kernel = compose(graph_of(build, *types))
        assert str(parse_kernel(str(kernel))) == str(kernel)
        texts.append(f"# {name}\n{kernel}")
    golden("passes/compose", "\n\n".join(texts))


@pytest.mark.parametrize("name", SAID)
def test_compose_computes_what_the_graph_does(name):
    build, *types = SAID[name]
    graph = graph_of(build, *types)
    kernel = compose(graph)
    verify(kernel)
    arrays = [np.abs(a) for a in arrays_for(graph)]  # variances and steps are not negative
    half = any(p.dtype is float16 for p in graph.params)
    for found, wanted in zip(run(kernel, *arrays), interpret(graph, *arrays), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        # sums of at most 100 terms in another order; of halves, one rounding that falls the other way
        np.testing.assert_allclose(found, wanted, rtol=2**-10 if half else 1e-4, atol=1e-5)


def several_places(e):
    return e + OPS["transpose"](e, 0, 1)


REFUSED = {
    "two products": (lambda x, w: (x @ w) @ w, t(4, 4), t(4, 4)),
    "rows of a product": (lambda x, w: OPS["softmax"](x @ w, 1), t(4, 4), t(4, 4)),
    "a reduction over the rows of another": (lambda x: OPS["sum"](OPS["softmax"](x, 1), 0), t(4, 6)),
    "what is expensive at several places": (lambda x: several_places(OPS["exp"](x)), t(4, 4)),
    "results that don't share their points": (lambda x: [OPS["sum"](x, 1), OPS["sum"](x, 0) * 2.0], t(4, 6)),
    "padding of what is computed at fewer points": (
        lambda x: OPS["constant_pad"](OPS["max_pool2d"](x, 2), ((0, 0), (0, 0), (0, 0), (0, 1)), 0.0),
        t(1, 1, 4, 4),
    ),
    "results of several sizes": (lambda x, y: [x * 2.0, y * 2.0], t(4, 6), t(4, 1)),
    "what is joined can't be read": (lambda x, y: OPS["cat"]((x, y), 0) * 2.0, t(4, 6), t(3, 6)),
    "merged dimensions": (lambda x: OPS["reshape"](x * 2.0, (24,)), t(4, 6)),
    "what the host runs": (lambda x: OPS["sort"](x)[0], t(4)),
    "a part that is picked from": (
        lambda x, i: OPS["index"](x[1:4], (i,)),
        t(8, 2), t(5, dtype=int64),
    ),
    "ones that are picked from": (lambda i: OPS["index"](OPS["arange"](4), (i,)), t(5, dtype=int64)),
    "an index that is picked": (
        lambda x, i, j: OPS["index"](x, (OPS["index"](i, (j,)),)), t(8), t(6, dtype=int64), t(5, dtype=int64)
    ),
}  # fmt: skip


def test_compose_refusals(golden):
    texts = []
    for name, (build, *types) in REFUSED.items():
        graph = graph_of(build, *types)
        with pytest.raises(Unsayable) as error:
            compose(graph)
        with pytest.raises(Unsayable, match=r".") as again:  # remembered, not asked again
            compose(graph)
        assert str(again.value) == str(error.value)
        texts.append(f"# {name}\n{error.value}")
    golden("passes/compose_refused", "\n\n".join(texts))


def test_compose_shares_kernels_between_graphs_of_one_structure():
    first = graph_of(lambda x: OPS["relu"](x) * 2.0, t(4, 6))
    assert compose(first) is compose(graph_of(lambda y: OPS["relu"](y) * 2.0, t(4, 6)))
    assert compose(first) is not compose(graph_of(lambda y: OPS["relu"](y) * 3.0, t(4, 6)))
    zero, minus = (graph_of(lambda x, n=n: x + n, t(3)) for n in (0.0, -0.0))
    assert compose(zero) is not compose(minus)


def outcome(graph):
    """The bits that the kernel of a graph gives, or that it is refused."""
    try:
        return [a.tobytes() for a in run(compose(graph), *arrays_for(graph))]
    except Unsayable:
        return "refused"


MADE = [Maker(seed, float16, elementwise=True).graph(8) for seed in range(60)]
GRAPHS = [graph.replace(results=graph.results[-1:]) for graph in MADE]
RIGHT = [(graph, outcome(graph)) for graph in GRAPHS]


@pytest.mark.parametrize("graph, bits", RIGHT)
def test_compose_fuzz_halves_bit_for_bit(graph, bits):
    """Elementwise ops and movement on halves: the kernel of all gives the bits that the ops give."""
    assert bits in ("refused", [a.tobytes() for a in interpret(graph, *arrays_for(graph))])


def test_compose_fuzz_says_most_graphs():
    """The fuzz above would test nothing if most graphs were refused."""
    assert sum(bits != "refused" for _, bits in RIGHT) >= 45


# ---- planted bugs

BUGS = {
    "an index loses its constant": lambda m: m.setattr(
        Substitution, "subscript", _without_constant(Substitution.subscript)
    ),
    "halves are not rounded between ops": lambda m: m.setattr(
        Substitution, "_rebuilt", _without_halves(Substitution._rebuilt)
    ),
    "what is padded is read where it is not": lambda m: m.setattr(
        module._Composer, "part_inside", lambda self, part, size: True
    ),
    "views are forgotten": lambda m: m.setattr(pieces, "plain", lambda part: None),
}


def _without_constant(part):
    def broken(self, index):
        found = part(self, index)
        return found - type(found)((), found.constant) if hasattr(found, "constant") else found

    return broken


def _without_halves(rebuilt):
    def broken(self, expr):
        found = rebuilt(self, expr)
        inner = getattr(found, "arg", None)
        twice = inner is not None and getattr(inner, "dtype", None) == "f16" and hasattr(inner, "arg")
        return inner.arg if twice and found.dtype == "f32" else found

    return broken


@pytest.mark.parametrize("name", BUGS)
def test_compose_planted_bugs_are_caught(name, monkeypatch):
    for memo in ("_kernels", "_drafts"):
        monkeypatch.setattr(module, memo, {})
    monkeypatch.setattr(pieces, "_pieces", {})
    BUGS[name](monkeypatch)
    try:
        assert any(outcome(graph) != right for graph, right in RIGHT)
    except KernelError as error:
        assert not isinstance(error, Unsayable), "a kernel that breaks a rule is seen, too"
