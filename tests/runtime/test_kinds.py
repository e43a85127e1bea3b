"""Code for all sizes of an op: many shapes run through one, nothing more is compiled, and results stay."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from ctypes import CFUNCTYPE, c_int64, c_void_p
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest

import lamina
import lamina.nn.functional as F
from lamina.ir.dims import Condition, evaluate, maximum, minimum, symbol
from lamina.ir.op import REGISTRY
from lamina.passes.llvm import read_sizes
from lamina.passes.llvm.binding import Library, host_target
from lamina.passes.llvm.formulas import Formulas
from lamina.runtime import compiler, guard, kernels
from lamina.runtime.opened import Opened
from lamina.runtime.plan import Plan, _forget

FIRST = (5, 6), (7, 9), (130, 140), (141, 131)  # the shapes that a kind is met on: small ones, and large ones
LONG = (17, 255), (33, 257), (255, 1000), (257, 17)
SHAPES = *LONG, (2, 33), (3, 255), (1000, 3), (1, 17), (33, 1), (1, 1)


def forget():
    kernels.forget()
    _forget()


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Code for all sizes is made at the second shape's calls."""
    if kernels.WHEN != kernels.EARNED or guard.MODE:
        pytest.skip("each shape has code of its own, or none")
    for name, value in {"CALLS": 2, "LOOK": 1, "COMPILE": 1, "FEW": 2}.items():
        monkeypatch.setattr(kernels, name, value)
    forget()
    yield
    forget()


@pytest.fixture
def asked(monkeypatch):
    """The modules that somebody asked the compiler for."""
    made = []
    ask = compiler.Compiler._ask

    def counting(self, text):
        made.append(text)
        return ask(self, text)

    monkeypatch.setattr(compiler.Compiler, "_ask", counting)
    return made


def opened() -> int:
    return sum(kind.opened is not None for kind in kernels._kinds.values())


def draw(*shape, dtype=lamina.float32):
    seed = int(np.random.default_rng(list(shape)).integers(1 << 30))
    return lamina.tensor(np.random.default_rng(seed).standard_normal(shape).astype(dtype.numpy))


POINTWISE = {
    "gelu": F.gelu,
    "silu": F.silu,
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "where": lambda x: lamina.where(x > 0, x * x, x.exp()),
    "remainder": lambda x: x.remainder(0.7),
    "row": lambda x: lamina.where(x.detach()[:, :1] > 0, x, x.detach()[:1]),
}
ALONG = {
    "softmax": lambda x: F.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "sum": lambda x: x.sum(1),
    "mean": lambda x: x.mean(0),
    "var": lambda x: x.var(1, correction=0),
    "amax": lambda x: x.amax(1),
    "logsumexp": lambda x: x.logsumexp(1),
    "norm": lambda x: x.norm(dim=1),
    "cumsum": lambda x: x.cumsum(1),
    "max": lambda x: x.max(1).values,
    "cross_entropy": lambda x: F.cross_entropy(
        x.float() if x.element_size() < 4 else x, lamina.zeros(x.shape[0], dtype=lamina.int64)
    ),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True) if x.shape[0] > 1 else x * 1,
    "flip": lambda x: x.flip(1),
}
BOTH = {**POINTWISE, **ALONG}


def results(function, x):
    """What a function gives, and its gradient."""
    x = x.detach().requires_grad_()
    y = function(x)
    cotangent = np.sin(np.arange(y.numel())).reshape(y.shape).astype(y.dtype.numpy)
    (g,) = lamina.autograd.grad(y, x, lamina.tensor(cotangent))
    return [a._data.astype(np.float64) for a in (y, g)]


def learn(function, calls=4, **kinds):
    """Call it on two shapes until its kind has code."""
    for shape in FIRST:
        for _ in range(calls):
            results(function, draw(*shape, **kinds))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", BOTH)
def test_all_shapes_run_through_one_code(name, dtype, asked, monkeypatch):
    dtype = getattr(lamina, dtype)
    eps, function = float(lamina.finfo(dtype).eps), BOTH[name]
    with np.errstate(all="ignore"):
        learn(function, dtype=dtype)
        assert opened()
        asked.clear()
        given = [draw(*shape, dtype=dtype) for shape in SHAPES]
        found = []
        for shape, x in zip(SHAPES, given, strict=True):
            found.append(results(function, x))
            assert not asked or shape not in LONG  # shorter ones want smaller tiles, or are other kinds
        again = [results(function, x) for x in given]
        monkeypatch.setattr(kernels, "WHEN", kernels.NEVER)
        forget()
        wanted = [results(function, x) for x in given]
    for shape, got, same, want in zip(SHAPES, found, again, wanted, strict=True):
        for one, other, right in zip(got, same, want, strict=True):
            # sums of up to 1000 terms in another order, and as many roundings
            near = 32 * eps * max(1.0, np.abs(right).max(initial=0.0))
            np.testing.assert_allclose(one, right, 0, near, err_msg=str(shape))
            np.testing.assert_allclose(other, right, 0, near, err_msg=str(shape))


def test_operands_may_lie_as_they_like(asked):
    """Permuted, cut and repeated operands: each layout is a kind."""
    ways = {
        "permuted": lambda x: F.softmax(x.t(), 0),
        "cut": lambda x: F.gelu(x[:, 1:]),
        "repeated": lambda x: F.layer_norm(x[:1].expand(x.shape), x.shape[-1:]),
        "row": lambda x: lamina.where(x > 0, x[:1].expand(x.shape), x[0]),
        "kept": lambda x: F.silu(x.t()),
    }
    for function in ways.values():
        learn(function)
    asked.clear()
    given = [draw(*shape) for shape in LONG]
    found = [[function(x) for function in ways.values()] for x in given]
    assert not asked
    for x, ys in zip(given, found, strict=True):
        for (name, function), y in zip(ways.items(), ys, strict=True):
            wanted = function(x.double())
            assert name != "kept" or y.stride() == wanted.stride()
            # some 32 roundings of values of up to 4
            np.testing.assert_allclose(
                y.numpy(), wanted.numpy(), 0, 128 * 1.2e-7, err_msg=f"{name} {x.shape}"
            )


def code_of(x, name="exp") -> tuple[Plan, Opened]:
    """The plan of an op whose kind has code, and that."""
    plan = Plan(REGISTRY[name], (x._meta,), {})
    assert type(plan.kernel.executable) is Opened
    return plan, plan.kernel.executable


def test_large_arrays_of_a_new_shape_begin_with_native_code(asked):
    learn(lambda x: x.exp())
    asked.clear()
    x = draw(401, 397)
    plan, _ = code_of(x)
    np.testing.assert_allclose(plan.kernel(x._data), np.exp(x._data), 1e-6)
    assert not asked


@pytest.mark.parametrize("planted", [False, True])
def test_arrays_of_other_sizes_are_refused(planted, monkeypatch):
    if planted:
        monkeypatch.setattr(Formulas, "require", lambda *_: None)
    learn(lambda x: x.exp())
    x = draw(200, 100)
    enter = code_of(x)[1]._entry.function
    other = np.empty((201, 100), np.float32)  # longer than what is written: nothing is harmed
    assert enter(x._data, np.empty((200, 100), np.float32)) == 0
    assert enter(x._data, np.empty((200, 100), np.float64)) == 1
    assert enter(x._data, np.empty(20_000, np.float32)) == 1
    assert (enter(x._data, other) == 1) is not planted


def test_a_plan_given_arrays_of_another_shape_leaves_them_to_who_looks():
    learn(lambda x: x.exp())
    x = draw(150, 100)._data
    np.testing.assert_allclose(code_of(draw(200, 100))[0].kernel(x), np.exp(x), 1e-6)


def test_formulas_are_evaluated_as_python_does():
    """Random ones, of sizes of which some go beyond 64 bits; floors of what is below 0."""
    rng = np.random.default_rng(0)
    a, b = symbol("a"), symbol("b")

    def formula(depth):
        if not depth:
            return [a, b, int(rng.integers(-9, 9)), a - 7, 5 - b][rng.integers(5)]
        one, other = formula(depth - 1), formula(depth - 1)
        by = int(rng.integers(1, 9))
        return (one + other, one * other, one // by, minimum(one, other), maximum(one, other),
                one // maximum(b - 3, 1))[rng.integers(6)]  # fmt: skip

    formulas = [formula(int(rng.integers(1, 4))) for _ in range(60)]
    manifest = SimpleNamespace(
        name="f", params=(("f32", (a, b)),), results=(), arena=0, nanoseconds=10.0, numbers=tuple(formulas),
        first_number=0, slots=60,
    )  # fmt: skip
    between = dict.fromkeys("ab", (2, 1 << 40))
    needs = (Condition(a, "!=", b),)
    text = read_sizes.text(manifest, {}, between, ((a, 3),), needs, object.__basicsize__, 20)
    library = Library(compiler.compiled([text], host_target()), host_target())
    function = CFUNCTYPE(c_int64, c_void_p, c_void_p)(library.address(read_sizes.SYMBOL))
    table = np.zeros(61, np.int64)

    def told(array):
        arrays = np.array([id(array)], np.int64)
        return function(arrays.ctypes.data, table.ctypes.data)

    for _ in range(40):
        sizes = {name: int(rng.integers(3, 40)) for name in "ab"}
        if sizes["a"] != sizes["b"]:
            assert told(np.empty((sizes["a"], sizes["b"]), np.int8)) == 0
            assert table[:60].tolist() == [evaluate(f, sizes) for f in formulas]
    assert told(np.empty((2, 9), np.int8)) == -1  # less than `least`
    assert told(np.empty((9, 9), np.int8)) == -1  # what is needed does not hold
    assert told(np.empty((9, 1), np.int8)) == -1
    huge = np.lib.stride_tricks.as_strided(np.empty(1, np.int8), (1 << 40, 1 << 20), (0, 0))
    assert told(huge) == -1  # a*b*a wraps, if nothing before does


def test_long_sums_are_cut_as_they_were_under_deterministic_algorithms():
    lamina.use_deterministic_algorithms(True)
    try:
        learn(F.gelu)
        assert not opened()
    finally:
        lamina.use_deterministic_algorithms(False)


def test_few_shapes_have_code_of_their_own_where_that_is_quicker(monkeypatch):
    """A softmax over an open axis can't hold its exponentials."""
    monkeypatch.setattr(kernels, "FEW", 4)
    for n in range(3):
        for _ in range(4):
            draw(5, 6 + n).softmax(1)
    assert not opened()
    for _ in range(4):
        draw(5, 9).softmax(1)
    assert opened() == 1


def test_threads_that_meet_in_one_code():
    learn(F.gelu)
    gate = Barrier(4)

    def work(n):
        gate.wait()
        return [F.gelu(draw(90 + n, 300 + k)) for k in range(30)]

    with ThreadPoolExecutor(4) as pool:
        for n, found in enumerate(pool.map(work, range(4))):
            for k, y in enumerate(found):
                assert lamina.equal(y, F.gelu(draw(90 + n, 300 + k)))


def test_further_code_that_can_not_be_made_is_told_once(monkeypatch):
    """Sizes below those of tiles want code with smaller ones; without it they are served as ever."""

    def broken():
        raise ValueError("no such register")

    learn(lambda x: x.sum(0))
    draft = next(kind.opened for kind in kernels._kinds.values() if kind.opened is not None)
    monkeypatch.setattr(draft, "_next", broken)
    monkeypatch.setattr(draft, "_variants", [])
    monkeypatch.setattr(kernels, "_warned", set())
    with pytest.warns(RuntimeWarning, match="no such register"):
        assert draft.opened((3, 3)) is None
    assert draft.opened((3, 4)) is None  # warnings are errors here
    x = draw(13, 300)
    np.testing.assert_allclose(x.sum(0).numpy(), x.numpy().sum(0), 1e-5, 1e-5)


def test_a_second_process_finds_the_code_of_a_kind(tmp_path):
    program = """
import lamina, lamina.nn.functional as F
from lamina.runtime import compiler, guard, kernels
kernels.CALLS, kernels.LOOK, kernels.COMPILE, misses = 2, 1, 300_000, []
kernels._seen = kernels.COMPILE
objects = compiler.Compiler.objects
def counting(self):
    misses.append(self.misses)
    return objects(self)
compiler.Compiler.objects = counting
before = []
for n in range(40):
    for _ in range(3):
        F.gelu(lamina.ones(5, 6 + n))
    before.append(any(kind.opened for kind in kernels._kinds.values()))
print(sum(misses), before.index(True))
"""
    environment = {**os.environ, "LAMINA_CACHE_DIR": str(tmp_path)}
    told = [
        subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
        ).stdout.split()
        for _ in range(2)
    ]
    (misses, first), (none, sooner) = told
    assert int(misses) > 0 and int(none) == 0 and int(sooner) < int(first)


def test_gradients_that_look_at_nothing_are_found():
    """A call's gradients may want none of what its op saves for others."""
    x = draw(5, 6).requires_grad_()
    for _ in range(8):
        (g,) = lamina.autograd.grad(x.remainder(0.7).sum(), x)
        assert g.tolist() == [[1.0] * 6] * 5
