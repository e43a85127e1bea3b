"""Products by many tiles on an NVIDIA GPU, beside torch's: what the choice of tiles is made from.

    python benchmarks/gpu_tiles.py [--only bf16] [--write]
    python benchmarks/gpu_tiles.py --compile sm_90

Every tile's result is compared with torch's; its time is the least of ten spans between events, and its rate
is of the product's own multiplications and additions.  --compile only puts the kernels into the cache, on a
machine without the GPU that they are for.  --write puts the table into benchmarks/results/gpu_tiles.txt.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import version

import gpu
import numpy as np
from contest import RESULTS, where

from lamina.ir.errors import LaminaError
from lamina.passes.programs.program import Call, Program
from lamina.passes.schedules.gpu import Along, Dot, Group, Lanes, Precision, Stages, Warps
from lamina.passes.schedules.steps import Schedule
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
    (64, 64, 32, 4, 3), (64, 128, 32, 4, 4), (128, 64, 32, 4, 4), (128, 128, 32, 4, 3), (128, 128, 32, 8, 3),
    (128, 128, 32, 8, 4), (128, 256, 32, 8, 3),
)  # fmt: skip
SINGLES = (
    (32, 32, 32, 4, 3), (64, 32, 32, 4, 3), (64, 64, 16, 4, 3), (64, 64, 32, 4, 3), (64, 64, 32, 8, 3),
    (128, 64, 16, 8, 3), (128, 64, 32, 8, 2), (128, 128, 16, 8, 3), (128, 128, 32, 8, 2),
)  # fmt: skip
TILES = {"bf16": HALVES, "tf32": TF32, "f32": SINGLES}
SIZES = {"bf16": (512, 1024, 2048, 4096, 8192), "tf32": (1024, 4096), "f32": (1024, 4096)}


def case_of(kind: str, n: int) -> gpu.Case:
    name = f"matmul {n} {kind}"
    return next(case for case in gpu.matmul() if case.name == name)


def programs(case: gpu.Case, sizes: tuple[tuple[int, ...], ...]) -> Iterator[tuple[str, Program]]:
    """The product by its own schedule, then by each of the tiles."""
    arrays = [np.broadcast_to(np.zeros((), gpu.NUMPY[o.dtype]), o.shape) for o in case.operands]
    program, _ = gpu.program_of(case, gpu.graph_of(case, case.operands), arrays, lambda p, a: [])
    (call,) = program.steps
    assert isinstance(call, Call)
    yield "as chosen", program
    given = default_schedule(call.kernel)
    m, n, k = tiles(given)
    (stage,) = given.of(Dot)
    rounding = [Precision("tf32")] if case.tf32 else []
    for rows, columns, step, warps, stages in sizes:
        steps = Lanes(m.dim, rows, m.axes), Lanes(n.dim, columns, n.axes), Along(k.dim, step, k.axes), stage
        how = Schedule(*steps, Group(GROUP), Warps(warps), Stages(stages), *rounding)
        text = f"{rows} x {columns} x {step}, {warps} warps, {stages} stages"
        yield text, program.replace(steps=(replace(call, how=how),))


def table(kind: str, say) -> bool:
    device, right = machine(), True
    for size in SIZES[kind]:
        case = case_of(kind, size)
        arrays = [o.array(k) for k, o in enumerate(case.operands)]
        theirs, results = gpu.theirs(case, arrays)
        (want,) = results()
        found = []
        for text, program in programs(case, TILES[kind]):
            try:
                ours = gpu.Ours(gpu.Resident(device, program, arrays), device)
            except LaminaError as error:
                say(f"  {case.name}, {text}: {str(error).splitlines()[0]}")
                continue
            ours.run()
            error = gpu.error_of(ours.run.results[0].numpy(), want)
            good = error <= 2 * case.tolerance(ours.run.results[0].dtype)
            right = right and good
            times = gpu.turns({"lamina": ours, "torch": theirs}, 0.05)
            found.append(
                (times["lamina"].least, times["torch"].least, text, "" if good else f"WRONG {error:.1e}")
            )
            device.allocator.empty_cache()
        peer = min(torch for _, torch, *_ in found)
        say(f"{case.name}: torch {peer * 1e6:.1f} us, {case.work / peer / 1e12:.1f} TF/s")
        for time, _, text, wrong in sorted(found):
            rate, ahead = case.work / time / 1e12, peer / time
            say(f"  {time * 1e6:>9.1f} us {rate:>7.1f} TF/s {ahead:>6.2f}x  {text} {wrong}")
    return right


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=TILES, action="append")
    parser.add_argument("--compile", metavar="TARGET", help="compile for it, and measure nothing")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    kinds = options.only or list(TILES)
    if options.compile:
        with Compiler(Target.named(options.compile)) as compiler:
            for kind in kinds:
                for size in SIZES[kind]:
                    for _, program in programs(case_of(kind, size), TILES[kind]):
                        for code in launch_list(program)[0].codes:
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
    right = all([table(kind, say) for kind in kinds])
    if options.write:
        (RESULTS / "gpu_tiles.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
