"""Programs whose arguments and results are structures and numbers, and change in kind."""

import collections
import dataclasses
import math

from battery import lib as t
from battery import program

Pair = collections.namedtuple("Pair", "first second")


@dataclasses.dataclass
class Batch:
    inputs: object
    scale: float = 1.0
    tags: list = dataclasses.field(default_factory=list)


@program("structures")
def a_dataclass_comes_and_goes(w):
    @w.trace
    def f(batch):
        return Batch(batch.inputs * batch.scale, batch.scale + 1, [*batch.tags, "seen"])

    for scale in w.rounds(1.0, 2.0):
        w.call(f, Batch(w.x, scale, ["a"]))


@program("structures")
def one_dataclass_is_edited(w):
    batch = Batch(w.x)

    @w.trace
    def f(batch):
        batch.tags.append(batch.scale)
        return batch.inputs * batch.scale * len(batch.tags)

    for scale, x in w.rounds((1.0, w.x), (2.0, w.x * 2), (2.0, w.x)):
        batch.scale, batch.inputs = scale, x
        batch.tags.clear()
        w.call(f, batch)


@program("structures")
def a_namedtuple_comes_and_goes(w):
    @w.trace
    def f(pair):
        first, second = pair
        return pair._replace(first=second * 2), Pair(first, pair.first)

    for pair in w.rounds(Pair(w.x, w.x + 1), Pair(w.x, w.x), Pair(w.x, 2.0)):
        w.call(f, pair)


@program("structures")
def a_dict_comes_in_another_order(w):
    @w.trace
    def f(batch):
        total, out = 0.0, {}
        for i, (name, x) in enumerate(batch.items()):
            total = total * 2 + x
            out[name] = total * i
        return out

    for batch in w.rounds({"a": w.x, "b": w.x + 1}, {"b": w.x + 1, "a": w.x}, {"a": w.x}):
        w.call(f, batch)


@program("structures")
def a_key_appears(w):
    @w.trace
    def f(batch):
        if "mask" in batch:
            return batch["x"] * batch["mask"]
        return batch["x"] + batch.get("bias", 1.0)

    for extra in w.rounds({}, {"mask": w.x}, {"bias": 2.0}, {"bias": None}):
        w.call(f, {"x": w.x, **extra})


@program("structures")
def a_list_of_tensors_changes_length(w):
    @w.trace
    def f(xs):
        return t.stack(xs).sum(0) / len(xs), [x * 2 for x in xs]

    for xs in w.rounds([w.x], [w.x, w.x * 2], [w.x, w.x], [w.x] * 3):
        w.call(f, xs)


@program("structures")
def a_tuple_becomes_a_list(w):
    @w.trace
    def f(xs):
        return type(xs)(x + len(xs) for x in xs), isinstance(xs, list)

    for kind in w.rounds(tuple, list):
        w.call(f, kind([w.x, w.x * 2]))


@program("structures")
def an_argument_list_is_changed_inside(w):
    @w.trace
    def f(xs):
        xs.append(xs[0] * 2)
        xs[0] = xs[-1] + 1
        return xs, len(xs)

    for n in w.rounds(1, 2):
        w.call(f, [w.x] * n)


@program("structures")
def an_argument_dict_is_changed_inside(w):
    @w.trace
    def f(batch):
        x = batch.pop("x")
        batch["y"] = x * 2
        batch.setdefault("z", x)
        return batch

    for extra in w.rounds({}, {"z": 1}, {"y": 0}):
        w.call(f, {"x": w.x, **extra})


@program("structures")
def the_same_list_comes_twice(w):
    @w.trace
    def f(a, b):
        a.append(w.x * len(b))
        return a is b, len(b)

    for shared in w.rounds(False, True):
        a = []
        w.call(f, a, a if shared else [])


@program("structures")
def nested_structures_change(w):
    @w.trace
    def f(batch):
        a, (b, *rest) = batch["pair"]
        return {"sum": a + b, "rest": [r * 2 for r in rest], "depth": [[a]], "none": None}

    for rest in w.rounds((), (w.x,), (w.x, 3.0), (True,)):
        w.call(f, {"pair": (w.x, (w.x + 1, *rest))})


@program("structures")
def numbers_of_equal_value_and_other_type(w):
    @w.trace
    def f(x, n):
        return n, x * n, x.to(t.int64) * n

    for n in w.rounds(1, 1.0, True, 0.0, -0.0):
        w.call(f, w.x, n)


@program("structures")
def numbers_that_are_never_equal(w):
    @w.trace
    def f(x, n):
        return x * n, n == n, n

    for n in w.rounds(float("nan"), math.inf, -math.inf, 10**15):
        w.call(f, w.x, n)


@program("structures")
def none_comes_and_goes(w):
    @w.trace
    def f(x, bias=None):
        if bias is None:
            return None
        return x + bias, None

    for bias in w.rounds(None, w.x, 0.0):
        w.call(f, w.x, bias)


@program("structures")
def numbers_go_out(w):
    @w.trace
    def f(x, n):
        return x.shape[0] * n, n / 2, f"{n:>4}", x.dim() == n, divmod(n, 3), x.ndim

    for n in w.rounds(1, 2, 3, 7):
        w.call(f, w.m, n)


@program("structures")
def a_result_list_is_edited_by_the_caller(w):
    @w.trace
    def f(x, n):
        return [x * n], {"n": n}

    def caller(x, n):
        for held in f(x, n):
            held.clear()
        return f(x, n)

    for n in w.rounds(2, 3):
        w.call(caller, w.x, n)


@program("structures")
def a_captured_list_is_returned(w):
    kept = [w.x]
    w.see(kept=lambda: kept)

    @w.trace
    def f(x):
        return kept, x * len(kept)

    for change in w.rounds(lambda: kept.append(1), lambda: kept.pop()):
        change()
        w.call(f, w.x)


@program("structures")
def a_tensor_is_a_key(w):
    a, b = w.x, w.x.clone()
    table = {a: 2.0}

    @w.trace
    def f(x):
        return x * table.get(x, 0.5)

    for x in w.rounds(a, b):
        w.call(f, x)


@program("structures")
def sizes_and_dtypes_are_arguments(w):
    @w.trace
    def f(x, shape, dtype):
        return x.reshape(shape).to(dtype), x.new_zeros(shape)

    for shape, dtype in w.rounds(((2, 2), t.float32), (t.ones(4, 1).shape, t.int64), ([4], t.float64)):
        w.call(f, w.x, shape, dtype)


@program("structures")
def slices_are_arguments(w):
    @w.trace
    def f(x, where):
        return x[where] * 2, x[:, where[1]].sum()

    for where in w.rounds(
        (slice(None), slice(1)), (0, slice(1, None)), (slice(None, 1), slice(None, None, 2)), (1, 2)
    ):
        w.call(f, w.m, where)


@program("structures")
def a_function_is_an_argument(w):
    @w.trace
    def f(x, function):
        return function(x) + 1

    scale = 2.0
    for function in w.rounds(t.sin, t.cos, lambda x: x * scale, lambda x: x * 3):
        w.call(f, w.x, function)
        scale += 1.0
        w.call(f, w.x, function)


@program("structures")
def keyword_arguments_vary(w):
    @w.trace
    def f(x, *others, **options):
        for other in others:
            x = x + other
        return x * options.get("scale", 1), sorted(options), len(others)

    for others, options in w.rounds(
        ((), {}), ((w.x,), {}), ((1, w.x), {"scale": 2}), ((), {"scale": 3, "unused": w.x})
    ):
        w.call(f, w.x, *others, **options)
