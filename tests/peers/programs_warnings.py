"""Programs that PyTorch warns of."""

import warnings

from tensor_programs import program


def _warned(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    return [(w.category.__name__, w.filename == __file__) for w in caught]


@program
def gradients_that_nobody_keeps(t):
    x = t.ones(2, requires_grad=True)
    y, z = x * 2, x * 3
    z.retain_grad()
    (y + z).sum().backward()
    return [_warned(lambda each=each: each.grad) for each in (x, y, z, t.ones(2), y.detach())]


@program
def copies_of_tensors(t):
    x = t.ones(2)
    return [
        _warned(f) for f in (lambda: t.tensor(x), lambda: t.as_tensor(x), lambda: t.tensor([1.0]), x.clone)
    ]


@program
def dropout_between_one_layer(t):
    return [len(_warned(lambda n=n: t.nn.LSTM(2, 2, n, dropout=0.5))) for n in (1, 2)]


@program
def schedules_out_of_order(t):
    def run():
        p = t.nn.Parameter(t.ones(2))
        optimizer = t.optim.SGD([p], lr=0.1)
        schedule = t.optim.lr_scheduler.StepLR(optimizer, 1)
        p.grad = t.ones(2)
        schedule.step()
        optimizer.step()

    return [kind for kind, _ in _warned(run)]


@program
def sizes_that_broadcast(t):
    loss = t.nn.functional.mse_loss
    return [
        [kind for kind, _ in _warned(lambda y=y: loss(t.ones(2, 1), y))] for y in (t.ones(2), t.ones(2, 1))
    ]
