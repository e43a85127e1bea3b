"""Offer modules where PyTorch has them and Lamina does not: `lamina.utils.data` is the room `data`."""

from __future__ import annotations

import sys
from types import ModuleType

from .. import autograd, data, distributions, nn, optim
from ..distributions import parameters
from ..runtime import function, modes
from . import (
    _C,
    absent,
    amp,
    backends,
    compiler,
    cpu,
    cuda,
    fft,
    flow,
    future,
    late,
    linalg,
    masked,
    nested,
    nn_modules,
    overrides,
    private,
    random,
    serialization,
    signal,
    sparse,
    special,
    swa_utils,
    testing,
    type_names,
    utils,
    windows,
)

ROOT = __package__.rpartition(".")[0]  # lamina

# PyTorch has a module for each family; here they stand together.
_FAMILIES = (
    "bernoulli", "beta", "binomial", "cauchy", "chi2", "continuous_bernoulli", "dirichlet", "exp_family",
    "exponential", "fishersnedecor", "gamma", "generalized_pareto", "geometric", "gumbel", "half_cauchy",
    "half_normal", "independent", "inverse_gamma", "kumaraswamy", "laplace", "lkj_cholesky", "log_normal",
    "logistic_normal", "lowrank_multivariate_normal", "mixture_same_family", "multinomial",
    "multivariate_normal", "negative_binomial", "normal", "one_hot_categorical", "pareto", "poisson",
    "studentT", "transformed_distribution", "uniform", "von_mises", "weibull", "wishart",
)  # fmt: skip

# As PyTorch spells them, below `torch`.
MODULES: dict[str, ModuleType] = {
    "_C": _C,
    "__config__": private.config,
    "__future__": future,
    "_dynamo": compiler._dynamo,
    "_utils": private._utils,
    "_higher_order_ops": flow,
    "_higher_order_ops.associative_scan": flow,
    "amp": amp,
    "amp.autocast_mode": amp,
    "amp.grad_scaler": amp,
    "autograd.forward_ad": autograd.forward_ad,
    "autograd.function": function,
    "autograd.functional": autograd.functional,
    "autograd.grad_mode": modes,
    "autograd.gradcheck": sys.modules[f"{ROOT}.runtime.gradcheck"],  # the name is the function's
    "autograd.graph": autograd.graph,
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
    "distributions": distributions,
    **{f"distributions.{family}": distributions for family in _FAMILIES},
    "distributions.relaxed_bernoulli": distributions.relaxed,
    "distributions.relaxed_categorical": distributions.relaxed,
    "distributions.utils": parameters,
    "export": absent.export,
    "fft": fft,
    "linalg": linalg,
    "masked": masked,
    "mps": absent.mps,
    "mtia": absent.mtia,
    "nn._reduction": private._reduction,
    "nn.common_types": private.common_types,
    "nn.grad": nn.grad,
    "nn.modules": nn_modules.modules,
    **{f"nn.modules.{family}": module for family, module in nn_modules.FAMILIES.items()},
    "nn.parameter": nn.parameter,
    "nn.parallel": nn.parallel,
    "nn.parallel.distributed": nn.parallel,
    "nn.utils.clip_grad": nn.utils.clip,
    "nn.utils.convert_parameters": nn.utils.vector,
    "nn.utils.init": nn.utils.made,
    "nn.utils.memory_format": nn.utils.made,
    "optim.swa_utils": swa_utils,
    "overrides": overrides,
    "random": random,
    "nested": nested,
    "serialization": serialization,
    "signal": signal,
    "sparse": sparse,
    "signal.windows": windows,
    "special": special,
    "storage": private.storage,
    "testing": testing,
    "types": type_names,
    "utils": utils,
    "utils._contextlib": private.contextlib,
    "utils._pytree": utils._pytree,
    "utils.checkpoint": utils.checkpoint,
    "utils.data": data,
    "utils.data._utils": private._data_utils,
    "utils.data._utils.collate": private._collate,
    "utils.data.dataloader": data,
    "utils.data.dataset": data,
    "utils.data.distributed": data,
    "utils.data.sampler": data,
    "utils.dlpack": utils.dlpack,
    "utils.hooks": private.hooks,
    "version": private.version,
    "xpu": absent.xpu,
}


# Those that have the modules below them as attributes, too.
_ABOVE = {"distributions": distributions, "nn": nn, "amp": amp, "utils": utils, "utils.data": data}


def offer() -> None:
    """Let `import lamina.utils.data` find these modules: Python looks among the loaded ones first."""
    for name, module in MODULES.items():
        sys.modules.setdefault(f"{ROOT}.{name}", module)
        parent, _, leaf = name.rpartition(".")
        above = _ABOVE.get(parent)
        if above is not None and not hasattr(above, leaf):
            setattr(above, leaf, module)
    private.add()
    for name, module in {"autograd": autograd, "nn.attention": nn.attention, "utils": utils}.items():
        vars(module)["__getattr__"] = late.of_room(name)
    looked_below = (
        _C,
        autograd,
        backends,
        cuda,
        cuda.amp,
        nn.attention,
        nn.parallel,
        utils,
        compiler._dynamo,
    )
    for above in looked_below:  # by Python, when something there is imported
        vars(above)["__path__"] = []
    for above, name in ((cuda, "cuda"), (compiler._dynamo, "_dynamo"), (_C, "_C")):
        vars(above)["__getattr__"] = late.of_room(name)
    vars(autograd).setdefault("variable", autograd)
    vars(nn.parallel)["__getattr__"] = late.of_room("nn.parallel")
    vars(nn.functional).setdefault("grad", nn.grad)  # which is made of its functions
    vars(utils).setdefault("_foreach_utils", private._foreach_utils)
    for name, module in private.OPTIMIZERS.items():
        vars(optim).setdefault(name, module)
    vars(optim).setdefault("swa_utils", swa_utils)  # it is of optim and nn, which don't know each other
