"""Run a program written for PyTorch, as Python would, with Lamina where it imports torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from types import CodeType, ModuleType, TracebackType
from typing import Any

from . import late
from .playing import answer


def run(script: str, args: Sequence[str] = ()) -> int:
    """Run a program as `python script args…` does, but for `torch`.  Returns the exit status.

    script: a file; `-` for standard input, `-m` for the module and `-c` for the text that come first among
    the arguments.  Exceptions and SystemExit pass through; tracebacks begin at the program.  What can't be
    read is status 2, a module that is not there 1.
    """
    answer()
    if script in ("-m", "-c"):
        if not args:
            print(f"lamina run: argument expected for the {script} option", file=sys.stderr)
            return 2
        return _run_module(args[0], args[1:]) if script == "-m" else _run_text(args[0], ["-c", *args[1:]])
    if script == "-":
        return _run_text(sys.stdin.read(), ["-", *args], "<stdin>")
    try:
        with open(script, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"lamina run: can't open file {script!r}: {error.strerror}", file=sys.stderr)
        return 2
    path = os.path.abspath(script)  # as Python spells it in __file__ and in tracebacks
    main = _prepare([script, *args], os.path.dirname(os.path.realpath(script)), __file__=path)
    return _execute(source, path, main)


def _run_text(text: str, argv: list[str], name: str = "<string>") -> int:
    main = _prepare(argv, "")
    return _execute(text, name, main)


def _run_module(name: str, args: Sequence[str]) -> int:
    main = _prepare(["-m", *args], os.getcwd())
    try:
        spec = find_spec(name)
        if spec is not None and isinstance(spec.loader, late.Alias):  # a room's: torch.distributed.run
            spec = find_spec(name := spec.loader.module.__name__)
        if spec is not None and spec.submodule_search_locations is not None:  # a package
            name = f"{name}.__main__"
            spec = find_spec(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(
            f"{error.name}."
        ):  # one that it imports is missing
            raise
        spec = None
    code: CodeType | None = None
    if spec is not None and hasattr(spec.loader, "get_code"):
        code = spec.loader.get_code(name)
    if spec is None or code is None:
        print(f"lamina run: No module named {name}", file=sys.stderr)
        return 1
    sys.argv[0] = str(spec.origin)
    vars(main).update(
        __file__=spec.origin, __spec__=spec, __package__=spec.parent, __loader__=spec.loader,
        __cached__=spec.cached,
    )  # fmt: skip
    return _execute(code, str(spec.origin), main)


def _prepare(argv: list[str], folder: str, **names: Any) -> ModuleType:
    """Make `__main__`, and put what the program finds in `sys` there."""
    main = ModuleType("__main__")
    vars(main).update(names, __builtins__=sys.modules["builtins"])
    # It stays: what runs at exit, and pickle, look for the program's names there.
    sys.modules["__main__"] = main
    sys.argv = argv
    if not sys.flags.safe_path:
        sys.path[0] = folder
    return main


def _execute(source: str | bytes | CodeType, path: str, main: ModuleType) -> int:
    _hide_runner(main)
    code = source if isinstance(source, CodeType) else compile(source, path, "exec", dont_inherit=True)
    exec(code, vars(main))
    return 0


def _hide_runner(main: ModuleType) -> None:
    """Print tracebacks from the program's first line on, as if Python itself had started it."""
    before = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        while trace is not None and trace.tb_frame.f_globals is not vars(main):
            trace = trace.tb_next
        before(kind, error.with_traceback(trace), trace)

    sys.excepthook = hook
