"""Layers in place of layers: what they compute, what they store, which are taken."""

import copy
import pickle

import numpy as np
import pytest
from quantised_networks import Residual, Tokens, decibels, with_statistics

import lamina
from lamina import nn, quantization
from lamina.ir.dtypes import bfloat16, int8, uint8
from lamina.ir.errors import ArgumentError
from lamina.quantization import swapped_layers
from lamina.quantization.swapped_layers import DynamicLinear, WeightOnlyLinear, Weights
from lamina.runtime import ops
from lamina.runtime.history import storage_of

CHOICES = [
    ("int8-dynamic", {}, 35),
    ("int8-weights", {}, 35),
    ("int8-weights", {"group": 32}, 35),
    ("int4-weights", {"group": 32}, 15),
    ("int4-weights", {"group": 32, "zero_points": True}, 15),
    ("int4-weights", {"group": 32, "scale_dtype": bfloat16}, 15),
    ("int8-weights", {"activations": "int8"}, 35),
    ("int4-weights", {"group": 32, "activations": "int8"}, 15),
    ("bfloat16", {}, 35),
]


@pytest.mark.parametrize("scheme, how, least", CHOICES, ids=lambda value: str(value))
def test_a_language_model(scheme, how, least):
    lamina.manual_seed(0)
    model = Tokens()
    made = lamina.quantize(model, scheme=scheme, **how)
    tokens = lamina.randint(0, 50, (3, 6))
    with lamina.no_grad():
        wanted, found = model(tokens), made(tokens)
        assert found.dtype is wanted.dtype
        assert decibels(wanted, found) > least
        few = tokens[:, :2].clone()  # another way through the code
        assert decibels(model(few), made(few)) > least
        traced = lamina.jit.trace(made)
        rounds = scheme == "bfloat16" or "activations" in how  # to the other side here and there
        for _ in range(3):
            assert decibels(found, traced(tokens)) > (45 if rounds else 100)
    assert copy.deepcopy(made)(tokens).equal(found)
    assert pickle.loads(pickle.dumps(made))(tokens).equal(found)
    again = lamina.quantize(Tokens(), scheme=scheme, **how)
    again.load_state_dict(made.state_dict())
    assert again(tokens).equal(found)
    assert type(model.up) is nn.Linear  # a copy was changed


def test_integers_of_dynamic_layers_are_exact():
    lamina.manual_seed(0)
    layer = nn.Linear(300, 7)
    made = DynamicLinear(layer.weight, layer.bias)
    x = lamina.randn(5, 300)
    scale = np.maximum(np.abs(x.numpy()).max(-1, keepdims=True), 1e-12) / np.float32(127)
    q = np.clip(np.rint(x.numpy() * (np.float32(1) / scale)), -127, 127).astype(np.int64)
    total = q @ made.weight.numpy().astype(np.int64).T
    wanted = total.astype(np.float32) * scale * made.scale.numpy() + layer.bias.detach().numpy()
    assert np.array_equal(made(x).detach().numpy(), wanted)
    quantize = ops.FUNCTIONS["quantize_affine"]
    traced = lamina.jit.trace(lambda x: quantize(x, x.abs().amax(-1, True) / 127, dtype=int8))
    for _ in range(3):
        assert np.array_equal(traced(x).numpy(), q)


def test_a_row_and_a_batch_of_rows():
    made = DynamicLinear(lamina.randn(3, 4), None)
    x = lamina.randn(2, 5, 4)
    assert made(x).shape == (2, 5, 3)
    assert made(x[0, 0]).equal(made(x)[0, 0])
    assert made(lamina.zeros(4)).equal(lamina.zeros(3))


def test_four_bits_are_stored_in_half_the_bytes():
    made = WeightOnlyLinear(lamina.randn(6, 64), None, Weights(4, 32))
    assert made.weight.shape == (6, 32) and made.weight.dtype is uint8
    assert made.scale.shape == (6, 2)


@pytest.mark.parametrize("bits, zero_points", [(4, False), (4, True), (8, False), (8, True)])
def test_weights_are_off_by_half_a_step(bits, zero_points):
    weight = lamina.randn(6, 64) + 0.5
    made = WeightOnlyLinear(weight, None, Weights(bits, 32, zero_points))
    off = (made.float_weight() - weight).abs().reshape(6, 2, 32).amax(-1)
    # half a step, and with zero points another half, as these are whole
    assert (off <= made.scale * (1.0 if zero_points else 0.5) * 1.001).all()


@pytest.mark.parametrize("bits, group", [(8, None), (8, 32), (4, 32)])
def test_halves_are_multiplied_by_weights_that_are_not_rounded(bits, group):
    """And their sums are rounded once: each compiled way may round one to the other side."""
    lamina.manual_seed(0)
    made = WeightOnlyLinear(lamina.randn(40, 64), lamina.randn(40), Weights(bits, group))
    rows = lamina.randn(20, 64).to(bfloat16)
    wanted = made(rows.float())
    assert made(rows).equal(wanted.to(bfloat16))
    traced = lamina.jit.trace(made)
    with lamina.no_grad():
        for count in (1, 1, 1, 20, 20, 20):
            off = (traced(rows[:count]).float() - wanted[:count]).abs()
            assert (off <= wanted[:count].abs() * 2.0**-8 + 1e-4).all()


@pytest.mark.parametrize("bits, group", [(8, None), (8, 32), (4, 32)])
@pytest.mark.parametrize("rows", [1, 20])
def test_activations_in_bytes_are_multiplied_as_they_are(bits, group, rows):
    """What is multiplied has steps of its own in each group of each row; sums are exact up to there."""
    lamina.manual_seed(0)
    made = WeightOnlyLinear(lamina.randn(40, 192), lamina.randn(40), Weights(bits, group, activations="int8"))
    assert made.together == (group or 64) and "activations=int8" in repr(made)
    x = lamina.randn(rows, 192).numpy()
    groups = x.reshape(rows, -1, made.together)
    scale = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    steps = np.rint(groups * (np.float32(1) / scale)).astype(np.float64)
    weight = made.float_weight().numpy().astype(np.float64)
    wanted = (steps * scale).reshape(rows, 192) @ weight.T + made.bias.numpy()
    traced = lamina.jit.trace(made)
    with lamina.no_grad():
        for found in (made(lamina.tensor(x)), *(traced(lamina.tensor(x)) for _ in range(3))):
            np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=5e-5)
    assert np.abs(wanted - (x @ weight.T + made.bias.numpy())).max() > 0.01  # and they do round


def test_activations_are_rounded_or_not():
    with pytest.raises(ArgumentError, match="'int8' or None, not 'int4'"):
        lamina.quantize(Tokens(), scheme="int8-weights", activations="int4")
    with pytest.raises(ArgumentError, match="has no groups of weights"):
        lamina.quantize(Tokens(), scheme="int8-dynamic", activations="int8")


def test_which_layers_are_taken():
    model = with_statistics(Residual(), 3, 16, 16)
    assert type(lamina.quantize(model, scheme="int8-weights").stem).__name__ == "WeightOnlyConv"
    dynamic = lamina.quantize(model, scheme="int8-dynamic")
    assert type(dynamic.stem) is nn.Conv2d and type(dynamic.head) is DynamicLinear
    with pytest.raises(quantization.QuantizationError, match="no layer that can be quantised"):
        lamina.quantize(model, scheme="int8-dynamic", skip="head")
    skipped = lamina.quantize(Tokens(), scheme="int8-weights", skip=("table", "head"))
    assert type(skipped.table) is nn.Embedding and type(skipped.up) is WeightOnlyLinear
    assert type(lamina.quantize(nn.Linear(4, 4), scheme="int8-dynamic")) is DynamicLinear


def test_groups_that_do_not_fit_name_the_layer():
    with pytest.raises(quantization.QuantizationError, match="up has 64 inputs.*48"):
        lamina.quantize(Tokens(), scheme="int4-weights", group=48)
    with pytest.raises(ArgumentError, match="an even number of inputs"):
        lamina.quantize(Tokens(), scheme="int4-weights", group=7)


def test_in_place():
    model = Tokens()
    assert lamina.quantize(model, scheme="int8-weights", inplace=True) is model
    assert type(model.head) is WeightOnlyLinear


def test_the_report_of_swapped_layers():
    lamina.manual_seed(0)
    tokens = lamina.randint(0, 50, (3, 6))
    made = lamina.quantize(Tokens(), [tokens], "int4-weights", group=32, report=True)
    assert {each.name for each in made.report} == {"up", "down", "head"}
    assert all(10 < each.decibels < 40 and each.saturated is None for each in made.report)
    with pytest.raises(ArgumentError, match="it needs data"):
        lamina.quantize(Tokens(), scheme="int8-weights", report=True)


def test_linear_layers_of_transformers():
    class Conv1D(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.bias = nn.Parameter(lamina.randn(8, 3)), nn.Parameter(lamina.zeros(3))

        def forward(self, x):
            return x @ self.weight + self.bias

    model = nn.Sequential(Conv1D())
    made = lamina.quantize(model, scheme="int8-weights")
    x = lamina.randn(5, 8)
    assert type(made[0]) is WeightOnlyLinear
    assert decibels(model(x), made(x)) > 35


def test_exported(tmp_path):
    model = lamina.quantize(
        nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 4)), scheme="int4-weights", group=8
    )
    x = lamina.randn(2, 64)
    lamina.jit.export(model, tmp_path / "model.lam", x)
    assert (lamina.jit.load(tmp_path / "model.lam")(x) - model(x)).abs().max() < 1e-5


def test_by_the_name_of_pytorchs():
    import lamina.ao.quantization as found

    assert found is quantization and lamina.ao.quantization is found
    model = found.quantize_dynamic(Tokens(), {nn.Linear}, dtype=int8)
    assert type(model.up) is DynamicLinear and type(model.table) is nn.Embedding
    model = found.quantize_dynamic(Tokens(), {"up", "head"})
    assert type(model.up) is DynamicLinear and type(model.down) is nn.Linear
    with pytest.raises(ArgumentError, match="int8 or float16"):
        found.quantize_dynamic(Tokens(), dtype=lamina.int32)


@pytest.mark.parametrize("scheme", ["int8-dynamic", "int8-weights", "int4-weights", "bfloat16"])
def test_hooks_of_a_layer_go_on(scheme):
    lamina.manual_seed(0)
    model, x, calls = nn.Sequential(nn.Linear(64, 8)), lamina.randn(3, 64), []
    model[0].register_forward_pre_hook(lambda layer, given: calls.append("before"))
    model[0].register_forward_hook(lambda layer, given, made: made * 2)
    made = lamina.quantize(model, scheme=scheme)
    assert decibels(model(x), made(x)) > 15 and calls == ["before"] * 2


def test_a_convolutions_hooks_are_called_once_and_are_removable():
    layer, calls = nn.Conv2d(3, 4, 3), []
    handle = layer.register_forward_hook(lambda *_: calls.append(1))
    made = lamina.quantize(nn.Sequential(layer), scheme="int8-weights", inplace=True)
    made(lamina.randn(1, 3, 5, 5))
    assert calls == [1]
    handle.remove()
    made(lamina.randn(1, 3, 5, 5))
    assert calls == [1]


def test_a_weight_that_is_not_finite_names_its_layer():
    model = Tokens()
    with lamina.no_grad():
        model.up.weight[0, 0] = float("nan")
    for scheme in ("int8-dynamic", "int8-weights", "int4-weights"):
        with pytest.raises(
            quantization.QuantizationError, match="the weight of up is not finite\n.*skip='up'"
        ):
            lamina.quantize(model, scheme=scheme)


def rounded_by_numpy(w, how):
    """Steps, scales and zero points."""
    w = w.reshape(w.shape[0], -1, how.group or w.shape[1])
    most, zero, zero_points = 2 ** (how.bits - 1) - 1, None, how.zero_points
    span = np.maximum(w.max(-1), 0) - np.minimum(w.min(-1), 0) if zero_points else np.abs(w).max(-1)
    scale = np.maximum(span / np.float32(2 * most + 1 if zero_points else most), np.float32(1e-12))
    scale = lamina.tensor(scale).to(how.scale_dtype).float().numpy()
    steps = np.rint(w * (np.float32(1) / scale)[..., None])
    if zero_points:
        zero = np.clip(np.rint(-np.minimum(w.min(-1), 0) / scale) - most - 1, -most - 1, most)
        steps = steps + zero[..., None]
    return np.clip(steps, -most - zero_points, most).reshape(w.shape[0], -1), scale, zero


@pytest.mark.parametrize("dtype", [lamina.float32, bfloat16, lamina.float64])
@pytest.mark.parametrize("scheme, how", [each[:2] for each in CHOICES[1:-1]], ids=str)
def test_large_weights_are_rounded_as_small_ones(scheme, how, dtype, monkeypatch):
    """A program rounds them, of which NumPy's steps are asked for exactly."""
    how = Weights(int(scheme[3]), **how)
    for few in (0, 1 << 20):
        monkeypatch.setattr(swapped_layers, "FEW", few)
        for outs, k in ((3, 64), (40, 96), (2, 192), (1, 32)):
            w = lamina.randn(outs, k).to(dtype)
            w[0, :32] = 0.0
            made = WeightOnlyLinear(w, None, how)
            steps = made.weight
            if how.bits == 4:
                steps = ops.FUNCTIONS["unpack_int4"](steps, made.group)
            wanted, scale, zero = rounded_by_numpy(w.float().numpy(), how)
            np.testing.assert_array_equal(steps.numpy(), wanted)
            np.testing.assert_array_equal(made.scale.float().numpy(), scale)
            assert (zero is None) == (made.zero_point is None)
            if zero is not None:
                np.testing.assert_array_equal(made.zero_point.numpy(), zero)


def test_a_model_that_is_refused_in_place_still_runs():
    model, x = nn.Sequential(nn.Conv2d(3, 4, 3)), lamina.randn(1, 3, 5, 5)
    with lamina.no_grad():
        model[0].weight[0, 0, 0, 0] = float("inf")
    with pytest.raises(quantization.QuantizationError, match="the weight of 0 is not finite"):
        lamina.quantize(model, scheme="int8-weights", inplace=True)
    assert model(x).shape == (1, 4, 3, 3)


def test_layers_that_no_scheme_has_say_why():
    computed = nn.utils.weight_norm(nn.Linear(4, 4))
    for model, said in [
        (nn.MultiheadAttention(8, 2), "out_proj: int8-weights has nothing for a NonDynamically"),
        (nn.Sequential(nn.LazyLinear(4)), "0: int8-weights has nothing for a LazyLinear"),
        (nn.Sequential(nn.Embedding(4, 4, max_norm=1.0)), "max_norm"),
        (nn.Sequential(computed), "0: its weight is no parameter"),
    ]:
        with pytest.raises(quantization.QuantizationError, match=said):
            lamina.quantize(model, scheme="int8-weights", inplace=True)


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic", "int8-weights", "int4-weights", "bfloat16"])
@pytest.mark.parametrize("inplace", [False, True])
def test_what_weights_alone_say_is_computed_once(scheme, inplace):
    """No weight counts as memory that others may write: what is packed of it would be packed at each call."""
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    data = [lamina.randn(4, 64)] if scheme == "int8" else None
    small = lamina.quantize(model, data, scheme=scheme, inplace=inplace)
    for module in (model, small):
        kept = [*module.named_parameters(), *module.named_buffers()]
        assert not [name for name, x in kept if storage_of(x).exposed]
