"""What benchmarks/gpu_model.py predicts, beside what an H200 measured of the same kernels.  No GPU is needed.

    python benchmarks/gpu_predict.py [--only cases] [--write]

The rows are those of benchmarks/results/gpu.txt ("cases"), gpu_tiles.txt and gpu_attention.txt: each is
compiled as it is now, which may be another kernel than the one that was measured.  Behind them stands the
ratio's geometric mean and spread; then the shares of what the device could do at most, and of what others
reach: measured, where it was.  --write puts it all into benchmarks/results/gpu_model.txt.
"""

from __future__ import annotations

import argparse
import math
import re
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

import gpu
import gpu_attention
import gpu_tiles
from contest import RESULTS
from gpu_model import DEVICES, Prediction, Task, predicted, seconds_of

from lamina.ir.errors import LaminaError
from lamina.passes.triton.attention_tiles import Tile
from lamina.passes.triton.target import Target
from lamina.profiler.work import Work
from lamina.runtime.triton_compiler import compiled

SM_90, H200 = Target.named("sm_90"), DEVICES["h200"]
# Shah et al. 2024, "FlashAttention-3", figures 5 and 6: TFLOP/s of halves on an H100 SXM by width, whether
# each query sees what is before it, and length.
FLASH = {
    (64, False): {512: 333, 1024: 392, 2048: 460, 4096: 476, 8192: 496, 16384: 497},
    (64, True): {512: 197, 1024: 265, 2048: 371, 4096: 420, 8192: 460, 16384: 473},
    (128, False): {1024: 565, 2048: 625, 4096: 638, 8192: 646, 16384: 648},
    (128, True): {512: 292, 1024: 423, 2048: 521, 4096: 579, 8192: 602, 16384: 616},
}
FLASH_BACK = {
    64: {512: 272, 1024: 363, 2048: 422, 4096: 453, 8192: 472, 16384: 474},
    128: {512: 316, 1024: 424, 2048: 501, 4096: 542, 8192: 559, 16384: 561},
}
BACK = ", there and back"
# Of f32, which was multiplied otherwise and by other tiles when it was measured: not in the mean.
CHANGED = "sdpa 8 x 12 x 2048 x 64 f32", "sdpa 8 x 12 x 2048 x 64 tf32x3"


@dataclass
class Row:
    """seconds, measured; torch's where it was; what the model says of it."""

    name: str
    measured: float
    model: float
    longest: Prediction
    torch: float = math.nan

    @property
    def ratio(self) -> float:
        return self.model / self.measured

    def __str__(self) -> str:
        p = self.longest
        terms = sorted(p.terms.items(), key=lambda item: -item[1])[:2]
        held = f"{p.occupancy}, {p.waves:.1f} waves, {p.tail:.0%} at the end"
        most = ", ".join(f"{name} {seconds * 1e6:.1f}" for name, seconds in terms)
        return (
            f"  {self.name:<54}{self.measured * 1e6:>10.1f}{self.model * 1e6:>10.1f}{self.ratio:>7.2f}"
            f"  {most}; {held}"
        )


NOTES = """\
Rates, starts and overlap were fitted on rows of gpu.txt ("cases"), attention's overlap on those of
gpu_attention.txt as well; nothing was fitted on "tiles".  Kernels are compiled by this Triton as they are
now: those that were measured were of Triton 3.6, some of other tiles (sdpa of f32, by other products too, is
not in the mean).
Where it is off: what takes less than 10 us is what the host's launches take, 4.6 us here and up to 8 in the
run of tiles; steps of small networks, of dozens of such launches, at 0.55 to 0.7; products by tf32x3 at 0.55
to 0.9; of tf32 and 512, few programs of large tiles, at 0.25; attention alone on a core, from 0.57 to 1.4.
Not predicted: ResNet-18's steps, of 372 launches each."""
HEADER = (
    f"  {'':<54}{'measured':>10}{'model us':>10}{'ratio':>7}  the longest launch: terms, what a core holds"
)


# ---- what was measured
def numbers(line: str) -> tuple[str, list[float]] | None:
    """A row of gpu.txt: its name and its times."""
    found = re.match(r"  (\S.*?) {2,}((?:[\d.]+ +)+)", line + " ")
    return (found[1], [float(x) for x in found[2].split()]) if found else None


def cases() -> Iterator[tuple[str, Callable[[], Row]]]:
    known = dict(filter(None, map(numbers, (RESULTS / "gpu.txt").read_text().splitlines())))
    for section in gpu.SECTIONS.values():
        for case in section():
            if case.name in known and "ResNet" not in case.name:
                yield case.name, lambda case=case: of_case(case, known[case.name])


def of_case(case: gpu.Case, times: list[float]) -> Row:
    seconds, found = seconds_of(gpu.program_ahead(case), SM_90, H200)
    # ours and torch's, the least before the median; the rate is last
    return Row(case.name, times[0] / 1e6, seconds, max(found, key=lambda p: p.seconds), times[-3] / 1e6)


def tiles() -> Iterator[tuple[str, Callable[[], Row]]]:
    known = of_tasks(r" +([\d.]+) us +[\d.]+ TF/s +[\d.]+x  (.*?) *$", "gpu_tiles.txt")
    for kind in gpu_tiles.KINDS:
        for task in gpu_tiles.tasks(kind):
            for text, program in task.programs():
                if (task.name, text) in known and text != "as chosen":
                    name, time = f"{task.name}, {text}", known[task.name, text]
                    yield name, lambda name=name, time=time, program=program: of_program(name, time, program)


def of_program(name: str, microseconds: float, program: gpu.Program) -> Row:
    seconds, found = seconds_of(program, SM_90, H200)
    return Row(name, microseconds / 1e6, seconds, max(found, key=lambda p: p.seconds))


def attention() -> Iterator[tuple[str, Callable[[], Row]]]:
    known = of_tasks(
        r"  (there|to queries|to keys and values) +([\d.]+) us +[\d.]+ TF/s  (.*?) *$", "gpu_attention.txt"
    )
    for task in gpu_attention.tasks(None, ""):
        for kernel in gpu_attention.KERNELS:
            for text, tile in gpu_attention.tiles(kernel, task.sizes[-1], task.dtype):
                if tile is not None and (task.name, kernel, text) in known:
                    time = known[task.name, kernel, text]
                    yield (
                        f"{task.name}, {kernel}, {text}",
                        lambda task=task, kernel=kernel, text=text, tile=tile, time=time: of_tile(
                            task, kernel, text, tile, time
                        ),
                    )


def of_tasks(pattern: str, file: str) -> dict[tuple[str, ...], float]:
    """Microseconds of each row by its task's name, which stands above it, and its own words."""
    found, task = {}, ""
    for line in (RESULTS / file).read_text().splitlines():
        if (row := re.match(pattern, line)) is None:
            task = line.split(": ")[0]
            continue
        time = next(word for word in row.groups() if re.fullmatch(r"[\d.]+", word))
        found[task, *(word for word in row.groups() if word != time)] = float(time)
    return found


def of_tile(task: gpu_attention.Task, kernel: str, text: str, tile: Tile, microseconds: float) -> Row:
    code = task.code(kernel, tile, SM_90)
    (binary,) = compiled([code], SM_90)
    nbytes = {"there": 4, "to queries": 5, "to keys and values": 6}[kernel] * 2 * math.prod(task.sizes)
    work = Work(int(task.work(kernel)), nbytes)
    found = predicted(Task(code, binary, kernel, work, None, stages=tile.stages), H200, nbytes < 40e6)
    return Row(f"{task.name}, {kernel}, {text}", microseconds / 1e6, found.seconds, found)


SOURCES = {"cases": cases, "tiles": tiles, "attention": attention}


# ---- shares
def summary(every: list[Row]) -> str:
    rows = [row for row in every if not row.name.startswith(CHANGED)] or every
    logs = [math.log(row.ratio) for row in rows]
    within = sum(abs(x) < math.log(1.25) for x in logs) / len(logs)
    return (
        f"{len(rows)} rows: model / measured {math.exp(statistics.fmean(logs)):.2f} in geometric mean, "
        f"spread {math.exp(statistics.pstdev(logs)):.2f}, from {min(r.ratio for r in rows):.2f} to "
        f"{max(r.ratio for r in rows):.2f}; {within:.0%} within a fourth"
    )


def shares(rows: dict[str, Row]) -> Iterator[str]:
    """What is promised, beside what was measured and predicted: of the data sheet's rate, and of a peer."""
    every = {case.name: case for section in gpu.SECTIONS.values() for case in section()}
    yield (
        f"  {'':<54}{'asked':>6}{'of the sheet':>14}{'by model':>10}{'of torch':>10}    of cuBLAS, cuDNN, "
        "memory"
    )
    asked = [
        *((f"matmul {n} {t}", 85) for n in (4096, 8192) for t in ("bf16", "f16")),
        *((f"matmul 512 {t}", 50) for t in ("bf16", "f16")),
        ("matmul 64 x 65536 x 64 bf16", 60), ("sum of columns", 60),
        *((f"conv 64 x {c} x {h}^2 -> {c}, to {what} f16", 60) for c, h in ((64, 56), (256, 14))
          for what in ("weight", "input")),
        *((f"conv 64 x {c} x {h}^2 -> {c}, 3 x 3 f16", 60) for c, h in ((64, 56), (256, 14))),
        *((name, 85) for name, case in every.items() if case.moves and name in rows and "linear" not in name),
    ]  # fmt: skip
    for name, percent in asked:
        if (row := rows.get(name)) is None:
            continue
        case = every[name]
        kind = "tf32" if case.precision == "tf32" else "fp32" if case.operands[0].dtype == "f32" else "bf16"
        nbytes = sum(math.prod(o.shape) * gpu.NUMPY[o.dtype].itemsize for o in case.operands)
        limit = max(case.work / H200.peak[kind], nbytes / H200.bandwidth)
        yield share(row, percent, case.work / H200.bandwidth if case.moves else limit)
    for row, work in channels_last():
        yield share(row, 60, work / H200.peak["fp16"])
    yield f"  {'':<54}{'asked':>6}{'TF/s':>14}{'by model':>10}{'FA-3':>10}{'share':>10}"
    for name, row in rows.items():
        found = re.match(r"sdpa (\d+) x (\d+) x (\d+) x (\d+) (f16)(, causal)?(, there and back)?$", name)
        if found is None:
            continue
        lead, length, width = int(found[1]) * int(found[2]), int(found[3]), int(found[4])
        causal, measured, model, products = found[6] is not None, row.measured, row.model, 4
        table = FLASH[width, causal]
        if found[7]:
            there = rows.get(name.removesuffix(BACK))
            if causal or there is None:
                continue  # the figures of the way back are without a mask
            measured, model, products = measured - there.measured, model - there.model, 10
            table = FLASH_BACK[width]
        work = products * lead * length**2 * width / (1 + causal) / 1e12
        theirs = table[length]
        label = name.removesuffix(BACK) + (", back" if found[7] else "")
        yield (
            f"  {label:<54}{60:>4} %{work / measured:>14.0f}{work / model:>10.0f}{theirs:>10}"
            f"{work / measured / theirs:>10.0%}"
        )


def share(row: Row, percent: int, limit: float) -> str:
    """limit: the least seconds by the data sheet."""
    of_torch = f"{row.torch / row.measured:>10.0%}" if row.torch > 0 else f"{'-':>10}"
    return f"  {row.name:<54}{percent:>4} %{limit / row.measured:>14.0%}{limit / row.model:>10.0%}{of_torch}"


def channels_last() -> Iterator[tuple[Row, float]]:
    """Convolutions of halves whose images lie so: as chosen, and what they compute."""
    text = (RESULTS / "gpu_tiles.txt").read_text()
    for task in gpu_tiles.tasks("conv f16"):
        found = re.search(
            rf"{re.escape(task.name)}: torch ([\d.]+) us(?:.*\n)+? +([\d.]+) us.* as chosen", text
        )
        assert found is not None, task.name
        _, program = next(task.programs())
        row = of_program(task.name, float(found[2]), program)
        row.torch = float(found[1]) / 1e6
        yield row, task.work


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=SOURCES, action="append")
    parser.add_argument("--every", type=int, default=1, help="of tiles, one row in so many")
    parser.add_argument("--named", default="", help="rows whose names have this in them")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    say(f"triton {version('triton')} for sm_90; measured on an H200 (benchmarks/results/gpu*.txt)")
    for line in NOTES.splitlines():
        say(line)
    say(HEADER)
    rows: dict[str, dict[str, Row]] = {}
    for source in options.only or SOURCES:
        say(source)
        found = rows[source] = {}
        step = 1 if source == "cases" else options.every
        if step > 1:
            say(f"  one row in {step}")
        for number, (name, make) in enumerate(SOURCES[source]()):
            if options.named not in name or number % step:
                continue
            try:
                found[name] = make()
            except LaminaError as error:
                say(f"  {name:<54}{str(error).splitlines()[0]}")
                continue
            say(str(found[name]))
    for source, found in rows.items():
        if found:
            say(f"{source}: {summary([*found.values()])}")
    if rows.get("cases"):
        say("shares")
        for line in shares(rows["cases"]):
            say(line)
    if options.write:
        (RESULTS / "gpu_model.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
