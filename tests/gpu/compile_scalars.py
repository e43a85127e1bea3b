"""Compile kernels that take numbers of every type: the program of a process that test_cuda_launch.py starts.

    compile_scalars.py FOLDER TARGET...

For each target and each kernel it writes FOLDER/<target>-<k>.cubin, and FOLDER/kernels.json with its types.
"""

import json
import linecache
import random
import sys
import types
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lamina.runtime.cuda.launch import SCALARS

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def numbers({names}, out):
    total = {total}
    tl.store(out + tl.arange(0, 32), total + tl.zeros([32], tl.float32))
"""


def signatures() -> list[tuple[str, ...]]:
    """Every type once, in three orders, with a pointer here and there; and a few short ones."""
    rng, found = random.Random(3), []
    for _ in range(3):
        kinds = [*SCALARS, "*fp32", "*i8"]
        rng.shuffle(kinds)
        found.append((*kinds, "*fp32"))
    return [
        *found,
        ("i1", "*fp32"),
        ("i8", "fp64", "*fp32"),
        ("fp16", "i32", "*fp32"),
        ("bf16", "*fp32"),
        ("*fp32",),
    ]


def function(signature: tuple[str, ...]) -> triton.JITFunction:
    names = [f"a{k}" for k in range(len(signature) - 1)]
    terms = [
        f"tl.load({n}).to(tl.float32)" if t[0] == "*" else f"{n}.to(tl.float32)"
        for n, t in zip(names, signature)
    ]
    terms = [term if kind != "fp32" else name for term, name, kind in zip(terms, names, signature)]
    source = SOURCE.format(names=", ".join(names), total=" + ".join(terms) or "0.0").replace("(, ", "(")
    path = f"<numbers-{hash(source)}>"
    linecache.cache[path] = (len(source), None, source.splitlines(True), path)
    module = types.ModuleType("numbers_module")
    exec(compile(source, path, "exec"), module.__dict__)
    return module.numbers


def main(folder: Path, targets: list[str]) -> None:
    kernels = []
    for target in targets:
        for k, signature in enumerate(signatures()):
            made = function(signature)
            source = ASTSource(made, dict(zip(made.arg_names, signature, strict=True)))
            gpu = GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
            compiled = triton.compile(source, target=gpu, options={"enable_fp_fusion": True})
            file = f"{target}-{k}.cubin"
            (folder / file).write_bytes(compiled.asm["cubin"])
            kernels.append(
                {"file": file, "target": target, "types": signature, "name": compiled.metadata.name}
            )
    (folder / "kernels.json").write_text(json.dumps(kernels))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
