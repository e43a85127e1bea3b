"""Fully sharded modules train as one process would, and a rank has a part of everything between steps."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

BEGIN = (
    ranks.BEGIN
    + """
import copy, gc
import lamina.nn.functional as F
from lamina.distributed.tensor import *
from lamina.distributed.fsdp import *
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (size,))
class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 5), nn.Linear(5, dim)  # 5 does not part evenly
    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return x + self.down(F.gelu(self.up(x)))
class GPT(nn.Module):
    def __init__(self, words=13, dim=8, layers=3):
        super().__init__()
        self.words, self.blocks = nn.Embedding(words, dim), nn.ModuleList([Block(dim) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, words, bias=False)
        self.head.weight = self.words.weight  # one parameter at two places
    def forward(self, tokens):
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3)
        self.na, self.nb, self.out = nn.GroupNorm(2, 6), nn.GroupNorm(4, 8), nn.Linear(8, 5)
    def forward(self, x):
        x = F.relu(self.na(self.a(x)))
        return self.out(F.silu(self.nb(self.b(x))).mean((2, 3)))
def build(kind=GPT):
    lamina.manual_seed(1)
    return kind().double()
def sharded(model, **given):
    for block in getattr(model, "blocks", ()):
        fully_shard(block, **given)
    return fully_shard(model, **given)
RNG = np.random.default_rng(0)
TOKENS = RNG.integers(0, 13, (20, 12, 7))
IMAGES, CLASSES = RNG.standard_normal((20, 12, 3, 6, 6)), RNG.integers(0, 5, (20, 12))
def gpt_loss(model, step, rows):
    tokens = lamina.tensor(TOKENS[step][rows])
    return F.cross_entropy(model(tokens[:, :-1]).reshape(-1, 13), tokens[:, 1:].reshape(-1))
def net_loss(model, step, rows):
    return F.cross_entropy(model(lamina.tensor(IMAGES[step][rows])), lamina.tensor(CLASSES[step][rows]))
def mine(parts=None, number=None):
    parts, number = parts or size, rank if number is None else number
    return slice(12 // parts * number, 12 // parts * (number + 1))
def trained(model, loss_of, rows, steps=20, make=lambda p: optim.AdamW(p, lr=1e-2, eps=1e-3)):
    optimizer, norms = make(model.parameters()), []
    for step in range(steps):
        loss_of(model, step, rows).backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
        optimizer.step()
        optimizer.zero_grad()
    return norms, optimizer
def whole(p):
    return p.full_tensor() if isinstance(p, DTensor) else p
def same(model, plain, tolerance=1e-10):
    for (name, p), (other, q) in zip(model.named_parameters(), plain.named_parameters()):
        apart = (whole(p) - q).abs().max().item() / max(q.abs().max().item(), 1e-30)
        assert name == other and apart < tolerance, (name, other, apart)
def compare(model, loss_of, kind=GPT, rows=None, **given):
    plain = build(kind)
    wanted, _ = trained(plain, loss_of, slice(None), **given)
    found, optimizer = trained(model, loss_of, mine() if rows is None else rows, **given)
    assert all(abs(a - b) < 1e-10 * abs(a) for a, b in zip(wanted, found)), (wanted, found)
    same(model, plain)
    return optimizer
def refused(call, *words):
    try:
        call()
    except Exception as error:
        assert all(w in str(error) for w in words), error
        return
    raise AssertionError("not refused")
"""
)


def program(n, source, tmp_path, **more):
    return ranks.run(n, source, tmp_path, begin=BEGIN, **more)


@pytest.mark.parametrize("kind", ["GPT", "Net"])
@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_fully_sharded_training_is_that_of_one_process(n, kind, tmp_path):
    program(
        n,
        f"""
        model = sharded(build({kind}))
        assert isinstance(model, FSDPModule) and isinstance(model, {kind})
        assert all(isinstance(p, DTensor) and p.placements == (Shard(0),) for p in model.parameters())
        optimizer = compare(model, {"gpt_loss" if kind == "GPT" else "net_loss"}, {kind})
        for p in model.parameters():
            state = optimizer.state[p]
            assert state["exp_avg"].placements == (Shard(0),)
            assert state["exp_avg"].to_local().shape == p.to_local().shape
        """,
        tmp_path,
    )


def test_fully_sharded_comparison_sees_sums_for_averages(tmp_path):
    """A planted bug: gradients are summed."""
    printed = program(
        2,
        """
        model = sharded(build())
        for m in model.modules():
            if isinstance(m, FSDPModule):
                m.set_gradient_divide_factor(1.0)
        compare(model, gpt_loss, make=lambda p: optim.SGD(p, lr=0.1), steps=3)
        """,
        tmp_path,
        status=None,
    )
    assert "AssertionError: ([" in printed, printed


def test_hybrid_meshes_and_other_placements_train_alike(tmp_path):
    program(
        4,
        """
        grid = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "parts"))
        model = sharded(build(), mesh=grid)
        assert model.norm.weight.placements == (Replicate(), Shard(0))
        compare(model, gpt_loss, steps=5)
        longest = lambda p: Shard(max(range(p.ndim), key=lambda d: p.shape[d]))
        other = sharded(build(Net), shard_placement_fn=longest, reshard_after_forward=False)
        assert other.b.weight.placements == (Shard(0),) and other.out.weight.placements == (Shard(1),)
        compare(other, net_loss, Net, steps=5)
        """,
        tmp_path,
    )


def test_fully_sharded_and_tensor_parallel_together(tmp_path):
    program(
        4,
        """
        from lamina.distributed.tensor.parallel import *
        grid = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        model = build()
        for block in model.blocks:
            parallelize_module(block, grid["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
        model = sharded(model, mesh=grid["dp"])
        up = model.blocks[0].up.weight
        assert up.device_mesh.ndim == 2 and up.shape == (5, 8)
        count = lamina.tensor([up.to_local().numel()])
        dist.all_reduce(count)
        assert count.item() == 40  # each element is on one rank
        compare(model, gpt_loss, steps=5, rows=mine(2, grid["dp"].get_local_rank()))
        """,
        tmp_path,
    )


def test_gradients_accumulate_and_stay_where_nobody_asks(tmp_path):
    program(
        2,
        """
        for syncs in (True, False):  # averaged each time, or the last time alone
            plain, model = build(), sharded(build())
            halves, quarters = [slice(0, 6), slice(6, 12)], [mine(4, rank), mine(4, rank + 2)]
            for net, rows in ((plain, halves), (model, quarters)):
                for i, part in enumerate(rows):
                    if net is model:
                        model.set_requires_gradient_sync(syncs or i == 1)
                    gpt_loss(net, 0, part).backward()
                    if net is model and not syncs and i == 0:
                        assert all(p.grad is None for p in model.parameters())
            for p, q in zip(model.parameters(), plain.parameters()):
                assert isinstance(p.grad, DTensor) and (p.grad.full_tensor() - q.grad).abs().max() < 1e-12
        plain, model = build(), build()
        for net in (plain, model):
            for p in net.blocks[1].parameters():
                p.requires_grad_(False)
            net.words.weight.requires_grad_(False)
            net.blocks[0].norm.bias.requires_grad_(False)
        model = sharded(model)
        gpt_loss(plain, 0, slice(None)).backward()
        gpt_loss(model, 0, mine()).backward()
        for p, q in zip(model.parameters(), plain.parameters()):
            assert p.requires_grad == q.requires_grad and (p.grad is None) == (q.grad is None)
            assert q.grad is None or (p.grad.full_tensor() - q.grad).abs().max() < 1e-12
        stepped = []
        for p in model.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(lambda p: stepped.append(p.grad.placements))
        gpt_loss(model, 0, mine()).backward()
        assert len(stepped) == sum(p.requires_grad for p in model.parameters()) and stepped[0] == (Shard(0),)
        model.requires_grad_(True)  # frozen ones thaw
        plain.requires_grad_(True)
        for net, rows in ((plain, slice(None)), (model, mine())):
            net.zero_grad()
            gpt_loss(net, 1, rows).backward()
        assert all((p.grad.full_tensor() - q.grad).abs().max() < 1e-12
                   for p, q in zip(model.parameters(), plain.parameters()))
        """,
        tmp_path,
    )


def test_modules_are_called_twice_recomputed_and_gone_through_again(tmp_path):
    program(
        2,
        """
        from lamina.utils.checkpoint import checkpoint
        class Twice(nn.Module):
            def __init__(self, recomputes=False):
                super().__init__()
                self.block, self.last, self.recomputes = Block(8), nn.Linear(8, 1), recomputes
            def forward(self, x):
                for _ in range(2):
                    x = checkpoint(self.block, x, use_reentrant=False) if self.recomputes else self.block(x)
                return {"y": [self.last(x)], "n": 3}
        x = lamina.tensor(RNG.standard_normal((4, 3, 8)))
        for recomputes in (False, True):
            lamina.manual_seed(2)
            plain = Twice().double()
            lamina.manual_seed(2)
            model = Twice(recomputes).double()
            fully_shard(model.block)
            fully_shard(model)
            for net, part in ((plain, x), (model, x[rank * 2 : rank * 2 + 2])):
                out = net(part)["y"][0].square().mean()
                out.backward(retain_graph=not recomputes)
                if not recomputes:
                    out.backward()  # what forward saved is gathered again
            for p, q in zip(model.parameters(), plain.parameters()):
                apart = (p.grad.full_tensor() - q.grad).abs().max()
                assert apart < 1e-12 * max(1, q.grad.abs().max()), recomputes
        with lamina.no_grad():
            assert (model(x)["y"][0] - plain(x)["y"][0]).abs().max() < 1e-12
            assert not any(m._state().group.is_open for m in (model, model.block))
        model.eval()
        with lamina.inference_mode():
            model(x)
        grads = lamina.autograd.grad(model(x)["y"][0].sum(), model.last.weight)  # whole while it is open
        assert grads[0].shape == (1, 8)
        """,
        tmp_path,
    )


def test_states_are_saved_loaded_and_made_from_nothing(tmp_path):
    program(
        2,
        """
        model = sharded(build())
        gpt_loss(model, 0, mine())  # the outermost module is open
        state = model.state_dict()
        assert list(state) == list(build().state_dict())
        assert all(isinstance(v, DTensor) for v in state.values())
        other = sharded(build())
        with lamina.no_grad():
            for p in other.parameters():
                p.zero_()
        assert gpt_loss(other, 0, mine()).item() != gpt_loss(model, 0, mine()).item()
        other.load_state_dict(state)
        assert gpt_loss(other, 0, mine()).item() == gpt_loss(model, 0, mine()).item()
        with lamina.device("meta"):
            bare = GPT()
        bare = sharded(bare.double())
        assert all(p.is_meta for p in bare.parameters())
        refused(lambda: gpt_loss(bare, 0, mine()), "meta device", "to_empty")
        bare.to_empty(device="cpu")
        lamina.manual_seed(3)
        for m in bare.modules():
            if hasattr(m, "reset_parameters"):
                m.reset_parameters()
        assert all(p.to_local().isfinite().all() for p in bare.parameters())
        bare.load_state_dict(state)
        same(bare, build())
        assigned = {k: nn.Parameter(distribute_tensor(v.full_tensor(), v.device_mesh, v.placements))
                    for k, v in state.items()}
        other.load_state_dict({k: v.detach() * 0 for k, v in state.items()})
        other.load_state_dict(assigned, assign=True)
        assert gpt_loss(other, 0, mine()).item() == gpt_loss(model, 0, mine()).item()
        other.reshard()
        assert other.norm.weight.to_local() is assigned["norm.weight"].to_local()
        other.norm.weight = nn.Parameter(lamina.ones(8).double())
        refused(lambda: gpt_loss(other, 0, mine()), "another tensor", "LayerNorm.weight")
        halved = sharded(build())
        gpt_loss(halved, 0, mine()).backward()
        halved.zero_grad()
        halved.float()
        gpt_loss(halved, 0, mine()).backward()
        assert all(p.dtype is p.grad.dtype is lamina.float32 for p in halved.parameters())
        lamina.manual_seed(7)
        drawn = nn.Linear(6, 5)
        with lamina.device("meta"):
            cut = nn.Linear(6, 5)
        fully_shard(cut)
        cut.to_empty(device="cpu")
        lamina.manual_seed(7)
        cut.reset_parameters()
        assert lamina.equal(cut.weight.full_tensor(), drawn.weight)
        assert lamina.equal(whole(cut.bias), drawn.bias)
        """,
        tmp_path,
    )


def test_what_is_given_back_is_not_read(tmp_path):
    """By a reference of the caller's, or by a history that no hook of a result leads to."""
    program(
        2,
        """
        class Hides(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(4, 4)
            def forward(self, x):
                self.kept = [self.a.weight]
                self.hidden = self.a(x * 1.0)
                return None
        inner = fully_shard(Hides())
        outer = fully_shard(nn.Sequential(inner))
        x = lamina.ones(2, 4, requires_grad=True)
        outer(x)
        refused(lambda: inner.kept[0] + 1, "given back")
        refused(lambda: inner.hidden.sum().backward(), "reshard")
        inner.unshard()
        assert (inner.a.weight + 0).shape == (4, 4) and not isinstance(inner.a.weight, DTensor)
        inner.reshard()
        assert isinstance(inner.a.weight, DTensor)
        handle = inner.unshard(async_op=True)
        handle.wait()
        assert not isinstance(inner.a.weight, DTensor)
        inner.reshard()
        with lamina.no_grad():
            before = inner.a.weight.full_tensor()
            inner.a.weight.mul_(2.0)
            inner.unshard()
            assert lamina.equal(inner.a.weight.detach(), before * 2)
        """,
        tmp_path,
    )


def test_an_open_model_is_stepped_clipped_and_cleared_by_its_parts(tmp_path):
    program(
        2,
        """
        plain, model = build(Net), sharded(build(Net))
        held = None
        for i in range(4):  # the model is open wherever its parameters are asked for
            for net, rows in ((plain, slice(None)), (model, mine())):
                loss = net_loss(net, i, rows)
                if net is model:
                    assert not isinstance(model.out.weight, DTensor)
                net.zero_grad(set_to_none=bool(i % 2))
                opt = optim.SGD(net.parameters(), lr=0.1)
                loss.backward()
                if net is model:
                    net_loss(net, i, rows)
                    assert not isinstance(model.out.weight, DTensor)
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()
        model.reshard()
        same(model, plain)
        """,
        tmp_path,
    )


def test_weights_that_change_before_backward_are_seen(tmp_path):
    program(
        2,
        """
        model = fully_shard(nn.Sequential(fully_shard(nn.Linear(4, 4)), nn.Tanh(), nn.Linear(4, 1)))
        x = lamina.ones(2, 4, requires_grad=True)
        for change in ("step", "reload"):
            y = model(x).sum()
            with lamina.no_grad():
                if change == "step":
                    model[0].weight.mul_(2.0)
                else:
                    model[0].load_state_dict(model[0].state_dict())
            refused(y.backward, "changed")
            model(x).sum().backward()
        traced = jit.trace(lambda x: F.linear(x, model[0].weight, model[0].bias))
        for factor in (1.0, 3.0):
            with lamina.no_grad():
                model[0].weight.mul_(factor)
                model[0].unshard()
                plain = x @ model[0].weight.T + model[0].bias
                assert (traced(x) - plain).abs().max() < 1e-6
                assert (traced(x) - plain).abs().max() < 1e-6
                model[0].reshard()
        """,
        tmp_path,
    )


def test_a_rank_has_a_part_between_steps(tmp_path):
    program(
        2,
        """
        def alive():
            gc.collect()
            return sum(o._data.nbytes for o in gc.get_objects()
                       if isinstance(o, lamina.Tensor) and isinstance(getattr(o, "_data", None), np.ndarray)
                       and o._view is None)
        def resident():
            with open("/proc/self/statm") as f:
                return int(f.read().split()[1]) * 4096
        class Deep(nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = nn.ModuleList([nn.Linear(1024, 1024, bias=False) for _ in range(12)])  # 48 MiB
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x)
                return x
        model = Deep()
        whole_bytes = 12 << 22
        for layer in model.layers:
            fully_shard(layer)
        fully_shard(model)
        x = lamina.ones(2, 1024)
        model(x).sum().backward()
        model.zero_grad()
        at_rest = resident()
        for layer in model.layers:
            layer.register_forward_hook(lambda *_: most.append(resident()))
        most = []
        y = model(x)
        # Whole weights would be 48 MiB more: two at a time are open, and one has its parts in a buffer.
        assert max(most) - at_rest < (4 + 4 + 8) << 20, [(m - at_rest) >> 20 for m in most]
        y.sum().backward()
        parts = sum(p.to_local().nbytes for p in model.parameters())
        assert parts * 2 == whole_bytes
        grads = sum(p.grad.to_local().nbytes for p in model.parameters())
        assert grads == parts
        del y
        model.zero_grad()
        gc.collect()
        opened = [m._state().group for m in model.modules() if isinstance(m, FSDPModule)]
        assert all(g.gathered is None and (g.known is None or g.known() is None) for g in opened)
        """,
        tmp_path,
    )


def test_mixed_precision_computes_in_one_dtype_and_keeps_another(tmp_path):
    program(
        2,
        """
        seen = []
        class Watches(nn.Linear):
            def forward(self, x):
                seen.append((x.dtype, self.weight.dtype))
                return super().forward(x)
        model = nn.Sequential(Watches(8, 8), nn.ReLU(), Watches(8, 4))
        policy = MixedPrecisionPolicy(lamina.bfloat16, lamina.float32, output_dtype=lamina.float32)
        fully_shard(model[0], mp_policy=MixedPrecisionPolicy(lamina.bfloat16, lamina.float32))
        fully_shard(model, mp_policy=policy)
        y = model(lamina.randn(4, 8))
        y.sum().backward()
        assert y.dtype is lamina.float32 and all(a is b is lamina.bfloat16 for a, b in seen[1:])
        assert seen[0] == (lamina.bfloat16, lamina.bfloat16)
        assert all(p.dtype is p.grad.dtype is lamina.float32 for p in model.parameters())
        """,
        tmp_path,
    )


def test_fully_shard_refuses_by_name(tmp_path):
    program(
        2,
        """
        import copy, pickle
        model = sharded(build())
        refused(lambda: fully_shard(model), "already")
        refused(lambda: fully_shard(nn.ModuleList([nn.Linear(2, 2)])), "ModuleList", "forward")
        refused(lambda: fully_shard([nn.Linear(2, 2)]), "list")
        refused(lambda: copy.deepcopy(model), "deep-copied")
        refused(FSDPModule, "fully_shard")
        scalar = nn.Linear(2, 2)
        scalar.gain = nn.Parameter(lamina.tensor(1.0))
        refused(lambda: fully_shard(scalar), "no dims")
        tied = build()
        fully_shard(tied.words)
        refused(lambda: fully_shard(tied), "two groups", "Linear")
        refused(lambda: fully_shard(nn.Linear(2, 2), shard_placement_fn=lambda p: Replicate()), "Shard")
        refused(lambda: fully_shard(nn.Linear(2, 2), reshard_after_forward=2), "smaller mesh")
        kept = nn.Linear(3, 3)
        fully_shard(kept, ignored_params={kept.bias})
        assert isinstance(kept.weight, DTensor) and not isinstance(kept.bias, DTensor)
        made = type(model)()  # the module's own class
        assert type(made) is GPT
        """,
        tmp_path,
    )


def test_a_sharded_step_is_not_recorded_but_right(tmp_path):
    printed = program(
        2,
        """
        model, plain = sharded(build(Net)), build(Net)
        traced = jit.trace(model)
        step = jit.trace(lambda x: model(x))
        for i in range(3):
            x = lamina.tensor(IMAGES[i])
            for f in (traced, step):
                assert (f(x) - plain(x)).abs().max() < 1e-12
            with lamina.no_grad():
                for p, q in zip(model.parameters(), plain.parameters()):
                    p.mul_(1.1)
                    q.mul_(1.1)
        ours, theirs = (optim.AdamW(m.parameters(), lr=1e-2, eps=1e-3) for m in (model, plain))
        def train(x, y):
            loss = F.cross_entropy(model(x), y)
            ours.zero_grad()
            loss.backward()
            ours.step()
            return loss
        train = jit.trace(train)
        only = jit.trace(lambda: ours.step())
        for i in range(4):
            x, y = lamina.tensor(IMAGES[i]), lamina.tensor(CLASSES[i])
            train(x[mine()], y[mine()])
            theirs.zero_grad()
            F.cross_entropy(plain(x), y).backward()
            theirs.step()
            if i % 2:
                only()
                theirs.step()
        same(model, plain)
        print(traced.explain(), step.explain())
        """,
        tmp_path,
    )
    assert "compiled calls" not in printed or "0 compiled" in printed or "not served" in printed, printed


def test_the_wrapper_class_trains_saves_and_loads(tmp_path):
    program(
        2,
        """
        import functools
        from lamina.distributed.fsdp import wrap
        from lamina.distributed.fsdp import FullyShardedDataParallel as FSDP
        policy = functools.partial(wrap.transformer_auto_wrap_policy, transformer_layer_cls={Block})
        model = FSDP(build(), auto_wrap_policy=policy, use_orig_params=True, sync_module_states=True)
        assert len(FSDP.fsdp_modules(model)) == 4 and isinstance(model.blocks[0], FSDPModule)
        assert [n for n, _ in model.named_parameters()] == [n for n, _ in build().named_parameters()]
        optimizer = compare(model, gpt_loss, steps=4)
        state = model.state_dict()
        assert all(type(v) is lamina.Tensor for v in state.values()) and state["norm.weight"].shape == (8,)
        with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT,
                                  FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
                                  FullOptimStateDictConfig(rank0_only=True)):
            assert len(model.state_dict()) == (len(state) if rank == 0 else 0)
            assert bool(FSDP.optim_state_dict(model, optimizer)) == (rank == 0)
        with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
            assert all(isinstance(v, DTensor) for v in model.state_dict().values())
        whole_optim = FSDP.optim_state_dict(model, optimizer)
        assert whole_optim["state"]["words.weight"]["exp_avg"].shape == (13, 8)
        sizes = functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=100)
        refused(lambda: FSDP(build(), auto_wrap_policy=sizes), "two groups")
        assert len(FSDP.fsdp_modules(FSDP(build(Net), auto_wrap_policy=sizes))) == 3
        for strategy in (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
            other = FSDP(build(), auto_wrap_policy={Block}, sharding_strategy=strategy)
            other.load_state_dict(state)
            again = optim.AdamW(other.parameters(), lr=1e-2, eps=1e-3)
            again.load_state_dict(FSDP.optim_state_dict_to_load(other, again, whole_optim))
            before = [p.full_tensor() for p in model.parameters()]
            for net, opt in ((model, optimizer), (other, again)):
                with net.no_sync():
                    gpt_loss(net, 5, mine(4, rank)).backward()
                gpt_loss(net, 5, mine(4, rank + 2)).backward()
                net.clip_grad_norm_(1.0)
                opt.step()
                opt.zero_grad()
            assert all((whole(p) - whole(q)).abs().max() < 1e-12
                       for p, q in zip(model.parameters(), other.parameters()))
            state, whole_optim = model.state_dict(), FSDP.optim_state_dict(model, optimizer)
        with FSDP.summon_full_params(model):
            assert model.norm.weight.shape == (8,) and type(model.norm.weight) is nn.Parameter
            with lamina.no_grad():
                model.norm.weight.fill_(3.0)
        assert model.norm.weight.full_tensor().tolist() == [3.0] * 8
        refused(lambda: FSDP.set_state_dict_type(model, StateDictType.LOCAL_STATE_DICT), "LOCAL")
        refused(lambda: FSDP(nn.Linear(2, 2), sharding_strategy=ShardingStrategy.HYBRID_SHARD), "device_mesh")
        assert wrap.wrap(nn.Linear(2, 2)).weight.shape == (2, 2)
        with wrap.enable_wrap(wrapper_cls=FSDP):
            assert isinstance(wrap.wrap(nn.Linear(2, 2)), FSDP)
        """,
        tmp_path,
    )


def test_what_is_written_into_an_open_model_stays(tmp_path):
    program(
        2,
        """
        plain, model = build(Net), sharded(build(Net))
        for i in range(3):
            net_loss(model, i, mine())
            net_loss(plain, i, slice(None))
            with lamina.no_grad():
                for p, q in zip(model.parameters(), plain.parameters()):
                    assert not isinstance(p, DTensor)
                    p.mul_(1.5)
                    q.mul_(1.5)
                    p.data.add_(0.25)
                    q.data.add_(0.25)
            model.reshard()
            same(model, plain)
        """,
        tmp_path,
    )


def test_what_ended_in_an_error_leaves_the_next_step_right(tmp_path):
    """A forward, one without gradients, a backward in its middle, and that backward gone through again."""
    program(
        2,
        """
        failing = []
        class Fails(Block):
            def forward(self, x):
                y = super().forward(x)
                if "forward" in failing:
                    raise KeyError("forward")
                if "backward" in failing and y.requires_grad:
                    y.register_hook(self.fail)
                return y
            def fail(self, grad):
                if "backward" in failing:
                    raise KeyError("backward")
        def build_failing():
            lamina.manual_seed(1)
            model = GPT().double()
            model.blocks[1].__class__ = Fails
            return model
        def fail(model, how, step):
            failing.append(how)
            try:
                gpt_loss(model, step, mine()).backward()
            except KeyError:
                failing.clear()
                model.zero_grad()
                return
            raise AssertionError("it did not fail")
        for flag in (True, False, None):
            plain, model = build(), sharded(build_failing(), reshard_after_forward=flag)
            ours, theirs = (optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (model, plain))
            for step in range(8):
                if step in (1, 2, 5):
                    fail(model, "forward" if step == 1 else "backward", step)
                if step == 3:
                    with lamina.no_grad():
                        fail(model, "forward", step)
                failing += ["backward"] * (step == 6)
                loss = gpt_loss(model, step, mine())
                if step == 6:
                    refused(lambda: loss.backward(retain_graph=True), "backward")
                    failing.clear()
                    model.zero_grad()
                loss.backward()
                gpt_loss(plain, step, slice(None)).backward()
                for opt in (ours, theirs):
                    opt.step()
                    opt.zero_grad()
            same(model, plain)
        """,
        tmp_path,
    )
