"""Leave the folder out where the extra `serve` is not installed."""

from importlib.util import find_spec

import pytest

MISSING = [name for name in ("uvicorn", "starlette", "prometheus_client") if find_spec(name) is None]


class Skipped(pytest.Module):
    """A file whose imports would fail."""

    def collect(self):
        pytest.skip(f"the extra `serve` is not installed: {', '.join(MISSING)}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path, parent):
    return Skipped.from_parent(parent, path=module_path) if MISSING else None
