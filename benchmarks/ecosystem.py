"""Models of the transformers and timm libraries, and programs of others: Lamina in PyTorch's place.

    python benchmarks/ecosystem.py [transformers] [timm] [programs] [--only llama vit] [--no-trace] [--write]

PyTorch builds each small model with random weights, saves it as a `.pt` file, and tells what it computes; in
a second process Lamina stands for `torch` (`install_as_torch`), builds the same with the library's own code,
loads the file, and computes the same, eagerly and with `forward` traced.  Models that generate do so
greedily, by three beams and by samples; for these both draw from the same uniform numbers.  A column
that holds numbers is the largest difference over 1 + the largest value.

Programs are loops that train (transformers, accelerate, lightning, peft), schedules of diffusers and measures
of torchmetrics, which both run as they stand.  timm needs torchvision at its import, which neither side has:
PyTorch's gets empty modules, Lamina its own stand-in.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

CLOSE = 1e-4
LIBRARIES = ("transformers", "timm", "programs")
VERSIONS = ("torch", "transformers", "timm", "accelerate", "lightning", "diffusers", "peft", "torchmetrics")
RESULTS = Path(__file__).parent / "results"


# ---- in both processes -------------------------------------------------------------------------------------
class _Named(type):
    """A class whose further attributes are their names."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Empty(ModuleType):
    """A module in which every name is an empty class, and every module below it is one too."""

    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Named(name, (), {})


def _without_torchvision() -> None:
    for below in ("", ".ops", ".ops.misc", ".transforms", ".transforms.functional", ".datasets"):
        name = f"torchvision{below}"
        sys.modules[name] = _Empty(name)
        if below:
            setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], sys.modules[name])


def _same_draws(torch: Any) -> None:
    """Have `multinomial` draw by NumPy's numbers, the same on both sides."""
    numbers = np.random.default_rng(0)

    def multinomial(input: Any, num_samples: int, replacement: bool = False, **_: Any) -> Any:
        sums = np.cumsum(input.detach().double().numpy(), -1)
        picked = numbers.random((*sums.shape[:-1], num_samples)) * sums[..., -1:]
        found = (sums[..., None, :] < picked[..., None]).sum(-1)
        return torch.tensor(np.minimum(found, sums.shape[-1] - 1))

    torch.multinomial = multinomial


def _built(library: str, name: str) -> tuple[Any, dict[str, Any], bool]:
    """A model, what it is given, and whether it generates."""
    import torch
    from ecosystem_models import TRANSFORMERS, noise

    torch.manual_seed(0)
    if library == "timm":
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=10).eval()
        size = model.default_cfg["input_size"][-1]
        return model, {"x": noise(1, 3, size, size)}, False
    import transformers

    transformers.logging.set_verbosity_error()
    if library == "programs":
        from ecosystem_programs import PROGRAMS

        return PROGRAMS[name](), {}, False
    case = TRANSFORMERS[name]
    config = transformers.AutoConfig.for_model(case.kind, **case.config)
    return getattr(transformers, case.cls)(config).eval(), case.inputs(), case.generates


def _arrays(found: Any) -> list[np.ndarray]:
    """The tensors in what a model returned."""
    import torch

    made: list[np.ndarray] = []

    def walk(x: Any) -> None:
        if isinstance(x, torch.Tensor):
            if x.dtype != torch.bool:
                made.append(x.detach().numpy())
        elif isinstance(x, dict):
            for value in x.values():
                walk(value)
        elif isinstance(x, (list, tuple)):
            for value in x:
                walk(value)

    walk(found)
    return made


def _generated(model: Any, inputs: dict[str, Any]) -> list[np.ndarray]:
    """Words: the likeliest, by beams, and drawn."""
    import torch

    _same_draws(torch)
    given = {name: value for name, value in inputs.items() if not name.startswith("decoder")}
    fixed = {"max_new_tokens": 6, "min_new_tokens": 6, "pad_token_id": 0}
    ways = (
        {"do_sample": False},
        {"do_sample": False, "num_beams": 3},
        {"do_sample": True, "temperature": 0.7},
    )
    return [model.generate(**given, **fixed, **way).numpy() for way in ways]


def _called(model: Any, inputs: dict[str, Any]) -> list[np.ndarray]:
    import torch

    with torch.no_grad():
        return _arrays(model(*inputs.values()) if list(inputs) == ["x"] else model(**inputs))


# ---- PyTorch's process, and Lamina's -----------------------------------------------------------------------
def make(library: str, name: str, place: Path) -> str:
    """What PyTorch computes, written beside the weights."""
    import torch

    model, inputs, generates = _built(library, name)
    torch.save(model.state_dict(), place.with_suffix(".pt"))
    found, words = _called(model, inputs), _generated(model, inputs) if generates else []
    np.savez(place.with_suffix(".npz"), *found, **{f"words{k}": x for k, x in enumerate(words)})
    return "made"


def check(library: str, name: str, place: Path, traces: bool) -> str:
    """One row of the table, by Lamina."""
    import torch

    model, inputs, generates = _built(library, name)
    model.load_state_dict(torch.load(place.with_suffix(".pt")))
    with np.load(place.with_suffix(".npz")) as file:
        wanted = {key: file[key] for key in file.files}
    expected = [value for key, value in wanted.items() if key.startswith("arr")]
    row = [f"{_apart(_called(model, inputs), expected):.0e}"]
    if generates:
        words = _generated(model, inputs)
        row.append(
            "".join("=" if np.array_equal(x, wanted[f"words{k}"]) else "x" for k, x in enumerate(words))
        )
    else:
        row.append("")
    if traces and library != "programs":
        import lamina

        model.forward = lamina.jit.trace(model.forward)
        for _ in range(4):
            found = _called(model, inputs)
        row += [f"{_apart(found, expected):.0e}", model.forward.explain().splitlines()[0].partition(": ")[2]]
    return " | ".join(row)


def _apart(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    if [x.shape for x in found] != [x.shape for x in expected]:
        return float("inf")
    pairs = [
        (a.astype(np.float64), b.astype(np.float64)) for a, b in zip(found, expected, strict=True) if a.size
    ]
    return max(float(np.abs(a - b).max() / (1 + np.abs(b).max())) for a, b in pairs)


def serve(library: str, what: str, folder: Path, traces: bool) -> None:
    """Answer each name on standard input by a line."""
    warnings.simplefilter("ignore")
    if what == "check":
        import lamina

        lamina.install_as_torch()
    elif library == "timm":
        _without_torchvision()
    for line in sys.stdin:
        name = line.strip()
        place = folder / f"{library}-{name.replace(' ', '_')}.x"
        try:
            told = make(library, name, place) if what == "make" else check(library, name, place, traces)
        except Exception as error:
            if os.environ.get("ECOSYSTEM_TRACEBACKS"):
                traceback.print_exc()
            at = traceback.extract_tb(error.__traceback__)[-1]
            said = str(error).strip().splitlines() or [""]
            told = f"{type(error).__name__}: {said[0][:160]} ({Path(at.filename).name}, line {at.lineno})"
        print(f"@@{told}", flush=True)


# ---- the table ---------------------------------------------------------------------------------------------
class _Server:
    """A process that answers names; begun anew when it dies."""

    def __init__(self, *arguments: str):
        self._arguments = arguments
        self._process: subprocess.Popen | None = None

    def ask(self, name: str) -> str:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, __file__, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("@@"):
                return line[2:].rstrip("\n")
        return f"the process died: {self._process.wait()}"

    def close(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()


def table(library: str, names: list[str], traces: bool) -> list[str]:
    """A library's rows, printed as they come."""
    lines = ["| model | eager | words | traced | calls |", "|---|--:|---|--:|---|"]
    good = 0
    with tempfile.TemporaryDirectory() as folder:
        ours = _Server("--serve", library, "check", folder, *([] if traces else ["--no-trace"]))
        theirs = _Server("--serve", library, "make", folder)
        for name in names:
            told = theirs.ask(name)
            if told == "made":
                told = ours.ask(name)
                cells = told.split(" | ")
                good += len(cells) > 1 and "x" not in cells[1] and all(float(c) < CLOSE for c in cells[0:3:2])
            else:
                told = f"PyTorch: {told}"
            for file in Path(folder).iterdir():
                file.unlink()
            lines.append(f"| {name} | {told} |")
            print(lines[-1], flush=True)
        ours.close()
        theirs.close()
    print(f"{library}: {good} of {len(names)} agree", flush=True)
    return [f"## {library}: {good} of {len(names)} agree", "", *lines, ""]


def main() -> None:
    """Print the tables, and with --write put them into results/ecosystem.md."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], sys.argv[3], Path(sys.argv[4]), "--no-trace" not in sys.argv)
        return
    from ecosystem_models import TIMM, TRANSFORMERS
    from ecosystem_programs import NAMES

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("libraries", nargs="*", default=LIBRARIES)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--no-trace", action="store_true", help="eagerly alone")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    every = {"transformers": list(TRANSFORMERS), "timm": TIMM, "programs": NAMES}
    parts = []
    for library in options.libraries:
        names = [name for name in every[library] if not options.only or name in options.only]
        parts += table(library, names, not options.no_trace)
    if options.write:
        place = RESULTS / "ecosystem.md"
        before = place.read_text().split("\n## ")[1:] if place.exists() else []
        kept = [f"## {part}" for part in before if part.partition(":")[0] not in options.libraries]
        versions = ", ".join(f"{name} {_version(name)}" for name in VERSIONS)
        head = [
            "# Libraries on Lamina",
            "",
            f"By benchmarks/ecosystem.py; {versions}; {datetime.date.today()}.",
            "",
        ]
        place.write_text("\n".join([*head, *kept, *parts]))


def _version(name: str) -> str:
    from importlib.metadata import version

    return version(name)


if __name__ == "__main__":
    main()
