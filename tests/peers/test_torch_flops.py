"""What `utils.flop_counter` counts, module by module, beside PyTorch's."""

import pytest

import lamina
from lamina.utils.flop_counter import FlopCounterMode as Mine

torch = pytest.importorskip("torch")
Theirs = pytest.importorskip("torch.utils.flop_counter").FlopCounterMode

# A module of a library's `nn`, and the shapes that it is given.
CASES = {
    "perceptron": (lambda nn: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (5, 3)),
    "convolutions": (
        lambda nn: nn.Sequential(
            nn.Conv2d(4, 6, 3, padding=1, dilation=2), nn.BatchNorm2d(6),
            nn.ConvTranspose2d(6, 3, 2, stride=2), nn.Flatten(), nn.Linear(3 * 12 * 12, 5, bias=False),
        ),
        (2, 4, 8, 8),
    ),
    "one dimension": (lambda nn: nn.Conv1d(2, 3, 3, dilation=2, stride=2), (2, 2, 11)),
    "three dimensions": (lambda nn: nn.Conv3d(2, 3, (1, 2, 3)), (2, 2, 4, 4, 4)),
    "attention": (lambda nn: nn.MultiheadAttention(8, 2, batch_first=True), (2, 5, 8), (2, 5, 8), (2, 5, 8)),
    "encoder": (lambda nn: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "bilinear product": (lambda nn: nn.Sequential(nn.Embedding(7, 4), nn.Linear(4, 7)), ()),
}  # fmt: skip


def counts(library, mode, make, shapes, grad):
    net = make(library.nn)
    given = [library.ones(shape, requires_grad=grad) for shape in shapes if shape]
    given = given or [library.zeros((3, 2), dtype=library.int64)]
    with mode(display=False) as counter:
        made = net(*given)
        (made[0] if isinstance(made, tuple) else made).sum().backward()
    return {name: sum(ops.values()) for name, ops in counter.get_flop_counts().items()}


@pytest.mark.parametrize("grad", (False, True))
@pytest.mark.parametrize("name", CASES)
def test_counts_by_module(name, grad):
    make, *shapes = CASES[name]
    expected = counts(torch, Theirs, make, shapes, grad)
    assert counts(lamina, Mine, make, shapes, grad) == expected and expected["Global"] > 0


def test_the_gradient_of_a_weight_in_groups_counts_the_products_that_there_are():
    """PyTorch's formula leaves the groups out there: it counts `groups` times as many."""
    found = [
        counts(library, mode, lambda nn: nn.Conv2d(4, 6, 3, groups=2), [(2, 4, 5, 5)], False)["Global"]
        for library, mode in ((lamina, Mine), (torch, Theirs))
    ]
    forward = 2 * (2 * 6 * 3 * 3) * (2 * 3 * 3)
    assert found == [forward * 2, forward * 3]
