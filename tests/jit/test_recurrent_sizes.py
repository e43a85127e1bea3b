"""Recurrent networks over sequences of any length: two recordings, and one program from then on."""

import numpy as np
import pytest

import lamina
from lamina import jit, nn, optim
from lamina.jit import backend

F = nn.functional
SIZES = (5, 3), (8, 4), (11, 7), (3, 33), (40, 2), (9, 9)


def tensors(time, batch, seed=0):
    rng = np.random.default_rng(seed + 100 * time + batch)
    x = rng.standard_normal((time, batch, 6)).astype(np.float32)
    return lamina.tensor(x), lamina.tensor(rng.integers(0, 3, batch))


class Net(nn.Module):
    def __init__(self, kind, **how):
        super().__init__()
        self.layer = getattr(nn, kind)(6, 8, **how)
        self.out = nn.Linear(16 if how.get("bidirectional") else 8, 3)

    def forward(self, x):
        output, last = self.layer(x)
        last = last[1] if isinstance(last, tuple) else last
        return self.out(output.mean(0)) + last.sum(0)[:, :3]


KINDS = [
    ("LSTM", {}),
    ("GRU", {}),
    ("RNN", {"nonlinearity": "relu"}),
    ("LSTM", {"num_layers": 2, "bidirectional": True, "bias": False}),
    ("GRU", {"num_layers": 2, "bidirectional": True}),
]


def nets(kind, how):
    lamina.manual_seed(0)
    one, two = Net(kind, **how), Net(kind, **how)
    two.load_state_dict(one.state_dict())
    return one, two


def are_for_all_sizes():
    """One recording may have code for each set of sizes: not here."""
    assert backend._templates
    assert all(made is not None and made.is_whole for made in backend._templates.values())


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "how"), KINDS)
def test_training_over_any_length(kind, how):
    def step(net, rule, x, y):
        rule.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        rule.step()
        return loss

    backend.forget()
    traced = jit.trace(step, budget=None)
    served, eager = nets(kind, how)
    rules = optim.Adam(served.parameters(), 0.01), optim.Adam(eager.parameters(), 0.01)
    for sizes in SIZES:
        found, wanted = traced(served, rules[0], *tensors(*sizes)), step(eager, rules[1], *tensors(*sizes))
        np.testing.assert_allclose(found.item(), wanted.item(), rtol=2e-5)
    for a, b in zip(served.parameters(), eager.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), atol=5e-5)
    counts = traced.counts()
    assert counts["recorded"] <= 3, counts  # Adam's states are made in the first
    are_for_all_sizes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "how"), KINDS)
def test_inference_over_any_length(kind, how):
    net, eager = nets(kind, how)
    backend.forget()
    traced = jit.trace(net, budget=None)
    with lamina.no_grad():
        for sizes in SIZES:
            x, _ = tensors(*sizes)
            np.testing.assert_allclose(traced(x).numpy(), eager(x).numpy(), rtol=1e-5, atol=1e-6)
    assert traced.counts()["recorded"] == 2
    are_for_all_sizes()


def test_gradients_outside_of_what_is_traced():
    net, eager = nets("LSTM", {})
    traced = jit.trace(net, budget=None)
    for sizes in SIZES:
        x, y = tensors(*sizes)
        for model, function in (net, traced), (eager, eager):
            model.zero_grad()
            F.cross_entropy(function(x), y).backward()
        for a, b in zip(net.parameters(), eager.parameters(), strict=True):
            np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-6)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_exported_for_any_length(kind, tmp_path):
    net = nets(kind, {})[0].eval()
    x, _ = tensors(7, 4)
    path = tmp_path / "net.lam"
    jit.export(net, path, x, dynamic={"x": {0: ("time", 1, 512), 1: "batch"}}, levels=["x86-64-v2"])
    model = jit.load(path)
    with lamina.no_grad():
        for sizes in SIZES:
            x, _ = tensors(*sizes)
            np.testing.assert_allclose(np.asarray(model(x)), net(x).numpy(), rtol=1e-5, atol=2e-6)


def test_second_derivatives_of_what_is_traced():
    net, eager = nets("GRU", {})

    def penalty(model, x):
        x = x.detach().requires_grad_()
        (slope,) = lamina.autograd.grad(model(x).square().sum(), x, create_graph=True)
        return slope.square().sum()

    traced = jit.trace(penalty, budget=None)
    for sizes in ((4, 3), (4, 3), (6, 2)):
        x, _ = tensors(*sizes)
        np.testing.assert_allclose(traced(net, x).item(), penalty(eager, x).item(), rtol=1e-4)


def test_sequences_that_end_are_still_walked():
    """A PackedSequence has its steps taken apart, and gives what each sequence gives alone."""
    net, _ = nets("LSTM", {})
    x, _ = tensors(6, 3)
    lengths = [6, 4, 1]
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths)
    output, (h, _) = net.layer(packed)
    output, _ = nn.utils.rnn.pad_packed_sequence(output)
    for n, length in enumerate(lengths):
        alone, (last, _) = net.layer(x[:length, n : n + 1])
        np.testing.assert_allclose(
            output[:length, n].detach().numpy(), alone[:, 0].detach().numpy(), atol=1e-6
        )
        np.testing.assert_allclose(h[0, n].detach().numpy(), last[0, 0].detach().numpy(), atol=1e-6)
