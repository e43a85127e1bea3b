"""What is written with ops makes its own tensors where its arguments are: on the fake driver, in Triton's
interpreter.
"""

from __future__ import annotations

import os

import pytest
from fake_cuda import Fake, case, missing, run_case

PARTS = 12


@case
def calls(fake: Fake) -> None:
    from cuda_interpreting import interpret_launches
    from device_calls import check_calls

    interpret_launches(fake)
    assert check_calls(int(os.environ["PART"]), PARTS) > 20


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.sampled(6)
@pytest.mark.timeout(600)  # compiling takes as long as other processes let it
@pytest.mark.parametrize("part", range(PARTS))
def test_right_calls_on_a_device(part):
    run_case(calls, PART=part)


@case
def families(fake: Fake) -> None:
    from cuda_interpreting import interpret_launches
    from device_calls import check_distributions

    interpret_launches(fake)
    assert check_distributions(int(os.environ["PART"]), PARTS) > 1


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.sampled(6)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(PARTS))
def test_distributions_on_a_device(part):
    run_case(families, PART=part)
