"""Offer optimizers and learning-rate schedules."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.optim")

from ..runtime import refusal as _refusal
from . import lr_scheduler
from .optimizer import Optimizer
from .rules import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, RMSprop

_refusal.refusing_methods(
    [*globals().values(), *vars(lr_scheduler).values()], "step", "load_state_dict", "add_param_group"
)

__all__ = ["SGD", "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Optimizer", "RMSprop", "lr_scheduler"]
