"""Nested tensors beside PyTorch's: values, offsets, gradients, attention."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="compares with PyTorch")

import lamina  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
LENGTHS = (2, 5, 1)


class Given:
    """The operands of a program in one framework."""

    def __init__(self, t):
        draw = np.random.default_rng(3).normal
        self.parts = [t.tensor(draw(size=(n, 6))).requires_grad_() for n in LENGTHS]
        self.others = [t.tensor(draw(size=(n, 6))).requires_grad_() for n in LENGTHS]
        self.x = t.nested.as_nested_tensor(self.parts, layout=t.jagged)
        other = t.cat(self.others)
        self.y = t.nested.nested_tensor_from_jagged(other, self.x.offsets())
        self.w = t.tensor(draw(size=(4, 6))).requires_grad_()
        self.b = t.tensor(draw(size=(4,))).requires_grad_()
        self.g = t.tensor(draw(size=(6,))).requires_grad_()
        self.leaves = [*self.parts, *self.others, self.w, self.b, self.g]

    def heads(self, x):
        """[B, j, 6] -> [B, 2, j, 3]."""
        return x.unflatten(-1, [2, 3]).transpose(1, 2)


def sdpa(t, g, **how):
    q, k = g.heads(g.x), g.heads(g.x * 2)
    return t.nn.functional.scaled_dot_product_attention(q, k, g.heads(g.x.sin()), **how).transpose(1, 2)


CASES = {
    "values": lambda t, g: g.x.values(),
    "offsets": lambda t, g: g.x.offsets(),
    "unbind": lambda t, g: g.x.unbind()[1],
    "index": lambda t, g: g.x[2],
    **{
        f: (lambda t, g, f=f: getattr(t, f)(g.x))
        for f in ("sin", "exp", "relu", "neg", "abs", "tanh", "sigmoid")
    },
    "add number": lambda t, g: g.x + 1,
    "add row": lambda t, g: g.x + g.g,
    "mul number": lambda t, g: 3 * g.x,
    "add nested": lambda t, g: g.x + g.x.sin(),
    "mul nested": lambda t, g: g.x * g.x.cos(),
    "gelu": lambda t, g: t.nn.functional.gelu(g.x),
    "linear": lambda t, g: t.nn.functional.linear(g.x, g.w, g.b),
    "matmul": lambda t, g: g.x @ g.w.t(),
    "layer_norm": lambda t, g: t.nn.functional.layer_norm(g.x, (6,), g.g),
    "softmax": lambda t, g: t.softmax(g.x, -1),
    "log_softmax": lambda t, g: t.log_softmax(g.x, 2),
    "sum": lambda t, g: g.x.sum(),
    "sum ragged": lambda t, g: g.x.sin().sum(1),
    "sum ragged keepdim": lambda t, g: g.x.sum(1, keepdim=True),
    "mean ragged": lambda t, g: g.x.mean(1),
    "amax ragged": lambda t, g: g.x.amax(1),
    "sum last": lambda t, g: g.x.sum(-1),
    "sum last keepdim": lambda t, g: g.x.sum(2, keepdim=True),
    "transpose": lambda t, g: g.x.transpose(1, 2) * 2,
    "unflatten": lambda t, g: g.x.unflatten(-1, [2, 3]),
    "view": lambda t, g: g.x.view(3, g.x.size(1), 2, 3),
    "heads": lambda t, g: g.heads(g.x) * 2,
    "flatten": lambda t, g: g.x.unflatten(-1, [2, 3]).flatten(-2),
    "unsqueeze": lambda t, g: g.x.unsqueeze(-1),
    "chunk": lambda t, g: g.x.chunk(2, -1)[1],
    "cat": lambda t, g: t.cat([g.x, g.x.sin()], -1),
    "float": lambda t, g: g.x.float(),
    "clone": lambda t, g: g.x.clone(),
    "detach": lambda t, g: g.x.detach(),
    "zeros_like": lambda t, g: t.zeros_like(g.x),
    "to_padded_tensor": lambda t, g: g.x.to_padded_tensor(-1.5),
    "to_padded_tensor of": lambda t, g: t.nested.to_padded_tensor(g.x, 0.0),
    "from jagged": lambda t, g: g.y * 2,
    "sdpa": sdpa,
    "sdpa causal": lambda t, g: sdpa(t, g, is_causal=True),
    "sdpa scale": lambda t, g: sdpa(t, g, scale=0.5),
    "narrow": lambda t, g: (
        t.nested.narrow(g.w, 1, t.tensor([0, 1, 2, 0]), t.tensor([3, 2, 1, 4]), layout=t.jagged).unbind()[1]
        * 1
    ),
}


def held(x):
    return x.values() if x.is_nested else x


# What PyTorch's nested tensors can't do or can't differentiate, on one sequence x [1, j, 6].
LACKING = {
    "log_softmax": lambda g, x: lamina.log_softmax(x, 2),
    "sum ragged": lambda g, x: x.sin().sum(1),
    "sum ragged keepdim": lambda g, x: x.sum(1, keepdim=True),
    "mean ragged": lambda g, x: x.mean(1),
    "sum last": lambda g, x: x.sum(-1),
    "sum last keepdim": lambda g, x: x.sum(2, keepdim=True),
    "sdpa causal": lambda g, x: sdpa(lamina, Alone(g, x), is_causal=True),
    "softmax ragged": lambda g, x: lamina.softmax(x, 1),
    "rms_norm": lambda g, x: lamina.nn.functional.rms_norm(x, (6,), g.g),
}
CASES |= {
    "softmax ragged": lambda t, g: t.softmax(g.x, 1),
    "rms_norm": lambda t, g: t.nn.functional.rms_norm(g.x, (6,), g.g),
}


class Alone:
    """One sequence in place of all."""

    def __init__(self, g, x):
        self.x, self.heads = x, g.heads


def by_parts(name, g, found):
    """Hold a nested result and its gradients to those of each sequence alone."""
    want = [LACKING[name](g, part.unsqueeze(0)).squeeze(0) for part in g.parts]
    got = found.unbind()
    grads = [lamina.autograd.grad(sum((y.sin()).sum() for y in each), g.parts) for each in (got, want)]
    for a, b in ((got, want), *[(grads[0], grads[1])]):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_nested_result_and_gradients_are_pytorchs(name):
    mine, theirs = Given(lamina), Given(torch)
    a, b = CASES[name](lamina, mine), None
    if name not in LACKING:
        b = CASES[name](torch, theirs)
    else:  # the same on each sequence by itself
        by_parts(name, mine, a)
        return
    assert a.is_nested == b.is_nested and a.ndim == b.ndim and a.requires_grad == b.requires_grad
    if b.is_nested:
        assert np.array_equal(a.offsets().numpy(), b.offsets().numpy())
        fixed = [(n, m) for n, m in zip(a.shape, b.shape) if isinstance(m, int)]
        assert all(n == m for n, m in fixed)
    # A few dozen roundings of numbers below 10 in float64.
    tolerance = {"rtol": 1e-11, "atol": 1e-12} if b.dtype == torch.float64 else {"rtol": 1e-6}
    np.testing.assert_allclose(held(a).detach().numpy(), held(b).detach().numpy(), **tolerance)
    if not b.requires_grad:
        return
    weights = np.random.default_rng(7).normal(size=tuple(held(b).shape))
    for t, y in ((lamina, a), (torch, b)):
        (held(y) * t.tensor(weights)).sum().backward()
    for got, want in zip(mine.leaves, theirs.leaves, strict=True):
        assert (got.grad is None) == (want.grad is None)
        if want.grad is not None:
            np.testing.assert_allclose(got.grad.numpy(), want.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_an_encoder_takes_nested_tensors():
    given = Given(lamina)
    layer = lamina.nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True, norm_first=True).double()
    peer = torch.nn.TransformerEncoderLayer(6, 2, 8, 0.0, batch_first=True, norm_first=True).double()
    encoder, theirs = lamina.nn.TransformerEncoder(layer, 2), torch.nn.TransformerEncoder(peer, 2)
    theirs.load_state_dict({k: torch.tensor(v.numpy()) for k, v in encoder.state_dict().items()})
    found = encoder(given.x)
    assert found.is_nested
    found.to_padded_tensor(0.0).sin().sum().backward()
    for part, out in zip(given.parts, found.unbind(), strict=True):
        x = torch.tensor(part.detach().numpy()[None]).requires_grad_()
        y = theirs(x)
        y.sin().sum().backward()
        # some hundred roundings of numbers below 10
        np.testing.assert_allclose(out.detach().numpy(), y.detach().numpy()[0], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(part.grad.numpy(), x.grad.numpy()[0], rtol=1e-8, atol=1e-11)


def test_nested_tensors_print_as_pytorchs():
    for t in (lamina, torch):
        parts = [t.ones(2, 3), t.zeros(1, 3)]
        assert repr(t.nested.nested_tensor(parts)) == (
            "nested_tensor([\n  tensor([[1., 1., 1.],\n          [1., 1., 1.]]),\n"
            "  tensor([[0., 0., 0.]])\n])"
        )
    text = repr(lamina.nested.nested_tensor([lamina.ones(2, 3)], layout=lamina.jagged, requires_grad=True))
    assert text.startswith("NestedTensor(size=(1, j") and text.endswith(
        ", 3), offsets=tensor([0, 2]), requires_grad=True, contiguous=True)"
    )


@pytest.mark.parametrize(
    "refused",
    [
        lambda x: x.numpy(),
        lambda x: x + lamina.ones(3, 5, 5),
        lambda x: x + lamina.nested.nested_tensor([lamina.ones(1, 6)] * 3),
        lambda x: x.transpose(0, 1),
        lambda x: x.sum(0),
        lambda x: x @ x.transpose(1, 2),
        lambda x: lamina.nested.nested_tensor([lamina.ones(2, 3), lamina.ones(3, 2)]),
        lambda x: lamina.nested.nested_tensor([lamina.ones(2), lamina.ones(3, 2)]),
        lambda x: lamina.nested.nested_tensor(3),
        lambda x: lamina.nested.nested_tensor_from_jagged(lamina.ones(4, 2), lamina.tensor([0, 3])),
        lambda x: lamina.nested.to_padded_tensor(lamina.ones(2), 0.0),
        lambda x: x.to_padded_tensor(0.0, (1, 1, 1)),
        lambda x: x.cumsum(1),
    ],
)
def test_what_is_not_built_for_nested_tensors_is_refused_by_name(refused):
    with pytest.raises(lamina.LaminaError):
        refused(Given(lamina).x)


@pytest.mark.parametrize("shapes", [((2, 3), (4, 3)), ((2,), (4,)), ((3, 2), (3, 5))])
def test_sizes_of_the_sequences_are_pytorchs(shapes):
    found = [
        t.nested.nested_tensor([t.ones(shape) for shape in shapes])._nested_tensor_size()
        for t in (torch, lamina)
    ]
    assert found[0].tolist() == found[1].tolist() and str(found[1].dtype).endswith("int64")
