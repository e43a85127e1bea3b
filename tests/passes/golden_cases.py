"""Cases of a pass as golden text: each is a graph before and after, or the error that it raises."""

from lamina.ir import graph_text, verify
from lamina.ir.errors import LaminaError


def shown(step, cases):
    """The text of all cases: {name: graph} as name, before -> after.

    What verifies, and that a second run changes nothing, is asserted on the way.
    """
    return "\n\n".join(f"# {name}\n{_case(step, graph)}" for name, graph in cases.items())


def _case(step, graph):
    verify(graph)
    before = graph_text(graph)
    try:
        made = step(graph)
    except LaminaError as error:
        return f"{before}\n-> {type(error).__name__}: {error}"
    verify(made)
    assert str(step(made)) == str(made), "a second run changed the graph"
    after = graph_text(made)
    return f"{before}\n-> the same" if after == before else f"{before}\n->\n{after}"
