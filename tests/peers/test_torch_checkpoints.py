"""Checkpoints between PyTorch and Lamina, in both directions and both formats."""

import collections
import io
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="torch is not installed; `make peers` installs it")

import safetensors.torch  # noqa: E402
from module_cases import CASES, SEEDED  # noqa: E402

import lamina  # noqa: E402
from lamina.ir import dtypes  # noqa: E402

pytestmark = [  # of PyTorch's, told once
    pytest.mark.filterwarnings("ignore:Sparse"), pytest.mark.filterwarnings("ignore:Using padding='same'"),
    pytest.mark.filterwarnings("ignore:enable_nested_tensor"),
]  # fmt: skip
DTYPES = [d.name for d in dtypes.EVERY]
FORMATS = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "earlier"])
NAMES = pytest.mark.parametrize("name", DTYPES)


def from_torch(obj: object, zipped: bool = True, **kwargs: object) -> object:
    file = io.BytesIO()
    torch.save(obj, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return lamina.load(file, **kwargs)


def to_torch(obj: object, zipped: bool = True) -> object:
    file = io.BytesIO()
    lamina.save(obj, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    return torch.load(file, weights_only=True)


def raw(x: object) -> bytes:
    if isinstance(x, torch.Tensor):
        return bytes(
            x.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8).tolist()
        )
    return x.detach()._data.tobytes()


def same(ours: object, theirs: object) -> None:
    """Types, values and how tensors lie."""
    if isinstance(theirs, torch.Tensor) and theirs.layout is not torch.strided:
        parts = (
            ("indices", "values")
            if theirs.layout is torch.sparse_coo
            else ("crow_indices", "col_indices", "values")
        )
        assert ours.layout.name == str(theirs.layout).removeprefix("torch.") and ours.shape == tuple(
            theirs.shape
        )
        if theirs.layout is torch.sparse_coo:
            assert ours.is_coalesced() == theirs.is_coalesced()
            ours, theirs = ours.coalesce(), theirs.coalesce()
        for part in parts:
            assert raw(getattr(ours, part)()) == raw(getattr(theirs, part)())
    elif isinstance(theirs, torch.Tensor):
        assert isinstance(ours, lamina.Tensor)
        assert isinstance(ours, lamina.nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
        assert (ours.dtype.name, ours.shape) == (
            str(theirs.dtype).removeprefix("torch."),
            tuple(theirs.shape),
        )
        assert ours.requires_grad == theirs.requires_grad and str(ours.device) == str(theirs.device)
        if theirs.device.type != "meta":
            assert raw(ours) == raw(theirs)
            if theirs.numel():
                assert (ours.stride(), ours.storage_offset()) == (theirs.stride(), theirs.storage_offset())
    elif isinstance(theirs, dict):
        assert type(ours) is type(theirs) and [*ours] == [*theirs]
        for key in theirs:
            same(ours[key], theirs[key])
        if hasattr(theirs, "_metadata"):
            assert ours._metadata == theirs._metadata
    elif isinstance(theirs, torch.Size):
        assert type(ours) is lamina.Size and tuple(ours) == tuple(theirs)
    elif isinstance(theirs, (list, tuple)):
        assert type(ours) is type(theirs) and len(ours) == len(theirs)
        for x, y in zip(ours, theirs, strict=True):
            same(x, y)
    elif isinstance(theirs, (torch.dtype, torch.device, torch.layout)):
        assert str(ours) == str(theirs).removeprefix("torch.") or str(ours).removeprefix("lamina.") == str(
            theirs
        ).removeprefix("torch.")
    else:
        assert type(ours) is type(theirs) and repr(ours) == repr(theirs)


def tensor_of(t: object, name: str, shape: tuple) -> object:
    """The same tensor of either library: bytes that each dtype takes."""
    numbers = (np.arange(int(np.prod(shape))) % 2).reshape(shape)
    return t.tensor(numbers.tolist(), dtype=t.int64).reshape(shape).to(getattr(t, name))


# ---- tensors -----------------------------------------------------------------------------------------------
@NAMES
@FORMATS
@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,), (3, 5)], ids=str)
def test_every_dtype(name, zipped, shape):
    same(from_torch(tensor_of(torch, name, shape), zipped), tensor_of(torch, name, shape))
    same(tensor_of(lamina, name, shape), to_torch(tensor_of(lamina, name, shape), zipped))


def views(t: object) -> dict:
    x = t.arange(24.0).view(4, 6)
    return {
        "x": x, "t": x.T, "part": x[1:3, ::2], "column": x[:, 2], "wide": x[0].expand(3, 6), "0-d": x[1, 1],
        "diagonal": x.diagonal(), "empty": x[2:2], "windows": x.reshape(-1).unfold(0, 5, 2),
        "parameter": t.nn.Parameter(x), "frozen": t.nn.Parameter(x[2], False),
        "leaf": t.ones(3, requires_grad=True), "complex": t.ones(2, dtype=t.complex64),
        "tied": [t.zeros(2)] * 2, "meta": t.ones(2, 3, device="meta"),
        "long": t.arange(5), "alone": t.ones(2, 3).t(),
    }  # fmt: skip


@FORMATS
def test_views_lie_as_they_lay_and_share_their_memory(zipped):
    same(from_torch(views(torch), zipped), views(torch))
    same(from_torch(to_torch(views(lamina), zipped)), views(torch))
    ours, theirs = from_torch(views(torch), zipped), to_torch(views(lamina), zipped)
    for made in (ours, theirs):
        made["x"].fill_(7)
        for name in ("t", "part", "column", "wide", "0-d", "diagonal", "windows", "parameter", "frozen"):
            assert (made[name] == 7).all(), name
        assert made["tied"][0] is made["tied"][1] and (made["alone"] == 1).all()


def test_memory_of_two_dtypes_is_one_storage():
    x = lamina.arange(4.0)
    found = to_torch({"a": x, "b": x.view(lamina.int32), "c": x.view(lamina.uint8)[4:8]})
    found["a"][1] = 0.0
    assert found["b"][1] == 0 and found["c"].tolist() == [0] * 4
    again = from_torch([t := torch.arange(4.0), t.untyped_storage()[4:8]])
    assert again[0].tolist() == [0, 1, 2, 3]


@FORMATS
def test_lazily_conjugated_tensors_are_read_as_what_they_mean(zipped):
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert from_torch([x.conj(), x], zipped)[0].tolist() == [1 - 2j, 3 + 1j]
    assert from_torch(x.conj().imag, zipped).tolist() == [-2.0, 1.0]


@FORMATS
@pytest.mark.parametrize("layout", ["sparse_coo", "sparse_csr", "sparse_csc"])
def test_sparse_tensors(zipped, layout):
    def made(t):
        dense = t.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
        x = dense.to_sparse(layout=getattr(t, layout))
        if layout == "sparse_coo":
            twice = t.sparse_coo_tensor(t.tensor([[0, 0]]), t.tensor([1.0, 2.0]), (2,))
            return [x, twice]
        return [x]

    if layout == "sparse_csc":  # they have names of their own for its parts
        assert from_torch(made(torch), zipped)[0].to_dense().tolist() == made(torch)[0].to_dense().tolist()
        assert to_torch(made(lamina), zipped)[0].to_dense().tolist() == made(torch)[0].to_dense().tolist()
        return
    for ours, theirs in zip(from_torch(made(torch), zipped), made(torch), strict=True):
        same(ours, theirs)
    for ours, theirs in zip(made(lamina), to_torch(made(lamina), zipped), strict=True):
        same(ours, theirs)


@FORMATS
def test_attributes_of_tensors(zipped):
    def made(t):
        x, p = t.ones(2), t.nn.Parameter(t.ones(3))
        x.tag, p.shard = "a", [1, 2]
        return {"x": x, "p": p, "buffer": t.nn.Buffer(t.zeros(1), persistent=False)}

    for found in (from_torch(made(torch), zipped), to_torch(made(lamina), zipped)):
        assert found["x"].tag == "a" and found["p"].shard == [1, 2] and not found["buffer"].persistent
        assert type(found["p"]).__name__ == "Parameter" and found["p"].requires_grad


# ---- containers and numbers --------------------------------------------------------------------------------
def state_dict(t: object) -> object:
    model = t.nn.Sequential(t.nn.Linear(3, 2), t.nn.BatchNorm1d(2))
    with t.no_grad():
        for p in model.parameters():
            p.fill_(0.5)
    return model.state_dict()


def containers(t: object) -> dict:
    return {
        "list": [1, 2.5, None, True, False, "é\n", "", b"\0\xff", b""], "nested": ((), (1, (2,)), {"a": {}}),
        "ints": [0, -1, 255, 256, 65536, 2**31, -(2**31) - 1, 2**63, -(2**200), 2**2039 - 1],
        "floats": [float("inf"), -0.0, 1e-320], "complex": 1 - 2j, "bytearray": bytearray(b"ab\xff"),
        "counter": collections.Counter("aab"), "ordered": collections.OrderedDict(b=1, a=2),
        "set": {1, "a", (2, 3)}, "size": t.Size((2, 3)), "dtypes": [t.float32, t.bool, t.float8_e5m2],
        "device": t.device("cpu"), 3: "int", (1, "x"): "tuple", None: 0, "state": state_dict(t),
    }  # fmt: skip


@FORMATS
def test_containers_and_numbers(zipped):
    same(from_torch(containers(torch), zipped), containers(torch))
    same(containers(lamina), to_torch(containers(lamina), zipped))
    same(from_torch(containers(torch), zipped)["state"], containers(torch)["state"])


def test_what_pytorch_takes_with_names_alone():
    made = {
        "default": collections.defaultdict(list, a=[1]),
        "frozen": frozenset((1, 2)),
        "layout": torch.sparse_coo,
    }
    made |= {"array": np.arange(6.0).reshape(2, 3).T, "ints": np.array([[1], [2]], ">i2").astype("<i2")}
    made |= {"scalar": np.float64(1.5), "bool": np.array([True, False]), "empty": np.zeros((0, 2))}
    for protocol in (2, 3, 4, 5):
        file = io.BytesIO()
        torch.save(made, file, pickle_protocol=protocol)
        file.seek(0)
        found = lamina.load(file)
        assert found["default"] == {"a": [1]} and found["default"].default_factory is list
        assert found["frozen"] == made["frozen"] and found["layout"] == "sparse_coo"
        for name in ("array", "ints", "scalar", "bool", "empty"):
            ours, theirs = np.asarray(found[name]), np.asarray(made[name])
            assert (ours.dtype, ours.shape, ours.tolist()) == (theirs.dtype, theirs.shape, theirs.tolist())


def test_containers_that_hold_themselves():
    loop: list = [1]
    loop += [loop, (loop, 2), {"loop": loop}]
    found = from_torch(loop)
    assert found[1] is found and found[2][0] is found and found[3]["loop"] is found
    again = to_torch(found)
    assert again[1] is again and again[2][0] is again


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@FORMATS
def test_every_protocol_of_pickle(protocol, zipped):
    file = io.BytesIO()
    obj = {"x": views(torch), "c": containers(torch)}
    torch.save(obj, file, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    same(lamina.load(file), obj)


def test_objects_that_follow_each_other_in_a_file():
    file = io.BytesIO()
    for i in range(3):
        torch.save(torch.full((2,), float(i)), file, _use_new_zipfile_serialization=False)
    file.seek(0)
    assert [lamina.load(file).tolist() for _ in range(3)] == [[float(i)] * 2 for i in range(3)]


def test_generators_states_are_tensors():
    same(from_torch(torch.get_rng_state()), torch.get_rng_state())
    lamina.manual_seed(3)
    state = to_torch(lamina.get_rng_state())
    assert state.dtype is torch.uint8
    first = lamina.rand(3).tolist()
    lamina.set_rng_state(from_torch(state))
    assert lamina.rand(3).tolist() == first


# ---- modules and optimizers --------------------------------------------------------------------------------
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_whole_modules_of_pytorch(case):
    """A module that PyTorch pickled whole is Lamina's module of the same state, and computes the same."""
    theirs = getattr(torch.nn, case.name)(*case.args, **case.kwargs).double().eval()
    ours = from_torch(theirs, weights_only=False)
    assert type(ours) is getattr(lamina.nn, case.name) and repr(ours) == repr(theirs)
    same(ours.state_dict(), theirs.state_dict())
    arrays = [SEEDED.normal(size=x) if isinstance(x, tuple) else x for x in case.inputs]
    calls = ({k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in case.call.items()}
             for tensor in (lamina.tensor, torch.tensor))  # fmt: skip
    with torch.no_grad():
        mine = ours(*map(lamina.tensor, arrays), **next(calls))
        other = theirs(*map(torch.tensor, arrays), **next(calls))
    mine, other = (x[0] if isinstance(x, tuple) else x for x in (mine, other))
    # Modules were compared with each other elsewhere; here it is that the state arrived.
    np.testing.assert_allclose(mine.detach().numpy(), other.numpy(), rtol=1e-6, atol=1e-9)
    again = io.BytesIO()
    lamina.save(ours, again)
    again.seek(0)
    assert repr(lamina.load(again, weights_only=False)) == repr(theirs)


def test_containers_of_modules():
    def made(t):
        n = t.nn
        layers = n.ModuleDict(
            {"a": n.ModuleList([n.Linear(2, 2), n.ReLU()]), "b": n.Sequential(n.Conv1d(1, 1, 1))}
        )
        layers.extra = n.ParameterList([t.ones(2), t.zeros(1)])
        layers.more = n.ParameterDict({"x": t.ones(3)})
        layers.register_buffer("hidden", t.ones(2), persistent=False)
        return layers.eval()

    ours, theirs = from_torch(made(torch), weights_only=False), made(torch)
    assert [repr(ours[key]) == repr(theirs[key]) for key in "ab"] == [True, True]
    assert not ours.training and not ours.a[0].training and type(ours.more) is lamina.nn.ParameterDict
    assert [*ours.state_dict()] == [*theirs.state_dict()] and ours.hidden.tolist() == [1, 1]
    assert [p.tolist() for p in ours.extra] == [[1, 1], [0]]


OPTIMIZERS = [
    ("SGD", {"lr": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}), ("Adam", {"lr": 0.01}),
    ("Adam", {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1}), ("AdamW", {"lr": 0.01}),
    ("RMSprop", {"lr": 0.01, "momentum": 0.5, "centered": True}), ("Adagrad", {"lr": 0.1}),
    ("Adadelta", {}), ("NAdam", {}), ("RAdam", {}), ("Adamax", {}), ("ASGD", {}), ("Rprop", {}),
]  # fmt: skip


def trained(t: object, module: object, optimizer: object, steps: int, start: int) -> None:
    for i in range(start, start + steps):
        x = t.tensor(np.random.default_rng(i).normal(size=(4, 3)))
        optimizer.zero_grad()
        (module(x) ** 2).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("name, settings", OPTIMIZERS, ids=[f"{n}-{len(s)}" for n, s in OPTIMIZERS])
@FORMATS
def test_optimizers_go_on_in_the_other_library(name, settings, zipped):
    """Three steps in one library and three in the other are six in either."""

    def setup(t):
        module = t.nn.Sequential(t.nn.Linear(3, 5), t.nn.Tanh(), t.nn.Linear(5, 2)).double()
        return module, getattr(t.optim, name)(module.parameters(), **settings)

    whole, stepping = setup(torch)
    start = {key: value.clone() for key, value in whole.state_dict().items()}
    trained(torch, whole, stepping, 6, 0)
    for first, second, carry in ((torch, lamina, from_torch), (lamina, torch, to_torch)):
        module, optimizer = setup(first)
        module.load_state_dict(start if first is torch else from_torch(start))
        trained(first, module, optimizer, 3, 0)
        state = carry({"model": module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, zipped)
        module, optimizer = setup(second)
        module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        trained(second, module, optimizer, 3, state["epoch"])
        for key, value in whole.state_dict().items():
            # Six steps of a dozen roundings each, of numbers near 1.  NAdam's product of momenta is a float32
            # in both, so its steps, of at most 0.002 each, are as exact as that.
            atol = 6 * 0.002 * 4 * np.finfo(np.float32).eps if name == "NAdam" else 1e-12
            found = module.state_dict()[key].detach().numpy()
            message = f"{first.__name__} {key}"
            np.testing.assert_allclose(found, value.numpy(), rtol=1e-11, atol=atol, err_msg=message)


# ---- files -------------------------------------------------------------------------------------------------
def test_mapped_files_hold_what_they_hold(tmp_path):
    obj = {
        "x": torch.arange(1000.0),
        "b": torch.tensor([True, False]),
        "u": torch.ones(3, dtype=torch.uint16),
    }
    torch.save(obj, tmp_path / "x.pt")
    found = lamina.load(tmp_path / "x.pt", mmap=True)
    same(found, obj)
    found["x"][0] = 5.0  # in this process alone
    same(lamina.load(tmp_path / "x.pt"), obj)
    lamina.save({"x": lamina.arange(5.0)}, tmp_path / "y.pt")
    assert torch.load(tmp_path / "y.pt", mmap=True)["x"].tolist() == [0, 1, 2, 3, 4]


def test_files_without_checksums(tmp_path):
    torch.serialization.set_crc32_options(False)
    try:
        same(from_torch(views(torch)), views(torch))
    finally:
        torch.serialization.set_crc32_options(True)


def test_sharded_models(tmp_path):
    tensors = {f"layer.{i}.weight": torch.full((2, 2), float(i)) for i in range(4)}
    names = [*tensors]
    weights = {}
    for number, keys in enumerate((names[:3], names[3:])):
        file = f"model-{number + 1:05}-of-00002.safetensors"
        safetensors.torch.save_file({key: tensors[key] for key in keys}, tmp_path / file)
        weights |= dict.fromkeys(keys, file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 64}, "weight_map": weights}))
    same(lamina.load(index), tensors)


def test_globals_that_are_not_safe():
    class_of_torch = torch.nn.Sequential(torch.nn.Conv1d(1, 1, 1))
    file = io.BytesIO()
    torch.save(class_of_torch, file)
    file.seek(0)
    expected = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    file.seek(0)
    found = lamina.serialization.get_unsafe_globals_in_checkpoint(file)
    assert sorted({*found} & {*expected}) == sorted(n for n in expected if n != "builtins.set")
    for load in (torch.load, lamina.load):
        file.seek(0)
        with pytest.raises(pickle.UnpicklingError, match=r"Weights only load failed"):
            load(file)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**80), 2**80), st.floats(), st.binary(max_size=5),
    st.text(max_size=5),
    st.builds(lambda n, name: tensor_of(torch, name, (n,)), st.integers(0, 5), st.sampled_from(DTYPES)),
    st.sampled_from([torch.float32, torch.Size((2, 3)), torch.device("cpu"), 1j]),
)  # fmt: skip
KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.floats(allow_nan=False), st.tuples(st.integers())
)
OBJECTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.dictionaries(KEYS, inner, max_size=3).map(collections.OrderedDict),
        inner.map(lambda x: [x, x]),
    ),
    max_leaves=10,
)


@given(OBJECTS, st.booleans())
def test_any_nesting_goes_there_and_back(obj, zipped):
    ours = from_torch(obj, zipped)
    same(ours, obj)
    same(ours, to_torch(ours, zipped))


# ---- plain pickles -----------------------------------------------------------------------------------------
class _AsLamina(pickle.Unpickler):
    """As a program under torch's name finds modules."""

    def find_class(self, module: str, name: str) -> object:
        return super().find_class(module.replace("torch", "lamina", 1), name)


def _noted() -> torch.Tensor:
    made = torch.ones(2)
    made.note = "x"
    return made


PICKLED = {
    "tensor": lambda: torch.arange(3.0), "view": lambda: torch.arange(6.0).reshape(2, 3).t()[1:],
    "requires gradients": lambda: torch.ones(2, requires_grad=True), "half": lambda: torch.ones(3).bfloat16(),
    "conjugated": lambda: torch.tensor([1 + 2j]).conj(), "bools": lambda: torch.tensor([True, False]),
    "float8": lambda: torch.ones(2).to(torch.float8_e4m3fn), "uint16": lambda: torch.ones(2).to(torch.uint16),
    "none": lambda: torch.empty(0, 3), "sparse": lambda: torch.eye(3).to_sparse(),
    "rows": lambda: torch.eye(3).to_sparse_csr(), "parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "storage": lambda: torch.arange(3.0).storage(), "bytes": lambda: torch.arange(3.0).untyped_storage(),
    "noted": _noted, "layout": lambda: torch.strided, "dtype": lambda: torch.float16,
    "sizes": lambda: torch.Size([1, 2]), "result": lambda: torch.max(torch.arange(6.0).reshape(2, 3), dim=0),
    "relu": lambda: torch.relu, "gelu": lambda: torch.nn.functional.gelu,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:TypedStorage")
@pytest.mark.parametrize("case", [*PICKLED])
@pytest.mark.parametrize("protocol", [2, pickle.DEFAULT_PROTOCOL])
def test_plain_pickles_are_read(case, protocol):
    theirs = PICKLED[case]()
    ours = _AsLamina(io.BytesIO(pickle.dumps(theirs, protocol))).load()
    if case in ("relu", "gelu"):
        assert ours(lamina.tensor([-1.0, 2.0])).shape == (2,) and ours.__name__ == case
    elif case in ("storage", "bytes"):
        assert list(ours) == list(theirs)
    elif isinstance(theirs, torch.Tensor):
        same(ours, theirs)
        assert ours.requires_grad == theirs.requires_grad and getattr(ours, "note", "") == getattr(
            theirs, "note", ""
        )
        assert isinstance(ours, lamina.nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
    elif case == "result":
        assert ours.values.tolist() == theirs.values.tolist() and ours[1].tolist() == theirs.indices.tolist()
    else:
        assert str(ours).split(".")[-1] == str(theirs).split(".")[-1]


def test_tensors_of_a_pickle_share_what_they_shared_no_more():
    x = torch.arange(3.0)
    ours = _AsLamina(io.BytesIO(pickle.dumps({"x": x, "again": x, "part": x[1:]}))).load()
    assert ours["x"] is ours["again"] and ours["part"].tolist() == [1.0, 2.0]


def test_a_module_may_hold_an_op():
    """torch.relu is pickled as an attribute of a class of PyTorch's, by `getattr`."""
    theirs = torch.nn.Sequential(torch.nn.Linear(2, 2))
    theirs.activation, theirs.other = torch.relu, torch.nn.functional.gelu
    ours = from_torch(theirs, weights_only=False)
    assert ours.activation is lamina.relu and ours.other is lamina.nn.functional.gelu
    with pytest.raises(pickle.UnpicklingError, match="builtins.getattr"):
        from_torch({"activation": torch.relu})
    module = lamina.nn.Sequential(lamina.nn.Linear(2, 2))
    module.activation = lamina.sin
    file = io.BytesIO()
    lamina.save(module, file)
    file.seek(0)
    assert lamina.load(file, weights_only=False).activation is lamina.sin


class _Spoofed:
    """An object that is saved as a tensor, by PyTorch's function for that."""

    def __reduce_ex__(self, protocol: int) -> tuple:
        storage = lamina.arange(4.0).storage()
        rebuild = lamina._utils._rebuild_tensor_v2
        return rebuild, (storage, 1, (2,), (2,), False, collections.OrderedDict())


def test_objects_that_are_saved_as_tensors():
    for zipped in (True, False):
        assert to_torch({"x": _Spoofed()}, zipped)["x"].tolist() == [1.0, 3.0]
    assert pickle.loads(pickle.dumps(lamina._utils._rebuild_tensor_v2)) is lamina._utils._rebuild_tensor_v2
