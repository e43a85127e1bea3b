"""Programs that train: what happens to gradients before the step, and around it."""

import copy
import io
import math

from battery import lib as t
from battery import program
from networks import EPS, goal, network, stepping

F = t.nn.functional


# ---- gradients between backward and step -------------------------------------------------------------------
@program("gradients in training", chained=True)
def gradients_are_set_to_none_or_zero(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002, weight_decay=5.0)
    to_none = True
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=to_none)
        return loss.detach()

    for to_none in w.rounds(True, False):
        w.call(step, w.m, goal(6.0, 8.0))


@program("gradients in training", chained=True)
def gradients_are_left_by_someone_else(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    for present in w.rounds(False, True):
        for p in model.parameters():
            p.grad = t.ones(p.shape) * 0.1 if present else None
        w.call(step, w.m, goal(6.0, 8.0))


@program("gradients in training", chained=True)
def gradients_are_accumulated(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    every, count = 2, 0
    w.see(parameters=list(model.parameters()), count=lambda: count)

    @w.trace
    def step(x, y):
        nonlocal count
        loss = F.mse_loss(model(x), y) / every
        loss.backward()
        count += 1
        if count % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss.detach()

    for every in w.rounds(2, 3, 1):
        w.call(step, w.m, goal(6.0, 8.0))


@program("gradients in training", chained=True)
def gradients_are_clipped_by_norm(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    limit = 1.0
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        norm = t.nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
        return norm

    for limit in w.rounds(10.0, 1.0, 1000.0):
        w.call(step, w.m, goal(6.0, 8.0))


@program("gradients in training", chained=True)
def gradients_are_clipped_by_value(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    limit = 1.0
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        t.nn.utils.clip_grad_value_(model.parameters(), limit)
        optimizer.step()

    for limit in w.rounds(5.0, 2.0):
        w.call(step, w.m, goal(6.0, 8.0))


@program("gradients in training", chained=True)
def a_step_with_nan_is_skipped(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    skipped = 0
    w.see(parameters=list(model.parameters()), skipped=lambda: skipped)

    @w.trace
    def step(x, y):
        nonlocal skipped
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        if not math.isfinite(loss.item()):
            skipped += 1
            return None
        loss.backward()
        optimizer.step()
        return loss.detach()

    for value in w.rounds(6.0, float("nan"), float("inf")):
        w.call(step, w.m, goal(value, 5.0))


@program("gradients in training", chained=True)
def the_loss_is_scaled(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    scale, good = 8.0, 0
    w.see(parameters=list(model.parameters()), scale=lambda: scale)

    @w.trace
    def step(x, y):
        nonlocal scale, good
        optimizer.zero_grad()
        (F.mse_loss(model(x), y) * scale).backward()
        grads = [p.grad for p in model.parameters()]
        if all(bool(t.isfinite(g).all()) for g in grads):
            for g in grads:
                g.div_(scale)
            optimizer.step()
            good += 1
            if good % 4 == 0:
                scale *= 2
        else:
            scale /= 2

    for value in w.rounds(6.0, float("inf")):
        w.call(step, w.m, goal(value, 5.0))


@program("gradients in training", chained=True)
def noise_is_added_to_gradients(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    level = 0.1
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        for p in model.parameters():
            p.grad += level * t.randn_like(p)
        optimizer.step()

    for level in w.rounds(0.1, 0.0):
        w.call(step, w.m, goal(6.0, 8.0))


@program("gradients in training", chained=True)
def a_closure_is_called_by_the_optimizer(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    calls, factor = [], 1.0
    w.see(parameters=list(model.parameters()), calls=calls)

    @w.trace
    def step(x, y):
        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y) * factor
            loss.backward()
            calls.append(factor)
            del calls[:-3]
            return loss

        return optimizer.step(closure).detach()

    for factor in w.rounds(1.0, 0.5):
        w.call(step, w.m, goal(6.0, 8.0))


# ---- around the step ---------------------------------------------------------------------------------------
@program("training loops", chained=True)
def an_average_of_the_weights_is_kept(w):
    model = network()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    decay = 0.9
    w.see(parameters=list(model.parameters()), average=list(average.parameters()))

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        with t.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.mul_(decay).add_(p, alpha=1 - decay)
        return average(x)

    for decay in w.rounds(0.9, 0.5):
        w.call(step, w.m, goal(6.0, 8.0))


@program("training loops", chained=True)
def the_optimizers_state_is_loaded(w):
    model = network()
    optimizer = t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)
    step = stepping(w, model, optimizer)
    states = []

    def keep():
        states[:] = [copy.deepcopy(optimizer.state_dict())]

    for change in w.rounds(keep, lambda: optimizer.load_state_dict(states[0])):
        change()
        w.call(step, w.m, goal(6.0, 8.0))


@program("training loops", chained=True)
def the_optimizers_state_is_dropped(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.0003, momentum=0.9)
    step = stepping(w, model, optimizer)

    for clear in w.rounds(False, True):
        if clear:
            optimizer.state.clear()
        w.call(step, w.m, goal(6.0, 8.0))


@program("training loops", chained=True)
def the_state_of_one_parameter_is_written(w):
    model = network()
    optimizer = t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)
    step = stepping(w, model, optimizer)
    w.call(step, w.m, goal(6.0, 8.0))

    for value in w.rounds(0.0, 0.5):
        optimizer.state[model[0].weight]["exp_avg"].fill_(value)
        optimizer.state[model[0].bias]["exp_avg"] = t.full((4,), value)
        w.call(step, w.m, goal(6.0, 8.0))


@program("training loops", chained=True)
def a_checkpoint_is_written_and_read(w):
    model = network()
    optimizer = t.optim.AdamW(model.parameters(), lr=0.01, eps=EPS)
    step = stepping(w, model, optimizer)
    file = io.BytesIO()

    def write():
        file.seek(0)
        t.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)

    def read():
        file.seek(0)
        saved = t.load(file)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])

    for change in w.rounds(write, read):
        change()
        w.call(step, w.m, goal(6.0, 8.0))


@program("training loops", chained=True)
def training_stops_early(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    best, waited = math.inf, 0
    w.see(parameters=list(model.parameters()), waited=lambda: waited)

    @w.trace
    def step(x, y):
        nonlocal best, waited
        loss = F.mse_loss(model(x), y)
        if loss.item() < best * 0.9:
            best, waited = loss.item(), 0
        else:
            waited += 1
            if waited > 2:
                raise StopIteration("no better")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    for y in w.rounds(goal(6.0, 8.0), goal(9.0, 5.0)):
        w.call(step, w.m, y)
        best, waited = math.inf, 0


@program("training loops", chained=True)
def train_and_evaluation_take_turns(w):
    model = t.nn.Sequential(t.nn.BatchNorm1d(3, momentum=0.5), *network())
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    w.see(parameters=list(model.parameters()), buffers=list(model.buffers()))

    @w.trace
    def run(x, y):
        with t.set_grad_enabled(model.training):
            loss = F.mse_loss(model(x), y)
        if model.training:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach()

    for training in w.rounds(True, False):
        model.train(training)
        w.call(run, w.m, goal(6.0, 8.0))


@program("training loops", chained=True)
def the_last_batch_is_smaller(w):
    model = network()
    optimizer = t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)
    step = stepping(w, model, optimizer)

    for x, y in w.rounds((w.m, goal(6.0, 8.0)), (w.m[:1], goal(6.0)), (w.m + 1, goal(7.0, 5.0))):
        w.call(step, x, y)


@program("training loops", chained=True)
def the_loss_is_exchanged(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    criterion = F.mse_loss
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for criterion in w.rounds(
        F.mse_loss, t.nn.L1Loss(), t.nn.SmoothL1Loss(beta=0.5), lambda a, b: (a - b).abs().pow(1.5).mean()
    ):
        w.call(step, w.m, goal(6.0, 8.0))


@program("training loops", chained=True)
def the_weights_of_a_loss_change(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    alpha = {"fit": 1.0, "decay": 0.0}
    w.see(parameters=list(model.parameters()))

    @w.trace
    def step(x, y):
        optimizer.zero_grad()
        parts = {"fit": F.mse_loss(model(x), y), "decay": sum(p.pow(2).sum() for p in model.parameters())}
        loss = sum(alpha[k] * v for k, v in parts.items() if alpha[k])
        loss.backward()
        optimizer.step()
        return {k: v.item() for k, v in parts.items()}

    for decay in w.rounds(0.0, 0.01, 0.1):
        alpha["decay"] = decay
        w.call(step, w.m, goal(6.0, 8.0))


@program("training loops", chained=True)
def a_whole_epoch_is_traced(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    batches = [(w.m, goal(6.0, 8.0))]
    w.see(parameters=list(model.parameters()))

    @w.trace
    def epoch():
        total = 0.0
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        return total / len(batches)

    for change in w.rounds(lambda: batches.append((w.m + 1, goal(9.0, 7.0))), lambda: batches.pop(0)):
        change()
        w.call(epoch)


@program("training loops", chained=True)
def a_teacher_is_exchanged(w):
    student, teachers = network(), [network(), t.nn.Linear(3, 1)]
    with t.no_grad():
        for p in teachers[1].parameters():
            p.fill_(0.2)
    teacher = teachers[0]
    optimizer = t.optim.SGD(student.parameters(), lr=0.002)
    w.see(student=list(student.parameters()), teachers=[list(m.parameters()) for m in teachers])

    @w.trace
    def step(x):
        with t.no_grad():
            target = teacher(x) + 8
        optimizer.zero_grad()
        F.mse_loss(student(x), target).backward()
        optimizer.step()

    for teacher in w.rounds(*teachers):
        w.call(step, w.m)


@program("training loops", chained=True)
def an_inner_loop_adapts_a_copy(w):
    model = network()
    optimizer = t.optim.SGD(model.parameters(), lr=0.002)
    steps = 1
    w.see(parameters=list(model.parameters()))

    @w.trace
    def outer(x, y):
        weights = list(model.parameters())

        def run(x, weights):
            return t.tanh(x @ weights[0].t() + weights[1]) @ weights[2].t() + weights[3]

        fast = weights
        for _ in range(steps):
            grads = t.autograd.grad(F.mse_loss(run(x, fast), y), fast, create_graph=True)
            fast = [p - 0.001 * g for p, g in zip(fast, grads)]
        optimizer.zero_grad()
        loss = F.mse_loss(run(x, fast), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for steps in w.rounds(1, 2, 0):
        w.call(outer, w.m, goal(6.0, 8.0))
