"""What is said of PyTorch's names: offered or not, why, and the page that lists them."""

import functools
import pickle
import types
from pathlib import Path

import pytest

import lamina
from lamina.__main__ import main
from lamina.facade import offered

PAGE = Path(__file__).parents[2] / "docs" / "names.md"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("torch.relu", "torch.relu is offered, as lamina.relu"),
        ("nn.functional.gelu", "torch.nn.functional.gelu is offered"),
        ("torch.Tensor.add_", "torch.Tensor.add_ is offered"),
        ("torch.quantize_per_tensor", "is not offered: tensors of quantised integers"),
        ("torch.Tensor.storage_type", "torch.Tensor.storage_type is offered"),
        ("torch.relo", "is no public name of PyTorch's; it has torch"),
        ("torch.nn.init", "names are offered, as lamina.nn.init"),
    ],
)
def test_a_name_is_told_of(asked, said, capsys):
    assert main(["names", asked]) == 0
    assert said in capsys.readouterr().out


def test_every_reason_is_some_names_reason():
    missing = [
        f"{space}.{name}".removeprefix("torch.")
        for space, names in offered.pytorch_names().items()
        for name in names
        if not offered.is_there(f"{space}.{name}")
    ]
    told = {offered.reason(name) for name in missing}
    assert {why for _, why in offered.REASONS} <= told


def test_the_page_is_as_the_names_are_now():
    assert PAGE.read_text() == offered.page(), "python -m lamina names --page > docs/names.md"


def test_the_page_lists_all_names_of_the_package():
    listed = set(PAGE.read_text().replace("`", " ").split())
    assert {name for name in dir(lamina) if not name.startswith("_")} <= listed


@pytest.mark.parametrize(
    "space", ["", "nn.functional", "nn.init", "nn.utils", "linalg", "special", "fft", "func"]
)
def test_functions_can_be_pickled(space):
    """By the name under which they are offered first: so workers that are spawned get them."""
    room = functools.reduce(getattr, space.split("."), lamina) if space else lamina
    functions = [
        value
        for name, value in vars(room).items()
        if not name.startswith("_") and isinstance(value, types.FunctionType)
    ]
    assert len(functions) > 5
    assert [f for f in functions if pickle.loads(pickle.dumps(f)) is not f] == []
