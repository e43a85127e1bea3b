"""Exported models whose sizes change: any that fit are served, others are refused by name."""

import re
import subprocess
import sys

import numpy as np
import pytest

import lamina
from lamina import jit, nn
from lamina.jit import ExportError, ModelError
from lamina.jit.lamina_model import Model

F = nn.functional
LEVEL = ["x86-64-v2"]  # one level compiles in a third of the time
BATCH = {0: {0: "batch"}}
IMAGE = {0: {0: "batch", 2: "h", 3: "w"}}


class Gpt(nn.Module):
    """One block: embeddings by position, causal attention, a head."""

    def __init__(self, width=16, heads=2, words=20):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(32, width)
        self.qkv, self.out, self.norm = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, words),
            nn.LayerNorm(width),
        )
        self.heads = heads

    def forward(self, ids):
        n, length = ids.shape
        x = self.words(ids) + self.places(lamina.arange(length))
        q, k, v = (
            y.view(n, length, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(x + y.transpose(1, 2).reshape(n, length, -1))


class Sequences(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 6, batch_first=True)

    def forward(self, x):
        return self.lstm(x)[0].sum(1)


def images(*layers):
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), *layers)


def ids(*shape):
    return lamina.arange(int(np.prod(shape))).reshape(*shape) % 20


# The model, an example, what changes, and other arguments that it is to take.
MODELS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)),
        (4, 6), BATCH, [(1, 6), (2, 6), (37, 6)],
    ),
    "lenet": (
        lambda: images(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 5)),
        (3, 3, 8, 8), BATCH, [(1, 3, 8, 8), (2, 3, 8, 8), (9, 3, 8, 8)],
    ),
    "pooled": (
        lambda: images(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5)),
        (3, 3, 8, 9), IMAGE, [(1, 3, 8, 8), (2, 3, 3, 17), (1, 3, 20, 5)],
    ),
    "down and up": (
        lambda: images(nn.MaxPool2d(2), nn.ConvTranspose2d(4, 2, 2, stride=2)),
        (2, 3, 8, 12), IMAGE, [(1, 3, 8, 8), (3, 3, 7, 9), (2, 3, 4, 31)],
    ),
    "resized": (
        lambda: images(nn.Upsample(scale_factor=2, mode="bicubic"), nn.Upsample(scale_factor=1.5)),
        (2, 3, 8, 12), IMAGE, [(1, 3, 8, 8), (3, 3, 7, 9), (2, 3, 4, 31)],
    ),
    "lstm": (Sequences, (3, 5, 4), BATCH, [(1, 5, 4), (2, 5, 4), (9, 5, 4)]),
    "encoder": (
        lambda: nn.TransformerEncoderLayer(8, 2, 12, batch_first=True),
        (2, 5, 8), {0: {0: "batch", 1: ("time", 1, 64)}}, [(1, 5, 8), (3, 1, 8), (4, 13, 8), (1, 1, 8)],
    ),
}  # fmt: skip


def close(found, wanted):
    assert found.shape == wanted.shape
    difference = np.abs(np.asarray(found) - np.asarray(wanted)).max(initial=0)
    assert difference <= 2e-6 * np.abs(np.asarray(wanted)).max(initial=1)


@pytest.mark.parametrize("name", MODELS)
def test_one_file_serves_all_sizes(name, tmp_path):
    make, example, dynamic, others = MODELS[name]
    lamina.manual_seed(0)
    model, path = make().eval(), tmp_path / "m.lam"
    jit.export(model, path, lamina.randn(*example), levels=LEVEL, dynamic=dynamic)
    loaded = jit.load(path)
    for shape in [*others, example]:
        x = lamina.randn(*shape)
        with lamina.no_grad():
            close(loaded(x), model(x))


def test_a_model_of_words_takes_any_batch_and_length(tmp_path):
    lamina.manual_seed(0)
    model, path = Gpt().eval(), tmp_path / "m.lam"
    jit.export(model, path, ids(2, 5), dynamic={"ids": {0: "batch", 1: ("time", 1, 32)}})  # for all levels
    loaded = jit.load(path)
    for shape in ((1, 1), (3, 32), (2, 5), (1, 7)):
        with lamina.no_grad():
            close(loaded(ids(*shape)), model(ids(*shape)))
    with pytest.raises(
        ValueError, match=re.escape("ids has time = 33 (dimension 1), and the model takes time")
    ):
        loaded(ids(1, 33))
    with pytest.raises(IndexError, match="out of range"):
        loaded(ids(1, 3) + 18)


def test_a_file_stores_the_arrays_that_a_function_reads(tmp_path):
    """Those of NumPy's too, which a traced call looks at anew: a file has them as they are now."""
    path, table = tmp_path / "m.lam", np.arange(12, dtype=np.float32).reshape(3, 4)

    def looked_up(x):
        return x @ lamina.from_numpy(table)

    x = lamina.randn(5, 3)
    jit.export(looked_up, path, x, levels=LEVEL, dynamic={"x": {0: "rows"}})
    want, loaded = looked_up(x), jit.load(path)
    table += 1
    close(loaded(x), want)
    close(loaded(lamina.ones(1, 3)), lamina.ones(1, 3) @ lamina.from_numpy(table - 1))


def test_to_expand_by_a_size_asks_none_if_it_is_one(tmp_path):
    def widened(x, y):
        return x.unsqueeze(1).expand(x.shape[0], 3, x.shape[1]) * y

    path, sizes = tmp_path / "m.lam", {"x": {0: ("a", 1, 9), 1: ("b", 1, 9)}}
    jit.export(widened, path, lamina.randn(2, 4), lamina.randn(1, 3, 1), levels=LEVEL, dynamic=sizes)
    loaded = jit.load(path)
    for shape in ((1, 1), (1, 5), (7, 1), (2, 4)):
        x, y = lamina.randn(*shape), lamina.randn(1, 3, 1)
        close(loaded(x, y), widened(x, y))


def test_a_strangers_file_serves_all_sizes_too(tmp_path):
    path = tmp_path / "m.lam"
    jit.export(lambda x, y: (x @ y).softmax(-1), path, lamina.randn(3, 4), lamina.randn(4, 5), levels=LEVEL,
               dynamic={"x": {0: "rows"}, "y": {1: ("columns", 1, 9)}})  # fmt: skip
    loaded = jit.load(path, native=False)
    for rows, columns in ((1, 1), (2, 9), (7, 3)):
        x, y = lamina.randn(rows, 4), lamina.randn(4, columns)
        close(loaded(x, y), (x @ y).softmax(-1))
    with pytest.raises(ValueError, match="takes columns from 1 to 9"):
        loaded(lamina.randn(2, 4), lamina.randn(4, 10))
    bounded = jit.load(path, native=False, max_bytes=10_000)
    bounded(lamina.randn(3, 4), lamina.randn(4, 5))
    with pytest.raises(ModelError, match="more than max_bytes=10,000"):
        bounded(lamina.randn(1000, 4), lamina.randn(4, 5))


def test_numpy_alone_resizes_images_of_any_size(tmp_path):
    path, x = tmp_path / "m.lam", lamina.arange(24.0).reshape(1, 1, 4, 6)

    def up(x):
        return F.interpolate(x, scale_factor=2, mode="bilinear")

    jit.export(up, path, x, levels=LEVEL, dynamic={0: {2: "h", 3: "w"}})
    code = (
        "import sys; sys.modules['lamina'] = None; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np, lamina_model\n"
        "print(lamina_model.run(np.arange(15, dtype=np.float32).reshape(1, 1, 3, 5)).sum())\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, timeout=60)
    assert abs(float(done.stdout) - float(up(lamina.arange(15.0).reshape(1, 1, 3, 5)).sum())) < 1e-3, (
        done.stderr
    )
    close(jit.load(path, native=False)(x), up(x))


def test_numpy_alone_runs_any_size(tmp_path):
    path = tmp_path / "m.lam"
    jit.export(
        lambda x: x.cumsum(0) + x.shape[0],
        path,
        lamina.randn(3, 2),
        levels=LEVEL,
        dynamic={0: {0: "n"}},
    )
    code = (
        "import sys; sys.modules['lamina'] = None; sys.path.insert(0, sys.argv[1])\n"
        "import numpy as np, lamina_model\n"
        "for n in (1, 4, 4, 1000):\n"
        "    x = np.ones((n, 2), np.float32)\n"
        "    assert (lamina_model.run(x) == np.cumsum(x, 0) + n).all()\n"
    )
    subprocess.run([sys.executable, "-c", code, path], check=True, timeout=60)


def test_sizes_are_of_one_call(tmp_path):
    """Results of another size have memory of their own, and scratch memory grows."""
    path = tmp_path / "m.lam"
    jit.export(
        lambda x: (x.softmax(0) @ x.t()).softmax(0),
        path,
        lamina.randn(4, 3),
        levels=LEVEL,
        dynamic={0: {0: "n"}},
    )
    loaded, results = jit.load(path), []
    for n in (2, 90, 3, 200, 90):
        x = lamina.randn(n, 3)
        results.append((loaded(x), (x.softmax(0) @ x.t()).softmax(0)))
    for found, wanted in results:
        close(found, wanted)


# ---- what is refused ---------------------------------------------------------------------------------------
def halves(x):
    return x.view(2, -1).sum(0)


def decides(x):
    return x * 2 if x.shape[0] > 4 else x


def counts(x):
    return sum(x[i] for i in range(x.shape[0]))


def adds(x, y):
    return x + y


def test_what_a_function_needs_of_sizes_is_looked_at_in_each_call(tmp_path):
    path = tmp_path / "m.lam"
    jit.export(halves, path, lamina.randn(6, 3), levels=LEVEL, dynamic={"x": {0: "n"}})
    loaded = jit.load(path)
    x = lamina.randn(4, 3)
    close(loaded(x), halves(x))
    x = lamina.randn(5, 2)
    with pytest.raises(ValueError, match="is f32\\[n, 3\\]"):
        loaded(x)
    with pytest.raises(ValueError, match=r"the model takes sizes for which .*n.*, and here n = 5"):
        loaded(lamina.randn(5, 3))


def test_a_range_ends_where_the_function_does_something_else(tmp_path):
    path = tmp_path / "m.lam"
    jit.export(decides, path, lamina.randn(6), levels=LEVEL, dynamic={"x": {0: "n"}})
    loaded = jit.load(path)
    close(loaded(lamina.ones(5)), 2 * lamina.ones(5))
    with pytest.raises(ValueError, match="takes n from 5 on"):
        loaded(lamina.ones(4))
    with pytest.raises(
        ExportError, match=r"n from 1 to 9 holds sizes for which .* n >= 5 \(test_export_sizes"
    ):
        jit.export(decides, path, lamina.randn(6), levels=LEVEL, dynamic={"x": {0: ("n", 1, 9)}})


def test_a_size_whose_value_is_needed_cant_change(tmp_path):
    with pytest.raises(ExportError, match="n can't change") as caught:
        jit.export(counts, tmp_path / "m.lam", lamina.randn(6), levels=LEVEL, dynamic={"x": {0: "n"}})
    assert "x.shape[0] is 6 alone" in str(caught.value)


def test_sizes_that_must_be_equal_have_one_name(tmp_path):
    path, x = tmp_path / "m.lam", lamina.randn(4, 3)
    with pytest.raises(ExportError, match="m is always n"):
        jit.export(adds, path, x, lamina.randn(4, 3), levels=LEVEL, dynamic={"x": {0: "n"}, "y": {0: "m"}})
    names = {"x": {0: "n"}, "y": {0: ("n", 1, 9)}}  # a range is said once
    jit.export(adds, path, x, lamina.randn(4, 3), levels=LEVEL, dynamic=names)
    loaded = jit.load(path)
    close(loaded(x[:2], x[:2]), 2 * x[:2])
    with pytest.raises(ValueError, match="dimension 0 of y is n = 4, the array given has 2"):
        loaded(x, x[:2])


def test_arguments_may_be_nested_and_unused(tmp_path):
    path = tmp_path / "m.lam"

    def pick(pair, table, unused):
        return {"sum": pair[0] + pair[1], "more": table["a"] * 2}

    def given(n, m):
        return (lamina.randn(n, 2), lamina.randn(n, 2)), {"a": lamina.randn(m), "b": 3}, lamina.randn(n)

    dynamic = {"pair": ({0: "n"}, {0: "n"}), "table": {"a": {0: "m"}}, 2: {0: "n"}}
    jit.export(pick, path, *given(3, 4), levels=LEVEL, dynamic=dynamic)
    model = Model(path)
    (a, b), table, unused = given(5, 2)
    found = model.run(*map(np.asarray, (a, b, table["a"], unused)))
    close(found["sum"], a + b)
    close(found["more"], table["a"] * 2)
    with pytest.raises(ValueError, match="dimension 0 of unused is n = 5"):
        model.run(*map(np.asarray, (a, b, table["a"], unused[:4])))


@pytest.mark.parametrize(
    ("dynamic", "message"),
    [
        ({"z": {0: "n"}}, "there is no argument 'z'"),
        ({"x": "n"}, "say {dimension: name}"),
        ({"x": {2: "n"}}, "2"),
        ({"x": {0: "1n"}}, "a size is a name, or (name, min, max)"),
        ({"x": {0: ("n", 5, 2)}}, "sizes from 1 on, in order"),
        ({"x": {0: ("n", 0, 9)}}, "sizes from 1 on, in order"),
        ({"x": {0: ("n", 7, 9)}}, "the example's n is 4"),
        ({"x": {1: "m"}}, "the example's m is 1"),
        ({"x": {0: "n"}, "y": {1: "n"}}, "n is one size"),
        ({"x": {0: ("n", 1, 9)}, "y": {1: ("n", 2, 9)}}, "n is one size"),
        ({"k": {0: "n"}}, "only tensors have sizes"),
    ],
)
def test_what_names_no_size_is_refused(dynamic, message, tmp_path):
    def f(x, y, k):
        return x + y[0, 0] * k

    with pytest.raises((lamina.ArgumentError, lamina.DimError), match=re.escape(message)):
        jit.export(
            f, tmp_path / "m.lam", lamina.randn(4, 1), lamina.randn(2, 3), 2, levels=LEVEL, dynamic=dynamic
        )
    assert not (tmp_path / "m.lam").exists()


def test_what_has_no_code_for_all_sizes_is_refused_by_name(tmp_path):
    with pytest.raises(ExportError, match="sort has no kernel, and a file's code serves all sizes"):
        jit.export(
            lambda x: x.sort(0)[0], tmp_path / "m.lam", lamina.randn(4), levels=LEVEL, dynamic={0: {0: "n"}}
        )


def test_a_view_that_is_returned_may_have_a_size_that_changes(tmp_path):
    path = tmp_path / "m.lam"
    jit.export(lambda x: x[: x.shape[0] // 2], path, lamina.arange(6), levels=LEVEL, dynamic={0: {0: "n"}})
    assert Model(path).run(np.arange(9)).tolist() == [0, 1, 2, 3]


def test_memory_is_looked_at_for_the_sizes_of_a_call(tmp_path):
    path = tmp_path / "m.lam"
    jit.export(lambda x: x * 2, path, lamina.randn(4), levels=LEVEL, dynamic={0: {0: "n"}})
    model = Model(path, max_bytes=4096)
    assert model.run(np.ones(1000, np.float32)).sum() == 2000
    with pytest.raises(ModelError, match="at these sizes it asks for .* more than max_bytes=4,096"):
        model.run(np.ones(2000, np.float32))


def test_tuning_needs_known_sizes(tmp_path):
    path = tmp_path / "m.lam"
    jit.export(lambda x: x * 2, path, lamina.randn(4), levels=LEVEL, dynamic={0: {0: "n"}})
    from lamina.jit.export import tune_file

    with pytest.raises(ExportError, match="takes sizes that change"):
        tune_file(path, 0.1)


def test_a_mean_over_the_size_that_changes(tmp_path):
    """Its nodes of numbers alone are looked at among those of weights; what is of symbols is not."""
    path = tmp_path / "m.lam"
    jit.export(lambda x: x - x.mean(0), path, lamina.randn(4, 8), levels=LEVEL, dynamic={0: {0: "n"}})
    x = lamina.randn(7, 8)
    assert (jit.load(path)(x) - (x - x.mean(0))).abs().max() < 1e-6


@pytest.mark.parametrize("native", [True, False])
def test_a_file_tells_its_ranges_and_checks_without_running(native, tmp_path):
    path = tmp_path / "m.lam"
    jit.export(lambda x: x * 2, path, lamina.randn(4, 3), levels=LEVEL, dynamic={0: {0: ("n", 2, 9)}})
    model = jit.load(path, native=native)
    assert model.ranges == {"n": (2, 9)} and model.check(lamina.randn(9, 3)) is None
    for wrong, told in ((lamina.randn(10, 3), "n from 2 to 9"), (lamina.randn(4, 2), "the array given is")):
        with pytest.raises(ValueError, match=told):
            model.check(wrong)
    with pytest.raises(TypeError, match="convert it"):
        model.check(lamina.ones(4, 3, dtype=lamina.int64))


def test_exporting_leaves_no_marks_on_the_example(tmp_path):
    """Sizes that were named for one file are none of the next one's, nor of functions traced later."""
    x, path = lamina.randn(3, 5), tmp_path / "model.lam"
    jit.export(lambda x: x * 2, path, x, dynamic={0: {1: "columns"}}, levels=LEVEL)
    jit.export(lambda x: x * 2, path, x, dynamic={0: {0: "rows"}}, levels=LEVEL)
    assert jit.load(path)(lamina.randn(7, 5)).shape == (7, 5)
    jit.mark_dynamic(x, 1)  # the user's own is there before and after, and not within
    jit.export(lambda x: x * 2, path, x, dynamic={0: {0: "rows"}}, levels=LEVEL)
    traced = jit.trace(lambda x: x * 2)
    for columns in (5, 6, 7):
        traced(x if columns == 5 else lamina.randn(3, columns))
    assert traced.counts()["recorded"] == 1


# What asked of a size what follows from none of its values, by an example and other sizes.
UNASKED = {
    "einsum": (lambda x, y: lamina.einsum("bnd,df->bnf", x, y), [(3, 4, 6), (6, 6)],
               {0: {0: "batch", 1: "n"}}, [[(1, 1, 6), (6, 6)], [(9, 2, 6), (6, 6)]]),
    "einsum over heads": (lambda x, y: lamina.einsum("bhqd,bhkd->bhqk", x, y), [(3, 2, 4, 6), (3, 2, 5, 6)],
                          {0: {0: "batch", 2: "q"}, 1: {0: "batch", 2: "k"}},
                          [[(1, 2, 1, 6), (1, 2, 9, 6)], [(4, 2, 7, 6), (4, 2, 1, 6)]]),
    "adaptive pool of one": (lambda x: F.adaptive_avg_pool2d(x, 1), [(3, 4, 1, 1)], BATCH, [[(1, 4, 1, 1)]]),
    "pool beyond the end": (lambda x: F.avg_pool2d(F.pad(x, (0, 1, 0, 1)), 2, 2, 0, True, False),
                            [(2, 3, 7, 9)], IMAGE, [[(1, 3, 4, 4)], [(2, 3, 5, 6)]]),
    "gradient": (lambda x: lamina.func.grad(lambda y: (y.sin() * y).mean())(x), [(3, 7)],
                 {0: {0: "batch", 1: "n"}}, [[(1, 1)], [(4, 9)]]),
}  # fmt: skip


@pytest.mark.parametrize("name", UNASKED)
def test_what_follows_from_no_value_is_not_asked(name, tmp_path):
    function, shapes, dynamic, others = UNASKED[name]
    path = tmp_path / "m.lam"
    jit.export(function, path, *(lamina.randn(*s) for s in shapes), levels=LEVEL, dynamic=dynamic)
    loaded = jit.load(path)
    for given in others:
        xs = [lamina.randn(*s) for s in given]
        close(loaded(*xs), function(*xs))
