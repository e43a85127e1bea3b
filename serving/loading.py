"""What a generation loads: models, tried out, and what workers make of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from ..ir.errors import LaminaError
from . import serve_worker  # before the workers are forked, which then share it
from .fleet import Fleet
from .meters import GENERATION
from .refusals import ServeError
from .serve_options import Options
from .served_models import TensorModel, opened

LOG = logging.getLogger("lamina.serving")
__all__ = ["fleet_of", "serve_worker"]


def fleet_of(options: Options, number: int) -> Callable[[], Fleet]:
    """What makes a worker's fleet of the models, which are loaded here.  Raises ServeError."""
    models = []
    for name, path in options.models.items():
        begun = time.monotonic()
        try:
            model = opened(name, path, options.bounds, options.untrusted)
        except (LaminaError, OSError) as error:
            raise error if isinstance(error, ServeError) else ServeError(f"{name}: {error}") from error
        models.append(model)
        how = f"one by one: {model.alone}" if isinstance(model, TensorModel) and model.alone else model.kind
        LOG.info("%s: %s loaded in %.1f s, %s", name, path, time.monotonic() - begun, how)
    GENERATION.set(number)
    started = int(time.time())
    return lambda: Fleet(models, options.bounds, started, number)
