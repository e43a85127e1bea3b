"""Convolution layers of ResNet and MobileNetV2 beside torch's, one thread: conv + bias + relu.

    python benchmarks/conv_layers.py [--rounds 20] [--batch 1] [--only 3x3] [--write]

Lamina's is the call that `assign_layouts` makes of the layer, on blocked images and packed weights, as it
finds them within a network; torch's is oneDNN with a weight reordered beforehand and channels last, as in its
compiled and frozen programs.  Both are timed in turn, and the least time counts.  The peak is that of fused
multiply-adds on registers alone; Winograd's figures pass it, as GF/s are those of the direct sum.
"""

from __future__ import annotations

import argparse
import ctypes
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir.dtypes import float32
from lamina.ir.kernel.scalar import op
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.graphs.lower import lower
from lamina.passes.llvm.binding import engine, host_target
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.program import Array, Call, Program
from lamina.runtime.native import Executable

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Layer:
    channels: int
    size: int
    outs: int
    taps: int
    stride: int = 1
    depthwise: bool = False

    def __str__(self) -> str:
        kind = "depthwise " if self.depthwise else ""
        stride = f" /{self.stride}" if self.stride > 1 else ""
        return f"{kind}{self.taps}x{self.taps} {self.channels}x{self.size}^2 -> {self.outs}{stride}"

    @property
    def groups(self) -> int:
        return self.channels if self.depthwise else 1

    @property
    def places(self) -> int:
        return (self.size + 2 * (self.taps // 2) - self.taps) // self.stride + 1

    def flops(self, batch: int) -> int:
        return 2 * batch * self.outs * self.channels // self.groups * self.taps**2 * self.places**2


LAYERS = (
    Layer(3, 224, 64, 7, 2), Layer(64, 56, 64, 3), Layer(64, 56, 128, 3, 2), Layer(64, 56, 128, 1, 2),
    Layer(128, 28, 128, 3), Layer(128, 28, 256, 3, 2), Layer(256, 14, 256, 3), Layer(256, 14, 512, 3, 2),
    Layer(512, 7, 512, 3), Layer(256, 56, 64, 1), Layer(64, 56, 256, 1), Layer(512, 28, 128, 1),
    Layer(1024, 14, 256, 1), Layer(512, 7, 2048, 1), Layer(96, 112, 96, 3, 2, True),
    Layer(144, 56, 144, 3, 1, True), Layer(384, 14, 384, 3, 1, True), Layer(24, 56, 144, 1),
)  # fmt: skip


def numbers(layer: Layer, batch: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((batch, layer.channels, layer.size, layer.size), np.float32)
    w = rng.standard_normal((layer.outs, layer.channels // layer.groups, layer.taps, layer.taps), np.float32)
    return [x, w / np.float32(np.sqrt(w[0].size)), rng.standard_normal(layer.outs, np.float32)]


def ours(layer: Layer, arrays: list[np.ndarray]) -> tuple[Callable[[], np.ndarray], str, float]:
    """The layer's call alone, how it runs, and the seconds that it took to compile."""
    operands, attrs = REGISTRY["conv2d"].bind(
        *(type_of(float32, a.shape) for a in arrays), stride=layer.stride, padding=layer.taps // 2,
        groups=layer.groups,
    )  # fmt: skip
    kernel = lower(REGISTRY["conv2d"], operands, attrs)
    *sums, store = kernel.stages
    kernel = kernel.replace(stages=(*sums, replace(store, value=op("max", store.value, 0))))
    params = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.inputs)
    result = Array("y", "f32", kernel.outputs[0].shape)
    plain = Program("layer", params, (Call(kernel, params, (result,)),), (result,))
    blocked = assign_layouts(plain, host_target())
    (call,) = (step for step in blocked.calls if step.name == kernel.name)
    before = tuple(step for step in blocked.steps if step is not call and step.outputs[0] in call.inputs)
    made = tuple(step.outputs[0] for step in before)
    prepare = Executable(Program("prepare", params, before, made, blocked.constants), threads=1)
    known = dict(zip(params, arrays, strict=True)) | dict(zip(made, prepare(*arrays), strict=True))
    start = time.perf_counter()
    run = Executable(Program("conv", call.inputs, (call,), call.outputs), threads=1)
    spent = time.perf_counter() - start
    given = [known[a] for a in call.inputs]
    return lambda: run(*given)[0], str(call.how), spent


def theirs(layer: Layer, arrays: list[np.ndarray]) -> Callable[[], torch.Tensor]:
    x, w, b = map(torch.from_numpy, arrays)
    x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
    window = [layer.taps // 2] * 2, [layer.stride] * 2, [1, 1], layer.groups
    w = torch.ops.mkldnn._reorder_convolution_weight(w, *window, list(x.shape))
    return lambda: torch.ops.mkldnn._convolution_pointwise(x, w, b, *window, "relu", [], "")


def plain(y: np.ndarray, channels: int) -> np.ndarray:
    """[n, c / 16, h, w, 16] -> [n, c, h, w]"""
    n, blocks, h, w, lanes = y.shape
    return y.transpose(0, 1, 4, 2, 3).reshape(n, blocks * lanes, h, w)[:, :channels]


def least(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Seconds of each, the least of many rounds in turn, after an untimed call."""
    best = [float("inf")] * len(calls)
    for _ in range(rounds):
        for k, call in enumerate(calls):
            call()
            start = time.perf_counter()
            call()
            best[k] = min(best[k], time.perf_counter() - start)
    return best


def peak(rounds: int) -> float:
    """GF/s of fused multiply-adds on 12 registers, in a loop."""
    target, count = host_target(), 100_000
    wide = f"<{target.lanes} x float>"
    lines = [
        f"declare {wide} @llvm.fma.v{target.lanes}f32({wide}, {wide}, {wide})",
        "define void @peak(ptr %p) {",
    ]
    lines += ["start:", f"  %x = load {wide}, ptr %p, align 4", "  br label %again", "again:"]
    lines.append("  %i = phi i64 [0, %start], [%next, %again]")
    lines += [f"  %a{k} = phi {wide} [%x, %start], [%b{k}, %again]" for k in range(12)]
    fma = f"call {wide} @llvm.fma.v{target.lanes}f32"
    lines += [f"  %b{k} = {fma}({wide} %a{k}, {wide} %x, {wide} %x)" for k in range(12)]
    lines += ["  %next = add i64 %i, 1", f"  %more = icmp slt i64 %next, {count}"]
    lines += ["  br i1 %more, label %again, label %end", "end:", f"  %s0 = fadd {wide} %b0, %b1"]
    lines += [f"  %s{k} = fadd {wide} %s{k - 1}, %b{k + 1}" for k in range(1, 11)]
    lines += [f"  store {wide} %s10, ptr %p, align 4", "  ret void", "}"]
    made, memory = engine("peak", "\n".join(lines), target), np.ones(target.lanes, np.float32)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(made.get_function_address("peak"))
    (seconds,) = least([lambda: run(memory.ctypes.data)], rounds)
    return 2 * target.lanes * 12 * count / seconds / 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--only", default="", help="layers whose text has this in it")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        f"conv + bias + relu, batch {options.batch}, one thread, {host_target().name} on "
        f"{platform.machine()}; torch {torch.__version__}; peak {peak(options.rounds):.0f} GF/s",
        f"{'layer':32} {'ms':>7} {'GF/s':>6} {'torch':>6} {'ratio':>6} {'error':>8} {'compile':>8}  how",
    ]
    print("\n".join(lines))
    for layer in (layer for layer in LAYERS if options.only in str(layer)):
        arrays = numbers(layer, options.batch)
        (run, how, spent), peer = ours(layer, arrays), theirs(layer, arrays)
        error = np.abs(plain(run(), layer.outs) - peer().numpy()).max()
        mine, other = least([run, peer], options.rounds)
        flops = layer.flops(options.batch) / 1e9
        lines.append(
            f"{layer!s:32} {mine * 1e3:7.3f} {flops / mine:6.0f} {flops / other:6.0f} {mine / other:6.2f} "
            f"{error:8.1e} {spent * 1e3:5.0f} ms  {how}"
        )
        print(lines[-1], flush=True)
    if options.write:
        (RESULTS / "conv_layers.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
