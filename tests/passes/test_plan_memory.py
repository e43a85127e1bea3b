"""Memory plans: golden texts, refusals, random programs run over one real arena, and planted bugs."""

import numpy as np
import pytest
from sample_programs import (
    add_row,
    arguments,
    overwrite_first,
    part,
    pointwise,
    random_program,
    reshape,
    sort,
    transpose,
    two_outputs,
)

from lamina.ir.errors import GraphError, KernelError
from lamina.ir.kernel.interpret import interpret as interpret_kernel
from lamina.ir.kernel.text import parse as parse_kernel
from lamina.ir.kernel.types import NUMPY
from lamina.ir.kernel.verify import verify as verify_kernel
from lamina.passes.llvm.link import link
from lamina.passes.programs import plan_memory as module
from lamina.passes.programs.memory_plan import MemoryPlan, Place, aligned, verify
from lamina.passes.programs.plan_memory import in_place, may_be_in_place, plan_memory
from lamina.passes.programs.program import Alias, Array, Call, Program, interpret, run_host
from lamina.passes.schedules.target import BASELINE

SEEDS = range(150)
SCRATCH = 100  # bytes for every second call: not a multiple of the alignment


def scratch(call: Call) -> int:
    return SCRATCH if len(call.name) % 2 else 0


def chain(count: int, into: int | None = None) -> Program:
    x, w = Array("x", "f32", (4, 8)), Array("w", "f32", (4, 8))
    steps = [pointwise("mul", "(%a * %b)", x, w)]
    for _ in range(count):
        steps.append(pointwise("half", "(%a * 0.5)", steps[-1].outputs[0]))
    return Program("chain", (x, w), tuple(steps), steps[-1].outputs, {}, (into,))


# ---- texts
def test_a_pointwise_chain_runs_in_the_result():
    assert str(verify(plan_memory(chain(2)))) == (
        "plan of chain: arena of 0 bytes\n"
        "  %x at param 0\n"
        "  %w at param 1\n"
        "  %y at result 0\n"
        "  %y.1 at result 0, in place of %y\n"
        "  %y.2 at result 0, in place of %y.1"
    )


def test_arrays_that_never_live_at_once_share_bytes():
    x = Array("x", "f32", (4, 8))
    one = transpose(x)
    two = transpose(one.outputs[0])
    three = transpose(two.outputs[0])
    four = transpose(three.outputs[0])
    program = Program("flips", (x,), (one, two, three, four), four.outputs)
    assert str(verify(plan_memory(program, lambda call: 64 if call is two else 0))) == (
        "plan of flips: arena of 320 bytes\n"
        "  %x at param 0\n"
        "  %y at arena+0\n"
        "  %y.1 at arena+128\n"
        "  scratch of transpose at arena+256: 64 bytes\n"
        "  %y.2 at arena+0\n"
        "  %y.3 at result 0"
    )


def test_an_update_is_written_straight_over_its_params():
    p, m = Array("p", "f32", (3,)), Array("m", "f32", (3,))
    step = two_outputs(p, m)
    program = Program("update", (p, m), (step,), step.outputs, {}, (0, 1))
    plan = verify(plan_memory(program))
    assert str(plan) == (
        "plan of update: arena of 0 bytes\n"
        "  %p at param 0\n"
        "  %m at param 1\n"
        "  %y at param 0, in place of %p\n"
        "  %z at param 1, in place of %m"
    )
    assert not plan.moves


def test_old_values_that_are_still_read_are_not_overwritten():
    p = Array("p", "f32", (3,))
    new = pointwise("half", "(%a * 0.5)", p)
    late = pointwise("add", "(%a + %b)", p, new.outputs[0])
    program = Program("late", (p,), (new, late), (new.outputs[0], late.outputs[0]), {}, (0, None))
    assert str(verify(plan_memory(program))) == (
        "plan of late: arena of 64 bytes\n"
        "  %p at param 0\n"
        "  %y at arena+0\n"
        "  %y.1 at result 1\n"
        "  at the end: arena+0 -> param 0"
    )


def test_nothing_is_overwritten_before_what_may_fail():
    p = Array("p", "f32", (3,))
    new = pointwise("half", "(%a * 0.5)", p)
    last = sort(new.outputs[0])
    program = Program("fails", (p,), (new, last), (new.outputs[0], last.outputs[0]), {}, (0, None))
    plan = verify(plan_memory(program))
    assert [str(move) for move in plan.moves[2]] == ["arena+64 -> param 0"]


def test_params_that_change_places_go_through_the_arena():
    p, q = Array("p", "f32", (3,)), Array("q", "f32", (3,))
    plan = verify(plan_memory(Program("swap", (p, q), (), (q, p), {}, (0, 1))))
    assert [str(move) for move in plan.moves[0]] == [
        "param 1 -> arena+0",
        "param 0 -> arena+64",
        "arena+0 -> param 0",
        "arena+64 -> param 1",
    ]


def test_a_declared_kernel_copies_an_operand_that_is_still_needed():
    x = Array("x", "f32", (5, 7))
    over = overwrite_first(x)
    plan = verify(plan_memory(Program("over", (x,), (over,), over.outputs)))
    assert [str(move) for move in plan.moves[0]] == ["param 0 -> result 0"]
    assert plan.arguments(plan.program.steps[0]) == ((Place("result", 0),), (Place("result", 0),))


def test_an_alias_is_where_its_source_is():
    x = Array("x", "f32", (5, 7))
    flat = reshape(x, (35,))
    half = pointwise("half", "(%a * 0.5)", flat.outputs[0])
    back = reshape(half.outputs[0], (5, 7))
    plan = verify(plan_memory(Program("alias", (x,), (flat, half, back), back.outputs)))
    assert plan.places[flat.outputs[0]] == Place("param", 0)
    assert plan.places[half.outputs[0]] == plan.places[back.outputs[0]] == Place("result", 0)
    assert not plan.moves


def test_a_part_is_inside_of_its_source():
    p, q = Array("p", "f32", (5, 7)), Array("q", "f32", (7,))
    half = pointwise("half", "(%a * 0.5)", p)
    row, late = part(half.outputs[0], 3, 1), part(p, 2, 1)
    new = pointwise("sum", "(%a + %b)", row.outputs[0], q)
    results = (late.outputs[0], new.outputs[0], row.outputs[0], half.outputs[0])
    program = Program("parts", (p, q), (half, row, late, new), results, {}, (None, 1, None, 0))
    assert str(verify(plan_memory(program))) == (
        "plan of parts: arena of 384 bytes\n"
        "  %p at param 0\n"
        "  %q at param 1\n"
        "  %y at arena+0\n"
        "  %part at arena+84, the memory of %y\n"
        "  %part.1 at param 0+56, the memory of %p\n"
        "  %y.1 at param 1, in place of %q\n"
        "  at the end: param 0 -> arena+192\n"
        "  at the end: arena+248 -> result 0\n"
        "  at the end: arena+84 -> result 2\n"
        "  at the end: arena+0 -> param 0"
    )


# ---- refusals
def test_what_had_better_not_be_in_place():
    from_first_row = parse_kernel(
        "kernel f(x: f32[5,5]) -> (y: f32[5,5]) {\n  parallel i:5 j:5\n  y[i, j] = (x[i, j] - x[0, j])\n}"
    )
    x, row = Array("x", "f32", (5, 5)), Array("row", "f32", (5,))
    assert not may_be_in_place(transpose(x).kernel, 0, 0)  # reads at another index than it writes
    assert not may_be_in_place(from_first_row, 0, 0)  # so does this, at one of several
    assert not may_be_in_place(add_row(x, row).kernel, 0, 1)  # another shape
    assert may_be_in_place(add_row(x, row).kernel, 0, 0)
    assert str(in_place(add_row(x, row).kernel, 0, 0).outputs[0]) == "y: f32[5,5] inplace a"


def test_weights_of_1_x_1_are_updated_where_they_are():
    """Nothing is copied behind a training step: of a ResNet-50's that had been 146 MB."""
    w, g = (Array(name, "f32", (19, 5, 1, 1)) for name in "wg")
    kernel = parse_kernel(
        "kernel f(w: f32[19,5,1,1], g: f32[19,5,1,1]) -> (y: f32[19,5,1,1]) {\n"
        "  parallel i:19 j:5 k:1 l:1\n  y[i, j, k, l] = (w[i, j, 0, 0] - g[i, j, 0, 0])\n}"
    )
    made = Array("y", "f32", (19, 5, 1, 1))
    plan = plan_memory(Program("f", (w, g), (Call(kernel, (w, g), (made,)),), (made,), {}, (0,)))
    assert not plan.moves and plan.places[made] == plan.places[w]


def test_several_parts_of_a_buffer_beside_what_is_in_place_are_apart():
    kernel = parse_kernel(
        "kernel f(x: f32[5,5]) -> (y: f32[5,5], z: f32[5,5,2]) {\n  parallel i:5 j:5\n"
        "  y[i, j] = (x[i, j] * 2.0)\n  z[i, j, 0] = (x[i, j] + 1.0)\n  z[i, j, 1] = (x[i, j] - 1.0)\n}"
    )
    made, x = in_place(kernel, 0, 0), np.arange(25, dtype=np.float32).reshape(5, 5)
    y, z = interpret_kernel(verify_kernel(made), x.copy())
    assert np.array_equal(y, 2 * x) and np.array_equal(z, np.stack([x + 1, x - 1], -1))


def test_no_code_is_made_of_what_can_not_be_in_place(monkeypatch):
    x = Array("x", "f32", (4, 4))
    half = pointwise("half", "(%a * 0.5)", x)
    flip = transpose(half.outputs[0])
    program = Program("flips", (x,), (half, flip), flip.outputs)
    link(program, BASELINE)
    monkeypatch.setattr(module, "may_be_in_place", lambda kernel, output, source: True)
    with pytest.raises(KernelError, match="no code is made of an unsound kernel"):
        link(program, BASELINE)


def test_one_operand_twice_is_not_overwritten():
    x = Array("x", "f32", (3,))
    half = pointwise("half", "(%a * 0.5)", x)
    square = pointwise("square", "(%a * %b)", half.outputs[0], half.outputs[0])
    plan = verify(plan_memory(Program("twice", (x,), (half, square), square.outputs)))
    assert plan.places[half.outputs[0]] == Place("arena", 0)


def test_two_results_into_one_param_are_refused():
    p = Array("p", "f32", (3,))
    with pytest.raises(GraphError, match="a param is overwritten by one result\n  into: 0, 0"):
        plan_memory(Program("both", (p,), (), (p, p), {}, (0, 0)))


def test_planning_is_idempotent():
    for seed in range(40):
        plan = plan_memory(random_program(seed), scratch)
        assert str(plan_memory(plan.program, scratch)) == str(plan)


# ---- random programs over one real arena
def execute(plan: MemoryPlan, *arrays: np.ndarray) -> list[np.ndarray]:
    """The results, every array being bytes at its place and nowhere else."""
    program = plan.program
    arena = np.full(plan.arena, 0xFF, np.uint8)
    memory = {("param", n): array.copy().reshape(-1).view(np.uint8) for n, array in enumerate(arrays)}
    for n, result in enumerate(program.results):
        memory["result", n] = np.full(result.nbytes, 0xFF, np.uint8)
    for n, value in enumerate(program.constants.values()):
        memory["constant", n] = value.copy().reshape(-1).view(np.uint8)

    def at(place: Place, nbytes: int) -> np.ndarray:
        if place.kind == "arena":
            return arena[place.at : place.at + nbytes]
        return memory[place.kind, place.at][place.beyond :][:nbytes]

    def view(place: Place, array: Array) -> np.ndarray:
        return at(place, array.nbytes).view(NUMPY[array.dtype]).reshape(array.shape)

    def move(number: int) -> None:
        for one in plan.moves.get(number, ()):
            at(one.target, one.nbytes)[...] = at(one.source, one.nbytes).copy()

    for number, step in enumerate(program.steps):
        move(number)
        if isinstance(step, Alias):
            continue
        places, targets = plan.arguments(step)
        if isinstance(step, Call) and step in plan.scratch:
            at(*plan.scratch[step])[...] = 0xFF
        given = [view(p, a) for p, a in zip(places, step.inputs, strict=True)]
        results = interpret_kernel(step.kernel, *given) if isinstance(step, Call) else run_host(step, given)
        for target, array, result in zip(targets, step.outputs, results, strict=True):
            view(target, array)[...] = result
    move(len(program.steps))
    ends = [
        Place("result", n) if into is None else Place("param", into) for n, into in enumerate(program.into)
    ]
    return [view(place, array).copy() for place, array in zip(ends, program.results, strict=True)]


def wrong(seed: int) -> bool:
    """Whether running the plan's places gives other results than the program."""
    program = random_program(seed)
    arrays = arguments(program)
    got, want = execute(plan_memory(program, scratch), *arrays), interpret(program, *arrays)
    return not all(np.array_equal(g, w, equal_nan=True) for g, w in zip(got, want, strict=True))


def refused(seed: int) -> bool:
    try:
        verify(plan_memory(random_program(seed), scratch))
    except GraphError:
        return True
    return False


def test_random_programs_run_right_over_one_arena():
    assert [seed for seed in SEEDS if refused(seed) or wrong(seed)] == []


def test_random_programs_reuse_memory():
    """Every kind of reuse is met: or the test above would show nothing."""
    plans = [plan_memory(random_program(seed), scratch) for seed in SEEDS]
    text = "\n".join(map(str, plans))
    for kind in (
        "in place of",
        "at param 0, in place of",
        "at the end: param",
        "before overwrite_first",
        "at the end: param 0+",
        "before overwrite_first: constant 0+",
    ):
        assert kind in text, kind
    apart = sum(aligned(a.nbytes) for plan in plans for a in plan.places if plan.places[a].kind == "arena")
    assert sum(plan.arena for plan in plans) < 0.7 * apart


# ---- planted bugs: which net catches which
def overlapping(slots):
    for slot in slots:
        slot.place = Place("arena", 0)
    return max((aligned(slot.nbytes) for slot in slots), default=0)


class ForgetsResults(module._Planner):
    def __init__(self, program):
        super().__init__(program)
        for array in program.results:
            self.last[self.root[array]] = max(self.first[self.root[array]], 0)


class OverwritesTooSoon(module._Planner):
    def write_over_params(self):
        kept = dict(self.last)
        self.last |= dict.fromkeys(self.program.params, -1)
        super().write_over_params()
        self.last = kept


class OverwritesBeforeFailures(module._Planner):
    def __init__(self, program):
        super().__init__(program)
        self.safe_after = -1


class ForgetsMoves(module._Planner):
    def moves_between(self):
        return {}


class ForgetsOffsets(module._Planner):
    def __init__(self, program):
        super().__init__(program)
        self.beyond = dict.fromkeys(self.beyond, 0)


class ForgetsParking(module._Planner):
    def moves_at_end(self):
        moves = super().moves_at_end()
        parked = {id(slot): source for source, _, slot, _ in moves[: len(self.parked)]}
        self.parked = []
        return tuple((parked.get(id(s), s), b, t, n) for s, b, t, n in moves[len(parked) :])


PLANTED = {
    "everything at one place": ("_lay_out", overlapping),
    "results die early": ("_Planner", ForgetsResults),
    "params overwritten while read": ("_Planner", OverwritesTooSoon),
    "no copy before a kernel in place": ("_Planner", ForgetsMoves),
    "no parking": ("_Planner", ForgetsParking),
    "parts at the beginning of their sources": ("_Planner", ForgetsOffsets),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bugs_are_refused_and_would_be_wrong(bug, monkeypatch):
    monkeypatch.setattr(module, *PLANTED[bug])
    assert any(refused(seed) for seed in SEEDS), "the verifier sees nothing"
    assert any(wrong(seed) for seed in SEEDS), "the results are right all the same"
    missed = [seed for seed in SEEDS if wrong(seed) and not refused(seed)]
    assert missed == []


def test_overwriting_before_a_failure_is_refused(monkeypatch):
    monkeypatch.setattr(module, "_Planner", OverwritesBeforeFailures)
    assert any(refused(seed) for seed in SEEDS)


def test_the_verifier_refuses_a_plan_outside_its_arena():
    plan = plan_memory(chain(0, into=0))
    y = plan.program.steps[0].outputs[0]
    moved = plan.replace(places={**plan.places, y: Place("arena", 0)})
    with pytest.raises(GraphError, match="not inside the arena"):
        verify(moved)
