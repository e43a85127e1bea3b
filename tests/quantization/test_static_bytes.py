"""int8 by calibration: what is in bytes, the same integers eagerly and traced, states, copies, refusals."""

import copy
import pickle
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pytest
from quantised_networks import Mobile, Residual, decibels, with_statistics

import lamina
from lamina import nn, quantization
from lamina.ir.dtypes import float32, int8, uint8
from lamina.ir.errors import ArgumentError
from lamina.nn import functional as F
from lamina.quantization.static_bytes import activation_scale, weight_scale
from lamina.runtime import ops

SHAPE = (3, 16, 16)


@pytest.fixture
def residual():
    lamina.manual_seed(0)
    return with_statistics(Residual(), *SHAPE)


@pytest.fixture
def data():
    lamina.manual_seed(1)
    return [lamina.randn(4, *SHAPE) + 0.2 for _ in range(3)]


@pytest.mark.parametrize("network", [Residual, Mobile])
def test_the_quantised_model_is_near(network, data):
    lamina.manual_seed(0)
    model = with_statistics(network(), *SHAPE)
    made = lamina.quantize(model, data)
    # 8 bits give a layer 40 to 50 dB, and noise adds up over seven layers
    assert decibels(model(data[0]), made(data[0])) > 25
    assert not made.kept


@pytest.mark.parametrize("network", [Residual, Mobile])
def test_traced_gives_the_same_integers(network, data):
    lamina.manual_seed(0)
    made = lamina.quantize(with_statistics(network(), *SHAPE), data)
    traced = lamina.jit.trace(made)
    with lamina.no_grad():
        for _ in range(3):
            assert traced(data[0]).equal(made(data[0]))


def test_all_between_layers_is_bytes(residual, data):
    """Convolutions read u8 and i8; floats are read by sums and by the pool alone."""
    made = lamina.quantize(residual, data)
    layers = [node for node in made.graph.nodes if node.op.name.startswith("quantized_")]
    assert len(layers) == 7
    assert {(node.inputs[0].dtype, node.inputs[1].dtype) for node in layers} == {(uint8, int8)}
    quantised = [node for node in made.graph.nodes if node.op.name == "quantize_affine"]
    assert len(quantised) == 6  # the image, and what six layers read; block2.down reads what conv1 does
    pool = next(node for node in made.graph.nodes if node.op.name == "max_pool2d")
    assert pool.inputs[0].dtype is uint8
    assert sum(node.op.name == "dequantize_affine" for node in made.graph.nodes) == 1  # block1 adds its input


def test_batches_of_other_sizes(residual, data):
    made = lamina.quantize(residual, [x[:1] for x in data])
    assert made(data[0]).shape == (4, 10)
    rows = lamina.cat([made(x[None]) for x in data[0]])
    assert rows.equal(made(data[0]))


def test_other_sizes_are_refused_and_said_to_change(residual, data):
    made = lamina.quantize(residual, data)
    with pytest.raises(quantization.QuantizationError, match="dynamic="):
        made(lamina.randn(4, 3, 24, 24))
    assert made(lamina.randn(2, *SHAPE)).shape == (2, 10)
    wide = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3))
    made = lamina.quantize(wide, data, dynamic={0: {0: "n", 2: "h", 3: "w"}})
    assert made(lamina.randn(2, 3, 20, 31)).shape == (2, 4, 16, 27)


# ---- which layers
def test_layers_that_stay(residual, data):
    made = lamina.quantize(residual, data, skip=("block1", "*.down"), keep_first=True, keep_last=True)
    assert made.kept == {
        "block1.conv1": "skip",
        "block1.conv2": "skip",
        "block2.down.0": "skip",
        "stem": "keep_first",
        "head": "keep_last",
    }
    assert {*made.names.values()} == {"block2.conv1", "block2.conv2"}
    assert decibels(residual(data[0]), made(data[0])) > 30
    by_function = lamina.quantize(residual, data, skip=lambda name: name != "head")
    assert [*by_function.names.values()] == ["head"]


def test_what_can_not_be_is_said(data):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ConvTranspose2d(4, 2, 3), nn.Flatten(), nn.Linear(512, 2))
    made = lamina.quantize(model, data)
    assert made.kept == {"1": "there is no transposed convolution of bytes"}
    with pytest.raises(quantization.QuantizationError, match="no transposed convolution of bytes"):
        lamina.quantize(model, data, skip=("0", "3"))


def test_refusals(residual, data):
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(ArgumentError, match="no layer has the name 'heed'"):
        lamina.quantize(residual, data, skip="heed")
    with pytest.raises(quantization.QuantizationError, match='"int8" needs data'):
        lamina.quantize(residual)
    with pytest.raises(quantization.QuantizationError, match="there is none"):
        lamina.quantize(residual, [])
    with pytest.raises(quantization.QuantizationError, match="is not finite"):
        lamina.quantize(residual, [data[0] / 0.0])
    with pytest.raises(quantization.QuantizationError, match="need no recording"):
        lamina.quantize(Branching(), data)
    with pytest.raises(ArgumentError, match="one of int8, int8-dynamic"):
        lamina.quantize(residual, data, scheme="int9")
    with pytest.raises(ArgumentError, match="one of minmax, moving"):
        lamina.quantize(residual, data, observer="maximum")


def test_the_model_is_left_as_it_was(residual, data):
    residual.train()
    before = {name: x.clone() for name, x in residual.state_dict().items()}
    lamina.quantize(residual, data)
    assert residual.training and all(module.training for module in residual.modules())
    assert all(before[name].equal(x) for name, x in residual.state_dict().items())


# ---- data
def test_data_comes_in_many_forms(residual, data):
    def of_pairs(x, y, z=None):
        return residual(x) + residual(y)

    wanted = lamina.quantize(residual, data)(data[0])
    assert lamina.quantize(residual, [(x, 3) for x in data])(data[0]).equal(wanted)
    assert lamina.quantize(residual, [{"x": x} for x in data])(x=data[0]).equal(wanted)
    loader = lamina.data.DataLoader(lamina.data.TensorDataset(lamina.cat(data)), batch_size=4)
    assert lamina.quantize(residual, loader)(data[0]).equal(wanted)
    once = lamina.quantize(residual, iter(data), report=True)
    assert once(data[0]).equal(wanted) and len(once.report) == 7
    pairs = lamina.quantize(of_pairs, [(x, x, "label") for x in data])
    assert decibels(of_pairs(data[0], data[1]), pairs(data[0], data[1])) > 20


# ---- numbers that are awkward
@pytest.mark.parametrize(
    "low, high, wanted, zero",
    [
        (0.0, 51.0, 0.2, 0),
        (-25.5, 25.5, 0.2, 128),
        (2.0, 51.0, 0.2, 0),
        (-51.0, -3.0, 0.2, 255),
        (0, 0, 1 / 255, 0),
    ],
)
def test_scales_of_ranges(low, high, wanted, zero):
    scale, zero_point = activation_scale(lamina.tensor(float(low)), lamina.tensor(float(high)))
    assert abs(scale.item() - wanted) < 1e-7 and zero_point.item() == zero


def test_scales_of_weights():
    weight = lamina.tensor([[1.0, -12.7], [0.0, 0.0]])
    assert (weight_scale(weight, None, lamina.tensor(1.0)) - lamina.tensor([0.1, 0.0])).abs().max() < 1e-8


def test_channels_of_zeros_keep_their_bias():
    layer = nn.Linear(4, 3)
    with lamina.no_grad():
        layer.weight[1].zero_()
        layer.bias[1] = 5.0
    x = lamina.randn(64, 4)
    made = lamina.quantize(layer, [x])
    assert (made(x)[:, 1] - 5.0).abs().max() < 1e-4


def test_biases_far_above_weights_fit():
    layer = nn.Linear(4, 2)
    with lamina.no_grad():
        layer.weight.copy_(lamina.tensor([[1e-6] * 4, [1.0] * 4]))
        layer.bias.copy_(lamina.tensor([1000.0, -1000.0]))
    x = lamina.randn(64, 4)
    made = lamina.quantize(layer, [x])
    assert (made(x) - layer(x)).abs().max() < 0.05


def test_a_layer_that_is_called_twice_has_two_inputs(data):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x):
            return self.layer(F.relu(self.layer(x)) * 10)

    model = Twice()
    made = lamina.quantize(model, data)
    assert [*made.names.values()] == ["layer", "layer#2"]
    assert decibels(model(data[0]), made(data[0])) > 30


def test_matrix_products_with_weights(data):
    class Product(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(lamina.randn(16, 5))

        def forward(self, x):
            return x @ self.weight + 1.0

    model = Product()
    made = lamina.quantize(model, data)
    assert [node.op.name for node in made.graph.nodes] == ["quantize_affine", "quantized_linear", "add"]
    assert decibels(model(data[0]), made(data[0])) > 35


# ---- states and copies
def test_copies(residual, data):
    made = lamina.quantize(residual, data)
    wanted = made(data[0])
    assert copy.deepcopy(made)(data[0]).equal(wanted)
    assert pickle.loads(pickle.dumps(made))(data[0]).equal(wanted)


def test_states_bring_zero_points(data):
    lamina.manual_seed(0)
    model = with_statistics(Residual(), *SHAPE)
    made = lamina.quantize(model, data)
    other = lamina.quantize(model, [x * 2 + 1 for x in data])
    assert made.get_extra_state() != other.get_extra_state()
    other.load_state_dict(pickle.loads(pickle.dumps(made.state_dict())))
    assert other(data[0]).equal(made(data[0]))
    assert made.state_dict()["block1.conv1.weight"].dtype is int8
    less = lamina.quantize(model, data, skip="head")
    with pytest.raises(quantization.QuantizationError, match="of other layers"):
        less.set_extra_state(made.get_extra_state())


# ---- files
@pytest.mark.sampled(3)
def test_exported_files_give_the_same(residual, data, tmp_path):
    made = lamina.quantize(residual, data)
    lamina.jit.export(made, tmp_path / "model.lam", data[0])
    with lamina.no_grad():
        assert lamina.jit.load(tmp_path / "model.lam")(data[0]).equal(made(data[0]))


# ---- training
def test_the_prepared_model_rounds_to_the_same_integers(residual, data):
    prepared = quantization.prepare(residual, data).eval()
    made = quantization.convert(prepared)
    for path in ("stem.weight", "block1.conv2.weight", "head.weight"):
        scale = made.state_dict()[f"{path}_scale"]
        steps = made.state_dict()[path].to(float32)
        faked = prepared.weight(path)
        assert faked.equal(steps * scale.reshape(-1, *(1,) * (steps.ndim - 1)))
    for at, name in enumerate(prepared.points.names):
        point = getattr(prepared.ranges, str(at))
        scale, zero = point.scale()
        node = next(n for p, n in made._with_zero_points() if p == f"{name}.input_scale")
        assert int(zero.item()) == node.attrs["zero_point"]
        x = lamina.linspace(float(point.low) - 1, float(point.high) + 1, 1001)
        byte = ops.FUNCTIONS["quantize_affine"](x, scale, zero_point=node.attrs["zero_point"])
        assert point(x).equal(
            ops.FUNCTIONS["dequantize_affine"](byte, scale, zero_point=node.attrs["zero_point"])
        )
    # sums of floats round, so that single numbers may fall on the other side of a half
    assert decibels(made(data[0]), prepared(data[0])) > 45


def test_training_recovers_what_few_steps_lose(data):
    lamina.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    x = lamina.randn(256, 8)
    with lamina.no_grad():
        wanted = model(x)
    prepared = quantization.prepare(model, [x], observer="moving")
    for point in prepared.ranges.children():  # ranges that are much too narrow
        point.limit(float(point.low) / 8, float(point.high) / 8)
    before = decibels(wanted, quantization.convert(prepared)(x))
    optimiser = lamina.optim.Adam(prepared.parameters(), lr=1e-3)
    for _ in range(150):
        loss = F.mse_loss(prepared(x), wanted)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    prepared.eval()
    made = quantization.convert(prepared)
    assert decibels(wanted, made(x)) > before + 10
    assert pickle.loads(pickle.dumps(prepared))(x).equal(prepared(x))


def test_a_traced_step_trains_the_same():
    def losses(wrap):
        lamina.manual_seed(0)
        prepared = quantization.prepare(
            nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), [lamina.ones(4, 8)]
        )
        optimiser = lamina.optim.SGD(prepared.parameters(), lr=0.1)
        x = lamina.linspace(-1, 1, 32).reshape(4, 8)

        def step():
            loss = (prepared(x) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            return loss

        run = wrap(step)
        return [run().item() for _ in range(4)]

    assert np.allclose(losses(lambda f: f), losses(lamina.jit.trace), rtol=1e-5)


# ---- the report
def test_the_report_names_the_worst_first(residual, data):
    prepared = quantization.prepare(residual, data, observer="minmax").eval()
    at = prepared.points.names.index("block2.conv2")
    point = getattr(prepared.ranges, str(at))
    point.limit(0.0, float(point.high) / 6)
    made = quantization.convert(prepared)
    found = quantization.report(made, residual, data)
    assert [each.name for each in found][0] == "block2.conv2" and len(found) == 7
    assert found["block2.conv2"].saturated > 0.05
    assert found["stem"].saturated < 1e-3 and found["stem"].decibels > 35
    assert [each.decibels for each in found] == sorted(each.decibels for each in found)
    assert str(found).splitlines()[1].startswith("block2.conv2")
    again = lamina.quantize(residual, data, report=True).report
    assert again["block2.conv2"].decibels > found["block2.conv2"].decibels + 5


def test_the_report_is_drawn(residual, data, tmp_path):
    lamina.quantize(residual, data, report=True).report.draw().savefig(tmp_path / "layers.png")
    assert (tmp_path / "layers.png").stat().st_size > 1000


class Tied(nn.Module):
    """A table that is the last layer's weight as well, as language models have it."""

    def __init__(self):
        super().__init__()
        self.table, self.middle = nn.Embedding(20, 8), nn.Linear(8, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.table.weight

    def forward(self, x):
        return self.head(F.relu(self.middle(self.table(x)))), self.head.weight


class Autoencoder(nn.Module):
    """Goes back by the weight that it came with."""

    def __init__(self, width):
        super().__init__()
        self.weight, self.bias = nn.Parameter(lamina.randn(6, width)), nn.Parameter(lamina.randn(6))

    def forward(self, x):
        return F.relu(F.linear(x, self.weight, self.bias)) @ self.weight


def test_a_weight_that_is_read_as_floats_too():
    lamina.manual_seed(0)
    model, tokens = Tied().eval(), lamina.randint(0, 20, (3, 5))
    made = lamina.quantize(model, [tokens])
    assert [*made.names.values()] == ["middle", "table"]
    assert decibels(model(tokens)[0], made(tokens)[0]) > 30
    assert made(tokens)[1].equal(model.head.weight)
    assert pickle.loads(pickle.dumps(made))(tokens)[0].equal(made(tokens)[0])


@pytest.mark.parametrize("width", [6, 8])
def test_a_weight_that_is_read_both_ways_round(width):
    lamina.manual_seed(0)
    model, x = Autoencoder(width), lamina.randn(64, width)
    made = lamina.quantize(model, [x])
    assert made.kept == {"weight_#2": "another layer reads its weight the other way round"}
    assert decibels(model(x), made(x)) > 30


class Twice(nn.Module):
    """A layer that is called twice beside one of the name that its second call might get."""

    def __init__(self):
        super().__init__()
        self.layer, self.layer_2 = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        return self.layer_2(F.relu(self.layer(F.relu(self.layer(x)))))


class Scaled(nn.Module):
    """A layer with parameters of the names that scales have."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.layer.input_scale = nn.Parameter(lamina.randn(8) * 7)
        self.layer.weight_scale = nn.Parameter(lamina.randn(8) * 3)

    def forward(self, x):
        return self.layer(x * self.layer.input_scale) * self.layer.weight_scale


@pytest.mark.parametrize("network", [Twice, Scaled])
def test_names_of_scales_and_biases_are_nobody_elses(network):
    lamina.manual_seed(0)
    model, x = network(), lamina.randn(64, 8)
    assert decibels(model(x), lamina.quantize(model, [x])(x)) > 25


@pytest.mark.parametrize("what", ["weight", "bias"])
def test_a_layer_of_numbers_that_are_not_finite_is_named(residual, data, what):
    with lamina.no_grad():
        getattr(residual.head, what).view(-1)[0] = float("inf")
    with pytest.raises(
        quantization.QuantizationError, match=f"the {what} of head is not finite\n.*skip='head'"
    ):
        lamina.quantize(residual, data)
    assert "head" in lamina.quantize(residual, data, skip="head").kept


def test_data_of_no_numbers(residual, data):
    empty = lamina.zeros(0, *SHAPE)
    with pytest.raises(quantization.QuantizationError, match="stem reads no numbers"):
        lamina.quantize(residual, [empty])
    assert lamina.quantize(residual, [data[0], empty])(empty).shape == (0, 10)


def test_arrays_and_mappings_are_data(residual, data):
    wanted = lamina.quantize(residual, data[:1])(data[0])
    array = data[0].numpy()
    for given in (array, [array], [(array, 3)]):
        assert lamina.quantize(residual, given)(data[0]).equal(wanted)
    for by_name in ([{"x": array}], [MappingProxyType({"x": data[0]})]):
        assert lamina.quantize(residual, by_name)(x=data[0]).equal(wanted)


def test_reasons_name_what_can_be_done(residual, data):
    cases = [
        (lambda: lamina.quantize(residual.double(), [data[0].double()]), r"stem: .*model\.float\(\)"),
        (lambda: lamina.quantize(nn.Linear(4, 4), [lamina.randn(4)]), r"has no batch.*x\[None\]"),
        (lambda: lamina.quantize(nn.Conv2d(3, 4, 3), [data[0][0]]), r"has no batch.*x\[None\]"),
        (lambda: lamina.quantize(lamina.quantize(residual.float(), data), data), "is quantised already"),
        (lambda: lamina.quantize(residual, 5), "not a int"),
        (lambda: lamina.quantize(Residual, data), "a module or a function"),
        (lambda: lamina.quantize(residual, data, skip=3), "names, patterns or a function"),
        (lambda: lamina.quantize(residual, data, group=32), "'int8' has no groups"),
        (lambda: lamina.quantize(residual, scheme="bfloat16", dynamic={}), "records nothing"),
        (lambda: quantization.convert(residual), "Residual is not prepared"),
    ]
    for call, said in cases:
        with pytest.raises((quantization.QuantizationError, ArgumentError), match=said):
            call()


class Answer(NamedTuple):
    score: lamina.Tensor
    parts: dict


@dataclass
class Record:
    score: lamina.Tensor
    nothing: None = None


class Named(nn.Module):
    """Takes arguments by place and by name, and returns classes of its own."""

    def __init__(self, kind):
        super().__init__()
        self.layer, self.kind = nn.Linear(8, 8), kind

    def forward(self, x, y, *, by=1.0):
        score = self.layer(x) * by - y
        return Answer(score, {"twice": [score * 2, None]}) if self.kind is Answer else Record(score)


@pytest.mark.parametrize("kind", [Answer, Record])
def test_results_are_of_the_models_classes(kind):
    x = lamina.randn(3, 8)
    made = lamina.quantize(Named(kind), [(x, x)])
    for model in (made, copy.deepcopy(made), pickle.loads(pickle.dumps(made)), lamina.jit.trace(made)):
        with lamina.no_grad():
            found = model(x, x)
        assert type(found) is kind and found.score.shape == (3, 8)
    prepared = quantization.prepare(Named(kind), [(x, x)])
    assert type(prepared(x, x)) is kind


def test_arguments_are_spelled_as_one_likes():
    x, y, by = lamina.randn(3, 8), lamina.randn(3, 8), lamina.tensor(2.0)
    for data in ({"by": by, "x": x, "y": y}, {"y": y, "x": x, "by": by}):
        made = lamina.quantize(Named(Answer), data)
        wanted = made(x=x, y=y, by=by).score
        for found in (made(x, y, by=by), made(x, by=by, y=y), made(by=by, y=y, x=x), made(x, y, by=2.0)):
            assert found.score.equal(wanted)
    by_place = lamina.quantize(Named(Answer), [(x, y)])
    assert by_place(y=y, x=x).score.equal(by_place(x, y).score)
    for given, named in [((x,), {}), ((x, y, by), {}), ((x, y), {"x": x}), ((x, y), {"z": x})]:
        with pytest.raises(quantization.QuantizationError, match="was recorded with"):
            by_place(*given, **named)
    with pytest.raises(quantization.QuantizationError, match=r"cast it: x\.to\(lamina\.float32\)"):
        by_place(x.double(), y)


def test_a_prepared_model_that_diverged_is_not_converted(residual, data):
    prepared = quantization.prepare(residual, data, observer="moving")
    prepared(data[0] / 0.0)
    with pytest.raises(quantization.QuantizationError, match="the range of stem is not finite"):
        quantization.convert(prepared.eval())


class Parts(nn.Module):
    """Takes its images apart: by chunks, by numbers, by steps, by indices (what Upsample does)."""

    def __init__(self):
        super().__init__()
        self.up, self.wide, self.last = nn.Upsample(scale_factor=2), nn.Conv2d(3, 6, 1), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        a, b = self.wide(x).chunk(2, 1)
        (c,) = a.unsqueeze(0).unbind(0)
        return self.last(self.up(c * b[:, :, ::1, 0:16]))[:, 1:, None, 2]


def test_parts_are_taken_for_any_batch(data, tmp_path):
    lamina.manual_seed(0)
    made = lamina.quantize(Parts(), data)
    path = tmp_path / "model.lam"
    lamina.jit.export(made, path, data[0], dynamic={0: {0: "batch"}}, levels=["x86-64-v2"])
    few = data[0][:3].clone()
    found = lamina.jit.load(path)(few)
    assert found.shape == (3, 3, 1, 30) and decibels(made(few), found) > 40
