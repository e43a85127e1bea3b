"""Every attribute of every layer may be set between calls, and is read anew."""

import warnings

import pytest

import lamina
from lamina import jit, nn


def row(*shape):
    return lamina.linspace(-1.0, 1.0, max(1, lamina.Size(shape).numel())).reshape(shape)


# A layer, and what it is called with.
LAYERS = {
    "AdaptiveAvgPool1d": ((2,), row(1, 2, 8)),
    "AdaptiveAvgPool2d": ((2,), row(1, 2, 6, 6)),
    "AdaptiveMaxPool1d": ((2,), row(1, 2, 8)),
    "AlphaDropout": ((0.5,), row(4, 4)),
    "AvgPool1d": ((2,), row(1, 2, 8)),
    "AvgPool2d": ((2,), row(1, 2, 6, 6)),
    "BatchNorm1d": ((4,), row(3, 4)),
    "BatchNorm2d": ((2,), row(3, 2, 4, 4)),
    "BCELoss": ((), row(4).abs(), row(4).abs()),
    "BCEWithLogitsLoss": ((), row(4), row(4).abs()),
    "Bilinear": ((3, 4, 2), row(2, 3), row(2, 4)),
    "CELU": ((), row(5)),
    "ChannelShuffle": ((2,), row(1, 4, 2, 2)),
    "ConstantPad1d": ((1, 0.5), row(1, 2, 4)),
    "Conv1d": ((2, 3, 3), row(1, 2, 8)),
    "Conv2d": ((2, 4, 3), row(1, 2, 6, 6)),
    "ConvTranspose1d": ((2, 3, 3), row(1, 2, 8)),
    "CosineEmbeddingLoss": ((), row(3, 4), row(3, 4) + 1, lamina.ones(3)),
    "CosineSimilarity": ((), row(3, 4), row(3, 4) + 1),
    "CrossEntropyLoss": ((), row(3, 4), lamina.tensor([0, 1, 3])),
    "Dropout": ((0.5,), row(4, 4)),
    "Dropout1d": ((0.5,), row(2, 4, 4)),
    "Dropout2d": ((0.5,), row(1, 4, 2, 2)),
    "ELU": ((), row(5)),
    "Embedding": ((5, 3), lamina.tensor([0, 4])),
    "EmbeddingBag": ((5, 3), lamina.tensor([[0, 4]])),
    "FeatureAlphaDropout": ((0.5,), row(2, 4, 2, 2)),
    "Flatten": ((), row(2, 3, 4)),
    "Fold": (((4, 4), (2, 2)), row(1, 8, 9)),
    "FractionalMaxPool2d": ((2, (3, 3)), row(1, 2, 8, 8)),
    "GaussianNLLLoss": ((), row(4), row(4) + 1, row(4).abs() + 0.1),
    "GELU": ((), row(5)),
    "GLU": ((), row(4, 6)),
    "GRU": ((3, 4), row(5, 2, 3)),
    "GRUCell": ((3, 4), row(2, 3)),
    "GroupNorm": ((2, 4), row(2, 4, 3)),
    "Hardshrink": ((), row(5)),
    "Hardtanh": ((), row(5) * 2),
    "HingeEmbeddingLoss": ((), row(4), lamina.tensor([1.0, -1.0, 1.0, -1.0])),
    "HuberLoss": ((), row(4) * 3, row(4)),
    "InstanceNorm1d": ((4,), row(2, 4, 5)),
    "KLDivLoss": ((), row(2, 3), row(2, 3).abs()),
    "L1Loss": ((), row(4), row(4) + 1),
    "LayerNorm": ((4,), row(3, 4)),
    "LeakyReLU": ((), row(5)),
    "Linear": ((4, 3), row(2, 4)),
    "LocalResponseNorm": ((2,), row(1, 4, 3)),
    "LogSoftmax": ((1,), row(3, 4)),
    "LPPool1d": ((2.0, 2), row(1, 2, 8)),
    "LSTM": ((3, 4), row(5, 2, 3)),
    "LSTMCell": ((3, 4), row(2, 3)),
    "MarginRankingLoss": ((), row(4), row(4) + 1, lamina.ones(4)),
    "MaxPool1d": ((2,), row(1, 2, 8)),
    "MaxPool2d": ((2,), row(1, 2, 6, 6)),
    "MSELoss": ((), row(4), row(4) + 1),
    "MultiheadAttention": ((4, 2), row(3, 2, 4), row(3, 2, 4), row(3, 2, 4)),
    "MultiLabelMarginLoss": ((), row(2, 3), lamina.tensor([[0, 2, -1], [1, -1, 0]])),
    "MultiMarginLoss": ((), row(3, 4), lamina.tensor([0, 1, 3])),
    "NLLLoss": ((), row(3, 4), lamina.tensor([0, 1, 3])),
    "PairwiseDistance": ((), row(3, 4), row(3, 4) + 1),
    "PixelShuffle": ((2,), row(1, 4, 2, 2)),
    "PixelUnshuffle": ((2,), row(1, 1, 4, 4)),
    "PoissonNLLLoss": ((), row(4), row(4).abs()),
    "PReLU": ((), row(5)),
    "ReflectionPad1d": ((1,), row(1, 2, 4)),
    "ReplicationPad2d": ((1,), row(1, 2, 4, 4)),
    "RMSNorm": ((4,), row(3, 4)),
    "RNN": ((3, 4), row(5, 2, 3)),
    "RReLU": ((), row(5)),
    "SmoothL1Loss": ((), row(4) * 3, row(4)),
    "SoftMarginLoss": ((), row(4), lamina.tensor([1.0, -1.0, 1.0, -1.0])),
    "Softmax": ((1,), row(3, 4)),
    "Softmin": ((1,), row(3, 4)),
    "Softplus": ((), row(5) * 9),
    "Softshrink": ((), row(5)),
    "Threshold": ((0.1, 20.0), row(5)),
    "TransformerEncoderLayer": ((4, 2, 8), row(3, 2, 4)),
    "TripletMarginLoss": ((), row(2, 4), row(2, 4) + 1, row(2, 4) * 2),
    "Unflatten": ((1, (2, 3)), row(2, 6)),
    "Unfold": (((2, 2),), row(1, 2, 4, 4)),
    "Upsample": ((None, 2.0), row(1, 2, 4)),
    "ZeroPad2d": ((1,), row(1, 2, 4, 4)),
}
WORDS = ("mean", "sum", "none", "zeros", "reflect", "circular", "constant", "tanh", "nearest", "linear")


def others(value):
    """Plausible values that an attribute may have as well."""
    if isinstance(value, bool) or value is None:
        return [not value]
    if isinstance(value, int):
        return [value + 1, max(1, value - 1)]
    if isinstance(value, float):
        return [value * 2 + 0.25, value / 4]
    if isinstance(value, str):
        return [word for word in WORDS if word != value]
    if isinstance(value, tuple) and value and all(isinstance(each, int) for each in value):
        return [tuple(each + 1 for each in value)]
    return []


def attributes(name):
    layer = getattr(nn, name)(*LAYERS[name][0])
    for key, value in layer.__dict__.items():
        if not key.startswith("_") or key == "_reversed_padding_repeated_twice":
            yield from ((key, other) for other in others(value))
    yield from ((key, None) for key in [*layer._parameters, *layer._buffers])


def told(layer, args):
    lamina.manual_seed(0)
    try:
        found = layer(*args)
    except Exception as error:
        return type(error).__name__, str(error)[:80]
    found = found if isinstance(found, tuple) else (found,)
    return [
        x.detach() if isinstance(x, lamina.Tensor) else x
        for y in found
        for x in (y if isinstance(y, tuple) else (y,))
    ]


def alike(a, b):
    if isinstance(a, lamina.Tensor):
        return a.shape == b.shape and lamina.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    return type(a) is type(b) and (
        len(a) == len(b) and all(map(alike, a, b)) if isinstance(a, (list, tuple)) else a == b
    )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", LAYERS)
def test_what_is_set_between_calls_counts(name):
    arguments, *args = LAYERS[name]
    for key, value in attributes(name):
        layers = []
        for _ in range(2):
            lamina.manual_seed(1)
            layers.append(getattr(nn, name)(*arguments))
        was = [getattr(layer, key) for layer in layers]
        calls = layers[0], jit.trace(lambda *args, layer=layers[1]: layer(*args))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for at, changed in enumerate((False, False, False, True, True, False, True, False)):
                try:
                    for layer, before in zip(layers, was, strict=True):
                        setattr(layer, key, value if changed else before)
                except lamina.ir.errors.ArgumentError:  # a parameter's place takes no plain value
                    break
                expected, found = (told(call, args) for call in calls)
                assert alike(expected, found), f"{key} = {value!r}, call {at}: {expected} became {found}"
