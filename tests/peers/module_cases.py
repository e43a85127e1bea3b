"""Modules, their arguments, and what they are called with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

SEEDED = np.random.default_rng(0)


class Case(NamedTuple):
    """A module, its arguments, and the shapes or arrays it is called with."""

    name: str
    args: tuple
    inputs: tuple
    kwargs: dict[str, Any] = {}
    call: dict[str, Any] = {}


def ints(*shape: int, below: int) -> np.ndarray:
    return SEEDED.integers(0, below, shape)


def positive(*shape: int) -> np.ndarray:
    return SEEDED.uniform(0.1, 0.9, shape)


def distinct(*shape: int) -> np.ndarray:
    count = int(np.prod(shape))
    return SEEDED.permutation(count).reshape(shape) / count - 0.4


def signs(*shape: int) -> np.ndarray:
    return SEEDED.choice([-1.0, 1.0], shape)


def causal(n: int) -> np.ndarray:
    return np.triu(np.ones((n, n), bool), 1)


PADDED = np.array([[False, False, False, False, True], [False, False, False, True, True]])

CASES = [
    # linear
    Case("Identity", (), ((2, 3),)),
    Case("Linear", (4, 3), ((2, 4),)),
    Case("Linear", (4, 3), ((4,),), {"bias": False}),
    Case("Linear", (4, 3), ((2, 5, 4),)),
    Case("Bilinear", (4, 3, 2), ((5, 4), (5, 3))),
    Case("Flatten", (), ((2, 3, 4),)),
    Case("Unflatten", (1, (2, 3)), ((2, 6),)),
    # convolutions
    Case("Conv1d", (4, 6, 3), ((2, 4, 9),), {"stride": 2, "padding": 1, "groups": 2}),
    Case("Conv2d", (3, 4, 3), ((2, 3, 7, 6),)),
    Case("Conv2d", (3, 4, (3, 2)), ((3, 7, 6),), {"padding": "same", "bias": False}),
    Case("Conv2d", (3, 4, 3), ((2, 3, 7, 6),), {"padding": (1, 2), "padding_mode": "reflect", "dilation": 2}),
    Case("Conv2d", (3, 4, 3), ((2, 3, 7, 6),), {"padding": 1, "padding_mode": "circular"}),
    Case("Conv3d", (2, 3, 2), ((2, 2, 4, 5, 3),), {"stride": (1, 2, 1)}),
    Case(
        "ConvTranspose1d",
        (4, 6, 3),
        ((2, 4, 5),),
        {"stride": 2, "padding": 1, "output_padding": 1, "groups": 2},
    ),
    Case("ConvTranspose2d", (3, 4, 3), ((2, 3, 4, 5),), {"stride": 2}),
    Case("ConvTranspose2d", (3, 4, 3), ((2, 3, 4, 5),), {"stride": 2}, {"output_size": (10, 12)}),
    Case("ConvTranspose3d", (2, 3, 2), ((1, 2, 3, 2, 3),), {"dilation": 2, "bias": False}),
    # norms
    Case("BatchNorm1d", (4,), ((5, 4),)),
    Case("BatchNorm1d", (4,), ((5, 4, 3),), {"momentum": None}),
    Case("BatchNorm2d", (3,), ((4, 3, 2, 3),), {"momentum": 0.3, "eps": 0.01}),
    Case("BatchNorm2d", (3,), ((4, 3, 2, 3),), {"affine": False}),
    Case("BatchNorm2d", (3,), ((4, 3, 2, 3),), {"track_running_stats": False}),
    Case("BatchNorm3d", (2,), ((3, 2, 2, 3, 2),)),
    Case("LayerNorm", (4,), ((2, 3, 4),)),
    Case("LayerNorm", ([3, 4],), ((2, 3, 4),), {"bias": False}),
    Case("LayerNorm", (4,), ((2, 4),), {"elementwise_affine": False}),
    Case("RMSNorm", (4,), ((2, 3, 4),)),
    Case("RMSNorm", ((3, 4),), ((2, 3, 4),), {"eps": 0.01, "elementwise_affine": False}),
    Case("GroupNorm", (2, 6), ((3, 6, 4),)),
    Case("InstanceNorm1d", (3,), ((2, 3, 5),)),
    Case("InstanceNorm1d", (3,), ((3, 5),), {"affine": True, "track_running_stats": True}),
    Case("InstanceNorm2d", (3,), ((2, 3, 4, 5),), {"affine": True, "track_running_stats": True}),
    Case("InstanceNorm3d", (2,), ((2, 2, 3, 2, 3),)),
    Case("LocalResponseNorm", (3,), ((2, 5, 4),)),
    # activations
    *(
        Case(name, (), ((3, 4),))
        for name in (
            "ReLU",
            "ReLU6",
            "SiLU",
            "Mish",
            "SELU",
            "Hardswish",
            "ELU",
            "CELU",
            "LeakyReLU",
            "Hardtanh",
            "Sigmoid",
            "Tanh",
            "LogSigmoid",
            "Softsign",
            "Tanhshrink",
            "GELU",
            "Softplus",
            "Hardshrink",
            "Softshrink",
            "PReLU",
            "GLU",
        )
    ),  # fmt: skip
    *(
        Case(name, (), ((3, 4),), {"inplace": True})
        for name in ("ReLU6", "SiLU", "ELU", "Hardtanh", "Hardswish")
    ),
    Case("Hardsigmoid", (), (8 * signs(3, 4),)),  # between, torch's gradient of a double is float32's 1/6
    Case("ELU", (0.7,), ((3, 4),)),
    Case("CELU", (0.5,), ((3, 4),)),  # torch divides by alpha in float32
    Case("LeakyReLU", (0.2,), ((3, 4),)),
    Case("Threshold", (0.1, 20), ((3, 4),)),
    Case("Softplus", (2.0, 1.0), ((3, 4),)),
    Case("GELU", ("tanh",), ((3, 4),)),
    Case("PReLU", (4,), ((3, 4, 2),)),
    Case("GLU", (0,), ((4, 3),)),
    Case("Softmax", (1,), ((3, 4),)),
    Case("LogSoftmax", (-1,), ((3, 4),)),
    Case("Softmin", (0,), ((3, 4),)),
    Case("Softmax2d", (), ((2, 3, 2, 2),)),
    # pooling
    Case("MaxPool1d", (2,), (distinct(2, 3, 7),)),
    Case("MaxPool2d", (3,), (distinct(2, 3, 7, 8),), {"stride": 2, "padding": 1, "ceil_mode": True}),
    Case("MaxPool2d", (2,), (distinct(2, 3, 6, 8),), {"dilation": 2, "return_indices": True}),
    Case("MaxPool3d", (2,), (distinct(1, 2, 4, 4, 5),)),
    Case("AvgPool1d", (3,), ((2, 3, 7),), {"stride": 2, "padding": 1}),
    Case(
        "AvgPool2d", ((3, 2),), ((2, 3, 7, 8),), {"padding": 1, "count_include_pad": False, "ceil_mode": True}
    ),
    Case("AvgPool2d", (2,), ((2, 3, 6, 8),), {"divisor_override": 3}),
    Case("AvgPool3d", (2,), ((1, 2, 4, 4, 5),)),
    Case("LPPool1d", (2, 3), (positive(2, 3, 7),)),
    Case("LPPool2d", (3, 2), (positive(2, 3, 6, 7),), {"stride": 1}),
    Case("AdaptiveAvgPool1d", (3,), ((2, 3, 8),)),
    Case("AdaptiveAvgPool2d", ((3, None),), ((2, 3, 7, 4),)),
    Case("AdaptiveAvgPool3d", (2,), ((1, 2, 4, 5, 3),)),
    Case("AdaptiveMaxPool1d", (3,), (distinct(2, 3, 8),)),
    Case("AdaptiveMaxPool2d", ((2, 3),), (distinct(2, 3, 7, 4),), {"return_indices": True}),
    Case("AdaptiveMaxPool3d", (2,), (distinct(1, 2, 4, 5, 3),)),
    Case("MaxUnpool1d", (2,), ((1, 2, 3), np.array([[[0, 3, 5], [1, 2, 4]]]))),
    Case("MaxUnpool2d", (2,), ((1, 1, 2, 2), np.array([[[[0, 3], [9, 14]]]]))),
    # padding, vision
    Case("ZeroPad2d", ((1, 0, 2, 1),), ((2, 3, 4, 5),)),
    Case("ConstantPad1d", ((1, 2), 3.5), ((2, 3, 4),)),
    Case("ReflectionPad1d", (2,), ((2, 3, 4),)),
    Case("ReflectionPad2d", ((1, 2, 0, 1),), ((2, 3, 4, 5),)),
    Case("ReplicationPad1d", (2,), ((2, 3, 4),)),
    Case("ReplicationPad2d", (1,), ((2, 3, 4, 5),)),
    Case("ReplicationPad3d", (1,), ((1, 2, 2, 3, 2),)),
    Case("CircularPad1d", (2,), ((2, 3, 4),)),
    Case("Upsample", (), ((2, 3, 4, 5),), {"scale_factor": 2}),
    Case("Upsample", ((7, 3),), ((2, 3, 4, 5),), {"mode": "nearest-exact"}),
    Case("Upsample", (), ((2, 3, 4, 5),), {"scale_factor": (1.6, 2.3), "mode": "bilinear"}),
    Case("Upsample", ((7, 9),), ((2, 3, 4, 5),), {"mode": "bilinear", "align_corners": True}),
    Case("Upsample", ((7, 3),), ((2, 3, 4, 5),), {"mode": "bicubic"}),
    Case("Upsample", (6,), ((2, 3, 4),), {"mode": "linear"}),
    Case("Upsample", ((3, 4, 5),), ((1, 2, 2, 3, 4),), {"mode": "trilinear"}),
    Case("UpsamplingNearest2d", (), ((2, 3, 4, 5),), {"scale_factor": 3}),
    Case("PixelShuffle", (2,), ((2, 8, 3, 2),)),
    Case("PixelUnshuffle", (2,), ((2, 3, 4, 2),)),
    Case("ChannelShuffle", (2,), ((2, 6, 3, 2),)),
    Case("Unfold", ((2, 3),), ((2, 3, 4, 5),), {"padding": 1}),
    Case("Fold", ((4, 5), (2, 3)), ((2, 18, 9),)),
    # embeddings
    Case("Embedding", (7, 3), (ints(2, 4, below=7),)),
    Case("Embedding", (7, 3), (ints(2, 4, below=7),), {"padding_idx": 2}),
    Case("Embedding", (7, 3), (ints(2, 4, below=7),), {"padding_idx": -1, "scale_grad_by_freq": True}),
    Case("Embedding", (7, 3), (ints(2, 4, below=7),), {"max_norm": 1.0}),
    Case("EmbeddingBag", (7, 3), (ints(2, 4, below=7),)),
    Case("EmbeddingBag", (7, 3), (ints(6, below=7), np.array([0, 2, 2])), {"mode": "sum"}),
    Case("EmbeddingBag", (7, 3), (ints(2, 4, below=7),), {"mode": "max"}),
    Case("EmbeddingBag", (7, 3), (ints(2, 4, below=7),), {"padding_idx": 3}),
    # recurrent
    Case("RNN", (3, 4), ((5, 2, 3),)),
    Case("RNN", (3, 4, 2), ((2, 5, 3), (2, 2, 4)), {"nonlinearity": "relu", "batch_first": True}),
    Case("LSTM", (3, 4), ((5, 2, 3),)),
    Case("LSTM", (3, 4), ((5, 3),)),
    Case("LSTM", (3, 4, 2), ((2, 5, 3),), {"bidirectional": True, "batch_first": True}),
    Case("LSTM", (3, 4, 2), ((5, 2, 3),), {"proj_size": 2, "bias": False}),
    Case("GRU", (3, 4), ((5, 2, 3),)),
    Case("GRU", (3, 4, 2), ((5, 2, 3), (4, 2, 4)), {"bidirectional": True}),
    Case("GRU", (3, 4), ((5, 3), (1, 4)), {"bias": False}),
    Case("RNNCell", (3, 4), ((2, 3),)),
    Case("RNNCell", (3, 4), ((2, 3), (2, 4)), {"nonlinearity": "relu"}),
    Case("LSTMCell", (3, 4), ((2, 3),)),
    Case("LSTMCell", (3, 4), ((3,),), {"bias": False}),
    Case("GRUCell", (3, 4), ((2, 3), (2, 4))),
    # attention
    Case("MultiheadAttention", (4, 2), ((5, 2, 4), (3, 2, 4), (3, 2, 4))),
    Case("MultiheadAttention", (4, 2), ((5, 4), (3, 4), (3, 4)), {}, {"average_attn_weights": False}),
    Case(
        "MultiheadAttention",
        (4, 2),
        ((2, 5, 4), (2, 3, 6), (2, 3, 2)),
        {"kdim": 6, "vdim": 2, "batch_first": True},
    ),
    Case(
        "MultiheadAttention",
        (4, 2),
        ((5, 2, 4),) * 3,
        {"add_bias_kv": True, "add_zero_attn": True, "bias": False},
        {"attn_mask": causal(5), "key_padding_mask": PADDED},
    ),  # fmt: skip
    Case("MultiheadAttention", (4, 2), ((5, 2, 4),) * 3, {}, {"attn_mask": causal(5), "need_weights": False}),
    Case("TransformerEncoderLayer", (4, 2, 8), ((5, 2, 4),), {"dropout": 0.0}),
    Case(
        "TransformerEncoderLayer",
        (4, 2, 8),
        ((2, 5, 4),),
        {"dropout": 0.0, "batch_first": True, "norm_first": True, "activation": "gelu"},
        {"src_mask": causal(5), "src_key_padding_mask": PADDED},
    ),  # fmt: skip
    Case("TransformerDecoderLayer", (4, 2, 8), ((5, 2, 4), (3, 2, 4)), {"dropout": 0.0}),
    Case("Transformer", (4, 2, 1, 2, 8, 0.0), ((3, 2, 4), (5, 2, 4)), {}, {"tgt_mask": causal(5)}),
    # losses
    *(
        Case(name, (), ((3, 4), (3, 4)), {"reduction": reduction})
        for name in ("L1Loss", "MSELoss", "SmoothL1Loss", "HuberLoss")
        for reduction in ("mean", "sum", "none")
    ),
    Case("CrossEntropyLoss", (), ((4, 3), ints(4, below=3))),
    Case(
        "CrossEntropyLoss", (), ((4, 3, 2), ints(4, 2, below=3)), {"label_smoothing": 0.1, "ignore_index": 1}
    ),
    Case("CrossEntropyLoss", (), ((4, 3), positive(4, 3)), {"reduction": "sum"}),
    Case("NLLLoss", (), ((4, 3), ints(4, below=3))),
    Case("BCELoss", (), (positive(3, 4), positive(3, 4))),
    Case("BCEWithLogitsLoss", (), ((3, 4), positive(3, 4))),
    Case("KLDivLoss", (), ((3, 4), positive(3, 4)), {"reduction": "batchmean"}),
    Case("KLDivLoss", (), ((3, 4), (3, 4)), {"reduction": "sum", "log_target": True}),
    Case("PoissonNLLLoss", (), ((3, 4), positive(3, 4)), {"full": True}),
    Case("GaussianNLLLoss", (), ((3, 4), (3, 4), positive(3, 4))),
    Case("HingeEmbeddingLoss", (), ((3, 4), signs(3, 4))),
    Case("MarginRankingLoss", (0.3,), ((4,), (4,), signs(4))),
    Case("CosineEmbeddingLoss", (0.1,), ((4, 3), (4, 3), signs(4))),
    Case("SoftMarginLoss", (), ((3, 4), signs(3, 4).astype(int))),
    Case("MultiLabelMarginLoss", (), ((2, 4), np.array([[3, 0, -1, 1], [2, -1, 0, 0]]))),
    Case("MultiLabelSoftMarginLoss", (), ((3, 4), positive(3, 4).round())),
    Case("MultiMarginLoss", (2, 0.8), ((4, 3), ints(4, below=3))),
    Case("TripletMarginLoss", (), ((4, 3), (4, 3), (4, 3)), {"swap": True}),
    Case("TripletMarginWithDistanceLoss", (), ((4, 3), (4, 3), (4, 3))),
    Case("AdaptiveLogSoftmaxWithLoss", (16, 20, [4, 10]), ((5, 16), np.array([0, 11, 5, 3, 19]))),
    Case("CosineSimilarity", (), ((4, 3), (4, 3))),
    Case("PairwiseDistance", (), ((4, 3), (4, 3))),
    # evaluation of what draws in training
    *(Case(name, (0.3,), ((3, 4, 5),)) for name in ("Dropout", "Dropout1d", "AlphaDropout")),
    Case("RReLU", (), ((3, 4),)),
]
