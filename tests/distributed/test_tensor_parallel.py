"""Modules whose parameters lie on several ranks train as one process would train them."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

BEGIN = (
    ranks.BEGIN
    + """
import lamina.nn.functional as F
from lamina.distributed.tensor import *
from lamina.distributed.tensor.parallel import *
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (size,))
class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.each = dim // heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(dim, dim, bias=False) for _ in range(4))
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (w(x).view(b, t, -1, self.each).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).contiguous().view(b, t, -1))
class FeedForward(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w1, self.w3 = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden)
        self.w2 = nn.Linear(hidden, dim)
    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))
class Block(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(dim), nn.LayerNorm(dim)
        self.attention, self.feed_forward = Attention(dim, heads), FeedForward(dim, hidden)
    def forward(self, x):
        h = x + self.attention(self.attention_norm(x))
        return h + self.feed_forward(self.ffn_norm(h))
class Llama(nn.Module):
    def __init__(self, words=13, dim=8, heads=4, hidden=12, layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(words, dim)
        self.layers = nn.ModuleList([Block(dim, heads, hidden) for _ in range(layers)])
        self.norm, self.output = nn.RMSNorm(dim), nn.Linear(dim, words, bias=False)
    def forward(self, tokens):
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))
def build():
    lamina.manual_seed(1)
    return Llama().double()
def by_sequence(model, last):
    parallelize_module(model, mesh, {
        "tok_embeddings": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(), "output": last})
    whole = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    for block in model.layers:
        parallelize_module(block, mesh, {
            "attention_norm": SequenceParallel(), "attention": whole, "attention.w[qkv]": ColwiseParallel(),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "ffn_norm": SequenceParallel(), "feed_forward": whole, "feed_forward.w[13]": ColwiseParallel(),
            "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1))})
    return model
def by_heads(model, last):
    return parallelize_module(model, mesh, {
        "tok_embeddings": ColwiseParallel(output_layouts=Replicate()),
        "layers.*.attention.w[qkv]": ColwiseParallel(), "layers.*.attention.wo": RowwiseParallel(),
        "layers.*.feed_forward.w[13]": ColwiseParallel(), "layers.*.feed_forward.w2": RowwiseParallel(),
        "output": last})
def by_classes(scores, target):
    with loss_parallel():
        return F.cross_entropy(scores, target, label_smoothing=0.1)
def smoothed(scores, target):
    return F.cross_entropy(scores, target, label_smoothing=0.1)
DATA = np.random.default_rng(0).integers(0, 13, (20, 2, 9))  # 8 places, for 4 ranks
def trained(model, loss_of, steps=20):
    optimizer, losses = optim.AdamW(model.parameters(), lr=1e-2), []
    for batch in DATA[:steps]:
        tokens = lamina.tensor(batch)
        loss = loss_of(model(tokens[:, :-1]).reshape(-1, 13), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses
def whole(p):
    return p.full_tensor() if isinstance(p, DTensor) else p
def compare(model, loss_of, tolerance=1e-10):
    plain = build()
    wanted = trained(plain, smoothed)
    found = trained(model, loss_of)
    far = max(abs(a - b) / abs(a) for a, b in zip(wanted, found))
    apart = max(((whole(p) - q).abs().max() / q.abs().max()).item()
                for p, q in zip(model.parameters(), plain.parameters()))
    assert far < tolerance and apart < tolerance, (far, apart)
"""
)
LAST = {
    "gathered": ("ColwiseParallel(output_layouts=Replicate())", "smoothed"),
    "by_classes": ("ColwiseParallel(use_local_output=False)", "by_classes"),
}


@pytest.mark.parametrize("loss", LAST)
@pytest.mark.parametrize("how", ["by_heads", "by_sequence"])
@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_llama_trains_in_parts_as_in_one_process(n, how, loss, tmp_path):
    last, loss_of = LAST[loss]
    last = last if how == "by_heads" else last.replace("Parallel(", "Parallel(input_layouts=Shard(1), ")
    source = f"""
        model = {how}(build(), {last})
        cut = model.layers[0].attention.wq.weight
        assert cut.placements == (Shard(0),) and cut.to_local().shape[0] * size == cut.shape[0]
        compare(model, {loss_of})
    """
    ranks.run(n, source, tmp_path, begin=BEGIN)


def test_llama_comparison_sees_a_gradient_that_is_not_added_up(tmp_path):
    """A planted bug: what comes in does not add its gradients up."""
    printed = ranks.run(
        2,
        """
        from lamina.distributed.tensor import dtensor
        dtensor.entered = lambda x, mesh, places: x
        compare(by_heads(build(), ColwiseParallel(output_layouts=Replicate())), smoothed)
        """,
        tmp_path,
        begin=BEGIN,
        status=None,
    )
    assert "AssertionError: (" in printed, printed


def test_two_layers_meet_once_each_way(tmp_path):
    """By columns, then by rows: one sum forward, and one of the input's gradient; by sequence two moves."""
    ranks.run(
        2,
        """
        from lamina.ir import meeting
        calls, start = [], meeting.CARRIER.start
        meeting.CARRIER.start = lambda kind, *a, **k: (calls.append(kind), start(kind, *a, **k))[1]
        for first, last, wanted in (
            ({}, {}, (["all_reduce"], ["all_reduce"])),
            ({"input_layouts": Shard(0)}, {"output_layouts": Shard(0)},
             (["all_gather", "reduce_scatter"], ["all_gather", "reduce_scatter"])),
        ):
            net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4, bias=False))
            parallelize_module(net, mesh, {"0": ColwiseParallel(**first), "2": RowwiseParallel(**last)})
            calls.clear()
            y = net(lamina.ones(2, 4, requires_grad=True))
            forward = [*calls]
            calls.clear()
            y.sum().backward()
            assert (forward, calls) == wanted, (forward, calls)
        """,
        tmp_path,
        begin=BEGIN,
    )


def test_parallel_styles_refuse_and_warn(tmp_path):
    ranks.run(
        2,
        """
        def refused(call, *words):
            try:
                call()
            except Exception as error:
                assert all(w in str(error) for w in words), error
                return
            raise AssertionError("not refused")
        model = build()
        refused(lambda: parallelize_module(model, mesh, {"norm": ColwiseParallel()}), "nn.Linear", "RMSNorm")
        refused(lambda: parallelize_module(model, mesh, [ColwiseParallel()]), "ParallelStyle")
        refused(lambda: ColwiseParallel(output_layouts="rows"), "Placement")
        refused(lambda: PrepareModuleInput(input_layouts=(Shard(0), None), desired_input_layouts=Shard(0)),
                "one wanted")
        grid = dist.init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp"))
        refused(lambda: parallelize_module(model.output, grid, ColwiseParallel()), "one dim")
        parallelize_module(model.output, grid["tp"], ColwiseParallel())
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            parallelize_module(model, mesh, {"layers.0.attention.nothing": ColwiseParallel()})
            parallelize_module(model, mesh)
        assert len(told) == 2 and "nothing" in str(told[0].message), told
        class Two(nn.Module):
            def forward(self, x, scale=None):
                assert isinstance(x, DTensor) and x.placements == (Replicate(),)
                assert scale.placements == (Shard(0),)
                return x * 2, 3
        two = parallelize_module(Two(), mesh, PrepareModuleInputOutput(
            input_layouts=Shard(0), desired_input_layouts=Replicate(),
            input_kwarg_layouts={"scale": Replicate()}, desired_input_kwarg_layouts={"scale": Shard(0)},
            output_layouts=(Replicate(), None), desired_output_layouts=(Shard(1), None)))
        y, three = two(lamina.ones(2, 4), scale=lamina.ones(2))
        assert three == 3 and type(y) is lamina.Tensor and y.shape == (4, 2) and y.sum() == 16
        """,
        tmp_path,
        begin=BEGIN,
    )
