"""Random graphs of what fusing has to do with, and the check that a program computes what its graph does."""

import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir import Builder, type_of
from lamina.ir.dtypes import float32, float64, int64
from lamina.ir.graph import Graph
from lamina.ir.interpret import interpret
from lamina.ir.op import REGISTRY as OPS
from lamina.passes.programs.build_program import build_program
from lamina.passes.programs.program import interpret as run

UNARY = ("neg", "abs", "tanh", "sigmoid", "relu", "sin", "square")
BINARY = ("add", "sub", "mul", "maximum")
LIMIT = 256  # elements of a random graph's values


def t(*shape, dtype=float32):
    return type_of(dtype, shape)


def arrays_for(graph, seed=0):
    """An array for each param: floats in [-1, 1], integers that any of its dimensions has as a place."""
    rng = np.random.default_rng(seed)
    return [
        rng.uniform(-1, 1, p.shape).astype(p.dtype.numpy)
        if p.dtype.is_floating_point
        else rng.integers(0, 2, p.shape).astype(p.dtype.numpy)
        for p in graph.params
    ]


def check_program(graph: Graph, program=None, rtol=0.0, seed=0):
    """That the program of a graph gives what the graph gives, in dtype and shape too."""
    program = build_program(graph) if program is None else program
    arrays = arrays_for(graph, seed)
    for found, wanted in zip(run(program, *arrays), interpret(graph, *arrays), strict=True):
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        scale = np.abs(wanted.astype(np.float64)).max(initial=1.0)
        np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol, rtol * scale)
    return program


class Maker:
    """Draws graphs op by op from a seed; `elementwise`: of ops that round once, and move, alone."""

    def __init__(self, seed: int, dtype=float64, elementwise=False):
        self.rng, self.dtype, self.elementwise = np.random.default_rng(seed), dtype, elementwise

    def pick(self, items):
        items = list(items)
        return items[self.rng.integers(len(items))]

    def graph(self, steps: int) -> Graph:
        with Builder("random") as b:
            shapes = ((3, 4), (4,), (4, 4), (2, 3, 4), (3, 1), ())
            self.values = [b.param(type_of(self.dtype, s)) for s in shapes]
            self.places = b.param(type_of(int64, (3, 2)))
            for _ in range(steps):
                self.values.append(self.step())
            results = [self.pick(self.values[6:]) for _ in range(self.rng.integers(1, 4))]
            return b.finish(list(dict.fromkeys([*results, self.values[-1]])))

    def step(self):
        kinds = ["unary", "unary", "binary", "binary", "binary", "view", "view", "where", "pad", "join"]
        if not self.elementwise:
            kinds += [
                "reduce",
                "reduce",
                "rows",
                "rows",
                "matmul",
                "gather",
                "conv",
                "pool",
                "scatter",
                "mean",
            ]
        while True:
            x = self.pick(self.values)
            found = getattr(self, self.pick(kinds))(x)
            if found is not None and found.dtype is self.dtype and 0 < np.prod(found.shape) <= LIMIT:
                return found

    def unary(self, x):
        return (
            OPS[self.pick(UNARY)](x) if self.rng.random() < 0.8 else x * float(self.rng.integers(-3, 4)) + 0.5
        )

    def binary(self, x):
        fitting = [v for v in self.values if _broadcast(x.shape, v.shape)]
        return OPS[self.pick(BINARY)](x, self.pick(fitting))

    def where(self, x):
        return OPS["where"](x > 0.0, x, self.pick(v for v in self.values if v.ndim == 0))

    def view(self, x):
        kind = self.pick(["permute", "slice", "part", "expand", "reshape", "unsqueeze", "flip"])
        if kind == "permute":
            return OPS["permute"](x, tuple(int(d) for d in self.rng.permutation(x.ndim)))
        if kind == "slice" and x.ndim:
            start = int(self.rng.integers(x.shape[-1]))
            return x[..., start :: int(self.rng.integers(1, 3))]
        if kind == "part" and x.ndim:
            start = int(self.rng.integers(x.shape[0]))
            return x[start] if self.rng.random() < 0.5 else x[start : start + 2]
        if kind == "expand":
            return OPS["expand"](x, (2, *x.shape))
        if kind == "reshape" and x.ndim and np.prod(x.shape) % 2 == 0:
            return OPS["reshape"](x, self.pick([(-1,), (1, -1), (x.shape[0], 1, -1), (2, -1)]))
        if kind == "unsqueeze":
            return OPS["unsqueeze"](x, int(self.rng.integers(x.ndim + 1)))
        if kind == "flip" and x.ndim:
            return OPS["flip"](x, (0,))
        return None

    def pad(self, x):
        return OPS["constant_pad"](x, ((0, 0),) * (x.ndim - 1) + ((1, 2),), 0.25) if x.ndim else None

    def join(self, x):
        return OPS["cat"]((x, OPS["tanh"](x)), int(self.rng.integers(x.ndim))) if x.ndim else None

    def reduce(self, x):
        if not x.ndim:
            return None
        dim = int(self.rng.integers(x.ndim))
        return OPS[self.pick(["sum", "mean", "amax"])](x, dim, bool(self.rng.integers(2)))

    def mean(self, x):
        return OPS["mean"](x)

    def rows(self, x):
        if not x.ndim:
            return None
        if self.rng.random() < 0.5:
            return OPS[self.pick(["softmax", "log_softmax"])](x, int(self.rng.integers(x.ndim)))
        return OPS["layer_norm"](x, x.shape[-1:])

    def matmul(self, x):
        return OPS["tanh"](x @ self.values[2]) if x.ndim and x.shape[-1] == 4 else None

    def gather(self, x):
        return OPS["gather"](x, x.ndim - 1, self.places) if x.ndim == 2 and min(x.shape) >= 3 else None

    def conv(self, x):
        weight = self.values[3]  # [2, 3, 4]
        return OPS["conv1d"](x, weight, None, 1, 2) if x.ndim == 3 and x.shape[1] == 3 else None

    def pool(self, x):
        return OPS["max_pool1d"](x, 2) if x.ndim == 3 and x.shape[-1] >= 2 else None

    def scatter(self, x):
        if x.ndim != 2 or x.shape[0] < 3 or x.shape[1] < 2:
            return None
        source = self.places * 0.5 + x[:3, :2]
        if source.dtype is not x.dtype:
            source = OPS["cast"](source, dtype=x.dtype)
        return OPS["scatter_add"](x, 1, self.places, source)


def _broadcast(a, b):
    try:
        np.broadcast_shapes(a, b)
    except ValueError:
        return False
    return True
