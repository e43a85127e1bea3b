"""Compare every optimizer's trajectory and every schedule's rates with PyTorch's."""

import copy

import numpy as np
import pytest

import lamina
from lamina import optim

torch = pytest.importorskip("torch", reason="compares with torch: pip install 'lamina[peers]'")

STEPS = 20
SHAPES = [(3, 4), (7,), ()]

OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.1, "maximize": True}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("Adam", {}),
    ("Adam", {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "amsgrad": True}),
    ("AdamW", {"lr": 0.1, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.1, "betas": (0.7, 0.8), "weight_decay": 0.1, "maximize": True}),
    ("RMSprop", {}),
    ("RMSprop", {"centered": True}),
    ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1, "alpha": 0.9}),
    ("RMSprop", {"momentum": 0.9, "centered": True, "maximize": True, "eps": 1e-3}),
    ("Adagrad", {}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.5}),
    ("Adagrad", {"maximize": True, "eps": 1e-3}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1, "maximize": True}),
]


def near(mine, theirs, steps=STEPS):
    """Whether they agree to what rounding explains.

    An update is at most 20 roundings, in another order than PyTorch's, of terms that are not greater than
    the larger of 1 and what is compared; over the steps they add up.
    """
    mine, theirs = mine.detach().numpy(), theirs.detach().numpy()
    bound = 20 * steps * np.finfo(theirs.dtype).eps * np.maximum(1, np.abs(theirs))
    return (
        mine.dtype == theirs.dtype
        and mine.shape == theirs.shape
        and bool((np.abs(mine - theirs) <= bound).all())
    )


class Race:
    """The same parameters, gradients and optimizer on both sides.

    Two groups; the last parameter has a gradient only every third step, so that its count falls behind.
    """

    def __init__(self, name, kwargs, dtype):
        self.draw = np.random.default_rng(5)
        self.dtype = dtype
        start = [self.numbers(shape) for shape in SHAPES]
        self.mine = [lamina.tensor(x).requires_grad_() for x in start]
        self.theirs = [torch.tensor(x).requires_grad_() for x in start]
        self.step = 0

        def groups(params):
            return [{"params": params[:2]}, {"params": params[2:], "lr": 0.03, "weight_decay": 0.02}]

        self.optimizer = getattr(optim, name)(groups(self.mine), **kwargs)
        self.peer = getattr(torch.optim, name)(groups(self.theirs), **kwargs)

    def numbers(self, shape):
        return np.asarray(self.draw.normal(size=shape), self.dtype)

    def run(self, steps):
        for _ in range(steps):
            for i, (p, q) in enumerate(zip(self.mine, self.theirs, strict=True)):
                grad = self.numbers(p.shape)
                there = i < 2 or self.step % 3 == 1
                p.grad = lamina.tensor(grad) if there else None
                q.grad = torch.tensor(grad) if there else None
            self.optimizer.step()
            self.peer.step()
            self.step += 1

    def check(self):
        for p, q in zip(self.mine, self.theirs, strict=True):
            assert near(p, q)
            mine, theirs = self.optimizer.state.get(p, {}), self.peer.state.get(q, {})
            assert mine.keys() == theirs.keys()
            for name, value in theirs.items():
                assert near(mine[name], value), name


def crossed(state):
    """A state_dict of PyTorch's with Lamina's tensors."""
    if isinstance(state, torch.Tensor):
        return lamina.tensor(state.numpy().copy())
    if isinstance(state, dict):
        return {k: crossed(v) for k, v in state.items()}
    return [crossed(x) for x in state] if isinstance(state, list) else state


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "kwargs"), OPTIMIZERS)
def test_trajectories_and_states_are_pytorchs(name, kwargs, dtype):
    race = Race(name, kwargs, dtype)
    race.run(STEPS)
    race.check()


@pytest.mark.parametrize(("name", "kwargs"), OPTIMIZERS)
def test_pytorchs_saved_state_is_taken_over(name, kwargs):
    race = Race(name, kwargs, np.float64)
    race.run(STEPS // 2)
    saved = race.peer.state_dict()
    fresh = Race(name, {}, np.float64)
    fresh.optimizer.load_state_dict(crossed(saved))
    for p, q in zip(fresh.mine, race.mine, strict=True):
        p.data.copy_(q.detach())
    race.mine, race.optimizer = fresh.mine, fresh.optimizer
    race.run(STEPS // 2)
    race.check()
    for mine, theirs in zip(race.optimizer.state_dict()["param_groups"], saved["param_groups"], strict=True):
        assert {k: mine[k] for k in theirs} == theirs


@pytest.mark.parametrize("name", sorted({name for name, _ in OPTIMIZERS}))
def test_defaults_and_repr_are_pytorchs(name):
    mine = getattr(optim, name)([lamina.zeros(1, requires_grad=True)])
    theirs = getattr(torch.optim, name)([torch.zeros(1, requires_grad=True)])
    assert {k: mine.defaults[k] for k in theirs.defaults} == theirs.defaults
    hints = {"foreach", "fused", "capturable", "differentiable"}
    lines = [[x for x in repr(o).split("\n") if x.split(":")[0].strip() not in hints] for o in (mine, theirs)]
    assert lines[0] == lines[1]


WARM = ("LinearLR", {"start_factor": 0.1, "total_iters": 4})
SCHEDULES = [
    [("LambdaLR", {"lr_lambda": lambda e: 0.9**e})],
    [("LambdaLR", {"lr_lambda": [lambda e: 0.9**e, lambda e: 1 / (1 + e)]})],
    [("MultiplicativeLR", {"lr_lambda": lambda e: 1 - 1 / (e + 2)})],
    [("StepLR", {"step_size": 7, "gamma": 0.3})],
    [("MultiStepLR", {"milestones": [3, 3, 17], "gamma": 0.5})],
    [("ConstantLR", {"factor": 0.25, "total_iters": 6})],
    [WARM],
    [("LinearLR", {"start_factor": 1.0, "end_factor": 0.1, "total_iters": 11})],
    [("ExponentialLR", {"gamma": 0.8})],
    [("PolynomialLR", {"total_iters": 12, "power": 1.7})],
    [("CosineAnnealingLR", {"T_max": 8})],
    [("CosineAnnealingLR", {"T_max": 30, "eta_min": 0.003})],
    [("CosineAnnealingWarmRestarts", {"T_0": 5})],
    [("CosineAnnealingWarmRestarts", {"T_0": 3, "T_mult": 2, "eta_min": 0.01})],
    [("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 4, "step_size_down": 7})],
    [("CyclicLR", {"base_lr": [0.1, 0.2], "max_lr": [0.5, 0.6], "step_size_up": 3, "mode": "triangular2"})],
    [("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 5, "mode": "exp_range", "gamma": 0.9})],
    [("CyclicLR", {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 5, "scale_fn": lambda x: 0.8 ** (x * 0.1),
                   "scale_mode": "iterations", "cycle_momentum": False})],
    [("OneCycleLR", {"max_lr": 0.5, "total_steps": 30})],
    [("OneCycleLR", {"max_lr": [0.5, 0.2], "epochs": 6, "steps_per_epoch": 5, "anneal_strategy": "linear"})],
    [("OneCycleLR", {"max_lr": 0.5, "total_steps": 30, "three_phase": True, "base_momentum": 0.7})],
    [("OneCycleLR", {"max_lr": 0.5, "total_steps": 30, "pct_start": 0.1, "cycle_momentum": False})],
    # several that step one after another
    [("ExponentialLR", {"gamma": 0.8}), ("MultiStepLR", {"milestones": [5, 9], "gamma": 0.1})],
    [WARM, ("CosineAnnealingLR", {"T_max": 10, "eta_min": 0.002})],
    [("PolynomialLR", {"total_iters": 12}), ("ConstantLR", {"total_iters": 9}), ("StepLR", {"step_size": 4})],
]  # fmt: skip
EPOCHS = 30


def both(make="SGD", **kwargs):
    """An optimizer of two groups on both sides."""

    def groups(zeros):
        return [
            {"params": [zeros(1, requires_grad=True)]},
            {"params": [zeros(2, requires_grad=True)], "lr": 0.02},
        ]

    kwargs = {"lr": 0.3, **({"momentum": 0.9} if make == "SGD" else {}), **kwargs}
    return getattr(optim, make)(groups(lamina.zeros), **kwargs), getattr(torch.optim, make)(
        groups(torch.zeros), **kwargs
    )


def same_rates(mine, theirs):
    # The peer multiplies its last rate by a ratio each epoch (3 roundings), and the cosines are of arguments
    # with 2 roundings, whose slope is below 1; the rates are at most 1.  30 epochs, up to three schedules.
    for a, b in zip(mine.param_groups, theirs.param_groups, strict=True):
        for name in ("lr", "momentum", "betas"):
            if name in b:
                assert np.allclose(
                    a[name], b[name], rtol=0, atol=5 * EPOCHS * 3 * np.finfo(np.float64).eps
                ), name


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")  # the optimizer has no part in this
@pytest.mark.parametrize("make", ["SGD", "AdamW"])
@pytest.mark.parametrize("schedules", SCHEDULES)
def test_rates_are_pytorchs(schedules, make):
    pair = both(make)
    running = [
        [getattr(module.lr_scheduler, name)(optimizer, **kwargs) for name, kwargs in schedules]
        for module, optimizer in zip((optim, torch.optim), pair, strict=True)
    ]
    same_rates(*pair)
    for _ in range(EPOCHS):
        for mine, theirs in zip(*running, strict=True):
            mine.step()
            theirs.step()
        same_rates(*pair)
        assert mine.get_last_lr() == [group["lr"] for group in pair[0].param_groups]
    # Each goes on from what the other has saved.
    pair = both(make)
    again = [
        [getattr(module.lr_scheduler, name)(optimizer, **kwargs) for name, kwargs in schedules]
        for module, optimizer in zip((optim, torch.optim), pair, strict=True)
    ]
    for optimizer, peer in zip(pair, (running[1][0].optimizer, running[0][0].optimizer), strict=True):
        optimizer.load_state_dict(copy.deepcopy(peer.state_dict()))
    for ours, theirs, mine, peer in zip(*running, *again, strict=True):
        assert (
            theirs.state_dict().keys() - {"_schedule_phases", "_anneal_func_type"} <= ours.state_dict().keys()
        )
        mine.load_state_dict(copy.deepcopy(theirs.state_dict()))
        peer.load_state_dict(copy.deepcopy(ours.state_dict()))
    same_rates(*pair)
    if schedules[0][0] != "OneCycleLR":  # which is over
        for mine, peer in zip(*again, strict=True):
            mine.step()
            peer.step()
        same_rates(*pair)


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step", "ignore:The epoch parameter")
@pytest.mark.parametrize(
    "two",
    [
        (WARM, ("CosineAnnealingLR", {"T_max": 12})),
        (WARM, ("ExponentialLR", {"gamma": 0.7})),
        (("MultiplicativeLR", {"lr_lambda": lambda e: 0.9}), WARM),
    ],
)
def test_sequences_and_chains_are_pytorchs(two):
    for kwargs in ({"milestones": [4]}, {}):
        pair = both()
        running = []
        for module, optimizer in zip((optim, torch.optim), pair, strict=True):
            of = module.lr_scheduler
            parts = [getattr(of, part)(optimizer, **given) for part, given in two]
            running.append(
                of.SequentialLR(optimizer, parts, **kwargs) if kwargs else of.ChainedScheduler(parts)
            )
        for _ in range(EPOCHS):
            same_rates(*pair)
            for schedule in running:
                schedule.step()


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("LinearLR", {"start_factor": 0.5, "total_iters": 4}), ("ExponentialLR", {"gamma": 0.75}),
        ("PolynomialLR", {"total_iters": 6, "power": 2.0}),
        ("CosineAnnealingLR", {"T_max": 6, "eta_min": 0.01}),
        ("MultiplicativeLR", {"lr_lambda": lambda e: 0.9}), ("StepLR", {"step_size": 3}),
        ("MultiStepLR", {"milestones": [2, 5]}), ("ConstantLR", {"total_iters": 4}),
        ("LambdaLR", {"lr_lambda": lambda e: 0.9**e}), ("OneCycleLR", {"max_lr": 0.1, "total_steps": 12}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("done", [3, 4])
def test_resumed_rates_are_pytorchs(name, kwargs, done):
    found = []
    for T in (lamina, torch):
        make = getattr(T.optim.lr_scheduler, name)
        first, second = (T.optim.SGD([T.zeros(1, requires_grad=True)], lr=0.05, momentum=0.9) for _ in "12")
        schedule = make(first, **kwargs)
        for _ in range(done):
            first.step()
            schedule.step()
        second.load_state_dict(first.state_dict())
        schedule = make(second, **kwargs, last_epoch=done - 1)
        rates = [schedule.get_last_lr()[0]]
        for _ in range(5):
            second.step()
            schedule.step()
            rates.append(schedule.get_last_lr()[0])
        found.append(rates)
    assert found[0] == pytest.approx(found[1], rel=1e-12)  # a product of factors, or a closed form


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("Rprop", {}), ("Rprop", {"maximize": True}), ("Adagrad", {"initial_accumulator_value": 0.5}),
        ("Adagrad", {"lr_decay": 0.1}), ("RMSprop", {"centered": True, "momentum": 0.5}),
        ("Adam", {"amsgrad": True}), ("NAdam", {}), ("ASGD", {}), ("Adadelta", {}),
        ("SGD", {"momentum": 0.5}),
    ],
)  # fmt: skip
def test_complex_parameters_are_pairs_of_reals(name, kwargs):
    rng = np.random.default_rng(3)
    start, *gradients = (rng.normal(size=(5, 2)) for _ in range(5))
    found = []
    for T in (lamina, torch):
        for pairs in (False, True):
            p = T.tensor(start.tolist(), dtype=T.float64)
            p = (p if pairs else T.view_as_complex(p).clone()).requires_grad_()
            optimizer = getattr(T.optim, name)([p], **kwargs)
            for g in gradients:
                g = T.tensor(g.tolist(), dtype=T.float64)
                p.grad = g if pairs else T.view_as_complex(g).clone()
                optimizer.step()
            found.append(np.asarray((p if pairs else T.view_as_real(p)).detach().numpy()))
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, rtol=1e-12, atol=1e-14)  # a few roundings of four steps


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
def test_rates_that_the_user_changes_are_followed_as_pytorch_does():
    pair = both()
    running = [
        module.lr_scheduler.StepLR(optimizer, 3)
        for module, optimizer in zip((optim, torch.optim), pair, strict=True)
    ]
    for epoch in range(10):
        for optimizer, schedule in zip(pair, running, strict=True):
            if epoch == 4:
                optimizer.param_groups[0]["lr"] = 0.7
            schedule.step()
        same_rates(*pair)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"patience": 2},
        {"patience": 1, "mode": "max", "factor": 0.5, "cooldown": 3},
        {"patience": 0, "threshold": 0.05, "threshold_mode": "abs", "min_lr": [0.01, 0.001]},
        {
            "patience": 1,
            "mode": "max",
            "threshold": 0.05,
            "threshold_mode": "abs",
            "min_lr": 0.004,
            "eps": 0.01,
        },
    ],
)
def test_plateaus_are_pytorchs(kwargs):
    pair = both()
    running = [
        module.lr_scheduler.ReduceLROnPlateau(optimizer, **kwargs)
        for module, optimizer in zip((optim, torch.optim), pair, strict=True)
    ]
    metrics = np.round(np.random.default_rng(2).normal(size=EPOCHS).cumsum(), 1)
    for metric in metrics:
        for schedule in running:
            schedule.step(metric)
        same_rates(*pair)
        mine, theirs = running
        assert (mine.best, mine.num_bad_epochs, mine.cooldown_counter) == (
            theirs.best, theirs.num_bad_epochs, theirs.cooldown_counter,
        )  # fmt: skip
    assert pair[0].param_groups[0]["lr"] < 0.3  # the rates did fall


@pytest.mark.filterwarnings("ignore:Detected call of `lr_scheduler.step")
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"anneal_epochs": 4, "anneal_strategy": "linear"}, {"anneal_epochs": 0}, {"swa_lr": [0.2, 0.3]}],
)
def test_averagings_schedule_is_pytorchs(kwargs):
    pair = both()
    kwargs = {"swa_lr": 0.05, **kwargs}
    running = [
        (module.lr_scheduler.ExponentialLR(o, 0.9), module.swa_utils.SWALR(o, **kwargs))
        for module, o in zip((optim, torch.optim), pair, strict=True)
    ]
    for _ in range(14):
        same_rates(*pair)
        for schedules in running:
            for schedule in schedules:
                schedule.step()
    assert running[1][1].state_dict().keys() == running[0][1].state_dict().keys()


AVERAGES = {
    "mean": lambda of: {},
    "one by one": lambda of: {"avg_fn": of.get_ema_avg_fn(0.7)},
    "lists": lambda of: {"multi_avg_fn": of.get_ema_multi_avg_fn(0.7)},
    "buffers": lambda of: {"multi_avg_fn": of.get_ema_multi_avg_fn(0.7), "use_buffers": True},
    "mean one by one": lambda of: {"avg_fn": of.get_swa_avg_fn()},
}


@pytest.mark.parametrize("name", AVERAGES)
def test_averaged_models_are_pytorchs(name):
    sides = []
    for t, tensor in ((lamina, lamina.tensor), (torch, torch.tensor)):
        draw = np.random.default_rng(3)
        model = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.BatchNorm1d(4))
        averaged = t.optim.swa_utils.AveragedModel(model, **AVERAGES[name](t.optim.swa_utils))
        for _ in range(4):
            for p in model.parameters():
                p.data.copy_(tensor(draw.normal(size=tuple(p.shape)).astype("f")))
            model(tensor(draw.normal(size=(5, 3)).astype("f")))
            averaged.update_parameters(model)
        batches = [tensor(draw.normal(size=(5, 3)).astype("f")) for _ in range(3)]
        before = {k: x.numpy().copy() for k, x in averaged.state_dict().items()}
        t.optim.swa_utils.update_bn([(x, 0) for x in batches], averaged)
        assert averaged.training and model[1].momentum == 0.1
        after = {k: x.numpy() for k, x in averaged.state_dict().items()}
        sides.append((before, after, averaged(batches[0]).detach().numpy()))
    for mine, theirs in zip(sides[0][:2], sides[1][:2], strict=True):
        assert mine.keys() == theirs.keys()
        for key, x in theirs.items():
            # four averages of 4 roundings each, and means over 15 rows, of values below 4
            assert mine[key].dtype == x.dtype and np.allclose(mine[key], x, rtol=0, atol=4 * 40 * 1.2e-7), key
    assert np.allclose(sides[0][2], sides[1][2], rtol=0, atol=1e-4)  # norms divide by spreads of about 1/10


def _counting(T, base, start):
    """A rule of the program's own, which counts the steps of each parameter by itself."""

    class Counting(base):
        def update(self):
            """A method of its own, by a name that Lamina's rules give to something else."""

        @T.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if not state:
                        state["step"], state["mean"] = start(), T.zeros_like(p)
                    state["step"] += 1
                    state["mean"].mul_(0.9).add_(p.grad, alpha=0.1)
                    p.sub_(state["mean"] * (group["lr"] / (1 - 0.9 ** float(state["step"]))))

    return Counting


@pytest.mark.parametrize("base", ["Optimizer", "Adam"])
@pytest.mark.parametrize("start", [lambda T: T.tensor(0.0), lambda T: 0], ids=["tensor", "int"])
def test_optimizers_of_programs_keep_their_own_counts_when_they_resume(base, start):
    found = []
    for T in (lamina, torch):
        rule = _counting(T, getattr(T.optim, base), lambda T=T: start(T))
        make = {"Optimizer": lambda ps, rule=rule: rule(ps, {"lr": 0.1}), "Adam": rule}[base]
        first, second = ([T.ones(2, requires_grad=True), T.ones(3, requires_grad=True)] for _ in "12")
        one, other = make(first), make(second)
        for params, optimizer in ((first, one), (second, other)):
            if optimizer is other:
                other.load_state_dict(copy.deepcopy(one.state_dict()))
            for n in range(3):
                for p in params:
                    p.grad = T.full_like(p, n + 0.5)
                optimizer.step()
        kinds = [isinstance(other.state[p]["step"], int) for p in second]
        found.append((kinds, [float(other.state[p]["step"]) for p in second], [p.tolist() for p in second]))
    (kinds, counts, values), wanted = found
    assert counts == wanted[1] == [6.0, 6.0]
    assert kinds == wanted[0]
    for mine, theirs in zip(values, wanted[2], strict=True):
        assert mine == pytest.approx(theirs, rel=1e-6)  # six updates in float32


def test_counts_of_steps_are_kept_in_their_own_dtype():
    for T in (lamina, torch):
        rule = _counting(T, T.optim.Optimizer, lambda T=T: T.tensor(0.0))
        p = T.ones(2, dtype=T.bfloat16, requires_grad=True)
        optimizer = rule([p], {"lr": 0.1})
        p.grad = T.ones_like(p)
        optimizer.step()
        saved = optimizer.state_dict()
        saved["state"][0]["step"] = T.tensor(1001.0)  # bfloat16 would hold 1000
        optimizer.load_state_dict(saved)
        assert optimizer.state[p]["step"].dtype == T.float32
        assert float(optimizer.state[p]["step"]) == 1001
        assert optimizer.state[p]["mean"].dtype == T.bfloat16
