"""Kernels are timed for as short a while as can be: what tests look at is that they were."""

import pytest

from lamina.viewer import measuring


@pytest.fixture(scope="session", autouse=True)
def short_times():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "SECONDS", 0.0)
        patch.setattr(measuring, "LEAST_RUNS", 2)
        yield
