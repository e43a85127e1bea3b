"""What is on its way while its rank computes: who looks at it, and how long a wait looks without a pause."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")


def test_a_thread_looks_where_that_takes_no_core_from_who_computes(tmp_path):
    """At messages always, as somebody may wait for them; at collectives where a core is idle."""
    printed = ranks.run(
        2,
        """
        from lamina.distributed import work
        dist.init_process_group()
        world, rank = dist.groups.need_world(), dist.get_rank()
        followed = []
        work.PROGRESS.follow = followed.append
        x = lamina.ones(1 << 16)
        for asked in (None, True, False):
            world.looks_ahead = asked
            for sharers, threads in ((2, 1), (1, 1)):
                world.cores, world.sharers = 2, sharers
                lamina.set_num_threads(threads)
                followed.clear()
                dist.all_reduce(x, async_op=True).wait()
                collectives = len(followed)
                followed.clear()
                work_ = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
                work_.wait()
                print(rank, asked, sharers, collectives, len(followed))
        """,
        tmp_path,
    )
    for rank in (0, 1):
        for asked, sharers, collectives in (
            (None, 2, 0), (None, 1, 1), (True, 2, 1), (True, 1, 1), (False, 2, 0), (False, 1, 0),
        ):  # fmt: skip
            assert f"{rank} {asked} {sharers} {collectives} 1\n" in printed, printed


def test_a_wait_is_eager_for_all_that_is_on_its_way(tmp_path):
    """Each look brings all of it on, so that the first to be waited for may be the last that comes."""
    ranks.run(
        2,
        """
        from lamina.distributed import flights
        dist.init_process_group()
        world = dist.groups.need_world()
        world.looks_ahead = False
        eager, before = [], flights.wait
        def wait(arrived, eager_for, *rest, **more):
            eager.append(eager_for)
            before(arrived, eager_for, *rest, **more)
        flights.wait = wait
        small, large = lamina.ones(16), lamina.ones(1 << 20)
        works = [dist.all_reduce(x, async_op=True) for x in (small, large, large.clone())]
        assert world.under_way == 64 + 2 * (4 << 20)
        for one in works:
            one.wait()
        assert world.under_way == 0
        assert eager[0] >= 2 * (4 << 20) / flights.BYTES_A_SECOND
        work = dist.all_reduce(large, async_op=True)
        world.log = []  # so that one that is waited for at once comes to a wait
        eager.clear()
        dist.all_reduce(small)
        assert eager[0] >= (4 << 20) / flights.BYTES_A_SECOND
        work.wait()
        works = [dist.all_reduce(large, async_op=True), dist.all_reduce(small, async_op=True)]
        del works[0]  # nobody waits for it any more
        assert world.under_way == 64
        works[0].wait()
        dist.barrier()
        assert world.under_way == 0
        """,
        tmp_path,
    )
