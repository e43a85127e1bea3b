"""Tokenizers of others: steps that make a text longer and longer, and what the library itself can't do."""

import json

import pytest
import tiny_checkpoints
from tiny_checkpoints import write_llama

import lamina
from lamina.language import CheckpointError

tiny_checkpoints.bytes_vocabulary()  # skips all where the library is not installed


def steps(kind, inside, many):
    return {"type": "Sequence", kind: inside * many}


TWICE = [{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}]
BYTES = [{"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]
NOTHING = [{"type": "Replace", "pattern": {"Regex": "x*"}, "content": "abcd"}]
EACH = {"Sequence": {"id": "A", "type_id": 0}}
TEMPLATE = {"type": "TemplateProcessing", "single": [EACH] * 3000, "pair": [EACH], "special_tokens": {}}
AROUND = {
    "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, EACH],
    "pair": [EACH],
    "special_tokens": {"x": {"id": "x", "ids": [1] * 5000, "tokens": ["x"] * 5000}},
}  # fmt: skip
GROWING = {
    "normalizer": steps("normalizers", TWICE, 40),
    "pre_tokenizer": steps("pretokenizers", BYTES, 40),
    "decoder": steps("decoders", TWICE, 40),
    "post_processor": TEMPLATE,
    "pattern": steps("normalizers", NOTHING, 8),
    "around": AROUND,
    "before": {"type": "Prepend", "prepend": "a" * 100_000},
}
PLACE = {"pattern": "normalizer", "around": "post_processor", "before": "normalizer"}


def changed(folder, **parts):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))
    return folder


@pytest.mark.parametrize("name", GROWING)
def test_steps_that_make_a_text_too_long_are_refused(tmp_path, name):
    folder = changed(write_llama(tmp_path / "m"), **{PLACE.get(name, name): GROWING[name]})
    with pytest.raises(CheckpointError, match=r"times as long|tokens around|characters before"):
        lamina.language.load(folder)


def test_steps_that_models_have_are_read(tmp_path):
    sentence_piece = steps("normalizers", [
        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}, {"type": "NFKC"}], 1)  # fmt: skip
    folder = changed(write_llama(tmp_path / "m"), normalizer=sentence_piece)
    assert lamina.language.load(folder).tokens("a b")


def test_long_words_of_parts_are_bounded(tmp_path):
    words = {"type": "WordPiece", "unk_token": "<|endoftext|>", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 10**9, "vocab": {"<|endoftext|>": 0, "a": 1}}  # fmt: skip
    folder = changed(write_llama(tmp_path / "m"), model=words)
    with pytest.raises(CheckpointError, match="words of 1000000000 characters"):
        lamina.language.load(folder)


def test_what_the_library_refuses_in_a_text_is_lamina_s_error(tmp_path):
    """A vocabulary of words without one for those that it has not."""
    model = {"type": "WordLevel", "vocab": {"the": 0}, "unk_token": "[none]"}
    model_of = lamina.language.load(changed(write_llama(tmp_path / "m"), model=model, added_tokens=[]))
    with pytest.raises(CheckpointError, match="can't make tokens of the text"):
        model_of.tokens("cat")


def test_a_pattern_that_tries_for_ever_is_refused(tmp_path, capfd):
    """The library panics beyond ten million tries, which is no Exception of Python's."""
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    model = lamina.language.load(changed(write_llama(tmp_path / "m"), pre_tokenizer=split))
    assert model.tokens("aaa")
    with pytest.raises(CheckpointError, match="retry-limit"):
        model.tokens("a" * 40 + "b")
    capfd.readouterr()  # where the panic is told as well
