"""pipeline: the order of the passes, the options, and that both halves keep what a graph computes."""

import re
from dataclasses import replace

import numpy as np
import pytest
from fusing import OPS, Maker, arrays_for, check_program, t

from lamina.ir import Builder, interpret, verify
from lamina.ir.errors import ArgumentValueError, GraphError
from lamina.ir.kernel import parse as parse_kernel
from lamina.passes import pipeline as module
from lamina.passes.graphs.begin_apart import begin_apart
from lamina.passes.graphs.differentiate import Options as Derived
from lamina.passes.graphs.differentiate import differentiate
from lamina.passes.pipeline import PIPELINE, Options, optimise, program_passes, to_program
from lamina.passes.programs.build_program import build_program
from lamina.passes.programs.program import interpret as run
from lamina.passes.run import name_of
from lamina.passes.schedules.target import AVX2, AVX512, BASELINE
from lamina.passes.triton.target import ANY


def convnet(blocks=2, channels=16, size=8):
    """conv, norm by given statistics, relu, with residuals; then a product and a softmax."""
    with Builder("convnet") as b:
        x = b.param(t(2, channels, size, size), "x")
        for _ in range(blocks):
            w, mean, variance = (
                b.param(t(channels, channels, 3, 3)),
                b.param(t(channels)),
                b.param(t(channels)),
            )
            y = OPS["conv2d"](x, w, None, 1, 1) * 0.1
            x = OPS["relu"](OPS["batch_norm_eval"](y, mean, variance) + x)
        w = b.param(t(10, channels))
        return b.finish(OPS["softmax"](OPS["linear"](OPS["mean"](x, (2, 3)), w) * 0.1, 1))


def arrays_of(graph):
    return [np.abs(a) + np.float32(0.1) for a in arrays_for(graph)]  # variances


def test_pipeline_names_its_passes():
    names = [p.__name__ for p in PIPELINE]
    assert names[-1] == "fuse" and names.index("fold_conv_bn") < names.index("expand") < names.index("dce")


def test_optimise_keeps_values_and_verifies():
    graph = convnet()
    made = optimise(graph, Options(verify=True))
    verify(made)
    assert any(node.op.name == "fused" for node in made.nodes)
    arrays = arrays_of(graph)
    np.testing.assert_allclose(interpret(made, *arrays)[0], interpret(graph, *arrays)[0], rtol=1e-4)


def test_optimise_twice_changes_nothing_more():
    made = optimise(convnet())
    assert str(optimise(made)) == str(made)


def test_options_leave_passes_out():
    kinds = {node.op.name for node in optimise(convnet(), Options(fuse=False)).nodes}
    assert "fused" not in kinds and "batch_norm_eval" in kinds  # its conv is scaled first: not folded
    assert [p.__name__ for p in Options(fold_norms=False).passes()].count("fold_conv_bn") == 0


def test_options_stop_after_a_pass():
    assert [p.__name__ for p in Options(stop_after="cse").passes()][-1] == "cse"
    assert len(Options(stop_after="cse").passes()) == 9  # the last of that name
    with pytest.raises(ArgumentValueError, match="no pass is called 'polish'"):
        Options(stop_after="polish").passes()


def test_optimise_names_the_pass_that_broke_a_graph(monkeypatch):
    def breaking(graph):
        return graph.replace(nodes=graph.nodes[1:])

    monkeypatch.setattr(module, "PIPELINE", (PIPELINE[0], breaking, *PIPELINE[1:]))
    with pytest.raises(GraphError, match="pass breaking"):
        optimise(convnet(), Options(verify=True))


@pytest.mark.parametrize("target", [AVX512, AVX2, BASELINE])
@pytest.mark.parametrize("layouts", [True, False])
def test_to_program_keeps_values(target, layouts):
    graph = convnet()
    program = to_program(optimise(graph), (None,), target, Options(layouts=layouts, winograd=False))
    arrays = arrays_of(graph)
    np.testing.assert_allclose(run(program, *arrays)[0], interpret(graph, *arrays)[0], rtol=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_pipeline_fuzz(seed):
    graph = Maker(seed).graph(24)
    made = optimise(graph)
    verify(made)
    program = to_program(made, (None,) * len(made.results), AVX512)
    check_program(graph, program, rtol=1e-9)  # float64: sums of at most 256 terms


def test_pipeline_halves_the_steps_of_a_training_step():
    """About 300 nodes.  What the passes take is measured by benchmarks/compile.py."""
    with Builder("loss") as b:
        x, *weights = b.param(t(8, 16)), *(b.param(t(16, 16)) for _ in range(24))
        for w in weights:
            x = x + OPS["layer_norm"](OPS["gelu"](x @ w), (16,))
        graph = b.finish(OPS["sum"](x * x))
    joint = differentiate(graph, Derived(seeds="ones"))
    program = to_program(optimise(joint), (None,) * len(joint.results), AVX512)
    assert len(program.calls) < len(joint.nodes) / 2


def misread(program):
    """The first convolution without its guards: its windows leave the image."""
    call = next(c for c in program.calls if " else 0" in str(c.kernel))
    wrong = parse_kernel(re.sub(r" else [\d.]+", "", str(call.kernel)))
    instead = [replace(step, kernel=wrong) if step is call else step for step in program.steps]
    return program.replace(steps=tuple(instead))


def test_to_program_names_the_pass_that_broke_a_kernel(monkeypatch):
    graph = optimise(convnet())
    to_program(graph, (None,), AVX2, Options(verify=True))
    monkeypatch.setattr(module, "pack_matmuls", lambda program, target, options: misread(program))
    to_program(graph, (None,), AVX2)  # nobody looks
    with pytest.raises(GraphError, match=r"pass .* \(9 of 10\) broke the program\n.* a kernel breaks a rule"):
        to_program(graph, (None,), AVX2, Options(verify=True))


def test_to_program_stops_after_a_pass():
    graph = optimise(convnet())

    def stopped(name, target=AVX2):
        return [name_of(step) for step in program_passes(target, Options(stop_after=name))]

    before = ["lay_out_bodies", "narrow_windows", "widen_windows", "factor_sums", "batch_innermost"]
    before += ["matrix_convolutions", "assign_layouts"]
    assert stopped("assign_layouts") == before
    assert stopped("shorten_lifetimes") == stopped(None)
    assert stopped("fuse") == stopped("build_program") == []
    assert stopped("channels_last", ANY) == ["tile_convolutions", "channels_last"]
    assert str(to_program(graph, (None,), AVX2, Options(stop_after="dce"))) == str(build_program(graph))
    every = tuple(step for step in PIPELINE if step is not begin_apart)  # that is for weights
    assert Options(stop_after="assign_layouts").passes() == every
    names = [name_of(step) for step in Options(frozen=frozenset((1,))).passes()]
    assert names == [name_of(step) for step in PIPELINE]
    last = "dce, image_by_image, fuse, build_program, lay_out_bodies, narrow_windows, widen_windows"
    with pytest.raises(ArgumentValueError, match=last):
        Options(stop_after="polish").passes()
