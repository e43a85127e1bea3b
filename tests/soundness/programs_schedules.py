"""Programs that train on a schedule: rates and groups edited in a step, averages of weights."""

from __future__ import annotations

import copy
import math

from battery import lib as t
from battery import program
from networks import EPS, goal, held, network

F = t.nn.functional


def scheduled(w, first=None, last=None, optimizer=None, reset=None, **see):
    """A traced training step with lines at its beginning and its end, which get (optimizer, model, state)."""
    model = network()
    optimizer = (optimizer or (lambda m: t.optim.SGD(m.parameters(), lr=0.002, momentum=0.5)))(model)
    state = {"step": 0}
    w.see(parameters=list(model.parameters()), groups=lambda: _numbers_of(optimizer), state=state,
          optimizer=lambda: held(optimizer), **see)  # fmt: skip

    @w.trace
    def step(x, y):
        state["step"] += 1
        if first is not None:
            first(optimizer, model, state)
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        if last is not None:
            last(optimizer, model, state)
        return loss.detach()

    for values in w.rounds((6.0, 8.0), (9.0, 5.0)):
        if values[0] == 6.0:
            state["step"] = 0
            if reset is not None:
                reset(optimizer, model, state)
        w.call(step, w.m, goal(*values))


def _numbers_of(optimizer):
    return [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups]


def adam(model):
    return t.optim.Adam(model.parameters(), lr=0.01, eps=EPS)


def two_groups(model):
    return t.optim.SGD(
        [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.001}], lr=0.002
    )


# ---- rates -------------------------------------------------------------------------------------------------
@program("schedules in steps", chained=True)
def the_rate_warms_up_by_a_minimum(w):
    def first(optimizer, model, state):
        for group in optimizer.param_groups:
            group["lr"] = 0.002 * min(1.0, state["step"] / 3)

    scheduled(w, first)


@program("schedules in steps", chained=True)
def the_rate_follows_a_cosine(w):
    def first(optimizer, model, state):
        optimizer.param_groups[0]["lr"] = 0.001 * (1 + math.cos(math.pi * min(state["step"], 8) / 8))

    scheduled(w, first)


@program("schedules in steps", chained=True)
def the_rate_follows_a_root(w):
    def first(optimizer, model, state):
        n = state["step"]
        optimizer.param_groups[0]["lr"] = 0.004 * min(n**-0.5, n * 4**-1.5)

    scheduled(w, first, optimizer=adam)


@program("schedules in steps", chained=True)
def the_rate_halves_now_and_then(w):
    def last(optimizer, model, state):
        if state["step"] % 3 == 0:
            for group in optimizer.param_groups:
                group["lr"] /= 2

    def reset(optimizer, model, state):
        optimizer.param_groups[0]["lr"] = 0.002

    scheduled(w, last=last, reset=reset)


@program("schedules in steps", chained=True)
def momentum_warms_up(w):
    def first(optimizer, model, state):
        for group in optimizer.param_groups:
            group["momentum"] = min(0.8, 0.4 + 0.1 * state["step"])

    scheduled(w, first)


@program("schedules in steps", chained=True)
def weight_decay_rises(w):
    def first(optimizer, model, state):
        optimizer.param_groups[0]["weight_decay"] = 0.5 * state["step"]

    def reset(optimizer, model, state):
        optimizer.param_groups[0]["weight_decay"] = 0.0

    scheduled(w, first, reset=reset)


@program("schedules in steps", chained=True)
def betas_of_adam_move(w):
    def first(optimizer, model, state):
        optimizer.param_groups[0]["betas"] = (min(0.9, 0.5 + 0.05 * state["step"]), 0.99)

    scheduled(w, first, optimizer=adam)


@program("schedules in steps", chained=True)
def groups_have_schedules_of_their_own(w):
    def first(optimizer, model, state):
        for k, group in enumerate(optimizer.param_groups, 1):
            group["lr"] = 0.002 / (k + state["step"])

    scheduled(w, first, optimizer=two_groups)


@program("schedules in steps", chained=True)
def a_group_by_its_name(w):
    def named(model):
        return t.optim.SGD(
            [
                {"params": model[0].parameters(), "name": "body"},
                {"params": model[2].parameters(), "name": "head"},
            ],
            lr=0.002,
        )

    def first(optimizer, model, state):
        for group in optimizer.param_groups:
            group["lr"] = 0.002 if group["name"] == "head" or state["step"] > 4 else 0.0

    scheduled(w, first, optimizer=named)


@program("schedules in steps", chained=True)
def the_first_rate_is_kept_in_the_group(w):
    def first(optimizer, model, state):
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
            group["lr"] = group["initial_lr"] * 0.9 ** state["step"]

    scheduled(w, first)


def _stepped(w, make, optimizer=None, reset_at=None):
    """A scheduler of the library's, made at the beginning of each round and stepped in the step."""
    made = {}

    def last(optimizer, model, state):
        made["scheduler"].step()
        state["last"] = made["scheduler"].get_last_lr()

    def reset(optimizer, model, state):
        for group in optimizer.param_groups:
            group["lr"] = 0.002
            group.pop("initial_lr", None)
        made["scheduler"] = make(optimizer)

    scheduled(w, last=last, reset=reset, optimizer=optimizer)


@program("schedules in steps", chained=True)
def steps_of_the_library_inside(w):
    _stepped(w, lambda o: t.optim.lr_scheduler.StepLR(o, 2, gamma=0.5))


@program("schedules in steps", chained=True)
def a_cosine_of_the_library_inside(w):
    _stepped(w, lambda o: t.optim.lr_scheduler.CosineAnnealingLR(o, T_max=8))


@program("schedules in steps", chained=True)
def a_lambda_of_the_library_inside(w):
    _stepped(w, lambda o: t.optim.lr_scheduler.LambdaLR(o, lambda n: 1 / (1 + n)), optimizer=two_groups)


@program("schedules in steps", chained=True)
def a_warm_up_of_the_library_inside(w):
    _stepped(w, lambda o: t.optim.lr_scheduler.LinearLR(o, start_factor=0.25, total_iters=4))


@program("schedules in steps", chained=True)
def an_exponential_of_the_library_inside(w):
    _stepped(w, lambda o: t.optim.lr_scheduler.ExponentialLR(o, gamma=0.9), optimizer=adam)


@program("schedules in steps", chained=True)
def two_schedules_of_the_library_inside(w):
    def make(o):
        parts = [
            t.optim.lr_scheduler.LinearLR(o, start_factor=0.5, total_iters=2),
            t.optim.lr_scheduler.ExponentialLR(o, gamma=0.9),
        ]
        return t.optim.lr_scheduler.SequentialLR(o, parts, milestones=[3])

    _stepped(w, make)


# ---- averages ----------------------------------------------------------------------------------------------
def averaged(w, follow, make=lambda model: copy.deepcopy(model).requires_grad_(False), **see):
    """A step with an average of the weights, which `follow` brings on."""
    made = {}

    def last(optimizer, model, state):
        follow(made["average"], model, state["step"])

    def reset(optimizer, model, state):
        made["average"] = make(model)

    def shown():
        average = made.get("average")
        return list(average.parameters()) if hasattr(average, "parameters") else average

    scheduled(w, last=last, reset=reset, average=shown, **see)


@program("averages", chained=True)
def an_average_with_a_decay_that_warms_up(w):
    @t.no_grad()
    def follow(average, model, step):
        decay = min(0.9, (1 + step) / (10 + step))
        for a, p in zip(average.parameters(), model.parameters()):
            a.lerp_(p, 1 - decay)

    averaged(w, follow)


@program("averages", chained=True)
def an_average_through_data(w):
    def follow(average, model, step):
        for a, p in zip(average.parameters(), model.parameters()):
            a.data.mul_(0.9).add_(p.data, alpha=0.1)

    averaged(w, follow)


@program("averages", chained=True)
def an_average_of_tensors_by_name(w):
    def follow(average, model, step):
        for name, p in model.named_parameters():
            average[name] = 0.9 * average[name] + 0.1 * p.detach()

    averaged(w, follow, lambda model: {n: p.detach().clone() for n, p in model.named_parameters()})


@program("averages", chained=True)
def an_average_of_the_state(w):
    @t.no_grad()
    def follow(average, model, step):
        for name, value in model.state_dict().items():
            average[name].copy_(average[name] * 0.8 + value * 0.2)

    averaged(w, follow, lambda model: {n: v.clone() for n, v in model.state_dict().items()})


@program("averages", chained=True)
def an_average_in_every_third_step(w):
    @t.no_grad()
    def follow(average, model, step):
        if step % 3 == 0:
            for a, p in zip(average.parameters(), model.parameters()):
                a.copy_(p)

    averaged(w, follow)


@program("averages", chained=True)
def a_plain_average_of_all_steps(w):
    @t.no_grad()
    def follow(average, model, step):
        for a, p in zip(average.parameters(), model.parameters()):
            a.add_((p - a) / (step + 1))

    averaged(w, follow)


@program("averages", chained=True)
def an_average_is_swapped_in_and_out(w):
    @t.no_grad()
    def follow(average, model, step):
        kept = [p.detach().clone() for p in model.parameters()]
        for a, p in zip(average, model.parameters()):
            a.lerp_(p, 0.1)
            p.copy_(a)
        average[0].add_(model(t.ones(1, 3)).sum() * 0.001)
        for k, p in zip(kept, model.parameters()):
            p.copy_(k)

    averaged(w, follow, lambda model: [p.detach().clone() for p in model.parameters()])


@program("averages", chained=True)
def a_class_keeps_the_average(w):
    class Average:
        def __init__(self, model):
            self.model, self.updates = copy.deepcopy(model).requires_grad_(False), 0

        def update(self, model):
            self.updates += 1
            decay = 0.9 * (1 - math.exp(-self.updates / 4))
            with t.no_grad():
                for a, p in zip(self.model.parameters(), model.parameters()):
                    a.mul_(decay).add_(p, alpha=1 - decay)

    averaged(w, lambda average, model, step: average.update(model), Average)
