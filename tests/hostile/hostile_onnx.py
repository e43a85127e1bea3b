"""ONNX models: node tests of the package and small networks, damaged as bytes and as messages.

They are loaded and run, in MOST bytes for what a call makes.  A model in a folder may name files outside.
"""

from __future__ import annotations

import functools
import os
import random
import re
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

import mutations
import numpy as np
from driver import Kind, Wrong, kind
from message_mutation import NUMBERS, altered

sys.path.insert(0, str(Path(__file__).parents[1] / "exchange"))

import lamina

MOST = 1 << 23  # bytes that a call may take
MOST_NODES = 1 << 14
LARGEST = 1 << 20  # bytes of a seed
SECRET = b"\x5a\x7e\x11\x3c" * 16  # of a file that no model may read


def _networks() -> list[bytes]:
    """Models as exporters write them: sizes computed from shapes, loops, functions, quantised weights."""
    import onnx

    makers = (
        "agraph (float[n,4] x) => (float[m,k] y) <float[4,8] w = {" + ",".join(["0.5"] * 32) + "}, "
        "int64[1] last = {-1}, int64[1] zero = {0}, int64 first = {0}> { s = Shape(x) b = Gather(s, first) "
        "u = Unsqueeze(b, zero) t = Concat<axis = 0>(u, last) h = MatMul(x, w) r = Relu(h) "
        "y = Reshape(r, t) }",
        "agraph (float[4] x, int64 n) => (float[4] y, float[k,4] z) { y, z = Loop <body = body (int64 i, "
        "bool c, float[4] s) => (bool d, float[4] e, float[4] f) { d = Identity(c) e = Add(s, s) "
        "f = Identity(e) }> (n, , x) }",
        "agraph (float[1,2,6,6] x) => (float[a,b,c,d] y) <float[3,2,3,3] w = {" + ",".join(["0.1"] * 54)
        + "}, float[4] by = {1,1,2,2}> { h = Conv <pads = [1,1,1,1], strides = [1,1]> (x, w) p = MaxPool "
        "<kernel_shape = [2,2], strides = [2,2]> (h) y = Resize <mode = \"nearest\"> (p, , by) }",
        "agraph (float[2,4] x) => (float[2,k] y) <int8[4,3] q = {1,2,3,4,5,6,7,8,9,10,11,12}, float[3] s = "
        "{0.1,0.2,0.3}, float one = {0.5}, uint8 zp = {128}> { w = DequantizeLinear <axis = 1> (q, s) "
        "a = QuantizeLinear(x, one, zp) b = DequantizeLinear(a, one, zp) y = MatMul(b, w) }",
        "agraph (float[1,1,4,4] x) => (float[a,b,c,d] y) <int8[2,1,3,3] q = {" + ",".join(["1", "-2"] * 9)
        + "}, float[2] s = {0.1,0.2}, int8[2] z = {0,0}, int32[2] b = {5,-7}, float[2] bs = {0.05,0.1}, "
        "float one = {0.5}, "
        "uint8 zp = {128}> { w = DequantizeLinear <axis = 0> (q, s, z) "
        "c = DequantizeLinear <axis = 0> (b, bs) "
        "a = QuantizeLinear(x, one, zp) h = DequantizeLinear(a, one, zp) y = Conv(h, w, c) }",
        "agraph (float[2,4] x) => (float[2,k] y) <uint8[12] q = {130,2,3,4,5,6,7,8,9,10,11,12}, "
        "float s = {0.1}, "
        "uint8 z = {128}, float one = {0.5}, uint8 zp = {3}, int64[2] to = {4,3}, float[3] b = {1,2,3}, "
        "float t = {2}> "
        "{ r = Reshape(q, to) w = DequantizeLinear(r, s, z) v = Transpose <perm = [1,0]> (w) c = Mul(b, t) "
        "a = QuantizeLinear(x, one, zp) h = DequantizeLinear(a, one, zp) y = Gemm <transB = 1> (h, v, c) }",
        "agraph (float[3] x, bool c) => (float[k] y) { y = If <then_branch = t () => (float[3] a) { "
        "a = Add(x, x) }, else_branch = e () => (float[6] b) { b = Concat <axis = 0> (x, x) }> (c) }",
    )  # fmt: skip
    # What grows by a number that stands in the file.
    grown = (
        "Expand(x, n)", "Tile(x, n)", "Pad(x, pads)", "ConstantOfShape(n)", "OneHot(n, one, two)",
        "Resize(x, , , n)", "Range(zero, one, one)", "CenterCropPad(x, n)", "Gather(x, start)",
        "ConvTranspose<strides = [1]>(rows, rows)", "MaxPool<kernel_shape = [2], pads = [1, 1]>(rows)",
        "Conv<dilations = [1], pads = [1, 1]>(rows, rows)", "HannWindow(one)", "Concat<axis = 0>(x, x)",
        "RandomNormal<shape = [2, 3]>()", "EyeLike(rows2)",
    )  # fmt: skip
    values = {
        "n": "int64[1] n = {3}", "pads": "int64[2] pads = {1, 2}", "one": "int64 one = {1}",
        "zero": "int64 zero = {0}", "start": "int64[1] start = {0}", "two": "float[2] two = {0, 1}",
        "rows": "float[1,1,2] rows = {1, 2}", "rows2": "float[1,2] rows2 = {1, 2}",
    }  # fmt: skip
    for call in grown:
        read = ", ".join(value for name, value in values.items() if re.search(rf"\b{name}\b", call))
        makers += (f"agraph (float[1] x) => (float[k] y) <{read}> {{ g = {call} y = Add(g, g) }}",)
    head = '<ir_version: 9, opset_import: ["" : 20]> '
    found = [onnx.parser.parse_model(head + text) for text in makers]
    own = '<ir_version: 9, opset_import: ["" : 20, "own" : 1]> agraph (float[3] x) => (float[3] y) '
    own += '{ a = own.twice(x) y = own.twice(a) } <domain: "own", opset_import: ["" : 20]> twice (u) => (v) '
    found.append(onnx.parser.parse_model(own + "{ t = Add(u, u) v = Mul(t, u) }"))
    return [each.SerializeToString() for each in found]


@functools.cache
def _seeds() -> list[bytes]:
    import node_tests

    tests = [test.model.SerializeToString() for test in node_tests.loaded()]
    return [data for data in tests if len(data) < LARGEST] + _networks() * 60


def _message(data: bytes) -> Any:
    import onnx

    return onnx.ModelProto.FromString(data)


def _mutated(rng: random.Random) -> bytes:
    seeds = _seeds()
    data = rng.choice(seeds)
    if rng.random() < 0.25:
        return mutations.damaged(rng, data, [rng.choice(seeds)])
    message = _message(data)
    altered(rng, message, [_message(rng.choice(seeds)) for _ in range(2)])
    return message.SerializeToString()


def _inputs(model: Any, rng: random.Random) -> list[Any]:
    """Small inputs of the kinds that a model says, and sometimes of others."""
    made = []
    for each in model.inputs.values():
        sizes = [
            size if isinstance(size, int) and 0 <= size < 64 else rng.randrange(4)
            for size in each.shape or ()
        ]
        if rng.random() < 0.05:
            sizes = [rng.randrange(4) for _ in range(rng.randrange(5))]
        while np.prod(sizes, dtype=float) > 1 << 16:
            sizes[int(np.argmax(sizes))] = 1
        dtype = np.dtype(np.float32) if each.dtype is None else each.dtype
        if dtype.kind == "O":
            made.append(np.full(sizes, "text", object))
            continue
        few = (np.random.default_rng(rng.randrange(1 << 30)).random(sizes) * 4).astype(dtype)
        if dtype == np.int64 and few.size and rng.random() < 0.4:  # a size, perhaps
            few.reshape(-1)[rng.randrange(few.size)] = min(rng.choice(NUMBERS), (1 << 63) - 1)
        try:
            value: Any = lamina.tensor(few)
        except lamina.DTypeError:
            value = few
        made.append([value, value] if each.sequence else value)
    return made


def _run(source: Any, rng: random.Random) -> str:
    """Load a model and run it within its bound.  Raises Wrong where it asked for more than that."""
    try:
        model = lamina.onnx.load(source, most_bytes=MOST, most_nodes=MOST_NODES)
        with lamina.no_grad():
            model(*_inputs(model, rng))
    except MemoryError as error:
        if "are allowed" not in str(error):
            raise Wrong(f"memory was asked for beyond the bound: {str(error)[:200]}") from error
        raise
    return "ran"


@kind("onnx", "onnx")
def onnx_models() -> Kind:
    """Whatever a model says, it runs or is refused, in a bounded memory and time."""
    _seeds()
    lamina.set_num_threads(1)

    def make(rng: random.Random) -> tuple[bytes, int]:
        return _mutated(rng), rng.randrange(1 << 30)

    def check(made: tuple[bytes, int]) -> str:
        return _run(made[0], random.Random(made[1]))

    return Kind(
        make=make, check=check, refusals=(lamina.LaminaError,), memory=1 << 29, seconds=20.0, share=400
    )


# ---- models whose weights lie outside
def _places(rng: random.Random, folder: Path) -> str:
    return rng.choice((
        "weights", "./weights", "sub/weights", "../secret", "sub/../../secret", str(folder.parent / "secret"),
        "link", "sub/link", "linked/secret", "linked/../secret", "fifo", "sub", ".", "", "weights\0",
        "..\\secret", "/dev/zero", "/proc/self/environ", "nothing", "weights/", "//etc/passwd", "~/x",
        "a" * 5000,
    ))  # fmt: skip


@kind("onnx-outside", "onnx")
def models_with_weights_outside() -> Kind:
    """What a model reads lies in its folder."""
    import onnx

    holder = tempfile.TemporaryDirectory()
    folder = Path(holder.name, "model")
    (folder / "sub").mkdir(parents=True)
    weights = np.arange(16, dtype=np.float32).tobytes()
    (folder / "weights").write_bytes(weights)
    (folder / "sub" / "weights").write_bytes(weights)
    (folder.parent / "secret").write_bytes(SECRET)
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "sub" / "link").symlink_to("../../secret")
    (folder / "linked").symlink_to(folder.parent, target_is_directory=True)
    os.mkfifo(folder / "fifo")
    text = (
        '<ir_version: 9, opset_import: ["" : 20]> agraph (float[2,4] x) => (float[2,4] y) <float[4,4] w = {'
    )
    seed = onnx.parser.parse_model(text + ",".join(["1"] * 16) + "}> { y = MatMul(x, w) }")

    def make(rng: random.Random) -> tuple[bytes, int]:
        message = onnx.ModelProto()
        message.CopyFrom(seed)
        tensor = message.graph.initializer[0]
        tensor.ClearField("float_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        said = {"location": _places(rng, folder)}
        if rng.random() < 0.5:
            said["offset"] = rng.choice(
                ("0", "-1", "8", "63", "64", "1e3", "", str(rng.choice(mutations.EXTREMES)))
            )
        if rng.random() < 0.5:
            said["length"] = rng.choice(("64", "0", "-1", "65", "x", str(rng.choice(mutations.EXTREMES))))
        if rng.random() < 0.2:
            tensor.dims[:] = [rng.choice((0, 1, 4, 1 << 31, 1 << 62, -4)) for _ in range(rng.randrange(4))]
        if rng.random() < 0.2:
            tensor.data_type = rng.randrange(30)
        for key, entry in said.items():
            tensor.external_data.add(key=key, value=entry)
        return message.SerializeToString(), rng.randrange(1 << 30)

    path = folder / f"model{os.getpid()}.onnx"

    def check(made: tuple[bytes, int]) -> str:
        path.write_bytes(made[0])
        model = lamina.onnx.load(path, most_bytes=MOST)
        for value in model.state_dict().values():
            if SECRET[:4] in value.numpy().tobytes():
                raise Wrong("a file outside of the model's folder was read")
        return _run(path, random.Random(made[1]))

    check.holder = weakref.finalize(check, holder.cleanup)  # type: ignore[attr-defined]
    return Kind(make=make, check=check, refusals=(lamina.LaminaError,), memory=1 << 28, share=400)
