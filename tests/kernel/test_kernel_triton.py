"""Triton: every probe's source becomes a cubin without GPU and torch, and its interpreter agrees."""

import subprocess
import sys
from pathlib import Path

import pytest
from probes import INPLACE, PROBES

from lamina.ir.errors import KernelError
from lamina.ir.kernel import parse, verify
from lamina.passes.triton.emit import lower
from lamina.passes.triton.schedule import default_schedule, grid

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def compiler(tmp_path_factory):
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    patch = pytest.MonkeyPatch()
    patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
    from lamina.passes.triton import compiler

    yield compiler
    patch.undo()


@pytest.mark.parametrize("name", PROBES)
def test_probe_compiles_to_a_cubin(compiler, name):
    cubin = compiler.compile_kernel(PROBES[name].kernel)
    assert cubin.code[:4] == b"\x7fELF" and f".entry {PROBES[name].kernel.name}(" in cubin.ptx
    assert cubin.grid == grid(PROBES[name].kernel, default_schedule(PROBES[name].kernel)) >= 1
    assert cubin.threads == 128


def test_inplace_view_compiles(compiler):
    assert compiler.compile_kernel(verify(parse(INPLACE))).code


def test_a_contraction_uses_tensor_cores_under_tf32(compiler):
    import dataclasses

    kernel = PROBES["matmul"].kernel
    schedule = dataclasses.replace(default_schedule(kernel), precision="tf32")
    assert "mma" in compiler.compile_kernel(kernel, schedule).ptx
    assert "mma" not in compiler.compile_kernel(kernel).ptx  # ieee: float32 products are not rounded


def test_triton_is_loaded_by_its_module_alone_and_never_torch():
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    program = (
        "import sys\n"
        "from probes import PROBES\n"
        "from lamina.passes.triton.emit import lower\n"
        "lower(PROBES['softmax'].kernel)\n"
        "assert 'triton' not in sys.modules\n"
        "from lamina.passes.triton.compiler import compile_kernel\n"
        "compile_kernel(PROBES['softmax'].kernel)\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=HERE, check=True)


# libdevice, which some words need, is not in the interpreter; no probe uses those words.
def test_probes_agree_in_tritons_interpreter():
    pytest.importorskip("triton", reason="Triton is not installed: the extra gpu has it")
    run = subprocess.run(
        [sys.executable, "triton_interpreter.py", *PROBES],
        cwd=HERE,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr[-3000:]
    assert run.stdout.count(" ok\n") == len(PROBES)


def test_source_names_kernel_and_buffers():
    source = lower(PROBES["add"].kernel)
    assert "def add(x_ptr, b_ptr, y_ptr):" in source and "tl.store(y_ptr" in source


@pytest.mark.parametrize(
    "text, message",
    [
        (
            "kernel k[n](x: f32[n]) -> (y: f32[n]) {\n  parallel i:n\n  y[i] = x[i]\n}",
            "is made for bound kernels",
        ),
        (PROBES["bincount"].text.replace("add=", "set="), "set= has no atomic there"),
        (PROBES["bincount"].text.replace("add=", "mul="), "mul= has no atomic there"),
        (
            PROBES["cumsum"].text.replace("y[i, j] = s[j] for", "t = sum(j:29) s[j]\n  y[i, j] = t for"),
            "Triton reads the states of a scan in stores over its axis",
        ),
        (
            "kernel k(x: i64[8]) -> (y: i64[8]) {\n  parallel i:8\n  y[i] = pow(x[i], x[i])\n}",
            "pow of i64 has no Triton spelling",
        ),
    ],
)
def test_triton_refuses(text, message):
    with pytest.raises(KernelError, match=message):
        lower(verify(parse(text)))
