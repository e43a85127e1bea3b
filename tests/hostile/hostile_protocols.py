"""Objects of other libraries that lie about their memory: DLPack capsules, `__array_interface__`, states.

What lies in memory that an object says is its own can't be told; that the elements are read where they lie,
and that what no array is is refused, can.
"""

from __future__ import annotations

import copy
import ctypes
import itertools
import random
from types import SimpleNamespace
from typing import Any

import mutations
import numpy as np
from driver import Kind, Wrong, kind

import lamina
from lamina import nn
from lamina.runtime import interchange

ROOM, FEW = 1 << 13, 4096  # bytes of memory that capsules may be over; elements that are compared
START = 2048  # where capsules begin, so that strides may go back
CODES = {0: "int", 1: "uint", 2: "float", 5: "complex", 6: "bool"}
_make = ctypes.pythonapi.PyCapsule_New
_make.restype, _make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class _Producer:
    """Hands out a capsule, which says what a field of numbers says."""

    def __init__(self, about: dict[str, Any], memory: np.ndarray):
        self.about, self.memory, self.kept = about, memory, []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.about["told_device"], 0

    def __dlpack__(self, **options: Any) -> Any:
        about = self.about
        layout = interchange.Versioned if about["versioned"] else interchange.Managed
        made, inside = layout(), None
        shape = (ctypes.c_int64 * max(len(about["shape"]), 1))(*about["shape"])
        steps = (ctypes.c_int64 * max(len(about["strides"]), 1))(*about["strides"])
        inside = made.tensor
        inside.data = None if about["null"] else self.memory.ctypes.data + about["start"]
        inside.device_type, inside.ndim = about["device"], about["ndim"]
        inside.code, inside.bits, inside.lanes = about["code"], about["bits"], about["lanes"]
        inside.shape, inside.byte_offset = ctypes.addressof(shape), about["offset"]
        inside.strides = None if about["dense"] else ctypes.addressof(steps)
        if about["versioned"]:
            made.major, made.flags = about["major"], about["flags"]
        self.kept += [shape, steps, made]
        name = b"dltensor_versioned" if about["versioned"] else b"dltensor"
        return _make(ctypes.addressof(made), name if about["named"] else b"other", None)


def _capsule(rng: random.Random) -> dict[str, Any]:
    """What a capsule says: mostly what fits into the memory, and one or two things that are odd."""
    shape = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(4))]
    dense = [int(np.prod(shape[at + 1 :], dtype=np.int64)) for at in range(len(shape))]
    code, bits = rng.choice(
        ((0, 8), (0, 64), (1, 8), (1, 32), (2, 16), (2, 32), (2, 64), (5, 64), (6, 8), (4, 16), (10, 8))
    )
    about: dict[str, Any] = {
        "shape": shape, "strides": dense, "ndim": len(shape), "code": code, "bits": bits,
        "lanes": 1, "device": 1,
        "told_device": 1, "start": START, "offset": 0, "null": False, "dense": rng.random() < 0.3,
        "versioned": rng.random() < 0.5, "major": 1, "flags": rng.choice((0, 0, 1, 2)), "named": True,
    }  # fmt: skip
    for _ in range(rng.choice((0, 1, 1, 2))):
        extreme = rng.choice((*mutations.EXTREMES, -1, -2)) & ((1 << 64) - 1)
        signed = extreme - (1 << 64) if extreme >> 63 else extreme
        match rng.randrange(12):
            case 0:
                about["strides"] = [rng.choice((0, -1, 1, 2, -3, 7)) for _ in shape]
                about["dense"] = False
            case 1 if shape:
                at = rng.randrange(len(shape))
                about["shape"] = [*shape[:at], signed, *shape[at + 1 :]]
                about["strides"], about["dense"] = [0] * len(shape), False
            case 2:
                about["ndim"] = rng.choice((-1, 65, 1 << 30, -(1 << 31)))
            case 3:
                about["code"] = rng.randrange(20)
            case 4:
                about["bits"] = rng.choice((0, 1, 4, 8, 12, 16, 32, 64, 128, 255))
            case 5:
                about["lanes"] = rng.choice((0, 2, 4, 65535))
            case 6:
                about["device"] = rng.choice((0, 2, 3, 4, 11, 13, -1, 99))
            case 7:
                about["told_device"] = rng.choice((0, 2, 3, 11, 99, -1))
            case 8:
                about["start"] += rng.choice((1, 2, 3, 4))
            case 9:
                about["offset"] = rng.choice((1, 2, 4, 8, 64))
            case 10:
                about["null"] = True
            case _:
                about["named"], about["major"] = rng.random() < 0.5, rng.choice((0, 1, 2, 1 << 31))
    if about["ndim"] > len(about["shape"]):  # sizes that are not there can't be told from those that are
        about["ndim"] = 65 if about["ndim"] > 64 else len(about["shape"])
        about["shape"] += [1] * (65 - len(about["shape"]))
        about["strides"] += [0] * (65 - len(about["strides"]))
    return about


def _truth(about: dict[str, Any], memory: np.ndarray) -> np.ndarray | None:
    """The elements that a capsule says, read one by one; None for types that NumPy has not."""
    if about["code"] not in CODES or about["lanes"] != 1:
        return None
    name = "bool" if about["code"] == 6 else f"{CODES[about['code']]}{about['bits']}"
    dtype, steps = np.dtype(name), about["strides"]
    shape = about["shape"][: about["ndim"]]
    if about["dense"]:
        steps = [int(np.prod(shape[at + 1 :], dtype=np.int64)) for at in range(len(shape))]
    raw, first = memory.tobytes(), about["start"] + about["offset"]
    found = np.zeros(shape, dtype)
    for place in itertools.product(*map(range, shape)):
        at = first + dtype.itemsize * sum(p * step for p, step in zip(place, steps, strict=False))
        found[place] = np.frombuffer(raw[at : at + dtype.itemsize], dtype)[0]
    return found


@kind("dlpack")
def capsules() -> Kind:
    """A capsule is refused, or gives the elements that lie where it says, in eager and in compiled code."""
    memory = (np.arange(ROOM) * 7 % 2).astype(np.uint8)  # of numbers that any type can have, bool too
    kept: list[Any] = []
    twice = lamina.jit.trace(lambda x: (x + x, x.sum()))

    def check(about: dict[str, Any]) -> str:
        producer = _Producer(about, memory)
        kept.append(producer)
        x = lamina.from_dlpack(producer)
        if x.numel() > FEW:
            return "large"
        if not x.numel():
            return "empty"
        if about["null"]:
            raise Wrong("there is no memory")
        wanted, found = _truth(about, memory), x.numpy() if x.dtype.short != "bf16" else None
        if wanted is not None and found is not None:
            if found.shape != wanted.shape or found.tobytes() != wanted.tobytes():
                raise Wrong(f"{found} is not {wanted}")
        if x.is_floating_point() and x.itemsize > 1:
            doubled, total = twice(x)
            plain = lamina.tensor(x.tolist(), dtype=x.dtype).reshape(x.shape)
            if doubled.tolist() != (plain + plain).tolist() or total.isnan() != plain.sum().isnan():
                raise Wrong("compiled code reads other elements")
        return "taken"

    return Kind(make=_capsule, check=check, refusals=(lamina.LaminaError,), memory=1 << 28, share=1000)


def _interface(rng: random.Random) -> dict[str, Any]:
    """What `__array_interface__` says.  NumPy reads wherever strides and offsets lead: they lead inside."""
    shape = tuple(rng.choice((0, 1, 2, 3)) for _ in range(rng.randrange(4)))
    about: dict[str, Any] = {"version": 3, "shape": shape, "typestr": rng.choice(("<f4", "<i8",
    "|u1", "<f8", "|b1")),
                             "data": bytes(range(2)) * 300}  # fmt: skip
    for _ in range(rng.choice((0, 1, 1, 2))):
        match rng.randrange(6):
            case 0:
                about["shape"] = rng.choice(
                    (None, (-1,), (1 << 40, 1 << 40), ("x",), [2], (2.0,), 3, (1,) * 70)
                )
            case 1:
                about["typestr"] = rng.choice((">f4", "<U4", "|V3", "f", "", None, "<f16", "<c8", "|S2", 4))
            case 2:
                steps = rng.choice((None, (0,), (1, 1), ("x",), (3,), 4))
                about["strides"] = (
                    steps if rng.random() < 0.5 else tuple(rng.choice((0, 1, 4, 8)) for _ in shape)
                )
            case 3:
                about["data"] = rng.choice(
                    (None, b"", bytearray(700), (None, False), ("x",), (1,), 7, "text")
                )
            case 4:
                about["offset"] = rng.choice((1, 4, "x"))
            case _:
                about.pop(rng.choice([*about]))
                about["version"] = rng.choice((0, 3, "x", None))
    return about


@kind("array-interface")
def interfaces() -> Kind:
    """What `__array_interface__`, `__array__` and sequences say is refused, or what NumPy reads of them."""

    class Liar:
        def __init__(self, length: Any, item: Any):
            self.length, self.item = length, item

        def __len__(self) -> int:
            return self.length

        def __getitem__(self, at: int) -> Any:
            if at > 9:
                raise IndexError
            return self.item

    def make(rng: random.Random) -> Any:
        if rng.random() < 0.7:
            return SimpleNamespace(__array_interface__=_interface(rng))
        item = rng.choice(
            (1, None, "x", [1, [2]], np.float32(1), lamina.ones(2), {}, b"x", 1 << 70, 1j, [[]])
        )
        return rng.choice((
            Liar(rng.choice((0, 1, 5, 1 << 40)), item), [item, 1.0], [[item], [item, item]],
            np.array([item, 1], object),
            np.zeros(2, "datetime64[s]"), np.zeros(2, [("x", "f4")]), np.array("x"), memoryview(b"abcd")[::2],
            np.zeros(3, ">f4"), np.lib.stride_tricks.as_strided(np.zeros(9, "u1")[1:], (2,), (3,)).view(),
        ))  # fmt: skip

    def check(given: Any) -> str:
        said = getattr(given, "__array_interface__", None) if isinstance(given, SimpleNamespace) else None
        x = rng_of(given)(given)
        if not isinstance(x, lamina.Tensor) or x.numel() > FEW:
            raise Wrong(f"{type(x).__name__} came")
        if said is not None:
            wanted = np.asarray(given)
            if (
                x.numpy().shape != wanted.shape
                or x.numpy().tobytes() != wanted.astype(x.numpy().dtype).tobytes()
            ):
                raise Wrong("it is not what NumPy reads")
        (x + x).sum()
        return "taken"

    ways = (lamina.tensor, lamina.asarray, lamina.as_tensor)

    def rng_of(given: Any) -> Any:
        return ways[len(repr(given)) % 3]

    return Kind(make=make, check=check, refusals=(lamina.LaminaError,), memory=1 << 28, share=1000)


# ---- states ------------------------------------------------------------------------------------------------
def _network() -> nn.Module:
    lamina.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.PReLU(), nn.Linear(4, 2))


def _odd_value(rng: random.Random) -> Any:
    return rng.choice((
        None, 1, "x", [], {}, 1.5, lamina.ones(4, 3), lamina.ones(4), lamina.ones(()),
        lamina.ones(0), lamina.ones(3, 4).T,
        lamina.ones(4, dtype=lamina.int64), lamina.ones(4, dtype=lamina.bool), lamina.ones(4, 3,
        device="meta"),
        lamina.ones(4, 3).to_sparse(), lamina.ones(4, dtype=lamina.complex64), lamina.ones(1, 3).expand(4, 3),
        np.ones((4, 3), np.float32), lamina.ones(4, 3, requires_grad=True) * 2, lamina.ones(4,
        3).bfloat16(), float("nan"),
        lamina.tensor(-1), lamina.tensor(1 << 62), [lamina.ones(4)], (1, 2), True, -1, 1 << 70,
    ))  # fmt: skip


def _changed(rng: random.Random, state: Any) -> Any:
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        where = mutations.places(state)
        if not where or rng.random() < 0.01:
            return _odd_value(rng)
        inside, key = rng.choice(where)
        other, name = rng.choice(where)
        way = rng.randrange(5)
        if way == 0:
            del inside[key]
        elif way == 1 and not isinstance(other[name], (dict, list)):
            inside[key] = other[name]
        elif way == 2 and isinstance(inside, dict):
            inside[rng.choice((f"{key}x", "", 7, None, (1,)))] = inside.pop(key)
        else:
            inside[key] = _odd_value(rng)
    return state


@kind("state-dict")
def states() -> Kind:
    """A state is refused and nothing is changed, or the network and its optimizer go on with it."""
    network = _network()
    optimizer = lamina.optim.Adam(network.parameters(), 0.01)
    x = lamina.arange(12.0).reshape(4, 3) / 12
    network(x).sum().backward()
    optimizer.step()
    good = network.state_dict(), optimizer.state_dict()

    def make(rng: random.Random) -> tuple[Any, bool, bool, bool]:
        of_network = rng.random() < 0.6
        state = copy.deepcopy(good[not of_network])
        return (
            _changed(rng, dict(state) if of_network else state),
            of_network,
            rng.random() < 0.7,
            rng.random() < 0.4,
        )

    def same(a: Any, b: Any) -> bool:
        return all(a[k].shape == b[k].shape and (a[k] == b[k]).all() for k in a) and a.keys() == b.keys()

    def check(made: tuple[Any, bool, bool, bool]) -> str:
        state, of_network, strict, assign = made
        mine = _network()
        try:
            if of_network:
                before = copy.deepcopy(mine.state_dict())
                try:
                    mine.load_state_dict(state, strict=strict, assign=assign)
                except lamina.LaminaError as error:
                    if "the others were" not in str(error) and not same(before, mine.state_dict()):
                        raise Wrong("a state was refused, and is there in part") from error
                    raise
                mine(x)
                mine.eval()(x)
            else:
                taken = lamina.optim.Adam(mine.parameters(), 0.01)
                before = str(taken.state_dict())
                try:
                    taken.load_state_dict(state)
                except lamina.LaminaError as error:
                    if str(taken.state_dict()) != before:
                        raise Wrong("a state was refused, and is there in part") from error
                    raise
                mine(x).sum().backward()
                taken.step()
        finally:
            lamina.set_grad_enabled(True)
        return "taken"

    refusals = (lamina.LaminaError,)
    return Kind(make=make, check=check, refusals=refusals, batch=500, memory=1 << 28, share=300)
