"""Classes that users derive from have no public attributes that PyTorch's lack: a method `update` or a list
`hooks` of a program's own would take the place of one.
"""

from __future__ import annotations

import importlib

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is the peer here: pip install lamina[peers]")

import lamina  # noqa: E402

ROOMS = (
    "nn", "optim", "optim.lr_scheduler", "utils.data", "autograd", "distributions", "nn.utils.parametrize",
    "distributions.constraints",
)  # fmt: skip
OF_INSTANCES = {  # PyTorch's instances have them, or its signatures name them
    "mode", "value", "transposed", "nonlinearity", "eta_min", "T_cur", "T_i", "num_samples", "total_size",
}  # fmt: skip
KNOWN = {
    "autograd.Function": {"applied"},
    "distributions.Geometric": {"param_shape"},
    "distributions.Transform": {"codomain", "domain"},
    "optim.lr_scheduler.ReduceLROnPlateau": {"is_better"},
}
DECORATORS = {"clone"}  # of context managers that are decorators, as PyTorch's are


def public(cls: type) -> set[str]:
    return {name for name in dir(cls) if name[0] != "_"}


@pytest.mark.parametrize("room", ROOMS)
def test_no_public_attributes_but_pytorchs(room):
    theirs = importlib.import_module(f"torch.{room}")
    ours = importlib.import_module(f"lamina.{room}")
    both = [n for n in dir(ours) if all(isinstance(getattr(m, n, None), type) for m in (ours, theirs))]
    assert both
    for name in both:
        if issubclass(getattr(ours, name), lamina.Tensor):
            continue  # an op more is a method more
        more = public(getattr(ours, name)) - public(getattr(theirs, name)) - OF_INSTANCES - DECORATORS
        assert more <= KNOWN.get(f"{room}.{name}", set()), f"{room}.{name}: {sorted(more)}"


@pytest.mark.parametrize("name", ["update", "states", "counts", "numbers", "initial", "alike", "counters"])
def test_an_optimizer_of_a_programs_own_may_use_any_name(name):
    """Its attribute is nothing of Lamina's, in eager steps and after loading."""

    class Own(lamina.optim.SGD):
        pass

    setattr(Own, name, None)
    p = lamina.nn.Parameter(lamina.ones(3))
    optimizer = Own([p], lr=0.5, momentum=0.9)
    for _ in range(2):
        p.grad = lamina.ones(3)
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    assert p.tolist() == pytest.approx([1 - 0.5 - 0.95] * 3)


@pytest.mark.parametrize(
    "layer, shape",
    [("Conv2d(1, 2, 3)", (1, 1, 5, 5)), ("BatchNorm1d(3)", (4, 3)), ("MaxPool2d(2)", (1, 1, 4, 4)),
     ("ZeroPad2d(1)", (1, 1, 2, 2)), ("LSTM(3, 4)", (5, 2, 3)), ("GRUCell(3, 4)", (2, 3))],
)  # fmt: skip
def test_a_layer_may_keep_any_attribute(layer, shape):
    made = eval(f"nn.{layer}", {"nn": lamina.nn})
    x = lamina.rand(*shape)
    wanted = made.eval()(x)
    for name in ("sizes", "run", "function", "ranks", "directions", "gates", "hooks"):
        setattr(made, name, None)
    found = made(x)
    first, other = (y[0] if isinstance(y, tuple) else y for y in (found, wanted))
    assert lamina.equal(first, other)
