"""`torch.compile` and its kin: PyTorch's names, arguments and defaults, Lamina's tracing compiler."""

import copy
import inspect
import pickle
import subprocess
import sys
import time

import pytest

import lamina
import lamina as torch
from lamina import jit, nn
from lamina.ir.errors import ArgumentError, ArgumentValueError


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 3)
        self.scale = 2.0

    def forward(self, x):
        return self.linear(x) * self.scale

    def twice(self, x):
        return self(x) * 2


def x_of(rows=2):
    return torch.ones(rows, 2)


# ---- compile -----------------------------------------------------------------------------------------------
def test_arguments_and_defaults_are_pytorchs():
    given = inspect.signature(torch.compile).parameters
    assert {name: p.default for name, p in given.items()} == {
        "model": None, "fullgraph": False, "dynamic": None, "backend": "inductor", "mode": None,
        "options": None, "disable": False,
    }  # fmt: skip
    assert [p.kind.name for p in given.values()] == ["POSITIONAL_OR_KEYWORD"] + ["KEYWORD_ONLY"] * 6


def test_a_function_is_compiled_called_or_decorated():
    def plain(x):
        return x * 2

    @torch.compile
    def bare(x):
        return x * 2

    @torch.compile(dynamic=True, mode="max-autotune")
    def decorated(x):
        return x * 2

    for f in (torch.compile(plain), bare, decorated, torch.compile(plain, options={"trace.enabled": True})):
        for _ in range(3):
            assert f(x_of()).tolist() == [[2.0, 2.0]] * 2
        assert isinstance(f, jit.TracedFunction) and f.counts()["served"] == 2
    assert torch.compile(bare) is bare


def test_what_means_another_result_is_refused():
    def f(x):
        return x

    for wrong in ({"backend": "nothing"}, {"backend": lambda graph, inputs: graph}, {"mode": "fastest"}):
        with pytest.raises(ArgumentValueError, match="is none of"):
            torch.compile(f, **wrong)
    with pytest.raises(RuntimeError, match="mode or options, not both"):
        torch.compile(f, mode="default", options={})
    with pytest.raises(ArgumentError, match="takes a dictionary, not list"):
        torch.compile(f, options=[])
    for same in ({"disable": True}, {"backend": "eager"}, {"backend": "aot_eager"}):
        assert torch.compile(f, **same) is f and torch.compile(**same)(f) is f


def test_fullgraph_is_compiled_code_or_an_error():
    calls = []

    @torch.compile(fullgraph=True)
    def f(x):
        calls.append(1)
        return x * time.time()

    for _ in range(3):
        with pytest.raises(jit.RefusedError) as error:
            f(x_of())
        text = str(error.value)
        assert "f: time.time() gives another value at each call" in text and "test_compile.py:" in text
        assert "instead: pass the time as an argument" in text
    assert calls == [1]  # the first ran before that was known
    assert isinstance(error.value, RuntimeError)

    @torch.compile(fullgraph=True, dynamic=False)
    def many(x):
        return x * 2

    for n in range(1, 33):
        many(x_of(n))
    with pytest.raises(jit.TooManyRecordings):
        many(x_of(33))
    with pytest.raises(ZeroDivisionError):  # a function's own errors are its own
        torch.compile(lambda x: x * (1 // 0), fullgraph=True)(x_of())


def test_fullgraph_of_an_answer_that_never_repeats():
    @torch.compile(fullgraph=True)
    def f(x):
        return [float(str(x.sum().item()).strip())]

    with pytest.raises(jit.RefusedError, match="the answer to item took more than 8 values"):
        for n in range(20):
            assert f(torch.full((2,), float(n))) == [2.0 * n]
    assert n == 8


def test_fullgraph_survives_a_copy_and_a_pickle():
    traced = jit.trace(Net(), fullgraph=True, budget=None)
    for other in (copy.deepcopy(traced), pickle.loads(pickle.dumps(traced))):
        assert other._fullgraph and other._options() == traced._options()


# ---- modules -----------------------------------------------------------------------------------------------
def test_a_compiled_module_is_a_module():
    net = Net()
    compiled = torch.compile(net)
    assert isinstance(compiled, nn.Module) and isinstance(compiled, torch._dynamo.OptimizedModule)
    assert compiled._orig_mod is net and [*compiled.state_dict()] == [
        "_orig_mod.linear.weight",
        "_orig_mod.linear.bias",
    ]
    with torch.no_grad():
        for _ in range(3):
            assert torch.equal(compiled(x_of()), net(x_of()))
    assert compiled.counts()["served"] == 2 and "served 2 of 3 calls" in compiled.explain()
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in net.parameters()]
    compiled.scale = 5.0
    assert net.scale == 5.0 and compiled.scale == 5.0 and compiled.linear is net.linear
    assert torch.equal(compiled.twice(x_of()), net(x_of()) * 2)
    compiled.eval()
    assert not net.training and not compiled.training
    with pytest.raises(AttributeError, match="nothing"):
        compiled.nothing  # noqa: B018
    assert torch.compile(compiled) is compiled


def test_a_compiled_module_is_a_part_of_others():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.compile(Net())
            self.head = nn.Linear(3, 1)

        def forward(self, x):
            return self.head(self.inner(x))

    torch.manual_seed(0)
    outer = Outer()
    assert len([*outer.parameters()]) == 4
    optimizer = torch.optim.SGD(outer.parameters(), lr=0.01)
    for model in (outer, torch.compile(outer)):
        for _ in range(4):
            before = outer.inner.linear.weight.clone()
            optimizer.zero_grad()
            model(x_of()).sum().backward()
            optimizer.step()
            assert not torch.equal(before, outer.inner.linear.weight)
    assert model.counts()["served"] == 3, model.explain(detail=True)
    other = copy.deepcopy(outer)
    assert torch.equal(other(x_of()), outer(x_of())) and other.inner._orig_mod is not outer.inner._orig_mod


def test_a_module_is_compiled_in_place():
    net = Net()
    assert net.compile(fullgraph=True) is None
    seen = []
    net.register_forward_hook(lambda module, args, out: seen.append(1))
    plain = Net()
    plain.load_state_dict(net.state_dict())
    for _ in range(4):
        assert torch.equal(net(x_of()), plain(x_of()))
    assert net.forward.counts()["served"] == 3 and seen == [1] * 4
    assert [*net.state_dict()] == ["linear.weight", "linear.bias"]
    net.compile()
    assert net.forward.counts()["served"] == 3
    for other in (copy.deepcopy(net),):
        with torch.no_grad():
            other.linear.weight.zero_()
        assert not torch.equal(other(x_of()), net(x_of())) and torch.equal(net(x_of()), plain(x_of()))
    plain.compile(disable=True)
    assert "forward" not in vars(plain)


# ---- torch.compiler, torch._dynamo -------------------------------------------------------------------------
def test_disabled_functions_run_as_they_are():
    def f(x):
        return x + 1

    compiled, net = torch.compile(f), Net()
    for disable in (torch.compiler.disable, torch._dynamo.disable):
        assert disable(f) is f and disable()(f) is f and disable(recursive=False)(compiled) is f
        assert disable(torch.compile(net)) is net and disable(net) is net

    @torch.compile
    def g(x):
        return torch.compiler.disable(f)(x) * 2 if not torch.compiler.is_compiling() else x

    for _ in range(3):
        assert g(x_of()).tolist() == [[4.0, 4.0]] * 2


def test_reset_forgets_what_was_recorded():
    f = torch.compile(lambda x: x * 2)
    for reset in (torch._dynamo.reset, torch.compiler.reset):
        f(x_of()), f(x_of())
        assert f.counts()["served"] == 1
        reset()
        assert sum(f.counts().values()) == 0


def test_nothing_asks_whether_it_is_compiled_and_is_told_another_thing():
    @torch.compile
    def f(x):
        asked = (
            torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling(), torch._dynamo.is_compiling(),
            torch.jit.is_scripting(), torch.jit.is_tracing(),
        )  # fmt: skip
        return x * 2, asked

    for _ in range(3):
        assert f(x_of())[1] == (False,) * 5
    assert f.counts()["served"] == 2, f.explain()


def test_the_rest_is_there_and_harmless():
    @torch.compiler.assume_constant_result
    def three():
        return 3.0

    @torch._dynamo.disallow_in_graph
    def halved(x):
        torch._dynamo.graph_break()
        return x / 2

    traced = torch.compile(halved)
    assert all(traced(x_of()).equal(halved(x_of())) for _ in range(3))
    assert traced.counts()["served"]

    @torch._dynamo.optimize("inductor", nopython=True)
    def f(x):
        return x * three()

    assert [f(x_of()).tolist() for _ in range(2)] == [[[3.0, 3.0]] * 2] * 2 and f.counts()["served"] == 1
    assert torch.compiler.list_backends() == ["inductor"] and torch.compiler.allow_in_graph(three) is three
    torch.compiler.cudagraph_mark_step_begin()
    torch._dynamo.mark_dynamic(x_of(), 0, min=2)
    torch._dynamo.config.suppress_errors = True


# ---- torch.jit ---------------------------------------------------------------------------------------------
def test_jit_trace_calls_with_its_example():
    for example in (x_of(), (x_of(),), [x_of()]):
        traced = torch.jit.trace(Net(), example, check_trace=False, strict=False)
        assert traced.counts()["recorded"] == 1
        traced(x_of())
        assert traced.counts()["served"] == 1
    traced = torch.jit.trace(lambda x, y: x + y, x_of(), example_kwarg_inputs={"y": 2.0})
    assert traced(x_of(), y=2.0).tolist() == [[3.0, 3.0]] * 2 and traced.counts()["served"] == 1
    with pytest.raises(TypeError):
        torch.jit.trace(lambda x: x, x_of(), nothing=1)


def test_jit_script_traces_both_ways():
    @torch.jit.script
    def f(x, flag: bool):
        if flag:
            return x * 2
        return x - 1

    for flag, value in ((True, 2.0), (False, 0.0)) * 2:
        assert f(x_of(), flag).tolist() == [[value, value]] * 2
    assert f.counts()["served"] == 2

    @torch.jit.script
    class Config:
        pass

    assert isinstance(Config, type)

    @torch.jit.ignore(drop=True)
    def g(x):
        return x

    assert g(1) == 1 and torch.jit.unused(g) is g


SCRIPT = """
import torch, torch._dynamo, torch.compiler
import torch.jit
from torch import nn
model = torch.compile(nn.Linear(2, 2))
torch._dynamo.config.suppress_errors = True
for _ in range(3):
    model(torch.ones(1, 2))
print(torch.jit.trace(nn.ReLU(), torch.ones(2))(torch.ones(2)).tolist(), model.counts()["served"])
"""


def test_a_script_for_pytorch_uses_them(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "lamina", "run", "script.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "[1.0, 1.0] 2\n", "")


def test_asking_for_the_compiler_does_not_load_it():
    program = "import sys, lamina\nlamina.compile, lamina.compiler.disable(print)\n"
    program += "lamina.compiler.is_compiling(), lamina.nn.Linear(1, 1).compile\n"
    program += "print(any(name.startswith(('lamina.jit', 'llvmlite')) for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\n", "")
    assert lamina.compile is torch.compile


def test_what_torchscript_is_told_means_nothing_inside_of_a_trace():
    @lamina.jit.trace
    def step(x):
        parts = lamina.jit.annotate(list, [])
        later = lamina.jit.fork(lambda v: v.exp(), x)
        if not lamina.jit.is_scripting():
            parts.append(x * 2)
        return sum(parts) + lamina.jit.wait(later)

    for n in range(5):
        x = lamina.ones(3) * n
        assert step(x).allclose(x * 2 + x.exp())
    assert step.counts()["served"] >= 3, step.explain()


# ---- stances, and how a function is recorded ---------------------------------------------------------------
def test_stances_say_what_compiled_functions_do():
    f = torch.compile(lambda x: x * 2)

    def counts():
        told = f.counts()
        return told["recorded"], told["served"], told["eager"]

    with torch.compiler.set_stance("force_eager"):
        assert f(x_of()).tolist() == [[2.0, 2.0]] * 2
    assert counts() == (0, 0, 0)
    f(x_of())
    with torch.compiler.set_stance("eager_on_recompile"):
        f(x_of())
        f(x_of().double())
    assert counts() == (1, 1, 1)
    with torch.compiler.set_stance("fail_on_recompile"):
        f(x_of())
        with pytest.raises(jit.RefusedError, match=r"Detected recompile: .*\n.*f32\[2,2\] -> f64\[2,2\]"):
            f(x_of().double())
    assert counts() == (1, 2, 1)

    @torch.compiler.set_stance("force_eager")
    def undecorated():
        return f(x_of())

    undecorated()
    assert counts() == (1, 2, 1)
    torch.compiler.set_stance("force_eager")
    try:
        f(x_of())
    finally:
        torch.compiler.set_stance("default")
    f(x_of())
    assert counts() == (1, 3, 1)
    with torch.compiler.set_stance("default", force_backend="eager"):
        f(x_of())
    assert counts() == (1, 3, 1)
    with pytest.raises(ArgumentValueError, match="is none of default, force_eager"):
        torch.compiler.set_stance("eager")
    with pytest.raises(RuntimeError, match="cannot have force_backend"):
        torch.compiler.set_stance("force_eager", force_backend="eager")


def test_run_records_no_more():
    f = torch.compile(lambda x: x * 2)
    f(x_of())
    again = torch._dynamo.run(f)
    for x in (x_of(), x_of(3), x_of().double()):
        assert again(x).tolist() == (x * 2).tolist()
    assert f.counts()["recorded"] == 1 and f.counts()["eager"] >= 1


def test_explain_tells_graphs_and_breaks():
    def branches(x):
        y = x.sin()
        return y.cos() if y.sum() > 0 else y.tan()

    told = torch._dynamo.explain(branches)(x_of())
    assert (told.graph_count, told.graph_break_count, told.op_count) == (2, 1, 4)
    assert told.ops_per_graph == [["sin", "sum", "gt"], ["cos"]] and told.break_reasons == []
    told = torch._dynamo.explain(lambda x: x * time.time())(x_of())
    assert told.graph_count == 0 and "time.time()" in told.break_reasons[0].reason
    assert "Graph Break Count: 1" in str(told)
    assert torch.compiler.nested_compile_region(branches) is branches
    assert torch._dynamo.optimize_assert()(lambda x: x * 2)(x_of()).tolist() == [[2.0, 2.0]] * 2


# ---- traced modules within modules -------------------------------------------------------------------------
def test_a_traced_module_is_a_child_like_any_other():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.scripted = jit.script(nn.Linear(2, 2))
            self.compiled = torch.compile(nn.Linear(2, 2))
            self.row = nn.Sequential(jit.trace(nn.Linear(2, 2), x_of()), nn.Sigmoid())

        def forward(self, x):
            return self.row(self.compiled(self.scripted(x)))

    holder = Holder()
    assert isinstance(holder.scripted, jit.TracedFunction)
    assert [*holder.state_dict()] == [
        "scripted.weight", "scripted.bias", "compiled._orig_mod.weight", "compiled._orig_mod.bias",
        "row.0.weight", "row.0.bias",
    ]  # fmt: skip
    before = holder.scripted.weight.detach().clone()
    optimizer = torch.optim.SGD(holder.parameters(), lr=0.1)
    for run in (holder, torch.compile(holder)):
        for _ in range(3):
            optimizer.zero_grad()
            (run(x_of()) - 3).square().sum().backward()
            optimizer.step()
    assert holder.scripted.counts()["served"] and not torch.equal(holder.scripted.weight, before)
    assert not holder.eval().scripted.training and holder.double()(x_of().double()).dtype is torch.float64
    copied = copy.deepcopy(holder)
    assert torch.equal(copied(x_of().double()), holder(x_of().double()))
    holder.scripted = nn.Identity()
    assert type(holder.scripted) is nn.Identity and len([*holder.parameters()]) == 4
    holder.scripted = jit.script(nn.Linear(2, 2))
    holder.scripted = None
    assert holder.scripted is None
    del holder.scripted
    assert not hasattr(holder, "scripted")


def test_a_traced_module_stays_one_where_modules_return_themselves():
    traced = jit.script(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)))
    for found in (traced.eval(), traced.to("cpu"), traced.train(), traced.float(), traced.requires_grad_()):
        assert found is traced
    assert traced.training and traced.eval().state_dict().keys() == {"0.weight", "0.bias"}
    assert traced(x_of()).shape == (2, 2) and traced.counts()["recorded"] == 1


def test_a_script_module_is_a_module_to_derive_from():
    class Cell(jit.ScriptModule):
        __constants__ = ("scale",)

        def __init__(self):
            super().__init__()
            self.weight, self.scale = nn.Parameter(torch.ones(2)), 3

        @jit.script_method
        def forward(self, x):
            return x * self.weight * self.scale

    cell = Cell()
    assert cell(x_of()).tolist() == [[3.0, 3.0]] * 2 and [*cell.state_dict()] == ["weight"]
    assert isinstance(cell, jit.ScriptModule) and isinstance(cell, nn.Module)
    assert isinstance(jit.script(nn.Linear(2, 2)), jit.ScriptModule)
    assert not isinstance(jit.script(nn.Linear(2, 2)), Cell) and not isinstance(nn.ReLU(), jit.ScriptModule)
    assert isinstance(jit.script(len), jit.ScriptFunction) and not isinstance(
        jit.script(len), jit.ScriptModule
    )


def test_what_scripts_raise_is_an_error_of_jit():
    scripted = lamina.jit.script(lambda x: x @ x)
    with pytest.raises(lamina.jit.Error):
        scripted(lamina.ones(2, 3))
