"""The nodes that straight code makes of a call are those that `node_of` makes of it."""

from itertools import product

import numpy as np
import pytest
from harness import cases
from tensor_checks import tensors

from lamina.ir import dtypes
from lamina.ir.op import REGISTRY
from lamina.runtime.dispatch import known_plan
from lamina.runtime.graph import Saving
from lamina.runtime.history import MOST, node_of, storage_of, writing
from lamina.runtime.tensor import wrap


def same(a, b) -> bool:
    if isinstance(a, tuple):
        return isinstance(b, tuple) and len(a) == len(b) and all(map(same, a, b))
    return a is b or (type(a) is int and a == b)


NAMES = sorted(n for n, op in REGISTRY.items() if op.dtypes not in ("int", "byte", "complex"))


@pytest.mark.parametrize("name", NAMES)
def test_nodes_of_a_call(name):
    op = REGISTRY[name]
    for case in list(cases(op, dtypes.float64))[:4]:
        floats = [x is not None and x.dtype.kind == "f" for x in case.operands]
        if op.traits.host or sum(floats) > 6:
            continue
        for asked in product(*[(False, True) if f else (False,) for f in floats]):
            operands = tuple(tensors(case.operands, asked))
            if asked and asked[0]:  # a view's edge is that of its base, up to date
                operands = (operands[0].view(operands[0].shape), *operands[1:])
            for n, x in enumerate(operands):
                if x is not None:  # as after so many writes
                    storage_of(x).version = n + 1
            plan = known_plan(op, operands, case.attrs)
            arrays = case.run()
            outputs = tuple([wrap(a, t) for a, t in zip(arrays[: case.visible], plan.outs)])
            wanted = node_of(plan, operands, outputs, arrays)
            found = writing(plan)(plan, operands, outputs, arrays)
            assert type(found) is type(wanted), (case, asked)
            if wanted is not None:
                for field in ("plan", "edges", "saved", "guards", "hooks"):
                    assert same(getattr(found, field), getattr(wanted, field)), (case, asked, field)
                assert not isinstance(wanted, Saving) or found.place[0].co_filename.endswith(".py")


def test_many_operands_are_noted_one_by_one():
    op, parts = REGISTRY["cat"], [np.ones(2)] * (MOST + 1)
    operands = tuple(tensors(parts, [True] * len(parts)))
    assert writing(known_plan(op, operands, {"dim": 0, "sizes": (2,) * len(parts)})) is node_of
