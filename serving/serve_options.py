"""What the command line of `python -m lamina serve` says."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from .bounds import MEBI, Bounds
from .refusals import ServeError

LOCAL = ("localhost", "127.0.0.1", "::1")
# Options that are fields of `Bounds`: what is said of them, and what the number is multiplied by.
BOUNDS: dict[str, tuple[str, float]] = {
    "batch": ("rows that run together at most", 1),
    "wait": ("milliseconds that a run waits for more rows while requests keep coming", 1e-3),
    "queue": ("requests that may wait for a model; more are answered 429", 1),
    "timeout": ("seconds within which a request is answered; else 504", 1),
    "generate_timeout": ("seconds within which a text ends", 1),
    "body": ("MiB of one request", MEBI),
    "bodies": ("MiB that all requests and answers at work may hold in a worker", MEBI),
    "values": ("numbers and other values in JSON, in and out", 1),
    "call_bytes": ("MiB that one run may ask for (2048, or four times the model's file)", MEBI),
    "max_tokens": ("tokens of one text at most", 1),
    "characters": ("characters of the texts that one request brings to be read", 1),
    "generations": ("texts that a worker writes at once", 1),
    "connections": ("connections of a worker", 1),
    "header_time": ("seconds for the headers of a request", 1),
    "body_time": ("seconds for its body", 1),
    "idle": ("seconds for which a connection may be silent between requests", 1),
    "grace": ("seconds that a stopping worker gives what it has begun", 1),
}


@dataclass(frozen=True)
class Options:
    """How the server runs.

    certificate, key: of TLS, in PEM; without a certificate there is none.  supervisor: the process that loads
    models anew, where there is one.
    """

    models: Mapping[str, Path]
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int | None = None
    tokens: tuple[str, ...] = ()
    untrusted: bool = False
    http: str = "auto"
    certificate: Path | None = None
    key: Path | None = None
    bounds: Bounds = Bounds()
    supervisor: int = 0

    @property
    def local(self) -> bool:
        """Whether this machine alone is listened to."""
        return self.host in LOCAL


def read(argv: Sequence[str]) -> Options:
    """The options of a command line.  Raises ServeError for what does not go together."""
    parser = argparse.ArgumentParser("lamina serve", description="Serve models over HTTP.")
    about = "a .lam, .onnx or .gguf file, or a language model's folder; NAME=PATH gives it another name"
    parser.add_argument("models", nargs="+", metavar="model", help=about)
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen at (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="the port (8000); 0 for any that is free")
    parser.add_argument("--workers", type=int, default=1, help="processes that answer (1)")
    parser.add_argument("--threads", type=int, help="threads of each (the CPUs, shared out)")
    about = "what clients must show, `Authorization: Bearer TOKEN`; or LAMINA_TOKEN; several with commas"
    parser.add_argument("--token", default=os.environ.get("LAMINA_TOKEN", ""), help=about)
    about = "a certificate with its chain, PEM: the server speaks TLS"
    parser.add_argument("--certfile", type=Path, metavar="FILE", help=about)
    about = "the certificate's key, PEM, where it is not in --certfile; no password"
    parser.add_argument("--keyfile", type=Path, metavar="FILE", help=about)
    about = "listen beyond this machine without a token"
    parser.add_argument("--open", action="store_true", help=about)
    about = "compile the graphs of .lam files anew, instead of running the code in them"
    parser.add_argument("--untrusted", action="store_true", help=about)
    parser.add_argument("--http", choices=["auto", "httptools", "h11"], default="auto", help="the parser")
    defaults = Bounds()
    for name, (about, factor) in BOUNDS.items():
        usual = getattr(defaults, name)
        told = "" if usual is None else f" ({usual / factor:g})"
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=about + told, metavar="N")
    given = parser.parse_args(argv)
    kinds = {field.name: str(field.type) for field in fields(Bounds)}
    said = {}
    for name, (_, factor) in BOUNDS.items():
        if (value := getattr(given, name)) is not None:
            if not 0 < value < math.inf and not (name == "wait" and value == 0):
                parser.error(f"--{name.replace('_', '-')} is a number above 0")
            said[name] = value * factor if kinds[name] == "float" else max(1, round(value * factor))
    if given.workers < 1 or given.threads is not None and given.threads < 1:
        parser.error("--workers and --threads are 1 or more")
    if not 0 <= given.port < 1 << 16:  # larger ones would be taken modulo this
        parser.error("--port is a number from 0 to 65535")
    if given.keyfile is not None and given.certfile is None:
        parser.error("--keyfile goes with --certfile")
    options = Options(
        named_paths(given.models), given.host, given.port, given.workers, given.threads,
        tuple(filter(None, (token.strip() for token in given.token.split(",")))), given.untrusted, given.http,
        given.certfile, given.keyfile, replace(defaults, **said),
    )  # fmt: skip
    if not options.local and not options.tokens and not given.open:
        raise ServeError(
            f"--host {options.host} lets others ask, and no token is set",
            "give --token or LAMINA_TOKEN, or say --open",
        )
    return options


def named_paths(given: Sequence[str]) -> dict[str, Path]:
    """The paths of a command line by name: NAME=PATH, or a path whose stem is it.  Raises ServeError."""
    found: dict[str, Path] = {}
    for each in given:
        name, sign, rest = each.partition("=")
        path = Path(rest if sign else each)
        name = name if sign else path.stem if path.is_file() else Path(os.path.abspath(path)).name
        if not path.exists():
            raise ServeError(f"there is no {path}")
        if not name or not name.isprintable() or "/" in name:
            raise ServeError(f"{name!r} can't be the name of a model", "write NAME=PATH")
        if name in found:
            raise ServeError(f"two models are named {name}: {found[name]} and {path}", "write NAME=PATH")
        found[name] = path
    return found
