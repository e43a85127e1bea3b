"""Language models beside llama.cpp, OpenVINO GenAI and PyTorch with transformers, in one run.

    python benchmarks/language_peers.py [--threads 1 2] [--only bfloat16 int4] [--seconds 12] [--write]

The checkpoint of random numbers of language_models.py, which has the sizes of Qwen2.5-0.5B, is written as
safetensors and, the same numbers, as GGUF of F32, F16, BF16, Q8_0 and Q4_0.  Each runtime is a process of
its own, as it would be; those with weights of about as many bits are loaded together and asked in turn.  What
is not installed is said to be missing.

prompt: tokens a second of 128 and of 512 together, at best of all rounds.  token: milliseconds of one more
behind 64, in the mean of a round, at best.  x prompt, x token: speed over the best peer's, of prompts of 512
and of tokens; below 1 Lamina is behind.  start: seconds until it can be asked.  held: GB that the process had
at most.  OpenVINO reads 16 bits from F16 and computes as it is told; its times are those that it tells,
choosing included.  a8: activations are rounded to bytes too, as llama.cpp and OpenVINO do with weights of 8
and 4 bits.

What they are compared with, into the environment of Lamina:

    pip install torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu
    pip install transformers openvino-genai
    CMAKE_ARGS="-DGGML_NATIVE=ON" pip install --no-binary llama-cpp-python llama-cpp-python

The last compiles llama.cpp for this machine's instructions, with cmake and gcc.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from contest import RESULTS, where
from language_models import BLOCK, FORMS, QWEN, numbers_of, written

LENGTHS, BEHIND = (128, 512), 64
# By the form of Lamina's weights: those who compute with about as many bits, and what they are told.
GROUPS: dict[str, tuple[tuple[str, str], ...]] = {
    "float32": (("lamina", "float32"), ("llama.cpp", "F32"), ("openvino", "F16 f32"), ("torch", "float32")),
    "bfloat16": (
        ("lamina", "bfloat16"), ("llama.cpp", "BF16"), ("openvino", "F16 bf16"), ("torch", "bfloat16"),
    ),
    "int8": (
        ("lamina", "int8 a8"), ("lamina", "int8"), ("llama.cpp", "Q8_0"), ("openvino", "Q8_0 bf16"),
    ),
    "int4": (
        ("lamina", "int4 a8"), ("lamina", "int4"), ("llama.cpp", "Q4_0"), ("openvino", "Q4_0 bf16"),
    ),
}  # fmt: skip
FILE_TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 7, "BF16": 32}  # llama.cpp's numbers
MODULES = {
    "lamina": "lamina",
    "llama.cpp": "llama_cpp",
    "openvino": "openvino_genai",
    "torch": "transformers",
}
NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.layers": "blk",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


# ---- files
def write_gguf(folder: Path, kind: str) -> Path:
    """The checkpoint's weights as a GGUF file.  As its numbers repeat, a period of them is quantised once."""
    import gguf
    import ml_dtypes
    from safetensors import safe_open

    path = folder / f"{kind}.gguf"
    if path.exists():
        return path
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(QWEN["max_position_embeddings"])
    writer.add_embedding_length(QWEN["hidden_size"])
    writer.add_block_count(QWEN["num_hidden_layers"])
    writer.add_feed_forward_length(QWEN["intermediate_size"])
    writer.add_head_count(QWEN["num_attention_heads"])
    writer.add_head_count_kv(QWEN["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(QWEN["rms_norm_eps"])
    writer.add_rope_freq_base(QWEN["rope_theta"])
    own = list(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"])
    own += ["ab", "<|endoftext|>"]
    words = own + [f"[PAD{n}]" for n in range(QWEN["vocab_size"] - len(own))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(words)
    writer.add_token_types([1] * (len(own) - 1) + [3] + [5] * (len(words) - len(own)))
    writer.add_token_merges(["a b"])
    writer.add_file_type(FILE_TYPES[kind])
    for add in (writer.add_eos_token_id, writer.add_bos_token_id, writer.add_pad_token_id):
        add(len(own) - 1)
    writer.add_chat_template("{{ messages[0].content }}")  # that, the tokens and the type OpenVINO asks for
    wanted = gguf.GGMLQuantizationType[kind]
    numbers = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32) * 0.02
    with safe_open(folder / "model.safetensors", "np") as file:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}
    numbers = numbers.astype(ml_dtypes.bfloat16).astype(np.float32)
    blocks = gguf.quants.quantize(numbers, wanted).view(np.uint8).reshape(numbers.size // BLOCK, -1)
    for name, shape in shapes.items():
        theirs = name
        for ours, short in NAMES.items():
            theirs = theirs.replace(ours, short)
        if len(shape) == 1:
            writer.add_tensor(theirs, numbers_of(numbers, name, shape))
            continue
        made = numbers_of(np.arange(len(blocks)), name, (shape[0], shape[1] // BLOCK), block=1)
        writer.add_tensor(theirs, blocks[made].reshape(shape[0], -1), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# ---- runtimes: each makes a function of (tokens of a prompt, how many more) -> seconds of both
Ask = Callable[[Sequence[int], int], tuple[float, float]]


def timed(first: Callable[[], Any], more: Callable[[int], Any], count: int) -> tuple[float, float]:
    """Seconds of a prompt, and of each token behind it."""
    start = perf_counter()
    first()
    middle = perf_counter()
    for at in range(count):
        more(at)
    return middle - start, (perf_counter() - middle) / max(count, 1)


def of_lamina(folder: Path, told: str, threads: int) -> Ask:
    import lamina

    lamina.set_num_threads(threads)
    model = lamina.language.load(folder, **FORMS[told][0])
    cache = model.cache()

    def ask(tokens: Sequence[int], count: int) -> tuple[float, float]:
        """What `generate` does, but for the choice of the next."""
        size = len(tokens)
        return timed(
            lambda: model._logits(tokens, 0, cache), lambda at: model._logits([5], size + at, cache), count
        )

    return ask


def of_llama_cpp(folder: Path, told: str, threads: int) -> Ask:
    import llama_cpp

    model = llama_cpp.Llama(
        str(folder / f"{told}.gguf"), n_ctx=1024, n_batch=512, n_threads=threads, n_threads_batch=threads,
        verbose=False,
    )  # fmt: skip

    def ask(tokens: Sequence[int], count: int) -> tuple[float, float]:
        def run(part: Sequence[int]) -> None:
            model.eval(part)
            llama_cpp.llama_synchronize(model.ctx)

        model.reset()
        return timed(lambda: run(tokens), lambda at: run([5]), count)

    return ask


def of_openvino(folder: Path, told: str, threads: int) -> Ask:
    import openvino
    import openvino_genai

    kind, precision = told.split()
    model = openvino_genai.LLMPipeline(
        str(folder / f"{kind}.gguf"), "CPU", INFERENCE_NUM_THREADS=threads, INFERENCE_PRECISION_HINT=precision
    )

    def ask(tokens: Sequence[int], count: int) -> tuple[float, float]:
        how = openvino_genai.GenerationConfig(max_new_tokens=count + 1, ignore_eos=True, do_sample=False)
        told = model.generate(openvino.Tensor(np.array([tokens], np.int64)), how).perf_metrics
        return told.get_ttft().mean / 1e3, told.get_tpot().mean / 1e3 if count else 0.0

    return ask


def of_torch(folder: Path, told: str, threads: int) -> Ask:
    # No pictures here, and a torchvision of another torch can't be imported.
    found = importlib.util.find_spec
    hidden = lambda name, package=None: None if name == "torchvision" else found(name, package)  # noqa: E731
    importlib.util.find_spec = hidden

    import torch
    import transformers

    torch.set_num_threads(threads)
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, told)).eval()
    kept: dict[str, Any] = {}

    @torch.inference_mode()
    def run(tokens: Sequence[int]) -> None:
        kept["cache"] = model(
            torch.tensor([tokens]), past_key_values=kept["cache"], use_cache=True, logits_to_keep=1
        ).past_key_values

    def ask(tokens: Sequence[int], count: int) -> tuple[float, float]:
        kept["cache"] = None
        return timed(lambda: run(tokens), lambda at: run([5]), count)

    return ask


RUNTIMES = {"lamina": of_lamina, "llama.cpp": of_llama_cpp, "openvino": of_openvino, "torch": of_torch}


def answer(folder: str, name: str, told: str, threads: int, tokens: int) -> None:
    """In a runtime's process: load, and measure a round for each line that comes."""
    if threads == 1:
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    start = perf_counter()
    ask = RUNTIMES[name](Path(folder), told, threads)
    rng = np.random.default_rng(0)
    # Numbers that nobody has seen: OpenVINO remembers prompts.
    drawn: Callable[[int], list[int]] = lambda count: rng.integers(0, 256, count).tolist()  # noqa: E731
    ask(drawn(BEHIND), 2)
    print(json.dumps({"start": perf_counter() - start}), flush=True)
    for _ in sys.stdin:
        prompts = [length / ask(drawn(length), 0)[0] for length in LENGTHS]
        token = ask(drawn(BEHIND), tokens)[1]
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(json.dumps({"prompts": prompts, "token": token, "held": held}), flush=True)


# ---- the run
class Row(NamedTuple):
    """What a runtime reached.  prompts: tokens a second, by length; token, start: seconds; held: GB."""

    prompts: list[float]
    token: float
    start: float
    held: float


class Runtime:
    """A runtime's process."""

    def __init__(self, command: Sequence[str], env: dict[str, str]):
        self.complaints = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.complaints, text=True
        )
        self.start, self.rounds = 0.0, list[dict[str, Any]]()

    def told(self) -> dict[str, Any]:
        """The next line that it says.  Exits with what it complained of where it ended."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        self.complaints.seek(0)
        sys.exit(f"{self.process.args} ended:\n{self.complaints.read()[-2000:]}")

    def round(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.rounds.append(self.told())

    def row(self) -> Row:
        prompts = [max(each) for each in zip(*(told["prompts"] for told in self.rounds))]
        token = min(told["token"] for told in self.rounds)
        return Row(prompts, token, self.start, max(told["held"] for told in self.rounds))

    def __enter__(self) -> Runtime:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        self.complaints.close()


def measured(
    folder: Path, form: str, threads: int, options: argparse.Namespace
) -> dict[tuple[str, str], Row]:
    """The runtimes of a group, asked in turn, by name and what they are told."""
    env = {**os.environ, "LAMINA_CACHE_DIR": str(folder / "cache")}
    with ExitStack() as stack:
        runtimes = {}
        for name, told in GROUPS[form]:
            if importlib.util.find_spec(MODULES[name]) is None:
                continue
            command = [sys.executable, __file__, "--here", str(folder), name, told, str(threads)]
            runtime = Runtime([*command, "--tokens", str(options.tokens)], env)
            runtimes[name, told] = stack.enter_context(runtime)
            runtime.start = runtime.told()["start"]
        until = perf_counter() + options.seconds
        while perf_counter() < until or len(runtime.rounds) < 2:
            for runtime in runtimes.values():
                runtime.round()
        return {name: runtime.row() for name, runtime in runtimes.items()}


def lines_of(form: str, threads: int, rows: dict[tuple[str, str], Row]) -> Iterator[str]:
    """The table's lines of a group."""
    peers = [row for (name, _), row in rows.items() if name != "lamina"]
    for name, told in GROUPS[form]:
        start = f"{form:9s} {threads:7d} {name:10s} {told:9s}"
        if (name, told) not in rows:
            yield f"{start} missing: not installed"
            continue
        row, against = rows[name, told], ""
        if name == "lamina" and peers:
            prompt = row.prompts[-1] / max(peer.prompts[-1] for peer in peers)
            against = f" {prompt:8.2f} {min(peer.token for peer in peers) / row.token:8.2f}"
        yield (
            f"{start} {row.prompts[0]:10.0f} {row.prompts[1]:10.0f} {row.token * 1e3:8.1f} "
            f"{1 / row.token:8.1f} {row.start:7.1f} {row.held:6.2f}{against}"
        )


def versions() -> Iterator[str]:
    """The peers' that are installed."""
    for package in ("transformers", "llama-cpp-python", "openvino-genai"):
        with suppress(PackageNotFoundError):
            yield f"{package} {version(package)}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--seconds", type=float, default=12.0, help="of rounds, for each group; two at least")
    parser.add_argument("--tokens", type=int, default=12, help="behind a prompt, in a round")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--here", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        folder, name, told, threads = options.here
        answer(folder, name, told, int(threads), options.tokens)
        return
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    say(", ".join([where(max(options.threads)), *versions()]))
    say(
        f"\n{'weights':9s} {'threads':>7s} {'runtime':10s} {'reads':9s} {'prompt 128':>10s} "
        f"{'prompt 512':>10s} {'token ms':>8s} {'token/s':>8s} {'start s':>7s} "
        f"{'held':>6s} {'x prompt':>8s} {'x token':>8s}"
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        written(folder)
        for form in options.only:
            for name, told in GROUPS[form]:
                if name in ("llama.cpp", "openvino") and importlib.util.find_spec(MODULES[name]) is not None:
                    write_gguf(folder, told.split()[0])
        for threads in options.threads:
            for form in options.only:
                for line in lines_of(form, threads, measured(folder, form, threads, options)):
                    say(line)
    if options.write:
        (RESULTS / "language_peers.txt").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
