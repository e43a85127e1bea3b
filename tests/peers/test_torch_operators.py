"""A day's share of PyTorch's operator database against Lamina, and the list of what is known to differ.

All of it, with a table: python tests/peers/op_database.py --write
"""

from __future__ import annotations

import os
import time
import zlib

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")
pytest.importorskip("expecttest", reason="PyTorch's operator database asks for it: pip install lamina[peers]")

from operator_comparison import FORMS, Outcome, examined, reason_left_out  # noqa: E402
from operator_differences import EXPECTED, expected, title  # noqa: E402
from operator_forms import Absent, Unsayable, named, translated  # noqa: E402

SHARE = 24  # entries are dealt to so many days; a day's take half a minute
SAMPLES = 3  # of each entry and dtype
BAD = ("absent", "raises", "differs")


def seed() -> int:
    """The day, or what $LAMINA_OPERATORS_SEED says."""
    return int(os.environ.get("LAMINA_OPERATORS_SEED", time.time() // 86400))


@pytest.fixture(scope="module")
def entries() -> dict:
    from torch.testing._internal.common_methods_invocations import op_db

    return {title(entry): entry for entry in op_db}


def drawn(names: list[str], share: int) -> list[str]:
    """The names whose day it is."""
    return [name for name in names if (zlib.crc32(name.encode()) + seed()) % share == 0]


def test_a_days_share_agrees(entries):
    wrong = []
    for name in drawn(sorted(entries), SHARE):
        for form, outcome in examined(entries[name], SAMPLES, seed()).items():
            if outcome.kind in BAD and expected(name, form) is None:
                wrong.append(f"{name}, {form}: {outcome.kind}: {outcome.note}")
    assert not wrong, f"seed {seed()}:\n" + "\n".join(wrong)


def test_what_is_listed_is_an_entry_and_a_form(entries):
    for name, forms in EXPECTED.items():
        assert name in entries, f"{name} is no entry of torch {torch.__version__}'s database"
        assert reason_left_out(entries[name]) is None, f"{name} is left out already"
        assert forms and set(forms) <= set(FORMS), name
        assert all(len(reason) > 10 for reason in forms.values()), f"{name}: say why"


def is_absent(forms: dict[str, str]) -> bool:
    return forms.get("function", "").startswith("absent")


def test_what_is_listed_as_absent_is(entries):
    for name, forms in EXPECTED.items():
        if not is_absent(forms) or name not in drawn([name], 3):
            continue
        entry = entries[name]
        try:
            translated(entry.op, entry.name)
        except Absent:
            continue
        # What a function of PyTorch's tests names is looked up as it runs.
        assert any(o.kind == "absent" for o in examined(entry, 1).values()), f"{name} is there: unlist it"


def test_what_is_listed_still_differs(entries):
    listed = [name for name, forms in EXPECTED.items() if not is_absent(forms)]
    for name in drawn(listed, 6)[:6]:
        outcomes = examined(entries[name])
        for form in EXPECTED[name]:
            assert form in outcomes and outcomes[form].kind in BAD, f"{name}, {form} agrees now: unlist it"


def test_a_planted_difference_is_seen(entries, monkeypatch):
    import lamina

    monkeypatch.setattr(lamina, "sinh", lamina.cosh)
    found = examined(entries["sinh"], 1)["function"]
    assert found.kind == "differs" and "PyTorch's is" in found.note


def test_the_worst_sample_is_the_outcome():
    outcome = Outcome()
    assert outcome.kind == "not testable"
    outcome.add("agrees")
    outcome.add("differs", "how")
    assert (outcome.kind, outcome.note) == ("differs", "how")


def test_names_are_looked_up():
    assert named("nn.functional.relu")
    with pytest.raises(Absent):
        named("no.such.thing")
    with pytest.raises(Unsayable):
        translated(torch.ops.aten.add, "ops.aten.add")
