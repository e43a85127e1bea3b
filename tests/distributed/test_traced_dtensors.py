"""DTensors in recordings: steps of sharded modules are one program, with its collectives inside."""

import pytest
import ranks
import test_tensor_parallel as parallel

pytest.importorskip("mpi4py", reason="mpi4py is not installed")

BEGIN = (
    ranks.BEGIN
    + """
from lamina.distributed.tensor import *
dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
mesh = dist.init_device_mesh("cpu", (size,))
A = np.arange(12.0).reshape(4, 3)
def lying(array, place, asks=False):
    return distribute_tensor(lamina.tensor(np.array(array), requires_grad=asks), mesh, [place])
def close(x, wanted):
    assert np.allclose(x.full_tensor().numpy(), wanted, rtol=1e-12, atol=1e-12), (x, wanted)
"""
)


def run(n, source, tmp_path, **more):
    return ranks.run(n, source, tmp_path, begin=BEGIN, **more)


@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_each_way_to_lie_is_a_recording(n, tmp_path):
    run(
        n,
        """
        f = jit.trace(lambda x, y: x @ y, budget=None)
        ways = [(Shard(0), Replicate(), Shard(0)), (Replicate(), Shard(1), Shard(1))]
        ways.append((Shard(1), Shard(0), Partial()))
        for a, b, c in [*ways, *ways]:
            made = f(lying(A, a), lying(A.T, b))
            assert made.placements == (c,), made
            close(made, A @ A.T)
        assert f.counts() == {"served": 3, "recorded": 3, "eager": 0, "raised": 0, "within": 0}, f.explain()
        told = f.explain(detail=True)
        assert "x: f64[4,3] [Replicate()] -> f64[4,3] [Shard(dim=1)]" in told, told
        close(f(lying(A[:2], Shard(0)), lying(A.T, Replicate())), A[:2] @ A.T)
        assert f.counts()["recorded"] == 4
        """,
        tmp_path,
    )


def test_a_guard_that_forgets_how_tensors_lie_is_seen(tmp_path):
    """The planted bug: a call of other placements takes the program of those that came before."""
    printed = run(
        2,
        """
        class Forgets(tuple):
            def __ne__(self, other):
                return False
        DTensor.form = property(lambda self: Forgets((self._mesh, self._placements, self._apart)))
        f = jit.trace(lambda x: x.sum(0), budget=None)
        for place in (Replicate(), Replicate(), Partial()):
            made = f(DTensor.from_local(lamina.tensor(A), mesh, [place]))
        wrong = bool((made.full_tensor() - 2 * A.sum(0)).abs().max() > 1)
        print("served", f.counts()["served"], "wrong", wrong)
        """,
        tmp_path,
    )
    assert printed.count("True") == 2 and "False" not in printed, printed


def test_writes_and_gradients_reach_what_was_there(tmp_path):
    run(
        2,
        """
        @jit.trace(budget=None)
        def written(x, y):
            x.add_(y)
            return x.mul_(2)
        x, y = lying(A, Shard(0)), lying(np.ones_like(A), Replicate())
        for _ in range(3):
            before, version = x.full_tensor().numpy().copy(), x._version
            assert written(x, y) is x and x._version > version
            close(x, 2 * (before + 1))
        assert written.counts()["served"] == 2, written.explain()

        p, q = lying(A, Replicate(), True), lying(A, Shard(1), True)
        @jit.trace(budget=None)
        def accumulated(z):
            ((p * q).relu() * z).sum().backward()
        for _ in range(4):
            accumulated(lying(A, Shard(0)))
        assert accumulated.counts()["served"] == 2, accumulated.explain()
        for leaf in (p, q):
            assert leaf.grad.placements == leaf.placements
            close(leaf.grad, 4 * A * A)

        live = jit.trace(lambda z: (p * z).sum(0), budget=None)
        for _ in range(3):
            p.grad = None
            out = live(lying(A, Shard(0)))
            (out * out).sum().backward()
            close(p.grad, 2 * A * (A * A).sum(0))
        assert live.counts()["served"] == 2, live.explain()
        """,
        tmp_path,
    )


def test_dtensors_are_made_and_returned_in_what_python_builds(tmp_path):
    run(
        2,
        """
        weight = lying(A.T, Shard(0))
        @jit.trace(budget=None)
        def made(x):
            whole = DTensor.from_local(x, mesh, [Shard(0)])
            whole = whole.redistribute(placements=[Replicate()])
            if not whole.placements[0].is_replicate():
                return None
            pair = whole, whole
            return {"product": [whole @ weight], "same": pair, "weight": weight, "local": whole.to_local()}
        with lamina.no_grad():
            for i in range(12):  # the last ones by the short way
                found = made(lamina.tensor(A + rank + i))
                whole = np.concatenate([A + r + i for r in range(size)])
                close(found["product"][0], whole @ A.T)
                assert found["same"][0] is found["same"][1] and found["weight"] is weight
                assert np.array_equal(found["local"].numpy(), whole)
        assert made.counts()["served"] == 11, made.explain()
        """,
        tmp_path,
    )


def test_what_is_taken_apart_runs_eagerly_and_what_is_asked_for_is_served(tmp_path):
    run(
        2,
        """
        @jit.trace
        def asked(x):
            return x.sum().item() + 1
        @jit.trace
        def drawn(x):
            return x.normal_()
        @jit.trace
        def exchanged(x, y):
            x.data = y
            return x + 0
        for _ in range(3):
            assert asked(lying(A, Shard(0))) == A.sum() + 1
            lamina.manual_seed(3)
            first = drawn(lying(A, Shard(0))).full_tensor()
            lamina.manual_seed(3)
            assert (lamina.zeros(4, 3, dtype=lamina.float64).normal_() == first).all()
            close(exchanged(lying(A, Shard(0)), lying(2 * A, Shard(0))), 2 * A)
        assert asked.counts()["served"] == 2, asked.explain()
        assert "data of a tensor made of tensors was replaced" in exchanged.explain(), exchanged.explain()
        assert not any(f.counts()["served"] for f in (drawn, exchanged))
        """,
        tmp_path,
    )


FUNCTIONS = """
W, kept = lying(A, Shard(0)), []
class Holder: pass
holder = Holder()
def to_write(x):
    x = x.clone()
    x[:, 0] = 5.0
    return x
def to_add(x):
    x = x * 1
    y = x
    y += W
    return x
def to_keep(x):
    kept.append(x * 2)
    holder.x = x
    return len(kept)
def to_change_a_part(x):
    part = x.to_local()
    part.add_(1)
    return part, x
def to_make_a_leaf(x):
    x = x.detach().requires_grad_()
    (x * x).sum().backward()
    return x.grad
def to_ask_for_gradients(x):
    w = W.detach().clone().requires_grad_()
    return lamina.autograd.grad((w * x).sum(), w)[0]
def to_hang_something(x):
    x.foo = 3
    return x * x.foo
SERVED = [
    to_write, to_add, to_keep, to_change_a_part, to_make_a_leaf, to_ask_for_gradients, to_hang_something,
    lambda x: (len(x), x.shape, x.ndim, x.dtype, x.size(0), x.numel(), x.stride(), x.is_contiguous()),
    lambda x: [row.sum() for row in x], lambda x: (x[0], x[1:3], x[:, 1], x[..., None]),
    lambda x: x.full_tensor().numpy(), lambda x: (copy.deepcopy(x), copy.copy(x)),
    lambda x: (x == W, x is W, x is x), lambda x: (x.transpose(0, 1), x.T.mT), lambda x: {x: 1}[x],
    lambda x: (lamina.zeros_like(x), isinstance(x, DTensor), type(x).__name__),
    lambda x: lamina.distributed.tensor.ones(4, 3, device_mesh=mesh, placements=[Shard(0)]) + x.float(),
    lambda x: (lamina.cat([x, x * 2], 0), lamina.stack([x, x])), lambda x: x.placements == (Shard(0),),
    lambda x: lamina.func.grad(lambda y: (y * y).sum())(x), lambda x: lamina.vmap(lambda row: row * 2)(x),
    lambda x: 1 if x.sum() > 3 else 2, lambda x: bool((x > 100).any()),
]
REFUSED = [
    lambda x: print(x, x * 2), lambda x: (f"{x * 2}", str(x), repr(x)), lambda x: x.tolist(),
    lambda x: x.device_mesh is mesh,
    lambda x: lamina.distributed.tensor.rand(4, 3, device_mesh=mesh, placements=[Shard(0)]),
]
def plain(o):
    if isinstance(o, DTensor):
        return "distributed", o.placements, o.full_tensor().detach().numpy().tolist()
    if isinstance(o, lamina.Tensor):
        return "ordinary", o.detach().numpy().tolist()
    if isinstance(o, (list, tuple)):
        return [*map(plain, o)]
    return o.tolist() if isinstance(o, np.ndarray) else o
def once(function, seed):
    kept.clear()
    vars(holder).clear()
    lamina.manual_seed(seed)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        found = plain(function(lying(A + seed, Shard(0))))
    return found, printed.getvalue(), plain(kept), plain(vars(holder).get("x"))
import contextlib, copy, io
for function in (*SERVED, *REFUSED):
    traced = jit.trace(function, budget=None)
    for seed in range(3):
        wanted, found = once(function, seed), once(traced, seed)
        assert wanted == found, (wanted, found)
    served = traced.counts()["served"]
    assert served == (2 if function in SERVED else 0), (function.__code__.co_firstlineno, traced.explain())
"""


def test_functions_do_what_they_do_undecorated(tmp_path):
    run(2, FUNCTIONS, tmp_path)


TRAINED = """
def traced(model, loss_of, steps):
    optimizer, losses = optim.AdamW(model.parameters(), lr=1e-2), []
    @jit.trace(budget=None)
    def step(tokens):
        loss = loss_of(model(tokens[:, :-1]).reshape(-1, 13), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    for batch in DATA[:steps]:
        losses.append(step(lamina.tensor(batch)).item())
    assert step.counts()["served"] == steps - 2, step.explain(detail=True)
    return losses, step
"""


@pytest.mark.parametrize("how", ["by_heads", "by_sequence"])
@pytest.mark.parametrize("n", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_parallel_training_step_is_one_program(n, how, tmp_path):
    last = parallel.LAST["by_classes"][0]
    last = last if how == "by_heads" else last.replace("Parallel(", "Parallel(input_layouts=Shard(1), ")
    source = f"""
        model, plain = {how}(build(), {last}), build()
        found, step = traced(model, by_classes, 8)
        wanted = trained(plain, smoothed, 8)
        assert max(abs(a - b) / abs(a) for a, b in zip(wanted, found)) < 1e-10, (wanted, found)
        for p, q in zip(model.parameters(), plain.parameters()):
            assert (whole(p) - q).abs().max() < 1e-10
        (_, sent), = step.explain(as_dict=True, mesh=True)["mesh"]
        assert len(sent) == len([n for n in step.graph().nodes if n.op.traits.meets])
        counts = {{}}
        for each in sent:
            counts[each["op"]] = counts.get(each["op"], 0) + 1
        if rank == 0:
            print("sends", sorted(counts.items()))
    """
    printed = ranks.run(n, source, tmp_path, begin=parallel.BEGIN + TRAINED)
    assert f"sends {SENT[how]}" in printed, printed


@pytest.mark.parametrize("how", ["by_heads", "by_sequence"])
def test_a_parallel_model_is_traced_and_backward_stands_outside(how, tmp_path):
    last = parallel.LAST["gathered"][0]
    last = last if how == "by_heads" else last.replace("Parallel(", "Parallel(input_layouts=Shard(1), ")
    source = f"""
        model, plain = {how}(build(), {last}), build()
        forward = jit.trace(model, budget=None)
        optimizers = [optim.AdamW(m.parameters(), lr=1e-2) for m in (model, plain)]
        for batch in DATA[:4]:
            tokens, losses = lamina.tensor(batch), []
            for called, optimizer in zip((forward, plain), optimizers):
                loss = smoothed(called(tokens[:, :-1]).reshape(-1, 13), tokens[:, 1:].reshape(-1))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            assert abs(losses[0] - losses[1]) < 1e-10 * abs(losses[1]), losses
        for p, q in zip(model.parameters(), plain.parameters()):
            assert (whole(p) - q).abs().max() < 1e-10
        assert forward.counts()["served"] == 3, forward.explain()
        text = str(forward.graph())
        assert "crossing(" in text and str(parse(text)) == text
        assert "and more in a backward outside" in forward.explain(mesh=True), forward.explain(mesh=True)
    """
    ranks.run(2, source, tmp_path, begin=parallel.BEGIN + "from lamina.ir.text import parse\n")


# Of two blocks.  by_heads: a block sums the outputs of wo and w2, the gradients of what w[qkv] and w[13] were
# given, and that of w2's bias: 8; 7 more are the output's, the loss's and the clipping's.  by_sequence
# gathers and scatters in place of most sums.
SENT = {
    "by_heads": [("all_gather", 2), ("all_reduce", 23), ("reduce_scatter", 1)],
    "by_sequence": [("all_gather", 11), ("all_reduce", 15), ("reduce_scatter", 10)],
}
