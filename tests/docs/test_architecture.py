"""The tour's worked example: the block in docs/architecture.md is all that an op takes."""

import re
from pathlib import Path

import numpy as np
import pytest

import lamina
from lamina.ir.op import REGISTRY
from lamina.runtime.dispatch import eager
from lamina.runtime.inplace import inplace
from tests_ops import every_check

TOUR = Path(__file__).parents[2] / "docs" / "architecture.md"


@pytest.fixture
def squash():
    """The example's record, taken out of the operator set again afterwards."""
    (block,) = re.findall(r"```python\n(.*?)```", TOUR.read_text(), re.DOTALL)
    try:
        exec(compile(block, str(TOUR), "exec"), scope := {})  # noqa: S102 - our own documentation
        yield scope["squash"]
    finally:
        REGISTRY.pop("squash", None)
