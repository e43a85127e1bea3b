"""How far a compiled float32 result may be from eager's: measured on eager, against float64.

The truth is the same network run eagerly in float64; what eager float32 is off by is the unit.  Compiled code
adds in another order, computes some convolutions by Winograd, and is another sample of the same noise: it may
be MULTIPLE times as far off.  Where a derivative jumps (the corner of a relu, equal elements of a maximum),
rounding decides which side counts, and moves a gradient by more than rounding.  So the truth is run twice
more with noise of MULTIPLE times eager's error put in at every such place, once with either sign: each
element that the compiled code's rounding may carry over a corner goes over it in one of the two.
"""

import contextlib

import numpy as np

import lamina
from lamina import nn

MULTIPLE = 8
UNIT = 2.0**-24  # half a unit in the last place of float32, relative
CORNERED = (nn.ReLU, nn.ReLU6, nn.Hardswish, nn.Hardsigmoid, nn.MaxPool2d)


def largest(array: np.ndarray) -> float:
    return float(np.abs(array).max(initial=0.0))


@contextlib.contextmanager
def at_corners(model: nn.Module, change):
    """`change(number, input)` of every module with a corner, in the order of their calls."""
    numbers = iter(range(1 << 30))

    def hook(module, inputs):
        changed = change(next(numbers), inputs[0])
        return None if changed is None else (changed,)

    handles = [m.register_forward_pre_hook(hook) for m in model.modules() if isinstance(m, CORNERED)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Tolerances:
    """What results by name may be off by: from eager float32 runs and true ones, and the noisy true ones."""

    def __init__(self, eager: dict, truth: dict, noisy: tuple[dict, ...] = ()):
        self.eager, self.truth, self.noisy = eager, truth, noisy
        # Of a gradient that cancels, like that of a bias before a norm, nothing is left but rounding: its
        # size is that of what else its module has.
        self.sizes: dict[str, float] = {}
        for name, exact in truth.items():
            owner = self.owner(name)
            self.sizes[owner] = max(self.sizes.get(owner, 0.0), largest(exact))
        off = [largest(eager[n] - truth[n]) / self.size(n) for n in truth if self.size(n)]
        # A single number may be right by luck: what the others are off by holds for it, and eager's last bit.
        self.usual = max(UNIT, float(np.median(off))) if off else UNIT

    def owner(self, name: str) -> str:
        """The module that a tensor belongs to; a counter is no measure for others."""
        return name if self.truth[name].dtype.kind in "iu" else name.rpartition(".")[0]

    def size(self, name: str) -> float:
        return self.sizes[self.owner(name)]

    def of(self, name: str) -> float:
        """The largest difference that rounding explains."""
        exact = self.truth[name]
        off = max(largest(self.eager[name] - exact), self.usual * self.size(name))
        return MULTIPLE * off + sum(largest(noise[name] - exact) for noise in self.noisy)

    def check(self, results: dict, what: str, narrower: float = 1.0) -> None:
        """Compare; narrower: 2**-29 for results in float64, whose unit is that much smaller."""
        assert results.keys() == self.truth.keys()
        for name, exact in self.truth.items():
            off, bound = largest(results[name] - exact), self.of(name) * narrower
            assert off <= bound, (  # which nan is not
                f"{what} {name}: off by {off:.2e}, where rounding explains {bound:.2e}; "
                f"eager is off by {largest(self.eager[name] - exact):.2e} of {largest(exact):.2e}"
            )


@contextlib.contextmanager
def corners_seen(model: nn.Module):
    """A list of what each module with a corner is given."""
    seen: list[np.ndarray] = []
    with at_corners(model, lambda _, input: seen.append(input.detach().numpy().copy())):
        yield seen


def noise_at_corners(eager: list[np.ndarray], truth: list[np.ndarray], sign: int):
    """The change that moves every input of a corner by MULTIPLE times eager's error, up or down at random."""

    def change(number: int, input):
        size = MULTIPLE * largest(eager[number] - truth[number])
        up = np.random.default_rng(number).random(input.shape) < 0.5
        return input + lamina.tensor(np.where(up, sign * size, -sign * size))

    return change
