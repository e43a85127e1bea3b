"""Files of exported models that lie about themselves: each ends in ModelError, and costs what a file may."""

import gc
import json
import os
import subprocess
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from model_archive import joined, signed, split, with_arrays

import lamina
from lamina import jit, nn
from lamina.jit import ModelError
from lamina.jit.lamina_model import Model, read

LEVEL = "x86-64-v2"
GIGA = 1 << 30


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    """The file of a small network."""
    lamina.manual_seed(0)
    path = tmp_path_factory.mktemp("whole") / "whole.lam"
    jit.export(
        nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)), path, lamina.ones(2, 6), levels=[LEVEL]
    )
    return path.read_bytes()


@pytest.fixture
def refused(tmp_path):
    """Gives a file to everything that reads one, and returns what each said: all must refuse it."""

    def give(data: bytes, ways=("read", "native", "compiled")) -> list[str]:
        path, said = tmp_path / "hostile.lam", []
        path.write_bytes(data)
        known = {"read": read, "native": Model, "compiled": lambda path: jit.load(path, native=False)}
        for way in ways:
            with pytest.raises(ModelError, match=r"hostile\.lam") as caught:
                known[way](path)
            said.append(str(caught.value))
        return said

    return give


# ---- the archive -------------------------------------------------------------------------------------------
def test_a_file_put_together_again_is_a_model(whole, tmp_path):
    (tmp_path / "again.lam").write_bytes(signed(split(whole)))
    x = np.ones((2, 6), np.float32)
    wanted = Model(tmp_path / "again.lam").run(x)
    found = jit.load(tmp_path / "again.lam", native=False)(lamina.ones(2, 6)).detach().numpy()
    assert np.abs(found - wanted).max() < 16 * np.finfo(np.float32).eps * np.abs(wanted).max()


def test_compressed_members_are_refused_before_they_are_unpacked(whole, refused):
    members = split(whole)
    bomb = signed(with_arrays(members, weight0=np.zeros((30_000_000,), np.uint8)), kind=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 1 << 20
    tracemalloc.start()
    try:
        said = refused(bomb)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert all("stored plainly" in text for text in said)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_that_no_model_has_are_refused(whole, refused):
    members = split(whole)
    for name in ("json.py", "../graph.txt", "/tmp/x", "x86-64-v9.so", "graph.txt/", ""):
        assert "holds what no model does" in refused(signed(members | {name: b"x"}))[0]
    twice = signed(members).replace(b"lamina_model.py", b"weights.safetensors"[:15])
    refused(twice)
    for name in members:
        refused(joined({other: data for other, data in members.items() if other != name}))
        refused(signed({other: data for other, data in members.items() if other in (name, "manifest.json")}))


def test_sizes_beyond_the_file_are_refused(whole, refused):
    """Each size of the archive's directory, set to more than there is."""
    at = whole.rindex(b"PK\x01\x02" + whole[whole.rindex(b"PK\x01\x02") + 4 :][:4])
    for offset in (20, 24):
        for size in (len(whole) + 1, GIGA, (1 << 32) - 2):
            lying = bytearray(whole)
            lying[at + offset : at + offset + 4] = size.to_bytes(4, "little")
            refused(bytes(lying))
        both = bytearray(whole)
        both[at + 20 : at + 28] = GIGA.to_bytes(4, "little") * 2
        assert "larger than the file" in refused(bytes(both))[0]


# ---- the manifest and the weights --------------------------------------------------------------------------
def altered(whole: bytes, change) -> bytes:
    members = split(whole)
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    return signed(members, manifest)


def level(manifest):
    return manifest["levels"][LEVEL]


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("inputs"),
        lambda m: m.update(inputs=[["x", "f32", [-1, 6]]]),
        lambda m: m.update(inputs=[["x", "f99", [2, 6]]]),
        lambda m: m.update(inputs=[["x", "f32", [1 << 40, 1 << 40]]]),
        lambda m: m.update(inputs=[["x", "f32", [2.0, 6]]]),
        lambda m: m.update(outputs=5),
        lambda m: m.update(outputs=["tuple", -1]),
        lambda m: m.update(outputs=["set", 0]),
        lambda m: m.update(outputs={"x": 0}),
        lambda m: m.update(outputs=["dict", ["a", 0], ["a", ["value", 1]]]),
        lambda m: m.update(outputs=json.loads("[" * 200 + '"list",0' + "]" * 200)),
        lambda m: m.update(weights=["no such weight"]),
        lambda m: m.update(weights=m["weights"][::-1]),
        lambda m: m.update(weights=m["weights"][:1]),
        lambda m: m.update(format="1"),
        lambda m: m.update(sha256=None),
    ],
    ids=range(16),
)
def test_a_manifest_that_does_not_fit_is_refused(whole, refused, change):
    refused(altered(whole, change), ("native", "compiled"))


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.update(library="x86-64-v3.so"),
        lambda a: a.pop("pool"),
        lambda a: a["pool"].update(size=8),
        lambda a: a["pool"].update(launch=1 << 20),
        lambda a: a["pool"].update(limit=3),
        lambda a: a["pool"].update(grain_value=0),
        lambda a: a["main"].update(arena=-1),
        lambda a: a["main"].update(arena=1 << 46),
        lambda a: a["main"].update(arena="1"),
        lambda a: a["main"].update(entries=["no_such_symbol"]),
        lambda a: a["main"].update(entries=["a\0b"]),
        lambda a: a["main"].update(results=[]),
        lambda a: a["main"]["params"].pop(),
        lambda a: a["main"]["params"][0][1].append(1),
        lambda a: a["main"].update(constants=["no such constant"]),
        lambda a: a["prologue"]["params"][0].__setitem__(0, "f64"),
        lambda a: a["prologue"].update(results=[["f32", [1 << 45]]]),
        lambda a: a.update(frozen=[99, 1]),
        lambda a: a.update(kept=[0, "1"]),
    ],
    ids=range(19),
)
def test_what_code_would_be_given_is_compared_before_it_runs(whole, refused, change, monkeypatch):
    def enter(self, arrays):
        raise AssertionError("native code was entered")

    monkeypatch.setattr("lamina.jit.lamina_model._Program.run", enter)
    refused(altered(whole, lambda manifest: change(level(manifest))), ("native",))


def test_code_without_its_entries_is_given_back(whole, refused):
    def mapped() -> int:
        gc.collect()
        return Path("/proc/self/maps").read_text().count("lamina_model")

    before = mapped()
    wrong = altered(whole, lambda m: level(m)["main"].update(entries=["no_such_symbol"]))
    for _ in range(3):
        refused(wrong, ("native",))
    assert mapped() == before


def test_memory_that_a_file_may_ask_for_can_be_bounded(whole, tmp_path):
    path = tmp_path / "model.lam"
    path.write_bytes(altered(whole, lambda m: level(m)["main"].update(arena=1 << 20)))
    with pytest.raises(ModelError, match="more than max_bytes=1,000"):
        jit.load(path, max_bytes=1000)
    assert jit.load(path, max_bytes=1 << 21)(lamina.ones(2, 6)).shape == (2, 3)


@pytest.mark.parametrize(
    "header",
    [
        {"weight0": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}},
        {"weight0": {"dtype": "F32", "shape": [4], "data_offsets": [0, 8]}},
        {"weight0": {"dtype": "F32", "shape": [1 << 40, 1 << 40, 0, 3], "data_offsets": [0, 16]}},
        {"weight0": {"dtype": "F32", "shape": [-1, -4], "data_offsets": [0, 16]}},
        {"weight0": {"dtype": "F32", "shape": [4], "data_offsets": [-16, 0]}},
        {"weight0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}},
        {"weight0": {"dtype": "C64", "shape": [2], "data_offsets": [0, 16]}},
        {"weight0": {"dtype": "BOOL", "shape": [16], "data_offsets": [0, 16]}},
        {"weight0": {"dtype": "F32", "shape": [4], "data_offsets": []}},
        {"weight0": {"dtype": 32, "shape": [4], "data_offsets": [0, 16]}},
        {"weight0": [4]},
        {},
        [],
        "x",
    ],
    ids=range(14),
)
def test_weights_that_do_not_fit_their_bytes_are_refused(whole, refused, header):
    text = json.dumps(header).encode()
    stored = len(text).to_bytes(8, "little") + text + b"\x07" * 16
    members = split(whole)
    refused(signed(members | {"weights.safetensors": stored}), ("native", "compiled"))
    for cut in (b"", stored[:7], (1 << 63).to_bytes(8, "little") + text, stored[:12]):
        refused(signed(members | {"weights.safetensors": cut}), ("native", "compiled"))


@pytest.fixture(scope="module")
def growing(tmp_path_factory) -> bytes:
    """The file of a function whose sizes change."""
    path = tmp_path_factory.mktemp("growing") / "growing.lam"
    sizes = {0: {0: ("n", 1, 64)}}
    jit.export(lambda x: (x * 2).sum(1), path, lamina.ones(4, 6), levels=[LEVEL], dynamic=sizes)
    return path.read_bytes()


def test_numbers_that_grow_from_formula_to_formula_are_refused(growing, tmp_path):
    """Sixty squares of squares: no memory holds the number, and nothing would interrupt who computes it."""
    squares = [["z0", ["d0+2"]], *([f"z{n + 1}", [f"z{n}*z{n}"]] for n in range(60))]
    path = tmp_path / "hostile.lam"
    path.write_bytes(altered(growing, lambda m: level(m)["main"]["offsets"].extend(squares)))
    with pytest.raises(ModelError, match="formulas"):
        Model(path).run(np.ones((3, 6), np.float32))


def test_a_formula_of_many_products_is_refused(growing, refused):
    long = "*".join(["d0"] * 2000)
    refused(
        altered(growing, lambda m: m["needs"].append([long, ">=", "1", "n is small"])), ("native", "compiled")
    )


# ---- the graph ---------------------------------------------------------------------------------------------
def of_graph(whole: bytes, body: str, result: str = "f32[2,3]") -> bytes:
    """The file with another graph of the same params: its nodes, and what it returns."""
    members = split(whole)
    head = members["graph.txt"].decode().split("\n")[0].replace("-> (f32[2,3])", f"-> ({result})")
    return signed(members | {"graph.txt": f"{head}\n{body}\n}}\n".encode()})


def expanded(name: str, *sizes: int) -> str:
    """A line that spells an array of any size."""
    shape = ",".join(map(str, sizes))
    return f"  %{name} = expand(%input0) {{size=({shape},2,6)}} : f32[{shape},2,6]\n"


COSTLY = {
    "one": expanded("0", 1 << 28) + "  %1 = sum(%0) {dim=(0,1,2), keepdim=False} : f32[]\n  return %1",
    "many": "".join(expanded(str(n), 1 << 22) for n in range(9))
    + "  %9 = sum(%0) {dim=()} : f32[]\n  return %9",
    "overflow": expanded("0", 10**12, 10**12) + "  return %0",
}


@pytest.mark.parametrize("name", COSTLY)
def test_a_graph_of_unbounded_arrays_is_refused_before_anything_is_computed(whole, refused, name):
    result = f"f32[{10**12},{10**12},2,6]" if name == "overflow" else "f32[]"
    (said,) = refused(of_graph(whole, COSTLY[name], result), ("compiled",))
    limit = (
        "the sizes are too large"
        if name == "overflow"
        else "bytes together, more than max_bytes=1,073,741,824"
    )
    assert limit in said


def test_a_graph_of_unbounded_work_is_refused(whole, tmp_path):
    """The types of a pooling say nothing of its windows."""
    size, path = 4_000_000, tmp_path / "hostile.lam"
    windows = f"1,1,{size // 2 + 1},12"
    body = expanded("0", size) + (
        f"  %1 = reshape(%0) {{shape=(1,1,{size},12)}} : f32[1,1,{size},12]\n"
        f"  %2, %3 = max_pool2d(%1) {{kernel=({size // 2},1), stride=(1,1), padding=((0,0),(0,0)), "
        f"dilation=(1,1), ceil_mode=False}} : f32[{windows}], i64[{windows}]\n  return %2"
    )
    path.write_bytes(of_graph(whole, body, f"f32[{windows}]"))
    with pytest.raises(ModelError, match=r"hostile\.lam: a call would take some"):
        jit.load(path, native=False, max_bytes=1 << 40)


@pytest.mark.parametrize(
    "body",
    [
        "  return %nothing",
        "  %0 = no_such_op(%input0) : f32[2,6]\n  return %0",
        "  %0 = sum(%input0) {dim=(9,), keepdim=False} : f32[2]\n  return %0",
        "  %0 = relu(%input0) : f32[7,7]\n  return %0",
        "  %0 = relu(%input0) : f32[2,6]@cuda\n  return %0",
        "  %0 = relu(%input0) : f32[n,6]\n  return %0",
        "  return",
        "  @c : f32[9]\n  %0 = mul(@c, 2.0:f32) : f32[9]\n  return %0",
        "  %0 = relu(" * 3000,
    ],
    ids=range(9),
)
def test_a_graph_that_breaks_a_rule_is_refused(whole, refused, body):
    refused(of_graph(whole, body), ("compiled",))


def test_a_graph_that_is_no_text_is_refused(whole, refused):
    members = split(whole)
    other = members["graph.txt"].replace(b"%weight1:", b"%weight9:")
    for text in (b"", b"\xff\xfe", b"\0" * 100, b"graph", other):
        refused(signed(members | {"graph.txt": text}), ("compiled",))


# ---- what is no file ---------------------------------------------------------------------------------------
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "pipe.lam"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, os.devnull, "/dev/zero"):
        for way in (read, Model, jit.load, lambda path: jit.load(path, native=False)):
            with pytest.raises(ModelError, match="regular file"):
                way(path)


SMALL_MEMORY = """
import resource, sys
from lamina.jit import ModelError, load
used = int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + (20 << 20), resource.RLIM_INFINITY))
try:
    load(sys.argv[1])
except ModelError as error:
    print("refused", error)
"""


def test_a_file_larger_than_memory_is_refused(whole, tmp_path):
    """40 MiB of weights, in a process that may have 20 more."""
    path, members = tmp_path / "large.lam", split(whole)
    path.write_bytes(signed(members | {"weights.safetensors": bytes(40 << 20)}))
    done = subprocess.run(
        [sys.executable, "-c", SMALL_MEMORY, str(path)], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.startswith("refused"), done.stderr
