"""The functions that are written with ops, against PyTorch's of the same name: values, dtypes, shapes,
gradients.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

from composite_calls import CALLS, WITHOUT, Made  # noqa: E402

import lamina  # noqa: E402
from lamina.ir import dtypes  # noqa: E402
from lamina.ir.op import COMPOSITES  # noqa: E402
from lamina.runtime.tensor import Tensor, tensor_of  # noqa: E402

functional = torch.nn.functional
INEXACT_IN_TORCH = {"polygamma": 1e-8}  # relative: its series end early


def array(x: Made, generator: np.random.Generator) -> np.ndarray:
    """The numbers that stand behind a tensor argument."""
    if x.kind == "int":
        return generator.integers(0, x.bound, x.shape)
    if x.kind == "bool":
        return generator.integers(0, 2, x.shape).astype(bool)
    if x.kind == "sign":
        return generator.integers(0, 2, x.shape) * 2.0 - 1.0
    if x.kind in ("unit", "constant"):
        return generator.uniform(0.1, 0.9, x.shape)
    if x.kind == "distinct":
        return generator.permutation(np.linspace(-2, 2, int(np.prod(x.shape)))).reshape(x.shape)
    return np.asarray(generator.uniform(-2, 2, x.shape))


def filled(args: tuple, kwargs: dict, seed: int) -> tuple[list, dict, set[int]]:
    """The arguments with arrays in them, and the ids of those that no gradient is wanted of."""
    held: set[int] = set()
    kept: list[np.ndarray] = []  # alive, so that no id is given twice
    generator = np.random.default_rng(seed)

    def fill(x: Any) -> Any:
        if isinstance(x, Made):
            kept.append(array(x, generator))
            if x.kind in ("constant", "sign"):
                held.add(id(kept[-1]))
            return kept[-1]
        return [fill(y) for y in x] if isinstance(x, list) else x

    return [fill(x) for x in args], {name: fill(x) for name, x in kwargs.items()}, held


def converted(x: Any, convert: Callable) -> Any:
    if isinstance(x, np.ndarray):
        return convert(x)
    return [converted(y, convert) for y in x] if isinstance(x, list) else x


def listed(x: Any) -> list:
    """Everything returned, nested tuples flattened."""
    return [z for y in x for z in listed(y)] if isinstance(x, (tuple, list)) else [x]


def theirs(name: str) -> Callable:
    """PyTorch's function of that name, else its method; `torch.float` and its like are dtypes."""
    if name.startswith("linalg_"):
        return getattr(torch.linalg, name.removeprefix("linalg_"))
    places = (functional, torch, torch.Tensor)
    found = [getattr(place, name) for place in places if hasattr(place, name)]
    return next(f for f in found if not isinstance(f, torch.dtype))


@pytest.fixture(scope="module")
def in_database() -> set[str]:
    """The functions that test_torch_operators.py compares."""
    pytest.importorskip("expecttest", reason="the operator database asks for it: pip install lamina[peers]")
    from torch.testing._internal.common_methods_invocations import op_db

    return {entry.name.removeprefix("nn.functional.").replace(".", "_") for entry in op_db}


def test_composites_are_compared_or_say_why_not(in_database):
    for name in sorted(COMPOSITES):
        assert not (name in CALLS and name in WITHOUT), f"{name}: it is compared, take it out of WITHOUT"
        listed = name in CALLS or name in WITHOUT
        assert listed or name in in_database, f"{name}: give it calls in composite_calls.py, or a reason"


@pytest.mark.parametrize(
    "name, number", [(n, k) for n in sorted(CALLS) if n in COMPOSITES for k in range(len(CALLS[n]))]
)
def test_composite_is_torchs(name, number):
    args, kwargs = CALLS[name][number]
    made, named, held = filled(args, kwargs, zlib.crc32(name.encode()) + number)

    def ours(x: np.ndarray) -> Tensor:
        t = tensor_of(x.copy())
        return t.requires_grad_() if x.dtype.kind == "f" and id(x) not in held else t

    def peer(x: np.ndarray) -> Any:
        t = torch.from_numpy(x.copy())
        return t.requires_grad_() if x.dtype.kind == "f" and id(x) not in held else t

    mine, their = ([converted(x, f) for x in made] for f in (ours, peer))
    my_named, their_named = ({k: converted(x, f) for k, x in named.items()} for f in (ours, peer))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        wanted = listed(theirs(name)(*their, **their_named))
    found = listed(COMPOSITES[name].function(*mine, **my_named))
    assert len(found) == len(wanted), f"{name}: {len(found)} outputs, PyTorch gives {len(wanted)}"
    terms = 64 + sum(x.size for x in [*made, *named.values()] if isinstance(x, np.ndarray))
    eps = float(np.finfo(np.float64).eps)
    for x, y in zip(found, wanted, strict=True):
        if not isinstance(y, torch.Tensor):
            assert x == y
            continue
        assert x.dtype.name == str(y.dtype).removeprefix("torch."), f"{name}: {x.dtype}, PyTorch's {y.dtype}"
        near(x, y, max(terms * eps, INEXACT_IN_TORCH.get(name, 0.0)), f"{name}, output")
        shares_memory_alike(
            name, x, y, listed([mine, *my_named.values()]), listed([their, *their_named.values()])
        )
    pairs = [
        (x, y) for x, y in zip(found, wanted, strict=True) if isinstance(y, torch.Tensor) and y.requires_grad
    ]
    arguments = zip(listed([mine, *my_named.values()]), listed([their, *their_named.values()]), strict=True)
    starts = [(x, y) for x, y in arguments if isinstance(y, torch.Tensor) and y.requires_grad]
    if not pairs or not starts or any(x.dtype is not dtypes.float64 for x, _ in pairs):
        return
    generator = np.random.default_rng(number)
    weights = [np.asarray(generator.uniform(0.5, 1.5, tuple(y.shape))) for _, y in pairs]
    ends, wrt = [y for _, y in pairs], [y for _, y in starts]
    expected = torch.autograd.grad(ends, wrt, list(map(torch.from_numpy, weights)), allow_unused=True)
    followed = [(x, tensor_of(w)) for (x, _), w in zip(pairs, weights, strict=True) if x.requires_grad]
    gradients = [None] * len(starts)  # PyTorch gives zeros for a rounded quotient, Lamina no history
    if followed:
        outputs, seeds = zip(*followed, strict=True)
        gradients = lamina.runtime.grad(outputs, [x for x, _ in starts], seeds, allow_unused=True)
    for n, (g, h) in enumerate(zip(gradients, expected, strict=True)):
        if g is None or h is None:
            assert not (g is not None and np.any(g._data)) and not (h is not None and bool(h.any())), (
                f"{name}: gradient {n}"
            )
        else:
            near(g, h, max(terms * eps, INEXACT_IN_TORCH.get(name, 0.0)), f"{name}, gradient {n}")


def shares_memory_alike(name: str, x: Tensor, y: Any, mine: list, their: list) -> None:
    """A result is of an argument's memory where PyTorch's is; what isn't can be written."""
    pairs = [(a, b) for a, b in zip(mine, their, strict=True) if isinstance(b, torch.Tensor)]
    shared = [np.may_share_memory(x._data, a._data) for a, _ in pairs if x.numel()]
    wanted = [y.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for _, b in pairs if y.numel()]
    assert shared == wanted, f"{name}: of the memory of its arguments: {shared}, PyTorch's {wanted}"
    assert any(wanted) or x._data.flags.writeable, f"{name}: its result can't be written"


def near(x: Tensor, y: Any, relative: float, what: str) -> None:
    """Equal, or for floats near by the largest element: both sum the same products, in other orders."""
    a, c = x._data.astype(np.float64), y.detach().to(torch.float64).numpy()
    assert a.shape == c.shape, f"{what}: shape {a.shape}, PyTorch's {c.shape}"
    limit = relative * np.max(np.abs(c[np.isfinite(c)]), initial=1.0) if x.dtype is dtypes.float64 else 0.0
    np.testing.assert_allclose(a, c, rtol=0, atol=limit, err_msg=what, equal_nan=True)


# ---- calls that need something made for them
def test_bucketize_is_torchs():
    edges, x = np.linspace(-1, 1, 5), np.random.uniform(-2, 2, (3, 4))
    for right in (False, True):
        found = lamina.runtime.ops.FUNCTIONS["bucketize"](tensor_of(x), tensor_of(edges), right=right)
        assert (
            found.tolist()
            == torch.bucketize(torch.from_numpy(x), torch.from_numpy(edges), right=right).tolist()
        )


def test_max_unpool_puts_back_what_max_pool_took():
    functions = lamina.runtime.ops.FUNCTIONS
    for n in (1, 2, 3):
        x = np.random.permutation(np.linspace(-1, 1, 2 * 4**n)).reshape(1, 2, *(4,) * n)
        pooled, places = functions[f"max_pool{n}d_with_indices"](tensor_of(x), 2)
        found = functions[f"max_unpool{n}d"](pooled, places, 2)
        t, at = getattr(functional, f"max_pool{n}d")(torch.from_numpy(x), 2, return_indices=True)
        near(found, getattr(functional, f"max_unpool{n}d")(t, at, 2), 0.0, f"max_unpool{n}d")


def test_cosine_embedding_loss_is_torchs():
    x, y, labels = (
        np.random.uniform(-1, 1, (5, 3)),
        np.random.uniform(-1, 1, (5, 3)),
        np.array([1, -1, 1, -1, 1]),
    )
    found = lamina.runtime.ops.FUNCTIONS["cosine_embedding_loss"](*map(tensor_of, (x, y, labels)), margin=0.1)
    near(
        found,
        functional.cosine_embedding_loss(*map(torch.from_numpy, (x, y, labels)), margin=0.1),
        1e-14,
        "loss",
    )
