"""`python -m lamina plan model.py --mesh 8x64 --device h200`: a training step before it is paid for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from ..ir.errors import LaminaError
from .accelerators import DEVICES
from .layer_costs import OPTIMIZERS, PRECISIONS, ModelCosts
from .mesh_layout import PlanError
from .model_file import costs_of_file
from .plan_page import write_page
from .plan_picture import write_picture
from .step_plan import plan
from .transformer_costs import transformer


def main(argv: Sequence[str]) -> int:
    """Tell how a training step of a model would fit and run on many devices; none of them is needed."""
    parser = argparse.ArgumentParser("lamina plan", description=main.__doc__)
    about = "a file that defines model() and example(), and loss(model, *example) if it has one"
    parser.add_argument("model", nargs="?", help=about)
    about = "a transformer in its place: layers=96,hidden=12288,heads=96,vocab=51200,seq=2048, or llama3-405b"
    parser.add_argument("--gpt", metavar="SHAPE", help=about)
    about = "devices of a node x nodes, as 8x64; or devices, as 512"
    parser.add_argument("--mesh", metavar="PxN", required=True, help=about)
    parser.add_argument(
        "--device", default="h100", help=f"{', '.join(DEVICES)}, or cpu, which is measured (h100)"
    )
    parser.add_argument("--batch", type=int, help="samples of a step, over all devices (8 for each)")
    parser.add_argument("--seq", type=int, help="tokens of a sequence, in place of --gpt's")
    parser.add_argument(
        "--precision", choices=PRECISIONS, help="of products and what is stored (bf16; cpu: fp32)"
    )
    parser.add_argument("--optimizer", default="adamw", choices=OPTIMIZERS, help="(adamw)")
    parser.add_argument(
        "--layout", metavar="AXES", help="one to look at, as dp=8,tp=8,pp=8,zero=1; else all are searched"
    )
    parser.add_argument("--measured", type=float, metavar="SECONDS", help="what a step took, to compare with")
    parser.add_argument("--html", metavar="FILE", help="draw it as a page")
    parser.add_argument("--png", metavar="FILE", help="draw it as a picture (needs matplotlib)")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    options = parser.parse_args(argv)
    if (options.model is None) == (options.gpt is None):
        parser.error("name a model's file, or --gpt")
    if options.seq is not None and options.gpt is None:
        parser.error("--seq: a file's example() says how long its sequences are")
    try:
        made = plan(
            _costs(options), mesh=options.mesh, device=options.device, batch=options.batch,
            optimizer=options.optimizer, layout=options.layout, measured=options.measured,
        )  # fmt: skip
        for path, write in ((options.html, write_page), (options.png, write_picture)):
            if path is not None:
                write(made, path)
    except (LaminaError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(made.data(), indent=1) if options.json else made)
    return 0 if made.best and made.best[0].fits else 3


def _costs(options: argparse.Namespace) -> ModelCosts:
    precision = options.precision or ("fp32" if options.device == "cpu" else "bf16")
    if options.gpt is None:
        return costs_of_file(Path(options.model), precision)
    if options.seq is not None and options.seq < 1:
        raise PlanError(f"plan(seq): tokens of a sequence, at least 1, not {options.seq}")
    return transformer(options.gpt, precision=precision, seq=options.seq)
