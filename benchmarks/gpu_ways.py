"""Other ways to run what PyTorch was ahead in on an NVIDIA GPU, beside its own and the default.

    python benchmarks/gpu_ways.py [--only dw --only tf32] [--seconds 0.03] [--write]
    python benchmarks/gpu_ways.py --compile sm_90

Each way's result is compared with torch's, then it is timed as `gpu_tiles.py` does.  Defaults of
passes/triton/defaults.py and passes/programs/ are chosen by this.  --compile only puts the kernels into the
cache, on a machine without the GPU that they are for.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from math import inf, prod

import gpu
import numpy as np
from contest import RESULTS, where

from lamina.ir.errors import KernelError, LaminaError
from lamina.passes.graphs.fuse import GPU
from lamina.passes.kernels.product import product_of
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.programs.channels_last import channels_last
from lamina.passes.programs.image_layout import permuted, relayout
from lamina.passes.programs.program import Call, Program
from lamina.passes.programs.split_calls import cut, split_calls
from lamina.passes.programs.tile_convolutions import tile_convolutions
from lamina.passes.schedules.gpu import (
    Along,
    Descriptors,
    Dot,
    Group,
    Lanes,
    Persistent,
    Precision,
    Registers,
    Stages,
    Warps,
)  # fmt: skip
from lamina.passes.schedules.steps import Schedule, Step
from lamina.passes.triton.code import Code
from lamina.passes.triton.defaults import GROUP, default_schedule
from lamina.passes.triton.generate import programs_of
from lamina.passes.triton.launches import launch_list
from lamina.passes.triton.schedule import precision, tiles
from lamina.passes.triton.target import ANY, Target
from lamina.runtime.cuda.executable import Executable
from lamina.runtime.cuda.machine import machine
from lamina.runtime.triton_compiler import compiled

SM_90 = Target.named("sm_90")
Way = tuple[str, Callable[[], Program]]


@dataclass
class Task:
    """A case of gpu.py's, and the ways to run it."""

    case: gpu.Case
    ways: list[Way]


# ---- programs
def built(case: gpu.Case, *, rounding: str = "", **options: object) -> Program:
    """The case's program.  rounding: of products, if it is not the case's own."""
    how = Options(limits=GPU, frozen=frozenset(case.weights), precision=rounding or case.precision, **options)  # type: ignore[arg-type]
    graph = optimise(gpu.graph_of(case, case.operands), how)
    program = to_program(graph, (None,) * len(graph.results), ANY, how)
    return split_calls(program, partial(programs_of, target=SM_90))


def work(call: Call) -> int:
    """Points of a call's sums, or else of its results."""
    found = product_of(call.kernel)
    return prod(int(a.extent) for a in call.kernel.axes) if found and found.is_matmul else 0


def main_call(program: Program) -> Call:
    return max(program.calls, key=lambda call: (work(call), prod(map(int, call.outputs[0].shape))))


def by(program: Program, call: Call, how: Schedule) -> Program:
    steps = tuple(replace(s, how=how) if s is call else s for s in program.steps)
    return program.replace(steps=steps)


def tiled(
    program: Program, m: int, n: int, k: int, warps: int, stages: int, *more: Step, turned: bool = False
) -> Program:
    """The program with its largest product by those tiles.  turned: rows are the result's columns."""
    call = main_call(program)
    given = default_schedule(call.kernel, SM_90, precision(call.how))
    rows, columns, along = tiles(given)
    (dot,) = given.of(Dot)
    if turned:
        rows, columns = columns, rows
    kept = [step for step in given.of(Precision) if not any(isinstance(s, Precision) for s in more)]
    how = Schedule(
        Lanes(rows.dim, m, rows.axes), Lanes(columns.dim, n, columns.axes), Along(along.dim, k, along.axes),
        dot, *kept, Group(GROUP), *more, Warps(warps), Stages(stages),
    )  # fmt: skip
    return by(program, call, how)


def by_steps(program: Program, *steps: Step) -> Program:
    return by(program, main_call(program), Schedule(*steps))


def cut_by(case: gpu.Case, axis: int, parts: int, **options: object) -> Program:
    """The case with its sum cut along one of the sum's axes."""
    how = Options(limits=GPU, frozen=frozenset(case.weights), precision=case.precision, **options)  # type: ignore[arg-type]
    graph = optimise(gpu.graph_of(case, case.operands), how)
    program = to_program(graph, (None,) * len(graph.results), ANY, how)
    call = main_call(program)
    found = product_of(call.kernel)
    assert found is not None
    steps = [
        s for step in program.steps for s in (cut(call, found.k[axis], parts) if step is call else (step,))
    ]
    return program.replace(steps=tuple(steps))


def named(section: Callable[[], Iterator[gpu.Case]], *names: str) -> Iterator[gpu.Case]:
    cases = {case.name: case for case in section()}
    return (cases[name] for name in names)


# ---- tasks
TILES = ((128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (128, 128, 64, 4, 3), (128, 128, 64, 8, 3))
SMALL = ((64, 128, 64, 4, 3), (64, 128, 64, 4, 4), (64, 256, 64, 4, 3), (64, 64, 64, 4, 4))
ROUNDED = ((128, 256, 32, 8, 3), (128, 128, 32, 4, 3), (128, 128, 32, 8, 4))


def text(sizes: Sequence[int]) -> str:
    m, n, k, warps, stages = sizes
    return f"{m} x {n} x {k}, {warps} warps, {stages} stages"


def dw() -> Iterator[Task]:
    """Gradients of convolutions' weights."""
    wide, narrow = "conv 64 x 256 x 14^2 -> 256, to weight", "conv 64 x 64 x 56^2 -> 64, to weight"
    (case,) = named(gpu.gradients, f"{wide} f16")
    ways: list[Way] = [("as chosen", partial(built, case))]
    ways += [(text(t), partial(lambda case, t: tiled(built(case), *t), case, t)) for t in TILES]
    ways += [("rows in 14", partial(cut_by, case, 1, 14)), ("columns in 7", partial(cut_by, case, 2, 7))]
    yield Task(case, ways)
    (case,) = named(gpu.gradients, f"{narrow} f16")
    ways = [("as chosen", partial(built, case))]
    ways += [(text(t), partial(lambda case, t: tiled(built(case), *t), case, t)) for t in SMALL]
    ways += [(f"rows in {n}", partial(cut_by, case, 1, n)) for n in (14, 56)]
    yield Task(case, ways)
    for name in (wide, narrow):
        (case,) = named(gpu.gradients, f"{name} tf32")
        ways = [("as chosen", partial(built, case)), ("as f32", partial(built, case, rounding="float32"))]
        chosen = ROUNDED if name == wide else ((64, 128, 32, 4, 3), (64, 128, 64, 4, 3), (64, 256, 32, 4, 3))
        ways += [(text(t), partial(lambda case, t: tiled(built(case), *t), case, t)) for t in chosen]
        yield Task(case, ways)


def f32() -> Iterator[Task]:
    """Convolutions of f32 and their gradients: sums in tiles beside direct ones."""
    names = [f"conv 64 x {c} x {h}^2 -> {c}" for c, h in ((64, 56), (256, 14))]
    cases = [*named(gpu.convolution, *(f"{name}, 3 x 3 f32" for name in names))]
    cases += [
        *named(gpu.gradients, *(f"{name}, to {what} f32" for name in names for what in ("input", "weight")))
    ]
    for case in cases:
        ways: list[Way] = [("as chosen", partial(built, case))]
        ways += [("directly", partial(built, case, winograd=False))]
        of_weight, few = "to weight" in case.name, "conv 64 x 64" in case.name
        laid = ["last"] if of_weight else ["first", "last"]
        ways += [(f"in tiles, channels {how}", partial(in_tiles, case, how)) for how in laid]
        if "to input" not in case.name:
            for t in (
                (64, 64, 16, 4, 3),
                (64, 128, 16, 8, 3),
                (64, 128, 16, 4, 3) if few else (128, 128, 16, 8, 3),
            ):
                ways += [(f"products {text(t)}", partial(tiles_by, case, t, laid[0]))]
        yield Task(case, ways)


def in_tiles(case: gpu.Case, channels: str) -> Program:
    """Winograd's algorithm whatever it is estimated to take, with images as given, or channels innermost."""
    how = Options(limits=GPU, frozen=frozenset(case.weights), layouts=False)
    graph = optimise(gpu.graph_of(case, case.operands), how)
    program = to_program(graph, (None,) * len(graph.results), ANY, how)
    tiled = tile_convolutions(program, inf) if channels == "first" else channels_last(program, tiles=inf)
    return split_calls(tiled, partial(programs_of, target=SM_90))


def tiles_by(case: gpu.Case, sizes: tuple[int, ...], channels: str) -> Program:
    return tiled(in_tiles(case, channels), *sizes)


def tf32() -> Iterator[Task]:
    """Factors of which the sum is not innermost: copied, in registers, as they are."""
    (case,) = named(gpu.convolution, "conv 64 x 256 x 56^2 -> 64, 1 x 1 tf32")
    ways: list[Way] = [
        ("as chosen", partial(built, case)),
        ("as f32", partial(built, case, rounding="float32")),
    ]
    ways += pixels(case)
    yield Task(case, ways)
    for n in (2048, 4096, 8192):
        (case,) = named(gpu.matmul, f"matmul {n} tf32")
        ways = [("as chosen", partial(built, case))]
        for t in ((128, 256, 32, 8, 3), (128, 256, 32, 8, 4), (128, 128, 32, 4, 4), (256, 128, 32, 8, 3)):
            ways += [(f"registers, {text(t)}", partial(by_registers, case, t))]
        for t in ((128, 256, 32, 8, 3), (128, 256, 32, 8, 4)):
            ways += [(f"copy, descriptors, {text(t)}", partial(described, case, t, ()))]
        go_on = partial(described, case, more=(Persistent(132),))
        for t in ((128, 256, 32, 8, 2), (128, 128, 32, 8, 4)):
            ways += [(f"copy, descriptors, persistent, {text(t)}", partial(go_on, sizes=t))]
        yield Task(case, ways)


def pixels(case: gpu.Case) -> Iterator[Way]:
    for t in (
        (128, 64, 32, 4, 3),
        (128, 64, 32, 4, 4),
        (64, 64, 32, 4, 4),
        (128, 64, 64, 4, 3),
        (128, 64, 32, 8, 4),
    ):
        yield f"registers, {text(t)}", partial(by_registers, case, t)
    for t in ((64, 128, 32, 4, 3), (64, 64, 32, 4, 3)):
        yield f"as it is, {text(t)}", partial(as_it_is, case, t)
    for t in ((32, 128, 32, 4, 3), (64, 64, 32, 2, 3), (64, 128, 32, 2, 3), (64, 64, 32, 2, 4)):
        yield f"as it is, {text(t)}", partial(as_it_is, case, t)


def as_it_is(case: gpu.Case, sizes: tuple[int, ...], turned: bool = False, *more: Step) -> Program:
    """Rounded, but with factors as they lie."""
    program = built(case, rounding="float32", winograd=False)
    return tiled(program, *sizes, Precision("tf32"), *more, turned=turned)


def by_registers(case: gpu.Case, sizes: tuple[int, ...]) -> Program:
    """The factor of which the sum is not innermost has the rows, and is in registers."""
    program = built(case, rounding="float32", winograd=False)
    call = main_call(program)
    rows, *_ = tiles(default_schedule(call.kernel, SM_90))
    found = product_of(call.kernel)
    assert found is not None
    apart = [
        {*call.kernel.free_axes(access)} - {*found.k}
        for _, access in call.kernel.reads
        if call.kernel.buffers[access.buffer].offset(access.index).coefficient(found.depth) != 1
    ]
    turned = not any({*rows.axes} & axes for axes in apart)
    return tiled(program, *sizes, Precision("tf32"), Registers(), turned=turned)


def described(case: gpu.Case, sizes: tuple[int, ...], more: tuple[Step, ...]) -> Program:
    """By descriptors; of f32 on a copy of the factor of which the sum is not innermost."""
    program = built(case)
    if case.precision not in gpu.ROUNDED:
        return tiled(program, *sizes, Descriptors(), *more)
    call = main_call(program)
    found = product_of(call.kernel)
    assert found is not None
    (name,) = (
        access.buffer
        for _, access in call.kernel.reads
        if call.kernel.buffers[access.buffer].offset(access.index).coefficient(found.depth) != 1
    )
    at = [b.name for b in call.kernel.inputs].index(name)
    copy = relayout(call.inputs[at], (1, 0), "copy")
    inputs = (*call.inputs[:at], *copy.outputs, *call.inputs[at + 1 :])
    laid = replace(call, kernel=permuted(call.kernel, {name: (1, 0)}), inputs=inputs)
    steps = tuple(s for step in program.steps for s in ((copy, laid) if step is call else (step,)))
    return tiled(program.replace(steps=steps), *sizes, Descriptors(), *more)


def halves() -> Iterator[Task]:
    """Products of halves by descriptors, and by programs that go on."""
    for n in (4096, 8192):
        (case,) = named(gpu.matmul, f"matmul {n} bf16")
        ways: list[Way] = [("as chosen", partial(built, case))]
        for t in ((128, 256, 64, 8, 3), (128, 256, 64, 8, 4)):
            ways += [(f"descriptors, {text(t)}", partial(described, case, t, ()))]
            ways += [(f"descriptors, persistent, {text(t)}", partial(described, case, t, (Persistent(132),)))]
        yield Task(case, ways)


SQUARES = (
    (32, 32, 2), (32, 64, 4), (64, 32, 4), (64, 64, 4), (64, 64, 8), (32, 128, 4), (128, 32, 4), (64, 128, 8),
)  # fmt: skip


def copies() -> Iterator[Task]:
    """Images with channels innermost, and back; a matrix turned over."""
    for name, shape, order in (
        ("f16 64 x 256 x 14^2, channels last", (64, 256, 196), (0, 2, 1)),
        ("f16 64 x 64 x 56^2, channels last", (64, 64, 3136), (0, 2, 1)),
        ("f32 64 x 64 x 56^2, channels last", (64, 64, 3136), (0, 2, 1)),
        ("f32 64 x 56^2 x 64, channels first", (64, 3136, 64), (0, 2, 1)),
        ("f32 4096 x 4096, turned over", (4096, 4096), (1, 0)),
    ):
        x = gpu.Operand(shape, name[:3])
        moved = 2.0 * prod(shape) * gpu.BYTES[x.dtype]
        case = gpu.Case(f"copy of {name}", partial(turned_over, order=order), (x,), (x,), moved)
        ways: list[Way] = [("as chosen", partial(built, case))]
        for r, c, warps in SQUARES:
            ways += [(f"{r} x {c}, {warps} warps", partial(copied, case, r, c, warps))]
        yield Task(case, ways)


def turned_over(library, x, order):
    made = library.permute(x, order)
    return made.contiguous() if isinstance(library, gpu.Torch) else made


def copied(case: gpu.Case, rows: int, columns: int, warps: int) -> Program:
    program = built(case)
    call = main_call(program)
    one, other = default_schedule(call.kernel, SM_90).of(Lanes)
    return by_steps(program, replace(one, size=rows), replace(other, size=columns), Warps(warps))


def rows() -> Iterator[Task]:
    """Rows by longer steps and more warps."""
    sizes = ((4096, 16), (8192, 8), (8192, 16), (8192, 32), (16384, 16), (16384, 32), (4096, 4), (2048, 8))
    for case in named(gpu.rows, "softmax 512 x 100000 f16", "softmax 512 x 100000 f32"):
        yield Task(case, [("as chosen", partial(built, case)), *(
            (f"{step} at once, {warps} warps", partial(along, case, step, warps)) for step, warps in sizes
        )])  # fmt: skip
    (case,) = named(gpu.reductions, "argmax of rows")
    ways: list[Way] = [("as chosen", partial(built, case))]
    for step, warps in (
        (4096, 2),
        (4096, 4),
        (4096, 16),
        (2048, 4),
        (2048, 8),
        (1024, 4),
        (1024, 2),
        (512, 4),
    ):
        ways += [(f"{step} at once, {warps} warps", partial(along, case, step, warps))]
    yield Task(case, ways)


def along(case: gpu.Case, step: int, warps: int) -> Program:
    program = built(case)
    blocks = default_schedule(main_call(program).kernel, SM_90).of(Along)
    return by_steps(program, *(replace(block, size=step) for block in blocks), Warps(warps))


SECTIONS = {f.__name__: f for f in (dw, f32, tf32, halves, copies, rows)}


# ---- the table
def table(task: Task, seconds: float, say: Callable[[str], None]) -> bool:
    device, case, right = machine(), task.case, True
    arrays = [o.array(k) for k, o in enumerate(case.operands)]
    peer = gpu.theirs(case, arrays)
    assert peer is not None, "torch sees no GPU"
    theirs, results = peer
    (want,) = results()
    found = []
    for name, make in task.ways:
        # which one it is, if the device is lost
        print(f"{case.name}, {name}", file=sys.stderr, flush=True)
        try:
            program, given = gpu.without_weights(
                case, make(), arrays, lambda program, a: Executable(program, device)(*a)
            )
            ours = gpu.Ours(gpu.Resident(device, program, given), device)
        except LaminaError as error:
            say(f"  {case.name}, {name}: {str(error).splitlines()[0]}")
            continue
        ours.run()
        made = ours.run.results[0]
        error = gpu.error_of(made.numpy(), want)
        good = error <= 2 * case.tolerance(made.dtype)
        right = right and good
        times = gpu.turns({"lamina": ours, "torch": theirs}, seconds)
        wrong = "" if good else f"WRONG {error:.1e}"
        found.append((times["lamina"].least, times["torch"].least, name, wrong, error))
        del ours
        device.allocator.empty_cache()
    least = min(torch for _, torch, *_ in found)
    say(f"{case.name}: torch {least * 1e6:.1f} us")
    for taken, _, name, wrong, error in sorted(found):
        unit, rate = ("GB/s", case.work / taken / 1e9) if case.moves else ("TF/s", case.work / taken / 1e12)
        ahead = f"{least / taken:>6.2f}x {error:>8.1e}"
        say(f"  {taken * 1e6:>9.1f} us {rate:>7.1f} {unit} {ahead}  {name} {wrong}")
    return right


def codes_of(case: gpu.Case, program: Program, target: Target) -> tuple[Code, ...]:
    """All that a way runs, what it makes of weights before included."""
    found: list[Code] = []

    def add(part: Program, arrays: Sequence[np.ndarray] = ()) -> list[np.ndarray]:
        found.extend(launch_list(part, target)[0].codes)
        return [np.zeros(x.shape, gpu.NUMPY[x.dtype]) for x in part.results]

    arrays = [np.broadcast_to(np.zeros((), gpu.NUMPY[o.dtype]), o.shape) for o in case.operands]
    add(gpu.without_weights(case, program, arrays, add)[0])
    return tuple(found)


def compiled_ahead(sections: Sequence[str], target: Target) -> None:
    """Have the kernels of all ways in the cache, and say which ways are refused."""
    made: dict[str, tuple[Code, ...]] = {}
    for task in (task for section in sections for task in SECTIONS[section]()):
        for name, make in task.ways:
            label = f"{task.case.name}, {name}"
            try:
                made[label] = codes_of(task.case, make(), target)
            except KernelError as error:
                print(f"{label}: {error}", flush=True)
    every = dict.fromkeys(code for codes in made.values() for code in codes)
    try:
        compiled(every, target)
    except KernelError:
        for label, codes in made.items():
            try:
                compiled(codes, target)
            except KernelError as error:
                print(f"{label}: {error}", flush=True)
    print(f"{len(every)} kernels for {target.name}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SECTIONS, action="append")
    parser.add_argument("--compile", metavar="TARGET", help="compile for it, and measure nothing")
    parser.add_argument("--seconds", type=float, default=0.03, help="for one way's rounds")
    parser.add_argument("--minutes", type=float, default=3.0, help="no task begins later")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    sections = options.only or list(SECTIONS)
    if options.compile:
        compiled_ahead(sections, Target.named(options.compile))
        return 0
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    until, device, right = time.monotonic() + 60 * options.minutes, machine(), True
    say(where())
    say(f"{device.device.name} ({device.target}), triton {version('triton')}, torch {version('torch')}")
    for task in (task for section in sections for task in SECTIONS[section]()):
        if time.monotonic() > until:
            say(f"left out, as the time was over: {task.case.name}")
            continue
        right = table(task, options.seconds, say) and right
    if options.write:
        (RESULTS / "gpu_ways.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
