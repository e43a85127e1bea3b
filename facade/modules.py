"""Offer modules where PyTorch has them and Lamina does not: `lamina.utils.data` is the room `data`."""

from __future__ import annotations

import sys
from types import ModuleType

from .. import autograd, data, nn, optim
from . import amp, backends, compiler, cpu, cuda, linalg, random, special, swa_utils, utils

ROOT = __package__.rpartition(".")[0]  # lamina

# As PyTorch spells them, below `torch`.
MODULES: dict[str, ModuleType] = {
    "_dynamo": compiler._dynamo,
    "amp": amp,
    "autograd.function": autograd,
    "autograd.functional": autograd.functional,
    "autograd.variable": autograd,
    "backends": backends,
    "backends.cuda": backends.cuda,
    "backends.cudnn": backends.cudnn,
    "backends.mps": backends.mps,
    "compiler": compiler,
    "cpu": cpu,
    "cpu.amp": cpu.amp,
    "cuda": cuda,
    "cuda.amp": cuda.amp,
    "linalg": linalg,
    "nn.modules": nn,
    "nn.parameter": nn,
    "optim.swa_utils": swa_utils,
    "random": random,
    "special": special,
    "utils": utils,
    "utils.checkpoint": utils.checkpoint,
    "utils.data": data,
    "utils.data.dataloader": data,
    "utils.data.dataset": data,
    "utils.data.sampler": data,
    "utils.dlpack": utils.dlpack,
}


def offer() -> None:
    """Let `import lamina.utils.data` find these modules: Python looks among the loaded ones first."""
    for name, module in MODULES.items():
        sys.modules.setdefault(f"{ROOT}.{name}", module)
    vars(optim).setdefault("swa_utils", swa_utils)  # it is of optim and nn, which don't know each other
