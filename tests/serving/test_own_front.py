"""The server's own interface: arrays in and out, and every refusal says what was wrong."""

import json
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from server_process import Client, eventually, in_thread, write, write_small

import lamina
from lamina.serving.bounds import Bounds
from lamina.serving.served_models import opened
from lamina.serving.wire_arrays import of_safetensors, to_safetensors


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "small.lam"
    return write_small(path), path


@pytest.fixture(scope="module")
def port(small, tmp_path_factory):
    folder = tmp_path_factory.mktemp("more")
    write(
        lambda x, ids, keep: {"rows": x[ids] + (~keep[:, None] * 0.0), "all": (x.sum(), ids * 2)},
        folder / "several.lam", lamina.randn(5, 3), lamina.tensor([0, 4]), lamina.tensor([True, False]),
    )  # fmt: skip
    write(lambda x: x * 2, folder / "half.lam", lamina.randn(2, 2).bfloat16(), dynamic={0: {0: "b"}})
    write(lambda x: x / x, folder / "odd.lam", lamina.randn(3), dynamic={0: {0: "b"}})
    write(lambda x: x.relu(), folder / "short.lam", lamina.randn(3, 2), dynamic={0: {0: ("b", 1, 6)}})
    bounds = Bounds(values=2000, body=100_000)
    models = [opened("small", small[1], bounds), opened("checked", small[1], bounds, untrusted=True)]
    models += [opened(name, folder / f"{name}.lam", bounds) for name in ("several", "half", "odd", "short")]
    with in_thread(models, bounds) as port:
        yield port


@pytest.fixture
def client(port):
    made = Client(port)
    yield made
    made.http.close()


def test_lists_in_lists_out(client, small):
    x = lamina.randn(3, 8)
    for name in ("small", "checked"):
        status, said = client.json("POST", f"/v1/models/{name}", {"inputs": {"input": x.tolist()}})
        assert status == 200, said
        np.testing.assert_allclose(said["outputs"]["output"], small[0](x).detach().numpy(), 1e-5, 1e-6)


def test_safetensors_in_safetensors_out(client, small):
    x = lamina.randn(70, 8).numpy()
    body = to_safetensors({"input": x})
    for kind in ("application/x-safetensors", "application/octet-stream"):
        status, headers, got = client("POST", "/v1/models/small", body, Content_Type=kind)
        assert (status, headers["content-type"]) == (200, "application/x-safetensors")
        want = small[0](lamina.tensor(x)).detach().numpy()
        np.testing.assert_allclose(of_safetensors(got)["output"], want, 1e-5, 1e-6)


def test_safetensors_are_those_of_the_library():
    from safetensors.numpy import load, save

    arrays = {
        "a": np.arange(6, dtype=np.int64).reshape(2, 3),
        "b": np.array([True, False]),
        "c": np.float32(3.5),
    }
    arrays = {name: np.asarray(x) for name, x in arrays.items()}
    for read in (load(to_safetensors(arrays)), of_safetensors(save(arrays))):
        assert {n: (x.dtype, x.tolist()) for n, x in read.items()} == {
            n: (x.dtype, x.tolist()) for n, x in arrays.items()
        }


def test_several_inputs_and_outputs_of_each_dtype(client):
    given = {"x": [[1.5, 2, "Infinity"], [0, 0, 0], [0, 0, 0], [0, 0, 0], [-1, "NaN", 1]]}
    given |= {"ids": [0, 4], "keep": [True, True]}
    status, said = client.json("POST", "/v1/models/several", {"inputs": given})
    assert status == 200, said
    assert said["outputs"]["rows"] == [[1.5, 2.0, "Infinity"], [-1.0, "NaN", 1.0]]
    assert said["outputs"]["all.1"] == [0, 8]
    status, said = client.json("POST", "/v1/models/half", {"inputs": {"x": [[1.5, 3]]}})
    assert (status, said) == (200, {"outputs": {"output": [[3.0, 6.0]]}})


def test_what_is_not_finite_is_strict_json(client):
    status, _, text = client("POST", "/v1/models/odd", {"inputs": {"x": [0, 1]}})
    assert status == 200
    assert json.loads(text, parse_constant=lambda word: pytest.fail(word)) == {
        "outputs": {"output": ["NaN", 1.0]}
    }


REFUSED = {
    "no_json": (b"{", 400, "the body is no JSON"),
    "bare_nan": (b'{"inputs": {"input": [NaN]}}', 400, 'NaN is no word of JSON: write "NaN", a string'),
    "no_inputs": ({"input": []}, 400, 'the body is {"inputs"'),
    "missing": ({"inputs": {}}, 400, "the model takes input: f32[batch, 8]; missing: input"),
    "unknown": ({"inputs": {"input": [], "y": 1}}, 400, "not among them: y"),
    "rank": ({"inputs": {"input": [1, 2]}}, 400, "input 'input' is f32[batch, 8]: f32[2] came"),
    "size": ({"inputs": {"input": [[1, 2]]}}, 400, "input 'input' is f32[batch, 8]: f32[1, 2] came"),
    "ragged": ({"inputs": {"input": [[1, 2], [3]]}}, 400, "the lists that came are ragged"),
    "ragged_rank": ({"inputs": {"input": [[1], 2]}}, 400, "ragged"),
    "string": ({"inputs": {"input": [["a"] * 8]}}, 400, "the string 'a' came"),
    "null": ({"inputs": {"input": [[None] * 8]}}, 400, "null came"),
    "object": ({"inputs": {"input": {}}}, 400, "an object came"),
    "bool": ({"inputs": {"input": [[True] * 8]}}, 400, "true or false came"),
    "too_large": ({"inputs": {"input": [[1e39] * 8]}}, 400, "a number came that is too large for it"),
    "beyond_double": (b'{"inputs": {"input": [[1e999,0,0,0,0,0,0,0]]}}', 400, "too large"),
    "beyond_and_word": (b'{"inputs": {"input": [[-1e999,"Infinity",0,0,0,0,0,0]]}}', 400, "too large"),
    "key_twice": (b'{"inputs": {"input": [[0]], "input": [[1]]}}', 400, "the key 'input' comes twice"),
    "huge_int": ({"inputs": {"input": [[10**400] * 8]}}, 400, "too large"),
    "empty": ({"inputs": {"input": []}}, 400, "f32[0] came"),
    "many": (
        {"inputs": {"input": [[0] * 8] * 300}},
        413,
        "the JSON holds up to 2,705 values, more than 2,000",
    ),
    "deep": (b'{"inputs": ' + b"[" * 80 + b"]" * 80 + b"}", 400, "nested deeper than 64"),
    "large": (b" " * 100_001, 413, "the body is larger than 100,000 bytes"),
    "not_utf8": (b'{"inputs": "\xff"}', 400, "the body is no JSON"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_says_why(client, case):
    body, status, told = REFUSED[case]
    found, said = client.json("POST", "/v1/models/small", body, Content_Type="application/json")
    assert (found, told in said["error"]["message"]) == (status, True), said
    assert client.json("GET", "/health")[0] == 200


def test_ranges_and_dtypes_are_held(client):
    status, said = client.json("POST", "/v1/models/short", {"inputs": {"x": [[0, 0]] * 7}})
    assert (status, "x has b = 7 (dimension 0), and the model takes b from 1 to 6" in str(said)) == (
        400,
        True,
    )
    x = [[0] * 3] * 5
    for ids, told in (
        ([0.5, 1], "a fraction came"),
        ([2**63, 1], "too large"),
        ([True, 1], "true or false came"),
    ):
        status, said = client.json(
            "POST", "/v1/models/several", {"inputs": {"x": x, "ids": ids, "keep": [True] * 2}}
        )
        assert (status, told in str(said)) == (400, True), said
    status, said = client.json(
        "POST", "/v1/models/several", {"inputs": {"x": x, "ids": [0, 9], "keep": [True] * 2}}
    )
    assert (status, "an index is out of range" in str(said)) == (400, True), said


@pytest.mark.parametrize(
    "body", [b"", b"\0" * 8, b"\xff" * 8, b"\x02" + b"\0" * 7 + b"{}", b"\x08" + b"\0" * 7 + b'{"a":{}}']
)
def test_damaged_safetensors_are_refused(client, body):
    status, said = client.json("POST", "/v1/models/small", body, Content_Type="application/octet-stream")
    assert (status, said["error"]["type"]) == (400, "invalid_request_error")


def test_paths_methods_kinds(client):
    assert client.json("POST", "/v1/models/nobody", {})[1]["error"]["message"].startswith(
        "no model is named 'nobody'"
    )
    status, headers, _ = client("DELETE", "/v1/models/small")
    assert (status, headers["allow"]) == (405, "POST")
    assert client.json("GET", "/nowhere")[0] == 404
    assert client.json("POST", "/v1/models/small", b"x", Content_Type="text/plain")[0] == 415
    status, about = client.json("GET", "/v1/models/small")
    assert (status, about["inputs"]) == (200, [{"name": "input", "dtype": "f32", "shape": ["batch", 8]}])
    assert about["outputs"] == [{"name": "output", "dtype": "f32", "shape": ["batch", 3]}]


def test_requests_at_once_get_their_own_answers(port, small):
    """Also where every fourth is wrong: it never spoils those that run with it."""

    def one(at):
        client = Client(port)
        rng = np.random.default_rng(at)
        for _ in range(10):
            x = rng.standard_normal((rng.integers(1, 5), 8 if at % 4 else 7)).astype(np.float32)
            status, _, got = client(
                "POST",
                "/v1/models/small",
                to_safetensors({"input": x}),
                Content_Type="application/octet-stream",
            )
            if at % 4:
                want = small[0](lamina.tensor(x)).detach().numpy()
                np.testing.assert_allclose(of_safetensors(got)["output"], want, 1e-5, 1e-5)
            else:
                assert status == 400
        client.http.close()

    with ThreadPoolExecutor(16) as pool:
        assert [*pool.map(one, range(16))] == [None] * 16


def test_budget_of_bodies_is_shared_and_given_back(small):
    bounds = Bounds(bodies=60_000, body=50_000, body_time=5)
    body = to_safetensors({"input": np.zeros((1000, 8), np.float32)})
    kind = {"Content_Type": "application/octet-stream"}
    head = (
        "POST /v1/models/small HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/octet-stream\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode()
    with in_thread([opened("small", small[1], bounds)], bounds) as port:
        client = Client(port)
        with socket.create_connection(("127.0.0.1", port)) as slow:
            slow.sendall(head + body[:-1])
            eventually(lambda: b"lamina_held_bytes 3" in client("GET", "/metrics")[2])
            status, headers, text = client("POST", "/v1/models/small", body, **kind)
            assert (status, headers["retry-after"]) == (429, "2"), text
            slow.sendall(body[-1:])
            assert slow.recv(1 << 16).startswith(b"HTTP/1.1 200")
        assert client("POST", "/v1/models/small", body, **kind)[0] == 200
        client.http.close()
