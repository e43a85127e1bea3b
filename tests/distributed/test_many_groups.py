"""Groups that are made and destroyed give back what they had, and leave others of the same ranks alone."""

import pytest
import ranks

pytest.importorskip("mpi4py", reason="mpi4py is not installed")


def test_three_thousand_groups_one_after_the_other(tmp_path):
    """MPI has some two thousand communicators at a time."""
    ranks.run(
        2,
        """
dist.init_process_group()
x = lamina.ones(4)
for i in range(3000):
    group = dist.new_group([0, 1] if i % 3 else [i % 2])
    if group is not dist.GroupMember.NON_GROUP_MEMBER:
        if i % 50 == 1:
            y = x.clone()
            dist.all_reduce(y, group=group)
            assert y.tolist() == [group.size()] * 4
        dist.destroy_process_group(group)
assert dist.get_pg_count() == 1
dist.all_reduce(x)
assert x.tolist() == [2.0] * 4
""",
        tmp_path,
    )


def test_a_group_of_the_same_ranks_goes_on(tmp_path):
    ranks.run(
        3,
        """
from lamina.distributed import functional
dist.init_process_group()
rank = dist.get_rank()
first, second = dist.new_group([0, 1]), dist.new_group([0, 1])
if rank < 2:
    work = dist.all_reduce(x := lamina.ones(1 << 16), group=first, async_op=True)
    dist.destroy_process_group(first)  # what is on its way arrives
    work.wait()
    assert x.tolist() == [2.0] * (1 << 16)
    try:
        dist.all_reduce(x, group=first)
    except ValueError as error:
        assert "was destroyed" in str(error)
    else:
        raise AssertionError("not refused")
    assert functional.all_reduce(lamina.ones(3), group=second).tolist() == [2.0] * 3
    dist.destroy_process_group(second)
    try:
        functional.all_reduce(lamina.ones(3), group=second)
    except ValueError as error:
        assert "no group of the ranks [0, 1]" in str(error)
    else:
        raise AssertionError("not refused")
assert functional.all_reduce(lamina.ones(3)).tolist() == [3.0] * 3
alone = [dist.new_group([r]) for r in range(3)][rank]
dist.destroy_process_group()  # and with it each rank's own
dist.init_process_group()
assert dist.get_pg_count() == 1 and functional.all_reduce(lamina.ones(3)).tolist() == [3.0] * 3
""",
        tmp_path,
    )
