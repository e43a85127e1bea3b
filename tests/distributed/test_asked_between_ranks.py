"""What Python asks for in a traced function: another answer must not meet the other ranks twice."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")


def test_a_value_that_is_asked_for_before_and_after_a_collective(tmp_path):
    """On one rank a new answer comes when the other rank goes on as recorded."""
    printed = ranks.run(
        2,
        """
        import lamina.distributed.functional as F
        dist.init_process_group()
        rank = dist.get_rank()
        @jit.trace
        def after(x, y):
            a = F.all_reduce(x)
            if (a + y).sum().item() > 5:
                y = y * 0
            return F.all_reduce(a + 1) + y
        @jit.trace
        def before(x):
            if x.sum().item() > 5:
                x = x * 2
            a = F.all_reduce(x)
            return a, a.sum().item()
        for i in range(12):
            y = lamina.tensor([10.0 * (rank == 1 and i == 7)])
            assert after(lamina.ones(1), y).item() == 6, i
            a, s = before(lamina.ones(1) * (1 + 9 * (rank == 1 and i == 7)))
            assert s == a.item() == (21 if i == 7 else 2), i
        for f in (after, before):
            assert int(str(f.explain()).split("served ")[1].split()[0]) >= 9, str(f.explain())
        print("right")
        """,
        tmp_path,
    )
    assert printed.count("right") == 2


def test_a_scaler_that_meets_an_infinity_on_one_rank(tmp_path):
    """Steps as training loops have them: scaled losses, norms that must be finite, early returns."""
    printed = ranks.run(
        2,
        """
        dist.init_process_group()
        rank = dist.get_rank()

        def trained(traced):
            lamina.manual_seed(0)
            net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).double()
            model = nn.parallel.DistributedDataParallel(net)
            optimizer = optim.AdamW(net.parameters(), lr=0.01)
            scaler = lamina.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=3)

            def step(x):
                optimizer.zero_grad()
                loss = (model(x) ** 2).mean()
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                return loss if lamina.isfinite(norm) else norm

            step, generator, seen = jit.trace(step) if traced else step, np.random.default_rng(rank), []
            for i in range(12):
                x = generator.standard_normal((4, 8))
                x[0, 0] = np.inf if rank == 1 and i in (5, 9) else x[0, 0]
                seen.append(step(lamina.tensor(x)).item())
            return seen, scaler.get_scale(), step

        (plain, scale, _), (served, same, step) = trained(False), trained(True)
        # float64: the same sums, in another order
        assert scale == same and np.allclose(plain, served, rtol=1e-10, equal_nan=True), (plain, served)
        assert int(str(step.explain()).split("served ")[1].split()[0]) >= 4, str(step.explain())
        print("right")
        """,
        tmp_path,
    )
    assert printed.count("right") == 2
