"""Single kernels beside their peers: products, pointwise chains, reductions, convolutions and gradients.

    python benchmarks/kernels.py [--threads 1] [--only gemm] [--seconds 2] [--write]

Every contender gets the same arrays, and takes turns in one process (see contest.py).  Rates are of the
operation as written, so that Winograd's products and the taps that fall beside an image count as if they
were computed.  --write puts the table into benchmarks/results/kernels.txt, one section for each number of
threads; run it once for each, since a library's threads are fixed when it is loaded.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

THREADS = int(sys.argv[sys.argv.index("--threads") + 1]) if "--threads" in sys.argv[:-1] else 1
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = str(THREADS)  # before the libraries below are loaded
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-THREADS:])  # jax takes no other word for it

import numpy as np  # noqa: E402
from contest import RESULTS, race, where  # noqa: E402
from kernel_cases import SECTIONS, Case  # noqa: E402

import lamina.ir.ops  # noqa: E402, F401 - enters the records
from lamina.ir.dtypes import float32  # noqa: E402
from lamina.ir.graph import Builder  # noqa: E402
from lamina.ir.op import REGISTRY as ops  # noqa: E402
from lamina.ir.types import type_of  # noqa: E402
from lamina.passes.llvm.binding import host_target  # noqa: E402
from lamina.passes.pipeline import Options, optimise, to_program  # noqa: E402
from lamina.passes.programs.prologue import prologue  # noqa: E402
from lamina.profiler.limits import bandwidth, fma_peak  # noqa: E402
from lamina.runtime.native import Executable  # noqa: E402

Run = Callable[[], Any]


# ---- what each library calls the same thing


class Lamina:
    def __getattr__(self, name: str) -> Any:
        return ops[name]

    @staticmethod
    def conv(x, w, padding):
        return ops["conv2d"](x, w, padding=padding)

    @staticmethod
    def conv_gradients(g, x, w, padding):
        how = {"stride": 1, "padding": padding, "dilation": 1, "groups": 1}
        return (
            ops["conv_input_grad"](g, w, size=x.shape[2:], **how),
            ops["conv_weight_grad"](g, x, size=w.shape[2:], **how),
        )


class Torch:
    def __init__(self) -> None:
        import torch

        torch.set_num_threads(THREADS)
        self.torch, self.functional = torch, torch.nn.functional

    def __getattr__(self, name: str) -> Any:
        return getattr(self.functional if name in ("linear", "gelu") else self.torch, name)

    def softmax(self, x, dim):
        return self.torch.softmax(x, dim)

    def conv(self, x, w, padding):
        return self.functional.conv2d(x, w, padding=padding)

    def conv_gradients(self, g, x, w, padding):
        sides = [padding, padding]
        return self.torch.ops.aten.convolution_backward(
            g, x, w, None, [1, 1], sides, [1, 1], False, [0, 0], 1, [True, True, False]
        )[:2]


class Jax:
    def __init__(self) -> None:
        import jax

        jax.config.update("jax_platforms", "cpu")
        self.jax, self.numpy = jax, jax.numpy

    def __getattr__(self, name: str) -> Any:
        return getattr(self.numpy, name)

    def linear(self, x, w, b):
        return x @ w.T + b

    def gelu(self, x):
        return self.jax.nn.gelu(x, approximate=False)

    def relu(self, x):
        return self.jax.nn.relu(x)

    def sum(self, x, dim=None):
        return self.numpy.sum(x, axis=dim)

    def softmax(self, x, dim):
        return self.jax.nn.softmax(x, axis=dim)

    def conv(self, x, w, padding):
        return self.jax.lax.conv(x, w, (1, 1), ((padding, padding),) * 2)

    def conv_gradients(self, g, x, w, padding):
        _, pull = self.jax.vjp(lambda x, w: self.conv(x, w, padding), x, w)
        return pull(g)


# ---- contenders


def ours(case: Case, arrays: list[np.ndarray]) -> Run:
    with Builder("case") as b:
        params = [b.param(type_of(float32, a.shape), f"x{n}") for n, a in enumerate(arrays)]
        made = case.function(Lamina(), *params)
        graph = b.finish(list(made) if isinstance(made, tuple) else [made])
    frozen = frozenset(case.weights)
    options = Options(frozen=frozen)
    program = to_program(optimise(graph, options), (None,) * len(graph.results), host_target(), options)
    weights, main = prologue(program, frozen)
    at = {array: n for n, array in enumerate(program.params)}
    given = [arrays[at[a]] for a in weights.params]
    packed = Executable(weights)(*given) if weights.steps else ()
    held = dict(zip(weights.results, packed, strict=True))
    operands = [held[a] if a in held else arrays[at[a]] for a in main.params]
    run = Executable(main, threads=THREADS)
    return lambda: run(*operands)


def torch_eager(case: Case, arrays: list[np.ndarray]) -> Run:
    library = Torch()
    given = [library.torch.from_numpy(a) for a in arrays]

    def run() -> Any:
        with library.torch.inference_mode():
            return case.function(library, *given)

    return run


def torch_compiled(case: Case, arrays: list[np.ndarray]) -> Run:
    library = Torch()
    given = [library.torch.from_numpy(a) for a in arrays]
    compiled = library.torch.compile(lambda *a: case.function(library, *a))

    def run() -> Any:
        with library.torch.no_grad():
            return compiled(*given)

    run()
    return run


def jax_compiled(case: Case, arrays: list[np.ndarray]) -> Run:
    library = Jax()
    given = [library.jax.device_put(a) for a in arrays]
    compiled = library.jax.jit(lambda *a: case.function(library, *a))
    return lambda: library.jax.block_until_ready(compiled(*given))


def numpy_blas(case: Case, arrays: list[np.ndarray]) -> Run | None:
    if not case.name.startswith("matmul"):
        return None
    a, b = arrays
    return lambda: a @ b


def onnxruntime_session(case: Case, arrays: list[np.ndarray]) -> Run | None:
    """Its kernel of the same name, for the cases that are one node and its activation."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    nodes = ONNX.get(case.name.split(" ")[0])
    if nodes is None or case.name.startswith("conv gradients"):
        return None
    weights = [onnx.numpy_helper.from_array(arrays[n], f"x{n}") for n in case.weights]
    inputs = [n for n in range(len(arrays)) if n not in case.weights]
    made = nodes(case, helper)
    graph = helper.make_graph(
        made,
        "case",
        [helper.make_tensor_value_info(f"x{n}", TensorProto.FLOAT, arrays[n].shape) for n in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {f"x{n}": arrays[n] for n in inputs}
    return lambda: session.run(None, feed)


def _conv_nodes(case: Case, helper: Any) -> list:
    side = case.shapes[1][2] // 2
    return [
        helper.make_node("Conv", ["x0", "x1"], ["t"], pads=[side] * 4),
        helper.make_node("Relu", ["t"], ["y"]),
    ]


ONNX = {
    "matmul": lambda case, helper: [helper.make_node("MatMul", ["x0", "x1"], ["y"])],
    "linear": lambda case, helper: [helper.make_node("Gemm", ["x0", "x1", "x2"], ["y"], transB=1)],
    "gelu(linear)": lambda case, helper: [
        helper.make_node("Gemm", ["x0", "x1", "x2"], ["t"], transB=1),
        helper.make_node("Gelu", ["t"], ["y"]),
    ],
    "exp": lambda case, helper: [helper.make_node("Exp", ["x0"], ["y"])],
    "softmax": lambda case, helper: [helper.make_node("Softmax", ["x0"], ["y"], axis=1)],
    "conv": _conv_nodes,
}
PEERS: dict[str, tuple[str, Callable[[Case, list[np.ndarray]], Run | None]]] = {
    "numpy": ("numpy", numpy_blas),
    "torch": ("torch", torch_eager),
    "torch.compile": ("torch", torch_compiled),
    "jax": ("jax", jax_compiled),
    "onnxruntime": ("onnxruntime onnx", onnxruntime_session),
}


def contenders(case: Case, left_out: set[str]) -> dict[str, Run]:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, dtype=np.float32) for shape in case.shapes]
    found = {"lamina": ours(case, arrays)}
    for name, (modules, make) in PEERS.items():
        if name in left_out or any(find_spec(module) is None for module in modules.split()):
            continue
        run = make(case, arrays)
        if run is not None:
            found[name] = run
    want = [np.asarray(a) for a in _all(found.get("torch", found["lamina"])())]
    for name, run in found.items():
        for got, expected in zip(_all(run()), want, strict=True):
            error = np.abs(np.asarray(got) - expected).max() / np.abs(expected).max()
            assert error < 1e-4, f"{case.name}: {name} differs by {error:.1e} of the largest value"
    return found


def _all(results: Any) -> list:
    return list(results) if isinstance(results, (tuple, list)) else [results]


# ---- the table


def table(sections: list[str], seconds: float, left_out: set[str]) -> str:
    names = ["lamina", *(n for n in PEERS if n not in left_out)]
    lines = [
        where(THREADS),
        f"one core: FMA peak {fma_peak() / 1e9:.0f} GF/s, copy {bandwidth(1, 1 << 27) / 1e9:.1f} GB/s",
        "least us of a call; GF/s, or GB/s of what must be moved; the quickest peer's time over ours",
        f"{'':<34}" + "".join(f"{name:>15}" for name in names) + f"{'rate':>9}{'ahead':>8}",
    ]
    for section in sections:
        lines.append(section)
        for case in SECTIONS[section]():
            found = race(contenders(case, left_out), seconds)
            mine = found["lamina"].least
            rest = [time.least for name, time in found.items() if name != "lamina"]
            cells = "".join(f"{found[n].least * 1e6:>15.1f}" if n in found else f"{'-':>15}" for n in names)
            ahead = f"{min(rest) / mine:>7.2f}x" if rest else ""
            lines.append(f"  {case.name:<32}{cells}{case.work / mine / 1e9:>9.1f}{ahead}")
            print(lines[-1], flush=True)
    return "\n".join(lines) + "\n"


def written(text: str) -> None:
    """Put the table in place of the one for as many threads."""
    file = RESULTS / "kernels.txt"
    mark = f"==== {THREADS} thread{'s' * (THREADS > 1)}\n"
    old = file.read_text() if file.exists() else ""
    parts = {part.splitlines()[0]: part for part in old.split("==== ")[1:]}
    parts[mark.removeprefix("==== ").strip()] = mark.removeprefix("==== ") + text
    Path(file).write_text("".join(f"==== {parts[key]}" for key in sorted(parts)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=SECTIONS, action="append")
    parser.add_argument("--without", choices=PEERS, action="append", default=[])
    parser.add_argument("--seconds", type=float, default=2.0, help="for one case's rounds")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = table(options.only or list(SECTIONS), options.seconds, set(options.without))
    print(text)
    if options.write:
        written(text)


if __name__ == "__main__":
    main()
