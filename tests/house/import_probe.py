"""Measure what `import lamina` costs beyond NumPy, in a fresh interpreter; print it as JSON.

Run by the wheel check with the interpreter of a bare environment, and by a test with the developer's own.
"""

import json
import sys
import time

# Each is loaded when it is first needed, by one module. They are watched by name, not only looked up in
# sys.modules, so that `try: import triton` is caught on a machine without Triton too.
HEAVY = (
    "cuda ducc0 jax llvmlite matplotlib mkl_fft networkx onnx onnxruntime safetensors scipy "
    "sklearn sympy torch tqdm triton"
).split()


class Watcher:
    """Note which top-level packages are asked for, and find none of them."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def find_spec(self, name, path=None, target=None):
        self.asked.add(name.partition(".")[0])


def main() -> None:
    """Print {"seconds": what the import takes, "modules": how many it loads, "heavy": which heavy ones}."""
    import numpy  # noqa: F401 - first, so that its own time doesn't count

    watcher = Watcher()
    sys.meta_path.insert(0, watcher)
    before = len(sys.modules)
    begin = time.perf_counter()
    import lamina  # noqa: F401

    seconds = time.perf_counter() - begin
    asked = watcher.asked | {name for name in HEAVY if name in sys.modules}
    found = {"seconds": seconds, "modules": len(sys.modules) - before, "heavy": asked.intersection(HEAVY)}
    print(json.dumps(found, default=sorted))


if __name__ == "__main__":
    main()
