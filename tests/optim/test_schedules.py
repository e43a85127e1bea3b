"""Check the schedules: their closed forms, how they compose, save and load, and what they refuse."""

import json
import math

import pytest

import lamina
from lamina import optim
from lamina.optim import lr_scheduler

EPOCHS = 13


def optimizer(*rates, **kwargs):
    groups = [{"params": [lamina.zeros(1, requires_grad=True)], "lr": rate} for rate in rates or (0.5,)]
    made = optim.SGD(groups, momentum=0.9, **kwargs)
    made.step()  # or schedules warn that they are ahead
    return made


def run(schedule, epochs=EPOCHS):
    rates = [schedule.get_last_lr()]
    for _ in range(epochs):
        schedule.step()
        rates.append(schedule.get_last_lr())
    return rates


def period(epoch):
    """Where the period that holds `epoch` starts, and how long it is."""
    return next((start, length) for start, length in ((6, 8), (2, 4), (0, 2)) if epoch >= start)


FORMS = {
    "LambdaLR": ({"lr_lambda": lambda e: 1 / (1 + e)}, lambda e: 1 / (1 + e)),
    "StepLR": ({"step_size": 4, "gamma": 0.5}, lambda e: 0.5 ** (e // 4)),
    "MultiStepLR": ({"milestones": [2, 5, 5], "gamma": 0.5}, lambda e: 0.5 ** ((e >= 2) + 2 * (e >= 5))),
    "ConstantLR": ({"factor": 0.25, "total_iters": 3}, lambda e: 0.25 if e < 3 else 1.0),
    "LinearLR": ({"start_factor": 0.5, "total_iters": 8}, lambda e: 0.5 + 0.5 * (min(e, 8) / 8)),
    "ExponentialLR": ({"gamma": 0.75}, lambda e: 0.75**e),
    "PolynomialLR": ({"total_iters": 8, "power": 2.0}, lambda e: (1 - min(e, 8) / 8) ** 2.0),
    "CosineAnnealingLR": ({"T_max": 6}, lambda e: (1 + math.cos(math.pi * e / 6)) / 2),
    "CosineAnnealingWarmRestarts": (
        {"T_0": 2, "T_mult": 2},
        lambda e: (1 + math.cos(math.pi * (e - period(e)[0]) / period(e)[1])) / 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_rates_are_the_closed_form_exactly(name):
    kwargs, factor = FORMS[name]
    schedule = getattr(lr_scheduler, name)(optimizer(0.5, 0.25), **kwargs)
    assert run(schedule) == [[0.5 * factor(e), 0.25 * factor(e)] for e in range(EPOCHS + 1)]


@pytest.mark.parametrize("name", FORMS)
def test_a_schedule_continued_from_a_saved_state_is_the_uninterrupted_one(name):
    kwargs, _ = FORMS[name]
    make = getattr(lr_scheduler, name)
    whole = run(make(optimizer(), **kwargs))
    first_optimizer, second_optimizer = optimizer(), optimizer()
    first = make(first_optimizer, **kwargs)
    assert run(first, 5) == whole[:6]
    second = make(second_optimizer, **kwargs)
    second.load_state_dict(first.state_dict())
    second_optimizer.load_state_dict(first_optimizer.state_dict())
    assert run(second, EPOCHS - 5) == whole[5:]
    # or begun at an epoch, from the optimizer alone
    third_optimizer = optimizer()
    third_optimizer.load_state_dict(first_optimizer.state_dict())
    assert run(make(third_optimizer, **kwargs, last_epoch=5), EPOCHS - 6) == whole[6:]


@pytest.mark.parametrize(
    "name", ["LinearLR", "ExponentialLR", "PolynomialLR", "CosineAnnealingLR", "MultiplicativeLR"]
)
def test_a_schedule_resumed_before_an_epoch_does_not_take_it_twice(name):
    kwargs = FORMS[name][0] if name in FORMS else {"lr_lambda": lambda e: 0.75}
    make, first = getattr(lr_scheduler, name), optimizer()
    whole = run(make(first, **kwargs), EPOCHS)
    first, second = optimizer(), optimizer()
    run(make(first, **kwargs), 5)
    second.load_state_dict(first.state_dict())  # epochs 0 to 4 are over, and the rate is that of epoch 5
    assert run(make(second, **kwargs, last_epoch=4), EPOCHS - 5) == whole[5:]


def test_states_can_be_written_as_text():
    schedule = lr_scheduler.CosineAnnealingLR(optimizer(), 5, eta_min=0.125)
    run(schedule, 3)
    state = json.loads(json.dumps(schedule.state_dict()))
    assert state == {
        "T_max": 5, "eta_min": 0.125, "base_lrs": [0.5], "last_epoch": 3, "_last_lr": schedule.get_last_lr(),
        "_step_count": 4, "_is_initial": False, "_get_lr_called_within_step": False,
    }  # fmt: skip


def test_schedules_compose_by_proportion():
    held = optimizer(0.5)
    halved, stepped = lr_scheduler.ExponentialLR(held, 0.5), lr_scheduler.StepLR(held, 2, gamma=0.25)
    for e in range(1, 6):
        halved.step()
        stepped.step()
        assert stepped.get_last_lr() == [0.5 * 0.5**e * 0.25 ** (e // 2)]  # powers of two: no rounding


def test_a_rate_set_by_hand_is_kept_in_proportion():
    held = optimizer(0.5)
    schedule = lr_scheduler.ExponentialLR(held, 0.5)
    schedule.step()
    held.param_groups[0]["lr"] = 8.0
    schedule.step()
    assert schedule.get_last_lr() == [4.0]


def test_a_rate_of_nothing_can_rise_again():
    held = optimizer(0.5)
    schedule = lr_scheduler.CosineAnnealingLR(held, 2, eta_min=0.25)
    assert [r for (r,) in run(schedule, 4)] == [0.5, 0.375, 0.25, pytest.approx(0.375, rel=1e-15), 0.5]


def test_a_subclass_says_its_rates():
    class Warm(lr_scheduler.LRScheduler):
        def get_lr(self):
            return [base * min(1.0, (self.last_epoch + 1) / 4) for base in self.base_lrs]

    assert [r for (r,) in run(Warm(optimizer()), 5)] == [0.125, 0.25, 0.375, 0.5, 0.5, 0.5]
    with pytest.raises(TypeError, match="LRScheduler does not define get_lr"):
        lr_scheduler.LRScheduler(optimizer())


def test_one_cycle_ends_where_it_says():
    held = optimizer()
    schedule = lr_scheduler.OneCycleLR(
        held, 1.0, total_steps=11, pct_start=0.5, div_factor=4.0, final_div_factor=8.0
    )
    assert held.param_groups[0]["momentum"] == 0.95
    rates = [r for (r,) in run(schedule, 10)]
    assert rates[0] == 0.25 and max(rates) == pytest.approx(1.0, abs=0.02) and rates[-1] == 0.25 / 8
    assert held.param_groups[0]["momentum"] == 0.95
    schedule.step()  # one more than there are, as loops step after their last batch
    with pytest.raises(ValueError, match="step 12 of a cycle of 11"):
        schedule.step()


def test_sequence_and_its_state():
    def make():
        held = optimizer()
        warm = lr_scheduler.ConstantLR(held, 0.25, total_iters=10)
        return lr_scheduler.SequentialLR(held, [warm, lr_scheduler.ExponentialLR(held, 0.5)], [2])

    whole = run(make(), 5)
    assert whole == [[0.125], [0.125], [0.5], [0.25], [0.125], [0.0625]]
    first, second = make(), make()
    run(first, 3)
    second.load_state_dict(first.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.step()
    assert second.get_last_lr() == whole[4]


def test_plateau_waits_cools_down_and_stops_at_the_least():
    held = optimizer(0.5)
    schedule = lr_scheduler.ReduceLROnPlateau(held, factor=0.5, patience=1, cooldown=1, min_lr=0.125)
    rates = []
    for metric in [3.0, 2.0, lamina.tensor(2.0), 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]:
        schedule.step(metric)
        rates.append(schedule.get_last_lr()[0])
    assert rates == [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125, 0.125, 0.125]
    other = lr_scheduler.ReduceLROnPlateau(held)
    other.load_state_dict(schedule.state_dict())
    assert other.state_dict() == schedule.state_dict()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda o: lr_scheduler.StepLR(3, 1), "needs an optimizer, not int"),
        (lambda o: lr_scheduler.StepLR(o, 1, last_epoch=4), "group 0 has no 'initial_lr'.* epoch 4"),
        (lambda o: lr_scheduler.LambdaLR(o, [abs, abs]), "there are 1 parameter groups and 2 values"),
        (lambda o: lr_scheduler.LinearLR(o, start_factor=0.0), "LinearLR: factors must lie in"),
        (lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 0), "T_0 must be a positive int, not 0"),
        (lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2, mode="square"), "no known mode.* 'square'"),
        (lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2, 0), "a cycle has steps up, not 0"),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1), "give total_steps, or both epochs and steps_per_epoch"),
        (
            lambda o: lr_scheduler.OneCycleLR(o, 0.1, 5, anneal_strategy="x"),
            "must be 'cos' or 'linear', not 'x'",
        ),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1, 5, pct_start=2), r"pct_start must lie in \[0, 1\], not 2"),
        (lambda o: lr_scheduler.OneCycleLR(o, 0.1, 0), "the number of steps must be positive, not 0"),
        (
            lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.StepLR(o, 1)], [3]),
            "1 schedules need 0 milestones",
        ),
        (lambda o: lr_scheduler.ChainedScheduler([]), "there must be at least one"),
        (
            lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(x, 1) for x in (o, optimizer())]),
            "schedule 1 is of another optimizer",
        ),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=1.0), "factor must be less than 1, not 1.0"),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o, mode="low"), "mode must be 'min' or 'max', not 'low'"),
        (
            lambda o: lr_scheduler.ReduceLROnPlateau(o, min_lr=[1.0, 2.0]),
            "min_lr must have the same length as .*: there are 1 parameter groups",
        ),
    ],
)
def test_refusals_of_schedules(make, says):
    with pytest.raises((TypeError, ValueError), match=says):
        make(optimizer())


def test_one_cycle_needs_a_momentum_to_cycle():
    held = optim.Adagrad([lamina.zeros(1, requires_grad=True)])
    with pytest.raises(ValueError, match="no momentum to cycle\n  pass cycle_momentum=False"):
        lr_scheduler.OneCycleLR(held, 0.1, 5)
    lr_scheduler.OneCycleLR(held, 0.1, 5, cycle_momentum=False)


def test_cycles_go_up_and_down_and_the_momentum_the_other_way():
    held = optimizer()
    schedule = lr_scheduler.CyclicLR(held, 0.25, 0.75, 2, 4, base_momentum=0.5, max_momentum=1.0)
    assert [r for (r,) in run(schedule, 8)] == [
        pytest.approx(r) for r in (0.25, 0.5, 0.75, 0.625, 0.5, 0.375, 0.25, 0.5, 0.75)
    ]
    assert held.param_groups[0]["momentum"] == pytest.approx(0.5)
    halved = lr_scheduler.CyclicLR(optimizer(), 0.0, 1.0, 1, mode="triangular2", cycle_momentum=False)
    assert [r for (r,) in run(halved, 4)] == [0.0, 1.0, 0.0, 0.5, 0.0]


def test_a_schedule_ahead_of_its_optimizer_warns_once():
    held = optim.SGD([lamina.zeros(1, requires_grad=True)])
    schedule = lr_scheduler.StepLR(held, 2)
    with pytest.warns(UserWarning, match="Detected call of"):
        schedule.step()
    schedule.step()
    with pytest.warns(UserWarning, match="The epoch parameter"):
        schedule.step(7)
    assert schedule.last_epoch == 7


def test_objects_in_place_of_functions_are_saved():
    class Scale:
        power = 1

        def __call__(self, epoch):
            return 0.5 ** (self.power * epoch)

    scale = Scale()
    scale.power = 2
    first = lr_scheduler.LambdaLR(optimizer(), [scale])
    second = lr_scheduler.LambdaLR(optimizer(), [Scale()])
    second.load_state_dict(first.state_dict())
    assert second.lr_lambdas[0].power == 2


@pytest.mark.parametrize(("name", "kwargs"), [
    ("CyclicLR", {"max_lr": 0.2, "base_momentum": 0.8, "max_momentum": 0.9, "step_size_up": 3}),
    ("OneCycleLR", {"max_lr": 0.2, "base_momentum": 0.8, "max_momentum": 0.9, "total_steps": 9}),
    ("SWALR", {"swa_lr": 0.2, "anneal_epochs": 3}),
    ("ReduceLROnPlateau", {"min_lr": 0.2}),
])  # fmt: skip
def test_settings_that_are_tensors_are_read_when_the_schedule_is_made(name, kwargs):
    """Writing the tensors later would have moved the schedule."""
    base = {"base_lr": 0.125} if name == "CyclicLR" else {}
    make = getattr(lr_scheduler, name) if name != "SWALR" else optim.swa_utils.SWALR
    tensors = {
        k: lamina.tensor(v, dtype=lamina.float64) if isinstance(v, float) else v
        for k, v in (base | kwargs).items()
    }
    plain, held = make(optimizer(), **base, **kwargs), make(optimizer(), **tensors)
    for value in tensors.values():
        if isinstance(value, lamina.Tensor):
            value.mul_(0.5)
    for _ in range(5):
        for schedule in (plain, held):
            schedule.step(*[1.0] * (name == "ReduceLROnPlateau"))
    settings = [
        {k: v for k, v in s.optimizer.param_groups[0].items() if k != "params"} for s in (plain, held)
    ]
    assert settings[0] == settings[1]


def test_the_scale_of_cycles_is_the_modes_and_goes_with_the_state():
    schedule = lr_scheduler.CyclicLR(optimizer(), 0.1, 0.2, mode="triangular2")
    other = lr_scheduler.CyclicLR(optimizer(), 0.1, 0.2)
    assert (schedule._scale_fn_ref(3), other._scale_fn_ref(3)) == (0.25, 1.0)
    assert "_scale_fn_ref" not in schedule.state_dict()
    other.load_state_dict(schedule.state_dict())
    assert other.mode == "triangular2" and other._scale_fn_ref(3) == other.scale_fn(3) == 0.25
    assert schedule.scale_fn(2000) == 0.0  # and not gamma ** 2000, as where nothing is left of it


@pytest.mark.parametrize("strategy", ["linear", "cos"])
def test_one_cycles_older_state_holds_the_function_of_its_strategy(strategy):
    schedule = lr_scheduler.OneCycleLR(optimizer(), 0.5, 9, anneal_strategy=strategy)
    state = schedule.state_dict()
    assert state.pop("_anneal_func_type") == strategy
    state["anneal_func"] = getattr(lr_scheduler.OneCycleLR, f"_annealing_{strategy}")
    other = lr_scheduler.OneCycleLR(
        optimizer(), 0.5, 9, anneal_strategy="cos" if strategy == "linear" else "linear"
    )
    other.load_state_dict(state)
    assert run(other, 8) == run(schedule, 8)


def test_the_state_of_milestones_can_be_saved_and_loaded(tmp_path):
    schedule = lr_scheduler.MultiStepLR(optimizer(), [2, 5, 5], gamma=0.5)
    lamina.save(schedule.state_dict(), tmp_path / "state")
    other = lr_scheduler.MultiStepLR(optimizer(), [1])
    other.load_state_dict(lamina.load(tmp_path / "state"))
    assert other.state_dict() == schedule.state_dict() and other.milestones[5] == 2
    assert run(other) == run(schedule)


def test_a_schedule_warns_once_where_the_optimizers_step_was_replaced_after_it():
    held = optimizer()
    before = held.step
    held.step = lambda: before()  # which the schedule sees
    schedule = lr_scheduler.StepLR(held, 1)
    schedule.step()
    held.step = lambda: before()
    with pytest.warns(UserWarning, match=r"`optimizer.step\(\)` has been overridden"):
        schedule.step()
    schedule.step()
