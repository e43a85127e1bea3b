"""What tracing may cost: recordings that settle, are bounded, and are let be where nothing fits."""

import subprocess
import sys
import warnings

import pytest

import lamina
from lamina import jit, nn, optim
from lamina.jit.observe import interpret
from lamina.jit.observe.parts import Part
from lamina.jit.trace import PAID_OFF, PATIENCE

X = lamina.tensor([1.0, 2.0])


class Counting(nn.Module):
    """Counts its calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def _a_loop(x, many):
    total = 0
    for n in range(many):
        total += n % 7
    return x + total


def _of(n):
    return n % 7


def _a_loop_of_c_code(x, many):
    return x + sum(map(_of, range(many)))


def _a_loop_of_a_generator(x, many):
    return x + sum(n % 7 for n in range(many))


def _a_loop_around_others(x, many):
    return x + sum([_a_loop(0, 50) for _ in range(many // 50)])


@pytest.mark.parametrize(
    "function", [_a_loop, _a_loop_of_c_code, _a_loop_of_a_generator, _a_loop_around_others]
)
def test_long_loops_are_not_recorded_and_go_on_natively(function, monkeypatch):
    monkeypatch.setattr(interpret, "_QUICK", 60.0)  # no outcome hangs on how fast this machine is
    most = []
    told = interpret.Interpreting._turns

    def counted(self):
        found = told(self)
        most.append(self.turns)
        return found

    monkeypatch.setattr(interpret.Interpreting, "_turns", counted)
    traced = jit.trace(function, budget=0)
    for _ in range(3):
        assert traced(X, 20_000).tolist() == function(X, 20_000).tolist()
    assert "took longer to record than may pay off" in traced.explain()
    assert traced.counts()["served"] == 0
    assert max(most) < 2_000
    assert traced(X, 50).tolist() == function(X, 50).tolist()


def test_how_long_a_loop_is_recorded_hangs_on_no_clock():
    """A network that other programs slow down a thousandfold is recorded as on an idle machine."""
    now = [0.0]

    def clock():
        now[0] += 10.0  # seconds between two looks
        return now[0]

    def function(x):
        for at in range(600):
            for _ in range(3):
                pass
            if at % 3 == 0:
                x = x + 1
        return x

    traced = jit.trace(function)
    traced._ledger.clock = clock
    assert [traced(X).tolist() for _ in range(3)] == [function(X).tolist()] * 3
    assert traced.counts()["recorded"] == 1, traced.explain()


def test_long_loops_of_tensors_are_recorded():
    def function(x):
        for _ in range(1_500):
            x = x + 1
        return x

    traced = jit.trace(function, budget=0)
    assert [traced(X).tolist() for _ in range(3)] == [function(X).tolist()] * 3
    assert traced.counts()["served"] == 2, traced.explain()


@pytest.mark.parametrize("many", [1, 7, 40])
def test_counters_settle_together(many):
    net, plain = (nn.Sequential(*[Counting() for _ in range(many)]) for _ in range(2))
    traced = jit.trace(lambda x: net(x) / many)
    for _ in range(5):
        assert traced(X).tolist() == (plain(X) / many).tolist()
    assert [module.calls for module in net] == [5] * many
    assert traced.counts()["served"] == 3, traced.explain()


def test_places_of_all_kinds_settle_together():
    state, table, total = {"step": 0, "seen": [0]}, [0.5, 1.5], 0

    @jit.trace
    def step(x):
        nonlocal total
        state["step"] += 1
        state["seen"][0] += 2
        table[1] *= 1.5
        total += 1
        return x * state["step"] * state["seen"][0] * table[1] * total

    for n in range(1, 7):
        assert step(X).tolist() == (X * n * (2 * n) * (1.5 * 1.5**n) * n).tolist()
    assert step.counts()["served"] == 4, step.explain()


def test_recordings_are_bounded_whatever_is_dropped():
    nets = [nn.Linear(2, 2)]
    traced = jit.trace(lambda x: nets[0](x), max_recordings=3)
    with lamina.no_grad():
        for _ in range(12):
            nets[0] = nn.Linear(2, 2)
            assert traced(X).tolist() == nets[0](X).tolist()
    assert traced.counts() == {"served": 0, "recorded": 6, "eager": 6, "raised": 0, "within": 0}


def test_recordings_that_paid_off_stand_in_nobodys_way():
    nets = [nn.Linear(2, 2)]
    traced = jit.trace(lambda x: nets[0](x), max_recordings=2)
    with lamina.no_grad():
        for _ in range(6):
            nets[0] = nn.Linear(2, 2)
            for _ in range(PAID_OFF + 1):
                traced(X)
    assert traced.counts()["eager"] == 0 and traced.counts()["recorded"] == 6


def test_what_nothing_serves_is_tried_ever_more_rarely():
    traced, asked = jit.trace(lambda x, name: x * len(name), max_recordings=2), []
    traced._missed = lambda *args, kept=traced._missed: (asked.append(args), kept(*args))[1]
    for n in range(300):
        assert traced(X, f"{n}").tolist() == (X * len(f"{n}")).tolist()
    assert len(asked) == 3 + PATIENCE + 3  # those after 32, after 64 more, after 128 more
    assert traced.counts() == {"served": 0, "recorded": 2, "eager": 298, "raised": 0, "within": 0}
    assert "were not tried" in traced.explain(detail=True)
    while not traced.counts()["served"]:
        assert traced(X, "1").tolist() == X.tolist()
    assert [traced(X, "1") is not None for _ in range(5)] and traced.counts()["served"] == 6


def test_texts_that_python_does_not_take_run_eagerly(monkeypatch):
    def broken(part, name, lines):
        return compile("(", "<guard>", "exec") if lines else original(part, name, lines)

    original, calls = Part._function, []
    monkeypatch.setattr(Part, "_function", broken)

    @jit.trace
    def f(x):
        calls.append(1)
        return x * 2

    with pytest.warns(UserWarning, match="SyntaxError") as told:
        for n in range(1, 5):
            assert f(X).tolist() == [2.0, 4.0] and len(calls) == n
    assert len(told) == 1


@pytest.mark.parametrize(
    ("home", "name"),
    [("lamina.jit.trace", "quick"), ("lamina.jit.trace", "take"), ("lamina.jit.replay", "choose")],
)
def test_faults_of_the_machinery_reach_no_user(monkeypatch, home, name):
    def broken(*args):
        raise KeyError("a fault")

    calls = []

    @jit.trace
    def f(x):
        calls.append(1)
        return x * 2

    f(X)
    monkeypatch.setattr(sys.modules[home], name, broken)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in range(2, 15):
            assert f(X).tolist() == [2.0, 4.0] and len(calls) == n
    assert len(told) == 1 and "KeyError: 'a fault'" in str(told[0].message)


@pytest.mark.parametrize("rule", [optim.SGD, optim.Adam])
def test_verified_training_steps_go_on(rule):
    lamina.manual_seed(0)
    net, x = nn.Linear(3, 2), lamina.randn(4, 3)
    o = rule(net.parameters(), lr=0.01)

    @jit.trace(verify=True)
    def step(x):
        o.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        o.step()
        return loss

    for _ in range(15):
        step(x)
    counts = step.counts()
    assert counts["served"] == 15 - counts["recorded"] and counts["eager"] == 0, step.explain()


def test_nothing_is_printed_when_a_program_ends(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import lamina
net = lamina.nn.Linear(2, 2)
@lamina.jit.trace
def f(x): return net(x)
for _ in range(4): f(lamina.ones(2))
""")
    command = [sys.executable, "-m", "lamina", "run", str(program)]  # whose globals end late
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
