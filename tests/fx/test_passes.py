"""Passes over graph modules, one after the other."""

import operator

import pytest

import lamina as torch
from lamina import fx
from lamina.fx.passes.infra.pass_base import PassBase, PassResult
from lamina.fx.passes.infra.pass_manager import (
    PassManager,
    pass_result_wrapper,
    this_before_that_pass_constraint,
)


class Swap(PassBase):
    """One function in place of another."""

    def __init__(self, before, after):
        self.before, self.after = before, after

    def requires(self, graph_module):
        assert isinstance(graph_module, fx.GraphModule)

    def call(self, graph_module):
        modified = False
        for node in graph_module.graph.nodes:
            if node.target is self.before:
                node.target, modified = self.after, True
        return PassResult(graph_module, modified)


def test_passes_run_until_nothing_changes():
    runs = []

    def noted(graph_module):
        runs.append(1)

    passes = [Swap(operator.add, operator.mul), Swap(operator.mul, operator.sub)]
    result = PassManager(passes, steps=5)(fx.symbolic_trace(lambda x, y: x + y))
    assert result.modified and result.graph_module(torch.tensor(3), torch.tensor(2)).item() == 1
    assert not PassManager(passes)(result.graph_module).modified
    assert PassManager([pass_result_wrapper(noted)], steps=3)(result.graph_module).modified and len(runs) == 3
    assert pass_result_wrapper(noted).__name__ == "noted" and pass_result_wrapper(None) is None


def test_constraints_order_the_passes():
    def first(m):
        return PassResult(m, False)

    def second(m):
        return PassResult(m, False)

    def third(m):
        return PassResult(m, False)

    manager = PassManager([third, second, first])
    manager.add_constraint(this_before_that_pass_constraint(first, second))
    manager.add_constraint(this_before_that_pass_constraint(second, third))
    with pytest.raises(RuntimeError, match="expected first before second"):
        manager.validate_constraints()
    manager.solve_constraints()
    assert manager.passes == [first, second, third]
    manager.add_constraint(this_before_that_pass_constraint(third, first))
    with pytest.raises(RuntimeError, match="Circular dependency"):
        manager.solve_constraints()


def test_what_fails_tells_what_ran_before():
    def wrong(m):
        raise KeyError("x")

    module = fx.symbolic_trace(lambda x: x + 1)
    manager = PassManager([Swap(operator.add, operator.mul), wrong])
    with pytest.raises(Exception, match=r"'wrong' pass after the following passes: \['Swap'\]") as caught:
        manager(module)
    assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(Exception, match="'<lambda>' pass") as caught:
        PassManager([lambda m: m])(module)
    assert "should be type PassResult" in str(caught.value.__cause__)

    def two(a, b):
        pass

    with pytest.raises(TypeError, match="only take in one variable"):
        manager.add_checks(two)

    def never(m):
        raise ValueError("wrong graph")

    manager.add_checks(never)
    with pytest.raises(ValueError, match="wrong graph"):
        manager(module)
