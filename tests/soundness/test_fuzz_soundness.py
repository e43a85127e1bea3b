"""Random programs do traced what they do undecorated, whatever changes; and the fuzzer finds what differs."""

from __future__ import annotations

import os
import time
from collections import Counter

import fuzz_sizes
import pytest
from battery import EAGER, NAIVE
from cases import CASES
from fuzz import CALLS, Tally, checked, interpreted, program, smaller
from refused_anywhere import WHY, refused_anywhere

import lamina
from lamina.jit.observe.guard_text import GuardText
from lamina.jit.observe.sizes import Sizes

DAY = int(os.environ.get("LAMINA_DAY", time.time() // 86_400))  # other programs every day
QUICK = range(100_000 + 40 * DAY, 100_030 + 40 * DAY)
LIVES = range(50_000_000 + 40 * DAY, 50_000_015 + 40 * DAY)
SIZES = 70_000_000 + 40 * DAY
REFUSED = range(90_000_000 + 40 * DAY, 90_000_012 + 40 * DAY)
SLOW = range(10_000, 20_000)
PLANTED = range(30_000, 31_000)


@pytest.mark.parametrize("name", CASES)
def test_fuzz_case(name):
    """What was once wrong is right; and these programs show it, for a tracer that keeps its first result."""
    assert checked(CASES[name]).wrong is None
    assert checked(CASES[name], NAIVE).wrong is not None


def test_fuzz_quick():
    tally = Tally()
    with interpreted():
        for seed in QUICK:
            tally.run(seed)
    assert not tally.wrong, "\n".join(f"seed {seed}: {found.wrong}" for seed, found in tally.wrong)
    assert tally.counts["served"] > tally.counts["calls"] // 10  # or there was nothing to be wrong


def test_what_is_interpreted_has_no_short_way():
    with interpreted():
        traced = lamina.jit.trace(lambda x: x * 2 + 1)
        for _ in range(20):  # warnings are errors: the short way is tried after some calls
            assert traced(lamina.ones(2)).tolist() == [3.0, 3.0]


def test_fuzz_lives():
    """Objects whose lives show, orders of tables, numbers that go on."""
    tally = Tally()
    with interpreted():
        for seed in LIVES:
            tally.run(seed, kind="lives")
    assert not tally.wrong, "\n".join(f"seed {seed}: {found.wrong}" for seed, found in tally.wrong)
    assert tally.counts["served"] > tally.counts["calls"] // 20


def test_fuzz_sizes():
    counts, found = fuzz_sizes.run(SIZES, 15)
    assert not found, "\n".join(f"seed {seed}: {what}" for seed, what in found)
    assert counts["with symbols"] > 3


@pytest.mark.sampled(5)
def test_fuzz_finds_sizes_that_are_not_guarded(monkeypatch):
    monkeypatch.setattr(Sizes, "_need", lambda self, condition: None)
    assert fuzz_sizes.run(0, 60)[1]


def test_fuzz_refused_anywhere():
    """What a run does is done, and what it holds is plain, wherever it is refused."""
    tally = Tally()
    with interpreted():
        for seed in REFUSED:
            with refused_anywhere(seed):
                tally.run(seed, kind="lives")
    assert not tally.wrong, "\n".join(f"seed {seed}: {found.wrong}" for seed, found in tally.wrong)
    assert WHY in str(tally.reasons)


def test_fuzz_native():
    """A few with machine code, which takes longer to make than these programs run."""
    tally = Tally()
    for seed in range(QUICK.stop, QUICK.stop + 6):
        tally.run(seed)
    assert not tally.wrong, "\n".join(f"seed {seed}: {found.wrong}" for seed, found in tally.wrong)


def test_fuzz_programs_are_steady():
    """Two undecorated runs agree, and a seed gives the same text again."""
    for seed in QUICK[:12]:
        text, _ = program(seed)
        assert checked(text, EAGER).wrong is None
        assert program(seed)[0] == text


def test_fuzz_finds_a_naive_tracer():
    """Keeping the first result is wrong in nearly every program."""
    found = [checked(program(seed)[0], NAIVE).wrong for seed in QUICK[:20]]
    assert found.count(None) <= 1


def test_fuzz_makes_a_failing_program_smaller():
    """What is left of a program still fails in the same way, and is little."""
    text = CASES["an attribute of a module is written"]
    longer = text.replace(
        "    return", "    y = [k + 1 for k in (1, 2)]\n    if y:\n        print(y)\n    return"
    )
    small = smaller(longer, NAIVE)
    assert checked(small, NAIVE).kind == checked(longer, NAIVE).kind
    assert "print" not in small and "rate" not in small


def without_guards(of: str, monkeypatch) -> None:
    """Have recordings leave out the guards of facts of a kind: an item, an attribute, an argument ..."""
    check = GuardText.check

    def forgetful(self, condition, why, late=False, part=None):
        slot = getattr(why, "slot", None)
        if slot is None or slot[1] != of:
            check(self, condition, why, late, part)

    monkeypatch.setattr(GuardText, "check", forgetful)


@pytest.mark.parametrize("kind", ["item", "attr"])
def test_fuzz_finds_guards_left_out(kind, monkeypatch):
    found = found_without(kind, 100, monkeypatch)
    assert found is not None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["argument", "cell", "len", "in", "own", "absent", "keys"])
def test_fuzz_finds_rarer_guards_left_out(kind, monkeypatch):
    found = found_without(kind, 1000, monkeypatch)
    print(f"{kind}: {found}")
    assert found is not None


def found_without(kind: str, most: int, monkeypatch) -> str | None:
    """The first difference that the fuzzer finds in recordings without guards of a kind."""
    without_guards(kind, monkeypatch)
    texts = (program(seed)[0] for seed in PLANTED[:most])
    with interpreted():
        return next(
            (f"program {n}: {wrong}" for n, text in enumerate(texts) if (wrong := checked(text).wrong)), None
        )


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fuzz_two_thousand_lives():
    tally = Tally()
    with interpreted():
        for seed in range(LIVES.stop, LIVES.stop + 2000):
            tally.run(seed, kind="lives")
    print(tally.table())
    assert not tally.wrong, "\n".join(f"seed {seed}: {found.wrong}" for seed, found in tally.wrong)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_fuzz_ten_thousand_programs():
    tally = Tally()
    for seed in SLOW:
        if seed % 50:
            with interpreted():
                tally.run(seed)
        else:
            tally.run(seed)
    print(tally.table())
    wrong = Counter(found.kind for _, found in tally.wrong)
    assert not tally.wrong, "\n".join(
        [str(wrong), *(f"seed {seed}: {found.wrong}" for seed, found in tally.wrong[:50])]
    )
    assert tally.counts["calls"] > CALLS // 2 * len(SLOW)
