"""Graphs of functions: what is traced runs as before, and what is changed is what runs."""

import copy
import math
import operator
import pickle

import pytest

import lamina as torch
from lamina import fx, nn
from lamina.fx.node import map_aggregate
from lamina.ir.errors import StateError

fx.wrap("len")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 5)
        self.scale = nn.Parameter(torch.rand(5))
        self.register_buffer("shift", torch.rand(5))
        self.tail = nn.Sequential(nn.ReLU(), nn.Linear(5, 3))

    def forward(self, x, power=2.0):
        hidden = torch.relu(self.linear(x)) * self.scale - self.shift
        hidden = nn.functional.gelu(hidden) ** power + 1 / (2 + hidden.abs())
        first, second = torch.max(hidden, dim=1)
        out = self.tail(hidden).view(x.shape[0], -1)
        return {"out": out[:, 1:], "most": (first, -second)}


def leaves(x):
    return torch.utils._pytree.tree_leaves(x)


def assert_same(a, b):
    a, b = leaves(a), leaves(b)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert torch.equal(x, y)


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net()


def test_a_module_and_its_graph_do_the_same(net):
    x = torch.randn(6, 4)
    graph = fx.symbolic_trace(net)
    graph.graph.lint()
    assert_same(graph(x), net(x))
    assert_same(graph(x, power=3.0), net(x, power=3.0))
    assert {n.op for n in graph.graph.nodes} == set(fx.node.OPS) - {"root"}
    assert [n.target for n in graph.graph.nodes if n.op == "call_module"] == ["linear", "tail.0", "tail.1"]


def test_gradients_reach_the_same_parameters(net):
    x = torch.randn(6, 4)
    graph = fx.symbolic_trace(net)
    assert dict(graph.named_parameters()).keys() == dict(net.named_parameters()).keys()
    graph(x)["out"].sum().backward()
    found = [p.grad.clone() for p in net.parameters() if p.grad is not None]  # they are the same tensors
    net.zero_grad()
    net(x)["out"].sum().backward()
    assert_same(found, [p.grad for p in net.parameters() if p.grad is not None])


def test_the_code_says_what_is_done():
    def function(x, y=2):
        z = torch.sin(x) @ x.T
        z += y
        return z[0, ..., 1:], ~(z > 1), -z, math.sqrt(x.shape[0])

    code = fx.symbolic_trace(function).code
    assert code.strip("\n") == "\n".join(
        [
            "def forward(self, x, y = 2):",
            "    sin = torch.sin(x)",
            "    getattr_1 = x.T",
            "    matmul = sin @ getattr_1;  sin = getattr_1 = None",
            "    add = matmul + y;  matmul = y = None",
            "    getitem = add[(0, Ellipsis, slice(1, None, None))]".replace("Ellipsis", "..."),
            "    gt = add > 1",
            "    invert = ~gt;  gt = None",
            "    neg = -add;  add = None",
            "    getattr_2 = x.shape;  x = None",
            "    getitem_1 = getattr_2[0];  getattr_2 = None",
            "    sqrt = math_sqrt(getitem_1);  getitem_1 = None",
            "    return (getitem, invert, neg, sqrt)",
        ]
    )


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_do_the_same(net, copied):
    x = torch.randn(6, 4)
    graph = fx.symbolic_trace(net)
    made = copied(graph)
    assert made.code == graph.code
    assert type(made).__name__ == "Net"
    assert_same(made(x), net(x))
    for node in list(made.graph.nodes):  # and are changed alone
        if node.target is torch.relu:
            node.target = torch.tanh
    made.recompile()
    assert_same(graph(x), net(x))
    assert not torch.equal(made(x)["out"], net(x)["out"])


def test_a_graph_is_compiled_and_trained(net):
    graph = fx.symbolic_trace(net)
    optimizer = torch.optim.SGD(graph.parameters(), lr=0.1)
    x = torch.randn(6, 4)

    @torch.jit.trace
    def step(x):
        optimizer.zero_grad()
        loss = (graph(x)["out"] - 1).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(x).item() for _ in range(20)]
    assert step.explain().startswith("step: served")
    assert losses[-1] < 0.5 * losses[0]


# ---- what is refused ---------------------------------------------------------------------------------------
def test_what_depends_on_values_is_refused():
    def branch(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(fx.proxy.TraceError, match="inputs to control flow\n  step: %gt"):
        fx.symbolic_trace(branch)
    with pytest.raises(fx.proxy.TraceError, match="cannot be iterated"):
        fx.symbolic_trace(lambda x: [y + 1 for y in x])
    with pytest.raises(fx.proxy.TraceError, match="control flow"):
        fx.symbolic_trace(lambda x: x and 1)
    assert not fx.is_fx_tracing()
    assert torch.relu(torch.tensor([-1.0])).item() == 0  # nothing is left behind


def test_arguments_may_be_fixed():
    def function(x, deep, way=None):
        return x if deep and way is None else -x

    graph = fx.symbolic_trace(function, concrete_args={"deep": True, "way": None})
    x = torch.randn(3)
    assert torch.equal(graph(x, True), x)
    with pytest.raises(AssertionError, match="deep has been specialized to have value True"):
        graph(x, False)
    with pytest.raises(AssertionError, match="way has been specialized to have value None"):
        graph(x, True, 1)


def test_containers_may_be_taken_apart():
    def function(held, flag):
        return {"sum": held["a"] + held["b"][0]} if flag else None

    graph = fx.symbolic_trace(function, concrete_args={"held": {"a": fx.PH, "b": [fx.PH]}, "flag": True})
    held = {"a": torch.ones(2), "b": [torch.ones(2)]}
    assert torch.equal(graph(held, True)["sum"], torch.full((2,), 2.0))
    again = fx.symbolic_trace(graph)
    assert torch.equal(again(held, True)["sum"], torch.full((2,), 2.0))


def test_einsum_has_its_operands_one_by_one():
    for told in (
        lambda x, y: torch.einsum("ij,jk->ik", (x, y)),
        lambda x, y: torch.einsum("ij,jk->ik", x, y),
    ):
        graph = fx.symbolic_trace(told)
        equation, *operands = next(node for node in graph.graph.nodes if node.op == "call_function").args
        assert equation == "ij,jk->ik" and [x.name for x in operands] == ["x", "y"]
        assert graph(torch.ones(2, 3), torch.ones(3, 1)).tolist() == [[3.0], [3.0]]


def test_functions_may_stay_whole():
    graph = fx.symbolic_trace(lambda x: x + len(x))
    assert [n.target for n in graph.graph.nodes if n.op == "call_function"] == [len, operator.add]
    assert torch.equal(graph(torch.zeros(3)), torch.full((3,), 3.0))
    with pytest.raises(StateError, match="'len' is not supported"):
        len(fx.Proxy(graph.graph.find_nodes(op="placeholder")[0]))
    with pytest.raises(NotImplementedError, match="top level"):
        fx.wrap("sum")


# ---- editing -----------------------------------------------------------------------------------------------
def plain():
    graph = fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_function(torch.relu, (x,))
    z = graph.call_function(operator.add, (y, 1))
    graph.output(z)
    return graph, x, y, z


def test_users_follow_what_is_assigned():
    graph, x, y, z = plain()
    assert list(x.users) == [y]
    z.args = (x, y)
    assert list(x.users) == [y, z]
    assert y.replace_all_uses_with(x) == [z]
    assert not y.users
    graph.erase_node(y)
    graph.lint()
    assert [n.name for n in graph.nodes] == ["x", "add", "output"]
    with pytest.raises(StateError, match="still had 1 users"):
        graph.erase_node(x)
    with pytest.raises(NotImplementedError, match="does not support mutation"):
        graph.call_function(torch.cat, ([x, x],)).args[0].append(x)


def test_steps_are_put_where_they_are_asked_for():
    graph, x, y, z = plain()
    with graph.inserting_before(z):
        a = graph.call_method("neg", (y,))
        b = graph.call_method("abs", (a,))
    with graph.inserting_after(x):
        c = graph.call_method("exp", (x,))
    z.replace_input_with(y, b)
    y.replace_input_with(x, c)
    assert [n.name for n in graph.nodes] == ["x", "exp", "relu", "neg", "abs_1", "add", "output"]
    module = fx.GraphModule({}, graph)
    v = torch.randn(3)
    assert torch.equal(module(v), (-torch.relu(v.exp())).abs() + 1)
    z.append(c)
    with pytest.raises(StateError, match="used before it has been defined"):
        graph.lint()


def test_dead_steps_go_and_writes_stay():
    def function(x):
        x.sin()
        x.add_(1)
        torch.cos(x)
        return x * 2

    graph = fx.symbolic_trace(function)
    assert graph.graph.eliminate_dead_code()
    assert [n.target for n in graph.graph.nodes if n.op.startswith("call")] == ["add_", operator.mul]
    assert not graph.graph.eliminate_dead_code()
    graph.recompile()
    assert torch.equal(graph(torch.ones(2)), torch.full((2,), 4.0))


def test_a_pattern_is_replaced():
    def function(x, w):
        a = torch.relu(x @ w) + 1
        return torch.relu(a @ w) + torch.relu(x)

    graph = fx.symbolic_trace(function)
    found = fx.replace_pattern(
        graph, lambda x, w: torch.relu(x @ w), lambda x, w: torch.nn.functional.leaky_relu(torch.matmul(x, w))
    )
    assert len(found) == 2
    x, w = torch.randn(3, 3), torch.randn(3, 3)
    a = nn.functional.leaky_relu(x @ w) + 1
    assert torch.equal(graph(x, w), nn.functional.leaky_relu(a @ w) + torch.relu(x))
    # a step in the midst that others use is no match
    graph = fx.symbolic_trace(lambda x: (torch.sin(x) + 1, torch.sin(x)))
    used = fx.symbolic_trace(lambda x: [(y := torch.sin(x)).exp(), y])
    assert not fx.replace_pattern(used, lambda x: torch.sin(x).exp(), lambda x: x)
    assert len(fx.replace_pattern(graph, lambda x: torch.sin(x), lambda x: torch.cos(x))) == 2


# ---- running -----------------------------------------------------------------------------------------------
def test_an_interpreter_runs_step_by_step(net):
    x = torch.randn(6, 4)
    graph = fx.symbolic_trace(net)
    assert_same(fx.Interpreter(graph).run(x), net(x))

    class Counting(fx.Interpreter):
        ran = 0

        def call_module(self, target, args, kwargs):
            self.ran += 1
            return super().call_module(target, args, kwargs)

    counting = Counting(graph)
    counting.run(x)
    assert counting.ran == 3
    with pytest.raises(StateError, match="Expected positional argument for parameter x"):
        counting.run()


def test_a_transformer_makes_another_graph(net):
    class Swapped(fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(torch.tanh if target is torch.relu else target, args, kwargs)

    x = torch.randn(6, 4)
    graph = fx.symbolic_trace(net)
    assert_same(fx.Transformer(graph).transform()(x), net(x))
    swapped = Swapped(graph).transform()
    assert "torch.tanh" in swapped.code
    assert "torch.relu" in graph.code


def test_shapes_are_noted(net):
    graph = fx.symbolic_trace(net)
    fx.passes.shape_prop.ShapeProp(graph).propagate(torch.randn(6, 4))
    shapes = {
        n.name: tuple(n.meta["tensor_meta"].shape)
        for n in graph.graph.nodes
        if n.name in ("linear", "tail_1")
    }
    assert shapes == {"linear": (6, 5), "tail_1": (6, 3)}


def test_values_in_containers_are_mapped():
    x = {"a": [1, (2, 3)], "b": slice(4, None)}
    assert map_aggregate(x, lambda v: v and v + 1) == {"a": [2, (3, 4)], "b": slice(5, None)}


def test_what_fx_costs_is_paid_while_it_traces(net):
    from lamina.runtime import overriding

    before = list(overriding.OPEN)
    fx.symbolic_trace(net)
    assert before == overriding.OPEN
