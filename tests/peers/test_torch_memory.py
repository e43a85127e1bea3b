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


EXPANDED = {  # by where the dimension stands that `expand` added
    "in front": lambda x: x[None].expand(2, 3, 4), "between": lambda x: x[:, None].expand(3, 5, 4),
    "columns": lambda x: x[:, :1].expand(3, 4), "in front of columns": lambda x: x.t()[None].expand(2, 4, 3),
    "two": lambda x: x[None, :, None].expand(2, 3, 5, 4), "last": lambda x: x[:, :, None].expand(3, 4, 2),
    "alone": lambda x: x.t()[None],
}  # fmt: skip
COPIES = (
    "x.clone()", "x.double()", "x.int()", "x.bool()", "x.half()", "x.bfloat16()", "x.to(torch.complex64)",
    "x.to(torch.float8_e4m3fn)", "x.to(torch.float32, copy=True)", "x.logical_not()", "x.int().sign()",
    "torch.empty_like(x)", "torch.zeros_like(x)", "torch.full_like(x, 2.0)", "x.double() + x", "x.flip(0)",
    "x.repeat(*(1,) * x.ndim)", "x.repeat(*(2,) * x.ndim)", "x.tile(2)", "x.lgamma()", "x + 1", "x.digamma()",
)  # fmt: skip


@pytest.mark.parametrize("expanded", EXPANDED)
def test_copies_of_what_was_expanded_have_pytorchs_strides(expanded):
    for call in COPIES:
        ours, theirs = (
            eval(call, {"torch": library, "x": EXPANDED[expanded](library.arange(12.0).reshape(3, 4))})
            for library in (lamina, torch)
        )
        one = [n > 1 for n in theirs.shape]  # of a dimension of size 1 a stride says nothing
        strides = [[s for s, told in zip(x.stride(), one, strict=True) if told] for x in (ours, theirs)]
        assert strides[0] == strides[1], call
        if "empty" not in call and "float8" not in call and "digamma" not in call and "lgamma" not in call:
            assert ours.tolist() == theirs.tolist(), call


@pytest.mark.parametrize(("operand", "call"), CALLS, ids=[call for _, call in CALLS])
def test_memory_is_shared_as_in_pytorch(operand, call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = is_the_operands(torch, torch_functional, operand, call)
        ours = is_the_operands(lamina, lamina_functional, operand, call)
    assert ours == theirs or theirs is None
