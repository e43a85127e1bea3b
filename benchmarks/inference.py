"""Quantised networks beside others' and beside floats: ResNet-50 and MobileNetV2 on 224 x 224, in bytes.

    python benchmarks/inference.py [--threads 1 2] [--batch 1 8] [--seconds 6] [--write]

One model, of random numbers, is quantised by `lamina.quantize` with 4 images of noise; that is traced, and
written as ONNX with QDQ for ONNX Runtime and OpenVINO, which so compute the same layers in bytes.  float32:
Lamina's, traced, and ONNX Runtime's.  Milliseconds of a call, least and median; contenders take turns.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

import models
import numpy as np
import onnxruntime
import openvino
from contest import RESULTS, hold_to, on_each, race, where
from networks import CASES

import lamina

NETWORKS = ("resnet50", "mobilenet_v2")
PAUSE = 0.02  # seconds: the threads of a rival spin for a while


def of_onnxruntime(path: Path, x: np.ndarray, threads: int):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (name,) = (given.name for given in session.get_inputs())
    return lambda: session.run(None, {name: x})


def of_openvino(path: Path, x: np.ndarray, threads: int):
    hints = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    compiled = openvino.Core().compile_model(openvino.Core().read_model(path), "CPU", hints)
    request = compiled.create_infer_request()
    return lambda: request.infer([x])


def rows(threads: int, batches: list[int], seconds: float) -> None:
    """Print the rows of one number of threads, in this process."""
    hold_to(threads)
    lamina.set_num_threads(threads)
    for name in NETWORKS:
        case = CASES[name]
        lamina.manual_seed(0)
        model = models.made(case, lamina).eval()
        small = lamina.quantize(model, [lamina.tensor(case.inputs(4))])
        for batch in batches:
            array = case.inputs(batch)
            x = lamina.tensor(array)
            with tempfile.TemporaryDirectory() as folder, lamina.no_grad():
                whole, bytes_ = Path(folder, "float.onnx"), Path(folder, "bytes.onnx")
                lamina.jit.export(model, whole, x)
                lamina.jit.export(small, bytes_, x)
                traced = {"int8": lamina.jit.trace(small), "float32": lamina.jit.trace(model)}
                calls = {kind: partial(f, x) for kind, f in traced.items()}
                calls["ort int8"] = of_onnxruntime(bytes_, array, threads)
                calls["ort f32"] = of_onnxruntime(whole, array, threads)
                calls["ov int8"] = of_openvino(bytes_, array, threads)
                for call in calls.values():
                    for _ in range(4):
                        call()
                times = race(calls, seconds, PAUSE)
            told = "  ".join(f"{t.least * 1e3:8.2f} ({t.median * 1e3:7.2f})" for t in times.values())
            best = min(times["ort int8"].least, times["ov int8"].least)
            gain = times["float32"].least / times["int8"].least
            print(f"{name:13s} {batch:5d}  {told}  {best / times['int8'].least:6.2f} {gain:6.2f}", flush=True)


def main() -> None:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--seconds", type=float, default=6.0, help="for the rounds of one row")
    parser.add_argument("--write", action="store_true", help="also into benchmarks/results/inference.txt")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.here:
        rest = ["--batch", *map(str, options.batch), "--seconds", str(options.seconds)]
        on_each(__file__, options.threads, rest, RESULTS / "inference.txt" if options.write else None)
        return
    (threads,) = options.threads
    print(where(threads))
    names = ("int8", "float32", "ort int8", "ort f32", "openvino int8")
    print(f"{'ms: least (median)':20s} " + "  ".join(f"{name:>18s}" for name in names) + "   ahead of f32")
    rows(threads, options.batch, options.seconds)


if __name__ == "__main__":
    main()
