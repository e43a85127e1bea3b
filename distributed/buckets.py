"""Gradients that ranks average: parameters in buckets, each of which is one collective.

A bucket goes once all its gradients are there and the buckets before it went, so that all ranks begin the
same collectives in the same order, whatever order their backwards have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.ops import collectives as ops
from ..ir.ops.join import cat
from ..runtime import Tensor, modes, no_grad
from ..runtime.history import storage_of
from ..runtime.places import here
from ..runtime.tensor import wrap
from .arrays import is_recorded, own_numbers, read
from .groups import ProcessGroup
from .work import Work, followed

FIRST_BYTES = 1 << 20  # of the first bucket, which is to go soon
ALONE = 1 << 18  # bytes from which on a gradient goes by itself: from where it lies, and back to there


class Bucket:
    """Parameters of one dtype whose gradients go together.

    waiting: those whose gradients are not there yet.  flat: the gradients one behind the other, while they
    are on their way.  work: the collective.  future: what a hook of the user's made of it instead.
    """

    def __init__(self, index: int, parameters: Sequence[Tensor]):
        self.index, self.parameters = index, list(parameters)
        self.ends = np.cumsum([p.numel() for p in parameters]).tolist()
        self.waiting: set[int] = set()
        self.flat: np.ndarray | None = None
        self.summed: Tensor | None = None
        self.work: Work | None = None
        self.future: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """That of what its collective is given, whether a recording runs it or not."""
        return tuple(self.parameters[0].shape) if len(self.parameters) == 1 else (self.size,)

    @property
    def size(self) -> int:
        """Elements of all its parameters."""
        return self.ends[-1]

    def parts(self) -> list[tuple[Tensor, slice]]:
        """Each parameter, and where its gradient lies in the bucket."""
        begins = [0, *self.ends[:-1]]
        return [(p, slice(a, b)) for p, a, b in zip(self.parameters, begins, self.ends, strict=True)]

    def fill(self, divisor: float = 1) -> np.ndarray:
        """The gradients one behind the other, divided; a missing one is zeros.

        One that is alone stays where it is, unless this backward did not come to it: what nobody came to is
        left as it was.
        """
        if len(self.parameters) == 1 and not self.waiting and (grad := self.parameters[0].grad) is not None:
            data = grad._data
            if data.flags.c_contiguous and data.flags.writeable:
                flat = data.reshape(-1)
                return flat if divisor == 1 else np.divide(flat, divisor, out=flat, casting="unsafe")
        if self.flat is None or self.flat.size != self.size:
            self.flat = np.empty(self.size, self.parameters[0].dtype.numpy)
        for p, at in self.parts():
            given: Any = 0 if p.grad is None else read(p.grad).reshape(-1)
            if divisor == 1:
                self.flat[at] = given
            else:
                np.divide(given, divisor, out=self.flat[at], casting="unsafe")
        return self.flat


def in_buckets(parameters: Sequence[Tensor], most: int, first: int = FIRST_BYTES) -> list[Bucket]:
    """Parameters in buckets of at most so many bytes, the last first, as backward comes to them.

    A large one has a bucket of its own.
    """
    found: list[list[Tensor]] = []
    filling: dict[Any, tuple[list[Tensor], int]] = {}
    limit = min(first, most)
    for p in reversed(parameters):
        nbytes = p.numel() * p.element_size()
        if nbytes >= ALONE:
            found.append([p])
            continue
        held, before = filling.get(p.dtype, ([], 0))
        if held and before + nbytes > limit:
            found.append(held)
            held, before = [], 0
            limit = most
        held.append(p)
        filling[p.dtype] = held, before + nbytes
    found += [held for held, _ in filling.values() if held]
    return [Bucket(i, held) for i, held in enumerate(found)]


class Averaging:
    """One backward's gradients on their way to all ranks.

    buckets: in the order in which they go.  next: the first that has not gone.  divisor: of each gradient,
    before it goes: a sum of halves could overflow, and the kernel that makes a gradient divides for nothing.
    hook: the user's, called with each bucket instead of `all_reduce`; it returns a future.
    """

    def __init__(self, buckets: list[Bucket], group: ProcessGroup):
        self.buckets, self.group = buckets, group
        self.at = {id(p): (b, i) for b in buckets for i, p in enumerate(b.parameters)}
        self.next = 0
        self.divisor: float = group.size()
        self.hook: Callable[[GradBucket], Any] | None = None
        self.as_views = False

    def begin(self) -> None:
        """Wait for all gradients anew."""
        self.next = 0
        for bucket in self.buckets:
            if bucket.work is not None:  # of a backward that ended in an error
                bucket.work.wait()
            bucket.waiting = set(range(len(bucket.parameters)))
            bucket.work = bucket.summed = bucket.future = None

    def ready(self, p: Tensor) -> None:
        """Note that a parameter has its gradient; send what can go."""
        bucket, i = self.at[id(p)]
        bucket.waiting.discard(i)
        while self.next < len(self.buckets) and not self.buckets[self.next].waiting:
            self.send(self.buckets[self.next])
            self.next += 1

    def missing(self) -> list[Tensor]:
        """The parameters that have no gradient yet."""
        return [b.parameters[i] for b in self.buckets for i in sorted(b.waiting)]

    def send(self, bucket: Bucket) -> None:
        """Begin a bucket's collective."""
        if self.hook is not None:
            if modes.CHANGED:
                modes.tell("refuse", "a hook of DistributedDataParallel averages gradients in its own way")
            flat = bucket.fill()
            bucket.future = self.hook(GradBucket(bucket, flat, bucket is self.buckets[-1]))
        elif is_recorded():
            with no_grad(), own_numbers():
                grads = [p.new_zeros(p.shape) if p.grad is None else p.grad for p in bucket.parameters]
                if self.divisor != 1:
                    grads = [g / self.divisor for g in grads]
                whole = cat([g.reshape(-1) for g in grads], 0) if len(grads) > 1 else grads[0]
                bucket.summed = ops.all_reduce(whole, "sum", self.group.ranks)
        elif self.group.size() > 1:
            flat = bucket.fill(self.divisor)
            attrs = {"reduce": "sum", "group": self.group.ranks}
            shaped = flat.reshape(bucket.shape)
            flight = self.group.channel.start("all_reduce", attrs, (shaped,), (shaped,))
            bucket.flat = flat
            bucket.work = followed(Work(flight), flat.nbytes)

    def finish(self, unused: set[int]) -> None:
        """Send what is left, wait for all, and write the averages into the gradients.

        unused: ids of parameters that no rank has a gradient of, whose `grad` stays as it is.
        """
        while self.next < len(self.buckets):
            self.send(self.buckets[self.next])
            self.next += 1
        for bucket in self.buckets:
            if bucket.future is not None:
                self.write(bucket, _flat_of(bucket.future.wait()), unused)
            elif bucket.summed is not None:
                self.write_recorded(bucket, bucket.summed, unused)
            elif bucket.work is not None:
                bucket.work.wait()
                assert bucket.flat is not None
                self.write(bucket, bucket.flat, unused)
            elif self.divisor != 1:
                for p in bucket.parameters:
                    if p.grad is not None:
                        p.grad.div_(self.divisor)
            bucket.work = bucket.summed = bucket.future = None

    def write(self, bucket: Bucket, flat: np.ndarray, unused: set[int]) -> None:
        """Write averages into the gradients, or let these be views of them."""
        for p, at in bucket.parts():
            if id(p) in unused:
                continue
            part = flat[at].reshape(p.shape)
            if self.as_views or p.grad is None:
                p.grad = wrap(part if self.as_views else part.copy(), p._meta)
                continue
            grad = p.grad
            if not np.may_share_memory(grad._data, part):
                np.copyto(grad._data, part)
            storage_of(grad).written(("all_reduce", here()))
        if len(bucket.parameters) == 1 and not self.as_views:
            bucket.flat = None  # it was the gradient itself

    def write_recorded(self, bucket: Bucket, summed: Tensor, unused: set[int]) -> None:
        """The same as ops of a recording."""
        with no_grad(), own_numbers():
            for p, at in bucket.parts():
                if id(p) in unused:
                    continue
                part = summed if len(bucket.parameters) == 1 else summed[at].reshape(p.shape)
                if p.grad is None:
                    p.grad = part.clone()
                else:
                    p.grad.copy_(part)


def _flat_of(value: Any) -> np.ndarray:
    found = value[0] if isinstance(value, (list, tuple)) else value
    return read(found).reshape(-1)


class GradBucket:
    """A bucket as hooks of the user's see it, under PyTorch's names."""

    def __init__(self, bucket: Bucket, flat: np.ndarray, is_last: bool):
        self._bucket, self._is_last = bucket, is_last
        p = bucket.parameters[0]
        self._buffer = wrap(flat, p._meta.with_shape((flat.size,)))

    def buffer(self) -> Tensor:
        """The gradients one behind the other.  Shapes: [elements]."""
        return self._buffer

    def set_buffer(self, buffer: Tensor) -> None:
        """Put another tensor in its place."""
        self._buffer = buffer

    def index(self) -> int:
        """Its number; the one with the last gradients of the model is 0."""
        return self._bucket.index

    def gradients(self) -> list[Tensor]:
        """The gradients, as views of the buffer."""
        return [self._buffer[at].reshape(p.shape) for p, at in self._bucket.parts()]

    def parameters(self) -> list[Tensor]:
        """The parameters that they are of."""
        return list(self._bucket.parameters)

    def is_last(self) -> bool:
        """Whether no other goes after it."""
        return self._is_last
