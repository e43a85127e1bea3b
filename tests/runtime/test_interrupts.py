"""An interrupt at any step of entering or leaving a block leaves no mode behind."""

import gc
import threading

import pytest
from interrupting import at_each_step, is_interrupted

import lamina
from lamina import autograd, jit, nn
from lamina.facade.amp import autocast
from lamina.ir import dims, graph, open_blocks
from lamina.runtime import batched, forward, generator, levels, modes

FILES = {module.__file__ for module in (modes, dims, graph, open_blocks, levels, forward)}
# Of a block of a lock's: Python runs no handler between its end and the lock's release, but this test would.
CODES = {
    function.__code__ for name, function in vars(generator.fork_rng).items() if hasattr(function, "__code__")
}


def inside(code):
    return code.co_filename in FILES or code in CODES


def state():
    """All that blocks change for their thread."""
    return (
        {name: getattr(modes.local, name) for name in modes.ORDINARY},
        list(modes.local.entered), dict(modes.local.base), len(modes.CHANGED),
        dims._collecting.innermost(), graph._active.innermost(),
    )  # fmt: skip


def listen(*event):
    """A listener."""


BLOCKS = {
    "no_grad": lamina.no_grad,
    "enable_grad": lamina.enable_grad,
    "inference_mode": lamina.inference_mode,
    "no_inference_mode": lambda: lamina.inference_mode(False),
    "detect_anomaly": autograd.detect_anomaly,
    "hooked": lambda: modes.hooked(listen, listen, listen),
    "unheard": modes.unheard,
    "conditions": dims.conditions,
    "Builder": lambda: graph.Builder("b"),
    "fork_rng": generator.fork_rng,
    "autocast": lambda: autocast("cuda", enabled=False),
    "opened": lambda: levels.opened(batched.Batch(2, "error")),
}


@pytest.fixture(autouse=True)
def ordinary():
    """Begin in the ordinary state, and leave it so, lest one failure be that of all tests after it."""
    before = state()
    assert before[0] == modes.ORDINARY and before[1] == [] and before[3] == 0
    yield
    modes.local.entered.clear()
    modes.update(**modes.ORDINARY)


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("outside", [None, *BLOCKS])
def test_an_interrupted_block_is_over(name, outside):
    make, around = BLOCKS[name], BLOCKS.get(outside, lamina.enable_grad)()

    def block():
        with make():
            pass

    with around:
        before = state()
        for number in at_each_step(block, inside if name != "autocast" else lambda code: True):
            assert state() == before, number
    assert state()[0] == modes.ORDINARY and not modes.CHANGED


def test_an_interrupted_dual_level_is_over():
    def block():
        with forward.dual_level():
            pass

    before = state()
    for number in at_each_step(block, inside):
        assert state() == before, number


@pytest.mark.parametrize("name", ["no_grad", "inference_mode", "detect_anomaly"])
def test_an_interrupted_decorated_function_leaves_its_mode(name):
    @BLOCKS[name]()
    def function():
        return 1

    @BLOCKS[name]()
    def numbers():
        yield 1
        yield 2

    before = state()
    for run in (function, lambda: list(numbers())):
        for number in at_each_step(run, inside):
            gc.collect(0)
            assert state() == before, number


@pytest.mark.parametrize("mode", [lamina.set_grad_enabled, autograd.set_detect_anomaly])
def test_an_interrupted_switch_is_one_way_or_the_other(mode):
    before = state()
    for number in at_each_step(lambda: mode(True), inside):
        assert len(state()[1]) == 0, number
        mode(mode is lamina.set_grad_enabled)  # as it was
        assert state() == before, number

    def block():
        with switch:
            pass

    more, number = True, 0
    while more:
        switch = mode(mode is not lamina.set_grad_enabled)
        switched = state()
        more = is_interrupted(block, inside, number)
        del switch
        assert state() in (before, switched), number
        mode(mode is lamina.set_grad_enabled)
        number += 1


def test_a_mode_that_lives_on_leaves_its_block_when_it_dies():
    """Also where other blocks were entered since, which it does not disturb."""
    late = 0

    def block():
        with held[0]:
            pass

    for number in range(400):
        held = [lamina.no_grad()]
        more = is_interrupted(block, inside, number)
        late += not lamina.is_grad_enabled()
        with lamina.inference_mode():
            with lamina.enable_grad():
                held.clear()
                assert modes.local.grad and not lamina.is_grad_enabled()
            assert modes.local.grad and lamina.is_inference_mode_enabled()
        assert lamina.is_grad_enabled() and not modes.CHANGED, number
        if not more:
            break
    assert not more and late  # Python can't leave the block at the first step of leaving it


def test_blocks_that_end_in_another_order_leave_nothing_behind():
    first, second = lamina.no_grad(), lamina.enable_grad()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert modes.local.grad
    second.__exit__(None, None, None)
    assert modes.local.grad and not modes.CHANGED


def test_a_thread_that_ends_inside_a_block_is_not_counted_for_ever():
    thread = threading.Thread(target=lamina.set_grad_enabled, args=(False,))
    thread.start()
    thread.join()
    del thread
    gc.collect()
    assert not modes.CHANGED


def test_an_interrupted_walk_backwards_turns_gradients_on_again():
    """A hook turns them off for what is left of it."""

    def run():
        x = lamina.ones(2, requires_grad=True)
        y = x * 2
        y.register_hook(lambda g: g)
        y.sum().backward()

    before = state()
    for number in at_each_step(run, lambda code: code in (modes.update.__code__, modes._settle.__code__)):
        assert state() == before, number


def test_an_interrupted_recording_is_over(monkeypatch):
    model = nn.Linear(2, 2)
    x = lamina.ones(1, 2)
    before = state()
    record = jit.trace(lambda x: x).__class__._record.__code__

    def run():
        jit.trace(lambda x: model(x) * 2)(x)

    def counts(code):
        return code is record or code in (modes._Mode.__enter__.__code__, modes._Mode.__exit__.__code__)

    run()
    number = 0
    while is_interrupted(run, counts, number):
        assert state() == before, number
        number += 13
    assert number > 100
