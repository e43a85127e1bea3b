"""`python -m lamina embed folder/ [TEXT …]`: vectors of texts."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from ..ir.errors import LaminaError
from .model_folders import load
from .text_encoder import Encoder
from .untrusted import CheckpointError, replace_what_is_no_text


def main(args: Sequence[str]) -> int:
    """Print one vector a line, as JSON, for each text, or for each line of standard input."""
    parser = argparse.ArgumentParser(
        "lamina embed", description="Print a vector for each text, as JSON lines."
    )
    parser.add_argument("model", help="a folder with config.json, safetensors and tokenizer.json")
    parser.add_argument(
        "texts", nargs="*", metavar="TEXT", help="lines of standard input where there is none"
    )
    parser.add_argument("--batch", type=int, default=32, metavar="N", help="texts at a time (32)")
    options = parser.parse_args(args)
    try:
        model = load(options.model)
        if not isinstance(model, Encoder):
            raise CheckpointError(f"{options.model} goes on from texts, and makes no vectors of them")
        replace_what_is_no_text(sys.stdin)
        texts = options.texts or sys.stdin.read().splitlines()
        for row in model.embed(texts, options.batch).numpy().tolist():
            print(json.dumps(row))
    except (LaminaError, OSError) as error:
        print(f"lamina embed: {error}", file=sys.stderr)
        return 1
    return 0
