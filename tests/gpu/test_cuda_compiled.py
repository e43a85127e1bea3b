"""Programs on the fake driver, by what their machine code takes for granted: each Triton decides that."""

from __future__ import annotations

import re

import numpy as np
from fake_cuda import Fake, on_fake

import lamina
from lamina import jit
from lamina.ir.errors import DeviceError


# ---- parts of arrays, which begin at any element
@on_fake()
def test_a_part_of_an_array_is_read_where_it_begins(fake: Fake):
    from cuda_interpreting import interpret_launches

    ran = interpret_launches(fake)
    f = jit.trace(lambda x: (x[1:] * 2).relu(), target="cuda")
    for _ in range(3):
        x = lamina.randn(1025, 3)
        assert f(x).tolist() == np.maximum(x.numpy()[1:] * 2, 0).tolist()
    assert ran and f.counts()["eager"] == 0


NUMBERS = (lamina.float64, lamina.float32, lamina.float16, lamina.bfloat16)
NUMBERS += (lamina.int64, lamina.int32, lamina.int16, lamina.int8, lamina.uint8, lamina.bool)


@on_fake()
def test_parts_of_every_type_are_read_where_they_begin(fake: Fake):
    """One operand from an address that no wide access can use, the other from one that it can."""
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    for dtype in NUMBERS:
        x, y = (lamina.randint(0, 2 if dtype is lamina.bool else 9, (67,)).to(dtype) for _ in "xy")
        wide = 16 // x.element_size()
        for one, two in ((1, wide), (wide, wide + 1)):
            f = jit.trace(lambda x, y, one=one, two=two: x[one : one + 49] * y[two : two + 49], target="cuda")
            wanted = f(x, y).tolist()  # recorded: eager
            assert f(x, y).tolist() == wanted, (dtype, one, two)
            assert f.counts()["served"] == 1, f.explain()


@on_fake()
def test_kernels_of_all_kinds_read_parts_where_they_begin(fake: Fake):
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)

    def reduces(x, w):
        return x[1:].sum(1), x[1:].sum(0), x[3:].amax(-1), x[2:].argmax(1), x[1:].cumsum(1)

    def multiplies(x, w):
        return x[1:] @ w[1:, :], (x[3:].half() @ w[:37].half()).relu()

    def looks_up(x, w):
        return w[1:][lamina.tensor([3, 0, 30])], x[1:].index_add(0, lamina.tensor([4, 1]), x[3:5])

    for function in (reduces, multiplies, looks_up):
        traced = jit.trace(function, target="cuda")
        x, w = (
            lamina.randint(-3, 4, (9, 37)).float(),
            lamina.randint(-3, 4, (38, 5)).float(),
        )  # sums are exact
        wanted = [r.tolist() for r in traced(x, w)]  # recorded: eager
        assert [r.tolist() for r in traced(x, w)] == wanted, function
        assert traced.counts()["served"] == 1, traced.explain()


# ---- the driver
@on_fake(version=12080)
def test_a_driver_that_is_older_than_tritons_assembler_is_named(fake: Fake):
    """Each Triton brings its own: code of CUDA 12's runs here, that of CUDA 13's is refused unloaded."""
    from cuda_interpreting import interpret_launches

    interpret_launches(fake)
    f, x = jit.trace(lambda x: x * 2, target="cuda"), lamina.ones(3)
    try:
        assert [f(x).tolist() for _ in range(2)] == [[2.0] * 3] * 2
        assert fake.calls("cuModuleLoadData")
    except DeviceError as error:
        assert re.search("assembled for sm_90 by CUDA 1[3-9].*driver is for CUDA 12.8", str(error))
        assert not fake.calls("cuModuleLoadData")
