"""Products of matrices: golden texts, refusals, random programs before and after, and planted bugs."""

import random
from dataclasses import replace

import pytest
from fusing import OPS, t
from image_programs import Builder, check

from lamina.ir import Builder as GraphBuilder
from lamina.ir.errors import GraphError, KernelError
from lamina.ir.kernel import parse
from lamina.ir.kernel.scalar import op
from lamina.passes.graphs.compose import compose
from lamina.passes.kernels.collapse import collapsed
from lamina.passes.llvm.generate import code_of
from lamina.passes.programs import pack_matmuls as module
from lamina.passes.programs.pack_matmuls import Options, by_columns, pack_matmuls
from lamina.passes.programs.program import Program
from lamina.passes.schedules.choose_product import WAYS
from lamina.passes.schedules.target import AVX2, AVX512, BASELINE, GOLDEN_COVE

WEIGHT = Options(frozenset((1,)))
WIDE = replace(AVX512, name="avx512, up to four vectors", core=GOLDEN_COVE)


def linear(*shape: int, outs: int, relu: bool = True) -> Program:
    b = Builder("net", shape)
    w, bias = b.param("w", (outs, shape[-1])), b.param("b", (outs,))
    y = b.op("linear", b.image, w, bias)
    return b.program(b.op("relu", y) if relu else y)


def matmul(left: tuple[int, ...], right: tuple[int, ...]) -> Program:
    b = Builder("net", left)
    return b.program(b.op("matmul", b.image, b.param("w", right)))


def random_products(seed: int) -> tuple[Program, Options]:
    """A chain of products in all their forms, some of whose factors are weights."""
    rng = random.Random(seed)
    b = Builder("net", (*rng.choice(((), (2,), (2, 3))), rng.choice((1, 3, 17, 20)), rng.choice((5, 33, 48))))
    x, results = b.image, []
    for n in range(rng.randint(1, 3)):
        inner, outs = x.shape[-1], rng.choice((1, 4, 16, 37, 70))
        kind = rng.choice(("linear", "matmul", "batched", "scores"))
        if kind == "linear":
            x = b.op("linear", x, b.param(f"w{n}", (outs, inner)), b.param(f"b{n}", (outs,)))
        elif kind == "matmul" or len(x.shape) == 2:
            x = b.op("matmul", x, b.param(f"w{n}", (inner, outs)))
        elif kind == "batched":
            x = b.op("matmul", x, b.param(f"w{n}", (*x.shape[:-2], inner, outs)))
        else:
            x = b.op("matmul", x, b.op("transpose", x, dim0=-1, dim1=-2))
        results.append(x)
        if rng.random() < 0.5:
            x = b.op("tanh", x)
    program = b.program(x, *results)
    weights = [k for k, p in enumerate(program.params) if p.name != "x" and rng.random() < 0.5]
    return program, Options(frozenset(weights))


# ---- texts
def test_a_weight_is_packed_and_its_factor_read_by_panels(golden):
    before = linear(20, 40, outs=50)
    after = pack_matmuls(before, AVX512, WEIGHT)
    kernels = "\n".join(str(call.kernel) for call in after.calls)
    golden("passes/pack_matmuls_linear", f"{before}\n\n{after}\n\n{kernels}\n")


@pytest.mark.parametrize(
    ("program", "options", "how"),
    [
        (
            linear(1, 64, outs=256),
            WEIGHT,
            "collapse() reorder(i1) pack(packed, i1) vectorise(i1, 8) block(i1, 128) peel(i1)",
        ),
        (
            linear(8, 64, outs=256),
            WEIGHT,
            "collapse() reorder(i1, i) pack(packed, i1) vectorise(i1, 2) block(i1, 32) peel(i1) tile(i, 8)",
        ),
        (
            linear(100, 64, outs=256),
            WEIGHT,
            "collapse() reorder(i1, i) pack(packed, i1) vectorise(i1, 2) block(i1, 32) "
            "peel(i1) tile(i, 10) block(i, 80)",
        ),
        (
            linear(100, 64, outs=10),
            WEIGHT,
            "collapse() reorder(i1, i) pack(packed, i1) vectorise(i1) block(i1, 16) peel(i1) "
            "tile(i, 20) block(i, 100)",
        ),
        (
            linear(4, 64, outs=256),
            Options(),
            "collapse() reorder(i1, i) vectorise(r) tile(i, 4) tile(i1, 4) join()",
        ),
        (
            linear(100, 64, outs=256),
            Options(),
            "collapse() reorder(i1, i) pack(packed, i1) vectorise(i1, 2) block(i1, 32) "
            "peel(i1) tile(i, 10) block(i, 80)",
        ),
        (
            matmul((100, 64), (64, 256)),
            Options(),
            "collapse() reorder(i1, i) vectorise(i1, 2) block(i1, 32) peel(i1) tile(i, 10) block(i, 80)",
        ),
        (
            matmul((8, 100, 64), (64, 250)),
            Options(),
            "collapse() reorder(i2, i) vectorise(i2, 2) block(i2, 32) peel(i2) tile(i, 12) block(i, 96)",
        ),
        (
            matmul((8, 4, 64), (64, 200)),
            Options(),
            "collapse() reorder(i2, i) vectorise(i2, 2) block(i2, 32) peel(i2) tile(i, 11) block(i, 33)",
        ),
        (matmul((64,), (64, 200)), Options(), "collapse() reorder(i) vectorise(i, 8) block(i, 128) peel(i)"),
        (matmul((200, 64), (64,)), Options(), "collapse() vectorise(r) tile(i, 10) join()"),
    ],
    ids=str,
)
def test_each_form_has_its_way(program, options, how):
    after = pack_matmuls(program, AVX512, options)
    assert [str(call.how) for call in after.calls if call.how is not None] == [how]


def test_many_rows_go_by_blocks_of_rows_where_panels_would_read_them_again():
    """The left factor of 4000 rows lies beyond a core's cache, the right one does not."""
    orders = [
        str(next(call.how for call in pack_matmuls(program, AVX2).calls if call.how).steps[1])
        for program in (
            matmul((4000, 256), (256, 64)),
            matmul((400, 256), (256, 64)),
            matmul((100, 2048), (2048, 2048)),
        )
    ]
    assert orders == ["reorder(i, i1)", "reorder(i1, i)", "reorder(i1, i)"]


def test_a_factor_that_several_share_is_packed_for_all_of_them():
    """Packing pays for none of these by itself: each would rather take its sums along the vectors."""
    ways = {}
    for count in (1, 16):
        b = Builder("net", (32, 128))
        w, x = b.param("w", (512, 128)), b.image
        made = [b.op("linear", b.op("mul", x, b.param(f"s{n}", ())), w) for n in range(count)]
        after = pack_matmuls(b.program(*made), AVX512)
        ways[count] = (
            [call.name for call in after.calls].count("pack"),
            "dots" if any("join" in str(call.how) for call in after.calls) else "panels",
        )
    assert ways == {1: (0, "dots"), 16: (1, "panels")}


def test_the_figures_of_a_core_decide():
    program = linear(32, 1000, outs=1024)

    def packs(**figures: float) -> bool:
        target = replace(AVX512, core=replace(AVX512.core, **figures))
        return any(call.name == "pack" for call in pack_matmuls(program, target).calls)

    assert packs(packs=1000.0, lane_sum=1.0) and not packs(packs=1.0, lane_sum=0.01)
    straight = matmul((64, 1024), (1024, 1024))  # its rows share the lines of a cache
    packed = [
        any(c.name == "pack" for c in pack_matmuls(p, AVX512).calls)
        for p in (straight, matmul((4, 1024), (1024, 1024)))
    ]
    assert packed == [True, False]


@pytest.mark.parametrize(
    ("rows", "columns", "tile"),
    [
        (1024, 1024, "vectorise(i1, 4) block(i1, 64) peel(i1) tile(i, 6)"),
        (1024, 96, "vectorise(i1, 3) block(i1, 48) peel(i1) tile(i, 8)"),
        (1032, 160, "vectorise(i1, 2) block(i1, 32) peel(i1) tile(i, 12)"),
        (16, 256, "vectorise(i1, 3) block(i1, 48) peel(i1) tile(i, 8)"),
    ],
)
def test_a_tile_is_of_the_vectors_that_leave_least(rows, columns, tile):
    """As measured (choose_product.py): of 24 sums, unless rows or columns would then be left over."""
    (*_, call) = pack_matmuls(linear(rows, 256, outs=columns, relu=False), WIDE, Options(only="packed")).calls
    assert f"unroll(r, 2) {tile}" in str(call.how)


def test_a_factor_is_packed_where_it_would_be_read_often():
    """Where it lies it is read once for each tile of rows, over lines that push each other out; not where
    rows are few, and not where a row is one panel."""

    def packs(*sizes: int) -> bool:
        program = matmul(sizes[:2], sizes[1:])
        return any(call.name == "pack" for call in pack_matmuls(program, WIDE).calls)

    assert packs(1024, 64, 500) and packs(1024, 512, 512)
    assert not packs(64, 256, 256) and not packs(1024, 64, 64)
    assert not any(call.name == "pack" for call in pack_matmuls(matmul((1024, 64), (64, 500)), AVX512).calls)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", [linear(20, 40, outs=50), matmul((20, 40), (40, 50))], ids=["nt", "nn"])
def test_every_way_computes_the_same(program, way):
    check(program, pack_matmuls(program, AVX512, Options(only=way)))


def test_a_large_stride_holds_fewer_rows():
    """Rows that fall on the same lines of the cache push each other out of it."""
    after = pack_matmuls(linear(100, 1024, outs=32, relu=False), AVX512, WEIGHT)
    assert after.calls[-1].how.tiles["i"] == 8


def test_a_packed_weight_counts_as_a_weight():
    b = Builder("net", (4, 40))
    w = b.param("w", (40, 40))
    folded = b.op("mul", w, w)
    after = pack_matmuls(b.program(b.op("linear", b.image, folded)), AVX512, WEIGHT)
    assert [call.name for call in after.calls] == ["mul", "pack", "linear"]


def test_a_weight_is_packed_once_for_all_that_read_it():
    b = Builder("net", (4, 40))
    w = b.param("w", (40, 40))
    after = pack_matmuls(b.program(b.op("linear", b.op("linear", b.image, w), w)), AVX512, WEIGHT)
    assert [call.name for call in after.calls] == ["pack", "linear", "linear"]


def test_what_is_computed_of_the_rows_is_computed_before():
    b = Builder("net", (40, 48))
    w = b.param("w", (48, 200))
    kernel = parse(
        "kernel gated(x: f32[40,48], w: f32[48,200]) -> (y: f32[40,200]) {\n  parallel i:40 j:200\n"
        "  acc = sum(k:48) (exp(x[i, k]) * w[k, j])\n  y[i, j] = (acc + x[i, 0])\n}"
    )
    before = b.program(b.call(kernel, b.image, w))
    after = pack_matmuls(before, AVX512)
    assert [call.name for call in after.calls] == ["left", "gated"]
    check(before, after)


def test_a_computed_column_that_is_padded_is_a_factor():
    """Composing has it computed once for all columns that it is padded to, before the sum over them."""
    with GraphBuilder("body") as body:
        x, w = body.param(t(1, 16, 3, 1)), body.param(t(1, 16))
        padded = OPS["constant_pad"](x / 3.0, ((0, 0), (0, 0), (0, 3), (0, 15)), 0.0)
        kernel = compose(body.finish(OPS["linear"](padded, w)))
    assert len(kernel.locals) == 1
    b = Builder("net", (1, 16, 3, 1))
    before = b.program(b.call(kernel, b.image, b.param("w", (1, 16))))
    for frozen in ((), (0,), (0, 1)):
        check(before, pack_matmuls(before, AVX512, Options(frozenset(frozen))))


@pytest.mark.parametrize("change", ["inputs", "axes"])
def test_factors_of_one_text_that_are_not_the_same_are_packed_apart(change):
    """The same expression of the same arrays, by other names, or summed in another order."""

    def kernel(inputs: str, axes: str):
        return parse(
            f"kernel f(x: f32[40,8,8], {inputs}) -> (y: f32[40,33]) {{\n  parallel i:40 j:33\n"
            f"  acc = sum({axes}) (x[i, l, k] * (w[k, l, j] / s[k, l, j]))\n  y[i, j] = acc\n}}"
        )

    inputs, axes = "w: f32[8,8,33], s: f32[8,8,33]", "k:8 l:8"
    other = (inputs, "l:8 k:8") if change == "axes" else ("s: f32[8,8,33], w: f32[8,8,33]", axes)
    b = Builder("net", (40, 8, 8))
    arrays = b.image, b.param("s0", (8, 8, 33)), b.param("s1", (8, 8, 33))
    before = b.program(b.call(kernel(inputs, axes), *arrays), b.call(kernel(*other), *arrays))
    after = pack_matmuls(before, AVX512)
    assert [call.name for call in after.calls] == ["pack", "f", "pack", "f"]
    check(before, after)


# ---- refusals
@pytest.mark.parametrize(
    "text",
    [
        "kernel sum(x: f32[4,8]) -> (y: f32[4]) {\n  parallel i:4\n  t = sum(k:8) x[i, k]\n  y[i] = t\n}",
        "kernel dot(x: f32[8], w: f32[8]) -> (y: f32[]) {\n  parallel\n"
        "  t = sum(k:8) (x[k] * w[k])\n  y[] = t\n}",
        "kernel ints(x: i64[4,8], w: i64[8,6]) -> (y: i64[4,6]) {\n  parallel i:4 j:6\n"
        "  t = sum(k:8) (x[i, k] * w[k, j])\n  y[i, j] = t\n}",
        "kernel squares(x: f32[4,8]) -> (y: f32[4]) {\n  parallel i:4\n"
        "  t = sum(k:8) (x[i, k] * x[i, k])\n  y[i] = t\n}",
        "kernel turned(x: f32[4,8], w: f32[8,6]) -> (y: f32[4,12]) {\n  parallel i:4 j:6\n"
        "  t = sum(k:8) (x[i, k] * w[k, j])\n  y[i, 2*j] = t\n  y[i, 2*j+1] = (t + 1.0)\n}",
        "kernel added(x: f32[4,8], w: f32[8,6], at: i64[4]) -> (y: f32[9,6]) {\n  parallel i:4 j:6\n"
        "  t = sum(k:8) (x[i, k] * w[k, j])\n  y[at[i], j] add= t\n}",
    ],
    ids=lambda text: text.split("(")[0].removeprefix("kernel "),
)
def test_what_is_no_product_by_columns_is_left_alone(text):
    assert by_columns(collapsed(parse(text))) is None


def test_convolutions_are_left_to_their_own_passes():
    b = Builder("net", (2, 3, 8, 8))
    before = b.program(b.op("conv2d", b.image, b.param("w", (16, 3, 3, 3))))
    assert str(pack_matmuls(before, AVX512, WEIGHT)) == str(before)


def test_code_for_rows_that_add_up_is_refused():
    program = pack_matmuls(matmul((43, 48), (48, 200)), AVX512)
    (call,) = program.calls
    (store,) = call.kernel.stores
    adding = call.kernel.replace(
        stages=(*call.kernel.stages[:-1], type(store)(store.buffer, store.index, store.value, (), "add"))
    )
    with pytest.raises(KernelError, match="divides both where points must run once"):
        code_of(replace(call, kernel=adding), AVX512)


# ---- meaning
@pytest.mark.parametrize("seed", range(40))
def test_random_products_keep_their_meaning(seed):
    before, options = random_products(seed)
    for target in (AVX512, WIDE, AVX2, BASELINE):
        check(before, pack_matmuls(before, target, options), seed)


def test_a_second_time_changes_nothing():
    for seed in range(8):
        before, options = random_products(seed)
        once = pack_matmuls(before, AVX512, options)
        assert str(pack_matmuls(once, AVX512, options)) == str(once)


# ---- planted bugs
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("chains_of", lambda kernel, flat: dict.fromkeys(flat.extents, module.Affine())),
        ("op", lambda name, *args: op("remainder", *args)),
    ],
)
def test_a_planted_bug_is_seen(monkeypatch, name, wrong):
    before = linear(20, 40, outs=50)
    check(before, pack_matmuls(before, AVX512, WEIGHT))
    monkeypatch.setattr(module, name, wrong)
    with pytest.raises((AssertionError, GraphError, KernelError)):
        check(before, pack_matmuls(before, AVX512, WEIGHT))
