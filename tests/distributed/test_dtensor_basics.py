"""DTensors: what they say of themselves, how they come and go, and what is refused."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

BEGIN = (
    ranks.BEGIN
    + """
import copy, pickle
from lamina.distributed.tensor import *
from lamina.distributed.tensor import DTensor, Partial, Placement
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (size,))
def refused(call, *words, kind=Exception):
    try:
        call()
    except kind as error:
        assert all(w in str(error) for w in words), error
        return str(error)
    raise AssertionError("not refused")
"""
)


def test_dtensor_says_what_it_is(tmp_path):
    ranks.run(
        3,
        """
        x = lamina.arange(10.0).reshape(5, 2)
        d = distribute_tensor(x * (rank + 1), mesh, [Shard(0)])
        assert isinstance(d, lamina.Tensor) and d.shape == (5, 2) and d.size(0) == 5 and d.numel() == 10
        assert d.placements == (Shard(0),) and d.device_mesh is mesh and d.dtype is lamina.float32
        assert d.to_local().shape == ((2, 2) if rank < 2 else (1, 2))
        assert lamina.equal(d.full_tensor(), x), "the first rank's values count"
        own = x * (rank + 1)
        cut = distribute_tensor(own, mesh, [Shard(0)], src_data_rank=None).to_local()
        assert lamina.equal(cut, own[2 * rank : 2 * rank + 2])
        assert d.stride() == (2, 1) and len(d) == 5 and d.sum().item() == 45 and float(d.sum()) == 45
        assert d.tolist() == x.tolist()
        assert "Shard(dim=0)" in repr(d) and "DTensor" in repr(d)
        assert Shard(0) == Shard(0) != Shard(1) and Shard(1).is_shard(1) and not Replicate().is_shard()
        assert Partial().is_partial("sum") and isinstance(Partial(), Placement)
        assert len({Shard(0), Shard(0)}) == 1
        assert distribute_tensor(x, mesh, [Shard(-1)]).placements == (Shard(1),)
        few = distribute_tensor(lamina.ones(1, 4), mesh, [Shard(0)])
        assert few.to_local().shape == (1 if rank == 0 else 0, 4)
        assert lamina.equal(few.full_tensor(), lamina.ones(1, 4))
        assert lamina.equal((few + 1).sum(0).full_tensor(), lamina.full((4,), 2.0))
        assert DTensor.from_local(lamina.ones(2, 2), mesh, [Shard(0)]).shape == (6, 2)
        uneven = lamina.ones(2 if rank < 2 else 1, 2)
        assert DTensor.from_local(uneven, mesh, [Shard(0)], shape=(5, 2)).sum().item() == 10
        refused(lambda: DTensor.from_local(lamina.ones(3, 2), mesh, [Shard(0)], shape=(5, 2)), "part")
        unsaid = lambda: DTensor.from_local(uneven, mesh, [Shard(0)], run_check=True)
        refused(unsaid, "different shapes", "rank 2")
        same = DTensor.from_local(lamina.full((2,), float(rank)), mesh, [Replicate()], run_check=True)
        assert same.to_local().tolist() == [0.0, 0.0]
        z = zeros(4, 3, device_mesh=mesh, placements=[Shard(1)])
        assert z.to_local().shape == (4, 1) and ones((2, 2), device_mesh=mesh).sum().item() == 4
        assert full((2, 3), 7.0, device_mesh=mesh, placements=[Shard(0)]).mean().item() == 7
        assert empty(2, 3, device_mesh=mesh).shape == (2, 3)
        """,
        tmp_path,
        begin=BEGIN,
    )


def test_dtensor_random_numbers_are_those_of_one_process(tmp_path):
    ranks.run(
        2,
        """
        lamina.manual_seed(5)
        want = [lamina.randn(5, 3), lamina.rand(4), lamina.randn(2, 2)]
        lamina.manual_seed(5 + 100 * rank)  # the first rank's seed counts
        for w, (make, sizes) in zip(want, [(randn, (5, 3)), (rand, (4,)), (randn, (2, 2))]):
            made = make(*sizes, device_mesh=mesh, placements=[Shard(0)])
            assert lamina.equal(made.full_tensor(), w)
        lamina.manual_seed(6)
        plain = nn.init.kaiming_uniform_(lamina.empty(6, 3))
        lamina.manual_seed(6 + rank)
        drawn = nn.init.kaiming_uniform_(empty(6, 3, device_mesh=mesh, placements=[Shard(0)]))
        assert lamina.equal(drawn.full_tensor(), plain)
        """,
        tmp_path,
        begin=BEGIN,
    )


def test_dtensor_gradients_cross_to_ordinary_tensors(tmp_path):
    ranks.run(
        2,
        """
        x = lamina.arange(6.0).double().requires_grad_()
        d = DTensor.from_local(x, mesh, [Replicate()])
        (d.redistribute(placements=[Shard(0)]) * lamina.tensor(2.0).double()).sum().backward()
        assert x.grad.tolist() == [2.0] * 6, "each rank has the whole gradient of what all have"
        y = lamina.ones(3, dtype=lamina.float64, requires_grad=True)
        out = DTensor.from_local(y, mesh, [Shard(0)]).full_tensor()
        (out * lamina.arange(6.0).double()).sum().backward()
        assert y.grad.tolist() == [3.0 * rank + i for i in range(3)]
        z = lamina.ones(2, dtype=lamina.float64, requires_grad=True)
        DTensor.from_local(z, mesh, [Partial()]).full_tensor().sum().backward()
        assert z.grad.tolist() == [1.0, 1.0]
        w = distribute_tensor(lamina.ones(4).double().requires_grad_(), mesh, [Replicate()])
        w.to_local().sum().backward()
        assert w.grad.full_tensor().tolist() == [1.0] * 4
        w.grad = None
        (w.to_local(grad_placements=[Partial()]) * (rank + 1)).sum().backward()
        assert w.grad.full_tensor().tolist() == [3.0] * 4, "what ranks bring adds up where they say so"
        h = []
        v = distribute_tensor(lamina.ones(4).double().requires_grad_(), mesh, [Shard(0)])
        m = v * 2
        m.retain_grad()
        m.register_hook(lambda g: h.append(g.full_tensor().tolist()))
        v.register_post_accumulate_grad_hook(lambda p: h.append(p.grad.full_tensor().tolist()))
        m.square().sum().backward()
        assert h == [[4.0] * 4, [8.0] * 4] and m.grad.full_tensor().tolist() == [4.0] * 4, h
        c = copy.deepcopy(v)
        assert c.requires_grad and lamina.equal(c.full_tensor(), v.full_tensor()) and c is not v
        """,
        tmp_path,
        begin=BEGIN,
    )


def test_dtensor_refuses_by_name_and_says_the_way_out(tmp_path):
    ranks.run(
        2,
        """
        d = distribute_tensor(lamina.randn(4, 4), mesh, [Shard(0)])
        text = refused(lambda: lamina.linalg.inv(d), "linalg_inv", "Shard", "redistribute", kind=TypeError)
        whole = d.redistribute(placements=[Replicate()])
        assert lamina.allclose(lamina.linalg.inv(whole + 5 * lamina.ones_like(whole).tril()).to_local(),
                               lamina.linalg.inv(whole.to_local() + 5 * lamina.ones(4, 4).tril()))
        refused(lambda: d + lamina.ones(4, 4), "mixed", "distribute_tensor", kind=TypeError)
        from lamina.distributed.tensor.experimental import implicit_replication
        with implicit_replication():
            assert lamina.equal((d + lamina.ones(4, 4)).full_tensor(), d.full_tensor() + 1)
        refused(lambda: d.numpy(), "full_tensor")
        refused(lambda: pickle.dumps(d), "pickled")
        refused(lambda: lamina.save(d, "nowhere.pt"), "distributed")
        refused(lambda: d.redistribute(placements=[Partial()]), "Partial")
        refused(lambda: d.redistribute(placements=[Shard(2)]), "2 dims")
        refused(lambda: distribute_tensor(lamina.ones(2), mesh, [Partial()]), "Shard and Replicate")
        refused(lambda: distribute_tensor(lamina.ones(2), mesh, [Shard(0), Shard(0)]), "one for each")
        refused(lambda: distribute_tensor(lamina.ones(2, requires_grad=True) * 2, mesh), "leaf")
        refused(lambda: (d.sum() * 1).requires_grad_(), "partial")
        other = dist.init_device_mesh("cpu", (1, size))
        refused(lambda: d + distribute_tensor(lamina.ones(4, 4), other), "different meshes")
        refused(lambda: lamina.bernoulli(whole.sigmoid()), "bernoulli")
        leaf = distribute_tensor(lamina.ones(4, requires_grad=True), mesh, [Shard(0)])
        refused(lambda: leaf.add_(1.0), "leaf")
        view = d.reshape(2, 8)[:, 1:]  # the columns are whole, the rows were not
        before = d.full_tensor()
        moved = d.narrow(0, 0, 2)
        refused(lambda: moved.zero_(), "written in place", kind=TypeError)
        assert lamina.equal(d.full_tensor(), before)
        d[:, 1:].zero_()
        assert lamina.equal(d.full_tensor()[:, 1:], lamina.zeros(4, 3))
        p = nn.Parameter(distribute_tensor(lamina.ones(4, 2), mesh, [Shard(0)]))
        assert isinstance(p, nn.Parameter) and isinstance(p, DTensor) and p.requires_grad
        try:
            lamina.distributed.tensor.DTensor.from_local([1.0], mesh)
        except TypeError as error:
            assert "a tensor" in str(error)
        muon = optim.Muon([nn.Parameter(distribute_tensor(lamina.ones(4, 2), mesh, [Shard(0)]))])
        muon.param_groups[0]["params"][0].grad = distribute_tensor(lamina.ones(4, 2), mesh, [Shard(0)])
        refused(muon.step, "Muon", "whole parameters")
        """,
        tmp_path,
        begin=BEGIN,
    )


def test_dtensor_parameters_are_stepped_clipped_and_saved_in_parts(tmp_path):
    ranks.run(
        2,
        """
        def build():
            lamina.manual_seed(0)
            return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 5)).double()
        def rows(name, module, mesh):
            for n, p in list(module._parameters.items()):
                module.register_parameter(n, nn.Parameter(distribute_tensor(p.detach(), mesh, [Shard(0)])))
        plain, model = build(), distribute_module(build(), mesh, rows,
            lambda m, args, mesh: (distribute_tensor(args[0], mesh, [Shard(0)]),),
            lambda m, out, mesh: out.full_tensor())
        for make in (
            lambda p: optim.SGD(p, lr=0.1, momentum=0.9), lambda p: optim.AdamW(p, lr=0.01, amsgrad=True),
            lambda p: optim.RMSprop(p, lr=0.01),
            lambda p: optim.Adagrad(p, lr=0.01, initial_accumulator_value=0.1),
        ):
            a, b = make(plain.parameters()), make(model.parameters())
            for step in range(3):
                x = lamina.randn(4, 6, dtype=lamina.float64, generator=lamina.Generator().manual_seed(step))
                for net, opt in ((plain, a), (model, b)):
                    opt.zero_grad()
                    net(x).square().sum().backward()
                    norm = nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                    assert type(norm) is lamina.Tensor
                    opt.step()
                    assert step or net is plain or abs(norm - last) < 1e-10
                    last = norm
            for p, q in zip(plain.parameters(), model.parameters()):
                assert (q.full_tensor() - p).abs().max() < 1e-12
                assert q.to_local().shape[0] == -(-p.shape[0] // 2) - (rank * p.shape[0] % 2)
            states = [v for s in b.state.values() for v in s.values() if isinstance(v, DTensor)]
            assert states and all(s.placements == (Shard(0),) for s in states)
            b.load_state_dict(copy.deepcopy(b.state_dict()))
            c = make(model.parameters())
            c.load_state_dict(a.state_dict())  # whole states are cut
            assert all(v.placements == (Shard(0),) for s in c.state.values() for v in s.values() if v.ndim)
        saved = model.state_dict()
        assert all(isinstance(v, DTensor) for v in saved.values())
        model.load_state_dict({k: v * 0 for k, v in saved.items()})
        assert all(p.abs().max().item() == 0 for p in model.parameters())
        """,
        tmp_path,
        begin=BEGIN,
    )
