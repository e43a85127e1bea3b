"""Answer `torch.hub`: models of a local folder's `hubconf.py`; what would be downloaded is refused."""

from __future__ import annotations

import os
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn
from urllib.parse import urlparse

from ..ir.errors import ArgumentValueError

__all__ = [
    "HASH_REGEX", "download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
    "set_dir", "urlparse",
]  # fmt: skip

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # in the names of files of weights
_dir: str | None = None


def get_dir() -> str:
    """The folder where downloads would lie: $TORCH_HOME/hub."""
    return _dir or os.path.join(_get_torch_home(), "hub")


def _get_torch_home() -> str:
    """$TORCH_HOME, or else a folder of the user's cache."""
    return os.path.expanduser(os.environ.get("TORCH_HOME") or Path.home() / ".cache" / "torch")


def set_dir(d: str | os.PathLike) -> None:
    """Choose the folder where downloads would lie."""
    global _dir
    _dir = os.path.expanduser(d)


def _module(repo_or_dir: str | os.PathLike, source: str) -> ModuleType:
    place = Path(repo_or_dir).expanduser() / "hubconf.py"
    if source != "local":
        _download(f"the repository {repo_or_dir}", "fetch it, and pass the folder with source='local'")
    if not place.is_file():
        raise ArgumentValueError(f"hub: there is no {place}")
    spec = spec_from_file_location("hubconf", place)
    assert spec is not None and spec.loader is not None
    made = module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def _entry(repo_or_dir: Any, model: str, source: str) -> Any:
    found = getattr(_module(repo_or_dir, source), model, None)
    if not callable(found):
        raise ArgumentValueError(f"hub: Cannot find callable {model} in hubconf")
    return found


def load(repo_or_dir: Any, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """Call an entry point of a folder's hubconf.py.  Raises ArgumentValueError for what is not local."""
    for option in ("force_reload", "verbose", "trust_repo", "skip_validation"):
        kwargs.pop(option, None)
    return _entry(repo_or_dir, model, source)(*args, **kwargs)


def help(github: Any, model: str, *_: Any, source: str = "github", **__: Any) -> str | None:
    """The docstring of an entry point."""
    return _entry(github, model, source).__doc__


def list(github: Any, *_: Any, source: str = "github", **__: Any) -> Any:
    """The entry points of a folder's hubconf.py."""
    found = vars(_module(github, source))
    return [name for name, value in found.items() if callable(value) and not name.startswith("_")]


def _download(what: str, instead: str) -> NoReturn:
    raise ArgumentValueError(f"hub: Lamina downloads nothing, so not {what}", instead)


def load_state_dict_from_url(url: str, *_: Any, **__: Any) -> NoReturn:
    """Refused, with what to do instead."""
    _download(url, "download the file, and torch.load it")


load_url = load_state_dict_from_url  # by its older name, torch.utils.model_zoo.load_url


def download_url_to_file(url: str, dst: str, *_: Any, **__: Any) -> NoReturn:
    """Refused, with what to do instead."""
    _download(url, f"fetch it to {dst} with curl, wget or urllib.request")
