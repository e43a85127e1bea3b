"""Changed texts of graphs, kernels and programs: each is refused by an error, or means what it says."""

from driver import Kind, kind
from text_corpus import graph_texts, kernel_texts, program_texts
from text_judges import judge_graph, judge_kernel, judge_program
from text_mutation import Mutator


@kind("graph")
def graph() -> Kind:
    return Kind(make=Mutator(graph_texts()), check=judge_graph, refusals=(), batch=10_000)


@kind("kernel")
def kernel() -> Kind:
    return Kind(make=Mutator(kernel_texts()), check=judge_kernel, refusals=(), batch=5_000)


@kind("program")
def program() -> Kind:
    return Kind(make=Mutator(program_texts()), check=judge_program, refusals=(), batch=5_000)


KINDS = {"graph": graph, "kernel": kernel, "program": program}
