"""Plans beside published runs (benchmarks/plan.py), and the CPU of this machine as a device."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from lamina.planning import Layout, calibrate, plan

# Under a name of its own: modules of the benchmarks have plain names.
SPEC = spec_from_file_location("benchmark_plan", Path(__file__).parents[2] / "benchmarks" / "plan.py")
published = module_from_spec(SPEC)
SPEC.loader.exec_module(published)


def ratios(section):
    """The ratios of a section's rows that nothing was fitted on."""
    lines = [line.split(" | ") for line in section() if line.startswith("| ")]
    place = next(n for n, name in enumerate(lines[0]) if name.strip(" |") == "ratio")
    cells = [line[place] for line in lines[2:] if len(line) == len(lines[0])]
    return [float(cell.strip(" |")) for cell in cells if "fitted" not in cell]


@pytest.mark.parametrize(
    ("section", "rows", "off"),
    [
        (published.section_table_1, 7, 0.06), (published.section_table_2, 6, 0.07),
        (published.section_iterations, 8, 0.13), (published.section_llama, 2, 0.10),
    ],
)  # fmt: skip
def test_rows_that_nothing_was_fitted_on_are_near(section, rows, off):
    """As near as benchmarks/results/plan.md says, in two digits."""
    found = ratios(section)
    assert len(found) == rows and all(1 - off <= ratio <= 1 + off for ratio in found), found


def test_formulas_of_memory_are_met():
    text = "\n".join(published.section_formulas())
    assert text.count("| 1.000 |") == 5 and text.count("| 1.00 |") == 3


def test_the_results_are_those_of_this_code(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["plan.py"])
    published.main()
    assert capsys.readouterr().out.rstrip("\n") == published.RESULTS.read_text().rstrip("\n")


def test_this_machine_is_measured_and_planned_for():
    device = calibrate()
    assert device.shared and device.peak["fp32"] > 1e8 and device.bandwidth > 1e8
    assert 0 < device.launch < 1e-2 and 0 < device.node.latency < 1e-1
    text = "layers=2,hidden=64,heads=4,vocab=100,seq=16"
    made = plan(text, mesh=4, device=device, batch=8, layout=Layout(dp=4))
    assert made.mesh == (4, 1) and made.costs.precision.name == "fp32"
    assert made.prediction.capacity == device.memory / 4 and made.prediction.links == {"dp": "within a node"}


@pytest.mark.parametrize("row", published.TABLE_1, ids=lambda row: str(row[0]))
def test_sizes_of_published_models_are_those_of_the_formula(row):
    assert round(published.gpt(*row[1:4]).parameters / 1e9, 1) == row[0]


@pytest.mark.parametrize("row", published.ITERATIONS, ids=lambda row: str(row[0]))
def test_published_seconds_and_utilisation_fit_one_another(row):
    """By the count of operations that plans use: to the digit that the paper prints."""
    _, shape, pipeline, _, batch, _, _, seconds, utilisation = row
    flops = published.gpt(*shape).flops * batch
    rounding = 0.06 + 0.005 / seconds * utilisation  # of a share in %, and of seconds
    assert abs(100 * flops / (seconds * 8 * pipeline * 312e12) - utilisation) < rounding
