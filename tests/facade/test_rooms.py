"""Rooms of PyTorch's that libraries use: operators, lists of tensors, local hubs, trees, attention."""

import importlib

import pytest

import lamina
from lamina import nn
from lamina.utils import _pytree


# ---- lists of tensors --------------------------------------------------------------------------------------
def test_foreach_does_what_the_op_does():
    xs = [lamina.rand(3) + 0.5, lamina.rand(2, 2) + 0.5]
    ys = [lamina.rand(3), lamina.rand(2, 2)]
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "pow"):
        found = getattr(lamina, f"_foreach_{name}")(xs, ys)
        for got, x, y in zip(found, xs, ys, strict=True):
            assert lamina.equal(got, getattr(lamina, name)(x, y)), name
        wanted = [getattr(lamina, name)(x, y) for x, y in zip(xs, ys, strict=True)]
        copies = [x.clone() for x in xs]
        assert getattr(lamina, f"_foreach_{name}_")(copies, ys) is None
        assert all(lamina.equal(a, b) for a, b in zip(copies, wanted, strict=True))
    assert lamina.equal(lamina._foreach_add(xs, 1.0)[0], xs[0] + 1)
    assert lamina.equal(lamina._foreach_add(xs, ys, alpha=2)[1], xs[1] + 2 * ys[1])
    assert lamina.equal(lamina._foreach_maximum(xs, 0.9)[0], xs[0].clamp(min=0.9))
    assert lamina.equal(
        lamina._foreach_addcmul(xs, ys, ys, 0.5)[0], lamina.addcmul(xs[0], ys[0], ys[0], value=0.5)
    )
    assert lamina.equal(lamina._foreach_norm(xs)[1], xs[1].norm())
    assert lamina.equal(lamina._foreach_sqrt(xs)[1], xs[1].sqrt())
    with pytest.raises(ValueError, match="same number of tensors, got 2 and 1"):
        lamina._foreach_add(xs, ys[:1])


# ---- operators of a program's ------------------------------------------------------------------------------
def test_an_operator_of_a_programs():
    @lamina.library.custom_op("tests_rooms::twice", mutates_args=())
    def twice(x: lamina.Tensor, times: float = 2.0) -> lamina.Tensor:
        return lamina.tensor(x.numpy() * times)

    @twice.register_fake
    def _(x, times=2.0):
        return lamina.empty_like(x)

    x = lamina.ones(3)
    assert lamina.equal(twice(x), 2 * x) and lamina.equal(lamina.ops.tests_rooms.twice(x, times=3.0), 3 * x)
    assert lamina.equal(lamina.ops.tests_rooms.twice.default(x), 2 * x)
    assert twice(lamina.empty(5, device="meta")).device.type == "meta"
    x.requires_grad_()
    with pytest.raises(RuntimeError, match="tests_rooms::twice has no rule for gradients"):
        twice(x).sum().backward()

    def setup(ctx, inputs, output):
        ctx.times = inputs[1]

    twice.register_autograd(lambda ctx, g: (g * ctx.times, None), setup_context=setup)
    twice(x, 5.0).sum().backward()
    assert lamina.equal(x.grad, lamina.full((3,), 5.0))


def test_operators_defined_by_a_library():
    made = lamina.library.Library("tests_rooms_lib", "DEF")
    made.define("neg(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="tests_rooms_lib::neg has no kernel for the CPU"):
        lamina.ops.tests_rooms_lib.neg(lamina.ones(1))
    made.impl("neg", lambda x: -x, "CUDA")
    with pytest.raises(ValueError, match="no kernel for the CPU"):
        lamina.ops.tests_rooms_lib.neg(lamina.ones(1))
    made.impl("neg", lambda x: -x, "CPU")
    assert lamina.ops.tests_rooms_lib.neg(lamina.ones(1)).item() == -1
    assert lamina.ops.aten.add.Tensor(lamina.ones(1), 1).item() == 2
    with pytest.raises(AttributeError, match="no_such"):
        lamina.ops.aten.no_such  # noqa: B018
    with pytest.raises(ValueError, match="there is no operator a::b"):
        lamina.library.register_fake("a::b", lambda x: x)
    with pytest.raises(ValueError, match=r"space::name, not 'x'"):
        lamina.library.custom_op("x", lambda x: x)


# ---- hubs --------------------------------------------------------------------------------------------------
def test_a_local_hub(tmp_path):
    (tmp_path / "hubconf.py").write_text('def net(n=1):\n    """A net."""\n    return n + 1\n')
    assert lamina.hub.load(tmp_path, "net", 4, source="local") == 5
    assert lamina.hub.list(tmp_path, source="local") == ["net"]
    assert lamina.hub.help(tmp_path, "net", source="local") == "A net."
    for refused in (
        lambda: lamina.hub.load("pytorch/vision", "resnet18"),
        lambda: lamina.hub.load_state_dict_from_url("https://x"),
        lambda: lamina.hub.load(tmp_path, "other", source="local"),
        lambda: lamina.hub.load(tmp_path / "no", "net", source="local"),
    ):
        with pytest.raises(ValueError, match="hub: "):
            refused()


# ---- trees -------------------------------------------------------------------------------------------------
class Pair:
    def __init__(self, a, b, name):
        self.a, self.b, self.name = a, b, name


def test_classes_that_are_containers():
    _pytree.register_pytree_node(
        Pair, lambda p: ([p.a, p.b], [p.name]), lambda items, name: Pair(*items, *name)
    )
    leaves, spec = _pytree.tree_flatten({"x": Pair(1, [2, 3], "n"), "y": 4})
    assert leaves == [1, 2, 3, 4]
    again = _pytree.tree_unflatten([10, 20, 30, 40], spec)
    assert (again["x"].a, again["x"].b, again["x"].name, again["y"]) == (10, [20, 30], "n", 40)
    found = lamina.vmap(lambda x: Pair(x, x + 1, "v"))(lamina.arange(3.0))
    assert type(found) is Pair and found.b.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(ValueError, match="already registered"):
        _pytree.register_pytree_node(Pair, lambda p: ([], None), lambda items, name: None)


# ---- attention of functions of places ----------------------------------------------------------------------
def test_flex_attention_is_attention():
    flex = nn.attention.flex_attention
    q, k, v = (lamina.randn(2, 4, 5, 8) for _ in range(3))
    plain = nn.functional.scaled_dot_product_attention
    lamina.testing.assert_close(flex.flex_attention(q, k, v), plain(q, k, v))
    causal = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, 5, 5)
    lamina.testing.assert_close(
        flex.flex_attention(q, k, v, block_mask=causal), plain(q, k, v, is_causal=True)
    )
    lamina.testing.assert_close(
        flex.flex_attention(q, k, v, lambda s, b, h, i, j: lamina.where(i >= j, s, float("-inf"))),
        plain(q, k, v, is_causal=True),
    )
    bias = lamina.randn(4, 5, 5)
    lamina.testing.assert_close(
        flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h, i, j]), plain(q, k, v, attn_mask=bias)
    )
    few = lamina.randn(2, 2, 5, 8)
    lamina.testing.assert_close(
        flex.flex_attention(q, few, few, enable_gqa=True), plain(q, few, few, enable_gqa=True)
    )
    near = flex.and_masks(lambda b, h, i, j: i >= j, lambda b, h, i, j: i - j < 2)
    assert flex.create_mask(near, 1, 1, 3, 3)[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    nothing = flex.create_block_mask(lambda b, h, i, j: i > j, None, None, 5, 5)
    assert flex.flex_attention(q, k, v, block_mask=nothing)[:, :, 0].abs().max() == 0
    out, lse = flex.flex_attention(q, k, v, return_lse=True)
    lamina.testing.assert_close(lse, (q @ k.mT / 8**0.5).logsumexp(-1))


# ---- what is asked of classes that are not here ------------------------------------------------------------
def test_classes_that_nothing_is():
    x = lamina.ones(1)
    for kind in (
        lamina.cuda.Stream,
        lamina.export.ExportedProgram,
    ):
        assert not isinstance(x, kind)
        with pytest.raises(ValueError, match=f"Lamina has no torch.*{kind.__name__}"):
            kind()


def test_expanded_tensors_are_written_below_detach():
    for below in (lambda x: x.detach(), lambda x: x.data):
        x = lamina.arange(4)
        below(x.expand(1, -1)).copy_(lamina.ones(1, 4))
        assert x.tolist() == [1, 1, 1, 1]
        with pytest.raises(RuntimeError, match="share one place in memory"):
            below(x.expand(2, -1)).copy_(lamina.ones(2, 4))


def test_numbers_are_divided_as_tensors():
    assert lamina.div(7, 2, rounding_mode="trunc").item() == 3
    assert isinstance(lamina.true_divide(3, 2), lamina.Tensor) and lamina.true_divide(3, 2).item() == 1.5
    assert lamina.div(-7, 2, rounding_mode="floor").item() == -4


def test_places_in_memory_of_permuted_tensors():
    x = lamina.randn(2, 3, 4, requires_grad=True)
    found = x.transpose(0, 2).as_strided((3, 2, 2), (4, 2, 1))
    assert lamina.equal(found, x.as_strided((3, 2, 2), (4, 2, 1)))
    found.square().sum().backward()
    expected = lamina.zeros(24).index_add(
        0, lamina.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]), lamina.ones(12)
    )
    lamina.testing.assert_close(x.grad, (2 * x * expected.view(2, 3, 4)).detach())
    with pytest.raises(ValueError, match="must be contiguous"):
        x.detach()[:, ::2].as_strided((2,), (1,))


def test_what_trainers_ask_of_devices():
    assert lamina.cuda.get_rng_state_all() == []
    lamina.cuda.set_rng_state_all([])
    with pytest.raises(lamina.DeviceError, match="no CUDA device"):
        lamina.cuda.set_rng_state_all([lamina.zeros(3)])
    parse = lamina._C._nn._parse_to
    assert parse("cpu", lamina.float64) == (lamina.device("cpu"), lamina.float64, False, None)
    assert parse(dtype=lamina.float16)[:2] == (None, lamina.float16)
    with pytest.raises(TypeError):
        parse(3)
    assert lamina.utils.checkpoint.get_device_states(lamina.ones(2)) == ([], [])
    assert type(lamina.ones(1)).__class__ is lamina._C._TensorMeta
    for refused in (lamina.Stream, lamina.Event, lamina.PyTorchFileReader):
        with pytest.raises(ValueError, match=f"Lamina has no torch.*{refused.__name__}"):
            refused()


def test_scans_of_what_is_associative():
    scan = importlib.import_module("lamina._higher_order_ops").associative_scan
    x = lamina.randn(3, 7)
    lamina.testing.assert_close(scan(lambda a, b: a + b, x, 1), x.cumsum(1))
    lamina.testing.assert_close(scan(lambda a, b: a + b, x, 1, reverse=True), x.flip(1).cumsum(1).flip(1))
    decay, given = lamina.rand(7), lamina.randn(7)
    _, state = scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (decay, given), 0)
    h, expected = 0.0, []
    for a, b in zip(decay.tolist(), given.tolist(), strict=True):
        h = a * h + b
        expected.append(h)
    lamina.testing.assert_close(state, lamina.tensor(expected))
    with pytest.raises(ValueError, match="same size along dim"):
        scan(lambda a, b: a, (x, x[:, :2]), 1)


# ---- what libraries of graphs import -----------------------------------------------------------------------
def test_names_below_gradients_are_operators():
    aten, x = lamina.ops.aten, lamina.tensor([1.0, 2.0])
    assert aten._to_copy.default(x, dtype=lamina.float64, device=None).dtype is lamina.float64
    assert aten._to_copy(x).data_ptr() != x.data_ptr() == aten.alias(x).data_ptr()
    assert aten.add_.Tensor(x, 1) is x and x.tolist() == [2.0, 3.0] and not aten.detach(x).requires_grad
    eye = lamina.eye(2).to_sparse_csr()
    assert aten._sparse_addmm.default(x[:, None], eye, x[:, None], beta=2).tolist() == [[6.0], [9.0]]
    assert aten._sparse_mm_reduce_impl.default(eye, x[:, None], "sum")[0].tolist() == [[2.0], [3.0]]
    assert not hasattr(aten, "_no_such") and not hasattr(aten, "no_such")


def test_remote_calls_are_absent_and_say_so():
    from lamina.distributed import rpc

    assert not rpc.is_available() and not hasattr(rpc, "api")
    with pytest.raises(AttributeError, match="not built"):
        rpc.init_rpc("worker")


def test_modules_below_are_attributes():
    assert lamina.utils.data.sampler.Sampler is lamina.utils.data.Sampler
    assert lamina.utils.hooks.RemovableHandle


def test_modules_that_torch_itself_has_as_attributes():
    """As transformers 5.24 takes them: torch.types is asked for by its esmfold."""
    assert lamina.types.Device
    from lamina.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter

    for kind in (HuggingFaceStorageReader, HuggingFaceStorageWriter):
        with pytest.raises(ValueError, match="this part of it is not built"):
            kind("folder")
