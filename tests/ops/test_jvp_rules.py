"""Tangents of every record against its gradients: <c, J t> = <J' c, t>, for all operands at once."""

import numpy as np
import pytest
from checks import differentiable
from harness import cotangents_for, gradients, needs_of

from lamina.ir.op import REGISTRY
from lamina.runtime.dispatch import run_general
from lamina.runtime.forward import jvp_of
from lamina.runtime.tensor import tensor_of

OPS = sorted(name for name, op in REGISTRY.items() if op.differentiable and op.dtypes != "complex")


def listed(x):
    return tuple(x) if isinstance(x, tuple) else (x,)


def check(name: str, most: int | None) -> None:
    op = REGISTRY[name]
    for case in list(differentiable(op))[:most]:
        needs, outputs = needs_of(case), case.run()
        generator = np.random.default_rng(3)
        ways = [
            np.asarray(generator.uniform(-1, 1, np.shape(x))) if need else None
            for x, need in zip(case.operands, needs, strict=True)
        ]
        cotangents = cotangents_for(case, outputs)
        back = gradients(case, cotangents, outputs)
        plain = [None if x is None else tensor_of(x) for x in case.operands]

        def one(*xs, case=case, plain=plain, needs=needs):
            rest = iter(xs)
            given = [next(rest) if need else x for x, need in zip(plain, needs, strict=True)]
            return listed(run_general(case.op, given, case.attrs))

        primals = tuple(x for x, need in zip(plain, needs, strict=True) if need)
        _, tangents = jvp_of(one, primals, tuple(tensor_of(t) for t in ways if t is not None))
        forward = [
            float(np.sum(c * t._data)) for c, t in zip(cotangents, tangents, strict=True) if c is not None
        ]
        backward = [
            float(np.sum(g * t)) for g, t in zip(back, ways, strict=True) if g is not None and t is not None
        ]
        sizes = [
            float(np.sum(np.abs(g * t)))
            for g, t in zip(back, ways, strict=True)
            if g is not None and t is not None
        ]
        # both are sums of at most 10,000 terms of these sizes, each after some tens of roundings
        limit = 1e5 * np.finfo(np.float64).eps * max(sum(sizes), 1e-3)
        assert abs(sum(forward) - sum(backward)) <= limit, (
            f"{case}: {sum(forward)} forwards, {sum(backward)} back"
        )


@pytest.mark.sampled(7)
@pytest.mark.parametrize("name", OPS)
def test_jvp_of_record(name):
    check(name, 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_jvp_of_record_every_sample(name):
    check(name, None)
