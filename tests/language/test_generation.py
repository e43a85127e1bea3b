"""Generating text with a tiny model: seeds, stop words, streams, caches, turns, threads."""

import threading

import numpy as np
import pytest
import tiny_checkpoints

import lamina

tiny_checkpoints.bytes_vocabulary()  # skips all where the library is not installed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_checkpoints.write_llama(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder):
    return lamina.language.load(folder)


def greedy(model, prompt, count):
    """By the whole network on the whole text, eagerly."""
    tokens = [*prompt]
    with lamina.no_grad():
        for _ in range(count):
            tokens.append(model.network(lamina.tensor([tokens]))[0, -1].argmax().item())
    return tokens[len(prompt) :]


def test_decoding_with_a_cache_gives_the_tokens_of_the_whole_text(model):
    prompt = model.tokens("the cat in the hat")
    answer = model.generate(prompt, max_tokens=12, temperature=0)
    pieces = "".join(answer)
    want = greedy(model, prompt, 12)
    want = want[: min([12, *(at for at, token in enumerate(want) if token in model.vocabulary.ends)])]
    assert answer.tokens == want
    assert pieces == "".join(map(model.vocabulary.stream().step, want))


def test_prompts_longer_than_a_part_and_caches_that_grow(model):
    """520 tokens go through in two parts, and the cache grows twice."""
    prompt = np.random.default_rng(0).integers(3, 250, 520).tolist()
    answer = model.generate(prompt, max_tokens=3, temperature=0)
    list(answer)
    assert answer.tokens == greedy(model, prompt, 3)


def test_one_program_serves_every_length(model):
    for count in (1, 2, 30, 300):
        [*model.generate([5] * count, max_tokens=4, seed=count)]
    assert model.traced.counts()["recorded"] <= 1
    codes = model._kept._now[1]._codes.values()
    assert len(codes) > 3 and len({code.template for code in codes}) == 2  # of single tokens, and of others


def test_equal_seeds_give_equal_answers_and_others_not(model):
    first, again, other = ("".join(model.generate("on the", max_tokens=20, seed=seed)) for seed in (3, 3, 4))
    assert first == again != other


def test_a_context_that_is_full_ends_with_length(folder):
    model = lamina.language.load(folder, context=20)
    answer = model.generate([7] * 15, max_tokens=100, seed=0)
    list(answer)
    assert answer.finish == "length" and len(answer.tokens) == 5
    with pytest.raises(ValueError, match="leave no room in a context of 20"):
        model.generate([7] * 20)


def test_a_token_that_ends_is_not_told(model):
    end = min(model.vocabulary.ends)
    answer = model.generate("x", max_tokens=5)
    answer._network = lambda tokens, at, cache: np.eye(320, dtype=np.float32)[end] * 1e9
    assert [*answer] == [] and answer.finish == "stop" and answer.tokens == []


class Scripted:
    """Stands for the network: tells given tokens, one after another."""

    def __init__(self, tokens):
        self.tokens = iter(tokens)

    def __call__(self, tokens, at, cache):
        return np.eye(320, dtype=np.float32)[next(self.tokens)] * 1e9


def scripted(model, text, **options):
    answer = model.generate("x", temperature=0, **options)
    answer._network = Scripted([*model.vocabulary.tokenizer.encode(text).ids, 2, 2])
    return answer


@pytest.mark.parametrize(
    "stop, told, finish",
    [
        (["lazy"], "the quick ", "stop"),
        (["zy dog", "y d"], "the quick la" + "z", "stop"),
        (["lazier"], "the quick lazy dog", "stop"),
        (["dogs"], "the quick lazy dog", "stop"),
        ("q", "the ", "stop"),
    ],
)
def test_stop_words_are_not_told_nor_is_what_follows(model, stop, told, finish):
    answer = scripted(model, "the quick lazy dog", stop=stop)
    assert "".join(answer) == told and answer.finish == finish


def test_what_may_begin_a_stop_word_is_told_at_the_end(model):
    count = len(model.vocabulary.tokenizer.encode("to be cont").ids)
    answer = scripted(model, "to be continued", stop=["continues"], max_tokens=count)
    assert "".join(answer) == "to be cont" and answer.finish == "length"


def test_pieces_never_end_within_a_character(model):
    text = "naïve 東京 👩‍🚀!"
    pieces = [*scripted(model, text)]
    assert "".join(pieces) == text and "\ufffd" not in "".join(pieces)
    assert len(pieces) > len("naïve ")  # as they come, not at once
    assert "".join(scripted(model, "東", max_tokens=2)) == ""  # two of its three bytes


def test_a_stop_word_must_have_a_letter(model):
    with pytest.raises(ValueError, match="stop words are texts"):
        model.generate("x", stop=[""])


def test_generations_in_turns_and_in_threads_give_what_they_give_alone(model):
    alone = ["".join(model.generate(p, max_tokens=12, seed=1)) for p in ("in", "on the")]
    two = [model.generate(p, max_tokens=12, seed=1) for p in ("in", "on the")]
    told = ["", ""]
    for _ in range(14):
        for at, answer in enumerate(two):
            told[at] += next(answer, "")
    assert told == alone
    found = {}

    def run(at, prompt):
        found[at] = "".join(model.generate(prompt, max_tokens=12, seed=1))

    threads = [threading.Thread(target=run, args=each) for each in enumerate(("in", "on the"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[0], found[1]] == alone


def test_a_cache_keeps_what_prompts_begin_with(model):
    cache, seen = model.cache(), []
    run = model._logits

    def counted(tokens, at, cache):
        seen.append((len(tokens), at))
        return run(tokens, at, cache)

    prompt = [9, 8, 7, 6, 5]
    first = model.generate(prompt, max_tokens=3, temperature=0, cache=cache)
    first._network = counted
    list(first)
    longer = [*prompt, *first.tokens, 11]
    second = model.generate(longer, max_tokens=2, temperature=0, cache=cache)
    second._network = counted
    list(second)
    assert seen[:3] == [(5, 0), (1, 5), (1, 6)]
    assert seen[3] == (2, 7)  # the last token of the answer was never run
    assert second.tokens == greedy(model, longer, 2)
    other = model.generate([9, 8, 1, 2], max_tokens=2, temperature=0, cache=cache)
    list(other)
    assert other.tokens == greedy(model, [9, 8, 1, 2], 2)


def test_tokens_and_text_are_each_others_inverse(model):
    for text in ("the cat", "naïve 東京", "<|im_start|>x"):
        assert model.text(model.tokens(text)) == text.replace("<|im_start|>", "")
    with pytest.raises(ValueError, match="none of 320 tokens"):
        model.generate([320])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_halves_in_a_file(tmp_path, dtype):
    """bfloat16 stays as it is, mapped; float16 becomes float32."""
    arrays = tiny_checkpoints.llama_arrays(dtype=getattr(lamina, dtype).numpy)
    folder = tiny_checkpoints.write_llama(tmp_path / "half", arrays=arrays)
    half, whole = lamina.language.load(folder), lamina.language.load(folder, dtype="float32")
    assert half.network.norm.weight.dtype is (lamina.bfloat16 if dtype == "bfloat16" else lamina.float32)
    tokens = lamina.tensor([[5, 6, 7, 8]])
    with lamina.no_grad():
        near, exact = half.network(tokens), whole.network(tokens)
    # Each of some twenty roundings in a row may be off by 2**-9 of what it rounds.
    assert (near - exact).abs().max() < 20 * 2**-9 * exact.abs().max()
    assert len("".join(half.generate("in", max_tokens=5, seed=0))) > 0


# A step is 3 standard deviations over 127 or 7: errors of 0.7 or 12 % in each of some 16 layers, in no one
# direction.  Of activations too, of whose products the largest is 6 standard deviations: 1.5 % in each.
@pytest.mark.parametrize(
    "how, tolerance",
    [
        ({"weights": "int8"}, 0.03),
        ({"weights": "int4"}, 0.5),
        ({"weights": "int8", "activations": "int8"}, 0.08),
    ],
)
def test_weights_of_few_bits_answer_by_one_program_as_they_do_eagerly(folder, model, how, tolerance):
    small = lamina.language.load(folder, **how)
    prompt = small.tokens("the cat in the hat")
    answer = small.generate(prompt, max_tokens=6, temperature=0)
    "".join(answer)
    want = greedy(small, prompt, 6)
    assert answer.tokens == want[: len(answer.tokens)]
    assert len(small._kept._now[1]._codes) > 1
    with lamina.no_grad():
        exact, rounded = (m.network(lamina.tensor([prompt])) for m in (model, small))
    assert (exact - rounded).norm() < tolerance * exact.norm()
    assert not {*small.network.embed_tokens.state_dict()} - {"weight"}  # the embedding stays as it was
    assert "weight" not in {name for name, _ in small.network.lm_head.named_parameters()}


def test_other_weights_are_refused(folder):
    with pytest.raises(lamina.ArgumentValueError, match="int8, int4"):
        lamina.language.load(folder, weights="int2")
    for how in ({"activations": "int8"}, {"weights": "int4", "activations": "int4"}):
        with pytest.raises(lamina.ArgumentValueError, match="'int8' beside weights="):
            lamina.language.load(folder, **how)
