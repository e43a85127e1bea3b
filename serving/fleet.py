"""The models that a worker serves, with what stands in front of each."""

from __future__ import annotations

from collections.abc import Sequence
from time import monotonic

from .batcher import Batcher
from .bounds import Bounds
from .refusals import Refusal, no_model
from .served_models import Served, TensorModel, TextModel
from .text_queue import TextQueue

PATIENCE = 30.0  # seconds beyond a request's, after which a run counts as one that never ends


class Fleet:
    """Models by name.  started, number: when they were loaded (Unix time), and the how manieth time."""

    def __init__(self, models: Sequence[Served], bounds: Bounds, started: int = 0, number: int = 1):
        self.models = {model.name: model for model in models}
        self.bounds, self.started, self.number = bounds, started, number
        self.batchers = {m.name: Batcher(m, bounds) for m in models if isinstance(m, TensorModel)}
        self.texts = {m.name: TextQueue(m, bounds) for m in models if isinstance(m, TextModel)}

    def tensors(self, name: str) -> TensorModel:
        """The model of arrays of this name.  Raises Refusal."""
        model = self.models.get(name)
        if isinstance(model, TextModel):
            raise Refusal(400, f"{name} is a language model: ask it at /v1/completions or /v1/embeddings")
        if model is None:
            raise no_model(name, [*self.models])
        return model

    def text(self, name: object, kind: str) -> TextQueue:
        """The language model of this name and kind, "text" or "embeddings".  Raises Refusal."""
        if not isinstance(name, str):
            raise Refusal(400, "model is the name of a model, a string", param="model")
        if name not in self.models:
            raise no_model(name, [*self.models])
        if self.models[name].kind != kind:
            word = "writes no texts" if kind == "text" else "makes no embeddings"
            raise Refusal(400, f"{name} {word}: it is of the kind {self.models[name].kind!r}", param="model")
        return self.texts[name]

    def described(self, name: str) -> dict:
        """A model as OpenAI's lists have it, with what Lamina knows of it."""
        if name not in self.models:
            raise no_model(name, [*self.models])
        about = {"id": name, "object": "model", "created": self.started, "owned_by": "lamina"}
        return about | self.models[name].described()

    def stuck(self) -> str:
        """The name of a model whose run does not end, or nothing."""
        limit = monotonic() - self.bounds.timeout - PATIENCE
        since = {name: batcher.busy_since for name, batcher in self.batchers.items()}
        since |= {name: texts.busy_since for name, texts in self.texts.items()}
        return next((name for name, begun in since.items() if begun and begun < limit), "")

    def close(self) -> None:
        for batcher in self.batchers.values():
            batcher.close()
        for texts in self.texts.values():
            texts.close()
