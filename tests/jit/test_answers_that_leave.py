"""What `item()`, `tolist()` and `float()` tell divides no run where it only leaves it."""

import io
import math
from contextlib import redirect_stdout

import pytest

import lamina
import lamina.nn.functional as F
from lamina import jit, nn, optim


class Meter:
    def __init__(self):
        self.sum, self.count, self.best = 0.0, 0, []


def given(seed):
    lamina.manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    return net, optim.SGD(net.parameters(), lr=0.1, momentum=0.9), Meter(), {}, []


def returned(x, y, net, opt, meter, table, log):
    loss = F.cross_entropy(net(x), y)
    loss.backward()
    return loss.item()


def with_a_history(x, y, net, opt, meter, table, log):
    loss = F.cross_entropy(net(x), y)
    log.append(loss.item())
    return loss


def in_the_middle(x, y, net, opt, meter, table, log):
    opt.zero_grad()
    loss = F.cross_entropy(net(x), y)
    table["loss"] = loss.item()
    loss.backward()
    opt.step()
    table["after"] = float(next(net.parameters()).sum())


def counted(x, y, net, opt, meter, table, log):
    out = net(x)
    meter.sum += F.cross_entropy(out, y).item() * len(x)
    meter.count += (out.argmax(1) == y).sum().item()
    return meter.sum / 20 + meter.count


def formatted(x, y, net, opt, meter, table, log):
    loss = F.cross_entropy(net(x), y).detach()
    print(f"loss {loss.item():.4f} {float(loss):8.2e}")
    return "%.3f" % loss.item()  # noqa: UP031 - which is a way of its own


def before_a_write(x, y, net, opt, meter, table, log):
    z = x * 2
    first = z.sum().item()
    z.add_(1)
    return first, z.sum().item(), z


def before_an_argument_is_written(x, y, net, opt, meter, table, log):
    z = x.sum().item()
    one = x[0, 0].item()
    x.mul_(3)
    return z, one, x[0, 0].item()


def of_lists(x, y, net, opt, meter, table, log):
    out = net(x)
    log.extend(out.argmax(1).tolist())
    log += out.sum(1).tolist()
    first, *rest = out[0].tolist()
    return [*out.mean(0).tolist(), first], {"rest": rest, "all": out.tolist()}


def twice(x, y, net, opt, meter, table, log):
    loss = net(x).square().mean()
    return loss, loss.item(), loss.item() + 1


def of_an_argument(x, y, net, opt, meter, table, log):
    return x.sum() * 2, x[1, 1].item(), y.tolist()


def dropped(x, y, net, opt, meter, table, log):
    loss = net(x).sum()
    loss.item()
    return loss * 2


LEAVING = [
    returned, with_a_history, in_the_middle, counted, formatted, before_a_write,
    before_an_argument_is_written, of_lists, twice, of_an_argument, dropped,
]  # fmt: skip


# What must be known before the work is done.
def decides(x, y, net, opt, meter, table, log):
    loss = net(x).sum().detach()
    return loss.item(), loss * 2 if loss.item() > 0 else loss


def taken_by_an_op(x, y, net, opt, meter, table, log):
    scale = x.abs().max().item()
    return net(x).detach() * scale, scale


def may_raise(x, y, net, opt, meter, table, log):
    loss = net(x).sum().detach()
    table["n"] = table.get("n", 0) + 1
    return math.log(loss.abs().item())


def divides(x, y, net, opt, meter, table, log):
    loss = net(x).sum().detach()
    return 1 / loss.item()


def cut(x, y, net, opt, meter, table, log):
    loss = net(x).sum().detach() * 100
    log.append(int(loss))
    return loss


ASKED = [decides, taken_by_an_op, may_raise, divides, cut]


def run(f, calls=10):
    """What calls give and print, and what they leave."""
    state, told, out = given(1), [], io.StringIO()
    with redirect_stdout(out):
        for seed in range(calls):
            lamina.manual_seed(seed)
            x, y = lamina.randn(5, 4), lamina.randint(0, 3, (5,))
            result = f(x, y, *state)
            net, opt, meter, table, log = state
            if isinstance(result, lamina.Tensor) and result.requires_grad:
                result.backward()
            told += [result, x, vars(meter), dict(table), [*log], [p.clone() for p in net.parameters()],
                     [p.grad for p in net.parameters()]]  # fmt: skip
    return told, out.getvalue()


def alike(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, lamina.Tensor):
        return a.requires_grad == b.requires_grad and lamina.allclose(a, b, rtol=1e-4, atol=1e-5)
    return type(a) is type(b) and (
        math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-5) if type(a) is float else a == b
    )


@pytest.mark.parametrize("f", LEAVING + ASKED)
def test_calls_do_what_eager_ones_do(f):
    (eager, printed), (traced, also) = run(f), run(jit.trace(f))
    for at, (a, b) in enumerate(zip(eager, traced, strict=True)):
        assert alike(a, b), f"{at % 7} of call {at // 7}: {a} became {b}"
    assert also == printed


@pytest.mark.parametrize("f", LEAVING)
def test_what_leaves_divides_nothing(f):
    traced = jit.trace(f)
    run(traced)
    told = traced.explain(as_dict=True)
    assert told["served"] >= 7, traced.explain()
    assert [path["asked"] for path in told["paths"] if path["hits"] > 3] == [0], told["paths"]


@pytest.mark.parametrize("f", ASKED)
def test_what_the_run_hangs_on_is_asked(f):
    traced = jit.trace(f)
    run(traced)
    told = traced.explain(as_dict=True)
    assert told["served"] >= 3, traced.explain()
    assert all(path["asked"] for path in told["paths"] if path["hits"])


def test_where_it_raises_nothing_was_done():
    """A logarithm of 0, before a write: the call raises, and the tensor stays."""
    kept = lamina.zeros(3)

    @jit.trace
    def f(x):
        told = math.log(x.sum().item())
        kept.add_(x)
        return told

    for _ in range(4):
        f(lamina.ones(3))
    before = kept.clone()
    with pytest.raises(ValueError, match="math domain error"):
        f(lamina.zeros(3))
    assert lamina.equal(kept, before)
