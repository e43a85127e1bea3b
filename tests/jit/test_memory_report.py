"""explain(memory=True): what holds the memory of a compiled function, and where most is held."""

import numpy as np

import lamina
from lamina import jit, nn
from lamina.jit.memory_report import drawn
from lamina.runtime import memory


def training():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8))
    optimizer = lamina.optim.Adam(model.parameters(), lr=1e-3)

    @jit.trace
    def step(x, y):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    x, y = lamina.randn(512, 64), lamina.tensor(np.arange(512) % 8)
    for _ in range(4):
        step(x, y)
    return step


def test_explain_tells_what_is_held_where_most_is():
    step = training()
    told = dict(step.explain(as_dict=True, memory=True)["memory"])
    about = told[max(told)]
    assert about["arena"] >= max(about["use"]) == about["use"][about["peak"][0]]
    at = about["peak"][0]
    assert all(one["first"] <= at <= one["last"] for one in about["held"])
    largest = about["held"][0]
    assert (largest["type"], largest["bytes"]) == ("f32[512,256]", 512 * 256 * 4)
    assert largest["line"].endswith(tuple("0123456789")) and ".py:" in largest["line"]
    weights = 4 * (64 * 256 + 256 + 256 * 8 + 8)
    assert about["inputs"] >= 3 * weights + 4 * 512 * 64  # and Adam's two moments, and the batch
    assert about["results"] >= weights  # the gradients
    text = step.explain(memory=True)
    lines = text.splitlines()
    assert any(line.startswith(f"  memory: recording {max(told)}: arena 0.") for line in lines)
    assert any("fullest at step " in line for line in lines)
    assert any("MiB  %" in line and "f32[512,256]" in line and ".py:" in line for line in lines)
    if memory.kept() is not None:
        assert lines[-1].startswith("  memory: the allocator keeps ")
    assert "memory:" not in step.explain() and "memory" not in step.explain(as_dict=True)


def test_weights_that_are_packed_are_told_apart():
    model = nn.Linear(128, 96).eval()
    served = jit.trace(lambda x: model(x).relu().sum(-1))
    with lamina.no_grad():
        for _ in range(3):
            served(lamina.randn(64, 128))
    ((_, about),) = served.explain(as_dict=True, memory=True)["memory"]
    assert about["packed"] >= 128 * 96 * 4 > about["results"] == 64 * 4


def test_what_has_no_code_has_no_lines():
    eager = jit.trace(lambda x: x * 2)
    assert "memory: recording" not in eager.explain(memory=True)


def test_a_drawing_shows_the_most_of_each_column():
    assert drawn([0, 1, 8, 4]) == " ▁█▄"
    assert drawn([0] * 100 + [9] + [0] * 43) == " " * 50 + "█" + " " * 21
