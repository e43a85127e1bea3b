"""Quantised models as ONNX: written with QDQ, run by ONNX Runtime in bytes, read back as layers of bytes."""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "quantization"))
from quantised_networks import Mobile, Residual, with_statistics  # noqa: E402

import lamina  # noqa: E402
from lamina import nn  # noqa: E402
from lamina.ir.dtypes import int8  # noqa: E402
from lamina.passes.llvm.binding import host_target  # noqa: E402

SHAPE = (3, 16, 16)
EXACT = bool(host_target().quads)


def run(path, x, optimised=None):
    """What ONNX Runtime gives; where it has no instruction for it and saturates sums of two products, as its
    page on quantisation says, what ONNX's own evaluator gives.
    """
    found = in_runtime(path, x, optimised)
    if EXACT:
        return found
    model = onnx.load(path)
    return ReferenceEvaluator(model).run(None, {model.graph.input[0].name: x.numpy()})[0]


def in_runtime(path, x, optimised):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("network", [Residual, Mobile])
def test_there_and_back(network, tmp_path):
    lamina.manual_seed(0)
    model = with_statistics(network(), *SHAPE)
    data = [lamina.randn(4, *SHAPE) + 0.2 for _ in range(2)]
    made = lamina.quantize(model, data)
    path = tmp_path / "model.onnx"
    lamina.jit.export(made, path, data[0], dynamic={0: {0: "batch"}})
    count = Counter(node.op_type for node in onnx.load(path).graph.node)
    layers = len(made.names)
    assert count["Conv"] + count["Gemm"] == layers and "ConvInteger" not in count
    assert count["QuantizeLinear"] == sum(n.op.name == "quantize_affine" for n in made.graph.nodes)
    found = run(path, data[0], tmp_path / "optimised.onnx")
    wanted = made(data[0]).detach().numpy()
    # what ONNX Runtime rounds the other way is a step of a layer's 255: 1 in 255 of the greatest number
    assert np.abs(found - wanted).max() <= np.abs(wanted).max() / 255
    fused = Counter(node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node)
    assert fused["QLinearConv"] >= 1  # those whose result goes to bytes at once

    again = lamina.onnx.load(path)
    kinds = Counter(node.op for node in again._model.declared.graph.nodes)
    assert kinds["QuantizedConv"] + kinds["QuantizedLinear"] == layers
    assert {x.dtype for name, x in again.state_dict().items() if name.endswith(".weight")} == {int8}
    assert again(data[0]).equal(made(data[0]))
    traced = lamina.jit.trace(again)
    with lamina.no_grad():
        for _ in range(3):
            assert traced(data[0]).equal(made(data[0]))


def qdq(weight, zero=None, *, node, axis=0, x_zero=3, bias=None, scale=0.02, attrs=()):
    """A model of one layer of bytes.  weight: i8 or u8."""
    outs = weight.shape[axis]
    scales = np.linspace(0.01, 0.02, outs, dtype=np.float32)
    given = {
        "w": weight, "ws": scales, "sx": np.float32(scale), "zx": np.uint8(x_zero),
    }  # fmt: skip
    if zero is not None:
        given["wz"] = np.full(outs, zero, weight.dtype)
    if bias is not None:
        given |= {"b": bias, "bs": scales * np.float32(scale)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "sx", "zx"], ["dx"]),
        helper.make_node(
            "DequantizeLinear", ["w", "ws", *(["wz"] if zero is not None else [])], ["dw"], axis=axis
        ),
    ]
    names = ["dx", "dw"]
    if bias is not None:
        nodes.append(helper.make_node("DequantizeLinear", ["b", "bs"], ["db"], axis=0))
        names.append("db")
    nodes.append(helper.make_node(node, names, ["y"], **dict(attrs)))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in given.items()]
    graph = helper.make_graph(nodes, "layer", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


CASES = {
    "conv": {
        "node": "Conv",
        "weight": (5, 3, 3, 3),
        "bias": True,
        "attrs": {"pads": [1, 1, 1, 1]},
        "x": (2, 3, 6, 7),
    },
    "conv of u8": {
        "node": "Conv",
        "weight": (5, 3, 3, 3),
        "zero": 128,
        "attrs": {"strides": [2, 2]},
        "x": (2, 3, 6, 7),
    },
    "depthwise": {"node": "Conv", "weight": (4, 1, 3), "attrs": {"group": 4}, "x": (2, 4, 9)},
    "gemm": {"node": "Gemm", "weight": (5, 8), "bias": True, "attrs": {"transB": 1}, "x": (3, 8)},
    "gemm of columns": {"node": "Gemm", "weight": (8, 5), "axis": 1, "bias": True, "x": (3, 8)},
    "matmul": {"node": "MatMul", "weight": (8, 5), "axis": 1, "x": (2, 3, 8)},
}


@pytest.mark.parametrize("name", CASES)
def test_layers_of_other_writers(name):
    how = dict(CASES[name])
    rng = np.random.default_rng(0)
    shape, size = how.pop("weight"), how.pop("x")
    unsigned = how.get("zero") is not None
    weight = (
        rng.integers(0, 255, shape).astype(np.uint8)
        if unsigned
        else rng.integers(-127, 128, shape).astype(np.int8)
    )
    outs = shape[how.get("axis", 0)]
    if how.pop("bias", False):
        how["bias"] = rng.integers(-5000, 5000, outs).astype(np.int32)
    model = qdq(weight, **how)
    x = rng.normal(size=size).astype(np.float32)
    made = lamina.onnx.load(model.SerializeToString())
    assert Counter(node.domain for node in made._model.declared.graph.nodes)["lamina"] == 1
    found = made(lamina.tensor(x)).numpy()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(None, {"x": x})[0]
    # the sums of floats round by a unit in the last place for each of 27 terms at most
    np.testing.assert_allclose(found, wanted, rtol=0, atol=32 * 1.2e-7 * np.abs(wanted).max())


def test_what_is_no_layer_of_bytes_has_its_weights_dequantised_once():
    rng = np.random.default_rng(0)
    weight = rng.integers(-127, 128, (5, 3, 3, 3)).astype(np.int8)
    model = qdq(weight, 7, node="Conv", x_zero=0)  # a zero point that weights of bytes don't have
    made = lamina.onnx.load(model.SerializeToString())
    assert [node.op for node in made._model.declared.graph.nodes] == [
        "QuantizeLinear",
        "DequantizeLinear",
        "Conv",
    ]
    (parameter,) = made.parameters()
    scales = np.linspace(0.01, 0.02, 5, dtype=np.float32).reshape(-1, 1, 1, 1)
    np.testing.assert_array_equal(parameter.detach().numpy(), (weight.astype(np.float32) - 7) * scales)


def test_models_of_swapped_layers(tmp_path):
    lamina.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8))
    x = lamina.randn(3, 64)
    for scheme in ("int8-dynamic", "int8-weights", "int4-weights"):
        made = lamina.quantize(model, scheme=scheme, **({"group": 16} if scheme == "int4-weights" else {}))
        lamina.jit.export(made, tmp_path / "model.onnx", x)
        found = run(tmp_path / "model.onnx", x)
        # GELU is another approximation there; a row's steps may differ by one where they are dynamic
        bound = 1 / 255 if scheme == "int8-dynamic" else 1e-5
        wanted = made(x).detach().numpy()
        assert np.abs(found - wanted).max() <= bound * np.abs(wanted).max()


class Twice(nn.Module):
    """A layer that is called twice beside one whose name its second call might get."""

    def __init__(self):
        super().__init__()
        self.layer, self.layer_2 = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.layer_2(self.layer(self.layer(x).relu()).relu())


def test_constants_of_layers_take_nobodys_name(tmp_path):
    """What a layer is made of is named after its weight: a scale of another layer may have the name."""
    lamina.manual_seed(0)
    x = lamina.randn(64, 8)
    made = lamina.quantize(Twice(), [x])
    lamina.jit.export(made, tmp_path / "model.onnx", x)
    found, wanted = lamina.onnx.load(tmp_path / "model.onnx")(x), made(x)
    step = wanted.abs().max() / 255
    assert (found - wanted).abs().max() <= step


def changed(change, **options):
    """The file of a layer of bytes, with one of its nodes changed."""
    model = qdq(np.ones((3, 4), np.int8), node="Gemm", attrs=(("transB", 1),), **options)
    for node in model.graph.node:
        change(node)
    return model.SerializeToString()


def cut(op, count):
    return lambda node: node.op_type == op and node.input.__delitem__(slice(count, None))


def told(op, **attrs):
    def change(node):
        if node.op_type == op:
            del node.attribute[:]
            node.attribute.extend(helper.make_attribute(name, value) for name, value in attrs.items())

    return change


@pytest.mark.parametrize(
    "change",
    [cut("Gemm", 0), cut("Gemm", 1), cut("DequantizeLinear", 0), cut("DequantizeLinear", 1),
     told("DequantizeLinear", axis=[0, 1]), told("DequantizeLinear", axis=1 << 40)],
    ids=range(6),
)  # fmt: skip
def test_layers_of_others_that_are_none_are_refused(change):
    """By the operators themselves: what makes layers of bytes of them passes over what it can't read."""
    with pytest.raises(lamina.LaminaError):
        lamina.onnx.load(changed(change))(lamina.ones(2, 4))


def test_constants_that_multiply_to_any_size_are_not_computed(tmp_path):
    """Factors of a few kilobytes each, and a product of gigabytes."""
    many = 1 << 16
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20]> agraph (float[1,4] x) => (float[1,k] y) <int8[3,4] q = '
        "{1,2,3,4,5,6,7,8,9,10,11,12}, float s = {0.1}, uint8 z = {3}> { w = DequantizeLinear(q, s) "
        "c = Mul(tall, wide) a = QuantizeLinear(x, s, z) h = DequantizeLinear(a, s, z) "
        "y = Gemm <transB = 1> (h, w, c) }"
    )
    for name, shape in (("tall", (many, 1)), ("wide", (1, many))):
        model.graph.initializer.append(numpy_helper.from_array(np.ones(shape, np.float32), name))
    with pytest.raises(lamina.LaminaError):
        lamina.onnx.load(model.SerializeToString(), most_bytes=1 << 26)(lamina.ones(1, 4))
