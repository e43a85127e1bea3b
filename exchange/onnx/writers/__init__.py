"""How Lamina's ops are written as ONNX, by families (see graph_writer.py)."""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.exchange.onnx.writers"
    )

from importlib import import_module

from .graph_writer import REFUSED, STAND_INS, WRITERS, Writer, reason_against

FAMILIES = (
    "scalar_writers", "shape_writers", "reduction_writers", "layer_writers", "creation_writers",
    "loss_writers", "complex_writers", "resize_writers", "byte_writers", "refused_ops",
)  # fmt: skip
for _family in FAMILIES:
    import_module(f".{_family}", __name__)

__all__ = ["REFUSED", "STAND_INS", "WRITERS", "Writer", "reason_against"]
