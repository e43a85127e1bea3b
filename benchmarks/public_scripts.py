"""PyTorch's public examples, minGPT and nanoGPT, as they are published, run by `python -m lamina run`.

    git clone https://github.com/pytorch/examples
    git clone https://github.com/karpathy/minGPT
    git clone https://github.com/karpathy/nanoGPT
    python benchmarks/public_scripts.py FOLDER_OF_THE_THREE [--only vae gcn] [--workers 2] [--write]

No file of theirs is changed.  What they would download is made here and put where they look for it:
scikit-learn's handwritten digits as MNIST, its two photographs as BSDS300 and ImageNet, a generated graph as
Cora (through a module `requests` that answers with it), a book as Shakespeare.  What a script prints last,
and how long it took, is told.  They need six, tqdm, requests, tiktoken, matplotlib and
gymnasium[classic-control] beside what lamina[demo,vision] installs.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

RESULTS = Path(__file__).parent / "results"
BOOK = Path(__file__).parents[1] / "examples" / "text"
LONGEST = 900  # seconds for one command


# ---- what they would download ------------------------------------------------------------------------------
def _idx(place: Path, values: np.ndarray) -> None:
    """A file of MNIST's format: magic number, sizes, bytes."""
    head = np.array([0x800 + values.ndim, *values.shape], ">i4").tobytes()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(gzip.compress(head + values.astype(np.uint8).tobytes()))


def digits(folder: Path) -> None:
    """MNIST of 1,500 and 297 digits, enlarged from 8 x 8, where its readers look: ../data and ./data."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = np.pad(np.kron(found.images * 15, np.ones((3, 3))), ((0, 0), (2, 2), (2, 2)))
    for root in (folder.parent / "data", folder / "data"):
        for name, part in (("train", slice(1500)), ("t10k", slice(1500, None))):
            _idx(root / f"MNIST/raw/{name}-images-idx3-ubyte.gz", images[part])
            _idx(root / f"MNIST/raw/{name}-labels-idx1-ubyte.gz", found.target[part])


def photographs(folder: Path) -> None:
    """Crops of two photographs as BSDS300, and as an ImageNet of two classes."""
    from PIL import Image
    from sklearn.datasets import load_sample_images

    for label, image in enumerate(load_sample_images().images):
        for number in range(8):
            crop = Image.fromarray(image[20 * number : 20 * number + 270, 30 * number : 30 * number + 320])
            for part in (f"dataset/BSDS300/images/{'test' if number == 7 else 'train'}",
                         f"imagenet/{'val' if number == 7 else 'train'}/{label}"):  # fmt: skip
                (folder / part).mkdir(parents=True, exist_ok=True)
                crop.save(folder / part / f"{label}{number}.jpg")


_REQUESTS = '''"""Stands for requests: whatever is asked for, the archive beside it."""
from pathlib import Path


class get:
    def __init__(self, *_, **__):
        self.raw = open(Path(__file__).with_name("cora.tgz"), "rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.raw.close()
'''


def graph(folder: Path) -> None:
    """A graph of Cora's size and form: 2,708 papers of 7 topics, which cite their own topic mostly."""
    rng = np.random.default_rng(0)
    papers, topics, words = 2708, 7, 1433
    topic = rng.integers(topics, size=papers)
    likes = rng.random((topics, words)) < 0.03
    has = rng.random((papers, words)) < np.where(likes[topic], 0.12, 0.008)
    names = [f"Topic{t}" for t in topic]
    said = ["\t".join("01"[int(w)] for w in row) for row in has]
    lines = [f"{1000 + i}\t{said[i]}\t{name}" for i, name in enumerate(names)]
    ends = rng.integers(papers, size=(40_000, 2))
    kept = ends[(topic[ends[:, 0]] == topic[ends[:, 1]]) | (rng.random(40_000) < 0.03)][:5429]
    cites = "".join(f"{1000 + a}\t{1000 + b}\n" for a, b in kept)
    (folder / "made").mkdir()
    (folder / "made/cora.content").write_text("\n".join(lines) + "\n")
    (folder / "made/cora.cites").write_text(cites)
    with tarfile.open(folder / "cora.tgz", "w:gz") as archive:
        archive.add(folder / "made", "cora")
    (folder / "requests.py").write_text(_REQUESTS)


def wikitext(folder: Path) -> None:
    """The checkout's own text to learn from, where the longest of its three files is not stored."""
    place = folder / "data/wikitext-2"
    if not (place / "train.txt").exists():
        shutil.copy(place / "valid.txt", place / "train.txt")


def book(folder: Path) -> None:
    """The examples' book, as input.txt."""
    text = next(BOOK.glob("*.txt")).read_text()
    for place in (folder, folder / "data/shakespeare_char", folder / "projects/chargpt"):
        if place.exists():
            (place / "input.txt").write_text(text)


# ---- the scripts -------------------------------------------------------------------------------------------
class Script(NamedTuple):
    folder: str  # below the folder of checkouts
    commands: list[str]  # after `python -m lamina run`
    prepare: Callable[[Path], None] | None = None


def _models(*kinds: str) -> list[str]:
    small = "main.py --epochs 1 --dry-run --emsize 32 --nhid 32"
    train = [f"{small} --save {kind}.pt --model {kind}" for kind in kinds]
    words = [f"generate.py --checkpoint {kind}.pt --words 20" for kind in kinds]
    return [command for pair in zip(train, words, strict=True) for command in pair]


_SMALL = (
    "--device=cpu --eval_iters=5 --eval_interval=30 --block_size=64 --batch_size=12 "
    "--n_layer=4 --n_head=4 --n_embd=64"
)
SCRIPTS = {
    "mnist": Script("examples/mnist", ["main.py --epochs 2 --log-interval 5 --save-model"], digits),
    "mnist_rnn": Script("examples/mnist_rnn", ["main.py --epochs 2 --log-interval 5"], digits),
    "mnist_forward_forward": Script(
        "examples/mnist_forward_forward", ["main.py --epochs 20 --train_size 1500 --test_size 297"], digits
    ),
    "mnist_hogwild": Script("examples/mnist_hogwild", ["main.py --epochs 1 --num-processes 2"], digits),
    "siamese_network": Script("examples/siamese_network", ["main.py --epochs 1 --log-interval 5"], digits),
    "vae": Script("examples/vae", ["main.py --epochs 2"], digits),
    "dcgan": Script("examples/dcgan", ["main.py --dataset fake --dry-run --workers 0 --ngf 16 --ndf 16"]),
    "regression": Script("examples/regression", ["main.py"]),
    "word_language_model": Script(
        "examples/word_language_model",
        _models("RNN_TANH", "RNN_RELU", "LSTM", "GRU", "Transformer"),
        wikitext,
    ),
    "time_sequence_prediction": Script(
        "examples/time_sequence_prediction", ["generate_sine_wave.py", "train.py --steps 2"]
    ),
    "reinforcement_learning": Script(
        "examples/reinforcement_learning",
        ["reinforce.py --log-interval 50", "actor_critic.py --log-interval 50"],
    ),
    "super_resolution": Script(
        "examples/super_resolution",
        [
            "main.py --upscale_factor 3 --batchSize 4 --testBatchSize 2 --nEpochs 2 --lr 0.001 --threads 0",
            "super_resolve.py --input_image dataset/BSDS300/images/test/07.jpg --model model_epoch_1.pth "
            "--output_filename out.png",
        ],
        photographs,
    ),
    "imagenet": Script("examples/imagenet", ["main.py --epochs 1 -b 4 -j 0 -p 1 imagenet"], photographs),
    "gcn": Script("examples/gcn", ["main.py --epochs 20"], graph),
    "gat": Script("examples/gat", ["main.py --epochs 20 --hidden-dim 16 --num-heads 4"], graph),
    "fx": Script(
        "examples/fx",
        [
            "invert.py", "replace_op.py", "subgraph_rewriter_basic_use.py", "module_tracer.py",
            "custom_tracer.py", "primitive_library.py", "proxy_based_graph_creation.py",
            "wrap_output_dynamically.py",
        ],
    ),
    "minGPT adder": Script(
        "minGPT", ["projects/adder/adder.py --trainer.max_iters=60 --trainer.num_workers=0"]
    ),
    "minGPT chargpt": Script(
        "minGPT",
        [
            "projects/chargpt/chargpt.py --trainer.max_iters=12 --trainer.batch_size=4 "
            "--trainer.num_workers=0 --model.model_type=gpt-micro"
        ],
        book,
    ),
    "nanoGPT": Script(
        "nanoGPT",
        [
            "data/shakespeare_char/prepare.py",
            f"train.py config/train_shakespeare_char.py {_SMALL} --compile=False --max_iters=60",
            f"train.py config/train_shakespeare_char.py {_SMALL} --compile=True --max_iters=60",
            "sample.py --out_dir=out-shakespeare-char --device=cpu --dtype=float32 --num_samples=1 "
            "--max_new_tokens=100",
        ],
        book,
    ),
}  # fmt: skip


def run(script: Script, checkouts: Path) -> tuple[bool, list[str]]:
    """Whether all commands ended well, and a line for each."""
    told, good = [], True
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "work" / script.folder
        shutil.copytree(checkouts / script.folder, folder, ignore=shutil.ignore_patterns(".git"))
        if script.prepare is not None:
            script.prepare(folder)
        paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        outside = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "MPLBACKEND": "agg"}
        for command in script.commands:
            begun = time.perf_counter()
            try:
                ended = subprocess.run(
                    [sys.executable, "-m", "lamina", "run", *command.split()],
                    cwd=folder, env=outside, text=True, timeout=LONGEST,
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                )  # fmt: skip
                code, output = ended.returncode, ended.stdout
            except subprocess.TimeoutExpired as late:
                code, output = 124, (late.stdout or b"").decode()
            seconds = time.perf_counter() - begun
            lines = [line.strip() for line in re.split(r"[\n\r]", output) if line.strip(" -=|")] or [""]
            good = good and code == 0
            if code:
                print("\n".join(lines[-25:]), file=sys.stderr)
            last = lines[-1].replace("|", "/")
            last = last if len(last) <= 90 else f"{last[:89]}…"
            told.append(f"`{command}` | {f'{seconds:.0f} s' if code == 0 else f'exit {code}'} | {last}")
            print(told[-1], flush=True)
    return good, told


def main() -> None:
    """Print what each ends with, and with --write put the table into results/public_scripts.md."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("--only", nargs="+", choices=list(SCRIPTS))
    parser.add_argument("--workers", type=int, default=1, help="scripts that run at a time")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    names = options.only or list(SCRIPTS)
    served, lines = 0, ["| script | command | time | prints last |", "|---|---|--:|---|"]
    with ThreadPoolExecutor(options.workers) as pool:
        ended = list(pool.map(lambda name: run(SCRIPTS[name], options.checkouts), names))
    for name, (good, told) in zip(names, ended, strict=True):
        served += good
        lines += [f"| {name if not n else ''} | {row} |" for n, row in enumerate(told)]
    summary = f"{served} of {len(names)} scripts ran to their end"
    print(summary)
    if options.write and not options.only:
        places = ("examples", "minGPT", "nanoGPT")
        heads = [f"{place} {_commit(options.checkouts / place)}" for place in places]
        text = [
            "# Published scripts on Lamina", "",
            f"By benchmarks/public_scripts.py; {', '.join(heads)}; gymnasium {version('gymnasium')}; "
            f"{datetime.date.today()}.", "",
            f"{summary}, unchanged, {options.workers} at a time. Data are small stand-ins for what they "
            "would download, so the figures that they print say only that they learn.", "", *lines, "",
        ]  # fmt: skip
        (RESULTS / "public_scripts.md").write_text("\n".join(text))


def _commit(checkout: Path) -> str:
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%h of %cs"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
