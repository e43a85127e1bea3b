"""How long kernels would take on an H100 or H200, by their compiled code: an estimate, never a gate.

`benchmarks/gpu.py` prints it beside what it measures; `benchmarks/gpu_predict.py` beside what was measured.

A launch begins, and then takes what the busiest core and the device have to do, side by side as far as they
can (OVERLAP):

    memory        what its arrays hold, each once, at the memory's rate, or the L2's where all fits in there;
                  less, where too few bytes are on their way at once to hide the memory's latency
    L2            what all programs load and store together
    tensor cores  the multiplications of its machine code, as often as it runs them
    pipes         its other instructions, by the throughput of each kind, and by what four schedulers issue
    latency       a load's for each wave of programs, and for each step of a loop, less what is loaded ahead

Machine code is read by nvdisasm, which comes with Triton.  A loop is taken to run as often as the schedule
says; of attention, as often as its multiplications ask for.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

from lamina.ir.kernel.form import Kernel, names
from lamina.ir.kernel.scalar import Expr, Read, Ref, walk
from lamina.ir.kernel.types import NUMPY
from lamina.passes import cache as disk
from lamina.passes.kernels.collapse import canonical, collapsed
from lamina.passes.programs.program import Call, Program, Whole
from lamina.passes.schedules.gpu import Along, Dot, Lanes, Persistent
from lamina.passes.schedules.steps import Schedule, is_default
from lamina.passes.triton.binary import Binary
from lamina.passes.triton.code import Code
from lamina.passes.triton.defaults import default_schedule
from lamina.passes.triton.launches import Launch, launch_list, launch_plan
from lamina.passes.triton.schedule import num_stages, points, precision, turns
from lamina.passes.triton.target import Target
from lamina.planning import DEVICES as ALL_DEVICES
from lamina.planning import Accelerator
from lamina.profiler.work import Work, work_of_kernel
from lamina.runtime.cuda import cubin
from lamina.runtime.triton_compiler import compiled

# Of a core, by the CUDA C++ Programming Guide's tables of compute capability 9.0
CORES = 132  # of an H100 SXM and an H200: NVIDIA H100 white paper
REGISTERS, THREADS, BLOCKS, SCHEDULERS = 65536, 2048, 32, 4
REGISTER_UNIT, SHARED_UNIT = 256, 128  # registers of a warp, and bytes of a block, are given out by so many
SHARED, DRIVERS = 228 << 10, 1 << 10  # bytes; and those of each block that are the driver's
L2 = 50e6  # bytes
CLOCK = 1.98e9  # at which 132 cores of 128 lanes have the data sheet's 67 TFLOP/s

# Fitted on what an H200 measured (benchmarks/results/gpu.txt, 2026-11-27): sums of rows read 4.37 TB/s of
# 4.8; products of 8192 halves reach 0.81 of the data sheet's rate, which is this and what does not overlap.
STREAMED, SUSTAINED = 0.91, 0.88
PORT = 64 * CORES * CLOCK  # bytes a second of all cores from the L2: 64 a cycle for each
L2_RATE = 7e12  # of arrays that fit in there: 33 MB of weights take 7.3 us there, 2.2 of which are the start
# Of the tensor cores' rate, by mma.sync: Luo et al. 2024, "Benchmarking and Dissecting the Nvidia Hopper GPU
# Architecture via Microbenchmarking"
SYNCHRONOUS = 0.62
LATENCY, L2_LATENCY = 0.7e-6, 0.3e-6  # of a load from memory, and from the L2
# The power of terms that are added: by 1 they come one after another.  Less where what the tensor cores make
# is worked on before they go on, in attention and of split factors; a core's only such block is idle then.
OVERLAP, IN_TURN, ALONE = 2.5, 1.5, 1.0
START = 2.2e-6  # of a launch behind another
HOST = 4.6e-6  # of a launch from Python: the least that any call took there

FORMAT = 2  # of what is kept of machine code
DEVICES = {name: ALL_DEVICES[name] for name in ("h100", "h200")}


def device_of(name: str) -> Accelerator | None:
    """By the name that its driver gives it."""
    return next((device for own, device in DEVICES.items() if own.upper() in name), None)


# ---- how many programs a core has at once
@dataclass(frozen=True)
class Occupancy:
    """blocks: of a core at once.  by: what there would have to be more of for one more."""

    blocks: int
    warps: int
    by: str

    def __str__(self) -> str:
        return f"{self.blocks} x {self.warps} warps by {self.by}"


def occupancy(registers: int, warps: int, shared: int) -> Occupancy:
    """What a core of compute capability 9.0 holds of such blocks.  shared: bytes, the driver's included."""
    of_warp = -(-max(registers, 1) * 32 // REGISTER_UNIT) * REGISTER_UNIT
    each = -(-warps // SCHEDULERS) * SCHEDULERS  # a block's warps are dealt out, and a scheduler has a fourth
    held = REGISTERS // SCHEDULERS // of_warp * SCHEDULERS
    by_registers = held // warps if of_warp * each <= REGISTERS else 0
    limits = {
        "registers": by_registers,
        "shared memory": SHARED // max(-(-shared // SHARED_UNIT) * SHARED_UNIT, 1),
        "threads": THREADS // (32 * warps),
        "blocks": BLOCKS,
    }
    by = min(limits, key=lambda name: limits[name])
    return Occupancy(limits[by], warps, by)


# ---- what machine code consists of
# Lanes of a core that begin such an instruction in each cycle; all others are issued and no more.
PIPES = {
    "fma": (128, r"F(ADD|MUL|FMA)|H(ADD2|MUL2|FMA2)"),
    "imad": (64, r"IMAD"),
    "alu": (
        64,
        r"(LOP3|IADD3?|ISETP|FSETP|HSETP2|F?SEL|FMNMX|HMNMX2|VH?MNMX|IMNMX|SHF|PRMT|LEA|VIADD\w*|SGXT|PLOP3"
        r"|F2FP|I2FP|BMSK|POPC|FLO|FCHK|FSWZADD|IABS|IDP)",
    ),
    "xu": (16, r"(MUFU|F2F|F2I|I2F|FRND)"),
    "f64": (64, r"D(ADD|MUL|FMA|SETP)"),
    "lsu": (32, r"(LDG|STG|LDS|LDSM|STS|STSM|LDGSTS|ATOM|ATOMG|ATOMS|RED|SHFL|LDL|STL|REDUX)"),
}
_PIPES = {name: re.compile(pattern + r"$") for name, (_, pattern) in PIPES.items()}
_LINE = re.compile(r"\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w*)((?:\.\w+)*)[^;]*;")
_LABEL = re.compile(r"(\.L_\w+):")
_BRANCH = re.compile(r"`\((\.L_\w+)\)")
_NARROW = {"U8": 1, "S8": 1, "U16": 2, "S16": 2}  # bytes
_SHAPES = {"1688": (16, 8, 8), "16816": (16, 8, 16), "1684": (16, 8, 4)}


@dataclass(frozen=True)
class Mix:
    """Instructions of a warp: by kind, outside of loops and in each depth of them.

    Beside the pipes' names: "issued", all; "wgmma" and "mma", what the tensor cores compute for four warps
    and for itself, of "tf32" or "halves"; "loaded" and "stored", bytes of memory of each thread; "ahead",
    copies that it does not wait for; "tiles", copies of whole tiles.
    """

    depths: tuple[dict[str, float], ...]

    def total(self, kind: str, trips: float) -> float:
        """How many run, where the innermost bodies run so often together."""
        deepest = max(len(self.depths) - 1, 1)
        return sum(d.get(kind, 0.0) * trips ** (n / deepest) for n, d in enumerate(self.depths))


@lru_cache(maxsize=4096)
def mix(binary: Binary) -> Mix:
    """Of a compiled kernel; kept in the cache."""
    store = disk.default()
    key = disk.key("instructions of a cubin", str(FORMAT), hashlib.sha256(binary.code).hexdigest())
    known = store.get(key)
    if known is None:
        known = json.dumps(mix_of(disassembled(binary.code)).depths).encode()
        store.put(key, known)
    return Mix(tuple(json.loads(known)))


@cache
def disassembler() -> Path | None:
    """nvdisasm, where Triton brings it."""
    spec = find_spec("triton")
    folder = Path(spec.origin).parent if spec and spec.origin else Path()
    path = folder / "backends" / "nvidia" / "bin" / "nvdisasm"
    return path if path.exists() else None


def disassembled(code: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "k.cubin")
        path.write_bytes(code)
        command = [str(disassembler()), "-c", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def mix_of(text: str) -> Mix:
    """Counted in an assembly's text.  What is behind the last exit are waits that failed and slow paths."""
    lines = re.split(r"^\$", text, maxsplit=1, flags=re.M)[0].splitlines()  # where a function of it begins
    ends = [n for n, line in enumerate(lines) if (m := _LINE.match(line)) and m[1] == "EXIT"]
    lines = lines[: ends[-1] + 1] if ends else lines
    labels = {m[1]: n for n, line in enumerate(lines) if (m := _LABEL.match(line))}
    loops, skips = [], []
    for n, line in enumerate(lines):
        m = _LINE.match(line)
        to = _BRANCH.search(line)
        if m and m[1] == "BRA" and to and to[1] in labels:
            at = labels[to[1]]
            (loops if at < n else skips).append((min(at, n), max(at, n)))
    depths: list[Counter] = []
    for n, line in enumerate(lines):
        m = _LINE.match(line)
        if not m:
            continue
        inside = [loop for loop in loops if loop[0] <= n <= loop[1]]
        # what a loop jumps over, as the end of a tile is, runs for one step of many
        jumped = any(a < n < b and loop[0] < a and b <= loop[1] for a, b in skips for loop in inside)
        depth = max(len(inside) - jumped, 0)
        while len(depths) <= depth:
            depths.append(Counter())
        for kind, count in _kinds(m[1], m[2].split(".")[1:]):
            depths[depth][kind] += count
    return Mix(tuple(dict(d) for d in depths))


def _kinds(opcode: str, words: list[str]) -> Iterator[tuple[str, float]]:
    """What an instruction counts as.  words: those behind its dots."""
    yield "issued", 1
    if opcode == "HGMMA":
        m, n, k = map(int, next(w for w in words if "x" in w).split("x"))
        yield "wgmma", 2.0 * m * n * k
        yield "tf32" if "TF32" in words else "halves", 2.0 * m * n * k
    elif opcode in ("HMMA", "IMMA", "DMMA"):
        shape = next((w for w in words if w in _SHAPES), "16816")
        yield "mma", 2.0 * math.prod(_SHAPES[shape])
        yield "tf32" if "TF32" in words else "halves", 2.0 * math.prod(_SHAPES[shape])
    elif opcode.startswith("UTMALDG"):
        yield "tiles", 1
    width = next((int(w) // 8 for w in words if w in ("64", "128")), 4)
    width = next((_NARROW[w] for w in words if w in _NARROW), width)
    if opcode in ("LDG", "LDGSTS"):
        yield "loaded", width
    if opcode == "LDGSTS":
        yield "ahead", 1
    if opcode in ("STG", "RED", "ATOM", "ATOMG"):
        yield "stored", width
    for name, pattern in _PIPES.items():
        if pattern.match(opcode):
            yield name, max(1, width / 4) if name == "lsu" and opcode != "SHFL" else 1


# ---- what a launch has to do
@dataclass(frozen=True)
class Task:
    """A launch of a program.

    work: what has to be done and moved.  trips: of its loops for a tile; None where its multiplications say
    so.  rounds: tiles of each program.  stages: steps on their way at once.  reads: bytes of all accesses
    that read.  again: whether a program goes over the same more than once.  step: bytes of both factors in a
    step of a product.  rounded: whether each product is three, of tf32.
    """

    code: Code
    binary: Binary
    about: str
    work: Work
    trips: float | None
    rounds: int = 1
    stages: int = 1
    reads: float = math.inf
    again: bool = False
    step: int = 0
    rounded: bool = False


# Multiplications and additions for each score and element of a head
PRODUCTS = {"whole": 4, "with_lse": 4, "to_query": 6, "to_key_value": 8}


def work_of_attention(step: Whole) -> Work:
    """Of scores that are looked at: half of them where each query sees what is before it."""
    query, key = (tuple(map(int, step.inputs[k].shape)) for k in (0, 1))
    arrays = [a for a in (*step.inputs, *step.outputs) if a is not None]
    nbytes = sum(NUMPY[a.dtype].itemsize * math.prod(map(int, a.shape)) for a in arrays)
    scores = math.prod(query[:-1]) * key[-2] * query[-1]
    (each,) = (count for name, count in PRODUCTS.items() if name in step.name)
    return Work(each * scores // (1 + bool(step.attrs["is_causal"])), nbytes)


def trips_of(kernel: Kernel, schedule: Schedule) -> float:
    """How often the innermost bodies run for one tile, at most."""
    blocks = schedule.of(Along)
    most = 1.0
    sized = {block.axes: block.size for block in blocks}
    for stage in kernel.stages:
        axes, count = names(stage.axes), 1.0
        left = set(axes)
        for own, size in sized.items():
            if set(own) <= left:
                count *= -(-points(kernel, own) // size)
                left -= set(own)
        most = max(most, count * points(kernel, tuple(left)))
    return most


def reads_of(kernel: Kernel) -> float:
    """Bytes of all accesses that read, each as often as it stands; what has no array is computed again."""

    def found(exprs: Sequence[Expr]) -> Iterator[Read]:
        for e in walk(*exprs):
            local = kernel.locals.get(e.name) if isinstance(e, Ref) else None
            if isinstance(e, Read):
                yield e
            elif local is not None and local.axes:
                yield from found(local.exprs)

    outer, total = points(kernel, names(kernel.parallel)), 0.0
    for stage in {*kernel.stages, *kernel.stores}:
        if not (stage.axes and stage in kernel.locals.values()):
            each = sum(NUMPY[kernel.buffers[e.buffer].dtype].itemsize for e in found(stage.exprs))
            total += outer * points(kernel, names(stage.axes)) * each
    return total


def step_of(kernel: Kernel, how: Schedule) -> int:
    """The bytes of both factors in a step of a product's sum."""
    lanes, along = [*how.of(Lanes)], [*how.of(Along)]
    if not how.has(Dot) or len(lanes) != 2 or len(along) != 1:
        return 0
    return sum(x.size for x in lanes) * along[0].size * NUMPY[kernel.inputs[0].dtype].itemsize


def tasks_of(program: Program, target: Target) -> list[Task]:
    """The launches of a program, compiled, each with what it has to do."""
    launches, _ = launch_list(program, target)
    plan, _ = launch_plan(program, target)
    binaries = compiled(launches.codes, target)
    left, found = [part for part in launches.parts if isinstance(part, Launch)], []
    for step in plan.program.steps:
        if not isinstance(step, (Call, Whole)):
            continue
        inputs, outputs = plan.arguments(step)
        places = tuple(place for place in (*inputs, *outputs) if place is not None)
        own: list[Launch] = []
        while left and (left[0].about, left[0].arguments) == (step.name, places):
            own.append(left.pop(0))
        found += _tasks_of_step(step, [(launches.codes[x.code], binaries[x.code]) for x in own], target)
    assert not left, f"launches of no step: {left}"
    return found


def _tasks_of_step(step: Call | Whole, made: list[tuple[Code, Binary]], target: Target) -> Iterator[Task]:
    if isinstance(step, Whole):
        rounded = step.inputs[0].dtype == "f32" and step.attrs["precision"] == "tf32x3"
        work = work_of_attention(step)
        for code, binary in made:
            yield Task(code, binary, step.name, work, None, stages=code.num_stages, rounded=rounded)
        return
    work, grids = work_of_kernel(step.kernel), sum(code.grid for code, _ in made)
    kernel, how = step.kernel, step.how
    if is_default(how):
        kernel = canonical(collapsed(kernel))
        how = default_schedule(kernel, target, precision(how))
    rounds = -(-turns(kernel, how) // max(grids, 1)) if how.has(Persistent) else 1
    for code, binary in made:
        share = code.grid / grids
        own = Work(int(work.flops * share), int(work.nbytes * share))
        trips = trips_of(kernel, how) / len(made)
        yield Task(
            code, binary, step.name, own, trips, rounds, num_stages(how), reads_of(kernel) * share,
            not how.has(Dot), step_of(kernel, how), precision(how) == "tf32x3",
        )  # fmt: skip


# ---- how long it takes
@dataclass(frozen=True)
class Prediction:
    """Of a launch.

    occupancy: what a core holds.  waves: how often all cores are filled.  tail: of what all cores could do
    until the busiest is done, the share that is done.  terms: seconds that each part of the device would take
    alone.  overlap: as OVERLAP.  limit: the least that the work takes at the data sheet's rates.
    """

    task: Task
    occupancy: Occupancy
    waves: float
    tail: float
    terms: dict[str, float]
    overlap: float
    limit: float

    @property
    def seconds(self) -> float:
        return START + sum(t**self.overlap for t in self.terms.values()) ** (1 / self.overlap)

    @property
    def by(self) -> str:
        return max(self.terms, key=lambda name: self.terms[name])


def predicted(task: Task, device: Accelerator, from_l2: bool) -> Prediction:
    """How long a launch takes on a device.  from_l2: its arrays are there already."""
    binary, grid, counted, trips = task.binary, task.code.grid, mix(task.binary), _trips(task)
    needs = cubin.needs(binary.code, binary.name)
    held = occupancy(needs.registers, binary.num_warps, binary.shared + max(needs.shared, DRIVERS))
    most = -(-grid // CORES)  # programs of the busiest core
    waves = grid / (CORES * held.blocks)
    moved = grid * _moved(task, trips)
    ahead = counted.total("ahead", 1.0) + counted.total("tiles", 1.0) > 0
    # memory
    bandwidth = L2_RATE if from_l2 else STREAMED * device.bandwidth
    at_once = (
        binary.shared if ahead else 32 * binary.num_warps * max(d.get("loaded", 0) for d in counted.depths)
    )
    if at_once:
        bandwidth = min(bandwidth, min(grid, CORES) * min(held.blocks, most) * at_once / LATENCY)
    nbytes = task.work.nbytes
    if task.again and nbytes * min(1.0, 1 / waves) > L2:
        nbytes = max(nbytes, moved)  # what a program goes over again is no longer in the L2
    # tensor cores
    kind = "tf32" if counted.total("tf32", 1.0) else "bf16" if counted.total("halves", 1.0) else "fp32"
    multiplied = counted.total("wgmma", trips) / 4 + counted.total("mma", trips) / SYNCHRONOUS
    # pipes
    cycles = {name: counted.total(name, trips) * 32 / lanes for name, (lanes, _) in PIPES.items()}
    cycles["issue"] = counted.total("issued", trips) / SCHEDULERS
    slowest = max(cycles, key=lambda name: cycles[name])
    # latency
    steps = trips if len(counted.depths) > 1 else 0.0
    of_step = L2_LATENCY / max(1, task.stages - 1) if ahead else LATENCY
    terms = {
        "memory": nbytes / bandwidth,
        "L2": moved / PORT,
        "tensor cores": most * binary.num_warps * multiplied / (device.peak[kind] / CORES * SUSTAINED),
        slowest: most * binary.num_warps * cycles[slowest] / CLOCK,
        "latency": math.ceil(waves) * (LATENCY + steps * of_step),
    }
    limit = max(task.work.nbytes / device.bandwidth, task.work.flops / device.peak[kind])
    overlap = OVERLAP
    if task.rounded or task.trips is None:
        overlap = ALONE if task.trips is None and held.blocks == 1 else IN_TURN
    return Prediction(task, held, waves, grid / (CORES * most), terms, overlap, limit)


def _trips(task: Task) -> float:
    """How often the loops of a program run in all."""
    counted, warps, grid = mix(task.binary), task.binary.num_warps, task.code.grid
    in_loops = {
        kind: counted.total(kind, 1.0) - counted.total(kind, 0.0)
        for kind in ("wgmma", "mma", "fma", "loaded")
    }
    if task.trips is None:
        each = warps * (in_loops["wgmma"] / 4 + in_loops["mma"] or 2 * 32 * in_loops["fma"])
        asked = (3 if task.rounded else 1) * task.work.flops
        return max(1.0, asked / (grid * each)) if each else 1.0
    trips = task.trips * task.rounds
    if in_loops["loaded"] and not counted.total("ahead", 1.0):  # bodies that were unrolled run less often
        trips = max(1.0, min(trips, task.reads / (grid * 32 * warps * in_loops["loaded"])))
    return trips


def _moved(task: Task, trips: float) -> float:
    """The bytes that a program loads and stores."""
    counted = mix(task.binary)
    moved = 32 * task.binary.num_warps * (counted.total("loaded", trips) + counted.total("stored", trips))
    if counted.total("tiles", 1.0):
        moved += trips * (task.step or task.binary.shared / task.stages)
    return moved


def seconds_of(program: Program, target: Target, device: Accelerator) -> tuple[float, list[Prediction]]:
    """How long a program takes that is called again and again from Python, and its launches."""
    arrays = {
        a for step in program.steps if isinstance(step, (Call, Whole)) for a in (*step.inputs, *step.outputs)
    }
    nbytes = sum(NUMPY[a.dtype].itemsize * math.prod(map(int, a.shape)) for a in arrays if a is not None)
    found = [predicted(task, device, nbytes < 0.8 * L2) for task in tasks_of(program, target)]
    return max(sum(p.seconds for p in found), HOST * len(found)), found
