"""Choosing tokens: what may be drawn, how often it is, and what is refused."""

import numpy as np
import pytest

import lamina
from lamina.language.token_choice import Sampling, scored

LOGITS = np.log(np.array([0.05, 0.4, 0.3, 0.15, 0.1], np.float32))


def allowed(logits=LOGITS, **options):
    tokens, chances = Sampling(**options).candidates(logits)
    return dict(zip(tokens.tolist(), chances.round(4).tolist()))


def test_each_rule_keeps_what_it_says():
    assert allowed() == {0: 0.05, 1: 0.4, 2: 0.3, 3: 0.15, 4: 0.1}
    assert allowed(top_k=2) == {1: 0.5714, 2: 0.4286}
    assert allowed(top_p=0.5) == {1: 0.5714, 2: 0.4286}
    assert allowed(top_p=0.01) == {1: 1.0}
    assert allowed(min_p=0.3) == {1: 0.4706, 2: 0.3529, 3: 0.1765}
    assert allowed(top_k=3, top_p=0.8, min_p=0.5) == {1: 0.5714, 2: 0.4286}
    assert allowed(temperature=0.5)[1] == round(0.16 / (0.0025 + 0.16 + 0.09 + 0.0225 + 0.01), 4)


def test_many_tokens_are_cut_as_few_are():
    """Of 5,000 the likeliest thousand are sorted first, and do not hold nine tenths here."""
    logits = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    for options in ({"top_p": 0.9}, {"top_p": 0.2}, {"top_k": 2000, "top_p": 0.9}, {"top_k": 50}):
        weights = np.exp(logits.astype(np.float64))
        order = np.argsort(-weights)[: options.get("top_k", 5000)]
        chances = weights[order] / weights[order].sum()
        kept = np.searchsorted(chances.cumsum(), options.get("top_p", 2.0)) + 1
        assert sorted(allowed(logits, **options)) == sorted(order[:kept].tolist()), options


def test_tokens_are_drawn_as_often_as_they_are_likely():
    generator = lamina.Generator().manual_seed(0)
    drawn = [Sampling().choose(LOGITS, [], generator) for _ in range(4000)]
    counts = np.bincount(drawn, minlength=5) / 4000
    # Four standard deviations of a share near a half.
    assert abs(counts - np.exp(LOGITS)).max() < 4 * 0.5 / 4000**0.5


def test_a_penalty_makes_what_was_there_less_likely():
    logits = np.array([2.0, -1.0, 1.5], np.float32)
    choose = Sampling(temperature=0, repetition_penalty=2.0).choose
    assert choose(logits, [0, 0, 1], lamina.Generator()) == 2
    assert logits.tolist() == [2.0, -1.0, 1.5]
    assert Sampling(temperature=0).choose(logits, [0], lamina.Generator()) == 0


def test_penalties_of_the_answer_and_biases():
    """OpenAI's: logit - presence * (count > 0) - frequency * count, of the answer alone."""
    logits = np.array([2.0, 1.9, 1.8, -5.0], np.float32)
    draw = lambda answer, **how: Sampling(temperature=0, **how).choose(  # noqa: E731
        logits, [0, 0, 0, *answer], lamina.Generator(), answer
    )
    assert draw([], presence_penalty=2, frequency_penalty=2) == 0  # the prompt's do not count
    assert draw([0], presence_penalty=0.15) == 1 and draw([0, 0], presence_penalty=0.05) == 0
    assert draw([0, 0], frequency_penalty=0.06) == 1 and draw([0], frequency_penalty=0.06) == 0
    assert draw([1, 2], presence_penalty=-1) == 1
    assert draw([], logit_bias={3: 8, 0: -100}) == 3
    got = Sampling(presence_penalty=0.5, frequency_penalty=0.25).weighed(logits, [], [1, 1, 3])
    assert got.tolist() == [2.0, np.float32(0.9), np.float32(1.8), -5.75] and logits[1] == np.float32(1.9)


def test_how_likely_a_token_was():
    found = scored(LOGITS + 3, 4, 2)
    assert found.token == 4 and abs(found.logprob - np.log(0.1)) < 1e-6
    assert [token for token, _ in found.top] == [1, 2] and abs(found.top[0][1] - np.log(0.4)) < 1e-6
    assert scored(LOGITS, 0, 0).top == [] and len(scored(LOGITS, 0, 9).top) == 5


def test_what_is_ruled_out_is_never_drawn():
    logits = np.where(np.arange(5) == 2, LOGITS, -np.inf).astype(np.float32)
    for how in ({}, {"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}):
        assert {Sampling(**how).choose(logits, [], lamina.Generator().manual_seed(n)) for n in range(9)} == {
            2
        }


def test_logits_that_are_no_numbers_give_a_token():
    assert Sampling().choose(np.array([np.nan, 1.0], np.float32), [], lamina.Generator()) in (0, 1)
    assert Sampling(temperature=1e-300).choose(LOGITS, [], lamina.Generator()) == 1


@pytest.mark.parametrize(
    "name, value",
    [("temperature", -1), ("top_p", 0), ("top_p", 1.5), ("top_k", -1), ("min_p", 2),
     ("repetition_penalty", 0), ("temperature", float("nan"))],
)  # fmt: skip
def test_what_is_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"generate\({name}\)"):
        Sampling(**{name: value})
