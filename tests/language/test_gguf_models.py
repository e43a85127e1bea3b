"""GGUF files, written by the package `gguf`: the same model as from safetensors, and refusals."""

import json

import numpy as np
import pytest
import tiny_checkpoints
from tiny_checkpoints import LLAMA, WORDS, llama_arrays

import lamina
from lamina.language.gguf_files import _readable

gguf = pytest.importorskip("gguf", reason="the extra language is not installed")
KINDS = gguf.GGMLQuantizationType
TINY = {**LLAMA, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1}
OURS = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def interleaved(array, heads):
    """Rows as llama.cpp's converter orders them for architecture llama."""
    return array.reshape(heads, 2, -1, *array.shape[1:]).swapaxes(1, 2).reshape(array.shape)


def short_name(name):
    """What a weight is called in such a file."""
    name = name.replace("model.layers.", "blk.")
    for ours, short in OURS.items():
        name = name.replace(ours, short)
    return name


def write_gguf(path, arrays, kind=KINDS.F32, arch="llama", config=TINY, fill=None):
    """A model's file.  Returns the arrays as the blocks have them."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    (fill or bytes_metadata)(writer)
    stored = {}
    for name, array in arrays.items():
        theirs = short_name(name)
        if isinstance(array, tuple):  # blocks that are made already
            writer.add_tensor(theirs, array[0], raw_dtype=array[1])
            continue
        if arch == "llama" and ("attn_q." in theirs or "attn_k." in theirs):
            heads = config["num_attention_heads" if "_q." in theirs else "num_key_value_heads"]
            array = interleaved(array, heads)
        if array.ndim == 1 or kind == KINDS.F32:
            writer.add_tensor(theirs, array)
            stored[name] = arrays[name]
        else:
            blocks = gguf.quants.quantize(array, kind)
            writer.add_tensor(theirs, blocks, raw_dtype=kind)
            back = gguf.quants.dequantize(blocks, kind)
            if arch == "llama" and ("attn_q." in theirs or "attn_k." in theirs):
                back = back.reshape(heads, -1, 2, back.shape[1]).swapaxes(1, 2).reshape(back.shape)
            stored[name] = np.ascontiguousarray(back)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return stored


def bytes_metadata(writer):
    told = json.loads(tiny_checkpoints.bytes_vocabulary().to_str())
    words = sorted(told["model"]["vocab"], key=told["model"]["vocab"].get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(words)
    writer.add_token_types([3 if word in tiny_checkpoints.SPECIAL else 1 for word in words])
    writer.add_token_merges([" ".join(pair) for pair in told["model"]["merges"]])
    writer.add_eos_token_id(words.index("<|im_end|>"))
    writer.add_chat_template(tiny_checkpoints.TEMPLATE)


def pieces_metadata(writer):
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words = ["▁", "t", "h", "e", "▁t", "he", "▁the", "c", "a", "▁c", "at", "▁cat"]
    writer.add_tokenizer_model("llama")
    writer.add_token_list([*pieces, *words])
    writer.add_token_scores([0.0] * len(pieces) + [-float(at) for at in range(len(words))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(words))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)


@pytest.mark.parametrize("arch", ["llama", "qwen2"])
@pytest.mark.parametrize("kind", [KINDS.F32, KINDS.Q8_0, KINDS.Q4_0, KINDS.BF16], ids=lambda kind: kind.name)
def test_a_file_gives_the_logits_of_its_weights(tmp_path, arch, kind):
    arrays = llama_arrays(TINY)
    if arch == "qwen2":
        for name in [
            name for name in arrays if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
        ]:
            bias = np.random.default_rng(1).standard_normal(arrays[name].shape[0])
            arrays[name.replace("weight", "bias")] = bias.astype(np.float32)
    stored = write_gguf(tmp_path / "m.gguf", arrays, kind, arch)
    folder = tiny_checkpoints.write_llama(tmp_path / "m", {**TINY, "model_type": arch}, stored)
    ours, plain = lamina.language.load(tmp_path / "m.gguf"), lamina.language.load(folder)
    tokens = lamina.randint(0, WORDS - 60, (1, 9))
    with lamina.no_grad():
        assert (ours.network(tokens) == plain.network(tokens)).all()
    text = "the cat on <|im_start|> in"
    assert ours.tokens(text) == plain.tokens(text)
    assert ours.vocabulary.ends == {2} and plain.vocabulary.ends == {0, 2}
    messages = [{"role": "user", "content": "hi"}]
    assert ours.prompt(messages) == plain.prompt(messages)


def test_every_kind_of_block_is_read_as_the_package_reads_it(tmp_path):
    """It writes few kinds: random bytes are blocks of all.  Each matrix of a model is of another kind."""
    config = {**TINY, "hidden_size": 256, "intermediate_size": 512}
    shapes = {name: array.shape for name, array in llama_arrays(config).items()}
    rng, kinds = np.random.default_rng(0), sorted(_readable() | {int(KINDS.F16)})
    assert {"Q4_K", "IQ2_XXS", "IQ4_XS", "TQ1_0", "MXFP4"} <= {KINDS(kind).name for kind in kinds}
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    for start in range(0, len(kinds), len(matrices)):
        chosen = iter(kinds[start : start + len(matrices)])
        stored = {}
        for name, shape in shapes.items():
            kind = next(chosen, None) if len(shape) == 2 else None
            if kind is None:
                stored[name] = np.ones(shape, np.float32), KINDS.F32
                continue
            count, size = gguf.GGML_QUANT_SIZES[KINDS(kind)]
            raw = rng.integers(0, 256, (shape[0], shape[1] // count * size)).astype(np.uint8)
            stored[name] = raw, KINDS(kind)
        for name in [
            name for name in shapes if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
        ]:
            bias = np.ones(shapes[name][0], np.float32)
            stored[name.replace("weight", "bias")] = bias, KINDS.F32
        path = tmp_path / f"{start}.gguf"
        write_gguf(path, stored, arch="qwen2", config=config)
        with np.errstate(all="ignore"):  # scales of random bits may be infinite
            network = lamina.language.load(path).network
            theirs = {each.name: each for each in gguf.GGUFReader(path).tensors}
            for name, p in network.named_parameters():
                tensor = theirs[short_name(f"model.{name}" if "lm_head" not in name else name)]
                want = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
                assert np.array_equal(p.detach().numpy(), want.reshape(p.shape), equal_nan=True), tensor


def test_pieces_become_tokens_and_text_again(tmp_path):
    config = {**TINY, "vocab_size": 271}
    write_gguf(tmp_path / "m.gguf", llama_arrays(config), config=config, fill=pieces_metadata)
    model = lamina.language.load(tmp_path / "m.gguf")
    the, cat = 259 + 6, 259 + 11
    assert model.tokens("the cat") == [1, the, cat]
    assert model.tokens("<s>the cat") == [1, the, cat]
    assert model.text([1, the, cat]) == "the cat"
    assert model.text(model.tokens("é the")) == "é the"  # bytes where no piece is
    assert b"".join(map(model.spelled, model.tokens("é the"))) == "<s> é the".encode()


def cut(data):
    return data[: len(data) // 2]


def long_list(data):
    at = data.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 8
    return data[:at] + (1 << 50).to_bytes(8, "little") + data[at + 8 :]


def many_tensors(data):
    return data[:8] + (1 << 60).to_bytes(8, "little") + data[16:]


def large_shape(data):
    at = data.index(b"token_embd.weight") + len(b"token_embd.weight") + 4
    return data[:at] + (1 << 40).to_bytes(8, "little") + data[at + 8 :]


@pytest.mark.parametrize(
    "spoil, told",
    [(cut, "beyond"), (long_list, "a list of"), (many_tensors, "says that it has"),
     (large_shape, "beyond the file"), (lambda data: b"PK" + data[2:], "no GGUF file"),
     (lambda data: data[:30], "cut short")],
    ids=["cut", "list", "tensors", "shape", "magic", "head"],
)  # fmt: skip
def test_a_spoilt_file_is_refused(tmp_path, spoil, told):
    write_gguf(tmp_path / "m.gguf", llama_arrays(TINY))
    data = spoil((tmp_path / "m.gguf").read_bytes())
    (tmp_path / "bad.gguf").write_bytes(data)
    with pytest.raises(lamina.language.CheckpointError, match=told):
        lamina.language.load(tmp_path / "bad.gguf")


def test_an_architecture_that_is_not_known_is_named(tmp_path):
    write_gguf(tmp_path / "m.gguf", llama_arrays(TINY), arch="mamba")
    with pytest.raises(lamina.language.CheckpointError, match="'mamba' is not known"):
        lamina.language.load(tmp_path / "m.gguf")
