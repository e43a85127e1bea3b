"""uint16, uint32, uint64 and float8 against PyTorch: what it takes for them gives the same here.

PyTorch refuses most ops on these types on the CPU.  Of unsigned integers Lamina serves them all the same, and
there int64 says what is right; float8 is for storage, so there Lamina refuses more: `mul`, `abs`.
"""

import itertools

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402
from lamina.ir import dtypes  # noqa: E402
from lamina.ir.errors import LaminaError  # noqa: E402

UNSIGNED = dtypes.UNSIGNED[1:]
BINARY = (
    "add sub mul div floor_divide remainder fmod pow eq ne lt le gt ge maximum minimum fmax fmin bitwise_and "
    "bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift logical_and logical_or gcd lcm atan2 "
    "copysign isclose cat_pair stack_pair where_pair equal dot outer isin searchsorted"
).split()
UNARY = (
    "abs sign signbit logical_not sin square sqrt exp ceil floor round trunc sum prod min max argmin argmax "
    "sort argsort unique all any nonzero count_nonzero positive isnan isfinite isinf reciprocal amin amax "
    "median msort clone zeros_like ones_like aminmax"
).split()
CALLS = {
    **{name: lambda t, x, y, name=name: getattr(t, name)(x) for name in UNARY},
    **{name: lambda t, x, y, name=name: getattr(t, name)(x, y) for name in BINARY if hasattr(torch, name)},
    "cat_pair": lambda t, x, y: t.cat([x, y]),
    "stack_pair": lambda t, x, y: t.stack([x, y]),
    "where_pair": lambda t, x, y: t.where(x == y, x, y),
    "cumsum": lambda t, x, y: x.cumsum(0),
    "cumprod": lambda t, x, y: x.cumprod(0),
    "flip": lambda t, x, y: x.flip(0),
    "roll": lambda t, x, y: x.roll(1),
    "add 1": lambda t, x, y: x + 1,
    "rsub": lambda t, x, y: 200 - x,
    "mul 2.5": lambda t, x, y: x * 2.5,
    "pow 2": lambda t, x, y: x**2,
    "add_": lambda t, x, y: x.clone().add_(y),
    "fill_": lambda t, x, y: x.clone().fill_(7),
    "slice": lambda t, x, y: x[1:3],
    "take": lambda t, x, y: x[[2, 0]],
    "mask": lambda t, x, y: x[x == x],
    "put": lambda t, x, y: x.clone().index_fill_(0, t.tensor([1]), 9),
    "item": lambda t, x, y: x[2].item(),
    "tolist": lambda t, x, y: x.tolist(),
    "to float": lambda t, x, y: x.double(),
    "to int": lambda t, x, y: x.long(),
    "topk": lambda t, x, y: x.topk(2),
    "kthvalue": lambda t, x, y: x.kthvalue(2),
    "gather": lambda t, x, y: x.gather(0, t.tensor([2, 0])),
    "diff": lambda t, x, y: t.sort(x).values.diff(),
    "repeat_interleave": lambda t, x, y: x.repeat_interleave(2),
    "clamp": lambda t, x, y: x.clamp(2, 4),
}
# PyTorch computes these in the type itself; int64, which says what is right where it refuses, wraps otherwise
WRAPPING = {"sum", "prod", "cumsum", "cumprod"}


def plain(found):
    if isinstance(found, (list, int, float, bool)):
        return [np.asarray(found)]
    if isinstance(found, (tuple, list)):
        return [a for x in found for a in plain(x)]
    return [found.numpy()]


def name_of(found):
    return str(getattr(found, "dtype", "")).split(".")[-1]


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_unsigned(call, dtype):
    x, y = np.array([3, 7, 200, 5], dtype.numpy), np.array([3, 2, 60, 1], dtype.numpy)
    if call is CALLS["pow"]:
        y = np.minimum(y, 2).astype(dtype.numpy)  # so that int64 holds what uint16 does
    found = call(lamina, lamina.tensor(x), lamina.tensor(y))
    try:
        wanted = call(torch, torch.tensor(x), torch.tensor(y))
        served = True
    except (NotImplementedError, RuntimeError):
        wanted, served = call(torch, torch.tensor(x).long(), torch.tensor(y).long()), False
    for ours, theirs in zip(plain(found), plain(wanted), strict=True):
        if served:
            assert ours.dtype == theirs.dtype
        if ours.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=4 * np.finfo(ours.dtype).eps)  # libraries' sin, exp
        else:
            np.testing.assert_array_equal(ours, theirs.astype(ours.dtype))
    if not served and not isinstance(found, (list, tuple, int)) and name_of(wanted) == "int64":
        indices = {CALLS[name] for name in ("argmin", "argmax", "argsort", "nonzero", "count_nonzero",
                                            "searchsorted", "cumsum", "cumprod", "sum", "prod")}  # fmt: skip
        assert found.dtype is (lamina.int64 if call in indices else dtype)


@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_unsigned_limits(dtype):
    top = 2 ** (8 * dtype.itemsize) - 1
    x = lamina.tensor([0, 1, top], dtype=dtype)
    theirs = torch.tensor([0, 1, top], dtype=getattr(torch, dtype.name))
    assert repr(x) == repr(theirs).replace("torch.", "lamina.")
    assert x.tolist() == [0, 1, top] and (x > 1).tolist() == [False, False, True]
    assert x.sort(descending=True).values.tolist() == [top, 1, 0] and x.max().item() == top
    assert (x + 1).tolist() == [1, 2, 0] and (x >> 1).tolist() == [0, 0, top // 2]
    assert (~x).tolist() == [top, top - 1, 0] and (x // 2).tolist() == [0, 0, top // 2]
    assert x.double().tolist() == theirs.double().tolist()
    assert x.sum().item() == theirs.sum().item()  # int64, so that of uint64 it wraps
    info, peer = lamina.iinfo(dtype), torch.iinfo(theirs.dtype)
    assert (info.min, info.max, info.bits, info.dtype) == (peer.min, peer.max, peer.bits, peer.dtype)
    assert x.is_signed() is theirs.is_signed()
    back = lamina.from_dlpack(theirs), torch.from_dlpack(x)
    assert back[0].dtype is dtype and back[1].dtype is theirs.dtype
    with pytest.raises(LaminaError, match="does not fit into"):
        lamina.tensor([top + 1], dtype=dtype)


def test_promotion():
    """PyTorch refuses all but floats; where both are integers Lamina does as the array API standard says."""
    for a, b in itertools.product(dtypes.ALL, UNSIGNED):
        theirs = getattr(torch, a.name), getattr(torch, b.name)
        if a.is_floating_point:
            assert dtypes.promote(a, b).name == str(torch.promote_types(*theirs)).split(".")[-1]
            continue
        with pytest.raises(RuntimeError):
            torch.promote_types(*theirs)
        if b is dtypes.uint64 and a.is_signed:
            with pytest.raises(LaminaError, match="no integer type holds both"):
                dtypes.promote(a, b)
        else:
            assert dtypes.promote(a, b).numpy == np.promote_types(a.numpy, b.numpy)
            assert dtypes.promote(b, a) is dtypes.promote(a, b)
    for stored, other in itertools.product(dtypes.FLOAT8, dtypes.EVERY):
        if other is not stored:
            with pytest.raises(LaminaError, match="Promotion for Float8 Types is not supported"):
                lamina.promote_types(other, stored)


SOURCES = ("float32", "float64", "float16", "bfloat16", "int32", "uint8", "bool")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", dtypes.FLOAT8, ids=str)
def test_float8_rounding(dtype, source):
    """Bit by bit: every float16, random float32 (subnormal ones, infinities, NaN), and halves of a step."""
    generator = np.random.default_rng(0)
    with np.errstate(all="ignore"):
        spread = generator.integers(0, 2**32, 20_000, dtype=np.uint32).view(np.float32)
        near = np.arange(256, dtype=np.uint8).view(dtype.numpy).astype(np.float32)
        steps = (near[:-1] + near[1:]) / 2
        halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
        edges = np.array(
            [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 2.0**-127, 2.0**-128, 1e-45], np.float32
        )
        values = np.concatenate([spread, near, steps, np.nextafter(steps, np.float32(9e9)), halves, edges])
        x = torch.from_numpy(values).to(getattr(torch, source))
        if source == "float64":
            x = torch.from_numpy(np.concatenate([values.astype(np.float64), steps * (1 + 2.0**-40)]))
        wanted = x.to(getattr(torch, dtype.name)).view(torch.uint8).numpy()
        found = lamina.from_dlpack(x).to(dtype)
    np.testing.assert_array_equal(found.numpy().view(np.uint8), wanted)


@pytest.mark.parametrize("target", SOURCES)
@pytest.mark.parametrize("dtype", dtypes.FLOAT8, ids=str)
def test_float8_widening(dtype, target):
    every = np.arange(256, dtype=np.uint8)
    if target in ("int32", "uint8"):  # what an infinity becomes there is promised by nobody
        with np.errstate(all="ignore"):
            numbers = every.view(dtype.numpy).astype(np.float32)
        every = every[np.abs(numbers) < 100] if target == "int32" else every[(numbers >= 0) & (numbers < 100)]
    ours = lamina.tensor(every.view(dtype.numpy)).to(getattr(lamina, target))
    theirs = torch.from_numpy(every).view(getattr(torch, dtype.name)).to(getattr(torch, target))
    np.testing.assert_array_equal(ours.double().numpy(), theirs.double().numpy())


FLOAT8_CALLS = {
    "index": lambda t, y, d: y[1],
    "slice": lambda t, y, d: y[1:],
    "list": lambda t, y, d: y[[0, 2]],
    "mask": lambda t, y, d: y[t.tensor([True, False, True])],
    "cat": lambda t, y, d: t.cat([y, y]),
    "stack": lambda t, y, d: t.stack([y, y]),
    "where": lambda t, y, d: t.where(t.tensor([True, False, True]), y, y),
    "zeros": lambda t, y, d: t.zeros(2, dtype=d),
    "ones": lambda t, y, d: t.ones(2, dtype=d),
    "full": lambda t, y, d: t.full((2,), 3.3, dtype=d),
    "eye": lambda t, y, d: t.eye(2, dtype=d),
    "tensor": lambda t, y, d: t.tensor([1.1, 1e9, -2.0], dtype=d),
    "fill_": lambda t, y, d: y.clone().fill_(100.5),
    "copy_": lambda t, y, d: y.clone().copy_(t.tensor([5.3, 999.0, float("nan")])),
    "set": lambda t, y, d: (z := y.clone(), z.__setitem__(0, 100.5), z)[2],
    "set many": lambda t, y, d: (z := y.clone(), z.__setitem__([0, 1], t.tensor([3.3, 1e9]).to(d)), z)[2],
    "set slice": lambda t, y, d: (z := y.clone(), z.__setitem__(slice(2), t.tensor([3.3, 1e9])), z)[2],
    "eq": lambda t, y, d: y == y[[2, 1, 0]],
    "ne": lambda t, y, d: y != 2.0,
    "isnan": lambda t, y, d: t.isnan(y),
    "reshape": lambda t, y, d: y.reshape(3, 1).T,
    "expand": lambda t, y, d: y.expand(2, 3),
    "repeat": lambda t, y, d: y.repeat(2),
    "roll": lambda t, y, d: t.roll(y, 1),
    "index_select": lambda t, y, d: y.index_select(0, t.tensor([0, 2])),
    "zeros_like": lambda t, y, d: t.zeros_like(y),
    "full_like": lambda t, y, d: t.full_like(y, 100.5),
    "new_full": lambda t, y, d: y.new_full((2,), 100.5),
    "to int": lambda t, y, d: y.to(t.int32),
    "view": lambda t, y, d: y.view(t.uint8),
    "view back": lambda t, y, d: y.view(t.uint8).view(d),
    "dlpack": lambda t, y, d: (torch if t is lamina else lamina).from_dlpack(y).float(),
    "tolist": lambda t, y, d: y.tolist(),
    "item": lambda t, y, d: y[2].item(),
    "gradient": lambda t, y, d: t.autograd.grad(
        (x := t.tensor([1.1, 2.0], requires_grad=True)).to(d).float().sum(), x
    )[0],
}


@pytest.mark.parametrize("dtype", dtypes.FLOAT8, ids=str)
@pytest.mark.parametrize("call", FLOAT8_CALLS.values(), ids=FLOAT8_CALLS)
def test_float8_storage(call, dtype):
    peer = getattr(torch, dtype.name)
    unsigned = dtype is dtypes.float8_e8m0fnu
    if unsigned and call is FLOAT8_CALLS["set many"]:
        pytest.skip("PyTorch has no index_put for it")
    ours = call(lamina, lamina.tensor([1.0, 2.0, 4.0]).to(dtype), dtype)
    theirs = call(torch, torch.tensor([1.0, 2.0, 4.0]).to(peer), peer)
    if isinstance(ours, (list, float)):
        assert ours == theirs
        return
    assert name_of(ours) == name_of(theirs)
    if unsigned:  # PyTorch prints 2**-127, which stands for its zero, as 0
        np.testing.assert_array_equal(ours.double().numpy(), theirs.double().numpy())
    else:
        assert repr(ours).replace("lamina.", "torch.") == repr(theirs)


@pytest.mark.parametrize("dtype", dtypes.FLOAT8, ids=str)
def test_float8_limits_and_refusals(dtype):
    ours, theirs = lamina.finfo(dtype), torch.finfo(getattr(torch, dtype.name))
    for name in ("bits", "min", "max", "eps", "tiny", "smallest_normal", "resolution", "dtype"):
        if (name, dtype) != (
            "eps",
            dtypes.float8_e5m2fnuz,
        ):  # two bits after the point: 0.25, not PyTorch's 0.125
            assert getattr(ours, name) == getattr(theirs, name), name
    x = lamina.ones(3, dtype=dtype)
    assert (
        x.is_floating_point() and x.is_signed() is torch.ones(3, dtype=getattr(torch, dtype.name)).is_signed()
    )
    for refused in (
        lambda: x + x, lambda: x.sum(), lambda: x.sort(), lambda: -x, lambda: x.exp(), lambda: x @ x,
        lambda: x * 2, lambda: lamina.rand(3) + x, lambda: x.add_(1), lambda: lamina.arange(3, dtype=dtype),
    ):  # fmt: skip
        with pytest.raises(LaminaError, match="float8"):
            refused()
    assert x.numpy().dtype == getattr(ml_dtypes, dtype.name)
