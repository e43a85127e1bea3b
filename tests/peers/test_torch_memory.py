"""Results are new memory, or an operand's, where PyTorch's are: also where the arguments leave nothing to do.

Who writes into what `pad(x, (0, 0), mode="reflect")` returns must not write into x.
"""

import warnings
from math import prod
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


IN_ORDER = {
    "softmax": lambda x, F: x.softmax(-1), "log_softmax": lambda x, F: x.log_softmax(0),
    "cumsum": lambda x, F: x.cumsum(0), "cumprod": lambda x, F: x.cumprod(-1),
    "cummax": lambda x, F: x.cummax(0).values, "logcumsumexp": lambda x, F: x.logcumsumexp(0),
    "masked_fill": lambda x, F: x.masked_fill(x > 0.5, 0.0),
    "gather": lambda x, F: x.gather(0, (x > 2).long()),
    "tril": lambda x, F: x.tril(), "triu": lambda x, F: x.triu(1), "sum": lambda x, F: x.sum(0),
    "mean": lambda x, F: x.mean(-1, keepdim=True), "prod": lambda x, F: x.prod(1),
    "amax": lambda x, F: x.amax(0),
    "max": lambda x, F: x.max(0).values, "any": lambda x, F: (x > 0.5).any(0),
    "var": lambda x, F: x.var(0),
    "std": lambda x, F: x.std(-1), "logsumexp": lambda x, F: x.logsumexp(0),
    "norm": lambda x, F: x.norm(dim=0),
    "renorm": lambda x, F: x.renorm(2, 0, 1.0), "layer_norm": lambda x, F: F.layer_norm(x, x.shape[-1:]),
    "rms_norm": lambda x, F: F.rms_norm(x, x.shape[-1:]),
    "batch_norm": lambda x, F: F.batch_norm(x, None, None, training=True),
}  # fmt: skip


@pytest.mark.parametrize("call", IN_ORDER)
@pytest.mark.parametrize("sizes", [(2, 3, 4), (32, 33, 34)])
def test_results_lie_in_order_where_pytorchs_do(call, sizes):
    """There x.transpose(1, 2).softmax(-1).view(-1) is possible."""
    for order in ((1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0)):
        x = torch.linspace(0.0, 1.0, prod(sizes)).reshape(sizes).permute(order)
        wanted = IN_ORDER[call](x, torch_functional)
        for _ in range(3):  # by a formula, by a plan, by code for it
            y = lamina.from_numpy(x.numpy())
            found = IN_ORDER[call](y, lamina_functional)
            assert found.is_contiguous() or not wanted.is_contiguous()
