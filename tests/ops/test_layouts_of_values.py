"""How a result lies in memory follows from how its operands do, not from values, nor from how many they are.

A trace notes the layout of what it recorded, and guards no values for it.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from harness import lifted, type_in

import lamina
from lamina.ir.dtypes import bool_, float32, float64, int64
from lamina.ir.lowering import NotLowered
from lamina.ir.op import REGISTRY
from lamina.ir.sample import Operand
from lamina.ir.types import type_of
from lamina.runtime.plan import Plan

OPS = sorted(name for name, op in REGISTRY.items() if not op.traits.host and not op.traits.view)
SCALES = 1.0, 1000.0  # some spellings go another way for large numbers


def transposed(a):
    """The same array, its elements lying in columns."""
    return np.asarray(a.T.copy().T) if a.ndim == 2 else a


def cases(op):
    """The arrays and attributes of an op's samples of matrices, in rows and in columns."""
    rng = np.random.default_rng(0)
    for sample in op.samples():
        if any(type(a) is tuple or not hasattr(a, "array") for a in sample.args):
            continue
        arrays = [a.array(rng, float32.numpy) for a in sample.args]
        if not any(a.ndim == 2 and min(a.shape) > 1 and a.dtype == np.float32 for a in arrays):
            continue
        for lay in (np.asarray, transposed):
            scaled = [
                [lay(a * np.float32(scale)) if a.dtype == np.float32 else a for a in arrays]
                for scale in SCALES
            ]
            try:
                yield [bound(op, given, sample.kwargs) for given in scaled]
            except (lamina.LaminaError, TypeError):  # of a dtype, or a number, that the op does not take
                continue


def bound(op, arrays, kwargs):
    """An op's operands as arrays, and its attributes."""
    operands, attrs = op.bind(*map(lamina.from_numpy, arrays), **kwargs) if op.bind else (arrays, {})
    plain = (x.numpy() if isinstance(x, lamina.Tensor) else x for x in operands)
    return [x if x is None else np.asarray(x) for x in plain], attrs


def strides(results):
    """Of dims that are longer than one."""
    arrays = results if isinstance(results, (tuple, list)) else (results,)
    return [[s for s, n in zip(a.strides, a.shape) if n > 1] for a in map(np.asarray, arrays)]


def dense(a):
    """Whether an array fills its memory, in some order of its dims, as a result of compiled code does."""
    order = np.argsort([-s for s in a.strides], kind="stable")
    return a.transpose(order).flags.c_contiguous


@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_layouts_do_not_follow_values(name):
    op = REGISTRY[name]
    for (small, attrs), (large, _) in cases(op):
        ways = [lambda *arrays, attrs=attrs: op.reference(*arrays, **attrs)]
        if op.quick is not None:
            types = [None if a is None else type_of(lamina.from_numpy(a).dtype, a.shape) for a in small]
            quick = op.quick(tuple(types), attrs)
            ways += [quick] if quick else []
        for way in ways:
            try:
                first, second = way(*small), way(*large)
            except (lamina.LaminaError, ValueError, TypeError, np.linalg.LinAlgError):
                continue  # of a dtype, or numbers, that the op does not take
            assert strides(first) == strides(second), attrs
            for found in first if isinstance(first, (tuple, list)) else (first,):
                assert dense(np.asarray(found)), attrs


def turned(sample, kind, count):
    """The arguments of a sample as arrays of three dims, of which the second is the first in memory."""
    rng = np.random.default_rng(0)
    return [
        replace(a, shape=(7, count, 8)).array(rng, kind).transpose(1, 0, 2) if isinstance(a, Operand) else a
        for a in sample.args
    ]


@pytest.mark.parametrize("dtype", [float32, float64, int64, bool_], ids=str)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_elementwise_results_lie_as_operands_do(dtype):
    """However many elements there are: PyTorch keeps the order of operands without gaps, too."""
    tried, others = 0, []
    for name, op in REGISTRY.items():
        counts = (3,) if isinstance(op.lower, NotLowered) else (3, 40, 300)  # those are slow
        for sample, count in product(op.samples() if op.traits.elementwise else (), counts):
            try:
                operands, attrs = op.bind(*turned(sample, dtype.numpy, count), **sample.kwargs)
                arrays = lifted(operands)
                made = Plan(op, tuple(map(type_in, arrays)), attrs).kernel(*arrays)
            except (lamina.LaminaError, TypeError):  # of a dtype, or numbers, that the op does not take
                continue
            tried += 1
            for x in made if type(made) is tuple else (made,):
                if np.argsort(x.strides).tolist() != [2, 0, 1] or not dense(x):
                    others.append((name, attrs, x.strides))
    assert tried > 200 and others == []
