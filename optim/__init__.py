"""Offer optimizers and learning-rate schedules."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.optim")

from . import lr_scheduler
from .optimizer import Optimizer
from .rules import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, RMSprop

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Optimizer", "RMSprop", "lr_scheduler"]
