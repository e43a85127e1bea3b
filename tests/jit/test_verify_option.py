"""What verify=True is made of: bounds on rounding, stages, cutting, and scripts that show a fault again."""

from __future__ import annotations

import numpy as np
import pytest

import lamina
from lamina import jit, nn
from lamina.ir import parse
from lamina.ir.kernel.interpret import interpret as interpret_kernel
from lamina.ir.kernel.text import parse as parse_kernel
from lamina.jit import blame, garbage, repro, rounding, sampled, verify
from lamina.jit.stages import Case, GraphPass, stage_named
from lamina.passes.llvm.binding import host_target
from lamina.passes.llvm.link import link
from lamina.passes.pipeline import Options
from lamina.passes.programs.build_program import build_program

RNG = np.random.default_rng


def case(text, *arrays, constants=None, into=None, frozen=()):
    graph = parse(text, constants or {})
    return Case(graph, arrays, into or (None,) * len(graph.results), frozenset(frozen))


def numbers(*shape, seed=0):
    return RNG(seed).standard_normal(shape).astype(np.float32)


SUM = """graph f(%x: f32[3,4096]) -> (f32[3]) {
  %0 = sum(%x) {dim=(1,), keepdim=False, dtype=None} : f32[3]
  return %0
}"""


# ---- bounds ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("spread", [1.0, 0.0])
def test_sums_in_another_order_are_as_good(spread):
    x = (numbers(3, 4096) * spread + 1.0 - spread).astype(np.float32)
    one = case(SUM, x)
    forwards = np.array([np.float32(np.add.accumulate(row)[-1]) for row in x])  # one after the other
    assert one.compare([forwards]) is None


def test_a_term_left_out_is_found():
    x = numbers(3, 4096)
    short = x[:, :-1].sum(1)
    number, how = case(SUM, x).compare([short])
    # 48 scatters of 0.58 eps times what the terms scatter by, 64, and sqrt(4096); the term is about 1
    assert number == 0 and how.index == (0,) and how.bound < 2 * 48 * 0.58 * 2.0**-23 * 64 * 64


def test_a_bound_follows_its_own_element():
    """One large row gives no leave to small ones."""
    x = numbers(3, 4096)
    x[2] *= 1e6
    found = x.sum(1)
    found[0] += 0.1
    _, how = case(SUM, x).compare([found])
    assert how.index == (0,)


def test_integers_and_copies_are_exact():
    def runs(array):
        return lambda: [array.astype(np.float64)] * (rounding.TIMES + 1)

    whole = np.arange(5)
    assert rounding.difference(whole, whole.copy(), runs(whole)) is None
    off = whole.copy()
    off[3] += 1
    assert rounding.difference(whole, off, lambda: [whole] * 7).index == (3,)
    exact = numbers(5)
    near = exact * np.float32(1 + 8 * 2.0**-23)
    assert rounding.difference(exact, near, runs(exact)).index == (0,)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -1.0])
def test_values_that_are_no_numbers_must_agree(wrong):
    right = np.array([np.nan, np.inf, 1.0], np.float32)
    assert rounding.difference(right, right.copy(), lambda: [right.astype(np.float64)] * 7) is None
    for at in range(3):
        found = right.copy()
        if found[at] == wrong or (np.isnan(wrong) and np.isnan(found[at])):
            continue
        found[at] = wrong
        how = rounding.difference(right, found, lambda: [right.astype(np.float64)] * 7)
        assert how.index == (at,)


def test_the_sign_of_a_zero_counts_where_it_is_promised():
    plus, minus = np.zeros(2, np.float32), np.array([0.0, -0.0], np.float32)
    runs = [plus.astype(np.float64)] * 7
    assert rounding.difference(plus, minus, lambda: runs) is None
    assert rounding.difference(plus, minus, lambda: runs, signs=True).index == (1,)


def test_a_step_that_noise_moves_is_nobodys_fault():
    """floor of a sum that is 3 but for rounding may be 2."""
    text = """graph f(%x: f32[30]) -> (f32[]) {
  %0 = sum(%x) {dim=(0,), keepdim=False, dtype=None} : f32[]
  %1 = floor(%0) : f32[]
  return %1
}"""
    one = case(text, np.full(30, 0.1, np.float32))
    (exact,) = one.expected
    assert one.compare([np.asarray(5.0 - exact, np.float32)]) is None  # 2 for 3, or 3 for 2
    assert one.compare([np.asarray(100.0, np.float32)]) is not None


def test_other_kinds_of_arrays_are_told():
    a = np.zeros(3, np.float32)
    assert "float32[3] became float64[3]" in str(rounding.difference(a, a.astype(np.float64), list))


# ---- stages ------------------------------------------------------------------------------------------------
def test_a_right_graph_has_no_fault():
    text = """graph f(%x: f32[4,19], %w: f32[19,7], %b: f32[7]) -> (f32[4,7], f32[4]) {
  %0 = matmul(%x, %w) : f32[4,7]
  %1 = add(%0, %b) : f32[4,7]
  %2 = relu(%1) : f32[4,7]
  %3 = sum(%2) {dim=(1,), keepdim=False, dtype=None} : f32[4]
  return %2, %3
}"""
    arrays = numbers(4, 19), numbers(19, 7, seed=1), numbers(7, seed=2)
    assert blame.search(case(text, *arrays, frozen=(1, 2)), Options()) is None


def test_the_smallest_graph_is_found():
    """Of ten ops the one that a pass turns into another, with what went before as a param."""
    lines = "\n".join(f"  %{n} = sin(%{n - 1 if n else 'x'}) : f32[3]" for n in range(9))
    text = (
        f"graph f(%x: f32[3]) -> (f32[3]) {{\n{lines}\n  %9 = exp(%8) : f32[3]  # user.py:12\n  return %9\n}}"
    )

    def negate(graph):
        twin = parse("graph g(%x: f32[3]) -> (f32[3]) {\n  %0 = neg(%x) : f32[3]\n  return %0\n}").nodes[0].op
        return graph.replace(nodes=(n.replace(op=twin) if n.op.name == "exp" else n for n in graph.nodes))

    stage = GraphPass(negate)
    whole = case(text, numbers(3))
    finding = blame.smallest(stage, whole, stage.fault(whole))
    assert [node.op.name for node in finding.case.graph.nodes] == ["exp"]
    assert finding.lines[1] == "of: exp at user.py:12"
    assert finding.lines[0].startswith("pass negate changes result 0: element [0] is ")


def test_a_pass_that_raises_is_named():
    def fails(graph):
        raise ValueError("not today")

    whole = case(SUM, numbers(3, 4096))
    fault = GraphPass(fails).fault(whole)
    assert fault.stage == "pass fails" and fault.how == "ValueError: not today"


def test_a_large_kernel_is_looked_at_in_parts():
    text = """kernel scaled(x: f32[4096,2048]) -> (y: f32[4096,2048]) {
  parallel i:4096 j:2048
  y[i, j] = (x[i, j] * 2.0)
}"""
    kernel = parse_kernel(text)
    assert sampled.work(kernel) > sampled.LARGE
    x = RNG(0).random((4096, 2048), np.float32)
    corners = set()
    for part, (mask,) in sampled.windows(kernel):
        (y,) = interpret_kernel(part, x)
        assert mask.sum() == sampled.SIDE**2
        np.testing.assert_array_equal(y[mask], (x * 2)[mask])
        corners |= set(zip(*np.nonzero(mask), strict=True))
    assert {(0, 0), (4095, 2047)} <= corners


def test_a_plan_carried_out_gives_what_the_program_does():
    text = """graph f(%x: f32[8,8], %y: f32[8,8]) -> (f32[8,8], f32[8,8]) {
  %0 = matmul(%x, %y) : f32[8,8]
  %1 = matmul(%0, %y) : f32[8,8]
  %2 = add(%1, %0) : f32[8,8]
  return %2, %0
}"""
    one = case(text, numbers(8, 8), numbers(8, 8, seed=1))
    plan = link(build_program(one.graph, (None, 0)), host_target()).plan
    arrays = [np.array(a) for a in one.arrays]
    found = garbage.planned(plan, arrays)
    assert one.compare(found) is None
    np.testing.assert_array_equal(arrays[0], found[1])  # written over, as the program says


def test_memory_holds_garbage_until_it_is_written():
    program = build_program(parse(SUM))
    made = garbage.Garbage(program)
    (result,) = (make(shape, dtype) for make, shape, dtype in made._fresh)
    assert set(result.view(np.uint8).tolist()) == {garbage.GARBAGE}
    x = numbers(3, 4096)
    assert case(SUM, x).compare(made(x)) is None


# ---- scripts -----------------------------------------------------------------------------------------------
def test_scripts_hold_halves_and_constants(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(repro.VARIABLE, str(tmp_path))
    bfloat16 = lamina.bfloat16.numpy
    table = numbers(3).astype(bfloat16)
    text = """graph f(%x: bf16[3]) -> (bf16[3]) {
  @table : bf16[3]
  %0 = add(%x, @table) : bf16[3]
  return %0
}"""
    one = case(text, numbers(3).astype(bfloat16), constants={"table": table})
    stage = stage_named("build_program", Options())
    fault = blame.Fault(stage.name, 0, "something")
    script = repro.write(blame.Finding(fault, one, stage.name, None))
    assert script.parent.parent == tmp_path and script.parent.name.startswith("lamina-repro-")
    scope = {"__name__": "imported", "__file__": str(script)}
    exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), scope)
    status = repro.again(
        scope["GRAPH"], script.with_name("inputs.npz"), stage=stage.name, into=(None,), frozen=()
    )
    told = capsys.readouterr().out
    assert status == 0 and "build_program: nothing differs" in told and "@table : bf16[3]" in told


def test_a_disk_that_takes_no_file_costs_the_script_alone(tmp_path, monkeypatch):
    taken = tmp_path / "file"
    taken.write_text("")
    monkeypatch.setenv(repro.VARIABLE, str(taken))
    one = case(SUM, numbers(3, 4096))
    assert repro.write(blame.Finding(blame.Fault("native code", 0, "x"), one, "native code", None)) is None


# ---- traced functions --------------------------------------------------------------------------------------
def test_the_environment_asks_for_it(monkeypatch):
    monkeypatch.delenv(verify.VARIABLE, raising=False)
    assert not verify.wanted(False) and verify.wanted(True)
    for text, asked in (("1", True), ("on", True), ("True", True), ("0", False), ("", False)):
        monkeypatch.setenv(verify.VARIABLE, text)
        assert verify.wanted(False) is asked and verify.wanted(True)


def test_a_convolution_of_an_infinity_passes():
    """Winograd's sums spoil the neighbours of an infinity, which the documentation says."""
    net = nn.Conv2d(16, 16, 3, padding=1)

    @jit.trace(verify=True)
    def f(x):
        with lamina.no_grad():
            return net(x)

    x = lamina.tensor(numbers(1, 16, 16, 16))
    f(x), f(x)
    x[0, 0, 4, 4] = float("inf")
    assert lamina.isinf(f(x)).any().item()


def test_a_gradient_that_is_given_up_is_compared():
    """It is written on the way and nothing leads to it when the function has ended."""
    weight = lamina.tensor(numbers(4)).requires_grad_()

    def finish():
        weight.grad.mul_(2.0)
        total = weight.grad.sum()
        weight.grad = None
        return total

    traced = jit.trace(finish, verify=True)
    for _ in range(3):
        (weight * 3.0).sum().backward()
        assert traced().item() == pytest.approx(24.0, rel=8 * 2.0**-23)
