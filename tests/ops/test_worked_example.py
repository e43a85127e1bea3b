"""Adding an op takes one place: the block in docs/architecture.md, and nothing else."""

import re
from pathlib import Path

import numpy as np
import pytest
from test_records import CHECKS

from lamina.ir.op import REGISTRY
from lamina.runtime.ops import FUNCTIONS
from lamina.runtime.tensor import Tensor

TOUR = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.fixture
def squash():
    """The example's record, taken out of the operator set again afterwards."""
    block = re.findall(r"```python\n(.*?)```", TOUR.read_text(), re.DOTALL)[0]
    scope: dict = {}
    try:
        exec(compile(block, str(TOUR), "exec"), scope)
        yield scope["squash"]
    finally:
        for entered in (REGISTRY, FUNCTIONS):
            entered.pop("squash", None)
        for name in ("squash", "squash_"):
            if hasattr(Tensor, name):
                delattr(Tensor, name)


def test_the_block_makes_an_op_that_passes_every_check(squash):
    for check in CHECKS.values():
        check(squash)


def test_the_op_is_what_the_tour_says(squash):
    import lamina

    x = lamina.tensor([-3.0, 0.5], dtype=lamina.float64, requires_grad=True)
    y = squash(x)
    expected = np.log1p(np.abs([-3.0, 0.5])) * np.array([-3.0, 0.5]) / (np.abs([-3.0, 0.5]) + 1e-6)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-15)
    assert lamina.autograd.gradcheck(squash, x) and lamina.autograd.gradgradcheck(squash, x)
