"""Models as the server runs them: loaded, tried, and asked whether their rows can run together.

That can't be read off a model: `x - x.mean(0)` has a batch of any size, and mixes its rows.  So each model is
run once on rows together and on each alone, and where these differ requests run one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..ir.errors import LaminaError
from ..jit import load, trace
from ..jit.lamina_model import ModelError
from ..runtime import Tensor, tensor
from ..runtime.modes import no_grad
from .batcher import REFUSED
from .bounds import Bounds
from .refusals import Refusal, ServeError
from .wire_arrays import NUMPY, SHORT, Spec

ROWS = 3  # that are tried together
# A sum of 2^16 products may round so differently in the order of another program.
TOLERANCE = 256
VERSION = "1"
LEAST_CALL_BYTES = 2 << 30


class Scored(Protocol):
    """How likely a token was, and which were the likeliest at its place: logarithms of probabilities."""

    @property
    def token(self) -> int: ...
    @property
    def logprob(self) -> float: ...
    @property
    def top(self) -> Sequence[tuple[int, float]]: ...


class Generation(Protocol):
    """A text in the making: pieces, and then why it ended, "stop" or "length".

    prompt, tokens: those that were read and that have been written.  scores: of those, where asked for.
    """

    finish: str | None
    prompt: Sequence[int]
    tokens: Sequence[int]
    scores: Sequence[Scored]

    def __iter__(self) -> Iterator[str]: ...


class LanguageModel(Protocol):
    """What the server asks of a model that writes texts: `lamina.language.load` gives such."""

    def tokens(self, text: str) -> list[int]: ...
    def text(self, tokens: Sequence[int]) -> str: ...
    def spelled(self, token: int) -> bytes: ...
    def prompt(self, messages: list[dict], **more: Any) -> str: ...
    def cache(self) -> Any: ...
    def scores(self, tokens: Sequence[int], logprobs: int, cache: Any) -> Iterator[Scored]: ...
    def generate(self, prompt: str | Sequence[int], **how: Any) -> Generation: ...


class Encoder(Protocol):
    """What the server asks of a model that turns texts into vectors.  embed: -> [texts, width]."""

    def tokens(self, text: str) -> list[int]: ...
    def embed(self, texts: Sequence[str] | Sequence[list[int]]) -> Any: ...


class TensorModel:
    """A model of arrays: checked, then run, in any thread but by one at a time.

    platform: the kind of file.  most_rows: that can be run together; None: requests run one by one, for the
    reason in `alone`.
    """

    kind = "tensors"
    most_rows: int | None = None
    alone = ""

    def __init__(self, name: str, platform: str, inputs: Sequence[Spec]):
        self.name, self.platform, self.inputs = name, platform, tuple(inputs)
        self.outputs: tuple[Spec, ...] = ()

    def check(self, arrays: Sequence[np.ndarray]) -> None:
        """Raises Refusal for arrays that a call would not take."""
        for spec, array in zip(self.inputs, arrays, strict=True):
            spec.check(array)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [array for _, array in self.named(arrays)]

    def named(self, arrays: Sequence[np.ndarray]) -> list[tuple[str, np.ndarray]]:
        """The outputs and their names."""
        raise NotImplementedError

    def described(self) -> dict:
        """What a client may want to know of it."""
        return {
            "kind": self.kind,
            "platform": self.platform,
            "inputs": [spec.described() for spec in self.inputs],
            "outputs": [spec.described() for spec in self.outputs],
            "batch": self.most_rows or 1,
        }

    def try_out(self, bounds: Bounds) -> None:
        """Run it: for what its outputs are, to have its code ready, and to see if rows are apart.

        Raises ServeError for a model that doesn't run.
        """
        try:
            short, long = (self.named(self.drawn(rows)) for rows in (2, ROWS))
        except ServeError:
            raise
        except REFUSED as error:
            raise ServeError(f"{self.name}: a first run failed: {error}") from error
        if len({name for name, _ in short}) < len(short):
            raise ServeError(f"{self.name}: two of its outputs have one name")
        for name, array in short:
            if array.dtype not in SHORT:
                raise ServeError(f"{self.name}: the output {name!r} is {array.dtype}, which is not served")
        most = self._most_rows()
        first = str(self.inputs[0].shape[0]) if most else "d0"
        self.outputs = tuple(
            Spec(name, SHORT[a.dtype], _open_shape(a.shape, b.shape, first))
            for (name, a), (_, b) in zip(short, long, strict=True)
        )
        self.alone = "" if most else "its inputs have no common first size that changes"
        if most and not self._rows_are_apart():
            most, self.alone = None, "its rows are not independent of one another"
        self.most_rows = most if most is None else min(most, bounds.batch)

    def _most_rows(self) -> int | None:
        """How many rows one call takes; None where the inputs have no common batch."""
        first = {spec.shape[0] if spec.shape else None for spec in self.inputs}
        return 1 << 40 if len(first) == 1 and isinstance(first.pop(), str) else None

    def _rows_are_apart(self) -> bool:
        """Whether rows that run together give what each gives alone."""
        arrays = self.drawn(ROWS)
        try:
            together = self.run(arrays)
            alone = [self.run([x[i : i + 1] for x in arrays]) for i in range(ROWS)]
        except REFUSED:
            return False
        for at, whole in enumerate(together):
            rows = [one[at] for one in alone]
            if whole.ndim == 0 or whole.shape[0] != ROWS or any(row.shape[:1] != (1,) for row in rows):
                return False
            if not _alike(whole, np.concatenate(rows)):
                return False
        return True

    def drawn(self, rows: int) -> list[np.ndarray]:
        """Arrays for a trial: normal numbers, zeros and ones; sizes that change are `rows`."""
        rng = np.random.default_rng(0)
        arrays = []
        for spec in self.inputs:
            shape = tuple(rows if isinstance(n, str) else n for n in spec.shape)
            wanted = NUMPY[spec.dtype]
            draw = rng.integers(0, 2, shape) if wanted.kind in "biu" else rng.standard_normal(shape)
            arrays.append(np.asarray(draw).astype(wanted))
        return arrays


def _open_shape(a: tuple[int, ...], b: tuple[int, ...], first: str) -> tuple[int | str, ...]:
    """The shape of an output that had these two: sizes that differ are names."""
    return tuple(n if n == m else f"d{i}" if i else first for i, (n, m) in enumerate(zip(a, b)))


def _alike(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays are one but for how sums were rounded."""
    if a.dtype.kind in "biu":
        return np.array_equal(a, b)
    short = SHORT[a.dtype]
    eps = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[short]
    wide, other = a.astype(np.float64), b.astype(np.float64)
    scale = np.abs(wide[np.isfinite(wide)]).max(initial=0)
    return np.allclose(wide, other, TOLERANCE * eps, TOLERANCE * eps * scale, equal_nan=True)


class ExportedModel(TensorModel):
    """A model of a `.lam` file."""

    def __init__(self, name: str, path: Path, untrusted: bool, call_bytes: int):
        self._loaded = load(path, native=not untrusted, max_bytes=call_bytes)
        specs = [Spec(label, dtype, tuple(shape)) for label, dtype, shape in self._loaded.inputs]
        super().__init__(name, "lamina_graph" if untrusted else "lamina_native", specs)

    def check(self, arrays: Sequence[np.ndarray]) -> None:
        super().check(arrays)
        try:
            self._loaded.check(*arrays)
        except (TypeError, ValueError) as error:
            raise Refusal(400, f"{self.name}: {error}") from None

    def named(self, arrays: Sequence[np.ndarray]) -> list[tuple[str, np.ndarray]]:
        return [*_leaves(self._loaded(*arrays))]

    def drawn(self, rows: int) -> list[np.ndarray]:
        """As of all, but each size within its range, and a batch that the file takes."""
        ranges = self._loaded.ranges
        arrays = super().drawn(max([rows, *(low for low, _ in ranges.values())]))
        if any(high < rows for _, high in ranges.values()):
            cut = {name: min(rows, high) for name, (_, high) in ranges.items()}
            return [
                x[tuple(slice(cut.get(n)) if isinstance(n, str) else slice(None) for n in spec.shape)]
                for spec, x in zip(self.inputs, arrays, strict=True)
            ]
        return arrays

    def _most_rows(self) -> int | None:
        found = super()._most_rows()
        return found and self._loaded.ranges.get(str(self.inputs[0].shape[0]), (1, found))[1]


class OnnxFileModel(TensorModel):
    """A model of an `.onnx` file, traced: sizes without number are symbols of one recording."""

    def __init__(self, name: str, path: Path):
        model = import_module("..exchange.onnx", __package__).load(path)
        specs = []
        for label, kind in model.inputs.items():
            dtype = None if kind.sequence or kind.dtype is None else SHORT.get(np.dtype(kind.dtype))
            if dtype is None or kind.shape is None or kind.optional:
                told = f"no array of {', '.join(SHORT.values())} of known rank"
                raise ServeError(f"{path}: the input {label!r} is {told}")
            shape = (n if isinstance(n, int) else n or f"d{i}" for i, n in enumerate(kind.shape))
            specs.append(Spec(label, dtype, tuple(shape)))
        super().__init__(name, "onnx", specs)
        self._names = [*model.outputs]
        is_open = any(isinstance(n, str) for spec in specs for n in spec.shape)
        self._call = trace(model, dynamic=is_open)

    def named(self, arrays: Sequence[np.ndarray]) -> list[tuple[str, np.ndarray]]:
        with no_grad():
            found = self._call(*(tensor(x) for x in arrays))
        results = found if isinstance(found, tuple) else (found,)
        if odd := [name for name, x in zip(self._names, results, strict=True) if not isinstance(x, Tensor)]:
            raise ServeError(f"{self.name}: the output {odd[0]!r} is no array of numbers")
        return [(name, x.numpy()) for name, x in zip(self._names, results, strict=True)]


class TextModel:
    """A language model, or an encoder where `embed` is what it has."""

    platform = "lamina_language"

    def __init__(self, name: str, model: Any):
        self.name, self.model = name, model
        self.kind = "text" if hasattr(model, "generate") else "embeddings"

    def described(self) -> dict:
        return {"kind": self.kind, "platform": self.platform}

    def try_out(self) -> None:
        """Run it once, so that what it records is there before workers are forked.  Raises ServeError."""
        try:
            with no_grad():
                if self.kind == "embeddings":
                    self.model.embed(["a trial"])
                else:
                    for _ in self.model.generate("A trial", max_tokens=2):
                        pass
        except REFUSED as error:
            raise ServeError(f"{self.name}: a first run failed: {error}") from error


Served = TensorModel | TextModel


def _leaves(x: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of what a model returned, by what leads to them: "output", "1", "scores.0"."""
    if isinstance(x, Tensor):
        yield path or "output", x.numpy()
    elif isinstance(x, Mapping):
        for key, value in x.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(x, (list, tuple)):
        for at, value in enumerate(x):
            yield from _leaves(value, f"{path}.{at}" if path else f"output{at}")


def opened(name: str, path: Path, bounds: Bounds, untrusted: bool = False) -> Served:
    """The model in a file or folder, tried out.  Raises ServeError, LaminaError, ModelError, OSError."""
    if path.is_dir() or path.suffix == ".gguf":
        try:
            language = import_module("..language", __package__)
        except ImportError as error:
            raise ServeError(f"{path}: language models can't be loaded: {error}") from None
        texts = TextModel(name, language.load(path))
        texts.try_out()
        return texts
    try:
        model: TensorModel
        if path.suffix == ".onnx":
            model = OnnxFileModel(name, path)
        else:
            least = max(LEAST_CALL_BYTES, 4 * path.stat().st_size)
            model = ExportedModel(name, path, untrusted, bounds.call_bytes or least)
    except (LaminaError, ModelError, ImportError) as error:
        raise ServeError(f"{name}: {error}") from error
    model.try_out(bounds)
    return model
