"""The runner of passes: it verifies after each, names the culprit, and stops where told."""

from functools import partial

import numpy as np
import pytest

from lamina.ir import Value, parse
from lamina.ir.errors import ArgumentValueError, GraphError
from lamina.ir.ops import arithmetic  # noqa: F401 - enters add
from lamina.passes.programs.program import interpret as interpret_program
from lamina.passes.programs.program_text import parse as parse_program
from lamina.passes.programs.program_text import program_text
from lamina.passes.run import run, run_program

GRAPH = """\
graph f(%x: f32[3]) -> (f32[3]) {
  %0 = add(%x, 1.0:f32) : f32[3]
  return %0
}"""


def rename(graph, name="g"):
    return graph.replace(name=name)


def forget_nodes(graph):
    return graph.replace(nodes=())


def give_text(graph):
    return str(graph)


def mistype(graph):
    (node,) = graph.nodes
    made = Value(node.outputs[0].type.with_shape((4,)))
    return graph.replace(nodes=[node.replace(outputs=(made,))], results=[made])


def test_passes_run_in_order():
    assert str(run(parse(GRAPH), [rename, partial(rename, name="h")])) == GRAPH.replace("graph f", "graph h")


@pytest.mark.parametrize(("stop", "name"), [(0, "f"), (1, "g"), ("rename", "g"), (2, "h"), (None, "h")])
def test_run_stops_where_told(stop, name):
    def second(graph):
        return rename(graph, "h")

    assert run(parse(GRAPH), [rename, second], stop_after=stop).name == name


def test_unknown_name_to_stop_at_is_refused():
    with pytest.raises(ArgumentValueError, match="no pass is called 'fuse'\n  the passes are: rename"):
        run(parse(GRAPH), [rename], stop_after="fuse")


def test_culprit_is_named():
    with pytest.raises(GraphError) as error:
        run(parse(GRAPH), [rename, mistype, forget_nodes])
    assert str(error.value) == (
        "pass mistype (2 of 3) broke the graph\n"
        "  graph g: add gives f32[3], the graph says f32[4]\n"
        "  %0 = add(%x, 1.0:f32) : f32[4]"
    )
    assert error.value.__notes__ == ["the graph before the pass:\n" + GRAPH.replace("graph f", "graph g")]
    with pytest.raises(
        GraphError, match="pass forget_nodes .* the result .* is not defined".replace(" .* ", "(.|\n)*")
    ):
        run(parse(GRAPH), [partial(forget_nodes)])
    with pytest.raises(GraphError, match="it returned str, not a graph"):
        run(parse(GRAPH), [give_text])


def test_graph_that_was_broken_before_is_not_blamed_on_a_pass():
    with pytest.raises(GraphError, match="graph f: the result"):
        run(forget_nodes(parse(GRAPH)), [rename])


PROGRAM = """\
kernel add(a: f32[3], b: f32[3]) -> (y: f32[3]) {
  parallel i:3
  y[i] = (a[i] + b[i])
}
program net(%x: f32[3]) -> (%y) {
  %y: f32[3] = add(%x, %x)
}"""


def test_programs_run_through_passes_too():
    made = run_program(parse_program(PROGRAM), [rename, partial(rename, name="h")], stop_after=1)
    assert program_text(made) == PROGRAM.replace("program net", "program g")
    assert interpret_program(made, np.ones(3, np.float32))[0].tolist() == [2.0] * 3


@pytest.mark.parametrize(
    ("old", "new", "rule"),
    [
        ("b[i]", "b[i+1]", "program net: a kernel breaks a rule of its form"),
        ("add(%x, %x)", "add(%x)", "program net: the arrays of a call are those its kernel says"),
    ],
)
def test_the_pass_that_broke_a_program_or_a_kernel_is_named(old, new, rule):
    def spoil(program):
        return parse_program(PROGRAM.replace(old, new))

    with pytest.raises(GraphError) as error:
        run_program(parse_program(PROGRAM), [rename, spoil, rename])
    assert str(error.value).startswith(f"pass spoil (2 of 3) broke the program\n  {rule}\n")
    assert "the program before the pass:\nprogram g(" in error.value.__notes__[0]
    with pytest.raises(GraphError, match="it returned str, not a program"):
        run_program(parse_program(PROGRAM), [give_text])
