"""Answer `torch.nn.modules` and its files, each with what PyTorch keeps there, private bases included.

Programs ask `isinstance(m, torch.nn.modules.batchnorm._BatchNorm)`, or take `_pair` and
`_ConvNd` to derive from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from .. import nn
from ..nn import (
    activation,
    attention,
    containers,
    conv,
    dropout,
    linear,
    loss,
    norm,
    pooling,
    sparse,
    sync_batch_norm,
    vision,
)
from ..nn.hooks import Shown
from .private import OF_MODULES


def _repeated(n: int) -> Callable[[Any], tuple]:
    """The function that makes a number a tuple of n, and leaves what is iterable."""

    def repeat(x: Any) -> tuple:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    return repeat


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Take `prefix` away from the keys of a state, and of its `_metadata`, that begin with it; in place."""
    for key in list(state_dict):
        if key.startswith(prefix):
            state_dict[key[len(prefix) :]] = state_dict.pop(key)
    versions = getattr(state_dict, "_metadata", {})
    for key in list(versions):
        if key.startswith(prefix) or key == prefix.rstrip("."):
            versions[key[len(prefix) :]] = versions.pop(key)


def _family(name: str, *sources: ModuleType, **more: Any) -> ModuleType:
    made = ModuleType(f"lamina.nn.modules.{name}", f"What PyTorch keeps in torch.nn.modules.{name}.")
    for source in sources:
        classes = {key: value for key, value in vars(source).items() if isinstance(value, type)}
        vars(made).update(classes)
    vars(made).update(more)
    return made


class _ModuleFile(ModuleType):
    """torch.nn.modules.module: programs assign an empty dictionary to one of its `_global_…_hooks`."""

    def __setattr__(self, name: str, value: Any) -> None:
        shown = vars(nn.module).get(name)
        if isinstance(shown, Shown):
            shown.clear()
            shown.update(value)
        else:
            super().__setattr__(name, value)


module = _ModuleFile("lamina.nn.modules.module", "What PyTorch keeps in torch.nn.modules.module.")
vars(module).update({key: value for key, value in vars(nn.module).items() if not key.startswith("__")})
modules = ModuleType("lamina.nn.modules", "The modules, by the names of PyTorch's files.")
vars(modules).update({key: value for key, value in vars(nn).items() if isinstance(value, type)})
FAMILIES = {
    "activation": _family("activation", activation, MultiheadAttention=nn.MultiheadAttention),
    "adaptive": nn.adaptive,
    "batchnorm": _family("batchnorm", norm, sync_batch_norm, nn.lazy, _NormBase=norm._ByChannel),
    "channelshuffle": _family("channelshuffle", vision),
    "container": _family("container", containers),
    "conv": _family("conv", conv, nn.lazy, _ConvNd=conv._Conv, _ConvTransposeNd=conv._ConvTranspose),
    "distance": _family("distance", loss),
    "dropout": _family("dropout", dropout, _DropoutNd=dropout._Dropout),
    "flatten": _family("flatten", linear),
    "fold": _family("fold", vision),
    "instancenorm": _family("instancenorm", norm, nn.lazy),
    "lazy": nn.lazy,
    "linear": _family(
        "linear", linear, nn.lazy, NonDynamicallyQuantizableLinear=attention.NonDynamicallyQuantizableLinear
    ),
    "loss": loss,
    "module": module,
    "normalization": _family("normalization", norm),
    "padding": _family("padding", nn.padding, _ConstantPadNd=nn.padding._ConstantPad),
    "pixelshuffle": _family("pixelshuffle", vision),
    "pooling": _family(
        "pooling",
        pooling,
        _MaxPoolNd=pooling._MaxPool,
        _AvgPoolNd=pooling._AvgPool,
        _AdaptiveAvgPoolNd=pooling._Adaptive,
        _AdaptiveMaxPoolNd=pooling._AdaptiveMax,
    ),
    "rnn": _family("rnn", nn.rnn),
    "sparse": sparse,
    "transformer": _family("transformer", attention),
    "upsampling": _family("upsampling", vision),
    "utils": _family(
        "utils",
        _single=_repeated(1),
        _pair=_repeated(2),
        _triple=_repeated(3),
        _quadruple=_repeated(4),
        _ntuple=_repeated,
        consume_prefix_in_state_dict_if_present=consume_prefix_in_state_dict_if_present,
    ),
}
for _name, _more in OF_MODULES.items():
    for _key, _value in _more.items():
        vars(FAMILIES[_name]).setdefault(_key, _value)
vars(modules).update(FAMILIES)
for _name in ("_single", "_pair", "_triple"):
    vars(nn.functional).setdefault(_name, getattr(FAMILIES["utils"], _name))
