"""Print, after the tests of the op records, which of them no kernel computes and why."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    from lamina.ir.lowering import NotLowered
    from lamina.ir.op import REGISTRY

    without = {name: op.lower for name, op in sorted(REGISTRY.items()) if isinstance(op.lower, NotLowered)}
    if not REGISTRY:
        return
    terminalreporter.write_sep(
        "-", f"{len(REGISTRY) - len(without)} of {len(REGISTRY)} op records are lowered"
    )
    for kind in ("extern", "host-only"):
        names = {name: lower for name, lower in without.items() if lower.kind == kind}
        terminalreporter.write_line(f"{kind}: {len(names)}")
        for name, lower in names.items():
            terminalreporter.write_line(f"  {name}: {lower.reason}")
