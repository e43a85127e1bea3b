"""Models that PyTorch's exporters write, read by Lamina: the newer's, by torch.export, and the older's."""

import io
import logging

import numpy as np
import pytest

import lamina

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'lamina[peer-torch]'")
pytest.importorskip("onnx", reason="the package onnx is not installed: pip install 'lamina[onnx]'")

RNG = np.random.default_rng(0)
T, F = torch.nn, torch.nn.functional


class Image(T.Module):
    def __init__(self):
        super().__init__()
        self.body = T.Sequential(
            T.Conv2d(3, 8, 3, 2, 1), T.BatchNorm2d(8), T.Hardswish(), T.AvgPool2d(3, 2, 1)
        )
        self.head = T.Linear(8, 5)

    def forward(self, x):
        y = F.interpolate(self.body(x), scale_factor=2, mode="bilinear")
        return self.head(F.adaptive_avg_pool2d(y, 1).flatten(1))


class Cached(T.Module):
    """Causal attention over what was there and what is new, as decoders have it."""

    def __init__(self):
        super().__init__()
        self.words, self.qkv, self.out = T.Embedding(20, 16), T.Linear(16, 48), T.Linear(16, 20)

    def forward(self, ids, keys, values):
        n, length = ids.shape
        q, k, v = (y.view(n, length, 2, 8).transpose(1, 2) for y in self.qkv(self.words(ids)).chunk(3, -1))
        keys, values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        total = keys.shape[2]
        seen = torch.arange(total)[None] <= torch.arange(total - length, total)[:, None]
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen)
        return self.out(y.transpose(1, 2).reshape(n, length, 16)), keys, values


class Recurrent(T.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.lstm = T.LayerNorm(16), T.LSTM(16, 8, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.lstm(self.norm(x))[0].cumsum(1).softmax(-1)


def reals(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def decoding(batch, length, past):
    return RNG.integers(0, 20, (batch, length)), reals(batch, 2, past, 8), reals(batch, 2, past, 8)


# A network, what it is given, which sizes change, and other inputs.
NETWORKS = {
    "image": (Image, (reals(2, 3, 16, 20),), [{0: "batch", 2: "height", 3: "width"}],
              [(reals(1, 3, 16, 16),), (reals(3, 3, 24, 12),)]),
    "cached": (Cached, decoding(2, 3, 4),
               [{0: "batch", 1: "length"}, {0: "batch", 2: "past"}, {0: "batch", 2: "past"}],
               [decoding(1, 1, 6), decoding(3, 4, 2), decoding(1, 1, 7)]),
    "recurrent": (Recurrent, (reals(2, 5, 16),), [{0: "batch", 1: "length"}],
                [(reals(1, 5, 16),), (reals(3, 9, 16),)]),
}  # fmt: skip


def exported(network, given, sizes, newer):
    """The bytes of the model."""
    args = tuple(map(torch.as_tensor, given))
    if newer:
        shapes = tuple(dict.fromkeys(each, torch.export.Dim.DYNAMIC) for each in sizes)
        program = torch.onnx.export(network, args, dynamo=True, dynamic_shapes=shapes, verbose=False)
        return program.model_proto.SerializeToString()
    names = [f"in{at}" for at in range(len(args))]
    into = io.BytesIO()
    axes = dict(zip(names, sizes))
    torch.onnx.export(
        network, args, into, dynamo=False, input_names=names, dynamic_axes=axes, opset_version=18
    )
    return into.getvalue()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("newer", [True, False], ids=["newer", "older"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_come_in(name, newer):
    if newer:
        pytest.importorskip(
            "onnxscript", reason="onnxscript is not installed: pip install 'lamina[peer-torch]'"
        )
    make, given, sizes, others = NETWORKS[name]
    torch.manual_seed(0)
    network = make().eval()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    model = lamina.onnx.load(exported(network, given, sizes, newer))
    traced = lamina.jit.trace(model, budget=None)
    for inputs in (given, *others, given, *others):
        with torch.no_grad():
            wanted = network(*map(torch.as_tensor, inputs))
        wanted = [y.numpy() for y in (wanted if isinstance(wanted, tuple) else (wanted,))]
        with lamina.no_grad():
            for run in (model, traced):
                found = run(*map(lamina.tensor, inputs))
                found = found if isinstance(found, tuple) else (found,)
                for y, want in zip(found, wanted, strict=True):
                    # sums of at most 64 terms in another order, a few times one after the other
                    np.testing.assert_allclose(y.numpy(), want, rtol=1e-4, atol=2e-5)
    assert traced.counts()["served"] >= len(others), traced.explain(detail=True)
