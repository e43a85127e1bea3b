"""PyTorch's checkpoints without PyTorch: what is refused, what whole modules are, and what damage does.

tests/peers/test_torch_checkpoints.py holds the format itself to PyTorch.
"""

import argparse
import collections
import dataclasses
import enum
import io
import json
import os
import pathlib
import pickle
import re
import shutil
import struct
import subprocess
import sys
import types
import zipfile

import numpy as np
import pytest

import lamina
from lamina import distributions, nn
from lamina.ir.errors import ArgumentError, ArgumentValueError, DeviceError, LaminaError
from lamina.runtime.checkpoints import archive as archives
from lamina.runtime.checkpoints import classes
from lamina.serialization import (
    RefusedNameError,
    SavedFileError,
    add_safe_globals,
    clear_safe_globals,
    get_safe_globals,
    get_unsafe_globals_in_checkpoint,
    safe_globals,
)  # fmt: skip

HEADER = b"\x80\x02"


def stored(obj: object, **kwargs: object) -> bytes:
    file = io.BytesIO()
    lamina.save(obj, file, **kwargs)
    return file.getvalue()


def again(obj: object, **kwargs: object) -> object:
    return lamina.load(io.BytesIO(stored(obj)), **kwargs)


def archive(data: bytes, **members: bytes) -> bytes:
    """A checkpoint with this pickle."""
    parts = {"data.pkl": data, "version": b"3\n"} | {
        name.replace("_", "/"): raw for name, raw in members.items()
    }
    return b"".join(map(bytes, archives.pieces([*parts.items()])))


def load(data: bytes, **kwargs: object) -> object:
    return lamina.load(io.BytesIO(data), **kwargs)


# ---- the program's own, which files may name with weights_only=False ---------------------------------------
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(2, width)
        self.config = Config(width, [1, 2])
        self.act = activation
        self.register_buffer("count", lamina.zeros(1), persistent=False)

    def forward(self, x):
        return self.act(self.first(x))


@dataclasses.dataclass
class Config:
    width: int
    sizes: list
    kind: "Kind" = None


class Kind(enum.Enum):
    A = 1
    B = "b"


class Table(dict):
    pass


class Slotted:
    __slots__ = ("a", "b")


class Restored:
    def __setstate__(self, state):
        self.seen = state


class Point(collections.namedtuple("Point", "x y")):
    pass


Pair = collections.namedtuple("Pair", "x y")
CALLED = []


class Finalized:
    def __del__(self):
        CALLED.append(self.path)


class Made:
    def __new__(cls, *args):
        CALLED.append(args)
        return object.__new__(cls)


class Hashed:
    def __hash__(self):
        CALLED.append("hash")
        return 0


class Descriptor:
    def __set__(self, obj, value):
        CALLED.append(value)


class Described:
    attribute = Descriptor()


def activation(x):
    CALLED.append(x)
    return x.relu()


def test_a_module_of_the_program_comes_back_whole():
    net = Net(3).eval()
    found = again({"net": net, "epoch": 3}, weights_only=False)["net"]
    assert type(found) is Net and not found.training and found.config == net.config
    assert found.act is activation and found.count.tolist() == [0.0]
    x = lamina.ones(1, 2)
    assert found(x).tolist() == net(x).tolist()
    found.first.weight.data.fill_(0)
    assert net.first.weight.abs().sum() > 0
    optimizer = lamina.optim.SGD(found.parameters(), lr=0.1)
    found(x).sum().backward()
    optimizer.step()


def test_distributions_are_taken_as_modules_are():
    normal = distributions.Normal(lamina.zeros(2), lamina.ones(2))
    mapped = distributions.TransformedDistribution(normal, [distributions.ExpTransform()])
    saved = {"mapped": mapped, "each": distributions.Independent(normal, 1),
             "above": distributions.constraints.greater_than(1.0)}  # fmt: skip
    found = again(saved, weights_only=False)
    for name in ("mapped", "each"):
        x = saved[name].sample()
        assert (found[name].log_prob(x) == saved[name].log_prob(x)).all()
    assert found["above"].check(lamina.tensor([1.0, 2.0])).tolist() == [False, True]
    with pytest.raises(LaminaError, match="Normal"):
        again(normal, weights_only=True)


def test_classes_of_tensors_and_of_none_come_back():
    obj = [type(None), lamina.Tensor, lamina.nn.Parameter, lamina.Size, {"kinds": (type(None), int)}]
    assert again(obj) == obj


def test_objects_of_the_program_come_back():
    slotted, table, bare = Slotted(), Table(a=1), Restored()
    slotted.a, table.tag, bare.x = 1, "t", 2
    obj = [
        Config(1, [2], Kind.B), Kind.A, slotted, table, bare, Pair(1, 2), argparse.Namespace(lr=0.1),
        types.SimpleNamespace(a=1), pathlib.Path("a/b"), Net, activation, len,
    ]  # fmt: skip
    found = again(obj[:-1], weights_only=False)
    assert found[0] == obj[0] and found[1] is Kind.A and found[2].a == 1 and not hasattr(found[2], "b")
    assert type(found[3]) is Table and found[3] == {"a": 1} and found[3].tag == "t"
    assert found[4].seen == {"x": 2} and found[5] == (1, 2) and type(found[5]) is Pair
    assert found[6] == argparse.Namespace(lr=0.1) and found[7] == types.SimpleNamespace(a=1)
    assert found[8] == pathlib.Path("a/b") and found[9] is Net and found[10] is activation
    with pytest.raises(RefusedNameError, match="builtins.len"):
        again(obj, weights_only=False)


def test_weights_only_refuses_classes_by_name_and_says_what_to_do():
    with pytest.raises(RefusedNameError) as caught:
        again({"net": Net(1)})
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        f"load(): Weights only load failed: the file names {Net.__module__}.Net, which is not taken from "
        "files"
    )
    assert (
        "add_safe_globals([Net])" in lines[1]
        and "weights_only=False" in lines[2]
        and "state_dict" in lines[3]
    )
    assert isinstance(caught.value, pickle.UnpicklingError) and isinstance(caught.value, LaminaError)


def test_safe_globals_are_what_load_takes():
    clear_safe_globals()
    obj = Config(1, [2])
    with safe_globals([Config]):
        assert again(obj) == obj and get_safe_globals() == [Config]
    with pytest.raises(RefusedNameError):
        again(obj)
    try:
        add_safe_globals([Config, (Net, "elsewhere.Net"), shutil.rmtree, os.system])
        assert again(obj) == obj
        data = HEADER + b"celsewhere\nNet\n."
        assert load(archive(data)) is Net
        with pytest.raises(RefusedNameError, match="nothing of that module is ever taken"):
            load(archive(HEADER + b"cposix\nsystem\nX\x04\0\0\0true\x85R."))
        assert get_unsafe_globals_in_checkpoint(io.BytesIO(stored([obj, Kind.A]))) == [
            f"{Kind.__module__}.Kind"
        ]
    finally:
        clear_safe_globals()
    assert get_safe_globals() == []
    for wrong in ("Config", [3], ["Config"], 3):
        with pytest.raises(ArgumentError):
            add_safe_globals(wrong)
    with pytest.raises(ArgumentValueError, match="Expected input to be a checkpoint"):
        get_unsafe_globals_in_checkpoint(io.BytesIO(b"text"))


def test_a_whole_module_is_loaded_where_its_classes_are_safe():
    """What scripts list: the classes of modules, and nothing that a module is made of inside."""
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.BatchNorm2d(2))
    kinds = [nn.Sequential, nn.Conv2d, nn.ReLU, nn.BatchNorm2d]
    named = get_unsafe_globals_in_checkpoint(io.BytesIO(stored(net)))
    assert set(named) == {f"{kind.__module__}.{kind.__qualname__}" for kind in kinds}
    with safe_globals(kinds):
        found = again(net)
    x = lamina.randn(2, 1, 4, 4)
    assert lamina.equal(found(x), net(x)) and repr(found) == repr(net)
    found[0].weight.requires_grad_(False)
    found[0] = nn.Conv2d(1, 2, 3)  # its dictionaries are members' again
    assert list(found.state_dict()) == list(net.state_dict()) and found[0] is found._modules["0"]


# ---- what a hostile file can reach -------------------------------------------------------------------------
HERE = Net.__module__
REACHES = {
    "system": ("os", "system"), "posix": ("posix", "system"), "eval": ("builtins", "eval"),
    "old eval": ("__builtin__", "eval"), "getattr": ("builtins", "getattr"), "exec": ("builtins", "exec"),
    "import": ("builtins", "__import__"), "open": ("builtins", "open"), "map": ("builtins", "map"),
    "partial": ("functools", "partial"), "reduce": ("functools", "reduce"),
    "itemgetter": ("operator", "itemgetter"),
    "attrgetter": ("operator", "attrgetter"), "caller": ("operator", "methodcaller"),
    "rmtree": ("shutil", "rmtree"),
    "function": ("types", "FunctionType"), "code": ("types", "CodeType"), "method": ("types", "MethodType"),
    "popen": ("subprocess", "Popen"), "ctypes": ("ctypes", "CDLL"), "pickle": ("pickle", "loads"),
    "numpy": ("numpy", "load"), "runstring": ("numpy.testing._private.utils", "runstring"),
    "timeit": ("timeit", "timeit"), "pdb": ("pdb", "run"), "imported": (HERE, "os"),
    "within": (HERE, "os.system"),
    "of another": (HERE, "shutil.rmtree"), "globals": (HERE, "activation.__globals__"),
    "mro": (HERE, "Net.__mro__"), "subclasses": (HERE, "Net.__subclasses__"), "init": (HERE, "Net.__init__"),
    "lamina load": ("lamina", "load"), "torch load": ("torch", "load"), "hub": ("torch.hub", "load"),
    "trace": ("lamina.jit", "trace"), "optimizer": ("lamina.optim.rules", "SGD"),
    "hook": ("lamina.nn.hooks", "Hook"),
    "function of nn": ("torch.nn.functional", "np"), "init of nn": ("torch.nn.init", "normal_"),
    "file": ("lamina.ir.own_files", "remove"), "not loaded": ("this", "s"),
    "antigravity": ("antigravity", "x"),
}  # fmt: skip


@pytest.mark.parametrize("how", ["GLOBAL", "STACK_GLOBAL", "INST"])
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize("reach", [*REACHES])
def test_nothing_dangerous_can_be_named(reach, weights_only, how):
    module, name = REACHES[reach]
    argument = b"X\x05\0\0\0false"
    if how == "GLOBAL":
        data = f"c{module}\n{name}\n".encode() + argument + b"\x85R."
    elif how == "INST":
        data = b"(" + argument + f"i{module}\n{name}\n".encode() + b"."
    else:
        texts = (b"X" + struct.pack("<I", len(x)) + x.encode() for x in (module, name))
        data = b"".join(texts) + b"\x93" + argument + b"\x85R."
    loaded = {*sys.modules}
    with pytest.raises(RefusedNameError) as caught:
        load(archive(HEADER + data), weights_only=weights_only)
    shown = f"{module}.{name}".replace("__builtin__", "builtins")
    assert shown in str(caught.value).splitlines()[0] and {*sys.modules} == loaded


@pytest.mark.parametrize("data", [
    b"c{here}\nactivation\nK\1\x85R.",  # a call of a function of the program
    b"c{here}\nConfig\nK\1]\x86R.", b"c{here}\nNet\nK\1\x85R.", b"c{here}\nKind\nK\7\x85R.",
    b"c{here}\nMade\n)\x81.", b"c{here}\nFinalized\n)\x81.", b"c{here}\nPoint\nK\1K\2\x86\x81.",
    b"c{here}\nFinalized\n)\x81}X\4\0\0\0pathK\1sb.", b"c{here}\nactivation\n)\x81.",
    b"}c{here}\nHashed\n)\x81K\1s.", b"\x8f(c{here}\nHashed\n)\x81\x90.",
    b"c{here}\nNet\n)\x81}X\7\0\0\0forwardc{here}\nactivation\nsb.",
    b"c{here}\nDescribed\n)\x81N}X\x09\0\0\0attributeK\1s\x86b.",
    b"c{here}\nRestored\nc__builtin__\nobject\nN\x87cos\nsystem\n.",
    b"c__builtin__\nlist\n)R.", b"c__builtin__\nobject\n)\x81.", b"c__builtin__\nint\nK\1\x85R.",
    b"ccollections\ndefaultdict\nc{here}\nactivation\n\x85R.",
    b"ccopy_reg\n_reconstructor\nc{here}\nMade\nc__builtin__\nobject\nN\x87R.",
    b"ccopy_reg\n_reconstructor\nc{here}\nNet\nc__builtin__\nint\nK\1\x87R.",
    b"ctorch._tensor\n_rebuild_from_type_v2\n(c{here}\nactivation\nctorch\nTensor\n)}tR.",
    b"Pabc\n.", b"X\1\0\0\0aQ.", b"\x82\1.", b"\x97.",
], ids=range(25))  # fmt: skip
def test_nothing_of_the_program_is_called(data):
    CALLED.clear()
    with pytest.raises(SavedFileError):
        load(archive(HEADER + data.replace(b"{here}", HERE.encode())), weights_only=False)
    assert CALLED == []


@pytest.mark.parametrize("attribute", ["_data", "numpy", "grad", "__class__", "_meta", "a b", ""])
def test_attributes_can_not_stand_for_methods(attribute):
    text = b"X" + struct.pack("<I", len(attribute)) + attribute.encode()
    meta = b"(ctorch\nfloat32\nK\2\x85K\1\x85\x89t"
    rebuilt = b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_meta_tensor_no_storage\n"
    with pytest.raises(SavedFileError):
        load(archive(HEADER + rebuilt + b"ctorch\nTensor\n" + meta + b"}" + text + b"K\1stR."))


def test_the_state_of_a_module_is_looked_at():
    for state in ({"_parameters": 3}, {"_modules": {"a": 1}}, {"_parameters": {"a": 1}},
        {"_buffers": {1: None}},
                  {"_forward_hooks": {0: 1}}, 3, {1: 2}, {"_call_hooks": 3}):  # fmt: skip
        with pytest.raises(SavedFileError):
            data = pickle.dumps(state, 2)[2:-1]
            load(
                archive(HEADER + b"ctorch.nn.modules.linear\nIdentity\n)\x81" + data + b"b."),
                weights_only=False,
            )


# ---- bounds ------------------------------------------------------------------------------------------------
def tensor(
    storage: bytes, offset: int, size: tuple, stride: tuple, count: int, kind: bytes = b"FloatStorage"
) -> bytes:
    spell = [pickle.dumps(x, 2)[2:-1] for x in (count, offset, size, stride)]
    pid = b"((X\7\0\0\0storagectorch\n" + kind + b"\nX\1\0\0\0" + b"0X\3\0\0\0cpu" + spell[0] + b"tQ"
    data = (
        b"ctorch._utils\n_rebuild_tensor_v2\n"
        + pid
        + b"".join(spell[1:])
        + b"\x89ccollections\nOrderedDict\n)RtR."
    )
    return archive(HEADER + data, data_0=storage)


def test_tensors_stay_inside_their_storages():
    whole = bytes(24)
    assert load(tensor(whole, 1, (2, 2), (2, 1), 6)).shape == (2, 2)
    assert load(tensor(whole, 0, (1 << 40,), (0,), 6)).shape == (1 << 40,)
    for offset, size, stride, count in (
        (0, (7,), (1,), 6), (1, (6,), (1,), 6), (-1, (2,), (1,), 6), (0, (-2,), (1,), 6), (0, (2,), (-1,), 6),
        (0, (2, 2), (1,), 6), (1 << 62, (2,), (1,), 6), (0, (2,), (1 << 62,), 6),
        (0, (1 << 62, 0, 8), (1, 1, 1), 6),
        (0, (1,) * 65, (1,) * 65, 6), (0, (2.0,), (1,), 6), (True, (2,), (1,), 6), (0, (2,), (1,), 5),
        (0, (2,), (1,), 7), (0, (2,), (1,), -6), (0, (2,), (1,), 1 << 62), (0, (1 << 62,), (0,), 6),
    ):  # fmt: skip
        with pytest.raises(SavedFileError):
            load(tensor(whole, offset, size, stride, count))
    assert load(tensor(whole, 9, (0,), (1 << 62,), 6)).shape == (0,)
    assert load(tensor(b"\0\1\2\xff", 0, (4,), (1,), 4, b"BoolStorage")).tolist() == [False, True, True, True]


@pytest.mark.parametrize("data", [
    b"(" * 10, b"]" * 50_000, b"]q\0" + b"h\0a" * 10 + b".", b"X\xff\xff\xff\xffa.", b"\x8b\xff\xff\xff\x7f.",
    b"h\0.", b"j\xff\xff\xff\xff.", b".", b"", b"K\1", b"NN.", b"K\1a.", b"N}s.", b"R.", b"\x85.", b"t.",
    b"u.",
    b"(K\1u.", b"cabc", b"c\xff\n\xff\n.", b"I1x\n.", b"L" + b"9" * 5000 + b"\n.", b"F1x\n.", b"S'a\n.",
    b"}]K\1s.", b"X\1\0\0\0\xffX.", b"K\1K\2b.", b"ccollections\nOrderedDict\nK\1\x85R.",
    b"ccollections\nOrderedDict\n)R}X\5\0\0\0itemsK\1sb.", b"ctorch\ndevice\nX\3\0\0\0tpu\x85R.",
    b"cnumpy\ndtype\nX\1\0\0\0O\x89\x88\x87R.", b"cnumpy\ndtype\nX\2\0\0\0i,\x89\x88\x87R.",
], ids=range(32))  # fmt: skip
def test_pickles_that_mean_nothing_are_refused(data):
    if data.startswith(b"]q\0"):
        assert load(archive(HEADER + data))[0][0] is not None  # a list within itself is one
        return
    with pytest.raises(SavedFileError):
        load(archive(HEADER + data))


def test_keys_are_hashed_in_bounded_time():
    deep = b")" + b"\x85" * 100_000
    wide = b")" + b"q\0h\0\x86" * 60
    large = b"\x8b" + struct.pack("<I", 5000) + b"\1" * 5000
    for key in (deep, wide, large):
        for form in (b"}" + key + b"Ns.", key + b"Q.", b"\x8f(" + key + b"\x90."):
            with pytest.raises(SavedFileError):
                load(archive(HEADER + form))


def test_few_bytes_do_not_ask_for_much_memory():
    text = b"X" + struct.pack("<I", 100_000) + b"a" * 100_000
    copies = b"c_codecs\nencode\nh\0X\6\0\0\0latin1\x86R"
    with pytest.raises(SavedFileError, match="copies of more than it holds"):
        load(archive(HEADER + b"](" + text + b"q\0" + copies * 1000 + b"e."))
    with pytest.raises(SavedFileError, match="defaultdicts"):
        load(archive(HEADER + b"](" + b"ccollections\ndefaultdict\n)R" * 1001 + b"e."))


def test_deep_nesting_is_read_and_freed():
    found = load(archive(HEADER + b"]" * 200_000 + b"a" * 199_999 + b"."))
    assert len(found) == 1
    with pytest.raises(ArgumentError, match="nested too deeply"):
        stored(found)


# ---- containers --------------------------------------------------------------------------------------------
def test_archives_that_others_write_are_refused_by_what_they_are():
    def zipped(method=zipfile.ZIP_STORED, **members):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", method) as made:
            for name, data in members.items():
                made.writestr(name.replace("__", "/").replace("_", "."), data)
        return file.getvalue()

    good = pickle.dumps([1], 2)
    assert load(zipped(a__data_pkl=good, a__version="3")) == [1]
    for data, why in (
        (zipped(a__data_pkl=good, a__constants_pkl=good), "TorchScript archive"),
        (zipped(a__data_pkl=good, a__evil="x"), "member 'evil'"),
        (zipped(data_pkl=good), "member 'data.pkl'"),
        (zipped(zipfile.ZIP_DEFLATED, a__data_pkl=good * 9), "compressed"),
        (zipped(a__version="3"), "without data.pkl"),
        (zipped(a__data_pkl=good, b__data_pkl=good), "twice"), (zipped(), "zip archive|no safetensors"),
        (zipped(a__data_pkl=good, a__byteorder="big?"), "byte order"),
        (zipped(a__data_pkl=good) + b"x", "follows"),
    ):  # fmt: skip
        with pytest.raises(SavedFileError, match=why):
            load(data)


def test_big_files_have_wide_numbers(monkeypatch):
    """With the limits of plain zip set low, all that would be beyond 4 GB is written and read."""
    obj = {"x": lamina.arange(100.0), "y": lamina.ones(3)}
    monkeypatch.setattr(archives, "LIMIT", 300)
    wide = stored(obj)
    monkeypatch.undo()
    assert b"PK\6\6" in wide and b"PK\6\7" in wide and b"PK\6\6" not in stored(obj)
    assert load(wide)["x"].tolist() == obj["x"].tolist() and load(wide)["y"].tolist() == [1, 1, 1]
    with zipfile.ZipFile(io.BytesIO(wide)) as made:
        assert made.testzip() is None and made.getinfo("archive/data/0").file_size == 400


def test_every_truncation_and_changed_byte_is_noticed():
    obj = {"x": lamina.arange(6.0).view(2, 3), "n": [1, None, "a"]}
    raw = stored(obj)
    for length in range(len(raw)):
        with pytest.raises(SavedFileError):
            load(raw[:length])
    rng = np.random.default_rng(0)
    for at in range(len(raw)):
        damaged = bytearray(raw)
        damaged[at] ^= int(rng.integers(1, 256))
        try:
            found = load(bytes(damaged))
        except (SavedFileError, DeviceError):
            continue
        assert found["n"] == obj["n"] and found["x"].tolist() == obj["x"].tolist(), at


@pytest.mark.parametrize("zip_format", [True, False])
def test_storages_are_written_once_and_aligned(zip_format):
    x = lamina.ones(1000)
    raw = stored(
        {"a": x, "b": [x.detach(), x[:10]], "c": x.view(10, 100).T}, _use_new_zipfile_serialization=zip_format
    )
    assert len(raw) < 4000 + 2500
    found = load(raw)
    found["a"][0] = 5.0
    assert found["b"][0][0] == found["b"][1][0] == found["c"][0, 0] == 5.0
    if zip_format:
        with zipfile.ZipFile(io.BytesIO(raw)) as made:
            assert made.testzip() is None
            for info in made.infolist():
                names, extra = struct.unpack("<2H", raw[info.header_offset + 26 : info.header_offset + 30])
                assert (info.header_offset + 30 + names + extra) % 64 == 0


def test_what_numpy_has_no_strides_for_is_copied():
    a = np.arange(6.0)
    obj = [lamina.from_numpy(a[::2]), lamina.from_numpy(np.arange(4, dtype=np.int16)[1:])]
    assert [x.tolist() for x in again(obj)] == [[0, 2, 4], [1, 2, 3]]
    bytes_ = lamina.arange(12).to(lamina.uint8)
    found = again([bytes_, bytes_[4:12].view(lamina.float32), bytes_[1:3]])
    assert [x.dtype for x in found] == [lamina.uint8, lamina.float32, lamina.uint8]
    assert found[2].tolist() == [1, 2] and found[1].shape == (2,)


def test_map_location():
    raw = stored({"x": lamina.ones(2)})
    calls = []

    def keep(storage, location):
        calls.append((len(storage), location))
        return storage

    for place in (None, "cpu", lamina.device("cpu"), {"cuda:0": "cpu"}, keep, lambda storage, location: None):
        assert load(raw, map_location=place)["x"].tolist() == [1, 1]
    assert calls == [(2, "cpu")]
    assert load(raw, map_location="meta")["x"].device.type == "meta"
    cuda = raw.replace(b"X\3\0\0\0cpu", b"X\6\0\0\0cuda:0")
    data = load_pickle(raw).replace(b"X\3\0\0\0cpu", b"X\6\0\0\0cuda:0")
    assert cuda != raw
    cuda = archive(data, data_0=bytes(8))
    with pytest.raises(DeviceError, match="map_location='cpu'"):
        load(cuda)
    assert load(cuda, map_location={"cuda:0": "cpu"})["x"].tolist() == [0, 0]
    for wrong in (3, [1]):
        with pytest.raises(ArgumentError):
            load(raw, map_location=wrong)
    with pytest.raises(DeviceError):
        load(raw, map_location="cuda")
    with pytest.raises(ArgumentError, match="the function gave a int"):
        load(raw, map_location=lambda storage, location: 3)


def load_pickle(raw: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(raw)) as made:
        return made.read("archive/data.pkl")


def test_arguments_of_load(tmp_path):
    raw = stored([1])
    with pytest.raises(ArgumentError, match="Can not safely load weights when explicit pickle_module"):
        load(raw, pickle_module=pickle)
    assert load(raw, pickle_module=pickle, weights_only=False) == [1]
    with pytest.raises(ArgumentValueError, match="f must be a file path"):
        load(raw, mmap=True)
    lamina.save([1], tmp_path / "x.pt", _use_new_zipfile_serialization=False)
    with pytest.raises(ArgumentValueError, match="mmap can only be used with"):
        lamina.load(tmp_path / "x.pt", mmap=True)
    with pytest.raises(ArgumentValueError, match="encoding"):
        load(raw, encoding="rot13")
    assert load(archive(HEADER + b"U\2a\xe9."), encoding="latin1") == "aé"
    assert load(archive(HEADER + b"U\2a\xe9."), encoding="bytes") == b"a\xe9"
    with pytest.raises(SavedFileError):
        load(archive(HEADER + b"U\2a\xe9."))


def test_the_name_decides_the_form_and_the_content_the_reader(tmp_path):
    obj = {"x": lamina.ones(2)}
    for name in ("a.pt", "a.pth", "a.bin", "a.ckpt", "a", "a.tar"):
        lamina.save(obj, tmp_path / name)
        assert zipfile.is_zipfile(tmp_path / name), name
        assert lamina.load(tmp_path / name)["x"].tolist() == [1, 1]
    lamina.save(obj, tmp_path / "a.safetensors")
    assert not zipfile.is_zipfile(tmp_path / "a.safetensors")
    os.rename(tmp_path / "a.safetensors", tmp_path / "b.pt")
    os.rename(tmp_path / "a.pt", tmp_path / "b.safetensors")
    for name in ("b.pt", "b.safetensors"):
        assert lamina.load(tmp_path / name)["x"].tolist() == [1, 1]


# ---- models in several files -------------------------------------------------------------------------------
def test_indexes_name_files_beside_them(tmp_path):
    for number in (1, 2):
        lamina.save({f"w{number}": lamina.full((2,), number)}, tmp_path / f"m{number}.safetensors")
    lamina.save({"w3": lamina.zeros(1)}, tmp_path / "m3.bin")
    index = tmp_path / "m.index.json"

    def read(weights):
        index.write_text(json.dumps({"weight_map": weights}))
        return lamina.load(index)

    found = read({"w2": "m2.safetensors", "w1": "m1.safetensors", "w3": "m3.bin"})
    assert [*found] == ["w2", "w1", "w3"] and found["w2"].tolist() == [2, 2]
    for weights in (
        {"w": "m1.safetensors"}, {"w1": "../m1.safetensors"}, {"w1": str(tmp_path / "m1.safetensors")},
        {"w1": "m.index.json"}, {"w1": 3}, [], {"w1": ""}, {"w1": ".."}, {"w1": "a\0b"},
    ):  # fmt: skip
        with pytest.raises(SavedFileError):
            read(weights)
    with pytest.raises(FileNotFoundError):
        read({"w1": "absent"})
    index.write_text("{")
    with pytest.raises(SavedFileError, match="no index of a model"):
        lamina.load(index)


# ---- the rest ----------------------------------------------------------------------------------------------
def test_what_has_no_name_is_refused_when_it_is_saved():
    class Local(nn.Module):
        pass

    for obj, why in (
        ({"a": [Local()]}, "a.0 needs .*Local, and no reader"), (lambda: 1, "no reader could look that up"),
        (open(os.devnull), "can't be pickled"), ([nn.LazyLinear(2)], "has no shape yet"),
    ):  # fmt: skip
        with pytest.raises(LaminaError, match=why):
            stored(obj)
        if hasattr(obj, "close"):
            obj.close()


def test_a_class_is_of_the_program_by_where_its_file_lies(tmp_path, monkeypatch):
    for folder, taken in (("own", True), ("site-packages", False)):
        home = tmp_path / folder
        home.mkdir()
        (home / f"module_{folder[:3]}.py").write_text(
            "class A:\n    pass\ndef __getattr__(name):\n    raise SystemExit\n"
        )
        monkeypatch.syspath_prepend(home)
        made = __import__(f"module_{folder[:3]}").A()
        if taken:
            assert type(again(made, weights_only=False)) is type(made)
            with pytest.raises(RefusedNameError, match="has no B"):
                load(archive(HEADER + b"cmodule_own\nB\n."), weights_only=False)
        else:
            with pytest.raises(RefusedNameError, match="no module of your own program"):
                again(made, weights_only=False)
    assert not classes._is_users(json) and not classes._is_users(np) and not classes._is_users(sys)


def test_scripts_for_pytorch_save_and_load_as_there(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "from torch import nn\n"
        "from torch.serialization import safe_globals\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(2, 2)\n"
        "net = Net()\n"
        "torch.save(net, 'net.pt')\n"
        "found = torch.load('net.pt', weights_only=False)\n"
        "assert type(found) is Net and found.fc.weight.tolist() == net.fc.weight.tolist()\n"
        "torch.save({'model': net.state_dict()}, 'state.pth')\n"
        "net.load_state_dict(torch.load('state.pth', map_location=torch.device('cpu'))['model'])\n"
        "try:\n"
        "    torch.load('net.pt')\n"
        "except __import__('pickle').UnpicklingError as error:\n"
        "    assert 'Weights only load failed' in str(error)\n"
        "with torch.serialization.safe_globals([Net, nn.Linear]):\n"
        "    pass\n"
        "assert torch.serialization.get_safe_globals() == []\n"
        "print('done')\n"
    )
    command = [sys.executable, "-m", "lamina", "run", str(script)]
    assert (
        subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == "done\n"
    )


def test_slices_of_a_storage_are_their_elements():
    """As PyTorch 0.3 wrote two storages over one memory: (t.storage()[:1], t.storage()[1:])."""

    def part(begin, count, key):
        view = b"X\x01\x00\x00\x00" + key + bytes([75, begin, 75, count]) + b"\x87"
        return (
            b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00kX\x03\x00\x00\x00cpuK\x03"
            + view + b"tQ"
        )  # fmt: skip

    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    head = magic + b"\x80\x02M\xe9\x03." + b"\x80\x02}."
    body = b"\x80\x02" + part(0, 1, b"a") + part(1, 2, b"b") + b"\x86." + b"\x80\x02](X\x01\x00\x00\x00ke."
    numbers = (3).to_bytes(8, "little") + np.array([1, 2, 3], np.float32).tobytes()
    first, rest = lamina.load(io.BytesIO(head + body + numbers))
    assert (first.tolist(), rest.tolist()) == ([1.0], [2.0, 3.0])
    assert rest.data_ptr() == first.data_ptr() + 4
    again = lamina.tensor([]).set_(rest)
    again[0] = 9.0
    assert rest.tolist() == [9.0, 3.0]


@pytest.mark.parametrize("into", [True, False])
@pytest.mark.parametrize("before", [0, 1000])
def test_an_open_file_is_read_in_parts(into, before):
    """What holds it in memory is the tensors alone; reads may give less than they were asked for."""

    class Counting:
        def __init__(self, data):
            self.file, self.largest = io.BytesIO(data), 0
            for name in ("seek", "tell"):
                setattr(self, name, getattr(self.file, name))
            if into:
                self.readinto = lambda view: self.file.readinto(view[:5000])

        def read(self, size=-1):
            part = self.file.read(min(size, 5000) if size >= 0 else -1)
            self.largest = max(self.largest, len(part))
            return part

    state = {"a": lamina.arange(10_000), "b": lamina.ones(3)}
    opened = Counting(b"x" * before + stored(state))
    opened.seek(before)
    found = lamina.load(opened)
    assert found["a"].equal(state["a"]) and found["b"].equal(state["b"])
    assert opened.largest <= 5000
    assert opened.file.read() == b""  # as where all of it was read


def test_storages_that_python_2_named():
    """Their names are texts of it, which are bytes here where that is asked for."""
    file = io.BytesIO()
    lamina.save([lamina.arange(3.0), "text"], file, _use_new_zipfile_serialization=False)
    raw = re.sub(rb"X([\1-\x20])\0\0\0", rb"U\1", file.getvalue())
    assert raw != file.getvalue()
    for encoding, text in (("bytes", b"text"), ("latin1", "text")):
        found = lamina.load(io.BytesIO(raw), encoding=encoding)
        assert found[0].tolist() == [0.0, 1.0, 2.0] and found[1] == text
