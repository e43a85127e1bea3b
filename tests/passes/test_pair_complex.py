"""Complex values as pairs of reals: every record's meaning stays, and what has a formula runs in kernels."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from lamina.ir import dtypes
from lamina.ir.by_pairs import by_pairs, from_pairs, paired_type, to_pairs
from lamina.ir.errors import GraphError
from lamina.ir.graph import Builder
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY
from lamina.ir.sample import Operand
from lamina.ir.text import parse
from lamina.ir.types import type_of
from lamina.ir.verify import verify
from lamina.passes.graphs.differentiate import Options, differentiate
from lamina.passes.graphs.pair_complex import pair_complex

NAMES = sorted(
    name
    for name, op in REGISTRY.items()
    if (op.complex or op.dtypes == "complex") and op.operands and not op.traits.host
)
# What only the host does: factorisations, transforms, and functions that nobody has asked kernels for.
HOST = set(
    "acos acosh asin asinh atan atanh cholesky_inverse cholesky_parts cholesky_solve cumprod exp2 expm1 "
    " fft_c2c fft_c2r fft_r2c geqrf ldl_parts ldl_solved "
    "linalg_cholesky linalg_det linalg_eig linalg_eigh linalg_inv linalg_lu_factor linalg_matrix_exp "
    "linalg_qr linalg_slogdet linalg_svd log10 log1p log2 logaddexp logcumsumexp logsumexp "
    "linear_recurrence pow prod pseudo_inverse rms_norm rsqrt scatter_reduce "
    "sigmoid silu sinc solve_matrix solve_triangle tan".split()
)


def example(op, sample, seed, dtype):
    """The graph of a sample's call, its own category's operands complex, and arrays for its params."""
    generator = np.random.default_rng(seed)
    arrays = []

    with Builder(op.name) as b:

        def made(a):
            if isinstance(a, tuple) and any(isinstance(x, Operand) for x in a):
                return tuple(map(made, a))
            if not isinstance(a, Operand):
                return a
            values = a.array(generator, np.dtype(np.float64))
            if a.category not in ("int", "bool"):
                if op.complex is None:
                    values = values.astype(dtype.to_real().numpy)
                else:
                    values = (values + 1j * generator.uniform(-0.5, 0.5, values.shape)).astype(dtype.numpy)
            values = np.asarray(values)
            arrays.append(values)
            return b.param(type_of(dtypes.from_numpy_dtype(values.dtype), values.shape))

        args = [made(a) for a in sample.args]
        kwargs = {name: made(a) for name, a in sample.kwargs.items()}
        found = op(*args, **kwargs)
        return b.finish(found if isinstance(found, tuple) else (found,)), arrays


def in_pairs(graph, arrays):
    """The results by the graph in real numbers, as complex ones again."""
    made = pair_complex(graph)
    verify(made)
    assert str(parse(str(made), made.constants)) == str(made)
    found = interpret(made, *map(to_pairs, arrays))
    return [from_pairs(x) if v.dtype.is_complex else x for x, v in zip(found, graph.results, strict=True)]


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", NAMES)
def test_record_means_the_same_in_pairs(name):
    op = REGISTRY[name]
    hosts = False
    for number, sample in enumerate(op.samples()):
        if sample.kwargs.get("reduce") in ("amax", "amin"):
            continue  # complex numbers have no order
        graph, arrays = example(op, sample, number, dtypes.complex128)
        hosts |= any(node.op is by_pairs for node in pair_complex(graph).nodes)
        for x, y in zip(interpret(graph, *arrays), in_pairs(graph, arrays), strict=True):
            # A few roundings of float64, in sums whose terms are up to a hundred times as large.
            assert x.dtype == y.dtype and x.shape == y.shape
            assert np.allclose(x, y, 1e-10, 1e-10, equal_nan=True), (name, number, sample)
    assert hosts is (name in HOST or op.traits.meets)  # with other ranks the host exchanges complex numbers


@pytest.mark.sampled(30)
@pytest.mark.parametrize("name", [n for n in NAMES if REGISTRY[n].differentiable])
def test_gradient_means_the_same_in_pairs(name):
    """PyTorch's convention is the gradient of pairs: a graph that is differentiated first, and in pairs then,
    is the graph that was put in pairs, and differentiated then."""
    op = REGISTRY[name]
    for number, sample in enumerate(op.samples()):
        if not sample.differentiable or number > 3:
            continue
        graph, arrays = example(op, sample, number, dtypes.complex128)
        if not any(p.dtype.inexact for p in graph.params) or not any(r.dtype.inexact for r in graph.results):
            continue
        derived = differentiate(graph, Options(results=False))
        generator = np.random.default_rng(zlib.crc32(name.encode()))
        seeds = []
        for p in derived.params[len(graph.params) :]:
            values = generator.uniform(0.5, 1.5, p.shape)
            if p.dtype.is_complex:
                values = values + 1j * generator.uniform(0.5, 1.5, p.shape)
            seeds.append(np.asarray(values, p.dtype.numpy))
        both = in_pairs(derived, [*arrays, *seeds])
        for x, y in zip(interpret(derived, *arrays, *seeds), both, strict=True):
            assert np.allclose(x, y, 1e-9, 1e-9, equal_nan=True), (name, number, sample)
        real = pair_complex(graph)
        if any(node.op is by_pairs for node in real.nodes):
            continue  # which only complex rules differentiate
        other = differentiate(real, Options(results=False))
        found = interpret(other, *map(to_pairs, (*arrays, *seeds)))
        for x, y in zip(both, found, strict=True):
            assert np.allclose(to_pairs(x), y, 1e-9, 1e-9, equal_nan=True), (name, number)


SUM = """\
graph f(%x: c64[3], %y: c64[3]) -> (c64[3], f32[3]) {
  %0 = mul(%x, %y) : c64[3]
  %1 = fft_c2c(%0) {dim=(0,), scale="none", forward=True} : c64[3]
  %2 = abs(%1) : f32[3]
  return %0, %2
}"""


def test_text(golden):
    golden("passes/pair_complex", pair_complex(parse(SUM)))


def test_a_graph_of_reals_is_itself_and_pairs_are_made_once():
    real = parse("graph f(%x: f32[3]) -> (f32[3]) {\n  %0 = neg(%x) : f32[3]\n  return %0\n}")
    assert pair_complex(real) is real
    once = pair_complex(parse(SUM))
    assert pair_complex(once) is once


def test_by_pairs_refuses_other_operands():
    (node,) = (n for n in pair_complex(parse(SUM)).nodes if n.op is by_pairs)
    with pytest.raises(GraphError, match=r"by_pairs\(\*operands\): graph fft_c2c takes \(f32\[3,2\]\)"):
        by_pairs.infer(type_of(dtypes.float32, (3,)), body=node.attrs["body"])
    assert paired_type(type_of(dtypes.complex128, (4,))) is type_of(dtypes.float64, (4, 2))


def test_pairs_are_the_same_memory():
    for z in (np.arange(6).reshape(2, 3) * 1j, np.array(2 + 1j), np.zeros((0, 2), np.complex64)):
        pairs = to_pairs(z)
        assert pairs.shape == (*z.shape, 2) and (not z.size or np.shares_memory(pairs, z))
        assert np.array_equal(from_pairs(pairs), z) and from_pairs(pairs).dtype == z.dtype
    strided = (np.arange(12) * 1j).reshape(3, 4)[:, ::2]
    assert np.array_equal(from_pairs(to_pairs(strided)), strided)
