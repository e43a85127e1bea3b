"""Methods of the user's objects, traced themselves or called from what is traced."""

import gc
import weakref

import pytest

import lamina
from lamina import jit, nn, optim

X = lamina.ones(2)


class Scale:
    def __init__(self, factor=2.0):
        self.factor = factor

    def by(self, x):
        return x * self.factor

    @classmethod
    def twice(cls, x):
        return x * 2


class Trainer:
    """The usual kind: an object with a model, an optimizer and a step."""

    def __init__(self):
        self.model = nn.Linear(2, 2)
        self.optimizer = optim.SGD(self.model.parameters(), lr=0.1)

    def step(self, x):
        self.optimizer.zero_grad()
        loss = self.model(x).square().sum()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


held = Scale().by


def assert_served(traced, least=2):
    assert traced.counts()["served"] >= least and not traced.counts()["eager"], traced.explain()


def test_a_method_of_an_object_is_compiled_and_its_object_guarded():
    scale = Scale()
    traced = jit.trace(scale.by)
    for factor in (2.0, 2.0, 2.0, 3.0, 3.0):
        scale.factor = factor
        assert traced(X).tolist() == [factor] * 2
    assert_served(traced)


def test_a_method_of_another_class_is_not_replayed():
    class Other(Scale):
        def __getattribute__(self, name):
            return 7.0 if name == "factor" else super().__getattribute__(name)

    scale = Scale()
    traced = jit.trace(scale.by)
    traced(X), traced(X)
    scale.__class__ = Other
    assert traced(X).tolist() == scale.by(X).tolist() == [7.0] * 2


def test_a_method_in_a_global_is_looked_up_anew():
    global held
    traced = jit.trace(lambda x: held(x))
    for factor in (2.0, 2.0, 2.0):
        assert traced(X).tolist() == [factor] * 2
    assert_served(traced)
    held = Scale(5.0).by
    assert traced(X).tolist() == traced(X).tolist() == [5.0] * 2


@pytest.mark.parametrize("method", [Scale.twice, Scale(2.0).by], ids=["classmethod", "method"])
def test_methods_nobody_else_holds(method):
    traced = jit.trace(method)
    for _ in range(4):
        assert traced(X).tolist() == [2.0] * 2
    assert_served(traced)


def test_a_training_step_may_be_a_method():
    trainer, twin = Trainer(), Trainer()
    twin.model.load_state_dict(trainer.model.state_dict())
    traced = jit.trace(trainer.step)
    for _ in range(5):
        # sums of two products, of numbers below 4, five times in a row
        assert abs(traced(X).item() - twin.step(X).item()) < 5 * 8 * 16 * 2.0**-24
    assert_served(traced)


def test_a_traced_method_lets_go_of_its_object():
    scale = Scale()
    traced, weak = jit.trace(scale.by), weakref.ref(scale)
    traced(X), traced(X)
    del scale, traced
    gc.collect()
    assert weak() is None
