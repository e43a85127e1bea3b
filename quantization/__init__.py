"""Integers in place of floats: models quantised after training, and trained for it.

model = lamina.quantize(model, data)                    # int8, by calibration data
model = lamina.quantize(model, scheme="int4-weights")   # for language models
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.quantization")


from .converting import Quantized, convert
from .layer_report import LayerError, Report, report
from .quantizing import prepare, quantize, quantize_dynamic
from .schemes import SCHEMES, QuantizationError
from .static_bytes import Prepared

__all__ = [
    "SCHEMES", "LayerError", "Prepared", "QuantizationError", "Quantized", "Report", "convert", "prepare",
    "quantize", "quantize_dynamic", "report",
]  # fmt: skip
