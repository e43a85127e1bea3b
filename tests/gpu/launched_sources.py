"""Launches on the fake driver run the kernel's Triton source in the interpreter, on the fake's memory.

    sources = Sources(fake)
    sources.add(code, binary)      # for each kernel that may be launched

Every access must lie in live device memory, and each address must be as well aligned as the code declares and
as the machine code's widest access needs.  For processes of their own: TRITON_INTERPRET counts when triton
is imported.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import fake_solver
import interpreter_faults
import ml_dtypes
import numpy as np
import triton.language as tl
from fake_cuda import Fake, Launch
from ptx_accesses import widest
from triton.runtime.interpreter import TensorHandle
from watched_memory import watch

from lamina.passes.triton.binary import Binary
from lamina.passes.triton.code import ALIGNMENT, Code
from lamina.passes.triton.compiler import build
from lamina.runtime.cuda.launch import layout

interpreter_faults.repair()

NUMBERS = {"i1": "?", "u1": "?", "fp16": "f2", "bf16": ml_dtypes.bfloat16, "fp32": "f4", "fp64": "f8"}
NUMBERS |= {f"{kind}{bits}": f"{kind}{bits // 8}" for kind in "iu" for bits in (8, 16, 32, 64)}


class Sources:
    """Kernels by name, and what was launched of them, in the order in which it ran."""

    def __init__(self, fake: Fake):
        self.ran: list[str] = []
        self._fake = fake
        self._kernels: dict[str, tuple[Code, object]] = {}
        fake.on_launch(self._launched)
        watch(fake.blocks, fake.touched)

    def add(self, code: Code, binary: Binary | None = None) -> None:
        self._kernels[code.name] = (code, build(code.source, code.name))
        needed = widest(binary.text, len(code.parameters)) if binary else [1] * len(code.parameters)
        steps = (ALIGNMENT if kind[0] == "*" else code.step for kind in code.parameters)
        declared = (step if aligned else 1 for step, aligned in zip(steps, code.aligned, strict=True))
        self._fake.align(code.name, [*map(max, declared, needed)])

    def _launched(self, launch: Launch) -> None:
        if fake_solver.is_routine(launch.name):
            fake_solver.run(launch, self._blocks_of(launch), self._fake)
            self.ran.append(launch.name)
            return
        code, function = self._kernels[launch.name]
        places = layout(code.parameters)
        parts = [launch.parameters[start : start + size] for start, size in places]
        if not self._runs_otherwise(launch, code, parts):
            with np.errstate(all="ignore"):
                function[launch.grid](*map(argument, code.parameters, parts))  # type: ignore[index]
        self.ran.append(launch.name)

    def _blocks_of(self, launch: Launch) -> Sequence[tuple[int, int]]:
        """Address and size of the memory that a launch may touch."""
        return self._fake.blocks()

    def _runs_otherwise(self, launch: Launch, code: Code, parts: list[bytes]) -> bool:
        """Whether something else than the interpreter has run a launch.  parts: its parameters."""
        return False


def number(kind: str, data: bytes) -> Any:
    return np.frombuffer(data, np.uint64 if kind[0] == "*" else NUMBERS[kind])[0].item()


def argument(kind: str, data: bytes) -> object:
    """A parameter as the interpreter takes it: a ready pointer value, which it passes on, or a number."""
    if kind[0] != "*":
        return number(kind, data)
    pointer = tl.pointer_type(tl.str_to_ty(kind, None).element_ty)
    return tl.tensor(TensorHandle(np.frombuffer(data, np.uint64), pointer), pointer)
