"""Models as C libraries: what they compute, what they say of themselves, and what they refuse."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from c_models import ONE, digits, plain, same, write

import lamina
import lamina.nn.functional as F
from lamina import jit, nn
from lamina.exchange.c_library import trial, writing
from lamina.exchange.c_library.interface import (
    Interface,
    constants_prefix,
    interface_of,
    library_name,
    output_labels,
)
from lamina.exchange.c_library.weight_data import Weights, hash_of
from lamina.ir.dtypes import float32
from lamina.ir.errors import ArgumentError
from lamina.ir.graph import Value
from lamina.ir.types import type_of
from lamina.jit import ExportError
from lamina.jit.artifact import LEVELS, levels_here, own_levels, programs
from lamina.jit.export import captured, frozen
from lamina.runtime.native import Executable

R = lamina.randn
pytestmark = pytest.mark.skipif(not levels_here(), reason="native programs run on Linux alone")


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "model.so"


# ---- networks
class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cells, self.last = kind(6, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(self.cells(x)[0])


class Attends(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Embedding(20, 16)
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)

    def forward(self, tokens):
        return self.block(self.first(tokens)).mean(1)


def whole_numbers(x, y):
    return x * 3 + y, x // 2 - y, (x > y) & (y != 0), x.sum(0)


def structures(x, mask):
    y = x.exp().masked_fill(mask, 0.0)
    return {"y": y, "both": (y.sum(1), 3, y), "best": y.argmax(1)}


def mlp():
    return nn.Sequential(nn.Linear(12, 20), nn.GELU(), nn.LayerNorm(20), nn.Linear(20, 5))


INTEGERS = {
    "i64": lamina.int64,
    "i32": lamina.int32,
    "i16": lamina.int16,
    "i8": lamina.int8,
    "u8": lamina.uint8,
}
CASES = {
    "digits": lambda: (digits(), R(3, 1, 8, 8)),
    "mlp": lambda: (mlp(), R(4, 12)),
    "mlp f64": lambda: (mlp().double(), R(4, 12).double()),
    "mlp bf16": lambda: (nn.Sequential(nn.Linear(12, 5), nn.ReLU()).bfloat16(), R(4, 12).bfloat16()),
    "mlp f16": lambda: (nn.Sequential(nn.Linear(12, 5), nn.ReLU()).half(), R(4, 12).half()),
    "winograd": lambda: (nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU()), R(1, 16, 14, 14)),
    "lstm": lambda: (Recurrent(nn.LSTM), R(2, 5, 6)),
    "gru": lambda: (Recurrent(nn.GRU), R(2, 5, 6)),
    "attention": lambda: (Attends(), lamina.randint(0, 20, (2, 7))),
    "structures": lambda: (structures, R(4, 6), R(4, 6) > 0),
    "without weights": lambda: ((lambda x: (x - x.mean(1, keepdim=True)).tanh() * x.std()), R(4, 6)),
    "a view alone": lambda: ((lambda x: x.reshape(3, 8)), R(4, 6)),
    "unused": lambda: ((lambda x, y: y * 2), R(4, 6), R(3)),
    "constants": lambda: ((lambda x: x + lamina.arange(6, dtype=lamina.float32)), R(4, 6)),
    "a scalar": lambda: ((lambda x: x.sum()), R(4, 6)),
    "nothing": lambda: ((lambda x: x * 2), R(0, 6)),
    **{
        f"numbers {name}": lambda dtype=dtype: (
            whole_numbers, lamina.randint(0, 20, (3, 5)).to(dtype), lamina.randint(1, 6, (3, 5)).to(dtype)
        )
        for name, dtype in INTEGERS.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_library_computes_what_the_function_does(name, path):
    lamina.manual_seed(0)
    function, *example = CASES[name]()
    if isinstance(function, nn.Module):
        function.eval()
    library = write(function, path, *example)
    with lamina.no_grad():
        wanted = function(*example)
    found = library.run(*example)
    if name == "structures":  # y is returned twice, and is one output
        assert [each.name.decode() for each in library.outputs] == ["y", "both_0", "best"]
        found = [found[0], found[1], found[0], found[2]]
    same(found, wanted)
    assert library.said(0) == "done" and library.function("level")().decode() == ONE[0]
    # where no output begins at a multiple of 64
    again = library.run(*example, beyond=1)
    assert all(a.tobytes() == b.tobytes() for a, b in zip(again, library.run(*example)))


@pytest.mark.parametrize("level", levels_here())
def test_each_level_alone(level, path):
    model, x = digits().eval(), R(2, 1, 8, 8)
    library = write(model, path, x, levels=[level])
    assert library.function("level")().decode() == level
    with lamina.no_grad():
        same(library.run(x), model(x))


def test_a_library_of_all_levels_chooses_the_best(path):
    model, x = digits().eval(), R(2, 1, 8, 8)
    library = write(model, path, x, levels=None)
    assert library.function("level")().decode() == levels_here()[0]
    with lamina.no_grad():
        same(library.run(x), model(x))


# ---- weights
def test_weights_lie_beside(path, tmp_path):
    model, x = digits().eval(), R(2, 1, 8, 8)
    file = tmp_path / "model.weights"
    library = write(model, path, x, weights=file)
    outputs = library.fresh(None)
    assert library.raw([plain(x)], outputs) == 10
    load = library.function("load")
    assert load(None) == 1
    assert load(os.fsencode(tmp_path / "nothing")) == 11
    data = file.read_bytes()
    other = tmp_path / "other"
    other.write_bytes(data[:-1])
    assert load(os.fsencode(other)) == 12
    for at in (0, len(data) // 2, len(data) - 1):  # a bit of any
        other.write_bytes(data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
        assert load(os.fsencode(other)) == 12
    os.mkfifo(tmp_path / "pipe")
    assert load(os.fsencode(tmp_path / "pipe")) == 12
    assert load(os.fsencode(tmp_path)) == 12
    assert library.raw([plain(x)], outputs) == 10
    assert load(os.fsencode(file)) == 0 and load(os.fsencode(file)) == 0
    with lamina.no_grad():
        same(library.run(x), model(x))


def test_hashes_tell_bytes_apart():
    random = np.random.default_rng(0)
    data = random.bytes(64 * 40)
    found = {hash_of(data), hash_of(data + bytes(64)), hash_of(data[64:] + data[:64]), hash_of(b"")}
    for at in range(0, len(data), 7):
        found.add(hash_of(data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]))
    assert len(found) == 4 + len(range(0, len(data), 7))


def test_equal_weights_are_stored_once():
    weights = Weights()
    places = [weights.place(x) for x in (np.ones(3, np.float32), np.zeros(5), np.ones(3, np.float32))]
    assert places == [0, 64, 0] and weights.size == 128 == len(weights.data())


def test_weights_that_are_packed_are_not_stored_as_they_were_too(path):
    model = nn.Linear(300, 200)  # 240 KB
    write(model, path, R(64, 300))
    assert 240_000 < path.stat().st_size < 340_000  # rows of 16 more, and 30 KB of code


def test_weights_are_packed_alike_whatever_machine_writes_the_library():
    """A machine without AVX-512 packs for one that has it, and x86 for AArch64."""
    model = nn.Sequential(
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 24, 3, stride=2), nn.Flatten(),
        nn.Linear(864, 40),
    ).eval()  # fmt: skip
    found = captured(model, "unwritten.so", (R(1, 16, 14, 14),), None)
    graph, arrays = frozen(found.graph, found.recording, found.call)
    weights, here = list(arrays.values()), [LEVELS[level] for level in levels_here()]
    for level in LEVELS.values():
        _, first, _ = programs(graph, 1, level)
        assert first.results
        by_machine = [Executable(first, target)(*weights) for target in here]
        for results in by_machine[1:]:
            for a, b in zip(results, by_machine[0], strict=True):
                # transforms of tiles of 6 x 6 round each sum a few times, in another order
                np.testing.assert_allclose(a, b, rtol=0, atol=32 * np.finfo(np.float32).eps * abs(b).max())


# ---- refusals
def test_weights_that_code_does_not_reach_are_refused(path, monkeypatch):
    monkeypatch.setattr(writing, "MOST", 1000)
    with pytest.raises(ExportError, match="code does not reach"):
        write(nn.Linear(40, 40), path, R(3, 40))
    library = write(nn.Linear(4, 4), path, R(3, 4))
    assert library.outputs[0].rank == 2


def test_what_python_must_do_is_refused(path):
    with pytest.raises(ExportError, match=r"sort|argsort|unique|has no kernel"):
        write(lambda x: lamina.linalg.svd(x)[1], path, R(4, 4))
    with pytest.raises(ExportError, match="makes an array of sizes that change, which Python does"):
        write(
            lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), path, R(1, 1, 6, 7),
            dynamic={0: {2: "height"}},
        )  # fmt: skip
    assert not path.exists() and not path.with_suffix(".h").exists()


def test_names_and_levels_that_can_not_be(path):
    with pytest.raises(ArgumentError, match="a name in C begins with a letter"):
        write(lambda x: x * 2, path, R(2), name="2x")
    with pytest.raises(ArgumentError, match="is what the library's inner names begin with"):
        write(lambda x: x * 2, path.with_name("lamina.so"), R(2))
    with pytest.raises(ArgumentError, match="alone or with a level of CPU"):
        write(lambda x: x * 2, path, R(2), name="lamina_x86_64_v3")
    with pytest.raises(ArgumentError, match="is for one kind of processor"):
        write(lambda x: x * 2, path, R(2), levels=["x86-64-v3", "armv8-a"])
    with pytest.raises(ArgumentError, match="is none of"):
        write(lambda x: x * 2, path, R(2), levels=["x86-64-v5"])
    with pytest.raises(ArgumentError, match="is of a format without such"):
        jit.export(lambda x: x * 2, path.with_suffix(".lam"), R(2), header="x.h")
    with pytest.raises(ExportError, match="the model has none"):
        write(lambda x: x * 2, path, R(2), weights=path.with_suffix(".weights"))
    with pytest.raises(ArgumentError, match="are files apart"):
        write(lambda x: x * 2, path, R(2), header=path.parent / "." / path.name)
    with pytest.raises(ExportError, match="is a folder, a pipe or a device"):
        write(lambda x: x * 2, path, R(2), header=path.parent)
    with pytest.raises(FileNotFoundError):
        write(lambda x: x * 2, path, R(2), header=path.parent / "nowhere" / "model.h")
    assert not path.exists()


def test_a_library_that_computes_something_else_does_not_appear(path, monkeypatch):
    """Planted: weights that were changed behind the compiler's back, and a level that is another's."""
    weights = Weights.data
    monkeypatch.setattr(Weights, "data", lambda self: weights(self)[:-128] + bytes(128))
    with pytest.raises(ExportError, match="result 0 of the file is not the function's"):
        write(nn.Linear(40, 40), path, R(3, 40))
    monkeypatch.undo()
    monkeypatch.setattr(trial, "_SCRIPT", trial._SCRIPT.replace("if code:", "if True:"))
    with pytest.raises(ExportError, match="does not run in a fresh process"):
        write(nn.Linear(40, 40), path, R(3, 40))
    assert not path.exists()


# ---- what a library is called
def test_names_are_such_as_c_takes():
    assert library_name(None, "libmy-model.v2") == "my_model_v2"
    assert library_name(None, "3d") == "m3d"
    assert library_name("net", "other") == "net"
    assert library_name(None, "n" * 200) == "n" * 100
    labels = ["x", "table['a']", "float", "x", "pair[0]", "größe", "9", "m_run", "N", "M_INPUTS", "INT64_MAX"]
    inputs = [(label, Value(type_of(float32, (2,), "cpu"))) for label in labels]
    made = interface_of("m", inputs, [], None, ("x86-64-v3",), False)
    names = [port.name for port in made.inputs]
    assert names[:8] == ["x", "table_a", "float_", "x_2", "pair_0", "gr_e", "x9", "m_run_2"]
    assert names[8:] == ["N", "M_INPUTS_", "INT64_MAX_"]


HOSTILE = [
    "ünïcödé", "int", "9", "a" * 200, 'q"u\\', "</script>", "*/ int x; /*", "x\ry", "x\ny", "??/", "/??)",
    "\u202eabc", "\x00", "\ud800", "\u2028", "", "SIZE_MAX", "WEIRD_OUTPUTS", "WEIRD_OK", "weird_run", "%n",
]  # fmt: skip


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_a_header_is_c_whatever_names_there_are(path):
    def every(table):
        return {name: x + 1 for name, x in table.items()}

    table = {name: R(2) for name in HOSTILE}
    library = write(every, path, table, name="weird", dynamic={0: {"9": {0: "INT32_MAX"}}})
    names = '#include <stdio.h>\n#include "model.h"\nint main(void) {\n'
    names += "".join(f"    puts(WEIRD_OUTPUT{n}_NAME);\n" for n in range(len(HOSTILE)))
    path.with_name("names.c").write_text(names + "    return 0;\n}\n")
    flags = "-std=c99", "-Wall", "-Wextra", "-Wshadow", "-pedantic", "-Werror"
    done = subprocess.run(["gcc", *flags, "names.c", "model.so", "-o", "names"], cwd=path.parent, text=True,
                          capture_output=True)  # fmt: skip
    assert not done.returncode, done.stderr
    said = subprocess.run(["./names"], cwd=path.parent, capture_output=True,
                          env={"LD_LIBRARY_PATH": str(path.parent)}).stdout  # fmt: skip
    assert said == b"".join(port.name + b"\n" for port in library.outputs)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_libraries_whose_names_differ_in_capitals_go_into_one_program(path):
    names = ["digits", "Digits", "DIGITS", "kDIGITS", "kkDIGITS", "diGits"]
    assert len({constants_prefix(name) for name in names}) == len(names)
    for name in names[:3]:
        write(lambda x: x + 1, path.with_name(f"{name}.so"), R(2), name=name)
    text = "".join(f'#include "{name}.h"\n' for name in names[:3])
    calls = (
        "digits_call(x, x + 2) == DIGITS_OK && Digits_call(x, x + 2) == Digits_OK && DIGITS_call(x, x + 2)"
    )
    text += f"int main(void) {{ float x[4] = {{0}}; return !({calls} == kDIGITS_OK); }}\n"
    path.with_name("both.c").write_text(text)
    flags = "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-Wl,-rpath,$ORIGIN"
    files = "both.c", *(f"./{name}.so" for name in names[:3])
    done = subprocess.run(
        ["gcc", *flags, *files, "-o", "both"], cwd=path.parent, text=True, capture_output=True
    )
    assert not done.returncode, done.stderr
    assert subprocess.run([path.with_name("both")]).returncode == 0


def test_outputs_are_known_as_where_they_are_returned():
    assert output_labels(0) == {0: "output"}
    assert output_labels(["tuple", 1, 0]) == {1: "output0", 0: "output1"}
    tree = ["dict", ["y", 0], ["both", ["tuple", 1, ["value", 3], 0]]]
    assert output_labels(tree) == {0: "y", 1: "both_0"}


def test_the_header_says_what_the_library_does(path):
    def two(x, pair):
        return {'a "b"\\': x @ pair[0], "c": pair[1].exp()}

    example = R(3, 4), (R(4, 5), R(6).double())
    library = write(two, path, *example, dynamic={"x": {0: "rows"}}, name="two")
    header = path.with_suffix(".h").read_text()
    macros = dict(re.findall(r"#define TWO_(\w+) (.+)", header))
    assert (macros["INPUTS"], macros["OUTPUTS"], macros["SIZES"]) == ("3", "2", "1")
    assert macros["INPUT1_NAME"] == '"pair[0]"' and macros["OUTPUT0_NAME"] == r'"a \"b\"\\"'
    assert library.outputs[0].name == b'a "b"\\'
    for what, ports in (("INPUT", library.inputs), ("OUTPUT", library.outputs)):
        for n, port in enumerate(ports):
            assert macros[f"{what}{n}_DTYPE"] == f'"{port.dtype.decode()}"'
            assert macros[f"{what}{n}_RANK"] == str(port.rank)
            dims = [port.shape[at] for at in range(port.rank)]
            assert [macros.get(f"{what}{n}_DIM{at}", "-1") for at in range(port.rank)] == [*map(str, dims)]
    assert "INPUT0_ELEMENTS" not in macros and macros["INPUT1_ELEMENTS"] == "20"
    assert (macros["SIZE0_NAME"], macros["SIZE0_LOW"]) == ('"rows"', "INT64_C(1)")
    call = (
        "two_call(const float *x, const float *pair_0, const double *pair_1, "
        "float *a_b, double *c, int64_t rows)"
    )
    assert call in header
    for n, code in enumerate(re.findall(r"TWO_[A-Z]+ = (\d+),", header)):
        assert int(code) == n
    with lamina.no_grad():
        same(library.run(example[0], *example[1], sizes=[3]), two(*example))


def test_codes_are_one_for_each_name():
    codes = Interface("m", (), (), (), (), ("x86-64-v3",), False).codes
    assert max(Counter(code.name for code in codes).values()) == 1
    assert [code.name for code in codes][0] == "OK"


def test_the_levels_of_a_library_are_the_machines_own(path):
    assert writing._levels(None) == tuple(own_levels())
