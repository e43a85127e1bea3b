"""Answers of a trained network before and after: benchmarks/quantisation_accuracy.py in small."""

import pytest

pytest.importorskip("sklearn", reason="the digits are scikit-learn's: pip install 'lamina[demo]'")

import lamina
from lamina.demo import digits
from lamina.demo.network import network
from lamina.nn import functional as F


@pytest.fixture(scope="module")
def trained():
    """The demo's network after five epochs, and the digits."""
    lamina.manual_seed(0)
    found, model = digits.load(), network(lamina)
    optimiser = lamina.optim.Adam(model.parameters(), lr=3e-3)

    @lamina.jit.trace
    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss

    for _ in range(5):
        for at in range(0, 1408, 64):
            step(found.train.images[at : at + 64].clone(), found.train.labels[at : at + 64].clone())
    return model.eval(), found


@pytest.mark.parametrize("scheme", ["int8", "int8-dynamic", "int8-weights", "int4-weights", "bfloat16"])
def test_answers_agree(trained, scheme):
    model, found = trained
    made = lamina.quantize(model, [found.train.images[:256]], scheme)
    with lamina.no_grad():
        wanted = model(found.test.images).argmax(1)
        same = (made(found.test.images).argmax(1) == wanted).float().mean().item()
    assert (wanted == found.test.labels).float().mean().item() > 0.95
    assert same >= 0.98
