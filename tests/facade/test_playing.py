"""What programs and libraries learn about `torch` where Lamina answers for it."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import lamina
from lamina.facade.offered import NAMES
from lamina.facade.torch_version import VERSION, TorchVersion
from lamina.ir.version import PYTORCH, __version__


def run(folder: Path, *command: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lamina", "run", *command],
        cwd=folder,
        input=stdin,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_version_is_that_of_the_names():
    assert NAMES.read_text().startswith(f"# Public names of PyTorch {PYTORCH}:")
    assert f"{PYTORCH}+lamina.{__version__}" == VERSION
    assert lamina.__version__ == __version__ and lamina.version.__version__ == VERSION


def test_versions_compare_by_number():
    version = TorchVersion("2.13.0+lamina.0.1.0")
    assert (
        version >= "2.9" and version > (2, 9) and version >= (2, 13) and version < "3" and version <= "2.13.0"
    )
    assert not version < "2.2.1" and version == "2.13.0+lamina.0.1.0" and version.startswith("2.13")


ASKED = """
import importlib.metadata, importlib.util, sys
print(importlib.util.find_spec("torch").name, importlib.metadata.version("torch"))
print(importlib.metadata.packages_distributions()["torch"][:1])
print(list(importlib.metadata.distributions(name="x")))
print(importlib.util.find_spec("torchaudio"))
import torch
print(torch.__version__, torch.__name__, torch.torch is torch, torch.version.__version__)
import lamina
assert torch.nn is lamina.nn and torch.Tensor is lamina.Tensor and torch.relu is lamina.relu
assert set(dir(lamina)) <= set(dir(torch)) and torch.jit is lamina.jit
try:
    importlib.metadata.distribution("torch").locate_file("x")
except FileNotFoundError as error:
    print(error)
"""


CLASSES = """
import pickle, sys
import torch
from torch.nn import Linear, Parameter
x, weight = torch.ones(2), Parameter(torch.ones(2))
print([f"{kind.__module__}.{kind.__qualname__}" for kind in (type(x), type(weight))])
print(x, weight.shape, pickle.loads(pickle.dumps(torch.Tensor)) is torch.Tensor)
class Named(torch.Tensor):
    pass
print(torch.exp(x.as_subclass(Named)), Parameter(x).is_leaf, Parameter(x.as_subclass(Named)).requires_grad)
step = torch.compile(lambda v: torch.Tensor.add(v, weight) if isinstance(v, torch.Tensor) else None)
for _ in range(4):
    y = step(x)
print(y.tolist() == (x + weight).tolist(), step.explain().splitlines()[0].partition(": ")[2])
with open("kept.pickle", "wb") as file:
    pickle.dump([x, weight, Linear(2, 2).weight], file)
"""


def test_classes_of_tensors_tell_the_library_whose_functions_take_them(tmp_path):
    """opt_einsum and autoray take the first part of the module of an operand's class for its library."""
    kinds, x, subclass, traced = run(tmp_path, "-c", CLASSES).splitlines()
    assert kinds == "['torch.Tensor', 'torch.nn.parameter.Parameter']"
    assert x == "tensor([1., 1.]) torch.Size([2]) True"
    assert subclass == "Named([2.7183, 2.7183]) True True"
    assert traced == "True served 3 of 4 calls"
    with (tmp_path / "kept.pickle").open("rb") as file:  # by a program that imports Lamina by its own name
        x, weight, _ = pickle.load(file)
    assert type(x) is lamina.Tensor and type(weight) is lamina.nn.Parameter
    assert lamina.Tensor.__module__ == "lamina.runtime.tensor"


def test_what_libraries_ask(tmp_path):
    assert run(tmp_path, "-c", ASKED).splitlines() == [
        f"torch {VERSION}",
        "['torch']",
        "[]",
        "None",
        f"{VERSION} torch True {VERSION}",
        "torch is played by Lamina: there is no file x",
    ]


IMPORTED = """
import importlib, types, lamina
from lamina.facade import late, modules
names = sorted({*modules.MODULES, *late.ROOMS})
rooms = {room: dict(vars(room)) for room in modules.MODULES.values()}
for root in ("lamina", "torch"):
    for name in names:
        importlib.import_module(f"{root}.{name}")
for room, before in rooms.items():
    for key, value in before.items():
        if not key.startswith("__") and vars(room).get(key) is not value:
            print(room.__name__, key)
print(len(names) > 100)
"""


def test_an_import_puts_no_module_over_a_function(tmp_path):
    assert run(tmp_path, "-c", IMPORTED) == "True\n"


EXCHANGED = """
import sys, torch
from torch import nn
init = sys.modules["torch.nn.init"]
assert init is nn.init and sys.modules["torch.nn.functional"] is nn.functional
assert all(f"torch.nn.modules.{file}" in sys.modules for file in ("activation", "conv", "linear"))
modules = [
    nn.Linear(3, 4), nn.Bilinear(2, 3, 4), nn.Conv1d(3, 4, 3), nn.ConvTranspose2d(3, 4, 3), nn.LSTM(3, 4),
    nn.GRUCell(3, 4), nn.Embedding(5, 6), nn.EmbeddingBag(5, 6), nn.LayerNorm(4), nn.RMSNorm(4),
    nn.GroupNorm(2, 4), nn.MultiheadAttention(8, 2), nn.PReLU(), nn.Transformer(8, 2, 1, 1, 8),
    nn.AdaptiveLogSoftmaxWithLoss(8, 10, [3]),
]
for name in [name for name in vars(init) if name.endswith("_") and not name.startswith("_")]:
    setattr(init, name, lambda tensor, *args, **kwargs: tensor)
for module in modules:
    for param in module.parameters():
        torch.no_grad()(param.fill_)(3.0)
    getattr(module, "reset_parameters", None) and module.reset_parameters()
    getattr(module, "_reset_parameters", None) and module._reset_parameters()
    print(*[type(module).__name__ for param in module.parameters() if (param != 3).any()], end="")
"""


def test_functions_of_init_may_be_exchanged_among_the_loaded_modules(tmp_path):
    assert run(tmp_path, "-c", EXCHANGED) == ""


def test_ways_to_run(tmp_path):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("import torch\n")
    told = (
        "import sys, torch\nprint(__name__, sys.argv[1:], __package__, torch.ones(1).item(), sys.path[0])\n"
    )
    (tmp_path / "package" / "__main__.py").write_text(told)
    (tmp_path / "package" / "part.py").write_text(told)
    here = str(tmp_path)
    assert run(tmp_path, "-m", "package", "-m", "a") == f"__main__ ['-m', 'a'] package 1.0 {here}\n"
    assert run(tmp_path, "-m", "package.part") == f"__main__ [] package 1.0 {here}\n"
    assert run(tmp_path, "-c", told, "x") == "__main__ ['x'] None 1.0 \n"
    assert run(tmp_path, "-", "x", stdin=told) == "__main__ ['x'] None 1.0 \n"


@pytest.mark.parametrize(
    ("command", "status", "message"),
    [
        (["-m", "no_such"], 1, "lamina run: No module named no_such\n"),
        (["-m", "no_such.part"], 1, "lamina run: No module named no_such.part\n"),
        (["-m"], 2, "lamina run: argument expected for the -m option\n"),
        (["-c", "import sys; sys.exit(3)"], 3, ""),
    ],
)
def test_ways_to_fail(tmp_path, command, status, message):
    done = subprocess.run(
        [sys.executable, "-m", "lamina", "run", *command], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, "", message)


SPAWNING = """
import torch
import torch.multiprocessing as mp

def work(number, queue):
    queue.put((number, torch.__version__, torch.ones(2).sum().item()))

if __name__ == "__main__":
    queue = mp.get_context("spawn").Queue()
    mp.spawn(work, args=(queue,), nprocs=2)
    print(sorted(queue.get() for _ in range(2)))
"""


def test_spawned_processes_find_torch(tmp_path):
    (tmp_path / "script.py").write_text(SPAWNING)
    assert run(tmp_path, "script.py") == f"{[(n, str(VERSION), 2.0) for n in range(2)]}\n"


FUNCTORCH = """
import torch
from functorch import combine_state_for_ensemble, grad, make_functional, make_functional_with_buffers, vmap
from functorch.experimental import chunk_vmap

x = torch.randn(4, 2)
model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)).eval()
func, params, buffers = make_functional_with_buffers(model)
assert torch.equal(func(params, buffers, x), model(x)) and (len(params), len(buffers)) == (4, 3)
linear = torch.nn.Linear(2, 3)
func, params = make_functional(linear, disable_autograd_tracking=True)
assert params[0] is not linear.weight and not params[0].requires_grad and linear.weight.requires_grad
assert torch.equal(grad(lambda p: func(p, x).sum())(params)[1], torch.full((3,), 4.0))
models = [torch.nn.Linear(2, 3) for _ in range(3)]
func, params, buffers = combine_state_for_ensemble(models)
torch.testing.assert_close(vmap(func, (0, 0, None))(params, buffers, x)[2], models[2](x))
for chunks in (1, 3, 9):
    assert torch.equal(chunk_vmap(torch.sin, 1, 1, chunks=chunks)(x), x.sin())
try:
    make_functional(model)
except RuntimeError as error:
    print(error)
"""


def test_programs_for_functorch_find_what_they_import(tmp_path):
    (tmp_path / "older.py").write_text(FUNCTORCH)
    assert "has buffers. Please use make_functional_with_buffers" in run(tmp_path, "older.py")
