"""Products and convolutions of bytes: how many multiplications and additions in a nanosecond, beside float32.

    python benchmarks/int8.py [--threads 1] [--only products convolutions weights] [--seconds 1] [--write]

products: u8 [m, k] times i8 [k, n] with i32 sums, by matrix registers, by dot products of four bytes (VNNI)
and by pairs of i16, as far as the machine has them; Lamina's float32, PyTorch's `_int_mm` (of i8) and its
float32, onnxruntime's MatMulInteger.  Weights are packed beforehand, but for `_int_mm`'s.

convolutions: layers of ResNet-50 and MobileNetV2 from bytes to bytes (a scale and a bias of each channel,
relu, rounding), with the copy that puts an edge around the image; float32 from floats to floats, Lamina's and
oneDNN's.  Figures are those of the layer within a network: images lie as the layers want them.

weights: products of a few rows with weights kept as i8, or two in a byte, and a scale of every 64: bytes of
weights and scales that are read in a nanosecond, and how much longer float32's weights take.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from contest import RESULTS, hold_to, on_each, race, where
from conv_layers import LAYERS, Layer, numbers, ours, theirs

import lamina
from lamina.ir.dtypes import float32, from_numpy_dtype, uint8
from lamina.ir.graph import Builder
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.kernels.product import product_of
from lamina.passes.llvm.binding import host_target
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.programs.program import Program, interpret
from lamina.passes.schedules.target import Target
from lamina.runtime.native import Executable

SIZES = ((1, 1024, 1024), (8, 1024, 1024), (64, 1024, 1024), (256, 1024, 1024), (1024, 1024, 1024),
         (128, 768, 3072), (3136, 64, 64), (196, 256, 1024))  # fmt: skip
WEIGHTS, GROUP = 4096, 64
PARTS = ("products", "convolutions", "weights")


def op(name: str, *args: Any, **kwargs: Any) -> Any:
    return REGISTRY[name](*args, **kwargs)


def targets() -> dict[str, Target]:
    """What this machine multiplies bytes by."""
    here = host_target()
    found = {"matrix": here} if here.byte_matrix else {}
    plain = replace(here, matrix="", byte_matrix=False)
    if here.lanes in here.quads:
        found["quads"] = plain
    return found | {"pairs": replace(plain, quads={})}


def main_call(function: Callable, arrays: list[np.ndarray], target: Target, threads: int) -> Callable:
    """The call of a function's product alone, and copies that put an edge around its image, on weights that
    are packed and images that are laid out beforehand."""
    with Builder("net") as builder:
        given = [builder.param(type_of(from_numpy_dtype(a.dtype), a.shape)) for a in arrays]
        graph = builder.finish([function(*given)])
    options = Options(frozen=frozenset(range(1, len(arrays))))
    program = to_program(optimise(graph, options), (None,), target, options)
    (call,) = (step for step in program.calls if product_of(step.kernel) is not None)
    own, needed = [call], {*call.inputs}
    for step in reversed(program.steps):
        if step in program.calls and step.name == "pad" and needed.intersection(step.outputs):
            own.insert(0, step)
            needed |= {*step.inputs}
    made = {array for step in own for array in step.outputs}
    inputs = tuple(dict.fromkeys(a for step in own for a in step.inputs if a not in made))
    before = tuple(s for s in program.steps if s not in own and made.isdisjoint(s.inputs))
    first = Program("before", program.params, before, inputs, program.constants)
    ready = interpret(first, *arrays)
    run = Executable(Program("main", inputs, tuple(own), call.outputs), target, threads=threads)
    return lambda: run(*ready)


def row(label: str, times: dict, work: float, ratio: tuple[str, str]) -> str:
    cells = "".join(f"{work / times[n].least / 1e9:>12.0f}" for n in times)
    return f"{label:<28}{cells}{times[ratio[1]].least / times[ratio[0]].least:>10.2f}"


def head(title: str, names: Iterable[str], last: str) -> None:
    print(f"\n{title:<28}{''.join(f'{n:>12}' for n in names)}{last:>10}", flush=True)


# ---- products
def products(threads: int, seconds: float) -> None:
    import onnxruntime
    import torch
    from onnx import TensorProto, helper

    rng, ways = np.random.default_rng(0), targets()
    session_options = onnxruntime.SessionOptions()
    session_options.intra_op_num_threads = threads
    for n, (rows, depth, columns) in enumerate(SIZES):
        x, w = rng.integers(0, 128, (rows, depth), np.uint8), rng.integers(-99, 99, (depth, columns), np.int8)
        xf, wf = x.astype(np.float32), w.astype(np.float32)
        calls = {
            way: main_call(lambda x, w: op("int_matmul", x, w), [x, w], target, threads)
            for way, target in ways.items()
        }
        calls["float32"] = main_call(lambda x, w: op("matmul", x, w), [xf, wf], host_target(), threads)
        calls["torch i8"] = partial(torch._int_mm, torch.tensor(x.astype(np.int8)), torch.tensor(w))
        calls["torch f32"] = partial(torch.mm, torch.tensor(xf), torch.tensor(wf))
        node = helper.make_node("MatMulInteger", ["x", "w"], ["y"])
        graph = helper.make_graph(
            [node], "product", [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
            [helper.make_tensor_value_info("y", TensorProto.INT32, None)],
            [helper.make_tensor("w", TensorProto.INT8, w.shape, w.tobytes(), raw=True)],
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=9)
        session = onnxruntime.InferenceSession(model.SerializeToString(), session_options)
        calls["ort"] = partial(session.run, None, {"x": x})
        wanted = calls["ort"]()[0]
        assert all(np.array_equal(calls[way]()[0], wanted) for way in ways)
        if not n:
            head("GOP/s: m x k x n", calls, "of f32")
        times = race(calls, seconds)
        first = next(iter(ways))
        label = f"{rows} x {depth} x {columns}"
        print(row(label, times, 2.0 * rows * depth * columns, (first, "float32")), flush=True)


# ---- convolutions
def convolution(layer: Layer) -> Callable:
    """A layer from bytes to bytes."""

    def function(x: Any, w: Any, scale: Any, bias: Any) -> Any:
        sums = op("int_conv2d", x, w, stride=layer.stride, padding=layer.taps // 2, groups=layer.groups)
        y = op("relu", op("cast", sums, float32) * scale + bias)
        return op("cast", op("clamp", op("round", y), 0.0, 255.0), uint8)

    return function


def convolutions(threads: int, seconds: float) -> None:
    rng, ways = np.random.default_rng(0), targets()
    head("GOP/s: layer", [*ways, "float32", "torch f32"], "of f32")
    for layer in LAYERS:
        floats = numbers(layer, 1)
        x = rng.integers(0, 256, floats[0].shape, np.uint8)
        w = rng.integers(-99, 99, floats[1].shape, np.int8)
        scale = np.full((layer.outs, 1, 1), 0.01, np.float32)
        given = [x, w, scale, floats[2].reshape(-1, 1, 1)]
        calls = {way: main_call(convolution(layer), given, t, threads) for way, t in ways.items()}
        calls["float32"], _, _ = ours(layer, floats)
        calls["torch f32"] = theirs(layer, floats)
        times = race(calls, seconds)
        print(row(str(layer), times, float(layer.flops(1)), (next(iter(ways)), "float32")), flush=True)


# ---- weights
def dequantised(q: Any, scale: Any) -> Any:
    groups = op("cast", op("reshape", q, (WEIGHTS, WEIGHTS // GROUP, GROUP)), float32) * scale
    return op("reshape", groups, (WEIGHTS, WEIGHTS))


def weights(threads: int, seconds: float) -> None:
    rng = np.random.default_rng(0)
    scale = rng.random((WEIGHTS, WEIGHTS // GROUP, 1), np.float32)
    eight = rng.integers(-128, 128, (WEIGHTS, WEIGHTS), np.int8)
    four = rng.integers(0, 256, (WEIGHTS, WEIGHTS // 2), np.uint8)
    head(f"GB/s: rows of {WEIGHTS} x {WEIGHTS}", ("float32", "i8", "4 bits"), "gain")
    for rows in (1, 2, 4, 8):
        x = rng.standard_normal((rows, WEIGHTS), np.float32)
        calls, here = {}, host_target()
        w = rng.standard_normal((WEIGHTS, WEIGHTS), np.float32)
        calls["float32"] = main_call(lambda x, w: op("linear", x, w), [x, w], here, threads)
        calls["i8"] = main_call(
            lambda x, q, s: op("linear", x, dequantised(q, s)), [x, eight, scale], here, threads
        )
        calls["4 bits"] = main_call(
            lambda x, q, s: op("linear", x, dequantised(op("unpack_int4", q, GROUP), s)),
            [x, four, scale], here, threads,
        )  # fmt: skip
        times = race(calls, seconds)
        nbytes = {name: x.nbytes for name, x in (("float32", w), ("i8", eight), ("4 bits", four))}
        cells = "".join(f"{nbytes[n] / times[n].least / 1e9:>12.1f}" for n in times)
        gains = " ".join(f"{times['float32'].least / times[n].least:.1f}" for n in ("i8", "4 bits"))
        print(f"{rows:<28}{cells}{gains:>10}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--write", action="store_true", help="also into benchmarks/results/int8.txt")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.here:
        rest = ["--only", *options.only, "--seconds", str(options.seconds)]
        on_each(__file__, options.threads, rest, RESULTS / "int8.txt" if options.write else None)
        return
    import torch

    (threads,) = options.threads
    hold_to(threads)
    torch.set_num_threads(threads)
    lamina.set_num_threads(threads)
    print(f"\n{where(threads)}", flush=True)
    parts = {"products": products, "convolutions": convolutions, "weights": weights}
    for name in options.only:
        parts[name](threads, options.seconds)


if __name__ == "__main__":
    main()
