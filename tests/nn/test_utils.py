"""Clipping gradients, parameters as vectors, packed sequences."""

import pytest

import lamina
import lamina.nn as nn
from lamina.nn import utils


def with_gradients(*rows):
    found = []
    for row in rows:
        p = nn.Parameter(lamina.zeros(len(row)))
        p.grad = lamina.tensor(row)
        found.append(p)
    return found


def test_clip_grad_norm_scales_only_down():
    a, b = with_gradients([3.0, 0.0], [4.0])
    c = nn.Parameter(lamina.zeros(1))  # without a gradient
    assert utils.clip_grad_norm_([a, b, c], 10.0).item() == 5.0
    assert a.grad.tolist() == [3.0, 0.0]
    assert utils.clip_grad_norm_(iter([a, b, c]), 0.5).item() == 5.0
    assert a.grad[0].item() == pytest.approx(0.3, rel=1e-6) and c.grad is None  # scaled by 0.5 / (5 + 1e-6)
    assert utils.clip_grad_norm_([], 1.0).item() == 0.0


def test_clip_grad_norm_that_is_not_finite():
    (a,) = with_gradients([float("nan")])
    with pytest.raises(lamina.GradError, match="The total norm of order 2.0 for gradients is nan"):
        utils.clip_grad_norm_(a, 1.0, error_if_nonfinite=True)


def test_clip_grad_value():
    a, b = with_gradients([3.0, -0.1], [-4.0])
    utils.clip_grad_value_([a, b], 0.5)
    assert a.grad.tolist() == [0.5, lamina.tensor(-0.1).item()] and b.grad.tolist() == [-0.5]


def test_vector_and_back():
    m = nn.Linear(2, 1)
    vector = utils.parameters_to_vector(m.parameters())
    assert vector.shape == (3,) and vector.requires_grad
    utils.vector_to_parameters(lamina.tensor([1.0, 2.0, 3.0]), m.parameters())
    assert m.weight.tolist() == [[1.0, 2.0]] and m.bias.tolist() == [3.0]
    with pytest.raises(lamina.ShapeError, match="the vector must have 3 elements, not 2"):
        utils.vector_to_parameters(lamina.ones(2), m.parameters())


def test_pack_and_pad():
    rows = [lamina.tensor([1.0, 2.0]), lamina.tensor([3.0]), lamina.tensor([4.0, 5.0, 6.0])]
    packed = utils.rnn.pack_sequence(rows, enforce_sorted=False)
    assert packed.data.tolist() == [4.0, 1.0, 3.0, 5.0, 2.0, 6.0]
    assert packed.batch_sizes.tolist() == [3, 2, 1] and packed.sorted_indices.tolist() == [2, 0, 1]
    padded, lengths = utils.rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0)
    assert padded.tolist() == [[1.0, 2.0, -1.0], [3.0, -1.0, -1.0], [4.0, 5.0, 6.0]]
    assert lengths.tolist() == [2, 1, 3]
    assert [row.tolist() for row in utils.rnn.unpack_sequence(packed)] == [row.tolist() for row in rows]
    assert utils.rnn.pad_sequence(rows, padding_side="left").tolist()[0] == [0.0, 0.0, 4.0]
    with pytest.raises(lamina.ArgumentValueError, match="You can pass `enforce_sorted=False`"):
        utils.rnn.pack_sequence(rows)
    with pytest.raises(lamina.ArgumentValueError, match="a length between 1 and 3"):
        utils.rnn.pack_padded_sequence(lamina.ones(3, 2), [4, 1])


def test_packed_rnn_equals_each_sequence_alone():
    layer = nn.GRU(2, 3, bidirectional=True).double()
    rows = [lamina.randn(n, 2, dtype=lamina.float64) for n in (2, 4, 1)]
    out, last = layer(utils.rnn.pack_sequence(rows, enforce_sorted=False))
    found = utils.rnn.unpack_sequence(out)
    for k, row in enumerate(rows):
        alone, state = layer(row)
        # the same products, in matrices of other heights: sums of 3 terms in another order
        assert (found[k] - alone).abs().max().item() < 1e-15 * 16
        assert (last[:, k] - state).abs().max().item() < 1e-15 * 16


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm"])
def test_computed_weight_and_back(kind):
    m = nn.Linear(3, 2)
    before = m.weight.detach().clone()
    assert getattr(utils, kind)(m) is m and not isinstance(m.weight, nn.Parameter)
    with pytest.raises(lamina.ArgumentValueError, match="Linear.weight is computed already"):
        getattr(utils, kind)(m)
    m(lamina.ones(1, 3)).sum().backward()
    assert all(p.grad is not None for p in m.parameters())
    getattr(utils, "remove_" + kind)(m)
    assert isinstance(m.weight, nn.Parameter) and sorted(m.state_dict()) == ["bias", "weight"]
    ratio = (m.weight / before).detach().numpy()
    assert (
        ratio.max() - ratio.min() < 1e-6 * ratio.max()
    )  # the same direction: a product and a quotient rounded
    with pytest.raises(lamina.ArgumentValueError, match="Linear.weight is not computed"):
        getattr(utils, "remove_" + kind)(m)
