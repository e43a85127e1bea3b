"""Random programs with views, writes, reductions, dtypes and control by values, for `test_fuzz`.

A program is a tuple of steps on a list of tensors.  Numbers stay small multiples of 1/4 wherever Python looks
at them, so that every way to compute them gives the same bits and no branch hangs on rounding; what is rough
(exp, softmax, division) is only ever returned.
"""

from __future__ import annotations

import random

import lamina


def keep(x):
    """Back into the range of numbers that are exact, whatever was computed of them."""
    return x.clamp(-16, 16).round() if x.is_floating_point() else x.clamp(-16, 16)


UNARY = {
    "neg": lambda x: -x,
    "abs": lambda x: x.abs(),
    "relu": lambda x: keep(x).relu(),
    "square": lambda x: keep(x * x),
    "clone": lambda x: x.clone(),
    "half": lambda x: x / 2 if x.is_floating_point() else x // 2,
    "floor": lambda x: x.floor() if x.is_floating_point() else x,
    "sign": lambda x: x.sign(),
    "cumsum": lambda x: keep(x.cumsum(0)) if x.ndim else x,
    "flip": lambda x: x.flip(0) if x.ndim else x,
    "to_int": lambda x: x.to(lamina.int64),
    "to_float": lambda x: x.to(lamina.float32),
    "to_double": lambda x: x.to(lamina.float64),
    "contiguous": lambda x: x.contiguous(),
    "detach": lambda x: x.detach(),
    "triu": lambda x: x.triu() if x.ndim == 2 else x,
    "zeros_like": lambda x: lamina.zeros_like(x),
    "plus": lambda x: keep(x + 1),
    "literal": lambda x: x * 2 - 3 + 0,
    "tensor": lambda x: x + lamina.tensor([1, 2, 3][x.ndim]),
    "sort": lambda x: x.sort(-1).values if x.ndim else x,
}
BINARY = {
    "add": lambda x, y: keep(x + y),
    "sub": lambda x, y: keep(x - y),
    "mul": lambda x, y: keep(keep(x) * keep(y)),
    "maximum": lambda x, y: lamina.maximum(x, y.to(x.dtype)),
    "where": lambda x, y: lamina.where(x > y, x, y.to(x.dtype)),
    "eq": lambda x, y: (x == y).to(x.dtype),
    "mask": lambda x, y: x.masked_fill(y > 0, 1),
}
REDUCE = {
    "sum": lambda x: keep(x.sum(0)),
    "sum_last": lambda x: keep(x.sum(-1, keepdim=True)),
    "amax": lambda x: x.amax(-1),
    "argmax": lambda x: x.argmax(0),
    "all_sum": lambda x: keep(x.sum()),
    "any": lambda x: x.ne(0).any(0),
    "prod_sign": lambda x: x.sign().prod(0),
}
VIEW = {
    "row": lambda x: x[0],
    "last": lambda x: x[-1],
    "tail": lambda x: x[1:],
    "steps": lambda x: x[::2],
    "t": lambda x: x.t() if x.ndim == 2 else x,
    "flat": lambda x: x.reshape(-1),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "transpose": lambda x: x.transpose(0, -1),
    "narrow": lambda x: x.narrow(-1, 0, 1),
    "chunk": lambda x: x.chunk(2)[0],
    "diagonal": lambda x: x.diagonal() if x.ndim == 2 else x,
    "expand": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    "none": lambda x: x[None, ..., 0],
}
WRITE = {
    "add_": lambda x: x.add_(1),
    "mul_": lambda x: x.mul_(-1),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(2),
    "clamp_": lambda x: x.clamp_(-4, 4),
    "set_row": lambda x: x.__setitem__(0, 3),
    "relu_": lambda x: x.relu_(),
    "iadd_row": lambda x: x[0].add_(2) if x.ndim else x.add_(2),
    "set_slice": lambda x: x[..., :1].copy_(x[..., -1:]),
    "t_mul": lambda x: x.t().mul_(2).clamp_(-16, 16) if x.ndim == 2 else x.neg_(),
    "data": lambda x: x.data.sub_(1),
}
WRITE_BINARY = {
    "copy_": lambda x, y: x.copy_(y.to(x.dtype)),
    "add_other": lambda x, y: keep(x.add_(y.to(x.dtype))),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 1),
    "setitem": lambda x, y: x.__setitem__(0, y[0].to(x.dtype)),
    "index_put": lambda x, y: x.__setitem__(y > 1, 5) if x.shape == y.shape else None,
}
ROUGH = {
    "exp": lambda x: x.float().exp(),
    "softmax": lambda x: x.float().softmax(-1),
    "sigmoid": lambda x: x.float().sigmoid(),
    "div": lambda x: x.float() / 3,
    "mean": lambda x: x.float().mean(),
    "log1p": lambda x: x.float().abs().log1p(),
    "matmul": lambda x: x.float() @ x.float().transpose(0, -1) if x.ndim == 2 else x.float(),
    "std": lambda x: x.float().std(),
    "tanh": lambda x: x.float().tanh(),
    "norm": lambda x: x.float().norm(),
}
RANDOM = {
    "rand": lambda x: lamina.rand(2, 3),
    "randint": lambda x: lamina.randint(0, 5, (3,)),
    "dropout": lambda x: lamina.dropout(x.float(), 0.5),
    "bernoulli_": lambda x: x.float().bernoulli_(0.5),
}
ASK = {
    "bool": lambda x: bool(x.sum() > 0),
    "item": lambda x: keep(x.sum()).sign().item(),
    "int": lambda x: int(x.amax().sign()),
    "nonzero": lambda x: x.nonzero().shape[0],
    "tolist": lambda x: x.flatten()[:1].sign().tolist()[0],
    "float": lambda x: float(x.min().sign()),
    "mask": lambda x: x[x > 2].numel(),
}


def run(program, tensors):
    """Carry out a program.  A step that does not fit the tensors is left out: shapes differ between calls."""
    values = list(tensors)
    views = []  # places of the views among them
    rough = []
    for kind, _, first, second, extra, step in program:
        place = first % len(values)
        x, y = values[place], values[second % len(values)]
        if not x.numel() or not y.numel() or (x.dtype == lamina.bool and kind != "unary"):
            continue
        if kind == "unary":
            values.append(step(x.to(lamina.int64) if x.dtype == lamina.bool else x))
        elif kind == "binary" and x.shape == y.shape and y.dtype != lamina.bool:
            values.append(step(x, y))
        elif kind == "reduce" and x.ndim:
            values.append(step(x))
        elif kind == "view" and x.ndim:
            views.append(len(values))
            values.append(step(x))
        elif kind == "write" and x.ndim and place not in views:
            step(x)
        elif kind == "write_view" and x.ndim and x.stride() == x.contiguous().stride():
            step(x)
        elif (
            kind == "write_binary"
            and x.ndim
            and x.shape == y.shape
            and y.dtype != lamina.bool
            and place not in views
        ):
            step(x, y)
        elif kind == "rough":
            rough.append(step(x))
        elif kind == "random":
            rough.append(step(x))
        elif kind == "ask" and len(values) > extra:
            answer = step(x)
            values.append(x + 1 if answer > 0 else x * 1 - 1)
    return values, rough


TABLES = {
    "unary": UNARY, "binary": BINARY, "reduce": REDUCE, "view": VIEW, "write": WRITE, "write_view": WRITE,
    "write_binary": WRITE_BINARY, "rough": ROUGH, "random": RANDOM, "ask": ASK,
}  # fmt: skip
WEIGHTS = {
    "unary": 5, "binary": 5, "reduce": 2, "view": 6, "write": 3, "write_view": 2, "write_binary": 2,
    "rough": 2, "random": 0.4, "ask": 0.7,
}  # fmt: skip


def program(draw: random.Random) -> tuple:
    """A program of up to 12 steps.

    A step holds its function, as what a traced function reads is followed at each recording: all the tables
    would take as long as compiling.
    """
    kinds = draw.choices(list(WEIGHTS), list(WEIGHTS.values()), k=draw.randint(2, 12))
    steps = []
    for kind in kinds:
        name = draw.choice([*TABLES[kind]])
        which = draw.randrange(100), draw.randrange(100), draw.randrange(4)
        steps.append((kind, name, *which, TABLES[kind][name]))
    return tuple(steps)


SHAPES = ((3,), (2, 3), (3, 3), (2, 1, 3), (1,), ())
DTYPES = (lamina.float32, lamina.float32, lamina.float64, lamina.int64, lamina.float16)


def tensor(draw: random.Random, shape, dtype):
    """A tensor of small whole numbers."""
    size = 1
    for n in shape:
        size *= n
    return lamina.tensor([draw.randint(-3, 3) for _ in range(size)], dtype=dtype).reshape(shape).clone()


def arguments(draw: random.Random) -> tuple[list, str]:
    """The arguments of a call, and how they stand to each other: apart, one twice, one a view of another."""
    shape, dtype = draw.choice(SHAPES), draw.choice(DTYPES)
    relation = draw.choice(("apart", "apart", "apart", "same", "view", "strided", "detached"))
    x = tensor(draw, shape, dtype)
    y = tensor(draw, shape, draw.choice((dtype, dtype, lamina.float32)))
    if relation == "same":
        y = x
    elif relation == "detached":
        y = x.detach()
    elif relation == "view" and x.ndim:
        y = x[0]
    elif relation == "strided" and x.ndim == 2:
        y = tensor(draw, shape[::-1], dtype).t()
    return [x, y], relation
