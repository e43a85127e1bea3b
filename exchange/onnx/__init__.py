"""ONNX files in and out.

model = lamina.onnx.load("model.onnx")
y = model(x)
lamina.onnx.export(model, "again.onnx", x, dynamic={"x": {0: "batch"}})
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(f"{__name__} is a folder of Lamina's repository: write import lamina.exchange.onnx")


from .declared import OnnxError
from .network import OnnxModule, load
from .pytorch_export import ONNXProgram, OperatorExportTypes, TrainingMode, export, is_in_onnx_export

__all__ = [
    "ONNXProgram",
    "OnnxError",
    "OnnxModule",
    "OperatorExportTypes",
    "TrainingMode",
    "export",
    "is_in_onnx_export",
    "load",
]
