"""ONNX models come in: what the package's own tests say of operators, and how a model is a module."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the package onnx is not installed: pip install 'lamina[onnx]'")

import node_tests
import onnx
from onnx import TensorProto, helper, numpy_helper

import lamina
from lamina import nn

RNG = np.random.default_rng(0)


def tensor_of(shape, name="x", kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, weights=(), opset=20, **more):
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in dict(weights).items()]
    graph = helper.make_graph(nodes, "tried", inputs, outputs, initializers)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], **more
    ).SerializeToString()


def small_network():
    """Two layers, as an exporter writes them: names with dots, sizes computed from shapes."""
    weights = {
        "first.weight": RNG.standard_normal((8, 4)).astype(np.float32),
        "first.bias": RNG.standard_normal(8).astype(np.float32),
        "second.weight": RNG.standard_normal((3, 8)).astype(np.float32),
        "zero": np.array([0], np.int64), "rest": np.array([-1], np.int64), "at": np.array(0, np.int64),
    }  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "at"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "zero"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["flat"], axis=0),
        helper.make_node("Reshape", ["x", "flat"], ["y"]),
        helper.make_node("Gemm", ["y", "first.weight", "first.bias"], ["h"], transB=1),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "second.weight"], ["z"], transB=1),
    ]
    return model_of(nodes, [tensor_of(["n", 2, 2])], [tensor_of(["n", 3], "z")], weights), weights


RELU = [helper.make_node("Relu", ["x"], ["y"])]
LOST = [helper.make_node("Relu", ["z"], ["y"])]
NONESUCH = [helper.make_node("Nonesuch", ["x"], ["y"])]


@pytest.mark.timeout(600)
def test_nodes(of_the_day):
    """The tests of the package take ten seconds to load: this one test has all, so one worker does."""
    tests = [test for test in node_tests.loaded() if not node_tests.left_out(test.name)]
    assert len(tests) >= 1850, "little is left out"
    faults = {test.name: node_tests.fault(test) for test in of_the_day(tests, 6)}
    assert {name: fault for name, fault in faults.items() if fault} == {}


def test_model_is_a_module_with_the_names_of_its_file():
    data, weights = small_network()
    model = lamina.onnx.load(data)
    assert [name for name, _ in model.named_parameters()] == ["first.weight", "first.bias", "second.weight"]
    assert [*model.inputs], [*model.outputs] == (["x"], ["z"])
    x = RNG.standard_normal((5, 2, 2)).astype(np.float32)
    hidden = np.maximum(x.reshape(5, 4) @ weights["first.weight"].T + weights["first.bias"], 0)
    found = model(lamina.tensor(x))
    np.testing.assert_allclose(
        found.detach().numpy(), hidden @ weights["second.weight"].T, rtol=1e-5, atol=1e-5
    )
    assert model(x=lamina.tensor(x)).shape == (5, 3)


def test_what_is_returned_twice_is_returned_twice():
    model = lamina.onnx.load(model_of(RELU, [tensor_of([2])], [tensor_of([2], "y"), tensor_of([2], "y")]))
    assert [y.tolist() for y in model(lamina.tensor([-1.0, 1.0]))] == [[0, 1], [0, 1]]


def test_nodes_may_stand_behind_those_that_read_them():
    nodes = [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Relu", ["x"], ["a"]),
             helper.make_node("Neg", ["a"], ["b"])]  # fmt: skip
    model = lamina.onnx.load(model_of(nodes, [tensor_of([2])], [tensor_of([2], "y")]))
    assert model(lamina.tensor([-1.0, 3.0])).tolist() == [0.0, 0.0]
    circle = [helper.make_node("Relu", ["b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    with pytest.raises(lamina.onnx.OnnxError, match="which nothing before it makes"):
        lamina.onnx.load(model_of(circle, [tensor_of([2])], [tensor_of([2], "b")]))


def test_model_is_traced_as_one_program():
    model = lamina.onnx.load(small_network()[0])
    traced = lamina.jit.trace(model)
    for rows in (5, 5, 5, 5):
        x = lamina.tensor(RNG.standard_normal((rows, 2, 2)).astype(np.float32))
        with lamina.no_grad():
            np.testing.assert_allclose(traced(x).numpy(), model(x).numpy(), rtol=1e-5, atol=1e-5)
    assert traced.counts()["served"] >= 2, traced.explain()


def test_model_trains():
    model = lamina.onnx.load(small_network()[0]).train()
    optimizer = lamina.optim.SGD(model.parameters(), lr=0.05)
    x = lamina.tensor(RNG.standard_normal((16, 2, 2)).astype(np.float32))
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), lamina.ones(16, 3))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_model_keeps_its_weights_through_a_state_dict():
    data, _ = small_network()
    one, other = lamina.onnx.load(data), lamina.onnx.load(data)
    with lamina.no_grad():
        one.get_parameter("first.weight").mul_(2)
    other.load_state_dict(one.state_dict())
    x = lamina.ones(1, 2, 2)
    assert lamina.equal(one(x), other(x))


# ---- what is no model, or no input of it
REFUSED = {
    "no protobuf": (lambda: b"\xff" * 40, "this is no ONNX"),
    "nothing": (lambda: b"", "it has no graph"),
    "an unknown operator": (lambda: model_of(NONESUCH, [tensor_of([1])], [tensor_of([1], "y")]), "Nonesuch"),
    "a newer opset": (lambda: model_of(RELU, [tensor_of([1])], [tensor_of([1], "y")], opset=99), "opset 99"),
    "a name that nothing makes": (
        lambda: model_of(LOST, [tensor_of([1])], [tensor_of([1], "y")]),
        "reads 'z'",
    ),
    "too few bytes": (lambda: _short_tensor(), "too few"),
    "a tensor outside": (lambda: _outside("../../etc/passwd"), "has no folder"),
}  # fmt: skip


def _short_tensor():
    short = TensorProto(dims=[1000, 1000], data_type=TensorProto.FLOAT, raw_data=b"1234", name="w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [tensor_of([1])], [tensor_of(None, "y")], [short]
    )
    return helper.make_model(graph).SerializeToString()


def _outside(location):
    weight = TensorProto(dims=[4], data_type=TensorProto.FLOAT, name="w", data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [tensor_of([4])], [tensor_of([4], "y")], [weight]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_model_is_refused(case):
    make, said = REFUSED[case]
    with pytest.raises(lamina.onnx.OnnxError) as caught:
        lamina.onnx.load(make())
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "location", ["../weights", "/etc/passwd", "sub/../../weights", "", ".", "link", "missing", "folder"]
)
def test_files_outside_of_the_folder_are_not_read(tmp_path, location):
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (tmp_path / "weights").write_bytes(np.ones(4, np.float32).tobytes())
    (folder / "link").symlink_to(tmp_path / "weights")
    (folder / "model.onnx").write_bytes(_outside(location))
    with pytest.raises(lamina.onnx.OnnxError, match="'w'"):
        lamina.onnx.load(folder / "model.onnx")


def test_weights_beside_the_file_are_read(tmp_path):
    (tmp_path / "weights.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    (tmp_path / "model.onnx").write_bytes(_outside("weights.bin"))
    found = lamina.onnx.load(tmp_path / "model.onnx")(lamina.zeros(4))
    assert found.tolist() == [0, 1, 2, 3]


def test_inputs_that_do_not_fit_are_refused():
    model = lamina.onnx.load(small_network()[0])
    for call, said in (
        (lambda: model(), "missing: x"),
        (lambda: model(lamina.ones(1, 2, 2), lamina.ones(1)), "takes 1 inputs, not 2"),
        (lambda: model(lamina.ones(1, 2, 3)), "has the shape [n, 2, 2], not [1, 2, 3]"),
        (lambda: model(y=lamina.ones(1, 2, 2)), "not among them: y"),
    ):
        with pytest.raises(lamina.onnx.OnnxError) as caught:
            call()
        assert said in str(caught.value)


def test_model_serves_all_sizes_by_one_recording():
    traced = lamina.jit.trace(lamina.onnx.load(small_network()[0]))
    with lamina.no_grad():
        for rows in range(2, 12):
            assert traced(lamina.ones(rows, 2, 2)).shape == (rows, 3)
    assert traced.counts()["recorded"] <= 2, traced.explain()


MOVES = {
    "Unsqueeze": ([helper.make_node("Unsqueeze", ["x", "axes"], ["y"])], {"axes": np.array([1])}),
    "Squeeze": (
        [
            helper.make_node("Unsqueeze", ["x", "axes"], ["z"]),
            helper.make_node("Squeeze", ["z", "axes"], ["y"]),
        ],
        {"axes": np.array([1])},
    ),
    "Flatten": ([helper.make_node("Flatten", ["x"], ["y"])], {}),
    "Transpose": ([helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0, 2])], {}),
    "Expand": ([helper.make_node("Expand", ["x", "to"], ["y"])], {"to": np.array([3, 1, 2, 2])}),
}  # fmt: skip


@pytest.mark.parametrize("op", MOVES)
def test_moves_serve_all_sizes_by_one_recording(op):
    nodes, weights = MOVES[op]
    model = lamina.onnx.load(model_of(nodes, [tensor_of(["n", 2, 2])], [tensor_of(None, "y")], weights))
    traced = lamina.jit.trace(model)
    with lamina.no_grad():
        for rows in range(2, 9):
            assert lamina.equal(traced(lamina.ones(rows, 2, 2)), model(lamina.ones(rows, 2, 2)))
    assert traced.counts()["recorded"] <= 2, traced.explain()


def test_model_is_exported_for_all_sizes(tmp_path):
    model = lamina.onnx.load(small_network()[0])
    lamina.jit.export(model, tmp_path / "model.lam", lamina.ones(4, 2, 2), dynamic={0: {0: "rows"}})
    x = lamina.randn(7, 2, 2)
    found = lamina.jit.load(tmp_path / "model.lam")(x)
    np.testing.assert_allclose(found.numpy(), model(x).detach().numpy(), rtol=1e-5, atol=1e-5)


def masked(folder=None):
    """What exporters make of a transformer's mask: places of sizes, `Expand` from and to sizes that may be 1,
    and a truth value of all. With a folder, its numbers are in a file beside."""
    weights = {"zero": np.array(0), "one": np.array(1), "two": np.array(2), "ones": np.array([1]),
               "table": RNG.standard_normal((20, 8)).astype(np.float32)}  # fmt: skip
    true = numpy_helper.from_array(np.array([True]))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["words"]),
        helper.make_node("Shape", ["ids"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["length"]),
        helper.make_node("Range", ["zero", "length", "one"], ["places"]),
        helper.make_node("Unsqueeze", ["places", "ones"], ["rows"]),
        helper.make_node("LessOrEqual", ["places", "rows"], ["before"]),
        helper.make_node("ConstantOfShape", ["sizes"], ["whole"], value=true),
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.BOOL),
        helper.make_node("And", ["whole", "kept"], ["there"]),
        helper.make_node("Unsqueeze", ["there", "ones"], ["keys"]),
        helper.make_node("And", ["keys", "before"], ["seen"]),
        helper.make_node("Concat", ["sizes", "last"], ["all"], axis=0),
        helper.make_node("Shape", ["places"], ["last"]),
        helper.make_node("Expand", ["seen", "all"], ["wide"]),
        helper.make_node("Cast", ["wide"], ["shares"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["shares", "words"], ["y"]),
    ]
    nodes[11:13] = nodes[12:10:-1]
    inputs = [tensor_of(["b", "t"], name, TensorProto.INT64) for name in ("ids", "mask")]
    data = model_of(nodes, inputs, [tensor_of(["b", "t", 8], "y")], weights)
    if folder is None:
        return lamina.onnx.load(data)
    onnx.save_model(
        onnx.load_from_string(data), folder / "m.onnx", save_as_external_data=True, size_threshold=0
    )
    return lamina.onnx.load(folder / "m.onnx")


def words(batch: int, length: int):
    mask = np.ones((batch, length), np.int64)
    mask[0, length - length // 3 :] = 0
    ids = np.random.default_rng(batch).integers(0, 20, (batch, length))
    return lamina.tensor(ids), lamina.tensor(mask)


@pytest.mark.parametrize("place", ["inside", "beside"])
@pytest.mark.parametrize("kind", ["lam", "onnx"])
def test_a_mask_of_sizes_is_exported_for_all_from_one_on(kind, place, tmp_path):
    model, path = masked(tmp_path if place == "beside" else None), tmp_path / f"made.{kind}"
    sizes = {0: ("b", 1, 64), 1: ("t", 1, 64)}
    lamina.jit.export(model, path, *words(2, 6), dynamic={0: sizes, 1: sizes})
    again = lamina.jit.load(path) if kind == "lam" else lamina.onnx.load(path)
    for shape in ((2, 6), (1, 6), (1, 1), (5, 3), (3, 17)):
        want, found = model(*words(*shape)).detach(), again(*words(*shape)).detach()
        np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)


def test_sizes_of_eager_calls_are_sizes_of_the_next_recording():
    """The second call is timed, not recorded: its batch was another, and the third's length."""
    model = masked()
    traced = lamina.jit.trace(model, budget=60)
    with lamina.no_grad():
        for shape in ((2, 6), (3, 6), (2, 7), (4, 9), (5, 3), (6, 17)):
            want, found = model(*words(*shape)), traced(*words(*shape))
            np.testing.assert_allclose(found.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
    assert traced.counts()["recorded"] == 2, traced.explain(detail=True)


def test_more_dimensions_than_numpy_broadcasts():
    node = helper.make_node("Expand", ["x", "to"], ["y"])
    inputs = [tensor_of([1]), tensor_of([40], "to", TensorProto.INT64)]
    for weights in (
        {"to": np.ones(40, np.int64)},
        {"x": np.ones(1, np.float32), "to": np.ones(40, np.int64)},
    ):
        model = lamina.onnx.load(model_of([node], inputs, [tensor_of([1] * 40, "y")], weights))
        assert model(*[lamina.ones(1)][: 2 - len(weights)]).shape == (1,) * 40


@pytest.mark.parametrize("op", ["GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_bytes_are_no_places(op):
    """Which a tensor would take as a mask."""
    by = [3, 1] if op == "ScatterElements" else [3, 3]
    given = [tensor_of([3, 3]), tensor_of([3, 1], "at", TensorProto.UINT8), tensor_of(by, "by")]
    values = [lamina.ones(3, 3), lamina.zeros(3, 1, dtype=lamina.uint8), lamina.ones(*by)]
    count = 3 if "Scatter" in op else 2
    node = helper.make_node(op, ["x", "at", "by"][:count], ["y"])
    model = lamina.onnx.load(model_of([node], given[:count], [tensor_of([3, 3], "y")]))
    with pytest.raises(lamina.onnx.OnnxError, match="places are int32 or int64"):
        model(*values[:count])


def test_functions_that_call_themselves_are_refused():
    call = helper.make_node("Again", ["x"], ["y"], domain="own")
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("own", 1)]
    function = helper.make_function("own", "Again", ["x"], ["y"], [call], opsets)
    graph = helper.make_graph([call], "tried", [tensor_of([1])], [tensor_of([1], "y")])
    data = helper.make_model(graph, functions=[function], opset_imports=opsets).SerializeToString()
    with pytest.raises(lamina.onnx.OnnxError, match="deep inside of each other"):
        lamina.onnx.load(data)
