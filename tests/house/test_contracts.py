"""See the import contracts fail: plant each kind of forbidden import in a skeleton of the package."""

import os
import subprocess
import sys
from pathlib import Path

import package_tree
import pytest

LINTER = Path(sys.executable).with_name("lint-imports")


def lint(tmp_path: Path, module: str, source: str) -> subprocess.CompletedProcess[str]:
    """Run the contracts on empty packages, the face importing jit, and one more module with `source`."""
    for package in package_tree.packages():
        target = tmp_path.joinpath(*package.split("."))
        target.mkdir(parents=True)
        (target / "__init__.py").write_text("from . import jit\n" if package == "lamina" else "")
    (tmp_path / "lamina" / "__main__.py").write_text("from . import demo\n")
    tmp_path.joinpath(*module.split(".")).with_suffix(".py").write_text(source)
    config = package_tree.ROOT / "pyproject.toml"
    return subprocess.run(
        [LINTER, "--config", config, "--no-cache"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path), "NO_COLOR": "1", "COLUMNS": "200"},
        capture_output=True,
        text=True,
    )


PLANTED = {
    "upward": ("lamina.ir.planted", "from ..passes import llvm\n"),
    "upward_in_function": ("lamina.runtime.planted", "def f():\n    from ..jit import x\n"),
    "upward_skipping_rooms": ("lamina.ir.kernel.planted", "import lamina.facade\n"),
    "nn_to_optim": ("lamina.nn.planted", "from .. import optim\n"),
    "data_to_nn": ("lamina.data.planted", "def f():\n    import lamina.nn\n"),
    "jit_to_demo": ("lamina.jit.planted", "from ..demo import x\n"),
    "face_from_jit": ("lamina.jit.planted", "import lamina\n"),
    "rooms_of_passes": ("lamina.passes.kernels.planted", "from .. import llvm\n"),
    "code_in_schedules": ("lamina.passes.schedules.planted", "from ..llvm import emit\n"),
    "face": ("lamina.passes.planted", "import lamina\n"),
    "face_in_function": ("lamina.optim.planted", "def f():\n    from lamina import tensor\n"),
    "main": ("lamina.jit.planted", "from .. import __main__\n"),
    "peer": ("lamina.facade.planted", "def f():\n    import torch\n"),
    "room_in_no_layer": ("lamina.planted", "x = 1\n"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_contracts_catch(planted, tmp_path):
    done = lint(tmp_path, *PLANTED[planted])
    assert done.returncode == 1, done.stdout + done.stderr
    assert "planted" in done.stdout, done.stdout + done.stderr  # broken by this import, not by a bad config


def test_contracts_allow_downward(tmp_path):
    done = lint(tmp_path, "lamina.demo.planted", "import lamina\nfrom .. import data, facade, nn\n")
    assert done.returncode == 0, done.stdout + done.stderr
