"""Hold what hands out NumPy's view of a tensor to a list that someone has read.

`x.numpy()` counts as memory that anybody may write from then on, so what traced code packs of a weight is
packed again at each call.  What only reads asks `runtime.levels.array_of`.
"""

import ast

import package_tree

ROOMS = (
    "data", "exchange", "jit", "language", "nn", "optim", "profiler", "quantization", "serving", "viewer",
)  # fmt: skip

# file -> how many calls, and why no weight is handed out
REVIEWED = {
    "exchange/onnx/opset/registry.py": (1, "numbers that nodes take as attributes, which are no weights"),
    "exchange/onnx/run_file.py": (1, "results"),
    "language/embed.py": (1, "results"),
    "language/text_encoder.py": (1, "results"),
    "language/text_model.py": (1, "results"),
    "nn/init.py": (3, "numbers that were drawn, before they are anybody's"),
    "serving/served_models.py": (2, "results"),
    "serving/text_queue.py": (1, "results"),
}


def calls(text: str) -> int:
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "numpy"
        and not node.args
        for node in ast.walk(ast.parse(text))
    )


def test_weights_are_read_without_being_handed_out():
    counted = {}
    for room in ROOMS:
        for file in (package_tree.ROOT / room).rglob("*.py"):
            if found := calls(file.read_text()):
                counted[str(file.relative_to(package_tree.ROOT))] = found
    assert counted == {name: count for name, (count, _) in REVIEWED.items()}


def test_a_planted_call_is_counted():
    assert calls("w = layer.weight.detach().numpy()") == 1 and calls("x.numpy") == 0
