"""Training: the loop over epochs and batches, and how right the network is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

import lamina
from lamina import nn, optim
from lamina.data import DataLoader, TensorDataset

from .digits import Digits, Part

BATCH = 64


class Epoch(NamedTuple):
    """What one pass over the training digits came to.

    loss: the mean over its batches.  train, test: accuracies from 0 to 1 after it.
    learning: seconds of training.  seconds: all, the measuring of accuracies included.
    """

    number: int
    loss: float
    train: float
    test: float
    learning: float
    seconds: float


def steps_per_epoch(digits: Digits) -> int:
    return -(-len(digits.train.labels) // BATCH)


def train(
    network: nn.Module, digits: Digits, epochs: int, on_step: Callable[[float], None]
) -> Iterator[Epoch]:
    """Train, and yield after each epoch.  `on_step` is told the loss of each batch."""
    loader = DataLoader(TensorDataset(*digits.train), batch_size=BATCH, shuffle=True)
    optimizer = optim.AdamW(network.parameters(), weight_decay=0.05)
    schedule = optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=5e-3, epochs=epochs, steps_per_epoch=len(loader), cycle_momentum=False
    )
    criterion = nn.CrossEntropyLoss()
    for number in range(1, epochs + 1):
        start = perf_counter()
        losses = []
        network.train()
        for images, labels in loader:
            loss = criterion(network(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            on_step(losses[-1])
        learnt = perf_counter()
        loss_mean = sum(losses) / len(losses)
        known, new = accuracy(network, digits.train), accuracy(network, digits.test)
        yield Epoch(number, loss_mean, known, new, learnt - start, perf_counter() - start)


def probabilities(network: nn.Module, images: lamina.Tensor) -> lamina.Tensor:
    """How likely the network finds each digit.  Shapes: f32[n, 1, 8, 8] -> f32[n, 10]."""
    network.eval()
    with lamina.no_grad():
        return network(images).softmax(1)


def accuracy(network: nn.Module, part: Part) -> float:
    guesses = probabilities(network, part.images).argmax(1)
    return (guesses == part.labels).float().mean().item()
