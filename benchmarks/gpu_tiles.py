"""Products and convolutions by many tiles on an NVIDIA GPU, beside torch's: tiles are chosen by this.

    python benchmarks/gpu_tiles.py [--only bf16] [--write]
    python benchmarks/gpu_tiles.py --compile sm_90

Every tile's result is compared with torch's; its time is the least of ten spans between events, and its rate
is of the product's own multiplications and additions.  --compile only puts the kernels into the cache, on a
machine without the GPU that they are for.  --write puts the table into benchmarks/results/gpu_tiles.txt.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version

import gpu
import numpy as np
from contest import RESULTS, where

from lamina.ir.errors import LaminaError
from lamina.ir.kernel import parse, verify
from lamina.ir.kernel.form import Reduce, names
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.schedules.gpu import Along, Dot, Group, Lanes, Precision, Stages, Warps
from lamina.passes.schedules.steps import Schedule, Step
from lamina.passes.triton.defaults import GROUP, default_schedule
from lamina.passes.triton.launches import launch_list
from lamina.passes.triton.schedule import tiles
from lamina.passes.triton.target import Target
from lamina.runtime.cuda.machine import machine
from lamina.runtime.triton_compiler import Compiler

# rows, columns, a step of the sum, warps, stages
HALVES = (
    (32, 64, 64, 4, 4), (32, 64, 128, 4, 3), (64, 64, 64, 4, 3), (64, 64, 64, 4, 4), (64, 64, 128, 4, 3),
    (64, 128, 64, 4, 3), (64, 128, 64, 4, 4), (128, 64, 64, 4, 4), (64, 256, 64, 4, 4), (128, 128, 32, 4, 4),
    (128, 128, 64, 4, 3), (128, 128, 64, 4, 4), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4),
    (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 64, 8, 3), (256, 128, 64, 8, 4),
)  # fmt: skip
TF32 = (
    (32, 64, 32, 4, 4), (64, 64, 32, 4, 3), (64, 64, 64, 4, 3), (64, 128, 32, 4, 4), (128, 64, 32, 4, 4),
    (128, 128, 32, 4, 3), (128, 128, 32, 8, 3), (128, 128, 32, 8, 4), (128, 128, 64, 8, 3),
    (128, 256, 32, 8, 3), (128, 256, 32, 8, 4), (256, 128, 32, 8, 3),
)  # fmt: skip
SINGLES = (
    (32, 32, 32, 4, 3), (64, 32, 32, 4, 3), (64, 64, 16, 4, 3), (64, 64, 32, 4, 3), (64, 64, 32, 8, 3),
    (128, 64, 16, 8, 3), (128, 64, 32, 8, 2), (128, 128, 16, 8, 3), (128, 128, 32, 8, 2),
)  # fmt: skip
# Of a convolution: those, and whether a step of the sum goes on from one tap of the window to the next
CONV = tuple((*tile, fused) for tile in HALVES[4:16] for fused in (False, True))
CONV_SINGLES = tuple((*tile, fused) for tile in SINGLES[2:] for fused in (False, True))
CONVOLUTION = """\
kernel conv(x: {t}[64,{h},{h},{c}], w: {t}[3,3,{c},{k}]) -> (y: {t}[64,{h},{h},{k}]) {{
  parallel n:64 i:{h} j:{h} k:{k}
  s = sum(r:3 q:3 c:{c}) ({f}(x[n, i+r-1, j+q-1, c else 0.0]) * {f}(w[r, q, c, k]))
  y[n, i, j, k] = {t}(s)
}}"""
LAYERS = ((64, 56, 64), (256, 14, 256))  # channels, height and width, channels of the result

TILES = {"bf16": HALVES, "tf32": TF32, "tf32x3": TF32, "f32": SINGLES}
KINDS = (*TILES, "conv f16", "conv f32")
SIZES = {
    "bf16": (512, 1024, 2048, 4096, 8192),
    "tf32": (512, 1024, 4096),
    "tf32x3": (1024, 4096),
    "f32": (1024, 4096),
}


@dataclass
class Task:
    """A product or a convolution: its programs by tiles, its arrays, and torch's call on them."""

    name: str
    work: float
    tolerance: float
    programs: Callable[[], Iterator[tuple[str, Program]]]
    arrays: Callable[[], list[np.ndarray]]
    theirs: Callable[[list[np.ndarray]], tuple[gpu.Theirs, Callable[[], list[np.ndarray]]] | None]


def tasks(kind: str) -> Iterator[Task]:
    if kind in TILES:
        for n in SIZES[kind]:
            case = next(case for case in gpu.matmul() if case.name == f"matmul {n} {kind}")
            dtype = case.operands[0].dtype
            yield Task(
                case.name,
                case.work,
                2 * case.tolerance(dtype),
                partial(products, case, TILES[kind]),
                lambda case=case: [o.array(k) for k, o in enumerate(case.operands)],
                partial(gpu.theirs, case),
            )
        return
    dtype = kind.split()[1]
    for c, h, k in LAYERS:
        operands = gpu.Operand((64, h, h, c), dtype), gpu.Operand((3, 3, c, k), dtype)
        text = CONVOLUTION.format(t=dtype, f="f32" if dtype == "f16" else "", c=c, h=h, k=k)
        case = gpu.Case("", conv, operands, (), 0.0, moves=False, terms=9 * c, roundings=1)
        yield Task(
            f"conv 64 x {h}^2 x {c} -> {k}, 3 x 3, channels last, {dtype}",
            2.0 * 64 * h * h * c * k * 9,
            2 * case.tolerance(dtype),
            partial(convolutions, text),
            lambda operands=operands: [o.array(k) for k, o in enumerate(operands)],
            partial(gpu.theirs, case),
        )


def conv(library, x, w):
    """torch's, of arrays with channels last."""
    made = library.conv2d(x.permute(0, 3, 1, 2), w.permute(3, 2, 0, 1), padding=1)
    return made.permute(0, 2, 3, 1)


def products(case: gpu.Case, sizes: Sequence[tuple[int, ...]]) -> Iterator[tuple[str, Program]]:
    """The product by its own schedule, then by each of the tiles."""
    arrays = [np.broadcast_to(np.zeros((), gpu.NUMPY[o.dtype]), o.shape) for o in case.operands]
    program, _ = gpu.program_of(case, gpu.graph_of(case, case.operands), arrays, lambda p, a: [])
    call = program.steps[-1]  # its factors may be laid out anew before
    assert isinstance(call, Call)
    rounding = [Precision(case.precision)] if case.precision in gpu.ROUNDED else []
    yield from scheduled(program, call, sizes, rounding)


def convolutions(text: str) -> Iterator[tuple[str, Program]]:
    kernel = verify(parse(text))
    inputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.inputs)
    outputs = tuple(Array(b.name, b.dtype, b.shape) for b in kernel.outputs)
    call = Call(kernel, inputs, outputs)
    program = Program(kernel.name, inputs, (call,), outputs)
    yield from scheduled(program, call, CONV if "f16" in text else CONV_SINGLES)


def scheduled(
    program: Program, call: Call, sizes: Sequence[tuple[int, ...]], more: Sequence[Step] = ()
) -> Iterator[tuple[str, Program]]:
    yield "as chosen", program
    given = default_schedule(call.kernel)
    m, n, k = tiles(given)
    (stage,) = given.of(Dot)
    (reduction,) = (s for s in call.kernel.stages if isinstance(s, Reduce))
    for rows, columns, step, warps, stages, *fused in sizes:
        axes = names(reduction.axes) if fused and fused[0] else k.axes
        steps = Lanes(m.dim, rows, m.axes), Lanes(n.dim, columns, n.axes), Along(k.dim, step, axes), stage
        how = Schedule(*steps, Group(GROUP), Warps(warps), Stages(stages), *more)
        text = f"{rows} x {columns} x {step}, {warps} warps, {stages} stages" + ", fused" * (axes != k.axes)
        yield text, program.replace(steps=(*program.steps[:-1], replace(call, how=how)))


def table(kind: str, only: str, say: Callable[[str], None]) -> bool:
    device, right = machine(), True
    for task in tasks(kind):
        arrays = task.arrays()
        peer = task.theirs(arrays)
        assert peer is not None, "torch sees no GPU"
        theirs, results = peer
        (want,) = results()
        found = []
        for text, program in task.programs():
            if only not in text:
                continue
            try:
                ours = gpu.Ours(gpu.Resident(device, program, arrays), device)
            except LaminaError as error:
                say(f"  {task.name}, {text}: {str(error).splitlines()[0]}")
                continue
            # which one it is, if the device is lost
            print(f"{task.name}, {text}", file=sys.stderr, flush=True)
            ours.run()
            error = gpu.error_of(ours.run.results[0].numpy(), want)
            good = error <= task.tolerance
            right = right and good
            times = gpu.turns({"lamina": ours, "torch": theirs}, 0.05)
            wrong = "" if good else f"WRONG {error:.1e}"
            found.append((times["lamina"].least, times["torch"].least, text, wrong))
            device.allocator.empty_cache()
        least = min(torch for _, torch, *_ in found)
        say(f"{task.name}: torch {least * 1e6:.1f} us, {task.work / least / 1e12:.1f} TF/s")
        for time, _, text, wrong in sorted(found):
            rate, ahead = task.work / time / 1e12, least / time
            say(f"  {time * 1e6:>9.1f} us {rate:>7.1f} TF/s {ahead:>6.2f}x  {text} {wrong}")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=KINDS, action="append")
    parser.add_argument("--compile", metavar="TARGET", help="compile for it, and measure nothing")
    parser.add_argument("--tile", default="", help="those whose text has this in it")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    kinds = options.only or list(KINDS)
    if options.compile:
        with Compiler(Target.named(options.compile)) as compiler:
            for kind in kinds:
                for task in tasks(kind):
                    for _, program in task.programs():
                        for code in launch_list(program, compiler.target)[0].codes:
                            compiler.add(code)
            print(f"{len(compiler.binaries())} kernels for {options.compile}")
        return 0
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    device = machine()
    say(where())
    say(f"{device.device.name} ({device.target}), triton {version('triton')}, torch {version('torch')}")
    right = all([table(kind, options.tile, say) for kind in kinds])
    if options.write:
        (RESULTS / "gpu_tiles.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
