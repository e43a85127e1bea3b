"""Native programs: the right results at every width, checked arguments, failures that change nothing."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from sample_programs import (
    add_row,
    arguments,
    call,
    overwrite_first,
    pointwise,
    random_program,
    sort,
    transpose,
    two_outputs,
)

import lamina
from lamina.ir.dtypes import float32
from lamina.ir.errors import ArgumentError, ArgumentValueError, DimError, DTypeError, KernelError, ShapeError
from lamina.ir.kernel.types import NUMPY
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes import cache as disk
from lamina.passes.llvm import main_function
from lamina.passes.llvm.binding import Library, emit_object, host_target
from lamina.passes.programs.program import Array, Host, Program, interpret
from lamina.passes.schedules.target import AVX2, BASELINE, LEVELS, NEON
from lamina.runtime import entry, memory, native, workers
from lamina.runtime.native import Executable, load_program, store_program

HERE = os.path.dirname(os.path.dirname(__file__))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """Code compiled here is kept in no folder of the user's."""
    monkeypatch.setattr(disk, "_default", disk.Cache(tmp_path / "cache"))


def same(got, wanted) -> bool:
    # both are float32 and round each operation once; a fused multiply-add and another order of the five terms
    # of a mean differ by a few ulps of values below 10
    return all(
        np.allclose(g, w, rtol=1e-6, atol=1e-5, equal_nan=True) for g, w in zip(got, wanted, strict=True)
    )


def adds(into: int | None = None, shape: tuple[int, ...] = (5, 7)) -> Program:
    a, b = Array("a", "f32", shape), Array("b", "f32", shape)
    step = pointwise("add", "(%a + %b)", a, b)
    return Program("adds", (a, b), (step,), step.outputs, {}, (into,))


# ---- results
@pytest.mark.parametrize("target", LEVELS, ids=lambda level: level.name)
def test_random_programs_compute_what_they_mean(target, monkeypatch):
    """Whether their calls are text or numbers."""
    if target.lanes > host_target().lanes:
        pytest.skip(f"this machine has no {target.name}")
    for seed in range(25):
        monkeypatch.setattr(main_function, "FEW", (main_function.FEW, 0, 1000)[seed % 3])
        program = random_program(seed)
        run = Executable(program, target)
        for number in range(2):
            arrays = arguments(program, number)
            wanted = interpret(program, *arrays)
            got = run(*arrays)
            assert same(got, wanted), seed
            assert all(got[n] is arrays[at] for n, at in enumerate(program.into) if at is not None), seed


@pytest.mark.parametrize("make", [lambda: adds(shape=(300, 1000)), lambda: flips()])
def test_work_worth_threads_is_the_same_on_all_of_them(make):
    program = make()
    arrays = arguments(program)
    (wanted,) = interpret(program, *arrays)
    if workers.asleep:
        workers.wake()
    pool = workers.pool()
    before, limit = pool.grain, pool.limit
    pool.resize(4)
    pool.grain = 1
    try:
        for most in (1, 2, 3, None):
            run = Executable(program, threads=most)
            assert all(np.array_equal(run(*arrays)[0], wanted) for _ in range(20))
    finally:
        pool.resize(limit)
        pool.grain = before


def test_calls_do_not_share_results():
    run, (x, y) = Executable(adds()), arguments(adds())
    one, two = run(x, y)[0], run(y, y)[0]
    assert np.array_equal(one, x + y) and np.array_equal(two, y + y)


def test_large_results_begin_on_a_cache_line():
    program = adds(shape=(200, 200))
    (result,) = Executable(program)(*arguments(program))
    assert result.ctypes.data % 64 == 0 and result.flags.c_contiguous and result.flags.writeable


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1, 1)])
def test_sizes_without_much_in_them(shape):
    name = ", ".join("ijk"[: len(shape)])
    points = " ".join(f"{a}:{n}" for a, n in zip("ijk", shape, strict=False))
    a = Array("a", "f32", shape)
    kind = f"f32[{','.join(map(str, shape))}]"
    step = call(
        f"kernel k(a: {kind}) -> (y: {kind}) {{\n  parallel {points}\n  y[{name}] = (a[{name}] + 1.0)\n}}", a
    )
    for into in (None, 0):
        program = Program("k", (a,), (step,), step.outputs, {}, (into,))
        given = np.full(shape, 2.0, np.float32)
        (got,) = Executable(program)(given)
        assert got.shape == shape and (got == 3.0).all() and (into is None or got is given)


def test_a_program_of_nothing():
    x = Array("x", "f32", (3,))
    given = np.ones(3, np.float32)
    assert Executable(Program("none", (x,), (), ()))(given) == ()
    (got,) = Executable(Program("same", (x,), (), (x,)))(given)
    assert got is not given and np.array_equal(got, given)
    (got,) = Executable(Program("into", (x,), (), (x,), {}, (0,)))(given)
    assert got is given


@pytest.mark.unguarded
def test_equal_codes_are_linked_once():
    x = Array("x", "f32", (5, 7))
    steps = [pointwise("half", "(%a * 0.5)", x)]
    for name in ("half", "other", "half", "other"):
        steps.append(pointwise(name, "(%a * 0.5)", steps[-1].outputs[0]))
    run = Executable(Program("halves", (x,), tuple(steps), steps[-1].outputs))
    assert (run.statistics.kernels, run.statistics.codes) == (5, 2)  # in place, and not
    assert np.array_equal(run(np.full((5, 7), 32.0, np.float32))[0], np.ones((5, 7)))


@pytest.mark.unguarded
@pytest.mark.parametrize("dtype", NUMPY)
def test_every_element_type_enters_quickly(dtype):
    x = Array("x", dtype, (4, 3))
    run = Executable(Program("same", (x,), (), (x,)))
    given = np.arange(12).reshape(4, 3).astype(NUMPY[dtype])
    assert run._enter(given, np.empty((4, 3), NUMPY[dtype])) == 0
    assert np.array_equal(run(given)[0], given)


def test_what_this_machine_can_not_run_is_refused(monkeypatch):
    monkeypatch.setattr(native, "host_target", lambda: BASELINE)
    with pytest.raises(KernelError, match="code for avx2 was asked for\n  this machine has baseline"):
        Executable(adds(), AVX2)
    monkeypatch.undo()
    with pytest.raises(KernelError, match="code for neon was asked for"):
        Executable(adds(), NEON)
    with pytest.raises(ArgumentValueError, match="at least 1, not 0"):
        Executable(adds(), threads=0)
    monkeypatch.setattr(native.platform, "machine", lambda: "riscv64")
    with pytest.raises(KernelError, match="on x86-64 and AArch64\n  this is linux on riscv64"):
        Executable(adds())


# ---- arguments
def test_arrays_that_are_not_dense_are_copied():
    run, (x, y) = Executable(adds()), arguments(adds())
    wide = np.zeros((5, 14), np.float32)
    wide[:, ::2] = x
    raw = np.zeros(4 * 35 + 1, np.uint8)
    crooked = raw[1:].view(np.float32).reshape(5, 7)
    crooked[...] = y
    assert not crooked.flags.aligned
    for one in (
        x,
        wide[:, ::2],
        np.asfortranarray(x),
        x.astype(np.float32).view(type("Sub", (np.ndarray,), {})),
    ):
        for two in (y, crooked):
            (got,) = run(one, two)
            assert type(got) is np.ndarray and np.array_equal(got, x + y)


def test_a_param_that_is_overwritten_is_written_back():
    run, (x, y) = Executable(adds(into=0)), arguments(adds())
    wide = np.zeros((5, 14), np.float32)
    wide[:, ::2] = x
    view = wide[:, ::2]
    (got,) = run(view, y)
    assert got is view and np.array_equal(view, x + y) and not wide[:, 1::2].any()


def test_operands_that_overlap_what_is_overwritten_are_copied():
    run = Executable(adds(into=0))
    for shift in (0, 1):
        block = np.arange(42, dtype=np.float32)
        x, y = block[7:42].reshape(5, 7), block[7 * shift : 7 * shift + 35].reshape(5, 7)
        wanted = x + y
        for _ in range(4):  # the quick entry must not take it for tested later
            (got,) = run(x, y)
            assert np.array_equal(got, wanted)
            wanted = x + y


def test_an_array_given_twice_may_be_overwritten():
    run = Executable(adds(into=0))
    x = np.ones((5, 7), np.float32)
    assert (run(x, x)[0] == 2).all() and (run(x, x)[0] == 4).all()


def test_what_does_not_fit_is_refused():
    run, (x, y) = Executable(adds(into=0)), arguments(adds())
    before = x.copy()
    read_only = x.copy()
    read_only.flags.writeable = False
    cases = [
        ((x,), ArgumentError, "adds takes 2 arrays, not 1\n  they are: a, b"),
        ((x, y, y), ArgumentError, "adds takes 2 arrays, not 3\n  they are: a, b"),
        ((x, y.tolist()), ArgumentError, r"adds: b is f32\[5,7\]\n  given: list\n  give a NumPy array"),
        ((x, None), ArgumentError, "given: NoneType"),
        ((x, y.astype(np.float64)), DTypeError, r"adds: b is f32\[5,7\]\n  given: float64\[5,7\]"),
        ((x, y.astype(">f4")), DTypeError, r"given: >f4\[5,7\]|given: float32\[5,7\]"),
        ((x, y[:, :6]), ShapeError, r"given: float32\[5,6\]"),
        ((x, y.reshape(7, 5)), ShapeError, r"given: float32\[7,5\]"),
        ((x, y.reshape(-1)), ShapeError, r"given: float32\[35\]"),
        ((read_only, y), ArgumentValueError, "overwritten: the array given is read-only"),
    ]
    for arrays, error, message in cases:
        with pytest.raises(error, match=message):
            run(*arrays)
    assert np.array_equal(x, before)


def test_two_params_that_are_overwritten_may_not_overlap():
    a, b = Array("a", "f32", (4,)), Array("b", "f32", (4,))
    step = two_outputs(a, b)
    run = Executable(Program("both", (a, b), (step,), step.outputs, {}, (0, 1)))
    block = np.arange(6, dtype=np.float32)
    with pytest.raises(
        ArgumentValueError, match="two params that are overwritten share memory\n  params: a, b"
    ):
        run(block[:4], block[2:])
    assert block.tolist() == list(range(6))
    x, y = block[:4].copy(), block[2:].copy()
    wanted = interpret(Program("both", (a, b), (step,), step.outputs), x, y)
    assert same(run(x, y), wanted)


@pytest.mark.unguarded
def test_a_subclass_or_a_list_never_reaches_native_code():
    """The quick entry answers 1 for whatever is not exactly the array expected."""
    run, (x, y) = Executable(adds()), arguments(adds())
    out = np.empty((5, 7), np.float32)
    assert run._enter(x, y, out) == 0
    odd = [
        None,
        3,
        [1.0],
        "a",
        x.T,
        x.astype(np.float64),
        x[:4],
        x.reshape(7, 5),
        x.view(type("Sub", (np.ndarray,), {})),
        x.view(np.int32),
    ]
    assert [run._enter(x, thing, out) for thing in odd] == [1] * len(odd)
    out.flags.writeable = False
    assert run._enter(x, y, out) == 1 and run._enter(x, y) == 1 and run._enter() == 1
    out.flags.writeable = True
    assert run._enter(x, y, out, out) == 1


# ---- indices, the host, failures
def gather(staged: bool = False) -> Program:
    """Rows of a table.  staged: the index is a stage's result, which native code does not check itself."""
    table, rows = Array("table", "f32", (6, 4)), Array("rows", "i64", (3,))
    body = "  m = r[i]\n  y[i, j] = t[m, j]\n}" if staged else "  y[i, j] = t[r[i], j]\n}"
    head = "kernel gather(t: f32[6,4], r: i64[3]) -> (y: f32[3,4]) {\n  parallel i:3 j:4\n"
    step = call(head + body, table, rows)
    return Program("gather", (table, rows), (step,), step.outputs)


@pytest.mark.parametrize("staged", [False, True])
def test_indices_are_checked(staged):
    run, table = Executable(gather(staged)), np.arange(24, dtype=np.float32).reshape(6, 4)
    assert len(run.manifest.parts) == 1 + staged
    rows = np.array([5, 0, 3])
    for careful in (False, True):
        given = np.asfortranarray(table) if careful else table
        assert np.array_equal(run(given, rows)[0], table[rows])
        for wrong in (6, -1, 1 << 40):
            with pytest.raises(DimError, match="gather: an index is out of range\n  .*gather"):
                run(given, np.array([0, wrong, 1]))
    assert np.array_equal(run(table, rows)[0], table[rows])


def test_the_kernel_whose_index_is_wrong_is_named():
    table, rows, others = Array("t", "f32", (6, 4)), Array("r", "i64", (3,)), Array("o", "i64", (2,))
    head = "kernel {}(t: f32[{},4], r: i64[{}]) -> (y: f32[{},4]) {{\n  parallel i:{} j:4\n"
    body = "  y[i, j] = t[r[i], j]\n}"
    one = call(head.format("first", 6, 3, 3, 3) + body, table, rows)
    two = call(head.format("second", 3, 2, 2, 2) + body, one.outputs[0], others)
    run = Executable(Program("both", (table, rows, others), (one, two), two.outputs))
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    good, fine = np.array([5, 0, 3]), np.array([2, 1])
    assert np.array_equal(run(values, good, fine)[0], values[good][fine])
    for wrong, name in (((np.array([6, 0, 3]), fine), "first"), ((good, np.array([0, 3])), "second")):
        with pytest.raises(DimError, match=f"both: an index is out of range\n  in: {name}"):
            run(values, *wrong)
    assert (run.statistics.kernels, len(run.manifest.parts)) == (2, 1)


def fails_after_an_update() -> Program:
    p = Array("p", "f32", (3, 3))
    new = pointwise("half", "(%a * 0.5)", p)
    out = Array("inverse", "f32", (3, 3))
    host = Host(REGISTRY["linalg_inv"], {}, (type_of(float32, (3, 3)),), new.outputs, (out,))
    return Program("fails", (p,), (new, host), (new.outputs[0], out), {}, (0, None))


def test_a_failure_leaves_the_params_as_they_were():
    run = Executable(fails_after_an_update())
    p = np.zeros((3, 3), np.float32)
    p[0, 0] = 8
    before = p.copy()
    for _ in range(2):
        with pytest.raises(ArgumentValueError, match="singular"):
            run(p)
        assert np.array_equal(p, before)
    fine = np.eye(3, dtype=np.float32)
    got = run(fine)
    assert got[0] is fine and np.array_equal(fine, np.eye(3) / 2) and np.array_equal(got[1], np.eye(3) * 2)


def test_an_interrupt_between_parts_leaves_it_usable(monkeypatch):
    run = Executable(fails_after_an_update())
    p = np.eye(3, dtype=np.float32)
    parts = run._quick.parts
    host = parts[1]

    def interrupted(frame, arrays):
        raise KeyboardInterrupt

    parts[1] = interrupted
    with pytest.raises(KeyboardInterrupt):
        run(p)
    assert np.array_equal(p, np.eye(3))
    parts[1] = host
    assert np.array_equal(run(p)[1], np.eye(3) * 2)


def test_hosts_run_between_native_parts():
    x, row = Array("x", "f32", (5, 7)), Array("row", "f32", (7,))
    first = add_row(x, row)
    host = sort(first.outputs[0])
    last = overwrite_first(host.outputs[0])
    program = Program("sorts", (x, row), (first, host, last), (last.outputs[0], host.outputs[1]))
    run = Executable(program)
    assert [type(part).__name__ for part in run.manifest.parts] == ["Native", "OnHost", "Native"]
    arrays = arguments(program)
    assert same(run(*arrays), interpret(program, *arrays))


# ---- threads, forks, ends
def flips() -> Program:
    """Long enough that other threads run meanwhile, and through the arena."""
    x = Array("x", "f32", (500, 700))
    one = transpose(x)
    two = transpose(one.outputs[0])
    return Program("flips", (x,), (one, two), two.outputs)


@pytest.mark.parametrize("make", [flips, lambda: adds(shape=(100, 400)), lambda: random_program(5), gather])
def test_many_threads_call_one_executable(make):
    program = make()
    run = Executable(program)
    failures = []

    def body(number: int) -> None:
        arrays = arguments(program, number)
        if program.name == "gather":
            arrays[1] = np.array([number, 0, 5])
        wanted = interpret(program, *arrays)
        for _ in range(40):
            given = [array.copy() for array in arrays]
            if not same(run(*given), wanted):
                failures.append(number)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_forked_child_runs_programs():
    program = adds(shape=(300, 1000))
    run, arrays = Executable(program), arguments(program)
    run(*arrays)
    pid = os.fork()
    if not pid:
        try:
            good = all(np.array_equal(run(*arrays)[0], arrays[0] + arrays[1]) for _ in range(5))
            os._exit(0 if good and not workers.asleep else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0
    assert np.array_equal(run(*arrays)[0], arrays[0] + arrays[1])


def test_code_is_freed_with_its_executable():
    program = adds()
    for _ in range(3):
        run = Executable(program)
        enter, arrays = run._enter, arguments(program)
        assert np.array_equal(run(*arrays)[0], arrays[0] + arrays[1])
        del run
        gc.collect()
        del enter


def test_a_process_ends_with_executables_alive(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from sample_programs import *\n"
        "from lamina.runtime.native import Executable\n"
        "keep = [Executable(random_program(seed)) for seed in range(3)]\n"
        "enter = keep[0]._enter\n"
        "print(len([run(*arguments(random_program(n))) for n, run in enumerate(keep)]))\n"
    )
    environment = os.environ | {"LAMINA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script, HERE], env=environment, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr, done.returncode) == ("3\n", "", 0)


def test_without_the_quick_entry_every_call_is_looked_at(monkeypatch):
    monkeypatch.setattr(entry, "_method", lambda: None)
    for program in (adds(), adds(into=0), gather()):
        run, arrays = Executable(program), arguments(program)
        if program.name == "gather":
            arrays[1] = np.array([1, 0, 5])
        wanted = interpret(program, *arrays)
        assert run._enter(*arrays) == 1
        assert same(run(*arrays), wanted)


def test_import_lamina_loads_no_llvm():
    script = "import sys, lamina; print([m for m in sys.modules if 'llvm' in m])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("[]\n", 0)


# ---- the cache
def test_a_second_executable_compiles_nothing():
    first = Executable(adds()).statistics
    second = Executable(adds()).statistics
    assert (first.hits, first.misses) == (0, 2) and (second.hits, second.misses) == (2, 0)
    assert second.compile_seconds < first.compile_seconds


def test_a_stored_program_is_loaded_without_being_built(monkeypatch):
    for program in (adds(into=0), gather(), fails_after_an_update(), random_program(8)):
        run = Executable(program)
        store_program(program.name, run)
        monkeypatch.setattr(native, "link", None)
        loaded = load_program(program.name)
        monkeypatch.undo()
        assert loaded.manifest == run.manifest
        arrays = arguments(program) if program.name != "fails" else [np.eye(3, dtype=np.float32)]
        if program.name == "gather":
            arrays[1] = np.array([1, 0, 5])
        wanted = interpret(program, *arrays)
        assert same(loaded(*arrays), wanted)
    assert load_program("another") is None


def test_a_stored_program_that_is_no_good_is_forgotten():
    run, cache = Executable(adds()), disk.default()
    name = native._program_key("bad", run.target)
    manifest = run.manifest.json().encode()
    for data in (
        b"",
        b"nonsense",
        disk.pack(b"{}"),
        disk.pack(manifest.replace(b"[4,", b"[3,", 1), *run.objects),
        disk.pack(manifest, *run.objects[:-1]),
        disk.pack(manifest, *(b"no object" for _ in run.objects)),
    ):
        cache.put(name, data)
        assert load_program("bad") is None
        assert cache.get(name) is None
    store_program("bad", run)
    assert load_program("bad") is not None


def test_linking_refuses_what_is_not_there():
    with pytest.raises(KernelError, match="no object file"):
        Library([b"nonsense"], host_target())
    made = Library([emit_object("define void @here() { ret void }", host_target())], host_target())
    assert made.address("here")
    with pytest.raises(KernelError, match="the linked code has no function there"):
        made.address("there")


def test_threads_follow_set_num_threads():
    before = lamina.get_num_threads()
    if workers.asleep:
        workers.wake()
    try:
        lamina.set_num_threads(1)
        assert workers.pool().limit == 1
        lamina.set_num_threads(64)
        assert workers.pool().limit == len(os.sched_getaffinity(0))
    finally:
        lamina.set_num_threads(before)


def test_arena_larger_than_memory_is_a_memory_error():
    with pytest.raises(MemoryError, match="bytes for the arrays of a program"):
        memory.arena(1 << 60)
