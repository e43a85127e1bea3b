"""Times of the ways to train, against each other: in turn, on one thread, the least of several rounds."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from time import perf_counter
from types import ModuleType
from typing import Any, NamedTuple

from lamina import jit

from .digits import Digits
from .train import BATCH, Training, eagerly

SHORTEST = 5e-3  # seconds that are timed at once: many clock ticks, and less than a time slice
INFERENCES = 30  # rounds


class Times(NamedTuple):
    """Least seconds by way ("eager", "traced", "torch"): of an epoch, and of inference by batch."""

    epoch: dict[str, float]
    inference: dict[int, dict[str, float]]


def timed(digits: Digits, rounds: int, seed: int, torch: ModuleType | None) -> Times:
    """Train anew for `rounds` epochs in each way, and run the networks on a digit and on a batch.

    torch: PyTorch, which takes part if it is there.
    """
    epochs = rounds + 2  # the schedule counts the two before the clock runs
    trainings = {
        "eager": Training(digits, epochs, seed, eagerly),
        "traced": Training(digits, epochs, seed, jit.trace),
    }
    if torch is not None:
        torch.set_num_threads(1)
        trainings["torch"] = Training(digits, epochs, seed, eagerly, torch)
    epoch = least({name: t.epoch for name, t in trainings.items()}, rounds)
    inference = {}
    for batch in (1, BATCH):
        images = digits.test.images[:batch].contiguous()
        inference[batch] = least({name: t.inference(images) for name, t in trainings.items()}, INFERENCES)
    return Times(epoch, inference)


def least(contenders: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Each contender's least seconds a call, from rounds in which all take turns; two calls go before."""
    counts = {}
    for name, call in contenders.items():
        call()  # records and compiles
        start = perf_counter()
        call()
        counts[name] = max(1, int(SHORTEST / max(perf_counter() - start, 1e-6)))
    found = dict.fromkeys(contenders, float("inf"))
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, call in contenders.items():
                start = perf_counter()
                for _ in range(counts[name]):
                    call()
                found[name] = min(found[name], (perf_counter() - start) / counts[name])
    finally:
        gc.enable()
    return found
