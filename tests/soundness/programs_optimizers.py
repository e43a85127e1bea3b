"""Programs that train with optimizers, schedules and groups whose settings change."""

from battery import lib as t
from battery import program
from networks import EPS, goal, held, network, stepping

F = t.nn.functional


# ---- every optimizer ---------------------------------------------------------------------------------------
@program("optimizers", chained=True)
def the_rate_of_sgd_is_set_by_hand(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step = stepping(w, model, optimizer)

    for lr in w.rounds(0.002, 0.001, 0.0005):
        optimizer.param_groups[0]["lr"] = lr
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def the_rate_of_sgd_falls_at_every_step(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step = stepping(w, model, optimizer)

    def falling(x, y):
        optimizer.param_groups[0]["lr"] *= 0.95
        return step(x, y)

    for y in w.rounds(goal(6.0, 8.0), goal(7.0, 5.0)):
        w.call(falling, w.m, y)


@program("optimizers", chained=True)
def momentum_is_switched_on(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.0005)
    step = stepping(w, model, optimizer)

    for momentum in w.rounds(0.0, 0.9, 0.5):
        optimizer.param_groups[0]["momentum"] = momentum
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def nesterov_and_dampening_are_switched(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.0003, momentum=0.9)
    step = stepping(w, model, optimizer)

    for nesterov, dampening in w.rounds((False, 0.0), (True, 0.0), (False, 0.5)):
        optimizer.param_groups[0].update(nesterov=nesterov, dampening=dampening)
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def weight_decay_is_switched(w):
    model = network()
    optimizer = t.optim.AdamW(model.parameters(), lr=0.01, eps=EPS)
    step = stepping(w, model, optimizer)

    for decay in w.rounds(0.0, 0.1):
        optimizer.param_groups[0]["weight_decay"] = decay
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def adam_counts_its_steps(w):
    model = network()
    optimizer = t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)
    step = stepping(w, model, optimizer)

    for y in w.rounds(goal(6.0, 8.0), goal(5.0, 9.0)):
        w.call(step, w.m, y)


@program("optimizers", chained=True)
def the_betas_of_adam_change(w):
    model = network()
    optimizer = t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)
    step = stepping(w, model, optimizer)

    for betas, eps in w.rounds(((0.9, 0.999), EPS), ((0.5, 0.9), EPS), ((0.9, 0.999), 2.0)):
        optimizer.param_groups[0].update(betas=betas, eps=eps)
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def rmsprop_gets_momentum(w):
    model = network()
    optimizer = t.optim.RMSprop(model.parameters(), lr=0.01, momentum=0.1, eps=EPS)
    step = stepping(w, model, optimizer)

    for momentum, alpha in w.rounds((0.1, 0.99), (0.5, 0.9)):
        optimizer.param_groups[0].update(momentum=momentum, alpha=alpha)
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def adagrads_rate_decays(w):
    model = network()
    optimizer = t.optim.Adagrad(model.parameters(), lr=0.05, lr_decay=0.1)
    step = stepping(w, model, optimizer)

    for lr in w.rounds(0.05, 0.02):
        optimizer.param_groups[0]["lr"] = lr
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def ascent_instead_of_descent(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step = stepping(w, model, optimizer)

    for maximize in w.rounds(False, True):
        optimizer.param_groups[0]["maximize"] = maximize
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def the_rate_is_a_tensor(w):
    model = network()
    lr = t.tensor(0.05)
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step = stepping(w, model, optimizer, lr=lr)
    optimizer.param_groups[0]["lr"] = lr

    for value in w.rounds(0.002, 0.001):
        lr.fill_(value)
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def optimizers_take_turns(w):
    model = network()
    a, b = t.optim.SGD(model.parameters(), lr=0.002), t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)
    optimizer = a
    w.see(model=list(model.parameters()), a=lambda: held(a), b=lambda: held(b))

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for optimizer in w.rounds(a, b):
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def two_players_train_against_each_other(w):
    g, d = network(), t.nn.Linear(1, 1)
    with t.no_grad():
        d.weight.fill_(0.5), d.bias.fill_(0.1)
    og, od = t.optim.SGD(g.parameters(), lr=0.002), t.optim.SGD(d.parameters(), lr=0.002)
    w.see(g=list(g.parameters()), d=list(d.parameters()))
    rounds = 1

    @w.trace
    def step(x):
        for _ in range(rounds):
            od.zero_grad()
            (d(g(x).detach()).mean() + d(-x[:, :1]).pow(2).mean()).backward()
            od.step()
        og.zero_grad()
        loss = -d(g(x)).mean()
        loss.backward()
        og.step()
        return loss.detach()

    for rounds in w.rounds(1, 2):
        w.call(step, w.m)


@program("optimizers", chained=True)
def an_optimizer_of_ones_own(w):
    class Sign(t.optim.Optimizer):
        def __init__(self, params, lr):
            super().__init__(params, {"lr": lr})

        @t.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        state = self.state[p]
                        state["step"] = state.get("step", 0) + 1
                        p.sub_(group["lr"] / state["step"] * p.grad.tanh())

    model = network()
    optimizer = Sign(model.parameters(), lr=0.05)
    step = stepping(w, model, optimizer)
    for lr in w.rounds(0.05, 0.02):
        optimizer.param_groups[0]["lr"] = lr
        w.call(step, w.m, goal(6.0, 8.0))


# ---- schedules ---------------------------------------------------------------------------------------------
@program("schedules", chained=True)
def a_schedule_steps_outside(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    schedule = t.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)
    step = stepping(w, model, optimizer, lr=lambda: optimizer.param_groups[0]["lr"])

    def whole(x, y):
        loss = step(x, y)
        schedule.step()
        return loss

    for y in w.rounds(goal(6.0, 8.0), goal(7.0, 5.0)):
        w.call(whole, w.m, y)


@program("schedules", chained=True)
def a_schedule_steps_inside(w):
    model = network()
    optimizer = t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)
    schedule = t.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    w.see(
        model=list(model.parameters()), lr=lambda: schedule.get_last_lr(), epoch=lambda: schedule.last_epoch
    )

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.detach(), schedule.get_last_lr()[0]

    for y in w.rounds(goal(6.0, 8.0), goal(7.0, 5.0)):
        w.call(step, w.m, y)


@program("schedules", chained=True)
def a_function_is_the_schedule(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    warmup = 3
    schedule = t.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / warmup))
    step = stepping(w, model, optimizer, lr=lambda: schedule.get_last_lr())

    def whole(x, y):
        loss = step(x, y)
        schedule.step()
        return loss

    for warmup in w.rounds(3, 20):
        w.call(whole, w.m, goal(6.0, 8.0))


@program("schedules", chained=True)
def a_plateau_lowers_the_rate(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    schedule = t.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.2)
    step = stepping(w, model, optimizer, lr=lambda: optimizer.param_groups[0]["lr"])

    def whole(x, y):
        loss = step(x, y)
        schedule.step(loss.item())
        return loss

    for y in w.rounds(goal(6.0, 8.0), goal(7.0, 5.0)):
        w.call(whole, w.m, y)


@program("schedules", chained=True)
def a_schedule_is_replaced(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002, momentum=0.5)
    make = {
        "one": lambda: t.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
        "two": lambda: t.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, 4),
    }
    schedule = None
    step = stepping(w, model, optimizer)

    def whole(x, y):
        loss = step(x, y)
        schedule.step()
        return loss, schedule.get_last_lr()

    for name in w.rounds("one", "two"):
        optimizer.param_groups[0]["lr"] = optimizer.param_groups[0]["initial_lr"] = 0.002
        schedule = make[name]()
        w.call(whole, w.m, goal(6.0, 8.0))


@program("schedules", chained=True)
def momentum_follows_one_cycle(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.0003, momentum=0.9)
    schedule = t.optim.lr_scheduler.OneCycleLR(optimizer, 0.001, total_steps=40)
    step = stepping(w, model, optimizer, momentum=lambda: optimizer.param_groups[0]["momentum"])

    def whole(x, y):
        loss = step(x, y)
        schedule.step()
        return loss

    for y in w.rounds(goal(6.0, 8.0), goal(7.0, 5.0)):
        w.call(whole, w.m, y)


# ---- groups and parameters ---------------------------------------------------------------------------------
@program("parameter groups", chained=True)
def groups_have_rates_of_their_own(w):
    model = network()
    optimizer = t.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.0}, {"params": model[2].parameters()}], lr=0.002
    )
    step = stepping(w, model, optimizer)

    for i in w.rounds(0, 1):
        optimizer.param_groups[i]["lr"] = 0.002
        optimizer.param_groups[1 - i]["lr"] = 0.0
        w.call(step, w.m, goal(6.0, 8.0))


@program("parameter groups", chained=True)
def a_group_is_added(w):
    model = network()
    optimizer = t.optim.Adam(model[2].parameters(), lr=0.01, eps=EPS)
    step = stepping(w, model, optimizer)

    def add():
        optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.02})

    def drop():
        del optimizer.param_groups[1:]
        for p in model[0].parameters():
            optimizer.state.pop(p, None)

    for change in w.rounds(add, drop):
        change()
        model.zero_grad()
        w.call(step, w.m, goal(6.0, 8.0))


@program("parameter groups", chained=True)
def layers_are_thawed_midway(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.0003, momentum=0.9)
    step = stepping(w, model, optimizer)

    for frozen in w.rounds(True, False):
        model[0].requires_grad_(not frozen)
        w.call(step, w.m, goal(6.0, 8.0))


@program("parameter groups", chained=True)
def a_layer_is_replaced_but_not_in_the_optimizer(w):
    model = network()
    layers = [model[2], network()[2]]
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step = stepping(w, model, optimizer, layers=[list(layer.parameters()) for layer in layers])

    for layer in w.rounds(*layers):
        model[2] = layer
        layer.zero_grad()
        w.call(step, w.m, goal(6.0, 8.0))


@program("parameter groups", chained=True)
def parameters_are_picked_by_name(w):
    model = network()
    word = "weight"
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        model.zero_grad()
        F.mse_loss(model(x), y).backward()
        with t.no_grad():
            for name, p in model.named_parameters():
                if word in name:
                    p -= 0.002 * p.grad

    for word in w.rounds("weight", "bias", "2."):
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def a_hook_of_the_optimizer_comes_and_goes(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    step, seen = stepping(w, model, optimizer), []
    w.see(seen=seen)

    def hook(optimizer, args, kwargs):
        seen.append(len(optimizer.param_groups))
        del seen[:-2]
        for p in model.parameters():
            p.grad.mul_(0.5)

    for hooked in w.rounds(False, True):
        handle = optimizer.register_step_pre_hook(hook) if hooked else None
        w.call(step, w.m, goal(6.0, 8.0))
        if handle is not None:
            handle.remove()


@program("optimizers", chained=True)
def an_optimizer_is_made_inside(w):
    model = network()
    lr = 0.002
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        optimizer = t.optim.SGD(model.parameters(), lr=lr)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for lr in w.rounds(0.002, 0.001):
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers", chained=True)
def an_optimizer_is_exchanged_for_its_copy(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.0003, momentum=0.9)
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    for momentum in w.rounds(0.9, 0.1):
        state = optimizer.state_dict()
        optimizer = t.optim.SGD(model.parameters(), lr=0.0003, momentum=momentum)
        optimizer.load_state_dict(state)
        w.call(step, w.m, goal(6.0, 8.0))


@program("optimizers")
def states_are_dropped_while_one_parameter_has_no_gradient(w):
    p, q = t.tensor(1.0, requires_grad=True), t.tensor(2.0, requires_grad=True)
    opt = t.optim.SGD([p, q], lr=0.5, momentum=0.5)
    both = [True]

    @w.trace
    def f(x):
        (p * 2 + q if both[0] else p * 2).backward()
        opt.step()
        opt.zero_grad()
        return p * 1

    w.see(opt=opt, p=p, q=q)
    for both[0], drop in w.rounds((True, False), (True, True), (False, True), (False, False)):
        w.call(f, w.x)
        if drop:
            opt.state.clear()
            q.grad = None
            w.call(f, w.x)
