"""`python -m lamina run script.py`: as `python script.py`, with Lamina where the script imports torch."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(folder: Path, *command: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=folder, input=stdin, capture_output=True, text=True)


def served(folder: Path, source: str, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(source)
    return run(folder, "-W", "error", "-m", "lamina", "run", "script.py", *args)


TRAINING = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.backends.cudnn as cudnn
from torch import Tensor, optim
from torch.nn.parameter import Parameter
from torch.nn.utils import clip_grad_norm_
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, Dataset, TensorDataset

cudnn.benchmark = True
torch.backends.cudnn.deterministic = True
torch.manual_seed(0)
torch.cuda.manual_seed_all(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(4, 16), nn.Linear(16, 2)
        self.scale = Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.relu(self.hidden(x))) * self.scale

x = torch.randn(128, 4)
y = (x[:, 0] * x[:, 1] > 0).long()
loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
net = Net().to(device)
optimizer = optim.Adam(net.parameters(), lr=0.03)
schedule = lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
for epoch in range(40):
    for a, b in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(a.to(device)), b.to(device))
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    schedule.step()
with torch.no_grad():
    accuracy = (net(x).argmax(1) == y).float().mean().item()
torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, "model.pt")
found = torch.load("model.pt", map_location=device)
other = Net()
other.load_state_dict(found["net"])
assert torch.equal(other(x), net(x))
optimizer.load_state_dict(found["optimizer"])
assert accuracy > 0.9, accuracy
print("trained", torch.__name__, nn.__name__)
"""


def test_an_ordinary_training_script_runs(tmp_path):
    done = served(tmp_path, TRAINING)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained torch lamina.nn\n", "")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "source",
    [
        "import sys; print(sys.argv, __name__, __file__, __spec__, sys.path[0])",
        "import __main__; x = 1; print(__main__.x, __main__.__file__)",
        "import sys\nsys.exit(3)\n",
        "import sys\nsys.exit('a message')\n",
        "raise SystemExit\n",
        "def f():\n    return 1 / 0\n\nf()\n",
        "try:\n    {}['a']\nexcept KeyError as error:\n    raise ValueError('wrapped') from error\n",
        "try:\n    {}['a']\nexcept KeyError:\n    [][1]\n",
        "def f(:\n    pass\n",
        "x = '\n",
        "import neighbour\nneighbour.fail()\n",
        "import no_such_module\n",
        "raise KeyboardInterrupt\n",
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
        "import atexit\nX = 5\natexit.register(lambda: print('bye', X))\nprint('hello')\n",
        "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)\n",
        "# -*- coding: latin-1 -*-\nprint(len('\u00e4'))\n",
        "from __future__ import annotations\nx: unknown = 1\nprint(__annotations__)\n",
        "import sys\nsys.excepthook = lambda kind, error, trace: print('mine', kind.__name__)\n1 / 0\n",
        "import threading\nt = threading.Thread(target=lambda: print(__name__))\nt.start(); t.join()\n",
        "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])\n",
    ],
)
def test_run_is_python_itself(tmp_path, source):
    (tmp_path / "neighbour.py").write_text("def fail():\n    raise RuntimeError('beside')\n")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "script.py").write_text(source, encoding="latin-1")
    (tmp_path / "inner" / "neighbour.py").write_text("def fail():\n    raise RuntimeError('inside')\n")
    script, args = "inner/script.py", ["--flag", "-x", "1", "--help", "--"]
    expected = run(tmp_path, script, *args)
    done = run(tmp_path, "-m", "lamina", "run", script, *args)
    assert (done.returncode, done.stdout, done.stderr) == (
        expected.returncode,
        expected.stdout,
        expected.stderr,
    )


def test_a_script_that_is_not_there(tmp_path):
    done = run(tmp_path, "-m", "lamina", "run", "nothing.py")
    assert done.returncode == 2
    assert done.stderr == "lamina run: can't open file 'nothing.py': No such file or directory\n"


LACKING = {
    "torchvision.tv_tensors": "the stand-in for torchvision has no torchvision.tv_tensors",
    "torch.jit.mobile": "Lamina has no torch.jit.mobile\n",
    "torch.runtime": "Lamina has no torch.runtime\n",
    "torch.nn.nothing": "Lamina has no torch.nn.nothing\n",
    "torch.utils.mobile_optimizer": "Lamina has no torch.utils.mobile_optimizer\n",
}
TRYING = """
import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(type(error).__name__, error, sep="\\n", end="\\n---\\n")
"""


def test_what_is_lacking_is_named(tmp_path):
    done = served(tmp_path, TRYING, *LACKING)
    assert done.returncode == 0, done.stderr
    *texts, rest = done.stdout.split("---\n")
    assert not rest
    for text, expected in zip(texts, LACKING.values(), strict=True):
        assert text.startswith("LackingError\n") and expected in text
        assert "stand-in" in text or "this script runs under `python -m lamina run`" in text


def test_asking_whether_a_module_is_there_does_not_fail(tmp_path):
    source = "from importlib.util import find_spec\n"
    source += "print(find_spec('torch') is None, find_spec('no_such') is None)\n"
    source += "find_spec('torch.distributed.rpc')\n"
    source += "print(find_spec('torchvision') is None, find_spec('torchaudio') is None)\n"
    assert served(tmp_path, source).stdout == "False True\nFalse True\n"


def test_what_programs_take_apart_prints_under_torchs_name(tmp_path):
    source = (
        "import torch\nx = torch.ones(2, 3, dtype=torch.float64)\n"
        "print(str(x.dtype).removeprefix('torch.'), f'{torch.int64}', x.shape, repr(x.layout), sep='|')\n"
        "print(x[0])\nprint(x.max(0).__class__.__name__, str(x[:, :1].max(0)).partition('(')[0])"
    )
    said = "float64|torch.int64|torch.Size([2, 3])|torch.strided\n"
    said += "tensor([1., 1., 1.], dtype=torch.float64)\nmax torch.return_types.max\n"
    assert served(tmp_path, source).stdout == said


def test_aliases_leave_the_modules_as_they_are(tmp_path):
    source = """
import torch, torch.nn.functional, torch.utils.data, torch.optim.lr_scheduler
import lamina, lamina.nn.functional
assert torch.Tensor is lamina.Tensor
assert torch.nn.functional is lamina.nn.functional and torch.utils.data is lamina.data
for module, name in ((lamina, "lamina"), (torch.nn, "lamina.nn"), (torch.utils.data, "lamina.data")):
    assert module.__name__ == name and module.__spec__.name == name, module.__spec__
import pickle
layer = pickle.loads(pickle.dumps(torch.nn.Linear(2, 2)))
assert type(layer) is torch.nn.Linear
"""
    done = served(tmp_path, source)
    assert done.returncode == 0, done.stderr


def test_without_run_nothing_answers_for_torch(tmp_path):
    source = "import sys, lamina, lamina.facade.playing as s\n"
    source += "print([f for f in sys.meta_path if isinstance(f, s.Finder)])"
    (tmp_path / "script.py").write_text(source)
    assert run(tmp_path, "script.py").stdout == "[]\n"


def test_rooms_of_torchvision_that_libraries_import(tmp_path):
    source = "from torchvision.ops.boxes import batched_nms, box_area\n"
    source += (
        "from torchvision.ops.focal_loss import sigmoid_focal_loss\nimport torchvision.ops.boxes\nprint(1)"
    )
    assert served(tmp_path, source).stdout == "1\n"
