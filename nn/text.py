"""How modules print: PyTorch's layout."""

from __future__ import annotations


def indented(text: str) -> str:
    """All lines but the first moved in by two columns."""
    return text.replace("\n", "\n  ")


def framed(name: str, extra: str, lines: list[str]) -> str:
    """PyTorch's layout: extra on the first line where nothing is inside, else a line for everything."""
    extras = extra.split("\n") if extra else []
    if len(extras) == 1 and not lines:
        return f"{name}({extra})"
    if not extras and not lines:
        return f"{name}()"
    return f"{name}(\n" + "".join(f"  {line}\n" for line in extras + lines) + ")"
