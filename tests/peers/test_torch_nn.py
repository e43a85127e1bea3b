"""Compare every module with PyTorch's: the same repr, state keys, outputs, gradients and buffers."""

from typing import Any

import numpy as np
import pytest

import lamina
import lamina.nn as nn

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")

from module_cases import CASES, SEEDED, Case  # noqa: E402

# What torch has to say about its own ways.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
]

EPS = np.finfo(np.float64).eps
# Both compute in float64, with sums in different orders: of up to a few hundred terms of size about 1 in a
# layer, through at most a dozen layers.  n * eps bounds the error of a sum of n terms; 4096
# allows for all of them.
TOLERANCE = 4096 * EPS


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
    left |= {name for name in vars(nn) if name.startswith(("Lazy", "Uninitialized"))}
    # in test_torch_nn_utils.py and test_torch_module_db.py
    left |= {"CrossMapLRN2d", "FractionalMaxPool2d", "FractionalMaxPool3d", "LinearCrossEntropyLoss"}
    # as the modules that they wrap or derive from, or no modules (tests/nn/test_module_more.py)
    left |= {"Buffer", "DataParallel", "LinearCrossEntropyOptions", "RNNCellBase", "SyncBatchNorm"}
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
    "without inputs": (
        3,
        np.array([[1, 1, 1], [0, 1, 1], [0, 0, 0]]),
        [0, 4, 0],
        [0, 2, 1],
        {"reduction": "none", "blank": 2},
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
