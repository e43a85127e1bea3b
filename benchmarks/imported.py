"""Hugging Face's architectures in and out of Lamina: by PyTorch's exporters in, and again for all sizes out.

    python benchmarks/imported.py [--only bert swin] [--write]

Needs torch, transformers, onnxscript and onnxruntime.  Each model is small, with random weights, and is
written by both of PyTorch's exporters with a batch that changes, and a length where it has one.  Lamina loads
the file, runs it eagerly and traced at seven sizes, some with a batch of 1, and exports it as `.lam` and as
ONNX for all of them.  Every result is compared with ONNX Runtime's of the first file: the largest difference
over the largest number.  A model is tried in a process of its own.  --write puts the table into
results/imported.md.
"""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).parent / "results"
EXPORTERS = ("script", "dynamo")
SHAPES = ((2, 9), (3, 9), (2, 12), (1, 5), (4, 17), (1, 9), (5, 30))  # a batch and a length
WORDS = 200
HALF = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "attn_implementation": "eager",
}  # fmt: skip
TEXT = HALF | {"vocab_size": WORDS, "max_position_embeddings": 64}
CAUSAL = TEXT | {"use_cache": False}
GROUPED = CAUSAL | {"num_key_value_heads": 2}
# By name: what goes in, the class and its configuration's, the configuration, and the side of an image.
MODELS: dict[str, tuple[str, str, str, dict[str, Any], int]] = {
    "bert": ("text", "BertModel", "BertConfig", TEXT, 0),
    "roberta": ("text", "RobertaModel", "RobertaConfig", TEXT | {"pad_token_id": 1}, 0),
    "distilbert": ("text", "DistilBertModel", "DistilBertConfig",
                   {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128, "vocab_size": WORDS}, 0),
    "albert": ("text", "AlbertModel", "AlbertConfig", TEXT | {"embedding_size": 32}, 0),
    "electra": ("text", "ElectraModel", "ElectraConfig", TEXT | {"embedding_size": 64}, 0),
    "mpnet": ("text", "MPNetModel", "MPNetConfig", TEXT, 0),
    "deberta_v2": ("text", "DebertaV2Model", "DebertaV2Config",
                   TEXT | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, 0),
    "modernbert": ("text", "ModernBertModel", "ModernBertConfig",
                   TEXT | {"pad_token_id": 0, "local_attention": 8}, 0),
    "t5_encoder": ("text", "T5EncoderModel", "T5Config",
                   {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
                    "vocab_size": WORDS}, 0),
    "clip_text": ("text", "CLIPTextModel", "CLIPTextConfig", TEXT, 0),
    "gpt2": ("text", "GPT2LMHeadModel", "GPT2Config",
             {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "use_cache": False}, 0),
    "gpt_neox": ("text", "GPTNeoXForCausalLM", "GPTNeoXConfig", CAUSAL, 0),
    "opt": ("text", "OPTForCausalLM", "OPTConfig",
            CAUSAL | {"ffn_dim": 128, "word_embed_proj_dim": 64}, 0),
    "bloom": ("text", "BloomForCausalLM", "BloomConfig",
              {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": WORDS, "use_cache": False}, 0),
    "llama": ("text", "LlamaForCausalLM", "LlamaConfig", GROUPED, 0),
    "qwen2": ("text", "Qwen2ForCausalLM", "Qwen2Config", GROUPED, 0),
    "qwen3": ("text", "Qwen3ForCausalLM", "Qwen3Config", GROUPED | {"head_dim": 16}, 0),
    "mistral": ("text", "MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 8}, 0),
    "gemma2": ("text", "Gemma2ForCausalLM", "Gemma2Config",
               GROUPED | {"head_dim": 16, "sliding_window": 8}, 0),
    "phi": ("text", "PhiForCausalLM", "PhiConfig", GROUPED, 0),
    "vit": ("image", "ViTModel", "ViTConfig", HALF | {"image_size": 32, "patch_size": 8}, 32),
    "dinov2": ("image", "Dinov2Model", "Dinov2Config", HALF | {"image_size": 28, "patch_size": 7}, 28),
    "swin": ("image", "SwinModel", "SwinConfig",
             {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "image_size": 32,
              "window_size": 4}, 32),
    "convnext": ("image", "ConvNextModel", "ConvNextConfig",
                 {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1], "image_size": 64}, 64),
    "segformer": ("image", "SegformerModel", "SegformerConfig",
                  {"hidden_sizes": [16, 32], "depths": [1, 1], "num_attention_heads": [1, 2],
                   "strides": [4, 2], "num_encoder_blocks": 2, "sr_ratios": [2, 1], "patch_sizes": [7, 3],
                   "mlp_ratios": [2, 2]}, 64),
    "resnet": ("image", "ResNetModel", "ResNetConfig",
               {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}, 32),
    "whisper_encoder": ("sound", "WhisperModel", "WhisperConfig",
                        {"d_model": 64, "encoder_layers": 2, "decoder_layers": 1,
                         "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
                         "decoder_ffn_dim": 128, "vocab_size": WORDS, "max_source_positions": 20,
                         "num_mel_bins": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
                         "decoder_start_token_id": 1,
                         "attn_implementation": "eager"}, 0),
    "wav2vec2": ("wave", "Wav2Vec2Model", "Wav2Vec2Config",
                 HALF | {"conv_dim": [16, 16], "conv_stride": [5, 4], "conv_kernel": [10, 8],
                         "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 16,
                         "num_conv_pos_embedding_groups": 2}, 0),
}  # fmt: skip


def arrays_of(kind: str, side: int, batch: int, length: int) -> list[np.ndarray]:
    """What a model takes; the mask of a text leaves out the first one's end."""
    rng = np.random.default_rng(100 * batch + length)
    if kind == "text":
        mask = np.ones((batch, length), np.int64)
        mask[0, length - length // 3 :] = 0
        return [rng.integers(3, WORDS, (batch, length)), mask]
    shape = {"image": (3, side, side), "sound": (16, 40), "wave": (400 + 40 * length,)}[kind]
    return [rng.standard_normal((batch, *shape)).astype(np.float32)]


# ---- in the process of one model ---------------------------------------------------------------------------
def written(name: str, exporter: str, path: Path) -> list[np.ndarray]:
    """Have PyTorch write a model; the arrays that it was written with."""
    import torch
    import transformers

    kind, model, config, options, side = MODELS[name]
    torch.manual_seed(0)
    inner = getattr(transformers, model)(getattr(transformers, config)(**options)).eval()
    inner = inner.encoder if kind == "sound" else inner

    class One(torch.nn.Module):
        """Of what it returns the first alone."""

        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, *given):
            if kind == "text":
                return self.inner(input_ids=given[0], attention_mask=given[1])[0]
            return self.inner(*given)[0]

    example = arrays_of(kind, side, 2, 9)
    names = ["ids", "mask"][: len(example)]
    has_length = kind in ("text", "wave")
    if exporter == "dynamo":
        batch, length = torch.export.Dim("batch", min=1, max=64), torch.export.Dim("length", min=2, max=4000)
        sizes = {0: batch, 1: length} if has_length else {0: batch}
        options = {"dynamo": True, "dynamic_shapes": (tuple(sizes for _ in example),)}
    else:
        sizes = {0: "batch", 1: "length"} if has_length else {0: "batch"}
        options = {"dynamo": False, "dynamic_axes": dict.fromkeys(names, sizes)}
    given = tuple(map(torch.tensor, example))
    torch.onnx.export(One().eval(), given, path, input_names=names, output_names=["y"], **options)
    return example


def tried(name: str, exporter: str, folder: Path) -> Iterator[str]:
    """The cells of a row, as they are found."""
    import onnxruntime

    import lamina
    import lamina.onnx

    kind, _, _, _, side = MODELS[name]
    path = folder / "model.onnx"
    try:
        example = written(name, exporter, path)
    except Exception as error:
        yield f"PyTorch's exporter fails: {type(error).__name__}"
        return

    def runtime(path: Path) -> Callable[[list[np.ndarray]], np.ndarray]:
        session = onnxruntime.InferenceSession(path)
        names = [each.name for each in session.get_inputs()]
        return lambda given: session.run(None, dict(zip(names, given, strict=True)))[0]

    def on_tensors(function: Callable) -> Callable[[list[np.ndarray]], np.ndarray]:
        def run(given: list[np.ndarray]) -> np.ndarray:
            found = function(*map(lamina.tensor, given))
            return np.asarray((found[0] if isinstance(found, (tuple, list)) else found).detach())

        return run

    given = [arrays_of(kind, side, *shape) for shape in SHAPES]
    wanted = [*map(runtime(path), given)]

    def distance(run: Callable[[list[np.ndarray]], np.ndarray]) -> str:
        pairs = [(run(arrays), want) for arrays, want in zip(given, wanted, strict=True)]
        return f"{max(np.abs(found - want).max() / np.abs(want).max() for found, want in pairs):.0e}"

    model = lamina.onnx.load(path).eval().requires_grad_(False)
    yield distance(on_tensors(model))
    traced, start = lamina.jit.trace(model, budget=None), time.perf_counter()
    found = distance(on_tensors(traced))
    yield f"{found}, {traced.counts()['recorded']} recordings, {time.perf_counter() - start:.1f} s"
    sizes = {0: ("batch", 1, 64)} | {"text": {1: ("length", 2, 64)}, "wave": {1: ("length", 200, 4000)}}.get(
        kind, {}
    )
    dynamic = dict.fromkeys(range(len(example)), sizes)
    for suffix in ("lam", "onnx"):
        made = folder / f"made.{suffix}"
        levels = {"levels": ["x86-64-v3"]} if suffix == "lam" else {}
        try:
            lamina.jit.export(model, made, *map(lamina.tensor, example), dynamic=dynamic, **levels)
            yield distance(on_tensors(lamina.jit.load(made)) if suffix == "lam" else runtime(made))
        except lamina.LaminaError as error:
            yield " ".join(str(error).split())[:200]


# ---- in the process that was started -----------------------------------------------------------------------
def row(name: str, exporter: str) -> list[str]:
    """The cells of a row, by a process of its own."""
    command = [sys.executable, __file__, "--row", name, exporter]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    cells = [line.removeprefix("cell ") for line in done.stdout.splitlines() if line.startswith("cell ")]
    return cells if not done.returncode else [*cells, (done.stderr.strip().splitlines() or ["it ended"])[-1]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--write", action="store_true", help="write benchmarks/results/imported.md")
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    if args.row:
        with tempfile.TemporaryDirectory() as folder:
            for cell in tried(*args.row, Path(folder)):
                print(f"cell {cell}", flush=True)
        return
    lines = [
        f"Hugging Face's architectures by PyTorch's exporters into Lamina and out, {date.today()}: the",
        "largest difference from ONNX Runtime over the largest number, at seven sizes",
        "(`python benchmarks/imported.py`).",
        "",
        "| model | exporter | eager | traced | .lam | .onnx |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    print("\n".join(lines), flush=True)
    for name in args.only:
        for exporter in EXPORTERS:
            lines.append(f"| {name} | {exporter} | {' | '.join(row(name, exporter))} |")
            print(lines[-1], flush=True)
    if args.write:
        (RESULTS / "imported.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
