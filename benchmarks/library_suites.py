"""Runs the test suites of libraries on PyTorch and on Lamina, and counts what passes on both.

    python benchmarks/library_suites.py --sources FOLDER [--only einops gpytorch] [--again] [--write]

FOLDER holds a source tree of each library by its name, as published (from its sdist or a checkout); nothing
of them belongs into this repository.  The libraries themselves are installed beside Lamina, without what they
depend on (docs/libraries.md).  pytest runs each suite twice, once as it is and once by `python -m lamina run
-m pytest`; what passes on PyTorch is asked of Lamina.  What became of each test is kept in FOLDER/outcomes:
--again runs those that did not pass the last time; --write puts the counts into
benchmarks/results/library_suites.md.
"""

from __future__ import annotations

import argparse
import collections
import datetime
import importlib.metadata
import json
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import NamedTuple

from contest import processor

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "library_suites.md"
HEAD = """\
# Test suites of libraries on Lamina

By benchmarks/library_suites.py, its last run on {machine}.
A row counts a suite's tests, those that pass on PyTorch
{torch}, and those of them that pass on Lamina.  Below: how many don't, what the first said, and its name.

| library | tests | pass on PyTorch | pass here | share | Lamina | date |
|---|--:|--:|--:|--:|---|---|
"""


class Suite(NamedTuple):
    """Where the tests of a library lie in its source tree, and what pytest is told besides."""

    tests: tuple[str, ...]
    options: tuple[str, ...] = ()


SUITES: dict[str, Suite] = {
    # what launches further processes, asks a hub, or wants a GPU is left out
    "accelerate": Suite(
        tuple(
            f"tests/test_{part}.py"
            for part in (
                "accelerator big_modeling data_loader dataclasses hooks kwargs_handlers logging memory_utils"
                " modeling_utils offload optimizer scheduler utils"
            ).split()
        ),
        ("--timeout=60",),
    ),
    # a part that takes a minute
    "botorch": Suite(
        (
            "test/acquisition/test_analytic.py",
            "test/acquisition/test_objective.py",
            "test/models/transforms",
            "test/posteriors",
            "test/sampling/test_normal.py",
            "test/sampling/pathwise/test_posterior_samplers.py",
            "test/utils/test_transforms.py",
        ),
        ("--timeout=60",),
    ),
    # its tests ask for EINOPS_TEST_BACKENDS=numpy,torch in the environment
    "captum": Suite(
        ("tests/attr", "tests/metrics", "tests/module", "tests/robust", "tests/utils"),
        # language models are downloaded; the surrogates of lime and shap take minutes
        (
            "--timeout=120",
            "--ignore-glob=*llm_attr*",
            "--ignore=tests/attr/test_data_parallel.py",
            "-k",
            "not lime and not shap and not Shap",
        ),
    ),
    # the other files take minutes each; test_linear_like_tp draws the names of its cases
    "e3nn": Suite(
        ("tests/o3/linear_test.py", "tests/o3/rotation_test.py"), ("--timeout=60", "-k", "not like_tp")
    ),
    "einops": Suite(("einops/tests",)),
    "gpytorch": Suite(("test",), ("--timeout=120",)),
    "kornia": Suite(  # not its augmentations, 5573 tests, nor models, whose weights are downloaded
        tuple(
            f"tests/{folder}"
            for folder in ("geometry", "filters", "color", "enhance", "losses", "morphology", "metrics")
        ),
        ("--device=cpu", "--dtype=float32", "--timeout=120"),
    ),
    "linear_operator": Suite(("test",), ("--timeout=120",)),
    # tests/ops, tests/distributions: 12,900 cases, which take longer than a run should
    "pyro": Suite(("tests/nn",), ("--timeout=120",)),
    # of 19,000 tests of adapters on small networks those of LoRA's kin; the other files ask a hub
    "peft": Suite(
        (
            "tests/test_custom_models.py",
            "tests/test_bufferdict.py",
            "tests/test_incremental_pca.py",
        ),
        (
            "--no-cov",
            "--timeout=60",
            "-k",
            "not test_custom_models or (Vanilla and LoRA and (training_custom or layers_is or safe_merge))",
        ),
    ),
    "safetensors": Suite(
        tuple(
            f"tests/test_{part}.py"
            for part in "handle multithreaded pread_backend pt_comparison pt_model simple threadable".split()
        )
    ),
    # its data and most of test_models.py take torchvision or hours; one test wants its script of training
    "timm": Suite(
        tuple(
            f"tests/test_{part}.py"
            for part in (
                "checkpoint_loading checkpoint_saver factory input_conv layers layers_drop layers_pool"
                " layers_pos_embed scheduler utils"
            ).split()
        ),
        ("--timeout=60", "-k", "not test_train_pretrained_cfg_overlay"),
    ),
    # Left out: training, compiling and exporting, minutes for each model; several ranks; what a hub holds;
    # watermarks, a minute each.  Empty classes stand for the mixins of tests/exporters, with which every
    # model's tests import PyTorch's passes over graphs.
    "transformers": Suite(
        (
            *(f"tests/models/{name}/test_modeling_{name}.py" for name in ("bert", "vit")),
            *(
                f"tests/generation/test_{part}.py"
                for part in ("logits_process", "stopping_criteria", "streamers")
            ),
            *(
                f"tests/utils/test_{part}.py"
                for part in (
                    "activations cache_utils core_model_loading generic masking_utils modeling_rope_utils"
                ).split()
            ),
        ),
        (
            "--timeout=60",
            "--continue-on-collection-errors",
            "-k",
            "not synthid and not test_training and not compile and not export and not flash and not tp_"
            " and not fsdp and not Integration and not test_eager_matches_sdpa_inference and not Slow",
        ),
    ),
    # the other files take minutes, and follow a seed's numbers; jit.script warns, which is an error there
    "geoopt": Suite(
        tuple(f"tests/test_{name}.py" for name in ("adam", "rsgd", "sparse_adam", "tensor_api", "utils")),
        ("-W", "default::DeprecationWarning"),
    ),
    # a part; what starts processes is left out.  Its src hides what is installed: only its tests are unpacked
    "lightning": Suite(
        (
            *(
                f"tests/tests_pytorch/callbacks/test_{part}.py"
                for part in ("early_stopping", "lr_monitor", "stochastic_weight_avg")
            ),
            "tests/tests_pytorch/core/test_lightning_optimizer.py",
            "tests/tests_pytorch/utilities/test_model_summary.py",
        ),
        ("-o", "addopts=", "--timeout=60", "-k", "not spawn and not fork and not ddp and not fsdp"),
    ),
    "normflows": Suite(("normflows",)),
    # its other files train, for minutes; five million draws
    "stable-baselines3": Suite(
        ("tests/test_buffers.py", "tests/test_distributions.py", "tests/test_preprocessing.py"),
        ("--timeout=60", "-k", "not test_categorical"),
    ),
    # its source tree hides what is installed, and compiled: only its tests are unpacked
    "tensordict": Suite(("test/tensordict/test_generic.py", "test/nn/test_nn.py"), ("--timeout=60",)),
    # the other files take minutes, each test of theirs a hundred cases
    "torchdiffeq": Suite(("tests/api_tests.py", "tests/event_tests.py")),
    # A part of 31,000 tests: one file of classification, no retrieval, clusters or pictures.  What needs a
    # network, several ranks or another package is left out or skipped.
    "torchmetrics": Suite(
        tuple(
            f"tests/unittests/{part}"
            for part in (
                "bases nominal pairwise regression shape text classification/test_cohen_kappa.py"
            ).split()
        ),
        (
            "-o",
            "addopts=",
            "--timeout=60",
            "--continue-on-collection-errors",
            "-k",
            "not bert and not infolm and not differentiability",
        ),
    ),
    # two schedulers; pipelines and most models ask a hub
    "diffusers": Suite(
        ("tests/schedulers/test_scheduler_ddim.py", "tests/schedulers/test_scheduler_ddpm.py"),
        ("--timeout=60",),
    ),
    "nflows": Suite(("tests",), ("--timeout=60",)),
    "torch-ema": Suite(("tests",)),
    # the other files take minutes
    "torchsde": Suite(("tests/test_brownian_path.py", "tests/test_brownian_tree.py"), ("--timeout=60",)),
    "opt_einsum": Suite(("opt_einsum/tests",)),
    # a quarter of its tests; the rest runs every optimizer with every option, for an hour
    "pytorch_optimizer": Suite(
        ("tests/optimizers", "tests/utils"), ("--no-cov", "-k", "not sharded and not dtensor")
    ),
    # test_net.py takes minutes; the others ask for a network or for language models
    "skorch": Suite(
        tuple(
            f"skorch/tests/test_{name}.py" for name in ("classifier", "regressor", "toy", "setter", "utils")
        ),
        ("--no-cov",),
    ),
    "torch_geometric": Suite(  # what is left out was not tried yet
        tuple(f"test/{folder}" for folder in ("nn/conv", "nn/dense", "nn/norm", "utils")),
        ("--timeout=120",),
    ),
}


def run(
    folder: Path, suite: Suite, on: str, report: Path, only: set[str] | None = None
) -> dict[str, list[str]]:
    """What became of each test: [pass, skip, fail or error, what was said].  only: those, or all."""
    pytest = ["-m", "pytest", "-q", "--tb=short", f"--junitxml={report}", "-p", "no:cacheprovider"]
    command = [sys.executable, *(["-m", "lamina", "run"] if on == "lamina" else []), *pytest, *suite.options]
    if only is None:
        command += suite.tests
    else:
        # a parameter may hold what a shell or pytest splits: whole functions are named
        command += sorted({test.partition("[")[0] for test in only})
    report.unlink(missing_ok=True)
    with open(report.with_suffix(".log"), "w") as log:
        subprocess.run(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT, check=False)
    if not report.exists():
        raise RuntimeError(f"{folder.name} on {on}: pytest wrote no report; see {report.with_suffix('.log')}")
    found = {}
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        found[_name(folder, case.get("classname", ""), case.get("name", ""))] = _outcome(case)
    return found


def _name(folder: Path, where: str, test: str) -> str:
    """A test as pytest takes it from a command line: the report has dots for the file and its classes."""
    parts = where.split(".")
    for i in range(len(parts), 0, -1):
        file = Path(*parts[:i]).with_suffix(".py") if parts[:i] != [""] else Path()
        if (folder / file).is_file():
            return "::".join([str(file), *parts[i:], test])
    return f"{where}::{test}"


def _outcome(case: xml.etree.ElementTree.Element) -> list[str]:
    for kind in ("error", "failure", "skipped"):
        found = case.find(kind)
        if found is not None:
            said = found.get("message") or found.text or ""
            return [{"failure": "fail", "skipped": "skip"}.get(kind, kind), said.strip()[:400]]
    return ["pass", ""]


def reason(said: str) -> str:
    """What was said without what differs from test to test: to group by."""
    line = next((line for line in said.splitlines() if line.strip()), "")
    line = re.sub(r"0x[0-9a-f]+|-?\b\d+(\.\d+)?(e[-+]?\d+)?\b", "#", line)
    return re.sub(r"\[[#, ]*\]|\([#, ]*\)", "[#]", line)[:160].replace("|", "/")


def counted(
    name: str, theirs: dict[str, list[str]], ours: dict[str, list[str]], run_of: str
) -> tuple[str, str]:
    """A library's row of the table, and its section."""
    passed = [test for test, outcome in theirs.items() if outcome[0] == "pass"]
    missing = ["error", "the test is not made"]
    right = [test for test in passed if ours.get(test, missing)[0] == "pass"]
    grouped = collections.defaultdict(list)
    for test in passed:
        if test not in right:
            kind, said = ours.get(test, missing)
            grouped[kind, reason(said)].append(test)
    share = len(right) / len(passed) if passed else 1.0
    row = f"| {name} | {len(theirs)} | {len(passed)} | {len(right)} | {share:.1%} | {run_of} |"
    ordered = sorted(grouped.items(), key=lambda item: -len(item[1]))
    lines = [f"- {len(tests)} × {kind}: {said} ({tests[0]})" for (kind, said), tests in ordered[:60]]
    return row, "\n".join(lines)


def write(rows: dict[str, tuple[str, str]]) -> None:
    """Put rows and sections into the results, beside those of other libraries."""
    table, sections = {}, {}
    if RESULTS.exists():
        head, *parts = re.split(r"^## ", RESULTS.read_text(), flags=re.MULTILINE)
        table = {
            line.split(" | ")[0][2:]: line for line in head.splitlines() if re.match(r"\| \S+ \| \d", line)
        }
        sections = {part.partition("\n")[0]: part.partition("\n")[2].strip("\n") for part in parts}
    for name, (row, section) in rows.items():
        table[name], sections[name] = row, section
    text = HEAD.format(machine=processor(), torch=importlib.metadata.version("torch"))
    text += "\n".join(table[name] for name in sorted(table)) + "\n"
    text += "".join(f"\n## {name}\n\n{sections[name]}\n" for name in sorted(sections) if sections[name])
    RESULTS.write_text(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sources", type=Path, required=True, help="a folder of source trees by name")
    parser.add_argument("--only", nargs="+", choices=SUITES, default=list(SUITES), metavar="LIBRARY")
    parser.add_argument("--again", action="store_true", help="only what did not pass the last time")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.relative_to(ROOT)}")
    options = parser.parse_args()
    kept = options.sources.resolve() / "outcomes"
    kept.mkdir(exist_ok=True)
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    run_of = f"{commit} | {datetime.datetime.now(datetime.UTC).date()}"
    rows = {}
    for name in options.only:
        folder, suite = options.sources.resolve() / name, SUITES[name]
        if not folder.is_dir():
            print(f"{name}: no source tree in {options.sources}")
            continue
        theirs_file, ours_file = kept / f"{name}-torch.json", kept / f"{name}-lamina.json"
        if not theirs_file.exists():
            theirs_file.write_text(
                json.dumps(run(folder, suite, "torch", kept / f"{name}-torch.xml"), indent=0)
            )
        theirs = json.loads(theirs_file.read_text())
        ours = json.loads(ours_file.read_text()) if ours_file.exists() else {}
        wanted = {test for test, outcome in theirs.items() if outcome[0] == "pass"}
        if options.again:
            wanted = {test for test in wanted if ours.get(test, [""])[0] != "pass"}
        if wanted:
            ours |= run(
                folder, suite, "lamina", kept / f"{name}-lamina.xml", wanted if options.again else None
            )
            ours_file.write_text(json.dumps(ours, indent=0))
        rows[name] = row, section = counted(name, theirs, ours, run_of)
        print(row, section, sep="\n", flush=True)
    if options.write:
        write(rows)


if __name__ == "__main__":
    main()
