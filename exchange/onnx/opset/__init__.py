"""ONNX's operators, by families: each is a function of a node and its operands.

    @operator("Gather", host=lambda node, data, at: ...)
    def gather(node, data, indices): ...

Operands that were left out are None.  What is known without computing on tensors (shapes, constants of the
file) comes as NumPy arrays, `host` values: where all of a call's are such, `host` computes it, so that sizes
stay numbers; else they become tensors.  An operator that is `raw` gets operands as they are.
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.exchange.onnx.opset"
    )

from importlib import import_module

from .registry import OPERATORS, Operator, operator

FAMILIES = (
    "math_nodes", "shape_nodes", "cast_nodes", "quantised_nodes", "reduction_nodes", "product_nodes",
    "norm_nodes", "activation_nodes", "loss_nodes", "conv_nodes", "pool_nodes", "image_nodes", "index_nodes",
    "sequence_nodes", "control_nodes", "text_nodes", "recurrent_nodes", "attention_nodes", "signal_nodes",
    "random_nodes", "training_nodes", "runtime_nodes",
)  # fmt: skip
for _family in FAMILIES:
    import_module(f".{_family}", __name__)

__all__ = ["OPERATORS", "Operator", "operator"]
