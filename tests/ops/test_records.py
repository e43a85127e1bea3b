"""Every op record, held to what ir/op.py promises of it.  One test for each op and check: `-k softmax` runs
one op's.
"""

import checks
import pytest
import tensor_checks

from lamina.ir.op import REGISTRY

CHECKS = {
    name.removeprefix("check_"): check
    for module in (checks, tensor_checks)
    for name, check in vars(module).items()
    if name.startswith("check_")
}
OPS = sorted(n for n, op in REGISTRY.items() if op.dtypes != "complex")  # those: test_complex.py


@pytest.mark.sampled(7)
@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("name", OPS)
def test_record(name, check):
    CHECKS[check](REGISTRY[name])
