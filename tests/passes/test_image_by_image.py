"""image_by_image: a golden text, what may go so and what may not, the same numbers on threads."""

from functools import partial

import numpy as np
import pytest
from edited import edited
from golden_cases import shown

import lamina
from lamina.ir.dtypes import float32, float64
from lamina.ir.errors import LaminaError
from lamina.ir.graph import Builder
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY as OPS
from lamina.ir.recur import recurrent
from lamina.ir.types import type_of
from lamina.ir.verify import verify
from lamina.passes.graphs import image_by_image as module
from lamina.passes.graphs.image_by_image import image_by_image
from lamina.passes.llvm import main_function
from lamina.passes.llvm.binding import host_target
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.runtime.native import Executable

SLOW = 1e-9  # bytes in a nanosecond: whatever waits gains
LARGE = {"FAR": 4096, "TOGETHER": 64, "HIDDEN": 1e9}
COUNT = 5


@pytest.fixture(autouse=True)
def small_images_are_large(monkeypatch):
    for name, value in LARGE.items():
        monkeypatch.setattr(module, name, value)


def convolved(x, w, **how):
    attrs = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1} | how
    return OPS["conv2d"](x, w, None, **attrs)


def network(then=lambda x, w: x, count=COUNT, dtype=float64, size=7):
    """A convolution, relu, and what is to follow."""
    with Builder("net") as b:
        x = b.param(type_of(dtype, (count, 3, size, size)), "x")
        w = b.param(type_of(dtype, (4, 3, 3, 3)), "w")
        own = b.param(type_of(dtype, (4, 4, 3, 3)), "v")
        made = then(OPS["relu"](convolved(x, w)), own)
        return b.finish(made)


def arrays_of(graph, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, p.shape).astype(p.dtype.numpy) for p in graph.params]


def residual(x, w):
    return OPS["relu"](x + convolved(x, w))


def classified(x, w):
    x = OPS["max_pool2d"](residual(x, w), 2)
    return OPS["softmax"](OPS["reshape"](OPS["avg_pool2d"](x, 3), (COUNT, -1)), 1)


def two_results(x, w):
    deep = residual(x, w)
    return [OPS["sum"](deep, (2, 3)), deep]


TAKEN = {
    "residual": residual,
    "classified": classified,
    "two results": two_results,
    "joined channels": lambda x, w: OPS["cat"]([x, convolved(x, w)], dim=1),
    "channels last": lambda x, w: OPS["permute"](x, (0, 2, 3, 1)),
    "part of an image": lambda x, w: x[:, 1:3, ::2],
    "a number for each image": lambda x, w: x * OPS["mean"](x, (1, 2, 3), keepdim=True),
    "reshaped within": lambda x, w: OPS["reshape"](x, (COUNT, 2, -1)),
    "strides": lambda x, w: convolved(x, w, stride=(2, 2), dilation=(2, 1)),
}
LEFT = {
    "of the whole batch": lambda x, w: x - OPS["mean"](x, (0, 2, 3), keepdim=True),
    "across images": lambda x, w: OPS["softmax"](x, 0),
    "another order": lambda x, w: OPS["flip"](x, (0,)),
    "some images": lambda x, w: x[1:],
    "images as channels": lambda x, w: OPS["tanh"](OPS["reshape"](x, (1, 4 * COUNT, 7, 7))),
    "other images": lambda x, w: OPS["permute"](x, (1, 0, 2, 3)),
    "a triangle": lambda x, w: OPS["tril"](OPS["reshape"](x, (COUNT, -1))),
    "channels that are looked up": lambda x, w: OPS["index_select"](x, 1, np.array([3, 0])),
    "a running sum": lambda x, w: OPS["cumsum"](x, 0),
}


def loops(graph):
    return [node for node in graph.nodes if node.op is recurrent]


def test_image_by_image_golden(golden):
    cases = {name: network(TAKEN[name], dtype=float32) for name in ("residual", "classified")}
    cases["of the whole batch"] = network(LEFT["of the whole batch"], dtype=float32)
    golden("passes/image_by_image", shown(partial(image_by_image, far=SLOW), cases))


@pytest.mark.parametrize("name", [*TAKEN, *LEFT])
def test_what_may_go_image_by_image_and_what_may_not(name):
    then = {**TAKEN, **LEFT}[name]
    graph = network(then)
    made = image_by_image(graph, SLOW)
    verify(made)
    (loop,) = loops(made)
    ops = {node.op.name for node in made.nodes} - {"recur", "reshape"}
    assert bool(ops) == (name in LEFT), ops
    assert loop.attrs["count"] == COUNT
    arrays = arrays_of(graph)
    for want, got in zip(interpret(graph, *arrays), interpret(made, *arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def test_what_is_given_for_the_batch_is_no_image():
    """A mask of as many rows as there are images is one value for all that the loop does not divide."""
    with Builder("net") as b:
        x = b.param(type_of(float64, (COUNT, 3, 7, 7)), "x")
        w = b.param(type_of(float64, (COUNT, 3, 3, 3)), "w")  # as many channels as images
        scale = b.param(type_of(float64, (COUNT, 1, 1)), "s")
        graph = b.finish(convolved(x, w) * scale)
    made = image_by_image(graph, SLOW)
    (loop,) = loops(made)
    assert [p.shape for p in loop.attrs["body"].params] == [(1, 3, 7, 7), w.shape, scale.shape]
    arrays = arrays_of(graph)
    np.testing.assert_allclose(interpret(made, *arrays)[0], interpret(graph, *arrays)[0], rtol=1e-12)


def test_few_images_small_ones_and_quick_memory_stay(monkeypatch):
    graph = network(residual)
    for other, far in ((network(residual, count=3), SLOW), (graph, 1e9)):
        assert image_by_image(other, far) is other
    monkeypatch.setattr(module, "TOGETHER", 1 << 20)
    assert image_by_image(graph, SLOW) is graph
    assert not loops(optimise(graph, Options(images=0.0)))


def test_weights_that_are_larger_than_images_stay_together():
    """The last layer's are read once for all images: it comes behind the loop."""

    def then(x, w):
        x = OPS["reshape"](residual(x, w), (COUNT, -1))
        return OPS["matmul"](
            x, OPS["reshape"](OPS["expand"](w[:1, :1, :1, :1], (1, 1, 196, 3000)), (196, 3000))
        )

    made = image_by_image(network(then), 1.0)
    assert "matmul" in {node.op.name for node in made.nodes} and loops(made)


@pytest.mark.parametrize("threads", [1, 2, 3, 6])
@pytest.mark.parametrize("each", [0, 10**9])
def test_threads_share_images_or_what_is_done_to_each(threads, each, monkeypatch):
    """Where five images would leave many of six threads idle these share kernels, if they are long."""
    monkeypatch.setattr(main_function, "LONG_RUN", each)
    options = Options(images=SLOW, verify=True)
    graph = network(classified, dtype=float32, size=28)
    arrays = arrays_of(graph)
    program = to_program(optimise(graph, options), (None,), host_target(), options)
    assert len(program.repeats) == 1
    before = lamina.get_num_threads()
    try:
        lamina.set_num_threads(threads)
        (got,) = Executable(program)(*arrays)
    finally:
        lamina.set_num_threads(before)
    plain = to_program(optimise(graph), (None,), host_target())
    (want,) = Executable(plain)(*arrays)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("first, *rest = index if buffer in images else (alone, *index)", "first, *rest = (alone, *index)"),
        ("isinstance(e, Coordinate) and axis in e.index.names", "False"),
        ("by == 1 and axis in names(kernel.parallel) and", "True and"),
        ("first = {count: 1, ", "first = {"),
        ("for v in read if v in chosen.each]", "for v in read]"),
    ],
)
def test_a_planted_bug_is_caught(right, wrong):
    bad = edited(module.__name__, right, wrong)
    bad.__dict__.update(LARGE)
    for name, then in {**TAKEN, **LEFT}.items():
        graph = network(then)
        try:
            made = bad.image_by_image(graph, SLOW)
            verify(made)
            arrays = arrays_of(graph)
            pairs = zip(interpret(graph, *arrays), interpret(made, *arrays), strict=True)
            same = all(a.shape == b.shape and np.allclose(a, b) for a, b in pairs)
        except (LaminaError, AssertionError, ValueError):
            return
        left = {node.op.name for node in made.nodes} - {"recur", "reshape"}
        if not same or bool(left) != (name in LEFT):
            return
    raise AssertionError("nothing saw it")
