"""Programs of convolutions and their gradients over a batch, as a training step has them."""

import random

from image_programs import Builder, kernel_of

from lamina.passes.programs.program import Array, Program


def gradients(b: Builder, g: Array, x: Array, w: Array, **window) -> tuple[Array, Array]:
    """The gradients of a convolution's input and weight."""
    window = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1} | window
    to_input = kernel_of("conv_input_grad", [g.shape, w.shape], size=x.shape[2:], **window)
    to_weight = kernel_of("conv_weight_grad", [g.shape, x.shape], size=w.shape[2:], **window)
    return b.call(to_input, g, w, name="dx"), b.call(to_weight, g, x, name="dw")


def small_step(batch: int = 16) -> Program:
    """A convolution, what follows it, and both gradients."""
    b = Builder("step", (batch, 3, 6, 6))
    w, bias = b.param("w", (5, 3, 3, 3)), b.param("b", (5,))
    y = b.op("relu", b.op("conv2d", b.image, w, bias, padding=1))
    mean = b.op("mean", y, dim=(0, 2, 3))
    return b.program(y, mean, *gradients(b, y, b.image, w, padding=1))


def random_step(seed: int) -> Program:
    """A chain of convolutions of all sorts, pools and activations, and gradients of some of them."""
    rng = random.Random(seed)
    b = Builder("step", (rng.choice((4, 5, 8, 13, 16, 29, 32)), rng.choice((1, 2, 3)), 7, rng.choice((5, 7))))
    x, results = b.image, []
    for n in range(rng.randint(1, 3)):
        size, dilation = rng.choice(((3, 1), (3, 1), (1, 1), (2, 1), (3, 2)))
        if min(x.shape[2:]) < dilation * (size - 1) + 1:
            break
        window = {
            "stride": rng.choice((1, 1, 2, 3)),
            "padding": rng.randint(0, size - 1),
            "dilation": dilation,
        }
        w = b.param(f"w{n}", (rng.choice((1, 2, 5, 9)), x.shape[1], size, size))
        y = b.op("conv2d", x, w, **window)
        results += gradients(b, y, x, w, **window)
        x = b.op(rng.choice(("relu", "tanh")), y)
        if min(x.shape[2:]) >= 2 and rng.random() < 0.5:
            x = b.op("max_pool2d", x, kernel_size=2)
    return b.program(x, b.op("mean", x, dim=(0, 2, 3)), *results)
