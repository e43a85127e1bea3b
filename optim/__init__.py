"""Offer optimizers and learning-rate schedules."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.optim")

from ..runtime import refusal as _refusal
from . import lr_scheduler
from .further_rules import ASGD, NAdam, RAdam, Rprop, SparseAdam
from .lbfgs import LBFGS
from .optimizer import Optimizer
from .rules import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, RMSprop
from .whole_rules import Adafactor, Muon

_refusal.refusing_methods(
    [*globals().values(), *vars(lr_scheduler).values()], "step", "load_state_dict", "add_param_group"
)

__all__ = [
    "ASGD", "LBFGS", "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam",
    "Optimizer", "RAdam", "RMSprop", "Rprop", "SparseAdam", "lr_scheduler",
]  # fmt: skip
