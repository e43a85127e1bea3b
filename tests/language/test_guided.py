"""Answers that fit JSON schemas, and what tokens spell, which that is decided by."""

import json

import numpy as np
import pytest
import tiny_checkpoints

import lamina
from lamina.language.vocabulary import Vocabulary, bytes_tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the extra language is not installed")
guidance = pytest.importorskip("llguidance", reason="the extra language is not installed")
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "on": {"type": "boolean"}},
    "required": ["name", "on"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return lamina.language.load(tiny_checkpoints.write_llama(tmp_path_factory.mktemp("models") / "tiny"))


def test_an_answer_fits_whatever_the_network_says(model):
    for seed in range(4):
        answer = model.generate("x", schema=SCHEMA, max_tokens=200, seed=seed, temperature=2.0)
        found = json.loads("".join(answer))
        assert answer.finish == "stop" and set(found) == {"name", "on"} and len(found["name"]) <= 5
    assert "".join(model.generate("x", schema={"const": "the naïve"}, temperature=0)) == '"the naïve"'


def test_any_end_of_the_checkpoint_ends_an_answer_where_it_may(model):
    """Here 0 and 2 do: neither before the number is there."""
    for end in model.vocabulary.ends:
        answer = model.generate("x", schema={"type": "integer"}, temperature=0)
        answer._network = lambda tokens, at, cache, end=end: np.eye(320, dtype=np.float32)[end] * 1e9
        assert json.loads("".join(answer)) in range(-9, 10) and answer.finish == "stop"


def test_blanks_between_the_parts_come_to_an_end(model):
    """A model that likes blanks best writes 32 at most, where it would go on for ever."""
    (blank,) = model.tokens(" ")
    answer = model.generate(
        "x", schema={"type": "array", "items": {"type": "integer"}}, max_tokens=80, logit_bias={blank: 99}
    )
    text = "".join(answer)
    assert text.startswith("[" + " " * 32) and " " * 33 not in text


@pytest.mark.parametrize(
    "schema, told",
    [({"type": "colour"}, "can't be followed"), ({"x": {1, 2}}, "is no JSON"),
     ({"a": "x" * (1 << 18)}, "characters"),
     ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "can't be followed")],
    ids=["type", "set", "long", "empty"],
)  # fmt: skip
def test_a_schema_that_cannot_be_followed_is_refused(model, schema, told):
    with pytest.raises(ValueError, match=told):
        model.generate("x", schema=schema)


def test_scores_of_an_answer_and_of_given_tokens_agree(model):
    prompt = model.tokens("the cat in the hat on the mat " * 4)  # in two parts of 64
    answer = model.generate(prompt, max_tokens=10, seed=0, logprobs=3)
    list(answer)
    cache = model.cache()
    again = [*model.scores([*prompt, *answer.tokens], 3, cache)]
    assert len(prompt) > 64 and [score.token for score in again] == [*prompt[1:], *answer.tokens]
    for ours, theirs in zip(answer.scores, again[len(prompt) - 1 :]):
        assert ours.token == theirs.token and abs(ours.logprob - theirs.logprob) < 1e-4
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
    with lamina.no_grad():
        logits = model.network(lamina.tensor([prompt]))[0]
        want = logits.log_softmax(-1)[lamina.arange(len(prompt) - 1), lamina.tensor(prompt[1:])].numpy()
    np.testing.assert_allclose([score.logprob for score in again][: len(want)], want, rtol=1e-4, atol=1e-4)
    more = model.generate([*prompt, *answer.tokens], max_tokens=2, temperature=0, cache=cache)
    plain = model.generate([*prompt, *answer.tokens], max_tokens=2, temperature=0)
    assert "".join(more) == "".join(plain)
    for wrong in ([], [5, 320], [5] * 601):
        with pytest.raises(ValueError, match="none of 320|from 1 to 600"):
            [*model.scores(wrong)]


def test_spellings_are_the_bytes_of_texts(model):
    for text in ("the cat", "naïve 東京 👩‍🚀", " a\n\tb"):
        tokens = model.vocabulary.tokenizer.encode(text).ids
        assert b"".join(map(model.spelled, tokens)).decode() == text
    assert model.spelled(1) == b"<|im_start|>" and model.spelled(10**6) == b""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    every = bytes_tokenizer(tokenizers, {letter: at for at, letter in enumerate(alphabet)}, [], None)
    assert sorted(Vocabulary(every).spellings) == [bytes([n]) for n in range(256)]
