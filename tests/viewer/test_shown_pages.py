"""Pages as files: what they hold, what making them runs, what is refused."""

import base64
import json
import re
import subprocess
import sys
import zlib

import numpy as np
import pytest
from shown_models import HOSTILE, data_of, hostile, net, onnx_model

import lamina
from lamina import jit, nn
from lamina.ir.errors import ArgumentError
from lamina.viewer import exported, page
from lamina.viewer.page import inside_of_a_page
from lamina.viewer.show_command import main

IMAGE = (2, 8, 6, 6)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "net.html"
    with lamina.no_grad():
        jit.show(net(), path, lamina.randn(IMAGE))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "net.lam"
    jit.export(net(), path, lamina.randn(IMAGE), levels=["x86-64-v2"], dynamic={0: {0: ("batch", 2, 64)}})
    return path


def texts_of(data):
    return json.loads(zlib.decompress(base64.b64decode(data["texts"])))


def test_a_page_holds_the_ops_as_they_were_written(shown):
    (part,) = data_of(shown)["parts"]
    ops = [(node["op"], node["within"], node["kind"]) for node in part["nodes"]]
    assert ops[0] == ("x", "", "input") and ops[-1] == ("result 0", "", "result")
    assert ("conv2d", "Net.layers.0.conv", "product") in ops and (
        "relu",
        "Net.layers.1",
        "elementwise",
    ) in ops
    conv = next(node for node in part["nodes"] if node["op"] == "conv2d")
    assert conv["type"] == "f32[2,8,6,6]" and ["padding", "((1,1),(1,1))"] in conv["attrs"]
    assert conv["where"].startswith("shown_models.py:")
    assert [name for name, _ in conv["in"]] == ["input", "weight", "bias"]
    assert conv["in"][0][1] == part["nodes"][0]["id"] and "weight" in conv["in"][1][1]


def test_a_page_holds_each_kernel_with_its_ops_its_texts_and_what_it_takes(shown):
    data = data_of(shown)
    (part,) = data["parts"]
    ops = {node["id"]: node["op"] for node in part["nodes"]}
    kernels = {kernel["name"]: kernel for kernel in part["kernels"] if not kernel["once"]}
    conv = kernels["conv2d_add_relu"]
    assert sorted(ops[n] for n in conv["nodes"]) == ["add", "conv2d", "relu"]
    assert (
        conv["flops"] > 2 * 8 * 8 * 9 * 2 * 36 and conv["bytes"] > 0 and conv["us"] > 0 and conv["schedule"]
    )
    texts = texts_of(data)
    assert texts[conv["kernel"]].startswith("kernel conv2d_add_relu(") and "define" in texts[conv["code"]]
    assert all(kernel["us"] > 0 for kernel in kernels.values())
    assert part["totals"]["us"] == pytest.approx(sum(k["us"] for k in part["kernels"] if "us" in k))
    assert part["whole"] > 0 and part["memory"]["arena"] >= max(part["memory"]["use"])
    assert {kernel["name"] for kernel in part["kernels"] if kernel["once"]} >= {"pack"}


def test_equal_kernels_are_told_and_steps_read_what_others_made(shown):
    (part,) = data_of(shown)["parts"]
    calls = part["kernels"]
    convs = [n for n, kernel in enumerate(calls) if kernel["name"] == "conv2d_add_relu"]
    assert len(convs) == 2 and {calls[n]["same"] for n in convs} == {convs[0]}
    makers = {maker for maker, _ in calls[convs[1]]["in"]}
    assert convs[0] in makers and any(maker >= 0 and calls[maker]["once"] for maker in makers)


def test_a_page_refers_to_nothing_outside_of_it(shown):
    text = shown.read_text()
    assert not re.search(r"(?:src|href)\s*=|@import|url\((?!#)|\bfetch\(|XMLHttpRequest|WebSocket", text)
    policy = re.search('Content-Security-Policy" content="([^"]*)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe" not in policy


def test_what_a_model_is_called_stays_data(tmp_path):
    path = tmp_path / "hostile.html"
    with lamina.no_grad():
        jit.show(hostile(), path, lamina.randn(2, 4), time=False, title=HOSTILE[0])
    text = path.read_text()
    assert text.count("<script") == 2 and text.count("</script>") == 2 and "<img" not in text
    assert text.isascii() or "\u2028" not in text
    paths = {node["within"] for node in data_of(path)["parts"][0]["nodes"]}
    assert any("</script>" in each for each in paths)


@pytest.mark.parametrize("name", HOSTILE)
def test_json_inside_of_a_page_is_the_same_json_and_ends_nothing(name):
    text = inside_of_a_page({name: [name]})
    assert json.loads(text) == {name: [name]} and not re.search("[<>&\u2028\u2029]", text) and text.isascii()


def test_a_title_may_be_no_unicode(tmp_path):
    jit.show(lambda x: x * 2, tmp_path / "x.html", lamina.ones(2), title="a\ud800", time=False)
    assert "<title>a&#55296;" in (tmp_path / "x.html").read_text()


def test_the_pages_own_places_are_filled_once():
    text = page.page("{{DATA}} {{SCRIPT}}", {"title": "{{STYLE}}", "texts": ""})
    assert "<title>{{DATA}} {{SCRIPT}}</title>" in text and '"{{STYLE}}"' in text


# ---- functions
def test_a_traced_function_is_shown_as_it_was_recorded_and_its_tensors_stay(tmp_path):
    layer = nn.Linear(4, 4)
    optimizer = lamina.optim.SGD(layer.parameters(), lr=0.1)

    @jit.trace
    def step(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(3):
        step(lamina.randn(8, 4))
    before = layer.weight.detach().numpy().copy()
    calls = step.explain(as_dict=True)["calls"]
    jit.show(step, tmp_path / "step.html")
    assert np.array_equal(layer.weight.detach().numpy(), before)
    assert step.explain(as_dict=True)["calls"] == calls
    data = data_of(tmp_path / "step.html")
    assert data["title"] == "step"
    written = [
        v for part in data["parts"] for node in part["nodes"] for k, v in node["attrs"] if k == "written to"
    ]
    assert len(written) >= 2 and all("optimizer" in name for name in written)


def test_both_halves_of_what_has_a_history_are_shown(tmp_path):
    layer = jit.trace(nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))
    for _ in range(3):
        layer(lamina.randn(8, 4)).sum().backward()
    jit.show(layer, tmp_path / "halves.html")
    names = [part["name"] for part in data_of(tmp_path / "halves.html")["parts"]]
    assert names[0].endswith("forward") and names[1].endswith("backward")


def test_a_function_of_sizes_that_change_is_shown_at_its_latest_and_timed(tmp_path):
    traced = jit.trace(net())
    with lamina.no_grad():
        for batch in (2, 3, 4):
            traced.call_for_code(lamina.randn(batch, 8, 6, 6))
        jit.show(traced, tmp_path / "sizes.html", lamina.randn(7, 8, 6, 6))
    part = data_of(tmp_path / "sizes.html")["parts"][-1]
    assert part["nodes"][0]["type"] == "f32[7,8,6,6]"
    assert not any("not known" in note for note in part["notes"])
    assert all("us" in kernel for kernel in part["kernels"] if not kernel["once"])


def test_ops_of_the_host_and_loops_are_timed_too(tmp_path):
    def sorts(x):
        return lamina.sort(x @ x.T)[0] * 2

    jit.show(sorts, tmp_path / "sort.html", lamina.randn(8, 8))
    kinds = {k["name"]: k for k in data_of(tmp_path / "sort.html")["parts"][0]["kernels"]}
    assert kinds["host.sort"]["kind"] == "host" and kinds["host.sort"]["us"] > 0
    assert kinds["host.sort"]["nodes"]
    with lamina.no_grad():
        jit.show(nn.LSTM(4, 8), tmp_path / "lstm.html", lamina.randn(5, 2, 4))
    loops = [k for k in data_of(tmp_path / "lstm.html")["parts"][0]["kernels"] if k["kind"] == "loop"]
    assert loops and loops[0]["us"] > 0 and loops[0]["nodes"] and loops[0]["flops"] > 0


def test_what_has_no_code_is_refused_with_the_way_out():
    with pytest.raises(ArgumentError, match=r"show\(function, path, \*example\)"):
        jit.show(jit.trace(net()), "never.html")
    with pytest.raises(ArgumentError, match="not int"):
        jit.show(3, "never.html")
    with pytest.raises(ArgumentError, match="its example's"):
        jit.show(net(), "never.html", lamina.randn(IMAGE), sizes={"batch": 3})


# ---- files
def never(*_, **__):
    raise AssertionError("this was to stay unrun")


def test_a_file_is_shown_at_the_sizes_that_are_asked_for(model, tmp_path, monkeypatch):
    monkeypatch.setattr(exported, "Model", never)  # its own code is not even loaded
    assert main([str(model), "-o", str(tmp_path / "m.html"), "--size", "batch=5"]) == 0
    data = data_of(tmp_path / "m.html")
    assert ["sizes", "batch = 5"] in data["about"] and data["whole"] is None
    (part,) = data["parts"]
    assert part["nodes"][0]["type"] == "f32[5,8,6,6]" and part["nodes"][0]["op"] == "x"
    assert {node["within"] for node in part["nodes"]} >= {"Net.layers.0.conv", "Net.head"}
    assert all("us" in kernel for kernel in part["kernels"] if not kernel["once"])


def test_nothing_of_a_file_runs_without_times(model, tmp_path, monkeypatch):
    monkeypatch.setattr("lamina.runtime.native.Executable.__call__", never)
    monkeypatch.setattr(page, "limits_of", never)
    monkeypatch.setattr(exported, "Model", never)
    jit.show(model, tmp_path / "m.html", time=False)
    (part,) = data_of(tmp_path / "m.html")["parts"]
    assert part["whole"] is None and part["kernels"] and not any("us" in kernel for kernel in part["kernels"])
    assert ["sizes", "batch = 2"] in data_of(tmp_path / "m.html")["about"]


def test_a_page_that_runs_nothing_is_the_same_each_time(model, tmp_path):
    for name in ("one.html", "two.html"):
        jit.show(model, tmp_path / name, time=False)
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_the_files_own_code_is_timed_where_it_is_trusted(tmp_path):
    path = tmp_path / "line.lam"
    jit.export(nn.Linear(4, 4), path, lamina.randn(2, 4))
    assert main([str(path), "-o", str(tmp_path / "m.html"), "--trust", "--title", "mine"]) == 0
    data = data_of(tmp_path / "m.html")
    assert data["whole"] > 0 and data["title"] == "mine"


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ({"time": 3}, "no size time"),
        ({"batch": 100}, "takes batch from 2 to 64"),
        ({"batch": 1}, "from 2 to 64"),
    ],
)
def test_sizes_that_a_file_does_not_take_are_refused(sizes, said, model, tmp_path):
    with pytest.raises(ArgumentError, match=said):
        jit.show(model, tmp_path / "never.html", sizes=sizes)
    assert not (tmp_path / "never.html").exists()


def test_the_command_tells_what_is_wrong_in_a_line(tmp_path, capsys, model):
    (tmp_path / "no.lam").write_bytes(b"PK" + bytes(100))
    assert main([str(tmp_path / "no.lam")]) == 1 and "no.lam" in capsys.readouterr().err
    assert main([str(tmp_path / "missing.onnx")]) == 1
    with pytest.raises(SystemExit):
        main([str(model), "--size", "batch"])


def test_a_page_does_not_take_the_place_of_its_model(tmp_path, capsys, model):
    copy = tmp_path / "copy.lam"
    copy.write_bytes(model.read_bytes())
    for source in (copy, str(copy), jit.load(copy)):
        with pytest.raises(ArgumentError, match="would take the place of the model"):
            jit.show(source, tmp_path / "." / "copy.lam", time=False)
    assert main([str(copy), "-o", str(copy)]) == 1 and "take the place" in capsys.readouterr().err
    assert copy.read_bytes() == model.read_bytes()


def test_a_page_is_written_to_a_pipe(model):
    command = [sys.executable, "-m", "lamina", "show", str(model), "--no-time", "-o", "/dev/stdout"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "<!doctype html>" in done.stdout.lower(), done.stderr


# ---- ONNX
@pytest.fixture
def onnx_file(tmp_path):
    pytest.importorskip("onnx", reason="ONNX models are read with the package onnx")
    return onnx_model(tmp_path / "m.onnx")


def test_the_graph_of_an_onnx_model_is_shown_with_its_branches_and_without_running(
    onnx_file, tmp_path, monkeypatch
):
    monkeypatch.setattr("lamina.exchange.onnx.network.OnnxModule.forward", never)
    jit.show(onnx_file, tmp_path / "m.html", time=False)
    data = data_of(tmp_path / "m.html")
    assert data["parts"] == [] and [*data["declared"]] == ["the file"]
    nodes = {node["op"]: node for node in data["declared"]["the file"]}
    assert nodes["Relu"]["within"] == "choose.If.yes" or nodes["Relu"]["within"].startswith(
        "choose.If.then_branch"
    )
    assert nodes["Gemm"]["path"] == "OnnxModule.layers.0.Gemm"
    branches = {name for name, _ in nodes["If"]["in"]}
    assert {"then_branch", "else_branch"} <= branches
    assert nodes["x"]["type"] == "float32[batch,4]"


def test_an_onnx_model_is_compiled_and_its_nodes_are_those_of_its_ops(tmp_path):
    pytest.importorskip("onnx", reason="ONNX models are read with the package onnx")
    file = onnx_model(tmp_path / "m.onnx", branches=False)
    assert main([str(file), "-o", str(tmp_path / "m.html"), "--size", "batch=3"]) == 0
    data = data_of(tmp_path / "m.html")
    (part,) = data["parts"]
    assert {"OnnxModule.head.Softmax"} <= {node["within"] for node in part["nodes"]}
    assert part["nodes"][0]["type"] == "f32[3,4]" and part["whole"] > 0
    assert [*data["declared"]] == ["the file"]
    with pytest.raises(ArgumentError, match="no size time"):
        jit.show(file, tmp_path / "m.html", sizes={"time": 3})
