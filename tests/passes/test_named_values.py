"""Values that kernels name: passes over programs keep them for what reads them, wherever they put that.

What composing finds worth a name stands in a stage of its own, before the stage that it is for.  Any value
may, so kernels are drawn here with names for some of their values, and mean the same before and after a pass.
"""

import random
from dataclasses import replace

import pytest
from image_programs import Builder, check, random_images

from lamina.ir.errors import KernelError
from lamina.ir.kernel import parse
from lamina.ir.kernel.form import Fold, Kernel, Local, Stage
from lamina.ir.kernel.scalar import Cast, Expr, Op, Read, in_order, ref
from lamina.ir.kernel.substitute import Substitution
from lamina.ir.kernel.verify import verify as verify_kernel
from lamina.passes.kernels.blocking import fresh
from lamina.passes.programs import pack_matmuls as module
from lamina.passes.programs.assign_layouts import assign_layouts
from lamina.passes.programs.batch_innermost import batch_innermost
from lamina.passes.programs.channels_last import channels_last
from lamina.passes.programs.pack_matmuls import Options, pack_matmuls
from lamina.passes.programs.program import Call, Program
from lamina.passes.programs.split_calls import split_calls
from lamina.passes.schedules.target import AVX2, AVX512
from lamina.passes.triton.generate import programs_of

PASSES = {
    "batch_innermost": lambda program: batch_innermost(program, AVX512),
    "assign_layouts": lambda program: assign_layouts(program, AVX512),
    "assign_layouts, half as wide": lambda program: assign_layouts(program, AVX2),
    "pack_matmuls": lambda program: pack_matmuls(program, AVX512),
    "pack_matmuls, all weights": lambda program: pack_matmuls(program, AVX2, Options(frozenset((1, 2)))),
    "channels_last": channels_last,
    "split_calls": lambda program: split_calls(program, programs_of),
}
LEFT = ("x[i, k]", "(x[i, k] / sqrt(s[i, 0]))", "exp((x[i, k] - s[i, 1]))", "(x[i, k] + w[0, 0])")
RIGHT = ("w[k, j]", "(w[k, j] / sqrt(s[0, j]))", "tanh((w[k, j] * s[1, j]))", "(w[k, j] * sqrt(s[0, 0]))")
POINTS = (
    "select((coord(k) < 2), sqrt(s[i, j]), f32(0.0))",
    "(w[k, 0] * exp((x[i, 0] / s[i, j])))",
    "(x[i, k] - (1.0 / s[i, j]))",
)
AFTER = ("acc", "(acc + sqrt(s[i, j]))", "(max(acc, 0.0) / s[0, j])")


def named(program: Program, seed: int) -> Program:
    """The program with names for half of what its stages could have computed before them."""
    rng = random.Random(seed)
    return program.replace(
        steps=tuple(
            replace(step, kernel=_named(step.kernel, rng)) if isinstance(step, Call) else step
            for step in program.steps
        )
    )


def _named(kernel: Kernel, rng: random.Random) -> Kernel:
    stages: list[Stage] = []
    for stage in kernel.stages:
        named = dict[Expr, Expr]()
        for expr in () if isinstance(stage, Fold) else _before(kernel, stage.value):
            if rng.random() < 0.5:
                name = fresh(kernel.replace(stages=(*kernel.stages, *stages)), "t")
                stages.append(Local(name, (), Substitution(exprs=named).expr(expr)))
                named[expr] = ref(name)
        stages.append(Substitution(exprs=named).stage(stage))
    return verify_kernel(kernel.replace(stages=tuple(stages)))


def _before(kernel: Kernel, value: Expr) -> list[Expr]:
    """The parts of a value that are one number for each parallel point, but for those of an index."""
    parts = in_order(value)
    indices = {e for part in parts if isinstance(part, Read) for e in in_order(*part.below)}
    return [
        e
        for e in parts
        if isinstance(e, (Op, Cast, Read))
        and e not in indices
        and kernel.free_axes(e) <= kernel.parallel_names
        and kernel.dtype_of(e) is not None
    ]


def products(seed: int) -> Program:
    """Products of factors that are computed from a row, a column, a point, or a number of all of them."""
    rng = random.Random(seed)
    rows, outs = rng.choice((1, 3, 40)), rng.choice((2, 33, 50))
    b = Builder("net", (rows, 48))
    w, s = b.param("w", (48, outs)), b.param("s", (max(2, rows), outs))
    results = []
    for _ in range(2):
        left, right = rng.choice(LEFT), rng.choice(RIGHT)
        if rng.random() < 0.4:
            left, right = "w[k, 0]", rng.choice(POINTS)
        inputs = ", ".join(f"{a.name}: f32[{','.join(map(str, a.shape))}]" for a in (b.image, w, s))
        text = (
            f"kernel f({inputs}) -> (y: f32[{rows},{outs}]) {{\n  parallel i:{rows} j:{outs}\n"
            f"  acc = sum(k:48) ({left} * {right})\n  y[i, j] = {rng.choice(AFTER)}\n}}"
        )
        results.append(b.call(parse(text), b.image, w, s))
    return b.program(*results)


@pytest.mark.parametrize("name", PASSES)
def test_images_keep_named_values(name):
    for seed in range(8):
        before = named(random_images(seed), seed)
        check(before, PASSES[name](before), seed)


@pytest.mark.parametrize("name", [name for name in PASSES if "pack" in name])
def test_products_keep_named_values(name):
    for seed in range(40):
        plain = products(seed)
        before = named(plain, seed)
        after = PASSES[name](before)
        check(plain, before, seed)
        check(before, after, seed)
        said = PASSES[name](plain)
        assert [(c.name, str(c.how)) for c in after.calls] == [(c.name, str(c.how)) for c in said.calls]


def test_a_pass_that_loses_named_values_is_seen(monkeypatch):
    monkeypatch.setattr(module, "in_full", lambda kernel: kernel)
    for name in ("pack_matmuls", "pack_matmuls, all weights"):
        with pytest.raises((AssertionError, KernelError)):
            test_products_keep_named_values(name)
