"""The entry of a phase around the function that an emitter writes."""

from __future__ import annotations

import hashlib

from .emit import Emitter


def entry(emitter: Emitter) -> tuple[str, str]:
    """The symbol of a phase, named after what it does, and the text of its two functions."""
    body = emitter.function("unnamed", "internal ")
    symbol = "o" + hashlib.blake2b(body.encode(), digest_size=10).hexdigest()
    lines = [
        body.replace("@unnamed(", f"@{symbol}.body(", 1),
        f"define void @{symbol}(ptr %args, i64 %lo, i64 %hi) {{",
    ]
    for n in range(len(emitter.kernel.buffers)):
        lines.append(f"  %s{n} = getelementptr ptr, ptr %args, i64 {n}")
        lines.append(f"  %p{n} = load ptr, ptr %s{n}, align 8")
    arguments = [f"ptr %p{n}" for n in range(len(emitter.kernel.buffers))]
    lines.append(f"  call void @{symbol}.body({', '.join([*arguments, 'i64 %lo', 'i64 %hi'])})")
    return symbol, "\n".join([*lines, "  ret void", "}"])
