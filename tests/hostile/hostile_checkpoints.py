"""PyTorch's checkpoints for `lamina.load`: damaged ones, and those whose author pickles something odd."""

from __future__ import annotations

import io
import pickle
import random
import struct
import types
from collections import Counter, OrderedDict, defaultdict
from typing import Any

import mutations
import numpy as np
from driver import Kind, Wrong, kind
from numpy.lib.array_utils import byte_bounds

import lamina
from lamina import nn
from lamina.ir.errors import ArgumentError, DeviceError, LaminaError
from lamina.runtime.checkpoints import archive, names
from lamina.runtime.checkpoints.own_form import SavedFileError
from lamina.runtime.memory_view import TypedStorage, memory_of
from lamina.runtime.meta import NoValuesError
from lamina.runtime.sparse_tensor import Sparse

NODES, ELEMENTS = 3000, 10_000  # of an object that is compared, and of a tensor in it
_shared = lamina.arange(12.0).view(3, 4)
OBJECTS: list[Any] = [
    {
        "model": OrderedDict([("0.weight", lamina.arange(6.0).view(2, 3)), ("0.bias", lamina.ones(2))]),
        "optimizer": {"state": {0: {"step": lamina.tensor(3.0), "max": None}, 1: {}}, "lr": [0.1, (0.9, 1)]},
        "epoch": 7, "best": float("inf"),
    },
    [_shared, _shared.T[1:], nn.Parameter(_shared[0]), lamina.ones(2, 0), lamina.tensor([True, False]),
     lamina.ones(3).to(lamina.uint16), lamina.ones(2, dtype=lamina.complex64)],
    [lamina.eye(3).to_sparse(), lamina.eye(3).to_sparse_csr(), lamina.ones(2, device="meta"),
    lamina.Size((2, 3)),
     lamina.float32, lamina.device("cpu"), b"bytes", bytearray(b"b"), 1 + 2j, {1, 2}, 2**70, np.arange(4.0),
     np.float32(1), Counter("aab"), defaultdict(list, a=[1])],
]  # fmt: skip
MODULES = [
    nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.GRU(2, 3)),
    nn.TransformerEncoderLayer(4, 2, 8),
]
HARMLESS = (
    bool, int, float, complex, str, bytes, bytearray, type(None), lamina.dtype, lamina.device, np.ndarray,
    np.generic, np.dtype, names._Function, names.StorageKind, type(lamina.strided),
)  # fmt: skip
NAMED = {id(value) for value in names.values().values()}


def _stored(obj: Any, zipped: bool = True) -> bytes:
    file = io.BytesIO()
    lamina.save(obj, file, _use_new_zipfile_serialization=zipped)
    return file.getvalue()


def _load(data: bytes, weights_only: bool = True) -> Any:
    return lamina.load(io.BytesIO(data), weights_only=weights_only)


SEEDS = [*map(_stored, OBJECTS), *(_stored(obj, zipped=False) for obj in OBJECTS)]
MODULE_SEEDS = [_stored(module) for module in MODULES]


# ---- what was loaded ---------------------------------------------------------------------------------------
def _inside(x: lamina.Tensor) -> None:
    """Every element of a tensor lies in its memory."""
    if x.device.type == "meta" or not x.numel():
        return
    low, high = byte_bounds(x._data)
    begin, end = byte_bounds(memory_of(x))
    if not begin <= low <= high <= end:
        raise Wrong("a tensor leaves its storage")


def _parts(value: Any, weights_only: bool) -> list[Any]:
    """What an object holds; Wrong for an object that no file may make."""
    if isinstance(value, Sparse):
        return [*value._places, value._stored]
    if isinstance(value, lamina.Tensor):
        _inside(value)
        return [*vars(value).values()]
    if isinstance(value, TypedStorage):
        return []
    if isinstance(value, dict):
        return [*value, *value.values(), *getattr(value, "__dict__", {}).values()]
    if isinstance(value, (list, set, frozenset)) or type(value) in (tuple, lamina.Size):
        return [*value]
    if (
        isinstance(value, np.dtype)
        and value.hasobject
        or isinstance(value, np.ndarray)
        and value.dtype.hasobject
    ):
        raise Wrong("an array of objects")
    if isinstance(value, HARMLESS) or id(value) in NAMED:
        return []
    if not weights_only and isinstance(value, nn.Module):
        return [*value.__getstate__().values()]
    if not weights_only and (type(value) is types.SimpleNamespace or type(value).__module__ == "driver"):
        return [*vars(value).values()]
    named = isinstance(value, (type, types.FunctionType))
    mine = named and value.__module__.partition(".")[0] in ("lamina", "driver", "__main__")
    if not weights_only and (mine or value is types.SimpleNamespace):
        return []
    raise Wrong(f"load returned a {type(value).__name__}")


def _look(value: Any, weights_only: bool) -> int:
    """Look at an object and all that it holds; how many there are."""
    seen: dict[int, Any] = {}
    todo = [value]
    while todo:
        each = todo.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            todo += _parts(each, weights_only)
    return len(seen)


def _spelled(value: Any, depth: int = 0) -> Any:
    """A value with everything that `load` promises about it, as one that can be compared."""
    if depth > 30:
        return "deep"
    name, deeper = type(value).__name__, depth + 1
    if isinstance(value, Sparse):
        return (name, tuple(value.shape), [_spelled(x, deeper) for x in (*value._places, value._stored)])
    if isinstance(value, lamina.Tensor):
        about = (name, value.dtype.name, tuple(value.shape), value.requires_grad, str(value.device))
        if value.device.type == "meta" or value.numel() > ELEMENTS:
            return about
        return (*about, value.detach()._data.tobytes())
    if isinstance(value, (np.ndarray, np.generic)):
        return (name, value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, dict):
        return (name, [(_spelled(k, deeper), _spelled(v, deeper)) for k, v in value.items()])
    if isinstance(value, (set, frozenset)):
        return (name, sorted(map(repr, value)))
    if isinstance(value, (list, tuple)):
        return (name, [_spelled(x, deeper) for x in value])
    if isinstance(value, TypedStorage):
        return (name, value.dtype.name, len(value))
    if isinstance(value, nn.Module):
        return (name, _spelled(value.__getstate__(), deeper))
    if type(value) is types.SimpleNamespace or type(value).__module__ == "driver":
        return (name, _spelled(vars(value), deeper))
    if isinstance(value, types.FunctionType):
        return value.__qualname__
    return (name, repr(value)[:300])


# ---- damage ------------------------------------------------------------------------------------------------
def _damaged(rng: random.Random) -> tuple[bytes, int]:
    number = rng.randrange(len(SEEDS))
    return mutations.damaged(rng, SEEDS[number], SEEDS), number


@kind("pt")
def damaged_checkpoints() -> Kind:
    """Whatever damage does, `load` refuses, or gives what was saved; of the earlier format, what is there."""
    whole = [_spelled(_load(data)) for data in SEEDS]

    def check(made: tuple[bytes, int]) -> str:
        data, number = made
        value = _load(data)
        _look(value, True)
        if _spelled(value) in whole:
            return "same"
        if number < len(OBJECTS) and data.startswith(b"PK"):
            raise Wrong("a damaged archive loads as something else")
        return "other"

    return Kind(make=_damaged, check=check, refusals=(SavedFileError, DeviceError), share=2000)


# ---- pickles that an author writes -------------------------------------------------------------------------
def _members(data: bytes) -> list[tuple[str, bytes]]:
    whole = archive.Archive(archive.InMemory(data), "seed")
    return [(name, whole.read(name)) for name in whole.members]


def _text(text: str) -> bytes:
    raw = text.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def _spell(value: Any) -> bytes:
    return pickle.dumps(value, 2)[2:-1]


def _tensor(rng: random.Random) -> bytes:
    """What makes a tensor over a storage of the first seed; mostly one thing of it is odd."""
    odd, number = rng.randrange(12), rng.choice((*mutations.EXTREMES, -1))
    key, count = rng.choice((("0", 6), ("0", 6), ("1", 2), ("2", 1)))
    size, stride = rng.choice(
        (((2, 3), (3, 1)), ((6,), (1,)), ((), ()), ((0, 2), (2, 1)), ((9,), (0,)), ((3,), (2,)))
    )
    shape = tuple(rng.choice((number, n)) for n in size) if odd == 0 else size
    steps = tuple(rng.choice((number, n)) for n in stride) if odd == 1 else stride
    dtype = rng.choice(("Float", "Double", "Bool", "Long", "Half")) if odd == 2 else "Float"
    place = rng.choice(("meta", "cuda:0", "x")) if odd == 3 else "cpu"
    parts = (
        f"ctorch\n{dtype}Storage\n".encode(), _text(rng.choice(("0", "3", "x"))) if odd == 4 else _text(key),
        _text(place),
        _spell(rng.choice((number, 3, 12)) if odd == 5 else count),
    )  # fmt: skip
    storage = b"(" + _text("storage") + b"".join(parts) + b"tQ"
    if rng.random() < 0.1:
        return storage
    offset = _spell(rng.choice((0, 0, 1, number)) if odd == 6 else 0)
    asks = rng.choice((b"\x88", b"N", b"K\1")) if odd == 7 else b"\x89"
    rest = offset + _spell(shape) + _spell(steps) + asks + b"ccollections\nOrderedDict\n)R"
    if odd == 8:
        wide = rng.choice(("float64", "bool", "complex128", "uint8", "float8_e5m2", "int16"))
        return b"ctorch._utils\n_rebuild_tensor_v3\n(" + storage + rest + f"ctorch\n{wide}\n".encode() + b"tR"
    made = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"tR"
    if odd == 9:
        return b"ctorch._utils\n_rebuild_parameter\n(" + made + b"\x88ccollections\nOrderedDict\n)RtR"
    return made


def _fragment(rng: random.Random) -> bytes:
    """A few opcodes that belong together, or nearly."""
    number = rng.choice((*mutations.EXTREMES, -1, rng.randrange(20)))
    module, _, leaf = rng.choice(rng.choice((NAMES, OTHERS))).rpartition(".")
    named = f"c{module}\n{leaf}\n".encode()
    way = rng.randrange(20)
    if way < 9:
        return _tensor(rng)
    if way < 12:
        return named + rng.choice(
            (b"", b"", b"", b")R", b")\x81", b")\x81}b", b"]\x85R", _text("a") + b"\x85R")
        )
    if way < 17:
        values = (
            number,
            (number, 2),
            "a",
            "cpu",
            "f4",
            1.5,
            None,
            True,
            b"abcd",
            1j,
            {1, 2},
            np.arange(3.0),
            {"a": 1},
        )
        return _spell(rng.choice(values))
    return rng.choice((
        b"(", b")", b"]", b"}", b"\x8f", b"R", b"b", b"\x81", b"a", b"e", b"s", b"u", b"t", b"\x85", b"\x86",
        b"\x87",
        b"q" + bytes([rng.randrange(4)]), b"h" + bytes([rng.randrange(4)]), b"0", b"1", b"2", b"l", b"d",
        b"\x90", b"\x91",
        b"\x94", b"\x93", b"Q", b"o", b"\x92", b".",
    ))  # fmt: skip


def _changed(rng: random.Random, data: bytes) -> bytes:
    """A pickle in which numbers or texts are others, each spelled as it should be."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = _opcodes(data)
        some = [i for i, (name, value, _) in enumerate(places) if type(value) in (int,
        str) and "PUT" not in name
                and "GET" not in name and name not in ("PROTO", "GLOBAL")]  # fmt: skip
        if not some:
            return data
        i = rng.choice(some)
        _, value, at = places[i]
        end = places[i + 1][2]
        if isinstance(value, int):
            other: Any = rng.choice(
                (value + rng.choice((-1, 1, 8)), value * 2, rng.choice(mutations.EXTREMES), -1, "0")
            )
        else:
            other = rng.choice(
                ("", "0", "1", "cpu", "meta", "storage", "_parameters", "_modules", "weight", "x", 1)
            )
        data = data[:at] + (_text(other) if isinstance(other, str) else _spell(other)) + data[end:]
    return data


OTHERS = [
    "os.system", "builtins.eval", "builtins.getattr", "torch.nn.modules.linear.Linear",
    "torch.nn.functional.relu",
    "torch.nn.modules.container.Sequential", "lamina.nn.module.Module", "types.SimpleNamespace",
    "random.Random",
    "torch.nn.modules.rnn.LSTM", "lamina.nn.members.Members", "__main__.main", "driver.Kind", "driver.Wrong",
    "random.SystemRandom", "json.JSONDecoder", "subprocess.Popen",
]  # fmt: skip
NAMES = sorted(names.values())


def _authored(rng: random.Random) -> tuple[bytes, bool]:
    """An archive whose pickle an author changed or wrote, and whether weights alone are asked for."""
    weights_only = rng.random() < 0.5
    members = dict(
        _members(
            rng.choice(SEEDS[: len(OBJECTS)] if weights_only else [*SEEDS[: len(OBJECTS)], *MODULE_SEEDS])
        )
    )
    data, way = members["data.pkl"], rng.randrange(9)
    if way == 0:
        data = mutations.damaged(rng, data)
    elif way == 1:  # opcodes put in, taken out or changed, at their borders
        for _ in range(rng.randrange(1, 4)):
            places = [at for _, _, at in _opcodes(data)] or [0]
            at, end = rng.choice(places), rng.choice(places)
            data = (
                data[:at]
                + rng.choice((_fragment(rng), data[at:end][:200], b""))
                + data[rng.choice((at, at, end)) :]
            )
    elif way in (2, 7, 8):
        members = dict(_members(SEEDS[0]))
        data = (
            b"\x80\2("
            + b"".join(_fragment(rng) for _ in range(rng.randrange(1, 5)))
            + rng.choice((b"t.", b"l."))
        )
    elif way in (5, 6):
        data = _changed(rng, data)
    elif way == 3:  # a name becomes another
        old, new = (rng.choice(some).rpartition(".") for some in (NAMES, rng.choice((NAMES, OTHERS))))
        spelled = f"c{old[0]}\n{old[2]}\n".encode()
        if spelled not in data:
            spelled = b"ctorch._utils\n_rebuild_tensor_v2\n"
        data = data.replace(spelled, f"c{new[0]}\n{new[2]}\n".encode(), rng.choice((1, -1)))
    else:
        name = rng.choice([*members])
        members[name] = mutations.damaged(rng, members[name])
        data = members["data.pkl"]
    members["data.pkl"] = data
    return b"".join(map(bytes, archive.pieces([*members.items()]))), weights_only


def _opcodes(data: bytes) -> list[tuple[str, Any, int]]:
    import pickletools

    found = []
    try:
        for opcode, argument, at in pickletools.genops(data):
            found.append((opcode.name, argument, at))
    except Exception:  # what was changed before may be no pickle any more
        pass
    return found


@kind("pt-authored")
def authored_checkpoints() -> Kind:
    """What an author pickles is refused, or is made of Lamina's and plain values, inside of its storages."""

    def check(made: tuple[bytes, bool]) -> str:
        data, weights_only = made
        value = _load(data, weights_only)
        if _look(value, weights_only) > NODES:
            return "large"
        try:
            raw = _stored(value)
        except (ArgumentError, NoValuesError):
            return "other"  # a class that was named and has no name to be saved by; a storage without values
        except LaminaError as error:
            raise Wrong(f"what was loaded can't be saved: {error}") from None
        try:
            again = _load(raw, weights_only)
        except SavedFileError as error:
            if "names" in str(error) or "asks for" in str(error):  # a class that stands for itself
                return "other"
            raise Wrong(f"what was loaded can't be loaded when it was saved: {error}") from None
        if _spelled(again) != _spelled(value):
            raise Wrong("what was loaded is another when it was saved and loaded again")
        return "other"

    return Kind(make=_authored, check=check, refusals=(SavedFileError, DeviceError), share=500)
