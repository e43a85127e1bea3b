"""Where nodes are from: the modules that ran them, through recording, passes, files and back."""

import json
import zipfile

import pytest
from shown_models import net, onnx_model

import lamina
from lamina import jit, nn
from lamina.ir.placed import nodes_of, placed
from lamina.ir.where import Where, joined, origins, within
from lamina.jit import ModelError
from lamina.jit.export import tune_file
from lamina.jit.loaded import graph_of, with_places
from lamina.jit.viewing import codes_of
from lamina.viewer.subjects import numbered, subject_of

IMAGE = (2, 8, 6, 6)


def recorded(function, *arguments):
    traced = jit.trace(function)
    with lamina.no_grad():
        traced.call_for_code(*arguments)
    return traced


def paths(graph):
    return [(node.op.name, within(node.where)) for node in graph.nodes]


def test_recorded_ops_have_the_names_of_the_modules_that_ran_them():
    assert paths(recorded(net(), lamina.randn(IMAGE)).graph()) == [
        ("conv2d", "Net.layers.0.conv"),
        ("batch_norm_eval", "Net.layers.0.norm"),
        ("add", "Net.layers.0"),
        ("relu", "Net.layers.0"),
        ("conv2d", "Net.layers.1.conv"),
        ("batch_norm_eval", "Net.layers.1.norm"),
        ("add", "Net.layers.1"),
        ("relu", "Net.layers.1"),
        ("mean", "Net"),
        ("linear", "Net.head"),
    ]


def test_models_of_a_function_have_names_of_their_own_and_what_is_outside_none():
    one, two = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4))
    graph = recorded(lambda x: two(one(x)) + 1, lamina.randn(2, 4)).graph()
    assert paths(graph) == [("linear", "Linear"), ("linear", "Sequential.0"), ("add", "")]


def test_a_module_that_is_called_twice_and_in_another_has_one_name():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)
            self.again = nn.ModuleList([self.first])

        def forward(self, x):
            return self.again[0](self.first(x))

    assert paths(recorded(Twice(), lamina.randn(2, 4)).graph()) == [("linear", "Twice.first")] * 2


def test_recording_keeps_no_module_alive_and_a_closure_over_self_is_seen():
    class Closing(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0

        def forward(self, x):
            return (lambda y: y * self.scale)(x)

    assert paths(recorded(Closing(), lamina.randn(2)).graph()) == [("mul", "Closing")]


def test_every_kernel_that_computes_something_knows_its_ops_and_every_op_of_a_call_its_kernels():
    (code,) = codes_of(recorded(net(), lamina.randn(IMAGE)))
    shown = subject_of(code)
    ops = {next(iter(origins(node.where))): node.op.name for node in shown.graph.nodes}
    named = {
        step.name: sorted(ops[n] for n in origins(getattr(step, "where", None))) for step in shown.main.steps
    }
    assert named["conv2d_add_relu"] == ["add", "conv2d", "relu"]  # the norm is in the weights
    found = {
        n for p in (shown.weights, shown.main) for s in p.steps for n in origins(getattr(s, "where", None))
    }
    assert found == set(ops)


def test_a_kernel_knows_all_the_ops_that_were_made_one():
    (code,) = codes_of(recorded(lambda x: x.exp().sum(0) * x.exp().amax(0), lamina.randn(3, 4)))
    shown = subject_of(code)
    assert [node.op.name for node in shown.graph.nodes].count("exp") == 2
    found = {n for step in shown.main.steps for n in origins(step.where)}
    assert found == {n for node in shown.graph.nodes for n in origins(node.where)}


@pytest.mark.parametrize("scheme", ["int8-weights", "int4-weights"])
def test_a_kernel_that_reads_narrow_weights_knows_the_ops_that_widen_them(scheme):
    layer = lamina.quantize(nn.Sequential(nn.Linear(64, 32)), scheme=scheme)
    (code,) = codes_of(recorded(layer, lamina.randn(1, 64)))
    shown = subject_of(code)
    found = {
        n for p in (shown.weights, shown.main) for s in p.steps for n in origins(getattr(s, "where", None))
    }
    computing = {"mul", "linear", "matmul", "unpack_int4"}
    wanted = [node for node in shown.graph.nodes if node.op.name in computing]
    assert len(wanted) > 1 and all(origins(node.where) <= found for node in wanted)


def test_places_are_plain_pairs_to_everybody_else():
    place = Where("net.py", 3, "Net.head", {4})
    assert place == ("net.py", 3) and hash(place) == hash(("net.py", 3))
    assert joined([None, ("a.py", 1)]) == ("a.py", 1) and joined([]) is None
    both = joined([Where("a.py", 1, "A", {1}), None, Where("b.py", 2, "B", {2, 3})])
    assert (both, within(both), origins(both)) == (("b.py", 2), "B", {1, 2, 3})


def test_numbers_count_what_is_fused_and_places_go_back_in_the_same_order():
    (code,) = codes_of(recorded(net(), lamina.randn(IMAGE)))
    graph = numbered(code.compiled.graph)
    numbers = [next(iter(origins(node.where))) for node in nodes_of(graph)]
    assert numbers == [*range(len(numbers))]
    turned = placed(graph, [Where("x.py", n) for n in numbers])
    assert [node.where for node in nodes_of(turned)] == [("x.py", n) for n in numbers]
    assert str(turned) == str(graph)


# ---- in files
def test_an_exported_model_keeps_modules_and_lines_and_no_folder_of_its_author(tmp_path):
    path = tmp_path / "net.lam"
    jit.export(net(), path, lamina.randn(IMAGE), levels=["x86-64-v2"])
    graph, manifest, _ = graph_of(path)
    known = {within(node.where) for node in nodes_of(graph)}
    assert {"Net.layers.0.conv", "Net.layers.1", "Net.head"} <= known
    assert {file for file, _, _ in manifest["places"]} == {"shown_models.py"}
    with zipfile.ZipFile(path) as archive:
        assert str(tmp_path.parent).encode() not in archive.read("manifest.json")
        assert __file__.rpartition("/")[0].encode() not in archive.read("manifest.json")


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    path = tmp_path_factory.mktemp("line") / "line.lam"
    jit.export(nn.Linear(4, 4), path, lamina.randn(2, 4), levels=["x86-64-v2"])
    return path


@pytest.mark.parametrize(
    "change",
    [{"nodes": []}, {"nodes": [10**6] * 99}, {"places": [["a", 1]]}, {"places": None},
     {"places": [[1, 1, ""]]}, {"places": [["a", True, ""]]}, {"places": [["a" * 9999, 1, ""]]}],
)  # fmt: skip
def test_places_that_do_not_fit_their_graph_are_refused(change, line):
    graph, manifest, _ = graph_of(line)
    assert with_places(graph, json.loads(json.dumps(manifest))) is not graph
    with pytest.raises(ModelError, match="places of nodes"):
        with_places(graph, manifest | change)


def test_tuning_a_file_keeps_where_its_nodes_are_from(tmp_path):
    jit.export(nn.Linear(4, 4), tmp_path / "line.lam", lamina.randn(2, 4))
    before = [node.where for node in nodes_of(graph_of(tmp_path / "line.lam")[0])]
    tune_file(tmp_path / "line.lam", 0.01, told=lambda one: None)
    after = [node.where for node in nodes_of(graph_of(tmp_path / "line.lam")[0])]
    assert after == before and [*map(within, after)] == [*map(within, before)] == ["Linear"] * len(after)


def test_a_file_without_places_is_shown_without():
    graph = recorded(nn.Linear(4, 4), lamina.randn(2, 4)).graph()
    assert with_places(graph, {}) is graph


def test_ops_of_an_onnx_model_are_within_its_nodes(tmp_path):
    pytest.importorskip("onnx", reason="ONNX models are read with the package onnx")
    model = lamina.onnx.load(onnx_model(tmp_path / "m.onnx", ("/last/Neg", ""), branches=False))
    found = paths(recorded(model, lamina.randn(2, 4)).graph())
    assert [each for each in found if each[0] in ("softmax", "neg")] == [
        ("softmax", "OnnxModule.head.Softmax"), ("neg", "OnnxModule.last.Neg"), ("neg", "OnnxModule.Neg:1"),
    ]  # fmt: skip
    assert {path for op, path in found[:2]} == {"OnnxModule.layers.0.Gemm"}
