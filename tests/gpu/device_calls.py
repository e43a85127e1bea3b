"""Right calls of everything public, with tensors of a device, beside the same calls on the CPU."""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

import lamina
from lamina import distributions, nn
from lamina.runtime.tensor import Tensor

sys.path.append(str(Path(__file__).parents[1] / "hostile"))  # the calls
sys.path.append(str(Path(__file__).parents[1] / "peers"))  # parameters of distributions
from distribution_cases import CASES
from good_call import Good
from good_calls import composites, functional, modules, utilities

ASKED = ("mean", "variance", "mode", "entropy", "enumerate_support")


def right_calls() -> Iterator[Good]:
    """Those that may be given tensors: of modules the calls, and not the constructors."""
    yield from chain(functional(), utilities(), composites())
    yield from (good for good in modules() if good.label.endswith("called"))


def placed(x: Any) -> Any:
    """An argument, its tensors on the device: leaves again, with their gradients."""
    if isinstance(x, nn.Module):
        return x.cuda()
    if isinstance(x, Tensor):
        moved = x.detach().cuda()
        made = nn.Parameter(moved) if isinstance(x, nn.Parameter) else moved.requires_grad_(x.requires_grad)
        made.grad = None if x.grad is None else x.grad.cuda()
        return made
    if isinstance(x, dict):
        return {k: placed(v) for k, v in x.items()}
    return type(x)(map(placed, x)) if type(x) in (list, tuple) else x


def tensors_of(x: Any) -> list[Tensor]:
    if isinstance(x, Tensor):
        return [x]
    if isinstance(x, dict):
        return tensors_of(list(x.values()))
    return [t for part in x for t in tensors_of(part)] if isinstance(x, (list, tuple)) else []


def near(found: Tensor, wanted: Tensor, what: str) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    found, wanted = (x.detach().cpu().to(lamina.float64).numpy() for x in (found, wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4, err_msg=what)


def check_calls(part: int, parts: int) -> int:
    """Make every `parts`-th call in both places, and count those that took tensors."""
    count = 0
    for good in [*right_calls()][part::parts]:
        function, args, kwargs = good.make()
        mine = copy.deepcopy((args, kwargs))
        there = copy.deepcopy(function) if isinstance(function, nn.Module) else function
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                lamina.manual_seed(0)
                wanted = function(*args, **kwargs)
            except lamina.ir.errors.LaminaError:  # a method whose result its first argument does not hold
                continue
            args, kwargs = placed(mine)
            if not tensors_of([args, kwargs]) or good.label == "backward":  # from a tensor of the CPU
                continue
            lamina.manual_seed(0)
            found = placed(there)(*args, **kwargs)
        count += 1
        pairs = list(zip(tensors_of(found), tensors_of(wanted), strict=True))
        for x, y in pairs:
            near(x, y, good.label)
            assert x.is_cuda or good.label == "pack", f"{good.label}: on the CPU"
        assert pairs or type(found) is type(wanted), good.label
    return count


def asked(made: Any) -> dict[str, Any]:
    """A draw of a distribution, how likely it is, and what else it tells."""
    lamina.manual_seed(0)
    drawn = made.sample((3,))
    told = {"sample": drawn}
    for name, call in {
        **{name: lambda name=name: getattr(made, name) for name in ASKED},
        **{name: lambda name=name: getattr(made, name)(drawn) for name in ("log_prob", "cdf")},
        "icdf": lambda: made.icdf(drawn * 0 + 0.4),
    }.items():
        try:
            found = call()
            told[name] = found() if callable(found) else found
        except (lamina.ir.errors.LaminaError, NotImplementedError) as error:
            told[name] = type(error)
    return told


def check_distributions(part: int, parts: int) -> int:
    """Ask every `parts`-th family, with its parameters on the device, what it is asked on the CPU."""
    families = sorted(CASES)[part::parts]
    for family in families:
        cases = CASES[family]
        for parameters in cases:
            given = {k: v if isinstance(v, int) else lamina.tensor(v) for k, v in parameters.items()}
            with warnings.catch_warnings():  # some draws are the host's, which is said once
                warnings.simplefilter("ignore")
                there, here = (asked(getattr(distributions, family)(**x)) for x in (placed(given), given))
            for name, wanted in here.items():
                what = f"{family}.{name}"
                if not isinstance(wanted, Tensor):
                    assert there[name] == wanted, what
                    continue
                assert there[name].is_cuda, f"{what}: on the CPU"
                near(there[name], wanted, what)
    return len(families)
