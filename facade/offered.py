"""Which of PyTorch's public names Lamina offers, and why not the others: a page, and an answer for one name.

pytorch_names.txt holds PyTorch's names; whether one is offered is found by looking, never written down.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
import textwrap
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from .late import FUNCTIONS, ROOMS

ROOT = __package__.rpartition(".")[0]  # lamina
NAMES = Path(__file__).with_name("pytorch_names.txt")
WIDTH = 118

# Why a name is not there: the first that fits its whole path.
REASONS = (
    (
        r"(.*\.)?(quantize|fake_quantize|q_|int_repr|dequantize|fused_moving|choose_qparams|quantized|is_quantized"
        r"|qscheme|qint|quint|empty_quantized|fbgemm).*",
        "tensors of quantised integers are not built",
    ),
    (
        r"(.*\.)?(cudnn|miopen|mkldnn|hip|mps|xpu|ipu|vulkan|to_mkldnn|xnnpack).*",
        "a library of PyTorch's, not of Lamina's",
    ),
    (r".*(Sym(Int|Float|Bool)|sym_\w+)", "symbolic sizes are torch.compile's; `jit.trace` has its own"),
    (r".*_copy", "a view that copies: x.clone() of the view"),
    (
        r"(.*\.)?(sparse_bs[rc]|to_sparse_bs[rc]|to_sparse_semi|SparseSemi|as_sparse_gradcheck|hsmm).*",
        "sparse tensors of blocks, and prototypes: COO, CSR and CSC are built",
    ),
    (
        r"(.*\.)?(masked_tensor|as_masked_tensor|is_masked_tensor|MaskedTensor)",
        "prototypes: pass mask= to the reductions",
    ),
    (
        r"Tensor\.(cuda|xpu|ipu|hpu|mtia|is_(cuda|xpu|ipu|hpu|mtia|xla|vulkan|mps|maia|mkldnn|meta|nested))",
        "eager runs on the CPU; compiled programs run on a GPU by their target",
    ),
    (
        r"(fork|wait|import_ir_module\w*|parse_\w+|merge_type\w+|unify_type\w+|\w*vitals\w*|get_\w*module"
        r"|init_num_threads|prepare_multiprocessing\w*|layout|memory_format)",
        "the inside of PyTorch's own compiler",
    ),
    (
        r"\w*autocast_(cpu|gpu|ipu|xla)_\w+",
        "an older spelling: is_autocast_enabled and its kin take the device's type",
    ),
    (r"autocast_\w+_nesting", "blocks of autocast keep their own state"),
    (
        r"(batch_norm_\w+|native_\w+|convolution|embedding_\w+|lstm|gru|rnn_\w+|ctc_loss|affine_grid_generator"
        r"|\w*dropout_|feature_dropout|rrelu_|frobenius_norm|nuclear_norm|slice_inverse)",
        "a part that nn and nn.functional are made of: call those",
    ),
    (
        r"utils\.data\.(\w*DataPipe|DataChunk|functional_datapipe|\w*_validation\w*|\w*deterministic\w*)",
        "data pipes are not PyTorch's way any more: datasets and loaders are here",
    ),
    (
        r"utils\.checkpoint\.(CheckpointPolicy|GraphExecGroup|\w*[Ss]elective\w*)",
        "policies speak of PyTorch's own operators",
    ),
    (r"(.*\.)?(float4|int[1-7]|uint[1-7]|bits)\w*", "no such elements in kernels"),
)
OTHERWISE = "not built yet"


@cache
def pytorch_names() -> dict[str, tuple[str, ...]]:
    """PyTorch's public names by where they stand: "torch.nn.functional"."""
    found: dict[str, tuple[str, ...]] = {}
    space = ""
    for line in NAMES.read_text().splitlines():
        if line.endswith(":"):
            space = line[:-1]
            found[space] = ()
        elif line.startswith("  "):
            found[space] += tuple(line.split())
    return found


def looked_up(path: str) -> Any:
    """What stands at "torch.nn.functional.relu" here.  Raises AttributeError."""
    parts = path.split(".")[1:]
    found: Any = importlib.import_module(ROOT)
    for number, part in enumerate(parts):
        try:
            found = getattr(found, part)
        except AttributeError:
            below = ".".join(parts[: number + 1])
            try:
                found = importlib.import_module(f"{ROOT}.{below}")
            except ImportError:
                raise AttributeError(f"Lamina has no {path}") from None
    return found


def is_there(path: str) -> bool:
    """Whether Lamina offers a name of PyTorch's."""
    try:
        looked_up(path)
    except AttributeError:
        return False
    return True


def reason(path: str) -> str:
    """Why it does not."""
    name = path.removeprefix("torch.")
    return next((why for pattern, why in REASONS if re.fullmatch(pattern, name)), OTHERWISE)


def told(path: str) -> str:
    """What there is to say of one name: "torch.stft"."""
    path = path if path.split(".")[0] == "torch" else f"torch.{path}"
    space, _, name = path.rpartition(".")
    here = ROOT + path.removeprefix("torch")
    if path in pytorch_names():
        names = pytorch_names()[path]
        offered = [name for name in names if is_there(f"{path}.{name}")]
        return f"{path}: {len(offered)} of {len(names)} names are offered, as {here}"
    if is_there(path):
        lines = (getattr(looked_up(path), "__doc__", None) or "").strip().splitlines()
        return "\n  ".join([f"{path} is offered, as {here}", *lines[:1]])
    if name in pytorch_names().get(space, ()):
        return f"{path} is not offered: {reason(path)}"
    every = [f"{where}.{each}" for where, names in pytorch_names().items() for each in names]
    near = [each for each in every if each.endswith(f".{name}")] or difflib.get_close_matches(path, every, 3)
    return f"{path} is no public name of PyTorch's" + (f"; it has {', '.join(near[:3])}" if near else "")


def page() -> str:
    """The page of names, as Markdown."""
    total = offered = 0
    parts = []
    for space, names in pytorch_names().items():
        there = [name for name in names if is_there(f"{space}.{name}")]
        missing = sorted((reason(f"{space}.{name}"), name) for name in names if name not in there)
        total, offered = total + len(names), offered + len(there)
        parts += ["", f"## {space}", "", f"{len(there)} of {len(names)}.", ""]
        parts += _wrapped(there) if there else []
        for why, group in groupby(missing, key=lambda pair: pair[0]):
            parts += ["", f"Not offered, {why}:", "", *_wrapped([name for _, name in group])]
    version = NAMES.read_text().splitlines()[0].split(":")[0].removeprefix("# Public names of ")
    head = [
        "# What is offered",
        "",
        *textwrap.wrap(
            f"{offered} of the {total} public names of {version} are here. "
            "This page is written by `python -m lamina names --page`, which looks each of them up; "
            "`python -m lamina names torch.stft` tells of one.",
            WIDTH,
        ),
    ]
    package = importlib.import_module(ROOT)
    rooms = {room.name for room in pkgutil.iter_modules(package.__path__)}
    every = {*dir(package), *ROOMS, *FUNCTIONS, "ops", *rooms}  # what nobody may have asked for yet too
    own = sorted(name for name in every if not name.startswith("_") and "." not in name)
    beyond = [name for name in own if name not in pytorch_names()["torch"]]
    parts += ["", "## Names of lamina alone", ""]
    parts += ["Functions of `nn.functional` and rooms of the package among them.", "", *_wrapped(beyond)]
    return "\n".join([*head, *parts, ""])


def _wrapped(names: list[str]) -> list[str]:
    text = " ".join(f"`{name}`" for name in names)
    return textwrap.wrap(text, WIDTH, break_on_hyphens=False, break_long_words=False)
