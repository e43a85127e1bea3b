"""Compare every module with PyTorch's: the same repr, state keys, outputs, gradients and buffers."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import lamina
import lamina.nn as nn

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")

# What torch has to say about its own ways.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
]

SEEDED = np.random.default_rng(0)
EPS = np.finfo(np.float64).eps
# Both compute in float64, with sums in different orders: of up to a few hundred terms of size about 1 in a
# layer, through at most a dozen layers.  n * eps bounds the error of a sum of n terms; 4096
# allows for all of them.
TOLERANCE = 4096 * EPS


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
RANDOM = {"Dropout", "Dropout1d", "AlphaDropout", "RReLU"}


def identify(case: Case) -> str:
    given = [*map(str, case.args), *(f"{k}={v}" for k, v in case.kwargs.items()), *case.call]
    return f"{case.name}({', '.join(given)})"


def filled(module: Any) -> None:
    """Draw all floating state anew: zero biases and unit scales would hide mistakes."""
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            low = 0.5 if "var" in name or "weight" in name and tensor.ndim == 1 else -1.0
            tensor.copy_(lamina.from_numpy(SEEDED.uniform(low, 1.0, tuple(tensor.shape))))


def flat(result: Any) -> list[Any]:
    """The tensors among the results, in order."""
    if isinstance(result, (tuple, list)):
        return [x for part in result for x in flat(part)]
    return [] if result is None else [result]


def close(mine: Any, theirs: Any, what: str) -> None:
    assert (mine is None) == (theirs is None), what
    if mine is None:
        return
    a, b = mine.detach().numpy(), theirs.detach().numpy()
    assert a.dtype == b.dtype and a.shape == b.shape, what
    scale = max(1.0, float(np.abs(b).max(initial=0.0)))
    np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE * scale, err_msg=what)


def step(tensor: Any, module: Any, arrays: list[np.ndarray], call: dict[str, Any]) -> tuple[list, list]:
    """Run forward and backward; return what came out and the leaves among the inputs."""
    leaves = [tensor(a).requires_grad_(a.dtype.kind == "f") for a in arrays]
    inplace = getattr(module, "inplace", False)
    given = [x * 1 if inplace else x for x in leaves]
    found = flat(
        module(*given, **{k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in call.items()})
    )
    total = None
    for k, out in enumerate(found):
        if out.is_floating_point() and out.requires_grad:
            factors = np.cos(np.arange(out.numel()) + k).reshape(tuple(out.shape))
            part = (out * tensor(factors)).sum()
            total = part if total is None else total + part
    if total is not None:
        total.backward()
    return found, leaves


@pytest.mark.parametrize("case", CASES, ids=identify)
def test_module_like_torch(case):
    mine = getattr(nn, case.name)(*case.args, **case.kwargs).double()
    theirs = getattr(torch.nn, case.name)(*case.args, **case.kwargs).double()
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    filled(mine)
    theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in mine.state_dict().items()})
    arrays = [SEEDED.normal(size=x) if isinstance(x, tuple) else x for x in case.inputs]
    for mode in (False,) if case.name in RANDOM else (True, False, True):
        mine.train(mode)
        theirs.train(mode)
        mine.zero_grad()
        theirs.zero_grad()
        ours, inputs = step(lambda a: lamina.tensor(a), mine, arrays, case.call)
        expected, their_inputs = step(lambda a: torch.tensor(a), theirs, arrays, case.call)
        assert len(ours) == len(expected)
        for a, b in zip(ours, expected):
            close(a, b, "output")
            assert a.requires_grad == b.requires_grad
        for k, (a, b) in enumerate(zip(inputs, their_inputs)):
            close(a.grad, b.grad, f"gradient of input {k}")
        for (name, a), (other, b) in zip(mine.named_parameters(), theirs.named_parameters(), strict=True):
            assert name == other
            close(a.grad, b.grad, f"gradient of {name}")
        for name, b in theirs.state_dict().items():
            close(mine.state_dict()[name], b, name)


def test_every_case_name_is_compared():
    """Each module of ours that torch has is in the table, or is a container, or a name for another."""
    left = {"Module", "Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict", "Parameter"}
    left |= {"RNNBase", "NLLLoss2d", "TransformerEncoder", "TransformerDecoder"}
    left |= {"CTCLoss"}  # below
    # as their kin of another number of dimensions, by one line of code for all
    left |= {
        "Dropout2d",
        "Dropout3d",
        "FeatureAlphaDropout",
        "LPPool3d",
        "MaxUnpool3d",
        "UpsamplingBilinear2d",
    }
    left |= {
        "ZeroPad1d",
        "ZeroPad3d",
        "ConstantPad2d",
        "ConstantPad3d",
        "ReflectionPad3d",
        "CircularPad2d",
        "CircularPad3d",
    }
    ours = {name for name in vars(nn) if isinstance(getattr(nn, name), type) and hasattr(torch.nn, name)}
    assert ours - left == {case.name for case in CASES}


def test_packed_sequence_like_torch():
    lengths = [3, 5, 2]
    padded = SEEDED.normal(size=(5, 3, 4))
    mine = nn.LSTM(4, 3, 2, bidirectional=True).double()
    theirs = torch.nn.LSTM(4, 3, 2, bidirectional=True).double()
    theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in mine.state_dict().items()})
    results = []
    for library, tensor, module in ((nn, lamina.tensor, mine), (torch.nn, torch.tensor, theirs)):
        x = tensor(padded).requires_grad_()
        packed = library.utils.rnn.pack_padded_sequence(x, tensor(lengths), enforce_sorted=False)
        out, state = module(packed)
        out, sizes = library.utils.rnn.pad_packed_sequence(out, padding_value=-1.0, total_length=6)
        (out.sum() + (state[1] * state[1]).sum()).backward()
        results.append(
            [
                packed.data,
                packed.batch_sizes,
                out,
                sizes,
                *state,
                x.grad,
                *(p.grad for p in module.parameters()),
            ]
        )
    for k, (a, b) in enumerate(zip(*results, strict=True)):
        close(a, b, str(k))


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding_mode", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("sizes", [(4, 5), (3, 4, 2)])
def test_grid_sample_like_torch(mode, padding_mode, align_corners, sizes):
    n = len(sizes)
    x = SEEDED.normal(size=(2, 3, *sizes))
    theta = SEEDED.normal(size=(2, n, n + 1))
    results = []
    for F, tensor in ((nn.functional, lamina.tensor), (torch.nn.functional, torch.tensor)):
        image, angles = tensor(x).requires_grad_(), tensor(theta).requires_grad_()
        grid = F.affine_grid(angles, (2, 3, *sizes[::-1]), align_corners=align_corners)
        out = F.grid_sample(image, grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners)
        (out * out).sum().backward()
        places = angles.grad if mode == "bilinear" else None  # zeros in torch, none here
        results.append([grid, out, image.grad, places])
    for what, a, b in zip(("grid", "output", "image", "theta"), *results):
        close(a, b, what)


def test_clip_grad_norm_like_torch():
    gradients = [SEEDED.normal(size=(3, 2)), SEEDED.normal(size=(4,))]
    for kind in (1.0, 2.0, float("inf")):
        results = []
        for library, tensor, parameter in (
            (nn, lamina.tensor, nn.Parameter),
            (torch.nn, torch.tensor, torch.nn.Parameter),
        ):
            found = [parameter(tensor(np.zeros_like(g))) for g in gradients]
            for p, g in zip(found, gradients):
                p.grad = tensor(g)
            norm = library.utils.clip_grad_norm_(found, 0.7, norm_type=kind)
            results.append([norm, *(p.grad for p in found)])
        for a, b in zip(*results, strict=True):
            close(a, b, f"order {kind}")


CTC = {
    "mean": (4, np.array([[1, 2, 2], [3, 1, 0], [1, 0, 0]]), [6, 5, 4], [3, 2, 0], {}),
    "sum": (4, np.array([1, 2, 2, 3, 1, 2]), [6, 5, 4], [3, 2, 1], {"reduction": "sum"}),
    "none": (
        3,
        np.array([[1, 1, 1], [0, 1, 1], [0, 0, 0]]),
        [6, 4, 6],
        [3, 2, 1],
        {"reduction": "none", "blank": 2},
    ),
    "impossible": (
        3,
        np.array([[1, 1, 1], [2, 1, 1], [2, 1, 1]]),
        [4, 6, 6],
        [3, 2, 3],
        {"zero_infinity": True},
    ),
}


@pytest.mark.parametrize("name", CTC)
def test_ctc_like_torch(name):
    """Behind a log_softmax: torch's gradient is right only there."""
    classes, targets, lengths, sizes, settings = CTC[name]
    scores = SEEDED.normal(size=(6, 3, classes))
    results = []
    for library, tensor in ((nn, lamina.tensor), (torch.nn, torch.tensor)):
        x = tensor(scores).requires_grad_()
        logs = library.functional.log_softmax(x, 2)
        loss = library.CTCLoss(**settings)(logs, tensor(targets), tensor(lengths), tensor(sizes))
        loss.sum().backward()
        results.append([loss, x.grad])
    for a, b in zip(*results, strict=True):
        close(a, b, name)


COMPUTED = {
    "weight": lambda library: library.utils.weight_norm(library.Linear(4, 3)),
    "weight of a convolution": lambda library: library.utils.weight_norm(library.Conv1d(4, 3, 2), dim=1),
    "weight whole": lambda library: library.utils.weight_norm(library.Linear(4, 3), dim=None),
    "spectral": lambda library: library.utils.spectral_norm(library.Linear(4, 3), n_power_iterations=2),
    "spectral transposed": lambda library: library.utils.spectral_norm(library.ConvTranspose1d(4, 3, 2)),
}


@pytest.mark.filterwarnings("ignore:.*is deprecated in favor of:FutureWarning")
@pytest.mark.parametrize("name", COMPUTED)
def test_computed_weights_like_torch(name):
    mine, theirs = COMPUTED[name](nn).double(), COMPUTED[name](torch.nn).double()
    assert list(mine.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict({k: torch.from_numpy(v.numpy().copy()) for k, v in mine.state_dict().items()})
    x = SEEDED.normal(size=(4, 4))
    for training in (True, True, False):
        mine.train(training)
        theirs.train(training)
        (out,), (image,) = step(lambda a: lamina.tensor(a), mine, [x], {})
        (other,), (their_image,) = step(lambda a: torch.tensor(a), theirs, [x], {})
        close(out, other, "output")
        close(image.grad, their_image.grad, "input")
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            close(a.grad, b.grad, "parameter")
        for key, value in theirs.state_dict().items():
            close(mine.state_dict()[key], value, key)
