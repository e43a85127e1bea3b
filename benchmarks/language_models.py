"""Language models of checkpoints, by `lamina.language`: tokens a second, and their share of the bandwidth.

    python benchmarks/language_models.py [--threads 1 2] [--tokens 60] [--only float32 int4] [--write]

A checkpoint of the sizes of Qwen2.5-0.5B (24 layers of 896, 14 heads, 2 of keys, 4864 within, 151,936 words,
tied), of random numbers, is written to a temporary folder and loaded in each form, in a process of its own.
load: seconds of `load`, with imports done.  first: from there to the first token, recording and compiling
included.  later: from the start of a later process to its first token, imports and `load` included; the least
of three.  token: milliseconds of one more, at best and in the median, at 64 places and more.  read: GB of
weights that a token needs, once, as the form keeps them.  share: that over the median time, of the median
bandwidth (GB/s) between the tokens: 256 MiB read on as many threads.  prompt: tokens a second of 512
together.  held: GB that the process had at most.

language_peers.py measures the same beside llama.cpp, OpenVINO GenAI and PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, time

import numpy as np
from contest import RESULTS, where

QWEN = {
    "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 896, "num_hidden_layers": 24,
    "intermediate_size": 4864, "num_attention_heads": 14, "num_key_value_heads": 2,
    "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": True,
    "hidden_act": "silu",
}  # fmt: skip
FORMS = {  # the arguments of `load`, and the bytes of one weight with its share of the scales
    "float32": ({"dtype": "float32"}, 4.0),
    "bfloat16": ({"dtype": "bfloat16"}, 2.0),
    "int8": ({"weights": "int8"}, 1.0),
    "int4": ({"weights": "int4"}, 0.5 + 4 / 64),
    "int8 a8": ({"weights": "int8", "activations": "int8"}, 1.0),
    "int4 a8": ({"weights": "int4", "activations": "int8"}, 0.5 + 4 / 64),
}
PROMPT = 512
BLOCK = 32  # numbers that GGUF quantises together


def numbers_of(period: np.ndarray, name: str, shape: tuple[int, ...], block: int = BLOCK) -> np.ndarray:
    """A weight of numbers that repeat, from another place on for each name: of two equal ones a runtime may
    multiply with one alone.  block: elements of the period that GGUF quantises together."""
    return np.resize(np.roll(period, zlib.crc32(name.encode()) * block), shape)


def written(folder: Path) -> None:
    """Write the checkpoint: bfloat16, of numbers that repeat, with a vocabulary of single bytes."""
    import ml_dtypes
    import tokenizers
    from safetensors.numpy import save_file

    from lamina.language.decoder_network import Decoder
    from lamina.language.families import family_of
    from lamina.language.untrusted import Fields

    (folder / "config.json").write_text(json.dumps(QWEN))
    numbers = np.random.default_rng(0).standard_normal(1 << 20, dtype=np.float32) * 0.02
    network = Decoder(family_of(Fields(QWEN, "config.json"))[1])
    arrays = {
        f"model.{name}": numbers_of(numbers, f"model.{name}", tuple(p.shape)).astype(ml_dtypes.bfloat16)
        for name, p in network.named_parameters()
    }
    save_file(arrays, folder / "model.safetensors")
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = tokenizers.Tokenizer(
        tokenizers.models.BPE({letter: at for at, letter in enumerate(alphabet)}, [])
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    words.decoder = tokenizers.decoders.ByteLevel()
    words.save(str(folder / "tokenizer.json"))


def reader(threads: int) -> Callable[[], float]:
    """What measures the bytes a second that so many threads read."""
    parts = np.ones((threads, (256 << 20) // threads // 8), np.int64)
    pool = ThreadPoolExecutor(threads)

    def bandwidth() -> float:
        start = perf_counter()
        list(pool.map(np.max, parts))
        return parts.nbytes / (perf_counter() - start)

    return bandwidth


def started(folder: str, form: str, threads: int, tokens: int) -> str:
    """Seconds of `load`, and until the first token; and when that came."""
    import lamina

    lamina.set_num_threads(threads)
    start = perf_counter()
    model = lamina.language.load(folder, **FORMS[form][0])
    loaded = perf_counter()
    model._logits([5] * 64, 0, model.cache())
    return f"{loaded - start:7.2f} {perf_counter() - loaded:7.2f} {time():.2f}"


def measured(folder: str, form: str, threads: int, tokens: int) -> str:
    """What is told of further tokens, in the process of one form."""
    import lamina
    from lamina.language.decoder_network import Decoder

    lamina.set_num_threads(threads)
    bandwidth, reads = reader(threads), list[float]()
    model = lamina.language.load(folder, **FORMS[form][0])
    cache, times = model.cache(), list[float]()

    def seconds(count: int, at: int) -> float:
        """Of so many tokens through the network: what `generate` does, but for the choice of the next."""
        start = perf_counter()
        model._logits([5] * count, at, cache)
        return perf_counter() - start

    seconds(64, 0)
    for at in range(64, 68 + tokens):
        reads.append(bandwidth())
        times.append(seconds(1, at))
    times = times[4:]
    as_it_came = Decoder(model.network.config).parameters()  # of a tied head the words are the weights
    needed = sum(p.numel() for p in as_it_came if p.ndim == 2) * FORMS[form][1]
    prefill = [seconds(PROMPT, 0) for _ in range(3)]
    memory, usual = statistics.median(reads), statistics.median(times)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return (
        f"{min(times) * 1e3:8.1f} {usual * 1e3:8.1f} {needed / 1e9:6.2f} "
        f"{needed / usual / memory:6.2f} {memory / 1e9:6.1f} {PROMPT / min(prefill):8.0f} {held:7.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--only", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--row", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        what, folder, form, threads, tokens = options.row
        print({"started": started, "measured": measured}[what](folder, form, int(threads), int(tokens)))
        return
    head = (
        f"{'weights':9s} {'threads':>7s} {'load s':>7s} {'first s':>7s} {'later s':>7s} {'token ms':>8s} "
        f"{'median':>8s} {'read':>6s} {'share':>6s} {'GB/s':>6s} {'prompt/s':>8s} {'GB held':>7s}"
    )
    lines = [where(max(options.threads)), "", head]
    print("\n".join(lines), flush=True)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        written(Path(folder))
        for threads in options.threads:
            for form in options.only:

                def told(what: str, form: str = form, threads: int = threads) -> str:
                    row = [sys.executable, __file__, "--row", what, folder, form, str(threads)]
                    env = {**os.environ, "LAMINA_CACHE_DIR": f"{cache}/{form}{threads}"}
                    return subprocess.run(
                        [*row, str(options.tokens)], env=env, capture_output=True, text=True, check=True
                    ).stdout.rstrip()

                first, _, _ = told("started").rpartition(" ")
                starts = (time() for _ in range(3))
                later = min(float(told("started").split()[-1]) - start for start in starts)
                lines.append(f"{form:9s} {threads:7d} {first} {later:7.2f} {told('measured')}")
                print(lines[-1], flush=True)
    if options.write:
        (RESULTS / "language_models.txt").write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
