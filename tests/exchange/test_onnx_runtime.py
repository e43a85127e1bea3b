"""Operators of ONNX Runtime's own domain, and what its quantizer writes, against ONNX Runtime itself."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed: pip install 'lamina[onnx]'")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'lamina[onnx]'")

import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

import lamina
from lamina import nn

RNG = np.random.default_rng(0)
KINDS = {np.dtype(kind): number for kind, number in (
    (np.float32, TensorProto.FLOAT), (np.uint8, TensorProto.UINT8), (np.int8, TensorProto.INT8),
    (np.int32, TensorProto.INT32), (np.int64, TensorProto.INT64), (np.bool_, TensorProto.BOOL),
)}  # fmt: skip
DOMAIN = "com.microsoft"


def session(data):
    options = ort.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def bytes_of(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


def weights_of(*shape):
    """Signed weights of seven bits: where a processor has no VNNI ONNX Runtime saturates the sum of two
    products of bytes, and 2 * 255 * 64 is below 2^15."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def reals(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def step(scale, zero, kind=np.uint8):
    return np.float32(scale), np.array(zero, kind)


A, B, C = step(0.02, 120), step(0.03, 131), step(0.05, 128)
X, Y = bytes_of(2, 4, 6, 6), bytes_of(2, 4, 6, 6)
# What each is given, its attributes, how many results it has, and by how many steps they may differ: sums are
# rounded in another order, which decides for either side of a half.
CALLS = {
    "QLinearAdd": ([X, *A, Y, *B, *C], {}), "QLinearMul": ([X, *A, Y, *B, *step(0.002, 128)], {}),
    "QLinearSigmoid": ([X, *A, *step(1 / 256, 0)], {}), "QLinearLeakyRelu": ([X, *A, *A], {"alpha": 0.2}),
    "QLinearAveragePool": ([X, *A, *A], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "QLinearGlobalAveragePool": ([X, *A, *A], {}), "QLinearConcat": ([*C, X, *A, Y, *B], {"axis": 1}),
    "QLinearSoftmax": ([X, *A, *step(1 / 256, 0)], {"axis": -1, "opset": 13}),
    "QLinearWhere": ([RNG.random((2, 4, 6, 6)) < 0.5, X, *A, Y, *B, *C], {}),
    "QGemm": ([bytes_of(3, 8), *A, bytes_of(8, 5), *B, RNG.integers(-99, 99, 5).astype(np.int32),
               *step(0.1, 99)], {}),
    "QGemm, turned": ([bytes_of(3, 8), *A, weights_of(5, 8), RNG.random(5).astype(np.float32) / 9,
                       np.zeros(5, np.int8)], {"transB": 1}),
    "MatMulIntegerToFloat": ([bytes_of(3, 8), bytes_of(8, 5), np.float32(0.02), np.float32(0.03), np.uint8(3),
                              np.uint8(9), reals(5)], {}),
    "DynamicQuantizeMatMul": ([reals(3, 8), bytes_of(8, 5), np.float32(0.03), np.uint8(9), reals(5)], {}),
    "MatMulNBits": ([reals(3, 64), bytes_of(5, 2, 16), reals(10)],
                    {"K": 64, "N": 5, "bits": 4, "block_size": 32}),
    "MatMulNBits, zero points": ([reals(3, 64), bytes_of(5, 2, 16), reals(10), bytes_of(5)],
                                 {"K": 64, "N": 5, "bits": 4, "block_size": 32}),
    "Gelu": ([reals(3, 8)], {}), "FastGelu": ([reals(3, 8), reals(8)], {}),
    "BiasGelu": ([reals(3, 8), reals(8)], {}),
    "QuickGelu": ([reals(3, 8)], {"alpha": 1.5}),
    "FusedMatMul": ([reals(2, 8, 3), reals(2, 5, 8)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    "FusedGemm": ([reals(3, 8), reals(8, 5), reals(5)], {"activation": "LeakyRelu", "activation_alpha": 0.3}),
    "FusedConv": ([reals(1, 3, 6, 6), reals(4, 3, 3, 3), reals(4)],
                  {"activation": "Clip", "activation_params": [0.0, 1.0], "pads": [1, 1, 1, 1]}),
    "SkipLayerNormalization": ([reals(2, 3, 8), reals(2, 3, 8), reals(8), reals(8), reals(8)],
                               {"epsilon": 1e-5}),
    "SkipSimplifiedLayerNormalization": ([reals(2, 3, 8), reals(2, 3, 8), reals(8)], {"epsilon": 1e-5}),
    "EmbedLayerNormalization": ([RNG.integers(0, 9, (2, 5)).astype(np.int32), np.zeros((2, 5), np.int32),
                                 reals(9, 8), reals(7, 8), reals(2, 8), reals(8), reals(8)], {}),
    "Attention": ([reals(2, 5, 8), reals(8, 24), reals(24)], {"num_heads": 2}),
    "Attention, one way": ([reals(2, 5, 8), reals(8, 24), reals(24)], {"num_heads": 2, "unidirectional": 1}),
    "Attention, masked": ([reals(2, 5, 8), reals(8, 24), reals(24),
                           np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], np.int32)], {"num_heads": 2}),
    "QAttention": ([bytes_of(2, 5, 8), weights_of(8, 24), reals(24), np.float32(0.02),
                    np.float32(0.01), None, np.uint8(128), np.int8(0)], {"num_heads": 2}),
    "DequantizeLinear": ([bytes_of(3, 4), *A], {}),
    "QuantizeLinear": ([reals(3, 4), *A], {}),
}  # fmt: skip


def model_of(name, given, attrs):
    arrays = [None if each is None else np.asarray(each) for each in given]
    names = [f"i{at}" if each is not None else "" for at, each in enumerate(arrays)]
    inputs = [helper.make_tensor_value_info(n, KINDS[a.dtype], a.shape) for n, a in zip(names, arrays) if n]
    op = name.partition(",")[0]
    outputs = ["out", "length"] if op == "EmbedLayerNormalization" else ["out"]
    node = helper.make_node(op, names, outputs, domain=DOMAIN, **attrs)
    graph = helper.make_graph([node], "tried", inputs, [helper.make_empty_tensor_value_info("out")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    return model.SerializeToString(), {n: a for n, a in zip(names, arrays) if n}


def constants_in(data, feeds, kept):
    """The model with constants for inputs that are no data, as quantizers and optimizers write it."""
    model = helper.make_model(helper.make_graph([], "", [], [])).__class__.FromString(data)
    for name, array in feeds.items():
        if name not in kept:
            model.graph.initializer.append(numpy_helper.from_array(array, name))
    inputs = [each for each in model.graph.input if each.name in kept]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return model.SerializeToString()


@pytest.mark.parametrize("name", CALLS)
def test_operators_of_its_domain(name):
    data, feeds = model_of(name, *CALLS[name])
    data = constants_in(data, feeds, {"i0", "i1"} if name.startswith(("Q", "Em")) else {"i0"})
    feeds = {key: feeds[key] for key in [each.name for each in session(data).get_inputs()]}
    wanted = session(data).run(None, feeds)[0]
    found = lamina.onnx.load(data)(**{key: lamina.tensor(value) for key, value in feeds.items()})
    found = (found[0] if isinstance(found, tuple) else found).detach().numpy()
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind in "ui":
        # a sum that lies at a half of a step falls to either side
        assert np.abs(found.astype(int) - wanted.astype(int)).max() <= 1
    else:
        # fast forms of tanh and erf there
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)


class Digits(quantization.CalibrationDataReader):
    def __init__(self, name):
        self.left = [{name: reals(2, 3, 12, 12)} for _ in range(3)]

    def get_next(self):
        return self.left.pop() if self.left else None


def small_network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, groups=8), nn.Sigmoid(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(32, 16), nn.LeakyReLU(0.1), nn.Linear(16, 5), nn.Softmax(-1),
    ).eval()  # fmt: skip


FORMATS = {
    "QOperator": {"quant_format": quantization.QuantFormat.QOperator},
    "QOperator, by channel": {"quant_format": quantization.QuantFormat.QOperator, "per_channel": True},
    "QDQ": {"quant_format": quantization.QuantFormat.QDQ},
    "QDQ, by channel": {"quant_format": quantization.QuantFormat.QDQ, "per_channel": True},
    "QDQ of signed bytes": {"quant_format": quantization.QuantFormat.QDQ,
                            "activation_type": quantization.QuantType.QInt8},
    "QDQ of 16 bits": {"quant_format": quantization.QuantFormat.QDQ,
                       "activation_type": quantization.QuantType.QUInt16},
    "dynamic": None,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FORMATS)
def test_what_its_quantizer_writes(name, tmp_path, caplog):
    lamina.manual_seed(0)
    path, out = tmp_path / "real.onnx", tmp_path / "bytes.onnx"
    lamina.jit.export(small_network(), path, lamina.randn(2, 3, 12, 12), dynamic={0: {0: "batch"}})
    name_of = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"]).get_inputs()[0].name
    if FORMATS[name] is None:
        quantization.quantize_dynamic(path, out)
    else:
        quantization.quantize_static(path, out, Digits(name_of), **FORMATS[name])
    model, runtime = lamina.onnx.load(out), session(out.read_bytes())
    traced = lamina.jit.trace(model)
    for batch in (2, 1, 3, 2, 1):
        x = reals(batch, 3, 12, 12)
        (wanted,) = runtime.run(None, {name_of: x})
        with lamina.no_grad():
            for run in (model, traced):
                # steps of 1/256 in a softmax, and one more where a half falls to the other side
                assert np.abs(run(lamina.tensor(x)).numpy() - wanted).max() <= 2 / 256, batch
    assert traced.counts()["served"] >= 2, traced.explain()
