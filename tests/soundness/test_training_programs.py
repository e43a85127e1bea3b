"""Random training programs do traced what they do undecorated, and how many calls ran compiled is told."""

from __future__ import annotations

import pytest
import run_training
from battery import EAGER
from many_programs import record_of, seed_of_the_day
from training_make import CALLS, make
from training_parts import FEATURES

from lamina.jit.observe.guard_text import GuardText
from lamina.jit.observe.written import Written


def hold(seeds: range, spellings: bool = False) -> None:
    """Fail where a program of these seeds differs, and tell which features it takes."""
    rows = record_of("training", seeds)
    print(f"\nseeds from {seeds.start}:\n{run_training.table(rows, spellings)}")
    wrong = [row for row in rows if row["outcome"] not in run_training.HELD]
    assert not wrong, "\n".join(
        f"run_training.py --seed {row['draw']} --show says {row['outcome']}: {row['detail']}" for row in wrong
    )


@pytest.mark.timeout(600)  # a quarter of a second each, undecorated; on a busy machine ten times that
def test_training_programs_of_the_day():
    start = seed_of_the_day()
    hold(range(start, start + 8))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_thousand_training_programs():
    start = seed_of_the_day() + 100
    hold(range(start, start + 1000), spellings=True)


def test_training_programs_are_steady():
    """Two undecorated runs agree, and a seed gives the same text again."""
    for seed in range(12):
        program = make(seed)
        assert make(seed).text == program.text
        eager, again = (run_training.ran(program.text, EAGER) for _ in range(2))
        assert run_training.difference(eager, again, equal=run_training.near)[0] is None
        assert len(eager.compiled) == CALLS


def test_training_programs_have_every_spelling():
    met = {feature for seed in range(3000) for feature in make(seed).features}
    assert met == {f"{s.feature}: {s.name}" for spellings in FEATURES.values() for s in spellings}


def checks_nothing(self, condition, why, late=False):
    """What no fact is guarded by: a step goes on with the numbers of its first calls."""


def notes_nothing(self, function, *args, **kwargs):
    """What leaves out the effects of replays: they print and append nothing."""


@pytest.mark.parametrize(
    "part, name, planted", [(GuardText, "check", checks_nothing), (Written, "effect", notes_nothing)]
)
def test_training_programs_find_what_is_left_out(part, name, planted, monkeypatch):
    monkeypatch.setattr(part, name, planted)
    outcomes = (run_training.verdict(seed)["outcome"] for seed in range(1, 30))
    assert "differs" in outcomes
