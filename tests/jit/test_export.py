"""Exported models: what the file holds, what runs it, and everything that can be wrong with it."""

import os
import re
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import lamina
from lamina import jit, nn
from lamina.ir.kernel.text import parse
from lamina.jit import ExportError, ModelError, artifact, lamina_model
from lamina.jit.export import FEW, NOISE, compare
from lamina.jit.lamina_model import Model, cpu_levels
from lamina.nn import functional as F
from lamina.passes.programs.program import Array, Call, Program
from lamina.passes.schedules.target import BASELINE

LEVEL = ["x86-64-v2"]  # one level compiles in a third of the time
EPS = float(np.finfo(np.float32).eps)


def network() -> nn.Module:
    lamina.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * 3 * 3, 5),
    )  # fmt: skip
    for _ in range(3):
        made(lamina.randn(4, 3, 6, 6))
    return made.eval()


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, nn.Module, lamina.Tensor]:
    path = tmp_path_factory.mktemp("export") / "model.lam"
    model, x = network(), lamina.randn(2, 3, 6, 6)
    jit.export(model, path, x, levels=LEVEL)
    return path, model, x


def close(a, b, roundings: int = 64) -> bool:
    """roundings: sums of at most 72 products, after one more rounding of each weight."""
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and np.abs(a - b).max(initial=0) <= roundings * EPS * np.abs(b).max(initial=1)


def fresh(code: str, *arguments: str, ok: bool = True) -> str:
    """Run code in a process that can't import lamina; its output, or its error."""
    blocked = "import sys\nsys.modules['lamina'] = None\nsys.modules['llvmlite'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + code, *arguments], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode == 0) is ok, done.stderr
    return done.stdout if ok else done.stderr


def test_export_runs_with_numpy_alone(exported, tmp_path):
    path, model, x = exported
    np.save(tmp_path / "x.npy", x.numpy())
    code = (
        "sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np, lamina_model\n"
        "np.save(sys.argv[3], lamina_model.run(np.load(sys.argv[2])))\n"
    )
    fresh(code, str(path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy"))
    with lamina.no_grad():
        assert close(np.load(tmp_path / "y.npy"), model(x).numpy())


ALONE = """
import numpy as np, lamina_model
assert lamina_model.__file__ == sys.argv[4], lamina_model.__file__
y = lamina_model.load(sys.argv[1]).run(np.load(sys.argv[2]))
np.save(sys.argv[3], y)
assert not [m for m in sys.modules.values() if sys.argv[1] in (getattr(m, "__file__", None) or "")]
"""


def test_the_loader_runs_a_model_from_a_file_of_its_own(exported, tmp_path):
    path, model, x = exported
    done = subprocess.run(
        [sys.executable, "-m", "lamina", "export", "--loader", str(tmp_path)], capture_output=True, text=True
    )
    loader = tmp_path / "lamina_model.py"
    assert done.stdout == f"{loader}\n", done.stderr
    assert loader.read_bytes() == artifact.loader_text()
    assert artifact.write_loader(tmp_path / "other.py").read_bytes() == loader.read_bytes()
    np.save(tmp_path / "x.npy", x.numpy())
    names = [path, tmp_path / "x.npy", tmp_path / "y.npy", loader]
    fresh(f"sys.path.insert(0, {str(tmp_path)!r})\n" + ALONE, *map(str, names))
    with lamina.no_grad():
        assert close(np.load(tmp_path / "y.npy"), model(x).numpy())


@pytest.mark.parametrize("native", [True, False])
def test_load_gives_what_the_module_gives(exported, native):
    path, model, x = exported
    loaded = jit.load(path, native=native)
    with lamina.no_grad():
        assert close(loaded(x).numpy(), model(x).numpy())
        again = lamina.randn(2, 3, 6, 6)
        assert close(loaded(again).numpy(), model(again).numpy())
    assert "input: f32[2, 3, 6, 6]" in repr(loaded)


def test_the_file_holds_folded_weights_and_readable_text(exported):
    path, *_ = exported
    with zipfile.ZipFile(path) as archive:
        graph = archive.read("graph.txt").decode()
        assert all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
        sizes = {info.filename for info in archive.infolist()}
    assert "batch_norm" not in graph and "conv2d" in graph
    assert sizes == {"lamina_model.py", "graph.txt", "x86-64-v2.so", "weights.safetensors", "manifest.json"}


def test_every_member_is_checked_before_use(exported, tmp_path):
    path, *_ = exported
    with zipfile.ZipFile(path) as archive:
        members, comment = {info.filename: archive.read(info) for info in archive.infolist()}, archive.comment
    for name in members:
        damaged = dict(members)
        at = len(members[name]) // 2
        damaged[name] = members[name][:at] + bytes([members[name][at] ^ 1]) + members[name][at + 1 :]
        broken = tmp_path / "broken.lam"
        with zipfile.ZipFile(broken, "w", zipfile.ZIP_STORED) as archive:  # with checksums that fit
            for other, data in damaged.items():
                archive.writestr(other, data)
            archive.comment = comment
        with pytest.raises(ModelError, match="damaged"):
            Model(broken)


@pytest.mark.parametrize("keep", [0, 10, 1000, 0.5, 0.99])
def test_a_truncated_file_is_refused(exported, tmp_path, keep):
    data = exported[0].read_bytes()
    short = tmp_path / "short.lam"
    short.write_bytes(data[: int(keep * len(data)) if isinstance(keep, float) else keep])
    with pytest.raises(ModelError, match=r"short\.lam"):
        jit.load(short)


def test_foreign_files_are_refused(tmp_path):
    text = tmp_path / "text.lam"
    text.write_text("not a model")
    archive = tmp_path / "zip.lam"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("hello.txt", "hello")
    for path in (text, archive):
        with pytest.raises(ModelError, match="no model|not a zip"):
            jit.load(path)
    with pytest.raises(FileNotFoundError):
        jit.load(tmp_path / "absent.lam")


def test_inputs_are_checked_before_native_code_runs(exported):
    model = Model(exported[0])
    x = np.zeros((2, 3, 6, 6), np.float32)
    with pytest.raises(TypeError, match=r"takes 1 arrays \(input\), not 2"):
        model.run(x, x)
    with pytest.raises(TypeError, match="not float64"):
        model.run(x.astype(np.float64))
    with pytest.raises(ValueError, match=r"the array given is \[2, 3, 6\]"):
        model.run(x[..., 0])
    turned = np.asfortranarray(np.random.default_rng(0).standard_normal(x.shape).astype(np.float32))
    readonly = np.ascontiguousarray(turned)
    readonly.flags.writeable = False
    assert np.array_equal(model.run(turned), model.run(readonly))


@pytest.mark.parametrize("native", [True, False])
def test_a_loaded_model_takes_just_its_inputs(tmp_path, native):
    weight = lamina.full((3,), 10.0)
    jit.export(lambda x: x * weight, tmp_path / "m.lam", lamina.ones(3), levels=LEVEL)
    loaded = jit.load(tmp_path / "m.lam", native=native)
    for given in ((), (lamina.ones(3), lamina.zeros(3))):  # the second is no weight
        with pytest.raises(TypeError, match=f"takes 1 arrays .x., not {len(given)}"):
            loaded(*given)
    with pytest.raises(TypeError, match="not float64"):
        loaded(lamina.ones(3).double())
    assert loaded(lamina.ones(3)).tolist() == [10.0] * 3


@pytest.mark.parametrize("native", [True, False])
def test_inputs_are_the_arguments_in_their_order(tmp_path, native):
    def function(x, unused, y):
        return y * 3 - x, y  # y is used first

    x, y, z, absent = (lamina.randn(3) for _ in range(4))
    jit.export(function, tmp_path / "m.lam", x, absent, z, levels=LEVEL)
    loaded = jit.load(tmp_path / "m.lam", native=native)
    for pair in ((x, y), (y, x)):
        for a, b in zip(loaded(pair[0], absent, pair[1]), function(pair[0], absent, pair[1]), strict=True):
            assert close(a.numpy(), b.numpy(), roundings=4)
    with pytest.raises(ExportError, match="two of the arguments are one tensor"):
        jit.export(function, tmp_path / "n.lam", x, y, x, levels=LEVEL)


def test_inputs_and_weights_without_dimensions(tmp_path):
    scale = lamina.tensor(3.0)
    jit.export(
        lambda x, y: x * scale + y, tmp_path / "m.lam", lamina.tensor(2.0), lamina.ones(2), levels=LEVEL
    )
    assert Model(tmp_path / "m.lam").run(np.float32(4.0), np.ones(2, np.float32)).tolist() == [13.0, 13.0]


@pytest.mark.parametrize("native", [True, False])
def test_bfloat16_goes_in_and_out(tmp_path, native):
    layer, x = nn.Linear(3, 4).bfloat16(), lamina.randn(2, 3).bfloat16()
    jit.export(lambda x: (layer(x), x, x.float()), tmp_path / "m.lam", x, levels=LEVEL)
    made, same, wide = jit.load(tmp_path / "m.lam", native=native)(x)
    with lamina.no_grad():
        wanted = layer(x)
    assert made.dtype is same.dtype is lamina.bfloat16
    # sums of 3 products and a bias, rounded to 8 bits once more
    assert (made.float() - wanted.float()).abs().max().item() <= 2**-7 * wanted.float().abs().max().item()
    assert same.tolist() == x.tolist() and wide.tolist() == x.float().tolist()


def test_a_level_that_is_not_there_is_named(exported):
    with pytest.raises(ModelError, match="holds code for x86-64-v2"):
        Model(exported[0], level="x86-64-v4")
    with pytest.raises(lamina.ArgumentError, match="x86-64-v9"):
        jit.export(network(), "never.lam", lamina.randn(1, 3, 6, 6), levels=["x86-64-v9"])
    assert not Path("never.lam").exists()


def test_every_level_this_machine_has_agrees(tmp_path):
    model, x = nn.Linear(7, 3), lamina.randn(2, 7)
    jit.export(model, tmp_path / "m.lam", x)
    with lamina.no_grad():
        wanted = model(x).numpy()
    assert cpu_levels(), "this machine is x86-64"
    for level in cpu_levels():
        assert close(Model(tmp_path / "m.lam", level=level).run(x.numpy()), wanted, roundings=8)


def test_code_for_another_kind_of_machine(tmp_path, monkeypatch):
    path = tmp_path / "m.lam"
    jit.export(nn.Linear(7, 3), path, lamina.randn(2, 7), levels=[*LEVEL, "armv8-a"])
    with zipfile.ZipFile(path) as file:
        machines = [
            int.from_bytes(file.read(f"{level}.so")[18:20], "little") for level in (*LEVEL, "armv8-a")
        ]
    assert machines == [62, 183]  # as ELF numbers them
    assert Model(path).level == LEVEL[0]
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    assert cpu_levels() == ["armv8-a"]
    with pytest.raises(ModelError, match="this machine runs armv8-a, and x86-64-v2 was asked for"):
        Model(path, level="x86-64-v2")


def test_structures_of_arguments_and_results(tmp_path):
    def function(pair, scale, *, other):
        a, b = pair
        return {"sum": a + b, "rest": [a * scale, (other.T, 3, None)], "again": a * scale}

    a, b, c = lamina.randn(2, 3), lamina.randn(2, 3), lamina.randn(4, 2)
    jit.export(
        lambda pair, other: function(pair, 2.0, other=other), tmp_path / "m.lam", (a, b), c, levels=LEVEL
    )
    got = Model(tmp_path / "m.lam").run(a.numpy(), b.numpy(), c.numpy())
    assert np.array_equal(got["sum"], (a + b).numpy())
    first, (turned, three, none) = got["rest"]
    assert np.array_equal(first, (a * 2.0).numpy()) and np.array_equal(got["again"], first)
    assert np.array_equal(turned, c.numpy().T) and three == 3 and none is None


def test_indices_out_of_range_are_refused_before_they_are_read(tmp_path):
    table = nn.Embedding(10, 64)
    jit.export(table, tmp_path / "m.lam", lamina.tensor([[1, 2]]), levels=LEVEL)
    model = Model(tmp_path / "m.lam")
    with lamina.no_grad():
        assert np.array_equal(model.run(np.array([[9, 0]])), table(lamina.tensor([[9, 0]])).numpy())
    for wrong in (10, -11, 1 << 40):
        with pytest.raises(IndexError, match="index"):
            model.run(np.array([[0, wrong]]))


def test_what_no_file_can_hold_is_refused_with_a_reason(tmp_path):
    x, path = lamina.randn(4, 3, 6, 6), tmp_path / "m.lam"
    training, weight = network().train(), lamina.ones(3)
    cases = [
        (training, "writes a captured tensor"),
        (lambda x: x + lamina.rand(4, 3, 6, 6), "random numbers"),
        (lambda x: x + 1 if x.sum() > 0 else x - 1, "asks for a value"),
        (lambda x: lamina.sort(x).values, "sort has no kernel"),
        (lambda x: x.add_(1), "writes an argument"),
        (lambda x: (x, weight), "return its clone()"),
    ]
    for function, reason in cases:
        with pytest.raises(ExportError, match=reason):
            jit.export(function, path, x.clone(), levels=LEVEL)
        assert list(tmp_path.iterdir()) == []


def test_a_file_that_computes_something_else_never_appears(tmp_path, monkeypatch):
    real = jit.export.__globals__["artifact"].write

    def wrong(file, graph, inputs, weights, *rest, **options):
        real(file, graph, inputs, {name: array + 1 for name, array in weights.items()}, *rest, **options)

    monkeypatch.setattr(jit.export.__globals__["artifact"], "write", wrong)
    with pytest.raises(ExportError, match="result 0 of the file is not the function's"):
        jit.export(nn.Linear(4, 4), tmp_path / "m.lam", lamina.randn(2, 4), levels=LEVEL)
    assert list(tmp_path.iterdir()) == []


class Squeezed(nn.Module):
    """What is scaled by a mean, which is summed in another order when it is compiled."""

    def __init__(self):
        super().__init__()
        self.deep, self.gate, self.last = (
            nn.Conv2d(16, 16, 3, 1, 1),
            nn.Conv2d(16, 16, 1),
            nn.Conv2d(16, 1, 1),
        )

    def forward(self, x):
        x = F.silu(self.deep(x))
        return self.last(x * F.sigmoid(self.gate(x.mean((2, 3), keepdim=True))))


@pytest.mark.parametrize("suffix", [".lam", ".so"])
def test_what_rounds_to_steps_is_compared_by_its_noise(tmp_path, monkeypatch, suffix):
    """A number at a half falls to either side: the file is right, though it differs by more than eps."""
    lamina.manual_seed(1)
    x = lamina.randn(2, 16, 96, 96)
    made = lamina.quantize(Squeezed(), [x], observer="minmax")
    jit.export(made, tmp_path / f"m{suffix}", x, levels=LEVEL)
    real = jit.export.__globals__["frozen"]

    def wrong(*given):
        graph, weights = real(*given)
        return graph, {name: -w if w.dtype == np.int8 else w for name, w in weights.items()}

    monkeypatch.setattr("lamina.exchange.c_library.writing.frozen", wrong)  # imports it: the next after it
    monkeypatch.setitem(jit.export.__globals__, "frozen", wrong)
    with pytest.raises(ExportError, match="result 0 of the file is not the function's"):
        jit.export(made, tmp_path / f"wrong{suffix}", x, levels=LEVEL)


def test_noise_is_no_excuse_for_other_results():
    rng = np.random.default_rng(0)
    a = rng.standard_normal(1000).astype(np.float32)
    one = np.where(np.arange(1000) == 7, a + 0.03, a)  # a step of 255
    compare([a], [one], NOISE)
    hole = np.where(np.arange(1000) == 7, np.nan, a)
    compare([hole], [np.where(np.isnan(hole), hole, one)], NOISE)
    for expected, given in [(a, -a), (a, a * 2), (a, hole), (hole, a), (a, a[:999])]:
        with pytest.raises(ExportError, match="is not the function's"):
            compare([expected], [given], NOISE)
    for expected, given, noise in [(a, one, 0.0), (np.arange(3), np.arange(3) + 1, NOISE)]:
        with pytest.raises(ExportError, match="is not the function's"):
            compare([expected], [given], noise)


def test_a_function_that_rounds_is_compared_more_strictly_than_bytes(tmp_path, monkeypatch):
    """One of a thousand numbers may have fallen to the other side, not one of ten."""
    x = lamina.randn(40, 50)
    told = []
    monkeypatch.setitem(jit.export.__globals__, "_tried", lambda file, a, b, noise: told.append(noise))
    for function in (lambda x: x.exp(), lambda x: (x * 10).round() / 10, lambda x: x.byte().float(),
                     lambda x: (x * 10).round().to(lamina.int8).float()):  # fmt: skip
        jit.export(function, tmp_path / "m.lam", x, levels=LEVEL)
    assert told == [0.0, FEW, 0.0, NOISE]
    a = np.sign(np.random.default_rng(0).standard_normal(2000))
    few, many = (np.where(np.arange(2000) < count, -a, a) for count in (0, 20))
    few[3] += 1  # a step, of one in two thousand
    compare([a], [few], FEW)
    with pytest.raises(ExportError, match="is not the function's"):
        compare([a], [many], FEW)


def test_an_export_that_is_killed_leaves_one_file_that_saves_know(tmp_path, monkeypatch):
    beside = []
    monkeypatch.setitem(jit.export.__globals__, "_tried", lambda *args: beside.extend(tmp_path.iterdir()))
    jit.export(nn.Linear(4, 4), tmp_path / "m.lam", lamina.randn(2, 4), levels=LEVEL)
    (left,) = beside
    assert re.fullmatch(r"\.m\.lam\.[0-9a-f]{12}\.part", left.name)
    assert [*tmp_path.iterdir()] == [tmp_path / "m.lam"]


def test_an_old_file_stays_where_an_export_fails(exported, tmp_path):
    path = tmp_path / "m.lam"
    path.write_bytes(exported[0].read_bytes())
    with pytest.raises(ExportError):
        jit.export(lambda x: x.add_(1), path, lamina.randn(2), levels=LEVEL)
    assert path.read_bytes() == exported[0].read_bytes()


def test_a_pipe_or_a_folder_is_not_replaced_by_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(ExportError, match="is a folder, a pipe or a device"):
            jit.export(nn.Linear(4, 4), tmp_path / name, lamina.randn(2, 4), levels=LEVEL)
    assert sorted(path.name for path in tmp_path.iterdir() if not path.is_file()) == ["folder", "pipe"]


def test_an_export_that_is_killed_leaves_what_the_next_removes(exported, tmp_path):
    left = tmp_path / ".m.lam.0123456789ab.part"
    left.write_bytes(b"half")
    os.utime(left, (1e9, 1e9))
    jit.export(nn.Linear(4, 4), tmp_path / "m.lam", lamina.randn(2, 4), levels=LEVEL)
    assert [path.name for path in tmp_path.iterdir()] == ["m.lam"]


def test_threads_and_forks_share_a_model(exported):
    path, module, x = exported
    model = Model(path, threads=2)
    wanted = model.run(x.numpy())
    found = []
    threads = [threading.Thread(target=lambda: found.append(model.run(x.numpy()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(np.array_equal(y, wanted) for y in found)
    code = (
        "sys.path.insert(0, sys.argv[1])\nimport os, numpy as np, lamina_model\n"
        "x = np.zeros((2, 3, 6, 6), np.float32)\ny = lamina_model.run(x)\nchild = os.fork()\n"
        "same = np.array_equal(lamina_model.run(x), y)\n"
        "if not child: os._exit(0 if same else 1)\n"
        "assert same and os.waitpid(child, 0)[1] == 0\n"
    )
    fresh(code, str(path))


def test_weights_are_those_of_the_export(tmp_path):
    model, x = nn.Linear(4, 4), lamina.randn(2, 4)
    jit.export(model, tmp_path / "m.lam", x, levels=LEVEL)
    with lamina.no_grad():
        before = model(x).numpy().copy()
        model.weight.mul_(2)
    assert close(Model(tmp_path / "m.lam").run(x.numpy()), before)


def test_the_loader_says_where_it_must_be_imported_from():
    with pytest.raises(ModelError, match="sys.path"):
        lamina_model.run(np.zeros(1))


def test_no_file_descriptor_is_mistaken_for_another(exported, tmp_path):
    """Two libraries loaded in turn are two libraries, though the system reuses numbers."""
    path, module, x = exported
    jit.export(nn.Linear(4, 4), tmp_path / "other.lam", lamina.randn(2, 4), levels=LEVEL)
    first, second = Model(path), Model(tmp_path / "other.lam")
    assert first.run(x.numpy()).shape == (2, 5) and second.run(np.zeros((2, 4), np.float32)).shape == (2, 4)


def test_indices_that_a_kernel_sums_up_are_refused():
    """Only Python could check them, and an exported file has none that can."""
    kernel = parse("""\
kernel pick(k: i64[3,2], t: f32[10]) -> (y: f32[3]) {
  parallel i:3
  s = sum(r:2) k[i, r]
  y[i] = t[s]
}""")
    k, t, y = Array("k", "i64", (3, 2)), Array("t", "f32", (10,)), Array("y", "f32", (3,))
    program = Program("picked", (k, t), (Call(kernel, (k, t), (y,)),), (y,))
    with pytest.raises(ExportError, match="pick reads at indices that it computes"):
        artifact.code_of_program(program, BASELINE, "main", None)


def test_a_number_of_threads_that_is_none_is_refused_by_its_name(tmp_path, monkeypatch):
    path = tmp_path / "model.lam"
    jit.export(lambda x: x * 2, path, lamina.ones(2), levels=["x86-64-v2"])
    monkeypatch.setenv("LAMINA_NUM_THREADS", "two")
    with pytest.raises(ModelError, match="LAMINA_NUM_THREADS is a number of threads, not 'two'"):
        jit.load(path)(lamina.ones(2))
    assert Model(path, threads=1).run(np.ones(2, np.float32)).tolist() == [2, 2]


# ---- as torch.jit spells it --------------------------------------------------------------------------------
def test_what_was_traced_with_an_example_is_saved_and_loaded(tmp_path):
    def f(x):
        return x.sum(1) * 2

    x = lamina.arange(6.0).reshape(2, 3)
    traced = jit.trace(f, x)
    traced.save(tmp_path / "f.pt", dynamic={0: {0: "batch"}}, levels=LEVEL)
    with open(tmp_path / "open.pt", "wb") as file:
        jit.save(traced, file, levels=LEVEL)
    with open(tmp_path / "open.pt", "rb") as file:
        opened = jit.load(file)
    served = jit.load(tmp_path / "f.pt", map_location="cpu").eval().to("cpu")
    assert opened(x).tolist() == served.forward(x).tolist() == [6.0, 24.0]
    assert served(lamina.ones(3, 3)).tolist() == [6.0] * 3
    assert jit.trace_module(nn.Flatten(), {"forward": x})(x).shape == (2, 3)
    with pytest.raises(TypeError, match="has no training mode"):
        served.train()
    with pytest.raises(TypeError, match="keeps the dtypes|in the dtypes that"):
        served.to(lamina.float64)
    with pytest.raises(lamina.ir.errors.DeviceError, match="tensors of the CPU"):
        served.to("cuda")


def test_what_can_not_be_saved_or_loaded_so(tmp_path):
    with pytest.raises(ExportError, match="was traced without an example"):
        jit.save(jit.script(network()), tmp_path / "no.pt")
    with pytest.raises(TypeError, match="takes what trace or script gave, not Sequential"):
        jit.save(network(), tmp_path / "no.pt")
    with pytest.raises(TypeError, match="trace.mod.method, example"):
        jit.trace_module(nn.Flatten(), {"other": lamina.ones(2)})
    with pytest.raises(lamina.ir.errors.DeviceError, match="tensors of the CPU"):
        jit.load(tmp_path / "net.pt", map_location="cuda")
