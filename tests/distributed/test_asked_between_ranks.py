"""What Python asks for in a traced function: another answer must not meet the other ranks twice."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")


def test_a_value_that_is_asked_for_after_a_collective_keeps_the_function_eager(tmp_path):
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
        assert "asked for after a collective (all_reduce)" in str(after.explain()), after.explain()
        assert "served" in str(before.explain()) and "not served" not in str(before.explain())
        print("right")
        """,
        tmp_path,
    )
    assert printed.count("right") == 2
