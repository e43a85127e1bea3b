"""Tensors on a device compute what the CPU's do, op by op: on the fake driver, in Triton's interpreter.

By code for the sizes that it is compiled for, and by code for all sizes.
"""

from __future__ import annotations

import os

import pytest
from fake_cuda import Fake, case, missing, run_case

PARTS = 24


@case
def records(fake: Fake) -> None:
    from cuda_interpreting import interpret_launches
    from device_records import check_part

    from lamina.runtime.cuda import sizes_met

    if os.environ["SIZES"] == "parameters":
        sizes_met.OF_ALL = sizes_met.OF_PRODUCTS = 1
    ran = interpret_launches(fake)
    assert check_part(int(os.environ["PART"]), PARTS) > 20 and len(ran) > 20


@pytest.mark.skipif(bool(missing()), reason=missing())
@pytest.mark.sampled(12)
@pytest.mark.timeout(600)  # compiling takes as long as other processes let it
@pytest.mark.parametrize("sizes", ["known", "parameters"])
@pytest.mark.parametrize("part", range(PARTS))
def test_records_on_a_device(part, sizes):
    run_case(records, PART=part, SIZES=sizes)
