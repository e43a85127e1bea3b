"""Which ops can be written as ONNX: the samples of each record, written, run and compared.

    python tests/exchange/written_ops.py [--dtype NAME] [--opset N] [--by lamina] [PART ...]

What can't, and why; counts.  By ONNX Runtime, or by Lamina's own reader.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))
from harness import TAKES, Case, cases

import lamina
from lamina.exchange.onnx.network import module_of
from lamina.exchange.onnx.protobufs import model_of
from lamina.exchange.onnx.reading import declared
from lamina.exchange.onnx.writers import reason_against
from lamina.exchange.onnx.writing import model_of_graph
from lamina.ir.by_pairs import to_pairs
from lamina.ir.dtypes import DType, bfloat16, complex64, dtype_named, float32, int8, int64
from lamina.ir.errors import LaminaError
from lamina.ir.graph import Builder, Graph, Value
from lamina.ir.op import REGISTRY, Op
from lamina.ir.types import Type
from lamina.jit import ExportError

Run = Callable[[Any, Sequence[np.ndarray]], list[np.ndarray]]

# Of real numbers, which give complex ones.
OF_PARTS = ("complex", "fft_r2c", "pairs_to_complex", "view_as_complex")
BOUNDS = {"float16": 2e-3, "float32": 1e-5, "float64": 1e-11}  # relative to the largest number


def by_onnxruntime(proto: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, {each.name: x for each, x in zip(session.get_inputs(), arrays, strict=True)})


def by_lamina(proto: Any, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    module = module_of(declared(proto))
    with lamina.no_grad():
        found = module(*map(lamina.tensor, arrays))
    return [x.detach().numpy() for x in (found if isinstance(found, tuple) else (found,))]


# ---- one call
def graph_of(case: Case) -> Graph:
    """The call as a graph.  ONNX Runtime takes no arrays of bfloat16 from Python, and gives none."""
    with Builder(case.op.name) as b:
        given = [None if t is None else b.param(_given(t), f"x{n}") for n, t in enumerate(case.types)]
        pairs = zip(given, case.types, strict=True)
        params = [v if v is None or v.type == t else REGISTRY["cast"](v, dtype=t.dtype) for v, t in pairs]
        return b.finish([_plain(v) for v in b.emit(case.op, params, case.attrs).outputs[: case.visible]])


def _given(t: Type) -> Type:
    return t.with_dtype(float32) if t.dtype is bfloat16 else t


def _plain(v: Value) -> Value:
    return REGISTRY["cast"](v, dtype=float32) if v.dtype is bfloat16 else v


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) if x.dtype.name == "bfloat16" else x


def fault(case: Case, opset: int = 20, run: Run = by_onnxruntime) -> str:
    """What is wrong with the results; "" if nothing is.  Raises ExportError."""
    if case.op.name == "searchsorted":
        case = replace(case, operands=(np.sort(case.operands[0]), *case.operands[1:]))
    outputs = [np.asarray(x) for x in case.run()[: case.visible]]
    halves = any(x.dtype.name == "bfloat16" for x in (*outputs, *case.operands) if x is not None)
    arrays = [np.asarray(to_pairs(_wide(x)), order="C") for x in case.operands if x is not None]
    names = [
        [f"{letter}{n}" for n in range(count)] for letter, count in (("x", len(arrays)), ("y", len(outputs)))
    ]
    proto = model_of(model_of_graph(graph_of(case), opset, names[0], {}, names[1]))
    if case.op.name == "topk":
        outputs = outputs[:1]  # which of equal elements come out is not said
    pairs = zip(run(proto, arrays), outputs, strict=False)
    return next(filter(None, (difference(a, to_pairs(_wide(b)), halves) for a, b in pairs)), "")


def difference(found: np.ndarray, wanted: np.ndarray, halves: bool) -> str:
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype}{list(found.shape)} in place of {wanted.dtype}{list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        return "" if np.array_equal(found, wanted) else "other values"
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    scale = max(np.abs(b[np.isfinite(b)]).max(initial=0.0), 1e-30)
    bound = 2e-2 if halves else BOUNDS[wanted.dtype.name]
    if np.allclose(a, b, rtol=0, atol=bound * scale, equal_nan=True):
        return ""
    off = np.abs(a - b)
    return f"off by {off[np.isfinite(off)].max(initial=0.0) / scale:.1e}, or not finite"


# ---- one op
def verdict(
    op: Op, dtype: DType, opset: int = 20, count: int | None = None, run: Run = by_onnxruntime
) -> tuple[str, str]:
    """("written" | "refused" | "fails" | "no sample", what is to be said of it)."""
    tried = 0
    if dtype not in TAKES.get(op.dtypes, ()):
        of_parts = float32 if op.name in OF_PARTS else complex64
        dtype = {"int": int64, "byte": int8}.get(op.dtypes, of_parts)
    for case in cases(op, dtype, count=count):
        try:
            case.run()
        except LaminaError:
            continue  # of values or types that it does not take
        try:
            problem = fault(case, opset, run)
        except ExportError as error:
            return "refused", str(error).replace("\n", " | ")
        except Exception as error:
            problem = f"{type(error).__name__}: {' | '.join(str(error).splitlines())[:200]}"
        if problem:
            return "fails", f"{case}: {problem}"
        tried += 1
    return ("written", "") if tried else ("no sample", "")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--opset", type=int, default=20)
    parser.add_argument("--by", choices=("onnxruntime", "lamina"), default="onnxruntime")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args(arguments)
    run = by_lamina if options.by == "lamina" else by_onnxruntime
    counts: Counter[str] = Counter()
    lines = []
    for name, op in sorted(REGISTRY.items()):
        if options.parts and not any(part in name for part in options.parts):
            continue
        kind, said = verdict(op, dtype_named(options.dtype), options.opset, run=run)
        counts[kind] += 1
        if said:
            lines.append(f"{kind}  {name}: {said}")
        elif kind == "written" and reason_against(op):
            lines.append(f"?  {name}: written, and refused: {reason_against(op)}")
    print(*sorted(lines), sep="\n")
    print(dict(counts))


if __name__ == "__main__":
    main()
