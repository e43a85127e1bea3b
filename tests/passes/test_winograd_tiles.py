"""winograd_tiles: its kernels in turn beside the sums themselves, refusals, prices, planted bugs."""

import numpy as np
import pytest
from edited import edited

import lamina
from lamina.ir.kernel.affine import Affine
from lamina.ir.kernel.form import Axis, Buffer, Kernel, Reduce, Store
from lamina.ir.kernel.interpret import interpret
from lamina.ir.kernel.scalar import coordinate, op, read, ref
from lamina.ir.kernel.verify import verify
from lamina.passes.programs import winograd_tiles
from lamina.passes.programs.winograd_tiles import in_tiles, tiled
from lamina.passes.schedules.target import AVX512

# outs, channels, places of the cotangents, images, where windows begin
SIZES = [
    (4, 3, (4, 4), 2, (-1, -1)),
    (2, 5, (8, 12), 4, (-1, -1)),
    (3, 2, (7, 10), 2, (0, 0)),
    (3, 3, (9, 5), 4, (-2, -1)),
    (1, 1, (1, 1), 4, (-1, 0)),
    (2, 2, (6, 3), 1, (1, -1)),
    (2, 3, (5, 4), 64, (-1, -1)),
    (3, 2, (8, 31), 8, (-1, 0)),
    (64, 2, (3, 4), 32, (-1, 0)),
]


def weight_gradient(outs, channels, places, images, origin, dtype="f32", stride=1, taps=3):
    """The kernel, on images with the batch innermost; twice the sum is another result."""
    at = {name: Affine(((name, 1),)) for name in ("i", "i1", "i2", "i3", "r1", "r2", "r")}
    size = tuple(max(1, (n - 1) * stride + taps + low) for n, low in zip(places, origin))
    window = [Affine.of({f"i{d + 2}": 1, f"r{d + 1}": stride}, origin[d]) for d in range(2)]
    product = op(
        "mul",
        read("g", (at["i"], at["r1"], at["r2"], at["r"])),
        read("x", (at["i1"], *window, at["r"]), 0.0),
    )
    index = (at["i"], at["i1"], at["i2"], at["i3"])
    return Kernel(
        "conv_weight_grad",
        (
            Buffer("g", dtype, (outs, *places, images)),
            Buffer("x", dtype, (channels, *size, images)),
            Buffer("old", dtype, (outs, channels, taps, taps)),
        ),
        tuple(Buffer(name, dtype, (outs, channels, taps, taps)) for name in ("out", "new")),
        (Axis("i", outs), Axis("i1", channels), Axis("i2", taps), Axis("i3", taps)),
        (
            Reduce("t", "sum", (Axis("r1", places[0]), Axis("r2", places[1]), Axis("r", images)), product),
            Store("out", index, ref("t")),
            Store("new", index, op("sub", read("old", index), ref("t"))),
        ),
    )


def convolution(outs, channels, places, images, origin, backwards=False, filling=0.0, stride=1, taps=3):
    """The kernel, on images with the batch innermost and taps first; another result has a residual."""
    at = {name: Affine(((name, 1),)) for name in ("i", "i1", "i2", "i3", "r1", "r2", "r")}
    size = tuple(max(1, (n - 1) * stride + taps + low) for n, low in zip(places, origin))
    by, first = (-1, 2) if backwards else (1, 0)
    window = [Affine.of({f"i{d + 2}": stride, f"r{d + 1}": by}, origin[d] + first) for d in range(2)]
    product = op(
        "mul",
        read("x", (at["r"], *window, at["i"]), filling),
        read("w", (at["r1"], at["r2"], at["r"], at["i1"])),
    )
    return of_images("conv2d", outs, channels, places, size, images, taps, product)


def of_images(name, outs, channels, places, size, images, taps, product):
    """The sum of products over taps and channels, and with a residual."""
    at = {axis: Affine(((axis, 1),)) for axis in ("i", "i1", "i2", "i3")}
    place = (at["i1"], at["i2"], at["i3"], at["i"])
    return Kernel(
        name,
        (
            Buffer("x", "f32", (channels, *size, images)),
            Buffer("w", "f32", (taps, taps, channels, outs)),
            Buffer("old", "f32", (outs, *places, images)),
        ),
        (Buffer("out", "f32", (outs, *places, images)), Buffer("new", "f32", (outs, *places, images))),
        (Axis("i1", outs), Axis("i2", places[0]), Axis("i3", places[1]), Axis("i", images)),
        (
            Reduce("t", "sum", (Axis("r1", taps), Axis("r2", taps), Axis("r", channels)), product),
            Store("out", place, ref("t")),
            Store("new", place, op("add", read("old", place), ref("t"))),
        ),
    )


def transposed(outs, channels, places, images, origin, taps=4, step=2):
    """What an image of every second place leaves on all, as a gradient of one: an index that divides.

    origin: of the first index, at tap 0.
    """
    at = {name: Affine(((name, 1),)) for name in ("i", "i1", "i2", "i3", "r1", "r2", "r")}
    size = tuple(max(1, -(-n // step)) for n in places)
    window = [Affine.of({f"i{d + 2}": 1, f"r{d + 1}": -1}, origin[d]) for d in range(2)]
    value = read("x", (at["r"], *(op("floor_div", coordinate(w), step) for w in window), at["i"]), 0.0)
    for part in window:
        value = op("select", op("eq", op("remainder", coordinate(part), step), 0), value, 0.0)
    product = op("mul", value, read("w", (at["r1"], at["r2"], at["r"], at["i1"])))
    return of_images("conv_input_grad", outs, channels, places, size, images, taps, product)


def run(kernels, arrays):
    held = dict(arrays)
    for kernel in kernels:
        verify(kernel)
        made = interpret(kernel, *(held[b.name] for b in kernel.inputs))
        held.update(zip((b.name for b in kernel.outputs), made, strict=True))
    return held["out"], held["new"]


def error(kernels, kernel, seed=0):
    """The largest of both results, beside the direct sum in float64."""
    rng = np.random.default_rng(seed)
    arrays = {b.name: rng.standard_normal(b.shape).astype(np.float32) for b in kernel.inputs}
    wide = Kernel(
        kernel.name,
        *(tuple(Buffer(b.name, "f64", b.shape) for b in bs) for bs in (kernel.inputs, kernel.outputs)),
        kernel.parallel,
        kernel.stages,
    )
    wanted = run([wide], {name: x.astype(np.float64) for name, x in arrays.items()})
    return max(
        np.abs(one - other).max() / np.abs(other).max()
        for one, other in zip(run(kernels, arrays), wanted, strict=True)
    )


TWO = {"stride": 2, "taps": 4}


@pytest.mark.parametrize("window", [{}, TWO], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_kernels_give_the_sum(sizes, window):
    kernel = weight_gradient(*sizes, **window)
    made = tiled(kernel)
    assert [part.name for part in made] == ["tiles_of_g", "tiles_of_x", "products", "taps", kernel.name]
    assert error(made, kernel) < 1e-5


def test_what_a_row_of_tiles_becomes_lies_together():
    """Its planes at a distance that hangs on no number of channels, so that they don't meet in a cache."""
    for part, channels in zip(tiled(weight_gradient(64, 32, (16, 16), 32, (-1, -1))), (64, 32), strict=False):
        (planes,) = part.outputs
        assert planes.shape == (4, channels, 36, 4 * 32)


@pytest.mark.parametrize("window", [{}, TWO], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_rows_of_tiles_and_parts_of_them_are_summed_one_by_one(sizes, window, monkeypatch):
    monkeypatch.setattr(winograd_tiles, "FAR", 0)
    monkeypatch.setattr(winograd_tiles, "SUMMED", 0)
    kernel = weight_gradient(*sizes, **window)
    rows, across = (-(-n // 4) for n in sizes[2])
    for near, parts in ((1 << 20, 1), (1, across)):
        monkeypatch.setattr(winograd_tiles, "NEAR", near)
        made = tiled(kernel)
        names = ["tiles_of_g", "tiles_of_x", "products", "sums", "taps", kernel.name]
        assert [part.name for part in made] == names
        assert [part.outputs[0].shape[0] for part in made[:3]] == [rows * parts] * 3
        assert error(made, kernel) < 1e-5


def test_tiles_may_be_more_where_they_are_there_in_parts(monkeypatch):
    """And are summed as a whole where what is summed of each part is as much as they are."""
    many = weight_gradient(64, 64, (56, 56), 64, (-1, -1))
    made = in_tiles(many, AVX512)
    assert sum(4 * np.prod(part.outputs[0].shape) for part in made[:2]) > winograd_tiles.MOST_TILES
    assert made[2].outputs[0].shape == (14 * 7, 36, 64, 64)
    assert [part.name for part in tiled(weight_gradient(256, 256, (14, 14), 32, (-1, -1)))][3] == "taps"
    monkeypatch.setattr(winograd_tiles, "SUMMED", 100)
    assert in_tiles(many, AVX512) is None


@pytest.mark.parametrize("window", [{}, {"backwards": True}, TWO], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_kernels_give_the_convolution(sizes, window):
    kernel = convolution(*sizes, **window)
    made = tiled(kernel)
    assert [part.name for part in made] == ["tiles_of_w", "tiles_of_x", "products", "places", "conv2d"]
    assert error(made, kernel) < 2e-5


# by images, whose first index is at tap 0: of one place, below 0 nothing would be inside
TRANSPOSED = [(sizes, origin) for sizes in SIZES for origin in ((1, 1), (0, 0), (2, 1), (3, 0))]
TRANSPOSED += [(SIZES[1], (-1, -2))]


@pytest.mark.parametrize("sizes, origin", TRANSPOSED, ids=str)
def test_the_kernels_give_what_is_transposed(sizes, origin):
    kernel = transposed(*sizes[:4], origin)
    made = tiled(kernel)
    assert [part.name for part in made] == ["tiles_of_w", "tiles_of_x", "products", "places", kernel.name]
    assert error(made, kernel) < 2e-5


REFUSED = {
    "what is outside is not zero": convolution(*SIZES[1], filling=-1.0),
    "doubles": weight_gradient(*SIZES[1], dtype="f64"),
    "every second place": weight_gradient(*SIZES[1], stride=2),
    "four taps at every place": weight_gradient(*SIZES[1], taps=4),
    "every third place": convolution(*SIZES[1], stride=3, taps=6),
    "transposed, every third place": transposed(*SIZES[1], taps=6, step=3),
    "transposed, three taps": transposed(*SIZES[1], taps=3),
}


@pytest.mark.parametrize("kernel", [weight_gradient(*SIZES[1]), convolution(*SIZES[1])], ids=lambda k: k.name)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("dim", range(4))
def test_a_part_of_an_array_stays(kernel, number, dim):
    """An image's rows and columns alone may be more than windows reach."""
    buffers = list(kernel.inputs)
    shape = list(buffers[number].shape)
    shape[dim] += 1
    buffers[number] = Buffer(buffers[number].name, "f32", tuple(shape))
    bigger = kernel.replace(inputs=tuple(buffers))
    is_image, made = buffers[number].name == "x", tiled(bigger)
    assert (made is not None) == (is_image and dim in (1, 2))
    if made is not None:
        assert error(made, bigger) < 1e-5


@pytest.mark.parametrize("name", REFUSED)
def test_others_stay(name):
    assert tiled(REFUSED[name]) is None


def test_what_takes_no_less_stays():
    large, small = ((n, n, (16, 16), 32, (-1, -1)) for n in (64, 4))
    for kernel in (weight_gradient, convolution):
        assert in_tiles(kernel(*large), AVX512)
        assert tiled(kernel(*small)) and in_tiles(kernel(*small), AVX512) is None


@pytest.mark.parametrize("kernel", [weight_gradient, convolution])
def test_what_would_take_much_memory_stays(kernel, monkeypatch):
    kernel = kernel(64, 64, (16, 16), 32, (-1, -1))
    monkeypatch.setattr(winograd_tiles, "MOST_WEIGHTS", 36 * 64 * 64 * 4 - 1)
    monkeypatch.setattr(winograd_tiles, "TIMES", 0)
    assert in_tiles(kernel, AVX512) is None
    assert in_tiles(kernel, AVX512, 36 * 64 * 64 * 4)  # as much as an array that is there anyway


BUGS = {
    "the window begins elsewhere": ("moves, found.origin, of_window", "moves, (0, 0), of_window"),
    "taps are exchanged": ("[*found.taps, found.outs", "[*found.taps[::-1], found.outs"),
    "tiles that are not whole": ("None if inside else 0.0", "None"),
    "a window of another phase": ("name[phase]: int(moved)}", "name[phase]: 0}"),
    "taps of another phase": ("(-1 if late else 1) * (step > 1)}", "0}"),
    "the point at infinity": ("[poly(points)[::-1]]", "[poly(points)]"),
    "a power": ("powers(points, length).T", "powers(points, length + 1)[:, 1:].T"),
    "the scale of the points": ("at_points(points, TILE)", "powers(points, TILE)"),
    "a difference for a sum": ("both[k][number % 2]", "both[k][0]"),
    "a window that runs on": ("found.reach - 1 - p if last else p", "p"),
    "a window that begins before": ("start - back * last", "start"),
    "phases that all begin late": ("moves, by = (found.late, 1)", "moves, by = ([True] * 2, 1)"),
    "taps of phases that begin late": ("else p) + late", "else p)"),
    "panels of other images": ("{name['k']: PANEL, name['n']: 1}".replace("'", '"'), "Affine.of({})"),
    "tiles of another panel": ("{name['k']: sizes['x'], name".replace("'", '"'), '{name["k"]: 1, name'),
    "places of another tile": ("*place(n, TILE, found.apart", "*place(n, side, found.apart"),
}  # fmt: skip


@pytest.mark.parametrize("name", BUGS)
def test_planted(name):
    wrong = edited("lamina.passes.programs.winograd_tiles", *BUGS[name]).tiled

    def seen(kernel):
        try:
            return error(wrong(kernel), kernel) > 1e-4
        except Exception:
            return True

    backwards = {"backwards": True}
    made = [(weight_gradient, {}), (weight_gradient, TWO), (convolution, backwards), (convolution, TWO)]
    kernels = [kernel(*sizes, **window) for sizes in SIZES for kernel, window in made]
    assert any(map(seen, kernels + [transposed(*sizes[:4], origin) for sizes, origin in TRANSPOSED]))


@pytest.mark.parametrize("shape", [(16, 16, 14, 14, 32, 1), (16, 32, 9, 12, 16, 0)])
def test_a_traced_step_has_them(shape):
    """By native code, beside eager gradients."""
    n, c, h, w, k, padding = shape
    lamina.manual_seed(0)
    layer = lamina.nn.Conv2d(c, k, 3, padding=padding)
    x = lamina.randn(n, c, h, w)

    @lamina.jit.trace
    def gradient(x):
        layer.zero_grad()
        layer(x).square().sum().backward()
        return layer.weight.grad.clone()

    first = gradient(x)
    for _ in range(3):
        found = gradient(x)
    assert gradient.counts()["served"] >= 1
    scale = first.abs().max().item()
    np.testing.assert_allclose(found.numpy(), first.numpy(), rtol=0, atol=2e-5 * scale)


def test_a_sum_that_its_own_image_is_added_to_stays():
    """A residual block: no kernel of tiles has the image as it was."""
    lamina.manual_seed(0)
    layer, x = lamina.nn.Conv2d(8, 8, 3, padding=1), lamina.randn(64, 8, 4, 4)
    traced = lamina.jit.trace(lambda x: lamina.relu(layer(x) + x))
    with lamina.no_grad():
        wanted = traced(x)
        for _ in range(3):
            found = traced(x)
    assert traced.counts()["served"] >= 1
    np.testing.assert_allclose(found.numpy(), wanted.numpy(), rtol=0, atol=2e-5)
