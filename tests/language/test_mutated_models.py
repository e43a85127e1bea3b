"""Files of models with a few bytes changed: read, or refused with Lamina's error; never another."""

import json

import numpy as np
import pytest
from test_gguf_models import TINY, write_gguf
from tiny_checkpoints import llama_arrays, write_llama

import lamina

pytest.importorskip("gguf", reason="the extra language is not installed")
NUMBERS = (0, 1, 255, 1 << 31, (1 << 64) - 1)


def mutated(data, rng):
    """A copy with one to four changes: a byte, eight bytes, a part left out or twice there."""
    found = bytearray(data)
    for _ in range(rng.integers(1, 5)):
        at = int(rng.integers(len(found)))
        match rng.integers(4):
            case 0:
                found[at] = rng.integers(256)
            case 1:
                found[at : at + 8] = NUMBERS[rng.integers(len(NUMBERS))].to_bytes(8, "little")
            case 2:
                del found[at : at + int(rng.integers(1, 30))]
            case _:
                found[at:at] = found[at : at + int(rng.integers(1, 30))]
    return bytes(found)


def read(path):
    """Open a model and make a token; whether it was read."""
    try:
        model = lamina.language.load(path)
        with lamina.no_grad():
            model.network(lamina.tensor([[1, 2]]))
        model.text(model.tokens("the cat"))
        if model.template:
            model.prompt([{"role": "user", "content": "x"}])
    except lamina.LaminaError:
        return False
    return True


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # weights that are no numbers
@pytest.mark.parametrize("seed", range(4))
def test_a_gguf_file(tmp_path, seed):
    config = {**TINY, "hidden_size": 16, "intermediate_size": 16}
    write_gguf(tmp_path / "m.gguf", llama_arrays(config), config=config)
    data, rng, told = (tmp_path / "m.gguf").read_bytes(), np.random.default_rng(seed), 0
    head = data.index(b"blk.0.ffn_up.weight") + 60
    for _ in range(40):
        (tmp_path / "x.gguf").write_bytes(mutated(data[:head], rng) + data[head:])
        told += read(tmp_path / "x.gguf")
    assert told < 40


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
)
def test_a_file_of_a_folder(tmp_path, name):
    folder = write_llama(tmp_path / "m")
    data, rng, told = (folder / name).read_bytes(), np.random.default_rng(0), 0
    head = 1500 if name == "model.safetensors" else len(data)
    for _ in range(40):
        (folder / name).write_bytes(mutated(data[:head], rng) + data[head:])
        told += read(folder)
    assert told < 40


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_of_other_kinds(tmp_path):
    """Each field of config.json as something else."""
    folder = write_llama(tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    for key in [*config, "rope_scaling", "rope_parameters", "head_dim", "sliding_window", "layer_types"]:
        for value in (None, True, -1, 0, 10**30, 1.5, "x", [], [1], {}, {"rope_type": 3}):
            (folder / "config.json").write_text(json.dumps({**config, key: value}))
            read(folder)
