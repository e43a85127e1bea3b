"""Results are new memory, or an operand's, where PyTorch's are: also where the arguments leave nothing to do.

Who writes into what `pad(x, (0, 0), mode="reflect")` returns must not write into x.
"""

import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import torch.nn.functional as torch_functional  # noqa: E402

import lamina  # noqa: E402
import lamina.nn.functional as lamina_functional  # noqa: E402

CALLS = [
    line.split(": ", 1)
    for line in (Path(__file__).parent / "memory_calls.txt").read_text().splitlines()
    if not line.startswith("#")
]
OF_INTEGERS = (
    "abs", "ceil", "clone", "conj", "fix", "floor", "nan_to_num", "positive", "real", "round", "sgn", "sign",
    "square", "trunc",
)  # fmt: skip
CALLS += [[name, f"torch.{call}({name})"] for call in OF_INTEGERS for name in "iub"]


def is_the_operands(library, functional, operand, call):
    """Whether a result begins where the operand does; None where the library refuses the call."""
    library.manual_seed(0)
    i = library.arange(6).reshape(2, 3)
    names = {
        "torch": library, "F": functional,
        "x": library.rand(2, 4, 4, 4) + 1, "v": library.rand(5), "m": library.rand(3, 3) + library.eye(3),
        "i": i, "u": i.to(library.uint8), "b": i > 2, "e": library.rand(1, 4, 1, 1),
    }  # fmt: skip
    try:
        found = eval(call, names)
    except (RuntimeError, TypeError):
        return None
    return found.data_ptr() == names[operand].data_ptr()


@pytest.mark.parametrize(("operand", "call"), CALLS, ids=[call for _, call in CALLS])
def test_memory_is_shared_as_in_pytorch(operand, call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = is_the_operands(torch, torch_functional, operand, call)
        ours = is_the_operands(lamina, lamina_functional, operand, call)
    assert ours == theirs or theirs is None
