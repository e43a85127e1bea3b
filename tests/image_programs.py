"""Programs over images: convolutions with epilogues, pools, joins, and what follows."""

import random
from dataclasses import replace

import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the records
from lamina.ir.dtypes import float32
from lamina.ir.kernel.affine import as_affine
from lamina.ir.kernel.form import Axis, Buffer, Kernel, Store
from lamina.ir.kernel.scalar import op, read
from lamina.ir.kernel.verify import verify as verify_kernel
from lamina.ir.op import REGISTRY
from lamina.ir.types import type_of
from lamina.passes.graphs.lower import lower
from lamina.passes.programs.program import Alias, Array, Call, Program, interpret, verify


def kernel_of(name: str, shapes: list[tuple[int, ...]], *args, **kwargs) -> Kernel:
    """The kernel of a record, on float32 operands of those shapes."""
    record = REGISTRY[name]
    operands, attrs = record.bind(*(type_of(float32, shape) for shape in shapes), *args, **kwargs)
    return lower(record, operands, attrs)


def conv_kernel(image, weight, *, bias=True, residual=False, relu=True, **window) -> Kernel:
    """conv2d with an epilogue: + bias, + residual, relu."""
    shapes = [image, weight, weight[:1]] if bias else [image, weight]
    kernel = kernel_of(f"conv{len(image) - 2}d", shapes, **window)
    store, inputs = kernel.stages[-1], kernel.inputs
    value = store.value
    if residual:
        inputs = (*inputs, Buffer("residual", "f32", kernel.outputs[0].shape))
        value = op("add", value, read("residual", store.index))
    if relu:
        value = op("max", value, 0)
    return kernel.replace(
        name="conv", inputs=inputs, stages=(*kernel.stages[:-1], replace(store, value=value))
    )


class Builder:
    """Collects the steps of a program, and its weights as params."""

    def __init__(self, name: str, image: tuple[int, ...]):
        self.name, self.image = name, Array("x", "f32", image)
        self.params, self.steps = [self.image], []

    def param(self, name: str, shape: tuple[int, ...]) -> Array:
        self.params.append(Array(name, "f32", shape))
        return self.params[-1]

    def call(self, kernel: Kernel, *inputs: Array, name: str = "y") -> Array:
        outputs = tuple(Array(name, b.dtype, b.shape) for b in kernel.outputs)
        self.steps.append(Call(kernel, inputs, outputs))
        return outputs[0]

    def op(self, record: str, *inputs: Array, only: int = 1, **kwargs) -> Array:
        """A record's kernel; `only` its first outputs, as when nothing reads the others."""
        kernel = kernel_of(record, [a.shape for a in inputs], **kwargs)
        gone = {b.name for b in kernel.outputs[only:]}
        stages = tuple(s for s in kernel.stages if getattr(s, "buffer", None) not in gone)
        return self.call(kernel.replace(outputs=kernel.outputs[:only], stages=stages), *inputs, name=record)

    def alias(self, x: Array, shape: tuple[int, ...]) -> Array:
        """The same elements under another shape."""
        view = Array("view", x.dtype, shape)
        self.steps.append(Alias((x,), (view,)))
        return view

    def shuffled(self, x: Array, groups: int) -> Array:
        """Its channels dealt out: the first of each group, then the second of each.

        As view, transpose and reshape are fused: y[n, i, g, h, w] = x[n, i + c/groups*g, h, w].
        """
        n, c, h, w = x.shape
        split = (n, c // groups, groups, h, w)
        axes = [Axis(name, extent) for name, extent in zip("nighw", split, strict=True)]
        at = {axis.name: as_affine(axis.name) for axis in axes}
        value = read("x", (at["n"], at["i"] + at["g"] * (c // groups), at["h"], at["w"]))
        buffers = (Buffer("x", "f32", x.shape),), (Buffer("y", "f32", split),)
        shuffle = Kernel("shuffle", *buffers, tuple(axes), (Store("y", tuple(at.values()), value),))
        return self.alias(self.call(verify_kernel(shuffle), x), x.shape)

    def cat(self, *parts: Array) -> Array:
        """Joined along the channels."""
        record = REGISTRY["cat"]
        operands, attrs = record.bind([type_of(float32, a.shape) for a in parts], 1)
        return self.call(lower(record, operands, attrs), *parts, name="cat")

    def conv(
        self, x: Array, outs: int, size: int = 3, residual: Array | None = None, weight=None, **how
    ) -> Array:
        count = sum(step.name == "conv" for step in self.steps)
        shape = (outs, x.shape[1] // how.get("groups", 1), *(size,) * (len(x.shape) - 2))
        weight = weight or self.param(f"w{count}", shape)
        kernel = conv_kernel(x.shape, weight.shape, residual=residual is not None, **how)
        operands = [x, weight]
        if how.get("bias", True):
            operands.append(self.param(f"b{count}", shape[:1]))
        return self.call(kernel, *operands, *([residual] if residual else []), name=f"c{count}")

    def program(self, *results: Array) -> Program:
        return verify(Program(self.name, tuple(self.params), tuple(self.steps), results))


def small_network(channels: int = 16) -> Program:
    """Stem, a residual block, a strided convolution, a depthwise one and a projection; pool and mean."""
    b = Builder("net", (1, 3, 32, 32))
    stem = b.op(
        "max_pool2d", b.conv(b.image, channels, 7, stride=2, padding=3), kernel_size=3, stride=1, padding=1
    )
    block = b.conv(b.conv(stem, channels, padding=1), channels, padding=1, residual=stem)
    down = b.conv(block, 2 * channels, padding=1, stride=2)
    deep = b.conv(down, 2 * channels, padding=1, groups=2 * channels)
    last = b.conv(deep, channels, 1, relu=False, bias=False)
    return b.program(b.op("mean", last, dim=(2, 3)))


def random_images(seed: int) -> Program:
    """A random program: convolutions of all sorts between pools, activations, sums and joins."""
    rng = random.Random(seed)
    b = Builder(
        "images", (rng.randint(1, 2), rng.choice((1, 3, 4, 8, 32)), rng.randint(5, 9), rng.randint(5, 9))
    )
    values = [b.image]
    for _ in range(rng.randint(3, 7)):
        x = rng.choice(values[-3:])
        kind = rng.choice(
            (
                "conv",
                "conv",
                "conv",
                "depthwise",
                "pool",
                "mean pool",
                "tanh",
                "add",
                "norm",
                "cat",
                "shuffle",
            )
        )
        fits = len(x.shape) == 4 and min(x.shape[2:]) >= 3
        if kind in ("conv", "depthwise") and fits:
            size, dilation = rng.choice(((3, 1), (3, 1), (1, 1), (2, 1), (3, 2), (5, 1)))
            padding = rng.randint(0, dilation * (size - 1)) + (rng.random() < 0.2)
            room = min(x.shape[2:]) + 2 * padding - dilation * (size - 1)
            outs = x.shape[1] if kind == "depthwise" else rng.choice((4, 6, 8, 12, 3, 32, 30))
            if room >= 1:
                how = {"padding": padding, "dilation": dilation, "stride": rng.choice((1, 1, 2))}
                how["groups"] = outs if kind == "depthwise" else 1
                values.append(b.conv(x, outs, size, relu=rng.random() < 0.5, **how))
        elif kind == "pool" and fits:
            values.append(b.op("max_pool2d", x, kernel_size=3, stride=rng.choice((1, 2)), padding=1))
        elif kind == "mean pool" and fits:
            values.append(b.op("avg_pool2d", x, kernel_size=2))
        elif kind == "tanh":
            values.append(b.op("tanh", x))
        elif kind == "add":
            other = next((v for v in values if v is not x and v.shape == x.shape), x)
            values.append(b.op("add", x, other))
        elif kind == "shuffle" and len(x.shape) == 4 and x.shape[1] % 2 == 0:
            values.append(
                b.shuffled(x, rng.choice([g for g in (2, 4, x.shape[1] // 2) if x.shape[1] % g == 0]))
            )
        elif kind == "cat":
            beside = [v for v in values if len(v.shape) == 4 and v.shape[2:] == x.shape[2:]]
            values.append(b.cat(x, rng.choice(beside)))
        elif kind == "norm" and fits:
            channels = [b.param(f"s{len(b.params)}", x.shape[1:2]) for _ in range(2)]
            values.append(b.op("batch_norm_eval", x, channels[0], channels[1]))
    results = [values[-1], rng.choice(values)]
    if len(values[-1].shape) == 4:
        results.append(b.op("permute", values[-1], dims=(0, 2, 3, 1)))
        results.append(b.op("mean", values[-1], dim=(2, 3)))
    return b.program(*results)


def arguments(program: Program, seed: int = 0) -> list[np.ndarray]:
    """Numbers near 1 in size throughout: weights are scaled by what they are summed over."""
    rng = np.random.default_rng(seed)
    made = []
    for param in program.params:
        array = rng.standard_normal(param.shape).astype(np.float32)
        if param.name.startswith("w"):
            array /= np.sqrt(np.float32(np.prod(param.shape[1:])))
        made.append(np.abs(array) + np.float32(0.5) if param.name.startswith("s") else array)
    return made


def check(before: Program, after: Program, seed: int = 0, within: float = 1e-6) -> None:
    """Both give the same results, within so much of the largest: some 6 roundings of float32 between calls.

    Within a call the kernel interpreter computes in float64, sums of Winograd's too.
    """
    verify(after)
    for call in after.calls:
        verify_kernel(call.kernel)
    given = arguments(before, seed)
    for want, got in zip(interpret(before, *given), interpret(after, *given), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=within * max(1, np.abs(want).max(initial=0)))
