"""Known architectures: eager, traced and exported they are one function, and so is a whole training step."""

import copy
import os
import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import attention_networks as attention
import convolutional_networks as convolutional
import numpy as np
import pytest
from yardstick import Tolerances, at_corners, corners_seen, noise_at_corners

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim
from lamina.jit.lamina_model import Model

LEVEL = ["x86-64-v3"]
# `make test` takes a sample that is another one every day, `make slow` all of it.
SEED = int(os.environ.get("LAMINA_SAMPLE", date.today().toordinal()))


@dataclass(frozen=True)
class Architecture:
    """A network at several widths: some of 16, 32 and 64 channels, which layouts block, and odd ones."""

    make: Callable[..., nn.Module]
    sizes: tuple[tuple[tuple[int, ...], int], ...]  # what `make` is called with, and the side of the image
    kind: str = "sgd"


ARCHITECTURES = {
    "shufflenet": Architecture(convolutional.shufflenet, (((16,), 16), ((32,), 16), ((10,), 18))),
    "resnext": Architecture(
        convolutional.resnext, (((32, 8), 16), ((16, 4), 24), ((64, 32), 16), ((6, 2), 17))
    ),
    "regnet": Architecture(convolutional.regnet, (((32, 16), 16), ((16, 8), 32), ((12, 6), 18))),
    "senet": Architecture(convolutional.senet, (((16,), 16), ((32,), 16), ((9,), 19))),
    "densenet": Architecture(convolutional.densenet, (((16, 16), 16), ((16, 8), 20), ((10, 5), 18))),
    "pnasnet": Architecture(convolutional.PNASNet, (((16,), 16), ((11,), 18))),
    "efficientnet": Architecture(convolutional.efficientnet, (((16,), 16), ((9,), 21))),
    "mobilenet_v3": Architecture(convolutional.mobilenet_v3, (((16,), 32), ((9,), 21))),
    "unet": Architecture(convolutional.UNet, (((16,), 16), ((5,), 20))),
    "convnext": Architecture(attention.convnext, (((16,), 16), ((32,), 16), ((9,), 20)), "adamw"),
    "vit": Architecture(attention.ViT, (((32, 2), 16), ((15, 3), 16)), "adamw"),
    "swin": Architecture(attention.Swin, (((16, 2), 16), ((32, 4), 16), ((9, 3), 16)), "adamw"),
}
EVERY = [(name, number) for name, each in ARCHITECTURES.items() for number in range(len(each.sizes))]
OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.05, momentum=0.9),
    # The step is a quotient, which magnifies the rounding of gradients that are small beside eps.
    "adamw": lambda p: optim.AdamW(p, lr=0.01, eps=1.0),
}


def network(name: str, number: int) -> nn.Module:
    """The network with statistics of its own, if it keeps any."""
    lamina.manual_seed(number)
    model = ARCHITECTURES[name].make(*ARCHITECTURES[name].sizes[number][0])
    for seed in range(2):
        model(images(name, number, 4, seed))
    return model


def images(name: str, number: int, count: int, seed: int) -> lamina.Tensor:
    side = ARCHITECTURES[name].sizes[number][1]
    return lamina.randn(count, 3, side, side, generator=lamina.Generator().manual_seed(seed))


def assert_compiled(traced: jit.TracedFunction, served: int, recorded: int = 1) -> None:
    assert traced.counts() == {
        "served": served,
        "recorded": recorded,
        "eager": 0,
        "raised": 0,
        "within": 0,
    }, traced.explain()


# ---- inference ---------------------------------------------------------------------------------------------
def check_inference(name: str, number: int, count: int, path: Path | None = None, wide: bool = True) -> None:
    """Traced in float32, in float64 if `wide`, and where there is a path exported, against eager."""
    model = network(name, number).eval()
    true, x = copy.deepcopy(model).double(), images(name, number, count, 7)
    with lamina.no_grad():
        tolerances = Tolerances({"": model(x).numpy()}, {"": true(x.double()).numpy()})
        traced = jit.trace(model)
        for _ in range(2):
            result = traced(x).numpy()
        tolerances.check({"": result}, f"traced {name}")
        assert_compiled(traced, 1)
        if wide:
            traced_wide = jit.trace(true)
            for _ in range(2):
                result = traced_wide(x.double()).numpy()
            tolerances.check({"": result}, f"traced {name} in float64", narrower=2.0**-29)
            assert_compiled(traced_wide, 1)
        if path is not None:
            jit.export(traced, path, x, levels=LEVEL)
            tolerances.check({"": jit.load(path)(x).numpy()}, f"loaded {name}")
            tolerances.check({"": Model(path).run(x.numpy())}, f"exported {name}")


# ---- training ----------------------------------------------------------------------------------------------
def targets(name: str, number: int, count: int, seed: int) -> lamina.Tensor:
    """Classes: of images, or of pixels."""
    side = ARCHITECTURES[name].sizes[number][1]
    shape = (count, side, side) if name == "unet" else (count,)
    return lamina.randint(0, 7, shape, generator=lamina.Generator().manual_seed(seed))


def run(step: Callable, seed: int, x: lamina.Tensor, y: lamina.Tensor) -> dict[str, np.ndarray]:
    """The loss of a step, which drops out the same units for the same seed."""
    lamina.manual_seed(seed)
    return {"": step(x, y).numpy()}


class Training:
    """A network with its optimizer, and the usual step."""

    def __init__(self, model: nn.Module, kind: str):
        self.model, self.optimizer = model, OPTIMIZERS[kind](model.parameters())

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def take(self, other: "Training") -> None:
        """Go on from where another stands, whatever its dtype."""
        with lamina.no_grad():
            for mine, its in zip(
                self.model.state_dict().values(), other.model.state_dict().values(), strict=True
            ):
                mine.copy_(its)
        self.optimizer.load_state_dict(copy.deepcopy(other.optimizer.state_dict()))

    def gradients(self) -> dict[str, np.ndarray]:
        return {name: p.grad.numpy().copy() for name, p in self.model.named_parameters()}

    def parameters(self) -> dict[str, np.ndarray]:
        return {name: p.detach().numpy().copy() for name, p in self.model.named_parameters()}

    def buffers(self) -> dict[str, np.ndarray]:
        return {name: b.numpy().copy() for name, b in self.model.named_buffers()}


def check_training(name: str, number: int, count: int, steps: int = 2, wide: bool = False) -> None:
    """Each compiled step is the eager step from the same state.

    wide: the traced one is in float64.
    """
    model, kind = network(name, number), ARCHITECTURES[name].kind
    double = copy.deepcopy(model).double()
    eager, true, up, down = (Training(copy.deepcopy(m), kind) for m in (model, double, double, double))
    compiled = Training(double if wide else model, kind)
    step, narrower = jit.trace(compiled.step), 2.0**-29 if wide else 1.0
    for at in range(2 + steps):
        x, y = images(name, number, count, 100 + at), targets(name, number, count, at)
        for each in (eager, true, up, down):
            each.take(compiled)
        loss = run(step, at, x.double() if wide else x, y)
        if at < 2:  # recorded: the first makes what the optimizer keeps, and leaves gradients behind
            continue
        with corners_seen(eager.model) as seen:
            eager_loss = run(eager.step, at, x, y)
        with corners_seen(true.model) as exact:
            true_loss = run(true.step, at, x.double(), y)
        for training, sign in ((up, 1), (down, -1)):
            with at_corners(training.model, noise_at_corners(seen, exact, sign)):
                run(training.step, at, x.double(), y)
        what = f"step {at} of {name}"
        Tolerances(eager_loss, true_loss).check(loss, f"loss of {what}", narrower)
        for kept in (Training.gradients, Training.parameters, Training.buffers):
            tolerances = Tolerances(kept(eager), kept(true), (kept(up), kept(down)))
            tolerances.check(kept(compiled), f"{kept.__name__} of {what}", narrower)
    assert_compiled(step, steps, recorded=2)


# ---- what is run -------------------------------------------------------------------------------------------
@pytest.fixture
def sample(request) -> random.Random:
    """The choices of one test; another one every day."""
    print(f"LAMINA_SAMPLE={SEED} takes the same sample")
    return random.Random(f"{SEED} {request.node.name}")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_inference_of_a_sample(name, sample, tmp_path):
    number, wide = sample.randrange(len(ARCHITECTURES[name].sizes)), sample.random() < 0.5
    check_inference(name, number, sample.choice((1, 3)), None if wide else tmp_path / "model.lam", wide)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_training_of_a_sample(name, sample):
    number = sample.randrange(len(ARCHITECTURES[name].sizes))
    check_training(name, number, sample.choice((3, 4, 8)))


@pytest.mark.slow
@pytest.mark.parametrize("count", (1, 3))
@pytest.mark.parametrize(("name", "number"), EVERY)
def test_inference(name, number, count, tmp_path):
    check_inference(name, number, count, tmp_path / "model.lam")


@pytest.mark.slow
@pytest.mark.parametrize("count", (3, 8, 16))
@pytest.mark.parametrize(("name", "number"), EVERY)
def test_training(name, number, count):
    check_training(name, number, count, steps=4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_training_in_float64(name):
    check_training(name, len(ARCHITECTURES[name].sizes) - 1, 4, wide=True)


# ---- by itself ---------------------------------------------------------------------------------------------
ALONE = """
import sys
sys.modules["lamina"] = sys.modules["llvmlite"] = None
sys.path.insert(0, sys.argv[1])
import lamina_model, numpy
numpy.save(sys.argv[3], lamina_model.run(numpy.load(sys.argv[2])))
"""


@pytest.mark.parametrize("name", ["shufflenet", "swin"])
def test_an_exported_network_runs_with_numpy_alone(name, tmp_path):
    model, x = network(name, 0).eval(), images(name, 0, 3, 7)
    files = [str(tmp_path / part) for part in ("model.lam", "x.npy", "y.npy")]
    jit.export(model, files[0], x, levels=LEVEL)
    np.save(files[1], x.numpy())
    done = subprocess.run([sys.executable, "-c", ALONE, *files], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with lamina.no_grad():
        eager, true = model(x).numpy(), copy.deepcopy(model).double()(x.double()).numpy()
    Tolerances({"": eager}, {"": true}).check({"": np.load(files[2])}, name)


# ---- the yardstick -----------------------------------------------------------------------------------------
def test_the_yardstick_sees_a_wrong_number():
    """One weight of one convolution in a thousandth: every result and every gradient of a layer shows it."""
    model = network("regnet", 2)
    true, x = copy.deepcopy(model).double(), images("regnet", 2, 3, 7)
    eager, wrong = model(x).detach().numpy(), copy.deepcopy(model)
    tolerances = Tolerances({"": eager}, {"": true(x.double()).detach().numpy()})
    tolerances.check({"": eager}, "eager")
    with lamina.no_grad():
        wrong[1].layers[1][0].weight[0, 0, 1, 1] *= 1.001
    with pytest.raises(AssertionError, match="where rounding explains"):
        tolerances.check({"": wrong(x).detach().numpy()}, "a wrong weight")
    with pytest.raises(AssertionError, match="where rounding explains"):
        tolerances.check({"": np.full_like(eager, np.nan)}, "nan")


def test_the_yardstick_covers_both_sides_of_a_corner():
    """relu at 0 has two gradients: each is within what the noise shows, and nothing beyond is."""
    corner = {"": np.array([1.0, 0.0])}, {"": np.array([0.0, 0.0])}  # of x at +0 and -0
    tolerances = Tolerances(corner[1], corner[1], corner)
    tolerances.check(corner[0], "one side")
    tolerances.check(corner[1], "the other")
    with pytest.raises(AssertionError):
        tolerances.check({"": np.array([1.1, 0.0])}, "neither")
