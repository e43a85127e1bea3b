"""Check what is made of a profile: tables, traces for viewers, stacks, flame graphs, memory over time."""

import gzip
import json
from xml.etree import ElementTree

import pytest

import lamina
from lamina.ir.errors import ArgumentValueError
from lamina.profiler import profile, record_function, tensorboard_trace_handler


@pytest.fixture(scope="module")
def heard():
    x = lamina.ones(30, 40, requires_grad=True)
    with profile(record_shapes=True, profile_memory=True, with_stack=True, with_flops=True) as p:
        for _ in range(3):
            with record_function("forward"):
                y = (x @ lamina.ones(40, 50)).relu()
            y.sum().backward()
    return p


def rows(table):
    return {line.split()[0]: line for line in table.splitlines() if line and not line.startswith("-")}


# ---- tables ------------------------------------------------------------------------------------------------
def test_averages_sum_up(heard):
    events, averages = heard.events(), heard.key_averages()
    product = next(a for a in averages if a.key == "matmul")
    of = [e for e in events if e.name == "matmul"]
    assert product.count == len(of)
    assert product.cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in of))
    assert product.cpu_time == pytest.approx(product.cpu_time_total / product.count)
    assert product.flops == sum(e.flops for e in of)
    assert averages.self_cpu_time_total == pytest.approx(events.self_cpu_time_total)
    total = heard.total_average()
    assert (total.key, total.count) == ("Total", len(events))
    outermost = [e for e in events if e.cpu_parent is None]
    assert events.self_cpu_time_total == pytest.approx(sum(e.cpu_time_total for e in outermost))


def test_averages_by_shapes_and_lines(heard):
    by_name = heard.key_averages()
    by_shapes = heard.key_averages(group_by_input_shape=True)
    assert len(by_shapes) >= len(by_name)
    assert [[30, 40], [40, 50]] in [a.input_shapes for a in by_shapes if a.key == "matmul"]
    by_lines = heard.key_averages(group_by_stack_n=1)
    assert any("test_profile_views.py" in a.stack[0] for a in by_lines if a.key == "matmul")


def test_tables(heard):
    text = heard.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total")
    head = text.splitlines()[1]
    for column in ("Name", "Self CPU %", "CPU total", "CPU Mem", "# of Calls", "Input Shapes", "GFLOP/s"):
        assert column in head
    assert "[[30, 40], [40, 50]]" in text
    assert text.splitlines()[-1].startswith("Self CPU time total: ")
    times = [a.cpu_time_total for a in heard.key_averages()]
    first = text.splitlines()[3].split()[0]
    assert max(times) == next(a.cpu_time_total for a in heard.key_averages() if a.key == first)
    short = heard.key_averages().table(row_limit=2, header="a head", time_unit="s")
    assert short.startswith("a head\n") and "more rows" in short
    assert len(rows(heard.table(row_limit=-1))) >= 5
    with pytest.raises(ArgumentValueError, match="no column 'colour'"):
        heard.table(sort_by="colour")


def test_an_empty_profile_has_a_table():
    with profile() as p:
        pass
    assert "Self CPU time total: 0.000us" in p.table()
    assert str(profile()) == "<unfinished profile>"


# ---- files -------------------------------------------------------------------------------------------------
def complete(path):
    opened = gzip.open(path, "rt") if str(path).endswith(".gz") else open(path)
    with opened as file:
        trace = json.load(file)
    return trace, [event for event in trace["traceEvents"] if event["ph"] == "X"]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_traces_for_viewers(heard, tmp_path, name):
    """As the format wants it: complete events, each inside of what is open on its thread or after it."""
    heard.add_metadata("run", "7")
    heard.export_chrome_trace(tmp_path / name)
    trace, events = complete(tmp_path / name)
    assert trace["run"] == "7"
    assert [event["name"] for event in events] == [event.name for event in heard.events()]
    ends = []
    for event in events:
        assert {"name", "cat", "pid", "tid", "ts", "dur", "args"} <= event.keys()
        begin, end = event["ts"], event["ts"] + event["dur"]
        while ends and ends[-1] <= begin + 1e-6:
            ends.pop()
        assert begin >= 0 and event["dur"] >= 0 and all(end <= e + 1e-6 for e in ends)
        ends.append(end)
    product = next(event for event in events if event["name"] == "matmul")
    assert product["args"]["Input Dims"] == [[30, 40], [40, 50]]
    assert product["args"]["flops"] == 2 * 30 * 40 * 50
    held = [event["args"]["Bytes"] for event in trace["traceEvents"] if event["ph"] == "C"]
    assert held and min(held) >= 0


def test_a_folder_of_traces(tmp_path):
    ready = tensorboard_trace_handler(str(tmp_path / "runs"), worker_name="me")
    with profile(on_trace_ready=ready):
        lamina.ones(2) + 1
    (file,) = (tmp_path / "runs").iterdir()
    assert file.name.startswith("me.") and file.name.endswith(".pt.trace.json")
    assert complete(file)[1]


def test_stacks(heard, tmp_path):
    heard.export_stacks(tmp_path / "stacks.txt")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines
    for line in lines:
        stack, _, time = line.rpartition(" ")
        assert int(time) > 0 and "test_profile_views.py" in stack.split(";")[-1]
    with pytest.raises(ArgumentValueError, match="metric"):
        heard.export_stacks(tmp_path / "stacks.txt", "colour")
    with profile() as p:
        lamina.ones(2) + 1
    with pytest.raises(ArgumentValueError, match="with_stack=True"):
        p.export_stacks(tmp_path / "stacks.txt")


def test_flame_graphs(heard, tmp_path):
    heard.export_flame_graph(tmp_path / "flame.svg")
    svg = ElementTree.parse(tmp_path / "flame.svg").getroot()
    boxes = []
    for group in svg.iter("{http://www.w3.org/2000/svg}g"):
        rect = group.find("{http://www.w3.org/2000/svg}rect")
        title = group.find("{http://www.w3.org/2000/svg}title").text
        x, y, width = (float(rect.get(name)) for name in ("x", "y", "width"))
        boxes.append((y, x, x + width, title))
    assert any("matmul" in title for *_, title in boxes)
    top = min(y for y, *_ in boxes)
    for y, left, right, _ in boxes:
        assert y == top or any(
            above == y - 18 and a <= left + 0.02 and right <= b + 0.52 for above, a, b, _ in boxes
        )


def test_memory_over_time(heard, tmp_path):
    heard.export_memory_timeline(tmp_path / "memory.svg")
    ElementTree.parse(tmp_path / "memory.svg")
    heard.export_memory_timeline(tmp_path / "memory.json")
    times, sizes = json.loads((tmp_path / "memory.json").read_text())
    assert times == sorted(times) and len(times) == len(sizes) and max(sizes) >= 2 * 4 * 30 * 50
    with profile() as p:
        lamina.ones(2) + 1
    with pytest.raises(ArgumentValueError, match="profile_memory=True"):
        p.export_memory_timeline(tmp_path / "memory.svg")
