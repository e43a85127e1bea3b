"""Mixed precision: traced as it is computed, per thread, and refused what it does not know."""

import threading

import pytest

import lamina
from lamina import nn, optim
from lamina.jit import trace


def losses(wrap, casting=True):
    lamina.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    x, y = lamina.randn(20, 8), lamina.randn(20, 3)

    def step(x, y):
        optimizer.zero_grad()
        with lamina.autocast("cpu", enabled=casting):
            loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = wrap(step)
    seen = []
    for _ in range(8):
        seen.append(run(x, y).item())
    return seen, run


def test_a_block_in_a_traced_step_is_compiled():
    plain, _ = losses(lambda f: f)
    traced, step = losses(trace)
    assert "served" in step.explain().split("\n")[0] and "not served" not in step.explain().split("\n")[0]
    full = losses(lambda f: f, casting=False)[0]
    assert max(abs(a - b) for a, b in zip(plain, traced, strict=True)) < 2**-8  # a rounding to bfloat16
    assert full[0] != plain[0]  # casts there are


def test_a_traced_function_called_in_a_block_is_cast_as_plainly():
    def product(x):
        return x @ x

    traced, x = trace(product), lamina.ones(2, 2)
    for _ in range(4):
        assert traced(x).dtype is lamina.float32
        with lamina.autocast("cpu"):
            assert traced(x).dtype is lamina.bfloat16


def test_other_threads_cast_nothing():
    found = []
    with lamina.autocast("cpu"):
        thread = threading.Thread(target=lambda: found.append((lamina.ones(2, 2) @ lamina.ones(2, 2)).dtype))
        thread.start()
        thread.join()
    assert found == [lamina.float32]


def test_plans_made_inside_a_block_are_not_used_outside():
    x, w = lamina.ones(2, 3), lamina.ones(3, 5, dtype=lamina.bfloat16)
    for _ in range(2):
        with lamina.autocast("cpu"):
            assert (x @ w).dtype is lamina.bfloat16
        with pytest.raises(lamina.DTypeError):
            x @ w


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: lamina.autocast(3), ValueError),
        (lambda: lamina.autocast("nowhere"), RuntimeError),
        (lambda: lamina.autocast("cpu", dtype=3), TypeError),
        (lambda: lamina.amp.GradScaler("cpu", growth_factor=0.5), ValueError),
    ],
)
def test_refusals_of_mixed_precision(make, kind):
    with pytest.raises(kind) as error:
        make()
    assert isinstance(error.value, lamina.LaminaError)


def test_a_dtype_that_is_no_half_turns_it_off():
    with pytest.warns(UserWarning, match="does nothing"), lamina.autocast("cpu", dtype=lamina.float32):
        assert (lamina.ones(2, 2) @ lamina.ones(2, 2)).dtype is lamina.float32
