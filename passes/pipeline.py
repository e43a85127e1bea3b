"""The passes in their order, from a recorded graph to a program that code can be made of.

optimise works on graphs, to_program goes on from there; each can stop after any pass, to bisect.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..ir.errors import ArgumentValueError
from ..ir.graph import Graph, Node, Value
from ..ir.recur import recurrent
from .graphs.begin_apart import begin_apart
from .graphs.cse import cse
from .graphs.dce import dce
from .graphs.expand import expand
from .graphs.fold_constants import fold_constants
from .graphs.fold_conv_bn import fold_conv_bn
from .graphs.fuse import CPU, Limits, fuse
from .graphs.image_by_image import image_by_image
from .graphs.join_parts import join_parts
from .graphs.look_up_last import look_up_last
from .graphs.puts_apart import puts_apart
from .graphs.simplify import simplify
from .graphs.unroll import unroll
from .graphs.whole_attention import UNROUNDED, keep_attention
from .programs.assign_layouts import Options as Layouts
from .programs.assign_layouts import assign_layouts
from .programs.batch_innermost import Options as Innermost
from .programs.batch_innermost import batch_innermost
from .programs.build_program import build_program
from .programs.channels_last import channels_last
from .programs.factor_sums import factor_sums
from .programs.hoist import within
from .programs.matrix_convolutions import matrix_convolutions
from .programs.narrow_windows import narrow_windows
from .programs.pack_matmuls import Options as Products
from .programs.pack_matmuls import pack_matmuls
from .programs.program import Program, Repeat
from .programs.read_narrow import read_narrow
from .programs.round_products import round_products, sums_apart
from .programs.round_where_made import round_where_made
from .programs.shorten_lifetimes import shorten_lifetimes
from .programs.tile_convolutions import SHARE, tile_convolutions
from .programs.widen_windows import widen_windows
from .run import Pass, ProgramPass, name_of, run, run_program
from .schedules.target import Target
from .triton.target import Target as Gpu

PIPELINE: tuple[Pass, ...] = (
    fold_constants,  # first: the recorder writes every number down as it met it
    simplify,  # what is left of identities and views of views
    cse,  # equal nodes stand in the way of "used by this alone" below
    fold_conv_bn,  # while norms are still one node each
    puts_apart,  # before writes of parts are what they stand for
    expand,  # losses and optimizer updates as the ops they stand for, which are then ...
    begin_apart,  # of layers that are loops now
    fold_constants,
    simplify,
    cse,  # ... the same for each parameter: bias corrections are computed once
    look_up_last,  # with gradients spelt out, and before tables and rows are parts of kernels
    join_parts,  # once equal slices' gradients are one
    dce,  # before fuse: a value that nobody reads would be stored
    image_by_image,  # likewise; what it takes is fused within
    fuse,  # last: a fused node is closed to the others
)


@dataclass(frozen=True)
class Options:
    """What the pipeline may do, and how far it goes.

    fold_norms: fold normalisation by given statistics into weights, which rounds otherwise.  winograd:
    compute convolutions from sums of their inputs, likewise.  fuse: make kernels of several ops.  layouts:
    lay arrays out anew for convolutions and products.  frozen: the positions of the params that hold weights,
    which seldom change.  verify: check the graph or the program, and its kernels, after every pass, and name
    the culprit.  stop_after: the name of the last pass that runs, over graphs or over programs.  limits: of
    fused kernels.  tune: the seconds for which schedules are searched by measuring, where there is a machine.
    precision: what factors of products of f32 may be rounded to, where the target is quicker by that.
    images: as a `Core` has it; layers of a batch go image by image where that is quicker, 0 for never.
    any_rows: a single row's weights lie as they do for any number of rows, whose programs share them.
    """

    fold_norms: bool = True
    winograd: bool = True
    fuse: bool = True
    layouts: bool = True
    frozen: frozenset[int] = frozenset()
    verify: bool = False
    stop_after: str | None = None
    limits: Limits = CPU
    tune: float = 0.0
    precision: str = "float32"
    images: float = 0.0
    any_rows: bool = False

    def passes(self) -> tuple[Pass, ...]:
        """The passes over graphs that these options ask for."""
        left_out = {
            fold_conv_bn: self.fold_norms,
            puts_apart: self.limits == CPU,
            begin_apart: self.limits == CPU and bool(self.frozen),
            fuse: self.fuse,
        }
        found = tuple(p for p in PIPELINE if left_out.get(p, True))
        instead: dict[Pass, tuple[Pass, ...]] = {}
        if self.images:
            instead[image_by_image] = (partial(image_by_image, far=self.images),)
        if self.limits != CPU or self.frozen:
            instead[fuse] = (partial(fuse, limits=self.limits, frozen=self.frozen),)
            instead[begin_apart] = (partial(begin_apart, frozen=self.frozen),)
        if self.limits != CPU:
            keep = partial(keep_attention, precision=_ROUNDED.get(self.precision, UNROUNDED))
            instead[expand] = keep, partial(expand, loops=False), unroll  # launches are a list
        found = tuple(step for p in found for step in instead.get(p, (p,)))
        if self.stop_after is None or self.stop_after in PROGRAM_PASSES:
            return found
        names = [name_of(p) for p in found]
        if self.stop_after not in names:
            raise ArgumentValueError(
                f"Options(stop_after): no pass is called {self.stop_after!r}",
                f"the passes are: {', '.join(dict.fromkeys((*names, *PROGRAM_PASSES)))}",
            )
        return found[: len(names) - names[::-1].index(self.stop_after)]


def optimise(graph: Graph, options: Options = Options()) -> Graph:
    """The graph after the pipeline.  It holds no writes (`functionalise` sees to that).

    Raises GraphError naming the pass that broke the graph, if the options say `verify`.
    """
    if options.verify:
        graph = run(graph, options.passes())
    else:
        for step in options.passes():
            graph = step(graph)
    return _with_bodies(graph, options)


def _with_bodies(graph: Graph, options: Options) -> Graph:
    """The graph with the graphs of what repeats after the pipeline."""
    if not any(node.op is recurrent for node in graph.nodes):
        return graph
    used = {v for node in graph.nodes for v in node.inputs}.union(graph.results)
    return graph.replace(
        nodes=[_with_body(node, used, options) if node.op is recurrent else node for node in graph.nodes]
    )


def _with_body(node: Node, used: set[Value | None], options: Options) -> Node:
    """The node with its graph after the pipeline, and without sequences that nobody reads."""
    body, states = node.attrs["body"], len(node.attrs["kept"])
    first_fixed = node.attrs["sequences"] + states
    options = replace(options, frozen=frozenset(range(first_fixed, len(body.params))))
    pairs = zip(body.results, node.outputs, strict=True)
    found = [(inner, outer) for n, (inner, outer) in enumerate(pairs) if n < states or outer in used]
    body = optimise(body.replace(results=[inner for inner, _ in found]), options)
    return node.replace(attrs={**node.attrs, "body": body}, outputs=tuple(outer for _, outer in found))


def to_program(
    graph: Graph, into: Sequence[int | None], target: Target | Gpu, options: Options = Options()
) -> Program:
    """The program of an optimised graph, its arrays laid out for the target.

    into: for each result, the param that it overwrites, or None.  target: a CPU level, or a GPU architecture.
    Raises GraphError naming the pass that broke the program, if the options say `verify`.
    """
    program, passes = build_program(graph, into), program_passes(target, options)
    if options.verify:
        return run_program(program, passes)
    for step in passes:
        program = step(program)
    return program


def lay_out_bodies(program: Program, target: Target, options: Options) -> Program:
    """The program with the bodies of what repeats after these passes, without what all runs do alike."""

    def changed(step: Repeat) -> Program:
        fixed = frozenset(range(step.states.stop, len(step.inputs)))
        body = step.body
        for change in _of_cpu(target, replace(options, frozen=fixed)):
            body = change(body)
        return body

    return within(program, changed)


def program_passes(target: Target | Gpu, options: Options = Options()) -> tuple[ProgramPass, ...]:
    """The passes over programs that these options ask for, in order; `name_of` names them.

    None where they stop after a pass over graphs, or after build_program.
    """
    passes = _LAYOUTS[target.language](target, options) if options.layouts else ()
    names = [name_of(step) for step in passes]
    if options.stop_after is None:
        return passes
    return passes[: names.index(options.stop_after) + 1] if options.stop_after in names else ()


def _of_cpu(target: Target, options: Options) -> tuple[ProgramPass, ...]:
    rounds = options.precision == "bfloat16"
    products = Products(options.frozen, rounds=rounds, any_rows=options.any_rows)
    layouts = Layouts(options.winograd, rounds=rounds, seldom=bool(options.frozen))
    return (
        partial(
            lay_out_bodies, target=target, options=options
        ),  # first: what they need not repeat is laid out, too
        narrow_windows,  # before anything is chosen by the size of windows
        partial(widen_windows, target=target),
        # what is left are products that the layouts below are for
        partial(factor_sums, target=target),
        # whole vectors of images need no blocks of channels
        partial(batch_innermost, target=target, options=Innermost(winograd=options.winograd)),
        partial(matrix_convolutions, target=target, rounds=rounds),
        partial(assign_layouts, target=target, options=layouts),
        partial(read_narrow, frozen=options.frozen),  # before factors are packed as they are
        # products that no layout has taken for convolutions
        partial(pack_matmuls, target=target, options=products),
        *([round_where_made] if target.pairs or target.matrix else []),  # with all that is to be rounded
        shorten_lifetimes,  # last: of the steps that there are
    )


def _of_gpu(target: Any, options: Options) -> tuple[ProgramPass, ...]:
    rounded = _ROUNDED.get(options.precision)
    if rounded is None:
        return (
            *(
                [tile_convolutions] if options.winograd else []
            ),  # first: as they are given they need no copies
            partial(channels_last, tiles=SHARE if options.winograd else 0.0),
            sums_apart,  # last: of all products that there are
        )
    return partial(channels_last, sums_last=True), partial(round_products, precision=rounded)


# Tensor cores take factors of f32 by these; of bfloat16's 8 bits there are 11 then.
_ROUNDED = {"bfloat16": "tf32", "tf32": "tf32", "tf32x3": "tf32x3"}

_LAYOUTS: dict[str, Callable[[Any, Options], tuple[ProgramPass, ...]]] = {"llvm": _of_cpu, "triton": _of_gpu}


# What may come after them: `program_passes` says which and in which order.
PROGRAM_PASSES = tuple(
    map(
        name_of,
        (
            build_program,
            lay_out_bodies,
            narrow_windows,
            widen_windows,
            factor_sums,
            batch_innermost,
            matrix_convolutions,
            assign_layouts,
            read_narrow,
            pack_matmuls,
            round_where_made,
            tile_convolutions,
            channels_last,
            sums_apart,
            round_products,
        ),
    )
)
