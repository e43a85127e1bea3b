"""Training: the same network, step and order of digits, run eagerly, traced, or by PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import lamina
from lamina.data import DataLoader, TensorDataset

from .digits import Digits
from .network import network

BATCH = 64


class Epoch(NamedTuple):
    """What one pass over the training digits came to: the mean loss of its batches, and its seconds."""

    loss: float
    seconds: float


def eagerly(function: Any) -> Any:
    """The way of training that leaves functions as they are; the other is lamina.jit.trace."""
    return function


class Training:
    """A network, what trains it, and the digits in the order that the seed gives.

    library: lamina, or torch, which starts from the same weights.  way: what a step and the network's forward
    go through before they are called.  epochs: how many the schedule is for.
    """

    def __init__(
        self,
        digits: Digits,
        epochs: int,
        seed: int,
        way: Callable[[Any], Any] = eagerly,
        library: Any = lamina,
    ):
        self.library = library
        order = lamina.Generator().manual_seed(seed)
        self.loader = DataLoader(
            TensorDataset(*digits.train), batch_size=BATCH, shuffle=True, generator=order
        )
        lamina.manual_seed(seed)
        drawn = network(lamina)
        self.network = drawn if library is lamina else network(library)
        if library is not lamina:
            self.network.load_state_dict({name: self.given(x) for name, x in drawn.state_dict().items()})
        self.optimizer = library.optim.AdamW(self.network.parameters(), weight_decay=0.05)
        self.schedule = library.optim.lr_scheduler.OneCycleLR(
            self.optimizer,
            max_lr=5e-3,
            epochs=epochs,
            steps_per_epoch=len(self.loader),
            cycle_momentum=False,
        )
        self.step = way(self._step())
        self.forward = way(self.network)

    def _step(self) -> Callable[[Any, Any], Any]:
        """One step, whole: forward, cross entropy, backward, update.  Returns the loss."""
        network, optimizer = self.network, self.optimizer
        criterion = self.library.nn.CrossEntropyLoss()

        def step(images, labels):
            loss = criterion(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        return step

    def given(self, x: lamina.Tensor) -> Any:
        """A tensor as the library takes it, without a copy."""
        return x if self.library is lamina else self.library.from_numpy(x.numpy())

    def epoch(self, on_step: Callable[[float], None] = lambda loss: None) -> Epoch:
        """Train once over the digits.  `on_step` is told the loss of each batch."""
        self.network.train()
        losses = []
        start = perf_counter()
        for images, labels in self.loader:
            loss = self.step(self.given(images), self.given(labels))
            self.schedule.step()
            losses.append(loss.item())
            on_step(losses[-1])
        seconds = perf_counter() - start
        return Epoch(sum(losses) / len(losses), seconds)

    def logits(self, images: lamina.Tensor) -> Any:
        """What the network says of digits.  Shapes: f32[n, 1, 8, 8] -> f32[n, 10]."""
        self.network.eval()
        with self.library.no_grad():
            return self.network(self.given(images))

    def inference(self, images: lamina.Tensor) -> Callable[[], Any]:
        """A call that runs the forward on these digits, in the way of this training."""
        self.network.eval()
        forward, given, no_grad = self.forward, self.given(images), self.library.no_grad

        def run():
            with no_grad():
                return forward(given)

        return run


def steps_per_epoch(digits: Digits) -> int:
    return -(-len(digits.train.labels) // BATCH)
