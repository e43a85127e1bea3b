"""Arguments that a traced function has ask for their gradients: attacks, saliency maps, equations."""

import pytest

import lamina
import lamina.nn.functional as F
from lamina import autograd, jit, nn, optim


def network():
    lamina.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def attack(net):
    def step(x, y):
        x.requires_grad = True
        loss = F.cross_entropy(net(x), y)
        net.zero_grad()
        loss.backward()
        return (x + 0.1 * x.grad.sign()).clamp(-1, 1).detach()

    return step


def attack_by_grad(net):
    def step(x, y):
        x.requires_grad_()
        return (x + 0.1 * autograd.grad(F.cross_entropy(net(x), y), x)[0].sign()).detach()

    return step


def saliency(net):
    def step(x, y):
        x.requires_grad_(True)
        net(x).gather(1, y[:, None]).sum().backward()
        return x.grad.abs().max(1)[0]

    return step


def equation(net):
    optimizer = optim.Adam(net.parameters())

    def step(x, y):
        x.requires_grad_(True)
        u = net(x)[:, :1]
        first = autograd.grad(u, x, lamina.ones_like(u), create_graph=True)[0]
        second = autograd.grad(first.sum(), x, create_graph=True)[0]
        loss = (second[:, :1] + u).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def used_before(net):
    def step(x, y):
        z = x * 2
        x.requires_grad_()
        (x * z).sum().backward()
        return x.grad * 1

    return step


def in_a_list(net):
    def step(x, y):
        given = [x, y]
        given[0].requires_grad_()
        (given[0] ** 2).sum().backward()
        return given[0].grad.clone()

    return step


SERVED = [attack, attack_by_grad, saliency, equation, used_before, in_a_list]


def compared(make, arguments, calls=12):
    """Results and what becomes of the arguments, traced and not."""
    told = []
    for trace in (lambda f: f, jit.trace):
        net, found = network(), []
        step = trace(make(net))
        lamina.manual_seed(1)
        for number in range(calls):
            x, y = arguments(number)
            result = step(x, y)
            grads = [None if p.grad is None else p.grad.tolist() for p in net.parameters()]
            grad = None if x.grad is None else x.grad.tolist()
            found.append((result.tolist(), grad, *grads, x.requires_grad, x.is_leaf, result.requires_grad))
        told.append(found)
    for wanted, found in zip(*told, strict=True):
        for a, b in zip(wanted, found, strict=True):
            same = type(a) is type(b) and (a == b or lamina.allclose(*map(lamina.tensor, (a, b)), atol=1e-5))
            assert same, (wanted, found)
    return step


def fresh(number):
    """A new argument each time; some ask for gradients already, or have one."""
    x = lamina.randn(6, 4)
    if number % 5 >= 3:
        x.requires_grad_()
    if number % 5 == 4:
        x.grad = lamina.ones(6, 4)
    return x, lamina.randint(0, 3, (6,))


@pytest.mark.parametrize("make", SERVED, ids=lambda make: make.__name__)
def test_steps_that_ask_arguments_are_compiled(make):
    step = compared(make, fresh)
    assert step.counts()["served"] >= 6, step.explain()


def off_again(net):
    def step(x, y):
        x.requires_grad_()
        (x * x).sum().backward()
        x.requires_grad_(False)
        return x + 1

    return step


def returned(net):
    def step(x, y):
        x.requires_grad_()
        return net(x).sum()

    return step


def detached_twin(net):
    def step(x, y):
        twin = x.detach()
        x.requires_grad_()
        (x * twin).sum().backward()
        return x.grad + twin

    return step


@pytest.mark.parametrize("make", [off_again, returned, detached_twin], ids=lambda make: make.__name__)
def test_other_ways_stay_right(make):
    compared(make, fresh)


@pytest.mark.parametrize("make", SERVED, ids=lambda make: make.__name__)
def test_the_same_argument_again_and_again(make):
    """Which asks for its gradient from the first call on, and whose gradient adds up."""
    kept = []

    def same(number):
        if number == 0:
            kept.append((lamina.randn(6, 4), lamina.randint(0, 3, (6,))))
        return kept[-1]

    compared(make, same)


def test_views_and_arguments_that_share_memory():
    def views(number):
        return lamina.randn(8, 4)[1:7], lamina.randint(0, 3, (6,))

    compared(saliency, views)
    whole = lamina.randn(6, 4)
    compared(
        lambda net: lambda x, y: (x.requires_grad_(), (x * whole).sum().backward(), x.grad + 1)[2],
        lambda number: (whole.detach() if number % 2 else lamina.randn(6, 4), whole),
    )


def test_errors_leave_what_the_plain_run_leaves():
    told = []
    for trace in (lambda f: f, jit.trace):

        def step(x, at):
            x.requires_grad_()
            x[at].sum().backward()
            return x.grad + 1

        step, found = trace(step), []
        for at in (0, 1, 1, 1, 7, 1, 7):
            x = lamina.ones(3, 2)
            try:
                found.append(step(x, lamina.tensor(at)).tolist())
            except IndexError as error:
                found.append(type(error))
            found.append((x.requires_grad, x.grad is None))
        with pytest.raises(lamina.GradError):
            step(lamina.ones(3, 2, dtype=lamina.int64), lamina.tensor(0))
        told.append(found)
    assert told[0] == told[1]
