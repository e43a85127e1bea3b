"""The command: its processes, what becomes of killed ones, models loaded anew, stopping, starting."""

import os
import signal
import socket
import threading

import numpy as np
import pytest
from server_process import Process, eventually, memory, write, write_small

import lamina
from lamina import nn
from lamina.serving.bounds import Bounds
from lamina.serving.refusals import ServeError
from lamina.serving.serve_options import read
from lamina.serving.served_models import opened
from lamina.serving.wire_arrays import of_safetensors, to_safetensors

KIND = {"Content_Type": "application/octet-stream"}
ONES = np.ones((1, 8), np.float32)
BODY = to_safetensors({"input": ONES})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    write_small(folder / "small.lam")
    return folder


def wanted(network):
    return network(lamina.tensor(ONES)).detach().numpy()


@pytest.mark.sampled(2)
def test_workers_answer_die_and_come_again_and_models_are_swapped(folder):
    """One server lives through all of it, as a start takes a second."""
    path = folder / "swapped.lam"
    old = wanted(write_small(path))
    with Process(f"net={path}", "--workers", 2, "--token", "secret", "--idle", 1) as server:
        client = server.client(Authorization="Bearer secret")
        status, _, got = client("POST", "/v1/models/net", BODY, **KIND)
        np.testing.assert_allclose(of_safetensors(got)["output"], old, 1e-5, 1e-6)

        workers, (generation,) = server.workers()
        assert len(workers) == 2
        os.kill(workers[0], signal.SIGKILL)
        eventually(lambda: len(server.workers()[0]) == 2 and workers[0] not in server.workers()[0])
        client.http.close()
        assert client("POST", "/v1/models/net", BODY, **KIND)[0] == 200

        # Under requests: each is answered by the old network or the new one, none is lost.
        answers, stop = [], threading.Event()

        def ask():
            mine = server.client(Authorization="Bearer secret")
            while not stop.is_set():
                status, headers, got = mine("POST", "/v1/models/net", BODY, **KIND)
                answers.append((status, of_safetensors(got)["output"]))
            mine.http.close()

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        new = wanted(write_small(path, seed=1))
        assert np.abs(new - old).max() > 1e-3
        client.http.close()
        assert client.json("POST", "/v1/reload") == (202, {"status": "loading"})
        try:
            eventually(
                lambda: np.allclose(answers[-1][1], new, 1e-5, 1e-6) and len(server.workers()[1]) == 1, 40
            )
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert {status for status, _ in answers} == {200}
        assert all(np.allclose(x, old, 1e-5, 1e-6) or np.allclose(x, new, 1e-5, 1e-6) for _, x in answers)
        assert server.health()["generation"] == 2 and server.workers()[1] != [generation]

        # A file that is no model: the old one goes on.
        path.write_bytes(b"damaged")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: server.said("the old ones go on"))
        client.http.close()
        assert client("POST", "/v1/models/net", BODY, **KIND)[0] == 200

        # What was counted is the sum of all workers', the dead ones' too.
        text = client("GET", "/metrics")[2].decode()
        line = next(
            line
            for line in text.splitlines()
            if line.startswith('lamina_requests_total{code="200",front="own"')
        )
        assert float(line.split()[-1]) >= len(answers) + 2
        client.http.close()
        assert server.stop() == 0


def test_a_stopping_server_finishes_what_it_began(folder):
    head = f"POST /v1/models/small HTTP/1.1\r\nhost: localhost\r\ncontent-type: {KIND['Content_Type']}\r\n"
    with Process(folder / "small.lam") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as wire:
            wire.sendall(f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY[:-1])
            eventually(lambda: b"lamina_held_bytes 1" in server.client()("GET", "/metrics")[2])
            server.process.send_signal(signal.SIGTERM)
            eventually(lambda: refused(server.port))
            wire.sendall(BODY[-1:])
            assert wire.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert server.process.wait(60) == 0


@pytest.mark.sampled(3)
def test_what_is_not_finished_within_the_grace_is_answered_so(folder):
    head = f"POST /v1/models/small HTTP/1.1\r\nhost: localhost\r\ncontent-type: {KIND['Content_Type']}\r\n"
    with Process(folder / "small.lam", "--grace", 1) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as wire:
            wire.sendall(f"{head}content-length: {len(BODY)}\r\n\r\n".encode() + BODY[:-1])
            eventually(lambda: b"lamina_held_bytes 1" in server.client()("GET", "/metrics")[2])
            server.process.send_signal(signal.SIGTERM)
            answer = b"".join(iter(lambda: wire.recv(1 << 16), b""))
        assert answer.startswith(b"HTTP/1.1 503") and b"stopped before the answer" in answer, answer
        assert server.process.wait(60) == 0
        assert not server.said("Traceback")


@pytest.mark.sampled(3)
def test_a_supervisor_that_is_killed_leaves_nothing(folder, tmp_path):
    with Process(folder / "small.lam", env={"TMPDIR": str(tmp_path)}) as server:
        workers, generations = server.workers()
        assert [*tmp_path.iterdir()]
        os.kill(server.process.pid, signal.SIGKILL)
        for pid in (*workers, *generations):
            eventually(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))
        assert refused(server.port) and not [*tmp_path.iterdir()]


def refused(port):
    """Whether nobody listens any more."""
    with socket.socket() as wire:
        return wire.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.slow
def test_a_generation_that_is_killed_comes_again(folder):
    with Process(folder / "small.lam") as server:
        workers, (generation,) = server.workers()
        os.kill(generation, signal.SIGKILL)
        eventually(lambda: server.workers()[1] not in ([], [generation]) and server.workers()[0])
        eventually(lambda: not os.path.exists(f"/proc/{workers[0]}"))  # it saw that its parent was gone
        assert server.health()["generation"] == 2
        assert server.stop(signal.SIGINT) == 0


@pytest.mark.slow
def test_weights_lie_in_memory_once(tmp_path):
    """40 MB of weights: each further worker adds a fraction of them."""
    model = nn.Sequential(nn.Linear(2048, 2560), nn.ReLU(), nn.Linear(2560, 2048)).eval()
    size = sum(p.nbytes for p in model.parameters())
    write(model, tmp_path / "large.lam", lamina.randn(4, 2048), dynamic={0: {0: "batch"}})
    body = to_safetensors({"input": np.zeros((2, 2048), np.float32)})
    with Process(tmp_path / "large.lam", "--workers", 3) as server:
        workers, generations = server.workers()
        for _ in range(20):
            assert server.client()("POST", "/v1/models/large", body, **KIND)[0] == 200
        shares = [memory(pid) for pid in workers]
        assert sum(shares) < 1.2 * size + 3 * (60 << 20), [share >> 20 for share in shares]


@pytest.mark.slow
def test_a_server_that_can_not_start_says_why(folder):
    path = folder / "damaged.lam"
    path.write_bytes(b"no model")
    with Process(path, ready=False) as server:
        assert server.process.wait(60) == 1
        eventually(lambda: server.said("damaged.lam is no model that lamina exported"))


REFUSED = {
    "nobody": (["nowhere.lam"], "there is no nowhere.lam"),
    "twice": (["small.lam", "small.lam"], "two models are named small"),
    "name": (["a/b=small.lam"], "can't be the name of a model"),
    "open": (["small.lam", "--host", "0.0.0.0"], "no token is set"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_options_that_do_not_go_together_are_refused(folder, case, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.delenv("LAMINA_TOKEN", raising=False)
    args, told = REFUSED[case]
    with pytest.raises(ServeError, match=told):
        read(args)


def test_options_have_their_units(folder, monkeypatch):
    monkeypatch.setenv("LAMINA_TOKEN", "a, b")
    path = str(folder / "small.lam")
    given = read(
        [path, "--host", "0.0.0.0", "--body", "2", "--wait", "5", "--timeout", "0.5", "--batch", "8"]
    )
    assert (given.models, given.tokens, given.local) == ({"small": folder / "small.lam"}, ("a", "b"), False)
    bounds = given.bounds
    assert (bounds.body, bounds.wait, bounds.timeout, bounds.batch) == (2 << 20, 0.005, 0.5, 8)
    for wrong in (
        ["--body", "0"],
        ["--wait", "-1"],
        ["--workers", "0"],
        ["--idle", "nan"],
        ["--idle", "inf"],
        ["--port", "99999"],  # getaddrinfo takes it for 34463
        ["--port", "-1"],
    ):
        with pytest.raises(SystemExit):
            read([path, *wrong])


def test_a_link_to_a_folder_gives_its_own_name(folder, monkeypatch):
    (folder / "snapshot-1f2e").mkdir()
    (folder / "mine").symlink_to("snapshot-1f2e", target_is_directory=True)
    assert [*read([str(folder / "mine")]).models] == ["mine"]
    monkeypatch.chdir(folder / "snapshot-1f2e")
    assert [*read(["."]).models] == ["snapshot-1f2e"]


@pytest.mark.parametrize("what", ["sequence in", "sequence out", "strings in", "strings out", "uint64 out"])
def test_onnx_models_of_what_is_no_array_here_are_refused_as_they_are_loaded(tmp_path, what):
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    node, kinds = onnx.helper.make_node, onnx.TensorProto
    sequence = onnx.helper.make_tensor_sequence_value_info("s", kinds.FLOAT, ["n"])
    value = lambda name, kind, *shape: onnx.helper.make_tensor_value_info(name, kind, shape)  # noqa: E731
    x, cast = value("x", kinds.FLOAT, "n"), {"inputs": ["x"], "outputs": ["y"]}
    made, inputs, outputs = {
        "sequence in": (
            node("SequenceAt", ["s", "i"], ["y"]),
            [sequence, value("i", kinds.INT64)],
            [value("y", kinds.FLOAT, "n")],
        ),
        "sequence out": (node("SequenceConstruct", ["x", "x"], ["s"]), [x], [sequence]),
        "strings in": (
            node("Identity", **cast), [value("x", kinds.STRING, "n")], [value("y", kinds.STRING, "n")],
        ),
        "strings out": (node("Cast", **cast, to=kinds.STRING), [x], [value("y", kinds.STRING, "n")]),
        "uint64 out": (node("Cast", **cast, to=kinds.UINT64), [x], [value("y", kinds.UINT64, "n")]),
    }[what]  # fmt: skip
    graph = onnx.helper.make_graph([made], "g", inputs, outputs)
    opset = [onnx.helper.make_opsetid("", 18)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "odd.onnx")
    with pytest.raises(ServeError, match=r"^odd: (?!a first run failed)"):
        opened("odd", tmp_path / "odd.onnx", Bounds())


def test_two_outputs_of_one_name_are_refused(tmp_path):
    write(lambda x: {"a": {"b": x}, "a.b": x * 2}, tmp_path / "twice.lam", lamina.randn(2))
    with pytest.raises(ServeError, match=r"^twice: two of its outputs have one name"):
        opened("twice", tmp_path / "twice.lam", Bounds())


def test_onnx_files_are_served_with_one_recording_for_all_batches(folder):
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    network = write_small(folder / "small.onnx")
    model = opened("small", folder / "small.onnx", Bounds())
    assert (model.platform, model.most_rows, model.alone) == ("onnx", 32, "")
    assert str(model.inputs[0]) == "f32[batch, 8]" and str(model.outputs[0]) == "f32[batch, 3]"
    for rows in (1, 2, 5):
        (found,) = model.run([np.repeat(ONES, rows, 0)])
        np.testing.assert_allclose(found, np.repeat(wanted(network), rows, 0), 1e-5, 1e-6)


def test_rows_that_are_mixed_are_found_out(tmp_path):
    write(lambda x: x - x.mean(0), tmp_path / "mixed.lam", lamina.randn(4, 8), dynamic={0: {0: "n"}})
    model = opened("mixed", tmp_path / "mixed.lam", Bounds())
    assert (model.most_rows, model.alone) == (None, "its rows are not independent of one another")
