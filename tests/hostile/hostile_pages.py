"""Pages about files of others: exported models and ONNX models that an author changed."""

from __future__ import annotations

import json
import random
import re
import tempfile
import weakref
from pathlib import Path

import hostile_models
import hostile_onnx
from driver import Held, Kind, Wrong, kind
from model_archive import split

import lamina
from lamina.jit import ModelError

DATA = re.compile('<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
TAG = '"</script><script>hacked = 1</script><!--'


def _page_of(folder: Path, file: Path) -> str:
    """Make a page, and look at what it would have a browser do."""
    page = folder / "page.html"
    lamina.jit.show(file, page, time=False)
    text = page.read_text()
    (data,) = DATA.findall(text)
    json.loads(data)
    if text.count("<script") != 2 or "<script>hacked" in text:
        raise Wrong("a name became a part of the page")
    return "shown"


@kind("page-lam")
def pages_of_models() -> Kind:
    """A page about a file is made, or the file is refused; none of its texts is more than a text."""
    members, file = [split(data) for data in hostile_models._seeds()], Held(".lam")
    folder = tempfile.TemporaryDirectory()

    def make(rng: random.Random) -> bytes:
        parts = dict(rng.choice(members))
        if rng.random() < 0.3:  # names and places of nodes
            text = parts["graph.txt"].decode()
            words = [found.span() for found in re.finditer(r'"[^"\n]*"|%\w+', text)] or [(0, 0)]
            start, stop = rng.choice(words)
            told = json.dumps(TAG) if rng.random() < 0.8 else f"%{TAG}"
            parts["graph.txt"] = (text[:start] + told + text[stop:]).encode()
        return hostile_models._authored(rng, parts, members)

    def check(data: bytes) -> str:
        return _page_of(Path(folder.name), file.hold(data))

    check.folder = weakref.finalize(check, folder.cleanup)  # type: ignore[attr-defined]
    refusals = (ModelError, lamina.LaminaError)
    return Kind(make=make, check=check, refusals=refusals, batch=200, memory=1 << 29, share=100)


@kind("page-onnx", "onnx")
def pages_of_onnx() -> Kind:
    """The same of ONNX models, whose nodes are shown as they are and run nowhere."""
    import onnx

    file, folder = Held(".onnx"), tempfile.TemporaryDirectory()
    hostile_onnx._seeds()

    def make(rng: random.Random) -> bytes:
        data = hostile_onnx._mutated(rng)
        try:
            model = onnx.ModelProto.FromString(data)
        except Exception:  # damaged as bytes
            return data
        for node in model.graph.node[:3]:
            if rng.random() < 0.3:
                node.name, node.doc_string = TAG, TAG
        if rng.random() < 0.2:
            model.graph.name = model.producer_name = TAG
        return model.SerializeToString()

    def check(data: bytes) -> str:
        return _page_of(Path(folder.name), file.hold(data))

    check.folder = weakref.finalize(check, folder.cleanup)  # type: ignore[attr-defined]
    refusals = (lamina.LaminaError,)
    return Kind(make=make, check=check, refusals=refusals, batch=200, memory=1 << 29, seconds=20.0, share=100)
