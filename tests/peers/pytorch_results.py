"""Writes what `pytorch_suite.py` counted into benchmarks/results/pytorch_suite.md, file by file."""

from __future__ import annotations

import datetime
import importlib.metadata
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "pytorch_suite.md"
HEAD = """\
# PyTorch's own test files on Lamina

`python tests/peers/pytorch_suite.py --tests CHECKOUT/test --write FILE ...`, outside of CI.  A row counts a
file's tests, those that pass on PyTorch (CPU), those of them that pass on Lamina, and those that fail for
nothing but the wording of an error.  Below: how many don't pass, what the first said, its name and line.
Files of 2.1.0a0 are changed where they name what PyTorch 2.13 has no more, and functorch's are without the
tests that go over its database of operators (test_torch_operators.py compares those).

Left out are tests of PyTorch's inside: 1,233 of test_reductions.py, of a second implementation of its
operators (`torch._refs`), and 440 of test_convolution.py, of which of its convolutions it chooses. Not
counted either is what was not run since something was mended for it.

The commit is that of the last run: after `--again`, what passed before was not run a second time.  "Takes too
long" was on a busy machine.  What is no fault:

- `test_numpy_array_binary_ufunc_promotion` demands that an array plus a tensor, and `add` of an array,
  differ from what the array as a tensor gives ("undesired failure", an issue of PyTorch's). Here they are
  the same, and who passes an array to a function expects that: nobody's program needs the failure.
- A number that does not fit into a dtype is refused where PyTorch wraps it around (`uint8 + 1000`).
- Others demand what PyTorch lacks: that `numpy()` of bfloat16 fails, that a comparison with NumPy's
  complex64 is wrong ("TODO: needs fix"), that NumPy's comparisons give uint8, that `jit.script` fails, that
  int32 is no index for `take_along_dim`.
- `conj()` computes at once: there is no conjugate bit to ask for, and `x.conj().imag` is no view of x.
- `unique(dim=…)` with NaN: PyTorch's order there follows from no rule.
- Gradients that PyTorch refuses and that are right here: writes into one of several views of a tensor,
  histories that save what was made under `inference_mode`, `grad` through a re-entrant checkpoint, a backward
  outside of `allow_mutation_on_saved_tensors`, of adaptive pools without outputs (zero), of batch norm's
  running statistics, through writes into what modules with backward hooks return, of nested tensors in
  MultiheadAttention.
- What PyTorch's kernels have for no integers: adaptive pools and `interpolate` take them here. Adagrad takes
  uninitialised parameters, `jit.script` lazy modules: neither needs the shape yet.
- `register_backward_hook` is the full one, which misses nothing: it has no reason to warn.
- Memory formats: pools and dropout of channels-last or permuted images may give rows side by side.
- What was freed is freed: `affine_grid` is ops in a row, and saves something for its backward.
- Sums of uncoalesced sparse gradients hold each place as it came, where PyTorch sometimes merges neighbours.
- Of `nn`'s inside there are no `torch.embedding_bag` and `_embedding_bag`, `_replicate_for_data_parallel`,
  `torch.ao`'s modules, schemas for `return_and_correct_aliasing`, `_from_public_api`, `_masked_softmax`,
  `_nested_tensor_from_mask`, `slow_conv3d`, `_VF`; a product of a tensor on the CPU and one on the meta
  device is refused.
- Of autograd's inside there are no view functions, dispatch modes, selective checkpoints, nor `torch._C`'s
  looks at the engine's plan. A profile names ops as Lamina does: `mul`, not `aten::mul`.
- test_fx.py makes a test of each function that stands in PyTorch's `functional.py`: 46 have none here, and 8
  are traced where PyTorch refuses. Tests of schemas (`TestOperatorSignatures`) are left out.
- test_transformers.py draws masks: with Lamina's numbers a row of some is empty, of which its own reference
  makes NaN; `scaled_dot_product_attention` gives 0 on both sides.
- Classes of PyTorch's `common_subclass` ask whether `device` is that of Tensor; here the class below has one.
- complex32, quantised and `torch.ops` names are not offered.
- Storages' private tables and `_cdata`, `_neg_view`, `_fix_weakref`, warnings of what is not deterministic.
- Overlapping writes that PyTorch refuses (`out=`, `index_add_` onto what is read) are right here.
- Under transforms PyTorch refuses custom functions whose `forward` takes `ctx`, and the "same" random numbers
  for what each example has of its own; here both are served. test_vmap.py's switch of warnings is taken out.
- One memory format: `contiguous(memory_format=torch.channels_last)` moves nothing.

| file | tests | pass on PyTorch | pass here | share | but for wording | tests of | PyTorch | Lamina | date |
|---|--:|--:|--:|--:|--:|---|---|---|---|
"""


def _read() -> tuple[dict[str, str], dict[str, str]]:
    """The rows and the sections of the file as it is."""
    if not RESULTS.exists():
        return {}, {}
    table, *sections = re.split(r"^## ", RESULTS.read_text(), flags=re.MULTILINE)
    rows = {line.split(" | ")[0][2:]: line for line in table.splitlines() if ".py |" in line}
    return rows, {s.partition("\n")[0]: s.partition("\n")[2].strip("\n") for s in sections}


def run_of() -> list[str]:
    """The commit that runs, and the day."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    return [commit, str(datetime.datetime.now(datetime.UTC).date())]


def write(checkout: Path, counted: list[tuple[list[str], list[str]]]) -> None:
    """Put in place the rows (whose last two are of `run_of`) and sections of these files."""
    version = checkout / "version.txt"
    of = version.read_text().strip() if version.exists() else "?"
    rows, sections = _read()
    for row, reasons in counted:
        rows[row[0]] = (
            "| " + " | ".join([*row[:-2], of, importlib.metadata.version("torch"), *row[-2:]]) + " |"
        )
        sections[row[0]] = "\n".join(reasons)
    parts = [f"\n## {name}\n\n{sections[name]}\n" for name in sorted(sections) if sections[name]]
    lines = [rows[name] for name in sorted(rows)]
    RESULTS.write_text(HEAD + "\n".join([*lines, _sum(lines)]) + "\n" + "".join(parts))


def _sum(rows: list[str]) -> str:
    """The row of all files."""
    numbers = [[int(row.split(" | ")[place]) for row in rows] for place in (1, 2, 3, 5)]
    tests, there, here, wording = map(sum, numbers)
    return f"| all | {tests} | {there} | {here} | {here / there:.1%} | {wording} | | | | |"
