"""Guarded memory, in processes of their own: what leaves an array ends them, with the kernel's name."""

import subprocess
import sys

import pytest

# A program whose kernel leaves its array, which the proofs would not let pass: they are taken out.
PROGRAM = """
import numpy as np
from lamina.ir.kernel import parse
from lamina.passes.llvm import generate, memory
from lamina.passes.programs.program import Array, Call, Program
from lamina.runtime import guard
from lamina.runtime.native import Executable

generate.prove = lambda kernel: kernel
memory.Memory.stays_inside = lambda *args: None
text = "kernel {name}(x: f32[8]) -> (y: f32[8]) {{\\n  parallel i:8\\n  y[i{store}] = x[i{read}]\\n}}"
kernel = parse(text)
fine = parse("kernel fine(x: f32[8]) -> (y: f32[8]) {{\\n  parallel i:8\\n  y[i] = x[i]\\n}}")
x, y, z = (Array(name, "f32", (8,)) for name in "xyz")
program = Program("net", (x,), (Call(kernel, (x,), (y,)), Call(fine, (y,), (z,))), (z,))
(made,) = Executable(program)(np.arange(8, dtype=np.float32))
print(made.tolist())
"""


def run(mode: str, read: str = "", store: str = "") -> subprocess.CompletedProcess:
    code = PROGRAM.format(name="strays", read=read, store=store)
    return subprocess.run(
        [sys.executable, "-c", code],
        env={"LAMINA_GUARD": mode, "LAMINA_CACHE_DIR": "", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=100,
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "mode, read, store",
    [
        ("1", "+1", ""),
        ("1", "", "+1"),
        ("2", "-1", ""),
        ("2", "", "-1"),
        ("1", "+600", ""),
        ("2", "-600", ""),
    ],
)
def test_what_leaves_an_array_names_its_kernel(mode, read, store):
    done = run(mode, read, store)
    assert done.returncode < 0, done.stdout
    assert "lamina: memory left by the kernel strays\n" in done.stderr


@pytest.mark.parametrize("mode", ["1", "2"])
def test_what_stays_inside_runs_as_ever(mode):
    done = run(mode)
    assert (done.returncode, done.stdout) == (0, str([float(n) for n in range(8)]) + "\n"), done.stderr


def test_what_was_never_written_is_poison():
    done = run("2", "+1")  # beyond the end, which mode 2 does not guard
    assert done.stdout.endswith("7.0, nan]\n"), done.stderr


def test_another_value_is_refused():
    done = run("yes")
    assert done.returncode == 1 and "LAMINA_GUARD is 0, 1 or 2, not 'yes'" in done.stderr


FREED = """
import numpy as np
from lamina.ir.kernel import parse
from lamina.passes.programs.memory_plan import MemoryPlan
from lamina.passes.llvm import main_function
from lamina.passes.programs.program import Array, Call, Program
from lamina.runtime.native import Executable

copy = parse("kernel copy(x: f32[8]) -> (y: f32[8]) {\\n  parallel i:8\\n  y[i] = (x[i] + 1.0)\\n}")
x, y, z, w = (Array(name, "f32", (8,)) for name in "xyzw")
real = main_function._freed
main_function._freed = lambda plan: {0: [y]}  # a lifetime that ends too early
program = Program("net", (x,), (Call(copy, (x,), (y,)), Call(copy, (y,), (z,)), Call(copy, (z,), (w,))), (w,))
print(Executable(program)(np.zeros(8, np.float32))[0].tolist()[0])
"""


def test_what_is_freed_is_poisoned():
    env = {"LAMINA_GUARD": "1", "LAMINA_CACHE_DIR": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", FREED], env=env, capture_output=True, text=True, timeout=100)
    assert done.stdout == "nan\n", done.stderr


def test_the_plan_shares_nothing():
    from image_programs import small_network

    from lamina.passes.programs.memory_plan import verify
    from lamina.passes.programs.plan_memory import PAGE, plan_memory

    for guard in (1, 2):
        plan = verify(plan_memory(small_network(), guard=guard))
        held = [(p.at, p.at + a.nbytes) for a, p in plan.places.items() if p.kind == "arena"]
        pages = {page for low, high in held for page in range(low // PAGE, -(-high // PAGE))}
        assert len(pages) == sum(-(-high // PAGE) - low // PAGE for low, high in held)
        assert pages.isdisjoint(fence // PAGE for fence in plan.fences)
        assert all((high if guard == 1 else low) % PAGE == 0 for low, high in held)
