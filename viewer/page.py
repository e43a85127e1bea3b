"""The page: what is shown as JSON inside of page.html, which refers to nothing outside of itself.

A model's names may be anybody's.  They stand in one block of data that no browser runs, escaped so that
nothing in it ends the block, and the page's own script shows them as text.  The policy that the page states
lets that script run, by its hash, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import zlib
from html import escape
from importlib.resources import files
from typing import Any

from ..ir.own_files import replacing
from ..ir.version import __version__
from ..jit.memory_report import memory_of
from ..profiler.limits import Limits
from ..profiler.limits import measured as limits_of
from ..runtime import get_num_threads
from .graph_data import graph_data
from .kernel_data import Kernels, Texts, totals
from .measuring import measured
from .subjects import Shown, Subject

# What the page's script is made of, in order: one scope, so that each may speak of those before it.
SCRIPTS = (
    "elements.js", "layout.js", "sheet.js", "tree.js", "details.js", "tables.js", "page.js",
)  # fmt: skip
FIRST_ARRAYS = 200  # of those that are held where memory is fullest


def write(shown: Shown, path: str | os.PathLike, time: bool) -> None:
    """Write a page.  time: whether kernels are timed."""
    data = page_data(shown, limits_of() if time and shown.subjects else None)
    with replacing(os.fspath(path)) as file:
        file.write(page(shown.title, data).encode(errors="xmlcharrefreplace"))


def page_data(shown: Shown, limits: Limits | None) -> dict[str, Any]:
    """What the page's script draws.  limits: of this machine; without them nothing is timed."""
    texts = Texts()
    parts = [_part(subject, limits, texts) for subject in shown.subjects]
    packed = zlib.compress(json.dumps([*texts.known]).encode(), 9)
    about = [["made by", f"Lamina {__version__}"], *map(list, shown.about)]
    if limits is not None:
        far = limits.bandwidths[-1] / 1e9
        rate = f"{limits.flops / 1e9:.0f} GFLOP/s, {far:.1f} GB/s beyond the caches, {limits.threads} threads"
        about.append(["limit of this machine", rate])
    return {
        "title": shown.title,
        "about": about,
        "parts": parts,
        "declared": dict(shown.declared),
        "whole": None if shown.whole is None else shown.whole * 1e6,
        "texts": base64.b64encode(packed).decode(),
    }


def _part(subject: Subject, limits: Limits | None, texts: Texts) -> dict[str, Any]:
    times = None if limits is None else measured(subject.code, subject.main)
    kernels = Kernels(subject, times, limits, texts).data
    notes = [*subject.notes, *([times.why] if times is not None and times.why else [])]
    if times is not None and times.steps is not None:
        notes.append(
            f"times are the least of {times.runs} runs, with up to {get_num_threads()} threads, on numbers "
            "of the viewer's own"
        )
    memory = memory_of(subject.code)
    memory["held"] = memory["held"][:FIRST_ARRAYS]
    return {
        "name": subject.name,
        "notes": notes,
        "nodes": graph_data(subject),
        "kernels": kernels,
        "totals": totals(kernels),
        "whole": times.whole * 1e6 if times is not None and times.whole else None,
        "memory": memory,
    }


def page(title: str, data: dict[str, Any]) -> str:
    """The text of a page."""
    script = "".join(["\n", '"use strict";\n', *map(_file, SCRIPTS)])
    style = "\n" + _file("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; "
        "form-action 'none'"
    )
    filled = {"POLICY": policy, "TITLE": escape(title), "DATA": inside_of_a_page(data)}
    filled |= {"STYLE": style, "SCRIPT": script}
    return re.sub("{{([A-Z]+)}}", lambda found: filled[found[1]], _file("page.html"))


def inside_of_a_page(data: Any) -> str:
    """JSON in which nothing ends a block, begins a comment or another one, or is not ASCII."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")


def _hash(block: str) -> str:
    """How a policy names a block of a page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(block.encode()).digest()).decode()}'"
