"""The command line besides `run`: info, the version, and what is refused."""

import importlib.metadata
import subprocess
import sys

import pytest

import lamina
from lamina.__main__ import main
from lamina.facade import info


def lamina_command(*args: str, folder) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "lamina", *args], cwd=folder, capture_output=True, text=True)


def test_info_names_versions_and_machine(tmp_path):
    done = lamina_command("info", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert found["lamina"] == lamina.__version__
    assert found["numpy"] == importlib.metadata.version("numpy")
    assert found["python"].startswith(sys.version.split()[0])
    assert {"llvmlite", "triton", "torch", "cpu", "features", "cores", "devices"} <= set(found)


def test_info_loads_none_of_the_libraries_it_names(tmp_path):
    program = """
import sys
from lamina.facade import info
info.spelled()
print(sorted({"llvmlite", "triton", "torch", "networkx", "safetensors"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


def test_info_without_proc(monkeypatch):
    monkeypatch.setattr(info, "_fields", lambda path: {})
    found = info.facts()
    assert found["features"] == "unknown" and "memory" not in found


def test_info_says_what_is_not_installed(monkeypatch):
    monkeypatch.setattr(info, "LIBRARIES", ("no-such-library",))
    assert info.facts()["no-such-library"] == "not installed"


def test_version_and_usage(tmp_path, capsys):
    assert lamina_command("--version", folder=tmp_path).stdout == f"lamina {lamina.__version__}\n"
    done = lamina_command("fly", folder=tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("usage: lamina")
    for args in ([], ["run"], ["export"]):  # in this process: another one takes a second each
        with pytest.raises(SystemExit, match="^2$"):
            main(args)
        assert capsys.readouterr().err.startswith("usage: lamina")


def test_demo_gets_its_own_options(tmp_path):
    done = lamina_command("demo", "--help", folder=tmp_path)
    assert done.returncode == 0 and "--epochs" in done.stdout
