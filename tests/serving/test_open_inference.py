"""The Open Inference Protocol, version 2: its paths, its JSON, its bytes behind JSON, its errors."""

import json

import numpy as np
import pytest
from server_process import Client, in_thread, write, write_small

import lamina
from lamina.serving.bounds import Bounds
from lamina.serving.served_models import opened

LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The port of a server of two models, and the network that one is."""
    folder = tmp_path_factory.mktemp("models")
    network = write_small(folder / "small.lam")
    write(
        lambda x, n, flag: (x * 2, n + 1, ~flag), folder / "kinds.lam",
        lamina.randn(2, 2).bfloat16(), lamina.tensor([3, 4], dtype=lamina.int8), lamina.tensor([True, False]),
    )  # fmt: skip
    with in_thread([opened(name, folder / f"{name}.lam", Bounds()) for name in ("small", "kinds")]) as port:
        yield port, network


@pytest.fixture
def client(served):
    made = Client(served[0])
    yield made
    made.http.close()


def test_server_and_models_describe_themselves(client):
    status, about = client.json("GET", "/v2")
    assert (status, about["name"], about["version"]) == (200, "lamina", lamina.__version__)
    assert "binary_tensor_data" in about["extensions"]
    assert client.json("GET", "/v2/health/live") == (200, {"live": True})
    assert client.json("GET", "/v2/health/ready") == (200, {"ready": True})
    for path in ("/v2/models/small", "/v2/models/small/versions/1"):
        assert client.json("GET", f"{path}/ready") == (200, {"name": "small", "ready": True})
        assert client.json("GET", path) == (200, {
            "name": "small", "versions": ["1"], "platform": "lamina_native",
            "inputs": [{"name": "input", "datatype": "FP32", "shape": [-1, 8]}],
            "outputs": [{"name": "output", "datatype": "FP32", "shape": [-1, 3]}],
        })  # fmt: skip
    for path in ("/v2/models/none", "/v2/models/none/ready", "/v2/models/small/versions/2"):
        status, said = client.json("GET", path)
        assert (status, list(said)) == (404, ["error"])


@pytest.mark.parametrize("nested", [False, True])
def test_infer_takes_flat_and_nested_data(client, served, nested):
    x = lamina.randn(2, 8)
    data = x.tolist() if nested else x.flatten().tolist()
    entry = {"name": "input", "shape": [2, 8], "datatype": "FP32", "data": data}
    status, said = client.json("POST", "/v2/models/small/infer", {"id": "7", "inputs": [entry]})
    assert (status, said["model_name"], said["model_version"], said["id"]) == (200, "small", "1", "7")
    (output,) = said["outputs"]
    assert (output["name"], output["shape"], output["datatype"]) == ("output", [2, 3], "FP32")
    want = served[1](x).detach().numpy().ravel()
    np.testing.assert_allclose(output["data"], want, 1e-5, 1e-6)


def binary(arrays, **head):
    """The body and headers of a request whose arrays follow its JSON: name -> (datatype, array)."""
    inputs = [
        {"name": name, "shape": [*x.shape], "datatype": kind, "parameters": {"binary_data_size": x.nbytes}}
        for name, (kind, x) in arrays.items()
    ]
    text = json.dumps({"inputs": inputs} | head).encode()
    body = text + b"".join(x.tobytes() for _, x in arrays.values())
    return body, {LENGTH: str(len(text)), "Content-Type": "application/octet-stream"}


def test_binary_tensors_of_each_kind(client):
    x = lamina.tensor([[1.5, -2.0], [0.25, 3.0]]).bfloat16().numpy()
    arrays = {
        "n": ("INT8", np.array([3, 4], np.int8)),
        "x": ("BF16", x),
        "flag": ("BOOL", np.array([True, False])),
    }
    body, headers = binary(arrays, parameters={"binary_data_output": True})
    status, got_headers, got = client("POST", "/v2/models/kinds/infer", body, **headers)
    assert status == 200, got
    split = int(got_headers[LENGTH])
    head, tail = json.loads(got[:split]), got[split:]
    assert [o["datatype"] for o in head["outputs"]] == ["BF16", "INT8", "BOOL"]
    assert [o["parameters"]["binary_data_size"] for o in head["outputs"]] == [8, 2, 2]
    assert tail == (x * 2).tobytes() + np.array([4, 5], np.int8).tobytes() + b"\0\1"


def test_outputs_are_chosen_and_mixed(client):
    x = lamina.ones(2, 2).bfloat16().numpy()
    arrays = {
        "x": ("BF16", x),
        "n": ("INT8", np.array([3, 4], np.int8)),
        "flag": ("BOOL", np.array([True, False])),
    }
    wanted = [{"name": "output1", "parameters": {"binary_data": True}}, {"name": "output0"}]
    body, headers = binary(arrays, outputs=wanted)
    status, got_headers, got = client("POST", "/v2/models/kinds/infer", body, **headers)
    assert status == 200, got
    split = int(got_headers[LENGTH])
    outputs = {o["name"]: o for o in json.loads(got[:split])["outputs"]}
    assert outputs["output0"]["data"] == [2.0] * 4 and outputs["output1"]["parameters"] == {
        "binary_data_size": 2
    }
    assert got[split:] == b"\4\5" and len(outputs) == 2


ENTRY = {"name": "input", "shape": [1, 8], "datatype": "FP32", "data": [0] * 8}
REFUSED = {
    "list": ([], "an inference request is an object"),
    "no_inputs": ({}, "inputs is a list of objects with a name"),
    "missing": ({"inputs": []}, "the model takes input: f32[batch, 8]; missing: input"),
    "twice": ({"inputs": [ENTRY, ENTRY]}, "input 'input' came twice"),
    "datatype": ({"inputs": [ENTRY | {"datatype": "FP64"}]}, "its datatype is FP32, FP64 came"),
    "shape": ({"inputs": [ENTRY | {"shape": [1, -8]}]}, "its shape is a list of sizes"),
    "bool_shape": ({"inputs": [ENTRY | {"shape": [True, 8]}]}, "its shape is a list of sizes"),
    "count": ({"inputs": [ENTRY | {"shape": [2, 8]}]}, "the shape [2, 8] has 16 elements, the data 8"),
    "other_size": ({"inputs": [ENTRY | {"shape": [2, 4]}]}, "input 'input' is f32[batch, 8]: f32[2, 4] came"),
    "uncountable": ({"inputs": [ENTRY | {"shape": [1 << 39, 1 << 39, 0], "data": []}]}, "0] came"),
    "no_data": ({"inputs": [{k: v for k, v in ENTRY.items() if k != "data"}]}, "data is missing"),
    "too_long": (
        {"inputs": [ENTRY | {"parameters": {"binary_data_size": 32}}]},
        "binary_data_size is a number",
    ),
    "id": ({"id": 7, "inputs": [ENTRY]}, "id is a string"),
    "output": ({"inputs": [ENTRY], "outputs": [{"name": "y"}]}, "the model's outputs are output, not y"),
    "flag": ({"inputs": [ENTRY], "parameters": {"binary_data_output": 1}}, "is true or false"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_errors_have_the_protocols_shape(client, case):
    body, told = REFUSED[case]
    status, said = client.json("POST", "/v2/models/small/infer", body)
    assert (status, list(said), told in said["error"]) == (400, ["error"], True), said


def test_bytes_that_do_not_fit_are_refused(client):
    body, headers = binary({"input": ("FP32", np.zeros((1, 8), np.float32))})
    for change in (body + b"\0", body[:-1]):
        status, said = client.json("POST", "/v2/models/small/infer", change, **headers)
        assert (status, list(said)) == (400, ["error"])
    for length in ("-1", "x", "9" * 30, str(len(body) + 1)):
        status, said = client.json("POST", "/v2/models/small/infer", body, **(headers | {LENGTH: length}))
        assert (status, LENGTH in said["error"]) == (400, True)
    odd = {
        "x": ("BF16", np.zeros((2, 2), np.uint16)),
        "n": ("INT8", np.zeros(2, np.int8)),
        "flag": ("BOOL", np.array([2, 0], np.uint8)),
    }
    body, headers = binary(odd)
    status, said = client.json("POST", "/v2/models/kinds/infer", body, **headers)
    assert (status, "neither 0 nor 1" in said["error"]) == (400, True)
