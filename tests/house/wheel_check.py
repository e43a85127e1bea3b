"""Build the wheel and check it: what is in it, its size, what `import lamina` costs where it is installed.

A program, for it needs the network and about a minute: `make wheel`. It ends with a line beginning "wheel:",
or with one that begins "wheel check failed:" and exit status 1.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

import package_tree

MOST_BYTES = 3_010_000  # 3.00 MB on 2026-11-30, with AMD, sorting and factoring on GPUs, and passes of fx
MOST_MODULES = 500  # that `import lamina` loads beyond NumPy: about 0.2 s (478 on 2026-11-26)
RUNS = 7  # other programs on the machine only ever add to a measured time: the least is told

NOT_SOURCE = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", ".*_cache", ".hypothesis"
)

SMOKE = """
import lamina
import lamina.data, lamina.distributions, lamina.jit, lamina.nn, lamina.optim
x = lamina.tensor([1.0, 2.0, 3.0], requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2.0, 4.0, 6.0], x.grad
print(lamina.__version__)
"""


class CheckFailed(Exception):
    """Say what is wrong with the wheel."""


def run(*command: object, cwd: Path) -> str:
    """Run a command in `cwd` and return what it printed. Raises CheckFailed with its output if it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=clean, capture_output=True, text=True)
    if done.returncode:
        raise CheckFailed(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def build(work: Path) -> Path:
    """Build the wheel from a copy of the tree, lest a leftover of an earlier build come along."""
    source = work / "source"
    shutil.copytree(package_tree.ROOT, source, ignore=NOT_SOURCE, symlinks=True)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", work / "dist", source, cwd=work)
    (wheel,) = (work / "dist").glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> int:
    """Compare the wheel's names with the package's files, both ways; return how many it holds."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    about = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    metadata = {
        f"{about}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "top_level.txt", "licenses/LICENSE")
    }
    expected = metadata | set(package_tree.files())
    if surplus := sorted(set(names) - expected):
        raise CheckFailed(f"the wheel holds what it should not: {surplus}")
    if missing := sorted(expected - set(names)):
        raise CheckFailed(f"the wheel lacks {missing}")
    if wheel.stat().st_size > MOST_BYTES:
        raise CheckFailed(f"the wheel has {wheel.stat().st_size} bytes; {MOST_BYTES} are allowed")
    return len(names)


def check_import(python: Path, work: Path) -> dict:
    """Look at `import lamina` in fresh interpreters; return what it loads, and the least of the times.

    What it takes is told, not held to a limit, which a busy machine would miss; what it loads is.
    """
    probe = Path(__file__).with_name("import_probe.py")
    found = min((json.loads(run(python, probe, cwd=work)) for _ in range(RUNS)), key=lambda f: f["seconds"])
    if found["heavy"]:
        raise CheckFailed(f"`import lamina` loads {found['heavy']}; each is loaded when first needed")
    if found["modules"] > MOST_MODULES:
        raise CheckFailed(
            f"`import lamina` loads {found['modules']} modules beyond NumPy; {MOST_MODULES} are allowed; "
            "python -X importtime -c 'import lamina' shows what they take"
        )
    return found


def main() -> None:
    """Build, look inside, install with dependencies in a bare environment, import, and compute something."""
    with tempfile.TemporaryDirectory(prefix="lamina-wheel-") as folder:
        work = Path(folder)
        wheel = build(work)
        count = check_contents(wheel)
        size = wheel.stat().st_size
        venv.create(work / "bare", with_pip=True)
        python = work / "bare" / "bin" / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=work)
        found = check_import(python, work)
        version = run(python, "-c", SMOKE, cwd=work).strip()
        if wheel.name.split("-")[1] != version:
            raise CheckFailed(f"{wheel.name} says that it is version {version}")
    print(
        f"wheel: {count} files, {size} bytes (at most {MOST_BYTES}); "
        f"import: {found['modules']} modules beyond NumPy (at most {MOST_MODULES}), {found['seconds']:.3f} s"
    )


if __name__ == "__main__":
    try:
        main()
    except CheckFailed as error:
        sys.exit(f"wheel check failed: {error}")
