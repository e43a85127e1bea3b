"""Random graphs for fuzzing passes, and the comparison of what graphs give, by bits.

    before = random_graph(seed, writes=True)
    agree(before, functionalise(before), arrays_for(before, seed))

Every op of them gives the same bits however its operands lie in memory: sums have at most two terms, and no
function is approximated.  So a pass that claims to be exact can be held to it.
"""

import random

import numpy as np

import lamina.ir.ops  # noqa: F401 - enters the operator set
from lamina.ir import Builder, interpret, type_of
from lamina.ir.dtypes import bool_, float16, float32, float64, int32, int64, uint8
from lamina.ir.errors import LaminaError
from lamina.ir.op import REGISTRY
from lamina.ir.views import MAPS
from lamina.ir.write import write
from lamina.passes.graphs.functionalise import functionalise, homes_of, written

DTYPES = (float32, float32, float64, float16, int64, int32, uint8, bool_)
NUMBERS = (0.0, -0.0, 1.0, 1, 0, 2.0, 0.5, -1.0, 3, 0.3, 4.0, float("inf"), float("nan"), True)
SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-7, 6e4, 0.1)
UNARY = ("neg", "abs", "relu", "floor", "ceil", "trunc", "sign", "square", "sqrt", "reciprocal", "clone")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "lt", "logical_and", "copysign", "hypot")
LIKE = ("zeros_like", "ones_like", "empty_like")


def random_graph(seed, *, size=24, writes=False):
    """A graph of `size` ops; with `writes`, of views of all kinds and writes through them."""
    return _Maker(random.Random(seed), writes).make(size)


def pure_graph(seed):
    """A graph without writes; every other one had some, which have become values."""
    return functionalise(random_graph(seed, writes=True)) if seed % 2 else random_graph(seed)


def arrays_for(graph, seed):
    """Arrays for the params, with zeros of both signs, infinities and NaN among the numbers."""
    rng = np.random.default_rng(seed)
    return [_array(rng, p.type) for p in graph.params]


def _array(rng, t):
    numbers = np.where(rng.random(t.shape) < 0.5, rng.choice(SPECIAL, t.shape), rng.integers(-5, 6, t.shape))
    if not t.dtype.is_floating_point:
        numbers = np.where(np.isfinite(numbers), np.trunc(np.clip(numbers, -100, 100)), 7).astype(np.int64)
    with np.errstate(all="ignore"):
        return np.asarray(numbers).astype(t.dtype.numpy)


def run(graph, arrays):
    """The results of a graph, and the final contents of the params that it writes."""
    arrays = [np.array(a) for a in arrays]
    results = interpret(graph, *arrays)
    return [np.array(a) for a in (*results, *(arrays[i] for i in written(graph)))]


def same_bits(a, b):
    """Whether two arrays are equal to the bit; all NaN are one."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    if a.dtype.kind not in "fV":
        return np.array_equal(a, b)
    nan = np.isnan(a)
    return np.array_equal(nan, np.isnan(b)) and a[~nan].tobytes() == b[~nan].tobytes()


def agree(before, after, arrays):
    """Assert that two graphs give the same bits; what `before` writes, `after` returns at the end."""
    for n, (a, b) in enumerate(zip(run(before, arrays), run(after, arrays), strict=True)):
        assert same_bits(a, b), f"result {n}: {a!r} and {b!r}\nbefore: {before}\nafter: {after}"


class _Maker:
    def __init__(self, rng, writes):
        self.rng, self.writes = rng, writes
        self.b = Builder("random")
        self.values = []
        self.in_order = set()  # the params: arrays that surely lie in row-major order
        self.few = set()  # those of them that are written most

    def make(self, size):
        with self.b:
            for shape in ((2, 3), (3,), (3, 2), (), (2, 1, 3)):
                self.values.append(self.b.param(type_of(self.rng.choice(DTYPES), shape)))
            self.in_order.update(self.values)
            self.few.update(self.rng.sample(self.values, 2))
            self.state = self.b.param(type_of(int64, (2,)), "state")
            steps = 0
            while steps < size:
                try:
                    made = self.step()
                except LaminaError:  # types that the op does not take: another choice then
                    continue
                steps += 1
                self.values += [v for v in made if v.ndim <= 3]
            return self.b.finish([v for v in self.values if self.rng.random() < 0.4])

    def step(self):
        kinds = [self.unary, self.binary, self.binary, self.number, self.number, self.move, self.move]
        kinds += [self.cast, self.reduce, self.fill, self.other, self.twice, self.swapped]
        if self.writes:
            kinds += [self.move, self.write, self.write, self.write]
        made = self.rng.choice(kinds)()
        return made if isinstance(made, tuple) else (made,)

    def pick(self, *conditions):
        # Late values are taken more often: deep graphs show more than wide ones.
        found = [v for v in self.values if all(c(v) for c in conditions)]
        if not found:
            raise LaminaError("no such value")
        if found[-1] is self.values[-1] and self.rng.random() < 0.3:
            return found[-1]  # ops in a row on one value are what most rules look for
        return found[max(self.rng.randrange(len(found)), self.rng.randrange(len(found)))]

    def unary(self):
        return REGISTRY[self.rng.choice(UNARY)](self.pick())

    def twice(self):
        """What rules about an op of an op look for."""
        x = self.pick()
        name = self.rng.choice((*UNARY, "flip", "index", "expand", "abs of neg", "cast", "turn"))
        if name == "abs of neg":
            return REGISTRY["abs"](REGISTRY["neg"](x))
        if name == "cast":
            return self.cast(self.cast(x))
        if name == "expand":
            return REGISTRY["expand"](REGISTRY["expand"](x, (2, *x.shape)), (2, 2, *x.shape))
        if name in ("index", "turn"):
            step = self.index if name == "index" else self.permute
            return step(step(x))
        more = (0,) if name == "flip" else ()
        return REGISTRY[name](REGISTRY[name](x, *more), *more)

    def swapped(self):
        name, x, y = self.rng.choice(BINARY), self.pick(), self.pick()
        return REGISTRY[name](x, y), REGISTRY[name](y, x)

    def binary(self):
        return REGISTRY[self.rng.choice(BINARY)](self.pick(), self.pick())

    def number(self):
        x, number = self.pick(), self.rng.choice(NUMBERS)
        name = self.rng.choice(("add", "sub", "mul", "div", "pow"))
        if name == "pow" and not x.dtype.is_floating_point:
            raise LaminaError("a negative power of integers raises at run time")
        if name == "pow" and number not in (1, 2, 0.5, -1):
            name = "mul"  # others are approximated
        return REGISTRY[name](*((x, number) if self.rng.random() < 0.7 or name == "pow" else (number, x)))

    def cast(self, x=None):
        x = self.pick() if x is None else x
        to = self.rng.choice(DTYPES)
        if x.dtype.is_floating_point and not to.is_floating_point and to is not bool_:
            x = REGISTRY["sign"](
                REGISTRY["ne"](x, x + 1)
            )  # what NaN becomes as an integer is nobody's promise
        return REGISTRY["cast"](x, dtype=to)

    def reduce(self):
        x = self.pick(lambda v: v.ndim > 0)
        dim = self.rng.randrange(x.ndim)
        if x.shape[dim] > 2:
            return REGISTRY[self.rng.choice(("amax", "amin", "any"))](x, dim, keepdim=self.rng.random() < 0.5)
        name = self.rng.choice(("sum", "amax", "amin", "max"))
        return REGISTRY[name if name != "max" else "max_dim"](x, dim)

    def fill(self):
        x, kind = self.pick(), self.rng.randrange(4)
        if kind == 0:
            return REGISTRY[self.rng.choice(LIKE)](x)
        if kind == 1:
            return REGISTRY["full_like"](x, self.rng.choice((1, 0, 2.5)))
        if kind == 2:
            return self.b.apply(REGISTRY["full"], (x.shape, self.rng.choice((1.0, -0.0, 2))), {})
        return self.b.apply(REGISTRY["arange"], (3,), {})

    def other(self):
        kind = self.rng.randrange(6)
        if kind == 5:
            pads = self.rng.choice(((0, 0), (1, 0)))
            return REGISTRY["constant_pad"](self.pick(lambda v: v.ndim == 1), [pads])
        if kind == 0:
            return REGISTRY["where"](self.pick(lambda v: v.dtype is bool_), self.pick(), self.pick())
        if kind == 1:
            x = self.pick()
            return REGISTRY["copy"](x, self.pick())
        if kind == 2:
            return REGISTRY["random_uniform"](self.state, size=(2, 3), dtype=float32)
        if kind == 3:
            x = self.pick(lambda v: v.ndim > 0)
            return REGISTRY["flip"](x, 0)
        x = self.pick(lambda v: v.ndim > 0)
        return REGISTRY["cat"]((x,) * self.rng.randint(1, 2), dim=0)

    def move(self):
        bases = (self.few if self.writes else self.in_order) if self.rng.random() < 0.4 else None
        x = self.pick(lambda v: bases is None or v in bases)
        kind = self.rng.choice(
            ("transpose", "permute", "index", "index", "unsqueeze", "squeeze", "expand", "order", "order")
            + ("diagonal",)
        )
        if kind == "transpose":
            return REGISTRY["transpose"](x, 0, -1)
        if kind == "permute":
            return self.permute(x)
        if kind == "index":
            return self.index(x)
        if kind == "unsqueeze":
            return REGISTRY["unsqueeze"](x, self.rng.randint(0, x.ndim))
        if kind == "expand":
            return REGISTRY["expand"](x, (2, *x.shape) if self.rng.random() < 0.5 else x.shape)
        if kind == "order":
            return self.order(x)
        if kind == "diagonal":
            return REGISTRY["diagonal"](x, self.rng.randint(-1, 1), 0, -1)
        return REGISTRY["squeeze"](x)

    def permute(self, x):
        return REGISTRY["permute"](x, self.rng.sample(range(x.ndim), x.ndim))

    def index(self, x):
        return REGISTRY["basic_index"](x, tuple(self.item(n) for n in x.shape[: self.rng.randint(0, 3)]))

    def order(self, x):
        """Another shape of the same elements.  Where writes are, only of what surely lies in order."""
        shape = self.rng.choice((x.shape[::-1], (-1,), (*x.shape, 1)))
        if x in self.in_order:
            return REGISTRY["view"](x, shape)
        if not self.writes:
            return REGISTRY["reshape"](x, shape)
        return REGISTRY["clone"](REGISTRY["reshape"](x, shape), memory_format="contiguous_format")

    def item(self, n):
        kind = self.rng.randrange(4)
        if kind == 0 and n:
            return self.rng.randrange(n)
        start = self.rng.randint(0, n)
        return self.rng.choice((slice(None), slice(start, None), slice(0, n, 2), slice(0, max(n - 1, 0))))

    def write(self):
        """An in-place op, on any value that no two elements of share a place."""
        homes = homes_of(self.b.finish(()))
        few = self.rng.random() < 0.7  # several writes into one memory are what matters

        def is_target(v):
            root, chain = homes.get(v, (v, ()))
            return not any(MAPS[n].overlaps for n, _ in chain) and (root in self.few or not few)

        x = self.pick(is_target)
        kind = self.rng.randrange(4)
        if kind == 0:
            value = REGISTRY["fill"](x, self.rng.choice((1, 0, True)))
        elif kind == 1:
            value = REGISTRY["copy"](x, self.pick())
        elif kind == 2:
            value = self.pick(lambda v: v.shape == x.shape and v is not x)
        else:
            other = self.pick() if self.rng.random() < 0.6 else self.rng.choice((2, 1))
            value = REGISTRY[self.rng.choice(("add", "mul", "maximum"))](x, other)
        return self.b.apply(write, (x, value), {})
