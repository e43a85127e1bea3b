"""Check what `utils.summary` says of modules, without computing anything."""

import pytest

import lamina
from lamina import nn
from lamina.ir.errors import ArgumentError
from lamina.utils import summary


def convnet():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16 * 4 * 4, 10)
    )


def test_rows_parameters_and_operations():
    net = convnet()
    net[4].bias.requires_grad_(False)
    found = summary(net, (2, 3, 8, 8))
    assert [(row.path, row.depth, row.kind) for row in found.rows] == [
        ("", 0, "Sequential"), ("0", 1, "Conv2d"), ("1", 1, "ReLU"), ("2", 1, "MaxPool2d"),
        ("3", 1, "Flatten"), ("4", 1, "Linear"),
    ]  # fmt: skip
    assert [row.shapes for row in found.rows] == [
        [[2, 10]], [[2, 16, 8, 8]], [[2, 16, 8, 8]], [[2, 16, 4, 4]], [[2, 256]], [[2, 10]]
    ]  # fmt: skip
    convolution = 2 * 2 * 16 * 64 * 27 + 2 * 16 * 64  # sums of 27 products, and the bias
    product = 2 * 2 * 10 * 256 + 2 * 10
    assert [row.flops for row in found.rows] == [convolution + product, convolution, 0, 0, 0, product]
    assert found.flops == convolution + product
    assert (found.parameters, found.trainable) == (448 + 2570, 448 + 2560)
    assert found.nbytes == 4 * found.parameters
    text = str(found)
    assert "  0: Conv2d" in text and "[2, 16, 8, 8]" in text and "3,018" in text


def test_the_module_stays_as_it_is():
    net = convnet()
    before = {name: (id(x), x.device, x._version) for name, x in net.state_dict(keep_vars=True).items()}
    summary(net, (2, 3, 8, 8))
    assert before == {
        name: (id(x), x.device, x._version) for name, x in net.state_dict(keep_vars=True).items()
    }
    assert not net._forward_hooks and not net[0]._forward_pre_hooks
    assert lamina.runtime.modes.local.timing is None


def test_several_inputs_types_and_keywords():
    class Looked(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(7, 4)
            self.mix = nn.Bilinear(4, 3, 2)

        def forward(self, indices, x, *, twice):
            y = self.mix(self.table(indices), x)
            return {"y": y, "more": [y + y if twice else y]}

    found = summary(Looked(), [(5,), (5, 3)], dtypes=[lamina.int64, lamina.float32], twice=True)
    assert found.rows[0].shapes == [[5, 2], [5, 2]]
    assert found.rows[1].shapes == [[5, 4]]
    given = summary(nn.Linear(3, 2), lamina.ones(4, 3))
    assert given.rows[0].shapes == [[4, 2]]


def test_shared_modules_and_depth():
    shared = nn.Linear(3, 3)
    net = nn.Sequential(shared, nn.Sequential(shared, nn.ReLU()))
    found = summary(net, (1, 3))
    assert found.parameters == 12
    assert len([row for row in found.rows if row.kind == "Linear"]) == 2
    assert [row.kind for row in summary(net, (1, 3), depth=0).rows] == ["Sequential"]
    assert summary(net, (1, 3), depth=0).flops == found.flops


def test_bad_arguments():
    with pytest.raises(ArgumentError, match="must be a Module"):
        summary(3, (1, 3))
    with pytest.raises(ArgumentError, match="sizes are ints"):
        summary(nn.Linear(3, 2), [(1, "three")])
    with pytest.raises(ArgumentError, match="1 for 2 inputs"):
        summary(nn.Bilinear(4, 3, 2), [(5, 4), (5, 3)], dtypes=[lamina.float32])
    net = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(lamina.ShapeError):
        summary(net, (1, 4))
    assert lamina.runtime.modes.local.timing is None
