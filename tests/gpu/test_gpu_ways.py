"""The ways that benchmarks/gpu_ways.py takes: each has source, and differs from the others of its task."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # last: its modules have plain names
import gpu_ways


@pytest.mark.sampled(4)
@pytest.mark.parametrize("section", gpu_ways.SECTIONS)
def test_every_way_has_source(section):
    for task in gpu_ways.SECTIONS[section]():
        names = [name for name, _ in task.ways]
        made = {name: gpu_ways.codes_of(task.case, make(), gpu_ways.SM_90) for name, make in task.ways}
        assert names[0] == "as chosen" and len(made) == len(names) and all(made.values())
        assert len({*made.values()}) > 1, task.case.name
