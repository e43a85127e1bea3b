"""Run kernels' Triton sources and compare: a line for each, and 1 as exit status where one differs.

    triton_numerics.py families [NAME...]     the kernels of family_kernels.py
    triton_numerics.py records [NAME...]      op records', a sample in each dtype; `0/4` is each fourth
    triton_numerics.py graphs [NAME...]       of records that stand for others; `0/4` likewise
    triton_numerics.py fuzz FIRST COUNT       kernels that passes make of random graphs
    triton_numerics.py attention [0/4]        attention's kernels, of many sizes and masks; each fourth
    triton_numerics.py outside                indices that are out of range, and offsets beyond 32 bits

They run in Triton's interpreter; with `--device` in front compiled, on this machine's NVIDIA GPU; and with
`--compile sm_90` they are compiled into the cache and not run, for a machine that has the GPU.  The other
side is the kernel interpreter, in NumPy.  Each kernel runs as it stands and as `generate` arranges it,
families by their SCHEDULES and with sizes as parameters, too.
"""

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

if sys.argv[1:2] in (["--device"], ["--compile"]):
    from compiled_runs import launch, launch_code, prepare
else:
    from interpreted import launch, launch_code

sys.path.append(str(Path(__file__).parents[1] / "kernel"))
sys.path.append(str(Path(__file__).parents[1] / "ops"))
sys.path.append(str(Path(__file__).parents[1] / "passes"))

import numpy as np
from attention_cases import ATTENTIONS, Attention
from family_kernels import FAMILIES, SCHEDULES
from graph_kernels import DECOMPOSED, decomposed_kernels, graph_kernels
from kernel_memory import guarded, run, unharmed
from probes import PROBES
from record_kernels import LOWERED, record_kernels

from lamina.ir.kernel import NUMPY, Kernel, interpret, parse, verify
from lamina.passes.kernels.collapse import canonical, collapsed
from lamina.passes.kernels.proof import prove
from lamina.passes.kernels.residues import apart
from lamina.passes.schedules.steps import Schedule
from lamina.passes.schedules.steps import parse as parse_schedule
from lamina.passes.triton.code import Code
from lamina.passes.triton.defaults import default_schedule
from lamina.passes.triton.generate import without_descriptors, written
from lamina.passes.triton.opening import Open

# A GPU's multiply-add rounds once where NumPy rounds twice.  A mean that is taken from elements which are all
# alike leaves that rounding, and a root of the variance's epsilon makes it 300 times
# larger: so it is in a random graph.
LIMIT = 4.0 if sys.argv[1:3] == ["--device", "fuzz"] else 1.0
EPS = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}


def error(kernel, got: np.ndarray, want: np.ndarray, terms: int) -> float:
    """How far two arrays are apart, in what rounding may do: at most 1 is right.

    Normwise: each of at most `terms` operations rounds once, and a function of NumPy's is within a few ulp.
    """
    if want.dtype.kind in "iub":
        return 0.0 if np.array_equal(got, want) else float("inf")
    name = next(name for name, dtype in NUMPY.items() if dtype == want.dtype)
    got, want = got.astype(np.float64), want.astype(np.float64)
    differs = ~((got == want) | (np.isnan(got) & np.isnan(want)))
    if not (np.isfinite(got) | ~differs).all() or not (np.isfinite(want) | ~differs).all():
        return float("inf")
    scale = np.abs(want[np.isfinite(want)]).max(initial=1.0)
    return float(np.abs(got - want)[differs].max(initial=0.0) / ((terms + 16) * EPS[name] * scale))


Launched = list[tuple[Kernel, Schedule, Open]]  # one after another, on the same buffers


def ways(label: str, kernel: Kernel) -> Iterator[tuple[Kernel, Launched]]:
    """The forms of a kernel, and what is launched for it."""
    form = canonical(collapsed(kernel))
    yield kernel, [(kernel, default_schedule(kernel), Open.NOTHING)]
    yield form, [(form, default_schedule(form), Open.NOTHING)]
    if label in FAMILIES:
        yield form, [(form, without_descriptors(default_schedule(form)), Open.SIZES)]
    remainders = apart(prove(kernel))
    if len(remainders) > 1:
        yield kernel, [(part, default_schedule(part), Open.NOTHING) for part in remainders]
    for text in SCHEDULES.get(label, ()):
        yield kernel, [(kernel, parse_schedule(text), Open.NOTHING)]


def compare(label: str, kernel, arrays: list[np.ndarray]) -> bool:
    """Run both and print what came out."""
    want = interpret(kernel, *arrays)
    # sums: what one result is made of at most
    terms = max((int(np.prod([int(a.extent) for a in s.axes])) for s in kernel.stages), default=1)
    terms += max((x.size for x in arrays), default=0) if any(s.combine for s in kernel.stores) else 0
    worst = 0.0
    for form, launched in ways(label, kernel):
        flat = [x.reshape(b.shape) for x, b in zip(arrays, form.inputs, strict=True)]
        got = run(partial(launch_each, launched), form, *flat)
        found = [error(form, g.reshape(w.shape), w, terms) for g, w in zip(got, want, strict=True)]
        worst = max(worst, *found, 0.0)
    good = worst <= LIMIT
    print(f"{label}: {worst:.2g} {'ok' if good else 'WRONG'}", flush=True)
    return good


def launch_each(launched: Launched, arrays: dict[str, np.ndarray]) -> None:
    for kernel, schedule, opens in launched:
        launch(kernel, schedule, arrays, opens)


def families(names: list[str]):
    for name, make in FAMILIES.items():
        if not names or name in names:
            yield name, make
    for name, probe in PROBES.items():
        if not names or name in names:
            yield f"probe {name}", lambda probe=probe: (probe.kernel, list(probe.arrays()))


# ---- what NumPy's interpreter refuses, or has no memory for
def indices_out_of_range() -> bool:
    """Nothing beside the arrays is read or written: what is out of range counts as 0, or is left out."""
    text = """kernel k(x: f32[4,3], ids: i64[6]) -> (y: f32[6,3], z: f32[4,3], last: f32[4,3], t: i8[4]) {
  parallel i:6 j:3
  y[i, j] = x[ids[i], j]
  z[ids[i], j] add= 1.0
  last[ids[i], j] set= f32(coord(i))
  t[ids[i]] mul= 3
}"""
    x, ids = np.ones((4, 3), np.float32), np.array([-1, 0, 3, 4, 1 << 40, -(1 << 62)])
    kernel = verify(parse(text))
    y, z, last, t = run(partial(launch, kernel, default_schedule(kernel)), kernel, x, ids)
    rows = np.array([[0], [1], [1], [0], [0], [0]])
    good = (y == rows).all() and (z == [[1], [0], [0], [1]]).all() and (last == [[1], [0], [0], [2]]).all()
    good = bool(good and (t == [27, 1, 1, 27]).all())
    print(f"indices out of range {'ok' if good else 'WRONG'}", flush=True)
    return good


def wide_offsets() -> bool:
    """Elements whose numbers 32 bits do not hold, of a file without contents: the last one is written."""
    step, count = 1 << 25, 70
    text = f"""kernel far(x: u8[{step * count}]) -> (y: u8[{count}], at: i64[{count}]) {{
  parallel i:{count}
  y[i] = x[{step}*i+{step - 1}]
  at[i] = coord({step}*i+{step - 1})
}}"""
    kernel = verify(parse(text))
    with tempfile.TemporaryFile() as file:
        for place in (0, step * (count - 1)):
            file.seek(place + step - 1)
            file.write(b"\x07")
        file.flush()
        far = np.memmap(file, np.uint8, "r", shape=(step * count,))
        y, at = np.zeros(count, np.uint8), np.zeros(count, np.int64)
        launch(kernel, default_schedule(kernel), {"x": far, "y": y, "at": at})
    good = (np.flatnonzero(y) == [0, count - 1]).all() and (at == np.arange(1, count + 1) * step - 1).all()
    print(f"wide offsets {'ok' if good else 'WRONG'}", flush=True)
    return bool(good)


def attends(case: Attention) -> bool:
    """Whether attention by its own kernels, there and back, is what the record says in float64, of NaN and
    infinity too.
    """
    worst = 0.0
    for op, code, arrays, wanted in case.runs():
        results = [want.astype(t.dtype.numpy) for want, t in zip(wanted, case.results(op), strict=True)]
        outputs = [guarded(np.full(want.shape, np.nan, want.dtype)) for want in results]
        given = [*map(guarded, arrays), *outputs]
        launch_code(code, given)
        assert all(map(unharmed, given)), "memory beside an array was written"
        # weights of halves are rounded once more
        found = max(error(None, got, want, case.terms) for got, want in zip(outputs, results, strict=True))
        if found > LIMIT:
            print(f"{case} {op.name}: {found:.2g} WRONG", flush=True)
        worst = max(worst, found)
    print(f"{case}: {worst:.2g} {'ok' if worst <= LIMIT else 'WRONG'}", flush=True)
    return worst <= LIMIT


def attention_codes() -> Iterator[Code]:
    return (code for case in ATTENTIONS for _, code, *_ in case.runs())


def ready(found):
    for label, kernel, arrays in found:
        yield label, lambda kernel=kernel, arrays=arrays: (kernel, arrays)


def work_of(what: str, *words: str):
    """Labels, and what makes a kernel and its arrays."""
    if what == "families":
        return families(list(words))
    if what in ("records", "graphs"):
        every = LOWERED if what == "records" else DECOMPOSED
        if words and "/" in words[0]:
            first, step = map(int, words[0].split("/"))
            words = (*every[first::step],)
        names = words or every
        return ready(record_kernels(names=names) if what == "records" else decomposed_kernels(names))
    return ready(graph_kernels(int(words[0]), int(words[1])))


def main(what: str, *words: str) -> int:
    if what == "--compile":
        target, *words = words
        if words == ["attention"]:
            codes = [*attention_codes()]
        else:
            codes = [
                written(kernel, schedule, opens=opens)
                for label, make in work_of(*words)
                for _, launched in ways(label, make()[0])
                for kernel, schedule, opens in launched
            ]
        count = prepare(codes, target)
        print(f"{count} kernels for {target}")
        return 0
    if what == "--device":
        what, *words = words
        if what == "attention":  # several kernels at a time
            prepare(attention_codes())
    if what == "outside":
        return not (indices_out_of_range() and wide_offsets())
    if what == "attention":
        first, step = map(int, words[0].split("/")) if words else (0, 1)
        return not all([attends(case) for case in ATTENTIONS[first::step]])
    failed = 0
    for label, make in work_of(what, *words):
        kernel = None
        try:
            kernel, arrays = make()
            failed += not compare(label, kernel, arrays)
        except Exception as problem:
            failed += 1
            print(f"{label}: {type(problem).__name__} {str(problem)[-2000:]} WRONG\n{kernel}", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
