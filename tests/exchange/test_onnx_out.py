"""Functions written as ONNX models: what ONNX Runtime and Lamina's own reader make of them, and refusals."""

from __future__ import annotations

import io
import subprocess
import sys
from collections import Counter
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import written_ops  # noqa: E402

import lamina  # noqa: E402
import lamina.nn.functional as F  # noqa: E402
from lamina import jit, nn  # noqa: E402
from lamina.exchange.onnx import writing  # noqa: E402
from lamina.exchange.onnx.writers import REFUSED, WRITERS, reason_against  # noqa: E402
from lamina.exchange.onnx.writing import write  # noqa: E402
from lamina.ir.dtypes import float32  # noqa: E402
from lamina.ir.op import REGISTRY  # noqa: E402
from lamina.jit import ExportError  # noqa: E402

R = lamina.randn
# That of the benchmarks, under a name of its own: other tests have a module of this name.
_SPEC = spec_from_file_location(
    "benchmark_networks", Path(__file__).parents[2] / "benchmarks" / "networks.py"
)
assert _SPEC is not None and _SPEC.loader is not None
networks = module_from_spec(_SPEC)
sys.modules[_SPEC.name] = networks  # where dataclasses look for it
_SPEC.loader.exec_module(networks)


def ran(path: Path, *arrays: Any) -> list[np.ndarray]:
    """The results of ONNX Runtime."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = [x.numpy() if isinstance(x, lamina.Tensor) else x for x in arrays]
    return session.run(None, {each.name: x for each, x in zip(session.get_inputs(), given, strict=True)})


def off(found: np.ndarray, wanted: lamina.Tensor) -> float:
    """The largest difference, relative to the largest number."""
    right = wanted.detach().numpy()
    assert found.shape == right.shape and found.dtype == right.dtype
    return float(np.abs(found - right).max() / np.abs(right).max())


def operators(path: Path) -> Counter:
    return Counter(node.op_type for node in onnx.load(str(path)).graph.node)


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "model.onnx"


def test_names_that_are_no_unicode_are_spelled(path):
    """A parameter's name, an input's, an output's and the function's may be half a surrogate pair."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_parameter("w\ud800", nn.Parameter(R(3)))

        def forward(self, table):
            return {key: x * getattr(self, "w\ud800") for key, x in table.items()}

    model, table = Odd(), {"a\udcff": R(2, 3), "b": R(2, 3)}
    write(model, path, table)
    found = onnx.load(str(path)).graph
    assert [each.name for each in found.input] == ["table['a\\udcff']", "table['b']"]
    assert [each.name for each in found.initializer] == ["w\\ud800"]
    add = lambda x, y: x + y  # noqa: E731
    add.__name__ = "\udfff"
    write(add, path, R(2), R(2), input_names=["\ud800", "\\ud800"], output_names=["\udfff"])
    names = [each.name for each in onnx.load(str(path)).graph.input]
    assert len({*names}) == 2 and names[0] == "\\ud800"
    assert ran(path, np.ones(2, np.float32), np.ones(2, np.float32))[0].tolist() == [2, 2]


# ---- networks
SMALL = ("digits", "mlp", "lenet", "ds_cnn", "lstm", "gru", "gpt", "mobilenet_v2", "resnet18")
LARGE = ("resnet50", "alexnet", "vgg11")


def inputs(case: networks.Case, batch: int) -> np.ndarray:
    """Images of 224 x 224 as such of 64 x 64."""
    made = case.inputs(batch)
    return made[..., :64, :64] if made.shape[-1] == 224 else made


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", SMALL)
def test_networks_give_the_same_in_every_batch(name, path):
    case, bound = networks.CASES[name], 4e-5 if name == "mobilenet_v2" else 1e-5  # it is 52 layers deep
    model = case.make(lamina)
    networks.weigh(model)
    model.eval()
    write(model, path, lamina.tensor(inputs(case, 2)), dynamic={0: {0: "batch"}})
    onnx.checker.check_model(onnx.load(str(path)), full_check=True)
    again = lamina.onnx.load(str(path)).eval()
    for batch in (1, 3):
        x = lamina.tensor(inputs(case, batch))
        with lamina.no_grad():
            wanted = model(x)
            assert off(ran(path, x)[0], wanted) < bound
            assert off(again(x).numpy(), wanted) < bound


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_networks_do_so_too(name, path):
    theirs, ours, _ = import_module("round_trips").differences(name, path)
    assert max(theirs, ours) < 1e-5


def test_weights_have_the_names_of_the_parameters(path):
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)
    ).eval()
    write(model, path, R(1, 3, 4, 4))
    proto = onnx.load(str(path)).graph
    names = {each.name for each in proto.initializer}
    assert names == {name for name in model.state_dict() if not name.endswith("num_batches_tracked")}
    assert (
        dict(lamina.onnx.load(str(path)).named_parameters()).keys() == dict(model.named_parameters()).keys()
    )


def test_weights_of_functions_have_the_names_of_the_modules_they_hold(path):
    first, second, free = nn.Linear(3, 3), nn.Linear(3, 3), R(3)
    write(lambda x: second(first(x)) + free, path, R(2, 3))
    names = {each.name for each in onnx.load(str(path)).graph.initializer}
    assert names == {"first.weight", "first.bias", "second.weight", "second.bias", "w0"}


def test_weights_of_halves_keep_their_types_and_names(path):
    write(nn.Linear(3, 3).half(), path, R(2, 3).half())
    kinds = {each.name: each.data_type for each in onnx.load(str(path)).graph.initializer}
    assert kinds == dict.fromkeys(("weight", "bias"), onnx.TensorProto.FLOAT16)


def test_names_are_what_was_asked_for(path):
    write(
        lambda x, y: (x + y, x * y), path, R(2), R(2), input_names=["a", "b"], output_names=["sum", "product"]
    )
    graph = onnx.load(str(path)).graph
    assert [each.name for each in graph.input] == ["a", "b"]
    assert [each.name for each in graph.output] == ["sum", "product"]
    for names in ({"input_names": ["a"]}, {"input_names": ["a", "a"]}, {"output_names": ["x", "z"]}):
        with pytest.raises(lamina.ArgumentError):
            write(lambda x, y: (x + y, x * y), path, R(2), R(2), **names)


@pytest.mark.parametrize("opset", [18, 19, 21, 23, 24, 25, 26])
def test_opsets(opset, path):
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4))
    x = R(2, 4)
    write(model, path, x, opset=opset)
    assert onnx.load(str(path)).opset_import[0].version == opset
    assert off(ran(path, x)[0], model(x)) < 1e-5


@pytest.mark.parametrize("opset", [17, 27, "20"])
def test_other_opsets_are_refused(opset, path):
    with pytest.raises(lamina.ArgumentError, match="18 to 26"):
        write(nn.ReLU(), path, R(2), opset=opset)


# ---- recurrent layers
def test_recurrent_layers_are_one_node_each(path):
    for kind, op in ((nn.LSTM, "LSTM"), (nn.GRU, "GRU"), (nn.RNN, "RNN")):
        model = kind(4, 6, num_layers=2, bidirectional=True, batch_first=True).eval()
        x = R(3, 5, 4)
        write(model, path, x, dynamic={0: {0: "batch", 1: "time"}})
        found = operators(path)
        assert found[op] == 4 and not found["Gemm"] and not found["Scan"]
        x = R(2, 7, 4)
        output, states = model(x)
        results = ran(path, x)
        every = [output, *(states if isinstance(states, tuple) else (states,))]
        assert max(off(a, b) for a, b in zip(results, every, strict=True)) < 1e-5


def test_all_states_of_an_lstm_are_a_loop(path):
    layer, operands = REGISTRY["lstm_layer"], (R(3, 2, 12), R(2, 3), R(2, 3), R(12, 3))
    call = lamina.runtime.ops.FUNCTIONS["lstm_layer"]
    assert layer.name in WRITERS
    write(lambda *x: call(*x)[1], path, *operands)
    assert operators(path)["Scan"] == 1
    assert off(ran(path, *operands)[0], call(*operands)[1]) < 1e-5


# ---- sizes that change
def resized(mode: str):
    return lambda x: F.interpolate(x, scale_factor=1.5, mode=mode)


DYNAMIC = {
    "attention": (
        nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(),
        (2, 5, 16), {0: "b", 1: "t"}, (3, 7, 16),
    ),
    "halves": (lambda x: x[:, : x.shape[1] // 2] * 2, (3, 6), {1: "t"}, (3, 11)),
    "ranges": (lambda x: x + lamina.arange(x.shape[1]), (3, 6), {0: "b", 1: "t"}, (2, 4)),
    "flattened": (lambda x: x.flatten(0, 1), (3, 6, 2), {0: "b", 1: "t"}, (2, 4, 2)),
    "padded": (lambda x: F.pad(x, (1, 2), mode="reflect"), (3, 1, 6), {2: "t"}, (3, 1, 9)),
    "pooled": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)), (2, 3, 8, 8), {2: "h", 3: "w"}, (2, 3, 11, 10)
    ),
    "nearest": (resized("nearest"), (2, 2, 6, 8), {2: "h", 3: "w"}, (2, 2, 5, 9)),
    "bicubic": (resized("bicubic"), (2, 2, 6, 8), {2: "h", 3: "w"}, (2, 2, 5, 9)),
    "scanned": (lambda x: x.cumprod(1), (3, 4), {0: "b", 1: "t"}, (2, 9)),
    "written": (lambda x: x.clone().index_fill(1, lamina.tensor([0]), 5.0), (3, 4), {0: "b"}, (2, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", DYNAMIC)
def test_sizes_may_change(name, path):
    function, shape, sizes, other = DYNAMIC[name]
    write(function, path, R(*shape), dynamic={0: sizes})
    dims = onnx.load(str(path)).graph.input[0].type.tensor_type.shape.dim
    assert {d: dims[d].dim_param for d in sizes} == sizes
    x = R(*other)
    with lamina.no_grad():
        assert off(ran(path, x)[0], function(x)) < 1e-5
        assert off(lamina.onnx.load(str(path))(x).numpy(), function(x)) < 1e-5


def test_outputs_say_sizes_in_the_users_words(path):
    write(lambda x: lamina.cat([x, x], 1), path, R(2, 3), dynamic={0: {1: "time"}})
    assert onnx.load(str(path)).graph.output[0].type.tensor_type.shape.dim[1].dim_param == "2*time"


# ---- what comes out, and what goes in
def test_results_may_be_arguments_constants_and_each_other(path):
    x, y = R(2, 3), R(3)
    write(lambda x, y: {"a": (x + 1, x + 1), "b": lamina.ones(2), "c": x.T}, path, x, y)
    found = ran(path, x, y)
    for a, b in zip(found, (x + 1, x + 1, lamina.ones(2), x.T), strict=True):
        assert off(a, b) == 0


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "uint8"])
def test_types(dtype, path):
    x = (R(3, 4).abs() * 3).to(getattr(lamina, dtype))
    function = (lambda x: (x * 2 + 1).softmax(-1)) if x.is_floating_point() else (lambda x: (x * 2 + 1) // 3)
    write(function, path, x)
    if dtype != "bfloat16":
        assert off(ran(path, x)[0], function(x)) < 1e-3


def test_what_onnx_runtime_has_no_kernels_for_is_tried_by_lamina(path):
    write(lambda x: F.gelu(x).atan(), path, R(3).double())
    assert operators(path)["Erf"] == 1


def test_weights_of_two_gigabytes_lie_beside_the_model(path, monkeypatch):
    monkeypatch.setattr(writing, "MOST", 64)
    model, x = nn.Linear(8, 8), R(2, 8)
    write(model, path, x)
    assert sorted(each.name for each in path.parent.iterdir()) == ["model.onnx", "model.onnx.data"]
    assert path.stat().st_size < 1000
    assert off(ran(path, x)[0], model(x)) < 1e-5
    with lamina.no_grad():
        assert off(lamina.onnx.load(str(path))(x).numpy(), model(x)) < 1e-5


def test_jit_export_writes_it_by_its_suffix(path):
    x = R(2, 3)
    jit.export(nn.ReLU(), path, x, dynamic={0: {0: "batch"}})
    assert off(ran(path, x)[0], x.relu()) == 0
    with pytest.raises(lamina.ArgumentError, match="levels"):
        jit.export(nn.ReLU(), path, x, levels=["x86-64-v2"])


# ---- refusals
def test_a_model_that_is_wrong_does_not_appear(path, monkeypatch):
    monkeypatch.setitem(WRITERS, "relu", lambda w, node, x: w.emit("Abs", x))
    with pytest.raises(ExportError, match="is not the function's"):
        write(nn.ReLU(), path, -R(3).abs())
    monkeypatch.setitem(WRITERS, "relu", lambda w, node, x: w.emit("Nothing", x))
    with pytest.raises(ExportError, match="does not take the model"):
        write(nn.ReLU(), path, R(3))
    assert not [*path.parent.iterdir()]


def factorised(x):
    return lamina.linalg.svd(x)[1]


def questioned(x):
    return x if x.sum() > 0 else -x


CASES = {
    factorised: (
        r"linalg_svd can't be written as ONNX \(test_onnx_out.py:\d+\)\n.*no factorisations",
        (3, 3),
    ),
    questioned: ("asks for a value", (3,)),
    nn.Dropout(): ("needs random numbers", (3,)),
    nn.BatchNorm1d(3): ("writes a captured tensor", (4, 3)),
}


@pytest.mark.parametrize("function", CASES)
def test_refusals_say_why(function, path):
    text, shape = CASES[function]
    with pytest.raises(ExportError, match=f"(?s){text}"):
        write(function, path, R(*shape))
    assert not path.exists()


def test_complex_numbers_go_in_as_pairs_alone(path):
    with pytest.raises(ExportError, match="complex numbers"):
        write(lambda x: x * 2, path, lamina.complex(R(2), R(2)))
    x = R(2, 32)

    def spectrum(x):
        return lamina.stft(x, 8, 2, window=lamina.hann_window(8), return_complex=True).abs()

    write(spectrum, path, x, dynamic={0: {0: "batch"}})
    assert off(ran(path, x)[0], spectrum(x)) < 1e-5


def test_reasons_are_those_of_ops_that_there_are():
    assert REFUSED.keys() <= REGISTRY.keys()
    assert all(reason_against(REGISTRY[name]) == reason for name, reason in REFUSED.items())
    assert reason_against(REGISTRY["conv2d"]) is None


# ---- every op
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_samples_of_ops(name):
    op = REGISTRY[name]
    kind, said = written_ops.verdict(op, float32, count=2)
    assert kind == ("refused" if reason_against(op) else "written"), said


@pytest.mark.parametrize("name", sorted(REGISTRY)[::7])
def test_samples_of_ops_are_read_back(name):
    op = REGISTRY[name]
    if reason_against(op) is None:
        kind, said = written_ops.verdict(op, float32, count=1, run=written_ops.by_lamina)
        assert kind == "written", said


# ---- as PyTorch's programs call it
def test_export_takes_what_pytorchs_does(tmp_path):
    model = lamina.nn.Sequential(lamina.nn.Linear(4, 3), lamina.nn.ReLU()).eval()
    x, path = lamina.randn(2, 4), tmp_path / "model.onnx"
    axes = {"x": {0: "batch"}, "y": {0: "batch"}}
    lamina.onnx.export(model, (x,), str(path), input_names=["x"], output_names=["y"], dynamic_axes=axes)
    file = io.BytesIO()
    with pytest.warns(UserWarning, match="opset 18 at least, not 13"):
        lamina.onnx.export(model, x, file, opset_version=13, do_constant_folding=True, dynamo=False)
    program = lamina.onnx.export(model, kwargs={"input": x}, dynamic_shapes={"input": {0: "rows"}})
    program.save(tmp_path / "other.onnx")
    y = lamina.randn(5, 4)
    for source, given in ((path, y), (file.getvalue(), x), (tmp_path / "other.onnx", y)):
        found = lamina.onnx.load(source)
        assert lamina.allclose(found(given), model(given), atol=1e-6)
    assert [*lamina.onnx.load(path).inputs] == ["x"]


def test_export_by_suffix(tmp_path):
    code = "import lamina, sys; lamina.jit.export(lamina.relu, sys.argv[1], lamina.ones(2))"
    subprocess.run([sys.executable, "-c", code, tmp_path / "model.onnx"], check=True)
    assert lamina.onnx.load(tmp_path / "model.onnx")(lamina.tensor([-1.0, 2.0])).tolist() == [0, 2]


def test_page_names_what_is_refused():
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text()
    rows = {tuple(row.strip("|\n ").split(" | ")) for row in page.splitlines() if row.startswith("| `")}
    found = {name.strip("`"): reason for names, reason in rows for name in names.split(", ")}
    assert found == REFUSED
    assert f"Of Lamina's {len(REGISTRY)} records {len(REGISTRY) - len(REFUSED)} can be written" in page
