"""Checkpoints that contradict themselves, or ask for what nobody has: refused before memory is taken."""

import json
import os
import tracemalloc

import numpy as np
import pytest
import tiny_checkpoints
from tiny_checkpoints import LLAMA, llama_arrays, write_llama

import lamina
from lamina.language import CheckpointError
from lamina.runtime.checkpoints.own_form import safetensors_bytes

tiny_checkpoints.bytes_vocabulary()  # skips all where the library is not installed


def refused(folder, match, **options):
    with pytest.raises(CheckpointError, match=match):
        lamina.language.load(folder, **options)


@pytest.mark.parametrize(
    "change, told",
    [
        ({"hidden_size": 1 << 40}, "hidden_size is 1099511627776"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"num_hidden_layers": 3}, r"missing: layers\.2\.input_layernorm\.weight"),
        ({"num_hidden_layers": 1}, r"unknown: layers\.1\."),
        (
            {"hidden_size": 64},
            r"embed_tokens\.weight is \[320, 32\], where config\.json asks for \[320, 64\]",
        ),
        ({"vocab_size": 1 << 20}, r"\[1048576, 32\]"),
        ({"vocab_size": 200}, "a vocabulary of 264, and weights for 200 tokens"),
        ({"num_attention_heads": "4"}, "num_attention_heads is '4'"),
        ({"num_attention_heads": 3}, "3 heads can't share"),
        ({"num_key_value_heads": 3}, "4 heads can't share 3 heads of keys"),
        ({"head_dim": 7}, "need an even head_dim"),
        ({"hidden_size": None}, "has no hidden_size"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan"),
        ({"hidden_act": "tan"}, "the activation 'tan' is not known"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "the kind 'dynamic' is not known"),
        ({"rope_scaling": {"type": "linear", "factor": -1.0}}, "factor is -1.0"),
        ({"rope_scaling": 4}, "rope_scaling is 4, and no object"),
        ({"model_type": "mamba"}, "models of type 'mamba' are not known"),
        ({"model_type": 3}, "model_type is 3, and no string"),
        ({"quantization_config": {"bits": 4}}, "GGUF"),
        ({"eos_token_id": "0"}, "eos_token_id is '0'"),
    ],
    ids=str,
)
def test_a_description_that_is_wrong(tmp_path, change, told):
    folder = write_llama(tmp_path / "m", {**LLAMA, **change}, llama_arrays())
    tracemalloc.start()
    try:
        refused(folder, told)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_files_that_are_not_there_or_are_other_things(tmp_path):
    refused(tmp_path / "nowhere", "is not there")
    (tmp_path / "x.txt").write_text("x")
    refused(tmp_path / "x.txt", r"nor a \.gguf file")
    refused(tmp_path, r"config\.json can't be read")
    folder = write_llama(tmp_path / "m")
    (folder / "config.json").write_text("[1]")
    refused(folder, "holds a list")
    (folder / "config.json").write_text("{" * 100_000)
    refused(folder, "is no JSON")
    (folder / "config.json").write_text(json.dumps(LLAMA))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        kept = (folder / name).read_text()
        (folder / name).write_text("{}" if name == "tokenizer.json" else "[]")
        refused(folder, "tokenizer")
        (folder / name).write_text(kept)
    lamina.language.load(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data[:-7],
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: data.replace(b'"F32"', b'"I4_"', 1),
        lambda data: data.replace(b"[320,32]", b"[320,33]", 1),
        lambda data: b"",
    ],
    ids=["cut", "length", "type", "shape", "empty"],
)
def test_weights_that_are_damaged(tmp_path, spoil):
    folder = write_llama(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(spoil((folder / "model.safetensors").read_bytes()))
    refused(folder, "no safetensors file|can.t be read: cannot mmap an empty file")


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "m.gguf"])
def test_a_pipe_is_not_waited_for(tmp_path, name):
    folder = write_llama(tmp_path / "m")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    refused(folder / name if name == "m.gguf" else folder, "is no regular file")


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json"])
def test_half_a_surrogate_pair_is_no_text(tmp_path, name):
    folder = write_llama(tmp_path / "m")
    told = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps({**told, "eos_token": "\U0001f600"}))  # a whole pair is one
    lamina.language.load(folder)
    (folder / name).write_text(json.dumps({**told, "eos_token": "\ud800"}))
    refused(folder, "is no JSON: .utf-8. codec")


def test_what_a_message_shows_of_a_file_is_short(tmp_path):
    folder = write_llama(
        tmp_path / "m", {**LLAMA, "hidden_size": [[7] * 100_000] * 9, "x": "y" * 100_000}, llama_arrays()
    )
    with pytest.raises(CheckpointError, match="hidden_size is") as caught:
        lamina.language.load(folder)
    assert len(str(caught.value)) < 1000


def test_weights_of_integers_are_refused(tmp_path):
    arrays = llama_arrays()
    arrays["model.norm.weight"] = arrays["model.norm.weight"].astype(np.int64)
    refused(write_llama(tmp_path / "m", arrays=arrays), "of type int64, and no weight")


def test_a_pickle_is_named_and_not_read(tmp_path):
    folder = write_llama(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(folder, "a pickle, which is not read")


def shards(folder):
    """Split a folder's weights into two files; returns its index."""
    arrays = llama_arrays()
    names = [*arrays]
    told = {}
    for at, part in enumerate((names[:5], names[5:])):
        file = f"model-{at}.safetensors"
        (folder / file).write_bytes(safetensors_bytes({name: arrays[name] for name in part}))
        told |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": told}))
    return told


def test_weights_in_several_files(tmp_path):
    folder = write_llama(tmp_path / "m")
    tokens = lamina.tensor([[4, 5, 6]])
    with lamina.no_grad():
        want = lamina.language.load(folder).network(tokens)
        told = shards(folder)
        assert (lamina.language.load(folder).network(tokens) == want).all()
    index = folder / "model.safetensors.index.json"
    for change, match in (
        ({"model.norm.weight": "../x.safetensors"}, "no safetensors file of its folder"),
        ({"model.more.weight": "model-0.safetensors"}, "has no 'model.more.weight'"),
        ({"model.norm.weight": "model-1.safetensors"}, "has elsewhere or not"),
        ({"model.norm.weight": 3}, "no weight_map"),
    ):
        index.write_text(json.dumps({"weight_map": {**told, **change}}))
        refused(folder, match)


def test_options_out_of_range_are_refused(tmp_path):
    folder = write_llama(tmp_path / "m")
    for options, match in (
        ({"context": 601}, "from 2 to 600 tokens, not 601"),
        ({"dtype": "int8"}, "weights are of floats, not of int8"),
        ({"dtype": "float12"}, "float12"),
    ):
        with pytest.raises(ValueError, match=match):
            lamina.language.load(folder, **options)


def test_weights_lie_in_the_memory_of_their_file(tmp_path):
    """Nothing of 40 MB of weights is copied, and what is written to them does not reach the file."""
    config = {**LLAMA, "hidden_size": 512, "intermediate_size": 4096}
    folder = write_llama(tmp_path / "m", config, llama_arrays(config))
    before = (folder / "model.safetensors").read_bytes()
    tracemalloc.start()
    model = lamina.language.load(folder)
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(before) > 40_000_000 and taken < 8_000_000
    with lamina.no_grad():
        model.network.norm.weight.zero_()
    assert (folder / "model.safetensors").read_bytes() == before
