"""Calls that are right, of everything public, made anew each time: what the battery spoils an argument of."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "ops"))  # the records' samples, the modules' arguments
sys.path.append(str(Path(__file__).parents[1] / "peers"))
from checks import first_dtype
from composite_calls import CALLS, Made
from good_call import Fresh, Good, good, grown, ints, t
from good_distributions import distributions
from good_training import optimizers, transforms
from harness import cases
from module_cases import CASES

import lamina
from lamina import nn
from lamina.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    RandomSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    random_split,
)
from lamina.ir.op import COMPOSITES, REGISTRY
from lamina.nn import functional as F
from lamina.runtime.ops import FUNCTIONS
from lamina.runtime.tensor import Tensor, tensor_of


def tensors(x: Any) -> Any:
    """Arrays as tensors, within lists too."""
    if isinstance(x, np.ndarray):
        return tensor_of(np.array(x))
    return type(x)(map(tensors, x)) if isinstance(x, (list, tuple)) else x


def records() -> Iterator[Good]:
    """Functions, methods and in-place forms of the op records, by their samples."""
    for op in REGISTRY.values():
        case = next(iter(cases(op, first_dtype(op), count=1)))
        kwargs = dict(case.kwargs)

        def make(function: Callable, case: Any = case, kwargs: dict = kwargs) -> tuple:
            return function, tuple(map(tensors, case.args)), {k: tensors(v) for k, v in kwargs.items()}

        if op.name in FUNCTIONS:
            yield Good(op.name, lambda f=FUNCTIONS[op.name], make=make: make(f))
        if hasattr(Tensor, op.name) and op.method and op.operands:
            method = getattr(Tensor, op.name)
            yield Good(f"x.{op.name}", lambda f=method, make=make: make(f))
        if hasattr(Tensor, op.name + "_"):
            written = getattr(Tensor, op.name + "_")
            yield Good(f"x.{op.name}_", lambda f=written, make=make: make(f))


def composites() -> Iterator[Good]:
    """Functions that are written with ops, and those of nn.functional."""
    generator = np.random.default_rng(0)

    def fill(x: Any) -> Any:
        if isinstance(x, Made):
            if x.kind == "int":
                return tensor_of(generator.integers(0, x.bound, x.shape))
            if x.kind == "bool":
                return lamina.ones(*x.shape, dtype=lamina.bool)
            return tensor_of(np.asarray(generator.uniform(0.1, 0.9, x.shape), np.float32))
        return [fill(y) for y in x] if isinstance(x, list) else x

    for name, calls in CALLS.items():
        args, kwargs = calls[0]
        for place, found in (("", FUNCTIONS.get(name)), ("F.", getattr(F, name, None))):
            if found is None or (place and found is FUNCTIONS.get(name)):
                continue
            yield Good(
                f"{place}{name}",
                lambda f=found, args=args, kwargs=kwargs: (
                    f,
                    tuple(map(fill, args)),
                    {k: fill(v) for k, v in kwargs.items()},
                ),
            )
        if name in COMPOSITES and hasattr(Tensor, name + "_"):
            written = getattr(Tensor, name + "_")
            yield Good(
                f"x.{name}_",
                lambda f=written, args=args, kwargs=kwargs: (
                    f,
                    tuple(map(fill, args)),
                    {k: fill(v) for k, v in kwargs.items()},
                ),
            )


def functional() -> Iterator[Good]:
    """nn.functional and nn.init beyond the ops."""
    image, row, half = t(1, 2, 4, 4), t(2, 6), Fresh(lambda: lamina.full((2, 3), 0.5))
    yield good("F.affine_grid", F.affine_grid, t(1, 2, 3), [1, 1, 2, 2], align_corners=False)
    yield good("F.grid_sample", F.grid_sample, image, t(1, 3, 3, 2), mode="bilinear", align_corners=False)
    yield good("F.interpolate size", F.interpolate, image, size=[3, 3], mode="bilinear", align_corners=False)
    yield good("F.interpolate factor", F.interpolate, image, scale_factor=2.0, mode="nearest")
    yield good("F.conv2d", F.conv2d, image, t(2, 2, 3, 3), t(2), stride=1, padding=1, dilation=1, groups=1)
    yield good(
        "F.max_pool2d", F.max_pool2d, image, 2, stride=2, padding=0, ceil_mode=False, return_indices=True
    )
    yield good("F.adaptive_max_pool2d", F.adaptive_max_pool2d, image, 2, return_indices=False)
    yield good("F.ctc_loss", F.ctc_loss, t(5, 2, 3), ints(2, 2), [5, 5], [2, 2], blank=0)
    yield good("F.one_hot", F.one_hot, ints(3), 4)
    yield good("F.embedding_bag", F.embedding_bag, ints(2, 3), t(4, 3), mode="mean", padding_idx=1)
    yield good("F.dropout", F.dropout, row, p=0.5, training=True, inplace=False)
    for name in ("dropout1d", "dropout2d", "alpha_dropout", "feature_alpha_dropout"):
        yield good(
            f"F.{name}", getattr(F, name), t(2, 3, 4, 4) if name == "dropout2d" else t(2, 3, 4), 0.5, True
        )
    yield good("F.rrelu", F.rrelu, row, 0.1, 0.3, training=True)
    yield good("F.gumbel_softmax", F.gumbel_softmax, row, tau=1, hard=True, dim=-1)
    yield good("F.multi_margin_loss", F.multi_margin_loss, row, ints(2), p=1, margin=1.0, weight=t(6))
    yield good("F.multilabel_margin_loss", F.multilabel_margin_loss, row, ints(2, 6), reduction="mean")
    yield good("F.fold", F.fold, t(1, 8, 9), (4, 4), (2, 2), dilation=1, padding=0, stride=1)
    yield good("F.unfold", F.unfold, image, (2, 2), dilation=1, padding=0, stride=1)
    yield good("F.triplet", F.triplet_margin_with_distance_loss, half, half, half, margin=1.0, swap=True)
    yield good("F.relu inplace", F.relu, row, inplace=True)
    yield good(
        "F.sdpa", F.scaled_dot_product_attention, t(1, 2, 3, 4), t(1, 2, 3, 4), t(1, 2, 3, 4), is_causal=True
    )
    for name in ("uniform_", "normal_", "xavier_uniform_", "kaiming_normal_", "orthogonal_", "trunc_normal_"):
        yield good(f"init.{name}", getattr(nn.init, name), row)
    yield good("init.constant_", nn.init.constant_, row, 1.0)
    yield good("init.sparse_", nn.init.sparse_, row, 0.5)
    yield good("init.calculate_gain", nn.init.calculate_gain, "leaky_relu", 0.2)


def utilities() -> Iterator[Good]:
    """nn.utils, state dicts, autograd."""
    one = Fresh(lambda: [grown()])
    yield good("clip_grad_norm_", nn.utils.clip_grad_norm_, one, 1.0, norm_type=2.0, error_if_nonfinite=False)
    yield good("clip_grad_value_", nn.utils.clip_grad_value_, one, 1.0)
    yield good("parameters_to_vector", nn.utils.parameters_to_vector, one)
    yield good("vector_to_parameters", nn.utils.vector_to_parameters, t(3), one)
    yield good("weight_norm", nn.utils.weight_norm, Fresh(lambda: nn.Linear(3, 2)), "weight", 0)
    yield good(
        "pad_sequence", nn.utils.rnn.pad_sequence, Fresh(lambda: [lamina.ones(3), lamina.ones(2)]), True, 0.0
    )
    yield good("pack", nn.utils.rnn.pack_padded_sequence, t(3, 2, 4), [3, 2], batch_first=False)
    yield good(
        "load_state_dict",
        lambda s, strict: nn.Linear(3, 2).load_state_dict(s, strict),
        Fresh(lambda: nn.Linear(3, 2).state_dict()),
        True,
    )
    yield good("backward", lambda g, r: (lamina.ones(3, requires_grad=True) * 2).backward(g, r), t(3), False)
    yield good(
        "grad",
        lambda i, g: lamina.autograd.grad(i * 2, i, g),
        Fresh(lambda: lamina.ones(3, requires_grad=True)),
        t(3),
    )


def modules() -> Iterator[Good]:
    """Constructors of modules, and their calls."""
    for number, case in enumerate(CASES):
        build = getattr(nn, case.name)
        label = f"nn.{case.name} {number}"
        yield Good(label, lambda b=build, c=case: (b, c.args, dict(c.kwargs)))

        def call(b: Any = build, c: Any = case) -> tuple:
            module = b(*c.args, **c.kwargs).double()
            inputs = [
                tensor_of(np.array(x))
                if isinstance(x, np.ndarray)
                else lamina.ones(*x, dtype=lamina.float64) / 2
                for x in c.inputs
            ]
            return module, tuple(inputs), {k: tensors(v) for k, v in c.call.items()}

        yield Good(f"{label} called", call)


def data() -> Iterator[Good]:
    """Datasets, samplers, loaders."""
    rows = Fresh(lambda: TensorDataset(lamina.ones(4, 2)))

    def drained(loader: Any, *args: Any, **kwargs: Any) -> list:
        return [x for x, _ in zip(loader(*args, **kwargs), range(100), strict=False)]

    yield good("TensorDataset", TensorDataset, t(4, 2), t(4))
    yield good("StackDataset", StackDataset, t(4, 2), t(4))
    yield good("Subset", Subset, rows, [0, 1])
    yield good("ConcatDataset", ConcatDataset, Fresh(lambda: [TensorDataset(lamina.ones(4, 2))]))
    yield good("random_split", random_split, rows, [2, 2])
    yield good(
        "DataLoader",
        lambda *a, **k: drained(DataLoader, *a, **k),
        rows,
        batch_size=2,
        shuffle=True,
        drop_last=False,
        num_workers=0,
        timeout=0,
    )
    yield good("DataLoader sampled", lambda *a, **k: drained(DataLoader, *a, **k), rows, sampler=[0, 1])
    yield good("RandomSampler", lambda *a, **k: drained(RandomSampler, *a, **k), rows, True, 3)
    yield good("SubsetRandomSampler", lambda *a: drained(SubsetRandomSampler, *a), [0, 1])
    yield good("WeightedRandomSampler", lambda *a: drained(WeightedRandomSampler, *a), [0.5, 0.5], 3, True)
    yield good("BatchSampler", lambda *a: drained(BatchSampler, *a), [0, 1, 2], 2, False)
    yield good("default_collate", default_collate, Fresh(lambda: [lamina.ones(2), lamina.ones(2)]))
    yield good("default_convert", default_convert, [1, 2])


def creation() -> Iterator[Good]:
    """New tensors, random numbers, files, switches."""
    yield good("tensor", lamina.tensor, [[1.0, 2.0]], dtype=lamina.float32, device="cpu", requires_grad=False)
    yield good("as_tensor", lamina.as_tensor, [1.0], lamina.float32, "cpu")
    yield good("from_numpy", lamina.from_numpy, Fresh(lambda: np.ones(3)))
    yield good(
        "frombuffer", lamina.frombuffer, Fresh(lambda: bytearray(8)), dtype=lamina.float32, count=1, offset=4
    )
    yield good("scalar_tensor", lamina.scalar_tensor, 1.0, dtype=lamina.float32)
    for name in ("rand", "randn"):
        yield good(name, getattr(lamina, name), 2, 3, dtype=lamina.float32, device="cpu")
    yield good("randint", lamina.randint, 0, 5, (2, 3), dtype=lamina.int64)
    yield good("randperm", lamina.randperm, 5, dtype=lamina.int64)
    for name in ("rand_like", "randn_like"):
        yield good(name, getattr(lamina, name), t(3), dtype=lamina.float32)
    yield good("randint_like", lamina.randint_like, t(3), 0, 5)
    yield good("normal", lamina.normal, 0.0, 1.0, (3,))
    yield good("normal of tensors", lamina.normal, t(3), t(3))
    yield good("bernoulli", lamina.bernoulli, t(3))
    yield good("multinomial", lamina.multinomial, t(3), 2, True)
    for name, args in {
        "uniform_": (0.0, 1.0),
        "normal_": (0.0, 1.0),
        "exponential_": (1.0,),
        "random_": (0, 5),
        "bernoulli_": (0.5,),
        "log_normal_": (1.0, 2.0),
    }.items():
        yield good(f"x.{name}", getattr(Tensor, name), t(3), *args)
    yield good("manual_seed", lambda n: lamina.Generator().manual_seed(n), 3)
    yield good("Generator", lamina.Generator, "cpu")
    yield good(
        "set_state", lambda s: lamina.Generator().set_state(s), Fresh(lambda: lamina.Generator().get_state())
    )
    yield good("generator=", lambda g: lamina.rand(2, generator=g), Fresh(lamina.Generator))
    yield good("x[i]", lambda x, i: x[i], t(3, 4), 1)
    yield good("x[i, j]", lambda x, i, j: x[i, j], t(3, 4), 1, ints(2))
    yield good("x[a:b:c]", lambda x, a, b, c: x[a:b:c], t(3, 4), 0, 2, 1)
    yield good("x[i] = y", lambda x, i, y: x.__setitem__(i, y), t(3, 4), 1, 2.0)
    yield good("x.to", Tensor.to, t(3), lamina.float64)
    yield good("x.fill_", Tensor.fill_, t(3), 1.0)
    yield good("x.copy_", Tensor.copy_, t(3), t(3))
    yield good("x.type", Tensor.type, t(3), lamina.float64)
    yield good("x.size", Tensor.size, t(3), 0)
    yield good("x.new_tensor", Tensor.new_tensor, t(3), [1.0])
    yield good("x.register_hook", Tensor.register_hook, Fresh(grown), abs)
    yield good("x.requires_grad_", Tensor.requires_grad_, t(3), True)
    yield good("x.fill_diagonal_", Tensor.fill_diagonal_, t(3, 3), 1.0)
    yield good("save", lambda o: lamina.save(o, "/dev/null"), t(3))
    yield good("Size", lamina.Size, [1, 2])
    yield good("finfo", lamina.finfo, lamina.float32)
    yield good("iinfo", lamina.iinfo, lamina.int32)
    yield good("promote_types", lamina.promote_types, lamina.float32, lamina.int64)
    yield good("result_type", lamina.result_type, t(3), ints(3))
    yield good("broadcast_shapes", lamina.broadcast_shapes, (3, 1), (4,))
    yield good("set_default_dtype", lamina.set_default_dtype, lamina.float32)
    yield good("set_num_threads", lamina.set_num_threads, 1)
    yield good(
        "set_printoptions", lamina.set_printoptions, precision=4, threshold=1000, edgeitems=3, linewidth=80
    )
    yield good("device", lamina.device, "cpu")
    yield good("no_grad set", lamina.set_grad_enabled, True)
    yield good("trace", lamina.jit.trace, lambda x: x)


GROUPS: dict[str, Callable[[], Iterator[Good]]] = {
    f.__name__: f
    for f in (
        records, composites, functional, utilities, modules, optimizers, data, creation, transforms,
        distributions,
    )
}  # fmt: skip
