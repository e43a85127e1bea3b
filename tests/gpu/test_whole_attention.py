"""Attention and its way back as a program for a GPU has them: which kernels there are, and what is kept."""

from __future__ import annotations

import numpy as np
import pytest
from attention_cases import DTYPES
from fake_cuda import Fake, on_fake

import lamina
from lamina import jit, nn
from lamina.ir.dtypes import float64
from lamina.ir.graph import Builder, Graph
from lamina.ir.interpret import interpret
from lamina.ir.kernel import NUMPY
from lamina.ir.op import REGISTRY
from lamina.ir.ops.attention import repeated_heads, scaled_dot_product_attention
from lamina.ir.types import type_of
from lamina.passes.graphs.differentiate import differentiate
from lamina.passes.graphs.fuse import GPU
from lamina.passes.graphs.whole_attention import keep_attention
from lamina.passes.pipeline import Options, optimise, to_program
from lamina.passes.programs.program import Program, Whole
from lamina.passes.programs.program import interpret as interpret_program
from lamina.passes.triton.launches import Launch, launch_list
from lamina.passes.triton.target import ANY, Target

SIZES = 2, 6, 40, 24


def forward(dtype="f32", sizes=SIZES, heads=None, mask=None, spread="repeat", is_causal=False) -> Graph:
    """Attention of `heads` of keys and values, spread for those of queries, and its result doubled."""
    batch, all_heads, length, width = sizes
    kind = DTYPES[dtype]
    with Builder("net") as b:
        q = b.param(type_of(kind, sizes), "q")
        k, v = (b.param(type_of(kind, (batch, heads or all_heads, length, width)), n) for n in "kv")
        given = b.param(type_of(DTYPES["bool" if mask == "bool" else dtype], (length, length)), "mask")
        asked = {"attn_mask": given if mask else None, "is_causal": is_causal}
        if spread == "read":  # by others, too
            k, v = (repeated_heads(x, all_heads) for x in (k, v))
        out = scaled_dot_product_attention(q, k, v, **asked, enable_gqa=spread == "repeat" and bool(heads))
        return b.finish([out * 2.0 + k if spread == "read" else out * 2.0])


def there_and_back(**asked) -> Graph:
    return differentiate(forward(**asked))


def program_of(graph: Graph) -> Program:
    options = Options(limits=GPU)
    return to_program(optimise(graph, options), (None,) * len(graph.results), ANY, options)


def wholes(program: Program) -> list[str]:
    return [step.name for step in program.steps if isinstance(step, Whole)]


def arrays_of(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(p.shape) for p in graph.params]
    return [
        v > -0.5 if p.type.dtype.short == "bool" else v.astype(NUMPY[p.type.dtype.short])
        for v, p in zip(values, graph.params, strict=True)
    ]


def compare(graph: Graph, program: Program, ulps: int = 64) -> None:
    """The program's results are the graph's, in float64: sums of 40 and 24 terms, of numbers of up to 3, and
    so on behind these.
    """
    arrays = arrays_of(graph)
    wanted = interpret(graph, *arrays, dtype=float64)
    for got, want in zip(interpret_program(program, *arrays), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=ulps * 2.0**-23 * max(1, np.abs(want).max()))


BOTH = ["attention_with_lse", "attention_to_query", "attention_to_key_value"]


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"is_causal": True},
        {"mask": "bool"},
        {"mask": "float"},
        {"heads": 2},
        {"heads": 1, "is_causal": True},
        {"heads": 1, "spread": "broadcast"},
        {"heads": 3, "mask": "bool"},
    ],
    ids=str,
)
def test_the_kernels_mean_what_the_records_say(asked):
    graph = there_and_back(**asked)
    program = program_of(graph)
    compare(graph, program)
    assert wholes(program) == BOTH


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_what_is_kept_is_a_number_for_each_query(dtype):
    program = program_of(there_and_back(dtype=dtype, sizes=(2, 4, 512, 64)))
    launches, _ = launch_list(program, Target.named("sm_90"))
    kept = [step.outputs[1] for step in program.steps if step.name == "attention_with_lse"]
    assert [(array.name, array.dtype, array.shape) for array in kept] == [("lse", "f32", (2, 4, 512))]
    scores = 2 * 4 * 512 * 512 * 2
    assert launches.arena < scores and max(a.nbytes for a in program.arrays()) < scores
    named = [part.about for part in launches.parts if isinstance(part, Launch)]
    assert len([name for name in named if name in BOTH]) == 3


def test_a_call_without_a_way_back_keeps_nothing():
    assert wholes(program_of(forward())) == ["whole_attention"]


def test_a_way_back_alone_goes_there_first():
    with Builder("net") as b:
        g, q, k, v = (b.param(type_of(DTYPES["f32"], SIZES), name) for name in "gqkv")
        graph = b.finish([*REGISTRY["attention_backward"](g, q, k, v, is_causal=True)])
    program = program_of(graph)
    assert wholes(program) == BOTH
    compare(graph, program, 64)


def test_kernels_that_nobody_wants_are_left_out():
    graph = there_and_back()
    for wanted, names in ((1, BOTH[:2]), (2, [BOTH[0], BOTH[2]])):
        assert wholes(program_of(graph.replace(results=[graph.results[wanted]]))) == names


def test_heads_that_are_shared_are_not_copied():
    program = program_of(there_and_back(dtype="f16", sizes=(2, 8, 256, 64), heads=2))
    assert wholes(program) == BOTH
    there, _, to_keys = (step for step in program.steps if isinstance(step, Whole))
    assert there.attrs["groups"] == to_keys.attrs["groups"] == 4
    assert [a.shape for a in to_keys.outputs] == [(2, 2, 256, 64)] * 2
    copies = [
        c for c in program.calls if {a.shape for a in c.outputs} & {(2, 2, 4, 256, 64), (2, 2, 256, 64)}
    ]
    assert not copies, copies


def test_heads_whose_cotangent_goes_elsewhere_are_read_as_they_were_repeated():
    graph = there_and_back(heads=2, spread="read")
    program = program_of(graph)
    groups = [step.attrs["groups"] for step in program.steps if isinstance(step, Whole)]
    assert groups == [3, 1, 1]
    compare(graph, program, 128)


def test_second_order_stays_ops():
    graph = differentiate(there_and_back(sizes=(1, 1, 5, 4)))
    program = program_of(graph)
    compare(graph, program, 256)


def test_the_pass_as_text(golden):
    golden("whole_attention", keep_attention(there_and_back(dtype="f16", heads=2), "ieee"))


def stepped(target: str) -> tuple[list[np.ndarray], str]:
    """Gradients of attention to its operands, heads shared and not, in a step that is traced whole."""

    @jit.trace(target=target)
    def step(q, k, v):
        given = [x.detach().requires_grad_() for x in (q, k, v)]
        found = nn.functional.scaled_dot_product_attention(*given, is_causal=True, enable_gqa=True)
        (found * q).sum().backward()
        return [x.grad for x in given]

    for _ in range(2):
        lamina.manual_seed(3)
        q, k, v = (lamina.randn(2, heads, 33, 16) for heads in (4, 2, 2))
        made = step(q, k, v)
    assert step.counts()["served"] == 1, step.explain()
    return [x.numpy() for x in made], step.explain(memory=True)


@pytest.mark.sampled(3)
@on_fake()
def test_a_step_that_goes_back_runs_as_on_the_cpu_and_says_what_is_kept(fake: Fake):
    from cuda_interpreting import interpret_launches

    ran = interpret_launches(fake)
    (found, said), (wanted, _) = stepped("cuda"), stepped("cpu")
    for got, want in zip(found, wanted, strict=True):
        # sums of 33 terms and of 16, behind one another
        np.testing.assert_allclose(got, want, rtol=0, atol=64 * 2.0**-23 * np.abs(want).max())
    assert len(ran) == 5, said  # the cotangent, and between both ways the sums of products
    assert "%lse: f32[2,4,33]" in said
