"""`utils.flop_counter`, by hand; tests/peers/test_torch_flops.py compares with PyTorch."""

import pytest

import lamina
from lamina import jit, nn
from lamina.profiler import profile
from lamina.utils.flop_counter import FlopCounterMode


def counted(work):
    with FlopCounterMode(display=False) as counter:
        work()
    return counter


@pytest.mark.parametrize("forward_only", (True, False))
def test_products_are_counted_by_module(forward_only):
    net = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
    first, last = 2 * 5 * 3 * 4, 2 * 5 * 4 * 2

    def work():
        made = net(lamina.ones(5, 3))
        if not forward_only:
            made.sum().backward()

    counts = counted(work).get_flop_counts()
    assert counts["Sequential.0"]["linear"] == first
    assert counts["Sequential.1"]["linear"] == counts["Sequential.1.1"]["linear"] == last
    for name in ("Global", "Sequential"):
        assert counts[name]["linear"] == first + last
    if forward_only:
        assert all(set(ops) == {"linear"} for ops in counts.values())
    else:  # the input gets no gradient
        assert counts["Sequential.0"]["linear_backward"] == first
        assert counts["Sequential.1.1"]["linear_backward"] == 2 * last


def test_a_gradient_that_is_differentiated_is_counted_once():
    x = lamina.ones(3, 3, requires_grad=True)
    product = 2 * 3 * 3 * 3

    def work(create):
        (g,) = lamina.autograd.grad((x @ x).sum(), x, create_graph=create)
        return g

    assert counted(lambda: work(False)).get_total_flops() == 3 * product
    assert counted(lambda: work(True)).get_total_flops() == 3 * product
    assert counted(lambda: work(True).sum().backward()).get_total_flops() > 3 * product


def test_convolutions_with_groups_strides_and_towards_the_input():
    def work():
        nn.Conv2d(4, 6, 3, groups=2, stride=2)(lamina.ones(2, 4, 9, 9))
        nn.ConvTranspose2d(4, 6, 2, groups=2)(lamina.ones(2, 4, 5, 5))

    counts = counted(work).get_flop_counts()["Global"]
    assert counts["conv2d"] == 2 * (2 * 6 * 4 * 4) * (2 * 3 * 3)
    assert sum(counts.values()) - counts["conv2d"] == 2 * (2 * 4 * 5 * 5) * (3 * 2 * 2)


def test_traced_functions_count_as_eager_ones():
    net = nn.Linear(3, 4)
    traced = jit.trace(lambda x: net(x).relu())
    for _ in range(4):
        assert counted(lambda: traced(lamina.ones(5, 3))).get_total_flops() == 120
        traced(lamina.ones(5, 3))


def test_what_a_block_leaves_behind(capsys):
    net = nn.Linear(3, 4)
    with pytest.raises(ZeroDivisionError), FlopCounterMode(display=False) as counter:
        net(lamina.ones(5, 3))
        raise ZeroDivisionError
    net(lamina.ones(5, 3))
    assert counter.get_total_flops() == 120
    with counter:  # begins anew
        lamina.ones(2, 2) @ lamina.ones(2)
    assert counter.get_flop_counts() == {"Global": {"matmul": 8}} and not capsys.readouterr().out
    with FlopCounterMode(depth=1):
        net(lamina.ones(5, 3))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["Module", "FLOP", "%", "Total"]
    assert [line.split() for line in lines[2:]] == [
        ["Global", "120", "100.00%"], ["-", "linear", "120", "100.00%"],
        ["Linear", "120", "100.00%"], ["-", "linear", "120", "100.00%"],
    ]  # fmt: skip


def test_what_is_refused():
    with pytest.raises(lamina.ArgumentError, match="custom_mapping"):
        FlopCounterMode(custom_mapping={lamina.mm: lambda *_: 1})
    with profile(), pytest.raises(lamina.ArgumentError, match="a profile or another counter is open"):
        FlopCounterMode().__enter__()
    with FlopCounterMode(display=False), pytest.raises(lamina.ArgumentError, match="another counter"):
        FlopCounterMode().__enter__()
