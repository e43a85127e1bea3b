"""State that the package keeps for the process: what a traced function may read and change unheard.

Functions of Lamina's own run natively while a run is recorded; what they read and change of the process is
nobody's argument.  So each file that keeps such state is named here, with why a recording stays right.
"""

import ast
from pathlib import Path

from lamina.jit.observe.policy import DENIED_ROOMS, INTERPRETED_ROOMS

ROOT = Path(__file__).parents[2]
APART = ("tests", "benchmarks", "examples", "docs", "build", ".venv", "jit", "passes", "ir/passes")

COUNTS = "counts changes, which guards read"
KEPT = "keeps what it found out, which stays so"
TABLE = "a table that is filled where modules are imported"
REVIEWED = {
    "distributed/fsdp/parameter_group.py": "fully sharded modules, whose forwards refuse to be recorded",
    "distributed/fsdp/sharding.py": "the same",
    "distributed/groups.py": "groups that were joined: recordings are of one `meeting.CARRIER`",
    "distributed/rendezvous.py": "files that ranks met by, of groups that were joined",
    "distributed/tcp_store.py": "servers of stores, whose making and asking refuse to be recorded",
    "distributed/flights.py": "what nobody waits for, until MPI is through with it",
    "distributed/mpi_arrays.py": KEPT,
    "distributed/launching/spawn.py": "the process that unlinks what is left, before a function is called",
    "distributions/registry.py": "what it holds for a pair is read by a file that is interpreted",
    "exchange/onnx/opset/registry.py": TABLE,
    "facade/backends.py": "which kernels attention may use: the interpreter reads and sets them, with guards",
    "facade/streams.py": "the current device: to ask for it and to choose it refuses to be recorded",
    "fx/specs.py": TABLE,
    "fx/tracer.py": "whether graphs of proxies are made, of which no tensor can be computed",
    "fx/wrapping.py": TABLE,
    "ir/collector.py": "counts references, by which nothing is computed",
    "ir/dtypes.py": "the default dtype is part of what tells recordings apart",
    "ir/kernel/scalar.py": KEPT,
    "ir/locks.py": "the locks that are held",
    "ir/meeting.py": "who carries between processes is part of what tells recordings apart",
    "ir/op.py": TABLE,
    "ir/ops/random.py": TABLE,
    "ir/types.py": KEPT,
    "ir/views.py": TABLE,
    "profiler/work.py": KEPT,
    "runtime/autograd.py": "the threads that wait for a gradient",
    "runtime/changes.py": COUNTS,
    "runtime/compile_helpers.py": "whether the process ends",
    "runtime/compile_op.py": "how long compiling took",
    "runtime/compound.py": "whether a class of tensors was ever made; those refuse",
    "runtime/cuda/driver.py": "the driver and its context, which belong to the process",
    "runtime/cuda/machine.py": KEPT,
    "runtime/cuda/solver.py": KEPT,
    "runtime/calls.py": KEPT,
    "runtime/dispatch.py": KEPT,
    "runtime/forms.py": KEPT,
    "runtime/forward.py": "the level of forward mode, an object that tensors are made with",
    "runtime/history.py": KEPT,
    "runtime/indexing.py": COUNTS,
    "runtime/inplace.py": COUNTS,
    "runtime/kernels.py": "which kernels were seen, to compile what comes often",
    "runtime/memory.py": "whether blocks are kept, by which nothing is computed",
    "runtime/methods.py": "counts hooks of tensors, which guards read",
    "runtime/overriding.py": KEPT,
    "runtime/places.py": TABLE,
    "runtime/printing.py": "set_printoptions is refused, texts of tensors are guarded by what is set",
    "runtime/return_types.py": KEPT,
    "runtime/shared_memory.py": "memory that is mapped, by which nothing is computed",
    "runtime/sharing.py": "numbers jobs",
    "runtime/storage.py": COUNTS,
    "runtime/workers.py": "the pool of threads",
}


def written(tree):
    """The globals of a module that its functions assign, or put something into."""
    own = {x.id for s in tree.body if isinstance(s, (ast.Assign, ast.AnnAssign)) for x in stored(s)}
    own |= {a.asname or a.name for s in tree.body if isinstance(s, ast.ImportFrom) for a in s.names}
    for function in ast.walk(tree):
        if isinstance(function, ast.Global):
            yield from function.names
        if not isinstance(function, (ast.FunctionDef, ast.Lambda)):
            continue
        local = {x.id for x in stored(function)} | {
            a.arg for a in ast.walk(function) if isinstance(a, ast.arg)
        }
        for target in ast.walk(function):
            if isinstance(target, (ast.Subscript, ast.Attribute)) and not isinstance(target.ctx, ast.Load):
                while isinstance(target, (ast.Subscript, ast.Attribute)):
                    target = target.value
                if isinstance(target, ast.Name) and target.id in own - local:
                    yield target.id


def stored(tree):
    return [x for x in ast.walk(tree) if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)]


def test_every_file_that_keeps_state_was_reviewed():
    keeping = {}
    for file in ROOT.rglob("*.py"):
        name = file.relative_to(ROOT).as_posix()
        if not name.startswith(APART) and (kept := {*written(ast.parse(file.read_text()))}):
            keeping[name] = sorted(kept)
    known = (*INTERPRETED_ROOMS, *DENIED_ROOMS)
    new = {
        name: kept for name, kept in keeping.items() if name not in REVIEWED and not name.startswith(known)
    }
    assert not new, "can a traced function tell what these hold?"
    assert REVIEWED.keys() <= keeping.keys(), "these keep nothing any more"
